//! Devices, peers and limits.

use super::attributes::{Source, source};
use super::context::{Device, current, device, devices};
use super::cuda_api;
use super::driver::{self as cu, got};
use super::properties::r0600;
use crate::api::{In, InStr, Out, write_c_string};
use crate::error::{HipError, HipResult};
use crate::properties::{PropertiesR0000, PropertiesR0600, older};
use std::ffi::c_char;

/// One `hipDeviceAttribute_t`.
pub(super) fn attribute(device: &Device, number: i32) -> HipResult<i32> {
    match source(number)? {
        Source::Constant(value) => Ok(value),
        Source::Driver(number) => got(|value| cu::device_get_attribute(value, number, device.id)),
    }
}

/// Text the driver writes into a buffer.
fn text(call: impl FnOnce(*mut c_char, i32) -> HipResult) -> HipResult<String> {
    let mut buffer = [0_u8; 256];
    call(buffer.as_mut_ptr().cast(), 255)?;
    let end = buffer.iter().position(|byte| *byte == 0).unwrap_or(0);
    Ok(String::from_utf8_lossy(&buffer[..end]).into_owned())
}

/// The GPU's name.
pub(super) fn name_of(device: &Device) -> HipResult<String> {
    text(|buffer, len| cu::device_get_name(buffer, len, device.id))
}

/// The GPU's UUID.
pub(super) fn uuid_of(device: &Device) -> HipResult<[u8; 16]> {
    got(|uuid| cu::device_get_uuid(uuid, device.id))
}

/// The GPU's memory in bytes.
pub(super) fn total_bytes(device: &Device) -> HipResult<usize> {
    got(|len_bytes| cu::device_total_mem(len_bytes, device.id))
}

fn pci_text(device: &Device) -> HipResult<String> {
    text(|buffer, len| cu::device_get_pci_bus_id(buffer, len, device.id)).map(|text| text.to_ascii_lowercase())
}

/// The first device is as good as any: all of one machine are alike.
fn choose(out: Out<i32>, wanted: usize) -> HipResult {
    out.check()?;
    if wanted == 0 { Err(HipError::INVALID_VALUE) } else { out.set(0) }
}

/// A peer of the current device; HIP calls the device itself an invalid one.
fn peer(ordinal: i32) -> HipResult<&'static Device> {
    let peer = device(ordinal)?;
    if peer.index == current()?.index { Err(HipError::INVALID_DEVICE) } else { Ok(peer) }
}

/// Stack, printf buffer, malloc heap: `hipLimit_t`, whose numbers the driver shares.
const LIMITS: std::ops::RangeInclusive<u32> = 0..=2;

cuda_api! {
    fn hipInit(flags: u32) { if flags == 0 { Ok(()) } else { Err(HipError::INVALID_VALUE) } }
    fn hipGetDeviceCount(out: Out<i32>) {
        out.check()?;
        out.set(devices()?.len() as i32)
    }
    fn hipSetValidDevices(list: In<i32>, count: i32) {
        let count = usize::try_from(count).map_err(|_| HipError::INVALID_VALUE)?;
        list.array(count)?.into_iter().try_for_each(|ordinal| device(ordinal).map(drop))
    }
    fn hipDeviceGet(out: Out<i32>, ordinal: i32) {
        out.check()?;
        out.set(device(ordinal)?.index as i32)
    }
    fn hipDeviceSynchronize() { cu::ctx_synchronize() }
    fn hipGetDeviceProperties(out: Out<PropertiesR0000>, ordinal: i32) { out.set(older(&r0600(device(ordinal)?)?)) }
    fn hipGetDevicePropertiesR0000(out: Out<PropertiesR0000>, ordinal: i32) { out.set(older(&r0600(device(ordinal)?)?)) }
    fn hipGetDevicePropertiesR0600(out: Out<PropertiesR0600>, ordinal: i32) { out.set(r0600(device(ordinal)?)?) }
    fn hipChooseDevice(out: Out<i32>, wanted: usize) { choose(out, wanted) }
    fn hipChooseDeviceR0000(out: Out<i32>, wanted: usize) { choose(out, wanted) }
    fn hipChooseDeviceR0600(out: Out<i32>, wanted: usize) { choose(out, wanted) }
    fn hipDeviceGetAttribute(out: Out<i32>, number: i32, ordinal: i32) {
        out.check()?;
        let device = device(ordinal)?;
        if number == 84 {
            // Total memory, in an int.
            return out.set(i32::try_from(total_bytes(device)?).unwrap_or(i32::MAX));
        }
        out.set(attribute(device, number)?)
    }
    fn hipDeviceGetName(name: Out<u8>, len: i32, ordinal: i32) { write_c_string(name, len, &name_of(device(ordinal)?)?) }
    fn hipDeviceGetUuid(out: Out<[u8; 16]>, ordinal: i32) { out.set(uuid_of(device(ordinal)?)?) }
    fn hipDeviceTotalMem(out: Out<usize>, ordinal: i32) { out.set(total_bytes(device(ordinal)?)?) }
    fn hipDeviceComputeCapability(major: Out<i32>, minor: Out<i32>, ordinal: i32) {
        let device = device(ordinal)?;
        major.set(attribute(device, 23)?)?;
        minor.set(attribute(device, 61)?)
    }
    fn hipDeviceGetPCIBusId(out: Out<u8>, len: i32, ordinal: i32) {
        out.check()?;
        write_c_string(out, len, &pci_text(device(ordinal)?)?)
    }
    fn hipDeviceGetByPCIBusId(out: Out<i32>, wanted: InStr) {
        out.check()?;
        let id = got(|id| cu::device_get_by_pci_bus_id(id, wanted.get()?.as_ptr()))?;
        out.set(devices()?.iter().find(|device| device.id == id).ok_or(HipError::INVALID_DEVICE)?.index as i32)
    }
    fn hipDeviceCanAccessPeer(out: Out<i32>, from: i32, to: i32) {
        out.check()?;
        let (from, to) = (device(from)?, device(to)?);
        out.set(if from.index == to.index { 0 } else { got(|can| cu::device_can_access_peer(can, from.id, to.id))? })
    }
    fn hipDeviceEnablePeerAccess(ordinal: i32, flags: u32) {
        if flags != 0 {
            return Err(HipError::INVALID_VALUE);
        }
        cu::ctx_enable_peer_access(peer(ordinal)?.context()?, 0)
    }
    fn hipDeviceDisablePeerAccess(ordinal: i32) { cu::ctx_disable_peer_access(peer(ordinal)?.context()?) }
    fn hipDeviceGetP2PAttribute(out: Out<i32>, number: i32, from: i32, to: i32) {
        out.check()?;
        let (from, to) = (device(from)?, device(to)?);
        if from.index == to.index {
            return Err(HipError::INVALID_DEVICE);
        }
        // HIP counts from 0 what CUDA counts from 1.
        match number {
            0..=3 => out.set(got(|value| cu::device_get_p2p_attribute(value, number + 1, from.id, to.id))?),
            _ => Err(HipError::INVALID_VALUE),
        }
    }
    fn hipExtGetLinkTypeAndHopCount(from: i32, to: i32, link_type: Out<u32>, hops: Out<u32>) {
        /// `HSA_AMD_LINK_INFO_TYPE_PCIE` and `..._XGMI`, AMD's own link.
        const PCIE: u32 = 2;
        const OWN_LINK: u32 = 4;
        /// `CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED`: over NVLink, and not over PCIe.
        const ATOMICS: i32 = 3;
        let (from, to) = (device(from)?, device(to)?);
        link_type.check()?;
        hops.check()?;
        let is_linked = got(|value| cu::device_get_p2p_attribute(value, ATOMICS, from.id, to.id))? != 0;
        link_type.set(if is_linked { OWN_LINK } else { PCIE })?;
        hops.set(if is_linked { 1 } else { 2 })
    }
    fn hipDeviceFlushGPUDirectRDMAWrites(target: i32, scope: i32) { cu::flush_gpu_direct_rdma_writes(target, scope) }
    fn hipDeviceGetLimit(out: Out<usize>, limit: u32) {
        out.check()?;
        if !LIMITS.contains(&limit) {
            return Err(HipError::UNSUPPORTED_LIMIT);
        }
        out.set(got(|value| cu::ctx_get_limit(value, limit))?)
    }
    fn hipDeviceSetLimit(limit: u32, value: usize) {
        if LIMITS.contains(&limit) { cu::ctx_set_limit(limit, value) } else { Err(HipError::UNSUPPORTED_LIMIT) }
    }
}
