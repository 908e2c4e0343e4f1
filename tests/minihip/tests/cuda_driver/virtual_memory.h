/* Part of driver.c: physical memory that is mapped at reserved addresses and handed on by file descriptors, and pools. */

static struct physical {
  size_t bytes;
  int file, device, pad;
} physical[256];
static int physical_count;
/* A handle: which memory, and that it is alive. */
struct memory_handle {
  struct physical *memory;
  int is_live;
};
struct property {
  int kind, handle_types, location_kind, location;
  void *meta_data;
  unsigned char rest[8];
};
_Static_assert(sizeof(struct property) == 32, "CUmemAllocationProp");
struct location_access {
  int kind, device, flags;
};
enum { GRANULARITY = 2 << 20 };

static struct memory_handle *handle_of(struct physical *memory) {
  struct memory_handle *handle = calloc(1, sizeof *handle);
  return *handle = (struct memory_handle){memory, 1}, handle;
}
int cuMemGetAllocationGranularity(size_t *bytes, const struct property *wanted, int option) {
  return *bytes = GRANULARITY, wanted->kind == 1 && option <= 1 ? OK : INVALID_VALUE;
}
int cuMemAddressReserve(char **out, size_t bytes, size_t alignment, char *wanted, unsigned long long flags) {
  if (!bytes || bytes % GRANULARITY || flags) return INVALID_VALUE;
  alignment = alignment < GRANULARITY ? GRANULARITY : alignment;
  if (wanted) {
    *out = mmap(wanted, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (*out == wanted) return OK;
    if (*out != MAP_FAILED) munmap(*out, bytes);
  }
  char *room = mmap(0, bytes + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return OUT_OF_MEMORY;
  size_t before = (alignment - (uintptr_t)room % alignment) % alignment;
  munmap(room, before), munmap(room + before + bytes, alignment - before);
  return *out = room + before, OK;
}
int cuMemAddressFree(char *address, size_t bytes) { return munmap(address, bytes) ? INVALID_VALUE : OK; }
int cuMemCreate(struct memory_handle **out, size_t bytes, const struct property *wanted, unsigned long long flags) {
  if (!bytes || bytes % GRANULARITY || flags || wanted->kind != 1 || wanted->location_kind != 1 || no_device(wanted->location))
    return INVALID_VALUE;
  if (physical_count == 256) return OUT_OF_MEMORY;
  int file = memfd_create("physical", MFD_CLOEXEC);
  if (ftruncate(file, (off_t)bytes)) return OUT_OF_MEMORY;
  physical[physical_count] = (struct physical){bytes, file, wanted->location, 0};
  return *out = handle_of(&physical[physical_count++]), OK;
}
int cuMemRelease(struct memory_handle *handle) {
  return handle && handle->is_live ? (handle->is_live = 0, OK) : INVALID_VALUE;
}
int cuMemMap(char *address, size_t bytes, size_t offset, struct memory_handle *handle, unsigned long long flags) {
  if (!handle || !handle->is_live || offset + bytes > handle->memory->bytes || flags) return INVALID_VALUE;
  if (mmap(address, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, handle->memory->file, (off_t)offset) != address) return OUT_OF_MEMORY;
  /* No device reaches it before it is given access. */
  return know((struct range){address, bytes, DEVICE, 0, handle->memory->device, 1 << DEVICES, handle->memory});
}
int cuMemUnmap(char *address, size_t bytes) {
  for (char *at = address; at < address + bytes;) {
    struct range *found = find(at);
    if (!found || !found->memory || found->base != at) return INVALID_VALUE;
    at += found->bytes;
    *found = (struct range){0};
  }
  mmap(address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  return OK;
}
int cuMemSetAccess(char *address, size_t bytes, const struct location_access *list, size_t count) {
  for (char *at = address; at < address + bytes;) {
    struct range *found = find(at);
    if (!found || !found->memory) return INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
      if (list[i].kind != 1 || no_device(list[i].device)) return INVALID_DEVICE;
      int bit = 1 << list[i].device;
      found->access = list[i].flags == 3 ? found->access | bit : found->access & ~bit;
    }
    at = found->base + found->bytes;
  }
  return mprotect(address, bytes, PROT_READ | PROT_WRITE) ? INVALID_VALUE : OK;
}
int cuMemGetAccess(unsigned long long *flags, const struct location_access *location, void *address) {
  struct range *found = find(address);
  return found && found->memory ? (*flags = found->access >> location->device & 1 ? 3 : 0, OK) : INVALID_VALUE;
}
int cuMemGetAllocationPropertiesFromHandle(struct property *out, struct memory_handle *handle) {
  *out = (struct property){.kind = 1, .handle_types = 1, .location_kind = 1, .location = handle->memory->device};
  return OK;
}
int cuMemRetainAllocationHandle(struct memory_handle **out, void *address) {
  struct range *found = find(address);
  return found && found->memory ? (*out = handle_of(found->memory), OK) : INVALID_VALUE;
}
/* All descriptors stand for one file, as the driver's do. Which memory each means is where it stands in the file, which copies
 * of a descriptor share and others do not. */
int cuMemExportToShareableHandle(int *out, struct memory_handle *handle, int type, unsigned long long flags) {
  if (type != 1 || flags || !handle || !handle->is_live) return INVALID_VALUE;
  *out = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  return lseek(*out, 1 + (handle->memory - physical), SEEK_SET) > 0 ? OK : INVALID_VALUE;
}
int cuMemImportFromShareableHandle(struct memory_handle **out, intptr_t descriptor, int type) {
  off_t at = lseek((int)descriptor, 0, SEEK_CUR);
  if (type != 1 || at < 1 || at > physical_count) return INVALID_VALUE;
  return *out = handle_of(&physical[at - 1]), OK;
}

int cuMemAllocAsync(void *out, size_t bytes, void *stream) { return (void)stream, cuMemAlloc_v2(out, bytes); }
int cuMemAllocFromPoolAsync(void *out, size_t bytes, void *pool, void *stream) {
  return (void)stream, pool ? cuMemAlloc_v2(out, bytes) : INVALID_VALUE;
}
int cuMemFreeAsync(void *address, void *stream) { return (void)stream, release(address); }
int cuMemPoolCreate(void **out, const void *props) { return *out = malloc(64), props ? OK : INVALID_VALUE; }
int cuMemPoolDestroy(void *pool) { return pool ? OK : INVALID_VALUE; }
