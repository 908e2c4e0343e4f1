// Threads that launch and copy until somebody ends the process. Each says how far it is: a line per iteration, and,
// when a counter file is named, one 64-bit number per thread there, which is the count of its HIP calls that have
// returned. The file is mapped, so what it says survives SIGKILL.
// usage: forever [iterations per thread, 0 for ever] [threads] [counter file]
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

#include "workload.hpp"

namespace {

constexpr int kElements = 256;

// A call whose return is counted before anything else happens in this thread.
#define COUNTED(call)                                 \
  do {                                                \
    const hipError_t counted_ = (call);               \
    returned.fetch_add(1, std::memory_order_release); \
    CHECK(counted_);                                  \
  } while (0)

std::atomic<uint64_t>* map_counters(const char* path, int threads) {
  const size_t bytes = size_t(threads) * sizeof(std::atomic<uint64_t>);
  const int file = path ? open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644) : -1;
  REQUIRE(!path || (file >= 0 && ftruncate(file, off_t(bytes)) == 0), "cannot write %s", path);
  const int flags = path ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, file, 0);
  REQUIRE(memory != MAP_FAILED, "cannot map the counters");
  if (file >= 0) close(file);
  return static_cast<std::atomic<uint64_t>*>(memory);
}

void work(int t, int iterations, std::atomic<uint64_t>& returned) {
  const unsigned blocks = blocks_for(kElements);
  const size_t bytes = kElements * sizeof(uint32_t);
  hipStream_t stream;
  uint32_t *data, factor = 3, addend = uint32_t(t);
  int n = kElements;
  void* arguments[] = {&data, &factor, &addend, &n};
  Words input(kElements), expected(kElements), got(kElements);
  COUNTED(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  COUNTED(hipMalloc(&data, bytes));
  for (int i = 0; iterations == 0 || i < iterations; i++) {
    host_iota(input, uint32_t(i));
    expected = input;
    host_mix(expected, factor, addend);
    COUNTED(hipMemcpyAsync(data, input.data(), bytes, hipMemcpyHostToDevice, stream));
    // As a plain call: <<<>>> would be three calls.
    COUNTED(hipLaunchKernel(reinterpret_cast<void*>(mix), dim3(blocks), dim3(kThreads), arguments, 0, stream));
    COUNTED(hipMemcpyAsync(got.data(), data, bytes, hipMemcpyDeviceToHost, stream));
    COUNTED(hipStreamSynchronize(stream));
    REQUIRE_EQUAL(got, expected, "iteration's result");
    char line[64];
    const int length = std::snprintf(line, sizeof line, "forever: thread %d iteration %d\n", t, i);
    REQUIRE(write(STDOUT_FILENO, line, size_t(length)) == length, "cannot write progress");
  }
  COUNTED(hipFree(data));
  COUNTED(hipStreamDestroy(stream));
}

}  // namespace

int main(int argc, char** argv) {
  const int iterations = argument(argc, argv, 1, 0), threads = argument(argc, argv, 2, 2);
  std::atomic<uint64_t>* returned = map_counters(argc > 3 ? argv[3] : nullptr, threads);
  run_threads(threads, [&](int t) { work(t, iterations, returned[t]); });
  std::printf("forever: ok, %d threads, %d iterations\n", threads, iterations);
}
