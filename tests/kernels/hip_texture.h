/* Textures and surfaces of the CPU backend: what is behind a texture or surface object, and how it is sampled.
 *
 * A handle is the address of a struct hip_cpu_texture, whose layout minihip shares (tests/minihip/src/texture.rs). The rules are HIP's: unnormalized
 * coordinates count elements, filtering takes the elements around x - 0.5, integers come as fractions of their range
 * where the texture says so, and each dimension has its address mode. */
#ifndef HIP_TEXTURE_H
#define HIP_TEXTURE_H
#include <stdint.h>

enum { HIP_CPU_WRAP, HIP_CPU_CLAMP, HIP_CPU_MIRROR, HIP_CPU_BORDER };
enum { HIP_CPU_SIGNED, HIP_CPU_UNSIGNED, HIP_CPU_FLOAT };

struct hip_cpu_texture_level {
  char *base;
  uint64_t pitch, slice;         /* in bytes */
  uint64_t width, height, depth; /* in elements */
};

struct hip_cpu_texture {
  uint32_t level_count, channels, channel_bytes, channel_kind;
  int32_t address_mode[3], filter_mode;
  int32_t normalized_coordinates, normalized_float, mipmap_filter, srgb;
  float border[4];
  float level_bias, level_min, level_max, reserved;
  struct hip_cpu_texture_level level[16];
};

struct hip_texel {
  float channel[4];
};

static inline int64_t hip_floor(float value) {
  int64_t whole = (int64_t)value;
  return whole - (value < (float)whole);
}

/* The element that an index means under an address mode; -1 is the border. */
static inline int64_t hip_texture_index(int64_t index, int64_t size, int32_t mode) {
  if (index >= 0 && index < size) return index;
  if (mode == HIP_CPU_BORDER) return -1;
  if (mode == HIP_CPU_CLAMP) return index < 0 ? 0 : size - 1;
  int64_t period = mode == HIP_CPU_MIRROR ? 2 * size : size;
  int64_t place = (index % period + period) % period;
  return place < size ? place : period - 1 - place;
}

static inline float hip_texture_channel(const struct hip_cpu_texture *texture, const char *place) {
  float range = 1;
  float value;
  if (texture->channel_kind == HIP_CPU_FLOAT) {
    __builtin_memcpy(&value, place, 4);
    return value;
  }
  if (texture->channel_bytes == 1) {
    uint8_t bits = *(const uint8_t *)place;
    value = texture->channel_kind == HIP_CPU_SIGNED ? (float)(int8_t)bits : (float)bits;
    range = texture->channel_kind == HIP_CPU_SIGNED ? 127 : 255;
  } else if (texture->channel_bytes == 2) {
    uint16_t bits;
    __builtin_memcpy(&bits, place, 2);
    value = texture->channel_kind == HIP_CPU_SIGNED ? (float)(int16_t)bits : (float)bits;
    range = texture->channel_kind == HIP_CPU_SIGNED ? 32767 : 65535;
  } else {
    uint32_t bits;
    __builtin_memcpy(&bits, place, 4);
    value = texture->channel_kind == HIP_CPU_SIGNED ? (float)(int32_t)bits : (float)bits;
    return value; /* 32-bit integers are never fractions */
  }
  return texture->normalized_float ? value / range : value;
}

/* One element of a level. */
static inline struct hip_texel hip_texture_fetch(const struct hip_cpu_texture *texture, uint32_t level, int64_t x, int64_t y,
                                                 int64_t z) {
  const struct hip_cpu_texture_level *place = &texture->level[level];
  struct hip_texel texel = {{0, 0, 0, 0}};
  x = hip_texture_index(x, (int64_t)place->width, texture->address_mode[0]);
  y = hip_texture_index(y, (int64_t)place->height, texture->address_mode[1]);
  z = hip_texture_index(z, (int64_t)place->depth, texture->address_mode[2]);
  for (uint32_t c = 0; c < texture->channels; c++) {
    if (x < 0 || y < 0 || z < 0) {
      texel.channel[c] = texture->border[c];
      continue;
    }
    uint64_t element = (uint64_t)x * texture->channels + c;
    const char *address = place->base + (uint64_t)z * place->slice + (uint64_t)y * place->pitch;
    texel.channel[c] = hip_texture_channel(texture, address + element * texture->channel_bytes);
  }
  return texel;
}

/* A level sampled at a point, by the texture's filter, in as many dimensions as it has. */
static inline struct hip_texel hip_texture_level(const struct hip_cpu_texture *texture, uint32_t level, float x, float y,
                                                 float z) {
  const struct hip_cpu_texture_level *place = &texture->level[level];
  if (texture->normalized_coordinates) {
    x *= (float)place->width;
    y *= (float)place->height;
    z *= (float)place->depth;
  }
  if (!texture->filter_mode)
    return hip_texture_fetch(texture, level, hip_floor(x), hip_floor(y), place->depth > 1 ? hip_floor(z) : 0);
  int64_t i = hip_floor(x - 0.5f), j = hip_floor(y - 0.5f), k = hip_floor(z - 0.5f);
  float fx = x - 0.5f - (float)i, fy = y - 0.5f - (float)j, fz = z - 0.5f - (float)k;
  struct hip_texel sum = {{0, 0, 0, 0}};
  for (int corner = 0; corner < 8; corner++) {
    int dx = corner & 1, dy = corner >> 1 & 1, dz = corner >> 2;
    if ((dy && place->height == 1) || (dz && place->depth == 1)) continue;
    float weight = dx ? fx : 1 - fx;
    if (place->height > 1) weight *= dy ? fy : 1 - fy;
    if (place->depth > 1) weight *= dz ? fz : 1 - fz;
    struct hip_texel texel = hip_texture_fetch(texture, level, i + dx, place->height > 1 ? j + dy : 0,
                                               place->depth > 1 ? k + dz : 0);
    for (int c = 0; c < 4; c++) sum.channel[c] += weight * texel.channel[c];
  }
  return sum;
}

/* A mipmapped texture sampled at a level that may lie between two. */
static inline struct hip_texel hip_texture_lod(const struct hip_cpu_texture *texture, float x, float y, float z, float level) {
  level += texture->level_bias;
  level = level < texture->level_min ? texture->level_min : level;
  level = texture->level_max > 0 && level > texture->level_max ? texture->level_max : level;
  float last = (float)(texture->level_count - 1);
  level = level < 0 ? 0 : level > last ? last : level;
  if (!texture->mipmap_filter) return hip_texture_level(texture, (uint32_t)(level + 0.5f), x, y, z);
  uint32_t lower = (uint32_t)level;
  float between = level - (float)lower;
  struct hip_texel texel = hip_texture_level(texture, lower, x, y, z);
  if (between == 0) return texel;
  struct hip_texel upper = hip_texture_level(texture, lower + 1, x, y, z);
  for (int c = 0; c < 4; c++) texel.channel[c] = (1 - between) * texel.channel[c] + between * upper.channel[c];
  return texel;
}

/* Where element (x, y, z) of a surface lies; null outside. */
static inline void *hip_surface_place(const struct hip_cpu_texture *surface, uint64_t x, uint64_t y, uint64_t z) {
  const struct hip_cpu_texture_level *place = &surface->level[0];
  if (x >= place->width || y >= place->height || z >= place->depth) return 0;
  return place->base + z * place->slice + y * place->pitch + x * surface->channels * surface->channel_bytes;
}
#endif
