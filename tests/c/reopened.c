/* Two windows. What the first one enqueues on a stream that the null stream does not wait for is still at work when the program goes
 * on; the program waits for it between the windows, and changes the memory there. */
#include <stdio.h>
#include <stdlib.h>
#include "hip.h"

hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned flags);
hipError_t hipMemsetAsync(void* dst, int value, size_t size, hipStream_t stream);
int hrr_capture_start(void) __attribute__((weak));
int hrr_capture_stop(void) __attribute__((weak));

enum { BYTES = 64 << 20, RESULT_BYTES = 4096, ROUNDS = 40 };

int main(void) {
  unsigned char* memory = 0;
  static unsigned char result[RESULT_BYTES];
  hipStream_t stream = 0;
  if (hipMalloc((void**)&memory, BYTES) || hipStreamCreateWithFlags(&stream, 1)) return 3;
  if (hrr_capture_start) hrr_capture_start();
  for (int i = 0; i < ROUNDS; i++)
    if (hipMemsetAsync(memory, i, BYTES, stream)) return 4;
  if (hrr_capture_stop) hrr_capture_stop();
  if (hipStreamSynchronize(stream) || hipMemset(memory, 77, BYTES) || hipDeviceSynchronize()) return 5;
  if (hrr_capture_start) hrr_capture_start();
  if (hipMemcpy(result, memory + BYTES - RESULT_BYTES, RESULT_BYTES, hipMemcpyDeviceToHost)) return 6;
  for (int i = 0; i < RESULT_BYTES; i++)
    if (result[i] != 77) return 7;
  return hipStreamSynchronize(stream);
}
