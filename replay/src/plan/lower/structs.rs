//! Arguments that are structs, field by field.

use hrr_format::catalogue::{Effect, HandleKind, Role, STRUCTS, Size, StructField, StructLayout};
use hrr_format::record::SectionTag;

use super::bounds::{Reach, host_rows, host_shape, memory_size, struct_reach};
use super::draft::Draft;
use super::{Call, Lowering, RecordInputs, integer, out_bytes, word_at};
use crate::instruction::Chunk;
use crate::memory::stage::{Shape, poison_address};
use crate::plan::Planner;
use crate::plan::error::Refusal;
use crate::plan::memory::address::Space;
use crate::plan::objects::{STREAM_LEGACY, STREAM_PER_THREAD};
use crate::plan::order::dependency::Use;

/// Values below are no addresses: Linux maps nothing there.
const SMALLEST_ADDRESS: u64 = 65536;

impl<'a> Planner<'a> {
    #[expect(clippy::too_many_arguments, reason = "one argument each for what a struct parameter is made of")]
    pub(in crate::plan) fn lower_structs(
        &mut self,
        call: &Call<'a>,
        chunk: &mut Chunk,
        draft: &mut Draft,
        lowering: &mut Lowering,
        number: u8,
        layout: usize,
        size: Size,
    ) -> Result<(), Refusal> {
        let param = &call.api.params[usize::from(number)];
        let layout = &STRUCTS[layout];
        let stride = layout.size_bytes as usize;
        let (place, bytes) = self.inline_copy(call, chunk, number, size, stride as u64)?;
        let place = place.cast::<u8>();
        draft.set(param.word, place as u64);
        if !bytes.len().is_multiple_of(stride) {
            return Err(Refusal::Section { param: param.name, found_bytes: bytes.len(), expected_bytes: stride });
        }
        // The structs themselves are the first section of the walk.
        lowering.used.push((SectionTag::In, number));
        self.lower_elements(call, chunk, draft, lowering, number, layout, bytes, place)
    }

    #[expect(clippy::too_many_arguments, reason = "one argument each for what a field is made of")]
    pub(crate) fn lower_field(
        &mut self,
        call: &Call<'a>,
        chunk: &mut Chunk,
        draft: &mut Draft,
        lowering: &mut Lowering,
        number: u8,
        (layout, field): (&'static StructLayout, &'static StructField),
        element: &[u8],
        base: *mut u8,
    ) -> Result<(), Refusal> {
        let offset = field.offset_bytes as usize;
        if let Role::Ordinal = field.role {
            let recorded = integer(element, offset, 4).unwrap_or(0) as u32 as i32;
            let live = self.live_device(call, recorded)?;
            // SAFETY: the catalogue's fields lie inside their struct, which was copied whole; it may be unaligned.
            unsafe { base.add(offset).cast::<i32>().write_unaligned(live) };
            return Ok(());
        }
        let value = word_at(element, offset);
        // SAFETY: the catalogue's fields lie inside their struct, which was copied whole.
        let target = unsafe { base.add(offset) }.cast::<u64>();
        let write = |value: u64| {
            // SAFETY: as above; struct fields may be unaligned in an array of structs.
            unsafe { target.write_unaligned(value) };
        };
        if let Some(nested) = self.lower_nested(call, chunk, draft, lowering, number, field, element)? {
            write(nested);
            return Ok(());
        }
        if let Role::Get(kind) | Role::Create(kind) = field.role {
            let recorded = out_bytes(&call.record, number).map_or(0, |bytes| word_at(bytes, offset));
            write(0);
            let fresh = matches!(field.role, Role::Create(_));
            self.lower_new_handle(call, draft, lowering, target, kind, recorded, fresh);
            return Ok(());
        }
        if let Role::NewDevice(_) | Role::GetDevice(_) = field.role {
            let after = out_bytes(&call.record, number).map_or(0, |bytes| word_at(bytes, offset));
            write(0);
            if call.succeeded() && after != 0 {
                let inputs = RecordInputs { api: call.api, record: &call.record, fields: element };
                let size = match field.role {
                    Role::NewDevice(size) | Role::GetDevice(size) => size.value(&inputs),
                    _ => None,
                };
                self.define_memory(call, draft, lowering, target, after, size, Space::Device, None);
            }
            return Ok(());
        }
        if value == 0 || matches!(field.role, Role::Out(_)) {
            return Ok(());
        }
        if let Some(function) = self.replacement_in_struct(call, layout, field, element)? {
            write(function);
            return Ok(());
        }
        match field.role {
            // Small values are no addresses, and where headers differ in a struct's layout they may be something else.
            Role::Opaque if value < SMALLEST_ADDRESS => {}
            Role::Opaque | Role::UserData => write(0),
            Role::Callback => write(super::special::callback_address(call.api)),
            Role::Use(HandleKind::Stream) => self.lower_stream_field(call, chunk, draft, lowering, target, value)?,
            Role::Use(kind) => match self.live_handle(call, lowering, kind, value, Use::Reads)? {
                Some(slot) => draft.patch_at(target, slot, 0),
                None => write(poison_address()),
            },
            Role::Device(access, _) | Role::Any(access, _) | Role::Host(access, _) => {
                if let Some(section) = self.next_contents(call, lowering, number, value, access) {
                    let blob = section.blob().ok_or(Refusal::Lacks { what: "contents of host memory" })?;
                    let shape = host_shape(layout, field, element, blob.size_bytes).ok_or(Refusal::Section {
                        param: field.name,
                        found_bytes: blob.size_bytes as usize,
                        expected_bytes: 0,
                    })?;
                    if !self.copy_in_place(draft, lowering, &section, value, shape, target) {
                        write(self.stage_contents(call, lowering, &section, value, shape)? as u64);
                    }
                    return Ok(());
                }
                let reach = self.field_reach(call, (layout, field), element, value)?;
                match self.live_address(call, lowering, value, access, reach, field.name) {
                    Ok(Some((slot, offset))) => draft.patch_at(target, slot, offset),
                    Ok(None) => write(poison_address()),
                    Err(Refusal::Address { .. }) if matches!(field.role, Role::Any(..) | Role::Host(..)) => {
                        self.check_not_lost(value, field.name)?;
                        // The launches of the graph name the first row, whose contents come with them.
                        let refusal = Refusal::Address { address: value, param: field.name };
                        let rows = host_rows(layout, field, element).ok_or(refusal)?;
                        let lead_bytes = rows.lead_bytes;
                        let rows = Shape { lead_bytes: 0, ..rows };
                        let (first, span_bytes) =
                            (value.wrapping_add(lead_bytes), rows.span_bytes().unwrap_or(u64::MAX));
                        write((self.shadow(first, span_bytes)? as u64).wrapping_sub(lead_bytes));
                    }
                    Err(refusal) => return Err(refusal),
                }
            }
            Role::KernelSymbol => {
                // A function handle or a host symbol: hipKernelNodeParams takes either.
                match self.objects.handle(HandleKind::Function, value) {
                    Some(handle) => {
                        lowering.facts.uses.push((handle.object, Use::Reads));
                        draft.patch_at(target, handle.slot, 0);
                    }
                    None => write(self.symbol_address(call, lowering, value)?),
                }
            }
            Role::VarSymbol => write(self.symbol_address(call, lowering, value)?),
            Role::KernelParams | Role::Extra => {
                let kernel = self.kernel_of_struct(call, layout, element)?;
                let address = self.kernel_argument_memory(call, chunk, draft, lowering, field.role, kernel)?;
                write(address);
            }
            _ => return Err(Refusal::Shape("a struct field of a kind that replay does not rewrite")),
        }
        Ok(())
    }

    /// A stream that a struct names.
    fn lower_stream_field(
        &mut self,
        call: &Call<'_>,
        chunk: &mut Chunk,
        draft: &mut Draft,
        lowering: &mut Lowering,
        target: *mut u64,
        value: u64,
    ) -> Result<(), Refusal> {
        let key = match value {
            STREAM_LEGACY => Some(self.objects.legacy_stream(call.device)),
            STREAM_PER_THREAD => {
                // A stream made on the spot waits for nothing.
                let handle = self.per_thread_stream(call, chunk, &mut Vec::new())?;
                lowering.facts.uses.push((handle.object, Use::Reads));
                if self.multiplexed {
                    draft.patch_at(target, handle.slot, 0);
                }
                handle.stream
            }
            _ => {
                match self.live_handle(call, lowering, HandleKind::Stream, value, Use::Reads)? {
                    Some(slot) => draft.patch_at(target, slot, 0),
                    // SAFETY: the catalogue's fields lie inside their struct, which was copied whole; it may be unaligned.
                    None => unsafe { target.write_unaligned(poison_address()) },
                }
                self.objects.handle(HandleKind::Stream, value).and_then(|handle| handle.stream)
            }
        };
        // A launch on several devices has a stream of each.
        match (lowering.names_stream, key) {
            (None, _) => lowering.note_stream(call, key),
            (Some(first), Some(other)) if first != other && call.api.effect == Effect::Enqueue => {
                lowering.facts.also_on.push(other);
            }
            _ => {}
        }
        Ok(())
    }

    /// How far the call reaches from the address in a struct's field.
    pub(in crate::plan) fn field_reach(
        &self,
        call: &Call<'_>,
        (layout, field): (&StructLayout, &StructField),
        element: &[u8],
        address: u64,
    ) -> Result<Option<u64>, Refusal> {
        match struct_reach(layout, field, element) {
            Reach::Bytes(bytes) => Ok(Some(bytes)),
            Reach::Elements(bytes) => {
                // Up to four channels of 32 bits.
                let most = bytes.saturating_mul(16);
                let is_host = self.objects.memory.find(address).is_some_and(|place| {
                    let room = place.allocation.size_bytes - place.offset_bytes;
                    place.allocation.space != Space::Device && most > room
                });
                if is_host && call.succeeded() {
                    return Err(Refusal::Shape("between an array and pinned memory that may be too short for it"));
                }
                Ok(Some(bytes))
            }
            Reach::Unknown => Ok(memory_size(&field.role).value(&RecordInputs {
                api: call.api,
                record: &call.record,
                fields: element,
            })),
        }
    }
}
