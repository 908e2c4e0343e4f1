//! What the fuzz targets do with their input. Each reads all that there is to read of one part of an archive, and checks what
//! must hold whatever the bytes are.
//!
//! `replay/tests/fuzz_seeds.rs` includes this file and runs every target over the seeds and fixed changes to them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use hrr_format::archive::{Archive, Damaged, stream_path};
use hrr_format::archive_writer::ArchiveWriter;
use hrr_format::blob_store::BlobIndex;
use hrr_format::code_object::{ArgKind, KernelArg, MAX_KERNARG_BYTES, image_len, metadata_signatures, signatures};
use hrr_format::kernel_table::{Kernel, KernelTable};
use hrr_format::manifest::ProcessManifest;
use hrr_format::record::{MAX_RECORD_BYTES, Record};
use hrr_format::regions::{ENTRY_BYTES, PointerClass, RegionKind, Regions, encode};
use hrr_format::stream_file::{ContentsMode, HEADER_BYTES, Records, StreamHeader};
use hrr_format::upstream::events::{Events, FileHeader};
use hrr_format::upstream::launch::{Kernel as UpstreamKernel, Launch};
use hrr_format::upstream::{UpstreamArchive, describe};
use hrr_replay::info::{Calls, InfoOptions, Output, print_path};

/// Reads its input and panics where something is wrong with the reader.
pub type Target = fn(&[u8]);

/// All targets by the names of their programs and of their folders of seeds.
pub const TARGETS: [(&str, Target); 10] = [
    ("amdgpu_metadata", amdgpu_metadata),
    ("blob_index", blob_index),
    ("code_object", code_object),
    ("kernel_table", kernel_table),
    ("listing", listing),
    ("manifest", manifest),
    ("packed", packed),
    ("regions", regions),
    ("stream_file", stream_file),
    ("upstream_events", upstream_events),
];

/// The metadata note of an AMD GPU image.
pub fn amdgpu_metadata(data: &[u8]) {
    for signature in metadata_signatures(data).unwrap_or_default() {
        assert!(signature.explicit_bytes() <= MAX_KERNARG_BYTES);
    }
}

/// Indexes of blob stores.
pub fn blob_index(data: &[u8]) {
    let Ok(index) = BlobIndex::parse(data) else { return };
    assert!(index.entries().windows(2).all(|pair| pair[0].number < pair[1].number));
    for entry in index.entries() {
        assert_eq!(index.get(entry.number), Some(entry));
    }
    let _ = index.damage().iter().map(ToString::to_string).collect::<Vec<_>>();
}

/// Code objects: bundles, compressed bundles, ELF images and their metadata.
pub fn code_object(data: &[u8]) {
    let _ = image_len(data);
    for signature in signatures(data).unwrap_or_default() {
        assert!(signature.explicit_bytes() <= MAX_KERNARG_BYTES);
    }
}

/// Kernel tables.
pub fn kernel_table(data: &[u8]) {
    let table = KernelTable::parse(data);
    for kernel in table.kernels() {
        assert_eq!(table.get(kernel.kernel), Some(kernel));
        let _ = (kernel.explicit_bytes(), kernel.to_line());
    }
}

/// What `--info --events` makes of records, as text and as JSON, and what verify makes of them.
pub fn listing(data: &[u8]) {
    static ARCHIVE: OnceLock<(tempfile::TempDir, PathBuf, Vec<u8>)> = OnceLock::new();
    let (_, path, header) = ARCHIVE.get_or_init(small_archive);
    fs::write(stream_path(path, 0), [header, data].concat()).expect("there is room for a small file");
    for output in [Output::Text, Output::Json] {
        let options = InfoOptions { calls: Calls::List, output, ..InfoOptions::default() };
        let _ = print_path(path, &options, &mut std::io::sink());
    }
    read_archive(path);
}

/// Manifests of processes.
pub fn manifest(data: &[u8]) {
    match ProcessManifest::parse(Path::new("manifest.json"), data) {
        Ok(manifest) => {
            let clock = manifest.clock;
            let _ = (
                clock.ticks_to_ns(u64::MAX),
                clock.ns_since_start(7),
                clock.monotonic_ns(0),
                clock.monotonic_ns(u64::MAX),
            );
        }
        Err(error) => assert!(error.to_string().contains("manifest.json")),
    }
}

/// Packed archives, with everything in them. The hash of the table of contents is made right, so that what the table says is
/// looked at.
pub fn packed(data: &[u8]) {
    static SCRATCH: OnceLock<tempfile::TempDir> = OnceLock::new();
    let path = SCRATCH.get_or_init(scratch).path().join("fuzz.hrrz");
    let mut bytes = data.to_vec();
    hrr_format::packed::make_hash_right(&mut bytes);
    fs::write(&path, &bytes).expect("there is room for a small file");
    read_archive(&path);
    read_archive(&path.join("pid-7"));
}

/// Region sidecars: their bytes, how files are merged, and what was there at a moment.
pub fn regions(data: &[u8]) {
    // The first byte says where one file ends and the next begins, in entries.
    let (at, data) = data.split_first().unwrap_or((&0, &[]));
    let (first, second) = data.split_at((usize::from(*at) * ENTRY_BYTES).min(data.len()));
    let mut regions = Regions::default();
    for (name, bytes) in [("a.hrrr", first), ("b.hrrr", second)] {
        regions.add_file(name, bytes);
    }
    regions.merge();
    assert!(regions.entries().len() * ENTRY_BYTES <= data.len());
    let mut cursor = regions.cursor();
    let mut passed = 0;
    for region in regions.entries() {
        assert!(region.end() >= region.base);
        passed += cursor.advance(region.time_ns).len();
        for kind in [RegionKind::Block, RegionKind::Segment] {
            let live: Vec<_> = cursor.live().all(kind).collect();
            assert!(live.windows(2).all(|pair| pair[0].end() <= pair[1].base));
        }
        if let PointerClass::Block(block) = cursor.live().class(region.base) {
            assert!(block.base <= region.base && region.base < block.end());
        }
    }
    assert_eq!(passed, regions.entries().len());
    // What was read and is written again reads the same.
    let mut again = Regions::default();
    again.add_file("c.hrrr", &encode(&[regions.entries()]));
    again.merge();
    assert_eq!(again.entries(), regions.entries());
}

/// Stream files: header page and records.
pub fn stream_file(data: &[u8]) {
    // The first bytes stand for the start of the header page, whose rest is zeros.
    let (start, records) = data.split_at(data.len().min(72));
    let mut page = vec![0; HEADER_BYTES];
    page[..start.len()].copy_from_slice(start);
    let _ = StreamHeader::parse(&page);
    let mut read = Records::over(records);
    for record in read.by_ref() {
        read_record(&record);
    }
    if let Some(damage) = read.damage() {
        assert!(damage.offset_bytes < records.len() as u64);
    }
}

/// Archives of AMD's in-tree HRR: event files, launches, and the translation of the whole.
pub fn upstream_events(data: &[u8]) {
    static PROCESS: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, process) = PROCESS.get_or_init(|| {
        let dir = scratch();
        let path = dir.path().join("pid-1");
        fs::create_dir(&path).expect("there is room");
        (dir, path)
    });
    let _ = Launch::parse(data);
    let _ = UpstreamKernel::parse_node(data);
    let Ok(header) = FileHeader::parse(data) else { return };
    let mut events = Events::new(data, header.version);
    let read: usize = events.by_ref().map(|event| event.bytes.len()).sum();
    assert!(read <= data.len());
    fs::write(process.join("events.bin"), data).expect("there is room for a small file");
    let _ = describe(process);
    if UpstreamArchive::open(process).is_err() {
        return;
    }
    // What is translated must be a native archive without fault.
    let archive = Archive::open(process).expect("a translation opens");
    assert!(archive.warnings().is_empty(), "{:?}", archive.warnings());
}

/// Reads all of a record.
fn read_record(record: &Record<'_>) {
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
fn read_archive(path: &Path) {
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

/// An archive with some contents and a kernel, whose records are given later, and the header of its stream.
fn small_archive() -> (tempfile::TempDir, PathBuf, Vec<u8>) {
    let dir = scratch();
    let path = dir.path().join("pid-7");
    let mut writer = ArchiveWriter::create(&path, 7, ContentsMode::Contents).expect("there is room");
    writer.blob(0, b"abcdefgh").expect("there is room");
    let args = vec![KernelArg { offset: 0, size: 8, kind: ArgKind::GlobalBuffer }];
    writer.kernel(&Kernel {
        kernel: 0,
        name: "k".into(),
        code_object: None,
        kernarg_bytes: 8,
        args: Some(args),
        withheld: false,
    });
    writer.stream::<Vec<u8>>(0, 7, "main", &[]).expect("there is room");
    writer.abandon().expect("there is room");
    let header = fs::read(stream_path(&path, 0)).expect("it was just written");
    (dir, path, header)
}

/// A directory in memory where there is one, for targets that need files.
fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    tempfile::Builder::new().prefix("hrr-fuzz-").tempdir_in(parent).expect("there is room for temporary files")
}
