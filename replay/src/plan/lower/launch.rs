//! Kernel arguments: from the bytes at their recorded offsets to what a launch takes.

use hrr_format::catalogue::Role;
use hrr_format::code_object::{ArgKind, explicit_bytes};
use hrr_format::kernel_table::Kernel;
use hrr_format::record::{Presence, Section, SectionTag};

use super::draft::Draft;
use super::{Call, Lowering, padded_copy_to, word_at};
use crate::instruction::Chunk;
use crate::plan::Planner;
use crate::plan::error::Refusal;
use crate::plan::order::dependency::Use;

/// A low half below is more likely a small number beside another number than a part of an address.
const SMALLEST_LOW_HALF: u64 = 0x1_0000;
/// `HIP_LAUNCH_PARAM_BUFFER_POINTER`, `_SIZE` and `_END`: the keys of an `extra` array.
const EXTRA_BUFFER: u64 = 1;
const EXTRA_SIZE: u64 = 2;
const EXTRA_END: u64 = 3;

impl<'a> Planner<'a> {
    /// The `kernelParams` or `extra` parameter of a launch.
    pub(crate) fn lower_kernel_arguments(
        &mut self,
        call: &Call<'a>,
        chunk: &mut Chunk,
        draft: &mut Draft,
        lowering: &mut Lowering,
        number: u8,
        value: u64,
    ) -> Result<(), Refusal> {
        if value == 0 {
            return Ok(());
        }
        let param = &call.api.params[usize::from(number)];
        let section = call.record.section_tagged(SectionTag::KernelArgs);
        if section.is_some_and(|section| section.param != number) {
            // The other of the two parameters carried the arguments; HIP takes one of them.
            draft.set(param.word, 0);
            return Ok(());
        }
        let kernel = self.archive.kernels().of_launch(call.record.aux());
        if kernel.is_none() && call.record.kernel().is_some() && call.succeeded() {
            return Err(Refusal::Lacks { what: "its kernel's line in kernels.jsonl" });
        }
        let address = self.kernel_argument_memory(call, chunk, draft, lowering, param.role, kernel)?;
        draft.set(param.word, address);
        Ok(())
    }

    /// Lays out the arguments of one of the call's kernels as `kernelParams` or `extra`, and returns the array's address.
    pub(crate) fn kernel_argument_memory(
        &mut self,
        call: &Call<'a>,
        chunk: &mut Chunk,
        draft: &mut Draft,
        lowering: &mut Lowering,
        role: Role,
        kernel: Option<&'a Kernel>,
    ) -> Result<u64, Refusal> {
        let name = || kernel.map_or_else(|| "(unknown)".to_owned(), |kernel| kernel.name.clone());
        let mut section = call.record.section_tagged(SectionTag::KernelArgs);
        let in_struct = |first: &Section<'_>| {
            let param = call.api.params.get(usize::from(first.param));
            param.is_some_and(|param| !matches!(param.role, Role::KernelParams | Role::Extra))
        };
        if let Some(first) = section.filter(in_struct) {
            // Each struct of a launch on several devices has its own arguments.
            section = lowering.next_section(call, SectionTag::KernelArgs, first.param);
        }
        let args = kernel.and_then(|kernel| kernel.args.as_deref());
        let bytes = match section {
            Some(Section { presence: Presence::Withheld, .. }) => {
                return Err(Refusal::Withheld { what: "kernel arguments" });
            }
            Some(section) => section.payload,
            None if args.is_some_and(<[_]>::is_empty) => &[],
            None if !call.succeeded() => return Err(Refusal::NotReissued),
            None => return Err(Refusal::Signature { kernel: name() }),
        };
        let claimed = args.unwrap_or_default();
        let need = self.kernel_rooms.need(self.launched(call), call.record.aux(), claimed);
        let room = bytes.len().max(explicit_bytes(claimed) as usize) + need.bytes;
        let base = padded_copy_to(chunk, bytes, room).cast::<u8>();
        match args {
            Some(args) => {
                for (index, arg) in args.iter().enumerate() {
                    let (offset, size) = (arg.offset as usize, arg.size as usize);
                    let Some(value) = bytes.get(offset..).and_then(|rest| rest.get(..size)) else { continue };
                    // SAFETY: `offset + size` is within the bytes copied.
                    let place = unsafe { base.add(offset) };
                    if arg.kind == ArgKind::PointerLow
                        && let Some(whole) = bytes.get(offset..).and_then(|rest| rest.get(..8))
                    {
                        // The high half is the next argument.
                        self.patch_embedded(draft, lowering, place, whole);
                    } else if size == 4
                        && arg.kind == ArgKind::ByValue
                        && args.get(index + 1).is_some_and(|next| next.size == 4 && next.offset as usize == offset + 4)
                        && let Some(pair) = bytes.get(offset..).and_then(|rest| rest.get(..8))
                        && word_at(pair, 0) & u64::from(u32::MAX) >= SMALLEST_LOW_HALF
                        && word_at(pair, 0) >> 32 != 0
                    {
                        // A pointer passed as its two halves.
                        self.patch_embedded(draft, lowering, place, pair);
                    } else if arg.kind == ArgKind::GlobalBuffer && size == 8 {
                        self.patch_pointer(call, draft, lowering, place, word_at(value, 0));
                    } else if size >= 8 {
                        self.patch_embedded(draft, lowering, place, value);
                    }
                }
            }
            None => self.patch_embedded(draft, lowering, base, bytes),
        }
        if matches!(role, Role::Extra) {
            let size = chunk.memory.allocate(1);
            // SAFETY: one word was allocated.
            unsafe { size.write(bytes.len() as u64) };
            let array = [EXTRA_BUFFER, base as u64, EXTRA_SIZE, size as u64, EXTRA_END];
            let place = chunk.memory.allocate(array.len());
            for (index, word) in array.into_iter().enumerate() {
                // SAFETY: `index` is below the length allocated.
                unsafe { place.add(index).write(word) };
            }
            return Ok(place as u64);
        }
        let args = args.ok_or_else(|| Refusal::Signature { kernel: name() })?;
        let array = chunk.memory.allocate((args.len() + need.args).max(1));
        for index in args.len()..args.len() + need.args {
            // SAFETY: `index` is below the length allocated.
            unsafe { array.add(index).write(base as u64) };
        }
        for (index, arg) in args.iter().enumerate() {
            let end = (arg.offset as usize).checked_add(arg.size as usize);
            if end.is_none_or(|end| end > bytes.len()) && call.succeeded() {
                return Err(Refusal::Section {
                    param: "kernelParams",
                    found_bytes: bytes.len(),
                    expected_bytes: end.unwrap_or(usize::MAX),
                });
            }
            // SAFETY: `index` is below the length allocated. The argument lies in the room made for all of them.
            unsafe { array.add(index).write(base.wrapping_add(arg.offset as usize) as u64) };
        }
        Ok(array as u64)
    }

    /// The function or host symbol that a launch names.
    fn launched(&self, call: &Call<'_>) -> Option<u32> {
        let (word, kind) = self.traits[usize::from(call.api.id)].names_function?;
        let value = call.record.word(usize::from(word));
        match kind {
            Some(kind) => self.objects.handle(kind, value).map(|handle| handle.object),
            None => self.objects.symbols.get(&value).map(|symbol| symbol.object),
        }
    }

    /// Notes of which kernel a function or host symbol that a call makes is: of the one it names, or of the one whose
    /// function or symbol it was given.
    pub(crate) fn name_function(&mut self, call: &Call<'_>, object: u32) {
        let mut texts = call.record.sections().map_while(Result::ok).filter(|section| section.tag == SectionTag::Text);
        let name = match texts.next() {
            // Where a call has several names, only one that all of them are is the kernel's.
            Some(first) => texts.all(|other| other.payload == first.payload).then(|| first.payload.to_owned()),
            None => self.launched(call).and_then(|given| self.kernel_rooms.name_of(given)).map(<[u8]>::to_owned),
        };
        if let Some(name) = name {
            self.kernel_rooms.name(object, &name);
        }
    }

    /// A pointer argument. One that lies in nothing live is passed as null and counted: the kernel may never follow it.
    fn patch_pointer(
        &mut self,
        call: &Call<'_>,
        draft: &mut Draft,
        lowering: &mut Lowering,
        place: *mut u8,
        address: u64,
    ) {
        if address == 0 {
            return;
        }
        // An address that is the end of one allocation and the start of the next is taken for the start: two neighbouring
        // buffers are passed to kernels far more often than the end of one that has a neighbour.
        self.check_region(call, "kernel pointer argument", address, None);
        let found = self.memory_at(address);
        match found {
            Some(found) => {
                lowering.note_use(&found.allocation);
                draft.patch_at(place.cast(), found.allocation.slot, found.offset_bytes);
            }
            None if self.patch_image(draft, lowering, place, address) => {}
            None => {
                self.untranslated += 1;
                self.name_untranslated(call, address);
                tracing::debug!(event = call.event, address, "kernel pointer argument lies in no live allocation");
                // SAFETY: the argument's 8 bytes lie within the bytes copied.
                unsafe { place.cast::<u64>().write_unaligned(0) };
            }
        }
    }

    /// Has the handle of a live texture or surface object translated, if this is one. False if it is none.
    fn patch_image(&self, draft: &mut Draft, lowering: &mut Lowering, place: *mut u8, value: u64) -> bool {
        let Some(handle) = self.objects.image(value) else { return false };
        lowering.facts.uses.push((handle.object, Use::Reads));
        draft.patch_at(place.cast(), handle.slot, 0);
        true
    }

    /// Finds device addresses, and handles of texture and surface objects, embedded in by-value bytes, at any alignment, and
    /// has them translated.
    pub(crate) fn patch_embedded(&mut self, draft: &mut Draft, lowering: &mut Lowering, place: *mut u8, bytes: &[u8]) {
        let mut at = 0;
        while at + 8 <= bytes.len() {
            let word = word_at(bytes, at);
            match self.memory_at(word) {
                Some(found) => {
                    lowering.note_use(&found.allocation);
                    // SAFETY: `at + 8` is within the bytes copied to `place`.
                    draft.patch_at(unsafe { place.add(at) }.cast(), found.allocation.slot, found.offset_bytes);
                    at += 8;
                }
                // SAFETY: as above.
                None if self.patch_image(draft, lowering, unsafe { place.add(at) }, word) => at += 8,
                None => at += 1,
            }
        }
    }
}
