//! Buffers between the program's threads and the writers, within a budget.
//!
//! Long contents are cut into chunks that are used again and again, since fresh memory costs a page fault for each 4 KiB.
//! A thread that gets no buffer because the budget is used up does the writers' work itself, so that memory stays
//! bounded and nobody waits.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Length of a chunk in bytes.
pub(crate) const CHUNK_BYTES: usize = 1 << 20;
/// Memory that buffers may take at one time, in bytes.
pub(crate) const BUDGET_BYTES: usize = 192 << 20;
/// Longest contents in bytes that are buffered; longer ones would take the budget from everybody else.
pub(crate) const LONGEST_BYTES: usize = BUDGET_BYTES / 3;
/// Contents up to this length have an allocation of just their own size.
const SMALL_BYTES: usize = 128 << 10;

/// Buffers, used and free.
#[derive(Debug)]
pub(crate) struct Pool {
    left_bytes: AtomicUsize,
    free: Mutex<Vec<Box<[u8]>>>,
}

/// A buffer; goes back to its pool when dropped.
#[derive(Debug)]
pub(crate) struct Buffer {
    pool: &'static Pool,
    chunks: Vec<Box<[u8]>>,
    len_bytes: usize,
    taken_bytes: usize,
}

impl Pool {
    pub(crate) fn new() -> Self {
        Pool { left_bytes: AtomicUsize::new(BUDGET_BYTES), free: Mutex::default() }
    }

    /// A buffer of `len_bytes`, or `None` where the budget does not allow it now.
    pub(crate) fn take(&'static self, len_bytes: usize) -> Option<Buffer> {
        if len_bytes > LONGEST_BYTES {
            return None;
        }
        let small = len_bytes <= SMALL_BYTES;
        let taken_bytes = if small { len_bytes } else { len_bytes.next_multiple_of(CHUNK_BYTES) };
        // Relaxed: the budget is a number; buffers themselves pass through the lock below or the allocator.
        self.left_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(taken_bytes))
            .ok()?;
        let mut chunks = Vec::new();
        if small {
            chunks.push(vec![0; len_bytes].into_boxed_slice());
        } else {
            let count = taken_bytes / CHUNK_BYTES;
            {
                let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
                let keep = free.len().saturating_sub(count);
                chunks.extend(free.drain(keep..));
            }
            chunks.resize_with(count, || vec![0; CHUNK_BYTES].into_boxed_slice());
        }
        Some(Buffer { pool: self, chunks, len_bytes, taken_bytes })
    }
}

impl Buffer {
    /// Length in bytes.
    pub(crate) fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// The contents in pieces.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let mut left = self.len_bytes;
        self.chunks.iter().map(move |chunk| {
            let len = chunk.len().min(left);
            left -= len;
            &chunk[..len]
        })
    }

    /// The pieces to be filled.
    pub(crate) fn pieces_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let mut left = self.len_bytes;
        self.chunks.iter_mut().map(move |chunk| {
            let len = chunk.len().min(left);
            left -= len;
            &mut chunk[..len]
        })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.len_bytes > SMALL_BYTES {
            let mut free = self.pool.free.lock().unwrap_or_else(PoisonError::into_inner);
            free.append(&mut self.chunks);
        }
        self.pool.left_bytes.fetch_add(self.taken_bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_bounds_what_is_out_at_one_time() {
        let pool: &'static Pool = Box::leak(Box::new(Pool::new()));
        assert!(pool.take(BUDGET_BYTES).is_none());
        let mut out = Vec::new();
        while let Some(buffer) = pool.take(LONGEST_BYTES) {
            out.push(buffer);
        }
        assert_eq!(out.len(), 3);
        assert!(pool.take(SMALL_BYTES).is_none());
        out.pop();
        let mut buffer = pool.take(3 * CHUNK_BYTES + 5).unwrap();
        assert_eq!(buffer.pieces().map(<[u8]>::len).collect::<Vec<_>>(), [CHUNK_BYTES, CHUNK_BYTES, CHUNK_BYTES, 5]);
        assert_eq!(buffer.pieces_mut().count(), 4);
        drop((buffer, out));
        assert_eq!(pool.left_bytes.load(Ordering::Relaxed), BUDGET_BYTES);
    }
}
