//! The two manifests: one of a process archive, one of the root that holds them.
//!
//! A process manifest is written when capture starts, with `complete` false, and replaced when the process ends. It
//! lists the catalogue's API names in record-id order, which is what makes an archive readable by another build. The
//! root manifest is an index for people and tools: readers look at the `pid-*` directories themselves.
//!
//! Keys that a reader does not know are ignored, and keys that a writer of the same version did not have yet are
//! filled with their defaults.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::io;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::files;
use crate::source::Source;
use crate::stream_file::ContentsMode;

/// File name of both manifests.
pub const FILE: &str = "manifest.json";
/// Value of `format` in a process manifest.
pub const FORMAT: &str = "hrr-native";
/// Version of a process archive that this build writes and reads.
pub const VERSION: u32 = 1;
/// Version of the root manifest.
pub const ROOT_VERSION: u32 = 1;
/// Longest manifest in bytes that a reader loads.
pub const MAX_BYTES: u64 = 64 << 20;
/// Environment variables in which launchers give a process its rank, in order of preference: Slurm, Open MPI, MVAPICH2, PALS, PMI.
pub const RANK_VARIABLES: [&CStr; 5] =
    [c"SLURM_PROCID", c"OMPI_COMM_WORLD_RANK", c"MV2_COMM_WORLD_RANK", c"PALS_RANKID", c"PMI_RANK"];

/// The clock that ticks are read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClockKind {
    /// The invariant time stamp counter.
    Tsc,
    /// `CLOCK_MONOTONIC`, one tick a nanosecond.
    Monotonic,
}

/// How ticks turn into time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// What was read.
    pub kind: ClockKind,
    /// Rate; zero reads as one tick a nanosecond.
    pub ticks_per_second: u64,
    /// Tick at the start of the capture.
    pub tick_at_start: u64,
    /// Wall clock at the same moment, in nanoseconds since 1970.
    pub unix_ns_at_start: u64,
    /// `CLOCK_MONOTONIC` at the same moment in ns, where ticks are of another clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub monotonic_ns_at_start: Option<u64>,
}

impl Default for Clock {
    fn default() -> Self {
        Clock {
            kind: ClockKind::Monotonic,
            ticks_per_second: 1_000_000_000,
            tick_at_start: 0,
            unix_ns_at_start: 0,
            monotonic_ns_at_start: None,
        }
    }
}

impl Clock {
    /// A span of ticks in nanoseconds.
    pub fn ticks_to_ns(&self, ticks: u64) -> u64 {
        let rate = if self.ticks_per_second == 0 { 1_000_000_000 } else { self.ticks_per_second };
        let ns = u128::from(ticks) * 1_000_000_000 / u128::from(rate);
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// `CLOCK_MONOTONIC` in ns at a tick, the time that other tools give what they write beside an archive; `None` where
    /// the recording does not say how its ticks relate to it.
    pub fn monotonic_ns(&self, tick: u64) -> Option<u64> {
        match (self.kind, self.monotonic_ns_at_start) {
            (_, Some(start)) if tick >= self.tick_at_start => Some(start.saturating_add(self.ns_since_start(tick))),
            (_, Some(start)) => Some(start.saturating_sub(self.ticks_to_ns(self.tick_at_start - tick))),
            (ClockKind::Monotonic, None) => Some(self.ticks_to_ns(tick)),
            (ClockKind::Tsc, None) => None,
        }
    }

    /// Nanoseconds from the start of the capture to a tick; zero for an earlier tick.
    pub fn ns_since_start(&self, tick: u64) -> u64 {
        self.ticks_to_ns(tick.saturating_sub(self.tick_at_start))
    }
}

/// The HIP runtime that was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Runtime {
    /// File it was loaded from.
    pub path: String,
    /// `hipRuntimeGetVersion`.
    pub version: i32,
}

/// A device the recorded process saw.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Device {
    /// Ordinal in the process.
    pub ordinal: i32,
    /// Marketing name.
    pub name: String,
    /// Architecture with its features (`gcnArchName`).
    pub arch: String,
    /// Device memory in bytes.
    pub total_global_mem_bytes: u64,
    /// PCI bus address.
    pub pci_bus_id: String,
}

/// Manifest of one recorded process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessManifest {
    /// [`FORMAT`].
    pub format: String,
    /// [`VERSION`].
    pub version: u32,
    /// Process id.
    pub pid: u64,
    /// Its parent's id.
    #[serde(default)]
    pub parent_pid: u64,
    /// Whether the process ended in a way that let capture finish. Counts are only final when it did.
    #[serde(default)]
    pub complete: bool,
    /// Why the recording ended before its process, where it did and the process lived to tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
    /// What was recorded.
    #[serde(with = "contents_word")]
    pub contents: ContentsMode,
    /// Recorded calls.
    #[serde(default)]
    pub event_count: u64,
    /// Blob numbers given out.
    #[serde(default)]
    pub blob_count: u64,
    /// Code objects.
    #[serde(default)]
    pub code_object_count: u64,
    /// Numbers that have contents in the stores. `None` until the recording ends, and in archives of older recorders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<StoredNumbers>,
    /// Kernels.
    #[serde(default)]
    pub kernel_count: u64,
    /// Captured threads.
    #[serde(default)]
    pub thread_count: u64,
    /// Clock of the ticks.
    #[serde(default)]
    pub clock: Clock,
    /// The runtime, once known.
    #[serde(default)]
    pub runtime: Runtime,
    /// The devices, once known.
    #[serde(default)]
    pub devices: Vec<Device>,
    /// Command line.
    #[serde(default)]
    pub command: Vec<String>,
    /// Version of the recorder.
    #[serde(default)]
    pub capture_version: String,
    /// Launches whose arguments could not be sized for want of metadata.
    #[serde(default)]
    pub unsized_launches: u64,
    /// Host memory that devices use directly.
    #[serde(default)]
    pub host_snapshots: HostSnapshots,
    /// Rank of the process in its job, where a launcher gave it one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u64>,
    /// What the recorder was told to record, where that is only a window of the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
    /// Most bytes of stream files that a flight recorder keeps, where it is one: the last calls of each thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flight_recorder_bytes: Option<u64>,
    /// API names in record-id order.
    pub apis: Vec<String>,
    /// What was found when the archive was converted from another format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imported: Option<Imported>,
}

/// What was recorded of host memory that devices use directly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostSnapshots {
    /// Whether what the host stores there was recorded.
    pub recorded: bool,
    /// Ranges that were recorded.
    pub ranges: u64,
    /// Chunks that had changed before a launch and were left alone, because work in flight may have written them.
    pub unordered: u64,
    /// Allocations that were not looked through because of their size.
    pub too_large: u64,
}

/// A recording of only a part of what a program did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Window {
    /// What opens and closes it, as `HIP_HRR_CAPTURE_WINDOW` said.
    pub trigger: String,
    /// How often it was opened.
    pub opened: u64,
    /// Records in front of the first window that bring about what there was when it was opened
    /// ([`flag::PREAMBLE`](crate::record::flag::PREAMBLE)).
    pub preamble_calls: u64,
    /// Bytes of device memory whose contents were read back when windows were opened.
    pub restored_bytes: u64,
    /// Allocations, arrays and variables whose contents could not be read back: what a replay finds in them is undefined.
    pub unrestored: u64,
    /// Whether each thread pushes, at its first call in a window, the contexts that it had on its stack.
    pub contexts: bool,
}

/// What a conversion from another format found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Imported {
    /// The format: `in-tree`, for the archives of AMD's in-tree HRR.
    pub format: String,
    /// Its version.
    pub version: u32,
    /// Its header flags.
    pub flags: u32,
    /// Entries of the recorded runtime's dispatch table, behind which the compiler's entry points are numbered.
    pub runtime_entries: u32,
    /// What that was concluded from.
    pub id_evidence: String,
    /// Whether the recording was seen to its end.
    pub complete: bool,
    /// Records of the original.
    pub events: u64,
    /// Calls that were added, by entry point.
    pub added: BTreeMap<String, u64>,
    /// Calls that replay leaves out, by entry point and reason.
    pub left_out: BTreeMap<String, u64>,
    /// Calls that replay refuses, by entry point and reason.
    pub refused: BTreeMap<String, u64>,
    /// Records of entry points that this build does not know, by event id.
    pub unknown_events: BTreeMap<u32, u64>,
    /// Snapshots of pinned host memory that replay restores.
    pub snapshots_restored: u64,
    /// Snapshots of memory that no recorded call pinned.
    pub snapshots_refused: u64,
    /// What else is worth knowing.
    pub warnings: Vec<String>,
}

/// How many numbers have contents in each store: a number has none where nothing was there to be stored, such as a result that the
/// program never waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StoredNumbers {
    /// Of blobs.
    pub blobs: u64,
    /// Of code objects.
    pub code_objects: u64,
}

/// One process as the root manifest lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RootProcess {
    /// Process id.
    pub pid: u64,
    /// Its parent's id.
    pub parent_pid: u64,
    /// Whether it was recorded to its end.
    pub complete: bool,
    /// Recorded calls.
    pub event_count: u64,
    /// Blob numbers given out.
    pub blob_count: u64,
}

/// Manifest of an archive root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootManifest {
    /// [`ROOT_VERSION`].
    pub version: u32,
    /// How capture got into the process: `preload` or `rocprofiler-register`.
    #[serde(default)]
    pub capture_mode: String,
    /// The process that made the root.
    #[serde(default)]
    pub owner_pid: u64,
    /// The processes known when it was written.
    #[serde(default)]
    pub processes: Vec<RootProcess>,
}

impl ProcessManifest {
    /// Reads a process manifest.
    ///
    /// # Errors
    /// Why the file is not a manifest that this build reads.
    pub fn read(path: &Path) -> Result<Self, ManifestError> {
        Self::parse(path, &read(&Source::Directory, path)?)
    }

    pub(crate) fn read_from(source: &Source, path: &Path) -> Result<Self, ManifestError> {
        Self::parse(path, &read(source, path)?)
    }

    /// Reads the bytes of a process manifest; `path` is what errors name.
    ///
    /// # Errors
    /// Why the bytes are not a manifest that this build reads.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self, ManifestError> {
        let header: Header = parse_json(path, bytes)?;
        if header.format != FORMAT {
            return Err(ManifestError::Format { path: path.to_owned(), found: header.format });
        }
        check_version(path, header.version, VERSION)?;
        parse_json(path, bytes)
    }

    /// Writes the manifest in place of the one that is there: to a temporary file, then by rename.
    ///
    /// # Errors
    /// The system's reason.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        write_json(self, path)
    }
}

impl RootManifest {
    /// Reads a root manifest.
    ///
    /// # Errors
    /// Why the file is not a manifest that this build reads.
    pub fn read(path: &Path) -> Result<Self, ManifestError> {
        Self::read_from(&Source::Directory, path)
    }

    pub(crate) fn read_from(source: &Source, path: &Path) -> Result<Self, ManifestError> {
        Self::parse(path, &read(source, path)?)
    }

    /// As [`Self::read`], for bytes that came from elsewhere; `path` is for messages.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self, ManifestError> {
        let header: Header = parse_json(path, bytes)?;
        check_version(path, header.version, ROOT_VERSION)?;
        parse_json(path, bytes)
    }

    /// Writes the manifest in place of the one that is there: to a temporary file, then by rename.
    ///
    /// # Errors
    /// The system's reason.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        write_json(self, path)
    }
}

/// Why a manifest cannot be read. Every message names the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// The file could not be read.
    #[error("{} cannot be read: {reason}; {}", path.display(), remedy(reason))]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        reason: io::Error,
    },
    /// The file is not JSON with the keys of a manifest.
    #[error("{} is not a manifest: {reason}; copy the archive again, whole, or have --repair make one", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// What is wrong, with line and column.
        reason: serde_json::Error,
    },
    /// The manifest is of another kind of archive.
    #[error(
        "{} describes an archive of format {found:?}; this build reads {FORMAT:?}: use the hrr-playback that came with the recorder",
        path.display()
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: String,
    },
    /// The manifest is of another version.
    #[error("{} is of version {found}; this build reads version {known}: use the hrr-playback that came with the recorder", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The version this build reads.
        known: u32,
    },
}

fn remedy(reason: &io::Error) -> &'static str {
    match reason.kind() {
        io::ErrorKind::PermissionDenied => "read it as its owner: archives are made for that user alone",
        _ => "copy the archive again, whole, or have --repair make one",
    }
}

/// What must be looked at before the rest can be trusted to mean what it seems to.
#[derive(Deserialize)]
struct Header {
    #[serde(default)]
    format: String,
    version: u32,
}

fn check_version(path: &Path, found: u32, known: u32) -> Result<(), ManifestError> {
    if found == known { Ok(()) } else { Err(ManifestError::Version { path: path.to_owned(), found, known }) }
}

fn read(source: &Source, path: &Path) -> Result<Vec<u8>, ManifestError> {
    source.read(path, MAX_BYTES).map_err(|reason| ManifestError::Open { path: path.to_owned(), reason })
}

fn parse_json<T: DeserializeOwned>(path: &Path, bytes: &[u8]) -> Result<T, ManifestError> {
    serde_json::from_slice(bytes).map_err(|reason| ManifestError::Json { path: path.to_owned(), reason })
}

fn write_json<T: Serialize>(value: &T, path: &Path) -> io::Result<()> {
    let mut bytes = serde_json::to_vec_pretty(value)?;
    bytes.push(b'\n');
    files::replace(path, &bytes)
}

mod contents_word {
    use super::*;

    pub(super) fn serialize<S: Serializer>(mode: &ContentsMode, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(mode.as_str())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ContentsMode, D::Error> {
        let word = String::deserialize(deserializer)?;
        [ContentsMode::Contents, ContentsMode::MetadataOnly]
            .into_iter()
            .find(|mode| mode.as_str() == word)
            .ok_or_else(|| serde::de::Error::custom(format!("contents mode {word:?} is none")))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const MINIMAL: &str =
        r#"{"format":"hrr-native","version":1,"pid":7,"contents":"metadata-only","apis":["hipMalloc"],"new_key":[]}"#;

    fn read(text: &str) -> Result<ProcessManifest, ManifestError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        fs::write(&path, text).unwrap();
        ProcessManifest::read(&path)
    }

    #[test]
    fn a_manifest_survives_writing_and_leaves_no_temporary_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let manifest = ProcessManifest {
            parent_pid: 6,
            complete: true,
            contents: ContentsMode::Contents,
            event_count: 12,
            clock: Clock {
                kind: ClockKind::Tsc,
                ticks_per_second: 3,
                tick_at_start: 4,
                unix_ns_at_start: 5,
                monotonic_ns_at_start: Some(6),
            },
            devices: vec![Device { ordinal: 1, arch: "gfx942".into(), ..Device::default() }],
            command: vec!["./app".into(), "--x".into()],
            ..read(MINIMAL).unwrap()
        };
        fs::write(&path, "old").unwrap();
        manifest.write(&path).unwrap();
        assert_eq!(ProcessManifest::read(&path).unwrap(), manifest);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("\n  \"contents\": \"contents\",\n") && text.contains("\"kind\": \"tsc\""), "{text}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn missing_keys_have_defaults_and_unknown_ones_are_ignored() {
        let manifest = read(MINIMAL).unwrap();
        assert!(!manifest.complete);
        assert_eq!(manifest.contents, ContentsMode::MetadataOnly);
        assert_eq!(manifest.clock.kind, ClockKind::Monotonic);
    }

    #[test]
    fn what_is_wrong_is_named_with_the_file() {
        for (text, expected) in [
            (MINIMAL.replace("\"version\":1", "\"version\":2"), "is of version 2; this build reads version 1"),
            (MINIMAL.replace("hrr-native", "other"), "format \"other\""),
            (MINIMAL.replace("metadata-only", "some"), "contents mode \"some\" is none"),
            ("{".to_owned(), "is not a manifest: EOF"),
        ] {
            let message = read(&text).unwrap_err().to_string();
            assert!(message.contains(expected) && message.contains(FILE), "{message}");
        }
    }

    #[test]
    fn a_root_manifest_lists_its_processes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let text = r#"{"version":1,"capture_mode":"preload","owner_pid":7,"processes":[{"pid":7,"event_count":3}]}"#;
        fs::write(&path, text).unwrap();
        let root = RootManifest::read(&path).unwrap();
        assert_eq!(root.processes, [RootProcess { pid: 7, event_count: 3, ..RootProcess::default() }]);
        root.write(&path).unwrap();
        assert_eq!(RootManifest::read(&path).unwrap(), root);
    }

    #[test]
    fn ticks_turn_into_time_without_overflow() {
        let clock = Clock { ticks_per_second: 2_000_000_000, tick_at_start: 100, ..Clock::default() };
        assert_eq!(clock.ns_since_start(300), 100);
        assert_eq!(clock.ns_since_start(0), 0);
        assert_eq!(Clock { ticks_per_second: 1, ..clock }.ticks_to_ns(u64::MAX), u64::MAX);
        assert_eq!(Clock { ticks_per_second: 0, ..clock }.ticks_to_ns(5), 5);
        assert_eq!(Clock { kind: ClockKind::Tsc, ..clock }.monotonic_ns(104), None);
        assert_eq!(Clock::default().monotonic_ns(104), Some(104));
        let related = Clock { kind: ClockKind::Tsc, monotonic_ns_at_start: Some(1000), ..clock };
        assert_eq!((related.monotonic_ns(104), related.monotonic_ns(96)), (Some(1002), Some(998)));
    }
}
