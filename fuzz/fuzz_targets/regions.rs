//! See `hrr_fuzz::regions`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hrr_fuzz::regions(data));
