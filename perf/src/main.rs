//! `hrr-perf`: reads run reports and says what they mean.
//!
//! Exit codes: 0 done, 1 slower than `--fail-above` allows, 2 a report that cannot be read or wrong usage.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use hrr_perf::comparison::{Comparison, Limit};

/// Exit code for a candidate that is too slow.
const TOO_SLOW: u8 = 1;
/// Exit code for reports that cannot be read; clap's own for wrong usage is the same.
const UNUSABLE: u8 = 2;

#[derive(Debug, Parser)]
#[command(name = "hrr-perf", version, about = "Compares run reports that `hrr-playback --report FILE` wrote")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compares a candidate with a baseline
    Compare {
        /// Report to compare with
        baseline: PathBuf,
        /// Report to judge
        candidate: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Exit 1 if the candidate is slower by more than this, such as 3%
        #[arg(long, value_name = "PERCENT")]
        fail_above: Option<Limit>,
    },
}

fn main() -> ExitCode {
    let Command::Compare { baseline, candidate, json, fail_above } = Arguments::parse().command;
    let comparison = match Comparison::of_files(&baseline, &candidate) {
        Ok(comparison) => comparison,
        Err(error) => {
            eprintln!("hrr-perf: {error}");
            return ExitCode::from(UNUSABLE);
        }
    };
    let text = match json {
        false => comparison.to_string(),
        true => match serde_json::to_string_pretty(&comparison) {
            Ok(text) => text + "\n",
            Err(error) => {
                eprintln!("hrr-perf: failed to print the comparison as JSON: {error}");
                return ExitCode::from(UNUSABLE);
            }
        },
    };
    // A reader that closed the pipe has read enough; the exit code still says what was found.
    let _ = std::io::stdout().write_all(text.as_bytes());
    match fail_above {
        Some(limit) if comparison.exceeds(limit) => {
            let reason = match comparison.candidate_failed {
                true => "the candidate's replay did not pass".to_owned(),
                false => format!("slower by more than {} %", limit.fraction() * 100.0),
            };
            eprintln!("hrr-perf: {reason}");
            ExitCode::from(TOO_SLOW)
        }
        _ => ExitCode::SUCCESS,
    }
}
