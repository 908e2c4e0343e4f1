//! A range of real memory that one device's (or the pinned host) allocations come out of.
//!
//! Small sizes are carved out of 2 MiB chunks at 256-byte alignment, so that neighbouring allocations share
//! pages; large ones are page-aligned. A freed block is the first to be given out again for its size, contents
//! and all, as device allocators do. The range itself starts at a different address in every run.

use crate::error::{HipError, HipResult};
use crate::registry::lock;
use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

/// Alignment of every allocation in bytes, HIP's minimum.
pub(crate) const ALIGN_BYTES: usize = 256;
/// Sizes up to this many bytes share chunks.
const SMALL_BYTES: usize = 64 << 10;
const CHUNK_BYTES: usize = 2 << 20;
const PAGE_BYTES: usize = 4096;

/// One address range and its free blocks.
#[derive(Debug)]
pub(crate) struct Heap {
    base: usize,
    len_bytes: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Free blocks by size, the one freed last at the end.
    bins: HashMap<usize, Vec<usize>>,
    /// Start of the part never used.
    bump: usize,
    /// The unused rest of the current chunk of small blocks.
    chunk: std::ops::Range<usize>,
    used_bytes: usize,
}

impl Heap {
    /// Reserves `len_bytes` of memory, or less if the machine refuses; pages are only taken when touched.
    pub(crate) fn reserve(len_bytes: usize) -> Self {
        Self::reserve_as(len_bytes, libc::MAP_PRIVATE)
    }

    /// As [`Self::reserve`], of memory that can be mapped a second time.
    pub(crate) fn reserve_shared(len_bytes: usize) -> Self {
        Self::reserve_as(len_bytes, libc::MAP_SHARED)
    }

    fn reserve_as(len_bytes: usize, sharing: libc::c_int) -> Self {
        let mut len_bytes = len_bytes.next_multiple_of(CHUNK_BYTES);
        let base = loop {
            // SAFETY: a fresh anonymous mapping; the address is a hint, the kernel takes another if it is not free.
            let address = unsafe {
                libc::mmap(
                    far_away() as *mut libc::c_void,
                    len_bytes + CHUNK_BYTES,
                    libc::PROT_READ | libc::PROT_WRITE,
                    sharing | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                    -1,
                    0,
                )
            };
            if address != libc::MAP_FAILED {
                break address as usize;
            }
            len_bytes /= 2;
            if len_bytes < CHUNK_BYTES {
                break 0;
            }
        };
        if base == 0 {
            len_bytes = 0;
        }
        // The spare chunk leaves room for a random start, on top of the kernel's own randomisation.
        let start = base + (random() as usize % CHUNK_BYTES) / PAGE_BYTES * PAGE_BYTES;
        Self {
            base: start,
            len_bytes,
            state: Mutex::new(State { bins: HashMap::new(), bump: start, chunk: 0..0, used_bytes: 0 }),
        }
    }

    /// Whether `address` lies in this heap's range.
    pub(crate) fn contains(&self, address: usize) -> bool {
        address.wrapping_sub(self.base) < self.len_bytes
    }

    /// Size of the whole range in bytes.
    pub(crate) fn total_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Bytes not allocated.
    pub(crate) fn free_bytes(&self) -> usize {
        self.len_bytes - lock(&self.state).used_bytes
    }

    /// The block size a request is rounded up to, in bytes.
    pub(crate) fn block_bytes(size: usize) -> usize {
        let size = size.max(1);
        if size <= SMALL_BYTES {
            size.next_multiple_of(ALIGN_BYTES)
        } else {
            size.saturating_add(PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES
        }
    }

    /// Allocates a block for `size` bytes. Fails with `hipErrorOutOfMemory`.
    pub(crate) fn allocate(&self, size: usize) -> HipResult<usize> {
        let block = Self::block_bytes(size);
        let mut state = lock(&self.state);
        if block > self.len_bytes - state.used_bytes {
            return Err(HipError::OUT_OF_MEMORY);
        }
        let end = self.base + self.len_bytes;
        let address = state
            .take_exact(block)
            .or_else(|| state.carve(block, end))
            .or_else(|| state.split(block))
            .or_else(|| {
                state.coalesce();
                state.take_exact(block).or_else(|| state.split(block))
            })
            .ok_or(HipError::OUT_OF_MEMORY)?;
        state.used_bytes += block;
        Ok(address)
    }

    /// Takes back the block of `size` bytes at `address`.
    pub(crate) fn release(&self, address: usize, size: usize) {
        let block = Self::block_bytes(size);
        let mut state = lock(&self.state);
        state.used_bytes -= block;
        state.bins.entry(block).or_default().push(address);
    }
}

impl State {
    fn take_exact(&mut self, block: usize) -> Option<usize> {
        self.bins.get_mut(&block)?.pop()
    }

    fn carve(&mut self, block: usize, end: usize) -> Option<usize> {
        if block > SMALL_BYTES {
            return self.bump(block, end);
        }
        if self.chunk.len() < block {
            let start = self.bump(CHUNK_BYTES, end)?;
            let rest = std::mem::replace(&mut self.chunk, start..start + CHUNK_BYTES);
            if !rest.is_empty() {
                self.bins.entry(rest.len()).or_default().push(rest.start);
            }
        }
        let address = self.chunk.start;
        self.chunk.start += block;
        Some(address)
    }

    fn bump(&mut self, bytes: usize, end: usize) -> Option<usize> {
        let address = self.bump;
        self.bump = address.checked_add(bytes).filter(|next| *next <= end)?;
        Some(address)
    }

    /// Cuts the block out of the smallest free one that is large enough and suitably aligned.
    fn split(&mut self, block: usize) -> Option<usize> {
        let align = if block > SMALL_BYTES { PAGE_BYTES } else { ALIGN_BYTES };
        let fits =
            |size: usize, list: &Vec<usize>| size > block && list.last().is_some_and(|address| address % align == 0);
        let size = *self.bins.iter().filter(|(size, list)| fits(**size, list)).map(|(size, _)| size).min()?;
        let address = self.take_exact(size)?;
        self.bins.entry(size - block).or_default().push(address + block);
        Some(address)
    }

    /// Joins adjacent free blocks.
    fn coalesce(&mut self) {
        let blocks: BTreeMap<usize, usize> =
            self.bins.drain().flat_map(|(size, list)| list.into_iter().map(move |address| (address, size))).collect();
        let mut joined: Vec<(usize, usize)> = Vec::new();
        for (address, size) in blocks {
            match joined.last_mut() {
                Some(last) if last.0 + last.1 == address => last.1 += size,
                _ => joined.push((address, size)),
            }
        }
        for (address, size) in joined {
            self.bins.entry(size).or_default().push(address);
        }
    }
}

/// A random address in the wide middle of the address space: device memory of two processes is unlikely to overlap, so
/// that one can map what another had at the same addresses.
fn far_away() -> usize {
    const LOWEST: usize = 0x1000_0000_0000;
    const SPREAD: usize = 0x6000_0000_0000;
    LOWEST + (random() as usize % SPREAD) / CHUNK_BYTES * CHUNK_BYTES
}

/// 64 random bits, from the kernel.
pub(crate) fn random() -> u64 {
    let mut value = 0_u64;
    // SAFETY: the buffer is `value`, 8 writable bytes. A failure leaves it 0: no randomisation, no error.
    unsafe { libc::getrandom((&raw mut value).cast(), size_of::<u64>(), libc::GRND_NONBLOCK) };
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_blocks_come_back_last_in_first_out() {
        let heap = Heap::reserve(16 << 20);
        let a = heap.allocate(1000).expect("room");
        let b = heap.allocate(1000).expect("room");
        assert_eq!(b - a, 1024, "small blocks are neighbours at 256-byte granularity");
        heap.release(a, 1000);
        heap.release(b, 1000);
        assert_eq!(heap.allocate(900), Ok(b));
        assert_eq!(heap.allocate(1024), Ok(a));
    }

    #[test]
    fn blocks_never_overlap_and_space_comes_back() {
        let heap = Heap::reserve(8 << 20);
        let mut live: Vec<(usize, usize)> = Vec::new();
        let mut seed = 7_u64;
        for step in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let size = 1 + (seed >> 33) as usize % if step % 7 == 0 { 1 << 20 } else { 5000 };
            if seed & 1 == 0
                && let Ok(address) = heap.allocate(size)
            {
                assert!(live.iter().all(|(other, len)| address + size <= *other || other + len <= address));
                assert!(heap.contains(address) && heap.contains(address + size - 1));
                live.push((address, size));
            } else if !live.is_empty() {
                let (address, size) = live.swap_remove((seed >> 17) as usize % live.len());
                heap.release(address, size);
            }
        }
        for (address, size) in live.drain(..) {
            heap.release(address, size);
        }
        assert_eq!(heap.free_bytes(), heap.total_bytes());
        heap.allocate(4 << 20).expect("free neighbours are joined");
        assert_eq!(heap.allocate(64 << 20), Err(HipError::OUT_OF_MEMORY));
    }
}
