// What serving a transformer looks like to the runtime: per thread a compute, a side and a copy stream, a captured graph
// launched for each layer, kernels of 1 to 20 time units launched one by one, input uploaded and output downloaded each
// step. Between steps the threads meet on the host, and each one's next input depends on what all of them got.
// usage: transformer [steps] [layers] [iterations of the shortest kernel] [threads] [elements]
// Prints the wall time between the first and the last call, set-up of the device left out.
#include <chrono>

#include "workload.hpp"

namespace {

struct Sizes {
  int steps, layers, unit, threads, elements;
};

// Iterations of each `busy` kernel of a layer, in units; the first two are the graph's.
constexpr uint32_t kAttention[] = {2, 8};
constexpr uint32_t kMlp[] = {1, 4, 20}, kSide = 10;

// One layer as the host computes it, for one element of x and y.
void host_layer(uint32_t& x, uint32_t& y, uint32_t unit, uint32_t layer) {
  const auto busy = [unit](uint32_t& value, uint32_t units) {
    for (uint32_t k = 0; k < units * unit; k++) value = (value ^ (value >> 15)) * 0x2c1b3c6du + k;
  };
  // The graph.
  busy(x, kAttention[0]);
  x = x * 5 + 3;
  y = y * 7 + x;
  busy(y, kAttention[1]);
  // One by one; the side stream's part touches y only.
  busy(y, kSide);
  busy(x, kMlp[0]);
  x = x * factor_of(layer, 1) + addend_of(layer, 2);
  busy(x, kMlp[1]);
  busy(x, kMlp[2]);
  x = x * factor_of(layer, 3) + y;
}
constexpr int kGraphKernels = 4, kLayerLaunches = 6;

uint32_t first_input(int thread, int element) { return addend_of(uint32_t(thread), uint32_t(element)); }

// A thread's next input: its own output and everybody's, element by element.
uint32_t next_input(uint32_t own, uint32_t sum, int step) { return own ^ (sum * factor_of(uint32_t(step), 9)); }

// Lets threads meet: the last to arrive releases all.
class Meeting {
 public:
  explicit Meeting(int count) : count_(count) {}
  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    const int round = round_;
    if (++arrived_ == count_) {
      arrived_ = 0;
      round_++;
      changed_.notify_all();
    } else {
      changed_.wait(lock, [&] { return round_ != round; });
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_, arrived_ = 0, round_ = 0;
};

uint32_t* pinned_words(int n) {
  void* memory = nullptr;
  CHECK(hipHostMalloc(&memory, n * sizeof(uint32_t), hipHostMallocDefault));
  return static_cast<uint32_t*>(memory);
}

hipGraphExec_t capture_attention(hipStream_t stream, uint32_t* x, uint32_t* y, const Sizes& sizes) {
  const unsigned blocks = blocks_for(sizes.elements);
  const int n = sizes.elements;
  hipGraph_t graph;
  hipGraphExec_t executable;
  CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal));
  LAUNCH(busy, blocks, kThreads, 0, stream, x, kAttention[0] * sizes.unit, n);
  LAUNCH(mix, blocks, kThreads, 0, stream, x, 5, 3, n);
  LAUNCH(mix_from, blocks, kThreads, 0, stream, y, x, 7, n);
  LAUNCH(busy, blocks, kThreads, 0, stream, y, kAttention[1] * sizes.unit, n);
  CHECK(hipStreamEndCapture(stream, &graph));
  CHECK(hipGraphInstantiate(&executable, graph, nullptr, nullptr, 0));
  CHECK(hipGraphDestroy(graph));
  return executable;
}

void run_thread(int t, const Sizes& sizes, Meeting& meeting, std::vector<uint32_t*>& outputs) {
  const int n = sizes.elements;
  const unsigned blocks = blocks_for(n);
  hipStream_t compute, side, copy;
  hipEvent_t uploaded, fork, join, computed;
  for (hipStream_t* stream : {&compute, &side, &copy}) CHECK(hipStreamCreateWithFlags(stream, hipStreamNonBlocking));
  for (hipEvent_t* event : {&uploaded, &fork, &join, &computed})
    CHECK(hipEventCreateWithFlags(event, hipEventDisableTiming));
  DeviceWords input(n), x(n), y(n);
  uint32_t* host_input = pinned_words(n);
  outputs[t] = pinned_words(n);
  CHECK(hipMemsetAsync(x, 0, x.bytes(), compute));
  CHECK(hipMemsetAsync(y, 0, y.bytes(), compute));
  const hipGraphExec_t attention = capture_attention(compute, x, y, sizes);
  for (int i = 0; i < n; i++) host_input[i] = first_input(t, i);

  for (int step = 0; step < sizes.steps; step++) {
    CHECK(hipMemcpyAsync(input, host_input, input.bytes(), hipMemcpyHostToDevice, copy));
    CHECK(hipEventRecord(uploaded, copy));
    CHECK(hipStreamWaitEvent(compute, uploaded, 0));
    LAUNCH(mix_from, blocks, kThreads, 0, compute, x, input, 3, n);
    for (int layer = 0; layer < sizes.layers; layer++) {
      CHECK(hipGraphLaunch(attention, compute));
      CHECK(hipEventRecord(fork, compute));
      CHECK(hipStreamWaitEvent(side, fork, 0));
      LAUNCH(busy, blocks, kThreads, 0, side, y, kSide * sizes.unit, n);
      CHECK(hipEventRecord(join, side));
      LAUNCH(busy, blocks, kThreads, 0, compute, x, kMlp[0] * sizes.unit, n);
      LAUNCH(mix, blocks, kThreads, 0, compute, x, factor_of(layer, 1), addend_of(layer, 2), n);
      LAUNCH(busy, blocks, kThreads, 0, compute, x, kMlp[1] * sizes.unit, n);
      LAUNCH(busy, blocks, kThreads, 0, compute, x, kMlp[2] * sizes.unit, n);
      CHECK(hipStreamWaitEvent(compute, join, 0));
      LAUNCH(mix_from, blocks, kThreads, 0, compute, x, y, factor_of(layer, 3), n);
    }
    CHECK(hipEventRecord(computed, compute));
    CHECK(hipStreamWaitEvent(copy, computed, 0));
    CHECK(hipMemcpyAsync(outputs[t], x, x.bytes(), hipMemcpyDeviceToHost, copy));
    CHECK(hipStreamSynchronize(copy));
    meeting.wait();
    for (int i = 0; i < n; i++) {
      uint32_t sum = 0;
      for (const uint32_t* output : outputs) sum += output[i];
      host_input[i] = next_input(outputs[t][i], sum, step);
    }
    // Nobody may start the next step, which writes its output, while others still read this one's.
    meeting.wait();
  }
  CHECK(hipGraphExecDestroy(attention));
  CHECK(hipHostFree(host_input));
  for (hipEvent_t event : {uploaded, fork, join, computed}) CHECK(hipEventDestroy(event));
  for (hipStream_t stream : {compute, side, copy}) CHECK(hipStreamDestroy(stream));
}

// The last outputs of element `i`, by thread: elements do not depend on each other.
Words host_model(const Sizes& sizes, int i) {
  Words input(sizes.threads), x(sizes.threads), y(sizes.threads);
  for (int t = 0; t < sizes.threads; t++) input[t] = first_input(t, i);
  for (int step = 0; step < sizes.steps; step++) {
    uint32_t sum = 0;
    for (int t = 0; t < sizes.threads; t++) {
      x[t] = x[t] * 3 + input[t];
      for (int layer = 0; layer < sizes.layers; layer++) host_layer(x[t], y[t], uint32_t(sizes.unit), uint32_t(layer));
      sum += x[t];
    }
    for (int t = 0; t < sizes.threads; t++) input[t] = next_input(x[t], sum, step);
  }
  return x;
}

}  // namespace

int main(int argc, char** argv) {
  const Sizes sizes = {argument(argc, argv, 1, 3), argument(argc, argv, 2, 4), argument(argc, argv, 3, 8),
                       argument(argc, argv, 4, 4), argument(argc, argv, 5, 256)};
  REQUIRE(sizes.steps > 0 && sizes.threads > 0 && sizes.elements > 0, "steps, threads and elements must be positive");
  CHECK(hipFree(nullptr));
  const auto begin = std::chrono::steady_clock::now();
  std::vector<uint32_t*> outputs(sizes.threads);
  Meeting meeting(sizes.threads);
  run_threads(sizes.threads, [&](int t) { run_thread(t, sizes, meeting, outputs); });
  const std::chrono::duration<double, std::milli> wall = std::chrono::steady_clock::now() - begin;

  for (int i : {0, 1, sizes.elements / 2, sizes.elements - 1}) {
    if (i >= sizes.elements) continue;
    const Words expected = host_model(sizes, i);
    for (int t = 0; t < sizes.threads; t++)
      REQUIRE(outputs[t][i] == expected[t], "thread %d, element %d is %u, should be %u", t, i, outputs[t][i], expected[t]);
  }
  for (uint32_t* output : outputs) CHECK(hipHostFree(output));
  const long launches = long(sizes.steps) * sizes.threads * (1 + long(sizes.layers) * (kGraphKernels + kLayerLaunches));
  std::printf("transformer: threads=%d steps=%d kernels=%ld wall_ms=%.1f\n", sizes.threads, sizes.steps, launches,
              wall.count());
  std::printf("transformer: ok, %d threads, %d steps\n", sizes.threads, sizes.steps);
}
