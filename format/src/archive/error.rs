//! What is wrong with an archive: what keeps it from being opened, and what does not.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::{MissingProcesses, PROCESS_PREFIX};
use crate::blob_store::{BlobError, IndexDamage};
use crate::kernel_table::{KernelDamage, KernelTableError};
use crate::manifest::ManifestError;
use crate::packed::PackedError;
use crate::stream_file::{Damage, StreamError};
use crate::upstream::UpstreamError;

/// Why an archive cannot be opened. Every message is one line that names the file and, where there is one, the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// Nothing is there.
    #[error("{}: no such archive; give the directory that HIP_HRR_CAPTURE_OUTPUT named, or a {PROCESS_PREFIX}* directory in it", path.display())]
    Missing {
        /// The path given.
        path: PathBuf,
    },
    /// The path is a file.
    #[error("{} is not a directory, nor a packed archive; give the directory that holds the archive", path.display())]
    NotADirectory {
        /// The path given.
        path: PathBuf,
    },
    /// A directory could not be listed.
    #[error("{} cannot be read: {reason}; look at its owner and mode: archives are made for their owner alone", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The system's reason.
        reason: io::Error,
    },
    /// The directory has nothing of an archive.
    #[error(
        "{} holds no archive: it has no {PROCESS_PREFIX}* directory; record one by running a program under hrr-capture, or with \
         HIP_HRR_CAPTURE_OUTPUT set to it and libhrr_capture.so preloaded",
        path.display()
    )]
    Empty {
        /// The directory.
        path: PathBuf,
    },
    /// The root holds several processes.
    #[error("{} holds {} processes; choose one, or replay them with --all-processes: {}", path.display(), processes.len(), Choice(processes))]
    Several {
        /// The root.
        path: PathBuf,
        /// Directories of the processes, by process id.
        processes: Vec<PathBuf>,
    },
    /// An archive of AMD's in-tree HRR cannot be read.
    #[error("{0}")]
    Upstream(#[from] UpstreamError),
    /// The manifest cannot be read.
    #[error("{0}")]
    Manifest(#[from] ManifestError),
    /// Stream files are missing.
    #[error("{} holds {found} stream files and its manifest counts {expected} threads; copy the archive again, whole", path.display())]
    StreamsMissing {
        /// The events directory.
        path: PathBuf,
        /// Stream files found.
        found: usize,
        /// Threads in the manifest.
        expected: u64,
    },
    /// A stream file cannot be read.
    #[error("{} is not a readable stream file: {error}; copy it again from where it was recorded", path.display())]
    Stream {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: StreamError,
    },
    /// A stream file was closed cleanly with more bytes than it has.
    #[error("{} is cut short: {len_bytes} of {used_bytes} bytes are there; copy it again from where it was recorded", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Bytes there are.
        len_bytes: u64,
        /// Bytes its header counts.
        used_bytes: u64,
    },
    /// A stream file has nothing in it, and calls are missing.
    #[error(
        "{} holds no record, and of the {expected} calls that the manifest counts {found} are there; copy the archive again, whole",
        path.display()
    )]
    Emptied {
        /// The file; the first of several.
        path: PathBuf,
        /// Calls in the other files.
        found: u64,
        /// Calls in the manifest.
        expected: u64,
    },
    /// Calls are missing, wherever they were.
    #[error("{} holds {found} calls and its manifest counts {expected}; copy the archive again, whole", path.display())]
    CallsMissing {
        /// The process directory.
        path: PathBuf,
        /// Calls found.
        found: u64,
        /// Calls in the manifest.
        expected: u64,
    },
    /// A record cannot be read.
    #[error(
        "{} is damaged at byte {}: {}; copy it again from where it was recorded, or cut it there with --repair",
        path.display(), damage.offset_bytes, damage.error
    )]
    Record {
        /// The stream file.
        path: PathBuf,
        /// Where and what.
        damage: Damage,
    },
    /// A blob index cannot be read.
    #[error("{0}")]
    Blobs(#[from] BlobError),
    /// The kernel table cannot be read.
    #[error("{0}")]
    Kernels(#[from] KernelTableError),
    /// The kernel table is missing, or cut.
    #[error(
        "{} is missing or not whole: {found} of the {expected} kernels that the manifest counts are there; copy the archive again, \
         whole",
        path.display()
    )]
    KernelsMissing {
        /// The kernel table.
        path: PathBuf,
        /// Lines there are.
        found: u64,
        /// Kernels in the manifest.
        expected: u64,
    },
    /// A packed archive cannot be read or made.
    #[error("{0}")]
    Packed(#[from] PackedError),
}

/// Something wrong with an archive that leaves the rest of it readable. Every message names the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Warning {
    /// A thread ended before its first record.
    #[error("{} holds no record: its thread ended before it finished its first call", path.display())]
    Unstarted {
        /// The stream file.
        path: PathBuf,
    },
    /// A part of the archive is missing, was left out, or is read only as far as it goes.
    #[error("{0}")]
    Part(ArchiveError),
    /// Two stream files say that they are of one thread.
    #[error("{} says that it is of thread {thread}, as another file does", path.display())]
    SameThread {
        /// The later file by name.
        path: PathBuf,
        /// The thread number.
        thread: u32,
    },
    /// A stream file says something else than the manifest.
    #[error("{} is of another capture than the manifest: its {what} differs", path.display())]
    Mismatch {
        /// The stream file.
        path: PathBuf,
        /// What differs.
        what: &'static str,
    },
    /// An index entry was left out.
    #[error("{}: {damage}", path.display())]
    Index {
        /// The index.
        path: PathBuf,
        /// What is wrong.
        damage: IndexDamage,
    },
    /// A kernel was left out.
    #[error("{}: {damage}", path.display())]
    Kernel {
        /// The kernel table.
        path: PathBuf,
        /// What is wrong.
        damage: KernelDamage,
    },
    /// Of the processes of a root only this one is left.
    #[error("{0}")]
    Processes(#[from] MissingProcesses),
    /// Region sidecars cannot be read, or do not fit each other.
    #[error("{}: {fault}", path.display())]
    Regions {
        /// Their directory.
        path: PathBuf,
        /// What is wrong.
        fault: String,
    },
}

/// The processes to choose from, as many as fit on a line.
struct Choice<'a>(&'a [PathBuf]);

impl fmt::Display for Choice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        for (position, path) in self.0.iter().take(SHOWN).enumerate() {
            let separator = if position == 0 { "" } else { ", " };
            write!(f, "{separator}{}", path.display())?;
        }
        match self.0.len().checked_sub(SHOWN) {
            Some(more) if more > 0 => write!(f, " and {more} more"),
            _ => Ok(()),
        }
    }
}
