//! From the many launch spellings to one launch: finding the kernel, gathering arguments, checking sizes.

use crate::abi::Dim3;
use crate::api::In;
use crate::error::{HipError, HipResult};
use crate::event::Event;
use crate::fat_binary;
use crate::kernel::{Kernarg, Kernel, Launch};
use crate::module;
use crate::op::Op;
use crate::properties;
use crate::stream::Stream;
use std::sync::{Arc, OnceLock};

/// `HIP_LAUNCH_PARAM_BUFFER_POINTER`, `..._BUFFER_SIZE`, `..._END` of the `extra` argument.
const PARAM_BUFFER_POINTER: usize = 1;
const PARAM_BUFFER_SIZE: usize = 2;
const PARAM_END: usize = 3;
/// Keys of `extra` looked at before it is taken for garbage.
const MAX_EXTRA: usize = 8;

/// Size of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// In blocks.
    pub(crate) grid: Dim3,
    /// In threads.
    pub(crate) block: Dim3,
    pub(crate) dynamic_shared_bytes: usize,
}

/// Events of the `hipExt` launches.
#[derive(Clone, Debug, Default)]
pub(crate) struct LaunchEvents {
    pub(crate) start: Option<Arc<Event>>,
    pub(crate) stop: Option<Arc<Event>>,
}

/// The kernel of a host stub or of a function handle, whichever `function` is.
pub(crate) fn find_kernel(function: usize, device: usize) -> HipResult<Arc<Kernel>> {
    if function == 0 {
        return Err(HipError::INVALID_DEVICE_FUNCTION);
    }
    match fat_binary::kernel(function, device) {
        Err(HipError::INVALID_DEVICE_FUNCTION) => {
            module::resolve_function(function).map_err(|_| HipError::INVALID_DEVICE_FUNCTION)
        }
        found => found,
    }
}

/// A zeroed kernarg segment of at least `len_bytes`.
fn empty_kernarg(len_bytes: usize) -> Kernarg {
    vec![0_u128; len_bytes.div_ceil(16).max(1)]
}

fn bytes_of(kernarg: &mut Kernarg) -> &mut [u8] {
    // SAFETY: the vector's own elements, all initialised; a u128 has no padding and u8 no alignment to respect.
    unsafe { std::slice::from_raw_parts_mut(kernarg.as_mut_ptr().cast(), kernarg.len() * size_of::<u128>()) }
}

/// Lays out `bytes` as a kernarg segment of at least `min_bytes`.
pub(crate) fn kernarg_from_bytes(bytes: &[u8], min_bytes: usize) -> Kernarg {
    let mut kernarg = empty_kernarg(bytes.len().max(min_bytes));
    bytes_of(&mut kernarg)[..bytes.len()].copy_from_slice(bytes);
    kernarg
}

/// Copies the arguments `params[i]` points at, or the buffer named in `extra`, into a kernarg segment.
pub(crate) fn gather_arguments(kernel: &Kernel, params: In<usize>, extra: In<usize>) -> HipResult<Kernarg> {
    if !extra.is_null() {
        return gather_extra(kernel, extra);
    }
    let mut kernarg = empty_kernarg(kernel.kernarg_bytes);
    let bytes = bytes_of(&mut kernarg);
    for (i, argument) in kernel.arguments.iter().enumerate() {
        let value = params.at(i)?;
        if value == 0 {
            return Err(HipError::INVALID_VALUE);
        }
        // In bounds: checked against the segment's size when the kernel was found.
        let place = &mut bytes[argument.offset..argument.offset + argument.len_bytes];
        // SAFETY: HIP's API obliges the caller to let `params[i]` point at the kernel's argument i, of this size; the
        // segment is fresh memory that nothing else points to.
        unsafe { std::ptr::copy_nonoverlapping(value as *const u8, place.as_mut_ptr(), place.len()) };
    }
    Ok(kernarg)
}

fn gather_extra(kernel: &Kernel, extra: In<usize>) -> HipResult<Kernarg> {
    let (mut buffer, mut len_bytes) = (None, None);
    let mut position = 0;
    while position < MAX_EXTRA {
        match extra.at(position)? {
            PARAM_END => break,
            PARAM_BUFFER_POINTER => buffer = Some(extra.at(position + 1)?),
            PARAM_BUFFER_SIZE => len_bytes = Some(In::<usize>::from_address(extra.at(position + 1)?).get()?),
            _ => return Err(HipError::INVALID_VALUE),
        }
        position += 2;
    }
    let (Some(buffer), Some(len_bytes)) = (buffer, len_bytes) else { return Err(HipError::INVALID_VALUE) };
    if len_bytes > 1 << 20 {
        return Err(HipError::INVALID_VALUE);
    }
    let bytes = In::<u8>::from_address(buffer).array(len_bytes)?;
    Ok(kernarg_from_bytes(&bytes, kernel.kernarg_bytes))
}

/// Checks a launch's sizes. Fails with `hipErrorInvalidConfiguration` on empty or oversized dimensions, with
/// `hipErrorInvalidValue` on too much shared memory.
pub(crate) fn check_geometry(kernel: &Kernel, geometry: &Geometry) -> HipResult {
    let threads = geometry.block.volume().ok_or(HipError::INVALID_CONFIGURATION)?;
    let blocks = geometry.grid.volume().ok_or(HipError::INVALID_CONFIGURATION)?;
    if threads == 0 || blocks == 0 || threads > properties::MAX_THREADS_PER_BLOCK {
        return Err(HipError::INVALID_CONFIGURATION);
    }
    let shared = kernel.static_shared_bytes.saturating_add(geometry.dynamic_shared_bytes);
    if shared > properties::SHARED_BYTES_PER_BLOCK { Err(HipError::INVALID_VALUE) } else { Ok(()) }
}

/// A checked launch, without events.
pub(crate) fn prepare(kernel: Arc<Kernel>, geometry: Geometry, kernarg: Kernarg, function: usize) -> HipResult<Launch> {
    check_geometry(&kernel, &geometry)?;
    Ok(Launch {
        kernel,
        grid: geometry.grid,
        block: geometry.block,
        // Fits: checked against the device's shared memory.
        dynamic_shared_bytes: geometry.dynamic_shared_bytes as u32,
        kernarg,
        start: None,
        stop: None,
        function,
        pointers: OnceLock::new(),
    })
}

/// Submits a launch to `stream`.
pub(crate) fn submit(stream: &Arc<Stream>, mut launch: Launch, events: &LaunchEvents) -> HipResult {
    if launch.kernel.code.device != stream.device {
        // A module's code exists on one device only.
        return Err(HipError::INVALID_HANDLE);
    }
    let capturing = stream.capturing.load(std::sync::atomic::Ordering::Acquire);
    if capturing && (events.start.is_some() || events.stop.is_some()) {
        return Err(HipError::CAPTURE_UNSUPPORTED);
    }
    launch.start = events.start.as_ref().map(|_| Arc::default());
    launch.stop = events.stop.as_ref().map(|_| Arc::default());
    let launch = Arc::new(launch);
    stream.submit(Op::Kernel(Arc::clone(&launch)))?;
    for (event, mark) in [(&events.start, &launch.start), (&events.stop, &launch.stop)] {
        if let (Some(event), Some(mark)) = (event, mark) {
            event.stand_for(Arc::clone(mark));
        }
    }
    Ok(())
}

/// A grid given in threads, as `hipExtModuleLaunchKernel` takes it, in blocks; it must divide evenly.
pub(crate) fn grid_in_blocks(threads: Dim3, block: Dim3) -> HipResult<Dim3> {
    let divide = |threads: u32, block: u32| match block {
        0 => Err(HipError::INVALID_CONFIGURATION),
        _ if !threads.is_multiple_of(block) => Err(HipError::INVALID_VALUE),
        _ => Ok(threads / block),
    };
    Ok(Dim3 { x: divide(threads.x, block.x)?, y: divide(threads.y, block.y)?, z: divide(threads.z, block.z)? })
}
