//! An allocator that gives tables of a plan memory in large pages.
//!
//! Planning fills memory by the gigabyte, in tables of some hundred KiB. The system's allocator maps each of these anew, and
//! the first touch of each 4 KiB costs a fault: as long as planning what goes there. So lengths of that order are cut from
//! regions for which large pages are asked (`madvise`, which most systems allow), and are used again once freed. Anything
//! else is the system allocator's.
//!
//! A virtual machine may have given its large free pages back to its host, and clearing one takes longer then than hundreds of
//! small ones that were in use a moment ago. The first large page of a region shows it: then the region gets small pages, of
//! all of a piece at once.
//!
//! What is freed is kept by length and given to the next that asks for that length; it is never given back. So the memory
//! taken is at most the sum, over the lengths, of the most that was in use of each at one time, which the budget of planning
//! bounds.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Lengths are rounded up to a multiple of this, in bytes.
const STEP_BYTES: usize = 64 << 10;
/// The longest piece, in steps.
const MOST_STEPS: usize = 64;
/// A large page, in bytes: regions are aligned to it.
const LARGE_PAGE_BYTES: usize = 2 << 20;
/// Length of the first region and of the longest, in bytes. The first ones are short: they are taken before the addresses of
/// recorded memory are set aside, and are not to lie there.
const REGION_BYTES: (usize, usize) = (4 << 20, 16 << 20);

/// How long the first touch of a large page takes where it is worth it: the system clears it at some 3 to 100 GB/s. What takes
/// less was a small page.
const LARGE_TAKES: std::ops::Range<Duration> = Duration::from_micros(15)..Duration::from_micros(700);

/// Regions that are not tried with large pages after one where it was not worth it.
const NOT_TRIED: u32 = 7;

/// The allocator, for `#[global_allocator]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct LargePages;

/// What [`LargePages`] gives out.
static MEMORY: Pool = Pool::new();

/// Has memory made ready for tables that are needed next, where the process uses this allocator for its plans. It takes as long
/// as the system takes to clear the pages, which is why another thread does it than the one that needs them.
pub(crate) fn prepare() {
    MEMORY.prepare();
}

/// Regions, and what was freed of them.
#[derive(Debug, Default)]
struct Pool {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Freed pieces by their steps, each with the address of the next in its first word.
    free: [*mut Piece; MOST_STEPS + 1],
    /// What is left of the region used last.
    rest: Region,
    /// The next one, if it was made ready.
    ready: Option<Region>,
    /// Regions still to come that are not tried with large pages.
    not_tried: u32,
    /// Length of the next region.
    region_bytes: usize,
}

/// A freed piece.
#[derive(Debug)]
struct Piece {
    next: *mut Piece,
}

/// Memory that holds zeros and belongs to nobody else.
#[derive(Clone, Copy, Debug)]
struct Region {
    start: *mut u8,
    len_bytes: usize,
    pages: Pages,
}

// SAFETY: the addresses are of memory that nobody else uses, from whichever thread it was freed.
unsafe impl Send for State {}

/// What lies behind a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pages {
    /// Large pages, as they are touched.
    Large,
    /// Small pages: asked for piece by piece.
    Small,
    /// All of them are there.
    There,
}

/// A piece.
enum Taken {
    /// One that holds zeros, and was never touched.
    Fresh(*mut u8, Pages),
    Used(*mut u8),
}

impl Region {
    /// A region of this length, tried with large pages or not; `None` where the system has no memory.
    fn map(len_bytes: usize, large: bool) -> Option<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let mapped_bytes = len_bytes + LARGE_PAGE_BYTES;
        // SAFETY: a fresh mapping, where the system likes.
        let mapped =
            unsafe { libc::mmap(ptr::null_mut(), mapped_bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if mapped == libc::MAP_FAILED {
            return None;
        }
        let skipped = mapped.cast::<u8>().align_offset(LARGE_PAGE_BYTES);
        // SAFETY: one large page more was mapped than the region is long, so it lies in the mapping wherever it is aligned. The
        // parts in front of it and behind it are whole pages of the mapping, and nobody has their addresses.
        let start = unsafe {
            let start = mapped.cast::<u8>().add(skipped);
            if skipped > 0 {
                libc::munmap(mapped, skipped);
            }
            if skipped < LARGE_PAGE_BYTES {
                libc::munmap(start.add(len_bytes).cast(), LARGE_PAGE_BYTES - skipped);
            }
            start
        };
        let mut region = Region { start, len_bytes, pages: Pages::Small };
        if large {
            // SAFETY: the region, and its first byte, which stays zero. The advice may be refused.
            let took = unsafe {
                libc::madvise(start.cast(), len_bytes, libc::MADV_HUGEPAGE);
                let begun = Instant::now();
                start.write_volatile(0);
                begun.elapsed()
            };
            if LARGE_TAKES.contains(&took) {
                region.pages = Pages::Large;
            } else {
                // SAFETY: the region, as above.
                unsafe { libc::madvise(start.cast(), len_bytes, libc::MADV_NOHUGEPAGE) };
            }
        }
        Some(region)
    }

    /// Has the system put pages behind a part of a region of which nobody knows.
    fn populate(start: *mut u8, len_bytes: usize) {
        // SAFETY: by the above, the part holds zeros before and after. Where the system cannot, pages come one by one as they are
        // touched.
        unsafe { libc::madvise(start.cast(), len_bytes, libc::MADV_POPULATE_WRITE) };
    }
}

impl Default for State {
    fn default() -> Self {
        State::new()
    }
}

impl State {
    const fn new() -> Self {
        let none = Region { start: ptr::null_mut(), len_bytes: 0, pages: Pages::Small };
        let free = [ptr::null_mut(); MOST_STEPS + 1];
        State { free, rest: none, ready: None, not_tried: 0, region_bytes: REGION_BYTES.0 }
    }

    /// A piece of so many steps; `None` where the system has no memory.
    fn take(&mut self, steps: usize) -> Option<Taken> {
        let freed = self.free[steps];
        if !freed.is_null() {
            // SAFETY: a freed piece begins with the address of the next, which `give` wrote there.
            self.free[steps] = unsafe { (*freed).next };
            return Some(Taken::Used(freed.cast()));
        }
        let len_bytes = steps * STEP_BYTES;
        if self.rest.len_bytes < len_bytes {
            self.begin_region()?;
        }
        let piece = self.rest.start;
        // SAFETY: the piece ends inside the region, of which so much is left; no region is shorter than the longest piece.
        self.rest.start = unsafe { piece.add(len_bytes) };
        self.rest.len_bytes -= len_bytes;
        Some(Taken::Fresh(piece, self.rest.pages))
    }

    fn give(&mut self, piece: *mut u8, steps: usize) {
        let piece: *mut Piece = piece.cast();
        // SAFETY: the piece was taken here and its user has no more use for it; it is aligned to a step.
        unsafe { piece.write(Piece { next: self.free[steps] }) };
        self.free[steps] = piece;
    }

    /// Begins with the next region. The rest of the last one is freed.
    fn begin_region(&mut self) -> Option<()> {
        let region = match self.ready.take() {
            Some(region) => region,
            None => {
                let region = Region::map(self.region_bytes, self.not_tried == 0)?;
                self.made(&region);
                region
            }
        };
        let rest_steps = self.rest.len_bytes / STEP_BYTES;
        if rest_steps > 0 {
            // Shorter than what was asked for, so no longer than the longest piece. It holds zeros, which a used piece need not.
            self.give(self.rest.start, rest_steps);
        }
        self.rest = region;
        Some(())
    }

    /// A region was made as the next one was to be.
    fn made(&mut self, region: &Region) {
        self.not_tried = match region.pages {
            Pages::Small if self.not_tried == 0 => NOT_TRIED,
            _ => self.not_tried.saturating_sub(1),
        };
        self.region_bytes = (2 * self.region_bytes).min(REGION_BYTES.1);
    }
}

/// Steps of a piece for this layout; `None` where it is the system allocator's.
fn steps_of(layout: &Layout) -> Option<usize> {
    let steps = layout.size().div_ceil(STEP_BYTES);
    (layout.size() >= STEP_BYTES && steps <= MOST_STEPS && layout.align() <= STEP_BYTES).then_some(steps)
}

impl Pool {
    /// Has taken nothing yet.
    const fn new() -> Self {
        Pool { state: Mutex::new(State::new()) }
    }

    /// See [`prepare`].
    fn prepare(&self) {
        let large = {
            let state = self.state();
            // Little was needed until now, or the next region is there.
            if state.region_bytes < REGION_BYTES.1 || state.ready.is_some() {
                return;
            }
            state.not_tried == 0
        };
        let Some(mut region) = Region::map(REGION_BYTES.1, large) else { return };
        let found = region;
        Region::populate(region.start, region.len_bytes);
        region.pages = Pages::There;
        let mut state = self.state();
        if state.ready.is_none() {
            state.made(&found);
            state.ready = Some(region);
        } else {
            // SAFETY: the region, of which nobody knows.
            unsafe { libc::munmap(region.start.cast(), region.len_bytes) };
        }
    }

    /// A piece of so many steps, and whether it holds zeros.
    fn take(&self, steps: usize) -> Option<(*mut u8, bool)> {
        let taken = self.state().take(steps);
        match taken? {
            Taken::Fresh(piece, pages) => {
                if pages == Pages::Small {
                    Region::populate(piece, steps * STEP_BYTES);
                }
                Some((piece, true))
            }
            Taken::Used(piece) => Some((piece, false)),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pool {
    fn alloc(&self, steps: usize) -> *mut u8 {
        self.take(steps).map_or(ptr::null_mut(), |(piece, _)| piece)
    }

    /// Zeros at least of this length.
    fn alloc_zeroed(&self, steps: usize, len_bytes: usize) -> *mut u8 {
        match self.take(steps) {
            Some((piece, true)) => piece,
            Some((piece, false)) => {
                // SAFETY: the piece is at least as long.
                unsafe { piece.write_bytes(0, len_bytes) };
                piece
            }
            None => ptr::null_mut(),
        }
    }
}

// SAFETY: a piece is as long as its steps, at least as long as the layout's size, aligned to a step, at least the layout's
// alignment, and nobody else's until it is given back. Whose memory it is follows from the layout alone, which is the same when
// it is given back. No method panics or allocates by itself.
unsafe impl GlobalAlloc for Pool {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match steps_of(&layout) {
            Some(steps) => self.alloc(steps),
            // SAFETY: by the caller's contract.
            None => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match steps_of(&layout) {
            Some(steps) => self.alloc_zeroed(steps, layout.size()),
            // SAFETY: by the caller's contract.
            None => unsafe { System.alloc_zeroed(layout) },
        }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        match steps_of(&layout) {
            Some(steps) => self.state().give(address, steps),
            // SAFETY: by the caller's contract, and it came from there.
            None => unsafe { System.dealloc(address, layout) },
        }
    }

    unsafe fn realloc(&self, address: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: by the caller's contract the size, rounded up to the alignment, is within bounds.
        let new_layout = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        match (steps_of(&layout), steps_of(&new_layout)) {
            // SAFETY: by the caller's contract, and it came from there.
            (None, None) => unsafe { System.realloc(address, layout, new_size) },
            (old, new) if old == new => address,
            _ => {
                // SAFETY: the new size is not zero, by the caller's contract.
                let moved = unsafe { GlobalAlloc::alloc(self, new_layout) };
                if !moved.is_null() {
                    // SAFETY: both are at least as long as the shorter of the two, and are not the same; the old one is not
                    // used any more.
                    unsafe {
                        ptr::copy_nonoverlapping(address, moved, layout.size().min(new_size));
                        self.dealloc(address, layout);
                    }
                }
                moved
            }
        }
    }
}

// SAFETY: as the pool's.
unsafe impl GlobalAlloc for LargePages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by the caller's contract.
        unsafe { GlobalAlloc::alloc(&MEMORY, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by the caller's contract.
        unsafe { GlobalAlloc::alloc_zeroed(&MEMORY, layout) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        // SAFETY: by the caller's contract; all that this allocator gives out is the pool's.
        unsafe { GlobalAlloc::dealloc(&MEMORY, address, layout) }
    }

    unsafe fn realloc(&self, address: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as above.
        unsafe { GlobalAlloc::realloc(&MEMORY, address, layout, new_size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, 8).unwrap()
    }

    fn is_filled(address: *mut u8, len: usize, value: u8) -> bool {
        // SAFETY: the tests give an address and the length that was allocated there, filled.
        unsafe { std::slice::from_raw_parts(address, len) }.iter().all(|&byte| byte == value)
    }

    #[test]
    fn pieces_do_not_overlap_and_are_used_again_by_their_length() {
        let memory = Pool::new();
        let sizes = [64 << 10, 100_000, 1 << 20, (4 << 20) - 5, 65_537, 64 << 10];
        // SAFETY: each is freed once, below, with its layout.
        let pieces: Vec<*mut u8> =
            sizes.iter().map(|&size| unsafe { GlobalAlloc::alloc(&memory, layout(size)) }).collect();
        for (number, (&piece, &size)) in pieces.iter().zip(&sizes).enumerate() {
            assert!(!piece.is_null() && (piece as usize).is_multiple_of(STEP_BYTES));
            // SAFETY: it is as long.
            unsafe { piece.write_bytes(number as u8 + 1, size) };
        }
        for (number, (&piece, &size)) in pieces.iter().zip(&sizes).enumerate() {
            assert!(is_filled(piece, size, number as u8 + 1), "{size}");
        }
        for (&piece, &size) in pieces.iter().zip(&sizes) {
            // SAFETY: allocated above with this layout.
            unsafe { GlobalAlloc::dealloc(&memory, piece, layout(size)) };
        }
        for &size in &sizes {
            // SAFETY: freed below.
            let again = unsafe { GlobalAlloc::alloc(&memory, layout(size)) };
            assert!(pieces.contains(&again), "{size} is not used again");
        }
    }

    #[test]
    fn zeroed_memory_is_zero_where_it_was_used_before() {
        let memory = Pool::new();
        for _ in 0..2 {
            // SAFETY: of the length that is filled, and freed with its layout.
            unsafe {
                let piece = GlobalAlloc::alloc_zeroed(&memory, layout(200_000));
                assert!(is_filled(piece, 200_000, 0));
                piece.write_bytes(7, 200_000);
                GlobalAlloc::dealloc(&memory, piece, layout(200_000));
            }
        }
    }

    #[test]
    fn what_grows_and_shrinks_keeps_its_contents_wherever_it_lies() {
        let memory = Pool::new();
        let mut size = 1000;
        // SAFETY: grown, looked at and freed with the size that it has.
        unsafe {
            let mut piece = GlobalAlloc::alloc(&memory, layout(size));
            piece.write_bytes(9, size);
            for new_size in [50_000, 70_000, 120_000, 300_000, 5 << 20, 4 << 20, 200_000, 90_000, 10] {
                piece = GlobalAlloc::realloc(&memory, piece, layout(size), new_size);
                assert!(is_filled(piece, size.min(new_size), 9), "{size} to {new_size}");
                piece.write_bytes(9, new_size);
                size = new_size;
            }
            GlobalAlloc::dealloc(&memory, piece, layout(size));
        }
    }

    #[test]
    fn memory_beyond_a_region_comes_from_the_next_and_the_rest_is_not_lost() {
        let memory = Pool::new();
        let mut pieces = Vec::new();
        for _ in 0..200 {
            // SAFETY: freed below.
            let piece = unsafe { GlobalAlloc::alloc(&memory, layout(3 * STEP_BYTES)) };
            // SAFETY: it is as long.
            unsafe { piece.write_bytes(1, 3 * STEP_BYTES) };
            pieces.push(piece);
        }
        // The first region has room for 21 of them, and one step is left.
        assert!(!memory.state().free[1].is_null());
        pieces.sort_unstable();
        assert!(pieces.windows(2).all(|pair| pair[1] as usize - pair[0] as usize >= 3 * STEP_BYTES));
        for piece in pieces {
            // SAFETY: allocated above with this layout.
            unsafe { GlobalAlloc::dealloc(&memory, piece, layout(3 * STEP_BYTES)) };
        }
    }

    #[test]
    fn a_region_made_ready_is_the_next_one_and_holds_zeros() {
        let memory = Pool::new();
        memory.prepare();
        assert!(memory.state().ready.is_none(), "nothing was needed yet");
        for round in 0..12 {
            memory.prepare();
            let ready = memory.state().ready.is_some();
            assert_eq!(ready, memory.state().region_bytes == REGION_BYTES.1, "round {round}");
            // SAFETY: of the length that is looked at and filled; never freed.
            unsafe {
                let piece = GlobalAlloc::alloc_zeroed(&memory, layout(4 << 20));
                assert!(is_filled(piece, 4 << 20, 0));
                piece.write_bytes(5, 4 << 20);
            }
        }
    }

    #[test]
    fn threads_share_it() {
        static MEMORY: Pool = Pool::new();
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                scope.spawn(move || {
                    for round in 0..500 {
                        let size = STEP_BYTES + round % 7 * 40_000;
                        // SAFETY: of the length that is filled, and freed with its layout.
                        unsafe {
                            let piece = GlobalAlloc::alloc(&MEMORY, layout(size));
                            piece.write_bytes(thread, size);
                            assert!(is_filled(piece, size, thread));
                            GlobalAlloc::dealloc(&MEMORY, piece, layout(size));
                        }
                    }
                });
            }
        });
    }
}
