//! Events: a handle that points at the newest mark recorded with it.

use crate::capture;
use crate::error::{HipError, HipResult};
use crate::graph::NodeOp;
use crate::op::Op;
use crate::progress::Progress;
use crate::registry::{Registry, lock};
use crate::stream::Stream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

/// `hipEventBlockingSync`.
pub(crate) const BLOCKING_SYNC: u32 = 1;
/// `hipEventInterprocess`.
pub(crate) const INTERPROCESS: u32 = 4;
/// `hipEventDisableTiming`.
pub(crate) const DISABLE_TIMING: u32 = 2;
/// Every flag `hipEventCreateWithFlags` takes: the two above, interprocess, and the fence and release flags.
const ALL_FLAGS: u32 = 0x7 | 0xE000_0000;

/// One recording of an event: a place in a queue, reached when the queue comes to it.
#[derive(Debug, Default)]
pub(crate) struct EventMark {
    reached_ns: AtomicU64,
    progress: Progress,
}

impl EventMark {
    /// The queue is here: stamps the time and lets waiters go.
    pub(crate) fn reach(&self) {
        // Relaxed: published by the Release in `Progress::publish`.
        self.reached_ns.store(now_ns(), Ordering::Relaxed);
        self.progress.publish(1);
    }

    /// Whether the mark has been reached.
    pub(crate) fn is_reached(&self) -> bool {
        self.progress.reached(1)
    }

    /// Blocks until the mark is reached.
    pub(crate) fn wait(&self) {
        self.progress.wait(1);
    }

    /// When the mark was reached, in ns of [`now_ns`]'s clock; `None` before that.
    fn reached_ns(&self) -> Option<u64> {
        // Relaxed: ordered by the Acquire in `is_reached`.
        self.is_reached().then(|| self.reached_ns.load(Ordering::Relaxed))
    }
}

/// Nanoseconds since the first call, monotonic.
pub(crate) fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    u64::try_from(START.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// What the last record of an event left.
#[derive(Clone, Debug, Default)]
enum State {
    #[default]
    NeverRecorded,
    Recorded(Arc<EventMark>),
    /// Recorded in a capturing stream: not a point in time but a set of graph nodes.
    Captured(capture::Fork),
}

/// An event.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) handle: usize,
    pub(crate) flags: u32,
    pub(crate) device: usize,
    state: Arc<Mutex<State>>,
}

static EVENTS: Registry<Event> = Registry::new();

/// Makes an event. Fails with `hipErrorInvalidValue` on flags that are none.
pub(crate) fn create(device: usize, flags: u32) -> HipResult<usize> {
    if flags & !ALL_FLAGS != 0 {
        return Err(HipError::INVALID_VALUE);
    }
    EVENTS.insert(|handle| Arc::new(Event { handle, flags, device, state: Arc::default() }))
}

/// Makes another handle of an event: what is recorded with one is seen with the other.
pub(crate) fn open(event: &Event) -> HipResult<usize> {
    let (flags, device) = (event.flags, event.device);
    EVENTS.insert(|handle| Arc::new(Event { handle, flags, device, state: Arc::clone(&event.state) }))
}

/// The event a handle stands for. Fails with `hipErrorInvalidHandle`.
pub(crate) fn resolve(handle: usize) -> HipResult<Arc<Event>> {
    EVENTS.get(handle).ok_or(HipError::INVALID_HANDLE)
}

/// Ends the handle's life; waits on its marks go on.
pub(crate) fn destroy(handle: usize) -> HipResult {
    EVENTS.remove(handle).map(drop).ok_or(HipError::INVALID_HANDLE)
}

/// Whether an event call in a capture means the graph's own order or an event outside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Default,
    /// `hipEventRecordExternal`, `hipEventWaitExternal`.
    External,
}

impl Scope {
    /// The scope a flags argument asks for. Fails with `hipErrorInvalidValue`.
    pub(crate) fn from_flags(flags: u32) -> HipResult<Self> {
        match flags {
            0 => Ok(Scope::Default),
            1 => Ok(Scope::External),
            _ => Err(HipError::INVALID_VALUE),
        }
    }
}

impl Event {
    /// Records the event in `stream`; an external record in a capture becomes a node of the graph.
    pub(crate) fn record(self: &Arc<Self>, stream: &Arc<Stream>, scope: Scope) -> HipResult {
        // Acquire: pairs with the Release of the call that began the capture.
        if stream.capturing.load(Ordering::Acquire) {
            if scope == Scope::External {
                return capture::add_node(stream, NodeOp::EventRecord(Arc::clone(self)));
            }
            *lock(&self.state) = State::Captured(capture::fork(stream)?);
            return Ok(());
        }
        if self.device != stream.device {
            return Err(HipError::INVALID_HANDLE);
        }
        capture::check_implicit(stream)?;
        let mark = Arc::new(EventMark::default());
        stream.enqueue_mark(Arc::clone(&mark))?;
        self.stand_for(mark);
        Ok(())
    }

    /// Makes the event stand for `mark`, which is in a queue: one that is not would never be reached.
    pub(crate) fn stand_for(&self, mark: Arc<EventMark>) {
        *lock(&self.state) = State::Recorded(mark);
    }

    /// Makes later work of `stream` wait for the event as it is now.
    pub(crate) fn wait_in(self: &Arc<Self>, stream: &Arc<Stream>, scope: Scope) -> HipResult {
        // Acquire: pairs with the Release of the call that began the capture.
        if scope == Scope::External && stream.capturing.load(Ordering::Acquire) {
            return capture::add_node(stream, NodeOp::EventWait(Arc::clone(self)));
        }
        let state = lock(&self.state).clone();
        match state {
            State::Captured(fork) => capture::join(stream, &fork),
            // Acquire: pairs with the Release of the call that began the capture.
            _ if stream.capturing.load(Ordering::Acquire) => {
                // Work outside the capture: a graph cannot depend on it. An event never recorded is nothing to wait for.
                if matches!(state, State::NeverRecorded) { Ok(()) } else { capture::isolate(stream) }
            }
            State::NeverRecorded => Ok(()),
            State::Recorded(mark) if mark.is_reached() => Ok(()),
            State::Recorded(mark) => stream.enqueue(Op::WaitMark(mark)).map(drop),
        }
    }

    /// The mark to query or wait for, `None` if the event was never recorded. Fails on a captured event.
    pub(crate) fn mark(&self) -> HipResult<Option<Arc<EventMark>>> {
        match &*lock(&self.state) {
            State::NeverRecorded => Ok(None),
            State::Recorded(mark) => Ok(Some(Arc::clone(mark))),
            State::Captured(_) => Err(HipError::CAPTURED_EVENT),
        }
    }

    /// Blocks until the event's last record is reached.
    pub(crate) fn synchronize(&self) -> HipResult {
        if let Some(mark) = self.mark()? {
            if self.flags & BLOCKING_SYNC != 0 { mark.progress.park(1) } else { mark.wait() }
        }
        Ok(())
    }

    fn timestamp_ns(&self) -> HipResult<u64> {
        if self.flags & DISABLE_TIMING != 0 {
            return Err(HipError::INVALID_HANDLE);
        }
        self.mark()?.ok_or(HipError::INVALID_HANDLE)?.reached_ns().ok_or(HipError::NOT_READY)
    }
}

/// Milliseconds from `start` to `stop`. Fails with `hipErrorNotReady` before both are reached.
pub(crate) fn elapsed_ms(start: &Event, stop: &Event) -> HipResult<f32> {
    // Both are checked for errors first: "not ready" is the weaker answer.
    let (start, stop) = match (start.timestamp_ns(), stop.timestamp_ns()) {
        (Ok(start), Ok(stop)) => (start, stop),
        (Err(error), _) if error != HipError::NOT_READY => return Err(error),
        (_, Err(error)) => return Err(error),
        (Err(error), _) => return Err(error),
    };
    let difference_ns = i128::from(stop) - i128::from(start);
    Ok(difference_ns as f32 / 1e6)
}
