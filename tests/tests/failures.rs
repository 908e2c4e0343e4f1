//! Calls that failed at capture, and calls that fail now: each way these can meet, with real programs.

use std::collections::BTreeMap;

use hrr_format::archive::Archive;
use hrr_format::catalogue::Policy;
use hrr_tests::process::End;
use hrr_tests::recording::{Contents, Recording, record, record_with};
use hrr_tests::replaying::{Replay, Replayed};
use hrr_tests::workload::Workload;

/// A program that has a second way where a call fails, recorded where these rules of minihip make some fail.
fn second_ways(fail: &str) -> Recording {
    record_with(&Workload::new("second_ways", &[]), Contents::Recorded, &[("MINIHIP_FAIL", fail)])
}

/// A count of the summary, by what stands in front of it; 0 where there is no such line.
fn count(replayed: &Replayed, line: &str) -> u64 {
    let stdout = &replayed.run.stdout;
    let text = stdout.lines().find_map(|text| text.strip_prefix("[HRR] ")?.strip_prefix(line));
    let digits = |text: &str| text.trim_start_matches([' ', ':']).split(' ').next().and_then(|word| word.parse().ok());
    text.map_or(0, |text| digits(text).unwrap_or_else(|| panic!("no count behind {line:?} in {text:?}")))
}

/// Calls that failed, by name and code; those that only tell of an earlier failure are none.
type Failures = BTreeMap<(String, i32), u64>;

fn tells_of_others(name: &str) -> bool {
    matches!(name, "hipGetLastError" | "hipPeekAtLastError" | "hipExtGetLastError")
}

fn recorded_failures(recording: &Recording) -> Failures {
    let archive = Archive::open(&recording.archive).expect("it was just recorded");
    let mut failures = Failures::new();
    for record in archive.streams().iter().flat_map(|stream| stream.records()) {
        let Some(api) = archive.row_of(&record) else { continue };
        let issued = matches!(api.policy, Policy::Replay | Policy::ReplayAs(_));
        if record.ret() != 0 && issued && !tells_of_others(api.name) {
            *failures.entry((api.name.to_owned(), record.ret())).or_default() += 1;
        }
    }
    failures
}

fn traced_failures(replayed: &Replayed) -> Failures {
    let mut failures = Failures::new();
    for line in replayed.run.stderr.lines().filter(|line| line.starts_with("minihip: [")) {
        let (name, code) = line.split_once("] ").and_then(|(_, call)| call.split_once(" = ")).expect("NAME = CODE");
        let code: i32 = code.parse().expect("a number");
        if code != 0 && !tells_of_others(name) {
            *failures.entry((name.to_owned(), code)).or_default() += 1;
        }
    }
    failures
}

#[test]
fn recorded_failures_are_reissued_and_fail_alike_and_the_rest_is_counted() {
    let recording = record(&Workload::listed("errors"), Contents::Recorded);
    let recorded = recorded_failures(&recording);
    let replayed = Replay::of_recording(&recording).env("MINIHIP_TRACE", 1).run();
    replayed.expect_pass();
    let reissued = traced_failures(&replayed);
    let missing: Failures = recorded
        .iter()
        .map(|(call, &times)| (call.clone(), times - reissued.get(call).copied().unwrap_or(0)))
        .filter(|&(_, times)| times > 0)
        .collect();
    // Memory that may be there now, and what the runtime would have to read where nothing was recorded: a file that did not
    // exist, and a terabyte of the host's.
    let names: Vec<&str> = missing.keys().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["hipMalloc", "hipMemcpy", "hipModuleLoad"], "{missing:?}");
    assert_eq!(missing.get(&("hipMalloc".to_owned(), 2)), Some(&9), "{missing:?}");
    assert_eq!(count(&replayed, "Not reissued"), missing.values().sum::<u64>(), "{}", replayed.run);
    assert!(reissued.keys().all(|call| recorded.contains_key(call)), "{reissued:?} and not {recorded:?}");
    assert!(reissued.len() >= 10, "many kinds of failure: {reissued:?}");
}

#[test]
fn an_allocation_that_had_failed_is_not_made() {
    for name in ["hipMalloc", "hipHostMalloc"] {
        let recording = second_ways(&format!("{name}:2:1"));
        let replayed = Replay::of_recording(&recording).args(["--no-placement"]).env("MINIHIP_TRACE", 1).run();
        replayed.expect_pass();
        assert_eq!(count(&replayed, "Not reissued"), 1, "{}", replayed.run);
        let issued = format!("] {name} = ");
        assert!(!replayed.run.stderr.contains(&issued), "{}", replayed.run);
    }
}

#[test]
fn a_call_that_had_failed_and_succeeds_now_stops_the_replay() {
    let rule = "hipStreamCreateWithPriority:1";
    let recording = second_ways(rule);
    // Where it fails in the same way, that is as it was.
    let replayed = Replay::of_recording(&recording).env("MINIHIP_FAIL", rule).run();
    assert_eq!((replayed.expect_pass().pass, count(&replayed, "Not reissued")), (1, 0), "{}", replayed.run);
    let replayed = Replay::of_recording(&recording).run();
    replayed.run.expect_code(1);
    let stderr = &replayed.run.stderr;
    assert!(stderr.contains("hipStreamCreateWithPriority(stream="), "with its arguments\n{}", replayed.run);
    assert!(
        stderr.contains("priority=-1): succeeded (0); at capture it had failed with 1 (hipErrorInvalidValue)"),
        "{stderr}"
    );
    assert_eq!((count(&replayed, "Events failed"), count(&replayed, "Kernels launched")), (1, 0), "{}", replayed.run);
    // The program had a second stream, which is made and used: nothing differs but what the last error is then, of which the one
    // failure is the cause.
    let replayed = Replay::of_recording(&recording).args(["--continue-on-error"]).run();
    replayed.run.expect_code(1);
    assert!(!replayed.run.stderr.contains("hipGetLastError"), "{}", replayed.run);
    assert_eq!((count(&replayed, "Events failed"), count(&replayed, "Kernels launched")), (1, 2), "{}", replayed.run);
    assert_eq!(replayed.checks.map(|checks| (checks.pass, checks.fail)), Some((1, 0)), "{}", replayed.run);
}

#[test]
fn a_call_that_fails_differently_stops_the_replay() {
    let recording = second_ways("hipStreamCreateWithPriority:1");
    let replayed = Replay::of_recording(&recording).env("MINIHIP_FAIL", "hipStreamCreateWithPriority:801").run();
    replayed.run.expect_code(1);
    let told = "failed with 801 (hipErrorNotSupported); at capture it had failed with 1 (hipErrorInvalidValue). Usually \
                this runtime or device does not offer the call";
    assert!(replayed.run.stderr.contains(told), "{}", replayed.run);
    assert_eq!(count(&replayed, "Events failed"), 1, "{}", replayed.run);
}

#[test]
fn a_success_that_fails_now_stops_the_replay_and_says_what_it_usually_means() {
    let recording = second_ways("");
    let fails = |rule: &str, arguments: &[&str]| {
        let replay = Replay::of_recording(&recording).args(arguments.iter().copied());
        let replayed = replay.args(["--no-placement"]).env("MINIHIP_FAIL", rule).run();
        assert_eq!(replayed.run.end, End::Code(1), "{}", replayed.run);
        replayed
    };
    for (rule, call, told) in [
        (
            "hipMalloc:2",
            "hipMalloc(ptr=",
            "failed with 2 (hipErrorOutOfMemory); it had succeeded (0) at capture. Usually less memory",
        ),
        (
            "hipLaunchKernel:98:2",
            "hipLaunchKernel[mix](",
            "failed with 98 (hipErrorInvalidDeviceFunction); it had succeeded",
        ),
        (
            "hipMemcpyAsync:700",
            "sizeBytes=4096, kind=DeviceToHost",
            ". Usually a kernel touched memory that it may not touch",
        ),
        ("hipStreamSynchronize:719", "hipStreamSynchronize(stream=", "failed with 719 (hipErrorLaunchFailure)"),
    ] {
        let replayed = fails(rule, &[]);
        let line = replayed.run.stderr.lines().find(|line| line.contains(call));
        assert!(line.is_some_and(|line| line.contains(told)), "{rule}: {call} {told}\n{}", replayed.run);
        assert_eq!(count(&replayed, "Events failed"), 1, "{rule}\n{}", replayed.run);
        assert!(replayed.run.stdout.contains("[HRR] FAIL"), "{}", replayed.run);
    }
    // Nothing that comes behind it is issued.
    assert_eq!(count(&fails("hipLaunchKernel:98:1", &[]), "Kernels launched"), 0);
    let on = fails("hipLaunchKernel:98:1", &["--continue-on-error"]);
    // The program asks for the last error after each launch, which tells of the same failure.
    assert_eq!((count(&on, "Events failed"), count(&on, "Kernels launched")), (1, 1), "{}", on.run);
    assert_eq!(
        on.checks.map(|checks| (checks.pass, checks.fail)),
        Some((0, 1)),
        "the result lacks a kernel\n{}",
        on.run
    );
}

/// A stream that was not made is not the default stream: what was enqueued on it went there.
#[test]
fn what_a_failed_call_should_have_made_is_used_by_no_other_call() {
    let recording = second_ways("");
    for (rule, lacking, kernels) in [
        // Two launches, a record of the event, a copy, a wait and the end of the stream.
        ("hipStreamCreateWithPriority:2", 6, 0),
        // Its record, the wait for it, and its end.
        ("hipEventCreateWithFlags:2", 3, 2),
        // Two launches, the copy, and the free.
        ("hipMalloc:2", 4, 0),
    ] {
        let replay = Replay::of_recording(&recording).args(["--no-placement", "--continue-on-error"]);
        let replayed = replay.env("MINIHIP_FAIL", rule).run();
        replayed.run.expect_code(1);
        let not_made = "uses what a call that failed in this replay should have made; not issued";
        let told = replayed.run.stderr.lines().filter(|line| line.contains(not_made)).count();
        assert_eq!(told, lacking, "{rule}\n{}", replayed.run);
        let counts = (count(&replayed, "Events failed"), count(&replayed, "Kernels launched"));
        // Besides them the call itself; the question for the last error, which it is now, is no failure of its own.
        assert_eq!(counts, (lacking as u64 + 1, kernels), "{rule}\n{}", replayed.run);
    }
}
