//! Replays an archive on several HIP runtimes in turn, each time in a fresh process.
//!
//! Runs are interleaved (A B B A A B ...), so that what drifts meanwhile, such as temperature or other users of the machine,
//! meets all of them alike.

use std::ffi::OsString;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::merge::{Center, merge};
use crate::report::{ReportError, RunReport};

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The replayer.
    pub playback: PathBuf,
    /// The runtimes, the baseline first.
    pub hip_libs: Vec<PathBuf>,
    /// Processes for each runtime.
    pub processes: u32,
    /// Repetitions in each process.
    pub repetitions: u32,
    /// Unreported repetitions in each process.
    pub warmup: u32,
    /// Whether the device's times are taken too.
    pub timing: Timing,
    /// Passed on to the replayer.
    pub options: Vec<OsString>,
}

/// Whether the device's times are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// By events.
    Events,
    /// Not at all.
    Off,
}

/// Why no comparison could be made.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// There is nothing to compare.
    #[error("give --hip-lib twice or more, for the runtimes to be compared; the first is the baseline")]
    OneRuntime,
    /// A runtime is not there.
    #[error("{}: {source}; give the path of a libamdhip64.so", path.display())]
    NoRuntime {
        /// The path given.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Two runtimes are one.
    #[error("{} and {} are the same file", first.display(), second.display())]
    SameRuntime {
        /// As given.
        first: PathBuf,
        /// As given.
        second: PathBuf,
    },
    /// The replayer cannot be started.
    #[error("cannot start {}: {source}; give its path with --playback", path.display())]
    Start {
        /// The replayer.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A replay did not pass: its times are those of other work than was recorded.
    #[error("the replay on {} did not pass ({status}), so its times say nothing:\n{output}", lib.display())]
    Failed {
        /// The runtime.
        lib: PathBuf,
        /// How it ended.
        status: std::process::ExitStatus,
        /// The last lines it printed.
        output: String,
    },
    /// What an archive has of times cannot be read.
    #[error("{}: its recorded times cannot be read: {output}", archive.display())]
    Recorded {
        /// The archive.
        archive: PathBuf,
        /// The last line that the replayer said.
        output: String,
    },
    /// Another runtime was loaded than the one asked for.
    #[error("asked for {} and {} was loaded; an LD_PRELOAD or a wrapper may stand in front of it", asked.display(), loaded.display())]
    OtherRuntime {
        /// The path given.
        asked: PathBuf,
        /// What the replayer says it loaded.
        loaded: PathBuf,
    },
    /// The library became another one meanwhile.
    #[error("{} said version {first} in its first run and {now} in run {run}: it was replaced meanwhile", lib.display())]
    OtherVersion {
        /// The runtime.
        lib: PathBuf,
        /// What it said first.
        first: i32,
        /// What it says now.
        now: i32,
        /// Number of the run, from 1.
        run: usize,
    },
    /// A report cannot be read.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// No folder for the reports.
    #[error("no temporary folder: {0}")]
    Temporary(#[from] std::io::Error),
}

impl RunError {
    /// Whether the reason lies in the archive, and another one may well be replayed on the same runtimes.
    pub fn is_of_archive(&self) -> bool {
        matches!(self, RunError::Failed { .. } | RunError::Recorded { .. } | RunError::Report(_))
    }

    /// The error in one line: of what a replay printed, the last one, which says why it ended.
    pub fn in_one_line(&self) -> String {
        let text = self.to_string();
        let first = text.lines().next().unwrap_or_default();
        match text.lines().skip(1).filter(|line| !line.trim().is_empty()).last() {
            Some(last) => format!("{first} {last}"),
            None => first.to_owned(),
        }
    }
}

/// A run that has ended, for people who watch.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Runs that have ended.
    pub done: usize,
    /// Runs in all.
    pub total: usize,
    /// Position of the runtime.
    pub side: usize,
    /// Its median wall time in nanoseconds.
    pub wall_ns: u64,
    /// What the rest will take if it goes on like this.
    pub left: Duration,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let label = label(self.side);
        let (wall_ms, left_s) = (self.wall_ns as f64 / 1e6, self.left.as_secs());
        write!(f, "run {} of {}: {label} {wall_ms:.3} ms, {left_s} s left", self.done, self.total)
    }
}

/// `A` for the baseline, `B` and so on for the candidates.
pub fn label(side: usize) -> char {
    u8::try_from(side)
        .ok()
        .and_then(|side| char::from_digit(10 + u32::from(side), 36))
        .map_or('?', |c| c.to_ascii_uppercase())
}

/// The order of the runs: each round in the opposite direction of the one before.
fn order(sides: usize, rounds: u32) -> Vec<usize> {
    (0..rounds)
        .flat_map(|round| (0..sides).map(move |side| if round % 2 == 0 { side } else { sides - 1 - side }))
        .collect()
}

/// Replays `archive` on all runtimes. One merged report for each, in the order of [`Plan::hip_libs`].
///
/// # Errors
/// A replay that cannot be started, does not pass, or ran on another runtime than asked for.
pub fn run(plan: &Plan, archive: &Path, mut on_progress: impl FnMut(Progress)) -> Result<Vec<RunReport>, RunError> {
    if plan.hip_libs.len() < 2 {
        return Err(RunError::OneRuntime);
    }
    let files: Vec<PathBuf> = plan
        .hip_libs
        .iter()
        .map(|path| path.canonicalize().map_err(|source| RunError::NoRuntime { path: path.clone(), source }))
        .collect::<Result<_, _>>()?;
    for (at, file) in files.iter().enumerate() {
        if let Some(other) = files[..at].iter().position(|other| other == file) {
            let (first, second) = (plan.hip_libs[other].clone(), plan.hip_libs[at].clone());
            return Err(RunError::SameRuntime { first, second });
        }
    }
    let folder = tempfile::tempdir()?;
    let runs = order(files.len(), plan.processes);
    let mut reports: Vec<Vec<RunReport>> = vec![Vec::new(); files.len()];
    let began = Instant::now();
    for (number, &side) in runs.iter().enumerate() {
        let report = one(plan, archive, &files[side], &folder.path().join(format!("{number}.json")))?;
        if let Some(before) = reports[side].first()
            && before.runtime.version != report.runtime.version
        {
            let (lib, now) = (files[side].clone(), report.runtime.version);
            return Err(RunError::OtherVersion { lib, first: before.runtime.version, now, run: number + 1 });
        }
        let left = began.elapsed().mul_f64((runs.len() - number - 1) as f64 / (number + 1) as f64);
        on_progress(Progress { done: number + 1, total: runs.len(), side, wall_ns: report.wall_ns, left });
        reports[side].push(report);
    }
    let center = Center::of(reports.iter().flatten());
    Ok(reports.iter().filter_map(|reports| merge(reports, center)).collect())
}

fn one(plan: &Plan, archive: &Path, lib: &Path, file: &Path) -> Result<RunReport, RunError> {
    let mut command = Command::new(&plan.playback);
    command.arg(archive).arg("--hip-lib").arg(lib).arg("--report").arg(file);
    command.arg("--repeat").arg(plan.repetitions.to_string()).arg("--warmup").arg(plan.warmup.to_string());
    if plan.timing == Timing::Events {
        command.arg("--timing");
    }
    command.args(&plan.options);
    let output = command.output().map_err(|source| RunError::Start { path: plan.playback.clone(), source })?;
    if !output.status.success() {
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        let output_tail = lines[lines.len().saturating_sub(12)..].join("\n");
        return Err(RunError::Failed { lib: lib.to_owned(), status: output.status, output: output_tail });
    }
    let report = RunReport::read(file)?;
    let loaded = PathBuf::from(&report.runtime.path);
    if loaded.canonicalize().ok().as_deref() != Some(lib) {
        return Err(RunError::OtherRuntime { asked: lib.to_owned(), loaded });
    }
    Ok(report)
}

/// What was recorded, as a report: what the program's own run took.
///
/// # Errors
/// The replayer cannot be started, or cannot read the archive.
pub fn recorded(playback: &Path, archive: &Path) -> Result<RunReport, RunError> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("recorded.json");
    let mut command = Command::new(playback);
    command.arg(archive).args(["--info", "--report"]).arg(&file);
    let output = command.output().map_err(|source| RunError::Start { path: playback.to_owned(), source })?;
    if !output.status.success() {
        let output = String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or_default().to_owned();
        return Err(RunError::Recorded { archive: archive.to_owned(), output });
    }
    Ok(RunReport::read(&file)?)
}

/// The replayer beside this program, or else the one that the shell would find.
pub fn default_playback() -> PathBuf {
    let name = "hrr-playback";
    let beside = std::env::current_exe().ok().map(|exe| exe.with_file_name(name)).filter(|path| path.exists());
    beside.unwrap_or_else(|| PathBuf::from(name))
}

/// Archives at a path: itself, or those in the folder if it is one of several.
///
/// # Errors
/// The folder cannot be read.
pub fn archives(path: &Path) -> Result<Vec<PathBuf>, std::io::Error> {
    let is_archive = |path: &Path| path.is_dir() && path.join("manifest.json").exists() || holds_process(path);
    if !path.is_dir() || is_archive(path) {
        return Ok(vec![path.to_owned()]);
    }
    let mut found: Vec<PathBuf> = std::fs::read_dir(path)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| is_archive(path) || is_packed(path))
        .collect();
    found.sort();
    Ok(found)
}

/// Whether a file is a packed archive: by its first bytes, for it may have any name; one that is damaged, by its name.
pub fn is_packed(path: &Path) -> bool {
    const MAGIC: [u8; 8] = *b"HRR-PCK\n";
    let mut first = [0; MAGIC.len()];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut first));
    read.is_ok() && first == MAGIC || path.is_file() && path.extension().is_some_and(|extension| extension == "hrrz")
}

fn holds_process(path: &Path) -> bool {
    std::fs::read_dir(path).is_ok_and(|entries| {
        entries.filter_map(Result::ok).any(|entry| {
            entry.file_name().to_string_lossy().starts_with("pid-") && entry.path().join("manifest.json").exists()
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_alternate_in_direction() {
        assert_eq!(order(2, 3), [0, 1, 1, 0, 0, 1]);
        assert_eq!(order(3, 2), [0, 1, 2, 2, 1, 0]);
        assert_eq!([0, 1, 25].map(label), ['A', 'B', 'Z']);
    }

    #[test]
    fn an_error_of_an_archive_is_told_in_one_line_with_its_reason() {
        let failed = RunError::Failed {
            lib: "a.so".into(),
            status: std::os::unix::process::ExitStatusExt::from_raw(1 << 8),
            output: "[HRR] Archive: x\n[HRR] it withholds contents\n\n".to_owned(),
        };
        assert!(failed.is_of_archive() && !RunError::OneRuntime.is_of_archive());
        let wanted =
            "the replay on a.so did not pass (exit status: 1), so its times say nothing: [HRR] it withholds contents";
        assert_eq!(failed.in_one_line(), wanted);
        assert_eq!(RunError::OneRuntime.in_one_line(), RunError::OneRuntime.to_string());
    }

    #[test]
    fn a_runtime_is_not_compared_with_itself() {
        let folder = tempfile::tempdir().unwrap();
        let (lib, link) = (folder.path().join("lib.so"), folder.path().join("link.so"));
        std::fs::write(&lib, "").unwrap();
        std::os::unix::fs::symlink(&lib, &link).unwrap();
        let plan = Plan {
            playback: "none".into(),
            hip_libs: vec![lib, link],
            processes: 1,
            repetitions: 1,
            warmup: 0,
            timing: Timing::Off,
            options: Vec::new(),
        };
        assert!(matches!(run(&plan, Path::new("x"), |_| {}), Err(RunError::SameRuntime { .. })));
    }
}
