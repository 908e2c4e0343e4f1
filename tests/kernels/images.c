/* Kernels that sample textures and write surfaces. They look behind the handles as the CPU backend lays them out; on a
 * GPU they mark their results and do nothing else, and the workload stops. */
#include "hip_kernel.h"
#include "hip_texture.h"

#if defined(__AMDGCN__) || defined(__NVPTX__)
#define ON_CPU 0
#else
#define ON_CPU 1
#endif

/* What hipModuleGetTexRef finds: the handle of what is bound. */
DEVICE const struct hip_cpu_texture *reference;

/* out[i] = all channels of the texture, each times a weight of its own, at (x0 + i * dx, y0 + i * dy, z) of a level. */
KERNEL(sample, const struct hip_cpu_texture *, texture, float *, out, float, x0, float, dx, float, y0, float, dy, float,
       level, int, n) {
  uint32_t i = BLOCK_IDX(x) * BLOCK_DIM(x) + THREAD_IDX(x);
  if (i >= (uint32_t)n) return;
  out[i] = -1;
  if (!ON_CPU) return;
  struct hip_texel texel = hip_texture_lod(texture, x0 + (float)i * dx, y0 + (float)i * dy, 0.5f, level);
  out[i] = texel.channel[0] + 3 * texel.channel[1] + 5 * texel.channel[2] + 7 * texel.channel[3];
}

/* The same with the handle inside a struct passed by value, at an odd place, and with a depth. */
#pragma pack(push, 1)
struct sampler {
  char tag;
  const struct hip_cpu_texture *texture;
  float z;
};
#pragma pack(pop)
KERNEL(sample_struct, struct sampler, sampler, float *, out, float, x0, float, y0, int, n) {
  uint32_t i = BLOCK_IDX(x) * BLOCK_DIM(x) + THREAD_IDX(x);
  if (i >= (uint32_t)n) return;
  out[i] = -1;
  if (ON_CPU) out[i] = hip_texture_level(sampler.texture, 0, x0 + (float)i, y0, sampler.z).channel[0] + (float)sampler.tag;
}

/* The same with the handle in device memory, behind a number and others. */
struct image {
  uint64_t number;
  const struct hip_cpu_texture *texture;
};
KERNEL(sample_table, const struct image *, table, int, which, float *, out, float, y0, int, n) {
  uint32_t i = BLOCK_IDX(x) * BLOCK_DIM(x) + THREAD_IDX(x);
  if (i >= (uint32_t)n) return;
  out[i] = -1;
  if (ON_CPU) {
    struct hip_texel texel = hip_texture_level(table[which].texture, 0, (float)i, y0, 0.5f);
    out[i] = texel.channel[0] + (float)table[which].number;
  }
}

/* The same by the module's texture reference. */
KERNEL(sample_reference, float *, out, float, x0, float, dx, float, y0, float, level, int, n) {
  uint32_t i = BLOCK_IDX(x) * BLOCK_DIM(x) + THREAD_IDX(x);
  if (i >= (uint32_t)n) return;
  out[i] = -1;
  if (ON_CPU && reference) out[i] = hip_texture_lod(reference, x0 + (float)i * dx, y0, 0.5f, level).channel[0];
}

/* Each element of a surface of words, times a factor and plus its place. */
KERNEL(scale_surface, const struct hip_cpu_texture *, surface, uint32_t, factor, int, width, int, height) {
  uint32_t i = BLOCK_IDX(x) * BLOCK_DIM(x) + THREAD_IDX(x);
  if (!ON_CPU || i >= (uint32_t)(width * height)) return;
  uint32_t *place = hip_surface_place(surface, i % (uint32_t)width, i / (uint32_t)width, 0);
  if (place) *place = *place * factor + i;
}
