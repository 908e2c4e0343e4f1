//! From the planning thread to the workers: chunks as they are laid out, and how far planning has come.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam::channel::Sender;

use crate::driver::ReplayError;
use crate::instruction::{Chunk, Wait};
use crate::plan::error::PlanError;
use crate::plan::{Delivery, Planned};
use crate::repeat::Kept;
use crate::run::Shared;

/// What planning gave, at the time the run begins.
#[expect(clippy::large_enum_variant, reason = "one value a replay, moved twice")]
pub(super) enum Plan<'scope> {
    Whole(Planned, Option<Kept>),
    Running(PlanThread<'scope>),
    Taken,
}

pub(super) type PlanThread<'scope> = std::thread::ScopedJoinHandle<'scope, Result<(Planned, Option<Kept>), PlanError>>;

pub(super) fn joined(plan: PlanThread<'_>) -> Result<(Planned, Option<Kept>), ReplayError> {
    match plan.join() {
        Ok(result) => Ok(result?),
        // A panic in planning is a fault of ours: let it surface where it can be seen.
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// How far planning has come when the run may begin.
pub(super) enum Ready {
    /// Everything is planned.
    Whole,
    /// The memory budget is used up; the rest is planned while the run goes on.
    Part { devices: Vec<i32> },
}

/// Carries the planner's chunks to the workers.
pub(super) struct ToWorkers {
    pub(super) inboxes: Vec<Sender<Arc<Chunk>>>,
    pub(super) ready: Sender<Ready>,
    /// Told once, when the range that is measured begins: each captured thread's instructions before it.
    pub(super) range: Sender<Vec<u64>>,
    pub(super) shared: Arc<Shared>,
    /// All chunks so far, where the plan is to be run again and fits the memory budget.
    pub(super) kept: Option<Vec<Vec<Arc<Chunk>>>>,
    pub(super) range_start: Option<Vec<u64>>,
}

impl Delivery for ToWorkers {
    fn chunk(&mut self, worker: usize, chunk: Arc<Chunk>) {
        if let Some(kept) = &mut self.kept {
            kept[worker].push(Arc::clone(&chunk));
        }
        // A worker that was stopped takes no more.
        let _ = self.inboxes[worker].send(chunk);
    }

    fn part_ready(&mut self, devices: &[i32]) {
        self.kept = None;
        // Only the first is waited for.
        let _ = self.ready.try_send(Ready::Part { devices: devices.to_vec() });
    }

    fn range_begins(&mut self, event: u64, lane_totals: &[u64]) {
        if let Some(metering) = &self.shared.metering {
            // Relaxed: the calls that look at it come behind the gate, which opens after the totals were received.
            metering.from_event.store(event, Ordering::Relaxed);
        }
        self.range_start = Some(lane_totals.to_vec());
        // There is room for one, and a range begins once.
        let _ = self.range.try_send(lane_totals.to_vec());
    }

    fn done(&self, wait: Wait) -> bool {
        self.shared.progress.done(wait.lane) >= wait.count
    }

    fn moved(&self) -> u64 {
        self.shared.progress.total()
    }

    fn stopped(&self) -> bool {
        self.shared.progress.stopped()
    }
}
