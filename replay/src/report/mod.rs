//! Measuring runs: how long what took, and what that makes of a run report.
//!
//! * [`options`]: what is measured, and at which pace
//! * [`clock`]: ticks and nanoseconds
//! * [`note`]: what is known of an instruction besides how to execute it
//! * [`meter`]: what runners take down
//! * [`order_log`]: when each call was issued and had returned
//! * [`gpu_timer`]: kernels, graphs and copies as the device ran them
//! * [`recorded`]: the recorded run itself as a run report
//! * [`gather`]: repetitions added up into a run report

pub(crate) mod clock;
pub mod gather;
pub(crate) mod gpu_timer;
pub(crate) mod meter;
pub(crate) mod note;
pub mod options;
pub mod order_log;
pub mod recorded;
