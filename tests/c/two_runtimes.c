/* Uses two HIP runtimes side by side: argv[1] is a second copy of the library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "hip.h"

#define FROM(handle, name) __typeof__(&name) other_##name = (__typeof__(&name))dlsym(handle, #name)

int main(int argc, char** argv) {
  void* handle = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!handle) { fprintf(stderr, "%s\n", dlerror()); return 3; }
  FROM(handle, hipMalloc);
  FROM(handle, hipFree);
  FROM(handle, hipMemset);
  FROM(handle, hipMemcpy);
  FROM(handle, hipStreamCreate);
  FROM(handle, hipMemcpyAsync);
  FROM(handle, hipStreamSynchronize);
  FROM(handle, hipStreamDestroy);
  void *first, *second;
  unsigned char back[2][4096];
  if (hipMalloc(&first, 4096) || other_hipMalloc(&second, 4096)) return 4;
  /* Each runtime knows its own memory alone. */
  if (hipMemset(first, 0x11, 4096) || other_hipMemset(second, 0x22, 4096)) return 5;
  if (hipMemcpy(back[0], first, 4096, hipMemcpyDeviceToHost)) return 6;
  hipStream_t stream;
  if (other_hipStreamCreate(&stream) || other_hipMemcpyAsync(back[1], second, 4096, hipMemcpyDeviceToHost, stream)) return 7;
  if (other_hipStreamSynchronize(stream) || other_hipStreamDestroy(stream)) return 8;
  if (back[0][77] != 0x11 || back[1][77] != 0x22) return 9;
  if (hipFree(first) || other_hipFree(second)) return 10;
  puts("both answered");
  return 0;
}
