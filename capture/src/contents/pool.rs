//! Buffers between the program's threads and the writers, within a budget.
//!
//! Contents are cut into chunks that are used again and again, since fresh memory costs a page fault for each 4 KiB; the
//! longest chunks are aligned so that the kernel can give large pages. A thread that gets no buffer because the budget is
//! used up does the writers' work itself, so that memory stays bounded and nobody waits.

use std::alloc::Layout;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Length of the longest chunk in bytes, which is also its alignment: that of a large page.
pub(crate) const CHUNK_BYTES: usize = 2 << 20;
/// Memory that chunks may take, in use and free, in bytes.
pub(crate) const BUDGET_BYTES: usize = 192 << 20;
/// Longest contents in bytes that are buffered; longer ones would take the budget from everybody else.
pub(crate) const LONGEST_BYTES: usize = BUDGET_BYTES / 3;
/// Length of the shortest chunk in bytes.
const SHORTEST_BYTES: usize = 256;
/// Lengths of chunks: powers of two from the shortest to the longest.
const CLASSES: usize = (CHUNK_BYTES / SHORTEST_BYTES).trailing_zeros() as usize + 1;

/// Buffers, used and free.
#[derive(Debug)]
pub(crate) struct Pool {
    state: Mutex<PoolState>,
}

#[derive(Debug)]
struct PoolState {
    /// What is left of the budget, in bytes.
    left_bytes: usize,
    /// Free chunks by class; those used last are last, and taken first.
    free: [Vec<Chunk>; CLASSES],
}

/// A buffer; goes back to its pool when dropped.
#[derive(Debug)]
pub(crate) struct Buffer {
    pool: &'static Pool,
    chunks: Vec<Chunk>,
    class: usize,
    len_bytes: usize,
}

/// A piece of memory, always initialised.
#[derive(Debug)]
struct Chunk {
    memory: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory is this value's own.
unsafe impl Send for Chunk {}
// SAFETY: as above; shared references only read it.
unsafe impl Sync for Chunk {}

impl Chunk {
    /// A chunk of a class; `None` where the system has no memory.
    fn new(class: usize) -> Option<Self> {
        let len_bytes = SHORTEST_BYTES << class;
        let align = if len_bytes == CHUNK_BYTES { CHUNK_BYTES } else { 64 };
        let layout = Layout::from_size_align(len_bytes, align).ok()?;
        // SAFETY: the length is not zero.
        let memory = NonNull::new(unsafe { std::alloc::alloc(layout) })?;
        if len_bytes == CHUNK_BYTES {
            // SAFETY: the range is this allocation; the advice changes no contents, and may be refused.
            unsafe { libc::madvise(memory.as_ptr().cast(), len_bytes, libc::MADV_HUGEPAGE) };
        }
        // SAFETY: the memory was allocated with this length.
        unsafe { memory.write_bytes(0, len_bytes) };
        Some(Chunk { memory, layout })
    }
}

impl Deref for Chunk {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the memory is of this length, initialised, and lives as long as the value.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.layout.size()) }
    }
}

impl DerefMut for Chunk {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the value is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.layout.size()) }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { std::alloc::dealloc(self.memory.as_ptr(), self.layout) };
    }
}

impl Pool {
    pub(crate) fn new() -> Self {
        let free = std::array::from_fn(|_| Vec::new());
        Pool { state: Mutex::new(PoolState { left_bytes: BUDGET_BYTES, free }) }
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer of `len_bytes`, or `None` where the budget does not allow it now.
    pub(crate) fn take(&'static self, len_bytes: usize) -> Option<Buffer> {
        if len_bytes > LONGEST_BYTES {
            return None;
        }
        let class = class_of(len_bytes);
        let chunk_bytes = SHORTEST_BYTES << class;
        let count = len_bytes.div_ceil(chunk_bytes);
        let mut chunks = Vec::with_capacity(count);
        let (missing, evicted) = {
            let mut state = self.state();
            let keep = state.free[class].len().saturating_sub(count);
            chunks.extend(state.free[class].drain(keep..));
            let missing = count - chunks.len();
            match state.spend(missing * chunk_bytes) {
                Some(evicted) => (missing, evicted),
                None => {
                    state.free[class].append(&mut chunks);
                    return None;
                }
            }
        };
        drop(evicted);
        for made in 0..missing {
            match Chunk::new(class) {
                Some(chunk) => chunks.push(chunk),
                None => {
                    let mut state = self.state();
                    state.left_bytes += (missing - made) * chunk_bytes;
                    state.free[class].append(&mut chunks);
                    return None;
                }
            }
        }
        Some(Buffer { pool: self, chunks, class, len_bytes })
    }
}

impl PoolState {
    /// Takes bytes off the budget, giving up free chunks where that is needed: those are returned, to be freed without the
    /// lock. `None`: there is no room, and nothing has changed.
    fn spend(&mut self, bytes: usize) -> Option<Vec<Chunk>> {
        let mut evicted = Vec::new();
        if self.left_bytes < bytes {
            let spare: usize =
                self.free.iter().enumerate().map(|(class, free)| free.len() * (SHORTEST_BYTES << class)).sum();
            if self.left_bytes + spare < bytes {
                return None;
            }
            // The longest first: few of them make room.
            for free in self.free.iter_mut().rev() {
                while self.left_bytes < bytes
                    && let Some(chunk) = free.pop()
                {
                    self.left_bytes += chunk.len();
                    evicted.push(chunk);
                }
            }
        }
        self.left_bytes -= bytes;
        Some(evicted)
    }
}

/// Class of the chunks that contents of a length are cut into.
fn class_of(len_bytes: usize) -> usize {
    let chunk_bytes = len_bytes.clamp(SHORTEST_BYTES, CHUNK_BYTES).next_power_of_two();
    (chunk_bytes / SHORTEST_BYTES).trailing_zeros() as usize
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
        self.pool.state().free[self.class].append(&mut self.chunks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> &'static Pool {
        Box::leak(Box::new(Pool::new()))
    }

    #[test]
    fn the_budget_bounds_what_is_out_at_one_time() {
        let pool = pool();
        assert!(pool.take(BUDGET_BYTES).is_none());
        let mut out = Vec::new();
        while let Some(buffer) = pool.take(LONGEST_BYTES) {
            out.push(buffer);
        }
        assert_eq!(out.len(), 3);
        assert!(pool.take(1).is_none());
        out.pop();
        let mut buffer = pool.take(3 * CHUNK_BYTES + 5).unwrap();
        assert_eq!(buffer.pieces().map(<[u8]>::len).collect::<Vec<_>>(), [CHUNK_BYTES, CHUNK_BYTES, CHUNK_BYTES, 5]);
        assert_eq!(buffer.pieces_mut().count(), 4);
        buffer.pieces_mut().for_each(|piece| piece.fill(7));
        assert!(buffer.pieces().flatten().all(|&byte| byte == 7));
    }

    #[test]
    fn the_budget_bounds_free_chunks_of_all_lengths_too() {
        let pool = pool();
        // More of each length than the budget has room for, one length after the other.
        for len_bytes in [1 << 10, 64 << 10, CHUNK_BYTES, 3 << 10, 1 << 20] {
            let mut out = Vec::new();
            while let Some(buffer) = pool.take(len_bytes) {
                out.push(buffer);
            }
            assert_eq!(out.len(), BUDGET_BYTES / len_bytes.next_power_of_two(), "of {len_bytes} bytes");
            drop(out);
            let state = pool.state();
            let free: usize = state.free.iter().flatten().map(|chunk| chunk.len()).sum();
            assert_eq!(free + state.left_bytes, BUDGET_BYTES);
        }
    }

    #[test]
    fn contents_get_a_chunk_little_longer_than_they_are() {
        for (len_bytes, chunk_bytes) in
            [(0, 256), (1, 256), (256, 256), (257, 512), (1 << 20, 1 << 20), (3 << 20, CHUNK_BYTES)]
        {
            assert_eq!(SHORTEST_BYTES << class_of(len_bytes), chunk_bytes, "for {len_bytes}");
        }
        assert_eq!(SHORTEST_BYTES << (CLASSES - 1), CHUNK_BYTES);
        let empty = pool().take(0).unwrap();
        assert_eq!((empty.len_bytes(), empty.pieces().count()), (0, 0));
    }
}
