// Entry points of HIP 6 and 7 that older headers lack, declared as HIP 7.1 has them, and the numbers that changed.
// Programs built here must work with a HIP 7 runtime whatever headers the machine has.
#pragma once
#include <hip/hip_ext.h>
#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>

namespace hip7 {

// hipMemoryType was renumbered in HIP 6.
constexpr unsigned kMemoryHost = 1, kMemoryDevice = 2, kMemoryArray = 10, kMemoryUnified = 11;
// hipMemLocationType.
constexpr int kLocationDevice = 1;

struct Pos {
  size_t x, y, z;
};
struct Pitched {
  void* ptr;
  size_t pitch, xsize, ysize;
};
struct Extent {
  size_t width, height, depth;
};
struct Location {
  int type, id;
};

struct Memcpy3DPeer {
  void* srcArray;
  Pos srcPos;
  Pitched srcPtr;
  int srcDevice;
  void* dstArray;
  Pos dstPos;
  Pitched dstPtr;
  int dstDevice;
  Extent extent;
};

// hip_Memcpy2D.
struct Memcpy2D {
  size_t srcX, srcY;
  unsigned srcType;
  const void* srcHost;
  void* srcDevice;
  void* srcArray;
  size_t srcPitch;
  size_t dstX, dstY;
  unsigned dstType;
  void* dstHost;
  void* dstDevice;
  void* dstArray;
  size_t dstPitch;
  size_t width, height;
};

// HIP_MEMCPY3D.
struct Memcpy3D {
  size_t srcX, srcY, srcZ, srcLod;
  unsigned srcType;
  const void* srcHost;
  void* srcDevice;
  void* srcArray;
  size_t srcPitch, srcHeight;
  size_t dstX, dstY, dstZ, dstLod;
  unsigned dstType;
  void* dstHost;
  void* dstDevice;
  void* dstArray;
  size_t dstPitch, dstHeight;
  size_t width, height, depth;
};
static_assert(sizeof(Memcpy2D) == 128 && sizeof(Memcpy3D) == 184 && sizeof(Memcpy3DPeer) == 168, "HIP 7 layouts");

// hipExternalMemoryHandleDesc, with the descriptor of its union.
struct ExternalMemory {
  int type;
  int pad;
  int fd;
  int rest[3];
  unsigned long long size;
  unsigned flags;
  unsigned reserved[16];
};
// hipExternalMemoryBufferDesc.
struct ExternalBuffer {
  unsigned long long offset, size;
  unsigned flags;
  unsigned reserved[16];
};
// hipExternalMemoryMipmappedArrayDesc.
struct ExternalMipmap {
  unsigned long long offset;
  hipChannelFormatDesc format;
  Extent extent;
  unsigned flags, levels;
};
// hipExternalSemaphoreSignalNodeParams and hipExternalSemaphoreWaitNodeParams.
struct SemaphoreNode {
  void* semaphores;
  void* params;
  unsigned count;
};
static_assert(sizeof(ExternalMemory) == 104 && sizeof(ExternalBuffer) == 88 && sizeof(ExternalMipmap) == 64 &&
                  sizeof(SemaphoreNode) == 24,
              "HIP 7 layouts");

struct MemcpyAttributes {
  int srcAccessOrder;
  Location srcHint, dstHint;
  unsigned flags;
};

struct LaunchAttribute {
  int id;
  int pad;
  uint64_t value[8];
};
// hipLaunchConfig_t.
struct LaunchConfig {
  dim3 grid, block;
  size_t sharedBytes;
  hipStream_t stream;
  LaunchAttribute* attributes;
  unsigned attributeCount;
};
// HIP_LAUNCH_CONFIG.
struct DrvLaunchConfig {
  unsigned grid[3], block[3], sharedBytes;
  hipStream_t stream;
  LaunchAttribute* attributes;
  unsigned attributeCount;
};
// hipFunctionLaunchParams.
struct FunctionLaunch {
  hipFunction_t function;
  unsigned grid[3], block[3], sharedBytes;
  hipStream_t stream;
  void** kernelParams;
};
static_assert(sizeof(LaunchAttribute) == 72 && sizeof(LaunchConfig) == 56 && sizeof(DrvLaunchConfig) == 56, "HIP 7");

// hipStreamBatchMemOpParams: waits 1 (32 bits) and 4 (64), writes 2 and 5.
struct BatchMemOp {
  unsigned operation, pad;
  void* address;
  uint64_t value;
  unsigned flags;
  void* alias;
  uint64_t pad2;
};
struct BatchMemOpNode {
  void* ctx;
  unsigned count;
  BatchMemOp* operations;
  unsigned flags;
};
static_assert(sizeof(BatchMemOp) == 48 && sizeof(BatchMemOpNode) == 32, "HIP 7 layouts");

struct PoolProps {
  int allocType, handleTypes;
  Location location;
  void* security;
  size_t maxSize;
  unsigned char reserved[56];
};
struct AccessDesc {
  Location location;
  unsigned flags;
};
struct AllocNode {
  PoolProps props;
  const AccessDesc* access;
  size_t accessCount, bytes;
  void* pointer;
};
static_assert(sizeof(PoolProps) == 88 && sizeof(AllocNode) == 120, "HIP 7 layouts");

// hipGraphNodeParams.
struct NodeParams {
  int type;
  int reserved[3];
  uint64_t words[29];
  long long reserved2;
};
static_assert(sizeof(NodeParams) == 256, "HIP 7 layout");

// hipDevResource: compute units are type 1.
struct DevResource {
  int type;
  unsigned char internal[92];
  unsigned units, minUnits, unitAlignment, flags;
  unsigned char rest[32];
};
// hipDevSmResourceGroupParams.
struct DevResourceGroup {
  unsigned units, coscheduled, preferredCoscheduled, flags, reserved[12];
};
static_assert(sizeof(DevResource) == 144 && sizeof(DevResourceGroup) == 64, "HIP 7 layouts");

// hipMemcpy3DBatchOp: an operand is a pointer (1) or an array (2).
struct BatchOperand {
  int type;
  void* target;
  size_t numbers[3];  // row length, layer height, location; or an array's offset
};
struct VolumeCopy {
  BatchOperand src, dst;
  Extent extent;
  int accessOrder;
  unsigned flags;
};
static_assert(sizeof(VolumeCopy) == 112, "HIP 7 layout");

// HIP_RESOURCE_DESC, HIP_TEXTURE_DESC and HIP_RESOURCE_VIEW_DESC.
struct DrvResource {
  int type;
  uint64_t words[16];
  unsigned flags;
};
struct DrvTexture {
  int addressMode[3], filterMode;
  unsigned flags, maxAnisotropy;
  int mipmapFilterMode;
  float levelBias, levelMin, levelMax, border[4];
  int reserved[12];
};
struct DrvView {
  int format;
  size_t width, height, depth;
  unsigned firstLevel, lastLevel, firstLayer, lastLayer, reserved[16];
};
static_assert(sizeof(DrvResource) == 144 && sizeof(DrvTexture) == 104 && sizeof(DrvView) == 112, "HIP 7 layouts");

struct InstantiateParams {
  hipGraphNode_t errorNode;
  unsigned long long flags;
  int result;
  hipStream_t uploadStream;
};

}  // namespace hip7

extern "C" {
hipError_t hipMemcpy2DAsync_spt(void*, size_t, const void*, size_t, size_t, size_t, hipMemcpyKind, hipStream_t);
hipError_t hipMemcpy2DFromArrayAsync_spt(void*, size_t, const void*, size_t, size_t, size_t, size_t, hipMemcpyKind,
                                         hipStream_t);
hipError_t hipMemcpy2DToArrayAsync_spt(void*, size_t, size_t, const void*, size_t, size_t, size_t, hipMemcpyKind,
                                       hipStream_t);
hipError_t hipMemcpy3DAsync_spt(const hipMemcpy3DParms*, hipStream_t);
hipError_t hipMemcpy3DPeer(hip7::Memcpy3DPeer*);
hipError_t hipMemcpy3DPeerAsync(hip7::Memcpy3DPeer*, hipStream_t);
hipError_t hipMemcpyBatchAsync(void**, void**, size_t*, size_t, hip7::MemcpyAttributes*, size_t*, size_t, size_t*,
                               hipStream_t);
hipError_t hipMemcpyFromArray_spt(void*, const void*, size_t, size_t, size_t, hipMemcpyKind);
hipError_t hipMemcpyFromSymbolAsync_spt(void*, const void*, size_t, size_t, hipMemcpyKind, hipStream_t);
hipError_t hipMemcpyToSymbolAsync_spt(const void*, const void*, size_t, size_t, hipMemcpyKind, hipStream_t);
hipError_t hipMemset2DAsync_spt(void*, size_t, int, size_t, size_t, hipStream_t);
hipError_t hipMemset3DAsync_spt(hipPitchedPtr, int, hipExtent, hipStream_t);
hipError_t hipMemsetAsync_spt(void*, int, size_t, hipStream_t);
hipError_t hipMemsetD2D8(void*, size_t, unsigned char, size_t, size_t);
hipError_t hipMemsetD2D8Async(void*, size_t, unsigned char, size_t, size_t, hipStream_t);
hipError_t hipMemsetD2D16(void*, size_t, unsigned short, size_t, size_t);
hipError_t hipMemsetD2D16Async(void*, size_t, unsigned short, size_t, size_t, hipStream_t);
hipError_t hipMemsetD2D32(void*, size_t, unsigned, size_t, size_t);
hipError_t hipMemsetD2D32Async(void*, size_t, unsigned, size_t, size_t, hipStream_t);

hipError_t hipExtHostAlloc(void**, size_t, unsigned);
hipError_t hipMemAdvise_v2(const void*, size_t, int, hip7::Location);
hipError_t hipMemPrefetchAsync_v2(const void*, size_t, hip7::Location, unsigned, hipStream_t);
hipError_t hipMemGetDefaultMemPool(hipMemPool_t*, hip7::Location*, int);
hipError_t hipMemGetMemPool(hipMemPool_t*, hip7::Location*, int);
hipError_t hipMemSetMemPool(hip7::Location*, int, hipMemPool_t);
hipError_t hipPointerSetAttribute(const void*, int, void*);

hipError_t hipLaunchKernelExC(const hip7::LaunchConfig*, const void*, void**);
hipError_t hipDrvLaunchKernelEx(const hip7::DrvLaunchConfig*, hipFunction_t, void**, void**);
hipError_t hipModuleLaunchCooperativeKernel(hipFunction_t, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                            unsigned, hipStream_t, void**);
hipError_t hipModuleLaunchCooperativeKernelMultiDevice(hip7::FunctionLaunch*, unsigned, unsigned);
hipError_t hipGetFuncBySymbol(hipFunction_t*, const void*);

hipError_t hipGraphLaunch_spt(hipGraphExec_t, hipStream_t);
hipError_t hipStreamBeginCapture_spt(hipStream_t, hipStreamCaptureMode);
hipError_t hipStreamEndCapture_spt(hipStream_t, hipGraph_t*);
hipError_t hipStreamIsCapturing_spt(hipStream_t, hipStreamCaptureStatus*);
hipError_t hipStreamGetCaptureInfo_spt(hipStream_t, hipStreamCaptureStatus*, unsigned long long*);
hipError_t hipStreamGetCaptureInfo_v2_spt(hipStream_t, hipStreamCaptureStatus*, unsigned long long*, hipGraph_t*,
                                          const hipGraphNode_t**, size_t*);
hipError_t hipStreamBeginCaptureToGraph(hipStream_t, hipGraph_t, const hipGraphNode_t*, const void*, size_t,
                                        hipStreamCaptureMode);
hipError_t hipGraphAddNode(hipGraphNode_t*, hipGraph_t, const hipGraphNode_t*, size_t, hip7::NodeParams*);
hipError_t hipGraphNodeSetParams(hipGraphNode_t, hip7::NodeParams*);
hipError_t hipGraphExecNodeSetParams(hipGraphExec_t, hipGraphNode_t, hip7::NodeParams*);
hipError_t hipGraphInstantiateWithParams(hipGraphExec_t*, hipGraph_t, hip7::InstantiateParams*);
hipError_t hipGraphExecGetFlags(hipGraphExec_t, unsigned long long*);
hipError_t hipGraphUpload(hipGraphExec_t, hipStream_t);
hipError_t hipGraphNodeGetEnabled(hipGraphExec_t, hipGraphNode_t, unsigned*);
hipError_t hipGraphNodeSetEnabled(hipGraphExec_t, hipGraphNode_t, unsigned);
hipError_t hipGraphKernelNodeCopyAttributes(hipGraphNode_t, hipGraphNode_t);
hipError_t hipGraphDebugDotPrint(hipGraph_t, const char*, unsigned);
hipError_t hipGraphAddMemAllocNode(hipGraphNode_t*, hipGraph_t, const hipGraphNode_t*, size_t, hip7::AllocNode*);
hipError_t hipGraphMemAllocNodeGetParams(hipGraphNode_t, hip7::AllocNode*);
hipError_t hipGraphAddMemFreeNode(hipGraphNode_t*, hipGraph_t, const hipGraphNode_t*, size_t, void*);
hipError_t hipGraphMemFreeNodeGetParams(hipGraphNode_t, void*);
hipError_t hipDrvGraphAddMemFreeNode(hipGraphNode_t*, hipGraph_t, const hipGraphNode_t*, size_t, void*);
hipError_t hipDrvGraphAddMemcpyNode(hipGraphNode_t*, hipGraph_t, const hipGraphNode_t*, size_t, const hip7::Memcpy3D*,
                                    hipCtx_t);
hipError_t hipDrvGraphAddMemsetNode(hipGraphNode_t*, hipGraph_t, const hipGraphNode_t*, size_t, const hipMemsetParams*,
                                    hipCtx_t);
hipError_t hipGraphAddBatchMemOpNode(hipGraphNode_t*, hipGraph_t, const hipGraphNode_t*, size_t,
                                     const hip7::BatchMemOpNode*);
hipError_t hipGraphBatchMemOpNodeSetParams(hipGraphNode_t, hip7::BatchMemOpNode*);
hipError_t hipGraphExecBatchMemOpNodeSetParams(hipGraphExec_t, hipGraphNode_t, const hip7::BatchMemOpNode*);
hipError_t hipUserObjectCreate(void**, void*, void (*)(void*), unsigned, unsigned);
hipError_t hipUserObjectRelease(void*, unsigned);
hipError_t hipUserObjectRetain(void*, unsigned);
hipError_t hipGraphRetainUserObject(hipGraph_t, void*, unsigned, unsigned);
hipError_t hipGraphReleaseUserObject(hipGraph_t, void*, unsigned);
hipError_t hipDeviceGetGraphMemAttribute(int, int, void*);
hipError_t hipDeviceSetGraphMemAttribute(int, int, void*);
hipError_t hipDeviceGraphMemTrim(int);

hipError_t hipLibraryLoadData(void**, const void*, int*, void**, unsigned, int*, void**, unsigned);
hipError_t hipLibraryLoadFromFile(void**, const char*, int*, void**, unsigned, int*, void**, unsigned);
hipError_t hipLibraryUnload(void*);
hipError_t hipLibraryGetKernel(void**, void*, const char*);
hipError_t hipLibraryGetKernelCount(unsigned*, void*);
hipError_t hipLibraryEnumerateKernels(void**, unsigned, void*);
hipError_t hipLibraryGetGlobal(void**, size_t*, void*, const char*);
hipError_t hipKernelGetLibrary(void**, void*);
hipError_t hipKernelGetName(const char**, void*);
hipError_t hipKernelGetFunction(hipFunction_t*, void*);
hipError_t hipKernelGetAttribute(int*, int, void*, int);
hipError_t hipKernelSetAttribute(int, int, void*, int);
hipError_t hipKernelGetParamInfo(void*, size_t, size_t*, size_t*);
hipError_t hipModuleGetFunctionCount(unsigned*, hipModule_t);
hipError_t hipModuleLoadFatBinary(hipModule_t*, const void*);
hipError_t hipOccupancyAvailableDynamicSMemPerBlock(size_t*, const void*, int, int);

hipError_t hipEventRecordWithFlags(hipEvent_t, hipStream_t, unsigned);
hipError_t hipEventRecord_spt(hipEvent_t, hipStream_t);
hipError_t hipLaunchHostFunc_spt(hipStream_t, void (*)(void*), void*);
hipError_t hipStreamAddCallback_spt(hipStream_t, void (*)(hipStream_t, hipError_t, void*), void*, unsigned);
hipError_t hipStreamBatchMemOp(hipStream_t, unsigned, hip7::BatchMemOp*, unsigned);
hipError_t hipStreamCopyAttributes(hipStream_t, hipStream_t);
hipError_t hipStreamGetAttribute(hipStream_t, int, void*);
hipError_t hipStreamSetAttribute(hipStream_t, int, const void*);
hipError_t hipStreamGetDevice(hipStream_t, int*);
hipError_t hipStreamGetId(hipStream_t, unsigned long long*);
hipError_t hipDeviceSetLimit(int, size_t);
hipError_t hipDeviceFlushGPUDirectRDMAWrites(int, int);
hipError_t hipDrvGetErrorName(hipError_t, const char**);
hipError_t hipDrvGetErrorString(hipError_t, const char**);
hipError_t hipExtGetLastError(void);
hipError_t hipExtEnableLogging(void);
hipError_t hipExtDisableLogging(void);
hipError_t hipExtSetLoggingParams(size_t, size_t, size_t);
hipError_t hipGetProcAddress(const char*, void**, int, uint64_t, int*);
hipError_t hipGetProcAddress_spt(const char*, void**, int, uint64_t, int*);
hipError_t hipGetDriverEntryPoint(const char*, void**, unsigned long long, int*);
hipError_t hipGetDriverEntryPoint_spt(const char*, void**, unsigned long long, int*);
hipError_t hipGetDevicePropertiesR0600(void*, int);
hipError_t hipGetDevicePropertiesR0000(void*, int);
hipError_t hipChooseDeviceR0000(int*, const void*);

hipError_t hipArrayGetDescriptor(HIP_ARRAY_DESCRIPTOR*, hipArray*);
hipError_t hipArray3DGetDescriptor(HIP_ARRAY3D_DESCRIPTOR*, hipArray*);
hipError_t hipArrayGetInfo(hipChannelFormatDesc*, hipExtent*, unsigned*, hipArray*);
hipError_t hipMemcpyAtoHAsync(void*, hipArray*, size_t, size_t, hipStream_t);
hipError_t hipMemcpyHtoAAsync(hipArray*, size_t, const void*, size_t, hipStream_t);
hipError_t hipMemcpyAtoD(void*, hipArray*, size_t, size_t);
hipError_t hipMemcpyDtoA(hipArray*, size_t, void*, size_t);
hipError_t hipMemcpyAtoA(hipArray*, size_t, hipArray*, size_t, size_t);
hipError_t hipMemcpy2DArrayToArray(hipArray*, size_t, size_t, hipArray*, size_t, size_t, size_t, size_t, hipMemcpyKind);

hipError_t hipMemPrefetchBatchAsync(void**, size_t*, size_t, hip7::Location*, size_t*, size_t, unsigned long long,
                                    hipStream_t);
hipError_t hipMemDiscardBatchAsync(void**, size_t*, size_t, unsigned long long, hipStream_t);
hipError_t hipMemDiscardAndPrefetchBatchAsync(void**, size_t*, size_t, hip7::Location*, size_t*, size_t,
                                              unsigned long long, hipStream_t);
hipError_t hipDrvMemDiscardBatchAsync(void**, size_t*, size_t, unsigned long long, hipStream_t);
hipError_t hipDrvMemDiscardAndPrefetchBatchAsync(void**, size_t*, size_t, hip7::Location*, size_t*, size_t,
                                                 unsigned long long, hipStream_t);
hipError_t hipMemcpy3DBatchAsync(size_t, hip7::VolumeCopy*, size_t*, unsigned long long, hipStream_t);

hipError_t hipDeviceGetDevResource(int, hip7::DevResource*, int);
hipError_t hipDevSmResourceSplitByCount(hip7::DevResource*, unsigned*, const hip7::DevResource*, hip7::DevResource*,
                                        unsigned, unsigned);
hipError_t hipDevSmResourceSplit(hip7::DevResource*, unsigned, const hip7::DevResource*, hip7::DevResource*, unsigned,
                                 hip7::DevResourceGroup*);
hipError_t hipDevResourceGenerateDesc(void**, hip7::DevResource*, unsigned);
hipError_t hipDeviceGetExecutionCtx(void**, int);
hipError_t hipGreenCtxCreate(void**, void*, int, unsigned);
hipError_t hipExecutionCtxDestroy(void*);
hipError_t hipExecutionCtxStreamCreate(hipStream_t*, void*, unsigned, int);
hipError_t hipExecutionCtxGetDevResource(void*, hip7::DevResource*, int);
hipError_t hipExecutionCtxGetDevice(int*, void*);
hipError_t hipExecutionCtxGetId(void*, unsigned long long*);
hipError_t hipExecutionCtxSynchronize(void*);
hipError_t hipExecutionCtxRecordEvent(void*, hipEvent_t);
hipError_t hipExecutionCtxWaitEvent(void*, hipEvent_t);
hipError_t hipStreamGetDevResource(hipStream_t, hip7::DevResource*, int);

hipError_t hipLinkCreate(unsigned, int*, void**, void**);
hipError_t hipLinkAddData(void*, int, void*, size_t, const char*, unsigned, int*, void**);
hipError_t hipLinkAddFile(void*, int, const char*, unsigned, int*, void**);
hipError_t hipLinkComplete(void*, void**, size_t*);
hipError_t hipLinkDestroy(void*);
hipError_t hipLibraryGetManaged(void**, size_t*, void*, const char*);
hipError_t hipModuleEnumerateFunctions(hipFunction_t*, unsigned, hipModule_t);
hipError_t hipOccupancyMaxActiveClusters(int*, const void*, const hip7::LaunchConfig*);
hipError_t hipOccupancyMaxPotentialClusterSize(int*, const void*, const hip7::LaunchConfig*);

hipError_t hipGraphBatchMemOpNodeGetParams(hipGraphNode_t, hip7::BatchMemOpNode*);
hipError_t hipDrvGraphMemcpyNodeGetParams(hipGraphNode_t, hip7::Memcpy3D*);
hipError_t hipDrvGraphMemcpyNodeSetParams(hipGraphNode_t, const hip7::Memcpy3D*);
hipError_t hipDrvGraphExecMemcpyNodeSetParams(hipGraphExec_t, hipGraphNode_t, const hip7::Memcpy3D*, hipCtx_t);
hipError_t hipDrvGraphExecMemsetNodeSetParams(hipGraphExec_t, hipGraphNode_t, const hipMemsetParams*, hipCtx_t);

hipError_t hipExternalMemoryGetMappedMipmappedArray(hipMipmappedArray_t*, hipExternalMemory_t,
                                                    const hip7::ExternalMipmap*);
hipError_t hipGraphAddExternalSemaphoresSignalNode(hipGraphNode_t*, hipGraph_t, const hipGraphNode_t*, size_t,
                                                   const hip7::SemaphoreNode*);
hipError_t hipGraphAddExternalSemaphoresWaitNode(hipGraphNode_t*, hipGraph_t, const hipGraphNode_t*, size_t,
                                                 const hip7::SemaphoreNode*);
hipError_t hipGraphExternalSemaphoresSignalNodeGetParams(hipGraphNode_t, hip7::SemaphoreNode*);
hipError_t hipGraphExternalSemaphoresWaitNodeGetParams(hipGraphNode_t, hip7::SemaphoreNode*);
hipError_t hipGraphExternalSemaphoresSignalNodeSetParams(hipGraphNode_t, const hip7::SemaphoreNode*);
hipError_t hipGraphExternalSemaphoresWaitNodeSetParams(hipGraphNode_t, const hip7::SemaphoreNode*);
hipError_t hipGraphExecExternalSemaphoresSignalNodeSetParams(hipGraphExec_t, hipGraphNode_t, const hip7::SemaphoreNode*);
hipError_t hipGraphExecExternalSemaphoresWaitNodeSetParams(hipGraphExec_t, hipGraphNode_t, const hip7::SemaphoreNode*);
hipError_t hipGraphicsMapResources(int, hipGraphicsResource_t*, hipStream_t);
hipError_t hipGraphicsUnmapResources(int, hipGraphicsResource_t*, hipStream_t);
hipError_t hipGraphicsResourceGetMappedPointer(void**, size_t*, hipGraphicsResource_t);
hipError_t hipGraphicsSubResourceGetMappedArray(hipArray_t*, hipGraphicsResource_t, unsigned, unsigned);
hipError_t hipGraphicsUnregisterResource(hipGraphicsResource_t);

hipError_t hipDeviceGetLuid(char*, unsigned*, int);
hipError_t hipInitDevice(int, unsigned, unsigned);
hipError_t hipSetValidDevices(int*, int);
hipError_t hipDeviceGetTexture1DLinearMaxWidth(size_t*, const hipChannelFormatDesc*, int);
hipError_t hipMipmappedArrayGetMemoryRequirements(size_t*, void*, int);
hipError_t hipTexRefGetArray(hipArray_t*, const textureReference*);
hipError_t hipTexRefGetBorderColor(float*, const textureReference*);

void** __hipRegisterFatBinary(const void*);
void __hipUnregisterFatBinary(void**);
void __hipRegisterFunction(void**, const void*, char*, const char*, unsigned, void*, void*, dim3*, dim3*, int*);
void __hipRegisterManagedVar(void*, void**, void*, const char*, size_t, unsigned);
void __hipRegisterTexture(void**, void*, char*, char*, int, int, int);
void __hipRegisterSurface(void**, void*, char*, char*, int, int);
}
