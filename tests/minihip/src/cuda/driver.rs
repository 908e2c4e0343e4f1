//! The CUDA driver: `libcuda.so.1` loaded at run time, and one function per entry point this backend calls.
//!
//! This module owns the raw function pointers; what is above it passes handles and addresses as numbers, as the C ABI
//! of both sides does. Symbol names carry the `_v2` the CUDA headers hide behind macros; entry points a driver does not
//! have answer `hipErrorNotSupported`.

use super::abi::{
    DriverBatchNode, GraphExecUpdateResultInfo, HostNodeParams, KernelNodeParams, Memcpy3D, Memcpy3DPeer,
    MemsetNodeParams,
};
use super::error::from_cuda;
use crate::abi::{
    Array3DDescriptor, Dim3, DrvLaunchConfig, DrvResourceDesc, DrvResourceViewDesc, DrvTextureDesc, HostFn,
    MemAccessDesc, MemAllocNodeParams, MemLocation,
};
use crate::error::{HipError, HipResult};
use crate::execution_context::DevResource;
use crate::exports::IpcHandle;
use std::ffi::{CStr, c_char, c_void};
use std::sync::OnceLock;

/// A callback of `cuStreamAddCallback`: stream, status, user data.
pub(super) type StreamCallback = extern "C" fn(usize, i32, usize);

macro_rules! driver {
    ($($symbol:literal $name:ident($($arg:ident: $ty:ty),* $(,)?);)*) => {
        /// The entry points found in the library.
        struct Table { $($name: Option<unsafe extern "C" fn($($ty),*) -> i32>,)* }

        impl Table {
            fn load(library: *mut c_void) -> Self {
                Self { $($name: {
                    let symbol = address_of(library, $symbol);
                    // SAFETY: a null pointer becomes `None`; otherwise the library's symbol of this name is a function
                    // of this C signature, which the CUDA headers fix for each versioned name.
                    unsafe { std::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn($($ty),*) -> i32>>(symbol) }
                },)* }
            }
        }

        $(
            #[doc = concat!("`", stringify!($symbol), "`.")]
            #[allow(clippy::too_many_arguments, reason = "CUDA's own signature")]
            #[inline]
            pub(super) fn $name($($arg: $ty),*) -> HipResult {
                let function = table()?.$name.ok_or(HipError::NOT_SUPPORTED)?;
                // SAFETY: the signature is the library's (see `load`). References are valid for the call and of the
                // driver's layout; addresses and handles given as numbers are the program's own, which HIP's API
                // obliges it to keep valid, or came from the driver.
                check(unsafe { function($($arg),*) })
            }
        )*
    };
}

fn address_of(library: *mut c_void, symbol: &CStr) -> *mut c_void {
    // SAFETY: an open library handle and a terminated name.
    unsafe { libc::dlsym(library, symbol.as_ptr()) }
}

/// The loaded library, or why there is none: `hipErrorNoDevice`, as HIP answers on machines without a driver.
fn table() -> HipResult<&'static Table> {
    static TABLE: OnceLock<Option<Table>> = OnceLock::new();
    TABLE
        .get_or_init(|| {
            // SAFETY: a terminated name; the driver's initialisers run, which is what loading it is for.
            let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
            (!library.is_null()).then(|| Table::load(library))
        })
        .as_ref()
        .ok_or(HipError::NO_DEVICE)
}

#[inline]
fn check(code: i32) -> HipResult {
    if code == 0 { Ok(()) } else { Err(from_cuda(code)) }
}

/// The value a driver call writes through its first argument.
pub(super) fn got<T: Default>(call: impl FnOnce(&mut T) -> HipResult) -> HipResult<T> {
    let mut value = T::default();
    call(&mut value)?;
    Ok(value)
}

driver! {
    c"cuInit" init(flags: u32);
    c"cuDeviceGetCount" device_get_count(count: &mut i32);
    c"cuDeviceGet" device_get(device: &mut i32, ordinal: i32);
    c"cuDeviceGetName" device_get_name(name: *mut c_char, len: i32, device: i32);
    c"cuDeviceGetUuid_v2" device_get_uuid(uuid: &mut [u8; 16], device: i32);
    c"cuDeviceTotalMem_v2" device_total_mem(len_bytes: &mut usize, device: i32);
    c"cuDeviceGetAttribute" device_get_attribute(value: &mut i32, attribute: i32, device: i32);
    c"cuDeviceGetPCIBusId" device_get_pci_bus_id(text: *mut c_char, len: i32, device: i32);
    c"cuDeviceGetByPCIBusId" device_get_by_pci_bus_id(device: &mut i32, text: *const c_char);
    c"cuDeviceCanAccessPeer" device_can_access_peer(can: &mut i32, device: i32, peer: i32);
    c"cuDeviceGetP2PAttribute" device_get_p2p_attribute(value: &mut i32, attribute: i32, from: i32, to: i32);
    c"cuDevicePrimaryCtxRetain" primary_ctx_retain(context: &mut usize, device: i32);
    c"cuDevicePrimaryCtxReset_v2" primary_ctx_reset(device: i32);
    c"cuDevicePrimaryCtxSetFlags_v2" primary_ctx_set_flags(device: i32, flags: u32);
    c"cuDevicePrimaryCtxGetState" primary_ctx_get_state(device: i32, flags: &mut u32, active: &mut i32);
    c"cuCtxSetCurrent" ctx_set_current(context: usize);
    c"cuCtxPushCurrent_v2" ctx_push_current(context: usize);
    c"cuCtxPopCurrent_v2" ctx_pop_current(context: &mut usize);
    c"cuCtxSynchronize" ctx_synchronize();
    c"cuCtxGetStreamPriorityRange" ctx_get_stream_priority_range(least: &mut i32, greatest: &mut i32);
    c"cuCtxGetLimit" ctx_get_limit(value: &mut usize, limit: u32);
    c"cuCtxSetLimit" ctx_set_limit(limit: u32, value: usize);
    c"cuCtxEnablePeerAccess" ctx_enable_peer_access(context: usize, flags: u32);
    c"cuCtxDisablePeerAccess" ctx_disable_peer_access(context: usize);
    c"cuCtxRecordEvent" ctx_record_event(context: usize, event: usize);
    c"cuCtxWaitEvent" ctx_wait_event(context: usize, event: usize);
    c"cuDeviceGetDevResource" device_get_dev_resource(device: i32, resource: &mut DevResource, kind: i32);
    c"cuDevSmResourceSplitByCount" dev_sm_resource_split_by_count(result: usize, groups: &mut u32, input: &DevResource, remainder: usize, flags: u32, min_units: u32);
    c"cuDevResourceGenerateDesc" dev_resource_generate_desc(description: &mut usize, resources: *const DevResource, count: u32);
    c"cuGreenCtxCreate" green_ctx_create(context: &mut usize, description: usize, device: i32, flags: u32);
    c"cuGreenCtxDestroy" green_ctx_destroy(context: usize);
    c"cuGreenCtxGetDevResource" green_ctx_get_dev_resource(context: usize, resource: &mut DevResource, kind: i32);
    c"cuGreenCtxRecordEvent" green_ctx_record_event(context: usize, event: usize);
    c"cuGreenCtxWaitEvent" green_ctx_wait_event(context: usize, event: usize);
    c"cuGreenCtxStreamCreate" green_ctx_stream_create(stream: &mut usize, context: usize, flags: u32, priority: i32);

    c"cuMemGetInfo_v2" mem_get_info(free_bytes: &mut usize, total_bytes: &mut usize);
    c"cuMemAlloc_v2" mem_alloc(address: &mut usize, len_bytes: usize);
    c"cuMemFree_v2" mem_free(address: usize);
    c"cuMemAllocManaged" mem_alloc_managed(address: &mut usize, len_bytes: usize, flags: u32);
    c"cuMemHostAlloc" mem_host_alloc(address: &mut usize, len_bytes: usize, flags: u32);
    c"cuMemFreeHost" mem_free_host(address: usize);
    c"cuMemHostRegister_v2" mem_host_register(address: usize, len_bytes: usize, flags: u32);
    c"cuMemHostUnregister" mem_host_unregister(address: usize);
    c"cuMemHostGetDevicePointer_v2" mem_host_get_device_pointer(device: &mut usize, host: usize, flags: u32);
    c"cuMemHostGetFlags" mem_host_get_flags(flags: &mut u32, host: usize);
    c"cuMemGetAddressRange_v2" mem_get_address_range(base: &mut usize, len_bytes: &mut usize, address: usize);
    c"cuPointerGetAttribute" pointer_get_attribute(value: *mut c_void, attribute: i32, address: usize);
    c"cuPointerSetAttribute" pointer_set_attribute(value: usize, attribute: i32, address: usize);
    c"cuMemAdvise_v2" mem_advise(address: usize, len_bytes: usize, advice: i32, location: MemLocation);
    c"cuMemPrefetchAsync_v2" mem_prefetch_async(address: usize, len_bytes: usize, location: MemLocation, flags: u32, stream: usize);
    c"cuMemRangeGetAttribute" mem_range_get_attribute(data: usize, data_bytes: usize, attribute: i32, address: usize, len_bytes: usize);
    c"cuMemRangeGetAttributes" mem_range_get_attributes(data: usize, sizes: usize, attributes: usize, count: usize, address: usize, len_bytes: usize);
    c"cuMemPrefetchBatchAsync" mem_prefetch_batch_async(addresses: usize, sizes: usize, count: usize, locations: usize, indices: usize, location_count: usize, flags: u64, stream: usize);
    c"cuMemDiscardBatchAsync" mem_discard_batch_async(addresses: usize, sizes: usize, count: usize, flags: u64, stream: usize);
    c"cuMemDiscardAndPrefetchBatchAsync" mem_discard_and_prefetch_batch_async(addresses: usize, sizes: usize, count: usize, locations: usize, indices: usize, location_count: usize, flags: u64, stream: usize);
    c"cuFlushGPUDirectRDMAWrites" flush_gpu_direct_rdma_writes(target: i32, scope: i32);
    c"cuIpcGetMemHandle" ipc_get_mem_handle(handle: &mut IpcHandle, address: usize);
    c"cuIpcOpenMemHandle_v2" ipc_open_mem_handle(address: &mut usize, handle: IpcHandle, flags: u32);
    c"cuIpcCloseMemHandle" ipc_close_mem_handle(address: usize);
    c"cuIpcGetEventHandle" ipc_get_event_handle(handle: &mut IpcHandle, event: usize);
    c"cuIpcOpenEventHandle" ipc_open_event_handle(event: &mut usize, handle: IpcHandle);

    c"cuArray3DCreate_v2" array_3d_create(array: &mut usize, desc: &Array3DDescriptor);
    c"cuArrayDestroy" array_destroy(array: usize);
    c"cuMipmappedArrayCreate" mipmapped_array_create(mipmap: &mut usize, desc: &Array3DDescriptor, level_count: u32);
    c"cuMipmappedArrayGetLevel" mipmapped_array_get_level(array: &mut usize, mipmap: usize, level: u32);
    c"cuMipmappedArrayDestroy" mipmapped_array_destroy(mipmap: usize);
    c"cuTexObjectCreate" tex_object_create(object: &mut u64, resource: &DrvResourceDesc, texture: &DrvTextureDesc, view: *const DrvResourceViewDesc);
    c"cuTexObjectDestroy" tex_object_destroy(object: u64);
    c"cuSurfObjectCreate" surf_object_create(object: &mut u64, resource: &DrvResourceDesc);
    c"cuSurfObjectDestroy" surf_object_destroy(object: u64);
    c"cuDeviceGetTexture1DLinearMaxWidth" device_get_texture_1d_linear_max_width(elements: &mut usize, format: i32, channels: u32, device: i32);

    c"cuMemcpy" memcpy(dst: usize, src: usize, len_bytes: usize);
    c"cuMemcpyAsync" memcpy_async(dst: usize, src: usize, len_bytes: usize, stream: usize);
    c"cuMemcpyPeer" memcpy_peer(dst: usize, dst_context: usize, src: usize, src_context: usize, len_bytes: usize);
    c"cuMemcpyPeerAsync" memcpy_peer_async(dst: usize, dst_context: usize, src: usize, src_context: usize, len_bytes: usize, stream: usize);
    c"cuMemcpy3D_v2" memcpy_3d(params: &Memcpy3D);
    c"cuMemcpy3DAsync_v2" memcpy_3d_async(params: &Memcpy3D, stream: usize);
    c"cuMemcpy3DPeer" memcpy_3d_peer(params: &Memcpy3DPeer);
    c"cuMemcpy3DPeerAsync" memcpy_3d_peer_async(params: &Memcpy3DPeer, stream: usize);
    c"cuMemsetD8_v2" memset_d8(dst: usize, value: u8, count: usize);
    c"cuMemsetD16_v2" memset_d16(dst: usize, value: u16, count: usize);
    c"cuMemsetD32_v2" memset_d32(dst: usize, value: u32, count: usize);
    c"cuMemsetD8Async" memset_d8_async(dst: usize, value: u8, count: usize, stream: usize);
    c"cuMemsetD16Async" memset_d16_async(dst: usize, value: u16, count: usize, stream: usize);
    c"cuMemsetD32Async" memset_d32_async(dst: usize, value: u32, count: usize, stream: usize);
    c"cuMemsetD2D8Async" memset_2d_d8_async(dst: usize, pitch: usize, value: u8, width: usize, height: usize, stream: usize);
    c"cuMemsetD2D16Async" memset_2d_d16_async(dst: usize, pitch: usize, value: u16, width: usize, height: usize, stream: usize);
    c"cuMemsetD2D32Async" memset_2d_d32_async(dst: usize, pitch: usize, value: u32, width: usize, height: usize, stream: usize);

    c"cuStreamCreateWithPriority" stream_create(stream: &mut usize, flags: u32, priority: i32);
    c"cuStreamDestroy_v2" stream_destroy(stream: usize);
    c"cuStreamQuery" stream_query(stream: usize);
    c"cuStreamSynchronize" stream_synchronize(stream: usize);
    c"cuStreamWaitEvent" stream_wait_event(stream: usize, event: usize, flags: u32);
    c"cuStreamGetFlags" stream_get_flags(stream: usize, flags: &mut u32);
    c"cuStreamGetAttribute" stream_get_attribute(stream: usize, attribute: i32, value: usize);
    c"cuStreamSetAttribute" stream_set_attribute(stream: usize, attribute: i32, value: usize);
    c"cuStreamGetId" stream_get_id(stream: usize, id: &mut u64);
    c"cuStreamAddCallback" stream_add_callback(stream: usize, function: StreamCallback, user_data: usize, flags: u32);
    c"cuStreamAttachMemAsync" stream_attach_mem_async(stream: usize, address: usize, len_bytes: usize, flags: u32);
    c"cuStreamWaitValue32_v2" stream_wait_value32(stream: usize, address: usize, value: u32, flags: u32);
    c"cuStreamWaitValue64_v2" stream_wait_value64(stream: usize, address: usize, value: u64, flags: u32);
    c"cuStreamWriteValue32_v2" stream_write_value32(stream: usize, address: usize, value: u32, flags: u32);
    c"cuStreamWriteValue64_v2" stream_write_value64(stream: usize, address: usize, value: u64, flags: u32);
    c"cuStreamBatchMemOp_v2" stream_batch_mem_op(stream: usize, count: u32, operations: usize, flags: u32);
    c"cuLaunchHostFunc" launch_host_func(stream: usize, function: HostFn, user_data: usize);
    c"cuStreamBeginCapture_v2" stream_begin_capture(stream: usize, mode: i32);
    c"cuStreamBeginCaptureToGraph" stream_begin_capture_to_graph(stream: usize, graph: usize, dependencies: usize, edge_data: usize, count: usize, mode: i32);
    c"cuStreamEndCapture" stream_end_capture(stream: usize, graph: &mut usize);
    c"cuStreamIsCapturing" stream_is_capturing(stream: usize, status: &mut i32);
    c"cuStreamGetCaptureInfo_v2" stream_get_capture_info(stream: usize, status: &mut i32, id: &mut u64, graph: &mut usize, dependencies: &mut usize, count: &mut usize);
    c"cuStreamUpdateCaptureDependencies" stream_update_capture_dependencies(stream: usize, dependencies: usize, count: usize, flags: u32);
    c"cuThreadExchangeStreamCaptureMode" thread_exchange_stream_capture_mode(mode: &mut i32);

    c"cuEventCreate" event_create(event: &mut usize, flags: u32);
    c"cuEventDestroy_v2" event_destroy(event: usize);
    c"cuEventRecord" event_record(event: usize, stream: usize);
    c"cuEventRecordWithFlags" event_record_with_flags(event: usize, stream: usize, flags: u32);
    c"cuEventQuery" event_query(event: usize);
    c"cuEventSynchronize" event_synchronize(event: usize);
    c"cuEventElapsedTime" event_elapsed_time(ms: &mut f32, start: usize, stop: usize);

    c"cuModuleLoadDataEx" module_load_data(module: &mut usize, image: *const u8, count: u32, options: *const i32, values: *const usize);
    c"cuModuleUnload" module_unload(module: usize);
    c"cuModuleGetFunction" module_get_function(function: &mut usize, module: usize, name: *const c_char);
    c"cuModuleGetFunctionCount" module_get_function_count(count: &mut u32, module: usize);
    c"cuModuleGetGlobal_v2" module_get_global(address: &mut usize, len_bytes: &mut usize, module: usize, name: *const c_char);
    c"cuModuleEnumerateFunctions" module_enumerate_functions(functions: *mut usize, count: u32, module: usize);
    c"cuLinkCreate_v2" link_create(count: u32, options: usize, values: usize, link: &mut usize);
    c"cuLinkAddData_v2" link_add_data(link: usize, kind: i32, data: *const u8, len_bytes: usize, name: *const c_char, count: u32, options: usize, values: usize);
    c"cuLinkComplete" link_complete(link: usize, image: &mut usize, len_bytes: &mut usize);
    c"cuLinkDestroy" link_destroy(link: usize);
    c"cuFuncGetAttribute" func_get_attribute(value: &mut i32, attribute: i32, function: usize);
    c"cuFuncSetAttribute" func_set_attribute(function: usize, attribute: i32, value: i32);
    c"cuFuncSetCacheConfig" func_set_cache_config(function: usize, config: i32);
    c"cuFuncGetParamInfo" func_get_param_info(function: usize, index: usize, offset: &mut usize, len_bytes: &mut usize);
    c"cuFuncGetName" func_get_name(name: &mut usize, function: usize);
    c"cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags" occupancy_blocks(blocks: &mut i32, function: usize, threads: i32, shared_bytes: usize, flags: u32);
    c"cuOccupancyMaxPotentialBlockSizeWithFlags" occupancy_block_size(grid: &mut i32, block: &mut i32, function: usize, shared_of_block: usize, shared_bytes: usize, limit: i32, flags: u32);
    c"cuOccupancyAvailableDynamicSMemPerBlock" occupancy_shared(shared_bytes: &mut usize, function: usize, blocks: i32, threads: i32);
    c"cuOccupancyMaxPotentialClusterSize" occupancy_cluster_size(size: &mut i32, function: usize, config: &DrvLaunchConfig);
    c"cuOccupancyMaxActiveClusters" occupancy_clusters(count: &mut i32, function: usize, config: &DrvLaunchConfig);
    c"cuLaunchKernel" launch_kernel(function: usize, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32, shared_bytes: u32, stream: usize, params: usize, extra: usize);
    c"cuLaunchCooperativeKernel" launch_cooperative_kernel(function: usize, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32, shared_bytes: u32, stream: usize, params: usize);

    c"cuMemAllocAsync" mem_alloc_async(address: &mut usize, len_bytes: usize, stream: usize);
    c"cuMemAllocFromPoolAsync" mem_alloc_from_pool_async(address: &mut usize, len_bytes: usize, pool: usize, stream: usize);
    c"cuMemFreeAsync" mem_free_async(address: usize, stream: usize);
    c"cuMemPoolCreate" mem_pool_create(pool: &mut usize, props: &crate::abi::MemPoolProps);
    c"cuMemPoolDestroy" mem_pool_destroy(pool: usize);
    c"cuMemPoolTrimTo" mem_pool_trim_to(pool: usize, keep_bytes: usize);
    c"cuMemPoolGetAttribute" mem_pool_get_attribute(pool: usize, attribute: i32, value: usize);
    c"cuMemPoolSetAttribute" mem_pool_set_attribute(pool: usize, attribute: i32, value: usize);
    c"cuMemPoolSetAccess" mem_pool_set_access(pool: usize, descriptors: usize, count: usize);
    c"cuMemPoolGetAccess" mem_pool_get_access(flags: &mut u32, pool: usize, location: &MemLocation);
    c"cuDeviceGetDefaultMemPool" device_get_default_mem_pool(pool: &mut usize, device: i32);
    c"cuDeviceGetMemPool" device_get_mem_pool(pool: &mut usize, device: i32);
    c"cuDeviceSetMemPool" device_set_mem_pool(device: i32, pool: usize);

    c"cuMemGetAllocationGranularity" mem_get_allocation_granularity(len_bytes: &mut usize, props: &super::abi::MemAllocationProp, option: i32);
    c"cuMemAddressReserve" mem_address_reserve(address: &mut usize, len_bytes: usize, alignment: usize, wanted: usize, flags: u64);
    c"cuMemAddressFree" mem_address_free(address: usize, len_bytes: usize);
    c"cuMemCreate" mem_create(handle: &mut usize, len_bytes: usize, props: &super::abi::MemAllocationProp, flags: u64);
    c"cuMemRelease" mem_release(handle: usize);
    c"cuMemMap" mem_map(address: usize, len_bytes: usize, offset_bytes: usize, handle: usize, flags: u64);
    c"cuMemUnmap" mem_unmap(address: usize, len_bytes: usize);
    c"cuMemSetAccess" mem_set_access(address: usize, len_bytes: usize, descriptors: *const MemAccessDesc, count: usize);
    c"cuMemGetAccess" mem_get_access(flags: &mut u64, location: &MemLocation, address: usize);
    c"cuMemGetAllocationPropertiesFromHandle" mem_get_allocation_properties(props: &mut super::abi::MemAllocationProp, handle: usize);
    c"cuMemRetainAllocationHandle" mem_retain_allocation_handle(handle: &mut usize, address: usize);
    c"cuMemExportToShareableHandle" mem_export(descriptor: &mut i32, handle: usize, handle_type: i32, flags: u64);
    c"cuMemImportFromShareableHandle" mem_import(handle: &mut usize, descriptor: usize, handle_type: i32);

    c"cuGraphCreate" graph_create(graph: &mut usize, flags: u32);
    c"cuGraphDestroy" graph_destroy(graph: usize);
    c"cuGraphClone" graph_clone(clone: &mut usize, original: usize);
    c"cuGraphNodeFindInClone" graph_node_find_in_clone(node: &mut usize, original: usize, clone: usize);
    c"cuGraphAddEmptyNode" graph_add_empty_node(node: &mut usize, graph: usize, dependencies: usize, count: usize);
    c"cuGraphAddKernelNode_v2" graph_add_kernel_node(node: &mut usize, graph: usize, dependencies: usize, count: usize, params: &KernelNodeParams);
    c"cuGraphAddMemcpyNode" graph_add_memcpy_node(node: &mut usize, graph: usize, dependencies: usize, count: usize, params: &Memcpy3D, context: usize);
    c"cuGraphAddMemsetNode" graph_add_memset_node(node: &mut usize, graph: usize, dependencies: usize, count: usize, params: &MemsetNodeParams, context: usize);
    c"cuGraphAddHostNode" graph_add_host_node(node: &mut usize, graph: usize, dependencies: usize, count: usize, params: &HostNodeParams);
    c"cuGraphAddChildGraphNode" graph_add_child_graph_node(node: &mut usize, graph: usize, dependencies: usize, count: usize, child: usize);
    c"cuGraphAddEventRecordNode" graph_add_event_record_node(node: &mut usize, graph: usize, dependencies: usize, count: usize, event: usize);
    c"cuGraphAddEventWaitNode" graph_add_event_wait_node(node: &mut usize, graph: usize, dependencies: usize, count: usize, event: usize);
    c"cuGraphAddMemAllocNode" graph_add_mem_alloc_node(node: &mut usize, graph: usize, dependencies: usize, count: usize, params: &mut MemAllocNodeParams);
    c"cuGraphAddMemFreeNode" graph_add_mem_free_node(node: &mut usize, graph: usize, dependencies: usize, count: usize, address: usize);
    c"cuGraphMemAllocNodeGetParams" graph_mem_alloc_node_get_params(node: usize, params: usize);
    c"cuGraphMemFreeNodeGetParams" graph_mem_free_node_get_params(node: usize, address: &mut usize);
    c"cuGraphAddDependencies" graph_add_dependencies(graph: usize, from: usize, to: usize, count: usize);
    c"cuGraphRemoveDependencies" graph_remove_dependencies(graph: usize, from: usize, to: usize, count: usize);
    c"cuGraphDestroyNode" graph_destroy_node(node: usize);
    c"cuGraphGetNodes" graph_get_nodes(graph: usize, nodes: usize, count: usize);
    c"cuGraphGetRootNodes" graph_get_root_nodes(graph: usize, nodes: usize, count: usize);
    c"cuGraphGetEdges" graph_get_edges(graph: usize, from: usize, to: usize, count: usize);
    c"cuGraphNodeGetDependencies" graph_node_get_dependencies(node: usize, nodes: usize, count: usize);
    c"cuGraphNodeGetDependentNodes" graph_node_get_dependent_nodes(node: usize, nodes: usize, count: usize);
    c"cuGraphNodeGetType" graph_node_get_type(node: usize, node_type: &mut i32);
    c"cuGraphChildGraphNodeGetGraph" graph_child_graph_node_get_graph(node: usize, graph: &mut usize);
    c"cuGraphKernelNodeGetParams_v2" graph_kernel_node_get_params(node: usize, params: &mut KernelNodeParams);
    c"cuGraphKernelNodeSetParams_v2" graph_kernel_node_set_params(node: usize, params: &KernelNodeParams);
    c"cuGraphMemcpyNodeGetParams" graph_memcpy_node_get_params(node: usize, params: &mut Memcpy3D);
    c"cuGraphMemcpyNodeSetParams" graph_memcpy_node_set_params(node: usize, params: &Memcpy3D);
    c"cuGraphMemsetNodeGetParams" graph_memset_node_get_params(node: usize, params: &mut MemsetNodeParams);
    c"cuGraphMemsetNodeSetParams" graph_memset_node_set_params(node: usize, params: &MemsetNodeParams);
    c"cuGraphHostNodeGetParams" graph_host_node_get_params(node: usize, params: &mut HostNodeParams);
    c"cuGraphHostNodeSetParams" graph_host_node_set_params(node: usize, params: &HostNodeParams);
    c"cuGraphEventRecordNodeGetEvent" graph_event_record_node_get_event(node: usize, event: &mut usize);
    c"cuGraphEventRecordNodeSetEvent" graph_event_record_node_set_event(node: usize, event: usize);
    c"cuGraphEventWaitNodeGetEvent" graph_event_wait_node_get_event(node: usize, event: &mut usize);
    c"cuGraphEventWaitNodeSetEvent" graph_event_wait_node_set_event(node: usize, event: usize);
    c"cuGraphKernelNodeCopyAttributes" graph_kernel_node_copy_attributes(to: usize, from: usize);
    c"cuGraphKernelNodeGetAttribute" graph_kernel_node_get_attribute(node: usize, attribute: i32, value: &mut [u64; 8]);
    c"cuGraphKernelNodeSetAttribute" graph_kernel_node_set_attribute(node: usize, attribute: i32, value: &[u64; 8]);
    c"cuGraphAddBatchMemOpNode" graph_add_batch_mem_op_node(node: &mut usize, graph: usize, dependencies: usize, count: usize, params: &DriverBatchNode);
    c"cuGraphBatchMemOpNodeGetParams" graph_batch_mem_op_node_get_params(node: usize, params: &mut DriverBatchNode);
    c"cuGraphBatchMemOpNodeSetParams" graph_batch_mem_op_node_set_params(node: usize, params: &DriverBatchNode);
    c"cuGraphExecBatchMemOpNodeSetParams" graph_exec_batch_mem_op_node_set_params(exec: usize, node: usize, params: &DriverBatchNode);
    c"cuGraphInstantiateWithFlags" graph_instantiate(exec: &mut usize, graph: usize, flags: u64);
    c"cuGraphExecDestroy" graph_exec_destroy(exec: usize);
    c"cuGraphExecGetFlags" graph_exec_get_flags(exec: usize, flags: &mut u64);
    c"cuGraphLaunch" graph_launch(exec: usize, stream: usize);
    c"cuGraphUpload" graph_upload(exec: usize, stream: usize);
    c"cuGraphExecUpdate_v2" graph_exec_update(exec: usize, graph: usize, result: &mut GraphExecUpdateResultInfo);
    c"cuGraphExecKernelNodeSetParams_v2" graph_exec_kernel_node_set_params(exec: usize, node: usize, params: &KernelNodeParams);
    c"cuGraphExecMemcpyNodeSetParams" graph_exec_memcpy_node_set_params(exec: usize, node: usize, params: &Memcpy3D, context: usize);
    c"cuGraphExecMemsetNodeSetParams" graph_exec_memset_node_set_params(exec: usize, node: usize, params: &MemsetNodeParams, context: usize);
    c"cuGraphExecHostNodeSetParams" graph_exec_host_node_set_params(exec: usize, node: usize, params: &HostNodeParams);
    c"cuGraphExecChildGraphNodeSetParams" graph_exec_child_graph_node_set_params(exec: usize, node: usize, child: usize);
    c"cuGraphExecEventRecordNodeSetEvent" graph_exec_event_record_node_set_event(exec: usize, node: usize, event: usize);
    c"cuGraphExecEventWaitNodeSetEvent" graph_exec_event_wait_node_set_event(exec: usize, node: usize, event: usize);
    c"cuGraphNodeSetEnabled" graph_node_set_enabled(exec: usize, node: usize, is_enabled: u32);
    c"cuGraphNodeGetEnabled" graph_node_get_enabled(exec: usize, node: usize, is_enabled: &mut u32);
    c"cuGraphDebugDotPrint" graph_debug_dot_print(graph: usize, path: *const c_char, flags: u32);
    c"cuDeviceGetGraphMemAttribute" device_get_graph_mem_attribute(device: i32, attribute: i32, value: usize);
    c"cuDeviceSetGraphMemAttribute" device_set_graph_mem_attribute(device: i32, attribute: i32, value: usize);
    c"cuDeviceGraphMemTrim" device_graph_mem_trim(device: i32);
    c"cuUserObjectCreate" user_object_create(object: &mut usize, pointer: usize, destroy: HostFn, count: u32, flags: u32);
    c"cuUserObjectRetain" user_object_retain(object: usize, count: u32);
    c"cuUserObjectRelease" user_object_release(object: usize, count: u32);
    c"cuGraphRetainUserObject" graph_retain_user_object(graph: usize, object: usize, count: u32, flags: u32);
    c"cuGraphReleaseUserObject" graph_release_user_object(graph: usize, object: usize, count: u32);
}

/// The sizes of a launch as `cuLaunchKernel` takes them.
pub(super) fn launch(
    function: usize,
    grid: Dim3,
    block: Dim3,
    shared_bytes: u32,
    stream: usize,
    params: usize,
    extra: usize,
) -> HipResult {
    launch_kernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared_bytes, stream, params, extra)
}
