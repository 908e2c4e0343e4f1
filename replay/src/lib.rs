//! Reissues the HIP calls of an archive on matching worker threads and checks what the device produced.
//!
//! The way of an archive: [`plan`] turns its calls into sequences of instructions with every handle, address and wait
//! resolved ([`memory::slots`], [`instruction`]); [`memory::stage`] puts recorded contents into host memory; [`run`] executes the sequences
//! in the timed section, through the call thunks of [`thunk`] on a loaded [`machine::runtime`]; [`results::validate`] compares results off that
//! path. [`replay`] drives all of it, [`summary`] prints it, [`cli`] is the program around it; [`info`] and [`tools`] are what it does to
//! archives besides.
//!
//! ```no_run
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! use hrr_format::archive::Archive;
//! use hrr_replay::machine::runtime::Runtime;
//! use hrr_replay::{ReplayOptions, replay};
//!
//! let archive = Archive::open(Path::new("capture.hrr/pid-4711"))?;
//! let runtime = Arc::new(Runtime::load(Some(Path::new("/opt/rocm/lib/libamdhip64.so")))?);
//! let options = ReplayOptions { threads: 2, ..ReplayOptions::default() };
//! let outcome = replay(&archive, &runtime, &options, |prepared| println!("{} calls", prepared.calls))?;
//! println!("{:?}, {} of the results equal", outcome.wall, outcome.verdict.exact);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

// In place of the standard library's, in every module below.
#[macro_use(eprint, eprintln)]
extern crate hrr_cli;

pub(crate) mod campaign;
pub(crate) mod chaos;
pub mod check_order;
pub mod choices;
pub mod cli;
pub mod convert;
pub mod driver;
pub mod environment;
pub mod info;
pub(crate) mod instruction;
pub(crate) mod launched;
pub mod machine;
#[doc(hidden)]
pub mod measure;
pub mod memory;
pub(crate) mod mutation;
pub mod plan;
pub mod processes;
pub mod progress_line;
pub(crate) mod repeat;
pub mod report;
pub mod results;
pub(crate) mod run;
pub mod summary;
pub mod survey;
pub(crate) mod thunk;
pub mod tools;
pub mod trace;
pub mod triage;
pub(crate) mod variables;

pub use driver::{Outcome, ReplayError, ReplayOptions, replay};
pub use plan::order::OrderMode;
pub use triage::{HangHandler, TriageOptions};
