//! Python packages that bring their own way to HIP: ROCm's bindings (`hip-python`), tinygrad's runtime, and Triton's driver.
//!
//! Which Python is asked is `HRR_PYTHON`, or `python3`. A package that it lacks is said, and its test proves nothing then:
//! `python3 -m venv V && V/bin/pip install hip-python tinygrad triton numpy`, then `HRR_PYTHON=V/bin/python`.

use std::ffi::OsString;
use std::process::Command;
use std::time::Duration;

use hrr_tests::built;
use hrr_tests::process::{run, with_clean_environment};
use hrr_tests::recording::{Contents, Scratch, recorded};
use hrr_tests::replaying::Replay;

const LIMIT: Duration = Duration::from_secs(120);

fn python(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("HRR_PYTHON").unwrap_or_else(|| OsString::from("python3")));
    with_clean_environment(&mut command);
    // tinygrad asks for the library there, ROCm's bindings ask the loader.
    command.args(arguments).env("LD_LIBRARY_PATH", built::libraries()).env("ROCM_PATH", built::folder());
    command
}

/// Records a script of `tests/python`, and replays it with as many workers as threads and with one; returns the results that
/// were equal. `None` where the Python has not what it needs.
fn replayed(script: &str, modules: &str, threads: usize) -> Option<u64> {
    let asked = run(&mut python(&["-c", &format!("import {modules}")]), LIMIT);
    if !asked.succeeded() {
        eprintln!("skipped: {} cannot import {modules}", asked.command_line);
        println!("skipped: this Python cannot import {modules}");
        return None;
    }
    let scratch = Scratch::new(script);
    let archive = scratch.path().join("python.hrr");
    let path = built::repository().join(format!("tests/python/{script}.py"));
    let kernels = built::output("kernels");
    let mut command = python(&[path.to_str().expect("UTF-8"), kernels.to_str().expect("UTF-8")]);
    recorded(&mut command, &archive, Contents::Recorded);
    let ran = run(&mut command, LIMIT);
    ran.expect_code(0);
    assert!(ran.stdout.contains(&format!("{script}: ok")), "{ran}");
    let mut passed = 0;
    for workers in ["0", "1"] {
        let replay = Replay::of(&archive).args(["--threads", workers]).run();
        passed = replay.expect_pass().pass;
        assert!(replay.run.stdout.contains(&format!("[HRR] Threads : {threads} captured")), "{}", replay.run);
    }
    Some(passed)
}

#[test]
fn rocms_own_bindings_are_recorded_and_replayed() {
    if let Some(passed) = replayed("hip_bindings", "rocm.bindings.hip, numpy", 4) {
        assert_eq!(passed, 15, "four rounds and a memory set of three threads");
    }
}

/// All of Triton but its compiler: the module that it compiles for itself, which finds what it calls by `hipGetProcAddress`.
#[test]
fn tritons_hip_driver_is_recorded_and_replayed() {
    if let Some(passed) = replayed("triton_hip", "triton, numpy", 1) {
        assert_eq!(passed, 1);
    }
}

#[test]
fn tinygrads_hip_runtime_is_recorded_and_replayed() {
    if let Some(passed) = replayed("tinygrad_hip", "tinygrad, numpy", 1) {
        assert_eq!(passed, 1);
    }
}
