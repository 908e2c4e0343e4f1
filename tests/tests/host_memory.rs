//! Host memory that kernels use directly: what bounds its recording, and what a replay says of it.

use hrr_format::archive::Archive;
use hrr_tests::recording::{Contents, record_with};
use hrr_tests::replaying::Replay;
use hrr_tests::workload::Workload;

#[test]
fn memory_too_large_to_be_looked_through_is_named_at_record_and_at_replay() {
    let workload = Workload::listed("host_memory");
    let recording = record_with(&workload, Contents::Recorded, &[("HIP_HRR_HOST_SNAPSHOT_MAX_MB", "0")]);
    let archive = Archive::open(&recording.archive).unwrap();
    let snapshots = archive.manifest().host_snapshots;
    assert!(snapshots.recorded && snapshots.ranges == 0 && snapshots.too_large > 0, "{snapshots:?}");
    let run = Replay::of_recording(&recording).run().run;
    run.expect_code(1);
    let line = format!("{} allocations NOT restored", snapshots.too_large);
    assert!(run.stdout.contains(&line) && run.stdout.contains("HIP_HRR_HOST_SNAPSHOT_MAX_MB"), "{run}");
}

#[test]
fn switched_off_nothing_of_it_is_recorded() {
    let recording =
        record_with(&Workload::listed("host_memory"), Contents::Recorded, &[("HIP_HRR_HOST_SNAPSHOTS", "0")]);
    let archive = Archive::open(&recording.archive).unwrap();
    assert!(!archive.manifest().host_snapshots.recorded);
    assert!(Replay::of_recording(&recording).run().failed(), "kernels read what the host never stored");
}

#[test]
fn all_memory_may_be_looked_through_before_each_launch() {
    let recording =
        record_with(&Workload::listed("host_memory"), Contents::Recorded, &[("HIP_HRR_HOST_SNAPSHOT_SCOPE", "all")]);
    Replay::of_recording(&recording).run().expect_pass();
}

#[test]
fn a_repetition_begins_with_the_memory_as_it_was() {
    let recording = record_with(&Workload::listed("host_memory"), Contents::Recorded, &[]);
    Replay::of_recording(&recording).args(["--repeat", "3"]).run().expect_pass();
}
