/* Windows that the program opens itself, after calls that what is in the window rests on.
 * usage: windows imported | contexts | one_thread | awaited */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "hip.h"

int hrr_capture_start(void) __attribute__((weak));
int hrr_capture_stop(void) __attribute__((weak));

static void starts(void) { if (hrr_capture_start) hrr_capture_start(); }
static void stops(void) { if (hrr_capture_stop) hrr_capture_stop(); }

#define CHECK(call)                                                                    \
  do {                                                                                 \
    const int failed = (call);                                                         \
    if (failed) return fprintf(stderr, "line %d: %s: %d\n", __LINE__, #call, failed);  \
  } while (0)
#define HOLDS(what) CHECK((what) ? 0 : -1)

struct location { int type, id; };
struct properties { int type, handle_type; struct location location; void* win32; unsigned char flags[8]; };
struct access { struct location location; int flags; };
typedef void* handle_t;
hipError_t hipMemGetAllocationGranularity(size_t* size, const struct properties* wanted, int option);
hipError_t hipMemCreate(handle_t* memory, size_t size, const struct properties* wanted, unsigned long long flags);
hipError_t hipMemRelease(handle_t memory);
hipError_t hipMemAddressReserve(void** range, size_t size, size_t alignment, void* at, unsigned long long flags);
hipError_t hipMemMap(void* range, size_t size, size_t offset, handle_t memory, unsigned long long flags);
hipError_t hipMemUnmap(void* range, size_t size);
hipError_t hipMemSetAccess(void* range, size_t size, const struct access* access, size_t count);
hipError_t hipMemExportToShareableHandle(void* shared, handle_t memory, int type, unsigned long long flags);
hipError_t hipMemImportFromShareableHandle(handle_t* memory, void* shared, int type);

typedef void* context_t;
hipError_t hipCtxCreate(context_t* context, unsigned flags, int device);
hipError_t hipCtxPushCurrent(context_t context);
hipError_t hipCtxPopCurrent(context_t* context);
hipError_t hipDevicePrimaryCtxRetain(context_t* context, int device);
hipError_t hipGetLastError(void);

struct channels { int x, y, z, w, kind; };
hipError_t hipMallocArray(void** array, const struct channels* channels, size_t width, size_t height, unsigned flags);
hipError_t hipMemcpy2DToArray_spt(void* to, size_t column, size_t row, const void* from, size_t pitch, size_t width, size_t height,
                                  int kind);
hipError_t hipMemcpy2DFromArray_spt(void* to, size_t pitch, const void* from, size_t column, size_t row, size_t width, size_t height,
                                    int kind);

enum { DESCRIPTOR = 1, BYTES = 4096, DEVICE_LOCATION = 1, READ_WRITE = 3, NUMBER = 200 };

static int map(unsigned char** range, handle_t memory, size_t size) {
  const struct access access = {{DEVICE_LOCATION, 0}, READ_WRITE};
  CHECK(hipMemAddressReserve((void**)range, size, 0, 0, 0));
  CHECK(hipMemMap(*range, size, 0, memory, 0));
  CHECK(hipMemSetAccess(*range, size, &access, 1));
  return 0;
}

/* Memory that is there by imports alone: of one the descriptors are closed, another is imported in the window. */
static int imported(void) {
  static unsigned char result[BYTES];
  const struct properties wanted = {1, DESCRIPTOR, {DEVICE_LOCATION, 0}, 0, {0}};
  size_t size = 0;
  handle_t memory[2], other;
  unsigned char *mapped[2], *seen;
  int descriptor[2];
  CHECK(hipMemGetAllocationGranularity(&size, &wanted, 0));
  for (int i = 0; i < 2; i++) {
    CHECK(hipMemCreate(&memory[i], size, &wanted, 0));
    CHECK(hipMemExportToShareableHandle(&descriptor[i], memory[i], DESCRIPTOR, 0));
  }
  HOLDS(dup2(descriptor[0], NUMBER) == NUMBER);
  close(descriptor[0]);
  CHECK(hipMemImportFromShareableHandle(&other, (void*)(uintptr_t)NUMBER, DESCRIPTOR));
  close(NUMBER);
  for (int i = 0; i < 2; i++) CHECK(hipMemRelease(memory[i]));
  CHECK(map(&mapped[0], other, size));
  CHECK(hipMemset(mapped[0], 7, BYTES));
  CHECK(hipDeviceSynchronize());
  starts();
  CHECK(hipMemcpy(result, mapped[0], BYTES, hipMemcpyDeviceToHost));
  HOLDS(result[BYTES - 1] == 7);
  HOLDS(dup2(descriptor[1], NUMBER) == NUMBER);
  close(descriptor[1]);
  CHECK(hipMemImportFromShareableHandle(&other, (void*)(uintptr_t)NUMBER, DESCRIPTOR));
  close(NUMBER);
  CHECK(map(&mapped[1], other, size));
  CHECK(hipMemset(mapped[1], 9, BYTES));
  CHECK(map(&seen, other, size));
  CHECK(hipMemcpy(result, seen, BYTES, hipMemcpyDeviceToHost));
  HOLDS(result[BYTES - 1] == 9);
  return 0;
}

/* What a thread had pushed before a window it takes away in it, and so in the next one, before which it pushed more. */
static int contexts(void) {
  static unsigned char result[BYTES];
  context_t made, primary, popped = 0;
  unsigned char* memory;
  CHECK(hipCtxCreate(&made, 0, 0));
  CHECK(hipDevicePrimaryCtxRetain(&primary, 1));
  CHECK(hipCtxPushCurrent(primary));
  CHECK(hipMalloc((void**)&memory, BYTES));
  starts();
  CHECK(hipMemset(memory, 5, BYTES));
  CHECK(hipMemcpy(result, memory, BYTES, hipMemcpyDeviceToHost));
  CHECK(hipCtxPopCurrent(&popped));
  HOLDS(popped == primary);
  stops();
  CHECK(hipCtxPushCurrent(primary));
  CHECK(hipCtxPushCurrent(primary));
  CHECK(hipCtxPopCurrent(&popped));
  starts();
  CHECK(hipMemcpy(result, memory, BYTES, hipMemcpyDeviceToHost));
  CHECK(hipCtxPopCurrent(&popped));
  HOLDS(popped == primary);
  CHECK(hipCtxPopCurrent(&popped));
  HOLDS(popped == made);
  HOLDS(hipCtxPopCurrent(&popped) != 0);
  (void)hipGetLastError();
  return 0;
}

/* Calls on the thread's own default stream that cannot name it, in the only thread. */
static int one_thread(void) {
  unsigned texels[16] = {0};
  const struct channels words = {32, 0, 0, 0, 1};
  void* array;
  CHECK(hipMallocArray(&array, &words, 16, 1, 0));
  starts();
  for (unsigned i = 0; i < 16; i++) texels[i] = 3 * i;
  CHECK(hipMemcpy2DToArray_spt(array, 0, 0, texels, sizeof texels, sizeof texels, 1, hipMemcpyHostToDevice));
  memset(texels, 0, sizeof texels);
  CHECK(hipMemcpy2DFromArray_spt(texels, sizeof texels, array, 0, 0, sizeof texels, 1, hipMemcpyDeviceToHost));
  HOLDS(texels[15] == 45);
  return 0;
}

/* A window that is to end while its work waits for what comes behind it. */
hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned flags);
hipError_t hipStreamWaitValue32(hipStream_t stream, void* at, uint32_t value, unsigned flags, uint32_t mask);
hipError_t hipStreamWriteValue32(hipStream_t stream, void* at, uint32_t value, unsigned flags);

static int awaited(void) {
  static uint32_t result[16];
  uint32_t* memory;
  hipStream_t streams[2];
  CHECK(hipMalloc((void**)&memory, sizeof result));
  CHECK(hipMemset(memory, 0, sizeof result));
  for (int i = 0; i < 2; i++) CHECK(hipStreamCreateWithFlags(&streams[i], 1));
  CHECK(hipDeviceSynchronize());
  starts();
  CHECK(hipStreamWaitValue32(streams[0], memory, 1, 0, ~0u));
  stops();
  CHECK(hipStreamWriteValue32(streams[1], memory, 1, 0));
  CHECK(hipStreamSynchronize(streams[0]));
  CHECK(hipMemcpy(result, memory, sizeof result, hipMemcpyDeviceToHost));
  HOLDS(result[0] == 1);
  CHECK(hipDeviceSynchronize());
  stops();
  /* The window ends at a call that finds the devices idle, for which a busy machine may take a while. */
  for (int i = 0; i < 100; i++) {
    CHECK(hipDeviceSynchronize());
    usleep(1000);
  }
  CHECK(hipMemset(memory, 3, sizeof result));
  CHECK(hipDeviceSynchronize());
  starts();
  CHECK(hipMemcpy(result, memory, sizeof result, hipMemcpyDeviceToHost));
  HOLDS(result[5] == 0x03030303);
  return 0;
}

int main(int count, char** arguments) {
  const char* what = count > 1 ? arguments[1] : "";
  if (!strcmp(what, "imported")) return imported();
  if (!strcmp(what, "contexts")) return contexts();
  if (!strcmp(what, "one_thread")) return one_thread();
  if (!strcmp(what, "awaited")) return awaited();
  return fprintf(stderr, "usage: windows imported | contexts | one_thread | awaited\n");
}
