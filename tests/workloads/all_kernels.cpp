// Launches each standard kernel once and checks its result: barriers, static and dynamic shared memory, atomics,
// arguments of mixed sizes, structs by value, variables of the module. Embeds a compressed bundle.
// usage: all_kernels [elements]
// embeds: standard.compressed
#include "workload.hpp"

static void check_vectors(int n) {
  std::vector<float> a(n), b(n), sum(n);
  for (int i = 0; i < n; i++) a[i] = float(i), b[i] = float(3 * i + 1);
  float* device[3];
  for (float*& pointer : device) CHECK(hipMalloc(&pointer, n * sizeof(float)));
  CHECK(hipMemcpy(device[0], a.data(), n * sizeof(float), hipMemcpyHostToDevice));
  CHECK(hipMemcpy(device[1], b.data(), n * sizeof(float), hipMemcpyHostToDevice));
  LAUNCH(vector_add, blocks_for(n), kThreads, 0, nullptr, device[0], device[1], device[2], n);
  LAUNCH(vector_scale, blocks_for(n), kThreads, 0, nullptr, device[2], 0.25f, n);
  CHECK(hipMemcpy(sum.data(), device[2], n * sizeof(float), hipMemcpyDeviceToHost));
  for (int i = 0; i < n; i++) REQUIRE(sum[i] == (a[i] + b[i]) * 0.25f, "vector_add: element %d is %g", i, sum[i]);
  for (float* pointer : device) CHECK(hipFree(pointer));
}

static void check_words(int n) {
  DeviceWords data(n), copy(n);
  Words got(n), expected(n), expected_copy(n, 9);
  LAUNCH(iota, blocks_for(n), kThreads, 0, nullptr, data, 11, n);
  LAUNCH(mix, blocks_for(n), kThreads, 0, nullptr, data, 7, 3, n);
  LAUNCH(fill, blocks_for(n), kThreads, 0, nullptr, copy, 9, n);
  LAUNCH(copy_offset, blocks_for(n / 2), kThreads, 0, nullptr, copy, data, size_t(n / 2), n / 2);
  host_iota(expected, 11);
  host_mix(expected, 7, 3);
  for (int i = 0; i < n / 2; i++) expected_copy[i] = expected[n / 2 + i];
  CHECK(hipMemcpy(got.data(), copy, copy.bytes(), hipMemcpyDeviceToHost));
  REQUIRE_EQUAL(got, expected_copy, "copy_offset");

  LAUNCH(mix_from, blocks_for(n), kThreads, 0, nullptr, data, copy, 5, n);
  LAUNCH(busy, blocks_for(n), kThreads, 0, nullptr, data, 10, n);
  host_mix_from(expected, expected_copy, 5);
  host_busy(expected, 10);
  CHECK(hipMemcpy(got.data(), data, data.bytes(), hipMemcpyDeviceToHost));
  REQUIRE_EQUAL(got, expected, "mix_from and busy");
}

static void check_shared_memory() {
  const int rows = 37, columns = 53, n = rows * columns;
  DeviceWords data(n), transposed(n), bins(64);
  Words source(n), got(n), expected(n);
  for (int i = 0; i < n; i++) source[i] = uint32_t(i) * 2654435761u;
  CHECK(hipMemcpy(data, source.data(), data.bytes(), hipMemcpyHostToDevice));
  LAUNCH(transpose, dim3((columns + 15) / 16, (rows + 15) / 16), dim3(16, 16), 0, nullptr, transposed, data, rows,
         columns);
  for (int y = 0; y < rows; y++)
    for (int x = 0; x < columns; x++) expected[x * rows + y] = source[y * columns + x];
  CHECK(hipMemcpy(got.data(), transposed, transposed.bytes(), hipMemcpyDeviceToHost));
  REQUIRE_EQUAL(got, expected, "transpose");

  Words counts(64), expected_counts(64);
  CHECK(hipMemset(bins, 0, bins.bytes()));
  LAUNCH(histogram, 4, 64, 0, nullptr, data, bins, 50, n);
  for (uint32_t value : source) expected_counts[value % 50]++;
  CHECK(hipMemcpy(counts.data(), bins, bins.bytes(), hipMemcpyDeviceToHost));
  REQUIRE_EQUAL(counts, expected_counts, "histogram");

  LAUNCH(reverse_block, blocks_for(n, 64), 64, 64 * sizeof(uint32_t), nullptr, data, n);
  for (int base = 0; base < n; base += 64) {
    const int count = n - base < 64 ? n - base : 64;
    for (int t = 0; t < count; t++) expected[base + t] = source[base + count - 1 - t] + source[base];
  }
  CHECK(hipMemcpy(got.data(), data, data.bytes(), hipMemcpyDeviceToHost));
  REQUIRE_EQUAL(got, expected, "reverse_block");
}

static void check_arguments() {
  const int n = 100;
  DeviceWords in(n);
  double *out, got[100];
  CHECK(hipMalloc(&out, sizeof got));
  LAUNCH(iota, 1, kThreads, 0, nullptr, in, 1000, n);
  LAUNCH(eight_arguments, 1, n, 0, nullptr, char(-3), short(-300), 1.5f, char(5), 2.25, int64_t(1) << 40, in, out);
  CHECK(hipMemcpy(got, out, sizeof got, hipMemcpyDeviceToHost));
  for (int i = 0; i < n; i++) {
    const double expected = -3 - 600.0 + 6.0 + 40.0 + 36.0 + double(int64_t(1) << 40) * 32.0 + (1000 + i);
    REQUIRE(got[i] == expected, "eight_arguments: element %d is %f, should be %f", i, got[i], expected);
  }
  CHECK(hipFree(out));
}

static void check_variables() {
  DeviceWords out(8);
  Words got(8), expected(8);
  const uint32_t table[4] = {1, 20, 300, 4000};
  uint32_t counter = 0;
  CHECK(hipMemcpyFromSymbol(&counter, HIP_SYMBOL(launch_counter), sizeof counter));
  REQUIRE(counter == 7, "launch_counter starts at %u, should be 7", counter);
  CHECK(hipMemcpyToSymbol(HIP_SYMBOL(step_table), table, sizeof table));
  LAUNCH(use_counter, 1, 8, 0, nullptr, out, 35, 8);
  LAUNCH(use_counter, 1, 8, 0, nullptr, out, 1, 8);
  CHECK(hipMemcpy(got.data(), out, out.bytes(), hipMemcpyDeviceToHost));
  for (int i = 0; i < 8; i++) expected[i] = 42 * 1000000u + table[i % 4];
  REQUIRE_EQUAL(got, expected, "use_counter");
  CHECK(hipMemcpyFromSymbol(&counter, HIP_SYMBOL(launch_counter), sizeof counter));
  REQUIRE(counter == 43, "launch_counter is %u, should be 43", counter);
}

int main(int argc, char** argv) {
  const int n = argument(argc, argv, 1, 1000);
  check_vectors(n);
  check_words(n);
  check_shared_memory();
  check_arguments();
  check_variables();
  std::printf("all_kernels: ok, %d elements\n", n);
}
