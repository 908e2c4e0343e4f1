//! See `hrr_fuzz::stream_file`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hrr_fuzz::stream_file(data));
