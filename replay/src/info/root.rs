//! The processes of an archive root.

use std::io::{self, Write};

use hrr_format::archive::{Archive, ArchiveRoot, Damaged, Process};
use hrr_format::record::marker;
use hrr_format::repair::being_recorded;
use serde::Serialize;

use super::SCHEMA_VERSION;
use super::arguments::printable;
use super::table::{self, Align};

/// A root's listing. The names of the fields are the keys of the JSON that is printed.
#[derive(Debug, Serialize)]
pub(super) struct Listing {
    schema_version: u32,
    root: String,
    capture_mode: String,
    owner_pid: Option<u64>,
    processes: Vec<Listed>,
}

#[derive(Debug, Serialize)]
struct Listed {
    pid: u64,
    parent_pid: Option<u64>,
    complete: bool,
    /// Whether the process is still recording it.
    being_recorded: bool,
    events: u64,
    blobs: u64,
    path: String,
    /// Why the process cannot be read, or what is wrong with its archive.
    problems: Vec<String>,
}

impl Listing {
    /// Looks at each process. The manifest of one that did not end well has no counts, so its streams are counted.
    pub(super) fn collect(root: &ArchiveRoot) -> Self {
        let manifest = root.manifest.as_ref().ok();
        Listing {
            schema_version: SCHEMA_VERSION,
            root: root.path.display().to_string(),
            capture_mode: manifest.map_or_else(String::new, |manifest| manifest.capture_mode.clone()),
            owner_pid: manifest.map(|manifest| manifest.owner_pid),
            processes: root.processes.iter().map(list).collect(),
        }
    }

    /// Whether every process could be read.
    pub(super) fn is_whole(&self) -> bool {
        self.processes.iter().all(|process| process.problems.is_empty())
    }

    pub(super) fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "[HRR] Archive root : {}", printable(&self.root))?;
        if !self.capture_mode.is_empty() {
            writeln!(out, "[HRR] Capture mode : {}", printable(&self.capture_mode))?;
        }
        if let Some(owner) = self.owner_pid {
            writeln!(out, "[HRR] Owner PID    : {owner}")?;
        }
        writeln!(out, "[HRR] Processes    : {}", self.processes.len())?;
        writeln!(out)?;
        let columns = [
            ("PID", Align::Right),
            ("Parent PID", Align::Right),
            ("Complete", Align::Left),
            ("Events", Align::Right),
            ("Blobs", Align::Right),
            ("Path", Align::Left),
        ];
        let rows = self.processes.iter().map(|process| {
            vec![
                process.pid.to_string(),
                process.parent_pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
                match (process.complete, process.being_recorded) {
                    (true, _) => "yes",
                    (false, true) => "not yet",
                    (false, false) => "no",
                }
                .to_owned(),
                process.events.to_string(),
                process.blobs.to_string(),
                printable(&process.path).into_owned(),
            ]
        });
        table::write(&columns, rows, out)?;
        for problem in self.processes.iter().flat_map(|process| &process.problems) {
            writeln!(out, "[HRR] Warning: {}", printable(problem))?;
        }
        Ok(())
    }
}

fn list(process: &Process) -> Listed {
    let manifest = process.manifest.as_ref().ok();
    let mut listed = Listed {
        pid: process.pid,
        parent_pid: manifest.map(|manifest| manifest.parent_pid),
        complete: manifest.is_some_and(|manifest| manifest.complete),
        being_recorded: manifest.is_some_and(|manifest| !manifest.complete)
            && !being_recorded(&process.path).is_empty(),
        events: manifest.map_or(0, |manifest| manifest.event_count),
        blobs: manifest.map_or(0, |manifest| manifest.blob_count),
        path: process.path.display().to_string(),
        problems: Vec::new(),
    };
    match Archive::open_with(&process.path, Damaged::Tolerate) {
        Ok(archive) => {
            listed.problems = archive.warnings().iter().map(ToString::to_string).collect();
            if !listed.complete {
                let records = archive.streams().iter().flat_map(|stream| stream.records());
                listed.events = records.filter(|record| record.api() < marker::FIRST).count() as u64;
                listed.blobs = archive.blobs().len() as u64;
            }
        }
        Err(error) => listed.problems.push(error.to_string()),
    }
    listed
}
