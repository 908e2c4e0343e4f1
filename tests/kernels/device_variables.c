/* Variables that live in the module: a counter that kernels change and a table that the host fills in. */
#include "hip_kernel.h"

DEVICE uint32_t launch_counter = 7;
DEVICE uint32_t step_table[4] = {1, 10, 100, 1000};

/* out[i] = launch_counter * 1000000 + step_table[i % 4]; then the counter goes up by `step`. */
KERNEL(use_counter, uint32_t*, out, uint32_t, step, int, n) {
  uint32_t i = THREAD_IDX(x);
  if (i < (uint32_t)n) out[i] = launch_counter * 1000000u + step_table[i % 4];
  SYNC_THREADS();
  if (i == 0) launch_counter += step;
}
