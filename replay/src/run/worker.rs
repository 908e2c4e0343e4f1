//! Workers: OS threads that execute sequences of instructions.
//!
//! A *sequence* is what one worker issues: the calls of its captured threads, merged in the order they were entered. It
//! belongs to one OS thread (a *runner*) at a time. Before a call that blocked at capture while another captured thread
//! of the same sequence made calls, the runner hands the sequence to a spare runner and makes the blocking call alone;
//! afterwards it is a spare itself. So at most N runners issue at any time, and a replay cannot deadlock where the
//! program did not.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crossbeam::channel::{Receiver, RecvError, Sender};
use crossbeam::utils::CachePadded;
use hrr_format::catalogue::{APIS, Api};

use super::last_error::LastErrors;
use super::progress::Progress;
use super::spinning::Cores;
use crate::chaos::Chaos;
use crate::instruction::{Chunk, Instruction, NOT_READY, Wait, flag};
use crate::machine::runtime::Runtime;
use crate::plan::lower::bounds::NOWHERE;
use crate::report::meter::{Meter, Metering};
use crate::thunk::{Outcome, THUNKS};

/// The calls of one worker, as the planner delivers them.
#[derive(Debug)]
pub(crate) struct Sequence {
    /// Worker number.
    pub(crate) worker: u32,
    chunks: Receiver<Arc<Chunk>>,
    current: Option<Arc<Chunk>>,
    at: usize,
}

impl Sequence {
    /// The sequence of `worker`, whose chunks arrive through `chunks`.
    pub(crate) fn new(worker: u32, chunks: Receiver<Arc<Chunk>>) -> Self {
        Sequence { worker, chunks, current: None, at: 0 }
    }
}

/// What went wrong with a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// It returned another code than at capture.
    Code {
        /// What it returned now.
        got: i32,
        /// What it returned at capture.
        expected: i32,
    },
    /// It uses memory or a handle that a call which failed in this replay should have made.
    NotMade,
    /// The captured thread's device could not be made current.
    Device {
        /// The device.
        device: i32,
        /// What `hipSetDevice` returned.
        got: i32,
    },
}

/// A call that did not do what it did at capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Event number.
    pub(crate) event: u64,
    /// Captured thread.
    pub(crate) lane: u32,
    /// Catalogue id.
    pub(crate) api: u16,
    /// What went wrong.
    pub(crate) kind: FailureKind,
}

/// What a runner is doing, for the watchdog.
#[derive(Debug, Default)]
pub(crate) struct Board {
    /// Event number + 1 of the current instruction; 0 = idle.
    pub(crate) event: AtomicU64,
    /// Captured thread and catalogue id of the current instruction: `lane << 32 | in_call << 16 | api`.
    pub(crate) what: AtomicU64,
    /// What it waits for, if it has to: `lane << 40 | count`, see [`Board::waits_for`].
    pub(crate) wait: AtomicU64,
    /// Number + 1 of the worker whose sequence it executes; 0 = none, or a call handed off by one.
    pub(crate) worker: AtomicU32,
}

/// Bits of [`Board::wait`] that hold the count.
const WAIT_COUNT_BITS: u32 = 40;

impl Board {
    /// Shows what is waited for. More threads or calls than the bits hold show as others; only people look at it.
    pub(super) fn show_wait(&self, wait: Wait) {
        let count = wait.count & ((1 << WAIT_COUNT_BITS) - 1);
        // Relaxed: the watchdog only samples.
        self.wait.store(u64::from(wait.lane) << WAIT_COUNT_BITS | count, Ordering::Relaxed);
    }

    /// What it last had to wait for.
    pub(crate) fn waits_for(&self) -> Wait {
        // Relaxed: as above.
        let word = self.wait.load(Ordering::Relaxed);
        Wait { lane: (word >> WAIT_COUNT_BITS) as u32, count: word & ((1 << WAIT_COUNT_BITS) - 1) }
    }
}

/// What all runners share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// How far each captured thread has come.
    pub(crate) progress: Progress,
    /// The runtime that executes the calls.
    pub(crate) runtime: Arc<Runtime>,
    /// Whether captured threads share OS threads, so that per-thread HIP state must be kept here.
    pub(crate) multiplexed: bool,
    /// Whether to go on after a failed call.
    pub(crate) continue_on_error: bool,
    /// Last error of each captured thread.
    last_errors: LastErrors,
    /// Failed calls, in the order they failed.
    pub(crate) failures: Mutex<Vec<Failure>>,
    /// Idle runners.
    spares: Mutex<Vec<Sender<Box<Sequence>>>>,
    /// Core of each worker, where workers are pinned.
    cores: Vec<Option<usize>>,
    /// One board per runner ever started.
    pub(crate) boards: Mutex<Vec<Arc<CachePadded<Board>>>>,
    /// Told once per sequence that has ended.
    ended: Sender<u32>,
    chaos: Chaos,
    /// Kernels launched.
    pub(crate) kernels: AtomicU64,
    /// Graphs launched.
    pub(crate) graphs: AtomicU64,
    /// Times a sequence was handed on around a blocking call.
    pub(crate) hand_offs: AtomicU64,
    /// Where measuring runners take down what they measure.
    pub(crate) metering: Option<Arc<Metering>>,
    runners: AtomicUsize,
    /// All runners ever started.
    threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
    me: OnceLock<std::sync::Weak<Shared>>,
}

/// What [`start`] needs to know.
pub(crate) struct Settings {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) lanes: usize,
    /// Workers that issue calls.
    pub(crate) workers: usize,
    pub(crate) multiplexed: bool,
    pub(crate) continue_on_error: bool,
    pub(crate) cores: Vec<Option<usize>>,
    pub(crate) chaos: Chaos,
    pub(crate) metering: Option<Arc<Metering>>,
}

/// Makes the shared state. The receiver yields each worker's number when its sequence has ended.
pub(crate) fn start(settings: Settings) -> (Arc<Shared>, Receiver<u32>) {
    let (ended, on_end) = crossbeam::channel::unbounded();
    let shared = Arc::new(Shared {
        // One more than there are captured threads: the gate in front of what is timed.
        progress: Progress::new(settings.lanes + 1, Cores::of(settings.workers)),
        runtime: settings.runtime,
        multiplexed: settings.multiplexed,
        continue_on_error: settings.continue_on_error,
        last_errors: LastErrors::new(settings.lanes),
        failures: Mutex::new(Vec::new()),
        spares: Mutex::new(Vec::new()),
        cores: settings.cores,
        boards: Mutex::new(Vec::new()),
        ended,
        chaos: settings.chaos,
        kernels: AtomicU64::new(0),
        graphs: AtomicU64::new(0),
        hand_offs: AtomicU64::new(0),
        metering: settings.metering,
        runners: AtomicUsize::new(0),
        threads: Mutex::new(Vec::new()),
        me: OnceLock::new(),
    });
    let _ = shared.me.set(Arc::downgrade(&shared));
    (shared, on_end)
}

impl Shared {
    /// The lane whose progress holds the calls of a range back until the timed section begins.
    pub(crate) fn gate(&self) -> u32 {
        self.last_errors.lanes() as u32
    }

    /// Gives `sequence` to an idle runner, or to a new one where none is idle.
    pub(crate) fn dispatch(&self, sequence: Box<Sequence>) {
        let spare = self.spares.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let sequence = match spare {
            Some(spare) => match spare.send(sequence) {
                Ok(()) => return,
                // The runner is gone (it only ends when the replay does); start another.
                Err(error) => error.into_inner(),
            },
            None => sequence,
        };
        let sender = self.spawn_runner();
        // The receiver lives in the new thread for as long as `Shared` does.
        let _ = sender.send(sequence);
    }

    /// Starts `count` idle runners, so that the first hand-offs need not create threads.
    pub(crate) fn prepare_spares(&self, count: usize) {
        for _ in 0..count {
            let sender = self.spawn_runner();
            self.spares.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
        }
    }

    fn spawn_runner(&self) -> Sender<Box<Sequence>> {
        let (sender, receiver) = crossbeam::channel::bounded(1);
        let shared = self.me.get().and_then(std::sync::Weak::upgrade);
        // Relaxed: only a name.
        let number = self.runners.fetch_add(1, Ordering::Relaxed);
        let body = move || match shared {
            Some(shared) if shared.metering.is_some() => Runner::<true>::new(shared, receiver).run(),
            Some(shared) => Runner::<false>::new(shared, receiver).run(),
            None => {}
        };
        match std::thread::Builder::new().name(format!("hrr-{number}")).spawn(body) {
            Ok(thread) => self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread),
            Err(error) => {
                tracing::error!("cannot start a worker thread: {error}");
                self.progress.stop();
            }
        }
        sender
    }

    /// Records a failure, and stops the replay unless it is to go on.
    #[cold]
    fn fail(&self, failure: Failure) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).push(failure);
        if !self.continue_on_error {
            self.progress.stop();
        }
    }

    /// Ends all runners, which are idle, and waits until what the runtime keeps for their threads is gone too.
    pub(crate) fn end_runners(&self) {
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            while !thread.is_finished() {
                // A runner that has just ended its sequence puts itself among the idle ones.
                self.dismiss();
                std::thread::sleep(std::time::Duration::from_micros(50));
            }
            // It has ended; a panic in it was printed.
            let _ = thread.join();
        }
    }

    /// Ends idle runners.
    pub(crate) fn dismiss(&self) {
        self.spares.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// One OS thread of the replay. The loop is compiled twice, so that what `MEASURING` takes down costs nothing without it.
pub(super) struct Runner<const MEASURING: bool> {
    pub(super) shared: Arc<Shared>,
    sequences: Receiver<Box<Sequence>>,
    pub(super) board: Arc<CachePadded<Board>>,
    /// Number of this OS thread among the replay's.
    pub(super) number: u32,
    /// The device that is current on this OS thread; HIP starts every thread on device 0.
    pub(super) device: i32,
    /// What this runner writes down while it executes.
    pub(super) meter: Box<Meter>,
    /// Whether the sequence at hand has been handed on, and this runner makes a blocking call beside it.
    pub(super) beside: bool,
    chaos: Chaos,
    /// Kernels and graphs launched, not yet added to the shared counts.
    kernels: u64,
    graphs: u64,
}

impl<const MEASURING: bool> Runner<MEASURING> {
    fn new(shared: Arc<Shared>, sequences: Receiver<Box<Sequence>>) -> Self {
        let board = Arc::new(CachePadded::new(Board::default()));
        let mut boards = shared.boards.lock().unwrap_or_else(PoisonError::into_inner);
        boards.push(Arc::clone(&board));
        let number = boards.len() as u32;
        let chaos = shared.chaos.fork(u64::from(number));
        drop(boards);
        Runner {
            shared,
            sequences,
            board,
            number,
            device: 0,
            meter: Box::default(),
            beside: false,
            chaos,
            kernels: 0,
            graphs: 0,
        }
    }

    fn run(mut self) {
        // The spare list holds the only sender of an idle runner's channel: once it is dropped, the wait ends.
        while let Ok(sequence) = self.sequences.recv() {
            if let Some(core) = self.shared.cores.get(sequence.worker as usize).copied().flatten() {
                // Where it cannot be pinned it runs all the same, only less evenly.
                if let Err(error) = crate::machine::topology::bind_current_thread(core) {
                    tracing::debug!("worker {}: {error}", sequence.worker);
                }
            }
            // Relaxed: the watchdog only samples.
            self.board.worker.store(sequence.worker + 1, Ordering::Relaxed);
            if MEASURING {
                self.take_meter(sequence.worker);
            }
            self.execute(sequence);
            if MEASURING {
                self.give_meter();
            }
            self.board.event.store(0, Ordering::Relaxed);
            if self.shared.progress.stopped() {
                return;
            }
            let (sender, receiver) = crossbeam::channel::bounded(1);
            self.sequences = receiver;
            self.shared.spares.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
        }
    }

    /// Executes a sequence to its end, or until it was handed on.
    fn execute(&mut self, mut sequence: Box<Sequence>) {
        loop {
            let chunk = match sequence.current.take() {
                Some(chunk) => chunk,
                None => match self.next_chunk(&sequence) {
                    Ok(chunk) => {
                        sequence.at = 0;
                        chunk
                    }
                    Err(_) => {
                        self.end(&sequence);
                        return;
                    }
                },
            };
            let mut at = sequence.at;
            if MEASURING {
                self.find_note(&chunk, at);
            }
            while let Some(instruction) = chunk.instructions.get(at) {
                at += 1;
                if !self.await_edges(&chunk, instruction, at) {
                    self.end(&sequence);
                    return;
                }
                if instruction.flags & flag::HAND_OFF != 0 {
                    sequence.at = at;
                    sequence.current = Some(Arc::clone(&chunk));
                    self.hand_off(sequence, &chunk, instruction, at);
                    return;
                }
                self.issue(&chunk, instruction, at);
            }
        }
    }

    /// The next chunk of the sequence; an error at its end.
    #[inline(always)]
    fn next_chunk(&mut self, sequence: &Sequence) -> Result<Arc<Chunk>, RecvError> {
        // Relaxed: the watchdog only samples. Waiting for the planner is no wait of this runner's.
        self.board.event.store(0, Ordering::Relaxed);
        if MEASURING { self.next_chunk_measured(&sequence.chunks) } else { sequence.chunks.recv() }
    }

    fn add_counts(&mut self) {
        // Relaxed: read after every runner's end was received through a channel.
        self.shared.kernels.fetch_add(std::mem::take(&mut self.kernels), Ordering::Relaxed);
        self.shared.graphs.fetch_add(std::mem::take(&mut self.graphs), Ordering::Relaxed);
    }

    fn end(&mut self, sequence: &Sequence) {
        self.add_counts();
        if MEASURING {
            self.note_end();
        }
        self.shared.progress.thread_ended();
        let _ = self.shared.ended.send(sequence.worker);
    }

    #[cold]
    fn hand_off(&mut self, sequence: Box<Sequence>, chunk: &Chunk, instruction: &Instruction, at: usize) {
        // Relaxed: a statistic.
        self.shared.hand_offs.fetch_add(1, Ordering::Relaxed);
        self.add_counts();
        self.board.worker.store(0, Ordering::Relaxed);
        self.shared.dispatch(sequence);
        self.beside = true;
        self.issue(chunk, instruction, at);
        self.beside = false;
        self.add_counts();
    }

    /// Waits for everything `instruction` must come after. False if the replay was stopped.
    #[inline(always)]
    fn await_edges(&mut self, chunk: &Chunk, instruction: &Instruction, at: usize) -> bool {
        // Relaxed: the watchdog only samples.
        self.board.what.store(u64::from(instruction.lane) << 32 | u64::from(instruction.api), Ordering::Relaxed);
        self.board.event.store(instruction.event + 1, Ordering::Relaxed);
        if MEASURING {
            if !self.await_edges_measured(chunk, instruction, at) {
                return false;
            }
        } else {
            for wait in instruction.waits.of(&chunk.waits) {
                if self.shared.progress.done(wait.lane) < wait.count {
                    self.board.show_wait(*wait);
                    if !self.shared.progress.wait(wait.lane, wait.count) {
                        return false;
                    }
                }
            }
        }
        if self.chaos.is_on() {
            self.chaos.delay();
        }
        !self.shared.progress.stopped()
    }

    /// Patches, calls, checks, stores what was created, and publishes. `at` is the position behind the instruction's.
    #[inline(always)]
    fn issue(&mut self, chunk: &Chunk, instruction: &Instruction, at: usize) {
        // Relaxed: the watchdog only samples.
        self.board
            .what
            .store(u64::from(instruction.lane) << 32 | 1 << 16 | u64::from(instruction.api), Ordering::Relaxed);
        if instruction.device >= 0 && instruction.device != self.device && !self.switch_device(chunk, instruction) {
            return;
        }
        if self.shared.continue_on_error && self.lacks_something(chunk, instruction) {
            return;
        }
        for fixup in instruction.fixups.of(&chunk.fixups) {
            // SAFETY: the slot table outlives all runners (the plan holds it until they are joined or the process ends).
            let value = unsafe { fixup.slot.load() }.wrapping_add(fixup.addend);
            // SAFETY: the target lies in the chunk's memory, or in staging memory that outlives it, and only the OS thread
            // that holds the sequence touches it.
            unsafe { fixup.target.write_unaligned(value) };
        }
        let measured = if MEASURING { Some(self.begin_call(chunk, instruction, at)) } else { None };
        // SAFETY: the planner paired thunk and entry point, and laid out the words with pointers into memory that lives as
        // long as the chunk, sized by the catalogue.
        let mut outcome = unsafe { (instruction.thunk)(instruction.function, instruction.words) };
        if (outcome.code | instruction.expected != 0) | (instruction.flags & flag::COLD != 0)
            && !self.settle(chunk, instruction, &mut outcome)
        {
            return;
        }
        let measured = measured.map(|measured| self.end_call(measured, instruction.event, outcome));
        // A call that failed made nothing, which its slots say already.
        let as_recorded = outcome.code == instruction.expected;
        let outputs = if as_recorded { instruction.outputs.of(&chunk.outputs) } else { &[] };
        for output in outputs {
            let value = if output.source.is_null() {
                outcome.raw
            } else {
                // SAFETY: the source is the cell in the chunk's memory that the call was given to write to.
                unsafe { output.source.read_unaligned() }
            };
            // SAFETY: as for fixups.
            unsafe { output.slot.store(value) };
        }
        self.kernels += u64::from(as_recorded & (instruction.flags & flag::KERNEL != 0));
        self.graphs += u64::from(as_recorded & (instruction.flags & flag::GRAPH != 0));
        if instruction.progress != 0 {
            self.shared.progress.publish(instruction.lane, instruction.progress);
        }
        if let Some(measured) = measured {
            self.note_call(chunk, instruction, measured);
        }
    }

    /// Whether a call uses what a failed call should have made, so that it is left out and counted as failed: a runtime
    /// might take the address for one of the host's, and no stream at all for the default one.
    fn lacks_something(&self, chunk: &Chunk, instruction: &Instruction) -> bool {
        let mut fixups = instruction.fixups.of(&chunk.fixups).iter();
        // SAFETY: as in `issue`.
        if !fixups.any(|fixup| unsafe { fixup.slot.load() } == NOWHERE) {
            return false;
        }
        self.leave_out(chunk, instruction, FailureKind::NotMade);
        true
    }

    /// Counts a call that cannot be issued as failed. Those that come after it need not wait for it if the replay goes on.
    #[cold]
    fn leave_out(&self, chunk: &Chunk, instruction: &Instruction, kind: FailureKind) {
        self.shared.last_errors.stray(instruction);
        self.fail(chunk, instruction, kind);
        if self.shared.continue_on_error && instruction.progress != 0 {
            self.shared.progress.publish(instruction.lane, instruction.progress);
        }
    }

    /// Counts a call as failed, and marks what it should have made, so that no call uses it if the replay goes on.
    #[cold]
    fn fail(&self, chunk: &Chunk, instruction: &Instruction, kind: FailureKind) {
        let &Instruction { event, lane, api, .. } = instruction;
        for output in instruction.outputs.of(&chunk.outputs) {
            // SAFETY: the slot table outlives all runners, as in `issue`.
            unsafe { output.slot.store(NOWHERE) };
        }
        self.shared.fail(Failure { event, lane, api, kind });
    }

    /// What happens off the straight path: repeated queries, per-thread state kept here, differing outcomes. False if
    /// the call failed and the replay stops.
    #[cold]
    fn settle(&mut self, chunk: &Chunk, instruction: &Instruction, outcome: &mut Outcome) -> bool {
        let flags = instruction.flags;
        if flags & flag::REPEAT_UNTIL_SUCCESS != 0 {
            while outcome.code == NOT_READY && !self.shared.progress.stopped() {
                std::thread::yield_now();
                // SAFETY: as in `issue`.
                *outcome = unsafe { (instruction.thunk)(instruction.function, instruction.words) };
            }
        }
        if flags & flag::NOT_READY_FINE != 0 && outcome.code == 0 {
            outcome.code = NOT_READY;
        }
        if self.shared.multiplexed {
            self.shared.last_errors.keep(instruction, outcome);
        }
        if flags & flag::SETS_DEVICE != 0 && outcome.code == 0 {
            // SAFETY: a device-setting call has at least one argument word.
            self.device = unsafe { instruction.words.read() } as i32;
        }
        if flags & flag::SWITCHES_CONTEXT != 0 && outcome.code == 0 {
            self.ask_device();
        }
        if flags & flag::ANY_OUTCOME == 0 && self.shared.last_errors.counts(instruction, outcome) {
            self.fail(chunk, instruction, FailureKind::Code { got: outcome.code, expected: instruction.expected });
            return self.shared.continue_on_error;
        }
        true
    }

    /// A context was made current or taken away, and runtimes differ in what that does to the device.
    #[cold]
    fn ask_device(&mut self) {
        let Some(api) = Api::by_name("hipGetDevice") else { return };
        let Some(function) = self.shared.runtime.entry_point(api) else { return };
        let mut device = self.device;
        let word = &raw mut device as u64;
        // SAFETY: hipGetDevice takes the address of one int, which is writable.
        let outcome = unsafe { THUNKS[usize::from(api.id)](function, &word) };
        if outcome.code == 0 {
            self.device = device;
        }
    }

    /// Makes the captured thread's device current. False if that failed: the call is left out, on another it means another.
    #[cold]
    fn switch_device(&mut self, chunk: &Chunk, instruction: &Instruction) -> bool {
        let id = set_device_id();
        let Some(function) = self.shared.runtime.entry_point(&APIS[id]) else {
            return true;
        };
        let word = instruction.device as u64;
        // SAFETY: hipSetDevice takes one int by value.
        let outcome = unsafe { THUNKS[id](function, &word) };
        if outcome.code == 0 {
            self.device = instruction.device;
            return true;
        }
        self.leave_out(chunk, instruction, FailureKind::Device { device: instruction.device, got: outcome.code });
        false
    }
}

fn set_device_id() -> usize {
    static ID: OnceLock<usize> = OnceLock::new();
    *ID.get_or_init(|| usize::from(hrr_format::catalogue::Api::by_name("hipSetDevice").map_or(0, |api| api.id)))
}
