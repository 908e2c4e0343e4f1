/* With `made`: memory that is made in a window, changed behind it, and read in the next one.
 * With `waits`: a window that is to be opened while a stream waits for what the same thread writes later.
 * Without: two windows. What the first one enqueues on a stream that the null stream does not wait for is still at work when the program goes
 * on; the program waits for it between the windows, and changes the memory there. */
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "hip.h"

hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned flags);
hipError_t hipMemsetAsync(void* dst, int value, size_t size, hipStream_t stream);
int hrr_capture_start(void) __attribute__((weak));
int hrr_capture_stop(void) __attribute__((weak));

enum { BYTES = 64 << 20, RESULT_BYTES = 4096, ROUNDS = 40 };

hipError_t hipStreamWaitValue32(hipStream_t stream, void* at, uint32_t value, unsigned flags, uint32_t mask);
hipError_t hipStreamWriteValue32(hipStream_t stream, void* at, uint32_t value, unsigned flags);

static int starts(void) { return hrr_capture_start ? (hrr_capture_start(), 0) : 0; }
static int stops(void) { return hrr_capture_stop ? (hrr_capture_stop(), 0) : 0; }

static int made(void) {
  unsigned char* memory[2] = {0};
  static unsigned char result[RESULT_BYTES];
  starts();
  if (hipMalloc((void**)&memory[0], RESULT_BYTES) || hipMemset(memory[0], 1, RESULT_BYTES) || hipDeviceSynchronize()) return 3;
  stops();
  if (hipMemset(memory[0], 2, RESULT_BYTES) || hipMalloc((void**)&memory[1], RESULT_BYTES)) return 4;
  if (hipMemset(memory[1], 3, RESULT_BYTES) || hipDeviceSynchronize()) return 5;
  starts();
  for (int i = 0; i < 2; i++)
    if (hipMemcpy(result, memory[i], RESULT_BYTES, hipMemcpyDeviceToHost) || result[RESULT_BYTES - 1] != 2 + i) return 6;
  stops();
  if (hipFree(memory[0]) || hipMalloc((void**)&memory[0], RESULT_BYTES) || hipMemset(memory[0], 4, RESULT_BYTES)) return 7;
  if (hipDeviceSynchronize()) return 8;
  starts();
  return hipMemcpy(result, memory[0], RESULT_BYTES, hipMemcpyDeviceToHost) || result[0] != 4;
}

static int waits(void) {
  uint32_t* memory = 0;
  static uint32_t result[16];
  hipStream_t streams[2];
  if (hipMalloc((void**)&memory, sizeof result) || hipMemset(memory, 0, sizeof result) || hipDeviceSynchronize()) return 3;
  for (int i = 0; i < 2; i++)
    if (hipStreamCreateWithFlags(&streams[i], 1)) return 4;
  if (hipStreamWaitValue32(streams[0], memory, 1, 0, ~0u)) return 5;
  starts();
  if (hipStreamWriteValue32(streams[1], memory, 1, 0) || hipStreamSynchronize(streams[0])) return 6;
  if (hipMemcpy(result, memory, sizeof result, hipMemcpyDeviceToHost) || result[0] != 1) return 7;
  /* At one of these calls it is opened. */
  for (int i = 0; i < 300; i++) {
    if (hipMemset(memory, 9, sizeof result) || hipMemcpy(result, memory, sizeof result, hipMemcpyDeviceToHost)) return 8;
    if (result[3] != 0x09090909) return 9;
    usleep(1000);
  }
  return hipDeviceSynchronize();
}

int main(int count, char** arguments) {
  if (count > 1) return !strcmp(arguments[1], "made") ? made() : waits();
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
