//! Where a diagnosis goes: to standard error as text, and to files as JSON.

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;

use hrr_perf::report::RunReport;

use super::{Diagnosis, HangHandler};
use crate::run::watchdog::EXIT_CODE;

/// Files that a diagnosis is written to.
#[derive(Debug, Default)]
pub struct Files {
    /// The diagnosis alone.
    pub triage: Option<PathBuf>,
    /// A run report that holds it, with what is known of the run before it begins.
    pub report: Option<(PathBuf, RunReport)>,
}

/// Prints the diagnosis, and writes it where it was asked for.
pub fn handler(files: Files) -> HangHandler {
    HangHandler::new(move |diagnosis| {
        let mut err = std::io::stderr().lock();
        if err.is_terminal() {
            // Over the progress line.
            let _ = err.write_all(b"\r\x1b[K");
        }
        let _ = err.write_all(diagnosis.to_string().as_bytes());
        if let Some(file) = &files.triage {
            let json = serde_json::to_vec_pretty(diagnosis).map_err(std::io::Error::from);
            if let Err(error) = json.and_then(|json| std::fs::write(file, json)) {
                let _ = writeln!(err, "[HRR] {}", hrr_cli::Unwritable::at(file)(error));
            }
        }
        if let Some((file, report)) = &files.report
            && let Err(error) = with_diagnosis(report, diagnosis).write(file)
        {
            let _ = writeln!(err, "[HRR] {error}");
        }
    })
}

/// The report of a run that did not come to an end.
fn with_diagnosis(report: &RunReport, diagnosis: &Diagnosis) -> RunReport {
    RunReport {
        exit_code: EXIT_CODE,
        // What cannot be told as JSON would be a number that is none, and a diagnosis has none of those.
        watchdog: serde_json::to_value(diagnosis).ok(),
        ..report.clone()
    }
}
