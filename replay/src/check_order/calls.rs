//! What each call of an archive is about, as far as the order of calls can depend on it: the objects it names, makes and ends,
//! the memory its work uses, its stream, and what it waits for.
//!
//! Read from the records and the catalogue's rows alone. The planner comes to the same by its own way; here it is being
//! checked, so nothing of that is used but the numbering of events.

use std::collections::BTreeMap;

use hrr_format::archive::Archive;
use hrr_format::catalogue::{Access, Api, Effect, HandleKind, Returns, Role, STRUCTS, Size};
use hrr_format::code_object::ArgKind;
use hrr_format::record::{Presence, Record, Section, SectionTag};
use rustc_hash::FxHashMap;

use crate::plan::lower::RecordInputs;
use crate::plan::order::looks::Span;

/// `hipStreamNonBlocking`.
const NON_BLOCKING: u64 = 1;
/// `hipStreamLegacy`.
const LEGACY: u64 = 1;
/// `hipStreamPerThread`.
const PER_THREAD: u64 = 2;

/// An object of the recording: the n-th that was made.
pub(super) type Object = u32;

/// How a call stands to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// Needs it as it is.
    Uses,
    /// Changes its state.
    Changes,
    /// Ends it.
    Ends,
}

/// How a stream's work relates to the legacy default stream's of its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// It is the legacy default stream.
    Legacy,
    /// Each waits for the other.
    Blocking,
    /// Not at all.
    NonBlocking,
}

/// A stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stream {
    pub(super) object: Object,
    pub(super) device: i32,
    pub(super) rule: Rule,
}

/// What a call had waited for when it returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Awaited {
    #[default]
    Nothing,
    Stream(Stream),
    Event(Object),
    Device(i32),
    /// Some of a device's streams: it is not told which.
    Part(i32),
}

/// A call.
#[derive(Clone, Debug, Default)]
pub(super) struct Call {
    pub(super) event: u64,
    pub(super) lane: u32,
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) failed: bool,
    pub(super) names: Vec<(Object, How)>,
    pub(super) makes: Vec<Object>,
    /// Allocations that the call or its work uses, and whether it may write them.
    pub(super) memory: Vec<(Object, bool)>,
    /// The work may use memory that its arguments do not name.
    pub(super) any_memory: bool,
    /// Other threads' calls mean something else before and after it.
    pub(super) fence: bool,
    /// The stream its work is on.
    pub(super) enqueues_on: Option<Stream>,
    /// Further streams that it is on: a launch on several devices has one of each.
    pub(super) also_on: Vec<Stream>,
    /// Whether the work may still be under way when the call has returned.
    pub(super) is_asynchronous: bool,
    /// Whether it copies from or to memory of the host, for which it may wait for the device although it is asynchronous.
    pub(super) copies_host_memory: bool,
    /// The device of the memory that it frees.
    freed_on: Option<i32>,
    pub(super) awaited: Awaited,
    /// The event it records.
    pub(super) records: Option<Object>,
    /// The event its stream waits for from then on.
    pub(super) stream_awaits: Option<Object>,
}

impl Call {
    /// The streams that its work is on.
    pub(super) fn streams(&self) -> impl Iterator<Item = Stream> + '_ {
        self.enqueues_on.into_iter().chain(self.also_on.iter().copied())
    }

    /// The one stream that its work is on.
    pub(super) fn only_on(&self) -> Option<Stream> {
        self.enqueues_on.filter(|_| self.also_on.is_empty())
    }
}

#[derive(Clone, Copy, Debug)]
struct Handle {
    object: Object,
    /// What it is a part of; 0 = nothing.
    whole: Object,
    stream: Option<(i32, Rule)>,
    /// References beyond the first.
    references: u32,
}

/// Something that is there once the call has returned.
#[derive(Clone, Copy, Debug)]
enum Made {
    Handle(HandleKind, u64, Handle),
    Memory { base: u64, len_bytes: u64, object: Object },
    Device(i32),
}

/// What is live while the calls of an archive are read in the order they were entered.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    archive: &'a Archive,
    made: u32,
    handles: FxHashMap<(HandleKind, u64), Handle>,
    symbols: FxHashMap<u64, (Object, Object)>,
    memory: BTreeMap<u64, (u64, Object)>,
    /// Which device memory was made on.
    made_on: FxHashMap<Object, i32>,
    devices: Vec<i32>,
    legacy: FxHashMap<i32, Object>,
    per_thread: FxHashMap<(u32, i32), Object>,
    /// By lane: what its open call makes.
    making: Vec<Vec<Made>>,
    /// By lane: launches that are put together call by call, the last one configured at the end.
    assembled: Vec<Vec<Assembled>>,
}

/// A launch that is put together: where it was configured to, and what its arguments name. Its parts do nothing by themselves.
#[derive(Debug, Default)]
struct Assembled {
    stream: Option<Stream>,
    names: Vec<(Object, How)>,
    memory: Vec<(Object, bool)>,
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

impl<'a> Reader<'a> {
    pub(super) fn new(archive: &'a Archive) -> Self {
        let lanes = archive.streams().len();
        Reader {
            archive,
            made: 0,
            handles: FxHashMap::default(),
            symbols: FxHashMap::default(),
            memory: BTreeMap::new(),
            made_on: FxHashMap::default(),
            devices: vec![0; lanes],
            legacy: FxHashMap::default(),
            per_thread: FxHashMap::default(),
            making: vec![Vec::new(); lanes],
            assembled: (0..lanes).map(|_| Vec::new()).collect(),
        }
    }

    fn new_object(&mut self) -> Object {
        self.made += 1;
        self.made
    }

    /// A call of `lane` is entered.
    pub(super) fn enter(&mut self, event: u64, lane: u32, record: &Record<'a>, span: Span) -> Call {
        let Span { begin, end } = span;
        let mut call = Call { event, lane, begin, end, failed: record.ret() != 0, ..Call::default() };
        let Some(api) = self.archive.api(record.api()).known else { return call };
        for (number, param) in api.params.iter().enumerate() {
            self.parameter(&mut call, api, record, number as u8, param.role);
        }
        let of_kernels = |section: &Section<'_>| section.tag == SectionTag::KernelArgs;
        for (index, arguments) in record.sections().map_while(Result::ok).filter(of_kernels).enumerate() {
            match index {
                0 => self.kernel_arguments(&mut call, record, arguments.payload),
                // The record says of the first kernel alone which it is.
                _ => self.embedded(&mut call, arguments.payload),
            }
        }
        if api.ret == Returns::Pointer
            && let Some(value) = record.section_tagged(SectionTag::Return).map(|section| word(section.payload, 0))
        {
            self.new_handle(&mut call, api, record, HandleKind::FatBinary, value);
        }
        self.effects(&mut call, api, record);
        call
    }

    /// The call that `lane` was in has returned.
    pub(super) fn leave(&mut self, lane: u32) {
        for made in std::mem::take(&mut self.making[lane as usize]) {
            match made {
                Made::Handle(kind, value, handle) => {
                    self.handles.insert((kind, value), handle);
                }
                Made::Memory { base, len_bytes, object } => {
                    self.memory.insert(base, (len_bytes, object));
                }
                Made::Device(device) => self.devices[lane as usize] = device,
            }
        }
    }

    fn parameter(&mut self, call: &mut Call, api: &'static Api, record: &Record<'a>, number: u8, role: Role) {
        let value = record.word(usize::from(api.params[usize::from(number)].word));
        let payload = |tag| {
            let section = record.section(tag, number).filter(|section| section.presence == Presence::Present);
            section.map(|section| section.payload).unwrap_or_default()
        };
        let size = |size: Size, fields: &[u8]| size.value(&RecordInputs { api, record, fields });
        match role {
            Role::Use(HandleKind::Stream) => self.stream_parameter(call, api, value),
            Role::Use(kind) => {
                let how = if changes_state(api, kind) { How::Changes } else { How::Uses };
                self.name(call, kind, value, how);
            }
            Role::Destroy(kind) => self.destroy(call, kind, value),
            Role::Create(kind) | Role::Get(kind) if value != 0 => {
                self.give(call, api, record, (kind, word(payload(SectionTag::Out), 0)), role);
            }
            Role::UseArray(kind, _) => {
                for bytes in payload(SectionTag::In).chunks_exact(8) {
                    self.name(call, kind, word(bytes, 0), How::Uses);
                }
            }
            Role::GetArray(kind, _) | Role::GetArrayAt(kind, _) => {
                for bytes in payload(SectionTag::Out).chunks_exact(8) {
                    self.give(call, api, record, (kind, word(bytes, 0)), Role::Get(kind));
                }
            }
            Role::Device(access, _) => self.use_memory(call, value, access),
            Role::Host(access, _) | Role::Any(access, _) => {
                let staged = [SectionTag::BlobIn, SectionTag::BlobOut].map(|tag| record.section(tag, number));
                call.copies_host_memory |= staged.iter().any(Option::is_some);
                if !staged.into_iter().flatten().any(|section| section.presence != Presence::Absent) {
                    self.use_memory(call, value, access);
                }
            }
            Role::NewDevice(bytes)
            | Role::NewHost(bytes)
            | Role::NewManaged(bytes)
            | Role::NewPitched(bytes)
            | Role::NewRange(bytes)
                if value != 0 =>
            {
                let out = payload(SectionTag::Out);
                self.new_memory(call, word(out, 0), size(bytes, out));
            }
            Role::Pin(bytes) => self.new_memory(call, value, size(bytes, &[])),
            Role::FreeDevice | Role::FreeHost | Role::FreeRange | Role::Unpin => {
                if let Some(&(_, object)) = self.memory.get(&value) {
                    call.freed_on = self.made_on.get(&object).copied();
                    call.memory.push((object, true));
                    call.names.push((object, if call.failed { How::Uses } else { How::Ends }));
                    if !call.failed {
                        self.memory.remove(&value);
                    }
                }
            }
            Role::Struct(layout, _) if value != 0 => self.structs(call, record, number, usize::from(layout)),
            Role::ArgBytes(_) => self.embedded(call, payload(SectionTag::In)),
            Role::KernelSymbol | Role::VarSymbol => self.symbol(call, api, record, value),
            _ => {}
        }
    }

    /// Structs passed by pointer, as far as their own fields go.
    fn structs(&mut self, call: &mut Call, record: &Record<'a>, number: u8, layout: usize) {
        let layout = &STRUCTS[layout];
        let Some(section) = record.section(SectionTag::In, number) else { return };
        for element in section.payload.chunks_exact(layout.size_bytes as usize) {
            for field in layout.fields.iter().filter(|field| field.when.is_none_or(|when| when.holds(element))) {
                let value = word(element, field.offset_bytes as usize);
                match field.role {
                    Role::Use(HandleKind::Stream) => {
                        self.name(call, HandleKind::Stream, value, How::Uses);
                        call.also_on.extend(self.stream(value).filter(|stream| !call.also_on.contains(stream)));
                    }
                    Role::Use(kind) => self.name(call, kind, value, How::Uses),
                    Role::Device(access, _) => self.use_memory(call, value, access),
                    _ => {}
                }
            }
        }
    }

    fn name(&mut self, call: &mut Call, kind: HandleKind, value: u64, how: How) {
        if let Some(handle) = self.handles.get(&(kind, value)) {
            call.names.push((handle.object, how));
            if handle.whole != 0 {
                call.names.push((handle.whole, How::Uses));
            }
        }
    }

    fn destroy(&mut self, call: &mut Call, kind: HandleKind, value: u64) {
        let referenced = self.handles.get(&(kind, value)).is_some_and(|handle| handle.references > 0);
        let how = if call.failed || referenced { How::Uses } else { How::Ends };
        self.name(call, kind, value, how);
        if call.failed {
            return;
        }
        match self.handles.get_mut(&(kind, value)) {
            Some(handle) if handle.references > 0 => handle.references -= 1,
            _ => drop(self.handles.remove(&(kind, value))),
        }
    }

    /// A handle that the call gives to the program.
    fn give(
        &mut self,
        call: &mut Call,
        api: &'static Api,
        record: &Record<'a>,
        (kind, value): (HandleKind, u64),
        role: Role,
    ) {
        if call.failed || value == 0 {
            return;
        }
        if matches!(role, Role::Get(_))
            && let Some(handle) = self.handles.get_mut(&(kind, value))
        {
            call.names.push((handle.object, How::Uses));
            handle.references += u32::from(api.name == "hipMemRetainAllocationHandle");
            return;
        }
        self.new_handle(call, api, record, kind, value);
    }

    fn new_handle(&mut self, call: &mut Call, api: &'static Api, record: &Record<'a>, kind: HandleKind, value: u64) {
        if value == 0 {
            return;
        }
        let object = self.new_object();
        let is_part = matches!(kind, HandleKind::Function | HandleKind::Kernel | HandleKind::Node);
        let whole = is_part.then(|| self.whole_of(api, record)).flatten().unwrap_or(0);
        let takes_flags = matches!(api.name, "hipStreamCreateWithFlags" | "hipStreamCreateWithPriority");
        let rule = if takes_flags && record.word(1) & NON_BLOCKING != 0 { Rule::NonBlocking } else { Rule::Blocking };
        let stream = (kind == HandleKind::Stream).then_some((self.devices[call.lane as usize], rule));
        call.makes.push(object);
        let handle = Handle { object, whole, stream, references: 0 };
        self.making[call.lane as usize].push(Made::Handle(kind, value, handle));
    }

    /// The module, library or graph that a function or node made by this call belongs to.
    fn whole_of(&self, api: &'static Api, record: &Record<'a>) -> Option<Object> {
        api.params.iter().find_map(|param| match param.role {
            Role::Use(kind @ (HandleKind::Module | HandleKind::Library | HandleKind::Kernel | HandleKind::Graph)) => {
                let handle = self.handles.get(&(kind, record.word(usize::from(param.word))))?;
                Some(if handle.whole != 0 { handle.whole } else { handle.object })
            }
            _ => None,
        })
    }

    fn symbol(&mut self, call: &mut Call, api: &'static Api, record: &Record<'a>, value: u64) {
        if api.name.starts_with("__hipRegister") {
            let object = self.new_object();
            let binary = self.handles.get(&(HandleKind::FatBinary, record.word(0))).map_or(0, |handle| handle.object);
            call.makes.push(object);
            self.symbols.insert(value, (object, binary));
        } else if let Some(&(object, binary)) = self.symbols.get(&value) {
            call.names.extend([(object, How::Uses), (binary, How::Uses)]);
            call.any_memory |= api.params.iter().any(|param| param.role == Role::VarSymbol)
                && matches!(api.effect, Effect::Enqueue | Effect::BlockCopy);
        }
    }

    fn new_memory(&mut self, call: &mut Call, base: u64, len_bytes: Option<u64>) {
        if call.failed || base == 0 {
            return;
        }
        let object = self.new_object();
        call.makes.push(object);
        self.made_on.insert(object, self.devices[call.lane as usize]);
        let len_bytes = len_bytes.unwrap_or(0);
        self.making[call.lane as usize].push(Made::Memory { base, len_bytes, object });
    }

    fn use_memory(&mut self, call: &mut Call, address: u64, access: Access) {
        // Mappings may lie within a reserved range, whose base is then not the nearest.
        let mut below = self.memory.range(..=address).rev();
        let found = below.find(|(base, (len_bytes, _))| address - **base < *len_bytes);
        if let Some((_, &(_, object))) = found {
            call.memory.push((object, access.writes()));
            call.names.push((object, How::Uses));
        }
    }

    fn kernel_arguments(&mut self, call: &mut Call, record: &Record<'a>, payload: &[u8]) {
        let kernel = self.archive.kernels().of_launch(record.aux());
        for arg in kernel.and_then(|kernel| kernel.args.as_deref()).unwrap_or_default() {
            let bytes = payload.get(arg.offset as usize..).and_then(|rest| rest.get(..arg.size as usize));
            let bytes = bytes.unwrap_or_default();
            match arg.kind {
                ArgKind::GlobalBuffer => self.use_memory(call, word(bytes, 0), Access::ReadWrite),
                _ => self.embedded(call, bytes),
            }
        }
    }

    /// Addresses among bytes passed by value.
    fn embedded(&mut self, call: &mut Call, bytes: &[u8]) {
        for bytes in bytes.chunks_exact(8) {
            self.use_memory(call, word(bytes, 0), Access::ReadWrite);
        }
    }

    fn stream_parameter(&mut self, call: &mut Call, api: &'static Api, value: u64) {
        let stream = if value == PER_THREAD || (value == 0 && api.name.ends_with("_spt")) {
            Some(self.per_thread(call.lane))
        } else if value == 0 || value == LEGACY {
            Some(self.legacy(call.lane))
        } else {
            self.name(call, HandleKind::Stream, value, How::Uses);
            self.stream(value)
        };
        if stream.is_some() {
            call.enqueues_on = stream;
        }
    }

    fn stream(&self, value: u64) -> Option<Stream> {
        let handle = self.handles.get(&(HandleKind::Stream, value))?;
        handle.stream.map(|(device, rule)| Stream { object: handle.object, device, rule })
    }

    fn legacy(&mut self, lane: u32) -> Stream {
        let device = self.devices[lane as usize];
        let object = match self.legacy.get(&device) {
            Some(&object) => object,
            None => self.new_object(),
        };
        self.legacy.insert(device, object);
        Stream { object, device, rule: Rule::Legacy }
    }

    fn per_thread(&mut self, lane: u32) -> Stream {
        let device = self.devices[lane as usize];
        let object = match self.per_thread.get(&(lane, device)) {
            Some(&object) => object,
            None => self.new_object(),
        };
        self.per_thread.insert((lane, device), object);
        Stream { object, device, rule: Rule::Blocking }
    }

    /// What the call as a whole does.
    fn effects(&mut self, call: &mut Call, api: &'static Api, record: &Record<'a>) {
        // The stream that a parameter named; what it means depends on the call.
        let named = call.enqueues_on.take();
        // Streams in structs, of a launch on several devices.
        let several = std::mem::take(&mut call.also_on);
        let has_stream = api.params.iter().any(|param| param.role == Role::Use(HandleKind::Stream));
        let first = call.names.first().map(|&(object, _)| object);
        let changes_capture = ["hipStreamBeginCapture", "hipStreamEndCapture", "hipStreamUpdateCapture"]
            .iter()
            .any(|name| api.name.starts_with(name));
        match api.effect {
            Effect::Enqueue | Effect::BlockCopy => {
                let hidden =
                    if api.name.ends_with("_spt") { self.per_thread(call.lane) } else { self.legacy(call.lane) };
                let stream = match several.split_first() {
                    _ if has_stream => named,
                    Some((first, others)) if api.effect == Effect::Enqueue => {
                        call.also_on = others.to_vec();
                        Some(*first)
                    }
                    _ => Some(hidden),
                };
                call.enqueues_on = stream;
                call.is_asynchronous = api.effect == Effect::Enqueue;
                if let Some(stream) = stream.filter(|_| !call.is_asynchronous) {
                    call.awaited = Awaited::Stream(stream);
                }
            }
            Effect::BlockStream => call.awaited = named.map_or(Awaited::Nothing, Awaited::Stream),
            Effect::BlockEvent => call.awaited = first.map_or(Awaited::Nothing, Awaited::Event),
            Effect::BlockDevice => {
                let device = call.freed_on.unwrap_or(self.devices[call.lane as usize]);
                let in_part = api.name.starts_with("hipExecutionCtx");
                call.awaited = if in_part { Awaited::Part(device) } else { Awaited::Device(device) };
            }
            Effect::Query if !call.failed && has_stream => {
                call.awaited = named.map_or(Awaited::Nothing, Awaited::Stream);
            }
            Effect::Query if !call.failed => call.awaited = first.map_or(Awaited::Nothing, Awaited::Event),
            Effect::Host if changes_capture => call.enqueues_on = named,
            Effect::Query | Effect::Host => {}
        }
        if !call.failed {
            self.assemble(call, api, named);
        }
        call.fence = api.name.starts_with("hipStreamBeginCapture") || api.name.starts_with("hipStreamEndCapture");
        call.any_memory |= api.name.starts_with("hipGraphLaunch");
        if api.name.starts_with("hipEventRecord") {
            call.records = call.names.iter().find(|(_, how)| *how == How::Changes).map(|&(object, _)| object);
        }
        if api.name.starts_with("hipStreamWaitEvent") {
            call.stream_awaits = self.handles.get(&(HandleKind::Event, record.word(1))).map(|handle| handle.object);
        }
        let device =
            if api.name == "hipSetDevice" { Some(record.word(0) as u32 as i32) } else { record.device_after() };
        if let Some(device) = device.filter(|_| !call.failed) {
            self.making[call.lane as usize].push(Made::Device(device));
        }
    }
}

impl Reader<'_> {
    /// A launch that is put together call by call works where it was configured to, with what its arguments name.
    fn assemble(&mut self, call: &mut Call, api: &Api, named: Option<Stream>) {
        let assembled = &mut self.assembled[call.lane as usize];
        match api.name {
            "hipConfigureCall" => {
                let stream = named.or(Some(self.legacy(call.lane)));
                self.assembled[call.lane as usize].push(Assembled { stream, ..Assembled::default() });
            }
            "hipSetupArgument" => {
                let Some(launch) = assembled.last_mut() else { return };
                launch.memory.append(&mut call.memory);
                launch.names.append(&mut call.names);
            }
            "hipLaunchByPtr" => {
                let Some(launch) = assembled.pop() else { return };
                call.enqueues_on = launch.stream;
                call.memory.extend(launch.memory);
                call.names.extend(launch.names);
            }
            _ => {}
        }
    }
}

/// Whether a call changes the state of objects of this kind that it names.
fn changes_state(api: &Api, kind: HandleKind) -> bool {
    let named = |parts: &[&str]| parts.iter().any(|part| api.name.contains(part));
    match kind {
        HandleKind::Event => api.name.starts_with("hipEventRecord"),
        HandleKind::Graph => named(&["Add", "Remove", "Set"]),
        HandleKind::Exec => true,
        HandleKind::Node => named(&["Set"]),
        _ => false,
    }
}
