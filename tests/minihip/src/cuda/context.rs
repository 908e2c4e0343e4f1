//! Devices and their primary contexts; the current device of each thread.

use super::cuda_api;
use super::driver::{self as cu, got};
use crate::api::Out;
use crate::error::{HipError, HipResult};
use crate::registry::lock;
use crate::thread_state::with_contexts;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

/// A GPU.
#[derive(Debug)]
pub(super) struct Device {
    /// Number in HIP's order.
    pub(super) index: usize,
    /// `CUdevice`.
    pub(super) id: i32,
    /// Primary context, retained at first use and, but for resets, for the life of the process; 0 before.
    context: AtomicUsize,
    /// Held while the context changes.
    changes: Mutex<()>,
}

/// Number of devices reset and of fat binaries registered so far: what a thread bound before is stale, as its context may be
/// gone, or lacks code.
static CHANGES: AtomicU64 = AtomicU64::new(1);

/// Has every thread bind its device again at its next call.
pub(super) fn bind_again() {
    // Release: a thread that is told of the change sees the new number, and binds again.
    CHANGES.fetch_add(1, Ordering::Release);
}

impl Device {
    /// The device's primary context.
    pub(super) fn context(&self) -> HipResult<usize> {
        // Acquire: pairs with the Release below; the context was retained before its handle was stored.
        match self.context.load(Ordering::Acquire) {
            0 => self.retain(),
            context => Ok(context),
        }
    }

    #[cold]
    fn retain(&self) -> HipResult<usize> {
        let _changes = lock(&self.changes);
        // Relaxed: changes are made under the lock.
        let known = self.context.load(Ordering::Relaxed);
        if known != 0 {
            return Ok(known);
        }
        let context = got(|context| cu::primary_ctx_retain(context, self.id))?;
        // Release: see `context`.
        self.context.store(context, Ordering::Release);
        Ok(context)
    }

    /// Ends all that was made on the device, once its work is done; the next call that needs the device begins anew.
    fn reset(&self) -> HipResult {
        with_device(self.index, cu::ctx_synchronize)?;
        super::forget_device(self.index)?;
        let changes = lock(&self.changes);
        // Release: see `context`.
        self.context.store(0, Ordering::Release);
        let result = cu::primary_ctx_reset(self.id);
        drop(changes);
        bind_again();
        result
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
            Ok(Device {
                index: ordinal.unsigned_abs() as usize,
                id,
                context: AtomicUsize::new(0),
                changes: Mutex::new(()),
            })
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
    /// [`CHANGES`] when the current device's context was made the thread's; 0 before it was.
    static BOUND_AT: Cell<u64> = const { Cell::new(0) };
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

/// Compute capability of the thread's current device: 90 for 9.0.
pub(super) fn capability() -> HipResult<u32> {
    /// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `..._MINOR`.
    const CAPABILITY: [i32; 2] = [75, 76];
    let device = current()?.id;
    let [major, minor] = CAPABILITY.map(|attribute| got(|value| cu::device_get_attribute(value, attribute, device)));
    Ok((major? * 10 + minor?).unsigned_abs())
}

fn is_bound() -> bool {
    // Acquire: pairs with the Release in `bind_again`.
    BOUND_AT.get() == CHANGES.load(Ordering::Acquire)
}

/// Makes the thread's device current in the driver too, at its first call and after changes.
#[inline]
pub(super) fn bind() -> HipResult {
    if is_bound() { Ok(()) } else { set(CURRENT.get()) }
}

#[cold]
fn set(index: usize) -> HipResult {
    // Acquire: as in `is_bound`. Read before the context is, so that a change in between binds once more.
    let changes = CHANGES.load(Ordering::Acquire);
    cu::ctx_set_current(device_at(index)?.context()?)?;
    CURRENT.set(index);
    BOUND_AT.set(changes);
    super::load_code(index);
    Ok(())
}

/// Runs `body` with device `index` current.
#[inline]
pub(super) fn with_device<R>(index: usize, body: impl FnOnce() -> HipResult<R>) -> HipResult<R> {
    if index == CURRENT.get() {
        return body();
    }
    cu::ctx_push_current(device_at(index)?.context()?)?;
    let outer = CURRENT.replace(index);
    let result = body();
    CURRENT.set(outer);
    got(cu::ctx_pop_current).and(result)
}

/// The device whose primary context a handle is.
fn owner(context: usize) -> HipResult<&'static Device> {
    // Acquire: as in `Device::context`.
    let owns = |device: &&Device| context != 0 && device.context.load(Ordering::Acquire) == context;
    devices()?.iter().find(owns).ok_or(HipError::INVALID_CONTEXT)
}

/// `CU_CTX_SCHED_*` and the like as HIP numbers them: the same.
const DEVICE_FLAGS: u32 = 0x1F;

/// Sets a device's flags. Fails with `hipErrorInvalidValue` on flags that are none.
fn set_flags(device: &Device, flags: u32) -> HipResult {
    let schedule = flags & 7;
    if flags & !DEVICE_FLAGS != 0 || !(schedule == 0 || schedule.is_power_of_two()) {
        return Err(HipError::INVALID_VALUE);
    }
    cu::primary_ctx_set_flags(device.id, flags)
}

/// A context that is not the current device's.
fn other(context: usize) -> HipResult<usize> {
    if owner(context)?.index == current_index() { Err(HipError::INVALID_DEVICE) } else { Ok(context) }
}

cuda_api! {
    fn hipSetDevice(ordinal: i32) {
        let wanted = device(ordinal)?.index;
        if wanted == CURRENT.get() && is_bound() { Ok(()) } else { set(wanted) }
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
    fn hipDevicePrimaryCtxReset(ordinal: i32) { device(ordinal)?.reset() }
    fn hipDevicePrimaryCtxSetFlags(ordinal: i32, flags: u32) { set_flags(device(ordinal)?, flags) }
    fn hipDeviceReset() { current()?.reset() }
    fn hipInitDevice(ordinal: i32, device_flags: u32, flags: u32) {
        /// `hipInitDeviceFlagsAreValid`.
        const FLAGS_ARE_VALID: u32 = 1;
        let device = device(ordinal)?;
        match flags {
            0 => device.context().map(drop),
            FLAGS_ARE_VALID => set_flags(device, device_flags),
            _ => Err(HipError::INVALID_VALUE),
        }
    }
    fn hipCtxEnablePeerAccess(context: usize, flags: u32) {
        if flags != 0 {
            return Err(HipError::INVALID_VALUE);
        }
        cu::ctx_enable_peer_access(other(context)?, 0)
    }
    fn hipCtxDisablePeerAccess(context: usize) { cu::ctx_disable_peer_access(other(context)?) }
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
        set_flags(current()?, flags)
    }
}
