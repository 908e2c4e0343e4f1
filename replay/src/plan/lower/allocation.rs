//! Arguments through which memory is given out, taken back, pinned, or known by another address.

use hrr_format::catalogue::{MIN_BUFFER_BYTES, Role, Size};

use super::bounds::{MAX_ALLOCATION_BYTES, NOWHERE};
use super::draft::Draft;
use super::{Call, Lowering, RecordInputs, out_bytes, word_at};
use crate::instruction::Chunk;
use crate::memory::slots::Slot;
use crate::memory::stage::poison_address;
use crate::plan::Planner;
use crate::plan::error::Refusal;
use crate::plan::memory::address::{Allocation, Space};
use crate::plan::objects::Definition;
use crate::plan::order::dependency::Use;

impl<'a> Planner<'a> {
    #[expect(clippy::too_many_arguments, reason = "one argument each for what an allocation is made of")]
    pub(in crate::plan) fn lower_new_memory(
        &mut self,
        call: &Call<'_>,
        chunk: &mut Chunk,
        draft: &mut Draft,
        lowering: &mut Lowering,
        number: u8,
        size: Size,
        space: Space,
    ) {
        let param = &call.api.params[usize::from(number)];
        if call.record.word(usize::from(param.word)) == 0 {
            return;
        }
        let cell = chunk.memory.allocate(MIN_BUFFER_BYTES / 8);
        draft.set(param.word, cell as u64);
        let bytes = out_bytes(&call.record, number).unwrap_or_default();
        let base = word_at(bytes, 0);
        if !call.succeeded() || base == 0 {
            return;
        }
        let inputs = RecordInputs { api: call.api, record: &call.record, fields: bytes };
        let size_bytes = size.value(&inputs);
        let release = match space {
            _ if call.api.name.starts_with("hipIpc") => None,
            Space::Device | Space::Managed => Some("hipFree"),
            Space::Pinned => Some("hipHostFree"),
            Space::Reserved => Some("hipMemAddressFree"),
        };
        let slot = self.define_memory(call, draft, lowering, cell, base, size_bytes, space, release);
        self.place_new_memory(call, draft, lowering, (cell, slot), base, size_bytes);
    }

    #[expect(clippy::too_many_arguments, reason = "one argument each for what an allocation is made of")]
    pub(in crate::plan) fn define_memory(
        &mut self,
        call: &Call<'_>,
        draft: &mut Draft,
        lowering: &mut Lowering,
        cell: *const u64,
        base: u64,
        size_bytes: Option<u64>,
        space: Space,
        release: Option<&'static str>,
    ) -> Slot {
        let slot = self.objects.slots.allocate(NOWHERE);
        let object = self.objects.new_object();
        draft.output(cell, slot);
        lowering.facts.creates.push(object);
        let bounded = size_bytes.is_some();
        // One that nothing could have made has room for nothing.
        let size_bytes = size_bytes.filter(|&size| size <= MAX_ALLOCATION_BYTES).unwrap_or(0);
        let device = call.device;
        let allocation = Allocation { base, size_bytes, slot, object, space, bounded, release, device };
        lowering.definitions.push(Definition::Memory(allocation));
        slot
    }

    /// The call tells a device address of memory that exists: a device variable, or the alias of pinned memory.
    pub(in crate::plan) fn lower_alias(
        &mut self,
        call: &Call<'_>,
        chunk: &mut Chunk,
        draft: &mut Draft,
        lowering: &mut Lowering,
        number: u8,
        size: Size,
    ) {
        let param = &call.api.params[usize::from(number)];
        if call.record.word(usize::from(param.word)) == 0 {
            return;
        }
        let cell = chunk.memory.allocate(MIN_BUFFER_BYTES / 8);
        draft.set(param.word, cell as u64);
        let address = out_bytes(&call.record, number).map_or(0, |bytes| word_at(bytes, 0));
        let known = self.objects.memory.inside(address).map(|place| place.allocation);
        // Another name of memory that was allocated: the pinned memory itself, mostly.
        let is_allocated = known.is_some_and(|known| known.base != address || known.release.is_some());
        if !call.succeeded() || address == 0 || is_allocated {
            return;
        }
        let of_host = call
            .api
            .params
            .iter()
            .filter(|param| matches!(param.role, Role::Host(..) | Role::Any(..)))
            .find_map(|param| self.objects.memory.inside(call.record.word(usize::from(param.word))));
        let host_object = of_host.map(|place| place.allocation.object);
        let of_host = of_host.map(|place| place.allocation.size_bytes - place.offset_bytes);
        let size_bytes = self.size_of(call, size).or(of_host).or_else(|| self.variable_bytes(call));
        let Some(known) = known else {
            self.define_memory(call, draft, lowering, cell, address, size_bytes, Space::Device, None);
            if let (Some(host), Some(&alias)) = (host_object, lowering.facts.creates.last()) {
                self.host_aliases.entry(host).or_default().push((alias, address));
                self.join_contents(host, alias);
            }
            return;
        };
        // Told before: the same variable, or one of a module that was loaded since to where an unloaded one had been. At
        // replay that one lies where it comes to lie, so what is told now counts. Whoever uses the memory comes before or
        // after.
        draft.output(cell, known.slot);
        lowering.facts.uses.push((known.object, Use::Occupies));
        let (size_bytes, bounded) = size_bytes.map_or((known.size_bytes, known.bounded), |size| (size, true));
        let size_bytes = size_bytes.min(MAX_ALLOCATION_BYTES);
        lowering.definitions.push(Definition::Memory(Allocation { size_bytes, bounded, ..known }));
    }

    pub(in crate::plan) fn lower_pin(
        &mut self,
        call: &Call<'_>,
        draft: &mut Draft,
        lowering: &mut Lowering,
        number: u8,
        value: u64,
        size: Size,
    ) -> Result<(), Refusal> {
        /// A page: what runtimes pin.
        const PAGE_BYTES: u64 = 4096;
        /// `hipErrorHostMemoryAlreadyRegistered`.
        const ALREADY_REGISTERED: i32 = 712;
        let param = &call.api.params[usize::from(number)];
        if !call.succeeded() && value != 0 {
            // What it failed over may be that the memory is pinned already: then it is again.
            match self.objects.memory.inside(value).filter(|place| place.allocation.space != Space::Device) {
                Some(place) => draft.patch(param.word, place.allocation.slot, place.offset_bytes),
                None if call.record.ret() == ALREADY_REGISTERED => return Err(Refusal::NotReissued),
                None => draft.set(param.word, poison_address()),
            }
        }
        if !call.succeeded() || value == 0 {
            return Ok(());
        }
        let size_bytes = self.size_of(call, size).unwrap_or(0);
        let place = self.host.lasting_place(size_bytes.saturating_add(2 * PAGE_BYTES))? as u64;
        // The same offset in its page as the program's memory had.
        let address = place.next_multiple_of(PAGE_BYTES) + value % PAGE_BYTES;
        draft.set(param.word, address);
        let slot = self.objects.slots.allocate(address);
        let object = self.objects.new_object();
        lowering.facts.creates.push(object);
        let release = Some("hipHostUnregister");
        let allocation = Allocation {
            base: value,
            size_bytes,
            slot,
            object,
            space: Space::Pinned,
            bounded: true,
            release,
            device: call.device,
        };
        lowering.definitions.push(Definition::Memory(allocation));
        Ok(())
    }

    pub(in crate::plan) fn lower_free(
        &mut self,
        call: &Call<'_>,
        draft: &mut Draft,
        lowering: &mut Lowering,
        number: u8,
        value: u64,
    ) -> Result<(), Refusal> {
        let param = &call.api.params[usize::from(number)];
        match self.objects.memory.exact(value).copied() {
            // It failed to free memory that is used further on: now it might not.
            Some(_) if !call.succeeded() => Err(Refusal::NotReissued),
            Some(allocation) => {
                draft.patch(param.word, allocation.slot, 0);
                lowering.freed_on = Some(allocation.device);
                self.release_placed(call, lowering, &allocation);
                // What was opened from a handle is another name of memory that stays.
                let how = if self.objects.second_names.remove(&value) { Use::Occupies } else { Use::Ends };
                lowering.facts.uses.push((allocation.object, how));
                lowering.facts.memory.push((allocation.object, true));
                self.objects.retire_memory(value);
                // Its device addresses go with it: the next memory may get the same.
                for (alias, base) in self.host_aliases.remove(&allocation.object).unwrap_or_default() {
                    if self.objects.memory.exact(base).is_some_and(|known| known.object == alias) {
                        lowering.facts.uses.push((alias, Use::Ends));
                        self.objects.retire_memory(base);
                    }
                }
                Ok(())
            }
            None if call.succeeded() => Err(Refusal::Address { address: value, param: param.name }),
            None => {
                draft.set(param.word, poison_address());
                Ok(())
            }
        }
    }

    /// Size of the device variable whose address a call asks for by its host symbol.
    pub(in crate::plan) fn variable_bytes(&self, call: &Call<'_>) -> Option<u64> {
        let symbol = call.api.params.iter().find(|param| param.role == Role::VarSymbol)?;
        self.objects.symbols.get(&call.record.word(usize::from(symbol.word)))?.size_bytes
    }
}
