//! What `--info --events` makes of records, as text and as JSON, and what repair and verify make of them.
#![no_main]

use std::path::PathBuf;
use std::sync::OnceLock;

use hrr_format::archive::stream_path;
use hrr_format::archive_writer::ArchiveWriter;
use hrr_format::code_object::{ArgKind, KernelArg};
use hrr_format::kernel_table::Kernel;
use hrr_format::stream_file::ContentsMode;
use hrr_replay::info::{Calls, InfoOptions, Output, print_path};
use libfuzzer_sys::fuzz_target;

/// An archive with some contents and a kernel, whose records are given later.
fn archive() -> (tempfile::TempDir, PathBuf, Vec<u8>) {
    let dir = hrr_fuzz::scratch();
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
    let header = std::fs::read(stream_path(&path, 0)).expect("it was just written");
    (dir, path, header)
}

fuzz_target!(|data: &[u8]| {
    static ARCHIVE: OnceLock<(tempfile::TempDir, PathBuf, Vec<u8>)> = OnceLock::new();
    let (_, path, header) = ARCHIVE.get_or_init(archive);
    std::fs::write(stream_path(path, 0), [header, data].concat()).expect("there is room for a small file");
    for output in [Output::Text, Output::Json] {
        let options = InfoOptions { calls: Calls::List, output, ..InfoOptions::default() };
        let _ = print_path(path, &options, &mut std::io::sink());
    }
    hrr_fuzz::read_archive(path);
});
