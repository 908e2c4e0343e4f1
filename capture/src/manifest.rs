//! Writing the two manifests.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use hrr_format::archive::PROCESS_PREFIX;
use hrr_format::catalogue::APIS;
use hrr_format::manifest::{
    Clock, FILE, FORMAT, HostSnapshots, ProcessManifest, ROOT_VERSION, RootManifest, RootProcess, StoredNumbers,
    VERSION,
};

use crate::contents::host_memory::Counters;
use crate::files::{self, GuardedFile};
use crate::interception::tables;
use crate::process::{self, Process};
use crate::{clock, config};

/// How far a recording has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completeness {
    /// It goes on.
    Begun,
    /// The process ended and everything was written.
    Complete,
    /// It ended before the process did, or something could not be written.
    Stopped,
}

/// What was written of a process's manifest.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// The last one has been.
    is_last: bool,
    file: Option<GuardedFile>,
}

/// Writes the process manifest.
pub(crate) fn write(process: &Process, completeness: Completeness) -> io::Result<()> {
    let mut written = process.manifest_lock();
    if written.is_last && completeness == Completeness::Begun {
        // A refinement that comes too late.
        return Ok(());
    }
    written.is_last = completeness != Completeness::Begun;
    let (pid, parent_pid) = process.ids();
    let (runtime, devices) = process.description().known();
    let counters = process.host_memory().map(|memory| &memory.counters);
    // Relaxed: counts.
    let count = |of: fn(&Counters) -> &AtomicU64| counters.map_or(0, |counters| of(counters).load(Ordering::Relaxed));
    let manifest = ProcessManifest {
        format: FORMAT.to_owned(),
        version: VERSION,
        pid: u64::from(pid),
        parent_pid: u64::from(parent_pid),
        complete: completeness == Completeness::Complete,
        stopped: process.stopped().map(str::to_owned),
        contents: process.config().contents,
        event_count: if completeness == Completeness::Begun { 0 } else { process.event_count() },
        blob_count: process.blobs().map_or(0, |writer| writer.blobs.numbers()),
        code_object_count: process.blobs().map_or(0, |writer| writer.code_objects.numbers()),
        stored: process
            .blobs()
            .filter(|_| completeness == Completeness::Complete)
            .map(|writer| StoredNumbers { blobs: writer.blobs.stored(), code_objects: writer.code_objects.stored() }),
        kernel_count: u64::from(process.kernels().launched()),
        // A manifest that counts threads promises their files.
        thread_count: if completeness == Completeness::Complete { u64::from(process.thread_count()) } else { 0 },
        clock: Clock {
            kind: clock::kind(),
            ticks_per_second: process.origin().ticks_per_second(),
            tick_at_start: process.origin().tick,
            unix_ns_at_start: process.origin().unix_ns,
            monotonic_ns_at_start: Some(process.origin().monotonic_ns),
        },
        runtime,
        devices,
        command: process.command().to_vec(),
        capture_version: env!("CARGO_PKG_VERSION").to_owned(),
        unsized_launches: process.unsized_launches().load(Ordering::Relaxed),
        host_snapshots: HostSnapshots {
            recorded: counters.is_some(),
            ranges: count(|counters| &counters.ranges),
            unordered: count(|counters| &counters.left_alone),
            too_large: count(|counters| &counters.not_recorded),
        },
        imported: None,
        window: process.windows_for_manifest(),
        flight_recorder_bytes: process.config().flight_recorder_bytes,
        rank: config::rank(),
        apis: APIS.iter().map(|api| api.name.to_owned()).collect(),
    };
    let mut bytes = serde_json::to_vec_pretty(&manifest)?;
    bytes.push(b'\n');
    match (files::replace(&process.dir().join(FILE), &bytes), &written.file) {
        (Ok(file), _) => written.file = Some(file),
        // A process that gave up its rights can make no file any more, and has this one.
        (Err(error), Some(before)) if error.kind() == io::ErrorKind::PermissionDenied => {
            before.write_all_at(&bytes, 0)?;
            before.truncate(bytes.len() as u64)?;
        }
        (Err(error), _) => return Err(error),
    }
    Ok(())
}

/// Writes the process manifest again once the clock's rate is known well, for a process that may be killed.
pub(crate) fn refine() {
    if process::is_under_way() {
        // The one written at start is good enough where this fails.
        let _ = write(process::current(), Completeness::Begun);
    }
}

/// Writes the root manifest: the processes whose directories are there now.
pub(crate) fn write_root(process: &Process) -> io::Result<()> {
    let root = &process.config().root;
    // Of processes that end at the same time, the last one to write must be one that has seen the others' manifests.
    let _lock = files::lock_dir(root);
    let mut processes: Vec<RootProcess> = files::list(root)?
        .into_iter()
        .filter(|name| name.to_string_lossy().starts_with(PROCESS_PREFIX))
        .filter_map(|name| {
            let path = root.join(name).join(FILE);
            ProcessManifest::parse(&path, &files::read(&path).ok()?).ok()
        })
        .map(|manifest| RootProcess {
            pid: manifest.pid,
            parent_pid: manifest.parent_pid,
            complete: manifest.complete,
            event_count: manifest.event_count,
            blob_count: manifest.blob_count,
        })
        .collect();
    processes.sort_by_key(|process| process.pid);
    let path = root.join(FILE);
    let (pid, _) = process.ids();
    let before = files::read(&path).ok().and_then(|bytes| RootManifest::parse(&path, &bytes).ok());
    let owner_pid = before.map_or(u64::from(pid), |manifest| manifest.owner_pid);
    let manifest =
        RootManifest { version: ROOT_VERSION, capture_mode: tables::capture_mode().to_owned(), owner_pid, processes };
    let mut bytes = serde_json::to_vec_pretty(&manifest)?;
    bytes.push(b'\n');
    files::replace(&path, &bytes).map(drop)
}

/// The process's command line.
pub(crate) fn command_line() -> Vec<String> {
    let bytes = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let arguments = bytes.strip_suffix(b"\0").unwrap_or(&bytes);
    arguments.split(|&byte| byte == 0).map(|argument| String::from_utf8_lossy(argument).into_owned()).collect()
}
