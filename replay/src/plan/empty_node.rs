//! An empty node in the place of a launch that `--kernel-filter` leaves out of a stream's capture, so that the nodes around it
//! keep their order and their handles.

use std::ffi::c_void;

use hrr_format::catalogue::Api;

use super::Planner;
use super::draft::Draft;
use super::error::Refusal;
use super::lower::Call;
use crate::instruction::Chunk;
use crate::thunk::{Outcome, THUNKS, Thunk};

/// `hipStreamCaptureStatusActive`.
const ACTIVE: u32 = 1;
/// `hipStreamSetCaptureDependencies`: what the stream's next node depends on is replaced.
const SET_DEPENDENCIES: u64 = 1;

/// The calls that together add a node to a stream's capture.
const CALLS: [&str; 3] = ["hipStreamGetCaptureInfo_v2", "hipGraphAddEmptyNode", "hipStreamUpdateCaptureDependencies"];

/// Calls one of [`CALLS`], whose function is the word of its number behind the stream.
///
/// # Safety
/// As for the call's thunk with these arguments; `words` as for [`empty_node_thunk`].
unsafe fn call(number: usize, words: *const u64, arguments: &[u64]) -> Outcome {
    let Some(api) = Api::by_name(CALLS[number]) else { return Outcome { code: -1, raw: 0 } };
    // SAFETY: by the caller's contract; the planner laid out the functions in the order of `CALLS`.
    unsafe { THUNKS[usize::from(api.id)](words.add(1 + number).read() as *const c_void, arguments.as_ptr()) }
}

/// Adds an empty node to what a stream captures, behind what it has captured so far. Does nothing where it captures nothing.
/// Words: the stream, then the functions of [`CALLS`].
///
/// # Safety
/// The words are these.
unsafe fn empty_node_thunk(_: *const c_void, words: *const u64) -> Outcome {
    let (mut status, mut id, mut graph) = (0u32, 0u64, 0u64);
    let (mut dependencies, mut count, mut node) = (0u64, 0u64, 0u64);
    // SAFETY: the first word is the stream.
    let stream = unsafe { words.read() };
    let asked = [
        stream,
        &raw mut status as u64,
        &raw mut id as u64,
        &raw mut graph as u64,
        &raw mut dependencies as u64,
        &raw mut count as u64,
    ];
    // SAFETY: every answer has a place of its type, which outlives the call.
    let outcome = unsafe { call(0, words, &asked) };
    if outcome.code != 0 || status != ACTIVE {
        return outcome;
    }
    // SAFETY: the graph and the array of so many nodes are the runtime's own answer; the new node has a place.
    let outcome = unsafe { call(1, words, &[&raw mut node as u64, graph, dependencies, count]) };
    if outcome.code != 0 {
        return outcome;
    }
    // SAFETY: one node, in the graph that the stream captures.
    unsafe { call(2, words, &[stream, &raw mut node as u64, 1, SET_DEPENDENCIES]) }
}

impl Planner<'_> {
    /// Whether a launch that is left out has to leave a node behind: where some stream is being captured, and this one's is an
    /// argument of its own.
    pub(crate) fn leaves_node(&self, call: &Call<'_>) -> bool {
        let stream = call.api.stream_param().map(|param| call.api.params[param].word);
        self.captures > 0 && stream.is_some_and(|word| call.record.word(usize::from(word)) != 0)
    }

    /// Puts what adds an empty node in the place of a launch that leaves one behind. `None` for every other call.
    pub(crate) fn empty_node_thunk(
        &self,
        call: &Call<'_>,
        chunk: &mut Chunk,
        draft: &mut Draft,
    ) -> Result<Option<(Thunk, *const c_void)>, Refusal> {
        if !self.leaves_node(call) || !self.looks_filtered(call)? {
            return Ok(None);
        }
        let Some(param) = call.api.stream_param() else { return Ok(None) };
        let word = call.api.params[param].word;
        let mut words = [draft.word(word), 0, 0, 0];
        for (function, name) in words[1..].iter_mut().zip(CALLS) {
            *function = self.entry_point(Api::by_name(name).ok_or(Refusal::UnknownApi)?)? as u64;
        }
        draft.replace_words(chunk, &words, &[(usize::from(word), 0)], call.record.word_count());
        Ok(Some((empty_node_thunk, std::ptr::null())))
    }
}
