// Copies and fills in every spelling: linear, pitched, volumes, driver structs, arrays, symbols, batches, peers.
#include <cstring>

#include "sweep.hpp"

namespace {

constexpr size_t kCount = 600, kBytes = kCount * 4;
constexpr hipMemcpyKind H2D = hipMemcpyHostToDevice, D2H = hipMemcpyDeviceToHost, D2D = hipMemcpyDeviceToDevice;
uint32_t seed = 1;

// A host buffer at an odd distance from its allocation, pinned or not.
struct Host {
  explicit Host(bool pinned, size_t count = kCount) : pinned(pinned), words(nullptr) {
    if (pinned)
      CHECK(hipHostMalloc(reinterpret_cast<void**>(&words), count * 4 + 64, 0));
    else
      words = static_cast<uint32_t*>(std::malloc(count * 4 + 64));
    std::memset(words, 0xee, count * 4 + 64);
  }
  ~Host() {
    if (pinned)
      (void)hipHostFree(words);
    else
      std::free(words);
  }
  void set(const Words& from) { std::memcpy(words, from.data(), from.size() * 4); }
  Words get(size_t count = kCount) const { return Words(words, words + count); }
  bool pinned;
  uint32_t* words;
};

void linear(hipStream_t stream, bool pinned) {
  DeviceWords a(kCount), b(kCount);
  Host in(pinned), out(pinned);
  // Each way in, then each way out.
  const auto check = [&](const Words& expected, int line) {
    CHECK(hipStreamSynchronize(stream));
    require_equal(out.words, expected.data(), expected.size(), "linear copy", line, __FILE__);
    std::memset(out.words, 0xee, kBytes);
  };
  Words data = pattern(kCount, seed++);
#define IN(call)                 \
  data = pattern(kCount, seed++); \
  in.set(data);                  \
  CHECK(call);                   \
  CHECK(hipStreamSynchronize(stream));\
  CHECK(hipStreamSynchronize(hipStreamPerThread));
#define OUT(call) \
  CHECK(call);    \
  CHECK(hipStreamSynchronize(hipStreamPerThread));\
  check(data, __LINE__);
  IN(hipMemcpy(a, in.words, kBytes, H2D))
  OUT(hipMemcpy(out.words, a, kBytes, D2H))
  IN(hipMemcpy(a, in.words, kBytes, hipMemcpyDefault))
  OUT(hipMemcpy(out.words, a, kBytes, hipMemcpyDefault))
  IN(hipMemcpyAsync(a, in.words, kBytes, H2D, stream))
  OUT(hipMemcpyAsync(out.words, a, kBytes, D2H, stream))
  IN(hipMemcpyAsync(a, in.words, kBytes, hipMemcpyDefault, stream))
  OUT(hipMemcpyAsync(out.words, a, kBytes, hipMemcpyDefault, stream))
  IN(hipMemcpyHtoD(reinterpret_cast<hipDeviceptr_t>(static_cast<uint32_t*>(a)), in.words, kBytes))
  OUT(hipMemcpyDtoH(out.words, reinterpret_cast<hipDeviceptr_t>(static_cast<uint32_t*>(a)), kBytes))
  IN(hipMemcpyHtoDAsync(reinterpret_cast<hipDeviceptr_t>(static_cast<uint32_t*>(a)), in.words, kBytes, stream))
  OUT(hipMemcpyDtoHAsync(out.words, reinterpret_cast<hipDeviceptr_t>(static_cast<uint32_t*>(a)), kBytes, stream))
  IN(hipMemcpyWithStream(a, in.words, kBytes, H2D, stream))
  OUT(hipMemcpyWithStream(out.words, a, kBytes, D2H, stream))
  IN(hipMemcpy_spt(a, in.words, kBytes, H2D))
  OUT(hipMemcpy_spt(out.words, a, kBytes, D2H))
  IN(hipMemcpyAsync_spt(a, in.words, kBytes, H2D, stream))
  OUT(hipMemcpyAsync_spt(out.words, a, kBytes, D2H, stream))
  IN(hipMemcpy(a, in.words, kBytes, H2D))
  CHECK(hipMemcpyDtoD(reinterpret_cast<hipDeviceptr_t>(static_cast<uint32_t*>(b)),
                      reinterpret_cast<hipDeviceptr_t>(static_cast<uint32_t*>(a)), kBytes));
  EXPECT_WORDS(b, data);
  IN(hipMemcpy(a, in.words, kBytes, H2D))
  CHECK(hipMemcpyDtoDAsync(reinterpret_cast<hipDeviceptr_t>(static_cast<uint32_t*>(b)),
                           reinterpret_cast<hipDeviceptr_t>(static_cast<uint32_t*>(a)), kBytes, stream));
  CHECK(hipStreamSynchronize(stream));
  EXPECT_WORDS(b, data);
  IN(hipMemcpy(a, in.words, kBytes, H2D))
  CHECK(hipMemcpyPeer(b, 0, a, 0, kBytes));
  EXPECT_WORDS(b, data);
  IN(hipMemcpy(a, in.words, kBytes, H2D))
  CHECK(hipMemcpyPeerAsync(b, 0, a, 0, kBytes, stream));
  CHECK(hipStreamSynchronize(stream));
  EXPECT_WORDS(b, data);
}

// Rows of `width` bytes at two pitches.
void pitched(hipStream_t stream, bool pinned) {
  constexpr size_t width = 40, height = 10, host_pitch = 52, device_pitch = 64;
  DeviceWords device(device_pitch * height / 4);
  Host in(pinned), out(pinned);
  Words data, expected(kCount, 0xeeeeeeee);
  int line = 0;
  const auto before = [&] {
    data = pattern(kCount, seed++);
    in.set(data);
    std::memset(out.words, 0xee, kBytes);
    expected.assign(kCount, 0xeeeeeeee);
    for (size_t y = 0; y < height; y++)
      std::memcpy(reinterpret_cast<char*>(expected.data()) + y * host_pitch,
                  reinterpret_cast<char*>(data.data()) + y * host_pitch, width);
  };
  const auto after = [&] {
    CHECK(hipStreamSynchronize(stream));
    CHECK(hipStreamSynchronize(hipStreamPerThread));
    require_equal(out.words, expected.data(), host_pitch * height / 4 - 3, "pitched copy", line, __FILE__);
  };
#define BOTH(to_device, to_host)                     \
  line = __LINE__;                                   \
  before();                                          \
  CHECK(to_device);                                  \
  CHECK(hipStreamSynchronize(stream));               \
  CHECK(hipStreamSynchronize(hipStreamPerThread));   \
  CHECK(to_host);                                    \
  after();
  BOTH(hipMemcpy2D(device, device_pitch, in.words, host_pitch, width, height, H2D),
       hipMemcpy2D(out.words, host_pitch, device, device_pitch, width, height, D2H))
  BOTH(hipMemcpy2DAsync(device, device_pitch, in.words, host_pitch, width, height, H2D, stream),
       hipMemcpy2DAsync(out.words, host_pitch, device, device_pitch, width, height, D2H, stream))
  BOTH(hipMemcpy2D_spt(device, device_pitch, in.words, host_pitch, width, height, H2D),
       hipMemcpy2D_spt(out.words, host_pitch, device, device_pitch, width, height, D2H))
  BOTH(hipMemcpy2DAsync_spt(device, device_pitch, in.words, host_pitch, width, height, H2D, stream),
       hipMemcpy2DAsync_spt(out.words, host_pitch, device, device_pitch, width, height, D2H, stream))

  hip7::Memcpy2D to = {}, from = {};
  to.srcType = hip7::kMemoryHost, to.srcHost = in.words, to.srcPitch = host_pitch;
  to.dstType = hip7::kMemoryDevice, to.dstDevice = device, to.dstPitch = device_pitch;
  to.width = width, to.height = height;
  from.srcType = hip7::kMemoryDevice, from.srcDevice = device, from.srcPitch = device_pitch;
  from.dstType = hip7::kMemoryHost, from.dstHost = out.words, from.dstPitch = host_pitch;
  from.width = width, from.height = height;
  const auto* to2 = reinterpret_cast<const hip_Memcpy2D*>(&to);
  const auto* from2 = reinterpret_cast<const hip_Memcpy2D*>(&from);
  BOTH(hipMemcpyParam2D(to2), hipMemcpyParam2D(from2))
  BOTH(hipMemcpyParam2DAsync(to2, stream), hipMemcpyParam2DAsync(from2, stream))
  BOTH(hipDrvMemcpy2DUnaligned(to2), hipDrvMemcpy2DUnaligned(from2))
  // The same rows, from where the struct's position says.
  to.srcX = 8, to.srcY = 1, to.srcHost = reinterpret_cast<char*>(in.words) - 8 - host_pitch;
  from.dstX = 4, from.dstY = 2, from.dstHost = reinterpret_cast<char*>(out.words) - 4 - 2 * host_pitch;
  BOTH(hipMemcpyParam2D(to2), hipMemcpyParam2D(from2))
}

void volumes(hipStream_t stream, bool pinned) {
  constexpr size_t width = 20, height = 3, depth = 2;
  hipPitchedPtr device;
  CHECK(hipMalloc3D(&device, make_hipExtent(width, height, depth)));
  Host in(pinned), out(pinned);
  hipMemcpy3DParms to = {}, from = {};
  // Rows 28 bytes apart, slices 4 rows apart, from the second row's third word on.
  to.srcPtr = make_hipPitchedPtr(in.words, 28, 28, 4);
  to.srcPos = make_hipPos(8, 1, 0);
  to.dstPtr = device;
  to.extent = make_hipExtent(width, height, depth);
  to.kind = H2D;
  from.srcPtr = device;
  from.dstPtr = make_hipPitchedPtr(out.words, 32, 32, 5);
  from.dstPos = make_hipPos(4, 0, 1);
  from.extent = to.extent;
  from.kind = D2H;
  Words expected;
  int line = 0;
  const auto before = [&] {
    const Words data = pattern(kCount, seed++);
    in.set(data);
    std::memset(out.words, 0xee, kBytes);
    expected.assign(kCount, 0xeeeeeeee);
    for (size_t z = 0; z < depth; z++)
      for (size_t y = 0; y < height; y++)
        for (size_t x = 0; x < width / 4; x++)
          expected[((z + 1) * 5 + y) * 8 + 1 + x] = data[(z * 4 + y + 1) * 7 + 2 + x];
  };
  const auto after = [&] {
    CHECK(hipStreamSynchronize(stream));
    CHECK(hipStreamSynchronize(hipStreamPerThread));
    require_equal(out.words, expected.data(), kCount, "volume", line, __FILE__);
  };
  BOTH(hipMemcpy3D(&to), hipMemcpy3D(&from))
  BOTH(hipMemcpy3DAsync(&to, stream), hipMemcpy3DAsync(&from, stream))
  BOTH(hipMemcpy3D_spt(&to), hipMemcpy3D_spt(&from))
  BOTH(hipMemcpy3DAsync_spt(&to, stream), hipMemcpy3DAsync_spt(&from, stream))
  to.kind = from.kind = hipMemcpyDefault;
  BOTH(hipMemcpy3D(&to), hipMemcpy3D(&from))

  hip7::Memcpy3D drv_to = {}, drv_from = {};
  drv_to.srcX = 8, drv_to.srcY = 1, drv_to.srcType = hip7::kMemoryHost, drv_to.srcHost = in.words;
  drv_to.srcPitch = 28, drv_to.srcHeight = 4;
  drv_to.dstType = hip7::kMemoryDevice, drv_to.dstDevice = device.ptr, drv_to.dstPitch = device.pitch;
  drv_to.dstHeight = height, drv_to.width = width, drv_to.height = height, drv_to.depth = depth;
  drv_from.srcType = hip7::kMemoryDevice, drv_from.srcDevice = device.ptr, drv_from.srcPitch = device.pitch;
  drv_from.srcHeight = height, drv_from.dstX = 4, drv_from.dstZ = 1, drv_from.dstType = hip7::kMemoryHost;
  drv_from.dstHost = out.words, drv_from.dstPitch = 32, drv_from.dstHeight = 5;
  drv_from.width = width, drv_from.height = height, drv_from.depth = depth;
  const auto* to3 = reinterpret_cast<const HIP_MEMCPY3D*>(&drv_to);
  const auto* from3 = reinterpret_cast<const HIP_MEMCPY3D*>(&drv_from);
  BOTH(hipDrvMemcpy3D(to3), hipDrvMemcpy3D(from3))
  BOTH(hipDrvMemcpy3DAsync(to3, stream), hipDrvMemcpy3DAsync(from3, stream))

  // Device to device with the structs of peer copies.
  DeviceWords second(device.pitch * height * depth / 4);
  hip7::Memcpy3DPeer peer = {};
  peer.srcPtr = {device.ptr, device.pitch, device.xsize, height};
  peer.dstPtr = {second, device.pitch, device.xsize, height};
  peer.extent = {width, height, depth};
  from.srcPtr.ptr = second;
  from.kind = D2H;
  line = __LINE__;
  before();
  CHECK(hipMemcpy3D(&to));
  CHECK(hipMemcpy3DPeer(&peer));
  CHECK(hipMemcpy3D(&from));
  after();
  before();
  CHECK(hipMemcpy3D(&to));
  CHECK(hipMemcpy3DPeerAsync(&peer, stream));
  CHECK(hipStreamSynchronize(stream));
  CHECK(hipMemcpy3D(&from));
  after();
  CHECK(hipFree(device.ptr));
}

void arrays(hipStream_t stream, bool pinned) {
  constexpr size_t columns = 16, rows = 6, row_bytes = columns * 4, n = columns * rows, bytes = n * 4;
  const hipChannelFormatDesc desc = hipCreateChannelDesc(32, 0, 0, 0, hipChannelFormatKindUnsigned);
  hipArray *array, *other;
  CHECK(hipMallocArray(&array, &desc, columns, rows, 0));
  CHECK(hipMallocArray(&other, &desc, columns, rows, 0));
  DeviceWords device(n);
  Host in(pinned), out(pinned);
  Words data, expected;
  int line = 0;
  const auto before = [&] {
    data = pattern(n, seed++);
    in.set(data);
    std::memset(out.words, 0xee, kBytes);
    expected = data;
  };
  const auto after = [&] {
    CHECK(hipStreamSynchronize(stream));
    CHECK(hipStreamSynchronize(hipStreamPerThread));
    require_equal(out.words, expected.data(), n, "array copy", line, __FILE__);
  };
  BOTH(hipMemcpy2DToArray(array, 0, 0, in.words, row_bytes, row_bytes, rows, H2D),
       hipMemcpy2DFromArray(out.words, row_bytes, array, 0, 0, row_bytes, rows, D2H))
  BOTH(hipMemcpy2DToArrayAsync(array, 0, 0, in.words, row_bytes, row_bytes, rows, H2D, stream),
       hipMemcpy2DFromArrayAsync(out.words, row_bytes, array, 0, 0, row_bytes, rows, D2H, stream))
  BOTH(hipMemcpy2DToArray_spt(array, 0, 0, in.words, row_bytes, row_bytes, rows, H2D),
       hipMemcpy2DFromArray_spt(out.words, row_bytes, array, 0, 0, row_bytes, rows, D2H))
  BOTH(hipMemcpy2DToArrayAsync_spt(array, 0, 0, in.words, row_bytes, row_bytes, rows, H2D, stream),
       hipMemcpy2DFromArrayAsync_spt(out.words, row_bytes, array, 0, 0, row_bytes, rows, D2H, stream))
  BOTH(hipMemcpyToArray(array, 0, 0, in.words, bytes, H2D), hipMemcpyFromArray(out.words, array, 0, 0, bytes, D2H))
  BOTH(hipMemcpyHtoA(array, 0, in.words, bytes), hipMemcpyAtoH(out.words, array, 0, bytes))
  BOTH(hipMemcpyHtoAAsync(array, 0, in.words, bytes, stream), hipMemcpyAtoHAsync(out.words, array, 0, bytes, stream))
  BOTH(hipMemcpyToArray(array, 0, 0, in.words, bytes, H2D), hipMemcpyFromArray_spt(out.words, array, 0, 0, bytes, D2H))

  // Widths of volumes count elements where an array takes part.
  hipMemcpy3DParms to = {}, from = {};
  to.srcPtr = make_hipPitchedPtr(in.words, row_bytes, row_bytes, rows);
  to.dstArray = array;
  to.extent = make_hipExtent(columns, rows, 1);
  to.kind = H2D;
  from.srcArray = array;
  from.dstPtr = make_hipPitchedPtr(out.words, row_bytes, row_bytes, rows);
  from.extent = to.extent;
  from.kind = D2H;
  BOTH(hipMemcpy3D(&to), hipMemcpy3D(&from))
  BOTH(hipMemcpy3DAsync(&to, stream), hipMemcpy3DAsync(&from, stream))

  hip7::Memcpy2D to2 = {}, from2 = {};
  to2.srcType = hip7::kMemoryHost, to2.srcHost = in.words, to2.srcPitch = row_bytes;
  to2.dstType = hip7::kMemoryArray, to2.dstArray = array, to2.width = row_bytes, to2.height = rows;
  from2.srcType = hip7::kMemoryArray, from2.srcArray = array, from2.dstType = hip7::kMemoryHost;
  from2.dstHost = out.words, from2.dstPitch = row_bytes, from2.width = row_bytes, from2.height = rows;
  BOTH(hipMemcpyParam2D(reinterpret_cast<hip_Memcpy2D*>(&to2)),
       hipMemcpyParam2D(reinterpret_cast<hip_Memcpy2D*>(&from2)))

  // Between arrays, and between arrays and the device.
  line = __LINE__;
  before();
  CHECK(hipMemcpyToArray(array, 0, 0, in.words, bytes, H2D));
  CHECK(hipMemcpyAtoD(static_cast<uint32_t*>(device), array, 0, bytes));
  EXPECT_WORDS(device, data);
  CHECK(hipMemset(device, 0x5a, bytes));
  CHECK(hipMemcpyDtoA(other, 0, static_cast<uint32_t*>(device), row_bytes));
  CHECK(hipMemcpyAtoA(other, row_bytes, array, row_bytes, bytes - row_bytes));
  CHECK(hipMemcpy2DArrayToArray(array, 0, 0, other, 0, 0, row_bytes, rows, D2D));
  for (size_t x = 0; x < columns; x++) expected[x] = 0x5a5a5a5a;
  CHECK(hipMemcpyFromArray(out.words, array, 0, 0, bytes, D2H));
  after();
  CHECK(hipFreeArray(array));
  CHECK(hipFreeArray(other));

  HIP_ARRAY_DESCRIPTOR flat = {};
  flat.Width = columns, flat.Height = rows, flat.Format = HIP_AD_FORMAT_UNSIGNED_INT32, flat.NumChannels = 1;
  CHECK(hipArrayCreate(&array, &flat));
  HIP_ARRAY3D_DESCRIPTOR deep = {};
  deep.Width = 4, deep.Height = 3, deep.Depth = 2, deep.Format = HIP_AD_FORMAT_UNSIGNED_INT32, deep.NumChannels = 2;
  hipArray *volume, *volume2;
  CHECK(hipArray3DCreate(&volume, &deep));
  CHECK(hipMalloc3DArray(&volume2, &desc, make_hipExtent(4, 3, 2), 0));
  BOTH(hipMemcpyHtoA(array, 0, in.words, bytes), hipMemcpyAtoH(out.words, array, 0, bytes))
  to = {}, from = {};
  to.srcPtr = make_hipPitchedPtr(in.words, 32, 32, 3);
  to.dstArray = volume;
  to.extent = make_hipExtent(4, 3, 2);
  to.kind = H2D;
  from.srcArray = volume;
  from.dstPtr = make_hipPitchedPtr(out.words, 32, 32, 3);
  from.extent = to.extent;
  from.kind = D2H;
  line = __LINE__;
  before();
  expected.resize(n);
  for (size_t i = 48; i < n; i++) expected[i] = 0xeeeeeeee;
  CHECK(hipMemcpy3D(&to));
  CHECK(hipMemcpy3D(&from));
  after();
  hipChannelFormatDesc got;
  hipExtent extent;
  unsigned flags;
  CHECK(hipGetChannelDesc(&got, array));
  CHECK(hipArrayGetInfo(&got, &extent, &flags, volume2));
  REQUIRE(extent.depth == 2 && got.x == 32, "array description");
  CHECK(hipArrayGetDescriptor(&flat, array));
  CHECK(hipArray3DGetDescriptor(&deep, volume));
  CHECK(hipArrayDestroy(array));
  CHECK(hipFreeArray(volume));
  CHECK(hipFreeArray(volume2));
}

void symbols(hipStream_t stream) {
  const Words zero(4), first = pattern(4, seed++);
  Words got(4), part(2);
  const void* table = HIP_SYMBOL(step_table);
  const auto check = [&](const Words& expected, int line) {
    CHECK(hipStreamSynchronize(stream));
    CHECK(hipStreamSynchronize(hipStreamPerThread));
    require_equal(got.data(), expected.data(), 4, "symbol", line, __FILE__);
    got.assign(4, 0);
  };
  Words data;
#define SYMBOL(in, out)      \
  data = pattern(4, seed++); \
  CHECK(in);                 \
  CHECK(hipStreamSynchronize(stream));             \
  CHECK(hipStreamSynchronize(hipStreamPerThread)); \
  CHECK(out);                \
  check(data, __LINE__);
  SYMBOL(hipMemcpyToSymbol(table, data.data(), 16, 0, H2D), hipMemcpyFromSymbol(got.data(), table, 16, 0, D2H))
  SYMBOL(hipMemcpyToSymbolAsync(table, data.data(), 16, 0, H2D, stream),
         hipMemcpyFromSymbolAsync(got.data(), table, 16, 0, D2H, stream))
  SYMBOL(hipMemcpyToSymbol_spt(table, data.data(), 16, 0, H2D), hipMemcpyFromSymbol_spt(got.data(), table, 16, 0, D2H))
  SYMBOL(hipMemcpyToSymbolAsync_spt(table, data.data(), 16, 0, H2D, stream),
         hipMemcpyFromSymbolAsync_spt(got.data(), table, 16, 0, D2H, stream))
  // A part of it, from the device, and by its address.
  DeviceWords device(4);
  upload(device, first);
  CHECK(hipMemcpyToSymbol(table, device, 8, 4, D2D));
  data[1] = first[0], data[2] = first[1];
  void* address = nullptr;
  size_t size = 0;
  CHECK(hipGetSymbolAddress(&address, table));
  CHECK(hipGetSymbolSize(&size, table));
  REQUIRE(size == 16, "symbol size %zu", size);
  EXPECT_WORDS(address, data);
}

void batches(hipStream_t stream, bool pinned) {
  DeviceWords a(100), b(100), c(100);
  Host in(pinned), in2(!pinned), out(pinned);
  const Words first = pattern(100, seed++), second = pattern(100, seed++);
  in.set(first), in2.set(second);
  hip7::MemcpyAttributes attributes = {};
  attributes.srcAccessOrder = 1;
  size_t index = 0, failed = 0;
  void* targets[] = {a, b, c};
  void* sources[] = {in.words, in2.words, in.words + 40};
  size_t sizes[] = {400, 200, 60};
  CHECK(hipMemset(b, 0x11, 400));
  CHECK(hipMemset(c, 0x22, 400));
  CHECK(hipDeviceSynchronize());
  CHECK(hipMemcpyBatchAsync(targets, sources, sizes, 3, &attributes, &index, 1, &failed, stream));
  void* back[] = {out.words, out.words + 200, c};
  void* from[] = {b, a, a};
  size_t back_sizes[] = {400, 80, 40};
  CHECK(hipMemcpyBatchAsync(back, from, back_sizes, 3, &attributes, &index, 1, &failed, stream));
  CHECK(hipStreamSynchronize(stream));
  Words expected(second.begin(), second.begin() + 50);
  expected.resize(100, 0x11111111);
  require_equal(out.words, expected.data(), 100, "batch", __LINE__, __FILE__);
  require_equal(out.words + 200, first.data(), 20, "batch, second", __LINE__, __FILE__);
  Words third(first.begin(), first.begin() + 10);
  third.insert(third.end(), first.begin() + 50, first.begin() + 55);
  EXPECT_WORDS(c, third);
}

// Several volumes by one call: rows with gaps on the host and on the device, and an array. False where there is no such call.
bool volume_batch(hipStream_t stream, bool pinned) {
  constexpr size_t kWidth = 48, kHeight = 5, kDepth = 2, kRow = 64;
  constexpr size_t kWords = kRow / 4 * kHeight * kDepth;
  DeviceWords rows(kWords);
  CHECK(hipMemset(rows, 0x55, kWords * 4));
  CHECK(hipDeviceSynchronize());
  Host in(pinned), out(pinned);
  const Words data = pattern(kWords, seed++);
  in.set(data);
  const hipChannelFormatDesc channels = hipCreateChannelDesc(32, 0, 0, 0, hipChannelFormatKindUnsigned);
  hipArray_t array;
  CHECK(hipMalloc3DArray(&array, &channels, make_hipExtent(kWidth / 4, kHeight, kDepth), 0));
  size_t failed = 0;
  const auto pointer = [](void* address, size_t row) { return hip7::BatchOperand{1, address, {row, kHeight, 0}}; };
  hip7::VolumeCopy up = {pointer(in.words, kRow), pointer(rows, kRow), {kWidth, kHeight, kDepth}, 1, 0};
  const hipError_t offered = hipMemcpy3DBatchAsync(1, &up, &failed, 0, stream);
  if (offered == hipErrorNotSupported) {
    CHECK(hipFreeArray(array));
    return false;
  }
  CHECK(offered);
  CHECK(hipStreamSynchronize(stream));
  Words expected(kWords, 0x55555555);
  for (size_t row = 0; row < kHeight * kDepth; row++)
    for (size_t i = 0; i < kWidth / 4; i++) expected[row * kRow / 4 + i] = data[row * kRow / 4 + i];
  EXPECT_WORDS(rows, expected);
  const hip7::BatchOperand of_array = {2, array, {0, 0, 0}};
  hip7::VolumeCopy through[2] = {{pointer(rows, kRow / 4), of_array, {kWidth / 4, kHeight, kDepth}, 1, 0},
                                 {of_array, pointer(out.words, kWidth / 4), {kWidth / 4, kHeight, kDepth}, 1, 0}};
  CHECK(hipMemcpy3DBatchAsync(2, through, &failed, 0, stream));
  CHECK(hipStreamSynchronize(stream));
  for (size_t row = 0; row < kHeight * kDepth; row++)
    require_equal(out.words + row * kWidth / 4, data.data() + row * kRow / 4, kWidth / 4, "volumes", __LINE__, __FILE__);
  CHECK(hipFreeArray(array));
  return true;
}

void fills(hipStream_t stream) {
  constexpr size_t n = 256;
  DeviceWords device(n);
  Words expected(n);
  auto* bytes = reinterpret_cast<unsigned char*>(static_cast<uint32_t*>(device));
  const auto device_at = [&](size_t offset) { return reinterpret_cast<hipDeviceptr_t>(bytes + offset); };
  const auto fill8 = [&](size_t at, size_t count, int value) {
    std::memset(reinterpret_cast<char*>(expected.data()) + at, value, count);
  };
  const auto check = [&](int line) {
    CHECK(hipStreamSynchronize(stream));
    CHECK(hipStreamSynchronize(hipStreamPerThread));
    expect_words(device, expected, "fill", line);
  };
#define FILL(call, at, count, value) \
  CHECK(call);                       \
  fill8(at, count, value);           \
  check(__LINE__);
  FILL(hipMemset(device, 1, n * 4), 0, n * 4, 1)
  FILL(hipMemsetAsync(bytes + 3, 2, 50, stream), 3, 50, 2)
  FILL(hipMemset_spt(bytes + 5, 3, 60), 5, 60, 3)
  FILL(hipMemsetAsync_spt(bytes + 7, 4, 70, stream), 7, 70, 4)
  FILL(hipMemsetD8(device_at(9), 5, 80), 9, 80, 5)
  FILL(hipMemsetD8Async(device_at(11), 6, 90, stream), 11, 90, 6)
  FILL(hipMemsetD16(device_at(20), 0x0707, 30), 20, 60, 7)
  FILL(hipMemsetD16Async(device_at(24), 0x0808, 20, stream), 24, 40, 8)
  FILL(hipMemsetD32(device_at(100), 0x09090909, 20), 100, 80, 9)
  FILL(hipMemsetD32Async(device_at(104), 0x0a0a0a0a, 10, stream), 104, 40, 10)
  const auto fill_rows = [&](size_t at, size_t pitch, size_t width, size_t height, int value) {
    for (size_t y = 0; y < height; y++) fill8(at + y * pitch, width, value);
  };
#define FILL_ROWS(call, at, pitch, width, height, value) \
  CHECK(call);                                           \
  fill_rows(at, pitch, width, height, value);            \
  check(__LINE__);
  FILL_ROWS(hipMemset2D(bytes, 64, 11, 20, 6), 0, 64, 20, 6, 11)
  FILL_ROWS(hipMemset2DAsync(bytes + 64, 64, 12, 24, 5, stream), 64, 64, 24, 5, 12)
  FILL_ROWS(hipMemset2D_spt(bytes, 64, 13, 28, 4), 0, 64, 28, 4, 13)
  FILL_ROWS(hipMemset2DAsync_spt(bytes + 128, 64, 14, 12, 3, stream), 128, 64, 12, 3, 14)
  FILL_ROWS(hipMemsetD2D8(device_at(0), 32, 15, 5, 7), 0, 32, 5, 7, 15)
  FILL_ROWS(hipMemsetD2D8Async(device_at(32), 32, 16, 6, 6, stream), 32, 32, 6, 6, 16)
  FILL_ROWS(hipMemsetD2D16(device_at(0), 64, 0x1111, 5, 7), 0, 64, 10, 7, 17)
  FILL_ROWS(hipMemsetD2D16Async(device_at(64), 64, 0x1212, 6, 6, stream), 64, 64, 12, 6, 18)
  FILL_ROWS(hipMemsetD2D32(device_at(0), 64, 0x13131313, 5, 7), 0, 64, 20, 7, 19)
  FILL_ROWS(hipMemsetD2D32Async(device_at(64), 64, 0x14141414, 6, 6, stream), 64, 64, 24, 6, 20)
  hipPitchedPtr volume = make_hipPitchedPtr(bytes, 64, 64, 4);
  const hipExtent extent = make_hipExtent(30, 3, 2);
#define FILL_VOLUME(call, value)            \
  CHECK(call);                              \
  fill_rows(0, 64, 30, 3, value);           \
  fill_rows(256, 64, 30, 3, value);         \
  check(__LINE__);
  FILL_VOLUME(hipMemset3D(volume, 21, extent), 21)
  FILL_VOLUME(hipMemset3DAsync(volume, 22, extent, stream), 22)
  FILL_VOLUME(hipMemset3D_spt(volume, 23, extent), 23)
  FILL_VOLUME(hipMemset3DAsync_spt(volume, 24, extent, stream), 24)
}

}  // namespace

int main() {
  hipStream_t stream;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  for (bool pinned : {false, true}) {
    linear(stream, pinned);
    pitched(stream, pinned);
    volumes(stream, pinned);
    arrays(stream, pinned);
    batches(stream, pinned);
    (void)volume_batch(stream, pinned);
  }
  symbols(stream);
  fills(stream);
  CHECK(hipStreamDestroy(stream));
  std::printf("sweep_copies: ok, %u patterns\n", seed);
}
