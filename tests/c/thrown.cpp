// Exceptions around HIP calls, and out of what HIP calls back: argv[1] says what. Prints what came of it.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

extern "C" {
int hipMalloc(void**, size_t);
int hipFree(void*);
int hipMemcpy(void*, const void*, size_t, int);
int hipStreamCreate(void**);
int hipStreamSynchronize(void*);
int hipLaunchHostFunc(void*, void (*)(void*), void*);
}

static void fail(const char* what) { std::printf("not so: %s\n", what); std::exit(9); }
#define CHECK(condition) do { if (!(condition)) fail(#condition); } while (0)

struct Buffer {
  void* device = nullptr;
  explicit Buffer(size_t size) { CHECK(!hipMalloc(&device, size)); }
  ~Buffer() { CHECK(!hipFree(device)); }
};

// Thrown past calls that have returned, whose destructors make others.
static void unwinds(int depth) {
  Buffer buffer(256);
  std::string text(256, char('a' + depth % 26));
  CHECK(!hipMemcpy(buffer.device, text.data(), text.size(), 1));
  if (depth == 0) throw std::runtime_error("bottom");
  unwinds(depth - 1);
}
static void rounds() {
  for (int round = 0; round < 50; round++) {
    try { unwinds(10); CHECK(false); } catch (const std::runtime_error& error) { CHECK(!std::strcmp(error.what(), "bottom")); }
  }
}
static void caught(void* seen) {
  try { throw 7; } catch (int value) { *static_cast<int*>(seen) = value; }
}
static void throws(void*) { throw std::runtime_error("out of a callback"); }

int main(int, char** arguments) {
  std::setvbuf(stdout, nullptr, _IONBF, 0);
  const std::string what = arguments[1];
  void* stream = nullptr;
  CHECK(!hipStreamCreate(&stream));
  if (what == "around") {
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; i++) threads.emplace_back(rounds);
    for (auto& thread : threads) thread.join();
    int seen = 0;
    CHECK(!hipLaunchHostFunc(stream, caught, &seen) && !hipStreamSynchronize(stream));
    std::printf("seen %d\n", seen);
  }
  if (what == "out_of_a_callback") {
    CHECK(!hipLaunchHostFunc(stream, throws, nullptr));
    hipStreamSynchronize(stream);
  }
  std::printf("%s ends\n", what.c_str());
}
