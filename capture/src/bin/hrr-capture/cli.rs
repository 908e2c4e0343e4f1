//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use hrr_cli::Generate;

use crate::check;
use crate::interception::{Interception, InterceptionError};
use crate::journal::Journal;
use crate::launch::{self, Ended};
use crate::program::Program;
use crate::variables::VARIABLES;
use crate::verdict;

const EXAMPLES: &str = "\
Examples:
  hrr-capture -- ./app --size 4096               calls, handles and sizes, into app.hrr
  hrr-capture --content -o run.hrr -- ./app      with contents: run.hrr replays without the program
  hrr-capture --content -- python3 train.py      frameworks that load HIP themselves
  srun -n 8 hrr-capture -o 'run-%rank%.hrr' -- ./app        one archive for each rank
  mpirun -n 4 hrr-capture -o run.hrr -- ./app               one archive, a part for each process
  docker run ... IMAGE hrr-capture -o /out/run.hrr -- ./app inside the container, with the program
  hrr-capture --content --window launches:1000..2000 -- ./app   the second thousand launches
  hrr-capture check run.hrr                      is it whole, and does it hold contents?

In DIR: %pid% %hostname% %rank% %env{NAME}%. By hand the same is had with
  HIP_HRR_CAPTURE_OUTPUT=DIR [HIP_HRR_CAPTURE_CONTENT=1] LD_PRELOAD=.../lib/libhrr_capture.so ./app

Exit code: the program's own; 128 + N where signal N ended it; 125 where hrr-capture itself failed,
126 where the program cannot be run and 127 where there is none. `check`: 0 if what was recorded is whole, 1 if not.";

/// Exit code of a failure of the launcher itself, as `env`, `nohup` and `timeout` have it.
const OWN_FAILURE: u8 = 125;

/// Records every HIP call that a program makes.
#[derive(Debug, Parser)]
#[command(
    name = "hrr-capture",
    version,
    after_help = EXAMPLES,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
struct Arguments {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    record: Record,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Say whether an archive was recorded to its end, and with contents: recorded, metadata-only,
    /// incomplete, damaged or empty
    Check {
        /// The archive: a directory that was recorded to, a pid-* directory in it, or a packed archive
        archive: PathBuf,
    },
}

#[derive(Debug, Args)]
struct Record {
    /// Directory to record to [default: the program's name and .hrr]
    #[arg(short, long, value_name = "DIR")]
    output: Option<OsString>,

    /// Record contents too: host buffers, kernel arguments and code objects. Without them an archive can be inspected, but
    /// calls that need them cannot be replayed
    #[arg(long, visible_alias = "contents")]
    content: bool,

    /// Record only a window: launches:A..B, time:A..B (in s, ms or m from the first HIP call), signal (SIGUSR2 opens and
    /// closes it) or api (hrr_capture_start and hrr_capture_stop do). What was made before comes with it
    #[arg(long, value_name = "WHEN", conflicts_with = "flight_recorder")]
    window: Option<OsString>,

    /// Keep only the last calls of each thread, without contents, in at most SIZE (as 64M): for --info after a hang or a crash
    #[arg(long, value_name = "SIZE", conflicts_with = "content")]
    flight_recorder: Option<OsString>,

    /// The recorder [default: libhrr_capture.so in ../lib beside this program]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,

    /// Print nothing at the end
    #[arg(short, long)]
    quiet: bool,

    /// Write the manual page, completions for a shell, or the reference of options and variables
    #[arg(long, value_enum, hide = true)]
    generate: Option<Generate>,

    /// Print the variables that would be set, one a line, and run nothing
    #[arg(long)]
    print_environment: bool,

    /// The program and its arguments
    #[arg(required_unless_present_any = ["generate", "print_environment"], trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Runs the launcher.
pub(crate) fn main() -> ExitCode {
    let command = hrr_cli::with_variables(Arguments::command(), &VARIABLES);
    let parsed = command.try_get_matches().and_then(|matches| Arguments::from_arg_matches(&matches));
    let arguments = match parsed {
        Ok(arguments) => arguments,
        Err(error) => {
            let Some(refusal) = hrr_cli::refusal(&error, "hrr-capture") else {
                // Where help cannot be printed, nobody reads it.
                let _ = error.print();
                return ExitCode::SUCCESS;
            };
            eprintln!("hrr-capture: {refusal}");
            return ExitCode::from(OWN_FAILURE);
        }
    };
    match arguments.action {
        Some(Action::Check { archive }) => check::run(&archive),
        None if arguments.record.generate.is_some() => generate(arguments.record.generate),
        None => record(&arguments.record).unwrap_or_else(|error| {
            eprintln!("hrr-capture: {error}");
            ExitCode::from(OWN_FAILURE)
        }),
    }
}

fn generate(what: Option<Generate>) -> ExitCode {
    let written = what.map(|what| hrr_cli::generate(what, Arguments::command(), &VARIABLES, &mut std::io::stdout()));
    match written {
        Some(Err(error)) => {
            eprintln!("hrr-capture: the output cannot be written: {error}; send it elsewhere");
            ExitCode::from(OWN_FAILURE)
        }
        _ => ExitCode::SUCCESS,
    }
}

fn record(arguments: &Record) -> Result<ExitCode, InterceptionError> {
    let none = OsString::new();
    let (name, rest) = arguments.program.split_first().unwrap_or((&none, &[]));
    if name.is_empty() && arguments.output.is_none() {
        eprintln!(
            "hrr-capture: give -o DIR, or the program, after which the directory is named; see hrr-capture --help"
        );
        return Ok(ExitCode::from(OWN_FAILURE));
    }
    if let Some(word) = misplaced(&arguments.program, &std::env::args_os().collect::<Vec<_>>()) {
        eprintln!(
            "[HRR capture] {word} is given to {0}; put it before the program to give it to hrr-capture, or write -- before {0}",
            name.to_string_lossy()
        );
    }
    let output = arguments.output.clone().unwrap_or_else(|| default_output(name));
    if let Some(typed) = &arguments.output {
        Interception::check_pattern(typed)?;
    }
    let content_wanted =
        std::env::var_os("HIP_HRR_CAPTURE_CONTENT").is_some_and(|value| !value.is_empty() && value != "0");
    if content_wanted && !arguments.content && arguments.flight_recorder.is_none() {
        eprintln!(
            "[HRR capture] HIP_HRR_CAPTURE_CONTENT is set, and hrr-capture goes by --content alone: no contents are recorded"
        );
    }
    let journal = Journal::create();
    let part = [
        ("HIP_HRR_CAPTURE_WINDOW", arguments.window.clone()),
        ("HIP_HRR_FLIGHT_RECORDER", arguments.flight_recorder.clone()),
    ];
    let mut interception =
        Interception::new(arguments.library.as_deref(), &output, arguments.content, &part, journal.path())?;
    interception.fit(Program::of(name).as_ref());
    if arguments.print_environment {
        // The journal goes with this process.
        let kept = |(name, _): &&(&str, OsString)| *name != "HIP_HRR_CAPTURE_JOURNAL";
        for (name, value) in interception.variables().iter().filter(kept) {
            println!("{name}={}", value.to_string_lossy());
        }
        return Ok(ExitCode::SUCCESS);
    }
    Interception::check_writable(&output)?;
    let ended = launch::run(name, rest, &interception);
    if !arguments.quiet || matches!(ended, Ended::NotStarted { .. }) {
        // One write, so that the lines stand together among those of other ranks.
        let lines = match journal.path() {
            None if matches!(ended, Ended::Status(_)) => vec![verdict::untold(&output)],
            _ => verdict::lines(name, &ended, &journal.read()),
        };
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        eprint!("{text}");
    }
    Ok(ExitCode::from(ended.exit_code()))
}

/// The word right behind the program, where it is an option of this launcher and no `--` says that it is the program's.
fn misplaced(program: &[OsString], typed: &[OsString]) -> Option<String> {
    let [name, word, ..] = program else { return None };
    let at = typed.windows(2).position(|pair| pair == [name.clone(), word.clone()])?;
    if typed[..at].iter().any(|before| before == "--") {
        return None;
    }
    let text = word.to_str()?;
    let option = text.split('=').next().unwrap_or(text);
    let command = Arguments::command();
    // Help and version are asked of programs as of this one, and are no arguments here until the command is built.
    let known = command.get_arguments().filter(|argument| !argument.is_hide_set()).any(|argument| {
        let aliases = argument.get_visible_aliases().unwrap_or_default();
        let long = option.strip_prefix("--");
        long.is_some_and(|long| argument.get_long() == Some(long) || aliases.contains(&long))
            || argument.get_short().is_some_and(|short| option == format!("-{short}"))
    });
    known.then(|| option.to_owned())
}

/// The program's name and `.hrr`.
fn default_output(program: &std::ffi::OsStr) -> OsString {
    let mut name = std::path::Path::new(program).file_name().unwrap_or(program).to_owned();
    name.push(".hrr");
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_behind_the_program_is_told_unless_dashes_say_whose_it_is() {
        let said = |words: &[&str], program: usize| {
            let typed: Vec<OsString> = words.iter().map(OsString::from).collect();
            misplaced(&typed[program..], &typed)
        };
        for (words, program, wanted) in [
            (&["hrr-capture", "./app", "--content"][..], 1, Some("--content")),
            (&["hrr-capture", "./app", "--contents", "x"], 1, Some("--contents")),
            (&["hrr-capture", "-q", "./app", "--output=x"], 2, Some("--output")),
            (&["hrr-capture", "./app", "-o", "x"], 1, Some("-o")),
            (&["hrr-capture", "--", "./app", "--content"], 2, None),
            (&["hrr-capture", "--content", "./app", "--size", "--content"], 2, None),
            (&["hrr-capture", "./app", "--help"], 1, None),
            (&["hrr-capture", "./app", "--generate"], 1, None),
            (&["hrr-capture", "./app"], 1, None),
        ] {
            assert_eq!(said(words, program).as_deref(), wanted, "{words:?}");
        }
    }
}
