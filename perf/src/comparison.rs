//! Two run reports side by side, and the verdict: slower, faster, no difference, or too few repetitions to tell.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Serialize;

use crate::report::{ApiReport, ReportError, RunReport};
use crate::stats::{
    Interval, MannWhitney, Welch, bootstrap_ratio_of_medians, mad, mann_whitney, median, modified_z, welch,
};

/// Confidence of the interval around the change.
const CONFIDENCE: f64 = 0.95;
/// A difference this unlikely to be chance is called one.
const SIGNIFICANCE: f64 = 1.0 - CONFIDENCE;
/// Modified Z-score beyond which a repetition is called an outlier (Iglewicz and Hoaglin).
const OUTLIER_Z: f64 = 3.5;
/// APIs listed in the text, those whose total changed most.
const LISTED_APIS: usize = 10;
/// Seed of the resampling, fixed so that one comparison always says the same.
const SEED: u64 = 0x4852_5250_4552_4631;

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

/// What two samples of wall times say about each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The candidate takes longer, and that is unlikely to be chance.
    Slower,
    /// The candidate takes less, and that is unlikely to be chance.
    Faster,
    /// What difference there is may well be chance.
    NoDifference,
    /// So few repetitions that no difference could be told from chance.
    TooFewRepetitions,
}

/// One side of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Side {
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
    /// Median wall time.
    pub median_ns: f64,
    /// Median absolute deviation of the wall time.
    pub mad_ns: f64,
    /// Repetitions that stand out of the others.
    pub outliers: usize,
}

/// One API on both sides, per repetition.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ApiChange {
    /// Name of the HIP entry point.
    pub name: String,
    /// Calls per repetition of the baseline and of the candidate.
    pub calls: [f64; 2],
    /// Total time per repetition of the baseline and of the candidate.
    pub total_ns: [f64; 2],
    /// Median duration of a call of the baseline and of the candidate.
    pub p50_ns: [u64; 2],
}

impl ApiChange {
    fn added_ns(&self) -> f64 {
        self.total_ns[1] - self.total_ns[0]
    }
}

/// The comparison of a candidate with a baseline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// What is compared with.
    pub baseline: Side,
    /// What is compared.
    pub candidate: Side,
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
    /// Reasons for which the two sides may not be alike.
    pub warnings: Vec<String>,
    /// All APIs of either side, those whose total changed most first.
    pub apis: Vec<ApiChange>,
    /// Whether the candidate's replay itself did not pass.
    pub candidate_failed: bool,
}

impl Comparison {
    /// Reads two reports and compares them.
    ///
    /// # Errors
    /// A report cannot be read or times nothing.
    pub fn of_files(baseline: &Path, candidate: &Path) -> Result<Self, ReportError> {
        let (first, second) = (RunReport::read(baseline)?, RunReport::read(candidate)?);
        let sides = [side(baseline, &first)?, side(candidate, &second)?];
        Ok(compare(sides, &first, &second))
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

fn side(path: &Path, report: &RunReport) -> Result<Side, ReportError> {
    let samples = report.wall_samples();
    let (Some(median_ns), Some(mad_ns)) = (median(&samples).filter(|ns| *ns > 0.0), mad(&samples)) else {
        return Err(ReportError::NoRepetitions { path: path.to_owned() });
    };
    Ok(Side {
        path: path.to_owned(),
        archive: report.archive.clone(),
        runtime: format!("{} (version {})", report.runtime.path, report.runtime.version),
        mode: report.mode.clone(),
        repetitions: samples.len(),
        median_ns,
        mad_ns,
        outliers: modified_z(&samples).iter().filter(|z| z.abs() > OUTLIER_Z).count(),
    })
}

fn compare([baseline, candidate]: [Side; 2], first: &RunReport, second: &RunReport) -> Comparison {
    let (before, after) = (first.wall_samples(), second.wall_samples());
    let change = candidate.median_ns / baseline.median_ns - 1.0;
    let change_interval = (before.len() > 1 && after.len() > 1)
        .then(|| bootstrap_ratio_of_medians(&after, &before, CONFIDENCE, SEED))
        .flatten()
        .map(|ratio| Interval { low: ratio.low - 1.0, high: ratio.high - 1.0 });
    let mann_whitney = mann_whitney(&before, &after);
    let verdict = match mann_whitney {
        _ if smallest_p(before.len(), after.len()) >= SIGNIFICANCE => Verdict::TooFewRepetitions,
        Some(test) if test.p < SIGNIFICANCE && change > 0.0 => Verdict::Slower,
        Some(test) if test.p < SIGNIFICANCE && change < 0.0 => Verdict::Faster,
        _ => Verdict::NoDifference,
    };
    Comparison {
        change,
        change_interval,
        mann_whitney,
        welch: welch(&before, &after),
        verdict,
        warnings: warnings(first, second),
        apis: api_changes(first, second),
        candidate_failed: second.exit_code != 0 || second.d2h.failed > 0 || second.events_failed > 0,
        baseline,
        candidate,
    }
}

/// Smallest two-sided p-value that samples of these sizes can have, when they do not overlap at all: 2 / C(n1+n2, n1).
fn smallest_p(n1: usize, n2: usize) -> f64 {
    let orders = (1..=n1).fold(1.0, |orders, i| orders * (n2 + i) as f64 / i as f64);
    2.0 / orders
}

fn warnings(first: &RunReport, second: &RunReport) -> Vec<String> {
    let mut warnings = Vec::new();
    let threads = [first.threads.to_string(), second.threads.to_string()];
    for (what, a, b) in [
        ("archives", &first.archive, &second.archive),
        ("devices", &first.device.name, &second.device.name),
        ("device architectures", &first.device.arch, &second.device.arch),
        ("orders", &first.order, &second.order),
        ("thread counts", &threads[0], &threads[1]),
    ] {
        if a != b {
            warnings.push(format!("the {what} differ: {a:?} and {b:?}"));
        }
    }
    for (name, report) in [("baseline", first), ("candidate", second)] {
        if report.exit_code != 0 || report.d2h.failed > 0 || report.events_failed > 0 {
            warnings.push(format!(
                "the {name} did not pass (exit code {}, {} results differ, {} events failed): it did other work than was \
                 recorded",
                report.exit_code, report.d2h.failed, report.events_failed
            ));
        }
    }
    warnings
}

fn api_changes(first: &RunReport, second: &RunReport) -> Vec<ApiChange> {
    let mut changes: Vec<ApiChange> = Vec::new();
    for (side, report) in [first, second].into_iter().enumerate() {
        let repetitions = report.repetitions.len().max(1) as f64;
        for api in &report.apis {
            let known = changes.iter().position(|change| change.name == api.name);
            let at = known.unwrap_or(changes.len());
            if known.is_none() {
                let name = api.name.clone();
                changes.push(ApiChange { name, calls: [0.0; 2], total_ns: [0.0; 2], p50_ns: [0; 2] });
            }
            let ApiReport { count, total_ns, p50_ns, .. } = api;
            changes[at].calls[side] = *count as f64 / repetitions;
            changes[at].total_ns[side] = *total_ns as f64 / repetitions;
            changes[at].p50_ns[side] = *p50_ns;
        }
    }
    changes.sort_by(|a, b| b.added_ns().abs().total_cmp(&a.added_ns().abs()).then_with(|| a.name.cmp(&b.name)));
    changes
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (label, side) in [("baseline", &self.baseline), ("candidate", &self.candidate)] {
            writeln!(
                f,
                "{label:<9}  {:>12}  MAD {:>10}  {} repetition{}{}  {}",
                Duration(side.median_ns),
                Duration(side.mad_ns),
                side.repetitions,
                if side.repetitions == 1 { "" } else { "s" },
                if side.outliers > 0 { format!(" ({} outlying)", side.outliers) } else { String::new() },
                side.path.display(),
            )?;
        }
        write!(f, "change     {:>+11.2} %", self.change * 100.0)?;
        if let Some(interval) = self.change_interval {
            write!(f, "  95 % interval {:+.2} % to {:+.2} %", interval.low * 100.0, interval.high * 100.0)?;
        }
        writeln!(f)?;
        if let Some(test) = self.mann_whitney {
            let how = if test.exact { "exact" } else { "normal approximation" };
            write!(f, "tests      Mann-Whitney p = {:.4} ({how})", test.p)?;
            if let Some(welch) = self.welch {
                write!(f, ", Welch p = {:.4}", welch.p)?;
            }
            writeln!(f)?;
        }
        writeln!(
            f,
            "verdict    {}",
            match self.verdict {
                Verdict::Slower => "the candidate is slower",
                Verdict::Faster => "the candidate is faster",
                Verdict::NoDifference => "no difference that could not be chance",
                Verdict::TooFewRepetitions => "too few repetitions to tell; repeat each side at least 4 times",
            }
        )?;
        for warning in &self.warnings {
            writeln!(f, "warning    {warning}")?;
        }
        let listed: Vec<&ApiChange> = self.apis.iter().take(LISTED_APIS).collect();
        let width = listed.iter().map(|api| api.name.len()).max().unwrap_or(0).max(3);
        if !listed.is_empty() {
            writeln!(
                f,
                "\n{:<width$}  {:>12}  {:>12}  {:>12}  {:>12}  {:>12}",
                "API", "calls", "total", "change", "p50", "p50 before"
            )?;
        }
        for api in listed {
            let sign = if api.added_ns() < 0.0 { '-' } else { '+' };
            writeln!(
                f,
                "{:<width$}  {:>12}  {:>12}  {:>12}  {:>12}  {:>12}",
                api.name,
                format!("{}", api.calls[1]),
                Duration(api.total_ns[1]).to_string(),
                format!("{sign}{}", Duration(api.added_ns().abs())),
                Duration(api.p50_ns[1] as f64).to_string(),
                Duration(api.p50_ns[0] as f64).to_string(),
            )?;
        }
        Ok(())
    }
}

/// Nanoseconds in the unit that suits them.
struct Duration(f64);

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

#[cfg(test)]
mod tests;
