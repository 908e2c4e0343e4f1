//! What the parser of the command line refuses, in one line: what is wrong, and where to look.

use clap::Error;
use clap::error::ErrorKind;

/// The parser's error as one line that says what is wrong and what to do next; `None` for what is none: help and version.
///
/// The parser's own text spans several lines, with the usage and a pointer to the help, among lines of other ranks and programs.
pub fn refusal(error: &Error, program: &str) -> Option<String> {
    if !error.use_stderr() {
        return None;
    }
    let text = error.render().to_string();
    let mut line = String::new();
    let mut usage = String::new();
    let mut in_usage = false;
    for part in text.lines().map(str::trim) {
        if let Some(rest) = part.strip_prefix("Usage:") {
            in_usage = true;
            usage = rest.trim().to_owned();
        } else if part.is_empty() {
            in_usage = false;
        } else if let Some(tip) = part.strip_prefix("tip: ") {
            line = format!("{line}; {tip}");
        } else if !in_usage && !part.starts_with("For more information") {
            let part = part.strip_prefix("error: ").unwrap_or(part);
            // What is missing, and the values there are, stand on lines of their own.
            let separator = if line.is_empty() { "" } else { " " };
            line = format!("{line}{separator}{part}");
        }
    }
    // A line that begins anew each time counts one: what the user typed may hold line ends of its own.
    let line = line.replace(char::is_control, " ");
    let usage = match error.kind() {
        ErrorKind::MissingRequiredArgument if !usage.is_empty() => format!("; usage: {usage}"),
        _ => String::new(),
    };
    Some(format!("{line}{usage}; see {program} --help"))
}

#[cfg(test)]
mod tests {
    use clap::{Arg, Command};

    use super::*;
    use crate::whole;

    fn said(arguments: &[&str]) -> Option<String> {
        let command = Command::new("tool")
            .arg(Arg::new("archive").required(true))
            .arg(Arg::new("order").long("order").value_parser(["up", "down"]))
            .arg(Arg::new("thread").long("thread").conflicts_with("order"))
            .arg(Arg::new("repeat").long("repeat").allow_negative_numbers(true).value_parser(whole::<u32>(1..)));
        refusal(&command.try_get_matches_from([&["tool"], arguments].concat()).unwrap_err(), "tool")
    }

    #[test]
    fn each_refusal_is_one_line_that_names_what_is_wrong_and_what_to_do() {
        for (arguments, wanted) in [
            (
                &["a", "--ordr", "up"][..],
                "unexpected argument '--ordr' found; a similar argument exists: '--order'; see tool --help",
            ),
            (
                &["a", "--order", "left"],
                "invalid value 'left' for '--order <order>' [possible values: up, down]; see tool --help",
            ),
            (
                &["a", "--order"],
                "a value is required for '--order <order>' but none was supplied [possible values: up, down]; see tool --help",
            ),
            (&["a", "--repeat", "-1"], "--repeat -1: give a whole number of 1 or more; see tool --help"),
            (
                &["a", "--order", "up", "--thread", "1"],
                "the argument '--order <order>' cannot be used with '--thread <thread>'; see tool --help",
            ),
            (&["a", "b\nc"], "unexpected argument 'b c' found; see tool --help"),
            (
                &[],
                "the following required arguments were not provided: <archive>; usage: tool <archive>; see tool --help",
            ),
        ] {
            assert_eq!(said(arguments).as_deref(), Some(wanted));
        }
    }

    #[test]
    fn help_is_no_refusal() {
        assert_eq!(said(&["--help"]), None);
    }
}
