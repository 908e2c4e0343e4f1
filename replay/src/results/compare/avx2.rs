//! The block loops compiled for AVX2. The wider registers come from the compiler; only fp16 is widened by hand.

use std::arch::x86_64::{_mm_set_epi64x, _mm256_cvtph_ps, _mm256_storeu_ps};

use super::elements::{self, Element, Fp16, Widened};
use super::{BLOCK_BYTES, Deviation, Tolerance};

/// Elements of fp16 in a block.
const HALVES: usize = BLOCK_BYTES / 2;
/// Elements that one instruction widens.
const AT_ONCE: usize = 8;

/// The elements of a block as `f32`.
struct Wide([[u8; 4]; HALVES]);

impl Wide {
    fn new() -> Self {
        Wide([[0; 4]; HALVES])
    }

    /// The elements of `halves`, of which there are at most [`HALVES`].
    #[target_feature(enable = "avx2,f16c")]
    fn of(&mut self, halves: &[u8]) -> &[u8] {
        let (halves, _) = halves.as_chunks::<2>();
        let (rows, rest) = halves.as_chunks::<AT_ONCE>();
        let (wide_rows, _) = self.0.as_chunks_mut::<AT_ONCE>();
        for (row, wide) in rows.iter().zip(&mut *wide_rows) {
            let half = |at: usize| {
                let four = [row[at], row[at + 1], row[at + 2], row[at + 3]];
                i64::from_le_bytes([
                    four[0][0], four[0][1], four[1][0], four[1][1], four[2][0], four[2][1], four[3][0], four[3][1],
                ])
            };
            let values = _mm256_cvtph_ps(_mm_set_epi64x(half(4), half(0)));
            // SAFETY: the row is 32 bytes long, as many as are stored; the store asks for no alignment.
            unsafe { _mm256_storeu_ps(wide.as_mut_ptr().cast(), values) };
        }
        let widened = rows.len() * AT_ONCE;
        for (half, wide) in rest.iter().zip(&mut self.0[widened..]) {
            *wide = <Fp16 as Element<2>>::value(*half).to_le_bytes();
        }
        self.0[..halves.len()].as_flattened()
    }
}

#[target_feature(enable = "avx2,f16c")]
pub(super) fn count_bad_fp16(live: &[u8], expected: &[u8], tolerance: &Tolerance) -> usize {
    let (mut wide_live, mut wide_expected) = (Wide::new(), Wide::new());
    let blocks = live.chunks(BLOCK_BYTES).zip(expected.chunks(BLOCK_BYTES));
    let mut bad = 0;
    for (live, expected) in blocks {
        bad += elements::count_bad::<Widened, 4>(wide_live.of(live), wide_expected.of(expected), tolerance);
    }
    bad
}

#[target_feature(enable = "avx2,f16c")]
pub(super) fn deviation_fp16(live: &[u8], expected: &[u8]) -> Deviation {
    let (mut wide_live, mut wide_expected) = (Wide::new(), Wide::new());
    let blocks = live.chunks(BLOCK_BYTES).zip(expected.chunks(BLOCK_BYTES));
    let mut all = Deviation { max_abs: 0.0, max_rel: 0.0 };
    for (live, expected) in blocks {
        let block = elements::deviation::<Widened, 4>(wide_live.of(live), wide_expected.of(expected));
        all = Deviation { max_abs: all.max_abs.max(block.max_abs), max_rel: all.max_rel.max(block.max_rel) };
    }
    all
}

#[target_feature(enable = "avx2")]
pub(super) fn count_bad<E: Element<BYTES>, const BYTES: usize>(
    live: &[u8],
    expected: &[u8],
    tolerance: &Tolerance,
) -> usize {
    elements::count_bad::<E, BYTES>(live, expected, tolerance)
}

#[target_feature(enable = "avx2")]
pub(super) fn deviation<E: Element<BYTES>, const BYTES: usize>(live: &[u8], expected: &[u8]) -> Deviation {
    elements::deviation::<E, BYTES>(live, expected)
}
