// Calls that fail on purpose: their codes, hipGetLastError and hipPeekAtLastError, which belong to the calling thread,
// and that the device goes on working afterwards. Asks only for what HIP 5 to 7 agree on.
// usage: errors [rounds]
#include "workload.hpp"

namespace {

// The call must fail with this code, which is then the thread's last error, once.
#define EXPECT_ERROR(call, code)                                                                                \
  do {                                                                                                          \
    const hipError_t got_ = (call);                                                                             \
    REQUIRE(got_ == (code), "%s gave %s, should give %s", #call, hipGetErrorName(got_), hipGetErrorName(code)); \
    expect_last_error(code, #call, __LINE__);                                                                   \
  } while (0)

// The same where the runtimes differ in the code they give.
#define EXPECT_SOME_ERROR(call)                            \
  do {                                                     \
    const hipError_t got_ = (call);                        \
    REQUIRE(got_ != hipSuccess, "%s did not fail", #call); \
    expect_last_error(got_, #call, __LINE__);              \
  } while (0)

void expect_last_error(hipError_t code, const char* call, int line) {
  const hipError_t peeked = hipPeekAtLastError(), again = hipPeekAtLastError(), last = hipGetLastError(),
                   cleared = hipGetLastError();
  if (peeked != code || again != code)
    fail(__FILE__, line, "%s: peeked %s, then %s", call, hipGetErrorName(peeked), hipGetErrorName(again));
  if (last != code) fail(__FILE__, line, "%s: last error is %s", call, hipGetErrorName(last));
  if (cleared != hipSuccess) fail(__FILE__, line, "%s: last error was not cleared: %s", call, hipGetErrorName(cleared));
}

void run(int t) {
  const int n = 64;
  int devices = 0, device = -1;
  CHECK(hipGetDeviceCount(&devices));
  EXPECT_ERROR(hipSetDevice(devices + 100), hipErrorInvalidDevice);
  EXPECT_ERROR(hipSetDevice(-1), hipErrorInvalidDevice);
  CHECK(hipGetDevice(&device));
  REQUIRE(device == 0, "a failed hipSetDevice left device %d", device);

  uint32_t on_stack[4] = {};
  EXPECT_ERROR(hipFree(on_stack), hipErrorInvalidValue);
  EXPECT_ERROR(hipMalloc(static_cast<void**>(nullptr), 16), hipErrorInvalidValue);
  void* huge = nullptr;
  EXPECT_ERROR(hipMalloc(&huge, size_t(1) << 60), hipErrorOutOfMemory);
  REQUIRE(huge == nullptr, "a failed hipMalloc gave a pointer");
  CHECK(hipFree(nullptr));

  DeviceWords data(n);
  Words host(2 * n);
  EXPECT_ERROR(hipMemcpy(nullptr, host.data(), 16, hipMemcpyHostToDevice), hipErrorInvalidValue);
  EXPECT_ERROR(hipMemcpy(data, nullptr, 16, hipMemcpyHostToDevice), hipErrorInvalidValue);
  // Far more than either side has: nobody may read the source before the size is known to be good.
  EXPECT_SOME_ERROR(hipMemcpy(data, host.data(), size_t(1) << 40, hipMemcpyHostToDevice));

  hipEvent_t event;
  float elapsed_ms;
  CHECK(hipEventCreate(&event));
  EXPECT_ERROR(hipEventElapsedTime(&elapsed_ms, event, event), hipErrorInvalidHandle);
  EXPECT_ERROR(hipEventElapsedTime(nullptr, event, event), hipErrorInvalidValue);
  CHECK(hipEventDestroy(event));
  EXPECT_SOME_ERROR(hipEventRecord(nullptr, nullptr));
  EXPECT_SOME_ERROR(hipStreamDestroy(nullptr));
  EXPECT_SOME_ERROR(hipStreamAddCallback(nullptr, nullptr, nullptr, 0));
  EXPECT_SOME_ERROR(hipLaunchHostFunc(nullptr, nullptr, nullptr));

  hipModule_t module;
  EXPECT_ERROR(hipModuleLoad(&module, "/nonexistent/kernels.hipfb"), hipErrorFileNotFound);

  // A launch with too many threads in a block fails and leaves the buffer as it was.
  LAUNCH(iota, 1, n, 0, nullptr, data, uint32_t(t), n);
  mix<<<dim3(1), dim3(4096), 0, nullptr>>>(data, 5, 5, n);
  hipError_t launched = hipPeekAtLastError();
  REQUIRE(launched != hipSuccess, "a launch of 4096 threads a block did not fail");
  expect_last_error(launched, "launch", __LINE__);

  Words got(n), expected(n);
  host_iota(expected, uint32_t(t));
  CHECK(hipMemcpy(got.data(), data, data.bytes(), hipMemcpyDeviceToHost));
  REQUIRE_EQUAL(got, expected, "buffer after the failed calls");
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argument(argc, argv, 1, 3), threads = 3;
  hipModule_t module;
  hipFunction_t function;
  CHECK(hipModuleLoad(&module, kernel_path(argv[0], "same_name_add").c_str()));
  EXPECT_ERROR(hipModuleGetFunction(&function, module, "no_such_kernel"), hipErrorNotFound);
  CHECK(hipModuleUnload(module));

  // The last error of one thread is not seen by another.
  (void)hipSetDevice(-1);
  run_threads(threads, [&](int t) {
    CHECK(hipPeekAtLastError());
    for (int r = 0; r < rounds; r++) run(t);
  });
  REQUIRE(hipGetLastError() == hipErrorInvalidDevice, "the main thread's last error was lost");
  std::printf("errors: ok, %d threads, %d rounds\n", threads, rounds);
}
