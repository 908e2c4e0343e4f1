// Functions of a module and kernels of a library had by enumeration: the program knows them by the names that it asks for, whatever
// their order.
#include <cstring>

#include "sweep.hpp"

namespace {

constexpr int kCount = 200;
uint32_t salt = 1;

// Launches iota and then mix, found by their names among the handles.
void use(const std::vector<hipFunction_t>& functions, const std::vector<std::string>& names, int line) {
  DeviceWords data(kCount);
  Words expected(kCount);
  const uint32_t first = 100 * salt++, factor = 2 * salt + 1, addend = salt;
  uint32_t* pointer = data;
  int count = kCount;
  for (const char* wanted : {"iota", "mix"}) {
    void *iota_params[] = {&pointer, const_cast<uint32_t*>(&first), &count},
         *mix_params[] = {&pointer, const_cast<uint32_t*>(&factor), const_cast<uint32_t*>(&addend), &count};
    int found = 0;
    for (size_t i = 0; i < functions.size(); i++) {
      if (names[i] != wanted) continue;
      found++;
      CHECK(hipModuleLaunchKernel(functions[i], blocks_for(kCount), 1, 1, kThreads, 1, 1, 0, nullptr,
                                  wanted[0] == 'i' ? iota_params : mix_params, nullptr));
    }
    REQUIRE(found == 1, "line %d: %d functions called %s among %zu", line, found, wanted, functions.size());
  }
  CHECK(hipDeviceSynchronize());
  host_iota(expected, first);
  host_mix(expected, factor, addend);
  EXPECT_WORDS(data, expected);
}

void modules(const std::vector<char>& image) {
  for (int known = 0; known < 2; known++) {
    hipModule_t module;
    CHECK(hipModuleLoadData(&module, image.data()));
    hipFunction_t mix_function = nullptr;
    if (known) CHECK(hipModuleGetFunction(&mix_function, module, "mix"));
    unsigned count = 0;
    CHECK(hipModuleGetFunctionCount(&count, module));
    REQUIRE(count > 4, "%u functions", count);
    std::vector<hipFunction_t> functions(count);
    CHECK(hipModuleEnumerateFunctions(functions.data(), count, module));
    std::vector<std::string> names;
    for (hipFunction_t function : functions) names.push_back(hipKernelNameRef(function));
    use(functions, names, __LINE__);
    // A part of them.
    hipFunction_t some[2];
    CHECK(hipModuleEnumerateFunctions(some, 2, module));
    REQUIRE(some[0] == functions[0] && some[1] == functions[1], "another order");
    CHECK(hipModuleUnload(module));
  }
}

void libraries(const std::vector<char>& image) {
  void* library = nullptr;
  CHECK(hipLibraryLoadData(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  unsigned count = 0;
  CHECK(hipLibraryGetKernelCount(&count, library));
  std::vector<void*> kernels(count);
  CHECK(hipLibraryEnumerateKernels(kernels.data(), count, library));
  std::vector<hipFunction_t> functions(count);
  std::vector<std::string> names;
  for (unsigned i = 0; i < count; i++) {
    const char* name = nullptr;
    CHECK(hipKernelGetName(&name, kernels[i]));
    CHECK(hipKernelGetFunction(&functions[i], kernels[i]));
    names.push_back(name);
  }
  use(functions, names, __LINE__);
  CHECK(hipLibraryUnload(library));
}

}  // namespace

int main(int, char** argv) {
  const std::vector<char> image = read_file(kernel_path(argv[0], "standard"));
  modules(image);
  libraries(image);
  std::printf("enumerated: ok, %u patterns\n", salt);
}
