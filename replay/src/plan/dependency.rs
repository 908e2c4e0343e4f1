//! The dependency orders: edges from calls that created, changed or used what a call uses.
//!
//! Every handle, allocation and stream is an object with the calls that last changed it and those that used it since. A
//! call that uses an object comes after the calls that last changed it; one that changes or ends it comes after its users
//! too. Edges only run from calls that had returned when the later one was entered: what overlapped at capture was not
//! ordered by the program, and an edge to it could wait for something that waits for us.
//!
//! Conflicting use of device memory on two streams is special: that the earlier call returned only means that its work
//! was enqueued. What made its completion visible to the program was a synchronising call, so the edge runs from the first
//! one that covers it; where there is none, events on the device order the work, and the edge from the enqueue is enough.

use rustc_hash::FxHashMap;

use super::order::{Node, OrderMode};

/// How a call uses an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Needs it to exist.
    Reads,
    /// Changes its state: records an event, adds a node to a graph.
    Changes,
    /// Ends its life.
    Ends,
}

/// What a call waits for on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sync {
    /// Nothing.
    #[default]
    None,
    /// Everything enqueued on a stream.
    Stream(StreamKey),
    /// What an event recorded.
    Event(u32),
    /// Everything on a device.
    Device(i32),
}

/// What a call touches, as far as the order of calls can depend on it.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallFacts {
    /// Objects used.
    pub(crate) uses: Vec<(u32, Use)>,
    /// Objects that exist once the call has returned.
    pub(crate) creates: Vec<u32>,
    /// Allocations whose contents the call, or the work it enqueues, reads (false) or writes (true).
    pub(crate) memory: Vec<(u32, bool)>,
    /// The stream object the call enqueues on.
    pub(crate) enqueues_on: Option<StreamKey>,
    /// What the call waits for.
    pub(crate) sync: Sync,
    /// An event the call records.
    pub(crate) records: Option<u32>,
}

/// A stream as the order of work on a device sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StreamKey {
    /// The stream's object number.
    pub(crate) object: u32,
    /// Its device.
    pub(crate) device: i32,
    /// How it relates to the device's legacy default stream.
    pub(crate) rule: StreamRule,
}

/// How a stream relates to the legacy default stream of its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum StreamRule {
    /// It is the legacy default stream.
    Legacy,
    /// Its work and the legacy default stream's wait for each other.
    Blocking,
    /// It goes its own way.
    NonBlocking,
}

/// A set of calls that no later call has been ordered after as a whole.
#[derive(Debug, Default)]
struct History {
    /// Calls that created or changed the object last, and those that overlapped them.
    changes: Vec<Node>,
    /// Calls that used it since, the last of each thread.
    users: Vec<Node>,
}

impl History {
    fn read(&mut self, node: &Node) {
        match self.users.iter_mut().find(|user| user.lane == node.lane) {
            Some(user) => *user = node.clone(),
            None => self.users.push(node.clone()),
        }
    }

    fn change(&mut self, node: &Node) {
        self.changes.retain(|earlier| earlier.end >= node.begin && earlier.lane != node.lane);
        self.users.retain(|earlier| earlier.end >= node.begin && earlier.lane != node.lane);
        self.changes.push(node.clone());
    }
}

/// A call that used an allocation, with the stream its work runs on.
#[derive(Debug, Clone)]
struct MemoryUse {
    node: Node,
    stream: Option<StreamKey>,
}

#[derive(Debug, Default)]
struct MemoryHistory {
    writes: Vec<MemoryUse>,
    reads: Vec<MemoryUse>,
}

/// A synchronising call: everything in its scope that had been enqueued before `covers_until` is done once it returns.
#[derive(Debug, Clone)]
struct Synchronised {
    covers_until: u64,
    node: Node,
}

/// The state of all objects at one moment of the timeline.
#[derive(Debug)]
pub(crate) struct Dependencies {
    mode: OrderMode,
    objects: FxHashMap<u32, History>,
    memory: FxHashMap<u32, MemoryHistory>,
    /// Per device: work on blocking streams uses it, work on the legacy default stream changes it.
    legacy: FxHashMap<i32, History>,
    /// Per device: all work uses it, device-wide calls change it.
    devices: FxHashMap<i32, History>,
    stream_syncs: FxHashMap<u32, Vec<Synchronised>>,
    /// Synchronisation with the legacy default stream covers the device's blocking streams.
    legacy_syncs: FxHashMap<i32, Vec<Synchronised>>,
    device_syncs: FxHashMap<i32, Vec<Synchronised>>,
    /// Per event: the stream it was last recorded on and the entry tick of that call.
    recorded: FxHashMap<u32, (StreamKey, u64)>,
}

/// Synchronising calls kept per scope. Older ones are only needed for uses that nothing has conflicted with since.
const SYNCS_KEPT: usize = 64;

impl Dependencies {
    /// No objects yet.
    pub(crate) fn new(mode: OrderMode) -> Self {
        Dependencies {
            mode,
            objects: FxHashMap::default(),
            memory: FxHashMap::default(),
            legacy: FxHashMap::default(),
            devices: FxHashMap::default(),
            stream_syncs: FxHashMap::default(),
            legacy_syncs: FxHashMap::default(),
            device_syncs: FxHashMap::default(),
            recorded: FxHashMap::default(),
        }
    }

    /// Appends the calls that a call entered at `begin` must come after.
    pub(crate) fn predecessors(&self, lane: u32, begin: u64, facts: &CallFacts, wanted: &mut Vec<Node>) {
        let mut take = |nodes: &[Node]| {
            wanted.extend(nodes.iter().filter(|node| node.lane != lane && node.end < begin).cloned());
        };
        for &(object, how) in &facts.uses {
            let Some(history) = self.objects.get(&object) else { continue };
            take(&history.changes);
            if how == Use::Ends || (how == Use::Changes && self.mode == OrderMode::Deps) {
                take(&history.users);
            }
        }
        if self.mode == OrderMode::Program {
            return;
        }
        if let Some(stream) = facts.enqueues_on {
            if let Some(history) = self.objects.get(&stream.object) {
                take(&history.changes);
            }
            match stream.rule {
                StreamRule::Legacy => {
                    if let Some(history) = self.legacy.get(&stream.device) {
                        take(&history.changes);
                        take(&history.users);
                    }
                }
                StreamRule::Blocking => {
                    if let Some(history) = self.legacy.get(&stream.device) {
                        take(&history.changes);
                    }
                }
                StreamRule::NonBlocking => {}
            }
            if let Some(history) = self.devices.get(&stream.device) {
                take(&history.changes);
            }
        }
        match facts.sync {
            Sync::None => {}
            Sync::Stream(StreamKey { object, .. }) | Sync::Event(object) => {
                if let Some(history) = self.objects.get(&object) {
                    take(&history.changes);
                }
                if let Sync::Stream(StreamKey { rule: StreamRule::Legacy, device, .. }) = facts.sync
                    && let Some(history) = self.legacy.get(&device)
                {
                    take(&history.changes);
                    take(&history.users);
                }
            }
            Sync::Device(device) => {
                if let Some(history) = self.devices.get(&device) {
                    take(&history.changes);
                    take(&history.users);
                }
            }
        }
        for &(object, writes) in &facts.memory {
            let Some(history) = self.memory.get(&object) else { continue };
            let reads = if writes { history.reads.as_slice() } else { &[] };
            for earlier in history.writes.iter().chain(reads) {
                // Work on the same stream runs in the order it was enqueued, which the stream's own edges keep.
                let same_stream = earlier.stream.is_some() && earlier.stream == facts.enqueues_on;
                if !same_stream && earlier.node.end < begin {
                    let from = self.made_visible(earlier, begin).unwrap_or(&earlier.node);
                    if from.lane != lane {
                        wanted.push(from.clone());
                    }
                }
            }
        }
    }

    /// The synchronising call that first made `earlier`'s work visible before `begin`.
    fn made_visible(&self, earlier: &MemoryUse, begin: u64) -> Option<&Node> {
        let stream = earlier.stream?;
        let legacy = (stream.rule != StreamRule::NonBlocking).then(|| self.legacy_syncs.get(&stream.device)).flatten();
        [self.stream_syncs.get(&stream.object), legacy, self.device_syncs.get(&stream.device)]
            .into_iter()
            .flatten()
            .flat_map(|syncs| syncs.iter().rev().take_while(|sync| sync.node.end > earlier.node.end))
            .filter(|sync| sync.covers_until >= earlier.node.end && sync.node.end < begin)
            .map(|sync| &sync.node)
            .min_by_key(|node| node.end)
    }

    /// The call `node` has returned.
    pub(crate) fn returned(&mut self, node: Node, facts: CallFacts) {
        for &object in &facts.creates {
            self.objects.insert(object, History { changes: vec![node.clone()], users: Vec::new() });
        }
        for &(object, how) in &facts.uses {
            let history = self.objects.entry(object).or_default();
            match how {
                Use::Reads => history.read(&node),
                Use::Changes if self.mode == OrderMode::Program => history.read(&node),
                Use::Changes | Use::Ends => history.change(&node),
            }
        }
        if self.mode == OrderMode::Program {
            return;
        }
        if let Some(stream) = facts.enqueues_on {
            self.objects.entry(stream.object).or_default().change(&node);
            match stream.rule {
                StreamRule::Legacy => self.legacy.entry(stream.device).or_default().change(&node),
                StreamRule::Blocking => self.legacy.entry(stream.device).or_default().read(&node),
                StreamRule::NonBlocking => {}
            }
            self.devices.entry(stream.device).or_default().read(&node);
            if let Some(event) = facts.records {
                self.recorded.insert(event, (stream, node.begin));
            }
        }
        self.note_sync(&node, facts.sync);
        for &(object, writes) in &facts.memory {
            let history = self.memory.entry(object).or_default();
            let this = MemoryUse { node: node.clone(), stream: facts.enqueues_on };
            if writes {
                // A write on the same stream, or one that waited for the earlier use, stands for it from now on.
                let stays = |earlier: &MemoryUse| earlier.node.end >= node.begin;
                history.writes.retain(stays);
                history.reads.retain(stays);
                history.writes.push(this);
            } else {
                history.reads.retain(|earlier| earlier.node.lane != node.lane || earlier.stream != this.stream);
                history.reads.push(this);
            }
        }
    }

    fn note_sync(&mut self, node: &Node, sync: Sync) {
        let keep = |list: &mut Vec<Synchronised>, covers_until: u64| {
            if list.len() >= SYNCS_KEPT * 2 {
                list.drain(..SYNCS_KEPT);
            }
            list.push(Synchronised { covers_until, node: node.clone() });
        };
        match sync {
            Sync::None => {}
            Sync::Stream(stream) => {
                keep(self.stream_syncs.entry(stream.object).or_default(), node.begin);
                if stream.rule == StreamRule::Legacy {
                    keep(self.legacy_syncs.entry(stream.device).or_default(), node.begin);
                }
            }
            Sync::Event(event) => {
                if let Some(&(stream, recorded)) = self.recorded.get(&event) {
                    keep(self.stream_syncs.entry(stream.object).or_default(), recorded);
                    if stream.rule == StreamRule::Legacy {
                        keep(self.legacy_syncs.entry(stream.device).or_default(), recorded);
                    }
                }
            }
            Sync::Device(device) => {
                keep(self.device_syncs.entry(device).or_default(), node.begin);
                self.devices.entry(device).or_default().change(node);
            }
        }
    }
}
