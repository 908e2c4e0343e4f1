//! Every JSON output is what its schema says, and has a version.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use hrr_tests::built;
use hrr_tests::process::{run, with_clean_environment};
use hrr_tests::recording::{Contents, Recording, Scratch, record};
use hrr_tests::replaying::Replay;
use hrr_tests::schema;
use hrr_tests::workload::Workload;
use serde_json::Value;

fn recording(name: &str) -> Recording {
    record(&Workload::listed(name), Contents::Recorded)
}

fn info(path: &Path, options: &[&str]) -> Value {
    let run = Replay::of(path).args(["--info", "--json"]).args(options.iter().copied()).run().run;
    serde_json::from_str(&run.expect_code(0).stdout).unwrap()
}

#[test]
fn what_was_recorded() {
    for name in ["threads8", "graph_capture", "errors", "two_devices", "sweep_copies", "module_launch", "memory_pool"] {
        let recording = recording(name);
        schema::expect("replay/schema/info.json", &info(&recording.archive, &[]));
        schema::expect("replay/schema/info.json", &info(&recording.archive, &["--events"]));
    }
    let withheld = record(&Workload::listed("async_copies"), Contents::Withheld);
    schema::expect("replay/schema/info.json", &info(&withheld.archive, &["--events"]));
}

#[test]
fn what_a_killed_program_left_and_a_root_of_several() {
    let scratch = Scratch::new("schemas");
    let archive = scratch.path().join("hang.hrr");
    let mut command = Command::new(built::output("workloads/hang"));
    with_clean_environment(&mut command);
    command.env("LD_LIBRARY_PATH", built::libraries());
    hrr_tests::recording::recorded(&mut command, &archive, Contents::Recorded);
    run(&mut command, Duration::from_secs(4));
    let told = info(&archive, &["--events"]);
    schema::expect("replay/schema/info.json", &told);
    assert!(told["last_work"].as_array().is_some_and(|work| !work.is_empty()), "the part is there");
    // The same process twice, under another name.
    let process = std::fs::read_dir(&archive).unwrap().map(|entry| entry.unwrap().path()).find(|path| path.is_dir());
    let process = process.unwrap();
    let copy = Command::new("cp").arg("-r").arg(&process).arg(archive.join("pid-1")).status().unwrap();
    assert!(copy.success());
    schema::expect("replay/schema/root.json", &info(&archive, &[]));
    let file = scratch.path().join("diagnosis.json");
    let options = ["--sync-watchdog-ms", "800", "--triage", file.to_str().unwrap()];
    Replay::of(&process).args(options).run().run.expect_code(124);
    schema::expect("replay/schema/diagnosis.json", &serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap());
}

#[test]
fn comparisons() {
    let recording = recording("saxpy_reduce");
    let scratch = Scratch::new("schemas");
    let report = scratch.path().join("report.json");
    let written = ["--repeat", "5", "--timing", "--report", report.to_str().unwrap()];
    Replay::of_recording(&recording).args(written).run().expect_pass();
    // Two reports, and what was recorded against one.
    for baseline in [&report, &recording.archive] {
        let mut command = Command::new(built::output("bin/hrr-perf"));
        let finished = run(command.arg("compare").arg(baseline).arg(&report).arg("--json"), Duration::from_secs(60));
        let value: Value = serde_json::from_str(&finished.expect_code(0).stdout).unwrap();
        schema::expect("perf/schema/comparison.json", &value);
    }
}
