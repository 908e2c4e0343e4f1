// A unit whose code object has a kernel and a variable of the same names as the other unit's.
// embeds: same_name_multiply
// local: transform __device_stub__transform operand
#include "../check.hpp"
#include "same_name_units.hpp"

extern "C" {
__global__ void transform(uint32_t*, uint32_t, int) {}
__device__ uint32_t operand;
}

void launch_multiply(uint32_t* data, uint32_t amount, int n, hipStream_t stream) {
  LAUNCH(transform, (n + 127) / 128, 128, 0, stream, data, amount, n);
}

void set_multiply_operand(uint32_t value) { CHECK(hipMemcpyToSymbol(HIP_SYMBOL(operand), &value, sizeof value)); }
