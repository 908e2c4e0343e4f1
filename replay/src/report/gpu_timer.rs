//! Times of kernels, graphs and copies by events around them, without serialising the streams.
//!
//! A runner records one event before and one after the call, taken from a pool, and sends the pair to the resolver, a thread
//! of its own. That reads the times once the work is complete and gives the pair back. No call of the replay waits for it.
//! For a timeline it also keeps when each piece of work began, by one event of each device whose time on the host is known.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crossbeam::channel::{Receiver, Sender, bounded, unbounded};
use rustc_hash::FxHashMap;

use hrr_format::catalogue::Api;
use hrr_perf::histogram::CallHistogram;

use super::clock::Clock;
use super::note::{StreamLabel, Work};
use crate::instruction::NOT_READY;
use crate::machine::runtime::Runtime;
use crate::thunk::{THUNKS, Thunk};
use crate::trace::MOST_TAKEN;
use crate::triage::own_calls;

/// Pairs of events made ahead for each device.
const PAIRS_AHEAD: usize = 512;
/// Pairs in use before the resolver looks at them while the run goes on: it calls the runtime, which the run does too.
const PATIENCE: usize = 256;
/// How long the resolver leaves work alone that was not complete when it looked.
const POLL: Duration = Duration::from_micros(500);
/// Pairs with nothing between them, to measure what a pair itself takes.
const FLOOR_SAMPLES: usize = 31;
/// Times an event is recorded and waited for to learn when, by the host's clock, it happened; the quickest counts.
const ORIGIN_SAMPLES: usize = 7;
/// `hipEventDisableSystemFence`: the event does not make memory visible to the host, which costs the device time.
const DISABLE_SYSTEM_FENCE: u64 = 0x2000_0000;

/// Two events around a piece of work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    start: u64,
    stop: u64,
}

/// Work that has been enqueued between two events.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) pair: Pair,
    pub(crate) stream: StreamLabel,
    pub(crate) work: Work,
    /// Event number of the call that enqueued it.
    pub(crate) event: u64,
}

/// A piece of work, as a timeline shows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) event: u64,
    pub(crate) stream: StreamLabel,
    pub(crate) work: Work,
    /// Nanoseconds since the device's origin.
    pub(crate) begin_ns: f64,
    pub(crate) duration_ns: f64,
}

/// Whether a run is kept for a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Sums only.
    Sums,
    /// Each piece of work too.
    Spans,
}

/// One stream's use of its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamUse {
    pub(crate) operations: u64,
    pub(crate) busy_ns: u64,
    pub(crate) idle_ns: u64,
    pub(crate) longest_gap_ns: u64,
}

/// What the events of one run said.
#[derive(Debug, Default)]
pub(crate) struct Resolved {
    pub(crate) works: FxHashMap<Work, CallHistogram>,
    pub(crate) streams: FxHashMap<StreamLabel, StreamUse>,
    pub(crate) timed: u64,
    pub(crate) untimed: u64,
    /// Each piece of work, where that was asked for.
    pub(crate) spans: Vec<Span>,
    pub(crate) spans_left_out: u64,
    /// Tick of the host's clock at each device's origin.
    pub(crate) origins: Vec<(i32, u64)>,
}

enum Message {
    Pending(Pending),
    /// An event of a device that happened at this tick: work is to be kept, counted from there.
    Origin {
        device: i32,
        event: u64,
        tick: u64,
    },
    /// The devices are idle: everything can be read.
    Finish(Sender<Resolved>),
}

/// The five event calls.
#[derive(Clone, Copy, Debug)]
struct Events {
    create: Entry,
    record: Entry,
    query: Entry,
    synchronize: Entry,
    elapsed: Entry,
    destroy: Entry,
    take_last_error: Entry,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    thunk: Thunk,
    function: *const c_void,
}

// SAFETY: the address of code in a library that is never unloaded.
unsafe impl Send for Entry {}
// SAFETY: as above.
unsafe impl Sync for Entry {}

impl Entry {
    fn find(runtime: &Runtime, name: &str) -> Option<Entry> {
        let api = Api::by_name(name)?;
        Some(Entry { thunk: THUNKS[usize::from(api.id)], function: runtime.entry_point(api)? })
    }

    /// # Safety
    /// `words` are arguments that the entry point takes, as many as it takes.
    unsafe fn call(self, words: &[u64]) -> i32 {
        // SAFETY: thunk and entry point belong together, and the caller vouches for the words.
        unsafe { (self.thunk)(self.function, words.as_ptr()) }.code
    }
}

impl Events {
    fn find(runtime: &Runtime) -> Option<Events> {
        Some(Events {
            create: Entry::find(runtime, "hipEventCreateWithFlags")?,
            record: Entry::find(runtime, "hipEventRecord")?,
            query: Entry::find(runtime, "hipEventQuery")?,
            synchronize: Entry::find(runtime, "hipEventSynchronize")?,
            elapsed: Entry::find(runtime, "hipEventElapsedTime")?,
            destroy: Entry::find(runtime, "hipEventDestroy")?,
            take_last_error: Entry::find(runtime, "hipGetLastError")?,
        })
    }

    fn create(&self) -> Option<u64> {
        [DISABLE_SYSTEM_FENCE, 0].into_iter().find_map(|flags| {
            let mut event = 0u64;
            // SAFETY: the first argument points to a handle that outlives the call.
            let code = unsafe { self.create.call(&[&raw mut event as u64, flags]) };
            (code == 0 && event != 0).then_some(event)
        })
    }

    fn pair(&self) -> Option<Pair> {
        Some(Pair { start: self.create()?, stop: self.create()? })
    }

    fn record(&self, event: u64, stream: u64) -> bool {
        // SAFETY: an event of ours and a live stream.
        let recorded = unsafe { self.record.call(&[event, stream]) == 0 };
        if !recorded {
            // What failed was no call of the program, which must not find it as its last error.
            // SAFETY: the call takes no arguments.
            unsafe { self.take_last_error.call(&[]) };
        }
        recorded
    }

    fn is_complete(&self, event: u64) -> bool {
        // SAFETY: an event of ours.
        unsafe { self.query.call(&[event]) != NOT_READY }
    }

    fn synchronize(&self, event: u64) {
        // SAFETY: an event of ours.
        let _ = unsafe { self.synchronize.call(&[event]) };
    }

    /// Nanoseconds between two events, negative where the second came first.
    fn elapsed_ns(&self, from: u64, to: u64) -> Option<f64> {
        let mut milliseconds = 0f32;
        // SAFETY: two events of ours, and a float that outlives the call.
        let code = unsafe { self.elapsed.call(&[&raw mut milliseconds as u64, from, to]) };
        (code == 0 && milliseconds.is_finite()).then_some(f64::from(milliseconds) * 1e6)
    }

    fn destroy(&self, event: u64) {
        // SAFETY: an event of ours that nothing uses any more.
        let _ = unsafe { self.destroy.call(&[event]) };
    }
}

/// Gives out pairs of events, and has them read.
#[derive(Debug)]
pub(crate) struct GpuTimer {
    events: Events,
    pool: Arc<Pool>,
    sender: Sender<Message>,
    /// Pieces of work that had no events around them.
    untimed: AtomicU64,
    /// Nanoseconds that a pair with nothing between it shows.
    floor_ns: AtomicU64,
}

/// Pairs that are free, by device.
type Pool = Mutex<FxHashMap<i32, Vec<Pair>>>;

impl GpuTimer {
    /// A timer on this runtime, or `None` where it lacks events.
    pub(crate) fn start(runtime: &Arc<Runtime>) -> Option<Arc<GpuTimer>> {
        let events = Events::find(runtime)?;
        let pool: Arc<Pool> = Arc::default();
        let (sender, receiver) = unbounded();
        let mut resolver = Resolver {
            events,
            pool: Arc::clone(&pool),
            pending: VecDeque::new(),
            last: FxHashMap::default(),
            origins: FxHashMap::default(),
            resolved: Resolved::default(),
        };
        std::thread::Builder::new().name("hrr-events".into()).spawn(move || resolver.run(&receiver)).ok()?;
        Some(Arc::new(GpuTimer { events, pool, sender, untimed: AtomicU64::new(0), floor_ns: AtomicU64::new(0) }))
    }

    /// Prepares a run on these devices, which are idle.
    pub(crate) fn begin(&self, runtime: &Runtime, devices: &[i32], keep: Keep) {
        let mut floors = Vec::new();
        for &device in devices {
            if runtime.set_device(device).is_err() {
                continue;
            }
            if keep == Keep::Spans
                && let Some((event, tick)) = self.origin()
            {
                let _ = self.sender.send(Message::Origin { device, event, tick });
            }
            let missing = {
                let pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
                PAIRS_AHEAD.saturating_sub(pool.get(&device).map_or(0, Vec::len))
            };
            let made: Vec<Pair> = (0..missing).map_while(|_| self.events.pair()).collect();
            floors.extend(made.iter().take(FLOOR_SAMPLES).filter_map(|pair| self.floor_of(*pair)));
            self.pool.lock().unwrap_or_else(PoisonError::into_inner).entry(device).or_default().extend(made);
        }
        if !floors.is_empty() {
            floors.sort_by(f64::total_cmp);
            // Relaxed: read after the run.
            self.floor_ns.store(floors[floors.len() / 2].max(0.0) as u64, Ordering::Relaxed);
        }
    }

    /// An event on the current, idle device, and the tick of the host's clock at which it happened, as nearly as can be told.
    fn origin(&self) -> Option<(u64, u64)> {
        let clock = Clock::get();
        let mut best: Option<(u64, u64, u64)> = None;
        for _ in 0..ORIGIN_SAMPLES {
            let event = self.events.create()?;
            let before = clock.now();
            let recorded = self.events.record(event, 0);
            self.events.synchronize(event);
            let took = clock.now().saturating_sub(before);
            match best {
                Some((.., shortest)) if !recorded || took >= shortest => self.events.destroy(event),
                _ if !recorded => self.events.destroy(event),
                _ => {
                    if let Some((worse, ..)) = best.replace((event, before + took / 2, took)) {
                        self.events.destroy(worse);
                    }
                }
            }
        }
        best.map(|(event, tick, _)| (event, tick))
    }

    fn floor_of(&self, pair: Pair) -> Option<f64> {
        let recorded = self.events.record(pair.start, 0) && self.events.record(pair.stop, 0);
        self.events.synchronize(pair.stop);
        recorded.then(|| self.events.elapsed_ns(pair.start, pair.stop)).flatten()
    }

    /// Nanoseconds that a pair with nothing between it shows.
    pub(crate) fn floor_ns(&self) -> u64 {
        // Relaxed: written before the run.
        self.floor_ns.load(Ordering::Relaxed)
    }

    /// Records a start event on `stream`. `at_hand` are the runner's own free pairs; `device` is current.
    pub(crate) fn before(&self, at_hand: &mut Vec<(i32, Pair)>, device: i32, stream: u64) -> Option<Pair> {
        /// Pairs fetched from the pool at once.
        const FETCHED: usize = 32;
        let found = at_hand.iter().rposition(|(of, _)| *of == device);
        let pair = match found {
            Some(position) => Some(at_hand.swap_remove(position).1),
            None => {
                let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
                let free = pool.entry(device).or_default();
                let kept = free.len().saturating_sub(FETCHED);
                at_hand.extend(free.drain(kept..).map(|pair| (device, pair)));
                drop(pool);
                match at_hand.iter().rposition(|(of, _)| *of == device) {
                    Some(position) => Some(at_hand.swap_remove(position).1),
                    // The resolver is behind: more pairs, rather than a wait.
                    None => self.events.pair(),
                }
            }
        };
        match pair {
            Some(pair) if self.events.record(pair.start, stream) => Some(pair),
            pair => {
                at_hand.extend(pair.map(|pair| (device, pair)));
                self.skip();
                None
            }
        }
    }

    /// Records the stop event and has the pair read.
    pub(crate) fn after(&self, at_hand: &mut Vec<(i32, Pair)>, pending: Pending, stream: u64) {
        if self.events.record(pending.pair.stop, stream) {
            let _ = self.sender.send(Message::Pending(pending));
        } else {
            at_hand.push((pending.stream.device, pending.pair));
            self.skip();
        }
    }

    /// Counts work that has no events around it.
    pub(crate) fn skip(&self) {
        // Relaxed: a statistic.
        self.untimed.fetch_add(1, Ordering::Relaxed);
    }

    /// What the events said, once the devices are idle.
    pub(crate) fn finish(&self) -> Resolved {
        let _watched = own_calls::enter_work("reading the times of kernels and copies");
        let (sender, receiver) = bounded(1);
        let _ = self.sender.send(Message::Finish(sender));
        let mut resolved = receiver.recv().unwrap_or_default();
        resolved.untimed += self.untimed.swap(0, Ordering::Relaxed);
        resolved
    }
}

/// Reads the times of complete work.
struct Resolver {
    events: Events,
    pool: Arc<Pool>,
    pending: VecDeque<Pending>,
    /// The events of each stream's last piece of work, and when it began, where that is kept.
    last: FxHashMap<StreamLabel, (Pair, f64)>,
    /// Each device's origin, where work is kept.
    origins: FxHashMap<i32, u64>,
    resolved: Resolved,
}

impl Resolver {
    fn run(&mut self, messages: &Receiver<Message>) {
        loop {
            let message = if self.pending.len() < PATIENCE {
                match messages.recv() {
                    Ok(message) => message,
                    Err(_) => break,
                }
            } else {
                self.resolve_complete();
                match messages.recv_timeout(POLL) {
                    Ok(message) => message,
                    Err(crossbeam::channel::RecvTimeoutError::Timeout) => continue,
                    Err(crossbeam::channel::RecvTimeoutError::Disconnected) => break,
                }
            };
            match message {
                Message::Pending(pending) => self.pending.push_back(pending),
                Message::Origin { device, event, tick } => {
                    if let Some(before) = self.origins.insert(device, event) {
                        self.events.destroy(before);
                    }
                    self.resolved.origins.push((device, tick));
                }
                Message::Finish(done) => {
                    let _ = done.send(self.finish());
                }
            }
        }
        for pair in self.pool.lock().unwrap_or_else(PoisonError::into_inner).drain().flat_map(|(_, pairs)| pairs) {
            self.events.destroy(pair.start);
            self.events.destroy(pair.stop);
        }
    }

    fn resolve_complete(&mut self) {
        while let Some(pending) = self.pending.front().copied() {
            if !self.events.is_complete(pending.pair.stop) {
                return;
            }
            self.pending.pop_front();
            self.resolve(pending);
        }
    }

    fn resolve(&mut self, pending: Pending) {
        own_calls::pulse();
        let Pending { pair, stream, work, .. } = pending;
        let Some(duration_ns) = self.events.elapsed_ns(pair.start, pair.stop).map(|ns| ns.max(0.0)) else {
            self.resolved.untimed += 1;
            self.free(stream.device, pair);
            return;
        };
        self.resolved.timed += 1;
        self.resolved.works.entry(work).or_default().record(duration_ns as u64);
        let begin_ns = self.keep_span(pending, duration_ns);
        let stream_use = self.resolved.streams.entry(stream).or_default();
        stream_use.operations += 1;
        stream_use.busy_ns += duration_ns as u64;
        if let Some((before, _)) = self.last.insert(stream, (pair, begin_ns)) {
            let gap_ns = self.events.elapsed_ns(before.stop, pair.start).unwrap_or(0.0).max(0.0) as u64;
            stream_use.idle_ns += gap_ns;
            stream_use.longest_gap_ns = stream_use.longest_gap_ns.max(gap_ns);
            self.free(stream.device, before);
        }
    }

    /// Keeps a piece of work where that was asked for. When it began, or zero where that is not known.
    ///
    /// A time between two events is told as a 32-bit float, which is coarse over a long time. So it is taken from the
    /// stream's last piece of work, and from the origin only for its first.
    fn keep_span(&mut self, pending: Pending, duration_ns: f64) -> f64 {
        let Pending { pair, stream, work, event } = pending;
        let Some(&origin) = self.origins.get(&stream.device) else { return 0.0 };
        let since = match self.last.get(&stream) {
            Some((before, began_ns)) => {
                self.events.elapsed_ns(before.start, pair.start).map(|ns| began_ns + ns.max(0.0))
            }
            None => self.events.elapsed_ns(origin, pair.start),
        };
        let Some(begin_ns) = since else {
            self.resolved.spans_left_out += 1;
            return self.last.get(&stream).map_or(0.0, |(_, began_ns)| *began_ns);
        };
        if self.resolved.spans.len() < MOST_TAKEN {
            self.resolved.spans.push(Span { event, stream, work, begin_ns, duration_ns });
        } else {
            self.resolved.spans_left_out += 1;
        }
        begin_ns
    }

    fn finish(&mut self) -> Resolved {
        while let Some(pending) = self.pending.pop_front() {
            self.events.synchronize(pending.pair.stop);
            self.resolve(pending);
        }
        for (stream, (pair, _)) in std::mem::take(&mut self.last) {
            self.free(stream.device, pair);
        }
        for (_, origin) in self.origins.drain() {
            self.events.destroy(origin);
        }
        std::mem::take(&mut self.resolved)
    }

    fn free(&self, device: i32, pair: Pair) {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner).entry(device).or_default().push(pair);
    }
}
