//! Replays that do not come to an end: the watchdog names what hangs, in time, and the replay exits with 124.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hrr_tests::built;
use hrr_tests::process::{End, run};
use hrr_tests::recording::{Contents, Scratch, record, recorded};
use hrr_tests::replaying::Replay;
use hrr_tests::schema::faults;
use hrr_tests::workload::Workload;
use serde_json::Value;

/// The watchdog's limit.
const LIMIT_MS: u64 = 800;
/// What a diagnosis may take on top, on a machine with much else to do. Alone it takes a tenth of that.
const DIAGNOSIS_MS: f64 = 2000.0;
/// How long a program that hangs is left alone once it says that it waits.
const SETTLE: Duration = Duration::from_millis(800);

/// Records a program that hangs, and kills it.
fn recorded_hang(scratch: &Scratch, program: &str, arguments: &[&str]) -> std::path::PathBuf {
    let archive = scratch.path().join("hang.hrr");
    let mut command = Workload::new(program, arguments).command();
    recorded(&mut command, &archive, Contents::Recorded);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the program starts");
    let mut line = String::new();
    let mut reader = std::io::BufReader::new(child.stdout.take().expect("it was piped"));
    std::io::BufRead::read_line(&mut reader, &mut line).expect("it can be read");
    assert!(line.contains("waiting"), "{line:?}");
    std::thread::sleep(SETTLE);
    child.kill().expect("it runs for ever");
    child.wait().expect("it was started here");
    archive
}

/// Replays what hangs and returns the diagnosis as JSON, after what holds for every one was looked at.
fn diagnosed(scratch: &Scratch, archive: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Value {
    let (file, report) = (scratch.path().join("diagnosis.json"), scratch.path().join("report.json"));
    let text_of = |path: &Path| path.to_str().expect("scratch paths are UTF-8").to_owned();
    let limit = LIMIT_MS.to_string();
    let mut replay = Replay::of(archive)
        .args(["--sync-watchdog-ms", &limit, "--triage", &text_of(&file), "--report", &text_of(&report)])
        .args(arguments.iter().copied())
        .limit(Duration::from_secs(60));
    for (name, value) in variables {
        replay = replay.env(name, value);
    }
    let begun = Instant::now();
    let run = replay.run().run;
    run.expect_code(124);
    assert!(begun.elapsed() >= Duration::from_millis(LIMIT_MS), "{run}");
    let block: Vec<&str> = run.stderr.lines().filter(|line| line.contains("WATCHDOG")).collect();
    assert!(!block.is_empty() && block.iter().all(|line| line.starts_with("[HRR][WATCHDOG] ")), "{run}");
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{error}\n{run}"));
    let diagnosis: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(diagnosis["schema_version"], 1);
    // Of a call that replay makes for its own sake there may be nothing more to tell.
    assert!(block.len() > 1 || diagnosis["stuck"] == "own-call", "{run}");
    let read = |path: &Path| std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}\n{run}", path.display()));
    let report: Value = serde_json::from_slice(&read(&report)).expect("the report is JSON");
    let schema = read(&built::repository().join("perf/schema/run-report.json"));
    assert_eq!(faults(&serde_json::from_slice(&schema).expect("JSON"), &report), Vec::<String>::new());
    assert_eq!((&report["exit_code"], &report["watchdog"]), (&124.into(), &diagnosis));
    let stuck_ms = diagnosis["stuck_ms"].as_f64().expect("a number");
    assert!(
        stuck_ms >= LIMIT_MS as f64 && stuck_ms <= LIMIT_MS as f64 + DIAGNOSIS_MS,
        "told after {stuck_ms} ms\n{run}"
    );
    diagnosis
}

/// The only stream with work in flight: what it completed last, and what it did not complete first.
fn only_stream(diagnosis: &Value) -> (&Value, &Value) {
    let streams = diagnosis["streams"].as_array().expect("streams");
    assert_eq!(streams.len(), 1, "{diagnosis:#}");
    (&streams[0]["last_completed"], &streams[0]["in_flight"][0])
}

#[test]
fn a_kernel_that_spins_is_named_with_what_came_before_it() {
    let scratch = Scratch::new("hang");
    let archive = recorded_hang(&scratch, "hang", &[]);
    let diagnosis = diagnosed(&scratch, &archive, &[], &[]);
    assert_eq!((&diagnosis["what"], &diagnosis["phase"]), (&"hipDeviceSynchronize".into(), &"drain".into()));
    let (completed, hanging) = only_stream(&diagnosis);
    assert_eq!(completed["kernel"], "fill", "{diagnosis:#}");
    assert_eq!((&hanging["kernel"], &hanging["code_object"]), (&"spin_until".into(), &0.into()), "{diagnosis:#}");
    let call = hanging["call"].as_str().expect("a call");
    assert!(call.contains("numBlocks=(1,1,1)") && call.contains("dimBlocks=(1,1,1)"), "grid and block: {call}");
    assert_eq!(diagnosis["streams"][0]["in_flight_total"], 2, "and the kernel behind it\n{diagnosis:#}");
    let at_capture = diagnosis["recorded_in_flight"][0]["call"].as_str().expect("the sync that never returned");
    assert_eq!(at_capture, "hipDeviceSynchronize()");
}

#[test]
fn a_kernel_behind_many_is_one_of_few_and_named_where_each_is_marked() {
    let scratch = Scratch::new("hang");
    let archive = recorded_hang(&scratch, "hang", &["64", "500"]);
    let diagnosis = diagnosed(&scratch, &archive, &[], &[]);
    let stream = &diagnosis["streams"][0];
    let candidates = stream["candidates"].as_u64().expect("a number") as usize;
    let in_flight = stream["in_flight"].as_array().expect("operations");
    assert!((1..=33).contains(&candidates), "{diagnosis:#}");
    let named = in_flight.iter().take(candidates).any(|operation| operation["kernel"] == "spin_until");
    assert!(named, "among the first {candidates}\n{diagnosis:#}");

    let diagnosis = diagnosed(&scratch, &archive, &["--watchdog-marks", "all"], &[]);
    let (completed, hanging) = only_stream(&diagnosis);
    assert_eq!(diagnosis["streams"][0]["candidates"], 1, "{diagnosis:#}");
    assert_eq!((&completed["kernel"], &hanging["kernel"]), (&"mix".into(), &"spin_until".into()), "{diagnosis:#}");
}

#[test]
fn a_launch_that_is_waited_for_is_the_call_that_hangs() {
    let scratch = Scratch::new("hang");
    let archive = recorded_hang(&scratch, "hang", &[]);
    let diagnosis = diagnosed(&scratch, &archive, &["--sync-after-launch"], &[]);
    assert_eq!(diagnosis["what"], "hipDeviceSynchronize");
    let worker = &diagnosis["workers"][0];
    assert_eq!(worker["operation"]["kernel"], "spin_until", "the launch that the device is waited for\n{diagnosis:#}");
}

/// The stream waits for a value that the program writes later: an added wait behind the first call cannot end, and says why.
#[test]
fn a_wait_that_replay_added_says_so() {
    let recording = record(&Workload::new("hang_cases", &["released"]), Contents::Recorded);
    let replay = |limit_ms: &str| Replay::of_recording(&recording).args(["--sync-watchdog-ms", limit_ms]);
    replay("20000").run().run.expect_code(0);
    for option in ["--sync-after-launch", "--sync-after-event"] {
        let run = replay("800").args([option]).run().run;
        run.expect_code(124);
        assert!(run.stderr.contains("--sync-after-event's; where a stream waits for what a later call"), "{run}");
    }
}

/// Formerly the processes of an archive all wrote to one file.
#[test]
fn each_process_has_a_diagnosis_of_its_own() {
    let scratch = Scratch::new("hang");
    let archive = recorded_hang(&scratch, "hang", &[]);
    let file = scratch.path().join("diagnosis.json");
    let text = file.to_str().expect("scratch paths are UTF-8");
    let arguments = ["--all-processes", "--sync-watchdog-ms", "800", "--triage", text];
    Replay::of(&archive).args(arguments).run().run.expect_code(124);
    let files = hrr_tests::files::below(scratch.path());
    let own = |path: &&std::path::PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with("diagnosis.pid-") && name.ends_with(".json")
    };
    assert_eq!((files.iter().filter(own).count(), file.exists()), (1, false), "{files:?}");
}

#[test]
fn a_value_that_nobody_writes_is_named() {
    let scratch = Scratch::new("hang");
    let archive = recorded_hang(&scratch, "hang_cases", &["wait_value"]);
    let diagnosis = diagnosed(&scratch, &archive, &[], &[]);
    assert_eq!(only_stream(&diagnosis).1["api"], "hipStreamWaitValue32", "{diagnosis:#}");
    let reason = diagnosis["streams"][0]["waits_for"].as_str().expect("a reason");
    assert!(reason.contains("the value 0x7") && reason.contains("nothing in flight writes there"), "{reason}");
}

#[test]
fn a_cycle_of_two_streams_is_named() {
    let scratch = Scratch::new("hang");
    let archive = recorded_hang(&scratch, "hang_cases", &["event_cycle"]);
    let diagnosis = diagnosed(&scratch, &archive, &[], &[]);
    let cycles = diagnosis["cycles"].as_array().expect("cycles");
    assert_eq!(cycles.len(), 1, "{diagnosis:#}");
    let cycle = cycles[0].as_str().expect("a sentence");
    assert_eq!(cycle.matches("waits for").count(), 2, "{cycle}");
    let first: Vec<&Value> = [0, 1].map(|stream| &diagnosis["streams"][stream]["in_flight"][0]["api"]).to_vec();
    assert!(
        first.contains(&&"hipStreamWaitValue32".into()) && first.contains(&&"hipStreamWaitEvent".into()),
        "{first:?}"
    );
}

#[test]
fn a_sync_that_hangs_only_in_the_replay_is_named_with_what_it_took_at_capture() {
    let scratch = Scratch::new("hang");
    let recording = record(&Workload::new("hang_cases", &["released"]), Contents::Recorded);
    Replay::of_recording(&recording).args(["--sync-watchdog-ms", "20000"]).run().expect_pass();
    for threads in ["0", "1"] {
        let mutation = [("HRR_REPLAY_MUTATE", "drop:hipStreamWriteValue32")];
        let diagnosis = diagnosed(&scratch, &recording.archive, &["--threads", threads], &mutation);
        assert_eq!((&diagnosis["what"], &diagnosis["stuck"]), (&"hipStreamSynchronize".into(), &"call".into()));
        let worker = &diagnosis["workers"][0];
        let recorded_us = worker["recorded_us"].as_f64().expect("it returned at capture");
        assert!((0.0..30e6).contains(&recorded_us), "{recorded_us} us");
        assert_eq!(worker["stream"], diagnosis["streams"][0]["stream"], "{diagnosis:#}");
        assert_eq!(only_stream(&diagnosis).1["api"], "hipStreamWaitValue32", "{diagnosis:#}");
    }
}

#[test]
fn a_worker_that_waits_for_itself_is_named() {
    let scratch = Scratch::new("hang");
    let recording = record(&Workload::listed("threads8"), Contents::Recorded);
    for threads in ["0", "2", "1"] {
        let mutation = [("HRR_REPLAY_MUTATE", "self-wait")];
        let diagnosis = diagnosed(&scratch, &recording.archive, &["--threads", threads], &mutation);
        assert_eq!(diagnosis["stuck"], "wait", "{diagnosis:#}");
        let cycles = diagnosis["cycles"].as_array().expect("cycles");
        assert!(
            cycles.iter().any(|cycle| cycle.as_str().is_some_and(|text| text.ends_with("waits for itself"))),
            "{cycles:?}"
        );
        let stuck = diagnosis["workers"].as_array().expect("workers").iter();
        let own = |worker: &&Value| worker["event"] == 10 && worker["waits_for"]["thread"] == worker["thread"];
        assert_eq!(stuck.filter(own).count(), 1, "the planted call\n{diagnosis:#}");
    }
}

/// A call of the runtime takes this long: nobody waits for it.
fn never_returns(api: &str) -> String {
    format!("api:{api}:3600000000us")
}

#[test]
fn what_replay_itself_waits_for_is_bounded_in_every_phase() {
    let scratch = Scratch::new("hang");
    // Leaves a stream and an event alive, has pinned memory, and copies to the device.
    let mut workload = Workload::new("corner_cases", &["polled_release"]);
    workload.environment.push(("MINIHIP_DEVICES".to_owned(), "1".to_owned()));
    let recording = record(&workload, Contents::Recorded);
    for (api, phase, stuck) in [
        ("hipGetDeviceCount", "set-up", "own-call"),
        ("hipMemMap", "set-up", "own-call"),
        ("hipMemset", "run", "call"),
        ("hipStreamDestroy", "tear-down", "own-call"),
    ] {
        let slow = never_returns(api);
        let diagnosis = diagnosed(&scratch, &recording.archive, &[], &[("MINIHIP_SLOW", &slow)]);
        assert_eq!((&diagnosis["phase"], &diagnosis["stuck"]), (&phase.into(), &stuck.into()), "{api}\n{diagnosis:#}");
        if stuck == "call" {
            assert_eq!(diagnosis["what"], api, "{diagnosis:#}");
        }
    }
    // Staging in pinned memory, as the program had it.
    let recording = record(&Workload::listed("async_copies"), Contents::Recorded);
    let slow = never_returns("hipHostMalloc");
    let diagnosis = diagnosed(&scratch, &recording.archive, &[], &[("MINIHIP_SLOW", &slow)]);
    assert_eq!((&diagnosis["phase"], &diagnosis["stuck"]), (&"set-up".into(), &"own-call".into()), "{diagnosis:#}");
}

#[test]
fn a_runtime_that_does_not_answer_the_watchdog_either_is_left() {
    let scratch = Scratch::new("hang");
    let archive = recorded_hang(&scratch, "hang", &[]);
    let file = scratch.path().join("diagnosis.json");
    let run = Replay::of(&archive)
        .args([
            "--sync-watchdog-ms",
            &LIMIT_MS.to_string(),
            "--triage",
            file.to_str().expect("scratch paths are UTF-8"),
        ])
        .env("MINIHIP_SLOW", never_returns("hipEventQuery"))
        .limit(Duration::from_secs(60))
        .run()
        .run;
    run.expect_code(124);
    assert!(run.stderr.contains("[HRR][WATCHDOG] "), "{run}");
    let diagnosis: Value =
        serde_json::from_slice(&std::fs::read(&file).expect("it is told all the same")).expect("JSON");
    // The launch is held up by the question how far its stream has come.
    assert_eq!((&diagnosis["what"], &diagnosis["phase"]), (&"hipLaunchKernel".into(), &"run".into()));
    assert!(diagnosis["streams_unknown"].as_str().is_some_and(|why| why.contains("not answer")), "{diagnosis:#}");
}

#[test]
fn without_a_gpu_the_archive_tells_what_was_in_flight() {
    let scratch = Scratch::new("hang");
    let archive = recorded_hang(&scratch, "hang", &[]);
    let mut command = Command::new(built::playback());
    let info = run(command.arg(&archive).arg("--info"), Duration::from_secs(60));
    assert_eq!(info.end, End::Code(0), "{info}");
    let line = info.stdout.lines().find(|line| line.contains("in flight: hipDeviceSynchronize"));
    let line = line.unwrap_or_else(|| panic!("the call that had not returned\n{info}"));
    // The program was left alone for a while in it, and the recording knows.
    let ms: f64 = line
        .split_once("not returned ")
        .and_then(|(_, rest)| rest.split_whitespace().next())
        .and_then(|number| number.parse().ok())
        .unwrap_or_else(|| panic!("for how long\n{info}"));
    assert!(ms >= SETTLE.as_secs_f64() * 1e3 / 2.0 && ms < 60e3, "{ms} ms\n{info}");
    assert!(info.stdout.contains("spin_until"), "the last launches of the streams concerned\n{info}");
}
