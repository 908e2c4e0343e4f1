// Memory and pools exported as file descriptors and imported again by the same process, by copies of the descriptors too, and
// after a number was used again: what is done by one name is seen by the other.
// With `foreign`, a process imports what another one exported.
// usage: shared_handles [rounds | foreign]
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "sweep.hpp"

namespace {

constexpr int kNumber = 200;
constexpr int kCount = 900;
constexpr size_t kBytes = kCount * sizeof(uint32_t);

hipMemAllocationProp properties() {
  hipMemAllocationProp found = {};
  found.type = hipMemAllocationTypePinned;
  found.requestedHandleType = hipMemHandleTypePosixFileDescriptor;
  found.location.type = hipMemLocationTypeDevice;
  return found;
}

// A reserved range with all of `memory` mapped into it.
uint32_t* map(hipMemGenericAllocationHandle_t memory, size_t size) {
  void* range = nullptr;
  CHECK(hipMemAddressReserve(&range, size, 0, nullptr, 0));
  CHECK(hipMemMap(range, size, 0, memory, 0));
  hipMemAccessDesc access = {};
  access.location = properties().location;
  access.flags = hipMemAccessFlagsProtReadWrite;
  CHECK(hipMemSetAccess(range, size, &access, 1));
  return static_cast<uint32_t*>(range);
}

void unmap(uint32_t* range, size_t size) {
  CHECK(hipMemUnmap(range, size));
  CHECK(hipMemAddressFree(range, size));
}

void* as_handle(int descriptor) { return reinterpret_cast<void*>(uintptr_t(descriptor)); }

// Two pieces of memory are exported one after the other, and imported by descriptors of the same number.
void physical(hipStream_t stream, int round) {
  const hipMemAllocationProp wanted = properties();
  size_t size = 0;
  CHECK(hipMemGetAllocationGranularity(&size, &wanted, hipMemAllocationGranularityMinimum));
  hipMemGenericAllocationHandle_t memory[2], imported[2];
  uint32_t *owned[2], *other[2];
  for (int i = 0; i < 2; i++) {
    CHECK(hipMemCreate(&memory[i], size, &wanted, 0));
    owned[i] = map(memory[i], size);
    int descriptor = -1;
    CHECK(hipMemExportToShareableHandle(&descriptor, memory[i], hipMemHandleTypePosixFileDescriptor, 0));
    REQUIRE(dup2(descriptor, kNumber) == kNumber, "no copy of descriptor %d", descriptor);
    close(descriptor);
    CHECK(hipMemImportFromShareableHandle(&imported[i], as_handle(kNumber), hipMemHandleTypePosixFileDescriptor));
    close(kNumber);
    other[i] = map(imported[i], size);
    REQUIRE(other[i] != owned[i], "mapped under a name of its own");
  }
  for (int i = 0; i < 2; i++) {
    Words expected = pattern(kCount, uint32_t(round * 2 + i));
    CHECK(hipMemcpyAsync(owned[i], expected.data(), kBytes, hipMemcpyHostToDevice, stream));
    LAUNCH(mix, blocks_for(kCount), kThreads, 0, stream, other[i], 3, uint32_t(round + i), kCount);
    LAUNCH(mix, blocks_for(kCount), kThreads, 0, stream, owned[i], 5, uint32_t(round), kCount);
    CHECK(hipStreamSynchronize(stream));
    host_mix(expected, 3, uint32_t(round + i));
    host_mix(expected, 5, uint32_t(round));
    EXPECT_WORDS(other[i], expected);
    // The memory stays as long as one of its names does.
    unmap(owned[i], size);
    CHECK(hipMemRelease(memory[i]));
    EXPECT_WORDS(other[i], expected);
    unmap(other[i], size);
    CHECK(hipMemRelease(imported[i]));
  }
}

// The same memory as a buffer and as the levels of an image.
void external(hipStream_t stream, int round) {
  const hipMemAllocationProp wanted = properties();
  size_t size = 0;
  CHECK(hipMemGetAllocationGranularity(&size, &wanted, hipMemAllocationGranularityMinimum));
  while (size < 16 << 12) size *= 2;
  hipMemGenericAllocationHandle_t memory;
  CHECK(hipMemCreate(&memory, size, &wanted, 0));
  uint32_t* const owned = map(memory, size);
  hip7::ExternalMemory description = {};
  description.type = hipExternalMemoryHandleTypeOpaqueFd;
  description.size = size;
  CHECK(hipMemExportToShareableHandle(&description.fd, memory, hipMemHandleTypePosixFileDescriptor, 0));
  hipExternalMemory_t imported;
  const hipError_t offered =
      hipImportExternalMemory(&imported, reinterpret_cast<hipExternalMemoryHandleDesc*>(&description));
  if (offered == hipErrorNotSupported) {
    if (round == 0) std::printf("shared_handles: without external memory, the runtime has none\n");
    (void)hipGetLastError();
    close(description.fd);
    unmap(owned, size);
    CHECK(hipMemRelease(memory));
    return;
  }
  CHECK(offered);
  hip7::ExternalBuffer part = {};
  part.offset = 4096;
  part.size = kBytes;
  void* buffer = nullptr;
  CHECK(hipExternalMemoryGetMappedBuffer(&buffer, imported, reinterpret_cast<hipExternalMemoryBufferDesc*>(&part)));
  Words expected = pattern(kCount, uint32_t(round) + 77);
  upload(owned + part.offset / sizeof(uint32_t), expected);
  LAUNCH(mix, blocks_for(kCount), kThreads, 0, stream, static_cast<uint32_t*>(buffer), 7, uint32_t(round), kCount);
  CHECK(hipStreamSynchronize(stream));
  host_mix(expected, 7, uint32_t(round));
  EXPECT_WORDS(owned + part.offset / sizeof(uint32_t), expected);

  const unsigned width = 16, height = 8;
  hip7::ExternalMipmap image = {};
  image.offset = 2 * 4096;
  image.format = hipCreateChannelDesc(32, 0, 0, 0, hipChannelFormatKindUnsigned);
  image.extent = {width, height, 0};
  image.levels = 2;
  hipMipmappedArray_t levels;
  CHECK(hipExternalMemoryGetMappedMipmappedArray(&levels, imported, &image));
  hipArray_t level;
  CHECK(hipGetMipmappedArrayLevel(&level, levels, 0));
  const Words pixels = pattern(width * height, uint32_t(round) + 99);
  const size_t row = width * sizeof(uint32_t);
  CHECK(hipMemcpy2DToArray(level, 0, 0, pixels.data(), row, row, height, hipMemcpyHostToDevice));
  // Where a runtime has the first pixel is its own affair; that it is in this memory is not.
  EXPECT_WORDS(owned + image.offset / sizeof(uint32_t), Words(pixels.begin(), pixels.begin() + width));
  Words back(pixels.size());
  CHECK(hipMemcpy2DFromArray(back.data(), row, level, 0, 0, row, height, hipMemcpyDeviceToHost));
  REQUIRE_EQUAL(back, pixels, "image in external memory");
  CHECK(hipFreeMipmappedArray(levels));
  CHECK(hipFree(buffer));
  CHECK(hipDestroyExternalMemory(imported));
  close(description.fd);
  unmap(owned, size);
  CHECK(hipMemRelease(memory));
}

void pools(hipStream_t stream, int round) {
  hipMemPoolProps wanted = {};
  wanted.allocType = hipMemAllocationTypePinned;
  wanted.handleTypes = hipMemHandleTypePosixFileDescriptor;
  wanted.location = properties().location;
  hipMemPool_t pool, imported;
  CHECK(hipMemPoolCreate(&pool, &wanted));
  uint32_t *before, *memory, *other[2];
  CHECK(hipMallocFromPoolAsync(reinterpret_cast<void**>(&before), kBytes, pool, stream));
  CHECK(hipMallocFromPoolAsync(reinterpret_cast<void**>(&memory), kBytes, pool, stream));
  int descriptor = -1;
  const hipError_t offered =
      hipMemPoolExportToShareableHandle(&descriptor, pool, hipMemHandleTypePosixFileDescriptor, 0);
  if (offered == hipErrorNotSupported) {
    if (round == 0) std::printf("shared_handles: without pools, the runtime exports none\n");
    (void)hipGetLastError();
    CHECK(hipFreeAsync(before, stream));
    CHECK(hipFreeAsync(memory, stream));
    CHECK(hipStreamSynchronize(stream));
    CHECK(hipMemPoolDestroy(pool));
    return;
  }
  CHECK(offered);
  CHECK(hipMemPoolImportFromShareableHandle(&imported, as_handle(descriptor), hipMemHandleTypePosixFileDescriptor, 0));
  close(descriptor);
  hipMemPoolPtrExportData data;
  CHECK(hipMemPoolExportPointer(&data, memory));
  CHECK(hipStreamSynchronize(stream));
  for (auto& name : other) CHECK(hipMemPoolImportPointer(reinterpret_cast<void**>(&name), imported, &data));
  REQUIRE(other[0] != memory, "imported under a name of its own");
  LAUNCH(fill, blocks_for(kCount), kThreads, 0, stream, before, 11, kCount);
  Words expected = pattern(kCount, uint32_t(round) + 5);
  CHECK(hipMemcpyAsync(memory, expected.data(), kBytes, hipMemcpyHostToDevice, stream));
  LAUNCH(mix, blocks_for(kCount), kThreads, 0, stream, other[0], 9, uint32_t(round), kCount);
  LAUNCH(mix, blocks_for(kCount), kThreads, 0, stream, memory, 3, 4, kCount);
  LAUNCH(mix, blocks_for(kCount), kThreads, 0, stream, other[1], 5, 6, kCount);
  CHECK(hipStreamSynchronize(stream));
  host_mix(expected, 9, uint32_t(round));
  host_mix(expected, 3, 4);
  host_mix(expected, 5, 6);
  EXPECT_WORDS(other[0], expected);
  CHECK(hipFree(other[0]));
  CHECK(hipFreeAsync(other[1], stream));
  EXPECT_WORDS(memory, expected);
  void* more = nullptr;
  REQUIRE(hipMallocFromPoolAsync(&more, kBytes, imported, stream) != hipSuccess, "an imported pool gives out no memory");
  REQUIRE(hipGetLastError() != hipSuccess, "the refusal is the last error");
  CHECK(hipFreeAsync(memory, stream));
  CHECK(hipFreeAsync(before, stream));
  CHECK(hipStreamSynchronize(stream));
  CHECK(hipMemPoolDestroy(imported));
  CHECK(hipMemPoolDestroy(pool));
}

// Sends a descriptor to another process, or receives one.
int pass(int socket, int descriptor) {
  char byte = 0, room[CMSG_SPACE(sizeof(int))] = {};
  iovec part = {&byte, 1};
  msghdr message = {};
  message.msg_iov = &part, message.msg_iovlen = 1;
  message.msg_control = room, message.msg_controllen = sizeof room;
  if (descriptor < 0) {
    REQUIRE(recvmsg(socket, &message, 0) == 1 && CMSG_FIRSTHDR(&message) != nullptr, "nothing was sent");
    std::memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof descriptor);
    return descriptor;
  }
  cmsghdr* head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS, head->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(head), &descriptor, sizeof descriptor);
  REQUIRE(sendmsg(socket, &message, 0) == 1, "not sent");
  return descriptor;
}

// Both export memory, by descriptors of the same number; the parent imports the child's.
int foreign() {
  int sockets[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0, "no sockets");
  const pid_t child = fork();
  const hipMemAllocationProp wanted = properties();
  const Words expected = pattern(kCount, 7);
  size_t size = 0;
  CHECK(hipMemGetAllocationGranularity(&size, &wanted, hipMemAllocationGranularityMinimum));
  hipMemGenericAllocationHandle_t memory, imported;
  CHECK(hipMemCreate(&memory, size, &wanted, 0));
  uint32_t* const owned = map(memory, size);
  if (child == 0) upload(owned, expected);
  int descriptor = -1;
  CHECK(hipMemExportToShareableHandle(&descriptor, memory, hipMemHandleTypePosixFileDescriptor, 0));
  REQUIRE(dup2(descriptor, kNumber) == kNumber, "no copy of descriptor %d", descriptor);
  close(descriptor);
  if (child == 0) {
    pass(sockets[1], kNumber);
  } else {
    close(kNumber);
    const int received = pass(sockets[0], -1);
    REQUIRE(dup2(received, kNumber) == kNumber, "no copy of descriptor %d", received);
    CHECK(hipMemImportFromShareableHandle(&imported, as_handle(kNumber), hipMemHandleTypePosixFileDescriptor));
    uint32_t* const other = map(imported, size);
    EXPECT_WORDS(other, expected);
    unmap(other, size);
    CHECK(hipMemRelease(imported));
    int status = 1;
    REQUIRE(waitpid(child, &status, 0) == child && status == 0, "the child failed");
  }
  unmap(owned, size);
  CHECK(hipMemRelease(memory));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "foreign") return foreign();
  const int rounds = argument(argc, argv, 1, 3);
  hipStream_t stream;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  for (int round = 0; round < rounds; round++) {
    physical(stream, round);
    external(stream, round);
    pools(stream, round);
  }
  // No file at all.
  hipMemGenericAllocationHandle_t none;
  const hipError_t refused =
      hipMemImportFromShareableHandle(&none, as_handle(4711), hipMemHandleTypePosixFileDescriptor);
  REQUIRE(refused != hipSuccess && hipGetLastError() == refused, "what is no descriptor is refused");
  CHECK(hipStreamDestroy(stream));
  std::printf("shared_handles: ok, %d rounds\n", rounds);
}
