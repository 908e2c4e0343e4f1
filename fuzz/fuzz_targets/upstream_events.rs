//! Archives of AMD's in-tree HRR: event files, launches, and the translation of the whole.
#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use hrr_format::archive::Archive;
use hrr_format::upstream::events::{Events, FileHeader};
use hrr_format::upstream::launch::{Kernel, Launch};
use hrr_format::upstream::{UpstreamArchive, describe};
use libfuzzer_sys::fuzz_target;

/// One process directory, filled anew each time.
fn process() -> &'static PathBuf {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let path = tempfile::tempdir().expect("a temporary directory").keep().join("pid-1");
        fs::create_dir_all(&path).expect("the temporary directory is writable");
        path
    })
}

fuzz_target!(|data: &[u8]| {
    let _ = Launch::parse(data);
    let _ = Kernel::parse_node(data);
    let Ok(header) = FileHeader::parse(data) else { return };
    let mut events = Events::new(data, header.version);
    let read: usize = events.by_ref().map(|event| event.bytes.len()).sum();
    assert!(read <= data.len());
    fs::write(process().join("events.bin"), data).expect("the temporary directory is writable");
    let _ = describe(process());
    if UpstreamArchive::open(process()).is_err() {
        return;
    }
    // What is translated must be a native archive without fault.
    let archive = Archive::open(process()).expect("a translation opens");
    assert!(archive.warnings().is_empty(), "{:?}", archive.warnings());
});
