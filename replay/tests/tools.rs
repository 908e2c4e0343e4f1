//! `hrr-playback` as a user runs it on archives: `--verify`, `--repair`, `--pack`, `--unpack`, and the filters of `--info`.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use hrr_format::archive::{process_dir, stream_path};
use hrr_format::archive_writer::ArchiveWriter;
use hrr_format::catalogue::Api;
use hrr_format::record::{BlobRef, SectionTag};
use hrr_format::record_builder::RecordBuilder;
use hrr_format::stream_file::ContentsMode;

fn row(name: &str) -> &'static Api {
    Api::by_name(name).unwrap()
}

fn writer(root: &Path, pid: u64) -> ArchiveWriter {
    let mut writer = ArchiveWriter::create(&process_dir(root, pid), pid, ContentsMode::Contents).unwrap();
    writer.blob(0, b"contents").unwrap();
    let reference = BlobRef { number: 0, size_bytes: 8 };
    let records = [
        RecordBuilder::new(row("hipInit").id, &[0]).ticks(1, 2).build(),
        RecordBuilder::new(row("hipMemcpy").id, &[1, 2, 8, 1])
            .ticks(3, 4)
            .blob(SectionTag::BlobIn, 1, reference)
            .build(),
    ];
    writer.stream(0, pid, "main", &records).unwrap();
    writer
}

fn playback(arguments: &[&str]) -> (i32, String) {
    let Output { status, stdout, stderr } =
        Command::new(env!("CARGO_BIN_EXE_hrr-playback")).args(arguments).output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(!text.contains("panicked"), "{text}");
    (status.code().unwrap(), text)
}

#[track_caller]
fn expect(arguments: &[&str], code: i32, words: &[&str]) -> String {
    let (found, text) = playback(arguments);
    assert_eq!(found, code, "{arguments:?}: {text}");
    for word in words {
        assert!(text.contains(word), "{word:?} is not in {text}");
    }
    text
}

#[test]
fn a_root_is_verified_damaged_and_repaired() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_str().unwrap();
    writer(dir.path(), 7).finish().unwrap();
    writer(dir.path(), 8).finish().unwrap();
    expect(&["--verify", root], 0, &["pid-7: good", "pid-8: good", "[HRR] VERIFIED"]);

    let path = stream_path(&process_dir(dir.path(), 8), 0);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 3]).unwrap();
    expect(&["--verify", root], 1, &["pid-7: good", "pid-8: ", "fault", "0.evs", "[HRR] NOT VERIFIED"]);
    expect(&["--repair", root], 0, &["pid-7: clean", "pid-8: repaired: 0.evs is cut at byte", "kept in repair-0.evs-"]);
    expect(&["--repair", root], 0, &["pid-7: clean", "pid-8: clean", "manifest.json: clean"]);
    // Calls and tables are those of one process; nothing is left out in silence.
    expect(&[root, "--info"], 0, &["Processes    : 2"]);
    expect(&[root, "--info", "--events"], 1, &["holds 2 processes; choose one"]);
    expect(&[root, "--info", "--csv", "tables"], 1, &["holds 2 processes; choose one"]);
    expect(&["--verify", root], 0, &["[HRR] VERIFIED"]);
    let process = process_dir(dir.path(), 8);
    expect(&[process.to_str().unwrap(), "--info"], 0, &["Complete     : repaired", "Events       : 1 "]);
}

#[test]
fn a_packed_archive_is_inspected_in_place_and_unpacked() {
    let dir = tempfile::tempdir().unwrap();
    let (root, file, target) = (dir.path().join("a.hrr"), dir.path().join("a.hrrz"), dir.path().join("b.hrr"));
    let [root_text, file_text, target_text] = [&root, &file, &target].map(|path| path.to_str().unwrap());
    writer(&root, 7).finish().unwrap();
    expect(&["--pack", root_text, file_text], 0, &["Packed ", "a.hrrz"]);
    expect(&["--verify", file_text], 0, &["pid-7: good", "[HRR] VERIFIED"]);
    let info = expect(&[file_text, "--info", "--events"], 0, &["hipMemcpy(", "<blob 0, 8 bytes>"]);
    let of_directory = expect(&[root_text, "--info", "--events"], 0, &[]);
    let tail = |text: &str| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(tail(&info), tail(&of_directory));
    expect(&["--repair", file_text], 1, &["unpack it first with --unpack"]);
    expect(&["--unpack", file_text, target_text], 0, &["Unpacked "]);
    assert_eq!(
        fs::read(stream_path(&process_dir(&target, 7), 0)).unwrap(),
        fs::read(stream_path(&process_dir(&root, 7), 0)).unwrap()
    );
    expect(&["--unpack", file_text, target_text], 1, &["b.hrr exists; name a file or directory that does not"]);
    // Neither is what there is already overwritten, whatever it is.
    for there in [file_text, target_text] {
        expect(&["--pack", root_text, there], 1, &[there, " exists; name a file or directory that does not"]);
    }
    expect(&["--verify", file_text], 0, &["[HRR] VERIFIED"]);
    // A folder that is missing is made, for its owner; one that cannot be is told with what to do.
    let deep = dir.path().join("new/folder/a.hrrz");
    expect(&["--pack", root_text, deep.to_str().unwrap()], 0, &["Packed "]);
    let deeper = dir.path().join("other/folder/b.hrr");
    expect(&["--unpack", file_text, deeper.to_str().unwrap()], 0, &["Unpacked "]);
    for tool in [&["--pack", root_text][..], &["--unpack", file_text]] {
        let wanted =
            ["/dev/null/a.hrrz cannot be written: not a directory; a part of its path is a file: name one elsewhere"];
        expect(&[tool, &["/dev/null/a.hrrz"]].concat(), 1, &wanted);
    }
    // Formerly one that was cut short was called a file of some other kind.
    let cut = dir.path().join("cut.hrrz");
    let bytes = fs::read(&file).unwrap();
    for len in [0, 5, 40, bytes.len() - 1] {
        fs::write(&cut, &bytes[..len]).unwrap();
        let wanted = format!("cut.hrrz is a packed archive that is cut short: it ends at byte {len}, without");
        let cut_text = cut.to_str().unwrap();
        for arguments in [
            &[cut_text][..],
            &[cut_text, "--info"],
            &["--verify", cut_text],
            &["--unpack", cut_text, "none"],
            &["--pack", cut_text, "none"],
        ] {
            expect(arguments, 1, &[&wanted, "copy it again, whole"]);
        }
    }

    let mut bytes = fs::read(&file).unwrap();
    let end = bytes.len();
    bytes[end - 30] ^= 1;
    fs::write(&file, bytes).unwrap();
    expect(&["--verify", file_text], 1, &["its hash differs"]);
    expect(&[file_text, "--info"], 1, &["a.hrrz is damaged at byte"]);
}

#[test]
fn listings_are_filtered_and_tables_written() {
    let dir = tempfile::tempdir().unwrap();
    writer(dir.path(), 7).finish().unwrap();
    let root = dir.path().to_str().unwrap();
    let csv = dir.path().join("tables");
    let csv_text = csv.to_str().unwrap();
    let text = expect(&[root, "--info", "--events", "--api", "*Memcpy*", "--csv", csv_text], 0, &["hipMemcpy("]);
    assert!(!text.contains("hipInit("), "{text}");
    assert_eq!(fs::read_to_string(csv.join("7_hip_api_trace.csv")).unwrap().lines().count(), 2);
    let text = expect(&[root, "--info", "--events", "--range", "0..1"], 0, &["hipInit("]);
    assert!(!text.contains("hipMemcpy("), "{text}");
    let text = expect(&[root, "--info", "--events", "--thread", "5"], 0, &["none of them is of this thread"]);
    assert!(!text.contains("hipInit("), "{text}");
    expect(&[root, "--info", "--events", "--range", "x"], 1, &["no event number"]);
    expect(&[root, "--csv", csv_text], 1, &["--info"]);
    let manifest = dir.path().join("pid-7/manifest.json");
    let manifest = manifest.to_str().unwrap();
    expect(&[root, "--info", "--csv", manifest], 1, &[manifest, " cannot be written: ", "name one"]);
    // Told before the replay, which here would find no runtime.
    for option in ["--report", "--log-order"] {
        expect(
            &[root, option, root],
            1,
            &[root, " cannot be written: is a directory; it is a folder: name a file in it"],
        );
    }
    expect(&["--pack", root], 1, &["TARGET"]);
    expect(&[root, root], 1, &["TARGET '", "' does nothing without --pack or --unpack or --convert"]);
    expect(&["--pack", "--unpack", root, csv_text], 1, &["cannot be used with"]);
}
