//! Packed archives, with everything in them. The hash of the table of contents is made right, so that what the table says is
//! looked at.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    static SCRATCH: OnceLock<tempfile::TempDir> = OnceLock::new();
    let path = SCRATCH.get_or_init(hrr_fuzz::scratch).path().join("fuzz.hrrz");
    let mut bytes = data.to_vec();
    hrr_format::packed::make_hash_right(&mut bytes);
    std::fs::write(&path, &bytes).expect("there is room for a small file");
    hrr_fuzz::read_archive(&path);
    hrr_fuzz::read_archive(&path.join("pid-7"));
});
