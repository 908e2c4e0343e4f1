//! Planted faults: a replay made wrong on purpose has to fail, or the checks of the other tests show nothing.

use std::time::Duration;

use hrr_tests::process::End;
use hrr_tests::recording::{Contents, record};
use hrr_tests::replaying::Replay;
use hrr_tests::soak;
use hrr_tests::workload::Workload;

/// Runs of a faulty replay, of which one has to fail. A fault in ordering needs an unlucky moment to show.
const RUNS: u64 = 12;

/// Asserts that replays under `mutation` fail at least once for each of the workloads, and pass without it.
fn expect_noticed(mutation: &str, workloads: &[&str]) {
    for &name in workloads {
        let recording = record(&Workload::listed(name), Contents::Recorded);
        let replay = |index| {
            let seed = soak::seed(&format!("{mutation} {name}"), index);
            // To the byte: what these programs compute are integers, and wrong ones may be close when taken for floats.
            Replay::of_recording(&recording).args(["--threads", "0"]).env("HIP_HRR_D2H_EXACT", 1).chaos(seed)
        };
        replay(0).run().expect_pass();
        let noticed = (0..RUNS).any(|index| {
            // One that waits for ever for what never comes has been noticed as well.
            let replayed = replay(index).env("HRR_REPLAY_MUTATE", mutation).limit(Duration::from_secs(30)).run();
            let run = &replayed.run;
            assert!(!run.output().contains("no such mutation"), "{run}");
            // Wrong device contents and handles may fail a check, a call, or the runtime itself.
            assert!(!matches!(run.end, End::Code(101)), "the replayer panicked\n{run}");
            replayed.failed()
        });
        assert!(noticed, "{RUNS} replays of {name} passed with HRR_REPLAY_MUTATE={mutation}");
    }
}

#[test]
fn a_dropped_edge_is_noticed() {
    expect_noticed("drop-edges", &["threads8", "producer_consumer"]);
}

#[test]
fn an_ignored_device_is_noticed() {
    expect_noticed("ignore-device", &["two_devices"]);
}

#[test]
fn a_kernel_taken_by_name_alone_is_noticed() {
    expect_noticed("name-only-kernel", &["module_launch"]);
}

#[test]
fn a_stale_handle_is_noticed() {
    // Threads that come and go at other moments than at capture: their handles come back to other threads. A single
    // thread would get the same values back in the same order, and the stale handle would be the right one by luck.
    expect_noticed("stale-handle", &["thread_churn"]);
}

#[test]
fn host_memory_that_is_not_restored_is_noticed() {
    expect_noticed("no-host-restore", &["host_memory"]);
}

#[test]
fn a_mutation_that_does_not_exist_is_refused() {
    let recording = record(&Workload::listed("saxpy_reduce"), Contents::Recorded);
    let run = Replay::of_recording(&recording).env("HRR_REPLAY_MUTATE", "no-such-fault").run().run;
    run.expect_code(1);
    assert!(run.stderr.contains("no-such-fault"), "{run}");
}
