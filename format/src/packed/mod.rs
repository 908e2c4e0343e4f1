//! Packed archives: a whole archive root in one seekable file, `NAME.hrrz`, read in place.
//!
//! | part | holds |
//! |---|---|
//! | header, 64 bytes | magic `HRR-PCK\n`, u32 version ([`VERSION`]), zeros |
//! | body | the stored bytes of all extents, one after the other |
//! | table of contents | see below, as one zstd frame |
//! | trailer, 64 bytes | see below |
//!
//! The trailer, at the very end of the file:
//!
//! | offset | type | field |
//! |---|---|---|
//! | 0 | u64 | offset of the table of contents |
//! | 8 | u64 | stored length of the table in bytes; the trailer follows it |
//! | 16 | u64 | length of the table in bytes once decompressed |
//! | 24 | u8\[32\] | BLAKE3-256 of the table as stored |
//! | 56 | u8\[8\] | magic `HRR-TOC\n` |
//!
//! The table: u64 number of files, then for each file, by ascending name:
//!
//! | offset | type | field |
//! |---|---|---|
//! | 0 | u64 | length of the file in bytes |
//! | 8 | u64 | number of extents |
//! | 16 | u8\[32\] | BLAKE3-256 of the bytes of its extents, in order |
//! | 48 | u64 | length of its name in bytes |
//! | 56 | u8\[\] | name: a relative path, `/` between its parts |
//! | then | | extents |
//!
//! An extent, 40 bytes: u64 offset in the file, u64 length, u64 offset in the packed file, u64 stored length, u32 [method](Method),
//! u32 zero. Extents are in ascending order in their file, and, over all files, in the packed file. What of a file no
//! extent covers is zeros.
//!
//! Event streams and whatever else compresses are independent zstd frames of at most [`FRAME_BYTES`]; contents that do not
//! compress are stored as they are, aligned, and borrowed from the mapping when they are read. Contents of a blob store
//! begin a new frame unless they are small, so that reading one does not mean unpacking others.

mod layout;
mod reader;
mod unpack;
mod writer;

use std::io;
use std::path::PathBuf;

pub(crate) use reader::WholeFile;
pub use reader::{PackedContent, PackedFile};
pub use unpack::{Unpacked, unpack};
pub use writer::{Packed, pack};

/// First eight bytes of a packed archive.
pub const MAGIC: [u8; 8] = *b"HRR-PCK\n";
/// Last eight bytes of a packed archive.
pub const TRAILER_MAGIC: [u8; 8] = *b"HRR-TOC\n";
/// Version of the layout.
pub const VERSION: u32 = 1;
/// File name extension of packed archives.
pub const EXTENSION: &str = "hrrz";
/// Size of the header in bytes.
pub const HEADER_BYTES: usize = 64;
/// Size of the trailer in bytes.
pub const TRAILER_BYTES: usize = 64;
/// Largest part of a file in bytes that is one zstd frame.
pub const FRAME_BYTES: u64 = 4 << 20;
/// Alignment of stored extents in the packed file in bytes, that of contents in a pack.
pub const ALIGN_BYTES: u64 = 64;
/// Largest table of contents in bytes that a reader unpacks: some tens of millions of extents.
pub const MAX_TABLE_BYTES: u64 = 2 << 30;
/// Most bytes of a file that no extent may cover: unused space at the ends of stream segments and between contents.
pub const MAX_HOLE_BYTES: u64 = 1 << 30;
/// Most bytes that a byte of a zstd frame can stand for: a block of 128 KiB takes four bytes at least.
const MAX_EXPANSION: u64 = 32_768;

/// How an extent is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Method {
    /// As it is.
    Stored = 0,
    /// As one zstd frame.
    Zstd = 1,
}

/// Why a packed archive cannot be read or made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackedError {
    /// The file begins with other bytes.
    #[error("{} is not a packed archive, which --pack makes", path.display())]
    NotPacked {
        /// The file.
        path: PathBuf,
    },
    /// What is to be packed is so already.
    #[error("{} is a packed archive already; --unpack makes a directory of it", path.display())]
    AlreadyPacked {
        /// The file.
        path: PathBuf,
    },
    /// The file's end is not there.
    #[error(
        "{} is a packed archive that is cut short: it ends at byte {len_bytes}, without the table of contents that stands at the end; \
         copy it again, whole, from where it was made",
        path.display()
    )]
    CutShort {
        /// The file.
        path: PathBuf,
        /// Its length in bytes.
        len_bytes: u64,
    },
    /// The file is of another version.
    #[error("{} is a packed archive of version {found}; this build reads version {VERSION}: use the hrr-playback that packed it", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// Something in the file is not as it must be.
    #[error("{} is damaged at byte {offset_bytes}: {reason}; copy it again from where it was made", path.display())]
    Damaged {
        /// The packed file.
        path: PathBuf,
        /// Where, in the packed file.
        offset_bytes: u64,
        /// What is wrong.
        reason: String,
    },
    /// Something is there under the name to be made.
    #[error("{} exists; name a file or directory that does not", path.display())]
    Exists {
        /// The file or directory.
        path: PathBuf,
    },
    /// The system refused.
    #[error("{}: {reason}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        reason: io::Error,
    },
}

impl PackedError {
    pub(crate) fn io(path: &std::path::Path) -> impl Fn(io::Error) -> PackedError + '_ {
        move |reason| PackedError::Io { path: path.to_owned(), reason }
    }
}

/// Puts the hash into the trailer that the table of contents of these bytes has, for tests that change it: without, they
/// would only ever see that the hash is wrong.
#[doc(hidden)]
pub fn make_hash_right(bytes: &mut [u8]) {
    let Some(mut trailer) = bytes.last_chunk().and_then(layout::Trailer::parse) else { return };
    let end = bytes.len() - TRAILER_BYTES;
    let table = usize::try_from(trailer.table_at_bytes).ok().and_then(|at| bytes.get(at..end));
    if let Some(table) = table {
        trailer.hash = *blake3::hash(table).as_bytes();
        bytes[end..].copy_from_slice(&trailer.to_bytes());
    }
}

/// Unpacks a zstd frame whose length is known. The length is checked against what so many bytes can stand for before
/// memory of that size is asked for.
pub(crate) fn decompress(stored: &[u8], len_bytes: u64) -> Result<Vec<u8>, String> {
    let len = checked_len(stored.len() as u64, len_bytes)?;
    let mut bytes = vec![0; len];
    decompress_into(stored, &mut bytes)?;
    Ok(bytes)
}

/// Unpacks a zstd frame over `target`, which it must fill.
pub(crate) fn decompress_into(stored: &[u8], target: &mut [u8]) -> Result<(), String> {
    let written =
        zstd::bulk::decompress_to_buffer(stored, target).map_err(|error| format!("not a zstd frame: {error}"))?;
    if written != target.len() {
        return Err(format!("a frame holds {written} bytes where {} were promised", target.len()));
    }
    Ok(())
}

/// The length of what a frame of `stored_bytes` holds, if it can be that long.
pub(crate) fn checked_len(stored_bytes: u64, len_bytes: u64) -> Result<usize, String> {
    if len_bytes > stored_bytes.saturating_mul(MAX_EXPANSION) {
        return Err(format!("{stored_bytes} bytes cannot unpack to {len_bytes}"));
    }
    usize::try_from(len_bytes).map_err(|_| format!("{len_bytes} bytes are more than fit in memory"))
}
