//! Recording only a window of a program: what was made before it comes with it, and it replays.

#[path = "../c/program.rs"]
mod program;

use std::time::Duration;

use hrr_format::archive::Archive;
use hrr_format::record::{flag, marker};
use hrr_tests::process::run;
use hrr_tests::recording::{Contents, Recording, Scratch, record_with, recorded};
use hrr_tests::replaying::Replay;
use hrr_tests::workload::Workload;

/// Results that an iteration of the workload reads back.
const RESULTS: u64 = 7;

fn record(window: &str, arguments: &[&str]) -> Recording {
    record_with(&Workload::new("window", arguments), Contents::Recorded, &[("HIP_HRR_CAPTURE_WINDOW", window)])
}

/// Replays in each order that proves something, with as many workers as threads and with fewer.
fn expect_everywhere(recording: &Recording, results: std::ops::RangeInclusive<u64>) {
    for order in ["capture", "deps"] {
        for threads in ["0", "1", "2"] {
            let replay = Replay::of_recording(recording).args(["--order", order, "--threads", threads]);
            let checks = replay.run().expect_pass();
            assert!(results.contains(&checks.pass), "{} of {results:?}, {order}, {threads}", checks.pass);
        }
    }
}

fn archive(recording: &Recording) -> Archive {
    Archive::open(&recording.archive).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_window_of_launches_replays_with_what_was_made_before_it() {
    let recording = record("launches:100..200", &["60"]);
    // 25 iterations of four launches each; the one that is cut by the window's edge has lost or gained part of its results.
    expect_everywhere(&recording, 25 * RESULTS - RESULTS..=25 * RESULTS + RESULTS);
    let archive = archive(&recording);
    let window = archive.manifest().window.clone().expect("the manifest tells of the window");
    assert_eq!((window.trigger.as_str(), window.opened, window.unrestored), ("launches:100..200", 1, 0));
    assert!(window.preamble_calls > 40 && window.restored_bytes > 22_000, "{window:?}");
    let name = |api| archive.api(api).name.to_owned();
    let (mut launches, mut preamble) = (0, 0);
    for record in
        archive.streams().iter().flat_map(|stream| stream.records()).filter(|record| record.api() < marker::FIRST)
    {
        if record.flags() & flag::PREAMBLE != 0 {
            preamble += 1;
            // Objects that came and went before the window are not in it.
            assert_ne!(name(record.api()), "hipFree");
        } else if ["hipLaunchKernel", "hipGraphLaunch", "hipModuleLaunchKernel"].contains(&name(record.api()).as_str())
        {
            launches += 1;
        }
    }
    assert_eq!((launches, preamble), (100, window.preamble_calls));
    let replay = Replay::of_recording(&recording).run();
    assert!(replay.run.stdout.contains("[HRR] Window  : launches:100..200, opened once behind"), "{}", replay.run);
}

#[test]
fn a_window_restores_variables_of_a_device_that_nothing_was_made_on() {
    let mut workload = Workload::new("window", &["20"]);
    workload.environment.push(("MINIHIP_DEVICES".to_owned(), "2".to_owned()));
    let recording = record_with(&workload, Contents::Recorded, &[("HIP_HRR_CAPTURE_WINDOW", "launches:40..")]);
    for threads in ["0", "1"] {
        Replay::of_recording(&recording).args(["--threads", threads]).run().expect_pass();
    }
}

#[test]
fn a_window_keeps_what_is_alive_and_not_what_was() {
    let early = archive(&record("launches:8..12", &["400"])).manifest().window.clone().unwrap();
    let late = archive(&record("launches:1500..1512", &["400"])).manifest().window.clone().unwrap();
    // Each iteration makes and ends a stream and memory.
    assert!(late.preamble_calls <= early.preamble_calls + 4, "{early:?} {late:?}");
}

#[test]
fn the_program_itself_opens_and_closes_windows() {
    let recording = record("api", &["60", "api", "20", "40"]);
    expect_everywhere(&recording, 20 * RESULTS..=20 * RESULTS);
}

#[test]
fn a_signal_opens_a_window_and_another_closes_it() {
    let recording = record("signal", &["60", "signal", "20", "40"]);
    // It is acted on at the next call of any thread, which may be in the iteration before or after.
    expect_everywhere(&recording, 19 * RESULTS..=21 * RESULTS);
}

#[test]
fn a_window_of_time_ends_with_the_process_where_no_end_is_given() {
    let recording = record("time:60ms..", &["40", "pace", "4"]);
    let window = archive(&recording).manifest().window.clone().unwrap();
    assert_eq!(window.opened, 1);
    expect_everywhere(&recording, 1..=40 * RESULTS);
}

#[test]
fn other_programs_have_windows_too() {
    for (name, least) in [
        ("graph_capture", 10),
        ("two_devices", 20),
        ("virtual_memory", 1),
        ("memory_pool", 1),
        ("errors", 1),
        ("sweep_graphs", 10),
    ] {
        let workload = Workload::listed(name);
        let recording = record_with(&workload, Contents::Recorded, &[("HIP_HRR_CAPTURE_WINDOW", "launches:1..")]);
        for threads in ["0", "1"] {
            let checks = Replay::of_recording(&recording).args(["--threads", threads]).run().expect_pass();
            assert!(checks.pass >= least, "{name}: {checks:?}");
        }
    }
}

/// Settings that are made and taken back, modules that are gone, parts that are taken out, handles for other processes.
#[test]
fn programs_that_change_much_have_windows_anywhere() {
    let early = ["launches:1..", "launches:2..7", "launches:3..", "launches:5.."];
    let late = ["launches:2..", "launches:8..", "launches:13.."];
    for (name, windows) in [
        ("resets", &early[..]),
        ("ipc", &early),
        ("shared_handles", &early),
        ("linking", &early),
        ("sweep_modules", &early),
        ("sweep_graphs", &early),
        ("sweep_streams", &early),
        ("sweep_memory", &early),
        ("images", &late),
        ("contexts", &late),
        ("execution_contexts", &late),
    ] {
        let workload = Workload::listed(name);
        for window in windows {
            let recording = record_with(&workload, Contents::Recorded, &[("HIP_HRR_CAPTURE_WINDOW", window)]);
            for (threads, order) in [("0", "capture"), ("1", "deps")] {
                Replay::of_recording(&recording).args(["--threads", threads, "--order", order]).run().expect_pass();
            }
        }
    }
}

/// Formerly what stands in front of a later window was copied to the device while work of the window before it went on.
#[test]
fn a_later_window_begins_when_the_one_before_it_is_done() {
    let scratch = Scratch::new("reopened");
    let program = program::compile(&scratch, "reopened", "reopened", program::LINKED);
    let mut command = program::command(&program, &[]);
    command.env("HIP_HRR_CAPTURE_WINDOW", "api");
    let recorded = program::record(&scratch, command);
    recorded.run.expect_code(0);
    assert!(recorded.run.stderr.contains("Window 2 opened"), "{}", recorded.run);
    for (threads, order) in [("0", "capture"), ("1", "capture"), ("0", "deps")] {
        let replay = Replay::of(&recorded.root).args(["--threads", threads, "--order", order]);
        assert_eq!(replay.run().expect_pass().pass, 1);
    }
}

fn with_windows_of_its_own(source: &str, what: &str) -> (Scratch, program::Recorded) {
    let scratch = Scratch::new(what);
    let program = program::compile(&scratch, source, what, program::LINKED);
    let mut command = program::command(&program, &[what]);
    command.env("HIP_HRR_CAPTURE_WINDOW", "api");
    let recorded = program::record(&scratch, command);
    recorded.run.expect_code(0);
    (scratch, recorded)
}

/// Memory that a window made was no part of what a later one restored.
#[test]
fn a_later_window_restores_what_an_earlier_one_made() {
    let (_scratch, recorded) = with_windows_of_its_own("reopened", "made");
    assert!(recorded.run.stderr.contains("Window 3 opened"), "{}", recorded.run);
    for (threads, order) in [("0", "capture"), ("1", "deps")] {
        let replay = Replay::of(&recorded.root).args(["--threads", threads, "--order", order]);
        assert_eq!(replay.run().expect_pass().pass, 3);
    }
}

/// Of an import the export was dropped, once what was exported had ended.
#[test]
fn a_window_brings_the_exports_that_imports_rest_on() {
    let (_scratch, recorded) = with_windows_of_its_own("windows", "imported");
    for (threads, order) in [("0", "capture"), ("1", "deps")] {
        let replay = Replay::of(&recorded.root).args(["--threads", threads, "--order", order]);
        assert_eq!(replay.run().expect_pass().pass, 2);
    }
}

/// The recorder waited for the device, whose work waited for the program.
#[test]
fn a_window_is_opened_later_where_work_waits_for_the_program() {
    let (_scratch, recorded) = with_windows_of_its_own("reopened", "waits");
    assert!(
        recorded.run.stderr.contains("A window is opened later: work on a device has not ended"),
        "{}",
        recorded.run
    );
    assert!(recorded.run.stderr.contains("Window 1 opened"), "{}", recorded.run);
    assert!(Replay::of(&recorded.root).run().expect_pass().pass >= 1);
}

#[test]
fn a_window_that_is_never_opened_is_told_of() {
    let recording = record("launches:100000..", &["4"]);
    let replay = Replay::of_recording(&recording).run();
    replay.run.expect_code(1);
    assert!(replay.run.stderr.contains("the window launches:100000.. was never opened"), "{}", replay.run);
}

#[test]
fn a_window_that_makes_no_sense_keeps_the_recording_from_beginning() {
    let scratch = Scratch::new("window");
    let workload = Workload::new("window", &["2"]);
    let mut command = workload.command();
    recorded(&mut command, &scratch.path().join("a.hrr"), Contents::Recorded);
    let run = run(command.env("HIP_HRR_CAPTURE_WINDOW", "launches:9..3"), Duration::from_secs(60));
    run.expect_code(0);
    assert!(run.stderr.contains("Capture disabled: HIP_HRR_CAPTURE_WINDOW=launches:9..3 is none of"), "{run}");
    assert!(!scratch.path().join("a.hrr").exists());
}
