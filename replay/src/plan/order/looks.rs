//! Enqueues that a thread did not see when it looked at their stream.
//!
//! A query that succeeds, or a wait for a stream that returns, while another thread enqueues on that stream: the two are
//! not ordered, and a replay would issue them as they were entered. Where the enqueue comes first, the look has to wait for
//! its work as well. Mostly that only takes longer. But the work may wait on the device for a value that the program writes
//! later, after the look: at capture the look came first, or it would not have returned, and at replay nothing would ever
//! return.
//!
//! So in an archive in which work waits for values such an enqueue is taken to have been entered when the look had
//! returned. That is one of the orders in which the two calls can have happened, and it is taken only where it changes
//! nothing else: no call was entered between the return of the enqueue and that of the look, so whatever came after the
//! enqueue still does; and nothing was destroyed meanwhile. The look cannot need the enqueue, which stands behind all it
//! waits for in the stream.

use hrr_format::archive::Archive;
use hrr_format::catalogue::{Api, Effect, Role};
use hrr_format::record::Record;
use rustc_hash::FxHashMap;

use crate::plan::timeline::{Point, Timeline};

/// When a call was entered and had returned, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) begin: u64,
    /// Not before `begin`.
    pub(crate) end: u64,
}

impl Span {
    /// As recorded.
    pub(crate) fn of(record: &Record<'_>) -> Self {
        Span { begin: record.begin(), end: record.end().max(record.begin()) }
    }
}

/// Calls that are taken to have been entered later than they were.
#[derive(Clone, Debug, Default)]
pub(crate) struct Delayed {
    /// New entry ticks, by the address of the record.
    begins: FxHashMap<usize, u64>,
}

impl Delayed {
    /// When a call counts as entered and returned.
    pub(crate) fn span(&self, record: &Record<'_>) -> Span {
        let span = Span::of(record);
        if self.begins.is_empty() {
            return span;
        }
        match self.begins.get(&key(record)) {
            Some(&begin) => Span { begin, end: span.end.max(begin) },
            None => span,
        }
    }

    /// Those of these calls, with their new entry ticks.
    #[cfg(test)]
    pub(in crate::plan) fn to<'a>(calls: impl Iterator<Item = (Record<'a>, u64)>) -> Self {
        Delayed { begins: calls.map(|(record, begin)| (key(&record), begin)).collect() }
    }

    /// Those of an archive in which work waits for values.
    pub(crate) fn find(archive: &Archive) -> Self {
        let mut search = Search::new(archive.streams().len());
        // By captured thread, for the default stream is the device's.
        let mut devices = vec![0; archive.streams().len()];
        for point in Timeline::new(archive.streams(), Self::default().into()) {
            match point {
                Point::Begin { lane, record, .. } => {
                    let api = archive.row_of(&record);
                    let device = &mut devices[lane as usize];
                    if api.is_some_and(|api| api.name == "hipSetDevice") && record.ret() == 0 {
                        *device = record.word(0) as u32 as i32;
                    }
                    let what = api.map_or(What::Other, |api| What::of(api, &record, *device));
                    search.entered(lane, Call { key: key(&record), span: Span::of(&record), what });
                }
                // A marker is no call, but has its place among them.
                Point::HostMemory { lane, record } => {
                    search.entered(lane, Call { key: key(&record), span: Span::of(&record), what: What::Other });
                }
                Point::End { lane } => search.returned(lane),
                Point::Marker { .. } => {}
            }
        }
        search.over()
    }
}

/// What tells a record from all others of the archive: they are mapped for as long as it is open.
fn key(record: &Record<'_>) -> usize {
    record.bytes().as_ptr().addr()
}

/// Whether a call can make work of a stream or graph wait for a value.
pub(crate) fn waits_for_value(api: &Api) -> bool {
    api.name.starts_with("hipStreamWaitValue") || api.name.contains("BatchMemOp")
}

/// A stream, as far as two calls that overlap can tell it by its handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StreamName {
    handle: u64,
    /// The device of the legacy default stream; 0 for others.
    device: i32,
}

impl StreamName {
    /// `hipStreamLegacy`.
    const LEGACY: u64 = 1;
    /// `hipStreamPerThread`.
    const PER_THREAD: u64 = 2;

    fn of(api: &Api, record: &Record<'_>, device: i32) -> Option<Self> {
        let param = &api.params[api.stream_param()?];
        match record.word(usize::from(param.word)) {
            // No other thread can have it.
            Self::PER_THREAD => None,
            0 if api.name.ends_with("_spt") => None,
            0 | Self::LEGACY => Some(StreamName { handle: Self::LEGACY, device }),
            handle => Some(StreamName { handle, device: 0 }),
        }
    }
}

/// What a call does, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// Enqueues work, and did so.
    Enqueues(StreamName),
    /// Returned when all work of a stream was done.
    Looks(StreamName),
    /// Ends the life of something.
    Ends,
    Other,
}

impl What {
    fn of(api: &Api, record: &Record<'_>, device: i32) -> Self {
        let ends = |role: &Role| matches!(role, Role::Destroy(_) | Role::FreeDevice | Role::FreeHost | Role::FreeRange);
        if api.params.iter().any(|param| ends(&param.role)) {
            return What::Ends;
        }
        let stream = StreamName::of(api, record, device).filter(|_| record.ret() == 0);
        match (api.effect, stream) {
            (Effect::Enqueue, Some(stream)) => What::Enqueues(stream),
            (Effect::Query | Effect::BlockStream, Some(stream)) => What::Looks(stream),
            _ => What::Other,
        }
    }
}

/// A call as the search sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Call {
    key: usize,
    span: Span,
    what: What,
}

/// An enqueue that may be taken to have been entered later.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    key: usize,
    /// When it had returned.
    end: u64,
    /// When it would be entered.
    begin: u64,
    is_out: bool,
}

/// Goes along the timeline.
#[derive(Debug)]
struct Search {
    /// By captured thread: the call it is in, and whether something has ended since it was entered.
    open: Vec<Option<(Call, bool)>>,
    candidates: Vec<Candidate>,
    found: Delayed,
}

impl Search {
    fn new(lanes: usize) -> Self {
        Search { open: vec![None; lanes], candidates: Vec::new(), found: Delayed::default() }
    }

    fn entered(&mut self, lane: u32, call: Call) {
        let now = call.span.begin;
        self.settle(now);
        for candidate in &mut self.candidates {
            // What was entered behind the enqueue must stay behind it.
            candidate.is_out |= now >= candidate.end && now <= candidate.begin;
        }
        for (other, spoiled) in self.open.iter().flatten() {
            match (call.what, other.what) {
                (What::Enqueues(on), What::Looks(at)) if on == at => {
                    self.candidates.extend(Candidate::of(&call, other));
                }
                (What::Looks(at), What::Enqueues(on)) if on == at && !spoiled => {
                    self.candidates.extend(Candidate::of(other, &call));
                }
                _ => {}
            }
        }
        self.open[lane as usize] = Some((call, false));
    }

    fn returned(&mut self, lane: u32) {
        let Some((call, _)) = self.open[lane as usize].take() else { return };
        if call.what != What::Ends {
            return;
        }
        let now = call.span.end;
        self.settle(now);
        self.candidates.iter_mut().for_each(|candidate| candidate.is_out = true);
        self.open.iter_mut().flatten().for_each(|(_, spoiled)| *spoiled = true);
    }

    /// Takes what nothing speaks against by `now`.
    fn settle(&mut self, now: u64) {
        let found = &mut self.found.begins;
        self.candidates.retain(|candidate| {
            let is_over = candidate.begin < now;
            if is_over && !candidate.is_out {
                let begin = found.entry(candidate.key).or_default();
                *begin = candidate.begin.max(*begin);
            }
            !is_over
        });
    }

    fn over(mut self) -> Delayed {
        self.settle(u64::MAX);
        self.found
    }
}

impl Candidate {
    /// An enqueue and a look at its stream that overlapped it.
    fn of(enqueue: &Call, look: &Call) -> Option<Self> {
        // At the very tick of the look's return it would not come after that.
        let begin = look.span.end.checked_add(1)?;
        Some(Candidate { key: enqueue.key, end: enqueue.span.end, begin, is_out: false })
    }
}

#[cfg(test)]
#[path = "looks_tests.rs"]
mod tests;
