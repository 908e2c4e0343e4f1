//! Planning: from the streams of an archive to sequences of instructions, one per worker.
//!
//! * [`timeline`]: all calls as entries and returns, merged over the captured threads
//! * [`objects`]: what is live at each moment, and the slot it will have at replay
//! * [`address`]: which allocation an address lies in
//! * [`order`], [`dependency`], [`visibility`], [`knowledge`]: what each call must wait for
//! * [`lower`], [`launch`], [`special`]: a call's arguments, laid out with the words to patch
//! * [`nested`]: what structs point to
//! * [`own_thread`]: what HIP keeps for each OS thread
//! * [`bounds`]: nothing of that reaches past the memory laid out for it
//! * [`kernel_room`]: room for what kernels really take
//! * [`draft`]: an instruction in the making
//! * [`placed`]: memory that lies where it did, and what is found in uploads where some does not
//! * [`kernel_choice`]: kernels left out or replaced
//! * [`coverage`]: when staged host memory may be used again
//! * [`escort`]: what goes with calls for triage
//! * [`annotate`]: what measuring runs need to know
//! * [`teardown`]: what is left to destroy when the archive ends

pub(crate) mod address;
pub mod annotate;
pub(crate) mod bounds;
pub(crate) mod coverage;
pub(crate) mod dependency;
pub(crate) mod draft;
pub mod error;
pub(crate) mod escort;
pub(crate) mod kernel_choice;
pub(crate) mod kernel_room;
pub(crate) mod knowledge;
pub(crate) mod launch;
pub(crate) mod lower;
pub(crate) mod nested;
pub(crate) mod objects;
pub mod order;
pub(crate) mod own_thread;
pub(crate) mod placed;
pub(crate) mod special;
pub(crate) mod teardown;
pub(crate) mod timeline;
pub(crate) mod visibility;

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam::channel::Sender;
use rustc_hash::FxHashMap;

use hrr_format::archive::Archive;
use hrr_format::catalogue::{APIS, Api, Effect, HandleKind, Policy, Returns, Role};
use hrr_format::record::{Presence, Record, SectionTag, marker};
use hrr_format::stream_file::ContentsMode;

use annotate::{Annotate, Annotations, Position};
use coverage::Coverage;
use dependency::{Fence, Reach, Sync};
use draft::{Draft, Issue};
use error::{PlanError, Refusal};
use escort::TriagePlan;
use kernel_room::KernelRooms;
use lower::{Call, Lowering, word_at};
use objects::{Definition, LaneState, Objects};
use order::{Node, Order, OrderMode};
use special::{HostSide, Special};
use teardown::Teardown;
use timeline::{Point, Timeline};

use crate::choices::Choices;
use crate::instruction::{Account, Chunk, NOT_READY, Wait, flag};
use crate::memory_node::MemoryNode;
use crate::mutation::Mutation;
use crate::placement::Placement;
use crate::runtime::Runtime;
use crate::stage::{HostKind, HostMemory, Shape, StageError};
use crate::thunk::THUNKS;
use crate::triage::own_calls;

/// Instructions after which a chunk is handed to its worker.
const CHUNK_INSTRUCTIONS: usize = 4096;
/// `hipErrorOutOfMemory`.
const OUT_OF_MEMORY: i32 = 2;

/// A device-to-host result to be compared with what was recorded.
#[derive(Clone, Debug)]
pub(crate) struct Check {
    /// Where the live result lies.
    pub(crate) live: usize,
    /// How it lies there.
    pub(crate) shape: Shape,
    /// Blob of the recorded result.
    pub(crate) blob: u64,
    /// The result is there once this holds; `None` = the program never saw it.
    pub(crate) ready: Option<Wait>,
    /// The copy's event number.
    pub(crate) event: u64,
    /// The copy's captured thread.
    pub(crate) lane: u32,
    /// The copy's catalogue id.
    pub(crate) api: u16,
    /// Results of its window that are still to be compared.
    pub(crate) unchecked: Arc<AtomicUsize>,
}

/// Which worker executes which captured threads.
#[derive(Clone, Debug)]
pub(crate) struct Assignment {
    /// Worker of each captured thread.
    pub(crate) worker_of: Vec<u32>,
    /// Number of workers.
    pub(crate) workers: usize,
}

impl Assignment {
    /// One worker per captured thread for `threads` = 0; otherwise at most `threads` workers, each captured thread on the
    /// one with the least recorded so far.
    pub(crate) fn new(archive: &Archive, threads: usize) -> Self {
        let lanes = archive.streams().len();
        if threads == 0 || threads >= lanes {
            return Assignment { worker_of: (0..lanes as u32).collect(), workers: lanes };
        }
        let weight = |lane: usize| {
            let stream = &archive.streams()[lane];
            let used = stream.header().used_bytes;
            if used != 0 { used } else { stream.len_bytes() }
        };
        let mut by_weight: Vec<usize> = (0..lanes).collect();
        by_weight.sort_by_key(|&lane| std::cmp::Reverse(weight(lane)));
        let mut load = vec![0u64; threads];
        let mut worker_of = vec![0; lanes];
        for lane in by_weight {
            let lightest = (0..threads).min_by_key(|&worker| load[worker]).unwrap_or(0);
            load[lightest] += weight(lane);
            worker_of[lane] = lightest as u32;
        }
        Assignment { worker_of, workers: threads }
    }

    /// Whether some worker executes several captured threads.
    pub(crate) fn multiplexed(&self) -> bool {
        self.workers < self.worker_of.len()
    }
}

/// What planning found out, besides the instructions.
#[derive(Debug, Default)]
pub(crate) struct Planned {
    /// Calls of the archive, in flight ones included.
    pub(crate) events: u64,
    /// Instructions of each captured thread.
    pub(crate) lane_totals: Vec<u64>,
    /// Calls left out because they have no effect.
    pub(crate) skipped: u64,
    /// Recorded failures that are not reissued, because a success now would change later calls.
    pub(crate) failures_not_reissued: u64,
    /// Calls that had not returned when the archive ended.
    pub(crate) in_flight: u64,
    /// Waits between workers.
    pub(crate) waits: u64,
    /// Pairs of calls that overlapped at capture on one stream: their order is the order of entry.
    pub(crate) unordered: u64,
    /// Kernel pointer arguments that lie in no live allocation.
    pub(crate) untranslated: u64,
    /// Host callbacks replaced by stubs.
    pub(crate) callbacks: u64,
    /// Times planning went on although the budget was used up, because the run could not go on without it.
    pub(crate) over_budget: u64,
    /// Devices that captured threads use, as they are here.
    pub(crate) devices: Vec<i32>,
    /// Calls that are issued.
    pub(crate) issued: u64,
    /// Device allocations that lie at their recorded addresses.
    pub(crate) placed: u64,
    /// Device allocations that do not.
    pub(crate) not_placed: u64,
    /// Addresses of memory that does not lie where it did, found in uploaded contents, and a description of the first.
    pub(crate) stale: u64,
    pub(crate) first_stale: Option<String>,
    /// Launches left out by the kernel filter.
    pub(crate) filtered: u64,
    /// Launches of replaced kernels.
    pub(crate) replaced: u64,
    /// Pointers that lie in nothing live, named.
    pub(crate) untranslated_lines: Vec<String>,
    /// What destroys the objects that the archive leaves alive.
    pub(crate) teardown: Teardown,
    /// Kernels and graphs launched before the range that is measured.
    pub(crate) prefix_launches: (u64, u64),
    /// The range that is measured was entered.
    pub(crate) range_entered: bool,
    /// The archive goes on behind the range.
    pub(crate) cut: bool,
}

/// A call that has been entered and not yet returned, in the timeline.
#[derive(Debug)]
struct Open {
    node: Option<Node>,
    facts: Box<dependency::CallFacts>,
    definitions: Vec<Definition>,
}

/// The planner: walks the timeline once, in order.
pub(crate) struct Planner<'a> {
    archive: &'a Archive,
    runtime: &'a Runtime,
    assignment: Assignment,
    multiplexed: bool,
    mutation: Option<Mutation>,
    device_count: i32,
    specials: Vec<Special>,
    pub(crate) objects: Objects,
    lanes: Vec<LaneState>,
    open: Vec<Option<Open>>,
    pub(crate) host: HostMemory,
    shadows: BTreeMap<u64, (u64, usize)>,
    images: FxHashMap<u64, usize>,
    kernel_rooms: KernelRooms,
    order: Order,
    /// The chunk each worker's next instruction goes to; `None` while one is laid out there.
    chunks: Vec<Option<Box<Chunk>>>,
    /// Room for the waits of a call.
    waits: Vec<Wait>,
    /// D2H results not yet observed, by blob number.
    pending: FxHashMap<u64, Pending>,
    /// Last enqueue on each stream object.
    last_enqueue: FxHashMap<u32, Node>,
    /// First module that had a kernel of this name (only under a mutation).
    first_module: FxHashMap<Vec<u8>, u64>,
    untranslated: u64,
    pub(crate) planned: Planned,
    coverage: Coverage,
    budget_bytes: u64,
    /// Plan memory in use by chunks that were delivered.
    plan_bytes: Arc<AtomicU64>,
    checks: Sender<Check>,
    pub(crate) choices: Choices,
    pub(crate) placement: Arc<Placement>,
    pub(crate) replaced: Vec<kernel_choice::Replaced>,
    /// Allocations that are placed, by object, with the object that stands for their addresses.
    pub(crate) placed: FxHashMap<u32, u32>,
    /// Objects that stand for ranges of addresses.
    pub(crate) sites: FxHashMap<u64, u32>,
    order_mode: OrderMode,
    /// Per captured thread: parts of launches that are given to the runtime only with the launch.
    put_off: Vec<Vec<Call<'a>>>,
    pub(crate) triage: TriagePlan<'a>,
    annotations: Annotations,
}

#[derive(Clone, Debug)]
enum Pending {
    /// The copy writes to its own place.
    Copy(Check),
    /// A graph writes to host memory at this recorded address.
    Graph { address: u64, len_bytes: u64, check: Check },
}

/// What a planner is told.
pub(crate) struct PlanSettings<'a> {
    pub(crate) archive: &'a Archive,
    pub(crate) runtime: &'a Arc<Runtime>,
    pub(crate) assignment: Assignment,
    pub(crate) order: OrderMode,
    pub(crate) mutation: Option<Mutation>,
    pub(crate) device_count: i32,
    /// Host memory that plan and staging may take, in bytes, before planning waits for the run.
    pub(crate) budget_bytes: u64,
    /// Where D2H results go as they become visible.
    pub(crate) checks: Sender<Check>,
    /// What is done otherwise than recorded.
    pub(crate) choices: Choices,
    /// Memory at recorded addresses.
    pub(crate) placement: Arc<Placement>,
    /// Kernels that take the place of recorded ones.
    pub(crate) replaced: Vec<kernel_choice::Replaced>,
    /// What goes with calls for triage.
    pub(crate) triage: TriagePlan<'a>,
    /// What is to be taken down besides.
    pub(crate) annotate: Annotate,
    /// Where staging memory goes.
    pub(crate) memory_node: MemoryNode,
}

/// What takes the planner's output while it works.
pub(crate) trait Delivery {
    /// A chunk of a worker's sequence, the next in its order.
    fn chunk(&mut self, worker: usize, chunk: Arc<Chunk>);
    /// The budget is used up: the run must begin, or go on, before there can be more.
    fn part_ready(&mut self, devices: &[i32]);
    /// The range that is measured begins with `event`; before it, captured threads have this many instructions each.
    fn range_begins(&mut self, event: u64, lane_totals: &[u64]);
    /// Whether a wait of the run is fulfilled.
    fn done(&self, wait: Wait) -> bool;
    /// Sum of all progress, to see whether the run moves.
    fn moved(&self) -> u64;
    /// Whether the run was stopped, so that planning is pointless.
    fn stopped(&self) -> bool;
}

impl<'a> Planner<'a> {
    pub(crate) fn new(settings: PlanSettings<'a>) -> Self {
        let lanes = settings.archive.streams().len();
        let assignment = settings.assignment;
        Planner {
            archive: settings.archive,
            runtime: settings.runtime,
            multiplexed: assignment.multiplexed(),
            mutation: settings.mutation,
            device_count: settings.device_count,
            specials: APIS.iter().map(Special::of).collect(),
            objects: Objects::new(settings.mutation),
            lanes: vec![LaneState::new(settings.archive); lanes],
            open: (0..lanes).map(|_| None).collect(),
            host: HostMemory::new(Arc::clone(settings.runtime), settings.memory_node),
            shadows: BTreeMap::new(),
            images: FxHashMap::default(),
            kernel_rooms: KernelRooms::default(),
            order: Order::new(settings.order, assignment.worker_of.clone()),
            chunks: (0..assignment.workers).map(|_| Some(Box::default())).collect(),
            waits: Vec::new(),
            assignment,
            pending: FxHashMap::default(),
            last_enqueue: FxHashMap::default(),
            first_module: FxHashMap::default(),
            untranslated: 0,
            planned: Planned::default(),
            coverage: Coverage::default(),
            budget_bytes: settings.budget_bytes,
            plan_bytes: Arc::default(),
            checks: settings.checks,
            choices: settings.choices,
            placement: settings.placement,
            replaced: settings.replaced,
            placed: FxHashMap::default(),
            sites: FxHashMap::default(),
            order_mode: settings.order,
            put_off: vec![Vec::new(); lanes],
            triage: settings.triage,
            annotations: Annotations::new(settings.annotate, lanes),
        }
    }

    /// Plans the whole archive, handing each finished chunk to `delivery`. The planner must outlive the run: instructions
    /// point into its slots and host memory.
    ///
    /// # Errors
    /// The first call that cannot be replayed.
    pub(crate) fn run(&mut self, delivery: &mut impl Delivery) -> Result<(), PlanError> {
        let mut timeline = Timeline::new(self.archive.streams());
        let mut event = 0;
        let mut last_event = vec![0u64; self.lanes.len()];
        loop {
            if let Some(index) = &self.triage.index {
                index.reached(event, &timeline);
            }
            let Some(point) = timeline.next() else { break };
            match point {
                Point::Begin { lane, record } => {
                    let launches = self.archive.api(record.api()).known.is_some_and(annotate::launches_kernel);
                    match self.annotations.position(event, launches) {
                        Position::Over => {
                            self.planned.cut = true;
                            break;
                        }
                        Position::First => {
                            let totals: Vec<u64> = self.lanes.iter().map(|lane| lane.planned).collect();
                            delivery.range_begins(event, &totals);
                        }
                        Position::Before | Position::Inside => {}
                    }
                    let blocks_others = self.blocks_others(&timeline, lane, &record);
                    self.begin(event, lane, record, blocks_others)?;
                    last_event[lane as usize] = event;
                    event += 1;
                }
                Point::End { lane } => self.end(lane),
                Point::Marker { lane, record } => self.marker(last_event[lane as usize], lane, record)?,
            }
            if let Some(worker) = self.full_chunk(&point) {
                own_calls::pulse();
                self.fill(event)?;
                self.deliver(worker, delivery);
                self.throttle(event, delivery)?;
                if delivery.stopped() {
                    break;
                }
            }
        }
        if self.planned.cut {
            // Calls that were entered in the range and returned behind it have returned by the end of the run.
            (0..self.lanes.len() as u32).for_each(|lane| self.end(lane));
        }
        self.deliver_all(event, delivery)?;
        // Results that nothing made visible to the program.
        for (_, pending) in self.pending.drain() {
            let (Pending::Copy(check) | Pending::Graph { check, .. }) = pending;
            // The receiver outlives the planner.
            let _ = self.checks.send(check);
        }
        if let Some(index) = &self.triage.index {
            index.ended(&timeline);
        }
        let in_flight = timeline.in_flight().len() as u64;
        self.planned.events = event + in_flight;
        self.planned.in_flight = in_flight;
        self.planned.lane_totals = self.lanes.iter().map(|lane| lane.planned).collect();
        self.planned.waits = self.order.emitted;
        self.planned.untranslated = self.untranslated;
        self.planned.devices.sort_unstable();
        self.planned.range_entered = self.annotations.is_inside();
        self.planned.teardown = Teardown::of(&self.objects, &self.lanes, self.multiplexed);
        Ok(())
    }

    /// Tells the validator that no result comes after those already sent.
    pub(crate) fn no_more_checks(&mut self) {
        let (closed, _) = crossbeam::channel::bounded(0);
        self.checks = closed;
    }

    fn deliver(&mut self, worker: usize, delivery: &mut impl Delivery) {
        let Some(chunk) = &mut self.chunks[worker] else { return };
        if !chunk.instructions.is_empty() {
            // A worker that has filled one will likely fill another of the same size.
            let next = if chunk.instructions.len() >= CHUNK_INSTRUCTIONS { chunk.as_large() } else { Chunk::default() };
            let mut chunk = std::mem::replace(&mut **chunk, next);
            chunk.account = Some(Account::open(&self.plan_bytes, chunk.size_bytes() as u64));
            delivery.chunk(worker, Arc::new(chunk));
        }
    }

    fn deliver_all(&mut self, event: u64, delivery: &mut impl Delivery) -> Result<(), PlanError> {
        self.fill(event)?;
        for worker in 0..self.chunks.len() {
            self.deliver(worker, delivery);
        }
        Ok(())
    }

    /// Begins a new window of staged memory now and then, and waits for the run where the budget is used up.
    fn throttle(&mut self, event: u64, delivery: &mut impl Delivery) -> Result<(), PlanError> {
        /// Windows that share the budget: the run works on some while the next are staged.
        const WINDOWS: u64 = 8;
        /// A run that has not moved for this long may be waiting for calls that are not planned yet.
        const STALL: Duration = Duration::from_millis(20);
        if self.host.window_bytes() >= self.budget_bytes / WINDOWS {
            self.host.open_window();
        }
        // Relaxed: a bound, not an order.
        let in_use = |planner: &Self| planner.host.in_use_bytes() + planner.plan_bytes.load(Ordering::Relaxed);
        if in_use(self) < self.budget_bytes {
            return Ok(());
        }
        self.deliver_all(event, delivery)?;
        delivery.part_ready(&self.planned.devices);
        let (mut moved, mut since) = (delivery.moved(), Instant::now());
        loop {
            let coverage = &self.coverage;
            self.host.reclaim(|window| !coverage.has_open(window), |wait| delivery.done(wait));
            if in_use(self) < self.budget_bytes || delivery.stopped() {
                return Ok(());
            }
            let now = delivery.moved();
            if now != moved {
                (moved, since) = (now, Instant::now());
            } else if since.elapsed() > STALL {
                self.planned.over_budget += 1;
                return Ok(());
            }
            // The run is watched for itself.
            own_calls::pulse();
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    fn fill(&mut self, event: u64) -> Result<(), PlanError> {
        self.host.fill(self.archive).map_err(|error| PlanError {
            event: event.saturating_sub(1),
            thread: 0,
            api: "staging".to_owned(),
            reason: error.into(),
        })
    }

    fn full_chunk(&self, point: &Point<'_>) -> Option<usize> {
        let (Point::Begin { lane, .. } | Point::End { lane } | Point::Marker { lane, .. }) = *point;
        let worker = self.assignment.worker_of[lane as usize] as usize;
        let chunk = self.chunks[worker].as_deref()?;
        (chunk.instructions.len() >= CHUNK_INSTRUCTIONS).then_some(worker)
    }

    /// Whether another captured thread of the same worker makes a call before this one returns.
    fn blocks_others(&self, timeline: &Timeline<'_>, lane: u32, record: &Record<'_>) -> bool {
        if !self.multiplexed || !self.archive.api(record.api()).known.is_some_and(Api::blocks) {
            return false;
        }
        let worker = self.assignment.worker_of[lane as usize];
        self.assignment.worker_of.iter().enumerate().any(|(other, &of)| {
            of == worker
                && other as u32 != lane
                && timeline.next_begin(other as u32).is_some_and(|begin| begin < record.end())
        })
    }

    fn begin(&mut self, event: u64, lane: u32, record: Record<'a>, blocks_others: bool) -> Result<(), PlanError> {
        let api = self.archive.api(record.api());
        let refuse = |reason: Refusal| PlanError {
            event,
            thread: self.archive.streams()[lane as usize].header().thread,
            api: api.name.to_owned(),
            reason,
        };
        let Some(known) = api.known else {
            return Err(refuse(Refusal::UnknownApi));
        };
        if usize::from(known.words) != record.word_count() {
            let expected = usize::from(known.words);
            return Err(refuse(Refusal::Words { found: record.word_count(), expected }));
        }
        let open = match self.lower_call(event, lane, known, record, blocks_others) {
            Ok(open) => open,
            Err(reason) => {
                return Err(PlanError {
                    event,
                    thread: self.archive.streams()[lane as usize].header().thread,
                    api: known.name.to_owned(),
                    reason,
                });
            }
        };
        self.open[lane as usize] = Some(open);
        Ok(())
    }

    fn lower_call(
        &mut self,
        event: u64,
        lane: u32,
        api: &'static Api,
        record: Record<'a>,
        blocks_others: bool,
    ) -> Result<Open, Refusal> {
        let device = self.lanes[lane as usize].device;
        let call = Call { api, record, event, lane, device };
        let marks = record.flags();
        // A thread enters a window with whatever last error it had.
        self.lanes[lane as usize].last_error_unknown |= marks & hrr_format::record::flag::PREAMBLE != 0;
        if marks & hrr_format::record::flag::REFUSED != 0 {
            return Err(Refusal::Converted(record.note().unwrap_or("no reason is given").to_owned()));
        }
        let left_out = match api.policy {
            _ if marks & hrr_format::record::flag::LEFT_OUT != 0 => {
                self.planned.skipped += 1;
                true
            }
            Policy::Skip(_) => {
                self.planned.skipped += 1;
                true
            }
            Policy::Refuse(reason) if call.succeeded() => return Err(Refusal::Policy(reason)),
            // A refused call that had failed at capture changed nothing; an allocation that had failed may fit now.
            Policy::Refuse(_) => {
                self.planned.failures_not_reissued += 1;
                true
            }
            Policy::Replay | Policy::ReplayAs(_)
                if self.mutation == Some(Mutation::LostWrite) && api.name.starts_with("hipStreamWriteValue") =>
            {
                true
            }
            Policy::Replay | Policy::ReplayAs(_) if self.triage.skips_syncs() && escort::is_device_sync(api) => {
                self.planned.skipped += 1;
                true
            }
            Policy::Replay | Policy::ReplayAs(_) => {
                let not_reissued = record.ret() == OUT_OF_MEMORY
                    || (self.multiplexed && self.specials[usize::from(api.id)] == Special::ExchangeCaptureMode);
                self.planned.failures_not_reissued += u64::from(not_reissued);
                not_reissued
            }
        };
        let filtered = !left_out && self.is_filtered(&call);
        self.planned.filtered += u64::from(filtered);
        let left_out = left_out || filtered;
        if left_out {
            self.lanes[lane as usize].last_error_unknown |= record.ret() != 0;
            return Ok(Open { node: None, facts: self.order.facts(), definitions: Vec::new() });
        }
        let live_device = self.choices.devices.live(device);
        // A program that met no device is replayed where there is none either, as it was: on none.
        if live_device >= self.device_count.max(1) {
            return Err(Refusal::Device { device, count: self.device_count });
        }
        if !self.planned.devices.contains(&live_device) {
            self.planned.devices.push(live_device);
        }
        let worker = self.assignment.worker_of[lane as usize] as usize;
        let mut chunk = self.chunks[worker].take().unwrap_or_default();
        let result = self.emit(&call, &mut chunk, blocks_others);
        self.chunks[worker] = Some(chunk);
        self.planned.issued += u64::from(result.is_ok());
        if matches!(result, Err(Refusal::NotReissued)) {
            self.planned.failures_not_reissued += 1;
            self.lanes[lane as usize].last_error_unknown = true;
            return Ok(Open { node: None, facts: self.order.facts(), definitions: Vec::new() });
        }
        result
    }

    /// Lays the call out and appends it, and what must go with it, to the chunk.
    fn emit(&mut self, call: &Call<'a>, chunk: &mut Chunk, blocks_others: bool) -> Result<Open, Refusal> {
        let (api, record, lane) = (call.api, call.record, call.lane);
        let mut lowering = Lowering::new(self.order.facts());
        let mut waits = std::mem::take(&mut self.waits);
        waits.clear();
        let mut draft = Draft::new(chunk, record.word_count(), record.words());
        // A stream made on the spot waits for nothing.
        let mut before = Vec::new();
        self.lower_arguments(call, chunk, &mut draft, &mut lowering, &mut before)?;
        let issued = self.apply_special(call, &mut draft)?.unwrap_or(api);
        let issued = self.replace_kernel(call, chunk, &mut draft)?.unwrap_or(issued);
        let stand_in = self.stand_in(call, chunk, &mut draft, &mut lowering, &mut before)?;
        self.lower_return(call, &mut draft, &mut lowering);
        let special = self.specials[usize::from(api.id)];
        if lowering.facts.enqueues_on.is_none()
            && matches!(api.effect, Effect::Enqueue | Effect::BlockCopy)
            && api.stream_param().is_none()
        {
            lowering.facts.enqueues_on = Some(self.objects.legacy_stream(call.device));
        }
        lowering.classify(call, special);
        if special == Special::SetDevice && call.succeeded() {
            lowering.definitions.push(Definition::Device(record.word(0) as u32 as i32));
        }
        if self.mutation == Some(Mutation::NameOnlyKernel) && api.name == "hipModuleGetFunction" {
            self.forget_module(call, &mut draft);
        }

        let count = self.lanes[lane as usize].planned + 1;
        let in_order_on = match api.effect {
            Effect::Enqueue => lowering.facts.enqueues_on.map_or(0, |stream| stream.object),
            _ => 0,
        };
        let overlapping = overlapping(&self.last_enqueue, call, in_order_on);
        let overlaps = overlapping.is_some();
        self.planned.unordered += u64::from(overlaps);
        self.order.begin(lane, record.begin(), &mut lowering.facts, overlapping, &mut waits);
        if self.mutation == Some(Mutation::DropEdges) {
            waits.clear();
        }
        /// The call that waits for itself under the mutation: far enough in for others to have begun.
        const SELF_WAIT_AT: u64 = 10;
        if self.mutation == Some(Mutation::SelfWait) && call.event == SELF_WAIT_AT {
            waits.push(Wait { lane, count });
        }
        let end = record.end().max(record.begin());
        let point = self.order.issued(lane, count, blocks_others);
        let node = Node { point, begin: record.begin(), end, in_order_on, overlaps };
        if in_order_on != 0 {
            self.last_enqueue.insert(in_order_on, node.clone());
        }
        self.lanes[lane as usize].planned = count;

        for section in record.sections().map_while(Result::ok) {
            if section.tag == SectionTag::GraphHostIn {
                let (address, blob) =
                    section.host_address().zip(section.blob()).ok_or(Refusal::Lacks { what: "graph host memory" })?;
                if section.presence == Presence::Withheld {
                    return Err(Refusal::Withheld { what: "the host buffer" });
                }
                let shape = Shape::linear(blob.size_bytes);
                let source = self.host.source(self.archive, HostKind::Pageable, blob.number, shape)?;
                self.host.keep_until(self.host.window(), Wait { lane, count });
                let side = HostSide::FillFrom(source);
                self.emit_host_copy(call, chunk, &mut waits, address, blob.size_bytes, side, 0)?;
            }
        }
        self.note_results(call, &lowering)?;
        self.note_coverage(call, &lowering, count);

        let mut flags = 0;
        if blocks_others {
            flags |= flag::HAND_OFF;
        }
        match api.effect {
            Effect::Query if record.ret() == 0 => flags |= flag::REPEAT_UNTIL_SUCCESS,
            Effect::Query if record.ret() == NOT_READY => flags |= flag::NOT_READY_FINE,
            _ => {}
        }
        let launches = |role: &Role| matches!(role, Role::KernelParams | Role::Extra);
        if api.effect == Effect::Enqueue && call.succeeded() {
            if special == Special::GraphLaunch {
                flags |= flag::GRAPH;
            } else if api.param_with(launches).is_some() || api.name.starts_with("hipLaunchByPtr") {
                flags |= flag::KERNEL;
            }
            if api.param_with(|role| matches!(role, Role::Callback)).is_some() {
                self.planned.callbacks += 1;
            }
        }
        flags |= self.last_error_flags(call, special);
        if api.ret == Returns::ChannelDesc || api.ret == Returns::Void {
            flags |= flag::ANY_OUTCOME;
        }
        let device = match self.mutation {
            Some(Mutation::IgnoreDevice) => 0,
            _ if special == Special::SetDevice => -1,
            _ => self.choices.devices.live(call.device),
        };
        if self.mutation == Some(Mutation::IgnoreDevice) && special == Special::SetDevice {
            draft.set(0, 0);
        }
        let (thunk, function) = match self.placed_thunk(call, chunk, &mut draft, &lowering)? {
            Some(placed) => placed,
            None => (THUNKS[usize::from(issued.id)], self.entry_point(issued)?),
        };
        let launches = flags & (flag::KERNEL | flag::GRAPH) != 0;
        let escort = self.escort(call, special, lowering.facts.enqueues_on, blocks_others, launches);
        if !self.annotations.is_inside() {
            self.planned.prefix_launches.0 += u64::from(flags & flag::KERNEL != 0);
            self.planned.prefix_launches.1 += u64::from(flags & flag::GRAPH != 0);
        }
        waits.extend(self.annotations.gate(lane));
        self.emit_before(call, chunk, launches, &mut waits);
        self.emit_put_off(call, special, chunk, &mut waits)?;
        let words = draft.words;
        let issue = Issue {
            thunk,
            function,
            api,
            progress: if escort.follows() { 0 } else { count },
            event: call.event,
            lane,
            expected: record.ret(),
            device,
            flags,
        };
        match stand_in {
            Some(stand_in) => self.emit_stand_in(stand_in, draft, chunk, issue, &waits)?,
            None if self.put_off(call, special) => draft.finish(chunk, Self::nothing(issue), &waits),
            None => match self.fill_of(call, &lowering) {
                Some(fill) => {
                    // The progress is published by the last instruction of the call.
                    draft.finish(chunk, Issue { progress: 0, ..issue }, &waits);
                    self.emit_fill(call, chunk, fill, issue.progress)?;
                }
                None => draft.finish(chunk, issue, &waits),
            },
        }
        self.waits = waits;
        self.annotate(call, &lowering, special, chunk);
        self.note_lasting_state(call);
        self.emit_after(call, &escort, words, chunk, count)?;
        Ok(Open { node: Some(node), facts: lowering.facts, definitions: lowering.definitions })
    }

    /// A last error that was left by a call replay does not reissue cannot be there now.
    fn last_error_flags(&mut self, call: &Call<'_>, special: Special) -> u16 {
        let lane = &mut self.lanes[call.lane as usize];
        let flags = match special {
            Special::GetLastError | Special::PeekLastError if lane.last_error_unknown => flag::ANY_OUTCOME,
            _ => 0,
        };
        let forgotten = match special {
            Special::GetLastError => true,
            Special::PeekLastError => false,
            // The next failure that is reissued takes its place.
            _ => !call.succeeded() && call.record.ret() != NOT_READY,
        };
        lane.last_error_unknown &= !forgotten;
        flags
    }

    /// Keeps track of which staged memory the device may still use.
    fn note_coverage(&mut self, call: &Call<'_>, lowering: &Lowering, count: u64) {
        let (record, window) = (call.record, self.host.window());
        let wait = Wait { lane: call.lane, count };
        if lowering.stages {
            self.host.keep_until(window, wait);
            let stream = lowering.facts.enqueues_on.unwrap_or_else(|| self.objects.legacy_stream(call.device));
            self.coverage.copy(window, stream, record.end());
        }
        if let Some((event, stream)) = lowering.facts.records.zip(lowering.facts.enqueues_on) {
            self.coverage.record(event, stream, record.begin());
        }
        let host = &mut self.host;
        self.coverage
            .synchronised(lowering.facts.sync, record.begin(), wait, |window, wait| host.keep_until(window, wait));
        if call.api.effect == Effect::BlockCopy
            && let Some(stream) = lowering.facts.enqueues_on
        {
            // A blocking copy is complete when it returns.
            let host = &mut self.host;
            self.coverage.synchronised(Sync::Stream(stream), record.end() + 1, wait, |window, wait| {
                host.keep_until(window, wait)
            });
        }
    }

    /// A returned pointer is a handle: the fat binary's.
    fn lower_return(&mut self, call: &Call<'_>, draft: &mut Draft, lowering: &mut Lowering) {
        if call.api.ret != Returns::Pointer {
            return;
        }
        let recorded = call.record.section_tagged(SectionTag::Return).map_or(0, |section| word_at(section.payload, 0));
        if recorded == 0 {
            return;
        }
        let handle = self.objects.new_handle(None);
        draft.output(std::ptr::null(), handle.slot);
        lowering.facts.creates.push(handle.object);
        lowering.definitions.push(Definition::Handle { kind: HandleKind::FatBinary, value: recorded, handle });
    }

    /// The mutation that proves that kernels are told apart by code object.
    fn forget_module(&mut self, call: &Call<'_>, draft: &mut Draft) {
        let Some(name) = call.record.section_tagged(SectionTag::Text) else { return };
        let module = call.record.word(1);
        let first = *self.first_module.entry(name.payload.to_vec()).or_insert(module);
        if let Some(handle) = self.objects.handle(HandleKind::Module, first) {
            draft.fixups.retain(|fixup| fixup.target != draft.words.wrapping_add(1));
            draft.patch(1, handle.slot, 0);
        }
    }

    /// Remembers the D2H results of a call until something makes them visible.
    fn note_results(&mut self, call: &Call<'_>, lowering: &Lowering) -> Result<(), Refusal> {
        let unchecked = self.host.unchecked();
        let check = |blob: u64, live: usize, shape: Shape| Check {
            live,
            shape,
            blob,
            ready: None,
            event: call.event,
            lane: call.lane,
            api: call.api.id,
            unchecked: Arc::clone(&unchecked),
        };
        if self.choices.kernel_filter.is_some() {
            // Without its kernels, what the archive computes means nothing.
            return Ok(());
        }
        for &(blob, live, shape) in &lowering.results {
            let check = check(blob, live, shape);
            if self.archive.blobs().index().get(blob).is_none() {
                // Never observed: nothing to compare, and nothing will say so later.
                let _ = self.checks.send(check);
                continue;
            }
            // Relaxed: the planner alone decides on the memory, and reads the counter with Acquire when it does.
            unchecked.fetch_add(1, Ordering::Relaxed);
            self.pending.insert(blob, Pending::Copy(check));
        }
        for section in call.record.sections().map_while(Result::ok) {
            if section.tag == SectionTag::GraphHostOut {
                let what = "the device-to-host result to validate against";
                if section.presence == Presence::Withheld {
                    return Err(Refusal::Withheld { what });
                }
                let (address, blob) = section.host_address().zip(section.blob()).ok_or(Refusal::Lacks { what })?;
                let check = check(blob.number, 0, Shape::linear(blob.size_bytes));
                if self.archive.blobs().index().get(blob.number).is_none() {
                    let _ = self.checks.send(check);
                    continue;
                }
                let pending = Pending::Graph { address, len_bytes: blob.size_bytes, check };
                self.pending.insert(blob.number, pending);
            }
        }
        Ok(())
    }

    fn end(&mut self, lane: u32) {
        let Some(open) = self.open[lane as usize].take() else { return };
        for definition in open.definitions {
            self.objects.define(definition, &mut self.lanes[lane as usize]);
        }
        if let Some(node) = open.node {
            self.order.end(node, open.facts);
        } else {
            self.order.recycle(open.facts);
        }
    }

    /// A marker: a D2H result became visible to the program.
    fn marker(&mut self, event: u64, lane: u32, record: Record<'a>) -> Result<(), PlanError> {
        if record.api() != marker::OBSERVED {
            return Ok(());
        }
        // A recorder that saw the end of its process has written whatever it says that the program saw.
        let manifest = self.archive.manifest();
        let whole = manifest.complete && self.archive.repaired().is_none();
        if whole
            && self.archive.contents() == ContentsMode::Contents
            && self.archive.blobs().index().get(record.word(0)).is_none()
        {
            return Err(PlanError {
                event,
                thread: self.archive.streams()[lane as usize].header().thread,
                api: "device-to-host result".to_owned(),
                reason: StageError::Missing { blob: record.word(0) }.into(),
            });
        }
        let Some(pending) = self.pending.remove(&record.word(0)) else { return Ok(()) };
        let refuse = |reason: Refusal| PlanError {
            event,
            thread: self.archive.streams()[lane as usize].header().thread,
            api: "device-to-host result".to_owned(),
            reason,
        };
        let check = match pending {
            Pending::Copy(check) => {
                // Where the program's waits are left out, a result is there for certain only at the end.
                let count = if self.triage.skips_syncs() { Wait::AT_END } else { self.lanes[lane as usize].planned };
                Check { ready: Some(Wait { lane, count }), ..check }
            }
            // What the graph wrote would have to be kept where nothing waits for it any more.
            Pending::Graph { check, .. } if self.triage.skips_syncs() => check,
            Pending::Graph { address, len_bytes, check } => {
                let place = self.host.place(HostKind::Pageable, len_bytes).map_err(Refusal::from).map_err(refuse)?;
                let worker = self.assignment.worker_of[lane as usize] as usize;
                let mut chunk = self.chunks[worker].take().unwrap_or_default();
                let count = self.lanes[lane as usize].planned + 1;
                let call = Call { api: &APIS[usize::from(check.api)], record, event, lane, device: -1 };
                let mut waits = Vec::new();
                // Behind the synchronising call, which another runner may still be in.
                self.order.after_own(lane, &mut waits);
                if self.mutation == Some(Mutation::DropEdges) {
                    waits.clear();
                }
                let side = HostSide::SaveTo(place);
                let result = self.emit_host_copy(&call, &mut chunk, &mut waits, address, len_bytes, side, count);
                self.chunks[worker] = Some(chunk);
                self.lanes[lane as usize].planned = count;
                self.order.issued(lane, count, false);
                result.map_err(refuse)?;
                // The result is kept in the current window, which may be a later one than the launch's.
                self.host.keep_until(self.host.window(), Wait { lane, count });
                let unchecked = self.host.unchecked();
                // Relaxed: as in `note_results`.
                unchecked.fetch_add(1, Ordering::Relaxed);
                Check { live: place as usize, ready: Some(Wait { lane, count }), unchecked, ..check }
            }
        };
        // The receiver outlives the planner.
        let _ = self.checks.send(check);
        Ok(())
    }

    /// The runtime's entry point for a call.
    pub(crate) fn entry_point(&self, api: &Api) -> Result<*const c_void, Refusal> {
        self.runtime.entry_point(api).ok_or_else(|| Refusal::Missing(self.runtime.path().display().to_string()))
    }
}

/// The enqueue on the same stream that a call overlapped at capture, if the last one did. Two that overlapped are in truth
/// unordered: they are issued in the order they were entered.
fn overlapping<'n>(last: &'n FxHashMap<u32, Node>, call: &Call<'_>, stream: u32) -> Option<&'n Node> {
    let last = (stream != 0).then(|| last.get(&stream)).flatten()?;
    (last.lane() != call.lane && last.end >= call.record.begin()).then_some(last)
}

impl Lowering {
    /// Notes which stream the call works on.
    pub(crate) fn note_stream(&mut self, call: &Call<'_>, stream: Option<dependency::StreamKey>) {
        match call.api.effect {
            Effect::BlockStream => self.facts.sync = stream.map_or(Sync::None, Sync::Stream),
            Effect::Query if call.succeeded() => self.facts.sync = stream.map_or(Sync::None, Sync::Stream),
            // What is enqueued while a stream is captured depends on when the capture began and ends.
            Effect::Host if special::changes_capture(call.api) => self.facts.enqueues_on = stream,
            Effect::Query | Effect::Host => {}
            _ => self.facts.enqueues_on = stream,
        }
    }

    /// Notes that a kernel can read and write an allocation.
    pub(crate) fn note_use(&mut self, allocation: &address::Allocation) {
        self.facts.memory.push((allocation.object, true));
        self.facts.uses.push((allocation.object, dependency::Use::Reads));
    }

    /// Completes the facts by what the call as a whole does.
    fn classify(&mut self, call: &Call<'_>, special: Special) {
        let event = self.facts.uses.iter().map(|&(object, _)| object).next();
        match call.api.effect {
            Effect::BlockDevice => self.facts.sync = Sync::Device(call.device),
            Effect::BlockEvent => self.facts.sync = event.map_or(Sync::None, Sync::Event),
            Effect::Query if call.api.stream_param().is_none() && call.succeeded() => {
                self.facts.sync = event.map_or(Sync::None, Sync::Event);
            }
            Effect::BlockCopy => {
                if let Some(stream) = self.facts.enqueues_on {
                    self.facts.sync = Sync::Stream(stream);
                }
            }
            _ => {}
        }
        match special {
            Special::EventRecord => self.facts.records = event,
            Special::WaitEvent => self.facts.device_waits = self.facts.uses.last().map(|&(object, _)| object),
            Special::GraphLaunch => self.facts.reach = Reach::Any,
            Special::BeginCapture | Special::EndCapture => self.facts.fence = Fence::All,
            _ => {}
        }
        if matches!(call.api.effect, Effect::Enqueue | Effect::BlockCopy)
            && call.api.param_with(|role| matches!(role, Role::VarSymbol)).is_some()
        {
            self.facts.reach = Reach::Any;
        }
        self.facts.failed = !call.succeeded();
    }
}
