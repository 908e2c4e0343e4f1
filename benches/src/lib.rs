//! What recording and replaying cost.
//!
//! - [`table`]: rows of figures against baselines of the same run.
//! - [`program`]: running the built programs.
//! - [`rows`]: what is measured.
//! - [`chain`]: what an archive's order alone costs.
//! - [`synthetic`]: archives of any size.

pub mod chain;
pub mod program;
pub mod rows;
pub mod synthetic;
pub mod table;
