//! D2H checks: what the device produced against what was recorded, off the timed loop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam::channel::Receiver;

use hrr_format::archive::Archive;
use hrr_format::catalogue::APIS;

use crate::environment::{self, VariableError};
use crate::instruction::Wait;
use crate::plan::Check;
use crate::report::gpu_timer::Keep;
use crate::results::compare::{Comparison, Tolerance, compare};
use crate::run::progress::Progress;
use crate::trace::MOST_TAKEN;
use crate::trace::taken::ResultTaken;
use crate::triage::trace::Live;

/// Outcome of all checks.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Results equal byte for byte.
    pub exact: u64,
    /// Results within tolerance.
    pub within: u64,
    /// Results that differ.
    pub failed: u64,
    /// Results that were not compared, by reason.
    pub skipped: Vec<(Skip, u64)>,
    /// One line on each failure, the first few.
    pub failures: Vec<String>,
    /// Whether so many failed that the replay was stopped.
    pub diverged: bool,
    /// Each result by the event number of its copy, where a timeline is drawn of the run.
    pub(crate) each: Vec<(u64, ResultTaken)>,
}

impl Verdict {
    /// Results that passed.
    pub fn passed(&self) -> u64 {
        self.exact + self.within
    }

    /// Results that were not compared.
    pub fn skipped_total(&self) -> u64 {
        self.skipped.iter().map(|(_, count)| count).sum()
    }

    /// Results that should have been compared and were not.
    pub fn missed(&self) -> u64 {
        self.skipped.iter().filter(|(reason, _)| !reason.by_design()).map(|(_, count)| count).sum()
    }

    fn skip(&mut self, reason: Skip) {
        match self.skipped.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, count)) => *count += 1,
            None => self.skipped.push((reason, 1)),
        }
    }
}

/// Why a result was not compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Skip {
    /// Nothing made it visible to the program.
    Unobserved,
    /// The replay ended before it.
    NotReached,
    /// Its recorded contents are missing from the archive.
    ContentsMissing,
    /// It has no bytes.
    Empty,
    /// The order that was kept does not determine it.
    Unordered,
    /// The program saw it behind the range that is replayed, or never.
    BehindRange,
    /// It is host memory which nothing wrote here, and which the program may have written itself.
    HostsOwn,
}

impl Skip {
    /// Whether there was nothing to be learned from it.
    fn by_design(self) -> bool {
        matches!(self, Skip::Unobserved | Skip::Empty | Skip::Unordered | Skip::BehindRange | Skip::HostsOwn)
    }

    /// What to tell people.
    pub fn as_str(self) -> &'static str {
        match self {
            Skip::Unobserved => "the program never saw it",
            Skip::NotReached => "the replay ended before it",
            Skip::ContentsMissing => "its recorded contents are missing",
            Skip::Empty => "nothing to compare",
            Skip::BehindRange => "not seen by the program within the range",
            Skip::HostsOwn => "host memory that no device wrote here: taken for what the program stored itself",
            Skip::Unordered => "--order program keeps no order between threads, so a difference proves nothing",
        }
    }
}

/// Failure lines kept.
const LINES_KEPT: usize = 20;

/// When failures are so many that going on is pointless.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Divergence {
    /// Fraction of failures; zero = never.
    pub(crate) fraction: f64,
    /// Comparisons before it applies.
    pub(crate) min_samples: u64,
}

impl Divergence {
    /// `HIP_HRR_REPLAY_DIVERGENCE_ABORT` (0.25; 0 = off) and `HIP_HRR_REPLAY_DIVERGENCE_MIN_SAMPLES` (64).
    ///
    /// # Errors
    /// The variable whose value is no such number.
    pub(crate) fn from_env() -> Result<Self, VariableError> {
        let fraction = environment::number(
            "HIP_HRR_REPLAY_DIVERGENCE_ABORT",
            0.25,
            0.0..=1.0,
            "a fraction from 0 to 1 (0: never stop)",
        )?;
        let allowed = "a whole number of results";
        let min_samples = environment::number("HIP_HRR_REPLAY_DIVERGENCE_MIN_SAMPLES", 64, 0.., allowed)?;
        Ok(Divergence { fraction, min_samples })
    }
}

/// What checks are made by.
pub(crate) struct Validation<'a> {
    pub(crate) archive: &'a Archive,
    /// Results as they become visible; ends when planning does.
    pub(crate) checks: Receiver<Check>,
    pub(crate) tolerance: Tolerance,
    pub(crate) divergence: Divergence,
    /// Whether a difference proves nothing, because the order of calls was not kept.
    pub(crate) unordered: bool,
    /// Told how many results were compared.
    pub(crate) live: Option<Arc<Live>>,
    /// Whether the archive goes on behind what is replayed, so that what makes a result visible may not come.
    pub(crate) cut: bool,
    /// Whether how each result came out is kept, or the sums only.
    pub(crate) keep: Keep,
}

impl Validation<'_> {
    /// Makes all checks, each once its result is there. `over` tells that no more results will come.
    pub(crate) fn run(&self, progress: &Progress, over: &AtomicBool) -> Verdict {
        let mut verdict = Verdict::default();
        let mut buffer = Vec::new();
        while let Ok(check) = self.checks.recv() {
            let Some(ready) = check.ready else {
                let reason = if self.cut { Skip::BehindRange } else { Skip::Unobserved };
                verdict.skip(reason);
                self.keep(&mut verdict, &check, ResultTaken::Skipped(reason));
                continue;
            };
            // Acquire on `over`: everything the runners did happens before it was set.
            let reached = || match ready.count {
                // Ready when everything is.
                Wait::AT_END => over.load(Ordering::Acquire) && !progress.stopped(),
                count => progress.done(ready.lane) >= count,
            };
            while !reached() && !over.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(1));
            }
            if !reached() {
                verdict.skip(Skip::NotReached);
                self.keep(&mut verdict, &check, ResultTaken::Skipped(Skip::NotReached));
                continue;
            }
            let result = self.check(&check, &mut buffer, &mut verdict);
            self.keep(&mut verdict, &check, result);
            // Release: pairs with the planner's Acquire before it gives the memory back.
            check.unchecked.fetch_sub(1, Ordering::Release);
            let attempts = verdict.passed() + verdict.failed;
            if let Some(live) = &self.live {
                live.tally.set(verdict.passed(), verdict.failed);
            }
            let d = self.divergence;
            if d.fraction > 0.0
                && attempts >= d.min_samples.max(1)
                && verdict.failed as f64 >= d.fraction * attempts as f64
                && verdict.failed > 0
            {
                verdict.diverged = true;
                progress.stop();
                break;
            }
        }
        verdict
    }

    fn check(&self, check: &Check, buffer: &mut Vec<u8>, verdict: &mut Verdict) -> ResultTaken {
        let skip = |verdict: &mut Verdict, reason| {
            verdict.skip(reason);
            ResultTaken::Skipped(reason)
        };
        let expected = match self.archive.blobs().get(check.blob) {
            Ok(Some(expected)) => expected,
            Ok(None) => return skip(verdict, Skip::ContentsMissing),
            Err(error) => {
                verdict.failed += 1;
                self.note(verdict, check, &error.to_string());
                return ResultTaken::Failed;
            }
        };
        // SAFETY: the place was allocated for this shape and is kept until validation is over; the copy that wrote it is
        // complete, because the call that made it visible at capture has returned.
        let live = unsafe { check.shape.gather(check.live as *const u8, buffer) };
        let mut merged = Vec::new();
        let live = match check.seen.and_then(|seen| seen.before) {
            None => live,
            Some(before) => {
                let before = match self.archive.blobs().get(before) {
                    Ok(Some(before)) if before.len() == live.len() && expected.len() == live.len() => before,
                    Ok(_) => return skip(verdict, Skip::ContentsMissing),
                    Err(error) => {
                        verdict.failed += 1;
                        self.note(verdict, check, &error.to_string());
                        return ResultTaken::Failed;
                    }
                };
                if live == &*before {
                    return skip(verdict, Skip::HostsOwn);
                }
                // A byte that nothing wrote here is taken for the program's own.
                let bytes = live.iter().zip(before.iter().zip(expected.iter()));
                merged.extend(bytes.map(|(live, (before, expected))| if live == before { expected } else { live }));
                &merged
            }
        };
        match compare(live, &expected, &self.tolerance) {
            Comparison::Exact => {
                verdict.exact += 1;
                ResultTaken::Exact
            }
            Comparison::Within { .. } => {
                verdict.within += 1;
                ResultTaken::Within
            }
            Comparison::Nothing => skip(verdict, Skip::Empty),
            Comparison::Mismatch(_) if self.unordered => skip(verdict, Skip::Unordered),
            Comparison::Mismatch(mismatch) => {
                verdict.failed += 1;
                self.note(verdict, check, &format!("{mismatch}"));
                ResultTaken::Failed
            }
        }
    }

    fn keep(&self, verdict: &mut Verdict, check: &Check, result: ResultTaken) {
        if self.keep == Keep::Spans && verdict.each.len() < MOST_TAKEN {
            verdict.each.push((check.event, result));
        }
    }

    fn note(&self, verdict: &mut Verdict, check: &Check, what: &str) {
        if verdict.failures.len() < LINES_KEPT {
            let api = match check.seen {
                Some(seen) => format!("host memory at {:#x}, written by the device before this event", seen.address),
                None => APIS.get(usize::from(check.api)).map_or("?", |api| api.name).to_owned(),
            };
            let thread = self.archive.streams()[check.lane as usize].header().thread;
            verdict.failures.push(format!("event {} (thread {thread}), {api}: {what}", check.event));
        }
    }
}
