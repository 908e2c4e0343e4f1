//! See `hrr_fuzz::code_object`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hrr_fuzz::code_object(data));
