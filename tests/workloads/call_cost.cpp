// One kind of call in a tight loop on each thread, for measuring what a call costs alone, recorded and replayed. Nothing is
// checked, so that it also runs on a runtime whose calls do nothing (benches/null_hip).
// usage: call_cost get_device|event_record|launch [calls per thread] [threads]
//        call_cost upload_fresh|upload_same [bytes] [copies]     blocking copies of new or of unchanged contents
#include <atomic>
#include <chrono>
#include <cstring>

#include "workload.hpp"

namespace {

using Clock = std::chrono::steady_clock;

double since_ns(Clock::time_point begin) { return double(std::chrono::nanoseconds(Clock::now() - begin).count()); }

// One thread's calls, in ns.
double call(const std::string& kind, int calls, hipStream_t stream, hipEvent_t event) {
  const auto begin = Clock::now();
  if (kind == "get_device") {
    int device;
    for (int i = 0; i < calls; i++) CHECK(hipGetDevice(&device));
  } else if (kind == "event_record") {
    for (int i = 0; i < calls; i++) CHECK(hipEventRecord(event, stream));
  } else {
    // By the call itself: a launch with <<<>>> is three.
    char c = 1, d = 2;
    short s = 3;
    float f = 4;
    double g = 5, *out = nullptr;
    int64_t big = 6;
    uint32_t* in = nullptr;
    CHECK(hipMalloc(&in, sizeof *in));
    CHECK(hipMalloc(&out, sizeof *out));
    void* arguments[] = {&c, &s, &f, &d, &g, &big, &in, &out};
    const void* kernel = reinterpret_cast<const void*>(eight_arguments);
    for (int i = 0; i < calls; i++) CHECK(hipLaunchKernel(kernel, dim3(1), dim3(1), arguments, 0, stream));
  }
  return since_ns(begin);
}

int calls(const std::string& kind, int count, int threads) {
  std::atomic<int> ready{0};
  std::vector<double> each_ns(threads);
  run_threads(threads, [&](int t) {
    hipStream_t stream = nullptr;
    hipEvent_t event = nullptr;
    CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
    CHECK(hipEventCreateWithFlags(&event, hipEventDisableTiming));
    call(kind, count / 10 + 1, stream, event);
    ready++;
    while (ready != threads) std::this_thread::yield();
    each_ns[t] = call(kind, count, stream, event);
    CHECK(hipEventDestroy(event));
    CHECK(hipStreamDestroy(stream));
  });
  double sum_ns = 0, longest_ns = 0;
  for (double ns : each_ns) sum_ns += ns, longest_ns = ns > longest_ns ? ns : longest_ns;
  std::printf("call_cost: %s threads=%d calls=%d ns_per_call=%.2f wall_ms=%.3f\n", kind.c_str(), threads, count,
              sum_ns / (double(count) * threads), longest_ns / 1e6);
  return 0;
}

int uploads(bool fresh, int bytes, int copies) {
  REQUIRE(bytes % 8 == 0, "%d bytes are not whole words of 8", bytes);
  void* device = nullptr;
  CHECK(hipMalloc(&device, bytes));
  std::vector<uint64_t> host(bytes / 8), other(bytes / 8);
  uint64_t value = 88172645463325252u;
  for (uint64_t& word : host) word = (value ^= value << 13, value ^= value >> 7, value ^= value << 17);
  double copy_ns = 0, call_ns = 0;
  for (int i = 0; i < copies; i++) {
    // What a copy of the same bytes in memory takes, the baseline.
    auto begin = Clock::now();
    std::memcpy(other.data(), host.data(), bytes);
    copy_ns += since_ns(begin);
    // A word in each page, so that neither the whole nor any part of it was there before.
    for (int at = 0; fresh && at < bytes / 8; at += 512) host[at] += 0x9e3779b97f4a7c15u + other[at];
    begin = Clock::now();
    CHECK(hipMemcpy(device, host.data(), bytes, hipMemcpyHostToDevice));
    call_ns += since_ns(begin);
  }
  CHECK(hipFree(device));
  const double total = double(bytes) * copies;
  std::printf("call_cost: upload_%s bytes=%d copies=%d memcpy_gb_per_s=%.3f call_gb_per_s=%.3f call_ms=%.3f\n",
              fresh ? "fresh" : "same", bytes, copies, total / copy_ns, total / call_ns, call_ns / 1e6);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string kind = argc > 1 ? argv[1] : "";
  const int first = argument(argc, argv, 2, 100000), second = argument(argc, argv, 3, 1);
  REQUIRE(first > 0 && second > 0, "counts must be positive");
  if (kind == "upload_fresh" || kind == "upload_same") return uploads(kind == "upload_fresh", first, second);
  REQUIRE(kind == "get_device" || kind == "event_record" || kind == "launch", "'%s' is no kind of call", kind.c_str());
  return calls(kind, first, second);
}
