// Launches with unusual arguments and names, by symbol and by function, as an array and as a packed buffer. The arguments of
// more than 64 KiB are left out on devices that take fewer, whose code has no such kernel.
// embeds: launch_shapes
#include <cstring>

#include "launch_shapes.h"
#include "long_name.h"
#include "sweep.hpp"

extern "C" {
__global__ void read_large(large_arguments, int) {}
__global__ void follow_packed(packed_pointers, uint32_t, int) {}
__global__ void add_by_halves(uint32_t, uint32_t, uint32_t, int) {}
__global__ void LONG_NAME(uint32_t*, uint32_t, int) {}
}

namespace {

constexpr int kCount = 200;
uint32_t salt = 1;

struct Function {
  Function(hipModule_t module, const char* name) { CHECK(hipModuleGetFunction(&handle, module, name)); }
  void by_params(void** params) const {
    CHECK(hipModuleLaunchKernel(handle, blocks_for(kCount), 1, 1, kThreads, 1, 1, 0, nullptr, params, nullptr));
  }
  void by_buffer(void* buffer, size_t bytes) const {
    void* extra[] = {HIP_LAUNCH_PARAM_BUFFER_POINTER, buffer, HIP_LAUNCH_PARAM_BUFFER_SIZE, &bytes, HIP_LAUNCH_PARAM_END};
    CHECK(hipModuleLaunchKernel(handle, blocks_for(kCount), 1, 1, kThreads, 1, 1, 0, nullptr, nullptr, extra));
  }
  hipFunction_t handle;
};

void large(hipModule_t module) {
  hipFunction_t found;
  if (hipModuleGetFunction(&found, module, "read_large") == hipErrorNotFound) {
    std::printf("launch_shapes: arguments of 64 KiB skipped, the device takes none\n");
    (void)hipGetLastError();
    return;
  }
  const Function function(module, "read_large");
  DeviceWords addends(kCount), out(kCount);
  std::vector<large_arguments> arguments(1);
  for (int way = 0; way < 3; way++) {
    const Words values = pattern(LARGE_WORDS, salt++), added = pattern(kCount, salt++);
    upload(addends, added);
    arguments[0].addends = addends, arguments[0].out = out;
    std::memcpy(arguments[0].words, values.data(), sizeof arguments[0].words);
    int n = kCount;
    void* params[] = {arguments.data(), &n};
    if (way == 0)
      CHECK(hipLaunchKernel(reinterpret_cast<const void*>(read_large), dim3(blocks_for(kCount)), dim3(kThreads), params, 0,
                            nullptr));
    else if (way == 1)
      function.by_params(params);
    else {
      std::vector<char> buffer(sizeof(large_arguments) + 4);
      std::memcpy(buffer.data(), arguments.data(), sizeof(large_arguments));
      std::memcpy(buffer.data() + sizeof(large_arguments), &n, 4);
      function.by_buffer(buffer.data(), buffer.size());
    }
    CHECK(hipDeviceSynchronize());
    Words expected(kCount);
    for (int i = 0; i < kCount; i++) expected[i] = values[i * 31 % LARGE_WORDS] + added[i];
    EXPECT_WORDS(out, expected);
  }
}

void packed(hipModule_t module) {
  const Function function(module, "follow_packed");
  DeviceWords source(kCount), middle(3 * kCount), out(kCount);
  for (int way = 0; way < 3; way++) {
    const Words from = pattern(kCount, salt++), around = pattern(3 * kCount, salt++);
    upload(source, from);
    upload(middle, around);
    packed_pointers arguments = {};
    arguments.tag = char(way + 5), arguments.source = source, arguments.middle = middle + kCount, arguments.inner.out = out;
    uint32_t factor = 2 * salt + 1;
    int n = kCount;
    void* params[] = {&arguments, &factor, &n};
    if (way == 0)
      LAUNCH(follow_packed, blocks_for(kCount), kThreads, 0, nullptr, arguments, factor, n);
    else if (way == 1)
      function.by_params(params);
    else {
      // The struct ends at an odd offset, the word behind it is aligned.
      char buffer[(sizeof arguments + 3) / 4 * 4 + 8];
      std::memcpy(buffer, &arguments, sizeof arguments);
      std::memcpy(buffer + sizeof buffer - 8, &factor, 4);
      std::memcpy(buffer + sizeof buffer - 4, &n, 4);
      function.by_buffer(buffer, sizeof buffer);
    }
    CHECK(hipDeviceSynchronize());
    Words expected(kCount);
    for (int i = 0; i < kCount; i++) expected[i] = from[i] * factor + around[kCount + i] + uint32_t(way + 5);
    EXPECT_WORDS(out, expected);
  }
}

void halves(hipModule_t module) {
  const Function function(module, "add_by_halves");
  DeviceWords data(2 * kCount);
  Words expected = pattern(2 * kCount, salt++);
  upload(data, expected);
  for (int way = 0; way < 2; way++) {
    const uint64_t address = reinterpret_cast<uint64_t>(data + way * kCount);
    uint32_t low = uint32_t(address), high = uint32_t(address >> 32), value = 77 + way;
    int n = kCount;
    void* params[] = {&low, &high, &value, &n};
    if (way == 0)
      LAUNCH(add_by_halves, blocks_for(kCount), kThreads, 0, nullptr, low, high, value, n);
    else
      function.by_params(params);
    for (int i = 0; i < kCount; i++) expected[way * kCount + i] += value;
  }
  CHECK(hipDeviceSynchronize());
  EXPECT_WORDS(data, expected);
}

void long_name(hipModule_t module) {
  const char* name = LONG_NAME_TEXT(LONG_NAME);
  REQUIRE(std::strlen(name) == 4096, "%zu characters", std::strlen(name));
  const Function function(module, name);
  DeviceWords data(kCount);
  Words expected = pattern(kCount, salt++);
  upload(data, expected);
  uint32_t* pointer = data;
  uint32_t value = 9;
  int n = kCount;
  void* params[] = {&pointer, &value, &n};
  LAUNCH(LONG_NAME, blocks_for(kCount), kThreads, 0, nullptr, pointer, value, n);
  function.by_params(params);
  CHECK(hipDeviceSynchronize());
  host_mix(expected, 3, value);
  host_mix(expected, 3, value);
  EXPECT_WORDS(data, expected);
}

// Two devices, a kernel on each by one call, with arguments of their own.
void several_devices() {
  int devices = 0;
  CHECK(hipGetDeviceCount(&devices));
  if (devices < 2) return;
  uint32_t* data[2];
  hipStream_t streams[2];
  for (int d = 0; d < 2; d++) {
    CHECK(hipSetDevice(d));
    CHECK(hipMalloc(&data[d], kCount * 4));
    CHECK(hipStreamCreateWithFlags(&streams[d], hipStreamNonBlocking));
  }
  // The last way: kernels of different names and arguments.
  for (int way = 0; way < 3; way++) {
    Words expected[2];
    uint32_t values[2], low = 0, high = 0;
    int n = kCount;
    void* params[2][4];
    hipLaunchParams list[2] = {};
    for (int d = 0; d < 2; d++) {
      expected[d] = pattern(kCount, salt++);
      CHECK(hipSetDevice(d));
      upload(data[d], expected[d]);
      values[d] = 100 * salt + d;
      params[d][0] = &data[d], params[d][1] = &values[d], params[d][2] = &n;
      list[d].func = reinterpret_cast<void*>(LONG_NAME);
      list[d].gridDim = dim3(blocks_for(kCount)), list[d].blockDim = dim3(kThreads);
      list[d].args = params[d], list[d].stream = streams[d];
      if (way == 2 && d == 1) {
        const uint64_t address = reinterpret_cast<uint64_t>(data[d]);
        low = uint32_t(address), high = uint32_t(address >> 32);
        list[d].func = reinterpret_cast<void*>(add_by_halves);
        params[d][0] = &low, params[d][1] = &high, params[d][2] = &values[d], params[d][3] = &n;
      }
    }
    CHECK(hipSetDevice(0));
    CHECK(way == 0 ? hipLaunchCooperativeKernelMultiDevice(list, 2, 0) : hipExtLaunchMultiKernelMultiDevice(list, 2, 0));
    for (int d = 0; d < 2; d++) {
      CHECK(hipSetDevice(d));
      CHECK(hipStreamSynchronize(streams[d]));
      host_mix(expected[d], way == 2 && d == 1 ? 1 : 3, values[d]);
      EXPECT_WORDS(data[d], expected[d]);
    }
  }
  for (int d = 0; d < 2; d++) {
    CHECK(hipSetDevice(d));
    CHECK(hipFree(data[d]));
    CHECK(hipStreamDestroy(streams[d]));
  }
  CHECK(hipSetDevice(0));
}

// As above, with results in pinned memory: each kernel's are there when its own stream has been waited for, whatever the other does.
void several_devices_to_the_host() {
  int devices = 0;
  CHECK(hipGetDeviceCount(&devices));
  if (devices < 2) return;
  uint32_t* data[2];
  hipStream_t streams[2];
  Words expected[2];
  for (int d = 0; d < 2; d++) {
    CHECK(hipSetDevice(d));
    CHECK(hipHostMalloc(reinterpret_cast<void**>(&data[d]), kCount * 4, hipHostMallocPortable));
    CHECK(hipStreamCreateWithFlags(&streams[d], hipStreamNonBlocking));
    expected[d] = pattern(kCount, salt++);
    std::memcpy(data[d], expected[d].data(), kCount * 4);
  }
  CHECK(hipSetDevice(0));
  for (int round = 0; round < 4; round++) {
    uint32_t values[2];
    int n = kCount;
    void* params[2][3];
    hipLaunchParams list[2] = {};
    for (int d = 0; d < 2; d++) {
      values[d] = 100 * salt++ + d;
      params[d][0] = &data[d], params[d][1] = &values[d], params[d][2] = &n;
      list[d].func = reinterpret_cast<void*>(LONG_NAME);
      list[d].gridDim = dim3(blocks_for(kCount)), list[d].blockDim = dim3(kThreads);
      list[d].args = params[d], list[d].stream = streams[d];
    }
    CHECK(round % 2 == 0 ? hipLaunchCooperativeKernelMultiDevice(list, 2, 0)
                         : hipExtLaunchMultiKernelMultiDevice(list, 2, 0));
    for (int step = 0; step < 2; step++) {
      const int d = (round + step + 1) % 2;
      CHECK(hipStreamSynchronize(streams[d]));
      host_mix(expected[d], 3, values[d]);
      REQUIRE(std::memcmp(data[d], expected[d].data(), kCount * 4) == 0, "results on the host, device %d", d);
      // The host goes on with it while the other device may still be at work.
      for (int i = 0; i < kCount; i += 3) data[d][i] = expected[d][i] = uint32_t(round * 1000 + i + d);
    }
  }
  for (int d = 0; d < 2; d++) {
    CHECK(hipHostFree(data[d]));
    CHECK(hipStreamDestroy(streams[d]));
  }
}

}  // namespace

int main(int, char** argv) {
  hipModule_t module;
  CHECK(hipModuleLoad(&module, kernel_path(argv[0], "launch_shapes").c_str()));
  large(module);
  packed(module);
  halves(module);
  long_name(module);
  several_devices();
  several_devices_to_the_host();
  CHECK(hipModuleUnload(module));
  std::printf("launch_shapes: ok, %u patterns\n", salt);
}
