//! A counter that only grows and that threads can wait on.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

/// Polls before a waiter parks. Short: the machines this runs on have few cores.
const SPINS: u32 = 64;
/// Times a waiter gives its time slice away before it parks.
const YIELDS: u32 = 2;

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
        for _ in 0..SPINS {
            if self.reached(target) {
                return;
            }
            std::hint::spin_loop();
        }
        for _ in 0..YIELDS {
            if self.reached(target) {
                return;
            }
            thread::yield_now();
        }
        self.park(target);
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
