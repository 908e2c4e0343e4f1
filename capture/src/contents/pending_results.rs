//! Results of asynchronous device-to-host copies, from the enqueue to the program's own synchronisation.
//!
//! After each such copy an event of capture's own is recorded on the stream. Whenever a call of the program succeeds that
//! may have told it that work is done, the pending results are looked at. Two things happen to each, in this order:
//!
//! * It is *snapshotted* when its event says that the copy is complete. The memory is then final until the program
//!   learns of it, and the call in which it can learn of it has not returned yet. Nothing waits for the device.
//! * It is *observed* when the program's own call implies that it is complete: the call waited for its stream, for the
//!   device, or for an event behind it, directly or through streams that wait for events. A copy that merely happened to
//!   be complete is not observed by that call, since it need not be when the call is replayed.
//!
//! A result whose memory is given back or written again before it is observed never will be, and its snapshot is dropped.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::blob_writer::BlobWriter;
use super::event_order::EventOrder;
use super::memory::Trust;
use super::overwritten::{self, Reader};
use super::pool::Buffer;
use super::region::Region;
use crate::runtime::{self, LastError, NOT_READY};

/// How many results are pending; zero in metadata-only mode. Lets calls that synchronise find out for one load that there
/// is nothing to do.
static PENDING: AtomicUsize = AtomicUsize::new(0);
/// Counts enqueued copies, so that a synchronising call can tell which ones came before it.
static SEQUENCE: AtomicU64 = AtomicU64::new(0);
/// Most results that are kept in mind; the oldest are given up beyond that, as never observed.
const MAX_PENDING: usize = 1 << 14;
/// `hipStreamLegacy`, which means the same as null.
const LEGACY: u64 = 1;
/// `hipStreamPerThread`.
const PER_THREAD: u64 = 2;
/// Set in identities of streams that have no handle of their own; no address is as large.
const WITHOUT_HANDLE: u64 = 1 << 63;
/// Stream of results whose own stream was destroyed: only the device as a whole can be waited for.
const NO_STREAM: u64 = u64::MAX;

/// Whether results are pending.
#[inline(always)]
pub(crate) fn any() -> bool {
    // Acquire: pairs with the release in `State::publish_count`. A thread that has added a result and sees zero here sees
    // that another thread is done reading its memory.
    PENDING.load(Ordering::Acquire) != 0
}

/// The number of copies enqueued until now.
#[inline(always)]
pub(crate) fn sequence() -> u64 {
    // Acquire: pairs with the release in `add`: copies up to this number were enqueued before.
    SEQUENCE.load(Ordering::Acquire)
}

/// Forgets everything, in a forked child.
pub(crate) fn forget() {
    PENDING.store(0, Ordering::Relaxed);
}

/// Tells streams apart. The special handles mean another stream on each device, and the calling thread's own one is another in
/// each thread.
fn identity(stream: u64) -> u64 {
    let device = || u64::from(runtime::device() as u16);
    match stream {
        0 | LEGACY => WITHOUT_HANDLE | device(),
        PER_THREAD => WITHOUT_HANDLE | thread_number() << 16 | device(),
        _ => stream,
    }
}

/// The calling thread's number, from 1 on; never used again.
fn thread_number() -> u64 {
    static THREADS: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static NUMBER: Cell<u64> = const { Cell::new(0) };
    }
    NUMBER.with(|number| {
        if number.get() == 0 {
            // Relaxed: only that no two are the same matters.
            number.set(THREADS.fetch_add(1, Ordering::Relaxed) + 1);
        }
        number.get()
    })
}

/// A result that a call, or the work it enqueues, writes to host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostResult {
    /// Blob number.
    pub(crate) number: u64,
    /// Where it lies.
    pub(crate) region: Region,
    /// Whether the memory can be read as long as HIP has not been told otherwise.
    pub(crate) trust: Trust,
}

/// What writes a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writer {
    /// The copy that the call enqueues.
    Copy,
    /// A node of the graph that the call launches.
    Graph,
}

/// A result that was observed.
#[derive(Debug)]
pub(crate) struct Observed {
    /// Blob number.
    pub(crate) number: u64,
    /// Its snapshot, unless it is stored already.
    pub(crate) contents: Option<Buffer>,
}

/// What a call that succeeded waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// Everything on a stream.
    Stream(u64),
    /// Everything on the null stream and on the streams that synchronise with it.
    NullStream,
    /// Everything on the calling thread's device.
    Device,
    /// An event.
    Event(u64),
    /// Nothing that can be named.
    Something,
}

impl Waited {
    /// Whether what the call waited for comes after a result's copy, by way of an event.
    fn stands_behind(self, pending: &Pending, order: &EventOrder) -> bool {
        match self {
            Waited::Stream(stream) => order.stream_implies(stream, pending.stream, pending.sequence),
            Waited::Event(event) => order.event_implies(event, pending.stream, pending.sequence),
            Waited::NullStream | Waited::Device | Waited::Something => false,
        }
    }
}

#[derive(Debug)]
struct Pending {
    result: HostResult,
    /// Its [`identity`].
    stream: u64,
    /// Whether work on the null stream waits for the stream.
    blocking: bool,
    device: i32,
    /// Capture's own event behind the copy.
    event: u64,
    sequence: u64,
    snapshot: Option<Buffer>,
    /// It is of a graph.
    of_graph: bool,
    /// Hash of what the memory held when the program waited for an event inside the graph, before the graph was done.
    early: Option<blake3::Hash>,
    /// Copies that read the result from host memory and were enqueued before it was there.
    readers: Vec<Reader>,
}

/// Where work is about to be put.
#[derive(Clone, Copy, Debug)]
struct Behind {
    /// The stream's [`identity`].
    stream: u64,
    /// Whether it waits for work on the null stream.
    blocking: bool,
    device: i32,
}

impl Behind {
    /// Whether the work is to wait for a result's copy.
    fn waits_for(&self, pending: &Pending, order: &EventOrder) -> bool {
        let null_stream = WITHOUT_HANDLE | u64::from(self.device as u16);
        let by_null_stream = self.device == pending.device
            && (self.stream == null_stream && pending.blocking || self.blocking && pending.stream == null_stream);
        self.stream == pending.stream
            || by_null_stream
            || order.stream_implies(self.stream, pending.stream, pending.sequence)
    }
}

/// What is known of whether the runtime counts `hipErrorNotReady` as an error.
mod not_ready {
    pub(super) const UNKNOWN: u8 = 0;
    pub(super) const KEPT: u8 = 1;
    pub(super) const NOT_KEPT: u8 = 2;
}

/// The pending results of a process.
#[derive(Debug, Default)]
pub(crate) struct PendingResults {
    state: Mutex<State>,
    not_ready: AtomicU8,
}

#[derive(Debug, Default)]
struct State {
    pending: Vec<Pending>,
    order: EventOrder,
    /// Events that can be used again, by device.
    events: HashMap<i32, Vec<u64>>,
    /// Events that nodes of graphs record.
    graph_events: HashSet<u64>,
}

impl PendingResults {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers the results of a copy that was just enqueued on a stream. Earlier results in the same memory that the
    /// program has not seen will never be seen.
    pub(crate) fn add(&self, results: &[HostResult], stream: u64, writer: Writer) {
        let _last_error = LastError::keep();
        let device = runtime::device_of(stream);
        let blocking = runtime::waits_for_null_stream(stream);
        let known_as = identity(stream);
        for &result in results {
            self.drop_overlapping(&result.region);
            let reused = self.state().events.get_mut(&device).and_then(Vec::pop);
            let Some(event) = reused.or_else(|| runtime::create_event(device)) else {
                // Without an event there is no telling when the result is there: it counts as never observed.
                continue;
            };
            // SAFETY: the event is capture's own, of the stream's device; the program has just used the stream.
            if unsafe { runtime::event_record(event as *mut _, stream as *mut _) } != 0 {
                self.state().events.entry(device).or_default().push(event);
                continue;
            }
            let mut state = self.state();
            // Release: a call that sees this number at its entry came after the copy was enqueued.
            let sequence = SEQUENCE.fetch_add(1, Ordering::Release) + 1;
            state.pending.push(Pending {
                result,
                stream: known_as,
                blocking,
                device,
                event,
                sequence,
                snapshot: None,
                of_graph: writer == Writer::Graph,
                early: None,
                readers: Vec::new(),
            });
            if state.pending.len() > MAX_PENDING {
                let oldest = state.pending.remove(0);
                state.free(&oldest);
            }
            state.publish_count();
        }
    }

    /// Leaves the contents of a copy's source to the moment when a result that is still being written to it is there; says
    /// whether there is such a result. What the memory holds now is not what the copy will read.
    pub(crate) fn read_later(&self, number: u64, region: &Region, trust: Trust) -> bool {
        if !any() {
            return false;
        }
        let waits = |pending: &Pending| pending.snapshot.is_none() && pending.result.region.overlaps(region);
        let events: Vec<u64> =
            self.state().pending.iter().filter(|pending| waits(pending)).map(|pending| pending.event).collect();
        let last_error = LastError::keep();
        // The last one is there last, on one stream.
        let Some(event) = events.into_iter().rev().find(|&event| self.query(event, &last_error) == Some(false)) else {
            return false;
        };
        let mut state = self.state();
        // Another thread may have found it complete meanwhile.
        match state.pending.iter_mut().rev().find(|pending| pending.event == event && waits(pending)) {
            Some(pending) => pending.readers.push(Reader { number, region: *region, trust }),
            None => return false,
        }
        true
    }

    /// A call is about to have a stream write this memory: copies that read an earlier result there may not have been seen yet.
    pub(crate) fn before_overwrite(&self, region: &Region, stream: u64, writer: &'static BlobWriter) {
        if any() {
            overwritten::store_in_order(self.take_readers(region).1, stream, writer);
        }
    }

    /// A call is about to put work on a stream that may write this memory: a fill, a kernel, a graph. Copies that read an earlier result
    /// there may not have been seen yet. Work that does not wait for the result cannot write over it without a race, and so does not.
    pub(crate) fn before_work(&self, region: &Region, stream: u64, writer: &'static BlobWriter) {
        let is_read = |pending: &Pending| pending.readers.iter().any(|reader| reader.region.overlaps(region));
        if !any() || !self.state().pending.iter().any(is_read) {
            return;
        }
        let behind = {
            let _last_error = LastError::keep();
            let blocking = runtime::waits_for_null_stream(stream);
            Behind { stream: identity(stream), blocking, device: runtime::device_of(stream) }
        };
        let mut readers = Vec::new();
        {
            let State { pending, order, .. } = &mut *self.state();
            for pending in pending {
                if behind.waits_for(pending, order) {
                    readers.extend(pending.readers.extract_if(.., |reader| reader.region.overlaps(region)));
                }
            }
        }
        overwritten::store_in_order(readers, stream, writer);
    }

    /// The program is about to give this memory back, which waits for those that use it.
    pub(crate) fn before_free(&self, region: &Region, writer: &BlobWriter) {
        if !any() {
            return;
        }
        let (events, readers) = self.take_readers(region);
        let _last_error = LastError::keep();
        for event in events {
            // SAFETY: the event is capture's own.
            unsafe { runtime::event_synchronize(event as *mut _) };
        }
        for reader in readers {
            // SAFETY: the memory has not been given back yet, and is as it was when its result was there.
            unsafe { reader.store(writer) };
        }
    }

    /// Copies that read this memory and wait for what they read, and the events of the results that they wait for.
    fn take_readers(&self, region: &Region) -> (Vec<u64>, Vec<Reader>) {
        let (mut events, mut readers) = (Vec::new(), Vec::new());
        for pending in &mut self.state().pending {
            let before = readers.len();
            readers.extend(pending.readers.extract_if(.., |reader| reader.region.overlaps(region)));
            events.extend((readers.len() > before).then_some(pending.event));
        }
        (events, readers)
    }

    /// Whether a result is still to be written to this memory, or to be seen there.
    pub(crate) fn overlaps(&self, region: &Region) -> bool {
        any() && self.state().pending.iter().any(|pending| pending.result.region.overlaps(region))
    }

    /// Forgets results in memory that the program gives back or writes anew.
    pub(crate) fn drop_overlapping(&self, region: &Region) {
        if any() {
            self.state().take(|pending| pending.result.region.overlaps(region));
        }
    }

    /// A stream is destroyed: its handle may come to mean another one.
    pub(crate) fn forget_stream(&self, stream: u64) {
        if any() {
            let mut state = self.state();
            for pending in state.pending.iter_mut().filter(|pending| pending.stream == stream) {
                pending.stream = NO_STREAM;
            }
            state.order.forget_stream(stream);
        }
    }

    /// A device is reset. Which one is not worth telling apart: results that are pending then will not be seen, and
    /// capture's events may be gone.
    pub(crate) fn reset(&self) {
        let mut state = self.state();
        state.take(|_| true);
        state.events.clear();
    }

    /// The program recorded an event on a stream.
    pub(crate) fn event_recorded(&self, event: u64, stream: u64) {
        let stream = identity(stream);
        self.state().order.record(event, stream, sequence());
    }

    /// A node of a graph records the event when the graph is launched.
    pub(crate) fn graph_event(&self, event: u64) {
        self.state().graph_events.insert(event);
    }

    /// The program made a stream wait for an event.
    pub(crate) fn stream_waits(&self, stream: u64, event: u64) {
        let stream = identity(stream);
        self.state().order.wait(stream, event);
    }

    /// Looks at the results after a call that succeeded, and returns those that it made visible, in the order of their
    /// copies. `before` is [`sequence`] at the call's entry.
    pub(crate) fn observe(&self, waited: Waited, before: u64, writer: &BlobWriter) -> Vec<Observed> {
        let device = matches!(waited, Waited::Device | Waited::NullStream).then(runtime::device);
        let waited = match waited {
            Waited::Stream(stream) => Waited::Stream(identity(stream)),
            other => other,
        };
        let complete = self.complete(waited);
        let null_stream = if waited == Waited::NullStream { identity(0) } else { NO_STREAM };
        let mut state = self.state();
        let State { pending, order, graph_events, .. } = &mut *state;
        let inside_graph = matches!(waited, Waited::Event(event) if graph_events.contains(&event));
        let mut lost = Vec::new();
        let mut observed = Vec::new();
        for pending in pending.iter_mut() {
            // The call itself waited for the copy.
            let direct = pending.sequence <= before
                && match waited {
                    Waited::Stream(stream) => stream == pending.stream,
                    Waited::NullStream => {
                        device == Some(pending.device) && (pending.blocking || pending.stream == null_stream)
                    }
                    Waited::Device => device == Some(pending.device),
                    Waited::Event(_) | Waited::Something => false,
                };
            // It waited for something that stands behind the copy, unless another thread has recorded the event anew
            // meanwhile: capture's own event tells.
            // Another thread's call may have found it complete, and snapshotted it, before this one made it visible.
            let complete = direct || pending.snapshot.is_some() || complete.contains(&pending.sequence);
            let behind = waited.stands_behind(pending, order);
            let visible = direct || (complete && pending.sequence <= before && behind);
            if complete {
                for reader in pending.readers.drain(..) {
                    // SAFETY: as for the result itself, below.
                    unsafe { reader.store(writer) };
                }
            }
            let HostResult { number, region, trust } = pending.result;
            if inside_graph && !complete && pending.of_graph && pending.sequence <= before && pending.early.is_none() {
                // Which of its copies come before the event only the graph tells. The program may take this one for done, and go
                // on to change the memory.
                // SAFETY: as below.
                match unsafe { writer.gather(&region, trust) } {
                    Ok(Some(buffer)) => pending.early = Some(hash(&buffer)),
                    Ok(None) | Err(_) => lost.push(pending.sequence),
                }
            }
            if pending.snapshot.is_none() && complete {
                // The lock is held while the memory is read, so that its owner's own call cannot return, and the owner go on
                // to change the memory, before that is done.
                // SAFETY: trusted memory stays until HIP is told otherwise, which waits for this lock.
                match unsafe { writer.gather(&region, trust) } {
                    // It was copied after the event, or changed by the program: whose bytes these are cannot be told.
                    Ok(Some(buffer)) if pending.early.is_some_and(|early| early != hash(&buffer)) => {
                        lost.push(pending.sequence);
                    }
                    Ok(Some(buffer)) => pending.snapshot = Some(buffer),
                    Ok(None) if visible && pending.early.is_some() => lost.push(pending.sequence),
                    // SAFETY: as above.
                    Ok(None) if visible => match unsafe { writer.add(writer.blobs, number, &region, trust) } {
                        true => observed.push((pending.sequence, Observed { number, contents: None })),
                        false => lost.push(pending.sequence),
                    },
                    // It is tried again at the next call.
                    Ok(None) => {}
                    Err(_unreadable) => lost.push(pending.sequence),
                }
            }
            if visible && let Some(contents) = pending.snapshot.take() {
                observed.push((pending.sequence, Observed { number, contents: Some(contents) }));
            }
        }
        let taken = |pending: &Pending| {
            lost.contains(&pending.sequence) || observed.iter().any(|(sequence, _)| *sequence == pending.sequence)
        };
        state.take(taken);
        observed.into_iter().map(|(_, observed)| observed).collect()
    }

    /// Sequence numbers of results that are complete and not snapshotted yet. Those that the call must have waited for are asked for
    /// first: once the runtime has answered that one is not ready, others may not be asked for any more.
    fn complete(&self, waited: Waited) -> Vec<u64> {
        let last_error = LastError::keep();
        let mut waiting = Vec::new();
        {
            let state = self.state();
            for pending in state.pending.iter().filter(|pending| pending.snapshot.is_none()) {
                let expected = match waited {
                    Waited::Stream(stream) if stream == pending.stream => true,
                    Waited::NullStream => pending.blocking || pending.stream & WITHOUT_HANDLE != 0,
                    Waited::Device => true,
                    _ => waited.stands_behind(pending, &state.order),
                };
                waiting.push((!expected, pending.event, pending.sequence, pending.device, pending.stream));
            }
        }
        // Stable: the copies of one stream stay in their order.
        waiting.sort_by_key(|&(unexpected, ..)| unexpected);
        let mut complete = Vec::new();
        // Work on one stream is done in order: behind the first result that is not there, the others are not either.
        let mut busy = Vec::new();
        for (_, event, sequence, device, stream) in waiting {
            if stream != NO_STREAM && busy.contains(&(device, stream)) {
                continue;
            }
            // An event that another thread has freed and used again since tells the state of another result. The one that is
            // meant has been observed then, and is looked up by its number in vain.
            match self.query(event, &last_error) {
                Some(true) => complete.push(sequence),
                Some(false) => busy.push((device, stream)),
                None => break,
            }
        }
        complete
    }

    /// Asks for capture's own event; `None` where asking could show in the program's last error.
    fn query(&self, event: u64, last_error: &LastError) -> Option<bool> {
        // Relaxed: a fact about the runtime that never changes once it is known.
        let known = self.not_ready.load(Ordering::Relaxed);
        if !last_error.may_fail() && known != not_ready::NOT_KEPT {
            return None;
        }
        // SAFETY: the event is capture's own.
        let result = unsafe { runtime::event_query(event as *mut _) };
        if result == NOT_READY && known == not_ready::UNKNOWN {
            // SAFETY: the call has no preconditions.
            let kept = unsafe { runtime::peek_last_error() } == NOT_READY;
            let learnt = if kept { not_ready::KEPT } else { not_ready::NOT_KEPT };
            self.not_ready.store(learnt, Ordering::Relaxed);
        }
        Some(result == 0)
    }
}

fn hash(buffer: &Buffer) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    for piece in buffer.pieces() {
        hasher.update(piece);
    }
    hasher.finalize()
}

impl State {
    /// Takes results out of the list.
    fn take(&mut self, wanted: impl Fn(&Pending) -> bool) {
        let (taken, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.pending).into_iter().partition(|pending| wanted(pending));
        self.pending = kept;
        for pending in &taken {
            self.free(pending);
        }
        if self.pending.is_empty() {
            // What is known of the order of events only matters for copies before them.
            self.order.clear();
        }
        self.publish_count();
    }

    fn free(&mut self, pending: &Pending) {
        self.events.entry(pending.device).or_default().push(pending.event);
    }

    fn publish_count(&self) {
        // Release: whoever sees the new count without the lock sees that this thread is done with the results it took.
        PENDING.store(self.pending.len(), Ordering::Release);
    }
}
