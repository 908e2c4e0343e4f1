//! Giving back the pages of a mapped file behind what reads it in order.
//!
//! A page that was read stays in the process's memory until the file is unmapped. An archive can be larger than the machine's
//! memory, and most of it is gone over once or twice: so what lies some way behind is given back in large steps. Nothing is
//! lost by it. Whoever still looks at a record there gets the page again from the file, which the system most likely has in
//! its cache.

use memmap2::{Mmap, UncheckedAdvice};

/// What is given back at a time, in bytes: whole pages of any size up to this, and so many that asking costs nothing.
const STEP_BYTES: usize = 1 << 20;
/// What stays behind the place of reading, in bytes: records that were read a moment ago are still worked on.
const KEPT_BYTES: usize = 1 << 20;

/// What is given back once more each time, in bytes: somebody who lags further behind had some of it read again.
const AGAIN_BYTES: usize = 8 << 20;

/// How far one reader has given a file's pages back.
#[derive(Clone, Debug)]
pub(crate) struct Behind<'a> {
    map: &'a Mmap,
    /// Where the pages begin that are given back next; a multiple of the step.
    from: usize,
    /// Place of reading at which they are.
    due: usize,
}

impl<'a> Behind<'a> {
    /// Of a reader at the start of the file.
    pub(crate) fn of(map: &'a Mmap) -> Self {
        Behind { map, from: 0, due: STEP_BYTES + KEPT_BYTES }
    }

    /// The reader has come to this offset.
    #[inline(always)]
    pub(crate) fn read_to(&mut self, offset_bytes: usize) {
        if offset_bytes >= self.due {
            self.give_back(offset_bytes);
        }
    }

    #[cold]
    fn give_back(&mut self, offset_bytes: usize) {
        let to = (offset_bytes - KEPT_BYTES) / STEP_BYTES * STEP_BYTES;
        let from = self.from.saturating_sub(AGAIN_BYTES);
        // SAFETY: `MADV_DONTNEED` is unsound where it changes what borrowed memory holds. This is a shared mapping of a file
        // that may only be read, and that nobody changes while it is mapped, which whoever mapped it has argued: a page that
        // is given back is read from the file when it is next looked at, and holds the same. The range lies in the mapping:
        // `to` is at most the offset, which the reader found records up to.
        let given = unsafe { self.map.unchecked_advise_range(UncheckedAdvice::DontNeed, from, to - from) };
        // Where it fails, nothing but the memory that is taken is another.
        let _ = given;
        self.from = to;
        self.due = to + STEP_BYTES + KEPT_BYTES;
    }
}

#[cfg(test)]
mod tests {
    use crate::record_builder::RecordBuilder;
    use crate::stream_file::{ContentsMode, StreamFile, StreamHeader};

    const MIB: usize = 1 << 20;

    /// Bytes resident of the mapping that an address lies in.
    fn resident_bytes(address: usize) -> usize {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut inside = false;
        for line in maps.lines() {
            let range = line.split(' ').next().and_then(|word| word.split_once('-'));
            let ends = range.and_then(|(start, end)| {
                Some((usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?))
            });
            if let Some((start, end)) = ends {
                inside = (start..end).contains(&address);
            } else if let Some(kib) = line.strip_prefix("Rss:").filter(|_| inside) {
                return kib.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10;
            }
        }
        panic!("nothing is mapped at {address:#x}");
    }

    #[test]
    fn a_long_file_takes_little_memory_to_read_and_is_read_again_as_it_was() {
        let header = StreamHeader {
            contents: ContentsMode::MetadataOnly,
            thread: 0,
            tid: 1,
            pid: 1,
            open_tick: 0,
            used_bytes: 0,
            name: "long".into(),
            ring_part_bytes: 0,
        };
        let mut bytes = header.to_page().to_vec();
        let mut calls = 0u64;
        while bytes.len() < 32 * MIB {
            bytes.extend(RecordBuilder::new(7, &[calls; 200]).ticks(calls, calls + 1).build());
            calls += 1;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.evs");
        std::fs::write(&path, &bytes).unwrap();
        let file = StreamFile::open(&path).unwrap();
        let first = file.records().next().unwrap();
        let at = first.bytes().as_ptr() as usize;
        for _ in 0..2 {
            assert_eq!(file.records().map(|record| record.begin()).sum::<u64>(), calls * (calls - 1) / 2);
            let resident = resident_bytes(at);
            assert!(resident < 6 * MIB, "{resident} bytes of {} stay resident", bytes.len());
            // Far behind, and still what it was.
            assert_eq!((first.begin(), first.end(), first.word(199)), (0, 1, 0));
        }
        // Two readers of one file, each at a place of its own.
        let (mut ahead, mut behind) = (file.records(), file.records());
        assert_eq!(ahead.by_ref().count() as u64, calls);
        assert_eq!(behind.by_ref().last().map(|record| record.word(0)), Some(calls - 1));
    }
}
