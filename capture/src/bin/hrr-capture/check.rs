//! `hrr-capture check`: whether what was recorded is whole, and holds contents.

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use hrr_format::archive::{Archive, ArchiveError, ArchiveRoot, Damaged};
use hrr_format::record::marker;
use hrr_format::stream_file::ContentsMode;

/// What became of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// To its end, with contents.
    Recorded,
    /// To its end, without contents.
    MetadataOnly,
    /// Not to its end.
    Incomplete,
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
    match check(path) {
        Ok(good) => ExitCode::from(u8::from(!good)),
        // Nothing was recorded there, which is an answer and no failure.
        Err(ArchiveError::Empty { path }) => {
            println!("{}: empty: no process was recorded", path.display());
            ExitCode::from(1)
        }
        Err(error) => {
            eprintln!("hrr-capture: {error}");
            ExitCode::from(1)
        }
    }
}

fn check(path: &Path) -> Result<bool, ArchiveError> {
    let processes = match Archive::open_with(path, Damaged::Tolerate) {
        Ok(archive) => vec![archive],
        Err(ArchiveError::Several { .. }) => {
            let root = ArchiveRoot::open(path)?;
            let open = |path: &Path| Archive::open_with(path, Damaged::Tolerate);
            root.processes.iter().map(|process| open(&process.path)).collect::<Result<_, _>>()?
        }
        Err(error) => return Err(error),
    };
    let mut good = true;
    for archive in &processes {
        let state = state_of(archive);
        good &= state.is_good() && archive.warnings().is_empty();
        println!("{}: {state}: {}", archive.path().display(), details(archive, state));
        for warning in archive.warnings() {
            println!("  warning: {warning}");
        }
    }
    Ok(good)
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
        State::Incomplete => format!(
            "{counts}; the process did not end by itself, or still runs; hrr-playback {path} --info names what was in flight"
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
