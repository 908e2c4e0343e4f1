// Modules and libraries: every way to load one, its functions, its variables, and questions about them.
#include <cstring>

#include "sweep.hpp"

namespace {

constexpr int kCount = 128;
uint32_t salt = 1;
const unsigned blocks = blocks_for(kCount);

void launch_mix(hipFunction_t function, int line) {
  DeviceWords data(kCount);
  Words expected = pattern(kCount, salt++);
  upload(data, expected);
  uint32_t* pointer = data;
  uint32_t factor = 2 * salt + 1, addend = salt;
  int count = kCount;
  void* params[] = {&pointer, &factor, &addend, &count};
  CHECK(hipModuleLaunchKernel(function, blocks, 1, 1, kThreads, 1, 1, 0, nullptr, params, nullptr));
  CHECK(hipDeviceSynchronize());
  host_mix(expected, factor, addend);
  expect_words(data, expected, "module's kernel", line);
}

void use_module(hipModule_t module, int line) {
  hipFunction_t function;
  CHECK(hipModuleGetFunction(&function, module, "mix"));
  launch_mix(function, line);
  hipDeviceptr_t table;
  size_t bytes = 0;
  CHECK(hipModuleGetGlobal(&table, &bytes, module, "step_table"));
  REQUIRE(bytes == 16, "%zu bytes", bytes);
  const Words data = pattern(4, salt++);
  CHECK(hipMemcpyHtoD(table, const_cast<uint32_t*>(data.data()), 16));
  expect_words(table, data, "module's variable", line);
  unsigned count = 0;
  CHECK(hipModuleGetFunctionCount(&count, module));
  REQUIRE(count > 5, "%u functions", count);
}

}  // namespace

int main(int, char** argv) {
  const std::string path = kernel_path(argv[0], "standard");
  const std::vector<char> image = read_file(path);
  hipModule_t module;
  CHECK(hipModuleLoad(&module, path.c_str()));
  use_module(module, __LINE__);
  CHECK(hipModuleUnload(module));
  CHECK(hipModuleLoadData(&module, image.data()));
  use_module(module, __LINE__);
  CHECK(hipModuleUnload(module));
  hipJitOption options[] = {hipJitOptionOptimizationLevel};
  void* values[] = {reinterpret_cast<void*>(3)};
  CHECK(hipModuleLoadDataEx(&module, image.data(), 1, options, values));
  use_module(module, __LINE__);
  CHECK(hipModuleUnload(module));
  CHECK(hipModuleLoadFatBinary(&module, image.data()));
  use_module(module, __LINE__);

  hipFunction_t function;
  CHECK(hipModuleGetFunction(&function, module, "block_sum"));
  int value = 0, grid = 0, block = 0;
  CHECK(hipFuncGetAttribute(&value, HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
  CHECK(hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(&value, function, 64, 0));
  CHECK(hipModuleOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&value, function, 64, 0, 0));
  CHECK(hipModuleOccupancyMaxPotentialBlockSize(&grid, &block, function, 0, 0));
  CHECK(hipModuleOccupancyMaxPotentialBlockSizeWithFlags(&grid, &block, function, 0, 0, 0));
  CHECK(hipModuleUnload(module));

  void *library, *kernel, *found;
  for (bool from_file : {false, true}) {
    if (from_file)
      CHECK(hipLibraryLoadFromFile(&library, path.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
    else
      CHECK(hipLibraryLoadData(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
    CHECK(hipLibraryGetKernel(&kernel, library, "mix"));
    CHECK(hipKernelGetFunction(&function, kernel));
    launch_mix(function, __LINE__);
    unsigned count = 0;
    CHECK(hipLibraryGetKernelCount(&count, library));
    std::vector<void*> kernels(count);
    CHECK(hipLibraryEnumerateKernels(kernels.data(), count, library));
    CHECK(hipKernelGetLibrary(&found, kernel));
    REQUIRE(found == library, "another library");
    const char* name = nullptr;
    CHECK(hipKernelGetName(&name, kernel));
    REQUIRE(std::strcmp(name, "mix") == 0, "kernel %s", name);
    CHECK(hipKernelGetAttribute(&value, HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, 0));
    CHECK(hipKernelSetAttribute(HIP_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024, kernel, 0));
    size_t offset = 0, size = 0;
    CHECK(hipKernelGetParamInfo(kernel, 1, &offset, &size));
    REQUIRE(offset == 8 && size == 4, "parameter");
    void* table = nullptr;
    CHECK(hipLibraryGetGlobal(&table, &size, library, "step_table"));
    const Words data = pattern(4, salt++);
    upload(table, data);
    expect_words(table, data, "library's variable", __LINE__);
    CHECK(hipLibraryUnload(library));
  }
  std::printf("sweep_modules: ok, %u patterns\n", salt);
}
