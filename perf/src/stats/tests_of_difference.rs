//! Two samples: are they from one distribution?

use super::describe::{mean, variance};
use super::special::{normal_upper_tail, student_two_sided};

/// Largest sample for which Mann-Whitney's p-value is counted out; beyond it the normal approximation is as good.
const EXACT_LIMIT: usize = 25;

/// Outcome of Welch's t-test, which does not assume equal variances.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Welch {
    /// Difference of the means, second less first, in standard errors.
    pub t: f64,
    /// Degrees of freedom by Welch and Satterthwaite.
    pub degrees: f64,
    /// Two-sided p-value.
    pub p: f64,
}

/// Outcome of the Mann-Whitney U test.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct MannWhitney {
    /// Pairs in which the first sample's value is the larger one; ties count half.
    pub u: f64,
    /// Two-sided p-value.
    pub p: f64,
    /// Whether `p` was counted out rather than approximated.
    pub exact: bool,
}

/// Tests whether the means of two samples differ; None where either has fewer than two values.
pub fn welch(first: &[f64], second: &[f64]) -> Option<Welch> {
    let difference = mean(second)? - mean(first)?;
    let first_error = variance(first)? / first.len() as f64;
    let second_error = variance(second)? / second.len() as f64;
    let error = first_error + second_error;
    if error == 0.0 {
        // Constant samples: the same constant, or certainly not.
        let degrees = (first.len() + second.len() - 2) as f64;
        return Some(match difference {
            0.0 => Welch { t: 0.0, degrees, p: 1.0 },
            _ => Welch { t: f64::INFINITY.copysign(difference), degrees, p: 0.0 },
        });
    }
    let degrees = error.powi(2)
        / (first_error.powi(2) / (first.len() - 1) as f64 + second_error.powi(2) / (second.len() - 1) as f64);
    let t = difference / error.sqrt();
    Some(Welch { t, degrees, p: student_two_sided(t, degrees) })
}

/// Tests whether values of one sample tend to be larger than the other's; None where either is empty.
///
/// The p-value is exact for samples of up to 25 that have no value in common, else by the normal approximation with corrections
/// for ties and continuity. Values that a sample has twice do not matter to U.
pub fn mann_whitney(first: &[f64], second: &[f64]) -> Option<MannWhitney> {
    if first.is_empty() || second.is_empty() {
        return None;
    }
    let mut pooled: Vec<(f64, bool)> =
        first.iter().map(|&value| (value, true)).chain(second.iter().map(|&value| (value, false))).collect();
    pooled.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (n1, n2, n) = (first.len() as f64, second.len() as f64, pooled.len() as f64);
    let mut rank_sum = 0.0;
    let mut tie_term = 0.0;
    let mut in_common = false;
    let mut start = 0;
    for group in pooled.chunk_by(|a, b| a.0 == b.0) {
        let size = group.len() as f64;
        let rank = start as f64 + (size + 1.0) / 2.0;
        rank_sum += rank * group.iter().filter(|(_, is_first)| *is_first).count() as f64;
        tie_term += size.powi(3) - size;
        in_common |= group.iter().any(|(_, is_first)| *is_first) && group.iter().any(|(_, is_first)| !*is_first);
        start += group.len();
    }
    let u = rank_sum - n1 * (n1 + 1.0) / 2.0;
    let smaller = u.min(n1 * n2 - u);
    if !in_common && first.len() <= EXACT_LIMIT && second.len() <= EXACT_LIMIT {
        return Some(MannWhitney { u, p: exact_two_sided(smaller as usize, first.len(), second.len()), exact: true });
    }
    let deviation = (n1 * n2 / 12.0 * (n + 1.0 - tie_term / (n * (n - 1.0)))).sqrt();
    if deviation == 0.0 {
        return Some(MannWhitney { u, p: 1.0, exact: false });
    }
    let z = ((n1 * n2 / 2.0 - smaller - 0.5) / deviation).max(0.0);
    Some(MannWhitney { u, p: (2.0 * normal_upper_tail(z)).min(1.0), exact: false })
}

/// Probability of a U as small as `smaller`, or as large on the other side, when all orders are equally likely.
fn exact_two_sided(smaller: usize, n1: usize, n2: usize) -> f64 {
    // The number of orders by U has the generating function prod (1 - q^(n2 + i)) / (1 - q^i) for i in 1..=n1.
    // Coefficients above `smaller` never feed those up to it. Whole numbers of at most C(50, 25) = 1.3e14.
    let mut orders = vec![0i128; n1 * n2 + 1];
    orders[0] = 1;
    for i in 1..=n1 {
        for u in (n2 + i..orders.len()).rev() {
            orders[u] -= orders[u - n2 - i];
        }
        for u in i..orders.len() {
            orders[u] += orders[u - i];
        }
    }
    let all: i128 = orders.iter().sum();
    let tail: i128 = orders[..=smaller].iter().sum();
    (2.0 * tail as f64 / all as f64).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: [f64; 8] = [10.1, 10.3, 9.9, 10.2, 10.0, 10.4, 9.8, 10.6];
    const SECOND: [f64; 7] = [10.9, 11.2, 10.7, 11.0, 10.8, 11.4, 10.5];

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() <= 1e-9 * expected.abs(), "{found} is not {expected}");
    }

    #[test]
    fn welch_values() {
        // scipy.stats.ttest_ind(SECOND, FIRST, equal_var=False)
        let found = welch(&FIRST, &SECOND).unwrap();
        close(found.t, 5.152_742_705_938_682);
        close(found.degrees, 12.105_310_557_862_412);
        close(found.p, 0.000_233_286_003_766_811_33);
        let back = welch(&SECOND, &FIRST).unwrap();
        assert_eq!((back.t, back.p), (-found.t, found.p));
    }

    #[test]
    fn welch_of_constants() {
        assert_eq!(welch(&[2.0, 2.0], &[2.0, 2.0]).unwrap().p, 1.0);
        assert_eq!(welch(&[2.0, 2.0], &[3.0, 3.0]).unwrap().p, 0.0);
        assert_eq!(welch(&[2.0], &[3.0, 3.0]), None);
    }

    #[test]
    fn mann_whitney_exact_values() {
        // scipy.stats.mannwhitneyu(method='exact')
        let found = mann_whitney(&FIRST, &SECOND).unwrap();
        assert_eq!((found.u, found.exact), (1.0, true));
        close(found.p, 0.000_621_600_621_600_621_6);
        close(mann_whitney(&[1.0, 2.0, 3.0, 4.0], &[5.0, 6.0, 7.0, 8.0]).unwrap().p, 0.028_571_428_571_428_57);
        let alternating = mann_whitney(&[1.0, 3.0, 5.0, 7.0, 9.0], &[2.0, 4.0, 6.0, 8.0, 10.0]).unwrap();
        assert_eq!(alternating.u, 10.0);
        close(alternating.p, 0.690_476_190_476_190_4);
    }

    #[test]
    fn values_that_one_sample_has_twice_leave_the_p_value_exact() {
        let found = mann_whitney(&[1.0, 2.0, 2.0, 3.0], &[5.0, 5.0, 5.0, 8.0]).unwrap();
        assert!(found.exact);
        close(found.p, 0.028_571_428_571_428_57);
    }

    #[test]
    fn mann_whitney_approximate_values() {
        // scipy.stats.mannwhitneyu(method='asymptotic')
        let found =
            mann_whitney(&[1.0, 2.0, 2.0, 3.0, 4.0, 4.0, 4.0, 5.0], &[2.0, 3.0, 4.0, 5.0, 5.0, 6.0, 7.0]).unwrap();
        assert_eq!((found.u, found.exact), (14.0, false));
        close(found.p, 0.111_943_231_539_409_94);
        let x: Vec<f64> = (0..30).map(|i| f64::from(i * 37 % 101) + 0.25 * f64::from(i % 3)).collect();
        let y: Vec<f64> = (0..25).map(|i| f64::from(i * 53 % 97) + 4.0 + 0.1 * f64::from(i % 7)).collect();
        let found = mann_whitney(&x, &y).unwrap();
        assert_eq!(found.u, 392.5);
        close(found.p, 0.773_838_500_116_958_8);
        assert_eq!(mann_whitney(&[1.0, 1.0], &[1.0]).unwrap().p, 1.0);
        assert_eq!(mann_whitney(&[], &[1.0]), None);
    }

    #[test]
    fn the_largest_exact_samples_sum_to_one() {
        // The middle of an even count of pairs: both halves, more than everything.
        close(exact_two_sided(EXACT_LIMIT * EXACT_LIMIT, EXACT_LIMIT, EXACT_LIMIT), 1.0);
        // No overlap at all: 2 / C(50, 25).
        close(exact_two_sided(0, 25, 25), 2.0 / 126_410_606_437_752.0);
    }
}
