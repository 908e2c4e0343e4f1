//! Arrays of handles that the runtime owns: a call stores where the array is, and how many handles are in it.
//!
//! The call is made by a thunk that takes the handles out afterwards, since the array lies wherever this run's runtime has it.

use std::ffi::c_void;

use hrr_format::catalogue::{Api, HandleKind, Role};

use super::Planner;
use super::dependency::Use;
use super::draft::Draft;
use super::error::Refusal;
use super::lower::{Call, Lowering, out_bytes, word_at};
use super::objects::Definition;
use crate::instruction::Chunk;
use crate::thunk::{Outcome, THUNKS, Thunk};

/// An array that a call tells of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandleArray {
    /// Where the call stores the array's address.
    pointer: *const u64,
    /// Where the handles are put.
    cells: *mut u64,
    /// As many as were recorded.
    count: usize,
}

/// What the thunk is given.
#[repr(C)]
struct Words {
    function: u64,
    thunk: u64,
    call_words: u64,
    /// The live array's address is stored here.
    pointer: u64,
    /// And its length here.
    live_count: u64,
    cells: u64,
    count: u64,
}

const WORDS: usize = size_of::<Words>() / 8;

/// Makes the call, and takes the handles out of the array that it tells of.
///
/// # Safety
/// `words` are [`Words`]: a thunk with its function and words, two places that the call writes if it succeeds, and room for `count`
/// handles.
unsafe fn handle_array_thunk(_: *const c_void, words: *const u64) -> Outcome {
    // SAFETY: the planner lays the words out like this; they are 8-byte aligned.
    let words = unsafe { &*words.cast::<Words>() };
    // SAFETY: the planner stored a thunk's address there.
    let thunk: Thunk = unsafe { std::mem::transmute::<usize, Thunk>(words.thunk as usize) };
    // SAFETY: by the caller's contract.
    let outcome = unsafe { thunk(words.function as *const c_void, words.call_words as *const u64) };
    if outcome.code == 0 {
        // SAFETY: the call succeeded, and has stored both, or left the zeros that the planner put there.
        let (from, live) = unsafe { ((words.pointer as *const u64).read(), (words.live_count as *const u64).read()) };
        let count = if from == 0 { 0 } else { live.min(words.count) as usize };
        // SAFETY: the array has as many handles as the call said, and is there until the thread's next call; there is room for `count`.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u64, words.cells as *mut u64, count) };
    }
    outcome
}

impl<'a> Planner<'a> {
    /// The parameter that points to where the array's address is stored.
    pub(crate) fn lower_handle_array(
        &mut self,
        call: &Call<'a>,
        chunk: &mut Chunk,
        draft: &mut Draft,
        lowering: &mut Lowering,
        number: u8,
        kind: HandleKind,
    ) {
        let pointer = chunk.memory.allocate(1);
        // SAFETY: the word was just allocated.
        unsafe { pointer.write(0) };
        draft.set(call.api.params[usize::from(number)].word, pointer as u64);
        let bytes = out_bytes(&call.record, number).filter(|_| call.succeeded()).unwrap_or_default();
        let count = bytes.len() / 8;
        if count == 0 {
            return;
        }
        let cells = chunk.memory.allocate(count);
        let parent = self.graph_told_of(call, lowering);
        for position in 0..count {
            let value = word_at(bytes, position * 8);
            // SAFETY: `position` is below the number of words allocated.
            let cell = unsafe { cells.add(position) };
            // SAFETY: as above.
            unsafe { cell.write(0) };
            if value == 0 {
                continue;
            }
            if let Some(known) = self.objects.handle(kind, value).filter(|known| known.parent == parent) {
                lowering.facts.uses.push((known.object, Use::Reads));
                continue;
            }
            let mut handle = self.objects.new_handle(None);
            handle.parent = parent;
            draft.output(cell, handle.slot);
            lowering.facts.creates.push(handle.object);
            lowering.definitions.push(Definition::Handle { kind, value, handle });
        }
        lowering.handle_array = Some(HandleArray { pointer, cells, count });
    }

    /// The graph that the call tells of beside its nodes.
    fn graph_told_of(&self, call: &Call<'_>, lowering: &Lowering) -> u32 {
        let told = lowering.definitions.iter().rev().find_map(|definition| match definition {
            Definition::Handle { kind: HandleKind::Graph, handle, .. } => Some(handle.object),
            _ => None,
        });
        let known = || {
            let param = call.api.param_with(|role| *role == Role::Get(HandleKind::Graph))?;
            let value = word_at(out_bytes(&call.record, param as u8)?, 0);
            self.objects.handle(HandleKind::Graph, value).map(|graph| graph.object)
        };
        told.or_else(known).unwrap_or(0)
    }

    /// What a call that tells of an array is issued as; `None` for every other call.
    pub(crate) fn handle_array_thunk(
        &self,
        call: &Call<'_>,
        issued: &Api,
        chunk: &mut Chunk,
        draft: &mut Draft,
        lowering: &Lowering,
    ) -> Result<Option<(Thunk, *const c_void)>, Refusal> {
        let Some(array) = lowering.handle_array else { return Ok(None) };
        let Some(counts) = call.api.params.iter().find(|param| param.name == "numDependencies_out") else {
            return Ok(None);
        };
        let live_count = draft.word(counts.word);
        if live_count == 0 {
            return Ok(None);
        }
        let place = chunk.memory.allocate(WORDS);
        let words = Words {
            function: self.entry_point(issued)? as u64,
            thunk: THUNKS[usize::from(issued.id)] as usize as u64,
            call_words: draft.words as u64,
            pointer: array.pointer as u64,
            live_count,
            cells: array.cells as u64,
            count: array.count as u64,
        };
        // SAFETY: as many words as the struct has were just allocated, 8-byte aligned.
        unsafe { place.cast::<Words>().write(words) };
        draft.words = place;
        Ok(Some((handle_array_thunk, std::ptr::null())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static HANDLES: [u64; 3] = [7, 8, 9];

    /// Stores the array, and the length that its second word says.
    unsafe fn tells(_: *const c_void, words: *const u64) -> Outcome {
        // SAFETY: two places and a number.
        unsafe {
            (words.read() as *mut u64).write(HANDLES.as_ptr() as u64);
            (words.add(1).read() as *mut u64).write(words.add(2).read());
            Outcome { code: words.add(3).read() as i32, raw: 0 }
        }
    }

    fn run(live: u64, code: u64, recorded: usize) -> Vec<u64> {
        let (mut pointer, mut live_count) = (0u64, 0u64);
        let call_words = [(&raw mut pointer) as u64, (&raw mut live_count) as u64, live, code];
        let mut cells = vec![0; recorded];
        let words = Words {
            function: 0,
            thunk: (tells as Thunk) as usize as u64,
            call_words: call_words.as_ptr() as u64,
            pointer: (&raw const pointer) as u64,
            live_count: (&raw const live_count) as u64,
            cells: cells.as_mut_ptr() as u64,
            count: recorded as u64,
        };
        // SAFETY: laid out as the thunk wants it, over this function's own memory.
        let outcome = unsafe { handle_array_thunk(std::ptr::null(), (&raw const words).cast()) };
        assert_eq!(outcome.code, code as i32);
        cells
    }

    #[test]
    fn handles_are_taken_out_of_the_array_that_the_call_tells_of() {
        assert_eq!(run(3, 0, 3), [7, 8, 9]);
        assert_eq!(run(2, 0, 3), [7, 8, 0]);
        assert_eq!(run(3, 0, 1), [7]);
        assert_eq!(run(3, 1, 3), [0, 0, 0]);
    }
}
