//! Run reports of replays, and the statistics to tell a slower one from a noisy one.
//!
//! - [`report`]: what one `hrr-playback --report FILE.json` says about a replay and its repetitions.
//! - [`histogram`]: call durations gathered while a replay runs, one histogram per API.
//! - [`stats`]: medians, spreads, intervals and tests on samples of durations.
//! - [`comparison`]: two reports side by side and the verdict on them.
//!
//! Nothing here knows of HIP, archives or how a replay works.

pub mod comparison;
pub mod histogram;
pub mod report;
pub mod stats;
