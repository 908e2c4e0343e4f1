//! The recorded run as a run report, from the ticks in its archive: what the program's own calls took.

use rustc_hash::FxHashMap;

use hrr_format::archive::Archive;
use hrr_format::record::marker;
use hrr_perf::histogram::{CallHistogram, sort_by_time};
use hrr_perf::report::{RunReport, RuntimeReport, SectionReport, WorkerReport};

use super::gather::kind_of;

/// What must be borne in mind when a recorded run is compared with a replay.
const CAVEAT: &str = "these are the recorded program's times: they contain what recording cost, and the program's own work \
                      between calls, which a replay leaves out unless --pace recorded asks for it";

/// The report of the recorded run: one repetition, a worker for each captured thread.
pub fn recorded(archive: &Archive) -> RunReport {
    let clock = archive.manifest().clock;
    let mut apis: FxHashMap<u16, CallHistogram> = FxHashMap::default();
    let mut workers = Vec::new();
    let (mut first, mut last) = (u64::MAX, 0);
    for (number, stream) in archive.streams().iter().enumerate() {
        let mut worker = WorkerReport { worker: number as u32, ..WorkerReport::default() };
        let (mut began, mut ended) = (u64::MAX, 0);
        for record in stream.records() {
            if record.api() >= marker::FIRST || record.in_flight() {
                continue;
            }
            let ns = clock.ticks_to_ns(record.end().saturating_sub(record.begin()));
            if let Some(api) = archive.api(record.api()).known {
                apis.entry(api.id).or_default().record(ns);
            }
            worker.calls += 1;
            worker.in_calls_ns += ns;
            (began, ended) = (began.min(record.begin()), ended.max(record.end()));
        }
        (first, last) = (first.min(began), last.max(ended));
        worker.total_ns = clock.ticks_to_ns(ended.saturating_sub(began));
        // What the program did between its calls.
        worker.pacing_ns = worker.total_ns.saturating_sub(worker.in_calls_ns);
        workers.push(worker.with_own_time());
    }
    let wall_ns = clock.ticks_to_ns(last.saturating_sub(first));
    let manifest = archive.manifest();
    let mut report = RunReport {
        schema_version: hrr_perf::report::SCHEMA_VERSION,
        hrr_version: env!("CARGO_PKG_VERSION").to_owned(),
        archive: archive.path().display().to_string(),
        runtime: RuntimeReport { path: manifest.runtime.path.clone(), version: manifest.runtime.version },
        mode: "the recorded program".to_owned(),
        threads: u32::try_from(workers.len()).unwrap_or(u32::MAX),
        order: "capture".to_owned(),
        pace: "recorded".to_owned(),
        wall_ns,
        repetitions: vec![wall_ns],
        sections: vec![SectionReport { wall_ns, ..SectionReport::default() }],
        workers,
        caveats: vec![CAVEAT.to_owned()],
        ..RunReport::default()
    };
    if let Some(device) = manifest.devices.first() {
        report.device.name.clone_from(&device.name);
        report.device.arch.clone_from(&device.arch);
        report.device.pci_bus_id.clone_from(&device.pci_bus_id);
    }
    for (&id, histogram) in &apis {
        let api = &hrr_format::catalogue::APIS[usize::from(id)];
        let mut found = histogram.report(api.name);
        found.kind = kind_of(api);
        found.samples_ns = vec![histogram.total_ns()];
        found.p50_samples_ns = vec![histogram.p50_ns()];
        report.apis.push(found);
    }
    sort_by_time(&mut report.apis);
    report
}
