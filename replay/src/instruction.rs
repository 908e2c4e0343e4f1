//! What the timed loop executes: calls with their arguments laid out, the few words to patch, and the waits before.
//!
//! A [`Chunk`] holds a run of instructions of one worker. Everything an instruction points to (argument words, inline
//! structs, kernel arguments) lies in the chunk's own memory, laid out by the planner; executing it means: wait for the
//! edges, store slot values into the words that need them, call, store what the call created into slots.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::memory::prefetch;
use crate::memory::slots::Slot;
use crate::report::note::Note;
use crate::thunk::Thunk;

/// Bits of [`Instruction::flags`].
pub(crate) mod flag {
    /// The call blocked at capture while another captured thread of this worker made calls: hand the sequence on.
    pub(crate) const HAND_OFF: u16 = 1;
    /// A query that had succeeded: repeat it until it does.
    pub(crate) const REPEAT_UNTIL_SUCCESS: u16 = 1 << 1;
    /// The outcome is not compared (the call answers from state that is not the archive's).
    pub(crate) const ANY_OUTCOME: u16 = 1 << 2;
    /// On success the calling OS thread's device is the first argument word.
    pub(crate) const SETS_DEVICE: u16 = 1 << 3;
    /// Not a call of the archive: made for replay's own sake.
    pub(crate) const AUXILIARY: u16 = 1 << 4;
    /// Reads the captured thread's last error, kept by the worker because captured threads share OS threads.
    pub(crate) const LAST_ERROR: u16 = 1 << 5;
    /// Like [`LAST_ERROR`], leaving it set.
    pub(crate) const PEEK_ERROR: u16 = 1 << 6;
    /// A kernel launch (counted).
    pub(crate) const KERNEL: u16 = 1 << 7;
    /// A graph launch (counted).
    pub(crate) const GRAPH: u16 = 1 << 8;
    /// A query that had answered "not ready": either answer is right now.
    pub(crate) const NOT_READY_FINE: u16 = 1 << 9;
    /// On success the calling OS thread's device is whatever the runtime says.
    pub(crate) const SWITCHES_CONTEXT: u16 = 1 << 10;
    /// Of a call that stands behind others which were entered after it.
    pub(crate) const DELAYED: u16 = 1 << 11;
    /// What makes the loop leave its straight path even when the outcome is the recorded one.
    pub(crate) const COLD: u16 = SETS_DEVICE | SWITCHES_CONTEXT | LAST_ERROR | PEEK_ERROR;
}

/// `hipErrorNotReady`.
pub(crate) const NOT_READY: i32 = 600;

/// One call.
#[derive(Debug)]
pub(crate) struct Instruction {
    pub(crate) thunk: Thunk,
    pub(crate) function: *const c_void,
    /// Argument words, in the chunk's memory.
    pub(crate) words: *const u64,
    /// Count of the captured thread's instructions done once this one has returned; 0 = publishes nothing.
    pub(crate) progress: u64,
    /// Number of the event in the archive's begin order.
    pub(crate) event: u64,
    pub(crate) fixups: Range,
    pub(crate) outputs: Range,
    pub(crate) waits: Range,
    /// Captured thread.
    pub(crate) lane: u32,
    /// Recorded return code.
    pub(crate) expected: i32,
    /// The captured thread's device; negative = does not matter.
    pub(crate) device: i32,
    pub(crate) flags: u16,
    /// Catalogue id, for messages.
    pub(crate) api: u16,
}

// SAFETY: the raw pointers lead to code and into the memory of the chunk that owns the instruction, which travels with it.
unsafe impl Send for Instruction {}
// SAFETY: an instruction is only executed by the one OS thread that holds its sequence at the time; see `run::worker`.
unsafe impl Sync for Instruction {}

/// A range of one of the chunk's tables.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Range {
    pub(crate) first: u32,
    pub(crate) count: u32,
}

impl Range {
    #[inline(always)]
    pub(crate) fn of<T>(self, table: &[T]) -> &[T] {
        &table[self.first as usize..][..self.count as usize]
    }

    /// The places in the table.
    pub(crate) fn indices(self) -> std::ops::Range<usize> {
        self.first as usize..self.first as usize + self.count as usize
    }
}

/// "Store slot + addend here before the call."
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fixup {
    /// Where, possibly unaligned, in the chunk's memory or other memory that outlives it.
    pub(crate) target: *mut u64,
    pub(crate) slot: Slot,
    pub(crate) addend: u64,
}

// SAFETY: see `Instruction`.
unsafe impl Send for Fixup {}
// SAFETY: see `Instruction`.
unsafe impl Sync for Fixup {}

/// "After the call, store what lies here into the slot."
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    /// Where the call wrote it; null = the returned pointer.
    pub(crate) source: *const u64,
    pub(crate) slot: Slot,
}

// SAFETY: see `Instruction`.
unsafe impl Send for Output {}
// SAFETY: see `Instruction`.
unsafe impl Sync for Output {}

/// "Captured thread `lane` must have done `count` instructions."
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) lane: u32,
    pub(crate) count: u64,
}

impl Wait {
    /// A count that no captured thread reaches: what waits for it waits for the end of the replay.
    pub(crate) const AT_END: u64 = u64::MAX;
    /// No captured thread.
    pub(crate) const NO_LANE: u32 = u32::MAX;

    /// What stands for waits that are not found yet. No chunk that a worker is given holds one.
    pub(crate) fn placeholder_of(number: u64) -> Self {
        Wait { lane: Self::NO_LANE, count: number }
    }

    /// The number of a placeholder.
    pub(crate) fn placeholder(self) -> Option<u64> {
        (self.lane == Self::NO_LANE).then_some(self.count)
    }
}

/// A run of instructions of one worker, with all they point to.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    /// Room for an instruction in the making.
    pub(crate) spare: Spare,
    pub(crate) instructions: Vec<Instruction>,
    pub(crate) fixups: Vec<Fixup>,
    pub(crate) outputs: Vec<Output>,
    pub(crate) waits: Vec<Wait>,
    pub(crate) memory: DataMemory,
    /// What measuring runs know of some instructions, in their order; empty where nothing is measured.
    pub(crate) notes: Vec<Note>,
    /// The program's gap before each instruction in nanoseconds, as it is to be replayed; shorter where the last ones have
    /// none, and empty where none is replayed.
    pub(crate) gaps_ns: Vec<u64>,
    /// Counts the plan memory in use; set when the chunk is delivered.
    pub(crate) account: Option<Account>,
}

/// Memory of drafts that can be used again.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    pub(crate) fixups: Vec<Fixup>,
    pub(crate) outputs: Vec<Output>,
}

/// A chunk's share of the plan memory in use, taken off when the chunk is dropped.
#[derive(Debug)]
pub(crate) struct Account {
    total_bytes: Arc<AtomicU64>,
    share_bytes: u64,
}

impl Account {
    /// Adds a share to the total.
    pub(crate) fn open(total_bytes: &Arc<AtomicU64>, share_bytes: u64) -> Self {
        // Relaxed: a bound on memory, not an order.
        total_bytes.fetch_add(share_bytes, Ordering::Relaxed);
        Account { total_bytes: Arc::clone(total_bytes), share_bytes }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        // Relaxed: as above.
        self.total_bytes.fetch_sub(self.share_bytes, Ordering::Relaxed);
    }
}

impl Chunk {
    /// An empty chunk with room for as much as this one holds.
    pub(crate) fn as_large(&self) -> Self {
        Chunk {
            instructions: Vec::with_capacity(self.instructions.len()),
            fixups: Vec::with_capacity(self.fixups.len()),
            outputs: Vec::with_capacity(self.outputs.len()),
            waits: Vec::with_capacity(self.waits.len()),
            ..Chunk::default()
        }
    }

    /// Has the places fetched where the next instruction will be laid out, after those of other workers.
    pub(crate) fn expect_next(&self) {
        fn end<T>(table: &[T]) -> *const T {
            table.as_ptr_range().end
        }
        prefetch::lines(end(&self.instructions), 2);
        prefetch::lines(end(&self.fixups), 2);
        prefetch::line(end(&self.waits));
        prefetch::lines(self.memory.next(), 3);
    }

    /// Roughly how much memory the chunk takes, in bytes.
    pub(crate) fn size_bytes(&self) -> usize {
        self.instructions.capacity() * size_of::<Instruction>()
            + self.fixups.capacity() * size_of::<Fixup>()
            + self.outputs.capacity() * size_of::<Output>()
            + self.waits.capacity() * size_of::<Wait>()
            + self.notes.capacity() * size_of::<Note>()
            + self.gaps_ns.capacity() * size_of::<u64>()
            + self.memory.size_bytes()
    }
}

/// Bump-allocated 8-byte words that never move.
#[derive(Debug, Default)]
pub(crate) struct DataMemory {
    blocks: Vec<*mut [u64]>,
    used_in_last: usize,
}

// SAFETY: the blocks are owned; raw pointers only because fixups keep addresses into them.
unsafe impl Send for DataMemory {}
// SAFETY: shared access goes through `Instruction`'s rule that one OS thread executes a chunk at a time.
unsafe impl Sync for DataMemory {}

/// Words per block.
const BLOCK_WORDS: usize = 8192;

impl DataMemory {
    /// Zeroed room for `words` words.
    pub(crate) fn allocate(&mut self, words: usize) -> *mut u64 {
        let room = self.blocks.last().map_or(0, |block| block.len() - self.used_in_last);
        if room < words || self.blocks.is_empty() {
            let block = vec![0u64; words.max(BLOCK_WORDS)].into_boxed_slice();
            self.blocks.push(Box::into_raw(block));
            self.used_in_last = 0;
        }
        let block = *self.blocks.last().expect("a block was pushed when there was none");
        // SAFETY: `used_in_last + words <= block.len()` by the check above, so the offset stays within the block.
        let address = unsafe { block.cast::<u64>().add(self.used_in_last) };
        self.used_in_last += words;
        address
    }

    /// Where the next allocation is likely to be.
    fn next(&self) -> *const u64 {
        self.blocks.last().map_or(std::ptr::null(), |block| block.cast::<u64>().wrapping_add(self.used_in_last))
    }

    fn size_bytes(&self) -> usize {
        self.blocks.iter().map(|block| block.len() * 8).sum()
    }

    /// Where an address lies, in bytes from the start of all memory allocated; `None` = elsewhere.
    pub(crate) fn offset_of(&self, address: u64) -> Option<u64> {
        let mut before = 0;
        for &block in &self.blocks {
            let len_bytes = block.len() as u64 * 8;
            let offset_bytes = address.wrapping_sub(block.cast::<u64>() as u64);
            if offset_bytes < len_bytes {
                return Some(before + offset_bytes);
            }
            before += len_bytes;
        }
        None
    }

    /// A copy of everything allocated.
    pub(crate) fn contents(&self) -> Box<[u64]> {
        let mut contents = Vec::with_capacity(self.size_bytes() / 8);
        for &block in &self.blocks {
            // SAFETY: the block is owned and initialised; the caller copies while no runner works on the chunk.
            contents.extend_from_slice(unsafe { &*block });
        }
        contents.into_boxed_slice()
    }

    /// Puts [`Self::contents`] back. No runner works on the chunk meanwhile.
    pub(crate) fn restore(&self, contents: &[u64]) {
        let mut rest = contents;
        for &block in &self.blocks {
            let (part, behind) = rest.split_at(block.len().min(rest.len()));
            // SAFETY: the part is at most as long as the block, which is owned and used by nobody else now; `contents` is a
            // copy elsewhere.
            unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), block.cast::<u64>(), part.len()) };
            rest = behind;
        }
    }
}

impl Drop for DataMemory {
    fn drop(&mut self) {
        for block in self.blocks.drain(..) {
            // SAFETY: each block came from `Box::into_raw` and is freed once.
            drop(unsafe { Box::from_raw(block) });
        }
    }
}
