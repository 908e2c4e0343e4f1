//! An upstream archive, opened: events in order, layouts chosen, stores at hand.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use memmap2::Mmap;

use super::events::{Ending, Event, Events, FileHeader};
use super::hash::ContentHash;
use super::ids::IdMap;
use super::launch::{Kernel, Launch};
use super::layout::{Kind, Layout, Layouts};
use super::manifest::{self, ProcessManifest, WRITER_STATE_FILE, WriterState};
use crate::files;
use crate::regions::Regions;

/// File of events, by which such archives are told.
pub const EVENTS_FILE: &str = "events.bin";
/// Oldest format version whose records are read.
pub const OLDEST_READ: u16 = 5;
/// Newest format version whose layouts are known; newer ones are read where every record agrees with these.
pub const NEWEST_KNOWN: u16 = 8;
/// Disagreements named, at most.
const NAMED: usize = 5;

/// Why an upstream archive cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpstreamError {
    /// The file cannot be read.
    #[error("{} cannot be read: {reason}; look at its owner and mode, or copy the archive again, whole", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        reason: io::Error,
    },
    /// The file is none of upstream's.
    #[error("{} is no event file of AMD's in-tree HRR: {reason}", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The table of layouts that was given cannot be used.
    #[error("{0}; give a table like format/upstream/records.tsv, or unset the variable")]
    Table(String),
    /// The format is too old to be read.
    #[error(
        "{} is of format version {version}; versions before {OLDEST_READ} number the entry points in another order, which is \
         not known here, so its calls cannot be named or replayed (--info shows what can be told)",
        path.display()
    )]
    TooOld {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u16,
    },
    /// The format is newer than what is known, and differs.
    #[error(
        "{} is of format version {version} and this build knows versions up to {NEWEST_KNOWN}: {disagreement}",
        path.display()
    )]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u16,
        /// Which records differ, with both sizes.
        disagreement: String,
    },
    /// The file ends before its recording did.
    #[error(
        "{} is cut short: its manifest says that the recording was seen to its end, and {}; copy it again from where it was \
         recorded, or make it whole as far as it goes with --repair",
        path.display(), found
    )]
    CutShort {
        /// The file.
        path: PathBuf,
        /// What is there.
        found: String,
    },
    /// The native form could not be written.
    #[error("the converted archive {} cannot be written: {reason}; make room there, or set TMPDIR", path.display())]
    Write {
        /// Where.
        path: PathBuf,
        /// The system's reason.
        reason: io::Error,
    },
}

impl UpstreamError {
    /// The process directory whose records are of a version that cannot be read.
    pub fn process(&self) -> Option<&Path> {
        match self {
            UpstreamError::TooOld { path, .. } | UpstreamError::TooNew { path, .. } => path.parent(),
            _ => None,
        }
    }
}

/// Contents of a store.
#[derive(Debug)]
pub enum Stored {
    /// Right.
    Found(Contents),
    /// Withheld by the recorder.
    Withheld,
    /// Not there, empty, or other than its name says; with the reason.
    Unusable(String),
}

/// Bytes of a store.
#[derive(Debug)]
pub struct Contents(Mmap);

impl std::ops::Deref for Contents {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// An opened upstream archive.
#[derive(Debug)]
pub struct UpstreamArchive {
    path: PathBuf,
    bytes: Option<Mmap>,
    header: FileHeader,
    /// Offsets of the records by sequence number.
    order: Vec<usize>,
    ending: Ending,
    ids: IdMap,
    layouts: &'static Layouts,
    manifest: ProcessManifest,
    writer_state: Option<WriterState>,
    regions: Regions,
    /// Files whose contents have the hash that they are named by: a volume is read once for each of its slices.
    checked: Mutex<HashSet<PathBuf>>,
    warnings: Vec<String>,
}

/// Whether a directory is a process archive of upstream's.
pub fn is_upstream(directory: &Path) -> bool {
    directory.join(EVENTS_FILE).is_file()
}

impl UpstreamArchive {
    /// Opens a process directory.
    ///
    /// # Errors
    /// Why its records cannot be read.
    pub fn open(path: &Path) -> Result<Self, UpstreamError> {
        let archive = Self::open_any_version(path)?;
        let events_path = path.join(EVENTS_FILE);
        let version = archive.header.version;
        if version < OLDEST_READ {
            return Err(UpstreamError::TooOld { path: events_path, version });
        }
        if version > NEWEST_KNOWN
            && let Some(disagreement) = archive.disagreement()
        {
            return Err(UpstreamError::TooNew { path: events_path, version, disagreement });
        }
        Ok(archive)
    }

    /// Opens a process directory of any version, if only to see what is in it.
    ///
    /// # Errors
    /// Why it is no upstream archive.
    pub fn open_any_version(path: &Path) -> Result<Self, UpstreamError> {
        let events_path = path.join(EVENTS_FILE);
        let bytes =
            files::map(&events_path).map_err(|reason| UpstreamError::Open { path: events_path.clone(), reason })?;
        let whole = bytes.as_deref().unwrap_or_default();
        let header =
            FileHeader::parse(whole).map_err(|reason| UpstreamError::Header { path: events_path.clone(), reason })?;
        let layouts = Layouts::to_read(header.version).map_err(UpstreamError::Table)?;
        let mut events = Events::new(whole, header.version);
        let mut found: Vec<Event<'_>> = events.by_ref().collect();
        let ending = events.ending().clone();
        let ids = IdMap::resolve(header.version, found.iter(), layouts);
        // Stable: of two records with one number the earlier in the file comes first.
        found.sort_by_key(|event| event.sequence);
        let order = found.iter().map(|event| event.offset_bytes).collect();
        drop(found);
        let mut warnings = Vec::new();
        if let Some((offset, reason)) = &ending.torn {
            warnings.push(format!("{} is cut off at byte {offset}: {reason}", events_path.display()));
        }
        if ending.ignored_bytes > 0 {
            warnings.push(format!(
                "{}: {} bytes follow the trailer and do not count",
                events_path.display(),
                ending.ignored_bytes
            ));
        }
        let read = |file: &str| path.join(file);
        let manifest = match manifest::read(&read(crate::manifest::FILE)) {
            Ok(manifest) => manifest.unwrap_or_default(),
            Err(reason) => {
                warnings.push(reason);
                ProcessManifest::default()
            }
        };
        let writer_state = match manifest::read(&read(WRITER_STATE_FILE)) {
            Ok(state) => state,
            Err(reason) => {
                warnings.push(reason);
                None
            }
        };
        let regions = Regions::read(path);
        Ok(UpstreamArchive {
            path: path.to_owned(),
            bytes,
            header,
            order,
            ending,
            ids,
            layouts,
            manifest,
            writer_state,
            regions,
            checked: Mutex::default(),
            warnings,
        })
    }

    /// The process directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The header of its event file.
    pub fn header(&self) -> FileHeader {
        self.header
    }

    /// How its event file ends.
    pub fn ending(&self) -> &Ending {
        &self.ending
    }

    /// Whether the recording was seen to its end.
    pub fn complete(&self) -> bool {
        self.ending.trailer_events == Some(self.order.len() as u64)
    }

    /// Refuses an event file that ends before its manifest says: what is missing would be left out in silence. One whose process
    /// was killed has a manifest that says so, or none.
    ///
    /// # Errors
    /// What is there of it.
    pub fn expect_whole(&self) -> Result<(), UpstreamError> {
        if !self.manifest.complete || self.complete() {
            return Ok(());
        }
        let path = self.path.join(EVENTS_FILE);
        let records = self.order.len();
        let found = match (self.ending.trailer_events, &self.ending.torn) {
            (Some(counted), _) => format!("its trailer counts {counted} records where {records} are there"),
            (None, Some((offset, reason))) => format!("at byte {offset}, behind {records} records, {reason}"),
            (None, None) => format!("it ends behind {records} records, without a trailer"),
        };
        Err(UpstreamError::CutShort { path, found })
    }

    /// How event ids read.
    pub fn ids(&self) -> &IdMap {
        &self.ids
    }

    /// The manifest; empty where there is none.
    pub fn manifest(&self) -> &ProcessManifest {
        &self.manifest
    }

    /// The state that a running or killed writer left.
    pub fn writer_state(&self) -> Option<&WriterState> {
        self.writer_state.as_ref()
    }

    /// Region sidecars.
    pub fn regions(&self) -> &Regions {
        &self.regions
    }

    /// What is wrong with the archive and does not keep it from being read.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// The records by sequence number.
    pub fn events(&self) -> impl Iterator<Item = Event<'_>> {
        let bytes = self.bytes.as_deref().unwrap_or_default();
        self.order.iter().filter_map(move |&offset| {
            let mut one = Events::at(bytes, self.header.version, offset);
            one.next()
        })
    }

    /// The layout of a record; `None` for an entry point that is not in the table.
    pub fn layout(&self, event: &Event<'_>) -> Option<&'static Layout> {
        self.layouts.get(self.ids.table_id(event.id)?)
    }

    /// The first records that do not agree with the table, in words; `None` where all do.
    fn disagreement(&self) -> Option<String> {
        let mut told: HashMap<(u16, usize), u64> = HashMap::new();
        let mut named = Vec::new();
        for event in self.events() {
            let reason = match self.layout(&event) {
                None => Some(format!("event {} is of no known entry point", event.id)),
                Some(layout) => disagrees(layout, &event),
            };
            let Some(reason) = reason else { continue };
            let seen = told.entry((event.id, event.bytes.len())).or_default();
            *seen += 1;
            if *seen == 1 && named.len() < NAMED {
                named.push(reason);
            }
        }
        if named.is_empty() {
            return None;
        }
        let more = told.len().saturating_sub(named.len());
        let more = if more > 0 { format!(", and {more} more kinds of record") } else { String::new() };
        Some(format!("{}{more}", named.join("; ")))
    }

    /// Host contents.
    pub fn blob(&self, hash: ContentHash) -> Stored {
        let name = hash.to_string();
        self.stored(hash, &self.path.join("blobs").join(&name[..2]).join(format!("{name}.blob")))
    }

    /// A code object.
    pub fn code_object(&self, hash: ContentHash) -> Stored {
        self.stored(hash, &self.path.join("code_objects").join(format!("{hash}.hsaco")))
    }

    /// The hashes in the code object store, sorted.
    pub fn code_object_hashes(&self) -> Vec<ContentHash> {
        let Ok(entries) = fs::read_dir(self.path.join("code_objects")) else { return Vec::new() };
        let mut hashes: Vec<ContentHash> = entries
            .filter_map(|entry| {
                let name = entry.ok()?.file_name().into_string().ok()?;
                let digits = name.strip_suffix(".hsaco")?;
                let (lo, hi) = digits.split_at_checked(16)?;
                let lane = |text: &str| u64::from_str_radix(text, 16).ok().filter(|_| text.len() == 16);
                Some(ContentHash { lo: lane(lo)?, hi: lane(hi)? })
            })
            .collect();
        hashes.sort();
        hashes
    }

    fn stored(&self, hash: ContentHash, path: &Path) -> Stored {
        if hash == ContentHash::WITHHELD {
            return Stored::Withheld;
        }
        match files::map(path) {
            Ok(Some(bytes)) => {
                let checked = || self.checked.lock().unwrap_or_else(PoisonError::into_inner);
                if checked().contains(path) {
                    return Stored::Found(Contents(bytes));
                }
                let found = ContentHash::of(&bytes);
                if found == hash {
                    checked().insert(path.to_owned());
                    Stored::Found(Contents(bytes))
                } else {
                    Stored::Unusable(format!("{} is damaged: the hash of its contents is {found}", path.display()))
                }
            }
            Ok(None) => Stored::Unusable(format!("{} is empty", path.display())),
            Err(error) => Stored::Unusable(format!("{}: {error}", path.display())),
        }
    }
}

/// In which way a record does not agree with the table.
fn disagrees(layout: &Layout, event: &Event<'_>) -> Option<String> {
    let (id, found, known) = (event.id, event.bytes.len(), layout.size_bytes as usize);
    let name = layout.api.name;
    match layout.kind {
        Kind::Fixed => {
            (found != known).then(|| format!("event {id} ({name}) is {found} bytes long where {known} are known"))
        }
        Kind::Launch => Launch::parse(event.slice(super::layout::HEADER_BYTES, found - super::layout::HEADER_BYTES)?)
            .err()
            .map(|reason| format!("event {id} ({name}) is no launch as it is known: {reason}")),
        Kind::Node => match event.bytes.get(known..) {
            None => Some(format!("event {id} ({name}) is {found} bytes long where at least {known} are known")),
            Some(tail) => Kernel::parse_node(tail)
                .err()
                .map(|reason| format!("event {id} ({name}) ends in no kernel as it is known: {reason}")),
        },
    }
}
