// Threads that choose their device by contexts: made, pushed, made current and taken away, beside threads that use
// hipSetDevice or nothing. Each device has its own copy of the module's variables, so a launch that lands on the other device
// gives other data. Runtimes differ in what making or taking away a context does to the device, so threads ask where they
// are. Needs two devices (minihip: MINIHIP_DEVICES=2); exits 77 with fewer.
// usage: contexts [rounds]
#include "workload.hpp"

// Calls about contexts are, and programs make them.
#pragma clang diagnostic ignored "-Wdeprecated-declarations"

namespace {

constexpr int kDevices = 2, kWorkers = 4;

// Makes device `d` current and leaves a value there that only this device has.
void set_up_device(int d) {
  const uint32_t counter = 100 * (d + 1), table[4] = {1, 2u + d, 30u + d, 400u + d};
  CHECK(hipSetDevice(d));
  CHECK(hipMemcpyToSymbol(HIP_SYMBOL(launch_counter), &counter, sizeof counter));
  CHECK(hipMemcpyToSymbol(HIP_SYMBOL(step_table), table, sizeof table));
}

// What the devices' variables must be, advanced in the order of the turns.
uint32_t expected_counter[kDevices] = {100, 200};

int current_device() {
  int device = -1;
  CHECK(hipGetDevice(&device));
  return device;
}

// Uses the current device, which the caller knows to be `d`.
void use(int d, uint32_t step) {
  uint32_t* out;
  CHECK(hipMalloc(&out, 8 * sizeof(uint32_t)));
  Words got(8), expected(8);
  const uint32_t table[4] = {1, 2u + d, 30u + d, 400u + d};
  LAUNCH(use_counter, 1, 8, 0, nullptr, out, step, 8);
  CHECK(hipMemcpy(got.data(), out, 8 * sizeof(uint32_t), hipMemcpyDeviceToHost));
  for (int i = 0; i < 8; i++) expected[i] = expected_counter[d] * 1000000u + table[i % 4];
  expected_counter[d] += step;
  REQUIRE_EQUAL(got, expected, "variables of the current device");
  CHECK(hipFree(out));
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argument(argc, argv, 1, 6);
  int devices = 0;
  CHECK(hipGetDeviceCount(&devices));
  if (devices < kDevices) {
    std::printf("contexts: skipped, %d device(s), needs %d\n", devices, kDevices);
    return 77;
  }
  for (int d = 0; d < kDevices; d++) set_up_device(d);

  // Turns of a round: each thread has several, between which the others have theirs.
  constexpr int kSteps = 3;
  Turns turns;
  run_threads(kWorkers, [&](int t) {
    hipCtx_t context = nullptr, popped = nullptr;
    const auto turn = [&](int r, int step, auto body) { turns.take((r * kSteps + step) * kWorkers + t, body); };
    const uint32_t step = 1 + t;
    if (t == 1) CHECK(hipDevicePrimaryCtxRetain(&context, 1));
    for (int r = 0; r < rounds; r++) {
      switch (t) {
        case 0:  // On the device that every thread starts on.
          for (int s = 0; s < kSteps; s++) turn(r, s, [&] { use(0, step); });
          break;
        case 1:
          turn(r, 0, [&] {
            CHECK(hipCtxPushCurrent(context));
            use(1, step);
          });
          turn(r, 1, [&] {
            use(1, step);
            CHECK(hipCtxPopCurrent(&popped));
            REQUIRE(popped == context, "another context was on top");
            REQUIRE(hipCtxPopCurrent(&popped) != hipSuccess, "a context was left");
            (void)hipGetLastError();
          });
          turn(r, 2, [&] { use(current_device(), step); });
          break;
        case 2:
          turn(r, 0, [&] {
            CHECK(hipCtxCreate(&context, 0, 1));
            use(current_device(), step);
          });
          turn(r, 1, [&] {
            CHECK(hipCtxSetCurrent(context));
            use(1, step);
            CHECK(hipCtxSetCurrent(nullptr));
          });
          turn(r, 2, [&] {
            use(current_device(), step);
            CHECK(hipCtxDestroy(context));
            CHECK(hipSetDevice(r % kDevices));
          });
          break;
        default:
          turn(r, 0, [&] { CHECK(hipSetDevice(1)); });
          turn(r, 1, [&] { use(1, step); });
          turn(r, 2, [&] { use(1, step); });
      }
    }
    if (t == 1) CHECK(hipDevicePrimaryCtxRelease(1));
  });
  std::printf("contexts: ok, %d threads, %d rounds\n", kWorkers, rounds);
}
