//! What replay itself is waiting for: calls to the runtime that it makes for its own sake, and the work of planning and
//! staging. The watchdog looks here for what no runner's board shows.
//!
//! The registry is the process's: a call can be registered before there is a replay, such as the loading of the runtime.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Something under way.
#[derive(Clone, Debug)]
struct OwnCall {
    number: u64,
    what: &'static str,
    since: Instant,
    /// Pulses when it was last seen to move, for work that is no single call.
    pulses: Option<u64>,
}

static CALLS: Mutex<Vec<OwnCall>> = Mutex::new(Vec::new());
static NEXT: AtomicU64 = AtomicU64::new(0);
static PULSES: AtomicU64 = AtomicU64::new(0);

/// Keeps something registered for as long as it lives.
#[derive(Debug)]
pub(crate) struct Guard {
    number: u64,
}

impl Drop for Guard {
    fn drop(&mut self) {
        CALLS.lock().unwrap_or_else(PoisonError::into_inner).retain(|call| call.number != self.number);
    }
}

/// Registers a call that the calling thread is about to make.
pub(crate) fn enter(what: &'static str) -> Guard {
    register(what, None)
}

/// Registers work that tells by [`pulse`] that it moves.
pub(crate) fn enter_work(what: &'static str) -> Guard {
    // Relaxed: only compared with later readings.
    register(what, Some(PULSES.load(Ordering::Relaxed)))
}

/// Tells that work moves.
pub(crate) fn pulse() {
    // Relaxed: the watchdog only samples.
    PULSES.fetch_add(1, Ordering::Relaxed);
}

fn register(what: &'static str, pulses: Option<u64>) -> Guard {
    // Relaxed: a number, unique by itself.
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let call = OwnCall { number, what, since: Instant::now(), pulses };
    CALLS.lock().unwrap_or_else(PoisonError::into_inner).push(call);
    Guard { number }
}

/// What has been under way for at least `limit` without a sign of life, the longest first.
pub(crate) fn overdue(limit: Duration) -> Option<(&'static str, Duration)> {
    let mut calls = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
    // Relaxed: a sample.
    let pulses = PULSES.load(Ordering::Relaxed);
    for call in calls.iter_mut() {
        if call.pulses.is_some_and(|seen| seen != pulses) {
            (call.pulses, call.since) = (Some(pulses), Instant::now());
        }
    }
    let longest = calls.iter().map(|call| (call.what, call.since.elapsed())).max_by_key(|&(_, elapsed)| elapsed)?;
    (longest.1 >= limit).then_some(longest)
}

/// Whether work is under way that others may be waiting for.
pub(crate) fn is_working() -> bool {
    CALLS.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|call| call.pulses.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    // One test, because the registry is the process's.
    #[test]
    fn what_is_overdue_is_named_until_it_ends_or_moves() {
        // Longer than a thread is held up between two lines on a busy machine.
        let limit = Duration::from_millis(300);
        let call = enter("hipHostMalloc");
        assert_eq!(overdue(Duration::from_secs(60)), None);
        std::thread::sleep(limit);
        assert_eq!(overdue(limit).map(|(what, _)| what), Some("hipHostMalloc"));
        drop(call);
        let work = enter_work("planning");
        std::thread::sleep(limit);
        pulse();
        assert_eq!(overdue(limit), None);
        std::thread::sleep(limit);
        assert_eq!(overdue(limit).map(|(what, _)| what), Some("planning"));
        drop(work);
        assert_eq!(overdue(Duration::ZERO), None);
    }
}
