// Calls that name a device, on two devices, whose results do not depend on the devices being two: a replay may map both
// to one. Needs two devices (minihip: MINIHIP_DEVICES=2); exits 77 with fewer.
#include "sweep.hpp"

int main() {
  int devices = 0;
  CHECK(hipGetDeviceCount(&devices));
  if (devices < 2) {
    std::printf("sweep_devices: skipped, %d device(s), needs 2\n", devices);
    return 77;
  }
  constexpr int n = 500;
  uint32_t* data[2];
  hipStream_t streams[2];
  hipMemPool_t pools[2];
  uint32_t* pooled[2];
  for (int d = 0; d < 2; d++) {
    CHECK(hipSetDevice(d));
    CHECK(hipStreamCreateWithFlags(&streams[d], hipStreamNonBlocking));
    CHECK(hipMalloc(&data[d], n * 4));
    hipMemPoolProps properties = {};
    auto* props = reinterpret_cast<hip7::PoolProps*>(&properties);
    props->allocType = 1, props->location = {hip7::kLocationDevice, d};
    CHECK(hipMemPoolCreate(&pools[d], &properties));
    CHECK(hipMallocFromPoolAsync(reinterpret_cast<void**>(&pooled[d]), n * 4, pools[d], streams[d]));
    hipDeviceProp_t device;
    CHECK(hipGetDeviceProperties(&device, d));
    int value = 0;
    CHECK(hipDeviceGetAttribute(&value, hipDeviceAttributeWarpSize, d));
    CHECK(hipDeviceGet(&value, d));
    size_t bytes = 0;
    CHECK(hipDeviceTotalMem(&bytes, d));
    hipMemPool_t standard;
    CHECK(hipDeviceGetDefaultMemPool(&standard, d));
  }
  Words expected = pattern(n, 5);
  CHECK(hipSetDevice(0));
  upload(data[0], expected);
  LAUNCH(mix, blocks_for(n), kThreads, 0, streams[0], data[0], 3, 4, n);
  CHECK(hipStreamSynchronize(streams[0]));
  host_mix(expected, 3, 4);
  // Over to the other device, by every kind of copy that names both.
  CHECK(hipMemcpyPeer(data[1], 1, data[0], 0, n * 4));
  CHECK(hipDeviceSynchronize());
  CHECK(hipSetDevice(1));
  CHECK(hipDeviceSynchronize());
  LAUNCH(mix, blocks_for(n), kThreads, 0, streams[1], data[1], 5, 6, n);
  CHECK(hipMemcpyPeerAsync(pooled[1], 1, data[1], 1, n * 4, streams[1]));
  CHECK(hipStreamSynchronize(streams[1]));
  host_mix(expected, 5, 6);
  EXPECT_WORDS(pooled[1], expected);
  hip7::Memcpy3DPeer peer = {};
  peer.srcPtr = {pooled[1], n * 4, n * 4, 1};
  peer.srcDevice = 1;
  peer.dstPtr = {pooled[0], n * 4, n * 4, 1};
  peer.dstDevice = 0;
  peer.extent = {n * 4, 1, 1};
  CHECK(hipMemcpy3DPeer(&peer));
  CHECK(hipDeviceSynchronize());
  CHECK(hipSetDevice(0));
  CHECK(hipDeviceSynchronize());
  LAUNCH(mix, blocks_for(n), kThreads, 0, streams[0], pooled[0], 7, 8, n);
  CHECK(hipStreamSynchronize(streams[0]));
  host_mix(expected, 7, 8);
  EXPECT_WORDS(pooled[0], expected);
  for (int d = 0; d < 2; d++) {
    CHECK(hipSetDevice(d));
    CHECK(hipFreeAsync(pooled[d], streams[d]));
    CHECK(hipStreamSynchronize(streams[d]));
    CHECK(hipMemPoolDestroy(pools[d]));
    CHECK(hipFree(data[d]));
    CHECK(hipStreamDestroy(streams[d]));
  }
  std::printf("sweep_devices: ok, %d words\n", n);
}
