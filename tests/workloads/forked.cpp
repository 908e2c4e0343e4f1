// A program that forks before it has used HIP: its children use the code that it registered, and so does the program.
// usage: forked [children]
#include <sys/wait.h>
#include <unistd.h>

#include "sweep.hpp"

namespace {

constexpr int kCount = 500;

// A kernel, and a device variable that the program registered.
int work(uint32_t seed) {
  const Words words = pattern(kCount, seed), steps = pattern(4, seed + 1);
  Words expected = words;
  {
    DeviceWords data(kCount);
    upload(data, words);
    LAUNCH(mix, blocks_for(kCount), kThreads, 0, nullptr, data, 2 * seed + 1, seed, kCount);
    host_mix(expected, 2 * seed + 1, seed);
    EXPECT_WORDS(data, expected);
    CHECK(hipMemcpyToSymbol(HIP_SYMBOL(step_table), steps.data(), 16, 0, hipMemcpyHostToDevice));
    Words got(4);
    CHECK(hipMemcpyFromSymbol(got.data(), HIP_SYMBOL(step_table), 16, 0, hipMemcpyDeviceToHost));
    REQUIRE_EQUAL(got, steps, "variable");
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const int children = argument(argc, argv, 1, 2);
  std::vector<pid_t> started;
  for (int i = 0; i < children; i++) {
    const pid_t child = fork();
    if (child == 0) return work(10 * i + 3);
    started.push_back(child);
  }
  for (pid_t child : started) {
    int status = 1;
    REQUIRE(waitpid(child, &status, 0) == child && status == 0, "a child failed");
  }
  work(1);
  std::printf("forked: ok, %d children\n", children);
}
