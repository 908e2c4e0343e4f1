//! A counter that only grows and that threads can wait on.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::thread;

/// Polls before a thread sleeps: about what a sleep and a wake-up cost (some 10 us).
const POLLS: u32 = 200;
/// Times a thread gives its time slice away before it sleeps.
const YIELDS: u32 = 2;

/// Polls until `ready`, for as long as polling is cheaper than sleeping; false if that time is over. No more threads
/// poll at once than there are cores: pollers must not keep those from running that they wait for.
pub(crate) fn poll_until(ready: impl Fn() -> bool) -> bool {
    static POLLING: AtomicUsize = AtomicUsize::new(0);
    static LIMIT: OnceLock<usize> = OnceLock::new();
    if ready() {
        return true;
    }
    let limit = *LIMIT.get_or_init(|| thread::available_parallelism().map_or(1, std::num::NonZero::get));
    // Relaxed, here and below: a number of threads, nothing is published by it.
    let mut is_ready = false;
    if POLLING.fetch_add(1, Ordering::Relaxed) < limit {
        for _ in 0..POLLS {
            std::hint::spin_loop();
            is_ready = ready();
            if is_ready {
                break;
            }
        }
    }
    POLLING.fetch_sub(1, Ordering::Relaxed);
    for _ in 0..YIELDS {
        is_ready = is_ready || ready();
        if is_ready {
            break;
        }
        thread::yield_now();
    }
    is_ready
}

/// How far a queue (or anything else that counts up) has come.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    done: AtomicU64,
    waiters: AtomicU32,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Progress {
    /// The count reached so far. Acquire: what happened before the `publish` of that count is visible.
    pub(crate) fn done(&self) -> u64 {
        self.done.load(Ordering::Acquire)
    }

    /// Whether `target` is reached.
    pub(crate) fn reached(&self, target: u64) -> bool {
        self.done() >= target
    }

    /// Sets the count and wakes the waiters.
    pub(crate) fn publish(&self, count: u64) {
        // SeqCst on this store and on the load below, and on the pair in `wait`: either this thread sees the
        // waiter, or the waiter sees the new count; without the total order both could be missed.
        self.done.store(count, Ordering::SeqCst);
        if self.waiters.load(Ordering::SeqCst) > 0 {
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.changed.notify_all();
        }
    }

    /// Blocks until the count reaches `target`.
    pub(crate) fn wait(&self, target: u64) {
        if !poll_until(|| self.reached(target)) {
            self.park(target);
        }
    }

    /// Blocks without polling first (`hipEventBlockingSync`).
    pub(crate) fn park(&self, target: u64) {
        // SeqCst: see `publish`.
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        while self.done.load(Ordering::SeqCst) < target {
            guard = self.changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        drop(guard);
        // Relaxed: a stale count only costs the publisher one needless notification.
        self.waiters.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn every_count_wakes_its_waiter() {
        let progress = Arc::new(Progress::default());
        let waiters: Vec<_> = (1..=200_u64)
            .map(|target| {
                let progress = Arc::clone(&progress);
                thread::spawn(move || {
                    progress.wait(target);
                    progress.done() >= target
                })
            })
            .collect();
        for count in 1..=200 {
            progress.publish(count);
        }
        assert!(waiters.into_iter().all(|waiter| waiter.join().expect("waiter does not panic")));
    }
}
