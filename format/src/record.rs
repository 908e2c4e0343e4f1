//! One recorded call, as it lies in a stream file.
//!
//! | offset | type | field |
//! |---|---|---|
//! | 0 | u32 | `len_bytes`: whole record, a multiple of 8, at least 32; stored last (release), zero until published |
//! | 4 | u16 | api: id in the archive's own catalogue (its manifest names it), or a marker (see [`marker`]) |
//! | 6 | u8 | flags (see [`flag`]) |
//! | 7 | u8 | number of argument words |
//! | 8 | u64 | `begin` tick, read at entry |
//! | 16 | u64 | `end` tick, read at return; zero while in flight |
//! | 24 | i32 | return code (`hipError_t` or `int`; zero for calls that return something else) |
//! | 28 | u32 | `aux`: launches: kernel number + 1 (0 = unknown kernel); queries answered "not ready": answers in a row; calls that change the thread's context: [`DEVICE_AFTER`] and the device that is current then; otherwise zero |
//! | 32 | u64 × words | arguments in declaration order (see [`crate::abi`]) |
//! | then | | sections until `len_bytes` |
//!
//! A section:
//!
//! | offset | type | field |
//! |---|---|---|
//! | 0 | u8 | tag (see [`SectionTag`]) |
//! | 1 | u8 | parameter index it belongs to; 255 = none |
//! | 2 | u8 | state (see [`Presence`]) |
//! | 3 | u8 | zero |
//! | 4 | u32 | payload length in bytes, before padding |
//! | 8 | bytes | payload, padded with zeros to a multiple of 8 |
//!
//! All integers are little-endian. A record is published at entry with [`flag::IN_FLIGHT`] set and completed in
//! place at return: its thread stores end, return code and out sections, and then clears the flag (release).

/// Size of the fixed part of a record in bytes.
pub const HEADER_BYTES: usize = 32;
/// Size of a section header in bytes.
pub const SECTION_HEADER_BYTES: usize = 8;
/// Largest record a writer makes; longer payloads go to the blob store. A reader refuses longer ones.
pub const MAX_RECORD_BYTES: usize = 1 << 20;
/// Parameter index of a section that belongs to no parameter.
pub const NO_PARAM: u8 = 255;

/// Bit of the auxiliary number that says that the other bits are the number of the device that is current on the thread
/// once the call has returned.
pub const DEVICE_AFTER: u32 = 1 << 31;

/// Byte offsets of the record header's fields.
pub mod offset {
    /// `len_bytes`.
    pub const LEN: usize = 0;
    /// API id or marker.
    pub const API: usize = 4;
    /// Flags.
    pub const FLAGS: usize = 6;
    /// Number of argument words.
    pub const WORDS: usize = 7;
    /// Entry tick.
    pub const BEGIN: usize = 8;
    /// Return tick.
    pub const END: usize = 16;
    /// Return code.
    pub const RET: usize = 24;
    /// Auxiliary number.
    pub const AUX: usize = 28;
}

/// Bits of a record's flag byte.
pub mod flag {
    /// The call has not returned.
    pub const IN_FLIGHT: u8 = 1;
    /// The call was skipped over by the recorder for lack of space: its sections are missing.
    pub const TRUNCATED: u8 = 2;
    /// The program made no such call: a conversion from another format added it, for what that format leaves implicit.
    pub const ADDED: u8 = 4;
    /// Replay leaves the call out; a [`Note`](super::SectionTag::Note) says why.
    pub const LEFT_OUT: u8 = 8;
    /// Replay refuses the call, because the format it was converted from does not hold what it needs; a
    /// [`Note`](super::SectionTag::Note) says what.
    pub const REFUSED: u8 = 16;
    /// The record brings about what there was when a window of recording was opened, or a forked child's recording began: a
    /// call that the program made before, or a copy that gives memory the contents it had. Replay takes it as set-up.
    pub const PREAMBLE: u8 = 32;
    /// Every bit that has a meaning.
    pub const ALL: u8 = IN_FLIGHT | TRUNCATED | ADDED | LEFT_OUT | REFUSED | PREAMBLE;
}

/// Values of the api field that are not HIP calls.
pub mod marker {
    /// First value that is a marker.
    pub const FIRST: u16 = 0xff00;
    /// Rest of a segment, to be skipped.
    pub const PAD: u16 = 0xffff;
    /// The device-to-host result in blob `words[0]` became visible to the program with the call before this record
    /// in the same stream file. Words: blob number.
    pub const OBSERVED: u16 = 0xfffe;
    /// What the host had stored, without a call, in memory that devices use directly. Words: address and size in bytes
    /// of the allocation, and bits of [`host_wrote`]. Sections: [`HostRanges`](super::SectionTag::HostRanges), a
    /// [`BlobIn`](super::SectionTag::BlobIn) with what the ranges held, back to back, and, where work that may write the
    /// memory was in flight, a [`HostBefore`](super::SectionTag::HostBefore) with what they had held before. It has a time
    /// of its own, at which it stands among the calls of all threads.
    pub const HOST_WROTE: u16 = 0xfffd;
    /// What such memory held once the call before this record had waited for the device. Words and sections as those of
    /// [`HOST_WROTE`]; with a [`HostBefore`](super::SectionTag::HostBefore) the host may have stored part of it itself.
    pub const HOST_SAW: u16 = 0xfffc;

    /// Bits of the third word of [`HOST_WROTE`].
    pub mod host_wrote {
        /// The first of its allocation: whatever the ranges leave out is zero.
        pub const FIRST: u64 = 1;
        /// What the host stores in this allocation is not recorded, because it is larger than the recorder was allowed
        /// to look through: there are no sections.
        pub const NOT_RECORDED: u64 = 2;
    }

    /// Whether a marker has a time of its own among the calls.
    pub fn is_timed(api: u16) -> bool {
        matches!(api, HOST_WROTE | HOST_SAW)
    }
}

/// What a section holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SectionTag {
    /// Bytes a pointer parameter pointed to at entry.
    In = 1,
    /// Bytes a pointer parameter pointed to after the call.
    Out = 2,
    /// A C string without its NUL.
    Text = 3,
    /// Host memory the call, or the work it enqueued, read: a [`BlobRef`].
    BlobIn = 4,
    /// Host memory the call, or the work it enqueued, wrote, snapshotted when the program could first read it: a [`BlobRef`].
    /// A number that the blob index lacks was never observed.
    BlobOut = 5,
    /// Explicit kernel arguments at their kernarg offsets.
    KernelArgs = 6,
    /// An 8-byte return value (calls that return a pointer).
    Return = 7,
    /// A code object, fat binary or linker input: a [`BlobRef`] into the code object store.
    Code = 8,
    /// Host memory that a copy node of a launched graph reads: u64 host address, then a [`BlobRef`].
    GraphHostIn = 9,
    /// Host memory that a copy node of a launched graph writes: u64 host address, then a [`BlobRef`].
    GraphHostOut = 10,
    /// Words for people: why a call is left out, refused or added.
    Note = 11,
    /// Ranges of an allocation, by ascending offset: u64 offset and u64 length in bytes each.
    HostRanges = 12,
    /// What ranges of host memory held before: a [`BlobRef`].
    HostBefore = 13,
    /// How the rows of the host memory lie that the section in front of it names, where there are gaps between them:
    /// [`HostRows`].
    GraphHostRows = 14,
    /// Which file an operating-system handle of the call names: a [`FileId`].
    File = 15,
    /// Names of the handles that an array of the call was filled with, in its order, each with its NUL.
    Names = 16,
}

impl SectionTag {
    /// The tag with this number.
    pub fn from_u8(value: u8) -> Option<Self> {
        Some(match value {
            1 => Self::In,
            2 => Self::Out,
            3 => Self::Text,
            4 => Self::BlobIn,
            5 => Self::BlobOut,
            6 => Self::KernelArgs,
            7 => Self::Return,
            8 => Self::Code,
            9 => Self::GraphHostIn,
            10 => Self::GraphHostOut,
            11 => Self::Note,
            12 => Self::HostRanges,
            13 => Self::HostBefore,
            14 => Self::GraphHostRows,
            15 => Self::File,
            16 => Self::Names,
            _ => return None,
        })
    }
}

/// Whether a section's payload is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Presence {
    /// The pointer was null, or the call did not get as far as writing it.
    Absent = 0,
    /// The payload is what the program passed or got.
    Present = 1,
    /// There were contents, and the capture mode withheld them: the payload is zeros of their size (kernel
    /// arguments keep their pointers), or a [`BlobRef`] whose number is [`BlobRef::WITHHELD`].
    Withheld = 2,
}

impl Presence {
    /// The state with this number; anything unknown reads as absent.
    pub fn from_u8(value: u8) -> Self {
        match value {
            1 => Self::Present,
            2 => Self::Withheld,
            _ => Self::Absent,
        }
    }
}

/// A reference to contents in a blob store: 16 bytes, number then size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlobRef {
    /// Per-process running number; the store's index maps it to hash and place.
    pub number: u64,
    /// Size in bytes as the call saw it.
    pub size_bytes: u64,
}

impl BlobRef {
    /// Number of a reference whose contents were withheld: all ones.
    pub const WITHHELD: u64 = u64::MAX;
    /// Size on disk in bytes.
    pub const BYTES: usize = 16;

    /// Reads a reference from the first 16 bytes of `bytes`.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        Some(BlobRef { number: u64_at(bytes, 0)?, size_bytes: u64_at(bytes, 8)? })
    }

    /// The bytes on disk.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..].copy_from_slice(&self.size_bytes.to_le_bytes());
        bytes
    }
}

/// How rows of host memory lie whose contents are packed.
///
/// | offset | type | |
/// |---|---|---|
/// | 0 | u32 | rows in a slice |
/// | 4 | u32 | slices |
/// | 8 | u64 | bytes from row to row |
/// | 16 | u64 | bytes from slice to slice |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRows {
    /// Rows in a slice.
    pub rows: u32,
    /// Slices.
    pub slices: u32,
    /// Bytes from row to row.
    pub pitch_bytes: u64,
    /// Bytes from slice to slice.
    pub slice_bytes: u64,
}

impl HostRows {
    /// Size on disk in bytes.
    pub const BYTES: usize = 24;

    /// Reads what a [`SectionTag::GraphHostRows`] holds.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let counts = u64_at(bytes, 0)?;
        let (rows, slices) = (counts as u32, (counts >> 32) as u32);
        Some(HostRows { rows, slices, pitch_bytes: u64_at(bytes, 8)?, slice_bytes: u64_at(bytes, 16)? })
    }

    /// The bytes on disk.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&self.rows.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.slices.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.pitch_bytes.to_le_bytes());
        bytes[16..].copy_from_slice(&self.slice_bytes.to_le_bytes());
        bytes
    }
}

/// Which file a descriptor stands for, whatever its number.
///
/// | offset | type | |
/// |---|---|---|
/// | 0 | u64 | device of the file's inode |
/// | 8 | u64 | inode |
/// | 16 | u64 | the descriptor |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId {
    /// Device of the file's inode.
    pub device: u64,
    /// The inode.
    pub inode: u64,
    /// The descriptor.
    pub descriptor: u64,
}

impl FileId {
    /// Size on disk in bytes.
    pub const BYTES: usize = 24;

    /// Reads what a [`SectionTag::File`] holds.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        Some(FileId { device: u64_at(bytes, 0)?, inode: u64_at(bytes, 8)?, descriptor: u64_at(bytes, 16)? })
    }

    /// The bytes on disk.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.device.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.inode.to_le_bytes());
        bytes[16..].copy_from_slice(&self.descriptor.to_le_bytes());
        bytes
    }
}

/// A section of a record, borrowed from it.
#[derive(Clone, Copy, Debug)]
pub struct Section<'a> {
    /// What it holds.
    pub tag: SectionTag,
    /// The parameter it belongs to, or [`NO_PARAM`].
    pub param: u8,
    /// Whether the payload is there.
    pub presence: Presence,
    /// The payload without padding.
    pub payload: &'a [u8],
}

impl Section<'_> {
    /// The blob reference of a blob or code section.
    pub fn blob(&self) -> Option<BlobRef> {
        match self.tag {
            SectionTag::BlobIn | SectionTag::BlobOut | SectionTag::Code | SectionTag::HostBefore => {
                BlobRef::read(self.payload)
            }
            SectionTag::GraphHostIn | SectionTag::GraphHostOut => BlobRef::read(self.payload.get(8..)?),
            _ => None,
        }
    }

    /// The ranges of a [`SectionTag::HostRanges`], offset and length in bytes each.
    pub fn host_ranges(&self) -> impl ExactSizeIterator<Item = (u64, u64)> + '_ {
        let payload = if self.tag == SectionTag::HostRanges { self.payload } else { &[] };
        let word = |pair: &[u8], at| u64_at(pair, at).unwrap_or(0);
        payload.chunks_exact(16).map(move |pair| (word(pair, 0), word(pair, 8)))
    }

    /// The names of a [`SectionTag::Names`], in the order of the handles; a name that is not known is empty.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> + '_ {
        let payload = if self.tag == SectionTag::Names { self.payload } else { &[] };
        // There was room for more names than were told.
        let len = payload.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        payload[..len].split(|&byte| byte == 0).take(if len == 0 { 0 } else { usize::MAX })
    }

    /// The host address of a graph host section.
    pub fn host_address(&self) -> Option<u64> {
        match self.tag {
            SectionTag::GraphHostIn | SectionTag::GraphHostOut => u64_at(self.payload, 0),
            _ => None,
        }
    }
}

/// One record, borrowed from a mapped stream file; its length has been checked against the file.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    bytes: &'a [u8],
}

impl<'a> Record<'a> {
    /// Takes the record at the start of `bytes`.
    ///
    /// Returns `None` where nothing was published (length zero).
    ///
    /// # Errors
    /// A reason, where the length is not one a writer could have stored or the arguments do not fit in it.
    pub fn parse(bytes: &'a [u8]) -> Result<Option<Self>, RecordError> {
        let Some(len_bytes) = u32_at(bytes, offset::LEN) else {
            return Ok(None);
        };
        let len_bytes = len_bytes as usize;
        if len_bytes == 0 {
            return Ok(None);
        }
        if len_bytes < HEADER_BYTES || !len_bytes.is_multiple_of(8) {
            return Err(RecordError::Length { len_bytes });
        }
        let Some(record) = bytes.get(..len_bytes) else {
            return Err(RecordError::Torn { len_bytes, left_bytes: bytes.len() });
        };
        let record = Record { bytes: record };
        if record.api() != marker::PAD {
            if len_bytes > MAX_RECORD_BYTES {
                return Err(RecordError::Length { len_bytes });
            }
            if record.sections_start() > len_bytes {
                return Err(RecordError::Arguments { words: record.word_count(), len_bytes });
            }
        }
        Ok(Some(record))
    }

    /// Length in bytes, header included.
    pub fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The whole record.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// API id in the archive's catalogue, or a [`marker`].
    pub fn api(&self) -> u16 {
        u16::from_le_bytes([self.bytes[offset::API], self.bytes[offset::API + 1]])
    }

    /// Flag byte (see [`flag`]).
    pub fn flags(&self) -> u8 {
        self.bytes[offset::FLAGS]
    }

    /// Whether the call had not returned when the archive ended.
    pub fn in_flight(&self) -> bool {
        self.flags() & flag::IN_FLIGHT != 0
    }

    /// Number of argument words.
    pub fn word_count(&self) -> usize {
        usize::from(self.bytes[offset::WORDS])
    }

    /// Entry tick.
    pub fn begin(&self) -> u64 {
        self.fixed(offset::BEGIN)
    }

    /// Return tick; zero while in flight.
    pub fn end(&self) -> u64 {
        self.fixed(offset::END)
    }

    /// Return code.
    pub fn ret(&self) -> i32 {
        self.fixed(offset::RET) as u32 as i32
    }

    /// Auxiliary number.
    pub fn aux(&self) -> u32 {
        (self.fixed(offset::RET) >> 32) as u32
    }

    /// Number of the kernel a launch names, where it is known.
    pub fn kernel(&self) -> Option<u32> {
        if self.polls() > 0 || self.device_after().is_some() { None } else { self.aux().checked_sub(1) }
    }

    /// The device that was current on the thread once the call had returned, where the record tells.
    pub fn device_after(&self) -> Option<i32> {
        let tells = self.aux() & DEVICE_AFTER != 0 && self.polls() == 0;
        tells.then_some((self.aux() & !DEVICE_AFTER) as i32)
    }

    /// How often in a row a query was answered "not ready"; zero for any other call.
    pub fn polls(&self) -> u32 {
        /// `hipErrorNotReady`, which no launch returns.
        const NOT_READY: i32 = 600;
        if self.ret() == NOT_READY { self.aux() } else { 0 }
    }

    /// Argument word `index`, or zero where the record has fewer.
    pub fn word(&self, index: usize) -> u64 {
        if index < self.word_count() { self.fixed(HEADER_BYTES + index * 8) } else { 0 }
    }

    /// Why the call is left out, refused or added, where a conversion says so.
    pub fn note(&self) -> Option<&'a str> {
        std::str::from_utf8(self.section_tagged(SectionTag::Note)?.payload).ok()
    }

    /// All argument words.
    pub fn words(&self) -> impl Iterator<Item = u64> + 'a {
        let words = &self.bytes[HEADER_BYTES..self.sections_start()];
        words.chunks_exact(8).map(|word| word.first_chunk().map_or(0, |word| u64::from_le_bytes(*word)))
    }

    /// The sections. Iteration ends with an error at the first one that is malformed.
    pub fn sections(&self) -> Sections<'a> {
        Sections { rest: &self.bytes[self.sections_start()..] }
    }

    /// The first well-formed section with this tag and parameter.
    pub fn section(&self, tag: SectionTag, param: u8) -> Option<Section<'a>> {
        self.sections().map_while(Result::ok).find(|section| section.tag == tag && section.param == param)
    }

    /// The first well-formed section with this tag.
    pub fn section_tagged(&self, tag: SectionTag) -> Option<Section<'a>> {
        self.sections().map_while(Result::ok).find(|section| section.tag == tag)
    }

    fn sections_start(&self) -> usize {
        HEADER_BYTES + self.word_count() * 8
    }

    /// Reads 8 bytes at an offset that [`Self::parse`] has checked to be inside the record.
    fn fixed(&self, at: usize) -> u64 {
        u64_at(self.bytes, at).unwrap_or(0)
    }
}

impl std::fmt::Debug for Record<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Record")
            .field("api", &self.api())
            .field("flags", &self.flags())
            .field("begin", &self.begin())
            .field("end", &self.end())
            .field("ret", &self.ret())
            .field("words", &self.words().collect::<Vec<_>>())
            .finish()
    }
}

/// Iterator over a record's sections.
#[derive(Clone, Debug)]
pub struct Sections<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Sections<'a> {
    type Item = Result<Section<'a>, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let parsed = (|| {
            let header = self.rest.first_chunk::<SECTION_HEADER_BYTES>().ok_or("its header is cut off")?;
            let len_bytes = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
            let tag = SectionTag::from_u8(header[0]).ok_or("its tag is unknown")?;
            let padded = len_bytes.checked_next_multiple_of(8).ok_or("its length overflows")?;
            let body = self.rest.get(SECTION_HEADER_BYTES..).unwrap_or_default();
            let payload = body.get(..len_bytes).ok_or("it runs past its record")?;
            let rest = body.get(padded..).ok_or("its padding runs past its record")?;
            Ok((Section { tag, param: header[1], presence: Presence::from_u8(header[2]), payload }, rest))
        })();
        match parsed {
            Ok((section, rest)) => {
                self.rest = rest;
                Some(Ok(section))
            }
            Err(reason) => {
                self.rest = &[];
                Some(Err(RecordError::Section { reason }))
            }
        }
    }
}

/// Why bytes are not a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The stored length cannot be right.
    #[error("a record says it is {len_bytes} bytes long, which no record is")]
    Length {
        /// The stored length.
        len_bytes: usize,
    },
    /// The record runs past the end of the file.
    #[error("a record of {len_bytes} bytes is cut off after {left_bytes}")]
    Torn {
        /// The stored length.
        len_bytes: usize,
        /// Bytes left in the file.
        left_bytes: usize,
    },
    /// The argument words do not fit.
    #[error("a record of {len_bytes} bytes cannot hold its {words} argument words")]
    Arguments {
        /// The stored word count.
        words: usize,
        /// The record's length.
        len_bytes: usize,
    },
    /// A section is malformed.
    #[error("a section is malformed: {reason}")]
    Section {
        /// What is wrong with it.
        reason: &'static str,
    },
}

/// Size of a section with a payload of `len_bytes`, header and padding included.
pub const fn section_bytes(len_bytes: usize) -> usize {
    SECTION_HEADER_BYTES + len_bytes.next_multiple_of(8)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `hipMalloc(&p, 16)` with its out section, byte by byte.
    #[rustfmt::skip]
    const MALLOC: [u8; 64] = [
        64, 0, 0, 0,  215, 0,  0,  2,
        5, 0, 0, 0, 0, 0, 0, 0,
        9, 0, 0, 0, 0, 0, 0, 0,
        2, 0, 0, 0,  0, 0, 0, 0,
        0xf0, 0xff, 0, 0, 0, 0, 0, 0,
        16, 0, 0, 0, 0, 0, 0, 0,
        2, 0, 1, 0,  8, 0, 0, 0,
        0, 0x10, 0, 0, 0, 0, 0, 0,
    ];

    #[test]
    fn a_record_reads_as_its_bytes_say() {
        let record = Record::parse(&MALLOC).unwrap().unwrap();
        assert_eq!((record.api(), record.begin(), record.end(), record.ret()), (215, 5, 9, 2));
        assert_eq!(record.words().collect::<Vec<_>>(), [0xfff0, 16]);
        let out = record.section(SectionTag::Out, 0).unwrap();
        assert_eq!((out.presence, out.payload), (Presence::Present, &[0, 0x10, 0, 0, 0, 0, 0, 0][..]));
    }

    #[test]
    fn every_cut_is_refused_or_unpublished() {
        for cut in 0..MALLOC.len() {
            match Record::parse(&MALLOC[..cut]) {
                Ok(None) => assert!(cut < 4),
                Err(RecordError::Torn { .. }) => {}
                other => panic!("cut at {cut}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_section_that_runs_past_its_record_is_an_error() {
        let mut bytes = MALLOC;
        bytes[52] = 9;
        let record = Record::parse(&bytes).unwrap().unwrap();
        assert!(record.sections().any(|section| section.is_err()));
        assert!(record.section(SectionTag::Out, 0).is_none());
    }
}
