//! Calls that need more than the roles of their parameters say: registration of code, graphs' host memory, per-thread
//! state where captured threads share OS threads.

use hrr_format::catalogue::{Api, Effect, HandleKind, Role};
use hrr_format::code_object::image_len;
use hrr_format::record::{Presence, SectionTag};

use super::draft::{Draft, Issue};
use super::{Call, Lowering};
use crate::instruction::{Chunk, Wait, flag};
use crate::plan::Planner;
use crate::plan::error::Refusal;
use crate::plan::objects::{Handle, Symbol};
use crate::plan::order::dependency::Use;
use crate::plan::order::values::Values;
use crate::thunk::THUNKS;

/// `__CudaFatBinaryWrapper` of HIP: magic `HIPF`, version 1, the bundle, nothing.
const FAT_BINARY_MAGIC: u64 = 0x4849_5046;
/// `hipStreamCaptureModeRelaxed`.
const CAPTURE_RELAXED: u64 = 2;

/// Calls told apart by more than their roles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Special {
    /// Nothing special.
    #[default]
    None,
    /// Makes a handle of memory or of an event for other processes.
    ExportIpc,
    /// Opens such a handle.
    ImportIpc,
    /// Makes an operating-system handle of memory or of a pool.
    ExportShared,
    /// Takes one, and makes memory or a pool of it.
    ImportShared,
    /// Makes a handle of a pool's memory.
    ExportPointer,
    /// Opens one.
    ImportPointer,
    /// Maps external memory.
    MapExternal,
    /// Maps memory into a reserved range.
    MapMemory,
    /// Takes a mapping away, or says who may use it.
    ChangeMapping,
    /// Makes a device current.
    SetDevice,
    /// Makes or destroys a context.
    MakeContext,
    /// Makes a context current.
    UseContext,
    /// Takes the current context away.
    PopContext,
    /// `hipGetLastError`.
    GetLastError,
    /// `hipPeekAtLastError`.
    PeekLastError,
    /// `hipExtGetLastError`: what the OS thread's call before this one returned, whatever it was.
    LastCommandError,
    /// Names a kernel by a host symbol.
    RegisterFunction,
    /// Names a device variable by a host symbol.
    RegisterVar,
    /// Begins stream capture.
    BeginCapture,
    /// Ends stream capture.
    EndCapture,
    /// Changes the thread's capture mode.
    ExchangeCaptureMode,
    /// Launches a graph.
    GraphLaunch,
    /// Has a node of a graph record an event.
    EventNode,
    /// Adds or changes a node of whichever kind its parameters say.
    AnyNode,
    /// Records an event.
    EventRecord,
    /// Has a stream wait for an event.
    WaitEvent,
    /// Begins a launch that is put together call by call.
    ConfigureCall,
    /// Adds an argument to it.
    SetupArgument,
    /// Makes it.
    LaunchByPtr,
    /// Loads a module from a file.
    ModuleLoad,
    /// Loads a module from memory, with options.
    ModuleLoadDataEx,
    /// Loads a library from memory, with options.
    LibraryLoadData,
    /// Loads a library from a file, with options.
    LibraryLoadFromFile,
    /// Begins linking, with options.
    LinkCreate,
    /// Adds code to be linked, with options.
    LinkAddData,
    /// Adds a file's code to be linked, with options.
    LinkAddFile,
}

impl Special {
    /// What is special about an entry point.
    pub(crate) fn of(api: &Api) -> Self {
        match api.name {
            "hipIpcGetMemHandle" | "hipIpcGetEventHandle" => Special::ExportIpc,
            "hipIpcOpenMemHandle" | "hipIpcOpenEventHandle" => Special::ImportIpc,
            "hipMemExportToShareableHandle" | "hipMemPoolExportToShareableHandle" => Special::ExportShared,
            "hipMemImportFromShareableHandle" | "hipMemPoolImportFromShareableHandle" | "hipImportExternalMemory" => {
                Special::ImportShared
            }
            "hipMemPoolExportPointer" => Special::ExportPointer,
            "hipMemPoolImportPointer" => Special::ImportPointer,
            "hipExternalMemoryGetMappedBuffer" => Special::MapExternal,
            "hipMemMap" => Special::MapMemory,
            "hipMemUnmap" | "hipMemSetAccess" => Special::ChangeMapping,
            "hipSetDevice" => Special::SetDevice,
            "hipCtxCreate" | "hipCtxDestroy" => Special::MakeContext,
            "hipCtxSetCurrent" | "hipCtxPushCurrent" => Special::UseContext,
            "hipCtxPopCurrent" => Special::PopContext,
            "hipGetLastError" => Special::GetLastError,
            "hipExtGetLastError" => Special::LastCommandError,
            "hipPeekAtLastError" => Special::PeekLastError,
            "__hipRegisterFunction" => Special::RegisterFunction,
            "__hipRegisterVar" | "__hipRegisterSurface" | "__hipRegisterTexture" => Special::RegisterVar,
            "hipStreamBeginCapture" | "hipStreamBeginCapture_spt" | "hipStreamBeginCaptureToGraph" => {
                Special::BeginCapture
            }
            "hipStreamEndCapture" | "hipStreamEndCapture_spt" => Special::EndCapture,
            "hipThreadExchangeStreamCaptureMode" => Special::ExchangeCaptureMode,
            "hipGraphLaunch" | "hipGraphLaunch_spt" => Special::GraphLaunch,
            "hipGraphAddEventRecordNode"
            | "hipGraphEventRecordNodeSetEvent"
            | "hipGraphExecEventRecordNodeSetEvent" => Special::EventNode,
            "hipGraphAddNode" | "hipGraphNodeSetParams" | "hipGraphExecNodeSetParams" => Special::AnyNode,
            "hipEventRecord" | "hipEventRecord_spt" | "hipEventRecordWithFlags" => Special::EventRecord,
            "hipStreamWaitEvent" | "hipStreamWaitEvent_spt" => Special::WaitEvent,
            "hipConfigureCall" => Special::ConfigureCall,
            "hipSetupArgument" => Special::SetupArgument,
            "hipLaunchByPtr" => Special::LaunchByPtr,
            "hipModuleLoad" => Special::ModuleLoad,
            "hipModuleLoadDataEx" => Special::ModuleLoadDataEx,
            "hipLibraryLoadData" => Special::LibraryLoadData,
            "hipLibraryLoadFromFile" => Special::LibraryLoadFromFile,
            "hipLinkCreate" => Special::LinkCreate,
            "hipLinkAddData" => Special::LinkAddData,
            "hipLinkAddFile" => Special::LinkAddFile,
            _ => Special::None,
        }
    }
}

/// What the roles of an entry point's parameters say, looked up for every call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traits {
    /// It launches a kernel.
    pub(crate) launches_kernel: bool,
    /// It takes a function of the program to call back.
    pub(crate) takes_callback: bool,
    /// It is given or returns descriptions of shares of a device.
    pub(crate) device_resources: bool,
    /// What it says of values that work waits for.
    pub(crate) values: Values,
    /// It has its work record events, or wait for them, and is no call about events alone.
    pub(crate) gives_events: bool,
    /// It lists functions or kernels, by the parameter with this number.
    pub(crate) lists: Option<(u8, HandleKind)>,
    /// By which word it names a function, kernel or host symbol, if any; the last: by which kind of handle.
    pub(crate) names_function: Option<(u8, Option<HandleKind>)>,
}

impl Traits {
    /// The traits of an entry point.
    pub(crate) fn of(api: &Api) -> Self {
        let takes_callback = api.param_with(|role| matches!(role, Role::Callback)).is_some();
        let device_resources = super::device_resource::Parameters::of(api).any();
        let gives_events = api.effect == Effect::Enqueue
            && api.param_with(|role| *role == Role::Use(HandleKind::Event)).is_some()
            && Special::of(api) == Special::None;
        let launches_kernel = crate::plan::annotate::launches_kernel(api);
        let lists = super::enumeration::listed(api);
        let names_function = api.params.iter().find_map(|param| match param.role {
            Role::Use(kind @ (HandleKind::Function | HandleKind::Kernel)) => Some((param.word, Some(kind))),
            Role::KernelSymbol => Some((param.word, None)),
            _ => None,
        });
        let values = Values::of(api);
        Traits { launches_kernel, takes_callback, device_resources, values, gives_events, lists, names_function }
    }
}

/// Whether a call changes the state of the objects of this kind that it uses, as far as the order of calls matters.
pub(crate) fn changes_state(api: &Api, kind: HandleKind) -> bool {
    match kind {
        HandleKind::Event => api.name.starts_with("hipEventRecord"),
        HandleKind::Graph => api.name.contains("Add") || api.name.contains("Remove") || api.name.contains("Set"),
        HandleKind::Exec => true,
        HandleKind::Node => api.name.contains("Set"),
        _ => false,
    }
}

/// Whether a call begins, changes or ends the capture of a stream.
pub(crate) fn changes_capture(api: &Api) -> bool {
    ["hipStreamBeginCapture", "hipStreamEndCapture", "hipStreamUpdateCapture"]
        .iter()
        .any(|prefix| api.name.starts_with(prefix))
}

extern "C" fn host_function_stub(_: *mut std::ffi::c_void) {}

extern "C" fn stream_callback_stub(_: *mut std::ffi::c_void, _: i32, _: *mut std::ffi::c_void) {}

/// What stands for a host callback: a function of the right type that does nothing.
pub(crate) fn callback_address(api: &Api) -> u64 {
    if api.params.iter().any(|param| param.ctype == "hipStreamCallback_t") {
        stream_callback_stub as *const () as u64
    } else {
        host_function_stub as *const () as u64
    }
}

impl<'a> Planner<'a> {
    /// The address replay registers for a host symbol of the program.
    pub(crate) fn symbol_address(
        &mut self,
        call: &Call<'_>,
        lowering: &mut Lowering,
        value: u64,
    ) -> Result<u64, Refusal> {
        match self.specials[usize::from(call.api.id)] {
            Special::RegisterFunction => {
                let address = self.host.lasting_place(1)? as u64;
                self.define_symbol(call, lowering, value, address, None);
                Ok(address)
            }
            Special::RegisterVar => {
                // The runtime may keep the host variable's address and size; 8 bytes at least, as much as the variable has.
                let size_param = call.api.params.iter().position(|param| param.name == "size");
                let size = size_param.map_or(8, |param| call.record.word(usize::from(call.api.params[param].word)));
                let address = self.host.lasting_place(size.max(8))? as u64;
                self.define_symbol(call, lowering, value, address, size_param.map(|_| size));
                Ok(address)
            }
            _ => match self
                .objects
                .symbols
                .get(&self.twins.name_on(call.device, value))
                .or(self.objects.symbols.get(&value))
            {
                Some(symbol) => {
                    lowering.facts.uses.push((symbol.object, Use::Reads));
                    lowering.facts.uses.push((symbol.parent, Use::Reads));
                    Ok(symbol.address)
                }
                None if call.succeeded() => Err(Refusal::Symbol { address: value }),
                None => Ok(crate::memory::stage::poison_address()),
            },
        }
    }

    /// A host symbol stands for something in the fat binary it is registered for.
    fn define_symbol(
        &mut self,
        call: &Call<'_>,
        lowering: &mut Lowering,
        value: u64,
        address: u64,
        size_bytes: Option<u64>,
    ) {
        let object = self.objects.new_object();
        let parent = self.objects.handle(HandleKind::FatBinary, call.record.word(0)).map_or(0, |handle| handle.object);
        lowering.facts.creates.push(object);
        self.name_function(call, object);
        self.objects.symbols.insert(value, Symbol { address, size_bytes, object, parent });
    }

    /// The address of a code object's recorded image, wrapped as `__hipRegisterFatBinary` takes it where that is the call.
    pub(crate) fn image_address(&mut self, call: &Call<'a>, number: u8) -> Result<u64, Refusal> {
        let what = "the code object";
        let Some(section) = call.record.section(SectionTag::Code, number) else {
            return Err(if call.succeeded() { Refusal::Lacks { what } } else { Refusal::NotReissued });
        };
        if section.presence == Presence::Withheld {
            return Err(Refusal::Withheld { what });
        }
        // What the program passed was no code at all, and of no length that could be told.
        if section.presence == Presence::Absent && !call.succeeded() {
            return Err(Refusal::NotReissued);
        }
        let reference = section.blob().ok_or(Refusal::Lacks { what })?;
        let image =
            self.archive.code_objects().get(reference.number).map_err(crate::memory::stage::StageError::from)?;
        let image = image.ok_or(Refusal::Lacks { what })?;
        // Code objects are page-aligned in program images, and runtimes may rely on it.
        const PAGE_BYTES: usize = 4096;
        let place = match self.images.get(&reference.number) {
            Some(&place) => place,
            None => {
                // Runtimes take an image without its length, and go by its headers.
                let len_bytes = image_len(&image).unwrap_or(image.len());
                if len_bytes > image.len() {
                    let param = call.api.params[usize::from(number)].name;
                    return Err(Refusal::Section { param, found_bytes: image.len(), expected_bytes: len_bytes });
                }
                self.kernel_rooms.learn(&image);
                let room = self.host.lasting_place((image.len() + PAGE_BYTES) as u64)? as usize;
                let place = room.next_multiple_of(PAGE_BYTES);
                // SAFETY: the place is as long as the image behind its alignment, and fresh.
                unsafe { std::ptr::copy_nonoverlapping(image.as_ptr(), place as *mut u8, image.len()) };
                self.images.insert(reference.number, place);
                place
            }
        };
        if call.api.name != "__hipRegisterFatBinary" {
            return Ok(place as u64);
        }
        let wrapper = self.host.lasting_place(24)?.cast::<u64>();
        for (index, word) in [FAT_BINARY_MAGIC | 1 << 32, place as u64, 0].into_iter().enumerate() {
            // SAFETY: the place is 24 bytes long and 256-byte aligned.
            unsafe { wrapper.add(index).write(word) };
        }
        Ok(wrapper as u64)
    }

    /// What stands for `hipStreamPerThread` of a captured thread. Where captured threads share OS threads that is a stream of
    /// its own with the same blocking rule, made on first use.
    pub(crate) fn per_thread_stream(
        &mut self,
        call: &Call<'_>,
        chunk: &mut Chunk,
        waits: &mut Vec<Wait>,
    ) -> Result<Handle, Refusal> {
        let lane = call.lane as usize;
        if let Some(handle) = self.lanes[lane].per_thread.get(&call.device) {
            return Ok(*handle);
        }
        let handle = self.objects.new_handle(Some((call.device, crate::plan::order::dependency::StreamRule::Blocking)));
        self.lanes[lane].per_thread.insert(call.device, handle);
        if self.multiplexed {
            let api = Api::by_name("hipStreamCreateWithFlags").ok_or(Refusal::UnknownApi)?;
            let function = self.entry_point(api)?;
            let cell = chunk.memory.allocate(1);
            let mut draft = Draft::new(chunk, 2, [cell as u64, 0]);
            draft.output(cell, handle.slot);
            draft.flags |= flag::AUXILIARY;
            let issue = Issue {
                thunk: THUNKS[usize::from(api.id)],
                function,
                api,
                progress: 0,
                event: call.event,
                lane: call.lane,
                expected: 0,
                device: call.device,
                flags: 0,
            };
            draft.finish(chunk, issue, waits);
            waits.clear();
        }
        Ok(handle)
    }

    /// Changes to the laid-out call that its kind asks for. Returns the entry point to call in its place, if another.
    pub(crate) fn apply_special(
        &mut self,
        call: &Call<'a>,
        chunk: &mut Chunk,
        draft: &mut Draft,
    ) -> Result<Option<&'static Api>, Refusal> {
        match self.specials[usize::from(call.api.id)] {
            Special::SetDevice => draft.flags |= flag::SETS_DEVICE,
            special @ (Special::MakeContext | Special::UseContext | Special::PopContext) => {
                draft.flags |= flag::SWITCHES_CONTEXT;
                if special == Special::PopContext && !self.has_whole_stacks() {
                    // What made it current may have been before the window.
                    draft.flags |= flag::ANY_OUTCOME;
                }
                return self.apply_context(call, special);
            }
            Special::GetLastError if self.multiplexed => draft.flags |= flag::LAST_ERROR,
            Special::PeekLastError if self.multiplexed => draft.flags |= flag::PEEK_ERROR,
            // The OS thread's call before this one may be another captured thread's.
            Special::LastCommandError if self.multiplexed => draft.flags |= flag::ANY_OUTCOME,
            // The thread that ends a capture must be the one that began it unless the capture is relaxed, and a captured
            // thread may change OS threads around a blocking call here.
            Special::BeginCapture if self.multiplexed => {
                if let Some(mode) = call.api.params.iter().find(|param| param.name == "mode") {
                    draft.set(mode.word, CAPTURE_RELAXED);
                }
            }
            Special::ModuleLoad => {
                let address = self.image_address(call, 1)?;
                draft.set(1, address);
                return Ok(Api::by_name("hipModuleLoadData"));
            }
            Special::ModuleLoadDataEx => return Ok(Api::by_name("hipModuleLoadData")),
            Special::LibraryLoadData => (2..8).for_each(|word| draft.set(word, 0)),
            Special::LibraryLoadFromFile => {
                let address = self.image_address(call, 1)?;
                draft.set(1, address);
                (2..8).for_each(|word| draft.set(word, 0));
                return Ok(Api::by_name("hipLibraryLoadData"));
            }
            Special::LinkCreate => (0..3).for_each(|word| draft.set(word, 0)),
            Special::LinkAddFile => {
                // State, type, path, options; as data: state, type, address, length, name, options.
                let path = draft.word(2);
                let address = self.image_address(call, 2)?;
                let len_bytes = call.record.section(SectionTag::Code, 2).and_then(|code| code.blob());
                let len_bytes = len_bytes.map_or(0, |code| code.size_bytes);
                let words = [draft.word(0), call.record.word(1), address, len_bytes, path, 0, 0, 0];
                draft.replace_words(chunk, &words, &[(0, 0)], call.record.word_count());
                return Ok(Api::by_name("hipLinkAddData"));
            }
            Special::LinkAddData => {
                let address = self.image_address(call, 2)?;
                draft.set(2, address);
                (5..8).for_each(|word| draft.set(word, 0));
            }
            _ => {}
        }
        Ok(None)
    }
}
