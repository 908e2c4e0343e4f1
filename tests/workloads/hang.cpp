// Three streams: two finish their work, a kernel on the third spins for ever, and the program waits for the device.
// usage: hang [elements] [kernels on the third stream before the one that spins]
#include "workload.hpp"

int main(int argc, char** argv) {
  const int n = argument(argc, argv, 1, 256), before = argument(argc, argv, 2, 0);
  const unsigned blocks = blocks_for(n);
  hipStream_t streams[3];
  for (hipStream_t& stream : streams) CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  DeviceWords data(n), other(n), flag(1), done(1);
  CHECK(hipMemset(flag, 0, flag.bytes()));
  CHECK(hipMemset(done, 0, done.bytes()));
  LAUNCH(iota, blocks, kThreads, 0, streams[0], data, 1, n);
  LAUNCH(busy, blocks, kThreads, 0, streams[1], other, 100, n);
  LAUNCH(fill, blocks, kThreads, 0, streams[2], other, 5, n);
  for (int i = 0; i < before; i++) LAUNCH(mix, blocks, kThreads, 0, streams[2], other, 5, 2, n);
  LAUNCH(spin_until, 1, 1, 0, streams[2], flag, done);
  LAUNCH(mix, blocks, kThreads, 0, streams[2], other, 3, 1, n);  // never starts
  CHECK(hipStreamSynchronize(streams[0]));
  CHECK(hipStreamSynchronize(streams[1]));
  std::printf("hang: two streams are done, waiting for the third\n");
  std::fflush(stdout);
  CHECK(hipDeviceSynchronize());
  fail(__FILE__, __LINE__, "the kernel that spins for ever came to an end");
}
