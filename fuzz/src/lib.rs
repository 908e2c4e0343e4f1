//! What the fuzz targets share: reading all of an archive that there is to read.

use std::path::Path;

use hrr_format::archive::{Archive, Damaged};
use hrr_format::record::{MAX_RECORD_BYTES, Record};

/// Reads all of a record.
pub fn read_record(record: &Record<'_>) {
    assert!(record.len_bytes() <= MAX_RECORD_BYTES);
    assert_eq!(record.words().count(), record.word_count());
    let mut payload_bytes = 0;
    for section in record.sections().flatten() {
        payload_bytes += section.payload.len();
        let _ = (section.blob(), section.host_address());
    }
    assert!(payload_bytes <= record.len_bytes());
}

/// Reads all of the archive at a path.
pub fn read_archive(path: &Path) {
    let Ok(archive) = Archive::open_with(path, Damaged::Tolerate) else { return };
    for stream in archive.streams() {
        for record in stream.records() {
            read_record(&record);
            let _ = (archive.row_of(&record), archive.kernels().of_launch(record.aux()));
        }
    }
    for store in [archive.blobs(), archive.code_objects()] {
        for entry in store.index().entries() {
            let _ = store.get(entry.number);
        }
    }
    let report = hrr_format::verify::verify_archive(&archive);
    assert!(report.faults.iter().all(|fault| !fault.contains('\0') || !fault.is_empty()));
}

/// A directory in memory where there is one, for targets that need files.
pub fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    tempfile::Builder::new().prefix("hrr-fuzz-").tempdir_in(parent).expect("there is room for temporary files")
}
