//! External memory: a file that holds device memory, such as `hipMemExportToShareableHandle` gives out, mapped once more.

use crate::array::Layout;
use crate::error::{HipError, HipResult};
use crate::memory::{self, MemoryKind};
use crate::mipmap;
use crate::registry::{Registry, lock};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::{Arc, Mutex};

/// `hipExternalMemoryHandleTypeOpaqueFd`.
const OPAQUE_FD: i32 = 1;
const PAGE_BYTES: usize = 4096;
/// `hipMemAccessFlagsProtReadWrite`.
const READ_WRITE: u32 = 3;

/// Imported memory.
#[derive(Debug)]
pub(crate) struct External {
    file: File,
    len_bytes: usize,
    device: usize,
}

/// A range of imported memory as the device sees it, until this is dropped.
#[derive(Debug)]
pub(crate) struct Mapped {
    /// The first byte asked for.
    pub(crate) address: usize,
    first: usize,
    len_bytes: usize,
}

static EXTERNAL: Registry<External> = Registry::new();
/// Mapped buffers by address, which `hipFree` gives back.
static BUFFERS: Mutex<BTreeMap<usize, Mapped>> = Mutex::new(BTreeMap::new());

/// `hipImportExternalMemory`: a copy of the caller's descriptor, whose file has at least `len_bytes`.
pub(crate) fn import(kind: i32, descriptor: i32, len_bytes: usize, device: usize) -> HipResult<usize> {
    if kind != OPAQUE_FD {
        return Err(HipError::NOT_SUPPORTED);
    }
    // SAFETY: dup of whatever the caller passed; a bad number is an error.
    let copy = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 0) };
    if copy < 0 {
        return Err(HipError::INVALID_VALUE);
    }
    // SAFETY: a new descriptor, owned here.
    let file = unsafe { File::from_raw_fd(copy) };
    let metadata = file.metadata().map_err(|_| HipError::INVALID_VALUE)?;
    if !metadata.is_file() || len_bytes == 0 || metadata.len() < len_bytes as u64 {
        return Err(HipError::INVALID_VALUE);
    }
    EXTERNAL.insert(|_| Arc::new(External { file, len_bytes, device }))
}

/// `hipDestroyExternalMemory`: what is mapped of it stays.
pub(crate) fn destroy(handle: usize) -> HipResult {
    EXTERNAL.remove(handle).map(drop).ok_or(HipError::INVALID_VALUE)
}

fn map(handle: usize, offset_bytes: usize, len_bytes: usize) -> HipResult<Mapped> {
    let external = EXTERNAL.get(handle).ok_or(HipError::INVALID_VALUE)?;
    let end = offset_bytes.checked_add(len_bytes).filter(|&end| len_bytes > 0 && end <= external.len_bytes);
    let end = end.ok_or(HipError::INVALID_VALUE)?;
    let start = offset_bytes / PAGE_BYTES * PAGE_BYTES;
    let len_bytes = end - start;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let descriptor = external.file.as_raw_fd();
    // SAFETY: a shared mapping at an address of the kernel's choice touches no memory of the program.
    let first = unsafe {
        libc::mmap(std::ptr::null_mut(), len_bytes, access, libc::MAP_SHARED, descriptor, start as libc::off_t)
    };
    if first == libc::MAP_FAILED {
        return Err(HipError::MAP_FAILED);
    }
    let first = first as usize;
    let mapped = Mapped { address: first + (offset_bytes - start), first, len_bytes };
    let room = end - offset_bytes;
    memory::add_foreign(
        MemoryKind::Virtual,
        external.device,
        mapped.address,
        room,
        READ_WRITE,
        HipError::INVALID_VALUE,
    )?;
    Ok(mapped)
}

impl Drop for Mapped {
    fn drop(&mut self) {
        memory::remove_foreign(MemoryKind::Virtual, self.address);
        // SAFETY: the mapping is this one's own; whoever ends it has waited for the devices.
        unsafe { libc::munmap(self.first as *mut libc::c_void, self.len_bytes) };
    }
}

/// `hipExternalMemoryGetMappedBuffer`.
pub(crate) fn buffer(handle: usize, offset_bytes: usize, len_bytes: usize) -> HipResult<usize> {
    let mapped = map(handle, offset_bytes, len_bytes)?;
    let address = mapped.address;
    lock(&BUFFERS).insert(address, mapped);
    Ok(address)
}

/// `hipFree` of a mapped buffer, once nothing enqueued can touch it; says whether it was one.
pub(crate) fn free(address: usize) -> bool {
    lock(&BUFFERS).remove(&address).is_some()
}

/// `hipExternalMemoryGetMappedMipmappedArray`.
pub(crate) fn mipmapped(handle: usize, offset_bytes: usize, layout: Layout, levels: u32) -> HipResult<usize> {
    let external = EXTERNAL.get(handle).ok_or(HipError::INVALID_VALUE)?;
    let room = external.len_bytes.checked_sub(offset_bytes).ok_or(HipError::INVALID_VALUE)?;
    mipmap::create_in(external.device, layout, levels, map(handle, offset_bytes, room)?, room)
}
