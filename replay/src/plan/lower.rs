//! From a recorded call to an instruction: every argument by the role its parameter has.
//!
//! * [`draft`]: an instruction in the making
//! * [`handle`], [`memory`], [`allocation`], [`structs`], [`nested`]: arguments by what they are, and what structs point to
//! * [`launch`]: kernel arguments; [`kernel_room`]: room for what kernels really take
//! * [`bounds`]: nothing of that reaches past the memory laid out for it
//! * [`special`]: calls that no role says all of
//! * [`own_thread`]: what HIP keeps for each OS thread; [`contexts`]: which device they make current
//! * [`enumeration`]: functions and kernels that were had by enumeration
//! * [`kernel_choice`], [`listed_node`], [`empty_node`]: kernels left out or replaced
//! * [`ipc`], [`shared`]: handles by which processes share memory and events
//! * [`capture_info`]: nodes of a capture under way; [`device_resource`]: shares of a device

pub(crate) mod allocation;
pub(crate) mod bounds;
pub(crate) mod capture_info;
pub(crate) mod contexts;
pub(crate) mod device_resource;
pub(crate) mod draft;
pub(crate) mod empty_node;
pub(crate) mod enumeration;
pub(crate) mod handle;
pub(crate) mod ipc;
pub(crate) mod kernel_choice;
pub(crate) mod kernel_room;
pub(crate) mod launch;
pub(crate) mod listed_node;
pub(crate) mod memory;
pub(crate) mod nested;
pub(crate) mod own_thread;
pub(crate) mod shared;
pub(crate) mod special;
pub(crate) mod structs;

use hrr_format::catalogue::{Api, HandleKind, MIN_BUFFER_BYTES, Role, STRUCTS, Size, SizeInputs};
use hrr_format::record::{Presence, Record, SectionTag, SectionTags};

use super::Planner;
use super::error::Refusal;
use super::memory::address::Space;
use super::memory::placed::Placed;
use super::objects::Definition;
use super::order::dependency::{CallFacts, StreamKey, Use};
use crate::instruction::{Chunk, Wait};
use crate::memory::stage::{Shape, poison_address};
use capture_info::Told;
use draft::Draft;

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
    /// Which sections the record has.
    pub(crate) tags: SectionTags,
}

/// Whether an enqueue with these sections copies from or to memory of the host: if that is pageable, the runtime may wait for
/// the device in the call itself.
pub(super) fn copies_host_memory(tags: SectionTags) -> bool {
    tags.has(SectionTag::BlobIn) || tags.has(SectionTag::BlobOut)
}

impl Call<'_> {
    /// Whether the call succeeded at capture.
    pub(crate) fn succeeded(&self) -> bool {
        self.record.ret() == 0
    }
}

/// What laying out a call has brought together.
#[derive(Debug)]
pub(crate) struct Lowering {
    pub(crate) facts: Box<CallFacts>,
    pub(crate) definitions: Vec<Definition>,
    /// The live address of D2H results, by blob number, waiting for their observation.
    pub(crate) results: Vec<(u64, usize, Shape)>,
    /// The recorded address of D2H results in host memory that kernels use directly, by blob number.
    pub(crate) direct_results: Vec<(u64, u64, Shape)>,
    /// Whether the call uses staged memory.
    pub(crate) stages: bool,
    /// How many sections with contents of a parameter were used, where structs or arrays name several pieces of memory.
    pub(crate) used: Vec<(SectionTag, u8)>,
    /// What becomes of device memory that is given out or taken back where it is placed.
    pub(crate) placed: Option<Placed>,
    /// The stream that the call names, whatever it does there.
    pub(crate) names_stream: Option<StreamKey>,
    /// An array of the runtime's own whose handles are wanted.
    pub(crate) told: Option<Told>,
    /// New device memory, to be filled: where its address is, and its size in bytes.
    pub(crate) new_memory: Option<(crate::memory::slots::Slot, u64)>,
    /// The device of the memory that is freed, which is what freeing it waits for.
    pub(crate) freed_on: Option<i32>,
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

pub(super) fn integer(bytes: &[u8], at: usize, width: u8) -> Option<u64> {
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
            // As recorded; most are.
            if matches!(param.role, Role::Scalar) {
                continue;
            }
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
                // None at all is refused now as it was.
                Role::Callback if value == 0 => {}
                Role::Callback => draft.set(param.word, special::callback_address(call.api)),
                Role::Use(HandleKind::Stream) => {
                    self.lower_stream(call, chunk, draft, lowering, param.word, value, waits)?;
                }
                Role::Use(kind) => {
                    let how = if special::changes_state(call.api, kind) { Use::Changes } else { Use::Reads };
                    self.lower_handle(call, draft, lowering, param.word, kind, value, how)?;
                }
                Role::Destroy(kind) => {
                    // A call that failed to end it has changed nothing.
                    let how = if call.succeeded() { Use::Ends } else { Use::Reads };
                    let shared =
                        kind == HandleKind::Event && call.succeeded() && self.objects.shared_events.remove(&value);
                    let outlives = shared || kind == HandleKind::Ctx || self.objects.is_retained(kind, value);
                    let how = if outlives && call.succeeded() { Use::Changes } else { how };
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
                            self.name_enumerated(call, lowering, number, position, kind, handle);
                        }
                    }
                }
                Role::GetArrayAt(kind, _) => {
                    if value != 0 {
                        self.lower_told(call, chunk, draft, lowering, number, kind);
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
                                if !self.copy_in_place(draft, lowering, &section, address, shape, target) {
                                    let place = self.stage_contents(call, lowering, &section, address, shape)?;
                                    // SAFETY: as above.
                                    unsafe { target.write(place as u64) };
                                }
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

    /// The value of a size for this call.
    pub(crate) fn size_of(&self, call: &Call<'_>, size: Size) -> Option<u64> {
        size.value(&RecordInputs { api: call.api, record: &call.record, fields: &[] })
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
