/* Kernels that sample textures and write surfaces: on NVIDIA GPUs by their own instructions, on the CPU by looking behind the
 * handles as the CPU backend lays them out. On an AMD GPU they mark their results and do nothing else, and the workload
 * stops.
 *
 * A GPU's instruction is for one number of dimensions and one kind of result; so there is a function for each that is used. */
#include "hip_kernel.h"
#include "hip_texture.h"

/* A handle: on the CPU the address of its struct. */
typedef const struct hip_cpu_texture *handle;

/* What hipModuleGetTexRef finds: the handle of what is bound. */
DEVICE handle reference;

#if defined(__AMDGCN__)
#define CAN_SAMPLE 0
#else
#define CAN_SAMPLE 1
#endif

#if defined(__NVPTX__)
static inline struct hip_texel sample_2d(handle texture, float x, float y, float level) {
  struct hip_texel t;
  float *c = t.channel;
  __asm__ volatile("tex.level.2d.v4.f32.f32 {%0, %1, %2, %3}, [%4, {%5, %6}], %7;"
                   : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
                   : "l"(texture), "f"(x), "f"(y), "f"(level));
  return t;
}
static inline struct hip_texel fetch_linear(handle texture, int x) {
  struct hip_texel t;
  float *c = t.channel;
  __asm__ volatile("tex.1d.v4.f32.s32 {%0, %1, %2, %3}, [%4, {%5}];"
                   : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
                   : "l"(texture), "r"(x));
  return t;
}
static inline float integer_linear(handle texture, int x) {
  uint32_t c[4];
  __asm__ volatile("tex.1d.v4.u32.s32 {%0, %1, %2, %3}, [%4, {%5}];"
                   : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
                   : "l"(texture), "r"(x));
  return (float)c[0];
}
static inline float integer_2d(handle texture, float x, float y) {
  uint32_t c[4];
  __asm__ volatile("tex.2d.v4.u32.f32 {%0, %1, %2, %3}, [%4, {%5, %6}];"
                   : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
                   : "l"(texture), "f"(x), "f"(y));
  return (float)c[0];
}
/* Surfaces count bytes in x. */
static inline int surface_read(handle surface, uint32_t x, uint32_t y, uint32_t *value) {
  __asm__ volatile("suld.b.2d.b32.zero %0, [%1, {%2, %3}];" : "=r"(*value) : "l"(surface), "r"(x * 4), "r"(y) : "memory");
  return 1;
}
static inline void surface_write(handle surface, uint32_t x, uint32_t y, uint32_t value) {
  __asm__ volatile("sust.b.2d.b32.zero [%0, {%1, %2}], %3;" : : "l"(surface), "r"(x * 4), "r"(y), "r"(value) : "memory");
}
#else
static inline struct hip_texel sample_2d(handle texture, float x, float y, float level) {
  return hip_texture_lod(texture, x, y, 0.5f, level);
}
static inline struct hip_texel fetch_linear(handle texture, int x) { return hip_texture_fetch(texture, 0, x, 0, 0); }
static inline float integer_linear(handle texture, int x) { return hip_texture_fetch(texture, 0, x, 0, 0).channel[0]; }
static inline float integer_2d(handle texture, float x, float y) { return hip_texture_lod(texture, x, y, 0.5f, 0).channel[0]; }
static inline int surface_read(handle surface, uint32_t x, uint32_t y, uint32_t *value) {
  const uint32_t *place = hip_surface_place(surface, x, y, 0);
  if (place) *value = *place;
  return place != 0;
}
static inline void surface_write(handle surface, uint32_t x, uint32_t y, uint32_t value) {
  *(uint32_t *)hip_surface_place(surface, x, y, 0) = value;
}
#endif

/* All channels, each times a weight of its own. */
static inline float weighed(struct hip_texel texel) {
  return texel.channel[0] + 3 * texel.channel[1] + 5 * texel.channel[2] + 7 * texel.channel[3];
}

/* out[i] = the first channel of the texture at (x0 + i * dx, y0 + i * dy) of a level. */
KERNEL(sample, handle, texture, float *, out, float, x0, float, dx, float, y0, float, dy, float, level, int, n) {
  uint32_t i = BLOCK_IDX(x) * BLOCK_DIM(x) + THREAD_IDX(x);
  if (i >= (uint32_t)n) return;
  out[i] = -1;
  if (CAN_SAMPLE) out[i] = sample_2d(texture, x0 + (float)i * dx, y0 + (float)i * dy, level).channel[0];
}

/* out[i] = all channels of element first + i of memory. */
KERNEL(sample_linear, handle, texture, float *, out, int, first, int, n) {
  uint32_t i = BLOCK_IDX(x) * BLOCK_DIM(x) + THREAD_IDX(x);
  if (i >= (uint32_t)n) return;
  out[i] = -1;
  if (CAN_SAMPLE) out[i] = weighed(fetch_linear(texture, first + (int)i));
}

/* The same with the handle inside a struct passed by value, at an odd place. */
#pragma pack(push, 1)
struct sampler {
  char tag;
  handle texture;
  float y;
};
#pragma pack(pop)
KERNEL(sample_struct, struct sampler, sampler, float *, out, float, x0, float, dx, int, n) {
  uint32_t i = BLOCK_IDX(x) * BLOCK_DIM(x) + THREAD_IDX(x);
  if (i >= (uint32_t)n) return;
  out[i] = -1;
  if (CAN_SAMPLE) out[i] = sample_2d(sampler.texture, x0 + (float)i * dx, sampler.y, 0).channel[0] + (float)sampler.tag;
}

/* The same with the handle in device memory, behind a number and others. */
struct image {
  uint64_t number;
  handle texture;
};
KERNEL(sample_table, const struct image *, table, int, which, float *, out, float, y0, int, n) {
  uint32_t i = BLOCK_IDX(x) * BLOCK_DIM(x) + THREAD_IDX(x);
  if (i >= (uint32_t)n) return;
  out[i] = -1;
  if (CAN_SAMPLE) out[i] = sample_2d(table[which].texture, (float)i, y0, 0).channel[0] + (float)table[which].number;
}

/* By the module's texture reference: floating point of rows, integers of memory (mode 1), integers of rows (mode 2). */
KERNEL(sample_reference, float *, out, float, x0, float, dx, float, y0, float, level, int, mode, int, n) {
  uint32_t i = BLOCK_IDX(x) * BLOCK_DIM(x) + THREAD_IDX(x);
  if (i >= (uint32_t)n) return;
  float x = x0 + (float)i * dx;
  out[i] = -1;
  if (!CAN_SAMPLE || !reference) return;
  if (mode == 1)
    out[i] = integer_linear(reference, (int)x);
  else if (mode == 2)
    out[i] = integer_2d(reference, x, y0);
  else
    out[i] = sample_2d(reference, x, y0, level).channel[0];
}

/* Each element of a surface of words, times a factor and plus its place. */
KERNEL(scale_surface, handle, surface, uint32_t, factor, int, width, int, height) {
  uint32_t i = BLOCK_IDX(x) * BLOCK_DIM(x) + THREAD_IDX(x), value = 0;
  if (!CAN_SAMPLE || i >= (uint32_t)(width * height)) return;
  uint32_t x = i % (uint32_t)width, y = i / (uint32_t)width;
  if (surface_read(surface, x, y, &value)) surface_write(surface, x, y, value * factor + i);
}
