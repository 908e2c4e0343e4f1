// Reserved addresses with memory mapped into them: a buffer that runs over two mappings, which then change places.
// usage: virtual_memory [rounds]
#include "workload.hpp"

int main(int argc, char** argv) {
  const int rounds = argument(argc, argv, 1, 3);
  hipMemAllocationProp properties = {};
  properties.type = hipMemAllocationTypePinned;
  properties.location.type = hipMemLocationTypeDevice;
  properties.location.id = 0;
  size_t granularity = 0;
  CHECK(hipMemGetAllocationGranularity(&granularity, &properties, hipMemAllocationGranularityMinimum));
  REQUIRE(granularity >= 4096 && (granularity & (granularity - 1)) == 0, "granularity is %zu", granularity);

  void* reserved = nullptr;
  CHECK(hipMemAddressReserve(&reserved, 2 * granularity, 0, nullptr, 0));
  char* const halves[2] = {static_cast<char*>(reserved), static_cast<char*>(reserved) + granularity};
  hipMemGenericAllocationHandle_t memory[2];
  for (auto& handle : memory) CHECK(hipMemCreate(&handle, granularity, &properties, 0));
  hipMemAccessDesc access = {};
  access.location = properties.location;
  access.flags = hipMemAccessFlagsProtReadWrite;

  // The last words of the first half and the first of the second, in one buffer.
  const int n = 512;
  uint32_t* const middle = reinterpret_cast<uint32_t*>(halves[1]) - n / 2;
  // What the two pieces of memory hold at their ends: [memory][0: begin, 1: end][n / 2 words].
  Words held[2][2];
  for (auto& piece : held)
    for (Words& words : piece) words.assign(n / 2, 0);
  hipStream_t stream;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  for (int r = 0; r < rounds; r++) {
    const int first = r % 2, second = 1 - first;
    CHECK(hipMemMap(halves[0], granularity, 0, memory[first], 0));
    CHECK(hipMemMap(halves[1], granularity, 0, memory[second], 0));
    CHECK(hipMemSetAccess(reserved, 2 * granularity, &access, 1));
    if (r < 2) CHECK(hipMemsetAsync(middle, 0, n * sizeof(uint32_t), stream));
    LAUNCH(mix, blocks_for(n), kThreads, 0, stream, middle, 7, addend_of(r, 1), n);
    Words got(n), expected;
    CHECK(hipMemcpyAsync(got.data(), middle, n * sizeof(uint32_t), hipMemcpyDeviceToHost, stream));
    CHECK(hipStreamSynchronize(stream));
    for (Words* words : {&held[first][1], &held[second][0]}) {
      host_mix(*words, 7, addend_of(r, 1));
      expected.insert(expected.end(), words->begin(), words->end());
    }
    REQUIRE_EQUAL(got, expected, "buffer over two mappings");
    CHECK(hipMemUnmap(halves[0], granularity));
    CHECK(hipMemUnmap(halves[1], granularity));
  }
  for (auto& handle : memory) CHECK(hipMemRelease(handle));
  CHECK(hipMemAddressFree(reserved, 2 * granularity));
  CHECK(hipStreamDestroy(stream));
  std::printf("virtual_memory: ok, %d rounds, granularity %zu\n", rounds, granularity);
}
