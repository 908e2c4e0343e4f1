//! Arguments that are addresses of memory: the device's, and the host's with its recorded contents.

use hrr_format::catalogue::{Access, Role, Size, SizeInputs};
use hrr_format::record::{Presence, Section, SectionTag};

use super::draft::Draft;
use super::{Call, Lowering, RecordInputs};
use crate::memory::slots::Slot;
use crate::memory::stage::{HostKind, Shape};
use crate::plan::Planner;
use crate::plan::error::Refusal;
use crate::plan::memory::address::{Place, Space};

/// Ordinary memory, which HIP was never told of.
static UNKNOWN_TO_HIP: u64 = 0;

impl<'a> Planner<'a> {
    /// Slot and offset of a device address; `None` where the call failed at capture over an address that was nothing.
    pub(in crate::plan) fn live_address(
        &mut self,
        call: &Call<'_>,
        lowering: &mut Lowering,
        address: u64,
        access: Access,
        reach: Option<u64>,
        param: &'static str,
    ) -> Result<Option<(Slot, u64)>, Refusal> {
        match self.memory_at(address) {
            Some(place) => {
                self.check_region(call, param, address, reach);
                self.check_range(call, &place, reach, param)?;
                lowering.note_memory(&place.allocation, access);
                Ok(Some((place.allocation.slot, place.offset_bytes)))
            }
            None if call.succeeded() => Err(Refusal::Address { address, param }),
            None => Ok(None),
        }
    }

    /// A parameter that names host memory, or memory of either side.
    #[expect(clippy::too_many_arguments, reason = "one argument each for what a memory parameter is made of")]
    pub(in crate::plan) fn lower_memory(
        &mut self,
        call: &Call<'_>,
        draft: &mut Draft,
        lowering: &mut Lowering,
        number: u8,
        value: u64,
        access: Access,
        size: Size,
    ) -> Result<(), Refusal> {
        let param = &call.api.params[usize::from(number)];
        if value == 0 {
            return Ok(());
        }
        let recorded = |tag| call.record.section(tag, number).filter(|section| section.presence != Presence::Absent);
        if let Some(section) = recorded(SectionTag::BlobIn) {
            let (blob, shape) = self.blob_shape(call, &section, number, size, "the host buffer")?;
            let source = self.copy_source(call, self.host_kind(value), blob, shape)?;
            draft.set(param.word, source as u64);
            lowering.stages = true;
            return Ok(());
        }
        if let Some(section) = recorded(SectionTag::BlobOut) {
            let what = "the device-to-host result to validate against";
            let (blob, shape) = self.blob_shape(call, &section, number, size, what)?;
            if self.is_shape_only() && !call.succeeded() {
                return Err(Refusal::NotReissued);
            }
            let span = shape.span_bytes().unwrap_or(u64::MAX);
            if let Some(used) = self.used_directly(value, span) {
                lowering.note_memory(&used.allocation, access);
                draft.patch(param.word, used.allocation.slot, used.offset_bytes);
                lowering.direct_results.push((blob, value, shape));
                return Ok(());
            }
            let place = self.host.result(self.archive, self.host_kind(value), blob, shape)?;
            draft.set(param.word, place as u64);
            lowering.results.push((blob, place as usize, shape));
            lowering.stages = true;
            return Ok(());
        }
        if let Some(place) = self.memory_at(value) {
            self.check_region(call, param.name, value, self.reach(call, size));
            self.check_range(call, &place, self.reach(call, size), param.name)?;
            lowering.note_memory(&place.allocation, access);
            draft.patch(param.word, place.allocation.slot, place.offset_bytes);
            return Ok(());
        }
        if !call.succeeded() {
            return Err(Refusal::NotReissued);
        }
        self.check_not_lost(value, param.name)?;
        // Host memory without contents of its own: a copy captured into a graph, whose contents come with each launch.
        let len_bytes = self.size_of(call, size).unwrap_or(0);
        if len_bytes == 0 && matches!(param.role, Role::Any(..)) && size == Size::Unknown {
            if access.writes() {
                return Err(Refusal::Address { address: value, param: param.name });
            }
            // A question about memory that the runtime knows nothing of, as programs ask to find out whose a pointer is.
            draft.set(param.word, (&raw const UNKNOWN_TO_HIP) as u64);
            return Ok(());
        }
        let place = self.shadow(value, len_bytes)?;
        draft.set(param.word, place as u64);
        Ok(())
    }

    /// The contents that were recorded for the host memory at `address`, which a struct or an array names. Each piece of
    /// memory that the recorder took for the host's has a section of its own, in order.
    pub(in crate::plan) fn next_contents<'r>(
        &self,
        call: &Call<'r>,
        lowering: &mut Lowering,
        number: u8,
        address: u64,
        access: Access,
    ) -> Option<Section<'r>> {
        let tag = if access.writes() { SectionTag::BlobOut } else { SectionTag::BlobIn };
        let of_param = |section: &Section<'_>| section.tag == tag && section.param == number;
        let mut sections = call.record.sections().map_while(Result::ok).filter(of_param);
        let used = lowering.used.iter().filter(|used| **used == (tag, number)).count();
        let section = sections.nth(used)?;
        // What the program had from HIP as device memory had no contents recorded, whatever the copy's kind said.
        let is_device =
            self.objects.memory.inside(address).is_some_and(|place| !matches!(place.allocation.space, Space::Pinned));
        if is_device {
            return None;
        }
        lowering.used.push((tag, number));
        (section.presence != Presence::Absent).then_some(section)
    }

    /// A place with the recorded contents of a section, or for the result to be compared with them.
    pub(in crate::plan) fn stage_contents(
        &mut self,
        call: &Call<'_>,
        lowering: &mut Lowering,
        section: &Section<'_>,
        address: u64,
        shape: Shape,
    ) -> Result<*mut u8, Refusal> {
        let is_source = section.tag == SectionTag::BlobIn;
        let what = if is_source { "the host buffer" } else { "the device-to-host result to validate against" };
        if section.presence == Presence::Withheld && !self.is_shape_only() {
            return Err(Refusal::Withheld { what });
        }
        let blob = section.blob().ok_or(Refusal::Lacks { what })?;
        let kind = self.host_kind(address);
        lowering.stages = true;
        if is_source {
            return self.copy_source(call, kind, blob.number, shape);
        }
        let place = self.host.result(self.archive, kind, blob.number, shape)?;
        lowering.results.push((blob.number, place as usize, shape));
        Ok(place)
    }

    /// Has a result that a struct or an array names copied to the memory itself, where kernels use that directly. False where
    /// they do not.
    pub(in crate::plan) fn copy_in_place(
        &self,
        draft: &mut Draft,
        lowering: &mut Lowering,
        section: &Section<'_>,
        address: u64,
        shape: Shape,
        target: *mut u64,
    ) -> bool {
        let rows = Shape { lead_bytes: 0, tail_bytes: 0, ..shape };
        let first = address.wrapping_add(shape.lead_bytes);
        let place = (section.tag == SectionTag::BlobOut && section.presence == Presence::Present)
            .then(|| self.used_directly(first, rows.span_bytes().unwrap_or(u64::MAX)))
            .flatten();
        let (Some(place), Some(blob)) = (place, section.blob()) else { return false };
        lowering.note_memory(&place.allocation, Access::Write);
        draft.patch_at(target, place.allocation.slot, place.offset_bytes.wrapping_sub(shape.lead_bytes));
        lowering.direct_results.push((blob.number, first, rows));
        true
    }

    /// Host memory at an address that kernels use directly somewhere in the archive, as long as a result that is copied there:
    /// a kernel may read it before anyone waits, so the copy writes to the memory itself, and the result is kept when the
    /// program has seen it.
    pub(in crate::plan) fn used_directly(&self, address: u64, span_bytes: u64) -> Option<Place> {
        let place = self.objects.memory.inside(address).filter(|_| !self.is_shape_only())?;
        let allocation = &place.allocation;
        let fits = place.offset_bytes.checked_add(span_bytes).is_some_and(|end| end <= allocation.size_bytes);
        let used = allocation.space != Space::Device && self.direct_host_memory.contains(&allocation.base);
        (fits && used).then_some(place)
    }

    /// Number and shape of the contents a section names, refused where they were withheld or do not fit the call.
    pub(in crate::plan) fn blob_shape(
        &mut self,
        call: &Call<'_>,
        section: &Section<'_>,
        number: u8,
        size: Size,
        what: &'static str,
    ) -> Result<(u64, Shape), Refusal> {
        if section.presence == Presence::Withheld && !self.is_shape_only() {
            return Err(Refusal::Withheld { what });
        }
        let blob = section.blob().ok_or(Refusal::Lacks { what })?;
        let inputs = RecordInputs { api: call.api, record: &call.record, fields: &[] };
        let shape = match size {
            Size::Rect { width, height, pitch } => {
                let value = |param| inputs.word(param, 0).unwrap_or(0);
                Shape::rows(value(width), value(height), value(pitch))
            }
            _ => Shape::linear(blob.size_bytes),
        };
        let param = call.api.params[usize::from(number)].name;
        // What the call will touch must be what was recorded, or it would reach past the memory made for it.
        let touched = match size {
            Size::Rect { .. } => shape.packed_bytes(),
            _ => size.value(&inputs),
        };
        if touched != Some(blob.size_bytes) || shape.span_bytes().is_none() {
            return Err(Refusal::Section {
                param,
                found_bytes: blob.size_bytes as usize,
                expected_bytes: touched.unwrap_or(0) as usize,
            });
        }
        Ok((blob.number, shape))
    }

    /// Whether the program had pinned the memory at this address.
    pub(in crate::plan) fn host_kind(&self, address: u64) -> HostKind {
        match self.objects.memory.inside(address) {
            Some(place) if place.allocation.space != Space::Device => HostKind::Pinned,
            _ => HostKind::Pageable,
        }
    }
}
