//! The pairs of calls whose order a mode demands, each looked at.
//!
//! The calls are gone through as they were entered and returned at capture. "All calls that had returned and did such and
//! such must have returned in the replay before this one was issued" is decided by the one among them that returned last in
//! the replay, so that is all that is kept of each kind.

use rustc_hash::FxHashMap;

use super::calls::{Awaited, Call, How, Object, Rule, Stream};
use super::device_order::{DeviceOrder, View, Work};
use crate::plan::order::OrderMode;
use crate::report::order_log::Logged;

/// Violations that are described.
const SHOWN: usize = 20;

/// Why one call must come after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    Thread,
    Returned,
    Made,
    Changed,
    Used,
    Stream,
    Overlapping,
    Device,
    Memory,
    Completed,
    AnyMemory,
    Capture,
}

impl Reason {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Reason::Thread => "it is the same captured thread",
            Reason::Returned => "it had returned at capture",
            Reason::Made => "it made what is used",
            Reason::Changed => "it changed what is used",
            Reason::Used => "it used what is changed or ended",
            Reason::Stream => "it enqueued on the same stream, or waited for it",
            Reason::Overlapping => "it was entered first on the same stream",
            Reason::Device => "one of them is about the whole device",
            Reason::Memory => "they use the same memory",
            Reason::Completed => "it had waited for earlier work on the same memory",
            Reason::AnyMemory => "one of them may use any memory",
            Reason::Capture => "one of them begins or ends a capture",
        }
    }
}

/// Two calls out of order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Violation {
    pub(super) first: Logged,
    pub(super) second: Logged,
    pub(super) reason: Reason,
}

/// Calls that have returned at capture: how many, and the one that returned last in the replay.
#[derive(Clone, Copy, Debug, Default)]
struct Calls {
    count: u64,
    last: Option<Logged>,
}

impl Calls {
    fn add(&mut self, call: Option<Logged>) {
        let Some(call) = call else { return };
        self.count += 1;
        if self.last.is_none_or(|last| last.returned < call.returned) {
            self.last = Some(call);
        }
    }
}

/// Calls that stand to something in one of two ways.
#[derive(Debug, Default)]
struct Standing {
    made: Calls,
    changes: Calls,
    uses: Calls,
}

/// Uses of an allocation by work on one stream, or by calls that were over when they returned.
#[derive(Debug)]
struct Place {
    stream: Option<Stream>,
    reads: Uses,
    writes: Uses,
}

#[derive(Debug, Default)]
struct Uses {
    /// Not known to have been waited for, in the order they returned.
    open: Vec<(Work, Logged)>,
    /// The last of those that were.
    covered: Option<(Work, Logged)>,
}

impl Uses {
    fn add(&mut self, work: Work, call: Option<Logged>) {
        self.open.extend(call.map(|call| (work, call)));
    }

    /// Sorts those that have been waited for by now from the others. What covers one also covers those before it.
    fn settle(&mut self, device: &DeviceOrder) {
        let covered = self.open.partition_point(|(work, _)| device.first_wait(work).is_some());
        if covered > 0 {
            self.covered = self.open.drain(..covered).next_back();
        }
    }
}

/// Everything demanded so far.
#[derive(Debug)]
pub(super) struct Rules {
    order: OrderMode,
    lanes: Vec<Calls>,
    returned: Calls,
    objects: FxHashMap<Object, Standing>,
    streams: FxHashMap<Object, Standing>,
    /// By stream: asynchronous enqueues that were entered.
    entered: FxHashMap<Object, Calls>,
    /// By device: work on the legacy default stream or waits for it (changes), work on other blocking streams (uses).
    legacy: FxHashMap<i32, Standing>,
    /// By device: waits for it (changes), work on it (uses).
    devices: FxHashMap<i32, Standing>,
    memory: FxHashMap<Object, Vec<Place>>,
    /// Work that may use any memory (writes), and all other work (reads).
    any_memory: Vec<Place>,
    fences: Calls,
    device: DeviceOrder,
    pub(super) pairs: u64,
    pub(super) violated: u64,
    pub(super) violations: Vec<Violation>,
}

/// Calls and whether the order between them was kept, as it is found out.
struct Demands<'a> {
    second: Option<Logged>,
    pairs: &'a mut u64,
    violated: &'a mut u64,
    violations: &'a mut Vec<Violation>,
}

impl Demands<'_> {
    fn after(&mut self, calls: Option<&Calls>, reason: Reason) {
        if let Some(Calls { count, last: Some(last) }) = calls {
            *self.pairs += count - 1;
            self.after_one(*last, reason);
        }
    }

    fn after_one(&mut self, first: Logged, reason: Reason) {
        let Some(second) = self.second else { return };
        *self.pairs += 1;
        if first.returned > second.issued {
            *self.violated += 1;
            if self.violations.len() < SHOWN {
                self.violations.push(Violation { first, second, reason });
            }
        }
    }

    fn after_work(
        &mut self,
        places: &mut [Place],
        writes: bool,
        on: Option<Stream>,
        device: &DeviceOrder,
        reason: Reason,
    ) {
        for place in places {
            // The stream's own order keeps these.
            if place.stream.is_some() && place.stream == on {
                continue;
            }
            for uses in [Some(&mut place.writes), writes.then_some(&mut place.reads)].into_iter().flatten() {
                uses.settle(device);
                if let Some((work, call)) = &uses.covered {
                    match device.first_wait(work) {
                        Some(wait) => self.after_one(wait, Reason::Completed),
                        None => self.after_one(*call, reason),
                    }
                }
                if let Some((_, last)) = uses.open.iter().max_by_key(|(_, call)| call.returned) {
                    *self.pairs += uses.open.len() as u64 - 1;
                    self.after_one(*last, reason);
                }
            }
        }
    }
}

fn place(places: &mut Vec<Place>, stream: Option<Stream>) -> &mut Place {
    let at = places.iter().position(|place| place.stream == stream).unwrap_or_else(|| {
        places.push(Place { stream, reads: Uses::default(), writes: Uses::default() });
        places.len() - 1
    });
    &mut places[at]
}

impl Rules {
    pub(super) fn new(order: OrderMode, lanes: usize) -> Self {
        Rules {
            order,
            lanes: vec![Calls::default(); lanes],
            returned: Calls::default(),
            objects: FxHashMap::default(),
            streams: FxHashMap::default(),
            entered: FxHashMap::default(),
            legacy: FxHashMap::default(),
            devices: FxHashMap::default(),
            memory: FxHashMap::default(),
            any_memory: Vec::new(),
            fences: Calls::default(),
            device: DeviceOrder::default(),
            pairs: 0,
            violated: 0,
            violations: Vec::new(),
        }
    }

    /// A call is entered, after all that [`Self::returned`] was told of. `logged` is the call in the replay; one that the
    /// replay left out has nothing to keep to.
    pub(super) fn entered(&mut self, call: &Call, logged: Option<Logged>) -> View {
        let view = if self.order == OrderMode::Deps { self.device.view(call) } else { View::default() };
        let (pairs, violated, violations) = (&mut self.pairs, &mut self.violated, &mut self.violations);
        let mut demands = Demands { second: logged, pairs, violated, violations };
        let lane = &mut self.lanes[call.lane as usize];
        demands.after(Some(lane), Reason::Thread);
        lane.add(logged);
        if self.order != OrderMode::Program
            && let Some(stream) = call.enqueues_on.filter(|_| call.is_asynchronous)
        {
            let entered = self.entered.entry(stream.object).or_default();
            demands.after(Some(entered), Reason::Overlapping);
            if !call.copies_host_memory {
                entered.add(logged);
            }
        }
        if self.order == OrderMode::Capture {
            demands.after(Some(&self.returned), Reason::Returned);
            return view;
        }
        for (object, how) in &call.names {
            let Some(standing) = self.objects.get(object) else { continue };
            demands.after(Some(&standing.made), Reason::Made);
            if self.order == OrderMode::Deps {
                demands.after(Some(&standing.changes), Reason::Changed);
            }
            if *how == How::Ends || (*how == How::Changes && self.order == OrderMode::Deps) {
                demands.after(Some(&standing.uses), Reason::Used);
                demands.after(Some(&standing.changes), Reason::Used);
            }
        }
        if self.order == OrderMode::Program {
            return view;
        }
        for stream in call.streams() {
            let standing = self.streams.get(&stream.object);
            demands.after(standing.map(|standing| &standing.changes), Reason::Stream);
            demands.after(standing.map(|standing| &standing.uses), Reason::Stream);
            let legacy = self.legacy.get(&stream.device).filter(|_| stream.rule != Rule::NonBlocking);
            demands.after(legacy.map(|legacy| &legacy.changes), Reason::Stream);
            let others = legacy.filter(|_| stream.rule == Rule::Legacy);
            demands.after(others.map(|legacy| &legacy.uses), Reason::Stream);
            demands.after(self.devices.get(&stream.device).map(|device| &device.changes), Reason::Device);
        }
        match call.awaited {
            Awaited::Nothing | Awaited::Event(_) => {}
            Awaited::Stream(stream) => {
                let standing = self.streams.get(&stream.object);
                demands.after(standing.map(|standing| &standing.changes), Reason::Stream);
                let legacy = self.legacy.get(&stream.device).filter(|_| stream.rule == Rule::Legacy);
                demands.after(legacy.map(|legacy| &legacy.changes), Reason::Stream);
                demands.after(legacy.map(|legacy| &legacy.uses), Reason::Stream);
            }
            Awaited::Device(device) | Awaited::Part(device) => {
                let standing = self.devices.get(&device);
                demands.after(standing.map(|device| &device.changes), Reason::Device);
                demands.after(standing.map(|device| &device.uses), Reason::Device);
            }
        }
        let on = call.only_on();
        for &(object, writes) in &call.memory {
            if let Some(places) = self.memory.get_mut(&object) {
                demands.after_work(places, writes, on, &self.device, Reason::Memory);
            }
        }
        if call.enqueues_on.is_some() || !call.memory.is_empty() {
            demands.after_work(&mut self.any_memory, call.any_memory, on, &self.device, Reason::AnyMemory);
        }
        demands.after(Some(&self.fences), Reason::Capture);
        if call.fence {
            demands.after(Some(&self.returned), Reason::Capture);
        }
        view
    }

    /// A call had returned, before the next one was entered.
    pub(super) fn returned(&mut self, call: &Call, view: View, logged: Option<Logged>) {
        self.returned.add(logged);
        if self.order == OrderMode::Capture {
            return;
        }
        for &object in &call.makes {
            self.objects.entry(object).or_default().made.add(logged);
        }
        for &(object, how) in &call.names {
            let standing = self.objects.entry(object).or_default();
            match how {
                How::Uses => standing.uses.add(logged),
                How::Changes => standing.changes.add(logged),
                How::Ends => {}
            }
        }
        if self.order == OrderMode::Program {
            return;
        }
        for stream in call.streams() {
            self.streams.entry(stream.object).or_default().changes.add(logged);
            let legacy = self.legacy.entry(stream.device).or_default();
            match stream.rule {
                Rule::Legacy => legacy.changes.add(logged),
                Rule::Blocking => legacy.uses.add(logged),
                Rule::NonBlocking => {}
            }
            self.devices.entry(stream.device).or_default().uses.add(logged);
        }
        match call.awaited {
            Awaited::Nothing | Awaited::Event(_) => {}
            Awaited::Stream(stream) => {
                self.streams.entry(stream.object).or_default().uses.add(logged);
                if stream.rule == Rule::Legacy {
                    self.legacy.entry(stream.device).or_default().changes.add(logged);
                }
            }
            Awaited::Device(device) | Awaited::Part(device) => {
                self.devices.entry(device).or_default().changes.add(logged)
            }
        }
        if call.fence {
            self.fences.add(logged);
        }
        self.device.returned(call, view, logged);
        let stream = call.enqueues_on.filter(|_| call.awaited == Awaited::Nothing);
        let work = Work { stream, end: call.end, lane: call.lane };
        for &(object, writes) in &call.memory {
            for stream in std::iter::once(stream).chain(call.also_on.iter().copied().map(Some)) {
                let place = place(self.memory.entry(object).or_default(), stream);
                let uses = if writes { &mut place.writes } else { &mut place.reads };
                uses.add(Work { stream, ..work }, logged);
            }
        }
        if call.enqueues_on.is_some() || call.any_memory {
            let place = place(&mut self.any_memory, stream);
            let uses = if call.any_memory { &mut place.writes } else { &mut place.reads };
            uses.add(work, logged);
        }
        for &(object, how) in &call.names {
            if how == How::Ends {
                self.objects.remove(&object);
                self.memory.remove(&object);
            }
        }
    }
}
