// Eight threads with their own streams take turns on shared buffers. The turns go over by mutex and condition variable;
// no HIP call shows them, and another order of the turns gives other data:
// - `queued` is only ever touched on one shared stream, and no turn waits for the device: the order of the host's
//   calls alone decides;
// - `handed` is touched on each thread's own stream, which the turn synchronises before it ends.
// Between turns each thread works on its own buffer.
// usage: threads8 [elements] [rounds] [threads]
#include "workload.hpp"

int main(int argc, char** argv) {
  const int n = argument(argc, argv, 1, 1024), rounds = argument(argc, argv, 2, 12);
  const int threads = argument(argc, argv, 3, 8);
  const unsigned blocks = blocks_for(n);

  DeviceWords queued(n), handed(n);
  Words expected_queued(n), expected_handed(n);
  host_iota(expected_queued, 1);
  host_iota(expected_handed, 2);
  hipStream_t shared;
  CHECK(hipStreamCreateWithFlags(&shared, hipStreamNonBlocking));
  LAUNCH(iota, blocks, kThreads, 0, nullptr, queued, 1, n);
  LAUNCH(iota, blocks, kThreads, 0, nullptr, handed, 2, n);
  CHECK(hipDeviceSynchronize());

  Turns turns;
  run_threads(threads, [&](int t) {
    hipStream_t own;
    CHECK(hipStreamCreateWithFlags(&own, hipStreamNonBlocking));
    DeviceWords mine(n);
    Words upload(n), expected(n), got(n);
    for (int r = 0; r < rounds; r++) {
      host_iota(upload, addend_of(t, r));
      CHECK(hipMemcpyAsync(mine, upload.data(), mine.bytes(), hipMemcpyHostToDevice, own));
      LAUNCH(mix, blocks, kThreads, 0, own, mine, factor_of(t, r), addend_of(r, t), n);
      expected = upload;
      host_mix(expected, factor_of(t, r), addend_of(r, t));

      // The order of the threads changes from round to round.
      const int place = (t + r * 3) % threads;
      turns.take(r * threads + place, [&] {
        LAUNCH(mix, blocks, kThreads, 0, shared, queued, factor_of(r, t), addend_of(t, r), n);
        host_mix(expected_queued, factor_of(r, t), addend_of(t, r));
        LAUNCH(mix_from, blocks, kThreads, 0, own, handed, mine, factor_of(t + 7, r), n);
        host_mix_from(expected_handed, expected, factor_of(t + 7, r));
        if ((t + r) % 3 == 0) {
          CHECK(hipMemcpyAsync(got.data(), handed, handed.bytes(), hipMemcpyDeviceToHost, own));
          CHECK(hipStreamSynchronize(own));
          REQUIRE_EQUAL(got, expected_handed, "handed buffer in a turn");
        } else {
          CHECK(hipStreamSynchronize(own));
        }
      });

      LAUNCH(mix, blocks, kThreads, 0, own, mine, 3, uint32_t(t), n);
      host_mix(expected, 3, uint32_t(t));
      CHECK(hipMemcpyAsync(got.data(), mine, mine.bytes(), hipMemcpyDeviceToHost, own));
      CHECK(hipStreamSynchronize(own));
      REQUIRE_EQUAL(got, expected, "own buffer");
    }
    CHECK(hipStreamDestroy(own));
  });

  Words got(n);
  CHECK(hipStreamSynchronize(shared));
  CHECK(hipMemcpy(got.data(), queued, queued.bytes(), hipMemcpyDeviceToHost));
  REQUIRE_EQUAL(got, expected_queued, "queued buffer");
  CHECK(hipMemcpy(got.data(), handed, handed.bytes(), hipMemcpyDeviceToHost));
  REQUIRE_EQUAL(got, expected_handed, "handed buffer");
  CHECK(hipStreamDestroy(shared));
  std::printf("threads8: ok, %d threads, %d rounds, %d elements\n", threads, rounds, n);
}
