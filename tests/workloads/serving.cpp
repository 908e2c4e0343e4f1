// What a language-model server looks like to the runtime: weights uploaded in large pieces from pageable memory, then a
// thread per request stream that each step uploads a block table full of device pointers, launches its layers one by one,
// launches a graph whose kernel got new parameters, downloads a few tokens and waits for them. The blocks of all threads
// lie in one allocation, and a thread's next step depends on the tokens it got.
// usage: serving [threads] [steps] [layers] [MiB of weights] [MiB per piece]
#include <chrono>

#include "workload.hpp"

namespace {

constexpr int kElements = 256, kBlocks = 32, kBlockWords = 64, kTokens = 16;

struct Sizes {
  int threads, steps, layers;
  size_t piece_words, pieces;
  size_t weight_words() const { return piece_words * pieces; }
};

uint32_t weight(size_t index) { return uint32_t(index) * 2654435761u ^ uint32_t(index >> 12) * 40503u; }

// Where a thread's layer reads its weights.
size_t weights_of(int thread, int layer, const Sizes& sizes) {
  const size_t places = sizes.weight_words() / kElements;
  return (size_t(thread) * 7919 + size_t(layer) * 104729) % places * kElements;
}

// The weights, each piece an allocation of its own, as a checkpoint is loaded.
std::vector<uint32_t*> load_weights(const Sizes& sizes) {
  std::vector<uint32_t*> pieces(sizes.pieces);
  Words host(sizes.piece_words);
  const int fillers = int(std::thread::hardware_concurrency() ? std::thread::hardware_concurrency() : 1);
  for (size_t p = 0; p < sizes.pieces; p++) {
    run_threads(fillers, [&](int t) {
      const size_t begin = sizes.piece_words * t / fillers, end = sizes.piece_words * (t + 1) / fillers;
      for (size_t i = begin; i < end; i++) host[i] = weight(p * sizes.piece_words + i);
    });
    CHECK(hipMalloc(&pieces[p], sizes.piece_words * sizeof(uint32_t)));
    CHECK(hipMemcpy(pieces[p], host.data(), sizes.piece_words * sizeof(uint32_t), hipMemcpyHostToDevice));
  }
  return pieces;
}

// A pinned buffer, freed with the holder.
template <typename Value>
class Pinned {
 public:
  explicit Pinned(int count) { CHECK(hipHostMalloc(reinterpret_cast<void**>(&data_), count * sizeof(Value), 0)); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  ~Pinned() { CHECK(hipHostFree(data_)); }
  operator Value*() const { return data_; }

 private:
  Value* data_ = nullptr;
};

class Request {
 public:
  Request(int thread, const Sizes& sizes, const std::vector<uint32_t*>& weights, uint32_t* pool)
      : thread_(thread), sizes_(sizes), weights_(weights), blocks_(pool + size_t(thread) * kBlocks * kBlockWords),
        x_(kElements), sums_(kBlocks), table_(kBlocks), tokens_(2 * kTokens), host_x_(kElements, 0),
        host_blocks_(kBlocks * kBlockWords, 0) {
    CHECK(hipStreamCreateWithFlags(&stream_, hipStreamNonBlocking));
    CHECK(hipEventCreateWithFlags(&done_, hipEventDisableTiming));
    CHECK(hipMalloc(&device_table_, kBlocks * sizeof *device_table_));
    CHECK(hipMemsetAsync(x_, 0, x_.bytes(), stream_));
    CHECK(hipMemsetAsync(blocks_, 0, size_t(kBlocks) * kBlockWords * sizeof(uint32_t), stream_));
    hipGraph_t graph;
    CHECK(hipGraphCreate(&graph, 0));
    set_kernel(1, 0);
    CHECK(hipGraphAddKernelNode(&node_, graph, nullptr, 0, &kernel_));
    CHECK(hipGraphInstantiate(&exec_, graph, nullptr, nullptr, 0));
    graph_ = graph;
  }

  ~Request() {
    CHECK(hipGraphExecDestroy(exec_));
    CHECK(hipGraphDestroy(graph_));
    CHECK(hipFree(device_table_));
    CHECK(hipEventDestroy(done_));
    CHECK(hipStreamDestroy(stream_));
  }

  void step(int step) {
    // The table's order changes each step, as blocks are given out and taken back.
    const int rotation = int((step * 5 + last_token_) % kBlocks);
    for (int b = 0; b < kBlocks; b++) table_[b] = blocks_ + size_t((b + rotation) % kBlocks) * kBlockWords;
    CHECK(hipMemcpyAsync(device_table_, table_, kBlocks * sizeof *device_table_, hipMemcpyHostToDevice, stream_));
    for (int layer = 0; layer < sizes_.layers; layer++) {
      const size_t at = weights_of(thread_, layer, sizes_);
      const uint32_t* w = weights_[at / sizes_.piece_words] + at % sizes_.piece_words;
      LAUNCH(mix_from, blocks_for(kElements), kThreads, 0, stream_, x_, w, factor_of(layer, last_token_), kElements);
      LAUNCH(mix, blocks_for(kElements), kThreads, 0, stream_, x_, factor_of(step, layer), uint32_t(thread_), kElements);
      for (int i = 0; i < kElements; i++) {
        uint32_t& x = host_x_[i];
        x = x * factor_of(layer, last_token_) + weight(at + i);
        x = x * factor_of(step, layer) + uint32_t(thread_);
      }
    }
    set_kernel(factor_of(step, 77), last_token_);
    CHECK(hipGraphExecKernelNodeSetParams(exec_, node_, &kernel_));
    CHECK(hipGraphLaunch(exec_, stream_));
    host_mix(host_x_, factor_, addend_);
    // This step's block, and all blocks summed through the table.
    const int block = step % kBlocks;
    uint32_t* own = blocks_ + size_t(block) * kBlockWords;
    LAUNCH(mix_from, 1, kBlockWords, 0, stream_, own, x_, 3u, kBlockWords);
    for (int i = 0; i < kBlockWords; i++) host_blocks_[block * kBlockWords + i] = host_blocks_[block * kBlockWords + i] * 3u + host_x_[i];
    LAUNCH(sum_table, 1, kBlocks, 0, stream_, device_table_, sums_, kBlocks, kBlockWords);
    CHECK(hipMemcpyAsync(tokens_, x_, kTokens * sizeof(uint32_t), hipMemcpyDeviceToHost, stream_));
    CHECK(hipMemcpyAsync(tokens_ + kTokens, sums_, kTokens * sizeof(uint32_t), hipMemcpyDeviceToHost, stream_));
    CHECK(hipEventRecord(done_, stream_));
    CHECK(hipEventSynchronize(done_));
    for (int i = 0; i < kTokens; i++) {
      uint32_t sum = 0;
      for (int j = 0; j < kBlockWords; j++) sum += host_blocks_[(i + rotation) % kBlocks * kBlockWords + j];
      REQUIRE(tokens_[i] == host_x_[i] && tokens_[kTokens + i] == sum, "thread %d step %d: token %d is %u and %u, not %u and %u",
              thread_, step, i, tokens_[i], tokens_[kTokens + i], host_x_[i], sum);
    }
    last_token_ = tokens_[step % kTokens] % 1000;
  }

 private:
  void set_kernel(uint32_t factor, uint32_t addend) {
    data_ = x_;
    factor_ = factor;
    addend_ = addend;
    kernel_ = {};
    kernel_.func = reinterpret_cast<void*>(mix);
    kernel_.gridDim = dim3(blocks_for(kElements));
    kernel_.blockDim = dim3(kThreads);
    kernel_.kernelParams = arguments_;
  }

  const int thread_;
  const Sizes& sizes_;
  const std::vector<uint32_t*>& weights_;
  uint32_t* const blocks_;
  DeviceWords x_, sums_;
  Pinned<uint32_t*> table_;
  Pinned<uint32_t> tokens_;
  uint32_t** device_table_ = nullptr;
  hipStream_t stream_ = nullptr;
  hipEvent_t done_ = nullptr;
  hipGraph_t graph_ = nullptr;
  hipGraphNode_t node_ = nullptr;
  hipGraphExec_t exec_ = nullptr;
  hipKernelNodeParams kernel_ = {};
  uint32_t *data_ = nullptr, factor_ = 0, addend_ = 0, last_token_ = 1;
  int count_ = kElements;
  void* arguments_[4] = {&data_, &factor_, &addend_, &count_};
  Words host_x_, host_blocks_;
};

double since_ms(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

int main(int argc, char** argv) {
  Sizes sizes = {argument(argc, argv, 1, 4), argument(argc, argv, 2, 6), argument(argc, argv, 3, 5), 0, 0};
  const size_t mib = argument(argc, argv, 4, 4), piece_mib = argument(argc, argv, 5, 1);
  REQUIRE(sizes.threads > 0 && sizes.steps > 0 && sizes.layers > 0 && piece_mib > 0 && mib >= piece_mib,
          "threads, steps, layers and sizes must be positive, and a piece no larger than all");
  sizes.piece_words = (piece_mib << 20) / sizeof(uint32_t);
  sizes.pieces = mib / piece_mib;
  CHECK(hipSetDevice(0));
  CHECK(hipDeviceSynchronize());

  const auto begin = std::chrono::steady_clock::now();
  const std::vector<uint32_t*> weights = load_weights(sizes);
  const double load_ms = since_ms(begin);
  {
    DeviceWords pool(size_t(sizes.threads) * kBlocks * kBlockWords);
    const auto serve = std::chrono::steady_clock::now();
    run_threads(sizes.threads, [&](int t) {
      Request request(t, sizes, weights, pool);
      for (int step = 0; step < sizes.steps; step++) request.step(step);
    });
    const double serve_ms = since_ms(serve);
    const double launches = double(sizes.threads) * sizes.steps * (2.0 * sizes.layers + 3);
    std::printf("serving: load_ms=%.1f gb_per_s=%.2f serve_ms=%.1f launches=%.0f launches_per_s=%.0f\n", load_ms,
                double(sizes.weight_words()) * 4 / load_ms / 1e6, serve_ms, launches, launches / serve_ms * 1e3);
  }
  // The end of each piece as it is on the device.
  Words got(kElements), expected(kElements);
  for (size_t p = 0; p < sizes.pieces; p++) {
    const size_t at = sizes.piece_words - kElements;
    CHECK(hipMemcpy(got.data(), weights[p] + at, kElements * sizeof(uint32_t), hipMemcpyDeviceToHost));
    for (int i = 0; i < kElements; i++) expected[i] = weight(p * sizes.piece_words + at + i);
    REQUIRE_EQUAL(got, expected, "end of a piece of the weights");
    CHECK(hipFree(weights[p]));
  }
  std::printf("serving: ok, wall_ms=%.1f, %d threads, %d steps, %d layers, %zu MiB in %zu pieces\n", since_ms(begin),
              sizes.threads, sizes.steps, sizes.layers, mib, sizes.pieces);
}
