//! Copying long contents by several threads: the one of the program that needs the copy, and writers that have nothing to do.
//!
//! One core copies at a few GB/s, several times slower than memory can. A thread of the program waits for the copy anyway.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::memory::Trust;
use super::pool::Buffer;
use super::region::Region;

/// A copy from the program's memory into a buffer, in pieces that any thread may make.
#[derive(Debug)]
pub(super) struct SharedCopy {
    region: Region,
    trust: Trust,
    /// Where each piece goes: offset in the packed contents, address, length.
    pieces: Vec<(u64, *mut u8, usize)>,
    next: AtomicUsize,
    done: AtomicUsize,
    failed: AtomicBool,
}

// SAFETY: each piece is written by the one thread that claimed it, and the buffer is not touched before `wait` has returned.
unsafe impl Send for SharedCopy {}
// SAFETY: as above.
unsafe impl Sync for SharedCopy {}

impl SharedCopy {
    /// A copy of a region into a buffer of its length.
    ///
    /// # Safety
    /// As [`Region::read`], until [`Self::wait`] has returned; the buffer lives, and is not used, until then.
    pub(super) unsafe fn new(region: Region, trust: Trust, buffer: &mut Buffer) -> Self {
        let mut at = 0;
        let pieces = buffer.pieces_mut().map(|piece| {
            let place = (at, piece.as_mut_ptr(), piece.len());
            at += piece.len() as u64;
            place
        });
        SharedCopy {
            region,
            trust,
            pieces: pieces.collect(),
            next: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
        }
    }

    /// Whether pieces are left that nobody has claimed.
    pub(super) fn has_work(&self) -> bool {
        // Relaxed: a hint; the claim itself decides.
        self.next.load(Ordering::Relaxed) < self.pieces.len()
    }

    /// Copies pieces until none is left to be claimed.
    pub(super) fn help(&self) {
        // Relaxed: the claim only has to be unique; the pieces were there before the copy was shared, through a lock.
        while let Some(&(skip, to, len)) = self.pieces.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            // SAFETY: the piece is this thread's alone by its claim, and writable by the contract of `new`.
            let to = unsafe { std::slice::from_raw_parts_mut(to, len) };
            // SAFETY: by the contract of `new`; the piece ends inside the region.
            if !unsafe { self.region.read(skip, to, self.trust) } {
                self.failed.store(true, Ordering::Relaxed);
            }
            // Release: pairs with the acquire in `wait`, so that the piece, or its failure, is seen.
            self.done.fetch_add(1, Ordering::Release);
        }
    }

    /// Waits for the pieces that others copy; says whether all could be read.
    pub(super) fn wait(&self) -> bool {
        let mut spins = 0u32;
        // Acquire: as in `help`.
        while self.done.load(Ordering::Acquire) < self.pieces.len() {
            spins += 1;
            if spins < 100 { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
        !self.failed.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::super::pool::{CHUNK_BYTES, Pool};
    use super::*;

    #[test]
    fn several_threads_copy_all_of_a_region_once() {
        let pool: &'static Pool = Box::leak(Box::new(Pool::new()));
        let from: Vec<u8> =
            (0..9 * CHUNK_BYTES as u32 + 77).map(|index| (index.wrapping_mul(index) >> 5) as u8).collect();
        let mut buffer = pool.take(from.len()).unwrap();
        let region = Region::range(from.as_ptr() as u64, from.len() as u64);
        // SAFETY: the region is the vector, and the buffer is looked at after `wait`.
        let copy = unsafe { SharedCopy::new(region, Trust::Readable, &mut buffer) };
        std::thread::scope(|scope| {
            (0..3).for_each(|_| drop(scope.spawn(|| copy.help())));
            copy.help();
            assert!(copy.wait());
        });
        assert!(!copy.has_work());
        assert!(buffer.pieces().flatten().eq(&from));
        // SAFETY: doubtful memory need not be readable.
        let copy = unsafe { SharedCopy::new(Region::range(16, from.len() as u64), Trust::Doubtful, &mut buffer) };
        copy.help();
        assert!(!copy.wait());
    }
}
