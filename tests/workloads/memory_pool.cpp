// A memory pool of the program's own and the device's default one, on two streams in turn: allocations and frees
// ordered by streams, memory allocated on one stream and freed on the other after an event, addresses that come back.
// usage: memory_pool [elements] [rounds]
#include "workload.hpp"

int main(int argc, char** argv) {
  const int n = argument(argc, argv, 1, 1024), rounds = argument(argc, argv, 2, 10);
  const unsigned blocks = blocks_for(n);
  const size_t bytes = n * sizeof(uint32_t);
  hipMemPoolProps properties = {};
  properties.allocType = hipMemAllocationTypePinned;
  properties.location.type = hipMemLocationTypeDevice;
  properties.location.id = 0;
  hipMemPool_t pool, default_pool;
  CHECK(hipMemPoolCreate(&pool, &properties));
  CHECK(hipDeviceGetDefaultMemPool(&default_pool, 0));
  REQUIRE(pool != default_pool, "the new pool is the default one");
  uint64_t threshold_bytes = 1 << 20, read_back = 0;
  CHECK(hipMemPoolSetAttribute(pool, hipMemPoolAttrReleaseThreshold, &threshold_bytes));
  CHECK(hipMemPoolGetAttribute(pool, hipMemPoolAttrReleaseThreshold, &read_back));
  REQUIRE(read_back == threshold_bytes, "the release threshold is %llu", static_cast<unsigned long long>(read_back));

  // Memory of no bytes is given out without an address.
  void* none = pool;
  CHECK(hipMalloc(&none, 0));
  REQUIRE(none == nullptr, "memory of no bytes lies at %p", none);

  hipStream_t streams[2];
  hipEvent_t used;
  for (hipStream_t& stream : streams) CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  CHECK(hipEventCreateWithFlags(&used, hipEventDisableTiming));
  DeviceWords total(n);
  Words expected(n, 1), step(n), other(n), got(n);
  LAUNCH(fill, blocks, kThreads, 0, streams[0], total, 1, n);
  for (int r = 0; r < rounds; r++) {
    const hipStream_t stream = streams[r % 2], next = streams[1 - r % 2];
    uint32_t *a, *b;
    CHECK(hipMallocFromPoolAsync(reinterpret_cast<void**>(&a), bytes, pool, stream));
    CHECK(hipMallocAsync(reinterpret_cast<void**>(&b), bytes, stream));
    LAUNCH(iota, blocks, kThreads, 0, stream, a, addend_of(r, 1), n);
    LAUNCH(iota, blocks, kThreads, 0, stream, b, addend_of(r, 2), n);
    LAUNCH(mix_from, blocks, kThreads, 0, stream, a, b, 3, n);
    CHECK(hipFreeAsync(b, stream));
    // May well be where b was.
    CHECK(hipMallocAsync(reinterpret_cast<void**>(&b), bytes, stream));
    LAUNCH(fill, blocks, kThreads, 0, stream, b, uint32_t(r), n);
    LAUNCH(mix_from, blocks, kThreads, 0, stream, total, b, 5, n);
    CHECK(hipFreeAsync(b, stream));
    LAUNCH(mix_from, blocks, kThreads, 0, stream, total, a, 7, n);
    // Freed on the stream of the next round, which may have it again at once: the event is what makes that safe.
    CHECK(hipEventRecord(used, stream));
    CHECK(hipStreamWaitEvent(next, used, 0));
    CHECK(hipFreeAsync(a, next));
    host_iota(step, addend_of(r, 1));
    host_iota(other, addend_of(r, 2));
    host_mix_from(step, other, 3);
    host_mix_from(expected, Words(n, uint32_t(r)), 5);
    host_mix_from(expected, step, 7);
  }
  CHECK(hipMemcpyAsync(got.data(), total, bytes, hipMemcpyDeviceToHost, streams[rounds % 2]));
  for (hipStream_t stream : streams) CHECK(hipStreamSynchronize(stream));
  REQUIRE_EQUAL(got, expected, "total of pool allocations");
  CHECK(hipMemPoolTrimTo(pool, 0));
  CHECK(hipMemPoolDestroy(pool));
  CHECK(hipEventDestroy(used));
  for (hipStream_t stream : streams) CHECK(hipStreamDestroy(stream));
  std::printf("memory_pool: ok, %d rounds, %d elements\n", rounds, n);
}
