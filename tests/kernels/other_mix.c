/* Kernels of the standard code object's names that compute something else, to see which of the two was launched. */
#include "hip_kernel.h"

KERNEL(mix, uint32_t*, data, uint32_t, factor, uint32_t, addend, int, n) {
  uint32_t i = BLOCK_IDX(x) * BLOCK_DIM(x) + THREAD_IDX(x);
  if (i < (uint32_t)n) data[i] = data[i] * factor + addend + 1;
}
