//! `hrr-capture check`: whether what was recorded is whole, and holds contents.

use std::fmt;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use hrr_format::archive::{Archive, ArchiveError, ArchiveRoot, Damaged, MissingProcesses, Warning};
use hrr_format::record::marker;
use hrr_format::repair::being_recorded;
use hrr_format::stream_file::ContentsMode;
use hrr_format::verify::{Depth, verify_archive_to};

/// Most faults of a process that are printed; `hrr-playback --verify` has them all.
const FAULTS_SHOWN: usize = 5;

/// What became of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// To its end, with contents.
    Recorded,
    /// To its end, without contents.
    MetadataOnly,
    /// Not to its end.
    Incomplete,
    /// To its end, and not all of it is there.
    Damaged,
    /// Without a call.
    Empty,
}

impl State {
    fn is_good(self) -> bool {
        matches!(self, State::Recorded | State::MetadataOnly)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Recorded => "recorded",
            State::MetadataOnly => "metadata-only",
            State::Incomplete => "incomplete",
            State::Damaged => "damaged",
            State::Empty => "empty",
        })
    }
}

/// Calls in an archive.
pub(crate) fn calls_of(archive: &Archive) -> u64 {
    if archive.manifest().complete {
        return archive.manifest().event_count;
    }
    let calls =
        archive.streams().iter().map(|stream| stream.records().filter(|record| record.api() < marker::FIRST).count());
    calls.sum::<usize>() as u64
}

/// What became of a recording.
pub(crate) fn state_of(archive: &Archive) -> State {
    match (calls_of(archive), archive.manifest().complete, archive.contents()) {
        (0, _, _) => State::Empty,
        (_, false, _) => State::Incomplete,
        (_, true, ContentsMode::Contents) => State::Recorded,
        (_, true, ContentsMode::MetadataOnly) => State::MetadataOnly,
    }
}

/// Prints a line for each process, and exits with 0 where all are whole.
pub(crate) fn run(path: &Path) -> ExitCode {
    let mut text = String::new();
    let good = match check(path, &mut text) {
        Ok(good) => good,
        // Nothing was recorded there, or is left of it, which is an answer and no failure.
        Err(ArchiveError::Empty { path }) => {
            text = match MissingProcesses::of(&path) {
                Some(missing) => format!("{}: incomplete: {missing}\n", path.display()),
                None => format!("{}: empty: no process was recorded\n", path.display()),
            };
            false
        }
        Err(error) => {
            eprintln!("hrr-capture: {error}");
            false
        }
    };
    // Who reads no further knows enough; the exit code is the answer.
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::from(u8::from(!good))
}

fn check(path: &Path, text: &mut String) -> Result<bool, ArchiveError> {
    let mut missing = None;
    let processes = match Archive::open_with(path, Damaged::Tolerate) {
        Ok(archive) => vec![archive],
        Err(ArchiveError::Several { .. }) => {
            missing = MissingProcesses::of(path);
            let root = ArchiveRoot::open(path)?;
            let open = |path: &Path| Archive::open_with(path, Damaged::Tolerate);
            root.processes.iter().map(|process| open(&process.path)).collect::<Result<_, _>>()?
        }
        Err(error) => return Err(error),
    };
    let mut good = true;
    for archive in &processes {
        good &= check_process(archive, text);
    }
    if let Some(missing) = &missing {
        *text += &format!("  warning: {missing}\n");
    }
    Ok(good && missing.is_none())
}

/// Writes down how it stands with a process; says whether it is whole.
fn check_process(archive: &Archive, text: &mut String) -> bool {
    let report = verify_archive_to(archive, Depth::Presence);
    // A thread that the process's end overtook before its first record left nothing out.
    let harmless = |warning: &Warning| matches!(warning, Warning::Unstarted { .. });
    let is_there = archive.warnings().iter().all(harmless) && report.faults.is_empty();
    let state = match state_of(archive) {
        state if state.is_good() && !is_there => State::Damaged,
        state => state,
    };
    *text += &format!("{}: {state}: {}\n", archive.path().display(), details(archive, state));
    let warnings: Vec<String> = archive.warnings().iter().map(ToString::to_string).collect();
    for warning in &warnings {
        *text += &format!("  warning: {warning}\n");
    }
    // What was a warning is no fault once more.
    let faults: Vec<&String> = report.faults.iter().filter(|fault| !warnings.contains(fault)).collect();
    for fault in faults.iter().take(FAULTS_SHOWN) {
        *text += &format!("  fault: {fault}\n");
    }
    if let Some(more @ 1..) = faults.len().checked_sub(FAULTS_SHOWN) {
        *text += &format!("  and {more} more: hrr-playback {} --verify\n", quoted(archive.path()));
    }
    if report.lost > 0 {
        *text += &match being_recorded(archive.path()).is_empty() {
            true => {
                format!("  lost: {} contents that calls refer to were not stored, or were damaged since\n", report.lost)
            }
            false => format!("  {} contents that calls refer to are not stored yet\n", report.lost),
        };
    }
    state.is_good() && is_there && report.lost == 0
}

fn details(archive: &Archive, state: State) -> String {
    let manifest = archive.manifest();
    let threads = archive.streams().len();
    let counts = format!("{} calls of {threads} thread{}", calls_of(archive), if threads == 1 { "" } else { "s" });
    let path = quoted(archive.path());
    match state {
        State::Recorded => format!(
            "{counts}, {} blobs, {} code objects; replay with: hrr-playback {path}",
            manifest.blob_count, manifest.code_object_count
        ),
        State::MetadataOnly => format!("{counts}, no contents; inspect with: hrr-playback {path} --info"),
        State::Damaged => format!("{counts}; it was recorded to its end, and is not all there; copy it again, whole"),
        State::Incomplete if !being_recorded(archive.path()).is_empty() => {
            format!("{counts} so far; process {} is still recording it", manifest.pid)
        }
        State::Incomplete if manifest.stopped.is_some() => format!(
            "{counts}; the recording stopped before the process ended: {}; hrr-playback {path} --info says what is there",
            manifest.stopped.as_deref().unwrap_or_default()
        ),
        State::Incomplete => format!(
            "{counts}; the process was killed, left by _exit, or still runs; hrr-playback {path} --info names what was in flight"
        ),
        State::Empty => match &manifest.window {
            Some(window) if window.opened == 0 => format!("the window {} was never opened", window.trigger),
            _ => "the process was recorded and made no call".to_owned(),
        },
    }
}

/// A path as one types it to a shell.
pub(crate) fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+%@".contains(c);
    if !text.is_empty() && text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_written_as_one_types_them() {
        assert_eq!(quoted(Path::new("/a/b.hrr")), "/a/b.hrr");
        assert_eq!(quoted(Path::new("/a b/it's")), r"'/a b/it'\''s'");
    }
}
