//! When each call of a replay was issued and had returned, so that its order can be checked afterwards.
//!
//! The file has JSON lines. The first: `{"format":"hrr-order-log","version":1,"order":MODE,"threads":N,"calls":N}`. Each
//! other one is a call: `[event, thread, count, worker, runner, issued, returned]`, where `thread` is the captured thread's
//! position in the archive, `count` counts its calls from 1 on, a runner is an OS thread of the replay, and the last two
//! are ticks of one clock. Of two calls, one had returned before the other was issued if its `returned` is not greater
//! than the other's `issued`.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::plan::order::OrderMode;

/// What the first line says the file is.
const FORMAT: &str = "hrr-order-log";
/// Version of the lines.
const VERSION: u32 = 1;
/// Longest line that is read, in bytes; those written are far shorter.
const MAX_LINE_BYTES: u64 = 4096;

/// A call of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logged {
    /// Event number.
    pub event: u64,
    /// Captured thread, by position in the archive.
    pub lane: u32,
    /// Worker whose sequence it belongs to.
    pub worker: u32,
    /// OS thread of the replay.
    pub runner: u32,
    /// Tick right before the call.
    pub issued: u64,
    /// Tick right after it.
    pub returned: u64,
}

/// The calls of one replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderLog {
    /// The order that was kept.
    pub order: OrderMode,
    /// Value of `--threads`.
    pub threads: usize,
    /// The calls, in no order.
    pub calls: Vec<Logged>,
}

/// Why a log cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OrderLogError {
    /// The system's reason.
    #[error("the order log cannot be read: {0}; give the file that --log-order wrote")]
    Io(#[from] io::Error),
    /// A line is none of a log's.
    #[error("line {line} of the order log is not one of its lines: {reason}; --log-order writes such a file")]
    Line {
        /// Number of the line, from 1 on.
        line: u64,
        /// What is wrong.
        reason: String,
    },
}

#[derive(Serialize, Deserialize)]
struct Heading {
    format: String,
    version: u32,
    order: String,
    threads: usize,
    calls: u64,
}

impl OrderLog {
    /// Writes the log. Of one that cannot be written to its end, nothing is left; a device or a pipe stays.
    ///
    /// # Errors
    /// The system's reason.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let file = File::create(path)?;
        self.write_to(BufWriter::new(file)).inspect_err(|_| {
            if path.is_file() {
                let _ = fs::remove_file(path);
            }
        })
    }

    fn write_to(&self, mut out: impl Write) -> io::Result<()> {
        let heading = Heading {
            format: FORMAT.to_owned(),
            version: VERSION,
            order: self.order.as_str().to_owned(),
            threads: self.threads,
            calls: self.calls.len() as u64,
        };
        serde_json::to_writer(&mut out, &heading)?;
        out.write_all(b"\n")?;
        let mut calls: Vec<&Logged> = self.calls.iter().collect();
        calls.sort_by_key(|call| (call.lane, call.event));
        let (mut lane, mut count) = (0, 0u64);
        for call in calls {
            count = if call.lane == lane { count + 1 } else { 1 };
            lane = call.lane;
            let Logged { event, worker, runner, issued, returned, .. } = call;
            writeln!(out, "[{event},{lane},{count},{worker},{runner},{issued},{returned}]")?;
        }
        out.flush()
    }

    /// Reads a log.
    ///
    /// # Errors
    /// [`OrderLogError`].
    pub fn read(path: &Path) -> Result<Self, OrderLogError> {
        Self::parse(BufReader::new(File::open(path)?))
    }

    fn parse(mut input: impl BufRead) -> Result<Self, OrderLogError> {
        let mut text = String::new();
        let mut number = 0;
        let mut next = |text: &mut String| -> Result<Option<u64>, OrderLogError> {
            text.clear();
            number += 1;
            let read = io::Read::take(&mut input, MAX_LINE_BYTES).read_line(text)?;
            Ok((read > 0).then_some(number))
        };
        let bad = |line: u64, reason: String| OrderLogError::Line { line, reason };
        let line = next(&mut text)?.ok_or_else(|| bad(1, "there is none".to_owned()))?;
        let heading: Heading = serde_json::from_str(&text).map_err(|error| bad(line, error.to_string()))?;
        if heading.format != FORMAT || heading.version != VERSION {
            return Err(bad(line, format!("{} version {}", heading.format, heading.version)));
        }
        let order = OrderMode::from_word(&heading.order)
            .ok_or_else(|| bad(line, format!("{:?} is no order", heading.order)))?;
        let mut log = OrderLog { order, threads: heading.threads, calls: Vec::new() };
        while let Some(line) = next(&mut text)? {
            let (event, lane, _, worker, runner, issued, returned): (u64, u32, u64, u32, u32, u64, u64) =
                serde_json::from_str(&text).map_err(|error| bad(line, error.to_string()))?;
            log.calls.push(Logged { event, lane, worker, runner, issued, returned });
        }
        if log.calls.len() as u64 != heading.calls {
            let reason = format!("the log ends after {} of {} calls", log.calls.len(), heading.calls);
            return Err(bad(log.calls.len() as u64 + 1, reason));
        }
        Ok(log)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_a_torn_log_is_refused() {
        let call =
            |event, lane| Logged { event, lane, worker: 1, runner: 2, issued: 10 * event, returned: 10 * event + 5 };
        let log = OrderLog { order: OrderMode::Deps, threads: 2, calls: vec![call(0, 0), call(2, 0), call(1, 1)] };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        log.write(&path).unwrap();
        assert_eq!(OrderLog::read(&path).unwrap(), log);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("\n[2,0,2,1,2,20,25]\n"), "{text}");
        let cut = &text[..text.trim_end().rfind('\n').unwrap() + 1];
        std::fs::write(&path, cut).unwrap();
        assert!(OrderLog::read(&path).unwrap_err().to_string().contains("2 of 3 calls"));
        std::fs::write(&path, format!("{cut}[1,1]\n")).unwrap();
        assert!(OrderLog::read(&path).unwrap_err().to_string().contains("line 4"));
        std::fs::write(&path, "{}\n").unwrap();
        assert!(OrderLog::read(&path).unwrap_err().to_string().contains("line 1"));
    }
}
