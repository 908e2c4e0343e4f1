//! Durations of calls while a replay runs: fixed memory, no allocation when recording.

use hdrhistogram::Histogram;

use crate::report::{ApiReport, CallKind};

/// Longest duration told apart, one hour; longer ones count as this long in the percentiles.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Two significant digits: percentiles within 1 %, 36 KiB a histogram. Three would take eight times as much, out of
/// the caches of the workers that are being timed.
const SIGNIFICANT_DIGITS: u8 = 2;

/// Durations of one API's calls on one worker; merged across workers afterwards.
#[derive(Clone, Debug)]
pub struct CallHistogram {
    durations: Histogram<u64>,
    total_ns: u64,
    max_ns: u64,
}

impl Default for CallHistogram {
    fn default() -> Self {
        let durations = Histogram::new_with_bounds(1, LONGEST_NS, SIGNIFICANT_DIGITS)
            .expect("1 is a lower bound, an hour is more than twice as much, and two digits are at most five");
        CallHistogram { durations, total_ns: 0, max_ns: 0 }
    }
}

impl CallHistogram {
    /// An empty histogram, all of its memory allocated.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts one call of `duration_ns` nanoseconds.
    #[inline]
    pub fn record(&mut self, duration_ns: u64) {
        self.durations.saturating_record(duration_ns.max(1));
        self.total_ns = self.total_ns.saturating_add(duration_ns);
        self.max_ns = self.max_ns.max(duration_ns);
    }

    /// Adds all of `other`'s calls.
    pub fn merge(&mut self, other: &CallHistogram) {
        self.durations.add(&other.durations).expect("all histograms of this type have the same bounds");
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Forgets all calls and keeps the memory.
    pub fn clear(&mut self) {
        self.durations.reset();
        self.total_ns = 0;
        self.max_ns = 0;
    }

    /// Number of calls.
    pub fn count(&self) -> u64 {
        self.durations.len()
    }

    /// The durations as the calls of `name` in a report.
    pub fn report(&self, name: &str) -> ApiReport {
        // A percentile is the upper end of its bucket, which may lie above the longest call.
        let percentile = |quantile| self.durations.value_at_quantile(quantile).min(self.max_ns);
        ApiReport {
            name: name.to_owned(),
            kind: CallKind::Host,
            count: self.count(),
            total_ns: self.total_ns,
            p50_ns: percentile(0.5),
            p90_ns: percentile(0.9),
            p99_ns: percentile(0.99),
            max_ns: self.max_ns,
            samples_ns: Vec::new(),
            p50_samples_ns: Vec::new(),
        }
    }

    /// Half of the calls took no longer, to the histogram's precision; zero where there are none.
    pub fn p50_ns(&self) -> u64 {
        self.durations.value_at_quantile(0.5).min(self.max_ns)
    }

    /// Sum of the durations.
    pub fn total_ns(&self) -> u64 {
        self.total_ns
    }
}

/// Sorts reports of APIs as a run report lists them: the most time first, then by name.
pub fn sort_by_time(apis: &mut [ApiReport]) {
    apis.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.name.cmp(&b.name)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_one_percent_and_sums_are_exact() {
        let (mut even, mut odd) = (CallHistogram::new(), CallHistogram::new());
        for ns in 1..=10_000u64 {
            if ns % 2 == 0 { even.record(ns) } else { odd.record(ns) }
        }
        even.merge(&odd);
        let report = even.report("hipMemcpyAsync");
        assert_eq!((report.count, report.total_ns, report.max_ns), (10_000, 50_005_000, 10_000));
        for (found, expected) in [(report.p50_ns, 5_000.0), (report.p90_ns, 9_000.0), (report.p99_ns, 9_900.0)] {
            assert!((found as f64 / expected - 1.0).abs() <= 0.01, "{found} is not {expected}");
        }
    }

    #[test]
    fn extremes_are_counted() {
        let mut histogram = CallHistogram::new();
        histogram.record(0);
        histogram.record(u64::MAX);
        let report = histogram.report("hipFree");
        assert_eq!((report.count, report.max_ns, report.total_ns), (2, u64::MAX, u64::MAX));
        assert_eq!(CallHistogram::new().report("hipFree").p99_ns, 0);
    }

    #[test]
    fn the_most_time_comes_first() {
        let api = |name: &str, total_ns| ApiReport { name: name.into(), total_ns, ..Default::default() };
        let mut apis = [api("b", 1), api("a", 1), api("c", 5)];
        sort_by_time(&mut apis);
        assert_eq!(apis.map(|api| api.name), ["c", "a", "b"]);
    }
}
