// Graphs that are changed once they can be launched, events that their launches record and wait for, and work that one call or
// one capture puts on two devices; each case by itself where its name is given.
// usage: graph_changes [CASE] [rounds]
#include <cstring>
#include <functional>
#include <map>

#include "sweep.hpp"

namespace {

constexpr int kCount = 300;
constexpr size_t kBytes = kCount * 4;
int rounds = 3;
uint32_t salt = 1;

Words fresh(size_t count = kCount) { return pattern(count, salt++); }
// Other words in the same place.
void refill(Words& words) {
  const Words next = fresh(words.size());
  std::copy(next.begin(), next.end(), words.begin());
}

hipStream_t new_stream() {
  hipStream_t stream;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  return stream;
}

hipGraph_t new_graph() {
  hipGraph_t graph;
  CHECK(hipGraphCreate(&graph, 0));
  return graph;
}

hipGraphExec_t instantiated(hipGraph_t graph) {
  hipGraphExec_t exec;
  CHECK(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
  return exec;
}

void run(hipGraphExec_t exec, hipStream_t stream) {
  CHECK(hipGraphLaunch(exec, stream));
  CHECK(hipStreamSynchronize(stream));
}

void update(hipGraphExec_t exec, hipGraph_t graph) {
  hipGraphNode_t node;
  hipGraphExecUpdateResult result;
  CHECK(hipGraphExecUpdate(exec, graph, &node, &result));
}

// What a kernel node launches: mix on `pointer`.
struct Mix {
  Mix(uint32_t* pointer, uint32_t factor, uint32_t addend) : pointer(pointer), factor(factor), addend(addend) {
    params.func = reinterpret_cast<void*>(mix);
    params.gridDim = dim3(blocks_for(kCount)), params.blockDim = dim3(kThreads);
    params.kernelParams = list;
  }
  Mix(const Mix&) = delete;
  Mix& operator=(const Mix&) = delete;
  hipGraphNode_t add(hipGraph_t graph, const std::vector<hipGraphNode_t>& after) {
    hipGraphNode_t node;
    CHECK(hipGraphAddKernelNode(&node, graph, after.data(), after.size(), &params));
    return node;
  }
  uint32_t* pointer;
  uint32_t factor, addend;
  int count = kCount;
  void* list[4] = {&pointer, &factor, &addend, &count};
  hipKernelNodeParams params = {};
};

hipGraphNode_t add_copy(hipGraph_t graph, const std::vector<hipGraphNode_t>& after, void* to, const void* from,
                        hipMemcpyKind kind) {
  hipGraphNode_t node;
  CHECK(hipGraphAddMemcpyNode1D(&node, graph, after.data(), after.size(), to, from, kBytes, kind));
  return node;
}

void expect(const Words& got, const Words& want, const char* what, int line) {
  require_equal(got.data(), want.data(), want.size(), what, line, "graph_changes");
}

// A captured graph that waits for an event of another stream and records one, both as nodes: another thread's work goes between.
void external_events() {
  constexpr unsigned kExternal = 1;
  hipStream_t first = new_stream(), second = new_stream();
  hipEvent_t gate, end;
  CHECK(hipEventCreate(&gate));
  CHECK(hipEventCreate(&end));
  DeviceWords data(kCount), slow(64);
  CHECK(hipMemset(slow, 1, 256));
  CHECK(hipDeviceSynchronize());
  CHECK(hipStreamBeginCapture(first, hipStreamCaptureModeThreadLocal));
  CHECK(hipStreamWaitEvent(first, gate, kExternal));
  LAUNCH(busy, 1, 64, 0, first, slow, 9000, 64);
  LAUNCH(mix, blocks_for(kCount), kThreads, 0, first, data, 7, 8, kCount);
  CHECK(hipEventRecordWithFlags(end, first, kExternal));
  LAUNCH(busy, 1, 64, 0, first, slow, 9000, 64);
  hipGraph_t graph;
  CHECK(hipStreamEndCapture(first, &graph));
  hipGraphExec_t exec = instantiated(graph);
  Words expected = fresh();
  upload(data, expected);
  Turns turns;
  run_threads(2, [&](int thread) {
    for (int r = 0; r < rounds; r++) {
      if (thread == 0) {
        turns.take(3 * r + 1, [&] { CHECK(hipGraphLaunch(exec, first)); });
        continue;
      }
      turns.take(3 * r, [&] {
        LAUNCH(mix, blocks_for(kCount), kThreads, 0, second, data, 5, 6, kCount);
        CHECK(hipEventRecord(gate, second));
      });
      turns.take(3 * r + 2, [&] {
        // By the stream, by the host, by asking.
        if (r % 3 == 0) CHECK(hipStreamWaitEvent(second, end, 0));
        if (r % 3 == 1) CHECK(hipEventSynchronize(end));
        if (r % 3 == 2)
          while (hipEventQuery(end) == hipErrorNotReady) std::this_thread::yield();
        LAUNCH(mix, blocks_for(kCount), kThreads, 0, second, data, 9, 10, kCount);
        CHECK(hipStreamSynchronize(second));
        host_mix(expected, 5, 6);
        host_mix(expected, 7, 8);
        host_mix(expected, 9, 10);
        EXPECT_WORDS(data, expected);
      });
    }
  });
  CHECK(hipStreamSynchronize(first));
  CHECK(hipGraphExecDestroy(exec));
  CHECK(hipGraphDestroy(graph));
  for (hipEvent_t event : {gate, end}) CHECK(hipEventDestroy(event));
  for (hipStream_t stream : {first, second}) CHECK(hipStreamDestroy(stream));
}

// The host waits for an event in the middle of a graph, reads what the graph has copied by then, and uses the memory for
// something else while the graph goes on.
void middle_events() {
  constexpr unsigned kExternal = 1;
  hipStream_t stream = new_stream();
  hipEvent_t copied;
  CHECK(hipEventCreate(&copied));
  DeviceWords data(kCount), slow(64);
  CHECK(hipMemset(slow, 1, 256));
  uint32_t* out;
  CHECK(hipHostMalloc(reinterpret_cast<void**>(&out), kBytes, 0));
  CHECK(hipDeviceSynchronize());
  CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeRelaxed));
  LAUNCH(mix, blocks_for(kCount), kThreads, 0, stream, data, 7, 8, kCount);
  CHECK(hipMemcpyAsync(out, data, kBytes, hipMemcpyDeviceToHost, stream));
  CHECK(hipEventRecordWithFlags(copied, stream, kExternal));
  LAUNCH(busy, 1, 64, 0, stream, slow, 300000, 64);
  hipGraph_t graph;
  CHECK(hipStreamEndCapture(stream, &graph));
  hipGraphExec_t exec = instantiated(graph);
  Words expected = fresh();
  upload(data, expected);
  for (int r = 0; r < rounds; r++) {
    CHECK(hipGraphLaunch(exec, stream));
    CHECK(hipEventSynchronize(copied));
    host_mix(expected, 7, 8);
    require_equal(out, expected.data(), kCount, "copied so far", __LINE__, __FILE__);
    for (int i = 0; i < kCount; i++) out[i] = 0xdead0000u + r;
    CHECK(hipStreamSynchronize(stream));
  }
  CHECK(hipGraphExecDestroy(exec));
  CHECK(hipGraphDestroy(graph));
  CHECK(hipHostFree(out));
  CHECK(hipEventDestroy(copied));
  CHECK(hipStreamDestroy(stream));
}

// One call that launches on two devices, in each spelling.
void launches_on_devices() {
  hipStream_t streams[2];
  uint32_t* data[2];
  Words expected[2];
  for (int d = 0; d < 2; d++) {
    CHECK(hipSetDevice(d));
    streams[d] = new_stream();
    CHECK(hipMalloc(reinterpret_cast<void**>(&data[d]), kBytes));
    expected[d] = fresh();
    upload(data[d], expected[d]);
  }
  int n = kCount;
  uint32_t factors[2], addends[2];
  void* lists[2][4];
  for (int d = 0; d < 2; d++) {
    void* list[4] = {&data[d], &factors[d], &addends[d], &n};
    std::memcpy(lists[d], list, sizeof list);
  }
  Turns turns;
  run_threads(2, [&](int thread) {
    for (int r = 0; r < 2 * rounds; r++)
      if (r % 2 == thread)
        turns.take(r, [&] {
          CHECK(hipSetDevice(r % 2));
          hipLaunchParams launches[2] = {};
          for (int d = 0; d < 2; d++) {
            factors[d] = factor_of(r, d), addends[d] = addend_of(r, d);
            launches[d].func = reinterpret_cast<void*>(mix);
            launches[d].gridDim = dim3(blocks_for(kCount)), launches[d].blockDim = dim3(kThreads);
            launches[d].args = lists[d], launches[d].stream = streams[d];
          }
          if (r % 3 == 0) CHECK(hipExtLaunchMultiKernelMultiDevice(launches, 2, 0));
          else CHECK(hipLaunchCooperativeKernelMultiDevice(launches, 2, 0));
          for (int d = 0; d < 2; d++) host_mix(expected[d], factors[d], addends[d]);
        });
  });
  for (int d = 0; d < 2; d++) {
    CHECK(hipSetDevice(d));
    CHECK(hipStreamSynchronize(streams[d]));
    expect_words(data[d], expected[d], "both devices", __LINE__);
    CHECK(hipStreamDestroy(streams[d]));
    CHECK(hipFree(data[d]));
  }
}

// A capture that goes over to a stream of another device by an event, and back.
void capture_on_devices() {
  hipStream_t streams[2];
  hipEvent_t fork, join;
  uint32_t* data[2];
  Words out(kCount), in = fresh();
  for (int d = 0; d < 2; d++) {
    CHECK(hipSetDevice(d));
    streams[d] = new_stream();
    CHECK(hipMalloc(reinterpret_cast<void**>(&data[d]), kBytes));
  }
  CHECK(hipEventCreate(&join));
  CHECK(hipSetDevice(0));
  CHECK(hipEventCreate(&fork));
  CHECK(hipStreamBeginCapture(streams[0], hipStreamCaptureModeRelaxed));
  CHECK(hipMemcpyAsync(data[0], in.data(), kBytes, hipMemcpyHostToDevice, streams[0]));
  LAUNCH(mix, blocks_for(kCount), kThreads, 0, streams[0], data[0], 3, 4, kCount);
  CHECK(hipMemcpyPeerAsync(data[1], 1, data[0], 0, kBytes, streams[0]));
  CHECK(hipEventRecord(fork, streams[0]));
  CHECK(hipSetDevice(1));
  CHECK(hipStreamWaitEvent(streams[1], fork, 0));
  LAUNCH(mix, blocks_for(kCount), kThreads, 0, streams[1], data[1], 5, 6, kCount);
  CHECK(hipEventRecord(join, streams[1]));
  CHECK(hipSetDevice(0));
  LAUNCH(mix, blocks_for(kCount), kThreads, 0, streams[0], data[0], 7, 8, kCount);
  CHECK(hipStreamWaitEvent(streams[0], join, 0));
  CHECK(hipMemcpyPeerAsync(data[0], 0, data[1], 1, kBytes, streams[0]));
  CHECK(hipMemcpyAsync(out.data(), data[0], kBytes, hipMemcpyDeviceToHost, streams[0]));
  hipGraph_t graph;
  CHECK(hipStreamEndCapture(streams[0], &graph));
  hipGraphExec_t exec = instantiated(graph);
  for (int r = 0; r < rounds; r++) {
    CHECK(hipSetDevice(0));
    refill(in);
    std::fill(out.begin(), out.end(), 0);
    run(exec, streams[0]);
    Words expected = in;
    host_mix(expected, 3, 4);
    host_mix(expected, 5, 6);
    expect(out, expected, "over both devices", __LINE__);
  }
  CHECK(hipGraphExecDestroy(exec));
  CHECK(hipGraphDestroy(graph));
  for (int d = 0; d < 2; d++) {
    CHECK(hipSetDevice(d));
    CHECK(hipStreamDestroy(streams[d]));
    CHECK(hipFree(data[d]));
  }
  for (hipEvent_t event : {fork, join}) CHECK(hipEventDestroy(event));
}

extern "C" void nothing(void*) {}

// An executable graph that becomes like other graphs of its shape, in which one kind of node after the other differs: host memory
// that is read and written, values, events, children.
void whole_updates() {
  hipStream_t stream = new_stream(), second = new_stream();
  hipEvent_t events[2];
  for (hipEvent_t& event : events) CHECK(hipEventCreate(&event));
  DeviceWords data(kCount), other(kCount), flags(2);
  uint32_t* symbol;
  CHECK(hipGetSymbolAddress(reinterpret_cast<void**>(&symbol), HIP_SYMBOL(step_table)));
  Words in[2] = {Words(kCount), Words(kCount)}, out[2] = {Words(kCount), Words(kCount)};
  Words steps[2] = {Words(4), Words(4)}, read_steps[2] = {Words(4), Words(4)};
  // Bit k of `which`: the k-th kind of node is the second one's.
  auto make = [&](unsigned which) {
    auto is = [&](int kind) { return which >> kind & 1; };
    hipGraph_t graph = new_graph();
    hipGraphNode_t up = add_copy(graph, {}, data, in[is(0)].data(), hipMemcpyHostToDevice), node, last;
    Mix kernel(data, is(1) ? 5 : 3, is(1) ? 6 : 4);
    last = kernel.add(graph, {up});
    hipMemsetParams fill = {};
    fill.dst = is(2) ? static_cast<uint32_t*>(other) : static_cast<uint32_t*>(other) + 1;
    fill.elementSize = 4, fill.value = 77 + is(2), fill.width = 8, fill.height = 1;
    CHECK(hipGraphAddMemsetNode(&node, graph, &last, 1, &fill));
    last = node;
    CHECK(hipGraphAddMemcpyNodeToSymbol(&node, graph, &last, 1, HIP_SYMBOL(step_table), steps[is(3)].data(), 16, 0,
                                        hipMemcpyHostToDevice));
    last = node;
    CHECK(hipGraphAddMemcpyNodeFromSymbol(&node, graph, &last, 1, read_steps[is(4)].data(), HIP_SYMBOL(step_table), 16, 0,
                                          hipMemcpyDeviceToHost));
    last = node;
    hipGraph_t child = new_graph();
    hipGraphNode_t inner = add_copy(child, {}, out[is(5)].data(), data, hipMemcpyDeviceToHost);
    Mix in_child(data, is(5) ? 11 : 9, 1);
    in_child.add(child, {inner});
    CHECK(hipGraphAddChildGraphNode(&node, graph, &last, 1, child));
    CHECK(hipGraphDestroy(child));
    last = node;
    CHECK(hipGraphAddEventRecordNode(&node, graph, &last, 1, events[is(6)]));
    last = node;
    hipHostNodeParams host = {};
    host.fn = nothing;
    CHECK(hipGraphAddHostNode(&node, graph, &last, 1, &host));
    last = node;
    hip7::BatchMemOp write = {};
    write.operation = 2, write.address = static_cast<uint32_t*>(flags) + is(7), write.value = 1000 + which;
    hip7::BatchMemOpNode batch = {nullptr, 1, &write, 0};
    CHECK(hipCtxGetCurrent(reinterpret_cast<hipCtx_t*>(&batch.ctx)));
    CHECK(hipGraphAddBatchMemOpNode(&node, graph, &last, 1, &batch));
    last = node;
    CHECK(hipGraphAddEmptyNode(&node, graph, &last, 1));
    return graph;
  };
  hipGraph_t plain = make(0);
  hipGraphExec_t exec = instantiated(plain);
  CHECK(hipGraphDestroy(plain));
  Words device_out(kCount), seen(2);
  for (unsigned which : {0u, 1u, 2u, 4u, 8u, 16u, 32u, 64u, 128u, 255u, 0u, 33u, 24u}) {
    if (which || salt > 40) {
      hipGraph_t graph = make(which);
      update(exec, graph);
      CHECK(hipGraphDestroy(graph));
    }
    auto is = [&](int kind) { return which >> kind & 1; };
    for (int i = 0; i < 2; i++) {
      refill(in[i]), refill(steps[i]), refill(out[i]), refill(read_steps[i]);
    }
    const Words base = fresh(), kept_out = out[!is(5)], kept_steps = read_steps[!is(4)];
    upload(other, base);
    CHECK(hipMemset(flags, 0, 8));
    CHECK(hipDeviceSynchronize());
    CHECK(hipGraphLaunch(exec, stream));
    CHECK(hipStreamWaitEvent(second, events[is(6)], 0));
    CHECK(hipMemcpyAsync(device_out.data(), data, kBytes, hipMemcpyDeviceToHost, second));
    CHECK(hipStreamSynchronize(second));
    CHECK(hipStreamSynchronize(stream));
    Words expected = in[is(0)], filled = base;
    host_mix(expected, is(1) ? 5 : 3, is(1) ? 6 : 4);
    expect(out[is(5)], expected, "copied by the child", __LINE__);
    expect(out[!is(5)], kept_out, "not copied to", __LINE__);
    host_mix(expected, is(5) ? 11 : 9, 1);
    expect(device_out, expected, "behind the event", __LINE__);
    for (int i = 0; i < 8; i++) filled[i + !is(2)] = 77 + is(2);
    EXPECT_WORDS(other, filled);
    expect(read_steps[is(4)], steps[is(3)], "by the variable", __LINE__);
    expect(read_steps[!is(4)], kept_steps, "not read to", __LINE__);
    CHECK(hipMemcpy(seen.data(), flags, 8, hipMemcpyDeviceToHost));
    REQUIRE(seen[is(7)] == 1000 + which && seen[!is(7)] == 0, "written %u %u", seen[0], seen[1]);
  }
  CHECK(hipGraphExecDestroy(exec));
  for (hipEvent_t event : events) CHECK(hipEventDestroy(event));
  for (hipStream_t s : {stream, second}) CHECK(hipStreamDestroy(s));
}

// Children of executable graphs that are exchanged, with other host memory; changed by their own handle before; two deep; and
// added by the parameters of a node alone.
void exchanged_children() {
  hipStream_t stream = new_stream();
  DeviceWords data(kCount);
  Words in[3] = {Words(kCount), Words(kCount), Words(kCount)}, out[3] = {Words(kCount), Words(kCount), Words(kCount)};
  auto child_of = [&](int i, uint32_t factor) {
    hipGraph_t child = new_graph();
    hipGraphNode_t up = add_copy(child, {}, data, in[i].data(), hipMemcpyHostToDevice);
    Mix kernel(data, factor, 1);
    hipGraphNode_t node = kernel.add(child, {up});
    add_copy(child, {node}, out[i].data(), data, hipMemcpyDeviceToHost);
    return child;
  };
  auto check = [&](hipGraphExec_t exec, int i, int to, uint32_t factor, int line) {
    for (int r = 0; r < 2; r++) {
      for (int k = 0; k < 3; k++) refill(in[k]), refill(out[k]);
      Words before[3] = {out[0], out[1], out[2]}, expected = in[i];
      run(exec, stream);
      host_mix(expected, factor, 1);
      before[to] = expected;
      for (int k = 0; k < 3; k++) expect(out[k], before[k], "child", line);
    }
  };
  for (int way = 0; way < 3; way++) {
    hipGraph_t children[3] = {child_of(0, 3), child_of(1, 5), child_of(2, 7)};
    hipGraph_t graph = new_graph(), middle = new_graph();
    hipGraphNode_t node, empty;
    CHECK(hipGraphAddEmptyNode(&empty, graph, nullptr, 0));
    if (way == 2) {
      hip7::NodeParams params = {};
      params.type = 4;
      params.words[0] = reinterpret_cast<uint64_t>(children[0]);
      CHECK(hipGraphAddNode(&node, graph, &empty, 1, &params));
    } else {
      CHECK(hipGraphAddChildGraphNode(&node, graph, &empty, 1, children[0]));
    }
    hipGraphExec_t exec = instantiated(graph);
    check(exec, 0, 0, 3, __LINE__);
    CHECK(hipGraphExecChildGraphNodeSetParams(exec, node, children[1]));
    check(exec, 1, 1, 5, __LINE__);
    CHECK(hipGraphExecChildGraphNodeSetParams(exec, node, children[2]));
    check(exec, 2, 2, 7, __LINE__);
    // The graph itself has the first one still; its copy of it is changed by its own handle.
    hipGraphExec_t again = instantiated(graph);
    check(again, 0, 0, 3, __LINE__);
    if (way == 1) {
      hipGraph_t inner;
      CHECK(hipGraphChildGraphNodeGetGraph(node, &inner));
      hipGraphNode_t nodes[3], roots[1];
      size_t count = 3, root_count = 1;
      CHECK(hipGraphGetNodes(inner, nodes, &count));
      CHECK(hipGraphGetRootNodes(inner, roots, &root_count));
      REQUIRE(count == 3 && root_count == 1, "%zu nodes", count);
      CHECK(hipGraphMemcpyNodeSetParams1D(roots[0], data, in[2].data(), kBytes, hipMemcpyHostToDevice));
      hipGraphExec_t changed = instantiated(graph);
      check(changed, 2, 0, 3, __LINE__);
      CHECK(hipGraphExecDestroy(changed));
    }
    // Two deep.
    hipGraphNode_t in_middle;
    CHECK(hipGraphAddChildGraphNode(&in_middle, middle, nullptr, 0, graph));
    hipGraphExec_t deep = instantiated(middle);
    if (way != 1) check(deep, 0, 0, 3, __LINE__);
    else check(deep, 2, 0, 3, __LINE__);
    for (hipGraphExec_t e : {exec, again, deep}) CHECK(hipGraphExecDestroy(e));
    for (hipGraph_t g : {graph, middle, children[0], children[1], children[2]}) CHECK(hipGraphDestroy(g));
  }
  CHECK(hipStreamDestroy(stream));
}

// Copies of host memory that are switched off and on again.
void switched_copies() {
  hipStream_t stream = new_stream();
  DeviceWords data(kCount);
  Words in(kCount), out(kCount), held = fresh();
  hipGraph_t graph = new_graph();
  hipGraphNode_t up = add_copy(graph, {}, data, in.data(), hipMemcpyHostToDevice);
  Mix kernel(data, 3, 5);
  hipGraphNode_t middle = kernel.add(graph, {up});
  hipGraphNode_t down = add_copy(graph, {middle}, out.data(), data, hipMemcpyDeviceToHost);
  hipGraphExec_t exec = instantiated(graph);
  upload(data, held);
  for (int r = 0; r < 8; r++) {
    const bool reads = r % 2 == 0, writes = r / 2 % 2 == 0;
    CHECK(hipGraphNodeSetEnabled(exec, up, reads));
    CHECK(hipGraphNodeSetEnabled(exec, down, writes));
    refill(in), refill(out);
    const Words before = out;
    run(exec, stream);
    if (reads) held = in;
    host_mix(held, 3, 5);
    expect(out, writes ? held : before, "copies on and off", __LINE__);
    EXPECT_WORDS(data, held);
  }
  CHECK(hipGraphExecDestroy(exec));
  CHECK(hipGraphDestroy(graph));
  CHECK(hipStreamDestroy(stream));
}

// Nodes that came out of a capture, or a clone, found by listing them: changed in the graph and in the executable one.
void found_nodes() {
  hipStream_t stream = new_stream();
  DeviceWords data(kCount);
  Words in[2] = {Words(kCount), Words(kCount)}, out[2] = {Words(kCount), Words(kCount)};
  for (int way = 0; way < 3; way++) {
    hipGraph_t graph;
    CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeRelaxed));
    CHECK(hipMemcpyAsync(data, in[0].data(), kBytes, hipMemcpyHostToDevice, stream));
    LAUNCH(mix, blocks_for(kCount), kThreads, 0, stream, data, 3, 4, kCount);
    CHECK(hipMemcpyAsync(out[0].data(), data, kBytes, hipMemcpyDeviceToHost, stream));
    CHECK(hipStreamEndCapture(stream, &graph));
    if (way == 2) {
      hipGraph_t clone;
      CHECK(hipGraphClone(&clone, graph));
      CHECK(hipGraphDestroy(graph));
      graph = clone;
    }
    hipGraphNode_t nodes[3], up = nullptr, down = nullptr;
    size_t count = 3;
    CHECK(hipGraphGetNodes(graph, nodes, &count));
    for (size_t i = 0; i < count; i++) {
      hipGraphNodeType type;
      CHECK(hipGraphNodeGetType(nodes[i], &type));
      if (int(type) != 1) continue;  // A copy, whatever the headers of older versions call it.
      size_t before = 0;
      CHECK(hipGraphNodeGetDependencies(nodes[i], nullptr, &before));
      (before == 0 ? up : down) = nodes[i];
    }
    hipGraphExec_t exec = instantiated(graph);
    if (way == 0) {
      CHECK(hipGraphExecMemcpyNodeSetParams1D(exec, up, data, in[1].data(), kBytes, hipMemcpyHostToDevice));
      CHECK(hipGraphExecMemcpyNodeSetParams1D(exec, down, out[1].data(), data, kBytes, hipMemcpyDeviceToHost));
    } else {
      CHECK(hipGraphMemcpyNodeSetParams1D(up, data, in[1].data(), kBytes, hipMemcpyHostToDevice));
      CHECK(hipGraphMemcpyNodeSetParams1D(down, out[1].data(), data, kBytes, hipMemcpyDeviceToHost));
      update(exec, graph);
    }
    for (int r = 0; r < rounds; r++) {
      for (int k = 0; k < 2; k++) refill(in[k]), refill(out[k]);
      Words kept = out[0], expected = in[1];
      run(exec, stream);
      host_mix(expected, 3, 4);
      expect(out[1], expected, "found by listing", __LINE__);
      expect(out[0], kept, "no longer written", __LINE__);
    }
    CHECK(hipGraphExecDestroy(exec));
    CHECK(hipGraphDestroy(graph));
  }
  CHECK(hipStreamDestroy(stream));
}

// Nodes added by hand to a capture under way, behind those that the runtime tells of; a capture into a graph that has nodes; a
// graph launched inside a capture.
void captured_by_hand() {
  hipStream_t stream = new_stream();
  DeviceWords data(kCount);
  Words in(kCount), out(kCount);
  auto check = [&](hipGraphExec_t exec, const std::vector<std::pair<uint32_t, uint32_t>>& steps, int line) {
    for (int r = 0; r < 2; r++) {
      refill(in), refill(out);
      Words expected = in;
      run(exec, stream);
      for (auto [factor, addend] : steps) host_mix(expected, factor, addend);
      expect(out, expected, "captured", line);
    }
  };
  std::vector<hipGraphExec_t> execs;
  for (int way = 0; way < 2; way++) {
    Mix first(data, 3, 4), second(data, 5, 6);
    CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeRelaxed));
    CHECK(hipMemcpyAsync(data, in.data(), kBytes, hipMemcpyHostToDevice, stream));
    hipStreamCaptureStatus status;
    unsigned long long id;
    hipGraph_t graph;
    const hipGraphNode_t* told;
    size_t count = 0;
    CHECK(hipStreamGetCaptureInfo_v2(stream, &status, &id, &graph, &told, &count));
    REQUIRE(status == hipStreamCaptureStatusActive && count == 1, "%zu nodes", count);
    hipGraphNode_t last = second.add(graph, {first.add(graph, {told, told + count})});
    CHECK(hipStreamUpdateCaptureDependencies(stream, &last, 1, 1));
    CHECK(hipMemcpyAsync(out.data(), data, kBytes, hipMemcpyDeviceToHost, stream));
    CHECK(hipStreamEndCapture(stream, &graph));
    execs.push_back(instantiated(graph));
    check(execs.back(), {{3, 4}, {5, 6}}, __LINE__);
    // Its handles are given out again.
    CHECK(hipGraphDestroy(graph));
  }
  hipGraph_t graph = new_graph(), found;
  hipGraphNode_t up = add_copy(graph, {}, data, in.data(), hipMemcpyHostToDevice);
  CHECK(hipStreamBeginCaptureToGraph(stream, graph, &up, nullptr, 1, hipStreamCaptureModeRelaxed));
  LAUNCH(mix, blocks_for(kCount), kThreads, 0, stream, data, 7, 8, kCount);
  CHECK(hipMemcpyAsync(out.data(), data, kBytes, hipMemcpyDeviceToHost, stream));
  CHECK(hipStreamEndCapture(stream, &found));
  REQUIRE(found == graph, "another graph");
  execs.push_back(instantiated(graph));
  check(execs.back(), {{7, 8}}, __LINE__);
  CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeRelaxed));
  const hipError_t launched = hipGraphLaunch(execs.back(), stream);
  // NVIDIA's driver captures no executable graph.
  if (launched == hipErrorStreamCaptureUnsupported) {
    (void)hipStreamEndCapture(stream, &found);
    (void)hipGetLastError();
  } else {
    CHECK(launched);
    LAUNCH(mix, blocks_for(kCount), kThreads, 0, stream, data, 9, 1, kCount);
    CHECK(hipMemcpyAsync(out.data(), data, kBytes, hipMemcpyDeviceToHost, stream));
    CHECK(hipStreamEndCapture(stream, &found));
    execs.push_back(instantiated(found));
    check(execs.back(), {{7, 8}, {9, 1}}, __LINE__);
    CHECK(hipGraphDestroy(found));
  }
  for (hipGraphExec_t exec : execs) CHECK(hipGraphExecDestroy(exec));
  CHECK(hipGraphDestroy(graph));
  CHECK(hipStreamDestroy(stream));
}

// Events that launches record, for which another thread's stream, the host, or a question waits.
void launch_events() {
  hipStream_t streams[2] = {new_stream(), new_stream()};
  hipEvent_t start, stop;
  CHECK(hipEventCreate(&start));
  CHECK(hipEventCreate(&stop));
  DeviceWords data(kCount), slow(64);
  CHECK(hipMemset(slow, 1, 256));
  Words expected = fresh();
  upload(data, expected);
  CHECK(hipDeviceSynchronize());
  Turns turns;
  run_threads(2, [&](int thread) {
    for (int r = 0; r < 2 * rounds; r++)
      turns.take(2 * r + thread, [&] {
        if (thread == 0) {
          Mix launched(data, 5, 6);
          LAUNCH(busy, 1, 64, 0, streams[0], slow, 30000, 64);
          CHECK(hipExtLaunchKernel(launched.params.func, launched.params.gridDim, launched.params.blockDim, launched.list, 0,
                                   streams[0], start, stop, 0));
          return host_mix(expected, 5, 6);
        }
        if (r % 3 == 0) CHECK(hipStreamWaitEvent(streams[1], stop, 0));
        if (r % 3 == 1) CHECK(hipEventSynchronize(stop));
        if (r % 3 == 2)
          while (hipEventQuery(stop) == hipErrorNotReady) std::this_thread::yield();
        LAUNCH(mix, blocks_for(kCount), kThreads, 0, streams[1], data, 9, 10, kCount);
        CHECK(hipStreamSynchronize(streams[1]));
        host_mix(expected, 9, 10);
        EXPECT_WORDS(data, expected);
      });
  });
  for (hipEvent_t event : {start, stop}) CHECK(hipEventDestroy(event));
  for (hipStream_t stream : streams) CHECK(hipStreamDestroy(stream));
}

// A call that another thread's capture forbids fails, and the capture with it; then one that succeeds.
void forbidden_calls() {
  hipStream_t stream = new_stream();
  DeviceWords data(kCount);
  Words expected = fresh();
  upload(data, expected);
  Turns turns;
  run_threads(2, [&](int thread) {
    for (int r = 0; r < rounds; r++) {
      if (thread == 1) {
        turns.take(3 * r + 1, [&] {
          void* memory = nullptr;
          const hipError_t error = hipMalloc(&memory, 4096);
          REQUIRE((error == hipSuccess) == (r % 2 == 1), "%s", hipGetErrorName(error));
          if (memory != nullptr) CHECK(hipFree(memory));
          (void)hipGetLastError();
        });
        continue;
      }
      turns.take(3 * r, [&] {
        CHECK(hipStreamBeginCapture(stream, r % 2 ? hipStreamCaptureModeRelaxed : hipStreamCaptureModeGlobal));
        LAUNCH(mix, blocks_for(kCount), kThreads, 0, stream, data, 5, 6, kCount);
      });
      turns.take(3 * r + 2, [&] {
        mix<<<dim3(blocks_for(kCount)), dim3(kThreads), 0, stream>>>(data, 7, 8, kCount);
        (void)hipGetLastError();
        hipGraph_t graph = nullptr;
        const hipError_t error = hipStreamEndCapture(stream, &graph);
        REQUIRE((error == hipSuccess) == (r % 2 == 1), "%s", hipGetErrorName(error));
        (void)hipGetLastError();
        if (error == hipSuccess) {
          hipGraphExec_t exec = instantiated(graph);
          run(exec, stream);
          host_mix(expected, 5, 6);
          host_mix(expected, 7, 8);
          CHECK(hipGraphExecDestroy(exec));
          CHECK(hipGraphDestroy(graph));
        }
        EXPECT_WORDS(data, expected);
      });
    }
  });
  CHECK(hipStreamDestroy(stream));
}

using Case = std::function<void()>;
const std::map<std::string, Case> cases = {
    {"external_events", external_events},         {"middle_events", middle_events},
    {"launches_on_devices", launches_on_devices}, {"capture_on_devices", capture_on_devices},
    {"whole_updates", whole_updates},             {"exchanged_children", exchanged_children},
    {"switched_copies", switched_copies},         {"found_nodes", found_nodes},
    {"captured_by_hand", captured_by_hand},       {"forbidden_calls", forbidden_calls},
    {"launch_events", launch_events},
};

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "";
  rounds = argument(argc, argv, 2, rounds);
  int devices = 0, made = 0;
  CHECK(hipGetDeviceCount(&devices));
  for (const auto& [of, run_case] : cases) {
    if ((!name.empty() && name != of) || (devices < 2 && of.find("on_devices") != std::string::npos)) continue;
    run_case();
    CHECK(hipSetDevice(0));
    made++;
  }
  REQUIRE(made > 0, "no case '%s'", name.c_str());
  std::printf("graph_changes: ok, %d cases\n", made);
}
