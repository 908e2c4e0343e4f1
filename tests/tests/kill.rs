//! A recorded program killed at a random moment: what had returned is in the archive, what was in flight is named.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use hrr_format::archive::Archive;
use hrr_format::record::marker;
use hrr_tests::process::{End, end_of, run};
use hrr_tests::recording::{Contents, Scratch, recorded};
use hrr_tests::workload::Workload;
use hrr_tests::{built, soak};

const THREADS: usize = 2;
/// Latest moment of a kill after the first iteration, long enough for thousands of calls and several segments.
const LATEST_MS: u64 = 250;

/// Starts `forever`, kills it, and returns how many calls of each thread had returned by the program's own count.
fn killed(archive: &Path, counters: &Path, delay: Duration) -> Vec<u64> {
    let counters_text = counters.to_str().expect("scratch paths are UTF-8");
    let workload = Workload::new("forever", &["0", &THREADS.to_string(), counters_text]);
    let mut command = workload.command();
    recorded(&mut command, archive, Contents::Recorded);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("forever starts");
    let mut lines = BufReader::new(child.stdout.take().expect("it was piped")).lines();
    let first = lines.next().expect("forever prints its first iteration").expect("and it can be read");
    assert!(first.starts_with("forever: thread"), "{first}");
    // Keeps the pipe from filling up until the kill closes it.
    let reader = std::thread::spawn(move || lines.map_while(Result::ok).count());
    std::thread::sleep(delay);
    child.kill().expect("it runs for ever");
    assert_eq!(end_of(child.wait().expect("it was started here")), End::Signal(libc::SIGKILL));
    reader.join().expect("counting lines does not panic");
    let bytes = std::fs::read(counters).expect("forever made its counter file");
    bytes.chunks_exact(8).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes"))).collect()
}

#[test]
fn a_killed_recording_holds_every_call_that_had_returned() {
    let mut in_flight_calls = 0;
    for index in 0..soak::kills() {
        let scratch = Scratch::new("kill");
        let archive_path = scratch.path().join("forever.hrr");
        let delay = Duration::from_micros(soak::seed("kill", index) % (LATEST_MS * 1000));
        let mut returned = killed(&archive_path, &scratch.path().join("counters"), delay);
        let context = format!("kill {index}, {} us after the first iteration", delay.as_micros());

        let archive = Archive::open(&archive_path).unwrap_or_else(|error| panic!("{context}: {error}"));
        assert!(!archive.manifest().complete, "{context}: a killed recording is not complete");
        let mut completed = Vec::new();
        let mut in_flight = Vec::new();
        let mut call_count = 0;
        for stream in archive.streams() {
            let mut records = stream.records();
            let calls: Vec<_> = records.by_ref().filter(|record| record.api() < marker::FIRST).collect();
            assert!(records.damage().is_none(), "{context}: {}: {:?}", stream.path().display(), records.damage());
            call_count += calls.len();
            let open: Vec<_> = calls.iter().enumerate().filter(|(_, record)| record.in_flight()).collect();
            for (position, record) in &open {
                assert_eq!(position + 1, calls.len(), "{context}: only the last call of a thread can be in flight");
                in_flight.push(archive.api(record.api()).name.to_owned());
            }
            // The program's own threads are told from its main thread by what they begin with.
            if calls.iter().any(|record| archive.api(record.api()).name == "hipStreamCreateWithFlags") {
                completed.push((calls.len() - open.len()) as u64);
            }
        }
        in_flight_calls += in_flight.len();
        // Which stream file is which thread's is not said; in order of counts they must match all the same. A call may
        // have returned without having been counted yet.
        returned.sort_unstable();
        completed.sort_unstable();
        assert_eq!(completed.len(), returned.len(), "{context}: one stream file per thread");
        for (completed, returned) in completed.iter().zip(&returned) {
            assert!(
                (*returned..=returned + 1).contains(completed),
                "{context}: {returned} calls had returned, {completed} are recorded as such"
            );
        }

        let look = |options: &[&str]| {
            let mut command = Command::new(built::playback());
            let info = run(command.args(options).arg(&archive_path), Duration::from_secs(60));
            info.expect_code(0);
            info
        };
        let info = look(&["--info"]);
        for name in &in_flight {
            let named = info.stdout.lines().any(|line| line.contains(name) && line.contains("in flight"));
            assert!(named, "{context}: {name} was in flight and is not named as such\n{info}");
        }
        let info = look(&["--info", "--json"]);
        let json: serde_json::Value =
            serde_json::from_str(&info.stdout).unwrap_or_else(|error| panic!("{error}\n{info}"));
        let threads = json["threads"].as_array().unwrap_or_else(|| panic!("no threads\n{info}"));
        let named: Vec<&str> = threads.iter().filter_map(|thread| thread["in_flight"]["api"].as_str()).collect();
        assert_eq!(named, in_flight, "{context}: calls in flight\n{info}");
        assert_eq!(json["complete"], false, "{context}\n{info}");
        assert_eq!(json["events"], call_count, "{context}: calls, returned or in flight\n{info}");
    }
    assert!(in_flight_calls > 0, "no kill met a call in flight: these tests show nothing about them");
}
