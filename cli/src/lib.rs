//! Manual pages and shell completions, made by each program out of the definition of its own command line: nothing to keep
//! current beside it.

use std::io::{self, Write};

use clap::{Command, ValueEnum};
use clap_complete::Shell;
use clap_mangen::Man;

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
}

/// Writes what is asked for of a program with this command line.
///
/// # Errors
/// Of the output.
pub fn generate(what: Generate, command: Command, out: &mut dyn Write) -> io::Result<()> {
    match write(what, command, out) {
        // A reader that has seen enough is no error.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

fn write(what: Generate, mut command: Command, out: &mut dyn Write) -> io::Result<()> {
    command.build();
    let shell = match what {
        Generate::Man => return manual(&command, out),
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

fn manual(command: &Command, out: &mut dyn Write) -> io::Result<()> {
    Man::new(command.clone()).render(out)?;
    for subcommand in command.get_subcommands().filter(|subcommand| subcommand.get_name() != "help") {
        writeln!(out, ".\\\" ----")?;
        Man::new(subcommand.clone()).render(out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Arg;

    fn generated(what: Generate) -> String {
        let hidden = Arg::new("generate").long("generate").hide(true);
        let command = Command::new("tool")
            .about("Does things")
            .arg(Arg::new("depth").long("depth").help("How deep"))
            .arg(hidden)
            .subcommand(Command::new("dig").about("Digs").arg(Arg::new("spade").long("spade")));
        let mut out = Vec::new();
        generate(what, command, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_option_is_in_everything_and_hidden_ones_are_not() {
        for what in Generate::value_variants() {
            let text = generated(*what);
            assert!(text.contains("depth") && text.contains("spade"), "{what:?}: {text}");
        }
        assert!(!generated(Generate::Man).contains("generate"));
        assert!(generated(Generate::Man).starts_with(".ie") || generated(Generate::Man).contains(".TH"));
    }
}
