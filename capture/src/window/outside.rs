//! Entry and return of a call outside a window.
//!
//! What matters later is recorded as in a window, but into memory: the record goes to the [`objects`](super::objects). The
//! hooks run as always, so that kernels, memory and graphs are known when a window is opened. A call that was entered
//! outside and returns inside, because the window was not kept waiting for it, is written into its thread's stream.

use std::panic::{AssertUnwindSafe, catch_unwind};

use hrr_format::catalogue::{Effect, Table};
use hrr_format::record::{HEADER_BYTES, offset, section_bytes};

use super::Windows;
use super::keep::Keep;
use super::objects::{Ending, Returned};
use crate::contents::graph_copies;
use crate::hooks::{GraphHook, Hook, HookCall};
use crate::plan::{OrderRole, Plan};
use crate::process::{self, Process};
use crate::recorder::{self, Scratch};
use crate::sections;
use crate::writer::ThreadStream;
use crate::{clock, runtime};

/// What a thread remembers of its call outside a window.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    record: Vec<u64>,
    ending: Ending,
}

/// Begins a call. Returns where its record is, or null where nothing is kept of it.
///
/// # Safety
/// As `recorder::enter`; called by the stream's owner, inside a recorded call.
pub(crate) unsafe fn enter(
    process: &'static Process,
    windows: &Windows,
    stream: &ThreadStream,
    plan: &'static Plan,
    words: &[u64],
) -> *mut u8 {
    let call = HookCall { process, plan, words };
    let enqueues = plan.api.effect == Effect::Enqueue;
    let captured = enqueues && graph_copies::capturing() && runtime::capture_of(call.stream()).is_some();
    let joins = joins_captures(plan) && graph_copies::capturing();
    let hooked = !matches!(plan.hook, Hook::None | Hook::Graph(GraphHook::Launch));
    if plan.keep == Keep::Nothing && !captured && !joins && !hooked {
        return std::ptr::null_mut();
    }
    // SAFETY: the caller is the stream's owner and holds no reference to the scratch.
    let Scratch { drafts, transfers, kept, .. } = unsafe { stream.scratch() };
    let drafted = catch_unwind(AssertUnwindSafe(|| {
        let mut objects = windows.objects();
        kept.ending = objects.ending(plan.api, words);
        drop(objects);
        // SAFETY: by the caller's contract the words are those of the call.
        unsafe { sections::draft(process, plan, words, drafts, transfers) }
    }));
    let Ok(aux) = drafted else {
        process::stop(format_args!("an internal error occurred while {} was kept", plan.api.name));
        return std::ptr::null_mut();
    };
    let mut need = HEADER_BYTES + words.len() * 8;
    for draft in drafts.iter_mut() {
        draft.at_bytes = need as u32;
        need += section_bytes(draft.len_bytes as usize);
    }
    kept.record.clear();
    kept.record.resize(need / 8, 0);
    let at = kept.record.as_mut_ptr().cast::<u8>();
    // SAFETY: the vector has room for `need` bytes, in which every section was given its place; it is 8-byte aligned and
    // zero, and not touched before `leave`.
    unsafe {
        recorder::write_head(at, usize::from(plan.api.id), words);
        at.add(offset::AUX).cast::<u32>().write(aux);
        at.add(offset::LEN).cast::<u32>().write(need as u32);
        at.add(offset::BEGIN).cast::<u64>().write(clock::tick());
        for draft in drafts.iter() {
            recorder::write_draft(at, draft);
        }
    }
    at
}

/// Whether a stream may come to be captured by a call, which is then a part of the capture.
fn joins_captures(plan: &Plan) -> bool {
    matches!(plan.order, OrderRole::Wait { .. })
}

/// Completes a call of which a record is kept. Returns the record where it belongs into the thread's stream after all.
///
/// # Safety
/// As `recorder::leave`, after [`enter`] gave this record.
pub(crate) unsafe fn leave(
    process: &'static Process,
    windows: &Windows,
    stream: &ThreadStream,
    plan: &'static Plan,
    code: i32,
    raw: u64,
) -> Option<Vec<u64>> {
    // SAFETY: the caller is the stream's owner and holds no reference to the scratch.
    let Scratch { kept, .. } = unsafe { stream.scratch() };
    let (mut record, ending) = (std::mem::take(&mut kept.record), std::mem::take(&mut kept.ending));
    let at = record.as_mut_ptr().cast::<u8>();
    // SAFETY: the record is the one that `enter` laid out, and the scratch describes it.
    unsafe {
        at.add(offset::END).cast::<u64>().write(clock::tick());
        at.add(offset::RET).cast::<i32>().write(code);
        recorder::fill_general(stream, at, code, raw);
        recorder::set_returned(at);
    }
    let words_at = at.wrapping_add(HEADER_BYTES).cast::<u64>().cast_const();
    // SAFETY: the record has as many words as the plan says.
    let words = unsafe { std::slice::from_raw_parts(words_at, usize::from(plan.words)) };
    // SAFETY: as above.
    let transfers = unsafe { &mut stream.scratch().transfers };
    let call = HookCall { process, plan, words };
    // SAFETY: by the contract of `recorder::leave`.
    unsafe { call.at_return(transfers, code, raw) };
    if code != 0 {
        windows.objects().failed(ending);
        return None;
    }
    if plan.hook == Hook::Context {
        // SAFETY: the caller is the stream's owner; `transfers` is not used while this runs.
        unsafe { recorder::note_contexts(stream, plan, at.cast_const(), runtime::device()) };
    }
    let begins = plan.hook == Hook::BeginCapture || joins_captures(plan);
    let capture = if begins { runtime::capture_of(call.stream()) } else { transfers.capture };
    if let Some(id) = capture.filter(|_| !transfers.graph_copies.is_empty()) {
        process.graphs().capture(id, &transfers.graph_copies);
    }
    if plan.keep == Keep::Nothing && capture.is_none() {
        return None;
    }
    if super::is_open() {
        return Some(record);
    }
    // What compiled code calls comes before `main`, when the runtime should not be asked for anything.
    let device = if plan.api.table == Table::Runtime { runtime::device() } else { 0 };
    let mut objects = windows.objects();
    let returned = Returned { api: plan.api, device, record: &record, capture, ending };
    objects.add(returned, |address| process.allocations().find(address).map(|(_, left)| left));
    windows.check_kept(&mut objects);
    None
}
