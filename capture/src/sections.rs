//! Putting together the sections of a call whose record is more than its words.
//!
//! At entry the plan's steps become drafts: what each section holds and how long it is, so that the record can be given
//! its place. Contents are copied away here, before the real function runs, and results get their numbers.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use hrr_format::catalogue::{Access, Effect, HandleKind, Role, STRUCTS, StructLayout};
use hrr_format::code_object::{FAT_BINARY_MAGIC, image_len_bytes};
use hrr_format::record::{BlobRef, HostRows, MAX_RECORD_BYTES, NO_PARAM, Presence, SectionTag};

use crate::assembled_launch::AssembledLaunches;
use crate::contents::allocations::Owner;
use crate::contents::copy_structs::{self, SideKind};
use crate::contents::graph_copies::{self, GraphCopy, Way};
use crate::contents::host_memory;
use crate::contents::memory::{self, Trust};
use crate::contents::pending_results::HostResult;
use crate::contents::region::Region;
use crate::hooks::{self, GraphHook, Hook, HookCall};
use crate::launch::{self, Arguments};
use crate::plan::{Inputs, Plan, Step, Sureness};
use crate::process::Process;
use crate::runtime;

/// Longest module file in bytes that is read.
const MAX_MODULE_BYTES: u64 = 4 << 30;

/// A section that is being put together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draft {
    pub(crate) tag: SectionTag,
    pub(crate) param: u8,
    pub(crate) presence: Presence,
    pub(crate) len_bytes: u32,
    /// Offset of the section in the record, once it has one.
    pub(crate) at_bytes: u32,
    pub(crate) source: Source,
}

/// Where a section's payload comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// It stays zero.
    Zeros,
    /// Memory, at entry.
    Memory(*const u8),
    /// Memory, after a call that succeeded.
    AfterCall(*const u8),
    /// The array whose address is at the first place after a call that succeeded, and whose number of words at the second.
    ArrayAfterCall(*const u64, *const u64),
    /// A few bytes.
    Inline([u8; 24]),
    /// The file whose descriptor is there after a call that succeeded.
    FileAfterCall(*const i32),
    /// The pointer that the call returns.
    Returned,
    /// Kernel arguments.
    Arguments(Arguments),
}

/// What a call moves between host and device, remembered from its entry to its return.
#[derive(Debug, Default)]
pub(crate) struct Transfers {
    /// Results that the call, or the work it enqueues, writes to host memory.
    pub(crate) results: Vec<HostResult>,
    /// Host sides of copies that become graph nodes.
    pub(crate) graph_copies: Vec<GraphCopy>,
    /// The stream capture that the call takes part in.
    pub(crate) capture: Option<u64>,
    /// A code object that is being loaded.
    pub(crate) code: Option<CodeImage>,
    /// Addresses in host memory that the work which the call enqueues uses directly.
    pub(crate) addresses: Vec<u64>,
    /// Where the call puts work on several streams: each, with how many of the addresses there are up to and with its work's.
    pub(crate) on_streams: Vec<(u64, usize)>,
    /// The stream that the call works on, where none of its arguments says so.
    pub(crate) stream: Option<u64>,
    /// Launches of this thread that are being put together, the last one innermost.
    assembled: AssembledLaunches,
}

/// A code object that is being loaded.
#[derive(Debug)]
pub(crate) struct CodeImage {
    /// Number in the store; `None` where contents are withheld.
    pub(crate) number: Option<u64>,
    /// Where the program has it.
    pub(crate) address: u64,
    /// Its length.
    pub(crate) len_bytes: usize,
    /// Its bytes, where it was read from a file.
    file: Option<Vec<u8>>,
}

impl CodeImage {
    /// The image's bytes.
    ///
    /// # Safety
    /// The call that loads the image is still under way, or has just returned.
    pub(crate) unsafe fn bytes(&self) -> &[u8] {
        match &self.file {
            Some(bytes) => bytes,
            // SAFETY: the image was measured at the call's entry; the program may not free it before the call returns.
            None => unsafe { std::slice::from_raw_parts(self.address as *const u8, self.len_bytes) },
        }
    }
}

impl Transfers {
    pub(crate) fn clear(&mut self) {
        self.results.clear();
        self.graph_copies.clear();
        self.capture = None;
        self.code = None;
        self.addresses.clear();
        self.on_streams.clear();
        self.stream = None;
    }
}

/// A call whose sections are being drafted.
pub(crate) struct Drafting<'a> {
    call: HookCall<'a>,
    drafts: &'a mut Vec<Draft>,
    transfers: &'a mut Transfers,
    /// The record's auxiliary number: kernel number plus one.
    aux: u32,
}

/// Lists the sections of a call and copies its contents away; returns the record's auxiliary number.
///
/// # Safety
/// The words are those of a call to the plan's entry point, whose pointers are as valid as the call demands.
pub(crate) unsafe fn draft(
    process: &'static Process,
    plan: &'static Plan,
    words: &[u64],
    drafts: &mut Vec<Draft>,
    transfers: &mut Transfers,
) -> u32 {
    drafts.clear();
    transfers.clear();
    let call = HookCall { process, plan, words };
    call.at_entry(transfers);
    if let Hook::Assembled(part) = plan.hook {
        // SAFETY: by the caller's contract.
        if let Some((stream, addresses)) = unsafe { transfers.assembled.part(part, words) } {
            transfers.stream = Some(stream);
            transfers.addresses = addresses;
        }
    }
    let enqueues = plan.api.effect == Effect::Enqueue;
    if enqueues && graph_copies::capturing() {
        transfers.capture = runtime::capture_of(transfers.stream.unwrap_or_else(|| call.stream()));
        if transfers.capture.is_some() {
            transfers.graph_copies.extend(transfers.addresses.drain(..).map(GraphCopy::direct));
        }
    }
    let mut drafting = Drafting { call, drafts, transfers, aux: 0 };
    for step in &plan.steps {
        // SAFETY: by the caller's contract.
        unsafe { drafting.step(step) };
    }
    if host_memory::any() {
        drafting.direct_parameters();
    }
    match plan.hook {
        // SAFETY: the graph's copies are as valid as they were when it was built, which the launch demands.
        Hook::Graph(GraphHook::Launch) => unsafe { drafting.graph_launch() },
        // SAFETY: by the caller's contract.
        Hook::Module | Hook::LinkedFile => unsafe { drafting.module_file() },
        // SAFETY: by the caller's contract.
        Hook::Shared(place) => unsafe { drafting.shared_handle(place) },
        _ => {}
    }
    drafting.aux
}

impl Drafting<'_> {
    pub(crate) fn push(&mut self, tag: SectionTag, param: u8, presence: Presence, len_bytes: usize, source: Source) {
        self.drafts.push(Draft { tag, param, presence, len_bytes: len_bytes as u32, at_bytes: 0, source });
    }

    pub(crate) fn word(&self, word: u8) -> u64 {
        self.call.words[usize::from(word)]
    }

    fn inputs(&self) -> Inputs<'static> {
        // SAFETY: the words outlive the drafting, which is all that the inputs are used in; the longer lifetime only keeps
        // them from borrowing the drafts.
        let words = unsafe { std::slice::from_raw_parts(self.call.words.as_ptr(), self.call.words.len()) };
        Inputs { api: self.call.plan.api, words, structure: None }
    }

    unsafe fn step(&mut self, step: &Step) {
        let inputs = self.inputs();
        match *step {
            Step::In { param, word, size } => self.bytes_in(param, self.word(word), size.value(&inputs)),
            Step::ArgBytes { param, word, size, kept_bytes } => {
                let kept = self.call.process.blobs().is_some();
                match size.value(&inputs) {
                    Some(len)
                        if !kept && len > kept_bytes && len <= MAX_RECORD_BYTES as u64 && self.word(word) != 0 =>
                    {
                        self.push(SectionTag::In, param, Presence::Withheld, len as usize, Source::Zeros);
                    }
                    size => self.bytes_in(param, self.word(word), size),
                }
            }
            Step::Out { param, word, size } => {
                let address = self.word(word) as *const u8;
                let (len, source) = match size.value(&inputs) {
                    Some(len) if !address.is_null() && len <= MAX_RECORD_BYTES as u64 => {
                        (len as usize, Source::AfterCall(address))
                    }
                    _ => (0, Source::Zeros),
                };
                self.push(SectionTag::Out, param, Presence::Absent, len, source);
            }
            Step::HandlesAt { param, word, count_word } => {
                let (address, count_at) = (self.word(word) as *const u64, self.word(count_word) as *const u64);
                if !address.is_null() && !count_at.is_null() {
                    // The record has its place before the call is made: what it will tell is asked for.
                    let len = (runtime::capture_dependencies(self.call.stream()) * 8).min(MAX_RECORD_BYTES / 2);
                    let source = Source::ArrayAfterCall(address, count_at);
                    self.push(SectionTag::Out, param, Presence::Absent, len, source);
                }
            }
            // SAFETY: by the caller's contract.
            Step::Struct { param, word, layout, size } => unsafe {
                self.structs(param, self.word(word), &STRUCTS[usize::from(layout)], size.value(&inputs));
            },
            // SAFETY: by the caller's contract.
            Step::Text { param, word } => unsafe { self.text(param, self.word(word)) },
            // SAFETY: by the caller's contract.
            Step::Host { param, word, access, size, sure } => unsafe {
                let kind = match sure {
                    Sureness::Host => SideKind::Host,
                    Sureness::KindWord(kind) => SideKind::Copy(self.word(kind) & 0xffff_ffff),
                    Sureness::Lookup => SideKind::Lookup,
                };
                if let Some(region) = Region::of_size(self.word(word), &size, &inputs) {
                    self.host(param, region, access, kind);
                }
            },
            // SAFETY: by the caller's contract.
            Step::HostArray { param, word, access, size, sizes_word } => unsafe {
                self.host_array(param, self.word(word), access, size.value(&inputs), self.word(sizes_word));
            },
            // SAFETY: by the caller's contract.
            Step::Image { param, word } => unsafe { self.image(param, self.word(word)) },
            // SAFETY: by the caller's contract.
            Step::Launch(shape) => unsafe {
                let (aux, draft) = launch::launch(self.call.process, &shape, self.call.words);
                self.aux = aux;
                self.direct_arguments(draft.as_ref());
                self.drafts.extend(draft);
            },
            Step::Return => self.push(SectionTag::Return, NO_PARAM, Presence::Absent, 8, Source::Returned),
        }
    }

    pub(crate) fn bytes_in(&mut self, param: u8, address: u64, size: Option<u64>) {
        match size {
            _ if address == 0 => self.push(SectionTag::In, param, Presence::Absent, 0, Source::Zeros),
            Some(len) if len <= MAX_RECORD_BYTES as u64 => {
                let source = Source::Memory(address as *const u8);
                self.push(SectionTag::In, param, Presence::Present, len as usize, source);
            }
            _ => {}
        }
    }

    unsafe fn text(&mut self, param: u8, address: u64) {
        if address == 0 {
            return self.push(SectionTag::Text, param, Presence::Absent, 0, Source::Zeros);
        }
        // SAFETY: the caller vouches for a C string; no more than the limit is looked at.
        let len = unsafe { libc::strnlen(address as *const libc::c_char, MAX_RECORD_BYTES) };
        self.push(SectionTag::Text, param, Presence::Present, len, Source::Memory(address as *const u8));
    }

    /// Structs, then what they point to: nested structs and arrays, kernel arguments, and the host sides of copies.
    unsafe fn structs(&mut self, param: u8, address: u64, layout: &'static StructLayout, count: Option<u64>) {
        let size_bytes = u64::from(layout.size_bytes);
        let total = count.and_then(|count| count.checked_mul(size_bytes));
        self.bytes_in(param, address, total);
        let Some(count) = count.filter(|_| address != 0 && total.is_some_and(|total| total <= MAX_RECORD_BYTES as u64))
        else {
            return;
        };
        for index in 0..count {
            // SAFETY: the caller vouches for `count` structs.
            let bytes = unsafe {
                std::slice::from_raw_parts((address + index * size_bytes) as *const u8, layout.size_bytes as usize)
            };
            // SAFETY: by the caller's contract.
            unsafe { self.fields(param, bytes, layout) };
            if let Some((_, offset_bytes)) = self.call.plan.stream_field.filter(|&(word, _)| self.word(word) == address)
                && let Some(stream) = bytes.get(offset_bytes as usize..).and_then(|rest| rest.first_chunk())
            {
                self.transfers.on_streams.push((u64::from_le_bytes(*stream), self.transfers.addresses.len()));
            }
        }
    }

    unsafe fn fields(&mut self, param: u8, bytes: &[u8], layout: &'static StructLayout) {
        let inputs = Inputs { structure: Some(bytes), ..self.inputs() };
        let value = |offset: u32| {
            bytes.get(offset as usize..).and_then(|rest| rest.first_chunk()).map_or(0, |raw| u64::from_le_bytes(*raw))
        };
        let holds = |wanted: &dyn Fn(&Role) -> bool| {
            layout
                .fields
                .iter()
                .find(|field| wanted(&field.role) && field.when.as_ref().is_none_or(|when| when.holds(bytes)))
                .map(|field| value(field.offset_bytes))
        };
        for field in layout.fields {
            if !field.when.as_ref().is_none_or(|when| when.holds(bytes)) {
                continue;
            }
            let address = value(field.offset_bytes);
            match field.role {
                Role::In(size) => self.bytes_in(param, address, size.value(&inputs)),
                Role::UseArray(_, count) => {
                    self.bytes_in(param, address, count.value(&inputs).and_then(|count| count.checked_mul(8)));
                }
                Role::Device(..) => self.direct(address),
                // SAFETY: by the caller's contract; the catalogue's nesting is finite.
                Role::Struct(nested, count) => unsafe {
                    self.structs(param, address, &STRUCTS[usize::from(nested)], count.value(&inputs));
                },
                _ => {}
            }
        }
        let kernel =
            holds(&|role| matches!(role, Role::KernelSymbol | Role::Use(HandleKind::Function | HandleKind::Kernel)));
        let kernel_params = holds(&|role| *role == Role::KernelParams);
        if let (Some(kernel), Some(kernel_params)) = (kernel, kernel_params) {
            let extra = holds(&|role| *role == Role::Extra).unwrap_or(0);
            let process = self.call.process;
            // SAFETY: by the caller's contract.
            let (aux, draft) = unsafe {
                launch::arguments(process, process.kernels().of(kernel), (param, kernel_params), (param, extra))
            };
            if self.aux == 0 {
                self.aux = aux;
            }
            // SAFETY: by the caller's contract.
            unsafe { self.direct_arguments(draft.as_ref()) };
            self.drafts.extend(draft);
        }
        for side in copy_structs::sides(layout.name, bytes, &runtime::array_element_bytes).into_iter().flatten() {
            // SAFETY: by the caller's contract.
            unsafe { self.host(param, side.region, side.access, side.kind) };
        }
    }

    unsafe fn host_array(&mut self, param: u8, address: u64, access: Access, count: Option<u64>, sizes: u64) {
        self.bytes_in(param, address, count.and_then(|count| count.checked_mul(8)));
        let Some(count) = count.filter(|&count| address != 0 && sizes != 0 && count < MAX_RECORD_BYTES as u64 / 8)
        else {
            return;
        };
        for index in 0..count {
            // SAFETY: the caller vouches for both arrays.
            let (address, len_bytes) = unsafe {
                (
                    (address as *const u64).add(index as usize).read_unaligned(),
                    (sizes as *const u64).add(index as usize).read_unaligned(),
                )
            };
            // SAFETY: by the caller's contract.
            unsafe { self.host(param, Region::range(address, len_bytes), access, SideKind::Lookup) };
        }
    }

    /// One side of a copy: recorded if it is host memory.
    unsafe fn host(&mut self, param: u8, region: Region, access: Access, kind: SideKind) {
        let process = self.call.process;
        let Some(len_bytes) = region.len_bytes() else {
            return;
        };
        if region.address == 0 || len_bytes == 0 {
            return;
        }
        let owner = process.allocations().find(region.address);
        let by_kind = match kind {
            SideKind::Host => Some(true),
            SideKind::Copy(kind) => hooks::host_by_kind(kind, access),
            SideKind::Lookup => None,
        };
        let is_host = match owner {
            // Unified addressing lets a program give the wrong kind; whose memory it is decides.
            Some((Owner::Device, _)) => false,
            Some((Owner::Pinned, _)) => by_kind != Some(false),
            None => by_kind.unwrap_or(true),
        };
        if !is_host {
            return self.direct(region.address);
        }
        let hook = self.call.plan.hook;
        if self.transfers.capture.is_some() || hooks::describes_nodes(hook) {
            self.transfers.graph_copies.push(GraphCopy { node: None, region, access, way: Way::Copied });
            return;
        }
        if !matches!(self.call.plan.api.effect, Effect::Enqueue | Effect::BlockCopy) {
            // What a linker is given is code.
            if access.reads() {
                // SAFETY: by the caller's contract.
                unsafe { self.code(param, region.address, len_bytes as usize, None) };
            }
            return;
        }
        if access.reads() && self.is_in_use(&region) {
            // The device may yet write what the copy will read: replay copies from the memory itself.
            return self.direct(region.address);
        }
        if access.reads() {
            let trust = if self.other_side_fits(&region) { Trust::Readable } else { self.trust(&region) };
            // SAFETY: by the caller's contract, as far as it is trusted.
            let (presence, reference) = unsafe { self.blob_in(&region, len_bytes, trust) };
            let len = if presence == Presence::Absent { 0 } else { BlobRef::BYTES };
            self.push(SectionTag::BlobIn, param, presence, len, inline(None, reference));
        }
        if access.writes() {
            let (presence, reference) = self.blob_out(region, len_bytes);
            self.push(SectionTag::BlobOut, param, presence, BlobRef::BYTES, inline(None, reference));
        }
    }

    /// Whether work in flight uses this memory directly, and no copy that is being waited for is about to write it.
    fn is_in_use(&self, region: &Region) -> bool {
        let process = self.call.process;
        host_memory::in_flight()
            && process.host_memory().is_some_and(|memory| memory.is_in_use(region.address))
            && !process.pending().overlaps(region)
    }

    /// An address that the call's work, or a graph's, is given: in host memory it uses that directly.
    fn direct(&mut self, address: u64) {
        if !host_memory::may_hold(address) {
            return;
        }
        if self.transfers.capture.is_some() || hooks::describes_nodes(self.call.plan.hook) {
            self.transfers.graph_copies.push(GraphCopy::direct(address));
        } else if matches!(self.call.plan.api.effect, Effect::Enqueue | Effect::BlockCopy) {
            self.transfers.addresses.push(address);
        }
    }

    fn direct_parameters(&mut self) {
        for param in self.call.plan.api.params {
            if matches!(param.role, Role::Device(..)) {
                self.direct(self.word(param.word));
            }
        }
    }

    /// The addresses among kernel arguments.
    ///
    /// # Safety
    /// The launch's arguments are readable.
    unsafe fn direct_arguments(&mut self, draft: Option<&Draft>) {
        if host_memory::any()
            && let Some(draft) = draft
        {
            // SAFETY: by the caller's contract.
            unsafe { launch::addresses(draft, &mut |address| self.direct(address)) };
        }
    }

    /// Whether the device side of a copy lies in one allocation. The runtime then has no reason to refuse the copy, and
    /// reads all of the host side itself.
    fn other_side_fits(&self, region: &Region) -> bool {
        let allocations = self.call.process.allocations();
        let inputs = self.inputs();
        self.call.plan.api.params.iter().any(|param| {
            let (Role::Any(Access::Write, size) | Role::Device(Access::Write, size)) = param.role else {
                return false;
            };
            let address = self.word(param.word);
            let span = Region::of_size(address, &size, &inputs).and_then(|region| region.span_bytes());
            let fits = |span: u64| matches!(allocations.find(address), Some((Owner::Device, left)) if left >= span);
            address != region.address && span.is_some_and(fits)
        })
    }

    unsafe fn blob_in(&self, region: &Region, len_bytes: u64, trust: Trust) -> (Presence, BlobRef) {
        let Some(writer) = self.call.process.blobs() else {
            return (Presence::Withheld, BlobRef { number: BlobRef::WITHHELD, size_bytes: len_bytes });
        };
        if !memory::is_plausible(len_bytes, trust) {
            return (Presence::Absent, BlobRef { number: BlobRef::WITHHELD, size_bytes: len_bytes });
        }
        let number = writer.blobs.next_number();
        // What is read later may be gone by then, unless it is pinned.
        if self.call.process.pending().read_later(number, region, self.trust(region)) {
            return (Presence::Present, BlobRef { number, size_bytes: len_bytes });
        }
        // SAFETY: by the caller's contract, as far as it is trusted.
        let read = unsafe { writer.add(writer.blobs, number, region, trust) };
        // Memory that cannot be read is a mistake of the program's, for the runtime to refuse: there is nothing to refer to.
        let presence = if read { Presence::Present } else { Presence::Absent };
        (presence, BlobRef { number, size_bytes: len_bytes })
    }

    fn blob_out(&mut self, region: Region, len_bytes: u64) -> (Presence, BlobRef) {
        let Some(writer) = self.call.process.blobs() else {
            return (Presence::Withheld, BlobRef { number: BlobRef::WITHHELD, size_bytes: len_bytes });
        };
        let number = writer.blobs.next_number();
        let trust = self.trust(&region);
        self.transfers.results.push(HostResult { number, region, trust });
        (Presence::Present, BlobRef { number, size_bytes: len_bytes })
    }

    /// Pinned memory is there until HIP is told otherwise.
    fn trust(&self, region: &Region) -> Trust {
        match (self.call.process.allocations().find(region.address), region.span_bytes()) {
            (Some((Owner::Pinned, left)), Some(span)) if span <= left => Trust::Readable,
            _ => Trust::Doubtful,
        }
    }

    /// The host memory that the copies of a launched graph read and write.
    unsafe fn graph_launch(&mut self) {
        let copies = self.call.process.graphs().of_exec(self.call.words[0]);
        if self.transfers.capture.is_some() {
            // The launched graph becomes a child of the one being captured.
            self.transfers.graph_copies.extend(copies.iter().map(|copy| GraphCopy { node: None, ..*copy }));
            return;
        }
        for GraphCopy { region, access, way, .. } in copies {
            if way == Way::Direct {
                self.direct(region.address);
                continue;
            }
            let Some(len_bytes) = region.len_bytes() else { continue };
            let address = Some(region.address);
            const BYTES: usize = 8 + BlobRef::BYTES;
            if access.reads() {
                // SAFETY: pinned memory is readable; doubtful memory need not be.
                let (presence, reference) = unsafe { self.blob_in(&region, len_bytes, self.trust(&region)) };
                let len = if presence == Presence::Absent { 0 } else { BYTES };
                self.push(SectionTag::GraphHostIn, NO_PARAM, presence, len, inline(address, reference));
                self.rows_of(&region);
            }
            if access.writes() {
                let (presence, reference) = self.blob_out(region, len_bytes);
                self.push(SectionTag::GraphHostOut, NO_PARAM, presence, BYTES, inline(address, reference));
                self.rows_of(&region);
            }
        }
    }

    /// How the rows lie of the region whose section was just pushed, where they have gaps. So many rows that they cannot be
    /// counted in 32 bits would not fit in any memory with gaps.
    fn rows_of(&mut self, region: &Region) {
        let counts = u32::try_from(region.height).ok().zip(u32::try_from(region.depth).ok());
        if let (None, Some((rows, slices))) = (region.as_range(), counts) {
            let rows = HostRows { rows, slices, pitch_bytes: region.pitch_bytes, slice_bytes: region.slice_bytes };
            let source = Source::Inline(rows.to_bytes());
            self.push(SectionTag::GraphHostRows, NO_PARAM, Presence::Present, HostRows::BYTES, source);
        }
    }

    /// A code object, given by its address.
    unsafe fn image(&mut self, param: u8, address: u64) {
        if address == 0 {
            return self.push(SectionTag::Code, param, Presence::Absent, 0, Source::Zeros);
        }
        // SAFETY: the caller vouches for an image or for the wrapper that compiled code passes, both longer than a word.
        let image = unsafe {
            if (address as *const u32).read_unaligned() == FAT_BINARY_MAGIC {
                (address as *const u64).add(1).read_unaligned()
            } else {
                address
            }
        };
        // SAFETY: the caller vouches for a whole image.
        match unsafe { image_len_bytes(image as *const u8) } {
            // SAFETY: as above.
            Some(len_bytes) => unsafe { self.code(param, image, len_bytes, None) },
            None => self.push(SectionTag::Code, param, Presence::Absent, 0, Source::Zeros),
        }
    }

    unsafe fn code(&mut self, param: u8, address: u64, len_bytes: usize, file: Option<Vec<u8>>) {
        let number = self.call.process.blobs().map(|writer| {
            let number = writer.code_objects.next_number();
            let region = Region::range(address, len_bytes as u64);
            // SAFETY: the caller vouches for the image.
            unsafe { writer.add(writer.code_objects, number, &region, Trust::Readable) };
            number
        });
        let reference = BlobRef { number: number.unwrap_or(BlobRef::WITHHELD), size_bytes: len_bytes as u64 };
        let presence = if number.is_some() { Presence::Present } else { Presence::Withheld };
        self.push(SectionTag::Code, param, presence, BlobRef::BYTES, inline(None, reference));
        self.transfers.code = Some(CodeImage { number, address, len_bytes, file });
    }

    /// A module that the call loads from a file.
    unsafe fn module_file(&mut self) {
        let api = self.call.plan.api;
        let Some(param) = api.param_with(|role| *role == Role::CString) else {
            return;
        };
        let address = self.word(api.params[param].word) as *const libc::c_char;
        if address.is_null() {
            return;
        }
        // SAFETY: the caller vouches for a C string.
        let path = unsafe { std::ffi::CStr::from_ptr(address) };
        let path = Path::new(OsStr::from_bytes(path.to_bytes()));
        let len_bytes = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        // A file that cannot be read is for the runtime to refuse.
        if len_bytes > 0
            && len_bytes <= MAX_MODULE_BYTES
            && let Ok(bytes) = std::fs::read(path)
        {
            // SAFETY: the bytes are at hand.
            unsafe { self.code(param as u8, bytes.as_ptr() as u64, bytes.len(), Some(bytes)) };
        }
    }
}

fn inline(address: Option<u64>, reference: BlobRef) -> Source {
    let mut bytes = [0; 24];
    let start = match address {
        Some(address) => {
            bytes[..8].copy_from_slice(&address.to_le_bytes());
            8
        }
        None => 0,
    };
    bytes[start..start + BlobRef::BYTES].copy_from_slice(&reference.to_bytes());
    Source::Inline(bytes)
}
