//! The dependency orders: edges from calls that created, changed or used what a call uses.
//!
//! Every handle, allocation and stream is an object with the calls that last changed it and those that used it since. A
//! call that uses an object comes after the calls that last changed it; one that changes or ends it comes after its users
//! too. Edges only run from calls that had returned when the later one was entered: what overlapped at capture was not
//! ordered by the program, and an edge to it could wait for something that waits for us.
//!
//! Enqueues on a stream keep their order, and come after the calls that had waited for the stream: work that waits on the
//! device for something a thread does after its synchronisation must not get in front of it.
//!
//! Conflicting use of device memory on two streams is special: that the earlier call returned only means that its work
//! was enqueued. What made its completion visible to the program was a synchronising call, so the edge runs from the first
//! one that covers it ([`super::visibility`]); where there is none, events on the device order the work, and the edge from
//! the enqueue is enough.
//!
//! Graph launches and copies to and from device variables may touch memory that their arguments do not name: they are
//! ordered with all other work. Memory that kernels reach only through pointers stored in other memory is not seen.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::knowledge::{Knowledge, Point};
use super::visibility::{Seen, Visibility, Where};
use super::{Node, OrderMode};

/// How a call uses an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Needs it to exist.
    Reads,
    /// Changes its state: records an event, adds a node to a graph.
    Changes,
    /// Takes over, or gives up, addresses that others had or will have: their order is kept whichever is kept otherwise.
    Occupies,
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

/// How far the memory that a call uses is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Its arguments name it.
    #[default]
    Named,
    /// It may use any.
    Any,
}

/// How a call stands to all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fence {
    /// By what it uses.
    #[default]
    None,
    /// It changes which calls other threads may make, or which memory their work may use: none may cross it, in whichever
    /// order. Like the life of a handle, permission comes before its use.
    All,
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
    /// Whether it may use other memory too.
    pub(crate) reach: Reach,
    /// Whether other calls may cross it.
    pub(crate) fence: Fence,
    /// The stream object the call enqueues on.
    pub(crate) enqueues_on: Option<StreamKey>,
    /// Further streams that it enqueues on: a launch on several devices has one of each.
    pub(crate) also_on: Vec<StreamKey>,
    /// What the call waits for.
    pub(crate) sync: Sync,
    /// It waits for some of the device's streams, and it is not told for which.
    pub(crate) waits_in_part: bool,
    /// An event the call records.
    pub(crate) records: Option<u32>,
    /// An event that the stream waits for from now on.
    pub(crate) device_waits: Option<u32>,
    /// Addresses of values that its work writes (true) or waits for (false) on the device.
    pub(crate) values: Vec<(u64, bool)>,
    /// What it saw of the device's order when it was entered.
    pub(crate) seen: Seen,
    /// The call failed at capture: it is ordered like one that did not, and had no effect.
    pub(crate) failed: bool,
}

impl CallFacts {
    /// Forgets everything and keeps the memory.
    pub(crate) fn clear(&mut self) {
        // Every field is named, so that none is forgotten here.
        let CallFacts {
            uses,
            creates,
            memory,
            reach,
            fence,
            enqueues_on,
            also_on,
            sync,
            waits_in_part,
            records,
            device_waits,
            values,
            seen,
            failed,
        } = self;
        uses.clear();
        creates.clear();
        memory.clear();
        also_on.clear();
        values.clear();
        seen.clear();
        (*reach, *fence, *sync) = (Reach::Named, Fence::None, Sync::None);
        (*enqueues_on, *records, *device_waits) = (None, None, None);
        (*waits_in_part, *failed) = (false, false);
    }

    /// The streams that the call enqueues on.
    fn streams(&self) -> impl Iterator<Item = StreamKey> + '_ {
        self.enqueues_on.into_iter().chain(self.also_on.iter().copied())
    }

    /// Where the work of the call is, once the call has returned.
    fn place(&self, lane: u32) -> Where {
        match self.enqueues_on {
            // A blocking copy is complete when it returns.
            Some(stream) if self.sync == Sync::None => Where::On(stream),
            _ => Where::Done(lane),
        }
    }
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

/// The calls that later ones must come after.
#[derive(Debug, Default)]
struct History {
    /// Calls that created or changed the object last, and those that overlapped them.
    changes: Vec<Node>,
    /// Calls that used it since, the last of each thread.
    users: Vec<Node>,
    /// Their threads, which are looked for far more often than the calls are looked at.
    user_lanes: Vec<u32>,
    /// Where there are many: by thread, the place among the users, or [`NO_USER`].
    place_of: Vec<u32>,
}

/// Threads among which one is looked for; where there are more, [`History::place_of`] tells.
const FEW_USERS: usize = 8;
/// The thread has not used the object.
const NO_USER: u32 = u32::MAX;

impl History {
    fn read(&mut self, node: &Node) {
        match self.place(node.lane()) {
            Some(at) => self.users[at] = node.clone(),
            None => {
                self.users.push(node.clone());
                self.user_lanes.push(node.lane());
                match self.users.len() {
                    0..=FEW_USERS => {}
                    // The last of the few, and those before it.
                    len if len == FEW_USERS + 1 => self.note_places(0),
                    len => self.note_places(len - 1),
                }
            }
        }
    }

    /// The place among the users of the last call of a thread.
    fn place(&self, lane: u32) -> Option<usize> {
        if self.users.len() > FEW_USERS {
            let place = self.place_of.get(lane as usize).copied().unwrap_or(NO_USER);
            return (place != NO_USER).then_some(place as usize);
        }
        self.user_lanes.iter().position(|&user| user == lane)
    }

    /// Notes the places of the users from `first` on.
    fn note_places(&mut self, first: usize) {
        for (place, &lane) in self.user_lanes.iter().enumerate().skip(first) {
            let lane = lane as usize;
            if self.place_of.len() <= lane {
                self.place_of.resize(lane + 1, NO_USER);
            }
            self.place_of[lane] = place as u32;
        }
    }

    /// `node` came after all that had returned when it was entered, and stands for them from now on.
    fn change(&mut self, node: &Node) {
        let stays = |earlier: &Node| earlier.end >= node.begin && earlier.lane() != node.lane();
        self.changes.retain(stays);
        self.users.retain(stays);
        self.user_lanes.clear();
        self.user_lanes.extend(self.users.iter().map(Node::lane));
        self.place_of.clear();
        if self.users.len() > FEW_USERS {
            self.note_places(0);
        }
        self.changes.push(node.clone());
    }
}

/// Use of an allocation by the work in one place.
#[derive(Debug)]
struct PlaceUse {
    place: Where,
    /// When the first call that used it there returned.
    first_end: u64,
    /// The last call there that wrote it.
    write: Option<Node>,
    /// The last that read it since.
    read: Option<Node>,
}

/// The state of all objects at one moment of the timeline.
#[derive(Debug)]
pub(crate) struct Dependencies {
    mode: OrderMode,
    objects: FxHashMap<u32, History>,
    /// By stream: enqueues change it, calls that wait for it use it.
    streams: FxHashMap<u32, (StreamKey, History)>,
    /// Per device: work on blocking streams uses it, work on the legacy default stream changes it.
    legacy: FxHashMap<i32, History>,
    /// Per device: all work uses it, device-wide calls change it.
    devices: FxHashMap<i32, History>,
    memory: FxHashMap<u32, Vec<PlaceUse>>,
    /// Work that may use any memory.
    unnamed: Vec<PlaceUse>,
    /// Streams that have ended, with their last enqueues, as long as nothing has waited for these.
    ended: VecDeque<(StreamKey, Vec<Node>)>,
    /// Calls behind the work of other streams that have ended: the last of each thread.
    after_ended: Vec<Node>,
    visibility: Visibility,
    /// The last call of each lane.
    last: Vec<Option<Node>>,
    /// Calls that no other may cross.
    fences: History,
}

impl Dependencies {
    /// No objects yet.
    pub(crate) fn new(mode: OrderMode, lanes: usize) -> Self {
        Dependencies {
            mode,
            objects: FxHashMap::default(),
            streams: FxHashMap::default(),
            legacy: FxHashMap::default(),
            devices: FxHashMap::default(),
            memory: FxHashMap::default(),
            unnamed: Vec::new(),
            ended: VecDeque::new(),
            after_ended: Vec::new(),
            visibility: Visibility::default(),
            last: vec![None; lanes],
            fences: History::default(),
        }
    }

    /// Appends the calls that a call entered at `begin` must come after. Every call told to have [`returned`](Self::returned)
    /// has done so before `begin`. Those that the lane's worker has `knowledge` of are left out.
    pub(crate) fn predecessors(
        &self,
        lane: u32,
        begin: u64,
        facts: &mut CallFacts,
        knowledge: &Knowledge,
        wanted: &mut Vec<Point>,
    ) {
        if self.mode == OrderMode::Deps {
            self.visibility.look(facts);
        }
        let facts = &*facts;
        let mut wanted = Wanted { lane, begin, knowledge, points: wanted };
        for &(object, how) in &facts.uses {
            let Some(history) = self.objects.get(&object) else { continue };
            wanted.all(&history.changes);
            let changes = how == Use::Changes && self.mode == OrderMode::Deps;
            if changes || matches!(how, Use::Ends | Use::Occupies) {
                wanted.all(&history.users);
            }
        }
        wanted.all(&self.fences.changes);
        if facts.fence == Fence::All {
            wanted.all(self.last.iter().flatten());
        }
        if self.mode == OrderMode::Program {
            return;
        }
        for stream in facts.streams() {
            if let Some((_, history)) = self.streams.get(&stream.object) {
                wanted.all(&history.changes);
                wanted.all(&history.users);
            }
            if let Some(history) = self.legacy.get(&stream.device) {
                match stream.rule {
                    StreamRule::Legacy => {
                        wanted.all(&history.changes);
                        wanted.all(&history.users);
                    }
                    StreamRule::Blocking => wanted.all(&history.changes),
                    StreamRule::NonBlocking => {}
                }
            }
            if let Some(history) = self.devices.get(&stream.device) {
                wanted.all(&history.changes);
            }
        }
        match facts.sync {
            // The records of an event are changes of one of the objects used.
            Sync::None | Sync::Event(_) => {}
            Sync::Stream(stream) => {
                if let Some((_, history)) = self.streams.get(&stream.object) {
                    wanted.all(&history.changes);
                }
                if let Some(history) = self.legacy.get(&stream.device) {
                    match stream.rule {
                        StreamRule::Legacy => {
                            wanted.all(&history.changes);
                            wanted.all(&history.users);
                        }
                        StreamRule::Blocking | StreamRule::NonBlocking => {}
                    }
                }
            }
            Sync::Device(device) => {
                if let Some(history) = self.devices.get(&device) {
                    wanted.all(&history.changes);
                    wanted.all(&history.users);
                }
            }
        }
        for &(object, writes) in &facts.memory {
            if let Some(uses) = self.memory.get(&object) {
                self.after_uses(uses, writes, facts, &mut wanted);
            }
        }
        if !self.unnamed.is_empty() && (facts.enqueues_on.is_some() || !facts.memory.is_empty()) {
            self.after_uses(&self.unnamed, true, facts, &mut wanted);
        }
        if facts.reach == Reach::Any {
            self.after_all_work(facts, &mut wanted);
        }
    }

    /// After uses of an allocation that conflict.
    fn after_uses(&self, uses: &[PlaceUse], writes: bool, facts: &CallFacts, wanted: &mut Wanted<'_>) {
        for earlier in uses {
            // Work on one stream runs in the order it was enqueued, which the stream's own edges keep. Of a launch on several it is
            // not told which of them uses the memory.
            if facts.also_on.is_empty()
                && matches!(earlier.place, Where::On(stream) if facts.enqueues_on == Some(stream))
            {
                continue;
            }
            let nodes = earlier.write.iter().chain(earlier.read.iter().filter(|_| writes));
            let all_visible = nodes.fold(true, |visible, node| self.after_work(earlier.place, node, wanted) & visible);
            if !all_visible {
                // The last use there was not made visible; an earlier one may have been.
                let covering = self.visibility.latest(earlier.place);
                wanted.all(covering.filter(|sync| sync.covers_until > earlier.first_end).map(|sync| &sync.node));
            }
        }
    }

    /// After the call that made a call's work visible, or else after the call. Whether there is one that did.
    fn after_work(&self, place: Where, node: &Node, wanted: &mut Wanted<'_>) -> bool {
        let sync = self.visibility.first_covering(place, node);
        wanted.one(sync.map_or(node, |sync| &sync.node));
        wanted.all(self.visibility.first_covering_by_value(place, node).map(|sync| &sync.node));
        sync.is_some() || matches!(place, Where::Done(_))
    }

    /// After everything on all other streams that was made visible, and what was enqueued there last.
    fn after_all_work(&self, facts: &CallFacts, wanted: &mut Wanted<'_>) {
        let live = self.streams.values().map(|(stream, history)| (stream, &history.changes));
        for (stream, changes) in live.chain(self.ended.iter().map(|(stream, changes)| (stream, changes))) {
            if facts.enqueues_on == Some(*stream) {
                continue;
            }
            for node in changes {
                self.after_work(Where::On(*stream), node, wanted);
            }
            wanted.all(self.visibility.latest(Where::On(*stream)).map(|sync| &sync.node));
        }
        wanted.all(&self.after_ended);
    }

    /// Lets go of streams that have ended and whose work was waited for; only the waits matter from then on.
    fn settle_ended(&mut self) {
        /// Streams that are kept although nothing has waited for their work: of the oldest only the enqueues matter beyond.
        const KEPT: usize = 256;
        let waited_for = |visibility: &Visibility, (stream, changes): &(StreamKey, Vec<Node>)| {
            changes.iter().all(|node| visibility.first_covering(Where::On(*stream), node).is_some())
        };
        let mut at = 0;
        while at < self.ended.len() {
            if self.ended.len() <= KEPT && !waited_for(&self.visibility, &self.ended[at]) {
                at += 1;
                continue;
            }
            let Some((stream, changes)) = self.ended.remove(at) else { return };
            for node in &changes {
                let wait = self.visibility.first_covering(Where::On(stream), node);
                keep_last(&mut self.after_ended, wait.map_or(node, |wait| &wait.node));
            }
            for wait in self.visibility.latest(Where::On(stream)) {
                keep_last(&mut self.after_ended, &wait.node);
            }
        }
    }

    /// The call `node` has returned.
    pub(crate) fn returned(&mut self, node: Node, facts: &CallFacts) {
        for &object in &facts.creates {
            self.objects.insert(object, History { changes: vec![node.clone()], ..History::default() });
        }
        for &(object, how) in &facts.uses {
            match how {
                Use::Occupies => self.objects.entry(object).or_default().change(&node),
                Use::Changes if self.mode == OrderMode::Deps => self.objects.entry(object).or_default().change(&node),
                Use::Reads | Use::Changes => self.objects.entry(object).or_default().read(&node),
                Use::Ends => {}
            }
        }
        if self.mode == OrderMode::Deps {
            self.order_work(&node, facts);
        }
        if facts.fence == Fence::All {
            self.fences.change(&node);
        }
        self.last[node.lane() as usize] = Some(node.clone());
        // Nothing that is entered from now on uses what has ended.
        for &(object, how) in &facts.uses {
            if how == Use::Ends {
                self.objects.remove(&object);
                self.memory.remove(&object);
                if let Some((stream, history)) = self.streams.remove(&object) {
                    self.ended.push_back((stream, history.changes));
                    self.settle_ended();
                    self.visibility.stream_ended(stream);
                }
                self.visibility.event_ended(object);
            }
        }
    }

    fn order_work(&mut self, node: &Node, facts: &CallFacts) {
        for stream in facts.streams() {
            self.stream(stream).change(node);
            match stream.rule {
                StreamRule::Legacy => self.legacy.entry(stream.device).or_default().change(node),
                StreamRule::Blocking => self.legacy.entry(stream.device).or_default().read(node),
                StreamRule::NonBlocking => {}
            }
            self.devices.entry(stream.device).or_default().read(node);
            if !facts.failed && facts.enqueues_on == Some(stream) {
                self.visibility.enqueued(stream, node, facts);
            } else if !facts.failed {
                self.visibility.enqueued_beside(stream, node);
            }
        }
        match facts.sync {
            Sync::None | Sync::Event(_) => {}
            Sync::Stream(stream) if facts.enqueues_on.is_none() => {
                self.stream(stream).read(node);
                if stream.rule == StreamRule::Legacy {
                    self.legacy.entry(stream.device).or_default().change(node);
                }
            }
            Sync::Stream(_) => {}
            Sync::Device(device) => self.devices.entry(device).or_default().change(node),
        }
        if !facts.failed {
            self.visibility.synchronised(node, facts);
            if facts.sync != Sync::None && !self.ended.is_empty() {
                self.settle_ended();
            }
        }
        let place = facts.place(node.lane());
        for &(object, writes) in &facts.memory {
            let uses = self.memory.entry(object).or_default();
            for place in std::iter::once(place).chain(facts.also_on.iter().copied().map(Where::On)) {
                note_use(&self.visibility, uses, place, node, writes);
            }
        }
        if facts.reach == Reach::Any {
            note_use(&self.visibility, &mut self.unnamed, place, node, true);
        }
    }

    fn stream(&mut self, stream: StreamKey) -> &mut History {
        &mut self.streams.entry(stream.object).or_insert_with(|| (stream, History::default())).1
    }
}

/// Keeps the last call of each captured thread, which comes after that thread's others.
fn keep_last(nodes: &mut Vec<Node>, node: &Node) {
    match nodes.iter_mut().find(|known| known.lane() == node.lane()) {
        Some(known) if known.point.number < node.point.number => *known = node.clone(),
        Some(_) => {}
        None => nodes.push(node.clone()),
    }
}

/// Notes a use of an allocation. A write stands for all uses that were known to be complete when it was entered.
fn note_use(visibility: &Visibility, uses: &mut Vec<PlaceUse>, place: Where, node: &Node, writes: bool) {
    if writes && uses.len() > 1 {
        uses.retain(|earlier| {
            earlier.place == place
                || !earlier
                    .write
                    .iter()
                    .chain(&earlier.read)
                    .all(|known| visibility.complete(earlier.place, known, node.begin))
        });
    }
    let at = uses.iter().position(|known| known.place == place).unwrap_or_else(|| {
        uses.push(PlaceUse { place, first_end: node.end, write: None, read: None });
        uses.len() - 1
    });
    let here = &mut uses[at];
    let last = if writes { &mut here.write } else { &mut here.read };
    // Of two that overlapped, the one that was entered later is enqueued behind the other.
    let earlier = |known: &Node| known.point.number < node.point.number;
    if last.as_ref().is_none_or(earlier) {
        *last = Some(node.clone());
    }
    if writes && here.read.as_ref().is_some_and(earlier) {
        here.read = None;
    }
}

/// Predecessors of a call, as they are found.
struct Wanted<'a> {
    lane: u32,
    begin: u64,
    knowledge: &'a Knowledge,
    points: &'a mut Vec<Point>,
}

impl Wanted<'_> {
    fn one(&mut self, node: &Node) {
        if node.lane() != self.lane && node.end < self.begin && !self.knowledge.has(self.lane, &node.point) {
            self.points.push(node.point.clone());
        }
    }

    fn all<'n>(&mut self, nodes: impl IntoIterator<Item = &'n Node>) {
        for node in nodes {
            self.one(node);
        }
    }
}
