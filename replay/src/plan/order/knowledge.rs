//! What each worker can be sure is done, from its own sequence and from what it has waited for.
//!
//! A worker's sequence is a row of *positions*. The worker passes a position once the call there may be issued and, unless
//! the call is handed to another runner, has returned. So knowing how far every worker has come, a vector clock, tells
//! everything about the calls that were not handed off. A call that was handed off is done when some worker has waited for
//! it: it keeps the positions at which workers did, and whoever knows that one of them was passed knows the call to be done.

use std::cell::Cell;
use std::rc::Rc;

use crate::instruction::Wait;

/// A call as something to be waited for.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    /// Captured thread.
    pub(crate) lane: u32,
    /// Worker that issues it.
    worker: u32,
    /// Progress of the lane once the call has returned.
    pub(crate) count: u64,
    /// Place among all calls in the order they were entered: whatever it waits for has a smaller one.
    pub(crate) number: u64,
    /// Its position in the worker's sequence.
    position: u64,
    /// What the worker knew of the others when it issued the call.
    clock: Option<Rc<Vec<u64>>>,
    /// Where a call that was handed off has been waited for.
    absorbed: Option<Rc<Absorbed>>,
}

/// By worker: the first position whose waits included the call; `u64::MAX` = none yet.
#[derive(Debug)]
struct Absorbed(Box<[Cell<u64>]>);

/// Most workers for which knowledge is passed on from worker to worker; it takes a vector of this length per wait. With
/// more, waits that others imply are emitted all the same.
const PASSED_ON: usize = 512;

/// Whether to keep track at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tracking {
    /// Every wait asked for is one that nothing implies.
    Off,
    /// Leave out what is implied.
    On,
}

/// What all workers know.
#[derive(Debug)]
pub(crate) struct Knowledge {
    tracking: Tracking,
    /// Worker of each lane.
    worker_of: Vec<u32>,
    /// Per worker: the position it is at.
    cursor: Vec<u64>,
    /// Per worker: positions of the others known to be passed. Shorter than the number of workers where nothing is known
    /// of the rest.
    known: Vec<Rc<Vec<u64>>>,
    /// The last call of each lane, if it was handed off.
    handed: Vec<Option<Point>>,
    issued: u64,
}

impl Knowledge {
    /// Nothing is known. Calls can only be handed off where lanes share workers, and then there is something to track.
    pub(crate) fn new(worker_of: Vec<u32>, tracking: Tracking) -> Self {
        let workers = worker_of.iter().max().map_or(0, |&last| last as usize + 1);
        let nothing = Rc::new(Vec::new());
        Knowledge {
            tracking,
            cursor: vec![0; workers],
            known: vec![nothing; workers],
            handed: vec![None; worker_of.len()],
            worker_of,
            issued: 0,
        }
    }

    /// The worker of `lane` comes to its next position.
    pub(crate) fn advance(&mut self, lane: u32) {
        self.cursor[self.worker_of[lane as usize] as usize] += 1;
    }

    /// The last call of `lane`, where another runner may still be in it.
    pub(crate) fn own_handed(&self, lane: u32) -> Option<&Point> {
        self.handed[lane as usize].as_ref()
    }

    /// The call at the position of `lane`'s worker is issued.
    pub(crate) fn issue(&mut self, lane: u32, count: u64, handed_off: bool) -> Point {
        let worker = self.worker_of[lane as usize];
        self.issued += 1;
        let passed_on = self.tracking == Tracking::On && self.cursor.len() <= PASSED_ON;
        let never = || Rc::new(Absorbed(self.cursor.iter().map(|_| Cell::new(u64::MAX)).collect()));
        let point = Point {
            lane,
            worker,
            count,
            number: self.issued,
            position: self.cursor[worker as usize],
            clock: passed_on.then(|| Rc::clone(&self.known[worker as usize])),
            absorbed: handed_off.then(never),
        };
        if handed_off || self.handed[lane as usize].is_some() {
            self.handed[lane as usize] = handed_off.then(|| point.clone());
        }
        point
    }

    /// Emits a wait of `lane`'s worker for `point`, unless the worker knows it to be done.
    pub(crate) fn wait(&mut self, lane: u32, point: &Point, waits: &mut Vec<Wait>) {
        let worker = self.worker_of[lane as usize] as usize;
        if !self.knows(worker, point) {
            waits.push(Wait { lane: point.lane, count: point.count });
            self.learn(worker, point);
        }
    }

    /// Whether the worker of `lane` knows a call to be done.
    pub(crate) fn has(&self, lane: u32, point: &Point) -> bool {
        self.knows(self.worker_of[lane as usize] as usize, point)
    }

    fn passed(&self, worker: usize, other: usize) -> u64 {
        if worker == other { self.cursor[worker] } else { self.known[worker].get(other).copied().unwrap_or(0) }
    }

    fn knows(&self, worker: usize, point: &Point) -> bool {
        match &point.absorbed {
            _ if self.tracking == Tracking::Off => false,
            None => self.passed(worker, point.worker as usize) >= point.position,
            Some(absorbed) => {
                let mut by_worker = absorbed.0.iter().enumerate();
                by_worker.any(|(other, at)| self.passed(worker, other) >= at.get())
            }
        }
    }

    fn learn(&mut self, worker: usize, point: &Point) {
        if self.tracking == Tracking::Off {
            return;
        }
        let other = point.worker as usize;
        // Of its own worker's calls a sequence knows all that they knew.
        if other != worker {
            let known = Rc::make_mut(&mut self.known[worker]);
            let clock = point.clock.as_deref().map_or(&[][..], Vec::as_slice);
            let len = clock.len().max(other + 1);
            if known.len() < len {
                known.resize(len, 0);
            }
            for (mine, theirs) in known.iter_mut().zip(clock) {
                *mine = (*mine).max(*theirs);
            }
            known[other] = known[other].max(point.position);
        }
        if let Some(absorbed) = &point.absorbed {
            // The first position is the smallest.
            let first = &absorbed.0[worker];
            first.set(first.get().min(self.cursor[worker]));
        }
    }
}
