//! Run reports of replays, and the statistics to tell a slower one from a noisy one.
//!
//! - [`report`]: what one `hrr-playback --report FILE.json` says about a replay and its repetitions.
//! - [`histogram`]: call durations gathered while a replay runs, one histogram per API.
//! - [`stats`]: medians, spreads, intervals and tests on samples of durations.
//! - [`change`]: one quantity on both sides; [`mod@line`]: all parts of two runs; [`verdict`]: which of them is the cause.
//! - [`comparison`]: two reports side by side and the verdict on them; [`render`]: as people read it.
//! - [`runner`]: replays on several runtimes in turn; [`merge`]: their processes as one side.
//!
//! Nothing here knows of HIP, archives or how a replay works.
//!
//! ```
//! use std::path::Path;
//!
//! use hrr_perf::change::Verdict;
//! use hrr_perf::comparison::Comparison;
//! use hrr_perf::report::RunReport;
//!
//! // Two runs of ten repetitions each, as `hrr-playback --repeat 10 --report FILE` writes them; times in nanoseconds.
//! let run = |wall_ns: u64| RunReport {
//!     repetitions: (0..10).map(|repetition| wall_ns + 1000 * repetition).collect(),
//!     ..RunReport::default()
//! };
//! let (before, after) = (run(1_000_000), run(1_200_000));
//! let comparison = Comparison::of_reports((Path::new("a.json"), &before), (Path::new("b.json"), &after))?;
//! assert_eq!(comparison.verdict, Verdict::Slower);
//! # Ok::<(), hrr_perf::report::ReportError>(())
//! ```

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
