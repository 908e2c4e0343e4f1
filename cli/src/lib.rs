//! What each program says of itself besides what it does: help, manual pages, shell completions and the reference of its options
//! and variables, all made out of the definition of its command line and its table of [`Variable`]s. There is nothing to keep current
//! beside them.
//!
//! ```
//! use clap::{Arg, Command};
//! use hrr_cli::{Generate, Variable, generate, with_variables};
//!
//! const VARIABLES: [Variable; 1] = [Variable::new("TOOL_DEPTH", "N", "How deep to dig; 3 where it is not set.")];
//!
//! let command = Command::new("tool").about("Digs").arg(Arg::new("spade").long("spade").help("What to dig with"));
//! let mut page = Vec::new();
//! generate(Generate::Man, command.clone(), &VARIABLES, &mut page)?;
//! assert!(String::from_utf8_lossy(&page).contains("TOOL_DEPTH"));
//!
//! let help = with_variables(command, &VARIABLES).render_long_help().to_string();
//! assert!(help.contains("TOOL_DEPTH=N"));
//! # Ok::<(), std::io::Error>(())
//! ```

mod full_files;
mod manual;
mod outputs;
mod reference;
mod refusal;
mod standard_error;
mod text;
mod variable;
mod whole;

use std::io::{self, Write};

use clap::{Command, ValueEnum};
use clap_complete::Shell;

pub use full_files::full_files_are_errors;
pub use outputs::{Unwritable, expect_writable, make_folder_of};
pub use refusal::refusal;
pub use text::size_text;
pub use variable::{Audience, Variable};
pub use whole::{Whole, whole};

/// What a program writes about itself, with its hidden option `--generate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Generate {
    /// A manual page, section 1; pages of subcommands follow in the same file.
    Man,
    /// Completions for bash.
    Bash,
    /// Completions for zsh.
    Zsh,
    /// Completions for fish.
    Fish,
    /// The options and variables as tables in Markdown.
    Reference,
}

/// Writes what is asked for of a program with this command line and these variables.
///
/// # Errors
/// Of the output.
pub fn generate(what: Generate, command: Command, variables: &[Variable], out: &mut dyn Write) -> io::Result<()> {
    match write(what, command, variables, out) {
        // A reader that has seen enough is no error.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// The command line, whose `--help` ends with the variables; `-h` does not have them.
pub fn with_variables(command: Command, variables: &[Variable]) -> Command {
    let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    command.after_long_help(format!("{examples}\n\nEnvironment:{}", variable::help_text(variables)))
}

fn write(what: Generate, mut command: Command, variables: &[Variable], out: &mut dyn Write) -> io::Result<()> {
    command.build();
    let shell = match what {
        Generate::Man => return manual::write(&command, variables, out),
        Generate::Reference => return reference::write(&command, variables, out),
        Generate::Bash => Shell::Bash,
        Generate::Zsh => Shell::Zsh,
        Generate::Fish => Shell::Fish,
    };
    let name = command.get_name().to_owned();
    // clap_complete takes writing for something that cannot fail.
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut text);
    out.write_all(&text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Arg;

    const VARIABLES: [Variable; 2] = [
        Variable::new("TOOL_SOIL", "sand|clay", "What there is to dig in."),
        Variable::new("TOOL_SHAKE", "SEED", "Delays each dig.").only_for(Audience::Tests),
    ];

    fn command() -> Command {
        let hidden = Arg::new("generate").long("generate").hide(true);
        Command::new("tool")
            .about("Does things")
            .after_help("Examples:\n  tool --depth 3    deep")
            .arg(Arg::new("depth").long("depth").help("How deep").default_value("2").value_name("N").env("TOOL_DEPTH"))
            .arg(
                Arg::new("order")
                    .long("order")
                    .help("In which order")
                    .value_parser(["up", "down"])
                    .help_heading("Digging"),
            )
            .arg(hidden)
            .subcommand(Command::new("dig").about("Digs").arg(Arg::new("spade").long("spade")))
    }

    fn generated(what: Generate) -> String {
        let mut out = Vec::new();
        generate(what, command(), &VARIABLES, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_option_is_in_everything_and_hidden_ones_are_not() {
        for what in Generate::value_variants() {
            let text = generated(*what);
            assert!(text.contains("depth") && text.contains("spade"), "{what:?}: {text}");
        }
        for what in [Generate::Man, Generate::Reference] {
            assert!(!generated(what).contains("generate"));
        }
    }

    #[test]
    fn a_manual_page_has_the_variables_and_keeps_the_lines_of_examples() {
        let text = generated(Generate::Man);
        assert!(
            text.contains(".TH tool 1") && text.contains(".SH ENVIRONMENT") && text.contains("TOOL_SOIL"),
            "{text}"
        );
        assert!(text.contains(".nf\nExamples:\n  tool \\-\\-depth 3    deep\n.fi"), "{text}");
        assert!(!text.contains("TOOL_SHAKE"), "{text}");
    }

    #[test]
    fn the_reference_has_a_row_for_each_option_and_variable() {
        let text = generated(Generate::Reference);
        for row in [
            "| `--depth N` | How deep [default: 2] [variable: `TOOL_DEPTH`] |",
            "### tool: digging",
            "| `--order ORDER` | In which order. `up`, `down` |",
            "## tool dig",
            "| `TOOL_SOIL=sand|clay` | What there is to dig in. |",
            "### tool: variables for tests",
            "| `TOOL_SHAKE=SEED` | Delays each dig. |",
        ] {
            assert!(text.contains(&row.replace("sand|clay", "sand\\|clay")), "{row} is missing in\n{text}");
        }
    }

    #[test]
    fn long_help_ends_with_the_variables_of_users() {
        let mut command = with_variables(command(), &VARIABLES);
        let long = command.render_long_help().to_string();
        assert!(long.ends_with("  TOOL_SOIL=sand|clay\n          What there is to dig in.\n"), "{long}");
        assert!(long.contains("tool --depth 3"), "{long}");
        assert!(!command.render_help().to_string().contains("TOOL_SOIL"));
    }
}
