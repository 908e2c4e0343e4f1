//! `regions/*.hrrr`: what an allocator made of the memory it had from HIP, as another tool wrote it down.
//!
//! u32 [`MAGIC`], u16 version 1, u16 zero; then batches: a record header (id 0xfffd, length 40 + 32 n), u32 n, u32 flags, and
//! n entries of 32 bytes: u8 operation (0 add, 1 delete), u8 kind (0 block, 1 segment), u8 device, u8 zero, u32 tag, u64 base,
//! u64 size, i64 time in ns (0 = there before).

use std::path::Path;

use super::layout::HEADER_BYTES;
use crate::files;

/// Directory of sidecars in a process archive.
pub const DIR: &str = "regions";
/// File name extension.
pub const EXTENSION: &str = "hrrr";
/// First four bytes.
const MAGIC: u32 = 0x5252_4248;
const BATCH_ID: u16 = 0xfffd;
const BATCH_HEADER_BYTES: usize = 40;
const ENTRY_BYTES: usize = 32;

/// What the sidecars of an archive hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Regions {
    /// Files read.
    pub files: u64,
    /// Entries in them.
    pub entries: u64,
    /// Of these, blocks that were added.
    pub blocks: u64,
    /// Of these, segments that were added.
    pub segments: u64,
    /// What is wrong with single files.
    pub faults: Vec<String>,
}

impl Regions {
    /// Reads the sidecars of a process archive, in order of name.
    pub fn read(process: &Path) -> Self {
        let mut regions = Regions::default();
        let Ok(entries) = std::fs::read_dir(process.join(DIR)) else { return regions };
        let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == EXTENSION));
        paths.sort();
        for path in paths {
            regions.files += 1;
            let parsed = match files::map(&path) {
                Ok(bytes) => regions.parse(bytes.as_deref().unwrap_or_default()),
                Err(error) => Err(error.to_string()),
            };
            if let Err(reason) = parsed {
                regions.faults.push(format!("{}: {reason}", path.display()));
            }
        }
        regions
    }

    /// Adds what the bytes of a sidecar hold, up to a torn tail.
    ///
    /// # Errors
    /// Where the file stops making sense, and why.
    pub fn parse(&mut self, bytes: &[u8]) -> Result<(), String> {
        let u32_at =
            |at: usize| bytes.get(at..).and_then(|rest| rest.first_chunk()).map(|raw| u32::from_le_bytes(*raw));
        if u32_at(0) != Some(MAGIC) || bytes.get(4..6) != Some(&[1, 0]) {
            return Err("it does not begin as a region file of version 1".to_owned());
        }
        let mut at = 8;
        while at < bytes.len() {
            let fault = |what: &str| Err(format!("byte {at}: {what}"));
            let (Some(id), Some(len), Some(count)) = (u32_at(at), u32_at(at + 26), u32_at(at + HEADER_BYTES)) else {
                return fault("a batch is cut off");
            };
            let expected =
                (count as usize).checked_mul(ENTRY_BYTES).and_then(|len| len.checked_add(BATCH_HEADER_BYTES));
            if id as u16 != BATCH_ID || expected != Some(len as usize) {
                return fault("no batch of regions");
            }
            let Some(entries) = bytes.get(at + BATCH_HEADER_BYTES..).and_then(|rest| rest.get(..len as usize - 40))
            else {
                return fault("a batch is cut off");
            };
            for entry in entries.chunks_exact(ENTRY_BYTES) {
                if entry[0] > 1 || entry[1] > 1 {
                    return fault("an entry is of no known kind");
                }
                self.entries += 1;
                self.blocks += u64::from(entry[0] == 0 && entry[1] == 0);
                self.segments += u64::from(entry[0] == 0 && entry[1] == 1);
            }
            at += len as usize;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::events::header_bytes;

    #[test]
    fn whole_batches_count_and_a_torn_one_does_not() {
        let mut bytes = MAGIC.to_le_bytes().to_vec();
        bytes.extend([1, 0, 0, 0]);
        bytes.extend(header_bytes(BATCH_ID, 0, 5, 0, 40 + 64));
        bytes.extend([2, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend([0; 32]);
        bytes.extend([0, 1]);
        bytes.extend([0; 30]);
        assert_eq!(bytes[..4], *b"HBRR");
        let mut regions = Regions::default();
        regions.parse(&bytes).unwrap();
        assert_eq!((regions.entries, regions.blocks, regions.segments), (2, 1, 1));
        for cut in 9..bytes.len() {
            let mut regions = Regions::default();
            assert!(regions.parse(&bytes[..cut]).is_err(), "cut at {cut}");
            assert_eq!(regions.entries, 0);
        }
    }
}
