// Peer access between two devices: enabled, enabled again (which fails), disabled; by device and by context; memory of one
// device read by the other's kernels. Needs two devices (minihip: MINIHIP_DEVICES=2); exits 77 with fewer.
#include "sweep.hpp"

namespace {

constexpr int kCount = 300;

// A kernel of device `on` reads memory of the other one.
void reach_over(int on, uint32_t* mine, uint32_t* theirs, Words& expected, const Words& source, uint32_t factor) {
  CHECK(hipSetDevice(on));
  LAUNCH(mix_from, blocks_for(kCount), kThreads, 0, nullptr, mine, theirs, factor, kCount);
  CHECK(hipDeviceSynchronize());
  host_mix_from(expected, source, factor);
  EXPECT_WORDS(mine, expected);
}

}  // namespace

int main() {
  int devices = 0, possible = 0;
  CHECK(hipGetDeviceCount(&devices));
  if (devices >= 2) CHECK(hipDeviceCanAccessPeer(&possible, 0, 1));
  if (!possible) {
    std::printf("peers: skipped, %d device(s), needs 2 that reach each other\n", devices);
    return 77;
  }
  int order[2] = {0, 1};
  CHECK(hipSetValidDevices(order, 2));
  int rank = -1, access = 0;
  CHECK(hipDeviceGetP2PAttribute(&rank, hipDevP2PAttrPerformanceRank, 0, 1));
  CHECK(hipDeviceGetP2PAttribute(&access, hipDevP2PAttrAccessSupported, 1, 0));
  REQUIRE(access == 1, "access");
  uint32_t kind = 0, hops = 0;
  CHECK(hipExtGetLinkTypeAndHopCount(0, 1, &kind, &hops));
  uint32_t* data[2];
  Words words[2];
  for (int d = 0; d < 2; d++) {
    CHECK(hipSetDevice(d));
    CHECK(hipMalloc(&data[d], kCount * 4));
    words[d] = pattern(kCount, d + 1);
    upload(data[d], words[d]);
    CHECK(hipDeviceSynchronize());
  }
  for (uint32_t round = 0; round < 2; round++) {
    CHECK(hipSetDevice(0));
    CHECK(hipDeviceEnablePeerAccess(1, 0));
    REQUIRE(hipDeviceEnablePeerAccess(1, 0) == hipErrorPeerAccessAlreadyEnabled, "enabled twice");
    (void)hipGetLastError();
    reach_over(0, data[0], data[1], words[0], words[1], 2 * round + 3);
    CHECK(hipDeviceDisablePeerAccess(1));
    REQUIRE(hipDeviceDisablePeerAccess(1) == hipErrorPeerAccessNotEnabled, "disabled twice");
    (void)hipGetLastError();
  }
  // The same by contexts.
  hipCtx_t contexts[2];
  for (int d = 0; d < 2; d++) CHECK(hipDevicePrimaryCtxRetain(&contexts[d], d));
  for (uint32_t round = 0; round < 2; round++) {
    CHECK(hipCtxSetCurrent(contexts[1]));
    CHECK(hipCtxEnablePeerAccess(contexts[0], 0));
    reach_over(1, data[1], data[0], words[1], words[0], 2 * round + 11);
    CHECK(hipCtxSetCurrent(contexts[1]));
    CHECK(hipCtxDisablePeerAccess(contexts[0]));
  }
  // Which context is current shows in the variable that a kernel sees: each device has its own. Neither reaches the other's
  // memory any more.
  uint32_t* table_out[2];
  for (int d = 0; d < 2; d++) {
    CHECK(hipSetDevice(d));
    CHECK(hipMalloc(&table_out[d], 64));
    const Words table = pattern(4, 30 + d);
    CHECK(hipMemcpyToSymbol(HIP_SYMBOL(step_table), table.data(), 16, 0, hipMemcpyHostToDevice));
    CHECK(hipDeviceSynchronize());
  }
  const auto expect_table = [&](int d, int line) {
    LAUNCH(use_counter, 1, 32, 0, nullptr, table_out[d], 0, 4);
    CHECK(hipDeviceSynchronize());
    Words expected = pattern(4, 30 + d);
    for (uint32_t& value : expected) value += 7000000;
    expect_words(table_out[d], expected, "the current device's variable", line);
  };
  CHECK(hipSetDevice(0));
  expect_table(0, __LINE__);
  hipCtx_t popped;
  CHECK(hipCtxPushCurrent(contexts[1]));
  expect_table(1, __LINE__);
  CHECK(hipCtxPushCurrent(contexts[0]));
  expect_table(0, __LINE__);
  CHECK(hipCtxPopCurrent(&popped));
  expect_table(1, __LINE__);
  REQUIRE(popped == contexts[0], "another context");
  CHECK(hipCtxSetCurrent(contexts[0]));
  expect_table(0, __LINE__);
  for (int d = 0; d < 2; d++) {
    CHECK(hipDevicePrimaryCtxRelease(d));
    CHECK(hipSetDevice(d));
    CHECK(hipFree(data[d]));
    CHECK(hipFree(table_out[d]));
  }
  std::printf("peers: ok, %d words\n", kCount);
}
