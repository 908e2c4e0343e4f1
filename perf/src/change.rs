//! One quantity on both sides of a comparison: how much it changed, and whether that could be chance.

use serde::Serialize;

use crate::stats::{
    Interval, MannWhitney, Welch, bootstrap_ratio_of_medians, mad, mann_whitney, median, modified_z, welch,
};

/// Confidence of the interval around a change.
pub const CONFIDENCE: f64 = 0.95;
/// A difference this unlikely to be chance is called one, where there are few repetitions.
const SIGNIFICANCE_OF_FEW: f64 = 0.05;
/// The same where there are enough repetitions to ask for more: one comparison in 500 of equal sides calls them different.
const SIGNIFICANCE_OF_MANY: f64 = 0.002;
/// Where the smallest p-value that the sizes of the samples allow is below this, there are many.
const MANY: f64 = 0.0005;
/// A change smaller than this is not called one, however certain it is: the places of code and data alone make as much.
const SMALLEST_CHANGE: f64 = 0.005;
/// Modified Z-score beyond which a repetition is called an outlier (Iglewicz and Hoaglin).
const OUTLIER_Z: f64 = 3.5;
/// Fewest values beside a single one that say how much such values differ among themselves.
const FEWEST_BESIDE_ONE: usize = 4;
/// Seed of the resampling, fixed so that one comparison always says the same.
const SEED: u64 = 0x4852_5250_4552_4631;

/// What two samples say about each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The candidate takes longer, and that is unlikely to be chance.
    Slower,
    /// The candidate takes less, and that is unlikely to be chance.
    Faster,
    /// What difference there is may well be chance.
    NoDifference,
    /// So few repetitions that no difference could be told from chance.
    TooFewRepetitions,
}

/// What a verdict rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// Repetitions of both sides, compared by tests.
    Repetitions,
    /// One side has a single value, as a recorded run has: whether it lies among the other's.
    SingleValue,
}

/// One side's sample.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// The values, one per repetition, in nanoseconds.
    pub values: Vec<f64>,
    /// Their median.
    pub median: f64,
    /// Their median absolute deviation.
    pub mad: f64,
    /// Values that stand out of the others.
    pub outliers: usize,
}

impl Sample {
    /// A sample of these values; empty ones have a median of zero.
    pub fn new(values: Vec<f64>) -> Self {
        Sample {
            median: median(&values).unwrap_or(0.0),
            mad: mad(&values).unwrap_or(0.0),
            outliers: modified_z(&values).iter().filter(|z| z.abs() > OUTLIER_Z).count(),
            values,
        }
    }
}

/// A quantity on both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The baseline's.
    pub baseline: Sample,
    /// The candidate's.
    pub candidate: Sample,
    /// Change of the median as a fraction of the baseline: 0.03 is 3 % slower. None where the baseline has nothing.
    pub change: Option<f64>,
    /// 95 % interval of the change.
    pub interval: Option<Interval>,
    /// Rank test on the repetitions; the verdict rests on it and on the interval.
    pub mann_whitney: Option<MannWhitney>,
    /// Test on the means, for reference.
    pub welch: Option<Welch>,
    /// The outcome.
    pub verdict: Verdict,
    /// What it rests on.
    pub basis: Basis,
}

impl Change {
    /// Compares two samples.
    pub fn new(before: Vec<f64>, after: Vec<f64>) -> Self {
        Self::among(before, after, 1)
    }

    /// Compares two samples that are one of `lines` pairs looked at together: the more are looked at, the likelier is one of
    /// them to look different by chance, so more is asked of each (Bonferroni).
    ///
    /// Values that stand out of their side are counted and shown, and left out of the tests: a machine with other users makes
    /// some repetitions several times longer than the rest, on either side.
    pub fn among(before: Vec<f64>, after: Vec<f64>, lines: usize) -> Self {
        if before.len().min(after.len()) == 1 && before.len().max(after.len()) >= FEWEST_BESIDE_ONE {
            return Self::of_single(before, after);
        }
        let kept = (without_outliers(&before), without_outliers(&after));
        Self::of_kept(before, after, kept, lines)
    }

    /// The same for medians, which are not disturbed as sums are: all are kept.
    pub fn among_medians(before: Vec<f64>, after: Vec<f64>, lines: usize) -> Self {
        if before.len().min(after.len()) == 1 {
            return Self::among(before, after, lines);
        }
        let kept = (before.clone(), after.clone());
        Self::of_kept(before, after, kept, lines)
    }

    fn of_kept(before: Vec<f64>, after: Vec<f64>, kept: (Vec<f64>, Vec<f64>), lines: usize) -> Self {
        let (kept_before, kept_after) = kept;
        let (n1, n2) = (kept_before.len(), kept_after.len());
        let mann_whitney = mann_whitney(&kept_before, &kept_after);
        let welch = welch(&kept_before, &kept_after);
        let interval = (n1 > 1 && n2 > 1)
            .then(|| bootstrap_ratio_of_medians(&kept_after, &kept_before, CONFIDENCE, SEED))
            .flatten()
            .filter(|ratio| ratio.low.is_finite() && ratio.high.is_finite())
            .map(|ratio| Interval { low: ratio.low - 1.0, high: ratio.high - 1.0 });
        let (baseline, candidate) = (Sample::new(before), Sample::new(after));
        let change = (baseline.median > 0.0).then(|| candidate.median / baseline.median - 1.0);
        let smallest = smallest_p(n1, n2);
        let significance = if smallest <= MANY { SIGNIFICANCE_OF_MANY } else { SIGNIFICANCE_OF_FEW };
        let threshold = (significance / lines.max(1) as f64).max(smallest);
        let certain = mann_whitney.is_some_and(|test| test.p <= threshold)
            && interval.is_none_or(|interval| interval.low > 0.0 || interval.high < 0.0);
        let verdict = match change {
            _ if smallest >= SIGNIFICANCE_OF_FEW => Verdict::TooFewRepetitions,
            Some(change) if certain && change >= SMALLEST_CHANGE => Verdict::Slower,
            Some(change) if certain && change <= -SMALLEST_CHANGE => Verdict::Faster,
            // Nothing before and something now.
            None if certain && candidate.median > 0.0 => Verdict::Slower,
            _ => Verdict::NoDifference,
        };
        Change { baseline, candidate, change, interval, mann_whitney, welch, verdict, basis: Basis::Repetitions }
    }

    /// Compares samples of which one is a single value: it differs where it lies outside of all the others and stands out of
    /// them. The interval is that of the other side's repetitions.
    fn of_single(before: Vec<f64>, after: Vec<f64>) -> Self {
        let (baseline, candidate) = (Sample::new(before), Sample::new(after));
        let change = (baseline.median > 0.0).then(|| candidate.median / baseline.median - 1.0);
        let (one, many) =
            if baseline.values.len() == 1 { (baseline.median, &candidate) } else { (candidate.median, &baseline) };
        let mut sorted = many.values.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |quantile: f64| sorted[((sorted.len() - 1) as f64 * quantile).round() as usize];
        let outside = one < at(0.0) || one > at(1.0);
        // Scaled so that it estimates the standard deviation of normal values.
        let spread = many.mad * 1.4826;
        let stands_out = outside && (one - many.median).abs() > OUTLIER_Z * spread;
        let tail = (1.0 - CONFIDENCE) / 2.0;
        let (low, high) = (at(tail), at(1.0 - tail));
        let interval = if baseline.values.len() == 1 {
            (one > 0.0).then(|| Interval { low: low / one - 1.0, high: high / one - 1.0 })
        } else {
            (low > 0.0).then(|| Interval { low: one / high - 1.0, high: one / low - 1.0 })
        };
        let verdict = match change {
            Some(change) if stands_out && change >= SMALLEST_CHANGE => Verdict::Slower,
            Some(change) if stands_out && change <= -SMALLEST_CHANGE => Verdict::Faster,
            None if stands_out => Verdict::Slower,
            _ => Verdict::NoDifference,
        };
        let basis = Basis::SingleValue;
        Change { baseline, candidate, change, interval, mann_whitney: None, welch: None, verdict, basis }
    }

    /// Nanoseconds that the candidate's median has more.
    pub fn added_ns(&self) -> f64 {
        self.candidate.median - self.baseline.median
    }

    /// Whether the sides differ, and that is unlikely to be chance.
    pub fn is_real(&self) -> bool {
        matches!(self.verdict, Verdict::Slower | Verdict::Faster)
    }
}

/// The values that do not stand out of the others. All of them where more than a quarter would go, or where they are so few
/// that one cannot be spared: what is that common is no outlier.
fn without_outliers(values: &[f64]) -> Vec<f64> {
    /// Fewest values of which some may be left out.
    const FEWEST: usize = 8;
    let kept: Vec<f64> =
        values.iter().zip(modified_z(values)).filter(|(_, z)| z.abs() <= OUTLIER_Z).map(|(value, _)| *value).collect();
    if values.len() < FEWEST || (values.len() - kept.len()) * 4 > values.len() { values.to_vec() } else { kept }
}

/// Smallest two-sided p-value that samples of these sizes can have, when they do not overlap at all: 2 / C(n1+n2, n1).
pub(crate) fn smallest_p(n1: usize, n2: usize) -> f64 {
    let orders = (1..=n1).fold(1.0, |orders, i| orders * (n2 + i) as f64 / i as f64);
    2.0 / orders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_of_each_can_be_told_apart_and_three_cannot() {
        assert!((smallest_p(4, 4) - 2.0 / 70.0).abs() < 1e-15 && (smallest_p(3, 3) - 0.1).abs() < 1e-15);
        let few = Change::new(vec![1.0, 1.1, 1.2], vec![9.0, 9.1, 9.2]);
        assert_eq!(few.verdict, Verdict::TooFewRepetitions);
        let four = Change::new(vec![1.0, 1.1, 1.2, 1.3], vec![9.0, 9.1, 9.2, 9.3]);
        assert_eq!(four.verdict, Verdict::Slower);
    }

    #[test]
    fn a_certain_change_of_next_to_nothing_is_none() {
        let before: Vec<f64> = (0..10).map(|i| 10_000.0 + f64::from(i)).collect();
        let after: Vec<f64> = before.iter().map(|value| value + 20.0).collect();
        assert_eq!(Change::new(before, after).verdict, Verdict::NoDifference);
    }

    #[test]
    fn equal_sides_are_called_equal_200_times() {
        // A linear congruential generator (Knuth's MMIX): noise of 10 % that both sides share.
        let mut state = 7u64;
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            1000.0 + (state >> 33) as f64 / f64::from(1u32 << 31) * 100.0
        };
        let different = (0..200)
            .filter(|_| {
                let before = (0..10).map(|_| noise()).collect();
                let after = (0..10).map(|_| noise()).collect();
                Change::new(before, after).is_real()
            })
            .count();
        assert!(different <= 2, "{different} of 200");
    }

    #[test]
    fn a_few_disturbed_repetitions_hide_no_change() {
        let before = vec![7.1, 7.2, 7.0, 7.3, 7.2, 7.1, 7.25, 7.15, 30.0, 41.0];
        let after = vec![17.1, 17.2, 17.0, 17.3, 17.2, 17.1, 17.25, 17.15, 60.0, 71.0];
        let change = Change::new(before, after);
        assert_eq!((change.verdict, change.baseline.outliers), (Verdict::Slower, 2));
        // Where it is common it is no outlier.
        let two_ways = [1.0, 1.0, 1.1, 1.0, 1.1, 9.0, 9.1, 9.0];
        assert_eq!(without_outliers(&two_ways).len(), 8);
    }

    #[test]
    fn a_single_value_differs_where_it_stands_out_of_the_others() {
        let many = vec![10.0, 10.1, 9.9, 10.2, 10.05];
        let among = Change::new(vec![10.15], many.clone());
        assert_eq!((among.verdict, among.basis), (Verdict::NoDifference, Basis::SingleValue));
        // Outside, and no farther than such values lie apart.
        assert_eq!(Change::new(vec![10.3], many.clone()).verdict, Verdict::NoDifference);
        let faster = Change::new(vec![20.0], many.clone());
        assert_eq!(faster.verdict, Verdict::Faster);
        let interval = faster.interval.unwrap();
        assert!((interval.low + 0.505).abs() < 1e-9 && (interval.high + 0.49).abs() < 1e-9, "{interval:?}");
        let slower = Change::new(many, vec![20.0]);
        assert_eq!(slower.verdict, Verdict::Slower);
        assert!(slower.interval.unwrap().low > 0.9);
        assert_eq!(Change::new(vec![1.0], vec![2.0, 2.1, 2.0]).verdict, Verdict::TooFewRepetitions);
    }

    #[test]
    fn what_is_new_is_slower() {
        let change = Change::new(vec![0.0; 5], vec![5.0, 6.0, 5.0, 7.0, 6.0]);
        assert_eq!((change.change, change.verdict), (None, Verdict::Slower));
    }
}
