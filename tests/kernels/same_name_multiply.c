/* The other of two code objects that have a kernel and a variable of the same names. This one multiplies. */
#include "hip_kernel.h"

DEVICE uint32_t operand = 5;

KERNEL(transform, uint32_t*, data, uint32_t, amount, int, n) {
  uint32_t i = BLOCK_IDX(x) * BLOCK_DIM(x) + THREAD_IDX(x);
  if (i < (uint32_t)n) data[i] *= amount * operand;
}
