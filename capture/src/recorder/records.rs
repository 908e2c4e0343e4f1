//! A call's record: laid out and published at entry, filled at return.
//!
//! Everything here runs on the stream's owner, between the entry of its call and its return.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, Ordering};

use hrr_format::record::{
    FileId, HEADER_BYTES, Presence, SECTION_HEADER_BYTES, SectionTag, flag, offset, section_bytes,
};

use super::Scratch;
use super::around::{before_launch, before_work, reaches_out};
use crate::contents::host_memory;
use crate::guest::unnoticed::Unnoticed;
use crate::os_handle::file_of;
use crate::plan::Plan;
use crate::sections::{self, Draft, Source};
use crate::writer::ThreadStream;
use crate::{clock, launch, process};

/// Marks a record as that of a call that has returned.
///
/// # Safety
/// A whole header lies there, which only this thread writes.
#[inline(always)]
pub(crate) unsafe fn set_returned(record: *mut u8) {
    // SAFETY: the flag byte lies in the record's header.
    let flags = unsafe { AtomicU8::from_ptr(record.add(offset::FLAGS)) };
    // Release: a reader that sees the call complete sees its results. Not a read-modify-write: only this thread writes.
    flags.store(flags.load(Ordering::Relaxed) & !flag::IN_FLIGHT, Ordering::Release);
}

/// Room in the thread's stream; null where there is none, and recording has ended.
#[inline(always)]
pub(crate) unsafe fn reserve(stream: &ThreadStream, this: *const ThreadStream, need: usize) -> *mut u8 {
    // SAFETY: the caller is the stream's owner; the gate is open, so the process exists.
    let room = unsafe { stream.reserve(need, process::current().background(), this) };
    match room {
        Ok(at) => at,
        Err(error) => {
            out_of_room(stream, &error);
            std::ptr::null_mut()
        }
    }
}

#[cold]
fn out_of_room(stream: &ThreadStream, error: &std::io::Error) {
    let _unnoticed = Unnoticed::new();
    process::stop(format_args!("{} cannot grow: {error}", stream.file().path().display()));
}

/// Stores everything of a record but its sections and its length.
///
/// # Safety
/// `at` has room for a header and the words, 8-byte aligned, zero and this thread's alone.
#[inline(always)]
pub(crate) unsafe fn write_head(at: *mut u8, api: usize, words: &[u64]) {
    // SAFETY: the caller reserved a header and the words; the memory is zero, 8-byte aligned and this thread's alone.
    unsafe {
        let head = api as u32 | u32::from(flag::IN_FLIGHT) << 16 | (words.len() as u32) << 24;
        at.add(offset::API).cast::<u32>().write(head);
        let arguments = at.add(HEADER_BYTES).cast::<u64>();
        for (index, &word) in words.iter().enumerate() {
            arguments.add(index).write(word);
        }
    }
}

/// Takes the entry tick, as late as possible, and publishes.
#[inline(always)]
pub(super) unsafe fn begin(stream: &ThreadStream, at: *mut u8, need: usize) {
    // SAFETY: the caller reserved `need` bytes at `at` and filled them.
    unsafe {
        at.add(offset::BEGIN).cast::<u64>().write(clock::tick());
        stream.publish(at, need);
    }
}

#[inline(always)]
pub(super) unsafe fn write_words(
    stream: &ThreadStream,
    this: *const ThreadStream,
    api: usize,
    words: &[u64],
) -> *mut u8 {
    let need = HEADER_BYTES + words.len() * 8;
    // SAFETY: the caller is the stream's owner; the record is written within `need` bytes.
    unsafe {
        let at = reserve(stream, this, need);
        if !at.is_null() {
            write_head(at, api, words);
            begin(stream, at, need);
        }
        at
    }
}

#[inline(always)]
pub(super) unsafe fn write_fixed_outs(
    stream: &ThreadStream,
    this: *const ThreadStream,
    api: usize,
    words: &[u64],
    plan: &Plan,
) -> *mut u8 {
    let sections = HEADER_BYTES + words.len() * 8;
    let need = sections + usize::from(plan.fixed_bytes);
    // SAFETY: the caller is the stream's owner; the record is written within `need` bytes.
    unsafe {
        let at = reserve(stream, this, need);
        if !at.is_null() {
            write_head(at, api, words);
            for out in &plan.fixed_outs[..usize::from(plan.fixed_count)] {
                let section = at.add(sections + usize::from(out.at_bytes));
                write_section_head(section, SectionTag::Out, out.param, Presence::Absent, u32::from(out.len_bytes));
            }
            begin(stream, at, need);
        }
        at
    }
}

/// Stores a section header.
#[inline(always)]
pub(crate) unsafe fn write_section_head(at: *mut u8, tag: SectionTag, param: u8, presence: Presence, len_bytes: u32) {
    let head =
        u64::from(tag as u8) | u64::from(param) << 8 | u64::from(presence as u8) << 16 | u64::from(len_bytes) << 32;
    // SAFETY: the caller reserved the section; sections are 8-byte aligned.
    unsafe { at.cast::<u64>().write(head) };
}

/// Copies results of constant size after a call that succeeded.
#[inline(always)]
pub(super) unsafe fn fill_fixed_outs(record: *mut u8, plan: &Plan) {
    let sections = HEADER_BYTES + usize::from(plan.words) * 8;
    for out in &plan.fixed_outs[..usize::from(plan.fixed_count)] {
        // SAFETY: the record was laid out by `write_fixed_outs` for this plan. The call succeeded, so it wrote its results
        // where its arguments say.
        unsafe {
            let address = record.add(HEADER_BYTES + usize::from(out.word) * 8).cast::<u64>().read() as *const u8;
            if address.is_null() {
                continue;
            }
            let section = record.add(sections + usize::from(out.at_bytes));
            let payload = section.add(SECTION_HEADER_BYTES);
            match out.len_bytes {
                8 => payload.cast::<u64>().write(address.cast::<u64>().read_unaligned()),
                4 => payload.cast::<u32>().write(address.cast::<u32>().read_unaligned()),
                len_bytes => payload.copy_from_nonoverlapping(address, usize::from(len_bytes)),
            }
            section.add(2).write(Presence::Present as u8);
        }
    }
}

#[inline(always)]
pub(super) unsafe fn write_launch(
    stream: &ThreadStream,
    this: *const ThreadStream,
    api: usize,
    words: &[u64],
    plan: &'static Plan,
) -> *mut u8 {
    let Some(shape) = &plan.launch else {
        return std::ptr::null_mut();
    };
    // SAFETY: by the contract of `enter` the words are those of a launch.
    let (aux, draft) = unsafe { launch::launch(process::current(), shape, words) };
    if host_memory::any()
        && let Some(draft) = &draft
    {
        // SAFETY: as above, on the stream's owner.
        unsafe { before_launch(stream, plan, words, Some(draft)) };
    }
    let start = HEADER_BYTES + words.len() * 8;
    let section = draft.as_ref().map_or(0, |draft| section_bytes(draft.len_bytes as usize));
    let (draft, need, flags) = if start + section > process::current().longest_record_bytes() {
        (None, start, flag::TRUNCATED)
    } else {
        (draft, start + section, 0)
    };
    // SAFETY: the caller is the stream's owner; the section lies within `need` bytes.
    unsafe {
        let at = reserve(stream, this, need);
        if !at.is_null() {
            write_head(at, api, words);
            *at.add(offset::FLAGS) |= flags;
            at.add(offset::AUX).cast::<u32>().write(aux);
            if let Some(mut draft) = draft {
                draft.at_bytes = start as u32;
                write_draft(at, &draft);
            }
            begin(stream, at, need);
        }
        at
    }
}

pub(super) unsafe fn write_general(
    stream: &ThreadStream,
    this: *const ThreadStream,
    api: usize,
    words: &[u64],
    plan: &'static Plan,
) -> *mut u8 {
    let _unnoticed = reaches_out(plan).then(Unnoticed::new);
    // SAFETY: the caller is the stream's owner and holds no reference to the scratch.
    let Scratch { drafts, transfers, in_call, .. } = unsafe { stream.scratch() };
    let drafted = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: by the caller's contract the words are those of the call.
        let aux = unsafe { sections::draft(process::current(), plan, words, drafts, transfers) };
        if host_memory::any() && transfers.capture.is_none() {
            // SAFETY: as above, on the stream's owner, outside its next record.
            unsafe { before_work(stream, plan, words, transfers, in_call) };
        }
        aux
    }));
    let aux = drafted.unwrap_or_else(|_| {
        process::stop(format_args!("an internal error occurred while {} was recorded", plan.api.name));
        drafts.clear();
        transfers.clear();
        0
    });
    let start = HEADER_BYTES + words.len() * 8;
    let mut flags = 0;
    let mut need = start;
    for draft in drafts.iter_mut() {
        draft.at_bytes = need as u32;
        need = need.saturating_add(section_bytes(draft.len_bytes as usize));
    }
    if need > process::current().longest_record_bytes() {
        flags = flag::TRUNCATED;
        drafts.clear();
        need = start;
    }
    // SAFETY: the caller is the stream's owner; every section was given its place within `need` bytes above.
    unsafe {
        let at = reserve(stream, this, need);
        if at.is_null() {
            return at;
        }
        write_head(at, api, words);
        *at.add(offset::FLAGS) |= flags;
        at.add(offset::AUX).cast::<u32>().write(aux);
        for draft in drafts.iter() {
            write_draft(at, draft);
        }
        begin(stream, at, need);
        at
    }
}

/// Stores a section that has its place.
///
/// # Safety
/// `record` has room for the section where it was given its place; memory sources are readable.
pub(crate) unsafe fn write_draft(record: *mut u8, draft: &Draft) {
    // SAFETY: the caller reserved the section at its offset; memory sources are readable by the call's own contract.
    unsafe {
        let section = record.add(draft.at_bytes as usize);
        write_section_head(section, draft.tag, draft.param, draft.presence, draft.len_bytes);
        let payload = section.add(SECTION_HEADER_BYTES);
        match draft.source {
            Source::Zeros
            | Source::CaptureNodesAfterCall(_)
            | Source::AfterCall(_)
            | Source::FileAfterCall(_)
            | Source::NamesAfterCall(_)
            | Source::Returned => {}
            Source::Memory(address) => payload.copy_from_nonoverlapping(address, draft.len_bytes as usize),
            Source::Inline(bytes) => payload.copy_from_nonoverlapping(bytes.as_ptr(), draft.len_bytes as usize),
            Source::Arguments(arguments) => arguments.store(payload),
        }
    }
}

/// Stores the results of a call in the sections that were drafted for it.
///
/// # Safety
/// The caller is the stream's owner, and its drafts describe the record.
pub(crate) unsafe fn fill_general(stream: &ThreadStream, record: *mut u8, code: i32, raw: u64) {
    // SAFETY: the caller is the stream's owner and holds no reference to the scratch.
    let scratch = unsafe { stream.scratch() };
    for draft in &scratch.drafts {
        // SAFETY: the section lies in the record; what a call that succeeded was to write is readable.
        unsafe {
            let section = record.add(draft.at_bytes as usize);
            let payload = section.add(SECTION_HEADER_BYTES);
            let presence = match draft.source {
                Source::AfterCall(address) if code == 0 => {
                    payload.copy_from_nonoverlapping(address, draft.len_bytes as usize);
                    Presence::Present
                }
                Source::FileAfterCall(address) if code == 0 => {
                    let Some(file) = file_of(address.read_unaligned()) else { continue };
                    payload.copy_from_nonoverlapping(file.to_bytes().as_ptr(), FileId::BYTES);
                    Presence::Present
                }
                Source::CaptureNodesAfterCall(told) if code == 0 => {
                    told.store(std::slice::from_raw_parts_mut(payload, draft.len_bytes as usize));
                    Presence::Present
                }
                Source::NamesAfterCall(handles) if code == 0 => {
                    handles.store_names(std::slice::from_raw_parts_mut(payload, draft.len_bytes as usize));
                    Presence::Present
                }
                Source::Returned => {
                    payload.cast::<u64>().write(raw);
                    Presence::Present
                }
                // A call that failed has no results.
                _ if code != 0 && matches!(draft.tag, SectionTag::BlobOut | SectionTag::GraphHostOut) => {
                    Presence::Absent
                }
                _ => continue,
            };
            section.add(2).write(presence as u8);
        }
    }
}
