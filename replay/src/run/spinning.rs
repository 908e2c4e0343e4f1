//! How long a thread spins for what it waits for, before it parks.
//!
//! Where every worker has a core, a waiter spins for about as long as parking and being woken would take many times over:
//! nothing else wants the core. Where workers share cores, what it waits for may need the very core it spins on; then
//! it spins little, and less each time it was in vain.

use std::cell::Cell;

/// Turns of spinning before a waiter parks where every worker has a core: some 100 us, as a turn is 20 to 60 ns.
const SPINS: u32 = 4000;
/// Most and fewest turns where workers share cores: about the cost of waking a thread, and of finding out.
const CROWDED_SPINS: (u32, u32) = (512, 16);

thread_local! {
    /// Turns that a crowded thread spins next.
    static NEXT_SPINS: Cell<u32> = const { Cell::new(CROWDED_SPINS.0) };
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

/// What spinning came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spun {
    /// What was waited for happened meanwhile.
    Enough,
    /// It did not.
    InVain,
}

/// How threads spin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spinning {
    cores: Cores,
}

impl Spinning {
    pub(super) fn new(cores: Cores) -> Self {
        Spinning { cores }
    }

    /// Turns that the calling thread spins.
    pub(super) fn turns(self) -> u32 {
        match self.cores {
            Cores::OneEach => SPINS,
            Cores::Shared => NEXT_SPINS.get(),
        }
    }

    /// Learns from what so many turns came to.
    pub(super) fn learn(self, turns: u32, spun: Spun) {
        let (most, fewest) = CROWDED_SPINS;
        if self.cores == Cores::Shared {
            NEXT_SPINS.set(match spun {
                Spun::Enough => (turns * 2).min(most),
                Spun::InVain => (turns / 2).max(fewest),
            });
        }
    }

    /// Lets a turn pass.
    pub(super) fn pause() {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowded_thread_spins_less_each_time_it_is_in_vain_and_more_when_it_is_not() {
        let crowded = Spinning::new(Cores::Shared);
        let (most, fewest) = CROWDED_SPINS;
        assert_eq!(crowded.turns(), most);
        for _ in 0..10 {
            crowded.learn(crowded.turns(), Spun::InVain);
        }
        assert_eq!(crowded.turns(), fewest);
        crowded.learn(crowded.turns(), Spun::Enough);
        assert_eq!(crowded.turns(), 2 * fewest);
        assert_eq!(Spinning::new(Cores::OneEach).turns(), SPINS);
    }
}
