//! One replay from an opened archive to its outcome: plan, stage, run, validate.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hrr_format::archive::{Archive, ArchiveError};

use hrr_perf::report::{D2hReport, DeviceReport, RunReport, RuntimeReport};

use crate::campaign::{Campaign, Ran, Session};
use crate::choices::{Choices, Synthetic};
use crate::environment::VariableError;
use crate::machine::runtime::{Runtime, RuntimeError};
use crate::machine::topology::PinPolicy;
use crate::memory::addresses::RecordedAddresses;
use crate::plan::annotate::RangeOption;
use crate::plan::error::PlanError;
pub use crate::plan::memory::host_memory::HostMemoryCounts;
pub use crate::plan::memory::regions::RegionCounts;
use crate::plan::order::OrderMode;
use crate::plan::shape::LeftOut;
use crate::progress_line::{ProgressLine, Shown};
use crate::report::gather::{Gathered, GpuTimes, Sections};
use crate::report::gpu_timer::Keep;
use crate::report::options::{Measure, Pace};
use crate::report::order_log::OrderLog;
use crate::results::failure;
use crate::results::validate::Verdict;
use crate::run::watchdog::Watch;
use crate::survey::Survey;
use crate::trace::replayed::{self, Drawn};
use crate::trace::target::{TraceError, TraceTarget};
use crate::triage::trace::Live;
use crate::triage::{HangHandler, TriageOptions};

/// How to replay.
#[derive(Clone, Debug, Default)]
pub struct ReplayOptions {
    /// Workers; 0 = one per captured thread.
    pub threads: usize,
    /// Order between captured threads.
    pub order: OrderMode,
    /// Which cores workers run on.
    pub pin: PinPolicy,
    /// How long any call or wait may take; the process ends with exit code 124 when one takes longer.
    pub watchdog: Option<Duration>,
    /// What is told then.
    pub on_hang: HangHandler,
    /// Aids for finding out where a replay goes wrong.
    pub triage: TriageOptions,
    /// Whether to go on after a failed call.
    pub continue_on_error: bool,
    /// Host memory that plan and staging may take, in bytes: an archive that needs less is planned and staged whole
    /// before the clock starts, a larger one while the replay runs.
    pub budget_bytes: u64,
    /// How often the archive is replayed and reported; 0 is taken as 1.
    pub repeat: u32,
    /// How often it is replayed before that.
    pub warmup: u32,
    /// What is measured.
    pub measure: Measure,
    /// What becomes of the program's own gaps.
    pub pace: Pace,
    /// Which part of the archive is measured; `None` = all of it.
    pub range: Option<RangeOption>,
    /// What is done otherwise than recorded.
    pub choices: Choices,
    /// File for a timeline of the first repetition that is reported; needs [`Measure::timing`].
    pub trace: Option<PathBuf>,
    /// Whether a line tells how far the replay has come.
    pub progress: ProgressLine,
    /// The archive's device addresses, reserved before the runtime was loaded; without them they are only as free as the
    /// runtime has left them.
    pub addresses: Option<Arc<RecordedAddresses>>,
    /// What the archive's records told, if they were gone over already.
    pub survey: Option<Arc<Survey>>,
}

impl ReplayOptions {
    /// Number of runs, warm-up included.
    pub(crate) fn runs(&self) -> u64 {
        u64::from(self.repeat.max(1)) + u64::from(self.warmup)
    }

    /// Whether the timed loop is the one that has room for measuring.
    pub(crate) fn measures(&self) -> bool {
        self.measure.any() || self.pace.factor().is_some()
    }
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
    /// An environment variable has a value that cannot be used.
    #[error(transparent)]
    Variable(#[from] VariableError),
    /// An option asks for what the archive or the machine has not.
    #[error("{0}")]
    Option(String),
    /// The range begins behind the archive's end.
    #[error("the range begins behind the archive's last call; it has {events} events, --info --events lists them")]
    Range {
        /// Events in the archive.
        events: u64,
    },
    /// The launches to measure begin behind the archive's end.
    #[error("the archive has no kernel launch {first}; launches are counted from 0")]
    NoLaunch {
        /// The first launch that was to be measured.
        first: u64,
    },
    /// Only a window was to be recorded, and it never came.
    #[error("nothing was recorded: the window {trigger} was never opened")]
    NoWindow {
        /// What was to open it.
        trigger: String,
    },
    /// The archive has no call in it.
    #[error("{}: nothing was recorded: the program made no HIP call", path.display())]
    NoCalls {
        /// The process directory.
        path: PathBuf,
    },
    /// The archive is a flight recorder's.
    #[error(
        "a flight recorder keeps the last calls of each thread and not what they need: --info reads it, nothing can be replayed"
    )]
    FlightRecorder,
    /// The runtime has no events to measure times with.
    #[error("{path} lacks the event calls that --timing needs")]
    NoEvents {
        /// The runtime.
        path: String,
    },
    /// No timeline can be written where it is wanted.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// There is no device to replay on.
    #[error(
        "{path} sees no device; check that a GPU is present and accessible, or give another runtime with --hip-lib"
    )]
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
    /// Calls left out because the two devices they are about are one here.
    pub between_merged_devices: u64,
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
    /// Host memory that devices use directly.
    pub host_memory: HostMemoryCounts,
    /// Regions of device memory that another tool wrote down.
    pub regions: RegionCounts,
    /// Changes to it that the recorder left alone.
    pub host_left_alone: u64,
    /// Calls that were issued.
    pub issued: u64,
    /// Entry points with calls that were neither issued nor left out for a reason, and how many. A fault of ours.
    pub lost: Vec<(&'static str, i64)>,
    /// Results that the program saw and that no call brings.
    pub lost_results: u64,
    /// Launches left out by the kernel filter.
    pub filtered: u64,
    /// Launches of replaced kernels.
    pub replaced: u64,
    /// What a replay by shape did otherwise; `None` for a replay of what was recorded.
    pub shape: Option<ShapeOutcome>,
    /// One line on each pointer that did not translate, where that was asked for.
    pub untranslated_lines: Vec<String>,
    /// Pinned and pageable staging memory in bytes.
    pub staged_bytes: (u64, u64),
    /// Whether threads are still in the runtime: the process must end without waiting for them.
    pub abandoned: bool,
    /// Repetitions that are reported; `wall` is their median.
    pub repetitions: usize,
    /// Destroying what the archive leaves alive, after a repetition: the median; `None` where that was not done.
    pub teardown: Option<Duration>,
    /// Calls that should have destroyed something and failed, by name and code.
    pub teardown_failures: Vec<(&'static str, i32)>,
    /// Whether each repetition was planned anew, because the archive exceeds the memory budget.
    pub planned_each_repetition: bool,
    /// GPU times, with `--timing`.
    pub gpu: Option<GpuTimes>,
    /// What was measured.
    pub report: RunReport,
    /// When each call was issued and had returned, if that was asked for.
    pub order_log: Option<OrderLog>,
    /// What became of the timeline, where one was wanted.
    pub trace: Option<Result<Drawn, TraceError>>,
}

impl Outcome {
    /// The exit code that stands for it.
    pub fn exit_code(&self) -> i32 {
        if self.verdict.diverged {
            2
        } else if self.verdict.failed > 0
            || self.failed_calls > 0
            || self.all_skipped()
            || self.lost()
            || self.regions.fail()
        {
            1
        } else {
            0
        }
    }

    /// Whether something of the archive was lost on the way, in planning.
    fn lost(&self) -> bool {
        !self.lost.is_empty() || self.lost_results > 0
    }

    /// Whether there were results to compare and none was.
    pub fn all_skipped(&self) -> bool {
        self.verdict.passed() == 0 && self.verdict.failed == 0 && self.verdict.missed() > 0
    }
}

/// What a replay by shape did otherwise than the recording.
#[derive(Clone, Debug)]
pub struct ShapeOutcome {
    /// What stood for contents.
    pub synthetic: Synthetic,
    /// Calls left out, by reason and entry point.
    pub left_out: Vec<(LeftOut, &'static str, u64)>,
    /// Kernel nodes of graphs that became empty nodes.
    pub empty_nodes: u64,
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
    /// Handles of texture and surface objects in uploads, translated.
    pub images: u64,
    /// Numbers in uploads that are such a handle's, but too small to be told from any other data.
    pub small_images: u64,
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
    /// Calls of one run, as far as that is known.
    pub calls: u64,
    /// Whether the archive is planned and staged while it runs, because it exceeds the memory budget.
    pub windowed: bool,
    /// Planning and staging took this long.
    pub setup: Duration,
}

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
    let live = live(archive, options);
    let _progress_lines =
        live.as_ref().zip(options.triage.progress_every).map(|(live, every)| print_progress(live, every));
    let Some(limit) = options.watchdog else {
        return replay_watched(archive, runtime, options, on_prepared, live, None);
    };
    let watch = Watch::new(archive, runtime, limit, options.triage.marks, options.on_hang.clone());
    let (alive, over) = crossbeam::channel::bounded(0);
    std::thread::scope(|scope| {
        let watch = &watch;
        scope.spawn(move || watch.watch(&over));
        // Dropped when the replay is over and everything it used is given back.
        let _alive: crossbeam::channel::Sender<()> = alive;
        replay_watched(archive, runtime, options, on_prepared, live, Some(watch))
    })
}

fn replay_watched<'a>(
    archive: &'a Archive,
    runtime: &'a Arc<Runtime>,
    options: &'a ReplayOptions,
    on_prepared: impl FnOnce(&Prepared<'_>),
    live: Option<Arc<Live>>,
    watch: Option<&'a Watch<'a>>,
) -> Result<Outcome, ReplayError> {
    let survey = options.survey.clone().unwrap_or_else(|| Arc::new(Survey::of(archive)));
    survey.check().and_then(|()| archive.expect_calls(survey.calls)).map_err(ReplayError::Damaged)?;
    let mut target = options.trace.as_deref().map(TraceTarget::create).transpose()?;
    let mut trace = None;
    let line = Shown::start(options.progress).map(Arc::new);
    let campaign = Campaign::new(archive, &survey, runtime, options, live, watch, line.clone())?;
    let mut gathered = Gathered::default();
    let mut on_prepared = Some(on_prepared);
    let mut first_setup = None;
    let (mut planned_again, mut done) = (false, 0u64);
    // The timeline is of the first repetition behind those that warm up.
    let keep = |done: u64| match options.trace {
        Some(_) if done == u64::from(options.warmup) => Keep::Spans,
        _ => Keep::Sums,
    };
    let (session, last) = loop {
        campaign.keep(keep(done));
        let (mut session, mut ran) = campaign.plan_and_run(|prepared| {
            first_setup.get_or_insert(prepared.setup);
            let mut told = || {
                if let Some(on_prepared) = on_prepared.take() {
                    on_prepared(prepared);
                }
            };
            match &line {
                Some(line) => line.planned(prepared.calls, options.runs(), told),
                None => told(),
            }
        })?;
        let mut setup = if done == 0 { Duration::ZERO } else { session.setup };
        let ended = loop {
            done += 1;
            if let Some((taken, target)) = ran.taken.take().and_then(|taken| Some((taken, target.take()?))) {
                trace = Some(replayed::write(target, archive, runtime, options, &taken));
            }
            if done > u64::from(options.warmup) {
                gathered.add(sections(&ran, setup), ran.measured.as_ref(), ran.resolved.as_ref());
            }
            let over = done >= options.runs() || !ran.passed();
            if over || !session.is_kept() {
                break over;
            }
            campaign.keep(keep(done));
            match campaign.run_again(&mut session) {
                Some(again) => ran = again,
                None => break true,
            }
            setup = ran.reset;
        };
        if ended {
            break (session, ran);
        }
        planned_again = true;
    };
    let mut outcome = outcome(archive, &campaign, &session, &last, &gathered);
    outcome.setup = first_setup.unwrap_or_default();
    outcome.planned_each_repetition = planned_again;
    outcome.order_log = last.measured.filter(|_| options.measure.order).map(|measured| OrderLog {
        order: options.order,
        threads: options.threads,
        calls: measured.order,
    });
    outcome.report = report(archive, runtime, options, &campaign, &gathered, &outcome);
    outcome.trace = trace.or_else(|| target.map(|target| Err(target.not_reached())));
    if outcome.abandoned {
        session.abandon();
    }
    Ok(outcome)
}

fn sections(ran: &Ran, setup: Duration) -> Sections {
    Sections {
        setup: setup + ran.run.prefix,
        wall: ran.run.wall,
        teardown: ran.teardown.as_ref().map(|(took, _)| *took).unwrap_or_default(),
    }
}

impl Ran {
    /// Whether the run came to its end and did what was recorded.
    fn passed(&self) -> bool {
        !self.run.abandoned && self.failures.is_empty() && self.verdict.failed == 0
    }
}

fn outcome(
    archive: &Archive,
    campaign: &Campaign<'_>,
    session: &Session<'_>,
    last: &Ran,
    gathered: &Gathered,
) -> Outcome {
    let planned = &session.planned;
    tracing::info!(waits = planned.waits, events = planned.events, over_budget = planned.over_budget, "replayed");
    let told = &last.failures[..last.failures.len().min(LINES_KEPT)];
    Outcome {
        // A replay that stopped while warming up has no repetition.
        wall: if gathered.repetitions() > 0 { gathered.wall() } else { last.run.wall },
        setup: Duration::ZERO,
        workers: campaign.workers(),
        events: planned.events,
        kernels: last.kernels,
        graphs: last.graphs,
        failed_calls: last.failures.len() as u64,
        failures: failure::describe(archive, told),
        verdict: last.verdict.clone(),
        skipped: planned.skipped,
        failures_not_reissued: planned.failures_not_reissued,
        in_flight: planned.in_flight,
        unordered: planned.unordered,
        untranslated: planned.untranslated,
        between_merged_devices: planned.between_merged_devices,
        callbacks: planned.callbacks,
        waits: planned.waits,
        hand_offs: last.hand_offs,
        placement: campaign.placement.description.clone(),
        memory: MemoryOutcome {
            placed: planned.placed,
            not_placed: planned.not_placed,
            refusals: campaign.memory.refusals(),
            placement_on: campaign.memory.is_on(),
            stale: planned.stale,
            first_stale: planned.first_stale.clone(),
            images: planned.images,
            small_images: planned.small_images,
        },
        host_memory: planned.host_memory.clone(),
        regions: planned.regions.clone(),
        host_left_alone: archive.manifest().host_snapshots.unordered,
        issued: planned.issued,
        lost: planned.lost.clone(),
        lost_results: planned.lost_results,
        filtered: planned.filtered,
        replaced: planned.replaced,
        shape: campaign.synthetic().map(|synthetic| ShapeOutcome {
            synthetic,
            left_out: planned.shape.left_out.iter().map(|(&(reason, api), &calls)| (reason, api, calls)).collect(),
            empty_nodes: planned.shape.empty_nodes,
        }),
        untranslated_lines: planned.untranslated_lines.clone(),
        staged_bytes: session.staged_bytes(),
        abandoned: last.run.abandoned,
        repetitions: gathered.repetitions(),
        teardown: last.teardown.is_some().then(|| gathered.teardown()),
        teardown_failures: last.teardown.as_ref().map(|(_, torn_down)| torn_down.failed.clone()).unwrap_or_default(),
        planned_each_repetition: false,
        gpu: campaign.timer.is_some().then(|| gathered.gpu_times()),
        report: RunReport::default(),
        order_log: None,
        trace: None,
    }
}

fn report(
    archive: &Archive,
    runtime: &Runtime,
    options: &ReplayOptions,
    campaign: &Campaign<'_>,
    gathered: &Gathered,
    outcome: &Outcome,
) -> RunReport {
    let info = runtime.device_info(0);
    let workers = outcome.workers;
    let mut report = RunReport {
        schema_version: hrr_perf::report::SCHEMA_VERSION,
        hrr_version: env!("CARGO_PKG_VERSION").to_owned(),
        archive: archive.path().display().to_string(),
        runtime: RuntimeReport { path: runtime.path().display().to_string(), version: runtime.version() },
        device: DeviceReport { arch: runtime.device_arch(0), name: info.name, pci_bus_id: info.pci_bus_id },
        mode: format!(
            "{workers} worker thread{}, order {}{}",
            if workers == 1 { "" } else { "s" },
            options.order.as_str(),
            if outcome.shape.is_some() { ", shape only: synthetic contents, no kernels" } else { "" }
        ),
        threads: u32::try_from(workers).unwrap_or(u32::MAX),
        order: options.order.as_str().to_owned(),
        placement: outcome.placement.clone(),
        pace: options.pace.to_string(),
        range: options.range.map(|range| range.to_string()),
        setup_ns: u64::try_from(outcome.setup.as_nanos()).unwrap_or(u64::MAX),
        warmup: options.warmup,
        planned_each_repetition: outcome.planned_each_repetition,
        d2h: D2hReport {
            exact: outcome.verdict.exact,
            within: outcome.verdict.within,
            failed: outcome.verdict.failed,
            skipped: outcome.verdict.skipped_total(),
        },
        kernels_launched: outcome.kernels,
        graphs_launched: outcome.graphs,
        events_failed: outcome.failed_calls,
        exit_code: outcome.exit_code(),
        ..RunReport::default()
    };
    let kernels = archive.kernels();
    let name = |number: u32| {
        kernels
            .of_launch(number.wrapping_add(1))
            .map_or_else(|| format!("kernel {number}"), |kernel| kernel.name.clone())
    };
    let floor_ns = campaign.timer.as_ref().map(|timer| timer.floor_ns());
    gathered.fill(&mut report, name, &campaign.placement.cores, floor_ns);
    report
}

/// What progress lines need, where they are wanted.
fn live(archive: &Archive, options: &ReplayOptions) -> Option<Arc<Live>> {
    let wanted = options.triage.progress_kernels > 0 || options.triage.progress_every.is_some();
    let names = || archive.kernels().kernels().iter().map(|kernel| kernel.name.clone()).collect();
    wanted.then(|| Arc::new(Live::new(options.triage.progress_kernels, names())))
}

/// Prints a progress line now and then until the sender is dropped.
fn print_progress(live: &Arc<Live>, every: Duration) -> crossbeam::channel::Sender<()> {
    let (alive, over) = crossbeam::channel::bounded::<()>(0);
    let live = Arc::clone(live);
    std::thread::spawn(move || {
        while let Err(crossbeam::channel::RecvTimeoutError::Timeout) = over.recv_timeout(every) {
            live.print();
        }
    });
    alive
}
