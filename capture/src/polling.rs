//! Loops that ask whether work is done: a run of "not ready" answers to the same question is one record with a count.
//!
//! The record's entry tick is that of the first question and its return tick that of the last answer; `aux` counts the
//! answers. While the question is asked again the record is in flight, so that a process that dies then leaves it so. The
//! answer that ends the loop has a record of its own.

use std::sync::atomic::{AtomicU8, Ordering};

use hrr_format::catalogue::Effect;
use hrr_format::record::{HEADER_BYTES, flag, offset};

use crate::clock;
use crate::plan::{Plan, Route};

/// `hipErrorNotReady`.
pub(crate) const NOT_READY: i32 = 600;
/// Argument words of the longest question.
pub(crate) const MAX_QUERY_WORDS: usize = 2;

/// Whether answers of this entry point are folded: it asks, and has no sections.
#[inline(always)]
pub(crate) fn folds(plan: &Plan) -> bool {
    plan.api.effect == Effect::Query && plan.route == Route::Words && usize::from(plan.words) <= MAX_QUERY_WORDS
}

/// Takes the record of an answer "not ready" up again, if this call asks the same. Returns the entry tick.
///
/// # Safety
/// A whole record of a call that [`folds`] lies there, which only this thread writes.
pub(crate) unsafe fn ask_again(record: *mut u8, api: usize, words: &[u64]) -> Option<u64> {
    // SAFETY: by this function's contract the header and the argument words are there.
    unsafe {
        let same_api = usize::from(record.add(offset::API).cast::<u16>().read()) == api;
        let count = usize::from(record.add(offset::WORDS).read());
        if !same_api || count != words.len() || count > MAX_QUERY_WORDS {
            return None;
        }
        let asked = std::slice::from_raw_parts(record.add(HEADER_BYTES).cast::<u64>().cast_const(), count);
        if asked != words {
            return None;
        }
        let flags = AtomicU8::from_ptr(record.add(offset::FLAGS));
        // Relaxed: nothing is published with it; only this thread writes.
        flags.store(flags.load(Ordering::Relaxed) | flag::IN_FLIGHT, Ordering::Relaxed);
    }
    Some(clock::tick())
}

/// One more answer "not ready", at this tick.
///
/// # Safety
/// As for [`ask_again`].
pub(crate) unsafe fn answered(record: *mut u8, end: u64) {
    // SAFETY: by this function's contract the header is there.
    unsafe {
        record.add(offset::END).cast::<u64>().write(end);
        let count = record.add(offset::AUX).cast::<u32>();
        count.write(count.read().saturating_add(1));
    }
}
