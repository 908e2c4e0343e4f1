// A long loop over things that were made before it: what a window in its middle must bring with it. Two threads take turns;
// each iteration launches a kernel on memory that earlier ones wrote, a graph whose making is long past, a kernel of a
// module, and changes a variable, in turn that of a module; results are read back at the end of every iteration.
// usage: window [iterations] [how windows are opened: -, api FROM TO, signal FROM TO, pace MILLISECONDS]
//        window [iterations] twice FROM TO: with everything made in a first window up to FROM, and a second one from TO on
#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

#include <cstring>

#include "workload.hpp"

namespace {

constexpr int kElements = 1000;

struct Shared {
  hipStream_t stream, made_and_gone;
  hipEvent_t start, stop;
  hipModule_t module, variables;
  hipFunction_t transform, count;
  hipGraphExec_t executable;
  hipMemPool_t pool;
  hipArray_t array, volume;
  hipMipmappedArray_t mipmap;
  uint32_t *plain, *pooled, *pitched, *other_data, *freed, *pinned;
  // The first element of the array, of the volume's slices and of the mipmap's level.
  uint32_t first;
  size_t pitch;
};

// Launches per iteration: mix, graph, transform, use_counter.
constexpr int kLaunches = 4;

// Copies the last two slices of the volume, `width` words of each row.
void copy_volume(hipArray_t volume, uint32_t* words, hipMemcpyKind kind, size_t width) {
  hipMemcpy3DParms copy = {};
  const hipPitchedPtr host = make_hipPitchedPtr(words, width * sizeof(uint32_t), width, 4);
  (kind == hipMemcpyHostToDevice ? copy.dstArray : copy.srcArray) = volume;
  (kind == hipMemcpyHostToDevice ? copy.srcPtr : copy.dstPtr) = host;
  (kind == hipMemcpyHostToDevice ? copy.dstPos : copy.srcPos) = make_hipPos(0, 0, 1);
  copy.extent = make_hipExtent(width, 4, 2);
  copy.kind = kind;
  CHECK(hipMemcpy3D(&copy));
}

// Changes the first element of an array, or of the second slice of a volume.
void put_first(hipArray_t array, uint32_t value) {
  CHECK(hipMemcpy2DToArray(array, 0, 0, &value, sizeof value, sizeof value, 1, hipMemcpyHostToDevice));
}

void put_first_of_volume(hipArray_t volume, uint32_t value) {
  hipMemcpy3DParms copy = {};
  copy.dstArray = volume;
  copy.srcPtr = make_hipPitchedPtr(&value, sizeof value, 1, 1);
  copy.dstPos = make_hipPos(0, 0, 1);
  copy.extent = make_hipExtent(1, 1, 1);
  copy.kind = hipMemcpyHostToDevice;
  CHECK(hipMemcpy3D(&copy));
}

void make(Shared& s, const char* program) {
  const unsigned blocks = blocks_for(kElements);
  const size_t bytes = kElements * sizeof(uint32_t);
  CHECK(hipStreamCreateWithFlags(&s.made_and_gone, hipStreamNonBlocking));
  CHECK(hipStreamCreateWithFlags(&s.stream, hipStreamNonBlocking));
  CHECK(hipEventCreate(&s.start));
  CHECK(hipEventCreate(&s.stop));
  CHECK(hipMalloc(&s.freed, bytes));
  CHECK(hipMalloc(&s.plain, bytes));
  CHECK(hipMalloc(&s.other_data, bytes));
  void* pitched;
  CHECK(hipMallocPitch(&pitched, &s.pitch, 100, 40));
  s.pitched = static_cast<uint32_t*>(pitched);
  void* pinned;
  CHECK(hipHostMalloc(&pinned, bytes, hipHostMallocDefault));
  s.pinned = static_cast<uint32_t*>(pinned);
  hipMemPoolProps properties = {};
  properties.allocType = hipMemAllocationTypePinned;
  properties.location.type = hipMemLocationTypeDevice;
  CHECK(hipMemPoolCreate(&s.pool, &properties));
  CHECK(hipMallocFromPoolAsync(reinterpret_cast<void**>(&s.pooled), bytes, s.pool, s.stream));
  LAUNCH(iota, blocks, kThreads, 0, s.stream, s.plain, 1, kElements);
  LAUNCH(iota, blocks, kThreads, 0, s.stream, s.pooled, 2, kElements);
  LAUNCH(iota, blocks, kThreads, 0, s.stream, s.other_data, 3, kElements);
  const int pitched_elements = int(s.pitch * 40 / sizeof(uint32_t));
  LAUNCH(iota, blocks_for(pitched_elements), kThreads, 0, s.stream, s.pitched, 4, pitched_elements);

  // The module's image, the graph, and a stream that took part in its capture are gone when the loop begins.
  const std::vector<char> image = read_file(kernel_path(program, "same_name_add"));
  CHECK(hipModuleLoadData(&s.module, image.data()));
  CHECK(hipModuleGetFunction(&s.transform, s.module, "transform"));
  // Its variables change with each launch, and the program never asks where they are.
  const std::vector<char> counting = read_file(kernel_path(program, "standard"));
  CHECK(hipModuleLoadData(&s.variables, counting.data()));
  CHECK(hipModuleGetFunction(&s.count, s.variables, "use_counter"));
  hipGraph_t graph;
  hipEvent_t fork, join;
  CHECK(hipEventCreateWithFlags(&fork, hipEventDisableTiming));
  CHECK(hipEventCreateWithFlags(&join, hipEventDisableTiming));
  CHECK(hipStreamBeginCapture(s.stream, hipStreamCaptureModeGlobal));
  CHECK(hipEventRecord(fork, s.stream));
  CHECK(hipStreamWaitEvent(s.made_and_gone, fork, 0));
  LAUNCH(mix, blocks, kThreads, 0, s.made_and_gone, s.pooled, 3, 1, kElements);
  CHECK(hipEventRecord(join, s.made_and_gone));
  CHECK(hipStreamWaitEvent(s.stream, join, 0));
  LAUNCH(mix_from, blocks, kThreads, 0, s.stream, s.plain, s.pooled, 5, kElements);
  CHECK(hipStreamEndCapture(s.stream, &graph));
  CHECK(hipGraphInstantiate(&s.executable, graph, nullptr, nullptr, 0));
  CHECK(hipGraphDestroy(graph));
  CHECK(hipEventDestroy(fork));
  CHECK(hipEventDestroy(join));
  CHECK(hipStreamDestroy(s.made_and_gone));
  CHECK(hipFree(s.freed));

  const hipChannelFormatDesc words = hipCreateChannelDesc(32, 0, 0, 0, hipChannelFormatKindUnsigned);
  CHECK(hipMallocArray(&s.array, &words, 16, 4, hipArrayDefault));
  uint32_t texels[64];
  for (uint32_t i = 0; i < 64; i++) texels[i] = 7000 + i;
  CHECK(hipMemcpy2DToArray(s.array, 0, 0, texels, 64, 64, 4, hipMemcpyHostToDevice));
  // Not every runtime has these.
  if (hipMalloc3DArray(&s.volume, &words, make_hipExtent(8, 4, 3), hipArrayDefault) == hipSuccess) {
    copy_volume(s.volume, texels, hipMemcpyHostToDevice, 8);
    copy_volume(s.volume, texels + 32, hipMemcpyHostToDevice, 4);
  }
  if (hipMallocMipmappedArray(&s.mipmap, &words, make_hipExtent(16, 8, 0), 2, 0) == hipSuccess) {
    hipArray_t level;
    CHECK(hipGetMipmappedArrayLevel(&level, s.mipmap, 1));
    CHECK(hipMemcpy2DToArray(level, 0, 0, texels + 8, 32, 32, 4, hipMemcpyHostToDevice));
  }
  (void)hipGetLastError();
  const uint32_t table[4] = {2, 20, 200, 2000};
  CHECK(hipMemcpyToSymbol(HIP_SYMBOL(step_table), table, sizeof table, 0, hipMemcpyHostToDevice));
  CHECK(hipEventRecord(s.start, s.stream));
}

// A value on the second device, if there is one, where the program makes nothing.
constexpr uint32_t kFarValue = 7777;

void set_far_value(int devices) {
  if (devices < 2) return;
  CHECK(hipSetDevice(1));
  CHECK(hipMemcpyToSymbol(HIP_SYMBOL(launch_counter), &kFarValue, sizeof kFarValue));
  CHECK(hipSetDevice(0));
}

void get_far_value(int devices) {
  if (devices < 2) return;
  uint32_t got = 0;
  CHECK(hipSetDevice(1));
  CHECK(hipMemcpyFromSymbol(&got, HIP_SYMBOL(launch_counter), sizeof got));
  CHECK(hipSetDevice(0));
  REQUIRE(got == kFarValue, "the second device's variable is %u", got);
}

void iterate(Shared& s, int i) {
  const unsigned blocks = blocks_for(kElements);
  const size_t bytes = kElements * sizeof(uint32_t);
  uint32_t amount = addend_of(1, uint32_t(i));
  int n = kElements;
  // Short-lived memory and a stream, as many programs have in their loops.
  uint32_t* fleeting;
  hipStream_t brief;
  CHECK(hipMallocAsync(reinterpret_cast<void**>(&fleeting), bytes, s.stream));
  CHECK(hipStreamCreateWithFlags(&brief, hipStreamNonBlocking));
  LAUNCH(mix, blocks, kThreads, 0, s.stream, s.plain, factor_of(2, i), addend_of(3, i), kElements);
  CHECK(hipGraphLaunch(s.executable, s.stream));
  void* arguments[] = {&s.other_data, &amount, &n};
  CHECK(hipModuleLaunchKernel(s.transform, blocks, 1, 1, kThreads, 1, 1, 0, s.stream, arguments, nullptr));
  // Of the two variables of one name each has its turn.
  uint32_t step = uint32_t(i % 3 + 1);
  int few = 16;
  void* counting[] = {&fleeting, &step, &few};
  if (i / 2 % 2 == 0) LAUNCH(use_counter, 1, kThreads, 0, s.stream, fleeting, step, few);
  else CHECK(hipModuleLaunchKernel(s.count, 1, 1, 1, kThreads, 1, 1, 0, s.stream, counting, nullptr));
  CHECK(hipEventRecord(s.stop, s.stream));
  Words counter(16), rows(25 * 40), texels(64), other(kElements);
  CHECK(hipMemcpyAsync(s.pinned, s.plain, bytes, hipMemcpyDeviceToHost, s.stream));
  CHECK(hipMemcpyAsync(counter.data(), fleeting, 64, hipMemcpyDeviceToHost, s.stream));
  CHECK(hipMemcpyAsync(other.data(), s.other_data, bytes, hipMemcpyDeviceToHost, s.stream));
  CHECK(hipFreeAsync(fleeting, s.stream));
  CHECK(hipStreamSynchronize(s.stream));
  float milliseconds = -1;
  CHECK(hipEventElapsedTime(&milliseconds, s.start, s.stop));
  CHECK(hipMemcpy2D(rows.data(), 100, s.pitched, s.pitch, 100, 40, hipMemcpyDeviceToHost));
  CHECK(hipMemcpy2DFromArray(texels.data(), 64, s.array, 0, 0, 64, 4, hipMemcpyDeviceToHost));
  REQUIRE(texels[63] == 7063, "the array's last element is %u", texels[63]);
  REQUIRE(i == 0 || texels[0] == s.first, "the array's first element is %u", texels[0]);
  const uint32_t before = s.first;
  s.first = 9000 + uint32_t(i);
  put_first(s.array, s.first);
  if (s.volume) {
    Words volume(64);
    copy_volume(s.volume, volume.data(), hipMemcpyDeviceToHost, 8);
    REQUIRE(volume[0] == (i == 0 ? 7032 : before) && volume[63] == 7063, "the volume has %u and %u", volume[0], volume[63]);
    put_first_of_volume(s.volume, s.first);
  }
  if (s.mipmap) {
    hipArray_t level;
    Words small(32);
    CHECK(hipGetMipmappedArrayLevel(&level, s.mipmap, 1));
    CHECK(hipMemcpy2DFromArray(small.data(), 32, level, 0, 0, 32, 4, hipMemcpyDeviceToHost));
    REQUIRE(small[31] == 7039, "the second level's last element is %u", small[31]);
    REQUIRE(i == 0 || small[0] == before, "the second level's first element is %u", small[0]);
    put_first(level, s.first);
  }
  CHECK(hipStreamDestroy(brief));
}

}  // namespace

int main(int argc, char** argv) {
  const int iterations = argument(argc, argv, 1, 60);
  const std::string how = argc > 2 ? argv[2] : "-";
  const int from = argument(argc, argv, 3, 0), to = argument(argc, argv, 4, 0);
  using Ask = int (*)();
  const Ask start = reinterpret_cast<Ask>(dlsym(RTLD_DEFAULT, "hrr_capture_start"));
  const Ask stop = reinterpret_cast<Ask>(dlsym(RTLD_DEFAULT, "hrr_capture_stop"));
  int devices = 0;
  CHECK(hipGetDeviceCount(&devices));
  Shared shared = {};
  const bool twice = how == "twice";
  if (twice && start) REQUIRE(start() == 0, "no window");
  make(shared, argv[0]);
  set_far_value(devices);
  Turns turns;
  run_threads(2, [&](int t) {
    for (int i = t; i < iterations; i += 2) {
      turns.take(i, [&] {
        const bool opens = i == from, closes = i == to;
        // To this thread: then it has arrived when the call returns, which a signal to the process need not have.
        if (how == "signal" && (opens || closes)) REQUIRE(raise(SIGUSR2) == 0, "no signal");
        if (how == "api" && opens && start) REQUIRE(start() == 0, "no window");
        if (twice && opens && stop) REQUIRE(stop() == 0, "no end of the window");
        if (twice && closes && start) REQUIRE(start() == 0, "no second window");
        if (how == "api" && closes && stop) REQUIRE(stop() == 0, "no end of the window");
        if (how == "pace") usleep(from * 1000);
        iterate(shared, i);
      });
    }
  });
  get_far_value(devices);
  std::printf("window: ok, %d iterations of %d launches\n", iterations, kLaunches);
  // Everything else goes with the process, as in many programs.
  CHECK(hipStreamDestroy(shared.stream));
}
