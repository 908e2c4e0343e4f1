//! One process's recording: whether there is one, and its parts.
//!
//! The state is one leaked allocation behind a pointer. A forked child drops the pointer and begins anew at its first
//! call, in its own directory: locks that other threads of the parent held at the fork are left behind with it.
//!
//! * [`begin`]: where the environment asks for it, at the first call
//! * [`thread_streams`]: the stream of each thread
//! * [`quiet`]: waiting for threads that are inside a call
//! * [`fork`]: what a child forgets
//! * [`end`]: with the process, or before it

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::clock::Origin;
use crate::config::Config;
use crate::contents::allocations::Allocations;
use crate::contents::blob_writer::BlobWriter;
use crate::contents::graph_copies::GraphCopies;
use crate::contents::host_memory::HostMemory;
use crate::contents::pending_results::PendingResults;
use crate::description::Description;
use crate::guest::alive::Alive;
use crate::kernels::Kernels;
use crate::manifest::Written;
use crate::ring::Rings;
use crate::window::Windows;
use crate::writer::{Background, ThreadStream};

mod begin;
mod end;
mod fork;
mod quiet;
mod thread_streams;

pub(crate) use begin::{look_early, recording};
pub(crate) use end::{finish, memory_ran_out, stop};
pub(crate) use quiet::await_idle;

/// Values of [`GATE`]. From [`gate::OFF`] on, calls pass unrecorded. Both of [`gate::RECORDING`] and [`gate::WINDOWED`] are
/// a recording under way.
mod gate {
    /// Nobody has looked at the environment yet.
    pub(super) const UNKNOWN: u8 = 0;
    /// Calls are recorded.
    pub(super) const RECORDING: u8 = 1;
    /// Calls are recorded while a window is open.
    pub(super) const WINDOWED: u8 = 2;
    /// The environment asks for nothing.
    pub(super) const OFF: u8 = 3;
    /// Recording has ended.
    pub(super) const STOPPED: u8 = 4;
    /// Recording ends with the process: what is still to be written is written.
    pub(super) const ENDING: u8 = 5;
}

static GATE: AtomicU8 = AtomicU8::new(gate::UNKNOWN);
static PROCESS: AtomicPtr<Process> = AtomicPtr::new(std::ptr::null_mut());
/// A thread is setting the process up.
static STARTING: AtomicBool = AtomicBool::new(false);
/// This process is a fork of one that recorded: its notice was given.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Whether calls pass unrecorded.
#[inline(always)]
pub(crate) fn passes() -> bool {
    // Relaxed: what a recorded call needs is loaded with acquire; a stale value only shifts the first recorded call.
    GATE.load(Ordering::Relaxed) >= gate::OFF
}

/// Whether all calls are recorded.
#[inline(always)]
pub(crate) fn is_recording() -> bool {
    // Acquire: pairs with the release in `start`; the plans, the clock and the process are then there.
    GATE.load(Ordering::Acquire) == gate::RECORDING
}

/// Whether a recording is under way, of all calls or of those in windows.
pub(crate) fn is_under_way() -> bool {
    // Acquire: as in `is_recording`.
    matches!(GATE.load(Ordering::Acquire), gate::RECORDING | gate::WINDOWED)
}

/// The windows of a recording that is under way; `None` where all calls are recorded, or none.
pub(crate) fn windows() -> Option<(&'static Process, &'static Windows)> {
    // Acquire: as in `is_recording`.
    if GATE.load(Ordering::Acquire) != gate::WINDOWED {
        return None;
    }
    let process = current();
    Some((process, process.windows.as_ref()?))
}

/// The recording of this process.
#[derive(Debug)]
pub(crate) struct Process {
    config: Config,
    dir: PathBuf,
    pid: u32,
    parent_pid: u32,
    origin: Origin,
    /// The command line as the recording began: a process may write over it, or leave `/proc` behind.
    command: Vec<String>,
    background: Background,
    streams: Mutex<Vec<Arc<ThreadStream>>>,
    threads: AtomicU32,
    closed_events: AtomicU64,
    /// Calls whose arguments could not be sized.
    unsized_launches: AtomicU64,
    /// What was written of the manifest; held while it is.
    manifest: Mutex<Written>,
    alive: Alive,
    /// The stores of contents; `None` where contents are withheld.
    blobs: Option<BlobWriter>,
    kernels: Kernels,
    allocations: Allocations,
    pending: PendingResults,
    graphs: GraphCopies,
    /// Memory that devices use directly; `None` where its contents are not recorded.
    host_memory: Option<HostMemory>,
    description: Description,
    windows: Option<Windows>,
    rings: Option<Rings>,
    /// Threads whose stream files were taken away: they had made no call in a window, or their rings' room was needed.
    threads_gone: AtomicU32,
    /// Longest record in bytes.
    longest_record_bytes: usize,
    /// Why the recording ended before the process.
    stopped: OnceLock<String>,
}

impl Process {
    /// How this process is recorded.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Directory of the process archive.
    pub(crate) fn dir(&self) -> &std::path::Path {
        &self.dir
    }

    /// Process id, and that of the parent.
    pub(crate) fn ids(&self) -> (u32, u32) {
        (self.pid, self.parent_pid)
    }

    /// The command line.
    pub(crate) fn command(&self) -> &[String] {
        &self.command
    }

    /// The clock at the start.
    pub(crate) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The thread that prepares segments.
    #[inline(always)]
    pub(crate) fn background(&self) -> &Background {
        &self.background
    }

    /// Threads that were recorded so far.
    pub(crate) fn thread_count(&self) -> u32 {
        self.threads.load(Ordering::Relaxed) - self.threads_gone.load(Ordering::Relaxed)
    }

    /// Whether what variables hold may be asked for later.
    pub(crate) fn restores_variables(&self) -> bool {
        self.windows.is_some() && self.blobs().is_some()
    }

    /// The windows, where only they are recorded, as seen from a call of the runtime that they are of.
    pub(crate) fn windows_here(&self) -> Option<&Windows> {
        self.windows.as_ref().filter(|_| crate::recorder::runtime() == 0)
    }

    /// What the manifest says of windows, where only they are recorded.
    pub(crate) fn windows_for_manifest(&self) -> Option<hrr_format::manifest::Window> {
        self.windows.as_ref().map(Windows::for_manifest)
    }

    /// Calls recorded so far; exact once no thread records.
    pub(crate) fn event_count(&self) -> u64 {
        let open: u64 = self.streams().iter().map(|stream| stream.events()).sum();
        open + self.closed_events.load(Ordering::Relaxed)
    }

    /// Launches whose arguments could not be sized.
    pub(crate) fn unsized_launches(&self) -> &AtomicU64 {
        &self.unsized_launches
    }

    /// Memory that devices use directly; `None` where its contents are not recorded.
    #[inline(always)]
    pub(crate) fn host_memory(&self) -> Option<&HostMemory> {
        self.host_memory.as_ref()
    }

    /// Why the recording ended before the process, where it did.
    pub(crate) fn stopped(&self) -> Option<&str> {
        self.stopped.get().map(String::as_str)
    }

    /// The stores of contents; `None` where contents are withheld. Whoever would hash, copy or keep contents asks here.
    #[inline(always)]
    pub(crate) fn blobs(&self) -> Option<&BlobWriter> {
        self.blobs.as_ref()
    }

    /// The kernels the program has.
    #[inline(always)]
    pub(crate) fn kernels(&self) -> &Kernels {
        &self.kernels
    }

    /// Whose memory an address is.
    pub(crate) fn allocations(&self) -> &Allocations {
        &self.allocations
    }

    /// Results that the program cannot have seen yet.
    pub(crate) fn pending(&self) -> &PendingResults {
        &self.pending
    }

    /// Host memory that graphs touch when they are launched.
    pub(crate) fn graphs(&self) -> &GraphCopies {
        &self.graphs
    }

    /// Its sign of life.
    pub(crate) fn alive(&self) -> &Alive {
        &self.alive
    }

    /// The runtime and its devices.
    pub(crate) fn description(&self) -> &Description {
        &self.description
    }

    /// What was written of the manifest; held while it is.
    pub(crate) fn manifest_lock(&self) -> MutexGuard<'_, Written> {
        self.manifest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn streams(&self) -> MutexGuard<'_, Vec<Arc<ThreadStream>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Longest record in bytes that is written.
    #[inline(always)]
    pub(crate) fn longest_record_bytes(&self) -> usize {
        self.longest_record_bytes
    }
}

/// The recording, after [`is_recording`] has been seen.
#[inline(always)]
pub(crate) fn current() -> &'static Process {
    // SAFETY: the gate opens after the pointer was stored, and what it points to is never freed. A forked child cannot get
    // here with the null of its reset: its gate is reset with it.
    unsafe { &*PROCESS.load(Ordering::Acquire) }
}
