/* A scripted HIP runtime for the recorder's tests: operations queue up per stream and run when a test or a
 * synchronising call says so, so that every interleaving of results and queries can be produced on purpose. */
#include "fake_hip.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
/* A child made while another thread held the lock would wait for it for ever. */
static void before_fork(void) { pthread_mutex_lock(&lock); }
static void in_parent(void) { pthread_mutex_unlock(&lock); }
static void in_child(void) { lock = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP; }
__attribute__((constructor)) static void guard_forks(void) { pthread_atfork(before_fork, in_parent, in_child); }
static __thread hipError_t last_error;
static int sticky;
static struct { char name[64]; unsigned long count; } counters[128];

static void count(const char* name) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < 128; i++) {
        if (!counters[i].name[0]) strncpy(counters[i].name, name, 63);
        if (!strcmp(counters[i].name, name)) { counters[i].count++; break; }
    }
    pthread_mutex_unlock(&lock);
}
unsigned long fake_calls(const char* name) {
    for (int i = 0; i < 128; i++)
        if (!strcmp(counters[i].name, name)) return counters[i].count;
    return 0;
}
void fake_sticky_errors(int on) { sticky = on; }

static hipError_t done(hipError_t error) {
    if (!sticky || error) last_error = error;
    return error;
}
#define ENTER count(__func__)
#define RETURN(e) return done(e)

hipError_t hipGetLastError(void) { hipError_t e = last_error; last_error = 0; return e; }
hipError_t hipPeekAtLastError(void) { return last_error; }

struct op { void* dst; size_t dpitch; const void* src; size_t spitch, width, height; struct event* event; struct op* next; };
struct event { unsigned pending; };
struct stream { struct op *head, *tail; int capturing; unsigned long long id; struct graph* graph; struct stream* next; };
struct graph { struct op* ops; };
static struct stream null_stream;
static struct stream* streams;

static struct stream* of(hipStream_t s) { return s ? s : &null_stream; }
static void run(struct op* op) {
    for (size_t row = 0; row < op->height; row++)
        memmove((char*)op->dst + row * op->dpitch, (const char*)op->src + row * op->spitch, op->width);
    if (op->event) op->event->pending--;
}
static void push(struct stream* s, struct op op) {
    struct op* copy = malloc(sizeof op);
    *copy = op;
    copy->next = 0;
    pthread_mutex_lock(&lock);
    if (s->capturing) {
        struct op** end = &s->graph->ops;
        while (*end) end = &(*end)->next;
        *end = copy;
    } else {
        if (s->tail) s->tail->next = copy; else s->head = copy;
        s->tail = copy;
    }
    pthread_mutex_unlock(&lock);
}
void fake_advance(hipStream_t stream, unsigned n) {
    struct stream* s = of(stream);
    pthread_mutex_lock(&lock);
    while (n-- && s->head) {
        struct op* op = s->head;
        s->head = op->next;
        if (!s->head) s->tail = 0;
        run(op);
        free(op);
    }
    pthread_mutex_unlock(&lock);
}
static void drain_all(void) {
    pthread_mutex_lock(&lock);
    fake_advance(0, -1);
    for (struct stream* s = streams; s; s = s->next) fake_advance(s, -1);
    pthread_mutex_unlock(&lock);
}

hipError_t hipGetDevice(int* device) { ENTER; if (!device) RETURN(hipErrorInvalidValue); *device = 0; RETURN(0); }
hipError_t hipSetDevice(int device) { ENTER; RETURN(device ? 101 : 0); }
hipError_t hipMalloc(void** ptr, size_t size) { ENTER; if (size > (1ul << 40)) RETURN(2); *ptr = malloc(size); RETURN(0); }
hipError_t hipFree(void* ptr) { ENTER; drain_all(); free(ptr); RETURN(0); }
hipError_t hipHostMalloc(void** ptr, size_t size, unsigned flags) { ENTER; *ptr = malloc(size); RETURN(0); }
hipError_t hipHostFree(void* ptr) { ENTER; drain_all(); free(ptr); RETURN(0); }
hipError_t hipMemset(void* dst, int value, size_t size) { ENTER; memset(dst, value, size); RETURN(0); }
hipError_t hipMemcpyAsync(void* dst, const void* src, size_t size, int kind, hipStream_t stream) {
    ENTER;
    if (!dst || !src) RETURN(hipErrorInvalidValue);
    push(of(stream), (struct op){dst, size, src, size, size, 1, 0, 0});
    RETURN(0);
}
hipError_t hipMemcpy2DAsync(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width, size_t height,
                            int kind, hipStream_t stream) {
    ENTER;
    push(of(stream), (struct op){dst, dpitch, src, spitch, width, height, 0, 0});
    RETURN(0);
}
hipError_t hipMemcpy(void* dst, const void* src, size_t size, int kind) {
    ENTER;
    // More than any allocation here.
    if (!dst || !src || size > (1ul << 32)) RETURN(hipErrorInvalidValue);
    drain_all();
    memmove(dst, src, size);
    RETURN(0);
}
hipError_t hipStreamCreate(hipStream_t* stream) {
    ENTER;
    struct stream* s = calloc(1, sizeof *s);
    pthread_mutex_lock(&lock);
    s->next = streams;
    streams = s;
    pthread_mutex_unlock(&lock);
    *stream = s;
    RETURN(0);
}
hipError_t hipStreamDestroy(hipStream_t stream) { ENTER; fake_advance(stream, -1); RETURN(0); }
hipError_t hipStreamSynchronize(hipStream_t stream) { ENTER; fake_advance(stream, -1); RETURN(0); }
hipError_t hipDeviceSynchronize(void) { ENTER; drain_all(); RETURN(0); }
hipError_t hipStreamQuery(hipStream_t stream) { ENTER; RETURN(of(stream)->head ? hipErrorNotReady : 0); }
hipError_t hipEventCreate(hipEvent_t* event) { ENTER; *event = calloc(1, sizeof(struct event)); RETURN(0); }
hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned flags) {
    ENTER; *event = calloc(1, sizeof(struct event)); RETURN(0);
}
hipError_t hipEventDestroy(hipEvent_t event) { ENTER; RETURN(0); }
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream) {
    ENTER;
    struct event* e = event;
    e->pending++;
    push(of(stream), (struct op){.event = e});
    RETURN(0);
}
hipError_t hipEventQuery(hipEvent_t event) { ENTER; RETURN(((struct event*)event)->pending ? hipErrorNotReady : 0); }
hipError_t hipEventSynchronize(hipEvent_t event) {
    ENTER;
    for (struct stream* s = streams; s; s = s->next)
        while (((struct event*)event)->pending && s->head) fake_advance(s, 1);
    while (((struct event*)event)->pending && null_stream.head) fake_advance(0, 1);
    RETURN(0);
}
hipError_t hipLaunchKernel(const void* f, dim3 grid, dim3 block, void** args, size_t shared, hipStream_t stream) {
    ENTER; RETURN(0);
}
hipError_t hipModuleLoadData(hipModule_t* module, const void* image) { ENTER; *module = malloc(1); RETURN(0); }
hipError_t hipModuleGetFunction(hipFunction_t* function, hipModule_t module, const char* name) {
    ENTER; *function = malloc(1); RETURN(0);
}
hipError_t hipModuleLaunchKernel(hipFunction_t f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                 unsigned bz, unsigned shared, hipStream_t stream, void** params, void** extra) {
    ENTER; RETURN(0);
}
hipError_t hipStreamBeginCapture(hipStream_t stream, int mode) {
    ENTER;
    static unsigned long long ids;
    struct stream* s = of(stream);
    s->capturing = 1;
    s->id = ++ids;
    s->graph = calloc(1, sizeof(struct graph));
    RETURN(0);
}
hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t* graph) {
    ENTER; of(stream)->capturing = 0; *graph = of(stream)->graph; RETURN(0);
}
hipError_t hipStreamGetCaptureInfo(hipStream_t stream, int* status, unsigned long long* id) {
    ENTER; *status = of(stream)->capturing; if (id) *id = of(stream)->id; RETURN(0);
}
hipError_t hipGraphCreate(hipGraph_t* graph, unsigned flags) { ENTER; *graph = calloc(1, sizeof(struct graph)); RETURN(0); }
hipError_t hipGraphAddMemcpyNode1D(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* deps, size_t n,
                                   void* dst, const void* src, size_t size, int kind) {
    ENTER;
    struct op** end = &((struct graph*)graph)->ops;
    while (*end) end = &(*end)->next;
    *end = malloc(sizeof(struct op));
    **end = (struct op){dst, size, src, size, size, 1, 0, 0};
    *node = *end;
    RETURN(0);
}
hipError_t hipGraphInstantiate(hipGraphExec_t* exec, hipGraph_t graph, hipGraphNode_t* node, char* log, size_t size) {
    ENTER; *exec = malloc(sizeof(struct graph)); *(struct graph*)*exec = *(struct graph*)graph; RETURN(0);
}
hipError_t hipGraphLaunch(hipGraphExec_t exec, hipStream_t stream) {
    ENTER;
    for (struct op* op = ((struct graph*)exec)->ops; op; op = op->next) push(of(stream), *op);
    RETURN(0);
}
hipError_t hipGetProcAddress(const char* symbol, void** pfn, int version, uint64_t flags, void* status) {
    ENTER;
    if (!strcmp(symbol, "hipGetDevice")) *pfn = (void*)hipGetDevice;
    else RETURN(hipErrorInvalidValue);
    RETURN(0);
}
const char* hipGetErrorName(hipError_t error) { ENTER; return error ? "hipErrorSomething" : "hipSuccess"; }
hipError_t hipSetupArgument(const void* arg, size_t size, size_t offset) { ENTER; RETURN(0); }
void** __hipRegisterFatBinary(const void* data) { ENTER; return malloc(sizeof(void*)); }
void __hipRegisterFunction(void** modules, const void* host, char* device, const char* name, unsigned limit, void* tid,
                           void* bid, void* block, void* grid, int* wsize) { ENTER; }
void __hipUnregisterFatBinary(void** modules) { ENTER; free(modules); }
