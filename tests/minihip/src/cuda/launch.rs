//! Launches.

use super::context::with_device;
use super::cuda_api;
use super::driver as cu;
use super::fat_binary::function;
use super::handles::{self, event, spt, stream};
use super::module;
use crate::abi::{Dim3, DrvLaunchConfig, FunctionLaunchParams, LaunchConfig, LaunchParams};
use crate::api::In;
use crate::error::{HipError, HipResult};
use crate::launch::grid_in_blocks;
use crate::thread_state;

/// `HIP_LAUNCH_PARAM_BUFFER_POINTER`, `..._BUFFER_SIZE`, `..._END` of the `extra` argument.
const PARAM_BUFFER_POINTER: usize = 1;
const PARAM_BUFFER_SIZE: usize = 2;
const PARAM_END: usize = 3;
/// Keys of `extra` looked at before it is taken for garbage.
const MAX_EXTRA: usize = 8;
/// Threads a block may have, on either maker's devices.
const MAX_THREADS_PER_BLOCK: u64 = 1024;

/// Size of a launch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    pub(super) grid: Dim3,
    pub(super) block: Dim3,
    pub(super) shared_bytes: usize,
}

const fn dim3(x: u32, y: u32, z: u32) -> Dim3 {
    Dim3 { x, y, z }
}

fn geometry(grid: Dim3, block: Dim3, shared_bytes: usize) -> Geometry {
    Geometry { grid, block, shared_bytes }
}

impl Geometry {
    /// Fails with `hipErrorInvalidConfiguration` where the driver would call the sizes an invalid value.
    #[inline]
    pub(super) fn check(&self) -> HipResult<u32> {
        let threads = self.block.volume().unwrap_or(0);
        let is_empty = self.grid.x == 0 || self.grid.y == 0 || self.grid.z == 0;
        if threads == 0 || threads > MAX_THREADS_PER_BLOCK || is_empty {
            return Err(HipError::INVALID_CONFIGURATION);
        }
        u32::try_from(self.shared_bytes).map_err(|_| HipError::INVALID_VALUE)
    }
}

/// Where a launch's arguments are.
#[derive(Clone, Copy, Debug)]
enum Arguments {
    /// One pointer each.
    Each(usize),
    /// One buffer, laid out as the parameters are.
    Buffer { address: usize, len_bytes: usize },
}

impl Arguments {
    fn of(params: In<usize>, extra: In<usize>) -> HipResult<Self> {
        if extra.is_null() {
            return Ok(Arguments::Each(params.address()));
        }
        if !params.is_null() {
            return Err(HipError::INVALID_VALUE);
        }
        let (mut buffer, mut size) = (None, None);
        for position in (0..MAX_EXTRA).step_by(2) {
            match extra.at(position)? {
                PARAM_END => break,
                PARAM_BUFFER_POINTER => buffer = Some(extra.at(position + 1)?),
                PARAM_BUFFER_SIZE => size = Some(In::<usize>::from_address(extra.at(position + 1)?).get()?),
                _ => return Err(HipError::INVALID_VALUE),
            }
        }
        let (Some(address), Some(len_bytes)) = (buffer, size) else { return Err(HipError::INVALID_VALUE) };
        Ok(Arguments::Buffer { address, len_bytes })
    }
}

/// Pointers to each parameter in a buffer. Fails with `hipErrorInvalidValue` on a buffer that is too short.
pub(super) fn parameter_pointers(function: usize, address: usize, len_bytes: usize) -> HipResult<Vec<usize>> {
    let known = module::known(function).ok_or(HipError::INVALID_DEVICE_FUNCTION)?;
    let pointer = |(offset, size): &(usize, usize)| (offset + size <= len_bytes).then_some(address + offset);
    known.parameters.iter().map(pointer).collect::<Option<_>>().ok_or(HipError::INVALID_VALUE)
}

/// `extra` of a launch or a node as pointers to each parameter.
pub(super) fn extra_pointers(function: usize, extra: In<usize>) -> HipResult<Vec<usize>> {
    match Arguments::of(In::from_address(0), extra)? {
        Arguments::Buffer { address, len_bytes } => parameter_pointers(function, address, len_bytes),
        Arguments::Each(_) => Err(HipError::INVALID_VALUE),
    }
}

/// How a launch runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    Cooperative,
}

#[inline]
fn launch(named: usize, geometry: Geometry, arguments: Arguments, stream_handle: usize, kind: Kind) -> HipResult {
    let shared_bytes = geometry.check()?;
    let stream = stream(stream_handle)?;
    let function = function(named, stream.device)?;
    module::allow_shared(function, shared_bytes)?;
    let storage;
    let params = match arguments {
        Arguments::Each(params) => params,
        Arguments::Buffer { address, len_bytes } => {
            storage = parameter_pointers(function, address, len_bytes)?;
            storage.as_ptr() as usize
        }
    };
    let Geometry { grid, block, .. } = geometry;
    with_device(stream.device, || match kind {
        Kind::Plain => cu::launch(function, grid, block, shared_bytes, stream.handle, params, 0),
        Kind::Cooperative => cu::launch_cooperative_kernel(
            function,
            grid.x,
            grid.y,
            grid.z,
            block.x,
            block.y,
            block.z,
            shared_bytes,
            stream.handle,
            params,
        ),
    })
}

/// A launch with its start and stop recorded in events, 0 for none.
fn timed(
    named: usize,
    geometry: Geometry,
    arguments: Arguments,
    stream: usize,
    start: usize,
    stop: usize,
) -> HipResult {
    let record = |handle: usize| {
        if handle == 0 { Ok(()) } else { handles::on(stream, |stream| cu::event_record(event(handle)?, stream)) }
    };
    record(start)?;
    launch(named, geometry, arguments, stream, Kind::Plain)?;
    record(stop)
}

/// Launches of modules call a bad function a bad handle.
fn by_handle(
    named: usize,
    geometry: Geometry,
    stream: usize,
    params: In<usize>,
    extra: In<usize>,
    kind: Kind,
) -> HipResult {
    launch(named, geometry, Arguments::of(params, extra)?, stream, kind)
        .map_err(|error| if error == HipError::INVALID_DEVICE_FUNCTION { HipError::INVALID_HANDLE } else { error })
}

const NO_EXTRA: usize = 0;

cuda_api! {
    fn hipLaunchKernel(function: usize, grid: Dim3, block: Dim3, args: In<usize>, shared_bytes: usize, stream: usize) {
        launch(function, geometry(grid, block, shared_bytes), Arguments::Each(args.address()), stream, Kind::Plain)
    }
    fn hipLaunchKernel_spt(function: usize, grid: Dim3, block: Dim3, args: In<usize>, shared_bytes: usize, stream: usize) {
        launch(function, geometry(grid, block, shared_bytes), Arguments::Each(args.address()), spt(stream), Kind::Plain)
    }
    fn hipExtLaunchKernel(function: usize, grid: Dim3, block: Dim3, args: In<usize>, shared_bytes: usize, stream: usize, start: usize, stop: usize, _flags: i32) {
        timed(function, geometry(grid, block, shared_bytes), Arguments::Each(args.address()), stream, start, stop)
    }
    fn hipLaunchCooperativeKernel(function: usize, grid: Dim3, block: Dim3, args: In<usize>, shared_bytes: u32, stream: usize) {
        launch(function, geometry(grid, block, shared_bytes as usize), Arguments::Each(args.address()), stream, Kind::Cooperative)
    }
    fn hipLaunchCooperativeKernel_spt(function: usize, grid: Dim3, block: Dim3, args: In<usize>, shared_bytes: u32, stream: usize) {
        launch(function, geometry(grid, block, shared_bytes as usize), Arguments::Each(args.address()), spt(stream), Kind::Cooperative)
    }
    // Grids that synchronise with each other across devices are no longer offered by the driver: one after the other,
    // which is what HIP does on devices without it.
    fn hipLaunchCooperativeKernelMultiDevice(list: In<LaunchParams>, count: i32, _flags: u32) {
        let count = usize::try_from(count).map_err(|_| HipError::INVALID_VALUE)?;
        list.array(count)?.into_iter().try_for_each(|params| {
            let geometry = geometry(params.grid, params.block, params.shared_bytes);
            launch(params.func, geometry, Arguments::Each(params.args.address()), params.stream, Kind::Cooperative)
        })
    }
    fn hipExtLaunchMultiKernelMultiDevice(list: In<LaunchParams>, count: i32, _flags: u32) {
        let count = usize::try_from(count).map_err(|_| HipError::INVALID_VALUE)?;
        list.array(count)?.into_iter().try_for_each(|params| {
            let geometry = geometry(params.grid, params.block, params.shared_bytes);
            launch(params.func, geometry, Arguments::Each(params.args.address()), params.stream, Kind::Plain)
        })
    }
    fn hipLaunchKernelExC(config: In<LaunchConfig>, function: usize, args: In<usize>) {
        let config = config.get()?;
        let geometry = geometry(config.grid, config.block, config.shared_bytes);
        launch(function, geometry, Arguments::Each(args.address()), config.stream, Kind::Plain)
    }
    fn hipDrvLaunchKernelEx(config: In<DrvLaunchConfig>, function: usize, params: In<usize>, extra: In<usize>) {
        let config = config.get()?;
        by_handle(function, geometry(config.grid, config.block, config.shared_bytes as usize), config.stream, params, extra, Kind::Plain)
    }
    fn hipModuleLaunchKernel(function: usize, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared_bytes: u32, stream: usize, params: In<usize>, extra: In<usize>) {
        by_handle(function, geometry(dim3(gx, gy, gz), dim3(bx, by, bz), shared_bytes as usize), stream, params, extra, Kind::Plain)
    }
    fn hipModuleLaunchCooperativeKernel(function: usize, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared_bytes: u32, stream: usize, params: In<usize>) {
        let geometry = geometry(dim3(gx, gy, gz), dim3(bx, by, bz), shared_bytes as usize);
        by_handle(function, geometry, stream, params, In::from_address(NO_EXTRA), Kind::Cooperative)
    }
    fn hipModuleLaunchCooperativeKernelMultiDevice(list: In<FunctionLaunchParams>, count: u32, _flags: u32) {
        list.array(count as usize)?.into_iter().try_for_each(|params| {
            let geometry = geometry(params.grid, params.block, params.shared_bytes as usize);
            by_handle(params.function, geometry, params.stream, params.kernel_params, In::from_address(NO_EXTRA), Kind::Cooperative)
        })
    }
    fn hipExtModuleLaunchKernel(function: usize, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared_bytes: usize, stream: usize,
                                params: In<usize>, extra: In<usize>, start: usize, stop: usize, _flags: u32) {
        let grid = grid_in_blocks(dim3(gx, gy, gz), dim3(bx, by, bz))?;
        timed(function, geometry(grid, dim3(bx, by, bz), shared_bytes), Arguments::of(params, extra)?, stream, start, stop)
    }
    fn hipHccModuleLaunchKernel(function: usize, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared_bytes: usize, stream: usize,
                                params: In<usize>, extra: In<usize>, start: usize, stop: usize) {
        let grid = grid_in_blocks(dim3(gx, gy, gz), dim3(bx, by, bz))?;
        timed(function, geometry(grid, dim3(bx, by, bz), shared_bytes), Arguments::of(params, extra)?, stream, start, stop)
    }
    fn hipLaunchByPtr(function: usize) {
        let call = thread_state::pop_configuration()?;
        let arguments = Arguments::Buffer { address: call.arguments.as_ptr() as usize, len_bytes: call.arguments.len() };
        launch(function, geometry(call.grid, call.block, call.shared_bytes), arguments, call.stream, Kind::Plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_sizes_are_configurations_not_values() {
        let of = |grid, block, shared_bytes| geometry(grid, block, shared_bytes).check();
        assert_eq!(of(dim3(1, 1, 1), dim3(1024, 1, 1), 16), Ok(16));
        assert_eq!(of(dim3(1, 1, 1), dim3(1024, 2, 1), 0), Err(HipError::INVALID_CONFIGURATION));
        assert_eq!(of(dim3(1, 0, 1), dim3(64, 1, 1), 0), Err(HipError::INVALID_CONFIGURATION));
        assert_eq!(of(dim3(1, 1, 1), dim3(64, 1, 0), 0), Err(HipError::INVALID_CONFIGURATION));
        assert_eq!(of(dim3(1, 1, 1), dim3(u32::MAX, u32::MAX, 3), 0), Err(HipError::INVALID_CONFIGURATION));
        assert_eq!(of(dim3(1, 1, 1), dim3(1, 1, 1), 1 << 40), Err(HipError::INVALID_VALUE));
    }

    #[test]
    fn extra_is_read_up_to_its_end() {
        let (buffer, len_bytes) = ([0_u8; 16], 16_usize);
        let extra = [1, buffer.as_ptr() as usize, 2, &raw const len_bytes as usize, 3];
        let read = Arguments::of(In::from_address(0), In::from_address(extra.as_ptr() as usize));
        assert!(
            matches!(read, Ok(Arguments::Buffer { address, len_bytes: 16 }) if address == buffer.as_ptr() as usize)
        );
        let garbage = [7_usize, 0, 3];
        assert!(Arguments::of(In::from_address(0), In::from_address(garbage.as_ptr() as usize)).is_err());
        let no_size = [1_usize, 8, 3];
        assert!(Arguments::of(In::from_address(0), In::from_address(no_size.as_ptr() as usize)).is_err());
        let both = Arguments::of(In::from_address(8), In::from_address(extra.as_ptr() as usize));
        assert!(matches!(both, Err(HipError::INVALID_VALUE)));
    }
}
