//! Whether a replay kept the order it promised: every pair of calls whose order the mode demands, by the archive, against
//! when the replay's log says that they were issued and had returned.
//!
//! * [`calls`]: what each call is about
//! * [`device_order`]: what a call that waits is known to have waited for
//! * [`rules`]: the pairs that are demanded
//!
//! In the capture order a pair is demanded if the first had returned before the second was entered. In the order of
//! dependencies it must besides be one that can matter:
//!
//! | the first | the second |
//! |---|---|
//! | made an object, or changed its state | names it |
//! | named an object | changes its state, or ends it |
//! | enqueued on a stream, or waited for it | enqueues on it; or, if the first enqueued, waits for it |
//! | worked on the legacy default stream, or waited for it | works on a blocking stream of the device, and the other way round |
//! | worked on a device | waits for the whole device, and the other way round |
//! | used memory | uses it too, and one of them writes: the first wait that the work was known to be complete by comes first, or, where the program had not waited for it, its enqueue |
//! | may use memory it does not name (graph launches, device variables) | does any work, and the other way round |
//! | began or ended a stream's capture | is any call, and the other way round |
//!
//! In the diagnostic order of programs there remain: made and then used, used and then ended. In all orders a captured
//! thread's own calls keep theirs, and in all but the last so do enqueues that overlapped at capture on one stream. A copy of
//! host memory, which may wait for the device, precedes the calls that it overlapped in none.
//!
//! Not demanded, because the archive does not tell: memory that takes over the recorded addresses of other memory where it
//! is placed, and memory reached through structs that structs point to.

mod calls;
mod device_order;
mod rules;

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;

use hrr_format::archive::Archive;
use rustc_hash::FxHashMap;

use crate::plan::order::OrderMode;
use crate::plan::timeline::{Point, Timeline};
use crate::report::order_log::{Logged, OrderLog};
use crate::survey::Survey;
use calls::{Call, Reader};
use device_order::View;
use rules::{Rules, Violation};

/// What a check came to.
#[derive(Debug)]
pub struct Verdict {
    order: OrderMode,
    calls: u64,
    pairs: u64,
    violated: u64,
    violations: Vec<Violation>,
    runners: usize,
    unknown: u64,
    missing: u64,
}

impl Verdict {
    /// Whether every demanded pair was kept. A log of no calls shows nothing.
    pub fn holds(&self) -> bool {
        self.violated == 0 && self.unknown == 0 && self.calls > 0
    }

    /// Prints the verdict.
    ///
    /// # Errors
    /// The system's reason.
    pub fn print(&self, archive: &Archive, out: &mut dyn Write) -> io::Result<()> {
        let names = names(archive, &self.violations);
        let name = |call: &Logged| {
            let api = names.get(&call.event).map_or("?", String::as_str);
            let thread = archive.streams().get(call.lane as usize).map_or(call.lane, |stream| stream.header().thread);
            format!("event {} ({api}, thread {thread}, runner {})", call.event, call.runner)
        };
        for Violation { first, second, reason } in &self.violations {
            let (first, second, by) = (name(first), name(second), first.returned.saturating_sub(second.issued));
            let reason = reason.as_str();
            writeln!(
                out,
                "[HRR] {second} was issued {by} ticks before {first} had returned, which comes first: {reason}"
            )?;
        }
        let unshown = self.violated - self.violations.len() as u64;
        if unshown > 0 {
            writeln!(out, "[HRR] and {unshown} more")?;
        }
        if self.unknown > 0 {
            writeln!(out, "[HRR] {} calls of the log are not of this archive", self.unknown)?;
        }
        let (missing, order, calls) = (self.missing, self.order.as_str(), self.calls);
        if missing > 0 {
            writeln!(out, "[HRR] {missing} calls of the archive are not in the log: left out, or not come to")?;
        }
        let (pairs, violated, runners) = (self.pairs, self.violated, self.runners);
        if self.holds() {
            writeln!(out, "[HRR] ORDER KEPT ({order}): {pairs} pairs of {calls} calls on {runners} OS threads")
        } else {
            let of = format!("{violated} of {pairs} pairs of {calls} calls on {runners} OS threads");
            writeln!(out, "[HRR] ORDER NOT KEPT ({order}): {of}")
        }
    }
}

/// Names of the calls that violations are about, by event number.
fn names(archive: &Archive, violations: &[Violation]) -> FxHashMap<u64, String> {
    let wanted: Vec<u64> = violations.iter().flat_map(|pair| [pair.first.event, pair.second.event]).collect();
    let mut names = FxHashMap::default();
    if wanted.is_empty() {
        return names;
    }
    for point in Timeline::new(archive.streams(), Survey::of(archive).delayed(archive).into()) {
        if let Point::Begin { event, record, .. } = point
            && wanted.contains(&event)
        {
            names.insert(event, archive.api(record.api()).name.to_owned());
        }
    }
    names
}

/// The calls of a log by event. A call that took several instructions lasts from the first to the last.
fn by_event(log: &OrderLog) -> FxHashMap<u64, Logged> {
    let mut logged: FxHashMap<u64, Logged> = FxHashMap::default();
    for call in &log.calls {
        let known = logged.entry(call.event).or_insert(*call);
        known.issued = known.issued.min(call.issued);
        known.returned = known.returned.max(call.returned);
    }
    logged
}

/// Checks the order of a replay of `archive`.
pub fn check(archive: &Archive, log: &OrderLog) -> Verdict {
    let logged = by_event(log);
    let lanes = archive.streams().len();
    let mut reader = Reader::new(archive);
    let mut rules = Rules::new(log.order, lanes);
    let mut open: Vec<Option<(Call, View)>> = (0..lanes).map(|_| None).collect();
    // Calls that have returned, at a tick that no call entered so far lies behind.
    let mut returning: VecDeque<(Call, View)> = VecDeque::new();
    let (mut found, mut missing) = (0, 0);
    let delayed = Arc::new(Survey::of(archive).delayed(archive));
    for point in Timeline::new(archive.streams(), Arc::clone(&delayed)) {
        match point {
            Point::Begin { event, lane, record } => {
                let span = delayed.span(&record);
                while returning.front().is_some_and(|(call, _)| call.end < span.begin)
                    && let Some((call, view)) = returning.pop_front()
                {
                    let logged = logged.get(&call.event).copied();
                    rules.returned(&call, view, logged);
                }
                let call = reader.enter(event, lane, &record, span);
                let logged = logged.get(&event).copied().filter(|logged| logged.lane == lane);
                match logged {
                    Some(_) => found += 1,
                    None => missing += 1,
                }
                let view = rules.entered(&call, logged);
                open[lane as usize] = Some((call, view));
            }
            Point::End { lane } => {
                reader.leave(lane);
                returning.extend(open[lane as usize].take());
            }
            Point::Marker { .. } | Point::HostMemory { .. } => {}
        }
    }
    let mut runners: Vec<u32> = log.calls.iter().map(|call| call.runner).collect();
    runners.sort_unstable();
    runners.dedup();
    Verdict {
        order: log.order,
        calls: found,
        pairs: rules.pairs,
        violated: rules.violated,
        violations: rules.violations,
        runners: runners.len(),
        unknown: logged.len() as u64 - found,
        missing,
    }
}

#[cfg(test)]
mod tests;
