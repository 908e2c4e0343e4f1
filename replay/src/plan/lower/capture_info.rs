//! Nodes of a capture under way, of which the program was told by the address of an array that is the runtime's own: what the call
//! tells now is copied out of that array as soon as it has returned.

use std::ffi::c_void;

use hrr_format::catalogue::{HandleKind, Role};

use super::draft::Draft;
use super::{Call, Lowering, out_bytes, word_at};
use crate::instruction::Chunk;
use crate::plan::Planner;
use crate::plan::error::Refusal;
use crate::plan::objects::Definition;
use crate::thunk::{Outcome, THUNKS, Thunk};

/// An array of the runtime's own whose handles are wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    /// Where the call stores the array's address.
    array: *const u64,
    /// Where it stores how many handles there are.
    count: *const u64,
    /// Where they go, and how many there were at capture.
    handles: *const u64,
    recorded: usize,
}

/// Makes a call, and copies the handles that it tells of. Words: the call's function, thunk and words, where it stores the address of
/// the array and the count, where the handles go, and how many at most.
///
/// # Safety
/// The words are these, and the call's are as its thunk demands.
unsafe fn told_thunk(_: *const c_void, words: *const u64) -> Outcome {
    // SAFETY: by the caller's contract.
    let [function, thunk, call_words, array, count, handles, most] =
        std::array::from_fn(|index| unsafe { words.add(index).read() });
    // SAFETY: the planner stored a thunk's address there.
    let thunk: Thunk = unsafe { std::mem::transmute::<usize, Thunk>(thunk as usize) };
    // SAFETY: by the caller's contract.
    let outcome = unsafe { thunk(function as *const c_void, call_words as *const u64) };
    if outcome.code == 0 {
        // SAFETY: both are places of the plan, zero before the first call; the array has as many handles as the call says and lasts
        // until the next call on the stream.
        unsafe {
            let (array, count) = ((array as *const *const u64).read(), (count as *const u64).read());
            if !array.is_null() {
                std::ptr::copy_nonoverlapping(array, handles as *mut u64, most.min(count) as usize);
            }
        }
    }
    outcome
}

impl Planner<'_> {
    /// Lays out a parameter that points to where the call stores the address of an array of handles.
    pub(in crate::plan) fn lower_told(
        &mut self,
        call: &Call<'_>,
        chunk: &mut Chunk,
        draft: &mut Draft,
        lowering: &mut Lowering,
        number: u8,
        kind: HandleKind,
    ) {
        let cell = chunk.memory.allocate(hrr_format::catalogue::MIN_BUFFER_BYTES / 8);
        draft.set(call.api.params[usize::from(number)].word, cell as u64);
        let bytes = out_bytes(&call.record, number).unwrap_or_default();
        let recorded = bytes.len() / 8;
        if recorded == 0 {
            return;
        }
        let handles = chunk.memory.allocate(recorded);
        for position in 0..recorded {
            let handle = word_at(bytes, position * 8);
            self.lower_new_handle(call, draft, lowering, handles.wrapping_add(position), kind, handle, false);
        }
        lowering.told = Some(Told { array: cell, count: std::ptr::null(), handles, recorded });
    }

    /// What a call that tells of such handles is issued as; `None` for every other call.
    pub(in crate::plan) fn told_thunk(
        &self,
        call: &Call<'_>,
        chunk: &mut Chunk,
        draft: &mut Draft,
        lowering: &Lowering,
    ) -> Result<Option<(Thunk, *const c_void)>, Refusal> {
        let Some(told) = lowering.told else { return Ok(None) };
        let Some(count) = call.api.params.iter().find(|param| param.name == "numDependencies_out") else {
            return Ok(None);
        };
        let count = draft.word(count.word);
        if count == 0 {
            return Ok(None);
        }
        let told = Told { count: count as *const u64, ..told };
        let words = [
            self.entry_point(call.api)? as u64,
            THUNKS[usize::from(call.api.id)] as usize as u64,
            draft.words as u64,
            told.array as u64,
            told.count as u64,
            told.handles as u64,
            told.recorded as u64,
        ];
        let place = chunk.memory.allocate(words.len());
        for (index, word) in words.into_iter().enumerate() {
            // SAFETY: `index` is below the length allocated.
            unsafe { place.add(index).write(word) };
        }
        draft.words = place;
        Ok(Some((told_thunk, std::ptr::null())))
    }

    /// The graph that a call tells of beside its nodes: what they are a part of.
    pub(in crate::plan) fn graph_told_of(&self, call: &Call<'_>, lowering: &Lowering) -> u32 {
        let is_graph = |role: &Role| *role == Role::Get(HandleKind::Graph);
        let Some(param) = call.api.param_with(is_graph) else { return 0 };
        let Some(recorded) = out_bytes(&call.record, param as u8).map(|bytes| word_at(bytes, 0)) else { return 0 };
        let fresh = lowering.definitions.iter().find_map(|definition| match definition {
            Definition::Handle { kind: HandleKind::Graph, value, handle } if *value == recorded => Some(handle.object),
            _ => None,
        });
        fresh.or_else(|| self.objects.handle(HandleKind::Graph, recorded).map(|graph| graph.object)).unwrap_or(0)
    }
}
