//! Seeded random delays between the calls of a replay (`HRR_REPLAY_CHAOS=seed`), a test aid: a replay whose order is right
//! stays right however its workers are delayed.

use std::time::Duration;

/// A source of delays; off by default.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Chaos {
    /// State of the generator; zero = off.
    state: u64,
}

impl Chaos {
    /// As `HRR_REPLAY_CHAOS` says; anything that is not a positive number means off.
    pub(crate) fn from_env() -> Self {
        let seed = std::env::var("HRR_REPLAY_CHAOS").ok().and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        Chaos { state: seed }
    }

    /// An independent source for runner `number`.
    pub(crate) fn fork(&self, number: u64) -> Self {
        if self.state == 0 {
            *self
        } else {
            Chaos { state: (self.state ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1 }
        }
    }

    /// Whether there are delays at all.
    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        self.state != 0
    }

    /// Sleeps up to 200 microseconds, one call in eight.
    pub(crate) fn delay(&mut self) {
        // xorshift64: good enough to scatter delays, and the same for the same seed.
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        if self.state.is_multiple_of(8) {
            std::thread::sleep(Duration::from_micros((self.state >> 8) % 200));
        }
    }
}
