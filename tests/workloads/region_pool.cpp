// A program that gives out parts of one allocation itself, as framework allocators do: blocks of a segment. With `inside`
// its kernels stay in their blocks; with `fresh` it reads a block that nothing was written to; with `over-block` one steps a word over the end of a block, and with `over-segment` a
// word over the end of the allocation, where nobody looks.
// usage: region_pool inside|fresh|over-block|over-segment
#include <cstring>

#include "workload.hpp"

int main(int argc, char** argv) {
  const char* const how = argc > 1 ? argv[1] : "inside";
  const bool over_block = std::strcmp(how, "over-block") == 0, over_segment = std::strcmp(how, "over-segment") == 0;
  const bool fresh = std::strcmp(how, "fresh") == 0;
  REQUIRE(over_block || over_segment || fresh || std::strcmp(how, "inside") == 0, "'%s' is no way to go on", how);
  // Four blocks of 1024 words; the third is never given out.
  const int n = 1024;
  const size_t block = n * sizeof(uint32_t);
  uint32_t* segment;
  CHECK(hipMalloc(&segment, 4 * block));
  uint32_t *first = segment, *second = segment + n, *last = segment + 3 * n;
  hipStream_t stream;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  LAUNCH(iota, blocks_for(n + over_block), kThreads, 0, stream, first, 7, n + over_block);
  LAUNCH(fill, blocks_for(n), kThreads, 0, stream, second, 3, n);
  LAUNCH(mix_from, blocks_for(n), kThreads, 0, stream, second, first, 5, n);
  LAUNCH(fill, blocks_for(n + over_segment), kThreads, 0, stream, last, 9, n + over_segment);
  LAUNCH(mix_from, blocks_for(n), kThreads, 0, stream, last, second, 11, n);
  Words got(n), source(n), expected(n, 3), end(n, 9);
  host_iota(source, 7);
  host_mix_from(expected, source, 5);
  host_mix_from(end, expected, 11);
  CHECK(hipMemcpyAsync(got.data(), second, block, hipMemcpyDeviceToHost, stream));
  CHECK(hipStreamSynchronize(stream));
  REQUIRE_EQUAL(got, expected, "the second block");
  CHECK(hipMemcpyAsync(got.data(), last, block, hipMemcpyDeviceToHost, stream));
  CHECK(hipStreamSynchronize(stream));
  REQUIRE_EQUAL(got, end, "the last block");
  // Whatever it holds.
  if (fresh) CHECK(hipMemcpy(got.data(), segment + 2 * n, block, hipMemcpyDeviceToHost));
  CHECK(hipStreamDestroy(stream));
  CHECK(hipFree(segment));
  std::printf("region_pool: ok, %s\n", how);
}
