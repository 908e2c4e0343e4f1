//! Launches.

use crate::abi::{Dim3, DrvLaunchConfig, FunctionLaunchParams, LaunchConfig, LaunchParams};
use crate::api::{In, Out, hip_api};
use crate::error::{HipError, HipResult};
use crate::event;
use crate::launch::{self, Geometry, LaunchEvents};
use crate::module;
use crate::stream::{self, DefaultStream};
use crate::thread_state::{self, CallConfiguration};
use DefaultStream::{Legacy, PerThread};

/// Launches the kernel behind a host stub (or a function handle) on `stream`.
fn by_pointer(
    function: usize,
    geometry: Geometry,
    args: In<usize>,
    handle: usize,
    null: DefaultStream,
    events: &LaunchEvents,
) -> HipResult {
    let stream = stream::resolve(handle, null)?;
    let kernel = launch::find_kernel(function, stream.device)?;
    let kernarg = launch::gather_arguments(&kernel, args, In::from_address(0))?;
    launch::submit(&stream, launch::prepare(kernel, geometry, kernarg, function)?, events)
}

/// Launches a module's function on `stream`.
fn by_handle(
    function: usize,
    geometry: Geometry,
    handle: usize,
    params: In<usize>,
    extra: In<usize>,
    events: &LaunchEvents,
) -> HipResult {
    let kernel = match module::resolve_function(function) {
        Ok(kernel) => kernel,
        // Kernel stubs are accepted too, as HIP accepts them where it takes a function.
        Err(error) => launch::find_kernel(function, thread_state::current_device()?.index).map_err(|_| error)?,
    };
    let stream = stream::resolve(handle, Legacy)?;
    if !params.is_null() && !extra.is_null() {
        return Err(HipError::INVALID_VALUE);
    }
    let kernarg = launch::gather_arguments(&kernel, params, extra)?;
    launch::submit(&stream, launch::prepare(kernel, geometry, kernarg, function)?, events)
}

fn events(start: usize, stop: usize) -> HipResult<LaunchEvents> {
    let resolve = |handle: usize| if handle == 0 { Ok(None) } else { event::resolve(handle).map(Some) };
    Ok(LaunchEvents { start: resolve(start)?, stop: resolve(stop)? })
}

fn geometry(grid: Dim3, block: Dim3, dynamic_shared_bytes: usize) -> Geometry {
    Geometry { grid, block, dynamic_shared_bytes }
}

/// A cooperative grid must be resident as a whole.
fn cooperative(grid: Dim3, block: Dim3) -> HipResult {
    let threads = grid.volume().zip(block.volume()).and_then(|(blocks, threads)| blocks.checked_mul(threads));
    let limit = crate::properties::MULTIPROCESSORS as u64 * crate::properties::MAX_THREADS_PER_MULTIPROCESSOR as u64;
    if threads.is_some_and(|threads| threads <= limit) { Ok(()) } else { Err(HipError::COOPERATIVE_TOO_LARGE) }
}

const fn dim3(x: u32, y: u32, z: u32) -> Dim3 {
    Dim3 { x, y, z }
}

/// `hipExtModuleLaunchKernel` and its older spelling: the grid is given in threads.
#[expect(clippy::too_many_arguments, reason = "HIP's own signature")]
fn ext_module(
    function: usize,
    threads: Dim3,
    block: Dim3,
    shared_bytes: usize,
    stream: usize,
    params: In<usize>,
    extra: In<usize>,
    start: usize,
    stop: usize,
) -> HipResult {
    let grid = launch::grid_in_blocks(threads, block)?;
    by_handle(function, geometry(grid, block, shared_bytes), stream, params, extra, &events(start, stop)?)
}

hip_api! {
    fn hipLaunchKernel(function: usize, grid: Dim3, block: Dim3, args: In<usize>, shared_bytes: usize, stream: usize) {
        by_pointer(function, geometry(grid, block, shared_bytes), args, stream, Legacy, &LaunchEvents::default())
    }
    fn hipLaunchKernel_spt(function: usize, grid: Dim3, block: Dim3, args: In<usize>, shared_bytes: usize, stream: usize) {
        by_pointer(function, geometry(grid, block, shared_bytes), args, stream, PerThread, &LaunchEvents::default())
    }
    fn hipExtLaunchKernel(function: usize, grid: Dim3, block: Dim3, args: In<usize>, shared_bytes: usize, stream: usize, start: usize, stop: usize, _flags: i32) {
        by_pointer(function, geometry(grid, block, shared_bytes), args, stream, Legacy, &events(start, stop)?)
    }
    fn hipLaunchCooperativeKernel(function: usize, grid: Dim3, block: Dim3, args: In<usize>, shared_bytes: u32, stream: usize) {
        cooperative(grid, block)?;
        by_pointer(function, geometry(grid, block, shared_bytes as usize), args, stream, Legacy, &LaunchEvents::default())
    }
    fn hipLaunchCooperativeKernel_spt(function: usize, grid: Dim3, block: Dim3, args: In<usize>, shared_bytes: u32, stream: usize) {
        cooperative(grid, block)?;
        by_pointer(function, geometry(grid, block, shared_bytes as usize), args, stream, PerThread, &LaunchEvents::default())
    }
    fn hipLaunchCooperativeKernelMultiDevice(list: In<LaunchParams>, count: i32, _flags: u32) {
        let count = usize::try_from(count).map_err(|_| HipError::INVALID_VALUE)?;
        for params in list.array(count)? {
            cooperative(params.grid, params.block)?;
            by_pointer(params.func, geometry(params.grid, params.block, params.shared_bytes), params.args, params.stream, Legacy, &LaunchEvents::default())?;
        }
        Ok(())
    }
    fn hipExtLaunchMultiKernelMultiDevice(list: In<LaunchParams>, count: i32, _flags: u32) {
        let count = usize::try_from(count).map_err(|_| HipError::INVALID_VALUE)?;
        for params in list.array(count)? {
            by_pointer(params.func, geometry(params.grid, params.block, params.shared_bytes), params.args, params.stream, Legacy, &LaunchEvents::default())?;
        }
        Ok(())
    }
    fn hipLaunchKernelExC(config: In<LaunchConfig>, function: usize, args: In<usize>) {
        let config = config.get()?;
        by_pointer(function, geometry(config.grid, config.block, config.shared_bytes), args, config.stream, Legacy, &LaunchEvents::default())
    }
    fn hipDrvLaunchKernelEx(config: In<DrvLaunchConfig>, function: usize, params: In<usize>, extra: In<usize>) {
        let config = config.get()?;
        by_handle(function, geometry(config.grid, config.block, config.shared_bytes as usize), config.stream, params, extra, &LaunchEvents::default())
    }
    fn hipModuleLaunchKernel(function: usize, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared_bytes: u32, stream: usize, params: In<usize>, extra: In<usize>) {
        by_handle(function, geometry(dim3(gx, gy, gz), dim3(bx, by, bz), shared_bytes as usize), stream, params, extra, &LaunchEvents::default())
    }
    fn hipModuleLaunchCooperativeKernel(function: usize, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared_bytes: u32, stream: usize, params: In<usize>) {
        cooperative(dim3(gx, gy, gz), dim3(bx, by, bz))?;
        by_handle(function, geometry(dim3(gx, gy, gz), dim3(bx, by, bz), shared_bytes as usize), stream, params, In::from_address(0), &LaunchEvents::default())
    }
    fn hipModuleLaunchCooperativeKernelMultiDevice(list: In<FunctionLaunchParams>, count: u32, _flags: u32) {
        for params in list.array(count as usize)? {
            cooperative(params.grid, params.block)?;
            let geometry = geometry(params.grid, params.block, params.shared_bytes as usize);
            by_handle(params.function, geometry, params.stream, params.kernel_params, In::from_address(0), &LaunchEvents::default())?;
        }
        Ok(())
    }
    fn hipExtModuleLaunchKernel(function: usize, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared_bytes: usize, stream: usize,
                                params: In<usize>, extra: In<usize>, start: usize, stop: usize, _flags: u32) {
        ext_module(function, dim3(gx, gy, gz), dim3(bx, by, bz), shared_bytes, stream, params, extra, start, stop)
    }
    fn hipHccModuleLaunchKernel(function: usize, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared_bytes: usize, stream: usize,
                                params: In<usize>, extra: In<usize>, start: usize, stop: usize) {
        ext_module(function, dim3(gx, gy, gz), dim3(bx, by, bz), shared_bytes, stream, params, extra, start, stop)
    }
    fn hipConfigureCall(grid: Dim3, block: Dim3, shared_bytes: usize, stream: usize) {
        thread_state::push_configuration(CallConfiguration { grid, block, shared_bytes, stream, arguments: Vec::new() });
        Ok(())
    }
    fn hipSetupArgument(argument: In<u8>, len_bytes: usize, offset_bytes: usize) {
        if len_bytes > 4096 {
            return Err(HipError::INVALID_VALUE);
        }
        thread_state::set_argument(&argument.array(len_bytes)?, offset_bytes)
    }
    fn hipLaunchByPtr(function: usize) {
        let call = thread_state::pop_configuration()?;
        let stream = stream::resolve(call.stream, Legacy)?;
        let kernel = launch::find_kernel(function, stream.device)?;
        let kernarg = launch::kernarg_from_bytes(&call.arguments, kernel.kernarg_bytes);
        let geometry = geometry(call.grid, call.block, call.shared_bytes);
        launch::submit(&stream, launch::prepare(kernel, geometry, kernarg, function)?, &LaunchEvents::default())
    }
    fn __hipPushCallConfiguration(grid: Dim3, block: Dim3, shared_bytes: usize, stream: usize) {
        thread_state::push_configuration(CallConfiguration { grid, block, shared_bytes, stream, arguments: Vec::new() });
        Ok(())
    }
    fn __hipPopCallConfiguration(grid: Out<Dim3>, block: Out<Dim3>, shared_bytes: Out<usize>, stream: Out<usize>) {
        let call = thread_state::pop_configuration()?;
        grid.set(call.grid)?;
        block.set(call.block)?;
        shared_bytes.set(call.shared_bytes)?;
        stream.set(call.stream)
    }
}
