// Handles of textures in tables that kernels look up, which come there by the copies of a graph, and from pinned memory that a
// kernel reads directly. Needs kernels that can sample, else exits 77.
// embeds: images
#include <hip/hip_runtime.h>

#include <vector>

#include "check.hpp"

// An element of the table of sample_table.
struct stored {
  uint64_t number;
  hipTextureObject_t texture;
};

extern "C" __global__ void sample_table(const stored*, int, float*, float, int) {}

namespace {

constexpr int kWidth = 16, kHeight = 8, kSamples = 16, kRows = 3;

float texel(int x, int y, int seed) { return float((x * 7 + y * 31 + seed * 13) % 101) / 4; }

// A texture by elements, with the image of a seed.
struct Image {
  explicit Image(int seed) : seed(seed) {
    std::vector<float> values(kWidth * kHeight);
    for (int i = 0; i < kWidth * kHeight; i++) values[i] = texel(i % kWidth, i / kWidth, seed);
    const hipChannelFormatDesc channels = hipCreateChannelDesc(32, 0, 0, 0, hipChannelFormatKindFloat);
    CHECK(hipMallocArray(&array, &channels, kWidth, kHeight, hipArrayDefault));
    CHECK(hipMemcpy2DToArray(array, 0, 0, values.data(), kWidth * 4, kWidth * 4, kHeight, hipMemcpyHostToDevice));
    CHECK(hipStreamSynchronize(nullptr));
    hipResourceDesc resource = {};
    resource.resType = hipResourceTypeArray;
    resource.res.array.array = array;
    hipTextureDesc texture = {};
    status = hipCreateTextureObject(&object, &resource, &texture, nullptr);
  }
  ~Image() {
    if (status == hipSuccess) CHECK(hipDestroyTextureObject(object));
    CHECK(hipFreeArray(array));
  }
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;
  int seed;
  hipError_t status;
  hipArray_t array;
  hipTextureObject_t object;
};

int checks = 0;

void expect(const float* out, uint64_t number, int seed, int line) {
  std::vector<float> got(kSamples);
  CHECK(hipMemcpy(got.data(), out, kSamples * 4, hipMemcpyDeviceToHost));
  for (int i = 0; i < kSamples; i++)
    REQUIRE(got[i] == texel(i, 2, seed) + float(number), "line %d: sample %d is %f", line, i, got[i]);
  checks++;
}

// False where kernels cannot sample.
bool run() {
  float* out;
  stored *table, *direct, *direct_device;
  CHECK(hipMalloc(&out, kSamples * 4));
  CHECK(hipMalloc(&table, kRows * sizeof *table));
  CHECK(hipHostMalloc(reinterpret_cast<void**>(&direct), kRows * sizeof *direct, hipHostMallocMapped));
  CHECK(hipHostGetDevicePointer(reinterpret_cast<void**>(&direct_device), direct, 0));
  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  {
    Image first(1);
    if (first.status == hipErrorNotSupported) return false;
    stored row = {1, first.object};
    CHECK(hipMemcpy(table, &row, sizeof row, hipMemcpyHostToDevice));
    sample_table<<<1, 32>>>(table, 0, out, 2, kSamples);
    CHECK(hipGetLastError());
    float got = 0;
    CHECK(hipMemcpy(&got, out, 4, hipMemcpyDeviceToHost));
    if (got == -1) return false;
    expect(out, 1, 1, __LINE__);
  }
  // The graph copies a table that the host fills anew for every launch; its images come and go.
  stored source[kRows] = {};
  hipGraph_t graph;
  hipGraphExec_t exec;
  CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeRelaxed));
  CHECK(hipMemcpyAsync(table, source, sizeof source, hipMemcpyHostToDevice, stream));
  sample_table<<<1, 32, 0, stream>>>(table, 1, out, 2, kSamples);
  CHECK(hipGetLastError());
  CHECK(hipStreamEndCapture(stream, &graph));
  CHECK(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
  for (int round = 0; round < 4; round++) {
    Image image(10 + round), other(20 + round);
    for (int i = 0; i < kRows; i++) source[i] = {uint64_t(100 * round + i), i == 1 ? image.object : other.object};
    CHECK(hipGraphLaunch(exec, stream));
    CHECK(hipStreamSynchronize(stream));
    expect(out, 100 * round + 1, 10 + round, __LINE__);
  }
  CHECK(hipGraphExecDestroy(exec));
  CHECK(hipGraphDestroy(graph));
  // The kernel reads the host's memory itself.
  for (int round = 0; round < 4; round++) {
    Image image(30 + round), other(40 + round);
    for (int i = 0; i < kRows; i++) direct[i] = {uint64_t(50 * round + i), i == 2 ? image.object : other.object};
    sample_table<<<1, 32, 0, stream>>>(direct_device, 2, out, 2, kSamples);
    CHECK(hipGetLastError());
    CHECK(hipStreamSynchronize(stream));
    expect(out, 50 * round + 2, 30 + round, __LINE__);
  }
  CHECK(hipStreamDestroy(stream));
  CHECK(hipHostFree(direct));
  CHECK(hipFree(table));
  CHECK(hipFree(out));
  return true;
}

}  // namespace

int main() {
  if (!run()) {
    std::printf("image_tables: skipped, the kernels cannot sample on this device\n");
    return 77;
  }
  std::printf("image_tables: ok, %d results\n", checks);
}
