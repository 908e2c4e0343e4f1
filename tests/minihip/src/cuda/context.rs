//! Devices and their primary contexts; the current device of each thread.

use super::cuda_api;
use super::driver::{self as cu, got};
use crate::api::Out;
use crate::error::{HipError, HipResult};
use crate::thread_state::with_contexts;
use std::cell::Cell;
use std::sync::OnceLock;

/// A GPU.
#[derive(Debug)]
pub(super) struct Device {
    /// Number in HIP's order.
    pub(super) index: usize,
    /// `CUdevice`.
    pub(super) id: i32,
    /// Primary context, retained at first use and for the life of the process.
    context: OnceLock<HipResult<usize>>,
}

impl Device {
    /// The device's primary context.
    pub(super) fn context(&self) -> HipResult<usize> {
        *self.context.get_or_init(|| got(|context| cu::primary_ctx_retain(context, self.id)))
    }
}

fn find_devices() -> HipResult<Vec<Device>> {
    super::address_space::with_kept_addresses_hidden(|| cu::init(0))?;
    let found = got(cu::device_get_count)?;
    // MINIHIP_DEVICES asks for at most that many.
    let wanted = std::env::var("MINIHIP_DEVICES").ok().and_then(|text| text.trim().parse::<i32>().ok());
    (0..found.min(wanted.unwrap_or(found)))
        .map(|ordinal| {
            let id = got(|device| cu::device_get(device, ordinal))?;
            // Infallible: counted up from 0.
            Ok(Device { index: ordinal.unsigned_abs() as usize, id, context: OnceLock::new() })
        })
        .collect()
}

/// All devices. Fails with `hipErrorNoDevice` where there is no driver or no GPU.
pub(super) fn devices() -> HipResult<&'static [Device]> {
    static DEVICES: OnceLock<HipResult<Vec<Device>>> = OnceLock::new();
    match DEVICES.get_or_init(find_devices) {
        Ok(devices) if devices.is_empty() => Err(HipError::NO_DEVICE),
        Ok(devices) => Ok(devices),
        Err(error) => Err(*error),
    }
}

/// Device `ordinal` as C programs spell it.
pub(super) fn device(ordinal: i32) -> HipResult<&'static Device> {
    let devices = devices()?;
    usize::try_from(ordinal).ok().and_then(|index| devices.get(index)).ok_or(HipError::INVALID_DEVICE)
}

/// Device `index`.
pub(super) fn device_at(index: usize) -> HipResult<&'static Device> {
    devices()?.get(index).ok_or(HipError::INVALID_DEVICE)
}

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
    /// Whether the current device's context is the thread's.
    static IS_BOUND: Cell<bool> = const { Cell::new(false) };
}

/// Index of the thread's current device.
#[inline]
pub(super) fn current_index() -> usize {
    CURRENT.get()
}

/// The thread's current device.
pub(super) fn current() -> HipResult<&'static Device> {
    device_at(CURRENT.get())
}

/// Makes the thread's device current in the driver too, at its first call.
#[inline]
pub(super) fn bind() -> HipResult {
    if IS_BOUND.get() { Ok(()) } else { set(CURRENT.get()) }
}

#[cold]
fn set(index: usize) -> HipResult {
    cu::ctx_set_current(device_at(index)?.context()?)?;
    CURRENT.set(index);
    IS_BOUND.set(true);
    Ok(())
}

/// Runs `body` with device `index` current.
#[inline]
pub(super) fn with_device<R>(index: usize, body: impl FnOnce() -> HipResult<R>) -> HipResult<R> {
    if index == CURRENT.get() {
        return body();
    }
    cu::ctx_push_current(device_at(index)?.context()?)?;
    let result = body();
    got(cu::ctx_pop_current).and(result)
}

/// The device whose primary context a handle is.
fn owner(context: usize) -> HipResult<&'static Device> {
    let owns = |device: &&Device| matches!(device.context.get(), Some(Ok(own)) if *own == context);
    devices()?.iter().find(owns).ok_or(HipError::INVALID_CONTEXT)
}

/// `CU_CTX_SCHED_*` and the like as HIP numbers them: the same.
const DEVICE_FLAGS: u32 = 0x1F;

cuda_api! {
    fn hipSetDevice(ordinal: i32) {
        let wanted = device(ordinal)?.index;
        if wanted == CURRENT.get() && IS_BOUND.get() { Ok(()) } else { set(wanted) }
    }
    fn hipGetDevice(out: Out<i32>) { out.set(CURRENT.get() as i32) }
    fn hipCtxGetCurrent(out: Out<usize>) {
        out.check()?;
        out.set(current()?.context()?)
    }
    fn hipCtxGetDevice(out: Out<i32>) { out.set(CURRENT.get() as i32) }
    fn hipCtxGetFlags(out: Out<u32>) {
        out.check()?;
        let (mut flags, mut active) = (0, 0);
        cu::primary_ctx_get_state(current()?.id, &mut flags, &mut active)?;
        out.set(flags & DEVICE_FLAGS)
    }
    fn hipCtxSetCurrent(context: usize) {
        if context == 0 {
            with_contexts(Vec::pop);
            return Ok(());
        }
        set(owner(context)?.index)?;
        with_contexts(|stack| {
            stack.pop();
            stack.push(context);
        });
        Ok(())
    }
    fn hipCtxPushCurrent(context: usize) {
        set(owner(context)?.index)?;
        with_contexts(|stack| stack.push(context));
        Ok(())
    }
    fn hipCtxPopCurrent(out: Out<usize>) {
        let (popped, next) = with_contexts(|stack| (stack.pop(), stack.last().copied()));
        out.set_if_given(popped.ok_or(HipError::INVALID_CONTEXT)?);
        next.map_or(Ok(()), |context| set(owner(context)?.index))
    }
    fn hipCtxCreate(out: Out<usize>, _flags: u32, ordinal: i32) {
        // HIP's contexts are the device's primary one under another name.
        out.check()?;
        let device = device(ordinal)?;
        set(device.index)?;
        let context = device.context()?;
        with_contexts(|stack| stack.push(context));
        out.set(context)
    }
    fn hipCtxDestroy(context: usize) {
        owner(context)?;
        with_contexts(|stack| stack.retain(|other| *other != context));
        Ok(())
    }
    fn hipCtxGetApiVersion(context: usize, out: Out<u32>) {
        out.check()?;
        if context != 0 {
            owner(context)?;
        }
        out.set(4)
    }
    fn hipCtxSynchronize() { cu::ctx_synchronize() }
    fn hipDevicePrimaryCtxRetain(out: Out<usize>, ordinal: i32) {
        out.check()?;
        out.set(device(ordinal)?.context()?)
    }
    fn hipDevicePrimaryCtxRelease(ordinal: i32) {
        // Retained for the life of the process: see `Device::context`.
        device(ordinal).map(drop)
    }
    fn hipDevicePrimaryCtxGetState(ordinal: i32, flags: Out<u32>, is_active: Out<i32>) {
        let (mut flags_now, mut active) = (0, 0);
        cu::primary_ctx_get_state(device(ordinal)?.id, &mut flags_now, &mut active)?;
        flags.set_if_given(flags_now);
        is_active.set_if_given(active);
        Ok(())
    }
    fn hipGetDeviceFlags(out: Out<u32>) {
        out.check()?;
        let (mut flags, mut active) = (0, 0);
        cu::primary_ctx_get_state(current()?.id, &mut flags, &mut active)?;
        out.set(flags & DEVICE_FLAGS)
    }
    fn hipSetDeviceFlags(flags: u32) {
        let schedule = flags & 7;
        if flags & !DEVICE_FLAGS != 0 || !(schedule == 0 || schedule.is_power_of_two()) {
            return Err(HipError::INVALID_VALUE);
        }
        cu::primary_ctx_set_flags(current()?.id, flags)
    }
}
