//! Which streams and events are alive and on which device, and a cache per thread of what launches look up.
//!
//! The driver does not check handles, HIP does. A look-up on the path of every launch must not write memory that other
//! threads read, so each thread caches what it found; whatever ends a handle's life advances [`GENERATION`], which
//! makes every cached entry stale.

use super::context::{current_index, with_device};
use crate::error::{HipError, HipResult};
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

/// Number of handles and registered functions that ended so far.
static GENERATION: AtomicU64 = AtomicU64::new(1);

/// Makes what every thread has cached stale.
pub(super) fn advance_generation() {
    // Release: a thread that was told that a handle has ended, after this call, sees the new generation (its own
    // synchronisation with this thread orders it).
    GENERATION.fetch_add(1, Ordering::Release);
}

/// Slots of a thread's cache, a power of two.
const SLOTS: usize = 256;

#[derive(Clone, Copy)]
struct Cached {
    key: usize,
    tag: usize,
    generation: u64,
    value: usize,
}

const EMPTY: Cached = Cached { key: 0, tag: 0, generation: 0, value: 0 };

thread_local! {
    static CACHE: [Cell<Cached>; SLOTS] = const { [const { Cell::new(EMPTY) }; SLOTS] };
}

fn slot(key: usize, tag: usize) -> usize {
    // Addresses are multiples of 8 or more; the multiplication spreads their middle bits to the top.
    (((key >> 3).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48) ^ tag.wrapping_mul(31)) & (SLOTS - 1)
}

/// What `key` of kind `tag` stands for: from the thread's cache, else from `find`.
#[inline]
pub(super) fn cached(key: usize, tag: usize, find: impl FnOnce() -> HipResult<usize>) -> HipResult<usize> {
    // Acquire: pairs with the Release in `advance_generation`. Read before `find`, so that an end in between leaves a
    // stale entry and not a wrong one.
    let generation = GENERATION.load(Ordering::Acquire);
    CACHE.with(|cache| {
        let cell = &cache[slot(key, tag)];
        let entry = cell.get();
        if entry.key == key && entry.tag == tag && entry.generation == generation {
            return Ok(entry.value);
        }
        let value = find()?;
        cell.set(Cached { key, tag, generation, value });
        Ok(value)
    })
}

/// Live handles of one kind with the device each belongs to.
#[derive(Debug)]
pub(super) struct Handles {
    tag: usize,
    live: RwLock<Option<HashMap<usize, usize>>>,
}

/// Live streams.
pub(super) static STREAMS: Handles = Handles::new(1);
/// Live events.
pub(super) static EVENTS: Handles = Handles::new(2);
/// Cache tags from here on are [`crate::cuda::fat_binary`]'s: one per device.
pub(super) const FIRST_FREE_TAG: usize = 3;

impl Handles {
    const fn new(tag: usize) -> Self {
        Self { tag, live: RwLock::new(None) }
    }

    /// Adds a handle of device `device`.
    pub(super) fn add(&self, handle: usize, device: usize) {
        self.live.write().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().insert(handle, device);
    }

    /// Ends a handle's life; the caller then destroys it. Fails with `hipErrorInvalidHandle`.
    pub(super) fn remove(&self, handle: usize) -> HipResult {
        let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
        let removed = live.as_mut().and_then(|live| live.remove(&handle));
        drop(live);
        advance_generation();
        removed.map(drop).ok_or(HipError::INVALID_HANDLE)
    }

    /// Ends the life of all handles of a device that is reset.
    pub(super) fn forget_device(&self, device: usize) {
        if let Some(live) = self.live.write().unwrap_or_else(PoisonError::into_inner).as_mut() {
            live.retain(|_, owner| *owner != device);
        }
        advance_generation();
    }

    /// The device of a live handle. Fails with `hipErrorInvalidHandle`.
    #[inline]
    pub(super) fn device(&self, handle: usize) -> HipResult<usize> {
        cached(handle, self.tag, || {
            let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
            live.as_ref().and_then(|live| live.get(&handle).copied()).ok_or(HipError::INVALID_HANDLE)
        })
    }
}

/// `hipStreamLegacy` and `hipStreamPerThread`: the driver's numbers are the same.
const PER_THREAD: usize = 2;

/// A stream a call names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    pub(super) handle: usize,
    /// Index of its device; the current one for the default streams.
    pub(super) device: usize,
}

/// The stream a handle stands for. Fails with `hipErrorInvalidHandle`.
#[inline]
pub(super) fn stream(handle: usize) -> HipResult<Stream> {
    let device = if handle <= PER_THREAD { current_index() } else { STREAMS.device(handle)? };
    Ok(Stream { handle, device })
}

/// The handle a `_spt` spelling means.
pub(super) fn spt(handle: usize) -> usize {
    if handle == 0 { PER_THREAD } else { handle }
}

/// Runs `body` with the stream's device current.
#[inline]
pub(super) fn on<R>(handle: usize, body: impl FnOnce(usize) -> HipResult<R>) -> HipResult<R> {
    let stream = stream(handle)?;
    with_device(stream.device, || body(stream.handle))
}

/// A live event's handle. Fails with `hipErrorInvalidHandle`.
#[inline]
pub(super) fn event(handle: usize) -> HipResult<usize> {
    EVENTS.device(handle).map(|_| handle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_known_from_its_making_to_its_end() {
        static HANDLES: Handles = Handles::new(77);
        assert_eq!(HANDLES.device(0x1000), Err(HipError::INVALID_HANDLE));
        HANDLES.add(0x1000, 3);
        assert_eq!(HANDLES.device(0x1000), Ok(3));
        assert_eq!(HANDLES.remove(0x1000), Ok(()));
        assert_eq!(HANDLES.device(0x1000), Err(HipError::INVALID_HANDLE), "the cached entry is stale");
        assert_eq!(HANDLES.remove(0x1000), Err(HipError::INVALID_HANDLE));
        HANDLES.add(0x1000, 1);
        assert_eq!(HANDLES.device(0x1000), Ok(1), "the same value again is a new handle");
    }

    #[test]
    fn colliding_keys_and_tags_do_not_answer_for_each_other() {
        for key in (8..80_000_usize).step_by(8) {
            for tag in [100, 101] {
                assert_eq!(cached(key, tag, || Ok(key * 2 + tag)), Ok(key * 2 + tag));
            }
        }
        assert_eq!(cached(8, 100, || Ok(116)), Ok(116));
        assert_eq!(spt(0), 2);
        assert_eq!(spt(1), 1);
    }
}
