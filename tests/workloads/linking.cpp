// Code put together while the program runs: images linked from memory and from files, functions had by enumeration,
// managed variables, and fat binaries registered by hand as compilers do it.
#include <cstring>

#include "sweep.hpp"

namespace {

constexpr int kCount = 128, kFatBinary = 2;
uint32_t salt = 1;

void launch_transform(hipFunction_t function, Words& expected, uint32_t* data, uint32_t amount) {
  int count = kCount;
  void* params[] = {&data, &amount, &count};
  CHECK(hipModuleLaunchKernel(function, 1, 1, 1, kCount, 1, 1, 0, nullptr, params, nullptr));
  CHECK(hipDeviceSynchronize());
  for (uint32_t& value : expected) value += amount + 3;
}

// One image from memory, one from a file: the linked one has the kernels and variables of both. False where the runtime
// does not link code objects.
bool links(const char* argv0) {
  std::vector<char> image = read_file(kernel_path(argv0, "same_name_add"));
  void *link, *linked = nullptr;
  size_t bytes = 0;
  if (hipLinkCreate(0, nullptr, nullptr, &link) == hipErrorNotSupported) return false;
  CHECK(hipLinkAddData(link, kFatBinary, image.data(), image.size(), "add", 0, nullptr, nullptr));
  CHECK(hipLinkAddFile(link, kFatBinary, kernel_path(argv0, "standard").c_str(), 0, nullptr, nullptr));
  CHECK(hipLinkComplete(link, &linked, &bytes));
  REQUIRE(linked != nullptr && bytes > 0, "%zu bytes", bytes);
  hipModule_t module;
  CHECK(hipModuleLoadData(&module, linked));
  CHECK(hipLinkDestroy(link));
  hipFunction_t add, mixed;
  CHECK(hipModuleGetFunction(&add, module, "transform"));
  CHECK(hipModuleGetFunction(&mixed, module, "mix"));
  DeviceWords data(kCount);
  Words expected = pattern(kCount, salt++);
  upload(data, expected);
  launch_transform(add, expected, data, 7);
  uint32_t *pointer = data, factor = 5, addend = 6;
  int count = kCount;
  void* params[] = {&pointer, &factor, &addend, &count};
  CHECK(hipModuleLaunchKernel(mixed, 1, 1, 1, kCount, 1, 1, 0, nullptr, params, nullptr));
  CHECK(hipDeviceSynchronize());
  host_mix(expected, factor, addend);
  EXPECT_WORDS(data, expected);
  CHECK(hipModuleUnload(module));
  return true;
}

// Functions and kernels without a name: the module has one of them.
void enumeration(const char* argv0) {
  const std::vector<char> image = read_file(kernel_path(argv0, "same_name_add"));
  hipModule_t module;
  CHECK(hipModuleLoadData(&module, image.data()));
  hipFunction_t function = nullptr;
  CHECK(hipModuleEnumerateFunctions(&function, 1, module));
  DeviceWords data(kCount);
  Words expected = pattern(kCount, salt++);
  upload(data, expected);
  launch_transform(function, expected, data, 11);
  EXPECT_WORDS(data, expected);
  CHECK(hipModuleUnload(module));
  void *library = nullptr, *kernel = nullptr;
  CHECK(hipLibraryLoadData(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  CHECK(hipLibraryEnumerateKernels(&kernel, 1, library));
  CHECK(hipKernelGetFunction(&function, kernel));
  launch_transform(function, expected, data, 13);
  EXPECT_WORDS(data, expected);
  CHECK(hipLibraryUnload(library));
}

void managed(const char* argv0) {
  const std::vector<char> image = read_file(kernel_path(argv0, "managed"));
  // A library's.
  void *library, *kernel, *counters;
  size_t bytes = 0;
  CHECK(hipLibraryLoadData(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  CHECK(hipLibraryGetKernel(&kernel, library, "count_managed"));
  CHECK(hipLibraryGetManaged(&counters, &bytes, library, "counters"));
  REQUIRE(bytes == 16, "%zu bytes", bytes);
  hipFunction_t function;
  CHECK(hipKernelGetFunction(&function, kernel));
  uint32_t factor = 3;
  int count = 4;
  void* params[] = {&factor, &count};
  CHECK(hipModuleLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, nullptr, params, nullptr));
  CHECK(hipDeviceSynchronize());
  Words expected = {15, 151, 1502, 15003};
  EXPECT_WORDS(counters, expected);
  CHECK(hipLibraryUnload(library));

  // A program's: registered as the compiler's code does it, by host addresses of the program's.
  struct {
    uint32_t magic, version;
    const void* image;
    void* unused;
  } wrapper = {0x48495046, 1, image.data(), nullptr};
  static void* pointer;
  static char stub, texture, surface;
  uint32_t start[4] = {1, 2, 3, 4};
  char name[] = "count_managed", variable[] = "counters", texture_name[] = "a_texture", surface_name[] = "a_surface";
  void** binary = __hipRegisterFatBinary(&wrapper);
  REQUIRE(binary != nullptr, "no fat binary");
  __hipRegisterFunction(binary, &stub, name, name, ~0u, nullptr, nullptr, nullptr, nullptr, nullptr);
  __hipRegisterManagedVar(binary, &pointer, start, variable, sizeof start, 4);
  __hipRegisterTexture(binary, &texture, texture_name, texture_name, 2, 0, 0);
  __hipRegisterSurface(binary, &surface, surface_name, surface_name, 2, 0);
  CHECK(hipLaunchKernel(&stub, dim3(1), dim3(32), params, 0, nullptr));
  CHECK(hipDeviceSynchronize());
  expected = {3, 7, 11, 15};
  EXPECT_WORDS(pointer, expected);
  __hipUnregisterFatBinary(binary);
}

void clusters() {
  const void* symbol = reinterpret_cast<const void*>(mix);
  hip7::LaunchAttribute dimension = {};
  dimension.id = 4;
  dimension.value[0] = 2 | 1ull << 32;
  dimension.value[1] = 1;
  hip7::LaunchConfig config = {dim3(16), dim3(64), 0, nullptr, &dimension, 1};
  int size = 0, active = 0;
  CHECK(hipOccupancyMaxPotentialClusterSize(&size, symbol, &config));
  CHECK(hipOccupancyMaxActiveClusters(&active, symbol, &config));
  REQUIRE(size > 0 && active > 0, "clusters: %d, %d", size, active);
}

}  // namespace

int main(int, char** argv) {
  if (!links(argv[0])) {
    std::printf("linking: skipped, the runtime does not link\n");
    return 77;
  }
  enumeration(argv[0]);
  managed(argv[0]);
  clusters();
  std::printf("linking: ok, %u patterns\n", salt);
}
