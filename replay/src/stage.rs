//! Host memory that replay stands in for the program's: copy sources with their recorded contents, and places for
//! results.
//!
//! Memory the program had pinned is pinned here too (`hipHostMalloc`), memory it had not stays pageable, so that the
//! runtime takes the same path as it did for the program. Sources with the same contents share one place.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use hrr_format::archive::Archive;
use hrr_format::blob_store::BlobError;

use crate::choices::Synthetic;
use crate::instruction::Wait;
use crate::memory_node::MemoryNodes;
use crate::runtime::{Runtime, RuntimeError};

/// Alignment of every place, in bytes: what HIP gives its own allocations.
const ALIGN_BYTES: usize = 256;
/// Arena block size in bytes; larger places get blocks of their own.
const BLOCK_BYTES: usize = 16 << 20;

/// Whether memory is pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum HostKind {
    /// Page-locked, allocated by the runtime.
    Pinned,
    /// Ordinary memory.
    Pageable,
}

/// How packed contents lie in host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    /// Bytes from the address that the call is given to the first row.
    pub(crate) lead_bytes: u64,
    /// Bytes in a row.
    pub(crate) row_bytes: u64,
    /// Number of rows in a slice.
    pub(crate) rows: u64,
    /// Distance between row starts in bytes.
    pub(crate) pitch_bytes: u64,
    /// Number of slices.
    pub(crate) slices: u64,
    /// Distance between slice starts in bytes.
    pub(crate) slice_bytes: u64,
    /// Bytes behind the last row that the call might touch as well.
    pub(crate) tail_bytes: u64,
}

impl Shape {
    /// Contents without gaps.
    pub(crate) fn linear(len_bytes: u64) -> Self {
        Self::rows(len_bytes, 1, len_bytes)
    }

    /// Rows of `row_bytes`, `pitch_bytes` apart.
    pub(crate) fn rows(row_bytes: u64, rows: u64, pitch_bytes: u64) -> Self {
        Shape { lead_bytes: 0, row_bytes, rows, pitch_bytes, slices: 1, slice_bytes: 0, tail_bytes: 0 }
    }

    /// Bytes from the address that the call is given to the end of what it may touch, or `None` where that overflows.
    pub(crate) fn span_bytes(&self) -> Option<u64> {
        let around = self.lead_bytes.checked_add(self.tail_bytes)?;
        if self.rows == 0 || self.slices == 0 {
            return Some(around);
        }
        let rows = (self.rows - 1).checked_mul(self.pitch_bytes)?.checked_add(self.row_bytes)?;
        (self.slices - 1).checked_mul(self.slice_bytes)?.checked_add(rows)?.checked_add(around)
    }

    /// Bytes of contents, or `None` where that overflows.
    pub(crate) fn packed_bytes(&self) -> Option<u64> {
        self.row_bytes.checked_mul(self.rows)?.checked_mul(self.slices)
    }

    /// Offset from the address that the call is given of the 8 bytes at `packed_at` of the contents; `None` where they do not lie in
    /// one row.
    pub(crate) fn offset_of(&self, packed_at: u64) -> Option<u64> {
        let (row, column) = (packed_at.checked_div(self.row_bytes)?, packed_at % self.row_bytes);
        let (slice, row) = (row.checked_div(self.rows)?, row % self.rows);
        let fits = slice < self.slices && column + 8 <= self.row_bytes;
        fits.then(|| self.lead_bytes + slice * self.slice_bytes + row * self.pitch_bytes + column)
    }

    /// Offsets of the rows from the address that the call is given, in the order of the contents.
    fn row_offsets(self) -> impl Iterator<Item = usize> {
        // Rows of nothing may be very many.
        let slices = if self.row_bytes == 0 || self.rows == 0 { 0 } else { self.slices };
        (0..slices).flat_map(move |slice| {
            (0..self.rows).map(move |row| {
                // Within the span, which did not overflow when memory was made for it.
                (self.lead_bytes + slice * self.slice_bytes + row * self.pitch_bytes) as usize
            })
        })
    }

    /// The packed contents of memory of this shape.
    ///
    /// # Safety
    /// `base` is readable for [`Self::span_bytes`], and nothing writes there meanwhile.
    pub(crate) unsafe fn gather<'a>(&self, base: *const u8, buffer: &'a mut Vec<u8>) -> &'a [u8] {
        buffer.clear();
        for offset in self.row_offsets() {
            // SAFETY: the row ends within the span, which the caller vouches for.
            let row = unsafe { std::slice::from_raw_parts(base.add(offset), self.row_bytes as usize) };
            buffer.extend_from_slice(row);
        }
        buffer
    }

    /// Spreads packed contents over memory of this shape.
    ///
    /// # Safety
    /// `base` is writable for [`Self::span_bytes`], and nothing else uses the memory meanwhile.
    pub(crate) unsafe fn scatter(&self, packed: &[u8], base: *mut u8) {
        if self.row_bytes == 0 {
            return;
        }
        for (row, offset) in packed.chunks(self.row_bytes as usize).zip(self.row_offsets()) {
            // SAFETY: the row ends within the span, which the caller vouches for; `packed` is the archive's mapping or a
            // heap buffer, never the target.
            unsafe { std::ptr::copy_nonoverlapping(row.as_ptr(), base.add(offset), row.len()) };
        }
    }
}

/// Contents still to be put in their place.
#[derive(Debug)]
struct Job {
    contents: Contents,
    target: Address,
    shape: Shape,
}

/// Where a job's contents come from.
#[derive(Clone, Copy, Debug)]
enum Contents {
    /// A blob of the archive.
    Blob(u64),
    /// Zeros, or noise that begins in this state.
    Synthetic(Option<u64>),
}

/// A host address that may travel between threads.
#[derive(Clone, Copy, Debug)]
struct Address(*mut u8);

// SAFETY: the address is that of arena memory that outlives all users; who writes there is settled by the plan.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

/// Why host memory could not be staged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StageError {
    /// The runtime gave no pinned memory.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// Contents cannot be read.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// The archive has no contents where it says it has.
    #[error(
        "blob {blob} is missing from the archive: it was recorded by a process that ended before it was written; the replay cannot go past it"
    )]
    Missing {
        /// The blob's number.
        blob: u64,
    },
    /// The contents are not as long as the call says.
    #[error("blob {blob} is {found_bytes} bytes long where {wanted_bytes} were recorded; the archive is damaged")]
    Length {
        /// The blob's number.
        blob: u64,
        /// Its length.
        found_bytes: u64,
        /// What the record says.
        wanted_bytes: u64,
    },
    /// A size that no machine has.
    #[error("a host buffer of {bytes} bytes does not fit in memory")]
    TooLarge {
        /// The size.
        bytes: u64,
    },
}

/// All host memory of a replay.
///
/// Memory for copies belongs to the current *window* of the plan and is given back window by window, once the copies
/// that use it are complete and the results in it have been compared. Everything else stays to the end.
#[derive(Debug)]
pub(crate) struct HostMemory {
    runtime: Arc<Runtime>,
    /// Where memory for copies goes, by device.
    nodes: MemoryNodes,
    /// Which of the nodes the call at hand works near.
    near: usize,
    lasting: Arena,
    /// Windows whose memory is in use, oldest first.
    windows: VecDeque<Window>,
    next_window: u64,
    sources: FxHashMap<([u8; 32], HostKind, Shape), Address>,
    jobs: Vec<Job>,
    /// By node: pinned blocks of standard size that are free, as pinning is slow.
    spare_pinned: Vec<Vec<Address>>,
    /// Most bytes in use at once, pinned and pageable.
    peak_bytes: (u64, u64),
    in_use_bytes: (u64, u64),
    /// Sources made up so far, by which their noise differs.
    synthetic_sources: u64,
}

/// Memory of one window.
#[derive(Debug)]
struct Window {
    number: u64,
    /// By node.
    pinned: Vec<Arena>,
    /// By node.
    pageable: Vec<Arena>,
    /// Calls that must have returned before the memory is free.
    release: Vec<Wait>,
    /// Results in it that are still to be compared.
    unchecked: Arc<AtomicUsize>,
}

/// Bump-allocated host memory.
#[derive(Debug, Default)]
struct Arena {
    blocks: Vec<(Address, usize)>,
    used_in_last: usize,
}

impl Arena {
    /// Room for `len` bytes in the last block, or in one that `block` makes.
    fn take(
        &mut self,
        len: usize,
        block: impl FnOnce(usize) -> Result<*mut u8, StageError>,
    ) -> Result<(*mut u8, usize), StageError> {
        let room = self.blocks.last().map_or(0, |(_, size)| size - self.used_in_last);
        let mut grown = 0;
        if room < len || self.blocks.is_empty() {
            let size = len.max(BLOCK_BYTES);
            self.blocks.push((Address(block(size)?), size));
            self.used_in_last = 0;
            grown = size;
        }
        let (block, _) = *self.blocks.last().ok_or(StageError::TooLarge { bytes: len as u64 })?;
        // SAFETY: `used_in_last + len` is within the block, by the check above.
        let place = unsafe { block.0.add(self.used_in_last) };
        self.used_in_last += len;
        Ok((place, grown))
    }
}

impl HostMemory {
    /// No memory yet.
    pub(crate) fn new(runtime: Arc<Runtime>, nodes: MemoryNodes) -> Self {
        let mut memory = HostMemory {
            runtime,
            near: 0,
            lasting: Arena::default(),
            windows: VecDeque::new(),
            next_window: 0,
            sources: FxHashMap::default(),
            jobs: Vec::new(),
            spare_pinned: vec![Vec::new(); nodes.count()],
            nodes,
            peak_bytes: (0, 0),
            in_use_bytes: (0, 0),
            synthetic_sources: 0,
        };
        memory.open_window();
        memory
    }

    /// What is staged from now on is for this device.
    pub(crate) fn work_near(&mut self, device: i32) {
        self.near = self.nodes.index(device);
    }

    /// Begins the next window and returns the number of the one that ends.
    pub(crate) fn open_window(&mut self) -> u64 {
        let number = self.next_window;
        self.next_window += 1;
        // Sources are shared within a window only: an older window's memory may go at any time.
        self.sources.clear();
        self.windows.push_back(Window {
            number,
            pinned: (0..self.nodes.count()).map(|_| Arena::default()).collect(),
            pageable: (0..self.nodes.count()).map(|_| Arena::default()).collect(),
            release: Vec::new(),
            unchecked: Arc::new(AtomicUsize::new(0)),
        });
        number.saturating_sub(1)
    }

    /// The current window.
    pub(crate) fn window(&self) -> u64 {
        self.next_window - 1
    }

    /// Counts the results of the current window that are still to be compared.
    pub(crate) fn unchecked(&self) -> Arc<AtomicUsize> {
        match self.windows.back() {
            Some(window) => Arc::clone(&window.unchecked),
            None => Arc::default(),
        }
    }

    /// Keeps a window's memory until `wait` holds.
    pub(crate) fn keep_until(&mut self, window: u64, wait: Wait) {
        if let Some(window) = self.windows.iter_mut().find(|known| known.number == window) {
            match window.release.iter_mut().find(|known| known.lane == wait.lane) {
                Some(known) => known.count = known.count.max(wait.count),
                None => window.release.push(wait),
            }
        }
    }

    /// Gives back the memory of all windows that have ended, are covered, and whose users are done.
    pub(crate) fn reclaim(&mut self, covered: impl Fn(u64) -> bool, done: impl Fn(Wait) -> bool) {
        let current = self.window();
        let mut kept = VecDeque::with_capacity(self.windows.len());
        for window in std::mem::take(&mut self.windows) {
            // Acquire: pairs with the validator's Release decrement, after its last look at the memory.
            let free = window.number != current
                && covered(window.number)
                && window.release.iter().all(|&wait| done(wait))
                && window.unchecked.load(Ordering::Acquire) == 0;
            if free {
                self.give_back(window);
            } else {
                kept.push_back(window);
            }
        }
        self.windows = kept;
    }

    fn give_back(&mut self, window: Window) {
        for (arena, spare) in window.pinned.into_iter().zip(&mut self.spare_pinned) {
            for (block, size) in arena.blocks {
                self.in_use_bytes.0 -= size as u64;
                if size == BLOCK_BYTES {
                    spare.push(block);
                } else {
                    // SAFETY: the block came from `host_malloc`; the copies that used it are complete.
                    unsafe { self.runtime.host_free(block.0) };
                }
            }
        }
        for (block, size) in window.pageable.into_iter().flat_map(|arena| arena.blocks) {
            self.in_use_bytes.1 -= size as u64;
            // SAFETY: the block is a mapping of this size made by `map_anonymous`; nobody uses it any more.
            unsafe { libc::munmap(block.0.cast(), size) };
        }
    }

    /// Bytes staged in the current window.
    pub(crate) fn window_bytes(&self) -> u64 {
        self.windows.back().map_or(0, |window| {
            let arenas = window.pinned.iter().chain(&window.pageable);
            arenas.flat_map(|arena| &arena.blocks).map(|(_, size)| *size as u64).sum()
        })
    }

    /// Bytes staged and not given back.
    pub(crate) fn in_use_bytes(&self) -> u64 {
        self.in_use_bytes.0 + self.in_use_bytes.1
    }

    /// A place of `len_bytes` in the current window, its contents undefined until written.
    ///
    /// # Errors
    /// Where there is no such memory.
    pub(crate) fn place(&mut self, kind: HostKind, len_bytes: u64) -> Result<*mut u8, StageError> {
        let len = rounded(len_bytes)?;
        let too_large = StageError::TooLarge { bytes: len_bytes };
        let Some(window) = self.windows.back_mut() else { return Err(too_large) };
        let place = match kind {
            HostKind::Pinned => {
                let (spare, runtime) = (&mut self.spare_pinned[self.near], &self.runtime);
                let node = self.nodes.node(self.near);
                let (place, grown) = window.pinned[self.near].take(len, |size| {
                    match (size == BLOCK_BYTES).then(|| spare.pop()).flatten() {
                        Some(block) => Ok(block.0),
                        None => Ok(node.preferred(|| runtime.host_malloc(size))?),
                    }
                })?;
                self.in_use_bytes.0 += grown as u64;
                place
            }
            HostKind::Pageable => {
                let node = self.nodes.node(self.near);
                let (place, grown) = window.pageable[self.near].take(len, |size| {
                    let block = map_anonymous(size).ok_or(too_large)?;
                    node.bind(block, size);
                    Ok(block)
                })?;
                self.in_use_bytes.1 += grown as u64;
                place
            }
        };
        self.peak_bytes = (self.peak_bytes.0.max(self.in_use_bytes.0), self.peak_bytes.1.max(self.in_use_bytes.1));
        Ok(place)
    }

    /// A pageable place that stays to the end.
    ///
    /// # Errors
    /// Where there is no such memory.
    pub(crate) fn lasting_place(&mut self, len_bytes: u64) -> Result<*mut u8, StageError> {
        let len = rounded(len_bytes)?;
        let make = |size| map_anonymous(size).ok_or(StageError::TooLarge { bytes: len_bytes });
        Ok(self.lasting.take(len, make)?.0)
    }

    /// A copy of what all lasting places hold.
    pub(crate) fn lasting_contents(&self) -> Vec<Vec<u8>> {
        let last = self.lasting.blocks.len().saturating_sub(1);
        let blocks = self.lasting.blocks.iter().enumerate();
        blocks
            .map(|(number, &(block, size))| {
                let used = if number == last { self.lasting.used_in_last } else { size };
                // SAFETY: the block is a mapping of at least this size, kept to the end, and no runner writes to it now.
                unsafe { std::slice::from_raw_parts(block.0, used) }.to_vec()
            })
            .collect()
    }

    /// Has all lasting places hold what [`Self::lasting_contents`] told. The devices are idle and no runner is active.
    pub(crate) fn restore_lasting(&self, contents: &[Vec<u8>]) {
        for (&(block, size), contents) in self.lasting.blocks.iter().zip(contents) {
            // SAFETY: as above; at most the block's length is written, from a copy elsewhere.
            unsafe { std::ptr::copy_nonoverlapping(contents.as_ptr(), block.0, contents.len().min(size)) };
        }
    }

    /// A place that holds the contents of a blob, in this shape, once [`Self::fill`] has run.
    ///
    /// # Errors
    /// Where the archive lacks the contents, or there is no memory.
    pub(crate) fn source(
        &mut self,
        archive: &Archive,
        kind: HostKind,
        blob: u64,
        shape: Shape,
    ) -> Result<*mut u8, StageError> {
        let hash = archive.blobs().hash(blob).ok_or(StageError::Missing { blob })?;
        if let Some(place) = self.sources.get(&(hash, kind, shape)) {
            return Ok(place.0);
        }
        let span = shape.span_bytes().ok_or(StageError::TooLarge { bytes: u64::MAX })?;
        let place = self.place(kind, span)?;
        self.jobs.push(Job { contents: Contents::Blob(blob), target: Address(place), shape });
        self.sources.insert((hash, kind, shape), Address(place));
        Ok(place)
    }

    /// As [`Self::source`], and a place that no other call has.
    ///
    /// # Errors
    /// As for [`Self::source`].
    pub(crate) fn own_source(&mut self, kind: HostKind, blob: u64, shape: Shape) -> Result<*mut u8, StageError> {
        let span = shape.span_bytes().ok_or(StageError::TooLarge { bytes: u64::MAX })?;
        let place = self.place(kind, span)?;
        self.jobs.push(Job { contents: Contents::Blob(blob), target: Address(place), shape });
        Ok(place)
    }

    /// A place of its own that holds bytes which stand for contents, once [`Self::fill`] has run. Zeros are written too: memory
    /// that never was is one page of zeros to a reader, and read faster than the program's.
    ///
    /// # Errors
    /// Where there is no memory.
    pub(crate) fn synthetic_source(
        &mut self,
        kind: HostKind,
        synthetic: Synthetic,
        shape: Shape,
    ) -> Result<*mut u8, StageError> {
        let span = shape.span_bytes().ok_or(StageError::TooLarge { bytes: u64::MAX })?;
        let place = self.place(kind, span)?;
        self.synthetic_sources += 1;
        let contents = Contents::Synthetic(match synthetic {
            Synthetic::Zeros => None,
            Synthetic::Noise(seed) => Some(noise(&mut (seed ^ self.synthetic_sources.rotate_left(32)))),
        });
        self.jobs.push(Job { contents, target: Address(place), shape: Shape::linear(span) });
        Ok(place)
    }

    /// Puts all contents asked for so far in their places, on all cores.
    ///
    /// # Errors
    /// The first blob that is missing or damaged.
    pub(crate) fn fill(&mut self, archive: &Archive) -> Result<(), StageError> {
        self.jobs.par_drain(..).try_for_each(|job| {
            let blob = match job.contents {
                Contents::Blob(blob) => blob,
                Contents::Synthetic(state) => {
                    // SAFETY: the place was allocated for this many bytes, belongs to this job alone, and no call that reads it
                    // is issued before `fill` has returned.
                    let place = unsafe { std::slice::from_raw_parts_mut(job.target.0, job.shape.row_bytes as usize) };
                    make_up(place, state);
                    return Ok(());
                }
            };
            let contents = archive.blobs().get(blob)?.ok_or(StageError::Missing { blob })?;
            let wanted_bytes = job.shape.packed_bytes().unwrap_or(u64::MAX);
            if contents.len() as u64 != wanted_bytes {
                return Err(StageError::Length { blob, found_bytes: contents.len() as u64, wanted_bytes });
            }
            // SAFETY: the place was allocated for the shape's span, belongs to this job alone, and no call that reads it is
            // issued before `fill` has returned.
            unsafe { job.shape.scatter(&contents, job.target.0) };
            Ok(())
        })
    }

    /// Most bytes that were in use at once, pinned and pageable.
    pub(crate) fn peak_bytes(&self) -> (u64, u64) {
        self.peak_bytes
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // Replay drops this only after every worker has ended and the devices are idle; otherwise it leaks it by ending the
        // process.
        for window in std::mem::take(&mut self.windows) {
            self.give_back(window);
        }
        for block in self.spare_pinned.drain(..).flatten() {
            // SAFETY: the block came from `host_malloc`, and nobody uses it any more, as above.
            unsafe { self.runtime.host_free(block.0) };
        }
        for (block, size) in self.lasting.blocks.drain(..) {
            // SAFETY: the block is a mapping of this size made by `map_anonymous`, used by nobody any more, as above.
            unsafe { libc::munmap(block.0.cast(), size) };
        }
    }
}

fn rounded(len_bytes: u64) -> Result<usize, StageError> {
    let too_large = || StageError::TooLarge { bytes: len_bytes };
    let len = usize::try_from(len_bytes).map_err(|_| too_large())?;
    Ok(len.checked_next_multiple_of(ALIGN_BYTES).ok_or_else(too_large)?.max(ALIGN_BYTES))
}

/// The next number of a sequence that does not compress (SplitMix64).
fn noise(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// Fills memory with zeros, or with noise that begins in a state.
fn make_up(memory: &mut [u8], state: Option<u64>) {
    let Some(mut state) = state else {
        memory.fill(0);
        return;
    };
    for part in memory.chunks_mut(8) {
        part.copy_from_slice(&noise(&mut state).to_le_bytes()[..part.len()]);
    }
}

fn map_anonymous(len_bytes: usize) -> Option<*mut u8> {
    // SAFETY: an anonymous private mapping at an address of the kernel's choice touches no existing memory.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len_bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    (address != libc::MAP_FAILED).then_some(address.cast())
}

/// An address that no access survives, handed to the runtime where a call failed at capture over an address that was
/// nothing: it must be refused, and cannot be mistaken for memory.
pub(crate) fn poison_address() -> u64 {
    static PAGE: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    *PAGE.get_or_init(|| {
        // SAFETY: as in `map_anonymous`; the page is never accessible and never unmapped.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                4096,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if address == libc::MAP_FAILED { 8 } else { address as usize }
    }) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rectangle_is_spread_and_gathered_around_its_gaps() {
        let shape = Shape::rows(3, 2, 5);
        assert_eq!((shape.span_bytes(), shape.packed_bytes()), (Some(8), Some(6)));
        let mut memory = [9u8; 8];
        // SAFETY: the array is as long as the span.
        unsafe { shape.scatter(b"abcdef", memory.as_mut_ptr()) };
        assert_eq!(&memory, b"abc\x09\x09def");
        let mut buffer = Vec::new();
        // SAFETY: as above.
        assert_eq!(unsafe { shape.gather(memory.as_ptr(), &mut buffer) }, b"abcdef");
    }

    #[test]
    fn slices_lie_behind_their_lead_and_before_their_tail() {
        let shape = Shape { lead_bytes: 2, slices: 2, slice_bytes: 7, tail_bytes: 1, ..Shape::rows(1, 2, 3) };
        assert_eq!((shape.span_bytes(), shape.packed_bytes()), (Some(14), Some(4)));
        let mut memory = [9u8; 14];
        // SAFETY: the array is as long as the span.
        unsafe { shape.scatter(b"abcd", memory.as_mut_ptr()) };
        assert_eq!(&memory, b"\x09\x09a\x09\x09b\x09\x09\x09c\x09\x09d\x09");
        let mut buffer = Vec::new();
        // SAFETY: as above.
        assert_eq!(unsafe { shape.gather(memory.as_ptr(), &mut buffer) }, b"abcd");
    }

    #[test]
    fn what_is_made_up_is_zeros_or_repeatable_noise() {
        let mut memory = [7; 21];
        make_up(&mut memory, None);
        assert_eq!(memory, [0; 21]);
        make_up(&mut memory, Some(3));
        let first = memory;
        make_up(&mut memory, Some(4));
        assert_ne!(memory, first);
        make_up(&mut memory, Some(3));
        assert_eq!(memory, first);
        assert!(first.iter().filter(|&&byte| byte == 0).count() < 4);
    }

    #[test]
    fn shapes_that_overflow_are_refused() {
        let shape = Shape::rows(2, u64::MAX, u64::MAX);
        assert_eq!((shape.span_bytes(), shape.packed_bytes()), (None, None));
        assert_eq!(Shape::rows(7, 0, 9).span_bytes(), Some(0));
    }
}
