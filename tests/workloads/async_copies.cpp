// Asynchronous copies from and to pinned, pageable and registered host memory, in one and two dimensions, between
// device buffers, and memsets; host memory is used again before and after synchronisation.
// usage: async_copies [elements] [rounds]
#include "workload.hpp"

namespace {

void copy_lines(hipStream_t stream, int n, int rounds) {
  const unsigned blocks = blocks_for(n);
  void* memory;
  CHECK(hipHostMalloc(&memory, 2 * n * sizeof(uint32_t), hipHostMallocDefault));
  uint32_t *pinned = static_cast<uint32_t*>(memory), *pinned_out = pinned + n;
  Words pageable(n), pageable_out(n), registered(n), expected(n), expected_b(n);
  CHECK(hipHostRegister(registered.data(), n * sizeof(uint32_t), hipHostRegisterDefault));
  DeviceWords a(n), b(n);
  const size_t bytes = a.bytes();
  for (int r = 0; r < rounds; r++) {
    // Pinned in; pageable in, whose memory belongs to the program again as soon as the call returns.
    for (int i = 0; i < n; i++) pinned[i] = expected[i] = addend_of(r, i);
    host_iota(pageable, factor_of(r, 3));
    expected_b = pageable;
    CHECK(hipMemcpyAsync(a, pinned, bytes, hipMemcpyHostToDevice, stream));
    CHECK(hipMemcpyAsync(b, pageable.data(), bytes, hipMemcpyHostToDevice, stream));
    pageable.assign(n, 0xdeadbeef);
    LAUNCH(mix_from, blocks, kThreads, 0, stream, a, b, 5, n);
    host_mix_from(expected, expected_b, 5);

    // Twice into the same host memory with no synchronisation between: only the second result can be seen.
    CHECK(hipMemcpyAsync(pinned_out, a, bytes, hipMemcpyDeviceToHost, stream));
    LAUNCH(mix, blocks, kThreads, 0, stream, a, 3, uint32_t(r), n);
    host_mix(expected, 3, uint32_t(r));
    CHECK(hipMemcpyAsync(pageable_out.data(), b, bytes, hipMemcpyDeviceToHost, stream));
    // Last, because a runtime may wait for the device in a pageable copy.
    CHECK(hipMemcpyAsync(pinned_out, a, bytes, hipMemcpyDeviceToHost, stream));
    CHECK(hipStreamSynchronize(stream));
    require_equal(pinned_out, expected.data(), n, "pinned result", __LINE__, __FILE__);
    REQUIRE_EQUAL(pageable_out, expected_b, "pageable result");

    // The results are overwritten on the host, and go back in from there.
    for (int i = 0; i < n; i++) pinned_out[i] ^= 0x5a5a5a5a;
    host_iota(registered, addend_of(r, 9));
    CHECK(hipMemcpyAsync(b, pinned_out, bytes, hipMemcpyHostToDevice, stream));
    CHECK(hipMemcpyDtoDAsync(reinterpret_cast<hipDeviceptr_t>(static_cast<uint32_t*>(a)),
                             reinterpret_cast<hipDeviceptr_t>(static_cast<uint32_t*>(b)), bytes, stream));
    CHECK(hipMemcpyAsync(b, registered.data(), bytes, hipMemcpyHostToDevice, stream));
    LAUNCH(mix_from, blocks, kThreads, 0, stream, a, b, 7, n);
    CHECK(hipMemcpyAsync(registered.data(), a, bytes, hipMemcpyDeviceToHost, stream));
    for (uint32_t& value : expected) value ^= 0x5a5a5a5a;
    host_iota(expected_b, addend_of(r, 9));
    host_mix_from(expected, expected_b, 7);
    CHECK(hipStreamSynchronize(stream));
    REQUIRE_EQUAL(registered, expected, "registered result");
  }
  CHECK(hipHostUnregister(registered.data()));
  CHECK(hipHostFree(memory));
}

void copy_planes(hipStream_t stream) {
  const size_t columns = 61, rows = 19, width = columns * sizeof(uint32_t), host_columns = 70;
  const size_t host_pitch = host_columns * sizeof(uint32_t);
  void *device, *other;
  size_t pitch, other_pitch = 64 * sizeof(uint32_t);
  CHECK(hipMallocPitch(&device, &pitch, width, rows));
  REQUIRE(pitch >= width && pitch % sizeof(uint32_t) == 0, "pitch is %zu for rows of %zu", pitch, width);
  CHECK(hipMalloc(&other, other_pitch * rows));
  Words source(host_columns * rows), got(host_columns * rows, 77), expected(host_columns * rows, 77);
  host_iota(source, 1000);

  // In, on the device, between pitches, and out; what lies between the rows on the host stays as it was.
  matrix_view view = {};
  view.rows = rows, view.columns = columns, view.pitch = uint32_t(pitch / sizeof(uint32_t)), view.factor = 3;
  view.data = static_cast<uint32_t*>(device);
  CHECK(hipMemcpy2DAsync(device, pitch, source.data(), host_pitch, width, rows, hipMemcpyHostToDevice, stream));
  LAUNCH(apply_view, blocks_for(int(columns * rows)), kThreads, 0, stream, view, 13);
  CHECK(hipMemcpy2DAsync(other, other_pitch, device, pitch, width, rows, hipMemcpyDeviceToDevice, stream));
  CHECK(hipMemset2DAsync(other, other_pitch, 0x22, 2 * sizeof(uint32_t), 3, stream));
  CHECK(hipMemcpy2DAsync(got.data(), host_pitch, other, other_pitch, width, rows, hipMemcpyDeviceToHost, stream));
  CHECK(hipStreamSynchronize(stream));
  for (size_t y = 0; y < rows; y++)
    for (size_t x = 0; x < columns; x++)
      expected[y * host_columns + x] = y < 3 && x < 2 ? 0x22222222 : source[y * host_columns + x] * 3 + 13;
  REQUIRE_EQUAL(got, expected, "plane");

  // The same, synchronously.
  got.assign(got.size(), 77);
  CHECK(hipMemcpy2D(got.data(), host_pitch, other, other_pitch, width, rows, hipMemcpyDeviceToHost));
  REQUIRE_EQUAL(got, expected, "plane, synchronous");
  CHECK(hipFree(device));
  CHECK(hipFree(other));
}

void set_memory(hipStream_t stream, int n) {
  DeviceWords data(n);
  uint32_t* words = data;
  Words got(n), expected(n, 0x0b0b0b0b);
  CHECK(hipMemsetAsync(data, 0x0b, data.bytes(), stream));
  CHECK(hipMemsetD32Async(reinterpret_cast<hipDeviceptr_t>(words + n / 4), 0x12345678, n / 2, stream));
  CHECK(hipMemsetD8Async(reinterpret_cast<hipDeviceptr_t>(words + n / 2), 0x77, 4, stream));
  for (int i = n / 4; i < n / 4 + n / 2; i++) expected[i] = 0x12345678;
  expected[n / 2] = 0x77777777;
  CHECK(hipMemcpyAsync(got.data(), data, data.bytes(), hipMemcpyDeviceToHost, stream));
  CHECK(hipStreamSynchronize(stream));
  REQUIRE_EQUAL(got, expected, "memset");
  CHECK(hipMemset(data, 0, data.bytes()));
  CHECK(hipMemcpyDtoH(got.data(), reinterpret_cast<hipDeviceptr_t>(words), data.bytes()));
  expected.assign(n, 0);
  REQUIRE_EQUAL(got, expected, "synchronous memset");
}

}  // namespace

int main(int argc, char** argv) {
  const int n = argument(argc, argv, 1, 4096), rounds = argument(argc, argv, 2, 8);
  hipStream_t stream;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  copy_lines(stream, n, rounds);
  copy_planes(stream);
  set_memory(stream, n);
  CHECK(hipStreamDestroy(stream));
  std::printf("async_copies: ok, %d rounds, %d elements\n", rounds, n);
}
