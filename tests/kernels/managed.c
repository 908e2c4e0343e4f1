/* A managed variable: memory that host and device share, behind a pointer in the code object. What it starts as is in
 * `counters.managed`, from which runtimes take its size too. */
#include "hip_kernel.h"

#if defined(__NVPTX__)
/* PTX names have no dots. */
#define START "counters$managed"
#else
#define START "counters.managed"
#endif
DEVICE uint32_t counters_start[4] __asm__(START) = {5, 50, 500, 5000};
DEVICE uint32_t *counters;

/* counters[i] = counters[i] * factor + i */
KERNEL(count_managed, uint32_t, factor, int, n) {
  uint32_t i = THREAD_IDX(x);
  if (i < (uint32_t)n) counters[i] = counters[i] * factor + i;
}
