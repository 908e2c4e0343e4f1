// Threads choose a device each with hipSetDevice and launch on its null stream and on streams of their own; one thread
// changes device between calls. Each device has its own copy of the module's variables, so a launch that lands on the
// other device gives other data. Needs two devices (minihip: MINIHIP_DEVICES=2); exits 77 with fewer.
// usage: two_devices [elements] [rounds]
#include "workload.hpp"

namespace {

constexpr int kDevices = 2, kWorkers = 4;  // workers 0..3 on device 0, 1, 0, 1; one more thread changes device

// Makes device `d` current and leaves a value there that only this device has.
void set_up_device(int d) {
  const uint32_t counter = 100 * (d + 1), table[4] = {1, 2u + d, 30u + d, 400u + d};
  CHECK(hipSetDevice(d));
  CHECK(hipMemcpyToSymbol(HIP_SYMBOL(launch_counter), &counter, sizeof counter));
  CHECK(hipMemcpyToSymbol(HIP_SYMBOL(step_table), table, sizeof table));
}

// What the devices' variables must be, advanced in the order of the turns.
uint32_t expected_counter[kDevices] = {100, 200};

// Uses the current device, which the caller knows to be `d`, through the null stream only.
void use_null_stream(int d, uint32_t* out, uint32_t step) {
  Words got(8), expected(8);
  const uint32_t table[4] = {1, 2u + d, 30u + d, 400u + d};
  LAUNCH(use_counter, 1, 8, 0, nullptr, out, step, 8);
  CHECK(hipMemcpy(got.data(), out, 8 * sizeof(uint32_t), hipMemcpyDeviceToHost));
  for (int i = 0; i < 8; i++) expected[i] = expected_counter[d] * 1000000u + table[i % 4];
  expected_counter[d] += step;
  REQUIRE_EQUAL(got, expected, "variables of the current device");
}

void require_on_device(const void* pointer, int d) {
  hipPointerAttribute_t attributes;
  CHECK(hipPointerGetAttributes(&attributes, pointer));
  REQUIRE(attributes.device == d, "allocation is on device %d, should be on %d", attributes.device, d);
}

}  // namespace

int main(int argc, char** argv) {
  const int n = argument(argc, argv, 1, 1024), rounds = argument(argc, argv, 2, 8);
  const unsigned blocks = blocks_for(n);
  int devices = 0;
  CHECK(hipGetDeviceCount(&devices));
  if (devices < kDevices) {
    std::printf("two_devices: skipped, %d device(s), needs %d\n", devices, kDevices);
    return 77;
  }
  for (int d = 0; d < kDevices; d++) set_up_device(d);

  Turns turns;
  run_threads(kWorkers + 1, [&](int t) {
    if (t < kWorkers) {
      const int d = t % kDevices;
      int current = -1;
      CHECK(hipGetDevice(&current));
      REQUIRE(current == 0, "a new thread starts on device %d", current);
      CHECK(hipSetDevice(d));
      hipStream_t own;
      CHECK(hipStreamCreateWithFlags(&own, hipStreamNonBlocking));
      DeviceWords data(n), out(8);
      require_on_device(data, d);
      Words got(n), expected(n);
      for (int r = 0; r < rounds; r++) {
        host_iota(expected, addend_of(r, t));
        CHECK(hipMemcpyAsync(data, expected.data(), data.bytes(), hipMemcpyHostToDevice, own));
        LAUNCH(mix, blocks, kThreads, 0, own, data, factor_of(t, r), uint32_t(d), n);
        CHECK(hipMemcpyAsync(got.data(), data, data.bytes(), hipMemcpyDeviceToHost, own));
        CHECK(hipStreamSynchronize(own));
        host_mix(expected, factor_of(t, r), uint32_t(d));
        REQUIRE_EQUAL(got, expected, "own buffer");
        turns.take(r * (kWorkers + 1) + t, [&] { use_null_stream(d, out, uint32_t(1 + t)); });
        CHECK(hipGetDevice(&current));
        REQUIRE(current == d, "thread %d is on device %d, should be on %d", t, current, d);
      }
      CHECK(hipStreamDestroy(own));
    } else {
      uint32_t *out[kDevices], *data[kDevices];
      for (int d = 0; d < kDevices; d++) {
        CHECK(hipSetDevice(d));
        CHECK(hipMalloc(&out[d], 8 * sizeof(uint32_t)));
        CHECK(hipMalloc(&data[d], n * sizeof(uint32_t)));
        require_on_device(data[d], d);
        LAUNCH(iota, blocks, kThreads, 0, nullptr, data[d], uint32_t(d), n);
        CHECK(hipDeviceSynchronize());
      }
      for (int r = 0; r < rounds; r++) {
        turns.take(r * (kWorkers + 1) + t, [&] {
          for (int d = kDevices - 1; d >= 0; d--) {
            CHECK(hipSetDevice(d));
            use_null_stream(d, out[d], 10);
          }
        });
        // From the buffer of one device into that of the other.
        const int from = r % kDevices, to = 1 - from;
        CHECK(hipSetDevice(from));
        LAUNCH(mix, blocks, kThreads, 0, nullptr, data[from], factor_of(r, 1), addend_of(r, 2), n);
        CHECK(hipDeviceSynchronize());
        CHECK(hipMemcpyPeer(data[to], to, data[from], from, n * sizeof(uint32_t)));
        // A copy between devices may return before it is done.
        CHECK(hipDeviceSynchronize());
      }
      Words got(n), expected(n);
      host_iota(expected, 0);
      for (int r = 0; r < rounds; r++) host_mix(expected, factor_of(r, 1), addend_of(r, 2));
      for (int d = 0; d < kDevices; d++) {
        CHECK(hipSetDevice(d));
        CHECK(hipMemcpy(got.data(), data[d], n * sizeof(uint32_t), hipMemcpyDeviceToHost));
        REQUIRE_EQUAL(got, expected, "buffer copied between the devices");
        CHECK(hipFree(out[d]));
        CHECK(hipFree(data[d]));
      }
    }
  });
  std::printf("two_devices: ok, %d threads, %d rounds, %d elements\n", kWorkers + 1, rounds, n);
}
