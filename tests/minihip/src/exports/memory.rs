//! Allocation, registration and questions about pointers.

use crate::abi::{Extent, PitchedPtr, PointerAttributes};
use crate::api::{In, Out, hip_alias, hip_api, out_at};
use crate::capture;
use crate::device::{Device, devices};
use crate::error::{HipError, HipResult};
use crate::memory::{self, Allocation, MemoryKind};
use crate::thread_state::current_device;

/// Row alignment of pitched allocations in bytes.
const PITCH_BYTES: usize = 256;
/// Flags `hipHostMalloc` takes: portable, mapped, write-combined, uncached, NUMA, coherent, non-coherent.
const HOST_FLAGS: u32 = 0x7 | 0xE001_0000;
/// Flags `hipHostRegister` takes.
const REGISTER_FLAGS: u32 = 0xF | 0x8000_0000;

fn malloc(out: Out<usize>, len_bytes: usize, flags: u32) -> HipResult {
    out.check()?;
    capture::forbid_unsafe_call()?;
    let device = current_device()?;
    out.set(if len_bytes == 0 { 0 } else { memory::allocate_device(device, len_bytes, flags, 0)? })
}

fn host_malloc(out: Out<usize>, len_bytes: usize, flags: u32) -> HipResult {
    out.check()?;
    capture::forbid_unsafe_call()?;
    // Coherent and non-coherent exclude each other.
    if flags & !HOST_FLAGS != 0 || flags & 0xC000_0000 == 0xC000_0000 {
        return Err(HipError::INVALID_VALUE);
    }
    let device = current_device()?.index;
    out.set(if len_bytes == 0 { 0 } else { memory::allocate_host(MemoryKind::PinnedHost, device, len_bytes, flags)? })
}

/// Memory may only go when nothing enqueued can still touch it.
fn synchronize_owner(allocation: &Allocation) {
    match devices().get(allocation.device) {
        Some(device) if allocation.kind == MemoryKind::Device => device.synchronize(),
        // Any device may use host memory.
        _ => devices().iter().for_each(Device::synchronize),
    }
}

fn free(address: usize) -> HipResult {
    if address == 0 {
        return Ok(());
    }
    capture::forbid_unsafe_call()?;
    current_device()?;
    let found = memory::find(address).filter(|allocation| allocation.base == address).ok_or(HipError::INVALID_VALUE)?;
    match found.kind {
        MemoryKind::Device if crate::alias::is_of(address, crate::alias::IMPORTED) => {
            synchronize_owner(&found);
            crate::alias::close(address, crate::alias::IMPORTED);
            Ok(())
        }
        MemoryKind::Device => {
            synchronize_owner(&found);
            let gone = memory::forget_device(address, |gone| gone.id == found.id).ok_or(HipError::INVALID_VALUE)?;
            crate::pool::give_back(&gone);
            Ok(())
        }
        MemoryKind::Managed => free_host(address, MemoryKind::Managed),
        MemoryKind::Virtual => {
            synchronize_owner(&found);
            if crate::external::free(address) { Ok(()) } else { Err(HipError::INVALID_VALUE) }
        }
        // hipFree of pinned memory is an error of the program that HIP reports.
        _ => Err(HipError::INVALID_VALUE),
    }
}

fn free_host(address: usize, kind: MemoryKind) -> HipResult {
    if address == 0 {
        return Ok(());
    }
    let found = memory::find(address)
        .filter(|found| found.base == address && found.kind == kind)
        .ok_or(HipError::INVALID_VALUE)?;
    synchronize_owner(&found);
    let gone = memory::forget_host(address, |allocation| allocation.kind == kind).ok_or(HipError::INVALID_VALUE)?;
    memory::release_host(&gone);
    Ok(())
}

fn malloc_pitch(out: Out<usize>, pitch_out: Out<usize>, width: usize, height: usize, depth: usize) -> HipResult<usize> {
    out.check()?;
    pitch_out.check()?;
    let pitch = width.checked_next_multiple_of(PITCH_BYTES).ok_or(HipError::OUT_OF_MEMORY)?;
    let len_bytes =
        pitch.checked_mul(height).and_then(|slice| slice.checked_mul(depth)).ok_or(HipError::OUT_OF_MEMORY)?;
    malloc(out, len_bytes, 0)?;
    pitch_out.set(pitch)?;
    Ok(pitch)
}

/// `hipMemoryType` of an allocation, as HIP 6 and later number it.
fn memory_type(kind: MemoryKind) -> i32 {
    match kind {
        MemoryKind::PinnedHost | MemoryKind::RegisteredHost => 1,
        MemoryKind::Device | MemoryKind::Virtual | MemoryKind::Variable => 2,
        MemoryKind::Managed => 3,
    }
}

fn attributes_of(address: usize) -> Option<(PointerAttributes, Allocation)> {
    let allocation = memory::find(address)?;
    let on_host = allocation.kind.is_host() || allocation.kind == MemoryKind::Managed;
    let attributes = PointerAttributes {
        memory_type: memory_type(allocation.kind),
        device: allocation.device as i32,
        device_pointer: address,
        host_pointer: if on_host { address } else { 0 },
        is_managed: i32::from(allocation.kind == MemoryKind::Managed),
        allocation_flags: allocation.flags,
    };
    Some((attributes, allocation))
}

/// `hipPointerGetAttribute` for one `hipPointer_attribute`, written through a pointer of that attribute's type.
fn pointer_attribute(data: Out<u8>, attribute: i32, address: usize) -> HipResult {
    data.check()?;
    let (attributes, allocation) = attributes_of(address).ok_or(HipError::INVALID_VALUE)?;
    match attribute {
        2 => data.cast::<i32>().set(attributes.memory_type),
        3 => data.cast::<usize>().set(attributes.device_pointer),
        4 if attributes.host_pointer == 0 => Err(HipError::INVALID_VALUE),
        4 => data.cast::<usize>().set(attributes.host_pointer),
        6 => data.cast::<u32>().set(0),
        7 => data.cast::<u64>().set(allocation.id),
        8 => data.cast::<u8>().set(attributes.is_managed as u8),
        9 => data.cast::<i32>().set(attributes.device),
        11 => data.cast::<usize>().set(allocation.base),
        12 => data.cast::<usize>().set(allocation.len_bytes),
        13 => data.cast::<u8>().set(1),
        16 => data.cast::<u32>().set(3),
        17 => data.cast::<usize>().set(crate::pool::handle_of(&allocation)),
        _ => Err(HipError::NOT_SUPPORTED),
    }
}

/// One attribute of a managed range.
fn range_attribute(data: Out<i32>, data_bytes: usize, attribute: i32) -> HipResult {
    data.check()?;
    if data_bytes < 4 {
        return Err(HipError::INVALID_VALUE);
    }
    match attribute {
        // Read mostly; preferred location and last prefetch: none (-2); accessed by: nobody.
        1 => data.set(0),
        2..=4 => data.set_array(&vec![-2; data_bytes / 4]),
        100 => data.set(0),
        _ => Err(HipError::INVALID_VALUE),
    }
}

hip_api! {
    fn hipMalloc(out: Out<usize>, len_bytes: usize) { malloc(out, len_bytes, 0) }
    fn hipExtMallocWithFlags(out: Out<usize>, len_bytes: usize, flags: u32) {
        if flags > 4 {
            return Err(HipError::INVALID_VALUE);
        }
        malloc(out, len_bytes, flags)
    }
    fn hipFree(address: usize) { free(address) }
    fn hipMallocManaged(out: Out<usize>, len_bytes: usize, flags: u32) {
        out.check()?;
        capture::forbid_unsafe_call()?;
        if len_bytes == 0 || !matches!(flags, 1 | 2) {
            return Err(HipError::INVALID_VALUE);
        }
        out.set(memory::allocate_host(MemoryKind::Managed, current_device()?.index, len_bytes, flags)?)
    }
    fn hipMallocPitch(out: Out<usize>, pitch: Out<usize>, width: usize, height: usize) {
        malloc_pitch(out, pitch, width, height, 1).map(drop)
    }
    fn hipMemAllocPitch(out: Out<usize>, pitch: Out<usize>, width: usize, height: usize, element_bytes: u32) {
        if !matches!(element_bytes, 4 | 8 | 16) {
            return Err(HipError::INVALID_VALUE);
        }
        malloc_pitch(out, pitch, width, height, 1).map(drop)
    }
    fn hipMalloc3D(out: Out<PitchedPtr>, extent: Extent) {
        out.check()?;
        let pitch = extent.width.checked_next_multiple_of(PITCH_BYTES).ok_or(HipError::OUT_OF_MEMORY)?;
        let len_bytes = pitch.checked_mul(extent.height).and_then(|slice| slice.checked_mul(extent.depth)).ok_or(HipError::OUT_OF_MEMORY)?;
        capture::forbid_unsafe_call()?;
        let device = current_device()?;
        let ptr = if len_bytes == 0 { 0 } else { memory::allocate_device(device, len_bytes, 0, 0)? };
        out.set(PitchedPtr { ptr, pitch, xsize: extent.width, ysize: extent.height })
    }
    fn hipHostMalloc(out: Out<usize>, len_bytes: usize, flags: u32) { host_malloc(out, len_bytes, flags) }
    fn hipHostAlloc(out: Out<usize>, len_bytes: usize, flags: u32) { host_malloc(out, len_bytes, flags) }
    fn hipExtHostAlloc(out: Out<usize>, len_bytes: usize, flags: u32) { host_malloc(out, len_bytes, flags) }
    fn hipMallocHost(out: Out<usize>, len_bytes: usize) { host_malloc(out, len_bytes, 0) }
    fn hipMemAllocHost(out: Out<usize>, len_bytes: usize) { host_malloc(out, len_bytes, 0) }
    fn hipHostFree(address: usize) {
        capture::forbid_unsafe_call()?;
        free_host(address, MemoryKind::PinnedHost)
    }
    fn hipHostRegister(address: usize, len_bytes: usize, flags: u32) {
        if address == 0 || len_bytes == 0 || flags & !REGISTER_FLAGS != 0 || address.checked_add(len_bytes).is_none() {
            return Err(HipError::INVALID_VALUE);
        }
        let device = current_device()?.index;
        memory::add_foreign(MemoryKind::RegisteredHost, device, address, len_bytes, flags, HipError::HOST_ALREADY_REGISTERED)
    }
    fn hipHostUnregister(address: usize) {
        if address == 0 {
            return Err(HipError::INVALID_VALUE);
        }
        let found = memory::find(address).filter(|found| found.kind == MemoryKind::RegisteredHost && found.base == address);
        let found = found.ok_or(HipError::HOST_NOT_REGISTERED)?;
        synchronize_owner(&found);
        memory::remove_foreign(MemoryKind::RegisteredHost, address).map(drop).ok_or(HipError::HOST_NOT_REGISTERED)
    }
    fn hipHostGetDevicePointer(out: Out<usize>, host: usize, _flags: u32) {
        out.check()?;
        let found = memory::find(host).filter(|found| found.kind.is_host()).ok_or(HipError::INVALID_VALUE)?;
        out.set(crate::alias::device_address(found.base, found.len_bytes, host))
    }
    fn hipHostGetFlags(out: Out<u32>, host: usize) {
        out.check()?;
        let found = memory::find(host).filter(|found| found.kind == MemoryKind::PinnedHost).ok_or(HipError::INVALID_VALUE)?;
        out.set(found.flags)
    }
    fn hipMemGetInfo(free_bytes: Out<usize>, total_bytes: Out<usize>) {
        let device = current_device()?;
        free_bytes.set_if_given(device.heap.free_bytes());
        total_bytes.set_if_given(device.heap.total_bytes());
        Ok(())
    }
    fn hipMemGetAddressRange(base: Out<usize>, len_bytes: Out<usize>, address: usize) {
        let found = memory::find(address).ok_or(HipError::NOT_FOUND)?;
        base.set_if_given(found.base);
        len_bytes.set_if_given(found.len_bytes);
        Ok(())
    }
    fn hipMemPtrGetInfo(address: usize, len_bytes: Out<usize>) {
        len_bytes.check()?;
        len_bytes.set(if address == 0 { 0 } else { memory::find(address).ok_or(HipError::INVALID_VALUE)?.len_bytes })
    }
    fn hipPointerGetAttributes(out: Out<PointerAttributes>, address: usize) {
        out.check()?;
        if address == 0 {
            return Err(HipError::INVALID_VALUE);
        }
        let pageable = PointerAttributes { memory_type: 0, device: -2, device_pointer: 0, host_pointer: address, is_managed: 0, allocation_flags: 0 };
        out.set(attributes_of(address).map_or(pageable, |(attributes, _)| attributes))
    }
    fn hipPointerGetAttribute(data: Out<u8>, attribute: i32, address: usize) { pointer_attribute(data, attribute, address) }
    fn hipDrvPointerGetAttributes(count: u32, attributes: In<i32>, data: In<usize>, address: usize) {
        let attributes = attributes.array(count as usize)?;
        for (attribute, target) in attributes.iter().zip(data.array(count as usize)?) {
            // Unknown pointers and attributes leave zeros, as the driver interface has it.
            let out = crate::api::out_at::<u8>(target);
            if pointer_attribute(out, *attribute, address).is_err() {
                let wide = matches!(attribute, 3 | 4 | 7 | 11 | 12 | 17);
                if wide { out.cast::<u64>().set(0)? } else { out.set(0)? }
            }
        }
        Ok(())
    }
    fn hipPointerSetAttribute(value: In<u8>, attribute: i32, address: usize) {
        value.get()?;
        let known = memory::find(address).is_some();
        // HIP_POINTER_ATTRIBUTE_SYNC_MEMOPS is the only one that can be set.
        if attribute == 6 && known { Ok(()) } else { Err(HipError::INVALID_VALUE) }
    }
    fn hipMemAdvise(address: usize, len_bytes: usize, advice: i32, device: i32) {
        advise(address, len_bytes, advice, device)
    }
    fn hipMemAdvise_v2(address: usize, len_bytes: usize, advice: i32, location: crate::abi::MemLocation) {
        advise(address, len_bytes, advice, location.id)
    }
    fn hipMemPrefetchAsync(address: usize, len_bytes: usize, device: i32, stream: usize) {
        prefetch(address, len_bytes, device, stream)
    }
    fn hipMemPrefetchAsync_v2(address: usize, len_bytes: usize, location: crate::abi::MemLocation, _flags: u32, stream: usize) {
        let device = if location.kind == crate::abi::LOCATION_DEVICE { location.id } else { -1 };
        prefetch(address, len_bytes, device, stream)
    }
    fn hipMemRangeGetAttribute(data: Out<i32>, data_bytes: usize, attribute: i32, address: usize, len_bytes: usize) {
        managed(address, len_bytes)?;
        range_attribute(data, data_bytes, attribute)
    }
    fn hipMemRangeGetAttributes(data: In<usize>, sizes: In<usize>, attributes: In<i32>, count: usize, address: usize, len_bytes: usize) {
        managed(address, len_bytes)?;
        let (places, sizes) = (data.array(count)?, sizes.array(count)?);
        let wanted = attributes.array(count)?.into_iter().zip(places.into_iter().zip(sizes));
        wanted.into_iter().try_for_each(|(attribute, (place, data_bytes))| range_attribute(out_at(place), data_bytes, attribute))
    }
}

pub(crate) fn managed(address: usize, len_bytes: usize) -> HipResult {
    let found =
        memory::find(address).filter(|found| found.kind == MemoryKind::Managed && found.covers(address, len_bytes));
    found.map(drop).ok_or(HipError::INVALID_VALUE)
}

fn advise(address: usize, len_bytes: usize, advice: i32, device: i32) -> HipResult {
    let known_advice = matches!(advice, 1..=6 | 100 | 101);
    let known_device = device == -1 || usize::try_from(device).is_ok_and(|device| device < devices().len());
    if len_bytes == 0 || !known_advice || !known_device {
        return Err(HipError::INVALID_VALUE);
    }
    managed(address, len_bytes)
}

fn prefetch(address: usize, len_bytes: usize, device: i32, stream: usize) -> HipResult {
    if device != -1 {
        crate::device::device_by_ordinal(device)?;
    }
    managed(address, len_bytes)?;
    let stream = crate::stream::resolve(stream, crate::stream::DefaultStream::Legacy)?;
    // Memory that host and device share is where it is; the call still has its place in the stream.
    stream.submit(crate::op::Op::Nothing).map(drop)
}

hip_alias! {
    fn hipFreeHost(address: usize) = hipHostFree;
}
