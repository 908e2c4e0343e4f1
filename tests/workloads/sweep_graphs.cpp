// Graphs: every kind of node, their parameters, changes before and between launches, captures, clones, memory nodes.
#include <cstring>

#include "sweep.hpp"

namespace {

constexpr int kCount = 200;
constexpr size_t kBytes = kCount * 4;
uint32_t salt = 1;

struct Kernel {
  Kernel(uint32_t* pointer, uint32_t factor, uint32_t addend) : pointer(pointer), factor(factor), addend(addend) {
    params.func = reinterpret_cast<void*>(mix);
    params.gridDim = dim3(blocks_for(kCount));
    params.blockDim = dim3(kThreads);
    params.kernelParams = list;
  }
  uint32_t* pointer;
  uint32_t factor, addend;
  int count = kCount;
  void* list[4] = {&pointer, &factor, &addend, &count};
  hipKernelNodeParams params = {};
};

hipMemsetParams fill_params(void* target, unsigned value) {
  hipMemsetParams params = {};
  params.dst = target, params.elementSize = 4, params.value = value, params.width = kCount, params.height = 1;
  return params;
}

hipMemcpy3DParms copy_params(void* to, const void* from, hipMemcpyKind kind) {
  hipMemcpy3DParms params = {};
  params.srcPtr = make_hipPitchedPtr(const_cast<void*>(from), kBytes, kBytes, 1);
  params.dstPtr = make_hipPitchedPtr(to, kBytes, kBytes, 1);
  params.extent = make_hipExtent(kBytes, 1, 1);
  params.kind = kind;
  return params;
}

void launch(hipGraphExec_t exec, hipStream_t stream) {
  CHECK(hipGraphLaunch(exec, stream));
  CHECK(hipStreamSynchronize(stream));
}

// Memset, kernel and copy nodes: parameters read, set on the graph and set on the executable graph.
void node_parameters(hipStream_t stream) {
  DeviceWords data(kCount), other(kCount);
  uint32_t *in, *out;
  CHECK(hipHostMalloc(reinterpret_cast<void**>(&in), kBytes, 0));
  CHECK(hipHostMalloc(reinterpret_cast<void**>(&out), kBytes, 0));
  hipGraph_t graph;
  CHECK(hipGraphCreate(&graph, 0));
  hipGraphNode_t fill, kernel, copy, up, down, empty;
  hipMemsetParams memset = fill_params(data, 11);
  CHECK(hipGraphAddMemsetNode(&fill, graph, nullptr, 0, &memset));
  Kernel first(data, 3, 4);
  CHECK(hipGraphAddKernelNode(&kernel, graph, &fill, 1, &first.params));
  hipMemcpy3DParms across = copy_params(other, data, hipMemcpyDeviceToDevice);
  CHECK(hipGraphAddMemcpyNode(&copy, graph, &kernel, 1, &across));
  CHECK(hipGraphAddMemcpyNode1D(&down, graph, &copy, 1, out, other, kBytes, hipMemcpyDeviceToHost));
  CHECK(hipGraphAddEmptyNode(&empty, graph, nullptr, 0));
  CHECK(hipGraphAddDependencies(graph, &down, &empty, 1));
  CHECK(hipGraphRemoveDependencies(graph, &down, &empty, 1));
  // The other way round would be a circle, were the first edge still there.
  CHECK(hipGraphAddDependencies(graph, &empty, &down, 1));

  hipGraphExec_t exec;
  hipGraphNode_t error_node;
  char log[64];
  CHECK(hipGraphInstantiate(&exec, graph, &error_node, log, sizeof log));
  Words expected(kCount, 11);
  host_mix(expected, 3, 4);
  launch(exec, stream);
  require_equal(out, expected.data(), kCount, "first launch", __LINE__, __FILE__);

  // The graph's own nodes: seen by the next executable graph alone.
  CHECK(hipGraphMemsetNodeGetParams(fill, &memset));
  memset = fill_params(data, 12);
  CHECK(hipGraphMemsetNodeSetParams(fill, &memset));
  hipKernelNodeParams got;
  CHECK(hipGraphKernelNodeGetParams(kernel, &got));
  Kernel second(data, 5, 6);
  CHECK(hipGraphKernelNodeSetParams(kernel, &second.params));
  CHECK(hipGraphMemcpyNodeGetParams(copy, &across));
  DeviceWords elsewhere(kCount);
  across = copy_params(elsewhere, data, hipMemcpyDeviceToDevice);
  CHECK(hipGraphMemcpyNodeSetParams(copy, &across));
  CHECK(hipGraphMemcpyNodeSetParams1D(down, out, elsewhere, kBytes, hipMemcpyDeviceToHost));
  hipGraphExec_t again;
  CHECK(hipGraphInstantiateWithFlags(&again, graph, 0));
  launch(again, stream);
  expected.assign(kCount, 12);
  host_mix(expected, 5, 6);
  require_equal(out, expected.data(), kCount, "after set", __LINE__, __FILE__);

  // Executable nodes.
  memset = fill_params(data, 13);
  CHECK(hipGraphExecMemsetNodeSetParams(exec, fill, &memset));
  Kernel third(data, 7, 8);
  CHECK(hipGraphExecKernelNodeSetParams(exec, kernel, &third.params));
  CHECK(hipGraphExecMemcpyNodeSetParams(exec, copy, &across));
  CHECK(hipGraphExecMemcpyNodeSetParams1D(exec, down, out, elsewhere, kBytes, hipMemcpyDeviceToHost));
  launch(exec, stream);
  expected.assign(kCount, 13);
  host_mix(expected, 7, 8);
  require_equal(out, expected.data(), kCount, "after exec set", __LINE__, __FILE__);

  // The whole executable graph made like the graph again; a node switched off; launched by other spellings.
  hipGraphExecUpdateResult result;
  CHECK(hipGraphExecUpdate(exec, graph, &error_node, &result));
  CHECK(hipGraphUpload(exec, stream));
  CHECK(hipGraphLaunch_spt(exec, stream));
  CHECK(hipStreamSynchronize(stream));
  expected.assign(kCount, 12);
  host_mix(expected, 5, 6);
  require_equal(out, expected.data(), kCount, "after update", __LINE__, __FILE__);
  CHECK(hipGraphNodeSetEnabled(exec, kernel, 0));
  unsigned enabled = 1;
  CHECK(hipGraphNodeGetEnabled(exec, kernel, &enabled));
  REQUIRE(enabled == 0, "still enabled");
  launch(exec, stream);
  expected.assign(kCount, 12);
  require_equal(out, expected.data(), kCount, "without its kernel", __LINE__, __FILE__);
  unsigned long long flags = 0;
  CHECK(hipGraphExecGetFlags(exec, &flags));

  // Attributes, kept with the node and copied to another.
  hipKernelNodeAttrValue attribute = {}, found_attribute = {};
  attribute.cooperative = 1;
  CHECK(hipGraphKernelNodeSetAttribute(kernel, hipKernelNodeAttributeCooperative, &attribute));
  hipGraph_t scratch;
  hipGraphNode_t of_scratch;
  CHECK(hipGraphCreate(&scratch, 0));
  CHECK(hipGraphAddKernelNode(&of_scratch, scratch, nullptr, 0, &second.params));
  CHECK(hipGraphKernelNodeCopyAttributes(kernel, of_scratch));
  CHECK(hipGraphKernelNodeGetAttribute(of_scratch, hipKernelNodeAttributeCooperative, &found_attribute));
  REQUIRE(found_attribute.cooperative == 1, "attribute");
  CHECK(hipGraphDestroy(scratch));

  // Questions.
  hipGraphNode_t nodes[8], from[8], to[8];
  size_t count = 8, edges = 8;
  CHECK(hipGraphGetNodes(graph, nodes, &count));
  REQUIRE(count == 5, "%zu nodes", count);
  count = 8;
  CHECK(hipGraphGetRootNodes(graph, nodes, &count));
  CHECK(hipGraphGetEdges(graph, from, to, &edges));
  REQUIRE(edges == 4, "%zu edges", edges);
  count = 8;
  CHECK(hipGraphNodeGetDependencies(copy, nodes, &count));
  REQUIRE(count == 1 && nodes[0] == kernel, "dependencies");
  count = 8;
  CHECK(hipGraphNodeGetDependentNodes(copy, nodes, &count));
  hipGraphNodeType type;
  CHECK(hipGraphNodeGetType(copy, &type));

  // A clone with a node less.
  hipGraph_t clone;
  hipGraphNode_t cloned;
  CHECK(hipGraphClone(&clone, graph));
  CHECK(hipGraphNodeFindInClone(&cloned, kernel, clone));
  CHECK(hipGraphDestroyNode(cloned));
  hipGraphExec_t of_clone;
  CHECK(hipGraphInstantiate(&of_clone, clone, nullptr, nullptr, 0));
  CHECK(hipGraphNodeFindInClone(&cloned, fill, clone));
  launch(of_clone, stream);
  CHECK(hipStreamSynchronize(stream));

  // A graph in a graph, with host memory read at each launch.
  hipGraph_t outer;
  hipGraphNode_t child;
  CHECK(hipGraphCreate(&outer, 0));
  CHECK(hipGraphAddMemcpyNode1D(&up, outer, nullptr, 0, data, in, kBytes, hipMemcpyHostToDevice));
  hipGraph_t inner, found;
  CHECK(hipGraphCreate(&inner, 0));
  Kernel fourth(data, 9, 10), fifth(data, 11, 12);
  CHECK(hipGraphAddKernelNode(&kernel, inner, nullptr, 0, &fourth.params));
  CHECK(hipGraphAddChildGraphNode(&child, outer, &up, 1, inner));
  CHECK(hipGraphChildGraphNodeGetGraph(child, &found));
  CHECK(hipGraphAddMemcpyNode1D(&down, outer, &child, 1, out, data, kBytes, hipMemcpyDeviceToHost));
  hipGraphExec_t outer_exec;
  CHECK(hipGraphInstantiate(&outer_exec, outer, nullptr, nullptr, 0));
  for (uint32_t round = 0; round < 4; round++) {
    expected = pattern(kCount, salt++);
    std::memcpy(in, expected.data(), kBytes);
    if (round == 2) {
      CHECK(hipGraphKernelNodeSetParams(kernel, &fifth.params));
      CHECK(hipGraphExecChildGraphNodeSetParams(outer_exec, child, inner));
    }
    launch(outer_exec, stream);
    host_mix(expected, round < 2 ? 9 : 11, round < 2 ? 10 : 12);
    require_equal(out, expected.data(), kCount, "child graph", __LINE__, __FILE__);
  }
  for (hipGraphExec_t e : {exec, again, of_clone, outer_exec}) CHECK(hipGraphExecDestroy(e));
  for (hipGraph_t g : {graph, clone, outer, inner}) CHECK(hipGraphDestroy(g));
  CHECK(hipHostFree(in));
  CHECK(hipHostFree(out));
}

// Nodes by their parameters alone, and those of the driver interface.
void generic_nodes(hipStream_t stream) {
  DeviceWords data(kCount), other(kCount);
  hipGraph_t graph;
  CHECK(hipGraphCreate(&graph, 0));
  hipGraphNode_t fill, kernel, copy;
  hip7::NodeParams params = {};
  hipMemsetParams memset = fill_params(data, 21);
  params.type = 2;
  std::memcpy(params.words, &memset, sizeof memset);
  CHECK(hipGraphAddNode(&fill, graph, nullptr, 0, &params));
  Kernel first(data, 13, 14);
  params = {};
  params.type = 0;
  std::memcpy(params.words, &first.params, sizeof first.params);
  CHECK(hipGraphAddNode(&kernel, graph, &fill, 1, &params));
  hip7::Memcpy3D across = {};
  across.srcType = across.dstType = hip7::kMemoryDevice;
  across.srcDevice = data, across.dstDevice = other, across.srcPitch = across.dstPitch = kBytes;
  across.srcHeight = across.dstHeight = 1, across.width = kBytes, across.height = across.depth = 1;
  CHECK(hipDrvGraphAddMemcpyNode(&copy, graph, &kernel, 1, &across, nullptr));
  hip7::InstantiateParams instantiate = {};
  hipGraphExec_t exec;
  CHECK(hipGraphInstantiateWithParams(&exec, graph, &instantiate));
  launch(exec, stream);
  Words expected(kCount, 21);
  host_mix(expected, 13, 14);
  EXPECT_WORDS(other, expected);
  memset = fill_params(data, 22);
  params = {};
  params.type = 2;
  std::memcpy(params.words, &memset, sizeof memset);
  CHECK(hipGraphExecNodeSetParams(exec, fill, &params));
  launch(exec, stream);
  expected.assign(kCount, 22);
  host_mix(expected, 13, 14);
  EXPECT_WORDS(other, expected);
  memset = fill_params(data, 23);
  std::memcpy(params.words, &memset, sizeof memset);
  CHECK(hipGraphNodeSetParams(fill, &params));
  CHECK(hipGraphExecDestroy(exec));
  CHECK(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
  launch(exec, stream);
  expected.assign(kCount, 23);
  host_mix(expected, 13, 14);
  EXPECT_WORDS(other, expected);
  CHECK(hipGraphExecDestroy(exec));
  CHECK(hipGraphDestroy(graph));

  CHECK(hipGraphCreate(&graph, 0));
  memset = fill_params(data, 24);
  CHECK(hipDrvGraphAddMemsetNode(&fill, graph, nullptr, 0, &memset, nullptr));
  CHECK(hipDrvGraphAddMemcpyNode(&copy, graph, &fill, 1, &across, nullptr));
  DeviceWords third(kCount), fourth(kCount);
  hip7::Memcpy3D found = {};
  CHECK(hipDrvGraphMemcpyNodeGetParams(copy, &found));
  REQUIRE(found.width == kBytes, "%zu bytes", found.width);
  across.dstDevice = third;
  CHECK(hipDrvGraphMemcpyNodeSetParams(copy, &across));
  CHECK(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
  launch(exec, stream);
  EXPECT_WORDS(third, Words(kCount, 24));
  memset = fill_params(data, 25);
  CHECK(hipDrvGraphExecMemsetNodeSetParams(exec, fill, &memset, nullptr));
  across.dstDevice = fourth;
  CHECK(hipDrvGraphExecMemcpyNodeSetParams(exec, copy, &across, nullptr));
  launch(exec, stream);
  EXPECT_WORDS(fourth, Words(kCount, 25));
  CHECK(hipGraphExecDestroy(exec));
  CHECK(hipGraphDestroy(graph));
}

extern "C" void nothing(void*) {}

// Nodes that wait for an event and record one. Both are set to others, in the graph and in the executable one, so that
// work on a second stream comes before and after the graph's.
void event_nodes(hipStream_t stream) {
  constexpr int kSpin = 20000;
  DeviceWords data(kCount), slow(64), slower(64);
  CHECK(hipMemset(slow, 1, 256));
  CHECK(hipMemset(slower, 1, 256));
  CHECK(hipDeviceSynchronize());
  hipStream_t second;
  CHECK(hipStreamCreateWithFlags(&second, hipStreamNonBlocking));
  hipEvent_t gates[3], ends[3], got;
  for (int i = 0; i < 3; i++) {
    CHECK(hipEventCreate(&gates[i]));
    CHECK(hipEventCreate(&ends[i]));
  }
  CHECK(hipEventRecord(gates[0], stream));
  hipGraph_t graph;
  hipGraphNode_t wait, delay, kernel, record;
  CHECK(hipGraphCreate(&graph, 0));
  CHECK(hipGraphAddEventWaitNode(&wait, graph, nullptr, 0, gates[0]));
  uint32_t* spun = slow;
  uint32_t spin = kSpin;
  int lanes = 64;
  void* arguments[] = {&spun, &spin, &lanes};
  hipKernelNodeParams delay_params = {};
  delay_params.func = reinterpret_cast<void*>(busy);
  delay_params.gridDim = dim3(1), delay_params.blockDim = dim3(64), delay_params.kernelParams = arguments;
  CHECK(hipGraphAddKernelNode(&delay, graph, &wait, 1, &delay_params));
  Kernel params(data, 7, 8);
  CHECK(hipGraphAddKernelNode(&kernel, graph, &delay, 1, &params.params));
  CHECK(hipGraphAddEventRecordNode(&record, graph, &kernel, 1, ends[0]));
  CHECK(hipGraphEventRecordNodeGetEvent(record, &got));
  REQUIRE(got == ends[0], "recorded event");
  CHECK(hipGraphEventWaitNodeGetEvent(wait, &got));
  REQUIRE(got == gates[0], "event waited for");
  CHECK(hipGraphEventWaitNodeSetEvent(wait, gates[1]));
  CHECK(hipGraphEventRecordNodeSetEvent(record, ends[1]));
  hipGraphExec_t exec;
  CHECK(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
  for (int round = 1; round < 3; round++) {
    if (round == 2) {
      CHECK(hipGraphExecEventWaitNodeSetEvent(exec, wait, gates[2]));
      CHECK(hipGraphExecEventRecordNodeSetEvent(exec, record, ends[2]));
    }
    Words expected = pattern(kCount, salt++);
    upload(data, expected);
    LAUNCH(busy, 1, 64, 0, second, slower, 3 * kSpin, 64);
    LAUNCH(mix, blocks_for(kCount), kThreads, 0, second, data, 5, 6, kCount);
    CHECK(hipEventRecord(gates[round], second));
    CHECK(hipGraphLaunch(exec, stream));
    CHECK(hipStreamWaitEvent(second, ends[round], 0));
    LAUNCH(mix, blocks_for(kCount), kThreads, 0, second, data, 9, 10, kCount);
    CHECK(hipStreamSynchronize(second));
    host_mix(expected, 5, 6);
    host_mix(expected, 7, 8);
    host_mix(expected, 9, 10);
    EXPECT_WORDS(data, expected);
    CHECK(hipStreamSynchronize(stream));
  }
  CHECK(hipGraphExecDestroy(exec));
  CHECK(hipGraphDestroy(graph));
  for (int i = 0; i < 3; i++) {
    CHECK(hipEventDestroy(gates[i]));
    CHECK(hipEventDestroy(ends[i]));
  }
  CHECK(hipStreamDestroy(second));
}

void hosts_and_objects(hipStream_t stream) {
  DeviceWords data(kCount);
  hipGraph_t graph;
  CHECK(hipGraphCreate(&graph, 0));
  hipGraphNode_t host, fill;
  hipMemsetParams memset = fill_params(data, 31);
  CHECK(hipGraphAddMemsetNode(&fill, graph, nullptr, 0, &memset));
  hipHostNodeParams host_params = {};
  host_params.fn = nothing;
  CHECK(hipGraphAddHostNode(&host, graph, &fill, 1, &host_params));
  CHECK(hipGraphHostNodeGetParams(host, &host_params));
  host_params.fn = nothing;
  CHECK(hipGraphHostNodeSetParams(host, &host_params));
  hipGraphExec_t exec;
  CHECK(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
  CHECK(hipGraphExecHostNodeSetParams(exec, host, &host_params));
  void* object = nullptr;
  CHECK(hipUserObjectCreate(&object, &salt, nothing, 1, 1));
  CHECK(hipUserObjectRetain(object, 1));
  CHECK(hipGraphRetainUserObject(graph, object, 1, 0));
  CHECK(hipUserObjectRelease(object, 1));
  CHECK(hipGraphReleaseUserObject(graph, object, 1));
  CHECK(hipGraphLaunch(exec, stream));
  CHECK(hipStreamSynchronize(stream));
  EXPECT_WORDS(data, Words(kCount, 31));
  CHECK(hipUserObjectRelease(object, 1));
  CHECK(hipGraphExecDestroy(exec));
  CHECK(hipGraphDestroy(graph));
}

void memory_nodes(hipStream_t stream, bool by_driver) {
  DeviceWords out(kCount);
  hipGraph_t graph;
  CHECK(hipGraphCreate(&graph, 0));
  hipGraphNode_t allocate, fill, copy, release;
  hip7::AllocNode params = {};
  params.props.allocType = 1, params.props.location = {hip7::kLocationDevice, 0};
  hip7::AccessDesc access = {{hip7::kLocationDevice, 0}, 3};
  params.access = &access, params.accessCount = 1;
  params.bytes = kBytes;
  CHECK(hipGraphAddMemAllocNode(&allocate, graph, nullptr, 0, &params));
  void* memory = params.pointer;
  REQUIRE(memory != nullptr, "no memory");
  hipMemsetParams memset = fill_params(memory, 41);
  CHECK(hipGraphAddMemsetNode(&fill, graph, &allocate, 1, &memset));
  CHECK(hipGraphAddMemcpyNode1D(&copy, graph, &fill, 1, out, memory, kBytes, hipMemcpyDeviceToDevice));
  CHECK(by_driver ? hipDrvGraphAddMemFreeNode(&release, graph, &copy, 1, memory)
                  : hipGraphAddMemFreeNode(&release, graph, &copy, 1, memory));
  CHECK(hipGraphMemAllocNodeGetParams(allocate, &params));
  void* freed = nullptr;
  CHECK(hipGraphMemFreeNodeGetParams(release, &freed));
  REQUIRE(freed == memory, "freed");
  hipGraphExec_t exec;
  CHECK(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
  launch(exec, stream);
  launch(exec, stream);
  EXPECT_WORDS(out, Words(kCount, 41));
  uint64_t used = 0;
  CHECK(hipDeviceGetGraphMemAttribute(0, 0, &used));
  used = 0;
  CHECK(hipDeviceSetGraphMemAttribute(0, 1, &used));
  CHECK(hipDeviceGraphMemTrim(0));
  CHECK(hipGraphExecDestroy(exec));
  CHECK(hipGraphDestroy(graph));
}

// Copies to and from a variable: made with decoys, set to other host memory in the graph, and to other again in the
// executable graph.
void symbols(hipStream_t stream) {
  hipGraph_t graph;
  CHECK(hipGraphCreate(&graph, 0));
  hipGraphNode_t to, from;
  uint32_t *in[3], *out[3];
  for (int i = 0; i < 3; i++) {
    CHECK(hipHostMalloc(reinterpret_cast<void**>(&in[i]), 16, 0));
    CHECK(hipHostMalloc(reinterpret_cast<void**>(&out[i]), 16, 0));
    std::memcpy(in[i], pattern(4, salt++).data(), 16);
    std::memset(out[i], 0, 16);
  }
  const void* table = HIP_SYMBOL(step_table);
  CHECK(hipGraphAddMemcpyNodeToSymbol(&to, graph, nullptr, 0, table, in[0], 16, 0, hipMemcpyHostToDevice));
  CHECK(hipGraphAddMemcpyNodeFromSymbol(&from, graph, &to, 1, out[0], table, 16, 0, hipMemcpyDeviceToHost));
  CHECK(hipGraphMemcpyNodeSetParamsToSymbol(to, table, in[1], 16, 0, hipMemcpyHostToDevice));
  CHECK(hipGraphMemcpyNodeSetParamsFromSymbol(from, out[1], table, 16, 0, hipMemcpyDeviceToHost));
  hipGraphExec_t exec;
  CHECK(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
  for (int round = 1; round < 3; round++) {
    if (round == 2) {
      CHECK(hipGraphExecMemcpyNodeSetParamsToSymbol(exec, to, table, in[2], 16, 0, hipMemcpyHostToDevice));
      CHECK(hipGraphExecMemcpyNodeSetParamsFromSymbol(exec, from, out[2], table, 16, 0, hipMemcpyDeviceToHost));
    }
    for (int again = 0; again < 2; again++) {
      const Words data = pattern(4, salt++);
      std::memcpy(in[round], data.data(), 16);
      launch(exec, stream);
      require_equal(out[round], data.data(), 4, "symbol in a graph", __LINE__, __FILE__);
    }
  }
  CHECK(hipGraphExecDestroy(exec));
  CHECK(hipGraphDestroy(graph));
  for (int i = 0; i < 3; i++) {
    CHECK(hipHostFree(in[i]));
    CHECK(hipHostFree(out[i]));
  }
}

void captures(hipStream_t stream) {
  DeviceWords data(kCount);
  hipGraph_t graph, current;
  hipStreamCaptureStatus status;
  unsigned long long id = 0;
  const hipGraphNode_t* dependencies = nullptr;
  size_t count = 0;
  hipGraphNode_t node;
  for (hipStreamCaptureMode mode :
       {hipStreamCaptureModeGlobal, hipStreamCaptureModeThreadLocal, hipStreamCaptureModeRelaxed}) {
    const bool per_thread = mode == hipStreamCaptureModeRelaxed;
    CHECK(per_thread ? hipStreamBeginCapture_spt(stream, mode) : hipStreamBeginCapture(stream, mode));
    CHECK(hipMemsetAsync(data, 1, kBytes, stream));
    LAUNCH(mix, blocks_for(kCount), kThreads, 0, stream, data, 3, uint32_t(mode), kCount);
    CHECK(hipStreamIsCapturing(stream, &status));
    CHECK(hipStreamIsCapturing_spt(stream, &status));
    REQUIRE(status == hipStreamCaptureStatusActive, "not capturing");
    CHECK(hipStreamGetCaptureInfo(stream, &status, &id));
    CHECK(hipStreamGetCaptureInfo_spt(stream, &status, &id));
    CHECK(hipStreamGetCaptureInfo_v2_spt(stream, &status, &id, &current, &dependencies, &count));
    CHECK(hipStreamGetCaptureInfo_v2(stream, &status, &id, &current, &dependencies, &count));
    Kernel extra(data, 5, 6);
    CHECK(hipGraphAddKernelNode(&node, current, dependencies, count, &extra.params));
    CHECK(hipStreamUpdateCaptureDependencies(stream, &node, 1, 1));
    LAUNCH(mix, blocks_for(kCount), kThreads, 0, stream, data, 7, 8, kCount);
    CHECK(hipStreamGetCaptureInfo_v2(stream, &status, &id, &current, &dependencies, &count));
    REQUIRE(count == 1, "%zu dependencies", count);
    // The edge that the update made is there to be removed, and is put back.
    CHECK(hipGraphRemoveDependencies(current, &node, dependencies, 1));
    CHECK(hipGraphAddDependencies(current, &node, dependencies, 1));
    CHECK(per_thread ? hipStreamEndCapture_spt(stream, &graph) : hipStreamEndCapture(stream, &graph));
    hipGraphExec_t exec;
    CHECK(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
    launch(exec, stream);
    Words expected(kCount, 0x01010101);
    host_mix(expected, 3, uint32_t(mode));
    host_mix(expected, 5, 6);
    host_mix(expected, 7, 8);
    EXPECT_WORDS(data, expected);
    CHECK(hipGraphExecDestroy(exec));
    CHECK(hipGraphDestroy(graph));
  }
  hipStreamCaptureMode mode = hipStreamCaptureModeRelaxed;
  CHECK(hipThreadExchangeStreamCaptureMode(&mode));
  CHECK(hipThreadExchangeStreamCaptureMode(&mode));
  // Into a graph of the program's own.
  CHECK(hipGraphCreate(&graph, 0));
  CHECK(hipStreamBeginCaptureToGraph(stream, graph, nullptr, nullptr, 0, hipStreamCaptureModeGlobal));
  CHECK(hipMemsetAsync(data, 2, kBytes, stream));
  CHECK(hipStreamEndCapture(stream, &current));
  hipGraphExec_t exec;
  CHECK(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
  launch(exec, stream);
  EXPECT_WORDS(data, Words(kCount, 0x02020202));
  CHECK(hipGraphExecDestroy(exec));
  CHECK(hipGraphDestroy(graph));
}

void batch_operations(hipStream_t stream) {
  uint32_t* flag;
  CHECK(hipMalloc(reinterpret_cast<void**>(&flag), 64));
  CHECK(hipMemset(flag, 0, 64));
  CHECK(hipDeviceSynchronize());
  hip7::BatchMemOp operation = {};
  operation.operation = 2, operation.address = flag, operation.value = 77;
  hip7::BatchMemOpNode node_params = {nullptr, 1, &operation, 0};
  hipGraph_t graph;
  hipGraphNode_t node;
  CHECK(hipGraphCreate(&graph, 0));
  CHECK(hipGraphAddBatchMemOpNode(&node, graph, nullptr, 0, &node_params));
  hip7::BatchMemOpNode found_params = {};
  CHECK(hipGraphBatchMemOpNodeGetParams(node, &found_params));
  REQUIRE(found_params.count == 1 && found_params.operations[0].value == 77, "batch");
  operation.value = 78;
  CHECK(hipGraphBatchMemOpNodeSetParams(node, &node_params));
  hipGraphExec_t exec;
  CHECK(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
  launch(exec, stream);
  EXPECT_WORDS(flag, Words(1, 78));
  operation.value = 79;
  CHECK(hipGraphExecBatchMemOpNodeSetParams(exec, node, &node_params));
  launch(exec, stream);
  EXPECT_WORDS(flag, Words(1, 79));
  CHECK(hipGraphExecDestroy(exec));
  CHECK(hipGraphDestroy(graph));
  CHECK(hipFree(flag));
}

}  // namespace

int main() {
  hipStream_t stream;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  node_parameters(stream);
  generic_nodes(stream);
  event_nodes(stream);
  hosts_and_objects(stream);
  memory_nodes(stream, false);
  memory_nodes(stream, true);
  symbols(stream);
  captures(stream);
  batch_operations(stream);
  CHECK(hipStreamDestroy(stream));
  std::printf("sweep_graphs: ok, %u patterns\n", salt);
}
