//! Several processes that did the same, as one side of a comparison.
//!
//! Repetitions within a process share its memory layout, its threads' places and its luck; only processes are independent
//! of each other. So a process counts as one repetition: the median of its own. On a machine that others use as well, what
//! they take away only ever makes a repetition longer, and a process counts by its fastest one.

use crate::report::{ApiReport, CopyReport, KernelReport, RunReport, SectionReport};

/// How much longer than the fastest repetition of a process its median may be before something else is taken to use the
/// machine, as a fraction. Where nothing does, the two are a few percent apart.
const DISTURBED: f64 = 0.1;

/// What stands for the repetitions of a process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Center {
    /// The median.
    Median,
    /// The fastest: the medians of half of the processes are this fraction longer than that.
    Fastest {
        /// The fraction.
        spread: f64,
    },
}

impl Center {
    /// What is to stand for the repetitions of these processes, whichever side they are of. It is chosen by how much the
    /// repetitions differ within processes, not by what comes out, so that no difference is likelier to be seen for it.
    pub fn of<'r>(reports: impl IntoIterator<Item = &'r RunReport>) -> Self {
        let spreads = reports.into_iter().filter_map(|report| {
            let fastest = report.repetitions.iter().min().filter(|&&ns| ns > 0)?;
            Some(median(&report.repetitions) as f64 / *fastest as f64 - 1.0)
        });
        match crate::stats::median(&spreads.collect::<Vec<_>>()) {
            Some(spread) if spread > DISTURBED => Center::Fastest { spread },
            _ => Center::Median,
        }
    }

    fn value(self, values: &[u64]) -> u64 {
        match self {
            Center::Median => median(values),
            Center::Fastest { .. } => values.iter().min().copied().unwrap_or(0),
        }
    }
}

/// One report that stands for all of `reports`, a repetition for each; `None` where there are none.
pub fn merge(reports: &[RunReport], center: Center) -> Option<RunReport> {
    let first = reports.first()?;
    let mut merged = first.clone();
    merged.repetitions = reports.iter().map(|report| center.value(&report.repetitions)).collect();
    merged.wall_ns = median(&merged.repetitions);
    if let Center::Fastest { spread } = center {
        merged.caveats.push(format!(
            "the median repetition of a process is {:.0} % longer than its fastest: something else uses the machine, and each \
             process counts by its fastest",
            spread * 100.0
        ));
    }
    let section = |report: &RunReport, of: fn(&SectionReport) -> u64| {
        center.value(&report.sections.iter().map(of).collect::<Vec<_>>())
    };
    merged.sections = reports
        .iter()
        .map(|report| SectionReport {
            // A process plans once; what its repetitions do anew is little.
            setup_ns: report.setup_ns + section(report, |section| section.setup_ns),
            wall_ns: section(report, |section| section.wall_ns),
            teardown_ns: section(report, |section| section.teardown_ns),
        })
        .collect();
    merged.apis.clear();
    merged.kernels.clear();
    merged.copies.clear();
    for (number, report) in reports.iter().enumerate() {
        let repetitions = report.repetitions.len().max(1) as u64;
        append(&mut merged.apis, &report.apis, number, (repetitions, center));
        append(&mut merged.kernels, &report.kernels, number, (repetitions, center));
        append(&mut merged.copies, &report.copies, number, (repetitions, center));
    }
    // What the last processes lack is zero in them.
    fill(&mut merged.apis, reports.len());
    fill(&mut merged.kernels, reports.len());
    fill(&mut merged.copies, reports.len());
    for report in &reports[1..] {
        merged.exit_code = if merged.exit_code == 0 { report.exit_code } else { merged.exit_code };
        merged.d2h.failed += report.d2h.failed;
        merged.events_failed += report.events_failed;
        for worker in &report.workers {
            if let Some(known) = merged.workers.iter_mut().find(|known| known.worker == worker.worker) {
                known.add(worker);
            }
        }
    }
    Some(merged)
}

/// A part of a report that has a time for each repetition.
trait Part: Clone {
    /// Whether two are the same part of two reports.
    fn is_same(&self, other: &Self) -> bool;
    /// What is merged of it.
    fn series(&mut self) -> Series<'_>;
}

struct Series<'a> {
    /// Times and medians by repetition.
    samples_ns: &'a mut Vec<u64>,
    p50_samples_ns: &'a mut Vec<u64>,
    /// Time of all repetitions together.
    total_ns: u64,
    count: &'a mut u64,
}

impl Part for ApiReport {
    fn is_same(&self, other: &Self) -> bool {
        self.name == other.name
    }

    fn series(&mut self) -> Series<'_> {
        let ApiReport { samples_ns, p50_samples_ns, total_ns, count, .. } = self;
        Series { samples_ns, p50_samples_ns, total_ns: *total_ns, count }
    }
}

impl Part for KernelReport {
    fn is_same(&self, other: &Self) -> bool {
        self.name == other.name && self.graph == other.graph
    }

    fn series(&mut self) -> Series<'_> {
        let KernelReport { samples_ns, p50_samples_ns, total_ns, count, .. } = self;
        Series { samples_ns, p50_samples_ns, total_ns: *total_ns, count }
    }
}

impl Part for CopyReport {
    fn is_same(&self, other: &Self) -> bool {
        self.label() == other.label()
    }

    fn series(&mut self) -> Series<'_> {
        let total_ns = self.device_ns.unwrap_or(self.host_ns);
        let CopyReport { samples_ns, p50_samples_ns, count, .. } = self;
        Series { samples_ns, p50_samples_ns, total_ns, count }
    }
}

/// Adds a process's parts, one sample each; it is the `number`-th process.
fn append<P: Part>(merged: &mut Vec<P>, parts: &[P], number: usize, (repetitions, center): (u64, Center)) {
    for part in parts {
        let mut part = part.clone();
        let Series { samples_ns, p50_samples_ns, total_ns, count } = part.series();
        let sample = if samples_ns.is_empty() { total_ns / repetitions } else { center.value(samples_ns) };
        let typical = (!p50_samples_ns.is_empty()).then(|| center.value(p50_samples_ns));
        let of_one = *count / repetitions;
        *count = of_one;
        samples_ns.clear();
        p50_samples_ns.clear();
        if let Some(known) = merged.iter_mut().find(|known| known.is_same(&part)) {
            let Series { samples_ns, p50_samples_ns, count, .. } = known.series();
            extend(samples_ns, number, Some(sample));
            extend(p50_samples_ns, number, typical);
            *count += of_one;
        } else {
            let Series { samples_ns, p50_samples_ns, .. } = part.series();
            extend(samples_ns, number, Some(sample));
            extend(p50_samples_ns, number, typical);
            merged.push(part);
        }
    }
}

/// Puts a value at the place of the `number`-th process; those before that lack one have zero.
fn extend(values: &mut Vec<u64>, number: usize, value: Option<u64>) {
    if let Some(value) = value {
        values.resize(number, 0);
        values.push(value);
    }
}

fn fill<P: Part>(merged: &mut [P], processes: usize) {
    for part in merged {
        let Series { samples_ns, p50_samples_ns, .. } = part.series();
        samples_ns.resize(processes, 0);
        if !p50_samples_ns.is_empty() {
            p50_samples_ns.resize(processes, 0);
        }
    }
}

/// The middle value, the mean of two; zero where there is none.
fn median(values: &[u64]) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0,
        length if length % 2 == 1 => sorted[middle],
        _ => sorted[middle - 1] / 2 + sorted[middle] / 2 + (sorted[middle - 1] % 2 + sorted[middle] % 2) / 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(walls: &[u64], apis: &[(&str, &[u64])]) -> RunReport {
        RunReport {
            repetitions: walls.to_vec(),
            apis: apis
                .iter()
                .map(|(name, samples)| ApiReport {
                    name: (*name).to_owned(),
                    count: 2 * samples.len() as u64,
                    samples_ns: samples.to_vec(),
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        }
    }

    #[test]
    fn a_process_counts_as_one_repetition() {
        let reports = [
            report(&[10, 30, 20], &[("a", &[1, 2, 3])]),
            report(&[40, 50], &[("a", &[5, 7]), ("b", &[9, 9])]),
            report(&[60], &[("b", &[4])]),
        ];
        let merged = merge(&reports, Center::Median).unwrap();
        assert_eq!(merged.repetitions, [20, 45, 60]);
        let samples =
            |name: &str| merged.apis.iter().find(|api| api.name == name).map(|api| api.samples_ns.clone()).unwrap();
        assert_eq!(samples("a"), [2, 6, 0]);
        assert_eq!(samples("b"), [0, 9, 4]);
        assert_eq!(merged.apis[0].count, 4, "two calls in each of two processes");
        assert!(merge(&[], Center::Median).is_none());
    }

    #[test]
    fn where_something_else_uses_the_machine_the_fastest_repetition_counts() {
        let quiet = [report(&[100, 103, 101], &[("a", &[1, 2, 3])]), report(&[99, 100, 300], &[("a", &[5, 4, 9])])];
        assert_eq!(Center::of(&quiet), Center::Median);
        let loud = [report(&[100, 150, 260], &[("a", &[1, 2, 3])]), report(&[99, 180, 300], &[("a", &[5, 4, 9])])];
        let center = Center::of(&loud);
        assert!(matches!(center, Center::Fastest { spread } if spread > 0.5 && spread < 0.9), "{center:?}");
        let merged = merge(&loud, center).unwrap();
        assert_eq!((merged.repetitions, merged.apis[0].samples_ns.clone()), (vec![100, 99], vec![1, 4]));
        assert!(merged.caveats[0].contains("each process counts by its fastest"), "{:?}", merged.caveats);
        assert_eq!(Center::of(&[]), Center::Median);
    }
}
