//! What is live at this moment of the recording: handles, allocations, streams, symbols, and each captured thread's state.

use rustc_hash::{FxHashMap, FxHashSet};

use hrr_format::archive::Archive;
use hrr_format::catalogue::{Api, HandleKind};
use hrr_format::record::FileId;

use super::lower::device_resource::{Described, DeviceResource};
use super::lower::ipc::{Exported, Recorded};
use super::lower::shared::ExportedFile;
use super::memory::address::{AddressMap, Allocation};
use super::memory::contents::SharedContents;
use super::order::dependency::{StreamKey, StreamRule, Use};
use crate::memory::slots::{Slot, SlotTable};
use crate::mutation::Mutation;

/// A live handle of the recording.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handle {
    /// Holds the live handle.
    pub(crate) slot: Slot,
    /// Number of the object, for the order of its uses.
    pub(crate) object: u32,
    /// The object that this is a part of and ends with; 0 = none.
    pub(crate) parent: u32,
    /// Streams: device and rule.
    pub(crate) stream: Option<StreamKey>,
    /// Whether a call of the archive made it, so that it is to be destroyed when the archive does not.
    pub(crate) owned: bool,
}

/// Physical memory mapped at a reserved address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapping {
    /// Holds the reserved range's live address.
    pub(crate) slot: Slot,
    /// Where in the range, in bytes.
    pub(crate) offset_bytes: u64,
    /// Its size in bytes.
    pub(crate) size_bytes: u64,
}

/// A change to what is live, made when the call that causes it returns.
#[derive(Clone, Debug)]
pub(crate) enum Definition {
    /// A handle exists.
    Handle {
        /// Its kind.
        kind: HandleKind,
        /// Its value at capture.
        value: u64,
        /// What it stands for.
        handle: Handle,
    },
    /// Memory exists.
    Memory(Allocation),
    /// A handle for other processes exists.
    Exported(Recorded, Exported),
    /// A share of a device is described.
    DeviceResource(Box<(Described, DeviceResource)>),
    /// A file by which memory can be imported exists.
    ExportedFile(FileId, ExportedFile),
    /// The captured thread's device is this one.
    Device(i32),
    /// A context is known.
    Context {
        /// Its handle at capture.
        value: u64,
        /// Its device at capture.
        device: i32,
    },
}

/// What stands for a host symbol of the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Symbol {
    /// Address that replay registers with the runtime in its place.
    pub(crate) address: u64,
    /// Size of the device variable it stands for, where it is one.
    pub(crate) size_bytes: Option<u64>,
    /// Number of the object, for the order of its uses after its registration.
    pub(crate) object: u32,
    /// The fat binary it belongs to.
    pub(crate) parent: u32,
}

/// State of a captured thread, as HIP keeps it per thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct LaneState {
    /// Current device.
    pub(crate) device: i32,
    /// Instructions planned so far, which is the progress the last of them publishes.
    pub(crate) planned: u64,
    /// The thread's last error at capture is one that replay did not bring about.
    pub(crate) last_error_unknown: bool,
    /// Launches that are being put together call by call, the last one innermost.
    pub(crate) assembled: Vec<Assembled>,
    /// Stands for the thread's per-thread default stream, by device, where captured threads share OS threads.
    pub(crate) per_thread: FxHashMap<i32, Handle>,
}

/// A launch that is being put together call by call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Assembled {
    /// The stream it was configured for.
    pub(crate) stream: Option<StreamKey>,
    /// What its arguments name: allocations, and objects.
    pub(crate) memory: Vec<(u32, bool)>,
    pub(crate) uses: Vec<(u32, Use)>,
}

impl LaneState {
    /// The state of a thread before its first call: in a recorded window, it had made calls before.
    pub(crate) fn new(archive: &Archive) -> Self {
        LaneState { last_error_unknown: archive.manifest().window.is_some(), ..LaneState::default() }
    }
}

/// Everything live.
#[derive(Debug)]
pub(crate) struct Objects {
    pub(crate) slots: SlotTable,
    handles: FxHashMap<(HandleKind, u64), Handle>,
    /// A texture or surface object was made: kernels may be given handles by value.
    has_images: bool,
    /// References to handles beyond the first.
    retained: FxHashMap<(HandleKind, u64), u32>,
    pub(crate) memory: AddressMap,
    pub(crate) symbols: FxHashMap<u64, Symbol>,
    /// Mappings of physical memory by recorded address.
    pub(crate) mappings: FxHashMap<u64, Mapping>,
    /// Pairs of devices with peer access enabled.
    pub(crate) peers: Vec<(i32, i32)>,
    /// Events that were opened by a handle, and have another name.
    pub(crate) shared_events: FxHashSet<u64>,
    /// Devices of contexts by recorded handle.
    pub(crate) context_devices: FxHashMap<u64, i32>,
    /// Handles for other processes.
    pub(crate) exported: FxHashMap<Recorded, Exported>,
    /// Descriptions of shares of devices.
    pub(crate) device_resources: FxHashMap<Described, DeviceResource>,
    /// Files by which memory was exported, by device and inode.
    pub(crate) exported_files: FxHashMap<(u64, u64), Vec<ExportedFile>>,
    /// Addresses that are second names of memory.
    pub(crate) second_names: FxHashSet<u64>,
    /// Objects whose contents are the same memory.
    pub(crate) contents: SharedContents,
    legacy_streams: FxHashMap<i32, StreamKey>,
    next_object: u32,
    mutation: Option<Mutation>,
}

impl Objects {
    /// Nothing is live.
    pub(crate) fn new(mutation: Option<Mutation>) -> Self {
        Objects {
            slots: SlotTable::default(),
            handles: FxHashMap::default(),
            has_images: false,
            retained: FxHashMap::default(),
            memory: AddressMap::default(),
            symbols: FxHashMap::default(),
            mappings: FxHashMap::default(),
            peers: Vec::new(),
            shared_events: FxHashSet::default(),
            context_devices: FxHashMap::default(),
            exported: FxHashMap::default(),
            device_resources: FxHashMap::default(),
            exported_files: FxHashMap::default(),
            second_names: FxHashSet::default(),
            contents: SharedContents::default(),
            legacy_streams: FxHashMap::default(),
            next_object: 0,
            mutation,
        }
    }

    /// A number for a new object.
    pub(crate) fn new_object(&mut self) -> u32 {
        self.next_object += 1;
        self.next_object
    }

    /// A new handle with an empty slot.
    pub(crate) fn new_handle(&mut self, stream: Option<(i32, StreamRule)>) -> Handle {
        let object = self.new_object();
        let stream = stream.map(|(device, rule)| StreamKey { object, device, rule });
        Handle { slot: self.slots.allocate(0), object, parent: 0, stream, owned: false }
    }

    /// Handles that calls of the archive made and none destroyed.
    pub(crate) fn owned_handles(&self) -> impl Iterator<Item = (HandleKind, Handle)> + '_ {
        self.handles.iter().filter(|(_, handle)| handle.owned).map(|(&(kind, _), &handle)| (kind, handle))
    }

    /// A device was reset: nothing that was made before is there any more, or may be destroyed.
    pub(crate) fn disown(&mut self) {
        self.handles.values_mut().for_each(|handle| handle.owned = false);
        self.memory.iter_mut().for_each(|allocation| allocation.release = None);
        self.mappings.clear();
        self.peers.clear();
    }

    /// The live handle with this value.
    pub(crate) fn handle(&self, kind: HandleKind, value: u64) -> Option<Handle> {
        self.handles.get(&(kind, value)).copied()
    }

    /// Whether any texture or surface object was made.
    pub(crate) fn has_images(&self) -> bool {
        self.has_images
    }

    /// The live texture or surface object with this handle: what kernels are given by value.
    pub(crate) fn image(&self, value: u64) -> Option<Handle> {
        if !self.has_images || value == 0 {
            return None;
        }
        self.handle(HandleKind::Texture, value).or_else(|| self.handle(HandleKind::Surface, value))
    }

    /// Takes a handle out of use.
    pub(crate) fn retire(&mut self, kind: HandleKind, value: u64) -> Option<Handle> {
        if self.mutation == Some(Mutation::StaleHandle) {
            return self.handle(kind, value);
        }
        if kind == HandleKind::Ctx {
            // AMD's runtime has one context for a device, whatever it was made or asked for by: what others know it as stays.
            let handle = self.handles.get_mut(&(kind, value))?;
            handle.owned = false;
            return Some(*handle);
        }
        if self.is_retained(kind, value) {
            self.retained.entry((kind, value)).and_modify(|references| *references -= 1);
            return self.handle(kind, value);
        }
        self.handles.remove(&(kind, value))
    }

    /// A live handle was asked for once more, and will be given back once more.
    pub(crate) fn retain(&mut self, kind: HandleKind, value: u64) {
        *self.retained.entry((kind, value)).or_insert(0) += 1;
    }

    /// Whether giving a handle back leaves it alive.
    pub(crate) fn is_retained(&self, kind: HandleKind, value: u64) -> bool {
        self.retained.get(&(kind, value)).is_some_and(|&references| references > 0)
    }

    /// Takes an allocation out of use.
    pub(crate) fn retire_memory(&mut self, base: u64) -> Option<Allocation> {
        if self.mutation == Some(Mutation::StaleHandle) {
            return self.memory.exact(base).copied();
        }
        self.memory.remove(base)
    }

    /// Applies what a call that has returned brought about.
    pub(crate) fn define(&mut self, definition: Definition, lane: &mut LaneState) {
        match definition {
            Definition::Handle { kind, value, handle } => {
                self.has_images |= matches!(kind, HandleKind::Texture | HandleKind::Surface);
                if self.mutation == Some(Mutation::StaleHandle) {
                    self.handles.entry((kind, value)).or_insert(handle);
                } else {
                    self.handles.insert((kind, value), handle);
                }
            }
            Definition::Memory(allocation) => {
                if self.mutation == Some(Mutation::StaleHandle) && self.memory.exact(allocation.base).is_some() {
                    return;
                }
                self.memory.insert(allocation);
            }
            Definition::Exported(recorded, exported) => {
                self.exported.insert(recorded, exported);
            }
            Definition::DeviceResource(described) => {
                self.device_resources.insert(described.0, described.1);
            }
            Definition::ExportedFile(file, exported) => {
                self.exported_files.entry((file.device, file.inode)).or_default().push(exported);
            }
            Definition::Device(device) => lane.device = device,
            Definition::Context { value, device } => {
                self.context_devices.insert(value, device);
            }
        }
    }

    /// The legacy default stream of a device.
    pub(crate) fn legacy_stream(&mut self, device: i32) -> StreamKey {
        if let Some(key) = self.legacy_streams.get(&device) {
            return *key;
        }
        let key = StreamKey { object: self.new_object(), device, rule: StreamRule::Legacy };
        self.legacy_streams.insert(device, key);
        key
    }
}

/// `hipStreamNonBlocking`.
const STREAM_NON_BLOCKING: u64 = 1;
/// `hipStreamLegacy`, the legacy default stream by name.
pub(crate) const STREAM_LEGACY: u64 = 1;
/// `hipStreamPerThread`.
pub(crate) const STREAM_PER_THREAD: u64 = 2;

/// How a stream made by this call relates to the legacy default stream.
pub(crate) fn stream_rule(api: &Api, word: impl Fn(usize) -> u64) -> StreamRule {
    let flags = match api.name {
        "hipStreamCreateWithFlags" | "hipStreamCreateWithPriority" => word(1),
        "hipExecutionCtxStreamCreate" => word(2),
        _ => 0,
    };
    if flags & STREAM_NON_BLOCKING != 0 { StreamRule::NonBlocking } else { StreamRule::Blocking }
}
