//! Which calls of other captured threads a call must come after.
//!
//! * [`OrderMode::Capture`]: everything that had returned when the call was entered. The calls of an archive, each with
//!   an entry and a return tick, form an interval order, and its transitive reduction is known: with M the latest entry
//!   among the calls that had returned when B was entered, exactly those calls that returned at or after M are
//!   immediate predecessors of B; whatever returned before M was already awaited by the call entered at M. So waits come
//!   out minimal without comparing vectors, at amortised constant cost.
//! * [`OrderMode::Deps`]: only what can matter; see [`super::dependency`].
//! * [`OrderMode::Program`]: handle lifetimes only, a part of the former.
//!
//! Waits that a worker's earlier waits, or its own sequence, already imply are left out in every mode.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::instruction::Wait;

use super::dependency::{CallFacts, Dependencies};

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
}

/// A call as a predecessor of later ones.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) lane: u32,
    /// Progress of the lane once the call has returned.
    pub(crate) count: u64,
    pub(crate) begin: u64,
    pub(crate) end: u64,
    /// What the worker that issues it knew to be done when it issued it.
    pub(crate) known: Arc<Vec<u64>>,
}

/// What each worker knows to be done, by captured thread.
#[derive(Debug)]
struct Knowledge {
    /// Worker of each lane.
    worker_of: Vec<u32>,
    /// Per worker: progress of each lane that has been awaited, or issued by the worker itself.
    known: Vec<Arc<Vec<u64>>>,
}

/// Computes the waits of each call, in timeline order.
#[derive(Debug)]
pub(crate) struct Order {
    mode: OrderMode,
    knowledge: Knowledge,
    /// Capture mode: calls that have returned, by return tick, as far back as they can be immediate predecessors:
    /// lane, progress, return tick.
    returned: VecDeque<(u32, u64, u64)>,
    /// Capture mode: the latest entry among the calls that have returned.
    latest_begin: u64,
    dependencies: Dependencies,
    wanted: Vec<Node>,
    /// Waits emitted.
    pub(crate) emitted: u64,
}

impl Order {
    /// The order of an archive whose lanes are executed by these workers.
    pub(crate) fn new(mode: OrderMode, worker_of: Vec<u32>) -> Self {
        let workers = worker_of.iter().max().map_or(0, |&last| last as usize + 1);
        let nothing = Arc::new(vec![0; worker_of.len()]);
        Order {
            mode,
            knowledge: Knowledge { worker_of, known: vec![nothing; workers] },
            returned: VecDeque::new(),
            latest_begin: 0,
            dependencies: Dependencies::new(mode),
            wanted: Vec::new(),
            emitted: 0,
        }
    }

    /// Appends to `waits` what the call entered now must wait for. `done_before` is its lane's progress before it.
    pub(crate) fn begin(&mut self, lane: u32, begin: u64, done_before: u64, facts: &CallFacts, waits: &mut Vec<Wait>) {
        // A call of this very thread that was handed to another runner may still be on its way.
        self.knowledge.await_lane(lane, lane, done_before, None, waits);
        match self.mode {
            OrderMode::Capture => {
                for &(other, count, end) in &self.returned {
                    if other != lane && end < begin {
                        self.knowledge.await_lane(lane, other, count, None, waits);
                    }
                }
            }
            OrderMode::Deps | OrderMode::Program => {
                self.wanted.clear();
                self.dependencies.predecessors(lane, begin, facts, &mut self.wanted);
                // Later returns first: they tend to imply the earlier ones.
                self.wanted.sort_unstable_by_key(|node| std::cmp::Reverse(node.end));
                for node in &self.wanted {
                    self.knowledge.await_lane(lane, node.lane, node.count, Some(&node.known), waits);
                }
            }
        }
        self.emitted += waits.len() as u64;
    }

    /// Adds a wait for an enqueue that was entered earlier on the same stream and had not returned.
    pub(crate) fn after_overlapping(&mut self, lane: u32, other: u32, count: u64, waits: &mut Vec<Wait>) {
        let before = waits.len();
        self.knowledge.await_lane(lane, other, count, None, waits);
        self.emitted += (waits.len() - before) as u64;
    }

    /// Adds a wait for the lane's own last call, where another runner may still be in it.
    pub(crate) fn after_own(&mut self, lane: u32, count: u64, waits: &mut Vec<Wait>) {
        self.after_overlapping(lane, lane, count, waits);
    }

    /// Notes that the worker of `lane` issues the call that brings the lane to `count`, and whether it then waits for it.
    pub(crate) fn issued(&mut self, lane: u32, count: u64, handed_off: bool) {
        if !handed_off {
            self.knowledge.learn(lane, lane, count);
        }
    }

    /// What the worker of `lane` knows to be done, to be kept with the call it is about to issue.
    pub(crate) fn snapshot(&self, lane: u32) -> Arc<Vec<u64>> {
        Arc::clone(&self.knowledge.known[self.knowledge.worker_of[lane as usize] as usize])
    }

    /// The call `node` has returned. Calls that replay leaves out must not be told: nothing can be awaited by them.
    pub(crate) fn end(&mut self, node: Node, facts: CallFacts) {
        match self.mode {
            OrderMode::Capture => {
                self.latest_begin = self.latest_begin.max(node.begin);
                self.returned.push_back((node.lane, node.count, node.end));
                while self.returned.front().is_some_and(|&(_, _, end)| end < self.latest_begin) {
                    self.returned.pop_front();
                }
            }
            OrderMode::Deps | OrderMode::Program => self.dependencies.returned(node, facts),
        }
    }
}

impl Knowledge {
    /// Emits a wait of `lane`'s worker for `other` to reach `count`, unless the worker knows it already.
    fn await_lane(&mut self, lane: u32, other: u32, count: u64, implies: Option<&Vec<u64>>, waits: &mut Vec<Wait>) {
        let worker = self.worker_of[lane as usize] as usize;
        if count == 0 || self.known[worker][other as usize] >= count {
            return;
        }
        waits.push(Wait { lane: other, count });
        let known = Arc::make_mut(&mut self.known[worker]);
        known[other as usize] = count;
        if let Some(implied) = implies {
            for (mine, theirs) in known.iter_mut().zip(implied) {
                *mine = (*mine).max(*theirs);
            }
        }
    }

    fn learn(&mut self, lane: u32, about: u32, count: u64) {
        let worker = self.worker_of[lane as usize] as usize;
        Arc::make_mut(&mut self.known[worker])[about as usize] = count;
    }
}
