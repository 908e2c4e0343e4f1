//! Calls on nodes that the program found by listing a graph, where `--kernel-filter` has made empty nodes of some kernels: which
//! they are is known only to the runtime, so each call asks it first.

use std::ffi::c_void;

use hrr_format::catalogue::{Api, HandleKind, Role};

use super::Call;
use super::draft::Draft;
use crate::instruction::Chunk;
use crate::plan::Planner;
use crate::plan::error::Refusal;
use crate::plan::objects::Definition;
use crate::thunk::{Outcome, THUNKS, Thunk};

/// Asks a node what it does.
const ASKS: &str = "hipGraphNodeGetType";
/// `hipGraphNodeTypeEmpty`.
const EMPTY: u32 = 5;
/// `hipErrorNotSupported`: the node has a kernel that is let through, and was given one that is not.
const NOT_SUPPORTED: i32 = 801;

/// What is done where the node is no empty one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
enum Otherwise {
    /// The call is made.
    Made = 0,
    /// It fails: it would give the node a kernel that is left out.
    Fails = 1,
}

/// Makes a call on a node unless that is an empty one. Words: the function that asks, the call's function, its thunk and words, the
/// node, and an [`Otherwise`].
///
/// # Safety
/// The words are these, and the call's are as its thunk demands.
unsafe fn listed_node_thunk(_: *const c_void, words: *const u64) -> Outcome {
    // SAFETY: by the caller's contract.
    let [asks, function, thunk, call_words, node, otherwise] =
        std::array::from_fn(|index| unsafe { words.add(index).read() });
    let Some(api) = Api::by_name(ASKS) else { return Outcome { code: -1, raw: 0 } };
    let mut kind = 0u32;
    let asked = [node, &raw mut kind as u64];
    // SAFETY: a node, and the address of one integer, which outlives the call.
    let outcome = unsafe { THUNKS[usize::from(api.id)](asks as *const c_void, asked.as_ptr()) };
    if outcome.code != 0 || kind == EMPTY {
        return outcome;
    }
    if otherwise == Otherwise::Fails as u64 {
        return Outcome { code: NOT_SUPPORTED, raw: 0 };
    }
    // SAFETY: the planner stored a thunk's address there.
    let thunk: Thunk = unsafe { std::mem::transmute::<usize, Thunk>(thunk as usize) };
    // SAFETY: by the caller's contract.
    unsafe { thunk(function as *const c_void, call_words as *const u64) }
}

impl Planner<'_> {
    /// Takes in which nodes a call told of: those of a clone are what its original's are, as far as that is known.
    pub(crate) fn note_listed_nodes(&mut self, call: &Call<'_>, definitions: &[Definition]) {
        if self.choices.kernel_filter.is_none() || call.api.param_with(is_new_node).is_some() {
            return;
        }
        let nodes = definitions.iter().filter_map(|definition| match definition {
            Definition::Handle { kind: HandleKind::Node, handle, .. } => Some(handle.object),
            _ => None,
        });
        let finds = call.api.name == "hipGraphNodeFindInClone";
        let original = self.used(call, HandleKind::Node).next().filter(|_| finds);
        match original {
            Some(original) if self.planned.shape.objects.contains(&original) => {
                self.planned.shape.objects.extend(nodes)
            }
            Some(original) if !self.listed_nodes.contains(&original) => {}
            _ => self.listed_nodes.extend(nodes),
        }
    }

    /// Whether a call is about a node that may be an empty one or a kernel's.
    pub(crate) fn is_about_listed(&self, call: &Call<'_>) -> bool {
        !self.listed_nodes.is_empty()
            && self.used(call, HandleKind::Node).any(|object| self.listed_nodes.contains(&object))
    }

    /// What a call on such a node is issued as; `None` for every other call. `left_out`: whether it gives the node a kernel that
    /// is left out.
    pub(crate) fn listed_node_thunk(
        &self,
        call: &Call<'_>,
        issued: &Api,
        chunk: &mut Chunk,
        draft: &mut Draft,
    ) -> Result<Option<(Thunk, *const c_void)>, Refusal> {
        if self.choices.kernel_filter.is_none() || !self.is_node_call(call) || !self.is_about_listed(call) {
            return Ok(None);
        }
        let Some(param) = call.api.param_with(|role| *role == Role::Use(HandleKind::Node)) else { return Ok(None) };
        let node_place = draft.words.wrapping_add(usize::from(call.api.params[param].word));
        let node = draft.fixups.iter().find(|fixup| fixup.target == node_place).map(|fixup| fixup.slot);
        let otherwise = if self.gives_left_out_kernel(call)? { Otherwise::Fails } else { Otherwise::Made };
        let asks = self.entry_point(Api::by_name(ASKS).ok_or(Refusal::UnknownApi)?)? as u64;
        let words = [
            asks,
            self.entry_point(issued)? as u64,
            THUNKS[usize::from(issued.id)] as usize as u64,
            draft.words as u64,
            0,
            otherwise as u64,
        ];
        let place = chunk.memory.allocate(words.len());
        for (index, word) in words.into_iter().enumerate() {
            // SAFETY: `index` is below the length allocated.
            unsafe { place.add(index).write(word) };
        }
        if let Some(node) = node {
            draft.patch_at(place.wrapping_add(4), node, 0);
        }
        draft.words = place;
        Ok(Some((listed_node_thunk, std::ptr::null())))
    }
}

fn is_new_node(role: &Role) -> bool {
    *role == Role::Create(HandleKind::Node)
}
