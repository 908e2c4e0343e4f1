//! `hrr-capture`: starts a program with the recorder in it, and says at the end what was recorded, or why nothing was.
//!
//! * [`cli`]: the command line
//! * [`interception`]: the environment that puts the recorder into a program
//! * [`launch`]: starting the program, passing signals on, and its exit status
//! * [`journal`]: what the recorder reported while the program ran
//! * [`program`]: what can be told of a program from its file
//! * [`settings`]: what the recorder's variables may hold
//! * [`variables`]: the recorder's environment variables, as help and reference tell them
//! * [`verdict`]: the lines at the end
//! * [`check`]: `hrr-capture check`

// In place of the standard library's, in every module below.
#[macro_use(eprint, eprintln)]
extern crate hrr_cli;

mod check;
mod cli;
mod interception;
mod journal;
mod launch;
mod program;
// The recorder's own: both must mean the same by a value.
#[path = "../../settings.rs"]
mod settings;
mod variables;
mod verdict;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
