//! What a call that waits is known to have waited for: the work that had been enqueued before it on its stream, and on the
//! streams whose work that had to wait for on the device, through events and the legacy default stream.

use rustc_hash::FxHashMap;

use super::calls::{Awaited, Call, Object, Rule, Stream};
use crate::report::order_log::Logged;

/// "Until this tick", and of calls that returned at that very tick, those of this captured thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Until(u64, u32);

/// By stream: what had been enqueued there until then.
type Cover = FxHashMap<Object, Until>;

fn join(cover: &mut Cover, other: &Cover) {
    for (&stream, &until) in other {
        let known = cover.entry(stream).or_insert(until);
        *known = (*known).max(until);
    }
}

/// Work that was enqueued.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    /// `None`: it was complete when its call returned.
    pub(super) stream: Option<Stream>,
    pub(super) end: u64,
    pub(super) lane: u32,
}

/// What a call sees of the device's order when it is entered.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    /// What it waits for, if it waits.
    awaited: Cover,
    /// What its own work comes behind, on its stream.
    behind: Cover,
    /// On each further stream.
    also_behind: Vec<(Stream, Cover)>,
}

/// The device's order at one moment, as the calls that have returned made it, and the waits of calls so far.
#[derive(Debug, Default)]
pub(super) struct DeviceOrder {
    /// What the next work on each stream comes behind.
    streams: FxHashMap<Object, (Stream, Cover)>,
    /// What each event's last record stands for.
    events: FxHashMap<Object, Cover>,
    /// By stream: waits that covered its work until some tick. Of two, the one that covers more also returned later in the
    /// replay; any other would add nothing.
    waits: FxHashMap<Object, Vec<(Until, Logged)>>,
}

impl DeviceOrder {
    fn own(&self, stream: Stream, until: Until) -> Cover {
        let mut cover = self.streams.get(&stream.object).map(|(_, cover)| cover.clone()).unwrap_or_default();
        cover.insert(stream.object, until);
        cover
    }

    /// What is enqueued until then on streams that this is true of.
    fn all(&self, until: Until, is_one: impl Fn(&Stream) -> bool) -> Cover {
        let mut all = Cover::default();
        for (stream, _) in self.streams.values().filter(|(stream, _)| is_one(stream)) {
            join(&mut all, &self.own(*stream, until));
        }
        all
    }

    /// What comes in front of work on a stream by the rules of the legacy default stream.
    fn by_rule(&self, stream: Stream, until: Until) -> Cover {
        self.all(until, |other| {
            other.device == stream.device
                && match stream.rule {
                    Rule::Legacy => other.rule != Rule::NonBlocking,
                    Rule::Blocking => other.rule == Rule::Legacy,
                    Rule::NonBlocking => false,
                }
        })
    }

    /// A call is entered.
    pub(super) fn view(&mut self, call: &Call) -> View {
        let until = Until(call.begin, call.lane);
        let mut view = View::default();
        if let Some(stream) = call.enqueues_on {
            self.streams.entry(stream.object).or_insert_with(|| (stream, Cover::default()));
            view.behind = self.by_rule(stream, until);
            if let Some(recorded) = call.stream_awaits.and_then(|event| self.events.get(&event)) {
                join(&mut view.behind, recorded);
            }
        }
        for &stream in &call.also_on {
            self.streams.entry(stream.object).or_insert_with(|| (stream, Cover::default()));
            view.also_behind.push((stream, self.by_rule(stream, until)));
        }
        view.awaited = match call.awaited {
            Awaited::Nothing | Awaited::Part(_) => Cover::default(),
            Awaited::Event(event) => self.events.get(&event).cloned().unwrap_or_default(),
            Awaited::Device(device) => self.all(until, |stream| stream.device == device),
            Awaited::Stream(stream) => {
                let mut cover = self.own(stream, until);
                // Work of its own, and a wait for the legacy default stream, come behind all that the rules say.
                if stream.rule == Rule::Legacy || call.enqueues_on.is_some() {
                    join(&mut cover, &self.by_rule(stream, until));
                }
                cover
            }
        };
        if call.records.is_some()
            && let Some(stream) = call.enqueues_on
        {
            view.awaited = self.own(stream, until);
            join(&mut view.awaited, &view.behind);
        }
        view
    }

    /// The call has returned.
    pub(super) fn returned(&mut self, call: &Call, view: View, logged: Option<Logged>) {
        if call.failed {
            return;
        }
        if let Some(stream) = call.enqueues_on {
            let (_, cover) = self.streams.entry(stream.object).or_insert_with(|| (stream, Cover::default()));
            join(cover, &view.behind);
        }
        for (stream, behind) in &view.also_behind {
            let (_, cover) = self.streams.entry(stream.object).or_insert_with(|| (*stream, Cover::default()));
            join(cover, behind);
        }
        if let Some(event) = call.records {
            self.events.insert(event, view.awaited);
            return;
        }
        let Some(logged) = logged else { return };
        for (stream, until) in view.awaited {
            let waits = self.waits.entry(stream).or_default();
            let at = waits.partition_point(|(known, _)| *known < until);
            if waits.get(at).is_some_and(|(_, other)| other.returned <= logged.returned) {
                continue;
            }
            let from = waits[..at].partition_point(|(_, other)| other.returned < logged.returned);
            let behind = at + usize::from(waits.get(at).is_some_and(|(known, _)| *known == until));
            waits.splice(from..behind, [(until, logged)]);
        }
    }

    /// Of the waits that covered the work, the one that returned first in the replay.
    pub(super) fn first_wait(&self, work: &Work) -> Option<Logged> {
        let waits = self.waits.get(&work.stream?.object)?;
        let at = waits
            .partition_point(|(Until(tick, lane), _)| *tick < work.end || (*tick == work.end && *lane != work.lane));
        waits.get(at).map(|(_, logged)| *logged)
    }
}
