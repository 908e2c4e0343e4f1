//! How a recording begins: at the first call, where the environment asks for one.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use hrr_format::archive::{EVENTS_DIR, PROCESS_PREFIX};
use hrr_format::blob_store::{BLOBS_DIR, CODE_OBJECTS_DIR};
use hrr_format::record::MAX_RECORD_BYTES;
use hrr_format::stream_file::ContentsMode;

use super::fork::install_fork_handler;
use super::quiet::register_barrier;
use super::{FORKED, GATE, PROCESS, Process, STARTING, current, gate};
use crate::clock::{self, Origin};
use crate::config::{self, Config, Request};
use crate::contents::allocations::Allocations;
use crate::contents::blob_writer::BlobWriter;
use crate::contents::graph_copies::GraphCopies;
use crate::contents::host_memory::HostMemory;
use crate::contents::pending_results::PendingResults;
use crate::description::Description;
use crate::guest::alive::Alive;
use crate::guest::{notice, threads};
use crate::kernels::Kernels;
use crate::ring::Rings;
use crate::window::Windows;
use crate::writer::Background;
use crate::{files, inherited, journal, manifest, plan};

/// Directories tried where one with this process id exists (after `exec`, or from an earlier process).
const MAX_DIRECTORIES: u32 = 1000;

/// The recording, begun now if the environment asks for it and nobody has begun it.
pub(crate) fn recording() -> Option<&'static Process> {
    loop {
        match GATE.load(Ordering::Acquire) {
            gate::RECORDING | gate::WINDOWED => return Some(current()),
            gate::UNKNOWN => {
                // Acquire: the thread that starts after another failed sees what that one did.
                if STARTING.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    let _starting = Starting;
                    start();
                } else {
                    std::thread::yield_now();
                }
            }
            _ => return None,
        }
    }
}

/// This thread is the one that starts; others wait until the value goes, however that comes about.
struct Starting;

impl Drop for Starting {
    fn drop(&mut self) {
        // Where an internal error kept the gate from being set, nothing is recorded.
        let _ = GATE.compare_exchange(gate::UNKNOWN, gate::OFF, Ordering::Release, Ordering::Relaxed);
        STARTING.store(false, Ordering::Release);
    }
}

/// Looks at the environment when the library is loaded, so that a process that is not recorded pays nothing later.
pub(crate) fn look_early() {
    notice::remember_standard_error();
    match config::request() {
        Request::Off => GATE.store(gate::OFF, Ordering::Relaxed),
        Request::Privileged => {
            notice::line(format_args!("Capture disabled: the process runs with privileges that its caller lacks"));
            GATE.store(gate::OFF, Ordering::Relaxed);
        }
        // Refused at the first call, as everything else that keeps a recording from beginning is.
        Request::Wrong(_) => journal::loaded(),
        Request::Record(config) => {
            journal::loaded();
            // A child may be made while another thread starts the recording: it must not wait for a thread that it has not.
            install_fork_handler();
            threads::remember_start();
            if let Some(trigger) = config.window {
                trigger.arm();
            }
        }
    }
}

fn start() {
    if GATE.load(Ordering::Acquire) != gate::UNKNOWN {
        return;
    }
    let outcome = match config::request() {
        Request::Record(config) => begin(config),
        Request::Off => Ok(None),
        Request::Wrong(reason) => {
            journal::refused(format_args!("{reason}"));
            notice::line(format_args!("Capture disabled: {reason}"));
            Ok(None)
        }
        Request::Privileged => {
            notice::line(format_args!("Capture disabled: the process runs with privileges that its caller lacks"));
            Ok(None)
        }
    };
    match outcome {
        Ok(Some(process)) => {
            journal::recording(&process.dir);
            if !FORKED.load(Ordering::Relaxed) {
                say_recording(process);
                for doubt in &process.config.doubts {
                    notice::line(format_args!("{doubt}"));
                }
            }
            let open = if process.windows.is_some() { gate::WINDOWED } else { gate::RECORDING };
            // Release: a thread that sees the gate open sees the process, the plans and the clock.
            GATE.store(open, Ordering::Release);
            process.background.later(manifest::refine);
        }
        Ok(None) => GATE.store(gate::OFF, Ordering::Release),
        Err((path, error)) => {
            journal::refused(format_args!("{}: {error}", path.display()));
            notice::line(format_args!("Capture disabled: {}: {error}", path.display()));
            GATE.store(gate::OFF, Ordering::Release);
        }
    }
}

fn begin(config: Config) -> Result<Option<&'static Process>, (PathBuf, io::Error)> {
    let pid = std::process::id();
    let root = config.root.clone();
    files::ensure_dir(&root).map_err(|error| (root.clone(), error))?;
    files::hold(&root);
    let dir = new_process_dir(&root, pid)?;
    let events = dir.join(EVENTS_DIR);
    files::create_dir(&events).map_err(|error| (events, error))?;
    clock::choose();
    plan::build();
    install_fork_handler();
    register_barrier();
    let blobs = (config.contents == ContentsMode::Contents)
        .then(|| BlobWriter::start(dir.join(BLOBS_DIR), dir.join(CODE_OBJECTS_DIR)));
    let process = Process {
        kernels: Kernels::new(&dir, blobs.is_none()),
        blobs,
        allocations: Allocations::default(),
        pending: PendingResults::default(),
        graphs: GraphCopies::default(),
        host_memory: config.host_snapshots.map(HostMemory::new),
        description: Description::default(),
        windows: config.window.map(Windows::new),
        rings: config.flight_recorder_bytes.map(Rings::new),
        threads_gone: AtomicU32::new(0),
        longest_record_bytes: config.flight_recorder_bytes.map_or(MAX_RECORD_BYTES, |_| Rings::longest_record_bytes()),
        config,
        dir,
        pid,
        parent_pid: std::os::unix::process::parent_id(),
        origin: Origin::now(),
        command: manifest::command_line(),
        background: Background::start(),
        streams: Mutex::default(),
        threads: AtomicU32::new(0),
        closed_events: AtomicU64::new(0),
        unsized_launches: AtomicU64::new(0),
        manifest: Mutex::default(),
        alive: Alive::default(),
        stopped: OnceLock::new(),
    };
    let process: &'static Process = Box::leak(Box::new(process));
    manifest::write(process, manifest::Completeness::Begun)
        .map_err(|error| (process.dir.join(hrr_format::manifest::FILE), error))?;
    // Best effort: readers look at the process directories themselves.
    let _ = manifest::write_root(process);
    PROCESS.store(std::ptr::from_ref(process).cast_mut(), Ordering::Release);
    // In front of a window the calls that are kept stand, and the parent's are not among them; a ring has no room for them.
    if FORKED.load(Ordering::Relaxed) && process.windows.is_none() && process.rings.is_none() {
        inherited::write(process);
    }
    Ok(Some(process))
}

fn new_process_dir(root: &std::path::Path, pid: u32) -> Result<PathBuf, (PathBuf, io::Error)> {
    let mut dir = root.join(format!("{PROCESS_PREFIX}{pid}"));
    for again in 1.. {
        match files::create_dir(&dir) {
            Ok(()) => break,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && again <= MAX_DIRECTORIES => {
                dir = root.join(format!("{PROCESS_PREFIX}{pid}.{again}"));
            }
            Err(error) => return Err((dir, error)),
        }
    }
    Ok(dir)
}

fn say_recording(process: &Process) {
    let contents = match process.config.contents {
        ContentsMode::Contents => "yes — host buffers, kernel arguments and code objects are recorded",
        ContentsMode::MetadataOnly if process.config.flight_recorder_bytes.is_some() => "no — metadata only",
        ContentsMode::MetadataOnly => "no — metadata only; set HIP_HRR_CAPTURE_CONTENT=1 to record contents",
    };
    let part = match process.config.window {
        Some(trigger) => format!(" in the window {trigger}"),
        None => match process.config.flight_recorder_bytes {
            Some(bytes) => format!(", the last ones in {} KiB,", bytes >> 10),
            None => String::new(),
        },
    };
    notice::line(format_args!(
        "Recording HIP calls of pid {}{part} to {} (contents: {contents})",
        process.pid,
        process.dir.display()
    ));
}
