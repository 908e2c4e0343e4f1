/* The code object that workloads embed: every kernel they start with <<<>>>. */
#include "arguments.c"
#include "control.c"
#include "device_variables.c"
#include "shared_memory.c"
#include "vector.c"
