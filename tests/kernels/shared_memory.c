/* Kernels that need the whole block: barriers, static and dynamic shared memory, atomics. */
#include "hip_kernel.h"

/* sums[block] = sum of the block's elements; dynamic shared memory: 4 bytes per thread, power-of-two blocks. */
KERNEL(block_sum, const uint32_t*, data, uint32_t*, sums, int, n) {
  SHARED uint32_t* partial = DYNAMIC_SHARED(uint32_t);
  uint32_t t = THREAD_IDX(x), i = BLOCK_IDX(x) * BLOCK_DIM(x) + t;
  partial[t] = i < (uint32_t)n ? data[i] : 0;
  SYNC_THREADS();
  for (uint32_t width = BLOCK_DIM(x) / 2; width > 0; width /= 2) {
    if (t < width) partial[t] += partial[t + width];
    SYNC_THREADS();
  }
  if (t == 0) sums[BLOCK_IDX(x)] = partial[0];
}

/* Transposes a rows x columns matrix through a 16 x 16 tile; blocks of 16 x 16 threads. */
enum { TILE = 16 };
STATIC_SHARED(transpose, uint32_t, transpose_tile, TILE*(TILE + 1))
KERNEL(transpose, uint32_t*, target, const uint32_t*, source, int, rows, int, columns) {
  SHARED uint32_t* tile = STATIC_SHARED_PTR(transpose_tile);
  int x = BLOCK_IDX(x) * TILE + THREAD_IDX(x), y = BLOCK_IDX(y) * TILE + THREAD_IDX(y);
  if (x < columns && y < rows) tile[THREAD_IDX(y) * (TILE + 1) + THREAD_IDX(x)] = source[y * columns + x];
  SYNC_THREADS();
  x = BLOCK_IDX(y) * TILE + THREAD_IDX(x), y = BLOCK_IDX(x) * TILE + THREAD_IDX(y);
  if (x < rows && y < columns) target[y * rows + x] = tile[THREAD_IDX(x) * (TILE + 1) + THREAD_IDX(y)];
}

/* bins[data[i] % bin_count]++ with a grid-stride loop: static shared bins per block, then one atomic per bin. */
enum { MAX_BINS = 256 };
STATIC_SHARED(histogram, uint32_t, histogram_bins, MAX_BINS)
KERNEL(histogram, const uint32_t*, data, uint32_t*, bins, uint32_t, bin_count, int, n) {
  SHARED uint32_t* local = STATIC_SHARED_PTR(histogram_bins);
  for (uint32_t b = THREAD_IDX(x); b < bin_count; b += BLOCK_DIM(x)) local[b] = 0;
  SYNC_THREADS();
  for (uint32_t i = BLOCK_IDX(x) * BLOCK_DIM(x) + THREAD_IDX(x); i < (uint32_t)n; i += GRID_DIM(x) * BLOCK_DIM(x))
    __atomic_fetch_add(&local[data[i] % bin_count], 1, __ATOMIC_RELAXED);
  SYNC_THREADS();
  for (uint32_t b = THREAD_IDX(x); b < bin_count; b += BLOCK_DIM(x))
    __atomic_fetch_add(&bins[b], local[b], __ATOMIC_RELAXED);
}

/* Static and dynamic shared memory in one kernel: reverses each block's elements and adds the block's first. */
STATIC_SHARED(reverse_block, uint32_t, reverse_first, 1)
KERNEL(reverse_block, uint32_t*, data, int, n) {
  SHARED uint32_t *first = STATIC_SHARED_PTR(reverse_first), *copy = DYNAMIC_SHARED(uint32_t);
  uint32_t t = THREAD_IDX(x), base = BLOCK_IDX(x) * BLOCK_DIM(x);
  uint32_t count = (uint32_t)n - base < BLOCK_DIM(x) ? (uint32_t)n - base : BLOCK_DIM(x);
  if (t < count) copy[t] = data[base + t];
  if (t == 0) first[0] = data[base];
  SYNC_THREADS();
  if (t < count) data[base + t] = copy[count - 1 - t] + first[0];
}
