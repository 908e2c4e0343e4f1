//! A plan that is run more than once: everything a run changes is put back as it was planned.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use crate::instruction::Chunk;
use crate::plan::{Check, Planner};

/// Bytes that fill the places of results between repetitions, one after the other, so that a result that was not
/// written is not taken for one that was.
const STALE: [u8; 2] = [0xa5, 0x5a];

/// A plan as it was before its first run.
#[derive(Debug)]
pub(crate) struct Kept {
    /// Each worker's chunks, in order.
    chunks: Vec<Vec<Arc<Chunk>>>,
    /// What the memory of each chunk held.
    memory: Vec<Box<[u64]>>,
    /// What the slots held.
    slots: Vec<u64>,
    /// What lasting host memory held.
    host: Vec<Vec<u8>>,
    /// All results to be checked.
    checks: Vec<Check>,
    /// Instructions of each captured thread before the range that is measured.
    range_start: Option<Vec<u64>>,
    runs: usize,
}

impl Kept {
    /// Takes a picture of a plan of which nothing has run yet.
    pub(crate) fn new(planner: &Planner<'_>, chunks: Vec<Vec<Arc<Chunk>>>, range_start: Option<Vec<u64>>) -> Self {
        Kept {
            memory: chunks.iter().flatten().map(|chunk| chunk.memory.contents()).collect(),
            slots: planner.objects.slots.values(),
            host: planner.host.lasting_contents(),
            chunks,
            checks: Vec::new(),
            range_start,
            runs: 0,
        }
    }

    /// Keeps what is to be checked after each run.
    pub(crate) fn set_checks(&mut self, checks: Vec<Check>) {
        self.checks = checks;
    }

    /// Instructions of each captured thread before the range that is measured, where there is one.
    pub(crate) fn range_start(&self) -> Option<&[u64]> {
        self.range_start.as_deref()
    }

    /// Puts everything back for the next run. No runner is active.
    pub(crate) fn reset(&mut self, planner: &Planner<'_>) {
        for (chunk, contents) in self.chunks.iter().flatten().zip(&self.memory) {
            chunk.memory.restore(contents);
        }
        planner.objects.slots.restore(&self.slots);
        planner.host.restore_lasting(&self.host);
        let stale = STALE[self.runs % STALE.len()];
        self.runs += 1;
        for check in &mut self.checks {
            check.unchecked = Arc::new(AtomicUsize::new(1));
            if check.ready.is_none() {
                continue;
            }
            for row in 0..check.shape.rows {
                let place = (check.live as u64 + row * check.shape.pitch_bytes) as *mut u8;
                // SAFETY: the place was allocated for this shape, the plan is kept, and nothing else uses it between runs.
                unsafe { std::ptr::write_bytes(place, stale, check.shape.row_bytes as usize) };
            }
        }
    }

    /// Each worker's chunks, in order.
    pub(crate) fn chunks(&self) -> &[Vec<Arc<Chunk>>] {
        &self.chunks
    }

    /// All results to be checked.
    pub(crate) fn checks(&self) -> &[Check] {
        &self.checks
    }
}
