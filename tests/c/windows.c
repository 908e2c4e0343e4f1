/* Windows that the program opens itself, after calls that what is in the window rests on.
 * usage: windows imported */
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

int main(int count, char** arguments) {
  const char* what = count > 1 ? arguments[1] : "";
  if (!strcmp(what, "imported")) return imported();
  return fprintf(stderr, "usage: windows imported\n");
}
