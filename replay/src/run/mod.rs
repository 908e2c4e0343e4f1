//! The timed part of a replay: workers execute their sequences of instructions.
//!
//! * [`progress`]: how far each captured thread has come, and waiting for it
//! * [`spinning`]: how long that is done awake
//! * [`measuring`]: what the loop takes down in measuring runs
//! * [`section`]: the timed section as a whole
//! * [`worker`]: the loop itself, and handing a sequence on around a blocking call
//! * [`watchdog`]: bounds how long any call or wait may take

mod atomics;
mod last_error;
mod measuring;
pub(crate) mod progress;
#[cfg(test)]
mod progress_tests;
pub(crate) mod section;
pub(crate) mod spinning;
pub(crate) mod watchdog;
pub(crate) mod worker;

pub(crate) use worker::{Failure, FailureKind, Sequence, Shared, start};
