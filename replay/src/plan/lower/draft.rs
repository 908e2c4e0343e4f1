//! An instruction while it is being laid out.

use hrr_format::catalogue::Api;

use crate::instruction::{Chunk, Fixup, Instruction, Output, Range, Spare, Wait};
use crate::memory::slots::Slot;
use crate::thunk::Thunk;

/// An instruction in the making: its memory is already the chunk's.
#[derive(Debug)]
pub(crate) struct Draft {
    /// Argument words, in the chunk's memory.
    pub(crate) words: *mut u64,
    pub(crate) fixups: Vec<Fixup>,
    pub(crate) outputs: Vec<Output>,
    pub(crate) flags: u16,
}

impl Draft {
    /// A draft with this many argument words.
    pub(crate) fn new(chunk: &mut Chunk, count: usize, words: impl IntoIterator<Item = u64>) -> Self {
        let place = chunk.memory.allocate(count.max(1));
        for (index, word) in words.into_iter().take(count).enumerate() {
            // SAFETY: `index` is below the length allocated.
            unsafe { place.add(index).write(word) };
        }
        let (fixups, outputs) = (std::mem::take(&mut chunk.spare.fixups), std::mem::take(&mut chunk.spare.outputs));
        Draft { words: place, fixups, outputs, flags: 0 }
    }

    /// Sets argument word `index`, which the catalogue says the call has.
    pub(crate) fn set(&mut self, index: u8, value: u64) {
        // SAFETY: the words were allocated for all parameters of the call, and `index` is one of the catalogue's.
        unsafe { self.words.add(usize::from(index)).write(value) };
    }

    /// Argument word `index` as it is laid out.
    pub(crate) fn word(&self, index: u8) -> u64 {
        // SAFETY: as in `set`.
        unsafe { self.words.add(usize::from(index)).read() }
    }

    /// Lays other argument words out in place of the present ones. `moved` says which fix-up of an old word goes to which new
    /// one; fix-ups of the other old words are dropped, those of other memory stay.
    pub(crate) fn replace_words(
        &mut self,
        chunk: &mut Chunk,
        words: &[u64],
        moved: &[(usize, usize)],
        old_count: usize,
    ) {
        let old = self.words;
        let place = chunk.memory.allocate(words.len().max(1));
        for (index, &word) in words.iter().enumerate() {
            // SAFETY: `index` is below the length allocated.
            unsafe { place.add(index).write(word) };
        }
        self.fixups.retain_mut(|fixup| {
            let Some(index) = (0..old_count).find(|&index| fixup.target == old.wrapping_add(index)) else {
                return true;
            };
            match moved.iter().find(|(from, _)| *from == index) {
                Some(&(_, to)) => {
                    fixup.target = place.wrapping_add(to);
                    true
                }
                None => false,
            }
        });
        self.words = place;
    }

    /// Makes room for one more argument word behind the first `count`.
    pub(crate) fn append_word(&mut self, chunk: &mut Chunk, count: usize) {
        let place = chunk.memory.allocate(count + 1);
        // SAFETY: the words were allocated for `count` arguments at least, the new place is longer, and the two differ.
        unsafe { std::ptr::copy_nonoverlapping(self.words, place, count) };
        let old = self.words as usize..self.words as usize + count * size_of::<u64>();
        for fixup in &mut self.fixups {
            if old.contains(&(fixup.target as usize)) {
                let offset_bytes = fixup.target as usize - old.start;
                fixup.target = place.wrapping_byte_add(offset_bytes);
            }
        }
        self.words = place;
    }

    /// Has argument word `index` taken from a slot before the call.
    pub(crate) fn patch(&mut self, index: u8, slot: Slot, addend: u64) {
        // SAFETY: as in `set`.
        let target = unsafe { self.words.add(usize::from(index)) };
        self.fixups.push(Fixup { target, slot, addend });
    }

    /// Has 8 bytes at `target` (in memory that outlives the instruction) taken from a slot before the call.
    pub(crate) fn patch_at(&mut self, target: *mut u64, slot: Slot, addend: u64) {
        self.fixups.push(Fixup { target, slot, addend });
    }

    /// Has what the call writes to `source` stored in a slot afterwards.
    pub(crate) fn output(&mut self, source: *const u64, slot: Slot) {
        self.outputs.push(Output { source, slot });
    }

    /// Appends the instruction to its chunk.
    pub(crate) fn finish(mut self, chunk: &mut Chunk, issue: Issue, waits: &[Wait]) {
        fn append<T: Copy>(table: &mut Vec<T>, items: &[T]) -> Range {
            let first = table.len() as u32;
            table.extend_from_slice(items);
            Range { first, count: items.len() as u32 }
        }
        let instruction = Instruction {
            thunk: issue.thunk,
            function: issue.function,
            words: self.words,
            progress: issue.progress,
            event: issue.event,
            fixups: append(&mut chunk.fixups, &self.fixups),
            outputs: append(&mut chunk.outputs, &self.outputs),
            waits: append(&mut chunk.waits, waits),
            lane: issue.lane,
            expected: issue.expected,
            device: issue.device,
            flags: self.flags | issue.flags,
            api: issue.api.id,
        };
        chunk.instructions.push(instruction);
        self.fixups.clear();
        self.outputs.clear();
        chunk.spare = Spare { fixups: self.fixups, outputs: self.outputs };
        chunk.expect_next();
    }
}

/// The parts of an instruction that are not laid out in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Issue {
    pub(crate) thunk: Thunk,
    pub(crate) function: *const std::ffi::c_void,
    pub(crate) api: &'static Api,
    pub(crate) progress: u64,
    pub(crate) event: u64,
    pub(crate) lane: u32,
    pub(crate) expected: i32,
    pub(crate) device: i32,
    pub(crate) flags: u16,
}
