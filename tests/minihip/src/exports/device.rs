//! Devices, peers, versions and errors.

use crate::api::{InStr, Out, hip_api, write_c_string};
use crate::capture;
use crate::device::{Device, device_by_ordinal, devices};
use crate::error::{self, HipError, HipResult};
use crate::properties::{self, PropertiesR0000, PropertiesR0600};
use crate::registry::lock;
use crate::thread_state::{self, current_device};
use std::ffi::c_char;
use std::sync::atomic::Ordering;

/// `hipDeviceSetLimit` values nobody set: stack, printf buffer, malloc heap; by `hipLimit_t`.
const LIMITS: [(u32, usize); 3] = [(0, 1024), (1, 1 << 20), (2, 8 << 20)];
/// Every `hipSetDeviceFlags` flag: scheduling, mapped host memory, local memory.
const DEVICE_FLAGS: u32 = 0x1F;

/// `hipInitDeviceFlagsAreValid`.
const INIT_FLAGS_ARE_VALID: u32 = 1;
/// The locally unique id of the first device; those of the others follow.
const LUID: u64 = 0x6d69_6e69_6869_7000;

/// Sets a device's flags. Fails with `hipErrorInvalidValue` on flags that are none.
pub(crate) fn set_flags(device: &Device, flags: u32) -> HipResult {
    let schedule = flags & 7;
    if flags & !DEVICE_FLAGS != 0 || !(schedule == 0 || schedule.is_power_of_two()) {
        return Err(HipError::INVALID_VALUE);
    }
    // Relaxed: a setting, nothing is published by it.
    device.flags.store(flags, Ordering::Relaxed);
    Ok(())
}

fn limit(device: &Device, kind: u32) -> HipResult<usize> {
    let default = LIMITS.iter().find(|limit| limit.0 == kind).ok_or(HipError::UNSUPPORTED_LIMIT)?.1;
    Ok(lock(&device.limits).get(&kind).copied().unwrap_or(default))
}

fn peers(from: i32, to: i32) -> HipResult<(&'static Device, &'static Device)> {
    Ok((device_by_ordinal(from)?, device_by_ordinal(to)?))
}

/// Enables access of the current device to `peer`.
pub(crate) fn enable_peer(peer: i32, flags: u32) -> HipResult {
    let device = current_device()?;
    let peer = device_by_ordinal(peer)?;
    if flags != 0 {
        return Err(HipError::INVALID_VALUE);
    }
    if peer.index == device.index {
        return Err(HipError::INVALID_DEVICE);
    }
    match lock(&device.peers).insert(peer.index, flags) {
        None => Ok(()),
        Some(_) => Err(HipError::PEER_ALREADY_ENABLED),
    }
}

/// Ends access of the current device to `peer`.
pub(crate) fn disable_peer(peer: i32) -> HipResult {
    let device = current_device()?;
    let peer = device_by_ordinal(peer)?;
    lock(&device.peers).remove(&peer.index).map(drop).ok_or(HipError::PEER_NOT_ENABLED)
}

hip_api! {
    fn hipInit(flags: u32) {
        if flags != 0 {
            return Err(HipError::INVALID_VALUE);
        }
        current_device().map(drop)
    }
    fn hipGetDeviceCount(out: Out<i32>) {
        out.set(devices().len() as i32)?;
        if devices().is_empty() { Err(HipError::NO_DEVICE) } else { Ok(()) }
    }
    fn hipGetDevice(out: Out<i32>) {
        out.check()?;
        out.set(current_device()?.index as i32)
    }
    fn hipSetDevice(ordinal: i32) { thread_state::set_current_device(ordinal) }
    fn hipSetValidDevices(list: crate::api::In<i32>, count: i32) {
        let count = usize::try_from(count).map_err(|_| HipError::INVALID_VALUE)?;
        list.array(count)?.into_iter().try_for_each(|ordinal| device_by_ordinal(ordinal).map(drop))
    }
    fn hipDeviceGet(out: Out<i32>, ordinal: i32) {
        out.check()?;
        out.set(device_by_ordinal(ordinal)?.index as i32)
    }
    fn hipDeviceSynchronize() {
        let device = current_device()?;
        capture::forbid_unsafe_call()?;
        device.synchronize();
        Ok(())
    }
    fn hipDeviceReset() {
        let device = current_device()?;
        capture::forbid_unsafe_call()?;
        device.synchronize();
        device.reset();
        Ok(())
    }
    fn hipGetDeviceProperties(out: Out<PropertiesR0000>, ordinal: i32) { out.set(properties::r0000(device_by_ordinal(ordinal)?)) }
    fn hipGetDevicePropertiesR0000(out: Out<PropertiesR0000>, ordinal: i32) { out.set(properties::r0000(device_by_ordinal(ordinal)?)) }
    fn hipGetDevicePropertiesR0600(out: Out<PropertiesR0600>, ordinal: i32) { out.set(properties::r0600(device_by_ordinal(ordinal)?)) }
    // All devices are alike: the first matches as well as any.
    fn hipChooseDevice(out: Out<i32>, wanted: usize) { choose(out, wanted) }
    fn hipChooseDeviceR0000(out: Out<i32>, wanted: usize) { choose(out, wanted) }
    fn hipChooseDeviceR0600(out: Out<i32>, wanted: usize) { choose(out, wanted) }
    fn hipDeviceGetAttribute(out: Out<i32>, attribute: i32, ordinal: i32) {
        out.check()?;
        out.set(properties::attribute(device_by_ordinal(ordinal)?, attribute)?)
    }
    fn hipDeviceGetName(name: Out<u8>, len: i32, ordinal: i32) {
        device_by_ordinal(ordinal)?;
        write_c_string(name, len, properties::NAME)
    }
    fn hipDeviceGetUuid(out: Out<[u8; 16]>, ordinal: i32) { out.set(properties::uuid(device_by_ordinal(ordinal)?)) }
    fn hipDeviceTotalMem(out: Out<usize>, ordinal: i32) { out.set(device_by_ordinal(ordinal)?.heap.total_bytes()) }
    fn hipDeviceComputeCapability(major: Out<i32>, minor: Out<i32>, ordinal: i32) {
        device_by_ordinal(ordinal)?;
        let capability = properties::capability();
        major.set(capability.0)?;
        minor.set(capability.1)
    }
    fn hipDeviceGetPCIBusId(text: Out<u8>, len: i32, ordinal: i32) {
        text.check()?;
        write_c_string(text, len, &properties::pci_text(device_by_ordinal(ordinal)?))
    }
    fn hipDeviceGetByPCIBusId(out: Out<i32>, text: InStr) {
        out.check()?;
        let wanted = text.get()?.to_str().map_err(|_| HipError::INVALID_VALUE)?.to_ascii_lowercase();
        let found = devices().iter().find(|device| properties::pci_text(device).ends_with(&wanted) && wanted.len() >= 7);
        out.set(found.ok_or(HipError::INVALID_DEVICE)?.index as i32)
    }
    fn hipDeviceCanAccessPeer(out: Out<i32>, from: i32, to: i32) {
        out.check()?;
        let (from, to) = peers(from, to)?;
        out.set(i32::from(from.index != to.index))
    }
    fn hipDeviceEnablePeerAccess(peer: i32, flags: u32) { enable_peer(peer, flags) }
    fn hipDeviceDisablePeerAccess(peer: i32) { disable_peer(peer) }
    fn hipDeviceGetP2PAttribute(out: Out<i32>, attribute: i32, from: i32, to: i32) {
        out.check()?;
        let (from, to) = peers(from, to)?;
        if from.index == to.index {
            return Err(HipError::INVALID_DEVICE);
        }
        // Performance rank, access, native atomics, arrays.
        out.set(match attribute { 0 => 0, 1 | 2 => 1, 3 => 0, _ => return Err(HipError::INVALID_VALUE) })
    }
    fn hipExtGetLinkTypeAndHopCount(from: i32, to: i32, link_type: Out<u32>, hops: Out<u32>) {
        peers(from, to)?;
        // HSA_AMD_LINK_INFO_TYPE_XGMI.
        link_type.set(4)?;
        hops.set(1)
    }
    fn hipDeviceGetLimit(out: Out<usize>, kind: u32) {
        out.check()?;
        out.set(limit(current_device()?, kind)?)
    }
    fn hipDeviceSetLimit(kind: u32, value: usize) {
        let device = current_device()?;
        limit(device, kind)?;
        lock(&device.limits).insert(kind, value);
        Ok(())
    }
    fn hipGetDeviceFlags(out: Out<u32>) {
        // Relaxed: a setting, nothing is published by it.
        out.set(current_device()?.flags.load(Ordering::Relaxed))
    }
    fn hipSetDeviceFlags(flags: u32) { set_flags(current_device()?, flags) }
    fn hipDeviceGetCacheConfig(out: Out<i32>) { out.set(0) }
    fn hipDeviceSetCacheConfig(config: i32) { if (0..4).contains(&config) { Ok(()) } else { Err(HipError::INVALID_VALUE) } }
    fn hipDeviceGetSharedMemConfig(out: Out<i32>) { out.set(1) }
    fn hipDeviceSetSharedMemConfig(config: i32) { if (0..3).contains(&config) { Ok(()) } else { Err(HipError::INVALID_VALUE) } }
    // The only target is the current device. Nothing writes to its memory but queues of this process, in order.
    fn hipDeviceFlushGPUDirectRDMAWrites(target: i32, scope: i32) {
        current_device()?;
        if target == 0 && matches!(scope, 100 | 200) { Ok(()) } else { Err(HipError::INVALID_VALUE) }
    }
    fn hipDeviceGetLuid(luid: Out<u64>, node_mask: Out<u32>, ordinal: i32) {
        let device = device_by_ordinal(ordinal)?;
        luid.set(LUID + device.index as u64)?;
        node_mask.set(1)
    }
    fn hipInitDevice(ordinal: i32, device_flags: u32, flags: u32) {
        let device = device_by_ordinal(ordinal)?;
        match flags {
            0 => Ok(()),
            INIT_FLAGS_ARE_VALID => set_flags(device, device_flags),
            _ => Err(HipError::INVALID_VALUE),
        }
    }
    fn hipRuntimeGetVersion(out: Out<i32>) { out.set(properties::RUNTIME_VERSION) }
    fn hipDriverGetVersion(out: Out<i32>) { out.set(properties::RUNTIME_VERSION) }
    // What there is to profile by is the trace.
    fn hipProfilerStart() { crate::api::pause_trace(false) }
    fn hipProfilerStop() { crate::api::pause_trace(true) }
    fn hipDrvGetErrorName(code: i32, out: Out<*const c_char>) { driver_text(out, error::name_of(code)) }
    fn hipDrvGetErrorString(code: i32, out: Out<*const c_char>) { driver_text(out, error::text_of(code)) }
    fn hipExtEnableLogging() { Ok(()) }
    fn hipExtDisableLogging() { Ok(()) }
    fn hipExtSetLoggingParams(_level: usize, _size: usize, _mask: usize) { Ok(()) }
}

fn choose(out: Out<i32>, wanted: usize) -> HipResult {
    if wanted == 0 {
        return Err(HipError::INVALID_VALUE);
    }
    out.check()?;
    current_device()?;
    out.set(0)
}

/// Unlike the runtime's spelling, the driver's fails on a code that is none.
fn driver_text(out: Out<*const c_char>, text: Option<&'static std::ffi::CStr>) -> HipResult {
    out.check()?;
    out.set(text.map_or(std::ptr::null(), std::ffi::CStr::as_ptr))?;
    text.map(drop).ok_or(HipError::INVALID_VALUE)
}

/// `hipGetLastError`: no wrapper, as the call must not change what it returns.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hipGetLastError() -> i32 {
    thread_state::take_last_error()
}

/// `hipPeekAtLastError`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hipPeekAtLastError() -> i32 {
    thread_state::peek_last_error()
}

/// `hipExtGetLastError`: the code of this thread's previous call.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hipExtGetLastError() -> i32 {
    thread_state::take_command_error()
}

/// `hipGetErrorName`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hipGetErrorName(code: i32) -> *const c_char {
    error::name_of(code).unwrap_or(c"hipErrorUnknown").as_ptr()
}

/// `hipGetErrorString`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hipGetErrorString(code: i32) -> *const c_char {
    error::text_of(code).unwrap_or(c"unknown error").as_ptr()
}
