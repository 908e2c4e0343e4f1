//! Everything an archive is made of is input from outside: whatever the bytes, reading them ends, and without a panic.

#[expect(unreachable_pub, reason = "elsewhere it is a module of a library")]
#[path = "../../tests/support/files.rs"]
mod files;

use std::fs;
use std::path::Path;

use hrr_format::archive::{Archive, ArchiveRoot, Damaged};
use hrr_format::archive_writer::ArchiveWriter;
use hrr_format::blob_store::{BlobIndex, IndexEntry, index_header};
use hrr_format::code_object::{ArgKind, KernelArg};
use hrr_format::kernel_table::{Kernel, KernelTable};
use hrr_format::record::{BlobRef, MAX_RECORD_BYTES, Presence, Record, SectionTag};
use hrr_format::record_builder::RecordBuilder;
use hrr_format::stream_file::{ContentsMode, HEADER_BYTES, Records, StreamHeader};
use proptest::prelude::*;
use proptest::sample::Index;

/// Reads all of a record that there is to read.
fn read_whole(record: &Record<'_>) {
    let _ = (record.api(), record.flags(), record.begin(), record.end(), record.ret(), record.aux());
    assert_eq!(record.words().count(), record.word_count());
    assert_eq!(record.word(record.word_count()), 0);
    let mut payload_bytes = 0;
    for section in record.sections().flatten() {
        payload_bytes += section.payload.len();
        let _ = (section.blob(), section.host_address());
    }
    assert!(payload_bytes <= record.len_bytes());
    let _ = format!("{record:?}");
}

/// Reads all of an archive that there is to read.
fn read_all(path: &Path) {
    for damaged in [Damaged::Refuse, Damaged::Tolerate] {
        let archive = match Archive::open_with(path, damaged) {
            Ok(archive) => archive,
            Err(error) => {
                assert!(!error.to_string().contains('\n'), "{error}");
                continue;
            }
        };
        for warning in archive.warnings() {
            assert!(!warning.to_string().contains('\n'), "{warning}");
        }
        for stream in archive.streams() {
            for record in stream.records() {
                read_whole(&record);
                let _ = (archive.api(record.api()), archive.row_of(&record), archive.kernels().of_launch(record.aux()));
            }
        }
        for store in [archive.blobs(), archive.code_objects()] {
            for entry in store.index().entries() {
                let _ = store.get(entry.number);
            }
            let _ = store.stored();
        }
        for kernel in archive.kernels().kernels() {
            let _ = kernel.explicit_bytes();
        }
    }
    let _ = ArchiveRoot::open(path);
}

fn record() -> impl Strategy<Value = Vec<u8>> {
    let section = (1u8..=10, any::<u8>(), 0u8..3, prop::collection::vec(any::<u8>(), 0..40));
    (
        any::<u16>(),
        prop::collection::vec(any::<u64>(), 0..12),
        any::<(u64, u64, i32, u32)>(),
        prop::collection::vec(section, 0..4),
    )
        .prop_map(|(api, words, (begin, end, ret, aux), sections)| {
            let mut builder = RecordBuilder::new(api, &words).ticks(begin, end).ret(ret).aux(aux);
            for (tag, param, presence, payload) in sections {
                let tag = SectionTag::from_u8(tag).expect("the strategy gives known tags");
                builder = builder.section(tag, param, Presence::from_u8(presence), &payload);
            }
            builder.build()
        })
}

/// Changes to bytes: values at places, and a cut.
fn changes() -> impl Strategy<Value = (Vec<(Index, u8)>, Index)> {
    (prop::collection::vec(any::<(Index, u8)>(), 0..6), any::<Index>())
}

fn change(mut bytes: Vec<u8>, (values, cut): (Vec<(Index, u8)>, Index)) -> Vec<u8> {
    if !bytes.is_empty() {
        for (at, value) in values {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        // Half of the cuts lie past the end and take nothing away.
        bytes.truncate(cut.index(bytes.len() * 2));
    }
    bytes
}

/// A small archive with some of everything.
fn archive(root: &Path) {
    let mut writer = ArchiveWriter::create(&root.join("pid-7"), 7, ContentsMode::Contents).unwrap();
    writer.blob(0, b"abc").unwrap();
    writer.blob(1, &[7; 100]).unwrap();
    writer.code_object(0, b"code").unwrap();
    let args = vec![KernelArg { offset: 0, size: 8, kind: ArgKind::GlobalBuffer }];
    writer.kernel(&Kernel {
        kernel: 0,
        name: "k".into(),
        code_object: Some(0),
        kernarg_bytes: 8,
        args: Some(args),
        withheld: false,
    });
    for thread in 0..2 {
        let copy = RecordBuilder::new(100, &[1, 2, 3]).ticks(1, 2).blob(
            SectionTag::BlobIn,
            1,
            BlobRef { number: 1, size_bytes: 100 },
        );
        let launch = RecordBuilder::new(200, &[1]).ticks(3, 4).aux(1).section(
            SectionTag::KernelArgs,
            0,
            Presence::Present,
            &[0; 8],
        );
        writer.stream(thread, 7, "thread", &[copy.build(), launch.build()]).unwrap();
    }
    writer.finish().unwrap();
}

proptest! {
    #[test]
    fn records_come_back_as_they_were_built(records in prop::collection::vec(record(), 0..6)) {
        let bytes = records.concat();
        let mut read = Records::over(&bytes);
        // The api of a pad is skipped over; everything else comes back byte for byte.
        let expected: Vec<&[u8]> =
            records.iter().map(Vec::as_slice).filter(|record| record[4..6] != [0xff, 0xff]).collect();
        let found: Vec<&[u8]> = read.by_ref().map(|record| record.bytes()).collect();
        prop_assert_eq!(found, expected);
        prop_assert!(read.damage().is_none());
    }

    #[test]
    fn damaged_records_are_read_or_named(
        records in prop::collection::vec(record(), 1..6),
        changes in changes(),
    ) {
        let bytes = change(records.concat(), changes);
        let mut read = Records::over(&bytes);
        for record in read.by_ref() {
            prop_assert!(record.len_bytes() <= MAX_RECORD_BYTES);
            read_whole(&record);
        }
        if let Some(damage) = read.damage() {
            prop_assert!(damage.offset_bytes < bytes.len() as u64);
        }
    }

    #[test]
    fn random_bytes_are_no_records_without_end(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        prop_assert!(Records::over(&bytes).inspect(read_whole).count() <= bytes.len() / 32);
    }

    #[test]
    fn random_stream_headers_are_read_or_refused(
        start in prop::collection::vec(any::<u8>(), 0..80),
        keep_magic in any::<bool>(),
    ) {
        let mut page = vec![0; HEADER_BYTES];
        page[..start.len()].copy_from_slice(&start);
        if keep_magic {
            page[..12].copy_from_slice(b"HRR-EVS\n\x01\0\0\0");
        }
        let _ = StreamHeader::parse(&page);
        prop_assert!(StreamHeader::parse(&start).is_err());
    }

    #[test]
    fn damaged_indexes_keep_numbers_apart(
        entries in prop::collection::vec(any::<(u64, u32, u64, u64)>(), 0..8),
        changes in changes(),
    ) {
        let mut bytes = index_header().to_vec();
        for (number, pack, offset_bytes, len_bytes) in entries {
            let number = number % 5;
            bytes.extend(IndexEntry { number, hash: [1; 32], pack, offset_bytes, len_bytes }.to_bytes());
        }
        if let Ok(index) = BlobIndex::parse(&change(bytes, changes)) {
            prop_assert!(index.entries().windows(2).all(|pair| pair[0].number < pair[1].number));
            for entry in index.entries() {
                prop_assert_eq!(index.get(entry.number), Some(entry));
            }
        }
    }

    #[test]
    fn damaged_kernel_tables_lose_lines_and_no_more(bytes in prop::collection::vec(any::<u8>(), 0..200), changes in changes()) {
        let line = br#"{"kernel":3,"name":"k","code_object":0,"kernarg_bytes":8,"args":[{"offset":0,"size":8,"kind":"x"}]}"#;
        let _ = KernelTable::parse(&bytes);
        let table = KernelTable::parse(&change([&line[..], b"\n", line].concat(), changes));
        prop_assert!(table.kernels().len() + table.damage().len() <= 8);
    }
}

proptest! {
    // Each case opens a directory of files.
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn archives_with_one_damaged_file_are_read_or_refused(which in any::<Index>(), changes in changes()) {
        let dir = tempfile::tempdir().unwrap();
        archive(dir.path());
        let files = files::below(dir.path());
        let path = &files[which.index(files.len())];
        fs::write(path, change(fs::read(path).unwrap(), changes)).unwrap();
        read_all(dir.path());
    }

    #[test]
    fn archives_with_a_missing_file_are_read_or_refused(which in any::<Index>()) {
        let dir = tempfile::tempdir().unwrap();
        archive(dir.path());
        let files = files::below(dir.path());
        fs::remove_file(&files[which.index(files.len())]).unwrap();
        read_all(dir.path());
    }
}
