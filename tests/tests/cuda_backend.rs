//! Workloads on minihip's cuda backend, with a CUDA driver in host memory: what minihip asks of a driver is recorded and
//! replayed as on other backends. The driver has the calls that these workloads need.

use hrr_tests::built;
use hrr_tests::process::run;
use hrr_tests::recording::{Contents, Scratch, record};
use hrr_tests::replaying::Replay;
use hrr_tests::workload::Workload;
use std::process::Command;
use std::time::Duration;

/// Builds the driver, and gives the folders that a program's loader is to look in.
fn libraries(scratch: &Scratch) -> String {
    let source = built::repository().join("tests/minihip/tests/cuda_driver/driver.c");
    let library = scratch.path().join("libcuda.so.1");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c17", "-O1", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o"]).args([&library, &source]);
    run(&mut compiler, Duration::from_secs(60)).expect_code(0);
    format!("{}:{}", built::libraries().display(), scratch.path().display())
}

fn passes(name: &str, least_checks: u64) {
    passes_with(name, &[], least_checks);
}

/// On two devices, with other arguments than the list's where there are any.
fn passes_with(name: &str, arguments: &[&str], least_checks: u64) {
    let scratch = Scratch::new("cuda-driver");
    let mut workload = Workload::listed(name);
    if !arguments.is_empty() {
        workload.arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
    }
    workload.environment.push(("FAKE_CUDA_DEVICES".to_owned(), "2".to_owned()));
    workload.environment.push(("MINIHIP_BACKEND".to_owned(), "cuda".to_owned()));
    workload.environment.push(("LD_LIBRARY_PATH".to_owned(), libraries(&scratch)));
    let recording = record(&workload, Contents::Recorded);
    assert!(recording.run.stdout.contains(&format!("{name}: ok")), "{}", recording.run);
    for order in ["capture", "deps"] {
        let checks = Replay::of_recording(&recording).args(["--order", order]).run().expect_pass();
        assert!(checks.pass >= least_checks, "{name}: {checks:?}");
    }
}

#[test]
fn copies_of_every_spelling() {
    passes("sweep_copies", 129);
}

#[test]
fn images() {
    passes("images", 18);
}

#[test]
fn linked_code_and_managed_variables() {
    passes("linking", 5);
}

#[test]
fn devices_that_are_reset() {
    passes("resets", 10);
}

#[test]
fn shares_of_a_device() {
    passes("execution_contexts", 3);
}

// HIP's runtime has one context for a device: what one thread makes and destroys is what another one has.
#[test]
fn contexts_that_are_one() {
    passes("contexts", 66);
}

#[test]
fn memory_of_devices_that_reach_each_other() {
    passes("peers", 9);
}

// The driver's descriptors all stand for one file.
#[test]
fn memory_handed_on_by_descriptors() {
    passes("shared_handles", 12);
}

// The driver loads code only once no stream of the device waits.
#[test]
fn streams_that_wait_for_values() {
    passes_with("api_corners", &["batched_values"], 6);
    passes_with("api_corners", &["masked_values"], 3);
}

#[test]
fn copies_that_hip_refuses() {
    passes_with("api_corners", &["refused_copies"], 1);
}

#[test]
fn handles_for_other_processes() {
    passes("ipc", 12);
}
