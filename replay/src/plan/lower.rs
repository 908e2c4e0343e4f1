//! From a recorded call to an instruction: every argument by the role its parameter has.

use hrr_format::catalogue::{
    Access, Api, HandleKind, MIN_BUFFER_BYTES, Role, STRUCTS, Size, SizeInputs, StructField, StructLayout,
};
use hrr_format::record::{Presence, Record, Section, SectionTag};

use super::Planner;
use super::address::{Allocation, Space};
use super::bounds::{MAX_ALLOCATION_BYTES, NOWHERE, Reach, host_shape, memory_size, struct_reach};
use super::dependency::{CallFacts, Use};
use super::draft::Draft;
use super::error::Refusal;
use super::objects::{Definition, STREAM_LEGACY, STREAM_PER_THREAD, stream_rule};
use super::placed::Placed;
use crate::instruction::{Chunk, Wait};
use crate::stage::{HostKind, Shape, poison_address};

/// Values below are no addresses: Linux maps nothing there.
const SMALLEST_ADDRESS: u64 = 65536;
/// `hipMemLocationTypeDevice`.
const LOCATION_DEVICE: u32 = 1;

/// A recorded call and where it stands.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) api: &'static Api,
    pub(crate) record: Record<'a>,
    pub(crate) event: u64,
    pub(crate) lane: u32,
    /// The device of the captured thread.
    pub(crate) device: i32,
}

impl Call<'_> {
    /// Whether the call succeeded at capture.
    pub(crate) fn succeeded(&self) -> bool {
        self.record.ret() == 0
    }
}

/// What laying out a call has brought together.
#[derive(Debug, Default)]
pub(crate) struct Lowering {
    pub(crate) facts: Box<CallFacts>,
    pub(crate) definitions: Vec<Definition>,
    /// The live address of D2H results, by blob number, waiting for their observation.
    pub(crate) results: Vec<(u64, usize, Shape)>,
    /// Whether the call uses staged memory.
    pub(crate) stages: bool,
    /// How many sections with contents of a parameter were used, where structs or arrays name several pieces of memory.
    pub(crate) used: Vec<(SectionTag, u8)>,
    /// What becomes of device memory that is given out or taken back where it is placed.
    pub(crate) placed: Option<Placed>,
    /// New device memory, to be filled: where its address is, and its size in bytes.
    pub(crate) new_memory: Option<(crate::slots::Slot, u64)>,
}

/// Where the sizes of a record's parameters come from.
pub(crate) struct RecordInputs<'r, 'a> {
    pub(crate) api: &'static Api,
    pub(crate) record: &'r Record<'a>,
    /// The struct a field's size is about.
    pub(crate) fields: &'r [u8],
}

impl SizeInputs for RecordInputs<'_, '_> {
    fn word(&self, param: u8, word: u8) -> Option<u64> {
        let param = self.api.params.get(usize::from(param))?;
        Some(self.record.word(usize::from(param.word) + usize::from(word)))
    }

    fn pointee(&self, param: u8, width: u8) -> Option<u64> {
        let section =
            self.record.section(SectionTag::Out, param).or_else(|| self.record.section(SectionTag::In, param))?;
        (section.presence == Presence::Present).then(|| integer(section.payload, 0, width))?
    }

    fn field(&self, offset_bytes: u16, width: u8) -> Option<u64> {
        integer(self.fields, usize::from(offset_bytes), width)
    }
}

fn integer(bytes: &[u8], at: usize, width: u8) -> Option<u64> {
    let bytes = bytes.get(at..)?;
    match width {
        4 => Some(u64::from(u32::from_le_bytes(*bytes.first_chunk()?))),
        _ => Some(u64::from_le_bytes(*bytes.first_chunk()?)),
    }
}

/// The 8 bytes at `at`, or zero.
pub(crate) fn word_at(bytes: &[u8], at: usize) -> u64 {
    integer(bytes, at, 8).unwrap_or(0)
}

impl<'a> Planner<'a> {
    /// Lays out the arguments of a call.
    pub(crate) fn lower_arguments(
        &mut self,
        call: &Call<'a>,
        chunk: &mut Chunk,
        draft: &mut Draft,
        lowering: &mut Lowering,
        waits: &mut Vec<Wait>,
    ) -> Result<(), Refusal> {
        for (index, param) in call.api.params.iter().enumerate() {
            let number = index as u8;
            let value = call.record.word(usize::from(param.word));
            match param.role {
                Role::Scalar => {}
                Role::Location => {
                    let (kind, device) = (value as u32, (value >> 32) as u32 as i32);
                    if kind == LOCATION_DEVICE {
                        let live = self.live_device(call, device)?;
                        draft.set(param.word, u64::from(kind) | u64::from(live as u32) << 32);
                    }
                }
                Role::Ordinal => {
                    let live = self.live_device(call, value as u32 as i32)?;
                    draft.set(param.word, u64::from(live as u32));
                }
                Role::Opaque | Role::UserData => draft.set(param.word, 0),
                Role::Callback => draft.set(param.word, super::special::callback_address(call.api)),
                Role::Use(HandleKind::Stream) => {
                    self.lower_stream(call, chunk, draft, lowering, param.word, value, waits)?;
                }
                Role::Use(kind) => {
                    let how = if super::special::changes_state(call.api, kind) { Use::Changes } else { Use::Reads };
                    self.lower_handle(call, draft, lowering, param.word, kind, value, how)?;
                }
                Role::Destroy(kind) => {
                    // A call that failed to end it has changed nothing.
                    let how = if call.succeeded() { Use::Ends } else { Use::Reads };
                    let how = if self.objects.is_retained(kind, value) { Use::Changes } else { how };
                    self.lower_handle(call, draft, lowering, param.word, kind, value, how)?;
                    if call.succeeded() {
                        self.objects.retire(kind, value);
                    }
                }
                Role::Create(kind) | Role::Get(kind) => {
                    if value != 0 {
                        let cell = chunk.memory.allocate(MIN_BUFFER_BYTES / 8);
                        draft.set(param.word, cell as u64);
                        let recorded = out_bytes(&call.record, number).map_or(0, |bytes| word_at(bytes, 0));
                        let fresh = matches!(param.role, Role::Create(_));
                        self.lower_new_handle(call, draft, lowering, cell, kind, recorded, fresh);
                    }
                }
                Role::UseArray(kind, size) => {
                    if value != 0 {
                        let (array, bytes) = self.inline_copy(call, chunk, number, size, 8)?;
                        draft.set(param.word, array as u64);
                        for position in 0..bytes.len() / 8 {
                            // SAFETY: `position` is below the number of words copied.
                            let target = unsafe { array.add(position) };
                            let handle = word_at(bytes, position * 8);
                            if handle != 0 {
                                let found = self.live_handle(call, lowering, kind, handle, Use::Reads)?;
                                match found {
                                    Some(slot) => draft.patch_at(target, slot, 0),
                                    // SAFETY: as above.
                                    None => unsafe { target.write(poison_address()) },
                                }
                            }
                        }
                    }
                }
                Role::GetArray(kind, size) => {
                    if value != 0 {
                        let bytes = out_bytes(&call.record, number).unwrap_or_default();
                        let room = self.room(call, number, size, 8)?.max(bytes.len());
                        let array = chunk.memory.allocate((room / 8 + 1).max(MIN_BUFFER_BYTES / 8));
                        draft.set(param.word, array as u64);
                        for position in 0..bytes.len() / 8 {
                            // SAFETY: `position` is below the number of words allocated.
                            let cell = unsafe { array.add(position) };
                            let handle = word_at(bytes, position * 8);
                            self.lower_new_handle(call, draft, lowering, cell, kind, handle, false);
                        }
                    }
                }
                Role::GetArrayAt(..) => {
                    if value != 0 {
                        draft.set(param.word, chunk.memory.allocate(MIN_BUFFER_BYTES / 8) as u64);
                    }
                }
                Role::Device(access, size) => {
                    if value != 0 {
                        let reach = self.reach(call, size);
                        match self.live_address(call, lowering, value, access, reach, param.name)? {
                            Some((slot, offset)) => draft.patch(param.word, slot, offset),
                            None => draft.set(param.word, poison_address()),
                        }
                    }
                }
                Role::Host(access, size) | Role::Any(access, size) => {
                    self.lower_memory(call, draft, lowering, number, value, access, size)?;
                }
                Role::AnyArray(access, size, sizes) => {
                    if value != 0 {
                        let (array, bytes) = self.inline_copy(call, chunk, number, size, 8)?;
                        let sizes = sizes.map(|sizes| in_bytes(call, sizes, param.name)).transpose()?.flatten();
                        draft.set(param.word, array as u64);
                        for position in 0..bytes.len() / 8 {
                            let address = word_at(bytes, position * 8);
                            if address == 0 {
                                continue;
                            }
                            // SAFETY: `position` is below the number of words copied.
                            let target = unsafe { array.add(position) };
                            let reach = sizes.map(|sizes| word_at(sizes, position * 8));
                            if reach.is_some_and(|len_bytes| len_bytes != 0)
                                && let Some(section) = self.next_contents(call, lowering, number, address, access)
                            {
                                let found = section.blob().map(|blob| blob.size_bytes);
                                if found != reach {
                                    return Err(Refusal::Section {
                                        param: param.name,
                                        found_bytes: found.unwrap_or(0) as usize,
                                        expected_bytes: reach.unwrap_or(0) as usize,
                                    });
                                }
                                let shape = Shape::linear(reach.unwrap_or(0));
                                let place = self.stage_contents(call, lowering, &section, address, shape)?;
                                // SAFETY: as above.
                                unsafe { target.write(place as u64) };
                                continue;
                            }
                            match self.live_address(call, lowering, address, access, reach, param.name)? {
                                Some((slot, offset)) => draft.patch_at(target, slot, offset),
                                // SAFETY: as above.
                                None => unsafe { target.write(poison_address()) },
                            }
                        }
                    }
                }
                Role::NewDevice(size) => {
                    self.lower_new_memory(call, chunk, draft, lowering, number, size, Space::Device)
                }
                Role::NewHost(size) => self.lower_new_memory(call, chunk, draft, lowering, number, size, Space::Pinned),
                Role::NewManaged(size) => {
                    self.lower_new_memory(call, chunk, draft, lowering, number, size, Space::Managed);
                }
                Role::NewPitched(size) => {
                    self.lower_new_memory(call, chunk, draft, lowering, number, size, Space::Device)
                }
                Role::NewRange(size) => {
                    self.lower_new_memory(call, chunk, draft, lowering, number, size, Space::Reserved);
                }
                Role::GetDevice(size) => self.lower_alias(call, chunk, draft, lowering, number, size),
                Role::Pin(size) => self.lower_pin(call, draft, lowering, number, value, size)?,
                Role::FreeDevice | Role::FreeHost | Role::FreeRange | Role::Unpin => {
                    if value != 0 {
                        self.lower_free(call, draft, lowering, number, value)?;
                    }
                }
                Role::In(size) | Role::InOut(size) | Role::ArgBytes(size) => {
                    if value != 0 {
                        let (place, bytes) = self.inline_copy(call, chunk, number, size, 1)?;
                        draft.set(param.word, place as u64);
                        if matches!(param.role, Role::ArgBytes(_)) {
                            self.patch_embedded(draft, lowering, place.cast(), bytes);
                        }
                    }
                }
                Role::Out(size) => {
                    if value != 0 {
                        let recorded = call.record.section(SectionTag::Out, number).map_or(0, |s| s.payload.len());
                        let room = self.room(call, number, size, 1)?.max(recorded).max(MIN_BUFFER_BYTES);
                        draft.set(param.word, chunk.memory.allocate(room.div_ceil(8)) as u64);
                    }
                }
                Role::Struct(layout, size) => {
                    if value != 0 {
                        self.lower_structs(call, chunk, draft, lowering, number, usize::from(layout), size)?;
                    }
                }
                Role::OutStruct(layout, size) => {
                    if value != 0 {
                        let struct_bytes = STRUCTS[usize::from(layout)].size_bytes as usize;
                        let room = self.room(call, number, size, struct_bytes as u64)?;
                        let room = room.max(struct_bytes).max(MIN_BUFFER_BYTES);
                        draft.set(param.word, chunk.memory.allocate(room.div_ceil(8)) as u64);
                    }
                }
                Role::CString => {
                    if value != 0 {
                        let section = call.record.section(SectionTag::Text, number);
                        let text = section.map(|section| section.payload).unwrap_or_default();
                        let mut text = text.to_vec();
                        text.push(0);
                        draft.set(param.word, padded_copy(chunk, &text) as u64);
                    }
                }
                Role::KernelSymbol | Role::VarSymbol => {
                    if value != 0 {
                        let address = self.symbol_address(call, lowering, value)?;
                        draft.set(param.word, address);
                    }
                }
                Role::KernelParams | Role::Extra => {
                    self.lower_kernel_arguments(call, chunk, draft, lowering, number, value)?;
                }
                Role::Image => {
                    if value != 0 {
                        let address = self.image_address(call, number)?;
                        draft.set(param.word, address);
                    }
                }
            }
        }
        Ok(())
    }

    /// The slot of a live handle; `None` where the call failed at capture over a handle that was nothing.
    pub(crate) fn live_handle(
        &mut self,
        call: &Call<'_>,
        lowering: &mut Lowering,
        kind: HandleKind,
        value: u64,
        how: Use,
    ) -> Result<Option<crate::slots::Slot>, Refusal> {
        match self.objects.handle(kind, value) {
            Some(handle) => {
                lowering.facts.uses.push((handle.object, how));
                if handle.parent != 0 {
                    lowering.facts.uses.push((handle.parent, Use::Reads));
                }
                Ok(Some(handle.slot))
            }
            None if call.succeeded() => Err(Refusal::Handle { kind, value }),
            None => Ok(None),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one argument each for what a parameter is made of")]
    fn lower_handle(
        &mut self,
        call: &Call<'_>,
        draft: &mut Draft,
        lowering: &mut Lowering,
        word: u8,
        kind: HandleKind,
        value: u64,
        how: Use,
    ) -> Result<(), Refusal> {
        if value != 0 {
            match self.live_handle(call, lowering, kind, value, how)? {
                Some(slot) => draft.patch(word, slot, 0),
                None => draft.set(word, poison_address()),
            }
        }
        Ok(())
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "as above, with the chunk and the waits of a stream made on the spot"
    )]
    fn lower_stream(
        &mut self,
        call: &Call<'_>,
        chunk: &mut Chunk,
        draft: &mut Draft,
        lowering: &mut Lowering,
        word: u8,
        value: u64,
        waits: &mut Vec<Wait>,
    ) -> Result<(), Refusal> {
        let per_thread_api = call.api.name.ends_with("_spt");
        if value == STREAM_PER_THREAD || (per_thread_api && value == 0) {
            let handle = self.per_thread_stream(call, chunk, waits)?;
            lowering.facts.uses.push((handle.object, Use::Reads));
            if self.multiplexed {
                draft.patch(word, handle.slot, 0);
            }
            lowering.note_stream(call, handle.stream);
            return Ok(());
        }
        if value == 0 || value == STREAM_LEGACY {
            let key = self.objects.legacy_stream(call.device);
            lowering.note_stream(call, Some(key));
            return Ok(());
        }
        self.lower_handle(call, draft, lowering, word, HandleKind::Stream, value, Use::Reads)?;
        let key = self.objects.handle(HandleKind::Stream, value).and_then(|handle| handle.stream);
        lowering.note_stream(call, key);
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "one argument each for what a handle is made of")]
    fn lower_new_handle(
        &mut self,
        call: &Call<'_>,
        draft: &mut Draft,
        lowering: &mut Lowering,
        cell: *const u64,
        kind: HandleKind,
        recorded: u64,
        fresh: bool,
    ) {
        if !call.succeeded() || recorded == 0 {
            return;
        }
        let is_part = matches!(
            kind,
            HandleKind::Function | HandleKind::Kernel | HandleKind::Node | HandleKind::Array | HandleKind::TexRef
        );
        let parent = if is_part { self.parent_of(call) } else { 0 };
        // A part of another whole ended with it, and its value was given out again.
        let is_same = |handle: &super::objects::Handle| parent == 0 || handle.parent == parent;
        if !fresh && let Some(handle) = self.objects.handle(kind, recorded).filter(is_same) {
            lowering.facts.uses.push((handle.object, Use::Reads));
            if call.api.name == "hipMemRetainAllocationHandle" {
                self.objects.retain(kind, recorded);
            }
            return;
        }
        let stream =
            (kind == HandleKind::Stream).then(|| (call.device, stream_rule(call.api, |index| call.record.word(index))));
        let mut handle = self.objects.new_handle(stream);
        handle.owned = fresh;
        handle.parent = parent;
        if matches!(kind, HandleKind::Function | HandleKind::Kernel) {
            self.name_function(call, handle.object);
        }
        draft.output(cell, handle.slot);
        lowering.facts.creates.push(handle.object);
        lowering.definitions.push(Definition::Handle { kind, value: recorded, handle });
    }

    /// The object that a function, node, level or texture reference had by this call is a part of: its module, library, graph
    /// or mipmapped array.
    fn parent_of(&self, call: &Call<'_>) -> u32 {
        let mut wholes = call.api.params.iter().filter_map(|param| match param.role {
            Role::Use(
                kind @ (HandleKind::Module
                | HandleKind::Library
                | HandleKind::Kernel
                | HandleKind::Graph
                | HandleKind::Mipmap),
            ) => self.objects.handle(kind, call.record.word(usize::from(param.word))),
            _ => None,
        });
        wholes.next().map_or(0, |whole| if whole.parent == 0 { whole.object } else { whole.parent })
    }

    /// Slot and offset of a device address; `None` where the call failed at capture over an address that was nothing.
    fn live_address(
        &mut self,
        call: &Call<'_>,
        lowering: &mut Lowering,
        address: u64,
        access: Access,
        reach: Option<u64>,
        param: &'static str,
    ) -> Result<Option<(crate::slots::Slot, u64)>, Refusal> {
        match self.objects.memory.find(address) {
            Some(place) => {
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
    fn lower_memory(
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
            let source = self.host.source(self.archive, self.host_kind(value), blob, shape)?;
            self.scan_upload(call, blob);
            draft.set(param.word, source as u64);
            lowering.stages = true;
            return Ok(());
        }
        if let Some(section) = recorded(SectionTag::BlobOut) {
            let what = "the device-to-host result to validate against";
            let (blob, shape) = self.blob_shape(call, &section, number, size, what)?;
            let span = shape.span_bytes().unwrap_or(u64::MAX);
            let place = self.host.place(self.host_kind(value), span)?;
            draft.set(param.word, place as u64);
            lowering.results.push((blob, place as usize, shape));
            lowering.stages = true;
            return Ok(());
        }
        if let Some(place) = self.objects.memory.find(value) {
            self.check_range(call, &place, self.reach(call, size), param.name)?;
            lowering.note_memory(&place.allocation, access);
            draft.patch(param.word, place.allocation.slot, place.offset_bytes);
            return Ok(());
        }
        if !call.succeeded() {
            return Err(Refusal::NotReissued);
        }
        // Host memory without contents of its own: a copy captured into a graph, whose contents come with each launch.
        let len_bytes = self.size_of(call, size).unwrap_or(0);
        if len_bytes == 0 && matches!(param.role, Role::Any(..)) && size == Size::Unknown {
            return Err(Refusal::Address { address: value, param: param.name });
        }
        let place = self.shadow(value, len_bytes)?;
        draft.set(param.word, place as u64);
        Ok(())
    }

    /// The contents that were recorded for the host memory at `address`, which a struct or an array names. Each piece of
    /// memory that the recorder took for the host's has a section of its own, in order.
    fn next_contents<'r>(
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
    fn stage_contents(
        &mut self,
        call: &Call<'_>,
        lowering: &mut Lowering,
        section: &Section<'_>,
        address: u64,
        shape: Shape,
    ) -> Result<*mut u8, Refusal> {
        let is_source = section.tag == SectionTag::BlobIn;
        let what = if is_source { "the host buffer" } else { "the device-to-host result to validate against" };
        if section.presence == Presence::Withheld {
            return Err(Refusal::Withheld { what });
        }
        let blob = section.blob().ok_or(Refusal::Lacks { what })?;
        let kind = self.host_kind(address);
        lowering.stages = true;
        if is_source {
            self.scan_upload(call, blob.number);
            return Ok(self.host.source(self.archive, kind, blob.number, shape)?);
        }
        let place = self.host.place(kind, shape.span_bytes().unwrap_or(u64::MAX))?;
        lowering.results.push((blob.number, place as usize, shape));
        Ok(place)
    }

    /// Number and shape of the contents a section names, refused where they were withheld or do not fit the call.
    fn blob_shape(
        &mut self,
        call: &Call<'_>,
        section: &Section<'_>,
        number: u8,
        size: Size,
        what: &'static str,
    ) -> Result<(u64, Shape), Refusal> {
        if section.presence == Presence::Withheld {
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
    fn host_kind(&self, address: u64) -> HostKind {
        match self.objects.memory.inside(address) {
            Some(place) if place.allocation.space != Space::Device => HostKind::Pinned,
            _ => HostKind::Pageable,
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one argument each for what an allocation is made of")]
    fn lower_new_memory(
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
        let slot = self.define_memory(draft, lowering, cell, base, size_bytes, space, release);
        self.place_new_memory(call, draft, lowering, (cell, slot), base, size_bytes);
    }

    #[expect(clippy::too_many_arguments, reason = "one argument each for what an allocation is made of")]
    fn define_memory(
        &mut self,
        draft: &mut Draft,
        lowering: &mut Lowering,
        cell: *const u64,
        base: u64,
        size_bytes: Option<u64>,
        space: Space,
        release: Option<&'static str>,
    ) -> crate::slots::Slot {
        let slot = self.objects.slots.allocate(NOWHERE);
        let object = self.objects.new_object();
        draft.output(cell, slot);
        lowering.facts.creates.push(object);
        let bounded = size_bytes.is_some();
        // One that nothing could have made has room for nothing.
        let size_bytes = size_bytes.filter(|&size| size <= MAX_ALLOCATION_BYTES).unwrap_or(0);
        let allocation = Allocation { base, size_bytes, slot, object, space, bounded, release };
        lowering.definitions.push(Definition::Memory(allocation));
        slot
    }

    /// The call tells a device address of memory that exists: a device variable, or the alias of pinned memory.
    fn lower_alias(
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
        if !call.succeeded() || address == 0 || self.objects.memory.inside(address).is_some() {
            return;
        }
        let of_host = call
            .api
            .params
            .iter()
            .filter(|param| matches!(param.role, Role::Host(..) | Role::Any(..)))
            .find_map(|param| self.objects.memory.inside(call.record.word(usize::from(param.word))))
            .map(|place| place.allocation.size_bytes - place.offset_bytes);
        let size_bytes = self.size_of(call, size).or(of_host).or_else(|| self.variable_bytes(call));
        self.define_memory(draft, lowering, cell, address, size_bytes, Space::Device, None);
    }

    fn lower_pin(
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
        let param = &call.api.params[usize::from(number)];
        if !call.succeeded() || value == 0 {
            if value != 0 {
                draft.set(param.word, poison_address());
            }
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
        let allocation =
            Allocation { base: value, size_bytes, slot, object, space: Space::Pinned, bounded: true, release };
        lowering.definitions.push(Definition::Memory(allocation));
        Ok(())
    }

    fn lower_free(
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
                self.release_placed(lowering, &allocation);
                lowering.facts.uses.push((allocation.object, Use::Ends));
                lowering.facts.memory.push((allocation.object, true));
                self.objects.retire_memory(value);
                Ok(())
            }
            None if call.succeeded() => Err(Refusal::Address { address: value, param: param.name }),
            None => {
                draft.set(param.word, poison_address());
                Ok(())
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one argument each for what a struct parameter is made of")]
    fn lower_structs(
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
                self.define_memory(draft, lowering, target, after, size, Space::Device, None);
            }
            return Ok(());
        }
        if value == 0 || matches!(field.role, Role::Out(_)) {
            return Ok(());
        }
        match field.role {
            // Small values are no addresses, and where headers differ in a struct's layout they may be something else.
            Role::Opaque if value < SMALLEST_ADDRESS => {}
            Role::Opaque | Role::UserData => write(0),
            Role::Callback => write(super::special::callback_address(call.api)),
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
                    write(self.stage_contents(call, lowering, &section, value, shape)? as u64);
                    return Ok(());
                }
                let reach = self.field_reach(call, (layout, field), element, value)?;
                match self.live_address(call, lowering, value, access, reach, field.name) {
                    Ok(Some((slot, offset))) => draft.patch_at(target, slot, offset),
                    Ok(None) => write(poison_address()),
                    Err(Refusal::Address { .. }) if matches!(field.role, Role::Any(..) | Role::Host(..)) => {
                        let len_bytes = super::special::struct_copy_bytes(call.api, element);
                        let len_bytes = len_bytes.ok_or(Refusal::Address { address: value, param: field.name })?;
                        write(self.shadow(value, len_bytes)? as u64);
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
                let address = self.kernel_argument_memory(call, chunk, draft, lowering, field.role)?;
                write(address);
            }
            _ => return Err(Refusal::Shape("a struct field of a kind that replay does not rewrite")),
        }
        Ok(())
    }

    /// How far the call reaches from the address in a struct's field.
    fn field_reach(
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

    /// Size of the device variable whose address a call asks for by its host symbol.
    fn variable_bytes(&self, call: &Call<'_>) -> Option<u64> {
        let symbol = call.api.params.iter().find(|param| param.role == Role::VarSymbol)?;
        self.objects.symbols.get(&call.record.word(usize::from(symbol.word)))?.size_bytes
    }

    /// Host memory that stands for the program's at this address for as long as graphs may use it.
    pub(crate) fn shadow(&mut self, address: u64, len_bytes: u64) -> Result<*mut u8, Refusal> {
        if let Some((base, (size, place))) = self.shadows.range(..=address).next_back() {
            let offset = address - base;
            if offset.checked_add(len_bytes).is_some_and(|end| end <= *size) {
                // SAFETY: `offset` is at most `size`, the length of the place.
                return Ok(unsafe { (*place as *mut u8).add(offset as usize) });
            }
        }
        let place = self.host.lasting_place(len_bytes)?;
        self.shadows.insert(address, (len_bytes, place as usize));
        Ok(place)
    }

    /// The value of a size for this call.
    pub(crate) fn size_of(&self, call: &Call<'_>, size: Size) -> Option<u64> {
        size.value(&RecordInputs { api: call.api, record: &call.record, fields: &[] })
    }

    /// The device that stands for a recorded one; one that a failed call named stays as it is where there is none.
    pub(crate) fn live_device(&self, call: &Call<'_>, device: i32) -> Result<i32, Refusal> {
        let live = self.choices.devices.live(device);
        if call.succeeded() && live >= self.device_count {
            return Err(Refusal::Device { device, count: self.device_count });
        }
        Ok(live)
    }
}

impl Lowering {
    /// Nothing yet, with these empty facts to fill in.
    pub(crate) fn new(facts: Box<CallFacts>) -> Self {
        Lowering { facts, ..Lowering::default() }
    }

    fn note_memory(&mut self, allocation: &Allocation, access: Access) {
        self.facts.memory.push((allocation.object, access.writes()));
        self.facts.uses.push((allocation.object, Use::Reads));
    }
}

/// The bytes of an out section that the call wrote.
pub(crate) fn out_bytes<'r>(record: &Record<'r>, number: u8) -> Option<&'r [u8]> {
    record
        .section(SectionTag::Out, number)
        .filter(|section| section.presence == Presence::Present)
        .map(|section| section.payload)
}

/// The bytes of an in section; `None` where there was nothing to record.
pub(crate) fn in_bytes<'r>(call: &Call<'r>, number: u8, param: &'static str) -> Result<Option<&'r [u8]>, Refusal> {
    match call.record.section(SectionTag::In, number) {
        Some(section) if section.presence == Presence::Withheld => {
            let _ = param;
            Err(Refusal::Withheld { what: "an argument passed by pointer" })
        }
        Some(section) if section.presence == Presence::Present => Ok(Some(section.payload)),
        _ if call.succeeded() => Ok(None),
        _ => Ok(None),
    }
}

/// A copy of `bytes`, padded so that a runtime that looks at more than the recorded one finds zeros.
pub(crate) fn padded_copy(chunk: &mut Chunk, bytes: &[u8]) -> *mut u64 {
    padded_copy_to(chunk, bytes, MIN_BUFFER_BYTES)
}

/// A copy of `bytes`, padded with zeros to at least `room_bytes`.
pub(crate) fn padded_copy_to(chunk: &mut Chunk, bytes: &[u8], room_bytes: usize) -> *mut u64 {
    let place = chunk.memory.allocate(bytes.len().max(room_bytes).max(MIN_BUFFER_BYTES).div_ceil(8));
    // SAFETY: the allocation is at least as long as `bytes`, fresh, and zeroed.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place.cast::<u8>(), bytes.len()) };
    place
}
