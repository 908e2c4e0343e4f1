//! The clock that entry and return ticks come from.
//!
//! Its one property: if call A returned before call B was entered, in any causal sense, then `end(A) < begin(B)`; and
//! it never says so of calls of which neither waited for the other's return.
//!
//! # Why the time stamp counter has it
//! The counter is invariant (constant rate, never stopped, CPUID says so) and synchronised over all cores (the kernel
//! uses it as its own clock source only then). Both reads are `lfence; rdtsc`:
//!
//! * *Entry.* B learnt that A had returned by a load (of a lock, a futex word, a pipe's buffer). `lfence` lets no later
//!   instruction start before all earlier ones, that load included, have completed; without it the counter could be read
//!   before the load. A's end was read before A's thread made any later store visible, because stores become visible only
//!   after they retire, in program order, after the read. So `end(A)` was taken before the store that B's load saw.
//! * *Return.* Without a fence the processor may read the counter while the call's own last loads are still in flight: if
//!   A waited for something that B did, A's end could be taken before B's begin, and replay would hold B back until A
//!   returned, which waits for B. The fence makes A's loads complete first.
//! * *Strictly less.* Two reads on one core are tens of cycles apart, and a cache line takes longer than a tick of the
//!   counter to move between cores.
//!
//! Where the counter cannot be trusted, ticks are `CLOCK_MONOTONIC` nanoseconds forced to rise strictly through one atomic
//! maximum, which has the property by construction: every read is later in that variable's modification order than the
//! reads that happened before it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hrr_format::manifest::ClockKind;

/// Whether ticks are read from the time stamp counter. Written once, before the first tick is read.
static USE_TSC: AtomicBool = AtomicBool::new(false);
/// The latest tick given out where the counter is not used.
static LATEST: AtomicU64 = AtomicU64::new(0);
/// Shortest span in nanoseconds over which a rate is measured at start.
const FIRST_SPAN_NS: u64 = 200_000;

/// Chooses the clock. Called before the first tick is read, and again, with the same outcome, after a fork.
pub(crate) fn choose() {
    // Relaxed: the process state that lets threads record is published with release after this store.
    USE_TSC.store(tsc_is_sound(), Ordering::Relaxed);
}

/// The clock in use.
pub(crate) fn kind() -> ClockKind {
    if USE_TSC.load(Ordering::Relaxed) { ClockKind::Tsc } else { ClockKind::Monotonic }
}

/// Reads the tick for an entry or a return.
#[inline(always)]
pub(crate) fn tick() -> u64 {
    if USE_TSC.load(Ordering::Relaxed) { fenced_tsc() } else { rising_monotonic() }
}

#[inline(always)]
fn fenced_tsc() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: `lfence` and `rdtsc` exist on every x86-64 processor and touch no memory.
    unsafe {
        core::arch::x86_64::_mm_lfence();
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    rising_monotonic()
}

#[cold]
fn rising_monotonic() -> u64 {
    let now = system_ns(libc::CLOCK_MONOTONIC);
    // AcqRel: the read-modify-write on the one variable orders reads: a read that happens after another sees its value or
    // a later one, and so returns a greater one.
    let before =
        LATEST.fetch_update(Ordering::AcqRel, Ordering::Acquire, |latest| Some(now.max(latest + 1))).unwrap_or(0);
    now.max(before + 1)
}

/// A system clock in nanoseconds.
pub(crate) fn system_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a writable timespec.
    unsafe { libc::clock_gettime(clock, &mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

#[cfg(target_arch = "x86_64")]
fn tsc_is_sound() -> bool {
    use core::arch::x86_64::__cpuid;
    const ADVANCED_POWER: u32 = 0x8000_0007;
    const INVARIANT_TSC: u32 = 1 << 8;
    let invariant = __cpuid(0x8000_0000).eax >= ADVANCED_POWER && __cpuid(ADVANCED_POWER).edx & INVARIANT_TSC != 0;
    // The kernel compares the cores' counters and stops using them as its clock source where they differ.
    let synchronised = std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource")
        .is_ok_and(|source| source.trim() == "tsc");
    invariant && synchronised
}

#[cfg(not(target_arch = "x86_64"))]
fn tsc_is_sound() -> bool {
    false
}

/// The clock at the start of a capture, and its rate measured since.
#[derive(Debug)]
pub(crate) struct Origin {
    /// Tick at start.
    pub(crate) tick: u64,
    /// Wall clock at the same moment in nanoseconds since 1970.
    pub(crate) unix_ns: u64,
    /// `CLOCK_MONOTONIC` at the same moment in nanoseconds.
    pub(crate) monotonic_ns: u64,
    raw_ns: u64,
}

impl Origin {
    /// Takes the present moment.
    pub(crate) fn now() -> Self {
        let (tick, raw_ns) = tick_at_raw_ns();
        let (unix_ns, monotonic_ns) = (system_ns(libc::CLOCK_REALTIME), system_ns(libc::CLOCK_MONOTONIC));
        Origin { tick, unix_ns, monotonic_ns, raw_ns }
    }

    /// Ticks per second, measured from the origin to now; waits a fraction of a millisecond where that is too recent.
    pub(crate) fn ticks_per_second(&self) -> u64 {
        if kind() == ClockKind::Monotonic {
            return 1_000_000_000;
        }
        loop {
            let (tick, raw_ns) = tick_at_raw_ns();
            let span_ns = raw_ns.saturating_sub(self.raw_ns);
            if span_ns >= FIRST_SPAN_NS {
                let ticks = u128::from(tick.saturating_sub(self.tick));
                return u64::try_from(ticks * 1_000_000_000 / u128::from(span_ns)).unwrap_or(0);
            }
            std::hint::spin_loop();
        }
    }
}

/// A tick and the raw monotonic time halfway between two reads around it; the closest of a few tries.
fn tick_at_raw_ns() -> (u64, u64) {
    let mut best = (u64::MAX, 0, 0);
    for _ in 0..5 {
        let before = system_ns(libc::CLOCK_MONOTONIC_RAW);
        let tick = tick();
        let after = system_ns(libc::CLOCK_MONOTONIC_RAW);
        let width = after.saturating_sub(before);
        if width < best.0 {
            best = (width, tick, before + width / 2);
        }
    }
    (best.1, best.2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    /// Passes a baton between threads; the receiver's entry tick must be later than the sender's return tick. Ends early where the
    /// machine has so much else to do that each hand-over takes a time slice.
    ///
    /// `delay` shifts the sender's tick, so that the test can show that it would notice.
    fn baton_violations(read: fn() -> u64, shift: u64) -> usize {
        const ROUNDS: u64 = 20_000;
        const OVER: u64 = u64::MAX;
        let begun = std::time::Instant::now();
        let baton = AtomicU64::new(0);
        let end = AtomicU64::new(0);
        let violations = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for side in 0..2u64 {
                let (baton, end, violations) = (&baton, &end, &violations);
                scope.spawn(move || {
                    for round in (side..ROUNDS).step_by(2) {
                        // Acquire pairs with the release below: the tick stored before it is seen.
                        while baton.load(Ordering::Acquire) != round {
                            if baton.load(Ordering::Relaxed) == OVER {
                                return;
                            }
                            std::thread::yield_now();
                        }
                        if read() <= end.load(Ordering::Relaxed) && round > 0 {
                            violations.fetch_add(1, Ordering::Relaxed);
                        }
                        end.store(read() + shift, Ordering::Relaxed);
                        let is_over = begun.elapsed() > std::time::Duration::from_secs(5);
                        baton.store(if is_over { OVER } else { round + 1 }, Ordering::Release);
                        if is_over {
                            return;
                        }
                    }
                });
            }
        });
        violations.into_inner() as usize
    }

    #[test]
    fn a_return_is_before_every_entry_that_waited_for_it() {
        choose();
        assert_eq!(baton_violations(tick, 0), 0);
        assert_eq!(baton_violations(rising_monotonic, 0), 0);
        // A recorder that read the end late would be noticed, by more than a hand-over takes on a machine with much else to do.
        assert!(baton_violations(tick, 300_000_000) > 0);
    }

    #[test]
    fn the_rate_is_that_of_the_system_clock() {
        choose();
        let origin = Origin::now();
        std::thread::sleep(std::time::Duration::from_millis(30));
        let rate = origin.ticks_per_second() as f64;
        let (tick, raw_ns) = tick_at_raw_ns();
        let seconds = (raw_ns - origin.raw_ns) as f64 / 1e9;
        let ticks = (tick - origin.tick) as f64;
        assert!((ticks / rate / seconds - 1.0).abs() < 1e-3, "{rate} ticks a second");
    }

    #[test]
    fn the_fallback_never_gives_a_tick_twice() {
        let ticks: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..4).map(|_| scope.spawn(|| (0..5_000).map(|_| rising_monotonic()).collect::<Vec<_>>())).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let mut sorted = ticks.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), ticks.len());
    }
}
