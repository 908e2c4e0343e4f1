//! Host memory that replay stands in for the program's: copy sources with their recorded contents, and places for
//! results.
//!
//! Memory the program had pinned is pinned here too (`hipHostMalloc`), memory it had not stays pageable, so that the
//! runtime takes the same path as it did for the program. Sources with the same contents share one place.

mod blocks;
mod filling;
mod shape;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use hrr_format::archive::Archive;
use hrr_format::blob_store::BlobError;

use crate::choices::Synthetic;
use crate::instruction::Wait;
use crate::machine::memory_node::MemoryNodes;
use crate::machine::runtime::{Runtime, RuntimeError};

use blocks::{Address, Arena, Spares, map_anonymous};
use filling::{Contents, Job, noise};
pub(crate) use shape::Shape;

/// Alignment of every place, in bytes: what HIP gives its own allocations.
const ALIGN_BYTES: usize = 256;
const PAGE_BYTES: usize = 4096;

/// Whether memory is pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum HostKind {
    /// Page-locked, allocated by the runtime.
    Pinned,
    /// Ordinary memory.
    Pageable,
}

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
        "blob {blob} is missing from the archive: its process ended before it was written, or the archive is damaged; the replay cannot go past it, and --range up to this event replays what comes before"
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
    /// By node: blocks that are free. Pinning is slow, and so is having the kernel clear pages.
    spare_pinned: Vec<Spares>,
    spare_pageable: Vec<Spares>,
    /// Bytes in spare blocks.
    spare_bytes: u64,
    /// Most bytes in use at once, pinned and pageable.
    peak_bytes: (u64, u64),
    /// Bytes of the current window.
    window_bytes: u64,
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
            spare_pinned: vec![Spares::default(); nodes.count()],
            spare_pageable: vec![Spares::default(); nodes.count()],
            spare_bytes: 0,
            nodes,
            peak_bytes: (0, 0),
            window_bytes: 0,
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
        self.window_bytes = 0;
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
        for (arena, spares) in window.pinned.into_iter().zip(&mut self.spare_pinned) {
            for (block, size) in arena.blocks {
                self.in_use_bytes.0 -= size as u64;
                self.spare_bytes += size as u64;
                spares.put(block, size);
            }
        }
        for (arena, spares) in window.pageable.into_iter().zip(&mut self.spare_pageable) {
            for (block, size) in arena.blocks {
                self.in_use_bytes.1 -= size as u64;
                self.spare_bytes += size as u64;
                spares.put(block, size);
            }
        }
    }

    /// A block of the current window that is free, or else room for a new one of `len` bytes: spare blocks never have the whole
    /// take more than was in use at once.
    fn reuse(&mut self, kind: HostKind, len: usize) -> Option<(Address, usize)> {
        let spares = match kind {
            HostKind::Pinned => &mut self.spare_pinned[self.near],
            HostKind::Pageable => &mut self.spare_pageable[self.near],
        };
        if let Some(found) = spares.take(len) {
            self.spare_bytes -= found.1 as u64;
            return Some(found);
        }
        while self.spare_bytes > 0
            && self.in_use_bytes() + self.spare_bytes + len as u64 > self.peak_bytes.0 + self.peak_bytes.1
            && self.free_a_spare()
        {}
        None
    }

    /// Gives the largest spare block of some node back to the system; whether there was one.
    fn free_a_spare(&mut self) -> bool {
        if let Some((block, size)) = self.spare_pinned.iter_mut().find_map(Spares::take_largest) {
            self.spare_bytes -= size as u64;
            // SAFETY: the block came from `host_malloc`; the copies that used it are complete.
            unsafe { self.runtime.host_free(block.0) };
            return true;
        }
        if let Some((block, size)) = self.spare_pageable.iter_mut().find_map(Spares::take_largest) {
            self.spare_bytes -= size as u64;
            // SAFETY: the block is a mapping of this size made by `map_anonymous`; nobody uses it any more.
            unsafe { libc::munmap(block.0.cast(), size) };
            return true;
        }
        false
    }

    /// Bytes staged in the current window.
    pub(crate) fn window_bytes(&self) -> u64 {
        self.window_bytes
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
        let near = self.near;
        let arena = |window: &mut Window| match kind {
            HostKind::Pinned => std::mem::take(&mut window.pinned[near]),
            HostKind::Pageable => std::mem::take(&mut window.pageable[near]),
        };
        let mut arena = self.windows.back_mut().map(arena).unwrap_or_default();
        let placed = arena.take(len, |size| {
            if let Some((block, size)) = self.reuse(kind, size) {
                return Ok((block.0, size));
            }
            let block = match kind {
                HostKind::Pinned => self.nodes.node(near).preferred(|| self.runtime.host_malloc(size))?,
                HostKind::Pageable => {
                    let block = map_anonymous(size).ok_or(StageError::TooLarge { bytes: len_bytes })?;
                    self.nodes.node(near).bind(block, size);
                    block
                }
            };
            Ok((block, size))
        });
        if let Some(window) = self.windows.back_mut() {
            match kind {
                HostKind::Pinned => window.pinned[near] = arena,
                HostKind::Pageable => window.pageable[near] = arena,
            }
        }
        let (place, grown) = placed?;
        self.grown(grown, kind);
        Ok(place)
    }

    fn grown(&mut self, bytes: usize, kind: HostKind) {
        let bytes = bytes as u64;
        match kind {
            HostKind::Pinned => self.in_use_bytes.0 += bytes,
            HostKind::Pageable => self.in_use_bytes.1 += bytes,
        }
        self.window_bytes += bytes;
        self.peak_bytes = (self.peak_bytes.0.max(self.in_use_bytes.0), self.peak_bytes.1.max(self.in_use_bytes.1));
    }

    /// A place for a result of this shape, which stands in the archive as `blob`. A copy to pageable memory that nobody has
    /// touched would be timed with what it takes the system to clear each page.
    ///
    /// # Errors
    /// Where there is no such memory.
    pub(crate) fn result(
        &mut self,
        archive: &Archive,
        kind: HostKind,
        blob: u64,
        shape: Shape,
    ) -> Result<*mut u8, StageError> {
        /// Most bytes made ready of a result whose length no contents vouch for.
        const MAX_READY_BYTES: u64 = 1 << 30;
        let span = shape.span_bytes().unwrap_or(u64::MAX);
        let place = self.place(kind, span)?;
        // What a record says of gaps may be anything.
        let dense = shape.packed_bytes().is_some_and(|packed| span / 2 <= packed);
        let vouched = archive.blobs().len_bytes(blob).is_some_and(|len_bytes| Some(len_bytes) == shape.packed_bytes());
        if kind == HostKind::Pageable && span >= PAGE_BYTES as u64 && dense && (vouched || span <= MAX_READY_BYTES) {
            self.jobs.push(Job { contents: Contents::Result, target: Address(place), shape });
        }
        Ok(place)
    }

    /// A pageable place that stays to the end.
    ///
    /// # Errors
    /// Where there is no such memory.
    pub(crate) fn lasting_place(&mut self, len_bytes: u64) -> Result<*mut u8, StageError> {
        let len = rounded(len_bytes)?;
        let make = |size| {
            let block = map_anonymous(size).ok_or(StageError::TooLarge { bytes: len_bytes })?;
            Ok((block, size))
        };
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
        // SAFETY: each job was made with a place of its shape's span that no other has, and calls that use it are issued once this
        // has returned.
        self.jobs.par_drain(..).try_for_each(|job| unsafe { job.run(archive) })
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
        while self.free_a_spare() {}
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
