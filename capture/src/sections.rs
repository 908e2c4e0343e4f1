//! Putting together the sections of a call whose record is more than its words.
//!
//! At entry the plan's steps become drafts: what each section holds and how long it is, so that the record can be given
//! its place. Contents are copied away here, before the real function runs, and results get their numbers.

mod code;
mod host_sides;

use hrr_format::catalogue::{Access, Api, Effect, HandleKind, Role, STRUCTS, StructLayout};
use hrr_format::record::{MAX_RECORD_BYTES, NO_PARAM, Presence, SectionTag};

use crate::assembled_launch::AssembledLaunches;
use crate::capture_info::CaptureNodes;
use crate::contents::copy_structs::{self, SideKind};
use crate::contents::graph_copies::{self, GraphCopy};
use crate::contents::host_memory;
use crate::contents::pending_results::HostResult;
use crate::contents::region::Region;
use crate::enumeration::Handles;
use crate::hooks::{GraphHook, Hook, HookCall};
use crate::launch::{self, Arguments};
use crate::plan::{Inputs, Plan, Step, Sureness};
use crate::process::Process;
use crate::runtime;

pub(crate) use self::code::CodeImage;

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
    /// A few bytes.
    Inline([u8; 24]),
    /// The file whose descriptor is there after a call that succeeded.
    FileAfterCall(*const i32),
    /// The names of the handles that are there after a call that succeeded.
    NamesAfterCall(Handles),
    /// The handles that are told of after a call that succeeded.
    CaptureNodesAfterCall(CaptureNodes),
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
    /// The stream that the call works on, where none of its arguments says so.
    pub(crate) stream: Option<u64>,
    /// Launches of this thread that are being put together, the last one innermost.
    assembled: AssembledLaunches,
}

impl Transfers {
    pub(crate) fn clear(&mut self) {
        self.results.clear();
        self.graph_copies.clear();
        self.capture = None;
        self.code = None;
        self.addresses.clear();
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
        Hook::Enumeration(what) => drafting.names(what),
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

    pub(crate) fn api(&self) -> &'static Api {
        self.call.plan.api
    }

    pub(crate) fn call_words(&self) -> &[u64] {
        self.call.words
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
            Step::CaptureNodes => self.capture_nodes(self.call.stream()),
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
}
