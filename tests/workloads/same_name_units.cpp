// One program with three embedded code objects, two of which have a kernel and a variable of the same names: the host
// function says which kernel is meant, its name does not.
// usage: same_name_units [elements] [rounds]
#include "same_name_units/same_name_units.hpp"

#include "workload.hpp"

int main(int argc, char** argv) {
  const int n = argument(argc, argv, 1, 1024), rounds = argument(argc, argv, 2, 6);
  hipStream_t stream;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  DeviceWords data(n);
  Words expected(n), got(n);
  host_iota(expected, 1);
  LAUNCH(iota, blocks_for(n), kThreads, 0, stream, data, 1, n);
  // The operands that the code objects start with.
  uint32_t add = 3, multiply = 5;
  for (int r = 0; r < rounds; r++) {
    launch_add(data, factor_of(r, 1), n, stream);
    for (uint32_t& value : expected) value += factor_of(r, 1) + add;
    launch_multiply(data, factor_of(r, 2), n, stream);
    for (uint32_t& value : expected) value *= factor_of(r, 2) * multiply;
    CHECK(hipMemcpyAsync(got.data(), data, data.bytes(), hipMemcpyDeviceToHost, stream));
    CHECK(hipStreamSynchronize(stream));
    REQUIRE_EQUAL(got, expected, "data after both kernels");
    set_add_operand(add = addend_of(r, 1));
    set_multiply_operand(multiply = factor_of(r, 3));
  }
  CHECK(hipStreamDestroy(stream));
  std::printf("same_name_units: ok, %d rounds, %d elements\n", rounds, n);
}
