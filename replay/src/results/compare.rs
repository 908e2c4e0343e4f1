//! Compares what the device produced at replay with what it produced at capture.
//!
//! Bytes first. Where they differ, the contents are taken for fp32, bf16, fp16 and fp64 elements in turn, and the
//! first encoding under which every element is close enough passes. An element is close enough when its bytes are
//! equal, when both sides are NaN, or when `|live - expected| <= atol + rtol * |expected|` in double precision with a
//! finite difference. Archives do not say what a buffer holds: an encoding is tried only where the contents look like
//! numbers of it ([`crate::results::plausible`]), so that integers that differ do not pass as tiny floats that are close. Where they look
//! like both, they may; [`Tolerance::exact_only`] is for those who cannot have that.
//!
//! Equal blocks are skipped at the speed of `memcmp`; the loops over elements are in `elements.rs`.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod elements;
mod tolerance;

use std::fmt;

use crate::results::plausible;

use self::elements::{Bf16, Element, Fp16, Fp32, Fp64, count_bad, deviation};

pub(crate) use self::elements::decode;
pub use self::tolerance::{ATOL_VARIABLE, DEFAULT_TOLERANCE, EXACT_VARIABLE, RTOL_VARIABLE, Tolerance};

/// Bytes looked at together: small enough that the second and third look find them in the L1 cache, and a multiple
/// of every element size.
const BLOCK_BYTES: usize = 8192;

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

#[cfg(test)]
mod tests;
