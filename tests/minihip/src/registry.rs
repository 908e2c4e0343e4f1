//! Handles: pointer-like values that stand for live objects.
//!
//! A value is looked up, never dereferenced, so a destroyed or invented handle is an error instead of a
//! crash. Values of destroyed objects are given out again, the last one first, as allocators of real
//! runtimes do: whoever takes a handle value for an identity is found out.

use crate::error::{HipError, HipResult};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Distance of two handle values in bytes.
const STRIDE_BYTES: usize = 64;
const CHUNK_SLOTS: usize = 1024;
const CHUNKS: usize = 1024;

/// The live objects of one kind.
pub(crate) struct Registry<T> {
    base: OnceLock<usize>,
    free: Mutex<FreeSlots>,
    chunks: [OnceLock<Box<[Slot<T>]>>; CHUNKS],
}

type Slot<T> = Mutex<Option<Arc<T>>>;

struct FreeSlots {
    /// Slots given back, reused last in, first out.
    returned: Vec<usize>,
    /// First slot never used.
    next: usize,
}

impl<T> fmt::Debug for Registry<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("base", &self.base.get()).finish_non_exhaustive()
    }
}

impl<T> Registry<T> {
    pub(crate) const fn new() -> Self {
        Self {
            base: OnceLock::new(),
            free: Mutex::new(FreeSlots { returned: Vec::new(), next: 0 }),
            chunks: [const { OnceLock::new() }; CHUNKS],
        }
    }

    /// Reserved address space that no other object can occupy, so that a handle value is unlike any pointer.
    fn base(&self) -> usize {
        *self.base.get_or_init(|| {
            let len_bytes = STRIDE_BYTES * CHUNK_SLOTS * CHUNKS;
            // SAFETY: an anonymous mapping at an address of the kernel's choice touches no existing memory; it is never accessed.
            let address = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    len_bytes,
                    libc::PROT_NONE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                    -1,
                    0,
                )
            };
            // Without the reservation the values are merely unlikely to coincide with pointers.
            if address == libc::MAP_FAILED { 0x5eed_0000_0000 } else { address as usize }
        })
    }

    /// Registers what `make` builds from its new handle and returns the handle.
    pub(crate) fn insert(&self, make: impl FnOnce(usize) -> Arc<T>) -> HipResult<usize> {
        let index = {
            let mut free = lock(&self.free);
            match free.returned.pop() {
                Some(index) => index,
                None if free.next == CHUNK_SLOTS * CHUNKS => return Err(HipError::OUT_OF_MEMORY),
                None => {
                    free.next += 1;
                    free.next - 1
                }
            }
        };
        let chunk =
            self.chunks[index / CHUNK_SLOTS].get_or_init(|| (0..CHUNK_SLOTS).map(|_| Mutex::new(None)).collect());
        let handle = self.base() + index * STRIDE_BYTES;
        let object = make(handle);
        *lock(&chunk[index % CHUNK_SLOTS]) = Some(object);
        Ok(handle)
    }

    fn slot(&self, handle: usize) -> Option<(usize, &Slot<T>)> {
        let offset = handle.checked_sub(*self.base.get()?)?;
        if !offset.is_multiple_of(STRIDE_BYTES) {
            return None;
        }
        let index = offset / STRIDE_BYTES;
        Some((index, self.chunks.get(index / CHUNK_SLOTS)?.get()?.get(index % CHUNK_SLOTS)?))
    }

    /// The object `handle` stands for, or `None` if it stands for none.
    pub(crate) fn get(&self, handle: usize) -> Option<Arc<T>> {
        lock(self.slot(handle)?.1).clone()
    }

    /// All live objects.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        let chunks = self.chunks.iter().map_while(OnceLock::get);
        chunks.flat_map(|chunk| chunk.iter().filter_map(|slot| lock(slot).clone())).collect()
    }

    /// Ends the handle's life and returns its object.
    pub(crate) fn remove(&self, handle: usize) -> Option<Arc<T>> {
        let (index, slot) = self.slot(handle)?;
        let object = lock(slot).take()?;
        lock(&self.free).returned.push(index);
        Some(object)
    }
}

/// Locks; a panic in another holder does not matter, every update here is a single assignment.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_reused_last_in_first_out_and_dead_ones_are_refused() {
        static REGISTRY: Registry<u32> = Registry::new();
        let handles: Vec<usize> = (0..3).map(|i| REGISTRY.insert(|_| Arc::new(i)).expect("room")).collect();
        assert_eq!(REGISTRY.get(handles[1]).as_deref(), Some(&1));
        REGISTRY.remove(handles[0]);
        REGISTRY.remove(handles[2]);
        assert_eq!(REGISTRY.all(), [Arc::new(1)]);
        assert!(REGISTRY.get(handles[2]).is_none());
        assert!(REGISTRY.remove(handles[2]).is_none(), "a second destroy is refused");
        assert_eq!(REGISTRY.insert(|_| Arc::new(7)), Ok(handles[2]));
        assert_eq!(REGISTRY.insert(|_| Arc::new(8)), Ok(handles[0]));
        for garbage in [0, 1, 2, handles[0] + 1, handles[0] - 8, usize::MAX, handles[0] + (1 << 40)] {
            assert!(REGISTRY.get(garbage).is_none(), "{garbage:#x}");
        }
    }
}
