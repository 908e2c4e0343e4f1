//! What the end-to-end tests share.
//!
//! - [`built`]: where `scripts/build` put what is under test.
//! - [`files`]: folders of files.
//! - [`process`]: running a program with a time limit and keeping what it printed.
//! - [`workload`]: the programs that are recorded, as `tests/workloads/list.tsv` lists them.
//! - [`recording`]: a program recorded into an archive of its own.
//! - [`replaying`]: an archive replayed, and the summary read back.
//! - [`random`]: numbers that are the same in every run.
//! - [`random_program`]: programs at random, for the order of calls.
//! - [`schema`]: whether JSON is what its schema says.
//! - [`soak`]: how often and with which random delays.
//! - [`sources`]: the repository's Rust sources, for tests that compare pages with them.
//! - [`terminal`]: a program whose standard error is a terminal.
//! - [`timeline`]: a timeline read back, every slice and arrow checked.
//!
//! The tests drive the built programs as a user does; nothing of capture or replay is linked in. Helpers panic, as
//! assertions do, and say what to run to see the same again.

pub mod built;
pub mod files;
mod perfetto;
pub mod process;
pub mod random;
pub mod random_program;
pub mod recording;
pub mod replaying;
pub mod schema;
pub mod soak;
pub mod sources;
pub mod terminal;
pub mod timeline;
pub mod workload;
