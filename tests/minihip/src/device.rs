//! The devices: memory, streams and settings of each.

use crate::config::config;
use crate::error::{HipError, HipResult};
use crate::heap::Heap;
use crate::memory::AllocationMap;
use crate::registry::lock;
use crate::stream::{Stream, StreamKind};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

/// One device.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) index: usize,
    pub(crate) heap: Heap,
    pub(crate) live: AllocationMap,
    null_stream: OnceLock<Arc<Stream>>,
    /// Every stream that is not destroyed, or destroyed and not drained.
    streams: RwLock<Vec<Arc<Stream>>>,
    /// Devices whose memory this one may access, with the flags of the enabling call.
    pub(crate) peers: Mutex<HashMap<usize, u32>>,
    /// `hipDeviceSetLimit` values by `hipLimit_t`.
    pub(crate) limits: Mutex<HashMap<u32, usize>>,
    /// `hipSetDeviceFlags`.
    pub(crate) flags: AtomicU32,
    /// Default and current memory pool (handles), 0 until made.
    pub(crate) default_pool: OnceLock<usize>,
    pub(crate) current_pool: AtomicUsize,
    pub(crate) primary_retained: AtomicU32,
}

/// All devices.
pub(crate) fn devices() -> &'static [Device] {
    static DEVICES: OnceLock<Vec<Device>> = OnceLock::new();
    DEVICES.get_or_init(|| (0..config().device_count).map(Device::new).collect())
}

/// Device `index`. Fails with `hipErrorNoDevice` where there are none, else `hipErrorInvalidDevice`.
pub(crate) fn device(index: usize) -> HipResult<&'static Device> {
    let devices = devices();
    devices.get(index).ok_or(if devices.is_empty() { HipError::NO_DEVICE } else { HipError::INVALID_DEVICE })
}

/// Device `ordinal` as C programs spell it.
pub(crate) fn device_by_ordinal(ordinal: i32) -> HipResult<&'static Device> {
    usize::try_from(ordinal).map_err(|_| HipError::INVALID_DEVICE).and_then(device)
}

impl Device {
    fn new(index: usize) -> Self {
        Self {
            index,
            heap: if config().alias {
                Heap::reserve_shared(config().vram_bytes)
            } else {
                Heap::reserve(config().vram_bytes)
            },
            live: AllocationMap::default(),
            null_stream: OnceLock::new(),
            streams: RwLock::new(Vec::new()),
            peers: Mutex::new(HashMap::new()),
            limits: Mutex::new(HashMap::new()),
            flags: AtomicU32::new(0),
            default_pool: OnceLock::new(),
            current_pool: AtomicUsize::new(0),
            primary_retained: AtomicU32::new(0),
        }
    }

    /// The legacy default stream, made on first use.
    pub(crate) fn null_stream(&'static self) -> &'static Arc<Stream> {
        self.null_stream.get_or_init(|| Stream::create(self, StreamKind::Legacy, 0, 0))
    }

    /// The legacy default stream if anything ever used it.
    pub(crate) fn null_stream_if_used(&self) -> Option<&Arc<Stream>> {
        self.null_stream.get()
    }

    pub(crate) fn add_stream(&self, stream: &Arc<Stream>) {
        self.streams.write().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(stream));
    }

    pub(crate) fn remove_stream(&self, id: u64) {
        self.streams.write().unwrap_or_else(PoisonError::into_inner).retain(|stream| stream.id != id);
    }

    /// Calls `body` with every stream of the device, the null stream included.
    pub(crate) fn for_each_stream(&self, mut body: impl FnMut(&Arc<Stream>)) {
        for stream in self.streams.read().unwrap_or_else(PoisonError::into_inner).iter() {
            body(stream);
        }
    }

    /// Blocks until everything enqueued on the device before the call is done.
    pub(crate) fn synchronize(&self) {
        let mut pending = Vec::new();
        self.for_each_stream(|stream| {
            if let Some(target) = stream.pending() {
                pending.push((Arc::clone(stream), target));
            }
        });
        for (stream, target) in pending {
            stream.progress.wait(target);
        }
        crate::pool::on_synchronize(self.index);
    }

    /// `hipDeviceReset`, after a synchronisation: memory and settings go. Handles stay valid, so that a program that
    /// still destroys its streams and events finds them.
    pub(crate) fn reset(&self) {
        for allocation in self.live.drain() {
            crate::pool::give_back(&allocation);
        }
        lock(&self.peers).clear();
        lock(&self.limits).clear();
    }
}
