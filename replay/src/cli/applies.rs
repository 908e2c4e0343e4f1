//! Options that would do nothing are refused: whoever gives one believes that it does something.
//!
//! What is asked for decides which options are looked at. Of these, some need another one beside them.

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, CommandFactory, Error};

use super::arguments::Arguments;

/// What is asked for, by the option that asks for it, and the options that are looked at then. A replay looks at all others.
const TASKS: [(&str, &[&str]); 7] = [
    ("info", &["rank", "events", "json", "thread", "api", "csv", "report", "trace", "range", "kernels"]),
    ("check_order", &["rank"]),
    ("repair", &["rank"]),
    ("verify", &["rank"]),
    ("pack", &["rank", "target"]),
    ("unpack", &["rank", "target"]),
    ("convert", &["rank", "target", "lossy"]),
];

/// Options that are nothing without one of others.
const BESIDE: [(&str, &[&str]); 7] = [
    ("target", &["pack", "unpack", "convert"]),
    ("thread", &["events", "csv", "trace"]),
    ("api", &["events", "csv", "trace"]),
    ("watchdog_marks", &["sync_watchdog_ms"]),
    ("triage", &["sync_watchdog_ms"]),
    ("range", &["events", "csv", "trace"]),
    ("kernels", &["events", "csv", "trace"]),
];

/// Options of which the first one takes away what the second one is about.
const AGAINST: [(&str, &str); 3] =
    [("no_regions", "regions_strict"), ("no_regions", "guard_blocks"), ("trace_kernels", "shape_only")];

/// Refuses what would do nothing.
pub(super) fn check(arguments: &Arguments, given: &ArgMatches) -> Result<(), Error> {
    if arguments.version || arguments.generate.is_some() {
        return Ok(());
    }
    let command = Arguments::command();
    let is_given = |id: &str| given.value_source(id) == Some(ValueSource::CommandLine);
    // A word that was meant for an option, as in `--shape-only noise`, is known again by what it is.
    let written = |id: &str| match &arguments.target {
        Some(target) if id == "target" => format!("{} '{}'", name(&command, id), target.display()),
        _ => name(&command, id),
    };
    let task = TASKS.iter().find(|(task, _)| is_given(task));
    if let Some((task, looked_at)) = task {
        let ids = command.get_arguments().map(|argument| argument.get_id().as_str());
        for id in ids.filter(|id| is_given(id) && id != task && *id != "archive") {
            if !looked_at.contains(&id) {
                return Err(refused(&command, &written(id), &format!("with {}", name(&command, task))));
            }
        }
    }
    // An option of a variable that is set counts as one that is given.
    let is_on = |id: &str| match id {
        "sync_watchdog_ms" => arguments.sync_watchdog_ms > 0,
        _ => is_given(id),
    };
    for (id, others) in BESIDE.iter().filter(|(id, _)| is_given(id)) {
        // A replay measures a range without any of them.
        let of_replay = matches!(*id, "range" | "kernels") && task.is_none();
        if !of_replay && !others.iter().any(|other| is_on(other)) {
            let others: Vec<String> = others.iter().map(|other| name(&command, other)).collect();
            return Err(refused(&command, &written(id), &format!("without {}", others.join(" or "))));
        }
    }
    match AGAINST.iter().find(|(other, id)| is_given(other) && is_given(id)) {
        Some((other, id)) => Err(refused(&command, &written(id), &format!("with {}", name(&command, other)))),
        None => Ok(()),
    }
}

fn refused(command: &Command, what: &str, why: &str) -> Error {
    let mut command = command.clone();
    let text = format!("{what} does nothing {why}");
    command.error(ErrorKind::ArgumentConflict, text)
}

/// An option as it is written.
fn name(command: &Command, id: &str) -> String {
    let found = command.get_arguments().find(|argument| argument.get_id() == id);
    match found.and_then(|argument| argument.get_long()) {
        Some(long) => format!("--{long}"),
        None => id.to_uppercase(),
    }
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches;

    use super::*;

    /// What is said about a command line; nothing where it is taken.
    fn said(line: &str) -> String {
        let words = ["hrr-playback"].into_iter().chain(line.split_whitespace());
        let parsed = Arguments::command().try_get_matches_from(words).and_then(|matches| {
            let arguments = Arguments::from_arg_matches(&matches)?;
            check(&arguments, &matches)
        });
        parsed.map_or_else(|error| error.to_string().lines().next().unwrap_or_default().to_owned(), |()| String::new())
    }

    #[test]
    fn options_that_would_do_nothing_are_refused_by_name() {
        for (line, why) in [
            ("a.hrr --info --api hipFree", "--api does nothing without --events or --csv or --trace"),
            ("a.hrr --info --thread 1 --json", "--thread does nothing without --events or --csv or --trace"),
            ("a.hrr --info --range 1..2", "--range does nothing without --events or --csv or --trace"),
            ("a.hrr --info --threads 4", "--threads does nothing with --info"),
            ("a.hrr --info --timing", "--timing does nothing with --info"),
            ("a.hrr --verify b.hrr", "TARGET 'b.hrr' does nothing with --verify"),
            ("a.hrr --shape-only noise", "TARGET 'noise' does nothing without --pack or --unpack or --convert"),
            ("a.hrr --repair --report r.json", "--report does nothing with --repair"),
            ("a.hrr --pack b.hrrz --repeat 3", "--repeat does nothing with --pack"),
            ("a.hrr --check-order log --pace recorded", "--pace does nothing with --check-order"),
            ("a.hrr --watchdog-marks all", "--watchdog-marks does nothing without --sync-watchdog-ms"),
            ("a.hrr --sync-watchdog-ms 0 --triage t.json", "--triage does nothing without --sync-watchdog-ms"),
            ("a.hrr --no-regions --guard-blocks", "--guard-blocks does nothing with --no-regions"),
        ] {
            assert_eq!(said(line), format!("error: {why}"), "{line}");
        }
    }

    #[test]
    fn options_that_do_something_are_taken() {
        for line in [
            "a.hrr",
            "a.hrr --info --events --api hipFree --thread 1",
            "a.hrr --info --trace t.json --kernels 1..2 --report r.json",
            "a.hrr --info --csv d --api hipFree --rank 0",
            "a.hrr --range 1..2",
            "a.hrr --sync-watchdog-ms 5 --watchdog-marks all --triage t.json",
            "--convert a.hrr b.hrr --lossy",
            "--version --hip-lib x.so",
            "a.hrr --threads 2 --no-regions --guard-segments --repeat 2 --warmup 1",
        ] {
            assert_eq!(said(line), "", "{line}");
        }
    }

    #[test]
    fn every_option_named_here_is_one() {
        let command = Arguments::command();
        let tasks = TASKS.iter().flat_map(|(task, looked_at)| [*task].into_iter().chain(looked_at.iter().copied()));
        let beside = BESIDE.iter().flat_map(|(id, others)| [*id].into_iter().chain(others.iter().copied()));
        for id in tasks.chain(beside).chain(AGAINST.iter().flat_map(|(one, other)| [*one, *other])) {
            assert!(command.get_arguments().any(|argument| argument.get_id() == id), "{id}");
        }
    }
}
