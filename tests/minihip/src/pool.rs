//! Memory pools: stream-ordered allocation.
//!
//! Allocation happens in the call, so that the address is known; freeing is a point of a stream. A freed block may
//! be given out again at once to the stream it was freed on, and to others once that point is passed.

use crate::abi::{LOCATION_DEVICE, MemAccessDesc, MemLocation, MemPoolProps};
use crate::alias;
use crate::capture;
use crate::device::{Device, device, device_by_ordinal};
use crate::error::{HipError, HipResult};
use crate::graph::{GraphAllocation, NodeOp};
use crate::heap::Heap;
use crate::memory::{self, Allocation, MemoryKind};
use crate::op::Op;
use crate::registry::{Registry, lock};
use crate::stream::{Stream, Submitted};
use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::os::fd::{FromRawFd, IntoRawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A freed block that the pool still holds.
#[derive(Debug)]
struct FreeBlock {
    allocation: Allocation,
    /// Where it was freed: reusable there, and everywhere once the point is reached.
    stream: Arc<Stream>,
    target: u64,
}

impl FreeBlock {
    fn block_bytes(&self) -> usize {
        Heap::block_bytes(self.allocation.len_bytes)
    }

    fn is_passed(&self) -> bool {
        self.stream.progress.reached(self.target)
    }
}

#[derive(Debug)]
struct State {
    free: Vec<FreeBlock>,
    used_bytes: usize,
    used_high_bytes: usize,
    reserved_bytes: usize,
    reserved_high_bytes: usize,
    release_threshold: u64,
    /// Follow event dependencies, opportunistic, internal dependencies.
    reuse: [i32; 3],
    access: HashMap<usize, u32>,
    is_destroyed: bool,
}

/// A pool.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) handle: usize,
    /// Creation number, never reused: what allocations remember of their pool.
    id: usize,
    pub(crate) device: usize,
    max_bytes: usize,
    is_default: bool,
    /// Creation number of the pool that this one is an import of, 0 for none: it gives out no memory of its own.
    origin: usize,
    state: Mutex<State>,
}

static POOLS: Registry<Pool> = Registry::new();
/// Every pool that is not destroyed, or destroyed with memory left.
static ALL: Mutex<Vec<Arc<Pool>>> = Mutex::new(Vec::new());
/// Free blocks in all pools: synchronising calls look no further while there are none.
static FREE_BLOCKS: AtomicUsize = AtomicUsize::new(0);

fn new_pool(device: usize, max_bytes: usize, is_default: bool, origin: usize) -> HipResult<usize> {
    static NEXT_ID: AtomicUsize = AtomicUsize::new(1);
    POOLS.insert(|handle| {
        let state = State {
            free: Vec::new(),
            used_bytes: 0,
            used_high_bytes: 0,
            reserved_bytes: 0,
            reserved_high_bytes: 0,
            release_threshold: 0,
            reuse: [1; 3],
            access: HashMap::new(),
            is_destroyed: false,
        };
        // Relaxed: only uniqueness matters.
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let pool = Arc::new(Pool { handle, id, device, max_bytes, is_default, origin, state: Mutex::new(state) });
        lock(&ALL).push(Arc::clone(&pool));
        pool
    })
}

/// `hipMemPoolCreate`.
pub(crate) fn create(props: &MemPoolProps) -> HipResult<usize> {
    // Pinned device memory is the only kind there is.
    if props.alloc_type != 1 || props.location.kind != LOCATION_DEVICE {
        return Err(HipError::INVALID_VALUE);
    }
    new_pool(device_by_ordinal(props.location.id)?.index, props.max_size, false, 0)
}

/// The pool a handle stands for. Fails with `hipErrorInvalidValue`.
pub(crate) fn resolve(handle: usize) -> HipResult<Arc<Pool>> {
    POOLS.get(handle).ok_or(HipError::INVALID_VALUE)
}

/// Handle of a device's default pool.
pub(crate) fn default_of(device: &Device) -> HipResult<usize> {
    if let Some(handle) = device.default_pool.get() {
        return Ok(*handle);
    }
    let made = new_pool(device.index, 0, true, 0)?;
    let handle = *device.default_pool.get_or_init(|| made);
    if handle != made {
        // Another thread was faster.
        forget(made);
    }
    Ok(handle)
}

/// Handle of the pool `hipMallocAsync` uses on a device.
pub(crate) fn current_of(device: &Device) -> HipResult<usize> {
    // Relaxed: a program orders hipDeviceSetMemPool and the allocations that are to use it.
    match device.current_pool.load(Ordering::Relaxed) {
        0 => default_of(device),
        handle => Ok(handle),
    }
}

/// `hipDeviceSetMemPool`.
pub(crate) fn set_current(device: &Device, handle: usize) -> HipResult {
    let pool = resolve(handle)?;
    if pool.device != device.index || pool.origin != 0 {
        return Err(HipError::INVALID_VALUE);
    }
    // Relaxed: see `current_of`.
    device.current_pool.store(handle, Ordering::Relaxed);
    Ok(())
}

fn forget(handle: usize) -> Option<Arc<Pool>> {
    let pool = POOLS.remove(handle)?;
    lock(&pool.state).is_destroyed = true;
    drop_finished();
    Some(pool)
}

/// Forgets destroyed pools that hold nothing any more.
fn drop_finished() {
    lock(&ALL).retain(|pool| {
        let state = lock(&pool.state);
        !(state.is_destroyed && state.free.is_empty() && state.used_bytes == 0)
    });
}

/// `hipMemPoolDestroy`: live allocations stay valid; free blocks go back to the device when their streams have passed.
pub(crate) fn destroy(handle: usize) -> HipResult {
    if resolve(handle)?.is_default {
        return Err(HipError::INVALID_VALUE);
    }
    let pool = forget(handle).ok_or(HipError::INVALID_VALUE)?;
    if let Ok(device) = device(pool.device) {
        // Relaxed: see `current_of`.
        let _ = device.current_pool.compare_exchange(handle, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
    let mut state = lock(&pool.state);
    state.release_threshold = 0;
    state.release_passed(0);
    drop(state);
    drop_finished();
    Ok(())
}

fn count_free_blocks(change: isize) {
    // Relaxed: a hint; whoever synchronises after a free has seen that free's count.
    FREE_BLOCKS.fetch_add(change as usize, Ordering::Relaxed);
}

/// `hipMallocAsync`, `hipMallocFromPoolAsync`.
pub(crate) fn allocate(stream: &Arc<Stream>, pool_handle: usize, len_bytes: usize) -> HipResult<usize> {
    let pool = resolve(pool_handle)?;
    if pool.origin != 0 {
        return Err(HipError::INVALID_VALUE);
    }
    if len_bytes == 0 {
        return Ok(0);
    }
    // Acquire: pairs with the Release of the call that began the capture.
    if stream.capturing.load(Ordering::Acquire) {
        let allocation = GraphAllocation::new(pool.device, len_bytes)?;
        let base = allocation.base;
        capture::add_node(stream, NodeOp::MemAlloc(allocation))?;
        return Ok(base);
    }
    capture::check_implicit(stream)?;
    let block = Heap::block_bytes(len_bytes);
    let mut state = lock(&pool.state);
    let opportunistic = state.reuse[1] != 0;
    let reusable = state.free.iter().rposition(|free| {
        free.block_bytes() == block && (free.stream.id == stream.id || (opportunistic && free.is_passed()))
    });
    let base = if let Some(position) = reusable {
        let free = state.free.remove(position);
        count_free_blocks(-1);
        memory::revive_device(free.allocation, len_bytes, pool.id);
        free.allocation.base
    } else {
        if pool.max_bytes != 0 && state.used_bytes.saturating_add(block) > pool.max_bytes {
            return Err(HipError::OUT_OF_MEMORY);
        }
        let device = device(pool.device)?;
        let base = match memory::allocate_device(device, len_bytes, 0, pool.id) {
            Err(HipError::OUT_OF_MEMORY) => {
                state.release_passed(0);
                memory::allocate_device(device, len_bytes, 0, pool.id)?
            }
            other => other?,
        };
        state.reserved_bytes += block;
        state.reserved_high_bytes = state.reserved_high_bytes.max(state.reserved_bytes);
        base
    };
    state.used_bytes += block;
    state.used_high_bytes = state.used_high_bytes.max(state.used_bytes);
    Ok(base)
}

impl State {
    /// Gives free blocks whose streams have passed back to the device until no more than `keep_bytes` are reserved.
    fn release_passed(&mut self, keep_bytes: u64) {
        let mut i = 0;
        while i < self.free.len() && self.reserved_bytes as u64 > keep_bytes {
            if self.free[i].is_passed() {
                let block = self.free.remove(i);
                count_free_blocks(-1);
                self.reserved_bytes = self.reserved_bytes.saturating_sub(block.block_bytes());
                memory::release_device(block.allocation.device, block.allocation.base, block.allocation.len_bytes);
            } else {
                i += 1;
            }
        }
    }
}

/// `hipFreeAsync`: the address is dead for calls from now on, the block free from this point of the stream on.
pub(crate) fn free(stream: &Arc<Stream>, address: usize) -> HipResult {
    let found = memory::find(address).filter(|found| found.base == address && found.kind == MemoryKind::Device);
    let found = found.ok_or(HipError::INVALID_VALUE)?;
    // Acquire: pairs with the Release of the call that began the capture.
    if stream.capturing.load(Ordering::Acquire) {
        return capture::add_node(stream, NodeOp::MemFree(address));
    }
    if alias::is_of(address, alias::IMPORTED) {
        // Another name goes; the memory is the exporter's.
        stream.synchronize();
        return if alias::close(address, alias::IMPORTED) { Ok(()) } else { Err(HipError::INVALID_VALUE) };
    }
    let submitted = stream.submit(Op::Nothing)?;
    let Submitted::Enqueued(target) = submitted else { return Ok(()) };
    let allocation = memory::forget_device(address, |gone| gone.id == found.id).ok_or(HipError::INVALID_VALUE)?;
    let block = Heap::block_bytes(allocation.len_bytes);
    let (pool, own) = match pool_of(&allocation) {
        Some(pool) => (pool, true),
        // Memory of hipMalloc: from now on the default pool's.
        None => (resolve(default_of(device(allocation.device)?)?)?, false),
    };
    let mut state = lock(&pool.state);
    if own {
        state.used_bytes = state.used_bytes.saturating_sub(block);
    } else {
        state.reserved_bytes += block;
    }
    state.free.push(FreeBlock { allocation, stream: Arc::clone(stream), target });
    count_free_blocks(1);
    Ok(())
}

fn pool_of(allocation: &Allocation) -> Option<Arc<Pool>> {
    if allocation.pool == 0 {
        return None;
    }
    lock(&ALL).iter().find(|pool| pool.id == allocation.pool).cloned()
}

/// What the file of an exported pool holds: its process and creation number.
const EXPORT_WORDS: usize = 2;

/// `hipMemPoolExportToShareableHandle`: a descriptor that the caller owns.
pub(crate) fn export(handle: usize) -> HipResult<i32> {
    let pool = resolve(handle)?;
    if pool.origin != 0 || pool.is_default {
        return Err(HipError::INVALID_VALUE);
    }
    // SAFETY: a terminated name; the returned descriptor is new and owned here.
    let mut file = unsafe {
        let descriptor = libc::memfd_create(c"hip-memory-pool".as_ptr(), libc::MFD_CLOEXEC);
        if descriptor < 0 {
            return Err(HipError::OPERATING_SYSTEM);
        }
        File::from_raw_fd(descriptor)
    };
    let words: [u64; EXPORT_WORDS] = [u64::from(std::process::id()), pool.id as u64];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    file.write_all(&bytes).map_err(|_| HipError::OPERATING_SYSTEM)?;
    Ok(file.into_raw_fd())
}

/// `hipMemPoolImportFromShareableHandle`: a pool of this process, exported before.
pub(crate) fn import(descriptor: i32) -> HipResult<usize> {
    let mut words = [0u64; EXPORT_WORDS];
    let len_bytes = std::mem::size_of_val(&words);
    // SAFETY: the buffer is as long as said; whatever descriptor the caller passed, a bad one is an error.
    let read = unsafe { libc::pread(descriptor, words.as_mut_ptr().cast(), len_bytes, 0) };
    if read != len_bytes as isize {
        return Err(HipError::INVALID_VALUE);
    }
    if words[0] != u64::from(std::process::id()) {
        return Err(HipError::NOT_SUPPORTED);
    }
    let device = lock(&ALL).iter().find(|pool| pool.id as u64 == words[1]).map(|pool| pool.device);
    new_pool(device.ok_or(HipError::INVALID_VALUE)?, 0, false, words[1] as usize)
}

/// The allocation that starts at `address`, of a pool that can be exported: first address and number.
pub(crate) fn exported(address: usize) -> HipResult<(usize, u64)> {
    let found = memory::find(address).filter(|found| found.base == address).ok_or(HipError::INVALID_VALUE)?;
    pool_of(&found).filter(|pool| !pool.is_default).ok_or(HipError::INVALID_VALUE)?;
    Ok((found.base, found.id))
}

impl Pool {
    /// `hipMemPoolImportPointer`: another name of an allocation of the pool that this one is an import of.
    pub(crate) fn import_pointer(&self, base: usize, id: u64) -> HipResult<usize> {
        let found = memory::find(base).filter(|found| found.base == base && found.id == id);
        let found = found.filter(|found| self.origin != 0 && found.pool == self.origin);
        let len_bytes = found.ok_or(HipError::INVALID_VALUE)?.len_bytes;
        alias::map_again(base, len_bytes, alias::IMPORTED).ok_or(HipError::NOT_SUPPORTED)
    }
}

/// Handle of the pool an allocation came from, 0 for none.
pub(crate) fn handle_of(allocation: &Allocation) -> usize {
    pool_of(allocation).map_or(0, |pool| pool.handle)
}

/// `hipFree` of any device allocation, after the device was synchronised.
pub(crate) fn give_back(allocation: &Allocation) {
    if let Some(pool) = pool_of(allocation) {
        let mut state = lock(&pool.state);
        let block = Heap::block_bytes(allocation.len_bytes);
        state.used_bytes = state.used_bytes.saturating_sub(block);
        state.reserved_bytes = state.reserved_bytes.saturating_sub(block);
    }
    memory::release_device(allocation.device, allocation.base, allocation.len_bytes);
}

/// Something was synchronised on `device`: pools give back what exceeds their release thresholds.
pub(crate) fn on_synchronize(device: usize) {
    // Relaxed: see `count_free_blocks`.
    if FREE_BLOCKS.load(Ordering::Relaxed) == 0 {
        return;
    }
    let pools: Vec<Arc<Pool>> = lock(&ALL).iter().filter(|pool| pool.device == device).cloned().collect();
    for pool in pools {
        let mut state = lock(&pool.state);
        let threshold = state.release_threshold;
        state.release_passed(threshold);
    }
    drop_finished();
}

impl Pool {
    /// `hipMemPoolTrimTo`.
    pub(crate) fn trim_to(&self, keep_bytes: usize) {
        lock(&self.state).release_passed(keep_bytes as u64);
    }

    /// A `hipMemPoolAttr` as 64 bits; the first three are ints.
    pub(crate) fn attribute(&self, attribute: i32) -> HipResult<u64> {
        let state = lock(&self.state);
        Ok(match attribute {
            1..=3 => state.reuse[attribute as usize - 1] as u64,
            4 => state.release_threshold,
            5 => state.reserved_bytes as u64,
            6 => state.reserved_high_bytes as u64,
            7 => state.used_bytes as u64,
            8 => state.used_high_bytes as u64,
            _ => return Err(HipError::INVALID_VALUE),
        })
    }

    /// Sets a `hipMemPoolAttr`; high-water marks can only be reset to zero.
    pub(crate) fn set_attribute(&self, attribute: i32, value: u64) -> HipResult {
        let mut state = lock(&self.state);
        match (attribute, value) {
            (1..=3, _) => state.reuse[attribute as usize - 1] = value as i32,
            (4, _) => state.release_threshold = value,
            (6, 0) => state.reserved_high_bytes = state.reserved_bytes,
            (8, 0) => state.used_high_bytes = state.used_bytes,
            _ => return Err(HipError::INVALID_VALUE),
        }
        Ok(())
    }

    /// `hipMemPoolSetAccess`.
    pub(crate) fn set_access(&self, descriptors: &[MemAccessDesc]) -> HipResult {
        for descriptor in descriptors {
            let device = device_by_ordinal(descriptor.location.id)?.index;
            let own_lost = device == self.device && descriptor.flags == 0;
            if descriptor.location.kind != LOCATION_DEVICE || !matches!(descriptor.flags, 0 | 1 | 3) || own_lost {
                return Err(HipError::INVALID_VALUE);
            }
            lock(&self.state).access.insert(device, descriptor.flags);
        }
        Ok(())
    }

    /// `hipMemPoolGetAccess`: `hipMemAccessFlags`.
    pub(crate) fn access(&self, location: &MemLocation) -> HipResult<u32> {
        let device = device_by_ordinal(location.id)?.index;
        if location.kind != LOCATION_DEVICE {
            return Err(HipError::INVALID_VALUE);
        }
        let own = if device == self.device { 3 } else { 0 };
        Ok(lock(&self.state).access.get(&device).copied().unwrap_or(own))
    }
}
