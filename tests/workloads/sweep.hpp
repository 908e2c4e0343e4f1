// What the API sweeps share. A sweep calls many entry points, each in a way that leaves its mark in memory which is read
// back: a replay that drops a call gives another result.
#pragma once
#include "hip7.h"
#include "workload.hpp"

// Entry points that HIP deprecates are entry points all the same.
#pragma clang diagnostic ignored "-Wdeprecated-declarations"

// Words that differ everywhere and between uses.
inline Words pattern(size_t count, uint32_t seed) {
  Words words(count);
  for (size_t i = 0; i < count; i++) words[i] = uint32_t(i) * 2654435761u ^ (seed * 0x9e3779b9u + 0x1234567u);
  return words;
}

// Reads device memory back by a copy of a spelling that other sweeps test, and compares.
inline void expect_words(const void* device, const Words& expected, const char* what, int line) {
  Words got(expected.size());
  hipError_t error = hipMemcpy(got.data(), device, got.size() * sizeof(uint32_t), hipMemcpyDeviceToHost);
  REQUIRE(error == hipSuccess, "%s (line %d): %s", what, line, hipGetErrorName(error));
  require_equal(got.data(), expected.data(), expected.size(), what, line, "sweep");
}
#define EXPECT_WORDS(device, expected) expect_words(device, expected, #device, __LINE__)

// There when it returns, for streams too that do not wait for the default one: a copy from pageable memory may have read its
// source and not yet written all of its target.
inline void upload(void* device, const Words& words) {
  CHECK(hipMemcpy(device, words.data(), words.size() * sizeof(uint32_t), hipMemcpyHostToDevice));
  CHECK(hipStreamSynchronize(nullptr));
}

template <typename T>
inline bool all_bytes(const std::vector<T>& values, T expected) {
  for (T value : values)
    if (value != expected) return false;
  return true;
}
