// Host memory of every kind that devices use directly, in one program with everything that moves work about: graphs that are
// cloned and updated, pool memory, several threads on streams of their own, launches put together call by call. Each thread
// computes what the host expects of it; nothing depends on time.
// usage: shared_memory_mix [rounds] [threads]
#include <sys/mman.h>

#include "sweep.hpp"

namespace {

constexpr int kCount = 600;
constexpr size_t kBytes = kCount * 4;

uint32_t seed_of(int t, int r) { return uint32_t(t) * 7919u + uint32_t(r) * 104729u + 17u; }

void store(uint32_t* to, const Words& words) { std::copy(words.begin(), words.end(), to); }

// What a device wrote to host memory, once it has been waited for.
void expect(const uint32_t* got, const Words& words, const char* what, int line) {
  require_equal(got, words.data(), words.size(), what, line, __FILE__);
}

struct Thread {
  explicit Thread(int number) : number(number) {
    CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
    CHECK(hipHostMalloc(reinterpret_cast<void**>(&pinned), 2 * kBytes, hipHostMallocDefault));
    CHECK(hipMallocManaged(reinterpret_cast<void**>(&managed), kBytes, hipMemAttachGlobal));
    void* mapped = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(mapped != MAP_FAILED, "mmap");
    registered = static_cast<uint32_t*>(mapped);
    CHECK(hipHostRegister(registered, kBytes, hipHostRegisterMapped));
    CHECK(hipHostGetDevicePointer(reinterpret_cast<void**>(&pinned_device), pinned, 0));
    CHECK(hipHostGetDevicePointer(reinterpret_cast<void**>(&registered_device), registered, 0));
  }
  ~Thread() {
    CHECK(hipHostUnregister(registered));
    munmap(registered, kBytes);
    CHECK(hipFree(managed));
    CHECK(hipHostFree(pinned));
    CHECK(hipStreamDestroy(stream));
  }
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;

  // A copy fills pinned memory, and a kernel behind it in the stream reads that memory directly; the host had stored other
  // words there, which nobody may bring back in between.
  void copy_then_kernel(int round) {
    DeviceWords source(kCount), target(kCount);
    const Words words = pattern(kCount, seed_of(number, round)), base = pattern(kCount, seed_of(number, round) + 1);
    store(pinned, pattern(kCount, 99));
    CHECK(hipMemcpyAsync(source, words.data(), kBytes, hipMemcpyHostToDevice, stream));
    CHECK(hipMemcpyAsync(target, base.data(), kBytes, hipMemcpyHostToDevice, stream));
    CHECK(hipMemcpyAsync(pinned, source, kBytes, hipMemcpyDeviceToHost, stream));
    LAUNCH(mix_from, blocks_for(kCount), kThreads, 0, stream, target, pinned_device, 5, kCount);
    // And what the host stores beside it, in memory of the same allocation, while that is under way.
    const Words beside = pattern(kCount, seed_of(number, round) + 2);
    store(pinned + kCount, beside);
    LAUNCH(mix_from, blocks_for(kCount), kThreads, 0, stream, target, pinned_device + kCount, 9, kCount);
    Words got(kCount), expected = base;
    CHECK(hipMemcpyAsync(got.data(), target, kBytes, hipMemcpyDeviceToHost, stream));
    CHECK(hipStreamSynchronize(stream));
    host_mix_from(expected, words, 5);
    host_mix_from(expected, beside, 9);
    REQUIRE_EQUAL(got, expected, "a kernel behind a copy into what it reads");
    expect(pinned, words, "what the copy left", __LINE__);
  }

  // The oldest way to launch, whose arguments are known only one by one.
  void configured(int round) {
    DeviceWords target(kCount), source(kCount);
    const Words base = pattern(kCount, seed_of(number, round) + 3), words = pattern(kCount, seed_of(number, round) + 4);
    upload(target, base);
    upload(source, words);
    uint32_t *to = target, *from = source;
    const uint32_t factor = 11;
    const int n = kCount;
    CHECK(hipConfigureCall(dim3(blocks_for(kCount)), dim3(kThreads), 0, stream));
    CHECK(hipSetupArgument(&to, 8, 0));
    CHECK(hipSetupArgument(&from, 8, 8));
    CHECK(hipSetupArgument(&factor, 4, 16));
    CHECK(hipSetupArgument(&n, 4, 20));
    CHECK(hipLaunchByPtr(reinterpret_cast<const void*>(mix_from)));
    CHECK(hipStreamSynchronize(stream));
    Words expected = base;
    host_mix_from(expected, words, factor);
    EXPECT_WORDS(target, expected);
  }

  // A graph whose kernel reads registered memory and writes managed memory; a clone of it that is changed; an executable
  // graph that is updated to the clone and back. The host changes what they read between launches.
  void graphs(int round) {
    Words state = pattern(kCount, seed_of(number, round) + 5);
    store(managed, state);
    uint32_t* to = managed;
    uint32_t factor = 3;
    int n = kCount;
    void* list[] = {&to, &registered_device, &factor, &n};
    hipKernelNodeParams params = {};
    params.func = reinterpret_cast<void*>(mix_from);
    params.gridDim = dim3(blocks_for(kCount)), params.blockDim = dim3(kThreads), params.kernelParams = list;
    hipGraph_t graph, clone;
    hipGraphNode_t node, in_clone;
    CHECK(hipGraphCreate(&graph, 0));
    CHECK(hipGraphAddKernelNode(&node, graph, nullptr, 0, &params));
    CHECK(hipGraphClone(&clone, graph));
    CHECK(hipGraphNodeFindInClone(&in_clone, node, clone));
    factor = 13;
    CHECK(hipGraphKernelNodeSetParams(in_clone, &params));
    hipGraphExec_t exec;
    CHECK(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
    for (int step = 0; step < 4; step++) {
      const Words words = pattern(kCount, seed_of(number, round) + 6 + step);
      store(registered, words);
      if (step > 0) {
        hipGraphNode_t at = nullptr;
        hipGraphExecUpdateResult result;
        CHECK(hipGraphExecUpdate(exec, step % 2 ? clone : graph, &at, &result));
      }
      CHECK(hipGraphLaunch(exec, stream));
      CHECK(hipStreamSynchronize(stream));
      host_mix_from(state, words, step % 2 ? 13 : 3);
      expect(managed, state, "what a graph wrote to managed memory", __LINE__);
      // One word of what it wrote is the host's.
      state[step] = managed[step] ^= 0x1234u;
    }
    CHECK(hipGraphExecDestroy(exec));
    CHECK(hipGraphDestroy(clone));
    CHECK(hipGraphDestroy(graph));
  }

  // Memory from the device's pool for as long as two operations, in the order of the stream.
  void pool(int round) {
    Words state = pattern(kCount, seed_of(number, round) + 20);
    store(pinned, state);
    for (int step = 0; step < 3; step++) {
      uint32_t* scratch;
      CHECK(hipMallocAsync(reinterpret_cast<void**>(&scratch), kBytes, stream));
      CHECK(hipMemcpyAsync(scratch, pinned_device, kBytes, hipMemcpyDeviceToDevice, stream));
      LAUNCH(mix_from, blocks_for(kCount), kThreads, 0, stream, scratch, pinned_device, 17u + step, kCount);
      CHECK(hipMemcpyAsync(pinned_device, scratch, kBytes, hipMemcpyDeviceToDevice, stream));
      CHECK(hipFreeAsync(scratch, stream));
      const Words before = state;
      host_mix_from(state, before, 17u + step);
    }
    CHECK(hipStreamSynchronize(stream));
    expect(pinned, state, "what came back from the pool's memory", __LINE__);
  }

  int number;
  hipStream_t stream;
  uint32_t *pinned, *managed, *registered, *pinned_device, *registered_device;
};

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argument(argc, argv, 1, 3), threads = argument(argc, argv, 2, 3);
  run_threads(threads, [&](int t) {
    Thread thread(t);
    for (int r = 0; r < rounds; r++) {
      thread.copy_then_kernel(r);
      thread.configured(r);
      thread.graphs(r);
      thread.pool(r);
    }
  });
  std::printf("shared_memory_mix: ok, %d threads, %d rounds\n", threads, rounds);
}
