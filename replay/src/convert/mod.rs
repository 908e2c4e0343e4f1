//! `--convert`: from an archive of AMD's in-tree HRR to a native one, and back.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use hrr_cli::Unwritable;
use hrr_format::archive::{Archive, ArchiveError, process_dir};
use hrr_format::manifest::{self, RootManifest, RootProcess};
use hrr_format::upstream::write::{Lossy, WriteError, write};
use hrr_format::upstream::{UpstreamArchive, UpstreamError, translate};

use crate::info::printable;
use crate::tools::tell_being_recorded;

/// Why nothing was converted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConvertError {
    /// The archive cannot be read.
    #[error("{0}")]
    Archive(#[from] ArchiveError),
    /// An archive of AMD's in-tree HRR cannot be read.
    #[error("{0}")]
    Upstream(#[from] UpstreamError),
    /// The in-tree format does not hold what the archive does.
    #[error("{0}")]
    Write(#[from] WriteError),
    /// The target is there already.
    #[error("{} exists; name a directory that does not", path.display())]
    Exists {
        /// The target.
        path: PathBuf,
    },
    /// A file could not be written.
    #[error("{0}")]
    Files(#[from] Unwritable),
    /// The output could not be written.
    #[error("the output cannot be written: {0}; send it elsewhere")]
    Output(#[from] io::Error),
}

/// Converts the process archive at a path into a new root with one process, to the other of the two formats.
///
/// # Errors
/// [`ConvertError`].
pub fn run_convert(path: &Path, target: &Path, lossy: Lossy, out: &mut dyn Write) -> Result<(), ConvertError> {
    if target.exists() {
        return Err(ConvertError::Exists { path: target.to_owned() });
    }
    tell_being_recorded(path, "what it records from now on is not converted", out)?;
    let archive = Archive::open(path)?;
    let converted = convert(&archive, target, lossy, out);
    if converted.is_err() {
        // Half an archive would be taken for one; the error that matters is the first one.
        let _ = std::fs::remove_dir_all(target);
    }
    converted
}

fn convert(archive: &Archive, target: &Path, lossy: Lossy, out: &mut dyn Write) -> Result<(), ConvertError> {
    let manifest = archive.manifest();
    let process = process_dir(target, manifest.pid);
    if manifest.imported.is_some() && archive.path().join(hrr_format::upstream::archive::EVENTS_FILE).is_file() {
        let upstream = UpstreamArchive::open(archive.path())?;
        translate(&upstream, &process).map_err(Unwritable::at(&process))?;
        let root = RootManifest {
            version: manifest::ROOT_VERSION,
            capture_mode: "in-tree".to_owned(),
            owner_pid: manifest.pid,
            processes: vec![RootProcess {
                pid: manifest.pid,
                parent_pid: manifest.parent_pid,
                complete: manifest.complete,
                event_count: manifest.event_count,
                blob_count: manifest.blob_count,
            }],
        };
        let file = target.join(manifest::FILE);
        root.write(&file).map_err(Unwritable::at(&file))?;
        let written = format!("{} records as {} native calls", upstream.len(), manifest.event_count);
        writeln!(out, "[HRR] Converted {written} in {}", printable(&process.display().to_string()))?;
        return Ok(());
    }
    let written = write(archive, &process, lossy).map_err(|error| match error {
        WriteError::Write { path, reason } => ConvertError::Files(Unwritable { path, reason }),
        error => error.into(),
    })?;
    writeln!(
        out,
        "[HRR] Converted {} calls and {} contents to the in-tree format, version {}, in {}",
        written.events,
        written.contents,
        hrr_format::upstream::write::VERSION,
        printable(&process.display().to_string())
    )?;
    for (what, count) in &written.losses {
        writeln!(out, "[HRR]   lost: {count} x {}", printable(what))?;
    }
    Ok(())
}
