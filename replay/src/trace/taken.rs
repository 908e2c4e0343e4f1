//! What runners write down for a timeline, in the order they did it: calls, waits, and which progress each call made.
//!
//! One of these belongs to one runner at a time; ticks are those of [`crate::report::clock`].

use crate::instruction::Wait;
use crate::report::gpu_timer::Span;
use crate::report::meter::Pause;
use crate::report::note::Note;
use crate::results::validate::Skip;

use super::MOST_TAKEN;

/// A call that was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallTaken {
    pub(crate) event: u64,
    pub(crate) begin: u64,
    pub(crate) end: u64,
    /// Progress of the captured thread once it had returned; 0 = it told none.
    pub(crate) progress: u64,
    /// What it had the device do.
    pub(crate) note: Option<Note>,
    /// Captured thread.
    pub(crate) lane: u32,
    pub(crate) worker: u32,
    pub(crate) returned: i32,
    pub(crate) api: u16,
    /// Made beside the worker's other calls.
    pub(crate) beside: bool,
    /// Its edges, among [`Taken::edges`].
    edges: (u32, u32),
}

/// A wait that was not fulfilled when it was met.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PauseTaken {
    pub(crate) pause: Pause,
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) worker: u32,
    /// What was waited for, where that is another captured thread.
    pub(crate) awaited: Option<Wait>,
}

/// Progress told by an instruction of replay's own behind the call that made it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Published {
    pub(crate) lane: u32,
    pub(crate) progress: u64,
    /// When the instruction had returned.
    pub(crate) at: u64,
}

/// What a call was, besides its times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    pub(crate) note: Option<Note>,
    pub(crate) returned: i32,
    pub(crate) worker: u32,
    pub(crate) beside: bool,
}

/// What one runner wrote down.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) calls: Vec<CallTaken>,
    pub(crate) pauses: Vec<PauseTaken>,
    pub(crate) published: Vec<Published>,
    edges: Vec<Wait>,
    /// How many of the last edges belong to the next call: instructions of replay's own before it carry them.
    carried: u32,
    /// Calls and pauses that there was no room for.
    pub(crate) left_out: u64,
}

impl Taken {
    /// Writes a call down.
    pub(crate) fn call(
        &mut self,
        instruction: &crate::instruction::Instruction,
        edges: &[Wait],
        (begin, end): (u64, u64),
        made: Made,
    ) {
        if self.calls.len() >= MOST_TAKEN {
            self.left_out += 1;
            return;
        }
        let carried = std::mem::take(&mut self.carried);
        let first = self.edges.len() as u32 - carried;
        self.edges.extend_from_slice(edges);
        self.calls.push(CallTaken {
            event: instruction.event,
            begin,
            end,
            progress: instruction.progress,
            note: made.note,
            lane: instruction.lane,
            worker: made.worker,
            returned: made.returned,
            api: instruction.api,
            beside: made.beside,
            edges: (first, carried + edges.len() as u32),
        });
    }

    /// Writes down edges of the call that comes next.
    pub(crate) fn edges_before(&mut self, edges: &[Wait]) {
        if self.calls.len() < MOST_TAKEN {
            self.edges.extend_from_slice(edges);
            self.carried += edges.len() as u32;
        }
    }

    /// Writes a wait down.
    pub(crate) fn pause(&mut self, pause: PauseTaken) {
        if self.pauses.len() >= MOST_TAKEN {
            self.left_out += 1;
        } else {
            self.pauses.push(pause);
        }
    }

    /// Writes down that progress was told behind a call.
    pub(crate) fn published(&mut self, published: Published) {
        // As many as calls, at most: each belongs to one.
        if self.published.len() < MOST_TAKEN {
            self.published.push(published);
        }
    }

    /// The edges of a call.
    pub(crate) fn edges_of(&self, call: &CallTaken) -> &[Wait] {
        let (first, count) = call.edges;
        self.edges.get(first as usize..first as usize + count as usize).unwrap_or_default()
    }
}

/// How the comparison of a result came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResultTaken {
    Exact,
    Within,
    Failed,
    Skipped(Skip),
}

/// A repetition, as a timeline needs it.
#[derive(Debug, Default)]
pub(crate) struct RunTaken {
    /// What each runner wrote down.
    #[expect(clippy::vec_box, reason = "as they come")]
    pub(crate) runners: Vec<Box<Taken>>,
    /// Work of the devices.
    pub(crate) spans: Vec<Span>,
    /// Tick at which the devices' clocks read zero, by device.
    pub(crate) origins: Vec<(i32, u64)>,
    /// Work that there was no room for.
    pub(crate) spans_left_out: u64,
    /// Work that had no events around it.
    pub(crate) untimed: u64,
    /// Results by the event number of their copy, in the order they were compared.
    pub(crate) results: Vec<(u64, ResultTaken)>,
    /// Tick at which the timed section began.
    pub(crate) opened: u64,
}
