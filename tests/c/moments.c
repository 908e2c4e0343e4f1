/* Calls HIP at every moment of a process and from every kind of thread. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "hip.h"

void plugin_mark(size_t size);
__attribute__((constructor)) static void begins(void) { MARK(2002); }
__attribute__((destructor)) static void ends(void) { MARK(2008); }
static void at_exit(void) { MARK(2007); }
static void handler(int signal) { (void)signal; MARK(2004); }
static void first_in_handler(int signal) { (void)signal; int device; hipGetDevice(&device); }
static void* short_thread(void* p) { MARK((size_t)p); return 0; }
static void* small_thread(void* p) { (void)p; int device; if (hipGetDevice(&device)) abort(); return p; }
static void* signalled(void* p) {
  stack_t stack = {.ss_sp = malloc(16384), .ss_size = 16384};
  sigaltstack(&stack, 0);
  struct sigaction action = {.sa_handler = first_in_handler, .sa_flags = SA_ONSTACK};
  sigaction(SIGUSR2, &action, 0);
  pthread_kill(pthread_self(), SIGUSR2);
  return p;
}

int main(void) {
  pthread_t thread;
  MARK(2003);
  signal(SIGUSR1, handler);
  raise(SIGUSR1);
  for (int i = 0; i < 300; i++) {
    pthread_create(&thread, 0, short_thread, (void*)2005);
    pthread_join(thread, 0);
  }
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  if (pthread_attr_setstacksize(&attributes, 16384)) abort();
  if (pthread_create(&thread, &attributes, small_thread, 0)) abort();
  pthread_join(thread, 0);
  pthread_create(&thread, 0, signalled, 0);
  pthread_join(thread, 0);
  plugin_mark(2006);
  atexit(at_exit);
  return 0;
}
