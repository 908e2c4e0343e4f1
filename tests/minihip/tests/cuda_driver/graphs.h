/* Part of driver.c: graphs. */
/* ---- graphs: nodes run in the order they were added ---- */

struct kernel {
  struct named *function;
  unsigned sizes[6], shared;
  void **params, **extra;
  void *kernel, *context;
};
struct memset {
  char *dst;
  size_t pitch;
  unsigned value, element;
  size_t width, height;
};
struct node {
  int type, is_off;
  struct node *original, *next;
  struct copy copy;
  struct kernel kernel;
  struct memset memset;
  void *arguments[8];
  uint64_t attributes[16][8];
};
struct graph {
  struct node *first, **last;
};
_Static_assert(sizeof(struct kernel) == 72 && sizeof(struct memset) == 40, "cuda.h");

static struct node *add(struct graph *graph, struct node is) {
  struct node *node = malloc(sizeof *node);
  *node = is, node->next = 0;
  *graph->last = node, graph->last = &node->next;
  return node;
}
static struct graph *new_graph(void) {
  struct graph *graph = calloc(1, sizeof *graph);
  return graph->last = &graph->first, graph;
}
static struct graph *copy_graph(struct graph *from) {
  struct graph *graph = new_graph();
  for (struct node *n = from->first; n; n = n->next) add(graph, *n)->original = n;
  return graph;
}
/* The driver copies a kernel's arguments; 8 bytes of each are enough here. */
static void keep_arguments(struct node *node) {
  static const int counts[] = {4, 3, 3};
  static const char *names[] = {"mix", "iota", "fill"};
  int count = 0;
  for (int i = 0; i < 3; i++)
    if (!strcmp(node->kernel.function->name, names[i])) count = counts[i];
  for (int i = 0; i < count; i++) {
    uint64_t *value = malloc(8);
    *value = 0;
    memcpy(value, node->kernel.params[i], i == 0 ? 8 : 4);
    node->arguments[i] = value;
  }
}
int cuGraphCreate(struct graph **out, unsigned flags) { return *out = new_graph(), (int)flags; }
int cuGraphDestroy(struct graph *graph) { return graph->last = 0, OK; }
int cuGraphClone(struct graph **out, struct graph *graph) { return *out = copy_graph(graph), OK; }
int cuGraphNodeFindInClone(struct node **out, struct node *original, struct graph *clone) {
  for (struct node *n = clone->first; n; n = n->next)
    if (n->original == original) return *out = n, OK;
  return INVALID_VALUE;
}
int cuGraphGetNodes(struct graph *graph, struct node **out, size_t *count) {
  size_t room = out ? *count : 0;
  *count = 0;
  for (struct node *n = graph->first; n; n = n->next, ++*count)
    if (*count < room) out[*count] = n;
  return OK;
}
int cuGraphNodeGetType(struct node *node, int *type) { return *type = node->type, OK; }
int cuGraphAddMemcpyNode(struct node **out, struct graph *g, void *deps, size_t count, const struct copy *c, void *in) {
  (void)deps, (void)count;
  return is_context(in) ? (*out = add(g, (struct node){.type = 1, .copy = *c}), OK) : INVALID_CONTEXT;
}
int cuGraphAddKernelNode_v2(struct node **out, struct graph *g, void *deps, size_t count, const struct kernel *k) {
  (void)deps, (void)count;
  *out = add(g, (struct node){.type = 0, .kernel = *k});
  return keep_arguments(*out), OK;
}
int cuGraphAddMemsetNode(struct node **out, struct graph *g, void *deps, size_t count, const struct memset *m, void *in) {
  (void)deps, (void)count, (void)in;
  return *out = add(g, (struct node){.type = 2, .memset = *m}), OK;
}
int cuGraphMemcpyNodeGetParams(struct node *node, struct copy *out) { return *out = node->copy, OK; }
int cuGraphMemcpyNodeSetParams(struct node *node, const struct copy *c) { return node->copy = *c, OK; }
int cuGraphKernelNodeSetParams_v2(struct node *node, const struct kernel *k) { return node->kernel = *k, keep_arguments(node), OK; }
int cuGraphKernelNodeSetAttribute(struct node *node, int id, const uint64_t *value) {
  return memcpy(node->attributes[id], value, 64), OK;
}
int cuGraphKernelNodeGetAttribute(struct node *node, int id, uint64_t *value) {
  return memcpy(value, node->attributes[id], 64), OK;
}
int cuGraphInstantiateWithFlags(struct graph **out, struct graph *graph, unsigned long long flags) {
  return *out = copy_graph(graph), (int)flags;
}
int cuGraphExecDestroy(struct graph *exec) { return exec->last = 0, OK; }
static int is_one_row(const struct copy *c) { return c->height == 1 && c->depth == 1; }
int cuGraphExecMemcpyNodeSetParams(struct graph *exec, struct node *node, const struct copy *c, void *in) {
  struct node *found;
  if (cuGraphNodeFindInClone(&found, node, exec) || !is_context(in) || !is_one_row(&found->copy) || !is_one_row(c))
    return INVALID_VALUE;
  return found->copy = *c, OK;
}
int cuGraphExecKernelNodeSetParams_v2(struct graph *exec, struct node *node, const struct kernel *k) {
  struct node *found;
  return cuGraphNodeFindInClone(&found, node, exec) ? INVALID_VALUE : cuGraphKernelNodeSetParams_v2(found, k);
}
int cuGraphNodeSetEnabled(struct graph *exec, struct node *node, unsigned is_on) {
  struct node *found;
  return cuGraphNodeFindInClone(&found, node, exec) ? INVALID_VALUE : (found->is_off = !is_on, OK);
}
int cuGraphNodeGetEnabled(struct graph *exec, struct node *node, unsigned *is_on) {
  struct node *found;
  return cuGraphNodeFindInClone(&found, node, exec) ? INVALID_VALUE : (*is_on = !found->is_off, OK);
}
int cuGraphLaunch(struct graph *exec, void *stream) {
  (void)stream;
  if (!exec->last) return INVALID_HANDLE;
  int code = OK;
  for (struct node *n = exec->first; n && !code; n = n->next) {
    if (n->is_off) continue;
    if (n->type == 0) run(n->kernel.function, n->arguments);
    if (n->type == 1) code = cuMemcpy3D_v2(&n->copy);
    if (n->type == 2) fill(n->memset.dst, n->memset.pitch, &n->memset.value, n->memset.element, n->memset.width, n->memset.height);
  }
  return code;
}
