// Waits for the device by asking: loops on hipEventQuery and hipStreamQuery, no synchronising call before the results
// are read.
// usage: poll_query [elements] [rounds] [kernel iterations]
#include "workload.hpp"

int main(int argc, char** argv) {
  const int n = argument(argc, argv, 1, 256), rounds = argument(argc, argv, 2, 8);
  const uint32_t iterations = uint32_t(argument(argc, argv, 3, 2000));
  const unsigned blocks = blocks_for(n);
  hipStream_t stream;
  hipEvent_t done;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  CHECK(hipEventCreateWithFlags(&done, hipEventDisableTiming));
  uint32_t* pinned;
  CHECK(hipHostMalloc(reinterpret_cast<void**>(&pinned), n * sizeof(uint32_t), hipHostMallocDefault));
  DeviceWords data(n);
  Words expected(n);
  host_iota(expected, 3);
  LAUNCH(iota, blocks, kThreads, 0, stream, data, 3, n);
  for (int r = 0; r < rounds; r++) {
    LAUNCH(busy, blocks, kThreads, 0, stream, data, iterations, n);
    host_busy(expected, iterations);
    CHECK(hipMemcpyAsync(pinned, data, data.bytes(), hipMemcpyDeviceToHost, stream));
    CHECK(hipEventRecord(done, stream));
    hipError_t state;
    if (r % 2 == 0) {
      while ((state = hipEventQuery(done)) == hipErrorNotReady) std::this_thread::yield();
    } else {
      while ((state = hipStreamQuery(stream)) == hipErrorNotReady)
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    CHECK(state);
    // "Not ready" is an answer, not an error to be found later; clear it where a runtime thinks otherwise.
    (void)hipGetLastError();
    require_equal(pinned, expected.data(), n, "polled result", __LINE__, __FILE__);
  }
  CHECK(hipHostFree(pinned));
  CHECK(hipEventDestroy(done));
  CHECK(hipStreamDestroy(stream));
  std::printf("poll_query: ok, %d rounds, %d elements\n", rounds, n);
}
