//! A program recorded into an archive of its own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::built;
use crate::process::{Finished, run};
use crate::workload::Workload;

/// Longest time that a recorded program may take.
const LIMIT: Duration = Duration::from_secs(120);

/// Whether the archive holds contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Recorded.
    Recorded,
    /// Withheld: the default of a capture.
    Withheld,
}

/// A folder that goes with its owner, unless a test fails: then it stays, for a look at it.
#[derive(Debug)]
pub struct Scratch {
    folder: Option<TempDir>,
}

impl Scratch {
    /// A new folder among the built outputs.
    ///
    /// # Panics
    /// It cannot be made.
    pub fn new(name: &str) -> Self {
        let parent = built::folder().join("tests");
        let made = std::fs::create_dir_all(&parent)
            .and_then(|()| tempfile::Builder::new().prefix(&format!("{name}-")).tempdir_in(&parent));
        Scratch { folder: Some(made.unwrap_or_else(|error| panic!("{}: {error}", parent.display()))) }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.folder.as_ref().expect("taken only when dropped").path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(folder) = self.folder.take()
            && std::thread::panicking()
        {
            eprintln!("kept for a look: {}", folder.keep().display());
        }
    }
}

/// A program that was recorded.
#[derive(Debug)]
pub struct Recording {
    /// The program.
    pub workload: Workload,
    /// Where its archive lies.
    pub archive: PathBuf,
    /// The recorded run.
    pub run: Finished,
    /// Holds the archive.
    _scratch: Scratch,
}

/// Makes `command` record into `archive`.
pub fn recorded(command: &mut Command, archive: &Path, contents: Contents) {
    command.env("LD_PRELOAD", built::capture_library()).env("HIP_HRR_CAPTURE_OUTPUT", archive);
    match contents {
        Contents::Recorded => command.env("HIP_HRR_CAPTURE_CONTENT", "1"),
        Contents::Withheld => command.env_remove("HIP_HRR_CAPTURE_CONTENT"),
    };
}

/// Records `workload`, with more variables if need be.
///
/// # Panics
/// The program fails, or leaves no archive.
pub fn record_with(workload: &Workload, contents: Contents, variables: &[(&str, &str)]) -> Recording {
    let scratch = Scratch::new(&workload.name);
    let archive = scratch.path().join(format!("{}.hrr", workload.name));
    let mut command = workload.command();
    recorded(&mut command, &archive, contents);
    command.envs(variables.iter().copied());
    let run = run(&mut command, LIMIT);
    assert!(run.succeeded(), "the recorded program failed\n{run}");
    assert!(archive.is_dir(), "the recording left no archive\n{run}");
    Recording { workload: workload.clone(), archive, run, _scratch: scratch }
}

/// Records `workload`.
///
/// # Panics
/// As [`record_with`].
pub fn record(workload: &Workload, contents: Contents) -> Recording {
    record_with(workload, contents, &[])
}
