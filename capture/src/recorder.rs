//! Entry and return of a recorded call.
//!
//! A shim calls [`enter`] with the argument words, then the real function, then [`leave`]. Between the two the record
//! is published and marked in flight; `leave` completes it in place. The fast routes do no allocation, take no lock and
//! make no system call.
//!
//! Per thread there are two words of state ([`Hot`]), without a destructor, so that calls from static constructors,
//! exit handlers and thread-exit destructors find it. While a thread is inside a recorded call, what it calls is the
//! runtime's own doing and passes through unrecorded; that includes whatever capture itself asks of the runtime.

mod windowed;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, Ordering, compiler_fence};

use hrr_format::catalogue::{Effect, Role};
use hrr_format::record::{
    DEVICE_AFTER, HEADER_BYTES, Presence, SECTION_HEADER_BYTES, SectionTag, flag, marker, offset, section_bytes,
};

use crate::contents::graph_copies::{self, GraphCopy};
use crate::contents::host_memory::{self, InCall, Look, Recording};
use crate::contents::memory::Trust;
use crate::contents::pending_results::{self, Observed, Waited};
use crate::errno::KeepErrno;
use crate::hooks::{Hook, HookCall};
use crate::plan::{self, OrderRole, Plan, Route};
use crate::polling::{self, MAX_QUERY_WORDS};
use crate::process;
use crate::sections::{self, Draft, Source, Transfers};
use crate::window::outside::Kept;
use crate::writer::ThreadStream;
use crate::{clock, launch, runtime, small_stack};
pub(crate) use windowed::look_at_window;
use windowed::{Entered, enter_window, leave_outside};

/// Where a thread stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Inside {
    /// In the program.
    Program,
    /// In a recorded call.
    Call,
    /// The thread is one of capture's own.
    Never,
}

struct Hot {
    inside: Cell<Inside>,
    /// Number of the runtime that the call is in.
    runtime: Cell<usize>,
    stream: Cell<*const ThreadStream>,
    /// Number of the window that the thread made its last recorded call in; zero without windows.
    window: Cell<u64>,
    /// Whether the windows know of the device that the thread's work outside of them is for.
    device_known: Cell<bool>,
    /// The record of the thread's last call, if that was a query answered "not ready"; null otherwise.
    polled: Cell<*mut u8>,
}

thread_local! {
    static HOT: Hot = const {
        Hot {
            inside: Cell::new(Inside::Program),
            runtime: Cell::new(0),
            stream: Cell::new(std::ptr::null()),
            window: Cell::new(0),
            device_known: Cell::new(false),
            polled: Cell::new(std::ptr::null_mut()),
        }
    };
}

/// What a shim carries from [`enter`] to [`leave`].
pub(crate) struct Call {
    record: *mut u8,
    stream: *const ThreadStream,
    plan: &'static Plan,
    /// Copies enqueued before the call, by which it can tell which of them it made visible.
    sequence: u64,
    /// Whether there is memory that devices use directly, so that the call may have to do with it.
    follows: bool,
    /// Entry tick of a query that is asked again, for which `record` is that of the answers so far; 0 = any other call.
    polled_again: u64,
    /// The call was entered outside a window; `record` is null where nothing is kept of it.
    outside: bool,
}

/// What a thread remembers of its call between entry and return, and buffers it reuses.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) drafts: Vec<Draft>,
    pub(crate) transfers: Transfers,
    pub(crate) kept: Kept,
    in_call: InCall,
}

/// Keeps a thread of capture's own from being recorded, whatever it calls.
pub(crate) fn never_record_this_thread() {
    HOT.with(|hot| hot.inside.set(Inside::Never));
}

/// Forgets the thread's stream: it was closed, or belongs to the parent process.
pub(crate) fn forget_stream() {
    HOT.with(|hot| {
        hot.stream.set(std::ptr::null());
        hot.window.set(0);
        hot.device_known.set(false);
        hot.polled.set(std::ptr::null_mut());
    });
}

/// Number of the runtime that the calling thread's recorded call is in.
pub(crate) fn runtime() -> usize {
    HOT.with(|hot| hot.runtime.get())
}

/// The calling thread's stream, or null.
pub(crate) fn own_stream() -> *const ThreadStream {
    HOT.with(|hot| hot.stream.get())
}

/// Begins a call of a runtime. Returns `None` where it is not recorded.
///
/// # Safety
/// `words` are the argument words of entry point `api`, whose pointers are as valid as the call demands.
#[inline(never)]
pub(crate) unsafe fn enter<const RUNTIME: usize>(api: usize, words: &[u64]) -> Option<Call> {
    HOT.with(|hot| {
        if hot.inside.get() != Inside::Program {
            return None;
        }
        let mut stream_ptr = hot.stream.get();
        if stream_ptr.is_null() {
            hot.inside.set(Inside::Call);
            stream_ptr = first_call();
            hot.inside.set(Inside::Program);
            if stream_ptr.is_null() {
                if process::is_under_way() {
                    // There was no room for this thread, and will be none: it is not asked for at each of its calls.
                    hot.inside.set(Inside::Never);
                }
                return None;
            }
            hot.stream.set(stream_ptr);
        }
        // SAFETY: the thread holds a count on its stream until it forgets it.
        let stream = unsafe { &*stream_ptr };
        stream.set_busy(true);
        // The store above must be made before the gate is read; `process::finish` supplies the barrier that makes the
        // processor agree.
        compiler_fence(Ordering::SeqCst);
        if !process::is_recording() {
            // SAFETY: by this function's contract.
            match unsafe { enter_window::<RUNTIME>(hot, stream, stream_ptr, api, words) } {
                Entered::Inside => {}
                Entered::Outside(call) => return Some(call),
                Entered::Passing => {
                    hot.inside.set(Inside::Program);
                    stream.set_busy(false);
                    return None;
                }
            }
        }
        hot.inside.set(Inside::Call);
        hot.runtime.set(RUNTIME);
        let sequence = pending_results::sequence();
        // SAFETY: the plans were built before the gate opened; `api` comes from a shim.
        let plan = unsafe { plan::of(api) };
        let polled = hot.polled.replace(std::ptr::null_mut());
        if !polled.is_null() {
            // SAFETY: nothing was written to the stream since, so the record's segment is still the current one.
            if let Some(begin) = unsafe { polling::ask_again(polled, api, words) } {
                let follows = host_memory::in_flight();
                return Some(Call {
                    record: polled,
                    stream: stream_ptr,
                    plan,
                    sequence,
                    follows,
                    polled_again: begin,
                    outside: false,
                });
            }
        }
        let follows = host_memory::any();
        if follows {
            // SAFETY: as for this function, on the stream's owner.
            unsafe {
                before_wait(stream, plan, words);
                if matches!(plan.route, Route::Words | Route::FixedOuts) {
                    before_launch(stream, plan, words, None);
                }
            }
        }
        // SAFETY: by this function's contract, on the stream's owner.
        let record = unsafe {
            match plan.route {
                Route::Words => write_words(stream, stream_ptr, api, words),
                Route::FixedOuts => write_fixed_outs(stream, stream_ptr, api, words, plan),
                Route::Launch => write_launch(stream, stream_ptr, api, words, plan),
                Route::General => write_general(stream, stream_ptr, api, words, plan),
            }
        };
        if record.is_null() {
            hot.inside.set(Inside::Program);
            stream.set_busy(false);
            return None;
        }
        Some(Call { record, stream: stream_ptr, plan, sequence, follows, polled_again: 0, outside: false })
    })
}

/// Completes a call: `code` is its return code, `raw` its return value as bytes.
///
/// # Safety
/// `call` came from [`enter`] on this thread, and the real function has returned.
#[inline(never)]
pub(crate) unsafe fn leave(call: Call, code: i32, raw: u64) {
    let end = clock::tick();
    HOT.with(|hot| {
        if hot.stream.get() != call.stream {
            // The call forked, and this is the child: the record is the parent's.
            hot.inside.set(Inside::Program);
            return;
        }
        // SAFETY: the thread holds a count on its stream.
        let stream = unsafe { &*call.stream };
        if call.outside {
            // SAFETY: as for this function.
            unsafe { leave_outside(hot, stream, &call, code, raw) };
            stream.set_busy(false);
            hot.inside.set(Inside::Program);
            return;
        }
        if call.polled_again != 0 {
            // SAFETY: as for this function.
            unsafe { leave_query(hot, stream, call, code, end) };
            stream.set_busy(false);
            hot.inside.set(Inside::Program);
            return;
        }
        let Call { record, plan, .. } = call;
        // SAFETY: the record lies in the stream's current segment, is 8-byte aligned and has a whole header; only this
        // thread writes to it.
        unsafe {
            record.add(offset::END).cast::<u64>().write(end);
            record.add(offset::RET).cast::<i32>().write(code);
        }
        match plan.route {
            Route::Words | Route::Launch => {}
            // SAFETY: the record has the sections that `write_fixed_outs` laid out.
            Route::FixedOuts if code == 0 => unsafe { fill_fixed_outs(record, plan) },
            Route::FixedOuts => {}
            // SAFETY: the scratch of this thread describes the record.
            Route::General => unsafe {
                fill_general(stream, record, code, raw);
                if plan.hook == Hook::Context && code == 0 {
                    let device = runtime::device_now() as u32;
                    record.add(offset::AUX).cast::<u32>().write(DEVICE_AFTER | device);
                }
            },
        }
        if code == polling::NOT_READY && polling::folds(plan) {
            // SAFETY: as above.
            unsafe { record.add(offset::AUX).cast::<u32>().write(1) };
        }
        // SAFETY: the record has a whole header.
        unsafe { set_returned(record) };
        stream.count_event();
        if plan.route == Route::General || (plan.order != OrderRole::None && pending_results::any()) {
            // SAFETY: as for this function; the record is complete.
            unsafe { after_call(stream, &call, code, raw) };
        }
        if call.follows {
            // SAFETY: as above.
            unsafe { after_use(stream, &call, code) };
        }
        let len_bytes = HEADER_BYTES + usize::from(plan.words) * 8;
        if code == polling::NOT_READY && polling::folds(plan) && stream.cursor() == record.wrapping_add(len_bytes) {
            hot.polled.set(record);
        }
        stream.set_busy(false);
        hot.inside.set(Inside::Program);
    });
}

/// Completes a query that was asked again.
///
/// # Safety
/// As for [`leave`]; the call's record is that of the answers before.
#[cold]
unsafe fn leave_query(hot: &Hot, stream: &ThreadStream, mut call: Call, code: i32, end: u64) {
    // SAFETY: the record is still the stream's last: the thread was in the runtime.
    unsafe {
        if code == polling::NOT_READY {
            polling::answered(call.record, end);
            hot.polled.set(call.record);
        }
        set_returned(call.record);
    }
    if code == polling::NOT_READY {
        return;
    }
    // Another answer gets a record of its own.
    let words_at = call.record.wrapping_add(HEADER_BYTES).cast::<u64>();
    let mut words = [0; MAX_QUERY_WORDS];
    let count = usize::from(call.plan.words).min(MAX_QUERY_WORDS);
    // SAFETY: the record has as many words as its entry point takes; see `polling::folds`.
    unsafe { std::ptr::copy_nonoverlapping(words_at, words.as_mut_ptr(), count) };
    let need = HEADER_BYTES + count * 8;
    // SAFETY: this is the stream's owner; the record is written within `need` bytes and published whole.
    unsafe {
        let at = reserve(stream, call.stream, need);
        if at.is_null() {
            return;
        }
        write_head(at, usize::from(call.plan.api.id), &words[..count]);
        at.add(offset::BEGIN).cast::<u64>().write(call.polled_again);
        at.add(offset::END).cast::<u64>().write(end);
        at.add(offset::RET).cast::<i32>().write(code);
        set_returned(at);
        stream.publish(at, need);
        call.record = at;
    }
    stream.count_event();
    if call.plan.order != OrderRole::None && pending_results::any() {
        // SAFETY: as for this function; the record is complete.
        unsafe { after_call(stream, &call, code, 0) };
    }
    if call.follows {
        // SAFETY: as above.
        unsafe { after_use(stream, &call, code) };
    }
}

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

/// Opens the process's archive and the thread's stream as far as that has not happened.
#[cold]
fn first_call() -> *const ThreadStream {
    let _errno = KeepErrno::new();
    small_stack::with_own_stack(|| {
        let process = process::recording()?;
        process.open_stream()
    })
    .unwrap_or_else(|| {
        process::stop(format_args!("an internal error occurred while a thread's stream was opened"));
        None
    })
    .unwrap_or(std::ptr::null())
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
    let _errno = KeepErrno::new();
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
unsafe fn begin(stream: &ThreadStream, at: *mut u8, need: usize) {
    // SAFETY: the caller reserved `need` bytes at `at` and filled them.
    unsafe {
        at.add(offset::BEGIN).cast::<u64>().write(clock::tick());
        stream.publish(at, need);
    }
}

#[inline(always)]
unsafe fn write_words(stream: &ThreadStream, this: *const ThreadStream, api: usize, words: &[u64]) -> *mut u8 {
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
unsafe fn write_fixed_outs(
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
unsafe fn fill_fixed_outs(record: *mut u8, plan: &Plan) {
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
unsafe fn write_launch(
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

unsafe fn write_general(
    stream: &ThreadStream,
    this: *const ThreadStream,
    api: usize,
    words: &[u64],
    plan: &'static Plan,
) -> *mut u8 {
    let _errno = KeepErrno::new();
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
            Source::Zeros | Source::AfterCall(_) | Source::Returned => {}
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

/// What follows a call whose record is complete: handles and memory it gave out are remembered, results that it made
/// visible are snapshotted.
#[cold]
unsafe fn after_call(stream: &ThreadStream, call: &Call, code: i32, raw: u64) {
    let _errno = KeepErrno::new();
    let done = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: by the contract of `leave`.
        unsafe { follow_up(stream, call, code, raw) }
    }));
    if done.is_err() {
        process::stop(format_args!("an internal error occurred after {} had returned", call.plan.api.name));
    }
}

unsafe fn follow_up(stream: &ThreadStream, call: &Call, code: i32, raw: u64) {
    let process = process::current();
    let plan = call.plan;
    // SAFETY: the record has as many words as the plan says.
    let words = unsafe {
        std::slice::from_raw_parts(call.record.add(HEADER_BYTES).cast::<u64>().cast_const(), usize::from(plan.words))
    };
    let hook_call = HookCall { process, plan, words };
    let mut waited = None;
    if plan.route == Route::General {
        // SAFETY: the caller is the stream's owner and holds no reference to the scratch.
        let transfers = unsafe { &mut stream.scratch().transfers };
        // SAFETY: by the contract of `leave`.
        unsafe { hook_call.at_return(transfers, code, raw) };
        if code == 0 {
            if let Some(capture) = transfers.capture.filter(|_| !transfers.graph_copies.is_empty()) {
                process.graphs().capture(capture, &transfers.graph_copies);
            }
            let Some(writer) = process.blobs() else { return };
            if plan.api.effect == Effect::BlockCopy {
                for result in &transfers.results {
                    process.pending().drop_overlapping(&result.region);
                    // SAFETY: the copy has returned, so the runtime has written all of the memory.
                    let read = unsafe { writer.add(writer.blobs, result.number, &result.region, Trust::Readable) };
                    if read {
                        // SAFETY: the caller is the stream's owner.
                        unsafe { write_observed(stream, call.stream, result.number) };
                    }
                }
            } else if !transfers.results.is_empty() && self::runtime() == 0 {
                process.pending().add(&transfers.results, hook_call.stream());
                // A copy to pageable memory may have waited for its end, as CUDA's documentation says of the like. The program
                // may then read, and change, the memory at once.
                let pageable = transfers.results.iter().any(|result| result.trust == Trust::Doubtful);
                waited = if pageable { Some(Waited::Stream(hook_call.stream())) } else { None };
            }
        }
    }
    // Pending results are those of the first runtime, whose events stand behind them: a second one's are never observed.
    let Some(writer) = process.blobs().filter(|_| code == 0 && pending_results::any() && self::runtime() == 0) else {
        return;
    };
    let pending = process.pending();
    match plan.order {
        OrderRole::None => {}
        OrderRole::Record { event_word } => {
            pending.event_recorded(hook_call.word(event_word.into()), hook_call.stream())
        }
        OrderRole::Wait { event_word } => pending.stream_waits(hook_call.stream(), hook_call.word(event_word.into())),
        OrderRole::Observe => waited = Some(hook_call.waited()),
    }
    if let Some(waited) = waited {
        for Observed { number, contents } in pending.observe(waited, call.sequence, writer) {
            if let Some(contents) = contents {
                writer.submit(writer.blobs, number, contents);
            }
            // SAFETY: the caller is the stream's owner.
            unsafe { write_observed(stream, call.stream, number) };
        }
    }
}

/// Remembers what a call that waits covers of the work that uses host memory directly.
#[cold]
unsafe fn before_wait(stream: &ThreadStream, plan: &'static Plan, words: &[u64]) {
    if plan.order != OrderRole::Observe || plan.api.effect == Effect::Query || !host_memory::in_flight() {
        return;
    }
    let _errno = KeepErrno::new();
    let done = catch_unwind(AssertUnwindSafe(|| {
        let process = process::current();
        let Some(memory) = process.host_memory() else { return };
        // SAFETY: the caller is the stream's owner and holds no reference to the scratch.
        let in_call = unsafe { &mut stream.scratch().in_call };
        // With several threads, another one may write to the memory while this one waits.
        let look = if process.thread_count() == 1 { Look::Now } else { Look::Never };
        memory.before_wait(HookCall { process, plan, words }.waited(), look, in_call);
    }));
    if done.is_err() {
        process::stop(format_args!("an internal error occurred before {} waited", plan.api.name));
    }
}

/// Records what the host stored in memory that a launch, or a fill, is given addresses in, or that it becomes part of a graph.
/// `draft` has a launch's arguments.
#[cold]
unsafe fn before_launch(stream: &ThreadStream, plan: &'static Plan, words: &[u64], draft: Option<&Draft>) {
    let is_device = |role: &Role| matches!(role, Role::Device(..));
    let enqueues = matches!(plan.api.effect, Effect::Enqueue | Effect::BlockCopy);
    if draft.is_none() && !(enqueues && plan.api.param_with(is_device).is_some()) {
        return;
    }
    let _errno = KeepErrno::new();
    let done = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the caller is the stream's owner and holds no reference to the scratch.
        let Scratch { transfers, in_call, .. } = unsafe { stream.scratch() };
        transfers.clear();
        match draft {
            // SAFETY: the launch's arguments are readable, by the contract of `enter`.
            Some(draft) => unsafe { launch::addresses(draft, &mut |address| transfers.addresses.push(address)) },
            None => {
                let device = plan.api.params.iter().filter(|param| is_device(&param.role));
                let addresses = device.map(|param| words[usize::from(param.word)]);
                transfers.addresses.extend(addresses.filter(|&address| host_memory::may_hold(address)));
            }
        }
        if transfers.addresses.is_empty() && draft.is_none() {
            return;
        }
        let process = process::current();
        let hip_stream = HookCall { process, plan, words }.stream();
        let capture = if graph_copies::capturing() { runtime::capture_of(hip_stream) } else { None };
        if let Some(capture) = capture {
            let nodes: Vec<GraphCopy> = transfers.addresses.iter().map(|&address| GraphCopy::direct(address)).collect();
            process.graphs().capture(capture, &nodes);
        } else {
            // SAFETY: as for this function.
            unsafe { before_work(stream, plan, words, transfers, in_call) };
        }
    }));
    if done.is_err() {
        process::stop(format_args!("an internal error occurred before {}", plan.api.name));
    }
}

/// Records what the host stored in memory whose addresses the call's work is given.
unsafe fn before_work(
    stream: &ThreadStream,
    plan: &'static Plan,
    words: &[u64],
    transfers: &mut Transfers,
    in_call: &mut InCall,
) {
    let process = process::current();
    let (Some(memory), Some(writer)) = (process.host_memory(), process.blobs()) else { return };
    let hip_stream = HookCall { process, plan, words }.stream();
    std::mem::swap(&mut in_call.addresses, &mut transfers.addresses);
    // SAFETY: the caller is the stream's owner, inside its call.
    unsafe { memory.before_work(&Recording { stream, writer }, hip_stream, in_call) };
    if plan.api.effect == Effect::Enqueue {
        for result in &transfers.results {
            memory.before_staged_copy(result.region.address, hip_stream, in_call);
        }
    }
}

/// What follows a call that may have to do with host memory which devices use directly.
#[cold]
unsafe fn after_use(stream: &ThreadStream, call: &Call, code: i32) {
    let _errno = KeepErrno::new();
    let done = catch_unwind(AssertUnwindSafe(|| {
        let (process, plan) = (process::current(), call.plan);
        let (Some(memory), Some(writer)) = (process.host_memory(), process.blobs()) else { return };
        // SAFETY: the record has as many words as the plan says, and the caller holds no reference to the scratch.
        let (words, in_call) = unsafe {
            let words = call.record.add(HEADER_BYTES).cast::<u64>().cast_const();
            (std::slice::from_raw_parts(words, usize::from(plan.words)), &mut stream.scratch().in_call)
        };
        memory.after_work(in_call, plan.api.effect, code == 0);
        let hook_call = HookCall { process, plan, words };
        match plan.order {
            _ if !host_memory::in_flight() || code != 0 => return in_call.give_up(),
            OrderRole::None => return,
            OrderRole::Record { event_word } => {
                return memory.event_recorded(hook_call.word(event_word.into()), hook_call.stream());
            }
            OrderRole::Wait { event_word } => {
                return memory.stream_waits(hook_call.stream(), hook_call.word(event_word.into()));
            }
            OrderRole::Observe if plan.api.effect == Effect::Query => {
                memory.before_wait(hook_call.waited(), Look::Never, in_call);
            }
            OrderRole::Observe => {}
        }
        // SAFETY: the caller is the stream's owner, whose record is complete.
        unsafe { memory.after_wait(&Recording { stream, writer }, in_call) };
    }));
    if done.is_err() {
        process::stop(format_args!("an internal error occurred after {} had returned", call.plan.api.name));
    }
}

/// Says in the stream that a result became visible with the call before.
unsafe fn write_observed(stream: &ThreadStream, this: *const ThreadStream, number: u64) {
    const WORDS: usize = 1;
    let need = HEADER_BYTES + WORDS * 8;
    // SAFETY: the caller is the stream's owner; the marker is written within `need` bytes.
    unsafe {
        let at = reserve(stream, this, need);
        if at.is_null() {
            return;
        }
        write_head(at, usize::from(marker::OBSERVED), &[number]);
        let tick = clock::tick();
        at.add(offset::FLAGS).write(0);
        at.add(offset::BEGIN).cast::<u64>().write(tick);
        at.add(offset::END).cast::<u64>().write(tick);
        stream.publish(at, need);
    }
}
