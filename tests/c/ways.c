/* Reaches hipMalloc in every way there is; each way allocates a size of its own. argv[1] is a plugin, argv[2] a way. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "hip.h"

typedef hipError_t (*allocate)(void**, size_t);
typedef hipError_t (*give_back)(void*);

static void through(void* a, void* b, size_t size) {
  if (!a || !b) { fprintf(stderr, "not found: %zu\n", size); exit(3); }
  MARK_THROUGH(((allocate)a), ((give_back)b), size);
}

static void through_handle(void* handle, size_t size) {
  through(dlsym(handle, "hipMalloc"), dlsym(handle, "hipFree"), size);
}

static void through_plugin(const char* path, int flags, size_t size) {
  void* plugin = dlopen(path, flags);
  if (!plugin) { fprintf(stderr, "%s\n", dlerror()); exit(3); }
  ((void (*)(size_t))dlsym(plugin, "plugin_mark"))(size);
}

int main(int argc, char** argv) {
  const char* plugin = argv[1];
  const char* way = argv[2];
  void* runtime = dlopen("libamdhip64.so.7", RTLD_NOW | RTLD_LOCAL);
#ifdef LINKED
  if (!strcmp(way, "plt")) MARK(1001);
  if (!strcmp(way, "next")) through_handle(RTLD_NEXT, 1002);
  if (!strcmp(way, "default")) through_handle(RTLD_DEFAULT, 1003);
#endif
  if (!strcmp(way, "handle")) through_handle(runtime, 1004);
  if (!strcmp(way, "versioned"))
    through(dlvsym(runtime, "hipMalloc", "hip_4.2"), dlvsym(runtime, "hipFree", "hip_4.2"), 1005);
  if (!strcmp(way, "proc_address") || !strcmp(way, "entry_point")) {
    hipError_t (*get)(const char*, void**, int, uint64_t, void*) = dlsym(runtime, "hipGetProcAddress");
    void *a = 0, *b = 0;
    if (!strcmp(way, "entry_point")) {
      hipError_t (*get_entry)(const char*, void**, unsigned long long, void*) = dlsym(runtime, "hipGetDriverEntryPoint");
      if (get_entry("hipMalloc", &a, 0, 0) || get_entry("hipFree", &b, 0, 0)) return 4;
    } else if (get("hipMalloc", &a, 60000, 0, 0) || get("hipFree", &b, 60000, 0, 0)) {
      return 4;
    }
    through(a, b, 1006);
  }
  if (!strcmp(way, "plugin_local")) through_plugin(plugin, RTLD_NOW | RTLD_LOCAL, 1007);
  if (!strcmp(way, "plugin_deep")) through_plugin(plugin, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND, 1008);
  if (!strcmp(way, "missing")) {
    /* What HIP does not have is not there with a recorder either, and the error says so. */
    if (dlsym(runtime, "hipNoSuchCall") || !dlerror()) return 5;
    MARK_THROUGH(((allocate)dlsym(runtime, "hipMalloc")), ((give_back)dlsym(runtime, "hipFree")), 1009);
  }
  return 0;
}
