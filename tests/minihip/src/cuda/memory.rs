//! Allocation, registration and questions about pointers.

use super::context::{current_index, device};
use super::cuda_api;
use super::driver::{self as cu, got};
use super::handles::on;
use crate::abi::{Extent, LOCATION_DEVICE, MemLocation, PitchedPtr, PointerAttributes};
use crate::api::{In, Out, out_at};
use crate::error::{HipError, HipResult};
use crate::registry::lock;
use std::collections::HashMap;
use std::sync::Mutex;

/// Row alignment of pitched allocations in bytes.
const PITCH_BYTES: usize = 256;
/// Flags `hipHostMalloc` takes: portable, mapped, write-combined, uncached, NUMA, coherent, non-coherent.
const HOST_FLAGS: u32 = 0x7 | 0xE001_0000;
/// The flag the driver has a meaning for.
const WRITE_COMBINED: u32 = 4;
/// Flags `hipHostRegister` takes; the driver's low bits are the same.
const REGISTER_FLAGS: u32 = 0xF | 0x8000_0000;
/// `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`: what HIP's pinned memory always is.
const PORTABLE_MAPPED: u32 = 3;
/// `CU_MEM_ATTACH_GLOBAL`.
const ATTACH_GLOBAL: u32 = 1;
/// `hipMemLocationTypeHost`.
const LOCATION_HOST: i32 = 2;

/// `CU_POINTER_ATTRIBUTE_*`, the numbers HIP took over.
pub(super) const MEMORY_TYPE: i32 = 2;
const DEVICE_POINTER: i32 = 3;
const HOST_POINTER: i32 = 4;
pub(super) const IS_MANAGED: i32 = 8;
const DEVICE_ORDINAL: i32 = 9;

/// Flags of live pinned allocations, as the program gave them, and the device each was made for.
static PINNED: Mutex<Option<HashMap<usize, (u32, usize)>>> = Mutex::new(None);

fn pinned_flags(address: usize) -> Option<u32> {
    lock(&PINNED).as_ref()?.get(&address).map(|found| found.0)
}

/// Forgets the pinned memory of a device that is reset.
pub(super) fn forget_device(index: usize) {
    if let Some(pinned) = lock(&PINNED).as_mut() {
        pinned.retain(|_, (_, device)| *device != index);
    }
}

/// One attribute of a pointer. `T` must be the type the attribute has.
pub(super) fn pointer_attribute<T: Default>(attribute: i32, address: usize) -> HipResult<T> {
    got(|value: &mut T| cu::pointer_get_attribute(std::ptr::from_mut(value).cast(), attribute, address))
}

/// Allocates device memory; nothing for no bytes, as HIP has it.
fn malloc(out: Out<usize>, len_bytes: usize) -> HipResult {
    out.check()?;
    out.set(if len_bytes == 0 { 0 } else { got(|address| cu::mem_alloc(address, len_bytes))? })
}

fn host_malloc(out: Out<usize>, len_bytes: usize, flags: u32) -> HipResult {
    out.check()?;
    // Coherent and non-coherent exclude each other.
    if flags & !HOST_FLAGS != 0 || flags & 0xC000_0000 == 0xC000_0000 {
        return Err(HipError::INVALID_VALUE);
    }
    if len_bytes == 0 {
        return out.set(0);
    }
    let address = got(|address| cu::mem_host_alloc(address, len_bytes, PORTABLE_MAPPED | flags & WRITE_COMBINED))?;
    lock(&PINNED).get_or_insert_default().insert(address, (flags, current_index()));
    out.set(address)
}

fn pitched(width: usize, height: usize, depth: usize) -> HipResult<(usize, usize)> {
    let pitch = width.checked_next_multiple_of(PITCH_BYTES).ok_or(HipError::OUT_OF_MEMORY)?;
    let slice = pitch.checked_mul(height).and_then(|slice| slice.checked_mul(depth));
    Ok((pitch, slice.ok_or(HipError::OUT_OF_MEMORY)?))
}

fn malloc_pitch(out: Out<usize>, pitch_out: Out<usize>, width: usize, height: usize) -> HipResult {
    out.check()?;
    pitch_out.check()?;
    let (pitch, len_bytes) = pitched(width, height, 1)?;
    malloc(out, len_bytes)?;
    pitch_out.set(pitch)
}

/// `hipMemoryType` of what the driver calls a host, device or managed pointer; `None` for memory it does not know.
fn attributes_of(address: usize) -> Option<PointerAttributes> {
    let memory_type: u32 = pointer_attribute(MEMORY_TYPE, address).ok()?;
    let is_managed = pointer_attribute::<u8>(IS_MANAGED, address).is_ok_and(|managed| managed != 0);
    let on_host = memory_type == super::abi::HOST || is_managed;
    let flags = pinned_flags(address);
    Some(PointerAttributes {
        memory_type: if is_managed { 3 } else { memory_type as i32 },
        device: pointer_attribute(DEVICE_ORDINAL, address).unwrap_or(0),
        device_pointer: pointer_attribute(DEVICE_POINTER, address).unwrap_or(address),
        host_pointer: if on_host { pointer_attribute(HOST_POINTER, address).unwrap_or(address) } else { 0 },
        is_managed: i32::from(is_managed),
        allocation_flags: flags.unwrap_or(0),
    })
}

/// `hipPointerGetAttribute`: most numbers are the driver's, the memory type is HIP's.
fn write_attribute(data: Out<u8>, attribute: i32, address: usize) -> HipResult {
    data.check()?;
    if attribute == MEMORY_TYPE {
        return data.cast::<i32>().set(attributes_of(address).ok_or(HipError::INVALID_VALUE)?.memory_type);
    }
    cu::pointer_get_attribute(data.address() as *mut std::ffi::c_void, attribute, address)
}

fn location(device_number: i32) -> HipResult<MemLocation> {
    if device_number == -1 {
        return Ok(MemLocation { kind: LOCATION_HOST, id: 0 });
    }
    Ok(MemLocation { kind: LOCATION_DEVICE, id: device(device_number)?.id })
}

fn advise(address: usize, len_bytes: usize, advice: i32, location: MemLocation) -> HipResult {
    match advice {
        1..=6 => cu::mem_advise(address, len_bytes, advice, location),
        // Coarse-grained memory: a hint that has no counterpart.
        100 | 101 => Ok(()),
        _ => Err(HipError::INVALID_VALUE),
    }
}

fn prefetch(address: usize, len_bytes: usize, location: MemLocation, stream: usize) -> HipResult {
    on(stream, |stream| cu::mem_prefetch_async(address, len_bytes, location, 0, stream))
}

cuda_api! {
    fn hipMalloc(out: Out<usize>, len_bytes: usize) { malloc(out, len_bytes) }
    fn hipExtMallocWithFlags(out: Out<usize>, len_bytes: usize, flags: u32) {
        if flags > 4 { Err(HipError::INVALID_VALUE) } else { malloc(out, len_bytes) }
    }
    fn hipFree(address: usize) {
        if address == 0 {
            return Ok(());
        }
        // HIP frees only what starts here; pinned memory has its own call.
        let is_host = pointer_attribute::<u32>(MEMORY_TYPE, address)? == super::abi::HOST;
        let is_managed = pointer_attribute::<u8>(IS_MANAGED, address).is_ok_and(|managed| managed != 0);
        if is_host && !is_managed { Err(HipError::INVALID_VALUE) } else { cu::mem_free(address) }
    }
    fn hipMallocManaged(out: Out<usize>, len_bytes: usize, flags: u32) {
        out.check()?;
        if len_bytes == 0 || !matches!(flags, 1 | 2) {
            return Err(HipError::INVALID_VALUE);
        }
        out.set(got(|address| cu::mem_alloc_managed(address, len_bytes, ATTACH_GLOBAL))?)
    }
    fn hipMallocPitch(out: Out<usize>, pitch: Out<usize>, width: usize, height: usize) { malloc_pitch(out, pitch, width, height) }
    fn hipMemAllocPitch(out: Out<usize>, pitch: Out<usize>, width: usize, height: usize, element_bytes: u32) {
        if matches!(element_bytes, 4 | 8 | 16) { malloc_pitch(out, pitch, width, height) } else { Err(HipError::INVALID_VALUE) }
    }
    fn hipMalloc3D(out: Out<PitchedPtr>, extent: Extent) {
        out.check()?;
        let (pitch, len_bytes) = pitched(extent.width, extent.height, extent.depth)?;
        let ptr = if len_bytes == 0 { 0 } else { got(|address| cu::mem_alloc(address, len_bytes))? };
        out.set(PitchedPtr { ptr, pitch, xsize: extent.width, ysize: extent.height })
    }
    fn hipHostMalloc(out: Out<usize>, len_bytes: usize, flags: u32) { host_malloc(out, len_bytes, flags) }
    fn hipHostAlloc(out: Out<usize>, len_bytes: usize, flags: u32) { host_malloc(out, len_bytes, flags) }
    fn hipExtHostAlloc(out: Out<usize>, len_bytes: usize, flags: u32) { host_malloc(out, len_bytes, flags) }
    fn hipMallocHost(out: Out<usize>, len_bytes: usize) { host_malloc(out, len_bytes, 0) }
    fn hipMemAllocHost(out: Out<usize>, len_bytes: usize) { host_malloc(out, len_bytes, 0) }
    fn hipHostFree(address: usize) {
        if address == 0 {
            return Ok(());
        }
        let removed = lock(&PINNED).as_mut().and_then(|pinned| pinned.remove(&address));
        removed.ok_or(HipError::INVALID_VALUE)?;
        cu::mem_free_host(address)
    }
    fn hipHostRegister(address: usize, len_bytes: usize, flags: u32) {
        if address == 0 || len_bytes == 0 || flags & !REGISTER_FLAGS != 0 {
            return Err(HipError::INVALID_VALUE);
        }
        cu::mem_host_register(address, len_bytes, flags & 0xF | PORTABLE_MAPPED)
    }
    fn hipHostUnregister(address: usize) {
        if address == 0 {
            return Err(HipError::INVALID_VALUE);
        }
        cu::mem_host_unregister(address)
    }
    fn hipHostGetDevicePointer(out: Out<usize>, host: usize, _flags: u32) {
        out.check()?;
        out.set(got(|device| cu::mem_host_get_device_pointer(device, host, 0))?)
    }
    fn hipHostGetFlags(out: Out<u32>, host: usize) {
        out.check()?;
        match pinned_flags(host) {
            Some(flags) => out.set(flags),
            None => out.set(got(|flags| cu::mem_host_get_flags(flags, host))?),
        }
    }
    fn hipMemGetInfo(free_bytes: Out<usize>, total_bytes: Out<usize>) {
        let (mut free, mut total) = (0, 0);
        cu::mem_get_info(&mut free, &mut total)?;
        free_bytes.set_if_given(free);
        total_bytes.set_if_given(total);
        Ok(())
    }
    fn hipMemGetAddressRange(base: Out<usize>, len_bytes: Out<usize>, address: usize) {
        let (mut start, mut size) = (0, 0);
        cu::mem_get_address_range(&mut start, &mut size, address)
            .map_err(|error| if error == HipError::INVALID_VALUE { HipError::NOT_FOUND } else { error })?;
        base.set_if_given(start);
        len_bytes.set_if_given(size);
        Ok(())
    }
    fn hipMemPtrGetInfo(address: usize, len_bytes: Out<usize>) {
        len_bytes.check()?;
        let (mut start, mut size) = (0, 0);
        if address != 0 {
            cu::mem_get_address_range(&mut start, &mut size, address).map_err(|_| HipError::INVALID_VALUE)?;
        }
        len_bytes.set(size)
    }
    fn hipPointerGetAttributes(out: Out<PointerAttributes>, address: usize) {
        out.check()?;
        if address == 0 {
            return Err(HipError::INVALID_VALUE);
        }
        let pageable = PointerAttributes { memory_type: 0, device: -2, device_pointer: 0, host_pointer: address, is_managed: 0, allocation_flags: 0 };
        out.set(attributes_of(address).unwrap_or(pageable))
    }
    fn hipPointerGetAttribute(data: Out<u8>, attribute: i32, address: usize) { write_attribute(data, attribute, address) }
    fn hipDrvPointerGetAttributes(count: u32, attributes: In<i32>, data: In<usize>, address: usize) {
        let attributes = attributes.array(count as usize)?;
        for (attribute, target) in attributes.iter().zip(data.array(count as usize)?) {
            // Unknown pointers and attributes leave zeros, as the driver interface has it.
            let out = out_at::<u8>(target);
            if write_attribute(out, *attribute, address).is_err() {
                let wide = matches!(attribute, 3 | 4 | 7 | 11 | 12 | 17);
                if wide { out.cast::<u64>().set(0)? } else { out.set(0)? }
            }
        }
        Ok(())
    }
    fn hipPointerSetAttribute(value: In<u8>, attribute: i32, address: usize) {
        /// `HIP_POINTER_ATTRIBUTE_SYNC_MEMOPS`.
        const SYNC_MEMOPS: i32 = 6;
        match cu::pointer_set_attribute(value.address(), attribute, address) {
            // The driver has it not for memory of the virtual memory interface; HIP takes it for any.
            Err(HipError::NOT_SUPPORTED) if attribute == SYNC_MEMOPS => Ok(()),
            result => result,
        }
    }
    fn hipMemAdvise(address: usize, len_bytes: usize, advice: i32, device: i32) { advise(address, len_bytes, advice, location(device)?) }
    fn hipMemAdvise_v2(address: usize, len_bytes: usize, advice: i32, location: MemLocation) { advise(address, len_bytes, advice, location) }
    fn hipMemPrefetchAsync(address: usize, len_bytes: usize, device: i32, stream: usize) { prefetch(address, len_bytes, location(device)?, stream) }
    fn hipMemPrefetchAsync_v2(address: usize, len_bytes: usize, location: MemLocation, _flags: u32, stream: usize) {
        prefetch(address, len_bytes, location, stream)
    }
    fn hipMemRangeGetAttribute(data: Out<i32>, data_bytes: usize, attribute: i32, address: usize, len_bytes: usize) {
        data.check()?;
        if attribute == 100 {
            // Coherency: fine-grained, always.
            return data.set(0);
        }
        cu::mem_range_get_attribute(data.address(), data_bytes, attribute, address, len_bytes)
    }
    fn hipMemRangeGetAttributes(data: In<usize>, sizes: In<usize>, attributes: In<i32>, count: usize, address: usize, len_bytes: usize) {
        cu::mem_range_get_attributes(data.address(), sizes.address(), attributes.address(), count, address, len_bytes)
    }
    fn hipMemPrefetchBatchAsync(addresses: In<usize>, sizes: In<usize>, count: usize, locations: In<MemLocation>, indices: In<usize>, location_count: usize, flags: u64, stream: usize) {
        let locations = locations.array(location_count)?;
        on(stream, |stream| cu::mem_prefetch_batch_async(addresses.address(), sizes.address(), count, locations.as_ptr() as usize, indices.address(), location_count, flags, stream))
    }
    fn hipMemDiscardBatchAsync(addresses: In<usize>, sizes: In<usize>, count: usize, flags: u64, stream: usize) {
        on(stream, |stream| cu::mem_discard_batch_async(addresses.address(), sizes.address(), count, flags, stream))
    }
    fn hipMemDiscardAndPrefetchBatchAsync(addresses: In<usize>, sizes: In<usize>, count: usize, locations: In<MemLocation>, indices: In<usize>, location_count: usize, flags: u64, stream: usize) {
        let locations = locations.array(location_count)?;
        on(stream, |stream| cu::mem_discard_and_prefetch_batch_async(addresses.address(), sizes.address(), count, locations.as_ptr() as usize, indices.address(), location_count, flags, stream))
    }
}
