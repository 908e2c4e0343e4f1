/* Kernels for what a launch can carry: structs by value with pointers inside, mixed sizes, pointers in memory. */
#include "hip_kernel.h"
#include "launch_types.h"

/* A struct by value whose pointers the recorder cannot see from the signature. */
KERNEL(apply_view, struct matrix_view, view, uint32_t, addend) {
  uint32_t i = BLOCK_IDX(x) * BLOCK_DIM(x) + THREAD_IDX(x);
  if (i < view.rows * view.columns) {
    uint32_t* element = &view.data[i / view.columns * view.pitch + i % view.columns];
    *element = *element * view.factor + addend + (view.bias ? view.bias[i % view.columns] : 0);
  }
}

/* Eight arguments of six sizes with padding between them. */
KERNEL(eight_arguments, char, c, short, s, float, f, char, d, double, g, int64_t, big, const uint32_t*, in, double*,
       out) {
  uint32_t i = BLOCK_IDX(x) * BLOCK_DIM(x) + THREAD_IDX(x);
  out[i] = (double)c + s * 2.0 + f * 4.0 + d * 8.0 + g * 16.0 + (double)big * 32.0 + in[i];
}

/* buffers is an array in device memory of pointers to device memory: sums[i] = sum of buffers[i][0..length). */
KERNEL(sum_table, uint32_t* const*, buffers, uint32_t*, sums, int, count, int, length) {
  uint32_t i = BLOCK_IDX(x) * BLOCK_DIM(x) + THREAD_IDX(x);
  if (i >= (uint32_t)count) return;
  uint32_t sum = 0;
  for (int j = 0; j < length; j++) sum += buffers[i][j];
  sums[i] = sum;
}

/* Builds such an array on the device: buffers[i] = base + i * length. */
KERNEL(make_table, uint32_t**, buffers, uint32_t*, base, int, count, int, length) {
  uint32_t i = BLOCK_IDX(x) * BLOCK_DIM(x) + THREAD_IDX(x);
  if (i < (uint32_t)count) buffers[i] = base + (size_t)i * length;
}

/* Writes the fold of everything in [begin, end): a one-past-the-end pointer as an argument. */
KERNEL(fold_range, const uint32_t*, begin, const uint32_t*, end, uint32_t*, result) {
  if (BLOCK_IDX(x) + THREAD_IDX(x) != 0) return;
  uint32_t fold = 2166136261u;
  for (const uint32_t* p = begin; p != end; p++) fold = (fold ^ *p) * 16777619u;
  *result = fold;
}

/* An address passed as two halves, as some libraries do. */
KERNEL(fill_halves, uint32_t, low, uint32_t, high, uint32_t, value, int, n) {
  uint32_t i = BLOCK_IDX(x) * BLOCK_DIM(x) + THREAD_IDX(x);
  if (i < (uint32_t)n) ((uint32_t*)((uint64_t)high << 32 | low))[i] = value + i;
}
