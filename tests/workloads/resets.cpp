// Devices reset, whole and by their primary contexts: what was made before is gone, and everything can be made again. That
// peer access can be enabled again shows that it was reset; that is left out where two devices do not reach each other
// (minihip: MINIHIP_DEVICES=2).
#include "sweep.hpp"

namespace {

constexpr int kCount = 200;

// Memory, a stream and work on the current device; nothing is given back.
void use(uint32_t seed) {
  uint32_t* data;
  hipStream_t stream;
  CHECK(hipMalloc(&data, kCount * 4));
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  Words expected = pattern(kCount, seed);
  upload(data, expected);
  LAUNCH(mix, blocks_for(kCount), kThreads, 0, stream, data, 2 * seed + 1, seed, kCount);
  CHECK(hipStreamSynchronize(stream));
  host_mix(expected, 2 * seed + 1, seed);
  EXPECT_WORDS(data, expected);
}

}  // namespace

int main() {
  int devices = 0, peers = 0;
  CHECK(hipGetDeviceCount(&devices));
  if (devices >= 2) CHECK(hipDeviceCanAccessPeer(&peers, 0, 1));
  const int other = devices >= 2 ? 1 : 0;
  if (!peers) std::printf("resets: peer access skipped, %d device(s), needs 2 that reach each other\n", devices);
  unsigned flags = 0;
  int active = 1;
  CHECK(hipInitDevice(other, hipDeviceScheduleYield, 1));
  CHECK(hipDevicePrimaryCtxSetFlags(0, hipDeviceScheduleSpin));
  CHECK(hipDevicePrimaryCtxGetState(0, &flags, &active));
  for (uint32_t round = 0; round < 3; round++) {
    CHECK(hipSetDevice(0));
    if (peers) CHECK(hipDeviceEnablePeerAccess(1, 0));
    use(3 * round + 1);
    use(3 * round + 2);
    CHECK(hipDeviceReset());
    CHECK(hipSetDevice(other));
    if (peers) CHECK(hipDeviceEnablePeerAccess(0, 0));
    use(3 * round + 3);
    CHECK(hipDevicePrimaryCtxReset(other));
  }
  CHECK(hipSetDevice(0));
  use(100);
  std::printf("resets: ok, %d rounds\n", 3);
}
