//! Manual pages: clap_mangen's parts, with examples kept line by line and the environment as a section of its own.

use std::io::{self, Write};

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, italic, roman};

use crate::variable::{Variable, for_users};

/// Writes the page of a program, and those of its subcommands behind it.
pub(crate) fn write(command: &Command, variables: &[Variable], out: &mut dyn Write) -> io::Result<()> {
    page(command, variables, out)?;
    for subcommand in command.get_subcommands().filter(|subcommand| subcommand.get_name() != "help") {
        writeln!(out, ".\\\" ----")?;
        page(subcommand, &[], out)?;
    }
    Ok(())
}

fn page(command: &Command, variables: &[Variable], out: &mut dyn Write) -> io::Result<()> {
    let man = Man::new(command.clone());
    man.render_title(out)?;
    man.render_name_section(out)?;
    man.render_synopsis_section(out)?;
    man.render_description_section(out)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(out)?;
    }
    if command.get_subcommands().any(|subcommand| subcommand.get_name() != "help") {
        man.render_subcommands_section(out)?;
    }
    let mut rest = Roff::new();
    if for_users(variables).next().is_some() {
        rest.control("SH", ["ENVIRONMENT"]);
        for variable in for_users(variables) {
            rest.control("TP", []);
            rest.text([bold(variable.name), roman("="), italic(variable.value)]);
            rest.text([roman(variable.meaning)]);
        }
    }
    if let Some(text) = command.get_after_help() {
        rest.control("SH", ["EXAMPLES AND EXIT CODES"]);
        // As it stands: lines of examples are not to be filled.
        rest.control("nf", []);
        for line in text.to_string().lines() {
            rest.text([roman(line)]);
        }
        rest.control("fi", []);
    }
    rest.to_writer(out)
}
