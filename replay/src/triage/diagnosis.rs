//! What a replay that does not come to an end is stuck in: as data, as text, as JSON.

use std::fmt;

use serde::Serialize;

/// Version of the JSON. It rises when a key changes its meaning or goes.
pub const SCHEMA_VERSION: u32 = 1;

/// Operations of a stream that are listed, from the first that is not complete.
pub(crate) const OPERATIONS_LISTED: usize = 8;

/// Where a replay was when it stopped moving.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Before the clock started: devices, planning, staging.
    SetUp,
    /// The timed section.
    Run,
    /// Behind the last call, until the devices are idle.
    Drain,
    /// Giving back what was used.
    TearDown,
}

impl Phase {
    fn as_str(self) -> &'static str {
        match self {
            Phase::SetUp => "before the run",
            Phase::Run => "in the run",
            Phase::Drain => "at the end of the run, until the devices are idle",
            Phase::TearDown => "after the run",
        }
    }
}

/// What did not come to an end in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stuck {
    /// A call of the archive has not returned.
    Call,
    /// A worker waits for calls of other captured threads.
    Wait,
    /// A call that replay makes for its own sake has not returned, or work of its own does not move.
    OwnCall,
}

/// A recorded call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Operation {
    /// Event number.
    pub event: u64,
    /// Captured thread.
    pub thread: u32,
    /// Its API.
    pub api: String,
    /// Kernel, where it launches one.
    pub kernel: Option<String>,
    /// Number of the code object the kernel is from.
    pub code_object: Option<u64>,
    /// The call with its arguments as recorded: grid, block and kernel arguments among them.
    pub call: String,
}

/// A worker that is in a call, or waits before one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Worker {
    /// Captured thread whose call it is.
    pub thread: u32,
    /// That thread's id in the recorded process.
    pub tid: u64,
    /// Worker number; none where the call was handed to a spare one.
    pub worker: Option<u32>,
    /// Whether it is in the call, or waits for other threads before it.
    pub state: Stuck,
    /// The call.
    pub operation: Option<Operation>,
    /// The call's API.
    pub api: String,
    /// Event number of the call.
    pub event: u64,
    /// Stream it works on or waits for, as recorded.
    pub stream: Option<String>,
    /// For how long it has been there, in milliseconds.
    pub stuck_ms: f64,
    /// How long the same call took at capture, in microseconds.
    pub recorded_us: Option<f64>,
    /// What it waits for.
    pub waits_for: Option<Edge>,
}

/// A captured thread that has not come far enough.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Edge {
    /// The captured thread.
    pub thread: u32,
    /// Calls it must have made.
    pub calls_wanted: u64,
    /// Calls it has made.
    pub calls_done: u64,
}

/// A stream with work in flight.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stream {
    /// Its handle as recorded, or `default`.
    pub stream: String,
    /// Its device.
    pub device: i32,
    /// The last operation that is complete.
    pub last_completed: Option<Operation>,
    /// Operations that are not, in the order they were enqueued, the first few.
    pub in_flight: Vec<Operation>,
    /// How many there are.
    pub in_flight_total: u64,
    /// How many of these, at the front, may be the first that is not complete: more than one where no mark lay between them.
    pub candidates: u64,
    /// What its first operation in flight waits for, where that can be told.
    pub waits_for: Option<String>,
    /// Why its state is not known.
    pub unknown: Option<String>,
}

/// A call that had not returned when the archive ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RecordedInFlight {
    /// Captured thread.
    pub thread: u32,
    /// The call.
    pub call: String,
    /// From its entry to the last sign of life of the process, in milliseconds.
    pub at_least_ms: f64,
}

/// What a replay that does not come to an end is stuck in.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diagnosis {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// What the watchdog was told, in milliseconds.
    pub limit_ms: u64,
    /// Where the replay was.
    pub phase: Phase,
    /// What did not come to an end.
    pub stuck: Stuck,
    /// Its name: an API, or work of replay's own.
    pub what: String,
    /// For how long it had been under way when the diagnosis was ready, in milliseconds.
    pub stuck_ms: f64,
    /// What workers are in, the ones that do not move first.
    pub workers: Vec<Worker>,
    /// Cycles among waits, each as a sentence.
    pub cycles: Vec<String>,
    /// Streams with work in flight.
    pub streams: Vec<Stream>,
    /// Streams without.
    pub idle_streams: u64,
    /// What had not returned when the archive ended.
    pub recorded_in_flight: Vec<RecordedInFlight>,
    /// Why the state of streams is not known, where it is not.
    pub streams_unknown: Option<String>,
}

impl Diagnosis {
    /// Something of replay's own, with nothing known besides.
    pub(crate) fn of_own_call(phase: Phase, what: &str, stuck_ms: f64, limit_ms: u64) -> Self {
        Diagnosis {
            schema_version: SCHEMA_VERSION,
            limit_ms,
            phase,
            stuck: Stuck::OwnCall,
            what: what.to_owned(),
            stuck_ms,
            workers: Vec::new(),
            cycles: Vec::new(),
            streams: Vec::new(),
            idle_streams: 0,
            recorded_in_flight: Vec::new(),
            streams_unknown: None,
        }
    }

    fn headline(&self) -> String {
        let for_ms = format!("for {:.0} ms (limit {} ms)", self.stuck_ms, self.limit_ms);
        match (self.stuck, self.workers.first()) {
            (Stuck::Call, Some(first)) => format!("{} has not returned {for_ms}: {}", self.what, first.place()),
            (Stuck::Wait, Some(first)) => {
                format!("waiting for other threads before {} {for_ms}: {}", self.what, first.place())
            }
            _ => format!("{}, {}: no end {for_ms}", self.what, self.phase.as_str()),
        }
    }
}

impl Worker {
    /// Whether it is in a wait for the device that the recorded program did not make there.
    fn is_added_wait(&self) -> bool {
        const WAIT: &str = "hipDeviceSynchronize";
        let recorded = self.operation.as_ref().map(|operation| operation.api.as_str());
        self.state == Stuck::Call && self.api == WAIT && recorded.is_some_and(|recorded| recorded != WAIT)
    }

    fn place(&self) -> String {
        let worker = self.worker.map_or_else(|| "a spare worker".to_owned(), |worker| format!("worker {worker}"));
        let stream = self.stream.as_ref().map_or_else(String::new, |stream| format!(", stream {stream}"));
        format!("event {}, captured thread {} (tid {}), {worker}{stream}", self.event, self.thread, self.tid)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {}, thread {}: {}", self.event, self.thread, self.call)?;
        match self.code_object {
            Some(number) => write!(f, " from code object {number}"),
            None => Ok(()),
        }
    }
}

/// The block that the watchdog prints, each line marked.
impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |text: &str| writeln!(f, "[HRR][WATCHDOG] {text}");
        line(&self.headline())?;
        for (position, worker) in self.workers.iter().enumerate() {
            let doing = if worker.state == Stuck::Call { "is in" } else { "waits before" };
            let call = worker.operation.as_ref().map_or(worker.api.as_str(), |operation| &operation.call);
            if position == 0 {
                line(&format!("  call      : {call}"))?;
                if worker.is_added_wait() {
                    line(
                        "  added     : this wait for the device is --sync-after-launch's or --sync-after-event's; where a stream waits \
                         for what a later call brings about, it never ends, and a replay without the option does",
                    )?;
                }
            } else {
                let place = worker.place();
                line(&format!("  also      : {place}: {doing} {call} for {:.0} ms", worker.stuck_ms))?;
            }
            if let Some(recorded_us) = worker.recorded_us {
                line(&format!("  at capture: the same call took {:.3} ms", recorded_us / 1000.0))?;
            }
            if let Some(edge) = &worker.waits_for {
                let Edge { thread, calls_wanted, calls_done } = edge;
                line(&format!(
                    "  waits for : captured thread {thread} to have made {calls_wanted} calls; it has made {calls_done}"
                ))?;
            }
        }
        for cycle in &self.cycles {
            line(&format!("  cycle     : {cycle}"))?;
        }
        if let Some(reason) = &self.streams_unknown {
            line(&format!("  streams   : not known, {reason}"))?;
        }
        for stream in &self.streams {
            line(&format!(
                "  stream {} (device {}): {} in flight",
                stream.stream,
                stream.device,
                match stream.in_flight_total {
                    1 => "1 operation".to_owned(),
                    total => format!("{total} operations"),
                }
            ))?;
            match &stream.last_completed {
                Some(operation) => line(&format!("    last completed     : {operation}"))?,
                None => line("    last completed     : none")?,
            }
            if stream.candidates > 1 {
                line(&format!(
                    "    first not completed: one of the first {} below; --watchdog-marks all tells which, and costs time",
                    stream.candidates
                ))?;
            }
            for (position, operation) in stream.in_flight.iter().enumerate() {
                let label = match position {
                    0 if stream.candidates > 1 => "one of             ",
                    0 => "first not completed",
                    _ if (position as u64) < stream.candidates => "or                 ",
                    _ => "then               ",
                };
                line(&format!("    {label}: {operation}"))?;
                if let (0, Some(reason)) = (position, &stream.waits_for) {
                    line(&format!("      which waits for {reason}"))?;
                }
            }
            let more = stream.in_flight_total.saturating_sub(stream.in_flight.len() as u64);
            if more > 0 {
                line(&format!("    and {more} more"))?;
            }
            if let Some(reason) = &stream.unknown {
                line(&format!("    not known: {reason}"))?;
            }
        }
        if self.idle_streams > 0 {
            let streams = if self.idle_streams == 1 { "stream" } else { "streams" };
            line(&format!("  {} more {streams} with nothing in flight", self.idle_streams))?;
        }
        for call in &self.recorded_in_flight {
            let RecordedInFlight { thread, call, at_least_ms } = call;
            line(&format!("  at capture, thread {thread} had not returned either, after {at_least_ms:.0} ms: {call}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_marked_and_says_what_it_is_about() {
        let operation = Operation {
            event: 13,
            thread: 0,
            api: "hipLaunchKernel".to_owned(),
            kernel: Some("spin_until".to_owned()),
            code_object: Some(0),
            call: "hipLaunchKernel[spin_until](...)".to_owned(),
        };
        let mut diagnosis = Diagnosis::of_own_call(Phase::Drain, "hipDeviceSynchronize", 612.4, 500);
        assert_eq!(
            diagnosis.to_string(),
            "[HRR][WATCHDOG] hipDeviceSynchronize, at the end of the run, until the devices are idle: no end for 612 ms (limit 500 \
             ms)\n"
        );
        diagnosis.streams.push(Stream {
            stream: "0x10".to_owned(),
            device: 0,
            last_completed: None,
            in_flight: vec![operation],
            in_flight_total: 3,
            candidates: 1,
            waits_for: None,
            unknown: None,
        });
        let text = diagnosis.to_string();
        assert!(text.lines().all(|line| line.starts_with("[HRR][WATCHDOG] ")), "{text}");
        assert!(
            text.contains(
                "first not completed: event 13, thread 0: hipLaunchKernel[spin_until](...) from code object 0"
            )
        );
        assert!(text.contains("3 operations in flight") && text.contains("and 2 more"), "{text}");
    }
}
