//! The page on the archive format is enough to write a reader: the one written from it finds what `hrr-playback` finds.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use hrr_format::record::{SectionTag, flag, marker};
use hrr_tests::process::run;
use hrr_tests::recording::{Contents, Scratch, record};
use hrr_tests::workload::Workload;
use hrr_tests::{built, files};

#[test]
fn the_page_has_every_section_flag_and_marker() {
    let page = std::fs::read_to_string(built::repository().join("docs/archive-format.md")).unwrap();
    let rows: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next()).collect();
    let told = |tag: u8| rows.iter().any(|row| row.split(", ").any(|number| number.parse() == Ok(tag)));
    for tag in (1..=u8::MAX).filter(|&tag| SectionTag::from_u8(tag).is_some()) {
        assert!(told(tag), "section {tag}");
    }
    let flags = page.lines().find(|line| line.contains("| flags: ")).expect("a row of the flags");
    for bit in (0..8).map(|shift| 1u8 << shift).filter(|bit| flag::ALL & bit != 0) {
        assert!([" ", ", "].iter().any(|before| flags.contains(&format!("{before}{bit} "))), "flag {bit}");
    }
    for marker in [marker::PAD, marker::OBSERVED, marker::HOST_WROTE, marker::HOST_SAW] {
        assert!(page.contains(&format!("{marker:#x}")), "marker {marker:#x}");
    }
}

#[test]
fn a_reader_written_from_the_page_finds_every_call() {
    for (name, contents) in [("threads8", Contents::Recorded), ("graph_capture", Contents::Withheld)] {
        let recording = record(&Workload::listed(name), contents);
        let process = std::fs::read_dir(&recording.archive)
            .expect("the archive's root")
            .flatten()
            .map(|entry| entry.path())
            .find(|path| path.is_dir())
            .expect("the process's directory");
        let limit = Duration::from_secs(60);
        let script = built::repository().join("docs/read_archive.py");
        let read = |count: &[&str]| {
            let finished = run(Command::new("python3").arg(&script).arg(&process).args(count), limit);
            finished.expect_code(0);
            finished.stdout
        };
        let info = run(Command::new(built::playback()).args(["--info", "--json"]).arg(&recording.archive), limit);
        info.expect_code(0);
        let info: serde_json::Value = serde_json::from_str(&info.stdout).expect("JSON");
        let calls = info["events"].as_u64().expect("a number");
        assert_eq!(read(&["--count"]).trim(), calls.to_string(), "{name}");
        let listed = read(&[]);
        assert_eq!(listed.lines().count() as u64, calls);
        let launches = |name: &str| listed.lines().filter(|line| line.contains(&format!(" {name}("))).count() as u64;
        let of_info = |name: &str| {
            let rows = info["apis"].as_array().expect("rows");
            rows.iter().find(|row| row["name"] == name).map_or(0, |row| row["calls"].as_u64().unwrap_or(0))
        };
        for api in ["hipLaunchKernel", "hipMalloc", "hipStreamSynchronize"] {
            assert_eq!(launches(api), of_info(api), "{api} of {name}");
        }
    }
}

/// Formerly each of these was a traceback.
#[test]
fn the_reader_tells_wrong_input_in_a_line() {
    let scratch = Scratch::new("read-archive");
    let recording = record(&Workload::listed("saxpy_reduce"), Contents::Recorded);
    let process = files::below(&recording.archive)
        .into_iter()
        .find_map(|path| path.ends_with("events/0.evs").then(|| path.parent()?.parent().map(Path::to_owned))?)
        .expect("the process's directory");
    let text = scratch.path().join("text");
    std::fs::write(&text, "text").unwrap();
    let read = |arguments: &[&Path]| {
        let script = built::repository().join("docs/read_archive.py");
        run(Command::new("python3").arg(script).args(arguments), Duration::from_secs(60))
    };
    let expect = |path: &Path, wanted: &str| {
        let finished = read(&[path]);
        finished.expect_code(1);
        assert!(finished.stderr.lines().count() == 1 && finished.stderr.contains(wanted), "{wanted}\n{finished}");
    };
    expect(&scratch.path().join("nowhere"), "manifest.json: No such file or directory");
    expect(&text, "manifest.json: Not a directory");
    expect(scratch.path(), "manifest.json: No such file or directory");
    expect(&recording.archive, "is an archive's root; give one of the pid-* directories");
    let events = process.join("events/0.evs");
    let whole = std::fs::read(&events).unwrap();
    let with = |at: usize, bytes: &[u8]| {
        let mut changed = whole.clone();
        changed[at..][..bytes.len()].copy_from_slice(bytes);
        changed
    };
    for (bytes, wanted) in [
        (Vec::new(), "0.evs is no stream file of version 1"),
        (whole[..4000].to_vec(), "0.evs is no stream file of version 1"),
        (with(8, &[9]), "0.evs is no stream file of version 1"),
        (whole[..4096 + 40].to_vec(), "at byte 4096 is no record of "),
        (with(4096, &[33]), "at byte 4096 is no record of 33 bytes"),
        (with(4096 + 7, &[255]), "and 255 words"),
        (with(72, &[0, 16]), "a flight recorder's ring"),
    ] {
        std::fs::write(&events, bytes).unwrap();
        expect(&process, wanted);
    }
    std::fs::write(&events, with(4096 + 4, &[0, 0xf0])).unwrap();
    assert!(read(&[&process]).expect_code(0).stdout.contains("(unnamed API 61440)("));
    for manifest in ["", "{", "[]", "{\"apis\": [1], \"clock\": {}}", "{\"apis\": [], \"clock\": 7}"] {
        std::fs::write(process.join("manifest.json"), manifest).unwrap();
        expect(&process, "manifest.json is no manifest of a process: ");
    }
    for arguments in [&[][..], &[Path::new("--coutn")], &[&process, &process]] {
        let finished = read(arguments);
        assert!(finished.expect_code(1).stderr.starts_with("usage: read_archive.py "), "{finished}");
    }
}
