//! See `hrr_fuzz::upstream_events`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hrr_fuzz::upstream_events(data));
