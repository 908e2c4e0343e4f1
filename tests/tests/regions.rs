//! Region sidecars: memory that no recorded call gave out, accesses outside live blocks, and guards around both.

use std::fs;

use hrr_format::archive::Archive;
use hrr_format::record::{SectionTag, flag, offset};
use hrr_format::regions::{Operation, Region, RegionKind, encode};
use hrr_tests::process::End;
use hrr_tests::recording::{Contents, Recording, record};
use hrr_tests::replaying::Replay;
use hrr_tests::workload::Workload;

/// Bytes of a block of the workload.
const BLOCK: u64 = 4096;

/// Whether the archive keeps the calls that allocate and free the segment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Segment {
    Recorded,
    LeftOut,
}

/// A recording of the workload with a sidecar of its segment and these of its four blocks.
fn recorded(how: &str, blocks: &[u64], segment: Segment) -> Recording {
    let blocks: Vec<(u64, u64)> = blocks.iter().map(|&number| (number, BLOCK)).collect();
    recorded_sized(how, &blocks, segment)
}

/// The same with the length in bytes that the sidecar gives each block.
fn recorded_sized(how: &str, blocks: &[(u64, u64)], segment: Segment) -> Recording {
    let recording = record(&Workload::new("region_pool", &[how]), Contents::Recorded);
    let archive = Archive::open(&recording.archive).unwrap();
    let (mut base, mut left_out) = (0, Vec::new());
    for stream in archive.streams() {
        let mut records = stream.records();
        while let Some(record) = records.next() {
            let name = archive.row_of(&record).map_or("", |api| api.name);
            if name == "hipMalloc" {
                let out = record.section(SectionTag::Out, 0).unwrap().payload;
                base = u64::from_le_bytes(out.try_into().unwrap());
            }
            if matches!(name, "hipMalloc" | "hipFree") {
                left_out.push((stream.path().to_owned(), records.offset() - record.len_bytes()));
            }
        }
    }
    assert_ne!(base, 0);
    let process = archive.path().to_owned();
    drop(archive);
    if segment == Segment::LeftOut {
        for (path, at) in left_out {
            let mut bytes = fs::read(&path).unwrap();
            bytes[at + offset::FLAGS] |= flag::LEFT_OUT;
            fs::write(&path, bytes).unwrap();
        }
    }
    let region = |kind, base, len_bytes| Region {
        operation: Operation::Add,
        kind,
        device: 0,
        tag: 0,
        base,
        len_bytes,
        time_ns: 0,
    };
    let mut entries = vec![region(RegionKind::Segment, base, 4 * BLOCK)];
    entries
        .extend(blocks.iter().map(|&(number, len_bytes)| region(RegionKind::Block, base + number * BLOCK, len_bytes)));
    fs::create_dir_all(process.join("regions")).unwrap();
    fs::write(process.join("regions/pool.hrrr"), encode(&[&entries])).unwrap();
    recording
}

#[test]
fn memory_that_no_recorded_call_gave_out_is_made_real_from_its_segment() {
    let recording = recorded("inside", &[0, 1, 3], Segment::LeftOut);
    for arguments in [&[][..], &["--no-placement"], &["--threads", "1"], &["--repeat", "2"]] {
        let replayed = Replay::of_recording(&recording).args(arguments.iter().copied()).run();
        assert_eq!(replayed.expect_pass().pass, 2);
        assert!(replayed.run.stdout.contains("Region segs   : 1 made real"), "{}", replayed.run);
    }
    // Without it the pointers lead nowhere.
    assert!(Replay::of_recording(&recording).args(["--no-regions"]).run().failed());
}

#[test]
fn made_memory_is_filled_with_the_byte_that_is_asked_for() {
    // The program read zeros where it had written nothing.
    let recording = recorded("fresh", &[0, 1, 2, 3], Segment::LeftOut);
    assert_eq!(Replay::of_recording(&recording).run().expect_pass().pass, 3);
    let replayed = Replay::of_recording(&recording).env("HIP_HRR_REPLAY_FILL_BYTE", 0xee).run();
    assert_eq!(replayed.checks.map(|checks| (checks.pass, checks.fail)), Some((2, 1)), "{}", replayed.run);
}

#[test]
fn accesses_outside_live_blocks_are_found_and_fail_where_that_is_asked_for() {
    let inside = recorded("inside", &[0, 1, 3], Segment::Recorded);
    let run = Replay::of_recording(&inside).args(["--regions-strict"]).run();
    run.expect_pass();
    assert!(!run.run.stdout.contains("Region check"), "{}", run.run);
    // The last block was given back, as far as the sidecar knows.
    let outside = recorded("inside", &[0, 1], Segment::Recorded);
    let run = Replay::of_recording(&outside).run();
    run.expect_pass();
    assert!(run.run.stdout.contains("Region check  : 3 accesses outside live blocks"), "{}", run.run);
    let run = Replay::of_recording(&outside).args(["--regions-strict"]).run().run;
    run.expect_code(1);
    assert!(run.stdout.contains("in no live block"), "{run}");
    Replay::of_recording(&outside).args(["--no-regions"]).run().expect_pass();
}

#[test]
fn a_kernel_that_steps_over_the_end_of_its_block_meets_a_guard() {
    let inside = recorded("inside", &[0, 1, 3], Segment::Recorded);
    let run = Replay::of_recording(&inside).args(["--guard-blocks"]).run();
    run.expect_pass();
    assert!(run.run.stdout.contains("Guard         : 3 "), "{}", run.run);
    let over = recorded("over-block", &[0, 1, 3], Segment::Recorded);
    Replay::of_recording(&over).run().expect_pass();
    let run = Replay::of_recording(&over).args(["--guard-blocks"]).run().run;
    assert!(matches!(run.end, End::Signal(_)), "a fault ends the process\n{run}");
    // Blocks of other sizes are left alone.
    Replay::of_recording(&over).args(["--guard-blocks", "--guard-min-bytes", "8192"]).run().expect_pass();
    Replay::of_recording(&over).args(["--guard-blocks", "--guard-budget-mb", "0"]).run().expect_pass();
}

#[test]
fn a_kernel_that_steps_over_the_end_of_its_segment_meets_a_guard() {
    for segment in [Segment::Recorded, Segment::LeftOut] {
        let inside = recorded("inside", &[0, 1, 3], segment);
        let run = Replay::of_recording(&inside).args(["--guard-segments"]).run();
        run.expect_pass();
        assert!(run.run.stdout.contains("Guard         : 1 "), "{}", run.run);
        let over = recorded("over-segment", &[0, 1, 3], segment);
        let run = Replay::of_recording(&over).args(["--guard-segments"]).run().run;
        assert!(matches!(run.end, End::Signal(_)), "a fault ends the process\n{run}");
    }
}

#[test]
fn memory_above_a_size_is_left_without_guards() {
    let over = recorded("over-block", &[0, 1, 3], Segment::Recorded);
    let run = |recording: &Recording, guard: &str, max_bytes: u64| {
        let max_bytes = max_bytes.to_string();
        Replay::of_recording(recording).args([guard, "--guard-max-bytes", &max_bytes]).run()
    };
    let blocks = run(&over, "--guard-blocks", BLOCK - 1);
    blocks.expect_pass();
    assert!(blocks.run.stdout.contains("Guard         : 0 between guards (0 bytes), 3 left without"), "{}", blocks.run);
    assert!(matches!(run(&over, "--guard-blocks", BLOCK).run.end, End::Signal(_)), "a fault ends the process");
    let over = recorded("over-segment", &[0, 1, 3], Segment::Recorded);
    let segment = run(&over, "--guard-segments", 4 * BLOCK - 1);
    segment.expect_pass();
    assert!(
        segment.run.stdout.contains("Guard         : 0 between guards (0 bytes), 1 left without"),
        "{}",
        segment.run
    );
    assert!(matches!(run(&over, "--guard-segments", 4 * BLOCK).run.end, End::Signal(_)), "a fault ends the process");
}

#[test]
fn the_end_of_a_block_lies_at_its_guard_where_that_is_asked_for() {
    // A block shorter than what is written to it, by less than memory is aligned to.
    let recording = recorded_sized("inside", &[(0, BLOCK - 96), (1, BLOCK), (3, BLOCK)], Segment::Recorded);
    let aligned = Replay::of_recording(&recording).args(["--guard-blocks"]).run();
    aligned.expect_pass();
    assert!(aligned.run.stdout.contains("Guard         : 3 between guards (12192 bytes)"), "{}", aligned.run);
    let exact = Replay::of_recording(&recording).args(["--guard-blocks", "--guard-exact-align"]).run().run;
    assert!(matches!(exact.end, End::Signal(_)), "a fault ends the process\n{exact}");
    // Whoever stays inside meets no guard, at whatever address the block begins.
    let inside = recorded_sized("inside", &[(0, BLOCK), (1, BLOCK), (3, BLOCK)], Segment::Recorded);
    Replay::of_recording(&inside).args(["--guard-blocks", "--guard-exact-align"]).run().expect_pass();
    Replay::of_recording(&inside).args(["--guard-segments", "--guard-exact-align"]).run().expect_pass();
}

#[test]
fn guards_need_regions() {
    let recording = record(&Workload::listed("saxpy_reduce"), Contents::Recorded);
    for guard in ["--guard-segments", "--guard-blocks"] {
        let run = Replay::of_recording(&recording).args([guard]).run().run;
        run.expect_code(1);
        assert!(run.stderr.contains("regions"), "{run}");
    }
    // What only says how to guard guards nothing.
    for how in [&["--guard-exact-align"][..], &["--guard-max-bytes", "4096"], &["--guard-min-bytes", "1"]] {
        let run = Replay::of_recording(&recording).args(how.iter().copied()).run().run;
        run.expect_code(1);
        assert!(run.stderr.contains("--guard-segments"), "{run}");
    }
}
