//! Planted slowdowns: `hrr-perf run` says which runtime is slower and where, and calls equal ones equal.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use hrr_tests::built;
use hrr_tests::process::{Finished, run, with_clean_environment};
use hrr_tests::recording::{Contents, Scratch, record};
use hrr_tests::workload::Workload;

/// A build of minihip of its own, slower by these rules.
fn build(scratch: &Scratch, name: &str, rules: &str) -> PathBuf {
    let folder = scratch.path().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let lib = folder.join("libamdhip64.so.7");
    std::fs::copy(built::output("lib/libamdhip64.so.7"), &lib).unwrap();
    std::fs::write(folder.join("minihip-slow"), rules).unwrap();
    lib
}

fn compared(archive: &Path, first: &Path, second: &Path) -> Finished {
    let mut command = Command::new(built::output("bin/hrr-perf"));
    with_clean_environment(&mut command);
    command.arg("run").arg("--hip-lib").arg(first).arg("--hip-lib").arg(second);
    command.args(["--repeat", "10", "--inner", "3"]).arg(archive).args(["--", "--threads", "1"]);
    run(&mut command, Duration::from_secs(240))
}

/// The verdict on a build with `rules` against one without.
fn verdict(workload: &str, rules: &str) -> String {
    let recording = record(&Workload::listed(workload), Contents::Recorded);
    let scratch = Scratch::new("compare");
    let (first, second) = (build(&scratch, "before", ""), build(&scratch, "after", rules));
    let finished = compared(&recording.archive, &first, &second);
    finished.expect_code(0);
    let line = finished.stdout.lines().find(|line| line.starts_with("verdict")).map(str::to_owned);
    line.unwrap_or_else(|| panic!("no verdict\n{finished}"))
}

#[test]
fn a_slow_launch_is_found() {
    let verdict = verdict("api_rate", "api:hipLaunchKernel:20us");
    assert!(verdict.contains("% slower") && verdict.ends_with("in hipLaunchKernel"), "{verdict}");
}

#[test]
fn a_slow_kernel_is_found() {
    let verdict = verdict("saxpy_reduce", "kernel:saxpy:20000us");
    assert!(verdict.contains("% slower") && verdict.ends_with("in kernel saxpy"), "{verdict}");
}

#[test]
fn a_slow_lock_in_stream_synchronisation_is_found() {
    let verdict = verdict("threads8", "lock:streamsync:1000us");
    assert!(verdict.contains("% slower") && verdict.ends_with("in hipStreamSynchronize"), "{verdict}");
}

#[test]
fn builds_that_differ_in_noise_alone_are_equal() {
    let recording = record(&Workload::listed("threads8"), Contents::Recorded);
    let scratch = Scratch::new("compare");
    let (first, second) = (build(&scratch, "before", "noise:50us"), build(&scratch, "after", "noise:50us"));
    let finished = compared(&recording.archive, &first, &second);
    assert!(finished.expect_code(0).stdout.contains("verdict    no difference"), "{finished}");
}

#[test]
fn a_runtime_is_not_compared_with_itself() {
    let scratch = Scratch::new("compare");
    let lib = build(&scratch, "one", "");
    let finished = compared(Path::new("nothing"), &lib, &lib);
    assert!(finished.expect_code(2).stderr.contains("are the same file"), "{finished}");
}
