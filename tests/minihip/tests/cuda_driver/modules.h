/* Part of driver.c: modules, the kernels that tests launch, and how they sample. */
/* ---- modules: PTX as text, of which the names of kernels and variables are understood, and bytes that variables start as ---- */

struct named {
  char name[4200];
  void *memory;
  size_t bytes;
  struct module *module;
  int is_loaded;
  struct named *next;
};
struct module {
  struct named *variables, *functions;
  int device;
};
static const char *name_of(const struct named *function) { return function->name; }
/* What loads code waits for all work of its device first. */
static int load_code(void) {
  if (waits()) return fprintf(stderr, "fake driver: code is loaded while a stream waits, which would wait for it\n"), LAUNCH_TIMEOUT;
  return usable();
}
static struct named *look(struct named *list, const char *name) {
  for (; list; list = list->next)
    if (!strcmp(list->name, name)) return list;
  return 0;
}
static struct named *declare(struct module *module, struct named **list, const char *at) {
  struct named *made = calloc(1, sizeof *made);
  sscanf(at, "%4199[A-Za-z0-9_$]", made->name);
  made->module = module, made->next = *list;
  return *list = made;
}
/* `.global .align 4 .b8 NAME[16] = {1, 2};` or `.global .u64 NAME;` */
static void declare_variable(struct module *module, const char *at) {
  size_t element = 1, count = 1;
  while (*at == ' ' || *at == '.') {
    at += *at == ' ';
    if (*at != '.') break;
    element = strstr(at, "64") && strstr(at, "64") < at + 5 ? 8 : strstr(at, "32") && strstr(at, "32") < at + 5 ? 4 : 1;
    int is_aligned = !strncmp(at, ".align", 6);
    at += strcspn(at, " ");
    if (is_aligned) at += 1 + strcspn(at + 1, " ");
  }
  struct named *made = declare(module, &module->variables, at);
  at += strlen(made->name);
  if (*at == '[') count = strtoul(at + 1, 0, 10);
  made->bytes = element * count;
  allocate(&made->memory, made->bytes, DEVICE, 0);
  memset(made->memory, 0, made->bytes);
  const char *end = strchr(at, ';'), *open = strpbrk(at, "={;");
  if (*open == '=' && open[2] == '{') open += 2;
  for (size_t i = 0; open && open < end && i < count; i++) {
    unsigned long value = strtoul(open + 1, 0, 10);
    memcpy((char *)made->memory + i * element, &value, element);
    open = strpbrk(open + 1, ",}");
    if (!open || *open == '}') break;
  }
}
int cuModuleLoadDataEx(struct module **out, const char *image, unsigned count, void *options, void *values) {
  (void)options, (void)values;
  if (count || !strstr(image, ".version")) return INVALID_VALUE;
  int code = load_code();
  if (code) return code;
  struct module *module = *out = calloc(1, sizeof **out);
  module->device = current_device();
  for (const char *at = image; (at = strstr(at, ".entry "));) declare(module, &module->functions, at += 7);
  for (const char *at = image; (at = strstr(at, ".global "));) declare_variable(module, at += 8);
  return OK;
}
int cuModuleUnload(struct module *module) { return module ? OK : INVALID_HANDLE; }
int cuModuleGetGlobal_v2(void **at, size_t *bytes, struct module *module, const char *name) {
  struct named *found = look(module->variables, name);
  return found ? (*at = found->memory, *bytes = found->bytes, OK) : NOT_FOUND;
}
int cuModuleGetFunction(struct named **out, struct module *module, const char *name) {
  struct named *found = *out = look(module->functions, name);
  if (!found) return NOT_FOUND;
  /* Kernels are loaded when they are first asked for. */
  int code = found->is_loaded ? OK : load_code();
  return found->is_loaded = found->is_loaded || !code, code;
}
int cuModuleGetFunctionCount(unsigned *count, struct module *module) {
  *count = 0;
  for (struct named *n = module->functions; n; n = n->next) ++*count;
  return OK;
}
int cuModuleEnumerateFunctions(struct named **out, unsigned count, struct module *module) {
  for (struct named *n = module->functions; n && count; n = n->next, count--) *out++ = n;
  return OK;
}
int cuFuncGetName(const char **out, struct named *function) { return *out = function->name, OK; }
int cuFuncGetAttribute(int *value, int attribute, void *function) { return (void)attribute, (void)function, *value = 0, OK; }
int cuFuncSetAttribute(void *function, int attribute, int value) { return (void)attribute, (void)function, (void)value, OK; }

/* Linking: one text behind the other. */
struct link {
  char *text;
  size_t bytes;
};
int cuLinkCreate_v2(unsigned count, void *options, void *values, struct link **out) {
  (void)options, (void)values;
  return *out = calloc(1, sizeof **out), (int)count;
}
int cuLinkAddData_v2(struct link *link, int kind, const char *data, size_t bytes, const char *name, unsigned count, void *o,
                     void *v) {
  (void)name, (void)o, (void)v;
  if (kind != 1 || count || data[bytes - 1] || !strstr(data, ".version")) return INVALID_VALUE;
  link->text = realloc(link->text, link->bytes + bytes);
  memcpy(link->text + link->bytes, data, bytes);
  link->bytes += bytes - 1;
  return OK;
}
int cuLinkComplete(struct link *link, char **out, size_t *bytes) { return *out = link->text, *bytes = link->bytes + 1, OK; }
int cuLinkDestroy(struct link *link) { return free(link->text), free(link), OK; }

struct launch_config {
  unsigned sizes[6], shared;
  void *stream;
  struct {
    int id, pad;
    unsigned value[16];
  } *attributes;
  unsigned count;
};
_Static_assert(sizeof(struct launch_config) == 56, "CUlaunchConfig");
int cuOccupancyMaxPotentialClusterSize(int *size, void *function, const struct launch_config *c) {
  return *size = 8, function && c->sizes[3] ? OK : INVALID_VALUE;
}
int cuOccupancyMaxActiveClusters(int *count, void *function, const struct launch_config *c) {
  if (!function || c->count != 1 || c->attributes->id != 4) return INVALID_VALUE;
  return *count = 132 / (int)c->attributes->value[0], OK;
}

static unsigned word(void **params, int i) { return *(uint32_t *)params[i]; }
static float number(void **params, int i) { return *(float *)params[i]; }
static uint64_t wide(void **params, int i) { return *(uint64_t *)params[i]; }

/* ---- sampling: as the CPU's kernels do it, with what the device leaves out ---- */

static void set_level(struct hip_cpu_texture *of, unsigned at, struct array *a) {
  size_t pitch = a->is.width * a->element;
  of->level[at] = (struct hip_cpu_texture_level){
      a->data, pitch, pitch * or_one(a->is.height), a->is.width, or_one(a->is.height), or_one(a->is.depth)};
  of->level_count = at + 1;
}
static struct hip_cpu_texture image_of(const struct object *object) {
  const struct resource *r = &object->resource;
  const struct texture *t = &object->texture;
  struct hip_cpu_texture of = {0};
  int format = (int)(uint32_t)r->words[1];
  of.channels = (unsigned)(r->words[1] >> 32);
  struct array *first = r->type == 0 ? (struct array *)r->words[0] : r->type == 1 ? ((struct mipmap *)r->words[0])->level[0] : 0;
  if (first) format = first->is.format, of.channels = first->is.channels;
  of.channel_bytes = (unsigned)channel_bytes(format);
  of.channel_kind = format >= 0x10 ? HIP_CPU_FLOAT : format < 8 ? HIP_CPU_UNSIGNED : HIP_CPU_SIGNED;
  size_t element = (size_t)of.channels * of.channel_bytes;
  if (r->type == 0) set_level(&of, 0, first);
  if (r->type == 1) {
    struct mipmap *mipmap = (struct mipmap *)r->words[0];
    unsigned from = object->has_view ? object->view.levels[0] : 0,
             to = object->has_view ? object->view.levels[1] : mipmap->levels - 1;
    for (unsigned i = from; i <= to; i++) set_level(&of, i - from, mipmap->level[i]);
  }
  if (r->type == 2)
    of.level_count = 1, of.level[0] = (struct hip_cpu_texture_level){(char *)r->words[0], 0, 0, r->words[2] / element, 1, 1};
  if (r->type == 3)
    of.level_count = 1,
    of.level[0] = (struct hip_cpu_texture_level){(char *)r->words[0], r->words[4], 0, r->words[2], r->words[3], 1};
  of.normalized_coordinates = (t->flags & 2) != 0;
  of.normalized_float = !(t->flags & 1);
  for (int i = 0; i < 3; i++) {
    /* Elements are neither wrapped nor mirrored by their number. */
    int is_by_number = !of.normalized_coordinates && (t->address_mode[i] == HIP_CPU_WRAP || t->address_mode[i] == HIP_CPU_MIRROR);
    of.address_mode[i] = is_by_number ? HIP_CPU_CLAMP : t->address_mode[i];
  }
  of.filter_mode = t->filter_mode, of.mipmap_filter = t->mipmap_filter;
  memcpy(of.border, t->border, sizeof of.border);
  /* The largest level is one even where it is 0. */
  of.level_bias = t->bias, of.level_min = t->min, of.level_max = t->max > 0 ? t->max : 1e-6f;
  return of;
}
#pragma pack(push, 1)
struct sampler {
  char tag;
  uint64_t texture;
  float y;
};
#pragma pack(pop)
/* Whether a kernel of the images was meant, and is done. */
static int sampled(const struct named *f, void **params) {
  const char *name = f->name;
  if (!strcmp(name, "scale_surface")) {
    struct hip_cpu_texture surface = image_of(&fake_surfaces[wide(params, 0) % 64]);
    for (unsigned i = 0; i < word(params, 2) * word(params, 3); i++) {
      uint32_t *place = hip_surface_place(&surface, i % word(params, 2), i / word(params, 2), 0);
      if (place) *place = *place * word(params, 1) + i;
    }
    return 1;
  }
  if (strncmp(name, "sample", 6)) return 0;
  if (!strcmp(name, "sample_table")) {
    const struct stored {
      uint64_t number, texture;
    } *stored = (const struct stored *)wide(params, 0) + word(params, 1);
    struct hip_cpu_texture of = image_of(&fake_textures[stored->texture % 64]);
    for (unsigned i = 0; i < word(params, 4); i++)
      ((float *)wide(params, 2))[i] =
          hip_texture_lod(&of, (float)i, number(params, 3), 0.5f, 0).channel[0] + (float)stored->number;
    return 1;
  }
  int is_reference = !strcmp(name, "sample_reference"), is_struct = !strcmp(name, "sample_struct");
  const struct sampler *sampler = params[0];
  uint64_t handle = is_reference ? *(uint64_t *)look(f->module->variables, "reference")->memory
                    : is_struct  ? sampler->texture
                                 : wide(params, 0);
  float *out = (float *)wide(params, is_reference ? 0 : 1);
  struct hip_cpu_texture of = image_of(&fake_textures[handle % 64]);
  if (!strcmp(name, "sample_linear")) {
    for (unsigned i = 0; i < word(params, 3); i++) {
      struct hip_texel t = hip_texture_fetch(&of, 0, word(params, 2) + i, 0, 0);
      out[i] = t.channel[0] + 3 * t.channel[1] + 5 * t.channel[2] + 7 * t.channel[3];
    }
    return 1;
  }
  int first = is_reference ? 1 : 2;
  float x0 = number(params, first), dx = number(params, first + 1), y0 = is_struct ? sampler->y : number(params, first + 2);
  float dy = is_struct || is_reference ? 0 : number(params, 5), level = is_struct ? 0 : number(params, is_reference ? 4 : 6);
  unsigned n = word(params, is_struct ? 4 : is_reference ? 6 : 7);
  for (unsigned i = 0; i < n; i++)
    out[i] = hip_texture_lod(&of, x0 + (float)i * dx, y0 + (float)i * dy, 0.5f, level).channel[0] +
             (float)(is_struct ? sampler->tag : 0);
  return 1;
}
/* The kernels that tests launch; others do nothing. */
static void run(const struct named *function, void **params) {
  const char *name = function->name;
  if (sampled(function, params)) return;
  if (!strcmp(name, "count_managed")) {
    uint32_t *counters = *(uint32_t **)look(function->module->variables, "counters")->memory;
    for (unsigned i = 0; i < word(params, 1); i++) counters[i] = counters[i] * word(params, 0) + i;
    return;
  }
  uint32_t *data = *(uint32_t **)params[0];
  if (!strcmp(name, "transform"))
    for (unsigned i = 0; i < word(params, 2); i++)
      data[i] += word(params, 1) + *(uint32_t *)look(function->module->variables, "operand")->memory;
  if (!strcmp(name, "mix"))
    for (unsigned i = 0; i < word(params, 3); i++) data[i] = data[i] * word(params, 1) + word(params, 2);
  if (!strcmp(name, "mix_from"))
    for (unsigned i = 0; i < word(params, 3); i++) data[i] = data[i] * word(params, 2) + ((uint32_t *)wide(params, 1))[i];
  if (!strcmp(name, "iota"))
    for (unsigned i = 0; i < word(params, 2); i++) data[i] = word(params, 1) + i;
  if (!strcmp(name, "fill"))
    for (unsigned i = 0; i < word(params, 2); i++) data[i] = word(params, 1);
  if (!strcmp(name, "use_counter")) {
    uint32_t *counter = look(function->module->variables, "launch_counter")->memory;
    uint32_t *table = look(function->module->variables, "step_table")->memory;
    for (unsigned i = 0; i < word(params, 2); i++) data[i] = *counter * 1000000u + table[i % 4];
    *counter += word(params, 1);
  }
}
/* Sizes of the arguments of kernels that may have to wait for their stream; those of 8 bytes are addresses. */
static const struct {
  const char *name, *sizes;
} known_kernels[] = {{"mix", "8444"},         {"mix_from", "8844"},        {"iota", "844"}, {"fill", "844"},
                     {"use_counter", "844"}, {"minihip_wait_32", "8vv4"}, {"minihip_wait_64", "8vv4"}};
int cuLaunchKernel(struct named *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void *stream, void **params, void **extra) {
  (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)extra;
  int code = of_stream(stream);
  if (code) return code;
  if (f->module->device != current_device()) return INVALID_HANDLE;
  const char *sizes = "";
  for (size_t i = 0; i < sizeof known_kernels / sizeof *known_kernels; i++)
    if (!strcmp(known_kernels[i].name, f->name)) sizes = known_kernels[i].sizes;
  struct operation is = {.kind = LAUNCH, .function = f};
  for (int i = 0; sizes[i]; i++) {
    memcpy(&is.arguments[i], params[i], sizes[i] == '4' ? 4 : 8);
    is.params[i] = &is.arguments[i];
    if (sizes[i] == '8') touch((void *)is.arguments[i]);
  }
  if (contexts[current_device()].broken) return OK;
  if (*sizes) return submit(stream, is), OK;
  if (cannot_wait(stream, f->name)) return INVALID_VALUE;
  return run(f, params), OK;
}
