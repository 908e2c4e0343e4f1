//! What the loop takes down in measuring runs: where the time of each worker goes, how long each call takes, and events
//! around what the device does. Also the program's own gaps between calls, where they are replayed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam::channel::{Receiver, RecvError};

use super::worker::Runner;
use crate::instruction::{Chunk, Instruction, Wait, flag};
use crate::report::gpu_timer::{GpuTimer, Pair, Pending};
use crate::report::meter::{Meter, Metering, Pause, Waited};
use crate::report::note::{Note, StreamWord, Work};
use crate::report::order_log::Logged;
use crate::thunk::Outcome;
use crate::trace::taken::{Made, PauseTaken, Published};

/// A call between its begin and its end.
pub(super) struct Begun {
    begin: u64,
    note: Option<Note>,
    /// The pair of events around it, and the live stream.
    pair: Option<(Pair, u64)>,
}

/// A call that has returned.
pub(super) struct Ended {
    begin: u64,
    end: u64,
    note: Option<Note>,
    returned: i32,
}

impl<const MEASURING: bool> Runner<MEASURING> {
    fn metering(&self) -> Option<Arc<Metering>> {
        self.shared.metering.clone()
    }

    /// Makes a meter this runner's own, to write down what it does for `worker`.
    pub(super) fn take_meter(&mut self, worker: u32) {
        if let Some(metering) = &self.shared.metering {
            self.meter = metering.take(worker);
        }
    }

    /// Gives the meter back, so that it can be read.
    pub(super) fn give_meter(&mut self) {
        if let Some(metering) = self.metering() {
            metering.give(std::mem::take(&mut self.meter));
        }
    }

    /// Where the notes of a chunk stand when its execution begins at `at`.
    pub(super) fn find_note(&mut self, chunk: &Chunk, at: usize) {
        self.meter.cursor = chunk.notes.partition_point(|note| (note.at as usize) < at);
    }

    /// The next chunk, waited for.
    pub(super) fn next_chunk_measured(&mut self, chunks: &Receiver<Arc<Chunk>>) -> Result<Arc<Chunk>, RecvError> {
        if let Ok(chunk) = chunks.try_recv() {
            return Ok(chunk);
        }
        let Some(metering) = self.metering() else { return chunks.recv() };
        let begin = metering.clock.now();
        let chunk = chunks.recv();
        let end = metering.clock.now();
        self.note_pause(&metering, Pause::Staging, (begin, end), None);
        chunk
    }

    /// The sequence at hand has come to its end.
    pub(super) fn note_end(&mut self) {
        if let Some(metering) = self.metering() {
            let now = metering.clock.now();
            let total_ns = metering.clock.ns_between(metering.opened(), now);
            self.meter.split().total_ns += total_ns;
        }
        self.give_meter();
    }

    /// Waits for everything `instruction` must come after, and lets the program's gap pass. False if the replay was stopped.
    pub(super) fn await_edges_measured(&mut self, chunk: &Chunk, instruction: &Instruction, at: usize) -> bool {
        let mut waited = Waited::No;
        for wait in instruction.waits.of(&chunk.waits) {
            if self.shared.progress.done(wait.lane) >= wait.count {
                continue;
            }
            let Some(metering) = self.shared.metering.clone() else { return false };
            waited = Waited::Yes;
            self.board.show_wait(*wait);
            let begin = metering.clock.now();
            if !self.shared.progress.wait(wait.lane, wait.count) {
                return false;
            }
            let end = metering.clock.now();
            if metering.measures(instruction.event) {
                self.note_pause(&metering, Pause::Edge, (begin, end), Some(*wait));
            }
        }
        let gap_ns = chunk.gaps_ns.get(at - 1).copied().unwrap_or(0);
        if !chunk.gaps_ns.is_empty()
            && instruction.flags & flag::AUXILIARY == 0
            && let Some(metering) = self.shared.metering.clone()
            && metering.measures(instruction.event)
        {
            // The watchdog bounds calls and waits; a gap is as long as the program made it.
            // Relaxed: the watchdog only samples.
            self.board.event.store(0, Ordering::Relaxed);
            let shared = &self.shared;
            let (begin, end) = metering.let_gap_pass(instruction.lane, gap_ns, waited, || shared.progress.stopped());
            self.board.event.store(instruction.event + 1, Ordering::Relaxed);
            self.note_pause(&metering, Pause::Gap, (begin, end), None);
        }
        true
    }

    fn note_pause(&mut self, metering: &Metering, pause: Pause, (begin, end): (u64, u64), awaited: Option<Wait>) {
        // What was waited for before the timed section began is set-up.
        let begin = begin.max(metering.opened());
        if end <= begin {
            return;
        }
        let ns = metering.clock.ns_between(begin, end);
        let split = self.meter.split();
        match pause {
            Pause::Edge => split.waiting_ns += ns,
            Pause::Staging => split.staging_ns += ns,
            Pause::Gap => split.pacing_ns += ns,
        }
        let worker = self.meter.worker;
        if let Some(taken) = &mut self.meter.taken {
            taken.pause(PauseTaken { pause, begin, end, worker, awaited });
        }
    }

    /// Right before a call.
    pub(super) fn begin_call(&mut self, chunk: &Chunk, instruction: &Instruction, at: usize) -> Begun {
        let note = chunk.notes.get(self.meter.cursor).filter(|note| note.at as usize + 1 == at).copied();
        self.meter.cursor += usize::from(note.is_some());
        let mut begun = Begun { begin: 0, note, pair: None };
        let Some(metering) = &self.shared.metering else { return begun };
        if let Some(note) = &note
            && let Some(timer) = &metering.timer
            && metering.measures(instruction.event)
        {
            let before = metering.clock.now();
            begun.pair = start_event(timer, &mut self.meter, self.device, note, instruction);
            let ns = metering.clock.ns_between(before, metering.clock.now());
            self.meter.split().events_ns += ns;
        }
        let clock = &metering.clock;
        begun.begin = if metering.logs_order { clock.now_in_order() } else { clock.now_after_loads() };
        begun
    }

    /// Right after a call.
    #[inline]
    pub(super) fn end_call(&mut self, begun: Begun, event: u64, outcome: Outcome) -> Ended {
        let Begun { begin, note, pair } = begun;
        let returned = outcome.code;
        let Some(metering) = &self.shared.metering else { return Ended { begin, end: begin, note, returned } };
        let end = if metering.logs_order { metering.clock.now_in_order() } else { metering.clock.now() };
        if let (Some((pair, stream)), Some(note), Some(timer)) = (pair, &note, &metering.timer) {
            let pending = Pending { pair, stream: note.stream, work: note.work, event };
            timer.after(&mut self.meter.pairs, pending, stream);
            let ns = metering.clock.ns_between(end, metering.clock.now());
            self.meter.split().events_ns += ns;
        }
        Ended { begin, end, note, returned }
    }

    /// Takes a call down, once everybody who waits for it has been told.
    pub(super) fn note_call(&mut self, chunk: &Chunk, instruction: &Instruction, ended: Ended) {
        let Some(metering) = self.shared.metering.clone() else { return };
        let Ended { begin, end, note, returned } = ended;
        if metering.logs_order && instruction.flags & flag::AUXILIARY == 0 {
            let (event, lane, worker) = (instruction.event, instruction.lane, self.meter.worker);
            let logged = Logged { event, lane, worker, runner: self.number, issued: begin, returned: end };
            self.meter.order.push(logged);
        }
        if !metering.measures(instruction.event) {
            return;
        }
        let (worker, beside) = (self.meter.worker, self.beside);
        if let Some(taken) = &mut self.meter.taken {
            let edges = instruction.waits.of(&chunk.waits);
            if instruction.flags & flag::AUXILIARY == 0 {
                taken.call(instruction, edges, (begin, end), Made { note, returned, worker, beside });
            } else {
                taken.edges_before(edges);
                if instruction.progress != 0 {
                    taken.published(Published { lane: instruction.lane, progress: instruction.progress, at: end });
                }
            }
        }
        if instruction.flags & flag::AUXILIARY != 0 {
            return;
        }
        metering.returned(instruction.lane, end);
        let ns = metering.clock.ns_between(begin, end);
        self.meter.call(instruction.api, ns);
        let split = self.meter.split();
        split.calls += 1;
        if beside {
            split.beside_ns += ns;
        } else {
            split.in_calls_ns += ns;
        }
        if let Some(Note { work: Work::Copy(class), bytes, .. }) = note {
            let totals = self.meter.copies.entry(class).or_default();
            totals.count += 1;
            totals.bytes += bytes;
            totals.host_ns += ns;
        }
    }
}

/// Records the event before a call, where the call's stream is known and its device is current.
fn start_event(
    timer: &GpuTimer,
    meter: &mut Meter,
    device: i32,
    note: &Note,
    instruction: &Instruction,
) -> Option<(Pair, u64)> {
    let stream = match note.handle {
        // SAFETY: the planner took the word's number from the catalogue's row of the call.
        StreamWord::Word(word) => unsafe { instruction.words.add(usize::from(word)).read() },
        StreamWord::Fixed(handle) => handle,
        StreamWord::Unknown => {
            timer.skip();
            return None;
        }
    };
    if device != note.stream.device {
        timer.skip();
        return None;
    }
    timer.before(&mut meter.pairs, device, stream).map(|pair| (pair, stream))
}
