//! What the recorder reported while the program ran.

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Room in bytes for the lines of some processes.
const ROOM_BYTES: libc::off_t = 4096;

/// The file that the recorder writes to in every process; it goes with this value.
#[derive(Debug)]
pub(crate) struct Journal {
    path: Option<PathBuf>,
}

/// What happened in the processes of a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// Processes that the recorder was loaded into, with their executables.
    pub(crate) loaded: Vec<(u64, PathBuf)>,
    /// Directories of recorded processes.
    pub(crate) recorded: Vec<(u64, PathBuf)>,
    /// Processes that could not be recorded, and why.
    pub(crate) refused: Vec<(u64, String)>,
    /// Recordings that ended before their process, and why.
    pub(crate) stopped: Vec<(u64, String)>,
    /// GPU libraries in processes that made no HIP call.
    pub(crate) idle: Vec<(u64, String)>,
}

impl Journal {
    /// Makes the file. Without one, the launcher has nothing to report.
    pub(crate) fn create() -> Self {
        let dir = std::env::temp_dir();
        for attempt in 0..100u32 {
            let path = dir.join(format!("hrr-capture-{}-{attempt}", std::process::id()));
            let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
            if let Ok(file) = made {
                // It goes with this value, also where it has no room.
                let journal = Journal { path: Some(path) };
                return if has_room(&file) { journal } else { Journal { path: None } };
            }
        }
        Journal { path: None }
    }

    /// Where it lies.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// What was written so far.
    pub(crate) fn read(&self) -> Report {
        let bytes = self.path.as_ref().and_then(|path| std::fs::read(path).ok()).unwrap_or_default();
        parse(&String::from_utf8_lossy(&bytes))
    }
}

/// Whether the first lines have room on the file's disk, which is kept for them: else a recorder that cannot write any would count
/// as one that was not there.
fn has_room(file: &File) -> bool {
    // SAFETY: the descriptor is the file's.
    let kept = unsafe { libc::fallocate(file.as_raw_fd(), libc::FALLOC_FL_KEEP_SIZE, 0, ROOM_BYTES) } == 0;
    // Not every file system can keep room.
    kept || std::io::Error::last_os_error().kind() != ErrorKind::StorageFull
}

impl Drop for Journal {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // A leftover in the temporary directory is no reason to fail.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn parse(text: &str) -> Report {
    let mut report = Report::default();
    for line in text.lines() {
        let mut words = line.splitn(3, ' ');
        let (Some(what), Some(Ok(pid))) = (words.next(), words.next().map(str::parse)) else { continue };
        let rest = words.next().unwrap_or_default();
        match what {
            "loaded" => report.loaded.push((pid, rest.into())),
            "recording" => report.recorded.push((pid, rest.into())),
            "refused" => report.refused.push((pid, rest.into())),
            "stopped" => report.stopped.push((pid, rest.into())),
            "idle" => report.idle.push((pid, rest.into())),
            _ => {}
        }
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_others_left() {
        let text = "loaded 7 /bin/a b\nrecording 7 /x/pid-7\nidle 8 \nrefused 9 no room: 3\nstopped 7 disk\njunk\nloaded x y\n";
        let report = parse(text);
        assert_eq!(report.loaded, [(7, "/bin/a b".into())]);
        assert_eq!(report.recorded, [(7, "/x/pid-7".into())]);
        assert_eq!(report.refused, [(9, "no room: 3".into())]);
        assert_eq!((&report.stopped[..], &report.idle[..]), (&[(7, "disk".into())][..], &[(8, String::new())][..]));
    }
}
