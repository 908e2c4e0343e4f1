/* Part of driver.c: streams, events and values in memory. */
/* Everything is done when the call returns, but for streams that wait for a value: launches and copies behind that wait too. */

struct operation {
  int kind; /* of CUstreamBatchMemOpType, LAUNCH, or COPY of arguments[1] bytes from arguments[0] */
  char *address;
  uint64_t value;
  unsigned flags;
  struct named *function;
  uint64_t arguments[8];
  void *params[8];
  struct operation *next;
};
enum { LAUNCH = 100, COPY = 101, WAIT_32 = 1, WRITE_32 = 2, FLUSH = 3, WAIT_64 = 4, WRITE_64 = 5, BARRIER = 6 };
static struct stream {
  uint64_t magic;
  int device;
  struct operation *first;
  struct stream *next;
} *streams;
enum { STREAM_MAGIC = 0x57eea };

/* The stream of a handle that is none of the default streams'. */
static struct stream *own(void *handle) { return (uintptr_t)handle > 2 ? handle : 0; }
static int is_stream(struct stream *stream) {
  for (struct stream *s = streams; s; s = s->next)
    if (s == stream) return 1;
  return 0;
}
static int of_stream(void *handle) {
  if (!own(handle)) return usable();
  if (!is_stream(own(handle)) || own(handle)->device != current_device()) return INVALID_HANDLE;
  return usable();
}
static int cannot_wait(void *stream, const char *what) {
  return own(stream) && own(stream)->first && fprintf(stderr, "fake driver: %s cannot wait\n", what);
}
/* Whether any stream of the current device waits: what waits for all work of a device would then never return. */
static int waits(void) {
  for (struct stream *s = streams; s; s = s->next)
    if (s->first && s->device == current_device()) return 1;
  return 0;
}
static int holds(uint64_t memory, uint64_t value, unsigned condition, int bits) {
  uint64_t all = bits == 64 ? ~0ull : 0xffffffff, difference = (memory - value) & all;
  switch (condition) {
    case 0: return !(difference >> (bits - 1));
    case 1: return !difference;
    case 2: return (memory & value & all) != 0;
    default: return ((memory | value) & all) != all;
  }
}
static uint64_t load(const char *address, int bits) {
  return bits == 64 ? __atomic_load_n((const uint64_t *)address, __ATOMIC_ACQUIRE)
                    : __atomic_load_n((const uint32_t *)address, __ATOMIC_ACQUIRE);
}
static void run(const struct named *function, void **params);
static const char *name_of(const struct named *function);

/* Does an operation; whether it is done. */
static int done(struct operation *o) {
  switch (o->kind) {
    case WAIT_32: return holds(load(o->address, 32), o->value, o->flags, 32);
    case WAIT_64: return holds(load(o->address, 64), o->value, o->flags, 64);
    case WRITE_32: return __atomic_store_n((uint32_t *)o->address, (uint32_t)o->value, __ATOMIC_RELEASE), 1;
    case WRITE_64: return __atomic_store_n((uint64_t *)o->address, o->value, __ATOMIC_RELEASE), 1;
    case LAUNCH:
      if (!strncmp(name_of(o->function), "minihip_wait_", 13)) {
        int bits = strstr(name_of(o->function), "64") ? 64 : 32;
        return holds(load((char *)o->arguments[0], bits) & o->arguments[2], o->arguments[1], (unsigned)o->arguments[3], bits);
      }
      run(o->function, o->params);
      return 1;
    case COPY: return memmove(o->address, (const void *)o->arguments[0], o->arguments[1]), 1;
    default: return 1;
  }
}
static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;

/* Goes on with every stream that no longer has to wait. */
static void settle(void) {
  for (int moved = 1; moved;) {
    moved = 0;
    for (struct stream *s = streams; s; s = s->next)
      while (s->first && done(s->first)) {
        struct operation *o = s->first;
        s->first = o->next, moved = 1;
        free(o);
      }
  }
}
static void submit(void *handle, struct operation is) {
  struct operation *made = malloc(sizeof *made);
  *made = is, made->next = 0;
  /* Arguments are the operation's own. */
  for (int i = 0; i < 8; i++)
    if (is.params[i]) made->params[i] = &made->arguments[i];
  static struct stream default_stream;
  pthread_mutex_lock(&streams_lock);
  struct stream *stream = own(handle) ? own(handle) : &default_stream;
  struct operation **last = &stream->first;
  while (*last) last = &(*last)->next;
  *last = made;
  while (stream == &default_stream && stream->first && done(stream->first)) stream->first = stream->first->next;
  settle();
  pthread_mutex_unlock(&streams_lock);
}

/* Whether the stream waits, and the copy with it. */
static int copied_later(void *stream, void *to, const void *from, size_t bytes) {
  if (!own(stream) || !own(stream)->first) return 0;
  submit(stream, (struct operation){.kind = COPY, .address = to, .arguments = {(uint64_t)(uintptr_t)from, bytes}});
  return 1;
}

int cuStreamCreateWithPriority(struct stream **out, unsigned flags, int priority) {
  (void)priority;
  if (flags > 1 || current_device() < 0) return INVALID_VALUE;
  struct stream *stream = calloc(1, sizeof *stream);
  *stream = (struct stream){STREAM_MAGIC, current_device(), 0, 0};
  pthread_mutex_lock(&streams_lock);
  stream->next = streams, streams = stream;
  pthread_mutex_unlock(&streams_lock);
  return *out = stream, OK;
}
int cuStreamDestroy_v2(struct stream *stream) {
  int code = INVALID_HANDLE;
  pthread_mutex_lock(&streams_lock);
  for (struct stream **s = &streams; *s; s = &(*s)->next)
    if (*s == stream) {
      code = OK, *s = stream->next;
      break;
    }
  pthread_mutex_unlock(&streams_lock);
  return code;
}
int cuStreamQuery(void *stream) {
  pthread_mutex_lock(&streams_lock);
  settle();
  int code = own(stream) && own(stream)->first ? NOT_READY : OK;
  pthread_mutex_unlock(&streams_lock);
  return code;
}
/* A wait that nothing ends ends with an error here, so that tests do not hang. */
int cuStreamSynchronize(void *stream) {
  int code = of_stream(stream);
  for (int looks = 0; !code && cuStreamQuery(stream) == NOT_READY; looks++) {
    if (looks == 5000) return fprintf(stderr, "fake driver: a stream waits for a value that nobody writes\n"), LAUNCH_TIMEOUT;
    usleep(1000);
  }
  return code ? code : of_stream(stream);
}
int cuCtxSynchronize(void) {
  int code = usable();
  for (struct stream *s = streams; s && !code; s = s->next)
    if (s->device == current_device()) code = cuStreamSynchronize(s);
  return code ? code : usable();
}
int cuStreamWaitEvent(void *stream, void *event, unsigned flags) { return (void)stream, (void)flags, event ? OK : INVALID_HANDLE; }
int cuEventCreate(void **out, unsigned flags) { return *out = malloc(64), (void)flags, OK; }
int cuEventDestroy_v2(void *event) { return event ? OK : INVALID_HANDLE; }
int cuEventRecord(void *event, void *stream) { return (void)stream, event ? OK : INVALID_HANDLE; }
int cuEventSynchronize(void *event) { return event ? OK : INVALID_HANDLE; }

struct batched {
  int operation;
  char *address;
  uint64_t value;
  unsigned flags;
  uint64_t rest[2];
};
_Static_assert(sizeof(struct batched) == 48, "CUstreamBatchMemOpParams");
static int value_operation(void *stream, struct batched is) {
  size_t width = is.operation < FLUSH ? 4 : 8;
  if (of_stream(stream)) return of_stream(stream);
  if (is.operation != FLUSH && is.operation != BARRIER && (!find(is.address) || (uintptr_t)is.address % width))
    return INVALID_VALUE;
  submit(stream, (struct operation){.kind = is.operation, .address = is.address, .value = is.value, .flags = is.flags});
  return OK;
}
int cuStreamBatchMemOp_v2(void *stream, unsigned count, const struct batched *list, unsigned flags) {
  int code = count && count <= 256 && !flags ? OK : INVALID_VALUE;
  for (unsigned i = 0; i < count && !code; i++) code = value_operation(stream, list[i]);
  return code;
}
int cuStreamWaitValue32_v2(void *stream, char *address, uint32_t value, unsigned flags) {
  return value_operation(stream, (struct batched){WAIT_32, address, value, flags, {0}});
}
int cuStreamWaitValue64_v2(void *stream, char *address, uint64_t value, unsigned flags) {
  return value_operation(stream, (struct batched){WAIT_64, address, value, flags, {0}});
}
int cuStreamWriteValue32_v2(void *stream, char *address, uint32_t value, unsigned flags) {
  return value_operation(stream, (struct batched){WRITE_32, address, value, flags, {0}});
}
int cuStreamWriteValue64_v2(void *stream, char *address, uint64_t value, unsigned flags) {
  return value_operation(stream, (struct batched){WRITE_64, address, value, flags, {0}});
}
