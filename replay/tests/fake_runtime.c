/* A HIP runtime with just enough in it to replay a small archive: allocations, copies and fills, all of them synchronous and in
   host memory. It checks every device range it is given and touches host ranges for real, so that a replay that reaches past
   memory of its own ends the test. Entry points that are not here are made by the test: they succeed and do nothing. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ALLOCATIONS 4096
#define INVALID 1
#define OUT_OF_MEMORY 2
static struct { char *base; size_t size; int device; } allocations[MAX_ALLOCATIONS];

static int allocate(void **out, size_t size, int device) {
  if (!out) return INVALID;
  if (size > (64u << 20)) return OUT_OF_MEMORY;
  for (int i = 0; i < MAX_ALLOCATIONS; i++)
    if (!__sync_val_compare_and_swap(&allocations[i].base, NULL, (char *)1)) {
      allocations[i].size = size ? size : 1;
      allocations[i].device = device;
      allocations[i].base = calloc(1, size ? size : 1);
      *out = allocations[i].base;
      return 0;
    }
  return OUT_OF_MEMORY;
}

static int release(void *base) {
  if (!base) return 0;
  for (int i = 0; i < MAX_ALLOCATIONS; i++)
    if (allocations[i].base == base) {
      allocations[i].base = NULL;
      free(base);
      return 0;
    }
  return INVALID;
}

/* Frees what a replay left behind that stopped half way. */
void fake_reset(void) {
  for (int i = 0; i < MAX_ALLOCATIONS; i++)
    if (allocations[i].base) {
      free(allocations[i].base);
      allocations[i].base = NULL;
    }
}

/* Ranges that begin in an allocation must end in it; others are host memory of the caller's. */
static int fits(const void *at, size_t size) {
  for (int i = 0; i < MAX_ALLOCATIONS; i++) {
    char *base = allocations[i].base;
    if (base > (char *)1 && (char *)at >= base && (char *)at <= base + allocations[i].size)
      if ((char *)at + size <= base + allocations[i].size) return 1;
  }
  for (int i = 0; i < MAX_ALLOCATIONS; i++) {
    char *base = allocations[i].base;
    if (base > (char *)1 && (char *)at >= base && (char *)at < base + allocations[i].size) return 0;
  }
  return 1;
}

static int copy(void *to, const void *from, size_t size) {
  if (!size) return 0;
  if (!to || !from || !fits(to, size) || !fits(from, size)) return INVALID;
  memmove(to, from, size);
  return 0;
}

int hipGetDeviceCount(int *count) { *count = 1; return 0; }
int hipRuntimeGetVersion(int *version) { *version = 70000000; return 0; }
int hipMalloc(void **out, size_t size) { return allocate(out, size, 1); }
int hipHostMalloc(void **out, size_t size, unsigned flags) { (void)flags; return allocate(out, size, 0); }
int hipFree(void *base) { return release(base); }
int hipHostFree(void *base) { return release(base); }
int hipMemcpy(void *to, const void *from, size_t size, int kind) { (void)kind; return copy(to, from, size); }
int hipMemcpyAsync(void *to, const void *from, size_t size, int kind, void *stream) {
  (void)kind; (void)stream;
  return copy(to, from, size);
}
int hipMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int kind) {
  (void)kind;
  if (!width || !height) return 0;
  if (width > to_pitch || width > from_pitch || height > (1u << 20)) return INVALID;
  if (!fits(to, (height - 1) * to_pitch + width) || !fits(from, (height - 1) * from_pitch + width)) return INVALID;
  for (size_t row = 0; row < height; row++) memmove((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width);
  return 0;
}
int hipMemset(void *at, int value, size_t size) {
  if (!size) return 0;
  if (!at || !fits(at, size)) return INVALID;
  memset(at, value, size);
  return 0;
}
int hipStreamCreate(void **stream) { return allocate(stream, 8, 1); }
int hipStreamDestroy(void *stream) { return release(stream); }
/* Reads every kernel argument that the launch is given: sixteen bytes in two arguments. */
int hipModuleLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared, void *stream, void **params, void **extra) {
  (void)f; (void)gx; (void)gy; (void)gz; (void)bx; (void)by; (void)bz; (void)shared; (void)stream; (void)extra;
  volatile uint64_t sum = 0;
  if (params)
    for (int i = 0; i < 2; i++) sum += *(volatile uint64_t *)params[i];
  return 0;
}
int hipModuleGetFunction(void **function, void *module, const char *name) {
  (void)module;
  if (strlen(name) > 4096) return INVALID;
  return allocate(function, 8, 1);
}
/* Reads the start of the image, and fills in a handle. */
int hipModuleLoadData(void **module, const void *image) {
  volatile uint64_t sum = *(const volatile uint64_t *)image;
  (void)sum;
  return allocate(module, 8, 1);
}
/* Fills as many nodes as the caller says that it has room for. */
int hipGraphGetNodes(void *graph, void **nodes, size_t *count) {
  (void)graph;
  if (nodes && *count < 100000)
    for (size_t i = 0; i < *count; i++) nodes[i] = nodes;
  return 0;
}
int hipDeviceGetName(char *name, int length, int device) {
  (void)device;
  if (length <= 0 || length > (1 << 26)) return INVALID;
  memset(name, 'x', (size_t)length);
  name[length - 1] = 0;
  return 0;
}
/* hipMemcpy3DParms without arrays. */
struct pitched { char *ptr; size_t pitch, xsize, ysize; };
struct copy3d { void *from_array; size_t from_pos[3]; struct pitched from; void *to_array; size_t to_pos[3]; struct pitched to; size_t extent[3]; int kind; };
int hipMemcpy3D(const struct copy3d *p) {
  const size_t *e = p->extent;
  if (p->from_array || p->to_array || !e[0] || !e[1] || !e[2]) return 0;
  if (e[1] > 4096 || e[2] > 4096) return INVALID;
  for (size_t z = 0; z < e[2]; z++)
    for (size_t y = 0; y < e[1]; y++) {
      char *from = p->from.ptr + ((p->from_pos[2] + z) * p->from.ysize + p->from_pos[1] + y) * p->from.pitch + p->from_pos[0];
      char *to = p->to.ptr + ((p->to_pos[2] + z) * p->to.ysize + p->to_pos[1] + y) * p->to.pitch + p->to_pos[0];
      if (!fits(from, e[0]) || !fits(to, e[0])) return INVALID;
      memmove(to, from, e[0]);
    }
  return 0;
}
