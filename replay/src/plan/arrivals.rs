//! The points of the timeline as they come to the planner, read ahead on a thread of their own where there is a core for it:
//! the records of an archive are met there first, with the page faults and cache misses this takes.

use std::sync::Arc;
use std::thread::{Builder, Scope, ScopedJoinHandle};

use crossbeam::channel::{Receiver, bounded};

use hrr_format::archive::Archive;
use hrr_format::catalogue::Effect;
use hrr_format::record::{Record, SectionTags};

use super::Assignment;
use super::lower::copies_host_memory;
use super::order::edges::Hands;
use super::order::looks::Delayed;
use super::timeline::{Point, Timeline};
use crate::memory::prefetch;
use crate::triage::event_index::EventIndex;

/// Points read together.
const BATCH_POINTS: usize = 1024;
/// Batches read ahead.
const BATCHES: usize = 4;

/// A point of the timeline, with what was known when it was met.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival<'a> {
    pub(crate) point: Point<'a>,
    /// A call that blocked at capture while another captured thread of its worker made calls.
    pub(crate) blocks_others: bool,
    /// Which sections the call's record has.
    pub(crate) tags: SectionTags,
    /// Calls in flight when the archive ended, met so far.
    in_flight: usize,
    /// The last tick met so far.
    last_tick: u64,
}

/// Reads the timeline.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    archive: &'a Archive,
    assignment: Assignment,
    index: Option<Arc<EventIndex<'a>>>,
    timeline: Timeline<'a>,
}

impl<'a> Reader<'a> {
    /// Reads from the archive's first call on.
    pub(crate) fn new(
        archive: &'a Archive,
        delayed: &Arc<Delayed>,
        assignment: &Assignment,
        index: Option<Arc<EventIndex<'a>>>,
    ) -> Self {
        let timeline = Timeline::new(archive.streams(), Arc::clone(delayed));
        Reader { archive, assignment: assignment.clone(), index, timeline }
    }

    /// Whether the call may wait for the device, and another captured thread of the same worker makes a call before it
    /// returns.
    fn blocks_others(&self, lane: u32, record: &Record<'_>, tags: SectionTags) -> bool {
        let multiplexed = self.assignment.multiplexed();
        let Some(api) = self.archive.api(record.api()).known.filter(|_| multiplexed) else { return false };
        // A query that succeeded is asked again until it does.
        let waits = api.blocks() || (api.effect == Effect::Query && record.ret() == 0);
        if !waits && api.effect != Effect::Enqueue {
            return false;
        }
        let end = self.timeline.span(record).end;
        let worker_of = &self.assignment.worker_of;
        let worker = worker_of[lane as usize];
        let overlapped = worker_of.iter().enumerate().any(|(other, &of)| {
            of == worker
                && other as u32 != lane
                && self.timeline.next_begin(other as u32).is_some_and(|begin| begin < end)
        });
        overlapped && (waits || copies_host_memory(tags))
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Arrival<'a>;

    fn next(&mut self) -> Option<Arrival<'a>> {
        if let Some(index) = &self.index {
            index.reached(&self.timeline);
        }
        let point = self.timeline.next()?;
        let (blocks_others, tags) = match &point {
            Point::Begin { lane, record, .. } => {
                let tags = record.section_tags();
                (self.blocks_others(*lane, record, tags), tags)
            }
            _ => (false, SectionTags::default()),
        };
        let (in_flight, last_tick) = (self.timeline.in_flight().len(), self.timeline.last_tick());
        Some(Arrival { point, blocks_others, tags, in_flight, last_tick })
    }
}

/// Has the record fetched that comes up a little later: the reader's core has it, not this one.
fn expect(coming: &[Arrival<'_>]) {
    /// Points ahead: a few hundred nanoseconds of planning.
    const AHEAD: usize = 4;
    /// Lines of most records.
    const LINES: usize = 3;
    if let Some(Arrival { point: Point::Begin { record, .. }, .. }) = coming.get(AHEAD) {
        prefetch::lines(record.bytes().as_ptr(), LINES);
    }
}

/// The points, one after the other.
#[derive(Debug)]
pub(crate) struct Arrivals<'scope, 'a> {
    way: Way<'scope, 'a>,
    /// In-flight calls and last tick as of the point given out last.
    reached: (usize, u64),
    ended: bool,
}

#[derive(Debug)]
enum Way<'scope, 'a> {
    Here(Reader<'a>),
    Beside {
        batches: Receiver<Vec<Arrival<'a>>>,
        batch: std::vec::IntoIter<Arrival<'a>>,
        thread: ScopedJoinHandle<'scope, Reader<'a>>,
    },
}

impl<'scope, 'a: 'scope> Arrivals<'scope, 'a> {
    /// Reads on the calling thread or on one of its own.
    pub(crate) fn new(reader: Reader<'a>, hands: Hands, scope: &'scope Scope<'scope, '_>) -> Self {
        let way = match hands {
            Hands::One => Way::Here(reader),
            Hands::Several => Self::start(reader, scope),
        };
        Arrivals { way, reached: (0, 0), ended: false }
    }

    fn start(reader: Reader<'a>, scope: &'scope Scope<'scope, '_>) -> Way<'scope, 'a> {
        let (give, batches) = bounded(BATCHES);
        let mut ahead = reader.clone();
        let work = move || {
            loop {
                let batch: Vec<Arrival<'a>> = ahead.by_ref().take(BATCH_POINTS).collect();
                let over = batch.len() < BATCH_POINTS;
                // A planner that has ended early takes no more.
                if give.send(batch).is_err() || over {
                    return ahead;
                }
            }
        };
        match Builder::new().name("hrr-reader".to_owned()).spawn_scoped(scope, work) {
            Ok(thread) => Way::Beside { batches, batch: Vec::new().into_iter(), thread },
            // No thread can be had.
            Err(_) => Way::Here(reader),
        }
    }

    /// Ends: the calls in flight when the archive ended, as far as they were met by the point given out last, and the last
    /// tick until then.
    pub(crate) fn end(self) -> (Vec<(u32, Record<'a>)>, u64) {
        let reader = match self.way {
            Way::Here(reader) => reader,
            Way::Beside { batches, thread, .. } => {
                drop(batches);
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            }
        };
        let (in_flight, last_tick) = if self.ended { (usize::MAX, reader.timeline.last_tick()) } else { self.reached };
        let met = reader.timeline.in_flight();
        (met[..in_flight.min(met.len())].to_vec(), last_tick)
    }
}

impl<'a> Iterator for Arrivals<'_, 'a> {
    type Item = Arrival<'a>;

    fn next(&mut self) -> Option<Arrival<'a>> {
        let next = match &mut self.way {
            Way::Here(reader) => reader.next(),
            Way::Beside { batches, batch, .. } => match batch.next() {
                Some(arrival) => {
                    expect(batch.as_slice());
                    Some(arrival)
                }
                None => {
                    *batch = batches.recv().unwrap_or_default().into_iter();
                    batch.next()
                }
            },
        };
        match &next {
            Some(arrival) => self.reached = (arrival.in_flight, arrival.last_tick),
            None => self.ended = true,
        }
        next
    }
}
