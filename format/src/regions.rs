//! `regions/*.hrrr`: what an allocator made of the memory it had from HIP, as another tool wrote it down.
//!
//! A file is a header, u32 [`MAGIC`], u16 version 1, u16 zero, then batches until its end, each written by one call:
//!
//! | offset | type | field |
//! |---|---|---|
//! | 0 | u16 | [`BATCH_ID`] |
//! | 2 | u64 | zero |
//! | 10 | u64 | time in ns, `CLOCK_MONOTONIC`, when it was written |
//! | 18 | u64 | zero |
//! | 26 | u32 | length of the batch in bytes: 40 + 32 n |
//! | 30 | u8\[2\] | zero |
//! | 32 | u32 | n |
//! | 36 | u32 | flags, none known |
//! | 40 | | n entries of 32 bytes |
//!
//! An entry: u8 operation (0 add, 1 delete), u8 kind (0 block, 1 segment), u8 device, u8 zero, u32 tag, u64 address, u64
//! length, i64 time in ns (0: it was there before the tool began).
//!
//! A *segment* is memory that the allocator had from HIP; a *block* is a part of one that it gave to the program. The
//! entries of all files, in order of name, are merged by time; [`LiveRegions`] says what was there at a moment.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use crate::files;
use crate::source::Source;

/// Directory of sidecars in a process archive.
pub const DIR: &str = "regions";
/// File name extension.
pub const EXTENSION: &str = "hrrr";
/// First four bytes of a file, as a little-endian number.
pub const MAGIC: u32 = 0x5252_4248;
/// Id in the header of a batch.
pub const BATCH_ID: u16 = 0xfffd;
/// Size of a file's header in bytes.
pub const FILE_HEADER_BYTES: usize = 8;
/// Size of a batch's header in bytes.
pub const BATCH_HEADER_BYTES: usize = 40;
/// Size of an entry in bytes.
pub const ENTRY_BYTES: usize = 32;
/// Most sidecars of an archive that are read: a tool writes one for each thread or device.
pub const MAX_FILES: usize = 4096;
/// Faults of one kind that are told each by each.
const NAMED: usize = 4;

/// What an entry says of its region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// It is there from now on.
    Add,
    /// It is gone from now on.
    Delete,
}

/// What a region is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RegionKind {
    /// A part that the allocator gave out.
    Block,
    /// Memory that the allocator had from HIP.
    Segment,
}

/// An entry of a sidecar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// What happened to it.
    pub operation: Operation,
    /// What it is.
    pub kind: RegionKind,
    /// Device ordinal.
    pub device: u8,
    /// The tool's own mark.
    pub tag: u32,
    /// Device address.
    pub base: u64,
    /// Length in bytes. Of a deletion it may be zero.
    pub len_bytes: u64,
    /// `CLOCK_MONOTONIC` in ns; zero for what was there before the tool began.
    pub time_ns: u64,
}

impl Region {
    /// First address behind it. Entries are only accepted where there is one.
    pub fn end(&self) -> u64 {
        self.base.saturating_add(self.len_bytes)
    }

    /// The entry as it is stored.
    pub fn to_bytes(&self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[0] = u8::from(self.operation == Operation::Delete);
        bytes[1] = u8::from(self.kind == RegionKind::Segment);
        bytes[2] = self.device;
        bytes[4..8].copy_from_slice(&self.tag.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.base.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.len_bytes.to_le_bytes());
        bytes[24..].copy_from_slice(&self.time_ns.to_le_bytes());
        bytes
    }

    fn parse(bytes: &[u8; ENTRY_BYTES]) -> Result<Self, String> {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let operation = match bytes[0] {
            0 => Operation::Add,
            1 => Operation::Delete,
            other => return Err(format!("operation {other} is none")),
        };
        let kind = match bytes[1] {
            0 => RegionKind::Block,
            1 => RegionKind::Segment,
            other => return Err(format!("kind {other} is none")),
        };
        if bytes[3] != 0 {
            return Err(format!("flags {:#04x} are not known", bytes[3]));
        }
        let (base, len_bytes, time_ns) = (word(8), word(16), word(24));
        if base.checked_add(len_bytes).is_none() {
            return Err(format!("{len_bytes} bytes at {base:#x} reach past the last address"));
        }
        if operation == Operation::Add && (base == 0 || len_bytes == 0) {
            return Err(format!("{len_bytes} bytes at {base:#x} are no region"));
        }
        if time_ns > i64::MAX as u64 {
            return Err("its time is negative".to_owned());
        }
        let tag = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        Ok(Region { operation, kind, device: bytes[2], tag, base, len_bytes, time_ns })
    }
}

/// What the sidecars of an archive hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Regions {
    files: u64,
    /// By time; entries of one time in order of file and place.
    entries: Vec<Region>,
    faults: Vec<String>,
}

impl Regions {
    /// Reads the sidecars of a process directory, in order of name. What cannot be read is among the
    /// [faults](Self::faults).
    pub fn read(process: &Path) -> Self {
        match Source::of(process) {
            Ok(source) => Self::read_from(&source, process),
            Err(error) => Regions { faults: vec![error.to_string()], ..Regions::default() },
        }
    }

    pub(crate) fn read_from(source: &Source, process: &Path) -> Self {
        let mut regions = Regions::default();
        let dir = process.join(DIR);
        if !source.is_dir(&dir) {
            return regions;
        }
        let mut found = match source.list(&dir) {
            Ok(found) => found,
            Err(reason) => {
                regions.faults.push(format!("it cannot be listed: {reason}"));
                return regions;
            }
        };
        found.retain(|(name, _)| Path::new(name).extension().is_some_and(|extension| extension == EXTENSION));
        found.sort();
        if found.len() > MAX_FILES {
            let (read, all) = (MAX_FILES, found.len());
            regions.faults.push(format!("of {all} region files only {read} are read"));
            found.truncate(MAX_FILES);
        }
        for (name, path) in found {
            match source.map(&path) {
                Ok(bytes) => regions.add_file(&name, bytes.as_deref().unwrap_or_default()),
                Err(error) => {
                    regions.files += 1;
                    regions.faults.push(format!("{name}: {error}"));
                }
            }
        }
        regions.merge();
        regions
    }

    /// Takes in the bytes of one file, up to where they stop making sense. [`Self::merge`] puts the entries in order.
    pub fn add_file(&mut self, name: &str, bytes: &[u8]) {
        self.files += 1;
        if let Err((at, reason)) = self.parse(bytes) {
            self.faults.push(format!("{name} is read up to byte {at} of {}: {reason}", bytes.len()));
        }
    }

    /// Puts the entries of all files in order of time and checks them against each other.
    pub fn merge(&mut self) {
        self.entries.sort_by_key(|region| region.time_ns);
        let mut live = LiveRegions::default();
        let (mut again, mut nothing) = (0usize, 0usize);
        let mut faults = Vec::new();
        for region in &self.entries {
            let what = match region.kind {
                RegionKind::Block => "block",
                RegionKind::Segment => "segment",
            };
            match live.apply(region) {
                Applied::Fits => {}
                Applied::Replaced(old) => {
                    again += 1;
                    if again <= NAMED {
                        faults.push(format!(
                            "a {what} of {} bytes at {:#x} is added over one of {} bytes at {:#x} that was not deleted",
                            region.len_bytes, region.base, old.len_bytes, old.base
                        ));
                    }
                }
                Applied::Nothing => {
                    nothing += 1;
                    if nothing <= NAMED {
                        faults.push(format!("a {what} at {:#x} is deleted and none is there", region.base));
                    }
                }
            }
        }
        let more = again.saturating_sub(NAMED) + nothing.saturating_sub(NAMED);
        if more > 0 {
            faults.push(format!("{more} more entries of regions do not fit those before them"));
        }
        self.faults.append(&mut faults);
    }

    fn parse(&mut self, bytes: &[u8]) -> Result<(), (usize, String)> {
        let u16_at =
            |at: usize| bytes.get(at..).and_then(|rest| rest.first_chunk()).map(|raw| u16::from_le_bytes(*raw));
        let u32_at =
            |at: usize| bytes.get(at..).and_then(|rest| rest.first_chunk()).map(|raw| u32::from_le_bytes(*raw));
        let fault = |at: usize, reason: &str| Err((at, reason.to_owned()));
        if u32_at(0) != Some(MAGIC) {
            return fault(0, "it does not begin as a region file");
        }
        match (u16_at(4), u16_at(6)) {
            (Some(1), Some(0)) => {}
            (Some(1), Some(flags)) => return Err((6, format!("its flags {flags:#06x} are not known"))),
            (Some(version), _) => return Err((4, format!("its version is {version}, and version 1 is known"))),
            _ => return fault(4, "it is cut off"),
        }
        let mut at = FILE_HEADER_BYTES;
        while at < bytes.len() {
            let (Some(id), Some(len), Some(count), Some(flags)) =
                (u16_at(at), u32_at(at + 26), u32_at(at + 32), u32_at(at + 36))
            else {
                return fault(at, "a batch is cut off");
            };
            let expected =
                (count as usize).checked_mul(ENTRY_BYTES).and_then(|len| len.checked_add(BATCH_HEADER_BYTES));
            if id != BATCH_ID || expected != Some(len as usize) {
                return fault(at, "no batch of regions begins there");
            }
            if flags != 0 {
                return Err((at, format!("the flags {flags:#x} of a batch are not known")));
            }
            let Some(entries) = bytes.get(at + BATCH_HEADER_BYTES..at + len as usize) else {
                return fault(at, "a batch is cut off");
            };
            // A batch counts as a whole: where an entry is wrong, so may be those around it.
            let mut read = Vec::with_capacity(count as usize);
            for (number, entry) in entries.as_chunks().0.iter().enumerate() {
                let place = at + BATCH_HEADER_BYTES + number * ENTRY_BYTES;
                read.push(Region::parse(entry).map_err(|reason| (place, reason))?);
            }
            self.entries.append(&mut read);
            at += len as usize;
        }
        Ok(())
    }

    /// Files read, those with faults included.
    pub fn files(&self) -> u64 {
        self.files
    }

    /// Entries in order of time.
    pub fn entries(&self) -> &[Region] {
        &self.entries
    }

    /// Entries that add a region of a kind.
    pub fn added(&self, kind: RegionKind) -> u64 {
        let adds = |region: &&Region| region.operation == Operation::Add && region.kind == kind;
        self.entries.iter().filter(adds).count() as u64
    }

    /// What is wrong with files and entries, a line each.
    pub fn faults(&self) -> &[String] {
        &self.faults
    }

    /// First and last time of an entry in ns, leaving out what was there before; `None` where no entry has a time.
    pub fn span_ns(&self) -> Option<(u64, u64)> {
        let first = self.entries.iter().find(|region| region.time_ns > 0)?.time_ns;
        Some((first, self.entries.last()?.time_ns))
    }

    /// Whether the entries can be of the same run as calls made between two times (ns, `CLOCK_MONOTONIC`). Entries of
    /// another run, or of another clock, lie wholly apart.
    pub fn may_be_of(&self, first_call_ns: u64, last_call_ns: u64) -> bool {
        self.span_ns().is_none_or(|(first, last)| first <= last_call_ns && last >= first_call_ns)
    }

    /// The state before the first entry; give it times that rise.
    pub fn cursor(&self) -> RegionCursor<'_> {
        RegionCursor { rest: &self.entries, live: LiveRegions::default() }
    }
}

/// What is known of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointerClass {
    /// Nothing was there.
    None,
    /// It lies in a segment, in a part that was not given out.
    Segment(Region),
    /// It lies in a block.
    Block(Region),
}

/// What an entry did to the state.
enum Applied {
    Fits,
    /// Something of its kind was there; it is gone.
    Replaced(Region),
    /// There was nothing to delete.
    Nothing,
}

/// The regions that are there at one moment.
#[derive(Clone, Debug, Default)]
pub struct LiveRegions {
    blocks: BTreeMap<u64, Region>,
    segments: BTreeMap<u64, Region>,
}

impl LiveRegions {
    fn of_kind(&self, kind: RegionKind) -> &BTreeMap<u64, Region> {
        match kind {
            RegionKind::Block => &self.blocks,
            RegionKind::Segment => &self.segments,
        }
    }

    fn apply(&mut self, region: &Region) -> Applied {
        let live = match region.kind {
            RegionKind::Block => &mut self.blocks,
            RegionKind::Segment => &mut self.segments,
        };
        match region.operation {
            Operation::Delete => match live.remove(&region.base) {
                Some(_) => Applied::Fits,
                None => Applied::Nothing,
            },
            Operation::Add => {
                // Regions of one kind never overlap here, so ends ascend as bases do.
                let mut replaced = None;
                while let Some((&base, &old)) = live.range(..region.end()).next_back()
                    && old.end() > region.base
                {
                    live.remove(&base);
                    replaced = Some(old);
                }
                live.insert(region.base, *region);
                replaced.map_or(Applied::Fits, Applied::Replaced)
            }
        }
    }

    /// The region of a kind that holds an address.
    pub fn holding(&self, kind: RegionKind, address: u64) -> Option<&Region> {
        let (_, region) = self.of_kind(kind).range(..=address).next_back()?;
        (address < region.end()).then_some(region)
    }

    /// What is known of an address.
    pub fn class(&self, address: u64) -> PointerClass {
        if let Some(block) = self.holding(RegionKind::Block, address) {
            PointerClass::Block(*block)
        } else if let Some(segment) = self.holding(RegionKind::Segment, address) {
            PointerClass::Segment(*segment)
        } else {
            PointerClass::None
        }
    }

    /// The regions of a kind by address.
    pub fn all(&self, kind: RegionKind) -> impl Iterator<Item = &Region> {
        self.of_kind(kind).values()
    }
}

/// Moves through the entries as time passes.
#[derive(Clone, Debug)]
pub struct RegionCursor<'a> {
    rest: &'a [Region],
    live: LiveRegions,
}

impl<'a> RegionCursor<'a> {
    /// Takes in every entry up to and including a time in ns, and gives these.
    pub fn advance(&mut self, time_ns: u64) -> &'a [Region] {
        let passed = self.rest.partition_point(|region| region.time_ns <= time_ns);
        let (passed, rest) = self.rest.split_at(passed);
        for region in passed {
            self.live.apply(region);
        }
        self.rest = rest;
        passed
    }

    /// What is there now.
    pub fn live(&self) -> &LiveRegions {
        &self.live
    }
}

/// Copies the sidecars of one process directory into another, byte for byte.
///
/// # Errors
/// The system's reason for not writing. What cannot be read is left behind: readers of the original name it.
pub(crate) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let Ok(entries) = std::fs::read_dir(from.join(DIR)) else { return Ok(()) };
    let target = to.join(DIR);
    for entry in entries {
        let path = entry?.path();
        let is_sidecar = path.extension().is_some_and(|extension| extension == EXTENSION);
        let Some(name) = path.file_name().filter(|_| is_sidecar) else { continue };
        let Ok(bytes) = files::map(&path) else { continue };
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&target)?;
        files::replace(&target.join(name), bytes.as_deref().unwrap_or_default())?;
    }
    Ok(())
}

/// A file of one batch for each slice of regions, as another tool would write it.
pub fn encode(batches: &[&[Region]]) -> Vec<u8> {
    let mut bytes = MAGIC.to_le_bytes().to_vec();
    bytes.extend([1, 0, 0, 0]);
    for batch in batches {
        let time_ns = batch.last().map_or(0, |region| region.time_ns);
        let len_bytes = BATCH_HEADER_BYTES + batch.len() * ENTRY_BYTES;
        let mut header = [0; BATCH_HEADER_BYTES];
        header[..2].copy_from_slice(&BATCH_ID.to_le_bytes());
        header[10..18].copy_from_slice(&time_ns.to_le_bytes());
        header[26..30].copy_from_slice(&(len_bytes as u32).to_le_bytes());
        header[32..36].copy_from_slice(&(batch.len() as u32).to_le_bytes());
        bytes.extend(header);
        for region in *batch {
            bytes.extend(region.to_bytes());
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(operation: Operation, kind: RegionKind, base: u64, len_bytes: u64, time_ns: u64) -> Region {
        Region { operation, kind, device: 0, tag: 7, base, len_bytes, time_ns }
    }

    fn add(kind: RegionKind, base: u64, len_bytes: u64, time_ns: u64) -> Region {
        region(Operation::Add, kind, base, len_bytes, time_ns)
    }

    fn read(files: &[&[u8]]) -> Regions {
        let mut regions = Regions::default();
        for (number, bytes) in files.iter().enumerate() {
            regions.add_file(&format!("{number}.hrrr"), bytes);
        }
        regions.merge();
        regions
    }

    #[test]
    fn a_file_lies_as_documented() {
        let mut bytes = b"HBRR\x01\0\0\0".to_vec();
        bytes.extend([0xfd, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend([72, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend([
            1, 1, 3, 0, 7, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0,
        ]);
        let deleted = Region { device: 3, ..region(Operation::Delete, RegionKind::Segment, 0x1000, 0x200, 9) };
        assert_eq!(encode(&[&[deleted]]), bytes);
        let regions = read(&[&bytes]);
        assert_eq!(regions.entries(), [deleted]);
        assert_eq!(regions.faults(), ["a segment at 0x1000 is deleted and none is there"]);
    }

    #[test]
    fn whole_batches_count_and_a_torn_one_does_not() {
        let first = [add(RegionKind::Segment, 0x1000, 0x1000, 5), add(RegionKind::Block, 0x1000, 16, 5)];
        let bytes = encode(&[&first, &[add(RegionKind::Block, 0x1100, 16, 6)]]);
        let first_end = FILE_HEADER_BYTES + BATCH_HEADER_BYTES + 2 * ENTRY_BYTES;
        for cut in 0..=bytes.len() {
            let regions = read(&[&bytes[..cut]]);
            let whole = [FILE_HEADER_BYTES, first_end, bytes.len()].contains(&cut);
            assert_eq!(regions.faults().is_empty(), whole, "cut at {cut}: {:?}", regions.faults());
            let expected = usize::from(cut >= first_end) * 2 + usize::from(cut == bytes.len());
            assert_eq!(regions.entries().len(), expected, "cut at {cut}");
        }
        let regions = read(&[&bytes]);
        assert_eq!((regions.added(RegionKind::Block), regions.added(RegionKind::Segment)), (2, 1));
    }

    #[test]
    fn files_are_merged_by_time_and_a_cursor_says_what_was_there() {
        let late = encode(&[&[
            add(RegionKind::Block, 0x1000, 0x100, 20),
            region(Operation::Delete, RegionKind::Block, 0x1000, 0, 30),
        ]]);
        let early = encode(&[&[add(RegionKind::Segment, 0x1000, 0x1000, 0), add(RegionKind::Block, 0x1800, 8, 10)]]);
        let regions = read(&[&late, &early]);
        assert!(regions.faults().is_empty());
        assert_eq!(regions.entries().iter().map(|region| region.time_ns).collect::<Vec<_>>(), [0, 10, 20, 30]);
        let mut cursor = regions.cursor();
        assert_eq!(cursor.live().class(0x1000), PointerClass::None);
        assert_eq!(cursor.advance(0).len(), 1);
        assert!(matches!(cursor.live().class(0x1000), PointerClass::Segment(segment) if segment.len_bytes == 0x1000));
        cursor.advance(25);
        assert!(matches!(cursor.live().class(0x10ff), PointerClass::Block(block) if block.base == 0x1000));
        assert!(matches!(cursor.live().class(0x1100), PointerClass::Segment(_)));
        assert_eq!(cursor.live().all(RegionKind::Block).count(), 2);
        assert_eq!(cursor.advance(u64::MAX).len(), 1);
        assert!(matches!(cursor.live().class(0x10ff), PointerClass::Segment(_)));
        assert_eq!(cursor.live().class(0x2000), PointerClass::None);
        assert_eq!(regions.span_ns(), Some((10, 30)));
        assert!(regions.may_be_of(30, 40) && regions.may_be_of(0, 10));
        assert!(!regions.may_be_of(31, 40) && !regions.may_be_of(0, 9));
    }

    #[test]
    fn what_does_not_fit_is_named_and_the_newer_word_counts() {
        let over = encode(&[&[
            add(RegionKind::Block, 0x1000, 0x100, 1),
            add(RegionKind::Block, 0x1100, 0x100, 1),
            add(RegionKind::Block, 0x10f0, 0x20, 2),
        ]]);
        let regions = read(&[&over]);
        assert_eq!(regions.faults().len(), 1);
        assert!(regions.faults()[0].contains("is added over one of 256 bytes at 0x1000"), "{:?}", regions.faults());
        let mut cursor = regions.cursor();
        cursor.advance(2);
        assert_eq!(cursor.live().all(RegionKind::Block).map(|block| block.base).collect::<Vec<_>>(), [0x10f0]);
        let gone: Vec<Region> =
            (1..9).map(|at| region(Operation::Delete, RegionKind::Block, at << 12, 0, at)).collect();
        assert_eq!(read(&[&encode(&[&gone])]).faults().len(), NAMED + 1);
    }

    #[test]
    fn entries_and_headers_that_make_no_sense_are_refused_by_place() {
        let bytes = encode(&[&[add(RegionKind::Block, 0x1000, 16, 5)]]);
        let entry = FILE_HEADER_BYTES + BATCH_HEADER_BYTES;
        for (at, value, expected) in [
            (0, 1, "byte 0 of 80: it does not begin as"),
            (4, 2, "its version is 2"),
            (6, 1, "its flags 0x0001"),
            (8, 1, "no batch of regions"),
            (8 + 26, 71, "no batch of regions"),
            (8 + 35, 1, "no batch of regions"),
            (8 + 36, 1, "the flags 0x1 of a batch"),
            (entry, 2, "byte 48 of 80: operation 2"),
            (entry + 1, 2, "kind 2"),
            (entry + 3, 1, "flags 0x01"),
            (entry + 16, 0, "are no region"),
            (entry + 31, 0x80, "its time is negative"),
        ] {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            let regions = read(&[&bytes]);
            assert!(regions.entries().is_empty());
            assert_eq!(regions.faults().len(), 1, "{:?}", regions.faults());
            assert!(regions.faults()[0].contains(expected), "{:?}", regions.faults());
        }
        let beyond = Region { base: u64::MAX - 3, ..add(RegionKind::Block, 0, 16, 5) };
        assert!(read(&[&encode(&[&[beyond]])]).faults()[0].contains("past the last address"));
    }
}
