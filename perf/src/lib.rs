//! Run reports of replays, and the statistics to tell a slower one from a noisy one.
//!
//! - [`report`]: what one `hrr-playback --report FILE.json` says about a replay and its repetitions.
//! - [`histogram`]: call durations gathered while a replay runs, one histogram per API.
//! - [`stats`]: medians, spreads, intervals and tests on samples of durations.
//! - [`change`]: one quantity on both sides; [`line`]: all parts of two runs; [`verdict`]: which of them is the cause.
//! - [`comparison`]: two reports side by side and the verdict on them; [`render`]: as people read it.
//! - [`runner`]: replays on several runtimes in turn; [`merge`]: their processes as one side.
//!
//! Nothing here knows of HIP, archives or how a replay works.

pub mod change;
pub mod comparison;
pub mod histogram;
pub mod line;
pub mod merge;
pub mod render;
pub mod report;
pub mod runner;
pub mod stats;
pub mod verdict;
