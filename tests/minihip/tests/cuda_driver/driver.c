/* A CUDA driver for machines without one, as far as tests of minihip's cuda backend go: devices, memory, arrays, copies, graphs
 * and the standard kernels, all in host memory and done when the call returns, but for streams that wait for a value. Layouts are cuda.h's, written down here a second time.
 * It is as strict as the driver where the backend relies on it: what a struct must not mix, what an executable graph refuses. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../../kernels/hip_texture.h"

enum { OK, INVALID_VALUE, OUT_OF_MEMORY, INVALID_DEVICE = 101, INVALID_CONTEXT = 201, INVALID_HANDLE = 400, NOT_FOUND = 500 };
enum { NOT_READY = 600, ILLEGAL_ADDRESS = 700, LAUNCH_TIMEOUT = 702 };
enum { HOST = 1, DEVICE = 2, ARRAY = 3, UNIFIED = 4 };

/* ---- memory ---- */

struct range {
  char *base;
  size_t bytes;
  int kind, managed, device;
  /* Mapped memory: a bit for each device that has access, and one above them. */
  int access;
  struct physical *memory;
};
enum { RANGES = 4096 };
static struct range ranges[RANGES];
static int range_count;
static pthread_mutex_t ranges_lock = PTHREAD_MUTEX_INITIALIZER;

static struct range *find(const void *address) {
  for (int i = 0; i < range_count; i++)
    if ((const char *)address >= ranges[i].base && (const char *)address < ranges[i].base + ranges[i].bytes) return &ranges[i];
  return 0;
}
/* Adds a range where one has gone, or behind the others: what another thread looks at stays where it is. */
static int know(struct range is) {
  int code = OUT_OF_MEMORY;
  pthread_mutex_lock(&ranges_lock);
  for (int i = 0; i < RANGES && code; i++)
    if (i == range_count || !ranges[i].base) {
      ranges[i] = is, code = OK;
      if (i == range_count) range_count++;
    }
  pthread_mutex_unlock(&ranges_lock);
  return code;
}

#include "contexts.h"
static int cannot_wait(void *stream, const char *what);
static int copied_later(void *stream, void *to, const void *from, size_t bytes);

static int allocate(void *out, size_t bytes, int kind, int managed) {
  if (bytes == 0) return INVALID_VALUE;
  char *base = aligned_alloc(512, (bytes + 511) / 512 * 512);
  memset(base, 0xa5, bytes);
  *(char **)out = base;
  return know((struct range){base, bytes, kind, managed, current_device(), 0, 0});
}
static int release(void *address) {
  struct range *found = find(address);
  if (!found || found->base != address || found->memory) return INVALID_VALUE;
  char *base = found->base;
  *found = (struct range){0};
  return free(base), OK;
}

int cuMemAlloc_v2(void *out, size_t bytes) { return usable() ? usable() : allocate(out, bytes, DEVICE, 0); }
int cuMemAllocManaged(void *out, size_t bytes, unsigned flags) {
  return flags == 1 ? allocate(out, bytes, DEVICE, 1) : INVALID_VALUE;
}
int cuMemHostAlloc(void *out, size_t bytes, unsigned flags) { return (void)flags, allocate(out, bytes, HOST, 0); }
int cuMemHostGetDevicePointer_v2(void **out, void *address, unsigned flags) {
  return *out = address, find(address) && !flags ? OK : INVALID_VALUE;
}
int cuMemFree_v2(void *address) { return release(address); }
int cuMemFreeHost(void *address) { return release(address); }
int cuMemGetAddressRange_v2(void **base, size_t *bytes, void *address) {
  struct range *found = find(address);
  return found ? (*base = found->base, *bytes = found->bytes, OK) : INVALID_VALUE;
}
int cuPointerGetAttribute(void *value, int attribute, void *address) {
  struct range *found = find(address);
  if (!found) return INVALID_VALUE;
  if (attribute == 2) return *(int *)value = found->kind, OK;
  if (attribute == 8) return *(char *)value = (char)found->managed, OK;
  if (attribute == 9) return *(int *)value = found->device, OK;
  return *(void **)value = address, OK;
}
int cuMemcpy(void *to, const void *from, size_t bytes) { return usable() ? usable() : (memmove(to, from, bytes), OK); }
int cuMemcpyAsync(void *to, const void *from, size_t bytes, void *stream) {
  return usable() ? usable() : copied_later(stream, to, from, bytes) ? OK : cuMemcpy(to, from, bytes);
}
int cuMemcpyPeer(void *to, void *c1, const void *from, void *c2, size_t bytes) {
  return is_context(c1) && is_context(c2) ? cuMemcpy(to, from, bytes) : INVALID_CONTEXT;
}
int cuMemcpyPeerAsync(void *to, void *c1, const void *from, void *c2, size_t bytes, void *s) {
  return (void)s, cuMemcpyPeer(to, c1, from, c2, bytes);
}

static int fill(char *to, size_t pitch, const void *value, size_t size, size_t width, size_t height) {
  if (height > 1 && pitch < width * size) return INVALID_VALUE;
  for (size_t y = 0; y < height; y++)
    for (size_t x = 0; x < width; x++) memcpy(to + y * pitch + x * size, value, size);
  return OK;
}
#define FILLS(bits, type, async)                                                                                         \
  int cuMemsetD##bits##async(void *to, type value, size_t count) { return fill(to, 0, &value, sizeof value, count, 1); } \
  int cuMemsetD##bits##Async(void *to, type value, size_t count, void *s) {                                              \
    return (void)s, fill(to, 0, &value, sizeof value, count, 1);                                                         \
  }                                                                                                                      \
  int cuMemsetD2D##bits##Async(void *to, size_t pitch, type value, size_t width, size_t height, void *s) {               \
    return (void)s, fill(to, pitch, &value, sizeof value, width, height);                                                \
  }
FILLS(8, uint8_t, _v2)
FILLS(16, uint16_t, _v2) FILLS(32, uint32_t, _v2)

    /* ---- arrays ---- */

    struct descriptor {
  size_t width, height, depth;
  int format;
  unsigned channels, flags;
};
struct array {
  uint64_t magic;
  struct descriptor is;
  size_t element;
  int is_level;
  char *data;
};
struct mipmap {
  uint64_t magic;
  unsigned levels;
  struct array *level[16];
};
enum { ARRAY_MAGIC = 0xa88a7, MIPMAP_MAGIC = 0x313b };

static size_t channel_bytes(int format) {
  switch (format) {
    case 0x01:
    case 0x08: return 1;
    case 0x02:
    case 0x09:
    case 0x10: return 2;
    case 0x03:
    case 0x0a:
    case 0x20: return 4;
    default: return 0;
  }
}
static size_t or_one(size_t size) { return size ? size : 1; }
int cuArray3DCreate_v2(struct array **out, const struct descriptor *wanted) {
  size_t element = channel_bytes(wanted->format) * wanted->channels;
  if (!element || !wanted->width || (wanted->depth && !wanted->height)) return INVALID_VALUE;
  struct array *array = calloc(1, sizeof *array);
  *array = (struct array){ARRAY_MAGIC, *wanted, element, 0,
                          malloc(element * wanted->width * or_one(wanted->height) * or_one(wanted->depth))};
  return *out = array, OK;
}
int cuArrayDestroy(struct array *array) {
  if (array->magic != ARRAY_MAGIC || array->is_level) return INVALID_HANDLE;
  array->magic = 0;
  free(array->data);
  return OK;
}
int cuMipmappedArrayCreate(struct mipmap **out, const struct descriptor *wanted, unsigned levels) {
  struct mipmap *mipmap = calloc(1, sizeof *mipmap);
  *mipmap = (struct mipmap){MIPMAP_MAGIC, levels, {0}};
  struct descriptor size = *wanted;
  for (unsigned i = 0; i < levels; i++) {
    if (cuArray3DCreate_v2(&mipmap->level[i], &size)) return INVALID_VALUE;
    mipmap->level[i]->is_level = 1;
    size.width = or_one(size.width / 2);
    if (size.height) size.height = or_one(size.height / 2);
    if (size.depth) size.depth = or_one(size.depth / 2);
  }
  return *out = mipmap, OK;
}
int cuMipmappedArrayGetLevel(struct array **out, struct mipmap *mipmap, unsigned level) {
  return mipmap->magic == MIPMAP_MAGIC && level < mipmap->levels ? (*out = mipmap->level[level], OK) : INVALID_VALUE;
}
int cuMipmappedArrayDestroy(struct mipmap *mipmap) {
  if (mipmap->magic != MIPMAP_MAGIC) return INVALID_HANDLE;
  return mipmap->magic = 0, OK;
}

struct side {
  size_t x, y, z, lod;
  int type;
  char *host, *device;
  struct array *array;
  void *reserved;
  size_t pitch, height;
};
struct copy {
  struct side src, dst;
  size_t width, height, depth;
};
_Static_assert(sizeof(struct copy) == 200, "CUDA_MEMCPY3D");

/* Address, pitch and slice of a side, or why there is none. */
static int side(const struct side *s, const struct copy *c, char **at, size_t *pitch, size_t *slice) {
  if (s->type == ARRAY) {
    struct array *a = s->array;
    if (!a || a->magic != ARRAY_MAGIC || s->host || s->device) return INVALID_HANDLE;
    *pitch = a->is.width * a->element, *slice = *pitch * or_one(a->is.height), *at = a->data;
    if (s->x + c->width > *pitch || s->y + c->height > or_one(a->is.height) || s->z + c->depth > or_one(a->is.depth))
      return INVALID_VALUE;
  } else {
    *at = s->type == HOST ? s->host : s->device;
    struct range *found = find(*at);
    int right =
        s->type == HOST ? !found || found->kind == HOST : found && (s->type == UNIFIED ? found->managed : found->kind == DEVICE);
    if (!*at || s->array || !right) return INVALID_VALUE;
    *pitch = s->pitch, *slice = s->pitch * s->height;
    if ((c->height > 1 && s->pitch < c->width) || (c->depth > 1 && s->height < c->height)) return INVALID_VALUE;
    size_t end = (s->z + c->depth - 1) * *slice + (s->y + c->height - 1) * *pitch + s->x + c->width;
    if (found && c->width && c->height && c->depth && end > (size_t)(found->base + found->bytes - *at)) return INVALID_VALUE;
  }
  *at += s->z * *slice + s->y * *pitch + s->x;
  return OK;
}
int cuMemcpy3D_v2(const struct copy *c) {
  char *to, *from;
  size_t to_pitch, to_slice, from_pitch, from_slice;
  int code = side(&c->dst, c, &to, &to_pitch, &to_slice);
  if (!code) code = side(&c->src, c, &from, &from_pitch, &from_slice);
  for (size_t z = 0; !code && z < c->depth; z++)
    for (size_t y = 0; y < c->height; y++)
      memmove(to + z * to_slice + y * to_pitch, from + z * from_slice + y * from_pitch, c->width);
  return code;
}
int cuMemcpy3DAsync_v2(const struct copy *c, void *stream) { return (void)stream, cuMemcpy3D_v2(c); }
int cuMemcpy3DPeer(const struct copy *c) {
  return is_context(c->src.reserved) && is_context(c->dst.reserved) ? cuMemcpy3D_v2(c) : INVALID_CONTEXT;
}
int cuMemcpy3DPeerAsync(const struct copy *c, void *stream) { return (void)stream, cuMemcpy3DPeer(c); }

/* ---- textures: numbered alike with surfaces; what each was made with stays to be looked at ---- */

struct resource {
  int type, pad;
  uint64_t words[16];
  unsigned flags;
};
struct texture {
  int address_mode[3], filter_mode;
  unsigned flags, anisotropy;
  int mipmap_filter;
  float bias, min, max, border[4];
  int reserved[12];
};
struct view {
  int format;
  size_t width, height, depth;
  unsigned levels[2], layers[2], reserved[16];
};
_Static_assert(sizeof(struct resource) == 144 && sizeof(struct texture) == 104 && sizeof(struct view) == 112, "cuda.h");
struct object {
  int is_live;
  struct resource resource;
  struct texture texture;
  struct view view;
  int has_view;
};
struct object fake_textures[64], fake_surfaces[64];
static int is_image(const struct resource *r) {
  if (r->type == 0) return ((struct array *)r->words[0])->magic == ARRAY_MAGIC;
  if (r->type == 1) return ((struct mipmap *)r->words[0])->magic == MIPMAP_MAGIC;
  return r->words[0] != 0 && channel_bytes((int)(uint32_t)r->words[1]) != 0;
}
static int new_object(struct object *all, uint64_t *out, struct object is) {
  for (int i = 1; i < 64; i++)
    if (!all[i].is_live) return all[i] = is, *out = (uint64_t)i, OK;
  return OUT_OF_MEMORY;
}
int cuTexObjectCreate(uint64_t *out, const struct resource *r, const struct texture *t, const struct view *v) {
  int is_float = r->type == 0 ? ((struct array *)r->words[0])->is.format == 0x20 : 0;
  if (!is_image(r) || (is_float && (t->flags & 1)) || (r->type == 1 && !(t->flags & 2))) return INVALID_VALUE;
  struct object is = {1, *r, *t, {0}, v != 0};
  if (v) is.view = *v;
  return new_object(fake_textures, out, is);
}
int cuDeviceGetTexture1DLinearMaxWidth(size_t *elements, int format, unsigned channels, int device) {
  return *elements = 1 << 28, channel_bytes(format) && channels ? device : INVALID_VALUE;
}
int cuTexObjectDestroy(uint64_t o) {
  return o < 64 && fake_textures[o].is_live ? (fake_textures[o].is_live = 0, OK) : INVALID_VALUE;
}
int cuSurfObjectCreate(uint64_t *out, const struct resource *r) {
  return is_image(r) && r->type == 0 ? new_object(fake_surfaces, out, (struct object){.is_live = 1, .resource = *r})
                                     : INVALID_VALUE;
}
int cuSurfObjectDestroy(uint64_t o) {
  return o < 64 && fake_surfaces[o].is_live ? (fake_surfaces[o].is_live = 0, OK) : INVALID_VALUE;
}

#include "streams.h"
#include "virtual_memory.h"

/* ---- handles for other processes, and shares of the device ---- */

struct ipc {
  uint64_t words[8];
};
int cuIpcGetMemHandle(struct ipc *out, void *address) {
  struct range *found = find(address);
  return found ? (*out = (struct ipc){{1, (uint64_t)found->base}}, OK) : INVALID_VALUE;
}
int cuIpcGetEventHandle(struct ipc *out, void *event) { return *out = (struct ipc){{2, (uint64_t)event}}, OK; }

/* CUdevResource; `whole`: of the device or of a green context, which is what can be split. */
struct share {
  int type;
  unsigned char whole, internal[91];
  unsigned count, least, alignment, flags;
  unsigned char rest[32];
};
_Static_assert(sizeof(struct share) == 144, "CUdevResource");
static struct share share_of(unsigned count, int whole) {
  return (struct share){.type = count ? 1 : 0, .whole = (unsigned char)whole, .count = count, .least = 2, .alignment = 2};
}
int cuDeviceGetDevResource(int device, struct share *out, int type) {
  return *out = share_of(132, 1), type == 1 ? device : INVALID_VALUE;
}
int cuDevSmResourceSplitByCount(struct share *result, unsigned *groups, const struct share *from, struct share *rest,
                                unsigned flags, unsigned least) {
  unsigned unit = flags & 1 ? 2 : 8, size = (least + unit - 1) / unit * unit;
  if (!from->whole || from->type != 1 || !size || size > from->count) return INVALID_VALUE;
  unsigned most = from->count / size;
  if (!result) return *groups = most, OK;
  if (*groups > most) *groups = most;
  for (unsigned i = 0; i < *groups; i++) result[i] = share_of(size, 0);
  if (rest) *rest = share_of(from->count - *groups * size, 0);
  return OK;
}
int cuDevResourceGenerateDesc(struct share **out, const struct share *shares, unsigned count) {
  if (count != 1 || shares->type != 1) return INVALID_VALUE;
  *out = malloc(sizeof **out);
  return **out = *shares, OK;
}
int cuGreenCtxCreate(struct share **out, const struct share *description, int device, unsigned flags) {
  *out = malloc(sizeof **out);
  return **out = share_of(description->count, 1), flags == 1 ? device : INVALID_VALUE;
}
int cuGreenCtxDestroy(struct share *green) { return free(green), OK; }
int cuGreenCtxGetDevResource(struct share *green, struct share *out, int type) {
  return *out = *green, type == 1 ? OK : INVALID_VALUE;
}
int cuGreenCtxRecordEvent(struct share *green, void *event) { return green && event ? OK : INVALID_HANDLE; }
int cuGreenCtxWaitEvent(struct share *green, void *event) { return green && event ? OK : INVALID_HANDLE; }
int cuGreenCtxStreamCreate(struct stream **out, struct share *green, unsigned flags, int priority) {
  return green && flags == 1 && priority <= 0 ? cuStreamCreateWithPriority(out, flags, priority) : INVALID_VALUE;
}

#include "modules.h"
#include "graphs.h"
