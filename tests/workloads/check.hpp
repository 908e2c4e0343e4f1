// Checks for workloads and for their units that embed code objects of their own.
#pragma once
#include <hip/hip_runtime.h>

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

// Ends the process at once: other threads may be inside HIP calls, so no destructors run.
[[noreturn]] inline void fail(const char* file, int line, const char* format, ...) {
  va_list values;
  va_start(values, format);
  std::fprintf(stderr, "%s:%d: ", file, line);
  std::vfprintf(stderr, format, values);
  std::fputc('\n', stderr);
  va_end(values);
  std::fflush(nullptr);
  std::_Exit(1);
}

#define REQUIRE(condition, ...)                              \
  do {                                                       \
    if (!(condition)) fail(__FILE__, __LINE__, __VA_ARGS__); \
  } while (0)

#define CHECK(call)                                                                               \
  do {                                                                                            \
    hipError_t error_ = (call);                                                                   \
    if (error_ != hipSuccess) fail(__FILE__, __LINE__, "%s: %s", #call, hipGetErrorName(error_)); \
  } while (0)

// A kernel launch, checked: LAUNCH(mix, blocks, threads, shared_bytes, stream, arguments...).
#define LAUNCH(kernel, blocks, threads, shared_bytes, stream, ...)              \
  do {                                                                          \
    kernel<<<dim3(blocks), dim3(threads), shared_bytes, stream>>>(__VA_ARGS__); \
    CHECK(hipGetLastError());                                                   \
  } while (0)
