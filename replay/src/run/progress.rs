//! How far each captured thread has come, and waiting for it.
//!
//! Every captured thread has a counter in a cache line of its own, written only by the OS thread that executes it. A
//! waiter spins briefly and then parks, and leaves the count it waits for: a thread that waits for something far ahead is
//! woken once, not at every call on the way. The publisher must not miss a waiter that is just parking: it stores the
//! counter and then looks at what is waited for, the waiter announces that and then looks at the counter, with a
//! sequentially consistent fence between the two steps on both sides, so at least one of them sees the other.
//!
//! `tests/loom` compiles this very file against models of [`super::atomics`] and goes through all interleavings.

use crossbeam::utils::CachePadded;

use super::atomics::{AtomicBool, AtomicU64, Condvar, Mutex, Ordering, fence};
use super::spinning::{Cores, Spinning};

/// Nobody waits: no count is as large.
const NOBODY: u64 = u64::MAX;

/// Progress of one captured thread.
#[derive(Debug)]
pub(super) struct Lane {
    /// Instructions done.
    done: AtomicU64,
    /// Smallest count that a parked OS thread, or one about to park, waits for; [`NOBODY`] for none. Written with
    /// `parking` held.
    pub(super) wanted: AtomicU64,
    parking: Mutex<()>,
    moved: Condvar,
}

/// Progress of all captured threads.
#[derive(Debug)]
pub(crate) struct Progress {
    pub(super) lanes: Box<[CachePadded<Lane>]>,
    stop: AtomicBool,
    spinning: Spinning,
}

impl Progress {
    /// All lanes at zero.
    pub(crate) fn new(lanes: usize, cores: Cores) -> Self {
        let lane = || Lane {
            done: AtomicU64::new(0),
            wanted: AtomicU64::new(NOBODY),
            parking: Mutex::new(()),
            moved: Condvar::new(),
        };
        let lanes = (0..lanes).map(|_| CachePadded::new(lane())).collect();
        Progress { lanes, stop: AtomicBool::new(false), spinning: Spinning::new(cores) }
    }

    /// Publishes that `lane` has done `count` instructions.
    #[inline(always)]
    pub(crate) fn publish(&self, lane: u32, count: u64) {
        let lane = &self.lanes[lane as usize];
        // Release: what the call did (slots, host memory) happens before what follows a wait that sees the count.
        lane.done.store(count, Ordering::Release);
        // Pairs with the fence in `park`: either this load sees what the waiter wants, or the waiter sees the count.
        fence(Ordering::SeqCst);
        if count >= lane.wanted.load(Ordering::Relaxed) {
            Self::wake(lane);
        }
    }

    #[cold]
    fn wake(lane: &Lane) {
        // Taking the lock orders this notification after the waiter's decision to sleep.
        let guard = lane.parking.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Relaxed: written under the lock only. Those who wait for more announce it again before they sleep again.
        lane.wanted.store(NOBODY, Ordering::Relaxed);
        lane.moved.notify_all();
        drop(guard);
    }

    /// A thread that waited for others has come to its end, and wants no core any more.
    pub(crate) fn thread_ended(&self) {
        self.spinning.parks();
    }

    /// How many instructions `lane` has done.
    pub(crate) fn done(&self, lane: u32) -> u64 {
        // Acquire: pairs with `publish`.
        self.lanes[lane as usize].done.load(Ordering::Acquire)
    }

    /// Sum over all lanes.
    pub(crate) fn total(&self) -> u64 {
        // Relaxed: only compared with an earlier sum.
        self.lanes.iter().map(|lane| lane.done.load(Ordering::Relaxed)).sum()
    }

    /// Waits until `lane` has done `count` instructions. False if the replay was stopped first.
    #[inline(always)]
    pub(crate) fn wait(&self, lane: u32, count: u64) -> bool {
        if self.done(lane) >= count { true } else { self.wait_slow(lane, count) }
    }

    #[cold]
    fn wait_slow(&self, lane: u32, count: u64) -> bool {
        let mut turns = 0;
        while self.spinning.goes_on(turns) {
            if self.done(lane) >= count {
                return true;
            }
            if self.stopped() {
                return false;
            }
            turns += self.spinning.pause(turns, || self.done(lane) >= count);
        }
        self.park(lane, count)
    }

    fn park(&self, number: u32, count: u64) -> bool {
        let lane = &self.lanes[number as usize];
        let mut guard = lane.parking.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        loop {
            // Relaxed: written under the lock only, and ordered by the fence that follows.
            let wanted = lane.wanted.load(Ordering::Relaxed);
            lane.wanted.store(wanted.min(count), Ordering::Relaxed);
            // Pairs with the fence in `publish`.
            fence(Ordering::SeqCst);
            if self.done(number) >= count {
                return true;
            }
            if self.stopped() {
                return false;
            }
            self.spinning.parks();
            guard = lane.moved.wait(guard).unwrap_or_else(std::sync::PoisonError::into_inner);
            self.spinning.is_awake();
        }
    }

    /// Whether the replay was stopped.
    #[inline(always)]
    pub(crate) fn stopped(&self) -> bool {
        // Acquire: pairs with `stop`, so that the reason stored before it is seen.
        self.stop.load(Ordering::Acquire)
    }

    /// Stops the replay: every wait returns false.
    pub(crate) fn stop(&self) {
        // Release: pairs with `stopped`.
        self.stop.store(true, Ordering::Release);
        // As in `publish`: a waiter that does not see the flag is seen here.
        fence(Ordering::SeqCst);
        for lane in &self.lanes {
            if lane.wanted.load(Ordering::Relaxed) != NOBODY {
                Self::wake(lane);
            }
        }
    }
}
