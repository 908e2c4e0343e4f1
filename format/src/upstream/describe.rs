//! What can be told of an archive whose records cannot be read.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use super::archive::{UpstreamArchive, UpstreamError};

/// Lines on a process archive of any version: how many records of which kind and thread it has.
///
/// # Errors
/// Why it is no upstream archive at all.
pub fn describe(process: &Path) -> Result<String, UpstreamError> {
    let archive = UpstreamArchive::open_any_version(process)?;
    let mut threads: BTreeMap<u64, u64> = BTreeMap::new();
    let mut kinds: BTreeMap<(u16, usize), u64> = BTreeMap::new();
    let mut times = None::<(u64, u64)>;
    for event in archive.events() {
        *threads.entry(event.tid).or_default() += 1;
        *kinds.entry((event.id, event.bytes.len())).or_default() += 1;
        let (first, last) = times.unwrap_or((event.time_ns, event.time_ns));
        times = Some((first.min(event.time_ns), last.max(event.time_ns)));
    }
    let header = archive.header();
    let mut text = String::new();
    let mut line = |label: &str, value: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "[HRR] {label:<13}: {value}");
    };
    line("Archive", process.display().to_string());
    line("Format", format!("in-tree HRR, version {} (flags {:#06x})", header.version, header.flags));
    line("Complete", if archive.complete() { "yes" } else { "no" }.to_owned());
    line("Events", archive.len().to_string());
    line(
        "Threads",
        threads.iter().map(|(tid, count)| format!("{tid} ({count} events)")).collect::<Vec<_>>().join(", "),
    );
    if let Some((first, last)) = times {
        line("Recorded", format!("{:.3} ms", (last - first) as f64 / 1e6));
    }
    line("Process", format!("{} (parent {})", archive.manifest().pid, archive.manifest().parent_pid));
    for warning in archive.warnings().iter().chain(archive.regions().faults()) {
        line("Warning", warning.clone());
    }
    let _ = writeln!(text, "\n[HRR] Events by number and size:\n  Event   Bytes   Count");
    for ((id, len), count) in kinds {
        let _ = writeln!(text, "{id:>7} {len:>7} {count:>7}");
    }
    Ok(text)
}
