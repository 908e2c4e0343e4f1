//! The index of a blob store: which contents each number has, and where they lie.
//!
//! It begins with a header:
//!
//! | offset | type | field |
//! |---|---|---|
//! | 0 | u8\[8\] | magic `HRR-BLX\n` |
//! | 8 | u32 | format version ([`VERSION`]) |
//! | 12 | | zero up to 64 |
//!
//! and continues with entries of 64 bytes, each appended by a single write:
//!
//! | offset | type | field |
//! |---|---|---|
//! | 0 | u64 | number, as a [`BlobRef`](crate::record::BlobRef) has it |
//! | 8 | u8\[32\] | BLAKE3-256 of the contents |
//! | 40 | u32 | pack `n` the contents lie in |
//! | 44 | u32 | flags: zero |
//! | 48 | u64 | offset in the pack in bytes, a multiple of 64 |
//! | 56 | u64 | length in bytes |

use std::path::Path;

use super::{BlobError, missing_or};
use crate::source::{Bytes, Source};

/// First eight bytes of an index.
pub const MAGIC: [u8; 8] = *b"HRR-BLX\n";
/// Version of the layout of index and packs.
pub const VERSION: u32 = 1;
/// Size of the index header in bytes.
pub const HEADER_BYTES: usize = 64;
/// Size of an index entry in bytes.
pub const ENTRY_BYTES: usize = 64;

/// Byte offsets of the fields of an index entry.
pub mod offset {
    /// Blob number.
    pub const NUMBER: usize = 0;
    /// BLAKE3-256.
    pub const HASH: usize = 8;
    /// Pack number.
    pub const PACK: usize = 40;
    /// Flags.
    pub const FLAGS: usize = 44;
    /// Offset in the pack.
    pub const OFFSET: usize = 48;
    /// Length.
    pub const LEN: usize = 56;
}

/// The header an index begins with.
pub fn index_header() -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes
}

/// One entry of an index: where the contents of one number lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// Blob number.
    pub number: u64,
    /// BLAKE3-256 of the contents.
    pub hash: [u8; 32],
    /// Pack the contents lie in.
    pub pack: u32,
    /// Offset in the pack in bytes.
    pub offset_bytes: u64,
    /// Length in bytes.
    pub len_bytes: u64,
}

impl IndexEntry {
    /// The bytes in the index.
    pub fn to_bytes(&self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[offset::NUMBER..][..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[offset::HASH..][..32].copy_from_slice(&self.hash);
        bytes[offset::PACK..][..4].copy_from_slice(&self.pack.to_le_bytes());
        bytes[offset::OFFSET..][..8].copy_from_slice(&self.offset_bytes.to_le_bytes());
        bytes[offset::LEN..][..8].copy_from_slice(&self.len_bytes.to_le_bytes());
        bytes
    }

    /// Reads an entry; `None` where it carries flags that this version does not have.
    pub fn parse(bytes: &[u8; ENTRY_BYTES]) -> Option<Self> {
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        if u32_at(offset::FLAGS) != 0 {
            return None;
        }
        let mut hash = [0; 32];
        hash.copy_from_slice(&bytes[offset::HASH..offset::PACK]);
        Some(IndexEntry {
            number: u64_at(offset::NUMBER),
            hash,
            pack: u32_at(offset::PACK),
            offset_bytes: u64_at(offset::OFFSET),
            len_bytes: u64_at(offset::LEN),
        })
    }
}

/// Something wrong with an index that costs single entries and leaves the rest readable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IndexDamage {
    /// The file ends inside an entry.
    #[error(
        "its last entry, at byte {offset_bytes}, is cut off after {left_bytes} of {ENTRY_BYTES} bytes and was ignored"
    )]
    TornEntry {
        /// Where the entry begins.
        offset_bytes: u64,
        /// Bytes there are of it.
        left_bytes: usize,
    },
    /// An entry has flags unknown to this version.
    #[error("the entry at byte {offset_bytes} has unknown flags and was ignored")]
    Flags {
        /// Where the entry begins.
        offset_bytes: u64,
    },
    /// Two entries have the same number; the first counts.
    #[error("number {number} has a second entry, at byte {offset_bytes}, which was ignored")]
    Duplicate {
        /// The number.
        number: u64,
        /// Where the later entry begins.
        offset_bytes: u64,
    },
}

/// A read index: entries by number.
#[derive(Clone, Debug, Default)]
pub struct BlobIndex {
    /// By ascending number, each number once.
    entries: Vec<IndexEntry>,
    damage: Vec<IndexDamage>,
}

impl BlobIndex {
    /// Reads the bytes of an index.
    ///
    /// An empty file is an index whose writer ended before its header, and has no entries.
    ///
    /// # Errors
    /// What is wrong with its header.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let Some((header, body)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Err(format!("it is {} bytes long, shorter than its header of {HEADER_BYTES}", bytes.len()));
        };
        if header[..8] != MAGIC {
            return Err(format!("its first bytes are {:02x?}", &header[..8]));
        }
        let version = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
        if version != VERSION {
            return Err(format!("its format version is {version}; this build reads version {VERSION}"));
        }
        let offset_of = |position: usize| (HEADER_BYTES + position * ENTRY_BYTES) as u64;
        let (whole, torn) = body.as_chunks::<ENTRY_BYTES>();
        let mut damage = Vec::new();
        let mut found = Vec::with_capacity(whole.len());
        for (position, bytes) in whole.iter().enumerate() {
            match IndexEntry::parse(bytes) {
                Some(entry) => found.push((entry, position)),
                None => damage.push(IndexDamage::Flags { offset_bytes: offset_of(position) }),
            }
        }
        // Stable, so that of two entries with one number the earlier comes first and is the one kept.
        found.sort_by_key(|(entry, _)| entry.number);
        let mut entries: Vec<IndexEntry> = Vec::with_capacity(found.len());
        for (entry, position) in found {
            if entries.last().is_some_and(|last| last.number == entry.number) {
                damage.push(IndexDamage::Duplicate { number: entry.number, offset_bytes: offset_of(position) });
            } else {
                entries.push(entry);
            }
        }
        if !torn.is_empty() {
            damage.push(IndexDamage::TornEntry { offset_bytes: offset_of(whole.len()), left_bytes: torn.len() });
        }
        Ok(BlobIndex { entries, damage })
    }

    /// Reads an index file; a missing one has no entries.
    ///
    /// # Errors
    /// [`BlobError::Open`] and [`BlobError::Index`].
    pub fn open(path: &Path) -> Result<Self, BlobError> {
        Self::open_from(&Source::Directory, path)
    }

    pub(crate) fn open_from(source: &Source, path: &Path) -> Result<Self, BlobError> {
        match missing_or(path, source.map(path))?.flatten() {
            None => Ok(Self::default()),
            Some(bytes) => {
                let bytes: Bytes = bytes;
                Self::parse(&bytes).map_err(|reason| BlobError::Index { path: path.to_owned(), reason })
            }
        }
    }

    /// The entry of a number.
    pub fn get(&self, number: u64) -> Option<&IndexEntry> {
        self.entries.get(self.position(number)?)
    }

    /// All entries by ascending number.
    pub fn entries(&self) -> &[IndexEntry] {
        &self.entries
    }

    /// What was wrong with single entries.
    pub fn damage(&self) -> &[IndexDamage] {
        &self.damage
    }

    pub(super) fn position(&self, number: u64) -> Option<usize> {
        // Numbers are given out from zero on, so most entries stand at their own number.
        let guess = usize::try_from(number).ok()?;
        if self.entries.get(guess).is_some_and(|entry| entry.number == number) {
            return Some(guess);
        }
        self.entries.binary_search_by_key(&number, |entry| entry.number).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u64, contents: &[u8], offset_bytes: u64) -> IndexEntry {
        let hash = crate::blob_store::content_hash(contents);
        IndexEntry { number, hash, pack: 0, offset_bytes, len_bytes: contents.len() as u64 }
    }

    #[test]
    fn header_and_entry_lie_as_documented() {
        let mut header = [0; 64];
        header[..12].copy_from_slice(b"HRR-BLX\n\x01\0\0\0");
        assert_eq!(index_header(), header);

        let entry = IndexEntry { number: 0x0102, hash: [7; 32], pack: 3, offset_bytes: 0x40, len_bytes: 5 };
        let mut bytes = [0u8; 64];
        bytes[0] = 2;
        bytes[1] = 1;
        bytes[8..40].fill(7);
        bytes[40] = 3;
        bytes[48] = 0x40;
        bytes[56] = 5;
        assert_eq!(entry.to_bytes(), bytes);
        assert_eq!(IndexEntry::parse(&bytes), Some(entry));
        bytes[44] = 1;
        assert_eq!(IndexEntry::parse(&bytes), None);
    }

    #[test]
    fn a_torn_tail_costs_only_itself() {
        let mut index = index_header().to_vec();
        index.extend(entry(0, b"abc", 0).to_bytes());
        index.extend(entry(0, b"xyz", 64).to_bytes());
        index.extend(&entry(1, b"abc", 0).to_bytes()[..40]);
        let index = BlobIndex::parse(&index).unwrap();
        assert_eq!(index.entries(), [entry(0, b"abc", 0)]);
        assert_eq!(
            index.damage(),
            [
                IndexDamage::Duplicate { number: 0, offset_bytes: 128 },
                IndexDamage::TornEntry { offset_bytes: 192, left_bytes: 40 }
            ]
        );
    }

    #[test]
    fn a_foreign_index_is_refused() {
        assert!(BlobIndex::parse(b"short").unwrap_err().contains("5 bytes long"));
        let mut header = index_header();
        header[8] = 2;
        assert!(BlobIndex::parse(&header).unwrap_err().contains("format version is 2"));
        header[0] = b'X';
        assert!(BlobIndex::parse(&header).unwrap_err().contains("first bytes"));
    }
}
