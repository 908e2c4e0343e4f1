/* Structs that the kernels of launch_shapes.c take by value. */
#ifndef LAUNCH_SHAPES_H
#define LAUNCH_SHAPES_H
#include <stdint.h>

#define LARGE_WORDS (17 * 1024)

struct large_arguments {
  const uint32_t* addends;
  uint32_t words[LARGE_WORDS];
  uint32_t* out;
};

#pragma pack(push, 1)
struct packed_pointers {
  char tag;
  const uint32_t* source;
  char gap[2];
  const uint32_t* middle;
  struct {
    char gap[3];
    uint32_t* out;
  } inner;
};
#pragma pack(pop)
#endif
