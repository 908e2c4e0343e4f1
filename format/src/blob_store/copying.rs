//! Contents copied out of a store and checked on the way.
//!
//! The hash is most of what a content costs that is used once. Each part is copied and hashed by one core, a block at a time: the
//! block is read from memory once, and hashed where the copy left it, in the core's own cache. The hash is a tree, so parts are
//! hashed apart and then joined.

use std::sync::atomic::Ordering;

use blake3::Hasher;
use blake3::hazmat::{ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};
use rayon::prelude::*;

use super::{BlobError, BlobStore, Found, give_pages_back};
use crate::source::Content;

/// What a core copies and hashes by itself. A power of two, so that each part is a subtree of the hash.
const PART_BYTES: usize = 1 << 20;
/// Copied and hashed at a time: much less than a core's own cache holds.
const BLOCK_BYTES: usize = 128 << 10;
/// Pages of the archive are given back this often: enough parts for all cores, and not much beside the copy.
const RESIDENT_BYTES: usize = 16 * PART_BYTES;

impl BlobStore {
    /// Copies the contents of a number to the front of `target`, on all cores where there is much, and returns their length; `None`
    /// where the number has none. Nothing is copied where they do not fit. The first use checks the hash as [`Self::get`] does;
    /// pages of the archive that were read are given back, so that what has been copied does not stay resident twice.
    ///
    /// # Errors
    /// Those of [`Self::get`]; what was copied is not to be used then.
    pub fn copy_to(&self, number: u64, target: &mut [u8]) -> Result<Option<usize>, BlobError> {
        let Some(Found { entry, pack, verified }) = self.find(number) else {
            return Ok(None);
        };
        let contents = &*self.contents(entry, pack)?;
        let Some(target) = target.get_mut(..contents.len()) else {
            return Ok(Some(contents.len()));
        };
        // Relaxed: as in `get`.
        let is_checked = verified.load(Ordering::Relaxed);
        let is_mapped = matches!(pack.content.get(), Some(Ok(Some(Content::Mapped(_)))));
        let hash = if contents.len() <= PART_BYTES {
            let mut hasher = Hasher::new();
            copy_part(contents, target, (!is_checked).then_some(&mut hasher));
            hasher.finalize()
        } else {
            let mut parts = Vec::new();
            let pieces = contents.chunks(RESIDENT_BYTES).zip(target.chunks_mut(RESIDENT_BYTES));
            for (piece_number, (from, to)) in pieces.enumerate() {
                let begin_bytes = piece_number * RESIDENT_BYTES;
                let pairs = from.par_chunks(PART_BYTES).zip(to.par_chunks_mut(PART_BYTES)).enumerate();
                let hash_of = |(part, (from, to)): (usize, (&[u8], &mut [u8]))| {
                    let mut hasher = Hasher::new();
                    hasher.set_input_offset((begin_bytes + part * PART_BYTES) as u64);
                    copy_part(from, to, (!is_checked).then_some(&mut hasher));
                    if is_checked { ChainingValue::default() } else { hasher.finalize_non_root() }
                };
                parts.par_extend(pairs.map(hash_of));
                if is_mapped {
                    give_pages_back(from);
                }
            }
            let (left, right) = halves(&parts);
            merge_subtrees_root(&joined(left), &joined(right), Mode::Hash)
        };
        if !is_checked {
            if *hash.as_bytes() != entry.hash {
                return Err(BlobError::Hash { number, path: pack.path.clone(), offset_bytes: entry.offset_bytes });
            }
            verified.store(true, Ordering::Relaxed);
        }
        Ok(Some(contents.len()))
    }
}

/// Copies a part and adds what was copied to the hash.
fn copy_part(from: &[u8], to: &mut [u8], mut hasher: Option<&mut Hasher>) {
    for (from, to) in from.chunks(BLOCK_BYTES).zip(to.chunks_mut(BLOCK_BYTES)) {
        to.copy_from_slice(from);
        if let Some(hasher) = &mut hasher {
            hasher.update(to);
        }
    }
}

/// The two sides of a tree over several parts: as many as a power of two on the left, at least one on the right.
fn halves(parts: &[ChainingValue]) -> (&[ChainingValue], &[ChainingValue]) {
    parts.split_at(parts.len().next_power_of_two() / 2)
}

/// The hash of neighbouring parts as one subtree; no parts are none that matter.
fn joined(parts: &[ChainingValue]) -> ChainingValue {
    match parts {
        [] => ChainingValue::default(),
        [part] => *part,
        _ => {
            let (left, right) = halves(parts);
            merge_subtrees_non_root(&joined(left), &joined(right), Mode::Hash)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash_by_parts(contents: &[u8]) -> [u8; 32] {
        let mut target = vec![0; contents.len()];
        let pairs = contents.chunks(PART_BYTES).zip(target.chunks_mut(PART_BYTES)).enumerate();
        let parts: Vec<ChainingValue> = pairs
            .map(|(part, (from, to))| {
                let mut hasher = Hasher::new();
                hasher.set_input_offset((part * PART_BYTES) as u64);
                copy_part(from, to, Some(&mut hasher));
                hasher.finalize_non_root()
            })
            .collect();
        assert!(target == contents);
        let (left, right) = halves(&parts);
        *merge_subtrees_root(&joined(left), &joined(right), Mode::Hash).as_bytes()
    }

    #[test]
    fn the_hash_of_joined_parts_is_that_of_the_whole() {
        let contents: Vec<u8> =
            (0..7 * PART_BYTES as u32 + 3).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for parts in 2..=7 {
            for len_bytes in [parts * PART_BYTES, parts * PART_BYTES - 1, parts * PART_BYTES - PART_BYTES + 1] {
                let contents = &contents[..len_bytes];
                assert_eq!(hash_by_parts(contents), *blake3::hash(contents).as_bytes(), "{len_bytes} bytes");
            }
        }
    }
}
