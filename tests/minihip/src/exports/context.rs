//! Contexts: one per device, all of them primary.

use crate::api::{Out, hip_api};
use crate::capture;
use crate::device::{Device, device, device_by_ordinal};
use crate::error::{HipError, HipResult};
use crate::exports::device::{disable_peer, enable_peer, set_flags};
use crate::registry::Registry;
use crate::thread_state::{self, current_device, with_contexts};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

/// What a context handle stands for.
#[derive(Debug)]
struct Context {
    device: usize,
}

static CONTEXTS: Registry<Context> = Registry::new();

/// Handle of the device's primary context: one for the life of the process.
fn primary(device: &Device) -> HipResult<usize> {
    static PRIMARY: OnceLock<Vec<OnceLock<HipResult<usize>>>> = OnceLock::new();
    let handles = PRIMARY.get_or_init(|| crate::device::devices().iter().map(|_| OnceLock::new()).collect());
    let slot = handles.get(device.index).ok_or(HipError::INVALID_DEVICE)?;
    *slot.get_or_init(|| CONTEXTS.insert(|_| Arc::new(Context { device: device.index })))
}

fn resolve(handle: usize) -> HipResult<Arc<Context>> {
    CONTEXTS.get(handle).ok_or(HipError::INVALID_CONTEXT)
}

fn make_current(handle: usize) -> HipResult {
    let context = resolve(handle)?;
    thread_state::set_current_device(context.device as i32)
}

hip_api! {
    fn hipCtxCreate(out: Out<usize>, _flags: u32, ordinal: i32) {
        out.check()?;
        let device = device_by_ordinal(ordinal)?;
        let handle = CONTEXTS.insert(|_| Arc::new(Context { device: device.index }))?;
        with_contexts(|stack| stack.push(handle));
        thread_state::set_current_device(ordinal)?;
        out.set(handle)
    }
    fn hipCtxDestroy(handle: usize) {
        let context = resolve(handle)?;
        if primary(device(context.device)?)? == handle {
            return Err(HipError::INVALID_CONTEXT);
        }
        with_contexts(|stack| stack.retain(|other| *other != handle));
        CONTEXTS.remove(handle).map(drop).ok_or(HipError::INVALID_CONTEXT)
    }
    fn hipCtxSetCurrent(handle: usize) {
        if handle == 0 {
            with_contexts(Vec::pop);
            return Ok(());
        }
        make_current(handle)?;
        with_contexts(|stack| {
            stack.pop();
            stack.push(handle);
        });
        Ok(())
    }
    fn hipCtxPushCurrent(handle: usize) {
        make_current(handle)?;
        with_contexts(|stack| stack.push(handle));
        Ok(())
    }
    fn hipCtxPopCurrent(out: Out<usize>) {
        let (popped, next) = with_contexts(|stack| (stack.pop(), stack.last().copied()));
        out.set_if_given(popped.ok_or(HipError::INVALID_CONTEXT)?);
        next.map_or(Ok(()), make_current)
    }
    fn hipCtxGetCurrent(out: Out<usize>) {
        out.check()?;
        let device = current_device()?;
        let top = with_contexts(|stack| stack.last().copied());
        // hipSetDevice after a push makes the device's primary context current.
        let valid = top.filter(|handle| resolve(*handle).is_ok_and(|context| context.device == device.index));
        out.set(match valid {
            Some(handle) => handle,
            None => primary(device)?,
        })
    }
    fn hipCtxGetDevice(out: Out<i32>) {
        out.check()?;
        out.set(current_device()?.index as i32)
    }
    fn hipCtxGetApiVersion(handle: usize, out: Out<u32>) {
        out.check()?;
        if handle != 0 {
            resolve(handle)?;
        }
        out.set(4)
    }
    fn hipCtxGetFlags(out: Out<u32>) {
        // Relaxed: a setting, nothing is published by it.
        out.set(current_device()?.flags.load(Ordering::Relaxed))
    }
    fn hipCtxGetCacheConfig(out: Out<i32>) { out.set(0) }
    fn hipCtxSetCacheConfig(config: i32) { if (0..4).contains(&config) { Ok(()) } else { Err(HipError::INVALID_VALUE) } }
    fn hipCtxGetSharedMemConfig(out: Out<i32>) { out.set(1) }
    fn hipCtxSetSharedMemConfig(config: i32) { if (0..3).contains(&config) { Ok(()) } else { Err(HipError::INVALID_VALUE) } }
    fn hipCtxSynchronize() {
        let device = current_device()?;
        capture::forbid_unsafe_call()?;
        device.synchronize();
        Ok(())
    }
    fn hipCtxEnablePeerAccess(handle: usize, flags: u32) { enable_peer(resolve(handle)?.device as i32, flags) }
    fn hipCtxDisablePeerAccess(handle: usize) { disable_peer(resolve(handle)?.device as i32) }
    fn hipDevicePrimaryCtxGetState(ordinal: i32, flags: Out<u32>, is_active: Out<i32>) {
        let device = device_by_ordinal(ordinal)?;
        // Relaxed: counters and settings, nothing is published by them.
        flags.set_if_given(device.flags.load(Ordering::Relaxed));
        is_active.set_if_given(i32::from(device.primary_retained.load(Ordering::Relaxed) > 0));
        Ok(())
    }
    fn hipDevicePrimaryCtxRetain(out: Out<usize>, ordinal: i32) {
        out.check()?;
        let device = device_by_ordinal(ordinal)?;
        // Relaxed: see hipDevicePrimaryCtxGetState.
        device.primary_retained.fetch_add(1, Ordering::Relaxed);
        out.set(primary(device)?)
    }
    fn hipDevicePrimaryCtxRelease(ordinal: i32) {
        let retained = &device_by_ordinal(ordinal)?.primary_retained;
        // Relaxed: see hipDevicePrimaryCtxGetState.
        let _ = retained.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1));
        Ok(())
    }
    fn hipDevicePrimaryCtxReset(ordinal: i32) {
        let device = device_by_ordinal(ordinal)?;
        device.synchronize();
        device.reset();
        Ok(())
    }
    fn hipDevicePrimaryCtxSetFlags(ordinal: i32, flags: u32) {
        let device = device_by_ordinal(ordinal)?;
        // Relaxed: see hipDevicePrimaryCtxGetState.
        if device.primary_retained.load(Ordering::Relaxed) > 0 {
            return Err(HipError::CONTEXT_IN_USE);
        }
        set_flags(device, flags)
    }
}
