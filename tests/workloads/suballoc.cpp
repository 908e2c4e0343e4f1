// One allocation cut into many by the program: interior and one-past-the-end pointers as kernel arguments, inside a
// struct by value and in a packed argument buffer; memory from the stream-ordered pool; and handles and addresses that
// come back for something else after they were freed.
// usage: suballoc [elements per piece] [rounds]
#include <cstring>

#include "workload.hpp"

namespace {

// Hands out pieces of one device allocation, each aligned to 256 bytes as allocators in frameworks do.
class Arena {
 public:
  explicit Arena(size_t bytes) : capacity_(bytes) { CHECK(hipMalloc(&base_, bytes)); }
  ~Arena() { CHECK(hipFree(base_)); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  uint32_t* words(size_t count) {
    uint32_t* piece = reinterpret_cast<uint32_t*>(base_ + used_);
    used_ += (count * sizeof(uint32_t) + 255) / 256 * 256;
    REQUIRE(used_ <= capacity_, "arena is full");
    return piece;
  }
  // The last `count` words: their end is the end of the allocation.
  uint32_t* last_words(size_t count) { return reinterpret_cast<uint32_t*>(base_ + capacity_) - count; }

 private:
  char* base_ = nullptr;
  size_t capacity_, used_ = 0;
};

uint32_t host_fold(const uint32_t* begin, const uint32_t* end) {
  uint32_t fold = 2166136261u;
  for (const uint32_t* p = begin; p != end; p++) fold = (fold ^ *p) * 16777619u;
  return fold;
}

void use_arena(hipFunction_t packed_mix_from, int n) {
  const unsigned blocks = blocks_for(n);
  Arena arena((6 * size_t(n) + 1024) * sizeof(uint32_t));
  uint32_t *first = arena.words(n), *second = arena.words(n), *bias = arena.words(16), *result = arena.words(2);
  uint32_t* last = arena.last_words(n);
  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));

  Words a(n), b(n), c(n), host_bias(16), got(n);
  host_iota(a, 10), host_iota(b, 20000), host_iota(c, 300), host_iota(host_bias, 7);
  CHECK(hipMemcpyAsync(first, a.data(), n * sizeof(uint32_t), hipMemcpyHostToDevice, stream));
  CHECK(hipMemcpyAsync(second, b.data(), n * sizeof(uint32_t), hipMemcpyHostToDevice, stream));
  CHECK(hipMemcpyAsync(last, c.data(), n * sizeof(uint32_t), hipMemcpyHostToDevice, stream));
  CHECK(hipMemcpyAsync(bias, host_bias.data(), 16 * sizeof(uint32_t), hipMemcpyHostToDevice, stream));

  // The middle of one piece into the middle of another.
  LAUNCH(mix_from, blocks, kThreads, 0, stream, first + n / 4, second + n / 8, 3, n / 2);
  for (int i = 0; i < n / 2; i++) a[n / 4 + i] = a[n / 4 + i] * 3 + b[n / 8 + i];

  // A struct by value with two interior pointers, and the same with a null pointer.
  matrix_view view = {};
  view.rows = uint32_t(n / 32), view.columns = 16, view.pitch = 32, view.factor = 5, view.data = second + 8;
  view.bias = bias;
  LAUNCH(apply_view, blocks_for(n / 2), kThreads, 0, stream, view, 1);
  view.bias = nullptr, view.data = last, view.rows = 1;
  LAUNCH(apply_view, 1, kThreads, 0, stream, view, 2);
  for (int y = 0; y < n / 32; y++)
    for (int x = 0; x < 16; x++) {
      // The last row of the view ends before the piece does.
      uint32_t& value = b[8 + y * 32 + x];
      value = value * 5 + 1 + host_bias[x];
    }
  for (int x = 0; x < 16; x++) c[x] = c[x] * 5 + 2;

  // One past the end of a piece (where the next one starts) and of the whole allocation.
  LAUNCH(fold_range, 1, 1, 0, stream, first, first + n, result);
  LAUNCH(fold_range, 1, 1, 0, stream, last, last + n, result + 1);

  // A packed argument buffer.
  struct {
    uint32_t* target;
    const uint32_t* source;
    uint32_t factor;
    int n;
  } packed = {last, first + n / 2, 11, n / 2};
  size_t packed_bytes = sizeof packed;
  void* extra[] = {HIP_LAUNCH_PARAM_BUFFER_POINTER, &packed, HIP_LAUNCH_PARAM_BUFFER_SIZE, &packed_bytes,
                   HIP_LAUNCH_PARAM_END};
  CHECK(hipModuleLaunchKernel(packed_mix_from, blocks, 1, 1, kThreads, 1, 1, 0, stream, nullptr, extra));

  Words folds(2), expected_folds = {host_fold(&a[0], &a[0] + n), host_fold(&c[0], &c[0] + n)};
  for (int i = 0; i < n / 2; i++) c[i] = c[i] * 11 + a[n / 2 + i];
  CHECK(hipMemcpyAsync(folds.data(), result, 2 * sizeof(uint32_t), hipMemcpyDeviceToHost, stream));
  CHECK(hipStreamSynchronize(stream));
  REQUIRE_EQUAL(folds, expected_folds, "folds up to one past the end");
  CHECK(hipMemcpy(got.data(), first, n * sizeof(uint32_t), hipMemcpyDeviceToHost));
  REQUIRE_EQUAL(got, a, "first piece");
  CHECK(hipMemcpy(got.data(), second, n * sizeof(uint32_t), hipMemcpyDeviceToHost));
  REQUIRE_EQUAL(got, b, "second piece");
  CHECK(hipMemcpy(got.data(), last, n * sizeof(uint32_t), hipMemcpyDeviceToHost));
  REQUIRE_EQUAL(got, c, "last piece");
  CHECK(hipStreamDestroy(stream));
}

// Buffers change places from round to round, streams and events are new ones with, most likely, the old values.
void reuse_handles(int n, int rounds) {
  const unsigned blocks = blocks_for(n);
  for (int r = 0; r < rounds; r++) {
    hipStream_t stream, side;
    hipEvent_t event;
    uint32_t *x, *y;
    // One kind of stream in even rounds, the other in odd ones: the old stream would not do.
    CHECK(hipStreamCreateWithFlags(&stream, r % 2 ? hipStreamDefault : hipStreamNonBlocking));
    CHECK(hipStreamCreateWithFlags(&side, r % 2 ? hipStreamNonBlocking : hipStreamDefault));
    CHECK(hipEventCreateWithFlags(&event, r % 2 ? hipEventDefault : hipEventDisableTiming));
    CHECK(hipMalloc(r % 2 ? &x : &y, n * sizeof(uint32_t)));
    CHECK(hipMalloc(r % 2 ? &y : &x, (n + 64 * r) * sizeof(uint32_t)));
    LAUNCH(iota, blocks, kThreads, 0, stream, x, uint32_t(r), n);
    LAUNCH(fill, blocks, kThreads, 0, stream, y, uint32_t(1000 + r), n);
    CHECK(hipEventRecord(event, stream));
    CHECK(hipStreamWaitEvent(side, event, 0));
    LAUNCH(mix_from, blocks, kThreads, 0, side, x, y, factor_of(r, 1), n);
    Words got(n), expected(n), other(n, 1000 + r);
    CHECK(hipMemcpyAsync(got.data(), x, n * sizeof(uint32_t), hipMemcpyDeviceToHost, side));
    CHECK(hipStreamSynchronize(side));
    host_iota(expected, uint32_t(r));
    host_mix_from(expected, other, factor_of(r, 1));
    REQUIRE_EQUAL(got, expected, "round with reused handles");
    CHECK(hipFree(x));
    CHECK(hipFree(y));
    CHECK(hipEventDestroy(event));
    // In turn, so that each value comes back for the other part.
    CHECK(hipStreamDestroy(r % 2 ? side : stream));
    CHECK(hipStreamDestroy(r % 2 ? stream : side));
  }
}

void use_pool(int n, int rounds) {
  const unsigned blocks = blocks_for(n);
  hipStream_t stream;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  Words got(n), expected(n, 1), step(n);
  DeviceWords total(n);
  LAUNCH(fill, blocks, kThreads, 0, stream, total, 1, n);
  for (int r = 0; r < rounds; r++) {
    void* memory;
    CHECK(hipMallocAsync(&memory, 2 * n * sizeof(uint32_t), stream));
    uint32_t* piece = static_cast<uint32_t*>(memory) + n;
    LAUNCH(iota, blocks, kThreads, 0, stream, piece, addend_of(r, r), n);
    LAUNCH(mix_from, blocks, kThreads, 0, stream, total, piece, 7, n);
    CHECK(hipFreeAsync(memory, stream));
    host_iota(step, addend_of(r, r));
    host_mix_from(expected, step, 7);
  }
  CHECK(hipMemcpyAsync(got.data(), total, total.bytes(), hipMemcpyDeviceToHost, stream));
  CHECK(hipStreamSynchronize(stream));
  REQUIRE_EQUAL(got, expected, "total of pool allocations");
  CHECK(hipStreamDestroy(stream));
}

}  // namespace

int main(int argc, char** argv) {
  const int n = argument(argc, argv, 1, 1024), rounds = argument(argc, argv, 2, 20);
  REQUIRE(n % 32 == 0 && n > 0, "the elements per piece must be a multiple of 32");
  hipModule_t module;
  hipFunction_t function;
  CHECK(hipModuleLoad(&module, kernel_path(argv[0], "standard").c_str()));
  CHECK(hipModuleGetFunction(&function, module, "mix_from"));
  use_arena(function, n);
  CHECK(hipModuleUnload(module));
  reuse_handles(n, rounds);
  use_pool(n, rounds);
  std::printf("suballoc: ok, %d rounds, %d elements\n", rounds, n);
}
