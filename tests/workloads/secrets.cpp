// Data that must not be in an archive without contents, one piece of each kind that a call can carry it in. Each piece is
// computed when it is needed; tests/tests/secrets.rs knows them and searches for them.
// usage: secrets
#include <cstring>

#include "workload.hpp"

namespace {

constexpr int kCount = 64;

// Not constant-folded into tables: what is searched for is nowhere in the program's own files either.
uint32_t secret(uint32_t number) {
  volatile uint32_t seed = 0x5ec2e700u + number;
  return seed * 2654435761u;
}

// The text "<what> of user <number>" in upper case.
void write_text(char* to, size_t size, const char* what, unsigned number) {
  std::memset(to, 0, size);
  std::snprintf(to, size, "%s of user %u", what, number);
  for (char* at = to; *at; at++) *at = *at >= 'a' && *at <= 'z' ? char(*at - 32) : *at;
}

void copies(hipStream_t stream) {
  DeviceWords device(1024);
  uint32_t token = secret(1);
  CHECK(hipMemcpy(device, &token, sizeof token, hipMemcpyHostToDevice));
  char prompt[96];
  write_text(prompt, sizeof prompt, "prompt", 17);
  CHECK(hipMemcpyAsync(device, prompt, sizeof prompt, hipMemcpyHostToDevice, stream));
  void* pinned;
  CHECK(hipHostMalloc(&pinned, 96, hipHostMallocDefault));
  write_text(static_cast<char*>(pinned), 96, "pinned words", 18);
  CHECK(hipMemcpyAsync(device, pinned, 96, hipMemcpyHostToDevice, stream));
  CHECK(hipStreamSynchronize(stream));
  CHECK(hipHostFree(pinned));

  // Rows of 24 bytes, with something else behind each.
  char rows[4][64];
  for (int row = 0; row < 4; row++) {
    write_text(rows[row], 32, "row", unsigned(70 + row));
    write_text(rows[row] + 32, 32, "padding", unsigned(80 + row));
  }
  CHECK(hipMemcpy2D(device, 24, rows, 64, 24, 4, hipMemcpyHostToDevice));

  const uint32_t table[4] = {secret(2), 0, 0, 0};
  CHECK(hipMemcpyToSymbol(HIP_SYMBOL(step_table), table, sizeof table));
  // What the device made of it, and what is a scalar of the call itself.
  LAUNCH(iota, 1, kThreads, 0, nullptr, device, secret(3), kCount);
  Words back(kCount);
  CHECK(hipMemcpy(back.data(), device, kCount * 4, hipMemcpyDeviceToHost));
  REQUIRE(back[5] == secret(3) + 5, "result");
  CHECK(hipMemsetD32(static_cast<void*>(static_cast<uint32_t*>(device)), int(secret(4)), 16));
  CHECK(hipDeviceSynchronize());
}

void launches(hipStream_t stream) {
  DeviceWords data(kCount);
  CHECK(hipMemset(data, 1, data.bytes()));
  matrix_view view = {4, 16, data, 16, secret(5), nullptr};
  LAUNCH(apply_view, 1, kThreads, 0, stream, view, 0);

  uint32_t* pointer = data;
  uint32_t factor = secret(6), addend = 0;
  int count = kCount;
  CHECK(hipConfigureCall(dim3(1), dim3(kThreads), 0, stream));
  CHECK(hipSetupArgument(&pointer, 8, 0));
  CHECK(hipSetupArgument(&factor, 4, 8));
  CHECK(hipSetupArgument(&addend, 4, 12));
  CHECK(hipSetupArgument(&count, 4, 16));
  CHECK(hipLaunchByPtr(reinterpret_cast<const void*>(mix)));

  factor = secret(7);
  void* arguments[] = {&pointer, &factor, &addend, &count};
  CHECK(hipLaunchCooperativeKernel(reinterpret_cast<const void*>(mix), dim3(1), dim3(kThreads), arguments, 0, stream));
  factor = secret(8);
  CHECK(hipExtLaunchKernel(reinterpret_cast<const void*>(mix), dim3(1), dim3(kThreads), arguments, 0, stream, nullptr,
                           nullptr, 0));
  CHECK(hipStreamSynchronize(stream));
}

void graphs(hipStream_t stream) {
  DeviceWords data(kCount);
  void* pinned;
  CHECK(hipHostMalloc(&pinned, 96, hipHostMallocDefault));
  write_text(static_cast<char*>(pinned), 96, "graph input", 19);
  hipGraph_t graph;
  hipGraphNode_t upload, scale;
  CHECK(hipGraphCreate(&graph, 0));
  CHECK(hipGraphAddMemcpyNode1D(&upload, graph, nullptr, 0, data, pinned, 96, hipMemcpyHostToDevice));
  uint32_t* pointer = data;
  uint32_t factor = secret(9), addend = 0;
  int count = kCount;
  void* arguments[] = {&pointer, &factor, &addend, &count};
  hipKernelNodeParams kernel = {};
  kernel.func = reinterpret_cast<void*>(mix);
  kernel.gridDim = dim3(1);
  kernel.blockDim = dim3(kThreads);
  kernel.kernelParams = arguments;
  CHECK(hipGraphAddKernelNode(&scale, graph, &upload, 1, &kernel));
  hipGraphExec_t executable;
  CHECK(hipGraphInstantiate(&executable, graph, nullptr, nullptr, 0));
  factor = secret(10);
  CHECK(hipGraphExecKernelNodeSetParams(executable, scale, &kernel));
  CHECK(hipGraphLaunch(executable, stream));
  CHECK(hipStreamSynchronize(stream));
  CHECK(hipGraphExecDestroy(executable));
  CHECK(hipGraphDestroy(graph));
  CHECK(hipHostFree(pinned));
}

}  // namespace

int main() {
  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  copies(stream);
  launches(stream);
  graphs(stream);
  CHECK(hipStreamDestroy(stream));
  std::printf("secrets: ok\n");
}
