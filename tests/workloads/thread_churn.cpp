// Hundreds of threads that live for a few HIP calls each, several at a time.
// usage: thread_churn [threads] [at a time] [elements]
#include "workload.hpp"

int main(int argc, char** argv) {
  const int threads = argument(argc, argv, 1, 200), at_a_time = argument(argc, argv, 2, 8);
  const int n = argument(argc, argv, 3, 128);
  REQUIRE(at_a_time > 0, "at least one thread at a time");
  DeviceWords shared(n);
  Words expected_shared(n, 1), got_shared(n);
  LAUNCH(fill, blocks_for(n), kThreads, 0, nullptr, shared, 1, n);
  CHECK(hipDeviceSynchronize());
  for (int first = 0; first < threads; first += at_a_time) {
    const int count = threads - first < at_a_time ? threads - first : at_a_time;
    run_threads(count, [&](int t) {
      const uint32_t id = uint32_t(first + t);
      int device = -1;
      CHECK(hipGetDevice(&device));
      if (id % 4 == 3) return;  // this one had nothing to do
      hipStream_t stream;
      CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
      DeviceWords data(n);
      Words expected(n), got(n);
      host_iota(expected, id);
      CHECK(hipMemcpyAsync(data, expected.data(), data.bytes(), hipMemcpyHostToDevice, stream));
      LAUNCH(mix, blocks_for(n), kThreads, 0, stream, data, factor_of(id, 1), id, n);
      CHECK(hipMemcpyAsync(got.data(), data, data.bytes(), hipMemcpyDeviceToHost, stream));
      CHECK(hipStreamSynchronize(stream));
      host_mix(expected, factor_of(id, 1), id);
      REQUIRE_EQUAL(got, expected, "buffer of a short-lived thread");
      CHECK(hipStreamDestroy(stream));
    });
    // Joining the threads is what puts this after them.
    LAUNCH(mix, blocks_for(n), kThreads, 0, nullptr, shared, factor_of(first, 2), uint32_t(first), n);
    host_mix(expected_shared, factor_of(first, 2), uint32_t(first));
  }
  CHECK(hipMemcpy(got_shared.data(), shared, shared.bytes(), hipMemcpyDeviceToHost));
  REQUIRE_EQUAL(got_shared, expected_shared, "main thread's buffer");
  std::printf("thread_churn: ok, %d threads, %d at a time\n", threads, at_a_time);
}
