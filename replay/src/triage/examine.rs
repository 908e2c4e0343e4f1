//! Puts together what is known when the watchdog fires: boards, marks, and the archive's own records.

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use hrr_format::archive::Archive;
use hrr_format::catalogue::{APIS, Access, HandleKind, Role};
use hrr_format::record::Record;

use super::diagnosis::{Diagnosis, Edge, OPERATIONS_LISTED, Operation, RecordedInFlight, Stream, Stuck, Worker};
use super::event_index::EventIndex;
use super::marks::{Marks, STRIDE, StreamMarks, StreamProgress};
use crate::info;
use crate::run::watchdog::Sighting;

/// How long the runtime may take to tell about all streams.
const PATIENCE: Duration = Duration::from_millis(80);

/// What an examination looks at.
pub(crate) struct Subject<'s, 'a> {
    pub(crate) archive: &'a Archive,
    pub(crate) index: &'s EventIndex<'a>,
    pub(crate) marks: Option<&'s Arc<Marks>>,
    /// Runners that are in a call or wait before one.
    pub(crate) sightings: Vec<Sighting>,
    /// Worker of each captured thread.
    pub(crate) worker_of: &'s [u32],
}

/// A stream and how far it has come.
struct Seen {
    marks: Arc<StreamMarks>,
    progress: StreamProgress,
}

/// Records by event number.
type Found<'a> = FxHashMap<u64, (u32, Record<'a>)>;

impl<'a> Subject<'_, 'a> {
    /// Completes a diagnosis.
    pub(crate) fn examine(&self, diagnosis: &mut Diagnosis) {
        let seen = match self.ask_streams() {
            Ok(seen) => seen,
            Err(reason) => {
                diagnosis.streams_unknown = Some(reason);
                Vec::new()
            }
        };
        let (busy, idle): (Vec<&Seen>, Vec<&Seen>) = seen.iter().partition(|seen| {
            let progress = &seen.progress;
            !progress.pending.is_empty() || progress.forgotten > 0 || progress.failure.is_some() || progress.busy
        });
        let of_streams = busy.iter().flat_map(|seen| {
            let listed = seen.progress.pending.iter().take(OPERATIONS_LISTED.max(64));
            listed.copied().chain(seen.progress.completed)
        });
        let found = self.index.find(of_streams.chain(self.sightings.iter().map(|sighting| sighting.event)));
        diagnosis.workers = self.sightings.iter().map(|sighting| self.worker(sighting, &found)).collect();
        diagnosis.cycles = self.cycles();
        diagnosis.idle_streams = idle.len() as u64;
        let (waits, cycles) = self.stream_waits(&busy, &found);
        diagnosis.cycles.extend(cycles);
        diagnosis.streams =
            busy.iter().zip(waits).map(|(seen, waits_for)| self.stream(seen, waits_for, &found)).collect();
        diagnosis.recorded_in_flight = self.recorded_in_flight();
    }

    /// Asks in a thread of its own: the runtime may be what hangs.
    fn ask_streams(&self) -> Result<Vec<Seen>, String> {
        let Some(marks) = self.marks else { return Ok(Vec::new()) };
        let (answer, on_answer) = crossbeam::channel::unbounded();
        let streams = marks.all();
        let count = streams.len();
        let asking = std::thread::Builder::new().name("hrr-triage".to_owned()).spawn(move || {
            for marks in streams {
                let progress = marks.examine();
                if answer.send(Seen { marks, progress }).is_err() {
                    return;
                }
            }
        });
        asking.map_err(|error| format!("no thread could be started to ask: {error}"))?;
        let deadline = std::time::Instant::now() + PATIENCE;
        let mut seen = Vec::with_capacity(count);
        while seen.len() < count {
            match on_answer.recv_deadline(deadline) {
                Ok(stream) => seen.push(stream),
                Err(_) if seen.is_empty() => return Err("because the runtime does not answer hipEventQuery".to_owned()),
                Err(_) => break,
            }
        }
        Ok(seen)
    }

    fn thread(&self, lane: u32) -> u32 {
        self.archive.streams().get(lane as usize).map_or(lane, |stream| stream.header().thread)
    }

    fn operation(&self, event: u64, found: &Found<'a>) -> Option<Operation> {
        let (lane, record) = found.get(&event)?;
        let kernel = info::kernel(self.archive, record);
        Some(Operation {
            event,
            thread: self.thread(*lane),
            api: self.archive.api(record.api()).name.to_owned(),
            kernel: kernel.map(|kernel| kernel.name.clone()),
            code_object: kernel.and_then(|kernel| kernel.code_object),
            call: info::call_text(self.archive, record),
        })
    }

    fn worker(&self, sighting: &Sighting, found: &Found<'a>) -> Worker {
        let record = found.get(&sighting.event).map(|(_, record)| record);
        let clock = &self.archive.manifest().clock;
        let took = |record: &Record<'_>| clock.ticks_to_ns(record.end().saturating_sub(record.begin())) as f64 / 1000.0;
        Worker {
            thread: self.thread(sighting.lane),
            tid: self.archive.streams().get(sighting.lane as usize).map_or(0, |stream| stream.header().tid),
            worker: sighting.worker,
            state: if sighting.in_call { Stuck::Call } else { Stuck::Wait },
            operation: self.operation(sighting.event, found),
            api: APIS.get(usize::from(sighting.api)).map_or("?", |api| api.name).to_owned(),
            event: sighting.event,
            stream: record.and_then(|record| self.stream_of(record)),
            stuck_ms: sighting.stuck_for.as_secs_f64() * 1e3,
            recorded_us: record.filter(|_| sighting.in_call).map(took),
            waits_for: sighting.waits_for.map(|wait| Edge {
                thread: self.thread(wait.lane),
                calls_wanted: wait.count,
                calls_done: wait.done,
            }),
        }
    }

    /// The stream a call names, as recorded.
    fn stream_of(&self, record: &Record<'_>) -> Option<String> {
        let api = self.archive.row_of(record)?;
        let param = api.params.get(api.stream_param()?)?;
        Some(stream_name(record.word(usize::from(param.word))))
    }

    /// Cycles among runners that wait for each other's captured threads, as sentences.
    fn cycles(&self) -> Vec<String> {
        wait_cycles(&self.sightings, self.worker_of)
            .into_iter()
            .map(|members| {
                let name = |&at: &usize| {
                    let sighting = &self.sightings[at];
                    format!("captured thread {} (event {})", self.thread(sighting.lane), sighting.event)
                };
                let mut names: Vec<String> = members.iter().map(name).collect();
                if let [only] = names.as_slice() {
                    return format!("{only} waits for itself");
                }
                names.push(names[0].clone());
                names.join(" waits for ")
            })
            .collect()
    }

    fn stream(&self, seen: &Seen, waits_for: Option<String>, found: &Found<'a>) -> Stream {
        let progress = &seen.progress;
        let name = |code: i32| hrr_format::hip_error::name(code).unwrap_or("unknown error");
        Stream {
            stream: stream_name(seen.marks.recorded),
            device: seen.marks.key.device,
            last_completed: progress.completed.and_then(|event| self.operation(event, found)),
            in_flight: progress
                .pending
                .iter()
                .take(OPERATIONS_LISTED.max(progress.candidates.min(STRIDE + 1)))
                .filter_map(|&event| self.operation(event, found))
                .collect(),
            in_flight_total: progress.pending.len() as u64 + progress.forgotten,
            candidates: progress.candidates as u64,
            waits_for,
            unknown: match (progress.busy, progress.failure) {
                (true, _) => Some("a worker is inside an enqueue on it".to_owned()),
                (_, Some(code)) => Some(format!("the runtime answers {code} ({})", name(code))),
                _ => None,
            },
        }
    }

    /// What the first operation in flight of each stream waits for, and the cycles among streams.
    fn stream_waits(&self, busy: &[&Seen], found: &Found<'a>) -> (Vec<Option<String>>, Vec<String>) {
        let mut reasons = Vec::with_capacity(busy.len());
        let mut next = Vec::with_capacity(busy.len());
        for seen in busy {
            let first = seen.progress.pending.first().and_then(|event| found.get(event).map(|found| (*event, found.1)));
            let (reason, on) =
                first.map_or((None, None), |(event, record)| self.device_wait(event, &record, busy, found));
            reasons.push(reason);
            next.push(on);
        }
        let cycles = cycles_of(&next)
            .into_iter()
            .map(|members| {
                let mut names: Vec<String> =
                    members.iter().map(|&at| format!("stream {}", stream_name(busy[at].marks.recorded))).collect();
                if let [only] = names.as_slice() {
                    return format!("{only} waits for work behind it on the same stream");
                }
                names.push(names[0].clone());
                names.join(" waits for ")
            })
            .collect();
        (reasons, cycles)
    }

    /// What an operation that makes its stream wait waits for, and which of the streams that is to come from.
    fn device_wait(
        &self,
        event: u64,
        record: &Record<'_>,
        busy: &[&Seen],
        found: &Found<'a>,
    ) -> (Option<String>, Option<usize>) {
        let Some(api) = self.archive.row_of(record) else { return (None, None) };
        // An operation in flight somewhere that satisfies `wanted`, the last one of those.
        let in_flight = |wanted: &dyn Fn(u64, &Record<'_>) -> bool| {
            busy.iter()
                .enumerate()
                .flat_map(|(at, seen)| seen.progress.pending.iter().map(move |&event| (at, event)))
                .filter(|(_, event)| found.get(event).is_some_and(|(_, record)| wanted(*event, record)))
                .max_by_key(|&(_, event)| event)
        };
        let tell = |what: String, by: Option<(usize, u64)>, nothing: &str| match by {
            Some((at, by)) => {
                let stream = stream_name(busy[at].marks.recorded);
                (Some(format!("{what}: event {by} on stream {stream}, in flight")), Some(at))
            }
            None => (Some(format!("{what}: {nothing}")), None),
        };
        if api.name.starts_with("hipStreamWaitEvent") {
            let handle = api.params.iter().find(|param| param.role == Role::Use(HandleKind::Event));
            let handle = handle.map_or(0, |param| record.word(usize::from(param.word)));
            let records = |number: u64, other: &Record<'_>| {
                number < event
                    && self.archive.row_of(other).is_some_and(|row| row.name.starts_with("hipEventRecord"))
                    && other.word(0) == handle
            };
            return tell(format!("the event {handle:#x}"), in_flight(&records), "no record of it is in flight");
        }
        if api.name.starts_with("hipStreamWaitValue") {
            let address = record.word(1);
            let writes = |_: u64, other: &Record<'_>| {
                self.archive.row_of(other).is_some_and(|row| {
                    row.params.iter().any(|param| {
                        let writes = match param.role {
                            Role::Device(access, _) | Role::Any(access, _) => access != Access::Read,
                            _ => false,
                        };
                        writes && other.word(usize::from(param.word)) == address
                    })
                })
            };
            let what = format!("the value {:#x} at {address:#x}", record.word(2));
            return tell(what, in_flight(&writes), "nothing in flight writes there");
        }
        (None, None)
    }

    /// What had not returned when the archive ended.
    fn recorded_in_flight(&self) -> Vec<RecordedInFlight> {
        let clock = &self.archive.manifest().clock;
        let (calls, last_tick) = self.index.open_at_end();
        let last_tick = last_tick.max(self.archive.alive_tick().unwrap_or(0));
        calls
            .into_iter()
            .map(|(lane, record)| RecordedInFlight {
                thread: self.thread(lane),
                call: info::call_text(self.archive, &record),
                at_least_ms: clock.ticks_to_ns(last_tick.saturating_sub(record.begin())) as f64 / 1e6,
            })
            .collect()
    }
}

/// Cycles among runners that wait for each other's captured threads.
pub(crate) fn wait_cycles(sightings: &[Sighting], worker_of: &[u32]) -> Vec<Vec<usize>> {
    // The runner that has to move for a captured thread to move.
    let holder = |lane: u32| {
        let of_lane = sightings.iter().position(|sighting| sighting.lane == lane);
        of_lane.or_else(|| {
            let worker = worker_of.get(lane as usize).copied();
            sightings.iter().position(|sighting| sighting.worker.is_some() && sighting.worker == worker)
        })
    };
    let next: Vec<Option<usize>> =
        sightings.iter().map(|sighting| sighting.waits_for.and_then(|wait| holder(wait.lane))).collect();
    cycles_of(&next)
}

fn stream_name(recorded: u64) -> String {
    match recorded {
        0 | 1 => "default".to_owned(),
        2 => "per-thread default".to_owned(),
        handle => format!("{handle:#x}"),
    }
}

/// The cycles of a graph in which each node leads to one other at most, each from its first node on.
fn cycles_of(next: &[Option<usize>]) -> Vec<Vec<usize>> {
    const UNSEEN: usize = usize::MAX;
    let mut walk_of = vec![UNSEEN; next.len()];
    let mut cycles = Vec::new();
    for start in 0..next.len() {
        let mut at = Some(start);
        while let Some(node) = at.filter(|&node| walk_of[node] == UNSEEN) {
            walk_of[node] = start;
            at = next[node];
        }
        // Back at a node of this very walk: from there it goes round.
        if let Some(first) = at.filter(|&node| walk_of[node] == start) {
            let mut members = vec![first];
            let mut node = next[first];
            while let Some(member) = node.filter(|&node| node != first) {
                members.push(member);
                node = next[member];
            }
            cycles.push(members);
        }
    }
    cycles
}

#[cfg(test)]
mod tests {
    use super::cycles_of;

    #[test]
    fn cycles_are_found_once_and_what_leads_into_them_is_no_part() {
        assert_eq!(cycles_of(&[Some(1), Some(2), Some(0), Some(0)]), [vec![0, 1, 2]]);
        assert_eq!(cycles_of(&[Some(1), Some(1), None, Some(2)]), [vec![1]]);
        assert_eq!(cycles_of(&[Some(1), Some(0), Some(3), Some(2)]), [vec![0, 1], vec![2, 3]]);
        assert_eq!(cycles_of(&[None, Some(0)]), Vec::<Vec<usize>>::new());
    }
}
