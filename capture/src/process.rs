//! One process's recording: when it begins, what happens at a fork, and how it ends.
//!
//! The state is one leaked allocation behind a pointer. A forked child drops the pointer and begins anew at its first
//! call, in its own directory: locks that other threads of the parent held at the fork are left behind with it.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hrr_format::archive::{EVENTS_DIR, PROCESS_PREFIX, stream_path};
use hrr_format::blob_store::{BLOBS_DIR, CODE_OBJECTS_DIR};
use hrr_format::record::MAX_RECORD_BYTES;
use hrr_format::stream_file::{ContentsMode, StreamHeader};

use crate::clock::{self, Origin};
use crate::config::{self, Config, Request};
use crate::contents::allocations::Allocations;
use crate::contents::blob_writer::BlobWriter;
use crate::contents::graph_copies::{self, GraphCopies};
use crate::contents::host_memory::{self, HostMemory};
use crate::contents::pending_results::{self, PendingResults};
use crate::description::Description;
use crate::errno::KeepErrno;
use crate::kernels::Kernels;
use crate::ring::Rings;
use crate::window::{self, Windows};
use crate::writer::{Background, StreamIdentity, ThreadStream};
use crate::{files, journal, manifest, notice, plan, recorder};

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
/// The thread-exit key plus one; zero before it exists.
static EXIT_KEY: AtomicU32 = AtomicU32::new(0);
static FORK_HANDLER: AtomicBool = AtomicBool::new(false);

/// Directories tried where one with this process id exists (after `exec`, or from an earlier process).
const MAX_DIRECTORIES: u32 = 1000;

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
    background: Background,
    streams: Mutex<Vec<Arc<ThreadStream>>>,
    threads: AtomicU32,
    closed_events: AtomicU64,
    /// Calls whose arguments could not be sized.
    unsized_launches: AtomicU64,
    /// Whether the last manifest has been written; held while one is.
    manifest: Mutex<bool>,
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

    /// The runtime and its devices.
    pub(crate) fn description(&self) -> &Description {
        &self.description
    }

    /// Whether the last manifest has been written; held while one is.
    pub(crate) fn manifest_lock(&self) -> MutexGuard<'_, bool> {
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

    fn identity(&self, name: String, ring_part_bytes: u32) -> StreamIdentity {
        // Relaxed: numbers only have to differ.
        let thread = self.threads.fetch_add(1, Ordering::Relaxed);
        let header = StreamHeader {
            contents: self.config.contents,
            thread,
            tid: thread_id(),
            pid: u64::from(self.pid),
            open_tick: clock::tick(),
            used_bytes: 0,
            name,
            ring_part_bytes,
        };
        StreamIdentity { path: stream_path(&self.dir, thread), header }
    }

    /// Opens a stream of capture's own.
    ///
    /// # Errors
    /// Why its file cannot be made.
    pub(crate) fn open_side_stream(&self, name: &str) -> io::Result<Arc<ThreadStream>> {
        ThreadStream::create(&self.identity(name.to_owned(), 0)).map(Arc::new)
    }

    /// Closes a stream of capture's own.
    ///
    /// # Errors
    /// As [`ThreadStream::close`].
    pub(crate) fn close_side_stream(&self, stream: &ThreadStream) -> io::Result<()> {
        self.closed_events.fetch_add(stream.events(), Ordering::Relaxed);
        // SAFETY: the caller is its only writer.
        unsafe { self.close_stream(stream) }
    }

    /// Opens the calling thread's stream; the thread holds a count on what is returned.
    pub(crate) fn open_stream(&self) -> Option<*const ThreadStream> {
        let mut ring_part_bytes = 0;
        if let Some(rings) = &self.rings {
            let Some(room) = rings.take() else {
                static SAID: AtomicBool = AtomicBool::new(false);
                if !SAID.swap(true, Ordering::Relaxed) {
                    notice::line(format_args!(
                        "HIP_HRR_FLIGHT_RECORDER has no room for so many threads; the later ones are not recorded"
                    ));
                }
                return None;
            };
            ring_part_bytes = room.part_bytes;
            self.threads_gone.fetch_add(room.removed, Ordering::Relaxed);
        }
        let identity = self.identity(thread_name(), ring_part_bytes);
        let stream = match ThreadStream::create(&identity) {
            Ok(stream) => Arc::new(stream),
            Err(error) => {
                stop(format_args!("{} cannot be made: {error}", identity.path.display()));
                return None;
            }
        };
        self.streams().push(Arc::clone(&stream));
        let stream = Arc::into_raw(stream);
        if let Some(key) = exit_key() {
            // SAFETY: the key exists. Where the value cannot be stored, the stream is closed at process exit.
            unsafe { libc::pthread_setspecific(key, stream.cast()) };
        }
        Some(stream)
    }

    /// Closes a stream whose owner is gone or records no more.
    ///
    /// # Safety
    /// As [`ThreadStream::close`].
    unsafe fn close_stream(&self, stream: &ThreadStream) -> io::Result<()> {
        // SAFETY: by the caller's contract.
        unsafe { stream.close() }?;
        if let Some(rings) = &self.rings {
            rings.ended(stream.file().path().to_owned(), stream.ring_part_bytes());
        }
        if self.windows.is_some() && stream.events() == 0 {
            // A thread that made calls outside windows only. Where the file cannot be taken away it stays, empty.
            if std::fs::remove_file(stream.file().path()).is_ok() {
                self.threads_gone.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

/// The recording, after [`is_recording`] has been seen.
#[inline(always)]
pub(crate) fn current() -> &'static Process {
    // SAFETY: the gate opens after the pointer was stored, and what it points to is never freed. A forked child cannot get
    // here with the null of its reset: its gate is reset with it.
    unsafe { &*PROCESS.load(Ordering::Acquire) }
}

/// The recording, begun now if the environment asks for it and nobody has begun it.
pub(crate) fn recording() -> Option<&'static Process> {
    loop {
        match GATE.load(Ordering::Acquire) {
            gate::RECORDING | gate::WINDOWED => return Some(current()),
            gate::UNKNOWN => {
                // Acquire: the thread that starts after another failed sees what that one did.
                if STARTING.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    start();
                    STARTING.store(false, Ordering::Release);
                } else {
                    std::thread::yield_now();
                }
            }
            _ => return None,
        }
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
        background: Background::start(),
        streams: Mutex::default(),
        threads: AtomicU32::new(0),
        closed_events: AtomicU64::new(0),
        unsized_launches: AtomicU64::new(0),
        manifest: Mutex::default(),
    };
    let process: &'static Process = Box::leak(Box::new(process));
    manifest::write(process, manifest::Completeness::Begun)
        .map_err(|error| (process.dir.join(hrr_format::manifest::FILE), error))?;
    // Best effort: readers look at the process directories themselves.
    let _ = manifest::write_root(process);
    PROCESS.store(std::ptr::from_ref(process).cast_mut(), Ordering::Release);
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

/// Ends the recording for good, with one line that says why. What was recorded stays readable.
pub(crate) fn stop(reason: fmt::Arguments<'_>) {
    // Relaxed: whoever makes the exchange says the line; the gate itself carries no data when it closes.
    let close = |from| GATE.compare_exchange(from, gate::STOPPED, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    if close(gate::RECORDING) || close(gate::WINDOWED) || close(gate::ENDING) {
        journal::stopped(reason);
        notice::line(format_args!(
            "Capture stopped: {reason}; what was recorded until now stays, and the program runs on"
        ));
    }
}

/// Ends the recording with the process. Called when the library's own destructors run: after `main`, exit handlers and
/// the destructors of everything that was loaded with the program.
pub(crate) fn finish() {
    let _errno = KeepErrno::new();
    let state = GATE.load(Ordering::Acquire);
    if state == gate::UNKNOWN {
        journal::idle();
    }
    if !matches!(state, gate::RECORDING | gate::WINDOWED | gate::STOPPED) {
        return;
    }
    let process = PROCESS.load(Ordering::Acquire);
    if process.is_null() {
        return;
    }
    // SAFETY: the pointer is to the leaked process.
    let process = unsafe { &*process };
    if process.pid != std::process::id() {
        // A child made without fork handlers (by a bare clone): the archive is the parent's.
        return;
    }
    // A recording that was stopped stays so: its line has been said.
    let end = |from| GATE.compare_exchange(from, gate::ENDING, Ordering::SeqCst, Ordering::SeqCst).is_ok();
    let was_stopped = !end(gate::RECORDING) && !end(gate::WINDOWED);
    if let Some(blobs) = process.blobs() {
        blobs.finish();
    }
    let closed = close_idle_streams(process);
    // What could not be written meanwhile has stopped the recording too, however late.
    let stopped = GATE.swap(gate::STOPPED, Ordering::SeqCst) == gate::STOPPED || was_stopped;
    let completeness = match (stopped, closed) {
        (false, Ok(())) => manifest::Completeness::Complete,
        _ => manifest::Completeness::Stopped,
    };
    if let Err(error) = manifest::write(process, completeness) {
        notice::line(format_args!("{}: the manifest could not be written: {error}", process.dir.display()));
    }
    let _ = manifest::write_root(process);
}

/// Closes the streams of threads that are not inside a call.
///
/// A thread that records says that it is busy and then looks at the gate; here the gate is closed and then the threads
/// are looked at. One of the two must see the other's store. The threads do not fence, since they would pay for it at
/// each call: the barrier system call fences all of them once, on their behalf.
fn close_idle_streams(process: &Process) -> io::Result<()> {
    let own = recorder::own_stream();
    let fenced = barrier();
    let streams = process.streams();
    for stream in streams.iter() {
        if stream.is_busy() || !(fenced || std::ptr::eq(Arc::as_ptr(stream), own)) {
            // Its mapping stays, for the record it is in the middle of.
            continue;
        }
        // SAFETY: the gate is closed and the owner was idle after every core had passed a barrier, so it has seen or will
        // see the closed gate before it touches the stream.
        unsafe { process.close_stream(stream) }?;
    }
    Ok(())
}

/// Waits until no thread but the owner of a stream is in a call that it counts as being in; says whether it came to that.
/// New ones must have been held up before: as in [`close_idle_streams`], a barrier makes sure that they see it.
pub(crate) fn await_idle(process: &Process, own: &ThreadStream, patience: Duration) -> bool {
    /// Where threads cannot be fenced, their stores are waited for.
    const SETTLING: Duration = Duration::from_millis(10);
    const PAUSE: Duration = Duration::from_micros(50);
    if !barrier() {
        std::thread::sleep(SETTLING);
    }
    let deadline = Instant::now() + patience;
    loop {
        let busy = |stream: &Arc<ThreadStream>| stream.is_busy() && !std::ptr::eq(Arc::as_ptr(stream), own);
        if !process.streams().iter().any(busy) {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
}

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED` and its registration (linux/membarrier.h).
const BARRIER: libc::c_int = 1 << 3;
const REGISTER_BARRIER: libc::c_int = 1 << 4;

fn register_barrier() {
    // SAFETY: the call takes plain numbers.
    unsafe { libc::syscall(libc::SYS_membarrier, REGISTER_BARRIER, 0, 0) };
}

fn barrier() -> bool {
    // SAFETY: the call takes plain numbers.
    unsafe { libc::syscall(libc::SYS_membarrier, BARRIER, 0, 0) == 0 }
}

fn install_fork_handler() {
    if !FORK_HANDLER.swap(true, Ordering::Relaxed) {
        // SAFETY: the handler may run in a child at any time: it only stores to atomics and to this thread's state.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
}

unsafe extern "C" fn in_child() {
    if GATE.load(Ordering::Relaxed) != gate::OFF {
        FORKED.store(!PROCESS.load(Ordering::Relaxed).is_null(), Ordering::Relaxed);
        GATE.store(gate::UNKNOWN, Ordering::Relaxed);
    }
    PROCESS.store(std::ptr::null_mut(), Ordering::Relaxed);
    STARTING.store(false, Ordering::Relaxed);
    pending_results::forget();
    graph_copies::forget();
    host_memory::forget();
    window::forget();
    // The stream is the parent's: neither the child's calls nor the end of its thread may touch it.
    recorder::forget_stream();
    if let Some(key) = EXIT_KEY.load(Ordering::Relaxed).checked_sub(1) {
        // SAFETY: the key exists.
        unsafe { libc::pthread_setspecific(key, std::ptr::null()) };
    }
}

/// The key whose destructor closes a thread's stream.
fn exit_key() -> Option<libc::pthread_key_t> {
    if let Some(key) = EXIT_KEY.load(Ordering::Acquire).checked_sub(1) {
        return Some(key);
    }
    let mut key: libc::pthread_key_t = 0;
    // SAFETY: `key` is writable, and the destructor has the right prototype.
    if unsafe { libc::pthread_key_create(&mut key, Some(thread_exits)) } != 0 {
        return None;
    }
    match EXIT_KEY.compare_exchange(0, key + 1, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Some(key),
        Err(theirs) => {
            // SAFETY: the key was made just above and nobody else knows it.
            unsafe { libc::pthread_key_delete(key) };
            Some(theirs - 1)
        }
    }
}

/// Closes the stream of a thread that ends. A call that the thread still makes, from a later destructor, opens a new one.
unsafe extern "C" fn thread_exits(stream: *mut libc::c_void) {
    let _errno = KeepErrno::new();
    let _ = std::panic::catch_unwind(|| {
        // SAFETY: the value of the key is the pointer that `open_stream` made from an `Arc`, given up here.
        let stream = unsafe { Arc::from_raw(stream.cast::<ThreadStream>()) };
        recorder::forget_stream();
        let process = PROCESS.load(Ordering::Acquire);
        if process.is_null() {
            return;
        }
        // SAFETY: the pointer is to the leaked process.
        let process = unsafe { &*process };
        // SAFETY: this is the owner, outside any call.
        if let Err(error) = unsafe { process.close_stream(&stream) } {
            stop(format_args!("{} cannot be closed: {error}", stream.file().path().display()));
        }
        let mut streams = process.streams();
        streams.retain(|other| !Arc::ptr_eq(other, &stream));
        process.closed_events.fetch_add(stream.events(), Ordering::Relaxed);
    });
}

fn thread_id() -> u64 {
    // SAFETY: the call has no preconditions.
    let id = unsafe { libc::syscall(libc::SYS_gettid) };
    id as u64
}

fn thread_name() -> String {
    let mut name = [0u8; 16];
    // SAFETY: PR_GET_NAME writes at most 16 bytes, NUL included.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let len = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    String::from_utf8_lossy(&name[..len]).into_owned()
}
