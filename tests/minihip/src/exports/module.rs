//! Modules, functions, registered fat binaries and occupancy.

use crate::abi::{Dim3, FuncAttributes, LaunchAttribute, LaunchConfig};
use crate::api::{In, InStr, Out, hip_api};
use crate::capture;
use crate::cuda;
use crate::error::{HipError, HipResult};
use crate::fat_binary;
use crate::kernel::Kernel;
use crate::launch;
use crate::module;
use crate::properties;
use crate::thread_state::current_device;
use std::ffi::{OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

fn load(out: Out<usize>, image: &[u8]) -> HipResult {
    out.set(module::load(image, current_device()?.index)?)
}

fn load_file(out: Out<usize>, name: InStr) -> HipResult {
    out.check()?;
    capture::forbid_unsafe_call()?;
    let path = Path::new(OsStr::from_bytes(name.get()?.to_bytes()));
    let image = std::fs::read(path).map_err(|_| HipError::FILE_NOT_FOUND)?;
    load(out, &image)
}

fn load_memory(out: Out<usize>, image: usize) -> HipResult {
    out.check()?;
    capture::forbid_unsafe_call()?;
    load(out, module::image_at(image)?)
}

/// One `hipFunction_attribute` of a kernel.
pub(crate) fn function_attribute(kernel: &Kernel, attribute: i32) -> HipResult<i32> {
    Ok(match attribute {
        0 => properties::MAX_THREADS_PER_BLOCK as i32,
        1 => kernel.static_shared_bytes as i32,
        // Constant bytes, local bytes.
        2 | 3 => 0,
        4 => 64,
        5 | 6 => 0,
        7 => 0,
        8 => {
            (properties::SHARED_BYTES_PER_BLOCK - kernel.static_shared_bytes.min(properties::SHARED_BYTES_PER_BLOCK))
                as i32
        }
        9 => 0,
        _ => return Err(HipError::INVALID_VALUE),
    })
}

fn function_attributes(kernel: &Kernel) -> HipResult<FuncAttributes> {
    Ok(FuncAttributes {
        binary_version: function_attribute(kernel, 6)?,
        cache_mode_ca: 0,
        const_size_bytes: 0,
        local_size_bytes: 0,
        max_dynamic_shared_size_bytes: function_attribute(kernel, 8)?,
        max_threads_per_block: function_attribute(kernel, 0)?,
        num_regs: function_attribute(kernel, 4)?,
        preferred_shmem_carveout: 0,
        ptx_version: 0,
        shared_size_bytes: kernel.static_shared_bytes,
    })
}

/// Blocks of `kernel` that fit on a compute unit, by threads and shared memory.
fn blocks_per_multiprocessor(kernel: &Kernel, block_threads: i32, dynamic_shared_bytes: usize) -> HipResult<i32> {
    if block_threads <= 0 {
        return Err(HipError::INVALID_VALUE);
    }
    if block_threads as u64 > properties::MAX_THREADS_PER_BLOCK {
        return Ok(0);
    }
    let by_threads = properties::MAX_THREADS_PER_MULTIPROCESSOR / block_threads;
    let shared = kernel.static_shared_bytes.saturating_add(dynamic_shared_bytes);
    let by_shared = properties::SHARED_BYTES_PER_BLOCK.checked_div(shared).map_or(i32::MAX, |blocks| blocks as i32);
    Ok(by_threads.min(by_shared).min(32))
}

fn max_potential(
    kernel: &Kernel,
    grid_size: Out<i32>,
    block_size: Out<i32>,
    dynamic_shared_bytes: usize,
    limit: i32,
) -> HipResult {
    grid_size.check()?;
    block_size.check()?;
    let threads = if limit <= 0 {
        properties::MAX_THREADS_PER_BLOCK as i32
    } else {
        limit.min(properties::MAX_THREADS_PER_BLOCK as i32)
    };
    let blocks = blocks_per_multiprocessor(kernel, threads, dynamic_shared_bytes)?;
    grid_size.set(blocks * properties::MULTIPROCESSORS)?;
    block_size.set(threads)
}

/// Most blocks of a cluster.
const MAX_CLUSTER_BLOCKS: i32 = 8;
/// `hipLaunchAttributeClusterDimension`.
const CLUSTER_DIMENSION: i32 = 4;

fn threads_of(config: &LaunchConfig) -> HipResult<i32> {
    let threads = config.block.volume().and_then(|threads| i32::try_from(threads).ok());
    threads.ok_or(HipError::INVALID_CONFIGURATION)
}

/// Blocks of a cluster, as a launch's attributes have it: one where they say nothing.
fn cluster_blocks(config: &LaunchConfig) -> HipResult<i32> {
    let attributes = In::<LaunchAttribute>::from_address(config.attributes).array(config.attribute_count as usize)?;
    let Some(found) = attributes.iter().find(|attribute| attribute.id == CLUSTER_DIMENSION) else { return Ok(1) };
    let [x, y, z, ..] = found.value;
    let blocks = Dim3 { x, y, z }.volume().and_then(|blocks| i32::try_from(blocks).ok());
    blocks.filter(|blocks| (1..=MAX_CLUSTER_BLOCKS).contains(blocks)).ok_or(HipError::INVALID_VALUE)
}

fn host_kernel(host: usize) -> HipResult<std::sync::Arc<Kernel>> {
    launch::find_kernel(host, current_device()?.index)
}

hip_api! {
    fn hipModuleLoad(out: Out<usize>, name: InStr) { load_file(out, name) }
    fn hipModuleLoadData(out: Out<usize>, image: usize) { load_memory(out, image) }
    fn hipModuleLoadDataEx(out: Out<usize>, image: usize, _count: u32, _options: usize, _values: usize) { load_memory(out, image) }
    fn hipModuleLoadFatBinary(out: Out<usize>, image: usize) { load_memory(out, image) }
    fn hipModuleUnload(module: usize) {
        capture::forbid_unsafe_call()?;
        module::unload(module)
    }
    fn hipModuleGetFunction(out: Out<usize>, module: usize, name: InStr) {
        out.check()?;
        let name = name.get()?;
        out.set(module::resolve(module)?.function(name)?)
    }
    fn hipModuleGetFunctionCount(out: Out<u32>, module: usize) { out.set(module::resolve(module)?.code.kernel_names().len() as u32) }
    fn hipModuleEnumerateFunctions(out: Out<usize>, count: u32, module: usize) {
        out.check()?;
        out.set_array(&module::resolve(module)?.functions(count as usize)?)
    }
    fn hipModuleGetGlobal(address: Out<usize>, len_bytes: Out<usize>, module: usize, name: InStr) {
        let name = name.get()?;
        if !address.is_given() && !len_bytes.is_given() {
            return Err(HipError::INVALID_VALUE);
        }
        let (base, size) = module::resolve(module)?.code.variable(name)?;
        address.set_if_given(base);
        len_bytes.set_if_given(size);
        Ok(())
    }
    fn hipGetFuncBySymbol(out: Out<usize>, host: usize) {
        out.check()?;
        out.set(fat_binary::function_handle(host, current_device()?.index)?)
    }
    fn hipFuncGetAttributes(out: Out<FuncAttributes>, host: usize) {
        out.check()?;
        out.set(function_attributes(&*host_kernel(host)?)?)
    }
    fn hipFuncGetAttribute(out: Out<i32>, attribute: i32, function: usize) {
        out.check()?;
        out.set(function_attribute(&*module::resolve_function(function)?, attribute)?)
    }
    fn hipFuncSetAttribute(host: usize, attribute: i32, value: i32) {
        let kernel = host_kernel(host)?;
        match attribute {
            8 if value < 0 || value > function_attribute(&kernel, 8)? => Err(HipError::INVALID_VALUE),
            8 | 9 => Ok(()),
            _ => Err(HipError::INVALID_VALUE),
        }
    }
    fn hipFuncSetCacheConfig(host: usize, _config: i32) { host_kernel(host).map(drop) }
    fn hipFuncSetSharedMemConfig(host: usize, _config: i32) { host_kernel(host).map(drop) }
    fn hipOccupancyMaxActiveBlocksPerMultiprocessor(out: Out<i32>, host: usize, threads: i32, shared_bytes: usize) {
        out.check()?;
        out.set(blocks_per_multiprocessor(&*host_kernel(host)?, threads, shared_bytes)?)
    }
    fn hipOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(out: Out<i32>, host: usize, threads: i32, shared_bytes: usize, _flags: u32) {
        out.check()?;
        out.set(blocks_per_multiprocessor(&*host_kernel(host)?, threads, shared_bytes)?)
    }
    fn hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(out: Out<i32>, function: usize, threads: i32, shared_bytes: usize) {
        out.check()?;
        out.set(blocks_per_multiprocessor(&*module::resolve_function(function)?, threads, shared_bytes)?)
    }
    fn hipModuleOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(out: Out<i32>, function: usize, threads: i32, shared_bytes: usize, _flags: u32) {
        out.check()?;
        out.set(blocks_per_multiprocessor(&*module::resolve_function(function)?, threads, shared_bytes)?)
    }
    fn hipOccupancyMaxPotentialBlockSize(grid: Out<i32>, block: Out<i32>, host: usize, shared_bytes: usize, limit: i32) {
        max_potential(&*host_kernel(host)?, grid, block, shared_bytes, limit)
    }
    fn hipModuleOccupancyMaxPotentialBlockSize(grid: Out<i32>, block: Out<i32>, function: usize, shared_bytes: usize, limit: i32) {
        max_potential(&*module::resolve_function(function)?, grid, block, shared_bytes, limit)
    }
    fn hipModuleOccupancyMaxPotentialBlockSizeWithFlags(grid: Out<i32>, block: Out<i32>, function: usize, shared_bytes: usize, limit: i32, _flags: u32) {
        max_potential(&*module::resolve_function(function)?, grid, block, shared_bytes, limit)
    }
    fn hipOccupancyMaxPotentialClusterSize(out: Out<i32>, host: usize, config: In<LaunchConfig>) {
        out.check()?;
        let config = config.get()?;
        let blocks = blocks_per_multiprocessor(&*host_kernel(host)?, threads_of(&config)?, config.shared_bytes)?;
        out.set(blocks.min(MAX_CLUSTER_BLOCKS))
    }
    fn hipOccupancyMaxActiveClusters(out: Out<i32>, host: usize, config: In<LaunchConfig>) {
        out.check()?;
        let config = config.get()?;
        let blocks = blocks_per_multiprocessor(&*host_kernel(host)?, threads_of(&config)?, config.shared_bytes)?;
        out.set(blocks * properties::MULTIPROCESSORS / cluster_blocks(&config)?)
    }
    fn hipOccupancyAvailableDynamicSMemPerBlock(out: Out<usize>, host: usize, blocks: i32, threads: i32) {
        out.check()?;
        let kernel = host_kernel(host)?;
        let blocks = usize::try_from(blocks).ok().filter(|blocks| *blocks > 0 && threads > 0).ok_or(HipError::INVALID_VALUE)?;
        out.set((properties::SHARED_BYTES_PER_BLOCK / blocks).saturating_sub(kernel.static_shared_bytes))
    }
}

/// `hipKernelNameRef`: lives as long as the function's module.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hipKernelNameRef(function: usize) -> *const c_char {
    if cuda::is_active() {
        return cuda::kernel_name(function);
    }
    module::resolve_function(function).map_or(std::ptr::null(), |kernel| kernel.name.as_ptr())
}

/// `hipKernelNameRefByPtr`: lives as long as the program's fat binary is registered.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hipKernelNameRefByPtr(host: usize, stream: usize) -> *const c_char {
    if cuda::is_active() {
        return cuda::kernel_name_of_host(host);
    }
    let device = crate::stream::resolve(stream, crate::stream::DefaultStream::Legacy).map(|stream| stream.device);
    device.and_then(|device| fat_binary::kernel(host, device)).map_or(std::ptr::null(), |kernel| kernel.name.as_ptr())
}

/// `__hipRegisterFatBinary`: null for a wrapper that is none.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn __hipRegisterFatBinary(wrapper: usize) -> usize {
    let mut handle = 0;
    crate::api::enter("__hipRegisterFatBinary", || {
        handle = if cuda::is_active() { cuda::register(wrapper)? } else { fat_binary::register(wrapper)? };
        Ok(())
    });
    handle
}

/// `__hipUnregisterFatBinary`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn __hipUnregisterFatBinary(binary: usize) {
    crate::api::enter("__hipUnregisterFatBinary", || {
        if cuda::is_active() {
            cuda::unregister(binary)
        } else {
            fat_binary::unregister(binary)
        }
        Ok(())
    });
}

/// `__hipRegisterFunction`; the launch bounds after the names are hints.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn __hipRegisterFunction(
    binary: usize,
    host: usize,
    _device_function: usize,
    name: InStr,
    _thread_limit: u32,
    _tid: usize,
    _bid: usize,
    _block: usize,
    _grid: usize,
    _wave: usize,
) {
    crate::api::enter("__hipRegisterFunction", || {
        if cuda::is_active() {
            cuda::register_function(binary, host, name.get()?);
        } else {
            fat_binary::register_function(binary, host, name.get()?);
        }
        Ok(())
    });
}

/// `__hipRegisterVar`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn __hipRegisterVar(
    binary: usize,
    host: usize,
    _host_name: usize,
    name: InStr,
    _external: i32,
    len_bytes: usize,
    _constant: i32,
    _global: i32,
) {
    crate::api::enter("__hipRegisterVar", || {
        if cuda::is_active() {
            cuda::register_variable(binary, host, name.get()?, len_bytes);
        } else {
            fat_binary::register_variable(binary, host, name.get()?, len_bytes);
        }
        Ok(())
    });
}

/// `__hipRegisterTexture` and `__hipRegisterSurface`: a variable of 8 bytes, found by the host's like others.
fn register_image(name: &'static str, binary: usize, host: usize, device: InStr) {
    crate::api::enter(name, || {
        let (name, len_bytes) = (device.get()?, size_of::<usize>());
        if cuda::is_active() {
            cuda::register_variable(binary, host, name, len_bytes);
        } else {
            fat_binary::register_variable(binary, host, name, len_bytes);
        }
        Ok(())
    });
}

/// `__hipRegisterTexture`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn __hipRegisterTexture(
    binary: usize,
    host: usize,
    _host_name: usize,
    name: InStr,
    _kind: i32,
    _normalized: i32,
    _external: i32,
) {
    register_image("__hipRegisterTexture", binary, host, name);
}

/// `__hipRegisterSurface`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn __hipRegisterSurface(
    binary: usize,
    host: usize,
    _host_name: usize,
    name: InStr,
    _kind: i32,
    _external: i32,
) {
    register_image("__hipRegisterSurface", binary, host, name);
}

/// `__hipRegisterManagedVar`: the host's pointer is set to storage that host and devices share.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn __hipRegisterManagedVar(
    binary: usize,
    pointer: Out<usize>,
    initial: crate::api::In<u8>,
    name: InStr,
    len_bytes: usize,
    _align: u32,
) {
    crate::api::enter("__hipRegisterManagedVar", || {
        let (host, name, initial) = (pointer.address(), name.get()?, initial.array(len_bytes)?);
        let storage = if cuda::is_active() {
            cuda::register_managed(binary, host, name, &initial)?
        } else {
            fat_binary::register_managed(binary, host, name, &initial)?
        };
        pointer.set(storage)
    });
}
