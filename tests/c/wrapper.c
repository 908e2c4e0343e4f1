/* A library that the user preloads: stands before hipMalloc. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
int hipMalloc(void** ptr, size_t size) {
  static unsigned count;
  printf("wrapper saw %u\n", ++count);
  fflush(stdout);
  return ((int (*)(void**, size_t))dlsym(RTLD_NEXT, "hipMalloc"))(ptr, size);
}
