/* The few HIP declarations that the programs here use, as HIP's own headers have them. */
#pragma once
#include <stddef.h>
#include <stdint.h>

typedef int hipError_t;
typedef void* hipStream_t;
typedef void* hipEvent_t;
typedef void* hipModule_t;
typedef void* hipFunction_t;
enum { hipMemcpyHostToDevice = 1, hipMemcpyDeviceToHost = 2 };

hipError_t hipInit(unsigned flags);
hipError_t hipGetDevice(int* device);
hipError_t hipSetDevice(int device);
hipError_t hipGetDeviceCount(int* count);
hipError_t hipRuntimeGetVersion(int* version);
hipError_t hipMalloc(void** ptr, size_t size);
hipError_t hipFree(void* ptr);
hipError_t hipMemset(void* dst, int value, size_t size);
hipError_t hipMemcpy(void* dst, const void* src, size_t size, int kind);
hipError_t hipMemcpyAsync(void* dst, const void* src, size_t size, int kind, hipStream_t stream);
hipError_t hipStreamCreate(hipStream_t* stream);
hipError_t hipStreamDestroy(hipStream_t stream);
hipError_t hipStreamSynchronize(hipStream_t stream);
hipError_t hipEventCreate(hipEvent_t* event);
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream);
hipError_t hipEventDestroy(hipEvent_t event);
hipError_t hipDeviceSynchronize(void);
hipError_t hipModuleLoad(hipModule_t* module, const char* path);
hipError_t hipModuleGetFunction(hipFunction_t* function, hipModule_t module, const char* name);
hipError_t hipModuleLaunchKernel(hipFunction_t f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                 unsigned bz, unsigned shared, hipStream_t stream, void** params, void** extra);
hipError_t hipGetProcAddress(const char* symbol, void** pfn, int version, uint64_t flags, void* status);
hipError_t hipGetDriverEntryPoint(const char* symbol, void** pfn, unsigned long long flags, void* status);

/* Allocates and frees SIZE bytes: the size tells the calls of one place from those of another. */
#define MARK_THROUGH(allocate, give_back, size)                  \
  do {                                                           \
    void* marked = 0;                                            \
    if (allocate(&marked, size) || give_back(marked)) abort();   \
  } while (0)
#define MARK(size) MARK_THROUGH(hipMalloc, hipFree, size)
