//! Which memory the runtime knows: device, pinned and managed allocations, registered host ranges, mapped
//! virtual ranges and device variables.

use crate::alias;
use crate::config::config;
use crate::device::{Device, devices};
use crate::error::{HipError, HipResult};
use crate::heap::Heap;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock};

/// What kind of memory an allocation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryKind {
    Device,
    Managed,
    /// Pinned by `hipHostMalloc` and its spellings.
    PinnedHost,
    /// The program's own memory, pinned by `hipHostRegister`.
    RegisteredHost,
    /// A mapped range of the virtual memory interface.
    Virtual,
    /// A variable of a loaded code object.
    Variable,
}

impl MemoryKind {
    /// Whether the host owns it.
    pub(crate) fn is_host(self) -> bool {
        matches!(self, MemoryKind::PinnedHost | MemoryKind::RegisteredHost)
    }
}

/// One live allocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocation {
    pub(crate) base: usize,
    pub(crate) len_bytes: usize,
    pub(crate) kind: MemoryKind,
    pub(crate) device: usize,
    pub(crate) flags: u32,
    /// `HIP_POINTER_ATTRIBUTE_BUFFER_ID`: never used twice.
    pub(crate) id: u64,
    /// Creation number of the pool it came from, 0 for none.
    pub(crate) pool: usize,
}

impl Allocation {
    /// Whether `len_bytes` from `address` lie inside.
    pub(crate) fn covers(&self, address: usize, len_bytes: usize) -> bool {
        address
            .checked_sub(self.base)
            .and_then(|offset| offset.checked_add(len_bytes))
            .is_some_and(|end| end <= self.len_bytes)
    }
}

/// The live allocations of one address range.
#[derive(Debug, Default)]
pub(crate) struct AllocationMap(RwLock<BTreeMap<usize, Allocation>>);

impl AllocationMap {
    fn find(&self, address: usize) -> Option<Allocation> {
        let map = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let allocation = *map.range(..=address).next_back()?.1;
        (address - allocation.base < allocation.len_bytes.max(1)).then_some(allocation)
    }

    fn insert(&self, allocation: Allocation) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(allocation.base, allocation);
    }

    fn remove(&self, base: usize, wanted: impl Fn(&Allocation) -> bool) -> Option<Allocation> {
        let mut map = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if wanted(map.get(&base)?) { map.remove(&base) } else { None }
    }

    /// Removes and returns all allocations.
    pub(crate) fn drain(&self) -> Vec<Allocation> {
        std::mem::take(&mut *self.0.write().unwrap_or_else(PoisonError::into_inner)).into_values().collect()
    }

    fn overlaps(&self, start: usize, len_bytes: usize) -> bool {
        let map = self.0.read().unwrap_or_else(PoisonError::into_inner);
        map.range(..start.saturating_add(len_bytes))
            .next_back()
            .is_some_and(|(base, allocation)| base + allocation.len_bytes > start)
    }
}

/// Pinned and managed memory come out of one range of host memory.
struct HostSpace {
    heap: Heap,
    live: AllocationMap,
}

fn host_space() -> &'static HostSpace {
    static SPACE: OnceLock<HostSpace> = OnceLock::new();
    SPACE.get_or_init(|| {
        let heap = if config().alias { Heap::reserve_shared(4 << 30) } else { Heap::reserve(64 << 30) };
        HostSpace { heap, live: AllocationMap::default() }
    })
}

/// Ranges at addresses the runtime did not choose: registered, virtual, variables.
static FOREIGN: OnceLock<AllocationMap> = OnceLock::new();
/// How many there are; most programs have none, and then nobody looks.
static FOREIGN_COUNT: AtomicUsize = AtomicUsize::new(0);

fn foreign() -> &'static AllocationMap {
    FOREIGN.get_or_init(AllocationMap::default)
}

fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // Relaxed: only uniqueness matters.
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The live allocation that contains `address`.
pub(crate) fn find(address: usize) -> Option<Allocation> {
    for device in devices() {
        if device.heap.contains(address) {
            return device.live.find(address);
        }
    }
    let host = host_space();
    if host.heap.contains(address) {
        return host.live.find(address);
    }
    if let Some(own) = alias::host_address(address) {
        let found = find(own)?;
        // Where the device has it.
        return Some(Allocation { base: address.wrapping_sub(own.wrapping_sub(found.base)), ..found });
    }
    // Relaxed: a program that uses a registered range has synchronised with the call that registered it.
    if FOREIGN_COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    foreign().find(address)
}

/// The allocation at `address` if the runtime knows all `len_bytes` from there; a range of mapped virtual memory may
/// run over several mappings, all of them accessible.
pub(crate) fn find_range(address: usize, len_bytes: usize) -> Option<Allocation> {
    let first = find(address)?;
    let end = address.checked_add(len_bytes)?;
    let mut current = first;
    while current.kind == MemoryKind::Virtual {
        if current.flags == 0 {
            return None;
        }
        let reached = current.base + current.len_bytes;
        if reached >= end {
            return Some(first);
        }
        current = find(reached).filter(|next| next.kind == MemoryKind::Virtual)?;
    }
    first.covers(address, len_bytes).then_some(first)
}

/// Allocates device memory.
pub(crate) fn allocate_device(device: &Device, len_bytes: usize, flags: u32, pool: usize) -> HipResult<usize> {
    let base = device.heap.allocate(len_bytes)?;
    device.live.insert(Allocation {
        base,
        len_bytes,
        kind: MemoryKind::Device,
        device: device.index,
        flags,
        id: next_id(),
        pool,
    });
    Ok(base)
}

/// Ends the life of the device allocation that starts at `base` if it is the wanted one; its block stays taken until [`release_device`].
pub(crate) fn forget_device(base: usize, wanted: impl Fn(&Allocation) -> bool) -> Option<Allocation> {
    devices().iter().find(|device| device.heap.contains(base))?.live.remove(base, wanted)
}

/// Makes a forgotten allocation's block a new allocation of `pool`.
pub(crate) fn revive_device(allocation: Allocation, len_bytes: usize, pool: usize) {
    if let Some(device) = devices().get(allocation.device) {
        device.live.insert(Allocation { len_bytes, pool, id: next_id(), ..allocation });
    }
}

/// Gives a forgotten allocation's block back to its device.
pub(crate) fn release_device(device: usize, base: usize, len_bytes: usize) {
    if let Some(device) = devices().get(device) {
        device.heap.release(base, len_bytes);
    }
}

/// Allocates pinned or managed host memory.
pub(crate) fn allocate_host(kind: MemoryKind, device: usize, len_bytes: usize, flags: u32) -> HipResult<usize> {
    let space = host_space();
    // A whole page at least, as pinning works on pages; it also keeps the two kinds out of the small-block chunks.
    let base = space.heap.allocate(len_bytes)?;
    if kind == MemoryKind::PinnedHost {
        make_resident(base, len_bytes);
    }
    space.live.insert(Allocation { base, len_bytes, kind, device, flags, id: next_id(), pool: 0 });
    Ok(base)
}

/// Has the pages of pinned memory there, as pinning does: who copies to it later meets no page faults.
fn make_resident(base: usize, len_bytes: usize) {
    const PAGE_BYTES: usize = 4096;
    let start = base / PAGE_BYTES * PAGE_BYTES;
    let len_bytes = (base + len_bytes).next_multiple_of(PAGE_BYTES) - start;
    // Where the kernel does not know the advice (before 5.14), pages come when they are touched.
    // SAFETY: the pages hold a block of the heap's mapping, and the advice changes no contents.
    unsafe { libc::madvise(start as *mut libc::c_void, len_bytes, libc::MADV_POPULATE_WRITE) };
}

/// Ends the life of the pinned or managed allocation that starts at `base`.
pub(crate) fn forget_host(base: usize, wanted: impl Fn(&Allocation) -> bool) -> Option<Allocation> {
    let gone = host_space().live.remove(base, wanted)?;
    alias::forget(base);
    Some(gone)
}

/// Gives a forgotten host allocation's block back.
pub(crate) fn release_host(allocation: &Allocation) {
    host_space().heap.release(allocation.base, allocation.len_bytes);
}

/// Adds a range at an address the runtime did not choose. Fails with `taken` if it overlaps a known one.
pub(crate) fn add_foreign(
    kind: MemoryKind,
    device: usize,
    base: usize,
    len_bytes: usize,
    flags: u32,
    taken: HipError,
) -> HipResult {
    if foreign().overlaps(base, len_bytes) || find(base).is_some() {
        return Err(taken);
    }
    foreign().insert(Allocation { base, len_bytes, kind, device, flags, id: next_id(), pool: 0 });
    // Relaxed: see `find`.
    FOREIGN_COUNT.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Sets the flags of the range that starts at `base`.
pub(crate) fn set_foreign_flags(base: usize, flags: u32) {
    if let Some(allocation) = foreign().0.write().unwrap_or_else(PoisonError::into_inner).get_mut(&base) {
        allocation.flags = flags;
    }
}

/// Removes the range of the given kind that starts at `base`.
pub(crate) fn remove_foreign(kind: MemoryKind, base: usize) -> Option<Allocation> {
    let removed = foreign().remove(base, |allocation| allocation.kind == kind)?;
    alias::forget(base);
    // Relaxed: see `find`.
    FOREIGN_COUNT.fetch_sub(1, Ordering::Relaxed);
    Some(removed)
}
