//! Which synchronising calls made enqueued work visible to the program.
//!
//! Waiting for a stream also makes visible what its work had waited for on the device: what an event recorded on another
//! stream, and what the rules of the legacy default stream put in front.
//!
//! Work that waits for a value comes behind the write of it, which may be enqueued later. Which write that is can only be
//! guessed: the value may have been there before. So what is known by values is kept apart. It adds waits, and takes the
//! place of none. The same goes for waits for some of a device's streams, of which it is not known for which.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::Node;
use super::dependency::{CallFacts, StreamKey, StreamRule, Sync};

/// Where the work of a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    /// On a stream.
    On(StreamKey),
    /// It was complete when the call of this lane returned.
    Done(u32),
}

/// A synchronising call: everything in its scope that had been enqueued before `covers_until` is done once it returns.
#[derive(Debug, Clone)]
pub(crate) struct Synchronised {
    pub(crate) covers_until: u64,
    /// The lane whose tick that is: its own calls up to that very tick are covered.
    covers_lane: u32,
    pub(crate) node: Node,
}

impl Synchronised {
    fn covers(&self, node: &Node) -> bool {
        node.end < self.covers_until
            || (node.end == self.covers_until
                && self.covers_lane == node.lane()
                && self.node.point.number > node.point.number)
    }
}

/// Synchronising calls of one scope, each covering more than the one before.
#[derive(Debug, Default)]
struct Scope(VecDeque<Synchronised>);

/// Synchronising calls kept per scope. In place of an older one that was dropped, a later one serves that covers more.
const KEPT: usize = 128;

impl Scope {
    fn push(&mut self, covers_until: u64, covers_lane: u32, node: &Node) {
        // Calls come in the order they returned: one that covers no more than an earlier one adds nothing.
        if self.0.back().is_none_or(|last| last.covers_until < covers_until) {
            if self.0.len() >= KEPT {
                self.0.pop_front();
            }
            self.0.push_back(Synchronised { covers_until, covers_lane, node: node.clone() });
        }
    }

    fn first_covering(&self, node: &Node) -> Option<&Synchronised> {
        // Nearly always one of the last.
        if !self.0.back().is_some_and(|last| last.covers(node)) {
            return None;
        }
        self.0.get(self.0.partition_point(|sync| !sync.covers(node)))
    }
}

/// Work that comes before a stream's own on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Before {
    /// The work of one stream.
    Stream(u32),
    /// The work of all blocking streams of a device.
    Blocking(i32),
}

/// "What had been enqueued there until this tick of this lane comes first."
#[derive(Clone, Copy, Debug)]
struct Included {
    what: Before,
    until: u64,
    lane: u32,
    /// A value that the work waits for tells so.
    by_value: bool,
}

fn include(list: &mut Vec<Included>, new: Included) {
    match list.iter_mut().find(|known| (known.what, known.by_value) == (new.what, new.by_value)) {
        Some(known) if known.until >= new.until => {}
        Some(known) => *known = new,
        None => list.push(new),
    }
}

/// A record of an event.
#[derive(Clone, Debug)]
struct Recorded {
    stream: StreamKey,
    until: u64,
    lane: u32,
    includes: Vec<Included>,
}

/// What a call saw of the device's order when it was entered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// The stream and tick of the record that the event held.
    record: Option<(StreamKey, u64, u32)>,
    /// What the record, or the stream, came after.
    includes: Vec<Included>,
}

impl Seen {
    /// Forgets everything and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.record = None;
        self.includes.clear();
    }
}

/// A stream's place in the device's order.
#[derive(Debug)]
struct StreamOrder {
    device: i32,
    includes: Vec<Included>,
}

/// Synchronising calls by what they cover.
#[derive(Debug, Default)]
struct Scopes {
    streams: FxHashMap<u32, Scope>,
    /// Synchronisation with the legacy default stream covers the device's blocking streams.
    legacy: FxHashMap<i32, Scope>,
    devices: FxHashMap<i32, Scope>,
}

impl Scopes {
    /// Those that cover work in a place.
    fn of(&self, place: Where) -> impl Iterator<Item = &Scope> {
        let stream = match place {
            Where::On(stream) => Some(stream),
            Where::Done(_) => None,
        };
        let own = stream.and_then(|stream| self.streams.get(&stream.object));
        let blocking = stream.filter(|stream| stream.rule != StreamRule::NonBlocking);
        let legacy = blocking.and_then(|stream| self.legacy.get(&stream.device));
        let device = stream.and_then(|stream| self.devices.get(&stream.device));
        [own, legacy, device].into_iter().flatten()
    }

    fn first_covering(&self, place: Where, node: &Node) -> Option<&Synchronised> {
        self.of(place).filter_map(|scope| scope.first_covering(node)).min_by_key(|sync| sync.node.end)
    }

    fn latest(&self, place: Where) -> impl Iterator<Item = &Synchronised> {
        self.of(place).filter_map(|scope| scope.0.back())
    }
}

/// All synchronising calls so far.
#[derive(Debug, Default)]
pub(crate) struct Visibility {
    scopes: Scopes,
    /// What values and waits for part of a device tell besides.
    by_value: Scopes,
    /// By address: what comes in front of the last write that a stream makes there.
    written: FxHashMap<u64, Vec<Included>>,
    /// By address: streams that wait for a value there since the last write.
    waiting: FxHashMap<u64, Vec<StreamKey>>,
    /// By event, its last record.
    records: FxHashMap<u32, Recorded>,
    /// By stream: what its work comes after, where that is anything.
    order: FxHashMap<u32, StreamOrder>,
    /// The legacy default stream of each device that has had work.
    legacy_streams: FxHashMap<i32, u32>,
}

impl Visibility {
    /// Keeps with a call that is entered what it sees, which calls that return before it does must not change.
    pub(crate) fn look(&self, facts: &mut CallFacts) {
        let seen = &mut facts.seen;
        let event = match facts.sync {
            Sync::Event(event) => Some(event),
            _ => facts.device_waits,
        };
        if let Some(record) = event.and_then(|event| self.records.get(&event)) {
            seen.record = Some((record.stream, record.until, record.lane));
            seen.includes.extend_from_slice(&record.includes);
        }
        let waited = match facts.sync {
            Sync::Stream(stream) => Some(stream),
            _ => None,
        };
        let recorded = facts.enqueues_on.filter(|_| facts.records.is_some());
        let blocking = facts.enqueues_on.filter(|stream| stream.rule == StreamRule::Blocking);
        let legacy = blocking.and_then(|stream| self.legacy_streams.get(&stream.device).copied());
        let streams = [waited.map(|stream| stream.object), recorded.map(|stream| stream.object), legacy];
        for order in streams.into_iter().flatten().filter_map(|stream| self.order.get(&stream)) {
            seen.includes.extend_from_slice(&order.includes);
        }
        if let Sync::Device(device) = facts.sync {
            let of_device = self.order.values().filter(|order| order.device == device);
            seen.includes.extend(of_device.flat_map(|order| &order.includes));
        }
    }

    /// A call has returned that put work on a stream, recorded an event there, or had it wait for one.
    pub(crate) fn enqueued(&mut self, stream: StreamKey, node: &Node, facts: &CallFacts) {
        if stream.rule == StreamRule::Legacy {
            self.legacy_streams.insert(stream.device, stream.object);
        }
        let by_rule = self.by_rule(stream, node);
        let waited = match facts.sync {
            Sync::None => facts.seen.record,
            _ => None,
        };
        let waited = waited.map(|(other, until, lane)| Included {
            what: Before::Stream(other.object),
            until,
            lane,
            by_value: false,
        });
        for included in facts.seen.includes.iter().copied().chain(by_rule).chain(waited) {
            self.include(stream, included);
        }
        if let Some(event) = facts.records {
            let includes = facts.seen.includes.iter().copied().chain(by_rule).collect();
            self.records.insert(event, Recorded { stream, until: node.begin, lane: node.lane(), includes });
        }
        for &(address, writes) in &facts.values {
            if writes { self.value_written(stream, node, address) } else { self.value_awaited(stream, address) }
        }
    }

    /// Work of a stream writes a value that others may wait for.
    fn value_written(&mut self, stream: StreamKey, node: &Node, address: u64) {
        let own =
            Included { what: Before::Stream(stream.object), until: node.begin, lane: node.lane(), by_value: true };
        let behind = self.order.get(&stream.object).map_or(&[][..], |order| &order.includes);
        let mut before: Vec<Included> =
            behind.iter().map(|&included| Included { by_value: true, ..included }).collect();
        before.push(own);
        for other in self.waiting.remove(&address).unwrap_or_default() {
            self.include_all(other, &before);
        }
        self.written.insert(address, before);
    }

    /// Work of a stream waits for a value.
    fn value_awaited(&mut self, stream: StreamKey, address: u64) {
        if let Some(before) = self.written.get(&address).cloned() {
            self.include_all(stream, &before);
        }
        let waiting = self.waiting.entry(address).or_default();
        if !waiting.contains(&stream) {
            waiting.push(stream);
        }
    }

    fn include_all(&mut self, stream: StreamKey, before: &[Included]) {
        for included in before.iter().filter(|included| included.what != Before::Stream(stream.object)) {
            self.include(stream, *included);
        }
    }

    /// A call has returned that put work on a further stream.
    pub(crate) fn enqueued_beside(&mut self, stream: StreamKey, node: &Node) {
        if let Some(included) = self.by_rule(stream, node) {
            self.include(stream, included);
        }
    }

    /// What comes before work on a stream by the rules of the legacy default stream.
    fn by_rule(&self, stream: StreamKey, node: &Node) -> Option<Included> {
        let what = match stream.rule {
            StreamRule::Legacy => Before::Blocking(stream.device),
            StreamRule::Blocking => Before::Stream(*self.legacy_streams.get(&stream.device)?),
            StreamRule::NonBlocking => return None,
        };
        Some(Included { what, until: node.begin, lane: node.lane(), by_value: false })
    }

    fn include(&mut self, stream: StreamKey, included: Included) {
        let order = self.order.entry(stream.object);
        let order = order.or_insert_with(|| StreamOrder { device: stream.device, includes: Vec::new() });
        include(&mut order.includes, included);
    }

    /// An event was destroyed.
    pub(crate) fn event_ended(&mut self, event: u32) {
        self.records.remove(&event);
    }

    /// A stream was destroyed. Memory its work used may live on; the last synchronisation serves for all.
    pub(crate) fn stream_ended(&mut self, stream: StreamKey) {
        self.order.remove(&stream.object);
        for scopes in [&mut self.scopes, &mut self.by_value] {
            if let Some(scope) = scopes.streams.get_mut(&stream.object) {
                let last = scope.0.pop_back();
                scope.0 = last.into_iter().collect();
            }
        }
    }

    /// A call that waits as its facts say has returned.
    pub(crate) fn synchronised(&mut self, node: &Node, facts: &CallFacts) {
        let covered = match facts.sync {
            Sync::None => return,
            Sync::Device(device) => {
                let scopes = if facts.waits_in_part { &mut self.by_value } else { &mut self.scopes };
                scopes.devices.entry(device).or_default().push(node.begin, node.lane(), node);
                None
            }
            Sync::Stream(stream) => Some((stream, node.begin, node.lane())),
            Sync::Event(_) => facts.seen.record,
        };
        if let Some((stream, until, lane)) = covered {
            self.scopes.streams.entry(stream.object).or_default().push(until, lane, node);
            if stream.rule == StreamRule::Legacy {
                self.scopes.legacy.entry(stream.device).or_default().push(until, lane, node);
            }
        }
        let by_rule = facts.enqueues_on.and_then(|stream| self.by_rule(stream, node));
        let mut later = Vec::new();
        if !self.written.is_empty() {
            // A value that was written while the call waited is what it waited for.
            let is_awaited = |stream: u32, order: &StreamOrder| match facts.sync {
                Sync::Stream(awaited) => awaited.object == stream,
                Sync::Device(device) => order.device == device,
                Sync::None | Sync::Event(_) => false,
            };
            let orders = self.order.iter().filter(|(stream, order)| is_awaited(**stream, order));
            later.extend(orders.flat_map(|(_, order)| &order.includes).filter(|included| included.by_value));
        }
        for known in facts.seen.includes.iter().copied().chain(by_rule).chain(later) {
            let scopes = if known.by_value || facts.waits_in_part { &mut self.by_value } else { &mut self.scopes };
            let scope = match known.what {
                Before::Stream(stream) => scopes.streams.entry(stream).or_default(),
                Before::Blocking(device) => scopes.legacy.entry(device).or_default(),
            };
            scope.push(known.until, known.lane, node);
        }
    }

    /// The call that first made a call's work visible.
    pub(crate) fn first_covering(&self, place: Where, node: &Node) -> Option<&Synchronised> {
        self.scopes.first_covering(place, node)
    }

    /// The same, as far as values tell.
    pub(crate) fn first_covering_by_value(&self, place: Where, node: &Node) -> Option<&Synchronised> {
        self.by_value.first_covering(place, node)
    }

    /// The call of each scope that covers most, values included.
    pub(crate) fn latest(&self, place: Where) -> impl Iterator<Item = &Synchronised> {
        self.scopes.latest(place).chain(self.by_value.latest(place))
    }

    /// Whether a call's work was known to be complete before `begin`.
    pub(crate) fn complete(&self, place: Where, node: &Node, begin: u64) -> bool {
        match place {
            Where::Done(_) => node.end < begin,
            Where::On(_) => self.first_covering(place, node).is_some_and(|sync| sync.node.end < begin),
        }
    }
}
