//! How long a thread spins for what it waits for, before it parks, and when it offers its core to others meanwhile.
//!
//! While every thread that is awake has a core, a waiter spins for about as long as parking and being woken would take many
//! times over: nothing else wants the core. While there are more of them than cores, what it waits for may need the very core
//! it spins on: it offers that early and often, and parks sooner. Threads that are parked want no core and do not count: one
//! that waits for the others to end must not keep these from spinning for each other.
//!
//! Nobody here knows which threads the runtime has, nor what else the machine does, nor that the system has put two workers on
//! one core beside an idle one. So every waiter offers its core once it has waited for a while, and learns: one whose wait was
//! over when it came back offers it early the next time, for the other stood behind it on that very core; one that came back
//! for nothing waits longer before it does.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam::utils::CachePadded;

/// Turns of spinning before a waiter parks while every thread has a core: some 100 us, as a turn is 20 to 60 ns.
const SPINS: u32 = 4000;
/// The same while there are more of them: a few times the cost of waking a thread.
const CROWDED_SPINS: u32 = 512;
/// Turns before the first offer of a wait: fewest, which is also what a crowded thread takes, and most.
const FIRST_OFFER: (u32, u32) = (32, 512);
/// Turns between offers: with nobody there, one costs less than the wait has lasted since the one before.
const OFFER_EVERY: u32 = 16;
/// An offer that took longer was taken by somebody with more to do: others want the core.
const TAKEN: Duration = Duration::from_micros(50);

thread_local! {
    /// Turns before this thread's next first offer.
    static NEXT_OFFER: Cell<u32> = const { Cell::new(FIRST_OFFER.1) };
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
        turns < if self.is_crowded() { CROWDED_SPINS } else { SPINS }
    }

    /// The calling thread parks.
    pub(super) fn parks(&self) {
        self.awake.fetch_sub(1, Ordering::Relaxed);
    }

    /// It is awake again.
    pub(super) fn is_awake(&self) {
        self.awake.fetch_add(1, Ordering::Relaxed);
    }

    /// Lets a turn pass, of which there were so many, and looks whether the wait is over. Returns how many it counts for.
    pub(super) fn pause(&self, turns: u32, is_over: impl FnOnce() -> bool) -> u32 {
        let first = if self.is_crowded() { FIRST_OFFER.0 } else { NEXT_OFFER.get() };
        if turns < first || !turns.is_multiple_of(OFFER_EVERY) {
            std::hint::spin_loop();
            return 1;
        }
        let begun = Instant::now();
        std::thread::yield_now();
        let took = begun.elapsed();
        learn(is_over());
        if took < TAKEN { 1 } else { SPINS }
    }
}

/// Learns from an offer, after which the wait was over or not.
fn learn(is_over: bool) {
    let (fewest, most) = FIRST_OFFER;
    NEXT_OFFER.set(if is_over { fewest } else { (NEXT_OFFER.get() * 2).min(most) });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns until the thread would park.
    fn turns(spinning: &Spinning) -> u32 {
        (0..).find(|&turns| !spinning.goes_on(turns)).unwrap_or(u32::MAX)
    }

    #[test]
    fn a_crowded_thread_parks_sooner() {
        assert_eq!(turns(&Spinning::new(Cores { threads: 3, available: 2 })), CROWDED_SPINS);
        assert_eq!(turns(&Spinning::new(Cores { threads: 2, available: 2 })), SPINS);
    }

    /// A thread that found the other on its own core looks there first the next time; one that did not spins longer.
    #[test]
    fn a_thread_learns_whether_to_offer_its_core_early() {
        let alone = Spinning::new(Cores { threads: 2, available: 2 });
        let (fewest, most) = FIRST_OFFER;
        assert_eq!(NEXT_OFFER.get(), most);
        alone.pause(most - OFFER_EVERY, || panic!("it is too early to offer anything"));
        alone.pause(most, || true);
        assert_eq!(NEXT_OFFER.get(), fewest);
        for turns in [fewest, 2 * fewest, 4 * fewest, 8 * fewest, 16 * fewest] {
            alone.pause(turns, || false);
        }
        assert_eq!(NEXT_OFFER.get(), most);
    }

    /// Three threads on two cores, one of which waits for the others' end: the two parked at each call.
    #[test]
    fn a_parked_thread_does_not_keep_the_others_from_spinning() {
        let spinning = Spinning::new(Cores { threads: 3, available: 2 });
        spinning.parks();
        assert_eq!(turns(&spinning), SPINS);
        spinning.is_awake();
        assert_eq!(turns(&spinning), CROWDED_SPINS);
    }
}
