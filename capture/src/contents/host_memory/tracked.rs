//! One allocation that devices use directly: what is known of its contents, and who may be writing to it.
//!
//! A copy is kept of what the archive says the memory holds. Whatever differs from it was stored since, by the host or by
//! a device. While no work that was given an address in the allocation can be in flight, that was the host. Otherwise
//! it depends on the place: bytes behind an address that work in flight was given are taken for the device's, and bytes
//! behind an address that only the call at hand is given are taken for what the host prepared for that call. So a ring
//! whose slots are filled while the device works on others is understood, and so is memory that launches pass on to each
//! other; what cannot be told apart is left alone and counted.

use std::ops::Range;

use super::shadow::{CHUNK_BYTES, Shadow};

/// Addresses that are told apart in one allocation; beyond that they count as its beginning.
const MAX_USES: usize = 256;
/// Sequence number of work whose enqueueing call has not returned.
const ENQUEUEING: u64 = u64::MAX;

/// Work that was given an address in the allocation and may not be complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Use {
    /// Offset of the address.
    pub(super) offset: u64,
    /// Number of the call.
    pub(super) call: u64,
    /// Place of the call among those that enqueued such work.
    pub(super) sequence: u64,
    /// Where it works.
    pub(super) place: Place,
    /// What kind of work it is.
    pub(super) kind: Work,
}

/// The stream of some work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Its handle.
    pub(super) stream: u64,
    /// Its device.
    pub(super) device: i32,
    /// Whether work on the null stream waits for it.
    pub(super) blocking: bool,
}

/// What becomes of work at replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// It uses the allocation there too.
    Direct,
    /// A copy whose result replay keeps elsewhere: in the allocation it appears like something the host stored.
    Staged,
}

/// Ranges that differ from what was known.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Offset and length of each, ascending.
    pub(super) ranges: Vec<(u64, u64)>,
    /// What they hold now, back to back.
    pub(super) after: Vec<u8>,
    /// What they held before, if that is wanted.
    pub(super) before: Vec<u8>,
}

impl Changes {
    pub(super) fn clear(&mut self) {
        self.ranges.clear();
        self.after.clear();
        self.before.clear();
    }

    fn add(&mut self, offset: u64, after: &[u8], before: Option<&[u8]>) {
        match self.ranges.last_mut() {
            Some((start, len)) if *start + *len == offset => *len += after.len() as u64,
            _ => self.ranges.push((offset, after.len() as u64)),
        }
        self.after.extend_from_slice(after);
        self.before.extend_from_slice(before.unwrap_or_default());
    }

    fn is_full(&self) -> bool {
        /// Bytes of contents in one marker.
        const MAX_BYTES: usize = 4 << 20;
        /// Ranges in one marker.
        const MAX_RANGES: usize = 16 << 10;
        self.after.len() >= MAX_BYTES || self.ranges.len() >= MAX_RANGES
    }
}

/// How changes that were found come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The host stored them while nothing that may write the memory was in flight.
    HostWrote {
        /// Nothing was known of the allocation before: what is not among the changes is zero.
        first: bool,
    },
    /// The host stored them, as far as can be told, while such work was in flight.
    HostWroteMeanwhile,
    /// The device wrote them.
    DeviceWrote,
    /// The device or the host wrote them.
    SomebodyWrote,
}

/// Takes changes as they are found.
pub(super) type Sink<'a> = &'a mut dyn FnMut(Found, &Changes);

/// What is known of an allocation.
#[derive(Debug)]
pub(super) struct Contents {
    shadow: Shadow,
    /// Whether the first contents were recorded.
    known: bool,
    uses: Vec<Use>,
    /// Chunks that differed when a call began to wait for the device; empty where nobody looked.
    changed_at_entry: Vec<bool>,
    /// Room for changes.
    changes: Changes,
    lenient: Changes,
}

impl Contents {
    /// Nothing is known of an allocation of this length. `None` where there is no memory for it.
    pub(super) fn new(len_bytes: usize) -> Option<Self> {
        Some(Contents {
            shadow: Shadow::new(len_bytes)?,
            known: false,
            uses: Vec::new(),
            changed_at_entry: Vec::new(),
            changes: Changes::default(),
            lenient: Changes::default(),
        })
    }

    /// Whether work may be in flight.
    pub(super) fn is_used(&self) -> bool {
        !self.uses.is_empty()
    }

    /// Whether the allocation was looked at before.
    pub(super) fn is_known(&self) -> bool {
        self.known
    }

    /// Work that may be in flight.
    pub(super) fn uses(&self) -> &[Use] {
        &self.uses
    }

    /// Whether work in flight was given all of these addresses, so that a change could not be told to be the host's.
    pub(super) fn are_used(&self, offsets: &[u64]) -> bool {
        self.is_used() && offsets.iter().all(|offset| self.uses.iter().any(|known| known.offset == *offset))
    }

    /// A call is about to enqueue work that is given these addresses: finds what the host stored before. Returns how many
    /// chunks differ and were left alone.
    ///
    /// # Safety
    /// `live` is readable for the allocation's length.
    pub(super) unsafe fn before_work(&mut self, live: *const u8, offsets: &[u64], sink: Sink<'_>) -> u64 {
        let len = self.shadow.len_bytes() as u64;
        let mut changes = std::mem::take(&mut self.changes);
        let mut left_alone = 0;
        if self.uses.is_empty() {
            let mut found = Found::HostWrote { first: !self.known };
            // SAFETY: by the caller's contract.
            unsafe {
                self.take(live, 0..len, Told::HostAlone, &mut changes, &mut |changes| {
                    sink(found, changes);
                    found = Found::HostWrote { first: false };
                });
            }
            if !changes.ranges.is_empty() || found == (Found::HostWrote { first: true }) {
                sink(found, &changes);
            }
            self.known = true;
        } else {
            for (segment, start) in segments(self.uses.iter().map(|used| used.offset), offsets.iter().copied(), len) {
                let used = start.is_some_and(|start| self.uses.iter().any(|known| known.offset == start));
                if used {
                    // SAFETY: by the caller's contract.
                    left_alone += unsafe { self.count_changed(live, segment) };
                    continue;
                }
                let meanwhile = Found::HostWroteMeanwhile;
                // SAFETY: by the caller's contract.
                unsafe {
                    self.take(live, segment, Told::Unclear, &mut changes, &mut |changes| sink(meanwhile, changes));
                }
            }
            if !changes.ranges.is_empty() {
                sink(Found::HostWroteMeanwhile, &changes);
            }
        }
        changes.clear();
        self.changes = changes;
        left_alone
    }

    /// Work is being enqueued.
    pub(super) fn add_use(&mut self, offset: u64, call: u64, kind: Work, place: Place) {
        let offset = if self.uses.len() >= MAX_USES { 0 } else { offset };
        self.uses.push(Use { offset, call, sequence: ENQUEUEING, place, kind });
    }

    /// The call that enqueued work has returned: with this place among such calls, or without having enqueued anything.
    pub(super) fn enqueued(&mut self, call: u64, sequence: Option<u64>) {
        let Some(sequence) = sequence else {
            self.uses.retain(|known| known.call != call);
            return;
        };
        let mut fresh = Vec::new();
        for known in self.uses.iter_mut().filter(|known| known.call == call) {
            known.sequence = sequence;
            fresh.push((known.offset, known.place, known.kind));
        }
        // The later work on a stream is complete only after the earlier.
        self.uses.retain(|known| {
            known.call == call
                || known.sequence == ENQUEUEING
                || !fresh.contains(&(known.offset, known.place, known.kind))
        });
    }

    /// A call begins to wait for the device: what differs now may be the host's as well as the device's.
    ///
    /// # Safety
    /// As [`Self::before_work`].
    pub(super) unsafe fn before_wait(&mut self, live: *const u8) {
        let len = self.shadow.len_bytes();
        let mut changed = std::mem::take(&mut self.changed_at_entry);
        changed.clear();
        let mut chunk = [0; CHUNK_BYTES];
        changed.extend((0..len).step_by(CHUNK_BYTES).map(|start| {
            // SAFETY: by the caller's contract.
            let now = unsafe { read(live, start..(start + CHUNK_BYTES).min(len), &mut chunk) };
            *now != *self.shadow.at(start, now.len())
        }));
        self.changed_at_entry = changed;
    }

    /// A call has waited for the uses that `covered` says: finds what they wrote.
    ///
    /// # Safety
    /// As [`Self::before_work`].
    pub(super) unsafe fn after_wait(&mut self, live: *const u8, covered: impl Fn(&Use) -> bool, sink: Sink<'_>) {
        let len = self.shadow.len_bytes() as u64;
        let (done, left): (Vec<Use>, Vec<Use>) = std::mem::take(&mut self.uses).into_iter().partition(covered);
        self.uses = left;
        let at_entry = std::mem::take(&mut self.changed_at_entry);
        // What a staged copy wrote is found, and recorded as something stored, when it is used.
        if !done.iter().any(|used| used.kind == Work::Direct) {
            return;
        }
        let mut certain = std::mem::take(&mut self.changes);
        let mut lenient = std::mem::take(&mut self.lenient);
        let direct = |offset: u64| done.iter().any(|used| used.offset == offset && used.kind == Work::Direct);
        let others = done.iter().map(|used| used.offset);
        for (segment, start) in segments(self.uses.iter().map(|used| used.offset), others, len) {
            let busy = start.is_some_and(|start| self.uses.iter().any(|known| known.offset == start));
            let written = start.is_some_and(direct);
            if busy || !(written || self.uses.is_empty() && start.is_none()) {
                continue;
            }
            // Chunk by chunk: what had not changed before the wait and has now was written by the device.
            let mut at = segment.start;
            while at < segment.end {
                let chunk = (at / CHUNK_BYTES as u64) as usize;
                let end = ((chunk as u64 + 1) * CHUNK_BYTES as u64).min(segment.end);
                let device = self.uses.is_empty() && at_entry.get(chunk).is_some_and(|changed| !changed);
                let (changes, told, found) = match device {
                    true => (&mut certain, Told::DeviceAlone, Found::DeviceWrote),
                    false => (&mut lenient, Told::Unclear, Found::SomebodyWrote),
                };
                // SAFETY: by the caller's contract.
                unsafe { self.take(live, at..end, told, changes, &mut |changes| sink(found, changes)) };
                at = end;
            }
        }
        for (changes, found) in [(&mut certain, Found::DeviceWrote), (&mut lenient, Found::SomebodyWrote)] {
            if !changes.ranges.is_empty() {
                sink(found, changes);
            }
            changes.clear();
        }
        (self.changes, self.lenient) = (certain, lenient);
    }

    /// Takes in what differs in a range. Where there is much, `sink` gets it in several parts; what is left is in `changes`.
    ///
    /// # Safety
    /// As [`Self::before_work`].
    unsafe fn take(
        &mut self,
        live: *const u8,
        range: Range<u64>,
        told: Told,
        changes: &mut Changes,
        sink: &mut dyn FnMut(&Changes),
    ) {
        let mut chunk = [0; CHUNK_BYTES];
        let (mut start, end) = (range.start as usize, range.end as usize);
        while start < end {
            let chunk_end = ((start / CHUNK_BYTES + 1) * CHUNK_BYTES).min(end);
            // SAFETY: by the caller's contract.
            let now = unsafe { read(live, start..chunk_end, &mut chunk) };
            let known = self.shadow.at(start, now.len());
            if *now != *known {
                let first = now.iter().zip(known).position(|(now, known)| now != known).unwrap_or(0);
                let last = now.iter().zip(known).rposition(|(now, known)| now != known).unwrap_or(0);
                let (first, last) = match told {
                    Told::HostAlone => whole_words(live as usize + start, first, last, now.len()),
                    // The rest of a word may be somebody else's.
                    Told::DeviceAlone | Told::Unclear => (first, last),
                };
                let before = (told == Told::Unclear).then_some(&known[first..=last]);
                changes.add((start + first) as u64, &now[first..=last], before);
                self.shadow.set(start + first, &now[first..=last]);
                if changes.is_full() {
                    sink(changes);
                    changes.clear();
                }
            }
            start = chunk_end;
        }
    }

    unsafe fn count_changed(&self, live: *const u8, range: Range<u64>) -> u64 {
        let mut chunk = [0; CHUNK_BYTES];
        let (mut start, end) = (range.start as usize, range.end as usize);
        let mut count = 0;
        while start < end {
            let chunk_end = ((start / CHUNK_BYTES + 1) * CHUNK_BYTES).min(end);
            // SAFETY: by the caller's contract.
            let now = unsafe { read(live, start..chunk_end, &mut chunk) };
            count += u64::from(*now != *self.shadow.at(start, now.len()));
            start = chunk_end;
        }
        count
    }
}

/// The bytes from `first` to `last` of so many at an address, with the rest of the words that they are parts of: replay looks for
/// handles in what was stored.
fn whole_words(address: usize, first: usize, last: usize, len: usize) -> (usize, usize) {
    const WORD: usize = 8;
    let first = first.saturating_sub((address + first) % WORD);
    let last = last + (WORD - 1 - (address + last) % WORD);
    (first, last.min(len - 1))
}

/// Whose a change is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    /// The host's: nothing on the device uses the memory. Whole words are recorded, in which replay looks for handles.
    HostAlone,
    /// The device's.
    DeviceAlone,
    /// Somebody's: what the range held before is recorded too.
    Unclear,
}

/// A stable copy of part of the memory, which others may be writing to.
///
/// # Safety
/// The range is readable from `live` on and at most a chunk long.
unsafe fn read(live: *const u8, range: Range<usize>, chunk: &mut [u8; CHUNK_BYTES]) -> &[u8] {
    let len = range.len();
    // SAFETY: by the caller's contract.
    unsafe { std::ptr::copy_nonoverlapping(live.add(range.start), chunk.as_mut_ptr(), len) };
    &chunk[..len]
}

/// Cuts an allocation at these addresses: each piece with the address it lies behind, none for what lies before all.
fn segments(
    some: impl Iterator<Item = u64>,
    others: impl Iterator<Item = u64>,
    len: u64,
) -> Vec<(Range<u64>, Option<u64>)> {
    let mut cuts: Vec<u64> = some.chain(others).filter(|&offset| offset < len).collect();
    cuts.sort_unstable();
    cuts.dedup();
    let first = cuts.first().copied().unwrap_or(len);
    let ends: Vec<u64> = cuts.iter().copied().skip(1).chain([len]).collect();
    let head = (first > 0).then_some((0..first, None));
    head.into_iter().chain(cuts.into_iter().zip(ends).map(|(start, end)| (start..end, Some(start)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_recorded_whole() {
        assert_eq!(whole_words(0x1000, 3, 3, 4096), (0, 7));
        assert_eq!(whole_words(0x1000, 8, 15, 4096), (8, 15));
        assert_eq!(whole_words(0x1005, 1, 4, 4096), (0, 10), "words are the memory's");
        assert_eq!(whole_words(0x1000, 9, 10, 12), (8, 11), "no further than the memory");
    }

    const STREAM: Place = Place { stream: 7, device: 0, blocking: true };

    struct Fixture {
        memory: Vec<u8>,
        contents: Contents,
        calls: u64,
    }

    type Seen = Vec<(Found, Vec<(u64, u64)>, usize)>;

    impl Fixture {
        fn new(len: usize) -> Self {
            Fixture { memory: vec![0; len], contents: Contents::new(len).unwrap(), calls: 0 }
        }

        fn launch(&mut self, offsets: &[u64]) -> (Seen, u64) {
            let mut seen = Vec::new();
            self.calls += 1;
            // SAFETY: the vector is as long as the contents.
            let left = unsafe {
                self.contents.before_work(self.memory.as_ptr(), offsets, &mut |found, changes| {
                    seen.push((found, changes.ranges.clone(), changes.before.len()));
                })
            };
            for &offset in offsets {
                self.contents.add_use(offset, self.calls, Work::Direct, STREAM);
            }
            self.contents.enqueued(self.calls, Some(self.calls));
            (seen, left)
        }

        fn wait(&mut self, until: u64, meanwhile: impl FnOnce(&mut Vec<u8>)) -> Seen {
            let mut seen = Vec::new();
            // SAFETY: as above.
            unsafe { self.contents.before_wait(self.memory.as_ptr()) };
            meanwhile(&mut self.memory);
            // SAFETY: as above.
            unsafe {
                self.contents.after_wait(self.memory.as_ptr(), |used| used.sequence <= until, &mut |found, changes| {
                    seen.push((found, changes.ranges.clone(), changes.before.len()));
                });
            }
            seen
        }
    }

    #[test]
    fn what_the_host_stores_between_finished_launches_is_found_exactly() {
        let mut fixture = Fixture::new(3 * CHUNK_BYTES + 5);
        fixture.memory[10..20].fill(1);
        let first = Found::HostWrote { first: true };
        // In whole words.
        assert_eq!(fixture.launch(&[0]), (vec![(first, vec![(8, 16)], 0)], 0));
        let seen = fixture.wait(1, |memory| memory[CHUNK_BYTES] = 9);
        assert_eq!(seen, [(Found::DeviceWrote, vec![(CHUNK_BYTES as u64, 1)], 0)]);
        fixture.memory[CHUNK_BYTES - 1] = 2;
        fixture.memory[CHUNK_BYTES] = 3;
        *fixture.memory.last_mut().unwrap() = 4;
        let ranges = vec![(CHUNK_BYTES as u64 - 8, 16), (3 * CHUNK_BYTES as u64, 5)];
        assert_eq!(fixture.launch(&[0]).0, [(Found::HostWrote { first: false }, ranges, 0)]);
        assert!(fixture.wait(2, |_| ()).is_empty());
        assert!(fixture.launch(&[0]).0.is_empty(), "nothing changed");
    }

    #[test]
    fn memory_that_holds_zeros_is_told_of_too() {
        assert_eq!(Fixture::new(100).launch(&[0]).0, [(Found::HostWrote { first: true }, vec![], 0)]);
    }

    #[test]
    fn a_slot_filled_while_others_are_in_use_is_the_hosts() {
        let mut fixture = Fixture::new(1024);
        fixture.launch(&[0]);
        // The device writes its slot while the host fills the next one.
        fixture.memory[4] = 1;
        fixture.memory[300] = 2;
        let (seen, left) = fixture.launch(&[256]);
        assert_eq!((seen, left), (vec![(Found::HostWroteMeanwhile, vec![(300, 1)], 1)], 1));
        // The first launch is known to be over, the second one is not: only the first one's slot is looked at.
        fixture.memory[301] = 3;
        let seen = fixture.wait(1, |_| ());
        assert_eq!(seen, [(Found::SomebodyWrote, vec![(4, 1)], 1)]);
        assert_eq!(fixture.wait(2, |_| ()), [(Found::SomebodyWrote, vec![(301, 1)], 1)]);
        assert!(!fixture.contents.is_used());
    }

    #[test]
    fn memory_that_launches_hand_on_to_each_other_is_left_alone() {
        let mut fixture = Fixture::new(64);
        fixture.launch(&[0]);
        fixture.memory[3] = 1;
        assert_eq!(fixture.launch(&[0]), (vec![], 1));
        assert_eq!(fixture.contents.uses().len(), 1);
        assert_eq!(fixture.wait(2, |_| ()), [(Found::SomebodyWrote, vec![(3, 1)], 1)]);
    }

    #[test]
    fn work_that_was_not_enqueued_is_not_waited_for_and_a_staged_copy_shows_as_stored() {
        let mut fixture = Fixture::new(64);
        fixture.launch(&[0]);
        fixture.wait(1, |_| ());
        fixture.contents.add_use(8, 100, Work::Direct, STREAM);
        fixture.contents.enqueued(100, None);
        assert!(!fixture.contents.is_used());
        fixture.contents.add_use(8, 101, Work::Staged, STREAM);
        fixture.contents.enqueued(101, Some(2));
        fixture.memory[9] = 5;
        assert!(fixture.wait(2, |_| ()).is_empty());
        assert_eq!(fixture.launch(&[0]).0, [(Found::HostWrote { first: false }, vec![(8, 8)], 0)]);
    }

    #[test]
    fn too_many_addresses_count_as_the_beginning() {
        let mut fixture = Fixture::new(64 << 10);
        for call in 0..600 {
            fixture.contents.add_use(call * 16, call, Work::Direct, STREAM);
            fixture.contents.enqueued(call, Some(call));
        }
        assert!(fixture.contents.uses().len() <= MAX_USES + 1);
        assert!(fixture.contents.uses().iter().any(|known| known.sequence == 599));
    }

    #[test]
    fn much_comes_in_parts() {
        let mut fixture = Fixture::new(9 << 20);
        fixture.memory.fill(7);
        let (seen, _) = fixture.launch(&[0]);
        let firsts: Vec<bool> = seen.iter().map(|(found, ..)| *found == Found::HostWrote { first: true }).collect();
        assert_eq!(firsts, [true, false, false]);
        let total: u64 = seen.iter().flat_map(|(_, ranges, _)| ranges).map(|(_, len)| len).sum();
        assert_eq!(total, 9 << 20);
    }
}
