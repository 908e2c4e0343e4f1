//! What a measuring run takes down: each runner writes to a meter of its own, and the meters are added up after the run.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam::utils::CachePadded;
use rustc_hash::FxHashMap;

use hrr_format::catalogue::APIS;
use hrr_perf::histogram::CallHistogram;
use hrr_perf::report::WorkerReport;

use super::clock::Clock;
use super::gpu_timer::{GpuTimer, Keep, Pair};
use super::note::CopyClass;
use super::order_log::Logged;
use crate::trace::taken::Taken;

/// Room made ahead for calls of an order log.
const ORDER_RESERVED: usize = 1 << 16;
/// The last part of a pause is spun away, because a sleeping thread wakes up late.
const SPUN_NS: u64 = 80_000;
/// How long [`Metering::collect`] waits for runners that are still giving their meter back.
const GRACE: Duration = Duration::from_secs(1);

/// Copies of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CopyTotals {
    pub(crate) count: u64,
    pub(crate) bytes: u64,
    pub(crate) host_ns: u64,
}

impl CopyTotals {
    /// Adds others of the class.
    pub(crate) fn add(&mut self, other: &CopyTotals) {
        self.count += other.count;
        self.bytes += other.bytes;
        self.host_ns += other.host_ns;
    }
}

/// Why a worker stood still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// Another captured thread had to come further.
    Edge,
    /// What comes next was not planned and staged yet.
    Staging,
    /// The program's own gap between two calls.
    Gap,
}

/// What one runner at a time writes to.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    pub(crate) worker: u32,
    pub(crate) apis: Vec<Option<Box<CallHistogram>>>,
    pub(crate) copies: FxHashMap<CopyClass, CopyTotals>,
    /// Where the time of each worker went.
    splits: Vec<WorkerReport>,
    /// Position in the notes of the chunk at hand.
    pub(crate) cursor: usize,
    /// When calls were issued and had returned, where that is logged.
    pub(crate) order: Vec<Logged>,
    /// Pairs of events at hand, with their device.
    pub(crate) pairs: Vec<(i32, Pair)>,
    /// What is written down for a timeline, where one is wanted of this run.
    pub(crate) taken: Option<Box<Taken>>,
}

impl Meter {
    /// The time of the worker at hand.
    #[inline]
    pub(crate) fn split(&mut self) -> &mut WorkerReport {
        let worker = self.worker as usize;
        if worker >= self.splits.len() {
            self.splits.resize(worker + 1, WorkerReport::default());
        }
        &mut self.splits[worker]
    }

    /// Counts a call.
    #[inline]
    pub(crate) fn call(&mut self, api: u16, duration_ns: u64) {
        let api = usize::from(api);
        if api >= self.apis.len() {
            self.apis.resize_with(APIS.len(), || None);
        }
        self.apis[api].get_or_insert_with(Box::default).record(duration_ns);
    }

    /// Makes everything zero and keeps the memory.
    fn clear(&mut self) {
        for histogram in self.apis.iter_mut().flatten() {
            histogram.clear();
        }
        self.copies.clear();
        self.splits.clear();
        self.order.clear();
    }
}

/// What all runners of a measuring run share.
#[derive(Debug)]
pub(crate) struct Metering {
    pub(crate) clock: Clock,
    /// Events around launches and copies, with `--timing`.
    pub(crate) timer: Option<Arc<GpuTimer>>,
    /// Whether each call's ticks are logged, to check the order afterwards.
    pub(crate) logs_order: bool,
    /// First event that is measured; those before it are set-up.
    pub(crate) from_event: AtomicU64,
    /// Tick at which the timed section began.
    opened: AtomicU64,
    /// When each captured thread's last call returned, and how much longer its gaps were than recorded, in ticks.
    lanes: Box<[CachePadded<LaneClock>]>,
    #[expect(clippy::vec_box, reason = "runners take and give back their meters whole; a meter is large")]
    meters: Mutex<Vec<Box<Meter>>>,
    made: AtomicUsize,
    /// Whether the run is written down for a timeline.
    traced: AtomicBool,
}

#[derive(Debug, Default)]
struct LaneClock {
    returned: AtomicU64,
    debt: AtomicI64,
}

/// All meters of one run, added up.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    pub(crate) apis: FxHashMap<u16, CallHistogram>,
    pub(crate) copies: FxHashMap<CopyClass, CopyTotals>,
    pub(crate) workers: Vec<WorkerReport>,
    pub(crate) order: Vec<Logged>,
    /// What runners wrote down for a timeline.
    #[expect(clippy::vec_box, reason = "as they come")]
    pub(crate) taken: Vec<Box<Taken>>,
}

impl Metering {
    /// Measures runs of this many captured threads.
    pub(crate) fn new(lanes: usize, timer: Option<Arc<GpuTimer>>) -> Self {
        Metering {
            clock: Clock::get(),
            timer,
            logs_order: false,
            from_event: AtomicU64::new(0),
            opened: AtomicU64::new(0),
            lanes: (0..lanes).map(|_| CachePadded::new(LaneClock::default())).collect(),
            meters: Mutex::new(Vec::new()),
            made: AtomicUsize::new(0),
            traced: AtomicBool::new(false),
        }
    }

    /// Whether the next run is to be written down for a timeline. Told while no runner is active.
    pub(crate) fn keep(&self, keep: Keep) {
        // Relaxed: runners are handed their sequences, through a channel, after this.
        self.traced.store(keep == Keep::Spans, Ordering::Relaxed);
    }

    /// Whether the run is written down for a timeline.
    pub(crate) fn kept(&self) -> Keep {
        // Relaxed: as in `keep`.
        if self.traced.load(Ordering::Relaxed) { Keep::Spans } else { Keep::Sums }
    }

    /// The timed section begins now.
    pub(crate) fn open(&self) {
        for lane in &self.lanes {
            // Relaxed: published by the store of `opened`, or by the gate that follows it.
            lane.returned.store(0, Ordering::Relaxed);
            lane.debt.store(0, Ordering::Relaxed);
        }
        // Release: pairs with `opened`.
        self.opened.store(self.clock.now(), Ordering::Release);
    }

    /// When the timed section began.
    #[inline]
    pub(crate) fn opened(&self) -> u64 {
        // Acquire: pairs with `open`.
        self.opened.load(Ordering::Acquire)
    }

    /// Whether an event is measured.
    #[inline]
    pub(crate) fn measures(&self, event: u64) -> bool {
        // Relaxed: set while planning, and handed over with the chunks.
        event >= self.from_event.load(Ordering::Relaxed)
    }

    /// A meter for the runner that works on `worker`'s sequence.
    pub(crate) fn take(&self, worker: u32) -> Box<Meter> {
        let spare = self.meters.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut meter = spare.unwrap_or_else(|| {
            // Relaxed: only a count; whoever reads it has seen the runner's last progress.
            self.made.fetch_add(1, Ordering::Relaxed);
            Box::default()
        });
        meter.worker = worker;
        meter.cursor = 0;
        if self.logs_order {
            meter.order.reserve(ORDER_RESERVED);
        }
        if meter.taken.is_none() && self.kept() == Keep::Spans {
            meter.taken = Some(Box::default());
        }
        meter
    }

    /// Takes a meter back.
    pub(crate) fn give(&self, meter: Box<Meter>) {
        self.meters.lock().unwrap_or_else(PoisonError::into_inner).push(meter);
    }

    /// When a call of `lane` may be issued whose recorded gap was `gap_ns`, as a tick.
    fn due(&self, lane: u32, gap_ns: u64) -> i64 {
        let Some(lane) = self.lanes.get(lane as usize) else { return 0 };
        // Relaxed: read and written in the captured thread's order, which edges carry from runner to runner.
        let since = lane.returned.load(Ordering::Relaxed).max(self.opened());
        (since + self.clock.to_ticks(gap_ns)) as i64 - lane.debt.load(Ordering::Relaxed)
    }

    /// Lets the rest of a recorded gap pass; the ticks when that began and ended. What one gap takes too long is taken off
    /// the next ones, so that lateness does not add up; `waited` = the call was held up by an edge, which is no lateness.
    pub(crate) fn let_gap_pass(
        &self,
        lane: u32,
        gap_ns: u64,
        waited: Waited,
        stopped: impl Fn() -> bool,
    ) -> (u64, u64) {
        let due = self.due(lane, gap_ns);
        let begin = self.clock.now();
        let mut now = begin;
        while (now as i64) < due && !stopped() {
            let left_ns = self.clock.to_ns((due - now as i64).unsigned_abs());
            if left_ns > SPUN_NS {
                // In parts, so that a replay that is stopped ends soon.
                std::thread::sleep(Duration::from_nanos((left_ns - SPUN_NS).min(50_000_000)));
            } else {
                std::hint::spin_loop();
            }
            now = self.clock.now();
        }
        // More than the next gap makes up for stays owed.
        let late = if waited == Waited::No { (now as i64 - due).max(0) } else { 0 };
        if let Some(lane) = self.lanes.get(lane as usize) {
            // Relaxed: as in `due`.
            lane.debt.store(late, Ordering::Relaxed);
        }
        (begin, now)
    }

    /// A call of `lane` returned at `tick`.
    #[inline]
    pub(crate) fn returned(&self, lane: u32, tick: u64) {
        if let Some(lane) = self.lanes.get(lane as usize) {
            // Relaxed: as in `due`.
            lane.returned.store(tick, Ordering::Relaxed);
        }
    }

    /// Adds all meters up and clears them, once every runner is done.
    pub(crate) fn collect(&self) -> Measured {
        let deadline = Instant::now() + GRACE;
        let mut measured = Measured::default();
        let mut meters = loop {
            let mut meters = self.meters.lock().unwrap_or_else(PoisonError::into_inner);
            // Relaxed: as in `take`.
            if meters.len() >= self.made.load(Ordering::Relaxed) || Instant::now() >= deadline {
                break std::mem::take(&mut *meters);
            }
            drop(meters);
            std::thread::yield_now();
        };
        for meter in &mut meters {
            for (api, histogram) in meter.apis.iter().enumerate() {
                if let Some(histogram) = histogram
                    && histogram.count() > 0
                {
                    measured.apis.entry(api as u16).or_default().merge(histogram);
                }
            }
            for (class, totals) in &meter.copies {
                measured.copies.entry(*class).or_default().add(totals);
            }
            if measured.workers.len() < meter.splits.len() {
                measured.workers.resize(meter.splits.len(), WorkerReport::default());
            }
            for (worker, split) in meter.splits.iter().enumerate() {
                measured.workers[worker].add(split);
            }
            measured.order.append(&mut meter.order);
            measured.taken.extend(meter.taken.take());
            meter.clear();
        }
        self.meters.lock().unwrap_or_else(PoisonError::into_inner).append(&mut meters);
        measured
    }
}

/// Whether a call was held up by an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    Yes,
    No,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_do_not_drift() {
        // 100 ms in 200 gaps: each may be late by what a wake-up takes on a busy machine, their sum may not, unless the last of
        // them are.
        let took_ns = || {
            let metering = Metering::new(1, None);
            metering.open();
            let from = metering.opened();
            let mut end = from;
            for _ in 0..200 {
                let (_, now) = metering.let_gap_pass(0, 500_000, Waited::No, || false);
                metering.returned(0, now);
                end = now;
            }
            metering.clock.ns_between(from, end)
        };
        let took: Vec<u64> = (0..5).map(|_| took_ns()).collect();
        assert!(took.iter().all(|&ns| ns >= 99_900_000) && took.iter().any(|&ns| ns < 130_000_000), "{took:?}");
    }

    #[test]
    fn a_call_held_up_by_an_edge_owes_nothing() {
        let metering = Metering::new(1, None);
        metering.open();
        std::thread::sleep(Duration::from_millis(3));
        let (_, now) = metering.let_gap_pass(0, 1_000_000, Waited::Yes, || false);
        metering.returned(0, now);
        let (_, end) = metering.let_gap_pass(0, 2_000_000, Waited::No, || false);
        assert!(metering.clock.ns_between(now, end) >= 1_900_000);
    }

    #[test]
    fn meters_add_up() {
        let metering = Metering::new(1, None);
        let (mut first, mut second) = (metering.take(0), metering.take(2));
        first.call(7, 100);
        second.call(7, 300);
        second.split().waiting_ns += 5;
        metering.give(first);
        metering.give(second);
        let measured = metering.collect();
        assert_eq!((measured.apis[&7].count(), measured.apis[&7].total_ns()), (2, 400));
        assert_eq!(measured.workers[2].waiting_ns, 5);
        assert!(metering.collect().apis.is_empty(), "collected once");
    }
}
