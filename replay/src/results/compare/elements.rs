//! The loops over the elements of a block, for each encoding.
//!
//! They are branch-free so that they vectorise, and are compiled a second time for AVX2 where the CPU has it; elements of fp16
//! are widened there by an instruction of their own.

use super::{Deviation, Encoding, Tolerance};

/// An encoding that the block loops are made for.
pub(super) trait Element<const BYTES: usize> {
    /// A type that holds every value of the encoding exactly, and twice as many to a register where it is `f32`. What
    /// is only reported is computed in it.
    type Value: Value;

    /// The exact value. Must be branch-free.
    fn value(bytes: [u8; BYTES]) -> Self::Value;

    /// The exact value as a double.
    #[inline(always)]
    fn decode(bytes: [u8; BYTES]) -> f64 {
        Self::value(bytes).into()
    }
}

/// A binary floating-point type.
pub(super) trait Value:
    Copy + PartialOrd + std::ops::Sub<Output = Self> + std::ops::Div<Output = Self> + Into<f64>
{
    const ZERO: Self;
    const INFINITY: Self;
    /// Whether this is `f32`, with room to spare for sums and products of the encoding.
    const IS_SINGLE: bool;
    fn magnitude(self) -> Self;
    fn is_not_a_number(self) -> bool;
}

impl Value for f32 {
    const ZERO: f32 = 0.0;
    const INFINITY: f32 = f32::INFINITY;
    const IS_SINGLE: bool = true;
    #[inline(always)]
    fn magnitude(self) -> f32 {
        self.abs()
    }
    #[inline(always)]
    fn is_not_a_number(self) -> bool {
        self.is_nan()
    }
}

impl Value for f64 {
    const ZERO: f64 = 0.0;
    const INFINITY: f64 = f64::INFINITY;
    const IS_SINGLE: bool = false;
    #[inline(always)]
    fn magnitude(self) -> f64 {
        self.abs()
    }
    #[inline(always)]
    fn is_not_a_number(self) -> bool {
        self.is_nan()
    }
}

pub(super) struct Fp32;
pub(super) struct Bf16;
pub(super) struct Fp16;
pub(super) struct Fp64;
/// A value of a 16-bit encoding, held as `f32`.
#[cfg(target_arch = "x86_64")]
pub(super) struct Widened;

impl Element<4> for Fp32 {
    type Value = f64;
    #[inline(always)]
    fn value(bytes: [u8; 4]) -> f64 {
        f64::from(f32::from_le_bytes(bytes))
    }
}

impl Element<2> for Bf16 {
    type Value = f32;
    #[inline(always)]
    fn value(bytes: [u8; 2]) -> f32 {
        f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16)
    }
}

impl Element<2> for Fp16 {
    type Value = f32;
    #[inline(always)]
    fn value(bytes: [u8; 2]) -> f32 {
        let half = u32::from(u16::from_le_bytes(bytes));
        let sign = (half & 0x8000) << 16;
        let magnitude = half & 0x7fff;
        // Normal numbers: the exponent's bias goes from 15 to 127. Infinity and NaN: the exponent becomes all ones.
        let bias = if magnitude >= 0x7c00 { 255 - 31 } else { 127 - 15 };
        let normal = (magnitude << 13) + (bias << 23);
        // Zero and subnormals: a whole number of steps of 2^-24, which binary32 holds as normal numbers.
        let subnormal = (magnitude as i32 as f32 * (1.0 / 16_777_216.0)).to_bits();
        f32::from_bits(sign | if magnitude < 0x0400 { subnormal } else { normal })
    }
}

#[cfg(target_arch = "x86_64")]
impl Element<4> for Widened {
    type Value = f32;
    #[inline(always)]
    fn value(bytes: [u8; 4]) -> f32 {
        f32::from_le_bytes(bytes)
    }
}

impl Element<8> for Fp64 {
    type Value = f64;
    #[inline(always)]
    fn value(bytes: [u8; 8]) -> f64 {
        f64::from_le_bytes(bytes)
    }
}

/// The element at the start of `bytes`, as a double.
pub(crate) fn decode(encoding: Encoding, bytes: &[u8]) -> f64 {
    fn exactly<const BYTES: usize>(bytes: &[u8]) -> [u8; BYTES] {
        let mut out = [0; BYTES];
        out.copy_from_slice(&bytes[..BYTES]);
        out
    }
    match encoding {
        Encoding::Fp32 => Fp32::decode(exactly(bytes)),
        Encoding::Bf16 => Bf16::decode(exactly(bytes)),
        Encoding::Fp16 => Fp16::decode(exactly(bytes)),
        Encoding::Fp64 => Fp64::decode(exactly(bytes)),
    }
}

/// Number of elements that are not close enough.
#[inline(always)]
pub(super) fn count_bad<E: Element<BYTES>, const BYTES: usize>(
    live: &[u8],
    expected: &[u8],
    tolerance: &Tolerance,
) -> usize {
    if E::Value::IS_SINGLE && all_surely_close::<E, BYTES>(live, expected, tolerance) {
        return 0;
    }
    let (atol, rtol) = (tolerance.atol, tolerance.rtol);
    let (live, _) = live.as_chunks::<BYTES>();
    let (expected, _) = expected.as_chunks::<BYTES>();
    // 32 bits are plenty for the elements of a block, and twice as many fit into a register.
    let mut bad = 0u32;
    for (&live, &expected) in live.iter().zip(expected) {
        let (a, e) = (E::decode(live), E::decode(expected));
        let difference = (a - e).abs();
        // `&` and `|`, not `&&` and `||`: no branches. Equal bytes need no test of their own, except for infinities
        // (NaN with NaN passes anyway): their difference is NaN, but they compare equal.
        let close = (difference <= atol + rtol * e.abs()) & (difference < f64::INFINITY);
        let same = (a == e) | (a.is_nan() & e.is_nan());
        bad += u32::from(!(close | same));
    }
    bad as usize
}

/// Whether single precision is enough to see that every element of a 16-bit encoding is close. The usual case, at
/// twice the speed; where it is not enough, double precision decides.
#[inline(always)]
fn all_surely_close<E: Element<BYTES>, const BYTES: usize>(
    live: &[u8],
    expected: &[u8],
    tolerance: &Tolerance,
) -> bool {
    // The difference and the limit each carry at most a few roundings of 2^-24: a limit that is 2^-20 smaller is on
    // the safe side. Below the smallest normal number roundings are no longer relative, so such limits do not count.
    const SMALLEST_LIMIT: f32 = 1e-30;
    let safe = 1.0 - 1.0 / 1_048_576.0;
    let (atol, rtol) = ((tolerance.atol * safe) as f32, (tolerance.rtol * safe) as f32);
    let (live, _) = live.as_chunks::<BYTES>();
    let (expected, _) = expected.as_chunks::<BYTES>();
    let mut unsure = 0u32;
    for (&live, &expected) in live.iter().zip(expected) {
        // Exact: the value is a single by the caller's choice of encoding.
        let (a, e) = (E::decode(live) as f32, E::decode(expected) as f32);
        let difference = (a - e).abs();
        let limit = atol + rtol * e.abs();
        let close = (difference <= limit) & (limit >= SMALLEST_LIMIT) & (difference < f32::INFINITY);
        unsure += u32::from(!(close | (a == e)));
    }
    unsure == 0
}

/// The largest errors of a block.
#[inline(always)]
pub(super) fn deviation<E: Element<BYTES>, const BYTES: usize>(live: &[u8], expected: &[u8]) -> Deviation {
    // Independent maxima, so that each lane of a register has its own and no step waits for the one before.
    const LANES: usize = 16;
    let zero = E::Value::ZERO;
    let infinity = E::Value::INFINITY;
    let (live, _) = live.as_chunks::<BYTES>();
    let (expected, _) = expected.as_chunks::<BYTES>();
    let mut max_abs = [zero; LANES];
    let mut max_rel = [zero; LANES];
    let mut step = |lane: usize, live: [u8; BYTES], expected: [u8; BYTES]| {
        let (a, e) = (E::value(live), E::value(expected));
        let same = (a == e) | (a.is_not_a_number() & e.is_not_a_number());
        let difference = (a - e).magnitude();
        let difference = if difference >= zero { difference } else { infinity };
        let difference = if same { zero } else { difference };
        let relative = difference / e.magnitude();
        let relative = if (e == zero) | same { zero } else { relative };
        // An expected NaN or infinity makes the quotient NaN.
        let relative = if relative >= zero { relative } else { infinity };
        max_abs[lane] = if difference > max_abs[lane] { difference } else { max_abs[lane] };
        max_rel[lane] = if relative > max_rel[lane] { relative } else { max_rel[lane] };
    };
    let (live_rows, live_rest) = live.as_chunks::<LANES>();
    let (expected_rows, expected_rest) = expected.as_chunks::<LANES>();
    for (live, expected) in live_rows.iter().zip(expected_rows) {
        for lane in 0..LANES {
            step(lane, live[lane], expected[lane]);
        }
    }
    for (lane, (&live, &expected)) in live_rest.iter().zip(expected_rest).enumerate() {
        step(lane, live, expected);
    }
    let largest = |lanes: [E::Value; LANES]| lanes.into_iter().map(Into::into).fold(0.0, f64::max);
    Deviation { max_abs: largest(max_abs), max_rel: largest(max_rel) }
}
