// Launches of a tiny kernel as fast as the runtime takes them, on a stream per thread; threads take the devices in turn.
// usage: launch_rate [launches per thread] [threads] [devices]
// Prints the time of the launches and the time between the first and the last call.
#include <atomic>
#include <chrono>

#include "workload.hpp"

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kElements = 64;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

}  // namespace

int main(int argc, char** argv) {
  const int launches = argument(argc, argv, 1, 1000), threads = argument(argc, argv, 2, 2),
            devices = argument(argc, argv, 3, 1);
  REQUIRE(launches > 0 && threads > 0 && devices > 0, "launches, threads and devices must be positive");
  for (int d = devices - 1; d >= 0; d--) {
    CHECK(hipSetDevice(d));
    CHECK(hipFree(nullptr));
  }
  std::atomic<int> ready{0}, launched{0};
  const auto begin = Clock::now();
  std::vector<double> launch_ms(threads);
  run_threads(threads, [&](int t) {
    CHECK(hipSetDevice(t % devices));
    hipStream_t stream;
    CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
    DeviceWords data(kElements);
    LAUNCH(iota, 1, kElements, 0, stream, data, uint32_t(t), kElements);
    CHECK(hipStreamSynchronize(stream));
    ready++;
    while (ready != threads) std::this_thread::yield();
    const auto first = Clock::now();
    // Without hipGetLastError, which would be timed too; an error shows in the data.
    for (int i = 0; i < launches; i++) mix<<<1, kElements, 0, stream>>>(data, 3, 1, kElements);
    CHECK(hipStreamSynchronize(stream));
    launch_ms[t] = ms_since(first);
    CHECK(hipGetLastError());
    // What follows waits for the whole device, so for those that still launch.
    launched++;
    while (launched != threads) std::this_thread::yield();

    Words got(kElements), expected(kElements);
    host_iota(expected, uint32_t(t));
    for (int i = 0; i < launches; i++) host_mix(expected, 3, 1);
    CHECK(hipMemcpyAsync(got.data(), data, data.bytes(), hipMemcpyDeviceToHost, stream));
    CHECK(hipStreamSynchronize(stream));
    REQUIRE_EQUAL(got, expected, "data after the launches");
    CHECK(hipStreamDestroy(stream));
  });
  double longest_ms = 0;
  for (double ms : launch_ms) longest_ms = ms > longest_ms ? ms : longest_ms;
  std::printf("launch_rate: threads=%d launches=%ld launches_per_s=%.0f launch_ms=%.1f wall_ms=%.1f\n", threads,
              long(launches) * threads, double(launches) * threads / longest_ms * 1e3, longest_ms, ms_since(begin));
  std::printf("launch_rate: ok, %d threads, %d launches each\n", threads, launches);
}
