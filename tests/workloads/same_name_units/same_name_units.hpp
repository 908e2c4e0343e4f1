// What the two units of this workload offer; each has its own embedded code object.
#pragma once
#include <hip/hip_runtime.h>

#include <cstdint>

void launch_add(uint32_t* data, uint32_t amount, int n, hipStream_t stream);
void launch_multiply(uint32_t* data, uint32_t amount, int n, hipStream_t stream);
void set_add_operand(uint32_t value);
void set_multiply_operand(uint32_t value);
