//! Stream capture: streams that write a graph instead of working.

use crate::error::{HipError, HipResult};
use crate::graph::{self, Graph, NodeOp};
use crate::op::Op;
use crate::registry::lock;
use crate::stream::{Stream, StreamKind};
use crate::thread_state::{capture_mode, thread_id};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// `hipStreamCaptureMode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CaptureMode {
    Global = 0,
    ThreadLocal = 1,
    Relaxed = 2,
}

impl CaptureMode {
    /// The mode a C program names. Fails with `hipErrorInvalidValue`.
    pub(crate) fn from_raw(raw: i32) -> HipResult<Self> {
        [Self::Global, Self::ThreadLocal, Self::Relaxed]
            .into_iter()
            .find(|mode| *mode as i32 == raw)
            .ok_or(HipError::INVALID_VALUE)
    }
}

/// One capture, over all streams that joined it.
#[derive(Debug)]
pub(crate) struct Sequence {
    pub(crate) id: u64,
    pub(crate) graph: Arc<Graph>,
    pub(crate) graph_handle: usize,
    mode: CaptureMode,
    /// The thread that began it.
    thread: u64,
    /// The stream it began on.
    origin: u64,
    is_invalidated: AtomicBool,
    is_ended: AtomicBool,
    streams: Mutex<Vec<Weak<Stream>>>,
}

/// A stream's part in a capture.
#[derive(Debug)]
pub(crate) struct Branch {
    pub(crate) sequence: Arc<Sequence>,
    /// The nodes the stream's next one comes after.
    pub(crate) tips: Vec<usize>,
    /// What `hipStreamGetCaptureInfo_v2` pointed the program at last.
    shown: Box<[usize]>,
}

/// An event recorded in a capturing stream: what comes after it.
#[derive(Clone, Debug)]
pub(crate) struct Fork {
    sequence: Arc<Sequence>,
    tips: Vec<usize>,
}

/// Captures under way.
static SEQUENCES: Mutex<Vec<Arc<Sequence>>> = Mutex::new(Vec::new());
/// Their number, so that calls need no lock while there are none.
static ACTIVE: AtomicUsize = AtomicUsize::new(0);

impl Sequence {
    fn invalidate(&self) {
        // Relaxed: read by calls that the program itself must order after this one to expect anything.
        self.is_invalidated.store(true, Ordering::Relaxed);
    }

    fn check(&self) -> HipResult {
        // Relaxed: see `invalidate`.
        if self.is_invalidated.load(Ordering::Relaxed) { Err(HipError::CAPTURE_INVALIDATED) } else { Ok(()) }
    }

    fn streams(&self) -> Vec<Arc<Stream>> {
        lock(&self.streams).iter().filter_map(Weak::upgrade).collect()
    }

    /// Takes every stream out of the capture and forgets the sequence.
    fn finish(&self) {
        // Relaxed: see `invalidate`.
        self.is_ended.store(true, Ordering::Relaxed);
        for stream in self.streams() {
            leave(&stream);
        }
        let mut sequences = lock(&SEQUENCES);
        sequences.retain(|sequence| sequence.id != self.id);
        // Release: pairs with the Acquire in `is_any_active`.
        ACTIVE.store(sequences.len(), Ordering::Release);
    }
}

fn is_any_active() -> bool {
    // Acquire: pairs with the Release where a sequence begins.
    ACTIVE.load(Ordering::Acquire) > 0
}

fn sequences_where(wanted: impl Fn(&Sequence) -> bool) -> Vec<Arc<Sequence>> {
    lock(&SEQUENCES).iter().filter(|sequence| wanted(sequence)).cloned().collect()
}

fn enter(stream: &Arc<Stream>, sequence: &Arc<Sequence>, tips: Vec<usize>) {
    lock(&sequence.streams).push(Arc::downgrade(stream));
    *lock(&stream.capture) = Some(Branch { sequence: Arc::clone(sequence), tips, shown: Box::default() });
    // Release: pairs with the Acquire of every call that asks whether the stream is capturing.
    stream.capturing.store(true, Ordering::Release);
}

fn leave(stream: &Stream) {
    // Release: see `enter`.
    stream.capturing.store(false, Ordering::Release);
    *lock(&stream.capture) = None;
}

/// Begins a capture on `stream`, into a new graph or after `tips` of an existing one.
pub(crate) fn begin(stream: &Arc<Stream>, mode: CaptureMode, into: Option<(usize, Vec<usize>)>) -> HipResult {
    static NEXT_ID: AtomicU64 = AtomicU64::new(1);
    if stream.kind == StreamKind::Legacy {
        return Err(HipError::CAPTURE_UNSUPPORTED);
    }
    if lock(&stream.capture).is_some() {
        return Err(HipError::ILLEGAL_STATE);
    }
    let (graph_handle, graph, tips) = match into {
        Some((handle, tips)) => (handle, graph::resolve(handle)?, tips),
        None => {
            let (handle, graph) = graph::create()?;
            (handle, graph, Vec::new())
        }
    };
    let sequence = Arc::new(Sequence {
        // Relaxed: only uniqueness matters.
        id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
        graph,
        graph_handle,
        mode,
        thread: thread_id(),
        origin: stream.id,
        is_invalidated: AtomicBool::new(false),
        is_ended: AtomicBool::new(false),
        streams: Mutex::default(),
    });
    {
        let mut sequences = lock(&SEQUENCES);
        sequences.push(Arc::clone(&sequence));
        // Release: pairs with the Acquire in `is_any_active`.
        ACTIVE.store(sequences.len(), Ordering::Release);
    }
    enter(stream, &sequence, tips);
    Ok(())
}

/// Ends the capture that began on `stream` and returns its graph's handle.
pub(crate) fn end(stream: &Arc<Stream>) -> HipResult<usize> {
    let (sequence, tips) = {
        let branch = lock(&stream.capture);
        let branch = branch.as_ref().ok_or(HipError::ILLEGAL_STATE)?;
        (Arc::clone(&branch.sequence), branch.tips.clone())
    };
    if sequence.origin != stream.id {
        sequence.invalidate();
        return Err(HipError::CAPTURE_UNMATCHED);
    }
    if sequence.mode != CaptureMode::Relaxed && sequence.thread != thread_id() {
        return Err(HipError::CAPTURE_WRONG_THREAD);
    }
    let outcome = sequence.check().and_then(|()| {
        let unjoined = sequence.streams().iter().any(|other| {
            let branch = lock(&other.capture);
            branch
                .as_ref()
                .is_some_and(|branch| other.id != stream.id && !sequence.graph.all_precede(&branch.tips, &tips))
        });
        if unjoined { Err(HipError::CAPTURE_UNJOINED) } else { Ok(sequence.graph_handle) }
    });
    sequence.finish();
    if outcome.is_err() {
        // The graph of a failed capture is nobody's.
        let _ = graph::destroy(sequence.graph_handle);
    }
    outcome
}

/// A capturing stream is destroyed: the capture cannot be completed.
pub(crate) fn abandon(stream: &Arc<Stream>) {
    let sequence = lock(&stream.capture).as_ref().map(|branch| Arc::clone(&branch.sequence));
    if let Some(sequence) = sequence {
        sequence.invalidate();
        if sequence.origin == stream.id {
            sequence.finish();
        } else {
            leave(stream);
        }
    }
}

fn with_branch<R>(stream: &Stream, body: impl FnOnce(&mut Branch) -> HipResult<R>) -> HipResult<R> {
    let mut branch = lock(&stream.capture);
    let branch = branch.as_mut().ok_or(HipError::ILLEGAL_STATE)?;
    branch.sequence.check()?;
    body(branch)
}

/// Adds a node after what the stream has captured so far.
pub(crate) fn add_node(stream: &Stream, op: NodeOp) -> HipResult {
    with_branch(stream, |branch| {
        let node = branch.sequence.graph.add(&branch.tips, op)?;
        branch.tips = vec![node];
        Ok(())
    })
}

/// Adds what would otherwise have been enqueued.
pub(crate) fn add_op(stream: &Arc<Stream>, op: Op) -> HipResult {
    add_node(stream, if matches!(op, Op::Nothing) { NodeOp::Empty } else { NodeOp::Run(op) })
}

/// An event is recorded in a capturing stream.
pub(crate) fn fork(stream: &Stream) -> HipResult<Fork> {
    with_branch(stream, |branch| Ok(Fork { sequence: Arc::clone(&branch.sequence), tips: branch.tips.clone() }))
}

/// A stream waits for an event recorded in a capture: it joins the capture, or the branches meet.
pub(crate) fn join(stream: &Arc<Stream>, fork: &Fork) -> HipResult {
    // Relaxed: see `invalidate`.
    if fork.sequence.is_ended.load(Ordering::Relaxed) {
        return Err(HipError::CAPTURED_EVENT);
    }
    fork.sequence.check()?;
    let joined = lock(&stream.capture).as_ref().map(|branch| Arc::clone(&branch.sequence));
    match joined {
        None if stream.kind == StreamKind::Legacy => {
            fork.sequence.invalidate();
            Err(HipError::CAPTURE_IMPLICIT)
        }
        None => {
            enter(stream, &fork.sequence, fork.tips.clone());
            Ok(())
        }
        Some(sequence) if sequence.id == fork.sequence.id => with_branch(stream, |branch| {
            for tip in &fork.tips {
                if !branch.tips.contains(tip) {
                    branch.tips.push(*tip);
                }
            }
            Ok(())
        }),
        Some(sequence) => {
            sequence.invalidate();
            fork.sequence.invalidate();
            Err(HipError::CAPTURE_MERGE)
        }
    }
}

/// A capturing stream was told to wait for work that no capture holds.
pub(crate) fn isolate(stream: &Arc<Stream>) -> HipResult {
    reject(stream, HipError::CAPTURE_ISOLATION)
}

/// A call that a capturing stream does not allow: it fails with `error` and spoils the capture.
pub(crate) fn reject(stream: &Stream, error: HipError) -> HipResult {
    with_branch(stream, |branch| {
        branch.sequence.invalidate();
        Err(error)
    })
}

/// Work for the legacy default stream, which blocking streams would have to wait for: not while one is captured.
pub(crate) fn check_implicit(stream: &Stream) -> HipResult {
    if stream.kind != StreamKind::Legacy || !is_any_active() {
        return Ok(());
    }
    let touched = sequences_where(|sequence| {
        sequence.streams().iter().any(|other| other.device == stream.device && other.kind != StreamKind::NonBlocking)
    });
    if touched.is_empty() {
        return Ok(());
    }
    touched.iter().for_each(|sequence| sequence.invalidate());
    Err(HipError::CAPTURE_IMPLICIT)
}

/// The captures a potentially unsafe call of this thread would disturb, by the thread's interaction mode.
fn disturbed() -> Vec<Arc<Sequence>> {
    if !is_any_active() {
        return Vec::new();
    }
    let thread = thread_id();
    let own = move |sequence: &Sequence| sequence.thread == thread && sequence.mode != CaptureMode::Relaxed;
    match CaptureMode::from_raw(capture_mode()) {
        Ok(CaptureMode::Relaxed) => Vec::new(),
        Ok(CaptureMode::ThreadLocal) => sequences_where(own),
        _ => sequences_where(|sequence| own(sequence) || sequence.mode == CaptureMode::Global),
    }
}

/// Entry check of calls that may synchronise behind the scenes (allocation, loading, device-wide waits).
pub(crate) fn forbid_unsafe_call() -> HipResult {
    let disturbed = disturbed();
    disturbed.iter().for_each(|sequence| sequence.invalidate());
    if disturbed.is_empty() { Ok(()) } else { Err(HipError::CAPTURE_UNSUPPORTED) }
}

/// Entry check of copies and memsets without a stream.
pub(crate) fn forbid_sync_call() -> HipResult {
    forbid_unsafe_call().map_err(|_| HipError::CAPTURE_IMPLICIT)
}

/// What a program may ask about a stream's capture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Info {
    /// `hipStreamCaptureStatus`: 0 none, 1 active, 2 invalidated.
    pub(crate) status: i32,
    pub(crate) id: u64,
    pub(crate) graph: usize,
    /// Address and number of the nodes the next one comes after; valid until the stream captures on.
    pub(crate) dependencies: usize,
    pub(crate) dependency_count: usize,
}

/// The state of `stream`'s capture.
pub(crate) fn info(stream: &Stream) -> Info {
    let mut branch = lock(&stream.capture);
    match branch.as_mut() {
        None => Info { status: 0, id: 0, graph: 0, dependencies: 0, dependency_count: 0 },
        Some(branch) => {
            branch.shown = branch.tips.clone().into();
            Info {
                status: if branch.sequence.check().is_ok() { 1 } else { 2 },
                id: branch.sequence.id,
                graph: branch.sequence.graph_handle,
                dependencies: branch.shown.as_ptr() as usize,
                dependency_count: branch.shown.len(),
            }
        }
    }
}

/// `hipStreamUpdateCaptureDependencies`: replaces or extends the nodes the next one comes after.
pub(crate) fn update_dependencies(stream: &Stream, nodes: &[usize], replace: Replace) -> HipResult {
    with_branch(stream, |branch| {
        let known = branch.sequence.graph.nodes();
        if !nodes.iter().all(|node| known.iter().any(|other| other.handle == *node)) {
            return Err(HipError::INVALID_VALUE);
        }
        if replace == Replace::Yes {
            branch.tips.clear();
        }
        for node in nodes {
            if !branch.tips.contains(node) {
                branch.tips.push(*node);
            }
        }
        Ok(())
    })
}

/// Whether new capture dependencies take the old ones' place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replace {
    Yes,
    No,
}
