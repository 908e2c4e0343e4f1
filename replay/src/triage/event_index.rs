//! From an event number back to its record: copies of the timeline taken now and then, from which a few thousand events
//! are gone over again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustc_hash::FxHashMap;

use hrr_format::record::Record;

use crate::plan::timeline::{Point, Timeline};

/// Events between two copies, at least: a few milliseconds to go over again.
const INTERVAL_EVENTS: u64 = 8192;
/// Events between two copies for each captured thread, because a copy is as large as there are threads.
const INTERVAL_EVENTS_PER_THREAD: u64 = 16;

/// Calls that are entered while one is in HIP, behind which that one may count as entered: more than there are.
const MOST_DELAYED: u64 = 1 << 16;

/// Finds records by event number, as far as planning has come.
#[derive(Debug)]
pub(crate) struct EventIndex<'a> {
    interval: u64,
    /// From which event on the next copy is taken.
    next_copy: AtomicU64,
    copies: Mutex<Vec<(u64, Timeline<'a>)>>,
    open_at_end: Mutex<OpenCalls<'a>>,
}

/// Calls by captured thread, and the last tick of the archive.
pub(crate) type OpenCalls<'a> = (Vec<(u32, Record<'a>)>, u64);

impl<'a> EventIndex<'a> {
    /// An index of an archive of so many captured threads.
    pub(crate) fn new(threads: usize) -> Self {
        let interval = INTERVAL_EVENTS.max(threads as u64 * INTERVAL_EVENTS_PER_THREAD);
        EventIndex { interval, next_copy: AtomicU64::new(0), copies: Mutex::default(), open_at_end: Mutex::default() }
    }

    /// The reader has come to what `timeline` will yield next.
    pub(crate) fn reached(&self, timeline: &Timeline<'a>) {
        let event = timeline.next_event();
        // Relaxed: only the reader's thread looks, and others wait for the lock below.
        if event < self.next_copy.load(Ordering::Relaxed) {
            return;
        }
        self.next_copy.store(event + self.interval, Ordering::Relaxed);
        self.copies.lock().unwrap_or_else(PoisonError::into_inner).push((event, timeline.clone()));
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
            let Some((_, timeline)) = after.checked_sub(1).and_then(|at| copies.get(at)) else {
                rest = &rest[1..];
                continue;
            };
            let mut timeline = timeline.clone();
            let end = copies.get(after).map_or(u64::MAX, |(end, _)| *end);
            let (here, later) = rest.split_at(rest.partition_point(|&event| event < end));
            rest = later;
            // A call that counts as entered later than it was comes behind others with greater numbers.
            let (mut missing, last) = (here.len(), here.last().copied().unwrap_or(first) + MOST_DELAYED);
            while missing > 0 && timeline.next_event() <= last {
                match timeline.next() {
                    Some(Point::Begin { event, lane, record, .. }) => {
                        if here.binary_search(&event).is_ok() {
                            found.insert(event, (lane, record));
                            missing -= 1;
                        }
                    }
                    Some(_) => {}
                    None => break,
                }
            }
        }
        found
    }
}
