//! Statistics on samples of durations.
//!
//! Durations are skewed, with a floor and far outliers, so medians and ranks come first; Welch's test is there for
//! those who ask for means. Functions return None where a sample is too small to say anything.

mod describe;
mod special;
mod tests_of_difference;

pub use describe::{Interval, bootstrap_interval, bootstrap_ratio_of_medians, mad, mean, median, modified_z, variance};
pub use tests_of_difference::{MannWhitney, Welch, mann_whitney, welch};
