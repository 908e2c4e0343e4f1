//! Upstream's manifests and the state that a writer leaves while it runs.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use crate::files;

/// File name of the writer's state, there while a capture runs or after it was killed.
pub const WRITER_STATE_FILE: &str = "writer_state.json";
/// Longest manifest that is read, in bytes.
const MAX_BYTES: u64 = 16 << 20;

/// `manifest.json` of a process.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ProcessManifest {
    /// Process id.
    pub pid: u64,
    /// Its parent's id.
    pub parent_pid: u64,
    /// Whether the writer got to its end.
    pub complete: bool,
    /// Records.
    pub event_count: u64,
    /// Blobs and code objects.
    pub blob_count: u64,
    /// Whether pinned host memory was snapshotted.
    pub host_snapshots: Option<bool>,
    /// Chunks snapshotted.
    pub host_snapshot_chunks: Option<u64>,
    /// Snapshots taken while the device could write the memory.
    pub host_snapshots_unordered: Option<u64>,
    /// Entry points that upstream cannot replay, with reasons.
    pub unreplayable_apis: BTreeMap<String, Vec<String>>,
    /// The machine.
    pub metadata: Option<Metadata>,
}

/// The machine that was recorded.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Metadata {
    /// Runtime versions.
    pub runtime: RuntimeMetadata,
    /// Devices.
    pub devices: Vec<DeviceMetadata>,
}

/// Runtime versions.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct RuntimeMetadata {
    /// `major.minor.patch`.
    pub hip_runtime_version: String,
}

/// A device.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct DeviceMetadata {
    /// Ordinal in the process.
    pub ordinal: i32,
    /// What it says of itself.
    pub properties: DeviceProperties,
}

/// What a device says of itself, as far as it is carried over.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct DeviceProperties {
    /// Marketing name.
    pub name: String,
    /// Architecture with its features.
    pub gcn_arch_name: String,
    /// Device memory in bytes.
    pub total_global_mem: u64,
    /// `domain:bus:device`.
    pub pci: String,
}

/// `writer_state.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct WriterState {
    /// Next sequence number.
    pub next_seq: u64,
    /// Records written.
    pub event_count: u64,
    /// Contents written.
    pub blob_count: u64,
    /// Size of `events.bin` in bytes that these counts are of.
    pub events_file_size: u64,
}

/// A file read as JSON: `None` where it is not there, a reason where it is no such JSON.
pub(super) fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Option<T>, String> {
    match files::read(path, MAX_BYTES) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| format!("{}: {error}", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// `hipRuntimeGetVersion` of `major.minor.patch`, as HIP makes it since release 4.
pub(super) fn runtime_version(text: &str) -> i32 {
    let mut parts = text.split('.').map(|part| part.parse::<i32>().unwrap_or(0));
    let mut next = || parts.next().unwrap_or(0).clamp(0, 99_999);
    let (major, minor, patch) = (next().min(99), next().min(99), next());
    major * 10_000_000 + minor * 100_000 + patch
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_version_becomes_hip_s_number() {
        assert_eq!(runtime_version("7.1.25424"), 70_125_424);
        assert_eq!(runtime_version(""), 0);
    }

    #[test]
    fn a_manifest_reads_with_and_without_what_newer_versions_added() {
        let old: ProcessManifest = serde_json::from_str(r#"{"pid": 7, "complete": true, "event_count": 3}"#).unwrap();
        assert_eq!((old.pid, old.complete, old.event_count, old.host_snapshots), (7, true, 3, None));
        let new = r#"{"pid": 7, "host_snapshots": true, "unreplayable_apis": {"hipLaunchHostFunc": ["a"]},
            "metadata": {"runtime": {"hip_runtime_version": "7.1.2"}, "devices": [{"ordinal": 1, "properties": {"name": "X"}}]}}"#;
        let new: ProcessManifest = serde_json::from_str(new).unwrap();
        assert_eq!(new.unreplayable_apis["hipLaunchHostFunc"], ["a"]);
        assert_eq!(new.metadata.unwrap().devices[0].properties.name, "X");
    }
}
