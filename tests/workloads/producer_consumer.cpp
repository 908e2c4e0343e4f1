// Pairs of threads, each a producer and a consumer with streams of their own, pass device buffers through a ring.
// Events order the streams: the producer records `filled`, the consumer's stream waits for it, and the other way round
// with `emptied`. Indices go over by mutex and condition variable. At each checkpoint the consumer enqueues on the
// producer's stream while the producer waits for it on the host.
// usage: producer_consumer [elements] [items] [pairs]
#include <deque>

#include "workload.hpp"

namespace {

constexpr int kSlots = 3, kCheckpoint = 8;

// A queue of numbers between two threads.
class Channel {
 public:
  void push(int value) {
    std::lock_guard<std::mutex> lock(mutex_);
    values_.push_back(value);
    changed_.notify_one();
  }
  int pop() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return !values_.empty(); });
    int value = values_.front();
    values_.pop_front();
    return value;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<int> values_;
};

struct Pair {
  Channel filled_slots, empty_slots, checkpoints;
  hipStream_t producer_stream, consumer_stream;
  hipEvent_t filled[kSlots], emptied[kSlots], checkpoint;
  uint32_t *slot[kSlots], *state, *total;
};

void create(Pair& pair, int n) {
  CHECK(hipStreamCreateWithFlags(&pair.producer_stream, hipStreamNonBlocking));
  CHECK(hipStreamCreateWithFlags(&pair.consumer_stream, hipStreamNonBlocking));
  for (int s = 0; s < kSlots; s++) {
    CHECK(hipEventCreateWithFlags(&pair.filled[s], hipEventDisableTiming));
    CHECK(hipEventCreate(&pair.emptied[s]));
    CHECK(hipMalloc(&pair.slot[s], n * sizeof(uint32_t)));
    pair.empty_slots.push(s);
  }
  CHECK(hipEventCreate(&pair.checkpoint));
  CHECK(hipMalloc(&pair.state, n * sizeof(uint32_t)));
  CHECK(hipMalloc(&pair.total, n * sizeof(uint32_t)));
}

void destroy(Pair& pair) {
  for (int s = 0; s < kSlots; s++) {
    CHECK(hipEventDestroy(pair.filled[s]));
    CHECK(hipEventDestroy(pair.emptied[s]));
    CHECK(hipFree(pair.slot[s]));
  }
  CHECK(hipEventDestroy(pair.checkpoint));
  CHECK(hipFree(pair.state));
  CHECK(hipFree(pair.total));
  CHECK(hipStreamDestroy(pair.producer_stream));
  CHECK(hipStreamDestroy(pair.consumer_stream));
}

void produce(Pair& pair, int p, int n, int items) {
  const unsigned blocks = blocks_for(n);
  LAUNCH(iota, blocks, kThreads, 0, pair.producer_stream, pair.state, uint32_t(p), n);
  for (int i = 0; i < items; i++) {
    const int s = pair.empty_slots.pop();
    // Not yet recorded in the first lap: such a wait is no wait.
    CHECK(hipStreamWaitEvent(pair.producer_stream, pair.emptied[s], 0));
    LAUNCH(mix, blocks, kThreads, 0, pair.producer_stream, pair.state, factor_of(p, i), addend_of(p, i), n);
    CHECK(
        hipMemcpyAsync(pair.slot[s], pair.state, n * sizeof(uint32_t), hipMemcpyDeviceToDevice, pair.producer_stream));
    CHECK(hipEventRecord(pair.filled[s], pair.producer_stream));
    pair.filled_slots.push(s);
    if (i % kCheckpoint == kCheckpoint - 1) pair.checkpoints.pop();
  }
}

void consume(Pair& pair, int p, int n, int items) {
  const unsigned blocks = blocks_for(n);
  LAUNCH(fill, blocks, kThreads, 0, pair.consumer_stream, pair.total, 1, n);
  for (int i = 0; i < items; i++) {
    const int s = pair.filled_slots.pop();
    CHECK(hipStreamWaitEvent(pair.consumer_stream, pair.filled[s], 0));
    LAUNCH(mix_from, blocks, kThreads, 0, pair.consumer_stream, pair.total, pair.slot[s], factor_of(i, p), n);
    CHECK(hipEventRecord(pair.emptied[s], pair.consumer_stream));
    if (i % kCheckpoint == kCheckpoint - 1) {
      // The total so far goes back into the producer's state, on the producer's own stream.
      CHECK(hipEventRecord(pair.checkpoint, pair.consumer_stream));
      CHECK(hipStreamWaitEvent(pair.producer_stream, pair.checkpoint, 0));
      LAUNCH(mix_from, blocks, kThreads, 0, pair.producer_stream, pair.state, pair.total, 3, n);
      CHECK(hipEventRecord(pair.checkpoint, pair.producer_stream));
      CHECK(hipStreamWaitEvent(pair.consumer_stream, pair.checkpoint, 0));
      LAUNCH(mix, blocks, kThreads, 0, pair.consumer_stream, pair.total, 5, uint32_t(i), n);
      pair.checkpoints.push(i);
    }
    pair.empty_slots.push(s);
  }
  Words got(n);
  CHECK(hipMemcpyAsync(got.data(), pair.total, n * sizeof(uint32_t), hipMemcpyDeviceToHost, pair.consumer_stream));
  CHECK(hipStreamSynchronize(pair.consumer_stream));

  Words state(n), total(n, 1);
  host_iota(state, uint32_t(p));
  for (int i = 0; i < items; i++) {
    host_mix(state, factor_of(p, i), addend_of(p, i));
    host_mix_from(total, state, factor_of(i, p));
    if (i % kCheckpoint == kCheckpoint - 1) {
      host_mix_from(state, total, 3);
      host_mix(total, 5, uint32_t(i));
    }
  }
  REQUIRE_EQUAL(got, total, "consumer's total");
}

}  // namespace

int main(int argc, char** argv) {
  const int n = argument(argc, argv, 1, 1024), items = argument(argc, argv, 2, 40);
  const int pairs = argument(argc, argv, 3, 2);
  std::vector<Pair> pair(pairs);
  for (Pair& one : pair) create(one, n);
  run_threads(2 * pairs, [&](int t) {
    if (t % 2 == 0)
      produce(pair[t / 2], t / 2, n, items);
    else
      consume(pair[t / 2], t / 2, n, items);
  });
  CHECK(hipDeviceSynchronize());
  for (Pair& one : pair) destroy(one);
  std::printf("producer_consumer: ok, %d pairs, %d items, %d elements\n", pairs, items, n);
}
