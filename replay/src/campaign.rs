//! An archive planned, and the plan run as often as asked.

mod delivery;
mod ran;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender, bounded, unbounded};

use hrr_format::archive::Archive;
use hrr_format::stream_file::StreamFile;

use crate::chaos::Chaos;
use crate::choices::{Guarded, RegionPolicy, Synthetic};
use crate::driver::{Prepared, ReplayError, ReplayOptions};
use crate::instruction::Chunk;
use crate::machine::memory_node::MemoryNodes;
use crate::machine::runtime::Runtime;
use crate::machine::topology::{self, Placement};
use crate::memory::addresses::RecordedAddresses;
use crate::memory::placement::{self, PlacementPolicy};
use crate::mutation::Mutation;
use crate::plan::annotate::{Annotate, RangeOption};
use crate::plan::escort::TriagePlan;
use crate::plan::lower::kernel_choice::Replaced;
use crate::plan::order::OrderMode;
use crate::plan::order::edges::Hands;
use crate::plan::order::looks::Delayed;
use crate::plan::{Assignment, Check, PlanSettings, Planned, Planner};
use crate::progress_line::Shown;
use crate::repeat::Kept;
use crate::report::gpu_timer::{GpuTimer, Keep};
use crate::report::meter::Metering;
use crate::results::compare::Tolerance;
use crate::results::validate::{Divergence, Validation, Verdict};
use crate::run::section::{Run, Start, execute};
use crate::run::watchdog::Watch;
use crate::run::worker::Settings;
use crate::run::{Sequence, Shared, start};
use crate::survey::Survey;
use crate::triage::diagnosis::Phase;
use crate::triage::own_calls;
use crate::triage::trace::Live;

use self::delivery::{Plan, Ready, ToWorkers, joined};

pub(crate) use self::ran::Ran;

/// What all runs of a replay have in common.
pub(crate) struct Campaign<'a> {
    archive: &'a Archive,
    survey: Arc<Survey>,
    /// Calls that count as entered later than they were.
    delayed: Arc<Delayed>,
    runtime: &'a Arc<Runtime>,
    options: &'a ReplayOptions,
    tolerance: Tolerance,
    divergence: Divergence,
    mutation: Option<Mutation>,
    chaos: Chaos,
    device_count: i32,
    assignment: Assignment,
    pub(crate) placement: Placement,
    /// Device memory at recorded addresses.
    pub(crate) memory: Arc<placement::Placement>,
    memory_nodes: MemoryNodes,
    pub(crate) timer: Option<Arc<GpuTimer>>,
    metering: Option<Arc<Metering>>,
    live: Option<Arc<Live>>,
    watch: Option<&'a Watch<'a>>,
    line: Option<Arc<Shown>>,
}

/// A plan of which everything was planned before it ran, or nothing is kept.
pub(crate) struct Session<'a> {
    planner: Planner<'a>,
    pub(crate) planned: Planned,
    kept: Option<Kept>,
    /// Planning and staging.
    pub(crate) setup: Duration,
}

/// Whether the recorded program was told that there is no device, and saw none.
fn met_no_device(archive: &Archive) -> bool {
    /// `hipErrorNoDevice`.
    const NO_DEVICE: i32 = 100;
    let told = |stream: &StreamFile| stream.records().any(|record| record.ret() == NO_DEVICE);
    archive.manifest().devices.is_empty() && archive.streams().iter().any(told)
}

/// The calls behind the preamble of an archive that holds only a window of a program.
fn recorded_window(archive: &Archive) -> Option<RangeOption> {
    let from = archive.manifest().window.as_ref()?.preamble_calls;
    (from > 0).then_some(RangeOption::Events { from, to: u64::MAX })
}

impl<'a> Campaign<'a> {
    /// A campaign on a runtime that has a device.
    pub(crate) fn new(
        archive: &'a Archive,
        survey: &Arc<Survey>,
        runtime: &'a Arc<Runtime>,
        options: &'a ReplayOptions,
        live: Option<Arc<Live>>,
        watch: Option<&'a Watch<'a>>,
        line: Option<Arc<Shown>>,
    ) -> Result<Self, ReplayError> {
        if archive.manifest().flight_recorder_bytes.is_some() {
            return Err(ReplayError::FlightRecorder);
        }
        if let Some(window) = archive.manifest().window.as_ref().filter(|window| window.opened == 0) {
            return Err(ReplayError::NoWindow { trigger: window.trigger.clone() });
        }
        if survey.calls == 0 {
            return Err(ReplayError::NoCalls { path: archive.path().to_owned() });
        }
        let tolerance = Tolerance::from_env()?;
        let divergence = Divergence::from_env()?;
        let mutation = Mutation::from_env()?;
        let chaos = Chaos::from_env()?;
        let device_count = match runtime.device_count() {
            Ok(count) if count > 0 => count,
            // What such a program was told can be compared where there is none either.
            _ if met_no_device(archive) => 0,
            Ok(_) => return Err(ReplayError::NoDevice { path: runtime.path().display().to_string() }),
            Err(error) => return Err(error.into()),
        };
        let choices = &options.choices;
        choices.devices.check(archive, runtime, device_count).map_err(ReplayError::Option)?;
        let guards = choices.guards.around;
        let used = choices.regions != RegionPolicy::Ignored && !archive.regions().entries().is_empty();
        if guards.is_some() && !used {
            return Err(ReplayError::Option(
                "--guard-segments and --guard-blocks need region sidecars (regions/*.hrrr in the process directory), and there are none to use"
                    .to_owned(),
            ));
        }
        // Before anything else takes the addresses.
        let memory = match choices.placement {
            PlacementPolicy::WherePossible
                if !choices.new_memory.pads() && guards != Some(Guarded::Segments) && device_count > 0 =>
            {
                let reserved = options.addresses.clone();
                let addresses = reserved.unwrap_or_else(|| Arc::new(RecordedAddresses::reserve(survey)));
                placement::Placement::prepare(&addresses, runtime, &choices.devices, device_count)
            }
            _ => placement::Placement::off(Arc::clone(runtime)),
        };
        let assignment = Assignment::new(archive, options.threads);
        // Each worker near the device it works on, and what is staged for a device near that.
        let homes: Vec<i32> =
            assignment.home_devices(archive).into_iter().map(|device| choices.devices.live(device)).collect();
        let mut used = homes.clone();
        used.sort_unstable();
        used.dedup();
        let bus_ids: Vec<(i32, String)> =
            used.into_iter().map(|device| (device, runtime.device_info(device).pci_bus_id)).collect();
        let places: Vec<(i32, Option<&str>)> =
            bus_ids.iter().map(|(device, bus_id)| (*device, (!bus_id.is_empty()).then_some(bus_id.as_str()))).collect();
        let near: Vec<Option<&str>> = homes
            .iter()
            .map(|home| places.iter().find(|(device, _)| device == home).and_then(|(_, bus_id)| *bus_id))
            .collect();
        let mut placement = topology::place(&options.pin, &near);
        let memory_nodes = MemoryNodes::near(&options.pin, &places);
        placement.description = format!("{}; {}", placement.description, memory_nodes.description());
        let measure = &options.measure;
        let timer = measure.timing.then(|| GpuTimer::start(runtime)).flatten();
        if measure.timing && timer.is_none() {
            return Err(ReplayError::NoEvents { path: runtime.path().display().to_string() });
        }
        let lanes = assignment.worker_of.len();
        let metering = options.measures().then(|| {
            let mut metering = Metering::new(lanes, timer.clone());
            metering.logs_order = measure.order;
            Arc::new(metering)
        });
        Ok(Campaign {
            archive,
            survey: Arc::clone(survey),
            delayed: Arc::new(survey.delayed(archive)),
            runtime,
            options,
            tolerance,
            divergence,
            mutation,
            chaos,
            device_count,
            assignment,
            placement,
            memory: Arc::new(memory),
            memory_nodes,
            timer,
            metering,
            live,
            watch,
            line,
        })
    }

    /// Whether the next run is kept for a timeline.
    pub(crate) fn keep(&self, keep: Keep) {
        if let Some(metering) = &self.metering {
            metering.keep(keep);
        }
    }

    fn kept(&self) -> Keep {
        self.metering.as_ref().map_or(Keep::Sums, |metering| metering.kept())
    }

    /// Number of workers.
    pub(crate) fn workers(&self) -> usize {
        self.assignment.workers
    }

    /// What stands for recorded contents, in a replay by shape.
    pub(crate) fn synthetic(&self) -> Option<Synthetic> {
        self.options.choices.synthetic
    }

    fn lanes(&self) -> usize {
        self.assignment.worker_of.len()
    }

    /// Which part of the archive is measured: what was asked for; else, of a recorded window, what is behind its preamble.
    fn range(&self) -> Option<RangeOption> {
        self.options.range.or_else(|| recorded_window(self.archive))
    }

    fn annotate(&self) -> Annotate {
        let ns_per_tick = match self.archive.manifest().clock.ticks_per_second {
            0 => 1.0,
            rate => 1e9 / rate as f64,
        };
        Annotate {
            notes: self.options.measure.any(),
            gap_ns_per_tick: self.options.pace.factor().map(|factor| ns_per_tick / factor),
            range: self.range(),
        }
    }

    fn start_runners(&self) -> (Arc<Shared>, Receiver<u32>) {
        let (shared, ended) = start(Settings {
            runtime: Arc::clone(self.runtime),
            lanes: self.lanes(),
            workers: self.assignment.workers,
            multiplexed: self.assignment.multiplexed(),
            continue_on_error: self.options.continue_on_error,
            cores: self.placement.cores.clone(),
            chaos: self.chaos,
            metering: self.metering.clone(),
        });
        if let Some(watch) = self.watch {
            watch.watch_runners(&shared, &self.assignment.worker_of);
        }
        if let Some(line) = &self.line {
            line.watch(&shared);
        }
        (shared, ended)
    }

    fn phase(&self, phase: Phase) {
        if let Some(watch) = self.watch {
            watch.phase(phase);
        }
    }

    fn triage_plan(&self) -> TriagePlan<'a> {
        TriagePlan {
            options: self.options.triage,
            marks: self.watch.and_then(|watch| watch.marks.clone()),
            index: self.watch.map(|watch| Arc::clone(&watch.index)),
            live: self.live.clone(),
            ..TriagePlan::default()
        }
    }

    fn spares(&self) -> usize {
        let workers = self.workers();
        if self.assignment.multiplexed() { (self.lanes() - workers).min(workers) } else { 0 }
    }

    fn validation(&self, checks: Receiver<Check>) -> Validation<'a> {
        Validation {
            archive: self.archive,
            checks,
            tolerance: self.tolerance,
            divergence: self.divergence,
            unordered: self.options.order == OrderMode::Program && self.lanes() > 1,
            cut: self.options.range.is_some(),
            keep: self.kept(),
            live: self.live.clone(),
        }
    }

    fn inboxes(&self) -> (Vec<Sender<Arc<Chunk>>>, Vec<Sequence>) {
        (0..self.workers())
            .map(|worker| {
                let (sender, receiver) = unbounded();
                (sender, Sequence::new(worker as u32, receiver))
            })
            .unzip()
    }

    /// Checks run beside the workers where there are cores to spare; else afterwards, so that they take no worker's time.
    fn checks_beside(&self) -> bool {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        self.workers() < cores
    }

    /// Plans the archive, and runs the plan for the first time. `on_prepared` is called when everything that fits the memory
    /// budget is planned and staged.
    pub(crate) fn plan_and_run(
        &self,
        on_prepared: impl FnOnce(&Prepared<'_>),
    ) -> Result<(Session<'a>, Ran), ReplayError> {
        let planning = Instant::now();
        let (checks, on_check) = unbounded();
        let choices = self.options.choices.clone();
        let replaced = Replaced::read(&choices.replacements).map_err(ReplayError::Option)?;
        let mut planner = Planner::new(PlanSettings {
            archive: self.archive,
            runtime: self.runtime,
            assignment: self.assignment.clone(),
            order: self.options.order,
            mutation: self.mutation,
            device_count: self.device_count,
            budget_bytes: self.options.budget_bytes,
            checks,
            annotate: self.annotate(),
            choices,
            placement: Arc::clone(&self.memory),
            replaced,
            triage: self.triage_plan(),
            memory_nodes: self.memory_nodes.clone(),
            direct_host_memory: self.survey.direct_host_memory.clone(),
            delayed: Arc::clone(&self.delayed),
            hands: Hands::for_archive(self.archive),
        });
        let (inboxes, sequences) = self.inboxes();
        let (shared, ended) = self.start_runners();
        let (ready, on_ready) = bounded(1);
        let (range, on_range) = bounded(1);
        let keep = self.options.runs() > 1;

        let result = std::thread::scope(|scope| {
            let planner = &mut planner;
            let mut delivery = ToWorkers {
                kept: keep.then(|| vec![Vec::new(); inboxes.len()]),
                inboxes,
                ready: ready.clone(),
                range,
                shared: Arc::clone(&shared),
                range_start: None,
            };
            let plan = scope.spawn(move || {
                let _watched = own_calls::enter_work("planning and staging");
                let result = planner.run(&mut delivery).map(|()| std::mem::take(&mut planner.planned));
                planner.no_more_checks();
                let kept = delivery.kept.take().map(|chunks| Kept::new(planner, chunks, delivery.range_start.take()));
                let _ = ready.try_send(Ready::Whole);
                result.map(|planned| (planned, kept))
            });
            let (part_devices, mut plan) = match on_ready.recv() {
                Ok(Ready::Part { devices }) => (Some(devices), Plan::Running(plan)),
                // Planned whole: a call that cannot be replayed is refused before any call is issued.
                _ => {
                    let (planned, kept) = joined(plan)?;
                    self.check_range(&planned)?;
                    (None, Plan::Whole(planned, kept))
                }
            };
            let windowed = part_devices.is_some();
            let devices = match &plan {
                Plan::Whole(planned, _) => planned.devices.clone(),
                _ => part_devices.unwrap_or_default(),
            };
            let events = match &plan {
                Plan::Whole(planned, _) => planned.events,
                _ => self.archive.manifest().event_count,
            };
            shared.prepare_spares(self.workers() + self.spares());
            let calls = match &plan {
                Plan::Whole(planned, _) => planned.lane_totals.iter().sum(),
                _ => events,
            };
            let setup = planning.elapsed();
            on_prepared(&Prepared {
                calls,
                runtime: self.runtime,
                devices: devices.iter().map(|&device| (device, self.runtime.device_info(device).name)).collect(),
                workers: self.workers(),
                events,
                windowed,
                setup,
            });
            // What is kept is checked again in each run.
            let on_check = match &mut plan {
                Plan::Whole(_, Some(kept)) => {
                    kept.set_checks(on_check.try_iter().collect());
                    refilled(kept.checks())
                }
                _ => on_check,
            };
            let mut kept = None;
            let validation = self.validation(on_check);
            let start = Start {
                shared: &shared,
                ended: &ended,
                sequences,
                phase: &|phase| self.phase(phase),
                devices: &devices,
                range: self.range().is_some().then_some(on_range),
            };
            let (run, planned, verdict) = self.run(start, validation, windowed, || {
                let (planned, pictures) = match std::mem::replace(&mut plan, Plan::Taken) {
                    Plan::Whole(planned, pictures) => (planned, pictures),
                    Plan::Running(thread) => {
                        let (planned, _) = joined(thread)?;
                        self.check_range(&planned)?;
                        (planned, None)
                    }
                    Plan::Taken => (Planned::default(), None),
                };
                kept = pictures;
                Ok(planned)
            });
            Ok::<_, ReplayError>((run, planned, verdict, kept, setup))
        });
        let (run, planned, verdict, kept, setup) = result?;
        let planned = match planned {
            Ok(planned) => planned,
            Err(error) => {
                if run.abandoned {
                    std::mem::forget(planner);
                }
                return Err(error);
            }
        };
        let mut session = Session { planner, planned, kept, setup };
        let ran = self.finish(&mut session, &shared, run, verdict, Duration::ZERO);
        Ok((session, ran))
    }

    /// Runs a kept plan once more.
    pub(crate) fn run_again(&self, session: &mut Session<'a>) -> Option<Ran> {
        let began = Instant::now();
        let kept = session.kept.as_mut()?;
        kept.reset(&session.planner);
        let (inboxes, sequences) = self.inboxes();
        for (inbox, chunks) in inboxes.iter().zip(kept.chunks()) {
            for chunk in chunks {
                // The receiver is in the sequence.
                let _ = inbox.send(Arc::clone(chunk));
            }
        }
        drop(inboxes);
        let (range, on_range) = bounded(1);
        if let Some(totals) = kept.range_start() {
            let _ = range.send(totals.to_vec());
        }
        let validation = self.validation(refilled(kept.checks()));
        let (shared, ended) = self.start_runners();
        shared.prepare_spares(self.workers() + self.spares());
        let reset = began.elapsed();
        let mut planned = std::mem::take(&mut session.planned);
        let devices = planned.devices.clone();
        let start = Start {
            shared: &shared,
            ended: &ended,
            sequences,
            phase: &|phase| self.phase(phase),
            devices: &devices,
            range: self.range().is_some().then_some(on_range),
        };
        let (run, planned, verdict) = self.run(start, validation, false, || Ok(std::mem::take(&mut planned)));
        session.planned = planned.unwrap_or_default();
        Some(self.finish(session, &shared, run, verdict, reset))
    }

    fn check_range(&self, planned: &Planned) -> Result<(), ReplayError> {
        match self.options.range {
            _ if planned.range_entered => Ok(()),
            Some(RangeOption::Kernels { from, .. }) => Err(ReplayError::NoLaunch { first: from }),
            _ => Err(ReplayError::Range { events: planned.events }),
        }
    }

    fn run(
        &self,
        start: Start<'_>,
        validation: Validation<'a>,
        windowed: bool,
        plan: impl FnMut() -> Result<Planned, ReplayError>,
    ) -> (Run, Result<Planned, ReplayError>, Verdict) {
        let over = AtomicBool::new(false);
        let shared = Arc::clone(start.shared);
        std::thread::scope(|scope| {
            let beside =
                (self.checks_beside() || windowed).then(|| scope.spawn(|| validation.run(&shared.progress, &over)));
            let (run, planned) = execute(start, plan);
            // Release: pairs with the validator's Acquire.
            over.store(true, Ordering::Release);
            let verdict = match beside {
                Some(thread) => thread.join().unwrap_or_default(),
                None => validation.run(&shared.progress, &over),
            };
            (run, planned, verdict)
        })
    }
}

impl Session<'_> {
    /// Whether the plan can be run again.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept.is_some()
    }

    /// Most pinned and pageable bytes that were staged at once.
    pub(crate) fn staged_bytes(&self) -> (u64, u64) {
        self.planner.host.peak_bytes()
    }

    /// Leaves all memory of the plan in place: threads may still be in the runtime with addresses of it.
    pub(crate) fn abandon(self) {
        std::mem::forget(self.planner);
        std::mem::forget(self.kept);
    }
}

/// A channel that holds these checks and no more.
fn refilled(checks: &[Check]) -> Receiver<Check> {
    let (sender, receiver) = unbounded();
    for check in checks {
        // The receiver is right here.
        let _ = sender.send(check.clone());
    }
    receiver
}
