//! Memory for when the process has none left.
//!
//! A Rust program that is given no memory ends itself, and the recorder must not end the program it records, which may well
//! go on with less. So what the recorder asks for comes from a reserve then, and the recording ends: what is under way needs
//! little more, and the program's further calls pass.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Enough for what threads have under way when the recording ends, buffers for contents aside: they are asked for with care.
/// Pages of it that are never used are never resident.
const RESERVE_BYTES: usize = 4 << 20;

#[repr(align(4096))]
struct Reserve(UnsafeCell<[u8; RESERVE_BYTES]>);

// SAFETY: each part is given out once, to one owner; what is given back is not given out again.
unsafe impl Sync for Reserve {}

static RESERVE: Reserve = Reserve(UnsafeCell::new([0; RESERVE_BYTES]));
/// Bytes of the reserve that were given out.
static USED: AtomicUsize = AtomicUsize::new(0);
static RAN_OUT: AtomicBool = AtomicBool::new(false);

/// The allocator of the library.
pub(crate) struct WithReserve;

#[global_allocator]
static ALLOCATOR: WithReserve = WithReserve;

/// Whether the process had no memory left since this was asked last.
pub(crate) fn take_ran_out() -> bool {
    // Relaxed: says nothing about other memory.
    RAN_OUT.swap(false, Ordering::Relaxed)
}

/// A part of the reserve; null where too little is left.
#[cold]
fn from_reserve(layout: Layout) -> *mut u8 {
    // Relaxed: see `take_ran_out`.
    if !RAN_OUT.swap(true, Ordering::Relaxed) {
        crate::process::memory_ran_out();
    }
    let Some(room) = layout.size().checked_add(layout.align()).filter(|&room| room <= RESERVE_BYTES) else {
        return std::ptr::null_mut();
    };
    // Relaxed: the count alone decides whose a part is; nothing is published by it.
    let taken = USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
        used.checked_add(room).filter(|&used| used <= RESERVE_BYTES)
    });
    let Ok(at) = taken else { return std::ptr::null_mut() };
    let start = RESERVE.0.get() as usize + at;
    // SAFETY: up to `align` bytes further, within the part that was taken.
    unsafe { RESERVE.0.get().cast::<u8>().add(at + (start.next_multiple_of(layout.align()) - start)) }
}

fn is_of_reserve(place: *mut u8) -> bool {
    let start = RESERVE.0.get() as usize;
    (start..start + RESERVE_BYTES).contains(&(place as usize))
}

// SAFETY: what the system gives is passed on with the layout it was asked for; parts of the reserve are large enough, aligned, and
// given out once.
unsafe impl GlobalAlloc for WithReserve {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's obligations are the same.
        let place = unsafe { System.alloc(layout) };
        if place.is_null() { from_reserve(layout) } else { place }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's obligations are the same. The reserve is zeros where it was never given out.
        let place = unsafe { System.alloc_zeroed(layout) };
        if place.is_null() { from_reserve(layout) } else { place }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        if !is_of_reserve(place) {
            // SAFETY: it came from the system, with this layout.
            unsafe { System.dealloc(place, layout) }
        }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !is_of_reserve(place) {
            // SAFETY: it came from the system, with this layout.
            let moved = unsafe { System.realloc(place, layout, size) };
            if !moved.is_null() {
                return moved;
            }
        }
        let Ok(wanted) = Layout::from_size_align(size, layout.align()) else { return std::ptr::null_mut() };
        // SAFETY: the caller vouches for a size that is not 0.
        let moved = unsafe { self.alloc(wanted) };
        if !moved.is_null() {
            // SAFETY: both places are at least as long as what is copied, and one is new.
            unsafe {
                std::ptr::copy_nonoverlapping(place, moved, layout.size().min(size));
                self.dealloc(place, layout);
            }
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_aligned_apart_and_limited() {
        let layout = Layout::from_size_align(100, 64).unwrap();
        let (first, second) = (from_reserve(layout), from_reserve(layout));
        assert!(is_of_reserve(first) && is_of_reserve(second));
        assert_eq!((first as usize % 64, second as usize % 64), (0, 0));
        assert!(second as usize >= first as usize + 100);
        assert!(take_ran_out() && !take_ran_out());
        assert!(from_reserve(Layout::from_size_align(RESERVE_BYTES, 8).unwrap()).is_null());
        // SAFETY: a place of the reserve, with its layout.
        let grown = unsafe {
            first.write_bytes(5, 100);
            ALLOCATOR.realloc(first, layout, 200)
        };
        assert!(!is_of_reserve(grown));
        // SAFETY: as long as was asked for; then given back.
        unsafe {
            assert_eq!(std::slice::from_raw_parts(grown, 100), [5; 100]);
            ALLOCATOR.dealloc(grown, Layout::from_size_align(200, 64).unwrap());
        }
    }
}
