//! What is live at each moment of the sequence: memory, streams, captures, graphs.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::output::{Call, Inputs};
use crate::catalogue::{Api, Effect, HandleKind, Role};
use crate::record::{BlobRef, Record, SectionTag};

/// `hipStreamLegacy` and `hipStreamPerThread`.
const STREAM_LEGACY: u64 = 1;
pub(super) const STREAM_PER_THREAD: u64 = 2;

/// Where memory lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    Device,
    Host,
}

/// A stream, told apart from the default streams of other devices and threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum StreamKey {
    Legacy(i32),
    PerThread(usize, i32),
    Handle(u64),
}

/// Host memory that a graph reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HostRead {
    pub(super) address: u64,
    pub(super) len_bytes: u64,
    /// `None`: not recorded.
    pub(super) contents: Option<BlobRef>,
}

/// A result that nothing made visible yet.
#[derive(Clone, Copy, Debug)]
struct Unseen {
    blob: u64,
    issued: u64,
}

#[derive(Clone, Debug, Default)]
struct Stream {
    device: i32,
    capture: Option<usize>,
    unseen: Vec<Unseen>,
}

#[derive(Clone, Copy, Debug)]
struct Event {
    stream: StreamKey,
    recorded: u64,
    capture: Option<usize>,
}

/// The state.
#[derive(Debug, Default)]
pub(super) struct State {
    memory: BTreeMap<u64, (u64, Space)>,
    devices: Vec<i32>,
    streams: HashMap<StreamKey, Stream>,
    events: HashMap<u64, Event>,
    captures: Vec<Vec<HostRead>>,
    graphs: HashMap<u64, Vec<HostRead>>,
    execs: HashMap<u64, Vec<HostRead>>,
    /// The graph that each node was added to.
    nodes: HashMap<u64, u64>,
    /// Size in bytes of an element of each array.
    arrays: HashMap<u64, u64>,
    /// Handles that calls made which are not replayed.
    absent: HashSet<(HandleKind, u64)>,
    issued: u64,
}

impl State {
    /// The device of a thread.
    pub(super) fn device(&self, thread: usize) -> i32 {
        self.devices.get(thread).copied().unwrap_or(0)
    }

    /// The space and what is left of the allocation that an address lies in.
    pub(super) fn find(&self, address: u64) -> Option<(Space, u64)> {
        let (base, &(size, space)) = self.memory.range(..=address).next_back()?;
        let offset = address - base;
        (offset < size).then(|| (space, size - offset))
    }

    /// Whether an address lies in device memory.
    pub(super) fn is_device(&self, address: u64) -> bool {
        self.find(address).is_some_and(|(space, _)| space == Space::Device)
    }

    /// Size in bytes of an element of an array; `None` where no recorded call tells.
    pub(super) fn element_bytes(&self, array: u64) -> Option<u64> {
        self.arrays.get(&array).copied()
    }

    /// The stream that a call works on.
    pub(super) fn stream_of(&self, call: &Call, thread: usize) -> StreamKey {
        let param = call.api.stream_param();
        let value = param.map_or(0, |param| call.word(param as u8));
        self.key(value, thread, call.api.name.ends_with("_spt"))
    }

    /// The stream that a handle names for a thread.
    pub(super) fn key(&self, value: u64, thread: usize, per_thread: bool) -> StreamKey {
        match value {
            0 if per_thread => StreamKey::PerThread(thread, self.device(thread)),
            0 | STREAM_LEGACY => StreamKey::Legacy(self.device(thread)),
            STREAM_PER_THREAD => StreamKey::PerThread(thread, self.device(thread)),
            handle => StreamKey::Handle(handle),
        }
    }

    /// The device that work on a stream runs on.
    pub(super) fn device_of(&self, stream: StreamKey) -> i32 {
        match stream {
            StreamKey::Legacy(device) | StreamKey::PerThread(_, device) => device,
            StreamKey::Handle(_) => self.streams.get(&stream).map_or(0, |stream| stream.device),
        }
    }

    /// The capture that a stream is in.
    pub(super) fn capture(&self, stream: StreamKey) -> Option<usize> {
        self.streams.get(&stream)?.capture
    }

    /// Notes that what a stream captures reads host memory.
    pub(super) fn captured_read(&mut self, capture: usize, read: HostRead) {
        if let Some(reads) = self.captures.get_mut(capture) {
            reads.push(read);
        }
    }

    /// Notes that a node of a graph reads host memory.
    pub(super) fn graph_read(&mut self, graph: u64, read: HostRead) {
        self.graphs.entry(graph).or_default().push(read);
    }

    /// Notes that a node reads other host memory in what is instantiated from now on.
    pub(super) fn node_read(&mut self, node: u64, read: HostRead) {
        if let Some(&graph) = self.nodes.get(&node) {
            self.graph_read(graph, read);
        }
    }

    /// Notes that a node of an instantiated graph reads other host memory from now on.
    pub(super) fn exec_read(&mut self, exec: u64, read: HostRead) {
        self.execs.entry(exec).or_default().push(read);
    }

    /// The host memory that a launch of an instantiated graph reads.
    pub(super) fn reads_of(&self, exec: u64) -> &[HostRead] {
        self.execs.get(&exec).map_or(&[], Vec::as_slice)
    }

    /// Notes a result on a stream that the program cannot read before it synchronises.
    pub(super) fn unseen(&mut self, stream: StreamKey, blob: u64) {
        let device = self.device_of(stream);
        self.issued += 1;
        let issued = self.issued;
        let stream = self.streams.entry(stream).or_insert_with(|| Stream { device, ..Stream::default() });
        stream.unseen.push(Unseen { blob, issued });
    }

    /// Devices with results that nothing made visible.
    pub(super) fn unseen_devices(&self) -> Vec<i32> {
        let mut devices: Vec<i32> =
            self.streams.values().filter(|stream| !stream.unseen.is_empty()).map(|stream| stream.device).collect();
        devices.sort_unstable();
        devices.dedup();
        devices
    }

    /// The results on a device, which are visible from now on.
    pub(super) fn see_device(&mut self, device: i32) -> Vec<u64> {
        self.see(|_, stream, _| stream.device == device)
    }

    fn see(&mut self, covers: impl Fn(&StreamKey, &Stream, &Unseen) -> bool) -> Vec<u64> {
        let mut seen: Vec<Unseen> = Vec::new();
        for (key, stream) in &mut self.streams {
            let Stream { unseen, .. } = stream;
            if unseen.is_empty() {
                continue;
            }
            let all = std::mem::take(unseen);
            let kept: Vec<Unseen> = all.iter().copied().filter(|one| !covers(key, stream, one)).collect();
            seen.extend(all.iter().copied().filter(|one| covers(key, stream, one)));
            stream.unseen = kept;
        }
        seen.sort_by_key(|one| one.issued);
        seen.iter().map(|one| one.blob).collect()
    }

    /// Whether a call uses something that a call made which is not replayed.
    pub(super) fn uses_absent(&self, call: &Call) -> bool {
        call.api.params.iter().any(|param| match param.role {
            Role::Use(kind) | Role::Destroy(kind) => self.absent.contains(&(kind, call.words[usize::from(param.word)])),
            _ => false,
        })
    }

    /// Takes in a call that has returned. Gives the results that it made visible to the program.
    pub(super) fn apply(&mut self, call: &Call, thread: usize) -> Vec<u64> {
        if self.devices.len() <= thread {
            self.devices.resize(thread + 1, 0);
        }
        if call.ret != 0 {
            return Vec::new();
        }
        self.apply_objects(call, thread);
        self.apply_graphs(call, thread);
        let stream = self.stream_of(call, thread);
        match call.api.effect {
            Effect::BlockDevice => {
                let device = self.device(thread);
                self.see_device(device)
            }
            Effect::BlockStream | Effect::BlockCopy => self.see(|key, _, _| *key == stream),
            Effect::Query if call.api.stream_param().is_some() => self.see(|key, _, _| *key == stream),
            Effect::BlockEvent | Effect::Query => {
                let Some(event) = self.events.get(&call.named("event")).copied() else { return Vec::new() };
                self.see(|key, _, one| *key == event.stream && one.issued <= event.recorded)
            }
            Effect::Enqueue | Effect::Host => Vec::new(),
        }
    }

    fn apply_objects(&mut self, call: &Call, thread: usize) {
        let device = self.device(thread);
        for (number, param) in call.api.params.iter().enumerate() {
            let number = number as u8;
            let word = call.word(number);
            let told = call.payload(SectionTag::Out, number).and_then(|bytes| super::output::unsigned(bytes, 0, 8));
            match (param.role, told) {
                (Role::NewDevice(size) | Role::NewManaged(size) | Role::NewRange(size), Some(base)) if base != 0 => {
                    self.allocate(base, size.value(&Inputs(call)).unwrap_or(0), Space::Device);
                }
                (Role::GetDevice(size), Some(base)) if base != 0 && self.find(base).is_none() => {
                    let of_host = call.api.params.iter().find_map(|param| match param.role {
                        Role::Host(..) => self.find(call.words[usize::from(param.word)]).map(|(_, left)| left),
                        _ => None,
                    });
                    let size = size.value(&Inputs(call)).or(of_host).unwrap_or(8);
                    self.allocate(base, size, Space::Device);
                }
                (Role::NewHost(size), Some(base)) if base != 0 => {
                    self.allocate(base, size.value(&Inputs(call)).unwrap_or(0), Space::Host);
                }
                (Role::Pin(size), _) if word != 0 => {
                    self.allocate(word, size.value(&Inputs(call)).unwrap_or(0), Space::Host);
                }
                (Role::FreeDevice | Role::FreeHost | Role::FreeRange | Role::Unpin, _) => {
                    self.memory.remove(&word);
                }
                (Role::Create(HandleKind::Stream), Some(handle)) => {
                    self.streams.insert(StreamKey::Handle(handle), Stream { device, ..Stream::default() });
                }
                (Role::Create(kind) | Role::Get(kind), Some(handle)) if !call.is_issued() => {
                    self.absent.insert((kind, handle));
                }
                (Role::Create(kind), Some(handle)) => {
                    self.absent.remove(&(kind, handle));
                    if kind == HandleKind::Array
                        && let Some(bytes) = array_element_bytes(call)
                    {
                        self.arrays.insert(handle, bytes);
                    }
                }
                _ => {}
            }
        }
        match call.api.name {
            "hipSetDevice" => self.devices[thread] = call.words[0] as u32 as i32,
            "hipEventRecord" | "hipEventRecord_spt" | "hipEventRecordWithFlags" => {
                let stream = self.stream_of(call, thread);
                let event = Event { stream, recorded: self.issued, capture: self.capture(stream) };
                self.events.insert(call.named("event"), event);
            }
            _ => {}
        }
    }

    pub(super) fn allocate(&mut self, base: u64, size: u64, space: Space) {
        self.memory.insert(base, (size, space));
    }

    fn apply_graphs(&mut self, call: &Call, thread: usize) {
        let stream = self.stream_of(call, thread);
        let out = |name: &str| {
            let number = call.param(name)?;
            call.payload(SectionTag::Out, number).and_then(|bytes| super::output::unsigned(bytes, 0, 8))
        };
        if let Some(node) = out("pGraphNode").or_else(|| out("phGraphNode"))
            && let Some(graph) = call.param("graph").or_else(|| call.param("hGraph"))
        {
            self.nodes.insert(node, call.word(graph));
        }
        match call.api.name {
            "hipStreamBeginCapture" | "hipStreamBeginCapture_spt" | "hipStreamBeginCaptureToGraph" => {
                let device = self.device_of(stream);
                let known = match call.param("graph") {
                    Some(graph) => self.graphs.get(&call.word(graph)).cloned().unwrap_or_default(),
                    None => Vec::new(),
                };
                self.captures.push(known);
                let capture = Some(self.captures.len() - 1);
                self.streams.entry(stream).or_insert_with(|| Stream { device, ..Stream::default() }).capture = capture;
            }
            "hipStreamEndCapture" | "hipStreamEndCapture_spt" => {
                let Some(capture) = self.capture(stream) else { return };
                for stream in self.streams.values_mut().filter(|stream| stream.capture == Some(capture)) {
                    stream.capture = None;
                }
                if let Some(graph) = out("pGraph") {
                    let reads = std::mem::take(&mut self.captures[capture]);
                    self.graphs.insert(graph, reads);
                }
            }
            // A stream that waits for an event of a capture joins it.
            "hipStreamWaitEvent" | "hipStreamWaitEvent_spt" => {
                let joined = self.events.get(&call.named("event")).and_then(|event| event.capture);
                let is_open =
                    joined.filter(|&capture| self.streams.values().any(|known| known.capture == Some(capture)));
                if let Some(capture) = is_open {
                    let device = self.device_of(stream);
                    self.streams.entry(stream).or_insert_with(|| Stream { device, ..Stream::default() }).capture =
                        Some(capture);
                }
            }
            "hipGraphInstantiate" | "hipGraphInstantiateWithFlags" | "hipGraphInstantiateWithParams" => {
                if let Some(exec) = out("pGraphExec") {
                    self.execs.insert(exec, self.graphs.get(&call.named("graph")).cloned().unwrap_or_default());
                }
            }
            "hipGraphClone" => {
                if let Some(graph) = out("pGraphClone") {
                    self.graphs
                        .insert(graph, self.graphs.get(&call.named("originalGraph")).cloned().unwrap_or_default());
                }
            }
            "hipGraphAddChildGraphNode" => {
                let child = self.graphs.get(&call.named("childGraph")).cloned().unwrap_or_default();
                self.graphs.entry(call.named("graph")).or_default().extend(child);
            }
            "hipGraphExecUpdate" => {
                let reads = self.graphs.get(&call.named("hGraph")).cloned().unwrap_or_default();
                self.execs.insert(call.named("hGraphExec"), reads);
            }
            "hipGraphDestroy" => {
                self.graphs.remove(&call.named("graph"));
            }
            "hipGraphExecDestroy" => {
                self.execs.remove(&call.named("graphExec"));
            }
            _ => {}
        }
    }
}

/// Live memory along the calls of a native archive.
#[derive(Debug, Default)]
pub(in crate::upstream) struct Live(State);

impl Live {
    /// Takes in a call.
    pub(in crate::upstream) fn apply(&mut self, api: &'static Api, record: &Record<'_>, thread: usize) {
        self.0.apply(&Call::of_record(api, record), thread);
    }

    /// Offsets of addresses of live memory in the bytes of an argument.
    pub(in crate::upstream) fn pointers(&self, bytes: &[u8]) -> Vec<u16> {
        let mut offsets = Vec::new();
        let mut at = 0;
        while let Some(word) = super::output::unsigned(bytes, at, 8) {
            if self.0.find(word).is_some() && at <= usize::from(u16::MAX) {
                offsets.push(at as u16);
                at += 8;
            } else {
                at += 1;
            }
        }
        offsets
    }
}

/// Size in bytes of an element of the array that a call creates, by the descriptor that it is given.
fn array_element_bytes(call: &Call) -> Option<u64> {
    // Format and channels behind two extents (HIP_ARRAY_DESCRIPTOR) or three (HIP_ARRAY3D_DESCRIPTOR).
    let at = match call.api.name {
        "hipArrayCreate" => 16,
        "hipArray3DCreate" => 24,
        _ => return None,
    };
    let descriptor = call.payload(SectionTag::In, call.param("pAllocateArray")?)?;
    let channel = match super::output::unsigned(descriptor, at, 4)? {
        // hipArray_Format: 8-bit, 16-bit and half, 32-bit and float.
        0x01 | 0x08 => 1,
        0x02 | 0x09 | 0x10 => 2,
        0x03 | 0x0a | 0x20 => 4,
        _ => return None,
    };
    super::output::unsigned(descriptor, at + 4, 4)
        .filter(|channels| (1..=4).contains(channels))
        .map(|count| channel * count)
}
