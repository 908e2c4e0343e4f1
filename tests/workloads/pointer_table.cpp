// Device memory that holds device pointers (a block table). With `device` a kernel computes the pointers from one base;
// with `host` the program uploads them, so that a replay must have the buffers where they were.
// usage: pointer_table device|host [buffers] [elements]
#include <cstring>

#include "workload.hpp"

int main(int argc, char** argv) {
  const bool from_host = argc > 1 && std::strcmp(argv[1], "host") == 0;
  REQUIRE(argc > 1 && (from_host || std::strcmp(argv[1], "device") == 0), "usage: %s device|host [buffers] [elements]",
          argv[0]);
  const int buffers = argument(argc, argv, 2, 32), n = argument(argc, argv, 3, 128);
  hipStream_t stream;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  uint32_t **table, *base;
  CHECK(hipMalloc(&table, buffers * sizeof *table));
  CHECK(hipMalloc(&base, size_t(buffers) * n * sizeof *base));
  DeviceWords sums(buffers);
  std::vector<uint32_t*> separate;
  LAUNCH(iota, blocks_for(buffers * n), kThreads, 0, stream, base, 1, buffers * n);
  if (from_host) {
    // A buffer each, and the table in the opposite order.
    for (int b = 0; b < buffers; b++) {
      uint32_t* buffer;
      CHECK(hipMalloc(&buffer, n * sizeof(uint32_t)));
      LAUNCH(iota, blocks_for(n), kThreads, 0, stream, buffer, uint32_t(1 + (buffers - 1 - b) * n), n);
      separate.insert(separate.begin(), buffer);
    }
    CHECK(hipMemcpyAsync(table, separate.data(), buffers * sizeof *table, hipMemcpyHostToDevice, stream));
  } else {
    LAUNCH(make_table, blocks_for(buffers), kThreads, 0, stream, table, base, buffers, n);
  }
  LAUNCH(sum_table, blocks_for(buffers), kThreads, 0, stream, table, sums, buffers, n);
  Words got(buffers), expected(buffers);
  for (int i = 0; i < buffers * n; i++) expected[i / n] += 1 + i;
  CHECK(hipMemcpyAsync(got.data(), sums, sums.bytes(), hipMemcpyDeviceToHost, stream));
  CHECK(hipStreamSynchronize(stream));
  REQUIRE_EQUAL(got, expected, "sums through the table");
  for (uint32_t* buffer : separate) CHECK(hipFree(buffer));
  CHECK(hipFree(table));
  CHECK(hipFree(base));
  CHECK(hipStreamDestroy(stream));
  std::printf("pointer_table: ok, %s, %d buffers, %d elements\n", argv[1], buffers, n);
}
