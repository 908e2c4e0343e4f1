//! Several processes that did the same, as one side of a comparison.
//!
//! Repetitions within a process share its memory layout, its threads' places and its luck; only processes are independent
//! of each other. So a process counts as one repetition: the median of its own.

use crate::report::{CopyReport, KernelReport, RunReport, SectionReport};

/// One report that stands for all of `reports`, a repetition for each; `None` where there are none.
pub fn merge(reports: &[RunReport]) -> Option<RunReport> {
    let first = reports.first()?;
    let mut merged = first.clone();
    merged.repetitions = reports.iter().map(|report| median(&report.repetitions)).collect();
    merged.wall_ns = median(&merged.repetitions);
    let section =
        |report: &RunReport, of: fn(&SectionReport) -> u64| median(&report.sections.iter().map(of).collect::<Vec<_>>());
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
        let before = &reports[..number];
        let repetitions = report.repetitions.len().max(1) as u64;
        for api in &report.apis {
            let known = merged.apis.iter_mut().find(|known| known.name == api.name);
            let sample = sample(&api.samples_ns, api.total_ns, repetitions);
            match known {
                Some(known) => {
                    known.samples_ns.resize(number, 0);
                    known.samples_ns.push(sample);
                    known.count += api.count / repetitions;
                }
                None => {
                    let mut new = api.clone();
                    new.samples_ns = vec![0; before.len()];
                    new.samples_ns.push(sample);
                    new.count /= repetitions;
                    merged.apis.push(new);
                }
            }
        }
        for kernel in &report.kernels {
            let sample = sample(&kernel.samples_ns, kernel.total_ns, repetitions);
            let known =
                merged.kernels.iter_mut().find(|known| known.name == kernel.name && known.graph == kernel.graph);
            match known {
                Some(known) => {
                    known.samples_ns.resize(number, 0);
                    known.samples_ns.push(sample);
                    known.count += kernel.count / repetitions;
                }
                None => {
                    let mut samples_ns = vec![0; before.len()];
                    samples_ns.push(sample);
                    let count = kernel.count / repetitions;
                    merged.kernels.push(KernelReport { samples_ns, count, ..kernel.clone() });
                }
            }
        }
        for copy in &report.copies {
            let sample = sample(&copy.samples_ns, copy.device_ns.unwrap_or(copy.host_ns), repetitions);
            match merged.copies.iter_mut().find(|known| known.label() == copy.label()) {
                Some(known) => {
                    known.samples_ns.resize(number, 0);
                    known.samples_ns.push(sample);
                    known.count += copy.count / repetitions;
                }
                None => {
                    let mut samples_ns = vec![0; before.len()];
                    samples_ns.push(sample);
                    let count = copy.count / repetitions;
                    merged.copies.push(CopyReport { samples_ns, count, ..copy.clone() });
                }
            }
        }
        if number > 0 {
            merged.exit_code = if merged.exit_code == 0 { report.exit_code } else { merged.exit_code };
            merged.d2h.failed += report.d2h.failed;
            merged.events_failed += report.events_failed;
            for worker in &report.workers {
                if let Some(known) = merged.workers.iter_mut().find(|known| known.worker == worker.worker) {
                    known.calls += worker.calls;
                    known.in_calls_ns += worker.in_calls_ns;
                    known.beside_ns += worker.beside_ns;
                    known.waiting_ns += worker.waiting_ns;
                    known.staging_ns += worker.staging_ns;
                    known.pacing_ns += worker.pacing_ns;
                    known.events_ns += worker.events_ns;
                    known.total_ns += worker.total_ns;
                    known.own_ns += worker.own_ns;
                }
            }
        }
    }
    // What the last processes lack is zero in them.
    for samples in merged
        .apis
        .iter_mut()
        .map(|api| &mut api.samples_ns)
        .chain(merged.kernels.iter_mut().map(|kernel| &mut kernel.samples_ns))
        .chain(merged.copies.iter_mut().map(|copy| &mut copy.samples_ns))
    {
        samples.resize(reports.len(), 0);
    }
    Some(merged)
}

fn sample(samples_ns: &[u64], total_ns: u64, repetitions: u64) -> u64 {
    if samples_ns.is_empty() { total_ns / repetitions } else { median(samples_ns) }
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
    use crate::report::ApiReport;

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
        let merged = merge(&reports).unwrap();
        assert_eq!(merged.repetitions, [20, 45, 60]);
        let samples =
            |name: &str| merged.apis.iter().find(|api| api.name == name).map(|api| api.samples_ns.clone()).unwrap();
        assert_eq!(samples("a"), [2, 6, 0]);
        assert_eq!(samples("b"), [0, 9, 4]);
        assert_eq!(merged.apis[0].count, 4, "two calls in each of two processes");
        assert!(merge(&[]).is_none());
    }
}
