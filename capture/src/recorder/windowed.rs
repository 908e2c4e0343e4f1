//! Entry and return of a call where only windows are recorded.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{Ordering, compiler_fence};

use hrr_format::catalogue::Effect;
use hrr_format::record::{flag, offset};

use super::{Call, HOT, Hot, Inside, first_call, reserve, set_returned, write_words};
use crate::guest::unnoticed::Unnoticed;
use crate::interception::shims;
use crate::plan::Plan;
use crate::process::{self, Process};
use crate::window::outside;
use crate::window::trigger::Moment;
use crate::window::{self, Next, Standing, Windows};
use crate::writer::ThreadStream;
use crate::{clock, plan, runtime};

/// What became of a call that was entered where not all calls are recorded.
pub(super) enum Entered {
    /// It is recorded.
    Inside,
    /// It is outside a window.
    Outside(Call),
    /// It is none of capture's business.
    Passing,
}

/// Enters a call where only windows are recorded, or nothing.
///
/// # Safety
/// As [`super::enter`]; the thread's stream is busy.
#[cold]
pub(super) unsafe fn enter_window<const RUNTIME: usize>(
    hot: &Hot,
    stream: &ThreadStream,
    stream_ptr: *const ThreadStream,
    api: usize,
    words: &[u64],
) -> Entered {
    let Some((process, windows)) = process::windows() else { return Entered::Passing };
    let _unnoticed = Unnoticed::new();
    hot.inside.set(Inside::Call);
    hot.runtime.set(0);
    // SAFETY: the plans were built before the gate was opened; `api` comes from a shim.
    let plan = unsafe { plan::of(api) };
    let standing = if RUNTIME == 0 {
        let moment = Moment::of(|| window::counts(plan));
        match stand(process, windows, stream, &moment) {
            Some(standing) => standing,
            None => return Entered::Passing,
        }
    } else if window::is_open() {
        // Nothing of a second runtime is kept outside windows.
        return Entered::Inside;
    } else {
        return Entered::Passing;
    };
    match standing {
        Standing::Inside(number) => {
            // SAFETY: the caller is the stream's owner.
            unsafe { in_window(hot, stream, stream_ptr, number) };
            note_device(hot, windows, plan);
            if plan.awaits_value {
                window::note_await();
            }
            Entered::Inside
        }
        Standing::Outside => {
            hot.polled.set(std::ptr::null_mut());
            note_device(hot, windows, plan);
            // SAFETY: by this function's contract.
            let record = unsafe { outside::enter(process, windows, stream, plan, words) };
            if record.is_null() && !matches!(plan.api.effect, Effect::Enqueue | Effect::BlockCopy) {
                // A window that is opened meanwhile need not wait for a call that does nothing but wait.
                stream.set_busy(false);
            }
            Entered::Outside(Call {
                record,
                stream: stream_ptr,
                plan,
                sequence: 0,
                follows: false,
                polled_again: 0,
                outside: true,
            })
        }
    }
}

/// Tells the windows of the device that the thread's work is for: the work may change a variable of a device on which the program
/// makes nothing.
fn note_device(hot: &Hot, windows: &Windows, plan: &Plan) {
    if plan.moves_thread {
        hot.device_known.set(false);
    } else if matches!(plan.api.effect, Effect::Enqueue | Effect::BlockCopy) && !hot.device_known.replace(true) {
        let device = runtime::device();
        windows.objects().uses(device);
    }
}

/// Finds out where a call stands, waiting while a window is being opened; `None` where the recording has ended.
fn stand(process: &'static Process, windows: &Windows, stream: &ThreadStream, moment: &Moment) -> Option<Standing> {
    loop {
        match windows.next(process, stream, moment) {
            Next::Go(standing) => return process::windows().map(|_| standing),
            Next::Wait => {
                stream.set_busy(false);
                window::pause();
                stream.set_busy(true);
                // As in `enter`: the store above must be made before the window's state is read.
                compiler_fence(Ordering::SeqCst);
            }
        }
    }
}

/// Writes a record that was put together elsewhere, as of a call that is made now.
///
/// # Safety
/// The caller is the stream's owner; the record is whole.
unsafe fn write_whole(stream: &ThreadStream, this: *const ThreadStream, record: &[u64]) {
    let need = size_of_val(record);
    // SAFETY: by the caller's contract; the record is copied whole but for its length, which publishes it.
    unsafe {
        let at = reserve(stream, this, need);
        if !at.is_null() {
            let bytes = std::slice::from_raw_parts(record.as_ptr().cast::<u8>(), need);
            at.add(offset::API).copy_from_nonoverlapping(bytes[offset::API..].as_ptr(), need - offset::API);
            at.add(offset::BEGIN).cast::<u64>().write(clock::tick());
            at.add(offset::END).cast::<u64>().write(clock::tick());
            stream.publish(at, need);
            stream.count_event();
        }
    }
}

/// Before a thread's first call in a window: its contexts and its device, which it may have set outside.
unsafe fn in_window(hot: &Hot, stream: &ThreadStream, this: *const ThreadStream, number: u64) {
    if hot.window.replace(number) == number {
        return;
    }
    hot.polled.set(std::ptr::null_mut());
    let device = runtime::device();
    // SAFETY: the caller is the stream's owner and holds no reference to the scratch.
    let contexts = unsafe { stream.scratch() }.contexts.catch_up();
    for record in &contexts {
        // SAFETY: as above.
        unsafe { write_whole(stream, this, record) };
    }
    if device == 0 && number == 1 && contexts.is_empty() {
        return;
    }
    // SAFETY: the caller is the stream's owner; the record is written within its length.
    unsafe {
        let at = write_words(stream, this, shims::id::hipSetDevice, &[device as u64]);
        if !at.is_null() {
            at.add(offset::END).cast::<u64>().write(clock::tick());
            *at.add(offset::FLAGS) |= flag::PREAMBLE;
            set_returned(at);
            stream.count_event();
        }
    }
}

/// Completes a call that was entered outside a window.
pub(super) unsafe fn leave_outside(hot: &Hot, stream: &ThreadStream, call: &Call, code: i32, raw: u64) {
    if call.record.is_null() {
        return;
    }
    let _unnoticed = Unnoticed::new();
    let Some((process, windows)) = process::windows() else { return };
    let left = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: by the contract of `leave`.
        unsafe { outside::leave(process, windows, stream, call.plan, code, raw) }
    }));
    let Ok(left) = left else {
        return process::stop(format_args!("an internal error occurred after {} had returned", call.plan.api.name));
    };
    let Some(record) = left else { return };
    // SAFETY: the caller is the stream's owner.
    unsafe {
        in_window(hot, stream, call.stream, window::number());
        // It was entered before the window was opened, and counts as made now.
        write_whole(stream, call.stream, &record);
    }
}

/// Opens or closes a window now, where that was asked for and can be done.
pub(crate) fn look_at_window() {
    HOT.with(|hot| {
        if hot.inside.get() != Inside::Program {
            return;
        }
        hot.inside.set(Inside::Call);
        if hot.stream.get().is_null() {
            hot.stream.set(first_call());
        }
        // SAFETY: the thread holds a count on its stream until it forgets it.
        if let (Some(stream), Some((process, windows))) = (unsafe { hot.stream.get().as_ref() }, process::windows()) {
            hot.runtime.set(0);
            stream.set_busy(true);
            compiler_fence(Ordering::SeqCst);
            stand(process, windows, stream, &Moment::of(|| false));
            stream.set_busy(false);
        }
        hot.inside.set(Inside::Program);
    });
}
