//! The metadata note of an AMD GPU image.
#![no_main]

use hrr_format::code_object::metadata_signatures;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for signature in metadata_signatures(data).unwrap_or_default() {
        assert!(signature.explicit_bytes() <= hrr_format::code_object::MAX_KERNARG_BYTES);
    }
});
