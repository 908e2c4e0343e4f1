//! Structs of HIP's C ABI, as in the headers of HIP 7.

use crate::api::In;

/// `dim3`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dim3 {
    pub(crate) x: u32,
    pub(crate) y: u32,
    pub(crate) z: u32,
}

impl Dim3 {
    /// The three sizes.
    pub(crate) fn array(self) -> [u32; 3] {
        [self.x, self.y, self.z]
    }

    /// The number of elements, unless it exceeds 64 bits.
    pub(crate) fn volume(self) -> Option<u64> {
        u64::from(self.x).checked_mul(u64::from(self.y))?.checked_mul(u64::from(self.z))
    }
}

/// `hipExtent`: bytes, rows, slices.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extent {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
}

/// `hipPos`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pos {
    pub(crate) x: usize,
    pub(crate) y: usize,
    pub(crate) z: usize,
}

/// `hipPitchedPtr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PitchedPtr {
    pub(crate) ptr: usize,
    pub(crate) pitch: usize,
    pub(crate) xsize: usize,
    pub(crate) ysize: usize,
}

/// `hipMemcpy3DParms`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memcpy3DParms {
    pub(crate) src_array: usize,
    pub(crate) src_pos: Pos,
    pub(crate) src_ptr: PitchedPtr,
    pub(crate) dst_array: usize,
    pub(crate) dst_pos: Pos,
    pub(crate) dst_ptr: PitchedPtr,
    pub(crate) extent: Extent,
    pub(crate) kind: i32,
}

/// `hipMemcpy3DPeerParms`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memcpy3DPeerParms {
    pub(crate) src_array: usize,
    pub(crate) src_pos: Pos,
    pub(crate) src_ptr: PitchedPtr,
    pub(crate) src_device: i32,
    pub(crate) dst_array: usize,
    pub(crate) dst_pos: Pos,
    pub(crate) dst_ptr: PitchedPtr,
    pub(crate) dst_device: i32,
    pub(crate) extent: Extent,
}

/// `hip_Memcpy2D`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memcpy2D {
    pub(crate) src_x_bytes: usize,
    pub(crate) src_y: usize,
    pub(crate) src_memory_type: i32,
    pub(crate) src_host: usize,
    pub(crate) src_device: usize,
    pub(crate) src_array: usize,
    pub(crate) src_pitch: usize,
    pub(crate) dst_x_bytes: usize,
    pub(crate) dst_y: usize,
    pub(crate) dst_memory_type: i32,
    pub(crate) dst_host: usize,
    pub(crate) dst_device: usize,
    pub(crate) dst_array: usize,
    pub(crate) dst_pitch: usize,
    pub(crate) width_bytes: usize,
    pub(crate) height: usize,
}

/// `HIP_MEMCPY3D`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DrvMemcpy3D {
    pub(crate) src_x_bytes: usize,
    pub(crate) src_y: usize,
    pub(crate) src_z: usize,
    pub(crate) src_lod: usize,
    pub(crate) src_memory_type: i32,
    pub(crate) src_host: usize,
    pub(crate) src_device: usize,
    pub(crate) src_array: usize,
    pub(crate) src_pitch: usize,
    pub(crate) src_height: usize,
    pub(crate) dst_x_bytes: usize,
    pub(crate) dst_y: usize,
    pub(crate) dst_z: usize,
    pub(crate) dst_lod: usize,
    pub(crate) dst_memory_type: i32,
    pub(crate) dst_host: usize,
    pub(crate) dst_device: usize,
    pub(crate) dst_array: usize,
    pub(crate) dst_pitch: usize,
    pub(crate) dst_height: usize,
    pub(crate) width_bytes: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
}

/// `hipMemsetParams`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemsetParams {
    pub(crate) dst: usize,
    pub(crate) element_size: u32,
    pub(crate) height: usize,
    pub(crate) pitch: usize,
    pub(crate) value: u32,
    pub(crate) width: usize,
}

/// `hipKernelNodeParams`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelNodeParams {
    pub(crate) block: Dim3,
    pub(crate) extra: In<usize>,
    pub(crate) func: usize,
    pub(crate) grid: Dim3,
    pub(crate) kernel_params: In<usize>,
    pub(crate) shared_bytes: u32,
}

/// A C function called with its user data (`hipHostFn_t`).
pub(crate) type HostFn = extern "C" fn(usize);

/// `hipHostNodeParams`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostNodeParams {
    pub(crate) function: Option<HostFn>,
    pub(crate) user_data: usize,
}

/// `hipMemLocation`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MemLocation {
    pub(crate) kind: i32,
    pub(crate) id: i32,
}

/// `hipMemLocationTypeDevice`.
pub(crate) const LOCATION_DEVICE: i32 = 1;

/// `hipMemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemAccessDesc {
    pub(crate) location: MemLocation,
    pub(crate) flags: u32,
}

/// `hipMemPoolProps`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemPoolProps {
    pub(crate) alloc_type: i32,
    pub(crate) handle_types: i32,
    pub(crate) location: MemLocation,
    pub(crate) win32_security_attributes: usize,
    pub(crate) max_size: usize,
    pub(crate) reserved: [u8; 56],
}

/// `hipMemAllocNodeParams`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemAllocNodeParams {
    pub(crate) pool_props: MemPoolProps,
    pub(crate) access_descs: usize,
    pub(crate) access_desc_count: usize,
    pub(crate) len_bytes: usize,
    pub(crate) device_pointer: usize,
}

/// `hipMemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MemAllocationProp {
    pub(crate) kind: i32,
    pub(crate) requested_handle_type: i32,
    pub(crate) location: MemLocation,
    pub(crate) win32_handle_meta_data: usize,
    pub(crate) compression_type: u8,
    pub(crate) gpu_direct_rdma_capable: u8,
    pub(crate) usage: u16,
}

impl MemAllocationProp {
    /// The same properties if they were written with the headers before HIP 6, which order the fields differently
    /// (compression type, location, handle type, type, usage, handle data): there the first word is 0, here a type.
    pub(crate) fn normalized(self) -> Self {
        if self.kind != 0 {
            return self;
        }
        Self {
            kind: self.win32_handle_meta_data as i32,
            requested_handle_type: self.location.id,
            location: MemLocation { kind: self.requested_handle_type, id: self.location.kind },
            win32_handle_meta_data: 0,
            compression_type: 0,
            gpu_direct_rdma_capable: 0,
            usage: 0,
        }
    }
}

/// `hipPointerAttribute_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct PointerAttributes {
    pub(crate) memory_type: i32,
    pub(crate) device: i32,
    pub(crate) device_pointer: usize,
    pub(crate) host_pointer: usize,
    pub(crate) is_managed: i32,
    pub(crate) allocation_flags: u32,
}

/// `hipFuncAttributes`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct FuncAttributes {
    pub(crate) binary_version: i32,
    pub(crate) cache_mode_ca: i32,
    pub(crate) const_size_bytes: usize,
    pub(crate) local_size_bytes: usize,
    pub(crate) max_dynamic_shared_size_bytes: i32,
    pub(crate) max_threads_per_block: i32,
    pub(crate) num_regs: i32,
    pub(crate) preferred_shmem_carveout: i32,
    pub(crate) ptx_version: i32,
    pub(crate) shared_size_bytes: usize,
}

/// `hipLaunchParams`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchParams {
    pub(crate) func: usize,
    pub(crate) grid: Dim3,
    pub(crate) block: Dim3,
    pub(crate) args: In<usize>,
    pub(crate) shared_bytes: usize,
    pub(crate) stream: usize,
}

/// `hipFunctionLaunchParams`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct FunctionLaunchParams {
    pub(crate) function: usize,
    pub(crate) grid: Dim3,
    pub(crate) block: Dim3,
    pub(crate) shared_bytes: u32,
    pub(crate) stream: usize,
    pub(crate) kernel_params: In<usize>,
}

/// `hipLaunchConfig_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchConfig {
    pub(crate) grid: Dim3,
    pub(crate) block: Dim3,
    pub(crate) shared_bytes: usize,
    pub(crate) stream: usize,
    pub(crate) attributes: usize,
    pub(crate) attribute_count: u32,
}

/// `hipLaunchAttribute`: an id and a union of 16 words.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchAttribute {
    pub(crate) id: i32,
    pub(crate) pad: u32,
    pub(crate) value: [u32; 16],
}

/// `HIP_LAUNCH_CONFIG`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct DrvLaunchConfig {
    pub(crate) grid: Dim3,
    pub(crate) block: Dim3,
    pub(crate) shared_bytes: u32,
    pub(crate) stream: usize,
    pub(crate) attributes: usize,
    pub(crate) attribute_count: u32,
}

/// `hipGraphInstantiateParams`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct GraphInstantiateParams {
    pub(crate) error_node: usize,
    pub(crate) flags: u64,
    pub(crate) result: i32,
    pub(crate) upload_stream: usize,
}

/// `hipGraphNodeParams`: a type and a union of the node kinds' parameters (29 words).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct GraphNodeParams {
    pub(crate) node_type: i32,
    pub(crate) reserved0: [i32; 3],
    pub(crate) words: [u64; 29],
    pub(crate) reserved2: i64,
}

/// `hipStreamBatchMemOpParams`: a union of 6 words; the operation is in the first.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchMemOpParams {
    pub(crate) operation: u32,
    pub(crate) flags_of_barrier: u32,
    pub(crate) address: usize,
    pub(crate) value: u64,
    pub(crate) flags: u32,
    pub(crate) alias: usize,
    pub(crate) pad: u64,
}

/// `hipExternalMemoryHandleDesc`; of its union the file descriptor.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExternalMemoryHandleDesc {
    pub(crate) kind: i32,
    pub(crate) pad: u32,
    pub(crate) descriptor: i32,
    pub(crate) rest: [u32; 3],
    pub(crate) len_bytes: u64,
    pub(crate) flags: u32,
    pub(crate) reserved: [u32; 16],
}

/// `hipExternalMemoryBufferDesc`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExternalMemoryBufferDesc {
    pub(crate) offset_bytes: u64,
    pub(crate) len_bytes: u64,
    pub(crate) flags: u32,
    pub(crate) reserved: [u32; 16],
}

/// `hipExternalMemoryMipmappedArrayDesc`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExternalMemoryMipmappedArrayDesc {
    pub(crate) offset_bytes: u64,
    pub(crate) channels: ChannelFormatDesc,
    pub(crate) extent: Extent,
    pub(crate) flags: u32,
    pub(crate) levels: u32,
}

/// `hipExternalSemaphoreSignalNodeParams` and `hipExternalSemaphoreWaitNodeParams`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExternalSemaphoreNodeParams {
    pub(crate) semaphores: usize,
    pub(crate) params: usize,
    pub(crate) count: u32,
}

/// `hipChannelFormatDesc`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChannelFormatDesc {
    pub(crate) x: i32,
    pub(crate) y: i32,
    pub(crate) z: i32,
    pub(crate) w: i32,
    pub(crate) kind: i32,
}

/// `HIP_ARRAY_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrayDescriptor {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) format: i32,
    pub(crate) channels: u32,
}

/// `HIP_ARRAY3D_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Array3DDescriptor {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
    pub(crate) format: i32,
    pub(crate) channels: u32,
    pub(crate) flags: u32,
}

/// `hipResourceDesc`: a type and a union of 7 words.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ResourceDesc {
    pub(crate) kind: i32,
    pub(crate) words: [u64; 7],
}

/// `HIP_RESOURCE_DESC`: the driver interface's, a type, a union of 16 words, and flags.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DrvResourceDesc {
    pub(crate) kind: i32,
    pub(crate) words: [u64; 16],
    pub(crate) flags: u32,
}

/// `hipTextureDesc`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct TextureDesc {
    pub(crate) address_mode: [i32; 3],
    pub(crate) filter_mode: i32,
    pub(crate) read_mode: i32,
    pub(crate) srgb: i32,
    pub(crate) border: [f32; 4],
    pub(crate) normalized_coords: i32,
    pub(crate) max_anisotropy: u32,
    pub(crate) mipmap_filter_mode: i32,
    pub(crate) level_bias: f32,
    pub(crate) level_min: f32,
    pub(crate) level_max: f32,
}

/// `HIP_TEXTURE_DESC`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DrvTextureDesc {
    pub(crate) address_mode: [i32; 3],
    pub(crate) filter_mode: i32,
    pub(crate) flags: u32,
    pub(crate) max_anisotropy: u32,
    pub(crate) mipmap_filter_mode: i32,
    pub(crate) level_bias: f32,
    pub(crate) level_min: f32,
    pub(crate) level_max: f32,
    pub(crate) border: [f32; 4],
    pub(crate) reserved: [i32; 12],
}

/// `hipResourceViewDesc`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ResourceViewDesc {
    pub(crate) format: i32,
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
    pub(crate) first_level: u32,
    pub(crate) last_level: u32,
    pub(crate) first_layer: u32,
    pub(crate) last_layer: u32,
}

/// `HIP_RESOURCE_VIEW_DESC`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DrvResourceViewDesc {
    pub(crate) view: ResourceViewDesc,
    pub(crate) reserved: [u32; 16],
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes as a C compiler gives them for the headers of HIP 7.1.
    #[test]
    fn sizes_are_the_headers() {
        let found = [
            size_of::<Memcpy3DParms>(),
            size_of::<Memcpy3DPeerParms>(),
            size_of::<Memcpy2D>(),
            size_of::<DrvMemcpy3D>(),
            size_of::<MemsetParams>(),
            size_of::<KernelNodeParams>(),
            size_of::<MemPoolProps>(),
            size_of::<MemAllocNodeParams>(),
            size_of::<MemAllocationProp>(),
            size_of::<PointerAttributes>(),
            size_of::<FuncAttributes>(),
            size_of::<LaunchParams>(),
            size_of::<FunctionLaunchParams>(),
            size_of::<LaunchConfig>(),
            size_of::<DrvLaunchConfig>(),
            size_of::<GraphInstantiateParams>(),
            size_of::<GraphNodeParams>(),
            size_of::<BatchMemOpParams>(),
            size_of::<ResourceDesc>(),
            size_of::<DrvResourceDesc>(),
            size_of::<TextureDesc>(),
            size_of::<DrvTextureDesc>(),
            size_of::<ResourceViewDesc>(),
            size_of::<DrvResourceViewDesc>(),
            size_of::<ExternalMemoryHandleDesc>(),
            size_of::<ExternalMemoryBufferDesc>(),
            size_of::<ExternalMemoryMipmappedArrayDesc>(),
            size_of::<ExternalSemaphoreNodeParams>(),
        ];
        assert_eq!(
            found,
            [
                160, 168, 128, 184, 48, 64, 88, 120, 32, 32, 56, 56, 56, 56, 56, 32, 256, 48, 64, 144, 64, 104, 48,
                112, 104, 88, 64, 24
            ]
        );
        assert_eq!(std::mem::offset_of!(KernelNodeParams, kernel_params), 48);
        assert_eq!(std::mem::offset_of!(BatchMemOpParams, flags), 24);
    }

    #[test]
    fn allocation_properties_of_both_header_generations_mean_the_same() {
        let location = MemLocation { kind: LOCATION_DEVICE, id: 3 };
        let new = MemAllocationProp { kind: 1, requested_handle_type: 1, location, ..Default::default() };
        // The old struct's words: compression 0, location (1, 3), handle type 1, type 1, usage 0.
        let old = MemAllocationProp {
            kind: 0,
            requested_handle_type: 1,
            location: MemLocation { kind: 3, id: 1 },
            win32_handle_meta_data: 1,
            ..Default::default()
        };
        for normalized in [new.normalized(), old.normalized()] {
            assert_eq!((normalized.kind, normalized.requested_handle_type), (1, 1));
            assert_eq!((normalized.location.kind, normalized.location.id), (LOCATION_DEVICE, 3));
        }
    }
}
