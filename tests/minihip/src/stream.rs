//! Streams: what a handle means, what an enqueued item waits for, and the queue it joins.

use crate::capture;
use crate::config::config;
use crate::device::{Device, device};
use crate::error::{HipError, HipResult};
use crate::event::EventMark;
use crate::op::Op;
use crate::progress::Progress;
use crate::queue;
use crate::registry::{Registry, lock};
use crate::thread_state::{current_device, per_thread_stream};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

/// `hipStreamNonBlocking`.
pub(crate) const NON_BLOCKING: u32 = 1;
/// `hipStreamLegacy` as a handle.
pub(crate) const LEGACY_HANDLE: usize = 1;
/// `hipStreamPerThread` as a handle.
pub(crate) const PER_THREAD_HANDLE: usize = 2;

/// How a stream relates to the legacy default stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamKind {
    /// The device's legacy default stream: waits for all blocking streams, and they for it.
    Legacy,
    /// A thread's own default stream: a blocking stream without a handle.
    PerThread,
    Blocking,
    NonBlocking,
}

/// Which stream the null handle means to the called spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DefaultStream {
    Legacy,
    PerThread,
}

/// A point of a stream that another item waits for.
#[derive(Clone, Debug)]
pub(crate) struct Dependency {
    pub(crate) stream: Arc<Stream>,
    pub(crate) target: u64,
}

/// One element of a queue.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) number: u64,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) op: Op,
}

/// What the queue thread and the enqueuing threads share under a lock.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub(crate) items: VecDeque<Item>,
    /// The queue thread sleeps and must be woken.
    pub(crate) parked: bool,
    /// The stream is destroyed: the thread ends once the queue is empty.
    pub(crate) closing: bool,
    started: bool,
}

/// A stream; it lives on after its destruction until its queue is drained.
#[derive(Debug)]
pub(crate) struct Stream {
    /// Creation number, never reused.
    pub(crate) id: u64,
    pub(crate) device: usize,
    pub(crate) kind: StreamKind,
    pub(crate) flags: u32,
    pub(crate) priority: i32,
    pub(crate) queue: Mutex<Queue>,
    pub(crate) work: Condvar,
    /// Number of items ever enqueued.
    pub(crate) submitted: AtomicU64,
    /// Number of items done.
    pub(crate) progress: Progress,
    /// Whether `capture` holds a branch; read without its lock.
    pub(crate) capturing: AtomicBool,
    pub(crate) capture: Mutex<Option<capture::Branch>>,
    /// `hipStreamSetAttribute` values by `hipLaunchAttributeID`; kept, with no effect.
    pub(crate) attributes: Mutex<HashMap<i32, [u8; 64]>>,
}

static STREAMS: Registry<Stream> = Registry::new();

/// The stream a handle stands for. Fails with `hipErrorContextIsDestroyed`, HIP's answer to a stream that is none.
pub(crate) fn resolve(handle: usize, null: DefaultStream) -> HipResult<Arc<Stream>> {
    match (handle, null) {
        (0, DefaultStream::Legacy) | (LEGACY_HANDLE, _) => Ok(Arc::clone(current_device()?.null_stream())),
        (0, DefaultStream::PerThread) | (PER_THREAD_HANDLE, _) => per_thread_stream(),
        _ => STREAMS.get(handle).ok_or(HipError::CONTEXT_DESTROYED),
    }
}

/// Makes a stream and its handle on `device`.
pub(crate) fn create(device: &'static Device, flags: u32, priority: i32) -> HipResult<usize> {
    if flags & !NON_BLOCKING != 0 {
        return Err(HipError::INVALID_VALUE);
    }
    let kind = if flags & NON_BLOCKING != 0 { StreamKind::NonBlocking } else { StreamKind::Blocking };
    STREAMS.insert(|_| Stream::create(device, kind, flags, priority))
}

/// `hipStreamDestroy`: the handle dies now, the queue once it is drained.
pub(crate) fn destroy(handle: usize) -> HipResult {
    match handle {
        0 | LEGACY_HANDLE | PER_THREAD_HANDLE => Err(HipError::INVALID_HANDLE),
        _ => {
            let stream = STREAMS.remove(handle).ok_or(HipError::CONTEXT_DESTROYED)?;
            capture::abandon(&stream);
            stream.close();
            Ok(())
        }
    }
}

impl Stream {
    /// A new stream, known to its device; its thread starts with the first item.
    pub(crate) fn create(device: &Device, kind: StreamKind, flags: u32, priority: i32) -> Arc<Self> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let stream = Arc::new(Self {
            // Relaxed: only uniqueness matters.
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            device: device.index,
            kind,
            flags,
            priority,
            queue: Mutex::default(),
            work: Condvar::new(),
            submitted: AtomicU64::new(0),
            progress: Progress::default(),
            capturing: AtomicBool::new(false),
            capture: Mutex::new(None),
            attributes: Mutex::default(),
        });
        device.add_stream(&stream);
        stream
    }

    /// The number of the last item if it is not done.
    pub(crate) fn pending(&self) -> Option<u64> {
        // Acquire: pairs with the Release in `push`. An item whose enqueuing call returned before this call began
        // is counted, because the program ordered the two calls.
        let target = self.submitted.load(Ordering::Acquire);
        (!self.progress.reached(target)).then_some(target)
    }

    /// Whether nothing enqueued before the call is left to do; the legacy default stream answers for the streams
    /// it synchronises with.
    pub(crate) fn is_idle(&self) -> bool {
        self.pending().is_none() && (self.kind != StreamKind::Legacy || self.implicit_dependencies().is_empty())
    }

    /// Blocks until everything enqueued before the call is done.
    pub(crate) fn synchronize(&self) {
        if let Some(target) = self.pending() {
            self.progress.wait(target);
        }
        if self.kind == StreamKind::Legacy {
            for dependency in self.implicit_dependencies() {
                dependency.stream.progress.wait(dependency.target);
            }
        }
    }

    /// What a new item must wait for although the program did not say so: the legacy default stream rules.
    ///
    /// Read before the item joins its queue, so that an item only ever waits for items that joined a queue before
    /// it did: no cycle can form, whatever threads do at the same time.
    fn implicit_dependencies(&self) -> Vec<Dependency> {
        let mut dependencies = Vec::new();
        let Ok(device) = device(self.device) else { return dependencies };
        match self.kind {
            StreamKind::NonBlocking => {}
            StreamKind::Blocking | StreamKind::PerThread => {
                if let Some(null) = device.null_stream_if_used()
                    && let Some(target) = null.pending()
                {
                    dependencies.push(Dependency { stream: Arc::clone(null), target });
                }
            }
            StreamKind::Legacy => device.for_each_stream(|stream| {
                if matches!(stream.kind, StreamKind::Blocking | StreamKind::PerThread)
                    && let Some(target) = stream.pending()
                {
                    dependencies.push(Dependency { stream: Arc::clone(stream), target });
                }
            }),
        }
        dependencies
    }

    /// Enqueues `op` and returns its number.
    pub(crate) fn enqueue(self: &Arc<Self>, op: Op) -> HipResult<u64> {
        let dependencies = self.implicit_dependencies();
        self.push(dependencies, op)
    }

    /// Enqueues `op`, to run after one more item than the program's streams ask for.
    pub(crate) fn enqueue_after(self: &Arc<Self>, after: Option<Dependency>, op: Op) -> HipResult<u64> {
        let mut dependencies = self.implicit_dependencies();
        dependencies.extend(after);
        self.push(dependencies, op)
    }

    fn push(self: &Arc<Self>, dependencies: Vec<Dependency>, op: Op) -> HipResult<u64> {
        let mut queue = lock(&self.queue);
        if !queue.started {
            queue::start(self)?;
            queue.started = true;
        }
        // Relaxed read: only changed under the lock. Release: see `pending`.
        let number = self.submitted.load(Ordering::Relaxed) + 1;
        queue.items.push_back(Item { number, dependencies, op });
        self.submitted.store(number, Ordering::Release);
        if std::mem::take(&mut queue.parked) {
            drop(queue);
            self.work.notify_one();
        }
        Ok(number)
    }

    /// Enqueues an event's mark; a stream with nothing to do reaches it at once, without its thread.
    pub(crate) fn enqueue_mark(self: &Arc<Self>, mark: Arc<EventMark>) -> HipResult<u64> {
        let dependencies = self.implicit_dependencies();
        if dependencies.is_empty() && config().chaos_seed.is_none() {
            let queue = lock(&self.queue);
            // Relaxed: `submitted` only changes under the lock that is held.
            let submitted = self.submitted.load(Ordering::Relaxed);
            if queue.items.is_empty() && self.progress.reached(submitted) {
                mark.reach();
                return Ok(submitted);
            }
        }
        self.push(dependencies, Op::Mark(mark))
    }

    /// Enqueues `op`, or adds it to the graph the stream is being captured into.
    pub(crate) fn submit(self: &Arc<Self>, op: Op) -> HipResult<Submitted> {
        // Acquire: pairs with the Release of the call that began the capture.
        if self.capturing.load(Ordering::Acquire) {
            capture::add_op(self, op)?;
            return Ok(Submitted::Captured);
        }
        capture::check_implicit(self)?;
        self.enqueue(op).map(Submitted::Enqueued)
    }

    /// Blocks until `submitted` is done; a captured operation is not waited for.
    pub(crate) fn wait(&self, submitted: Submitted) {
        if let Submitted::Enqueued(number) = submitted {
            self.progress.wait(number);
        }
    }

    /// Lets the queue end once it is drained.
    pub(crate) fn close(&self) {
        let mut queue = lock(&self.queue);
        queue.closing = true;
        if queue.started {
            queue.parked = false;
            drop(queue);
            self.work.notify_one();
        } else if let Ok(device) = device(self.device) {
            drop(queue);
            device.remove_stream(self.id);
        }
    }
}

/// What became of a submitted operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Submitted {
    /// In the queue, with this number.
    Enqueued(u64),
    /// In a graph.
    Captured,
}
