// Tight loops of cheap calls, for measuring what a call costs: one line per kind of call with the time per call, as the
// mean over the threads.
// usage: api_rate [calls of each kind per thread] [threads]
#include <chrono>

#include "workload.hpp"

namespace {

enum Kind { kGetDevice, kEventRecord, kEventQuery, kLaunch, kCopy, kKinds };
const char* const kNames[kKinds] = {"hipGetDevice", "hipEventRecord", "hipEventQuery", "hipLaunchKernel",
                                    "hipMemcpyAsync"};
constexpr int kElements = 64, kBatch = 256;

// Time for `calls` calls in ns. The queue is drained outside the timed part, every kBatch calls, so that a queue of
// bounded depth does not decide the figure.
template <typename Call>
double time_calls(int calls, hipStream_t stream, Call call) {
  std::chrono::nanoseconds total{0};
  for (int done = 0; done < calls;) {
    const int batch = calls - done < kBatch ? calls - done : kBatch;
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < batch; i++) call();
    total += std::chrono::steady_clock::now() - begin;
    CHECK(hipStreamSynchronize(stream));
    done += batch;
  }
  return double(total.count());
}

}  // namespace

int main(int argc, char** argv) {
  const int calls = argument(argc, argv, 1, 2000), threads = argument(argc, argv, 2, 1);
  REQUIRE(calls > 0 && threads > 0, "calls and threads must be positive");
  std::vector<double> total_ns(size_t(threads) * kKinds);
  run_threads(threads, [&](int t) {
    hipStream_t stream;
    hipEvent_t event;
    CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
    CHECK(hipEventCreateWithFlags(&event, hipEventDisableTiming));
    DeviceWords data(kElements);
    uint32_t* pinned;
    CHECK(hipHostMalloc(reinterpret_cast<void**>(&pinned), kElements * sizeof(uint32_t), hipHostMallocDefault));
    LAUNCH(iota, 1, kElements, 0, stream, data, uint32_t(t), kElements);
    CHECK(hipStreamSynchronize(stream));

    double* ns = &total_ns[size_t(t) * kKinds];
    ns[kGetDevice] = time_calls(calls, stream, [&] {
      int device;
      CHECK(hipGetDevice(&device));
    });
    ns[kEventRecord] = time_calls(calls, stream, [&] { CHECK(hipEventRecord(event, stream)); });
    ns[kEventQuery] = time_calls(calls, stream, [&] { CHECK(hipEventQuery(event)); });
    // Without hipGetLastError, which would be timed too; an error shows in the data.
    ns[kLaunch] = time_calls(calls, stream, [&] { mix<<<1, kElements, 0, stream>>>(data, 3, 1, kElements); });
    CHECK(hipGetLastError());
    ns[kCopy] = time_calls(calls, stream,
                           [&] { CHECK(hipMemcpyAsync(pinned, data, data.bytes(), hipMemcpyDeviceToHost, stream)); });

    Words expected(kElements);
    host_iota(expected, uint32_t(t));
    for (int i = 0; i < calls; i++) host_mix(expected, 3, 1);
    require_equal(pinned, expected.data(), kElements, "data after the launches", __LINE__, __FILE__);
    CHECK(hipHostFree(pinned));
    CHECK(hipEventDestroy(event));
    CHECK(hipStreamDestroy(stream));
  });
  for (int kind = 0; kind < kKinds; kind++) {
    double sum = 0;
    for (int t = 0; t < threads; t++) sum += total_ns[size_t(t) * kKinds + kind];
    std::printf("api_rate: %s threads=%d calls=%d ns_per_call=%.1f\n", kNames[kind], threads, calls,
                sum / (double(calls) * threads));
  }
  std::printf("api_rate: ok, %d threads, %d calls of each kind\n", threads, calls);
}
