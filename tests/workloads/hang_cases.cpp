// Programs that hang, each for a reason of its own.
// usage: hang_cases CASE
//   wait_value    a stream waits for a value that nobody writes
//   event_cycle   two streams wait for each other: one for an event of the other, which waits for a value the first is to write
//   released      a stream waits for a value that another thread's stream writes: it ends, and hangs if the write is left out
#include "workload.hpp"

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "";
  const int n = 256;
  const unsigned blocks = blocks_for(n);
  hipStream_t first, second;
  CHECK(hipStreamCreateWithFlags(&first, hipStreamNonBlocking));
  CHECK(hipStreamCreateWithFlags(&second, hipStreamNonBlocking));
  hipEvent_t event;
  CHECK(hipEventCreateWithFlags(&event, hipEventDisableTiming));
  DeviceWords data(n), flag(1);
  CHECK(hipMemset(flag, 0, flag.bytes()));
  CHECK(hipDeviceSynchronize());
  LAUNCH(iota, blocks, kThreads, 0, first, data, 1, n);
  if (name == "wait_value") {
    CHECK(hipStreamWaitValue32(first, flag, 7, hipStreamWaitValueEq, 0xffffffffu));
    LAUNCH(mix, blocks, kThreads, 0, first, data, 3, 1, n);
    std::printf("hang_cases: waiting\n");
    std::fflush(stdout);
    CHECK(hipStreamSynchronize(first));
  } else if (name == "event_cycle") {
    CHECK(hipStreamWaitValue32(first, flag, 7, hipStreamWaitValueEq, 0xffffffffu));
    CHECK(hipEventRecord(event, first));
    CHECK(hipStreamWaitEvent(second, event, 0));
    CHECK(hipStreamWriteValue32(second, flag, 7, 0));
    std::printf("hang_cases: waiting\n");
    std::fflush(stdout);
    CHECK(hipDeviceSynchronize());
  } else if (name == "released") {
    CHECK(hipStreamWaitValue32(first, flag, 7, hipStreamWaitValueEq, 0xffffffffu));
    LAUNCH(mix, blocks, kThreads, 0, first, data, 3, 1, n);
    std::thread other([&] { CHECK(hipStreamWriteValue32(second, flag, 7, 0)); });
    other.join();
    CHECK(hipStreamSynchronize(first));
    Words got(n), expected(n);
    host_iota(expected, 1);
    host_mix(expected, 3, 1);
    CHECK(hipMemcpy(got.data(), data, data.bytes(), hipMemcpyDeviceToHost));
    REQUIRE_EQUAL(got, expected, "released");
    std::printf("hang_cases: ok, %s\n", name.c_str());
    return 0;
  } else {
    fail(__FILE__, __LINE__, "no case '%s'", name.c_str());
  }
  fail(__FILE__, __LINE__, "what hangs for ever came to an end");
}
