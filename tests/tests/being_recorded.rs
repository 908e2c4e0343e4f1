//! An archive whose process still records to it: whatever looks at it says so, and does what it can.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hrr_tests::built;
use hrr_tests::process::{Finished, run, with_clean_environment};
use hrr_tests::recording::{Contents, Scratch, recorded};
use hrr_tests::workload::Workload;

const LIMIT: Duration = Duration::from_secs(60);

/// Ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Formerly only `check`, `--pack` and `--repair` told it from the archive of a process that was killed.
#[test]
fn it_is_said_that_the_process_still_records() {
    let scratch = Scratch::new("still");
    let archive = scratch.path().join("a.hrr");
    let mut command = Command::new(Workload::listed("forever").program());
    with_clean_environment(&mut command);
    command.args(["0", "2"]).env("LD_LIBRARY_PATH", built::libraries());
    recorded(&mut command, &archive, Contents::Recorded);
    // Nobody reads what it prints: once the pipe is full it makes no more calls, and lives.
    let running = Running(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let pid = running.0.id();
    let look = |program: &str, arguments: &[&str]| -> Finished {
        let mut command = Command::new(built::output(&format!("bin/{program}")));
        with_clean_environment(&mut command);
        command.args(arguments).arg(&archive).env("LD_LIBRARY_PATH", built::libraries());
        run(&mut command, LIMIT)
    };
    let began = Instant::now();
    let mut calls = 0;
    let info = loop {
        std::thread::sleep(Duration::from_millis(200));
        let info = look("hrr-playback", &["--info", "--json"]);
        let json: serde_json::Value = serde_json::from_str(&info.stdout).unwrap_or_default();
        let now = json["events"].as_u64().unwrap_or(0);
        if now > 300 && now == calls {
            break json;
        }
        calls = now;
        assert!(began.elapsed() < LIMIT, "it records: {info}");
    };
    assert_eq!((&info["being_recorded"], &info["complete"]), (&true.into(), &false.into()));
    let still = format!("process {pid} is still recording it");
    let text = look("hrr-playback", &["--info"]);
    assert!(text.expect_code(0).stdout.contains(&format!("Complete     : no: {still}")), "{text}");
    let check = look("hrr-capture", &["check"]);
    assert!(check.expect_code(1).stdout.contains(&still), "{check}");
    for arguments in [&["--verify"][..], &["--shape-only"], &["--range", "0..10"]] {
        let looked = look("hrr-playback", arguments);
        assert!(looked.output().contains(&format!("[HRR] warning: {still}: ")), "{looked}");
    }
    let shape = look("hrr-playback", &["--shape-only"]);
    shape.expect_code(0);
    drop(running);
    // Formerly and now: one that was killed.
    let text = look("hrr-playback", &["--info"]);
    assert!(!text.stdout.contains("still recording it") && text.stdout.contains("Complete     : no: "), "{text}");
    let shape = look("hrr-playback", &["--shape-only"]);
    assert!(!shape.expect_code(0).stderr.contains("still recording"), "{shape}");
}
