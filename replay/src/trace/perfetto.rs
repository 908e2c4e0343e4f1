//! Perfetto's own trace format: a protobuf message `Trace` of packets, each a description of a track or an event of one.
//!
//! Begins and ends of slices are packets of their own, which a reader pairs by their order, so slices are kept until all are
//! known and written by time. Field numbers are those of `perfetto_trace.proto`; only the wire types varint, 64-bit and
//! length-delimited occur. Numbers and texts that are told with a slice are debug annotations.

use std::cmp::Reverse;
use std::io::{self, Write};
use std::ops::Range;

use serde::Serialize;

use super::timeline::{Lane, Place, Slice, Value};

/// `Trace`, and `TracePacket` in it.
mod packet {
    pub(super) const OF_TRACE: u32 = 1;
    pub(super) const TIMESTAMP: u32 = 8;
    pub(super) const SEQUENCE: u32 = 10;
    pub(super) const TRACK_EVENT: u32 = 11;
    pub(super) const TRACK_DESCRIPTOR: u32 = 60;
}

/// `TrackDescriptor`.
mod track {
    pub(super) const UUID: u32 = 1;
    pub(super) const NAME: u32 = 2;
    pub(super) const PARENT: u32 = 5;
    pub(super) const CHILD_ORDERING: u32 = 11;
    pub(super) const RANK: u32 = 12;
    /// Children by ascending rank.
    pub(super) const EXPLICIT: u64 = 3;
}

/// `TrackEvent`.
mod event {
    pub(super) const ANNOTATION: u32 = 4;
    pub(super) const TYPE: u32 = 9;
    pub(super) const TRACK: u32 = 11;
    pub(super) const CATEGORY: u32 = 22;
    pub(super) const NAME: u32 = 23;
    pub(super) const FLOW: u32 = 47;
    pub(super) const LAST_OF_FLOW: u32 = 48;
    /// Values of [`TYPE`].
    pub(super) const BEGIN: u64 = 1;
    pub(super) const END: u64 = 2;
    pub(super) const MOMENT: u64 = 3;
}

/// `DebugAnnotation`.
mod annotation {
    pub(super) const UNSIGNED: u32 = 3;
    pub(super) const SIGNED: u32 = 4;
    pub(super) const TEXT: u32 = 6;
    pub(super) const NAME: u32 = 10;
}

/// All packets are of one sequence; zero is none.
const SEQUENCE: u64 = 1;
/// The group whose only event tells about the whole: no other has this number.
const ABOUT: Lane = Lane { process: u32::MAX, thread: 0 };

/// A message under construction.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    /// A packet of the one sequence.
    fn packet() -> Self {
        let mut packet = Message::default();
        packet.unsigned(packet::SEQUENCE, SEQUENCE);
        packet
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn unsigned(&mut self, field: u32, value: u64) {
        self.varint(u64::from(field) << 3);
        self.varint(value);
    }

    fn fixed(&mut self, field: u32, value: u64) {
        self.varint(u64::from(field) << 3 | 1);
        self.0.extend(value.to_le_bytes());
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn annotation(&mut self, name: &str, value: Value<'_>) {
        let mut told = Message::default();
        told.bytes(annotation::NAME, name.as_bytes());
        match value {
            Value::Number(number) => told.unsigned(annotation::UNSIGNED, number),
            // An int64 of protobuf is its two's complement.
            Value::Code(code) => told.unsigned(annotation::SIGNED, i64::from(code) as u64),
            Value::Text(text) => told.bytes(annotation::TEXT, text.as_bytes()),
        }
        self.bytes(event::ANNOTATION, &told.0);
    }
}

/// The track of a lane, and that of its group.
fn uuid(lane: Lane) -> u64 {
    group_uuid(lane.process) + 1 + u64::from(lane.thread)
}

fn group_uuid(process: u32) -> u64 {
    // No lane of one group is one of the next; no track is 0, which stands for all of them.
    (u64::from(process) + 1) << 33
}

/// What is told of a slice, or of a moment, but for its times and arrows: a range of [`Perfetto::told`].
type Told = Range<usize>;

struct Kept {
    lane: Lane,
    begin_ns: u64,
    end_ns: u64,
    told: Told,
    /// The slice that it lies in.
    outer: Option<usize>,
}

/// Writes a timeline in Perfetto's format.
pub(crate) struct Perfetto<'w> {
    out: &'w mut dyn Write,
    told: Message,
    slices: Vec<Kept>,
    moments: Vec<(Place, Told)>,
    arrows: Vec<(Place, Place)>,
}

impl<'w> Perfetto<'w> {
    /// Begins a timeline.
    pub(crate) fn begin(out: &'w mut dyn Write) -> Self {
        Perfetto { out, told: Message::default(), slices: Vec::new(), moments: Vec::new(), arrows: Vec::new() }
    }

    /// Names a group of lanes.
    pub(crate) fn name_process(&mut self, process: u32, name: &str) -> io::Result<()> {
        self.describe(group_uuid(process), None, process, name)
    }

    /// Names a lane.
    pub(crate) fn name_lane(&mut self, lane: Lane, name: &str) -> io::Result<()> {
        self.describe(uuid(lane), Some(group_uuid(lane.process)), lane.thread, name)
    }

    fn describe(&mut self, uuid: u64, group: Option<u64>, rank: u32, name: &str) -> io::Result<()> {
        let mut track = Message::default();
        track.unsigned(track::UUID, uuid);
        track.bytes(track::NAME, name.as_bytes());
        match group {
            Some(group) => track.unsigned(track::PARENT, group),
            None => track.unsigned(track::CHILD_ORDERING, track::EXPLICIT),
        }
        track.unsigned(track::RANK, u64::from(rank.min(i32::MAX as u32)));
        let mut packet = Message::packet();
        packet.bytes(packet::TRACK_DESCRIPTOR, &track.0);
        self.packet(&packet)
    }

    /// A slice.
    pub(crate) fn slice(&mut self, slice: &Slice<'_>) {
        let told = self.tell(slice.lane, (slice.name, slice.category), slice.values);
        let end_ns = slice.end_ns.max(slice.begin_ns);
        self.slices.push(Kept { lane: slice.lane, begin_ns: slice.begin_ns, end_ns, told, outer: None });
    }

    /// Something that happens at a moment.
    pub(crate) fn moment(&mut self, place: Place, named: (&str, &str), values: &[(&str, Value<'_>)]) -> io::Result<()> {
        let told = self.tell(place.lane, named, values);
        self.moments.push((place, told));
        Ok(())
    }

    /// An arrow from a slice to another.
    pub(crate) fn arrow(&mut self, from: Place, to: Place) {
        self.arrows.push((from, Place { at_ns: to.at_ns.max(from.at_ns), ..to }));
    }

    fn tell(&mut self, lane: Lane, (name, category): (&str, &str), values: &[(&str, Value<'_>)]) -> Told {
        let begin = self.told.0.len();
        self.told.unsigned(event::TRACK, uuid(lane));
        self.told.bytes(event::NAME, name.as_bytes());
        for category in category.split(',') {
            self.told.bytes(event::CATEGORY, category.as_bytes());
        }
        for &(name, value) in values {
            self.told.annotation(name, value);
        }
        begin..self.told.0.len()
    }

    /// Writes all that was drawn, and what is to be known about it.
    pub(crate) fn end(mut self, about: &impl Serialize) -> io::Result<()> {
        self.about(about)?;
        self.nest();
        let flows = self.flows();
        let mut events = self.moments_and_slices(&flows);
        // Stable: events of a lane at one time keep their order.
        events.sort_by_key(|&(at_ns, _)| at_ns);
        for (at_ns, event) in events {
            let mut packet = Message::packet();
            packet.unsigned(packet::TIMESTAMP, at_ns);
            packet.bytes(packet::TRACK_EVENT, &event);
            self.packet(&packet)?;
        }
        Ok(())
    }

    /// A moment at the very begin, in a group of its own, tells what is to be known about the whole.
    fn about(&mut self, about: &impl Serialize) -> io::Result<()> {
        self.name_process(ABOUT.process, "about this timeline")?;
        self.name_lane(ABOUT, "about this timeline")?;
        let about = serde_json::to_value(about)?;
        let texts: Vec<(&str, String)> = about
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.as_str(), value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
            .collect();
        let values: Vec<(&str, Value<'_>)> = texts.iter().map(|(key, text)| (*key, Value::Text(text))).collect();
        self.moment(Place { lane: ABOUT, at_ns: 0 }, ("about this timeline", "about"), &values)
    }

    /// Sorts the slices so that each follows those that it lies in, and finds these.
    fn nest(&mut self) {
        self.slices.sort_by_key(|slice| (slice.lane, slice.begin_ns, Reverse(slice.end_ns)));
        let mut open: Vec<usize> = Vec::new();
        for number in 0..self.slices.len() {
            let (lane, begin_ns) = (self.slices[number].lane, self.slices[number].begin_ns);
            let is_over = |outer: &Kept| outer.lane != lane || outer.end_ns <= begin_ns;
            while open.last().is_some_and(|&outer| is_over(&self.slices[outer])) {
                open.pop();
            }
            let outer = open.last().copied();
            if let Some(outer) = outer {
                // The format knows no slices that reach out of others.
                self.slices[number].end_ns = self.slices[number].end_ns.min(self.slices[outer].end_ns);
            }
            self.slices[number].outer = outer;
            open.push(number);
        }
    }

    /// The innermost slice at a place.
    fn at(&self, place: Place) -> Option<usize> {
        let behind = self.slices.partition_point(|slice| (slice.lane, slice.begin_ns) <= (place.lane, place.at_ns));
        let mut found = behind.checked_sub(1).filter(|&number| self.slices[number].lane == place.lane);
        while let Some(number) = found
            && self.slices[number].end_ns < place.at_ns
        {
            found = self.slices[number].outer;
        }
        found
    }

    /// Per slice, the fields of the arrows that leave it and arrive at it; by slice.
    fn flows(&self) -> Vec<(usize, u32, u64)> {
        let mut flows = Vec::new();
        for ((from, to), id) in self.arrows.iter().zip(1..) {
            if let (Some(mut from), Some(to)) = (self.at(*from), self.at(*to)) {
                // Viewers know no arrow to what began earlier. It leaves what the slice lies in; where the device's clock
                // and the host's have work begin before its call, it leads the other way round.
                while self.slices[from].begin_ns > self.slices[to].begin_ns
                    && let Some(outer) = self.slices[from].outer
                {
                    from = outer;
                }
                let [first, last] = match (self.slices[from].begin_ns, from) <= (self.slices[to].begin_ns, to) {
                    true => [from, to],
                    false => [to, from],
                };
                flows.push((first, event::FLOW, id));
                flows.push((last, event::LAST_OF_FLOW, id));
            }
        }
        flows.sort_unstable();
        flows
    }

    /// The events by lane, each with its time; those of a lane in their order.
    fn moments_and_slices(&self, flows: &[(usize, u32, u64)]) -> Vec<(u64, Vec<u8>)> {
        let mut events = Vec::with_capacity(self.slices.len() * 2 + self.moments.len());
        let close = |events: &mut Vec<(u64, Vec<u8>)>, slice: &Kept| {
            let mut end = Message::default();
            end.unsigned(event::TYPE, event::END);
            end.unsigned(event::TRACK, uuid(slice.lane));
            events.push((slice.end_ns, end.0));
        };
        let mut open: Vec<usize> = Vec::new();
        let mut flows = flows.iter().copied().peekable();
        for (number, slice) in self.slices.iter().enumerate() {
            while open.last().is_some_and(|&last| Some(last) != slice.outer) {
                close(&mut events, &self.slices[open.pop().unwrap_or_default()]);
            }
            open.push(number);
            let mut begin = Message::default();
            begin.unsigned(event::TYPE, event::BEGIN);
            begin.0.extend(&self.told.0[slice.told.clone()]);
            while let Some((_, field, id)) = flows.next_if(|&(of, ..)| of == number) {
                begin.fixed(field, id);
            }
            events.push((slice.begin_ns, begin.0));
        }
        while let Some(last) = open.pop() {
            close(&mut events, &self.slices[last]);
        }
        for (place, told) in &self.moments {
            let mut moment = Message::default();
            moment.unsigned(event::TYPE, event::MOMENT);
            moment.0.extend(&self.told.0[told.clone()]);
            events.push((place.at_ns, moment.0));
        }
        events
    }

    fn packet(&mut self, packet: &Message) -> io::Result<()> {
        let mut framed = Message::default();
        framed.bytes(packet::OF_TRACE, &packet.0);
        self.out.write_all(&framed.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_the_bytes_that_the_format_s_own_encoder_makes() {
        let mut out = Vec::new();
        Perfetto::begin(&mut out).name_process(1, "host").unwrap();
        let hex: String = out.iter().map(|byte| format!("{byte:02x}")).collect();
        // Of protobuf's Python library, for perfetto_trace.proto: a Trace of a TracePacket with
        // trusted_packet_sequence_id 1 and a TrackDescriptor of uuid 2 << 33, name host, child_ordering EXPLICIT,
        // sibling_order_rank 1.
        assert_eq!(hex, "0a155001e203100880808080401204686f737458036001");
    }

    #[test]
    fn numbers_take_seven_bits_a_byte_and_codes_their_two_s_complement() {
        let mut message = Message::default();
        message.unsigned(8, 300);
        message.annotation("returned", Value::Code(-1));
        assert_eq!(message.0[..3], [0x40, 0xac, 0x02]);
        assert_eq!(message.0[message.0.len() - 11..], [0x20, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1]);
    }

    #[test]
    fn a_slice_ends_before_the_next_begins_and_after_what_lies_in_it() {
        let lane = Lane { process: 1, thread: 0 };
        let mut out = Vec::new();
        let mut perfetto = Perfetto::begin(&mut out);
        // Drawn in another order than that of time: outer, its neighbour, then what lies in the outer one until its end.
        for (begin_ns, end_ns) in [(0, 10), (10, 10), (10, 12), (4, 10)] {
            let slice = Slice { lane, name: "s", category: "c", begin_ns, end_ns, colour: None, values: &[] };
            perfetto.slice(&slice);
        }
        perfetto.nest();
        let mut events = perfetto.moments_and_slices(&[]);
        events.sort_by_key(|&(at_ns, _)| at_ns);
        let found: Vec<(u64, u8)> = events.iter().map(|(at_ns, bytes)| (*at_ns, bytes[1])).collect();
        assert_eq!(found, [(0, 1), (4, 1), (10, 2), (10, 2), (10, 1), (10, 1), (10, 2), (12, 2)]);
        assert_eq!(perfetto.at(Place { lane, at_ns: 7 }), Some(1));
        assert_eq!(perfetto.at(Place { lane, at_ns: 13 }), None);
    }
}
