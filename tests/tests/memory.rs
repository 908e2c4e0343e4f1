//! How much memory a replay takes besides what it plans and stages.

use std::path::Path;
use std::process::Stdio;

use hrr_format::archive_writer::ArchiveWriter;
use hrr_format::catalogue::Api;
use hrr_format::record::{NO_PARAM, Presence, SectionTag};
use hrr_format::record_builder::RecordBuilder;
use hrr_format::stream_file::ContentsMode;
use hrr_tests::recording::Scratch;
use hrr_tests::replaying::Replay;

const MIB: usize = 1 << 20;

const THREADS: u32 = 8;
const CALLS: u64 = 6000;
/// Bytes of a note.
const LONG: usize = 2 << 10;

/// An archive of threads' calls, each with a note of so many bytes that replay has no use for.
fn write(path: &Path, note_bytes: usize) {
    let get_device = Api::by_name("hipGetDevice").unwrap();
    let note = vec![b'n'; note_bytes];
    let records: Vec<_> = (0..CALLS)
        .map(|call| {
            RecordBuilder::new(get_device.id, &[0x1000])
                .section(SectionTag::Out, 0, Presence::Present, &0i32.to_le_bytes())
                .section(SectionTag::Note, NO_PARAM, Presence::Present, &note)
                .ticks(100 * call + 100, 100 * call + 150)
                .build()
        })
        .collect();
    let mut writer = ArchiveWriter::create(&path.join("pid-7"), 7, ContentsMode::Contents).unwrap();
    for thread in 0..THREADS {
        writer.stream(thread, 7 + u64::from(thread), "worker", &records).unwrap();
    }
    writer.finish().unwrap();
}

/// The most memory that a replay has resident, in bytes, pages of mapped files included. It is never less than what this process
/// has when it starts the replay, which is why the archive is written from few records.
fn peak_bytes(archive: &Path) -> usize {
    let mut child = Replay::of(archive).into_command().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut status = 0;
    // SAFETY: all zeros is a value of this plain C struct.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the process is this one's child and was not waited for; both addresses are of what they must be.
    let waited = unsafe { libc::wait4(child.id() as i32, &mut status, 0, &mut usage) };
    assert_eq!(waited, child.id() as i32);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "status {status:#x}");
    // Its status was taken above.
    let _ = child.try_wait();
    usage.ru_maxrss as usize * 1024
}

/// The pages of a long archive once stayed resident, as long as it was.
#[test]
fn what_was_read_of_a_long_archive_does_not_stay_in_memory() {
    let scratch = Scratch::new("long");
    let (short, long) = (scratch.path().join("short.hrr"), scratch.path().join("long.hrr"));
    write(&short, 8);
    write(&long, LONG);
    let archive_bytes = THREADS as usize * CALLS as usize * LONG;
    let (short, long) = (peak_bytes(&short), peak_bytes(&long));
    let more = long.saturating_sub(short);
    assert!(more < archive_bytes / 3, "{} of {} MiB stay resident", more / MIB, archive_bytes / MIB);
}
