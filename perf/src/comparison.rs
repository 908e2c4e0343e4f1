//! Two run reports side by side, and the verdict: slower, faster, no difference, or too few repetitions to tell; and where.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Serialize;

use crate::change::{Basis, Change, Verdict};
use crate::line::{Line, lines};
use crate::report::{ReportError, RunReport};
use crate::stats::{Interval, MannWhitney, Welch, mad, median, modified_z};
use crate::verdict::{Finding, find};

/// Modified Z-score beyond which a repetition is called an outlier (Iglewicz and Hoaglin).
const OUTLIER_Z: f64 = 3.5;

/// How much slower is too slow, as a fraction of the baseline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit(f64);

impl Limit {
    /// The limit as a fraction: 0.03 for 3 %.
    pub fn fraction(self) -> f64 {
        self.0
    }
}

/// A limit that is not a percentage.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0:?} is not a limit; write a percentage of zero or more such as 3%")]
pub struct LimitError(String);

impl FromStr for Limit {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        let number = text.trim().strip_suffix('%').and_then(|percent| percent.trim().parse::<f64>().ok());
        match number {
            Some(percent) if percent.is_finite() && percent >= 0.0 => Ok(Limit(percent / 100.0)),
            _ => Err(LimitError(text.to_owned())),
        }
    }
}

/// One side of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Side {
    /// What it is called: `A` or `B`.
    pub label: String,
    /// The report's file.
    pub path: PathBuf,
    /// The archive that was replayed.
    pub archive: String,
    /// The runtime: path and version.
    pub runtime: String,
    /// How it was replayed.
    pub mode: String,
    /// Number of repetitions.
    pub repetitions: usize,
    /// Wall time of each repetition, in the order they ran.
    pub walls_ns: Vec<f64>,
    /// Median wall time.
    pub median_ns: f64,
    /// Median absolute deviation of the wall time.
    pub mad_ns: f64,
    /// Repetitions that stand out of the others.
    pub outliers: usize,
    /// Where the workers' time went, as fractions of it.
    pub split: Option<Split>,
}

/// Where the workers' time went, as fractions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Split {
    /// In the runtime.
    pub runtime: f64,
    /// Waiting for other workers.
    pub edges: f64,
    /// Waiting for plan and contents.
    pub staging: f64,
    /// In the program's own gaps.
    pub pacing: f64,
    /// In the replayer's own code, recording of events included.
    pub own: f64,
}

impl Split {
    fn of(report: &RunReport) -> Option<Split> {
        let sum = |of: fn(&crate::report::WorkerReport) -> u64| report.workers.iter().map(of).sum::<u64>() as f64;
        let total = sum(|worker| worker.total_ns);
        (total > 0.0).then(|| Split {
            runtime: sum(|worker| worker.in_calls_ns) / total,
            edges: sum(|worker| worker.waiting_ns) / total,
            staging: sum(|worker| worker.staging_ns) / total,
            pacing: sum(|worker| worker.pacing_ns) / total,
            own: sum(|worker| worker.own_ns + worker.events_ns) / total,
        })
    }
}

/// Which time is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// From the first call to the last device being idle.
    WallTime,
    /// Inside HIP calls, summed over threads: where one side is a single recorded run, whose wall time holds the program's own
    /// work between calls.
    TimeInCalls,
}

/// The comparison of a candidate with a baseline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Layout of this structure when written as JSON.
    pub schema_version: u32,
    /// The outcome in one sentence.
    pub sentence: String,
    /// What is compared with.
    pub baseline: Side,
    /// What is compared.
    pub candidate: Side,
    /// What `change` and the tests are about.
    pub measure: Measure,
    /// Change of the median as a fraction of the baseline: 0.03 is 3 % slower.
    pub change: f64,
    /// 95 % interval of the change.
    pub change_interval: Option<Interval>,
    /// Rank test on the repetitions; the verdict rests on it.
    pub mann_whitney: Option<MannWhitney>,
    /// Test on the means, for reference.
    pub welch: Option<Welch>,
    /// The outcome.
    pub verdict: Verdict,
    /// Where the change is.
    pub finding: Finding,
    /// Reasons for which the two sides may not be alike.
    pub warnings: Vec<String>,
    /// Sections, APIs, kernels and copies of either side, those whose time changed most first.
    pub lines: Vec<Line>,
    /// Whether the candidate's replay itself did not pass.
    pub candidate_failed: bool,
}

/// Layout of a comparison as JSON.
pub const SCHEMA_VERSION: u32 = 1;

impl Comparison {
    /// Compares two reports, each with the path it is known by.
    ///
    /// # Errors
    /// A report times nothing.
    pub fn of_reports(first: (&Path, &RunReport), second: (&Path, &RunReport)) -> Result<Self, ReportError> {
        let sides = [side("A", first.0, first.1)?, side("B", second.0, second.1)?];
        Ok(compare(sides, first.1, second.1))
    }

    /// Calls the candidate by another letter than `B`, where there are several.
    pub fn name_candidate(&mut self, label: char) {
        if self.candidate.label == "B" && self.sentence.starts_with("B ") {
            self.sentence.replace_range(..1, &label.to_string());
        }
        self.candidate.label = label.to_string();
    }

    /// Whether the candidate is to be turned down: its replay did not pass, or its median is slower by more than
    /// `limit` and that is not told to be chance.
    ///
    /// Where there are too few repetitions to tell, the median decides alone: a gate that is never closed is none.
    pub fn exceeds(&self, limit: Limit) -> bool {
        let may_be_slower = matches!(self.verdict, Verdict::Slower | Verdict::TooFewRepetitions);
        self.candidate_failed || (self.change > limit.fraction() && may_be_slower)
    }
}

fn side(label: &str, path: &Path, report: &RunReport) -> Result<Side, ReportError> {
    let samples = report.wall_samples();
    let (Some(median_ns), Some(mad_ns)) = (median(&samples).filter(|ns| *ns > 0.0), mad(&samples)) else {
        return Err(ReportError::NoRepetitions { path: path.to_owned() });
    };
    Ok(Side {
        label: label.to_owned(),
        path: path.to_owned(),
        archive: report.archive.clone(),
        runtime: format!("{} (version {})", report.runtime.path, report.runtime.version),
        mode: report.mode.clone(),
        repetitions: samples.len(),
        outliers: modified_z(&samples).iter().filter(|z| z.abs() > OUTLIER_Z).count(),
        walls_ns: samples,
        median_ns,
        mad_ns,
        split: Split::of(report),
    })
}

fn compare([baseline, candidate]: [Side; 2], first: &RunReport, second: &RunReport) -> Comparison {
    let wall = Change::new(first.wall_samples(), second.wall_samples());
    let lines = lines(first, second);
    let timed = first.timing.is_some() && second.timing.is_some();
    let single = wall.basis == Basis::SingleValue && !first.apis.is_empty() && !second.apis.is_empty();
    let (measure, compared) = match single {
        true => (Measure::TimeInCalls, Change::new(first.call_samples(), second.call_samples())),
        false => (Measure::WallTime, wall.clone()),
    };
    let finding = find(&compared, &lines, timed);
    let sentence = match wall.basis {
        Basis::Repetitions => finding.sentence(&wall),
        Basis::SingleValue => single_sentence(&finding, &compared, measure, &wall, [&baseline, &candidate]),
    };
    Comparison {
        schema_version: SCHEMA_VERSION,
        sentence,
        measure,
        change: compared.change.unwrap_or(0.0),
        change_interval: compared.interval,
        mann_whitney: compared.mann_whitney,
        welch: compared.welch,
        verdict: compared.verdict,
        finding,
        warnings: warnings(first, second),
        lines,
        candidate_failed: failed(second),
        baseline,
        candidate,
    }
}

/// The outcome where one side ran once: what its calls took among the other's repetitions, and what its wall time holds.
fn single_sentence(finding: &Finding, compared: &Change, measure: Measure, wall: &Change, sides: [&Side; 2]) -> String {
    let [baseline, candidate] = sides;
    let (one, many) = if baseline.repetitions == 1 { (baseline, candidate) } else { (candidate, baseline) };
    let measured = match measure {
        Measure::WallTime => "the wall time",
        Measure::TimeInCalls => "the time inside HIP calls",
    };
    let percent =
        |change: Option<f64>| change.map_or_else(|| "new".to_owned(), |change| format!("{:+.1} %", change * 100.0));
    let interval = compared.interval.map_or_else(String::new, |interval| {
        format!(
            ", {:+.1} to {:+.1} over 95 % of {}'s repetitions",
            interval.low * 100.0,
            interval.high * 100.0,
            many.label
        )
    });
    let worth = match compared.verdict {
        Verdict::Slower | Verdict::Faster => {
            format!("beyond what {}'s repetitions differ by{}", many.label, finding.place())
        }
        _ => format!("no more than {}'s repetitions differ by", many.label),
    };
    let mut text = format!(
        "{} ran once, {} {} times: {measured} is {} in A and {} in B ({}{interval}), {worth}",
        one.label,
        many.label,
        many.repetitions,
        Duration(compared.baseline.median),
        Duration(compared.candidate.median),
        percent(compared.change),
    );
    if measure == Measure::TimeInCalls {
        text.push_str(&format!(
            "; the wall time is {} and {} ({})",
            Duration(wall.baseline.median),
            Duration(wall.candidate.median),
            percent(wall.change)
        ));
        if let Some(split) = one.split.filter(|split| split.pacing >= 0.0005) {
            text.push_str(&format!(
                ", and {}'s threads spent {:.1} % of theirs between calls",
                one.label,
                split.pacing * 100.0
            ));
        }
    }
    text
}

fn failed(report: &RunReport) -> bool {
    report.exit_code != 0 || report.d2h.failed > 0 || report.events_failed > 0
}

fn warnings(first: &RunReport, second: &RunReport) -> Vec<String> {
    let mut warnings = Vec::new();
    let threads = [first.threads.to_string(), second.threads.to_string()];
    let ranges = [first, second].map(|report| report.range.clone().unwrap_or_else(|| "everything".to_owned()));
    for (what, a, b) in [
        ("archives", &first.archive, &second.archive),
        ("devices", &first.device.name, &second.device.name),
        ("device architectures", &first.device.arch, &second.device.arch),
        ("orders", &first.order, &second.order),
        ("thread counts", &threads[0], &threads[1]),
        ("paces", &first.pace, &second.pace),
        ("ranges", &ranges[0], &ranges[1]),
    ] {
        if a != b {
            warnings.push(format!("the {what} differ: {a:?} and {b:?}"));
        }
    }
    for (name, report) in [("baseline", first), ("candidate", second)] {
        if failed(report) {
            warnings.push(format!(
                "the {name} did not pass (exit code {}, {} results differ, {} events failed): it did other work than was \
                 recorded",
                report.exit_code, report.d2h.failed, report.events_failed
            ));
        }
        warnings.extend(report.caveats.iter().map(|caveat| format!("{name}: {caveat}")));
    }
    warnings
}

/// Nanoseconds in the unit that suits them.
#[derive(Clone, Copy, Debug)]
pub struct Duration(pub f64);

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            ns if ns >= 1e9 => format!("{:.3} s", ns / 1e9),
            ns if ns >= 1e6 => format!("{:.3} ms", ns / 1e6),
            ns if ns >= 1e3 => format!("{:.2} us", ns / 1e3),
            ns => format!("{ns:.0} ns"),
        };
        f.pad(&text)
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::render::text(self))
    }
}

#[cfg(test)]
mod tests;
