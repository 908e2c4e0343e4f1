//! Stream files: header page and records.
#![no_main]

use hrr_format::stream_file::{HEADER_BYTES, Records, StreamHeader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    // The first bytes stand for the start of the header page, whose rest is zeros.
    let (start, records) = data.split_at(data.len().min(72));
    let mut page = vec![0; HEADER_BYTES];
    page[..start.len()].copy_from_slice(start);
    let _ = StreamHeader::parse(&page);
    let mut read = Records::over(records);
    for record in read.by_ref() {
        hrr_fuzz::read_record(&record);
    }
    if let Some(damage) = read.damage() {
        assert!(damage.offset_bytes < records.len() as u64);
    }
});
