//! Hand-made values, and the block loops against an element at a time.

use proptest::prelude::*;

use super::*;

const DEFAULT: Tolerance = Tolerance { atol: 1e-3, rtol: 1e-3, exact_only: false };

fn fp32(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn fp64(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn words16(values: &[u16]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn mismatch(live: &[u8], expected: &[u8], tolerance: &Tolerance) -> Mismatch {
    match compare(live, expected, tolerance) {
        Comparison::Mismatch(mismatch) => *mismatch,
        other => panic!("{other:?} is not a mismatch"),
    }
}

fn within(live: &[u8], expected: &[u8]) -> (Encoding, f64, f64) {
    match compare(live, expected, &DEFAULT) {
        Comparison::Within { encoding, max_abs, max_rel } => (encoding, max_abs, max_rel),
        other => panic!("{other:?} is not within the tolerance"),
    }
}

#[test]
fn nothing_is_not_a_pass() {
    assert_eq!(compare(&[], &[], &DEFAULT), Comparison::Nothing);
}

#[test]
fn equal_bytes_are_exact_whatever_they_hold() {
    for len in [1, 2, 3, 7, 8, BLOCK_BYTES - 1, BLOCK_BYTES, 3 * BLOCK_BYTES + 5] {
        let bytes: Vec<u8> = (0..len).map(|i| (i * 31) as u8).collect();
        assert_eq!(compare(&bytes, &bytes, &DEFAULT), Comparison::Exact);
    }
}

#[test]
fn a_missing_tail_is_a_mismatch() {
    let found = mismatch(&[1, 2], &[1, 2, 3, 4], &DEFAULT);
    assert_eq!((found.first_bad_byte, found.live, found.expected, found.bad_count), (2, None, Some(3.0), 2));
    assert_eq!(
        found.to_string(),
        "2 bytes where 4 were expected; 2 of 4 bytes differ, first at byte 2: live nothing, expected 0x03"
    );
    let found = mismatch(&[], &[9], &DEFAULT);
    assert_eq!((found.live_len_bytes, found.expected_len_bytes, found.bad_count), (0, 1, 1));
    assert!(matches!(compare(&[9], &[], &DEFAULT), Comparison::Mismatch(_)));
}

#[test]
fn fp32_within_and_beyond_the_tolerance() {
    // The limit at 1000 is 1e-3 + 1.0; the two steps around it are 1001.0009 and 1001.002.
    let (encoding, max_abs, max_rel) = within(&fp32(&[1.0, 1001.0]), &fp32(&[1.0, 1000.0]));
    assert_eq!((encoding, max_abs, max_rel), (Encoding::Fp32, 1.0, 1e-3));
    let found = scan(Encoding::Fp32, &fp32(&[1.0, 1002.0]), &fp32(&[1.0, 1000.0]), &DEFAULT, Scan::Whole).unwrap();
    assert_eq!((found.bad_count, found.first_bad_byte, found.max_abs, found.max_rel), (1, Some(4), 2.0, 2e-3));
    // 1002 differs from 1000 only in its low half, which as bf16 is -0 against 0.
    assert!(matches!(
        compare(&fp32(&[1.0, 1002.0]), &fp32(&[1.0, 1000.0]), &DEFAULT),
        Comparison::Within { encoding: Encoding::Bf16, .. }
    ));
}

#[test]
fn the_limit_itself_passes() {
    let exact = Tolerance { atol: 0.5, rtol: 0.25, exact_only: false };
    // 0.5 + 0.25 * 2 = 1 exactly.
    let bad = |live: f64| scan(Encoding::Fp64, &fp64(&[live]), &fp64(&[2.0]), &exact, Scan::Whole).unwrap().bad_count;
    assert_eq!(bad(3.0), 0);
    assert_eq!(bad(f64::from_bits(3.0f64.to_bits() + 1)), 1);
    assert_eq!(bad(1.0), 0);
    assert_eq!(bad(f64::from_bits(1.0f64.to_bits() - 2)), 1);
}

#[test]
fn the_expected_value_scales_the_tolerance() {
    // 0.0 against 1000.0 fails both ways; 1.0011 against 0.0 has only atol to stand on.
    assert!(matches!(compare(&fp32(&[0.0, 0.0]), &fp32(&[1000.0, 1000.0]), &DEFAULT), Comparison::Mismatch(_)));
    let only_rtol = Tolerance { atol: 0.0, rtol: 1.0, exact_only: false };
    assert!(matches!(compare(&fp64(&[0.0]), &fp64(&[5.5]), &only_rtol), Comparison::Within { .. }));
    assert!(matches!(compare(&fp64(&[5.5]), &fp64(&[0.0]), &only_rtol), Comparison::Mismatch(_)));
}

#[test]
fn two_nans_pass_and_one_fails() {
    let quiet = f32::from_bits(0x7fc0_0000);
    let other = f32::from_bits(0x7fc1_2345);
    let (encoding, max_abs, _) = within(&fp32(&[quiet, 2.0]), &fp32(&[other, 2.0]));
    assert_eq!((encoding, max_abs), (Encoding::Fp32, 0.0));
    let found = mismatch(&fp64(&[f64::NAN]), &fp64(&[1.0]), &DEFAULT);
    assert_eq!(found.max_abs, f64::INFINITY);
    assert!(matches!(compare(&fp64(&[1.0]), &fp64(&[f64::NAN]), &DEFAULT), Comparison::Mismatch(_)));
}

#[test]
fn infinities_pass_only_where_equal() {
    let generous = Tolerance { atol: 1e300, rtol: 1e300, exact_only: false };
    let inf = f64::INFINITY;
    assert!(matches!(compare(&fp64(&[inf, 1.0]), &fp64(&[inf, 2.0]), &generous), Comparison::Within { .. }));
    for (live, expected) in [(inf, 1.0), (1.0, inf), (inf, -inf)] {
        let found = scan(Encoding::Fp64, &fp64(&[live]), &fp64(&[expected]), &generous, Scan::Whole).unwrap();
        assert_eq!((found.bad_count, found.max_abs), (1, inf), "{live} against {expected}");
    }
}

#[test]
fn bf16_and_fp16_and_fp64_are_tried_in_turn() {
    // bf16 1.0 = 0x3f80, one step above it is 1.0078: too far. 0.0625 = 0x3d80, one step above is 0.0630.
    let (encoding, max_abs, _) = within(&words16(&[0x3d81]), &words16(&[0x3d80]));
    assert_eq!((encoding, max_abs), (Encoding::Bf16, 0.000_488_281_25));
    // fp16 1.0 = 0x3c00, one step above is 1.000977; taken for bf16, 0x3c00 is 0.0078125 and its step 6.1e-5: bf16
    // is tried first and passes as well. fp16 100 = 0x5640 and 100.0625 = 0x5641; as bf16 the step is 0.8 % of 5e13.
    let (encoding, max_abs, _) = within(&words16(&[0x5641]), &words16(&[0x5640]));
    assert_eq!((encoding, max_abs), (Encoding::Fp16, 0.0625));
    // About 1e6, a little apart in the low word, which as a smaller float is 1.1e9 against 4.6e18, 26 against 416.
    let (live, expected) = (f64::from_bits(0x412e_8480_5e80_0000), f64::from_bits(0x412e_8480_4e80_0000));
    let (encoding, max_abs, max_rel) = within(&fp64(&[live]), &fp64(&[expected]));
    assert_eq!((encoding, max_abs, max_rel), (Encoding::Fp64, live - expected, (live - expected) / expected));
}

#[test]
fn only_encodings_whose_size_divides_are_tried() {
    // Six bytes are three fp16 and no fp32, whatever they would look like.
    let (encoding, ..) = within(&words16(&[0x3d81, 0, 0]), &words16(&[0x3d80, 0, 0]));
    assert_eq!(encoding, Encoding::Bf16);
    let found = mismatch(&[1, 2, 3], &[1, 7, 3], &DEFAULT);
    assert_eq!((found.encoding, found.first_bad_byte, found.bad_count, found.element_count), (None, 1, 1, 3));
    assert_eq!(found.to_string(), "1 of 3 bytes differ, first at byte 1: live 0x02, expected 0x07");
}

#[test]
fn exact_only_takes_no_float() {
    let exact = Tolerance { exact_only: true, ..DEFAULT };
    let found = mismatch(&fp32(&[1.000_000_1]), &fp32(&[1.0]), &exact);
    assert_eq!((found.encoding, found.first_bad_byte, found.bad_count), (None, 0, 1));
    assert_eq!(compare(&[5; 64], &[5; 64], &exact), Comparison::Exact);
}

#[test]
fn a_mismatch_is_told_in_the_encoding_with_the_fewest_bad_elements() {
    // One bad fp32, in the second block. Its place is odd: as the upper half of an fp64 it is bad there too.
    let expected: Vec<f32> = (0..4096).map(|i| i as f32 + 0.375).collect();
    let mut live = expected.clone();
    live[3001] = -1.5e9;
    let found = mismatch(&fp32(&live), &fp32(&expected), &DEFAULT);
    assert_eq!(found.encoding, Some(Encoding::Fp32));
    assert_eq!((found.first_bad_byte, found.first_bad_element, found.bad_count), (12_004, 3001, 1));
    assert_eq!((found.live, found.expected), (Some(-1.5e9), Some(3001.375)));
    assert_eq!(found.max_abs, 1.5e9 + 3001.375);
    assert_eq!(found.element_count, 4096);
    assert_eq!(
        found.to_string(),
        "1 of 4096 fp32 elements differ, first at fp32 element 3001 (byte 12004): live -1500000000.0, expected \
         3001.375; max abs error 1.500e9, max rel error 4.998e5"
    );
}

#[test]
fn an_early_block_is_not_forgotten_by_a_later_one() {
    let expected = vec![1.0f32; 3 * BLOCK_BYTES / 4];
    let mut live = expected.clone();
    live[1] = 7.0;
    live[BLOCK_BYTES / 4 + 5] = 2.0;
    live[BLOCK_BYTES / 2 + 9] = 1.000_001;
    let found = mismatch(&fp32(&live), &fp32(&expected), &DEFAULT);
    assert_eq!((found.first_bad_element * found.encoding.unwrap().element_bytes(), found.max_abs), (4, 6.0));
}

#[test]
fn every_half_decodes_to_its_value() {
    for bits in 0..=u16::MAX {
        let (sign, exponent, mantissa) = (bits >> 15, i32::from(bits >> 10 & 31), f64::from(bits & 0x3ff));
        let magnitude = match exponent {
            0 => mantissa * 2f64.powi(-24),
            31 if mantissa == 0.0 => f64::INFINITY,
            31 => f64::NAN,
            _ => (1.0 + mantissa / 1024.0) * 2f64.powi(exponent - 15),
        };
        let expected = if sign == 1 { -magnitude } else { magnitude };
        let decoded = Fp16::decode(bits.to_le_bytes());
        assert!(
            decoded.to_bits() == expected.to_bits() || (decoded.is_nan() && expected.is_nan()),
            "{bits:#06x}: {decoded} is not {expected}"
        );
    }
    // Values from the IEEE 754 binary16 tables.
    let value = |bits: u16| Fp16::decode(bits.to_le_bytes());
    assert_eq!((value(0x3555), value(0x7bff), value(0x0001)), (0.333_251_953_125, 65_504.0, 5.960_464_477_539_063e-8));
}

#[test]
fn every_fp16_value_is_the_same_in_both_builds_of_the_loops() {
    let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let kernels = Kernels::of(Encoding::Fp16);
    // Blocks whole and broken off, against values of every kind.
    for against in [0x3c00u16, 0x0000, 0x8001, 0x7c00, 0x7e00] {
        for live in all.chunks(BLOCK_BYTES).chain(all.chunks(46)) {
            let expected: Vec<u8> = against.to_le_bytes().iter().copied().cycle().take(live.len()).collect();
            let (wide, plain) = ((kernels.deviation)(live, &expected), deviation::<Fp16, 2>(live, &expected));
            assert_eq!((wide.max_abs, wide.max_rel), (plain.max_abs, plain.max_rel), "{live:02x?}, {against:#x}");
            let bad = (kernels.count_bad)(live, &expected, &DEFAULT);
            assert_eq!(bad, count_bad::<Fp16, 2>(live, &expected, &DEFAULT), "{live:02x?}, {against:#x}");
        }
    }
}

fn naive(live: &[u8], expected: &[u8], tolerance: &Tolerance) -> Option<Encoding> {
    tried(live, expected).find(|&encoding| {
        let size = encoding.element_bytes();
        live.chunks(size)
            .zip(expected.chunks(size))
            .all(|(live, expected)| naive_close(encoding, live, expected, tolerance))
    })
}

/// The encodings that come into question.
fn tried<'a>(live: &'a [u8], expected: &'a [u8]) -> impl Iterator<Item = Encoding> + 'a {
    let equal_bytes = first_differing_block(live, expected).unwrap_or(0);
    Encoding::ORDER
        .into_iter()
        .filter(|encoding| live.len().is_multiple_of(encoding.element_bytes()))
        .filter(move |encoding| plausible::can_be(*encoding, live, expected, equal_bytes))
}

#[test]
fn small_integers_that_differ_do_not_pass_as_tiny_floats() {
    let integers =
        |added: u32| (0..256).flat_map(|value: u32| (value * 1000 + added).to_le_bytes()).collect::<Vec<u8>>();
    let found = mismatch(&integers(1), &integers(0), &Tolerance::default());
    assert_eq!((found.encoding, found.first_bad_byte), (None, 0));
    // A count, by itself.
    let found = mismatch(&7u64.to_le_bytes(), &8u64.to_le_bytes(), &Tolerance::default());
    assert_eq!((found.encoding, found.bad_count), (None, 1));
}

fn naive_close(encoding: Encoding, live: &[u8], expected: &[u8], tolerance: &Tolerance) -> bool {
    if live == expected {
        return true;
    }
    let (a, e) = (decode(encoding, live), decode(encoding, expected));
    if a.is_nan() && e.is_nan() {
        return true;
    }
    let difference = (a - e).abs();
    difference.is_finite() && difference <= tolerance.atol + tolerance.rtol * e.abs()
}

/// Expected contents, and live contents that differ from them a little, much, or not at all.
fn pairs() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let contents = prop_oneof![
        // Anything at all.
        proptest::collection::vec(any::<u8>(), 1..200),
        // Ordinary numbers of each kind.
        proptest::collection::vec(-1e4f32..1e4, 1..60).prop_map(|values| fp32(&values)),
        proptest::collection::vec(-1e4f64..1e4, 1..30).prop_map(|values| fp64(&values)),
        proptest::collection::vec(0x2c00u16..0x5c00, 1..60).prop_map(|values| words16(&values)),
        // Special values of each kind.
        proptest::collection::vec(
            prop_oneof![Just(0x7f80u16), Just(0xff80), Just(0x7fc0), Just(0x7c00), Just(0)],
            1..40
        )
        .prop_map(|values| words16(&values)),
    ];
    let edits = proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>(), any::<bool>()), 0..6);
    (contents, edits, any::<u16>()).prop_map(|(mut expected, edits, lead_blocks)| {
        let mut live = expected.clone();
        for (index, value, small) in edits {
            let at = index.index(live.len());
            live[at] = if small { live[at].wrapping_add(value % 3) } else { value };
        }
        // Now and then behind equal blocks, so that offsets are not all in the first block.
        if lead_blocks.is_multiple_of(8) {
            let lead = vec![0x11; BLOCK_BYTES - 8];
            live.splice(0..0, lead.iter().copied());
            expected.splice(0..0, lead);
        }
        (live, expected)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn agrees_with_an_element_at_a_time((live, expected) in pairs(), atol in prop_oneof![Just(1e-3), 0.0..10.0], rtol in prop_oneof![Just(1e-3), 0.0..1.0]) {
        let tolerance = Tolerance { atol, rtol, exact_only: false };
        let passes = naive(&live, &expected, &tolerance);
        match compare(&live, &expected, &tolerance) {
            Comparison::Exact => prop_assert_eq!(&live, &expected),
            Comparison::Within { encoding, .. } => {
                prop_assert_ne!(&live, &expected);
                prop_assert_eq!(Some(encoding), passes);
            }
            Comparison::Nothing => prop_assert!(false, "contents are never empty here"),
            Comparison::Mismatch(found) => {
                prop_assert_eq!(passes, None);
                if let Some(encoding) = found.encoding {
                    let size = encoding.element_bytes();
                    let bad: Vec<usize> = live.chunks(size).zip(expected.chunks(size)).enumerate()
                        .filter(|(_, (a, e))| !naive_close(encoding, a, e, &tolerance)).map(|(i, _)| i).collect();
                    prop_assert_eq!(found.bad_count, bad.len());
                    prop_assert_eq!(found.first_bad_element, bad[0]);
                    prop_assert_eq!(found.first_bad_byte, bad[0] * size);
                } else {
                    prop_assert_eq!(tried(&live, &expected).next(), None);
                }
            }
        }
    }

    #[test]
    fn both_builds_of_the_loops_agree((live, expected) in pairs()) {
        for encoding in Encoding::ORDER {
            let kernels = Kernels::of(encoding);
            let plain = match encoding {
                Encoding::Fp32 => (count_bad::<Fp32, 4>(&live, &expected, &DEFAULT), deviation::<Fp32, 4>(&live, &expected)),
                Encoding::Bf16 => (count_bad::<Bf16, 2>(&live, &expected, &DEFAULT), deviation::<Bf16, 2>(&live, &expected)),
                Encoding::Fp16 => (count_bad::<Fp16, 2>(&live, &expected, &DEFAULT), deviation::<Fp16, 2>(&live, &expected)),
                Encoding::Fp64 => (count_bad::<Fp64, 8>(&live, &expected, &DEFAULT), deviation::<Fp64, 8>(&live, &expected)),
            };
            prop_assert_eq!((kernels.count_bad)(&live, &expected, &DEFAULT), plain.0);
            let wide = (kernels.deviation)(&live, &expected);
            prop_assert_eq!((wide.max_abs, wide.max_rel), (plain.1.max_abs, plain.1.max_rel));
        }
    }
}
