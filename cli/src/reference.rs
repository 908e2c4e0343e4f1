//! A program's options and variables as tables in Markdown.

use std::io::{self, Write};

use clap::{Arg, ArgAction, Command};

use crate::variable::{Audience, Variable};

/// Writes the options by their headings, the subcommands, and the variables by audience.
pub(crate) fn write(command: &Command, variables: &[Variable], out: &mut dyn Write) -> io::Result<()> {
    part(command, out)?;
    for subcommand in command.get_subcommands().filter(|subcommand| subcommand.get_name() != "help") {
        part(subcommand, out)?;
    }
    for (audience, title) in [
        (Audience::Users, "variables"),
        (Audience::Refused, "variables that are refused"),
        (Audience::Tests, "variables for tests"),
        (Audience::Internal, "variables the programs set for themselves"),
    ] {
        let chosen: Vec<&Variable> = variables.iter().filter(|variable| variable.audience == audience).collect();
        if chosen.is_empty() {
            continue;
        }
        writeln!(out, "### {}: {title}\n\n| variable | meaning |\n|---|---|", command.get_name())?;
        for variable in chosen {
            let value = if variable.value.is_empty() { String::new() } else { format!("={}", cell(variable.value)) };
            writeln!(out, "| `{}{value}` | {} |", variable.name, cell(variable.meaning))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// One command line: how it is called, and a table for each heading.
fn part(command: &Command, out: &mut dyn Write) -> io::Result<()> {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let usage = command.clone().render_usage().to_string();
    writeln!(out, "## {name}\n\n{}.\n", command.get_about().map(ToString::to_string).unwrap_or_default())?;
    let lines: Vec<&str> =
        usage.trim_start_matches("Usage:").lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    writeln!(out, "```\n{}\n```\n", lines.join("\n"))?;
    let shown = |argument: &&Arg| !argument.is_hide_set() && !matches!(argument.get_id().as_str(), "help" | "version");
    let mut headings: Vec<Option<&str>> = Vec::new();
    for argument in command.get_arguments().filter(shown) {
        if !headings.contains(&argument.get_help_heading()) {
            headings.push(argument.get_help_heading());
        }
    }
    headings.sort_by_key(Option::is_some);
    for heading in headings {
        if let Some(heading) = heading {
            writeln!(out, "### {name}: {}\n", heading.to_lowercase())?;
        }
        writeln!(out, "| option | meaning |\n|---|---|")?;
        for argument in command.get_arguments().filter(shown).filter(|a| a.get_help_heading() == heading) {
            writeln!(out, "| {} | {} |", spelled(argument), cell(&meaning(argument)))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// The argument as one types it.
fn spelled(argument: &Arg) -> String {
    let takes = matches!(argument.get_action(), ArgAction::Set | ArgAction::Append);
    let value = match argument.get_value_names() {
        _ if !takes => String::new(),
        Some(names) => names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
        None => argument.get_id().as_str().to_uppercase(),
    };
    let mut names: Vec<String> = argument.get_short().iter().map(|short| format!("`-{short}`")).collect();
    for long in argument.get_long().into_iter().chain(argument.get_visible_aliases().unwrap_or_default()) {
        let optional = argument.get_num_args().is_some_and(|count| count.min_values() == 0 && takes);
        names.push(match (value.as_str(), optional) {
            ("", _) => format!("`--{long}`"),
            (value, true) => format!("`--{long}[={value}]`"),
            (value, false) => format!("`--{long} {value}`"),
        });
    }
    if names.is_empty() { format!("`{value}`") } else { names.join(", ") }
}

/// Its help, what it can be, what it is otherwise, and the variable that stands for it.
fn meaning(argument: &Arg) -> String {
    let mut text = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let values = argument.get_possible_values();
    let takes = matches!(argument.get_action(), ArgAction::Set | ArgAction::Append);
    if takes && !values.is_empty() {
        let each = values.iter().map(|value| match value.get_help() {
            Some(help) => format!("`{}`: {}", value.get_name(), lowered(&help.to_string())),
            None => format!("`{}`", value.get_name()),
        });
        let each: Vec<String> = each.collect();
        let apart = if values.iter().any(|value| value.get_help().is_some()) { "; " } else { ", " };
        text.push_str(&format!(". {}", each.join(apart)));
    }
    let defaults: Vec<_> = argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if takes && !defaults.is_empty() && !argument.is_hide_default_value_set() {
        text.push_str(&format!(" [default: {}]", defaults.join(" ")));
    }
    if let Some(variable) = argument.get_env() {
        text.push_str(&format!(" [variable: `{}`]", variable.to_string_lossy()));
    }
    text
}

fn lowered(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

/// Text that does not end a cell of a table.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}
