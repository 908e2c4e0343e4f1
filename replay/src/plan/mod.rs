//! Planning: from the streams of an archive to sequences of instructions, one per worker.
//!
//! * [`timeline`]: all calls as entries and returns, merged over the captured threads; [`arrivals`]: read ahead
//! * [`assignment`]: which worker executes what
//! * [`walk`], [`emit`]: from the timeline to instructions, and to the workers
//! * [`objects`]: what is live at each moment, and the slot it will have at replay
//! * [`memory`]: memory as the archive has it
//! * [`lower`]: a call's arguments, laid out with the words to patch
//! * [`order`]: which calls a call must come after
//! * [`results`]: what is compared, and when
//! * [`account`]: what became of every call
//! * [`shape`]: replays without what was withheld; [`merged_devices`]: recorded devices that are one here
//! * [`escort`]: what goes with calls for triage; [`annotate`]: what measuring runs need to know
//! * [`teardown`]: what is left to destroy when the archive ends
//! * [`listing`]: plans as text

pub(crate) mod account;
pub mod annotate;
pub(crate) mod arrivals;
pub(crate) mod assignment;
pub(crate) mod emit;
pub mod error;
pub(crate) mod escort;
pub(crate) mod listing;
pub(crate) mod lower;
pub(crate) mod memory;
pub(crate) mod merged_devices;
pub(crate) mod objects;
pub mod order;
pub(crate) mod results;
pub mod shape;
pub(crate) mod teardown;
pub(crate) mod timeline;
pub(crate) mod walk;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crossbeam::channel::Sender;
use rustc_hash::{FxHashMap, FxHashSet};

use hrr_format::archive::Archive;
use hrr_format::catalogue::APIS;

use account::CallAccount;
use annotate::{Annotate, Annotations};
pub(crate) use assignment::Assignment;
use escort::TriagePlan;
use lower::Call;
use lower::kernel_room::KernelRooms;
use lower::special::{Special, Traits};
use memory::coverage::Coverage;
use memory::regions::{PlanRegions, RegionCounts};
use merged_devices::Twins;
use objects::{Definition, LaneState, Objects};
use order::OrderMode;
use order::edges::{EdgeFinder, EdgeSettings, Hands, Keep};
use order::looks::Delayed;
pub(crate) use results::Check;
use results::Pending;
use teardown::Teardown;

use crate::choices::{Choices, RegionPolicy};
use crate::instruction::{Chunk, Wait};
use crate::machine::memory_node::MemoryNodes;
use crate::machine::runtime::Runtime;
use crate::memory::placement::Placement;
use crate::memory::stage::HostMemory;
use crate::mutation::Mutation;

/// What planning found out, besides the instructions.
#[derive(Debug, Default)]
pub(crate) struct Planned {
    /// Calls of the archive, in flight ones included.
    pub(crate) events: u64,
    /// Instructions of each captured thread.
    pub(crate) lane_totals: Vec<u64>,
    /// Calls left out because they have no effect.
    pub(crate) skipped: u64,
    /// Calls left out because the two devices they are about are one here.
    pub(crate) between_merged_devices: u64,
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
    /// Entry points with calls that were neither issued nor left out for a reason, and how many.
    pub(crate) lost: Vec<(&'static str, i64)>,
    /// Results that the program saw and that no call of the plan brings.
    pub(crate) lost_results: u64,
    /// Device allocations that lie at their recorded addresses.
    pub(crate) placed: u64,
    /// Device allocations that do not.
    pub(crate) not_placed: u64,
    /// Addresses of memory that does not lie where it did, found in uploaded contents, and a description of the first.
    pub(crate) stale: u64,
    /// Handles of texture and surface objects in uploads, translated.
    pub(crate) images: u64,
    /// Numbers in uploads that are such a handle's, but too small to be told from any other data.
    pub(crate) small_images: u64,
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
    /// What a replay by shape did otherwise.
    pub(crate) shape: shape::ShapeLosses,
    /// The archive goes on behind the range.
    pub(crate) cut: bool,
    /// Host memory that devices use directly.
    pub(crate) host_memory: memory::host_memory::HostMemoryCounts,
    /// Memory that another tool wrote down.
    pub(crate) regions: memory::regions::RegionCounts,
}

/// A call that has been entered and not yet returned, in the timeline.
#[derive(Debug)]
struct Open {
    /// It has an instruction, which later calls may wait for.
    issued: bool,
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
    traits: Vec<Traits>,
    pub(crate) objects: Objects,
    lanes: Vec<LaneState>,
    open: Vec<Option<Open>>,
    pub(crate) host: HostMemory,
    graph_events: order::graph_events::GraphEvents,
    graph_host: memory::graph_host::GraphHost,
    /// First addresses of the host memory that devices use directly, as far as the recorder has told of it.
    direct_host_memory: FxHashSet<u64>,
    images: FxHashMap<u64, usize>,
    /// Recorded devices that are one here.
    twins: Twins,
    kernel_rooms: KernelRooms,
    edges: EdgeFinder,
    delayed: Arc<Delayed>,
    hands: Hands,
    /// The chunk each worker's next instruction goes to; `None` while one is laid out there.
    chunks: Vec<Option<Box<Chunk>>>,
    /// Room for the waits of a call.
    waits: Vec<Wait>,
    /// D2H results not yet observed, by blob number.
    pending: FxHashMap<u64, Pending>,
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
    pub(crate) replaced: Vec<lower::kernel_choice::Replaced>,
    /// Handles of images in what the call at hand uploads: where they lie, and what they stand for.
    uploaded_images: Vec<(usize, objects::Handle)>,
    /// Nodes found by listing a graph, which may be empty ones where kernels are left out.
    listed_nodes: FxHashSet<u32>,
    /// Stream captures under way.
    pub(crate) captures: u32,
    /// Allocations that are placed, by object, with the object that stands for their addresses.
    pub(crate) placed: FxHashMap<u32, u32>,
    /// Objects that stand for ranges of addresses.
    pub(crate) sites: FxHashMap<u64, u32>,
    /// Addresses of placed memory that was given back by hipFreeAsync.
    left_in_order: Vec<Range<u64>>,
    order_mode: OrderMode,
    /// Per captured thread: parts of launches that are given to the runtime only with the launch.
    put_off: Vec<Vec<Call<'a>>>,
    pub(crate) triage: TriagePlan<'a>,
    annotations: Annotations,
    account: CallAccount,
    /// By object of host memory: its device addresses, as objects and recorded addresses.
    host_aliases: FxHashMap<u32, Vec<(u32, u64)>>,
    /// Regions of device memory, where the archive has any.
    regions: Option<PlanRegions<'a>>,
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
    pub(crate) replaced: Vec<lower::kernel_choice::Replaced>,
    /// What goes with calls for triage.
    pub(crate) triage: TriagePlan<'a>,
    /// What is to be taken down besides.
    pub(crate) annotate: Annotate,
    /// Where staging memory goes.
    pub(crate) memory_nodes: MemoryNodes,
    /// First addresses of the host memory that devices use directly, as far as the recorder has told of it.
    pub(crate) direct_host_memory: FxHashSet<u64>,
    /// Calls that count as entered later than they were.
    pub(crate) delayed: Arc<Delayed>,
    /// On how many threads it plans.
    pub(crate) hands: Hands,
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
        let regions = PlanRegions::of(
            settings.archive,
            settings.runtime,
            &settings.choices,
            settings.placement.is_on(),
            settings.device_count,
        );
        let plan_bytes = Arc::default();
        let keep = if settings.mutation == Some(Mutation::DropEdges) { Keep::None } else { Keep::All };
        let edges = EdgeSettings {
            mode: settings.order,
            worker_of: assignment.worker_of.clone(),
            workers: assignment.workers,
            keep,
            plan_bytes: Arc::clone(&plan_bytes),
        };
        Planner {
            archive: settings.archive,
            runtime: settings.runtime,
            multiplexed: assignment.multiplexed(),
            mutation: settings.mutation,
            device_count: settings.device_count,
            specials: APIS.iter().map(Special::of).collect(),
            traits: APIS.iter().map(Traits::of).collect(),
            objects: Objects::new(settings.mutation),
            lanes: vec![LaneState::new(settings.archive); lanes],
            open: (0..lanes).map(|_| None).collect(),
            host: HostMemory::new(Arc::clone(settings.runtime), settings.memory_nodes),
            twins: Twins::of(settings.archive, &settings.choices.devices),
            graph_events: order::graph_events::GraphEvents::default(),
            graph_host: memory::graph_host::GraphHost::default(),
            direct_host_memory: settings.direct_host_memory,
            images: FxHashMap::default(),
            kernel_rooms: KernelRooms::default(),
            edges: EdgeFinder::new(edges, settings.hands),
            delayed: settings.delayed,
            hands: settings.hands,
            chunks: (0..assignment.workers).map(|_| Some(Box::default())).collect(),
            waits: Vec::new(),
            assignment,
            pending: FxHashMap::default(),
            first_module: FxHashMap::default(),
            untranslated: 0,
            planned: Planned {
                regions: RegionCounts {
                    entries: if regions.is_some() { settings.archive.regions().entries().len() as u64 } else { 0 },
                    strict: settings.choices.regions == RegionPolicy::Strict,
                    ..RegionCounts::default()
                },
                ..Planned::default()
            },
            coverage: Coverage::default(),
            budget_bytes: settings.budget_bytes,
            plan_bytes,
            checks: settings.checks,
            choices: settings.choices,
            placement: settings.placement,
            replaced: settings.replaced,
            uploaded_images: Vec::new(),
            listed_nodes: FxHashSet::default(),
            captures: 0,
            placed: FxHashMap::default(),
            sites: FxHashMap::default(),
            left_in_order: Vec::new(),
            order_mode: settings.order,
            put_off: vec![Vec::new(); lanes],
            triage: settings.triage,
            annotations: Annotations::new(settings.annotate, lanes),
            account: CallAccount::default(),
            host_aliases: FxHashMap::default(),
            regions,
        }
    }
}
