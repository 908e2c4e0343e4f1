//! Timing runs: repetitions in a fresh state, reports, ranges and paces.

use hrr_tests::built;
use hrr_tests::recording::{Contents, Recording, record};
use hrr_tests::replaying::Replay;
use hrr_tests::schema::faults;
use hrr_tests::workload::Workload;
use serde_json::Value;

fn recording(name: &str) -> Recording {
    record(&Workload::listed(name), Contents::Recorded)
}

/// Replays with more options and reads the report.
fn report(recording: &Recording, options: &[&str]) -> Value {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    Replay::of_recording(recording).args(options.iter().copied()).args(["--report", path]).run().expect_pass();
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn sum(values: &Value) -> u64 {
    values.as_array().unwrap().iter().map(|value| value.as_u64().unwrap()).sum()
}

fn schema() -> Value {
    let path = built::repository().join("perf/schema/run-report.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn reports_are_what_their_schema_says() {
    for (name, options) in [
        ("graph_capture", &["--timing", "--repeat", "2"][..]),
        ("threads8", &["--threads", "2"]),
        ("two_devices", &["--timing", "--pace", "x4"]),
    ] {
        let report = report(&recording(name), options);
        assert_eq!(faults(&schema(), &report), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn the_recorded_run_is_a_report_too() {
    let recording = recording("threads8");
    let file = tempfile::NamedTempFile::new().unwrap();
    let run = Replay::of_recording(&recording).args(["--info", "--report", file.path().to_str().unwrap()]).run().run;
    run.expect_code(0);
    let report: Value = serde_json::from_slice(&std::fs::read(file.path()).unwrap()).unwrap();
    assert_eq!(faults(&schema(), &report), Vec::<String>::new());
    assert!(report["wall_ns"].as_u64().unwrap() > 0 && !report["caveats"].as_array().unwrap().is_empty());
}

#[test]
fn every_call_of_every_repetition_is_in_the_report() {
    let report = report(&recording("threads8"), &["--repeat", "3", "--warmup", "2", "--timing"]);
    assert_eq!(report["repetitions"].as_array().unwrap().len(), 3);
    let launches = report["kernels_launched"].as_u64().unwrap();
    let timed: u64 = report["kernels"].as_array().unwrap().iter().map(|kernel| kernel["count"].as_u64().unwrap()).sum();
    assert_eq!(timed, 3 * launches, "every launch has events around it");
    for api in report["apis"].as_array().unwrap() {
        assert_eq!(sum(&api["samples_ns"]), api["total_ns"].as_u64().unwrap(), "{api}");
    }
    let calls: u64 = report["workers"].as_array().unwrap().iter().map(|worker| worker["calls"].as_u64().unwrap()).sum();
    let counted: u64 = report["apis"].as_array().unwrap().iter().map(|api| api["count"].as_u64().unwrap()).sum();
    assert_eq!(calls, counted);
    for worker in report["workers"].as_array().unwrap() {
        let part = |name: &str| worker[name].as_u64().unwrap();
        let parts = ["in_calls_ns", "waiting_ns", "staging_ns", "pacing_ns", "events_ns", "own_ns"];
        assert_eq!(parts.iter().map(|name| part(name)).sum::<u64>(), part("total_ns"), "{worker}");
    }
}

#[test]
fn every_workload_repeats_in_a_fresh_state() {
    for workload in Workload::all() {
        let recording = record(&workload, Contents::Recorded);
        for threads in ["0", "1"] {
            Replay::of_recording(&recording).args(["--repeat", "4", "--threads", threads]).run().expect_pass();
        }
    }
}

/// What is cut off in the middle leaves objects and memory alive: without a teardown the device runs full.
#[test]
fn repetitions_do_not_leak() {
    let recording = recording("saxpy_reduce");
    let info = Replay::of_recording(&recording).args(["--info", "--events"]).run().run;
    let copy = info.stdout.lines().filter(|line| line.contains("hipMemcpy")).count();
    assert!(copy > 0, "the workload copies\n{info}");
    let allocations = info.stdout.lines().filter(|line| line.contains("hipMalloc")).count();
    assert!(allocations > 0, "the workload allocates\n{info}");
    let events = info.stdout.lines().filter(|line| line.contains(" hip") || line.contains("__hip")).count();
    let half = (events / 2).to_string();
    let replay = Replay::of_recording(&recording).args(["--range", &format!("..{half}"), "--repeat", "300"]);
    let run = replay.env("MINIHIP_VRAM_MB", "64").run().run;
    assert!(!run.stdout.contains("Events failed") && !run.stdout.contains("failed with"), "{run}");
    assert!(run.stdout.contains("Repetitions : 300"), "{run}");
}

#[test]
fn only_the_range_is_reported() {
    let recording = recording("threads8");
    let whole = report(&recording, &["--timing"]);
    let part = report(&recording, &["--timing", "--kernels", "100..150"]);
    assert_eq!(part["kernels_launched"], 50);
    let timed: u64 = part["kernels"].as_array().unwrap().iter().map(|kernel| kernel["count"].as_u64().unwrap()).sum();
    assert_eq!(timed, 50);
    assert_eq!(part["range"], "kernels 100..150");
    let calls = |report: &Value| -> u64 {
        report["workers"].as_array().unwrap().iter().map(|worker| worker["calls"].as_u64().unwrap()).sum()
    };
    assert!(calls(&part) < calls(&whole) / 3, "{} of {}", calls(&part), calls(&whole));
    let events = report(&recording, &["--range", "1000..1300"]);
    assert!(calls(&events) <= 300 && calls(&events) > 100, "{}", calls(&events));
    let behind = Replay::of_recording(&recording).args(["--range", "9999999.."]).run().run;
    assert!(behind.expect_code(1).stderr.contains("the range begins behind the archive's last call"), "{behind}");
}

#[test]
fn the_recorded_pace_waits_between_calls_and_no_pace_does_not() {
    // A thread that sleeps between its calls.
    let recording = recording("poll_query");
    let pacing_ns = |pace: &str| -> u64 {
        let report = report(&recording, &["--pace", pace]);
        report["workers"].as_array().unwrap().iter().map(|worker| worker["pacing_ns"].as_u64().unwrap()).sum()
    };
    assert!(pacing_ns("recorded") > 0);
    assert_eq!(pacing_ns("asap"), 0);
}

#[test]
fn an_archive_over_the_budget_is_planned_for_each_repetition() {
    let recording = recording("api_rate");
    let replay = Replay::of_recording(&recording).args(["--repeat", "3", "--memory-budget", "1", "--threads", "1"]);
    let run = replay.run();
    run.expect_pass();
    assert!(run.run.stdout.contains("each planned anew"), "{}", run.run);
}

/// A few calls with large contents: the budget was looked at only behind thousands of instructions, so all was staged.
#[test]
fn a_few_calls_with_large_contents_keep_to_the_budget() {
    let recording = record(&Workload::new("serving", &["2", "3", "2", "192", "16"]), Contents::Recorded);
    let replay = Replay::of_recording(&recording).args(["--memory-budget", "32"]).run();
    replay.expect_pass();
    assert!(replay.run.stdout.contains("planned and staged as far as --memory-budget allows"), "{}", replay.run);
    let whole = Replay::of_recording(&recording).args(["--memory-budget", "512"]).run();
    whole.expect_pass();
    assert!(whole.run.stdout.contains("planned and staged whole"), "{}", whole.run);
}
