//! What was enqueued last on the streams that calls in flight were about: where to look for what hung.

use std::collections::{HashMap, VecDeque};

use hrr_format::archive::Archive;
use hrr_format::catalogue::Effect;
use hrr_format::record::{Record, marker};
use serde::Serialize;

use super::arguments::call_text;
use super::calls::microseconds;

/// Operations kept of each stream.
const KEPT: usize = 3;
/// Streams that are told of, those with the latest work.
const STREAMS: usize = 8;

/// The last operations of a stream.
#[derive(Debug, Serialize)]
pub(super) struct StreamWork {
    /// The stream's handle; `default` for the legacy default stream.
    pub(super) stream: String,
    /// Its last operations, in order.
    pub(super) operations: Vec<LastOperation>,
}

/// An operation that was enqueued.
#[derive(Debug, Serialize)]
pub(super) struct LastOperation {
    pub(super) thread: u32,
    /// Entry of the call, since the start of the capture.
    pub(super) at_us: f64,
    pub(super) call: String,
}

/// Entry tick, captured thread and record of operations, in order.
type Operations<'a> = VecDeque<(u64, u32, Record<'a>)>;

/// The last work of the streams that calls in flight were about: the stream a call names, else all.
pub(super) fn collect(archive: &Archive) -> Vec<StreamWork> {
    let mut last: HashMap<u64, Operations<'_>> = HashMap::new();
    let mut named = Some(Vec::new());
    for stream in archive.streams() {
        for record in stream.records().filter(|record| record.api() < marker::FIRST) {
            let Some(api) = archive.row_of(&record) else { continue };
            let param = api.stream_param().and_then(|param| api.params.get(param));
            let value = param.map_or(0, |param| record.word(usize::from(param.word)));
            if record.in_flight() && api.effect != Effect::Enqueue {
                match (&mut named, value) {
                    (Some(streams), value) if value != 0 => streams.push(value),
                    (named, _) => *named = None,
                }
            } else if matches!(api.effect, Effect::Enqueue | Effect::BlockCopy)
                && (record.in_flight() || record.ret() == 0)
            {
                let operations = last.entry(value).or_default();
                let at = operations.partition_point(|&(begin, ..)| begin <= record.begin());
                operations.insert(at, (record.begin(), stream.header().thread, record));
                if operations.len() > KEPT {
                    operations.pop_front();
                }
            }
        }
    }
    // Nothing is in flight: a flight recorder was read, and all streams matter.
    let named = named.filter(|streams| !streams.is_empty());
    let mut streams: Vec<(u64, Operations<'_>)> =
        last.into_iter().filter(|(stream, _)| named.as_ref().is_none_or(|named| named.contains(stream))).collect();
    streams.sort_by_key(|(_, operations)| std::cmp::Reverse(operations.back().map(|&(begin, ..)| begin)));
    streams.truncate(STREAMS);
    let clock = &archive.manifest().clock;
    streams
        .into_iter()
        .map(|(stream, operations)| StreamWork {
            stream: if stream <= 1 { "default".to_owned() } else { format!("{stream:#x}") },
            operations: operations
                .into_iter()
                .map(|(begin, thread, record)| LastOperation {
                    thread,
                    at_us: microseconds(clock, begin),
                    call: call_text(archive, &record),
                })
                .collect(),
        })
        .collect()
}
