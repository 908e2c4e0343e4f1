//! Archives as they are found: whole, damaged, in company, or not there at all.

use std::fs;
use std::path::{Path, PathBuf};

use hrr_format::archive::{Archive, ArchiveError, ArchiveRoot, Damaged, Warning, process_dir, stream_path};
use hrr_format::archive_writer::ArchiveWriter;
use hrr_format::catalogue::Api;
use hrr_format::manifest::{self, ProcessManifest};
use hrr_format::record::flag;
use hrr_format::record_builder::RecordBuilder;
use hrr_format::stream_file::{ContentsMode, HEADER_BYTES};

fn malloc(begin: u64) -> Vec<u8> {
    let api = Api::by_name("hipMalloc").unwrap();
    RecordBuilder::new(api.id, &[0xfff0, 16]).ticks(begin, begin + 1).build()
}

/// A root with the archives of these processes, each of two threads.
fn root(pids: &[u64]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    for &pid in pids {
        let mut writer = ArchiveWriter::create(&process_dir(dir.path(), pid), pid, ContentsMode::Contents).unwrap();
        writer.blob(0, b"contents").unwrap();
        writer.stream(0, pid, "main", &[malloc(1), malloc(3)]).unwrap();
        writer.stream(1, pid + 1, "", &[malloc(2)]).unwrap();
        writer.finish().unwrap();
    }
    let path = dir.path().to_owned();
    (dir, path)
}

/// The message of an archive that must not open: one line that names the path.
fn refusal(path: &Path) -> String {
    let message = Archive::open(path).unwrap_err().to_string();
    assert!(!message.contains('\n'), "{message}");
    message
}

fn assert_refused(path: &Path, expected: &[&str]) {
    let message = refusal(path);
    for part in expected {
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
}

#[test]
fn a_root_with_one_process_stands_for_it() {
    let (_dir, root) = root(&[41]);
    let by_root = Archive::open(&root).unwrap();
    let by_process = Archive::open(&root.join("pid-41")).unwrap();
    assert_eq!(by_root.path(), by_process.path());
    assert_eq!(by_root.streams().len(), 2);
}

#[test]
fn a_root_with_several_processes_asks_and_lists_them_in_order() {
    let (_dir, root) = root(&[300, 41, 5]);
    assert_refused(
        &root,
        &["holds 3 processes; choose one, or replay them with --all-processes: ", "pid-5, ", "pid-41, ", "pid-300"],
    );
    let listed = ArchiveRoot::open(&root).unwrap();
    assert_eq!(listed.processes.iter().map(|process| process.pid).collect::<Vec<_>>(), [5, 41, 300]);
    assert!(listed.processes.iter().all(|process| process.manifest.as_ref().unwrap().event_count == 3));
    assert!(Archive::open(&root.join("pid-41")).is_ok());
}

#[test]
fn a_long_list_of_processes_stays_on_one_line() {
    let (_dir, root) = root(&(1..=20).collect::<Vec<_>>());
    assert_refused(&root, &["holds 20 processes", "pid-8 and 12 more"]);
}

#[test]
fn what_is_no_archive_is_refused_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    assert_refused(&dir.path().join("nowhere"), &["nowhere: no such archive", "HIP_HRR_CAPTURE_OUTPUT"]);
    assert_refused(dir.path(), &["holds no archive", "hrr-capture"]);
    let file = dir.path().join("file");
    fs::write(&file, "x").unwrap();
    assert_refused(&file, &["file is not a directory"]);
    // The manifest of a root that no process has written to.
    fs::write(dir.path().join(manifest::FILE), r#"{"version":1}"#).unwrap();
    assert_refused(dir.path(), &["holds no archive"]);
    assert!(matches!(ArchiveRoot::open(dir.path()), Err(ArchiveError::Empty { .. })));
}

#[test]
fn an_archive_of_the_in_tree_recorder_is_told_as_such() {
    let dir = tempfile::tempdir().unwrap();
    let process = dir.path().join("pid-9");
    fs::create_dir(&process).unwrap();
    fs::write(process.join("events.bin"), b"EHRR").unwrap();
    assert_refused(dir.path(), &["pid-9", "in-tree HRR"]);
}

#[test]
fn a_missing_or_foreign_manifest_is_named() {
    let (_dir, root) = root(&[41]);
    let path = root.join("pid-41").join(manifest::FILE);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("\"version\": 1", "\"version\": 7")).unwrap();
    assert_refused(&root, &["manifest.json is of version 7"]);
    fs::write(&path, &text[..text.len() / 2]).unwrap();
    assert_refused(&root, &["manifest.json is not a manifest: EOF"]);
    fs::remove_file(&path).unwrap();
    assert_refused(&root, &["manifest.json cannot be read"]);
}

#[test]
fn damaged_stream_files_are_refused_by_default_and_left_out_on_request() {
    let (_dir, root) = root(&[41]);
    let path = stream_path(&root.join("pid-41"), 0);
    let bytes = fs::read(&path).unwrap();

    fs::write(&path, [b"JUNKJUNK", &bytes[8..]].concat()).unwrap();
    assert_refused(&root, &["0.evs is not a readable stream file", "first bytes", "copy it again"]);
    let tolerated = Archive::open_with(&root, Damaged::Tolerate).unwrap();
    assert_eq!(tolerated.streams().len(), 1);
    assert!(matches!(tolerated.warnings(), [Warning::Part(ArchiveError::Stream { .. })]));

    fs::write(&path, &bytes[..100]).unwrap();
    assert_refused(&root, &["0.evs", "100 bytes long"]);

    fs::write(&path, &bytes[..HEADER_BYTES + 60]).unwrap();
    assert_refused(&root, &["0.evs is cut short: 4156 of 4192 bytes are there"]);
    let tolerated = Archive::open_with(&root, Damaged::Tolerate).unwrap();
    let mut records = tolerated.streams()[0].records();
    assert_eq!(records.by_ref().count(), 1);
    let damage = records.damage().unwrap().clone();
    let error = ArchiveError::Record { path: path.clone(), damage }.to_string();
    assert!(error.contains("0.evs is damaged at byte 4144: a record of 48 bytes is cut off after 12"), "{error}");

    fs::remove_file(&path).unwrap();
    assert_refused(&root, &["events holds 1 stream files and its manifest counts 2 threads"]);
}

#[test]
fn a_killed_capture_opens_with_what_it_had() {
    let dir = tempfile::tempdir().unwrap();
    let process = process_dir(dir.path(), 7);
    let mut writer = ArchiveWriter::create(&process, 7, ContentsMode::MetadataOnly).unwrap();
    let hung = RecordBuilder::new(3, &[]).ticks(9, 0).in_flight().build();
    writer.stream(0, 7, "main", &[malloc(1), hung]).unwrap();
    writer.abandon().unwrap();
    // A kill can come between the making of a stream file and the writing of its header.
    fs::write(stream_path(&process, 1), b"").unwrap();
    fs::write(stream_path(&process, 2), [0; 8192]).unwrap();
    // Unused segment space behind the last record.
    let path = stream_path(&process, 0);
    let mut bytes = fs::read(&path).unwrap();
    bytes[48..56].fill(0);
    bytes.resize(1 << 16, 0);
    fs::write(&path, bytes).unwrap();

    let archive = Archive::open(dir.path()).unwrap();
    assert!(!archive.manifest().complete);
    assert_eq!(archive.contents(), ContentsMode::MetadataOnly);
    assert!(matches!(archive.warnings(), [Warning::Unstarted { .. }, Warning::Unstarted { .. }]));
    let records: Vec<_> = archive.streams()[0].records().collect();
    assert_eq!(records.iter().map(|record| record.flags() & flag::IN_FLIGHT).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn a_torn_index_and_a_torn_kernel_line_are_warnings() {
    let (_dir, root) = root(&[41]);
    let index = root.join("pid-41/blobs/index");
    let mut bytes = fs::read(&index).unwrap();
    bytes.extend([1; 20]);
    fs::write(&index, bytes).unwrap();
    fs::write(root.join("pid-41/kernels.jsonl"), "{\"kernel\":0,\"name\":\"k\"}\n{\"kernel\":1,\"na").unwrap();
    let archive = Archive::open(&root).unwrap();
    assert_eq!(archive.blobs().get(0).unwrap().as_deref(), Some(&b"contents"[..]));
    assert_eq!(archive.kernels().kernels().len(), 1);
    let warnings: Vec<String> = archive.warnings().iter().map(ToString::to_string).collect();
    assert!(warnings[0].contains("blobs/index: its last entry, at byte 128, is cut off"), "{warnings:?}");
    assert!(warnings[1].contains("kernels.jsonl: line 2 was ignored"), "{warnings:?}");
}

#[test]
fn files_of_another_capture_are_noticed() {
    let (_dir, root) = root(&[41]);
    let process = root.join("pid-41");
    let path = process.join(manifest::FILE);
    let manifest = ProcessManifest::read(&path).unwrap();
    ProcessManifest { contents: ContentsMode::MetadataOnly, pid: 40, ..manifest }.write(&path).unwrap();
    fs::copy(stream_path(&process, 1), stream_path(&process, 2)).unwrap();
    let archive = Archive::open(&root).unwrap();
    let warnings: Vec<String> = archive.warnings().iter().map(ToString::to_string).collect();
    assert!(warnings.iter().any(|warning| warning.contains("its process id differs")), "{warnings:?}");
    assert!(warnings.iter().any(|warning| warning.contains("its contents mode differs")), "{warnings:?}");
    assert!(warnings.iter().any(|warning| warning.contains("2.evs says that it is of thread 1")), "{warnings:?}");
}

#[test]
fn apis_are_matched_by_name_and_not_by_number() {
    let (_dir, root) = root(&[41]);
    let path = root.join("pid-41").join(manifest::FILE);
    let manifest = ProcessManifest::read(&path).unwrap();
    let apis = vec!["hipFromTheFuture".to_owned(), "hipFree".to_owned()];
    ProcessManifest { apis, ..manifest }.write(&path).unwrap();
    let archive = Archive::open(&root).unwrap();
    assert_eq!((archive.api(0).name, archive.api(0).known.map(|api| api.name)), ("hipFromTheFuture", None));
    assert_eq!(archive.api(1).known.map(|api| api.name), Some("hipFree"));
    assert_eq!(archive.api(2).name, "(unnamed API)");
    // A record with another number of argument words than this build's row is not read by that row.
    let one = RecordBuilder::new(1, &[0x1000]).build();
    let two = RecordBuilder::new(1, &[0x1000, 1]).build();
    let row = |bytes: &[u8]| {
        let record = hrr_format::record::Record::parse(bytes).unwrap().unwrap();
        archive.row_of(&record).map(|api| api.name)
    };
    assert_eq!((row(&one), row(&two)), (Some("hipFree"), None));
}
