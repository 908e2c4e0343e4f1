/* What a program meets on a machine without a GPU: every call says so, and it is told on. */
#include <stdio.h>
#include "hip.h"
int main(void) {
  int count = -1, version = -1, device = -1;
  void* memory = 0;
  hipStream_t stream = 0;
  int codes[] = {
      hipRuntimeGetVersion(&version), hipGetDeviceCount(&count), hipGetDevice(&device), hipSetDevice(0),
      hipMalloc(&memory, 4096),       hipStreamCreate(&stream),  hipDeviceSynchronize(), hipInit(0),
  };
  for (unsigned i = 0; i < sizeof codes / sizeof *codes; i++) printf("%d ", codes[i]);
  printf("version %d\n", version);
  return 0;
}
