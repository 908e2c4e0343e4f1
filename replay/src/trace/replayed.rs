//! A repetition of a replay, drawn: a lane for each worker, one for each call made beside a worker's others, and one for
//! each stream.

use std::io;

use rustc_hash::FxHashMap;
use serde::Serialize;

use hrr_format::archive::Archive;
use hrr_format::catalogue::{APIS, Api};

use super::category;
use super::taken::{CallTaken, PauseTaken, ResultTaken, RunTaken, Taken};
use super::target::{TraceError, TraceTarget};
use super::timeline::{Colour, Lane, Place, Slice, Timeline, Value};
use super::wait;
use crate::driver::ReplayOptions;
use crate::instruction::Wait;
use crate::machine::runtime::Runtime;
use crate::report::clock::Clock;
use crate::report::gpu_timer::Span;
use crate::report::meter::Pause;
use crate::report::note::{StreamLabel, Work};

/// The group of the workers' lanes.
const HOST: u32 = 1;
/// The group of device 0's streams; that of device 1 follows.
const DEVICE: u32 = 10;
/// Room for lanes of calls made beside a worker's others, next to the worker's own.
const BESIDE: u32 = 64;

/// What was drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Drawn {
    /// Calls.
    pub calls: u64,
    /// Pieces of work of the devices.
    pub works: u64,
    /// Arrows between calls.
    pub edges: u64,
    /// Results.
    pub results: u64,
    /// Calls, waits and pieces of work that there was no room for, or whose times are not known.
    pub left_out: u64,
}

/// What a reader has to know about the timeline.
#[derive(Serialize)]
struct About<'a> {
    schema_version: u32,
    kind: &'static str,
    hrr_version: &'static str,
    archive: String,
    runtime: String,
    order: &'static str,
    pace: String,
    range: Option<String>,
    repetition: u32,
    #[serde(flatten)]
    drawn: &'a Drawn,
    /// Work without events around it, which has no time and is not drawn.
    untimed: u64,
    note: &'static str,
}

const NOTE: &str =
    "streams show the time between events around each piece of work; those events' own cost is part of it";

/// Draws a repetition.
pub(crate) fn write(
    target: TraceTarget,
    archive: &Archive,
    runtime: &Runtime,
    options: &ReplayOptions,
    run: &RunTaken,
) -> Result<Drawn, TraceError> {
    let format = target.format();
    target.write(|out| {
        let mut picture = Picture::new(Timeline::begin(out, format)?, archive, run)?;
        picture.calls()?;
        picture.pauses()?;
        picture.edges()?;
        picture.works()?;
        picture.results()?;
        let mut drawn = picture.drawn;
        drawn.left_out = run.spans_left_out + run.runners.iter().map(|taken| taken.left_out).sum::<u64>();
        picture.timeline.end(&About {
            schema_version: super::SCHEMA_VERSION,
            kind: "replay",
            hrr_version: env!("CARGO_PKG_VERSION"),
            archive: archive.path().display().to_string(),
            runtime: runtime.path().display().to_string(),
            order: options.order.as_str(),
            pace: options.pace.to_string(),
            range: options.range.map(|range| range.to_string()),
            repetition: options.warmup + 1,
            drawn: &drawn,
            untimed: run.untimed,
            note: NOTE,
        })?;
        Ok(drawn)
    })
}

/// The picture while it is drawn.
struct Picture<'w, 'a> {
    timeline: Timeline<'w>,
    archive: &'a Archive,
    run: &'a RunTaken,
    clock: Clock,
    drawn: Drawn,
    /// The calls, in the order they were made, and where they are drawn.
    made: Vec<(&'a Taken, &'a CallTaken, Lane)>,
    /// Where each call that has work on a device, or a result, is drawn: its lane, and when it was made and returned.
    enqueuers: FxHashMap<u64, (Lane, u64, u64)>,
    /// Where each piece of work is drawn, by the event that enqueued it: the end of it.
    worked: FxHashMap<u64, Place>,
    /// Per captured thread: progress, and the end of the call that made it. Sorted.
    progress: Vec<Vec<(u64, Place)>>,
    /// Lanes of the calls made beside their workers' others, with the time at which each is free.
    beside: FxHashMap<u32, Vec<u64>>,
}

impl<'w, 'a> Picture<'w, 'a> {
    fn new(mut timeline: Timeline<'w>, archive: &'a Archive, run: &'a RunTaken) -> io::Result<Self> {
        timeline.name_process(HOST, "replay: workers")?;
        Ok(Picture {
            timeline,
            archive,
            run,
            clock: Clock::get(),
            drawn: Drawn::default(),
            made: Vec::new(),
            enqueuers: FxHashMap::default(),
            worked: FxHashMap::default(),
            progress: vec![Vec::new(); archive.streams().len()],
            beside: FxHashMap::default(),
        })
    }

    /// Nanoseconds since the timed section began.
    fn ns(&self, tick: u64) -> u64 {
        self.clock.ns_between(self.run.opened, tick)
    }

    fn thread_of(&self, lane: u32) -> u32 {
        self.archive.streams().get(lane as usize).map_or(lane, |stream| stream.header().thread)
    }

    /// Draws the calls, in the order they were made.
    fn calls(&mut self) -> io::Result<()> {
        let run = self.run;
        let mut calls: Vec<(&'a Taken, &'a CallTaken)> =
            run.runners.iter().flat_map(|taken| taken.calls.iter().map(|call| (&**taken, call))).collect();
        calls.sort_by_key(|(_, call)| (call.begin, call.event));
        self.name_workers(&calls)?;
        let with_results: rustc_hash::FxHashSet<u64> = run.results.iter().map(|(event, _)| *event).collect();
        // Calls that told no progress themselves, with when they had returned.
        let mut silent: Vec<Vec<(u64, Place)>> = vec![Vec::new(); self.progress.len()];
        for (taken, call) in calls {
            let (begin_ns, end_ns) = (self.ns(call.begin), self.ns(call.end));
            let lane = self.lane_of(call, begin_ns, end_ns)?;
            self.call(call, lane, begin_ns, end_ns)?;
            self.made.push((taken, call, lane));
            if call.note.is_some() || with_results.contains(&call.event) {
                self.enqueuers.insert(call.event, (lane, begin_ns, end_ns));
            }
            let place = Place { lane, at_ns: last_moment(begin_ns, end_ns) };
            let thread = call.lane as usize;
            match call.progress {
                0 => silent[thread].push((call.end, place)),
                progress => self.progress[thread].push((progress, place)),
            }
        }
        // Progress that an instruction behind the call told.
        for published in run.runners.iter().flat_map(|taken| &taken.published) {
            let thread = published.lane as usize;
            let at = silent[thread].partition_point(|(end, _)| *end <= published.at);
            if let Some(&(_, place)) = at.checked_sub(1).and_then(|at| silent[thread].get(at)) {
                self.progress[thread].push((published.progress, place));
            }
        }
        for progress in &mut self.progress {
            progress.sort_by_key(|(count, _)| *count);
        }
        Ok(())
    }

    fn name_workers(&mut self, calls: &[(&Taken, &CallTaken)]) -> io::Result<()> {
        let mut threads: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
        for (_, call) in calls {
            let known = threads.entry(call.worker).or_default();
            if !known.contains(&call.lane) {
                known.push(call.lane);
            }
        }
        let mut workers: Vec<u32> = threads.keys().copied().collect();
        workers.extend(self.run.runners.iter().flat_map(|taken| taken.pauses.iter().map(|pause| pause.worker)));
        workers.sort_unstable();
        workers.dedup();
        for worker in workers {
            let name = match threads.get(&worker).map(Vec::as_slice) {
                Some(&[lane]) => format!("worker {worker} (captured thread {})", self.thread_of(lane)),
                Some(lanes) => format!("worker {worker} ({} captured threads)", lanes.len()),
                None => format!("worker {worker}"),
            };
            self.timeline.name_lane(worker_lane(worker), &name)?;
        }
        Ok(())
    }

    /// The lane of a call: its worker's, or one of those beside it.
    fn lane_of(&mut self, call: &CallTaken, begin_ns: u64, end_ns: u64) -> io::Result<Lane> {
        let own = worker_lane(call.worker);
        if !call.beside {
            return Ok(own);
        }
        let lanes = self.beside.entry(call.worker).or_default();
        let free = lanes.iter().position(|free_ns| *free_ns <= begin_ns);
        let number = free.unwrap_or_else(|| {
            // The last lane takes what is too much.
            if lanes.len() + 1 < BESIDE as usize {
                lanes.push(0);
            }
            lanes.len() - 1
        });
        let is_new = lanes[number] == 0;
        lanes[number] = end_ns.max(1);
        let lane = Lane { thread: own.thread + 1 + number as u32, ..own };
        if is_new {
            self.timeline.name_lane(lane, &format!("worker {}, handed off {}", call.worker, number + 1))?;
        }
        Ok(lane)
    }

    fn call(&mut self, call: &CallTaken, lane: Lane, begin_ns: u64, end_ns: u64) -> io::Result<()> {
        self.drawn.calls += 1;
        let api = APIS.get(usize::from(call.api));
        let name = api.map_or("?", |api| api.name);
        let blocks = api.is_some_and(Api::blocks);
        let mut values = vec![
            ("event", Value::Number(call.event)),
            ("captured_thread", Value::Number(u64::from(self.thread_of(call.lane)))),
        ];
        if call.returned != 0 {
            values.push(("returned", Value::Code(call.returned)));
        }
        let work = call.note.map(|note| (self.work_name(note.work), note.bytes));
        if let Some((work, bytes)) = &work {
            values.push(("work", Value::Text(work)));
            if *bytes > 0 {
                values.push(("bytes", Value::Number(*bytes)));
            }
        }
        let category = if blocks { category::BLOCKING } else { category::CALL };
        let colour = blocks.then_some(Colour::Blocking);
        self.timeline.slice(&Slice { lane, name, category, begin_ns, end_ns, colour, values: &values })?;
        if blocks {
            let (name, category) = (wait::RUNTIME, category::WAIT);
            self.timeline.slice(&Slice { lane, name, category, begin_ns, end_ns, colour, values: &[] })?;
        }
        Ok(())
    }

    fn pauses(&mut self) -> io::Result<()> {
        for pause in self.run.runners.iter().flat_map(|taken| &taken.pauses) {
            let PauseTaken { begin, end, worker, awaited, .. } = *pause;
            let (name, colour) = match pause.pause {
                Pause::Edge => (wait::EDGE, Colour::Edge),
                Pause::Staging => (wait::STAGING, Colour::Staging),
                Pause::Gap => (wait::GAP, Colour::Gap),
            };
            let thread = awaited.map(|Wait { lane, .. }| Value::Number(u64::from(self.thread_of(lane))));
            let values: Vec<(&str, Value<'_>)> =
                thread.map(|thread| ("for_captured_thread", thread)).into_iter().collect();
            let (begin_ns, end_ns) = (self.ns(begin), self.ns(end));
            self.timeline.slice(&Slice {
                lane: worker_lane(worker),
                name,
                category: category::WAIT,
                begin_ns,
                end_ns,
                colour: Some(colour),
                values: &values,
            })?;
        }
        Ok(())
    }

    /// Draws an arrow for each edge between calls that are both drawn.
    fn edges(&mut self) -> io::Result<()> {
        for (taken, call, lane) in std::mem::take(&mut self.made) {
            let begin_ns = self.ns(call.begin);
            for edge in taken.edges_of(call) {
                let Some(made) = self.progress.get(edge.lane as usize) else { continue };
                let Ok(at) = made.binary_search_by_key(&edge.count, |(count, _)| *count) else { continue };
                self.timeline.arrow(category::EDGE, made[at].1, Place { lane, at_ns: begin_ns })?;
                self.drawn.edges += 1;
            }
        }
        Ok(())
    }

    /// Draws what the devices did.
    fn works(&mut self) -> io::Result<()> {
        let mut spans: Vec<&Span> = self.run.spans.iter().collect();
        spans.sort_by_key(|span| span.event);
        // Streams are numbered by their first work, per device.
        let mut numbers: FxHashMap<StreamLabel, u32> = FxHashMap::default();
        let mut devices: FxHashMap<i32, u32> = FxHashMap::default();
        for span in &spans {
            let device = span.stream.device;
            let next = devices.entry(device).or_default();
            if let std::collections::hash_map::Entry::Vacant(entry) = numbers.entry(span.stream) {
                let number = *entry.insert(*next);
                *next += 1;
                if number == 0 {
                    self.timeline.name_process(device_group(device), &format!("replay: device {device}"))?;
                }
                self.timeline.name_lane(stream_lane(device, number), &format!("stream {number}"))?;
            }
        }
        let shifts = self.shifts(&spans);
        let mut free_ns: FxHashMap<StreamLabel, u64> = FxHashMap::default();
        for span in spans {
            let lane = stream_lane(span.stream.device, numbers[&span.stream]);
            let (begin_ns, end_ns) = self.placed(span, &shifts);
            // A stream does one thing at a time, and each takes some time: what looks otherwise is rounding.
            let free_ns = free_ns.entry(span.stream).or_default();
            let begin_ns = begin_ns.max(*free_ns);
            let made_ns = self.enqueuers.get(&span.event).map_or(0, |&(_, made_ns, _)| made_ns);
            let end_ns = end_ns.max(begin_ns + 1).max(made_ns + 1);
            *free_ns = end_ns;
            let name = self.work_name(span.work);
            let values = [("event", Value::Number(span.event))];
            let category = category::WORK;
            let slice = Slice { lane, name: &name, category, begin_ns, end_ns, colour: None, values: &values };
            self.timeline.slice(&slice)?;
            self.drawn.works += 1;
            self.worked.insert(span.event, Place { lane, at_ns: last_moment(begin_ns, end_ns) });
            if let Some(&(from, made_ns, _)) = self.enqueuers.get(&span.event) {
                let to = Place { lane, at_ns: begin_ns.max(made_ns) };
                self.timeline.arrow(category::LAUNCH, Place { lane: from, at_ns: made_ns }, to)?;
            }
        }
        Ok(())
    }

    /// Begin and end of work by the host's clock.
    fn placed(&self, span: &Span, shifts: &FxHashMap<i32, f64>) -> (u64, u64) {
        let shift_ns = shifts.get(&span.stream.device).copied().unwrap_or_default();
        let begin_ns = (span.begin_ns + shift_ns).max(0.0);
        (begin_ns as u64, (begin_ns + span.duration_ns) as u64)
    }

    /// By device: what is to be added to the device's times. The moment of its origin is known to within the time that an
    /// event takes to be recorded and waited for; no work can have ended before the call that enqueued it was made.
    fn shifts(&self, spans: &[&Span]) -> FxHashMap<i32, f64> {
        let mut shifts: FxHashMap<i32, f64> = self
            .run
            .origins
            .iter()
            .map(|&(device, tick)| {
                let since = |from, to| self.clock.ns_between(from, to) as f64;
                (device, since(self.run.opened, tick) - since(tick, self.run.opened))
            })
            .collect();
        for span in spans {
            let (Some(shift_ns), Some(&(_, made_ns, _))) =
                (shifts.get_mut(&span.stream.device), self.enqueuers.get(&span.event))
            else {
                continue;
            };
            *shift_ns = shift_ns.max(made_ns as f64 - (span.begin_ns + span.duration_ns));
        }
        shifts
    }

    /// Draws how results came out: at the end of the copy, else of its call.
    fn results(&mut self) -> io::Result<()> {
        for &(event, result) in &self.run.results {
            let enqueuer = self.enqueuers.get(&event);
            let called = enqueuer.map(|&(lane, begin_ns, end_ns)| Place { lane, at_ns: last_moment(begin_ns, end_ns) });
            let Some(place) = self.worked.get(&event).copied().or(called) else { continue };
            let (name, colour, why) = match result {
                ResultTaken::Exact => ("D2H exact", Colour::Good, None),
                ResultTaken::Within => ("D2H within tolerance", Colour::Good, None),
                ResultTaken::Failed => ("D2H differs", Colour::Bad, None),
                ResultTaken::Skipped(reason) => ("D2H not compared", Colour::Gap, Some(reason.as_str())),
            };
            let mut values = vec![("event", Value::Number(event))];
            values.extend(why.map(|why| ("because", Value::Text(why))));
            self.timeline.moment(place, (name, category::RESULT), colour, &values)?;
            self.drawn.results += 1;
        }
        Ok(())
    }

    fn work_name(&self, work: Work) -> String {
        match work {
            Work::Kernel(number) => self
                .archive
                .kernels()
                .of_launch(number.wrapping_add(1))
                .map_or_else(|| format!("kernel {number}"), |kernel| kernel.name.clone()),
            Work::Graph => "(graph)".to_owned(),
            Work::Copy(class) => {
                let api = APIS.get(usize::from(class.api)).map_or("?", |api| api.name);
                format!("{api} {}", class.direction.as_str())
            }
        }
    }
}

/// The lane of a worker.
fn worker_lane(worker: u32) -> Lane {
    Lane { process: HOST, thread: 1 + worker * BESIDE }
}

fn device_group(device: i32) -> u32 {
    DEVICE + u32::try_from(device).unwrap_or_default()
}

fn stream_lane(device: i32, number: u32) -> Lane {
    Lane { process: device_group(device), thread: 1 + number }
}

/// The last moment that lies in a slice.
fn last_moment(begin_ns: u64, end_ns: u64) -> u64 {
    end_ns.saturating_sub(1).max(begin_ns)
}
