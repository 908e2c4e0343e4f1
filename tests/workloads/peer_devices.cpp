// Two devices that use each other's memory: kernels of one read and write the memory of the other, events of one order
// streams of the other, copies go from one to the other, each has a graph of its own, and two threads use the streams
// of both in turn, each changing device between its calls. Needs two devices (minihip: MINIHIP_DEVICES=2); exits 77 with
// fewer, or where they do not reach each other.
// usage: peer_devices [elements] [rounds]
#include "workload.hpp"

namespace {

constexpr int kDevices = 2, kWorkers = 2;

// What each device has; the recording thread knows nothing of it but the calls.
struct Side {
  hipStream_t stream;
  hipEvent_t done;
  hipGraphExec_t graph;
  uint32_t *data, *inbox, *host;
  Words expected;
};

void set_up(Side& side, int d, int n) {
  CHECK(hipSetDevice(d));
  CHECK(hipDeviceEnablePeerAccess(1 - d, 0));
  REQUIRE(hipDeviceEnablePeerAccess(1 - d, 0) == hipErrorPeerAccessAlreadyEnabled, "access was enabled twice");
  (void)hipGetLastError();
  CHECK(hipStreamCreateWithFlags(&side.stream, hipStreamNonBlocking));
  CHECK(hipEventCreateWithFlags(&side.done, hipEventDisableTiming));
  CHECK(hipMalloc(&side.data, n * sizeof(uint32_t)));
  CHECK(hipMalloc(&side.inbox, n * sizeof(uint32_t)));
  CHECK(hipHostMalloc(reinterpret_cast<void**>(&side.host), n * sizeof(uint32_t), hipHostMallocDefault));
  LAUNCH(iota, blocks_for(n), kThreads, 0, side.stream, side.data, uint32_t(1000 * d), n);
  CHECK(hipMemsetAsync(side.inbox, 0, n * sizeof(uint32_t), side.stream));
  CHECK(hipStreamSynchronize(side.stream));
  side.expected.resize(n);
  host_iota(side.expected, uint32_t(1000 * d));

  hipGraph_t graph;
  CHECK(hipStreamBeginCapture(side.stream, hipStreamCaptureModeThreadLocal));
  LAUNCH(mix, blocks_for(n), kThreads, 0, side.stream, side.data, 3u + 2u * d, 7u + d, n);
  CHECK(hipStreamEndCapture(side.stream, &graph));
  CHECK(hipGraphInstantiate(&side.graph, graph, nullptr, nullptr, 0));
  CHECK(hipGraphDestroy(graph));
}

// One round, by whichever thread has the turn: `from` works, hands over to the other by an event, and back.
void round(Side* sides, int from, int r, int n) {
  const int to = 1 - from;
  const size_t bytes = n * sizeof(uint32_t);
  Side &a = sides[from], &b = sides[to];

  CHECK(hipSetDevice(from));
  CHECK(hipGraphLaunch(a.graph, a.stream));
  host_mix(a.expected, 3u + 2u * from, 7u + from);
  LAUNCH(mix, blocks_for(n), kThreads, 0, a.stream, a.data, factor_of(r, from), addend_of(r, from), n);
  host_mix(a.expected, factor_of(r, from), addend_of(r, from));
  CHECK(hipEventRecord(a.done, a.stream));

  // The other device waits for this one's event and reads its memory.
  CHECK(hipSetDevice(to));
  CHECK(hipStreamWaitEvent(b.stream, a.done, 0));
  LAUNCH(mix_from, blocks_for(n), kThreads, 0, b.stream, b.data, a.data, factor_of(r, 17), n);
  host_mix_from(b.expected, a.expected, factor_of(r, 17));
  // It writes into this one's memory too.
  LAUNCH(mix, blocks_for(n), kThreads, 0, b.stream, a.data, factor_of(r, 29), 5u, n);
  host_mix(a.expected, factor_of(r, 29), 5u);
  CHECK(hipEventRecord(b.done, b.stream));

  // Back on this device: what the other has, by a copy between them, and by one whose kind the runtime finds out.
  CHECK(hipSetDevice(from));
  CHECK(hipStreamWaitEvent(a.stream, b.done, 0));
  CHECK(hipMemcpyPeerAsync(a.inbox, from, b.data, to, bytes, a.stream));
  LAUNCH(mix_from, blocks_for(n), kThreads, 0, a.stream, a.data, a.inbox, factor_of(r, 31), n);
  host_mix_from(a.expected, b.expected, factor_of(r, 31));
  if (r % 2 != 0) {
    CHECK(hipMemcpyAsync(b.inbox, a.data, bytes, hipMemcpyDefault, a.stream));
    CHECK(hipEventRecord(a.done, a.stream));
    CHECK(hipSetDevice(to));
    CHECK(hipStreamWaitEvent(b.stream, a.done, 0));
    LAUNCH(mix_from, blocks_for(n), kThreads, 0, b.stream, b.data, b.inbox, factor_of(r, 37), n);
    host_mix_from(b.expected, a.expected, factor_of(r, 37));
    // The next round begins on a device that does not know of this stream's work.
    CHECK(hipEventRecord(b.done, b.stream));
    CHECK(hipSetDevice(from));
    CHECK(hipStreamWaitEvent(a.stream, b.done, 0));
  }
  for (int d = 0; d < kDevices; d++) {
    CHECK(hipSetDevice(d));
    CHECK(hipMemcpyAsync(sides[d].host, sides[d].data, bytes, hipMemcpyDeviceToHost, sides[d].stream));
  }
  for (int d = 0; d < kDevices; d++) CHECK(hipStreamSynchronize(sides[d].stream));
  for (int d = 0; d < kDevices; d++) {
    const Words got(sides[d].host, sides[d].host + n);
    REQUIRE_EQUAL(got, sides[d].expected, d == 0 ? "memory of device 0" : "memory of device 1");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int n = argument(argc, argv, 1, 2048), rounds = argument(argc, argv, 2, 6);
  int devices = 0;
  CHECK(hipGetDeviceCount(&devices));
  int reached[kDevices] = {};
  if (devices >= kDevices)
    for (int d = 0; d < kDevices; d++) CHECK(hipDeviceCanAccessPeer(&reached[d], d, 1 - d));
  if (!reached[0] || !reached[1]) {
    std::printf("peer_devices: skipped, %d device(s), or they do not reach each other\n", devices);
    return 77;
  }
  Side sides[kDevices] = {};
  for (int d = 0; d < kDevices; d++) set_up(sides[d], d, n);

  Turns turns;
  run_threads(kWorkers, [&](int t) {
    for (int r = t; r < rounds; r += kWorkers) turns.take(r, [&] { round(sides, r / kWorkers % kDevices, r, n); });
  });

  for (int d = 0; d < kDevices; d++) {
    CHECK(hipSetDevice(d));
    CHECK(hipDeviceDisablePeerAccess(1 - d));
    CHECK(hipGraphExecDestroy(sides[d].graph));
    CHECK(hipEventDestroy(sides[d].done));
    CHECK(hipStreamDestroy(sides[d].stream));
    CHECK(hipFree(sides[d].data));
    CHECK(hipFree(sides[d].inbox));
    CHECK(hipHostFree(sides[d].host));
  }
  std::printf("peer_devices: ok, %d threads, %d rounds, %d elements\n", kWorkers, rounds, n);
}
