//! What the devices say of themselves: the figures of an MI300X, except for the memory size.

use crate::config::config;
use crate::device::Device;
use crate::error::{HipError, HipResult};

/// Threads a block may have.
pub(crate) const MAX_THREADS_PER_BLOCK: u64 = 1024;
/// Shared memory a block may have in bytes (LDS of an MI300).
pub(crate) const SHARED_BYTES_PER_BLOCK: usize = 64 << 10;
/// Compute units of a device.
pub(crate) const MULTIPROCESSORS: i32 = 304;
/// Threads resident on one compute unit at most.
pub(crate) const MAX_THREADS_PER_MULTIPROCESSOR: i32 = 2048;
const WARP_SIZE: i32 = 64;
const CLOCK_KHZ: i32 = 2_100_000;
const MEMORY_CLOCK_KHZ: i32 = 1_300_000;
const MEMORY_BUS_BITS: i32 = 8192;
const WALL_CLOCK_KHZ: i32 = 100_000;
const L2_BYTES: i32 = 4 << 20;
const REGISTERS_PER_BLOCK: i32 = 65_536;
const MAX_GRID: [i32; 3] = [i32::MAX, 65_536, 65_536];
const CONSTANT_BYTES: i32 = i32::MAX;
/// Every `hipDeviceArch_t` feature but dynamic parallelism and funnel shift.
const ARCH_FEATURES: u32 = 0xF7FF;
/// Marketing name of the devices.
pub(crate) const NAME: &str = "minihip CPU device";
/// `hipRuntimeGetVersion`: 7.1.
pub(crate) const RUNTIME_VERSION: i32 = 70_151_831;

/// Bus number of a device: no two share one.
pub(crate) fn pci_bus(device: &Device) -> i32 {
    3 + device.index as i32
}

/// `dddd:bb:dd.f`, as `hipDeviceGetPCIBusId` spells it.
pub(crate) fn pci_text(device: &Device) -> String {
    format!("0000:{:02x}:00.0", pci_bus(device))
}

/// Compute capability of the reported architecture: gfx942 is 9.4, gfx1100 is 11.0.
pub(crate) fn capability() -> (i32, i32) {
    let digits: String =
        config().arch.trim_start_matches("gfx").chars().take_while(char::is_ascii_alphanumeric).collect();
    let major_digits = digits.len().saturating_sub(2).max(1);
    let major = digits.get(..major_digits).and_then(|text| text.parse().ok()).unwrap_or(9);
    let minor = digits.get(major_digits..major_digits + 1).and_then(|text| text.parse().ok()).unwrap_or(0);
    (major, minor)
}

/// `hipDeviceProp_tR0600`, the layout since HIP 6.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct PropertiesR0600 {
    pub(crate) name: [u8; 256],
    pub(crate) uuid: [u8; 16],
    pub(crate) luid: [u8; 8],
    pub(crate) luid_device_node_mask: u32,
    pub(crate) total_global_mem: usize,
    pub(crate) shared_mem_per_block: usize,
    pub(crate) regs_per_block: i32,
    pub(crate) warp_size: i32,
    pub(crate) mem_pitch: usize,
    pub(crate) max_threads_per_block: i32,
    pub(crate) max_threads_dim: [i32; 3],
    pub(crate) max_grid_size: [i32; 3],
    pub(crate) clock_rate: i32,
    pub(crate) total_const_mem: usize,
    pub(crate) major: i32,
    pub(crate) minor: i32,
    pub(crate) texture_alignment: usize,
    pub(crate) texture_pitch_alignment: usize,
    pub(crate) device_overlap: i32,
    pub(crate) multi_processor_count: i32,
    pub(crate) kernel_exec_timeout_enabled: i32,
    pub(crate) integrated: i32,
    pub(crate) can_map_host_memory: i32,
    pub(crate) compute_mode: i32,
    /// `maxTexture1D` to `maxSurfaceCubemapLayered`: images are not supported.
    pub(crate) images: [i32; 40],
    pub(crate) surface_alignment: usize,
    pub(crate) concurrent_kernels: i32,
    pub(crate) ecc_enabled: i32,
    pub(crate) pci_bus_id: i32,
    pub(crate) pci_device_id: i32,
    pub(crate) pci_domain_id: i32,
    pub(crate) tcc_driver: i32,
    pub(crate) async_engine_count: i32,
    pub(crate) unified_addressing: i32,
    pub(crate) memory_clock_rate: i32,
    pub(crate) memory_bus_width: i32,
    pub(crate) l2_cache_size: i32,
    pub(crate) persisting_l2_cache_max_size: i32,
    pub(crate) max_threads_per_multi_processor: i32,
    pub(crate) stream_priorities_supported: i32,
    pub(crate) global_l1_cache_supported: i32,
    pub(crate) local_l1_cache_supported: i32,
    pub(crate) shared_mem_per_multiprocessor: usize,
    pub(crate) regs_per_multiprocessor: i32,
    pub(crate) managed_memory: i32,
    pub(crate) is_multi_gpu_board: i32,
    pub(crate) multi_gpu_board_group_id: i32,
    pub(crate) host_native_atomic_supported: i32,
    pub(crate) single_to_double_precision_perf_ratio: i32,
    pub(crate) pageable_memory_access: i32,
    pub(crate) concurrent_managed_access: i32,
    pub(crate) compute_preemption_supported: i32,
    pub(crate) can_use_host_pointer_for_registered_mem: i32,
    pub(crate) cooperative_launch: i32,
    pub(crate) cooperative_multi_device_launch: i32,
    pub(crate) shared_mem_per_block_optin: usize,
    pub(crate) pageable_memory_access_uses_host_page_tables: i32,
    pub(crate) direct_managed_mem_access_from_host: i32,
    pub(crate) max_blocks_per_multi_processor: i32,
    pub(crate) access_policy_max_window_size: i32,
    pub(crate) reserved_shared_mem_per_block: usize,
    pub(crate) host_register_supported: i32,
    pub(crate) sparse_hip_array_supported: i32,
    pub(crate) host_register_read_only_supported: i32,
    pub(crate) timeline_semaphore_interop_supported: i32,
    pub(crate) memory_pools_supported: i32,
    pub(crate) gpu_direct_rdma_supported: i32,
    pub(crate) gpu_direct_rdma_flush_writes_options: u32,
    pub(crate) gpu_direct_rdma_writes_ordering: i32,
    pub(crate) memory_pool_supported_handle_types: u32,
    pub(crate) deferred_mapping_hip_array_supported: i32,
    pub(crate) ipc_event_supported: i32,
    pub(crate) cluster_launch: i32,
    pub(crate) unified_function_pointers: i32,
    pub(crate) reserved: [i32; 63],
    pub(crate) hip_reserved: [i32; 32],
    pub(crate) gcn_arch_name: [u8; 256],
    pub(crate) max_shared_memory_per_multi_processor: usize,
    pub(crate) clock_instruction_rate: i32,
    pub(crate) arch: u32,
    pub(crate) hdp_mem_flush_cntl: usize,
    pub(crate) hdp_reg_flush_cntl: usize,
    pub(crate) cooperative_multi_device_unmatched: [i32; 4],
    pub(crate) is_large_bar: i32,
    pub(crate) asic_revision: i32,
}

/// `hipDeviceProp_tR0000`, the layout before HIP 6.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct PropertiesR0000 {
    name: [u8; 256],
    total_global_mem: usize,
    shared_mem_per_block: usize,
    regs_per_block: i32,
    warp_size: i32,
    max_threads_per_block: i32,
    max_threads_dim: [i32; 3],
    max_grid_size: [i32; 3],
    clock_rate: i32,
    memory_clock_rate: i32,
    memory_bus_width: i32,
    total_const_mem: usize,
    major: i32,
    minor: i32,
    multi_processor_count: i32,
    l2_cache_size: i32,
    max_threads_per_multi_processor: i32,
    compute_mode: i32,
    clock_instruction_rate: i32,
    arch: u32,
    concurrent_kernels: i32,
    pci_domain_id: i32,
    pci_bus_id: i32,
    pci_device_id: i32,
    max_shared_memory_per_multi_processor: usize,
    is_multi_gpu_board: i32,
    can_map_host_memory: i32,
    gcn_arch: i32,
    gcn_arch_name: [u8; 256],
    integrated: i32,
    cooperative_launch: i32,
    cooperative_multi_device_launch: i32,
    images: [i32; 7],
    hdp_mem_flush_cntl: usize,
    hdp_reg_flush_cntl: usize,
    mem_pitch: usize,
    texture_alignment: usize,
    texture_pitch_alignment: usize,
    kernel_exec_timeout_enabled: i32,
    ecc_enabled: i32,
    tcc_driver: i32,
    cooperative_multi_device_unmatched: [i32; 4],
    is_large_bar: i32,
    asic_revision: i32,
    managed_memory: i32,
    direct_managed_mem_access_from_host: i32,
    concurrent_managed_access: i32,
    pageable_memory_access: i32,
    pageable_memory_access_uses_host_page_tables: i32,
}

/// `value` as a zero-terminated array, cut to fit.
pub(crate) fn text<const N: usize>(value: &str) -> [u8; N] {
    let mut bytes = [0; N];
    for (to, from) in bytes.iter_mut().zip(value.bytes().take(N - 1)) {
        *to = from;
    }
    bytes
}

/// 16 bytes that differ between devices and stay the same between runs.
pub(crate) fn uuid(device: &Device) -> [u8; 16] {
    let mut bytes = *b"minihip-device-0";
    bytes[15] = b'0' + device.index as u8;
    bytes
}

/// Properties of `device` as HIP 6 and later lay them out.
pub(crate) fn r0600(device: &Device) -> PropertiesR0600 {
    let (major, minor) = capability();
    PropertiesR0600 {
        name: text(NAME),
        uuid: uuid(device),
        luid: [0; 8],
        luid_device_node_mask: 0,
        total_global_mem: device.heap.total_bytes(),
        shared_mem_per_block: SHARED_BYTES_PER_BLOCK,
        regs_per_block: REGISTERS_PER_BLOCK,
        warp_size: WARP_SIZE,
        mem_pitch: i32::MAX as usize,
        max_threads_per_block: MAX_THREADS_PER_BLOCK as i32,
        max_threads_dim: [MAX_THREADS_PER_BLOCK as i32; 3],
        max_grid_size: MAX_GRID,
        clock_rate: CLOCK_KHZ,
        total_const_mem: CONSTANT_BYTES as usize,
        major,
        minor,
        texture_alignment: 256,
        texture_pitch_alignment: 256,
        device_overlap: 1,
        multi_processor_count: MULTIPROCESSORS,
        kernel_exec_timeout_enabled: 0,
        integrated: 0,
        can_map_host_memory: 1,
        compute_mode: 0,
        images: [0; 40],
        surface_alignment: 256,
        concurrent_kernels: 1,
        ecc_enabled: 0,
        pci_bus_id: pci_bus(device),
        pci_device_id: 0,
        pci_domain_id: 0,
        tcc_driver: 0,
        async_engine_count: 8,
        unified_addressing: 1,
        memory_clock_rate: MEMORY_CLOCK_KHZ,
        memory_bus_width: MEMORY_BUS_BITS,
        l2_cache_size: L2_BYTES,
        persisting_l2_cache_max_size: 0,
        max_threads_per_multi_processor: MAX_THREADS_PER_MULTIPROCESSOR,
        stream_priorities_supported: 1,
        global_l1_cache_supported: 1,
        local_l1_cache_supported: 1,
        shared_mem_per_multiprocessor: SHARED_BYTES_PER_BLOCK,
        regs_per_multiprocessor: REGISTERS_PER_BLOCK,
        managed_memory: 1,
        is_multi_gpu_board: 0,
        multi_gpu_board_group_id: 0,
        host_native_atomic_supported: 1,
        single_to_double_precision_perf_ratio: 2,
        pageable_memory_access: 0,
        concurrent_managed_access: 1,
        compute_preemption_supported: 0,
        can_use_host_pointer_for_registered_mem: 1,
        cooperative_launch: 1,
        cooperative_multi_device_launch: 1,
        shared_mem_per_block_optin: SHARED_BYTES_PER_BLOCK,
        pageable_memory_access_uses_host_page_tables: 0,
        direct_managed_mem_access_from_host: 1,
        max_blocks_per_multi_processor: 32,
        access_policy_max_window_size: 0,
        reserved_shared_mem_per_block: 0,
        host_register_supported: 1,
        sparse_hip_array_supported: 0,
        host_register_read_only_supported: 1,
        timeline_semaphore_interop_supported: 0,
        memory_pools_supported: 1,
        gpu_direct_rdma_supported: 0,
        gpu_direct_rdma_flush_writes_options: 0,
        gpu_direct_rdma_writes_ordering: 0,
        memory_pool_supported_handle_types: 0,
        deferred_mapping_hip_array_supported: 0,
        ipc_event_supported: 0,
        cluster_launch: 0,
        unified_function_pointers: 0,
        reserved: [0; 63],
        hip_reserved: [0; 32],
        gcn_arch_name: text(&config().arch),
        max_shared_memory_per_multi_processor: SHARED_BYTES_PER_BLOCK,
        clock_instruction_rate: WALL_CLOCK_KHZ,
        arch: ARCH_FEATURES,
        hdp_mem_flush_cntl: 0,
        hdp_reg_flush_cntl: 0,
        cooperative_multi_device_unmatched: [0; 4],
        is_large_bar: 1,
        asic_revision: 1,
    }
}

/// Properties of `device` as HIP 5 and earlier lay them out.
pub(crate) fn r0000(device: &Device) -> PropertiesR0000 {
    older(&r0600(device))
}

/// The same properties in the layout before HIP 6.
pub(crate) fn older(now: &PropertiesR0600) -> PropertiesR0000 {
    PropertiesR0000 {
        name: now.name,
        total_global_mem: now.total_global_mem,
        shared_mem_per_block: now.shared_mem_per_block,
        regs_per_block: now.regs_per_block,
        warp_size: now.warp_size,
        max_threads_per_block: now.max_threads_per_block,
        max_threads_dim: now.max_threads_dim,
        max_grid_size: now.max_grid_size,
        clock_rate: now.clock_rate,
        memory_clock_rate: now.memory_clock_rate,
        memory_bus_width: now.memory_bus_width,
        total_const_mem: now.total_const_mem,
        major: now.major,
        minor: now.minor,
        multi_processor_count: now.multi_processor_count,
        l2_cache_size: now.l2_cache_size,
        max_threads_per_multi_processor: now.max_threads_per_multi_processor,
        compute_mode: now.compute_mode,
        clock_instruction_rate: now.clock_instruction_rate,
        arch: now.arch,
        concurrent_kernels: now.concurrent_kernels,
        pci_domain_id: now.pci_domain_id,
        pci_bus_id: now.pci_bus_id,
        pci_device_id: now.pci_device_id,
        max_shared_memory_per_multi_processor: now.max_shared_memory_per_multi_processor,
        is_multi_gpu_board: now.is_multi_gpu_board,
        can_map_host_memory: now.can_map_host_memory,
        gcn_arch: now.major * 100 + now.minor * 10,
        gcn_arch_name: now.gcn_arch_name,
        integrated: now.integrated,
        cooperative_launch: now.cooperative_launch,
        cooperative_multi_device_launch: now.cooperative_multi_device_launch,
        images: [0; 7],
        hdp_mem_flush_cntl: 0,
        hdp_reg_flush_cntl: 0,
        mem_pitch: now.mem_pitch,
        texture_alignment: now.texture_alignment,
        texture_pitch_alignment: now.texture_pitch_alignment,
        kernel_exec_timeout_enabled: now.kernel_exec_timeout_enabled,
        ecc_enabled: now.ecc_enabled,
        tcc_driver: now.tcc_driver,
        cooperative_multi_device_unmatched: now.cooperative_multi_device_unmatched,
        is_large_bar: now.is_large_bar,
        asic_revision: now.asic_revision,
        managed_memory: now.managed_memory,
        direct_managed_mem_access_from_host: now.direct_managed_mem_access_from_host,
        concurrent_managed_access: now.concurrent_managed_access,
        pageable_memory_access: now.pageable_memory_access,
        pageable_memory_access_uses_host_page_tables: now.pageable_memory_access_uses_host_page_tables,
    }
}

/// One `hipDeviceAttribute_t`. Fails with `hipErrorInvalidValue` on numbers HIP does not define.
pub(crate) fn attribute(device: &Device, attribute: i32) -> HipResult<i32> {
    /// Textures and surfaces: `MaxSurface1D` to `MaxTextureCubemapLayered`, none supported.
    const IMAGES: std::ops::RangeInclusive<i32> = 33..=54;
    let now = r0600(device);
    Ok(match attribute {
        0 => now.ecc_enabled,
        1 => now.access_policy_max_window_size,
        2 => now.async_engine_count,
        3 => now.can_map_host_memory,
        4 => now.can_use_host_pointer_for_registered_mem,
        5 => now.clock_rate,
        6 => now.compute_mode,
        7 => now.compute_preemption_supported,
        8 => now.concurrent_kernels,
        9 => now.concurrent_managed_access,
        10 => now.cooperative_launch,
        11 => now.cooperative_multi_device_launch,
        12 => now.device_overlap,
        13 => now.direct_managed_mem_access_from_host,
        14 => now.global_l1_cache_supported,
        15 => now.host_native_atomic_supported,
        16 => now.integrated,
        17 => now.is_multi_gpu_board,
        18 => now.kernel_exec_timeout_enabled,
        19 => now.l2_cache_size,
        20 => now.local_l1_cache_supported,
        21 | 22 => 0,
        23 => now.major,
        24 => now.managed_memory,
        25 => now.max_blocks_per_multi_processor,
        26..=28 => now.max_threads_dim[attribute as usize - 26],
        29..=31 => now.max_grid_size[attribute as usize - 29],
        32 => 0,
        other if IMAGES.contains(&other) => 0,
        55 => now.max_threads_dim[0],
        56 => now.max_threads_per_block,
        57 => now.max_threads_per_multi_processor,
        58 => now.mem_pitch as i32,
        59 => now.memory_bus_width,
        60 => now.memory_clock_rate,
        61 => now.minor,
        62 => now.multi_gpu_board_group_id,
        63 => now.multi_processor_count,
        65 => now.pageable_memory_access,
        66 => now.pageable_memory_access_uses_host_page_tables,
        67 => now.pci_bus_id,
        68 => now.pci_device_id,
        69 => now.pci_domain_id,
        70 => now.persisting_l2_cache_max_size,
        71 => now.regs_per_block,
        72 => now.regs_per_multiprocessor,
        73 => now.reserved_shared_mem_per_block as i32,
        74 => now.shared_mem_per_block as i32,
        75 => now.shared_mem_per_block_optin as i32,
        76 => now.shared_mem_per_multiprocessor as i32,
        77 => now.single_to_double_precision_perf_ratio,
        78 => now.stream_priorities_supported,
        79 => now.surface_alignment as i32,
        80 => now.tcc_driver,
        81 => now.texture_alignment as i32,
        82 => now.texture_pitch_alignment as i32,
        83 => now.total_const_mem as i32,
        84 => i32::try_from(now.total_global_mem).unwrap_or(i32::MAX),
        85 => now.unified_addressing,
        87 => now.warp_size,
        88 => now.memory_pools_supported,
        // Virtual memory management.
        89 => 1,
        90 => now.host_register_supported,
        91 => now.memory_pool_supported_handle_types as i32,
        10_000 => now.clock_instruction_rate,
        10_002 => now.max_shared_memory_per_multi_processor as i32,
        10_005 | 10_006 => 0,
        10_007..=10_010 => 0,
        10_011 => now.is_large_bar,
        10_012 => now.asic_revision,
        // Stream wait value: yes. Images: no.
        10_013 => 1,
        10_014 => 0,
        10_015 => now.multi_processor_count,
        // Fine-grained memory.
        10_016 => 1,
        10_017 => WALL_CLOCK_KHZ,
        // XCCs, vector registers per thread, chip id.
        10_018 => 8,
        10_019 => 512,
        10_020 => 0,
        _ => return Err(HipError::INVALID_VALUE),
    })
}
#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    /// Offsets and sizes as a C compiler lays the headers' structs out (HIP 7.1).
    #[test]
    fn the_new_layout_is_the_headers() {
        type P = PropertiesR0600;
        let found = [
            offset_of!(P, total_global_mem),
            offset_of!(P, max_threads_dim),
            offset_of!(P, total_const_mem),
            offset_of!(P, multi_processor_count),
            offset_of!(P, images),
            offset_of!(P, surface_alignment),
            offset_of!(P, pci_bus_id),
            offset_of!(P, shared_mem_per_multiprocessor),
            offset_of!(P, shared_mem_per_block_optin),
            offset_of!(P, memory_pools_supported),
            offset_of!(P, unified_function_pointers),
            offset_of!(P, hip_reserved),
            offset_of!(P, gcn_arch_name),
            offset_of!(P, arch),
            offset_of!(P, is_large_bar),
            size_of::<P>(),
        ];
        assert_eq!(found, [288, 324, 352, 388, 408, 568, 584, 640, 696, 744, 776, 1032, 1160, 1428, 1464, 1472]);
    }

    /// The same for the headers of HIP 5.2.
    #[test]
    fn the_old_layout_is_the_headers() {
        type P = PropertiesR0000;
        let found = [
            offset_of!(P, total_global_mem),
            offset_of!(P, max_threads_dim),
            offset_of!(P, total_const_mem),
            offset_of!(P, arch),
            offset_of!(P, max_shared_memory_per_multi_processor),
            offset_of!(P, gcn_arch_name),
            offset_of!(P, cooperative_launch),
            offset_of!(P, hdp_mem_flush_cntl),
            offset_of!(P, mem_pitch),
            offset_of!(P, is_large_bar),
            offset_of!(P, pageable_memory_access_uses_host_page_tables),
            size_of::<P>(),
        ];
        assert_eq!(found, [256, 284, 320, 356, 376, 396, 656, 696, 712, 764, 788, 792]);
    }
}
