//! The last error of each captured thread: kept here where threads share OS threads, and known to be another than at capture once
//! a call has failed otherwise than it did there.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use crossbeam::utils::CachePadded;
use hrr_format::catalogue::Api;

use crate::instruction::{Instruction, NOT_READY, flag};
use crate::thunk::Outcome;

/// The last error of one captured thread.
#[derive(Debug, Default)]
struct LastError {
    /// Where OS threads are shared, which keep none of this thread's own.
    code: AtomicI32,
    /// A call was counted as failed, and the last error has been another than at capture since.
    strayed: AtomicBool,
}

/// The last errors of all captured threads.
#[derive(Debug)]
pub(super) struct LastErrors {
    cells: Box<[CachePadded<LastError>]>,
    /// Catalogue ids of the calls that tell of it: the first takes it away.
    tellers: [Option<u16>; 3],
}

impl LastErrors {
    /// No thread has one.
    pub(super) fn new(lanes: usize) -> Self {
        let id = |name| Api::by_name(name).map(|api| api.id);
        LastErrors {
            cells: (0..lanes).map(|_| CachePadded::default()).collect(),
            tellers: ["hipGetLastError", "hipPeekAtLastError", "hipExtGetLastError"].map(id),
        }
    }

    /// How many captured threads there are.
    pub(super) fn lanes(&self) -> usize {
        self.cells.len()
    }

    /// `hipGetLastError` and `hipPeekAtLastError` answer for the captured thread, not for the OS thread.
    pub(super) fn keep(&self, instruction: &Instruction, outcome: &mut Outcome) {
        let cell = &self.cells[instruction.lane as usize].code;
        // Relaxed: read and written in the captured thread's program order, which edges carry from runner to runner.
        if instruction.flags & flag::LAST_ERROR != 0 {
            outcome.code = cell.swap(0, Ordering::Relaxed);
        } else if instruction.flags & flag::PEEK_ERROR != 0 {
            outcome.code = cell.load(Ordering::Relaxed);
        } else if outcome.code != 0
            && outcome.code != NOT_READY
            && instruction.flags & (flag::AUXILIARY | flag::ANY_OUTCOME) == 0
        {
            cell.store(outcome.code, Ordering::Relaxed);
        }
    }

    /// A call has not done what it did at capture, or has failed as it did: whether that is to be counted. What only tells of a
    /// failure that was counted is not.
    pub(super) fn counts(&self, instruction: &Instruction, outcome: &Outcome) -> bool {
        let strayed = &self.cells[instruction.lane as usize].strayed;
        let differs = outcome.code != instruction.expected;
        // Relaxed: in the captured thread's program order, as above.
        if self.tellers.contains(&Some(instruction.api)) {
            let excused = strayed.load(Ordering::Relaxed);
            if Some(instruction.api) == self.tellers[0] {
                strayed.store(false, Ordering::Relaxed);
            }
            return differs && !excused;
        }
        if differs || outcome.code != 0 && outcome.code != NOT_READY {
            strayed.store(differs, Ordering::Relaxed);
        }
        differs
    }

    /// A call was counted as failed without having been issued.
    pub(super) fn stray(&self, instruction: &Instruction) {
        // Relaxed: as above.
        self.cells[instruction.lane as usize].strayed.store(true, Ordering::Relaxed);
    }
}
