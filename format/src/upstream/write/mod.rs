//! A native archive as AMD's in-tree HRR would have written it, format version 8.
//!
//! Upstream's format holds less: what would be lost is counted and named first, and only written around where the caller
//! says so.
//!
//! * [`survey`] for what would be lost
//! * [`contents`] for blobs and code objects
//! * [`fields`] and [`launch`] for records

mod contents;
mod fields;
mod launch;
mod survey;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use super::events::{self, FLAG_PACKED, FileHeader};
use super::hash::ContentHash;
use super::layout::{Extra, Kind, Layout, Layouts, Subject};
use super::translate::{Live, is_loose};
use crate::archive::Archive;
use crate::blob_store::BlobError;
use crate::catalogue::{Api, Returns, Role};
use crate::ordered::merged;
use crate::record::{BlobRef, Record, flag, marker};
use crate::regions;

/// Format version that is written.
pub const VERSION: u16 = 8;
/// Runtime entries of a version 8 file.
const RUNTIME_ENTRIES: u16 = super::ids::OLDEST_RUNTIME_ENTRIES;
/// The id that upstream writes plain launches under.
const LAUNCH: &str = "hipModuleLaunchKernel";

/// What to do where something would be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lossy {
    /// Write nothing.
    Refuse,
    /// Write what can be.
    Accept,
}

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// Something would be lost.
    #[error("{}", Listing(losses))]
    Losses {
        /// What, and how often.
        losses: BTreeMap<String, u64>,
    },
    /// A file could not be written.
    #[error("{}: {reason}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        reason: io::Error,
    },
    /// Contents cannot be read.
    #[error(transparent)]
    Blob(#[from] BlobError),
}

struct Listing<'a>(&'a BTreeMap<String, u64>);

impl std::fmt::Display for Listing<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the in-tree format does not hold all of it; lost would be:")?;
        self.0.iter().try_for_each(|(what, count)| write!(f, "\n  {count} x {what}"))
    }
}

/// What was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Records.
    pub events: u64,
    /// Blobs and code objects.
    pub contents: u64,
    /// What was lost, and how often.
    pub losses: BTreeMap<String, u64>,
}

/// A call with its place in the order of return.
struct Placed<'a> {
    /// When it returned; for one that may be taken to return at once, when it was entered.
    end: u64,
    begin: u64,
    tid: u64,
    thread: usize,
    record: Record<'a>,
}

struct Writer<'a> {
    archive: &'a Archive,
    layouts: &'static Layouts,
    path: PathBuf,
    losses: BTreeMap<String, u64>,
    blobs: HashMap<u64, ContentHash>,
    codes: HashMap<u64, ContentHash>,
    kernels: HashMap<u32, ContentHash>,
    fat_binaries: HashSet<u64>,
    /// Host memory that graphs read, by address: the contents of the first launch.
    graph_reads: HashMap<u64, BlobRef>,
    live: Live,
    modules: u32,
    contents: u64,
    events: Vec<u8>,
    sequence: u64,
}

/// Writes an archive in the in-tree format to a new process directory.
///
/// # Errors
/// [`WriteError`].
pub fn write(archive: &Archive, path: &Path, lossy: Lossy) -> Result<Written, WriteError> {
    let mut writer = Writer {
        archive,
        layouts: Layouts::of_version(VERSION),
        path: path.to_owned(),
        losses: BTreeMap::new(),
        blobs: HashMap::new(),
        codes: HashMap::new(),
        kernels: HashMap::new(),
        fat_binaries: HashSet::new(),
        graph_reads: HashMap::new(),
        live: Live::default(),
        modules: 0,
        contents: 0,
        events: events::file_header_bytes(FileHeader { version: VERSION, flags: FLAG_PACKED }).to_vec(),
        sequence: 0,
    };
    let calls = writer.calls();
    // What would be lost is known before anything is written.
    writer.survey(&calls);
    if !writer.losses.is_empty() && lossy == Lossy::Refuse {
        return Err(WriteError::Losses { losses: writer.losses });
    }
    for call in &calls {
        writer.call(call)?;
    }
    let count = writer.sequence;
    // A file without a trailer is one whose recording was not seen to its end.
    if archive.manifest().complete {
        writer.events.extend(events::trailer_bytes(count, count));
    }
    writer.put(&path.join(super::archive::EVENTS_FILE), &writer.events)?;
    let manifest = writer.manifest(count);
    writer.put(&path.join(crate::manifest::FILE), manifest.as_bytes())?;
    let copied = regions::copy(archive.path(), path);
    copied.map_err(|reason| WriteError::Write { path: path.join(regions::DIR), reason })?;
    Ok(Written { events: count, contents: writer.contents, losses: writer.losses })
}

impl<'a> Writer<'a> {
    fn lose(&mut self, what: impl Into<String>) {
        *self.losses.entry(what.into()).or_default() += 1;
    }

    /// The calls in the order in which they returned: upstream writes a record then.
    fn calls(&mut self) -> Vec<Placed<'a>> {
        let streams = self.archive.streams();
        let mut calls: Vec<Placed<'a>> = Vec::new();
        let mut in_flight = 0u64;
        for ordered in merged(streams) {
            let record = ordered.record;
            if record.api() >= marker::FIRST {
                self.survey_marker(&record);
                continue;
            }
            if record.flags() & flag::ADDED != 0 {
                continue;
            }
            if record.in_flight() {
                in_flight += 1;
                continue;
            }
            let tid = streams[ordered.stream].header().tid;
            let begin = record.begin();
            // A translated one ends where its thread's next call begins, which is not its place in the sequence.
            let is_loose = self.archive.row_of(&record).is_some_and(|api| is_loose(api.name));
            let end = if is_loose { begin } else { record.end() };
            calls.push(Placed { end, begin, tid, thread: ordered.stream, record });
        }
        if in_flight > 0 {
            self.losses.insert("calls that had not returned".to_owned(), in_flight);
        }
        calls.sort_by_key(|call| (call.end, call.begin));
        calls
    }

    fn time_ns(&self, tick: u64) -> u64 {
        let clock = self.archive.manifest().clock;
        // Upstream's times are of CLOCK_MONOTONIC, as are those of what lies beside an archive.
        let otherwise = || clock.ticks_to_ns(clock.tick_at_start).saturating_add(clock.ns_since_start(tick));
        clock.monotonic_ns(tick).unwrap_or_else(otherwise)
    }

    fn emit(&mut self, call: &Placed<'_>, table_id: u16, body: &[u8]) {
        let id = match table_id.checked_sub(super::layout::TABLE_RUNTIME_ENTRIES) {
            Some(compiler) => RUNTIME_ENTRIES + compiler,
            None => table_id,
        };
        let len = (super::layout::HEADER_BYTES + body.len()) as u32;
        let header = events::header_bytes(id, self.sequence, self.time_ns(call.end), call.tid, len);
        self.events.extend(header);
        self.events.extend(body);
        self.sequence += 1;
    }

    fn call(&mut self, call: &Placed<'a>) -> Result<(), WriteError> {
        let record = call.record;
        let Some(api) = self.archive.row_of(&record) else { return Ok(()) };
        if api.ret == Returns::Error && record.ret() != 0 {
            return Ok(());
        }
        if is_launch(api) && api.params.iter().any(|param| matches!(param.role, Role::KernelParams)) {
            return self.launch(call, api);
        }
        let Some((id, layout)) = layout_of(self.layouts, api).filter(|(_, layout)| layout.kind != Kind::Launch) else {
            return Ok(());
        };
        // Named by the survey.
        if (RUNTIME_ENTRIES..super::layout::TABLE_RUNTIME_ENTRIES).contains(&id) {
            return Ok(());
        }
        let mut body = vec![0; layout.size_bytes as usize - super::layout::HEADER_BYTES];
        for field in &layout.fields {
            let value = self.field(&record, api, field.subject, field.size_bytes as usize)?;
            let at = field.offset_bytes as usize - super::layout::HEADER_BYTES;
            let len = value.len().min(field.size_bytes as usize);
            body[at..at + len].copy_from_slice(&value[..len]);
        }
        if layout.kind == Kind::Node {
            body.extend(self.node_kernel(&record)?);
        }
        self.emit(call, id, &body);
        self.live.apply(api, &record, call.thread);
        Ok(())
    }

    fn manifest(&self, events: u64) -> String {
        let native = self.archive.manifest();
        format!(
            "{{\n  \"pid\": {},\n  \"parent_pid\": {},\n  \"complete\": {},\n  \"event_count\": {events},\n  \"blob_count\": {}\n}}\n",
            native.pid, native.parent_pid, native.complete, self.contents
        )
    }
}

/// Whether an entry point launches a kernel, graph nodes apart.
fn is_launch(api: &Api) -> bool {
    api.effect == crate::catalogue::Effect::Enqueue
        && (api.params.iter().any(|param| matches!(param.role, Role::KernelParams | Role::Extra))
            || api.name == "hipLaunchByPtr"
            || api.name.contains("MultiDevice"))
}

fn layout_of(layouts: &'static Layouts, api: &Api) -> Option<(u16, &'static Layout)> {
    layouts.of_api(api)
}

fn has(layout: Option<(u16, &Layout)>, extra: Extra) -> bool {
    layout.is_some_and(|(_, layout)| has_extra(layout, extra))
}

fn has_extra(layout: &Layout, extra: Extra) -> bool {
    layout.field(Subject::Extra(extra)).is_some()
}
