//! Host memory that devices use directly: what the program stored in it goes there again at the same place of the order, and
//! what devices wrote to it is compared with what the program saw.
//!
//! Both are instructions of their own in the sequence of the thread that was recorded with them. Where the recorder
//! could not tell the host's bytes from those of work in flight, a byte is stored only if it still holds what it held at
//! capture before: what the device has written by then stays.

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use hrr_format::catalogue::Api;
use hrr_format::record::{BlobRef, Record, SectionTag, marker};

use super::address::{Allocation, Space};
use crate::instruction::{Wait, flag};
use crate::memory::stage::{HostKind, Shape};
use crate::mutation::Mutation;
use crate::plan::error::{PlanError, Refusal};
use crate::plan::lower::draft::{Draft, Issue};
use crate::plan::objects::Handle;
use crate::plan::order::dependency::Use;
use crate::plan::order::edges::Entered;
use crate::plan::results::{Check, Pending, Seen};
use crate::plan::{Open, Planner};
use crate::thunk::Outcome;

/// What is told of host memory that devices use directly.
#[derive(Clone, Debug, Default)]
pub struct HostMemoryCounts {
    /// Times contents are restored.
    pub restored: u64,
    /// Bytes of them.
    pub restored_bytes: u64,
    /// How many of these go around work that may be in flight.
    pub meanwhile: u64,
    /// Allocations whose contents the archive lacks.
    pub not_recorded: u64,
    /// The first of them.
    pub first_not_recorded: Option<String>,
}

/// A marker, checked.
struct HostMarker<'a> {
    allocation: Allocation,
    /// Offset and length of each range, ascending and inside the allocation.
    ranges: Vec<(u64, u64)>,
    bytes: u64,
    after: Option<BlobRef>,
    before: Option<BlobRef>,
    /// Where handles of images lie in what the host stored, and in what was there before.
    images: [Vec<(u64, Handle)>; 2],
    record: Record<'a>,
}

/// What an instruction does with the ranges; its words are laid out as [`Words`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
enum Action {
    /// Stores what the host stored.
    Store = 0,
    /// Makes everything zero, then stores.
    StoreFirst = 1,
    /// Keeps what is there, for the comparison.
    Save = 2,
    /// Keeps what is there, then stores what the host may have stored.
    SaveAndStore = 3,
}

/// The words of an instruction.
#[repr(C)]
struct Words {
    /// Live address of the allocation.
    base: u64,
    size_bytes: u64,
    ranges: u64,
    range_count: u64,
    /// What the ranges hold afterwards.
    after: u64,
    /// What they held before, or null.
    before: u64,
    /// Where what they hold now goes, or null.
    save: u64,
    action: u64,
}

const WORDS: usize = size_of::<Words>() / 8;

/// In the length of a range: it is left as it is.
const LEFT_ALONE: u64 = 1 << 63;

/// In the length of a range: it has no contents, and becomes zero.
const ZEROED: u64 = 1 << 62;

/// What lies around the ranges in an allocation, but for memory that copies in flight write to, as ranges marked [`ZEROED`].
fn gaps(ranges: &[(u64, u64)], in_flight: &[(u64, u64)], size_bytes: u64) -> Vec<(u64, u64)> {
    let mut at = 0;
    let mut gaps = Vec::new();
    for &(offset, len) in ranges.iter().chain(&[(size_bytes, 0)]) {
        if offset > at {
            gaps.push((at, offset - at));
        }
        at = offset + len;
    }
    let cut = cut(&gaps, in_flight).into_iter().filter(|(_, len)| len & LEFT_ALONE == 0);
    cut.map(|(offset, len)| (offset, len | ZEROED)).collect()
}

/// The ranges cut where memory begins and ends that copies in flight write to; their parts in it are marked [`LEFT_ALONE`].
fn cut(ranges: &[(u64, u64)], in_flight: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut cut = Vec::with_capacity(ranges.len());
    for &(offset, len) in ranges {
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let inside =
                in_flight.iter().filter(|(start, stop)| (*start..*stop).contains(&at)).map(|(_, stop)| *stop).max();
            let next = in_flight.iter().map(|(start, _)| *start).filter(|&start| start > at).min();
            let stop = inside.or(next).map_or(end, |stop| stop.min(end));
            cut.push((at, (stop - at) | if inside.is_some() { LEFT_ALONE } else { 0 }));
            at = stop;
        }
    }
    cut
}

impl<'a> Planner<'a> {
    /// Plans a marker about host memory.
    pub(in crate::plan) fn host_memory(&mut self, event: u64, lane: u32, record: Record<'a>) -> Result<(), PlanError> {
        self.plan_host_memory(event, lane, record).map_err(|reason| PlanError {
            event,
            thread: self.archive.streams()[lane as usize].header().thread,
            api: "host memory that devices use".to_owned(),
            reason,
        })
    }

    fn plan_host_memory(&mut self, event: u64, lane: u32, record: Record<'a>) -> Result<(), Refusal> {
        let wrote = record.api() == marker::HOST_WROTE;
        let counts = &mut self.planned.host_memory;
        if wrote && record.word(2) & marker::host_wrote::NOT_RECORDED != 0 {
            counts.not_recorded += 1;
            let (address, bytes) = (record.word(0), record.word(1));
            counts
                .first_not_recorded
                .get_or_insert_with(|| format!("{bytes} bytes at {address:#x}, first used by event {event}"));
            return Ok(());
        }
        let mut checked = self.check_marker(record)?;
        if wrote {
            counts_restored(&mut self.planned.host_memory, &checked);
            checked.images = [checked.after, checked.before].map(|blob| {
                let Some(blob) = blob else { return Vec::new() };
                let base = checked.allocation.base;
                self.scan_ranges(event, "what the host stores", blob.number, base, &checked.ranges)
            });
        }
        let mut facts = self.edges.facts();
        let images = checked.images.iter().flatten();
        facts.uses.extend(images.map(|(_, handle)| (handle.object, Use::Reads)));
        let object = checked.allocation.object;
        let aliases = self.host_aliases.get(&object).map_or(&[][..], Vec::as_slice);
        for object in aliases.iter().map(|(alias, _)| *alias).chain([object]) {
            facts.uses.push((object, Use::Reads));
            facts.memory.push((object, true));
        }
        let mut waits = std::mem::take(&mut self.waits);
        waits.clear();
        let placeholder = self.edges.placeholder();
        waits.push(placeholder);
        let count = self.lanes[lane as usize].planned + 1;
        let (begin, end) = (record.begin(), record.end().max(record.begin()));
        let entered = Entered { lane, begin, end, count, stream: 0, in_order_on: 0, handed_off: false, placeholder };
        self.objects.contents.name_once(&mut facts.memory);
        self.edges.entered(entered, facts);
        self.lanes[lane as usize].planned = count;
        let result = self.emit_host_memory(event, lane, checked, count, &waits);
        self.waits = waits;
        result?;
        self.open[lane as usize] = Some(Open { issued: true, definitions: Vec::new() });
        Ok(())
    }

    /// The marker's allocation and ranges, refused where they do not fit each other.
    fn check_marker(&self, record: Record<'a>) -> Result<HostMarker<'a>, Refusal> {
        let what = "contents of host memory that devices use";
        let address = record.word(0);
        let found = self
            .objects
            .memory
            .exact(address)
            .filter(|found| matches!(found.space, Space::Pinned | Space::Managed) && found.bounded);
        let allocation = *found.ok_or(Refusal::Address { address, param: "host memory" })?;
        let section = record.section_tagged(SectionTag::HostRanges).ok_or(Refusal::Lacks { what })?;
        let ranges: Vec<(u64, u64)> = section.host_ranges().collect();
        let (mut behind, mut bytes) = (0u64, 0u64);
        for &(offset_bytes, len_bytes) in &ranges {
            let end = offset_bytes.checked_add(len_bytes).filter(|&end| end <= allocation.size_bytes);
            let Some(end) = end.filter(|_| offset_bytes >= behind) else {
                let size_bytes = allocation.size_bytes;
                return Err(Refusal::Range { param: "host memory", len_bytes, offset_bytes, size_bytes });
            };
            (behind, bytes) = (end, bytes + len_bytes);
        }
        let blob = |tag| match record.section_tagged(tag).map(|section| section.blob()) {
            None => Ok(None),
            Some(Some(blob)) if blob.size_bytes == bytes => Ok((bytes > 0).then_some(blob)),
            Some(blob) => Err(Refusal::Section {
                param: "host memory",
                found_bytes: blob.map_or(0, |blob| blob.size_bytes) as usize,
                expected_bytes: bytes as usize,
            }),
        };
        let (after, before) = (blob(SectionTag::BlobIn)?, blob(SectionTag::HostBefore)?);
        if bytes > 0 && after.is_none() {
            return Err(Refusal::Lacks { what });
        }
        Ok(HostMarker { allocation, ranges, bytes, after, before, images: Default::default(), record })
    }

    /// Ranges of an allocation that copies write to which the program has not yet waited for.
    fn in_flight_results(&self, allocation: &Allocation) -> Vec<(u64, u64)> {
        let in_allocation = |pending: &Pending| match pending {
            Pending::InPlace { address, shape, .. } => {
                let start = address.checked_sub(allocation.base).filter(|&start| start < allocation.size_bytes)?;
                let span_bytes = shape.span_bytes().unwrap_or(u64::MAX);
                Some((start, start.saturating_add(span_bytes).min(allocation.size_bytes)))
            }
            Pending::Copy(_) => None,
        };
        self.pending.values().filter_map(in_allocation).collect()
    }

    fn emit_host_memory(
        &mut self,
        event: u64,
        lane: u32,
        mut marker: HostMarker<'_>,
        count: u64,
        waits: &[Wait],
    ) -> Result<(), Refusal> {
        let wrote = marker.record.api() == marker::HOST_WROTE;
        let first = wrote && marker.record.word(2) & marker::host_wrote::FIRST != 0;
        let action = match (wrote, marker.before) {
            (true, _) if first => Action::StoreFirst,
            (true, _) => Action::Store,
            (false, None) => Action::Save,
            (false, Some(_)) => Action::SaveAndStore,
        };
        let restores = self.mutation != Some(Mutation::NoHostRestore);
        // Where the program's waits are left out, what the device writes is there at no certain time.
        let leaves_out = if wrote { !restores } else { self.triage.skips_syncs() };
        let mut translated = Vec::new();
        let mut source = |blob: Option<BlobRef>, images: Vec<(u64, Handle)>| match blob {
            Some(blob) if !leaves_out => {
                let source = self.source_with_images(blob, images)?;
                translated.extend(source.images);
                Ok::<u64, Refusal>(source.place as u64)
            }
            _ => Ok(0),
        };
        let [images, images_before] = std::mem::take(&mut marker.images);
        let after = if action == Action::Save { 0 } else { source(marker.after, images)? };
        let before = source(marker.before, images_before)?;
        // What a copy in flight brings replaces what the host had stored there: the recorder may have seen either.
        let in_flight = if wrote { self.in_flight_results(&marker.allocation) } else { Vec::new() };
        let mut ranges = if leaves_out { Vec::new() } else { cut(&marker.ranges, &in_flight) };
        if action == Action::StoreFirst && !leaves_out && !in_flight.is_empty() {
            ranges.extend(gaps(&marker.ranges, &in_flight, marker.allocation.size_bytes));
            ranges.sort_unstable();
        }
        let save = if wrote || leaves_out || marker.bytes == 0 {
            0
        } else {
            let place = self.host.place(HostKind::Pageable, marker.bytes)? as u64;
            self.check_host_memory(event, lane, &marker, place, count);
            place
        };
        self.host.keep_until(self.host.window(), Wait { lane, count });
        let api = Api::by_name("hipHostGetDevicePointer").ok_or(Refusal::UnknownApi)?;
        let worker = self.assignment.worker_of[lane as usize] as usize;
        let mut chunk = self.chunks[worker].take().unwrap_or_default();
        let table = chunk.memory.allocate((ranges.len() * 2).max(1));
        for (index, word) in ranges.iter().flat_map(|&(offset, len)| [offset, len]).enumerate() {
            // SAFETY: the room is two words for each range.
            unsafe { table.add(index).write(word) };
        }
        let stores_parts = leaves_out || !in_flight.is_empty();
        let action = if stores_parts && action == Action::StoreFirst { Action::Store } else { action };
        let words = Words {
            base: 0,
            size_bytes: marker.allocation.size_bytes,
            ranges: table as u64,
            range_count: ranges.len() as u64,
            after,
            before,
            save,
            action: action as u64,
        };
        let Words { base, size_bytes, ranges, range_count, after, before, save, action } = words;
        let words = [base, size_bytes, ranges, range_count, after, before, save, action];
        let mut draft = Draft::new(&mut chunk, WORDS, words);
        draft.patch(0, marker.allocation.slot, 0);
        for (place, handle) in translated {
            draft.patch_at(place as *mut u64, handle.slot, 0);
        }
        draft.flags |= flag::AUXILIARY;
        let issue = Issue {
            thunk: host_memory_thunk,
            function: std::ptr::null(),
            api,
            progress: count,
            event,
            lane,
            expected: 0,
            device: -1,
            flags: 0,
        };
        draft.finish(&mut chunk, issue, waits);
        self.chunks[worker] = Some(chunk);
        Ok(())
    }

    /// Has what the device wrote compared with what the program saw.
    fn check_host_memory(&mut self, event: u64, lane: u32, marker: &HostMarker<'_>, place: u64, count: u64) {
        let Some(after) = marker.after else { return };
        if self.choices.kernel_filter.is_some() {
            // Without its kernels, what the archive computes means nothing.
            return;
        }
        let unchecked = self.host.unchecked();
        // Relaxed: as for the results of copies.
        unchecked.fetch_add(1, Ordering::Relaxed);
        let check = Check {
            live: place as usize,
            shape: Shape::linear(marker.bytes),
            blob: after.number,
            ready: Some(Wait { lane, count }),
            event,
            lane,
            api: 0,
            seen: Some(Seen {
                address: marker.allocation.base + marker.ranges.first().map_or(0, |(offset, _)| *offset),
                before: marker.before.map(|blob| blob.number),
            }),
            unchecked,
        };
        // The receiver outlives the planner.
        let _ = self.checks.send(check);
    }
}

fn counts_restored(counts: &mut HostMemoryCounts, marker: &HostMarker<'_>) {
    counts.restored += 1;
    counts.restored_bytes += marker.bytes;
    counts.meanwhile += u64::from(marker.before.is_some());
}

/// Does what the words say.
///
/// # Safety
/// The words are [`Words`]: the allocation is alive and of its size, the ranges lie inside it in ascending order, and each
/// place that is not null is as long as they are together.
unsafe fn host_memory_thunk(_: *const c_void, words: *const u64) -> Outcome {
    // SAFETY: the planner lays the words out like this; they are 8-byte aligned.
    let words = unsafe { &*words.cast::<Words>() };
    let base = words.base as *mut u8;
    if words.action == Action::StoreFirst as u64 {
        // SAFETY: the allocation has this size.
        unsafe { std::ptr::write_bytes(base, 0, words.size_bytes as usize) };
    }
    let mut done = 0;
    for index in 0..words.range_count as usize {
        // SAFETY: each range is two words of the table, lies inside the allocation, and has as many bytes in every place, behind
        // those of the ranges before. The device may write to the allocation meanwhile, as it might while the program did the
        // same.
        unsafe {
            let pair = (words.ranges as *const u64).add(index * 2);
            let (live, len) = (base.add(pair.read() as usize), pair.add(1).read());
            let (zeroed, alone, len) =
                (len & ZEROED != 0, len & LEFT_ALONE != 0, (len & !(LEFT_ALONE | ZEROED)) as usize);
            if zeroed {
                std::ptr::write_bytes(live, 0, len);
                continue;
            }
            if alone {
                done += len;
                continue;
            }
            if words.save != 0 {
                std::ptr::copy_nonoverlapping(live, (words.save as *mut u8).add(done), len);
            }
            if words.after != 0 && words.before == 0 {
                std::ptr::copy_nonoverlapping((words.after as *const u8).add(done), live, len);
            } else if words.after != 0 {
                let (after, before) = ((words.after as *const u8).add(done), (words.before as *const u8).add(done));
                for at in 0..len {
                    let (after, before) = (after.add(at).read(), before.add(at).read());
                    let live = live.add(at);
                    if after != before && live.read_volatile() == before {
                        live.write_volatile(after);
                    }
                }
            }
            done += len;
        }
    }
    Outcome { code: 0, raw: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(
        live: &mut [u8],
        ranges: &[u64],
        after: &[u8],
        before: Option<&[u8]>,
        save: Option<&mut [u8]>,
        action: Action,
    ) {
        let words = Words {
            base: live.as_mut_ptr() as u64,
            size_bytes: live.len() as u64,
            ranges: ranges.as_ptr() as u64,
            range_count: ranges.len() as u64 / 2,
            after: after.as_ptr() as u64,
            before: before.map_or(0, |before| before.as_ptr() as u64),
            save: save.map_or(0, |save| save.as_mut_ptr() as u64),
            action: action as u64,
        };
        // SAFETY: the words are laid out as the thunk wants them, over the test's own memory.
        unsafe { host_memory_thunk(std::ptr::null(), (&raw const words).cast()) };
    }

    #[test]
    fn contents_are_stored_in_their_ranges() {
        let mut live = *b"0123456789";
        run(&mut live, &[1, 2, 6, 1], b"abc", None, None, Action::Store);
        assert_eq!(&live, b"0ab345c789");
        run(&mut live, &[1, 2], b"xy", None, None, Action::StoreFirst);
        assert_eq!(&live, b"\0xy\0\0\0\0\0\0\0");
    }

    #[test]
    fn what_copies_in_flight_write_is_left_alone() {
        assert_eq!(cut(&[(2, 6)], &[]), [(2, 6)]);
        assert_eq!(cut(&[(0, 4), (6, 4)], &[(2, 8)]), [(0, 2), (2, 2 | LEFT_ALONE), (6, 2 | LEFT_ALONE), (8, 2)]);
        let mut live = *b"0123456789";
        run(&mut live, &[1, 2, 3, 2 | LEFT_ALONE, 5, 1], b"abcde", None, None, Action::Store);
        assert_eq!(&live, b"0ab34e6789");
        // Before the first store, everything else is zero.
        assert_eq!(
            gaps(&[(2, 2), (6, 1)], &[(3, 5), (9, 12)], 10),
            [(0, 2 | ZEROED), (5, 1 | ZEROED), (7, 2 | ZEROED)]
        );
        let ranges = [0, 1 | ZEROED, 1, 2, 3, 2 | LEFT_ALONE, 5, 1, 6, 2 | ZEROED];
        let mut live = *b"0123456789";
        run(&mut live, &ranges, b"abcde", None, None, Action::Store);
        assert_eq!(&live, b"\0ab34e\0\089");
    }

    #[test]
    fn what_the_device_has_written_meanwhile_stays() {
        let mut live = *b"0D23456789";
        run(&mut live, &[0, 4], b"abc3", Some(b"0123"), None, Action::Store);
        assert_eq!(&live, b"aDc3456789");
    }

    #[test]
    fn what_is_there_is_kept_for_the_comparison_before_the_hosts_part_is_stored() {
        let (mut live, mut save) = (*b"0D23", [0; 4]);
        run(&mut live, &[0, 4], b"aDc3", Some(b"0123"), Some(&mut save), Action::SaveAndStore);
        assert_eq!((&save, &live), (b"0D23", b"aDc3"));
    }
}
