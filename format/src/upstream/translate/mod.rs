//! From an upstream archive to a native one.
//!
//! Every record becomes the record of a call, in the order of the sequence; calls are added for what upstream leaves implicit.
//! What cannot be replayed is kept and says why. See `format/upstream/README.md`.
//!
//! * [`fields`] for words and inline memory of a call
//! * [`copies`] for contents of host memory
//! * [`kernels`] for the kernels of launches, [`launch_shape`] for the calls that make them
//! * [`state`] for what is live
//! * [`output`] for the archive that comes out

mod copies;
mod fields;
mod kernels;
mod launch_shape;
mod output;
mod state;

use std::io;
use std::path::Path;

pub(super) use fields::element_bytes;
pub(super) use output::unsigned;
pub(super) use state::Live;

use copies::{Copies, Found};
use kernels::{Kernels, Target};
use launch_shape::shaped;
use output::{Call, Loose, Output, SOME_POINTER};
use state::{STREAM_PER_THREAD, State};

use super::archive::UpstreamArchive;
use super::events::Event;
use super::launch::{Kernel, Launch};
use super::layout::{Extra, Kind, Layout};
use crate::catalogue::{Api, Effect, Role};
use crate::manifest::{Device, Imported};
use crate::record::{Presence, Record, SectionTag, flag};

/// Calls that only read what no other thread can change, or change what no other thread can read.
const LOOSE: [&str; 22] = [
    "hipSetDevice",
    "hipGetDevice",
    "hipGetDeviceCount",
    "hipGetDevicePropertiesR0600",
    "hipGetDevicePropertiesR0000",
    "hipGetLastError",
    "hipExtGetLastError",
    "hipPeekAtLastError",
    "hipGetErrorName",
    "hipGetErrorString",
    "hipDeviceGet",
    "hipDeviceGetAttribute",
    "hipDeviceGetName",
    "hipDeviceGetPCIBusId",
    "hipDeviceGetUuid",
    "hipDeviceTotalMem",
    "hipDeviceComputeCapability",
    "hipDeviceCanAccessPeer",
    "hipDriverGetVersion",
    "hipRuntimeGetVersion",
    "__hipPushCallConfiguration",
    "__hipPopCallConfiguration",
];

/// Whether a call of an entry point may be under way while other threads make theirs.
pub(super) fn is_loose(name: &str) -> bool {
    LOOSE.contains(&name)
}

/// Writes the native form of an archive to a new process directory.
///
/// # Errors
/// The system's reason.
pub fn translate(archive: &UpstreamArchive, path: &Path) -> io::Result<()> {
    Translator::new(archive, path)?.run()?;
    crate::regions::copy(archive.path(), path)
}

struct Translator<'a> {
    archive: &'a UpstreamArchive,
    output: Output,
    state: State,
    kernels: Kernels,
    imported: Imported,
}

impl<'a> Translator<'a> {
    fn new(archive: &'a UpstreamArchive, path: &Path) -> io::Result<Self> {
        let told = archive.manifest();
        let pid = pid_of(archive);
        let mut output = Output::create(path, pid)?;
        let manifest = output.writer().manifest_mut();
        manifest.parent_pid = told.parent_pid;
        manifest.capture_version = format!("in-tree HRR, format {}", archive.header().version);
        if let Some(metadata) = &told.metadata {
            manifest.runtime.version = super::manifest::runtime_version(&metadata.runtime.hip_runtime_version);
            manifest.devices = metadata
                .devices
                .iter()
                .map(|device| Device {
                    ordinal: device.ordinal,
                    name: device.properties.name.clone(),
                    arch: device.properties.gcn_arch_name.clone(),
                    total_global_mem_bytes: device.properties.total_global_mem,
                    pci_bus_id: device.properties.pci.clone(),
                })
                .collect();
        }
        let mut imported = Imported {
            format: "in-tree".to_owned(),
            version: u32::from(archive.header().version),
            flags: u32::from(archive.header().flags),
            runtime_entries: u32::from(archive.ids().runtime_entries),
            id_evidence: archive.ids().evidence.clone(),
            complete: archive.complete(),
            events: archive.len() as u64,
            ..Imported::default()
        };
        imported.warnings.extend(archive.warnings().iter().cloned());
        for (api, reasons) in &told.unreplayable_apis {
            imported.warnings.push(format!("its manifest lists {api} as unreplayable: {}", reasons.join("; ")));
        }
        if let Some(state) = archive.writer_state() {
            imported.warnings.push(format!(
                "a writer left its state behind: {} records, {} contents, next sequence number {}, {} bytes of events; it is still \
                 running or was killed",
                state.event_count, state.blob_count, state.next_seq, state.events_file_size
            ));
        }
        Ok(Translator { archive, output, state: State::default(), kernels: Kernels::default(), imported })
    }

    fn run(mut self) -> io::Result<()> {
        let archive = self.archive;
        for event in archive.events() {
            if let Some(layout) = archive.layout(&event) {
                self.kernels.survey(&event, layout);
            }
            self.output.thread(event.tid);
        }
        self.kernels.find_nameless(archive);
        let mut first = true;
        for event in archive.events() {
            if std::mem::take(&mut first) {
                self.load_what_nothing_loads(&event)?;
            }
            self.event(&event)?;
        }
        self.see_the_rest()?;
        if let Some((first_ns, last_ns)) = self.output.span_ns()
            && !archive.regions().may_be_of(first_ns, last_ns)
        {
            let why = "its region files are of another time than its calls";
            self.imported.warnings.push(why.to_owned());
        }
        let complete = archive.complete();
        if !complete {
            let why = if archive.ending().trailer_events.is_some() {
                "its trailer counts another number of records than it has"
            } else {
                "it has no trailer: the process was killed, or is still running"
            };
            self.imported.warnings.push(format!("the recording is incomplete: {why}"));
        }
        self.output.writer().manifest_mut().imported = Some(self.imported);
        self.output.finish(complete)
    }

    fn load_what_nothing_loads(&mut self, first: &Event<'_>) -> io::Result<()> {
        let wanted = self.kernels.to_be_loaded(self.archive);
        let thread = self.output.thread(first.tid);
        let mut current = 0;
        let set_device = |device: i32| {
            let mut call =
                Call::added("hipSetDevice", "code objects are loaded for the devices that launch their kernels")?;
            call.set(0, device as i64 as u64);
            Some(call)
        };
        for (device, code) in wanted {
            let calls = self.kernels.load(self.archive, &mut self.output, device, code)?;
            if calls.is_empty() {
                continue;
            }
            if device != current
                && let Some(call) = set_device(device)
            {
                self.emit(thread, first.time_ns, call);
                current = device;
            }
            for call in calls {
                self.emit(thread, first.time_ns, call);
            }
        }
        if current != 0
            && let Some(call) = set_device(0)
        {
            self.emit(thread, first.time_ns, call);
        }
        Ok(())
    }

    /// Writes a call and takes it in.
    fn emit(&mut self, thread: usize, time_ns: u64, call: Call) {
        if call.flags & flag::ADDED != 0 {
            *self.imported.added.entry(call.api.name.to_owned()).or_default() += 1;
        } else if call.flags & flag::REFUSED != 0 {
            *self.imported.refused.entry(format!("{}: {}", call.api.name, call.note_text())).or_default() += 1;
        } else if call.flags & flag::LEFT_OUT != 0 {
            *self.imported.left_out.entry(format!("{}: {}", call.api.name, call.note_text())).or_default() += 1;
        }
        let seen = self.state.apply(&call, thread);
        let loose = if is_loose(call.api.name) && seen.is_empty() { Loose::Yes } else { Loose::No };
        self.output.emit(thread, time_ns, call, loose);
        for blob in seen {
            self.output.observed(thread, blob);
        }
    }

    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        let thread = self.output.thread(event.tid);
        let Some(layout) = self.archive.layout(event) else {
            *self.imported.unknown_events.entry(u32::from(event.id)).or_default() += 1;
            self.output.emit_unknown(thread, event.time_ns, event.id);
            return Ok(());
        };
        let known = layout.size_bytes as usize;
        if layout.kind != Kind::Launch && event.bytes.len() < known {
            let mut call = Call::new(layout.api);
            call.refuse(&format!("its record is {} bytes long where {known} are known", event.bytes.len()));
            self.emit(thread, event.time_ns, call);
            return Ok(());
        }
        if layout.kind == Kind::Fixed && event.bytes.len() > known {
            let mut call = fields::call(event, layout);
            call.refuse(&format!("its record is {} bytes long where {known} are known", event.bytes.len()));
            self.emit(thread, event.time_ns, call);
            return Ok(());
        }
        match layout.kind {
            Kind::Launch => self.launch(event, layout, thread),
            Kind::Node => self.node(event, layout, thread),
            Kind::Fixed => self.fixed(event, layout, thread),
        }
    }

    fn fixed(&mut self, event: &Event<'_>, layout: &'static Layout, thread: usize) -> io::Result<()> {
        let mut call = fields::call(event, layout);
        self.correct(&mut call);
        let device = self.state.device(thread);
        let loads = call.api.name.starts_with("hipModuleLoad")
            || call.api.name == "__hipRegisterFatBinary"
            || call.api.name == "hipLibraryLoadData";
        let after = if loads {
            self.kernels.loads(self.archive, &mut self.output, event, layout, &mut call, device)?
        } else {
            Vec::new()
        };
        fields::judge(&mut call);
        if self.state.uses_absent(&call) {
            let why = "it uses what a call made that is not replayed";
            let ends = call.api.params.iter().any(|param| matches!(param.role, Role::Destroy(_)));
            if ends || call.api.effect == Effect::Host { call.leave_out(why) } else { call.refuse(why) }
        }
        self.kernels.unloads(&call);
        let stream = self.state.stream_of(&call, thread);
        let mut copies = Copies { archive: self.archive, output: &mut self.output, state: &mut self.state };
        let parts = copies.struct_copies(event, layout, &mut call, stream)?;
        let of_array = copies.array_copy(event, layout, &mut call, stream)?;
        let result = copies.contents(event, layout, &mut call, stream)?.or(of_array);
        if let Some(read) = copies.node_reads(event, layout, &call)? {
            if let Some(graph) = call.param("graph").or_else(|| call.param("hGraph")) {
                self.state.graph_read(call.word(graph), read);
            } else if let Some(exec) = call.param("hGraphExec") {
                self.state.exec_read(call.word(exec), read);
            } else if let Some(node) = call.param("node").or_else(|| call.param("hNode")) {
                self.state.node_read(call.word(node), read);
            }
        }
        if matches!(call.api.name, "hipGraphLaunch" | "hipGraphLaunch_spt") {
            self.fill_graph(&mut call);
        }
        let blocks = call.api.blocks();
        let (time_ns, name) = (event.time_ns, call.api.name);
        let registered = (name == "hipHostRegister" && call.ret == 0).then(|| (call.word(0), call.named("sizeBytes")));
        let issued = call.is_issued();
        let mut variable = None;
        if name == "__hipRegisterVar" && issued {
            variable = fields::extra(event, layout, Extra::DeviceAddress).filter(|&address| address != 0);
        }
        let symbol = call.words.get(1).copied().unwrap_or(0);
        let size = call.named("size");
        self.emit(thread, time_ns, call);
        if let Some(result) = result {
            self.result(thread, stream, result, blocks);
        }
        for (part, result) in parts {
            let blocks = part.api.blocks();
            self.emit(thread, time_ns, part);
            if let Some(result) = result {
                self.result(thread, stream, result, blocks);
            }
        }
        for call in after {
            self.emit(thread, time_ns, call);
        }
        if let Some((address, len_bytes)) = registered.filter(|_| issued) {
            self.fill_registered(event, layout, thread, address, len_bytes)?;
        }
        if let Some(address) = variable {
            self.variable(thread, time_ns, address, symbol, size);
        }
        Ok(())
    }

    /// What upstream's fields say in another way than the catalogue's parameters.
    fn correct(&self, call: &mut Call) {
        match call.api.name {
            // The pitch is not recorded; runtimes align it to 256 bytes.
            "hipMallocPitch" | "hipMemAllocPitch" => {
                if let (Some(pitch), 0) = (call.param("pitch"), call.ret)
                    && let Some(bytes) = pitch_bytes(call)
                {
                    call.section(SectionTag::Out, pitch, Presence::Present, bytes.to_le_bytes().to_vec());
                }
            }
            name if name.starts_with("__hipRegister") && name != "__hipRegisterFatBinary" => {
                let told = call.word(0);
                call.set(0, self.kernels.fat_binary(told));
            }
            "__hipUnregisterFatBinary" => {
                let told = call.word(0);
                call.set(0, self.kernels.fat_binary(told));
            }
            _ => {}
        }
    }

    /// A result that a copy leaves in host memory.
    fn result(&mut self, thread: usize, stream: state::StreamKey, blob: u64, blocks: bool) {
        if blocks {
            self.output.observed(thread, blob);
        } else {
            self.state.unseen(stream, blob);
        }
    }

    /// Gives a graph's launch the host memory that the graph reads.
    fn fill_graph(&mut self, call: &mut Call) {
        let reads = self.state.reads_of(call.named("graphExec")).to_vec();
        for read in reads {
            match read.contents {
                Some(contents) => call.fill_before(read.address, contents),
                None => {
                    call.refuse(&format!(
                        "the graph reads {} bytes of host memory at {:#x}, whose contents upstream does not record",
                        read.len_bytes, read.address
                    ));
                }
            }
        }
    }

    /// Registered host memory is filled with what it held: before a call that does nothing.
    fn fill_registered(
        &mut self,
        event: &Event<'_>,
        layout: &Layout,
        thread: usize,
        address: u64,
        len_bytes: u64,
    ) -> io::Result<()> {
        let hash = fields::hash(event, layout, Extra::BlobLo, Extra::BlobHi).unwrap_or_default();
        let mut copies = Copies { archive: self.archive, output: &mut self.output, state: &mut self.state };
        match copies.linear(hash, len_bytes)? {
            Found::Blob(contents) => {
                if let Some(mut call) =
                    Call::added("hipRuntimeGetVersion", "registered host memory is filled before it")
                {
                    call.words[0] = SOME_POINTER;
                    call.fill_before(address, contents);
                    self.emit(thread, event.time_ns, call);
                }
            }
            Found::Lacking(reason) => {
                self.imported
                    .warnings
                    .push(format!("host memory registered at {address:#x} is zeros at replay: {reason}"));
            }
        }
        Ok(())
    }

    /// A device variable has an address that kernels may be passed.
    fn variable(&mut self, thread: usize, time_ns: u64, address: u64, symbol: u64, size_bytes: u64) {
        if let Some(mut call) = Call::added("hipGetSymbolAddress", "its address may be passed to kernels") {
            call.words = vec![SOME_POINTER, symbol];
            call.section(SectionTag::Out, 0, Presence::Present, address.to_le_bytes().to_vec());
            self.emit(thread, time_ns, call);
            self.state.allocate(address, size_bytes, state::Space::Device);
        }
    }

    fn launch(&mut self, event: &Event<'_>, layout: &'static Layout, thread: usize) -> io::Result<()> {
        let launch = match kernels::launch_of(event) {
            Ok(launch) => launch,
            Err(reason) => {
                let mut call = Call::new(layout.api);
                call.refuse(&format!("its record is malformed: {reason}"));
                self.emit(thread, event.time_ns, call);
                return Ok(());
            }
        };
        let name = layout.api.name;
        let stream = if name.ends_with("_spt") && launch.stream == 0 { STREAM_PER_THREAD } else { launch.stream };
        let key = self.state.key(stream, thread, false);
        let (call, refusal) = match self.kernels.resolve(&launch.kernel, self.state.device(thread)) {
            Err(reason) => (None, reason),
            Ok((code, target)) => match shaped(name, &launch, target, stream) {
                Err(reason) => (None, reason),
                Ok((mut call, param)) => {
                    let (archive, output) = (self.archive, &mut self.output);
                    self.kernels.pass_arguments(
                        archive,
                        output,
                        &self.state,
                        &mut call,
                        param,
                        &launch.kernel,
                        code,
                    )?;
                    (Some(call), String::new())
                }
            },
        };
        let Some(mut call) = call else {
            let mut call = Call::new(layout.api);
            call.refuse(&refusal);
            self.emit(thread, event.time_ns, call);
            return Ok(());
        };
        if self.state.capture(key).is_none() {
            self.snapshots(event, thread, stream, &launch, &mut call)?;
        } else if launch.snapshots.iter().any(|snapshot| snapshot.restore) {
            self.imported
                .warnings
                .push("snapshots of pinned host memory before captured launches are not restored".to_owned());
            self.imported.warnings.dedup();
        }
        self.emit(thread, event.time_ns, call);
        Ok(())
    }

    /// Pinned host memory as it was before a launch: the stream is drained and the memory filled.
    fn snapshots(
        &mut self,
        event: &Event<'_>,
        thread: usize,
        stream: u64,
        launch: &Launch<'_>,
        call: &mut Call,
    ) -> io::Result<()> {
        let mut fills = Vec::new();
        for snapshot in launch.snapshots.iter().filter(|snapshot| snapshot.restore) {
            let address = snapshot.address.wrapping_add(snapshot.offset_bytes);
            let is_host = self
                .state
                .find(address)
                .is_some_and(|(space, left)| space == state::Space::Host && left >= snapshot.len_bytes);
            if !is_host {
                self.imported.snapshots_refused += 1;
                continue;
            }
            let mut copies = Copies { archive: self.archive, output: &mut self.output, state: &mut self.state };
            match copies.linear(snapshot.hash, snapshot.len_bytes)? {
                Found::Blob(contents) => fills.push((address, contents)),
                Found::Lacking(reason) => call.refuse(&format!("it needs a snapshot of pinned host memory: {reason}")),
            }
        }
        if fills.is_empty() {
            return Ok(());
        }
        if let Some(mut drain) = Call::added("hipStreamSynchronize", "pinned host memory is restored behind it") {
            drain.words[0] = stream;
            self.emit(thread, event.time_ns, drain);
        }
        for (address, contents) in fills {
            self.imported.snapshots_restored += 1;
            call.fill_before(address, contents);
        }
        Ok(())
    }

    fn node(&mut self, event: &Event<'_>, layout: &'static Layout, thread: usize) -> io::Result<()> {
        let mut call = fields::call(event, layout);
        fields::judge(&mut call);
        match kernels::node_of(event, layout) {
            Err(reason) => call.refuse(&format!("its kernel is malformed: {reason}")),
            Ok(kernel) if call.ret == 0 && call.is_issued() => self.node_kernel(thread, &mut call, &kernel)?,
            Ok(_) => {}
        }
        self.emit(thread, event.time_ns, call);
        Ok(())
    }

    fn node_kernel(&mut self, thread: usize, call: &mut Call, kernel: &Kernel<'_>) -> io::Result<()> {
        /// Fields of `hipKernelNodeParams`.
        const EXTRA: usize = 16;
        const FUNCTION: usize = 24;
        const KERNEL_PARAMS: usize = 48;
        let Some(param) = call.param("pNodeParams") else { return Ok(()) };
        if kernel.name.is_empty() {
            call.refuse("upstream did not know its kernel");
            return Ok(());
        }
        match self.kernels.resolve(kernel, self.state.device(thread)) {
            Err(reason) => call.refuse(&reason),
            Ok((code, target)) => {
                let (Target::Function(handle) | Target::Symbol(handle)) = target;
                if let Some(bytes) = call.payload_mut(SectionTag::In, param).filter(|bytes| bytes.len() >= 64) {
                    bytes[EXTRA..][..8].fill(0);
                    bytes[FUNCTION..][..8].copy_from_slice(&handle.to_le_bytes());
                    bytes[KERNEL_PARAMS..][..8].copy_from_slice(&SOME_POINTER.to_le_bytes());
                }
                let (archive, output) = (self.archive, &mut self.output);
                self.kernels.pass_arguments(archive, output, &self.state, call, param, kernel, code)?;
            }
        }
        Ok(())
    }

    /// The recorder drained the stream of every asynchronous result itself: results that no call of the program waits for
    /// are waited for at the end.
    fn see_the_rest(&mut self) -> io::Result<()> {
        let time_ns = 0;
        for device in self.state.unseen_devices() {
            if self.output.thread_count() == 0 {
                break;
            }
            let why = "the recorder waited for results that the program did not";
            if self.state.device(0) != device
                && let Some(mut call) = Call::added("hipSetDevice", why)
            {
                call.set(0, device as i64 as u64);
                self.emit(0, time_ns, call);
            }
            if let Some(call) = Call::added("hipDeviceSynchronize", why) {
                self.emit(0, time_ns, call);
            }
        }
        Ok(())
    }
}

/// The pitch that an allocation is taken to have, of which none is recorded: its width, aligned.
fn pitch_bytes(call: &Call) -> Option<u64> {
    const ALIGNMENT_BYTES: u64 = 256;
    call.named("width").max(call.named("widthInBytes")).checked_next_multiple_of(ALIGNMENT_BYTES)
}

/// The pitch that an allocation of a native archive has when it comes back from the in-tree format.
pub(super) fn assumed_pitch_bytes(api: &'static Api, record: &Record<'_>) -> Option<u64> {
    pitch_bytes(&Call::of_record(api, record))
}

/// The process id that an archive's manifest gives, or the name of its directory.
pub(super) fn pid_of(archive: &UpstreamArchive) -> u64 {
    if archive.manifest().pid != 0 {
        return archive.manifest().pid;
    }
    let name = archive.path().file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.strip_prefix(crate::archive::PROCESS_PREFIX).and_then(|digits| digits.parse().ok()).unwrap_or(0)
}
