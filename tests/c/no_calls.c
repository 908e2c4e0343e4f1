/* Refers to HIP and does not call it. */
#include "hip.h"
int main(int argc, char** argv) { return argc > 1000 ? hipDeviceSynchronize() : 0; }
