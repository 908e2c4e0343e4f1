// Every way to get, describe and give back memory: device, pitched, host, managed, pools, virtual addresses.
#include <cstring>

#include "sweep.hpp"

namespace {

constexpr size_t kCount = 256, kBytes = kCount * 4;
uint32_t seed = 1;

// Fills memory by a kernel, reads it back.
void use(uint32_t* memory, int line) {
  Words expected(kCount);
  const uint32_t first = seed++ * 977;
  LAUNCH(iota, blocks_for(kCount), kThreads, 0, nullptr, memory, first, int(kCount));
  LAUNCH(mix, blocks_for(kCount), kThreads, 0, nullptr, memory, 3, seed, int(kCount));
  CHECK(hipDeviceSynchronize());
  host_iota(expected, first);
  host_mix(expected, 3, seed);
  expect_words(memory, expected, "memory", line);
}
#define USE(memory) use(reinterpret_cast<uint32_t*>(memory), __LINE__)

void device_memory() {
  void* p = nullptr;
  size_t pitch = 0, size = 0;
  CHECK(hipMalloc(&p, kBytes));
  USE(p);
  hipDeviceptr_t base = nullptr;
  CHECK(hipMemGetAddressRange(&base, &size, static_cast<char*>(p) + 12));
  CHECK(hipMemPtrGetInfo(p, &size));
  REQUIRE(size >= kBytes, "size %zu", size);
  hipPointerAttribute_t attributes;
  CHECK(hipPointerGetAttributes(&attributes, p));
  // Frameworks ask about any pointer to find out whose it is: of memory that HIP was never told of, too.
  CHECK(hipPointerGetAttributes(&attributes, &size));
  CHECK(hipFree(p));
  for (unsigned flags : {0u, 1u, 3u}) {
    CHECK(hipExtMallocWithFlags(&p, kBytes, flags));
    USE(p);
    CHECK(hipFree(p));
  }
  CHECK(hipMallocPitch(&p, &pitch, 100, 20));
  REQUIRE(pitch >= 100, "pitch");
  USE(p);
  CHECK(hipMemset2D(p, pitch, 7, 100, 20));
  std::vector<unsigned char> rows(2000);
  CHECK(hipMemcpy2D(rows.data(), 100, p, pitch, 100, 20, hipMemcpyDeviceToHost));
  REQUIRE(all_bytes<unsigned char>(rows, 7), "pitched fill");
  CHECK(hipFree(p));
  hipDeviceptr_t driver;
  CHECK(hipMemAllocPitch(&driver, &pitch, 96, 16, 8));
  USE(driver);
  CHECK(hipFree(driver));
  hipPitchedPtr volume;
  CHECK(hipMalloc3D(&volume, make_hipExtent(64, 8, 4)));
  USE(volume.ptr);
  CHECK(hipFree(volume.ptr));
  size_t free = 0, total = 0;
  CHECK(hipMemGetInfo(&free, &total));
}

void host_memory() {
  // Pinned memory by each of its names, used through its device address.
  const auto through_device = [&](void* host, int line) {
    void* device = nullptr;
    CHECK(hipHostGetDevicePointer(&device, host, 0));
    const Words data = pattern(kCount, seed++);
    DeviceWords target(kCount);
    std::memcpy(host, data.data(), kBytes);
    CHECK(hipMemcpy(target, host, kBytes, hipMemcpyHostToDevice));
    expect_words(target, data, "pinned memory", line);
    LAUNCH(iota, blocks_for(kCount), kThreads, 0, nullptr, static_cast<uint32_t*>(device), 5, int(kCount));
    CHECK(hipDeviceSynchronize());
    Words expected(kCount);
    host_iota(expected, 5);
    require_equal(static_cast<uint32_t*>(host), expected.data(), kCount, "written by a kernel", line, __FILE__);
    CHECK(hipMemcpy(target, device, kBytes, hipMemcpyDefault));
    expect_words(target, expected, "pinned memory", line);
  };
#define PINNED(allocate, release) \
  {                               \
    void* p = nullptr;            \
    unsigned flags = 0;           \
    CHECK(allocate);              \
    CHECK(hipHostGetFlags(&flags, p)); \
    through_device(p, __LINE__);  \
    CHECK(release);               \
  }
  PINNED(hipHostMalloc(&p, kBytes, hipHostMallocDefault), hipHostFree(p))
  PINNED(hipHostMalloc(&p, kBytes, hipHostMallocPortable | hipHostMallocMapped), hipHostFree(p))
  PINNED(hipHostAlloc(&p, kBytes, 0), hipHostFree(p))
  PINNED(hipMallocHost(&p, kBytes), hipFreeHost(p))
  PINNED(hipMemAllocHost(&p, kBytes), hipHostFree(p))
  PINNED(hipExtHostAlloc(&p, kBytes, 0), hipHostFree(p))
  std::vector<uint32_t> own(2 * kCount);
  CHECK(hipHostRegister(own.data() + 3, kBytes, hipHostRegisterDefault));
  through_device(own.data() + 3, __LINE__);
  CHECK(hipHostUnregister(own.data() + 3));
}

void managed_memory(hipStream_t stream) {
  uint32_t* p = nullptr;
  CHECK(hipMallocManaged(reinterpret_cast<void**>(&p), kBytes, hipMemAttachGlobal));
  USE(p);
  CHECK(hipMemAdvise(p, kBytes, hipMemAdviseSetReadMostly, 0));
  CHECK(hipMemAdvise_v2(p, kBytes, 1, {hip7::kLocationDevice, 0}));
  CHECK(hipMemPrefetchAsync(p, kBytes, 0, stream));
  CHECK(hipMemPrefetchAsync_v2(p, kBytes, {hip7::kLocationDevice, 0}, 0, stream));
  CHECK(hipStreamAttachMemAsync(stream, p, 0, hipMemAttachSingle));
  CHECK(hipStreamSynchronize(stream));
  // Several ranges at once. What is discarded is written again before it is read.
  void* ranges[2] = {p, p + kCount / 2};
  size_t sizes[2] = {kBytes / 2, kBytes / 2}, first = 0;
  hip7::Location device = {hip7::kLocationDevice, 0};
  const hipError_t batches = hipMemPrefetchBatchAsync(ranges, sizes, 2, &device, &first, 1, 0, stream);
  if (batches == hipErrorNotSupported) {
    std::printf("sweep_memory: batches of ranges skipped, the runtime has none\n");
    (void)hipGetLastError();
  } else {
    CHECK(batches);
    CHECK(hipMemDiscardBatchAsync(ranges, sizes, 2, 0, stream));
    CHECK(hipMemDiscardAndPrefetchBatchAsync(ranges, sizes, 2, &device, &first, 1, 0, stream));
    CHECK(hipDrvMemDiscardBatchAsync(ranges, sizes, 2, 0, stream));
    CHECK(hipDrvMemDiscardAndPrefetchBatchAsync(ranges, sizes, 2, &device, &first, 1, 0, stream));
    CHECK(hipStreamSynchronize(stream));
  }
  uint32_t attribute = 0;
  CHECK(hipMemRangeGetAttribute(&attribute, sizeof attribute, hipMemRangeAttributeReadMostly, p, kBytes));
  uint32_t again = ~attribute, preferred = 0;
  void* answers[2] = {&again, &preferred};
  size_t answer_bytes[2] = {sizeof again, sizeof preferred};
  hipMemRangeAttribute wanted[2] = {hipMemRangeAttributeReadMostly, hipMemRangeAttributePreferredLocation};
  CHECK(hipMemRangeGetAttributes(answers, answer_bytes, wanted, 2, p, kBytes));
  REQUIRE(again == attribute, "attribute %u, and %u", attribute, again);
  USE(p);
  CHECK(hipFree(p));
}

void pools(hipStream_t stream) {
  void *a = nullptr, *b = nullptr;
  CHECK(hipMallocAsync(&a, kBytes, stream));
  CHECK(hipStreamSynchronize(stream));
  USE(a);
  hipMemPoolProps properties = {};
  auto* props = reinterpret_cast<hip7::PoolProps*>(&properties);
  props->allocType = 1, props->location = {hip7::kLocationDevice, 0};
  hipMemPool_t pool, current;
  CHECK(hipMemPoolCreate(&pool, &properties));
  uint64_t threshold = 1 << 20;
  CHECK(hipMemPoolSetAttribute(pool, hipMemPoolAttrReleaseThreshold, &threshold));
  threshold = 0;
  CHECK(hipMemPoolGetAttribute(pool, hipMemPoolAttrReleaseThreshold, &threshold));
  REQUIRE(threshold == 1 << 20, "release threshold");
  hipMemAccessDesc access = {};
  access.location = {hipMemLocationTypeDevice, 0};
  access.flags = hipMemAccessFlagsProtReadWrite;
  CHECK(hipMemPoolSetAccess(pool, &access, 1));
  hipMemAccessFlags flags;
  hipMemLocation location = {hipMemLocationTypeDevice, 0};
  CHECK(hipMemPoolGetAccess(&flags, pool, &location));
  CHECK(hipMallocFromPoolAsync(&b, kBytes, pool, stream));
  CHECK(hipStreamSynchronize(stream));
  USE(b);
  CHECK(hipFreeAsync(b, stream));
  CHECK(hipFreeAsync(a, stream));
  CHECK(hipStreamSynchronize(stream));
  CHECK(hipMemPoolTrimTo(pool, 0));
  CHECK(hipDeviceGetMemPool(&current, 0));
  CHECK(hipDeviceSetMemPool(0, pool));
  CHECK(hipMallocAsync(&a, kBytes, stream));
  CHECK(hipStreamSynchronize(stream));
  USE(a);
  CHECK(hipFreeAsync(a, stream));
  CHECK(hipStreamSynchronize(stream));
  hip7::Location where = {hip7::kLocationDevice, 0};
  CHECK(hipMemGetMemPool(&current, &where, 1));
  REQUIRE(current == pool, "current pool");
  CHECK(hipMemGetDefaultMemPool(&current, &where, 1));
  CHECK(hipMemSetMemPool(&where, 1, current));
  CHECK(hipDeviceGetDefaultMemPool(&current, 0));
  CHECK(hipDeviceSetMemPool(0, current));
  CHECK(hipMemPoolDestroy(pool));
}

void virtual_addresses() {
  hipMemAllocationProp properties = {};
  properties.type = hipMemAllocationTypePinned;
  properties.location = {hipMemLocationTypeDevice, 0};
  size_t granularity = 0;
  CHECK(hipMemGetAllocationGranularity(&granularity, &properties, hipMemAllocationGranularityMinimum));
  void* base = nullptr;
  CHECK(hipMemAddressReserve(&base, 2 * granularity, 0, nullptr, 0));
  hipMemGenericAllocationHandle_t first, second, again;
  CHECK(hipMemCreate(&first, granularity, &properties, 0));
  CHECK(hipMemCreate(&second, granularity, &properties, 0));
  auto* upper = static_cast<char*>(base) + granularity;
  CHECK(hipMemMap(base, granularity, 0, first, 0));
  CHECK(hipMemMap(upper, granularity, 0, second, 0));
  hipMemAccessDesc access = {};
  access.location = properties.location;
  access.flags = hipMemAccessFlagsProtReadWrite;
  CHECK(hipMemSetAccess(base, 2 * granularity, &access, 1));
  unsigned long long flags = 0;
  CHECK(hipMemGetAccess(&flags, &properties.location, base));
  USE(base);
  USE(upper);
  CHECK(hipMemRetainAllocationHandle(&again, upper));
  CHECK(hipMemRelease(again));
  hipMemAllocationProp got;
  CHECK(hipMemGetAllocationPropertiesFromHandle(&got, first));
  CHECK(hipMemUnmap(base, granularity));
  CHECK(hipMemMap(base, granularity, 0, first, 0));
  CHECK(hipMemSetAccess(base, granularity, &access, 1));
  USE(base);
  CHECK(hipMemUnmap(base, granularity));
  CHECK(hipMemUnmap(upper, granularity));
  CHECK(hipMemRelease(first));
  CHECK(hipMemRelease(second));
  CHECK(hipMemAddressFree(base, 2 * granularity));
}

void attributes() {
  DeviceWords data(kCount);
  uint64_t value = 0;
  auto* pointer = reinterpret_cast<hipDeviceptr_t>(static_cast<uint32_t*>(data));
  CHECK(hipPointerGetAttribute(&value, HIP_POINTER_ATTRIBUTE_BUFFER_ID, pointer));
  unsigned sync = 1;
  CHECK(hipPointerSetAttribute(&sync, HIP_POINTER_ATTRIBUTE_SYNC_MEMOPS, pointer));
  hipPointer_attribute wanted[] = {HIP_POINTER_ATTRIBUTE_BUFFER_ID};
  void* places[] = {&value};
  CHECK(hipDrvPointerGetAttributes(1, wanted, places, pointer));
  USE(static_cast<uint32_t*>(data));
}

}  // namespace

int main() {
  hipStream_t stream;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  device_memory();
  host_memory();
  managed_memory(stream);
  pools(stream);
  virtual_addresses();
  attributes();
  CHECK(hipStreamDestroy(stream));
  std::printf("sweep_memory: ok, %u patterns\n", seed);
}
