//! What the recorder reported while the program ran.

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What the names of these files begin with, in front of the process id and a number.
const PREFIX: &str = "hrr-capture-";
/// Room in bytes for the lines of some processes.
const ROOM_BYTES: libc::off_t = 4096;

/// The file that the recorder writes to in every process; it goes with this value.
#[derive(Debug)]
pub(crate) struct Journal {
    path: Option<PathBuf>,
    /// Holds the lock by which later launchers know that this one lives.
    file: Option<File>,
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
        remove_stale(&dir);
        for attempt in 0..100u32 {
            let path = dir.join(format!("{PREFIX}{}-{attempt}", std::process::id()));
            let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
            if let Ok(file) = made {
                // It goes with this value, also where it has no room. Where it cannot be locked, its process's number keeps it.
                let _ = lock(&file);
                let has_room = has_room(&file);
                let journal = Journal { path: Some(path), file: Some(file) };
                if has_room && journal.is_there() {
                    return journal;
                }
                if !has_room {
                    break;
                }
            }
        }
        Journal { path: None, file: None }
    }

    /// Whether the file still has its name: another launcher may have taken it for a leftover before it was locked.
    fn is_there(&self) -> bool {
        self.file.as_ref().and_then(|file| file.metadata().ok()).is_some_and(|found| found.nlink() > 0)
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

/// Takes away what launchers that were killed left behind: files of this user, of processes that are no more, that nobody has
/// locked. The lock tells those of other containers, whose processes have no number here.
fn remove_stale(dir: &Path) {
    /// Names that are looked at: a full directory must not hold up every start.
    const LOOKED_AT: usize = 20_000;
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    // SAFETY: the call has no preconditions.
    let user = unsafe { libc::geteuid() };
    for entry in entries.take(LOOKED_AT).filter_map(Result::ok) {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(pid_of).filter(|&pid| !is_alive(pid)) else { continue };
        let path = dir.join(&name);
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let Ok(file) = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(&path) else { continue };
        let is_ours = file.metadata().is_ok_and(|found| found.is_file() && found.uid() == user && found.nlink() == 1);
        if is_ours && lock(&file) && !is_alive(pid) {
            // Whatever keeps it there, the next start may try again.
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// The process id in the name of a journal.
fn pid_of(name: &str) -> Option<libc::pid_t> {
    let (pid, attempt) = name.strip_prefix(PREFIX)?.split_once('-')?;
    attempt.parse::<u32>().ok()?;
    pid.parse().ok().filter(|&pid| pid > 0)
}

/// Locks a file until it is closed; false where somebody else has.
fn lock(file: &File) -> bool {
    // SAFETY: the descriptor is the file's.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 }
}

fn is_alive(pid: libc::pid_t) -> bool {
    // SAFETY: signal 0 only asks whether there is such a process.
    let sent = unsafe { libc::kill(pid, 0) } == 0;
    sent || std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
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

    /// Formerly every launcher that was killed left one.
    #[test]
    fn leftovers_of_the_dead_go_and_nothing_else_does() {
        let dir = tempfile::tempdir().unwrap();
        let mut gone = std::process::Command::new("true").spawn().unwrap();
        gone.wait().unwrap();
        let at = |name: String| dir.path().join(name);
        let make = |name: String| std::fs::write(at(name), "x").unwrap();
        let (dead, own) = (gone.id(), std::process::id());
        make(format!("hrr-capture-{dead}-0"));
        make(format!("hrr-capture-{own}-0"));
        make(format!("hrr-capture-{dead}-1"));
        let elsewhere = File::open(at(format!("hrr-capture-{dead}-1"))).unwrap();
        assert!(lock(&elsewhere));
        let kept = ["hrr-capture-x-0", "hrr-capture-1", "hrr-capture-0-0", "hrr-capture--1-0", "other"];
        for name in kept {
            make(name.to_owned());
        }
        let target = at("other".to_owned());
        std::os::unix::fs::symlink(&target, at(format!("hrr-capture-{dead}-2"))).unwrap();
        std::fs::create_dir(at(format!("hrr-capture-{dead}-3"))).unwrap();
        remove_stale(dir.path());
        let mut left: Vec<String> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let mut wanted: Vec<String> = kept.iter().map(|name| (*name).to_owned()).collect();
        wanted.extend([1, 2, 3].map(|number| format!("hrr-capture-{dead}-{number}")));
        wanted.push(format!("hrr-capture-{own}-0"));
        wanted.sort();
        assert_eq!(left, wanted);
    }

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
