// Graphs whose copies have host memory with gaps between its rows, or as much of it as another graph and more: explicit and
// captured, pageable and pinned, changed by the host between launches; what lies in the gaps stays the host's.
// usage: graph_rows [rounds]
#include "sweep.hpp"

namespace {

constexpr int kWidth = 12, kRows = 7, kSlices = 3;  // words, rows and slices of a copy
constexpr int kCount = kWidth * kRows * kSlices;
constexpr size_t kRowBytes = kWidth * 4;
uint32_t salt = 1;

// Host memory in which a copy's rows lie apart: words between rows, rows between slices, and where the first one begins.
struct Rows {
  Rows(bool pinned, int pitch, int height, int x, int y) : pitch(pitch), height(height), x(x), y(y) {
    const size_t words = size_t(pitch) * height * kSlices;
    if (pinned)
      CHECK(hipHostMalloc(reinterpret_cast<void**>(&data), words * 4, 0));
    else
      data = new uint32_t[words];
    all.assign(words, 0);
    this->pinned = pinned;
    refill();
  }
  ~Rows() {
    if (pinned)
      CHECK(hipHostFree(data));
    else
      delete[] data;
  }
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;
  void refill() {
    all = pattern(all.size(), salt++);
    std::copy(all.begin(), all.end(), data);
  }
  size_t at(int i) const {
    const int slice = i / (kWidth * kRows), row = i / kWidth % kRows, column = i % kWidth;
    return (size_t(slice) * height + row + y) * pitch + column + x;
  }
  Words rows() const {
    Words words(kCount);
    for (int i = 0; i < kCount; i++) words[i] = all[at(i)];
    return words;
  }
  // The rows now hold this, and everything between them what it did.
  void expect(const Words& words, int line) {
    for (int i = 0; i < kCount; i++) all[at(i)] = words[i];
    require_equal(data, all.data(), all.size(), "host memory with gaps", line, __FILE__);
  }
  hipPitchedPtr pointer() const { return make_hipPitchedPtr(data, pitch * 4, kRowBytes, height); }
  hipPos position() const { return make_hipPos(x * 4, y, 0); }
  uint32_t* data = nullptr;
  Words all;
  int pitch, height, x, y;
  bool pinned;
};

struct Mix {
  Mix(uint32_t* pointer, uint32_t factor, uint32_t addend) : pointer(pointer), factor(factor), addend(addend) {
    params.func = reinterpret_cast<void*>(mix);
    params.gridDim = dim3(blocks_for(kCount)), params.blockDim = dim3(kThreads);
    params.kernelParams = list;
  }
  uint32_t* pointer;
  uint32_t factor, addend;
  int count = kCount;
  void* list[4] = {&pointer, &factor, &addend, &count};
  hipKernelNodeParams params = {};
};

hipPitchedPtr packed(uint32_t* device) { return make_hipPitchedPtr(device, kRowBytes, kRowBytes, kRows); }

void launch(hipGraphExec_t exec, hipStream_t stream, Rows& in, Rows& out, uint32_t factor, uint32_t addend, int rounds) {
  for (int r = 0; r < rounds; r++) {
    in.refill();
    Words expected = in.rows();
    host_mix(expected, factor, addend);
    CHECK(hipGraphLaunch(exec, stream));
    CHECK(hipStreamSynchronize(stream));
    out.expect(expected, __LINE__);
    // The host stores into the gaps, and over what came.
    out.refill();
  }
}

void explicit_nodes(hipStream_t stream, bool pinned, int rounds) {
  DeviceWords device(kCount);
  Rows in(pinned, 16, 9, 3, 1), out(pinned, 20, 7, 0, 0);
  Mix kernel(device, 3, 5);
  hipGraph_t graph;
  CHECK(hipGraphCreate(&graph, 0));
  hipMemcpy3DParms up = {}, down = {};
  up.srcPtr = in.pointer(), up.srcPos = in.position(), up.dstPtr = packed(device);
  up.extent = make_hipExtent(kRowBytes, kRows, kSlices), up.kind = hipMemcpyHostToDevice;
  down.srcPtr = packed(device), down.dstPtr = out.pointer(), down.dstPos = out.position();
  down.extent = up.extent, down.kind = hipMemcpyDeviceToHost;
  hipGraphNode_t first, middle, last;
  CHECK(hipGraphAddMemcpyNode(&first, graph, nullptr, 0, &up));
  CHECK(hipGraphAddKernelNode(&middle, graph, &first, 1, &kernel.params));
  CHECK(hipGraphAddMemcpyNode(&last, graph, &middle, 1, &down));
  hipGraphExec_t exec;
  CHECK(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
  launch(exec, stream, in, out, 3, 5, rounds);
  // Other memory with other gaps, in the executable graph alone.
  Rows other(pinned, 31, 8, 1, 0);
  up.srcPtr = other.pointer(), up.srcPos = other.position();
  CHECK(hipGraphExecMemcpyNodeSetParams(exec, first, &up));
  launch(exec, stream, other, out, 3, 5, rounds);
  CHECK(hipGraphExecDestroy(exec));
  CHECK(hipGraphDestroy(graph));
}

void captured(hipStream_t stream, bool pinned, int rounds) {
  DeviceWords device(kCount);
  Rows in(pinned, 14, kRows, 0, 0), out(pinned, 13, kRows, 0, 0);
  hipGraph_t graph;
  CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal));
  CHECK(hipMemcpy2DAsync(device, kRowBytes, in.data, 14 * 4, kRowBytes, kRows * kSlices, hipMemcpyHostToDevice, stream));
  LAUNCH(mix, blocks_for(kCount), kThreads, 0, stream, device, 7, 9, kCount);
  CHECK(hipMemcpy2DAsync(out.data, 13 * 4, device, kRowBytes, kRowBytes, kRows * kSlices, hipMemcpyDeviceToHost, stream));
  CHECK(hipStreamEndCapture(stream, &graph));
  hipGraphExec_t exec;
  CHECK(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
  launch(exec, stream, in, out, 7, 9, rounds);
  CHECK(hipGraphExecDestroy(exec));
  CHECK(hipGraphDestroy(graph));
}

// Two graphs that read the same pageable memory, one of them more of it; the longer one was made last.
void same_memory(hipStream_t stream, int rounds) {
  DeviceWords device(2 * kCount);
  Words host(2 * kCount), back(2 * kCount);
  hipGraph_t graphs[2];
  hipGraphExec_t execs[2];
  for (int g = 0; g < 2; g++) {
    const size_t bytes = size_t(kCount) * (g + 1) * 4;
    CHECK(hipGraphCreate(&graphs[g], 0));
    hipGraphNode_t up, down;
    CHECK(hipGraphAddMemcpyNode1D(&up, graphs[g], nullptr, 0, device, host.data(), bytes, hipMemcpyHostToDevice));
    CHECK(hipGraphAddMemcpyNode1D(&down, graphs[g], &up, 1, back.data(), device, bytes, hipMemcpyDeviceToHost));
    CHECK(hipGraphInstantiate(&execs[g], graphs[g], nullptr, nullptr, 0));
  }
  for (int r = 0; r < 2 * rounds; r++) {
    const int g = r % 2;
    const Words values = pattern(host.size(), salt++);
    std::copy(values.begin(), values.end(), host.begin());
    CHECK(hipGraphLaunch(execs[g], stream));
    CHECK(hipStreamSynchronize(stream));
    require_equal(back.data(), host.data(), size_t(kCount) * (g + 1), "what came back", __LINE__, __FILE__);
  }
  for (int g = 0; g < 2; g++) {
    CHECK(hipGraphExecDestroy(execs[g]));
    CHECK(hipGraphDestroy(graphs[g]));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argument(argc, argv, 1, 3);
  hipStream_t stream;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  for (bool pinned : {false, true}) {
    explicit_nodes(stream, pinned, rounds);
    captured(stream, pinned, rounds);
  }
  same_memory(stream, rounds);
  CHECK(hipStreamDestroy(stream));
  std::printf("graph_rows: ok, %u patterns\n", salt);
}
