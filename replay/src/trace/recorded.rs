//! The recorded run, drawn as a replay is: a lane for each captured thread with the times of its calls, one for each stream,
//! and the same arrows that a replay in capture order keeps. It needs neither a device nor a runtime.
//!
//! A stream shows what is known of it (see [`super::streams`]): stretches in which work was outstanding, and in them the work
//! in the order it was enqueued, each from its call's entry to the next one's, or to when it was known to be complete.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::path::Path;

use rustc_hash::FxHashMap;
use serde::Serialize;

use hrr_format::archive::Archive;
use hrr_format::ordered::{Ordered, merged};
use hrr_format::record::{Record, marker};

use super::category;
use super::replayed::Drawn;
use super::streams::{Called, Stream, Streams, Work, work_of};
use super::target::{TraceError, TraceTarget};
use super::timeline::{Colour, Lane, Place, Slice, Timeline, Value};
use super::{MOST_TAKEN, wait};
use crate::info::Filter;
use crate::instruction::Wait;
use crate::plan::lower::special::Special;
use crate::plan::order::dependency::CallFacts;
use crate::plan::order::{Node, Order, OrderMode};

/// The group of the captured threads' lanes; behind those of a replay, so that both can be in one file.
const HOST: u32 = 101;
/// The group of device 0's streams; that of device 1 follows.
const DEVICE: u32 = 110;
/// Most calls that are drawn.
const MOST_DRAWN: u64 = 4 * MOST_TAKEN as u64;

/// What a reader has to know about the timeline.
#[derive(Serialize)]
struct About<'a> {
    schema_version: u32,
    kind: &'static str,
    hrr_version: &'static str,
    archive: String,
    runtime: String,
    range: Option<String>,
    #[serde(flatten)]
    drawn: &'a Drawn,
    note: &'static str,
}

const NOTE: &str = "an archive holds no times of the device: streams show when work was enqueued and when it was known to be \
                    complete, and no work was running for longer than that";

/// Draws the calls of an archive that `filter` takes.
///
/// # Errors
/// The file cannot be written.
pub fn write(path: &Path, archive: &Archive, filter: &Filter) -> Result<Drawn, TraceError> {
    let target = TraceTarget::create(path)?;
    let format = target.format();
    target.write(|out| {
        let mut picture = Picture::new(Timeline::begin(out, format)?, archive)?;
        picture.calls(filter)?;
        let streams = std::mem::replace(&mut picture.streams, Streams::new(0)).with_work();
        picture.streams(&streams)?;
        let drawn = picture.drawn;
        picture.timeline.end(&About {
            schema_version: super::SCHEMA_VERSION,
            kind: "recorded",
            hrr_version: env!("CARGO_PKG_VERSION"),
            archive: archive.path().display().to_string(),
            runtime: archive.manifest().runtime.path.clone(),
            range: filter.range.as_ref().map(|range| format!("events {}..{}", range.0.start, range.0.end)),
            drawn: &drawn,
            note: NOTE,
        })?;
        Ok(drawn)
    })
}

/// The picture while it is drawn.
struct Picture<'w, 'a> {
    timeline: Timeline<'w>,
    archive: &'a Archive,
    drawn: Drawn,
    streams: Streams,
    edges: Edges,
    /// Entry of the first call drawn.
    origin: Option<u64>,
    /// Latest tick met.
    latest: u64,
    /// Where each result was seen, by its number.
    seen: FxHashMap<u64, Place>,
    /// Where each captured thread's last call is drawn.
    last: Vec<Option<Place>>,
}

impl<'w, 'a> Picture<'w, 'a> {
    fn new(mut timeline: Timeline<'w>, archive: &'a Archive) -> io::Result<Self> {
        let threads = archive.streams().len();
        timeline.name_process(HOST, "recorded: threads of the program")?;
        for (number, stream) in archive.streams().iter().enumerate() {
            let (thread, tid) = (stream.header().thread, stream.header().tid);
            timeline.name_lane(thread_lane(number), &format!("captured thread {thread} (tid {tid})"))?;
        }
        Ok(Picture {
            timeline,
            archive,
            drawn: Drawn::default(),
            streams: Streams::new(threads),
            edges: Edges::new(threads),
            origin: None,
            latest: 0,
            seen: FxHashMap::default(),
            last: vec![None; threads],
        })
    }

    /// Nanoseconds since the first call drawn.
    fn ns(&self, tick: u64) -> u64 {
        self.archive.manifest().clock.ticks_to_ns(tick.saturating_sub(self.origin.unwrap_or(tick)))
    }

    fn calls(&mut self, filter: &Filter) -> io::Result<()> {
        self.latest = self.archive.streams().iter().flat_map(|stream| stream.records()).fold(0, |latest, record| {
            if record.api() >= marker::FIRST { latest } else { latest.max(record.begin()).max(record.end()) }
        });
        let mut event = 0u64;
        for Ordered { stream, record, .. } in merged(self.archive.streams()) {
            if filter.ends_before(event) {
                break;
            }
            if record.api() >= marker::FIRST {
                self.observed(stream, &record)?;
                continue;
            }
            let thread = self.archive.streams()[stream].header().thread;
            let mut wanted = filter.takes(event, thread, self.archive.api(record.api()).name);
            if wanted && self.drawn.calls >= MOST_DRAWN {
                self.drawn.left_out += 1;
                wanted = false;
            }
            self.call(event, stream, &record, wanted)?;
            event += 1;
        }
        Ok(())
    }

    fn call(&mut self, event: u64, thread: usize, record: &Record<'a>, wanted: bool) -> io::Result<()> {
        self.last[thread] = None;
        let lane = thread_lane(thread);
        let row = self.archive.row_of(record);
        if wanted {
            self.origin.get_or_insert(record.begin());
        }
        let end = if record.in_flight() { self.latest } else { record.end() };
        let (begin_ns, end_ns) = (self.ns(record.begin()), self.ns(end));
        if wanted {
            self.slice(event, thread, record, (begin_ns, end_ns))?;
            self.last[thread] = Some(Place { lane, at_ns: end_ns.saturating_sub(1).max(begin_ns) });
        }
        if record.in_flight() {
            return Ok(());
        }
        if let Some(api) = row {
            let lane = wanted.then_some(lane);
            self.streams.call(self.archive, &Called { event, thread: thread as u32, api, record: *record, lane });
        }
        for edge in self.edges.call(thread as u32, record, self.last[thread]) {
            if wanted {
                self.timeline.arrow(category::EDGE, edge, Place { lane, at_ns: begin_ns })?;
                self.drawn.edges += 1;
            }
        }
        Ok(())
    }

    fn slice(
        &mut self,
        event: u64,
        thread: usize,
        record: &Record<'_>,
        (begin_ns, end_ns): (u64, u64),
    ) -> io::Result<()> {
        self.drawn.calls += 1;
        let lane = thread_lane(thread);
        let name = crate::info::printable(self.archive.api(record.api()).name).into_owned();
        let row = self.archive.row_of(record);
        let blocks = row.is_some_and(|api| api.blocks());
        let captured_thread = u64::from(self.archive.streams()[thread].header().thread);
        let mut values = vec![("event", Value::Number(event)), ("captured_thread", Value::Number(captured_thread))];
        if record.in_flight() {
            values.push(("in_flight", Value::Text("it had not returned when the archive ended")));
        } else if record.ret() != 0 {
            values.push(("returned", Value::Code(record.ret())));
        }
        let work = row.and_then(|api| work_of(self.archive, api, Special::of(api), record));
        if let Some((work, bytes)) = &work {
            values.push(("work", Value::Text(work)));
            if *bytes > 0 {
                values.push(("bytes", Value::Number(*bytes)));
            }
        }
        let category = if blocks { category::BLOCKING } else { category::CALL };
        let colour = match (record.in_flight(), blocks) {
            (true, _) => Some(Colour::Bad),
            (false, true) => Some(Colour::Blocking),
            (false, false) => None,
        };
        self.timeline.slice(&Slice { lane, name: &name, category, begin_ns, end_ns, colour, values: &values })?;
        if blocks {
            let (name, category) = (wait::RUNTIME, category::WAIT);
            self.timeline.slice(&Slice { lane, name, category, begin_ns, end_ns, colour, values: &[] })?;
        }
        Ok(())
    }

    /// A marker: the thread's last call made a result visible.
    fn observed(&mut self, thread: usize, record: &Record<'_>) -> io::Result<()> {
        let Some(place) = self.last[thread].filter(|_| record.api() == marker::OBSERVED) else { return Ok(()) };
        let blob = record.word(0);
        self.seen.insert(blob, place);
        self.drawn.results += 1;
        self.timeline.moment(place, ("D2H seen", category::RESULT), Colour::Good, &[("blob", Value::Number(blob))])
    }

    fn streams(&mut self, streams: &[Stream]) -> io::Result<()> {
        let mut numbers: FxHashMap<i32, u32> = FxHashMap::default();
        for stream in streams {
            let group = DEVICE + u32::try_from(stream.device).unwrap_or_default();
            let number = numbers.entry(stream.device).or_default();
            if *number == 0 {
                self.timeline.name_process(group, &format!("recorded: device {}", stream.device))?;
            }
            let lane = Lane { process: group, thread: 1 + *number };
            self.timeline.name_lane(lane, &format!("stream {number} ({})", stream.name))?;
            *number += 1;
            self.stream(lane, stream)?;
        }
        Ok(())
    }

    /// Draws the stretches in which a stream had work outstanding, and the work in them.
    fn stream(&mut self, lane: Lane, stream: &Stream) -> io::Result<()> {
        let (mut first, mut free_ns) = (0, 0);
        while let Some(work) = stream.works.get(first) {
            let latest = self.latest;
            let end_of = |number: usize| stream.works[number].complete.map_or(latest, |(tick, _)| tick);
            let (mut next, mut end) = (first + 1, end_of(first));
            while stream.works.get(next).is_some_and(|work| work.begin < end) {
                end = end.max(end_of(next));
                next += 1;
            }
            let told = stream.works[next - 1].complete;
            let values: Vec<(&str, Value<'_>)> =
                told.map(|(_, event)| ("complete_by_event", Value::Number(event))).into_iter().collect();
            let begin_ns = self.ns(work.begin).max(free_ns);
            // Each takes some time, so that no two begin at once.
            free_ns = begin_ns;
            let mut spans = Vec::with_capacity(next - first);
            for number in first..next {
                let until = stream.works.get(number + 1).map_or(end, |work| work.begin).min(end_of(number));
                let from_ns = self.ns(stream.works[number].begin).max(free_ns);
                free_ns = self.ns(until).max(from_ns + 1);
                spans.push((from_ns, free_ns));
            }
            self.timeline.slice(&Slice {
                lane,
                name: if told.is_some() { "work outstanding" } else { "work outstanding, not known to have ended" },
                category: "outstanding",
                begin_ns,
                end_ns: self.ns(end).max(free_ns),
                colour: None,
                values: &values,
            })?;
            free_ns = free_ns.max(self.ns(end));
            for (work, span) in stream.works[first..next].iter().zip(spans) {
                self.work(lane, work, span)?;
            }
            first = next;
        }
        Ok(())
    }

    fn work(&mut self, lane: Lane, work: &Work, (begin_ns, end_ns): (u64, u64)) -> io::Result<()> {
        let mut values = vec![("event", Value::Number(work.event))];
        if work.bytes > 0 {
            values.push(("bytes", Value::Number(work.bytes)));
        }
        if let Some((_, event)) = work.complete {
            values.push(("complete_by_event", Value::Number(event)));
        }
        let (name, category) = (work.name.as_str(), category::WORK);
        self.timeline.slice(&Slice { lane, name, category, begin_ns, end_ns, colour: None, values: &values })?;
        self.drawn.works += 1;
        let called = Place { lane: work.lane, at_ns: self.ns(work.begin) };
        self.timeline.arrow(category::LAUNCH, called, Place { lane, at_ns: begin_ns })?;
        if let Some(seen) = work.blob.and_then(|blob| self.seen.get(&blob)) {
            let ended = Place { lane, at_ns: end_ns.saturating_sub(1).max(begin_ns).min(seen.at_ns) };
            self.timeline.arrow(category::RESULT, ended, *seen)?;
        }
        Ok(())
    }
}

fn thread_lane(number: usize) -> Lane {
    Lane { process: HOST, thread: 1 + number as u32 }
}

/// The edges that a replay in capture order keeps, with a worker for each captured thread.
struct Edges {
    order: Order,
    /// Calls of each captured thread so far.
    counts: Vec<u64>,
    /// The call that each captured thread is in.
    open: Vec<Option<(Node, Box<CallFacts>)>>,
    /// When they return.
    returns: BinaryHeap<Reverse<(u64, u32)>>,
    /// Per captured thread: the calls that are drawn, by their count.
    places: Vec<Vec<(u64, Place)>>,
    waits: Vec<Wait>,
}

impl Edges {
    fn new(threads: usize) -> Self {
        Edges {
            order: Order::new(OrderMode::Capture, (0..threads as u32).collect()),
            counts: vec![0; threads],
            open: (0..threads).map(|_| None).collect(),
            returns: BinaryHeap::new(),
            places: vec![Vec::new(); threads],
            waits: Vec::new(),
        }
    }

    /// Takes in a call that has returned, drawn at `place` or not at all. Where the edges to it begin.
    fn call(&mut self, thread: u32, record: &Record<'_>, place: Option<Place>) -> Vec<Place> {
        let begin = record.begin();
        while let Some(&Reverse((end, other))) = self.returns.peek()
            && end <= begin
        {
            self.returns.pop();
            if let Some((node, facts)) = self.open[other as usize].take() {
                self.order.end(node, Some(facts));
            }
        }
        let mut facts = self.order.facts();
        self.waits.clear();
        self.order.begin(thread, begin, &mut facts, None, &mut self.waits);
        self.counts[thread as usize] += 1;
        let count = self.counts[thread as usize];
        let point = self.order.issued(thread, count, false);
        let end = record.end().max(begin);
        self.open[thread as usize] = Some((Node { point, begin, end, in_order_on: 0, overlaps: false }, facts));
        self.returns.push(Reverse((end, thread)));
        if let Some(place) = place {
            self.places[thread as usize].push((count, place));
        }
        let places = &self.places;
        let place_of = |wait: &Wait| {
            let made = places.get(wait.lane as usize)?;
            made.binary_search_by_key(&wait.count, |(count, _)| *count).ok().map(|at| made[at].1)
        };
        self.waits.iter().filter_map(place_of).collect()
    }
}
