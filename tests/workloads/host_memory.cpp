// Kernels that read and write host memory directly, without a copy: pinned, managed and registered memory, by the host's
// address or by the device's, filled and read by the host between launches; the next round depends on what was read.
// usage: host_memory [rounds] [threads]
#include <hip/hip_runtime.h>
#include <sys/mman.h>

#include "workload.hpp"

namespace {

// Fills what a round's kernel reads, out of what the round before produced.
void prepare(uint32_t* input, int n, uint32_t round, uint32_t carried) {
  for (int i = 0; i < n; i++) input[i] = carried * 2654435761u + round * 40503u + uint32_t(i);
}

uint32_t digest(const uint32_t* data, int n) {
  uint32_t sum = 0;
  for (int i = 0; i < n; i++) sum = sum * 31 + data[i];
  return sum;
}

// One round on host memory: the kernel reads `input` and mixes it into `output`, both the host's; `in` and `out` are
// their device addresses.
uint32_t round_trip(hipStream_t stream, uint32_t* input, uint32_t* output, uint32_t* in, uint32_t* out, int n,
                    uint32_t round, uint32_t carried) {
  prepare(input, n, round, carried);
  // The host changes single elements of what the device wrote, too.
  output[round % uint32_t(n)] ^= 0x5a5a5a5au;
  Words expected(output, output + n);
  host_mix_from(expected, Words(input, input + n), 7);
  LAUNCH(mix_from, blocks_for(n), kThreads, 0, stream, out, in, 7, n);
  CHECK(hipStreamSynchronize(stream));
  require_equal(output, expected.data(), expected.size(), "what a kernel wrote to host memory", __LINE__, __FILE__);
  return digest(output, n);
}

enum class Memory { Pinned, Alias, Managed, Registered };

struct Pair {
  uint32_t *input, *output, *in, *out;
};

void* give(Memory kind, size_t bytes) {
  void* p = nullptr;
  switch (kind) {
    case Memory::Pinned: CHECK(hipHostMalloc(&p, bytes, hipHostMallocDefault)); break;
    case Memory::Alias: CHECK(hipHostMalloc(&p, bytes, hipHostMallocMapped)); break;
    case Memory::Managed: CHECK(hipMallocManaged(&p, bytes, hipMemAttachGlobal)); break;
    case Memory::Registered:
      p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
      REQUIRE(p != MAP_FAILED, "mmap");
      CHECK(hipHostRegister(p, bytes, hipHostRegisterMapped));
  }
  return p;
}

void take_back(Memory kind, void* p, size_t bytes) {
  switch (kind) {
    case Memory::Pinned:
    case Memory::Alias: CHECK(hipHostFree(p)); break;
    case Memory::Managed: CHECK(hipFree(p)); break;
    case Memory::Registered:
      CHECK(hipHostUnregister(p));
      munmap(p, bytes);
  }
}

uint32_t* device_address(Memory kind, void* p) {
  if (kind != Memory::Alias && kind != Memory::Registered) return static_cast<uint32_t*>(p);
  void* device = nullptr;
  CHECK(hipHostGetDevicePointer(&device, p, 0));
  return static_cast<uint32_t*>(device);
}

uint32_t rounds_on(Memory kind, int rounds, int n, uint32_t seed) {
  const size_t bytes = n * sizeof(uint32_t);
  hipStream_t stream;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  uint32_t* input = static_cast<uint32_t*>(give(kind, bytes));
  uint32_t* output = static_cast<uint32_t*>(give(kind, bytes));
  for (int i = 0; i < n; i++) output[i] = seed + i;
  uint32_t carried = seed;
  for (int r = 0; r < rounds; r++)
    carried = round_trip(stream, input, output, device_address(kind, input), device_address(kind, output), n, r, carried);
  take_back(kind, input, bytes);
  take_back(kind, output, bytes);
  CHECK(hipStreamDestroy(stream));
  return carried;
}

// A ring of slots in one pinned allocation: the host fills the next slot while the device works on the last one, and the
// slots' results are read when an event says so.
uint32_t ring(int rounds, int n) {
  const int slots = 4;
  hipStream_t stream;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  uint32_t *in, *results;
  CHECK(hipHostMalloc(reinterpret_cast<void**>(&in), slots * n * sizeof(uint32_t), hipHostMallocDefault));
  CHECK(hipMalloc(&results, n * sizeof(uint32_t)));
  CHECK(hipMemsetAsync(results, 0, n * sizeof(uint32_t), stream));
  hipEvent_t done[slots];
  for (hipEvent_t& event : done) CHECK(hipEventCreateWithFlags(&event, hipEventDisableTiming));
  Words expected(n, 0), source(n);
  for (int r = 0; r < rounds; r++) {
    uint32_t* slot = in + (r % slots) * n;
    if (r >= slots) CHECK(hipEventSynchronize(done[r % slots]));
    prepare(slot, n, r, uint32_t(r) * 77u);
    std::copy(slot, slot + n, source.begin());
    host_mix_from(expected, source, 5);
    LAUNCH(mix_from, blocks_for(n), kThreads, 0, stream, results, slot, 5, n);
    CHECK(hipEventRecord(done[r % slots], stream));
  }
  Words got(n);
  CHECK(hipMemcpyAsync(got.data(), results, n * sizeof(uint32_t), hipMemcpyDeviceToHost, stream));
  CHECK(hipStreamSynchronize(stream));
  REQUIRE_EQUAL(got, expected, "mixed from a ring in pinned memory");
  for (hipEvent_t& event : done) CHECK(hipEventDestroy(event));
  CHECK(hipHostFree(in));
  CHECK(hipFree(results));
  CHECK(hipStreamDestroy(stream));
  return digest(got.data(), n);
}

// Launches that hand pinned memory on to each other without the host: it must not be stored anew between them.
uint32_t in_place(int rounds, int n) {
  hipStream_t stream;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  uint32_t* data;
  CHECK(hipHostMalloc(reinterpret_cast<void**>(&data), n * sizeof(uint32_t), hipHostMallocDefault));
  Words expected(n);
  host_iota(expected, 3);
  std::copy(expected.begin(), expected.end(), data);
  for (int r = 0; r < rounds; r++) {
    LAUNCH(mix, blocks_for(n), kThreads, 0, stream, data, factor_of(r, 1), addend_of(r, 2), n);
    host_mix(expected, factor_of(r, 1), addend_of(r, 2));
  }
  CHECK(hipStreamSynchronize(stream));
  require_equal(data, expected.data(), expected.size(), "mixed in place in pinned memory", __LINE__, __FILE__);
  const uint32_t result = digest(data, n);
  CHECK(hipHostFree(data));
  CHECK(hipStreamDestroy(stream));
  return result;
}

// A graph whose kernel nodes, captured and explicit, read pinned memory that is rewritten between launches.
uint32_t graphs(int rounds, int n) {
  const size_t bytes = n * sizeof(uint32_t);
  hipStream_t stream;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  uint32_t *input, *second, *results;
  CHECK(hipHostMalloc(reinterpret_cast<void**>(&input), bytes, hipHostMallocDefault));
  CHECK(hipHostMalloc(reinterpret_cast<void**>(&second), bytes, hipHostMallocDefault));
  CHECK(hipMalloc(&results, bytes));
  CHECK(hipMemsetAsync(results, 0, bytes, stream));
  CHECK(hipStreamSynchronize(stream));
  hipGraph_t graph;
  CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal));
  LAUNCH(mix_from, blocks_for(n), kThreads, 0, stream, results, input, 3, n);
  CHECK(hipStreamEndCapture(stream, &graph));
  size_t count = 1;
  hipGraphNode_t captured, added;
  CHECK(hipGraphGetNodes(graph, &captured, &count));
  hipKernelNodeParams params = {};
  uint32_t factor = 9;
  void* arguments[] = {&results, &second, &factor, const_cast<int*>(&n)};
  params.func = reinterpret_cast<void*>(mix_from);
  params.gridDim = dim3(blocks_for(n));
  params.blockDim = dim3(kThreads);
  params.kernelParams = arguments;
  CHECK(hipGraphAddKernelNode(&added, graph, &captured, 1, &params));
  hipGraphExec_t exec;
  CHECK(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
  Words expected(n, 0), got(n);
  uint32_t carried = 1;
  for (int r = 0; r < rounds; r++) {
    prepare(input, n, r, carried);
    prepare(second, n, r + 100, carried);
    host_mix_from(expected, Words(input, input + n), 3);
    host_mix_from(expected, Words(second, second + n), 9);
    CHECK(hipGraphLaunch(exec, stream));
    CHECK(hipMemcpyAsync(got.data(), results, bytes, hipMemcpyDeviceToHost, stream));
    CHECK(hipStreamSynchronize(stream));
    REQUIRE_EQUAL(got, expected, "mixed by a graph from pinned memory");
    carried = digest(got.data(), n);
  }
  CHECK(hipGraphExecDestroy(exec));
  CHECK(hipGraphDestroy(graph));
  CHECK(hipHostFree(input));
  CHECK(hipHostFree(second));
  CHECK(hipFree(results));
  CHECK(hipStreamDestroy(stream));
  return carried;
}

// Managed memory as the source and the target of copies and fills, which carry no contents of their own.
uint32_t managed_copies(int rounds, int n) {
  const size_t bytes = n * sizeof(uint32_t);
  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  uint32_t *managed, *device;
  CHECK(hipMallocManaged(reinterpret_cast<void**>(&managed), bytes, hipMemAttachGlobal));
  CHECK(hipMalloc(&device, bytes));
  uint32_t carried = 5;
  Words got(n);
  for (int r = 0; r < rounds; r++) {
    prepare(managed, n, r, carried);
    Words expected(managed, managed + n);
    CHECK(hipMemcpyAsync(device, managed, bytes, hipMemcpyDefault, stream));
    LAUNCH(mix, blocks_for(n), kThreads, 0, stream, device, 3, 1, n);
    host_mix(expected, 3, 1);
    CHECK(hipMemcpyAsync(got.data(), device, bytes, hipMemcpyDeviceToHost, stream));
    CHECK(hipMemsetAsync(managed, 0x11, bytes / 2, stream));
    CHECK(hipStreamSynchronize(stream));
    REQUIRE_EQUAL(got, expected, "copied from managed memory");
    REQUIRE(managed[0] == 0x11111111u, "managed memory was filled");
    carried = digest(got.data(), n) ^ managed[0];
  }
  CHECK(hipFree(managed));
  CHECK(hipFree(device));
  CHECK(hipStreamDestroy(stream));
  return carried;
}

// What a kernel wrote to pinned memory is copied to the device behind it, with no wait between.
uint32_t copied_on(int rounds, int n) {
  const size_t bytes = n * sizeof(uint32_t);
  hipStream_t stream;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  uint32_t *pinned, *device;
  CHECK(hipHostMalloc(reinterpret_cast<void**>(&pinned), bytes, hipHostMallocDefault));
  CHECK(hipMalloc(&device, bytes));
  std::fill(pinned, pinned + n, 1u);
  Words expected(n, 1), got(n);
  for (int r = 0; r < rounds; r++) {
    LAUNCH(busy, blocks_for(n), kThreads, 0, stream, pinned, 40, n);
    LAUNCH(mix, blocks_for(n), kThreads, 0, stream, pinned, 3, uint32_t(r), n);
    CHECK(hipMemcpyAsync(device, pinned, bytes, hipMemcpyHostToDevice, stream));
    LAUNCH(mix, blocks_for(n), kThreads, 0, stream, device, 5, 1, n);
    CHECK(hipMemcpyAsync(got.data(), device, bytes, hipMemcpyDeviceToHost, stream));
    CHECK(hipStreamSynchronize(stream));
    host_busy(expected, 40);
    host_mix(expected, 3, uint32_t(r));
    Words after = expected;
    host_mix(after, 5, 1);
    REQUIRE_EQUAL(got, after, "copied on from pinned memory");
    pinned[r] += 1;
    expected[r] += 1;
  }
  CHECK(hipHostFree(pinned));
  CHECK(hipFree(device));
  CHECK(hipStreamDestroy(stream));
  return digest(got.data(), n);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argument(argc, argv, 1, 6), threads = argument(argc, argv, 2, 3), n = 3000;
  const Memory kinds[] = {Memory::Pinned, Memory::Alias, Memory::Managed, Memory::Registered};
  uint32_t sum = 0;
  for (Memory kind : kinds) sum += rounds_on(kind, rounds, n, 17 + uint32_t(kind));
  sum += ring(3 * rounds, 500);
  sum += in_place(rounds, n);
  sum += graphs(rounds, n);
  sum += managed_copies(rounds, n);
  sum += copied_on(rounds, n);
  std::vector<uint32_t> sums(threads);
  run_threads(threads, [&](int t) { sums[t] = rounds_on(kinds[t % 4], rounds, n, 1000 + uint32_t(t)); });
  // Threads that take turns on one allocation: each depends on what the one before it made of it.
  const int turns = 3 * rounds;
  uint32_t* shared = static_cast<uint32_t*>(give(Memory::Pinned, 2 * n * sizeof(uint32_t)));
  for (int i = 0; i < 2 * n; i++) shared[i] = uint32_t(i);
  uint32_t carried = 1;
  Turns order;
  run_threads(threads, [&](int t) {
    hipStream_t stream;
    CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
    for (int turn = t; turn < turns; turn += threads)
      order.take(turn, [&] {
        carried = round_trip(stream, shared, shared + n, shared, shared + n, n, uint32_t(turn), carried);
      });
    CHECK(hipStreamDestroy(stream));
  });
  take_back(Memory::Pinned, shared, 2 * n * sizeof(uint32_t));
  for (uint32_t value : sums) sum += value;
  std::printf("host_memory: ok, %d rounds, %d threads, %08x\n", rounds, threads, sum + carried);
}
