// Two modules that have a kernel and a variable of the same names, loaded from a file and from memory, used in turn,
// unloaded and loaded again the other way round, so that module and function handles come back for the other code.
// usage: module_launch [elements] [rounds]
#include "workload.hpp"

namespace {

struct Code {
  hipModule_t module;
  hipFunction_t transform;
  uint32_t operand;  // the value its variable has now
  bool multiplies;
};

void find_kernel(Code& code) {
  hipDeviceptr_t address;
  size_t bytes;
  uint32_t operand = 0;
  CHECK(hipModuleGetFunction(&code.transform, code.module, "transform"));
  CHECK(hipModuleGetGlobal(&address, &bytes, code.module, "operand"));
  REQUIRE(bytes == sizeof operand, "the variable has %zu bytes", bytes);
  CHECK(hipMemcpyDtoH(&operand, address, sizeof operand));
  REQUIRE(operand == (code.multiplies ? 5 : 3), "the variable starts as %u", operand);
  code.operand = operand + 2;
  CHECK(hipMemcpyHtoD(address, &code.operand, sizeof code.operand));
}

// How the arguments go over: `kernelParams` or a buffer in `extra`.
enum class Passing { kPointers, kPacked };

void launch(Code& code, hipStream_t stream, uint32_t* data, uint32_t amount, int n, Passing passing) {
  const unsigned blocks = blocks_for(n);
  if (passing == Passing::kPacked) {
    struct {
      uint32_t* data;
      uint32_t amount;
      int n;
    } buffer = {data, amount, n};
    size_t bytes = sizeof buffer;
    void* extra[] = {HIP_LAUNCH_PARAM_BUFFER_POINTER, &buffer, HIP_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     HIP_LAUNCH_PARAM_END};
    CHECK(hipModuleLaunchKernel(code.transform, blocks, 1, 1, kThreads, 1, 1, 0, stream, nullptr, extra));
  } else {
    void* arguments[] = {&data, &amount, &n};
    CHECK(hipModuleLaunchKernel(code.transform, blocks, 1, 1, kThreads, 1, 1, 0, stream, arguments, nullptr));
  }
}

void host_transform(const Code& code, Words& data, uint32_t amount) {
  for (uint32_t& value : data)
    value = code.multiplies ? value * (amount * code.operand) : value + amount + code.operand;
}

}  // namespace

int main(int argc, char** argv) {
  const int n = argument(argc, argv, 1, 1024), rounds = argument(argc, argv, 2, 6);
  const std::string paths[] = {kernel_path(argv[0], "same_name_add"), kernel_path(argv[0], "same_name_multiply")};
  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  DeviceWords data(n);
  Words expected(n), got(n);
  host_iota(expected, 1);
  LAUNCH(iota, blocks_for(n), kThreads, 0, stream, data, 1, n);
  for (int r = 0; r < rounds; r++) {
    const bool first_multiplies = r % 2 != 0;
    Code codes[2] = {};
    for (int c = 0; c < 2; c++) {
      codes[c].multiplies = first_multiplies != (c != 0);
      const std::string& path = paths[codes[c].multiplies ? 1 : 0];
      if ((r + c) % 3 == 0) {
        CHECK(hipModuleLoad(&codes[c].module, path.c_str()));
      } else {
        const std::vector<char> image = read_file(path);
        CHECK(hipModuleLoadData(&codes[c].module, image.data()));
      }
      find_kernel(codes[c]);
    }
    for (int step = 0; step < 4; step++) {
      Code& code = codes[(step + r / 2) % 2];
      const uint32_t amount = factor_of(r, step);
      launch(code, stream, data, amount, n, step >= 2 ? Passing::kPacked : Passing::kPointers);
      host_transform(code, expected, amount);
    }
    CHECK(hipMemcpyAsync(got.data(), data, data.bytes(), hipMemcpyDeviceToHost, stream));
    CHECK(hipStreamSynchronize(stream));
    REQUIRE_EQUAL(got, expected, "data after both kernels");
    for (Code& code : codes) CHECK(hipModuleUnload(code.module));
  }
  CHECK(hipStreamDestroy(stream));
  std::printf("module_launch: ok, %d rounds, %d elements\n", rounds, n);
}
