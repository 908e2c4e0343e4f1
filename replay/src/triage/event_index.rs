//! From an event number back to its record: copies of the timeline taken now and then, from which a few thousand events
//! are gone over again.

use std::sync::{Mutex, PoisonError};

use rustc_hash::FxHashMap;

use hrr_format::record::Record;

use crate::plan::timeline::{Point, Timeline};

/// Events between two copies, at least: a few milliseconds to go over again.
const INTERVAL_EVENTS: u64 = 8192;
/// Events between two copies for each captured thread, because a copy is as large as there are threads.
const INTERVAL_EVENTS_PER_THREAD: u64 = 16;

/// Finds records by event number, as far as planning has come.
#[derive(Debug)]
pub(crate) struct EventIndex<'a> {
    interval: u64,
    copies: Mutex<Vec<(u64, Timeline<'a>)>>,
    open_at_end: Mutex<OpenCalls<'a>>,
}

/// Calls by captured thread, and the last tick of the archive.
pub(crate) type OpenCalls<'a> = (Vec<(u32, Record<'a>)>, u64);

impl<'a> EventIndex<'a> {
    /// An index of an archive of so many captured threads.
    pub(crate) fn new(threads: usize) -> Self {
        let interval = INTERVAL_EVENTS.max(threads as u64 * INTERVAL_EVENTS_PER_THREAD);
        EventIndex { interval, copies: Mutex::default(), open_at_end: Mutex::default() }
    }

    /// The reader has come to `event`, the next one that `timeline` will yield.
    pub(crate) fn reached(&self, event: u64, timeline: &Timeline<'a>) {
        if !event.is_multiple_of(self.interval) {
            return;
        }
        let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        // Returns and markers come between two events: one copy is enough.
        if copies.last().is_none_or(|(last, _)| *last < event) {
            copies.push((event, timeline.clone()));
        }
    }

    /// Planning has come to the end of the archive, or of the range that is replayed.
    pub(crate) fn ended(&self, open: OpenCalls<'a>) {
        *self.open_at_end.lock().unwrap_or_else(PoisonError::into_inner) = open;
    }

    /// Calls that had not returned when the archive ended, once planning has come to its end, and its last tick.
    pub(crate) fn open_at_end(&self) -> OpenCalls<'a> {
        self.open_at_end.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The captured thread, by position in the archive, and the record of each of these events.
    pub(crate) fn find(&self, events: impl IntoIterator<Item = u64>) -> FxHashMap<u64, (u32, Record<'a>)> {
        let mut wanted: Vec<u64> = events.into_iter().collect();
        wanted.sort_unstable();
        wanted.dedup();
        let copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = FxHashMap::default();
        let mut rest = wanted.as_slice();
        while let Some(&first) = rest.first() {
            let after = copies.partition_point(|(begin, _)| *begin <= first);
            let Some((begin, timeline)) = after.checked_sub(1).and_then(|at| copies.get(at)) else {
                rest = &rest[1..];
                continue;
            };
            let (mut number, mut timeline) = (*begin, timeline.clone());
            let end = copies.get(after).map_or(u64::MAX, |(end, _)| *end);
            let (here, later) = rest.split_at(rest.partition_point(|&event| event < end));
            rest = later;
            let last = here.last().copied().unwrap_or(first);
            while number <= last {
                match timeline.next() {
                    Some(Point::Begin { lane, record, .. }) => {
                        if here.binary_search(&number).is_ok() {
                            found.insert(number, (lane, record));
                        }
                        number += 1;
                    }
                    Some(_) => {}
                    None => break,
                }
            }
        }
        found
    }
}
