//! What a measuring run needs to know beside the instructions: which work each has the device do, the program's gaps
//! between calls, and which calls are in the range that is measured.

use rustc_hash::FxHashMap;

use hrr_format::catalogue::{Api, Effect, Role};
use hrr_format::record::{Record, SectionTag};

use super::Planner;
use super::lower::special::Special;
use super::lower::{Call, Lowering};
use crate::instruction::{Chunk, Wait, flag};
use crate::report::note::{CopyClass, Direction, Note, StreamLabel, StreamWord, Work};

/// What is to be taken down while planning.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Annotate {
    /// Whether instructions have notes on what the device does.
    pub(crate) notes: bool,
    /// How much of the program's gaps between calls is kept, in nanoseconds a tick; `None` = nothing.
    pub(crate) gap_ns_per_tick: Option<f64>,
    /// Which part of the archive is measured.
    pub(crate) range: Option<RangeOption>,
}

/// A part of the archive: what comes before it is set-up, what comes after it is not replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeOption {
    /// Events by number, the last one not included.
    Events {
        /// First event.
        from: u64,
        /// First event after the range.
        to: u64,
    },
    /// Kernel launches by number, in the order they were entered; from the first one up to the one that is not included.
    Kernels {
        /// First launch.
        from: u64,
        /// First launch after the range.
        to: u64,
    },
}

impl std::fmt::Display for RangeOption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (what, from, to) = match self {
            RangeOption::Events { from, to } => ("events", from, to),
            RangeOption::Kernels { from, to } => ("kernels", from, to),
        };
        if *to == u64::MAX { write!(f, "{what} {from}..") } else { write!(f, "{what} {from}..{to}") }
    }
}

/// Where planning is with respect to the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// Before it.
    Before,
    /// At its first call.
    First,
    /// In it.
    Inside,
    /// At the first call after it.
    Over,
}

/// State of the annotations.
#[derive(Debug, Default)]
pub(crate) struct Annotations {
    pub(crate) wanted: Annotate,
    /// Kernel launches entered so far.
    launches: u64,
    inside: bool,
    /// Per captured thread: whether it has met the gate in front of the range.
    gated: Vec<bool>,
    /// Recorded tick at which the measured part began.
    origin: Option<u64>,
    /// Recorded tick at which each captured thread's last measured call had returned.
    last_end: Vec<Option<u64>>,
}

/// Which streams are being captured into a graph, so that what is enqueued on them is not done.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    /// Streams that are being captured, and events recorded in them, with the stream whose capture they belong to.
    streams: FxHashMap<u32, u32>,
    events: FxHashMap<u32, u32>,
}

impl Captures {
    /// Takes a call on `stream` in: which event it records, or has the stream wait for. Whether the stream is being captured.
    pub(crate) fn follow(
        &mut self,
        special: Special,
        stream: u32,
        records: Option<u32>,
        waits_for: Option<u32>,
    ) -> bool {
        if self.streams.is_empty() && self.events.is_empty() && special != Special::BeginCapture {
            return false;
        }
        match special {
            Special::BeginCapture => {
                self.streams.insert(stream, stream);
            }
            Special::EndCapture => {
                if let Some(origin) = self.streams.get(&stream).copied() {
                    self.streams.retain(|_, of| *of != origin);
                    self.events.retain(|_, of| *of != origin);
                }
            }
            Special::EventRecord => {
                if let Some(event) = records {
                    match self.streams.get(&stream).copied() {
                        Some(origin) => self.events.insert(event, origin),
                        None => self.events.remove(&event),
                    };
                }
            }
            Special::WaitEvent => {
                if let Some(origin) = waits_for.and_then(|event| self.events.get(&event)).copied() {
                    self.streams.insert(stream, origin);
                }
            }
            _ => {}
        }
        self.streams.contains_key(&stream)
    }
}

/// Whether a call launches a kernel.
pub(crate) fn launches_kernel(api: &Api) -> bool {
    let launches = |role: &Role| matches!(role, Role::KernelParams | Role::Extra);
    api.effect == Effect::Enqueue && (api.param_with(launches).is_some() || api.name.starts_with("hipLaunchByPtr"))
}

impl Annotations {
    /// Annotations of an archive with this many captured threads.
    pub(crate) fn new(wanted: Annotate, lanes: usize) -> Self {
        Annotations {
            wanted,
            inside: wanted.range.is_none(),
            gated: vec![wanted.range.is_none(); lanes],
            last_end: vec![None; lanes],
            ..Annotations::default()
        }
    }

    /// Whether the range is one of kernels, so that [`Self::position`] must be told of launches.
    pub(crate) fn counts_launches(&self) -> bool {
        matches!(self.wanted.range, Some(RangeOption::Kernels { .. }))
    }

    /// Where the next event is, `launch` telling whether it launches a kernel.
    pub(crate) fn position(&mut self, event: u64, launch: bool) -> Position {
        let number = self.launches;
        self.launches += u64::from(launch);
        let (begins, over) = match self.wanted.range {
            None => return Position::Inside,
            Some(RangeOption::Events { from, to }) => (event >= from, event >= to),
            Some(RangeOption::Kernels { from, to }) => (launch && number >= from, launch && number >= to),
        };
        match (self.inside, begins, over) {
            (_, _, true) => Position::Over,
            (true, ..) => Position::Inside,
            (false, true, _) => {
                self.inside = true;
                Position::First
            }
            (false, false, _) => Position::Before,
        }
    }

    /// Whether the range has begun.
    pub(crate) fn is_inside(&self) -> bool {
        self.inside
    }

    /// The wait that holds a captured thread's first call of the range back until the timed section begins.
    pub(crate) fn gate(&mut self, lane: u32) -> Option<Wait> {
        let gated = &mut self.gated[lane as usize];
        if *gated || !self.inside {
            return None;
        }
        *gated = true;
        // The gate's progress is behind that of all captured threads.
        Some(Wait { lane: self.last_end.len() as u32, count: 1 })
    }

    /// The program's gap before a call, in nanoseconds as they are to be replayed.
    fn gap_ns(&mut self, lane: u32, record: &Record<'_>) -> u64 {
        let Some(scale) = self.wanted.gap_ns_per_tick.filter(|_| self.inside) else { return 0 };
        let origin = *self.origin.get_or_insert(record.begin());
        let since = self.last_end[lane as usize].replace(record.end()).unwrap_or(origin);
        (record.begin().saturating_sub(since) as f64 * scale) as u64
    }
}

impl<'a> Planner<'a> {
    /// Takes down what is wanted of the instruction that was appended to the chunk last.
    pub(crate) fn annotate(&mut self, call: &Call<'a>, lowering: &Lowering, special: Special, chunk: &mut Chunk) {
        let wanted = self.annotations.wanted;
        let at = chunk.instructions.len().saturating_sub(1);
        if wanted.gap_ns_per_tick.is_some() {
            let gap_ns = self.annotations.gap_ns(call.lane, &call.record);
            // Instructions of replay's own before it have no gap.
            chunk.gaps_ns.resize(at, 0);
            chunk.gaps_ns.push(gap_ns);
        }
        if !wanted.notes || !call.succeeded() {
            return;
        }
        if self.graph_events.captured {
            // It becomes part of a graph, and is done when that is launched.
            return;
        }
        let Some((work, bytes)) = self.work_of(call, special, chunk.instructions[at].flags) else { return };
        let Some(key) = lowering.facts.enqueues_on else { return };
        let handle = match call.api.stream_param() {
            Some(param) => {
                let word = call.api.params[param].word;
                match call.record.word(usize::from(word)) {
                    0 if call.api.name.ends_with("_spt") => StreamWord::Fixed(super::objects::STREAM_PER_THREAD),
                    _ => StreamWord::Word(word),
                }
            }
            None if call.api.name.ends_with("_spt") => StreamWord::Fixed(super::objects::STREAM_PER_THREAD),
            None if matches!(work, Work::Copy(_)) => StreamWord::Fixed(0),
            // The stream was pushed by an earlier call.
            None => StreamWord::Unknown,
        };
        let stream = StreamLabel { device: key.device, object: key.object };
        chunk.notes.push(Note { at: at as u32, work, bytes, stream, handle });
    }

    /// What the device does for a call, and how many bytes it copies.
    fn work_of(&self, call: &Call<'a>, special: Special, flags: u16) -> Option<(Work, u64)> {
        if flags & flag::KERNEL != 0 {
            let number = call.record.aux().checked_sub(1);
            return Some((Work::Kernel(number.unwrap_or(u32::MAX)), 0));
        }
        if special == Special::GraphLaunch {
            return Some((Work::Graph, 0));
        }
        let blocking = call.api.effect == Effect::BlockCopy;
        if !blocking && call.api.effect != Effect::Enqueue {
            return None;
        }
        let section =
            |tag| call.record.section_tagged(tag).and_then(|section| section.blob()).map(|blob| blob.size_bytes);
        let by_role = || {
            call.api.params.iter().find_map(|param| match param.role {
                Role::Device(_, size) | Role::Any(_, size) | Role::Host(_, size) => self.size_of(call, size),
                _ => None,
            })
        };
        let (direction, bytes) = if call.api.name.contains("emset") {
            (Direction::Fill, by_role())
        } else if !call.api.name.contains("emcpy") {
            return None;
        } else if let Some(bytes) = section(SectionTag::BlobIn) {
            (Direction::HostToDevice, Some(bytes))
        } else if let Some(bytes) = section(SectionTag::BlobOut) {
            (Direction::DeviceToHost, Some(bytes))
        } else {
            (Direction::DeviceToDevice, by_role())
        };
        let bytes = bytes.unwrap_or(0);
        Some((Work::Copy(CopyClass::new(call.api.id, direction, blocking, bytes)), bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn positions(range: RangeOption, launches: &[bool]) -> Vec<Position> {
        let mut annotations = Annotations::new(Annotate { range: Some(range), ..Annotate::default() }, 1);
        launches.iter().enumerate().map(|(event, launch)| annotations.position(event as u64, *launch)).collect()
    }

    #[test]
    fn a_range_of_events_begins_and_ends_at_its_numbers() {
        use Position::{Before, First, Inside, Over};
        let found = positions(RangeOption::Events { from: 2, to: 4 }, &[false; 5]);
        assert_eq!(found, [Before, Before, First, Inside, Over]);
    }

    #[test]
    fn a_range_of_kernels_begins_at_one_launch_and_ends_before_another() {
        use Position::{Before, First, Inside, Over};
        let launches = [true, false, true, false, true, false, true];
        let found = positions(RangeOption::Kernels { from: 1, to: 3 }, &launches);
        assert_eq!(found, [Before, Before, First, Inside, Inside, Inside, Over]);
    }

    #[test]
    fn each_thread_meets_the_gate_once_and_only_in_the_range() {
        let range = Some(RangeOption::Events { from: 1, to: 9 });
        let mut annotations = Annotations::new(Annotate { range, ..Annotate::default() }, 2);
        annotations.position(0, false);
        assert_eq!(annotations.gate(0), None);
        annotations.position(1, false);
        assert_eq!(annotations.gate(0), Some(Wait { lane: 2, count: 1 }));
        assert_eq!(annotations.gate(0), None);
        assert!(annotations.gate(1).is_some());
        assert_eq!(Annotations::new(Annotate::default(), 1).gate(0), None);
    }
}
