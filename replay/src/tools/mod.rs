//! What `hrr-playback` does to archives besides replaying and describing them: `--repair`, `--verify`, `--pack` and
//! `--unpack`. None of it needs a HIP runtime.

use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

use hrr_cli::Unwritable;
use hrr_format::archive::ArchiveError;
use hrr_format::packed::{PackedError, pack, unpack};
use hrr_format::repair::{Condition, being_recorded, repair};
use hrr_format::verify::{Report, verify, verify_packed};

use crate::info::printable;

/// Most faults of a process that are printed.
const FAULTS_SHOWN: usize = 100;

/// Whether an archive is as it should be, after what was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is.
    Good,
    /// It is not; lines were printed.
    Bad,
}

/// Why nothing could be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolError {
    /// There is no archive to work on.
    #[error("{0}")]
    Archive(#[from] ArchiveError),
    /// A packed archive cannot be read.
    #[error("{0}")]
    Packed(#[from] PackedError),
    /// The target could not be written.
    #[error("{0}")]
    Target(#[from] Unwritable),
    /// The output could not be written.
    #[error("the output cannot be written: {0}; send it elsewhere")]
    Output(#[from] io::Error),
}

/// Repairs what lies at a path and prints a line for each process.
///
/// # Errors
/// [`ToolError`].
pub fn run_repair(path: &Path, out: &mut dyn Write) -> Result<State, ToolError> {
    let mut state = State::Good;
    for process in repair(path)? {
        let word = match process.condition {
            Condition::Clean => "clean",
            Condition::Repaired => "repaired",
            Condition::Damaged => "cannot be repaired",
        };
        let separator = if process.notes.is_empty() { "" } else { ": " };
        let notes = process.notes.join("; ");
        writeln!(out, "[HRR] {}: {word}{separator}{}", printable(&process.name), printable(&notes))?;
        if process.condition == Condition::Damaged {
            state = State::Bad;
        }
    }
    Ok(state)
}

/// Checks what lies at a path and prints what is wrong with each process.
///
/// # Errors
/// [`ToolError`].
pub fn run_verify(path: &Path, out: &mut dyn Write) -> Result<State, ToolError> {
    let is_under_way = tell_being_recorded(path, "what it records from now on is not looked at", out)?;
    let mut state = State::Good;
    let packed = verify_packed(path).err().map(|error| error.to_string());
    if let Some(error) = &packed {
        writeln!(out, "[HRR] {}", printable(error))?;
        state = State::Bad;
    }
    let reports = match verify(path) {
        // The same once more.
        Err(error) if packed == Some(error.to_string()) => Vec::new(),
        reports => reports?,
    };
    for (name, report) in reports {
        let Report { streams, records, contents, content_bytes, lost, faults } = &report;
        let verdict = match faults.len() {
            0 => "good".to_owned(),
            1 => "1 fault".to_owned(),
            count => format!("{count} faults"),
        };
        writeln!(
            out,
            "[HRR] {}: {verdict} ({records} records in {streams} streams, {contents} contents of {content_bytes} bytes)",
            printable(&name)
        )?;
        if *lost > 0 {
            let what = if is_under_way { "are not stored yet" } else { "were lost with the process" };
            writeln!(out, "[HRR]   {lost} references to contents that {what}")?;
        }
        for fault in faults.iter().take(FAULTS_SHOWN) {
            writeln!(out, "[HRR]   {}", printable(fault))?;
        }
        if faults.len() > FAULTS_SHOWN {
            writeln!(out, "[HRR]   and {} more", faults.len() - FAULTS_SHOWN)?;
        }
        if !faults.is_empty() {
            state = State::Bad;
        }
    }
    writeln!(out, "[HRR] {}", if state == State::Good { "VERIFIED" } else { "NOT VERIFIED" })?;
    Ok(state)
}

/// Says of each process that still records to the archive what comes of it, and whether there is one.
///
/// # Errors
/// Of the output.
pub(crate) fn tell_being_recorded(archive: &Path, outcome: &str, out: &mut dyn Write) -> io::Result<bool> {
    let pids = being_recorded(archive);
    for pid in &pids {
        writeln!(out, "[HRR] warning: process {pid} is still recording it: {outcome}")?;
    }
    Ok(!pids.is_empty())
}

/// Packs an archive into one file.
///
/// # Errors
/// [`ToolError`].
pub fn run_pack(archive: &Path, target: &Path, out: &mut dyn Write) -> Result<(), ToolError> {
    let begun = Instant::now();
    tell_being_recorded(archive, "what it records from now on is not packed", out)?;
    let packed = pack(archive, target).map_err(|error| match error {
        ArchiveError::Packed(error) => of_target(error, target),
        error => error.into(),
    })?;
    let ratio = packed.file_bytes as f64 / packed.packed_bytes.max(1) as f64;
    writeln!(
        out,
        "[HRR] Packed {} files of {} bytes into {}: {} bytes ({ratio:.2} to 1) in {:.3} s",
        packed.files,
        packed.file_bytes,
        printable(&target.display().to_string()),
        packed.packed_bytes,
        begun.elapsed().as_secs_f64()
    )?;
    if packed.left_out > 0 {
        writeln!(out, "[HRR] Left out {}: links, or nothing that an archive holds", packed.left_out)?;
    }
    Ok(())
}

/// An error of packing or unpacking: where it is the target's, with what to do about it.
fn of_target(error: PackedError, target: &Path) -> ToolError {
    match error {
        PackedError::Io { path, reason } if path.starts_with(target) => Unwritable { path, reason }.into(),
        error => error.into(),
    }
}

/// Unpacks a packed archive into a new directory.
///
/// # Errors
/// [`ToolError`].
pub fn run_unpack(archive: &Path, target: &Path, out: &mut dyn Write) -> Result<(), ToolError> {
    let begun = Instant::now();
    let unpacked = unpack(archive, target).map_err(|error| of_target(error, target))?;
    writeln!(
        out,
        "[HRR] Unpacked {} files of {} bytes into {} in {:.3} s",
        unpacked.files,
        unpacked.file_bytes,
        printable(&target.display().to_string()),
        begun.elapsed().as_secs_f64()
    )?;
    Ok(())
}
