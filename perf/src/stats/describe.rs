//! One sample: its middle, its spread, its outliers, and how sure one can be of the middle.

/// Resamples of a bootstrap interval: enough for its ends to move by less than the noise they measure.
pub(crate) const RESAMPLES: usize = 10_000;

/// Factor that makes the median absolute deviation estimate a normal distribution's standard deviation: the normal
/// 0.75 quantile.
const NORMAL_QUARTILE: f64 = 0.6745;

/// Factor for the mean absolute deviation, `sqrt(pi / 2)`, used where half of a sample or more is one value
/// (Iglewicz and Hoaglin, How to Detect and Handle Outliers, 1993).
const MEAN_DEVIATION_FACTOR: f64 = 1.253_314;

/// Two ends of an interval.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Arithmetic mean; None for an empty sample.
pub fn mean(sample: &[f64]) -> Option<f64> {
    (!sample.is_empty()).then(|| sample.iter().sum::<f64>() / sample.len() as f64)
}

/// Variance of the population that the sample was drawn from (divided by n - 1); None below two values.
pub fn variance(sample: &[f64]) -> Option<f64> {
    let mean = mean(sample).filter(|_| sample.len() >= 2)?;
    Some(sample.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (sample.len() - 1) as f64)
}

/// Middle value, or the mean of the two middle values; None for an empty sample.
pub fn median(sample: &[f64]) -> Option<f64> {
    let mut sorted = sample.to_vec();
    sorted.sort_by(f64::total_cmp);
    median_of_sorted(&sorted)
}

fn median_of_sorted(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        length if length % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// Median absolute deviation from the median, not scaled; None for an empty sample.
pub fn mad(sample: &[f64]) -> Option<f64> {
    let middle = median(sample)?;
    median(&sample.iter().map(|value| (value - middle).abs()).collect::<Vec<_>>())
}

/// Modified Z-score of each value: its distance from the median in robust standard deviations. Beyond 3.5 a value is
/// commonly called an outlier. All zero where all values are equal.
pub fn modified_z(sample: &[f64]) -> Vec<f64> {
    let (Some(middle), Some(deviation)) = (median(sample), mad(sample)) else {
        return Vec::new();
    };
    let scale = if deviation > 0.0 {
        NORMAL_QUARTILE / deviation
    } else {
        let distances: Vec<f64> = sample.iter().map(|value| (value - middle).abs()).collect();
        match mean(&distances) {
            Some(distance) if distance > 0.0 => 1.0 / (MEAN_DEVIATION_FACTOR * distance),
            _ => 0.0,
        }
    };
    sample.iter().map(|value| (value - middle) * scale).collect()
}

/// Percentile bootstrap interval of `statistic` at `confidence` (0.95 for 95 %). The same seed gives the same
/// interval. None for an empty sample.
pub fn bootstrap_interval(
    sample: &[f64],
    statistic: impl Fn(&[f64]) -> f64,
    confidence: f64,
    seed: u64,
) -> Option<Interval> {
    if sample.is_empty() {
        return None;
    }
    let mut random = Random(seed);
    let mut resample = vec![0.0; sample.len()];
    let values = (0..RESAMPLES).map(|_| {
        random.resample(sample, &mut resample);
        statistic(&resample)
    });
    Some(percentile_interval(values.collect(), confidence))
}

/// Percentile bootstrap interval of `median(numerator) / median(denominator)`, both resampled. None where either is
/// empty.
pub fn bootstrap_ratio_of_medians(
    numerator: &[f64],
    denominator: &[f64],
    confidence: f64,
    seed: u64,
) -> Option<Interval> {
    if numerator.is_empty() || denominator.is_empty() {
        return None;
    }
    let mut random = Random(seed);
    let (mut above, mut below) = (vec![0.0; numerator.len()], vec![0.0; denominator.len()]);
    let ratios = (0..RESAMPLES).filter_map(|_| {
        random.resample(numerator, &mut above);
        random.resample(denominator, &mut below);
        above.sort_by(f64::total_cmp);
        below.sort_by(f64::total_cmp);
        Some(median_of_sorted(&above)? / median_of_sorted(&below)?)
    });
    Some(percentile_interval(ratios.collect(), confidence))
}

fn percentile_interval(mut values: Vec<f64>, confidence: f64) -> Interval {
    values.sort_by(f64::total_cmp);
    let tail = (1.0 - confidence.clamp(0.0, 1.0)) / 2.0;
    let last = values.len() - 1;
    let at = |quantile: f64| values[((quantile * last as f64).round() as usize).min(last)];
    Interval { low: at(tail), high: at(1.0 - tail) }
}

/// SplitMix64 (Steele, Lea and Flood, 2014): small, seedable, and good enough to draw indices with.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Fills `out` with values of `sample`, which is not empty, drawn with replacement.
    fn resample(&mut self, sample: &[f64], out: &mut [f64]) {
        for slot in out {
            // The high half of the product is uniform below the length, but for a bias of length / 2^64.
            let index = (u128::from(self.next()) * sample.len() as u128) >> 64;
            *slot = sample[index as usize];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: [f64; 8] = [10.1, 10.3, 9.9, 10.2, 10.0, 10.4, 9.8, 10.6];

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() <= 1e-9 * expected.abs().max(1.0), "{found} is not {expected}");
    }

    #[test]
    fn middles_and_spreads() {
        // numpy.median, scipy.stats.median_abs_deviation, numpy.mean, numpy.var(ddof=1).
        close(median(&SAMPLE).unwrap(), 10.15);
        close(mad(&SAMPLE).unwrap(), 0.2);
        close(mean(&[1.0, 2.0, 6.0]).unwrap(), 3.0);
        close(variance(&[1.0, 2.0, 6.0]).unwrap(), 7.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!((median(&[]), mean(&[]), mad(&[]), variance(&[1.0])), (None, None, None, None));
    }

    #[test]
    fn outliers_stand_out() {
        let scores = modified_z(&[2.0, 2.1, 1.9, 2.05, 9.0]);
        for (found, expected) in scores.iter().zip([-0.6745, 0.6745, -2.0235, 0.0, 93.7555]) {
            close(*found, expected);
        }
        // More than half equal: mean deviation 0.8, so 4 / (1.253314 * 0.8).
        let scores = modified_z(&[5.0, 5.0, 5.0, 5.0, 9.0]);
        close(scores[4], 4.0 / (1.253_314 * 0.8));
        assert_eq!(modified_z(&[7.0, 7.0]), [0.0, 0.0]);
        assert!(modified_z(&[]).is_empty());
    }

    #[test]
    fn bootstrap_intervals_cover_what_they_should() {
        let interval = bootstrap_interval(&SAMPLE, |s| mean(s).unwrap_or(f64::NAN), 0.95, 1).unwrap();
        // Mean 10.1625, standard error of a resampled mean 0.0866 (population sigma / sqrt 8): about +- 1.96 of it.
        assert!((interval.low - 9.99).abs() < 0.03 && (interval.high - 10.33).abs() < 0.03, "{interval:?}");
        assert_eq!(Some(interval), bootstrap_interval(&SAMPLE, |s| mean(s).unwrap_or(f64::NAN), 0.95, 1));
        let one = bootstrap_interval(&[4.0], |s| s[0], 0.95, 1).unwrap();
        assert_eq!((one.low, one.high), (4.0, 4.0));
        assert_eq!(bootstrap_interval(&[], |s| s[0], 0.95, 1), None);
    }

    #[test]
    fn a_ratio_of_medians_has_an_interval_around_it() {
        let slower: Vec<f64> = SAMPLE.iter().map(|value| value * 1.1).collect();
        let interval = bootstrap_ratio_of_medians(&slower, &SAMPLE, 0.95, 7).unwrap();
        assert!(
            interval.low > 1.04 && interval.low < 1.1 && interval.high > 1.1 && interval.high < 1.16,
            "{interval:?}"
        );
        assert_eq!(bootstrap_ratio_of_medians(&[], &SAMPLE, 0.95, 7), None);
    }

    #[test]
    fn draws_are_even() {
        let mut random = Random(3);
        let mut drawn = vec![0.0; 90_000];
        random.resample(&[0.0, 1.0, 2.0], &mut drawn);
        for value in [0.0, 1.0, 2.0] {
            let count = drawn.iter().filter(|&&other| other == value).count();
            // Six standard deviations, sqrt(90000 * 1/3 * 2/3) = 141.
            assert!(count.abs_diff(30_000) < 850, "{value} drawn {count} times");
        }
    }
}
