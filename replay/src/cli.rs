//! The command line of `hrr-playback`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{CommandFactory, FromArgMatches, Parser, ValueEnum};
use hrr_cli::Generate;

use hrr_format::archive::{Archive, Damaged};
use hrr_format::upstream::write::Lossy;
use hrr_perf::report::RunReport;

use crate::addresses::RecordedAddresses;
use crate::check_order;
use crate::choices::{
    Choices, GuardAlignment, Guarded, Guards, NewMemory, RegionPolicy, Replacement, Synthetic, WarnUntranslated,
    refuse_unsupported,
};
use crate::convert::run_convert;
use crate::device_map::DeviceMap;
use crate::driver::{ReplayOptions, replay};
use crate::info::{Calls, Condition, EventRange, Filter, Glob, InfoError, InfoOptions, Output, print_path};
use crate::launched;
use crate::layout;
use crate::placement::PlacementPolicy;
use crate::plan::annotate::RangeOption;
use crate::plan::order::OrderMode;
use crate::processes::{self, Rank};
use crate::progress_line::ProgressLine;
use crate::report::options::{Measure, Pace};
use crate::report::order_log::OrderLog;
use crate::run::watchdog;
use crate::runtime::Runtime;
use crate::summary;
use crate::survey::Survey;
use crate::tools::{self, State};
use crate::topology::PinPolicy;
use crate::trace::replayed::Drawn;
use crate::trace::target::{TraceError, TraceTarget};
use crate::triage::{DeviceSyncs, HangHandler, MarkPolicy, SyncAfter, Tracing, TriageOptions, tell};
use crate::variables;

const EXAMPLES: &str = "\
Examples:
  hrr-playback capture.hrr                       replay on as many workers as there were threads
  hrr-playback capture.hrr --threads 4           replay on four worker threads
  hrr-playback capture.hrr --hip-lib /opt/rocm-7.1/lib/libamdhip64.so
  hrr-playback capture.hrr --sync-watchdog-ms 5000
  hrr-playback capture.hrr --all-processes       every recorded process, at the same time
  srun -n 8 hrr-playback capture.hrr --rank own  each rank its own process
  hrr-playback capture.hrr --repeat 20 --warmup 2 --timing --report a.json     a timing run, for hrr-perf
  hrr-playback capture.hrr --kernels 100..200 --trace t.json.gz    a timeline, for ui.perfetto.dev
  hrr-playback capture.hrr --info --events       what was recorded; needs no GPU
  hrr-playback capture.hrr --shape-only          times of allocations and copies, without contents
  hrr-playback --pack capture.hrr capture.hrrz   one file to send; replays as it is

Exit codes: 0 pass, or --shape-only came to its end; 1 a result differs, a call failed or was refused, or any other error; 2 stopped early because too many
results differ; 124 the watchdog fired.";

/// Replays the HIP calls of an archive, without the program, and checks what the device produced.
#[derive(Debug, Parser)]
#[command(name = "hrr-playback", disable_version_flag = true, after_help = EXAMPLES)]
struct Arguments {
    /// Archive: the directory HIP_HRR_CAPTURE_OUTPUT named, a pid-* directory in it, or a packed archive
    #[arg(required_unless_present_any = ["version", "generate"])]
    archive: Option<PathBuf>,

    /// Worker threads that issue calls; 0 = one per captured thread
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Replay")]
    threads: usize,

    /// Replay every process of the archive at the same time, each in a process of its own
    #[arg(long, conflicts_with_all = ["rank", "info", "action"], help_heading = "Replay")]
    all_processes: bool,

    /// Replay, or inspect, the process that had this rank; `own`: the one that a launcher gave this process
    #[arg(long, value_name = "N", help_heading = "Replay")]
    rank: Option<Rank>,

    /// One worker per captured thread: the same as --threads 0
    #[arg(long, conflicts_with = "threads", help_heading = "Replay")]
    multi_thread: bool,

    /// Order kept between captured threads
    #[arg(long, value_enum, default_value_t = OrderArgument::Capture, help_heading = "Replay")]
    order: OrderArgument,

    /// HIP runtime to replay on; default: the loader's libamdhip64.so, then ${ROCM_PATH:-/opt/rocm}/lib
    #[arg(long, value_name = "PATH", help_heading = "Replay")]
    hip_lib: Option<PathBuf>,

    /// Cores for the workers: auto (near the device), none, or a list like 0,2-5
    #[arg(long, value_name = "POLICY", default_value = "auto", help_heading = "Replay")]
    pin: PinPolicy,

    /// Host memory for plan and staging in MiB: a smaller archive is prepared whole before the clock starts [default: a
    /// quarter of the machine's memory]
    #[arg(long, value_name = "MIB", help_heading = "Replay")]
    memory_budget: Option<u64>,

    /// Which device stands for each recorded one: RECORDED:LIVE pairs, like 0:0,1:0
    #[arg(long, value_name = "MAP", help_heading = "Replay")]
    device_map: Option<DeviceMap>,

    /// Allocate with the recorded calls instead of mapping memory at its recorded addresses
    #[arg(long, help_heading = "Replay")]
    no_placement: bool,

    /// Launch only kernels whose name contains this; no result is compared
    #[arg(long, value_name = "TEXT", help_heading = "Replay")]
    kernel_filter: Option<String>,

    /// Launch the kernel of this name from a code object file instead; may be given several times
    #[arg(long, value_name = "NAME=PATH", help_heading = "Replay")]
    replace_kernel: Vec<Replacement>,

    /// Replay without recorded contents and code, of any archive, for times: copies move zeros, noise or noise:SEED, kernels and
    /// what needs code are left out and listed. Ends with SHAPE, never with PASS
    #[arg(
        long,
        value_name = "BYTES",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "zeros",
        conflicts_with_all = ["kernel_filter", "replace_kernel", "warn_untranslated_args", "kernels"],
        help_heading = "Replay"
    )]
    shape_only: Option<Synthetic>,

    /// Do not use region sidecars
    #[arg(long, help_heading = "Regions")]
    no_regions: bool,

    /// Fail where an access lies outside the live blocks of region sidecars
    #[arg(long, help_heading = "Regions")]
    regions_strict: bool,

    /// Map each device allocation, and each segment of a sidecar, between addresses at which nothing is mapped; turns
    /// placement off
    #[arg(long, group = "guards", help_heading = "Regions")]
    guard_segments: bool,

    /// The same for each block of a sidecar
    #[arg(long, group = "guards", help_heading = "Regions")]
    guard_blocks: bool,

    /// Smallest size in bytes to guard
    #[arg(long, value_name = "BYTES", default_value_t = 0, requires = "guards", help_heading = "Regions")]
    guard_min_bytes: u64,

    /// Largest size in bytes to guard
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = u64::MAX,
        hide_default_value = true,
        requires = "guards",
        help_heading = "Regions"
    )]
    guard_max_bytes: u64,

    /// Device memory in MiB to guard
    #[arg(long, value_name = "MIB", default_value_t = 4096, requires = "guards", help_heading = "Regions")]
    guard_budget_mb: u64,

    /// Put the end of what is guarded right at its guard, however its beginning is aligned then
    #[arg(long, requires = "guards", help_heading = "Regions")]
    guard_exact_align: bool,

    /// Name every kernel pointer argument that lies in no live allocation
    #[arg(long, help_heading = "Replay")]
    warn_untranslated_args: bool,

    /// Replay this often in one process and report each repetition
    #[arg(long, value_name = "R", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..), help_heading = "Timing runs")]
    repeat: u32,

    /// Replay this often before that, unreported
    #[arg(long, value_name = "W", default_value_t = 0, help_heading = "Timing runs")]
    warmup: u32,

    /// Write a run report as JSON, for hrr-perf; with --info: of the recorded run. When the watchdog fires, with its diagnosis
    #[arg(long, value_name = "FILE", help_heading = "Timing runs")]
    report: Option<PathBuf>,

    /// Time kernels, graphs and copies by events around them
    #[arg(long, help_heading = "Timing runs")]
    timing: bool,

    /// Draw a timeline of the first reported repetition, for ui.perfetto.dev: .json or .pftrace, and .gz behind it.
    /// Turns --timing on. With --info: of the recorded run, without a GPU
    #[arg(long, value_name = "FILE", help_heading = "Timing runs")]
    trace: Option<PathBuf>,

    /// The program's own gaps between calls: asap (none), recorded, or xF to shorten them F times
    #[arg(long, value_name = "PACE", default_value = "asap", help_heading = "Timing runs")]
    pace: Pace,

    /// Measure only events A up to, not including, B (or A..=B, A.., ..B): those before are replayed as set-up, those behind
    /// not at all. With --info: list and draw only these
    #[arg(long, value_name = "A..B", conflicts_with = "kernels", help_heading = "Timing runs")]
    range: Option<EventRange>,

    /// As --range, by kernel launches: from launch A up to, not including, launch B
    #[arg(long, value_name = "A..B", help_heading = "Timing runs")]
    kernels: Option<EventRange>,

    /// Go on after a call that fails, and count it
    #[arg(long, help_heading = "Replay")]
    continue_on_error: bool,

    /// Print what hangs and exit with 124 when a call or wait takes longer; 0 = never. Records an event behind each enqueue,
    /// to tell how far each stream has come
    #[arg(
        long,
        value_name = "MS",
        default_value_t = 0,
        env = "HIP_HRR_REPLAY_SYNC_WATCHDOG_MS",
        help_heading = "Triage"
    )]
    sync_watchdog_ms: u64,

    /// Behind which operations the watchdog records an event, to tell how far each stream has come
    #[arg(long, value_enum, default_value = "paced", value_name = "WHICH", help_heading = "Triage")]
    watchdog_marks: MarksArgument,

    /// When the watchdog fires: write the diagnosis to FILE, as JSON
    #[arg(long, value_name = "FILE", requires = "sync_watchdog_ms", help_heading = "Triage")]
    triage: Option<PathBuf>,

    /// Wait for the device after each kernel and graph launch
    #[arg(long, help_heading = "Triage")]
    sync_after_launch: bool,

    /// Wait for the device after every call
    #[arg(long, help_heading = "Triage")]
    sync_after_event: bool,

    /// Leave out the program's hipDeviceSynchronize and hipStreamSynchronize, and compare results at the end; what the program
    /// ordered by them may come out different
    #[arg(long, conflicts_with_all = ["sync_after_launch", "sync_after_event"], help_heading = "Triage")]
    skip_device_sync: bool,

    /// Print each kernel and graph launch before it is made
    #[arg(long, help_heading = "Triage")]
    trace_kernels: bool,

    /// Print each call that waits, before it is made and when it has returned
    #[arg(long, help_heading = "Triage")]
    trace_sync: bool,

    /// Print a progress line after every N kernels; 0 = never
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        env = "HIP_HRR_REPLAY_PROGRESS_KERNELS",
        help_heading = "Triage"
    )]
    progress_kernels: u64,

    /// Print a progress line every S seconds; 0 = never
    #[arg(
        long,
        value_name = "S",
        default_value_t = 0,
        env = "HIP_HRR_REPLAY_PROGRESS_SECONDS",
        help_heading = "Triage"
    )]
    progress_seconds: u64,

    /// Write when each call of the last repetition was issued and had returned to FILE, for --check-order
    #[arg(long, value_name = "FILE", help_heading = "Triage")]
    log_order: Option<PathBuf>,

    /// Check that the replay that wrote LOG kept the order of this archive's calls; needs no HIP runtime
    #[arg(long, value_name = "LOG", conflicts_with_all = ["log_order", "info", "all_processes"], help_heading = "Triage")]
    check_order: Option<PathBuf>,

    /// Print what was recorded and exit; needs no HIP runtime
    #[arg(long, help_heading = "Inspection")]
    info: bool,

    /// With --info: list every call
    #[arg(long, requires = "info", help_heading = "Inspection")]
    events: bool,

    /// With --info: as JSON
    #[arg(long, requires = "info", help_heading = "Inspection")]
    json: bool,

    /// With --events and --csv: only calls of this captured thread
    #[arg(long, value_name = "N", requires = "info", help_heading = "Inspection")]
    thread: Option<u32>,

    /// With --events and --csv: only calls whose name matches, such as 'hipMemcpy*,hipFree'
    #[arg(long, value_name = "GLOB", requires = "info", help_heading = "Inspection")]
    api: Option<Glob>,

    /// With --info: write tables with the columns of rocprofv3's into a directory; kernels and copies have the times of their
    /// calls, since a recording has none of the device
    #[arg(long, value_name = "DIR", requires = "info", help_heading = "Inspection")]
    csv: Option<PathBuf>,

    /// Repair a recording that did not end well, a process or a whole root; what is cut off is kept beside it
    #[arg(long, group = "action", help_heading = "Archives")]
    repair: bool,

    /// Check every record, hash and reference; exit code 1 if anything is wrong
    #[arg(long, group = "action", help_heading = "Archives")]
    verify: bool,

    /// Pack the archive into one file, TARGET, which can be replayed and inspected as it is
    #[arg(long, group = "action", requires = "target", help_heading = "Archives")]
    pack: bool,

    /// Unpack a packed archive into a new directory, TARGET
    #[arg(long, group = "action", requires = "target", help_heading = "Archives")]
    unpack: bool,

    /// Convert the archive, into a new directory TARGET: one of AMD's in-tree HRR to a native one, a native one to the in-tree
    /// format, version 8
    #[arg(long, group = "action", requires = "target", help_heading = "Archives")]
    convert: bool,

    /// With --convert: write what the in-tree format can hold, and list what is lost
    #[arg(long, requires = "convert", help_heading = "Archives")]
    lossy: bool,

    /// With --pack, --unpack and --convert: the file or directory to make
    #[arg(value_name = "TARGET", requires = "action", help_heading = "Archives")]
    target: Option<PathBuf>,

    /// Print the version of the program and of the archive format
    #[arg(long, short = 'V', help_heading = "Inspection")]
    version: bool,

    /// Write the manual page, completions for a shell, or the reference of options and variables
    #[arg(long, value_enum, hide = true)]
    generate: Option<Generate>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum MarksArgument {
    /// Each on streams that get few; now and then on streams that get many
    Paced,
    /// Each: names the operation that does not end in any case, and slows streams of short kernels down
    All,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OrderArgument {
    /// Whatever had returned before a call was entered returns before it is issued
    Capture,
    /// Only dependencies: handles, streams, events, conflicting memory, device-wide calls
    Deps,
    /// Handle lifetimes and each thread's own order only (diagnostic)
    Program,
}

impl From<OrderArgument> for OrderMode {
    fn from(order: OrderArgument) -> Self {
        match order {
            OrderArgument::Capture => OrderMode::Capture,
            OrderArgument::Deps => OrderMode::Deps,
            OrderArgument::Program => OrderMode::Program,
        }
    }
}

/// Runs the program.
pub fn main() -> ExitCode {
    let command = hrr_cli::with_variables(Arguments::command(), &variables::all());
    let parsed = command.try_get_matches().and_then(|matches| Arguments::from_arg_matches(&matches));
    let arguments = match parsed {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are no errors; everything else is 1, because 2 says that results diverged.
            let _ = error.print();
            return ExitCode::from(u8::from(error.use_stderr()));
        }
    };
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match run(&arguments) {
        Ok(code) => code,
        Err(message) => {
            eprintln!("[HRR] {message}");
            ExitCode::from(1)
        }
    }
}

fn run(arguments: &Arguments) -> Result<ExitCode, String> {
    if let Some(what) = arguments.generate {
        let written = hrr_cli::generate(what, Arguments::command(), &variables::all(), &mut std::io::stdout());
        return written.map(|()| ExitCode::SUCCESS).map_err(|error| error.to_string());
    }
    if arguments.version {
        print_version(arguments.hip_lib.as_deref());
        return Ok(ExitCode::SUCCESS);
    }
    let path = arguments.archive.as_deref().ok_or("no archive given")?;
    if let Some(trace) = &arguments.trace {
        TraceTarget::check(trace).map_err(|error| error.to_string())?;
    }
    let chosen = match (arguments.rank, arguments.all_processes) {
        (Some(rank), _) => Some(processes::with_rank(path, rank).map_err(|error| error.to_string())?),
        (None, true) => processes::assigned(path),
        (None, false) => None,
    };
    if arguments.all_processes && chosen.is_none() {
        let code = processes::replay_all(path, &mut std::io::stdout()).map_err(|error| error.to_string())?;
        return Ok(ExitCode::from(code));
    }
    let path = chosen.as_deref().unwrap_or(path);
    if arguments.info {
        return info(path, arguments);
    }
    if let Some(result) = archive_tool(path, arguments) {
        return result;
    }
    let archive = Archive::open(path).map_err(|error| error.to_string())?;
    if !layout::is_another_try() {
        for warning in archive.warnings() {
            eprintln!("[HRR] warning: {warning}");
        }
    }
    if let Some(log) = &arguments.check_order {
        return check_order(&archive, log);
    }
    refuse_unsupported()?;
    launched::refuse_unknown_replacements(&archive, &arguments.replace_kernel)?;
    let choices = Choices {
        devices: arguments.device_map.clone().unwrap_or_default(),
        placement: if arguments.no_placement { PlacementPolicy::Off } else { PlacementPolicy::WherePossible },
        kernel_filter: arguments.kernel_filter.clone(),
        replacements: arguments.replace_kernel.clone(),
        warn_untranslated: arguments.warn_untranslated_args.then_some(WarnUntranslated),
        new_memory: NewMemory::from_env()?,
        regions: match (arguments.no_regions, arguments.regions_strict) {
            (true, _) => RegionPolicy::Ignored,
            (false, true) => RegionPolicy::Strict,
            (false, false) => RegionPolicy::Used,
        },
        guards: guards(arguments),
        synthetic: arguments.shape_only,
    };
    let limit = (arguments.sync_watchdog_ms > 0).then(|| Duration::from_millis(arguments.sync_watchdog_ms));
    let on_hang = hang_handler(arguments, path);
    let placed = choices.placement == PlacementPolicy::WherePossible;
    // Before the runtime takes addresses for itself.
    let survey = Arc::new(Survey::of(&archive));
    if placed {
        layout::try_again_if_crowded(&survey);
    }
    let addresses = placed.then(|| Arc::new(RecordedAddresses::reserve(&survey)));
    let runtime = {
        let _bound = limit.map(|limit| watchdog::bound("loading the HIP runtime", limit, on_hang.clone()));
        Arc::new(Runtime::load(arguments.hip_lib.as_deref()).map_err(|error| error.to_string())?)
    };
    let options = ReplayOptions {
        threads: arguments.threads,
        order: arguments.order.into(),
        pin: arguments.pin.clone(),
        watchdog: limit,
        on_hang: on_hang.clone(),
        triage: triage_options(arguments),
        continue_on_error: arguments.continue_on_error,
        budget_bytes: arguments.memory_budget.map_or_else(default_budget_bytes, |mib| mib.saturating_mul(1 << 20)),
        choices,
        addresses,
        survey: Some(survey),
        repeat: arguments.repeat,
        warmup: arguments.warmup,
        measure: Measure {
            calls: arguments.report.is_some(),
            timing: arguments.timing || arguments.trace.is_some(),
            order: arguments.log_order.is_some(),
        },
        pace: arguments.pace,
        range: match (&arguments.range, &arguments.kernels) {
            (Some(range), _) => Some(RangeOption::Events { from: range.0.start, to: range.0.end }),
            (None, Some(range)) => Some(RangeOption::Kernels { from: range.0.start, to: range.0.end }),
            (None, None) => None,
        },
        trace: arguments.trace.as_ref().map(|trace| own_file(arguments, trace, path)),
        // One line for several processes at once would be nobody's; other lines of progress have been asked for by name.
        progress: match arguments.all_processes || arguments.progress_kernels > 0 || arguments.progress_seconds > 0 {
            true => ProgressLine::Off,
            false => ProgressLine::OnTerminal,
        },
    };
    let outcome = replay(&archive, &runtime, &options, |prepared| {
        print_all(&summary::heading(&archive, prepared.events, prepared, &options));
        processes::wait_for_start();
    })
    .map_err(|error| error.to_string())?;
    for line in &outcome.regions.lines {
        eprintln!("[HRR] region: {line}");
    }
    for line in &outcome.untranslated_lines {
        eprintln!("[HRR] {line}");
    }
    for line in outcome.failures.iter().chain(&outcome.verdict.failures) {
        eprintln!("[HRR] {line}");
    }
    print_all(&summary::summary(&outcome));
    let mut code = outcome.exit_code();
    if let Some(trace) = &outcome.trace {
        code = code.max(tell_trace(trace));
    }
    let report = arguments.report.as_ref().map(|report| own_file(arguments, report, path));
    if let Some(report) = &report
        && let Err(error) = outcome.report.write(report)
    {
        eprintln!("[HRR] failed to write the report: {error}");
        code = code.max(1);
    }
    let log = arguments.log_order.as_ref().map(|log| match arguments.all_processes {
        true => processes::of_process(log, path),
        false => log.clone(),
    });
    if let Some((log, calls)) = log.as_ref().zip(outcome.order_log.as_ref())
        && let Err(error) = calls.write(log)
    {
        eprintln!("[HRR] failed to write the order log: {error}");
        code = code.max(1);
    }
    if outcome.abandoned {
        // Threads are still in the runtime; its destructors must not run under them.
        let _ = std::io::stdout().flush();
        // SAFETY: `_exit` ends the process at once, without running anything.
        unsafe { libc::_exit(code) };
    }
    if let Some(limit) = limit {
        // The runtime's own end, which comes when `main` has returned.
        std::mem::forget(watchdog::bound("unloading the HIP runtime", limit, on_hang));
    }
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

fn check_order(archive: &Archive, log: &Path) -> Result<ExitCode, String> {
    let log = OrderLog::read(log).map_err(|error| format!("{}: {error}", log.display()))?;
    let verdict = check_order::check(archive, &log);
    match verdict.print(archive, &mut std::io::stdout().lock()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.to_string()),
        _ => Ok(ExitCode::from(u8::from(!verdict.holds()))),
    }
}

/// The file that is meant where several processes would write to one.
fn own_file(arguments: &Arguments, file: &Path, process: &Path) -> PathBuf {
    if arguments.all_processes { processes::of_process(file, process) } else { file.to_owned() }
}

/// Tells what became of a timeline. The exit code for it.
fn tell_trace(trace: &Result<Drawn, TraceError>) -> i32 {
    match trace {
        Ok(drawn) if drawn.left_out > 0 => {
            eprintln!(
                "[HRR] {} calls and pieces of work are not in the timeline; --range makes it smaller",
                drawn.left_out
            );
            0
        }
        Ok(_) => 0,
        Err(error) => {
            eprintln!("[HRR] {error}");
            1
        }
    }
}

/// Tells what hangs, in the files that were asked for too.
fn hang_handler(arguments: &Arguments, path: &Path) -> HangHandler {
    let order = OrderMode::from(arguments.order);
    let report = arguments.report.as_ref().map(|report| {
        let known = RunReport {
            schema_version: hrr_perf::report::SCHEMA_VERSION,
            hrr_version: env!("CARGO_PKG_VERSION").to_owned(),
            archive: path.display().to_string(),
            mode: format!("stopped by the watchdog, order {}", order.as_str()),
            order: order.as_str().to_owned(),
            pace: arguments.pace.to_string(),
            warmup: arguments.warmup,
            ..RunReport::default()
        };
        (own_file(arguments, report, path), known)
    });
    tell::handler(tell::Files { triage: arguments.triage.clone(), report })
}

fn triage_options(arguments: &Arguments) -> TriageOptions {
    // As upstream names them: any value but 0 turns one on.
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
    let tracing = |wanted: bool| if wanted { Tracing::On } else { Tracing::Off };
    TriageOptions {
        sync_after: match (arguments.sync_after_event, arguments.sync_after_launch) {
            (true, _) => SyncAfter::Events,
            (_, true) => SyncAfter::Launches,
            _ => SyncAfter::Nothing,
        },
        device_syncs: if arguments.skip_device_sync { DeviceSyncs::Skipped } else { DeviceSyncs::Replayed },
        trace_kernels: tracing(arguments.trace_kernels || set("HIP_HRR_REPLAY_TRACE_KERNELS")),
        trace_sync: tracing(arguments.trace_sync || set("HIP_HRR_REPLAY_TRACE_SYNC")),
        progress_kernels: arguments.progress_kernels,
        progress_every: (arguments.progress_seconds > 0).then(|| Duration::from_secs(arguments.progress_seconds)),
        marks: match arguments.watchdog_marks {
            MarksArgument::Paced => MarkPolicy::Paced,
            MarksArgument::All => MarkPolicy::All,
        },
    }
}

fn guards(arguments: &Arguments) -> Guards {
    Guards {
        around: match (arguments.guard_segments, arguments.guard_blocks) {
            (true, _) => Some(Guarded::Segments),
            (_, true) => Some(Guarded::Blocks),
            _ => None,
        },
        min_bytes: arguments.guard_min_bytes,
        max_bytes: arguments.guard_max_bytes,
        budget_bytes: arguments.guard_budget_mb.saturating_mul(1 << 20),
        alignment: if arguments.guard_exact_align { GuardAlignment::Exact } else { GuardAlignment::Aligned },
    }
}

/// A quarter of the machine's memory.
fn default_budget_bytes() -> u64 {
    // SAFETY: sysconf has no preconditions.
    let (pages, page_bytes) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    u64::try_from(pages).unwrap_or(0).saturating_mul(u64::try_from(page_bytes).unwrap_or(0)).max(4 << 30) / 4
}

fn info(path: &Path, arguments: &Arguments) -> Result<ExitCode, String> {
    let options = InfoOptions {
        calls: if arguments.events { Calls::List } else { Calls::Total },
        output: if arguments.json { Output::Json } else { Output::Text },
        filter: Filter { thread: arguments.thread, api: arguments.api.clone(), range: info_range(path, arguments)? },
        csv: arguments.csv.clone(),
    };
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let printed = print_path(path, &options, &mut out).and_then(|condition| {
        out.flush()?;
        Ok(condition)
    });
    if let Some(report) = &arguments.report {
        let archive = Archive::open(path).map_err(|error| error.to_string())?;
        crate::report::recorded::recorded(&archive).write(report).map_err(|error| error.to_string())?;
    }
    if let Some(trace) = &arguments.trace {
        // What can be read of a damaged archive is drawn, as it is listed.
        let archive = Archive::open_with(path, Damaged::Tolerate).map_err(|error| error.to_string())?;
        let drawn = crate::trace::recorded::write(trace, &archive, &options.filter);
        tell_trace(&Ok(drawn.map_err(|error| error.to_string())?));
    }
    match printed {
        // What can be read of a damaged archive is what was asked for; the damage has been named.
        Ok(Condition::Whole | Condition::Damaged) => Ok(ExitCode::SUCCESS),
        // A reader that has seen enough is no error.
        Err(InfoError::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(error) => Err(error.to_string()),
    }
}

/// The events that are listed and drawn, where not all are.
fn info_range(path: &Path, arguments: &Arguments) -> Result<Option<EventRange>, String> {
    let Some(kernels) = &arguments.kernels else { return Ok(arguments.range.clone()) };
    let archive = Archive::open_with(path, Damaged::Tolerate).map_err(|error| error.to_string())?;
    EventRange::of_kernels(&archive, kernels)
        .map(Some)
        .ok_or_else(|| format!("{}: the archive has no kernel launch {}", path.display(), kernels.0.start))
}

/// What is to be done to the archive besides replaying it, if anything.
fn archive_tool(path: &Path, arguments: &Arguments) -> Option<Result<ExitCode, String>> {
    let mut out = std::io::stdout().lock();
    let target = arguments.target.as_deref().unwrap_or(Path::new(""));
    let state = if arguments.repair {
        tools::run_repair(path, &mut out)
    } else if arguments.verify {
        tools::run_verify(path, &mut out)
    } else if arguments.pack {
        tools::run_pack(path, target, &mut out).map(|()| State::Good)
    } else if arguments.unpack {
        tools::run_unpack(path, target, &mut out).map(|()| State::Good)
    } else if arguments.convert {
        let lossy = if arguments.lossy { Lossy::Accept } else { Lossy::Refuse };
        let converted = run_convert(path, target, lossy, &mut out);
        return Some(converted.map(|()| ExitCode::SUCCESS).map_err(|error| error.to_string()));
    } else {
        return None;
    };
    let code = |state| if state == State::Good { ExitCode::SUCCESS } else { ExitCode::from(1) };
    Some(state.map(code).map_err(|error| error.to_string()))
}

fn print_version(hip_lib: Option<&Path>) {
    let mut text =
        format!("hrr-playback {}\narchive format {}\n", env!("CARGO_PKG_VERSION"), hrr_format::stream_file::VERSION);
    match Runtime::load(hip_lib) {
        Ok(runtime) => text.push_str(&format!("HIP runtime {} ({})\n", runtime.version(), runtime.path().display())),
        Err(_) => text.push_str("HIP runtime none found\n"),
    }
    print_all(&text);
}

/// Prints to standard output; a closed pipe is no error.
fn print_all(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
