// A program that tries things and has a second way where they fail, as frameworks do: whatever fails, it goes on and
// computes the same. Each try is one call; tests have some of them fail.
// usage: second_ways
#include "workload.hpp"

int main() {
  const int n = 1024;
  const size_t bytes = n * sizeof(uint32_t);
  // More memory than it needs, or else as much.
  uint32_t* data = nullptr;
  if (hipMalloc(&data, 4 * bytes) != hipSuccess) CHECK(hipMallocManaged(&data, bytes));
  // A stream before others, or else any.
  hipStream_t stream = nullptr;
  if (hipStreamCreateWithPriority(&stream, hipStreamNonBlocking, -1) != hipSuccess)
    CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  // Fast to wait for, or else not.
  hipEvent_t event = nullptr;
  if (hipEventCreateWithFlags(&event, hipEventDisableTiming) != hipSuccess) CHECK(hipEventCreate(&event));
  // Pinned memory for the result, or else any.
  uint32_t* pinned = nullptr;
  Words pageable(n);
  const bool is_pinned = hipHostMalloc(&pinned, bytes, hipHostMallocDefault) == hipSuccess;
  uint32_t* const result = is_pinned ? pinned : pageable.data();
  // Whatever has failed until now is no news.
  (void)hipGetLastError();

  LAUNCH(iota, blocks_for(n), kThreads, 0, stream, data, 3, n);
  LAUNCH(mix, blocks_for(n), kThreads, 0, stream, data, 5, 7, n);
  CHECK(hipEventRecord(event, stream));
  CHECK(hipEventSynchronize(event));
  CHECK(hipMemcpyAsync(result, data, bytes, hipMemcpyDeviceToHost, stream));
  CHECK(hipStreamSynchronize(stream));
  Words expected(n);
  host_iota(expected, 3);
  host_mix(expected, 5, 7);
  require_equal(result, expected.data(), n, "the result", __LINE__, __FILE__);

  if (is_pinned) CHECK(hipHostFree(pinned));
  CHECK(hipEventDestroy(event));
  CHECK(hipStreamDestroy(stream));
  CHECK(hipFree(data));
  std::printf("second_ways: ok\n");
}
