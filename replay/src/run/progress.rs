//! How far each captured thread has come, and waiting for it.
//!
//! Every captured thread has a counter in a cache line of its own, written only by the OS thread that executes it. A
//! waiter spins briefly and then parks, and leaves the count it waits for: a thread that waits for something far ahead is
//! woken once, not at every call on the way. The publisher must not miss a waiter that is just parking: it stores the
//! counter and then looks at what is waited for, the waiter announces that and then looks at the counter, with a
//! sequentially consistent fence between the two steps on both sides, so at least one of them sees the other.
//!
//! Where every worker has a core, a waiter spins for about as long as parking and being woken would take many times over:
//! nothing else wants the core. Where workers share cores, what it waits for may need the very core it spins on; then
//! it spins little, and less each time it was in vain.

use crossbeam::utils::CachePadded;

#[cfg(loom)]
use loom::sync::{
    Condvar, Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering, fence},
};
#[cfg(not(loom))]
use std::sync::{
    Condvar, Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering, fence},
};

/// Turns of spinning before a waiter parks where every worker has a core: some 100 us, as a turn is 20 to 60 ns.
#[cfg(not(loom))]
const SPINS: u32 = 4000;
#[cfg(loom)]
const SPINS: u32 = 1;
/// Most and fewest turns where workers share cores: about the cost of waking a thread, and of finding out.
const CROWDED_SPINS: (u32, u32) = (512, 16);

#[cfg(not(loom))]
thread_local! {
    /// Turns that a crowded thread spins next.
    static NEXT_SPINS: std::cell::Cell<u32> = const { std::cell::Cell::new(CROWDED_SPINS.0) };
}

/// Nobody waits: no count is as large.
const NOBODY: u64 = u64::MAX;

/// Progress of one captured thread.
#[derive(Debug)]
struct Lane {
    /// Instructions done.
    done: AtomicU64,
    /// Smallest count that a parked OS thread, or one about to park, waits for; [`NOBODY`] for none. Written with
    /// `parking` held.
    wanted: AtomicU64,
    parking: Mutex<()>,
    moved: Condvar,
}

/// Progress of all captured threads.
#[derive(Debug)]
pub(crate) struct Progress {
    lanes: Box<[CachePadded<Lane>]>,
    stop: AtomicBool,
    cores: Cores,
}

/// Whether the threads that wait have cores to themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cores {
    /// Each has one.
    OneEach,
    /// There are fewer.
    Shared,
}

impl Cores {
    /// For so many workers on this machine, as far as this process may use it.
    pub(crate) fn of(workers: usize) -> Self {
        // Where the system does not tell, spinning little is the smaller mistake.
        let available = std::thread::available_parallelism().map_or(1, usize::from);
        if workers <= available { Cores::OneEach } else { Cores::Shared }
    }
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
        Progress { lanes: (0..lanes).map(|_| CachePadded::new(lane())).collect(), stop: AtomicBool::new(false), cores }
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
        let spins = self.spins();
        for _ in 0..spins {
            if self.done(lane) >= count {
                self.spun(spins, Spun::Enough);
                return true;
            }
            if self.stopped() {
                return false;
            }
            #[cfg(not(loom))]
            std::hint::spin_loop();
            #[cfg(loom)]
            loom::thread::yield_now();
        }
        self.spun(spins, Spun::InVain);
        self.park(lane, count)
    }

    #[cfg(not(loom))]
    fn spins(&self) -> u32 {
        match self.cores {
            Cores::OneEach => SPINS,
            Cores::Shared => NEXT_SPINS.get(),
        }
    }

    #[cfg(loom)]
    fn spins(&self) -> u32 {
        SPINS
    }

    /// Learns from what spinning came to.
    #[cfg(not(loom))]
    fn spun(&self, spins: u32, spun: Spun) {
        let (most, fewest) = CROWDED_SPINS;
        if self.cores == Cores::Shared {
            NEXT_SPINS.set(match spun {
                Spun::Enough => (spins * 2).min(most),
                Spun::InVain => (spins / 2).max(fewest),
            });
        }
    }

    #[cfg(loom)]
    fn spun(&self, _: u32, _: Spun) {}

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
            guard = lane.moved.wait(guard).unwrap_or_else(std::sync::PoisonError::into_inner);
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

/// What spinning came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spun {
    /// What was waited for happened meanwhile.
    Enough,
    /// It did not.
    InVain,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn two_lanes_hand_over_many_times_without_losing_a_wakeup() {
        let progress = Arc::new(Progress::new(2, Cores::OneEach));
        let rounds = 20_000;
        let other = Arc::clone(&progress);
        let thread = std::thread::spawn(move || {
            for round in 1..=rounds {
                assert!(other.wait(0, round));
                other.publish(1, round);
            }
        });
        for round in 1..=rounds {
            progress.publish(0, round);
            assert!(progress.wait(1, round));
        }
        thread.join().unwrap();
    }

    #[test]
    fn waits_for_different_counts_each_end_at_theirs() {
        let progress = Arc::new(Progress::new(1, Cores::Shared));
        let waiters: Vec<_> = [30_u64, 10, 20]
            .map(|count| {
                let progress = Arc::clone(&progress);
                std::thread::spawn(move || progress.wait(0, count).then(|| progress.done(0) >= count))
            })
            .into();
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(progress.lanes[0].wanted.load(Ordering::Relaxed), 10, "the nearest count is announced");
        for count in 1..=30 {
            progress.publish(0, count);
        }
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), Some(true));
        }
    }

    #[test]
    fn a_crowded_thread_spins_less_each_time_it_is_in_vain_and_more_when_it_is_not() {
        let progress = Progress::new(1, Cores::Shared);
        let (most, fewest) = CROWDED_SPINS;
        assert_eq!(progress.spins(), most);
        for _ in 0..10 {
            progress.spun(progress.spins(), Spun::InVain);
        }
        assert_eq!(progress.spins(), fewest);
        progress.spun(progress.spins(), Spun::Enough);
        assert_eq!(progress.spins(), 2 * fewest);
        assert_eq!(Progress::new(1, Cores::OneEach).spins(), SPINS);
    }

    #[test]
    fn stopping_ends_a_parked_wait() {
        let progress = Arc::new(Progress::new(1, Cores::Shared));
        let other = Arc::clone(&progress);
        let thread = std::thread::spawn(move || other.wait(0, 1));
        std::thread::sleep(std::time::Duration::from_millis(20));
        progress.stop();
        assert!(!thread.join().unwrap());
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    #[test]
    fn a_waiter_never_sleeps_through_the_publication_it_waits_for() {
        loom::model(|| {
            let progress = Arc::new(Progress::new(1, Cores::Shared));
            let other = Arc::clone(&progress);
            let thread = loom::thread::spawn(move || assert!(other.wait(0, 1)));
            progress.publish(0, 1);
            thread.join().unwrap();
        });
    }

    #[test]
    fn a_waiter_never_sleeps_through_a_stop() {
        loom::model(|| {
            let progress = Arc::new(Progress::new(1, Cores::Shared));
            let other = Arc::clone(&progress);
            let thread = loom::thread::spawn(move || other.wait(0, 1));
            progress.stop();
            assert!(!thread.join().unwrap());
        });
    }
}
