//! Region sidecars: their bytes, how files are merged, and what was there at a moment.
#![no_main]

use hrr_format::regions::{ENTRY_BYTES, PointerClass, RegionKind, Regions, encode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    // The first byte says where one file ends and the next begins, in entries.
    let (at, data) = data.split_first().unwrap_or((&0, &[]));
    let (first, second) = data.split_at((usize::from(*at) * ENTRY_BYTES).min(data.len()));
    let mut regions = Regions::default();
    for (name, bytes) in [("a.hrrr", first), ("b.hrrr", second)] {
        regions.add_file(name, bytes);
    }
    regions.merge();
    assert!(regions.entries().len() * ENTRY_BYTES <= data.len());
    let mut cursor = regions.cursor();
    let mut passed = 0;
    for region in regions.entries() {
        assert!(region.end() >= region.base);
        passed += cursor.advance(region.time_ns).len();
        for kind in [RegionKind::Block, RegionKind::Segment] {
            let live: Vec<_> = cursor.live().all(kind).collect();
            assert!(live.windows(2).all(|pair| pair[0].end() <= pair[1].base));
        }
        if let PointerClass::Block(block) = cursor.live().class(region.base) {
            assert!(block.base <= region.base && region.base < block.end());
        }
    }
    assert_eq!(passed, regions.entries().len());
    // What was read and is written again reads the same.
    let mut again = Regions::default();
    again.add_file("c.hrrr", &encode(&[regions.entries()]));
    again.merge();
    assert_eq!(again.entries(), regions.entries());
});
