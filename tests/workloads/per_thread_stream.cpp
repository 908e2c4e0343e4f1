// hipStreamPerThread in several threads beside the legacy null stream and blocking streams. Nothing waits for the
// device between turns: that a launch on the null stream comes after all earlier work of blocking streams, and before
// all later, is what makes the result.
// usage: per_thread_stream [elements] [rounds] [threads]
#include "workload.hpp"

namespace {

// Null stream between two blocking streams, and a non-blocking one that needs its own synchronisation.
void run_null_stream(int n, int rounds) {
  const unsigned blocks = blocks_for(n);
  hipStream_t before, after, apart;
  CHECK(hipStreamCreate(&before));
  CHECK(hipStreamCreateWithFlags(&after, hipStreamDefault));
  CHECK(hipStreamCreateWithFlags(&apart, hipStreamNonBlocking));
  DeviceWords data(n), other(n);
  Words expected(n), expected_other(n), got(n);
  host_iota(expected, 1);
  host_iota(expected_other, 2);
  LAUNCH(iota, blocks, kThreads, 0, before, data, 1, n);
  LAUNCH(iota, blocks, kThreads, 0, apart, other, 2, n);
  for (int r = 0; r < rounds; r++) {
    LAUNCH(busy, blocks, kThreads, 0, before, data, 300, n);
    LAUNCH(mix, blocks, kThreads, 0, nullptr, data, factor_of(r, 1), 3, n);
    LAUNCH(mix, blocks, kThreads, 0, after, data, 5, addend_of(r, 2), n);
    LAUNCH(mix, blocks, kThreads, 0, nullptr, data, factor_of(r, 3), 7, n);
    LAUNCH(mix, blocks, kThreads, 0, apart, other, factor_of(r, 4), 9, n);
    host_busy(expected, 300);
    host_mix(expected, factor_of(r, 1), 3);
    host_mix(expected, 5, addend_of(r, 2));
    host_mix(expected, factor_of(r, 3), 7);
    host_mix(expected_other, factor_of(r, 4), 9);
  }
  CHECK(hipMemcpy(got.data(), data, data.bytes(), hipMemcpyDeviceToHost));
  REQUIRE_EQUAL(got, expected, "null stream between blocking streams");
  CHECK(hipStreamSynchronize(apart));
  CHECK(hipMemcpy(got.data(), other, other.bytes(), hipMemcpyDeviceToHost));
  REQUIRE_EQUAL(got, expected_other, "non-blocking stream");
  CHECK(hipStreamDestroy(before));
  CHECK(hipStreamDestroy(after));
  CHECK(hipStreamDestroy(apart));
}

}  // namespace

int main(int argc, char** argv) {
  const int n = argument(argc, argv, 1, 512), rounds = argument(argc, argv, 2, 8);
  const int threads = argument(argc, argv, 3, 4);
  const unsigned blocks = blocks_for(n);
  run_null_stream(n, rounds);

  DeviceWords shared(n);
  Words expected_shared(n);
  host_iota(expected_shared, 4);
  LAUNCH(iota, blocks, kThreads, 0, nullptr, shared, 4, n);
  Turns turns;
  run_threads(threads, [&](int t) {
    DeviceWords mine(n);
    Words got(n), expected(n);
    for (int r = 0; r < rounds; r++) {
      host_iota(expected, addend_of(t, r));
      CHECK(hipMemcpyAsync(mine, expected.data(), mine.bytes(), hipMemcpyHostToDevice, hipStreamPerThread));
      LAUNCH(mix, blocks, kThreads, 0, hipStreamPerThread, mine, factor_of(t, r), 1, n);
      host_mix(expected, factor_of(t, r), 1);
      turns.take(r * threads + (t + r) % threads, [&] {
        LAUNCH(mix_from, blocks, kThreads, 0, hipStreamPerThread, shared, mine, factor_of(r, t), n);
        host_mix_from(expected_shared, expected, factor_of(r, t));
        LAUNCH(mix, blocks, kThreads, 0, nullptr, shared, 3, addend_of(r, t), n);
        host_mix(expected_shared, 3, addend_of(r, t));
      });
      CHECK(hipMemcpyAsync(got.data(), mine, mine.bytes(), hipMemcpyDeviceToHost, hipStreamPerThread));
      CHECK(hipStreamSynchronize(hipStreamPerThread));
      REQUIRE_EQUAL(got, expected, "own buffer");
    }
  });
  Words got(n);
  CHECK(hipMemcpy(got.data(), shared, shared.bytes(), hipMemcpyDeviceToHost));
  REQUIRE_EQUAL(got, expected_shared, "shared buffer");
  std::printf("per_thread_stream: ok, %d threads, %d rounds, %d elements\n", threads, rounds, n);
}
