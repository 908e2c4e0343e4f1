//! See `hrr_fuzz::listing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hrr_fuzz::listing(data));
