//! Which calls of other captured threads a call must come after.
//!
//! * [`OrderMode::Capture`]: everything that had returned when the call was entered. The calls of an archive, each with
//!   an entry and a return tick, form an interval order, and its transitive reduction is known: with M the latest entry
//!   among the calls that had returned when B was entered, exactly those calls that returned at or after M are
//!   immediate predecessors of B; whatever returned before M was already awaited by the call entered at M. So waits come
//!   out minimal without comparing vectors, at amortised constant cost.
//! * [`OrderMode::Deps`]: only what can matter; see [`dependency`].
//! * [`OrderMode::Program`]: handle lifetimes only, a part of the former.
//!
//! * [`facts`]: what that needs to know of a call; [`graph_events`]: captures, and events that graphs record
//! * [`dependency`], [`visibility`], [`values`], [`looks`]: what `deps` and `program` find in it
//! * [`knowledge`]: what a worker is sure of; [`edges`]: waits are found beside the walk
//!
//! Waits that a worker's earlier waits, or its own sequence, already imply are left out in every mode. With one worker per
//! captured thread the reduction of the interval order leaves nothing more to leave out.
//!
//! Every wait is for a call that was entered earlier, so waits cannot form a cycle.

pub(crate) mod dependency;
pub(crate) mod edges;
pub(crate) mod facts;
pub(crate) mod graph_events;
pub(crate) mod knowledge;
pub(crate) mod looks;
pub(crate) mod values;
pub(crate) mod visibility;

use std::cmp::Reverse;
use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::instruction::Wait;

use dependency::{CallFacts, Dependencies};
use knowledge::{Knowledge, Point, Tracking};

/// Which order a replay keeps between captured threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OrderMode {
    /// Whatever had returned before a call was entered returns before it is issued.
    #[default]
    Capture,
    /// Handle lifetimes, stream order, events, conflicting memory, device-wide calls.
    Deps,
    /// Handle lifetimes and each thread's own order only.
    Program,
}

impl OrderMode {
    /// The word on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            OrderMode::Capture => "capture",
            OrderMode::Deps => "deps",
            OrderMode::Program => "program",
        }
    }

    /// The mode of a word on the command line.
    pub fn from_word(word: &str) -> Option<Self> {
        [OrderMode::Capture, OrderMode::Deps, OrderMode::Program].into_iter().find(|mode| mode.as_str() == word)
    }
}

/// A call as a predecessor of later ones.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) point: Point,
    pub(crate) begin: u64,
    /// Return tick, not before `begin`.
    pub(crate) end: u64,
    /// The stream it enqueued on without blocking; 0 = none.
    pub(crate) in_order_on: u32,
    /// Whether an earlier enqueue on that stream had not returned when it was entered: it waits for that one all the same.
    pub(crate) overlaps: bool,
}

impl Node {
    /// Captured thread.
    pub(crate) fn lane(&self) -> u32 {
        self.point.lane
    }
}

/// Computes the waits of each call, in timeline order.
#[derive(Debug)]
pub(crate) struct Order {
    mode: OrderMode,
    tracking: Tracking,
    knowledge: Knowledge,
    /// Calls that have returned at a tick which no call entered so far lies behind.
    returning: VecDeque<(Node, Option<Box<CallFacts>>)>,
    /// Capture mode: calls that have returned, by return tick, as far back as they can be immediate predecessors.
    returned: VecDeque<Node>,
    /// Capture mode: the latest entry among the calls that have returned.
    latest_begin: u64,
    /// Capture mode: of the enqueues that overlapped an earlier one on their stream and have returned, the last of each
    /// stream. It stands for all that were entered on the stream before it.
    chained: FxHashMap<u32, u64>,
    /// Capture mode: entry tick of each lane's last call.
    lane_begin: Vec<u64>,
    /// Capture mode with one worker per lane: calls entered so far, and by lane the last of them that waits for it.
    calls: u64,
    awaited: Vec<u64>,
    dependencies: Dependencies,
    wanted: Vec<Point>,
    /// Capture mode: calls wanted, by their place among all calls and in `returned`.
    latest: Vec<(u64, usize)>,
    /// Facts whose memory can be used again.
    #[expect(clippy::vec_box, reason = "facts travel with their calls; moving a box is cheap")]
    spare_facts: Vec<Box<CallFacts>>,
    /// Waits emitted.
    pub(crate) emitted: u64,
}

impl Order {
    /// The order of an archive whose lanes are executed by these workers.
    pub(crate) fn new(mode: OrderMode, worker_of: Vec<u32>) -> Self {
        let lanes = worker_of.len();
        let workers = worker_of.iter().max().map_or(0, |&last| last as usize + 1);
        let tracking = if mode == OrderMode::Capture && workers == lanes { Tracking::Off } else { Tracking::On };
        Order {
            mode,
            tracking,
            knowledge: Knowledge::new(worker_of, tracking),
            returning: VecDeque::new(),
            returned: VecDeque::new(),
            latest_begin: 0,
            chained: FxHashMap::default(),
            lane_begin: vec![0; lanes],
            calls: 0,
            awaited: vec![0; lanes],
            dependencies: Dependencies::new(mode, lanes),
            wanted: Vec::new(),
            latest: Vec::new(),
            spare_facts: Vec::new(),
            emitted: 0,
        }
    }

    /// Empty facts to fill in for a call.
    pub(crate) fn facts(&mut self) -> Box<CallFacts> {
        self.spare_facts.pop().unwrap_or_default()
    }

    /// Appends to `waits` what the call entered now must wait for. `overlapping` is the enqueue on the same stream that was
    /// entered before it and had not returned: in truth the two are unordered, and the order of entry is taken.
    pub(crate) fn begin(
        &mut self,
        lane: u32,
        begin: u64,
        facts: &mut CallFacts,
        overlapping: Option<&Node>,
        waits: &mut Vec<Wait>,
    ) {
        let before = waits.len();
        self.settle(begin);
        self.knowledge.advance(lane);
        // The diagnostic order knows no streams.
        let overlapping = overlapping.filter(|_| self.mode != OrderMode::Program);
        if self.tracking == Tracking::Off {
            self.begin_exact(lane, overlapping, waits);
        } else {
            self.wanted.clear();
            match self.mode {
                OrderMode::Capture => {
                    let floor = self.lane_begin[lane as usize];
                    let knowledge = &self.knowledge;
                    let latest = self.returned.iter().enumerate().rev().take_while(|(_, node)| node.end >= floor);
                    let unknown = latest.filter(|(_, node)| node.lane() != lane && !knowledge.has(lane, &node.point));
                    self.latest.clear();
                    self.latest.extend(unknown.map(|(at, node)| (node.point.number, at)));
                }
                OrderMode::Deps | OrderMode::Program => {
                    self.dependencies.predecessors(lane, begin, facts, &self.knowledge, &mut self.wanted);
                }
            }
            // A call of this very thread that was handed to another runner may still be on its way.
            self.wanted.extend(self.knowledge.own_handed(lane).cloned());
            self.wanted.extend(overlapping.map(|node| node.point.clone()));
            // Later ones first: only they can imply the earlier ones.
            if self.wanted.is_empty() {
                self.latest.sort_unstable_by_key(|&(number, _)| Reverse(number));
                for &(_, at) in &self.latest {
                    self.knowledge.wait(lane, &self.returned[at].point, waits);
                }
            } else {
                self.wanted.extend(self.latest.iter().map(|&(_, at)| self.returned[at].point.clone()));
            }
            self.wanted.sort_unstable_by_key(|point| Reverse(point.number));
            for point in &self.wanted {
                self.knowledge.wait(lane, point, waits);
            }
        }
        self.lane_begin[lane as usize] = begin;
        self.emitted += (waits.len() - before) as u64;
    }

    /// Capture mode with one worker per lane.
    fn begin_exact(&mut self, lane: u32, overlapping: Option<&Node>, waits: &mut Vec<Wait>) {
        // What had returned before the lane's own last call, or the overlapping one, was entered is implied by it.
        let floor = self.lane_begin[lane as usize].max(overlapping.map_or(0, |node| node.begin));
        // The overlapping enqueue comes after all that were entered on the stream before it.
        let stream = overlapping.map_or(u32::MAX, |node| node.in_order_on);
        if let Some(node) = overlapping {
            waits.push(Wait { lane: node.lane(), count: node.point.count });
        }
        self.calls += 1;
        self.awaited[lane as usize] = self.calls;
        if let Some(node) = overlapping {
            self.awaited[node.lane() as usize] = self.calls;
        }
        for node in self.returned.iter().rev().take_while(|node| node.end >= floor) {
            // Two calls of one thread can both be immediate where one returned at the tick the next was entered.
            let awaited = &mut self.awaited[node.lane() as usize];
            if *awaited != self.calls && node.in_order_on != stream {
                *awaited = self.calls;
                waits.push(Wait { lane: node.lane(), count: node.point.count });
            }
        }
    }

    /// Adds a wait for the lane's own last call where another runner may still be in it, for an instruction that replay
    /// adds behind it. To be followed by [`Self::issued`].
    pub(crate) fn after_own(&mut self, lane: u32, waits: &mut Vec<Wait>) {
        let before = waits.len();
        self.knowledge.advance(lane);
        if let Some(point) = self.knowledge.own_handed(lane).cloned() {
            self.knowledge.wait(lane, &point, waits);
        }
        self.emitted += (waits.len() - before) as u64;
    }

    /// The call that brings `lane` to `count` is issued at this place of its worker's sequence; if it is not handed off, the
    /// worker waits for it to return.
    pub(crate) fn issued(&mut self, lane: u32, count: u64, handed_off: bool) -> Point {
        self.knowledge.issue(lane, count, handed_off)
    }

    /// What was issued last for `lane` belongs to its call that has just returned: what comes after that call comes after
    /// this too. Nothing was entered since the call returned.
    pub(crate) fn prolong(&mut self, lane: u32, point: Point) {
        if let Some((node, _)) = self.returning.iter_mut().rev().find(|(node, _)| node.lane() == lane) {
            node.point = point;
        }
    }

    /// The call `node` has returned. Calls that replay leaves out must not be told: nothing can be awaited by them.
    /// Capture order needs no facts.
    pub(crate) fn end(&mut self, node: Node, facts: Option<Box<CallFacts>>) {
        if self.mode == OrderMode::Capture {
            facts.into_iter().for_each(|facts| self.recycle(facts));
            self.returning.push_back((node, None));
        } else {
            self.returning.push_back((node, facts));
        }
    }

    /// Takes in the calls that returned before `begin`. A call that returned at that very tick is not known to have come
    /// first.
    fn settle(&mut self, begin: u64) {
        while self.returning.front().is_some_and(|(node, _)| node.end < begin) {
            let Some((node, facts)) = self.returning.pop_front() else { return };
            match self.mode {
                OrderMode::Capture => {
                    self.latest_begin = self.latest_begin.max(node.begin);
                    if node.overlaps {
                        let last = self.chained.entry(node.in_order_on).or_default();
                        *last = node.point.number.max(*last);
                        let (last, stream) = (*last, node.in_order_on);
                        self.returned.retain(|earlier| earlier.in_order_on != stream || earlier.point.number >= last);
                    }
                    let implied = node.in_order_on != 0
                        && !self.chained.is_empty()
                        && self.chained.get(&node.in_order_on).is_some_and(|&last| last > node.point.number);
                    if !implied {
                        self.returned.push_back(node);
                    }
                    while self.returned.front().is_some_and(|node| node.end < self.latest_begin) {
                        self.returned.pop_front();
                    }
                }
                OrderMode::Deps | OrderMode::Program => {
                    if let Some(facts) = facts {
                        self.dependencies.returned(node, &facts);
                        self.recycle(facts);
                    }
                }
            }
        }
    }

    /// Moves facts whose memory can be used again to `spare`.
    #[expect(clippy::vec_box, reason = "facts travel with their calls; moving a box is cheap")]
    pub(crate) fn take_spare(&mut self, spare: &mut Vec<Box<CallFacts>>) {
        spare.append(&mut self.spare_facts);
    }

    /// Takes back facts that are no longer needed.
    fn recycle(&mut self, mut facts: Box<CallFacts>) {
        facts.clear();
        self.spare_facts.push(facts);
    }
}

#[cfg(test)]
mod tests;
