//! When the work on each stream of a recorded run can have run. An archive holds no times of the device's own; what is
//! known is the order in which work was enqueued, that it did not begin before its call was entered, and that it had ended
//! when a call returned that waited for it.

use rustc_hash::FxHashMap;

use hrr_format::archive::Archive;
use hrr_format::catalogue::{Api, Effect, HandleKind, Role};
use hrr_format::record::{Record, SectionTag};

use super::timeline::Lane;
use crate::info;
use crate::plan::annotate::{Captures, launches_kernel};
use crate::plan::lower::special::Special;
use crate::plan::lower::word_at;
use crate::plan::objects::STREAM_PER_THREAD;

/// A call, as far as streams are concerned.
#[derive(Clone, Copy)]
pub(crate) struct Called<'a> {
    pub(crate) event: u64,
    /// Captured thread.
    pub(crate) thread: u32,
    pub(crate) api: &'static Api,
    pub(crate) record: Record<'a>,
    /// Where it is drawn; `None` = it is not, and neither is its work.
    pub(crate) lane: Option<Lane>,
}

/// A piece of work.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    /// Its call's event number.
    pub(crate) event: u64,
    /// Where its call is drawn.
    pub(crate) lane: Lane,
    pub(crate) name: String,
    pub(crate) bytes: u64,
    /// Tick at which its call was entered.
    pub(crate) begin: u64,
    returned: u64,
    /// Tick by which it had ended, and the event number of the call that tells.
    pub(crate) complete: Option<(u64, u64)>,
    /// Number of its result.
    pub(crate) blob: Option<u64>,
}

/// A stream.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) device: i32,
    pub(crate) name: String,
    /// Its work, in the order it was enqueued.
    pub(crate) works: Vec<Work>,
}

/// What names a stream: device and handle, and the captured thread for the one that each has for itself.
type Key = (i32, u64, u32);

/// All streams met so far.
#[derive(Debug)]
pub(crate) struct Streams {
    all: Vec<Stream>,
    known: FxHashMap<Key, u32>,
    /// Device of each stream that was created.
    devices: FxHashMap<u64, i32>,
    /// Current device of each captured thread.
    current: Vec<i32>,
    /// Where each event was recorded last: its stream, and how much work that had.
    recorded: FxHashMap<u64, (u32, usize)>,
    events: FxHashMap<u64, u32>,
    captures: Captures,
}

impl Streams {
    /// None yet, of a run of this many captured threads.
    pub(crate) fn new(threads: usize) -> Self {
        Streams {
            all: Vec::new(),
            known: FxHashMap::default(),
            devices: FxHashMap::default(),
            current: vec![0; threads],
            recorded: FxHashMap::default(),
            events: FxHashMap::default(),
            captures: Captures::default(),
        }
    }

    /// The streams that have work, those whose first work came first before the others.
    pub(crate) fn with_work(self) -> Vec<Stream> {
        let mut all: Vec<Stream> = self.all.into_iter().filter(|stream| !stream.works.is_empty()).collect();
        all.sort_by_key(|stream| stream.works.first().map(|work| work.event));
        all
    }

    /// Takes in a call that has returned; calls come in order of entry.
    pub(crate) fn call(&mut self, archive: &Archive, call: &Called<'_>) {
        let Called { api, record, thread, .. } = *call;
        if record.ret() != 0 {
            return;
        }
        let special = Special::of(api);
        if special == Special::SetDevice {
            self.current[thread as usize] = record.word(0) as u32 as i32;
            return;
        }
        self.follow_handles(call);
        let Some(stream) = self.stream_of(call) else { return };
        let event = api.param_with(|role| matches!(role, Role::Use(HandleKind::Event)));
        let event = event.map(|param| record.word(usize::from(api.params[param].word)));
        let id = event.map(|event| {
            let next = self.events.len() as u32;
            *self.events.entry(event).or_insert(next)
        });
        let records = id.filter(|_| special == Special::EventRecord);
        let waits_for = id.filter(|_| special == Special::WaitEvent);
        let captured = self.captures.follow(special, stream, records, waits_for);
        if captured {
            return;
        }
        if let Some(event) = event.filter(|_| special == Special::EventRecord) {
            self.recorded.insert(event, (stream, self.all[stream as usize].works.len()));
        }
        if let (Some(lane), Some((name, bytes))) = (call.lane, work_of(archive, api, special, &record)) {
            self.all[stream as usize].works.push(Work {
                event: call.event,
                lane,
                name,
                bytes,
                begin: record.begin(),
                returned: record.end(),
                complete: None,
                blob: record.section_tagged(SectionTag::BlobOut).and_then(|section| section.blob()).map(|b| b.number),
            });
        }
        self.follow_waits(call, stream, event);
    }

    /// Keeps track of which device a stream was created on.
    fn follow_handles(&mut self, call: &Called<'_>) {
        let Called { api, record, thread, .. } = *call;
        for (number, param) in api.params.iter().enumerate() {
            match param.role {
                Role::Create(HandleKind::Stream) => {
                    let section = record.section(SectionTag::Out, number as u8);
                    let Some(handle) = section.map(|section| word_at(section.payload, 0)) else { continue };
                    self.devices.insert(handle, self.current[thread as usize]);
                    // A new stream may have the handle of one that is gone.
                    self.known.retain(|key, _| key.1 != handle);
                }
                Role::Destroy(HandleKind::Event) => {
                    self.recorded.remove(&record.word(usize::from(param.word)));
                }
                _ => {}
            }
        }
    }

    /// The stream that a call is on.
    fn stream_of(&mut self, call: &Called<'_>) -> Option<u32> {
        /// `hipStreamLegacy`.
        const LEGACY: u64 = 1;
        let Called { api, record, thread, .. } = *call;
        if api.effect == Effect::Host && api.stream_param().is_none() {
            return None;
        }
        let current = self.current[thread as usize];
        let word = api.stream_param().map_or(0, |param| record.word(usize::from(api.params[param].word)));
        let own = word == STREAM_PER_THREAD || (word == 0 && api.name.ends_with("_spt"));
        let key: Key = match word {
            _ if own => (current, STREAM_PER_THREAD, thread),
            0 | LEGACY => (current, 0, 0),
            handle => (self.devices.get(&handle).copied().unwrap_or(current), handle, 0),
        };
        let next = self.all.len() as u32;
        let found = *self.known.entry(key).or_insert(next);
        if found == next {
            let name = match key.1 {
                0 => "default".to_owned(),
                STREAM_PER_THREAD => format!("per-thread, of thread {thread}"),
                handle => format!("{handle:#x}"),
            };
            self.all.push(Stream { device: key.0, name, works: Vec::new() });
        }
        Some(found)
    }

    /// What a call that waits tells of the work that came before it.
    fn follow_waits(&mut self, call: &Called<'_>, stream: u32, event: Option<u64>) {
        let Called { api, record, thread, .. } = *call;
        let told = (record.end(), call.event);
        match api.effect {
            Effect::BlockDevice => {
                let device = self.current[thread as usize];
                for stream in self.all.iter_mut().filter(|stream| stream.device == device) {
                    stream.complete(usize::MAX, record.begin(), told);
                }
            }
            Effect::BlockEvent | Effect::Query if event.is_some() => {
                if let Some(&(stream, count)) = event.and_then(|event| self.recorded.get(&event)) {
                    self.all[stream as usize].complete(count, record.begin(), told);
                }
            }
            Effect::BlockStream | Effect::Query => {
                self.all[stream as usize].complete(usize::MAX, record.begin(), told);
            }
            // The copy itself is complete as well.
            Effect::BlockCopy => self.all[stream as usize].complete(usize::MAX, record.end(), told),
            _ => {}
        }
    }
}

impl Stream {
    /// The first `count` pieces of work whose calls had returned by tick `by` were complete, `told` says when and by whom.
    fn complete(&mut self, count: usize, by: u64, told: (u64, u64)) {
        let count = count.min(self.works.len());
        let Some(last) = self.works[..count].iter().rposition(|work| work.returned <= by) else { return };
        // A stream does its work in order, so whatever was enqueued before was complete too; what is already known to have
        // been complete earlier is behind us.
        for work in self.works[..=last].iter_mut().rev() {
            if work.complete.is_some_and(|(tick, _)| tick <= told.0) {
                break;
            }
            work.complete = Some(told);
        }
    }
}

/// Name and bytes of what a call has the device do.
pub(crate) fn work_of(
    archive: &Archive,
    api: &'static Api,
    special: Special,
    record: &Record<'_>,
) -> Option<(String, u64)> {
    if !matches!(api.effect, Effect::Enqueue | Effect::BlockCopy) {
        return None;
    }
    if launches_kernel(api) {
        return Some((
            info::kernel(archive, record).map_or_else(|| "(kernel)".to_owned(), |found| found.name.clone()),
            0,
        ));
    }
    if special == Special::GraphLaunch {
        return Some(("(graph)".to_owned(), 0));
    }
    let section = |tag| record.section_tagged(tag).and_then(|section| section.blob()).map(|blob| blob.size_bytes);
    let by_role = || info::bytes_of(api, record).unwrap_or(0);
    let (direction, bytes) = if api.name.contains("emset") {
        ("memset", by_role())
    } else if !api.name.contains("emcpy") {
        return None;
    } else if let Some(bytes) = section(SectionTag::BlobIn) {
        ("H2D", bytes)
    } else if let Some(bytes) = section(SectionTag::BlobOut) {
        ("D2H", bytes)
    } else {
        ("D2D", by_role())
    };
    Some((format!("{} {direction}", api.name), bytes))
}
