// Green contexts over shares of a device, their streams, and the order that their events make: each buffer is handed from
// context to context by kernels that do not commute.
#include "sweep.hpp"

namespace {

constexpr int kCount = 256, kSpin = 20000, kUnits = 1, kNonBlocking = 1;

struct Green {
  void* context = nullptr;
  hipStream_t streams[2];
};

Green green(hip7::DevResource* share) {
  Green made;
  void* description = nullptr;
  CHECK(hipDevResourceGenerateDesc(&description, share, 1));
  CHECK(hipGreenCtxCreate(&made.context, description, 0, 0));
  for (hipStream_t& stream : made.streams)
    CHECK(hipExecutionCtxStreamCreate(&stream, made.context, kNonBlocking, 0));
  hip7::DevResource found;
  CHECK(hipExecutionCtxGetDevResource(made.context, &found, kUnits));
  REQUIRE(found.units == share->units, "%u compute units", found.units);
  CHECK(hipStreamGetDevResource(made.streams[0], &found, kUnits));
  REQUIRE(found.units == share->units, "%u compute units", found.units);
  int device = -1;
  unsigned long long id = 0;
  CHECK(hipExecutionCtxGetDevice(&device, made.context));
  CHECK(hipExecutionCtxGetId(made.context, &id));
  REQUIRE(device == 0 && id != 0, "context");
  return made;
}

// Waiting for a context is no wait for streams that are not its own: a copy to the host is held up there meanwhile.
void copy_outside(Green& inside, DeviceWords& data, const Words& expected) {
  hipStream_t outside;
  CHECK(hipStreamCreateWithFlags(&outside, hipStreamNonBlocking));
  DeviceWords flag(1);
  uint32_t* pinned;
  CHECK(hipHostMalloc(reinterpret_cast<void**>(&pinned), data.bytes(), hipHostMallocDefault));
  for (int i = 0; i < kCount; i++) pinned[i] = 0xdead0000u + unsigned(i);
  CHECK(hipMemset(flag, 0, flag.bytes()));
  CHECK(hipDeviceSynchronize());
  CHECK(hipStreamWaitValue32(outside, flag, 1, hipStreamWaitValueEq, 0xffffffffu));
  CHECK(hipMemcpyAsync(pinned, data, data.bytes(), hipMemcpyDeviceToHost, outside));
  CHECK(hipExecutionCtxSynchronize(inside.context));
  CHECK(hipStreamWriteValue32(inside.streams[0], flag, 1, 0));
  CHECK(hipStreamSynchronize(outside));
  REQUIRE_EQUAL(Words(pinned, pinned + kCount), expected, "copied outside");
  CHECK(hipHostFree(pinned));
  CHECK(hipStreamDestroy(outside));
}

}  // namespace

int main() {
  hip7::DevResource whole, shares[2], split[2], rest;
  const hipError_t offered = hipDeviceGetDevResource(0, &whole, kUnits);
  if (offered == hipErrorNotSupported) {
    std::printf("execution_contexts: skipped, the runtime has none\n");
    return 77;
  }
  CHECK(offered);
  unsigned groups = 2;
  CHECK(hipDevSmResourceSplitByCount(shares, &groups, &whole, &rest, 0, 8));
  REQUIRE(groups == 2 && shares[0].units >= 8, "%u groups", groups);
  hip7::DevResourceGroup wishes[2] = {};
  wishes[0].units = 4, wishes[1].units = 2;
  CHECK(hipDevSmResourceSplit(split, 2, &shares[1], &rest, 0, wishes));
  Green first = green(&shares[0]), second = green(&split[0]);

  DeviceWords data(kCount), other(kCount), scratch(64), scratch2(64);
  hipEvent_t event;
  CHECK(hipEventCreateWithFlags(&event, hipEventDisableTiming));
  Words expected = pattern(kCount, 1), expected_other = pattern(kCount, 2);
  upload(data, expected);
  upload(other, expected_other);
  CHECK(hipMemset(scratch, 1, 256));
  CHECK(hipMemset(scratch2, 1, 256));
  CHECK(hipDeviceSynchronize());
  for (uint32_t round = 0; round < 3; round++) {
    // Slow work on both of a context's streams; then the other context's, which must come after both.
    Green &from = round % 2 ? second : first, &to = round % 2 ? first : second;
    LAUNCH(busy, 1, 64, 0, from.streams[0], scratch, kSpin, 64);
    LAUNCH(mix, blocks_for(kCount), kThreads, 0, from.streams[0], data, 2 * round + 3, round, kCount);
    LAUNCH(busy, 1, 64, 0, from.streams[1], scratch2, kSpin, 64);
    LAUNCH(mix, blocks_for(kCount), kThreads, 0, from.streams[1], other, 2 * round + 5, round, kCount);
    CHECK(hipExecutionCtxRecordEvent(from.context, event));
    CHECK(hipExecutionCtxWaitEvent(to.context, event));
    LAUNCH(mix, blocks_for(kCount), kThreads, 0, to.streams[0], data, 2 * round + 7, round + 1, kCount);
    LAUNCH(mix, blocks_for(kCount), kThreads, 0, to.streams[1], other, 2 * round + 9, round + 1, kCount);
    CHECK(hipExecutionCtxSynchronize(to.context));
    host_mix(expected, 2 * round + 3, round);
    host_mix(expected, 2 * round + 7, round + 1);
    host_mix(expected_other, 2 * round + 5, round);
    host_mix(expected_other, 2 * round + 9, round + 1);
  }
  EXPECT_WORDS(data, expected);
  EXPECT_WORDS(other, expected_other);
  // The device's own context: all its streams, those of green ones too.
  void* own = nullptr;
  CHECK(hipDeviceGetExecutionCtx(&own, 0));
  LAUNCH(mix, blocks_for(kCount), kThreads, 0, first.streams[0], data, 11, 12, kCount);
  CHECK(hipExecutionCtxSynchronize(own));
  host_mix(expected, 11, 12);
  EXPECT_WORDS(data, expected);
  copy_outside(first, data, expected);
  for (Green* context : {&first, &second}) {
    for (hipStream_t stream : context->streams) CHECK(hipStreamDestroy(stream));
    CHECK(hipExecutionCtxDestroy(context->context));
  }
  CHECK(hipEventDestroy(event));
  std::printf("execution_contexts: ok, %u compute units\n", whole.units);
}
