//! See `hrr_fuzz::packed`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hrr_fuzz::packed(data));
