//! A stream file: the calls of one captured thread, in program order.
//!
//! `events/<k>.evs` begins with a header page and continues with [records](crate::record). The file is written by
//! one thread through shared mappings of fallocated segments, so what was published survives any end of the process.
//!
//! | offset | type | field |
//! |---|---|---|
//! | 0 | u8\[8\] | magic `HRR-EVS\n` |
//! | 8 | u32 | format version ([`VERSION`]) |
//! | 12 | u32 | contents mode: 0 metadata only, 1 contents |
//! | 16 | u32 | thread number `k`, in order of first call |
//! | 20 | u32 | zero |
//! | 24 | u64 | OS thread id |
//! | 32 | u64 | process id |
//! | 40 | u64 | tick at which the file was opened |
//! | 48 | u64 | bytes in use at a clean close, header included; zero before |
//! | 56 | u8\[16\] | thread name at open, NUL padded |
//! | 72 | u32 | a flight recorder's: length of a part of the ring in bytes; zero in other files |
//! | 76.. | | zero up to 4096 |
//!
//! A record never crosses a segment boundary: the writer fills the rest of a segment with a PAD record. A reader
//! need not know where segments end. Length zero ends the stream.
//!
//! **Ring.** A flight recorder's file is the header page and parts of equal length, written in turn and over again, each
//! cleared from its first byte on before it is. A part holds whole records and ends in a PAD record, the newest one in
//! zeros. Their order is that of the entry ticks of their first records; a reader puts them in it when it opens the file,
//! so that offsets count in what it has put together.

use std::path::{Path, PathBuf};

use crate::behind::Behind;
use crate::record::{Record, RecordError, marker};
use crate::source::{Bytes, Source};

/// First eight bytes of a stream file.
pub const MAGIC: [u8; 8] = *b"HRR-EVS\n";
/// Version of this layout and of the record layout.
pub const VERSION: u32 = 1;
/// Size of the header page in bytes; the first record lies there.
pub const HEADER_BYTES: usize = 4096;

/// Byte offsets of the header's fields.
pub mod offset {
    /// Magic.
    pub const MAGIC: usize = 0;
    /// Format version.
    pub const VERSION: usize = 8;
    /// Contents mode.
    pub const CONTENTS: usize = 12;
    /// Thread number.
    pub const THREAD: usize = 16;
    /// OS thread id.
    pub const TID: usize = 24;
    /// Process id.
    pub const PID: usize = 32;
    /// Tick at open.
    pub const OPEN_TICK: usize = 40;
    /// Bytes in use at a clean close.
    pub const USED: usize = 48;
    /// Thread name.
    pub const NAME: usize = 56;
    /// Length of a part of a ring.
    pub const RING_PART: usize = 72;
}

/// What an archive holds besides the call sequence, handles and sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentsMode {
    /// Nothing: contents were withheld.
    MetadataOnly,
    /// Host buffers, kernel arguments and code objects too.
    Contents,
}

impl ContentsMode {
    /// The number in a stream file's header.
    pub fn code(self) -> u32 {
        match self {
            ContentsMode::MetadataOnly => 0,
            ContentsMode::Contents => 1,
        }
    }

    /// The word in a manifest.
    pub fn as_str(self) -> &'static str {
        match self {
            ContentsMode::MetadataOnly => "metadata-only",
            ContentsMode::Contents => "contents",
        }
    }
}

/// What a stream file says of its thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamHeader {
    /// Contents mode of the capture.
    pub contents: ContentsMode,
    /// Thread number, in order of first call.
    pub thread: u32,
    /// OS thread id.
    pub tid: u64,
    /// Process id.
    pub pid: u64,
    /// Tick at which the file was opened.
    pub open_tick: u64,
    /// Bytes in use at a clean close; zero if the thread never closed it.
    pub used_bytes: u64,
    /// Thread name, possibly empty.
    pub name: String,
    /// Length in bytes of a part of the ring that the file is; zero where it is none.
    pub ring_part_bytes: u32,
}

impl StreamHeader {
    /// The header page.
    pub fn to_page(&self) -> [u8; HEADER_BYTES] {
        let mut page = [0; HEADER_BYTES];
        page[offset::MAGIC..8].copy_from_slice(&MAGIC);
        page[offset::VERSION..][..4].copy_from_slice(&VERSION.to_le_bytes());
        page[offset::CONTENTS..][..4].copy_from_slice(&self.contents.code().to_le_bytes());
        page[offset::THREAD..][..4].copy_from_slice(&self.thread.to_le_bytes());
        page[offset::TID..][..8].copy_from_slice(&self.tid.to_le_bytes());
        page[offset::PID..][..8].copy_from_slice(&self.pid.to_le_bytes());
        page[offset::OPEN_TICK..][..8].copy_from_slice(&self.open_tick.to_le_bytes());
        page[offset::USED..][..8].copy_from_slice(&self.used_bytes.to_le_bytes());
        page[offset::RING_PART..][..4].copy_from_slice(&self.ring_part_bytes.to_le_bytes());
        let name = &self.name.as_bytes()[..self.name.len().min(15)];
        page[offset::NAME..][..name.len()].copy_from_slice(name);
        page
    }

    /// Reads a header page.
    ///
    /// # Errors
    /// Why the bytes are not the start of a stream file this build reads.
    pub fn parse(bytes: &[u8]) -> Result<Self, StreamError> {
        let page: &[u8; HEADER_BYTES] =
            bytes.first_chunk().ok_or(StreamError::ShortHeader { len_bytes: bytes.len() })?;
        let u32_at = |at: usize| u32::from_le_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        if page[..8] != MAGIC {
            return Err(StreamError::Magic { found: page[..8].to_vec() });
        }
        if u32_at(offset::VERSION) != VERSION {
            return Err(StreamError::Version { found: u32_at(offset::VERSION) });
        }
        let contents = match u32_at(offset::CONTENTS) {
            0 => ContentsMode::MetadataOnly,
            1 => ContentsMode::Contents,
            found => return Err(StreamError::Contents { found }),
        };
        let name = &page[offset::NAME..offset::NAME + 16];
        let name = &name[..name.iter().position(|&byte| byte == 0).unwrap_or(name.len())];
        Ok(StreamHeader {
            contents,
            thread: u32_at(offset::THREAD),
            tid: u64_at(offset::TID),
            pid: u64_at(offset::PID),
            open_tick: u64_at(offset::OPEN_TICK),
            used_bytes: u64_at(offset::USED),
            name: String::from_utf8_lossy(name).into_owned(),
            ring_part_bytes: u32_at(offset::RING_PART),
        })
    }
}

/// Why a stream file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// Shorter than its header page.
    #[error("it is {len_bytes} bytes long, shorter than a stream file's header page of {HEADER_BYTES}")]
    ShortHeader {
        /// The file's length.
        len_bytes: usize,
    },
    /// Not a stream file.
    #[error("its first bytes are {found:02x?}, not those of a stream file")]
    Magic {
        /// The first eight bytes.
        found: Vec<u8>,
    },
    /// Written by another version.
    #[error("its format version is {found}; this build reads version {VERSION}")]
    Version {
        /// The file's version.
        found: u32,
    },
    /// Unknown contents mode.
    #[error("its contents mode is {found}, which is none")]
    Contents {
        /// The stored number.
        found: u32,
    },
    /// The file could not be opened or mapped.
    #[error("it cannot be opened: {reason}")]
    Open {
        /// The system's reason.
        reason: String,
    },
}

/// Where and why reading a stream stopped before its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Offset in the file.
    pub offset_bytes: u64,
    /// What is wrong there.
    pub error: RecordError,
}

/// A stream file, mapped or, from a packed archive, in memory.
#[derive(Debug)]
pub struct StreamFile {
    path: PathBuf,
    header: StreamHeader,
    bytes: Bytes,
    /// It is a ring of which every part was used.
    wrapped: bool,
}

impl StreamFile {
    /// Opens and maps a stream file and checks its header.
    ///
    /// # Errors
    /// Why it is not a readable stream file.
    pub fn open(path: &Path) -> Result<Self, StreamError> {
        Self::open_from(&Source::Directory, path)
    }

    pub(crate) fn open_from(source: &Source, path: &Path) -> Result<Self, StreamError> {
        let open = |reason: std::io::Error| StreamError::Open { reason: reason.to_string() };
        let bytes = source.map(path).map_err(open)?.ok_or(StreamError::ShortHeader { len_bytes: 0 })?;
        let header = StreamHeader::parse(&bytes)?;
        let (bytes, wrapped) = match usize::try_from(header.ring_part_bytes) {
            Ok(part_bytes @ 1..) => {
                let (put, wrapped) = in_order(&bytes, part_bytes);
                (Bytes::Put(put), wrapped)
            }
            _ => (bytes, false),
        };
        Ok(StreamFile { path: path.to_owned(), header, bytes, wrapped })
    }

    /// Where the file lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it says of its thread.
    pub fn header(&self) -> &StreamHeader {
        &self.header
    }

    /// Whether it is a ring that has come round, so that earlier calls of its thread may be gone.
    pub fn has_come_round(&self) -> bool {
        self.wrapped
    }

    /// Length of the file in bytes, unused segment space included.
    pub fn len_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The records from the first on.
    pub fn records(&self) -> Records<'_> {
        let behind = self.bytes.file_mapping().map(Behind::of);
        // Parts of a ring were put in order, each as far as it was used.
        let used_bytes = if self.header.ring_part_bytes == 0 { self.header.used_bytes } else { 0 };
        Records { bytes: &self.bytes, at: HEADER_BYTES, used_bytes, damage: None, behind }
    }

    /// Goes over all records and their sections, which the iterators over them leave out from the first damaged one on.
    ///
    /// # Errors
    /// The first damage.
    pub fn check(&self) -> Result<(), Damage> {
        self.check_each(|_| ())
    }

    /// The same, and gives each record that is whole.
    ///
    /// # Errors
    /// The first damage, which ends it.
    pub fn check_each(&self, mut whole: impl FnMut(&Record<'_>)) -> Result<(), Damage> {
        let mut records = self.records();
        while let Some(record) = records.next() {
            if let Some(error) = record.sections().find_map(Result::err) {
                return Err(Damage { offset_bytes: (records.offset() - record.len_bytes()) as u64, error });
            }
            whole(&record);
        }
        records.damage().map_or(Ok(()), |damage| Err(damage.clone()))
    }

    /// Whether anything but zeros lies at an offset or behind it: beyond the last record, something a writer had begun.
    pub fn used_after(&self, offset_bytes: usize) -> bool {
        self.bytes.get(offset_bytes..).is_some_and(|rest| rest.iter().any(|&byte| byte != 0))
    }

    /// What lies from an offset on, without the zeros at the end.
    pub fn tail(&self, offset_bytes: usize) -> &[u8] {
        let rest = self.bytes.get(offset_bytes..).unwrap_or_default();
        let used = rest.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        &rest[..used]
    }
}

/// The header page of a ring and its parts, oldest first, each as far as it is used; and whether all of them are.
fn in_order(bytes: &[u8], part_bytes: usize) -> (Vec<u8>, bool) {
    let parts = bytes.get(HEADER_BYTES..).unwrap_or_default();
    let first_tick = |part: &&[u8]| Record::parse(part).ok().flatten().map(|record| record.begin());
    let mut used: Vec<(u64, &[u8])> = parts
        .chunks(part_bytes)
        .filter(|part| part.iter().take(4).any(|&byte| byte != 0))
        // One that cannot be read comes last, where it is named as damage and hides nothing.
        .map(|part| (first_tick(&part).unwrap_or(u64::MAX), part))
        .collect();
    used.sort_by_key(|&(tick, _)| tick);
    let wrapped = used.len() == parts.len() / part_bytes;
    let mut put = bytes[..HEADER_BYTES.min(bytes.len())].to_vec();
    for (_, part) in used {
        let mut records = Records::over(part);
        while records.next().is_some() {}
        put.extend_from_slice(if records.damage().is_some() { part } else { &part[..records.offset()] });
    }
    (put, wrapped)
}

/// Iterator over the records of a stream, pads left out. Pages of a mapped file that were read are given back on the way,
/// so that going over an archive takes little memory however long it is.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Bytes in use when the file was closed; zero where that is not known.
    used_bytes: u64,
    damage: Option<Damage>,
    behind: Option<Behind<'a>>,
}

impl<'a> Records<'a> {
    /// Iterates over bare record bytes; offsets count from the start of `bytes`.
    pub fn over(bytes: &'a [u8]) -> Self {
        Records { bytes, at: 0, used_bytes: 0, damage: None, behind: None }
    }

    /// Offset in the file of the record that `next` will look at.
    pub fn offset(&self) -> usize {
        self.at
    }

    /// Why iteration ended early, once it has.
    pub fn damage(&self) -> Option<&Damage> {
        self.damage.as_ref()
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        loop {
            if self.damage.is_some() {
                return None;
            }
            if let Some(behind) = &mut self.behind {
                behind.read_to(self.at);
            }
            match Record::parse(self.bytes.get(self.at..).unwrap_or_default()) {
                Ok(Some(record)) => {
                    self.at += record.len_bytes();
                    if record.api() != marker::PAD {
                        return Some(record);
                    }
                }
                // A hole in a copy of the file, say: what lies behind it would be left out in silence.
                Ok(None) if (self.at as u64) < self.used_bytes => {
                    let error = RecordError::Missing { used_bytes: self.used_bytes };
                    self.damage = Some(Damage { offset_bytes: self.at as u64, error });
                }
                Ok(None) => return None,
                Err(error) => self.damage = Some(Damage { offset_bytes: self.at as u64, error }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> StreamHeader {
        StreamHeader {
            contents: ContentsMode::Contents,
            thread: 3,
            tid: 77,
            pid: 70,
            open_tick: 1 << 40,
            used_bytes: 0,
            name: "worker".into(),
            ring_part_bytes: 0,
        }
    }

    #[test]
    fn the_header_page_lies_as_documented() {
        let page = header().to_page();
        assert_eq!(&page[..24], b"HRR-EVS\n\x01\0\0\0\x01\0\0\0\x03\0\0\0\0\0\0\0");
        assert_eq!(page[24], 77);
        assert_eq!(&page[56..63], b"worker\0");
        assert_eq!(StreamHeader::parse(&page), Ok(header()));
    }

    #[test]
    fn the_parts_of_a_ring_are_read_oldest_first() {
        use crate::record_builder::RecordBuilder;
        const PART: usize = 256;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.evs");
        let mut bytes = StreamHeader { ring_part_bytes: PART as u32, ..header() }.to_page().to_vec();
        // The ring has come round: the first part is the newest, and has room left; the last one was never used.
        for (ticks, padded) in [(&[30u64, 31][..], false), (&[10, 11], true), (&[20], true), (&[], false)] {
            let mut part: Vec<u8> =
                ticks.iter().flat_map(|&tick| RecordBuilder::new(7, &[tick]).ticks(tick, tick + 1).build()).collect();
            if padded {
                let mut pad = vec![0; PART - part.len()];
                pad[..4].copy_from_slice(&((PART - part.len()) as u32).to_le_bytes());
                pad[4..6].copy_from_slice(&marker::PAD.to_le_bytes());
                part.extend(pad);
            }
            part.resize(PART, 0);
            bytes.extend(part);
        }
        std::fs::write(&path, &bytes).unwrap();
        let ticks = |path| StreamFile::open(path).unwrap().records().map(|record| record.begin()).collect::<Vec<_>>();
        assert_eq!(ticks(&path), [10, 11, 20, 30, 31]);
        // A record that cannot be, in a part whose first one is whole.
        bytes[HEADER_BYTES + 40] = 33;
        std::fs::write(&path, &bytes).unwrap();
        let file = StreamFile::open(&path).unwrap();
        assert!(file.check().is_err());
        // A part that cannot be read from its start.
        bytes[HEADER_BYTES] = 33;
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(ticks(&path), [10, 11, 20]);
    }

    #[test]
    fn a_foreign_file_is_refused_by_what_is_wrong() {
        let mut page = header().to_page();
        page[8] = 9;
        assert_eq!(StreamHeader::parse(&page), Err(StreamError::Version { found: 9 }));
        page[0] = b'X';
        assert!(matches!(StreamHeader::parse(&page), Err(StreamError::Magic { .. })));
        assert_eq!(StreamHeader::parse(&page[..10]), Err(StreamError::ShortHeader { len_bytes: 10 }));
    }

    #[test]
    fn pads_are_skipped_and_a_bad_length_is_named_with_its_offset() {
        let mut bytes = vec![0u8; 200];
        bytes[0] = 40;
        bytes[4..6].copy_from_slice(&marker::PAD.to_le_bytes());
        bytes[40] = 32;
        bytes[44] = 7;
        bytes[72] = 33;
        let mut records = Records::over(&bytes);
        assert_eq!(records.next().map(|record| record.api()), Some(7));
        assert!(records.next().is_none());
        assert_eq!(records.damage(), Some(&Damage { offset_bytes: 72, error: RecordError::Length { len_bytes: 33 } }));
    }

    /// Formerly the records behind such a hole went unread without a word.
    #[test]
    fn a_hole_in_a_file_that_was_closed_is_damage_and_in_one_that_was_not_is_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.evs");
        for used_bytes in [HEADER_BYTES as u64 + 96, 0] {
            let mut bytes = StreamHeader { used_bytes, ..header() }.to_page().to_vec();
            bytes.extend([0; 96]);
            for at in [0, 64] {
                bytes[HEADER_BYTES + at] = 32;
                bytes[HEADER_BYTES + at + 4] = 7;
            }
            std::fs::write(&path, &bytes).unwrap();
            let file = StreamFile::open(&path).unwrap();
            let mut records = file.records();
            assert_eq!(records.by_ref().count(), 1);
            let offset_bytes = HEADER_BYTES as u64 + 32;
            let damage = Damage { offset_bytes, error: RecordError::Missing { used_bytes } };
            assert_eq!(records.damage(), (used_bytes > 0).then_some(&damage));
        }
    }
}
