//! Whether bytes that differ can be floating-point numbers of an encoding at all.
//!
//! Nothing in an archive says what a result's elements are. Whole numbers read as floating-point ones are tiny: 1,000,000
//! is 1.4e-39 in single precision, so any two small integers lie within any absolute tolerance of each other. So before
//! differing bytes are measured as numbers of an encoding, a sample of them must look like such: of what is not zero, at
//! least one in [`ONE_IN`] must have a magnitude that computations have. Integers below 2^29 or so have none in single
//! precision. Of integers read as pairs of 16-bit numbers the lower halves may be anything, but the upper ones are zero,
//! tiny, or not a number; so each half is judged by itself.

use crate::results::compare::{Encoding, decode};

/// Elements looked at: spread over the whole, and of those that differ the first.
const SAMPLED: usize = 2048;
/// How far behind the first difference others are looked for, in bytes.
const WINDOW_BYTES: usize = 1 << 20;
/// The least share of plausible elements, as one in so many.
const ONE_IN: usize = 16;
/// The least number of 32-bit words of which the halves are judged by themselves.
const WORDS: usize = 8;

/// Whether what two buffers of one length hold can be numbers of an encoding. They are equal up to `equal_bytes`, which is a
/// multiple of every element's size.
pub(crate) fn can_be(encoding: Encoding, live: &[u8], expected: &[u8], equal_bytes: usize) -> bool {
    let bytes = encoding.element_bytes();
    // Pairs of 16-bit elements are looked at together, as the 32-bit words they might be.
    let unit = if bytes == 2 && live.len().is_multiple_of(4) { 4 } else { bytes };
    let step = (live.len() / unit / SAMPLED).max(1);
    let spread = live.chunks_exact(unit).zip(expected.chunks_exact(unit)).step_by(step);
    let window = equal_bytes..live.len().min(equal_bytes + WINDOW_BYTES);
    let near = live[window.clone()].chunks_exact(unit).zip(expected[window].chunks_exact(unit));
    let differing = near.filter(|(live, expected)| live != expected).take(SAMPLED);
    let mut seen = [Seen::default(); 2];
    let mut units = 0;
    for (live, expected) in spread.chain(differing) {
        units += 1;
        for side in [live, expected] {
            for (seen, element) in seen.iter_mut().zip(side.chunks_exact(bytes)) {
                seen.note(encoding, element);
            }
        }
    }
    if unit == bytes || units < WORDS {
        let [lower, upper] = seen;
        return Seen { nonzero: lower.nonzero + upper.nonzero, usual: lower.usual + upper.usual }.is_plausible();
    }
    let [lower, upper] = seen;
    // A few numbers among zeros may all lie in one half.
    let one_half_only = (lower.nonzero == 0) != (upper.nonzero == 0);
    let many = lower.nonzero + upper.nonzero >= 2 * WORDS;
    lower.is_plausible() && upper.is_plausible() && !(one_half_only && many)
}

/// Elements that are not zero, and how many of them have a usual magnitude.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    nonzero: usize,
    usual: usize,
}

impl Seen {
    fn note(&mut self, encoding: Encoding, element: &[u8]) {
        let magnitude = decode(encoding, element).abs();
        if magnitude != 0.0 {
            self.nonzero += 1;
            self.usual += usize::from(is_usual(encoding, magnitude));
        }
    }

    fn is_plausible(self) -> bool {
        self.usual * ONE_IN >= self.nonzero
    }
}

/// Whether computations have numbers of this magnitude. "Not a number" says nothing: a small negative integer is one.
fn is_usual(encoding: Encoding, magnitude: f64) -> bool {
    let least = match encoding {
        Encoding::Fp32 | Encoding::Bf16 => 1e-20,
        // The least normal one.
        Encoding::Fp16 => 6.103_515_625e-5,
        Encoding::Fp64 => 1e-60,
    };
    magnitude >= least
}

#[cfg(test)]
mod tests {
    use super::*;

    fn integers(values: impl IntoIterator<Item = i32>) -> Vec<u8> {
        values.into_iter().flat_map(i32::to_le_bytes).collect()
    }

    #[test]
    fn whole_numbers_are_no_floating_point_numbers() {
        for (from, to) in
            [(0, 1), (7, 900), (2_000, 60_000), (-9_000, 9_000), (100_000, 160_000), (100_000_001, 100_000_200)]
        {
            let live = integers(from..to);
            let expected = integers((from..to).map(|value| value + 1));
            for encoding in Encoding::ORDER {
                if live.len() >= 4 * WORDS && live.len().is_multiple_of(encoding.element_bytes()) {
                    // Their upper halves are usual numbers of half precision.
                    let ambiguous = encoding == Encoding::Fp16 && to > 1 << 26;
                    assert!(ambiguous || !can_be(encoding, &live, &expected, 0), "{encoding}: {from}..{to}");
                }
            }
        }
    }

    #[test]
    fn results_of_computations_are_numbers_of_their_encoding() {
        let values = || (0..4000).map(|index| ((index * 37 % 1001) as f32 - 500.0) / 300.0);
        let single: Vec<u8> = values().flat_map(f32::to_le_bytes).collect();
        assert!(can_be(Encoding::Fp32, &single, &single, 0));
        let upper: Vec<u8> = values().flat_map(|value| ((value.to_bits() >> 16) as u16).to_le_bytes()).collect();
        assert!(can_be(Encoding::Bf16, &upper, &upper, 0));
        let double: Vec<u8> = values().flat_map(|value| f64::from(value).to_le_bytes()).collect();
        assert!(can_be(Encoding::Fp64, &double, &double, 0));
    }

    #[test]
    fn numbers_that_are_mostly_tiny_or_zero_still_are_numbers() {
        // Attention weights: most underflow.
        let weights = |peak: f32| -> Vec<u8> {
            (0..4096).map(|at| if at % 10 == 0 { peak } else { 1e-30 * at as f32 }).flat_map(f32::to_le_bytes).collect()
        };
        assert!(can_be(Encoding::Fp32, &weights(0.5), &weights(0.500_1), 0));
        let mut sparse = vec![0; 4 << 20];
        sparse[8000..8004].copy_from_slice(&1.5f32.to_le_bytes());
        assert!(can_be(Encoding::Fp32, &sparse, &vec![0; 4 << 20], 0));
        sparse[8000..8004].copy_from_slice(&12_u32.to_le_bytes());
        assert!(!can_be(Encoding::Fp32, &sparse, &vec![0; 4 << 20], 0));
    }
}
