//! Device memory at its recorded addresses, device maps, and kernels chosen by name.

use hrr_tests::process::End;
use hrr_tests::recording::{Contents, Recording, record};
use hrr_tests::replaying::Replay;
use hrr_tests::workload::Workload;

fn recorded(name: &str, arguments: &[&str]) -> Recording {
    record(&Workload::new(name, arguments), Contents::Recorded)
}

#[test]
fn pointers_inside_buffers_stay_true_with_placement_alone() {
    let recording = recorded("pointer_table", &["host"]);
    for arguments in [vec![], vec!["--order", "deps"], vec!["--repeat", "3"]] {
        let replayed = Replay::of_recording(&recording).args(arguments).run();
        replayed.expect_pass();
        let line = replayed.run.stdout.lines().find(|line| line.contains("Placement :")).unwrap_or_default().to_owned();
        assert!(line.contains("35 placed") && line.contains(" 0 elsewhere"), "{line}");
    }
    // The kernel follows addresses that mean nothing now: the check fails, or the replay dies of it. It is named before.
    let replayed = Replay::of_recording(&recording).args(["--no-placement"]).run();
    assert!(replayed.failed(), "{}", replayed.run);
    assert!(
        replayed.run.stderr.contains("an upload holds the address of device memory that lies elsewhere now"),
        "{}",
        replayed.run
    );
}

#[test]
fn placed_memory_is_taken_back_and_given_out_again() {
    // Suballocation, threads that come and go, and frees of all kinds, with the addresses of the recording.
    for name in ["suballoc", "thread_churn", "memory_pool", "virtual_memory"] {
        let recording = record(&Workload::listed(name), Contents::Recorded);
        for order in ["capture", "deps"] {
            Replay::of_recording(&recording).args(["--order", order]).run().expect_pass();
        }
        Replay::of_recording(&recording).args(["--no-placement"]).run().expect_pass();
    }
}

#[test]
fn new_memory_is_padded_and_filled_where_that_is_asked_for() {
    let recording = recorded("saxpy_reduce", &[]);
    let replayed = Replay::of_recording(&recording)
        .env("HIP_HRR_REPLAY_ALLOC_PAD_FACTOR", 3)
        .env("HIP_HRR_REPLAY_ZERO_INIT", 1)
        .env("HIP_HRR_REPLAY_FILL_BYTE", 170)
        .run();
    replayed.expect_pass();
    assert!(
        replayed.run.stdout.contains(" 0 placed at their recorded addresses, 4 elsewhere (off)"),
        "{}",
        replayed.run
    );
    let replayed = Replay::of_recording(&recording).env("HIP_HRR_REPLAY_ALLOC_PAD_FACTOR", "many").run();
    assert_eq!(replayed.run.end, End::Code(1), "{}", replayed.run);
}

#[test]
fn kernels_are_left_out_and_replaced_by_name() {
    let recording = recorded("saxpy_reduce", &[]);
    let filtered = Replay::of_recording(&recording).args(["--kernel-filter", "block_sum"]).run();
    assert!(filtered.run.succeeded() && filtered.run.stdout.contains("Kernels launched: 1"), "{}", filtered.run);
    assert!(filtered.run.stdout.contains("Filtered"), "{}", filtered.run);

    let standard = hrr_tests::built::output("kernels/standard.hipfb");
    let same = format!("saxpy={}", standard.display());
    let replaced = Replay::of_recording(&recording).args(["--replace-kernel", same.as_str()]).run();
    replaced.expect_pass();
    assert!(replaced.run.stdout.contains("Replaced      : 8 launches"), "{}", replaced.run);
    // The kernel has no such name in the other file, or the file is not there.
    for (file, wanted) in [("kernels/same_name_add.hipfb", "no kernel of this name"), ("lib/libamdhip64.so.7", "")] {
        let other = format!("saxpy={}", hrr_tests::built::output(file).display());
        let refused = Replay::of_recording(&recording).args(["--replace-kernel", other.as_str()]).run();
        assert_eq!(refused.run.end, End::Code(1), "{}", refused.run);
        assert!(refused.run.stderr.contains("saxpy") && refused.run.stderr.contains(wanted), "{}", refused.run);
    }
    let missing = Replay::of_recording(&recording).args(["--replace-kernel", "saxpy=nowhere.hsaco"]).run();
    assert!(missing.run.end == End::Code(1) && missing.run.stderr.contains("nowhere.hsaco"), "{}", missing.run);
}

#[test]
fn a_replacement_does_not_slip_past_withheld_contents() {
    let recording = record(&Workload::listed("saxpy_reduce"), Contents::Withheld);
    let standard = format!("saxpy={}", hrr_tests::built::output("kernels/standard.hipfb").display());
    let replayed = Replay::of_recording(&recording).args(["--replace-kernel", standard.as_str()]).run();
    assert_eq!(replayed.run.end, End::Code(1), "{}", replayed.run);
    assert!(replayed.run.stderr.contains("HIP_HRR_CAPTURE_CONTENT=1"), "{}", replayed.run);
}

#[test]
fn fewer_devices_are_refused_with_the_list_and_can_be_mapped() {
    let recording = record(&Workload::listed("sweep_devices"), Contents::Recorded);
    Replay::of_recording(&recording).run().expect_pass();
    let one = || Replay::of_recording(&recording).env("MINIHIP_DEVICES", 1);
    let refused = one().run();
    assert_eq!(refused.run.end, End::Code(1), "{}", refused.run);
    assert!(refused.run.stderr.contains("--device-map 0:0,1:0"), "{}", refused.run);
    one().args(["--device-map", "0:0,1:0"]).run().expect_pass();
    // The other way round on two.
    Replay::of_recording(&recording).args(["--device-map", "0:1,1:0"]).run().expect_pass();
    // Each recorded device keeps its own variables of kernels. They became one, and wrong results passed as tiny floats.
    let variables = record(&Workload::listed("two_devices"), Contents::Recorded);
    for order in ["capture", "deps"] {
        let merged = Replay::of_recording(&variables).env("MINIHIP_DEVICES", 1);
        let checks = merged.args(["--device-map", "0:0,1:0", "--order", order]).run().expect_pass();
        assert_eq!((checks.exact, checks.within), (82, 0));
    }
    // Access between two devices that are one here is not asked for.
    let peers = record(&Workload::listed("peer_devices"), Contents::Recorded);
    let merged = Replay::of_recording(&peers).env("MINIHIP_DEVICES", 1).args(["--device-map", "0:0,1:0"]).run();
    merged.expect_pass();
    assert!(merged.run.stdout.contains("Peer access   : 6 calls left out"), "{}", merged.run);
    let wrong = one().args(["--device-map", "0"]).run();
    assert_eq!(wrong.run.end, End::Code(1), "{}", wrong.run);
}

/// NVIDIA's driver gives out addresses only so; everything was placed elsewhere, without a word on why.
#[test]
fn memory_is_placed_where_a_runtime_gives_out_large_blocks_of_addresses_only() {
    for (workload, placed) in [("peer_devices", "4 placed"), ("serving", "17 placed")] {
        let recording = record(&Workload::listed(workload), Contents::Recorded);
        let replayed = Replay::of_recording(&recording).env("MINIHIP_ADDRESS_BLOCK_MB", 32).run();
        replayed.expect_pass();
        let line = format!("{placed} at their recorded addresses, 0 elsewhere");
        assert!(replayed.run.stdout.contains(&line), "{}", replayed.run);
    }
}
