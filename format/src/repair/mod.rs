//! Making whole what a recording left behind that did not end well, or that was damaged since.
//!
//! Repair cuts: it keeps every record before the first damage of a stream, every index entry whose contents have its
//! hash, every kernel line that can be read, and writes counts and manifests that say so. It invents nothing. The bytes it
//! cuts off are kept beside the archive's own, in files named `repair-*.bin`, and what was done is noted in
//! [`NOTE_FILE`]. A process that is whole is left alone, so that a second run changes nothing.

mod side_file;
mod store;
mod stream;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::archive::{Archive, ArchiveError, ArchiveRoot, Damaged, EVENTS_DIR, Process, STREAM_EXTENSION};
use crate::blob_store::{BLOBS_DIR, CODE_OBJECTS_DIR};
use crate::catalogue::APIS;
use crate::files;
use crate::kernel_table::{self, KernelTable};
use crate::manifest::{self, Clock, ManifestError, ProcessManifest, ROOT_VERSION, RootManifest, RootProcess, Runtime};
use crate::source::Source;
use crate::stream_file::StreamFile;
use crate::upstream;

use side_file::SideFiles;

/// What was done to a process archive, as JSON; its presence tells that the archive was repaired.
pub const NOTE_FILE: &str = "repair.json";

/// How it stands with a process, or with a root's own manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It was whole and was not touched.
    Clean,
    /// It was repaired and is whole now.
    Repaired,
    /// Something cannot be repaired.
    Damaged,
}

/// What became of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// Name of its directory, or of the root's manifest.
    pub name: String,
    /// How it stands with it now.
    pub condition: Condition,
    /// What was done, and what cannot be.
    pub notes: Vec<String>,
}

/// The file [`NOTE_FILE`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// One for each time something was repaired.
    pub repairs: Vec<NoteEntry>,
}

/// One repair.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoteEntry {
    /// Version of the repairing build.
    pub tool_version: String,
    /// Whether the recorder had closed the archive.
    pub was_complete: bool,
    /// What was done.
    pub notes: Vec<String>,
}

impl Note {
    /// Reads the note of a process archive; `None` where it was never repaired or the note cannot be read.
    pub fn read(process: &Path) -> Option<Self> {
        Self::read_from(&Source::Directory, process)
    }

    pub(crate) fn read_from(source: &Source, process: &Path) -> Option<Self> {
        let bytes = source.read(&process.join(NOTE_FILE), manifest::MAX_BYTES).ok()?;
        serde_json::from_slice(&bytes).ok()
    }
}

/// Repairs the process archive at a path, or all of a root and the root's manifest.
///
/// # Errors
/// Why there is nothing to repair. What becomes of each process is part of the result.
pub fn repair(path: &Path) -> Result<Vec<Repaired>, ArchiveError> {
    if let Source::Packed(_) = Source::of(path)? {
        let reason = io::Error::other("it is a packed archive, which is not changed; unpack it first with --unpack");
        return Err(ArchiveError::Directory { path: path.to_owned(), reason });
    }
    if path.join(EVENTS_DIR).is_dir() {
        return Ok(vec![repair_process(path)]);
    }
    if upstream::is_upstream(path) {
        return Ok(vec![repair_upstream(path)]);
    }
    let root = ArchiveRoot::open(path)?;
    let is_native = |process: &Process| !upstream::is_upstream(&process.path);
    let mut repaired: Vec<Repaired> = root
        .processes
        .iter()
        .map(|process| if is_native(process) { repair_process(&process.path) } else { repair_upstream(&process.path) })
        .collect();
    // The manifest over other recorders' processes is theirs, and one that is being recorded writes it at its end.
    if root.processes.iter().all(is_native) && being_recorded(path).is_empty() {
        repaired.push(repair_root(path)?);
    }
    Ok(repaired)
}

/// Repairs a process archive of AMD's in-tree HRR, in its own format.
fn repair_upstream(dir: &Path) -> Repaired {
    let name = dir.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    match upstream::repair::repair(dir) {
        Ok(notes) => {
            let condition = if notes.is_empty() { Condition::Clean } else { Condition::Repaired };
            Repaired { name, condition, notes }
        }
        Err(error) => Repaired { name, condition: Condition::Damaged, notes: vec![error.to_string()] },
    }
}

/// What is done to a process, as it goes.
struct Work {
    dir: PathBuf,
    notes: Vec<String>,
    /// Something was changed.
    changed: bool,
    /// Something cannot be repaired.
    failed: bool,
    side: SideFiles,
}

impl Work {
    fn did(&mut self, note: String) {
        self.changed = true;
        self.notes.push(note);
    }

    fn cannot(&mut self, note: String) {
        self.failed = true;
        self.notes.push(note);
    }
}

fn repair_process(dir: &Path) -> Repaired {
    let name = dir.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let mut work =
        Work { dir: dir.to_owned(), notes: Vec::new(), changed: false, failed: false, side: SideFiles::new(dir) };
    if let Err(error) = try_repair(&mut work) {
        work.cannot(format!("stopped: {error}"));
    }
    if work.changed && !work.failed {
        // What is left must be an archive that opens, or the repair is none.
        match Archive::open_with(dir, Damaged::Tolerate) {
            Ok(archive) => {
                for warning in archive.warnings() {
                    work.cannot(warning.to_string());
                }
            }
            Err(error) => work.cannot(error.to_string()),
        }
    }
    let condition = match (work.failed, work.changed) {
        (true, _) => Condition::Damaged,
        (false, true) => Condition::Repaired,
        (false, false) => Condition::Clean,
    };
    Repaired { name, condition, notes: work.notes }
}

fn try_repair(work: &mut Work) -> io::Result<()> {
    let manifest_path = work.dir.join(manifest::FILE);
    let read = ProcessManifest::read(&manifest_path);
    if let Err(error @ (ManifestError::Format { .. } | ManifestError::Version { .. })) = &read {
        work.cannot(error.to_string());
        return Ok(());
    }
    if let Some(pid) = read.as_ref().ok().map(|manifest| manifest.pid)
        && is_being_recorded(&work.dir, pid)
    {
        work.cannot(format!("process {pid} is still recording it; nothing was changed"));
        return Ok(());
    }
    let streams = stream::repair_all(work)?;
    let stored = read.as_ref().ok().and_then(|manifest| manifest.stored).unwrap_or_default();
    let blob_numbers = store::repair(work, BLOBS_DIR, stored.blobs)?;
    let code_object_numbers = store::repair(work, CODE_OBJECTS_DIR, stored.code_objects)?;
    let kernels = repair_kernels(work)?;
    let was_complete = read.as_ref().is_ok_and(|manifest| manifest.complete);
    let old = match read {
        Ok(manifest) => Some(manifest),
        Err(error) => {
            work.notes.push(format!("{error}; made anew"));
            None
        }
    };
    let Some(base) = old.clone().or_else(|| rebuilt_manifest(work)) else { return Ok(()) };
    let new = ProcessManifest {
        complete: true,
        event_count: streams.calls,
        thread_count: streams.files,
        blob_count: base.blob_count.max(blob_numbers),
        code_object_count: base.code_object_count.max(code_object_numbers),
        kernel_count: kernels,
        ..base
    };
    if old.as_ref() != Some(&new) && !work.failed {
        if old.is_none() && manifest_path.exists() {
            let kept = work.side.keep("manifest.json", &files::read(&manifest_path, manifest::MAX_BYTES)?)?;
            work.notes.push(format!("the manifest that was there is kept in {kept}"));
        }
        new.write(&manifest_path)?;
        work.did(format!("manifest counts {} events of {} threads", new.event_count, new.thread_count));
        // Of a whole recording: what is gone is gone, and calls that need it may be refused or differ.
        let counted = old.as_ref().filter(|_| was_complete);
        for (what, counted, left) in counted.into_iter().flat_map(|old| {
            [("events", old.event_count, new.event_count), ("kernels", old.kernel_count, new.kernel_count)]
        }) {
            if left < counted {
                work.did(format!("{} {what} of the {counted} that were counted are lost", counted - left));
            }
        }
    }
    if work.changed {
        let mut note = Note::read(&work.dir).unwrap_or_default();
        note.repairs.push(NoteEntry {
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            was_complete,
            notes: work.notes.clone(),
        });
        let mut bytes = serde_json::to_vec_pretty(&note)?;
        bytes.push(b'\n');
        files::replace(&work.dir.join(NOTE_FILE), &bytes)?;
    }
    Ok(())
}

/// The processes of this machine that still record to the archive at a path, or to the root's archives there.
pub fn being_recorded(path: &Path) -> Vec<u64> {
    let dirs = if path.join(EVENTS_DIR).is_dir() {
        vec![path.to_owned()]
    } else {
        ArchiveRoot::open(path)
            .map_or_else(|_| Vec::new(), |root| root.processes.into_iter().map(|it| it.path).collect())
    };
    let pid_of = |dir: &PathBuf| ProcessManifest::read(&dir.join(manifest::FILE)).ok().map(|manifest| manifest.pid);
    dirs.iter().filter_map(|dir| pid_of(dir).filter(|&pid| is_being_recorded(dir, pid))).collect()
}

/// Whether the recorded process still has stream files of this archive mapped.
fn is_being_recorded(dir: &Path, pid: u64) -> bool {
    let Ok(events) = dir.join(EVENTS_DIR).canonicalize() else { return false };
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    maps.contains(&format!("{}/", events.display()))
}

/// A manifest from what the stream files say of themselves. The API names are this build's, which is only right if every
/// record fits them.
fn rebuilt_manifest(work: &mut Work) -> Option<ProcessManifest> {
    let streams: Vec<StreamFile> =
        stream::paths(&work.dir).ok()?.iter().filter_map(|path| StreamFile::open(path).ok()).collect();
    let Some(header) = streams.first().map(|stream| stream.header().clone()) else {
        work.cannot("neither a manifest nor a stream file can be read".to_owned());
        return None;
    };
    let fits = |stream: &StreamFile| {
        let mut calls = stream.records().filter(|record| record.api() < crate::record::marker::FIRST);
        calls.all(|record| {
            let row = APIS.get(usize::from(record.api()));
            row.is_some_and(|row| usize::from(row.words) == record.word_count())
        })
    };
    if !streams.iter().all(fits) {
        work.cannot("without a manifest its calls have no names, and they are not those of this build".to_owned());
        return None;
    }
    work.notes.push("times may be wrong: the manifest with the clock's rate is lost".to_owned());
    let tick_at_start = streams.iter().map(|stream| stream.header().open_tick).min().unwrap_or(0);
    Some(ProcessManifest {
        format: manifest::FORMAT.to_owned(),
        version: manifest::VERSION,
        pid: header.pid,
        parent_pid: 0,
        complete: false,
        contents: header.contents,
        event_count: 0,
        blob_count: 0,
        code_object_count: 0,
        stored: None,
        kernel_count: 0,
        thread_count: 0,
        clock: Clock { tick_at_start, ..Clock::default() },
        runtime: Runtime::default(),
        devices: Vec::new(),
        command: Vec::new(),
        capture_version: String::new(),
        unsized_launches: 0,
        host_snapshots: manifest::HostSnapshots::default(),
        rank: None,
        imported: None,
        window: None,
        flight_recorder_bytes: None,
        stopped: None,
        apis: APIS.iter().map(|api| api.name.to_owned()).collect(),
    })
}

/// Takes lines that cannot be read out of the kernel table, and returns how many kernels are left.
fn repair_kernels(work: &mut Work) -> io::Result<u64> {
    let path = work.dir.join(kernel_table::FILE);
    let bytes = match files::read(&path, kernel_table::MAX_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let table = KernelTable::parse(&bytes);
    let count = table.kernels().len() as u64;
    if table.damage().is_empty() {
        return Ok(count);
    }
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for (position, line) in bytes.split_inclusive(|&byte| byte == b'\n').enumerate() {
        let is_bad = table.damage().iter().any(|damage| damage.line == position + 1);
        if is_bad { &mut bad } else { &mut good }.extend_from_slice(line);
    }
    let kept = work.side.keep(kernel_table::FILE, &bad)?;
    files::replace(&path, &good)?;
    work.did(format!("{}: {} lines taken out, kept in {kept}", kernel_table::FILE, table.damage().len()));
    Ok(count)
}

/// Writes the root's manifest anew where it does not list the processes that are there.
fn repair_root(path: &Path) -> Result<Repaired, ArchiveError> {
    let root = ArchiveRoot::open(path)?;
    let processes: Vec<RootProcess> = root
        .processes
        .iter()
        .filter_map(|process| process.manifest.as_ref().ok())
        .map(|manifest| RootProcess {
            pid: manifest.pid,
            parent_pid: manifest.parent_pid,
            complete: manifest.complete,
            event_count: manifest.event_count,
            blob_count: manifest.blob_count,
        })
        .collect();
    // The process that began the recording is the one whose parent was not recorded.
    let is_first = |process: &&RootProcess| processes.iter().all(|other| other.pid != process.parent_pid);
    let owner_pid = processes.iter().find(is_first).map_or(0, |process| process.pid);
    let old = root.manifest.ok();
    let new = RootManifest {
        version: ROOT_VERSION,
        capture_mode: old.as_ref().map_or_else(|| "preload".to_owned(), |old| old.capture_mode.clone()),
        owner_pid: old.as_ref().map_or(owner_pid, |old| old.owner_pid),
        processes,
    };
    let name = manifest::FILE.to_owned();
    if old.as_ref() == Some(&new) {
        return Ok(Repaired { name, condition: Condition::Clean, notes: Vec::new() });
    }
    let count = new.processes.len();
    let (condition, note) = match new.write(&path.join(manifest::FILE)) {
        Ok(()) => (Condition::Repaired, format!("lists {count} processes")),
        Err(error) => (Condition::Damaged, format!("cannot be written: {error}")),
    };
    Ok(Repaired { name, condition, notes: vec![note] })
}

/// Whether a file in the events directory is a stream file by its name.
fn is_stream_file(path: &Path) -> bool {
    let has_number = path.file_stem().and_then(|stem| stem.to_str()).is_some_and(|stem| stem.parse::<u32>().is_ok());
    has_number && path.extension().is_some_and(|extension| extension == STREAM_EXTENSION)
}
