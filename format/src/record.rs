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
//! | then | | sections until `len_bytes` (see [`Section`]) |
//!
//! All integers are little-endian. A record is published at entry with [`flag::IN_FLIGHT`] set and completed in
//! place at return: its thread stores end, return code and out sections, and then clears the flag (release).

mod section;

use section::u64_at;
pub use section::{
    BlobRef, FileId, HostRows, NO_PARAM, Presence, SECTION_HEADER_BYTES, Section, SectionTag, SectionTags, Sections,
    section_bytes,
};

/// Size of the fixed part of a record in bytes.
pub const HEADER_BYTES: usize = 32;
/// Largest record a writer makes; longer payloads go to the blob store. A reader refuses longer ones.
pub const MAX_RECORD_BYTES: usize = 1 << 20;

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

    /// The tags of its well-formed sections.
    pub fn section_tags(&self) -> SectionTags {
        self.sections().map_while(Result::ok).map(|section| section.tag).collect()
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
    /// Nothing was published here, in a file that was closed with more in it.
    #[error("no record is there, though the file was closed with {used_bytes} bytes in use")]
    Missing {
        /// Bytes that its header counts.
        used_bytes: u64,
    },
    /// A section is malformed.
    #[error("a section is malformed: {reason}")]
    Section {
        /// What is wrong with it.
        reason: &'static str,
    },
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..)?.first_chunk().copied()?))
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
        let tags = record.section_tags();
        assert_eq!((tags.has(SectionTag::Out), tags.has(SectionTag::In)), (true, false));
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
