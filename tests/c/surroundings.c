/* Changes what surrounds it (argv[1] says what) between two calls, and goes on. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "hip.h"

static void* later(void* p) { MARK(3002); return p; }

int main(int argc, char** argv) {
  const char* what = argv[1];
  pthread_t thread;
  if (!strcmp(what, "stderr_closed_first")) {
    close(2);
    if (open(argv[2], O_WRONLY | O_CREAT | O_TRUNC, 0600) != 2) return 3;
  }
  MARK(3001);
  if (!strcmp(what, "chdir") && chdir("/")) return 4;
  if (!strcmp(what, "stderr_closed")) close(2);
  if (!strcmp(what, "every_descriptor_closed")) for (int fd = 2; fd < 1024; fd++) close(fd);
  if (!strcmp(what, "rights_dropped") && (setgid(65534) || setuid(65534))) return 5;
  if (!strcmp(what, "umask")) umask(0777);
  pthread_create(&thread, 0, later, 0);
  pthread_join(thread, 0);
  for (int i = 0; i < 5000; i++) { int device; hipGetDevice(&device); }
  MARK(3003);
  if (!strcmp(what, "killed")) abort();
  return 0;
}
