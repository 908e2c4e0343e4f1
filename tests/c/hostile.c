/* Does something rude around HIP calls: argv[1] says what. argv[2] is a folder that it may remove. Prints what came of it. */
#define _GNU_SOURCE
#include <time.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#include "hip.h"

extern char** environ;
hipError_t hipPeekAtLastError(void);

static const char* self;
static const char* folder;
static volatile int stop;
static pthread_t threads[8];

static void check(int holds, const char* what) {
  if (holds) return;
  printf("not so: %s\n", what);
  exit(9);
}
#define CHECK(condition) check(condition, #condition)

static void ask(void) {
  int device;
  CHECK(hipGetDevice(&device) == 0);
  CHECK(hipPeekAtLastError() == 0);
}

/* An upload, a copy on the device and a result: something that is recorded, and checked at replay. */
static void work(unsigned seed, size_t size) {
  unsigned char *from = malloc(size), *to = malloc(size);
  void *first = 0, *second = 0;
  for (size_t i = 0; i < size; i++) from[i] = (unsigned char)(i * 7 + seed);
  CHECK(!hipMalloc(&first, size) && !hipMalloc(&second, size));
  CHECK(!hipMemcpy(first, from, size, hipMemcpyHostToDevice));
  CHECK(!hipMemcpy(second, first, size, 3));
  CHECK(!hipMemcpy(to, second, size, hipMemcpyDeviceToHost));
  CHECK(!memcmp(from, to, size));
  CHECK(!hipFree(first) && !hipFree(second));
  free(from);
  free(to);
}

static void* small_work(void* seed) { work((unsigned)(uintptr_t)seed, 300); return 0; }
static void* works(void* seed) { while (!stop) work((unsigned)(uintptr_t)seed, 256); return 0; }
static void* asks(void* p) { while (!stop) ask(); return p; }
static void begin(int count, void* (*body)(void*)) {
  for (int i = 0; i < count; i++) CHECK(!pthread_create(&threads[i], 0, body, (void*)(uintptr_t)i));
}
static void end(int count) {
  stop = 1;
  for (int i = 0; i < count; i++) pthread_join(threads[i], 0);
  stop = 0;
}

/* Children, made while other threads are in calls. */
static void ended(pid_t pid, const char* what) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
  printf("%s: %d, signal %d\n", what, WIFEXITED(status) ? WEXITSTATUS(status) : -1, WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}
static void children(void) {
  char* arguments[] = {(char*)self, "leaf", 0};
  /* A child of a process whose runtime is just being set up by another thread waits for that for ever, recorded or not. */
  ask();
  begin(2, asks);
  for (int i = 0; i < 4; i++) {
    pid_t pid = fork();
    if (!pid) { ask(); _exit(5); }
    ended(pid, "fork and _exit");
    pid = fork();
    if (!pid) { if (i % 2) ask(); exit(6); }
    ended(pid, "fork and exit");
    pid = fork();
    if (!pid) { ask(); execv(self, arguments); _exit(99); }
    ended(pid, "fork and exec");
    pid = vfork();
    if (!pid) { execv(self, arguments); _exit(99); }
    ended(pid, "vfork and exec");
    CHECK(!posix_spawn(&pid, self, 0, 0, arguments, environ));
    ended(pid, "spawn");
  }
  end(2);
  work(1, 4096);
}

/* Calls from a handler that interrupts calls, a thousand times a second. */
static volatile unsigned ticks;
static void on_tick(int signal) { int before = errno; ask(); ticks++; errno = before; }
static void every_ms(int which, int signal, void (*handler)(int)) {
  struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
  struct itimerval time = {{0, 1000}, {0, 1000}};
  sigaction(signal, &action, 0);
  setitimer(which, &time, 0);
}
static void ticking(void) {
  every_ms(ITIMER_PROF, SIGPROF, on_tick);
  begin(2, works);
  while (ticks < 150) work(3, 512);
  end(2);
  setitimer(ITIMER_PROF, &(struct itimerval){{0, 0}, {0, 0}}, 0);
}

/* Leaves calls by a jump, from a handler; in each thread the first one too. */
static __thread sigjmp_buf back;
static void on_alarm(int signal) { siglongjmp(back, 1); }
static void* jumps(void* p) {
  sigset_t alarm;
  sigemptyset(&alarm);
  sigaddset(&alarm, SIGALRM);
  if (!sigsetjmp(back, 0)) {
    struct itimerval time = {{0, 0}, {0, 20 + 37 * (int)(intptr_t)p}};
    pthread_sigmask(SIG_UNBLOCK, &alarm, 0);
    setitimer(ITIMER_REAL, &time, 0);
    for (;;) ask();
  }
  return 0;
}
static void jumping(void) {
  struct sigaction action = {.sa_handler = on_alarm};
  sigset_t alarm;
  sigemptyset(&alarm);
  sigaddset(&alarm, SIGALRM);
  pthread_sigmask(SIG_BLOCK, &alarm, 0);
  sigaction(SIGALRM, &action, 0);
  work(4, 4096);
  for (int i = 0; i < 40; i++) {
    pthread_t thread;
    pthread_create(&thread, 0, jumps, (void*)(intptr_t)i);
    pthread_join(thread, 0);
  }
  work(4, 4096);
}

/* Threads that are cancelled in a call, or before their first one, and threads that leave. */
static void* cancelled(void* gate) {
  pthread_mutex_lock(gate);
  pthread_mutex_unlock(gate);
  for (;;) { ask(); pthread_testcancel(); }
  return 0;
}
static void* leaves(void* with) { ask(); pthread_exit(with); }
static void cancelling(void) {
  work(6, 4096);
  for (int i = 0; i < 100; i++) {
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_t thread;
    void* with = 0;
    pthread_mutex_lock(&gate);
    pthread_create(&thread, 0, cancelled, &gate);
    if (i % 2) pthread_cancel(thread);
    pthread_mutex_unlock(&gate);
    if (!(i % 2)) { usleep(200); pthread_cancel(thread); }
    pthread_join(thread, &with);
    CHECK(with == PTHREAD_CANCELED);
    pthread_create(&thread, 0, leaves, (void*)5);
    pthread_join(thread, &with);
    CHECK(with == (void*)5);
  }
}

/* Stacks that are not the thread's own, or small. */
enum { FIBERS = 8, STACK = 65536 };
static ucontext_t main_context, fiber[FIBERS];
static char stacks[FIBERS][STACK] __attribute__((aligned(4096)));
static int running;
static void fiber_body(void) {
  for (int i = 0; i < 50; i++) {
    ask();
    work((unsigned)i, 128);
    swapcontext(&fiber[running], &main_context);
  }
}
static void fibers(void) {
  for (int i = 0; i < FIBERS; i++) {
    getcontext(&fiber[i]);
    fiber[i].uc_stack.ss_sp = stacks[i];
    fiber[i].uc_stack.ss_size = STACK;
    fiber[i].uc_link = &main_context;
    makecontext(&fiber[i], fiber_body, 0);
  }
  for (int round = 0; round < 50; round++)
    for (running = 0; running < FIBERS; running++) swapcontext(&main_context, &fiber[running]);
}
/* Children that are made while the process's first call, in another thread, has not returned. A runtime that was getting ready in
 * that thread never will be in the child, which then sleeps; one that spins waits for the recorder. */
static void on_waited(int signal) { _exit(clock() > CLOCKS_PER_SEC / 3 ? 6 : 5); }
static void forking_first(void) {
  for (int i = 0; i < 30; i++) {
    pid_t outer = fork();
    if (!outer) {
      begin(1, small_work);
      usleep(100 * i);
      pid_t inner = fork();
      if (!inner) {
        int device;
        signal(SIGALRM, on_waited);
        alarm(1);
        hipGetDevice(&device);
        _exit(5);
      }
      int status = 0;
      waitpid(inner, &status, 0);
      end(1);
      _exit(WEXITSTATUS(status));
    }
    ended(outer, "first call");
  }
  work(1, 4096);
}
static void* small_ask(void* p) { ask(); return p; }
static void crowd(void) {
  enum { AT_ONCE = 200 };
  static pthread_t many[AT_ONCE];
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, STACK);
  for (int round = 0; round < 5; round++) {
    for (int i = 0; i < AT_ONCE; i++)
      CHECK(!pthread_create(&many[i], &attributes, i % 20 ? small_ask : small_work, (void*)(uintptr_t)i));
    for (int i = 0; i < AT_ONCE; i++) pthread_join(many[i], 0);
  }
}

/* Limits that are reached. */
static void on_too_large(int signal) {}
static void limited(int what, rlim_t value) {
  struct rlimit limit;
  work(5, 4096);
  signal(SIGXFSZ, on_too_large);
  getrlimit(what, &limit);
  limit.rlim_cur = value;
  CHECK(!setrlimit(what, &limit));
  for (unsigned i = 0; i < 200; i++) work(i, 3000 + i * 64);
  begin(3, small_work);
  end(3);
  for (int i = 0; i < 50000; i++) ask();
}

/* No memory at all: what the heap still had is taken, too. Calls that take no memory go on. */
static void little_memory(void) {
  struct rlimit limit;
  unsigned long pages = 0;
  work(5, 4096);
  FILE* sizes = fopen("/proc/self/statm", "r");
  CHECK(sizes && fscanf(sizes, "%lu", &pages) == 1);
  fclose(sizes);
  getrlimit(RLIMIT_AS, &limit);
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = pages * 4096 + 65536;
  CHECK(!setrlimit(RLIMIT_AS, &limit));
  void** taken = 0;
  for (size_t size = 1 << 16; size >= 16; size /= 2)
    for (void** next; (next = malloc(size)); taken = next) *next = taken;
  for (int i = 0; i < 400000; i++) ask();
  limit.rlim_cur = before;
  CHECK(!setrlimit(RLIMIT_AS, &limit));
  for (void* next; taken; taken = next) next = *taken, free(taken);
  work(6, 4096);
}

/* No signal is raised that the program does not raise itself: nothing here expects one. Files may be no longer than the first that a
 * recorder makes, or than later ones. */
static void at_most(rlim_t file_bytes) {
  struct rlimit limit;
  getrlimit(RLIMIT_FSIZE, &limit);
  limit.rlim_cur = file_bytes;
  CHECK(!setrlimit(RLIMIT_FSIZE, &limit));
}
static void tiny_files(void) {
  at_most(16384);
  work(5, 4096);
  begin(3, small_work);
  end(3);
}
static void files_shrink(void) {
  work(5, 4096);
  at_most(300000);
  for (unsigned i = 0; i < 100; i++) work(i, 3000 + i * 64);
  begin(3, small_work);
  end(3);
  for (int i = 0; i < 50000; i++) ask();
  at_most(1);
}

/* Another root, by either call; the process's own name for the archive leads nowhere then. */
static void in_jail(void) {
  work(21, 5000);
  begin(2, small_work);
  end(2);
  for (int i = 0; i < 5000; i++) ask();
}
static const char* jail(void) {
  static char path[4096];
  work(20, 4096);
  snprintf(path, sizeof path, "%s.jail", folder);
  CHECK(!mkdir(path, 0700));
  return path;
}
static void other_root(void) {
  if (chroot(jail())) { printf("not allowed\n"); return; }
  CHECK(!chdir("/"));
  in_jail();
}
static void pivoted(void) {
  const char* root = jail();
  if (unshare(CLONE_NEWNS)) { printf("not allowed\n"); return; }
  CHECK(!mount("none", "/", 0, MS_REC | MS_PRIVATE, 0) && !mount(root, root, 0, MS_BIND, 0) && !chdir(root));
  CHECK(!syscall(SYS_pivot_root, ".", ".") && !umount2(".", MNT_DETACH) && !chdir("/"));
  in_jail();
}

/* Rights are given up: what is open goes on being written. */
static int gave_up_rights(void) {
  work(22, 4096);
  if (geteuid() != 0 || setgid(65534) || setuid(65534)) { printf("not allowed\n"); return 0; }
  for (unsigned i = 0; i < 50; i++) work(i, 4096);
  for (int i = 0; i < 50000; i++) ask();
  return 1;
}
static void rights(void) { gave_up_rights(); }
static void rights_and_threads(void) {
  if (gave_up_rights()) { begin(2, small_work); end(2); }
}
static void undumpable(void) {
  work(23, 4096);
  CHECK(!prctl(PR_SET_DUMPABLE, 0));
  work(24, 8192);
  begin(2, small_work);
  end(2);
}

/* Files can be opened no more, by a filter that answers for the kernel. */
static void no_files(void) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_open, 3, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_creat, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
  };
  struct sock_fprog filter = {sizeof code / sizeof *code, code};
  CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
  /* For every thread: one that was there before could still open files otherwise. */
  CHECK(!syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter));
  CHECK(open("/dev/null", O_RDONLY) < 0 && errno == EPERM);
}
static void filtered(void) {
  work(25, 4096);
  no_files();
  for (unsigned i = 0; i < 50; i++) work(i, 4096);
  begin(3, small_work);
  end(3);
  for (int i = 0; i < 50000; i++) ask();
}
static void filtered_first(void) {
  no_files();
  ask();
  begin(3, small_work);
  end(3);
}

/* The lowest free number is the program's, and so is every one below a limit that it sets itself. */
static void numbers(void) {
  int first = dup(0);
  printf("%d", first);
  work(26, 4096);
  begin(4, small_work);
  end(4);
  for (int i = 0; i < 4; i++) printf(" %d", dup(0));
  printf("\n");
}

/* A first call, and later ones, from a handler with a stack of its own that is small. */
static void on_small_stack(int signal) { ask(); }
static void* raises(void* p) {
  static __thread char stack[20480];
  stack_t alternative = {.ss_sp = stack, .ss_size = sizeof stack};
  CHECK(!sigaltstack(&alternative, 0));
  for (int i = 0; i < 100; i++) CHECK(!pthread_kill(pthread_self(), SIGUSR1));
  return p;
}
static void other_stack(void) {
  struct sigaction action = {.sa_handler = on_small_stack, .sa_flags = SA_ONSTACK};
  sigaction(SIGUSR1, &action, 0);
  ask();
  begin(4, raises);
  end(4);
  work(27, 4096);
}
static void little_stack(void) {
  struct rlimit limit;
  getrlimit(RLIMIT_STACK, &limit);
  limit.rlim_cur = 131072;
  CHECK(!setrlimit(RLIMIT_STACK, &limit));
  work(28, 4096);
  pid_t pid;
  char* arguments[] = {(char*)self, "leaf", 0};
  CHECK(!posix_spawn(&pid, self, 0, 0, arguments, environ));
  ended(pid, "spawn");
}
static void all_closed(void) {
  work(29, 4096);
  CHECK(!syscall(SYS_close_range, 3u, ~0u, 0u));
  begin(3, small_work);
  end(3);
  for (unsigned i = 0; i < 50; i++) work(i, 4096);
}

static void environment(void) {
  work(9, 4096);
  clearenv();
  begin(2, small_work);
  end(2);
  work(10, 4096);
}
static void descriptors(void) {
  enum { FILES = 64 };
  FILE* files[FILES];
  work(11, 4096);
  for (int number = 3; number < 1024; number++) close(number);
  for (int i = 0; i < FILES; i++) CHECK((files[i] = tmpfile()) != 0);
  begin(3, works);
  for (unsigned i = 0; i < 200; i++) work(i, 4096 + i * 32);
  end(3);
  for (int i = 0; i < FILES; i++) CHECK(lseek(fileno(files[i]), 0, SEEK_END) == 0);
}
static void removed(void) {
  char command[4096];
  work(12, 4096);
  snprintf(command, sizeof command, "rm -rf '%s'", folder);
  unsetenv("LD_PRELOAD");
  CHECK(!system(command));
  begin(3, works);
  for (unsigned i = 0; i < 200; i++) work(i, 4096);
  end(3);
}
static char* page;
static volatile unsigned faults;
static void on_fault(int signal, siginfo_t* info, void* context) {
  if (info->si_addr != page) _exit(66);
  faults++;
  ask();
  mprotect(page, 4096, PROT_READ | PROT_WRITE);
}
static void own_faults(void) {
  struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
  sigaction(SIGSEGV, &action, 0);
  sigaction(SIGBUS, &action, 0);
  page = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (unsigned i = 0; i < 20; i++) {
    mprotect(page, 4096, PROT_NONE);
    *(volatile char*)page = 1;
    work(i, 1000);
  }
  CHECK(faults == 20);
}
static void loaded_again(void) {
  for (int i = 0; i < 5; i++) {
    void* runtime = dlopen("libamdhip64.so.7", RTLD_NOW | RTLD_LOCAL);
    hipError_t (*allocate)(void**, size_t) = dlsym(runtime, "hipMalloc");
    hipError_t (*give_back)(void*) = dlsym(runtime, "hipFree");
    void* memory;
    CHECK(!allocate(&memory, 100 + (size_t)i) && !give_back(memory));
    dlclose(runtime);
  }
}
static void* goes_on(void* p) {
  /* What the runtime answers while the process ends is its own affair. */
  for (;;) { int device; hipGetDevice(&device); hipPeekAtLastError(); }
  return p;
}
static void last_call(void) { int device; hipGetDevice(&device); }
static void leaves_busy(void) {
  atexit(last_call);
  begin(4, goes_on);
  work(15, 4096);
}
static void last_work(void) { work(31, 4096); }
static void leaves_quickly(void) {
  CHECK(!at_quick_exit(last_work));
  begin(2, goes_on);
  for (unsigned i = 0; i < 50; i++) work(i, 4096 + i * 64);
  quick_exit(0);
}
static void* leaves_last(void* p) {
  usleep(30000);
  end(2);
  work(16, 4096);
  exit(0);
}
static void main_leaves(void) {
  pthread_t last;
  begin(2, works);
  pthread_create(&last, 0, leaves_last, 0);
  pthread_exit(0);
}

int main(int count, char** arguments) {
  const char* what = arguments[1];
  self = arguments[0];
  folder = count > 2 ? arguments[2] : 0;
  setvbuf(stdout, 0, _IONBF, 0);
  if (!strcmp(what, "leaf")) { work(0, 64); return 11; }
  if (!strcmp(what, "children")) children();
  if (!strcmp(what, "forking_first")) forking_first();
  if (!strcmp(what, "ticking")) ticking();
  if (!strcmp(what, "jumping")) jumping();
  if (!strcmp(what, "cancelling")) cancelling();
  if (!strcmp(what, "fibers")) fibers();
  if (!strcmp(what, "crowd")) crowd();
  if (!strcmp(what, "few_files")) limited(RLIMIT_NOFILE, 4);
  if (!strcmp(what, "small_files")) limited(RLIMIT_FSIZE, 20000);
  if (!strcmp(what, "tiny_files")) tiny_files();
  if (!strcmp(what, "files_shrink")) files_shrink();
  if (!strcmp(what, "other_root")) other_root();
  if (!strcmp(what, "pivoted")) pivoted();
  if (!strcmp(what, "rights")) rights();
  if (!strcmp(what, "rights_and_threads")) rights_and_threads();
  if (!strcmp(what, "undumpable")) undumpable();
  if (!strcmp(what, "filtered")) filtered();
  if (!strcmp(what, "filtered_first")) filtered_first();
  if (!strcmp(what, "numbers")) numbers();
  if (!strcmp(what, "other_stack")) other_stack();
  if (!strcmp(what, "little_stack")) little_stack();
  if (!strcmp(what, "all_closed")) all_closed();
  if (!strcmp(what, "little_memory")) little_memory();
  if (!strcmp(what, "environment")) environment();
  if (!strcmp(what, "descriptors")) descriptors();
  if (!strcmp(what, "removed")) removed();
  if (!strcmp(what, "own_faults")) own_faults();
  if (!strcmp(what, "loaded_again")) loaded_again();
  if (!strcmp(what, "leaves_busy")) leaves_busy();
  if (!strcmp(what, "leaves_quickly")) leaves_quickly();
  if (!strcmp(what, "main_leaves")) main_leaves();
  printf("%s ends\n", what);
  return 0;
}
