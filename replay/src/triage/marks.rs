//! How far each stream has come: an event recorded behind each enqueue, asked for only when the watchdog fires.
//!
//! A mark is an instruction of its own behind the enqueue it stands for. A stream's events are used again once they are
//! complete, so a stream has as many as it ever had operations in flight, up to a bound.
//!
//! An event behind each of many short kernels keeps the device from running them back to back. So marks are *paced* unless
//! asked otherwise: a stream that gets few operations has each marked, one that gets many has a mark now and then, and of
//! the operations between two marks it is only known that one of them is the first that is not complete.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use hrr_format::catalogue::Api;

use crate::instruction::NOT_READY;
use crate::machine::runtime::Runtime;
use crate::plan::order::dependency::StreamKey;
use crate::thunk::{Outcome, THUNKS, Thunk};

/// Most events of one stream; operations enqueued while all are in flight have no mark of their own.
const EVENTS_PER_STREAM: usize = 4096;
/// Most operations of one stream that are kept in mind.
const OPERATIONS_PER_STREAM: usize = 1 << 16;
/// Paced marks of one stream: so many at once, one more each time the interval has passed, and one in any case behind so
/// many operations. On a device where an event behind each kernel costs an eighth, one in 32 costs a two-hundredth.
const BURST: u32 = 64;
const INTERVAL: Duration = Duration::from_millis(2);
pub(crate) const STRIDE: usize = 32;
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
    take_last_error: Function,
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

/// Which operations the watchdog marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MarkPolicy {
    /// Each, on streams that get few.
    #[default]
    Paced,
    /// Each.
    All,
}

/// The marks of all streams.
#[derive(Debug)]
pub(crate) struct Marks {
    functions: Functions,
    policy: MarkPolicy,
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
    policy: MarkPolicy,
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
    /// Operations at the end that were not kept in mind.
    forgotten: u64,
    /// When the next mark is due, if none is saved up; see [`coarse_now`].
    due: Option<Duration>,
    /// Operations since the last mark.
    since: usize,
    /// Why there can be no marks.
    failure: Option<i32>,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    /// HIP event behind the operation; `None` where the next one that has one stands for it.
    handle: Option<u64>,
    /// Event number of the operation in the archive.
    operation: u64,
}

impl State {
    /// Whether a paced mark may be made now.
    fn is_due(&mut self) -> bool {
        let now = coarse_now();
        let due = self.due.map_or(now, |due| due.max(now));
        self.since += 1;
        if due.saturating_sub(now) > INTERVAL * (BURST - 1) && self.since < STRIDE {
            return false;
        }
        self.since = 0;
        self.due = Some(due.min(now + INTERVAL * BURST) + INTERVAL);
        true
    }
}

/// The system's time to a few milliseconds, from some moment on: marks are paced with no more, and every operation asks.
fn coarse_now() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the address is that of a timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut time) };
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// How far a stream has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamProgress {
    /// The last operation that is complete.
    pub(crate) completed: Option<u64>,
    /// Operations that are not, in the order they were enqueued.
    pub(crate) pending: Vec<u64>,
    /// How many of these, at the front, may be the first that is not.
    pub(crate) candidates: usize,
    /// Operations behind them that were not kept in mind.
    pub(crate) forgotten: u64,
    /// What the runtime answered instead of telling.
    pub(crate) failure: Option<i32>,
    /// A runner is in the middle of an enqueue on the stream.
    pub(crate) busy: bool,
}

impl Marks {
    /// No marks yet; `None` where the runtime has no events.
    pub(crate) fn new(runtime: &Runtime, policy: MarkPolicy) -> Option<Self> {
        let functions = Functions {
            create: Function::of(runtime, "hipEventCreateWithFlags")?,
            record: Function::of(runtime, "hipEventRecord")?,
            query: Function::of(runtime, "hipEventQuery")?,
            take_last_error: Function::of(runtime, "hipGetLastError")?,
        };
        Some(Marks { functions, policy, streams: Mutex::default() })
    }

    /// The marks of a stream.
    pub(crate) fn stream(&self, key: StreamKey, recorded: u64) -> Arc<StreamMarks> {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        // The streams in use are the ones that came last.
        if let Some(known) = streams.iter().rev().find(|known| known.key == key) {
            return Arc::clone(known);
        }
        let marks = Arc::new(StreamMarks {
            key,
            recorded,
            functions: self.functions,
            policy: self.policy,
            state: Mutex::default(),
        });
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

    /// Keeps in mind what was last enqueued on `stream`, the operation of event number `operation`, and records a mark
    /// behind it if one is due.
    fn mark(&self, stream: u64, operation: u64) {
        let mut state = self.lock();
        if state.pending.len() >= OPERATIONS_PER_STREAM {
            let _ = self.retire(&mut state);
        }
        if state.failure.is_some() || state.pending.len() >= OPERATIONS_PER_STREAM {
            state.forgotten += 1;
            return;
        }
        let handle = if self.policy == MarkPolicy::All || state.is_due() { self.event(&mut state) } else { None };
        if let Some(handle) = handle {
            // SAFETY: an event made by `event` and the stream that the call before was made with; no pointers.
            let code = unsafe { self.functions.record.call(&[handle, stream]) };
            if code != 0 {
                self.failed(&mut state, code);
                return;
            }
            state.forgotten = 0;
        }
        state.pending.push_back(Mark { handle, operation });
    }

    /// An event that is not in use, if there may be one.
    fn event(&self, state: &mut State) -> Option<u64> {
        if state.free.is_empty() {
            // Its failure will come out where it belongs, at a call of the program.
            let _ = self.retire(state);
        }
        if let Some(handle) = state.free.pop() {
            return Some(handle);
        }
        if state.created == EVENTS_PER_STREAM {
            return None;
        }
        let mut handle = 0u64;
        // SAFETY: the first argument points to a handle that outlives the call.
        match unsafe { self.functions.create.call(&[&raw mut handle as u64, DISABLE_TIMING]) } {
            0 => {
                state.created += 1;
                Some(handle)
            }
            code => {
                self.failed(state, code);
                None
            }
        }
    }

    /// There are no marks on the stream from now on. What failed was no call of the program, which must not find it as its
    /// last error.
    fn failed(&self, state: &mut State, code: i32) {
        state.failure = Some(code);
        // SAFETY: the call takes no arguments.
        unsafe { self.functions.take_last_error.call(&[]) };
    }

    /// Takes out what is complete.
    fn retire(&self, state: &mut State) -> Result<(), i32> {
        while let Some(at) = state.pending.iter().position(|mark| mark.handle.is_some()) {
            let handle = state.pending[at].handle.unwrap_or_default();
            // SAFETY: an event of ours; no pointers.
            match unsafe { self.functions.query.call(&[handle]) } {
                0 => {
                    state.completed = Some(state.pending[at].operation);
                    state.free.push(handle);
                    state.pending.drain(..=at);
                }
                NOT_READY => break,
                code => {
                    self.failed(state, code);
                    return Err(code);
                }
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
            candidates: match state.pending.iter().position(|mark| mark.handle.is_some()) {
                Some(at) => at + 1,
                None => state.pending.len(),
            },
            forgotten: state.forgotten,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paced_marks_come_in_a_burst_and_then_as_time_passes() {
        let mut state = State::default();
        let burst = (0..2 * BURST).take_while(|_| state.is_due()).count();
        // A loaded machine may take long enough over it for a few more.
        assert!(burst >= BURST as usize, "{burst} at once");
        let far = Duration::from_secs(3600);
        (state.due, state.since) = (Some(coarse_now() + far), 0);
        assert_eq!((1..).find(|_| state.is_due()), Some(STRIDE), "none is saved up, so one behind so many operations");
        state.due = Some(coarse_now() + INTERVAL * BURST);
        // Longer than the steps of any system's coarse time.
        std::thread::sleep(INTERVAL + Duration::from_millis(12));
        assert!(state.is_due(), "time has passed");
    }
}
