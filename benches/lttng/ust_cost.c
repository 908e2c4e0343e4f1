/* Calls with an LTTng-UST tracepoint at entry and one at return, in a tight loop on each thread: what `call_cost` does, recorded
 * by somebody else. Without a session that enables them the tracepoints are branches.
 * usage: ust_cost get_device|event_record|launch CALLS THREADS */
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "hrr_bench_tp.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST_THREADS 64

/* What stands for the runtime. */
__attribute__((noinline)) static int call(void *out) {
  __asm__ volatile("" : : "r"(out) : "memory");
  return 0;
}

static const char *kind;
static long calls;
static int threads;
static atomic_int ready;
static double each_ns[MOST_THREADS];

static double now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return 1e9 * (double)time.tv_sec + (double)time.tv_nsec;
}

static void loop(long count) {
  int out = 0;
  const int launches = strcmp(kind, "launch") == 0;
  const uint32_t api = launches ? 3 : strcmp(kind, "event_record") == 0 ? 2 : 1;
  uint64_t words[8] = {1, 1, 1, 1, 1, 1, 0, 0x1000};
  uint8_t arguments[48] = {1, 2, 3, 4};
  for (long i = 0; i < count; i++) {
    if (launches) lttng_ust_tracepoint(hrr_bench, launch, api, words, arguments);
    else lttng_ust_tracepoint(hrr_bench, enter, api, (uint64_t)&out, 0x1000);
    const int code = call(&out);
    lttng_ust_tracepoint(hrr_bench, leave, code, (uint64_t)out);
  }
}

static void *run(void *argument) {
  const long index = (long)argument;
  loop(calls / 10 + 1);
  atomic_fetch_add(&ready, 1);
  while (atomic_load(&ready) != threads) sched_yield();
  const double begin = now_ns();
  loop(calls);
  each_ns[index] = now_ns() - begin;
  return NULL;
}

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  kind = argv[1];
  calls = atol(argv[2]);
  threads = atoi(argv[3]);
  if (calls < 1 || threads < 1 || threads > MOST_THREADS) return 2;
  pthread_t started[MOST_THREADS];
  for (long i = 0; i < threads; i++)
    if (pthread_create(&started[i], NULL, run, (void *)i) != 0) return 1;
  double sum_ns = 0;
  for (int i = 0; i < threads; i++) {
    pthread_join(started[i], NULL);
    sum_ns += each_ns[i];
  }
  printf("ust_cost: %s threads=%d calls=%ld ns_per_call=%.2f\n", kind, threads, calls, sum_ns / ((double)calls * threads));
  return 0;
}
