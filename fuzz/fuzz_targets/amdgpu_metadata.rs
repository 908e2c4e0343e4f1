//! See `hrr_fuzz::amdgpu_metadata`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hrr_fuzz::amdgpu_metadata(data));
