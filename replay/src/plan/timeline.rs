//! The archive's calls as points in time: each call's entry and return, merged over all captured threads.
//!
//! Uses are resolved at entry and creations take effect at return, so that a handle value which a runtime gave to a new
//! object while the old one's destroy call was still returning is understood as it was.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use hrr_format::record::{Record, marker};
use hrr_format::stream_file::{Records, StreamFile};

use super::order::looks::{Delayed, Span};
use crate::memory::prefetch;

/// One point of the merged timeline.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Point<'a> {
    /// A call is entered.
    Begin {
        /// Event number: its place in the order of entry among all calls of the archive, as `--info --events` counts them.
        event: u64,
        /// Captured thread, by position in the archive.
        lane: u32,
        /// The call.
        record: Record<'a>,
    },
    /// The call a captured thread was in has returned.
    End {
        /// Captured thread.
        lane: u32,
    },
    /// A marker about host memory, which has its place among the calls of all threads; a return follows.
    HostMemory {
        /// Captured thread.
        lane: u32,
        /// The marker record.
        record: Record<'a>,
    },
    /// A marker of a captured thread, between two of its calls.
    Marker {
        /// Captured thread.
        lane: u32,
        /// The marker record.
        record: Record<'a>,
    },
}

/// What a heap entry stands for, in the order points at the same tick are taken: an entry at the tick of a return does
/// not come after that return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Begin,
    /// The entry of a call that counts as entered later than it was.
    DelayedBegin,
    End,
}

type Entry = Reverse<(u64, Kind, u32)>;

/// Merges the streams of an archive. Calls still in flight at the end of the archive are left out and counted.
#[derive(Clone, Debug)]
pub(crate) struct Timeline<'a> {
    lanes: Vec<Records<'a>>,
    /// The next record of each lane, once looked at.
    next: Vec<Option<Record<'a>>>,
    heap: BinaryHeap<Entry>,
    /// The entry made last, which is not in the heap yet: it is often the next one, or takes the place of the next one there.
    held: Option<Entry>,
    in_flight: Vec<(u32, Record<'a>)>,
    last_tick: u64,
    delayed: Arc<Delayed>,
    /// Event numbers given so far.
    events: u64,
    /// By lane: the event number of a call that is delayed.
    put_off: Vec<u64>,
    /// Markers that follow the call a lane has just ended, waiting to be delivered.
    after_end: Option<u32>,
}

impl<'a> Timeline<'a> {
    /// The timeline of these streams, in which some calls count as entered later than they were.
    pub(crate) fn new(streams: &'a [StreamFile], delayed: Arc<Delayed>) -> Self {
        Self::over(streams.iter().map(StreamFile::records).collect(), delayed)
    }

    fn over(lanes: Vec<Records<'a>>, delayed: Arc<Delayed>) -> Self {
        let count = lanes.len();
        let mut timeline = Timeline {
            lanes,
            next: vec![None; count],
            heap: BinaryHeap::with_capacity(count + 1),
            held: None,
            in_flight: Vec::new(),
            last_tick: 0,
            delayed,
            events: 0,
            put_off: vec![0; count],
            after_end: None,
        };
        for lane in 0..count as u32 {
            timeline.look_ahead(lane);
            timeline.push_begin(lane);
        }
        timeline
    }

    /// Calls met so far that had not returned when the archive ended, with their captured threads.
    pub(crate) fn in_flight(&self) -> &[(u32, Record<'a>)] {
        &self.in_flight
    }

    /// When a call counts as entered and returned.
    pub(crate) fn span(&self, record: &Record<'_>) -> Span {
        self.delayed.span(record)
    }

    /// The next event number: calls with this and later ones are still to come.
    pub(crate) fn next_event(&self) -> u64 {
        self.events
    }

    /// The last tick met so far.
    pub(crate) fn last_tick(&self) -> u64 {
        self.last_tick
    }

    /// Entry tick of the next call of a captured thread, after the one it is in.
    pub(crate) fn next_begin(&self, lane: u32) -> Option<u64> {
        self.next[lane as usize].map(|record| self.span(&record).begin)
    }

    fn look_ahead(&mut self, lane: u32) {
        let next = self.lanes[lane as usize].next();
        if let Some(record) = &next {
            // The one after it comes up when the other lanes have had their turn.
            prefetch::lines(record.bytes().as_ptr_range().end, 1);
        }
        self.next[lane as usize] = next;
    }

    fn push_begin(&mut self, lane: u32) {
        if let Some(record) = self.next[lane as usize] {
            self.push(Reverse((record.begin(), Kind::Begin, lane)));
        }
    }

    fn push(&mut self, entry: Entry) {
        if let Some(held) = self.held.replace(entry) {
            self.heap.push(held);
        }
    }

    /// Takes out the earliest entry.
    fn pop(&mut self) -> Option<Entry> {
        let Some(held) = self.held.take() else { return self.heap.pop() };
        match self.heap.peek_mut() {
            // Greater in the heap is earlier.
            Some(mut top) if *top > held => Some(std::mem::replace(&mut *top, held)),
            _ => Some(held),
        }
    }
}

fn is_untimed_marker(record: &Record<'_>) -> bool {
    record.api() >= marker::FIRST && !marker::is_timed(record.api())
}

impl<'a> Iterator for Timeline<'a> {
    type Item = Point<'a>;

    fn next(&mut self) -> Option<Point<'a>> {
        loop {
            if let Some(lane) = self.after_end {
                match self.next[lane as usize] {
                    Some(record) if is_untimed_marker(&record) => {
                        self.look_ahead(lane);
                        return Some(Point::Marker { lane, record });
                    }
                    _ => {
                        self.after_end = None;
                        self.push_begin(lane);
                    }
                }
            }
            let Reverse((_, kind, lane)) = self.pop()?;
            match kind {
                Kind::End => {
                    self.after_end = Some(lane);
                    return Some(Point::End { lane });
                }
                Kind::Begin | Kind::DelayedBegin => {
                    let record = self.next[lane as usize]?;
                    if is_untimed_marker(&record) {
                        // A marker before the thread's first call.
                        self.look_ahead(lane);
                        self.after_end = Some(lane);
                        return Some(Point::Marker { lane, record });
                    }
                    let span = self.span(&record);
                    let is_call = !marker::is_timed(record.api());
                    let event = if kind == Kind::DelayedBegin { self.put_off[lane as usize] } else { self.events };
                    self.events += u64::from(is_call && kind == Kind::Begin);
                    if kind == Kind::Begin && span.begin != record.begin() {
                        self.put_off[lane as usize] = event;
                        self.push(Reverse((span.begin, Kind::DelayedBegin, lane)));
                        continue;
                    }
                    self.look_ahead(lane);
                    self.last_tick = self.last_tick.max(record.begin()).max(record.end());
                    if record.in_flight() {
                        self.in_flight.push((lane, record));
                        // Nothing follows a call that never returned in its own thread.
                        continue;
                    }
                    self.push(Reverse((span.end, Kind::End, lane)));
                    if !is_call {
                        return Some(Point::HostMemory { lane, record });
                    }
                    return Some(Point::Begin { event, lane, record });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use hrr_format::record_builder::RecordBuilder;

    use super::*;

    /// `(event, lane, begin)` of each call, as they come.
    fn calls(streams: &[Vec<u8>], delay: impl Fn(&Record<'_>) -> Option<u64>) -> Vec<(u64, u32, u64)> {
        let lanes = || streams.iter().map(|bytes| Records::over(bytes)).collect::<Vec<_>>();
        let records = lanes().into_iter().flatten();
        let delayed = Delayed::to(records.filter_map(|record| delay(&record).map(|begin| (record, begin))));
        let delayed = Arc::new(delayed);
        Timeline::over(lanes(), Arc::clone(&delayed))
            .filter_map(|point| match point {
                Point::Begin { event, lane, record } => Some((event, lane, delayed.span(&record).begin)),
                _ => None,
            })
            .collect()
    }

    fn stream(calls: &[(u64, u64)]) -> Vec<u8> {
        calls.iter().flat_map(|&(begin, end)| RecordBuilder::new(1, &[]).ticks(begin, end).build()).collect()
    }

    #[test]
    fn calls_that_never_returned_have_a_number_too() {
        let never = RecordBuilder::new(1, &[]).ticks(3, 0).in_flight().build();
        let streams = [stream(&[(1, 2), (5, 6), (7, 8)]), never];
        assert_eq!(calls(&streams, |_| None), [(0, 0, 1), (2, 0, 5), (3, 0, 7)]);
    }

    /// One that counts as entered later keeps its number, by which the archive's list of calls knows it.
    #[test]
    fn a_delayed_call_comes_later_with_the_number_of_its_entry() {
        let streams = [stream(&[(1, 9), (30, 31)]), stream(&[(2, 20)]), stream(&[(4, 5), (25, 26)])];
        let delay = |record: &Record<'_>| (record.begin() == 1).then_some(21);
        let expected = [(1, 1, 2), (2, 2, 4), (0, 0, 21), (3, 2, 25), (4, 0, 30)];
        assert_eq!(calls(&streams, delay), expected);
    }
}
