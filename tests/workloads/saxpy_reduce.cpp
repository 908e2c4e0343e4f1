// One thread, the null stream: saxpy, then sums by block; float results are exact in the values used.
// usage: saxpy_reduce [elements] [repetitions]
#include "workload.hpp"

int main(int argc, char** argv) {
  const int n = argument(argc, argv, 1, 8192), repetitions = argument(argc, argv, 2, 8);
  std::vector<float> x(n), y(n), expected(n);
  for (int i = 0; i < n; i++) x[i] = float(i % 97), y[i] = expected[i] = float(i % 31);

  float *device_x, *device_y;
  CHECK(hipMalloc(&device_x, n * sizeof(float)));
  CHECK(hipMalloc(&device_y, n * sizeof(float)));
  CHECK(hipMemcpy(device_x, x.data(), n * sizeof(float), hipMemcpyHostToDevice));
  CHECK(hipMemcpy(device_y, y.data(), n * sizeof(float), hipMemcpyHostToDevice));
  for (int r = 0; r < repetitions; r++) {
    const float a = float(r + 1) * 0.5f;
    LAUNCH(saxpy, blocks_for(n), kThreads, 0, nullptr, a, device_x, device_y, n);
    for (int i = 0; i < n; i++) expected[i] = a * x[i] + expected[i];
  }
  CHECK(hipMemcpy(y.data(), device_y, n * sizeof(float), hipMemcpyDeviceToHost));
  for (int i = 0; i < n; i++) REQUIRE(y[i] == expected[i], "y[%d] is %g, should be %g", i, y[i], expected[i]);

  const unsigned blocks = blocks_for(n);
  DeviceWords data(n), sums(blocks);
  LAUNCH(iota, blocks, kThreads, 0, nullptr, data, 5, n);
  LAUNCH(block_sum, blocks, kThreads, kThreads * sizeof(uint32_t), nullptr, data, sums, n);
  Words host_sums(blocks), expected_sums(blocks);
  for (int i = 0; i < n; i++) expected_sums[i / kThreads] += 5 + i;
  CHECK(hipMemcpy(host_sums.data(), sums, sums.bytes(), hipMemcpyDeviceToHost));
  REQUIRE_EQUAL(host_sums, expected_sums, "block sums");

  CHECK(hipFree(device_x));
  CHECK(hipFree(device_y));
  std::printf("saxpy_reduce: ok, %d elements, %d repetitions\n", n, repetitions);
}
