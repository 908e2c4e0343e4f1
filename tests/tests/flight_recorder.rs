//! The flight recorder: the last calls of each thread in a bounded part of the disk, whatever becomes of the process.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use hrr_format::archive::Archive;
use hrr_format::record::marker;
use hrr_tests::built;
use hrr_tests::process::{Finished, run};
use hrr_tests::recording::{Contents, Scratch, recorded};
use hrr_tests::replaying::Replay;
use hrr_tests::workload::Workload;

/// What the stream files may take.
const SIZE: &str = "512K";
const SIZE_BYTES: u64 = 512 << 10;
const LIMIT: Duration = Duration::from_secs(120);

/// Runs a program under the flight recorder until it has printed a line that `stop` accepts and `settle` has passed, and kills
/// it; without `stop`, to its end.
fn fly(scratch: &Scratch, workload: &Workload, stop: Option<(&str, Duration)>) -> PathBuf {
    let archive = scratch.path().join("flight.hrr");
    let mut command = workload.command();
    recorded(&mut command, &archive, Contents::Withheld);
    command.env("HIP_HRR_FLIGHT_RECORDER", SIZE);
    let Some((stop, settle)) = stop else {
        run(&mut command, LIMIT).expect_code(0);
        return archive;
    };
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the program starts");
    let mut lines = BufReader::new(child.stdout.take().expect("it was piped")).lines();
    let found = lines.by_ref().map_while(Result::ok).any(|line| line.contains(stop));
    let reader = std::thread::spawn(move || lines.map_while(Result::ok).count());
    std::thread::sleep(settle);
    child.kill().expect("it runs still");
    child.wait().expect("it was started here");
    reader.join().expect("counting lines does not panic");
    assert!(found, "the program never printed {stop:?}");
    archive
}

fn folder_bytes(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries.map(|entry| entry.unwrap().metadata().unwrap()).map(|file| file.len().max(file.blocks() * 512)).sum()
}

fn open(path: &Path) -> Archive {
    let archive = Archive::open(path).unwrap_or_else(|error| panic!("{error}"));
    let bytes = folder_bytes(&archive.path().join("events"));
    assert!(bytes <= SIZE_BYTES, "{bytes} bytes of stream files");
    assert_eq!(archive.manifest().flight_recorder_bytes, Some(SIZE_BYTES));
    assert!(!archive.path().join("blobs").exists());
    archive
}

fn info(archive: &Path) -> Finished {
    let info = Replay::of(archive).args(["--info"]).run().run;
    info.expect_code(0);
    info
}

#[test]
fn a_killed_process_leaves_its_last_calls_and_no_more_than_the_size() {
    let scratch = Scratch::new("flight");
    // Some thousand calls into a ring of 64 KiB, which has come round several times, and as many as there was time for into
    // another.
    let path = fly(&scratch, &Workload::new("forever", &["0", "2"]), Some(("thread 0 iteration 3000", Duration::ZERO)));
    let archive = open(&path);
    let mut full_rings = 0;
    for stream in archive.streams() {
        assert!(stream.check().is_ok(), "{:?}", stream.check());
        let records: Vec<_> = stream.records().filter(|record| record.api() < marker::FIRST).collect();
        full_rings += usize::from(stream.has_come_round() && records.len() > 200);
        assert!(records.windows(2).all(|pair| pair[0].end() < pair[1].begin()), "calls are in order");
        let open = records.iter().position(|record| record.in_flight());
        assert!(open.is_none_or(|position| position + 1 == records.len()), "only the last one can be in flight");
    }
    assert!(full_rings > 0, "no ring has come round");
    let info = info(&path);
    for expected in [
        "Ring         : a flight recorder: the last calls in at most 512.0 KiB",
        "last on stream 0x",
        "hipLaunchKernel[mix](",
        "Replayable   : no",
    ] {
        assert!(info.stdout.contains(expected), "{expected:?}\n{info}");
    }
    let replay = Replay::of(&path).run();
    replay.run.expect_code(1);
    assert!(replay.run.stderr.contains("a flight recorder keeps the last calls of each thread"), "{}", replay.run);
}

#[test]
fn a_hang_is_named_with_what_was_enqueued_last() {
    let scratch = Scratch::new("flight");
    let path = fly(&scratch, &Workload::new("hang", &[]), Some(("waiting", Duration::from_secs(1))));
    open(&path);
    let info = info(&path);
    for expected in ["inside 1 call", "hipDeviceSynchronize", "last on stream 0x", "spin_until"] {
        assert!(info.stdout.contains(expected), "{expected:?}\n{info}");
    }
}

#[test]
fn threads_that_end_make_room_for_others() {
    let scratch = Scratch::new("flight");
    let path = fly(&scratch, &Workload::listed("thread_churn"), None);
    let archive = open(&path);
    assert!(archive.manifest().complete);
    let threads: Vec<u32> = archive.streams().iter().map(|stream| stream.header().thread).collect();
    assert!((1..=8).contains(&threads.len()), "{threads:?}");
    assert!(threads.iter().max() > Some(&20), "the last threads are there: {threads:?}");
}

#[test]
fn what_a_flight_recorder_cannot_be_is_said() {
    let scratch = Scratch::new("flight");
    let archive = scratch.path().join("a.hrr");
    for (variables, expected) in [
        (&[("HIP_HRR_FLIGHT_RECORDER", "12"), ("X", "")][..], "is no size of at least 128K"),
        (&[("HIP_HRR_FLIGHT_RECORDER", SIZE), ("HIP_HRR_CAPTURE_CONTENT", "1")], "keeps no contents"),
        (&[("HIP_HRR_FLIGHT_RECORDER", SIZE), ("HIP_HRR_CAPTURE_WINDOW", "api")], "exclude each other"),
    ] {
        let mut command = Workload::listed("saxpy_reduce").command();
        recorded(&mut command, &archive, Contents::Withheld);
        let run = run(command.envs(variables.iter().copied()), LIMIT);
        run.expect_code(0);
        assert!(run.stderr.contains("[HRR capture] Capture disabled: ") && run.stderr.contains(expected), "{run}");
        assert!(!archive.exists());
    }
    assert!(built::capture_library().exists());
}
