/* The few HIP declarations that the recorder's own tests use, and the controls of the scripted runtime. */
#pragma once
#include <stddef.h>
#include <stdint.h>

typedef int hipError_t;
typedef void* hipStream_t;
typedef void* hipEvent_t;
typedef void* hipModule_t;
typedef void* hipFunction_t;
typedef void* hipGraph_t;
typedef void* hipGraphExec_t;
typedef void* hipGraphNode_t;
typedef struct { uint32_t x, y, z; } dim3;
enum { hipMemcpyHostToHost, hipMemcpyHostToDevice, hipMemcpyDeviceToHost, hipMemcpyDeviceToDevice, hipMemcpyDefault };
enum { hipSuccess = 0, hipErrorInvalidValue = 1, hipErrorNotReady = 600, hipErrorNotSupported = 801 };

hipError_t hipGetDevice(int* device);
hipError_t hipSetDevice(int device);
hipError_t hipGetLastError(void);
hipError_t hipPeekAtLastError(void);
hipError_t hipMalloc(void** ptr, size_t size);
hipError_t hipFree(void* ptr);
hipError_t hipHostMalloc(void** ptr, size_t size, unsigned flags);
hipError_t hipHostFree(void* ptr);
hipError_t hipMemcpy(void* dst, const void* src, size_t size, int kind);
hipError_t hipMemcpyAsync(void* dst, const void* src, size_t size, int kind, hipStream_t stream);
hipError_t hipMemcpy2DAsync(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width, size_t height,
                            int kind, hipStream_t stream);
hipError_t hipMemset(void* dst, int value, size_t size);
hipError_t hipStreamCreate(hipStream_t* stream);
hipError_t hipStreamDestroy(hipStream_t stream);
hipError_t hipStreamSynchronize(hipStream_t stream);
hipError_t hipStreamQuery(hipStream_t stream);
hipError_t hipDeviceSynchronize(void);
hipError_t hipEventCreate(hipEvent_t* event);
hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned flags);
hipError_t hipEventDestroy(hipEvent_t event);
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream);
hipError_t hipEventQuery(hipEvent_t event);
hipError_t hipEventSynchronize(hipEvent_t event);
hipError_t hipLaunchKernel(const void* function, dim3 grid, dim3 block, void** args, size_t shared, hipStream_t stream);
hipError_t hipModuleLoadData(hipModule_t* module, const void* image);
hipError_t hipModuleGetFunction(hipFunction_t* function, hipModule_t module, const char* name);
hipError_t hipModuleLaunchKernel(hipFunction_t f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                 unsigned bz, unsigned shared, hipStream_t stream, void** params, void** extra);
hipError_t hipStreamBeginCapture(hipStream_t stream, int mode);
hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t* graph);
hipError_t hipStreamGetCaptureInfo(hipStream_t stream, int* status, unsigned long long* id);
hipError_t hipGraphInstantiate(hipGraphExec_t* exec, hipGraph_t graph, hipGraphNode_t* node, char* log, size_t size);
hipError_t hipGraphLaunch(hipGraphExec_t exec, hipStream_t stream);
hipError_t hipGraphCreate(hipGraph_t* graph, unsigned flags);
hipError_t hipGraphAddMemcpyNode1D(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* deps, size_t count,
                                   void* dst, const void* src, size_t size, int kind);
hipError_t hipGetProcAddress(const char* symbol, void** pfn, int version, uint64_t flags, void* status);
const char* hipGetErrorName(hipError_t error);
hipError_t hipSetupArgument(const void* arg, size_t size, size_t offset);
void** __hipRegisterFatBinary(const void* data);
void __hipRegisterFunction(void** modules, const void* host, char* device, const char* name, unsigned limit, void* tid,
                           void* bid, void* block, void* grid, int* wsize);
void __hipUnregisterFatBinary(void** modules);

/* Controls of the scripted runtime; not HIP. */
/* Calls of a HIP function so far. */
unsigned long fake_calls(const char* name);
/* Lets at most `count` queued operations of a stream run, in order. */
void fake_advance(hipStream_t stream, unsigned count);
/* 1: hipGetLastError keeps an error until it is asked for, and a not-ready answer is kept too. 0: every call overwrites. */
void fake_sticky_errors(int sticky);
