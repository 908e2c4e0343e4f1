//! One replay from an opened archive to its outcome: plan, stage, run, validate.

use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hrr_format::archive::{Archive, ArchiveError};
use hrr_format::catalogue::APIS;
use hrr_format::hip_error;
use rayon::prelude::*;

use crate::chaos::Chaos;
use crate::choices::Choices;
use crate::compare::{Tolerance, ToleranceError};
use crate::instruction::{Chunk, Wait};
use crate::mutation::Mutation;
use crate::placement::{Placement, PlacementPolicy};
use crate::plan::error::PlanError;
use crate::plan::kernel_choice::Replaced;
use crate::plan::order::OrderMode;
use crate::plan::{Assignment, Delivery, PlanSettings, Planned, Planner};
use crate::run::watchdog::{self, Stuck};
use crate::run::worker::Settings;
use crate::run::{Failure, FailureKind, Sequence, Shared, start};
use crate::runtime::{Runtime, RuntimeError};
use crate::topology::{self, PinPolicy};
use crate::validate::{Divergence, Validation, Verdict};

/// How to replay.
#[derive(Clone, Debug, Default)]
pub struct ReplayOptions {
    /// Workers; 0 = one per captured thread.
    pub threads: usize,
    /// Order between captured threads.
    pub order: OrderMode,
    /// Which cores workers run on.
    pub pin: PinPolicy,
    /// How long any call or wait may take.
    pub watchdog: Option<Duration>,
    /// Whether to go on after a failed call.
    pub continue_on_error: bool,
    /// Host memory that plan and staging may take, in bytes: an archive that needs less is planned and staged whole
    /// before the clock starts, a larger one while the replay runs.
    pub budget_bytes: u64,
    /// What is done otherwise than recorded.
    pub choices: Choices,
}

/// Why a replay could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The runtime cannot be used.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// A call cannot be replayed.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A stream of the archive is damaged: the calls behind the damage are not known.
    #[error(transparent)]
    Damaged(ArchiveError),
    /// A tolerance variable has no number.
    #[error(transparent)]
    Tolerance(#[from] ToleranceError),
    /// An environment variable has a value that means nothing.
    #[error("{0}")]
    Environment(String),
    /// There is no device to replay on.
    #[error("{path} sees no device; check that a GPU is present and accessible")]
    NoDevice {
        /// The runtime.
        path: String,
    },
}

/// What a replay came to.
#[derive(Debug)]
pub struct Outcome {
    /// Duration of the timed section: from the first call to the last device being idle.
    pub wall: Duration,
    /// Duration of planning and staging before it.
    pub setup: Duration,
    /// Workers that issued calls.
    pub workers: usize,
    /// Calls in the archive.
    pub events: u64,
    /// Kernels launched.
    pub kernels: u64,
    /// Graphs launched.
    pub graphs: u64,
    /// D2H results.
    pub verdict: Verdict,
    /// One line on each failed call, the first few.
    pub failures: Vec<String>,
    /// Calls that failed.
    pub failed_calls: u64,
    /// Calls with no effect that were left out.
    pub skipped: u64,
    /// Recorded failures that were not reissued.
    pub failures_not_reissued: u64,
    /// Calls that had not returned when the archive ended.
    pub in_flight: u64,
    /// Pairs of calls on one stream that overlapped at capture.
    pub unordered: u64,
    /// Kernel pointer arguments passed as null.
    pub untranslated: u64,
    /// Host callbacks replaced by stubs.
    pub callbacks: u64,
    /// Waits between workers, and hand-overs around blocking calls.
    pub waits: u64,
    /// Times a worker handed its other captured threads on around a blocking call.
    pub hand_offs: u64,
    /// Where workers ran.
    pub placement: String,
    /// Where device memory came to lie.
    pub memory: MemoryOutcome,
    /// Launches left out by the kernel filter.
    pub filtered: u64,
    /// Launches of replaced kernels.
    pub replaced: u64,
    /// One line on each pointer that did not translate, where that was asked for.
    pub untranslated_lines: Vec<String>,
    /// Pinned and pageable staging memory in bytes.
    pub staged_bytes: (u64, u64),
    /// Whether threads are still in the runtime: the process must end without waiting for them.
    pub abandoned: bool,
    /// Set when the watchdog fired: one line per stuck worker.
    pub watchdog: Option<String>,
}

impl Outcome {
    /// The exit code that stands for it.
    pub fn exit_code(&self) -> i32 {
        if self.watchdog.is_some() {
            124
        } else if self.verdict.diverged {
            2
        } else if self.verdict.failed > 0 || self.failed_calls > 0 || self.all_skipped() {
            1
        } else {
            0
        }
    }

    /// Whether there were results to compare and none was.
    pub fn all_skipped(&self) -> bool {
        self.verdict.passed() == 0 && self.verdict.failed == 0 && self.verdict.missed() > 0
    }
}

/// Where device memory came to lie.
#[derive(Clone, Debug, Default)]
pub struct MemoryOutcome {
    /// Device allocations at their recorded addresses.
    pub placed: u64,
    /// Device allocations elsewhere.
    pub not_placed: u64,
    /// Why addresses could not be had; empty where all could.
    pub refusals: String,
    /// Whether memory was to be placed.
    pub placement_on: bool,
    /// Addresses in uploads that are not true any more.
    pub stale: u64,
    /// The first of them.
    pub first_stale: Option<String>,
}

/// What is known once the plan stands, for the lines printed before the clock starts.
#[derive(Debug)]
pub struct Prepared<'a> {
    /// The runtime.
    pub runtime: &'a Runtime,
    /// Devices the archive uses, with their names.
    pub devices: Vec<(i32, String)>,
    /// Workers.
    pub workers: usize,
    /// Calls in the archive.
    pub events: u64,
    /// Whether the archive is planned and staged while it runs, because it exceeds the memory budget.
    pub windowed: bool,
    /// Planning and staging took this long.
    pub setup: Duration,
}

/// How long the end of a stopped replay waits for threads that are still in the runtime.
const GRACE: Duration = Duration::from_secs(2);
/// Failure lines kept.
const LINES_KEPT: usize = 20;

/// Replays an archive on a runtime. `on_prepared` is called when everything is planned and staged.
///
/// # Errors
/// What keeps the archive from being replayed at all; calls that fail during the replay are part of the outcome.
pub fn replay(
    archive: &Archive,
    runtime: &Arc<Runtime>,
    options: &ReplayOptions,
    on_prepared: impl FnOnce(&Prepared<'_>),
) -> Result<Outcome, ReplayError> {
    let tolerance = Tolerance::from_env()?;
    let divergence = Divergence::from_env().map_err(ReplayError::Environment)?;
    let mutation = Mutation::from_env().map_err(ReplayError::Environment)?;
    let device_count = runtime.device_count()?;
    if device_count < 1 {
        return Err(ReplayError::NoDevice { path: runtime.path().display().to_string() });
    }

    options.choices.devices.check(archive, runtime, device_count).map_err(ReplayError::Environment)?;
    let replaced = Replaced::read(&options.choices.replacements).map_err(ReplayError::Environment)?;
    let planning = Instant::now();
    // Before anything else takes the addresses.
    let placed = match options.choices.placement {
        PlacementPolicy::WherePossible if !options.choices.new_memory.pads() => {
            Placement::prepare(archive, runtime, &options.choices.devices, device_count)
        }
        _ => Placement::off(Arc::clone(runtime)),
    };
    let placed = Arc::new(placed);
    check_streams(archive)?;
    let assignment = Assignment::new(archive, options.threads);
    let workers = assignment.workers;
    let multiplexed = assignment.multiplexed();
    let lanes = assignment.worker_of.len();
    let (checks, on_check) = crossbeam::channel::unbounded();
    let mut planner = Planner::new(PlanSettings {
        archive,
        runtime,
        assignment,
        order: options.order,
        mutation,
        device_count,
        budget_bytes: options.budget_bytes,
        checks,
        choices: options.choices.clone(),
        placement: Arc::clone(&placed),
        replaced,
    });
    let mut inboxes = Vec::new();
    let mut sequences = Vec::new();
    for worker in 0..workers {
        let (sender, receiver) = crossbeam::channel::unbounded();
        inboxes.push(sender);
        sequences.push(Sequence::new(worker as u32, receiver));
    }
    // Placement wants a device before anything is planned; a thread starts on device 0.
    let info = runtime.device_info(0);
    let bus_id = (!info.pci_bus_id.is_empty()).then_some(info.pci_bus_id.as_str());
    let placement = topology::place(&options.pin, bus_id, workers);
    let (shared, ended) = start(Settings {
        runtime: Arc::clone(runtime),
        lanes,
        multiplexed,
        continue_on_error: options.continue_on_error,
        cores: placement.cores.clone(),
        chaos: Chaos::from_env(),
    });
    let validation = Validation {
        archive,
        checks: on_check,
        tolerance,
        divergence,
        unordered: options.order == OrderMode::Program && lanes > 1,
    };
    let over = AtomicBool::new(false);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let (ready, on_ready) = crossbeam::channel::bounded(1);

    let result = std::thread::scope(|scope| {
        let planner = &mut planner;
        let mut delivery = ToWorkers { inboxes, ready: ready.clone(), shared: Arc::clone(&shared) };
        let plan = scope.spawn(move || {
            let result = planner.run(&mut delivery).map(|()| std::mem::take(&mut planner.planned));
            planner.no_more_checks();
            let _ = ready.try_send(Ready::Whole);
            result
        });
        let (part_devices, plan) = match on_ready.recv() {
            Ok(Ready::Part { devices }) => (Some(devices), Err(plan)),
            // Planned whole: a call that cannot be replayed is refused before any call is issued.
            _ => (None, Ok(joined(plan)?)),
        };
        let windowed = part_devices.is_some();
        let devices = match &plan {
            Ok(planned) => planned.devices.clone(),
            Err(_) => part_devices.unwrap_or_default(),
        };
        let spares = if multiplexed { (lanes - workers).min(workers) } else { 0 };
        shared.prepare_spares(workers + spares);
        let setup = planning.elapsed();
        on_prepared(&Prepared {
            runtime,
            devices: devices.iter().map(|&device| (device, runtime.device_info(device).name)).collect(),
            workers,
            events: plan.as_ref().map_or(archive.manifest().event_count, |planned| planned.events),
            windowed,
            setup,
        });
        // Checks run beside the workers where there are cores to spare, or where memory waits for them; else afterwards.
        let beside = (workers < cores || windowed).then(|| scope.spawn(|| validation.run(&shared.progress, &over)));
        let mut plan = Some(plan);
        let (run, planned) = execute(&shared, &ended, sequences, options.watchdog, || match plan.take() {
            Some(Ok(planned)) => Ok(planned),
            Some(Err(thread)) => joined(thread),
            None => Ok(Planned::default()),
        });
        // Release: pairs with the validator's Acquire.
        over.store(true, Ordering::Release);
        let verdict = match beside {
            Some(thread) => thread.join().unwrap_or_default(),
            None if run.stuck.is_none() => validation.run(&shared.progress, &over),
            None => Verdict::default(),
        };
        Ok::<_, ReplayError>((run, planned, verdict, setup))
    });
    let (run, planned, verdict, setup) = result?;
    let staged_bytes = planner.host.peak_bytes();
    if run.abandoned {
        // Threads may still be in the runtime with addresses of this memory: it must stay.
        std::mem::forget(planner);
    }
    let planned = planned?;
    tracing::info!(waits = planned.waits, events = planned.events, over_budget = planned.over_budget, "replayed");

    let failures = std::mem::take(&mut *shared.failures.lock().unwrap_or_else(PoisonError::into_inner));
    let thread_of = |lane: u32| archive.streams().get(lane as usize).map_or(lane, |stream| stream.header().thread);
    Ok(Outcome {
        wall: run.wall,
        setup,
        workers,
        events: planned.events,
        // Relaxed: the runners' ends were received through a channel.
        kernels: shared.kernels.load(Ordering::Relaxed),
        graphs: shared.graphs.load(Ordering::Relaxed),
        failed_calls: failures.len() as u64,
        failures: failures.iter().take(LINES_KEPT).map(|failure| describe_failure(failure, thread_of)).collect(),
        verdict,
        skipped: planned.skipped,
        failures_not_reissued: planned.failures_not_reissued,
        in_flight: planned.in_flight,
        unordered: planned.unordered,
        untranslated: planned.untranslated,
        callbacks: planned.callbacks,
        waits: planned.waits,
        hand_offs: shared.hand_offs.load(Ordering::Relaxed),
        placement: placement.description,
        memory: MemoryOutcome {
            placed: planned.placed,
            not_placed: planned.not_placed,
            refusals: placed.refusals(),
            placement_on: placed.is_on(),
            stale: planned.stale,
            first_stale: planned.first_stale,
        },
        filtered: planned.filtered,
        replaced: planned.replaced,
        untranslated_lines: planned.untranslated_lines,
        staged_bytes,
        abandoned: run.abandoned,
        watchdog: run.stuck.map(|stuck| watchdog::describe(&stuck, thread_of)),
    })
}

/// Looks for damage before any call is issued: what lies behind it would be left out in silence.
fn check_streams(archive: &Archive) -> Result<(), ReplayError> {
    archive.streams().par_iter().try_for_each(|stream| {
        stream
            .check()
            .map_err(|damage| ReplayError::Damaged(ArchiveError::Record { path: stream.path().to_owned(), damage }))
    })
}

/// How far planning has come when the run may begin.
enum Ready {
    /// Everything is planned.
    Whole,
    /// The memory budget is used up; the rest is planned while the run goes on.
    Part { devices: Vec<i32> },
}

/// Carries the planner's chunks to the workers.
struct ToWorkers {
    inboxes: Vec<crossbeam::channel::Sender<Arc<Chunk>>>,
    ready: crossbeam::channel::Sender<Ready>,
    shared: Arc<Shared>,
}

impl Delivery for ToWorkers {
    fn chunk(&mut self, worker: usize, chunk: Arc<Chunk>) {
        // A worker that was stopped takes no more.
        let _ = self.inboxes[worker].send(chunk);
    }

    fn part_ready(&mut self, devices: &[i32]) {
        // Only the first is waited for.
        let _ = self.ready.try_send(Ready::Part { devices: devices.to_vec() });
    }

    fn done(&self, wait: Wait) -> bool {
        self.shared.progress.done(wait.lane) >= wait.count
    }

    fn moved(&self) -> u64 {
        self.shared.progress.total()
    }

    fn stopped(&self) -> bool {
        self.shared.progress.stopped()
    }
}

fn joined(plan: std::thread::ScopedJoinHandle<'_, Result<Planned, PlanError>>) -> Result<Planned, ReplayError> {
    match plan.join() {
        Ok(result) => Ok(result?),
        // A panic in planning is a fault of ours: let it surface where it can be seen.
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// What the timed section came to.
struct Run {
    wall: Duration,
    abandoned: bool,
    stuck: Option<Vec<Stuck>>,
}

/// The timed section. `plan` gives what was planned once the workers have come to its end.
fn execute(
    shared: &Arc<Shared>,
    ended: &crossbeam::channel::Receiver<u32>,
    sequences: Vec<Sequence>,
    limit: Option<Duration>,
    mut plan: impl FnMut() -> Result<Planned, ReplayError>,
) -> (Run, Result<Planned, ReplayError>) {
    let (done, on_done) = crossbeam::channel::bounded::<()>(1);
    let (fired, on_fired) = crossbeam::channel::bounded::<Vec<Stuck>>(1);
    if let Some(limit) = limit {
        let shared = Arc::clone(shared);
        // Not joined: it ends when `done` is dropped or when it has fired.
        std::thread::spawn(move || {
            if let Some(stuck) = watchdog::watch(&shared, limit, &on_done) {
                let _ = fired.send(stuck);
            }
        });
    } else {
        std::mem::forget(fired);
    }
    let workers = sequences.len();
    let begun = Instant::now();
    for sequence in sequences {
        shared.dispatch(Box::new(sequence));
    }
    let stop = |stuck: Option<Vec<Stuck>>| {
        shared.progress.stop();
        Run { wall: begun.elapsed(), abandoned: true, stuck }
    };
    for _ in 0..workers {
        crossbeam::select! {
            recv(ended) -> worker => if worker.is_err() { return (stop(None), plan()); },
            recv(on_fired) -> stuck => return (stop(stuck.ok()), plan()),
        }
    }
    let planned = match plan() {
        Ok(planned) => planned,
        Err(error) => {
            shared.progress.stop();
            let abandoned = !runners_idle(shared);
            return (Run { wall: begun.elapsed(), abandoned, stuck: None }, Err(error));
        }
    };
    // Blocking calls that were handed off may still be on their way.
    for (lane, &total) in planned.lane_totals.iter().enumerate() {
        while shared.progress.done(lane as u32) < total && !shared.progress.stopped() {
            if let Ok(stuck) = on_fired.try_recv() {
                return (stop(Some(stuck)), Ok(planned));
            }
            std::thread::yield_now();
        }
    }
    if shared.progress.stopped() {
        let wall = begun.elapsed();
        let abandoned = !runners_idle(shared);
        return (Run { wall, abandoned, stuck: None }, Ok(planned));
    }
    // The timed section ends when the devices are idle. In a thread of its own, so that the watchdog can end the wait.
    let (idle, on_idle) = crossbeam::channel::bounded(1);
    {
        let (runtime, devices) = (Arc::clone(&shared.runtime), planned.devices.clone());
        std::thread::spawn(move || {
            for device in devices {
                if runtime.set_device(device).is_ok() {
                    let _ = runtime.synchronize();
                }
            }
            let _ = idle.send(());
        });
    }
    let deadline = limit.map_or_else(crossbeam::channel::never, crossbeam::channel::after);
    crossbeam::select! {
        recv(on_idle) -> _ => {}
        recv(deadline) -> _ => {
            let id = hrr_format::catalogue::Api::by_name("hipDeviceSynchronize").map_or(0, |api| api.id);
            let stuck = Stuck { event: 0, lane: 0, api: id, in_call: true, stuck_for: limit.unwrap_or_default() };
            return (stop(Some(vec![stuck])), Ok(planned));
        }
    }
    let wall = begun.elapsed();
    drop(done);
    shared.dismiss();
    (Run { wall, abandoned: false, stuck: None }, Ok(planned))
}

/// Waits a while for every runner to leave the runtime.
fn runners_idle(shared: &Shared) -> bool {
    let deadline = Instant::now() + GRACE;
    loop {
        let boards = shared.boards.lock().unwrap_or_else(PoisonError::into_inner);
        // Relaxed: a runner that has just gone idle is seen at the next look.
        if boards.iter().all(|board| board.event.load(Ordering::Relaxed) == 0) {
            return true;
        }
        drop(boards);
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn describe_failure(failure: &Failure, thread_of: impl Fn(u32) -> u32) -> String {
    let api = APIS.get(usize::from(failure.api)).map_or("?", |api| api.name);
    let name = |code: i32| hip_error::name(code).unwrap_or("unknown error");
    let place = format!("event {} (thread {}), {api}", failure.event, thread_of(failure.lane));
    match failure.kind {
        FailureKind::Code { got, expected: 0 } => {
            format!("{place}: failed with {got} ({}); it had succeeded at capture", name(got))
        }
        FailureKind::Code { got, expected } => format!(
            "{place}: returned {got} ({}); at capture it had returned {expected} ({})",
            name(got),
            name(expected)
        ),
        FailureKind::Device { device, got } => {
            format!("{place}: its device {device} cannot be made current: {got} ({})", name(got))
        }
    }
}
