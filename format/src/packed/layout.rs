//! The table of contents as bytes, written and read.

use super::{FRAME_BYTES, MAX_HOLE_BYTES, Method, TRAILER_BYTES, TRAILER_MAGIC, checked_len};

/// Size of an extent in the table in bytes.
const EXTENT_BYTES: usize = 40;
/// Size of a file's fixed part in the table in bytes.
const FILE_BYTES: usize = 56;
/// Longest name in bytes.
const MAX_NAME_BYTES: u64 = 4096;

/// A part of a file and where it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// Offset in the file in bytes.
    pub(super) offset_bytes: u64,
    /// Length in bytes.
    pub(super) len_bytes: u64,
    /// Offset in the packed file in bytes.
    pub(super) at_bytes: u64,
    /// Length there in bytes.
    pub(super) stored_bytes: u64,
    /// How it is stored.
    pub(super) method: Method,
}

impl Extent {
    /// Offset of the first byte after it in the file.
    pub(super) fn end_bytes(&self) -> u64 {
        self.offset_bytes.saturating_add(self.len_bytes)
    }
}

/// A file of the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct File {
    /// Relative path.
    pub(super) name: String,
    /// Length in bytes.
    pub(super) len_bytes: u64,
    /// BLAKE3-256 of the bytes of its extents, in order.
    pub(super) hash: [u8; 32],
    /// Its parts by ascending offset.
    pub(super) extents: Vec<Extent>,
}

/// The bytes of a table.
pub(super) fn encode(files: &[File]) -> Vec<u8> {
    let mut bytes = (files.len() as u64).to_le_bytes().to_vec();
    for file in files {
        bytes.extend(file.len_bytes.to_le_bytes());
        bytes.extend((file.extents.len() as u64).to_le_bytes());
        bytes.extend(file.hash);
        bytes.extend((file.name.len() as u64).to_le_bytes());
        bytes.extend(file.name.as_bytes());
        for extent in &file.extents {
            for value in [extent.offset_bytes, extent.len_bytes, extent.at_bytes, extent.stored_bytes] {
                bytes.extend(value.to_le_bytes());
            }
            bytes.extend(u64::from(extent.method as u32).to_le_bytes());
        }
    }
    bytes
}

/// Reads a table whose extents lie in the first `body_bytes` of the packed file.
pub(super) fn decode(table: &[u8], body_bytes: u64) -> Result<Vec<File>, String> {
    let mut reader = Reader { rest: table };
    let count = reader.u64()?;
    let mut files: Vec<File> = Vec::with_capacity(reader.room_for(count, FILE_BYTES)?);
    let mut free_at = super::HEADER_BYTES as u64;
    for _ in 0..count {
        let (len_bytes, extent_count) = (reader.u64()?, reader.u64()?);
        let hash: [u8; 32] = reader.array()?;
        let name_len = reader.u64()?;
        if name_len > MAX_NAME_BYTES {
            return Err(format!("a name is {name_len} bytes long"));
        }
        let name = reader.take(name_len as usize)?;
        let name = std::str::from_utf8(name).map_err(|_| "a name is not UTF-8".to_owned())?.to_owned();
        check_name(&name)?;
        if files.last().is_some_and(|last| last.name >= name) {
            return Err(format!("{name:?} is out of order"));
        }
        let mut extents = Vec::with_capacity(reader.room_for(extent_count, EXTENT_BYTES)?);
        let (mut end, mut covered) = (0u64, 0u64);
        for _ in 0..extent_count {
            let extent = reader.extent()?;
            check_extent(&extent, end, free_at, body_bytes).map_err(|reason| format!("{name}: {reason}"))?;
            end = extent.end_bytes();
            covered += extent.len_bytes;
            free_at = extent.at_bytes + extent.stored_bytes;
            extents.push(extent);
        }
        if end > len_bytes {
            return Err(format!("{name}: its parts end at byte {end} of {len_bytes}"));
        }
        if len_bytes - covered > MAX_HOLE_BYTES {
            return Err(format!("{name}: {covered} of its {len_bytes} bytes are there"));
        }
        files.push(File { name, len_bytes, hash, extents });
    }
    if !reader.rest.is_empty() {
        return Err(format!("{} bytes follow the last file", reader.rest.len()));
    }
    Ok(files)
}

fn check_extent(extent: &Extent, after: u64, free_at: u64, body_bytes: u64) -> Result<(), String> {
    let end = extent.offset_bytes.checked_add(extent.len_bytes);
    let stored_end = extent.at_bytes.checked_add(extent.stored_bytes);
    // Each stored byte belongs to one extent, so what all of them unpack to is bounded by the size of the packed file.
    if extent.offset_bytes < after || extent.at_bytes < free_at {
        return Err("its parts are out of order".to_owned());
    }
    if end.is_none() || stored_end.is_none_or(|end| end > body_bytes) {
        return Err(format!("a part at byte {} lies outside the file", extent.at_bytes));
    }
    match extent.method {
        Method::Stored if extent.stored_bytes != extent.len_bytes => Err("a stored part changes its length".to_owned()),
        Method::Stored => Ok(()),
        Method::Zstd if extent.len_bytes > FRAME_BYTES => {
            Err(format!("a frame of {} bytes is longer than frames are", extent.len_bytes))
        }
        Method::Zstd => checked_len(extent.stored_bytes, extent.len_bytes).map(|_| ()),
    }
}

/// A name is a relative path that stays below where it begins.
fn check_name(name: &str) -> Result<(), String> {
    let is_part = |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains('\0');
    if name.split('/').all(is_part) { Ok(()) } else { Err(format!("{name:?} is no name of a file in an archive")) }
}

/// What the end of a packed file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trailer {
    pub(super) table_at_bytes: u64,
    pub(super) stored_bytes: u64,
    pub(super) len_bytes: u64,
    pub(super) hash: [u8; 32],
}

impl Trailer {
    pub(super) fn to_bytes(self) -> [u8; TRAILER_BYTES] {
        let mut bytes = [0; TRAILER_BYTES];
        bytes[..8].copy_from_slice(&self.table_at_bytes.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.stored_bytes.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.len_bytes.to_le_bytes());
        bytes[24..56].copy_from_slice(&self.hash);
        bytes[56..].copy_from_slice(&TRAILER_MAGIC);
        bytes
    }

    pub(super) fn parse(bytes: &[u8; TRAILER_BYTES]) -> Option<Self> {
        let mut reader = Reader { rest: bytes };
        let trailer = Trailer {
            table_at_bytes: reader.u64().ok()?,
            stored_bytes: reader.u64().ok()?,
            len_bytes: reader.u64().ok()?,
            hash: reader.array().ok()?,
        };
        (reader.rest == TRAILER_MAGIC).then_some(trailer)
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or("it ends too early")?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or("it ends too early")?;
        self.rest = rest;
        Ok(*taken)
    }

    fn u64(&mut self) -> Result<u64, String> {
        self.array().map(u64::from_le_bytes)
    }

    fn extent(&mut self) -> Result<Extent, String> {
        let [offset_bytes, len_bytes, at_bytes, stored_bytes] = [self.u64()?, self.u64()?, self.u64()?, self.u64()?];
        let method = match self.u64()? {
            0 => Method::Stored,
            1 => Method::Zstd,
            other => return Err(format!("a part is stored by method {other}, which is none")),
        };
        Ok(Extent { offset_bytes, len_bytes, at_bytes, stored_bytes, method })
    }

    /// A count of items of at least `item_bytes` each, if so many can follow.
    fn room_for(&self, count: u64, item_bytes: usize) -> Result<usize, String> {
        let most = self.rest.len() / item_bytes;
        usize::try_from(count).ok().filter(|&count| count <= most).ok_or_else(|| "it ends too early".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, extents: &[Extent]) -> File {
        let len_bytes = extents.last().map_or(0, Extent::end_bytes);
        File { name: name.to_owned(), len_bytes, hash: [3; 32], extents: extents.to_vec() }
    }

    fn stored(offset_bytes: u64, len_bytes: u64, at_bytes: u64) -> Extent {
        Extent { offset_bytes, len_bytes, at_bytes, stored_bytes: len_bytes, method: Method::Stored }
    }

    #[test]
    fn a_table_lies_as_documented_and_reads_back() {
        let files = [file("a", &[stored(8, 4, 64)]), file("b/c", &[])];
        let bytes = encode(&files);
        assert_eq!(bytes.len(), 8 + FILE_BYTES + 1 + EXTENT_BYTES + FILE_BYTES + 3);
        assert_eq!(bytes[..24], [2, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[8 + FILE_BYTES], b'a');
        assert_eq!(bytes[8 + FILE_BYTES + 1], 8);
        assert_eq!(decode(&bytes, 100), Ok(files.to_vec()));
        for cut in 0..bytes.len() {
            assert!(decode(&bytes[..cut], 100).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn tables_that_would_reach_too_far_are_refused() {
        let zstd =
            |stored_bytes, len_bytes| Extent { stored_bytes, len_bytes, method: Method::Zstd, ..stored(0, 0, 64) };
        let refusals: [(&[File], &str); 10] = [
            (&[file("a", &[stored(0, 50, 64)])], "outside the file"),
            (&[file("a", &[stored(0, 4, 60)])], "out of order"),
            (&[file("a", &[stored(0, 4, 64), stored(2, 4, 68)])], "out of order"),
            (&[file("a", &[stored(0, 4, 64)]), file("b", &[stored(0, 4, 66)])], "out of order"),
            (&[file("b", &[]), file("a", &[])], "out of order"),
            (&[file("../a", &[])], "no name"),
            (&[file("/a", &[])], "no name"),
            (&[file("a", &[zstd(2, 1 << 20)])], "cannot unpack"),
            (&[file("a", &[zstd(20, FRAME_BYTES + 1)])], "longer than frames are"),
            (&[File { len_bytes: 1 << 50, ..file("a", &[stored(0, 4, 64)]) }], "bytes are there"),
        ];
        for (files, expected) in refusals {
            let message = decode(&encode(files), 100).unwrap_err();
            assert!(message.contains(expected), "{message}");
        }
        let mut bytes = encode(&[]);
        bytes[7] = 0x7f;
        assert!(decode(&bytes, 100).unwrap_err().contains("ends too early"));
    }

    #[test]
    fn a_trailer_lies_as_documented() {
        let trailer = Trailer { table_at_bytes: 1, stored_bytes: 2, len_bytes: 3, hash: [4; 32] };
        let mut bytes = [0; 64];
        (bytes[0], bytes[8], bytes[16]) = (1, 2, 3);
        bytes[24..56].fill(4);
        bytes[56..].copy_from_slice(b"HRR-TOC\n");
        assert_eq!(trailer.to_bytes(), bytes);
        assert_eq!(Trailer::parse(&bytes), Some(trailer));
        bytes[60] = 0;
        assert_eq!(Trailer::parse(&bytes), None);
    }
}
