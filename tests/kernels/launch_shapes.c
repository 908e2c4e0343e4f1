/* Kernels with unusual arguments: larger than 64 KiB, pointers at odd places in packed structs, addresses in two halves, a
 * name of 4096 characters. */
#include "hip_kernel.h"
#include "launch_shapes.h"
#include "long_name.h"

#if !defined(__AMDGCN__) && !defined(__NVPTX__)
/* The compiler copies large arguments by it, and there is no library to have it from. */
__attribute__((visibility("hidden"))) void *memcpy(void *target, const void *source, size_t bytes) {
  void *result = target;
  __asm__ volatile("rep movsb" : "+D"(target), "+S"(source), "+c"(bytes) : : "memory");
  return result;
}
#endif

/* out[i] = the i-th word of a block of arguments of more than 64 KiB, plus one of what its last member points to. NVIDIA GPUs
 * take no more than 4 KiB, or 32 in newer PTX. */
#if !defined(__NVPTX__)
KERNEL(read_large, struct large_arguments, large, int, n) {
  uint32_t i = BLOCK_IDX(x) * BLOCK_DIM(x) + THREAD_IDX(x);
  if (i < (uint32_t)n) large.out[i] = large.words[i * 31 % LARGE_WORDS] + large.addends[i];
}
#endif

/* Pointers at odd offsets, one into the middle of a buffer. */
KERNEL(follow_packed, struct packed_pointers, packed, uint32_t, factor, int, n) {
  uint32_t i = BLOCK_IDX(x) * BLOCK_DIM(x) + THREAD_IDX(x);
  if (i < (uint32_t)n) packed.inner.out[i] = packed.source[i] * factor + packed.middle[i] + (uint32_t)packed.tag;
}

/* The same work by an address in two halves. */
KERNEL(add_by_halves, uint32_t, low, uint32_t, high, uint32_t, value, int, n) {
  uint32_t i = BLOCK_IDX(x) * BLOCK_DIM(x) + THREAD_IDX(x);
  if (i < (uint32_t)n) ((uint32_t*)((uint64_t)high << 32 | low))[i] += value;
}

#define NAMED_KERNEL(name, ...) KERNEL(name, __VA_ARGS__)
NAMED_KERNEL(LONG_NAME, uint32_t*, data, uint32_t, value, int, n) {
  uint32_t i = BLOCK_IDX(x) * BLOCK_DIM(x) + THREAD_IDX(x);
  if (i < (uint32_t)n) data[i] = data[i] * 3 + value;
}
