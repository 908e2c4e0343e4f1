//! `hrr-bench`: measures what recording and replaying cost and prints one table. `scripts/bench` builds what it needs.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use clap::Parser;
use hrr_benches::program::Built;
use hrr_benches::rows::{Bench, GROUPS};
use hrr_benches::table::{Row, text};
use hrr_replay::machine::runtime::Runtime;

/// As in `hrr-playback`, parts of which are measured in this process.
#[global_allocator]
static MEMORY: hrr_replay::memory::large_pages::LargePages = hrr_replay::memory::large_pages::LargePages;

/// Measures what recording and replaying cost, each row against a baseline of the same run.
#[derive(Debug, Parser)]
#[command(name = "hrr-bench", version, max_term_width = 120)]
struct Arguments {
    /// Fewer repetitions and fewer calls: whether it works, not what it costs.
    #[arg(long)]
    quick: bool,
    /// Also writes the rows there.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Only these groups, separated by commas; `huge` is measured only when named.
    #[arg(long, value_name = "GROUPS", value_delimiter = ',')]
    only: Vec<String>,
    /// Interleaved repetitions of each row.
    #[arg(long, value_name = "N")]
    repetitions: Option<usize>,
    /// Where scripts/build put the programs.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

fn main() -> ExitCode {
    let failed = |message: &str, code: u8| {
        eprintln!("bench: {message}");
        ExitCode::from(code)
    };
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => match hrr_cli::refusal(&error, "hrr-bench") {
            Some(refusal) => return failed(&refusal, 2),
            None => {
                // Where help cannot be printed, nobody reads it.
                let _ = error.print();
                return ExitCode::SUCCESS;
            }
        },
    };
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => failed(&message, 1),
    }
}

fn run(arguments: &Arguments) -> Result<(), String> {
    if let Some(unknown) = arguments.only.iter().find(|name| GROUPS.iter().all(|group| group.name != **name)) {
        let known: Vec<&str> = GROUPS.iter().map(|group| group.name).collect();
        return Err(format!("there is no group '{unknown}'; there are {}", known.join(", ")));
    }
    if let Some(path) = &arguments.json {
        // Told before what takes many minutes.
        hrr_cli::expect_writable(path).map_err(|error| error.to_string())?;
    }
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let built = Built::find(&arguments.out, program.parent().unwrap_or(&program))?;
    let runtime = Arc::new(Runtime::load(Some(&built.null_runtime())).map_err(|error| error.to_string())?);
    let repetitions = arguments.repetitions.unwrap_or(if arguments.quick { 3 } else { 10 });
    let bench = Bench { built, runtime, repetitions, shrink: if arguments.quick { 20 } else { 1 } };
    let mut rows: Vec<Row> = Vec::new();
    let mut failed: Vec<String> = Vec::new();
    for group in GROUPS {
        let wanted = if arguments.only.is_empty() {
            !group.only_named
        } else {
            arguments.only.iter().any(|name| name == group.name)
        };
        if wanted {
            let began = Instant::now();
            // One that fails does not take along what the others measured, which took many minutes.
            match (group.measure)(&bench) {
                Ok(measured) => {
                    eprintln!("bench: {}, {:.0} s", group.name, began.elapsed().as_secs_f64());
                    rows.extend(measured);
                }
                Err(error) => {
                    eprintln!("bench: {}: {error}", group.name);
                    failed.push(group.name.to_owned());
                }
            }
        }
    }
    print!("{}", text(&rows));
    if let Some(path) = &arguments.json {
        let report = serde_json::json!({ "machine": machine(), "repetitions": repetitions, "rows": rows });
        let bytes = serde_json::to_vec_pretty(&report).map_err(|error| error.to_string())?;
        std::fs::write(path, bytes).map_err(|error| hrr_cli::Unwritable::at(path)(error).to_string())?;
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("not measured: {}", failed.join(", "))) }
}

/// The processor, how many of them, and the system.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{cores} cores of {}, Linux {}", name.unwrap_or("an unknown processor"), kernel.trim())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    /// Formerly it gave the name of its crate.
    #[test]
    fn the_program_tells_its_version_by_its_own_name() {
        let version = Arguments::try_parse_from(["hrr-bench", "--version"]).unwrap_err().to_string();
        assert_eq!(version, format!("hrr-bench {}\n", env!("CARGO_PKG_VERSION")));
        assert_eq!(Arguments::command().get_name(), "hrr-bench");
    }
}
