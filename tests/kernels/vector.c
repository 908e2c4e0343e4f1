/* Elementwise kernels: one thread per element, any grid that covers n. */
#include "hip_kernel.h"

#define GLOBAL_INDEX() (BLOCK_IDX(x) * BLOCK_DIM(x) + THREAD_IDX(x))

KERNEL(saxpy, float, a, const float*, x, float*, y, int, n) {
  uint32_t i = GLOBAL_INDEX();
  if (i < (uint32_t)n) y[i] = a * x[i] + y[i];
}

KERNEL(vector_add, const float*, a, const float*, b, float*, sum, int, n) {
  uint32_t i = GLOBAL_INDEX();
  if (i < (uint32_t)n) sum[i] = a[i] + b[i];
}

KERNEL(vector_scale, float*, data, float, factor, int, n) {
  uint32_t i = GLOBAL_INDEX();
  if (i < (uint32_t)n) data[i] *= factor;
}

KERNEL(iota, uint32_t*, data, uint32_t, first, int, n) {
  uint32_t i = GLOBAL_INDEX();
  if (i < (uint32_t)n) data[i] = first + i;
}

KERNEL(fill, uint32_t*, data, uint32_t, value, int, n) {
  uint32_t i = GLOBAL_INDEX();
  if (i < (uint32_t)n) data[i] = value;
}

/* Order-sensitive: two launches with different constants give another result when they are exchanged. */
KERNEL(mix, uint32_t*, data, uint32_t, factor, uint32_t, addend, int, n) {
  uint32_t i = GLOBAL_INDEX();
  if (i < (uint32_t)n) data[i] = data[i] * factor + addend;
}

/* Order-sensitive across two buffers: target takes in what source holds at this moment. */
KERNEL(mix_from, uint32_t*, target, const uint32_t*, source, uint32_t, factor, int, n) {
  uint32_t i = GLOBAL_INDEX();
  if (i < (uint32_t)n) target[i] = target[i] * factor + source[i];
}

KERNEL(copy_offset, uint32_t*, target, const uint32_t*, source, size_t, source_offset, int, n) {
  uint32_t i = GLOBAL_INDEX();
  if (i < (uint32_t)n) target[i] = source[source_offset + i];
}
