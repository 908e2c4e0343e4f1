// Arrays and mipmapped arrays, texture objects of both interfaces, texture references and surfaces: what kernels sample
// depends on every setting. Wrapped and mirrored coordinates and levels go with coordinates from 0 to 1, as devices have it.
// Exits 77 where the kernels cannot sample (tests/kernels/images.c).
// embeds: images
#include <cmath>
#include <cstring>

#include "hip7.h"
#include "check.hpp"

#pragma clang diagnostic ignored "-Wdeprecated-declarations"

#include <string>
#include <vector>

#pragma pack(push, 1)
struct sampler {
  char tag;
  hipTextureObject_t texture;
  float y;
};
#pragma pack(pop)
// An element of the table of sample_table.
struct stored {
  uint64_t number;
  hipTextureObject_t texture;
};

extern "C" {
__global__ void sample(hipTextureObject_t, float*, float, float, float, float, float, int) {}
__global__ void sample_linear(hipTextureObject_t, float*, int, int) {}
__global__ void sample_struct(sampler, float*, float, float, int) {}
__global__ void sample_table(const stored*, int, float*, float, int) {}
__global__ void scale_surface(hipSurfaceObject_t, uint32_t, int, int) {}
}

namespace {

constexpr int kWidth = 16, kHeight = 8, kSamples = 24;
int checks = 0;

// The value of element (x, y) of a test image.
float texel(int x, int y, int seed) { return float((x * 7 + y * 31 + seed * 13) % 101) / 4; }

std::vector<float> image(int width, int height, int seed) {
  std::vector<float> values(size_t(width) * height);
  for (int y = 0; y < height; y++)
    for (int x = 0; x < width; x++) values[size_t(y) * width + x] = texel(x, y, seed);
  return values;
}

struct Results {
  Results() { CHECK(hipMalloc(&device, kSamples * 4)); }
  ~Results() { CHECK(hipFree(device)); }
  std::vector<float> read() {
    std::vector<float> values(kSamples);
    CHECK(hipMemcpy(values.data(), device, kSamples * 4, hipMemcpyDeviceToHost));
    checks++;
    return values;
  }
  float* device = nullptr;
};

#define EXPECT(results, expected)                                                                          \
  do {                                                                                                     \
    const std::vector<float> got_ = (results).read();                                                      \
    for (int i = 0; i < kSamples; i++) {                                                                   \
      const float want_ = (expected);                                                                      \
      REQUIRE(std::fabs(got_[i] - want_) < 1e-3, "sample %d is %g, should be %g", i, got_[i], want_);      \
    }                                                                                                      \
  } while (0)

int wrap(int i, int n) { return (i % n + n) % n; }
int clamped(int i, int n) { return i < 0 ? 0 : i >= n ? n - 1 : i; }
int mirrored(int i, int n) {
  const int place = wrap(i, 2 * n);
  return place < n ? place : 2 * n - 1 - place;
}

hipArray_t array_of(const std::vector<float>& values, int width, int height) {
  const hipChannelFormatDesc channels = hipCreateChannelDesc(32, 0, 0, 0, hipChannelFormatKindFloat);
  hipArray_t array;
  CHECK(hipMallocArray(&array, &channels, width, height, hipArraySurfaceLoadStore));
  CHECK(hipMemcpy2DToArray(array, 0, 0, values.data(), width * 4, width * 4, height, hipMemcpyHostToDevice));
  CHECK(hipStreamSynchronize(nullptr));
  return array;
}

void sample_at(Results& results, hipTextureObject_t texture, float x0, float dx, float y0, float dy = 0, float level = 0) {
  sample<<<1, 32>>>(texture, results.device, x0, dx, y0, dy, level, kSamples);
  CHECK(hipGetLastError());
}

// False where kernels cannot sample.
bool arrays() {
  Results results;
  hipArray_t array = array_of(image(kWidth, kHeight, 1), kWidth, kHeight);
  hipResourceDesc resource = {};
  resource.resType = hipResourceTypeArray;
  resource.res.array.array = array;
  hipTextureDesc texture = {};
  texture.normalizedCoords = 1;
  hipTextureObject_t object;
  if (hipCreateTextureObject(&object, &resource, &texture, nullptr) == hipErrorNotSupported) return false;
  sample_at(results, object, 0.5f / kWidth, 1.0f / kWidth, 3.5f / kHeight);
  if (results.read()[0] == -1) return false;
  EXPECT(results, texel(wrap(i, kWidth), 3, 1));
  CHECK(hipDestroyTextureObject(object));
  texture.addressMode[0] = hipAddressModeClamp;
  texture.addressMode[1] = hipAddressModeMirror;
  CHECK(hipCreateTextureObject(&object, &resource, &texture, nullptr));
  sample_at(results, object, -3.5f / kWidth, 1.0f / kWidth, 1.5f / kHeight, 1.0f / kHeight);
  EXPECT(results, texel(clamped(i - 4, kWidth), mirrored(1 + i, kHeight), 1));
  // By elements from here on: outside is what the texture says.
  hipTextureObject_t border;
  texture.normalizedCoords = 0;
  texture.addressMode[0] = texture.addressMode[1] = hipAddressModeBorder;
  texture.borderColor[0] = 99;
  CHECK(hipCreateTextureObject(&border, &resource, &texture, nullptr));
  sample_at(results, border, -2.5f, 1, 2.5f);
  EXPECT(results, i < 3 || i >= kWidth + 3 ? 99 : texel(i - 3, 2, 1));
  // Half way between two elements, by coordinates from 0 to 1.
  hipTextureObject_t linear;
  texture = {};
  texture.filterMode = hipFilterModeLinear;
  texture.normalizedCoords = 1;
  CHECK(hipCreateTextureObject(&linear, &resource, &texture, nullptr));
  sample_at(results, linear, 1.0f / kWidth, 1.0f / kWidth, 2.5f / kHeight);
  EXPECT(results, (texel(wrap(i, kWidth), 2, 1) + texel(wrap(i + 1, kWidth), 2, 1)) / 2);
  // Inside a struct, at an odd place.
  sampler inside = {5, linear, 4.5f / kHeight};
  sample_struct<<<1, 32>>>(inside, results.device, 0.5f / kWidth, 1.0f / kWidth, kSamples);
  CHECK(hipGetLastError());
  EXPECT(results, texel(wrap(i, kWidth), 4, 1) + 5);
  hipResourceDesc found_resource;
  hipTextureDesc found_texture;
  CHECK(hipGetTextureObjectResourceDesc(&found_resource, linear));
  CHECK(hipGetTextureObjectTextureDesc(&found_texture, linear));
  REQUIRE(found_resource.res.array.array == array && found_texture.normalizedCoords == 1, "descriptions");
  // In a table in device memory, which the host fills; by rows, too.
  stored table[3] = {{7, border}, {11, linear}, {13, border}};
  stored* stored_table;
  CHECK(hipMalloc(&stored_table, 2 * sizeof table));
  CHECK(hipMemcpy(stored_table, table, sizeof table, hipMemcpyHostToDevice));
  CHECK(hipMemcpy2D(stored_table + 3, sizeof *table, table + 2, sizeof *table, sizeof *table, 1, hipMemcpyHostToDevice));
  CHECK(hipStreamSynchronize(nullptr));
  for (int which : {0, 2, 3}) {
    sample_table<<<1, 32>>>(stored_table, which, results.device, 1, kSamples);
    CHECK(hipGetLastError());
    EXPECT(results, (i < kWidth ? texel(i, 1, 1) : 99) + (which == 0 ? 7 : 13));
  }
  CHECK(hipFree(stored_table));
  CHECK(hipDestroyTextureObject(linear));
  CHECK(hipDestroyTextureObject(border));
  CHECK(hipDestroyTextureObject(object));
  CHECK(hipFreeArray(array));
  return true;
}

void memory() {
  Results results;
  std::vector<uint8_t> bytes(64);
  for (size_t i = 0; i < bytes.size(); i++) bytes[i] = uint8_t(i * 37 + 11);
  void* plain;
  CHECK(hipMalloc(&plain, bytes.size()));
  CHECK(hipMemcpy(plain, bytes.data(), bytes.size(), hipMemcpyHostToDevice));
  hipResourceDesc resource = {};
  resource.resType = hipResourceTypeLinear;
  resource.res.linear.devPtr = plain;
  resource.res.linear.desc = hipCreateChannelDesc(8, 8, 0, 0, hipChannelFormatKindUnsigned);
  resource.res.linear.sizeInBytes = bytes.size();
  size_t widest = 0;
  CHECK(hipDeviceGetTexture1DLinearMaxWidth(&widest, &resource.res.linear.desc, 0));
  REQUIRE(widest >= 1024, "%zu elements", widest);
  hipTextureDesc texture = {};
  texture.readMode = hipReadModeNormalizedFloat;
  hipTextureObject_t object;
  CHECK(hipCreateTextureObject(&object, &resource, &texture, nullptr));
  sample_linear<<<1, 32>>>(object, results.device, 0, kSamples);
  CHECK(hipGetLastError());
  EXPECT(results, bytes[2 * i] / 255.0f + 3 * (bytes[2 * i + 1] / 255.0f));
  CHECK(hipDestroyTextureObject(object));
  CHECK(hipFree(plain));

  void* rows;
  size_t pitch;
  const std::vector<float> values = image(kWidth, kHeight, 2);
  CHECK(hipMallocPitch(&rows, &pitch, kWidth * 4, kHeight));
  CHECK(hipMemcpy2D(rows, pitch, values.data(), kWidth * 4, kWidth * 4, kHeight, hipMemcpyHostToDevice));
  hip7::DrvResource pitched = {};
  pitched.type = 3;
  pitched.words[0] = reinterpret_cast<uint64_t>(rows);
  pitched.words[1] = 0x20 | 1ull << 32;  // float, one channel
  pitched.words[2] = kWidth, pitched.words[3] = kHeight, pitched.words[4] = pitch;
  hip7::DrvTexture sampled = {};
  sampled.addressMode[0] = hipAddressModeMirror;
  sampled.flags = 1 | 2;  // no fractions; coordinates from 0 to 1
  const auto* resource_desc = reinterpret_cast<const HIP_RESOURCE_DESC*>(&pitched);
  const auto* texture_desc = reinterpret_cast<const HIP_TEXTURE_DESC*>(&sampled);
  CHECK(hipTexObjectCreate(&object, resource_desc, texture_desc, nullptr));
  sample_at(results, object, 0.5f / kWidth, 1.0f / kWidth, 5.5f / kHeight);
  EXPECT(results, texel(mirrored(i, kWidth), 5, 2));
  hip7::DrvResource found = {};
  hip7::DrvTexture found_texture = {};
  CHECK(hipTexObjectGetResourceDesc(reinterpret_cast<HIP_RESOURCE_DESC*>(&found), object));
  CHECK(hipTexObjectGetTextureDesc(reinterpret_cast<HIP_TEXTURE_DESC*>(&found_texture), object));
  REQUIRE(found.words[4] == pitch && found_texture.addressMode[0] == hipAddressModeMirror, "descriptions");
  CHECK(hipTexObjectDestroy(object));
  CHECK(hipFree(rows));
}

void mipmaps() {
  Results results;
  const hipChannelFormatDesc channels = hipCreateChannelDesc(32, 0, 0, 0, hipChannelFormatKindFloat);
  for (bool by_driver : {false, true}) {
    hipMipmappedArray_t mipmap;
    HIP_ARRAY3D_DESCRIPTOR desc = {};
    desc.Width = kWidth, desc.Height = kHeight, desc.Format = HIP_AD_FORMAT_FLOAT, desc.NumChannels = 1;
    if (by_driver)
      CHECK(hipMipmappedArrayCreate(&mipmap, &desc, 3));
    else
      CHECK(hipMallocMipmappedArray(&mipmap, &channels, make_hipExtent(kWidth, kHeight, 0), 3, 0));
    for (int level = 0; level < 3; level++) {
      hipArray_t array;
      CHECK(by_driver ? hipMipmappedArrayGetLevel(&array, mipmap, level) : hipGetMipmappedArrayLevel(&array, mipmap, level));
      const int width = kWidth >> level, height = kHeight >> level;
      const std::vector<float> values = image(width, height, 10 + level + 5 * by_driver);
      CHECK(hipMemcpy2DToArray(array, 0, 0, values.data(), width * 4, width * 4, height, hipMemcpyHostToDevice));
    }
    CHECK(hipStreamSynchronize(nullptr));
    size_t needs[2] = {};
    CHECK(hipMipmappedArrayGetMemoryRequirements(needs, mipmap, 0));
    REQUIRE(needs[0] >= kWidth * kHeight * 4, "%zu bytes", needs[0]);
    hipTextureObject_t object;
    if (by_driver) {
      // Levels 1 and 2 alone.
      hip7::DrvResource resource = {};
      resource.type = 1;
      resource.words[0] = reinterpret_cast<uint64_t>(mipmap);
      hip7::DrvTexture texture = {};
      texture.flags = 1 | 2, texture.levelMax = 1;
      hip7::DrvView view = {}, found = {};
      view.width = kWidth, view.height = kHeight, view.firstLevel = 1, view.lastLevel = 2;
      CHECK(hipTexObjectCreate(&object, reinterpret_cast<HIP_RESOURCE_DESC*>(&resource),
                               reinterpret_cast<HIP_TEXTURE_DESC*>(&texture),
                               reinterpret_cast<HIP_RESOURCE_VIEW_DESC*>(&view)));
      CHECK(hipTexObjectGetResourceViewDesc(reinterpret_cast<HIP_RESOURCE_VIEW_DESC*>(&found), object));
      REQUIRE(found.firstLevel == 1 && found.lastLevel == 2, "view");
      sample_at(results, object, 0.5f / (kWidth / 4), 1.0f / (kWidth / 4), 1.5f / (kHeight / 4), 0, 1);
      EXPECT(results, texel(wrap(i, kWidth / 4), 1, 17));
    } else {
      hipResourceDesc resource = {};
      resource.resType = hipResourceTypeMipmappedArray;
      resource.res.mipmap.mipmap = mipmap;
      hipTextureDesc texture = {};
      texture.mipmapFilterMode = hipFilterModeLinear;
      texture.normalizedCoords = 1;
      texture.maxMipmapLevelClamp = 2;
      hipResourceViewDesc view = {}, found = {};
      view.width = kWidth, view.height = kHeight, view.lastMipmapLevel = 2;
      CHECK(hipCreateTextureObject(&object, &resource, &texture, &view));
      CHECK(hipGetTextureObjectResourceViewDesc(&found, object));
      REQUIRE(found.lastMipmapLevel == 2, "view");
      // Between the first two levels.
      sample_at(results, object, 0.5f / kWidth, 1.0f / kWidth, 0.5f / kHeight, 0, 0.25f);
      EXPECT(results, 0.75f * texel(wrap(i, kWidth), 0, 10) + 0.25f * texel(wrap(i, kWidth) / 2, 0, 11));
    }
    if (by_driver) {
      CHECK(hipTexObjectDestroy(object));
      CHECK(hipMipmappedArrayDestroy(mipmap));
    } else {
      CHECK(hipDestroyTextureObject(object));
      CHECK(hipFreeMipmappedArray(mipmap));
    }
  }
}

void surfaces() {
  const hipChannelFormatDesc channels = hipCreateChannelDesc(32, 0, 0, 0, hipChannelFormatKindUnsigned);
  hipArray_t array;
  CHECK(hipMallocArray(&array, &channels, kWidth, kHeight, hipArraySurfaceLoadStore));
  std::vector<uint32_t> values(kWidth * kHeight), got(values.size());
  for (size_t i = 0; i < values.size(); i++) values[i] = uint32_t(i) * 2654435761u;
  CHECK(hipMemcpy2DToArray(array, 0, 0, values.data(), kWidth * 4, kWidth * 4, kHeight, hipMemcpyHostToDevice));
  CHECK(hipStreamSynchronize(nullptr));
  hipResourceDesc resource = {};
  resource.resType = hipResourceTypeArray;
  resource.res.array.array = array;
  hipSurfaceObject_t surface;
  CHECK(hipCreateSurfaceObject(&surface, &resource));
  scale_surface<<<dim3((kWidth * kHeight + 63) / 64), dim3(64)>>>(surface, 17, kWidth, kHeight);
  CHECK(hipGetLastError());
  CHECK(hipMemcpy2DFromArray(got.data(), kWidth * 4, array, 0, 0, kWidth * 4, kHeight, hipMemcpyDeviceToHost));
  for (size_t i = 0; i < values.size(); i++)
    REQUIRE(got[i] == values[i] * 17 + uint32_t(i), "element %zu of the surface is %u", i, got[i]);
  CHECK(hipDestroySurfaceObject(surface));
  CHECK(hipFreeArray(array));
}

// A texture reference of a module: settings one by one, each seen by a kernel or by its getter.
void references(const char* argv0) {
  Results results;
  std::string path(argv0);
  const char* folder = std::getenv("HRR_KERNEL_DIR");
  path = folder ? std::string(folder) + "/images.hipfb" : path.substr(0, path.rfind('/')) + "/../kernels/images.hipfb";
  hipModule_t module;
  hipFunction_t kernel;
  textureReference* reference;
  CHECK(hipModuleLoad(&module, path.c_str()));
  CHECK(hipModuleGetFunction(&kernel, module, "sample_reference"));
  CHECK(hipModuleGetTexRef(&reference, module, "reference"));
  enum { kFloats, kIntegersOfMemory, kIntegersOfRows };
  const auto launch = [&](float x0, float dx, float y0, float level, int mode = kFloats) {
    float* out = results.device;
    int n = kSamples;
    void* params[] = {&out, &x0, &dx, &y0, &level, &mode, &n};
    CHECK(hipModuleLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, nullptr, params, nullptr));
  };
  hipArray_t array = array_of(image(kWidth, kHeight, 3), kWidth, kHeight);
  CHECK(hipTexRefSetFlags(reference, 1));
  CHECK(hipTexRefSetAddressMode(reference, 0, hipAddressModeBorder));
  float border[4] = {-50, 0, 0, 0};
  CHECK(hipTexRefSetBorderColor(reference, border));
  CHECK(hipTexRefSetArray(reference, array, 1));
  launch(-1.5f, 1, 4.5f, 0);
  EXPECT(results, i < 2 || i >= kWidth + 2 ? -50 : texel(i - 2, 4, 3));
  CHECK(hipTexRefSetFilterMode(reference, hipFilterModeLinear));
  CHECK(hipTexRefSetAddressMode(reference, 0, hipAddressModeClamp));
  launch(1, 1, 4.5f, 0);
  EXPECT(results, (texel(clamped(i, kWidth), 4, 3) + texel(clamped(i + 1, kWidth), 4, 3)) / 2);
  hipArray_t found_array;
  CHECK(hipTexRefGetArray(&found_array, reference));
  REQUIRE(found_array == array, "array");
  CHECK(hipTexRefSetFilterMode(reference, hipFilterModePoint));

  // Memory by its address: bytes, then rows.
  std::vector<uint8_t> bytes(256);
  for (size_t i = 0; i < bytes.size(); i++) bytes[i] = uint8_t(i * 29 + 3);
  void* plain;
  CHECK(hipMalloc(&plain, bytes.size()));
  CHECK(hipMemcpy(plain, bytes.data(), bytes.size(), hipMemcpyHostToDevice));
  size_t offset = 1;
  CHECK(hipTexRefSetFormat(reference, HIP_AD_FORMAT_UNSIGNED_INT8, 1));
  CHECK(hipTexRefSetAddress(&offset, reference, plain, bytes.size()));
  launch(0, 1, 0, 0, kIntegersOfMemory);
  EXPECT(results, float(bytes[i]));
  hipDeviceptr_t address;
  CHECK(hipTexRefGetAddress(&address, reference));
  REQUIRE(address == plain && offset == 0, "address");
  HIP_ARRAY_DESCRIPTOR desc = {};
  desc.Width = 32, desc.Height = 4, desc.Format = HIP_AD_FORMAT_UNSIGNED_INT8, desc.NumChannels = 1;
  CHECK(hipTexRefSetAddress2D(reference, &desc, plain, 64));
  launch(0.5f, 1, 2.5f, 0, kIntegersOfRows);
  EXPECT(results, float(bytes[128 + i]));

  // Levels.
  hipMipmappedArray_t mipmap, found_mipmap;
  const hipChannelFormatDesc channels = hipCreateChannelDesc(32, 0, 0, 0, hipChannelFormatKindFloat);
  CHECK(hipMallocMipmappedArray(&mipmap, &channels, make_hipExtent(kWidth, kHeight, 0), 3, 0));
  for (int level = 0; level < 3; level++) {
    hipArray_t part;
    CHECK(hipGetMipmappedArrayLevel(&part, mipmap, level));
    const int width = kWidth >> level, height = kHeight >> level;
    const std::vector<float> values = image(width, height, 40 + level);
    CHECK(hipMemcpy2DToArray(part, 0, 0, values.data(), width * 4, width * 4, height, hipMemcpyHostToDevice));
  }
  CHECK(hipStreamSynchronize(nullptr));
  CHECK(hipTexRefSetFlags(reference, 1 | 2));
  CHECK(hipTexRefSetMipmappedArray(reference, mipmap, 1));
  CHECK(hipTexRefGetMipMappedArray(&found_mipmap, reference));
  REQUIRE(found_mipmap == mipmap, "mipmapped array");
  CHECK(hipTexRefSetMipmapLevelBias(reference, 0.5f));
  CHECK(hipTexRefSetMipmapLevelClamp(reference, 0.75f, 1.75f));
  CHECK(hipTexRefSetMipmapFilterMode(reference, hipFilterModeLinear));
  // The bias makes it 1.25, the clamp nothing; then 0.75, then 1.75. Clamped at the edge of the smaller levels.
  const auto level = [](int i, int level) { return texel(clamped(i >> level, kWidth >> level), 0, 40 + level); };
  const float x0 = 0.5f / kWidth, dx = 1.0f / kWidth, y0 = 0.5f / kHeight;
  launch(x0, dx, y0, 0.75f);
  EXPECT(results, 0.75f * level(i, 1) + 0.25f * level(i, 2));
  launch(x0, dx, y0, -1);
  EXPECT(results, 0.25f * level(i, 0) + 0.75f * level(i, 1));
  launch(x0, dx, y0, 9);
  EXPECT(results, 0.25f * level(i, 1) + 0.75f * level(i, 2));
  CHECK(hipTexRefSetMaxAnisotropy(reference, 4));

  hipTextureAddressMode mode;
  hipTextureFilterMode filter;
  hipArray_Format format;
  unsigned flags = 0;
  int number = 0, channel_count = 0;
  float bias = 0, least = 0, most = 0, colour[4] = {};
  CHECK(hipTexRefGetAddressMode(&mode, reference, 0));
  CHECK(hipTexRefGetFilterMode(&filter, reference));
  CHECK(hipTexRefGetFlags(&flags, reference));
  CHECK(hipTexRefGetFormat(&format, &channel_count, reference));
  CHECK(hipTexRefGetMaxAnisotropy(&number, reference));
  CHECK(hipTexRefGetMipmapFilterMode(&filter, reference));
  CHECK(hipTexRefGetMipmapLevelBias(&bias, reference));
  CHECK(hipTexRefGetMipmapLevelClamp(&least, &most, reference));
  CHECK(hipTexRefGetBorderColor(colour, reference));
  REQUIRE(mode == hipAddressModeClamp && filter == hipFilterModeLinear && flags == 3 && number == 4, "settings");
  REQUIRE(bias == 0.5f && least == 0.75f && most == 1.75f && colour[0] == -50 && channel_count == 1, "settings");
  CHECK(hipDeviceSynchronize());
  CHECK(hipModuleUnload(module));
  CHECK(hipFreeMipmappedArray(mipmap));
  CHECK(hipFree(plain));
  CHECK(hipFreeArray(array));
}

}  // namespace

int main(int, char** argv) {
  if (!arrays()) {
    std::printf("images: skipped, the kernels cannot sample on this device\n");
    return 77;
  }
  memory();
  mipmaps();
  surfaces();
  references(argv[0]);
  std::printf("images: ok, %d results\n", checks);
}
