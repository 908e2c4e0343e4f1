//! Repair: what can be kept is kept, what cannot is put aside, and what is whole is left alone.

#[expect(unreachable_pub, reason = "elsewhere it is a module of a library")]
#[path = "../../tests/support/files.rs"]
mod files;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use hrr_format::archive::{Archive, process_dir, stream_path};
use hrr_format::archive_writer::ArchiveWriter;
use hrr_format::catalogue::Api;
use hrr_format::manifest::{ProcessManifest, RootManifest, StoredNumbers};
use hrr_format::record::{BlobRef, SectionTag};
use hrr_format::record_builder::RecordBuilder;
use hrr_format::repair::{Condition, Repaired, being_recorded, repair};
use hrr_format::stream_file::{ContentsMode, HEADER_BYTES};
use hrr_format::verify::{Report, verify};

fn malloc(begin: u64) -> Vec<u8> {
    RecordBuilder::new(Api::by_name("hipMalloc").unwrap().id, &[0xfff0, 16]).ticks(begin, begin + 1).build()
}

fn copy(begin: u64, number: u64) -> Vec<u8> {
    let api = Api::by_name("hipMemcpy").unwrap();
    let reference = BlobRef { number, size_bytes: 8 };
    RecordBuilder::new(api.id, &[0x1000, 0x2000, 8, 1])
        .ticks(begin, begin + 1)
        .blob(SectionTag::BlobIn, 1, reference)
        .build()
}

fn writer(root: &Path, pid: u64) -> ArchiveWriter {
    let mut writer = ArchiveWriter::create(&process_dir(root, pid), pid, ContentsMode::Contents).unwrap();
    writer.blob(0, b"contents").unwrap();
    writer.blob(1, b"more of ").unwrap();
    writer.stream(0, pid, "main", &[malloc(1), copy(3, 0), copy(5, 1)]).unwrap();
    writer.stream(1, pid + 1, "", &[malloc(2)]).unwrap();
    writer
}

fn whole(root: &Path, pid: u64) -> PathBuf {
    writer(root, pid).finish().unwrap();
    process_dir(root, pid)
}

/// Every file below a folder.
fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    files::below(dir).into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

fn side_files(process: &Path) -> Vec<(String, Vec<u8>)> {
    let is_side = |name: &str| name.starts_with("repair-");
    contents(process)
        .into_iter()
        .map(|(path, bytes)| (path.file_name().unwrap().to_str().unwrap().to_owned(), bytes))
        .filter(|(name, _)| is_side(name))
        .collect()
}

/// Repairs one process, which must be whole afterwards and stay as it is the next time.
fn repaired(process: &Path) -> Repaired {
    let done = repair(process).unwrap().remove(0);
    assert_eq!(done.condition, Condition::Repaired, "{done:?}");
    let after = contents(process);
    let again = repair(process).unwrap().remove(0);
    assert_eq!((again.condition, again.notes), (Condition::Clean, Vec::new()));
    assert_eq!(contents(process), after);
    let archive = Archive::open(process).unwrap();
    assert!(archive.warnings().is_empty(), "{:?}", archive.warnings());
    assert!(archive.manifest().complete);
    assert_eq!(archive.repaired().unwrap().repairs.len(), 1);
    assert_eq!(verified(process).faults, Vec::<String>::new());
    done
}

fn verified(path: &Path) -> Report {
    verify(path).unwrap().remove(0).1
}

fn calls(process: &Path) -> Vec<usize> {
    Archive::open(process).unwrap().streams().iter().map(|stream| stream.records().count()).collect()
}

/// A thread that is in a call when the process ends may return from it behind the count.
#[test]
fn calls_behind_the_count_are_no_fault_and_missing_ones_are() {
    let dir = tempfile::tempdir().unwrap();
    let process = whole(dir.path(), 7);
    let with_count = |count: u64| {
        let path = process.join("manifest.json");
        let mut manifest: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert!(manifest["event_count"].is_u64());
        manifest["event_count"] = count.into();
        fs::write(path, manifest.to_string()).unwrap();
        verified(&process).faults
    };
    assert_eq!(with_count(3), Vec::<String>::new());
    assert!(!with_count(5).is_empty());
}

#[test]
fn a_whole_archive_verifies_and_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let process = whole(dir.path(), 7);
    let before = contents(dir.path());
    let report = verified(&process);
    assert_eq!((report.streams, report.records, report.contents, report.content_bytes), (2, 4, 2, 16));
    assert_eq!(report.faults, Vec::<String>::new());
    assert_eq!(repair(&process).unwrap()[0].condition, Condition::Clean);
    assert_eq!(contents(dir.path()), before);
}

#[test]
fn a_killed_recording_is_closed_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let process = process_dir(dir.path(), 7);
    writer(dir.path(), 7).abandon().unwrap();
    // Unused segment space, with a record that was being written: its length is still zero.
    let path = stream_path(&process, 0);
    let mut bytes = fs::read(&path).unwrap();
    let end = bytes.len();
    bytes[48..56].fill(0);
    bytes.resize(1 << 16, 0);
    bytes[end + 8] = 77;
    fs::write(&path, bytes).unwrap();
    fs::write(stream_path(&process, 2), [0; 8192]).unwrap();
    assert_eq!(verified(&process).faults, Vec::<String>::new());

    let done = repaired(&process);
    assert!(done.notes[0].contains(&format!("0.evs is closed at byte {end}")), "{:?}", done.notes);
    let manifest = ProcessManifest::read(&process.join("manifest.json")).unwrap();
    assert_eq!((manifest.event_count, manifest.thread_count, manifest.blob_count), (4, 2, 2));
    assert_eq!(side_files(&process), [(format!("repair-0.evs-{end}.bin"), [&[0; 8][..], &[77]].concat())]);
    assert_eq!(fs::metadata(&path).unwrap().len(), end as u64);
    assert_eq!(calls(&process), [3, 1]);
    for path in contents(&process).keys().filter(|path| path.to_str().unwrap().contains("repair")) {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600, "{}", path.display());
    }
}

#[test]
fn every_cut_of_a_stream_keeps_the_calls_before_it() {
    let whole_dir = tempfile::tempdir().unwrap();
    let bytes = fs::read(stream_path(&whole(whole_dir.path(), 7), 0)).unwrap();
    let malloc_end = HEADER_BYTES + malloc(1).len();
    let copy_bytes = copy(3, 0).len();
    for cut in (HEADER_BYTES..bytes.len()).step_by(3) {
        let dir = tempfile::tempdir().unwrap();
        let process = whole(dir.path(), 7);
        fs::write(stream_path(&process, 0), &bytes[..cut]).unwrap();
        assert!(!verified(&process).faults.is_empty(), "cut at {cut}");
        repaired(&process);
        let expected = match cut {
            cut if cut < malloc_end => 0,
            cut => 1 + (cut - malloc_end) / copy_bytes,
        };
        assert_eq!(calls(&process), [expected, 1], "cut at {cut}");
    }
}

#[test]
fn damage_within_a_stream_cuts_it_and_keeps_the_rest_aside() {
    let dir = tempfile::tempdir().unwrap();
    let process = whole(dir.path(), 7);
    let path = stream_path(&process, 0);
    let mut bytes = fs::read(&path).unwrap();
    let at = HEADER_BYTES + malloc(1).len();
    bytes[at] = 9;
    fs::write(&path, &bytes).unwrap();
    assert!(verified(&process).faults[0].contains("0.evs, byte"), "{:?}", verified(&process).faults);
    let done = repaired(&process);
    assert!(done.notes[0].contains("0.evs is cut at byte 4144: a record says it is 9 bytes long"), "{:?}", done.notes);
    // Zeros at the end are what unused space holds.
    let end = bytes.iter().rposition(|&byte| byte != 0).unwrap() + 1;
    assert_eq!(side_files(&process), [(format!("repair-0.evs-{at}.bin"), bytes[at..end].to_vec())]);
    assert_eq!(calls(&process), [1, 1]);
}

#[test]
fn a_malformed_section_ends_a_stream_as_a_malformed_record_does() {
    let dir = tempfile::tempdir().unwrap();
    let process = whole(dir.path(), 7);
    let path = stream_path(&process, 0);
    let mut bytes = fs::read(&path).unwrap();
    let section = HEADER_BYTES + malloc(1).len() + 32 + 4 * 8;
    bytes[section] = 99;
    fs::write(&path, &bytes).unwrap();
    let faults = verified(&process).faults;
    assert!(faults.iter().any(|fault| fault.contains("its tag is unknown")), "{faults:?}");
    repaired(&process);
    assert_eq!(calls(&process), [1, 1]);
}

#[test]
fn an_index_is_made_anew_from_what_has_its_hash() {
    let dir = tempfile::tempdir().unwrap();
    let process = whole(dir.path(), 7);
    let (index, pack) = (process.join("blobs/index"), process.join("blobs/pack-0.bin"));
    let good = fs::read(&index).unwrap();
    // A header of zeros, a torn entry at the end, and contents that changed.
    let mut bytes = good.clone();
    bytes[..64].fill(0);
    bytes.extend([5; 20]);
    fs::write(&index, bytes).unwrap();
    let mut contents = fs::read(&pack).unwrap();
    contents[64] ^= 1;
    fs::write(&pack, contents).unwrap();
    let done = repaired(&process);
    assert!(done.notes[0].contains("blobs/index is made anew with 1 entries"), "{:?}", done.notes);
    assert_eq!(fs::read(&index).unwrap(), good[..128]);
    let side = [&[0; 64][..], &good[128..], &[5; 20]].concat();
    assert_eq!(side_files(&process), [("repair-blobs-index.bin".to_owned(), side)]);
    assert_eq!(Archive::open(&process).unwrap().blobs().get(0).unwrap().as_deref(), Some(&b"contents"[..]));
    assert_eq!(verified(&process).lost, 1);
}

#[test]
fn kernel_lines_and_manifests_are_made_readable() {
    let dir = tempfile::tempdir().unwrap();
    let process = whole(dir.path(), 7);
    let kernels = process.join("kernels.jsonl");
    fs::write(&kernels, "{\"kernel\":0,\"name\":\"k\"}\n{\"kernel\":1,\"na").unwrap();
    fs::write(process.join("manifest.json"), "{ torn").unwrap();
    repaired(&process);
    assert_eq!(fs::read_to_string(&kernels).unwrap(), "{\"kernel\":0,\"name\":\"k\"}\n");
    let manifest = ProcessManifest::read(&process.join("manifest.json")).unwrap();
    assert_eq!((manifest.pid, manifest.event_count, manifest.kernel_count), (7, 4, 1));
    assert_eq!(manifest.contents, ContentsMode::Contents);
    let side: Vec<_> = side_files(&process);
    assert_eq!(side[0], ("repair-kernels.jsonl.bin".to_owned(), b"{\"kernel\":1,\"na".to_vec()));
    assert_eq!(side[1], ("repair-manifest.json.bin".to_owned(), b"{ torn".to_vec()));
}

#[test]
fn a_root_is_repaired_with_all_its_processes() {
    let dir = tempfile::tempdir().unwrap();
    whole(dir.path(), 7);
    writer(dir.path(), 8).abandon().unwrap();
    let done = repair(dir.path()).unwrap();
    let conditions: Vec<_> = done.iter().map(|process| (process.name.as_str(), process.condition)).collect();
    assert_eq!(
        conditions,
        [("pid-7", Condition::Clean), ("pid-8", Condition::Repaired), ("manifest.json", Condition::Repaired)]
    );
    let root = RootManifest::read(&dir.path().join("manifest.json")).unwrap();
    assert_eq!(
        root.processes.iter().map(|process| (process.pid, process.complete)).collect::<Vec<_>>(),
        [(7, true), (8, true)]
    );
    assert!(repair(dir.path()).unwrap().iter().all(|process| process.condition == Condition::Clean));
}

#[test]
fn what_this_build_does_not_know_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let process = whole(dir.path(), 7);
    let path = stream_path(&process, 1);
    let mut bytes = fs::read(&path).unwrap();
    bytes[8] = 9;
    fs::write(&path, bytes).unwrap();
    let before = contents(&process);
    let done = repair(&process).unwrap().remove(0);
    assert_eq!(done.condition, Condition::Damaged);
    assert!(done.notes[0].contains("format version 9"), "{:?}", done.notes);
    assert_eq!(contents(&process), before);
}

#[test]
fn an_archive_that_is_being_recorded_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let pid = u64::from(std::process::id());
    let process = process_dir(dir.path(), pid);
    writer(dir.path(), pid).abandon().unwrap();
    // The files are mapped by the process that the archive is of: this one.
    let open = Archive::open(&process).unwrap();
    let done = repair(&process).unwrap().remove(0);
    assert_eq!(done.condition, Condition::Damaged);
    assert!(done.notes[0].contains("still recording"), "{:?}", done.notes);
    drop(open);
    assert_eq!(repair(&process).unwrap()[0].condition, Condition::Repaired);
}

/// Formerly the list of processes was written anew while one of them recorded, which does so itself at its end.
#[test]
fn a_root_that_is_being_recorded_to_keeps_its_list() {
    let dir = tempfile::tempdir().unwrap();
    let pid = u64::from(std::process::id());
    let process = process_dir(dir.path(), pid);
    writer(dir.path(), pid).abandon().unwrap();
    let open = Archive::open(&process).unwrap();
    let before = contents(dir.path());
    assert_eq!(repair(dir.path()).unwrap().len(), 1);
    assert_eq!(contents(dir.path()), before);
    assert_eq!((being_recorded(dir.path()), being_recorded(&process)), (vec![pid], vec![pid]));
    drop(open);
    assert!(being_recorded(dir.path()).is_empty());
    assert_eq!(repair(dir.path()).unwrap().len(), 2);
}

/// Formerly such an archive counted as clean, and its replay was refused.
#[test]
fn an_index_that_is_gone_from_a_whole_recording_cannot_be_repaired() {
    for emptied in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let process = whole(dir.path(), 7);
        let manifest = ProcessManifest::read(&process.join("manifest.json")).unwrap();
        let stored = Some(StoredNumbers { blobs: 2, code_objects: 0 });
        ProcessManifest { stored, ..manifest }.write(&process.join("manifest.json")).unwrap();
        if emptied {
            fs::write(process.join("blobs/index"), "").unwrap();
        } else {
            fs::remove_dir_all(process.join("blobs")).unwrap();
        }
        let done = repair(&process).unwrap().remove(0);
        assert_eq!(done.condition, Condition::Damaged, "{done:?}");
        assert!(done.notes[0].contains("2 contents were stored"), "{done:?}");
    }
}

#[test]
fn what_cannot_be_right_is_a_fault() {
    let dir = tempfile::tempdir().unwrap();
    let process = process_dir(dir.path(), 7);
    let mut writer = ArchiveWriter::create(&process, 7, ContentsMode::Contents).unwrap();
    writer.blob(0, b"short").unwrap();
    let backwards = RecordBuilder::new(Api::by_name("hipInit").unwrap().id, &[0]).ticks(9, 3).build();
    let other_words = RecordBuilder::new(Api::by_name("hipInit").unwrap().id, &[]).ticks(1, 2).build();
    let no_name = RecordBuilder::new(0x7777, &[]).ticks(1, 2).build();
    let launch = RecordBuilder::new(Api::by_name("hipDeviceSynchronize").unwrap().id, &[]).aux(4).ticks(1, 2).build();
    writer.stream(0, 7, "", &[copy(1, 0), copy(1, 5), backwards, other_words, no_name, launch]).unwrap();
    writer.finish().unwrap();
    let faults = verified(&process).faults.join("\n");
    for expected in [
        "blob 0 is 5 bytes long where 8 were recorded",
        "blob 5 is not in the index",
        "returns at tick 3 and is entered at 9",
        "hipInit has 0 argument words",
        "API 30583 has no name",
        "launches kernel 3, which is not listed",
    ] {
        assert!(faults.contains(expected), "{expected:?} is not in {faults}");
    }
}
