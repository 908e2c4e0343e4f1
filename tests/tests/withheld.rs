//! Archives without contents: what is in them, what is not, and what a replay says.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use hrr_format::archive::Archive;
use hrr_format::record::{Presence, SectionTag, marker};
use hrr_format::stream_file::ContentsMode;
use hrr_tests::built;
use hrr_tests::process::run;
use hrr_tests::recording::{Contents, record};
use hrr_tests::replaying::Replay;
use hrr_tests::workload::Workload;

#[test]
fn a_replay_that_needs_contents_is_refused_by_name() {
    for name in ["saxpy_reduce", "threads8", "graph_capture"] {
        let recording = record(&Workload::listed(name), Contents::Withheld);
        let replayed = Replay::of_recording(&recording).run();
        replayed.run.expect_code(1);
        assert!(replayed.run.stderr.contains("HIP_HRR_CAPTURE_CONTENT=1"), "{}", replayed.run);
        assert!(!replayed.run.stdout.contains("[HRR] PASS"), "{}", replayed.run);
    }
}

#[test]
fn nothing_of_the_contents_is_in_the_archive() {
    let recording = record(&Workload::listed("saxpy_reduce"), Contents::Withheld);
    let archive = Archive::open(&recording.archive).unwrap();
    assert_eq!(archive.contents(), ContentsMode::MetadataOnly);
    let mut withheld = 0;
    for record in archive.streams().iter().flat_map(|stream| stream.records()) {
        for section in record.sections().map(Result::unwrap) {
            let contents = matches!(
                section.tag,
                SectionTag::BlobIn
                    | SectionTag::BlobOut
                    | SectionTag::Code
                    | SectionTag::GraphHostIn
                    | SectionTag::GraphHostOut
            );
            assert!(!contents || section.presence != Presence::Present, "{section:?}");
            withheld += usize::from(section.presence == Presence::Withheld);
        }
    }
    assert!(withheld > 0, "a program that copies and launches has something to withhold");
    // Nor anywhere else: no pack holds a byte.
    let mut packs = 0;
    walk(&recording.archive, &mut |path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with("pack-") {
            packs += fs::metadata(path).unwrap().len();
        }
    });
    assert_eq!(packs, 0, "bytes of contents in an archive that withholds them");
}

#[test]
fn nothing_is_recorded_of_memory_that_kernels_use_directly() {
    let recording = record(&Workload::listed("host_memory"), Contents::Withheld);
    let archive = Archive::open(&recording.archive).unwrap();
    let markers = archive
        .streams()
        .iter()
        .flat_map(|stream| stream.records())
        .filter(|record| marker::is_timed(record.api()))
        .count();
    assert_eq!(markers, 0);
    assert!(!archive.manifest().host_snapshots.recorded);
    let mut packs = 0;
    walk(&recording.archive, &mut |path| {
        if path.file_name().unwrap().to_string_lossy().starts_with("pack-") {
            packs += fs::metadata(path).unwrap().len();
        }
    });
    assert_eq!(packs, 0, "bytes of contents in an archive that withholds them");
}

#[test]
fn what_a_program_called_is_in_both_kinds_of_archive() {
    let workload = Workload::listed("saxpy_reduce");
    let calls = |contents| {
        let recording = record(&workload, contents);
        let archive = Archive::open(&recording.archive).unwrap();
        let names = archive
            .streams()
            .iter()
            .flat_map(|stream| stream.records())
            .map(|record| (archive.api(record.api()).name.to_owned(), record.ret()));
        names.filter(|(name, _)| name.starts_with("hip") || name.starts_with("__hip")).collect::<Vec<_>>()
    };
    let (with, without) = (calls(Contents::Recorded), calls(Contents::Withheld));
    assert!(!with.is_empty());
    assert_eq!(with, without);
}

#[test]
fn info_says_that_contents_were_withheld() {
    let recording = record(&Workload::listed("saxpy_reduce"), Contents::Withheld);
    let info = run(Command::new(built::playback()).arg("--info").arg(&recording.archive), Duration::from_secs(60));
    info.expect_code(0);
    let text = info.stdout.to_lowercase();
    assert!(text.contains("withheld") || text.contains("metadata-only"), "{info}");
}

fn walk(folder: &Path, visit: &mut dyn FnMut(&Path)) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { walk(&path, visit) } else { visit(&path) }
    }
}
