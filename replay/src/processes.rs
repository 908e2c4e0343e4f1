//! Archives of several processes: choosing one by rank, and replaying all of them at the same time.
//!
//! Each process is replayed by a process of its own, as it was recorded: runtimes keep state by process. The one that was
//! started by the user starts the others, waits until each has planned and staged its part, and lets them go together.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hrr_format::archive::{Archive, ArchiveError, ArchiveRoot, MissingProcesses, Process};
use hrr_format::manifest::RANK_VARIABLES;
use hrr_format::record::marker;

use crate::environment::{self, VariableError};

/// Names the directory of the process that this one replays, of those in the root on its command line.
const DIRECTORY: &str = "HRR_REPLAY_PROCESS_DIRECTORY";
/// Descriptor of the socket to the process that gives the start.
const START: &str = "HRR_REPLAY_START_SOCKET";

/// Names of the variables in which launchers give a rank.
fn rank_variables() -> impl Iterator<Item = &'static str> {
    RANK_VARIABLES.iter().filter_map(|name| name.to_str().ok())
}

/// Why processes cannot be chosen or replayed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessesError {
    /// The root cannot be listed.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// A launcher's variable holds no rank.
    #[error(transparent)]
    Variable(#[from] VariableError),
    /// No launcher gave this process a rank.
    #[error("--rank own: none of {} is set; give a number", rank_variables().collect::<Vec<_>>().join(", "))]
    NoRank,
    /// No process has the rank.
    #[error("{}: no recorded process has rank {rank}; recorded: {recorded}; give one of those, or a pid-* directory in it", root.display())]
    RankMissing {
        /// The root.
        root: PathBuf,
        /// The rank.
        rank: u64,
        /// Ranks there are.
        recorded: String,
    },
    /// Several processes have the rank.
    #[error("{}: rank {rank} has several processes; choose one: {processes}", root.display())]
    RankTwice {
        /// The root.
        root: PathBuf,
        /// The rank.
        rank: u64,
        /// Their directories.
        processes: String,
    },
    /// No process has anything to replay.
    #[error("{}: nothing was recorded: no process made a HIP call", root.display())]
    NoCalls {
        /// The root.
        root: PathBuf,
    },
    /// A process cannot be started or waited for.
    #[error("{}: its replay cannot be started: {reason}", path.display())]
    Start {
        /// The process directory.
        path: PathBuf,
        /// The system's reason.
        reason: io::Error,
    },
}

/// Which rank to replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rank {
    /// The one that a launcher gave this process.
    Own,
    /// This one.
    Number(u64),
}

impl std::str::FromStr for Rank {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "own" => Ok(Rank::Own),
            _ => text.parse().map(Rank::Number).map_err(|_| format!("{text:?} is neither a number nor `own`")),
        }
    }
}

/// The directory of the process with a rank.
///
/// # Errors
/// Why there is none, or which there are.
pub fn with_rank(root: &Path, rank: Rank) -> Result<PathBuf, ProcessesError> {
    let rank = match rank {
        Rank::Number(rank) => rank,
        Rank::Own => {
            let own = rank_variables().find(|name| environment::text(name).is_some()).ok_or(ProcessesError::NoRank)?;
            environment::number(own, 0, 0.., "the rank that the launcher gives, a whole number")?
        }
    };
    let processes = ArchiveRoot::open(root)?.processes;
    let rank_of = |process: &Process| process.manifest.as_ref().ok().and_then(|manifest| manifest.rank);
    let mut found = processes.iter().filter(|process| rank_of(process) == Some(rank));
    match (found.next(), found.next()) {
        (Some(process), None) => Ok(process.path.clone()),
        (Some(first), Some(second)) => Err(ProcessesError::RankTwice {
            root: root.to_owned(),
            rank,
            processes: [first, second]
                .into_iter()
                .chain(found)
                .map(|p| p.path.display().to_string())
                .collect::<Vec<_>>()
                .join(", "),
        }),
        (None, _) => {
            let mut recorded: Vec<u64> = processes.iter().filter_map(rank_of).collect();
            recorded.sort_unstable();
            let recorded: Vec<String> = recorded.iter().map(u64::to_string).collect();
            let recorded = if recorded.is_empty() { "none".to_owned() } else { recorded.join(", ") };
            Err(ProcessesError::RankMissing { root: root.to_owned(), rank, recorded })
        }
    }
}

/// The process directory that this process was started to replay.
pub fn assigned(root: &Path) -> Option<PathBuf> {
    std::env::var_os(DIRECTORY).map(|name| root.join(name))
}

/// A file name of one process's own: `report.json` becomes `report.pid-7.json`.
pub fn of_process(file: &Path, process: &Path) -> PathBuf {
    let mut name = file.file_stem().unwrap_or_default().to_owned();
    name.push(".");
    name.push(process.file_name().unwrap_or_default());
    if let Some(extension) = file.extension() {
        name.push(".");
        name.push(extension);
    }
    file.with_file_name(name)
}

/// Says that this process is ready, and waits for the start. Returns at once where nobody gives one.
pub fn wait_for_start() {
    let Some(number) = std::env::var(START).ok().and_then(|text| text.parse::<i32>().ok()).filter(|number| *number > 2)
    else {
        return;
    };
    // SAFETY: the starting process left this descriptor open for this purpose; it is used once.
    let mut start = unsafe { UnixStream::from_raw_fd(number) };
    // Where the starting process is gone there is nothing to wait for.
    let _ = start.write_all(b"r").and_then(|()| start.read_exact(&mut [0]));
}

/// A process that replays one of the recorded ones.
struct Replaying {
    path: PathBuf,
    child: Child,
    output: JoinHandle<String>,
    start: UnixStream,
}

/// How the replay of one process ended.
struct Ended {
    path: PathBuf,
    status: io::Result<ExitStatus>,
    output: String,
}

/// Replays every process of a root, all at the same time, with the arguments of this process. Returns the exit code: the
/// greatest of the processes', and not 0 where one that the root lists is not there.
///
/// # Errors
/// Why a process could not be started; those that were are ended.
pub fn replay_all(root: &Path, out: &mut impl Write) -> Result<u8, ProcessesError> {
    let (processes, idle): (Vec<Process>, Vec<Process>) =
        ArchiveRoot::open(root)?.processes.into_iter().partition(made_calls);
    if processes.is_empty() {
        return Err(ProcessesError::NoCalls { root: root.to_owned() });
    }
    for process in &idle {
        // A reader that has seen enough is no error.
        let _ = writeln!(out, "[HRR] {} is left out: it made no HIP call", process.path.display());
    }
    let missing = MissingProcesses::of(root);
    let mut replaying = Vec::new();
    for process in &processes {
        match start(&process.path) {
            Ok(started) => replaying.push(started),
            Err(reason) => {
                for mut other in replaying {
                    // What has ended by itself needs no ending.
                    let _ = other.child.kill();
                    let _ = other.child.wait();
                }
                return Err(ProcessesError::Start { path: process.path.clone(), reason });
            }
        }
    }
    let setup = Instant::now();
    // A process that fails before it is ready closes its socket; the others start without it.
    let ready = replaying.iter_mut().map(|one| one.start.read_exact(&mut [0]).is_ok()).filter(|ready| *ready).count();
    let setup = setup.elapsed();
    let begun = Instant::now();
    for one in &mut replaying {
        // One that is not ready any more has ended.
        let _ = one.start.write_all(b"g");
    }
    let ended: Vec<Ended> = replaying
        .into_iter()
        .map(|mut one| Ended {
            status: one.child.wait(),
            output: one.output.join().unwrap_or_default(),
            path: one.path,
        })
        .collect();
    let code = summarise(&ended, ready, setup, begun.elapsed(), out);
    match missing {
        Some(missing) => {
            eprintln!("hrr-playback: {missing}");
            Ok(code.max(1))
        }
        None => Ok(code),
    }
}

/// Whether a process has something to replay. One that cannot be told so has, for its replay says what is wrong with it.
fn made_calls(process: &Process) -> bool {
    // While a recording goes on, and after it was killed, its manifest counts none.
    process.manifest.as_ref().map_or(true, |manifest| manifest.event_count > 0)
        || Archive::open(&process.path).map_or(true, |archive| {
            archive.streams().iter().any(|stream| stream.records().any(|record| record.api() < marker::FIRST))
        })
}

fn start(path: &Path) -> io::Result<Replaying> {
    let (start, theirs) = UnixStream::pair()?;
    let number = theirs.as_raw_fd();
    let mut command = Command::new(std::env::current_exe()?);
    command.args(std::env::args_os().skip(1)).stdin(Stdio::null()).stdout(Stdio::piped());
    command.env(DIRECTORY, path.file_name().unwrap_or(OsStr::new(""))).env(START, number.to_string());
    // SAFETY: between fork and exec only `fcntl` is called, which is safe there: the one socket stays open over exec.
    unsafe {
        command.pre_exec(move || match libc::fcntl(number, libc::F_SETFD, 0) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
    let mut child = command.spawn()?;
    let mut pipe = child.stdout.take();
    let output = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(pipe) = &mut pipe {
            // What was read before an error is worth showing all the same.
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    });
    Ok(Replaying { path: path.to_owned(), child, output, start })
}

/// Prints what each process printed, then one line for each, and returns the exit code for all.
fn summarise(ended: &[Ended], ready: usize, setup: Duration, wall: Duration, out: &mut impl Write) -> u8 {
    let mut text = String::new();
    let mut lines = String::new();
    let mut code = 0;
    let mut passed = 0;
    for one in ended {
        let name = one.path.file_name().unwrap_or_default().to_string_lossy();
        text.push_str(&format!("[HRR] ---- {name}\n{}", one.output));
        let (own, word) = match &one.status {
            Ok(status) => match status.code() {
                Some(0) => (0, "pass".to_owned()),
                Some(code) => (u8::try_from(code).unwrap_or(1), format!("fail (exit code {code})")),
                None => (1, format!("fail ({status})")),
            },
            Err(error) => (1, format!("lost: {error}")),
        };
        passed += usize::from(own == 0);
        code = code.max(own);
        let found = |what: &str| {
            let line = one.output.lines().find(|line| line.contains(what))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let wall = found("Wall time").unwrap_or_else(|| "-".to_owned());
        let checks = found("D2H checks").unwrap_or_else(|| "-".to_owned());
        lines.push_str(&format!("[HRR]   {name}: {word}; wall {wall}; D2H {checks}\n"));
    }
    text.push_str(&format!(
        "[HRR] All processes: {passed} of {} passed; {ready} began together after {:.1} ms of preparation, and took {:.1} ms\n{lines}",
        ended.len(),
        setup.as_secs_f64() * 1e3,
        wall.as_secs_f64() * 1e3
    ));
    // A reader that has seen enough is no error.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_read_and_files_named_by_process() {
        assert_eq!("own".parse(), Ok(Rank::Own));
        assert_eq!("12".parse(), Ok(Rank::Number(12)));
        assert!("-1".parse::<Rank>().is_err());
        assert_eq!(of_process(Path::new("/x/r.json"), Path::new("a/pid-7.1")), Path::new("/x/r.pid-7.1.json"));
    }
}
