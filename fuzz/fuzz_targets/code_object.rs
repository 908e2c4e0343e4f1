//! Code objects: bundles, compressed bundles, ELF images and their metadata.
#![no_main]

use hrr_format::code_object::{MAX_KERNARG_BYTES, image_len, signatures};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = image_len(data);
    for signature in signatures(data).unwrap_or_default() {
        assert!(signature.explicit_bytes() <= MAX_KERNARG_BYTES);
    }
});
