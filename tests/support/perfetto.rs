//! A timeline in Perfetto's format, read by the wire format of protobuf and the field numbers of `perfetto_trace.proto` alone.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::timeline::{Arrow, Lane, Slice, Timeline};

/// A field of a message.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Field<'a> {
    fn number(&self) -> u64 {
        let Field::Number(number) = self else { panic!("a number") };
        *number
    }

    fn bytes(&self) -> &'a [u8] {
        let Field::Bytes(bytes) = self else { panic!("bytes") };
        bytes
    }

    fn text(&self) -> String {
        std::str::from_utf8(self.bytes()).expect("text is UTF-8").to_owned()
    }
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().expect("a number ends");
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return value;
        }
    }
    panic!("a number is longer than ten bytes");
}

/// The fields of a message with their numbers.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let field = match tag & 7 {
            0 => Field::Number(varint(&mut bytes)),
            1 => {
                let (word, rest) = bytes.split_first_chunk::<8>().expect("eight bytes");
                bytes = rest;
                Field::Number(u64::from_le_bytes(*word))
            }
            2 => {
                let len = varint(&mut bytes) as usize;
                let (head, rest) = bytes.split_at_checked(len).expect("as many bytes as it says");
                bytes = rest;
                Field::Bytes(head)
            }
            other => panic!("wire type {other}"),
        };
        found.push((tag >> 3, field));
    }
    found
}

fn one<'f, 'a>(fields: &'f [(u64, Field<'a>)], number: u64) -> Option<&'f Field<'a>> {
    let mut found = fields.iter().filter(|field| field.0 == number).map(|field| &field.1);
    let first = found.next();
    assert!(found.next().is_none(), "field {number} twice");
    first
}

/// A debug annotation.
fn annotation(bytes: &[u8]) -> (String, Value) {
    let fields = fields(bytes);
    let name = one(&fields, 10).expect("an annotation has a name").text();
    let value = match (one(&fields, 3), one(&fields, 4), one(&fields, 6)) {
        (Some(number), None, None) => Value::from(number.number()),
        (None, Some(number), None) => Value::from(number.number() as i64),
        (None, None, Some(text)) => Value::from(text.text()),
        _ => panic!("{name} has one value"),
    };
    (name, value)
}

/// Per track, by its number: the group that it is in, its place there, its name.
type Tracks = BTreeMap<u64, (Option<u64>, u64, String)>;

fn track(tracks: &mut Tracks, bytes: &[u8]) {
    let fields = fields(bytes);
    let uuid = one(&fields, 1).expect("a track has a number").number();
    let name = one(&fields, 2).expect("a track has a name").text();
    let parent = one(&fields, 5).map(Field::number);
    let rank = one(&fields, 12).map_or(0, Field::number);
    assert!(parent.is_none_or(|parent| tracks.contains_key(&parent)), "the group of {name} comes before it");
    assert!(tracks.insert(uuid, (parent, rank, name)).is_none(), "track {uuid} is described twice");
}

/// Reads a file's bytes. What is told about the whole is text.
///
/// # Panics
/// It is not such a timeline.
#[track_caller]
pub(crate) fn read(bytes: &[u8]) -> Timeline {
    let mut tracks = Tracks::new();
    let mut found = Timeline {
        slices: Vec::new(),
        arrows: Vec::new(),
        moments: Vec::new(),
        lanes: BTreeMap::new(),
        about: Value::Null,
    };
    let mut open: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    let mut flows: BTreeMap<u64, usize> = BTreeMap::new();
    let mut last_ns = 0;
    for (number, packet) in fields(bytes) {
        assert_eq!(number, 1, "a trace is packets");
        let packet = fields(packet.bytes());
        assert_eq!(one(&packet, 10).map(Field::number), Some(1), "packets are of one sequence");
        if let Some(described) = one(&packet, 60) {
            track(&mut tracks, described.bytes());
            continue;
        }
        let at_ns = one(&packet, 8).expect("an event has a time").number();
        assert!(last_ns <= at_ns, "events are in order of time");
        last_ns = at_ns;
        let event = fields(one(&packet, 11).expect("a packet is a track's or an event's").bytes());
        let uuid = one(&event, 11).expect("an event has a track").number();
        let (parent, thread, _) = &tracks[&uuid];
        let lane: Lane = (tracks[&parent.expect("lanes are in groups")].1, *thread);
        let kind = one(&event, 9).expect("an event has a type").number();
        if kind == 2 {
            let slice = open.entry(uuid).or_default().pop().expect("what ends has begun");
            found.slices[slice].end_ns = at_ns;
            continue;
        }
        let name = one(&event, 23).expect("an event has a name").text();
        let all = |number: u64| event.iter().filter(move |field| field.0 == number).map(|field| &field.1);
        let args: Map<String, Value> = all(4).map(|told| annotation(told.bytes())).collect();
        let category = all(22).map(Field::text).collect::<Vec<_>>().join(",");
        match kind {
            3 if category == "about" => found.about = Value::Object(args),
            3 => found.moments.push((lane, name)),
            1 => {
                let number = found.slices.len();
                open.entry(uuid).or_default().push(number);
                let args = if args.is_empty() { Value::Null } else { Value::Object(args) };
                found.slices.push(Slice { lane, name, category, begin_ns: at_ns, end_ns: u64::MAX, args });
                for flow in all(47) {
                    assert!(flows.insert(flow.number(), number).is_none(), "an arrow begins once");
                }
                for flow in all(48) {
                    let from = flows.remove(&flow.number()).expect("an arrow begins before it ends");
                    found.arrows.push(Arrow { category: String::new(), from, to: number });
                }
            }
            other => panic!("event type {other}"),
        }
    }
    assert!(open.values().all(Vec::is_empty), "what begins ends");
    assert!(flows.is_empty(), "arrows end");
    for (parent, thread, name) in tracks.values() {
        if let Some(parent) = parent
            && name != "about this timeline"
        {
            found.lanes.insert((tracks[parent].1, *thread), name.clone());
        }
    }
    found
}
