//! Entry and return of a recorded call.
//!
//! A shim calls [`enter`] with the argument words, then the real function, then [`leave`]. Between the two the record
//! is published and marked in flight; `leave` completes it in place. The fast routes do no allocation, take no lock and
//! make no system call.
//!
//! Per thread there are two words of state ([`Hot`]), without a destructor, so that calls from static constructors,
//! exit handlers and thread-exit destructors find it. While a thread is inside a recorded call, what it calls is the
//! runtime's own doing and passes through unrecorded; that includes whatever capture itself asks of the runtime.
//!
//! * [`records`]: the record itself
//! * [`around`]: what a call has to do with others
//! * [`windowed`]: calls where only windows are recorded

mod around;
mod records;
mod windowed;

use std::cell::Cell;
use std::sync::atomic::{Ordering, compiler_fence};

use hrr_format::record::{DEVICE_AFTER, HEADER_BYTES, offset};

use crate::contents::host_memory::{self, InCall};
use crate::contents::pending_results;
use crate::guest::small_stack;
use crate::guest::unnoticed::{SignalsBlocked, Unnoticed};
use crate::hooks::Hook;
use crate::plan::{self, OrderRole, Plan, Route};
use crate::polling::{self, MAX_QUERY_WORDS};
use crate::process;
use crate::sections::{Draft, Transfers};
use crate::window::contexts::Contexts;
use crate::window::outside::Kept;
use crate::writer::ThreadStream;
use crate::{clock, runtime};
use around::{after_call, after_use, before_launch, before_wait};
use records::{fill_fixed_outs, write_fixed_outs, write_general, write_launch, write_words};
pub(crate) use records::{fill_general, reserve, set_returned, write_draft, write_head, write_section_head};
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
    /// Whether the windows know of the device that the thread's work is for.
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
    pub(crate) contexts: Contexts,
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
            // Until the thread is outside again: one that leaves its first call by a jump is recorded all the same.
            let _signals = SignalsBlocked::new();
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
                    let device = runtime::device_now();
                    record.add(offset::AUX).cast::<u32>().write(DEVICE_AFTER | device as u32);
                    note_contexts(stream, plan, record, device);
                    stream.scratch().contexts.is_recorded();
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

/// Follows what a call about contexts did to its thread's stack of them.
///
/// # Safety
/// The caller is the stream's owner and holds no reference to the scratch; the record is of a call to the plan's entry point that
/// succeeded.
pub(crate) unsafe fn note_contexts(stream: &ThreadStream, plan: &Plan, record: *const u8, device: i32) {
    // SAFETY: the record has as many words as the plan says; a call that succeeded stored what it gave.
    unsafe {
        let words = std::slice::from_raw_parts(record.add(HEADER_BYTES).cast::<u64>(), usize::from(plan.words));
        let gives = plan.api.name == "hipCtxCreate" && words[0] != 0;
        let given = if gives { (words[0] as *const u64).read_unaligned() } else { 0 };
        stream.scratch().contexts.returned(plan.api, words, given, device);
    }
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

/// Opens the process's archive and the thread's stream as far as that has not happened.
#[cold]
fn first_call() -> *const ThreadStream {
    let _unnoticed = Unnoticed::new();
    small_stack::with_own_stack_or_stop("a thread's stream was opened", || {
        let process = process::recording()?;
        process.open_stream()
    })
    .unwrap_or(std::ptr::null())
}
