//! The virtual memory interface: reserved addresses, physical memory, mappings of one into the other.

use crate::abi::{LOCATION_DEVICE, MemAccessDesc, MemAllocationProp, MemLocation};
use crate::config::config;
use crate::device::{Device, device_by_ordinal, devices};
use crate::error::{HipError, HipResult};
use crate::memory::{self, MemoryKind};
use crate::registry::{Registry, lock};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
use std::sync::{Arc, Mutex};

/// `hipMemAllocationGranularityMinimum` in bytes.
pub(crate) const MIN_GRANULARITY: usize = 4096;
/// `hipMemAllocationGranularityRecommended` in bytes.
pub(crate) const RECOMMENDED_GRANULARITY: usize = 2 << 20;
/// `hipMemHandleTypePosixFileDescriptor`.
const HANDLE_POSIX_FD: i32 = 1;

/// Physical memory: an unnamed file, so that it can be mapped at several places.
#[derive(Debug)]
pub(crate) struct Physical {
    file: File,
    len_bytes: usize,
    pub(crate) props: MemAllocationProp,
    device: usize,
    /// `hipMemRetainAllocationHandle` adds to it, `hipMemRelease` takes from it.
    references: Mutex<u32>,
}

/// What is mapped at an address.
#[derive(Clone, Copy, Debug)]
struct Mapping {
    len_bytes: usize,
    handle: usize,
}

#[derive(Debug, Default)]
struct Space {
    /// Reserved ranges: base and length.
    reserved: BTreeMap<usize, usize>,
    mapped: BTreeMap<usize, Mapping>,
}

static PHYSICAL: Registry<Physical> = Registry::new();
static SPACE: Mutex<Space> = Mutex::new(Space { reserved: BTreeMap::new(), mapped: BTreeMap::new() });

fn is_multiple(value: usize) -> bool {
    value > 0 && value.is_multiple_of(MIN_GRANULARITY)
}

/// Checks allocation properties and finds their device.
pub(crate) fn device_of(props: &MemAllocationProp) -> HipResult<&'static Device> {
    let uncached = 0x4000_0000;
    if (props.kind != 1 && props.kind != uncached) || props.location.kind != LOCATION_DEVICE {
        return Err(HipError::INVALID_VALUE);
    }
    device_by_ordinal(props.location.id)
}

/// `hipMemAddressReserve`: at `wanted` if those addresses are free, anywhere otherwise.
pub(crate) fn reserve(len_bytes: usize, alignment: usize, wanted: usize) -> HipResult<usize> {
    let alignment = alignment.max(MIN_GRANULARITY);
    if !is_multiple(len_bytes) || !alignment.is_power_of_two() {
        return Err(HipError::INVALID_VALUE);
    }
    let block_bytes = config().address_block_bytes;
    let is_given_out = block_bytes == 0 || (len_bytes >= block_bytes && wanted.is_multiple_of(block_bytes));
    let at_wanted = if wanted != 0 && wanted.is_multiple_of(alignment) && is_given_out {
        map_nothing(wanted, len_bytes, libc::MAP_FIXED_NOREPLACE)
    } else {
        None
    };
    let base = match at_wanted {
        Some(base) => base,
        None => reserve_aligned(len_bytes, alignment).ok_or(HipError::OUT_OF_MEMORY)?,
    };
    lock(&SPACE).reserved.insert(base, len_bytes);
    Ok(base)
}

fn reserve_aligned(len_bytes: usize, alignment: usize) -> Option<usize> {
    let total = len_bytes.checked_add(alignment)?;
    let start = map_nothing(0, total, 0)?;
    let base = start.next_multiple_of(alignment);
    unmap(start, base - start);
    unmap(base + len_bytes, start + total - base - len_bytes);
    Some(base)
}

/// Takes addresses without memory behind them.
fn map_nothing(address: usize, len_bytes: usize, how: i32) -> Option<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | how;
    // SAFETY: either the kernel chooses the address, or MAP_FIXED_NOREPLACE refuses one in use, or (MAP_FIXED) the range
    // is one this module reserved itself, whose mapping it takes away on purpose.
    let mapped = unsafe { libc::mmap(address as *mut libc::c_void, len_bytes, libc::PROT_NONE, flags, -1, 0) } as usize;
    if mapped == libc::MAP_FAILED as usize {
        return None;
    }
    if address != 0 && mapped != address {
        // A kernel that does not know the flag takes the address for a hint.
        unmap(mapped, len_bytes);
        return None;
    }
    Some(mapped)
}

fn unmap(address: usize, len_bytes: usize) {
    if len_bytes > 0 {
        // SAFETY: a range this module mapped, with nothing of the program in it any more.
        unsafe { libc::munmap(address as *mut libc::c_void, len_bytes) };
    }
}

impl Space {
    fn is_reserved(&self, base: usize, len_bytes: usize) -> bool {
        let holder = self.reserved.range(..=base).next_back();
        holder.is_some_and(|(start, len)| base.checked_add(len_bytes).is_some_and(|end| end <= start + len))
    }

    /// The mappings that lie in a range, if they cover all of it and none sticks out.
    fn covering(&self, base: usize, len_bytes: usize) -> HipResult<Vec<(usize, Mapping)>> {
        let end = base.checked_add(len_bytes).ok_or(HipError::INVALID_VALUE)?;
        let inside: Vec<(usize, Mapping)> =
            self.mapped.range(base..end).map(|(start, mapping)| (*start, *mapping)).collect();
        let mut next = base;
        for (start, mapping) in &inside {
            if *start != next {
                return Err(HipError::INVALID_VALUE);
            }
            next = start + mapping.len_bytes;
        }
        if next == end && !inside.is_empty() { Ok(inside) } else { Err(HipError::INVALID_VALUE) }
    }
}

/// `hipMemAddressFree`: the whole reservation, with nothing mapped in it.
pub(crate) fn free(base: usize, len_bytes: usize) -> HipResult {
    let mut space = lock(&SPACE);
    if space.reserved.get(&base) != Some(&len_bytes) || space.mapped.range(base..base + len_bytes).next().is_some() {
        return Err(HipError::INVALID_VALUE);
    }
    space.reserved.remove(&base);
    unmap(base, len_bytes);
    Ok(())
}

fn add_physical(file: File, len_bytes: usize, props: MemAllocationProp, device: usize) -> HipResult<usize> {
    PHYSICAL.insert(|_| Arc::new(Physical { file, len_bytes, props, device, references: Mutex::new(1) }))
}

/// `hipMemCreate`.
pub(crate) fn create(len_bytes: usize, props: &MemAllocationProp) -> HipResult<usize> {
    let device = device_of(props)?;
    if !is_multiple(len_bytes) {
        return Err(HipError::INVALID_VALUE);
    }
    if len_bytes > device.heap.free_bytes() {
        return Err(HipError::OUT_OF_MEMORY);
    }
    // SAFETY: a terminated name; the returned descriptor is new and owned here.
    let file = unsafe {
        let descriptor = libc::memfd_create(c"hip-device-memory".as_ptr(), libc::MFD_CLOEXEC);
        if descriptor < 0 {
            return Err(HipError::OUT_OF_MEMORY);
        }
        File::from_raw_fd(descriptor)
    };
    file.set_len(len_bytes as u64).map_err(|_| HipError::OUT_OF_MEMORY)?;
    add_physical(file, len_bytes, *props, device.index)
}

fn physical(handle: usize) -> HipResult<Arc<Physical>> {
    PHYSICAL.get(handle).ok_or(HipError::INVALID_VALUE)
}

/// `hipMemGetAllocationPropertiesFromHandle`.
pub(crate) fn properties(handle: usize) -> HipResult<MemAllocationProp> {
    Ok(physical(handle)?.props)
}

/// `hipMemRelease`: mappings keep the memory until they go.
pub(crate) fn release(handle: usize) -> HipResult {
    let memory = physical(handle)?;
    let mut references = lock(&memory.references);
    *references -= 1;
    if *references == 0 {
        PHYSICAL.remove(handle);
    }
    Ok(())
}

/// `hipMemRetainAllocationHandle`: the handle of what is mapped at `address`.
pub(crate) fn retain(address: usize) -> HipResult<usize> {
    let handle = {
        let space = lock(&SPACE);
        let (start, mapping) = space.mapped.range(..=address).next_back().ok_or(HipError::INVALID_VALUE)?;
        if address - start >= mapping.len_bytes {
            return Err(HipError::INVALID_VALUE);
        }
        mapping.handle
    };
    *lock(&physical(handle)?.references) += 1;
    Ok(handle)
}

/// `hipMemMap`; nothing may touch it before `hipMemSetAccess`.
pub(crate) fn map(base: usize, len_bytes: usize, offset_bytes: usize, handle: usize) -> HipResult {
    let memory = physical(handle)?;
    let fits = offset_bytes.checked_add(len_bytes).is_some_and(|end| end <= memory.len_bytes);
    if !is_multiple(len_bytes)
        || !base.is_multiple_of(MIN_GRANULARITY)
        || !offset_bytes.is_multiple_of(MIN_GRANULARITY)
        || !fits
    {
        return Err(HipError::INVALID_VALUE);
    }
    let mut space = lock(&SPACE);
    if !space.is_reserved(base, len_bytes) {
        return Err(HipError::INVALID_VALUE);
    }
    memory::add_foreign(MemoryKind::Virtual, memory.device, base, len_bytes, 0, HipError::INVALID_VALUE)?;
    let flags = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE;
    let offset = offset_bytes as libc::off_t;
    // SAFETY: the range is reserved by this module and has nothing mapped: the placeholder is replaced.
    let mapped = unsafe {
        libc::mmap(base as *mut libc::c_void, len_bytes, libc::PROT_NONE, flags, memory.file.as_raw_fd(), offset)
    };
    if mapped == libc::MAP_FAILED {
        memory::remove_foreign(MemoryKind::Virtual, base);
        return Err(HipError::MAP_FAILED);
    }
    space.mapped.insert(base, Mapping { len_bytes, handle });
    Ok(())
}

/// `hipMemSetAccess`: the strongest access any device gets decides, as all share one address space.
pub(crate) fn set_access(base: usize, len_bytes: usize, descriptors: &[MemAccessDesc]) -> HipResult {
    let mut access = 0;
    for descriptor in descriptors {
        device_by_ordinal(descriptor.location.id)?;
        if descriptor.location.kind != LOCATION_DEVICE || !matches!(descriptor.flags, 0 | 1 | 3) {
            return Err(HipError::INVALID_VALUE);
        }
        access |= descriptor.flags;
    }
    let protection = match access {
        0 => libc::PROT_NONE,
        1 => libc::PROT_READ,
        _ => libc::PROT_READ | libc::PROT_WRITE,
    };
    for (start, mapping) in lock(&SPACE).covering(base, len_bytes)? {
        // SAFETY: one of this module's mappings.
        if unsafe { libc::mprotect(start as *mut libc::c_void, mapping.len_bytes, protection) } != 0 {
            return Err(HipError::INVALID_VALUE);
        }
        memory::set_foreign_flags(start, access);
    }
    Ok(())
}

/// `hipMemGetAccess`: `hipMemAccessFlags` of the mapping at `address`.
pub(crate) fn access(location: &MemLocation, address: usize) -> HipResult<u64> {
    device_by_ordinal(location.id)?;
    let found =
        memory::find(address).filter(|found| found.kind == MemoryKind::Virtual).ok_or(HipError::INVALID_VALUE)?;
    Ok(found.flags.into())
}

/// `hipMemUnmap`: whole mappings, once nothing enqueued can touch them.
pub(crate) fn unmap_range(base: usize, len_bytes: usize) -> HipResult {
    lock(&SPACE).covering(base, len_bytes)?;
    devices().iter().for_each(Device::synchronize);
    let mut space = lock(&SPACE);
    for (start, mapping) in space.covering(base, len_bytes)? {
        map_nothing(start, mapping.len_bytes, libc::MAP_FIXED).ok_or(HipError::UNMAP_FAILED)?;
        memory::remove_foreign(MemoryKind::Virtual, start);
        space.mapped.remove(&start);
    }
    Ok(())
}

/// `hipMemExportToShareableHandle`: a descriptor the caller owns.
pub(crate) fn export(handle: usize, handle_type: i32) -> HipResult<i32> {
    if handle_type != HANDLE_POSIX_FD {
        return Err(HipError::NOT_SUPPORTED);
    }
    let copy = physical(handle)?.file.try_clone().map_err(|_| HipError::OPERATING_SYSTEM)?;
    Ok(copy.into_raw_fd())
}

/// `hipMemImportFromShareableHandle`: a copy of the caller's descriptor.
pub(crate) fn import(descriptor: i32, handle_type: i32, device: &Device) -> HipResult<usize> {
    if handle_type != HANDLE_POSIX_FD {
        return Err(HipError::NOT_SUPPORTED);
    }
    // SAFETY: dup of whatever the caller passed; a bad number is an error.
    let copy = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 0) };
    if copy < 0 {
        return Err(HipError::INVALID_VALUE);
    }
    // SAFETY: a new descriptor, owned here.
    let file = unsafe { File::from_raw_fd(copy) };
    let len_bytes = file.metadata().map_err(|_| HipError::INVALID_VALUE)?.len() as usize;
    let location = MemLocation { kind: LOCATION_DEVICE, id: device.index as i32 };
    add_physical(
        file,
        len_bytes,
        MemAllocationProp { kind: 1, requested_handle_type: HANDLE_POSIX_FD, location, ..Default::default() },
        device.index,
    )
}
