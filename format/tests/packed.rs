//! An archive in one file: as good as the directory, and refused when it is not what it was.

#[expect(unreachable_pub, reason = "elsewhere it is a module of a library")]
#[path = "../../tests/support/files.rs"]
mod files;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use hrr_format::archive::{Archive, ArchiveError, ArchiveRoot, process_dir, stream_path};
use hrr_format::archive_writer::ArchiveWriter;
use hrr_format::packed::{PackedFile, pack, unpack};
use hrr_format::record_builder::RecordBuilder;
use hrr_format::stream_file::ContentsMode;

/// Bytes that do not compress.
fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}

fn contents() -> Vec<Vec<u8>> {
    vec![
        b"abc".to_vec(),
        vec![7; 300_000],
        noise(200_000, 3),
        noise(6 << 20, 5),
        Vec::new(),
        (0u32..2_000_000).flat_map(|value| (value / 7).to_le_bytes()).collect(),
        b"the last".to_vec(),
    ]
}

/// A root with the archives of these processes.
fn root(pids: &[u64]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for &pid in pids {
        let process = process_dir(dir.path(), pid);
        let mut writer = ArchiveWriter::create(&process, pid, ContentsMode::Contents).unwrap();
        for (number, contents) in contents().iter().enumerate() {
            writer.blob(number as u64, contents).unwrap();
        }
        writer.code_object(0, b"code").unwrap();
        let records: Vec<_> =
            (0..1000).map(|tick| RecordBuilder::new(5, &[tick]).ticks(tick, tick + 1).build()).collect();
        writer.stream(0, pid, "main", &records).unwrap();
        writer.stream(1, pid + 1, "other", &records[..3]).unwrap();
        writer.finish().unwrap();
        // Unused segment space.
        let path = stream_path(&process, 0);
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_len(9 << 20).unwrap();
    }
    dir
}

/// Every file below a folder, by its path in there.
fn folder(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let name = |path: &PathBuf| path.strip_prefix(dir).unwrap().to_owned();
    files::below(dir).into_iter().map(|path| (name(&path), fs::read(path).unwrap())).collect()
}

#[test]
fn a_packed_archive_reads_as_its_directory_does() {
    let dir = root(&[41]);
    let file = dir.path().join("one.hrrz");
    let packed = pack(&dir.path().join("pid-41"), &file).unwrap();
    assert_eq!(packed.packed_bytes, fs::metadata(&file).unwrap().len());
    assert_eq!(packed.left_out, 0);
    assert!(packed.packed_bytes < packed.file_bytes / 2, "{packed:?}");

    for path in [file.clone(), file.join("pid-41")] {
        let archive = Archive::open(&path).unwrap();
        assert!(archive.warnings().is_empty(), "{:?}", archive.warnings());
        assert_eq!(archive.path(), file.join("pid-41"));
        assert_eq!(archive.streams().iter().map(|stream| stream.records().count()).collect::<Vec<_>>(), [1000, 3]);
        for (number, contents) in contents().iter().enumerate() {
            let found = archive.blobs().get(number as u64).unwrap().unwrap();
            assert!(*found == **contents, "blob {number}");
        }
        // What does not compress is borrowed from the file, what does is unpacked.
        let borrowed = |number| matches!(archive.blobs().get(number), Ok(Some(std::borrow::Cow::Borrowed(_))));
        assert!(borrowed(2) && borrowed(3) && !borrowed(1) && !borrowed(5));
        assert_eq!(archive.code_objects().get(0).unwrap().as_deref(), Some(&b"code"[..]));
    }
}

#[test]
fn unpacking_gives_back_every_byte() {
    let dir = root(&[5, 41, 300]);
    fs::write(dir.path().join("manifest.json"), r#"{"version":1,"owner_pid":5}"#).unwrap();
    let out = tempfile::tempdir().unwrap();
    let (file, target) = (out.path().join("all.hrrz"), out.path().join("all.hrr"));
    pack(dir.path(), &file).unwrap();
    let unpacked = unpack(&file, &target).unwrap();
    assert_eq!(folder(&target), folder(dir.path()));
    assert_eq!(unpacked.files as usize, folder(dir.path()).len());
    // A second time there is something in the way.
    assert!(unpack(&file, &target).is_err());
    let listed = ArchiveRoot::open(&file).unwrap();
    assert_eq!(listed.processes.iter().map(|process| process.pid).collect::<Vec<_>>(), [5, 41, 300]);
    assert_eq!(listed.manifest.unwrap().owner_pid, 5);
    assert!(matches!(Archive::open(&file), Err(ArchiveError::Several { .. })));
    assert!(Archive::open(&file.join("pid-300")).is_ok());
    assert!(matches!(Archive::open(&file.join("pid-301")), Err(ArchiveError::Missing { .. })));
}

#[test]
fn what_cannot_be_packed_is_refused_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.hrrz");
    assert!(matches!(pack(&dir.path().join("nowhere"), &file), Err(ArchiveError::Missing { .. })));
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    assert!(matches!(pack(&empty, &file), Err(ArchiveError::Empty { .. })));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    fs::write(&file, "text").unwrap();
    assert!(matches!(Archive::open(&file), Err(ArchiveError::NotADirectory { .. })));
    assert!(PackedFile::open(&file).unwrap_err().to_string().contains("is not a packed archive"));
}

#[test]
fn a_symbolic_link_is_left_out() {
    let dir = root(&[41]);
    std::os::unix::fs::symlink("/etc/passwd", dir.path().join("pid-41/link")).unwrap();
    let packed = pack(dir.path(), &dir.path().with_extension("hrrz")).unwrap();
    assert_eq!(packed.left_out, 1);
    fs::remove_file(dir.path().with_extension("hrrz")).unwrap();
}

/// Everything in a packed archive, if all of it is readable.
fn read_all(path: &Path) -> Option<Vec<Vec<u8>>> {
    let archive = Archive::open(path).ok()?;
    let mut found = vec![format!("{:?} {:?}", archive.manifest(), archive.warnings()).into_bytes()];
    found.extend(archive.streams().iter().flat_map(|stream| stream.records()).map(|record| record.bytes().to_vec()));
    for entry in archive.blobs().index().entries() {
        found.push(archive.blobs().get(entry.number).ok()??.into_owned());
    }
    Some(found)
}

#[test]
fn wrong_bytes_and_cuts_are_noticed_or_mean_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let process = process_dir(dir.path(), 7);
    let mut writer = ArchiveWriter::create(&process, 7, ContentsMode::Contents).unwrap();
    writer.blob(0, b"abc").unwrap();
    writer.blob(1, &[7; 100]).unwrap();
    writer.blob(2, &noise(500, 1)).unwrap();
    let records: Vec<_> = (0..6).map(|tick| RecordBuilder::new(5, &[tick]).ticks(tick, tick + 1).build()).collect();
    writer.stream(0, 7, "main", &records).unwrap();
    writer.finish().unwrap();
    let file = dir.path().with_extension("hrrz");
    pack(dir.path(), &file).unwrap();
    let whole = fs::read(&file).unwrap();
    let expected = read_all(&file).unwrap();
    assert_eq!(expected.len(), 1 + 6 + 3);
    let mut noticed = 0;
    for at in (0..whole.len()).step_by(5) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        fs::write(&file, &bytes).unwrap();
        match read_all(&file) {
            // Unused bits of the header, of alignment and of zstd's frames.
            Some(found) => assert!(found == expected, "byte {at}"),
            None => noticed += 1,
        }
    }
    assert!(noticed > whole.len() / 5 - 40, "{noticed} of {} wrong bytes", whole.len());
    // Formerly a short one was taken for some other file.
    for cut in (0..whole.len()).step_by(7) {
        fs::write(&file, &whole[..cut]).unwrap();
        let said = Archive::open(&file).unwrap_err().to_string();
        let wanted = format!("{} is a packed archive that is cut short: it ends at byte {cut}, ", file.display());
        assert!(said.starts_with(&wanted) && said.contains("copy it again, whole"), "cut at {cut}: {said}");
        assert_eq!(unpack(&file, &dir.path().join("target")).unwrap_err().to_string(), said);
    }
    fs::remove_file(&file).unwrap();
}
