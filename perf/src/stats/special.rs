//! Distribution functions that the tests need.

use std::f64::consts::{FRAC_2_SQRT_PI, PI, SQRT_2};

/// Steps after which a continued fraction or series is taken as it is; those here converge in far fewer.
const MAX_STEPS: usize = 500;

/// Probability that a standard normal variable is above `z`.
pub(super) fn normal_upper_tail(z: f64) -> f64 {
    erfc(z / SQRT_2) / 2.0
}

/// Probability that Student's t with `degrees` degrees of freedom is at least as far from 0 as `t`, on either side.
pub(super) fn student_two_sided(t: f64, degrees: f64) -> f64 {
    incomplete_beta(degrees / 2.0, 0.5, degrees / (degrees + t * t))
}

fn erfc(x: f64) -> f64 {
    if x < 0.0 {
        return 2.0 - erfc(-x);
    }
    if x < 2.0 {
        // erf by its Maclaurin series, in the form without alternating signs.
        let (mut term, mut sum) = (x, x);
        for step in 1..MAX_STEPS {
            term *= 2.0 * x * x / (2 * step + 1) as f64;
            sum += term;
            if term < sum * 1e-17 {
                break;
            }
        }
        return 1.0 - FRAC_2_SQRT_PI * (-x * x).exp() * sum;
    }
    // Laplace's continued fraction, from the tail up: 60 levels give full precision from 2 on.
    let tail = (1..=60).rev().fold(0.0, |tail, level| level as f64 / 2.0 / (x + tail));
    (-x * x).exp() / (x + tail) / PI.sqrt()
}

/// Natural logarithm of the gamma function for positive arguments, by Lanczos' approximation (g = 7, n = 9).
fn ln_gamma(x: f64) -> f64 {
    const COEFFICIENTS: [f64; 9] = [
        0.999_999_999_999_809_9,
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    if x < 0.5 {
        return (PI / (PI * x).sin()).ln() - ln_gamma(1.0 - x);
    }
    let x = x - 1.0;
    let series = COEFFICIENTS[1..].iter().zip(1u32..).fold(COEFFICIENTS[0], |sum, (c, i)| sum + c / (x + f64::from(i)));
    let t = x + 7.5;
    0.5 * (2.0 * PI).ln() + (x + 0.5) * t.ln() - t + series.ln()
}

/// Regularised incomplete beta function I_x(a, b), by Lentz' method on its continued fraction.
fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    // The fraction converges fast below the mean; above it the mirror image does.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(b, a, 1.0 - x);
    }
    const TINY: f64 = 1e-300;
    let away_from_zero = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / away_from_zero(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = d;
    for step in 1..MAX_STEPS {
        let m = step as f64;
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut factor = 1.0;
        for coefficient in [even, odd] {
            d = 1.0 / away_from_zero(1.0 + coefficient * d);
            c = away_from_zero(1.0 + coefficient / c);
            factor = c * d;
            fraction *= factor;
        }
        if (factor - 1.0).abs() < 1e-16 {
            break;
        }
    }
    let front = a * x.ln() + b * (1.0 - x).ln() + ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b);
    front.exp() * fraction / a
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() <= 1e-11 * expected.abs().max(1e-3), "{found} is not {expected}");
    }

    #[test]
    fn normal_tails() {
        // scipy.stats.norm.sf
        for (z, expected) in [
            (0.0, 0.5),
            (0.5, 0.308_537_538_725_986_9),
            (1.96, 0.024_997_895_148_220_435),
            (3.0, 0.001_349_898_031_630_093_3),
            (-1.2, 0.884_930_329_778_291_8),
        ] {
            close(normal_upper_tail(z), expected);
        }
        assert!((normal_upper_tail(6.0) / 9.865_876_450_376_946e-10 - 1.0).abs() < 1e-10);
    }

    #[test]
    fn log_gamma() {
        // scipy.special.gammaln
        for (x, expected) in [
            (0.5, 0.572_364_942_924_7),
            (1.0, 0.0),
            (2.5, 0.284_682_870_472_919_2),
            (10.0, 12.801_827_480_081_469),
            (171.3, 708.114_947_038_971),
        ] {
            assert!((ln_gamma(x) - expected).abs() < 1e-11 * expected.max(1.0), "{x}");
        }
    }

    #[test]
    fn incomplete_beta_values() {
        // scipy.special.betainc
        for (a, b, x, expected) in [
            (0.5, 0.5, 0.3, 0.369_010_119_565_545_36),
            (2.0, 3.0, 0.4, 0.524_8),
            (10.0, 0.5, 0.9, 0.151_640_909_634_709_94),
            (100.0, 50.0, 0.7, 0.805_448_166_227_753_5),
            (1.5, 200.0, 0.01, 0.741_238_848_306_005_1),
        ] {
            close(incomplete_beta(a, b, x), expected);
        }
        assert_eq!((incomplete_beta(2.0, 3.0, 0.0), incomplete_beta(2.0, 3.0, 1.0)), (0.0, 1.0));
    }

    #[test]
    fn student_tails() {
        // 2 * scipy.stats.t.sf
        close(student_two_sided(2.5, 7.3), 0.039_650_234_665_600_43);
        close(student_two_sided(40.0, 3.0), 3.438_068_078_915_850_6e-5);
        close(student_two_sided(0.0, 5.0), 1.0);
    }
}
