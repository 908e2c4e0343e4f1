//! Parts of a replay by themselves, for measuring what they cost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam::channel::Sender;
use hrr_format::archive::Archive;

use crate::instruction::{Chunk, Wait};
use crate::machine::runtime::Runtime;
use crate::plan::error::PlanError;
use crate::plan::listing::listing;
use crate::plan::order::OrderMode;
pub use crate::plan::order::edges::Hands;
use crate::plan::{Assignment, Check, Delivery, PlanSettings, Planner};
use crate::run::progress::Progress;
use crate::run::spinning::Cores;
use crate::survey::Survey;

/// How long `count` waits take that are fulfilled when they are made, over `lanes` captured threads.
pub fn satisfied_edges(lanes: u32, count: u64) -> Duration {
    let progress = Progress::new(lanes as usize, Cores::of(1));
    for lane in 0..lanes {
        progress.publish(lane, u64::MAX);
    }
    let begun = Instant::now();
    for number in 0..count {
        let lane = std::hint::black_box((number % u64::from(lanes)) as u32);
        std::hint::black_box(progress.wait(lane, number));
    }
    begun.elapsed()
}

/// How long `count` publications take that nobody waits for.
pub fn publications(count: u64) -> Duration {
    let progress = Progress::new(1, Cores::of(1));
    let begun = Instant::now();
    for number in 1..=count {
        progress.publish(0, std::hint::black_box(number));
    }
    begun.elapsed()
}

/// How long two OS threads take to hand over to each other `count` times: one publishes what the other waits for.
///
/// # Panics
/// The second thread cannot be started.
pub fn handovers(count: u64) -> Duration {
    let progress = Arc::new(Progress::new(2, Cores::of(2)));
    let rounds = count / 2;
    let other = Arc::clone(&progress);
    let partner = std::thread::spawn(move || {
        for round in 1..=rounds {
            other.wait(0, round);
            other.publish(1, round);
        }
    });
    // The partner is up and waiting.
    std::thread::sleep(Duration::from_millis(5));
    let begun = Instant::now();
    for round in 1..=rounds {
        progress.publish(0, round);
        progress.wait(1, round);
    }
    let took = begun.elapsed();
    let _ = partner.join();
    took
}

/// What planning an archive came to.
#[derive(Clone, Copy, Debug)]
pub struct Planning {
    /// Time on the clock.
    pub took: Duration,
    /// Processor time of the whole process meanwhile.
    pub processor_time: Duration,
    /// Calls planned.
    pub events: u64,
    /// Waits between workers.
    pub waits: u64,
}

/// Plans an archive without running it.
///
/// # Errors
/// The first call that cannot be replayed.
pub fn plan(
    archive: &Archive,
    runtime: &Arc<Runtime>,
    threads: usize,
    order: OrderMode,
    hands: Hands,
) -> Result<Planning, PlanError> {
    let (checks, _on_check) = crossbeam::channel::unbounded();
    let mut planner = planner(archive, runtime, threads, order, hands, checks);
    let mut kept = Kept(vec![Vec::new(); Assignment::new(archive, threads).workers]);
    let (begun, processor_begun) = (Instant::now(), processor_time());
    planner.run(&mut kept)?;
    let (took, processor_time) = (begun.elapsed(), processor_time().saturating_sub(processor_begun));
    Ok(Planning { took, processor_time, events: planner.planned.events, waits: planner.planned.waits })
}

/// The plan of an archive as text, the same wherever things lie in memory. It is long.
///
/// # Errors
/// The first call that cannot be replayed.
pub fn plan_listing(
    archive: &Archive,
    runtime: &Arc<Runtime>,
    threads: usize,
    order: OrderMode,
    hands: Hands,
) -> Result<String, PlanError> {
    let (checks, on_check) = crossbeam::channel::unbounded();
    let mut planner = planner(archive, runtime, threads, order, hands, checks);
    let mut kept = Kept(vec![Vec::new(); Assignment::new(archive, threads).workers]);
    planner.run(&mut kept)?;
    planner.no_more_checks();
    let mut results: Vec<String> = on_check
        .iter()
        .map(|check| format!("event {} blob {} ready {:?} {:?}\n", check.event, check.blob, check.ready, check.shape))
        .collect();
    // Those that the program never saw come in no order.
    results.sort_unstable();
    // The chunks point into the planner's memory, which is there for as long as they are looked at.
    let planned = &planner.planned;
    let counts = format!(
        "{} events, {} issued, {} waits, {} unordered, {} in flight, totals {:?}, lost {:?}\n",
        planned.events,
        planned.issued,
        planned.waits,
        planned.unordered,
        planned.in_flight,
        planned.lane_totals,
        planned.lost
    );
    Ok(counts + &results.concat() + &listing(&kept.0))
}

fn planner<'a>(
    archive: &'a Archive,
    runtime: &'a Arc<Runtime>,
    threads: usize,
    order: OrderMode,
    hands: Hands,
    checks: Sender<Check>,
) -> Planner<'a> {
    /// More than any recorded program used.
    const DEVICES: i32 = 64;
    let survey = Survey::of(archive);
    Planner::new(PlanSettings {
        archive,
        runtime,
        assignment: Assignment::new(archive, threads),
        order,
        mutation: None,
        device_count: DEVICES,
        budget_bytes: u64::MAX,
        choices: crate::choices::Choices::default(),
        placement: Arc::new(crate::memory::placement::Placement::off(Arc::clone(runtime))),
        replaced: Vec::new(),
        annotate: crate::plan::annotate::Annotate::default(),
        triage: crate::plan::escort::TriagePlan::default(),
        memory_nodes: crate::machine::memory_node::MemoryNodes::default(),
        delayed: Arc::new(survey.delayed(archive)),
        direct_host_memory: survey.direct_host_memory,
        hands,
        checks,
    })
}

/// Processor time of this process.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the address is that of a timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Keeps what is planned, by worker, as workers that have not begun do.
struct Kept(Vec<Vec<Arc<Chunk>>>);

impl Delivery for Kept {
    fn chunk(&mut self, worker: usize, chunk: Arc<Chunk>) {
        self.0[worker].push(chunk);
    }

    fn part_ready(&mut self, _: &[i32]) {}

    fn range_begins(&mut self, _: u64, _: &[u64]) {}

    fn done(&self, _: Wait) -> bool {
        true
    }

    fn moved(&self) -> u64 {
        0
    }

    fn stopped(&self) -> bool {
        false
    }
}
