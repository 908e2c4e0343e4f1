// Launches in every spelling: by symbol, by function, with configurations, cooperative, over several devices, the old
// three-part way, and what a launch's arguments may look like.
#include <cstring>

#include "sweep.hpp"

namespace {

constexpr int kCount = 300;
uint32_t salt = 1;

struct Data {
  Data() : device(kCount), expected(kCount) {
    expected = pattern(kCount, salt++);
    upload(device, expected);
  }
  DeviceWords device;
  Words expected;
};

// Arguments of mix for these data; each use differs.
struct Mix {
  explicit Mix(Data& data) : pointer(data.device), factor(2 * salt + 1), addend(salt * 77), count(kCount), data(data) {
    salt++;
  }
  void** params() {
    list[0] = &pointer, list[1] = &factor, list[2] = &addend, list[3] = &count;
    return list;
  }
  void check(int line) {
    CHECK(hipDeviceSynchronize());
    CHECK(hipStreamSynchronize(hipStreamPerThread));
    host_mix(data.expected, factor, addend);
    expect_words(data.device, data.expected, "launch", line);
  }
  uint32_t* pointer;
  uint32_t factor, addend;
  int count;
  void* list[4];
  Data& data;
};

#define TRY(call)      \
  {                    \
    Mix mix_(data);    \
    void** params = mix_.params(); \
    CHECK(call);       \
    mix_.check(__LINE__); \
  }

const dim3 grid(blocks_for(kCount)), block(kThreads);
const unsigned blocks = blocks_for(kCount), threads = kThreads;

// Launches that take a host symbol where `by_symbol` could not give them a function.
void by_symbol_only(hipStream_t stream) {
  Data data;
  const void* symbol = reinterpret_cast<const void*>(mix);
  hipLaunchParams several = {};
  several.func = const_cast<void*>(symbol);
  several.gridDim = grid, several.blockDim = block, several.stream = stream;
  {
    Mix mix_(data);
    several.args = mix_.params();
    CHECK(hipLaunchCooperativeKernelMultiDevice(&several, 1, 0));
    mix_.check(__LINE__);
  }
  {
    Mix mix_(data);
    several.args = mix_.params();
    CHECK(hipExtLaunchMultiKernelMultiDevice(&several, 1, 0));
    mix_.check(__LINE__);
  }
  // The old way: configuration, arguments one by one, launch.
  {
    Mix mix_(data);
    CHECK(hipConfigureCall(grid, block, 0, stream));
    CHECK(hipSetupArgument(&mix_.pointer, 8, 0));
    CHECK(hipSetupArgument(&mix_.factor, 4, 8));
    CHECK(hipSetupArgument(&mix_.addend, 4, 12));
    CHECK(hipSetupArgument(&mix_.count, 4, 16));
    CHECK(hipLaunchByPtr(symbol));
    mix_.check(__LINE__);
  }
}

void by_symbol(hipStream_t stream) {
  Data data;
  const void* symbol = reinterpret_cast<const void*>(mix);
  TRY(hipLaunchKernel(symbol, grid, block, params, 0, stream))
  TRY(hipLaunchKernel_spt(symbol, grid, block, params, 0, stream))
  TRY(hipLaunchKernel_spt(symbol, grid, block, params, 0, nullptr))
  TRY(hipLaunchCooperativeKernel(symbol, grid, block, params, 0, stream))
  TRY(hipLaunchCooperativeKernel_spt(symbol, grid, block, params, 0, stream))
  hipEvent_t start, stop;
  CHECK(hipEventCreate(&start));
  CHECK(hipEventCreate(&stop));
  TRY(hipExtLaunchKernel(symbol, grid, block, params, 0, stream, start, stop, 0))
  float ms = -1;
  CHECK(hipEventElapsedTime(&ms, start, stop));
  REQUIRE(ms >= 0, "elapsed time");
  hip7::LaunchAttribute attribute = {};
  attribute.id = 8;  // priority
  hip7::LaunchConfig config = {grid, block, 0, stream, &attribute, 1};
  TRY(hipLaunchKernelExC(&config, symbol, params))
  config.attributes = nullptr, config.attributeCount = 0;
  TRY(hipLaunchKernelExC(&config, symbol, params))
  CHECK(hipEventDestroy(start));
  CHECK(hipEventDestroy(stop));
}

void by_function(hipStream_t stream, const char* argv0) {
  Data data;
  hipModule_t module;
  hipFunction_t function;
  CHECK(hipModuleLoadData(&module, read_file(kernel_path(argv0, "standard")).data()));
  CHECK(hipModuleGetFunction(&function, module, "mix"));
  hipEvent_t start, stop;
  CHECK(hipEventCreate(&start));
  CHECK(hipEventCreate(&stop));
  TRY(hipModuleLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, params, nullptr))
  TRY(hipModuleLaunchCooperativeKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, params))
  TRY(hipExtModuleLaunchKernel(function, blocks * threads, 1, 1, threads, 1, 1, 0, stream, params, nullptr, start, stop, 0))
  TRY(hipHccModuleLaunchKernel(function, blocks * threads, 1, 1, threads, 1, 1, 0, stream, params, nullptr, start, stop))
  hip7::DrvLaunchConfig config = {{blocks, 1, 1}, {threads, 1, 1}, 0, stream, nullptr, 0};
  TRY(hipDrvLaunchKernelEx(&config, function, params, nullptr))
  hip7::LaunchAttribute cooperative = {};
  cooperative.id = 2;
  cooperative.value[0] = 1;
  config.attributes = &cooperative, config.attributeCount = 1;
  TRY(hipDrvLaunchKernelEx(&config, function, params, nullptr))
  {
    Mix mix_(data);
    hip7::FunctionLaunch launch = {function, {blocks, 1, 1}, {threads, 1, 1}, 0, stream, mix_.params()};
    CHECK(hipModuleLaunchCooperativeKernelMultiDevice(&launch, 1, 0));
    mix_.check(__LINE__);
  }
  // Packed arguments.
  {
    Mix mix_(data);
    struct {
      uint32_t* pointer;
      uint32_t factor, addend;
      int count;
    } packed = {mix_.pointer, mix_.factor, mix_.addend, mix_.count};
    size_t size = 20;
    void* extra[] = {HIP_LAUNCH_PARAM_BUFFER_POINTER, &packed, HIP_LAUNCH_PARAM_BUFFER_SIZE, &size, HIP_LAUNCH_PARAM_END};
    CHECK(hipModuleLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, nullptr, extra));
    mix_.check(__LINE__);
  }
  hipFunction_t by_symbol;
  CHECK(hipGetFuncBySymbol(&by_symbol, reinterpret_cast<const void*>(mix)));
  TRY(hipModuleLaunchKernel(by_symbol, blocks, 1, 1, threads, 1, 1, 0, stream, params, nullptr))
  REQUIRE(std::strcmp(hipKernelNameRef(function), "mix") == 0, "kernel name");
  (void)hipKernelNameRefByPtr(reinterpret_cast<const void*>(mix), stream);
  CHECK(hipEventDestroy(start));
  CHECK(hipEventDestroy(stop));
  CHECK(hipModuleUnload(module));
}

void attributes() {
  const void* symbol = reinterpret_cast<const void*>(block_sum);
  hipFuncAttributes found;
  CHECK(hipFuncGetAttributes(&found, symbol));
  CHECK(hipFuncSetAttribute(symbol, hipFuncAttributeMaxDynamicSharedMemorySize, 8192));
  CHECK(hipFuncSetCacheConfig(symbol, hipFuncCachePreferShared));
  CHECK(hipFuncSetSharedMemConfig(symbol, hipSharedMemBankSizeFourByte));
  int blocks_per_cu = 0, grid_size = 0, block_size = 0;
  CHECK(hipOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_per_cu, symbol, 64, 0));
  CHECK(hipOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks_per_cu, symbol, 64, 0, 0));
  CHECK(hipOccupancyMaxPotentialBlockSize(&grid_size, &block_size, symbol, 0, 0));
  size_t shared = 0;
  CHECK(hipOccupancyAvailableDynamicSMemPerBlock(&shared, symbol, 1, 64));
  const int n = 512;
  DeviceWords data(n), sums(n / 64);
  const Words values = pattern(n, salt++);
  upload(data, values);
  LAUNCH(block_sum, n / 64, 64, 64 * 4, nullptr, data, sums, n);
  Words expected(n / 64);
  for (int i = 0; i < n; i++) expected[i / 64] += values[i];
  EXPECT_WORDS(sums, expected);
}

}  // namespace

int main(int argc, char** argv) {
  hipStream_t stream;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  by_symbol(stream);
  if (argument(argc, argv, 1, 1)) by_symbol_only(stream);
  by_function(stream, argv[0]);
  attributes();
  CHECK(hipStreamDestroy(stream));
  std::printf("sweep_launches: ok, %u patterns\n", salt);
}
