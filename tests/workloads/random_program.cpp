// Programs given as text: threads that use streams, events, allocations and graphs in any way that the text says.
// usage: random_program FILE
//
// A file has programs one after another, each a line `program THREADS`, then a line per call, then `end`. A call is
// `THREAD CALL NUMBERS... @T.I...`: the thread that makes it, what it is, its operands, and the calls that must have
// returned before it is made, each as a thread and the position among its calls. Nothing else orders the threads.
//
// The text must not race: each buffer's uses are ordered on the device. Then what every buffer should hold is known, and
// every copy to the host is checked.
#include <atomic>
#include <cstring>
#include <deque>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>

#include "workload.hpp"

namespace {

constexpr int kWords = 96;
constexpr size_t kBytes = kWords * sizeof(uint32_t);
constexpr int kObjects = 16, kCells = 1024;
// Streams by number: these two are always there.
constexpr int kLegacy = 0, kPerThread = 1;

struct Call {
  std::string name;
  std::vector<uint32_t> operands;
  std::vector<std::pair<int, int>> after;
};

struct Program {
  std::vector<std::vector<Call>> threads;
};

struct Buffer {
  uint32_t* data = nullptr;
  Words expected;
};

struct Graph {
  hipGraph_t graph = nullptr;
  hipGraphExec_t exec = nullptr;
  int buffer = 0;
  uint32_t factor = 0;
  // Where the graph copies the buffer to, if it does.
  uint32_t* host = nullptr;
};

// A copy to the host that has not been waited for, with what it should bring.
struct Copied {
  uint32_t* got = nullptr;
  bool pinned = false;
  Words expected;
};

unsigned blocks() { return blocks_for(kWords); }

class Machine {
 public:
  explicit Machine(const Program& program) : program_(program), done_(program.threads.size()) {
    for (auto& done : done_) done = 0;
  }

  // Before any thread.
  void prepare() {
    CHECK(hipMalloc(&cells_, kCells * sizeof(uint32_t)));
    CHECK(hipMemset(cells_, 0, kCells * sizeof(uint32_t)));
    CHECK(hipDeviceSynchronize());
  }

  // The calls of thread t.
  void run(int t) {
    const std::vector<Call>& calls = program_.threads[t];
    for (size_t i = 0; i < calls.size(); i++) {
      for (auto [thread, position] : calls[i].after)
        while (done_[thread].load(std::memory_order_acquire) <= position) std::this_thread::yield();
      make(calls[i]);
      done_[t].store(int(i) + 1, std::memory_order_release);
    }
  }

  // After all threads: everything that is left is looked at and given back.
  void finish() {
    CHECK(hipDeviceSynchronize());
    for (Copied& copied : copies_)
      if (copied.got) look(copied, "left over");
    for (Graph& graph : graphs_)
      if (graph.exec) destroy_graph(graph);
    for (Buffer& buffer : buffers_) {
      if (!buffer.data) continue;
      if (!buffer.expected.empty()) {
        Words got(kWords);
        CHECK(hipMemcpy(got.data(), buffer.data, kBytes, hipMemcpyDeviceToHost));
        REQUIRE_EQUAL(got, buffer.expected, "at the end");
      }
      CHECK(hipFree(buffer.data));
    }
    CHECK(hipFree(cells_));
  }

 private:
  hipStream_t stream(uint32_t s) const {
    return s == kLegacy ? nullptr : s == kPerThread ? hipStreamPerThread : streams_[s];
  }

  void copy_out(uint32_t b, uint32_t s, Copied& copied, bool pinned) {
    copied.pinned = pinned;
    copied.expected = buffers_[b].expected;
    if (pinned) {
      CHECK(hipHostMalloc(reinterpret_cast<void**>(&copied.got), kBytes, 0));
    } else {
      copied.got = static_cast<uint32_t*>(std::malloc(kBytes));
    }
    CHECK(hipMemcpyAsync(copied.got, buffers_[b].data, kBytes, hipMemcpyDeviceToHost, stream(s)));
  }

  static void look(Copied& copied, const char* what) {
    require_equal(copied.got, copied.expected.data(), kWords, what, __LINE__, __FILE__);
    if (copied.pinned) {
      CHECK(hipHostFree(copied.got));
    } else {
      std::free(copied.got);
    }
    copied.got = nullptr;
  }

  void make(const Call& call) {
    const std::vector<uint32_t>& o = call.operands;
    auto is = [&](const char* name) { return call.name == name; };
    auto buffer = [&](int k) -> Buffer& { return buffers_[o[k]]; };
    if (is("stream_create")) {
      CHECK(hipStreamCreateWithFlags(&streams_[o[0]], o[1] ? hipStreamNonBlocking : hipStreamDefault));
    } else if (is("stream_destroy")) {
      CHECK(hipStreamDestroy(streams_[o[0]]));
    } else if (is("stream_sync")) {
      CHECK(hipStreamSynchronize(stream(o[0])));
    } else if (is("stream_poll")) {
      hipError_t answer;
      while ((answer = hipStreamQuery(stream(o[0]))) == hipErrorNotReady) std::this_thread::yield();
      CHECK(answer);
    } else if (is("event_create")) {
      CHECK(hipEventCreateWithFlags(&events_[o[0]], hipEventDisableTiming));
    } else if (is("event_destroy")) {
      CHECK(hipEventDestroy(events_[o[0]]));
    } else if (is("event_record")) {
      CHECK(hipEventRecord(events_[o[0]], stream(o[1])));
    } else if (is("event_wait")) {
      CHECK(hipStreamWaitEvent(stream(o[1]), events_[o[0]], 0));
    } else if (is("event_sync")) {
      CHECK(hipEventSynchronize(events_[o[0]]));
    } else if (is("event_poll")) {
      hipError_t answer;
      while ((answer = hipEventQuery(events_[o[0]])) == hipErrorNotReady) std::this_thread::yield();
      CHECK(answer);
    } else if (is("device_sync")) {
      CHECK(hipDeviceSynchronize());
    } else if (is("malloc")) {
      CHECK(hipMalloc(&buffer(0).data, kBytes));
    } else if (is("free")) {
      CHECK(hipFree(buffer(0).data));
      buffer(0) = Buffer();
    } else if (is("malloc_async")) {
      CHECK(hipMallocAsync(reinterpret_cast<void**>(&buffer(0).data), kBytes, stream(o[1])));
    } else if (is("pool_create")) {
      hipMemPoolProps props = {};
      props.allocType = hipMemAllocationTypePinned;
      props.location.type = hipMemLocationTypeDevice;
      CHECK(hipMemPoolCreate(&pools_[o[0]], &props));
    } else if (is("pool_destroy")) {
      CHECK(hipMemPoolDestroy(pools_[o[0]]));
    } else if (is("pool_malloc")) {
      CHECK(hipMallocFromPoolAsync(reinterpret_cast<void**>(&buffer(0).data), kBytes, pools_[o[1]], stream(o[2])));
    } else if (is("free_async")) {
      CHECK(hipFreeAsync(buffer(0).data, stream(o[1])));
      buffer(0) = Buffer();
    } else if (is("iota")) {
      buffer(0).expected.resize(kWords);
      LAUNCH(iota, blocks(), kThreads, 0, stream(o[1]), buffer(0).data, o[2], kWords);
      host_iota(buffer(0).expected, o[2]);
    } else if (is("memset")) {
      CHECK(hipMemsetD32Async(buffer(0).data, int(o[2]), kWords, stream(o[1])));
      buffer(0).expected.assign(kWords, o[2]);
    } else if (is("upload")) {
      Words words(kWords);
      host_iota(words, o[2]);
      // Pageable: taken by the time the call returns.
      CHECK(hipMemcpyAsync(buffer(0).data, words.data(), kBytes, hipMemcpyHostToDevice, stream(o[1])));
      buffer(0).expected = words;
    } else if (is("upload_now")) {
      Words words(kWords);
      host_iota(words, o[1]);
      CHECK(hipMemcpy(buffer(0).data, words.data(), kBytes, hipMemcpyHostToDevice));
      buffer(0).expected = words;
    } else if (is("mix")) {
      LAUNCH(mix, blocks(), kThreads, 0, stream(o[1]), buffer(0).data, o[2] | 1, o[2] + 7, kWords);
      host_mix(buffer(0).expected, o[2] | 1, o[2] + 7);
    } else if (is("busy")) {
      LAUNCH(busy, blocks(), kThreads, 0, stream(o[1]), buffer(0).data, o[2], kWords);
      host_busy(buffer(0).expected, o[2]);
    } else if (is("mix_from")) {
      LAUNCH(mix_from, blocks(), kThreads, 0, stream(o[2]), buffer(0).data, buffer(1).data, o[3] | 1, kWords);
      host_mix_from(buffer(0).expected, buffer(1).expected, o[3] | 1);
    } else if (is("copy")) {
      CHECK(hipMemcpyAsync(buffer(0).data, buffer(1).data, kBytes, hipMemcpyDeviceToDevice, stream(o[2])));
      buffer(0).expected = buffer(1).expected;
    } else if (is("download")) {
      Copied copied;
      copy_out(o[0], o[1], copied, o[2] != 0);
      CHECK(hipStreamSynchronize(stream(o[1])));
      look(copied, "download");
    } else if (is("download_now")) {
      Words got(kWords);
      CHECK(hipMemcpy(got.data(), buffer(0).data, kBytes, hipMemcpyDeviceToHost));
      REQUIRE_EQUAL(got, buffer(0).expected, "download_now");
    } else if (is("download_later")) {
      copy_out(o[0], o[1], copies_[o[2]], true);
    } else if (is("look")) {
      CHECK(hipStreamSynchronize(stream(o[1])));
      look(copies_[o[0]], "look");
    } else if (is("value_wait")) {
      CHECK(hipStreamWaitValue32(stream(o[1]), cells_ + o[0], o[2], hipStreamWaitValueGte, 0xffffffffu));
    } else if (is("value_write")) {
      CHECK(hipStreamWriteValue32(stream(o[1]), cells_ + o[0], o[2], 0));
    } else if (is("graph_make")) {
      make_graph(o);
    } else if (is("graph_launch")) {
      Graph& graph = graphs_[o[0]];
      CHECK(hipGraphLaunch(graph.exec, stream(o[1])));
      host_mix(buffers_[graph.buffer].expected, graph.factor | 1, graph.factor + 7);
    } else if (is("graph_look")) {
      Graph& graph = graphs_[o[0]];
      CHECK(hipStreamSynchronize(stream(o[1])));
      if (graph.host)
        require_equal(graph.host, buffers_[graph.buffer].expected.data(), kWords, "graph", __LINE__, __FILE__);
    } else if (is("graph_destroy")) {
      destroy_graph(graphs_[o[0]]);
    } else {
      fail(__FILE__, __LINE__, "no such call: %s", call.name.c_str());
    }
  }

  // Operands: graph, stream to capture on, buffer, factor, whether it copies to the host, mode.
  void make_graph(const std::vector<uint32_t>& o) {
    Graph& graph = graphs_[o[0]];
    hipStream_t s = stream(o[1]);
    graph.buffer = int(o[2]);
    graph.factor = o[3];
    if (o[4]) CHECK(hipHostMalloc(reinterpret_cast<void**>(&graph.host), kBytes, 0));
    uint32_t* data = buffers_[o[2]].data;
    CHECK(hipStreamBeginCapture(s, o[5] ? hipStreamCaptureModeRelaxed : hipStreamCaptureModeThreadLocal));
    LAUNCH(mix, blocks(), kThreads, 0, s, data, o[3] | 1, o[3] + 7, kWords);
    if (graph.host) CHECK(hipMemcpyAsync(graph.host, data, kBytes, hipMemcpyDeviceToHost, s));
    CHECK(hipStreamEndCapture(s, &graph.graph));
    CHECK(hipGraphInstantiate(&graph.exec, graph.graph, nullptr, nullptr, 0));
  }

  void destroy_graph(Graph& graph) {
    CHECK(hipGraphExecDestroy(graph.exec));
    CHECK(hipGraphDestroy(graph.graph));
    if (graph.host) CHECK(hipHostFree(graph.host));
    graph = Graph();
  }

  const Program& program_;
  std::deque<std::atomic<int>> done_;
  hipStream_t streams_[kObjects] = {};
  hipEvent_t events_[kObjects] = {};
  hipMemPool_t pools_[kObjects] = {};
  Buffer buffers_[kObjects];
  Graph graphs_[kObjects];
  Copied copies_[kObjects];
  uint32_t* cells_ = nullptr;
};

std::vector<Program> read_programs(const char* path) {
  std::ifstream file(path);
  REQUIRE(file, "cannot read %s", path);
  std::vector<Program> programs;
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string first;
    words >> first;
    if (first == "program") {
      size_t threads = 0;
      words >> threads;
      REQUIRE(threads > 0 && threads <= 64, "%zu threads", threads);
      programs.emplace_back();
      programs.back().threads.resize(threads);
    } else if (!first.empty() && first != "end") {
      REQUIRE(!programs.empty(), "a call before the first program: %s", line.c_str());
      size_t thread = std::stoul(first);
      REQUIRE(thread < programs.back().threads.size(), "no thread %zu", thread);
      Call call;
      words >> call.name;
      for (std::string word; words >> word;) {
        if (word[0] == '@') {
          size_t dot = word.find('.');
          REQUIRE(dot != std::string::npos, "%s is not @THREAD.CALL", word.c_str());
          call.after.emplace_back(std::stoi(word.substr(1, dot - 1)), std::stoi(word.substr(dot + 1)));
        } else {
          call.operands.push_back(uint32_t(std::stoul(word)));
        }
      }
      programs.back().threads[thread].push_back(call);
    }
  }
  return programs;
}

}  // namespace

int main(int argc, char** argv) {
  REQUIRE(argc == 2, "usage: random_program FILE");
  std::vector<Program> programs = read_programs(argv[1]);
  REQUIRE(!programs.empty(), "%s has no program", argv[1]);
  size_t calls = 0, threads = 0;
  for (const Program& program : programs) {
    threads = std::max(threads, program.threads.size());
    for (const auto& thread : program.threads) calls += thread.size();
  }
  // The same threads for all programs: a recording has as many as its widest program, and one.
  std::unique_ptr<Machine> machine;
  std::atomic<size_t> begun{0}, over{0};
  std::vector<std::thread> pool;
  for (size_t t = 0; t < threads; t++)
    pool.emplace_back([&, t] {
      for (size_t p = 0; p < programs.size(); p++) {
        while (begun.load(std::memory_order_acquire) <= p) std::this_thread::yield();
        if (t < programs[p].threads.size()) machine->run(int(t));
        over.fetch_add(1, std::memory_order_acq_rel);
      }
    });
  for (size_t p = 0; p < programs.size(); p++) {
    machine = std::make_unique<Machine>(programs[p]);
    machine->prepare();
    begun.store(p + 1, std::memory_order_release);
    while (over.load(std::memory_order_acquire) < (p + 1) * threads) std::this_thread::yield();
    machine->finish();
  }
  for (std::thread& thread : pool) thread.join();
  std::printf("random_program: ok, %zu programs, %zu calls\n", programs.size(), calls);
  return 0;
}
