//! What else happens at the entry and return of some calls, beside recording them: capture follows whose memory an
//! address is, which kernel a handle stands for, and which host memory a graph's copies touch.

mod kinds;

use hrr_format::catalogue::{Access, Effect, Role, STRUCTS, Size};
use hrr_format::code_object::variables;

use crate::contents::allocations::Owner;
use crate::contents::graph_copies::{self, GraphCopy};
use crate::contents::host_memory::Kind;
use crate::contents::pending_results::Waited;
use crate::contents::region::Region;
use crate::enumeration::Handles;
use crate::guest::small_stack::with_own_stack_or_stop;
use crate::interception::dlsym;
use crate::plan::{Inputs, Plan};
use crate::process::Process;
use crate::sections::Transfers;
use crate::window::holders::{HolderHook, Kind as HolderKind};
use crate::window::keep;
use crate::{inherited, recorder, runtime};

pub(crate) use kinds::{AssembledHook, GraphHook, Hook, SharedHook};

/// A call at its entry or return, as hooks see it.
pub(crate) struct HookCall<'a> {
    /// The recording.
    pub(crate) process: &'static Process,
    /// The entry point.
    pub(crate) plan: &'static Plan,
    /// Its argument words.
    pub(crate) words: &'a [u64],
}

impl HookCall<'_> {
    /// Argument word `index`.
    pub(crate) fn word(&self, index: usize) -> u64 {
        self.words.get(index).copied().unwrap_or(0)
    }

    /// The 8 bytes that argument word `index` points to; zero for a null pointer.
    ///
    /// # Safety
    /// The argument points to 8 readable bytes, or is null.
    unsafe fn pointee(&self, index: usize) -> u64 {
        match self.word(index) {
            0 => 0,
            // SAFETY: by the caller's contract.
            address => unsafe { (address as *const u64).read_unaligned() },
        }
    }

    /// The C string that argument word `index` points to.
    ///
    /// # Safety
    /// The argument is a C string, or null.
    unsafe fn text(&self, index: usize) -> Option<String> {
        let address = self.word(index) as *const libc::c_char;
        if address.is_null() {
            return None;
        }
        // SAFETY: by the caller's contract.
        Some(unsafe { std::ffi::CStr::from_ptr(address) }.to_string_lossy().into_owned())
    }

    /// What is done before the real function is called.
    pub(crate) fn at_entry(&self, transfers: &mut Transfers) {
        let process = self.process;
        match self.plan.hook {
            Hook::Memory => self.forget_memory(),
            // Before the call: afterwards another thread may be given the same handle.
            Hook::Unload => {
                inherited::forget(self.word(0));
                process.kernels().unload(self.word(0));
                if let Some(windows) = process.windows_here() {
                    let addresses = windows.holders().unloaded(self.word(0));
                    for address in addresses {
                        process.allocations().remove(address);
                    }
                }
            }
            Hook::Holder(HolderHook::Ends) => self.end_holder(),
            Hook::Reset => {
                process.pending().reset();
                process.host_memory().inspect(|memory| memory.reset());
            }
            Hook::DestroyStream => {
                process.pending().forget_stream(self.word(0));
                process.host_memory().inspect(|memory| memory.forget_stream(self.word(0)));
            }
            Hook::Unmap => process.allocations().unmap(self.word(0), self.word(1)),
            Hook::EndCapture => transfers.capture = runtime::capture_of(self.stream()),
            Hook::Graph(GraphHook::Destroy) => process.graphs().remove_graph(self.word(0)),
            Hook::Graph(GraphHook::DestroyExec) => process.graphs().remove_exec(self.word(0)),
            Hook::Graph(GraphHook::DestroyNode) => {
                self.adopt(None, self.word(0));
                process.graphs().remove_node(self.word(0));
            }
            Hook::Graph(GraphHook::SetNode) => self.adopt(None, self.word(0)),
            Hook::Graph(GraphHook::SetExecNode | GraphHook::Switch) => self.adopt(Some(self.word(0)), self.word(1)),
            _ => {}
        }
    }

    /// What is done after the real function returned `code` and, where it returns a pointer, `raw`.
    ///
    /// # Safety
    /// The arguments are as the entry point demands, and where `code` is zero its results are where they say.
    pub(crate) unsafe fn at_return(&self, transfers: &mut Transfers, code: i32, raw: u64) {
        let process = self.process;
        if self.plan.hook == Hook::EndCapture {
            // SAFETY: a call that succeeded stored the graph.
            let graph = if code == 0 { Some(unsafe { self.pointee(1) }) } else { None };
            process.graphs().end_capture(transfers.capture, graph);
        }
        if code != 0 {
            return;
        }
        if inherited::registers(self.plan.api.name) {
            inherited::note(self.plan, self.words, raw);
        }
        // SAFETY: the call succeeded, so results are where its arguments say, and strings are C strings.
        unsafe {
            match self.plan.hook {
                Hook::EntryPoint => dlsym::replace_entry_point(self.word(0) as *const _, self.word(1) as *mut _),
                Hook::Memory => {
                    self.remember_memory();
                    process.description().ask();
                }
                Hook::FatBinary => {
                    if let Some(code) = transfers.code.take() {
                        process.kernels().register(raw, code.number, code.address, code.len_bytes);
                    }
                }
                Hook::Module => {
                    if let Some(code) = transfers.code.take() {
                        let read =
                            || with_own_stack_or_stop("a code object was read", || Some(variables(code.bytes())));
                        let names = process.restores_variables().then(read).flatten();
                        process.kernels().load(self.pointee(0), code.number, code.bytes(), names.unwrap_or_default());
                    }
                    self.make_holder();
                }
                Hook::Symbol => {
                    if let Some(name) = self.text(3).or_else(|| self.text(2)) {
                        process.kernels().name_symbol(self.word(1), self.word(0), &name);
                    }
                }
                Hook::Function => {
                    if let Some(name) = self.text(2) {
                        process.kernels().name_function(self.pointee(0), self.word(1), &name);
                    }
                }
                Hook::Enumeration(what) => Handles::of(what, self.words).each(&mut |handle, name| {
                    process.kernels().name_function(handle, self.word(2), &name.to_string_lossy());
                }),
                Hook::Alias => process.kernels().alias(self.pointee(0), self.word(1)),
                Hook::BeginCapture => process.graphs().begin_capture(),
                Hook::Map => {
                    process.allocations().map(self.word(0), self.word(1));
                    self.note_window(self.word(0));
                }
                Hook::Graph(hook) => self.graph(hook, &transfers.graph_copies),
                Hook::Holder(HolderHook::Makes) => self.make_holder(),
                Hook::Holder(HolderHook::Variable) => {
                    if let Some(windows) = process.windows_here() {
                        windows.holders().registered(self.word(0), self.word(1), self.word(5));
                    }
                }
                Hook::Holder(HolderHook::TextureReference) => {
                    if let (Some(windows), Some(name)) = (process.windows_here(), self.text(2)) {
                        windows.holders().texture_reference(self.word(1), &name);
                    }
                }
                Hook::Reset => {
                    if let Some(windows) = process.windows_here() {
                        let device = keep::reset_device(self.plan.api, self.word(0), runtime::device_now());
                        windows.holders().reset(device);
                        process.allocations().forget_window(device);
                    }
                }
                Hook::Holder(HolderHook::Ends)
                | Hook::LinkedFile
                | Hook::EndCapture
                | Hook::Variable
                | Hook::Unload
                | Hook::DestroyStream
                | Hook::Context
                | Hook::Shared(_)
                | Hook::Assembled(_)
                | Hook::Unmap
                | Hook::None => {}
            }
        }
    }

    /// A node that came out of a capture or a clone is about to be changed: which copies are its own is asked of the runtime.
    fn adopt(&self, exec: Option<u64>, node: u64) {
        let graphs = self.process.graphs();
        // Of a kernel's node only addresses are known, which stay known.
        if !self.plan.api.name.contains("Kernel")
            && graphs.lacks_node(exec, node)
            && let Some(addresses) = runtime::copy_node_addresses(node)
        {
            graphs.adopt(exec, node, addresses);
        }
    }

    /// The `hipGraphNodeParams` that the call's last argument points to: the type, and the union's first word.
    ///
    /// # Safety
    /// The call is one whose arguments are as it demands.
    unsafe fn node_params(&self) -> Option<(u32, u64)> {
        let param = self.plan.api.params.last().filter(|param| param.ctype.contains("hipGraphNodeParams"))?;
        let address = self.word(usize::from(param.word));
        // SAFETY: by the caller's contract the struct is there; the union lies 16 bytes in.
        (address != 0).then(|| unsafe {
            ((address as *const u32).read_unaligned(), (address as *const u64).add(2).read_unaligned())
        })
    }

    /// As many handles as the count says that argument word `count` points to, from where argument word `array` points to.
    ///
    /// # Safety
    /// The call succeeded.
    unsafe fn listed(&self, array: usize, count: usize) -> Vec<u64> {
        // SAFETY: by the caller's contract the count is there.
        let (array, count) = (self.word(array) as *const u64, unsafe { self.pointee(count) } as usize);
        if array.is_null() {
            return Vec::new();
        }
        // SAFETY: the call stored as many handles.
        (0..count).map(|index| unsafe { array.add(index).read_unaligned() }).collect()
    }

    unsafe fn graph(&self, hook: GraphHook, copies: &[GraphCopy]) {
        /// `hipGraphNodeTypeGraph` and `hipGraphNodeTypeEventRecord`.
        const CHILD: u32 = 4;
        const EVENT_RECORD: u32 = 7;
        /// `hipEventRecordExternal`.
        const EXTERNAL: u64 = 1;
        let graphs = self.process.graphs();
        // Nodes are looked for only where there is host memory.
        let nodes_of = |graph| if graphs.of_graph(graph).is_empty() { Vec::new() } else { runtime::nodes_of(graph) };
        // SAFETY: by the caller's contract.
        unsafe {
            let given = self.node_params();
            let child = given.filter(|(kind, _)| *kind == CHILD).map(|(_, child)| child);
            if let Some((EVENT_RECORD, event)) = given {
                self.process.pending().graph_event(event);
            }
            match hook {
                GraphHook::Create => graphs.create(self.pointee(0)),
                GraphHook::AddNode => match child {
                    Some(child) => graphs.add_child(self.word(1), self.pointee(0), child),
                    None => graphs.add(self.word(1), self.pointee(0), copies),
                },
                GraphHook::AddChild => graphs.add_child(self.word(1), self.pointee(0), self.word(4)),
                GraphHook::Clone => graphs.clone_graph(self.pointee(0), self.word(1)),
                GraphHook::FindChild => graphs.found_child(self.word(0), self.pointee(1)),
                GraphHook::FindInClone => graphs.found(self.word(2), &[self.pointee(0)]),
                GraphHook::ListNodes => graphs.found(self.word(0), &self.listed(1, 2)),
                GraphHook::ListNodesOf => {
                    if let Some(graph) = graphs.graph_of(self.word(0)) {
                        graphs.found(graph, &self.listed(1, 2));
                    }
                }
                GraphHook::ListEdges => {
                    for array in [1, 2] {
                        graphs.found(self.word(0), &self.listed(array, 3));
                    }
                }
                GraphHook::Instantiate => {
                    graphs.instantiate(self.pointee(0), self.word(1), nodes_of(self.word(1)));
                }
                GraphHook::Update => graphs.update(self.word(0), self.word(1), &nodes_of(self.word(1))),
                GraphHook::SetNode => match child {
                    Some(child) => graphs.set_node(self.word(0), &graphs.of_graph(child)),
                    None => graphs.set_node(self.word(0), copies),
                },
                GraphHook::SetExecNode => match child {
                    Some(child) => graphs.set_exec_node(self.word(0), self.word(1), &graphs.of_graph(child)),
                    None => graphs.set_exec_node(self.word(0), self.word(1), copies),
                },
                GraphHook::SetExecChild => {
                    graphs.set_exec_node(self.word(0), self.word(1), &graphs.of_graph(self.word(2)));
                }
                GraphHook::Switch => graphs.switch(self.word(0), self.word(1), self.word(2) as u32 != 0),
                GraphHook::RecordsEvent(word) => self.process.pending().graph_event(self.word(usize::from(word))),
                GraphHook::RecordEvent => {
                    if self.word(2) & EXTERNAL != 0 && self.is_captured() {
                        self.process.pending().graph_event(self.word(0));
                    }
                }
                GraphHook::Destroy | GraphHook::DestroyExec | GraphHook::DestroyNode | GraphHook::Launch => {}
            }
        }
    }

    /// Whether the call's stream is being captured, so that it did nothing by itself.
    pub(crate) fn is_captured(&self) -> bool {
        graph_copies::capturing() && runtime::capture_of(self.stream()).is_some()
    }

    /// The stream the call works on; the `_spt` spellings mean the thread's own stream by null.
    pub(crate) fn stream(&self) -> u64 {
        /// `hipStreamPerThread`.
        const PER_THREAD: u64 = 2;
        let stream = match (self.plan.stream_word, self.plan.stream_field) {
            (Some(word), _) => self.word(usize::from(word)),
            (None, Some((word, offset))) => match self.word(usize::from(word)) {
                0 => 0,
                // SAFETY: the call under way vouches for the struct, whose layout the catalogue has.
                address => unsafe { ((address + u64::from(offset)) as *const u64).read_unaligned() },
            },
            (None, None) => 0,
        };
        if stream == 0 && self.plan.api.name.ends_with("_spt") { PER_THREAD } else { stream }
    }

    /// What the call waited for, if it succeeded.
    pub(crate) fn waited(&self) -> Waited {
        let api = self.plan.api;
        match api.effect {
            // By null, and not by hipStreamLegacy, the null stream is waited for with the streams that synchronise with it.
            Effect::BlockStream => match self.stream() {
                0 => Waited::NullStream,
                stream => Waited::Stream(stream),
            },
            Effect::BlockCopy if self.plan.stream_word.is_some() || api.name.ends_with("_spt") => {
                Waited::Stream(self.stream())
            }
            Effect::BlockCopy => Waited::NullStream,
            // Freeing memory and the like wait for the device in some runtimes and not in others.
            // Of an execution context only the runtime knows which streams it has: all of its device's, or its own.
            Effect::BlockDevice if api.name.starts_with("hipExecutionCtx") => Waited::Something,
            Effect::BlockDevice if api.name.contains("Synchronize") => Waited::Device,
            Effect::BlockEvent | Effect::Query => match (self.plan.event_word, self.plan.stream_word) {
                (Some(event), _) => Waited::Event(self.word(usize::from(event))),
                (None, Some(_)) => Waited::Stream(self.stream()),
                (None, None) => Waited::Something,
            },
            _ => Waited::Something,
        }
    }

    /// Memory that the call gives back: afterwards another thread may be given the same address.
    fn forget_memory(&self) {
        let allocations = self.process.allocations();
        for param in self.plan.api.params {
            let address = self.word(usize::from(param.word));
            match param.role {
                Role::FreeDevice | Role::FreeRange => {
                    allocations.remove(address);
                    self.process.host_memory().inspect(|memory| memory.remove(address));
                }
                Role::FreeHost | Role::Unpin => {
                    self.process.host_memory().inspect(|memory| memory.remove(address));
                    let len_bytes = allocations.remove(address).unwrap_or(1);
                    let region = Region::range(address, len_bytes);
                    if let Some(writer) = self.process.blobs().filter(|_| recorder::runtime() == 0) {
                        self.process.pending().before_free(&region, writer);
                    }
                    self.process.pending().drop_overlapping(&region);
                }
                _ => {}
            }
        }
    }

    /// Memory that was made or mapped by a call in a window: a later window restores it.
    fn note_window(&self, address: u64) {
        if self.process.windows_here().is_some() && crate::window::is_open() {
            self.process.allocations().made_in_window(address, runtime::device_now());
        }
    }

    /// Arrays, mipmaps, modules and libraries that the call made.
    ///
    /// # Safety
    /// The call succeeded.
    unsafe fn make_holder(&self) {
        let Some(windows) = self.process.windows_here() else { return };
        for param in self.plan.api.params {
            if let Role::Create(kind) = param.role
                && let Some(kind) = HolderKind::of(kind)
            {
                // SAFETY: a call that succeeded stored the handle.
                let value = unsafe { self.pointee(usize::from(param.word)) };
                let device = runtime::device_now();
                windows.holders().made(kind, value, device);
            }
        }
    }

    /// An array or a mipmap that the call is about to end: afterwards another thread may be given the same handle.
    fn end_holder(&self) {
        let Some(windows) = self.process.windows_here() else { return };
        for param in self.plan.api.params {
            if let Role::Destroy(kind) = param.role
                && let Some(kind) = HolderKind::of(kind)
            {
                windows.holders().ended(kind, self.word(usize::from(param.word)));
            }
        }
    }

    /// Memory that the call gave out or pinned.
    unsafe fn remember_memory(&self) {
        let (api, allocations, host_memory) = (self.plan.api, self.process.allocations(), self.process.host_memory());
        let follow = |base, len_bytes, kind| {
            if let Some(memory) = host_memory {
                memory.insert(base, len_bytes, kind);
            }
        };
        let inputs = Inputs { api: self.plan.api, words: self.words, structure: None };
        for param in self.plan.api.params {
            let word = usize::from(param.word);
            // SAFETY: by the caller's contract results are where the arguments say.
            unsafe {
                match param.role {
                    Role::NewDevice(size) => {
                        allocations.insert(self.pointee(word), size.value(&inputs), Owner::Device);
                        self.note_window(self.pointee(word));
                    }
                    Role::NewManaged(size) => {
                        allocations.insert(self.pointee(word), size.value(&inputs), Owner::Device);
                        self.note_window(self.pointee(word));
                        follow(self.pointee(word), size.value(&inputs), Kind::Managed);
                    }
                    Role::NewRange(size) => allocations.reserve(self.pointee(word), size.value(&inputs)),
                    Role::NewHost(size) => {
                        allocations.insert(self.pointee(word), size.value(&inputs), Owner::Pinned);
                        follow(self.pointee(word), size.value(&inputs), Kind::Pinned);
                    }
                    Role::Pin(size) => {
                        allocations.insert(self.word(word), size.value(&inputs), Owner::Pinned);
                        follow(self.word(word), size.value(&inputs), Kind::Pinned);
                    }
                    Role::GetDevice(size) => {
                        let address = self.pointee(word);
                        if let Some(host) = api.params.iter().find(|param| matches!(param.role, Role::Host(..)))
                            && let Some(memory) = host_memory
                        {
                            memory.alias(address, self.word(usize::from(host.word)));
                        }
                        if let Some(module) = api.params.iter().find_map(|param| match param.role {
                            Role::Use(kind) => HolderKind::of(kind).map(|_| self.word(usize::from(param.word))),
                            _ => None,
                        }) && address != 0
                            && let Some(windows) = self.process.windows_here()
                        {
                            windows.holders().asked(module, address);
                            self.note_window(address);
                        }
                        // A device alias of pinned memory may have the address of that memory.
                        if size != Size::Unknown && allocations.find(address).is_none() {
                            allocations.insert(address, size.value(&inputs), Owner::Device);
                        }
                    }
                    Role::NewPitched(size) if self.word(word) != 0 => {
                        let pitched = std::slice::from_raw_parts(self.word(word) as *const u8, 32);
                        let len_bytes = size.value(&Inputs { structure: Some(pitched), ..inputs });
                        allocations.insert(self.pointee(word), len_bytes, Owner::Device);
                    }
                    Role::Struct(layout, _) if self.word(word) != 0 => {
                        let layout = &STRUCTS[usize::from(layout)];
                        let bytes =
                            std::slice::from_raw_parts(self.word(word) as *const u8, layout.size_bytes as usize);
                        for field in layout.fields {
                            let Role::NewDevice(size) = field.role else { continue };
                            let at = field.offset_bytes as usize;
                            let holds = field.when.as_ref().is_none_or(|when| when.holds(bytes));
                            if let Some(raw) = bytes.get(at..).and_then(|rest| rest.first_chunk()).filter(|_| holds) {
                                let len_bytes = size.value(&Inputs { structure: Some(bytes), ..inputs });
                                allocations.insert(u64::from_le_bytes(*raw), len_bytes, Owner::Device);
                            }
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}

/// Whether a call adds or sets copy nodes, so that the host sides of its copies are a graph's and no blobs of its own.
pub(crate) fn describes_nodes(hook: Hook) -> bool {
    matches!(hook, Hook::Graph(GraphHook::AddNode | GraphHook::SetNode | GraphHook::SetExecNode))
}

/// How a copy of the kind in `kind` uses memory on this side, where the kind alone says that it is the host's.
pub(crate) fn host_by_kind(kind: u64, access: Access) -> Option<bool> {
    /// `hipMemcpyKind` values.
    const HOST_TO_HOST: u64 = 0;
    const HOST_TO_DEVICE: u64 = 1;
    const DEVICE_TO_HOST: u64 = 2;
    const DEVICE_TO_DEVICE: u64 = 3;
    const DEVICE_TO_DEVICE_NO_CU: u64 = 1024;
    match kind {
        HOST_TO_HOST => Some(true),
        HOST_TO_DEVICE => Some(access.reads()),
        DEVICE_TO_HOST => Some(access.writes()),
        DEVICE_TO_DEVICE | DEVICE_TO_DEVICE_NO_CU => Some(false),
        _ => None,
    }
}
