/* A CUDA driver for machines without one, as far as tests of minihip's cuda backend go: memory, arrays, copies, graphs and the
 * standard kernels, all in host memory and done when the call returns. Layouts are cuda.h's, written down here a second time.
 * It is as strict as the driver where the backend relies on it: what a struct must not mix, what an executable graph refuses. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../kernels/hip_texture.h"

enum { OK, INVALID_VALUE, OUT_OF_MEMORY, INVALID_CONTEXT = 201, INVALID_HANDLE = 400, NOT_FOUND = 500 };
enum { HOST = 1, DEVICE = 2, ARRAY = 3, UNIFIED = 4 };

/* ---- memory ---- */

struct range { char *base; size_t bytes; int kind; int managed; };
static struct range ranges[4096];
static int range_count;

static struct range *find(const void *address) {
  for (int i = 0; i < range_count; i++)
    if ((const char *)address >= ranges[i].base && (const char *)address < ranges[i].base + ranges[i].bytes) return &ranges[i];
  return 0;
}
static int allocate(void *out, size_t bytes, int kind, int managed) {
  if (bytes == 0 || range_count == 4096) return INVALID_VALUE;
  char *base = aligned_alloc(512, (bytes + 511) / 512 * 512);
  memset(base, 0xa5, bytes);
  ranges[range_count++] = (struct range){base, bytes, kind, managed};
  *(char **)out = base;
  return OK;
}
static int release(void *address) {
  struct range *found = find(address);
  if (!found || found->base != address) return INVALID_VALUE;
  free(found->base);
  *found = ranges[--range_count];
  return OK;
}

int cuInit(unsigned flags) { return flags; }
int cuDeviceGetCount(int *count) { return *count = 1, OK; }
int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, OK; }
int cuDeviceGetName(char *name, int len, int device) { return snprintf(name, len, "no GPU %d", device), OK; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { return *bytes = 1 << 30, device; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  *value = attribute == 75 ? 9 : attribute == 76 ? 0 : attribute == 1 ? 1024 : 1;
  return device;
}
static char context;
static int resets, current;
int cuDevicePrimaryCtxRetain(void **out, int device) { return *out = &context, device; }
/* What was current is so no longer. */
int cuDevicePrimaryCtxReset_v2(int device) { return resets++, current = 0, device; }
int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) { return (void)flags, device; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { return *flags = 0, *active = 1, device; }
int cuCtxSetCurrent(void *wanted) { return current = wanted == &context, wanted == &context ? OK : INVALID_CONTEXT; }
int cuCtxSynchronize(void) { return current ? OK : INVALID_CONTEXT; }
int cuCtxGetStreamPriorityRange(int *least, int *greatest) { return *least = 0, *greatest = -5, OK; }
int cuThreadExchangeStreamCaptureMode(int *mode) { return *mode = 0, OK; }

int cuMemAlloc_v2(void *out, size_t bytes) { return current ? allocate(out, bytes, DEVICE, 0) : INVALID_CONTEXT; }
int cuMemAllocManaged(void *out, size_t bytes, unsigned flags) { return flags == 1 ? allocate(out, bytes, DEVICE, 1) : INVALID_VALUE; }
int cuMemHostAlloc(void *out, size_t bytes, unsigned flags) { return (void)flags, allocate(out, bytes, HOST, 0); }
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
  if (attribute == 9) return *(int *)value = 0, OK;
  return *(void **)value = address, OK;
}
int cuMemcpy(void *to, const void *from, size_t bytes) { return memmove(to, from, bytes), OK; }
int cuMemcpyAsync(void *to, const void *from, size_t bytes, void *stream) { return (void)stream, cuMemcpy(to, from, bytes); }
int cuMemcpyPeer(void *to, void *c1, const void *from, void *c2, size_t bytes) { return c1 == c2 ? cuMemcpy(to, from, bytes) : INVALID_CONTEXT; }
int cuMemcpyPeerAsync(void *to, void *c1, const void *from, void *c2, size_t bytes, void *s) { return (void)s, cuMemcpyPeer(to, c1, from, c2, bytes); }

static int fill(char *to, size_t pitch, const void *value, size_t size, size_t width, size_t height) {
  for (size_t y = 0; y < height; y++)
    for (size_t x = 0; x < width; x++) memcpy(to + y * pitch + x * size, value, size);
  return OK;
}
#define FILLS(bits, type, async)                                                                                          \
  int cuMemsetD##bits##async(void *to, type value, size_t count) { return fill(to, 0, &value, sizeof value, count, 1); }    \
  int cuMemsetD##bits##Async(void *to, type value, size_t count, void *s) { return (void)s, fill(to, 0, &value, sizeof value, count, 1); } \
  int cuMemsetD2D##bits##Async(void *to, size_t pitch, type value, size_t width, size_t height, void *s) {                  \
    return (void)s, fill(to, pitch, &value, sizeof value, width, height);                                                  \
  }
FILLS(8, uint8_t, _v2) FILLS(16, uint16_t, _v2) FILLS(32, uint32_t, _v2)

/* ---- arrays ---- */

struct descriptor { size_t width, height, depth; int format; unsigned channels, flags; };
struct array { uint64_t magic; struct descriptor is; size_t element; int is_level; char *data; };
struct mipmap { uint64_t magic; unsigned levels; struct array *level[16]; };
enum { ARRAY_MAGIC = 0xa88a7, MIPMAP_MAGIC = 0x313b };

static size_t channel_bytes(int format) {
  switch (format) {
    case 0x01: case 0x08: return 1;
    case 0x02: case 0x09: case 0x10: return 2;
    case 0x03: case 0x0a: case 0x20: return 4;
    default: return 0;
  }
}
static size_t or_one(size_t size) { return size ? size : 1; }
int cuArray3DCreate_v2(struct array **out, const struct descriptor *wanted) {
  size_t element = channel_bytes(wanted->format) * wanted->channels;
  if (!element || !wanted->width || (wanted->depth && !wanted->height)) return INVALID_VALUE;
  struct array *array = calloc(1, sizeof *array);
  *array = (struct array){ARRAY_MAGIC, *wanted, element, 0, malloc(element * wanted->width * or_one(wanted->height) * or_one(wanted->depth))};
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

struct side { size_t x, y, z, lod; int type; char *host, *device; struct array *array; void *reserved; size_t pitch, height; };
struct copy { struct side src, dst; size_t width, height, depth; };
_Static_assert(sizeof(struct copy) == 200, "CUDA_MEMCPY3D");

/* Address, pitch and slice of a side, or why there is none. */
static int side(const struct side *s, const struct copy *c, char **at, size_t *pitch, size_t *slice) {
  if (s->type == ARRAY) {
    struct array *a = s->array;
    if (!a || a->magic != ARRAY_MAGIC || s->host || s->device) return INVALID_HANDLE;
    *pitch = a->is.width * a->element, *slice = *pitch * or_one(a->is.height), *at = a->data;
    if (s->x + c->width > *pitch || s->y + c->height > or_one(a->is.height) || s->z + c->depth > or_one(a->is.depth)) return INVALID_VALUE;
  } else {
    *at = s->type == HOST ? s->host : s->device;
    struct range *found = find(*at);
    int right = s->type == HOST ? !found || found->kind == HOST : found && (s->type == UNIFIED ? found->managed : found->kind == DEVICE);
    if (!*at || s->array || !right) return INVALID_VALUE;
    *pitch = s->pitch, *slice = s->pitch * s->height;
    if ((c->height > 1 && s->pitch < c->width) || (c->depth > 1 && s->height < c->height)) return INVALID_VALUE;
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
int cuMemcpy3DPeer(const struct copy *c) { return c->src.reserved == &context && c->dst.reserved == &context ? cuMemcpy3D_v2(c) : INVALID_CONTEXT; }
int cuMemcpy3DPeerAsync(const struct copy *c, void *stream) { return (void)stream, cuMemcpy3DPeer(c); }

/* ---- textures: numbered alike with surfaces; what each was made with stays to be looked at ---- */

struct resource { int type, pad; uint64_t words[16]; unsigned flags; };
struct texture { int address_mode[3], filter_mode; unsigned flags, anisotropy; int mipmap_filter; float bias, min, max, border[4]; int reserved[12]; };
struct view { int format; size_t width, height, depth; unsigned levels[2], layers[2], reserved[16]; };
_Static_assert(sizeof(struct resource) == 144 && sizeof(struct texture) == 104 && sizeof(struct view) == 112, "cuda.h");
struct object { int is_live; struct resource resource; struct texture texture; struct view view; int has_view; };
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
int cuTexObjectDestroy(uint64_t o) { return o < 64 && fake_textures[o].is_live ? (fake_textures[o].is_live = 0, OK) : INVALID_VALUE; }
int cuSurfObjectCreate(uint64_t *out, const struct resource *r) {
  return is_image(r) && r->type == 0 ? new_object(fake_surfaces, out, (struct object){.is_live = 1, .resource = *r}) : INVALID_VALUE;
}
int cuSurfObjectDestroy(uint64_t o) { return o < 64 && fake_surfaces[o].is_live ? (fake_surfaces[o].is_live = 0, OK) : INVALID_VALUE; }

/* ---- streams and events: everything is done already ---- */

int cuStreamCreateWithPriority(void **out, unsigned flags, int priority) { return *out = malloc(64), (void)priority, flags > 1; }
int cuStreamDestroy_v2(void *stream) { return stream ? OK : INVALID_HANDLE; }
int cuStreamSynchronize(void *stream) { return (void)stream, current ? OK : INVALID_CONTEXT; }
int cuStreamQuery(void *stream) { return (void)stream, OK; }
int cuStreamWaitEvent(void *stream, void *event, unsigned flags) { return (void)stream, (void)flags, event ? OK : INVALID_HANDLE; }
int cuEventCreate(void **out, unsigned flags) { return *out = malloc(64), (void)flags, OK; }
int cuEventDestroy_v2(void *event) { return event ? OK : INVALID_HANDLE; }
int cuEventRecord(void *event, void *stream) { return (void)stream, event ? OK : INVALID_HANDLE; }
int cuEventSynchronize(void *event) { return event ? OK : INVALID_HANDLE; }

/* ---- handles for other processes, and shares of the device ---- */

struct ipc { uint64_t words[8]; };
int cuIpcGetMemHandle(struct ipc *out, void *address) {
  struct range *found = find(address);
  return found ? (*out = (struct ipc){{1, (uint64_t)found->base}}, OK) : INVALID_VALUE;
}
int cuIpcGetEventHandle(struct ipc *out, void *event) { return *out = (struct ipc){{2, (uint64_t)event}}, OK; }

/* CUdevResource; `whole`: of the device or of a green context, which is what can be split. */
struct share { int type; unsigned char whole, internal[91]; unsigned count, least, alignment, flags; unsigned char rest[32]; };
_Static_assert(sizeof(struct share) == 144, "CUdevResource");
static struct share share_of(unsigned count, int whole) {
  return (struct share){.type = count ? 1 : 0, .whole = (unsigned char)whole, .count = count, .least = 2, .alignment = 2};
}
int cuDeviceGetDevResource(int device, struct share *out, int type) { return *out = share_of(132, 1), type == 1 ? device : INVALID_VALUE; }
int cuDevSmResourceSplitByCount(struct share *result, unsigned *groups, const struct share *from, struct share *rest, unsigned flags, unsigned least) {
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
int cuGreenCtxGetDevResource(struct share *green, struct share *out, int type) { return *out = *green, type == 1 ? OK : INVALID_VALUE; }
int cuGreenCtxRecordEvent(struct share *green, void *event) { return green && event ? OK : INVALID_HANDLE; }
int cuGreenCtxWaitEvent(struct share *green, void *event) { return green && event ? OK : INVALID_HANDLE; }
int cuGreenCtxStreamCreate(void **out, struct share *green, unsigned flags, int priority) {
  return *out = malloc(64), green && flags == 1 && priority <= 0 ? OK : INVALID_VALUE;
}

/* ---- modules: PTX as text, of which the names of kernels and variables are understood, and bytes that variables start as ---- */

struct named { char name[4200]; void *memory; size_t bytes; struct module *module; struct named *next; };
struct module { struct named *variables, *functions; };
static struct named *look(struct named *list, const char *name) {
  for (; list; list = list->next)
    if (!strcmp(list->name, name)) return list;
  return 0;
}
static struct named *declare(struct module *module, struct named **list, const char *at) {
  struct named *made = calloc(1, sizeof *made);
  sscanf(at, "%4199[A-Za-z0-9_$]", made->name);
  made->module = module, made->next = *list;
  return *list = made;
}
/* `.global .align 4 .b8 NAME[16] = {1, 2};` or `.global .u64 NAME;` */
static void declare_variable(struct module *module, const char *at) {
  size_t element = 1, count = 1;
  while (*at == ' ' || *at == '.') {
    at += *at == ' ';
    if (*at != '.') break;
    element = strstr(at, "64") && strstr(at, "64") < at + 5 ? 8 : strstr(at, "32") && strstr(at, "32") < at + 5 ? 4 : 1;
    int is_aligned = !strncmp(at, ".align", 6);
    at += strcspn(at, " ");
    if (is_aligned) at += 1 + strcspn(at + 1, " ");
  }
  struct named *made = declare(module, &module->variables, at);
  at += strlen(made->name);
  if (*at == '[') count = strtoul(at + 1, 0, 10);
  made->bytes = element * count;
  allocate(&made->memory, made->bytes, DEVICE, 0);
  memset(made->memory, 0, made->bytes);
  const char *end = strchr(at, ';'), *open = strpbrk(at, "={;");
  if (*open == '=' && open[2] == '{') open += 2;
  for (size_t i = 0; open && open < end && i < count; i++) {
    unsigned long value = strtoul(open + 1, 0, 10);
    memcpy((char *)made->memory + i * element, &value, element);
    open = strpbrk(open + 1, ",}");
    if (!open || *open == '}') break;
  }
}
int cuModuleLoadDataEx(struct module **out, const char *image, unsigned count, void *options, void *values) {
  (void)options, (void)values;
  if (count || !strstr(image, ".version")) return INVALID_VALUE;
  struct module *module = *out = calloc(1, sizeof **out);
  for (const char *at = image; (at = strstr(at, ".entry ")); ) declare(module, &module->functions, at += 7);
  for (const char *at = image; (at = strstr(at, ".global ")); ) declare_variable(module, at += 8);
  return OK;
}
int cuModuleUnload(struct module *module) { return module ? OK : INVALID_HANDLE; }
int cuModuleGetGlobal_v2(void **at, size_t *bytes, struct module *module, const char *name) {
  struct named *found = look(module->variables, name);
  return found ? (*at = found->memory, *bytes = found->bytes, OK) : NOT_FOUND;
}
int cuModuleGetFunction(struct named **out, struct module *module, const char *name) {
  return (*out = look(module->functions, name)) ? OK : NOT_FOUND;
}
int cuModuleGetFunctionCount(unsigned *count, struct module *module) {
  *count = 0;
  for (struct named *n = module->functions; n; n = n->next) ++*count;
  return OK;
}
int cuModuleEnumerateFunctions(struct named **out, unsigned count, struct module *module) {
  for (struct named *n = module->functions; n && count; n = n->next, count--) *out++ = n;
  return OK;
}
int cuFuncGetName(const char **out, struct named *function) { return *out = function->name, OK; }
int cuFuncGetAttribute(int *value, int attribute, void *function) { return (void)attribute, (void)function, *value = 0, OK; }
int cuFuncSetAttribute(void *function, int attribute, int value) { return (void)attribute, (void)function, (void)value, OK; }

/* Linking: one text behind the other. */
struct link { char *text; size_t bytes; };
int cuLinkCreate_v2(unsigned count, void *options, void *values, struct link **out) {
  (void)options, (void)values;
  return *out = calloc(1, sizeof **out), (int)count;
}
int cuLinkAddData_v2(struct link *link, int kind, const char *data, size_t bytes, const char *name, unsigned count, void *o, void *v) {
  (void)name, (void)o, (void)v;
  if (kind != 1 || count || data[bytes - 1] || !strstr(data, ".version")) return INVALID_VALUE;
  link->text = realloc(link->text, link->bytes + bytes);
  memcpy(link->text + link->bytes, data, bytes);
  link->bytes += bytes - 1;
  return OK;
}
int cuLinkComplete(struct link *link, char **out, size_t *bytes) { return *out = link->text, *bytes = link->bytes + 1, OK; }
int cuLinkDestroy(struct link *link) { return free(link->text), free(link), OK; }

struct launch_config { unsigned sizes[6], shared; void *stream; struct { int id, pad; unsigned value[16]; } * attributes; unsigned count; };
_Static_assert(sizeof(struct launch_config) == 56, "CUlaunchConfig");
int cuOccupancyMaxPotentialClusterSize(int *size, void *function, const struct launch_config *c) {
  return *size = 8, function && c->sizes[3] ? OK : INVALID_VALUE;
}
int cuOccupancyMaxActiveClusters(int *count, void *function, const struct launch_config *c) {
  if (!function || c->count != 1 || c->attributes->id != 4) return INVALID_VALUE;
  return *count = 132 / (int)c->attributes->value[0], OK;
}

static unsigned word(void **params, int i) { return *(uint32_t *)params[i]; }
static float number(void **params, int i) { return *(float *)params[i]; }
static uint64_t wide(void **params, int i) { return *(uint64_t *)params[i]; }

/* ---- sampling: as the CPU's kernels do it, with what the device leaves out ---- */

static void set_level(struct hip_cpu_texture *of, unsigned at, struct array *a) {
  size_t pitch = a->is.width * a->element;
  of->level[at] = (struct hip_cpu_texture_level){a->data, pitch, pitch * or_one(a->is.height), a->is.width, or_one(a->is.height), or_one(a->is.depth)};
  of->level_count = at + 1;
}
static struct hip_cpu_texture image_of(const struct object *object) {
  const struct resource *r = &object->resource;
  const struct texture *t = &object->texture;
  struct hip_cpu_texture of = {0};
  int format = (int)(uint32_t)r->words[1];
  of.channels = (unsigned)(r->words[1] >> 32);
  struct array *first = r->type == 0 ? (struct array *)r->words[0] : r->type == 1 ? ((struct mipmap *)r->words[0])->level[0] : 0;
  if (first) format = first->is.format, of.channels = first->is.channels;
  of.channel_bytes = (unsigned)channel_bytes(format);
  of.channel_kind = format >= 0x10 ? HIP_CPU_FLOAT : format < 8 ? HIP_CPU_UNSIGNED : HIP_CPU_SIGNED;
  size_t element = (size_t)of.channels * of.channel_bytes;
  if (r->type == 0) set_level(&of, 0, first);
  if (r->type == 1) {
    struct mipmap *mipmap = (struct mipmap *)r->words[0];
    unsigned from = object->has_view ? object->view.levels[0] : 0, to = object->has_view ? object->view.levels[1] : mipmap->levels - 1;
    for (unsigned i = from; i <= to; i++) set_level(&of, i - from, mipmap->level[i]);
  }
  if (r->type == 2) of.level_count = 1, of.level[0] = (struct hip_cpu_texture_level){(char *)r->words[0], 0, 0, r->words[2] / element, 1, 1};
  if (r->type == 3) of.level_count = 1, of.level[0] = (struct hip_cpu_texture_level){(char *)r->words[0], r->words[4], 0, r->words[2], r->words[3], 1};
  of.normalized_coordinates = (t->flags & 2) != 0;
  of.normalized_float = !(t->flags & 1);
  for (int i = 0; i < 3; i++) {
    /* Elements are neither wrapped nor mirrored by their number. */
    int is_by_number = !of.normalized_coordinates && (t->address_mode[i] == HIP_CPU_WRAP || t->address_mode[i] == HIP_CPU_MIRROR);
    of.address_mode[i] = is_by_number ? HIP_CPU_CLAMP : t->address_mode[i];
  }
  of.filter_mode = t->filter_mode, of.mipmap_filter = t->mipmap_filter;
  memcpy(of.border, t->border, sizeof of.border);
  /* The largest level is one even where it is 0. */
  of.level_bias = t->bias, of.level_min = t->min, of.level_max = t->max > 0 ? t->max : 1e-6f;
  return of;
}
#pragma pack(push, 1)
struct sampler { char tag; uint64_t texture; float y; };
#pragma pack(pop)
/* Whether a kernel of the images was meant, and is done. */
static int sampled(const struct named *f, void **params) {
  const char *name = f->name;
  if (!strcmp(name, "scale_surface")) {
    struct hip_cpu_texture surface = image_of(&fake_surfaces[wide(params, 0) % 64]);
    for (unsigned i = 0; i < word(params, 2) * word(params, 3); i++) {
      uint32_t *place = hip_surface_place(&surface, i % word(params, 2), i / word(params, 2), 0);
      if (place) *place = *place * word(params, 1) + i;
    }
    return 1;
  }
  if (strncmp(name, "sample", 6)) return 0;
  int is_reference = !strcmp(name, "sample_reference"), is_struct = !strcmp(name, "sample_struct");
  const struct sampler *sampler = params[0];
  uint64_t handle = is_reference ? *(uint64_t *)look(f->module->variables, "reference")->memory : is_struct ? sampler->texture : wide(params, 0);
  float *out = (float *)wide(params, is_reference ? 0 : 1);
  struct hip_cpu_texture of = image_of(&fake_textures[handle % 64]);
  if (!strcmp(name, "sample_linear")) {
    for (unsigned i = 0; i < word(params, 3); i++) {
      struct hip_texel t = hip_texture_fetch(&of, 0, word(params, 2) + i, 0, 0);
      out[i] = t.channel[0] + 3 * t.channel[1] + 5 * t.channel[2] + 7 * t.channel[3];
    }
    return 1;
  }
  int first = is_reference ? 1 : 2;
  float x0 = number(params, first), dx = number(params, first + 1), y0 = is_struct ? sampler->y : number(params, first + 2);
  float dy = is_struct || is_reference ? 0 : number(params, 5), level = is_struct ? 0 : number(params, is_reference ? 4 : 6);
  unsigned n = word(params, is_struct ? 4 : is_reference ? 6 : 7);
  for (unsigned i = 0; i < n; i++)
    out[i] = hip_texture_lod(&of, x0 + (float)i * dx, y0 + (float)i * dy, 0.5f, level).channel[0] + (float)(is_struct ? sampler->tag : 0);
  return 1;
}
/* The kernels that tests launch; others do nothing. */
static void run(const struct named *function, void **params) {
  const char *name = function->name;
  if (sampled(function, params)) return;
  if (!strcmp(name, "count_managed")) {
    uint32_t *counters = *(uint32_t **)look(function->module->variables, "counters")->memory;
    for (unsigned i = 0; i < word(params, 1); i++) counters[i] = counters[i] * word(params, 0) + i;
    return;
  }
  uint32_t *data = *(uint32_t **)params[0];
  if (!strcmp(name, "transform"))
    for (unsigned i = 0; i < word(params, 2); i++) data[i] += word(params, 1) + *(uint32_t *)look(function->module->variables, "operand")->memory;
  if (!strcmp(name, "mix"))
    for (unsigned i = 0; i < word(params, 3); i++) data[i] = data[i] * word(params, 1) + word(params, 2);
  if (!strcmp(name, "iota"))
    for (unsigned i = 0; i < word(params, 2); i++) data[i] = word(params, 1) + i;
  if (!strcmp(name, "fill"))
    for (unsigned i = 0; i < word(params, 2); i++) data[i] = word(params, 1);
}
int cuLaunchKernel(struct named *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void *stream, void **params, void **extra) {
  (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)stream, (void)extra;
  return run(f, params), OK;
}

/* ---- graphs: nodes run in the order they were added ---- */

struct kernel { struct named *function; unsigned sizes[6], shared; void **params, **extra; void *kernel, *context; };
struct memset { char *dst; size_t pitch; unsigned value, element; size_t width, height; };
struct node { int type, is_off; struct node *original, *next; struct copy copy; struct kernel kernel; struct memset memset; void *arguments[8]; uint64_t attributes[16][8]; };
struct graph { struct node *first, **last; };
_Static_assert(sizeof(struct kernel) == 72 && sizeof(struct memset) == 40, "cuda.h");

static struct node *add(struct graph *graph, struct node is) {
  struct node *node = malloc(sizeof *node);
  *node = is, node->next = 0;
  *graph->last = node, graph->last = &node->next;
  return node;
}
static struct graph *new_graph(void) {
  struct graph *graph = calloc(1, sizeof *graph);
  return graph->last = &graph->first, graph;
}
static struct graph *copy_graph(struct graph *from) {
  struct graph *graph = new_graph();
  for (struct node *n = from->first; n; n = n->next) add(graph, *n)->original = n;
  return graph;
}
/* The driver copies a kernel's arguments; 8 bytes of each are enough here. */
static void keep_arguments(struct node *node) {
  static const int counts[] = {4, 3, 3};
  static const char *names[] = {"mix", "iota", "fill"};
  int count = 0;
  for (int i = 0; i < 3; i++)
    if (!strcmp(node->kernel.function->name, names[i])) count = counts[i];
  for (int i = 0; i < count; i++) {
    uint64_t *value = malloc(8);
    *value = 0;
    memcpy(value, node->kernel.params[i], i == 0 ? 8 : 4);
    node->arguments[i] = value;
  }
}
int cuGraphCreate(struct graph **out, unsigned flags) { return *out = new_graph(), (int)flags; }
int cuGraphDestroy(struct graph *graph) { return graph->last = 0, OK; }
int cuGraphClone(struct graph **out, struct graph *graph) { return *out = copy_graph(graph), OK; }
int cuGraphNodeFindInClone(struct node **out, struct node *original, struct graph *clone) {
  for (struct node *n = clone->first; n; n = n->next)
    if (n->original == original) return *out = n, OK;
  return INVALID_VALUE;
}
int cuGraphGetNodes(struct graph *graph, struct node **out, size_t *count) {
  size_t room = out ? *count : 0;
  *count = 0;
  for (struct node *n = graph->first; n; n = n->next, ++*count)
    if (*count < room) out[*count] = n;
  return OK;
}
int cuGraphNodeGetType(struct node *node, int *type) { return *type = node->type, OK; }
int cuGraphAddMemcpyNode(struct node **out, struct graph *g, void *deps, size_t count, const struct copy *c, void *in) {
  (void)deps, (void)count;
  return in == &context ? (*out = add(g, (struct node){.type = 1, .copy = *c}), OK) : INVALID_CONTEXT;
}
int cuGraphAddKernelNode_v2(struct node **out, struct graph *g, void *deps, size_t count, const struct kernel *k) {
  (void)deps, (void)count;
  *out = add(g, (struct node){.type = 0, .kernel = *k});
  return keep_arguments(*out), OK;
}
int cuGraphAddMemsetNode(struct node **out, struct graph *g, void *deps, size_t count, const struct memset *m, void *in) {
  (void)deps, (void)count, (void)in;
  return *out = add(g, (struct node){.type = 2, .memset = *m}), OK;
}
int cuGraphMemcpyNodeGetParams(struct node *node, struct copy *out) { return *out = node->copy, OK; }
int cuGraphMemcpyNodeSetParams(struct node *node, const struct copy *c) { return node->copy = *c, OK; }
int cuGraphKernelNodeSetParams_v2(struct node *node, const struct kernel *k) { return node->kernel = *k, keep_arguments(node), OK; }
int cuGraphKernelNodeSetAttribute(struct node *node, int id, const uint64_t *value) { return memcpy(node->attributes[id], value, 64), OK; }
int cuGraphKernelNodeGetAttribute(struct node *node, int id, uint64_t *value) { return memcpy(value, node->attributes[id], 64), OK; }
int cuGraphInstantiateWithFlags(struct graph **out, struct graph *graph, unsigned long long flags) { return *out = copy_graph(graph), (int)flags; }
int cuGraphExecDestroy(struct graph *exec) { return exec->last = 0, OK; }
static int is_one_row(const struct copy *c) { return c->height == 1 && c->depth == 1; }
int cuGraphExecMemcpyNodeSetParams(struct graph *exec, struct node *node, const struct copy *c, void *in) {
  struct node *found;
  if (cuGraphNodeFindInClone(&found, node, exec) || in != &context || !is_one_row(&found->copy) || !is_one_row(c)) return INVALID_VALUE;
  return found->copy = *c, OK;
}
int cuGraphExecKernelNodeSetParams_v2(struct graph *exec, struct node *node, const struct kernel *k) {
  struct node *found;
  return cuGraphNodeFindInClone(&found, node, exec) ? INVALID_VALUE : cuGraphKernelNodeSetParams_v2(found, k);
}
int cuGraphNodeSetEnabled(struct graph *exec, struct node *node, unsigned is_on) {
  struct node *found;
  return cuGraphNodeFindInClone(&found, node, exec) ? INVALID_VALUE : (found->is_off = !is_on, OK);
}
int cuGraphNodeGetEnabled(struct graph *exec, struct node *node, unsigned *is_on) {
  struct node *found;
  return cuGraphNodeFindInClone(&found, node, exec) ? INVALID_VALUE : (*is_on = !found->is_off, OK);
}
int cuGraphLaunch(struct graph *exec, void *stream) {
  (void)stream;
  if (!exec->last) return INVALID_HANDLE;
  int code = OK;
  for (struct node *n = exec->first; n && !code; n = n->next) {
    if (n->is_off) continue;
    if (n->type == 0) run(n->kernel.function, n->arguments);
    if (n->type == 1) code = cuMemcpy3D_v2(&n->copy);
    if (n->type == 2) fill(n->memset.dst, n->memset.pitch, &n->memset.value, n->memset.element, n->memset.width, n->memset.height);
  }
  return code;
}
