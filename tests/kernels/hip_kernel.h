/* One C source, three devices: what differs between an AMD GPU, an NVIDIA GPU and the CPU stands here.
 *
 *   KERNEL(saxpy, float, a, const float *, x, float *, y, int, n) { ... }      1 to 8 arguments, type then name
 *   STATIC_SHARED(kernel, type, name, count)   before the kernel; SHARED type *p = STATIC_SHARED_PTR(name); in it
 *   SHARED type *p = DYNAMIC_SHARED(type);     the launch's dynamic shared memory
 *   DEVICE type name = value;                  a __device__ variable, found by name in the loaded module
 *   THREAD_IDX(x) BLOCK_IDX(x) BLOCK_DIM(x) GRID_DIM(x) SYNC_THREADS()   as in HIP; GRID_DIM in blocks
 *
 * A CPU kernel is `void NAME(const void *kernarg, const struct hip_cpu_thread *)`: one call per thread, arguments laid
 * out as in an AMDGPU kernarg segment. NAME__args tells the runtime that layout, NAME__static_shared the bytes of
 * static shared memory, which lie just below `dynamic_shared`, rounded up to 16. */
#ifndef HIP_KERNEL_H
#define HIP_KERNEL_H
#include <stddef.h>
#include <stdint.h>

/* HIP_EACH(M, C, SEP, T1, n1, T2, n2, ...) -> M(C, T1, n1) SEP() M(C, T2, n2) ... */
#define HIP_COMMA() ,
#define HIP_NOTHING()
#define HIP_EACH1(M, C, S, T, n) M(C, T, n)
#define HIP_EACH2(M, C, S, T, n, ...) M(C, T, n) S() HIP_EACH1(M, C, S, __VA_ARGS__)
#define HIP_EACH3(M, C, S, T, n, ...) M(C, T, n) S() HIP_EACH2(M, C, S, __VA_ARGS__)
#define HIP_EACH4(M, C, S, T, n, ...) M(C, T, n) S() HIP_EACH3(M, C, S, __VA_ARGS__)
#define HIP_EACH5(M, C, S, T, n, ...) M(C, T, n) S() HIP_EACH4(M, C, S, __VA_ARGS__)
#define HIP_EACH6(M, C, S, T, n, ...) M(C, T, n) S() HIP_EACH5(M, C, S, __VA_ARGS__)
#define HIP_EACH7(M, C, S, T, n, ...) M(C, T, n) S() HIP_EACH6(M, C, S, __VA_ARGS__)
#define HIP_EACH8(M, C, S, T, n, ...) M(C, T, n) S() HIP_EACH7(M, C, S, __VA_ARGS__)
#define HIP_PICK(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, N, ...) HIP_EACH##N
#define HIP_EACH_OF(...) HIP_PICK(__VA_ARGS__, 8, 8, 7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0)
#define HIP_EACH(M, C, S, ...) HIP_EACH_OF(__VA_ARGS__)(M, C, S, __VA_ARGS__)
#define HIP_PARAMETER(C, T, n) T n

#if defined(__AMDGCN__) || defined(__NVPTX__)
#define SHARED __attribute__((address_space(3)))
#define DEVICE __attribute__((address_space(1), visibility("protected")))
#define STATIC_SHARED(kernel, T, name, count) \
  static SHARED __attribute__((loader_uninitialized)) T name##__shared[count];
#define STATIC_SHARED_PTR(name) (name##__shared)
extern SHARED _Alignas(16) char hip_dynamic_shared[];
#define DYNAMIC_SHARED(T) ((SHARED T *)hip_dynamic_shared)
#define KERNEL(name, ...) HIP_KERNEL_ATTRIBUTES void name(HIP_EACH(HIP_PARAMETER, , HIP_COMMA, __VA_ARGS__))
#endif

#if defined(__AMDGCN__)
#define HIP_KERNEL_ATTRIBUTES __attribute__((amdgpu_kernel, visibility("protected")))
#define THREAD_IDX(d) ((uint32_t)__builtin_amdgcn_workitem_id_##d())
#define BLOCK_IDX(d) ((uint32_t)__builtin_amdgcn_workgroup_id_##d())
#define BLOCK_DIM(d) ((uint32_t)__builtin_amdgcn_workgroup_size_##d())
#define GRID_DIM(d) ((uint32_t)__builtin_amdgcn_grid_size_##d() / BLOCK_DIM(d))
#define SYNC_THREADS()                                    \
  (__builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"), \
   __builtin_amdgcn_s_barrier(),                          \
   __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup"))
#elif defined(__NVPTX__)
#define HIP_KERNEL_ATTRIBUTES __attribute__((nvptx_kernel))
#define THREAD_IDX(d) ((uint32_t)__nvvm_read_ptx_sreg_tid_##d())
#define BLOCK_IDX(d) ((uint32_t)__nvvm_read_ptx_sreg_ctaid_##d())
#define BLOCK_DIM(d) ((uint32_t)__nvvm_read_ptx_sreg_ntid_##d())
#define GRID_DIM(d) ((uint32_t)__nvvm_read_ptx_sreg_nctaid_##d())
#define SYNC_THREADS() __syncthreads()
#else
struct hip_cpu_thread {
  uint32_t thread_idx[3], block_idx[3], block_dim[3], grid_dim[3];
  void *dynamic_shared;
  uint32_t dynamic_shared_bytes, reserved;
  void (*sync_threads)(const struct hip_cpu_thread *);
  void *runtime_private;
};
struct hip_cpu_argument {
  uint32_t offset, size;
};
enum { HIP_DIMENSION_x, HIP_DIMENSION_y, HIP_DIMENSION_z };
#define THREAD_IDX(d) (hip_thread->thread_idx[HIP_DIMENSION_##d])
#define BLOCK_IDX(d) (hip_thread->block_idx[HIP_DIMENSION_##d])
#define BLOCK_DIM(d) (hip_thread->block_dim[HIP_DIMENSION_##d])
#define GRID_DIM(d) (hip_thread->grid_dim[HIP_DIMENSION_##d])
#define SYNC_THREADS() (hip_thread->sync_threads(hip_thread))
#define SHARED
#define DEVICE
#define STATIC_SHARED(kernel, T, name, count) \
  typedef T name##__shared[count];            \
  const uint32_t kernel##__static_shared = sizeof(name##__shared);
#define STATIC_SHARED_PTR(name) \
  ((void *)((char *)hip_thread->dynamic_shared - (sizeof(name##__shared) + 15) / 16 * 16))
#define DYNAMIC_SHARED(T) ((T *)hip_thread->dynamic_shared)
#define HIP_FIELD(block, T, n) T n;
#define HIP_OFFSET(block, T, n) {offsetof(struct block, n), sizeof(T)}
#define HIP_END(block, T, n) (offsetof(struct block, n) + sizeof(T))
#define HIP_LOAD(block, T, n) ((const struct block *)kernarg)->n
/* Joins the ends of all arguments into one expression whose value is the last one. */
#define HIP_LAST() *0 +
#define KERNEL(name, ...)                                                                                      \
  struct name##__block {                                                                                       \
    HIP_EACH(HIP_FIELD, , HIP_NOTHING, __VA_ARGS__)                                                            \
  };                                                                                                           \
  const struct {                                                                                               \
    uint32_t count, kernarg_size;                                                                              \
    struct hip_cpu_argument argument[sizeof((struct hip_cpu_argument[]){                                       \
                                         HIP_EACH(HIP_OFFSET, name##__block, HIP_COMMA, __VA_ARGS__)}) /       \
                                     sizeof(struct hip_cpu_argument)];                                         \
  } name##__args = {sizeof(name##__args.argument) / sizeof(struct hip_cpu_argument),                           \
                    HIP_EACH(HIP_END, name##__block, HIP_LAST, __VA_ARGS__),                                   \
                    {HIP_EACH(HIP_OFFSET, name##__block, HIP_COMMA, __VA_ARGS__)}};                            \
  static void name##__body(const struct hip_cpu_thread *hip_thread,                                            \
                           HIP_EACH(HIP_PARAMETER, , HIP_COMMA, __VA_ARGS__));                                 \
  void name(const void *kernarg, const struct hip_cpu_thread *hip_thread) {                                    \
    name##__body(hip_thread, HIP_EACH(HIP_LOAD, name##__block, HIP_COMMA, __VA_ARGS__));                       \
  }                                                                                                            \
  static inline void name##__body(__attribute__((unused)) const struct hip_cpu_thread *hip_thread,             \
                                  HIP_EACH(HIP_PARAMETER, , HIP_COMMA, __VA_ARGS__))
#endif
#endif
