//! Seeded random delays between the calls of a replay (`HRR_REPLAY_CHAOS=seed`), a test aid: a replay whose order is right
//! stays right however its workers are delayed.

use std::time::Duration;

use crate::environment::{self, VariableError};

/// A source of delays; off by default.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Chaos {
    /// State of the generator; zero = off.
    state: u64,
}

impl Chaos {
    /// As `HRR_REPLAY_CHAOS` says; 0 means off.
    ///
    /// # Errors
    /// Where it is no number.
    pub(crate) fn from_env() -> Result<Self, VariableError> {
        Ok(Chaos { state: environment::number("HRR_REPLAY_CHAOS", 0, 0.., "a whole number (0: off)")? })
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
