// What the CUDA driver does with no runtime in between: launches per second by threads, and copy bandwidth.
// usage: bare-driver launch PTX LAUNCHES THREADS [SHARED]   prints launches_per_s=X; SHARED: bytes of dynamic shared memory
//                                                           the kernel may have, as cuFuncSetAttribute takes them
//        bare-driver h2d|d2h MIB COPIES [pageable]   prints gb_per_s=X
#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
void* library;

[[noreturn]] void fail(const char* what, int code) {
  std::fprintf(stderr, "bare-driver: %s: %d\n", what, code);
  std::exit(1);
}

template <typename... Arguments>
void call(const char* name, Arguments... arguments) {
  auto function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library, name));
  if (!function) fail(name, -1);
  if (int code = function(arguments...)) fail(name, code);
}

using Handle = void*;
using DevicePointer = unsigned long long;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

void launch(Handle context, const char* ptx_path, long launches, int threads, int shared_bytes) {
  std::FILE* file = std::fopen(ptx_path, "rb");
  if (!file) fail(ptx_path, -1);
  std::string ptx;
  char chunk[65536];
  for (size_t got; (got = std::fread(chunk, 1, sizeof chunk, file)) > 0;) ptx.append(chunk, got);
  std::fclose(file);
  Handle module, function;
  call<Handle*, const char*>("cuModuleLoadData", &module, ptx.c_str());
  call<Handle*, Handle, const char*>("cuModuleGetFunction", &function, module, "mix");
  if (shared_bytes) call("cuFuncSetAttribute", function, 8, shared_bytes);
  using Launch = int (*)(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void**, void**);
  const auto launch_kernel = reinterpret_cast<Launch>(dlsym(library, "cuLaunchKernel"));
  std::atomic<int> ready{0};
  std::atomic<bool> go{false};
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; t++) {
    workers.emplace_back([&] {
      call("cuCtxSetCurrent", context);
      Handle stream;
      DevicePointer data;
      call<Handle*, unsigned>("cuStreamCreate", &stream, 1);
      call<DevicePointer*, size_t>("cuMemAlloc_v2", &data, 256);
      uint32_t factor = 3, addend = 1;
      int n = 64;
      void* arguments[] = {&data, &factor, &addend, &n};
      for (int i = 0; i < 16; i++) launch_kernel(function, 1, 1, 1, 64, 1, 1, 0, stream, arguments, nullptr);
      call("cuStreamSynchronize", stream);
      ready++;
      while (!go) std::this_thread::yield();
      for (long i = 0; i < launches; i++) {
        if (int code = launch_kernel(function, 1, 1, 1, 64, 1, 1, 0, stream, arguments, nullptr)) fail("cuLaunchKernel", code);
      }
      call("cuStreamSynchronize", stream);
    });
  }
  while (ready != threads) std::this_thread::yield();
  const auto begin = Clock::now();
  go = true;
  for (auto& worker : workers) worker.join();
  std::printf("bare-driver: threads=%d launches_per_s=%.0f\n", threads, double(launches) * threads / seconds_since(begin));
}

void copy(bool to_device, size_t bytes, int copies, bool pageable) {
  constexpr int kBuffers = 4;
  void* host[kBuffers];
  DevicePointer device;
  Handle stream;
  call<DevicePointer*, size_t>("cuMemAlloc_v2", &device, bytes);
  call<Handle*, unsigned>("cuStreamCreate", &stream, 1);
  for (void*& buffer : host) {
    if (pageable) buffer = std::malloc(bytes);
    else call<void**, size_t, unsigned>("cuMemHostAlloc", &buffer, bytes, 0);
    std::memset(buffer, 7, bytes);
  }
  auto enqueue = [&](int i) {
    if (to_device) call<DevicePointer, const void*, size_t, Handle>("cuMemcpyHtoDAsync_v2", device, host[i % kBuffers], bytes, stream);
    else call<void*, DevicePointer, size_t, Handle>("cuMemcpyDtoHAsync_v2", host[i % kBuffers], device, bytes, stream);
  };
  for (int i = 0; i < kBuffers; i++) enqueue(i);
  call("cuStreamSynchronize", stream);
  const auto begin = Clock::now();
  for (int i = 0; i < copies; i++) enqueue(i);
  call("cuStreamSynchronize", stream);
  std::printf("bare-driver: gb_per_s=%.2f\n", double(bytes) * copies / seconds_since(begin) / 1e9);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: bare-driver launch PTX LAUNCHES THREADS [SHARED] | h2d|d2h MIB COPIES [pageable]\n");
    return 2;
  }
  library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) fail("libcuda.so.1", -1);
  Handle context;
  call<unsigned>("cuInit", 0);
  call<Handle*, int>("cuDevicePrimaryCtxRetain", &context, 0);
  call("cuCtxSetCurrent", context);
  const std::string what = argv[1];
  if (what == "launch" && argc >= 5)
    launch(context, argv[2], std::atol(argv[3]), std::atoi(argv[4]), argc > 5 ? std::atoi(argv[5]) : 0);
  else copy(what == "h2d", size_t(std::atol(argv[2])) << 20, std::atoi(argv[3]), argc > 4);
}
