//! The clock of measuring runs: the time stamp counter where it is invariant, else the system's monotonic clock.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long the counter is compared with the system's clock, at least: its rate is then known to about 20 ppm.
const CALIBRATION: Duration = Duration::from_millis(5);

/// A clock whose ticks are cheap to read and convert.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: Instant,
    /// Nanoseconds of a tick, times 2^32; zero = ticks are nanoseconds of the system's clock.
    scale: u64,
}

impl Clock {
    /// The process's clock, calibrated at the first call, which takes [`CALIBRATION`].
    pub(crate) fn get() -> Clock {
        static CLOCK: OnceLock<Clock> = OnceLock::new();
        *CLOCK.get_or_init(Clock::calibrated)
    }

    fn calibrated() -> Clock {
        let (origin, origin_tick) = (Instant::now(), counter());
        if !is_invariant() {
            return Clock { origin, scale: 0 };
        }
        std::thread::sleep(CALIBRATION);
        let (elapsed_ns, ticks) = (origin.elapsed().as_nanos(), u128::from(counter() - origin_tick));
        let scale = u64::try_from((elapsed_ns << 32) / ticks.max(1)).unwrap_or(0);
        Clock { origin, scale }
    }

    /// The tick now.
    #[inline(always)]
    pub(crate) fn now(&self) -> u64 {
        if self.scale != 0 { counter() } else { self.origin.elapsed().as_nanos() as u64 }
    }

    /// The tick now, not earlier than what was read before: a processor may read its counter ahead of a load that it is
    /// still waiting for, and a call would seem to begin before the one it waited for had returned.
    #[inline(always)]
    pub(crate) fn now_after_loads(&self) -> u64 {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: every x86-64 processor has the instruction. It waits until the loads before it are complete.
        unsafe {
            std::arch::x86_64::_mm_lfence();
        }
        self.now()
    }

    /// The tick now, neither before what stands in front of it in the program nor after what stands behind it.
    #[inline(always)]
    pub(crate) fn now_in_order(&self) -> u64 {
        let now = self.now_after_loads();
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above. What stands behind it begins when the counter has been read.
        unsafe {
            std::arch::x86_64::_mm_lfence();
        }
        now
    }

    /// Nanoseconds from one tick to another; zero where the second is not the later one.
    #[inline(always)]
    pub(crate) fn ns_between(&self, from: u64, to: u64) -> u64 {
        self.to_ns(to.saturating_sub(from))
    }

    /// Nanoseconds of as many ticks.
    #[inline(always)]
    pub(crate) fn to_ns(self, ticks: u64) -> u64 {
        match self.scale {
            0 => ticks,
            scale => ((u128::from(ticks) * u128::from(scale)) >> 32) as u64,
        }
    }

    /// Ticks of as many nanoseconds.
    pub(crate) fn to_ticks(self, ns: u64) -> u64 {
        match self.scale {
            0 => ns,
            scale => ((u128::from(ns) << 32) / u128::from(scale)) as u64,
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn counter() -> u64 {
    // SAFETY: every x86-64 processor has the instruction. Unfenced: a few nanoseconds of reordering do not matter here.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn counter() -> u64 {
    0
}

#[cfg(target_arch = "x86_64")]
fn is_invariant() -> bool {
    /// "Invariant TSC" in EDX of leaf 0x80000007 (AMD64 Architecture Programmer's Manual, volume 3, appendix E).
    const INVARIANT: u32 = 1 << 8;
    let highest = std::arch::x86_64::__cpuid(0x8000_0000).eax;
    highest >= 0x8000_0007 && std::arch::x86_64::__cpuid(0x8000_0007).edx & INVARIANT != 0
}

#[cfg(not(target_arch = "x86_64"))]
fn is_invariant() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_as_long_as_the_systems_clock_says() {
        let clock = Clock::get();
        let ratio = || {
            let (began, from) = (Instant::now(), clock.now());
            std::thread::sleep(Duration::from_millis(30));
            let (measured, expected) = (clock.ns_between(from, clock.now()) as f64, began.elapsed().as_nanos() as f64);
            measured / expected
        };
        // The two clocks are read one after the other, and on a busy machine the thread may be held up in between.
        let ratios: Vec<f64> = (0..5).map(|_| ratio()).collect();
        assert!(ratios.iter().any(|ratio| (ratio - 1.0).abs() < 0.01), "{ratios:?}");
        let ticks = clock.to_ticks(1_000_000);
        assert!(clock.to_ns(ticks).abs_diff(1_000_000) < 10);
        assert_eq!(clock.ns_between(5, 3), 0);
    }
}
