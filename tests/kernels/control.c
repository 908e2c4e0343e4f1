/* Kernels that take time, or for ever. */
#include "hip_kernel.h"

/* Spins until *flag is non-zero: with nobody to set it, a hang. */
KERNEL(spin_until, const uint32_t*, flag, uint32_t*, done) {
  while (__atomic_load_n(flag, __ATOMIC_RELAXED) == 0) {
  }
  if (BLOCK_IDX(x) + THREAD_IDX(x) == 0) *done = 1;
}

/* Each thread runs a chain of `iterations` dependent steps from data[i]. */
KERNEL(busy, uint32_t*, data, uint32_t, iterations, int, n) {
  uint32_t i = BLOCK_IDX(x) * BLOCK_DIM(x) + THREAD_IDX(x);
  if (i >= (uint32_t)n) return;
  uint32_t value = data[i];
  for (uint32_t k = 0; k < iterations; k++) value = (value ^ (value >> 15)) * 0x2c1b3c6du + k;
  data[i] = value;
}
