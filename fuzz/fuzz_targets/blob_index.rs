//! See `hrr_fuzz::blob_index`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hrr_fuzz::blob_index(data));
