// Streams, events, devices, contexts and errors: calls that order work, calls that set state, calls that only ask.
#include <cstring>

#include "sweep.hpp"

namespace {

constexpr int kCount = 256;
uint32_t salt = 1;

void stream_work(hipStream_t stream, int line) {
  DeviceWords data(kCount);
  Words expected = pattern(kCount, salt++);
  upload(data, expected);
  LAUNCH(mix, blocks_for(kCount), kThreads, 0, stream, data, 2 * salt + 1, salt, kCount);
  CHECK(hipStreamSynchronize(stream));
  host_mix(expected, 2 * salt + 1, salt);
  expect_words(data, expected, "work on a stream", line);
}

void streams() {
  hipStream_t stream, other;
  int least = 0, greatest = 0, priority = 0, device = -1;
  unsigned flags = 0;
  unsigned long long id = 0;
  CHECK(hipDeviceGetStreamPriorityRange(&least, &greatest));
  CHECK(hipStreamCreate(&stream));
  stream_work(stream, __LINE__);
  CHECK(hipStreamDestroy(stream));
  CHECK(hipStreamCreateWithPriority(&stream, hipStreamNonBlocking, greatest));
  stream_work(stream, __LINE__);
  CHECK(hipStreamGetPriority(stream, &priority));
  CHECK(hipStreamGetPriority_spt(stream, &priority));
  CHECK(hipStreamGetFlags(stream, &flags));
  CHECK(hipStreamGetFlags_spt(stream, &flags));
  CHECK(hipStreamGetDevice(stream, &device));
  REQUIRE(device == 0 && hipGetStreamDeviceId(stream) == 0, "stream's device");
  CHECK(hipStreamGetId(stream, &id));
  const uint32_t mask[] = {0xffffffff};
  uint32_t got[4] = {};
  CHECK(hipExtStreamCreateWithCUMask(&other, 1, mask));
  CHECK(hipExtStreamGetCUMask(other, 1, got));
  stream_work(other, __LINE__);
  uint64_t attribute[8] = {};
  CHECK(hipStreamGetAttribute(stream, 8, attribute));
  CHECK(hipStreamSetAttribute(stream, 8, attribute));
  CHECK(hipStreamCopyAttributes(other, stream));
  stream_work(hipStreamPerThread, __LINE__);
  CHECK(hipStreamSynchronize_spt(nullptr));
  while (hipStreamQuery(stream) != hipSuccess) {
  }
  while (hipStreamQuery_spt(nullptr) != hipSuccess) {
  }
  CHECK(hipStreamDestroy(stream));
  CHECK(hipStreamDestroy(other));
}

void events() {
  hipStream_t first, second;
  CHECK(hipStreamCreateWithFlags(&first, hipStreamNonBlocking));
  CHECK(hipStreamCreateWithFlags(&second, hipStreamNonBlocking));
  DeviceWords data(kCount), slow(64);
  CHECK(hipMemset(slow, 1, 256));
  Words expected = pattern(kCount, salt++);
  hipEvent_t event, start;
  CHECK(hipEventCreate(&start));
  CHECK(hipEventRecord(start, first));
  upload(data, expected);
  // Hand the buffer from stream to stream, each time by another spelling.
  for (int step = 0; step < 6; step++) {
    CHECK(hipEventCreateWithFlags(&event, step % 2 ? hipEventDefault : hipEventDisableTiming));
    hipStream_t from = step % 2 ? second : first, to = step % 2 ? first : second;
    // Slow, so that who does not wait comes too early.
    LAUNCH(busy, 1, 64, 0, from, slow, 60000, 64);
    LAUNCH(mix, blocks_for(kCount), kThreads, 0, from, data, 2 * salt + 1, salt, kCount);
    host_mix(expected, 2 * salt + 1, salt);
    salt++;
    if (step < 2)
      CHECK(hipEventRecord(event, from));
    else if (step < 4)
      CHECK(hipEventRecordWithFlags(event, from, 0));
    else
      CHECK(hipEventRecord_spt(event, from));
    if (step % 3 == 0)
      CHECK(hipStreamWaitEvent_spt(to, event, 0));
    else
      CHECK(hipStreamWaitEvent(to, event, 0));
    LAUNCH(mix, blocks_for(kCount), kThreads, 0, to, data, 2 * salt + 1, salt, kCount);
    host_mix(expected, 2 * salt + 1, salt);
    salt++;
    if (step == 5) {
      CHECK(hipEventSynchronize(event));
      while (hipEventQuery(event) != hipSuccess) {
      }
      float ms = -1;
      CHECK(hipEventElapsedTime(&ms, start, event));
      REQUIRE(ms >= 0, "elapsed");
    }
    CHECK(hipEventDestroy(event));
  }
  CHECK(hipStreamSynchronize(first));
  EXPECT_WORDS(data, expected);
  CHECK(hipEventDestroy(start));
  CHECK(hipStreamDestroy(first));
  CHECK(hipStreamDestroy(second));
}

void on_host(void* flag) { *static_cast<int*>(flag) += 1; }
void on_stream(hipStream_t, hipError_t, void* flag) { *static_cast<int*>(flag) += 1; }

void values_and_callbacks() {
  hipStream_t stream, waiter;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  CHECK(hipStreamCreateWithFlags(&waiter, hipStreamNonBlocking));
  uint32_t* memory;
  CHECK(hipMalloc(reinterpret_cast<void**>(&memory), 64));
  CHECK(hipMemset(memory, 0, 64));
  CHECK(hipDeviceSynchronize());
  // The waiter's work comes after the other stream's, slow, work and its write; by each width.
  DeviceWords data(kCount), slow(64);
  CHECK(hipMemset(slow, 1, 256));
  CHECK(hipDeviceSynchronize());
  for (int width = 0; width < 2; width++) {
    if (width == 0)
      CHECK(hipStreamWaitValue32(waiter, memory, 5, hipStreamWaitValueGte, 0xffffffff));
    else
      CHECK(hipStreamWaitValue64(waiter, memory + 2, 6, hipStreamWaitValueGte, ~0ull));
    CHECK(hipMemsetAsync(data, 3 + width, kCount * 4, waiter));
    LAUNCH(busy, 1, 64, 0, stream, slow, 60000, 64);
    CHECK(hipMemsetAsync(data, 9, kCount * 4, stream));
    if (width == 0)
      CHECK(hipStreamWriteValue32(stream, memory, 5, 0));
    else
      CHECK(hipStreamWriteValue64(stream, memory + 2, 6, 0));
    CHECK(hipStreamSynchronize(waiter));
    CHECK(hipStreamSynchronize(stream));
    EXPECT_WORDS(data, Words(kCount, 0x01010101u * (3 + width)));
  }
  hip7::BatchMemOp operations[2] = {};
  operations[0].operation = 2, operations[0].address = memory + 4, operations[0].value = 21;
  operations[1].operation = 5, operations[1].address = memory + 6, operations[1].value = 22;
  CHECK(hipStreamBatchMemOp(stream, 2, operations, 0));
  CHECK(hipStreamSynchronize(stream));
  EXPECT_WORDS(memory, (Words{5, 0, 6, 0, 21, 0, 22, 0}));
  int called = 0;
  CHECK(hipLaunchHostFunc(stream, on_host, &called));
  CHECK(hipLaunchHostFunc_spt(stream, on_host, &called));
  CHECK(hipStreamAddCallback(stream, on_stream, &called, 0));
  CHECK(hipStreamAddCallback_spt(stream, on_stream, &called, 0));
  CHECK(hipMemsetAsync(data, 4, kCount * 4, stream));
  CHECK(hipStreamSynchronize(stream));
  REQUIRE(called == 4, "%d callbacks", called);
  EXPECT_WORDS(data, Words(kCount, 0x04040404));
  CHECK(hipFree(memory));
  CHECK(hipStreamDestroy(stream));
  CHECK(hipStreamDestroy(waiter));
}

void devices() {
  int value = 0, other = 0, device = -1;
  char text[256];
  size_t bytes = 0;
  unsigned flags = 0;
  CHECK(hipInit(0));
  CHECK(hipDriverGetVersion(&value));
  CHECK(hipRuntimeGetVersion(&value));
  CHECK(hipGetDeviceCount(&value));
  CHECK(hipGetDevice(&device));
  CHECK(hipDeviceGet(&device, 0));
  CHECK(hipDeviceGetName(text, sizeof text, 0));
  CHECK(hipDeviceGetPCIBusId(text, sizeof text, 0));
  CHECK(hipDeviceGetByPCIBusId(&value, text));
  hipUUID uuid;
  CHECK(hipDeviceGetUuid(&uuid, 0));
  CHECK(hipDeviceTotalMem(&bytes, 0));
  CHECK(hipDeviceComputeCapability(&value, &other, 0));
  CHECK(hipDeviceGetAttribute(&value, hipDeviceAttributeMaxThreadsPerBlock, 0));
  CHECK(hipDeviceCanAccessPeer(&value, 0, 0));
  std::vector<char> properties(2048);
  CHECK(hipGetDevicePropertiesR0600(properties.data(), 0));
  CHECK(hipGetDevicePropertiesR0000(properties.data(), 0));
  CHECK(hipChooseDeviceR0000(&value, properties.data()));
  CHECK(hipGetDeviceFlags(&flags));
  CHECK(hipSetDeviceFlags(hipDeviceScheduleAuto));
  CHECK(hipSetDevice(0));
  hipFuncCache_t cache;
  CHECK(hipDeviceGetCacheConfig(&cache));
  CHECK(hipDeviceSetCacheConfig(hipFuncCachePreferNone));
  hipSharedMemConfig config;
  CHECK(hipDeviceGetSharedMemConfig(&config));
  CHECK(hipDeviceSetSharedMemConfig(hipSharedMemBankSizeFourByte));
  CHECK(hipDeviceGetLimit(&bytes, hipLimitMallocHeapSize));
  CHECK(hipDeviceSetLimit(hipLimitMallocHeapSize, bytes));
  unsigned luid_mask = 0;
  // Neither is there on every device and system.
  (void)hipDeviceFlushGPUDirectRDMAWrites(0, 100);
  (void)hipDeviceGetLuid(text, &luid_mask, 0);
  (void)hipGetLastError();
  // The code of the last call, whatever came before.
  CHECK(hipGetDevice(&device));
  REQUIRE(hipExtGetLastError() == hipSuccess, "an error of the last call");
  CHECK(hipDeviceSynchronize());
  stream_work(nullptr, __LINE__);
}

void contexts() {
  hipCtx_t context, current, primary;
  unsigned flags = 0;
  int active = 0, version = 0;
  hipDevice_t device;
  CHECK(hipDevicePrimaryCtxRetain(&primary, 0));
  CHECK(hipDevicePrimaryCtxGetState(0, &flags, &active));
  (void)hipDevicePrimaryCtxSetFlags(0, 0);
  (void)hipGetLastError();
  CHECK(hipCtxCreate(&context, 0, 0));
  CHECK(hipCtxGetCurrent(&current));
  CHECK(hipCtxGetDevice(&device));
  CHECK(hipCtxGetFlags(&flags));
  CHECK(hipCtxGetApiVersion(context, &version));
  hipFuncCache_t cache;
  CHECK(hipCtxGetCacheConfig(&cache));
  CHECK(hipCtxSetCacheConfig(hipFuncCachePreferNone));
  hipSharedMemConfig config;
  CHECK(hipCtxGetSharedMemConfig(&config));
  CHECK(hipCtxSetSharedMemConfig(hipSharedMemBankSizeFourByte));
  stream_work(nullptr, __LINE__);
  CHECK(hipCtxSynchronize());
  CHECK(hipCtxPopCurrent(&current));
  CHECK(hipCtxPushCurrent(context));
  CHECK(hipCtxSetCurrent(context));
  CHECK(hipCtxPopCurrent(&current));
  CHECK(hipCtxDestroy(context));
  CHECK(hipDevicePrimaryCtxRelease(0));
  CHECK(hipSetDevice(0));
}

void questions_and_errors() {
  const char* text = nullptr;
  CHECK(hipDrvGetErrorName(hipErrorInvalidValue, &text));
  CHECK(hipDrvGetErrorString(hipErrorInvalidValue, &text));
  REQUIRE(hipGetErrorString(hipErrorInvalidValue) != nullptr, "no text");
  (void)hipApiName(1);
  REQUIRE(hipSetDevice(1000) == hipErrorInvalidDevice, "a device 1000");
  REQUIRE(hipPeekAtLastError() == hipErrorInvalidDevice, "peek");
  REQUIRE(hipExtGetLastError() == hipErrorInvalidDevice, "last error");
  REQUIRE(hipGetLastError() == hipErrorInvalidDevice, "last error once more");
  REQUIRE(hipGetLastError() == hipSuccess, "error left");
  void* function = nullptr;
  int status = 0;
  CHECK(hipGetProcAddress("hipMalloc", &function, 600, 0, &status));
  CHECK(hipGetProcAddress_spt("hipMemcpy", &function, 600, 0, &status));
  CHECK(hipGetDriverEntryPoint("hipFree", &function, 0, &status));
  CHECK(hipGetDriverEntryPoint_spt("hipMemset", &function, 0, &status));
  // What is called through such an address is a call like others.
  CHECK(hipGetProcAddress("hipMemset", &function, 600, 0, &status));
  DeviceWords data(kCount);
  CHECK((reinterpret_cast<hipError_t (*)(void*, int, size_t)>(function)(data, 6, kCount * 4)));
  CHECK(hipDeviceSynchronize());
  EXPECT_WORDS(data, Words(kCount, 0x06060606));
  CHECK(hipExtSetLoggingParams(0, 0, 0));
  CHECK(hipExtEnableLogging());
  CHECK(hipExtDisableLogging());
  // Supported by no AMD runtime yet.
  (void)hipProfilerStart();
  (void)hipProfilerStop();
  (void)hipGetLastError();
}

}  // namespace

int main() {
  devices();
  streams();
  events();
  values_and_callbacks();
  contexts();
  questions_and_errors();
  std::printf("sweep_streams: ok, %u patterns\n", salt);
}
