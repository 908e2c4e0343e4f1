//! The records of all threads as one sequence, in order of entry.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::record::{Record, marker};
use crate::stream_file::{Damage, Records, StreamFile};

/// A record and where it comes from.
#[derive(Clone, Copy, Debug)]
pub struct Ordered<'a> {
    /// Position of its stream among those that are merged.
    pub stream: usize,
    /// Offset in the stream file in bytes.
    pub offset_bytes: usize,
    /// The record: a call or a marker.
    pub record: Record<'a>,
}

/// Records of several streams, merged by entry tick.
///
/// The order within a stream is kept whatever its ticks say, and a marker comes straight after the call it follows.
/// Memory is bounded by the number of streams.
#[derive(Debug)]
pub struct Merged<'a> {
    streams: Vec<Records<'a>>,
    next: Vec<Option<Ordered<'a>>>,
    /// Entry tick, then stream, of the next record of each stream that has one.
    heap: BinaryHeap<Reverse<(u64, usize)>>,
}

/// Merges the records of these streams.
pub fn merged(streams: &[StreamFile]) -> Merged<'_> {
    Merged::over(streams.iter().map(StreamFile::records).collect())
}

impl<'a> Merged<'a> {
    /// Merges what these iterators have left.
    pub fn over(streams: Vec<Records<'a>>) -> Self {
        let count = streams.len();
        let mut merged =
            Merged { streams, next: (0..count).map(|_| None).collect(), heap: BinaryHeap::with_capacity(count) };
        for stream in 0..count {
            merged.fetch(stream, 0);
        }
        merged
    }

    /// Why the records of single streams ended early, by position of the stream; complete once iteration has ended.
    pub fn damage(&self) -> impl Iterator<Item = (usize, &Damage)> {
        self.streams.iter().enumerate().filter_map(|(stream, records)| Some((stream, records.damage()?)))
    }

    /// Fetches a stream's next record; it is not sorted before `floor_tick`, the tick of the one before it.
    fn fetch(&mut self, stream: usize, floor_tick: u64) {
        let records = &mut self.streams[stream];
        let Some(record) = records.next() else {
            return;
        };
        // The iterator has gone past pads, so only from where it is now does the record's place follow.
        let offset_bytes = records.offset() - record.len_bytes();
        let untimed = record.api() >= marker::FIRST && !marker::is_timed(record.api());
        let tick = if untimed { floor_tick } else { floor_tick.max(record.begin()) };
        self.next[stream] = Some(Ordered { stream, offset_bytes, record });
        self.heap.push(Reverse((tick, stream)));
    }
}

impl<'a> Iterator for Merged<'a> {
    type Item = Ordered<'a>;

    fn next(&mut self) -> Option<Ordered<'a>> {
        let Reverse((tick, stream)) = self.heap.pop()?;
        let ordered = self.next[stream].take();
        self.fetch(stream, tick);
        ordered
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record_builder::RecordBuilder;

    fn stream(records: &[(u16, u64)]) -> Vec<u8> {
        records.iter().flat_map(|&(api, begin)| RecordBuilder::new(api, &[]).ticks(begin, 0).build()).collect()
    }

    fn order(streams: &[Vec<u8>]) -> Vec<(usize, usize, u16)> {
        Merged::over(streams.iter().map(|bytes| Records::over(bytes)).collect())
            .map(|ordered| (ordered.stream, ordered.offset_bytes, ordered.record.api()))
            .collect()
    }

    #[test]
    fn records_come_by_entry_tick_and_markers_after_their_call() {
        let first = stream(&[(1, 10), (marker::OBSERVED, 0), (2, 40)]);
        let second = stream(&[(3, 10), (marker::PAD, 0), (4, 20), (5, 50)]);
        let expected = [(0, 0, 1), (0, 32, marker::OBSERVED), (1, 0, 3), (1, 64, 4), (0, 64, 2), (1, 96, 5)];
        assert_eq!(order(&[first, second]), expected);
    }

    #[test]
    fn the_order_of_a_stream_is_kept_where_its_ticks_go_back() {
        let first = stream(&[(1, 30), (2, 5), (3, 31)]);
        let second = stream(&[(4, 20), (5, 30)]);
        assert_eq!(order(&[first, second]).iter().map(|&(_, _, api)| api).collect::<Vec<_>>(), [4, 1, 2, 5, 3]);
    }

    #[test]
    fn damage_is_named_by_stream_and_ends_only_that_stream() {
        let mut broken = stream(&[(1, 1), (2, 3)]);
        broken[32] = 33;
        let whole = stream(&[(3, 2), (4, 4)]);
        let mut merged = Merged::over(vec![Records::over(&whole), Records::over(&broken)]);
        assert_eq!(merged.by_ref().map(|ordered| ordered.record.api()).collect::<Vec<_>>(), [1, 3, 4]);
        let damage: Vec<_> = merged.damage().map(|(stream, damage)| (stream, damage.offset_bytes)).collect();
        assert_eq!(damage, [(1, 32)]);
    }
}
