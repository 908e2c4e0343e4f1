//! `--events`: every call in order of entry, a line or a JSON object each.

use std::io::{self, Write};

use hrr_format::archive::Archive;
use hrr_format::hip_error;
use hrr_format::manifest::Clock;
use hrr_format::ordered::{Ordered, merged};
use hrr_format::record::{Record, SectionTag, flag, marker};
use serde::{Serialize, Serializer};

use super::arguments::{arguments, call_text, kernel, printable, return_text};
use super::filter::Filter;

/// Nanoseconds of a tick since the start of the capture, as microseconds.
pub(super) fn microseconds(clock: &Clock, tick: u64) -> f64 {
    clock.ns_since_start(tick) as f64 / 1000.0
}

/// What a marker about host memory says.
fn host_memory_text(record: &Record<'_>) -> String {
    let (address, size_bytes) = (record.word(0), record.word(1));
    let who = if record.api() == marker::HOST_WROTE { "host wrote" } else { "host saw" };
    if record.api() == marker::HOST_WROTE && record.word(2) & marker::host_wrote::NOT_RECORDED != 0 {
        return format!("{who} in {address:#x} ({size_bytes} bytes), which was too large to be recorded");
    }
    let ranges = record.section_tagged(SectionTag::HostRanges);
    let count = ranges.as_ref().map_or(0, |ranges| ranges.host_ranges().len());
    let bytes: u64 = ranges.iter().flat_map(|ranges| ranges.host_ranges()).map(|(_, len)| len).sum();
    format!("{who} {bytes} bytes in {count} ranges of {address:#x} ({size_bytes} bytes)")
}

/// Writes a line for each call.
pub(super) fn write_list(archive: &Archive, filter: &Filter, out: &mut dyn Write) -> io::Result<()> {
    let clock = &archive.manifest().clock;
    writeln!(out)?;
    writeln!(out, "[HRR] Events (number, thread, entry and return in us since the start, call):")?;
    let mut number = 0u64;
    let mut listed = vec![true; archive.streams().len()];
    let mut any = false;
    for Ordered { stream, record, .. } in merged(archive.streams()) {
        let thread = archive.streams()[stream].header().thread;
        if filter.ends_before(number) {
            break;
        }
        if record.api() >= marker::FIRST {
            // What a listed call made visible is listed with it.
            if record.api() == marker::OBSERVED && listed[stream] {
                writeln!(out, "{:>8} {:>4} {:>14} {:>14}  observed blob {}", "", thread, "", "", record.word(0))?;
            } else if marker::is_timed(record.api()) {
                let at_us = microseconds(clock, record.begin());
                writeln!(out, "{:>8} {thread:>4} {at_us:>14.3} {:>14}  {}", "", "", host_memory_text(&record))?;
            }
            continue;
        }
        listed[stream] = filter.takes(number, thread, archive.api(record.api()).name);
        if !listed[stream] {
            number += 1;
            continue;
        }
        any = true;
        let begin_us = microseconds(clock, record.begin());
        let call = call_text(archive, &record);
        if record.in_flight() {
            writeln!(out, "{number:>8} {thread:>4} {begin_us:>14.3} {:>14}  {call} ... in flight", "-")?;
        } else {
            let end_us = microseconds(clock, record.end());
            let returned = return_text(archive, &record);
            let equals = if returned.is_empty() { "" } else { " = " };
            let cut = if record.flags() & flag::TRUNCATED != 0 { " (recorded without its memory)" } else { "" };
            let mark = mark_text(&record);
            writeln!(
                out,
                "{number:>8} {thread:>4} {begin_us:>14.3} {end_us:>14.3}  {call}{equals}{returned}{cut}{mark}"
            )?;
        }
        number += 1;
    }
    if number > 0 && !any {
        writeln!(out, "  none of them is of this thread, API and range")?;
    }
    Ok(())
}

/// What a conversion from another format did to a call.
fn mark(record: &Record<'_>) -> Option<&'static str> {
    let marks = [(flag::REFUSED, "refused by replay"), (flag::LEFT_OUT, "left out"), (flag::ADDED, "added")];
    marks.into_iter().find(|(bit, _)| record.flags() & bit != 0).map(|(_, what)| what)
}

/// The same, with the reason, behind the call.
fn mark_text(record: &Record<'_>) -> String {
    let note = printable(record.note().unwrap_or_default());
    mark(record).map_or_else(String::new, |what| format!(" ({what}: {note})"))
}

/// The calls of an archive as a JSON list that is made while it is written.
#[derive(Debug)]
pub(super) struct List<'a> {
    pub(super) archive: &'a Archive,
    pub(super) filter: &'a Filter,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Item<'a> {
    Call(Call<'a>),
    Observed { thread: u32, observed_blob: u64 },
}

#[derive(Serialize)]
struct Call<'a> {
    event: u64,
    thread: u32,
    begin_us: f64,
    end_us: Option<f64>,
    api: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    kernel: Option<&'a str>,
    arguments: Vec<JsonArgument>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ret: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ret_name: Option<&'static str>,
    ret_text: String,
    in_flight: bool,
    /// Added, left out or refused by a conversion from another format.
    #[serde(skip_serializing_if = "Option::is_none")]
    mark: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'a str>,
}

#[derive(Serialize)]
struct JsonArgument {
    name: &'static str,
    /// In hexadecimal, since many JSON readers take numbers for doubles.
    words: Vec<String>,
    text: String,
}

impl Serialize for List<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let archive = self.archive;
        let clock = &archive.manifest().clock;
        let mut next = 0u64;
        let mut listed = vec![true; archive.streams().len()];
        serializer.collect_seq(merged(archive.streams()).filter_map(|Ordered { stream, record, .. }| {
            let thread = archive.streams()[stream].header().thread;
            if record.api() == marker::OBSERVED && listed[stream] {
                return Some(Item::Observed { thread, observed_blob: record.word(0) });
            }
            if record.api() >= marker::FIRST {
                return None;
            }
            let number = next;
            next += 1;
            listed[stream] = self.filter.takes(number, thread, archive.api(record.api()).name);
            if !listed[stream] {
                return None;
            }
            let returned = !record.in_flight();
            let call = Call {
                event: number,
                thread,
                begin_us: microseconds(clock, record.begin()),
                end_us: returned.then(|| microseconds(clock, record.end())),
                api: archive.api(record.api()).name,
                kernel: kernel(archive, &record).map(|kernel| kernel.name.as_str()),
                arguments: arguments(archive, &record)
                    .into_iter()
                    .map(|argument| JsonArgument {
                        name: argument.name,
                        words: argument.words.iter().map(|word| format!("{word:#x}")).collect(),
                        text: argument.text,
                    })
                    .collect(),
                ret: returned.then(|| record.ret()),
                ret_name: returned.then(|| hip_error::name(record.ret())).flatten(),
                ret_text: if returned { return_text(archive, &record) } else { String::new() },
                in_flight: record.in_flight(),
                mark: mark(&record),
                note: record.note(),
            };
            Some(Item::Call(call))
        }))
    }
}
