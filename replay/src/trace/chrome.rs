//! Chrome's trace event format, in its form of a JSON object: slices, arrows between them, and moments.
//!
//! Times are written in microseconds with three digits behind the point, so that no nanosecond is lost. An event follows
//! those that it lies in or refers to: viewers sort by time and keep the order of events at one time.

use std::fmt::Display;
use std::io::{self, Write};

use serde::Serialize;

use super::timeline::{Colour, Lane, Place, Slice, Value};

/// Writes events to an output.
pub(crate) struct Chrome<'w> {
    out: &'w mut dyn Write,
    events: u64,
    arrows: u64,
}

impl<'w> Chrome<'w> {
    /// Begins a timeline.
    pub(crate) fn begin(out: &'w mut dyn Write) -> io::Result<Self> {
        out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        Ok(Chrome { out, events: 0, arrows: 0 })
    }

    /// Ends it, with what is to be known about it.
    pub(crate) fn end(self, about: &impl Serialize) -> io::Result<()> {
        self.out.write_all(b"\n],\"otherData\":")?;
        serde_json::to_writer(&mut *self.out, about)?;
        self.out.write_all(b"}\n")
    }

    /// Names a group of lanes; groups are shown by ascending number.
    pub(crate) fn name_process(&mut self, process: u32, name: &str) -> io::Result<()> {
        let lane = Lane { process, thread: 0 };
        self.describe(lane, "process_name", "name", name)?;
        self.describe(lane, "process_sort_index", "sort_index", process)
    }

    /// Names a lane; lanes of a group are shown by ascending number.
    pub(crate) fn name_lane(&mut self, lane: Lane, name: &str) -> io::Result<()> {
        self.describe(lane, "thread_name", "name", name)?;
        self.describe(lane, "thread_sort_index", "sort_index", lane.thread)
    }

    fn describe(&mut self, lane: Lane, what: &str, key: &str, value: impl Serialize) -> io::Result<()> {
        self.open('M', lane)?;
        write!(self.out, ",\"name\":\"{what}\",\"args\":{{\"{key}\":")?;
        serde_json::to_writer(&mut *self.out, &value)?;
        self.out.write_all(b"}}")
    }

    /// A slice. Those of one lane lie beside or in each other.
    pub(crate) fn slice(&mut self, slice: &Slice<'_>) -> io::Result<()> {
        self.open('X', slice.lane)?;
        self.name(slice.name, slice.category)?;
        let length_ns = slice.end_ns.saturating_sub(slice.begin_ns);
        write!(self.out, ",\"ts\":{},\"dur\":{}", Microseconds(slice.begin_ns), Microseconds(length_ns))?;
        self.close(slice.colour, slice.values)
    }

    /// Something that happens at a moment.
    pub(crate) fn moment(
        &mut self,
        place: Place,
        (name, category): (&str, &str),
        colour: Colour,
        values: &[(&str, Value<'_>)],
    ) -> io::Result<()> {
        self.open('i', place.lane)?;
        self.name(name, category)?;
        write!(self.out, ",\"s\":\"t\",\"ts\":{}", Microseconds(place.at_ns))?;
        self.close(Some(colour), values)
    }

    /// An arrow from a slice to another. The places lie in the slices, whose events have been written.
    pub(crate) fn arrow(&mut self, category: &str, from: Place, to: Place) -> io::Result<()> {
        self.arrows += 1;
        let id = self.arrows;
        self.open('s', from.lane)?;
        self.name(category, category)?;
        write!(self.out, ",\"id\":{id},\"ts\":{}}}", Microseconds(from.at_ns))?;
        self.open('f', to.lane)?;
        self.name(category, category)?;
        // Bound to the slice it lies in, not to the next one.
        write!(self.out, ",\"bp\":\"e\",\"id\":{id},\"ts\":{}}}", Microseconds(to.at_ns.max(from.at_ns)))
    }

    fn open(&mut self, phase: char, lane: Lane) -> io::Result<()> {
        let separator = if self.events == 0 { "\n" } else { ",\n" };
        self.events += 1;
        write!(self.out, "{separator}{{\"ph\":\"{phase}\",\"pid\":{},\"tid\":{}", lane.process, lane.thread)
    }

    fn name(&mut self, name: &str, category: &str) -> io::Result<()> {
        self.out.write_all(b",\"name\":")?;
        serde_json::to_writer(&mut *self.out, name)?;
        write!(self.out, ",\"cat\":\"{category}\"")
    }

    fn close(&mut self, colour: Option<Colour>, values: &[(&str, Value<'_>)]) -> io::Result<()> {
        if let Some(colour) = colour {
            write!(self.out, ",\"cname\":\"{}\"", colour.name())?;
        }
        if !values.is_empty() {
            self.out.write_all(b",\"args\":{")?;
            for (position, (key, value)) in values.iter().enumerate() {
                write!(self.out, "{}\"{key}\":", if position == 0 { "" } else { "," })?;
                serde_json::to_writer(&mut *self.out, value)?;
            }
            self.out.write_all(b"}")?;
        }
        self.out.write_all(b"}")
    }
}

/// Nanoseconds as microseconds.
struct Microseconds(u64);

impl Display for Microseconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_written_is_json_of_the_format() {
        let mut out = Vec::new();
        let (host, device) = (Lane { process: 1, thread: 2 }, Lane { process: 10, thread: 1 });
        let mut chrome = Chrome::begin(&mut out).unwrap();
        chrome.name_process(1, "host").unwrap();
        let values = [("event", Value::Number(7)), ("returned", Value::Code(-1)), ("kernel", Value::Text("a\"b"))];
        let slice = Slice {
            lane: host,
            name: "hip\n",
            category: category(),
            begin_ns: 1_002_003,
            end_ns: 1_002_010,
            colour: Some(Colour::Edge),
            values: &values,
        };
        chrome.slice(&slice).unwrap();
        let from = Place { lane: host, at_ns: 1_002_003 };
        chrome.arrow("launch", from, Place { lane: device, at_ns: 5 }).unwrap();
        chrome.moment(from, ("D2H exact", "d2h"), Colour::Good, &[]).unwrap();
        chrome.end(&json!({"schema_version": 1})).unwrap();
        let found: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let events = found["traceEvents"].as_array().unwrap();
        assert_eq!(events[0], json!({"ph": "M", "pid": 1, "tid": 0, "name": "process_name", "args": {"name": "host"}}));
        assert_eq!(
            events[2],
            json!({"ph": "X", "pid": 1, "tid": 2, "name": "hip\n", "cat": "call", "ts": 1002.003, "dur": 0.007,
                "cname": "thread_state_iowait", "args": {"event": 7, "returned": -1, "kernel": "a\"b"}})
        );
        // An arrow does not go back in time.
        assert_eq!(
            (&events[3]["ph"], &events[4]["ph"], &events[4]["ts"]),
            (&json!("s"), &json!("f"), &json!(1002.003))
        );
        assert_eq!(events[3]["id"], events[4]["id"]);
        assert_eq!(found["otherData"]["schema_version"], 1);
    }

    fn category() -> &'static str {
        super::super::category::CALL
    }
}
