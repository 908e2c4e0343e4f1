//! The parts of two runs, side by side: sections, APIs, kernels and graphs, copies.

use serde::Serialize;

use crate::change::Change;
use crate::report::{CallKind, RunReport};

/// What a line is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LineKind {
    /// A section of the run: set-up or teardown.
    Section,
    /// Calls of one API, by the time inside them.
    Api(CallKind),
    /// One kernel, or the graphs, by the time on the device.
    Kernel,
    /// Copies of one API, direction and class of size, by the time on the device, else by the time inside the calls.
    Copy,
}

impl LineKind {
    /// As tables name it.
    pub fn as_str(self) -> &'static str {
        match self {
            LineKind::Section => "section",
            LineKind::Api(_) => "API",
            LineKind::Kernel => "kernel",
            LineKind::Copy => "copy",
        }
    }
}

/// One part on both sides, per repetition.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// What it is about.
    pub kind: LineKind,
    /// What it is called.
    pub name: String,
    /// The entry point, where it is one's.
    pub api: Option<String>,
    /// Calls or launches per repetition of the baseline and of the candidate.
    pub count: [f64; 2],
    /// Median of one of them, where that is known.
    pub p50_ns: [u64; 2],
    /// Time per repetition.
    #[serde(flatten)]
    pub change: Change,
    /// What a typical call, launch or copy takes: its median, by repetition. A machine with other users interrupts some calls and
    /// makes sums several times larger; medians stay.
    pub typical: Option<Change>,
}

/// A line while its two sides are brought together.
struct Draft {
    kind: LineKind,
    name: String,
    api: Option<String>,
    count: [f64; 2],
    p50_ns: [u64; 2],
    samples: [Vec<f64>; 2],
    medians: [Vec<f64>; 2],
}

/// All parts of two reports, those whose time changed most first.
pub fn lines(first: &RunReport, second: &RunReport) -> Vec<Line> {
    let mut drafts: Vec<Draft> = Vec::new();
    for (side, report) in [first, second].into_iter().enumerate() {
        gather(&mut drafts, side, report);
    }
    // A side without any was not looked at: a recorded run, or one without --timing.
    let both = |of: fn(&RunReport) -> bool| of(first) == of(second);
    drafts.retain(|draft| match draft.kind {
        LineKind::Kernel => both(|report| report.kernels.is_empty()),
        LineKind::Copy => both(|report| report.copies.is_empty()),
        LineKind::Section | LineKind::Api(_) => true,
    });
    let repetitions = [first, second].map(|report| report.wall_samples().len());
    let count = drafts.len();
    let mut lines: Vec<Line> = drafts
        .into_iter()
        .map(|draft| {
            let [mut before, mut after] = draft.samples;
            // What a side lacks took it no time.
            if before.is_empty() {
                before = vec![0.0; repetitions[0]];
            }
            if after.is_empty() {
                after = vec![0.0; repetitions[1]];
            }
            let change = Change::among(before, after, count);
            let [before, after] = draft.medians;
            let known = !before.is_empty() && !after.is_empty();
            let typical = known.then(|| Change::among_medians(before, after, count));
            Line {
                kind: draft.kind,
                name: draft.name,
                api: draft.api,
                count: draft.count,
                p50_ns: draft.p50_ns,
                change,
                typical,
            }
        })
        .collect();
    lines.sort_by(|a, b| {
        b.change
            .added_ns()
            .abs()
            .total_cmp(&a.change.added_ns().abs())
            .then_with(|| (a.kind, &a.name).cmp(&(b.kind, &b.name)))
    });
    lines
}

fn gather(drafts: &mut Vec<Draft>, side: usize, report: &RunReport) {
    let repetitions = report.repetitions.len().max(1) as f64;
    let mut add = |kind: LineKind, name: String, api: Option<&str>, count: u64, p50_ns: u64, times: [Vec<f64>; 2]| {
        let [samples, medians] = times;
        let known = drafts.iter().position(|draft| draft.kind == kind && draft.name == name);
        let at = known.unwrap_or(drafts.len());
        if known.is_none() {
            let api = api.map(str::to_owned);
            drafts.push(Draft {
                kind,
                name,
                api,
                count: [0.0; 2],
                p50_ns: [0; 2],
                samples: Default::default(),
                medians: Default::default(),
            });
        }
        drafts[at].count[side] = count as f64 / repetitions;
        drafts[at].p50_ns[side] = p50_ns;
        drafts[at].samples[side] = samples;
        drafts[at].medians[side] = medians;
    };
    let values = |samples: &[u64], total_ns: u64| match samples {
        // A report without samples has a mean.
        [] => vec![total_ns as f64 / repetitions],
        samples => samples.iter().map(|&ns| ns as f64).collect(),
    };
    let floats = |samples: &[u64]| samples.iter().map(|&ns| ns as f64).collect::<Vec<f64>>();
    for api in &report.apis {
        let samples = [values(&api.samples_ns, api.total_ns), floats(&api.p50_samples_ns)];
        add(LineKind::Api(api.kind), api.name.clone(), Some(&api.name), api.count, api.p50_ns, samples);
    }
    for kernel in &report.kernels {
        let samples = [values(&kernel.samples_ns, kernel.total_ns), floats(&kernel.p50_samples_ns)];
        add(LineKind::Kernel, kernel.name.clone(), None, kernel.count, kernel.p50_ns, samples);
    }
    for copy in &report.copies {
        let times = values(&copy.samples_ns, copy.device_ns.unwrap_or(copy.host_ns));
        let samples = [times, floats(&copy.p50_samples_ns)];
        add(LineKind::Copy, copy.label(), Some(&copy.api), copy.count, 0, samples);
    }
    let sections = |of: fn(&crate::report::SectionReport) -> u64| -> [Vec<f64>; 2] {
        [report.sections.iter().map(|section| of(section) as f64).collect(), Vec::new()]
    };
    let count = report.sections.len() as u64;
    if count > 0 {
        add(LineKind::Section, "set-up".to_owned(), None, count, 0, sections(|section| section.setup_ns));
        add(LineKind::Section, "teardown".to_owned(), None, count, 0, sections(|section| section.teardown_ns));
    }
}

impl Line {
    /// Nanoseconds per repetition that the candidate has more.
    pub fn added_ns(&self) -> f64 {
        self.change.added_ns()
    }
}
