//! The rows: what is measured, against what, and what it is to be.

pub mod capture;
pub mod lttng;
pub mod parts;
pub mod replay;

use std::path::Path;
use std::sync::Arc;

use hrr_replay::machine::runtime::Runtime;

use crate::program::Built;
use crate::table::Row;

/// What a measurement needs.
#[derive(Debug)]
pub struct Bench {
    /// The programs.
    pub built: Built,
    /// The runtime whose calls do nothing, in this process.
    pub runtime: Arc<Runtime>,
    /// Interleaved repetitions of each row.
    pub repetitions: usize,
    /// Divides what is counted in millions.
    pub shrink: u64,
}

/// A group of rows that is measured together.
#[derive(Debug)]
pub struct Group {
    /// Name for `--only`.
    pub name: &'static str,
    /// Whether it is measured only when named: it takes minutes, or gigabytes.
    pub only_named: bool,
    /// Measures the rows.
    pub measure: fn(&Bench) -> Result<Vec<Row>, String>,
}

/// All groups, in the order of the table.
pub const GROUPS: &[Group] = &[
    Group { name: "calls", only_named: false, measure: capture::calls },
    Group { name: "lttng", only_named: false, measure: lttng::lttng },
    Group { name: "workloads", only_named: false, measure: capture::workloads },
    Group { name: "contents", only_named: false, measure: capture::contents },
    Group { name: "size", only_named: false, measure: capture::size },
    Group { name: "loop", only_named: false, measure: replay::call_loop },
    Group { name: "threads", only_named: false, measure: replay::threads },
    Group { name: "watchdog", only_named: false, measure: replay::watchdog },
    Group { name: "copies", only_named: false, measure: replay::copies },
    Group { name: "crowd", only_named: false, measure: replay::crowd },
    Group { name: "plan", only_named: false, measure: parts::plan },
    Group { name: "edges", only_named: false, measure: parts::edges },
    Group { name: "checks", only_named: false, measure: parts::checks },
    Group { name: "pack", only_named: false, measure: parts::pack },
    Group { name: "open", only_named: false, measure: parts::open },
    Group { name: "huge", only_named: true, measure: parts::huge },
];

/// Bytes of all files under a folder.
fn bytes_under(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => bytes_under(&entry.path()),
            Ok(_) => entry.metadata().map_or(0, |metadata| metadata.len()),
            Err(_) => 0,
        })
        .sum()
}
