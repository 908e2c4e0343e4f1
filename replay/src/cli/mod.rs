//! The command line of `hrr-playback`.
//!
//! * [`arguments`]: the options
//! * [`applies`]: options that would do nothing are refused

mod applies;
mod arguments;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{CommandFactory, FromArgMatches};

use hrr_format::archive::{Archive, Damaged};
use hrr_format::upstream::write::Lossy;
use hrr_perf::report::RunReport;

use crate::check_order;
use crate::choices::{
    Choices, GuardAlignment, Guarded, Guards, NewMemory, RegionPolicy, WarnUntranslated, refuse_unsupported,
};
use crate::convert::run_convert;
use crate::driver::{ReplayOptions, replay};
use crate::environment::{self, VariableError};
use crate::info::{Calls, Condition, EventRange, Filter, InfoError, InfoOptions, Output, print_path};
use crate::launched;
use crate::machine::runtime::Runtime;
use crate::machine::topology;
use crate::memory::addresses::RecordedAddresses;
use crate::memory::layout;
use crate::memory::placement::PlacementPolicy;
use crate::plan::annotate::RangeOption;
use crate::plan::order::OrderMode;
use crate::processes;
use crate::progress_line::ProgressLine;
use crate::report::options::Measure;
use crate::report::order_log::OrderLog;
use crate::run::watchdog;
use crate::summary;
use crate::survey::Survey;
use crate::tools::{self, State};
use crate::trace::replayed::Drawn;
use crate::trace::target::{TraceError, TraceTarget};
use crate::triage::{DeviceSyncs, HangHandler, MarkPolicy, SyncAfter, Tracing, TriageOptions, tell};
use crate::variables;

use self::arguments::{Arguments, MarksArgument};

/// Runs the program.
pub fn main() -> ExitCode {
    hrr_cli::full_files_are_errors();
    let command = hrr_cli::with_variables(Arguments::command(), &variables::all());
    let parsed = command.try_get_matches().and_then(|matches| {
        let arguments = Arguments::from_arg_matches(&matches)?;
        applies::check(&arguments, &matches).map(|()| arguments)
    });
    let arguments = match parsed {
        Ok(arguments) => arguments,
        Err(error) => {
            let Some(refusal) = hrr_cli::refusal(&error, "hrr-playback") else {
                // Help and version are no errors.
                let _ = error.print();
                return ExitCode::SUCCESS;
            };
            eprintln!("[HRR] {refusal}");
            // Not 2, which says that results diverged.
            return ExitCode::from(1);
        }
    };
    match start_log().and_then(|()| run(&arguments)) {
        Ok(code) => code,
        Err(message) => {
            eprintln!("[HRR] {message}");
            ExitCode::from(1)
        }
    }
}

/// Has what is said besides errors go to standard error, as far as `RUST_LOG` asks for it.
fn start_log() -> Result<(), String> {
    const VARIABLE: &str = "RUST_LOG";
    let wanted = environment::text(VARIABLE).unwrap_or_else(|| "warn".to_owned());
    let filter = tracing_subscriber::EnvFilter::try_new(&wanted).map_err(|_| {
        let allowed = "error, warn, info or debug".to_owned();
        VariableError { variable: VARIABLE.to_owned(), value: wanted, allowed }.to_string()
    })?;
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    Ok(())
}

fn run(arguments: &Arguments) -> Result<ExitCode, String> {
    if let Some(what) = arguments.generate {
        let written = hrr_cli::generate(what, Arguments::command(), &variables::all(), &mut std::io::stdout());
        return written
            .map(|()| ExitCode::SUCCESS)
            .map_err(|error| format!("the output cannot be written: {error}; send it elsewhere"));
    }
    if arguments.version {
        let code = print_version(arguments.hip_lib.as_deref());
        return Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)));
    }
    let path = arguments.archive.as_deref().ok_or("no archive given")?;
    if let Some(trace) = &arguments.trace {
        TraceTarget::check(trace).map_err(|error| error.to_string())?;
    }
    for file in [&arguments.report, &arguments.log_order, &arguments.triage].into_iter().flatten() {
        hrr_cli::expect_writable(file).map_err(|error| error.to_string())?;
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
        // What is said of it here is lost with standard error, as warnings are.
        let outcome = "this is what it had recorded by now";
        let _ = tools::tell_being_recorded(archive.path(), outcome, &mut std::io::stderr().lock());
    }
    if let Some(log) = &arguments.check_order {
        return check_order(&archive, log);
    }
    refuse_unsupported()?;
    launched::refuse_unknown_replacements(&archive, &arguments.replace_kernel)?;
    launched::refuse_filter_of_nothing(&archive, arguments.kernel_filter.as_deref())?;
    topology::refuse_cpus_out_of_reach(&arguments.pin).map_err(|error| format!("--pin: {error}"))?;
    let choices = Choices {
        devices: arguments.device_map.clone().unwrap_or_default(),
        placement: if arguments.no_placement { PlacementPolicy::Off } else { PlacementPolicy::WherePossible },
        kernel_filter: arguments.kernel_filter.clone(),
        replacements: arguments.replace_kernel.clone(),
        warn_untranslated: arguments.warn_untranslated_args.then_some(WarnUntranslated),
        new_memory: NewMemory::from_env().map_err(|error| error.to_string())?,
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
    let mut code_of_output = 0;
    let outcome = replay(&archive, &runtime, &options, |prepared| {
        code_of_output = print_all(&summary::heading(&archive, prepared.events, prepared, &options));
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
    // Where the heading could not be printed, the summary cannot either, which was said then.
    if code_of_output == 0 {
        code_of_output = print_all(&summary::summary(&outcome));
    }
    let mut code = outcome.exit_code().max(code_of_output);
    if let Some(trace) = &outcome.trace {
        code = code.max(tell_trace(trace));
    }
    let report = arguments.report.as_ref().map(|report| own_file(arguments, report, path));
    if let Some(report) = &report
        && let Err(error) = outcome.report.write(report)
    {
        eprintln!("[HRR] {error}");
        code = code.max(1);
    }
    let log = arguments.log_order.as_ref().map(|log| own_file(arguments, log, path));
    if let Some((log, calls)) = log.as_ref().zip(outcome.order_log.as_ref())
        && let Err(error) = calls.write(log)
    {
        eprintln!("[HRR] {}", hrr_cli::Unwritable::at(log)(error));
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

/// The file of this process, where several would write to one.
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
    let triage = arguments.triage.as_ref().map(|triage| own_file(arguments, triage, path));
    tell::handler(tell::Files { triage, report })
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

fn print_version(hip_lib: Option<&Path>) -> i32 {
    let mut text =
        format!("hrr-playback {}\narchive format {}\n", env!("CARGO_PKG_VERSION"), hrr_format::stream_file::VERSION);
    match Runtime::load(hip_lib) {
        Ok(runtime) => text.push_str(&format!("HIP runtime {} ({})\n", runtime.version(), runtime.path().display())),
        Err(_) => text.push_str("HIP runtime none found\n"),
    }
    print_all(&text)
}

/// Prints to standard output; a closed pipe is no error. The exit code for it.
fn print_all(text: &str) -> i32 {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            eprintln!("[HRR] the output cannot be written: {error}; send it elsewhere");
            1
        }
        _ => 0,
    }
}
