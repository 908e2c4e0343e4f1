//! How far each stream has come: an event recorded behind each enqueue, asked for only when the watchdog fires.
//!
//! A mark is an instruction of its own behind the enqueue it stands for. A stream's events are used again once they are
//! complete, so a stream has as many as it ever had operations in flight, up to a bound.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use hrr_format::catalogue::Api;

use crate::instruction::NOT_READY;
use crate::plan::dependency::StreamKey;
use crate::runtime::Runtime;
use crate::thunk::{Outcome, THUNKS, Thunk};

/// Most events of one stream; operations enqueued while all are in flight have no mark of their own.
const EVENTS_PER_STREAM: usize = 4096;
/// `hipEventDisableTiming`.
const DISABLE_TIMING: u64 = 2;
/// How long the examination waits for a runner that is in the middle of a mark.
const PATIENCE: Duration = Duration::from_millis(20);

/// Entry points that marks need.
#[derive(Clone, Copy, Debug)]
struct Functions {
    create: Function,
    record: Function,
    query: Function,
}

#[derive(Clone, Copy, Debug)]
struct Function {
    thunk: Thunk,
    address: *const c_void,
}

// SAFETY: addresses of code in a library that stays loaded; HIP calls may be made on any thread.
unsafe impl Send for Functions {}
// SAFETY: as above.
unsafe impl Sync for Functions {}

impl Function {
    fn of(runtime: &Runtime, name: &str) -> Option<Self> {
        let api = Api::by_name(name)?;
        Some(Function { thunk: THUNKS[usize::from(api.id)], address: runtime.entry_point(api)? })
    }

    /// Calls the entry point.
    ///
    /// # Safety
    /// The words are what it takes, and pointers among them satisfy what it demands.
    unsafe fn call(self, words: &[u64]) -> i32 {
        // SAFETY: the thunk is that of the entry point; the caller vouches for the words.
        unsafe { (self.thunk)(self.address, words.as_ptr()) }.code
    }
}

/// The marks of all streams.
#[derive(Debug)]
pub(crate) struct Marks {
    functions: Functions,
    streams: Mutex<Vec<Arc<StreamMarks>>>,
}

/// The marks of one stream.
#[derive(Debug)]
pub(crate) struct StreamMarks {
    /// The stream, as the plan tells it apart.
    pub(crate) key: StreamKey,
    /// The handle the program knew it by; 0 = the legacy default stream.
    pub(crate) recorded: u64,
    functions: Functions,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Operations not known to be complete, in the order they were enqueued.
    pending: VecDeque<Mark>,
    free: Vec<u64>,
    created: usize,
    /// The last operation known to be complete.
    completed: Option<u64>,
    /// Operations enqueued since the last mark, for want of an event.
    unmarked: u64,
    /// Why there can be no marks.
    failure: Option<i32>,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    /// HIP event.
    handle: u64,
    /// Event number of the operation in the archive.
    operation: u64,
}

/// How far a stream has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamProgress {
    /// The last operation that is complete.
    pub(crate) completed: Option<u64>,
    /// Operations that are not, in the order they were enqueued.
    pub(crate) pending: Vec<u64>,
    /// Operations behind them that have no mark.
    pub(crate) unmarked: u64,
    /// What the runtime answered instead of telling.
    pub(crate) failure: Option<i32>,
    /// A runner is in the middle of an enqueue on the stream.
    pub(crate) busy: bool,
}

impl Marks {
    /// No marks yet; `None` where the runtime has no events.
    pub(crate) fn new(runtime: &Runtime) -> Option<Self> {
        let functions = Functions {
            create: Function::of(runtime, "hipEventCreateWithFlags")?,
            record: Function::of(runtime, "hipEventRecord")?,
            query: Function::of(runtime, "hipEventQuery")?,
        };
        Some(Marks { functions, streams: Mutex::default() })
    }

    /// The marks of a stream.
    pub(crate) fn stream(&self, key: StreamKey, recorded: u64) -> Arc<StreamMarks> {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        // The streams in use are the ones that came last.
        if let Some(known) = streams.iter().rev().find(|known| known.key == key) {
            return Arc::clone(known);
        }
        let marks = Arc::new(StreamMarks { key, recorded, functions: self.functions, state: Mutex::default() });
        streams.push(Arc::clone(&marks));
        marks
    }

    /// All streams that work was planned for.
    pub(crate) fn all(&self) -> Vec<Arc<StreamMarks>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl StreamMarks {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a mark behind what was last enqueued on `stream`, the operation of event number `operation`.
    fn mark(&self, stream: u64, operation: u64) {
        let mut state = self.lock();
        if state.failure.is_some() {
            state.unmarked += 1;
            return;
        }
        if state.free.is_empty() {
            // Its failure will come out where it belongs, at a call of the program.
            let _ = self.retire(&mut state);
        }
        let handle = match state.free.pop() {
            Some(handle) => handle,
            None if state.created < EVENTS_PER_STREAM => {
                let mut handle = 0u64;
                // SAFETY: the first argument points to a handle that outlives the call.
                let code = unsafe { self.functions.create.call(&[&raw mut handle as u64, DISABLE_TIMING]) };
                if code != 0 {
                    state.failure = Some(code);
                    return;
                }
                state.created += 1;
                handle
            }
            None => {
                state.unmarked += 1;
                return;
            }
        };
        // SAFETY: an event made above and the stream that the call before was made with; no pointers.
        let code = unsafe { self.functions.record.call(&[handle, stream]) };
        if code == 0 {
            state.unmarked = 0;
            state.pending.push_back(Mark { handle, operation });
        } else {
            state.failure = Some(code);
        }
    }

    /// Takes out what is complete.
    fn retire(&self, state: &mut State) -> Result<(), i32> {
        while let Some(&Mark { handle, operation }) = state.pending.front() {
            // SAFETY: an event of ours; no pointers.
            match unsafe { self.functions.query.call(&[handle]) } {
                0 => {
                    state.completed = Some(operation);
                    state.free.push(handle);
                    state.pending.pop_front();
                }
                NOT_READY => break,
                code => return Err(code),
            }
        }
        Ok(())
    }

    /// How far the stream has come. Asks the runtime, which may never answer.
    pub(crate) fn examine(&self) -> StreamProgress {
        let begun = Instant::now();
        let mut state = loop {
            match self.state.try_lock() {
                Ok(state) => break state,
                Err(TryLockError::Poisoned(poisoned)) => break poisoned.into_inner(),
                Err(TryLockError::WouldBlock) if begun.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(TryLockError::WouldBlock) => return StreamProgress { busy: true, ..StreamProgress::default() },
            }
        };
        let asked = self.retire(&mut state);
        StreamProgress {
            completed: state.completed,
            pending: state.pending.iter().map(|mark| mark.operation).collect(),
            unmarked: state.unmarked,
            failure: asked.err().or(state.failure),
            busy: false,
        }
    }
}

/// Words of a mark: whose marks, where the live stream handle lies (null = the word behind holds it), the handle, the
/// operation's event number.
pub(crate) const MARK_WORDS: usize = 4;

/// The instruction that records a mark. Its outcome is always success: a mark that fails must not fail the replay.
///
/// # Safety
/// [`MARK_WORDS`] words: a [`StreamMarks`] that outlives the call, and null or a readable word.
pub(crate) unsafe fn mark_thunk(_: *const c_void, words: *const u64) -> Outcome {
    // SAFETY: the planner lays out four words; the marks are kept by `Marks`, which outlives all runners.
    let (marks, cell, value, operation) = unsafe {
        (
            &*(words.read() as *const StreamMarks),
            words.add(1).read() as *const u64,
            words.add(2).read(),
            words.add(3).read(),
        )
    };
    // SAFETY: where it is not null, the cell is an argument word of the call before, in the memory of the same chunk.
    let stream = if cell.is_null() { value } else { unsafe { cell.read() } };
    marks.mark(stream, operation);
    Outcome { code: 0, raw: 0 }
}
