//! The run report: what a replay did and how long it took, as one JSON file.
//!
//! A field that is added later has a default, so that an older report stays readable; a change of meaning raises
//! [`SCHEMA_VERSION`].

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use hrr_cli::Unwritable;
use serde::{Deserialize, Serialize};

/// Version of the layout written here, and the newest that is read.
pub const SCHEMA_VERSION: u32 = 1;

/// One invocation of `hrr-playback`: one replay, or several of the same archive in the same way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunReport {
    /// Layout of this report, [`SCHEMA_VERSION`] when written.
    pub schema_version: u32,
    /// Version of the replayer that wrote the report.
    pub hrr_version: String,
    /// Path of the archive as given.
    pub archive: String,
    /// The HIP runtime.
    pub runtime: RuntimeReport,
    /// The device that the first captured device was mapped to.
    pub device: DeviceReport,
    /// How the replay ran, as printed: `4 worker threads, order capture`.
    pub mode: String,
    /// Number of workers that issued calls.
    pub threads: u32,
    /// Ordering rule: `capture`, `deps` or `program`.
    pub order: String,
    /// Where the workers were pinned, in words.
    pub placement: String,
    /// How host gaps between calls were kept: `asap`, `recorded`, or a factor such as `x2`.
    pub pace: String,
    /// What was timed, where it was not the whole archive: `events 100..200`.
    pub range: Option<String>,
    /// Wall time of the timed section: the median where there are several repetitions.
    pub wall_ns: u64,
    /// Planning and staging before the first call was issued, done once unless `planned_each_repetition`.
    pub setup_ns: u64,
    /// Destroying, after a repetition, what the archive leaves alive at its end: the median.
    pub teardown_ns: u64,
    /// Replays before the first repetition, which are not reported.
    pub warmup: u32,
    /// Whether every repetition was planned anew, because the archive exceeds the memory budget.
    pub planned_each_repetition: bool,
    /// Wall time of the timed section of each repetition, in the order they ran. Warm-up runs are not among them.
    pub repetitions: Vec<u64>,
    /// The sections of each repetition, in the same order.
    pub sections: Vec<SectionReport>,
    /// Durations of calls by API, over all repetitions, the most time first.
    pub apis: Vec<ApiReport>,
    /// Copies by API, direction and size, over all repetitions, the most time first.
    pub copies: Vec<CopyReport>,
    /// Kernels and graphs as the device ran them, over all repetitions, the most time first; with `--timing`.
    pub kernels: Vec<KernelReport>,
    /// How busy each stream was, over all repetitions; with `--timing`.
    pub streams: Vec<StreamReport>,
    /// What `--timing` itself cost.
    pub timing: Option<TimingReport>,
    /// What each worker spent its time on, over all repetitions.
    pub workers: Vec<WorkerReport>,
    /// Device results checked.
    pub d2h: D2hReport,
    /// Kernels launched per repetition.
    pub kernels_launched: u64,
    /// Graphs launched per repetition.
    pub graphs_launched: u64,
    /// Recorded calls that came out differently.
    pub events_failed: u64,
    /// Exit code of the replay.
    pub exit_code: i32,
    /// What is to be borne in mind when the report is compared with another.
    pub caveats: Vec<String>,
    /// What a replay that the watchdog ended was stuck in; `perf/schema/run-report.json` has its layout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watchdog: Option<serde_json::Value>,
}

/// The HIP runtime that a replay ran on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RuntimeReport {
    /// Path of the library that was loaded.
    pub path: String,
    /// What `hipRuntimeGetVersion` says.
    pub version: i32,
}

/// The device that a replay ran on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceReport {
    /// Marketing name.
    pub name: String,
    /// Architecture with features: `gfx942:sramecc+:xnack-`.
    pub arch: String,
    /// PCI bus id, empty where unknown.
    pub pci_bus_id: String,
}

/// What a call's duration is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallKind {
    /// Work of the runtime alone.
    #[default]
    Host,
    /// It hands work to the device and does not wait for it.
    Enqueue,
    /// It copies, and may or may not wait for that.
    Copy,
    /// It waits for the device.
    Wait,
}

/// Durations of one API's calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ApiReport {
    /// Name of the HIP entry point.
    pub name: String,
    /// What kind of call it is.
    pub kind: CallKind,
    /// Number of calls.
    pub count: u64,
    /// Sum of their durations, exact.
    pub total_ns: u64,
    /// Half of the calls took no longer; to the histogram's precision, as the other percentiles.
    pub p50_ns: u64,
    /// Nine of ten calls took no longer.
    pub p90_ns: u64,
    /// 99 of 100 calls took no longer.
    pub p99_ns: u64,
    /// The longest call, exact.
    pub max_ns: u64,
    /// Sum of the durations in each repetition, in the order of [`RunReport::repetitions`].
    pub samples_ns: Vec<u64>,
    /// Median duration in each repetition: what a typical call takes, however often the worker was interrupted.
    pub p50_samples_ns: Vec<u64>,
}

/// One repetition, section by section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SectionReport {
    /// Making the state fresh again, and replaying untimed what comes before the range.
    pub setup_ns: u64,
    /// The timed section.
    pub wall_ns: u64,
    /// Destroying what the archive leaves alive.
    pub teardown_ns: u64,
}

/// Copies of one API, one direction and one class of size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CopyReport {
    /// Name of the HIP entry point.
    pub api: String,
    /// Direction: `H2D`, `D2H`, `D2D` or `memset`.
    pub kind: String,
    /// Class of size: `<= 64 KiB`.
    pub size: String,
    /// Whether the call returns only when the copy is complete.
    pub blocking: bool,
    /// Number of copies.
    pub count: u64,
    /// Bytes copied.
    pub bytes: u64,
    /// Time inside the calls.
    pub host_ns: u64,
    /// Time between the events around the copies; with `--timing`.
    pub device_ns: Option<u64>,
    /// Bytes a second: by the device's time where it was taken, by the calls' where they block, else unknown.
    pub bytes_per_second: Option<f64>,
    /// Time in each repetition: the device's where it was taken, else the calls'.
    pub samples_ns: Vec<u64>,
    /// Time inside the calls in each repetition.
    pub host_samples_ns: Vec<u64>,
    /// Median time between the events around a copy, in each repetition; with `--timing`.
    pub p50_samples_ns: Vec<u64>,
}

impl CopyReport {
    /// The class as people say it: `hipMemcpyAsync H2D > 16 MiB`.
    pub fn label(&self) -> String {
        format!("{} {} {}", self.api, self.kind, self.size)
    }
}

/// One kernel, or the graphs, as the device ran them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KernelReport {
    /// Name of the kernel; `(graph)` for graph launches.
    pub name: String,
    /// Whether these are launches of graphs.
    pub graph: bool,
    /// Number of launches timed.
    pub count: u64,
    /// Sum of their durations.
    pub total_ns: u64,
    /// Half of the launches took no longer; to the histogram's precision, as the other percentiles.
    pub p50_ns: u64,
    /// Nine of ten launches took no longer.
    pub p90_ns: u64,
    /// 99 of 100 launches took no longer.
    pub p99_ns: u64,
    /// The longest launch.
    pub max_ns: u64,
    /// Sum of the durations in each repetition.
    pub samples_ns: Vec<u64>,
    /// Median duration in each repetition.
    pub p50_samples_ns: Vec<u64>,
}

/// One stream between its first and its last timed launch or copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamReport {
    /// The device's ordinal.
    pub device: i32,
    /// Number of the stream on its device, in order of first use.
    pub stream: u32,
    /// Launches and copies timed.
    pub operations: u64,
    /// Time in launches and copies.
    pub busy_ns: u64,
    /// Time between them.
    pub idle_ns: u64,
    /// Longest time between two of them.
    pub longest_gap_ns: u64,
}

/// What measuring by events cost, itself measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TimingReport {
    /// Launches and copies that had events around them.
    pub timed: u64,
    /// Launches and copies that had none, because events could not be made or recorded.
    pub untimed: u64,
    /// Time workers spent recording events, over all repetitions.
    pub host_overhead_ns: u64,
    /// Time between two events with nothing between them: contained in each duration.
    pub floor_ns: u64,
}

/// Where one worker's time went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerReport {
    /// Number of the worker, from 0.
    pub worker: u32,
    /// CPU that it was pinned to.
    pub cpu: Option<u32>,
    /// Calls that it issued.
    pub calls: u64,
    /// Time inside HIP calls.
    pub in_calls_ns: u64,
    /// Time inside blocking calls that were made beside the worker's other calls; not part of `total_ns`.
    pub beside_ns: u64,
    /// Time spent waiting for other workers' calls.
    pub waiting_ns: u64,
    /// Time spent waiting for calls to be planned and contents to be staged.
    pub staging_ns: u64,
    /// Time spent on host gaps of the program, with `--pace`.
    pub pacing_ns: u64,
    /// Time spent recording events, with `--timing`.
    pub events_ns: u64,
    /// Time of the timed sections, from their begin until the worker's last call.
    pub total_ns: u64,
    /// What is left of `total_ns`: the replayer's own code.
    pub own_ns: u64,
}

/// Device results checked against the recorded ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct D2hReport {
    /// Equal bytes.
    pub exact: u64,
    /// Within the tolerance.
    pub within: u64,
    /// Different.
    pub failed: u64,
    /// Nothing to compare.
    pub skipped: u64,
}

/// A report that could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The file cannot be written.
    #[error("{0}")]
    Unwritable(#[from] Unwritable),
    /// The file cannot be read.
    #[error("{} cannot be read: {source}; give a file that `hrr-playback --report` wrote, or an archive", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not a run report.
    #[error("{}: not a run report: {source}; `hrr-playback --report FILE` writes one", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Where it stops being one.
        source: serde_json::Error,
    },
    /// The file has a layout that this version does not know.
    #[error("{}: report layout {found}, this version reads 1 to {SCHEMA_VERSION}; use the hrr-perf of the version that wrote it", path.display())]
    Schema {
        /// The file.
        path: PathBuf,
        /// Its layout version.
        found: u32,
    },
    /// The report times nothing.
    #[error("{}: the report holds no wall time of any repetition", path.display())]
    NoRepetitions {
        /// The file.
        path: PathBuf,
    },
}

impl WorkerReport {
    /// Adds another worker's or repetition's time.
    pub fn add(&mut self, other: &WorkerReport) {
        self.calls += other.calls;
        self.in_calls_ns += other.in_calls_ns;
        self.beside_ns += other.beside_ns;
        self.waiting_ns += other.waiting_ns;
        self.staging_ns += other.staging_ns;
        self.pacing_ns += other.pacing_ns;
        self.events_ns += other.events_ns;
        self.total_ns += other.total_ns;
        self.own_ns += other.own_ns;
    }

    /// The same with `own_ns` filled in.
    pub fn with_own_time(mut self) -> Self {
        let accounted = self.in_calls_ns + self.waiting_ns + self.staging_ns + self.pacing_ns + self.events_ns;
        self.own_ns = self.total_ns.saturating_sub(accounted);
        self
    }
}

impl RunReport {
    /// Reads a report.
    ///
    /// # Errors
    /// The file cannot be read, is not a report, or is of a layout not known here.
    pub fn read(path: &Path) -> Result<Self, ReportError> {
        let text = fs::read(path).map_err(|source| ReportError::Io { path: path.to_owned(), source })?;
        let report: RunReport =
            serde_json::from_slice(&text).map_err(|source| ReportError::Json { path: path.to_owned(), source })?;
        match report.schema_version {
            // Other JSON, of which all that a report has beside is left to its defaults.
            0 => Err(ReportError::Json {
                path: path.to_owned(),
                source: serde::de::Error::custom("it has no schema_version"),
            }),
            1..=SCHEMA_VERSION => Ok(report),
            found => Err(ReportError::Schema { path: path.to_owned(), found }),
        }
    }

    /// Writes the report, as a whole or not at all: to a file beside `path`, then renamed. A device or a pipe, such as
    /// `/dev/null` and `/dev/stdout`, is written to as it is.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), ReportError> {
        let io = |reason| ReportError::from(Unwritable { path: path.to_owned(), reason });
        let mut text = serde_json::to_vec_pretty(self).map_err(|error| io(error.into()))?;
        text.push(b'\n');
        if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
            return fs::OpenOptions::new()
                .write(true)
                .open(path)
                .and_then(|mut file| file.write_all(&text))
                .map_err(io);
        }
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.new", std::process::id()));
        let beside = path.with_file_name(name);
        let written = fs::File::create(&beside)
            .and_then(|mut file| file.write_all(&text))
            .and_then(|()| fs::rename(&beside, path));
        written.map_err(|error| {
            // Best effort: the error that matters is the one being reported.
            let _ = fs::remove_file(&beside);
            io(error)
        })
    }

    /// Time inside calls of each repetition in nanoseconds, summed over threads.
    pub fn call_samples(&self) -> Vec<f64> {
        let repetitions = self.wall_samples().len();
        let mut sums = vec![0.0; repetitions];
        for api in &self.apis {
            for (sum, &ns) in sums.iter_mut().zip(&api.samples_ns) {
                *sum += ns as f64;
            }
        }
        sums
    }

    /// Wall times in nanoseconds to do statistics on: the repetitions, or the one wall time of a report without any.
    pub fn wall_samples(&self) -> Vec<f64> {
        match self.repetitions.as_slice() {
            [] if self.wall_ns > 0 => vec![self.wall_ns as f64],
            samples => samples.iter().map(|&ns| ns as f64).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_reads_back_as_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        let report = RunReport {
            schema_version: SCHEMA_VERSION,
            archive: "a.hrr".into(),
            repetitions: vec![3, 1, 2],
            apis: vec![ApiReport { name: "hipMalloc".into(), count: 2, ..Default::default() }],
            workers: vec![WorkerReport { worker: 0, cpu: Some(3), ..Default::default() }],
            d2h: D2hReport { exact: 12, within: 2, failed: 0, skipped: 1 },
            ..Default::default()
        };
        report.write(&path).unwrap();
        assert_eq!(RunReport::read(&path).unwrap(), report);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside the report");
    }

    #[test]
    fn missing_fields_have_defaults_and_unknown_ones_are_ignored() {
        let report: RunReport =
            serde_json::from_str(r#"{"schema_version":1,"wall_ns":7,"added_in_the_future":[1]}"#).unwrap();
        assert_eq!(report.wall_samples(), [7.0]);
        assert!(RunReport::default().wall_samples().is_empty());
    }

    #[test]
    fn a_pipe_is_written_to_and_stays_one() {
        use std::os::unix::fs::FileTypeExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let reader = std::thread::spawn({
            let path = path.clone();
            move || fs::read_to_string(path).unwrap()
        });
        RunReport { schema_version: SCHEMA_VERSION, wall_ns: 7, ..RunReport::default() }.write(&path).unwrap();
        assert!(reader.join().unwrap().contains("\"wall_ns\": 7"));
        assert!(fs::metadata(&path).unwrap().file_type().is_fifo());
    }

    #[test]
    fn what_is_not_a_report_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bad.json");
        for (text, reason) in [
            ("{", "not a run report"),
            ("[1,2]", "not a run report"),
            (r#"{"wall_ns":-1,"schema_version":1}"#, "not a run report"),
            (r#"{"schema_version":99}"#, "layout 99"),
            (r#"{"wall_ns":5}"#, "it has no schema_version"),
        ] {
            fs::write(&path, text).unwrap();
            let error = RunReport::read(&path).unwrap_err().to_string();
            assert!(error.contains("bad.json") && error.contains(reason), "{text}: {error}");
        }
        let error = RunReport::read(&folder.path().join("none.json")).unwrap_err().to_string();
        assert!(error.contains("none.json"), "{error}");
    }
}
