//! An empty node in the place of a launch that `--kernel-filter` leaves out of a stream's capture, so that the nodes around it
//! keep their order and their handles.

use std::ffi::c_void;

use hrr_format::catalogue::{Api, HandleKind, Role, STRUCTS};
use hrr_format::record::SectionTag;

use super::draft::Draft;
use super::{Call, word_at};
use crate::instruction::Chunk;
use crate::plan::Planner;
use crate::plan::error::Refusal;
use crate::thunk::{Outcome, THUNKS, Thunk};

/// `hipStreamCaptureStatusActive`.
const ACTIVE: u32 = 1;
/// `hipStreamSetCaptureDependencies`: what the stream's next node depends on is replaced.
const SET_DEPENDENCIES: u64 = 1;

/// The calls that together add a node to a stream's capture.
const CALLS: [&str; 3] = ["hipStreamGetCaptureInfo_v2", "hipGraphAddEmptyNode", "hipStreamUpdateCaptureDependencies"];

/// Words in front of the streams: the functions of [`CALLS`], and how many streams there are.
const HEAD_WORDS: usize = CALLS.len() + 1;

/// Calls one of [`CALLS`], whose function is the word of its number.
///
/// # Safety
/// As for the call's thunk with these arguments; `words` as for [`empty_node_thunk`].
unsafe fn call(number: usize, words: *const u64, arguments: &[u64]) -> Outcome {
    let Some(api) = Api::by_name(CALLS[number]) else { return Outcome { code: -1, raw: 0 } };
    // SAFETY: by the caller's contract; the planner laid out the functions in the order of `CALLS`.
    unsafe { THUNKS[usize::from(api.id)](words.add(number).read() as *const c_void, arguments.as_ptr()) }
}

/// Adds an empty node to what each of some streams captures. Words: the functions of [`CALLS`], how many streams there are, and
/// the streams.
///
/// # Safety
/// The words are these.
unsafe fn empty_node_thunk(_: *const c_void, words: *const u64) -> Outcome {
    // SAFETY: by the caller's contract.
    let count = unsafe { words.add(CALLS.len()).read() } as usize;
    let mut outcome = Outcome { code: 0, raw: 0 };
    for index in 0..count {
        // SAFETY: as above.
        let added = unsafe { add_to(words.add(HEAD_WORDS + index).read(), words) };
        if added.code != 0 {
            outcome = added;
        }
    }
    outcome
}

/// Adds an empty node to what a stream captures, behind what it has captured so far. Does nothing where it captures nothing.
///
/// # Safety
/// As for [`empty_node_thunk`], of whose streams this is one.
unsafe fn add_to(stream: u64, words: *const u64) -> Outcome {
    let (mut status, mut id, mut graph) = (0u32, 0u64, 0u64);
    let (mut dependencies, mut count, mut node) = (0u64, 0u64, 0u64);
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

/// A stream that a launch works on: its recorded handle, and where the launch's copy of that lies.
struct OnStream {
    recorded: u64,
    place: *const u64,
}

impl Planner<'_> {
    /// Whether a launch that is left out has to leave a node behind: where some stream is being captured, and one of this
    /// launch's is named.
    pub(crate) fn leaves_node(&self, call: &Call<'_>) -> bool {
        self.captures > 0 && self.streams_of(call, None).iter().any(|stream| stream.recorded != 0)
    }

    /// The streams that a launch names: in an argument, in a struct, or in each of several. `draft` has its arguments, laid out.
    fn streams_of(&self, call: &Call<'_>, draft: Option<&Draft>) -> Vec<OnStream> {
        let word_place = |word: u8| draft.map_or(std::ptr::null(), |draft| draft.words.wrapping_add(usize::from(word)));
        if let Some(param) = call.api.stream_param() {
            let word = call.api.params[param].word;
            return vec![OnStream { recorded: call.record.word(usize::from(word)), place: word_place(word) }];
        }
        let mut streams = Vec::new();
        for (number, param) in call.api.params.iter().enumerate() {
            let Role::Struct(layout, _) = param.role else { continue };
            let layout = &STRUCTS[usize::from(layout)];
            let field = layout.fields.iter().find(|field| field.role == Role::Use(HandleKind::Stream));
            let section = call.record.section(SectionTag::In, number as u8);
            let Some((field, section)) = field.zip(section) else { continue };
            let (stride, offset) = (layout.size_bytes as usize, field.offset_bytes as usize);
            let base = draft.map_or(0, |draft| draft.word(param.word)) as usize;
            for (position, element) in section.payload.chunks_exact(stride).enumerate() {
                let place = (base + position * stride + offset) as *const u64;
                streams.push(OnStream { recorded: word_at(element, offset), place });
            }
        }
        streams
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
        let streams = self.streams_of(call, Some(draft));
        let mut words = vec![0; HEAD_WORDS];
        for (function, name) in words.iter_mut().zip(CALLS) {
            *function = self.entry_point(Api::by_name(name).ok_or(Refusal::UnknownApi)?)? as u64;
        }
        words[CALLS.len()] = streams.len() as u64;
        let slots: Vec<_> = streams
            .iter()
            .map(|stream| {
                draft.fixups.iter().find(|fixup| fixup.target.cast_const() == stream.place).map(|fixup| fixup.slot)
            })
            .collect();
        // A stream that no slot holds is one of the default streams, by its name.
        words.extend(streams.iter().map(|stream| stream.recorded));
        draft.replace_words(chunk, &words, &[], call.record.word_count());
        for (index, slot) in slots.into_iter().enumerate() {
            if let Some(slot) = slot {
                draft.patch((HEAD_WORDS + index) as u8, slot, 0);
            }
        }
        Ok(Some((empty_node_thunk, std::ptr::null())))
    }
}
