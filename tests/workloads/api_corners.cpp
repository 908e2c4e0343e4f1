// Calls of the memory, graph, launch and stream interfaces in combinations of which each has a name; all of them without one.
// usage: api_corners [CASE] [rounds]
#include <functional>
#include <map>

#include "sweep.hpp"

extern "C" {
hipError_t hipConfigureCall(dim3, dim3, size_t, hipStream_t);
hipError_t hipSetupArgument(const void*, size_t, size_t);
hipError_t hipLaunchByPtr(const void*);
}

namespace {

constexpr int kCount = 600;
constexpr size_t kBytes = kCount * 4;
int rounds = 3;
uint32_t salt = 1;

unsigned blocks() { return blocks_for(kCount); }
Words fresh(size_t count = kCount) { return pattern(count, salt++); }
void store(uint32_t* to, const Words& words) { std::copy(words.begin(), words.end(), to); }

hipStream_t new_stream() {
  hipStream_t stream;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  return stream;
}

struct Pinned {
  explicit Pinned(size_t count) {
    CHECK(hipHostMalloc(reinterpret_cast<void**>(&host), count * 4, hipHostMallocMapped));
    CHECK(hipHostGetDevicePointer(reinterpret_cast<void**>(&device), host, 0));
  }
  ~Pinned() { CHECK(hipHostFree(host)); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  uint32_t *host, *device;
};

// What a kernel node launches: mix on `pointer`.
struct Mix {
  Mix(uint32_t* pointer, uint32_t factor, uint32_t addend) : pointer(pointer), factor(factor), addend(addend) {
    params.func = reinterpret_cast<void*>(mix);
    params.gridDim = dim3(blocks()), params.blockDim = dim3(kThreads);
    params.kernelParams = list;
  }
  Mix(const Mix&) = delete;
  Mix& operator=(const Mix&) = delete;
  uint32_t* pointer;
  uint32_t factor, addend;
  int count = kCount;
  void* list[4] = {&pointer, &factor, &addend, &count};
  hipKernelNodeParams params = {};
};

// Copies that a struct describes, into pinned memory that the next kernel reads directly.
void struct_copies() {
  hipStream_t stream = new_stream();
  DeviceWords source(kCount), target(kCount);
  Pinned pinned(2 * kCount);
  const int width = 20, rows = kCount / width;
  for (int r = 0; r < rounds; r++)
    for (int way = 0; way < 4; way++) {
      const Words words = fresh(), base = fresh();
      store(pinned.host, fresh(2 * kCount));
      upload(source, words);
      upload(target, base);
      uint32_t* const to = pinned.host + (way % 2) * kCount;
      if (way == 0) {
        hipMemcpy3DParms copy = {};
        copy.srcPtr = make_hipPitchedPtr(static_cast<uint32_t*>(source), width * 4, width * 4, rows);
        copy.dstPtr = make_hipPitchedPtr(to, width * 4, width * 4, rows);
        copy.extent = make_hipExtent(width * 4, rows, 1), copy.kind = hipMemcpyDeviceToHost;
        CHECK(hipMemcpy3DAsync(&copy, stream));
      } else if (way == 1) {
        hip7::Memcpy2D copy = {};
        copy.srcType = hip7::kMemoryDevice, copy.srcDevice = source, copy.srcPitch = width * 4;
        copy.dstType = hip7::kMemoryHost, copy.dstHost = pinned.host, copy.dstPitch = width * 4;
        copy.dstY = rows, copy.width = width * 4, copy.height = rows;
        CHECK(hipMemcpyParam2DAsync(reinterpret_cast<hip_Memcpy2D*>(&copy), stream));
      } else if (way == 2) {
        hip7::Memcpy3D copy = {};
        copy.srcType = hip7::kMemoryDevice, copy.srcDevice = source, copy.srcPitch = width * 4, copy.srcHeight = rows;
        copy.dstType = hip7::kMemoryHost, copy.dstHost = to, copy.dstPitch = width * 4, copy.dstHeight = rows;
        copy.width = width * 4, copy.height = rows, copy.depth = 1;
        CHECK(hipDrvMemcpy3DAsync(reinterpret_cast<HIP_MEMCPY3D*>(&copy), stream));
      } else {
        CHECK(hipMemcpy2DAsync(to, width * 4, source, width * 4, width * 4, rows, hipMemcpyDeviceToHost, stream));
      }
      LAUNCH(mix_from, blocks(), kThreads, 0, stream, target, pinned.device + (to - pinned.host), 5, kCount);
      Words expected = base;
      host_mix_from(expected, words, 5);
      CHECK(hipStreamSynchronize(stream));
      EXPECT_WORDS(target, expected);
      require_equal(to, words.data(), kCount, "what the copy left", __LINE__, __FILE__);
    }
  CHECK(hipStreamDestroy(stream));
}

// Launches put together call by call, whose kernels read and write pinned memory directly; one of two begun before the other.
void configured() {
  hipStream_t streams[2] = {new_stream(), new_stream()};
  Pinned pinned[2] = {Pinned(kCount), Pinned(kCount)};
  Words state[2] = {fresh(), fresh()};
  for (int i = 0; i < 2; i++) store(pinned[i].host, state[i]);
  const uint32_t factor = 7, addend = 3;
  const int n = kCount;
  auto arguments = [&](int i) {
    uint32_t* const pointer = pinned[i].device;
    CHECK(hipSetupArgument(&pointer, 8, 0));
    CHECK(hipSetupArgument(&factor, 4, 8));
    CHECK(hipSetupArgument(&addend, 4, 12));
    CHECK(hipSetupArgument(&n, 4, 16));
  };
  for (int r = 0; r < rounds; r++) {
    for (int i = 0; i < 2; i++) {
      CHECK(hipConfigureCall(dim3(blocks()), dim3(kThreads), 0, streams[i]));
      arguments(i);
      CHECK(hipLaunchByPtr(reinterpret_cast<const void*>(mix)));
      host_mix(state[i], factor, addend);
    }
    for (int i = 0; i < 2; i++) {
      CHECK(hipStreamSynchronize(streams[i]));
      require_equal(pinned[i].host, state[i].data(), kCount, "written directly", __LINE__, __FILE__);
      // The next launch reads what the host stores now.
      state[i][r] = pinned[i].host[r] = 77u + r;
    }
  }
  for (hipStream_t stream : streams) CHECK(hipStreamDestroy(stream));
}

// Graphs that copy between arrays and host memory, pageable and with gaps between the rows.
void array_graphs() {
  hipStream_t stream = new_stream();
  const int width = 24, height = 10, pitch = 31;
  hipChannelFormatDesc format = hipCreateChannelDesc(32, 0, 0, 0, hipChannelFormatKindUnsigned);
  hipArray_t array;
  CHECK(hipMallocArray(&array, &format, width, height, hipArrayDefault));
  Words in(pitch * height), out(pitch * height);
  hipGraph_t graph;
  CHECK(hipGraphCreate(&graph, 0));
  hipMemcpy3DParms up = {}, down = {};
  up.srcPtr = make_hipPitchedPtr(in.data(), pitch * 4, width * 4, height);
  up.dstArray = array, up.extent = make_hipExtent(width, height, 1), up.kind = hipMemcpyHostToDevice;
  down.srcArray = array, down.dstPtr = make_hipPitchedPtr(out.data(), pitch * 4, width * 4, height);
  down.extent = up.extent, down.kind = hipMemcpyDeviceToHost;
  hipGraphNode_t first, last;
  CHECK(hipGraphAddMemcpyNode(&first, graph, nullptr, 0, &up));
  CHECK(hipGraphAddMemcpyNode(&last, graph, &first, 1, &down));
  hipGraphExec_t exec;
  CHECK(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
  for (int r = 0; r < 2 * rounds; r++) {
    if (r == rounds) {
      // The host's rows follow each other without gaps from now on.
      up.srcPtr = make_hipPitchedPtr(in.data(), width * 4, width * 4, height);
      CHECK(hipGraphExecMemcpyNodeSetParams(exec, first, &up));
    }
    const size_t step = r < rounds ? pitch : width;
    store(in.data(), fresh(in.size()));
    Words expected = fresh(out.size());
    store(out.data(), expected);
    for (int y = 0; y < height; y++)
      for (int x = 0; x < width; x++) expected[y * pitch + x] = in[y * step + x];
    CHECK(hipGraphLaunch(exec, stream));
    CHECK(hipStreamSynchronize(stream));
    REQUIRE_EQUAL(out, expected, "through an array");
  }
  CHECK(hipGraphExecDestroy(exec));
  CHECK(hipGraphDestroy(graph));
  CHECK(hipFreeArray(array));
  CHECK(hipStreamDestroy(stream));
}

// Pieces of one pageable buffer that overlap without one holding the other: a node reads part of what another has written.
void overlapping_pieces() {
  hipStream_t stream = new_stream();
  DeviceWords first(kCount), second(kCount);
  Words host(3 * kCount);
  hipGraph_t graph;
  CHECK(hipGraphCreate(&graph, 0));
  hipGraphNode_t down, up, again, longer;
  const auto to_host = hipMemcpyDeviceToHost, to_device = hipMemcpyHostToDevice;
  CHECK(hipGraphAddMemcpyNode1D(&down, graph, nullptr, 0, host.data() + 100, first, kBytes, to_host));
  CHECK(hipGraphAddMemcpyNode1D(&up, graph, &down, 1, second, host.data() + 400, kBytes, to_device));
  CHECK(hipGraphAddMemcpyNode1D(&again, graph, &up, 1, host.data() + 900, second, kBytes, to_host));
  CHECK(hipGraphAddMemcpyNode1D(&longer, graph, &again, 1, first, host.data() + 300, kBytes, to_device));
  hipGraphExec_t exec;
  CHECK(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
  Words device = fresh();
  upload(first, device);
  for (int r = 0; r < rounds; r++) {
    Words expected = fresh(host.size());
    store(host.data(), expected);
    std::copy(device.begin(), device.end(), expected.begin() + 100);
    const Words middle(expected.begin() + 400, expected.begin() + 400 + kCount);
    std::copy(middle.begin(), middle.end(), expected.begin() + 900);
    device.assign(expected.begin() + 300, expected.begin() + 300 + kCount);
    CHECK(hipGraphLaunch(exec, stream));
    CHECK(hipStreamSynchronize(stream));
    REQUIRE_EQUAL(host, expected, "pieces that overlap");
    EXPECT_WORDS(first, device);
    EXPECT_WORDS(second, middle);
  }
  CHECK(hipGraphExecDestroy(exec));
  CHECK(hipGraphDestroy(graph));
  CHECK(hipStreamDestroy(stream));
}

// Launches that name their stream in a struct: captured, beside one that is not, and on the thread's own default stream.
void struct_streams() {
  hipStream_t captured = new_stream(), plain = new_stream();
  DeviceWords data(kCount), other(kCount);
  Words expected = fresh(), beside = fresh();
  upload(data, expected);
  upload(other, beside);
  Mix on_data(data, 3, 1), on_other(other, 5, 2);
  hip7::LaunchConfig config = {dim3(blocks()), dim3(kThreads), 0, captured, nullptr, 0};
  hipGraph_t graph;
  CHECK(hipStreamBeginCapture(captured, hipStreamCaptureModeRelaxed));
  CHECK(hipLaunchKernelExC(&config, reinterpret_cast<const void*>(mix), on_data.list));
  on_data.factor = 7;
  hipLaunchParams launch = {};
  launch.func = reinterpret_cast<void*>(mix), launch.gridDim = config.grid, launch.blockDim = config.block;
  launch.args = on_data.list, launch.stream = captured;
  CHECK(hipLaunchCooperativeKernelMultiDevice(&launch, 1, 0));
  // Not captured.
  config.stream = plain;
  CHECK(hipLaunchKernelExC(&config, reinterpret_cast<const void*>(mix), on_other.list));
  CHECK(hipStreamEndCapture(captured, &graph));
  host_mix(beside, 5, 2);
  size_t nodes = 0;
  CHECK(hipGraphGetNodes(graph, nullptr, &nodes));
  REQUIRE(nodes == 2, "%zu nodes", nodes);
  hipGraphExec_t exec;
  CHECK(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
  for (int r = 0; r < rounds; r++) {
    CHECK(hipGraphLaunch(exec, plain));
    host_mix(expected, 3, 1);
    host_mix(expected, 7, 1);
  }
  CHECK(hipStreamSynchronize(plain));
  EXPECT_WORDS(data, expected);
  EXPECT_WORDS(other, beside);
  config.stream = hipStreamPerThread;
  on_other.factor = 9;
  CHECK(hipLaunchKernelExC(&config, reinterpret_cast<const void*>(mix), on_other.list));
  CHECK(hipStreamSynchronize(hipStreamPerThread));
  host_mix(beside, 9, 2);
  EXPECT_WORDS(other, beside);
  CHECK(hipGraphExecDestroy(exec));
  CHECK(hipGraphDestroy(graph));
  for (hipStream_t stream : {captured, plain}) CHECK(hipStreamDestroy(stream));
}

// A graph with memory of its own, whose copy and fill are changed in the executable graph, and which is updated to a clone.
void memory_nodes() {
  hipStream_t stream = new_stream();
  DeviceWords out(kCount), other(kCount);
  hipGraph_t graph;
  CHECK(hipGraphCreate(&graph, 0));
  hip7::AllocNode params = {};
  params.props.allocType = 1, params.props.location = {hip7::kLocationDevice, 0};
  params.bytes = kBytes;
  hipGraphNode_t allocate, fill, kernel, copy, release;
  CHECK(hipGraphAddMemAllocNode(&allocate, graph, nullptr, 0, &params));
  uint32_t* const memory = static_cast<uint32_t*>(params.pointer);
  hipMemsetParams set = {};
  set.dst = memory, set.elementSize = 4, set.value = 11, set.width = kCount, set.height = 1;
  CHECK(hipGraphAddMemsetNode(&fill, graph, &allocate, 1, &set));
  Mix work(memory, 3, 1);
  CHECK(hipGraphAddKernelNode(&kernel, graph, &fill, 1, &work.params));
  CHECK(hipGraphAddMemcpyNode1D(&copy, graph, &kernel, 1, out, memory, kBytes, hipMemcpyDeviceToDevice));
  CHECK(hipGraphAddMemFreeNode(&release, graph, &copy, 1, memory));
  hipGraphExec_t exec;
  CHECK(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
  auto run = [&](uint32_t* where, uint32_t first, uint32_t factor) {
    CHECK(hipGraphLaunch(exec, stream));
    CHECK(hipStreamSynchronize(stream));
    Words expected(kCount, first);
    host_mix(expected, factor, 1);
    EXPECT_WORDS(where, expected);
  };
  for (int r = 0; r < rounds; r++) {
    run(r == 0 ? out : other, r == 0 ? 11 : 20 + r - 1, r == 0 ? 3 : 5 + r - 1);
    set.value = 20 + r;
    CHECK(hipGraphExecMemsetNodeSetParams(exec, fill, &set));
    work.factor = 5 + r;
    CHECK(hipGraphExecKernelNodeSetParams(exec, kernel, &work.params));
    CHECK(hipGraphExecMemcpyNodeSetParams1D(exec, copy, other, memory, kBytes, hipMemcpyDeviceToDevice));
  }
  CHECK(hipGraphExecDestroy(exec));
  CHECK(hipGraphDestroy(graph));
  CHECK(hipStreamDestroy(stream));
}

// A child graph whose clone is changed by nodes that were found by listing it.
void changed_clones() {
  hipStream_t stream = new_stream();
  DeviceWords data(kCount);
  Words expected = fresh();
  upload(data, expected);
  hipGraph_t child, parent, clone;
  CHECK(hipGraphCreate(&child, 0));
  hipGraphNode_t nodes[2], in_parent, tail;
  Mix first(data, 3, 1), second(data, 5, 2), last(data, 9, 4);
  CHECK(hipGraphAddKernelNode(&nodes[0], child, nullptr, 0, &first.params));
  CHECK(hipGraphAddKernelNode(&nodes[1], child, &nodes[0], 1, &second.params));
  CHECK(hipGraphCreate(&parent, 0));
  CHECK(hipGraphAddChildGraphNode(&in_parent, parent, nullptr, 0, child));
  CHECK(hipGraphAddKernelNode(&tail, parent, &in_parent, 1, &last.params));
  CHECK(hipGraphClone(&clone, child));
  hipGraphNode_t found[2];
  size_t count = 2;
  CHECK(hipGraphGetNodes(clone, found, &count));
  REQUIRE(count == 2, "%zu nodes", count);
  size_t roots = 1;
  hipGraphNode_t root;
  CHECK(hipGraphGetRootNodes(clone, &root, &roots));
  hipGraphNode_t const other = found[0] == root ? found[1] : found[0];
  first.factor = 11, second.factor = 13;
  CHECK(hipGraphKernelNodeSetParams(root, &first.params));
  CHECK(hipGraphKernelNodeSetParams(other, &second.params));
  // And one more behind what was listed.
  hipGraphNode_t added;
  CHECK(hipGraphAddKernelNode(&added, clone, &other, 1, &last.params));
  hipGraphExec_t execs[2];
  CHECK(hipGraphInstantiate(&execs[0], parent, nullptr, nullptr, 0));
  CHECK(hipGraphInstantiate(&execs[1], clone, nullptr, nullptr, 0));
  for (int r = 0; r < rounds; r++) {
    CHECK(hipGraphLaunch(execs[r % 2], stream));
    const uint32_t factors[2][2] = {{3, 5}, {11, 13}};
    host_mix(expected, factors[r % 2][0], 1);
    host_mix(expected, factors[r % 2][1], 2);
    host_mix(expected, 9, 4);
    CHECK(hipStreamSynchronize(stream));
    EXPECT_WORDS(data, expected);
  }
  for (hipGraphExec_t exec : execs) CHECK(hipGraphExecDestroy(exec));
  for (hipGraph_t graph : {clone, parent, child}) CHECK(hipGraphDestroy(graph));
  CHECK(hipStreamDestroy(stream));
}

// A range of several pieces, one of which is taken out and mapped elsewhere, and mapped twice at once; two threads by turns.
void partial_mappings() {
  hipMemAllocationProp wanted = {};
  wanted.type = hipMemAllocationTypePinned;
  wanted.location.type = hipMemLocationTypeDevice;
  size_t size = 0;
  CHECK(hipMemGetAllocationGranularity(&size, &wanted, hipMemAllocationGranularityMinimum));
  hipMemGenericAllocationHandle_t memory[3];
  for (auto& handle : memory) CHECK(hipMemCreate(&handle, size, &wanted, 0));
  void *range = nullptr, *second = nullptr;
  CHECK(hipMemAddressReserve(&range, 3 * size, 0, nullptr, 0));
  CHECK(hipMemAddressReserve(&second, size, 0, nullptr, 0));
  char* const base = static_cast<char*>(range);
  for (int i = 0; i < 3; i++) CHECK(hipMemMap(base + i * size, size, 0, memory[i], 0));
  hipMemAccessDesc access = {};
  access.location = wanted.location, access.flags = hipMemAccessFlagsProtReadWrite;
  CHECK(hipMemSetAccess(base, 3 * size, &access, 1));
  uint32_t* const middle = reinterpret_cast<uint32_t*>(base + size);
  uint32_t* const again = static_cast<uint32_t*>(second);
  Words expected = fresh();
  upload(middle, expected);
  // The same memory under two addresses.
  CHECK(hipMemMap(second, size, 0, memory[1], 0));
  CHECK(hipMemSetAccess(second, size, &access, 1));
  Turns turns;
  run_threads(2, [&](int t) {
    hipStream_t stream = new_stream();
    for (int r = 0; r < rounds; r++)
      turns.take(2 * r + t, [&] {
        LAUNCH(mix, blocks(), kThreads, 0, stream, t == 0 ? middle : again, factor_of(t, r), 3, kCount);
        CHECK(hipStreamSynchronize(stream));
      });
    CHECK(hipStreamDestroy(stream));
  });
  for (int r = 0; r < rounds; r++)
    for (int t = 0; t < 2; t++) host_mix(expected, factor_of(t, r), 3);
  EXPECT_WORDS(middle, expected);
  // Only the middle goes; what lies around it stays, and it stays under its other address.
  CHECK(hipMemUnmap(middle, size));
  EXPECT_WORDS(again, expected);
  CHECK(hipMemMap(middle, size, 0, memory[0], 0));
  CHECK(hipMemSetAccess(middle, size, &access, 1));
  const Words words = fresh();
  upload(base, words);
  EXPECT_WORDS(middle, words);
  CHECK(hipMemUnmap(second, size));
  CHECK(hipMemUnmap(base, 3 * size));
  for (auto& handle : memory) CHECK(hipMemRelease(handle));
  CHECK(hipMemAddressFree(range, 3 * size));
  CHECK(hipMemAddressFree(second, size));
}

// Pools that give memory back between two uses of it.
void trimmed_pools() {
  hipStream_t streams[2] = {new_stream(), new_stream()};
  hipMemPoolProps wanted = {};
  wanted.allocType = hipMemAllocationTypePinned;
  wanted.location.type = hipMemLocationTypeDevice;
  hipMemPool_t pool;
  CHECK(hipMemPoolCreate(&pool, &wanted));
  uint64_t keep = UINT64_MAX;
  CHECK(hipMemPoolSetAttribute(pool, hipMemPoolAttrReleaseThreshold, &keep));
  for (int r = 0; r < 3 * rounds; r++) {
    hipStream_t const stream = streams[r % 2];
    uint32_t *first, *second;
    CHECK(hipMallocFromPoolAsync(reinterpret_cast<void**>(&first), kBytes, pool, stream));
    CHECK(hipMallocFromPoolAsync(reinterpret_cast<void**>(&second), kBytes, pool, stream));
    Words expected = fresh(), other = fresh();
    CHECK(hipMemcpyAsync(first, expected.data(), kBytes, hipMemcpyHostToDevice, stream));
    CHECK(hipMemcpyAsync(second, other.data(), kBytes, hipMemcpyHostToDevice, stream));
    LAUNCH(mix_from, blocks(), kThreads, 0, stream, first, second, 3, kCount);
    CHECK(hipFreeAsync(second, stream));
    host_mix_from(expected, other, 3);
    Words got(kCount);
    CHECK(hipMemcpyAsync(got.data(), first, kBytes, hipMemcpyDeviceToHost, stream));
    CHECK(hipFreeAsync(first, stream));
    CHECK(hipStreamSynchronize(stream));
    REQUIRE_EQUAL(got, expected, "memory of a pool");
    if (r % 3 == 2) CHECK(hipMemPoolTrimTo(pool, 0));
    if (r % 3 == 1) CHECK(hipMemPoolTrimTo(pool, kBytes));
  }
  CHECK(hipMemPoolDestroy(pool));
  for (hipStream_t stream : streams) CHECK(hipStreamDestroy(stream));
}

// Copies that are refused between copies that are not.
void refused_copies() {
  hipStream_t stream = new_stream();
  DeviceWords data(kCount);
  Words host = fresh(), back(kCount);
  CHECK(hipMemcpyAsync(data, host.data(), kBytes, hipMemcpyHostToDevice, stream));
  const auto down = hipMemcpyDeviceToHost;
  const hipError_t codes[] = {
      // Rows that are longer than they lie apart.
      hipMemcpy2DAsync(back.data(), 8, data, 40, 40, 4, down, stream),
      hipMemcpy2D(back.data(), 40, data, 8, 40, 4, down),
      // More than there is.
      hipMemcpy2DAsync(back.data(), 40, data, 4096, 40, 4096, down, stream),
      hipMemcpyAsync(nullptr, data, kBytes, down, stream),
      hipMemset2DAsync(data, 8, 0, 16, 4, stream),
      hipMemcpyAsync(back.data(), data, kBytes, hipMemcpyKind(77), stream),
  };
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) REQUIRE(codes[i] != hipSuccess, "copy %zu succeeds", i);
  REQUIRE(hipGetLastError() == codes[5], "the last refusal");
  // Nothing is copied where there is nothing to copy.
  CHECK(hipMemcpy2DAsync(back.data(), 40, data, 40, 0, 4, down, stream));
  CHECK(hipMemcpy2DAsync(back.data(), 40, data, 40, 40, 0, down, stream));
  CHECK(hipMemcpyAsync(back.data(), data, 0, down, stream));
  CHECK(hipMemcpy2DAsync(back.data(), 40, data, 40, 40, kCount / 10, down, stream));
  CHECK(hipStreamSynchronize(stream));
  REQUIRE_EQUAL(back, host, "after refusals");
  CHECK(hipStreamDestroy(stream));
}

// Writes and waits in batches, over device and pinned memory, between two streams, and the values of several places.
void batched_values() {
  hipStream_t streams[2] = {new_stream(), new_stream()};
  Pinned pinned(8);
  DeviceWords cells(8), data(kCount);
  CHECK(hipMemset(cells, 0, cells.bytes()));
  store(pinned.host, Words(8, 0));
  Words expected = fresh();
  upload(data, expected);
  uint32_t* const device = cells;
  for (int r = 1; r <= rounds; r++) {
    hip7::BatchMemOp wait[2] = {}, write[3] = {};
    wait[0].operation = 1, wait[0].address = device, wait[0].value = uint32_t(r);
    wait[1].operation = 4, wait[1].address = pinned.device + 2, wait[1].value = uint64_t(r) << 33;
    write[0].operation = 2, write[0].address = device, write[0].value = uint32_t(r);
    write[1].operation = 5, write[1].address = pinned.device + 2, write[1].value = uint64_t(r) << 33;
    write[2].operation = 2, write[2].address = pinned.device + 5, write[2].value = uint32_t(r) * 3;
    CHECK(hipStreamBatchMemOp(streams[0], 2, wait, 0));
    LAUNCH(mix, blocks(), kThreads, 0, streams[0], data, factor_of(r, 1), 7, kCount);
    LAUNCH(mix, blocks(), kThreads, 0, streams[1], data, factor_of(r, 2), 5, kCount);
    CHECK(hipStreamBatchMemOp(streams[1], 3, write, 0));
    for (hipStream_t stream : streams) CHECK(hipStreamSynchronize(stream));
    host_mix(expected, factor_of(r, 2), 5);
    host_mix(expected, factor_of(r, 1), 7);
    EXPECT_WORDS(data, expected);
    EXPECT_WORDS(device, (Words{uint32_t(r), 0, 0, 0, 0, 0, 0, 0}));
    require_equal(pinned.host, Words{0, 0, 0, 2 * uint32_t(r), 0, 3 * uint32_t(r), 0, 0}.data(), 8, "values", __LINE__,
                  __FILE__);
  }
  for (hipStream_t stream : streams) CHECK(hipStreamDestroy(stream));
}

// Waits for a part of a word, which the rest of it must not end, between two streams.
void masked_values() {
  hipStream_t streams[2] = {new_stream(), new_stream()};
  Pinned pinned(8);
  DeviceWords cells(4), data(kCount);
  CHECK(hipMemset(cells, 0, cells.bytes()));
  store(pinned.host, Words(8, 0));
  Words expected = fresh();
  upload(data, expected);
  uint32_t *const device = cells, *const wide = pinned.device + 2, *const bits = pinned.device + 5;
  for (int r = 1; r <= rounds; r++) {
    CHECK(hipStreamWaitValue32(streams[0], device, uint32_t(r) << 8 | 0xaa, hipStreamWaitValueEq, 0xff00));
    CHECK(hipStreamWaitValue64(streams[0], wide, uint64_t(r) << 40, hipStreamWaitValueGte, ~0ull << 32));
    CHECK(hipStreamWaitValue32(streams[0], bits, 0xff00 | 1u << r, hipStreamWaitValueAnd, 0xff));
    LAUNCH(mix, blocks(), kThreads, 0, streams[0], data, factor_of(r, 1), 7, kCount);
    LAUNCH(mix, blocks(), kThreads, 0, streams[1], data, factor_of(r, 2), 5, kCount);
    // First what is masked out: that alone ends no wait.
    CHECK(hipStreamWriteValue32(streams[1], device, uint32_t(r - 1) << 8 | 0xaa, 0));
    CHECK(hipStreamWriteValue64(streams[1], wide, uint64_t(r - 1) << 40 | 0xffffffff, 0));
    CHECK(hipStreamWriteValue32(streams[1], bits, 0xff00, 0));
    LAUNCH(mix, blocks(), kThreads, 0, streams[1], data, 3, 1, kCount);
    CHECK(hipStreamWriteValue32(streams[1], device, uint32_t(r) << 8 | 0x55, 0));
    CHECK(hipStreamWriteValue64(streams[1], wide, uint64_t(r) << 40, 0));
    CHECK(hipStreamWriteValue32(streams[1], bits, 1u << r, 0));
    for (hipStream_t stream : streams) CHECK(hipStreamSynchronize(stream));
    host_mix(expected, factor_of(r, 2), 5);
    host_mix(expected, 3, 1);
    host_mix(expected, factor_of(r, 1), 7);
    EXPECT_WORDS(data, expected);
  }
  for (hipStream_t stream : streams) CHECK(hipStreamDestroy(stream));
}

// Managed memory that the host writes in one half while a stream works on the other, with prefetches between.
void managed_halves() {
  hipStream_t streams[2] = {new_stream(), new_stream()};
  uint32_t* managed;
  CHECK(hipMallocManaged(reinterpret_cast<void**>(&managed), 2 * kBytes, hipMemAttachGlobal));
  Words halves[2] = {fresh(), fresh()};
  for (int h = 0; h < 2; h++) store(managed + h * kCount, halves[h]);
  for (int r = 0; r < 2 * rounds; r++) {
    const int busy = r % 2, idle = 1 - busy;
    CHECK(hipMemPrefetchAsync(managed + busy * kCount, kBytes, 0, streams[busy]));
    LAUNCH(mix, blocks(), kThreads, 0, streams[busy], managed + busy * kCount, factor_of(r, 1), 9, kCount);
    host_mix(halves[busy], factor_of(r, 1), 9);
    halves[idle] = fresh();
    store(managed + idle * kCount, halves[idle]);
    CHECK(hipStreamSynchronize(streams[busy]));
    CHECK(hipMemPrefetchAsync(managed, 2 * kBytes, hipCpuDeviceId, streams[busy]));
    CHECK(hipStreamSynchronize(streams[busy]));
    for (int h = 0; h < 2; h++)
      require_equal(managed + h * kCount, halves[h].data(), kCount, "half of managed memory", __LINE__, __FILE__);
  }
  CHECK(hipFree(managed));
  for (hipStream_t stream : streams) CHECK(hipStreamDestroy(stream));
}

// Graphs made ready on a stream before they are launched, once by their making and once by a call, and launched by two threads.
void uploaded_graphs() {
  hipStream_t stream = new_stream();
  DeviceWords data(kCount);
  Words expected = fresh();
  upload(data, expected);
  hipGraph_t graph;
  CHECK(hipGraphCreate(&graph, 0));
  Mix work(data, 3, 1);
  hipGraphNode_t node;
  CHECK(hipGraphAddKernelNode(&node, graph, nullptr, 0, &work.params));
  hipGraphExec_t execs[2];
  hip7::InstantiateParams how = {};
  CHECK(hipGraphInstantiateWithParams(&execs[0], graph, &how));
  work.factor = 5;
  CHECK(hipGraphKernelNodeSetParams(node, &work.params));
  CHECK(hipGraphInstantiateWithFlags(&execs[1], graph, 0));
  for (hipGraphExec_t exec : execs) CHECK(hipGraphUpload(exec, stream));
  Turns turns;
  run_threads(2, [&](int t) {
    for (int r = 0; r < rounds; r++)
      turns.take(2 * r + t, [&] {
        CHECK(hipGraphLaunch(execs[t], stream));
        host_mix(expected, t == 0 ? 3 : 5, 1);
      });
  });
  CHECK(hipStreamSynchronize(stream));
  EXPECT_WORDS(data, expected);
  for (hipGraphExec_t exec : execs) CHECK(hipGraphExecDestroy(exec));
  CHECK(hipGraphDestroy(graph));
  CHECK(hipStreamDestroy(stream));
}

// Device addresses in the middle of pinned memory, asked for there and reached by arithmetic, in copies and kernels of threads.
void inner_addresses() {
  Pinned pinned(4 * kCount);
  Words state = fresh(4 * kCount);
  store(pinned.host, state);
  Turns turns;
  run_threads(2, [&](int t) {
    hipStream_t stream = new_stream();
    DeviceWords copy(kCount);
    for (int r = 0; r < rounds; r++)
      turns.take(2 * r + t, [&] {
        const size_t at = size_t(1 + t) * kCount - 40;
        uint32_t* inner;
        CHECK(hipHostGetDevicePointer(reinterpret_cast<void**>(&inner), pinned.host + at, 0));
        REQUIRE(inner == pinned.device + at, "the middle of the same alias");
        LAUNCH(mix, blocks(), kThreads, 0, stream, inner, factor_of(t, r), 3, kCount);
        CHECK(hipMemcpyAsync(copy, pinned.host + at, kBytes, hipMemcpyHostToDevice, stream));
        CHECK(hipMemcpyAsync(pinned.host + 3 * kCount, copy, kBytes, hipMemcpyDeviceToHost, stream));
        CHECK(hipStreamSynchronize(stream));
        Words part(state.begin() + at, state.begin() + at + kCount);
        host_mix(part, factor_of(t, r), 3);
        std::copy(part.begin(), part.end(), state.begin() + at);
        std::copy(part.begin(), part.end(), state.begin() + 3 * kCount);
        require_equal(pinned.host, state.data(), state.size(), "pinned memory", __LINE__, __FILE__);
      });
    CHECK(hipStreamDestroy(stream));
  });
}

// Memory that is pinned already, whole and in part, is refused; what is no code at all is too. What was there before stays.
void refused_twice() {
  Words words = fresh(4 * kCount);
  CHECK(hipHostRegister(words.data(), words.size() * 4, hipHostRegisterMapped));
  for (int r = 0; r < rounds; r++) {
    REQUIRE(hipHostRegister(words.data(), words.size() * 4, 0) != hipSuccess, "pinned twice");
    REQUIRE(hipHostRegister(words.data() + kCount, kBytes, 0) != hipSuccess, "a part was pinned twice");
    hipModule_t module;
    const char nothing[64] = {};
    REQUIRE(hipModuleLoadData(&module, nothing) != hipSuccess, "zeros were loaded");
    (void)hipGetLastError();
    uint32_t* device;
    CHECK(hipHostGetDevicePointer(reinterpret_cast<void**>(&device), words.data(), 0));
    DeviceWords data(kCount);
    Words expected = fresh();
    upload(data, expected);
    LAUNCH(mix_from, blocks(), kThreads, 0, nullptr, data, device + kCount, 5, kCount);
    host_mix_from(expected, Words(words.begin() + kCount, words.begin() + 2 * kCount), 5);
    EXPECT_WORDS(data, expected);
  }
  CHECK(hipHostUnregister(words.data()));
}

const std::map<std::string, std::function<void()>> cases = {
    {"struct_copies", struct_copies},       {"configured", configured},
    {"array_graphs", array_graphs},         {"overlapping_pieces", overlapping_pieces},
    {"struct_streams", struct_streams},     {"memory_nodes", memory_nodes},
    {"changed_clones", changed_clones},     {"partial_mappings", partial_mappings},
    {"trimmed_pools", trimmed_pools},       {"refused_copies", refused_copies},
    {"batched_values", batched_values},     {"managed_halves", managed_halves},
    {"uploaded_graphs", uploaded_graphs},   {"inner_addresses", inner_addresses},
    {"masked_values", masked_values},       {"refused_twice", refused_twice},
};

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "all";
  rounds = argument(argc, argv, 2, rounds);
  size_t made = 0;
  for (const auto& found : cases)
    if (name == "all" || name == found.first) {
      found.second();
      made++;
    }
  REQUIRE(made > 0, "no case '%s'", name.c_str());
  std::printf("api_corners: ok, %s\n", name.c_str());
}
