//! Archives that AMD's in-tree HRR writes: read, checked, and turned into native ones.
//!
//! `format/upstream/README.md` describes what is read, what it becomes and why; `format/upstream/records.tsv` holds the
//! layouts. Opening such an archive translates it, so that whatever works on native archives works on it.
//!
//! * [`events`]: the event file
//! * [`layout`], [`ids`]: which fields a record has
//! * [`launch`]: kernel launches
//! * [`hash`]: names of contents
//! * [`manifest`]: what lies beside the event file
//! * [`archive`]: all of these, opened from a path
//! * [`mod@translate`]: the native form
//! * [`write`](mod@write): the way back

pub mod archive;
mod describe;
pub mod events;
pub mod hash;
pub mod ids;
pub mod launch;
pub mod layout;
pub mod manifest;
pub mod repair;
mod translate;
pub mod write;

use std::path::{Path, PathBuf};

pub use archive::{UpstreamArchive, UpstreamError, is_upstream};
pub use describe::describe;
pub use translate::translate;

use crate::manifest::{Clock, Imported, ProcessManifest, Runtime};
use crate::stream_file::ContentsMode;

/// The native form of an archive, in a directory that goes with it.
#[derive(Debug)]
pub struct Translated {
    path: PathBuf,
    _directory: tempfile::TempDir,
}

impl Translated {
    /// Translates a process archive.
    ///
    /// # Errors
    /// Why its native form cannot be written.
    pub fn of(archive: &UpstreamArchive) -> Result<Self, UpstreamError> {
        let failed = |path: &Path, reason| UpstreamError::Write { path: path.to_owned(), reason };
        let parent = std::env::temp_dir();
        let directory = tempfile::Builder::new().prefix("hrr-").tempdir().map_err(|reason| failed(&parent, reason))?;
        let path = directory.path().join("pid-0");
        translate(archive, &path).map_err(|reason| failed(&path, reason))?;
        Ok(Translated { path, _directory: directory })
    }

    /// Translates what is upstream's at a path, a process or a root of such, into a native root; `None` where nothing is.
    ///
    /// # Errors
    /// Why one of them cannot be read or is cut short, or the native form not be written.
    pub fn root_of(path: &Path) -> Result<Option<Self>, UpstreamError> {
        let mut processes = vec![path.to_owned()];
        if !is_upstream(path) {
            let entries = std::fs::read_dir(path).into_iter().flatten();
            processes = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| is_upstream(path)).collect();
            processes.sort();
        }
        if processes.is_empty() {
            return Ok(None);
        }
        let failed = |path: &Path, reason| UpstreamError::Write { path: path.to_owned(), reason };
        let parent = std::env::temp_dir();
        let directory = tempfile::Builder::new().prefix("hrr-").tempdir().map_err(|reason| failed(&parent, reason))?;
        for process in processes {
            let archive = UpstreamArchive::open(&process)?;
            archive.expect_whole()?;
            let pid = translate::pid_of(&archive);
            let path = crate::archive::process_dir(directory.path(), pid);
            translate(&archive, &path).map_err(|reason| failed(&path, reason))?;
        }
        Ok(Some(Translated { path: directory.path().to_owned(), _directory: directory }))
    }

    /// The native directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// What an upstream manifest says, as far as a native one says it too. Used to list a root.
pub(crate) fn process_manifest(process: &Path) -> ProcessManifest {
    let told: manifest::ProcessManifest =
        manifest::read(&process.join(crate::manifest::FILE)).ok().flatten().unwrap_or_default();
    ProcessManifest {
        format: crate::manifest::FORMAT.to_owned(),
        version: crate::manifest::VERSION,
        pid: told.pid,
        parent_pid: told.parent_pid,
        complete: told.complete,
        contents: ContentsMode::Contents,
        event_count: told.event_count,
        blob_count: told.blob_count,
        code_object_count: 0,
        stored: None,
        kernel_count: 0,
        thread_count: 0,
        clock: Clock::default(),
        runtime: Runtime::default(),
        devices: Vec::new(),
        command: Vec::new(),
        capture_version: String::new(),
        unsized_launches: 0,
        host_snapshots: crate::manifest::HostSnapshots::default(),
        rank: None,
        apis: Vec::new(),
        imported: Some(Imported { format: "in-tree".to_owned(), ..Imported::default() }),
        window: None,
        flight_recorder_bytes: None,
        stopped: None,
    }
}
