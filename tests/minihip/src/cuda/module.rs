//! Modules, their functions and occupancy.

use super::context::{capability, current_index};
use super::driver::{self as cu, got};
use super::handles::advance_generation;
use super::{cuda_api, fat_binary, image, managed};
use crate::abi::{DrvLaunchConfig, FuncAttributes, LaunchConfig};
use crate::api::{In, InStr, Out};
use crate::error::{HipError, HipResult};
use crate::module::image_at;
use std::collections::HashMap;
use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

/// `CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES` and `..._MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const STATIC_SHARED: i32 = 1;
const MAX_DYNAMIC_SHARED: i32 = 8;
/// Shared memory a block of an AMD GPU may have without asking, in bytes.
pub(super) const SHARED_BYTES_PER_BLOCK: i32 = 64 << 10;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: i32 = 2;

/// What is known of a function handle.
#[derive(Debug)]
pub(super) struct Function {
    module: usize,
    /// Index of its device.
    device: usize,
    /// The host stub it was found by, 0 for a module's function.
    pub(super) host: usize,
    /// Offset and size in bytes of each parameter.
    pub(super) parameters: Vec<(usize, usize)>,
    /// Static shared memory in bytes.
    static_shared: i32,
}

static FUNCTIONS: RwLock<Option<HashMap<usize, Arc<Function>>>> = RwLock::new(None);

/// What is known of a function.
pub(super) fn known(function: usize) -> Option<Arc<Function>> {
    FUNCTIONS.read().unwrap_or_else(PoisonError::into_inner).as_ref()?.get(&function).cloned()
}

/// Whether a handle is a function of a loaded module.
pub(super) fn is_function(handle: usize) -> bool {
    known(handle).is_some()
}

/// Runs `body` with calls allowed that a capture in progress forbids: those HIP's runtime makes on its own account.
pub(super) fn relaxed<R>(body: impl FnOnce() -> HipResult<R>) -> HipResult<R> {
    let mut mode = RELAXED;
    cu::thread_exchange_stream_capture_mode(&mut mode)?;
    let result = body();
    cu::thread_exchange_stream_capture_mode(&mut mode).and(result)
}

/// Loads the code for the current device in `image`.
pub(super) fn load(image: &[u8]) -> HipResult<usize> {
    let parts = image::find_all_code(image, capability()?)?;
    let linked;
    let code = match parts.as_slice() {
        [code] => code,
        several => {
            linked = super::link::join(several)?;
            &linked
        }
    };
    let module = got(|module| cu::module_load_data(module, code.as_ptr(), 0, std::ptr::null(), std::ptr::null()))?;
    managed::make(module, &parts).inspect_err(|_| {
        let _ = unload(module);
    })?;
    Ok(module)
}

/// Function `name` of a module, known from now on. Fails with `hipErrorNotFound`.
pub(super) fn function(module: usize, name: &CStr, host: usize) -> HipResult<usize> {
    let function = got(|function| cu::module_get_function(function, module, name.as_ptr()))?;
    if known(function).is_some_and(|known| known.module == module && known.host == host) {
        return Ok(function);
    }
    let static_shared = relaxed(|| got(|value| cu::func_get_attribute(value, STATIC_SHARED, function)))?;
    let mut parameters = Vec::new();
    let (mut offset, mut len_bytes) = (0, 0);
    while cu::func_get_param_info(function, parameters.len(), &mut offset, &mut len_bytes).is_ok() {
        parameters.push((offset, len_bytes));
    }
    let entry = Arc::new(Function { module, device: current_index(), host, parameters, static_shared });
    FUNCTIONS.write().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().insert(function, entry);
    if static_shared > UNASKED_SHARED_BYTES - LARGE_SHARED_BYTES {
        ask_for_shared(function, static_shared)?;
    }
    Ok(function)
}

/// Shared memory a block may have in the driver without asking, in bytes.
const UNASKED_SHARED_BYTES: i32 = 48 << 10;
/// Dynamic shared memory that is within the driver's limit for every kernel that was not asked for when it was found.
const LARGE_SHARED_BYTES: i32 = 32 << 10;

/// Makes the driver allow what HIP allows unasked: 64 KiB, static and dynamic together. A kernel with more static
/// shared memory keeps the driver's limit.
fn ask_for_shared(function: usize, static_shared: i32) -> HipResult {
    if static_shared >= SHARED_BYTES_PER_BLOCK {
        return Ok(());
    }
    relaxed(|| cu::func_set_attribute(function, MAX_DYNAMIC_SHARED, SHARED_BYTES_PER_BLOCK - static_shared))
}

/// Prepares a function for a launch with `dynamic_bytes` of dynamic shared memory; nothing to do for most.
#[inline]
pub(super) fn allow_shared(function: usize, dynamic_bytes: u32) -> HipResult {
    if dynamic_bytes <= LARGE_SHARED_BYTES.unsigned_abs() {
        return Ok(());
    }
    known(function).map_or(Ok(()), |known| ask_for_shared(function, known.static_shared))
}

/// Functions of a module, as many as there are and at most `count`.
pub(super) fn functions(module: usize, count: u32) -> HipResult<Vec<usize>> {
    let count = count.min(got(|all| cu::module_get_function_count(all, module))?);
    let mut functions = vec![0; count as usize];
    cu::module_enumerate_functions(functions.as_mut_ptr(), count, module)?;
    // By their names, so that each is known from now on.
    functions.into_iter().map(|found| function(module, name_of(found)?, 0)).collect()
}

/// The name of a function, which lives as long as its module.
pub(super) fn name_of<'a>(function: usize) -> HipResult<&'a CStr> {
    let name = got(|name| cu::func_get_name(name, function))?;
    // SAFETY: the driver gave a terminated string, which lives as long as the function's module; callers use it at once.
    if name == 0 { Err(HipError::NOT_FOUND) } else { Ok(unsafe { CStr::from_ptr(name as *const c_char) }) }
}

/// A launch's sizes and attributes as the driver has them, which counts shared memory in 32 bits.
fn launch_config(config: &LaunchConfig) -> HipResult<DrvLaunchConfig> {
    Ok(DrvLaunchConfig {
        grid: config.grid,
        block: config.block,
        shared_bytes: u32::try_from(config.shared_bytes).map_err(|_| HipError::INVALID_VALUE)?,
        stream: config.stream,
        attributes: config.attributes,
        attribute_count: config.attribute_count,
    })
}

/// Ends a module and its functions.
pub(super) fn unload(module: usize) -> HipResult {
    if module == 0 {
        return Err(HipError::INVALID_HANDLE);
    }
    if let Some(functions) = FUNCTIONS.write().unwrap_or_else(PoisonError::into_inner).as_mut() {
        functions.retain(|_, function| function.module != module);
    }
    advance_generation();
    crate::texture_reference::forget_module(module);
    managed::forget(module)?;
    cu::module_unload(module)
}

/// Forgets the functions of a device that is reset.
pub(super) fn forget_device(index: usize) {
    if let Some(functions) = FUNCTIONS.write().unwrap_or_else(PoisonError::into_inner).as_mut() {
        functions.retain(|_, function| function.device != index);
    }
    advance_generation();
}

/// The function of the current device that a handle or a host stub names. Fails with `hipErrorInvalidDeviceFunction`.
fn named(function: usize) -> HipResult<usize> {
    fat_binary::function(function, current_index())
}

/// The same where HIP takes function handles only, and calls a bad one `hipErrorInvalidHandle`.
fn handle(function: usize) -> HipResult<usize> {
    if is_function(function) { Ok(function) } else { Err(HipError::INVALID_HANDLE) }
}

/// `hipKernelNameRef`.
pub(crate) fn kernel_name(function: usize) -> *const c_char {
    let name = handle(function).and_then(|function| got(|name| cu::func_get_name(name, function)));
    name.map_or(std::ptr::null(), |name| name as *const c_char)
}

/// `hipKernelNameRefByPtr`.
pub(crate) fn kernel_name_of_host(host: usize) -> *const c_char {
    fat_binary::name_of_host(host).unwrap_or(std::ptr::null())
}

/// One `hipFunction_attribute`: the driver's numbers are the same.
pub(super) fn attribute(function: usize, attribute: i32) -> HipResult<i32> {
    let value = got(|value| cu::func_get_attribute(value, attribute, function))?;
    match known(function) {
        Some(known) if attribute == MAX_DYNAMIC_SHARED => Ok(value.max(SHARED_BYTES_PER_BLOCK - known.static_shared)),
        _ => Ok(value),
    }
}

fn attributes(function: usize) -> HipResult<FuncAttributes> {
    let size = |number| attribute(function, number).map(|value| usize::try_from(value).unwrap_or(0));
    Ok(FuncAttributes {
        binary_version: attribute(function, 6)?,
        cache_mode_ca: attribute(function, 7)?,
        const_size_bytes: size(2)?,
        local_size_bytes: size(3)?,
        max_dynamic_shared_size_bytes: attribute(function, MAX_DYNAMIC_SHARED)?,
        max_threads_per_block: attribute(function, 0)?,
        num_regs: attribute(function, 4)?,
        preferred_shmem_carveout: attribute(function, 9)?,
        ptx_version: attribute(function, 5)?,
        shared_size_bytes: size(STATIC_SHARED)?,
    })
}

fn load_memory(out: Out<usize>, image: usize) -> HipResult {
    out.check()?;
    out.set(load(image_at(image)?)?)
}

fn occupancy(out: Out<i32>, function: usize, threads: i32, shared_bytes: usize, flags: u32) -> HipResult {
    out.check()?;
    allow_shared(function, u32::try_from(shared_bytes).map_err(|_| HipError::INVALID_VALUE)?)?;
    out.set(got(|blocks| cu::occupancy_blocks(blocks, function, threads, shared_bytes, flags))?)
}

fn block_size(
    grid: Out<i32>,
    block: Out<i32>,
    function: usize,
    shared_bytes: usize,
    limit: i32,
    flags: u32,
) -> HipResult {
    grid.check()?;
    block.check()?;
    let (mut grid_found, mut block_found) = (0, 0);
    cu::occupancy_block_size(&mut grid_found, &mut block_found, function, 0, shared_bytes, limit, flags)?;
    grid.set(grid_found)?;
    block.set(block_found)
}

cuda_api! {
    fn hipModuleLoad(out: Out<usize>, name: InStr) {
        out.check()?;
        let path = Path::new(OsStr::from_bytes(name.get()?.to_bytes()));
        out.set(load(&std::fs::read(path).map_err(|_| HipError::FILE_NOT_FOUND)?)?)
    }
    fn hipModuleLoadData(out: Out<usize>, image: usize) { load_memory(out, image) }
    // The options are CUDA's just-in-time ones; an AMD GPU's code needs none, and HIP ignores them.
    fn hipModuleLoadDataEx(out: Out<usize>, image: usize, _count: u32, _options: usize, _values: usize) { load_memory(out, image) }
    fn hipModuleLoadFatBinary(out: Out<usize>, image: usize) { load_memory(out, image) }
    fn hipModuleUnload(module: usize) {
        unload(module)
    }
    fn hipModuleGetFunction(out: Out<usize>, module: usize, name: InStr) {
        out.check()?;
        out.set(function(module, name.get()?, 0)?)
    }
    fn hipModuleGetFunctionCount(out: Out<u32>, module: usize) {
        out.check()?;
        out.set(got(|count| cu::module_get_function_count(count, module))?)
    }
    fn hipModuleEnumerateFunctions(out: Out<usize>, count: u32, module: usize) {
        out.check()?;
        out.set_array(&functions(module, count)?)
    }
    fn hipOccupancyMaxPotentialClusterSize(out: Out<i32>, host: usize, config: In<LaunchConfig>) {
        out.check()?;
        let (function, config) = (named(host)?, launch_config(&config.get()?)?);
        out.set(got(|size| cu::occupancy_cluster_size(size, function, &config))?)
    }
    fn hipOccupancyMaxActiveClusters(out: Out<i32>, host: usize, config: In<LaunchConfig>) {
        out.check()?;
        let (function, config) = (named(host)?, launch_config(&config.get()?)?);
        out.set(got(|count| cu::occupancy_clusters(count, function, &config))?)
    }
    fn hipModuleGetGlobal(address: Out<usize>, len_bytes: Out<usize>, module: usize, name: InStr) {
        if !address.is_given() && !len_bytes.is_given() {
            return Err(HipError::INVALID_VALUE);
        }
        let (mut base, mut size) = (0, 0);
        cu::module_get_global(&mut base, &mut size, module, name.get()?.as_ptr())?;
        address.set_if_given(base);
        len_bytes.set_if_given(size);
        Ok(())
    }
    fn hipGetFuncBySymbol(out: Out<usize>, host: usize) {
        out.check()?;
        out.set(fat_binary::function_of_host(host, current_index())?)
    }
    fn hipFuncGetAttributes(out: Out<FuncAttributes>, host: usize) {
        out.check()?;
        out.set(attributes(named(host)?)?)
    }
    fn hipFuncGetAttribute(out: Out<i32>, number: i32, function: usize) {
        out.check()?;
        out.set(attribute(handle(function)?, number)?)
    }
    fn hipFuncSetAttribute(host: usize, number: i32, value: i32) { cu::func_set_attribute(named(host)?, number, value) }
    fn hipFuncSetCacheConfig(host: usize, config: i32) { cu::func_set_cache_config(named(host)?, config) }
    // Banks of shared memory have one width only on either maker's devices.
    fn hipFuncSetSharedMemConfig(host: usize, _config: i32) { named(host).map(drop) }
    fn hipOccupancyMaxActiveBlocksPerMultiprocessor(out: Out<i32>, host: usize, threads: i32, shared_bytes: usize) {
        occupancy(out, named(host)?, threads, shared_bytes, 0)
    }
    fn hipOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(out: Out<i32>, host: usize, threads: i32, shared_bytes: usize, flags: u32) {
        occupancy(out, named(host)?, threads, shared_bytes, flags)
    }
    fn hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(out: Out<i32>, function: usize, threads: i32, shared_bytes: usize) {
        occupancy(out, handle(function)?, threads, shared_bytes, 0)
    }
    fn hipModuleOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(out: Out<i32>, function: usize, threads: i32, shared_bytes: usize, flags: u32) {
        occupancy(out, handle(function)?, threads, shared_bytes, flags)
    }
    fn hipOccupancyMaxPotentialBlockSize(grid: Out<i32>, block: Out<i32>, host: usize, shared_bytes: usize, limit: i32) {
        block_size(grid, block, named(host)?, shared_bytes, limit, 0)
    }
    fn hipModuleOccupancyMaxPotentialBlockSize(grid: Out<i32>, block: Out<i32>, function: usize, shared_bytes: usize, limit: i32) {
        block_size(grid, block, handle(function)?, shared_bytes, limit, 0)
    }
    fn hipModuleOccupancyMaxPotentialBlockSizeWithFlags(grid: Out<i32>, block: Out<i32>, function: usize, shared_bytes: usize, limit: i32, flags: u32) {
        block_size(grid, block, handle(function)?, shared_bytes, limit, flags)
    }
    fn hipOccupancyAvailableDynamicSMemPerBlock(out: Out<usize>, host: usize, blocks: i32, threads: i32) {
        out.check()?;
        out.set(got(|shared_bytes| cu::occupancy_shared(shared_bytes, named(host)?, blocks, threads))?)
    }
}
