/* Structs that kernels take by value, shared by the kernels (C) and the workloads (C++). */
#ifndef LAUNCH_TYPES_H
#define LAUNCH_TYPES_H
#include <stdint.h>

struct matrix_view {
  uint32_t rows, columns;
  uint32_t* data;
  uint32_t pitch; /* in elements */
  uint32_t factor;
  const uint32_t* bias; /* one per column, may be null */
};
#endif
