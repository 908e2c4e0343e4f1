//! See `hrr_fuzz::kernel_table`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hrr_fuzz::kernel_table(data));
