//! Indexes of blob stores.
#![no_main]

use hrr_format::blob_store::BlobIndex;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(index) = BlobIndex::parse(data) else { return };
    assert!(index.entries().windows(2).all(|pair| pair[0].number < pair[1].number));
    for entry in index.entries() {
        assert_eq!(index.get(entry.number), Some(entry));
    }
    let _ = index.damage().iter().map(ToString::to_string).collect::<Vec<_>>();
});
