//! Device memory that lies at its recorded addresses: how it is given out and taken back, and what is said of memory that
//! does not.

use std::ffi::c_void;

use hrr_format::catalogue::{Api, Size};

use super::address::{Allocation, Space};
use crate::instruction::{Chunk, flag};
use crate::memory::placement::is_placed_api;
use crate::memory::slots::Slot;
use crate::plan::Planner;
use crate::plan::error::Refusal;
use crate::plan::lower::draft::{Draft, Issue};
use crate::plan::lower::{Call, Lowering, word_at};
use crate::plan::objects::{Definition, Handle};
use crate::plan::order::dependency::Use;
use crate::thunk::{Outcome, THUNKS, Thunk, nothing};

/// Lines kept on pointers that do not translate.
const LINES_KEPT: usize = 100;

/// Handles of texture and surface objects below are told from no other numbers.
const SMALLEST_HANDLE: u64 = 0x1_0000;

/// What becomes of a call that gives placed memory out or takes it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placed {
    /// The address is stored where the call would have written it.
    GivenOut {
        /// Where.
        cell: *const u64,
        /// The address.
        base: u64,
    },
    /// Nothing is given back; a call that waits for the device still does.
    TakenBack,
}

impl Lowering {
    /// The device that the call is issued on, whichever was current: freeing placed memory is a wait for the device it is on.
    pub(crate) fn issued_on(&self) -> Option<i32> {
        self.freed_on.filter(|_| matches!(self.placed, Some(Placed::TakenBack)))
    }
}

/// New memory, to be filled with a byte.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fill {
    slot: Slot,
    len_bytes: u64,
    byte: u8,
}

/// Stores the second word where the first points to.
///
/// # Safety
/// The first word is the address of 8 writable bytes.
unsafe fn store_thunk(_: *const c_void, words: *const u64) -> Outcome {
    // SAFETY: the planner lays out the address of a cell of the chunk's memory, and a value.
    unsafe { (words.read() as *mut u64).write(words.add(1).read()) };
    Outcome { code: 0, raw: 0 }
}

/// Where the words are in so many bytes of contents, which belong to ranges of memory and lie back to back.
fn words_of(base: u64, ranges: &[(u64, u64)], len_bytes: usize) -> impl Iterator<Item = usize> {
    const WORD: u64 = 8;
    let mut behind = 0u64;
    let mut spans = Vec::with_capacity(ranges.len());
    for &(offset, len) in ranges {
        let len = len.min((len_bytes as u64).saturating_sub(behind));
        let address = base.wrapping_add(offset);
        let skip = (WORD - address % WORD) % WORD;
        spans.push((behind + skip, behind + len));
        behind += len;
    }
    spans
        .into_iter()
        .flat_map(|(start, end)| (start..end.saturating_sub(WORD - 1)).step_by(WORD as usize))
        .map(|at| at as usize)
}

impl Planner<'_> {
    /// Decides whether memory that a call gives out is placed, and pads it where it is not.
    pub(crate) fn place_new_memory(
        &mut self,
        call: &Call<'_>,
        draft: &mut Draft,
        lowering: &mut Lowering,
        (cell, slot): (*const u64, Slot),
        base: u64,
        size_bytes: Option<u64>,
    ) {
        let is_range = call.api.name == "hipMemAddressReserve";
        if is_range && self.placement.is_on() {
            // The runtime is asked for the addresses that the program was given.
            draft.set(3, base);
        }
        let is_device = call.api.params.iter().any(|param| {
            matches!(param.role, hrr_format::catalogue::Role::NewDevice(_) | hrr_format::catalogue::Role::NewPitched(_))
        });
        if !is_device {
            return;
        }
        lowering.new_memory = size_bytes.map(|size_bytes| (slot, size_bytes));
        let device = self.choices.devices.live(call.device);
        if is_placed_api(call.api) && self.guard_new_memory(lowering, cell, device, size_bytes) {
            self.planned.not_placed += 1;
            return;
        }
        let range = size_bytes
            .filter(|&size_bytes| is_placed_api(call.api) && !self.may_be_in_use(base, size_bytes))
            .and_then(|size_bytes| self.placement.range_of(base, size_bytes, device));
        let object = lowering.facts.creates.last().copied().unwrap_or(0);
        let Some(range) = range else {
            self.planned.not_placed += 1;
            self.pad(call, draft);
            return;
        };
        self.planned.placed += 1;
        let site = match self.sites.get(&range) {
            Some(&site) => site,
            None => {
                let site = self.objects.new_object();
                self.sites.insert(range, site);
                site
            }
        };
        self.give_out(lowering, cell, base, object, site);
    }

    /// Has the call store an address of memory that replay itself mapped, in place of allocating. `site` stands for the
    /// addresses.
    pub(in crate::plan) fn give_out(
        &mut self,
        lowering: &mut Lowering,
        cell: *const u64,
        base: u64,
        object: u32,
        site: u32,
    ) {
        lowering.placed = Some(Placed::GivenOut { cell, base });
        if let Some(Definition::Memory(allocation)) = lowering.definitions.last_mut() {
            // It stays where it is until the replay is over.
            allocation.release = None;
        }
        self.placed.insert(object, site);
        // Whoever had these addresses before must have given them back, whichever order is kept otherwise.
        lowering.facts.uses.push((site, Use::Occupies));
    }

    /// Makes an allocation larger than it was, if that is asked for.
    fn pad(&self, call: &Call<'_>, draft: &mut Draft) {
        if !self.choices.new_memory.pads() {
            return;
        }
        let size = call.api.params.iter().find_map(|param| match param.role {
            hrr_format::catalogue::Role::NewDevice(Size::Product { factor: 1, params: &[size] }) => {
                Some(&call.api.params[usize::from(size)])
            }
            _ => None,
        });
        if let Some(size) = size {
            draft.set(size.word, self.choices.new_memory.padded(call.record.word(usize::from(size.word))));
        }
    }

    /// Whether placed memory there was given back in a stream's order. The runtime gave it out again only once the stream had
    /// come so far, and nothing waits for that here: such memory is placed no more.
    fn may_be_in_use(&self, base: u64, size_bytes: u64) -> bool {
        let end = base.saturating_add(size_bytes.max(1));
        self.left_in_order.iter().any(|left| left.start < end && base < left.end)
    }

    /// An allocation is given back: where it is placed, nothing is.
    pub(crate) fn release_placed(&mut self, call: &Call<'_>, lowering: &mut Lowering, allocation: &Allocation) {
        if let Some(site) = self.placed.remove(&allocation.object) {
            let Allocation { base, size_bytes, .. } = *allocation;
            if !call.api.blocks() && !self.may_be_in_use(base, size_bytes) {
                self.left_in_order.push(base..base.saturating_add(size_bytes.max(1)));
            }
            // What is given back without a wait may still be in use when the next one is given out.
            if call.api.blocks() {
                self.guarded_is_free(allocation.object);
            }
            lowering.placed = Some(Placed::TakenBack);
            lowering.facts.uses.push((site, Use::Occupies));
        }
    }

    /// What a call over placed memory is issued as.
    pub(crate) fn placed_thunk(
        &self,
        call: &Call<'_>,
        chunk: &mut Chunk,
        draft: &mut Draft,
        lowering: &Lowering,
    ) -> Result<Option<(Thunk, *const c_void)>, Refusal> {
        match lowering.placed {
            None => Ok(None),
            Some(Placed::GivenOut { cell, base }) => {
                let old_count = usize::from(call.api.words);
                draft.replace_words(chunk, &[cell as u64, base], &[], old_count);
                Ok(Some((store_thunk, std::ptr::null())))
            }
            Some(Placed::TakenBack) if call.api.blocks() => {
                // `hipFree` waits for the device.
                let api = Api::by_name("hipDeviceSynchronize").ok_or(Refusal::UnknownApi)?;
                Ok(Some((THUNKS[usize::from(api.id)], self.entry_point(api)?)))
            }
            Some(Placed::TakenBack) => Ok(Some((nothing, std::ptr::null()))),
        }
    }

    /// Whether the call's new memory is filled, if that is asked for.
    pub(crate) fn fill_of(&self, call: &Call<'_>, lowering: &Lowering) -> Option<Fill> {
        let byte = self.choices.new_memory.fill?;
        let (slot, len_bytes) = lowering.new_memory?;
        // What belongs to a stream may be captured into a graph.
        (call.api.stream_param().is_none() && len_bytes > 0).then_some(Fill { slot, len_bytes, byte })
    }

    /// Emits the filling of new memory and the wait for it; the latter publishes the call's progress.
    pub(crate) fn emit_fill(
        &self,
        call: &Call<'_>,
        chunk: &mut Chunk,
        fill: Fill,
        progress: u64,
    ) -> Result<(), Refusal> {
        let device = self.choices.devices.live(call.device);
        let steps = [
            ("hipMemset", vec![0, u64::from(fill.byte), fill.len_bytes], 0),
            ("hipDeviceSynchronize", vec![], progress),
        ];
        for (name, words, progress) in steps {
            let api = Api::by_name(name).ok_or(Refusal::UnknownApi)?;
            let is_fill = !words.is_empty();
            let mut draft = Draft::new(chunk, words.len(), words);
            if is_fill {
                draft.patch(0, fill.slot, 0);
            }
            let issue = Issue {
                thunk: THUNKS[usize::from(api.id)],
                function: self.entry_point(api)?,
                api,
                progress,
                event: call.event,
                lane: call.lane,
                expected: 0,
                device,
                flags: flag::AUXILIARY,
            };
            draft.finish(chunk, issue, &[]);
        }
        Ok(())
    }

    /// Looks through uploaded contents for addresses of live device memory that does not lie where it did, and for the handles
    /// of texture and surface objects. Returns where the latter are, to be translated: a kernel finds its image by them.
    pub(crate) fn scan_upload(&mut self, event: u64, uploads: &str, blob: u64) -> Vec<(u64, Handle)> {
        self.scan_ranges(event, uploads, blob, 0, &[(0, u64::MAX)])
    }

    /// The same in contents that lie back to back and belong to these ranges of memory at `base`: words are looked at where they
    /// are words there.
    pub(crate) fn scan_ranges(
        &mut self,
        event: u64,
        uploads: &str,
        blob: u64,
        base: u64,
        ranges: &[(u64, u64)],
    ) -> Vec<(u64, Handle)> {
        let mut images = Vec::new();
        if self.planned.not_placed == 0 && !self.objects.has_images() {
            return images;
        }
        // A blob that cannot be read is reported where it is staged.
        let Ok(Some(contents)) = self.archive.blobs().get(blob) else { return images };
        for at in words_of(base, ranges, contents.len()) {
            let address = word_at(&contents, at);
            match self.objects.image(address) {
                Some(handle) if address >= SMALLEST_HANDLE => images.push((at as u64, handle)),
                // Runtimes that number them give handles that are any data's small numbers.
                Some(_) => self.planned.small_images += 1,
                None => {}
            }
            if self.planned.not_placed == 0 {
                continue;
            }
            let Some(place) = self.objects.memory.inside(address) else { continue };
            let allocation = &place.allocation;
            if allocation.space != Space::Device || self.placed.contains_key(&allocation.object) {
                continue;
            }
            self.planned.stale += 1;
            if self.planned.first_stale.is_none() {
                let first = format!(
                    "event {event}, {uploads}: byte {} of what it uploads is {address:#x}, which lies in the allocation at {:#x}",
                    at, allocation.base
                );
                // Told before the run, which may not survive it.
                tracing::warn!("an upload holds the address of device memory that lies elsewhere now: {first}");
                self.planned.first_stale = Some(first);
            }
        }
        self.planned.images += images.len() as u64;
        images
    }

    /// Has the handles of images in what the call uploads translated before it is made.
    pub(in crate::plan) fn patch_uploaded_images(&mut self, draft: &mut Draft, lowering: &mut Lowering) {
        for (place, handle) in self.uploaded_images.drain(..) {
            lowering.facts.uses.push((handle.object, Use::Reads));
            draft.patch_at(place as *mut u64, handle.slot, 0);
        }
    }

    /// Names a pointer that lies in nothing live, if that is asked for.
    pub(crate) fn name_untranslated(&mut self, call: &Call<'_>, address: u64) {
        if self.choices.warn_untranslated.is_some() && self.planned.untranslated_lines.len() < LINES_KEPT {
            let kernel = self.archive.kernels().of_launch(call.record.aux());
            let kernel = kernel.map_or("(unknown)", |kernel| kernel.name.as_str());
            self.planned.untranslated_lines.push(format!(
                "event {}, {}: pointer argument {address:#x} of kernel {kernel} lies in no live allocation; null is passed",
                call.event, call.api.name
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_looked_at_where_they_are_words_in_memory() {
        let words = |base, ranges: &[(u64, u64)], len| words_of(base, ranges, len).collect::<Vec<_>>();
        assert_eq!(words(0, &[(0, u64::MAX)], 20), [0, 8]);
        assert_eq!(words(0x1000, &[(4, 12), (24, 16)], 28), [4, 12, 20]);
        assert_eq!(words(0x1003, &[(0, 14)], 14), [5]);
        assert!(words(0, &[(0, 7), (9, 3)], 10).is_empty());
        assert!(words(0, &[(0, 8), (8, 8)], 8).len() == 1, "contents that are cut off");
    }
}
