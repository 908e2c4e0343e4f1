// Large copies, one after the other on a stream per thread: between host memory and a device, or from one device to the
// other.
// usage: transfer_rate [direction] [MiB per copy] [copies] [host buffers] [0 pinned, 1 pageable] [devices] [1: new contents]
//   direction: 0 to the device, 1 to the host, 2 from device 0 to device 1 (needs two, and a single thread does it)
//   devices: as many threads, each copying on its own device
//   new contents: the buffers are written anew, with other contents, before they are uploaded again
// Prints the rate of the copies and the time between the first and the last call.
#include <atomic>
#include <chrono>

#include "workload.hpp"

namespace {

using Clock = std::chrono::steady_clock;
enum Direction { kToDevice, kToHost, kPeer };

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

struct Options {
  int direction;
  size_t bytes;
  int copies, buffers;
  bool pageable;
  int devices;
  bool new_contents;
};

uint32_t host_word(int buffer, int i) { return uint32_t(i) * 2654435761u + uint32_t(buffer); }

// Host memory of one thread.
class Buffers {
 public:
  Buffers(const Options& options, int n) : pageable_(options.pageable), memory_(options.buffers) {
    for (int b = 0; b < options.buffers; b++) {
      if (pageable_)
        memory_[b] = static_cast<uint32_t*>(std::malloc(options.bytes));
      else
        CHECK(hipHostMalloc(reinterpret_cast<void**>(&memory_[b]), options.bytes, hipHostMallocDefault));
    }
    fill(0, n);
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;
  ~Buffers() {
    for (uint32_t* buffer : memory_) {
      if (pageable_)
        std::free(buffer);
      else
        CHECK(hipHostFree(buffer));
    }
  }
  // Contents that no buffer had before.
  void fill(int round, int n) {
    const int count = int(memory_.size());
    for (int b = 0; b < count; b++)
      for (int i = 0; i < n; i++) memory_[b][i] = host_word(round * count + b, i);
  }
  uint32_t* operator[](int i) const { return memory_[i % memory_.size()]; }

 private:
  bool pageable_;
  std::vector<uint32_t*> memory_;
};

// Uploads or downloads; returns the time of the copies in ms.
double host_copies(const Options& options, std::atomic<int>& waiting) {
  const int n = int(options.bytes / sizeof(uint32_t)), copies = options.copies;
  const bool to_host = options.direction == kToHost;
  hipStream_t stream;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  DeviceWords data(n);
  Buffers host(options, n);
  LAUNCH(iota, blocks_for(n), kThreads, 0, stream, data, 1, n);
  CHECK(hipStreamSynchronize(stream));
  waiting--;
  while (waiting != 0) std::this_thread::yield();

  const auto begin = Clock::now();
  for (int c = 0; c < copies; c++) {
    if (to_host) {
      // Results are seen before their buffers are used again, and differ from round to round.
      if (c % options.buffers == 0) {
        CHECK(hipStreamSynchronize(stream));
        LAUNCH(mix, 1, kThreads, 0, stream, data, 3, uint32_t(c), kThreads);
      }
      CHECK(hipMemcpyAsync(host[c], data, options.bytes, hipMemcpyDeviceToHost, stream));
    } else {
      if (options.new_contents && c > 0 && c % options.buffers == 0) {
        CHECK(hipStreamSynchronize(stream));
        host.fill(c / options.buffers, n);
      }
      CHECK(hipMemcpyAsync(data, host[c], options.bytes, hipMemcpyHostToDevice, stream));
    }
  }
  CHECK(hipStreamSynchronize(stream));
  const double copy_ms = ms_since(begin);

  // What the last copy left on its other side.
  Words expected(kThreads), got(kThreads);
  if (to_host) {
    host_iota(expected, 1);
    for (int c = 0; c < copies; c += options.buffers) host_mix(expected, 3, uint32_t(c));
    got.assign(host[copies - 1], host[copies - 1] + kThreads);
  } else {
    const int last = options.new_contents ? copies - 1 : (copies - 1) % options.buffers;
    for (int i = 0; i < kThreads; i++) expected[i] = host_word(last, i);
    CHECK(hipMemcpyAsync(got.data(), data, kThreads * sizeof(uint32_t), hipMemcpyDeviceToHost, stream));
    CHECK(hipStreamSynchronize(stream));
  }
  REQUIRE_EQUAL(got, expected, "copied data");
  CHECK(hipStreamDestroy(stream));
  return copy_ms;
}

// Copies from device 0 to device 1.
double peer_copies(const Options& options) {
  const int n = int(options.bytes / sizeof(uint32_t));
  int can_access = 0;
  CHECK(hipDeviceCanAccessPeer(&can_access, 0, 1));
  if (can_access) CHECK(hipDeviceEnablePeerAccess(1, 0));
  hipStream_t stream;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  DeviceWords source(n);
  uint32_t* target = nullptr;
  CHECK(hipSetDevice(1));
  CHECK(hipMalloc(&target, options.bytes));
  CHECK(hipSetDevice(0));
  LAUNCH(iota, blocks_for(n), kThreads, 0, stream, source, 1, n);
  CHECK(hipStreamSynchronize(stream));
  const auto begin = Clock::now();
  for (int c = 0; c < options.copies; c++) CHECK(hipMemcpyPeerAsync(target, 1, source, 0, options.bytes, stream));
  CHECK(hipStreamSynchronize(stream));
  const double copy_ms = ms_since(begin);
  Words got(kThreads), expected(kThreads);
  host_iota(expected, 1);
  CHECK(hipSetDevice(1));
  CHECK(hipMemcpy(got.data(), target, kThreads * sizeof(uint32_t), hipMemcpyDeviceToHost));
  REQUIRE_EQUAL(got, expected, "data copied between the devices");
  CHECK(hipFree(target));
  CHECK(hipSetDevice(0));
  CHECK(hipStreamDestroy(stream));
  return copy_ms;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = {argument(argc, argv, 1, 0), size_t(argument(argc, argv, 2, 1)) << 20,
                           argument(argc, argv, 3, 8), argument(argc, argv, 4, 4),
                           argument(argc, argv, 5, 0) != 0, argument(argc, argv, 6, 1),
                           argument(argc, argv, 7, 0) != 0};
  REQUIRE(options.bytes > 0 && options.copies > 0 && options.buffers > 0 && options.devices > 0,
          "sizes and counts must be positive");
  REQUIRE(options.direction <= kPeer, "%d is no direction", options.direction);
  for (int d = options.direction == kPeer ? 1 : options.devices - 1; d >= 0; d--) {
    CHECK(hipSetDevice(d));
    CHECK(hipFree(nullptr));
  }
  const auto begin = Clock::now();
  double copy_ms = 0;
  if (options.direction == kPeer) {
    copy_ms = peer_copies(options);
  } else {
    std::atomic<int> waiting{options.devices};
    std::vector<double> each_ms(options.devices);
    run_threads(options.devices, [&](int d) {
      CHECK(hipSetDevice(d));
      each_ms[d] = host_copies(options, waiting);
    });
    for (double ms : each_ms) copy_ms = ms > copy_ms ? ms : copy_ms;
  }
  const int copies = options.direction == kPeer ? options.copies : options.copies * options.devices;
  std::printf("transfer_rate: copies=%d gb_per_s=%.2f copy_ms=%.1f wall_ms=%.1f\n", copies,
              double(options.bytes) * copies / copy_ms / 1e6, copy_ms, ms_since(begin));
  std::printf("transfer_rate: ok, %d copies of %zu MiB\n", copies, options.bytes >> 20);
}
