//! Structs of the CUDA driver's C ABI (64-bit), where they differ from HIP's.

use crate::abi::{Dim3, HostFn, MemLocation};

/// `CU_MEMORYTYPE_HOST`, `..._DEVICE`, `..._ARRAY`, `..._UNIFIED`.
pub(super) const HOST: u32 = 1;
pub(super) const DEVICE: u32 = 2;
pub(super) const ARRAY: u32 = 3;
pub(super) const UNIFIED: u32 = 4;

/// `CUDA_MEMCPY3D_v2`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Memcpy3D {
    pub(super) src_x_bytes: usize,
    pub(super) src_y: usize,
    pub(super) src_z: usize,
    pub(super) src_lod: usize,
    pub(super) src_memory_type: u32,
    pub(super) src_host: usize,
    pub(super) src_device: usize,
    pub(super) src_array: usize,
    pub(super) reserved0: usize,
    pub(super) src_pitch: usize,
    pub(super) src_height: usize,
    pub(super) dst_x_bytes: usize,
    pub(super) dst_y: usize,
    pub(super) dst_z: usize,
    pub(super) dst_lod: usize,
    pub(super) dst_memory_type: u32,
    pub(super) dst_host: usize,
    pub(super) dst_device: usize,
    pub(super) dst_array: usize,
    pub(super) reserved1: usize,
    pub(super) dst_pitch: usize,
    pub(super) dst_height: usize,
    pub(super) width_bytes: usize,
    pub(super) height: usize,
    pub(super) depth: usize,
}

/// `CUDA_MEMCPY3D_PEER`: the same with contexts where the reserved words are.
pub(super) type Memcpy3DPeer = Memcpy3D;

/// `CUDA_KERNEL_NODE_PARAMS_v2`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KernelNodeParams {
    pub(super) function: usize,
    pub(super) grid: Dim3,
    pub(super) block: Dim3,
    pub(super) shared_bytes: u32,
    pub(super) kernel_params: usize,
    pub(super) extra: usize,
    pub(super) kernel: usize,
    pub(super) context: usize,
}

/// `CUDA_MEMSET_NODE_PARAMS_v1`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MemsetNodeParams {
    pub(super) dst: usize,
    pub(super) pitch: usize,
    pub(super) value: u32,
    pub(super) element_bytes: u32,
    pub(super) width: usize,
    pub(super) height: usize,
}

/// `CUDA_HOST_NODE_PARAMS_v1`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HostNodeParams {
    pub(super) function: Option<HostFn>,
    pub(super) user_data: usize,
}

/// `CUDA_BATCH_MEM_OP_NODE_PARAMS_v2`: HIP's, with the context given.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DriverBatchNode {
    pub(super) context: usize,
    pub(super) count: u32,
    pub(super) operations: usize,
    pub(super) flags: u32,
}

/// `CUgraphExecUpdateResultInfo`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GraphExecUpdateResultInfo {
    pub(super) result: i32,
    pub(super) error_node: usize,
    pub(super) error_from_node: usize,
}

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MemAllocationProp {
    pub(super) kind: i32,
    pub(super) requested_handle_types: i32,
    pub(super) location: MemLocation,
    pub(super) win32_handle_meta_data: usize,
    pub(super) compression_type: u8,
    pub(super) gpu_direct_rdma_capable: u8,
    pub(super) usage: u16,
    pub(super) reserved: [u8; 4],
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{
        Array3DDescriptor, BatchMemOpParams, DrvLaunchConfig, DrvResourceDesc, DrvResourceViewDesc, DrvTextureDesc,
        LaunchAttribute, ResourceViewDesc,
    };
    use crate::execution_context::DevResource;
    use crate::exports::IpcHandle;
    use std::mem::offset_of;

    /// Sizes and offsets as a C compiler gives them for `cuda.h`.
    #[test]
    fn layouts_are_the_headers() {
        let found = [
            size_of::<Memcpy3D>(),
            size_of::<KernelNodeParams>(),
            size_of::<MemsetNodeParams>(),
            size_of::<HostNodeParams>(),
            size_of::<GraphExecUpdateResultInfo>(),
            size_of::<MemAllocationProp>(),
            size_of::<DriverBatchNode>(),
            size_of::<IpcHandle>(),
            offset_of!(Memcpy3D, src_pitch),
            offset_of!(Memcpy3D, dst_memory_type),
            offset_of!(KernelNodeParams, shared_bytes),
            offset_of!(KernelNodeParams, kernel_params),
            offset_of!(DriverBatchNode, operations),
        ];
        assert_eq!(found, [200, 72, 40, 16, 24, 32, 32, 64, 72, 120, 32, 40, 16]);
    }

    /// Structs of HIP's that are passed to the driver as they are: they have the driver's layout.
    #[test]
    fn layouts_that_are_shared_agree() {
        let found = [
            size_of::<Array3DDescriptor>(),
            offset_of!(Array3DDescriptor, flags),
            size_of::<DrvResourceDesc>(),
            offset_of!(DrvResourceDesc, words),
            offset_of!(DrvResourceDesc, flags),
            size_of::<DrvTextureDesc>(),
            offset_of!(DrvTextureDesc, flags),
            offset_of!(DrvTextureDesc, border),
            size_of::<DrvResourceViewDesc>(),
            offset_of!(ResourceViewDesc, width),
            offset_of!(ResourceViewDesc, last_layer),
            size_of::<BatchMemOpParams>(),
            offset_of!(BatchMemOpParams, alias),
            size_of::<DrvLaunchConfig>(),
            offset_of!(DrvLaunchConfig, stream),
            offset_of!(DrvLaunchConfig, attributes),
            size_of::<LaunchAttribute>(),
            offset_of!(LaunchAttribute, value),
            size_of::<DevResource>(),
            offset_of!(DevResource, units),
        ];
        assert_eq!(found, [40, 32, 144, 8, 136, 104, 16, 40, 112, 8, 44, 48, 32, 56, 32, 40, 72, 8, 144, 96]);
    }
}
