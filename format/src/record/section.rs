//! The sections of a record: what it holds besides the argument words.
//!
//! | offset | type | field |
//! |---|---|---|
//! | 0 | u8 | tag (see [`SectionTag`]) |
//! | 1 | u8 | parameter index it belongs to; 255 = none |
//! | 2 | u8 | state (see [`Presence`]) |
//! | 3 | u8 | zero |
//! | 4 | u32 | payload length in bytes, before padding |
//! | 8 | bytes | payload, padded with zeros to a multiple of 8 |

use super::RecordError;

/// Size of a section header in bytes.
pub const SECTION_HEADER_BYTES: usize = 8;
/// Parameter index of a section that belongs to no parameter.
pub const NO_PARAM: u8 = 255;

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

/// Which kinds of sections a record has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SectionTags(u32);

impl SectionTags {
    /// Whether there is one with this tag.
    pub fn has(self, tag: SectionTag) -> bool {
        self.0 & 1 << tag as u8 != 0
    }
}

impl FromIterator<SectionTag> for SectionTags {
    fn from_iter<T: IntoIterator<Item = SectionTag>>(tags: T) -> Self {
        SectionTags(tags.into_iter().fold(0, |tags, tag| tags | 1 << tag as u8))
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

/// Iterator over a record's sections.
#[derive(Clone, Debug)]
pub struct Sections<'a> {
    pub(super) rest: &'a [u8],
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
            let tag = SectionTag::from_u8(header[0])
                .ok_or("its tag is unknown; a newer recorder wrote it, or it is damaged")?;
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

/// Size of a section with a payload of `len_bytes`, header and padding included.
pub const fn section_bytes(len_bytes: usize) -> usize {
    SECTION_HEADER_BYTES + len_bytes.next_multiple_of(8)
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..)?.first_chunk().copied()?))
}
