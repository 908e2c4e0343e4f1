//! `hrr-perf`: compares replays, and replays to compare.
//!
//! Exit codes: 0 done, 1 slower than `--fail-above` allows, 2 a report that cannot be read, a replay that did not pass (of any
//! archive of a folder, where none of the others is slower), or wrong usage.

// In place of the standard library's.
#[macro_use(eprint, eprintln)]
extern crate hrr_cli;

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use hrr_cli::{Generate, whole};
use hrr_perf::comparison::{Comparison, Duration, Limit, SCHEMA_VERSION};
use hrr_perf::render;
use hrr_perf::report::RunReport;
use hrr_perf::runner::{self, Plan, Timing};
use serde::Serialize;

/// Exit code for a candidate that is too slow.
const TOO_SLOW: u8 = 1;
/// Exit code for what cannot be compared; clap's own for wrong usage is the same.
const UNUSABLE: u8 = 2;

const EXAMPLES: &str = "\
Examples:
  hrr-playback app.hrr --repeat 20 --warmup 2 --timing --report a.json
  hrr-perf compare a.json b.json --fail-above 3%
  hrr-perf compare app.hrr a.json                      what was recorded against what was replayed
  hrr-perf run --hip-lib A.so --hip-lib B.so app.hrr   on two libamdhip64.so in turn, A the baseline
  hrr-perf run --hip-lib A.so --hip-lib B.so archives/ a table, one row an archive

Exit codes: 0 done; 1 slower than --fail-above allows; 2 nothing to compare, or not all of a
folder: a report cannot be read, or a replay did not pass.";

#[derive(Debug, Parser)]
#[command(name = "hrr-perf", version, about = "Says whether one replay is slower than another, by how much, and where", after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Write the manual page, completions for a shell, or the reference of options and variables
    #[arg(long, value_enum, hide = true)]
    generate: Option<Generate>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compares a candidate with a baseline
    Compare {
        /// Report to compare with, or an archive: what was recorded
        baseline: PathBuf,
        /// Report to judge
        candidate: PathBuf,
        #[command(flatten)]
        output: Output,
        /// The replayer, which reads an archive's times [default: the one beside this program]
        #[arg(long, value_name = "PATH")]
        playback: Option<PathBuf>,
    },
    /// Replays an archive on several HIP runtimes in turn and compares them
    Run {
        /// Archive, or a folder of archives
        archive: PathBuf,
        /// HIP runtime; twice or more, the baseline first
        #[arg(long = "hip-lib", value_name = "PATH", required = true)]
        hip_libs: Vec<PathBuf>,
        /// Processes for each runtime
        #[arg(long, value_name = "R", default_value_t = 10, value_parser = whole::<u32>(1..), allow_negative_numbers = true)]
        repeat: u32,
        /// Repetitions in each process, of which the median counts
        #[arg(long, value_name = "N", default_value_t = 3, value_parser = whole::<u32>(1..), allow_negative_numbers = true)]
        inner: u32,
        /// Repetitions in each process before those
        #[arg(long, value_name = "W", default_value_t = 1, value_parser = whole::<u32>(0..), allow_negative_numbers = true)]
        warmup: u32,
        /// Do not time kernels and copies by events
        #[arg(long)]
        no_timing: bool,
        /// The replayer [default: the one beside this program]
        #[arg(long, value_name = "PATH")]
        playback: Option<PathBuf>,
        #[command(flatten)]
        output: Output,
        /// Write each runtime's merged report into this folder
        #[arg(long, value_name = "DIR")]
        keep: Option<PathBuf>,
        /// Options for the replayer, after --
        #[arg(last = true)]
        options: Vec<OsString>,
    },
}

#[derive(Debug, Args)]
struct Output {
    /// What to print
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Write a page with plots as well; of one archive and one candidate
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Exit 1 if the candidate is slower by more than this, such as 3%
    #[arg(long, value_name = "PERCENT", allow_hyphen_values = true)]
    fail_above: Option<Limit>,
}

impl Output {
    fn format(&self) -> Format {
        if self.json { Format::Json } else { self.format }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
    Markdown,
}

fn main() -> ExitCode {
    hrr_cli::full_files_are_errors();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let Some(refusal) = hrr_cli::refusal(&error, "hrr-perf") else {
                // Where help cannot be printed, nobody reads it.
                let _ = error.print();
                return ExitCode::SUCCESS;
            };
            return unusable(&refusal);
        }
    };
    let command = match (arguments.generate, arguments.command) {
        (None, Some(command)) => command,
        (Some(what), _) => {
            return match hrr_cli::generate(what, Arguments::command(), &[], &mut std::io::stdout()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => unusable(&format!("the output cannot be written: {error}; send it elsewhere")),
            };
        }
        (None, None) => return unusable("give a command: compare, or run; see hrr-perf --help"),
    };
    let result = match command {
        Command::Compare { baseline, candidate, output, playback } => {
            let playback = playback.unwrap_or_else(runner::default_playback);
            compare(&baseline, &candidate, &output, &playback)
        }
        Command::Run { archive, hip_libs, repeat, inner, warmup, no_timing, playback, output, keep, options } => {
            let plan = Plan {
                playback: playback.unwrap_or_else(runner::default_playback),
                hip_libs,
                processes: repeat,
                repetitions: inner,
                warmup,
                timing: if no_timing { Timing::Off } else { Timing::Events },
                options,
            };
            run(&plan, &archive, &output, keep.as_deref())
        }
    };
    result.unwrap_or_else(|message| unusable(&message))
}

fn unusable(message: &str) -> ExitCode {
    eprintln!("hrr-perf: {message}");
    ExitCode::from(UNUSABLE)
}

fn compare(baseline: &Path, candidate: &Path, output: &Output, playback: &Path) -> Result<ExitCode, String> {
    expect_writable(output.html.as_deref())?;
    let (first, second) = (read(baseline, playback)?, read(candidate, playback)?);
    let comparison =
        Comparison::of_reports((baseline, &first), (candidate, &second)).map_err(|error| error.to_string())?;
    show(&comparison, output)?;
    Ok(judged(std::slice::from_ref(&comparison), output))
}

/// A report, or an archive's own times.
fn read(path: &Path, playback: &Path) -> Result<RunReport, String> {
    if path.is_dir() || runner::is_packed(path) {
        return runner::recorded(playback, path).map_err(|error| error.to_string());
    }
    RunReport::read(path).map_err(|error| error.to_string())
}

fn run(plan: &Plan, archive: &Path, output: &Output, keep: Option<&Path>) -> Result<ExitCode, String> {
    // Told before a replay is started.
    let unreadable = |error| format!("{}: {error}; give an archive, or a folder of archives", archive.display());
    archive.metadata().map_err(unreadable)?;
    let archives = runner::archives(archive).map_err(unreadable)?;
    if archives.is_empty() {
        return Err(format!("{}: holds no archive; give an archive, or a folder of archives", archive.display()));
    }
    let several = archives.len() > 1;
    if several && output.html.is_some() {
        return Err("--html shows one archive; give one".to_owned());
    }
    let candidates = plan.hip_libs.len().saturating_sub(1);
    if candidates > 1 && output.html.is_some() {
        return Err("--html shows one candidate; give --hip-lib twice".to_owned());
    }
    // Told before the replays, which may take hours.
    expect_writable(output.html.as_deref())?;
    if let Some(folder) = keep {
        expect_writable(Some(&folder.join("report.json")))?;
    }
    let one_document = several || candidates > 1 && output.format() == Format::Json;
    let mut comparisons = Vec::new();
    let mut left_out = Vec::new();
    let watched = std::io::stderr().is_terminal();
    for archive in &archives {
        let reports = runner::run(plan, archive, |progress| {
            if watched {
                eprint!("\r\x1b[K{}: {progress}", archive.display());
            }
        });
        if watched {
            eprint!("\r\x1b[K");
        }
        let reports = match reports {
            Ok(reports) => reports,
            // What is wrong with one archive takes nothing from the others, which may have taken hours.
            Err(error) if several && error.is_of_archive() => {
                left_out.push(format!("{}: left out: {}", archive.display(), error.in_one_line()));
                continue;
            }
            Err(error) => return Err(error.to_string()),
        };
        if let Some(folder) = keep {
            keep_reports(folder, archive, &reports)?;
        }
        let paths = &plan.hip_libs;
        for (side, report) in reports.iter().enumerate().skip(1) {
            let first = (paths[0].as_path(), &reports[0]);
            let mut comparison =
                Comparison::of_reports(first, (paths[side].as_path(), report)).map_err(|error| error.to_string())?;
            comparison.name_candidate(runner::label(side));
            if !one_document {
                show(&comparison, output)?;
            }
            comparisons.push(comparison);
        }
    }
    if one_document && !comparisons.is_empty() {
        print_table(&comparisons, output)?;
    }
    for line in &left_out {
        eprintln!("hrr-perf: {line}");
    }
    let code = judged(&comparisons, output);
    Ok(if left_out.is_empty() || code != ExitCode::SUCCESS { code } else { ExitCode::from(UNUSABLE) })
}

/// Whether a file can be made there, in a folder that is made where it is missing.
fn expect_writable(file: Option<&Path>) -> Result<(), String> {
    file.map_or(Ok(()), |file| hrr_cli::expect_writable(file).map_err(|error| error.to_string()))
}

fn keep_reports(folder: &Path, archive: &Path, reports: &[RunReport]) -> Result<(), String> {
    let name = archive.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    for (side, report) in reports.iter().enumerate() {
        let path = folder.join(format!("{name}-{}.json", runner::label(side)));
        report.write(&path).map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn show(comparison: &Comparison, output: &Output) -> Result<(), String> {
    let text = match output.format() {
        Format::Text => render::text(comparison),
        Format::Markdown => render::markdown(comparison),
        Format::Json => json(comparison)?,
    };
    print(&text)?;
    if let Some(path) = &output.html {
        std::fs::write(path, render::html(comparison)).map_err(|error| {
            // Half a page is none; what is a device or a pipe stays.
            if path.is_file() {
                let _ = std::fs::remove_file(path);
            }
            hrr_cli::Unwritable::at(path)(error).to_string()
        })?;
    }
    Ok(())
}

fn json(value: &impl serde::Serialize) -> Result<String, String> {
    serde_json::to_string_pretty(value)
        .map(|text| text + "\n")
        .map_err(|error| format!("failed to print the comparison as JSON: {error}"))
}

/// Several comparisons as JSON.
#[derive(Serialize)]
struct Table<'a> {
    schema_version: u32,
    comparisons: &'a [Comparison],
}

/// One row an archive and candidate.
fn print_table(comparisons: &[Comparison], output: &Output) -> Result<(), String> {
    if output.format() == Format::Json {
        return print(&json(&Table { schema_version: SCHEMA_VERSION, comparisons })?);
    }
    let name = |comparison: &Comparison| {
        let path = Path::new(&comparison.candidate.archive);
        let of_process = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("pid-"));
        let path = if of_process { path.parent().unwrap_or(path) } else { path };
        path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    };
    let width = comparisons.iter().map(|comparison| name(comparison).len()).max().unwrap_or(0).max(7);
    let markdown = output.format() == Format::Markdown;
    let mut text = if markdown {
        "| archive | A | candidate | verdict |\n|---|---:|---:|---|\n".to_owned()
    } else {
        format!("{:<width$}  {:>12}  {:>14}  verdict\n", "archive", "A", "candidate")
    };
    for comparison in comparisons {
        let (before, after) = (Duration(comparison.baseline.median_ns), Duration(comparison.candidate.median_ns));
        let candidate = format!("{} {after}", comparison.candidate.label);
        let (name, sentence) = (name(comparison), &comparison.sentence);
        text.push_str(&if markdown {
            format!("| {name} | {before} | {candidate} | {sentence} |\n")
        } else {
            format!("{name:<width$}  {before:>12}  {candidate:>14}  {sentence}\n")
        });
    }
    print(&text)
}

fn judged(comparisons: &[Comparison], output: &Output) -> ExitCode {
    let Some(limit) = output.fail_above else { return ExitCode::SUCCESS };
    let Some(worst) = comparisons.iter().find(|comparison| comparison.exceeds(limit)) else { return ExitCode::SUCCESS };
    let reason = match worst.candidate_failed {
        true => "the candidate's replay did not pass".to_owned(),
        false => format!("slower by more than {} %", limit.fraction() * 100.0),
    };
    eprintln!("hrr-perf: {reason}");
    ExitCode::from(TOO_SLOW)
}

/// Prints to standard output; a closed pipe is no error: its reader has read enough, and the exit code still says what was found.
fn print(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(format!("the output cannot be written: {error}; send it elsewhere"))
        }
        _ => Ok(()),
    }
}
