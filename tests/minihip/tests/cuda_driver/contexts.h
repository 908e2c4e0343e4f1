/* Part of driver.c: devices, their contexts, and which memory each reaches. */
/* FAKE_CUDA_DEVICES is how many devices there are. As in the driver, the current context is the thread's, and a context that a
 * kernel of its made an illegal access in answers nothing else any more. */

enum { DEVICES = 4, NESTED = 16 };
static struct context {
  int generation, broken, reaches[DEVICES];
} contexts[DEVICES];
static __thread struct {
  struct context *context;
  int generation;
} nested[NESTED];
static __thread int depth;

static int device_count(void) {
  const char *text = getenv("FAKE_CUDA_DEVICES");
  int count = text ? atoi(text) : 1;
  return count < DEVICES ? count : DEVICES;
}
static int is_context(const void *context) {
  return (const struct context *)context >= contexts && (const struct context *)context < contexts + device_count();
}
/* The device whose context is current, or -1. What was current when its device was reset is so no longer. */
static int current_device(void) {
  if (!depth || !nested[depth - 1].context || nested[depth - 1].generation != nested[depth - 1].context->generation) return -1;
  return (int)(nested[depth - 1].context - contexts);
}
/* Whether calls for the current device can be made. */
static int usable(void) {
  int device = current_device();
  return device < 0 ? INVALID_CONTEXT : contexts[device].broken ? ILLEGAL_ADDRESS : OK;
}
static int no_device(int device) { return device >= 0 && device < device_count() ? OK : INVALID_DEVICE; }

int cuInit(unsigned flags) { return flags; }
int cuDeviceGetCount(int *count) { return *count = device_count(), OK; }
int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, no_device(ordinal); }
int cuDeviceGetName(char *name, int len, int device) { return snprintf(name, len, "no GPU %d", device), no_device(device); }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { return *bytes = 1 << 30, no_device(device); }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  *value = attribute == 75 ? 9 : attribute == 76 ? 0 : attribute == 1 ? 1024 : 1;
  return no_device(device);
}
int cuDeviceCanAccessPeer(int *can, int from, int to) { return *can = from != to, no_device(from) | no_device(to); }
int cuDeviceGetP2PAttribute(int *value, int attribute, int from, int to) {
  return *value = 1, attribute >= 1 && attribute <= 4 && from != to ? no_device(from) | no_device(to) : INVALID_VALUE;
}
int cuDevicePrimaryCtxRetain(struct context **out, int device) { return *out = &contexts[device], no_device(device); }
int cuDevicePrimaryCtxReset_v2(int device) {
  contexts[device] = (struct context){.generation = contexts[device].generation + 1};
  return no_device(device);
}
int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) { return (void)flags, no_device(device); }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { return *flags = 0, *active = 1, no_device(device); }
int cuCtxPushCurrent_v2(struct context *context) {
  if (!is_context(context) || depth == NESTED) return INVALID_CONTEXT;
  nested[depth].context = context, nested[depth++].generation = context->generation;
  return OK;
}
int cuCtxPopCurrent_v2(struct context **out) {
  if (!depth) return INVALID_CONTEXT;
  return *out = nested[--depth].context, OK;
}
int cuCtxSetCurrent(struct context *context) {
  if (!is_context(context)) return INVALID_CONTEXT;
  depth -= depth > 0;
  return cuCtxPushCurrent_v2(context);
}
int cuCtxGetStreamPriorityRange(int *least, int *greatest) { return *least = 0, *greatest = -5, OK; }
int cuCtxGetLimit(size_t *value, unsigned limit) { return *value = 1024, limit < 3 ? OK : INVALID_VALUE; }
int cuCtxEnablePeerAccess(struct context *peer, unsigned flags) {
  int device = current_device(), to = (int)(peer - contexts);
  if (flags || device < 0 || !is_context(peer)) return INVALID_CONTEXT;
  if (to == device) return INVALID_DEVICE;
  return contexts[device].reaches[to] ? 704 : (contexts[device].reaches[to] = 1, OK);
}
int cuCtxDisablePeerAccess(struct context *peer) {
  int device = current_device(), to = (int)(peer - contexts);
  if (device < 0 || !is_context(peer)) return INVALID_CONTEXT;
  return contexts[device].reaches[to] ? (contexts[device].reaches[to] = 0, OK) : 705;
}
int cuThreadExchangeStreamCaptureMode(int *mode) { return *mode = 0, OK; }

/* A kernel of the current device touches memory there. */
static void touch(const void *address) {
  int device = current_device();
  struct range *found = find(address);
  if (!found || found->kind != DEVICE || found->managed) return;
  if (found->access ? !(found->access >> device & 1) : found->device != device && !contexts[device].reaches[found->device])
    contexts[device].broken = 1;
}
