//! Opening an archive: from a path to streams, stores, kernels and a manifest that fit together.
//!
//! A path names an archive root, which holds a `pid-<pid>` directory for each recorded process, or one such
//! directory. A root with one process stands for that process. A [packed](crate::packed) archive is a root in one file;
//! `FILE.hrrz/pid-<pid>` names a process in it.
//!
//! Damage that costs nothing but itself (a torn last entry of an index, a thread that was killed before its first
//! record) is a [`Warning`]. Damage that would leave calls out in silence is an [`ArchiveError`], unless the caller
//! asks to see [what is left](Damaged::Tolerate).

mod error;

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};

use crate::blob_store::{BLOBS_DIR, BlobError, BlobStore, CODE_OBJECTS_DIR, INDEX_FILE};
use crate::catalogue::Api;
use crate::kernel_table::{self, KernelTable};
use crate::manifest::{self, ManifestError, ProcessManifest, RootManifest};
use crate::record::{BlobRef, Record, marker};
use crate::regions::{self, Regions};
use crate::repair::Note;
use crate::source::Source;
use crate::stream_file::{ContentsMode, StreamError, StreamFile};
use crate::upstream;

pub use self::error::{ArchiveError, Warning};

/// Directory of stream files in a process archive.
pub const EVENTS_DIR: &str = "events";
/// File name extension of a stream file.
pub const STREAM_EXTENSION: &str = "evs";
/// What the name of a process archive begins with.
pub const PROCESS_PREFIX: &str = "pid-";

/// File in a process's directory with the tick of its last sign of life, eight bytes.
pub const ALIVE_FILE: &str = "alive";

/// The directory of a process in an archive root.
pub fn process_dir(root: &Path, pid: u64) -> PathBuf {
    root.join(format!("{PROCESS_PREFIX}{pid}"))
}

/// The stream file of a thread in a process archive.
pub fn stream_path(process_dir: &Path, thread: u32) -> PathBuf {
    process_dir.join(EVENTS_DIR).join(format!("{thread}.{STREAM_EXTENSION}"))
}

/// What to do with a part of an archive that is missing, cannot be read or is cut short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damaged {
    /// Refuse the archive.
    Refuse,
    /// Leave it out, or read it as far as it goes, and warn.
    Tolerate,
}

impl Damaged {
    /// Refuses a fault, or makes it a warning.
    fn meet(self, error: ArchiveError, warnings: &mut Vec<Warning>) -> Result<(), ArchiveError> {
        match self {
            Damaged::Refuse => Err(error),
            Damaged::Tolerate => {
                warnings.push(Warning::Part(error));
                Ok(())
            }
        }
    }
}

/// Processes that a root's manifest lists and that are not there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} lists processes that are not there: {}; copy the archive again, whole, or have --repair take them off the list",
    path.display(),
    pids.iter().map(|pid| format!("{PROCESS_PREFIX}{pid}")).collect::<Vec<_>>().join(", ")
)]
pub struct MissingProcesses {
    /// The root's manifest.
    pub path: PathBuf,
    /// Their process ids.
    pub pids: Vec<u64>,
}

impl MissingProcesses {
    /// Those of the root at a path. `None` where all are there, or the path is no root with a manifest of its own.
    pub fn of(path: &Path) -> Option<Self> {
        let source = Source::of(path).ok()?;
        if is_process_dir(&source, path) {
            return None;
        }
        let manifest_path = path.join(manifest::FILE);
        let manifest = RootManifest::read_from(&source, &manifest_path).ok()?;
        let mut there: Vec<u64> = process_dirs(&source, path).ok()?.into_iter().map(|(pid, _)| pid).collect();
        let mut pids: Vec<u64> = manifest.processes.iter().map(|process| process.pid).collect();
        // After `exec` a process id has several directories, and is listed as often.
        pids.retain(|pid| match there.iter().position(|found| found == pid) {
            Some(position) => {
                there.swap_remove(position);
                false
            }
            None => true,
        });
        (!pids.is_empty()).then_some(MissingProcesses { path: manifest_path, pids })
    }
}

/// An API as an archive names it.
#[derive(Clone, Copy, Debug)]
pub struct ArchiveApi<'a> {
    /// Id in the archive's records.
    pub id: u16,
    /// Name, or [`ArchiveApi::UNNAMED`] where the manifest has none for the id.
    pub name: &'a str,
    /// The row of this build's catalogue with that name.
    pub known: Option<&'static Api>,
}

impl ArchiveApi<'_> {
    /// Stands for the name of an id that the manifest does not list.
    pub const UNNAMED: &'static str = "(unnamed API)";
}

/// An opened process archive.
#[derive(Debug)]
pub struct Archive {
    path: PathBuf,
    manifest: ProcessManifest,
    streams: Vec<StreamFile>,
    blobs: BlobStore,
    code_objects: BlobStore,
    kernels: KernelTable,
    regions: Regions,
    /// This build's row for each id of the archive.
    known: Vec<Option<&'static Api>>,
    repaired: Option<Note>,
    alive_tick: Option<u64>,
    warnings: Vec<Warning>,
    /// Where the native form of an archive in another format lies while it is open.
    _translated: Option<upstream::Translated>,
}

impl Archive {
    /// Opens the archive at a path: a process directory, or a root with exactly one.
    ///
    /// # Errors
    /// Why there is none, or which part of it cannot be read.
    pub fn open(path: &Path) -> Result<Self, ArchiveError> {
        Self::open_with(path, Damaged::Refuse)
    }

    /// Opens the archive at a path, with a say in what happens to damaged stream files.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_with(path: &Path, damaged: Damaged) -> Result<Self, ArchiveError> {
        let source = Source::of(path)?;
        let missing = MissingProcesses::of(path);
        let path = resolve(&source, path)?;
        if upstream::is_upstream(&path) && !is_process_dir(&source, &path) {
            return Self::open_upstream(path, damaged);
        }
        let manifest = ProcessManifest::read_from(&source, &path.join(manifest::FILE))?;
        let mut warnings: Vec<Warning> = missing.into_iter().map(Warning::Processes).collect();
        let streams = open_streams(&source, &path, &manifest, damaged, &mut warnings)?;
        let mut open_store = |dir: &str| -> Result<BlobStore, ArchiveError> {
            let store = BlobStore::open_from(source.clone(), &path.join(dir))?;
            let index = store.dir().join(INDEX_FILE);
            let damage = store.index().damage().iter().cloned();
            warnings.extend(damage.map(|damage| Warning::Index { path: index.clone(), damage }));
            Ok(store)
        };
        let blobs = open_store(BLOBS_DIR)?;
        let code_objects = open_store(CODE_OBJECTS_DIR)?;
        let kernels_path = path.join(kernel_table::FILE);
        let kernels = KernelTable::open_from(&source, &kernels_path)?;
        let (found, expected) = (kernels.line_count(), manifest.kernel_count);
        if manifest.complete && found < expected {
            let missing = ArchiveError::KernelsMissing { path: kernels_path.clone(), found, expected };
            damaged.meet(missing, &mut warnings)?;
        }
        let damage = kernels.damage().iter().cloned();
        warnings.extend(damage.map(|damage| Warning::Kernel { path: kernels_path.clone(), damage }));
        let regions = Regions::read_from(&source, &path);
        let faults = regions.faults().iter().cloned();
        warnings.extend(faults.map(|fault| Warning::Regions { path: path.join(regions::DIR), fault }));
        let known = manifest.apis.iter().map(|name| Api::by_name(name)).collect();
        let repaired = Note::read_from(&source, &path);
        let alive_tick = source
            .map(&path.join(ALIVE_FILE))
            .ok()
            .flatten()
            .and_then(|bytes| Some(u64::from_le_bytes(*bytes.first_chunk()?)));
        Ok(Archive {
            path,
            manifest,
            streams,
            blobs,
            code_objects,
            kernels,
            regions,
            known,
            repaired,
            alive_tick,
            warnings,
            _translated: None,
        })
    }

    /// Opens the native form of an archive of AMD's in-tree HRR, which lasts as long as the archive is open.
    fn open_upstream(path: PathBuf, damaged: Damaged) -> Result<Self, ArchiveError> {
        let upstream = upstream::UpstreamArchive::open(&path)?;
        let mut warnings = Vec::new();
        if let Err(cut_short) = upstream.expect_whole() {
            damaged.meet(cut_short.into(), &mut warnings)?;
        }
        let translated = upstream::Translated::of(&upstream)?;
        let mut archive = Self::open_with(translated.path(), damaged)?;
        archive.warnings.append(&mut warnings);
        Ok(Archive { path, _translated: Some(translated), ..archive })
    }

    /// The process directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its manifest.
    pub fn manifest(&self) -> &ProcessManifest {
        &self.manifest
    }

    /// The last tick at which the process was seen running, besides by its calls. None for one that ended soon, or whose
    /// recorder gave no sign.
    pub fn alive_tick(&self) -> Option<u64> {
        self.alive_tick
    }

    /// What was recorded besides calls, handles and sizes.
    pub fn contents(&self) -> ContentsMode {
        self.manifest.contents
    }

    /// The stream files by thread number.
    pub fn streams(&self) -> &[StreamFile] {
        &self.streams
    }

    /// Host contents.
    pub fn blobs(&self) -> &BlobStore {
        &self.blobs
    }

    /// Code objects.
    pub fn code_objects(&self) -> &BlobStore {
        &self.code_objects
    }

    /// Kernels.
    pub fn kernels(&self) -> &KernelTable {
        &self.kernels
    }

    /// What another tool wrote down of the program's use of device memory; empty where there is none.
    pub fn regions(&self) -> &Regions {
        &self.regions
    }

    /// What repair did to the archive; `None` where it was never needed.
    pub fn repaired(&self) -> Option<&Note> {
        self.repaired.as_ref()
    }

    /// What is wrong with the archive and did not keep it from being opened.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Refuses a whole recording of which not all calls were found, `found` of them: some would be left out in silence.
    ///
    /// # Errors
    /// How many are missing.
    pub fn expect_calls(&self, found: u64) -> Result<(), ArchiveError> {
        match counted_calls(&self.manifest) {
            Some(expected) if found < expected => {
                Err(ArchiveError::CallsMissing { path: self.path.clone(), found, expected })
            }
            _ => Ok(()),
        }
    }

    /// The API with an id of this archive's records.
    pub fn api(&self, id: u16) -> ArchiveApi<'_> {
        let position = usize::from(id);
        ArchiveApi {
            id,
            name: self.manifest.apis.get(position).map_or(ArchiveApi::UNNAMED, String::as_str),
            known: self.known.get(position).copied().flatten(),
        }
    }

    /// The catalogue row that a record's arguments can be read by: the one of its name, if it has as many argument words
    /// as the record. A record of an API unknown to this build, or recorded with other parameters, has none.
    pub fn row_of(&self, record: &Record<'_>) -> Option<&'static Api> {
        self.api(record.api()).known.filter(|api| usize::from(api.words) == record.word_count())
    }

    /// The contents a reference names. `None` where they were withheld or never written.
    ///
    /// # Errors
    /// Why contents that are there cannot be used.
    pub fn blob(&self, reference: BlobRef) -> Result<Option<Cow<'_, [u8]>>, BlobError> {
        self.blobs.get(reference.number)
    }
}

/// A process of an archive root.
#[derive(Debug)]
pub struct Process {
    /// Process id, from the directory's name.
    pub pid: u64,
    /// Its directory.
    pub path: PathBuf,
    /// Its manifest, or why that cannot be read.
    pub manifest: Result<ProcessManifest, ManifestError>,
}

/// An archive root and what lies in it.
#[derive(Debug)]
pub struct ArchiveRoot {
    /// The directory.
    pub path: PathBuf,
    /// Its own manifest, or why that cannot be read.
    pub manifest: Result<RootManifest, ManifestError>,
    /// Its processes by process id.
    pub processes: Vec<Process>,
}

impl ArchiveRoot {
    /// Lists a root.
    ///
    /// # Errors
    /// Why the path is not a directory with recorded processes in it.
    pub fn open(path: &Path) -> Result<Self, ArchiveError> {
        let source = Source::of(path)?;
        let found = process_dirs(&source, path)?;
        if found.is_empty() {
            return Err(ArchiveError::Empty { path: path.to_owned() });
        }
        let processes = found
            .into_iter()
            .map(|(pid, path)| {
                let manifest = match upstream::is_upstream(&path) {
                    true => Ok(upstream::process_manifest(&path)),
                    false => ProcessManifest::read_from(&source, &path.join(manifest::FILE)),
                };
                Process { pid, path, manifest }
            })
            .collect();
        let manifest = RootManifest::read_from(&source, &path.join(manifest::FILE));
        Ok(ArchiveRoot { path: path.to_owned(), manifest, processes })
    }
}

/// Finds the process directory that a path stands for.
fn resolve(source: &Source, path: &Path) -> Result<PathBuf, ArchiveError> {
    if is_process_dir(source, path) {
        return Ok(path.to_owned());
    }
    let mut processes: Vec<PathBuf> = process_dirs(source, path)?.into_iter().map(|(_, path)| path).collect();
    let resolved = match processes.len() {
        0 => path.to_owned(),
        1 => processes.remove(0),
        _ => return Err(ArchiveError::Several { path: path.to_owned(), processes }),
    };
    if is_process_dir(source, &resolved) {
        return Ok(resolved);
    }
    if upstream::is_upstream(&resolved) {
        return Ok(resolved);
    }
    match ProcessManifest::read_from(source, &resolved.join(manifest::FILE)) {
        // A manifest without an events directory: a process that was recorded and made no call.
        Ok(_) => Ok(resolved),
        // No manifest, or a root's own: nothing was recorded here.
        Err(ManifestError::Open { reason, .. }) if reason.kind() == io::ErrorKind::NotFound => {
            Err(ArchiveError::Empty { path: resolved })
        }
        Err(ManifestError::Format { found, .. }) if found.is_empty() => Err(ArchiveError::Empty { path: resolved }),
        Err(error) => Err(error.into()),
    }
}

fn is_process_dir(source: &Source, path: &Path) -> bool {
    source.is_dir(&path.join(EVENTS_DIR))
}

/// The `pid-*` directories in a directory, by process id.
fn process_dirs(source: &Source, path: &Path) -> Result<Vec<(u64, PathBuf)>, ArchiveError> {
    let mut found = Vec::new();
    for (name, entry_path) in list(source, path)? {
        let Some(number) = name.strip_prefix(PROCESS_PREFIX) else { continue };
        // A second process with the same id, after `exec` or from another machine, has a number behind a dot.
        let (digits, again) = number.split_once('.').unwrap_or((number, "0"));
        if let (Ok(pid), Ok(_)) = (digits.parse::<u64>(), again.parse::<u32>())
            && source.is_dir(&entry_path)
        {
            found.push((pid, entry_path));
        }
    }
    found.sort();
    Ok(found)
}

fn list(source: &Source, path: &Path) -> Result<Vec<(String, PathBuf)>, ArchiveError> {
    source.list(path).map_err(|reason| match reason.kind() {
        io::ErrorKind::NotFound => ArchiveError::Missing { path: path.to_owned() },
        io::ErrorKind::NotADirectory => ArchiveError::NotADirectory { path: path.to_owned() },
        _ => ArchiveError::Directory { path: path.to_owned(), reason },
    })
}

fn open_streams(
    source: &Source,
    process: &Path,
    manifest: &ProcessManifest,
    damaged: Damaged,
    warnings: &mut Vec<Warning>,
) -> Result<Vec<StreamFile>, ArchiveError> {
    let dir = process.join(EVENTS_DIR);
    let mut paths: Vec<(u32, PathBuf)> = Vec::new();
    if source.is_dir(&dir) {
        for (name, path) in list(source, &dir)? {
            let number = name.strip_suffix(STREAM_EXTENSION).and_then(|stem| stem.strip_suffix('.'));
            if let Some(Ok(number)) = number.map(str::parse) {
                paths.push((number, path));
            }
        }
    }
    paths.sort();
    let mut refuse = |error: ArchiveError| damaged.meet(error, warnings);
    if (paths.len() as u64) < manifest.thread_count {
        refuse(ArchiveError::StreamsMissing { path: dir, found: paths.len(), expected: manifest.thread_count })?;
    }
    let mut streams = Vec::with_capacity(paths.len());
    let (mut later, mut blank) = (Vec::new(), Vec::new());
    for (_, path) in paths {
        let stream = match StreamFile::open_from(source, &path) {
            Ok(stream) => stream,
            // The file is made before its header is written, so a kill in between leaves it empty or all zeros.
            Err(StreamError::ShortHeader { len_bytes: 0 }) => {
                blank.push(path);
                continue;
            }
            Err(StreamError::Magic { found }) if found.iter().all(|&byte| byte == 0) => {
                blank.push(path);
                continue;
            }
            Err(error) => {
                refuse(ArchiveError::Stream { path, error })?;
                continue;
            }
        };
        let (len_bytes, used_bytes) = (stream.len_bytes(), stream.header().used_bytes);
        if used_bytes > len_bytes {
            refuse(ArchiveError::Truncated { path: path.clone(), len_bytes, used_bytes })?;
        }
        let header = stream.header();
        for (differs, what) in
            [(header.pid != manifest.pid, "process id"), (header.contents != manifest.contents, "contents mode")]
        {
            if differs {
                later.push(Warning::Mismatch { path: path.clone(), what });
            }
        }
        streams.push(stream);
    }
    if let Some(path) = blank.first()
        && let Some((found, expected)) = missing_calls(manifest, &streams)
    {
        refuse(ArchiveError::Emptied { path: path.clone(), found, expected })?;
    } else {
        later.extend(blank.into_iter().map(|path| Warning::Unstarted { path }));
    }
    streams.sort_by_key(|stream| stream.header().thread);
    for pair in streams.windows(2) {
        if pair[0].header().thread == pair[1].header().thread {
            later.push(Warning::SameThread { path: pair[1].path().to_owned(), thread: pair[1].header().thread });
        }
    }
    warnings.append(&mut later);
    Ok(streams)
}

/// How many calls a whole recording has. A flight recorder counts calls that it has dropped.
fn counted_calls(manifest: &ProcessManifest) -> Option<u64> {
    (manifest.complete && manifest.flight_recorder_bytes.is_none()).then_some(manifest.event_count)
}

/// Calls that are there and that the manifest counts, where some of a whole recording are missing.
fn missing_calls(manifest: &ProcessManifest, streams: &[StreamFile]) -> Option<(u64, u64)> {
    let expected = counted_calls(manifest)?;
    let calls = |stream: &StreamFile| stream.records().filter(|record| record.api() < marker::FIRST).count() as u64;
    let found = streams.iter().map(calls).sum();
    (found < expected).then_some((found, expected))
}
