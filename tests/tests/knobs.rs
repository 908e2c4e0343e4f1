//! Variables that change what a replay does: that they do.

use hrr_tests::recording::{Contents, Recording, record};
use hrr_tests::replaying::Replay;
use hrr_tests::workload::Workload;

fn pool(how: &str) -> Recording {
    record(&Workload::new("region_pool", &[how]), Contents::Recorded)
}

#[test]
fn new_memory_holds_the_byte_that_is_asked_for() {
    let recording = pool("fresh");
    for placement in [&[][..], &["--no-placement"]] {
        let replay = || Replay::of_recording(&recording).args(placement.iter().copied());
        assert_eq!(replay().env("HIP_HRR_REPLAY_ZERO_INIT", 1).run().expect_pass().pass, 3);
        // The byte alone fills nothing.
        replay().env("HIP_HRR_REPLAY_FILL_BYTE", 238).run().expect_pass();
        let filled = replay().env("HIP_HRR_REPLAY_ZERO_INIT", 1).env("HIP_HRR_REPLAY_FILL_BYTE", 238).run();
        let counts = filled.checks.map(|checks| (checks.pass, checks.fail));
        assert_eq!(counts, Some((2, 1)), "what was never written differs\n{}", filled.run);
    }
}

#[test]
fn allocations_are_made_larger_up_to_a_limit() {
    let recording = pool("inside");
    let padded = |limit: &str| {
        Replay::of_recording(&recording)
            .env("MINIHIP_VRAM_MB", 16)
            .env("HIP_HRR_REPLAY_ALLOC_PAD_FACTOR", 4096)
            .env("HIP_HRR_REPLAY_ALLOC_PAD_MAX", limit)
            .run()
    };
    // 16 KiB times 4096 is more than the device has.
    let run = padded("1073741824").run;
    run.expect_code(1);
    assert!(run.stderr.contains("hipMalloc"), "{run}");
    padded("1048576").expect_pass();
}

#[test]
fn a_replay_that_differs_too_often_is_stopped() {
    let recording = record(&Workload::listed("host_memory"), Contents::Recorded);
    let replay = || Replay::of_recording(&recording).env("HRR_REPLAY_MUTATE", "no-host-restore");
    let attempts = |checks: Option<hrr_tests::replaying::Checks>| checks.map(|checks| checks.pass + checks.fail);
    let stopped = replay().run();
    stopped.run.expect_code(2);
    assert_eq!(attempts(stopped.checks), Some(64), "{}", stopped.run);
    let early = replay().env("HIP_HRR_REPLAY_DIVERGENCE_MIN_SAMPLES", 8).run();
    early.run.expect_code(2);
    assert_eq!(attempts(early.checks), Some(8), "{}", early.run);
    let whole = replay().env("HIP_HRR_REPLAY_DIVERGENCE_ABORT", 0).run();
    whole.run.expect_code(1);
    assert!(attempts(whole.checks).is_some_and(|attempts| attempts > 64), "{}", whole.run);
    let tolerant = replay().env("HIP_HRR_REPLAY_DIVERGENCE_ABORT", "1").run();
    tolerant.run.expect_code(1);
}

#[test]
fn variables_of_the_in_tree_player_that_mean_nothing_here_are_refused_by_name() {
    let recording = record(&Workload::listed("saxpy_reduce"), Contents::Recorded);
    for name in ["HIP_HRR_REPLAY_SCAN_H2D", "HIP_HRR_PTR_RELAX"] {
        let replayed = Replay::of_recording(&recording).env(name, 1).run();
        replayed.run.expect_code(1);
        assert!(replayed.run.stderr.contains(&format!("{name} is not supported: ")), "{}", replayed.run);
    }
    Replay::of_recording(&recording).env("HIP_HRR_REPLAY_SCAN_H2D", "").run().expect_pass();
}
