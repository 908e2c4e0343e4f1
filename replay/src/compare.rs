//! Compares what the device produced at replay with what it produced at capture.
//!
//! Bytes first. Where they differ, the contents are taken for fp32, bf16, fp16 and fp64 elements in turn, and the
//! first encoding under which every element is close enough passes. An element is close enough when its bytes are
//! equal, when both sides are NaN, or when `|live - expected| <= atol + rtol * |expected|` in double precision with a
//! finite difference. Archives do not say what a buffer holds: an encoding is tried only where the contents look like
//! numbers of it ([`crate::plausible`]), so that integers that differ do not pass as tiny floats that are close. Where they look
//! like both, they may; [`Tolerance::exact_only`] is for those who cannot have that.
//!
//! Equal blocks are skipped at the speed of `memcmp`. The element loops are branch-free so that they vectorise, and
//! are compiled a second time for AVX2 where the CPU has it; elements of fp16 are widened there by an instruction of their own.

use std::fmt;

use crate::plausible;

/// Environment variable with the absolute tolerance.
pub const ATOL_VARIABLE: &str = "HIP_HRR_D2H_ATOL";
/// Environment variable with the relative tolerance.
pub const RTOL_VARIABLE: &str = "HIP_HRR_D2H_RTOL";
/// Environment variable that, when set to anything, asks for equal bytes.
pub const EXACT_VARIABLE: &str = "HIP_HRR_D2H_EXACT";

/// Tolerance when a variable is not set, absolute and relative alike: about one step of fp16 (2^-10) at 1.0.
pub const DEFAULT_TOLERANCE: f64 = 1e-3;

/// Bytes looked at together: small enough that the second and third look find them in the L1 cache, and a multiple
/// of every element size.
const BLOCK_BYTES: usize = 8192;

/// How far a live value may be from the expected one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Allowed difference, whatever the value.
    pub atol: f64,
    /// Allowed difference as a fraction of the expected value.
    pub rtol: f64,
    /// Only equal bytes pass.
    pub exact_only: bool,
}

impl Default for Tolerance {
    fn default() -> Self {
        Tolerance { atol: DEFAULT_TOLERANCE, rtol: DEFAULT_TOLERANCE, exact_only: false }
    }
}

/// A tolerance variable whose value cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{variable}={value:?} is not a tolerance; set it to a number that is zero or more, such as 1e-3, or unset it")]
pub struct ToleranceError {
    /// Name of the environment variable.
    pub variable: &'static str,
    /// What it was set to.
    pub value: String,
}

impl Tolerance {
    /// Takes the tolerances from the process's environment.
    ///
    /// # Errors
    /// Names the variable whose value is not a finite number of zero or more.
    pub fn from_env() -> Result<Self, ToleranceError> {
        Self::from_variables(|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    /// Takes the tolerances from `lookup`, which stands for the environment.
    fn from_variables(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, ToleranceError> {
        let number = |variable: &'static str| match lookup(variable) {
            None => Ok(DEFAULT_TOLERANCE),
            Some(text) if text.trim().is_empty() => Ok(DEFAULT_TOLERANCE),
            Some(text) => match text.trim().parse::<f64>() {
                Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
                _ => Err(ToleranceError { variable, value: text }),
            },
        };
        Ok(Tolerance {
            atol: number(ATOL_VARIABLE)?,
            rtol: number(RTOL_VARIABLE)?,
            exact_only: lookup(EXACT_VARIABLE).is_some(),
        })
    }
}

/// What the elements of a buffer were taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// IEEE binary32.
    Fp32,
    /// The upper half of a binary32.
    Bf16,
    /// IEEE binary16.
    Fp16,
    /// IEEE binary64.
    Fp64,
}

impl Encoding {
    /// The order in which encodings are tried.
    pub const ORDER: [Encoding; 4] = [Encoding::Fp32, Encoding::Bf16, Encoding::Fp16, Encoding::Fp64];

    /// Size of one element in bytes.
    pub const fn element_bytes(self) -> usize {
        match self {
            Encoding::Fp32 => 4,
            Encoding::Bf16 | Encoding::Fp16 => 2,
            Encoding::Fp64 => 8,
        }
    }

    /// Lower-case name, as the summary prints it.
    pub const fn name(self) -> &'static str {
        match self {
            Encoding::Fp32 => "fp32",
            Encoding::Bf16 => "bf16",
            Encoding::Fp16 => "fp16",
            Encoding::Fp64 => "fp64",
        }
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Outcome of one comparison.
#[derive(Clone, Debug, PartialEq)]
pub enum Comparison {
    /// Every byte is equal.
    Exact,
    /// Bytes differ, every element is within the tolerance.
    Within {
        /// First encoding under which this holds.
        encoding: Encoding,
        /// Largest `|live - expected|`, in single precision for 16-bit encodings.
        max_abs: f64,
        /// Largest `|live - expected| / |expected|` over elements whose expected value is not zero, likewise.
        max_rel: f64,
    },
    /// The contents differ.
    Mismatch(Box<Mismatch>),
    /// There was nothing to compare. Counts as skipped, never as a pass.
    Nothing,
}

/// Where and by how much contents differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Mismatch {
    /// The encoding with the fewest bad elements, the first of them in [`Encoding::ORDER`]. None where bytes were
    /// compared as bytes: only exact contents were asked for, lengths differ, or no element size divides the length.
    pub encoding: Option<Encoding>,
    /// Offset of the first bad element, or byte, in bytes.
    pub first_bad_byte: usize,
    /// Index of the first bad element, or byte.
    pub first_bad_element: usize,
    /// What the replay produced there; None past its end.
    pub live: Option<f64>,
    /// What the archive holds there; None past its end.
    pub expected: Option<f64>,
    /// Largest `|live - expected|`; infinite where one side is not a number.
    pub max_abs: f64,
    /// Largest `|live - expected| / |expected|` over elements whose expected value is not zero.
    pub max_rel: f64,
    /// Number of bad elements, or bytes.
    pub bad_count: usize,
    /// Number of elements, or bytes, compared.
    pub element_count: usize,
    /// Bytes that the replay produced.
    pub live_len_bytes: usize,
    /// Bytes that the archive holds.
    pub expected_len_bytes: usize,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.live_len_bytes != self.expected_len_bytes {
            write!(f, "{} bytes where {} were expected; ", self.live_len_bytes, self.expected_len_bytes)?;
        }
        let unit = self.encoding.map_or_else(|| "byte".to_owned(), |encoding| format!("{encoding} element"));
        write!(
            f,
            "{} of {} {unit}s differ, first at {unit} {}",
            self.bad_count, self.element_count, self.first_bad_element
        )?;
        if self.encoding.is_some() {
            write!(f, " (byte {})", self.first_bad_byte)?;
        }
        let value = |value: Option<f64>| match (value, self.encoding) {
            (None, _) => "nothing".to_owned(),
            (Some(value), None) => format!("{value:#04x}", value = value as u8),
            (Some(value), Some(_)) => format!("{value:?}"),
        };
        write!(f, ": live {}, expected {}", value(self.live), value(self.expected))?;
        if self.encoding.is_some() {
            write!(f, "; max abs error {:.3e}, max rel error {:.3e}", self.max_abs, self.max_rel)?;
        }
        Ok(())
    }
}

/// Compares the bytes `live`, produced now, with the bytes `expected`, produced at capture.
pub fn compare(live: &[u8], expected: &[u8], tolerance: &Tolerance) -> Comparison {
    if live.is_empty() && expected.is_empty() {
        return Comparison::Nothing;
    }
    if live.len() != expected.len() {
        return Comparison::Mismatch(Box::new(byte_mismatch(live, expected)));
    }
    // Everything before the first differing block is equal, under every encoding.
    let Some(equal_bytes) = first_differing_block(live, expected) else {
        return Comparison::Exact;
    };
    if tolerance.exact_only {
        return Comparison::Mismatch(Box::new(byte_mismatch(live, expected)));
    }
    let encodings: Vec<Encoding> = Encoding::ORDER
        .into_iter()
        .filter(|encoding| live.len().is_multiple_of(encoding.element_bytes()))
        .filter(|encoding| plausible::can_be(*encoding, live, expected, equal_bytes))
        .collect();
    if encodings.is_empty() {
        return Comparison::Mismatch(Box::new(byte_mismatch(live, expected)));
    }
    let encodings = || encodings.iter().copied();
    let (live_rest, expected_rest) = (&live[equal_bytes..], &expected[equal_bytes..]);
    for encoding in encodings() {
        if let Some(found) = scan(encoding, live_rest, expected_rest, tolerance, Scan::UntilBad) {
            return Comparison::Within { encoding, max_abs: found.max_abs, max_rel: found.max_rel };
        }
    }
    let (encoding, found) = encodings()
        .filter_map(|encoding| Some((encoding, scan(encoding, live_rest, expected_rest, tolerance, Scan::Whole)?)))
        .min_by_key(|(_, found)| found.bad_count)
        .expect("a whole scan always has a result, and there is at least one encoding");
    let first_bad_byte = equal_bytes + found.first_bad_byte.unwrap_or(0);
    let element = first_bad_byte..first_bad_byte + encoding.element_bytes();
    Comparison::Mismatch(Box::new(Mismatch {
        encoding: Some(encoding),
        first_bad_byte,
        first_bad_element: first_bad_byte / encoding.element_bytes(),
        live: Some(decode(encoding, &live[element.clone()])),
        expected: Some(decode(encoding, &expected[element])),
        max_abs: found.max_abs,
        max_rel: found.max_rel,
        bad_count: found.bad_count,
        element_count: live.len() / encoding.element_bytes(),
        live_len_bytes: live.len(),
        expected_len_bytes: expected.len(),
    }))
}

/// Offset of the first block that differs; None when all are equal. Slices are of one length.
fn first_differing_block(live: &[u8], expected: &[u8]) -> Option<usize> {
    let block = live.chunks(BLOCK_BYTES).zip(expected.chunks(BLOCK_BYTES)).position(|(a, b)| a != b)?;
    Some(block * BLOCK_BYTES)
}

/// The mismatch in terms of bytes. Bytes that only one side has are bad.
fn byte_mismatch(live: &[u8], expected: &[u8]) -> Mismatch {
    let common = live.len().min(expected.len());
    let longest = live.len().max(expected.len());
    let differing = || live.iter().zip(expected).enumerate().filter(|(_, (a, b))| a != b);
    let first_bad = differing().next().map_or(common, |(offset, _)| offset);
    let (mut max_abs, mut max_rel) = (0.0f64, 0.0f64);
    let mut bad_count = longest - common;
    for (_, (&live, &expected)) in differing() {
        bad_count += 1;
        let difference = f64::from(live.abs_diff(expected));
        max_abs = max_abs.max(difference);
        if expected != 0 {
            max_rel = max_rel.max(difference / f64::from(expected));
        }
    }
    Mismatch {
        encoding: None,
        first_bad_byte: first_bad,
        first_bad_element: first_bad,
        live: live.get(first_bad).copied().map(f64::from),
        expected: expected.get(first_bad).copied().map(f64::from),
        max_abs,
        max_rel,
        bad_count,
        element_count: longest,
        live_len_bytes: live.len(),
        expected_len_bytes: expected.len(),
    }
}

/// How far a scan goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scan {
    /// Gives up in the first block with a bad element.
    UntilBad,
    /// Counts every bad element.
    Whole,
}

/// What a scan of all elements found.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    bad_count: usize,
    first_bad_byte: Option<usize>,
    max_abs: f64,
    max_rel: f64,
}

/// Counts of one block.
#[derive(Clone, Copy, Debug)]
struct Deviation {
    max_abs: f64,
    max_rel: f64,
}

/// Scans all blocks under one encoding; None when `Scan::UntilBad` met a bad element.
fn scan(encoding: Encoding, live: &[u8], expected: &[u8], tolerance: &Tolerance, extent: Scan) -> Option<Found> {
    let kernels = Kernels::of(encoding);
    let mut found = Found::default();
    let blocks = live.chunks(BLOCK_BYTES).zip(expected.chunks(BLOCK_BYTES));
    for (index, (live, expected)) in blocks.enumerate() {
        if live == expected {
            continue;
        }
        let bad = (kernels.count_bad)(live, expected, tolerance);
        if bad > 0 {
            if extent == Scan::UntilBad {
                return None;
            }
            found.bad_count += bad;
            if found.first_bad_byte.is_none() {
                let bytes = encoding.element_bytes();
                let element = live
                    .chunks_exact(bytes)
                    .zip(expected.chunks_exact(bytes))
                    .position(|(live, expected)| (kernels.count_bad)(live, expected, tolerance) > 0);
                found.first_bad_byte = element.map(|element| index * BLOCK_BYTES + element * bytes);
            }
        }
        let deviation = (kernels.deviation)(live, expected);
        found.max_abs = found.max_abs.max(deviation.max_abs);
        found.max_rel = found.max_rel.max(deviation.max_rel);
    }
    Some(found)
}

/// The two block loops of one encoding, in the widest form that this CPU runs.
#[derive(Clone, Copy)]
struct Kernels {
    count_bad: fn(&[u8], &[u8], &Tolerance) -> usize,
    deviation: fn(&[u8], &[u8]) -> Deviation,
}

impl Kernels {
    fn of(encoding: Encoding) -> Kernels {
        match encoding {
            Encoding::Fp32 => Self::widest::<Fp32, 4>(),
            Encoding::Bf16 => Self::widest::<Bf16, 2>(),
            Encoding::Fp16 => Self::of_fp16(),
            Encoding::Fp64 => Self::widest::<Fp64, 8>(),
        }
    }

    fn of_fp16() -> Kernels {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("f16c") {
            return Kernels {
                // SAFETY: AVX2 and F16C were detected on the line above, which is all that the function asks for.
                count_bad: |live, expected, tolerance| unsafe { avx2::count_bad_fp16(live, expected, tolerance) },
                // SAFETY: as above.
                deviation: |live, expected| unsafe { avx2::deviation_fp16(live, expected) },
            };
        }
        Self::widest::<Fp16, 2>()
    }

    fn widest<E: Element<BYTES>, const BYTES: usize>() -> Kernels {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            return Kernels {
                // SAFETY: AVX2 was detected on the line above, which is all that the function asks for.
                count_bad: |live, expected, tolerance| unsafe {
                    avx2::count_bad::<E, BYTES>(live, expected, tolerance)
                },
                // SAFETY: as above.
                deviation: |live, expected| unsafe { avx2::deviation::<E, BYTES>(live, expected) },
            };
        }
        Kernels { count_bad: count_bad::<E, BYTES>, deviation: deviation::<E, BYTES> }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2;

/// An encoding that the block loops are made for.
trait Element<const BYTES: usize> {
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
trait Value: Copy + PartialOrd + std::ops::Sub<Output = Self> + std::ops::Div<Output = Self> + Into<f64> {
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

struct Fp32;
struct Bf16;
struct Fp16;
struct Fp64;
/// A value of a 16-bit encoding, held as `f32`.
#[cfg(target_arch = "x86_64")]
struct Widened;

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

/// The value of one element, for messages.
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
fn count_bad<E: Element<BYTES>, const BYTES: usize>(live: &[u8], expected: &[u8], tolerance: &Tolerance) -> usize {
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
fn deviation<E: Element<BYTES>, const BYTES: usize>(live: &[u8], expected: &[u8]) -> Deviation {
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

#[cfg(test)]
mod tests;
