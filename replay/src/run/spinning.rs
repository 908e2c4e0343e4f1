//! How long a thread spins for what it waits for, before it parks.
//!
//! While every thread that is awake has a core, a waiter spins for about as long as parking and being woken would take many
//! times over: nothing else wants the core. While there are more of them than cores, what it waits for may need the very core
//! it spins on; then it spins little, and less each time it was in vain. Threads that are parked want no core and do not count:
//! one that waits for the others to end must not keep these from spinning for each other.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam::utils::CachePadded;

/// Turns of spinning before a waiter parks while every thread has a core: some 100 us, as a turn is 20 to 60 ns.
const SPINS: u32 = 4000;
/// Most and fewest turns while there are more: about the cost of waking a thread, and of finding out.
const CROWDED_SPINS: (u32, u32) = (512, 16);

/// Turns after which a waiter offers its core to others now and then, and the turns between; no crowded thread spins as long. It
/// knows how many workers there are, but not which threads the runtime has, nor what else the machine does: if what it waits for
/// stands behind it on the core's own queue, it would spin until it parks. With nobody there, the offer costs less than the wait
/// has lasted.
const ALONE_SPINS: u32 = CROWDED_SPINS.0;
const OFFER_EVERY: u32 = 32;
/// An offer that took longer was taken: others want the core.
const TAKEN: Duration = Duration::from_micros(50);

thread_local! {
    /// Turns that a crowded thread spins next.
    static NEXT_SPINS: Cell<u32> = const { Cell::new(CROWDED_SPINS.0) };
}

/// The threads that wait for each other, and the cores they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cores {
    /// Threads.
    pub(crate) threads: usize,
    /// Cores.
    pub(crate) available: usize,
}

impl Cores {
    /// For so many workers on this machine, as far as this process may use it.
    pub(crate) fn of(threads: usize) -> Self {
        // Where the system does not tell, spinning little is the smaller mistake.
        Cores { threads, available: std::thread::available_parallelism().map_or(1, usize::from) }
    }
}

/// What spinning came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spun {
    /// What was waited for happened meanwhile.
    Enough,
    /// It did not.
    InVain,
}

/// How threads spin.
#[derive(Debug)]
pub(super) struct Spinning {
    available: usize,
    /// Threads that are not parked. Relaxed throughout: a guess at who wants a core, from which nothing else follows.
    awake: CachePadded<AtomicUsize>,
}

impl Spinning {
    pub(super) fn new(cores: Cores) -> Self {
        Spinning { available: cores.available, awake: CachePadded::new(AtomicUsize::new(cores.threads)) }
    }

    fn is_crowded(&self) -> bool {
        self.awake.load(Ordering::Relaxed) > self.available
    }

    /// Whether the calling thread spins on after so many turns.
    pub(super) fn goes_on(&self, turns: u32) -> bool {
        if turns < CROWDED_SPINS.1 {
            return true;
        }
        if self.is_crowded() { turns < NEXT_SPINS.get() } else { turns < SPINS }
    }

    /// Learns from what so many turns came to.
    pub(super) fn learn(&self, turns: u32, spun: Spun) {
        let (most, fewest) = CROWDED_SPINS;
        if self.is_crowded() {
            NEXT_SPINS.set(match spun {
                Spun::Enough => (turns * 2).clamp(fewest, most),
                Spun::InVain => (NEXT_SPINS.get() / 2).max(fewest),
            });
        }
    }

    /// The calling thread parks.
    pub(super) fn parks(&self) {
        self.awake.fetch_sub(1, Ordering::Relaxed);
    }

    /// It is awake again.
    pub(super) fn is_awake(&self) {
        self.awake.fetch_add(1, Ordering::Relaxed);
    }

    /// Lets a turn pass, of which there were so many. Returns how many it counts for.
    pub(super) fn pause(turns: u32) -> u32 {
        if turns < ALONE_SPINS || !turns.is_multiple_of(OFFER_EVERY) {
            std::hint::spin_loop();
            return 1;
        }
        let begun = Instant::now();
        std::thread::yield_now();
        if begun.elapsed() < TAKEN { 1 } else { SPINS }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns until the thread would park.
    fn turns(spinning: &Spinning) -> u32 {
        (0..).find(|&turns| !spinning.goes_on(turns)).unwrap_or(u32::MAX)
    }

    #[test]
    fn a_crowded_thread_spins_less_each_time_it_is_in_vain_and_more_when_it_is_not() {
        let crowded = Spinning::new(Cores { threads: 3, available: 2 });
        let (most, fewest) = CROWDED_SPINS;
        assert_eq!(turns(&crowded), most);
        for _ in 0..10 {
            crowded.learn(turns(&crowded), Spun::InVain);
        }
        assert_eq!(turns(&crowded), fewest);
        crowded.learn(turns(&crowded), Spun::Enough);
        assert_eq!(turns(&crowded), 2 * fewest);
    }

    /// Three threads on two cores, one of which waits for the others' end: the two parked at each call.
    #[test]
    fn a_parked_thread_does_not_keep_the_others_from_spinning() {
        let spinning = Spinning::new(Cores { threads: 3, available: 2 });
        spinning.parks();
        assert_eq!(turns(&spinning), SPINS);
        spinning.is_awake();
        assert!(turns(&spinning) < SPINS);
    }
}
