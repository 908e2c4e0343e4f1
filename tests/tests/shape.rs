//! `--shape-only`: what an archive without contents can still be timed for, what that leaves out, and that it is no pass.

use std::collections::BTreeMap;
use std::path::Path;

use hrr_format::archive::Archive;
use hrr_tests::process::{End, Finished};
use hrr_tests::recording::{Contents, Recording, record};
use hrr_tests::replaying::Replay;
use hrr_tests::workload::Workload;

/// Recorded calls by name, markers left out.
fn calls(archive: &Path) -> BTreeMap<String, u64> {
    let archive = Archive::open(archive).expect("it was just recorded");
    let mut calls = BTreeMap::new();
    for record in archive.streams().iter().flat_map(|stream| stream.records()) {
        let name = archive.api(record.api()).name;
        if name.contains("hip") {
            *calls.entry(name.to_owned()).or_default() += 1;
        }
    }
    calls
}

/// Calls left out, by name, as the summary lists them.
fn left_out(run: &Finished) -> BTreeMap<String, u64> {
    let mut calls = BTreeMap::new();
    for line in run.stdout.lines() {
        let Some(rest) = line.trim_start_matches("[HRR]").trim().strip_prefix("left out ") else { continue };
        let (count, rest) = rest.split_once(" of ").expect("a count of calls");
        let (name, reason) = rest.split_once(": ").expect("a reason");
        assert!(!reason.is_empty());
        *calls.entry(name.to_owned()).or_default() += count.parse::<u64>().expect("a number");
    }
    calls
}

fn number_behind(run: &Finished, label: &str) -> u64 {
    let line = run.stdout.lines().find(|line| line.contains(label)).unwrap_or_else(|| panic!("no {label}\n{run}"));
    let digits: String = line.split(label).nth(1).unwrap().chars().skip_while(|c| !c.is_ascii_digit()).collect();
    digits.chars().take_while(char::is_ascii_digit).collect::<String>().parse().expect("a number")
}

/// A replay by shape that came to its end, and never says that it passed.
#[track_caller]
fn expect_shape(run: &Finished) {
    run.expect_code(0);
    let last = run.stdout.lines().last().unwrap_or_default();
    assert_eq!(last, "[HRR] SHAPE", "{run}");
    assert!(!run.output().contains("PASS"), "{run}");
    assert_eq!(number_behind(run, "Kernels launched"), 0, "{run}");
}

fn shape(recording: &Recording, arguments: &[&str]) -> Finished {
    Replay::of_recording(recording).args(arguments.iter().copied()).run().run
}

#[test]
fn an_archive_without_contents_is_replayed_but_for_what_needs_code() {
    for name in ["saxpy_reduce", "async_copies", "graph_capture", "threads8", "suballoc", "sweep_streams"] {
        let recording = record(&Workload::listed(name), Contents::Withheld);
        let run = shape(&recording, &["--shape-only"]);
        expect_shape(&run);
        let (recorded, left_out) = (calls(&recording.archive), left_out(&run));
        for (api, count) in &left_out {
            assert!(*count <= recorded[api], "{name}: {api}\n{run}");
        }
        // Every launch is left out, and no allocation, copy or wait is.
        for (api, count) in &recorded {
            if api.contains("Launch") && api.contains("Kernel") {
                assert_eq!(left_out.get(api), Some(count), "{name}: {api}\n{run}");
            }
            let kept =
                ["hipMalloc", "hipFree", "hipMemcpyAsync", "hipStreamSynchronize", "hipGraphLaunch", "hipMemset"];
            assert!(!kept.contains(&api.as_str()) || !left_out.contains_key(api), "{name}: {api}\n{run}");
        }
        let skipped = number_behind(&run, "issued,");
        let not_reissued = if run.stdout.contains("Not reissued") { number_behind(&run, "Not reissued") } else { 0 };
        let expected = recorded.values().sum::<u64>() - left_out.values().sum::<u64>() - skipped - not_reissued;
        assert_eq!(
            number_behind(&run, "Calls     :"),
            expected,
            "{name}: every call is issued, left out or skipped\n{run}"
        );
    }
}

#[test]
fn an_archive_with_contents_has_the_same_shape() {
    for name in ["saxpy_reduce", "graph_capture", "sweep_graphs"] {
        let workload = Workload::listed(name);
        let (with, without) = (record(&workload, Contents::Recorded), record(&workload, Contents::Withheld));
        let runs = [shape(&with, &["--shape-only=noise:3"]), shape(&without, &["--shape-only"])];
        runs.iter().for_each(expect_shape);
        assert_eq!(left_out(&runs[0]), left_out(&runs[1]), "{name}");
        assert_eq!(number_behind(&runs[0], "Calls     :"), number_behind(&runs[1], "Calls     :"), "{name}");
        assert!(runs[0].stdout.contains("copies moved noise of seed 3"), "{}", runs[0]);
        assert!(runs[1].stdout.contains("copies moved zeros"), "{}", runs[1]);
        // It is not the replay of what was recorded, though that is there.
        assert_eq!(runs[0].stdout.matches("no result was compared").count(), 1);
        Replay::of_recording(&with).run().expect_pass();
    }
}

#[test]
fn a_shape_is_replayed_in_every_order_and_again_and_again() {
    let recording = record(&Workload::listed("producer_consumer"), Contents::Withheld);
    for arguments in [
        &["--shape-only", "--threads", "1"][..],
        &["--shape-only", "--order", "deps", "--threads", "2"],
        &["--shape-only", "--repeat", "3", "--warmup", "1"],
        &["--shape-only=noise", "--memory-budget", "1"],
    ] {
        expect_shape(&shape(&recording, arguments));
    }
}

#[test]
fn failures_that_were_recorded_fail_again_or_are_counted() {
    // Its failing copies name any number of bytes at any address.
    let run = shape(&record(&Workload::listed("errors"), Contents::Withheld), &["--shape-only"]);
    expect_shape(&run);
    assert!(number_behind(&run, "Not reissued") > 0, "{run}");
}

#[test]
fn what_makes_no_sense_with_a_shape_is_refused() {
    let recording = record(&Workload::listed("saxpy_reduce"), Contents::Withheld);
    for (arguments, word) in [
        (&["--shape-only=ones"][..], "zeros, noise or noise:SEED"),
        (&["--shape-only", "--kernel-filter", "x"], "--kernel-filter"),
        (&["--shape-only", "--replace-kernel", "x=y"], "--replace-kernel"),
        (&["--shape-only", "--kernels", "0..1"], "--kernels"),
    ] {
        let run = shape(&recording, arguments);
        assert_eq!(run.end, End::Code(1), "{run}");
        assert!(run.stderr.contains(word), "{run}");
        assert!(!run.stdout.contains("SHAPE"), "{run}");
    }
}
