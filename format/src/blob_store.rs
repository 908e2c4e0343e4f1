//! A blob store: contents by number, each kept once.
//!
//! `blobs/` and `code_objects/` of a process archive have the same layout: an `index` and packs.
//!
//! The index has an entry for each number (see [`BlobIndex`]).
//!
//! `pack-<n>.bin` holds contents back to back, each at an aligned offset. Equal contents are stored once: their entries
//! point at the same place. Entries come in any order of number; a number without an entry was never written. All
//! integers are little-endian.
//!
//! A pack is mapped, not loaded, when something in it is first asked for, and the hash of each stored content is
//! checked on its first use.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::source::{Content, Source};

mod copying;
mod index;

pub use index::{BlobIndex, ENTRY_BYTES, HEADER_BYTES, IndexDamage, IndexEntry, MAGIC, VERSION, index_header, offset};

/// Alignment of contents in a pack in bytes.
pub const ALIGN_BYTES: u64 = 64;
/// Length in bytes at which a writer begins the next pack; a single content may be longer.
pub const PACK_BYTES: u64 = 1 << 30;
/// File name of the index.
pub const INDEX_FILE: &str = "index";
/// Directory of host contents in a process archive.
pub const BLOBS_DIR: &str = "blobs";
/// Directory of code objects in a process archive.
pub const CODE_OBJECTS_DIR: &str = "code_objects";
/// What stands for the hash of contents that were withheld.
pub const WITHHELD_HASH: [u8; 32] = [0xff; 32];

/// The file name of a pack.
pub fn pack_file_name(pack: u32) -> String {
    format!("pack-{pack}.bin")
}

/// The hash under which contents are stored.
pub fn content_hash(contents: &[u8]) -> [u8; 32] {
    *blake3::hash(contents).as_bytes()
}

/// Why an index or a content cannot be read. Every message names the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BlobError {
    /// A file could not be opened or mapped.
    #[error("{} cannot be read: {reason}; look at its owner and mode, or copy the archive again, whole", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        reason: String,
    },
    /// The file is not an index.
    #[error("{} is not a blob index: {reason}", path.display())]
    Index {
        /// The file.
        path: PathBuf,
        /// What is wrong with its header.
        reason: String,
    },
    /// The contents lie outside their pack.
    #[error(
        "blob {number} should lie at bytes {offset_bytes}+{len_bytes} of {}, which is {pack_bytes} bytes long",
        path.display()
    )]
    Bounds {
        /// Blob number.
        number: u64,
        /// The pack.
        path: PathBuf,
        /// Offset in the pack.
        offset_bytes: u64,
        /// Length of the contents.
        len_bytes: u64,
        /// Length of the pack.
        pack_bytes: u64,
    },
    /// The contents are not what was written.
    #[error("blob {number} at byte {offset_bytes} of {} is damaged: its hash is not the one in the index", path.display())]
    Hash {
        /// Blob number.
        number: u64,
        /// The pack.
        path: PathBuf,
        /// Offset in the pack.
        offset_bytes: u64,
    },
}

/// A store opened for reading. It may be shared between threads.
#[derive(Debug)]
pub struct BlobStore {
    source: Source,
    dir: PathBuf,
    index: BlobIndex,
    /// Per entry, the position of the first entry with the same contents: hashes are checked once per content.
    canonical: Vec<u32>,
    /// Per entry, whether its hash was found right; used at canonical positions only.
    verified: Vec<AtomicBool>,
    packs: HashMap<u32, Pack>,
}

/// Where the contents of a number are.
struct Found<'a> {
    entry: &'a IndexEntry,
    pack: &'a Pack,
    /// Whether the hash was found right.
    verified: &'a AtomicBool,
}

#[derive(Debug)]
struct Pack {
    path: PathBuf,
    /// `None` within: an empty file.
    content: OnceLock<Result<Option<Content>, BlobError>>,
}

impl BlobStore {
    /// Opens the store in a directory. A directory that is not there holds nothing, as in an archive without contents.
    ///
    /// # Errors
    /// Why its index cannot be read. Packs are looked at when they are first needed.
    pub fn open(dir: &Path) -> Result<Self, BlobError> {
        Self::open_from(Source::Directory, dir)
    }

    pub(crate) fn open_from(source: Source, dir: &Path) -> Result<Self, BlobError> {
        let index = BlobIndex::open_from(&source, &dir.join(INDEX_FILE))?;
        let mut packs = HashMap::new();
        let mut first = HashMap::new();
        let mut canonical = Vec::with_capacity(index.entries().len());
        for (position, entry) in index.entries().iter().enumerate() {
            packs
                .entry(entry.pack)
                .or_insert_with(|| Pack { path: dir.join(pack_file_name(entry.pack)), content: OnceLock::new() });
            // An index is a mapped file, so its entries number far below 2^32 on any machine that can hold it.
            let position = u32::try_from(position).unwrap_or(u32::MAX);
            let place = (entry.pack, entry.offset_bytes, entry.len_bytes, entry.hash);
            canonical.push(*first.entry(place).or_insert(position));
        }
        let verified = canonical.iter().map(|_| AtomicBool::new(false)).collect();
        Ok(BlobStore { source, dir: dir.to_owned(), index, canonical, verified, packs })
    }

    /// Where the store lies.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Its index.
    pub fn index(&self) -> &BlobIndex {
        &self.index
    }

    /// How many numbers have contents.
    pub fn len(&self) -> usize {
        self.index.entries().len()
    }

    /// Whether no number has contents.
    pub fn is_empty(&self) -> bool {
        self.index.entries().is_empty()
    }

    /// The hash of a number's contents; [`WITHHELD_HASH`] for [`BlobRef::WITHHELD`](crate::record::BlobRef::WITHHELD).
    pub fn hash(&self, number: u64) -> Option<[u8; 32]> {
        if number == crate::record::BlobRef::WITHHELD {
            return Some(WITHHELD_HASH);
        }
        self.index.get(number).map(|entry| entry.hash)
    }

    /// Length in bytes of a number's contents, as the index has it.
    pub fn len_bytes(&self, number: u64) -> Option<u64> {
        self.index.get(number).map(|entry| entry.len_bytes)
    }

    /// The first entry of each distinct content.
    pub fn distinct(&self) -> impl Iterator<Item = &IndexEntry> {
        let is_first = |position: usize| self.canonical[position] as usize == position;
        self.index.entries().iter().enumerate().filter(move |&(position, _)| is_first(position)).map(|(_, entry)| entry)
    }

    /// Distinct contents and the bytes they take.
    pub fn stored(&self) -> Stored {
        let mut stored = Stored::default();
        for entry in self.distinct() {
            stored.contents += 1;
            stored.bytes = stored.bytes.saturating_add(entry.len_bytes);
        }
        stored
    }

    /// The contents of a number, or `None` where it has none: borrowed from the mapped pack, or unpacked where a packed
    /// archive has them compressed. The first use of a content checks its hash.
    ///
    /// # Errors
    /// A pack that cannot be read or is too short, and contents that do not have the hash the index gives.
    pub fn get(&self, number: u64) -> Result<Option<Cow<'_, [u8]>>, BlobError> {
        let Some(Found { entry, pack, verified }) = self.find(number) else {
            return Ok(None);
        };
        let contents = self.contents(entry, pack)?;
        // Relaxed: the flag carries no data. The bytes it vouches for come from a read-only mapping that the OnceLock
        // published, and a thread that misses the flag only hashes once more.
        if !verified.load(Ordering::Relaxed) {
            if content_hash(&contents) != entry.hash {
                return Err(BlobError::Hash { number, path: pack.path.clone(), offset_bytes: entry.offset_bytes });
            }
            verified.store(true, Ordering::Relaxed);
        }
        Ok(Some(contents))
    }

    /// Whether the contents of a number are there, in their length; their hash is not looked at. `Ok(false)`: it has none.
    ///
    /// # Errors
    /// A pack that cannot be read or is too short.
    pub fn holds(&self, number: u64) -> Result<bool, BlobError> {
        let Some(Found { entry, pack, .. }) = self.find(number) else {
            return Ok(false);
        };
        if entry.len_bytes == 0 {
            return Ok(true);
        }
        let pack_bytes = self.opened(pack)?.as_ref().map_or(0, Content::len_bytes);
        match entry.offset_bytes.checked_add(entry.len_bytes) {
            Some(end) if end <= pack_bytes => Ok(true),
            _ => Err(BlobError::Bounds {
                number,
                path: pack.path.clone(),
                offset_bytes: entry.offset_bytes,
                len_bytes: entry.len_bytes,
                pack_bytes,
            }),
        }
    }

    fn find(&self, number: u64) -> Option<Found<'_>> {
        let position = self.index.position(number)?;
        let entry = &self.index.entries()[position];
        let verified = &self.verified[self.canonical[position] as usize];
        Some(Found { entry, pack: &self.packs[&entry.pack], verified })
    }

    /// A pack's content; `None` within: an empty file.
    fn opened<'a>(&self, pack: &'a Pack) -> Result<&'a Option<Content>, BlobError> {
        let open = || {
            let missing = || BlobError::Open { path: pack.path.clone(), reason: "it is not there".to_owned() };
            missing_or(&pack.path, self.source.content(&pack.path))?.ok_or_else(missing)
        };
        pack.content.get_or_init(open).as_ref().map_err(Clone::clone)
    }

    fn contents<'a>(&'a self, entry: &IndexEntry, pack: &'a Pack) -> Result<Cow<'a, [u8]>, BlobError> {
        if entry.len_bytes == 0 {
            return Ok(Cow::Borrowed(&[]));
        }
        let content = self.opened(pack)?;
        let found = match content {
            Some(content) => content.slice(entry.offset_bytes, entry.len_bytes),
            None => Ok(None),
        };
        match found {
            Ok(Some(contents)) => Ok(contents),
            Ok(None) => Err(BlobError::Bounds {
                number: entry.number,
                path: pack.path.clone(),
                offset_bytes: entry.offset_bytes,
                len_bytes: entry.len_bytes,
                pack_bytes: content.as_ref().map_or(0, Content::len_bytes),
            }),
            Err(error) => Err(BlobError::Open { path: pack.path.clone(), reason: error.to_string() }),
        }
    }
}

/// Has the whole pages within a part of a mapped file not be resident any more; they come back when they are read again.
fn give_pages_back(mapped: &[u8]) {
    const PAGE_BYTES: usize = 4096;
    let begin = (mapped.as_ptr() as usize).next_multiple_of(PAGE_BYTES);
    let end = (mapped.as_ptr() as usize + mapped.len()) / PAGE_BYTES * PAGE_BYTES;
    if begin < end {
        // SAFETY: the pages lie within a mapping of a file that is only read, so dropping them loses nothing: who reads them
        // next, on any thread, gets the file's contents again.
        unsafe { libc::madvise(begin as *mut libc::c_void, end - begin, libc::MADV_DONTNEED) };
    }
}

/// What a store holds, equal contents counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// Distinct contents.
    pub contents: u64,
    /// Bytes they take.
    pub bytes: u64,
}

/// What a file's opening came to, `None` where there is no such file.
fn missing_or<T>(path: &Path, opened: std::io::Result<T>) -> Result<Option<T>, BlobError> {
    match opened {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(BlobError::Open { path: path.to_owned(), reason: error.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u64, contents: &[u8], offset_bytes: u64) -> IndexEntry {
        IndexEntry { number, hash: content_hash(contents), pack: 0, offset_bytes, len_bytes: contents.len() as u64 }
    }

    fn store(entries: &[IndexEntry], pack: &[u8]) -> (tempfile::TempDir, Result<BlobStore, BlobError>) {
        let dir = tempfile::tempdir().unwrap();
        let mut index = index_header().to_vec();
        for entry in entries {
            index.extend(entry.to_bytes());
        }
        std::fs::write(dir.path().join(INDEX_FILE), index).unwrap();
        std::fs::write(dir.path().join("pack-0.bin"), pack).unwrap();
        let store = BlobStore::open(dir.path());
        (dir, store)
    }

    #[test]
    fn contents_come_back_by_number_in_any_order_and_shared() {
        let mut pack = vec![0; 64 + 5];
        pack[..3].copy_from_slice(b"abc");
        pack[64..].copy_from_slice(b"hello");
        let (_dir, store) =
            store(&[entry(9, b"hello", 64), entry(0, b"abc", 0), entry(1, b"abc", 0), entry(2, b"", 64)], &pack);
        let store = store.unwrap();
        assert_eq!(store.get(0).unwrap().as_deref(), Some(&b"abc"[..]));
        assert_eq!(store.get(1).unwrap().as_deref(), Some(&b"abc"[..]));
        assert_eq!(store.get(2).unwrap().as_deref(), Some(&b""[..]));
        assert_eq!(store.get(9).unwrap().as_deref(), Some(&b"hello"[..]));
        assert_eq!(store.get(3), Ok(None));
        assert_eq!(store.len_bytes(9), Some(5));
        assert_eq!(store.hash(9), Some(content_hash(b"hello")));
        assert_eq!(store.hash(u64::MAX), Some(WITHHELD_HASH));
        assert_eq!(store.stored(), Stored { contents: 3, bytes: 8 });
        assert!(store.index().damage().is_empty());
    }

    #[test]
    fn damaged_contents_are_refused_by_name() {
        let (dir, store) = store(&[entry(4, b"abc", 0), entry(5, b"abcdefgh", 0)], b"abX");
        let store = store.unwrap();
        let pack = dir.path().join("pack-0.bin");
        assert_eq!(store.get(4), Err(BlobError::Hash { number: 4, path: pack.clone(), offset_bytes: 0 }));
        assert_eq!(
            store.get(5),
            Err(BlobError::Bounds { number: 5, path: pack, offset_bytes: 0, len_bytes: 8, pack_bytes: 3 })
        );
    }

    #[test]
    fn contents_are_copied_whole_and_checked() {
        // More than one piece, which does not begin at a page of its pack; one that is a part; one that is less.
        let contents: Vec<u8> = (0..33u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let mut pack = vec![9; 64];
        pack.extend(&contents);
        let (part, short) = (&contents[..1 << 20], &contents[..77]);
        let wrong = |number, contents| IndexEntry { hash: content_hash(b"other"), ..entry(number, contents, 64) };
        let entries = [
            entry(0, &contents, 64),
            entry(1, b"", 0),
            wrong(2, &contents),
            entry(3, part, 64),
            entry(4, short, 64),
            wrong(5, short),
        ];
        let (dir, store) = store(&entries, &pack);
        let store = store.unwrap();
        let copied = |number| {
            let mut target = vec![7; contents.len() + 1];
            (store.copy_to(number, &mut target), target)
        };
        // Again, from pages that were given back, with hashes that are known to be right.
        for _ in 0..2 {
            for (number, expected) in [(0, &contents[..]), (3, part), (4, short)] {
                let (result, target) = copied(number);
                assert_eq!(result, Ok(Some(expected.len())));
                assert!(target[..expected.len()] == *expected && target[expected.len()] == 7);
            }
        }
        assert_eq!(store.get(0).unwrap().as_deref(), Some(&contents[..]));
        assert_eq!(copied(1).0, Ok(Some(0)));
        assert_eq!(copied(7).0, Ok(None));
        for number in [2, 5] {
            let path = dir.path().join("pack-0.bin");
            assert_eq!(copied(number).0, Err(BlobError::Hash { number, path, offset_bytes: 64 }));
        }
        let mut too_short = [7; 76];
        assert_eq!((store.copy_to(4, &mut too_short), too_short), (Ok(Some(77)), [7; 76]));
    }

    #[test]
    fn places_that_overflow_or_packs_that_are_missing_are_errors() {
        let far = IndexEntry { offset_bytes: u64::MAX, ..entry(0, b"abc", 0) };
        let missing = IndexEntry { pack: u32::MAX, ..entry(1, b"abc", 0) };
        let (_dir, store) = store(&[far, missing], b"abc");
        let store = store.unwrap();
        assert!(matches!(store.get(0), Err(BlobError::Bounds { .. })));
        let message = store.get(1).unwrap_err().to_string();
        assert!(message.contains("pack-4294967295.bin cannot be read: it is not there"), "{message}");
    }

    #[test]
    fn a_missing_store_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        let store = BlobStore::open(&dir.path().join("blobs")).unwrap();
        assert!(store.is_empty());
        assert_eq!(store.get(0), Ok(None));
    }
}
