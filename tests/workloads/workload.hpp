// What every workload shares: arguments, the standard kernels, their host models, and turn-taking threads.
#pragma once
#include <hip/hip_runtime.h>

#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "launch_types.h"

// The kernels of tests/kernels/standard.c, by their plain C names. The bodies are there; these give the host the
// signatures and the registration of each.
extern "C" {
__global__ void apply_view(struct matrix_view, uint32_t) {}
__global__ void eight_arguments(char, short, float, char, double, int64_t, const uint32_t*, double*) {}
__global__ void sum_table(uint32_t* const*, uint32_t*, int, int) {}
__global__ void make_table(uint32_t**, uint32_t*, int, int) {}
__global__ void fold_range(const uint32_t*, const uint32_t*, uint32_t*) {}
__global__ void spin_until(const uint32_t*, uint32_t*) {}
__global__ void busy(uint32_t*, uint32_t, int) {}
__global__ void use_counter(uint32_t*, uint32_t, int) {}
__global__ void block_sum(const uint32_t*, uint32_t*, int) {}
__global__ void transpose(uint32_t*, const uint32_t*, int, int) {}
__global__ void histogram(const uint32_t*, uint32_t*, uint32_t, int) {}
__global__ void reverse_block(uint32_t*, int) {}
__global__ void saxpy(float, const float*, float*, int) {}
__global__ void vector_add(const float*, const float*, float*, int) {}
__global__ void vector_scale(float*, float, int) {}
__global__ void iota(uint32_t*, uint32_t, int) {}
__global__ void fill(uint32_t*, uint32_t, int) {}
__global__ void mix(uint32_t*, uint32_t, uint32_t, int) {}
__global__ void mix_from(uint32_t*, const uint32_t*, uint32_t, int) {}
__global__ void copy_offset(uint32_t*, const uint32_t*, size_t, int) {}
__device__ uint32_t launch_counter;
__device__ uint32_t step_table[4];
}

using Words = std::vector<uint32_t>;

constexpr int kThreads = 128;
inline unsigned blocks_for(int n, int threads = kThreads) { return (n + threads - 1) / threads; }

// Host models of the order-sensitive kernels.
inline void host_iota(Words& data, uint32_t first) {
  for (size_t i = 0; i < data.size(); i++) data[i] = first + uint32_t(i);
}
inline void host_mix(Words& data, uint32_t factor, uint32_t addend) {
  for (uint32_t& value : data) value = value * factor + addend;
}
inline void host_mix_from(Words& target, const Words& source, uint32_t factor) {
  for (size_t i = 0; i < target.size(); i++) target[i] = target[i] * factor + source[i];
}
inline void host_busy(Words& data, uint32_t iterations) {
  for (uint32_t& value : data)
    for (uint32_t k = 0; k < iterations; k++) value = (value ^ (value >> 15)) * 0x2c1b3c6du + k;
}

// Odd constants that differ for each use, so that no two launches may change places unnoticed.
inline uint32_t factor_of(uint32_t a, uint32_t b) { return (a * 2654435761u + b * 40503u) | 1; }
inline uint32_t addend_of(uint32_t a, uint32_t b) { return a * 69069u + b * 1812433253u + 1; }

inline void require_equal(const uint32_t* got, const uint32_t* want, size_t count, const char* what, int line,
                          const char* file) {
  for (size_t i = 0; i < count; i++)
    if (got[i] != want[i]) fail(file, line, "%s: element %zu is %u, should be %u", what, i, got[i], want[i]);
}
#define REQUIRE_EQUAL(got, want, what) \
  require_equal((got).data(), (want).data(), (want).size(), what, __LINE__, __FILE__)

// The position-th argument as a number, or its default.
inline int argument(int argc, char** argv, int position, int otherwise) {
  if (position >= argc) return otherwise;
  char* end = nullptr;
  long value = std::strtol(argv[position], &end, 0);
  REQUIRE(*argv[position] != 0 && *end == 0 && value >= 0 && value <= INT32_MAX, "'%s' is not a count", argv[position]);
  return int(value);
}

// Where a bundle is: in $HRR_KERNEL_DIR, or in ../kernels beside the program's folder.
inline std::string kernel_path(const char* argv0, const char* bundle) {
  if (const char* folder = std::getenv("HRR_KERNEL_DIR")) return std::string(folder) + "/" + bundle + ".hipfb";
  std::string program(argv0);
  size_t slash = program.rfind('/');
  std::string folder = slash == std::string::npos ? "." : program.substr(0, slash);
  return folder + "/../kernels/" + bundle + ".hipfb";
}

inline std::vector<char> read_file(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "rb");
  REQUIRE(file, "cannot read %s", path.c_str());
  std::vector<char> bytes;
  char chunk[65536];
  for (size_t got; (got = std::fread(chunk, 1, sizeof chunk, file)) > 0;) bytes.insert(bytes.end(), chunk, chunk + got);
  std::fclose(file);
  return bytes;
}

// Lets numbered threads take turns in a fixed order: a handover by mutex and condition variable, which no HIP call
// shows.
class Turns {
 public:
  // Runs `work` when all turns before number `turn` are over.
  template <typename Work>
  void take(int turn, Work work) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return next_ == turn; });
    work();
    next_++;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int next_ = 0;
};

// Runs work(0) ... work(count - 1) on a thread each and joins them.
template <typename Work>
void run_threads(int count, Work work) {
  std::vector<std::thread> threads;
  for (int t = 0; t < count; t++) threads.emplace_back(work, t);
  for (std::thread& thread : threads) thread.join();
}

// Device memory of `count` words, freed with the holder.
class DeviceWords {
 public:
  explicit DeviceWords(size_t count) : count_(count) { CHECK(hipMalloc(&data_, count * sizeof(uint32_t))); }
  DeviceWords(const DeviceWords&) = delete;
  DeviceWords& operator=(const DeviceWords&) = delete;
  ~DeviceWords() { CHECK(hipFree(data_)); }
  operator uint32_t*() const { return data_; }
  size_t bytes() const { return count_ * sizeof(uint32_t); }

 private:
  uint32_t* data_ = nullptr;
  size_t count_;
};
