//! Results of asynchronous device-to-host copies, from the enqueue to the program's own synchronisation.
//!
//! After each such copy an event of capture's own is recorded on the stream. Whenever a call of the program succeeds that
//! may have told it that work is done, the pending results are looked at, and those that are complete are snapshotted
//! before the call returns: the program could not have read them earlier. Nothing waits for the device.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hrr_format::catalogue::Effect;

use super::region::Region;
use crate::runtime::{self, LastError, NOT_READY};

/// How many results are pending; zero in metadata-only mode. Lets calls that synchronise find out for one load that there
/// is nothing to do.
static PENDING: AtomicUsize = AtomicUsize::new(0);
/// Counts enqueued copies, so that a synchronising call can tell which ones came before it.
static SEQUENCE: AtomicU64 = AtomicU64::new(0);

/// Whether results are pending.
#[inline(always)]
pub(crate) fn any() -> bool {
    // Relaxed: a thread always sees its own copies; another thread's copy concerns this one only through a synchronisation
    // of the program's, which orders the two.
    PENDING.load(Ordering::Relaxed) != 0
}

/// The number of copies enqueued until now.
#[inline(always)]
pub(crate) fn sequence() -> u64 {
    // Acquire: pairs with the release in `add`: copies up to this number were enqueued before.
    SEQUENCE.load(Ordering::Acquire)
}

/// Forgets everything, in a forked child.
pub(crate) fn forget() {
    PENDING.store(0, Ordering::Relaxed);
}

/// A result that the program cannot have seen yet.
#[derive(Clone, Copy, Debug)]
struct Pending {
    /// Blob number.
    number: u64,
    region: Region,
    stream: u64,
    device: i32,
    /// Capture's own event behind the copy.
    event: u64,
    sequence: u64,
}

/// A result that is complete and was not visible before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Complete {
    /// Blob number.
    pub(crate) number: u64,
    /// Where it lies.
    pub(crate) region: Region,
}

/// A synchronising call that succeeded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observation {
    /// What it waited for.
    pub(crate) effect: Effect,
    /// Its stream, where it has one.
    pub(crate) stream: Option<u64>,
    /// [`sequence`] at its entry.
    pub(crate) sequence: u64,
}

/// What is known of whether the runtime counts `hipErrorNotReady` as an error.
mod not_ready {
    pub(super) const UNKNOWN: u8 = 0;
    pub(super) const KEPT: u8 = 1;
    pub(super) const NOT_KEPT: u8 = 2;
}

/// The pending results of a process.
#[derive(Debug, Default)]
pub(crate) struct PendingResults {
    state: Mutex<State>,
    not_ready: AtomicU8,
}

#[derive(Debug, Default)]
struct State {
    pending: Vec<Pending>,
    /// Events that can be used again, by device.
    events: HashMap<i32, Vec<u64>>,
}

impl PendingResults {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers the results of a copy that was just enqueued on a stream. Earlier results in the same memory that the
    /// program has not seen will never be seen.
    pub(crate) fn add(&self, results: &[Complete], stream: u64) {
        let _last_error = LastError::keep();
        let device = runtime::device_of(stream);
        for &Complete { number, region } in results {
            self.drop_overlapping(&region);
            let reused = self.state().events.get_mut(&device).and_then(Vec::pop);
            let Some(event) = reused.or_else(|| runtime::create_event(device)) else {
                // Without an event there is no telling when the result is there: it counts as never observed.
                continue;
            };
            // SAFETY: the event is capture's own, of the stream's device; the program has just used the stream.
            if unsafe { runtime::event_record(event as *mut _, stream as *mut _) } != 0 {
                self.state().events.entry(device).or_default().push(event);
                continue;
            }
            let mut state = self.state();
            // Release: a call that sees this number at its entry came after the copy was enqueued.
            let sequence = SEQUENCE.fetch_add(1, Ordering::Release) + 1;
            state.pending.push(Pending { number, region, stream, device, event, sequence });
            PENDING.store(state.pending.len(), Ordering::Relaxed);
        }
    }

    /// Forgets results in memory that the program gives back or writes anew.
    pub(crate) fn drop_overlapping(&self, region: &Region) {
        if any() {
            self.state().take(|pending| pending.region.overlaps(region));
        }
    }

    /// The results that a synchronising call made visible, in the order of their copies.
    pub(crate) fn observe(&self, observation: &Observation) -> Vec<Complete> {
        let last_error = LastError::keep();
        let candidates: Vec<Pending> = self.state().pending.clone();
        let certain = self.certain(observation);
        let mut complete = Vec::new();
        // Work on one stream is done in order: behind the first result that is not there, the others are not either.
        let mut waiting_streams = Vec::new();
        for pending in candidates {
            if certain(&pending) {
                complete.push(pending.number);
            } else if !waiting_streams.contains(&(pending.device, pending.stream)) {
                match self.query(&pending, &last_error) {
                    Some(true) => complete.push(pending.number),
                    Some(false) => waiting_streams.push((pending.device, pending.stream)),
                    None => break,
                }
            }
        }
        // Another thread may have observed the same result meanwhile; whoever takes it out of the list snapshots it.
        let taken = self.state().take(|pending| complete.contains(&pending.number));
        taken.into_iter().map(|Pending { number, region, .. }| Complete { number, region }).collect()
    }

    /// Which results a call's own meaning says are complete.
    fn certain(&self, observation: &Observation) -> impl Fn(&Pending) -> bool + use<> {
        let Observation { effect, stream, sequence } = *observation;
        let device = if effect == Effect::BlockDevice { Some(runtime::device()) } else { None };
        move |pending| {
            pending.sequence <= sequence
                && match effect {
                    Effect::BlockStream => stream == Some(pending.stream),
                    Effect::BlockDevice => device == Some(pending.device),
                    _ => false,
                }
        }
    }

    /// Asks for capture's own event; `None` where asking could show in the program's last error.
    fn query(&self, pending: &Pending, last_error: &LastError) -> Option<bool> {
        // Relaxed: a fact about the runtime that never changes once it is known.
        let known = self.not_ready.load(Ordering::Relaxed);
        if !last_error.may_fail() && known != not_ready::NOT_KEPT {
            return None;
        }
        // SAFETY: the event is capture's own.
        let result = unsafe { runtime::event_query(pending.event as *mut _) };
        if result == NOT_READY && known == not_ready::UNKNOWN {
            // SAFETY: the call has no preconditions.
            let kept = unsafe { runtime::peek_last_error() } == NOT_READY;
            let learnt = if kept { not_ready::KEPT } else { not_ready::NOT_KEPT };
            self.not_ready.store(learnt, Ordering::Relaxed);
        }
        Some(result == 0)
    }
}

impl State {
    /// Takes results out of the list; their events are free again.
    fn take(&mut self, wanted: impl Fn(&Pending) -> bool) -> Vec<Pending> {
        let (taken, kept) = std::mem::take(&mut self.pending).into_iter().partition(|pending| wanted(pending));
        self.pending = kept;
        PENDING.store(self.pending.len(), Ordering::Relaxed);
        let taken: Vec<Pending> = taken;
        for pending in &taken {
            self.events.entry(pending.device).or_default().push(pending.event);
        }
        taken
    }
}
