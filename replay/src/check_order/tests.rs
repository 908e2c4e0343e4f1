//! The checker itself: what it demands, and that it can say no.

use super::*;
use hrr_format::archive_writer::ArchiveWriter;
use hrr_format::catalogue::Api;
use hrr_format::record::{Presence, SectionTag};
use hrr_format::record_builder::RecordBuilder;
use hrr_format::stream_file::ContentsMode;

/// Two threads: the first makes an event, both look at a device meanwhile, then the second records the event.
fn archive(path: &std::path::Path) -> Archive {
    let id = |name: &str| Api::by_name(name).unwrap().id;
    let create = RecordBuilder::new(id("hipEventCreate"), &[0x7000]).ticks(10, 20);
    let create = create.section(SectionTag::Out, 0, Presence::Present, &0xabc_u64.to_le_bytes());
    let look = |begin| {
        let record = RecordBuilder::new(id("hipGetDevice"), &[0x7000]).ticks(begin, begin + 5);
        record.section(SectionTag::Out, 0, Presence::Present, &[0; 4]).build()
    };
    let record = RecordBuilder::new(id("hipEventRecord"), &[0xabc, 0]).ticks(50, 60);
    let mut writer = ArchiveWriter::create(path, 1, ContentsMode::Contents).unwrap();
    writer.stream(0, 100, "", &[create.build(), look(30)]).unwrap();
    writer.stream(1, 101, "", &[look(32), record.build()]).unwrap();
    writer.finish().unwrap();
    Archive::open(path).unwrap()
}

fn said(archive: &Archive, order: OrderMode, calls: &[(u64, u32, u64, u64)]) -> (bool, String) {
    let calls = calls.iter().map(|&(event, lane, issued, returned)| Logged {
        event,
        lane,
        worker: lane,
        runner: lane,
        issued,
        returned,
    });
    let verdict = check(archive, &OrderLog { order, threads: 0, calls: calls.collect() });
    let mut text = Vec::new();
    verdict.print(archive, &mut text).unwrap();
    (verdict.holds(), String::from_utf8(text).unwrap())
}

#[test]
fn each_order_demands_its_pairs_and_names_the_one_that_was_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let archive = archive(&folder.path().join("pid-1"));
    // Events: 0 create, 1 and 2 the looks, 3 record.
    let kept = [(0, 0, 1, 2), (1, 0, 3, 4), (2, 1, 3, 4), (3, 1, 5, 6)];
    for order in [OrderMode::Capture, OrderMode::Deps, OrderMode::Program] {
        let (holds, text) = said(&archive, order, &kept);
        assert!(holds && text.contains("ORDER KEPT") && text.contains("4 calls"), "{text}");
    }
    // The event is recorded before the other thread has looked: the capture order minds.
    let early = [(0, 0, 1, 2), (1, 0, 8, 9), (2, 1, 3, 4), (3, 1, 5, 6)];
    assert!(said(&archive, OrderMode::Deps, &early).0 && said(&archive, OrderMode::Program, &early).0);
    let (holds, text) = said(&archive, OrderMode::Capture, &early);
    assert!(!holds, "{text}");
    let line = "event 3 (hipEventRecord, thread 1, runner 1) was issued 4 ticks before event 1 (hipGetDevice, thread 0, runner 0)";
    assert!(text.contains(line), "{text}");
    // It is recorded before it was made: all mind.
    let unmade = [(0, 0, 1, 7), (1, 0, 8, 9), (2, 1, 3, 4), (3, 1, 5, 6)];
    for order in [OrderMode::Capture, OrderMode::Deps, OrderMode::Program] {
        let (holds, text) = said(&archive, order, &unmade);
        assert!(!holds && text.contains("event 0 (hipEventCreate"), "{text}");
    }
    // A thread out of its own order, a log of another archive, and a log of nothing.
    let swapped = [(0, 0, 1, 2), (1, 0, 3, 4), (2, 1, 7, 8), (3, 1, 5, 6)];
    assert!(!said(&archive, OrderMode::Program, &swapped).0);
    assert!(!said(&archive, OrderMode::Program, &[(0, 0, 1, 2), (9, 0, 3, 4)]).0);
    assert!(!said(&archive, OrderMode::Program, &[]).0);
}
