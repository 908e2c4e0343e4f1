// Calls about what graphics interfaces give out, where there is none: lists of nothing are carried out, and handles of nothing are
// refused, which the thread's last error then tells.
// usage: no_graphics
#include "sweep.hpp"

namespace {

// A call that has to be refused, and the error that it leaves.
#define REFUSED(call)                                                                          \
  do {                                                                                         \
    const hipError_t refused_ = (call);                                                        \
    REQUIRE(refused_ != hipSuccess, "%s succeeds", #call);                                     \
    REQUIRE(hipGetLastError() == refused_, "%s is not the last error", #call);                 \
  } while (0)

uint8_t nothing[256];
// Something that is no handle of any kind.
void* const kNoHandle = nothing;

void streams(hipStream_t stream) {
  hipExternalSemaphore_t semaphores[1] = {kNoHandle};
  hipExternalSemaphoreSignalParams signals[1] = {};
  hipExternalSemaphoreWaitParams waits[1] = {};
  CHECK(hipSignalExternalSemaphoresAsync(semaphores, signals, 0, stream));
  CHECK(hipWaitExternalSemaphoresAsync(semaphores, waits, 0, stream));
  REFUSED(hipSignalExternalSemaphoresAsync(semaphores, signals, 1, stream));
  REFUSED(hipWaitExternalSemaphoresAsync(semaphores, waits, 1, stream));
  REFUSED(hipDestroyExternalSemaphore(kNoHandle));

  hipGraphicsResource_t resources[1] = {static_cast<hipGraphicsResource_t>(kNoHandle)};
  CHECK(hipGraphicsMapResources(0, resources, stream));
  CHECK(hipGraphicsUnmapResources(0, resources, stream));
  REFUSED(hipGraphicsMapResources(1, resources, stream));
  REFUSED(hipGraphicsUnmapResources(1, resources, stream));
  void* pointer = nullptr;
  size_t size = 0;
  REFUSED(hipGraphicsResourceGetMappedPointer(&pointer, &size, resources[0]));
  hipArray_t array = nullptr;
  REFUSED(hipGraphicsSubResourceGetMappedArray(&array, resources[0], 0, 0));
  REFUSED(hipGraphicsUnregisterResource(resources[0]));

  hipArrayMapInfo parts[1] = {};
  CHECK(hipMemMapArrayAsync(parts, 0, stream));
  REFUSED(hipMemMapArrayAsync(parts, 1, stream));
}

// Nodes that signal and wait for nothing, between nodes that do something.
void graphs(hipStream_t stream) {
  const int n = 300;
  DeviceWords data(n);
  Words expected = pattern(n, 3);
  upload(data, expected);
  hipGraph_t graph;
  CHECK(hipGraphCreate(&graph, 0));
  uint32_t* pointer = data;
  uint32_t factor = 3, addend = 8;
  int count = n;
  void* arguments[] = {&pointer, &factor, &addend, &count};
  hipKernelNodeParams launch = {};
  launch.func = reinterpret_cast<void*>(mix);
  launch.gridDim = dim3(blocks_for(n));
  launch.blockDim = dim3(kThreads);
  launch.kernelParams = arguments;
  hipGraphNode_t first, signal, wait, last;
  hip7::SemaphoreNode none = {}, got = {kNoHandle, kNoHandle, 9};
  CHECK(hipGraphAddKernelNode(&first, graph, nullptr, 0, &launch));
  CHECK(hipGraphAddExternalSemaphoresSignalNode(&signal, graph, &first, 1, &none));
  CHECK(hipGraphAddExternalSemaphoresWaitNode(&wait, graph, &signal, 1, &none));
  factor = 5;
  CHECK(hipGraphAddKernelNode(&last, graph, &wait, 1, &launch));
  CHECK(hipGraphExternalSemaphoresSignalNodeGetParams(signal, &got));
  REQUIRE(got.count == 0, "%u semaphores", got.count);
  CHECK(hipGraphExternalSemaphoresWaitNodeGetParams(wait, &got));
  REQUIRE(got.count == 0, "%u semaphores", got.count);
  CHECK(hipGraphExternalSemaphoresSignalNodeSetParams(signal, &none));
  CHECK(hipGraphExternalSemaphoresWaitNodeSetParams(wait, &none));
  // A node of the other kind.
  REFUSED(hipGraphExternalSemaphoresSignalNodeSetParams(wait, &none));
  REFUSED(hipGraphExternalSemaphoresWaitNodeSetParams(signal, &none));
  hipGraphExec_t exec;
  CHECK(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
  CHECK(hipGraphExecExternalSemaphoresSignalNodeSetParams(exec, signal, &none));
  CHECK(hipGraphExecExternalSemaphoresWaitNodeSetParams(exec, wait, &none));
  REFUSED(hipGraphExecExternalSemaphoresSignalNodeSetParams(exec, wait, &none));
  REFUSED(hipGraphExecExternalSemaphoresWaitNodeSetParams(exec, signal, &none));
  void* semaphores[1] = {kNoHandle};
  uint8_t params[144] = {};
  hip7::SemaphoreNode one = {semaphores, params, 1};
  hipGraphNode_t more;
  REFUSED(hipGraphAddExternalSemaphoresSignalNode(&more, graph, nullptr, 0, &one));
  REFUSED(hipGraphAddExternalSemaphoresWaitNode(&more, graph, nullptr, 0, &one));
  CHECK(hipGraphLaunch(exec, stream));
  CHECK(hipStreamSynchronize(stream));
  host_mix(expected, 3, 8);
  host_mix(expected, 5, 8);
  EXPECT_WORDS(data, expected);
  CHECK(hipGraphExecDestroy(exec));
  CHECK(hipGraphDestroy(graph));
}

}  // namespace

int main() {
  hipStream_t stream;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  if (hipSignalExternalSemaphoresAsync(nullptr, nullptr, 0, stream) == hipErrorNotSupported) {
    std::printf("no_graphics: skipped, the runtime has none of these calls\n");
    return 77;
  }
  streams(stream);
  graphs(stream);
  CHECK(hipStreamDestroy(stream));
  std::printf("no_graphics: ok\n");
}
