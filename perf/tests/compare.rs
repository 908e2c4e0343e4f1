//! `hrr-perf compare` as a user runs it.

use std::path::PathBuf;
use std::process::{Command, Output};

use hrr_perf::report::{RunReport, SCHEMA_VERSION};

fn written(folder: &tempfile::TempDir, name: &str, repetitions: &[u64]) -> PathBuf {
    let path = folder.path().join(name);
    let report =
        RunReport { schema_version: SCHEMA_VERSION, repetitions: repetitions.to_vec(), ..RunReport::default() };
    report.write(&path).unwrap();
    path
}

fn compare(arguments: &[&std::ffi::OsStr]) -> Output {
    assert_cmd::Command::new(env!("CARGO_BIN_EXE_hrr-perf")).arg("compare").args(arguments).output().unwrap()
}

#[test]
fn the_limit_decides_the_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let before = written(&folder, "before.json", &[1_000_000, 1_001_000, 999_000, 1_002_000, 998_000]);
    let after = written(&folder, "after.json", &[1_060_000, 1_061_000, 1_059_000, 1_062_000, 1_058_000]);
    let (before, after) = (before.as_os_str(), after.as_os_str());
    let run = |limit: &str| compare(&[before, after, "--fail-above".as_ref(), limit.as_ref()]);
    let failed = run("3%");
    assert_eq!(failed.status.code(), Some(1));
    assert_eq!(String::from_utf8(failed.stderr).unwrap(), "hrr-perf: slower by more than 3 %\n");
    let text = String::from_utf8(failed.stdout).unwrap();
    assert!(text.contains("+6.00 %") && text.contains("B is 6.0 % slower"), "{text}");
    assert_eq!(run("10%").status.code(), Some(0));
    assert_eq!(run("ten").status.code(), Some(2));
    assert_eq!(compare(&[before, after]).status.code(), Some(0));
}

#[test]
fn json_holds_the_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let before = written(&folder, "before.json", &[10, 11, 12, 13]);
    let output = compare(&[before.as_os_str(), before.as_os_str(), "--json".as_ref()]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["verdict"], "no-difference");
    assert_eq!(json["baseline"]["median_ns"], 11.5);
    assert_eq!(json["change"], 0.0);
}

#[test]
fn a_report_that_cannot_be_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let good = written(&folder, "good.json", &[1]);
    let output = compare(&[good.as_os_str(), "/nonexistent/report.json".as_ref()]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.starts_with("hrr-perf: /nonexistent/report.json cannot be read: ")
            && text.contains("; give a file that")
            && text.lines().count() == 1,
        "{text}"
    );
}

#[test]
fn other_json_is_no_report() {
    let folder = tempfile::tempdir().unwrap();
    let good = written(&folder, "good.json", &[1]);
    for text in ["[]", "{}", r#"{"pid": 7, "complete": true}"#] {
        let other = folder.path().join("other.json");
        std::fs::write(&other, text).unwrap();
        let output = compare(&[good.as_os_str(), other.as_os_str()]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("other.json: not a run report: it has no schema_version; "), "{said}");
        assert_eq!(output.status.code(), Some(2));
    }
    let newer = folder.path().join("newer.json");
    std::fs::write(&newer, r#"{"schema_version": 99}"#).unwrap();
    let said = String::from_utf8(compare(&[newer.as_os_str(), good.as_os_str()]).stderr).unwrap();
    assert!(said.contains("newer.json: report layout 99, this version reads 1 to "), "{said}");
}

#[test]
fn a_place_where_no_page_can_be_written_is_told_before_anything_else() {
    let folder = tempfile::tempdir().unwrap();
    let good = written(&folder, "good.json", &[10, 11, 12, 13]);
    let output = compare(&[good.as_os_str(), good.as_os_str(), "--html".as_ref(), "/dev/null/page.html".as_ref()]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.starts_with("hrr-perf: /dev/null/page.html cannot be written: not a directory; ")
            && output.stdout.is_empty(),
        "{said}"
    );
    assert_eq!(output.status.code(), Some(2));
}

/// Formerly what the parser refuses took several lines, and a failed page of the manual was told by the exit code alone.
#[test]
fn what_is_wrong_with_the_options_is_one_line() {
    let said = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_hrr-perf")).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    for (arguments, wanted) in [
        (&[][..], "hrr-perf: give a command: compare, or run; see hrr-perf --help\n"),
        (
            &["compre"],
            "hrr-perf: unrecognized subcommand 'compre'; a similar subcommand exists: 'compare'; see hrr-perf --help\n",
        ),
        (
            &["compare", "a.json"],
            "hrr-perf: the following required arguments were not provided: <CANDIDATE>; usage: hrr-perf compare <BASELINE> \
             <CANDIDATE>; see hrr-perf --help\n",
        ),
    ] {
        assert_eq!(said(arguments), wanted);
    }
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output =
        Command::new(env!("CARGO_BIN_EXE_hrr-perf")).args(["--generate", "man"]).stdout(full).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        said.starts_with("hrr-perf: the output cannot be written: No space left") && said.lines().count() == 1,
        "{said}"
    );
}
