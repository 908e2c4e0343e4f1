//! Blob stores: an index of the entries whose contents are there and have the hash that it gives.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;

use memmap2::Mmap;

use super::Work;
use crate::blob_store::{
    ENTRY_BYTES, HEADER_BYTES, INDEX_FILE, IndexEntry, content_hash, index_header, pack_file_name,
};
use crate::files;

/// Longest index in bytes that is repaired: some hundred million entries.
const MAX_INDEX_BYTES: u64 = 16 << 30;

/// Repairs a store of the process, to which a recording that ended well had `stored` contents. Returns one more than the highest
/// number it has contents for.
pub(super) fn repair(work: &mut Work, store: &str, stored: u64) -> io::Result<u64> {
    let dir = work.dir.join(store);
    let path = dir.join(INDEX_FILE);
    let bytes = match files::read(&path, MAX_INDEX_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if dir.join(pack_file_name(0)).exists() {
                work.cannot(format!("{store} has contents and no index: without it their numbers are not known"));
            } else if stored > 0 {
                work.cannot(format!(
                    "{store} is not there, and {stored} contents were stored in it; copy the archive again, whole"
                ));
            }
            return Ok(0);
        }
        Err(error) => return Err(error),
    };
    if bytes.is_empty() && stored > 0 {
        work.cannot(format!("{store}/{INDEX_FILE} is empty, and {stored} contents were stored; copy it again"));
        return Ok(0);
    }
    let header = index_header();
    let body = bytes.get(HEADER_BYTES..).unwrap_or_default();
    let mut packs = Packs { dir: &dir, maps: HashMap::new(), places: HashMap::new() };
    let (mut good, mut bad) = (header.to_vec(), Vec::new());
    let mut numbers = HashSet::new();
    let (mut dropped, mut end) = (0u64, 0);
    let (whole, torn) = body.as_chunks::<ENTRY_BYTES>();
    for raw in whole {
        let entry = IndexEntry::parse(raw).filter(|entry| packs.hold(entry));
        match entry {
            Some(entry) if numbers.insert(entry.number) => {
                good.extend_from_slice(raw);
                end = end.max(entry.number.saturating_add(1));
            }
            _ => {
                bad.extend_from_slice(raw);
                dropped += 1;
            }
        }
    }
    bad.extend_from_slice(torn);
    // An empty index is one whose writer ended before its header.
    let has_header = bytes.is_empty() || bytes.starts_with(&header[..12]);
    if !has_header {
        let start = &bytes[..bytes.len().min(HEADER_BYTES)];
        bad.splice(..0, start.iter().copied());
    }
    if bad.is_empty() {
        return Ok(end);
    }
    let kept = work.side.keep(&format!("{store}-index"), &bad)?;
    files::replace(&path, &good)?;
    let what = match (dropped, torn.is_empty(), has_header) {
        (0, _, false) => "its header was wrong".to_owned(),
        (0, ..) => "its last entry was cut off".to_owned(),
        (count, ..) => format!("{count} entries had no contents, or other ones"),
    };
    work.did(format!("{store}/{INDEX_FILE} is made anew with {} entries: {what}; kept in {kept}", numbers.len()));
    Ok(end)
}

/// The packs of a store, and what was found in them.
struct Packs<'a> {
    dir: &'a Path,
    maps: HashMap<u32, Option<Mmap>>,
    /// Hash by place: entries share contents.
    places: HashMap<(u32, u64, u64), [u8; 32]>,
}

impl Packs<'_> {
    /// Whether an entry's contents are there and have its hash.
    fn hold(&mut self, entry: &IndexEntry) -> bool {
        let place = (entry.pack, entry.offset_bytes, entry.len_bytes);
        if let Some(hash) = self.places.get(&place) {
            return *hash == entry.hash;
        }
        let dir = self.dir;
        let map = self.maps.entry(entry.pack);
        let map = map.or_insert_with(|| files::map(&dir.join(pack_file_name(entry.pack))).ok().flatten());
        let bytes = map.as_deref().unwrap_or_default();
        let found = usize::try_from(entry.offset_bytes)
            .ok()
            .zip(usize::try_from(entry.len_bytes).ok())
            .and_then(|(start, len)| if len == 0 { Some(&[][..]) } else { bytes.get(start..start.checked_add(len)?) });
        let Some(contents) = found else { return false };
        let hash = content_hash(contents);
        self.places.insert(place, hash);
        hash == entry.hash
    }
}
