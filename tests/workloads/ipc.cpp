// Memory and events exported as handles and opened again in the same process: what is done by one name is seen by the other.
// Runtimes whose handles are for other processes only call this one's an invalid context: there the first name stands for both.
// usage: ipc [rounds]
#include "workload.hpp"

// Whether a handle was opened; says so where this process may not.
static bool opens(hipError_t error, const char* what, bool say) {
  if (error == hipSuccess) return true;
  REQUIRE(error == hipErrorInvalidContext, "%s: %s", what, hipGetErrorName(error));
  (void)hipGetLastError();
  if (say) std::printf("ipc: %s under a second name skipped, handles are for other processes\n", what);
  return false;
}

int main(int argc, char** argv) {
  const int rounds = argument(argc, argv, 1, 4), n = 700;
  const size_t bytes = n * sizeof(uint32_t);
  hipStream_t first, second;
  CHECK(hipStreamCreateWithFlags(&first, hipStreamNonBlocking));
  CHECK(hipStreamCreateWithFlags(&second, hipStreamNonBlocking));
  Words expected(n), got(n);
  host_iota(expected, 1);
  for (int r = 0; r < rounds; r++) {
    // Neighbours, so that a handle of the wrong one would show.
    uint32_t *before, *memory, *opened;
    CHECK(hipMalloc(&before, bytes));
    CHECK(hipMalloc(&memory, bytes));
    hipEvent_t event, other;
    CHECK(hipEventCreateWithFlags(&event, hipEventDisableTiming | hipEventInterprocess));
    hipIpcMemHandle_t handle;
    hipIpcEventHandle_t event_handle;
    CHECK(hipIpcGetMemHandle(&handle, memory));
    CHECK(hipIpcGetEventHandle(&event_handle, event));
    const bool has_memory = opens(
        hipIpcOpenMemHandle(reinterpret_cast<void**>(&opened), handle, hipIpcMemLazyEnablePeerAccess), "memory", r == 0);
    const bool has_event = opens(hipIpcOpenEventHandle(&other, event_handle), "events", r == 0);
    if (!has_memory) opened = memory;
    if (!has_event) other = event;
    REQUIRE((opened != memory || !has_memory) && (other != event || !has_event), "opened under names of their own");
    LAUNCH(fill, blocks_for(n), kThreads, 0, first, before, 5, n);
    CHECK(hipMemcpyAsync(memory, expected.data(), bytes, hipMemcpyHostToDevice, first));
    LAUNCH(mix, blocks_for(n), kThreads, 0, first, memory, 3, uint32_t(r), n);
    CHECK(hipEventRecord(event, first));
    CHECK(hipStreamWaitEvent(second, other, 0));
    LAUNCH(mix, blocks_for(n), kThreads, 0, second, opened, 5, uint32_t(r) + 1, n);
    CHECK(hipEventRecord(other, second));
    CHECK(hipEventSynchronize(event));
    CHECK(hipMemcpy(got.data(), memory, bytes, hipMemcpyDeviceToHost));
    host_mix(expected, 3, uint32_t(r));
    host_mix(expected, 5, uint32_t(r) + 1);
    REQUIRE_EQUAL(got, expected, "mixed by both names");
    CHECK(hipMemcpy(got.data(), opened, bytes, hipMemcpyDeviceToHost));
    REQUIRE_EQUAL(got, expected, "read by the opened name");
    if (has_memory) CHECK(hipIpcCloseMemHandle(opened));
    if (has_event) CHECK(hipEventDestroy(other));
    CHECK(hipMemcpy(got.data(), memory, bytes, hipMemcpyDeviceToHost));
    REQUIRE_EQUAL(got, expected, "read after the other name was closed");
    CHECK(hipEventDestroy(event));
    CHECK(hipFree(memory));
    CHECK(hipFree(before));
  }
  CHECK(hipStreamDestroy(first));
  CHECK(hipStreamDestroy(second));
  std::printf("ipc: ok, %d rounds\n", rounds);
}
