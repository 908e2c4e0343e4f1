//! The lines at the end: what was recorded, where, how large, and how to replay it; or why nothing was.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use hrr_cli::size_text;
use hrr_format::archive::{Archive, ArchiveRoot, Damaged};
use hrr_format::packed::PackedFile;
use hrr_format::stream_file::ContentsMode;

use crate::check::{State, calls_of, quoted, state_of};
use crate::journal::Report;
use crate::launch::Ended;
use crate::program::{Obstacle, Program};

const PREFIX: &str = "[HRR capture]";
/// Processes that are listed one by one.
const LISTED: usize = 8;

/// What is to be said of a run.
pub(crate) fn lines(program: &OsStr, ended: &Ended, report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    if let Ended::NotStarted { reason } = ended {
        lines.push(format!("{PREFIX} Nothing was recorded: {}", not_started(program, reason)));
        return lines;
    }
    for (pid, reason) in report.refused.iter().take(LISTED) {
        lines.push(format!("{PREFIX} Process {pid} could not be recorded: {reason}"));
    }
    for (pid, reason) in report.stopped.iter().take(LISTED) {
        lines.push(format!("{PREFIX} The recording of process {pid} ended early: {reason}"));
    }
    if report.recorded.is_empty() {
        lines.push(format!("{PREFIX} Nothing was recorded: {}", reason(program, report)));
        return lines;
    }
    // A root for each value of the output's pattern.
    let mut roots: BTreeMap<PathBuf, Vec<&Path>> = BTreeMap::new();
    for (_, dir) in &report.recorded {
        roots.entry(dir.parent().unwrap_or(dir).to_owned()).or_default().push(dir);
    }
    for (root, dirs) in &roots {
        lines.extend(root_lines(root, dirs));
    }
    lines
}

/// Why a program cannot be run, and what to do about it.
fn not_started(program: &OsStr, reason: &std::io::Error) -> String {
    let (path, shown) = (Path::new(program), program.to_string_lossy());
    if is_archive(path) {
        let quoted = quoted(path);
        return format!("{shown} is an archive and no program; replay it with: hrr-playback {quoted}");
    }
    let remedy = match reason.kind() {
        _ if path.is_dir() => "; it is a directory: name the program in it".to_owned(),
        ErrorKind::NotFound if path.is_file() && !shown.contains('/') => format!("; in this directory it is ./{shown}"),
        // The system says the same of a program and of what it is to be run by.
        ErrorKind::NotFound if path.is_file() => "; the interpreter that it names is missing".to_owned(),
        ErrorKind::NotFound => "; look at its path".to_owned(),
        ErrorKind::PermissionDenied if path.is_file() => "; have it made executable, or name what runs it".to_owned(),
        _ => String::new(),
    };
    format!("{shown} cannot be run: {reason}{remedy}")
}

/// Whether what was taken for a program is an archive, in any of its forms.
fn is_archive(path: &Path) -> bool {
    match path.is_dir() {
        true => Archive::open_with(path, Damaged::Tolerate).is_ok() || ArchiveRoot::open(path).is_ok(),
        false => PackedFile::open(path).is_ok(),
    }
}

/// What is said where the recorder had no file to tell its side in.
pub(crate) fn untold(output: &OsStr) -> String {
    format!(
        "{PREFIX} No file could be made in {}, so what was recorded is not known here; set TMPDIR, or look with: \
         hrr-capture check {}",
        std::env::temp_dir().display(),
        quoted(Path::new(output))
    )
}

/// The lines on one archive root.
fn root_lines(root: &Path, dirs: &[&Path]) -> Vec<String> {
    let (mut calls, mut threads, mut open, mut bytes) = (0, 0, 0, 0);
    let mut contents = ContentsMode::MetadataOnly;
    let mut last_calls_only = false;
    let mut never_opened = None;
    let mut rows = Vec::new();
    let plural = |count: usize, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
    for dir in dirs {
        bytes += tree_bytes(dir);
        let Ok(archive) = Archive::open_with(dir, Damaged::Tolerate) else {
            rows.push(format!("{PREFIX}   {}: cannot be read", dir.display()));
            continue;
        };
        contents = archive.contents();
        last_calls_only |= archive.manifest().flight_recorder_bytes.is_some();
        never_opened = archive.manifest().window.as_ref().filter(|window| window.opened == 0).cloned();
        calls += calls_of(&archive);
        threads += archive.streams().len();
        let state = state_of(&archive);
        // One whose recording stopped has been told above, with the reason.
        open += usize::from(state == State::Incomplete && archive.manifest().stopped.is_none());
        rows.push(format!(
            "{PREFIX}   {}: {} calls, {}, {state}",
            dir.file_name().unwrap_or_default().to_string_lossy(),
            calls_of(&archive),
            plural(archive.streams().len(), "thread", "threads")
        ));
    }
    if let Some(window) = never_opened.filter(|_| calls == 0) {
        return vec![format!("{PREFIX} Nothing was recorded: the window {} was never opened", window.trigger)];
    }
    if calls == 0 && threads == 0 {
        return vec![format!("{PREFIX} Nothing was recorded to {}", root.display())];
    }
    let with = match contents {
        ContentsMode::Contents => "with contents",
        ContentsMode::MetadataOnly => "metadata only",
    };
    let mut lines = vec![format!(
        "{PREFIX} Recorded {calls} HIP calls of {} in {} ({with}, {}) to {}",
        plural(threads, "thread", "threads"),
        plural(dirs.len(), "process", "processes"),
        size_text(bytes),
        root.display()
    )];
    if dirs.len() > 1 {
        let more = rows.len().saturating_sub(LISTED);
        lines.extend(rows.into_iter().take(LISTED));
        if more > 0 {
            lines.push(format!("{PREFIX}   and {more} more"));
        }
    }
    if open > 0 {
        lines.push(format!(
            "{PREFIX} {} was killed, left by _exit, or still runs; what had returned by then is there",
            plural(open, "process", "processes")
        ));
    }
    // A root that holds other processes too, of this run or an earlier one, stands for none of them alone.
    let alone = ArchiveRoot::open(root).is_ok_and(|root| root.processes.len() == 1);
    let path = quoted(if dirs.len() == 1 && !alone { dirs[0] } else { root });
    let command = match (contents, dirs.len()) {
        (ContentsMode::Contents, 1) => format!("Replay:  hrr-playback {path}"),
        (ContentsMode::Contents, _) => format!("Replay:  hrr-playback {path} --all-processes"),
        (ContentsMode::MetadataOnly, _) if last_calls_only => {
            format!("Inspect: hrr-playback {path} --info   (what was in flight, and what came last on each stream)")
        }
        (ContentsMode::MetadataOnly, _) => {
            format!("Inspect: hrr-playback {path} --info   (to replay, record again with --content)")
        }
    };
    lines.push(format!("{PREFIX} {command}"));
    lines
}

/// Why a run left nothing.
fn reason(name: &OsStr, report: &Report) -> String {
    let program = Program::of(name);
    let shown = name.to_string_lossy();
    if !report.refused.is_empty() {
        return "see above".to_owned();
    }
    let obstacle = program.as_ref().and_then(|program| program.obstacle.clone());
    if let Some(Obstacle::Elsewhere { remedy }) = obstacle {
        return format!("{shown} runs its program out of this environment's reach; {remedy}");
    }
    if report.loaded.is_empty() {
        return match obstacle {
            Some(Obstacle::Privileged { by }) => format!(
                "the loader preloads nothing into {shown}, which has more rights than you by {by}; run it as the user whose rights it \
                 has, or a copy without them"
            ),
            Some(Obstacle::Static { with_hip: true }) => format!(
                "{shown} is linked statically, HIP included: nothing can be put between them; link it with the shared libamdhip64"
            ),
            Some(Obstacle::Static { with_hip: false }) => {
                format!(
                    "{shown} is linked statically, and shows no sign of HIP; if it starts the program that uses HIP, put \
                         hrr-capture there"
                )
            }
            Some(Obstacle::OtherLoader { path }) => format!(
                "{shown} is not linked with the GNU C library but started by {}, which cannot load the recorder: it ran without; \
                 record a build of it for the GNU C library",
                path.display()
            ),
            Some(Obstacle::Foreign) => format!("{shown} is not a program for x86-64"),
            _ if small_file_limit().is_some() => format!(
                "files may be no longer than {} bytes (ulimit -f), which leaves no room for a recording",
                small_file_limit().unwrap_or_default()
            ),
            _ => format!(
                "the recorder was not loaded into {shown}; see the loader's message above, if there is one (a sandbox, or an older C \
                 library, may have kept it out)"
            ),
        };
    }
    let mut libraries: Vec<&str> = report.idle.iter().flat_map(|(_, found)| found.split_whitespace()).collect();
    libraries.sort_unstable();
    libraries.dedup();
    let hip: Vec<&str> = libraries.iter().copied().filter(|path| path.contains("libamdhip64")).collect();
    if !hip.is_empty() {
        return format!("{shown} loaded the HIP runtime {} and made no HIP call", hip.join(" and "));
    }
    if !libraries.is_empty() {
        return format!("{shown} loaded no HIP runtime; it uses {}", libraries.join(" and "));
    }
    if report.idle.is_empty() {
        return format!("{shown} made no HIP call until it was killed or left by _exit");
    }
    let script = program
        .and_then(|program| program.interpreter)
        .map_or(String::new(), |interpreter| format!(" ({} runs it)", interpreter.display()));
    format!("{shown}{script} loaded no HIP runtime and made no HIP call")
}

/// The limit on the length of files, where it keeps the recorder from telling what it did.
fn small_file_limit() -> Option<u64> {
    const SMALL_BYTES: u64 = 4096;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is writable memory of the right type.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) } == 0;
    Some(limit.rlim_cur).filter(|&limit_bytes| known && limit_bytes < SMALL_BYTES)
}

/// Bytes of the files under a directory.
fn tree_bytes(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    entries
        .filter_map(Result::ok)
        .map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => tree_bytes(&entry.path()),
            Ok(found) => found.len(),
            Err(_) => 0,
        })
        .sum()
}
