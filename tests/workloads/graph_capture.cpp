// A graph captured from two streams that fork and join, with copies from and to pinned host memory inside, launched
// several times while the host changes its input; and a graph built node by node.
// usage: graph_capture [elements] [launches]
#include "workload.hpp"

namespace {

uint32_t* pinned_words(int n) {
  void* memory = nullptr;
  CHECK(hipHostMalloc(&memory, n * sizeof(uint32_t), hipHostMallocDefault));
  return static_cast<uint32_t*>(memory);
}

void run_captured(int n, int launches) {
  const unsigned blocks = blocks_for(n);
  hipStream_t main_stream, side_stream;
  hipEvent_t fork, join;
  CHECK(hipStreamCreateWithFlags(&main_stream, hipStreamNonBlocking));
  CHECK(hipStreamCreateWithFlags(&side_stream, hipStreamNonBlocking));
  CHECK(hipEventCreateWithFlags(&fork, hipEventDisableTiming));
  CHECK(hipEventCreateWithFlags(&join, hipEventDisableTiming));
  uint32_t *input = pinned_words(n), *output = pinned_words(n);
  DeviceWords a(n), b(n);
  const size_t bytes = a.bytes();
  LAUNCH(fill, blocks, kThreads, 0, main_stream, b, 17, n);
  CHECK(hipStreamSynchronize(main_stream));

  hipStreamCaptureStatus status;
  CHECK(hipStreamBeginCapture(main_stream, hipStreamCaptureModeThreadLocal));
  CHECK(hipStreamIsCapturing(main_stream, &status));
  REQUIRE(status == hipStreamCaptureStatusActive, "stream is not capturing");
  CHECK(hipMemcpyAsync(a, input, bytes, hipMemcpyHostToDevice, main_stream));
  CHECK(hipEventRecord(fork, main_stream));
  CHECK(hipStreamWaitEvent(side_stream, fork, 0));
  LAUNCH(mix_from, blocks, kThreads, 0, side_stream, b, a, 5, n);
  CHECK(hipEventRecord(join, side_stream));
  CHECK(hipStreamWaitEvent(main_stream, join, 0));
  LAUNCH(mix, blocks, kThreads, 0, main_stream, a, 3, 11, n);
  LAUNCH(mix_from, blocks, kThreads, 0, main_stream, a, b, 7, n);
  CHECK(hipMemcpyAsync(output, a, bytes, hipMemcpyDeviceToHost, main_stream));
  hipGraph_t graph;
  CHECK(hipStreamEndCapture(main_stream, &graph));
  CHECK(hipStreamIsCapturing(main_stream, &status));
  REQUIRE(status == hipStreamCaptureStatusNone, "stream is still capturing");

  size_t nodes = 0;
  CHECK(hipGraphGetNodes(graph, nullptr, &nodes));
  REQUIRE(nodes == 5, "captured %zu nodes, should be 5", nodes);
  hipGraphExec_t executable;
  CHECK(hipGraphInstantiate(&executable, graph, nullptr, nullptr, 0));
  CHECK(hipGraphDestroy(graph));

  Words expected_a(n), expected_b(n, 17);
  for (int l = 0; l < launches; l++) {
    for (int i = 0; i < n; i++) input[i] = expected_a[i] = addend_of(l, i);
    // Any stream may launch it; the launches are far enough apart, each is waited for.
    hipStream_t stream = l % 2 ? side_stream : main_stream;
    CHECK(hipGraphLaunch(executable, stream));
    CHECK(hipStreamSynchronize(stream));
    host_mix_from(expected_b, expected_a, 5);
    host_mix(expected_a, 3, 11);
    host_mix_from(expected_a, expected_b, 7);
    require_equal(output, expected_a.data(), n, "captured graph's output", __LINE__, __FILE__);
  }
  // Two launches with no wait between them, then the device's side of the state.
  for (int l = 0; l < 2; l++) CHECK(hipGraphLaunch(executable, main_stream));
  Words got(n);
  CHECK(hipMemcpyAsync(got.data(), b, bytes, hipMemcpyDeviceToHost, main_stream));
  CHECK(hipStreamSynchronize(main_stream));
  for (int i = 0; i < n; i++) expected_a[i] = input[i];
  for (int l = 0; l < 2; l++) host_mix_from(expected_b, expected_a, 5);
  REQUIRE_EQUAL(got, expected_b, "buffer after two launches in a row");

  CHECK(hipGraphExecDestroy(executable));
  CHECK(hipHostFree(input));
  CHECK(hipHostFree(output));
  CHECK(hipEventDestroy(fork));
  CHECK(hipEventDestroy(join));
  CHECK(hipStreamDestroy(main_stream));
  CHECK(hipStreamDestroy(side_stream));
}

void run_explicit(int n, int launches) {
  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  uint32_t *input = pinned_words(n), *output = pinned_words(n);
  DeviceWords data(n), other(n);

  hipGraph_t graph;
  hipGraphNode_t upload, clear, scale, combine, download;
  CHECK(hipGraphCreate(&graph, 0));
  CHECK(hipGraphAddMemcpyNode1D(&upload, graph, nullptr, 0, data, input, data.bytes(), hipMemcpyHostToDevice));

  hipMemsetParams memset_params = {};
  memset_params.dst = other;
  memset_params.elementSize = 1;
  memset_params.value = 1;
  memset_params.width = other.bytes();
  memset_params.height = 1;
  CHECK(hipGraphAddMemsetNode(&clear, graph, nullptr, 0, &memset_params));

  uint32_t *data_pointer = data, *other_pointer = other;
  uint32_t factor = 9, addend = 4;
  int count = n;
  void* scale_arguments[] = {&data_pointer, &factor, &addend, &count};
  hipKernelNodeParams kernel = {};
  kernel.func = reinterpret_cast<void*>(mix);
  kernel.gridDim = dim3(blocks_for(n));
  kernel.blockDim = dim3(kThreads);
  kernel.kernelParams = scale_arguments;
  CHECK(hipGraphAddKernelNode(&scale, graph, &upload, 1, &kernel));

  void* combine_arguments[] = {&other_pointer, &data_pointer, &factor, &count};
  kernel.func = reinterpret_cast<void*>(mix_from);
  kernel.kernelParams = combine_arguments;
  const hipGraphNode_t both[] = {scale, clear};
  CHECK(hipGraphAddKernelNode(&combine, graph, both, 2, &kernel));
  CHECK(hipGraphAddMemcpyNode1D(&download, graph, nullptr, 0, output, other, other.bytes(), hipMemcpyDeviceToHost));
  CHECK(hipGraphAddDependencies(graph, &combine, &download, 1));

  hipGraphExec_t executable;
  CHECK(hipGraphInstantiate(&executable, graph, nullptr, nullptr, 0));
  Words expected(n), expected_other(n);
  for (int l = 0; l < launches; l++) {
    for (int i = 0; i < n; i++) input[i] = expected[i] = factor_of(i, l);
    expected_other.assign(n, 0x01010101);
    CHECK(hipGraphLaunch(executable, stream));
    CHECK(hipStreamSynchronize(stream));
    host_mix(expected, 9, 4);
    host_mix_from(expected_other, expected, 9);
    require_equal(output, expected_other.data(), n, "explicit graph's output", __LINE__, __FILE__);
  }
  CHECK(hipGraphExecDestroy(executable));
  CHECK(hipGraphDestroy(graph));
  CHECK(hipHostFree(input));
  CHECK(hipHostFree(output));
  CHECK(hipStreamDestroy(stream));
}

}  // namespace

int main(int argc, char** argv) {
  const int n = argument(argc, argv, 1, 1024), launches = argument(argc, argv, 2, 5);
  run_captured(n, launches);
  run_explicit(n, launches);
  std::printf("graph_capture: ok, %d launches, %d elements\n", launches, n);
}
