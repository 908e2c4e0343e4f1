// A memory pool of the program's own and the device's default one: allocations and frees ordered by streams, memory
// allocated on one stream and freed on another after an event, addresses that come back within a stream.
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

  hipStream_t streams[2];
  hipEvent_t used;
  for (hipStream_t& stream : streams) CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  CHECK(hipEventCreateWithFlags(&used, hipEventDisableTiming));
  DeviceWords total(n);
  Words expected(n, 1), step(n), other(n), got(n);
  LAUNCH(fill, blocks, kThreads, 0, streams[0], total, 1, n);
  for (int r = 0; r < rounds; r++) {
    uint32_t *a, *b;
    CHECK(hipMallocFromPoolAsync(reinterpret_cast<void**>(&a), bytes, pool, streams[0]));
    CHECK(hipMallocAsync(reinterpret_cast<void**>(&b), bytes, streams[0]));
    LAUNCH(iota, blocks, kThreads, 0, streams[0], a, addend_of(r, 1), n);
    LAUNCH(iota, blocks, kThreads, 0, streams[0], b, addend_of(r, 2), n);
    LAUNCH(mix_from, blocks, kThreads, 0, streams[0], a, b, 3, n);
    CHECK(hipFreeAsync(b, streams[0]));
    // May well be where b was.
    CHECK(hipMallocAsync(reinterpret_cast<void**>(&b), bytes, streams[0]));
    LAUNCH(fill, blocks, kThreads, 0, streams[0], b, uint32_t(r), n);
    LAUNCH(mix_from, blocks, kThreads, 0, streams[0], total, a, 5, n);
    LAUNCH(mix_from, blocks, kThreads, 0, streams[0], total, b, 7, n);
    CHECK(hipEventRecord(used, streams[0]));
    CHECK(hipStreamWaitEvent(streams[1], used, 0));
    CHECK(hipFreeAsync(a, streams[1]));
    CHECK(hipFreeAsync(b, streams[0]));
    // The next round's allocations may take a's memory only when it is free.
    CHECK(hipEventRecord(used, streams[1]));
    CHECK(hipStreamWaitEvent(streams[0], used, 0));
    host_iota(step, addend_of(r, 1));
    host_iota(other, addend_of(r, 2));
    host_mix_from(step, other, 3);
    host_mix_from(expected, step, 5);
    host_mix_from(expected, Words(n, uint32_t(r)), 7);
  }
  CHECK(hipMemcpyAsync(got.data(), total, bytes, hipMemcpyDeviceToHost, streams[0]));
  for (hipStream_t stream : streams) CHECK(hipStreamSynchronize(stream));
  REQUIRE_EQUAL(got, expected, "total of pool allocations");
  CHECK(hipMemPoolTrimTo(pool, 0));
  CHECK(hipMemPoolDestroy(pool));
  CHECK(hipEventDestroy(used));
  for (hipStream_t stream : streams) CHECK(hipStreamDestroy(stream));
  std::printf("memory_pool: ok, %d rounds, %d elements\n", rounds, n);
}
