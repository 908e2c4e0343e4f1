//! What the repetitions of a replay measured, gathered into a run report.

use std::hash::Hash;
use std::time::Duration;

use rustc_hash::FxHashMap;

use hrr_format::catalogue::{APIS, Api, Effect};
use hrr_perf::histogram::{CallHistogram, sort_by_time};
use hrr_perf::report::{
    CallKind, CopyReport, KernelReport, RunReport, SectionReport, StreamReport, TimingReport, WorkerReport,
};

use super::gpu_timer::{Resolved, StreamUse};
use super::meter::{CopyTotals, Measured};
use super::note::{CopyClass, StreamLabel, Work};

/// Sums by repetition.
#[derive(Debug)]
struct Samples<K>(FxHashMap<K, Vec<u64>>);

impl<K> Default for Samples<K> {
    fn default() -> Self {
        Samples(FxHashMap::default())
    }
}

impl<K: Eq + Hash + Copy> Samples<K> {
    fn add(&mut self, key: K, repetition: usize, ns: u64) {
        let samples = self.0.entry(key).or_default();
        samples.resize(repetition, 0);
        samples.push(ns);
    }

    fn of(&self, key: K, repetitions: usize) -> Vec<u64> {
        let mut samples = self.0.get(&key).cloned().unwrap_or_default();
        samples.resize(repetitions, 0);
        samples
    }
}

/// GPU times of one repetition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuTimes {
    /// Sum over kernels.
    pub kernel_ns: u64,
    /// Sum over graphs.
    pub graph_ns: u64,
}

/// All measured repetitions.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    sections: Vec<SectionReport>,
    apis: FxHashMap<u16, CallHistogram>,
    api_samples: Samples<u16>,
    api_medians: Samples<u16>,
    copies: FxHashMap<CopyClass, CopyTotals>,
    copy_samples: Samples<CopyClass>,
    works: FxHashMap<Work, CallHistogram>,
    work_samples: Samples<Work>,
    work_medians: Samples<Work>,
    streams: FxHashMap<StreamLabel, StreamUse>,
    workers: Vec<WorkerReport>,
    timing: TimingReport,
}

/// Durations of the sections of one repetition.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sections {
    pub(crate) setup: Duration,
    pub(crate) wall: Duration,
    pub(crate) teardown: Duration,
}

impl Gathered {
    /// Adds a repetition.
    pub(crate) fn add(&mut self, sections: Sections, measured: Option<&Measured>, resolved: Option<&Resolved>) {
        let repetition = self.sections.len();
        let ns = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.sections.push(SectionReport {
            setup_ns: ns(sections.setup),
            wall_ns: ns(sections.wall),
            teardown_ns: ns(sections.teardown),
        });
        if let Some(measured) = measured {
            self.add_measured(repetition, measured);
        }
        if let Some(resolved) = resolved {
            self.add_resolved(repetition, resolved);
        }
    }

    fn add_measured(&mut self, repetition: usize, measured: &Measured) {
        for (&api, histogram) in &measured.apis {
            self.apis.entry(api).or_default().merge(histogram);
            self.api_samples.add(api, repetition, histogram.total_ns());
            self.api_medians.add(api, repetition, histogram.p50_ns());
        }
        for (&class, totals) in &measured.copies {
            self.copies.entry(class).or_default().add(totals);
            self.copy_samples.add(class, repetition, totals.host_ns);
        }
        if self.workers.len() < measured.workers.len() {
            self.workers.resize(measured.workers.len(), WorkerReport::default());
        }
        for (sum, split) in self.workers.iter_mut().zip(&measured.workers) {
            sum.add(split);
            self.timing.host_overhead_ns += split.events_ns;
        }
    }

    fn add_resolved(&mut self, repetition: usize, resolved: &Resolved) {
        for (&work, histogram) in &resolved.works {
            self.works.entry(work).or_default().merge(histogram);
            self.work_samples.add(work, repetition, histogram.total_ns());
            self.work_medians.add(work, repetition, histogram.p50_ns());
        }
        for (&stream, found) in &resolved.streams {
            let sum = self.streams.entry(stream).or_default();
            sum.operations += found.operations;
            sum.busy_ns += found.busy_ns;
            sum.idle_ns += found.idle_ns;
            sum.longest_gap_ns = sum.longest_gap_ns.max(found.longest_gap_ns);
        }
        self.timing.timed += resolved.timed;
        self.timing.untimed += resolved.untimed;
    }

    /// GPU times per repetition: the medians.
    pub(crate) fn gpu_times(&self) -> GpuTimes {
        let repetitions = self.sections.len();
        let sums = |wanted: fn(&Work) -> bool| {
            let mut sums = vec![0u64; repetitions];
            for &work in self.works.keys().filter(|work| wanted(work)) {
                for (sum, ns) in sums.iter_mut().zip(self.work_samples.of(work, repetitions)) {
                    *sum += ns;
                }
            }
            median(&mut sums)
        };
        GpuTimes {
            kernel_ns: sums(|work| matches!(work, Work::Kernel(_))),
            graph_ns: sums(|work| matches!(work, Work::Graph)),
        }
    }

    /// Median wall time of the timed section.
    pub(crate) fn wall(&self) -> Duration {
        Duration::from_nanos(median(&mut self.sections.iter().map(|section| section.wall_ns).collect::<Vec<_>>()))
    }

    /// Median teardown time.
    pub(crate) fn teardown(&self) -> Duration {
        Duration::from_nanos(median(&mut self.sections.iter().map(|section| section.teardown_ns).collect::<Vec<_>>()))
    }

    /// Number of repetitions.
    pub(crate) fn repetitions(&self) -> usize {
        self.sections.len()
    }

    /// Fills in what was measured. `kernel_name` names kernels by their number in the archive; `floor_ns` is what a pair of
    /// events shows with nothing between them, where there were events.
    pub(crate) fn fill(
        &self,
        report: &mut RunReport,
        kernel_name: impl Fn(u32) -> String,
        cores: &[Option<usize>],
        floor_ns: Option<u64>,
    ) {
        let repetitions = self.sections.len();
        report.repetitions = self.sections.iter().map(|section| section.wall_ns).collect();
        report.sections.clone_from(&self.sections);
        report.wall_ns = self.wall().as_nanos() as u64;
        report.teardown_ns = self.teardown().as_nanos() as u64;
        for (&api, histogram) in &self.apis {
            let mut found = histogram.report(APIS.get(usize::from(api)).map_or("?", |api| api.name));
            found.samples_ns = self.api_samples.of(api, repetitions);
            found.p50_samples_ns = self.api_medians.of(api, repetitions);
            found.kind = APIS.get(usize::from(api)).map_or(CallKind::Host, kind_of);
            report.apis.push(found);
        }
        sort_by_time(&mut report.apis);
        report.copies = self.copies.iter().map(|(&class, totals)| self.copy(class, totals)).collect();
        report.copies.sort_by(|a, b| {
            b.device_ns
                .unwrap_or(b.host_ns)
                .cmp(&a.device_ns.unwrap_or(a.host_ns))
                .then_with(|| a.label().cmp(&b.label()))
        });
        for (&work, histogram) in &self.works {
            let name = match work {
                Work::Kernel(number) => kernel_name(number),
                Work::Graph => "(graph)".to_owned(),
                Work::Copy(_) => continue,
            };
            let found = histogram.report(&name);
            report.kernels.push(KernelReport {
                name,
                graph: work == Work::Graph,
                count: found.count,
                total_ns: found.total_ns,
                p50_ns: found.p50_ns,
                p90_ns: found.p90_ns,
                p99_ns: found.p99_ns,
                max_ns: found.max_ns,
                samples_ns: self.work_samples.of(work, repetitions),
                p50_samples_ns: self.work_medians.of(work, repetitions),
            });
        }
        report.kernels.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.name.cmp(&b.name)));
        report.streams = self.stream_reports();
        report.workers = self
            .workers
            .iter()
            .enumerate()
            .map(|(worker, split)| WorkerReport {
                worker: worker as u32,
                cpu: cores.get(worker).copied().flatten().and_then(|cpu| u32::try_from(cpu).ok()),
                ..split.clone()
            })
            .map(WorkerReport::with_own_time)
            .collect();
        report.timing = floor_ns.map(|floor_ns| TimingReport { floor_ns, ..self.timing.clone() });
    }

    fn copy(&self, class: CopyClass, totals: &CopyTotals) -> CopyReport {
        let repetitions = self.sections.len();
        let work = Work::Copy(class);
        let device_ns = self.works.get(&work).map(CallHistogram::total_ns);
        let timed_ns = device_ns.or(class.blocking.then_some(totals.host_ns)).filter(|ns| *ns > 0);
        let host_samples_ns = self.copy_samples.of(class, repetitions);
        CopyReport {
            api: APIS.get(usize::from(class.api)).map_or("?", |api| api.name).to_owned(),
            kind: class.direction.as_str().to_owned(),
            size: class.size().to_owned(),
            blocking: class.blocking,
            count: totals.count,
            bytes: totals.bytes,
            host_ns: totals.host_ns,
            device_ns,
            bytes_per_second: timed_ns.map(|ns| totals.bytes as f64 * 1e9 / ns as f64),
            samples_ns: match device_ns {
                Some(_) => self.work_samples.of(work, repetitions),
                None => host_samples_ns.clone(),
            },
            host_samples_ns,
            p50_samples_ns: device_ns.map_or_else(Vec::new, |_| self.work_medians.of(work, repetitions)),
        }
    }

    fn stream_reports(&self) -> Vec<StreamReport> {
        let mut streams: Vec<(&StreamLabel, &StreamUse)> = self.streams.iter().collect();
        streams.sort_by_key(|(label, _)| **label);
        let (mut device, mut number) = (None, 0);
        streams
            .into_iter()
            .map(|(label, found)| {
                number = if device == Some(label.device) { number + 1 } else { 0 };
                device = Some(label.device);
                StreamReport {
                    device: label.device,
                    stream: number,
                    operations: found.operations,
                    busy_ns: found.busy_ns,
                    idle_ns: found.idle_ns,
                    longest_gap_ns: found.longest_gap_ns,
                }
            })
            .collect()
    }
}

/// What a call's duration is made of.
pub(crate) fn kind_of(api: &Api) -> CallKind {
    match api.effect {
        Effect::Host => CallKind::Host,
        Effect::Enqueue | Effect::BlockCopy if api.name.contains("emcpy") || api.name.contains("emset") => {
            CallKind::Copy
        }
        Effect::Enqueue => CallKind::Enqueue,
        Effect::BlockCopy => CallKind::Copy,
        // A query that had succeeded is repeated until it does.
        Effect::BlockStream | Effect::BlockEvent | Effect::BlockDevice | Effect::Query => CallKind::Wait,
    }
}

/// The middle value, the higher of two; zero where there is none.
fn median(values: &mut [u64]) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(api: u16, ns: u64) -> Measured {
        let mut measured = Measured::default();
        measured.apis.entry(api).or_default().record(ns);
        measured
    }

    #[test]
    fn what_a_repetition_lacks_is_zero_in_its_sample() {
        let mut gathered = Gathered::default();
        for (api, ns) in [(1, 10), (2, 20), (1, 30)] {
            gathered.add(Sections::default(), Some(&measured(api, ns)), None);
        }
        let mut report = RunReport::default();
        gathered.fill(&mut report, |_| String::new(), &[], None);
        let samples =
            |name: &str| report.apis.iter().find(|api| api.name == name).map(|api| api.samples_ns.clone()).unwrap();
        assert_eq!(samples(APIS[1].name), [10, 0, 30]);
        assert_eq!(samples(APIS[2].name), [0, 20, 0]);
        assert_eq!(report.repetitions.len(), 3);
        assert!(report.timing.is_none());
    }

    #[test]
    fn gpu_times_are_medians_of_sums() {
        let mut gathered = Gathered::default();
        for ns in [100, 300, 200] {
            let mut resolved = Resolved::default();
            resolved.works.entry(Work::Kernel(0)).or_default().record(ns);
            resolved.works.entry(Work::Kernel(1)).or_default().record(1000);
            gathered.add(Sections::default(), None, Some(&resolved));
        }
        assert_eq!(gathered.gpu_times(), GpuTimes { kernel_ns: 1200, graph_ns: 0 });
    }
}
