//! Waits, found beside the laying out of calls.
//!
//! The walk along the timeline tells, step by step, which calls were entered and have returned; the instruction of a call
//! meanwhile holds a placeholder where its waits will be. The steps are gone over in the same order, on a thread of their
//! own where there is a core for it, and a chunk comes out once its placeholders have given way to the waits. What is found
//! does not depend on which thread finds it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::JoinHandle;

use crossbeam::channel::{Receiver, Sender, bounded, unbounded};
use rustc_hash::FxHashMap;

use hrr_format::archive::Archive;
use hrr_format::stream_file::StreamFile;

use super::dependency::CallFacts;
use super::{Node, Order, OrderMode};
use crate::instruction::{Account, Chunk, Range, Wait};
use crate::plan::account::IssuedCalls;

/// Steps told together.
const BATCH_STEPS: usize = 1024;
/// Batches under way before the walk waits for the edges: their facts and chunks are what planning holds beyond its budget.
const BATCHES: usize = 8;

/// On how many threads planning works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hands {
    /// On the calling thread alone.
    One,
    /// Reading, laying out and edges each on one of their own.
    Several,
}

impl Hands {
    /// What suits an archive of so many bytes of records: threads of their own cost more than they bring for a small one,
    /// and on a machine of one core.
    pub(crate) fn for_archive(archive: &Archive) -> Self {
        /// Records of some ten thousand calls, which take milliseconds.
        const WORTH_BYTES: u64 = 1 << 20;
        let used_bytes = |stream: &StreamFile| match stream.header().used_bytes {
            0 => stream.len_bytes(),
            used => used,
        };
        let record_bytes: u64 = archive.streams().iter().map(used_bytes).sum();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        if cores > 1 && record_bytes > WORTH_BYTES { Hands::Several } else { Hands::One }
    }
}

/// A call that was entered and will be issued.
#[derive(Debug)]
pub(crate) struct Entered {
    /// Captured thread.
    pub(crate) lane: u32,
    /// Its entry tick.
    pub(crate) begin: u64,
    /// Its return tick, not before `begin`.
    pub(crate) end: u64,
    /// Progress of the captured thread once it has returned.
    pub(crate) count: u64,
    /// The stream it enqueues on without blocking; 0 = none.
    pub(crate) stream: u32,
    /// The same, where it surely does not wait for the device.
    pub(crate) in_order_on: u32,
    /// Whether another runner makes it.
    pub(crate) handed_off: bool,
    /// What stands for its waits.
    pub(crate) placeholder: Wait,
}

/// What the walk tells, in its order.
#[derive(Debug)]
enum Step {
    /// A call was entered. Capture order asks for no facts.
    Entered(Entered, Option<Box<CallFacts>>),
    /// An instruction of replay's own stands behind the call of this captured thread that has just returned.
    Behind { lane: u32, count: u64, placeholder: Wait },
    /// The call that a captured thread was in has returned.
    Returned { lane: u32 },
    /// The next chunk of a worker is full.
    Full { worker: usize, chunk: Box<Chunk> },
}

/// Steps on their way, or memory for more of them.
#[derive(Debug, Default)]
struct Batch {
    steps: Vec<Step>,
    /// Facts whose memory can be used again.
    #[expect(clippy::vec_box, reason = "facts travel with their calls; moving a box is cheap")]
    spare: Vec<Box<CallFacts>>,
}

/// What the edges came to.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    /// Waits between workers.
    pub(crate) waits: u64,
    /// Pairs of calls that overlapped at capture on one stream.
    pub(crate) unordered: u64,
    /// Calls with an instruction in a chunk that came out.
    pub(crate) issued: IssuedCalls,
}

/// What the edges are told once.
#[derive(Clone, Debug)]
pub(crate) struct EdgeSettings {
    pub(crate) mode: OrderMode,
    /// Worker of each captured thread.
    pub(crate) worker_of: Vec<u32>,
    /// Number of workers.
    pub(crate) workers: usize,
    /// Under a mutation: whether the waits that are found are thrown away.
    pub(crate) keep: Keep,
    /// Counts the plan memory in use.
    pub(crate) plan_bytes: Arc<AtomicU64>,
}

/// What becomes of the waits that are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// They are waited for.
    All,
    /// None is, which a check must notice.
    None,
}

/// The waits that were found for the instructions of a worker's next chunk.
#[derive(Debug, Default)]
struct Found {
    /// Placeholders by ascending number, with their part of `waits`.
    parts: Vec<(u64, Range)>,
    waits: Vec<Wait>,
}

/// Goes over the steps.
#[derive(Debug)]
struct Edges {
    order: Order,
    settings: EdgeSettings,
    /// The call that each captured thread is in.
    open: Vec<Option<(Node, Option<Box<CallFacts>>)>>,
    /// The last enqueue on each stream object that surely does not wait for the device: its captured thread, and its place among all calls.
    last_enqueue: FxHashMap<u32, (u32, u64)>,
    /// By worker.
    found: Vec<Found>,
    /// What capture order is given for facts.
    no_facts: Box<CallFacts>,
    totals: Totals,
}

// SAFETY: what is not `Send` are the counted references of `Knowledge` and the points it gives out. They are made in `order`, and
// kept in `order` and `open` alone: what a step takes in and gives out, calls, facts, chunks and totals, has none. So whoever has
// this value has every reference to what they count, and no two threads ever count at once.
unsafe impl Send for Edges {}

impl Edges {
    fn new(settings: EdgeSettings) -> Self {
        Edges {
            order: Order::new(settings.mode, settings.worker_of.clone()),
            open: settings.worker_of.iter().map(|_| None).collect(),
            last_enqueue: FxHashMap::default(),
            found: (0..settings.workers).map(|_| Found::default()).collect(),
            no_facts: Box::default(),
            totals: Totals::default(),
            settings,
        }
    }

    /// Goes over a step. Returns a chunk that is ready with its worker.
    fn take(&mut self, step: Step) -> Option<(usize, Chunk)> {
        match step {
            Step::Entered(call, facts) => self.entered(&call, facts),
            Step::Behind { lane, count, placeholder } => {
                let first = self.open_part(lane);
                let waits = &mut self.found[self.settings.worker_of[lane as usize] as usize].waits;
                self.order.after_own(lane, waits);
                self.close_part(lane, placeholder, first);
                let point = self.order.issued(lane, count, false);
                // What comes after that call comes after this too.
                self.order.prolong(lane, point);
            }
            Step::Returned { lane } => {
                if let Some((node, facts)) = self.open[lane as usize].take() {
                    self.order.end(node, facts);
                }
            }
            Step::Full { worker, chunk } => return Some((worker, self.fill_in(worker, *chunk))),
        }
        None
    }

    fn entered(&mut self, call: &Entered, mut facts: Option<Box<CallFacts>>) {
        // Two enqueues that overlapped are in truth unordered: they are issued in the order they were entered, unless the
        // first is a copy that may wait for the device.
        let last = (call.stream != 0).then(|| self.last_enqueue.get(&call.stream)).flatten();
        let overlapping = last.filter(|(lane, _)| *lane != call.lane).and_then(|&(lane, number)| {
            let (node, _) = self.open[lane as usize].as_ref()?;
            (node.point.number == number).then_some(node)
        });
        self.totals.unordered += u64::from(overlapping.is_some());
        let overlaps = overlapping.is_some() && call.in_order_on != 0;
        let known = facts.as_mut().unwrap_or(&mut self.no_facts);
        let found = &mut self.found[self.settings.worker_of[call.lane as usize] as usize];
        let first = found.waits.len();
        self.order.begin(call.lane, call.begin, known, overlapping, &mut found.waits);
        self.close_part(call.lane, call.placeholder, first);
        let point = self.order.issued(call.lane, call.count, call.handed_off);
        if call.in_order_on != 0 {
            self.last_enqueue.insert(call.in_order_on, (call.lane, point.number));
        }
        let node = Node { point, begin: call.begin, end: call.end, in_order_on: call.in_order_on, overlaps };
        self.open[call.lane as usize] = Some((node, facts));
    }

    fn open_part(&self, lane: u32) -> usize {
        self.found[self.settings.worker_of[lane as usize] as usize].waits.len()
    }

    /// The waits from `first` on are those of `placeholder`.
    fn close_part(&mut self, lane: u32, placeholder: Wait, first: usize) {
        let found = &mut self.found[self.settings.worker_of[lane as usize] as usize];
        if self.settings.keep == Keep::None {
            found.waits.truncate(first);
        }
        let count = (found.waits.len() - first) as u32;
        if count > 0 {
            found.parts.push((placeholder.count, Range { first: first as u32, count }));
        }
    }

    /// Puts the waits that were found in the place of a chunk's placeholders.
    fn fill_in(&mut self, worker: usize, mut chunk: Chunk) -> Chunk {
        let found = &mut self.found[worker];
        let placed = std::mem::take(&mut chunk.waits);
        // The next chunk will likely take as many.
        let room = Vec::with_capacity(found.waits.len());
        chunk.waits = std::mem::replace(&mut found.waits, room);
        let mut parts = found.parts.drain(..).peekable();
        // Placeholders of calls that came to nothing have no instruction.
        let mut part = |number| {
            while parts.next_if(|(part, _)| *part < number).is_some() {}
            parts.peek().filter(|(part, _)| *part == number).map_or(Range::default(), |(_, range)| *range)
        };
        for instruction in &mut chunk.instructions {
            instruction.waits = match *instruction.waits.of(&placed) {
                [] => Range::default(),
                [Wait { lane: Wait::NO_LANE, count: number }] => part(number),
                ref several => {
                    let first = chunk.waits.len();
                    for wait in several {
                        match wait.placeholder() {
                            Some(number) => chunk.waits.extend_from_within(part(number).indices()),
                            None => chunk.waits.push(*wait),
                        }
                    }
                    Range { first: first as u32, count: (chunk.waits.len() - first) as u32 }
                }
            };
        }
        self.totals.issued.count(&chunk);
        chunk.account = Some(Account::open(&self.settings.plan_bytes, chunk.size_bytes() as u64));
        chunk
    }

    fn totals(mut self) -> Totals {
        self.totals.waits = self.order.emitted;
        self.totals
    }
}

/// The walk's side: tells the steps, and is given the chunks.
#[derive(Debug)]
pub(crate) struct EdgeFinder {
    mode: OrderMode,
    batch: Batch,
    placeholders: u64,
    /// Chunks told and not yet taken out.
    under_way: usize,
    way: Way,
}

/// Where the steps are gone over.
#[derive(Debug)]
enum Way {
    Here {
        edges: Box<Edges>,
        ready: VecDeque<(usize, Chunk)>,
    },
    Beside {
        steps: Sender<Batch>,
        used: Receiver<Batch>,
        ready: Receiver<(usize, Chunk)>,
        thread: JoinHandle<Totals>,
    },
    /// Nowhere any more.
    Over,
}

impl EdgeFinder {
    /// Finds the edges on the calling thread or on one of their own; on the former, too, where no other can be had.
    pub(crate) fn new(settings: EdgeSettings, hands: Hands) -> Self {
        let mode = settings.mode;
        let beside = (hands == Hands::Several).then(|| Self::start(settings.clone())).flatten();
        let way = beside.unwrap_or_else(|| Way::Here { edges: Box::new(Edges::new(settings)), ready: VecDeque::new() });
        EdgeFinder { mode, batch: Batch::default(), placeholders: 0, under_way: 0, way }
    }

    fn start(settings: EdgeSettings) -> Option<Way> {
        let (steps, on_steps) = bounded::<Batch>(BATCHES);
        let (give_back, used) = unbounded();
        let (give_chunk, ready) = unbounded();
        let work = move || {
            let mut edges = Edges::new(settings);
            for mut batch in on_steps {
                for step in batch.steps.drain(..) {
                    if let Some(chunk) = edges.take(step) {
                        // A walk that has ended early takes no more.
                        let _ = give_chunk.send(chunk);
                    }
                }
                edges.order.take_spare(&mut batch.spare);
                // As above.
                let _ = give_back.send(batch);
            }
            edges.totals()
        };
        let thread = std::thread::Builder::new().name("hrr-edges".to_owned()).spawn(work).ok()?;
        Some(Way::Beside { steps, used, ready, thread })
    }

    /// Empty facts to fill in for a call.
    pub(crate) fn facts(&mut self) -> Box<CallFacts> {
        if let (true, Way::Here { edges, .. }) = (self.batch.spare.is_empty(), &mut self.way) {
            edges.order.take_spare(&mut self.batch.spare);
        }
        self.batch.spare.pop().unwrap_or_default()
    }

    /// Takes back facts that were not needed.
    pub(crate) fn recycle(&mut self, mut facts: Box<CallFacts>) {
        facts.clear();
        self.batch.spare.push(facts);
    }

    /// What stands for the waits of the next call, among those of its first instruction.
    pub(crate) fn placeholder(&mut self) -> Wait {
        self.placeholders += 1;
        Wait::placeholder_of(self.placeholders)
    }

    /// A call was entered.
    pub(crate) fn entered(&mut self, call: Entered, facts: Box<CallFacts>) {
        let facts = match self.mode {
            OrderMode::Capture => {
                self.recycle(facts);
                None
            }
            OrderMode::Deps | OrderMode::Program => Some(facts),
        };
        self.tell(Step::Entered(call, facts));
    }

    /// An instruction of replay's own, which brings its captured thread to `count`, stands behind the thread's call that has
    /// just returned. Nothing was entered since.
    pub(crate) fn behind(&mut self, lane: u32, count: u64, placeholder: Wait) {
        self.tell(Step::Behind { lane, count, placeholder });
    }

    /// The call that a captured thread was in has returned.
    pub(crate) fn returned(&mut self, lane: u32) {
        self.tell(Step::Returned { lane });
    }

    /// The next chunk of a worker is full.
    pub(crate) fn full(&mut self, worker: usize, chunk: Chunk) {
        self.under_way += 1;
        self.tell(Step::Full { worker, chunk: Box::new(chunk) });
        self.send();
    }

    fn tell(&mut self, step: Step) {
        match &mut self.way {
            Way::Here { edges, ready } => ready.extend(edges.take(step)),
            Way::Beside { .. } => {
                self.batch.steps.push(step);
                if self.batch.steps.len() >= BATCH_STEPS {
                    self.send();
                }
            }
            Way::Over => {}
        }
    }

    fn send(&mut self) {
        if let Way::Beside { steps, used, .. } = &self.way {
            let mut next = used.try_recv().unwrap_or_default();
            next.spare.append(&mut self.batch.spare);
            let batch = std::mem::replace(&mut self.batch, next);
            // The other side ends only after this one has hung up.
            let _ = steps.send(batch);
        }
    }

    /// Gives each chunk that is ready to `deliver`, in the order they were full; all that are under way, where `whole`.
    pub(crate) fn take_ready(&mut self, whole: Whole, mut deliver: impl FnMut(usize, Chunk)) {
        if whole == Whole::All {
            self.send();
        }
        match &mut self.way {
            Way::Here { ready, .. } => {
                self.under_way = 0;
                ready.drain(..).for_each(|(worker, chunk)| deliver(worker, chunk));
            }
            Way::Beside { ready, .. } => {
                while self.under_way > 0 {
                    let next = match whole {
                        Whole::All => ready.recv().ok(),
                        Whole::WhatIsReady => ready.try_recv().ok(),
                    };
                    let Some((worker, chunk)) = next else { break };
                    self.under_way -= 1;
                    deliver(worker, chunk);
                }
            }
            Way::Over => {}
        }
    }

    /// Ends, once everything was taken out.
    pub(crate) fn end(&mut self) -> Totals {
        match std::mem::replace(&mut self.way, Way::Over) {
            Way::Here { edges, .. } => edges.totals(),
            Way::Beside { steps, thread, .. } => {
                drop(steps);
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            }
            Way::Over => Totals::default(),
        }
    }
}

impl Drop for EdgeFinder {
    fn drop(&mut self) {
        if let Way::Beside { steps, thread, .. } = std::mem::replace(&mut self.way, Way::Over) {
            drop(steps);
            // Planning failed before: what the edges came to is not asked for.
            let _ = thread.join();
        }
    }
}

/// Which chunks are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whole {
    /// Those that are ready.
    WhatIsReady,
    /// All.
    All,
}
