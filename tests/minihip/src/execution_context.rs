//! Execution contexts: a device's own, and green ones over a share of its compute units; their streams, and the resources
//! they are made of.

use crate::device::{Device, device, devices};
use crate::error::{HipError, HipResult};
use crate::event::{Event, Scope};
use crate::properties::MULTIPROCESSORS;
use crate::registry::{Registry, lock};
use crate::stream::{self, DefaultStream, NON_BLOCKING, Stream};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// `hipDevResourceTypeSm`.
pub(crate) const RESOURCE_SM: i32 = 1;
/// Compute units come in groups of this many.
const GROUP_UNITS: u32 = 2;

/// `hipDevResource`: a type, and a union of which the compute units are the member that is made here.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct DevResource {
    pub(crate) kind: i32,
    pub(crate) internal: [u8; 92],
    pub(crate) units: u32,
    pub(crate) min_units: u32,
    pub(crate) unit_alignment: u32,
    pub(crate) flags: u32,
    pub(crate) rest: [u8; 32],
}

impl DevResource {
    /// A share of `units` compute units.
    pub(crate) fn units(units: u32) -> Self {
        DevResource {
            kind: RESOURCE_SM,
            internal: token(),
            units,
            min_units: GROUP_UNITS,
            unit_alignment: GROUP_UNITS,
            flags: 0,
            rest: [0; 32],
        }
    }

    /// All of a device's.
    pub(crate) fn whole() -> Self {
        Self::units(MULTIPROCESSORS as u32)
    }

    /// Nothing.
    pub(crate) fn none() -> Self {
        DevResource { kind: 0, ..Self::units(0) }
    }

    /// The same of a resource that must be one of this process's own making, as runtimes keep addresses in it.
    pub(crate) fn own_unit_count(&self) -> HipResult<u32> {
        if self.internal == token() { self.unit_count() } else { Err(HipError::INVALID_VALUE) }
    }

    /// The number of compute units. Fails with `hipErrorInvalidValue` on a resource of another type.
    pub(crate) fn unit_count(&self) -> HipResult<u32> {
        if self.kind == RESOURCE_SM { Ok(self.units) } else { Err(HipError::INVALID_VALUE) }
    }
}

/// What a resource of this process has in the runtime's own part: an address.
fn token() -> [u8; 92] {
    static PLACE: u8 = 0;
    let mut bytes = [0; 92];
    // Behind four bytes that align it in the struct.
    bytes[4..12].copy_from_slice(&(std::ptr::from_ref(&PLACE) as usize).to_le_bytes());
    bytes
}

/// Rounds a wish for compute units up to whole groups.
pub(crate) fn whole_groups(units: u32) -> u32 {
    units.max(1).next_multiple_of(GROUP_UNITS)
}

/// Splits `units` into `wanted` shares and a rest. Fails with `hipErrorInvalidValue` where there are too few; a share of 0
/// takes what is left.
pub(crate) fn split(units: u32, wanted: &[u32]) -> HipResult<(Vec<u32>, u32)> {
    let mut left = units;
    let mut shares = Vec::with_capacity(wanted.len());
    for &wish in wanted {
        let share = if wish == 0 { left } else { whole_groups(wish) };
        left = left.checked_sub(share).filter(|_| share > 0).ok_or(HipError::INVALID_VALUE)?;
        shares.push(share);
    }
    Ok((shares, left))
}

/// An execution context.
#[derive(Debug)]
pub(crate) struct ExecutionContext {
    pub(crate) device: &'static Device,
    pub(crate) id: u64,
    pub(crate) resource: DevResource,
    /// A green context's streams; a device's own context is about all of the device's.
    streams: Option<Mutex<Vec<Arc<Stream>>>>,
}

static CONTEXTS: Registry<ExecutionContext> = Registry::new();
/// Resource descriptions that `hipDevResourceGenerateDesc` made.
static DESCRIPTIONS: Registry<DevResource> = Registry::new();
/// The share of streams made in green contexts, by stream id.
static SHARES: Mutex<Option<HashMap<u64, DevResource>>> = Mutex::new(None);

fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // Relaxed: only uniqueness matters.
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Keeps a description of resources and gives its handle.
pub(crate) fn describe(resource: DevResource) -> HipResult<usize> {
    DESCRIPTIONS.insert(|_| Arc::new(resource))
}

/// The resource that a description stands for.
pub(crate) fn described(handle: usize) -> HipResult<DevResource> {
    DESCRIPTIONS.get(handle).map(|found| *found).ok_or(HipError::INVALID_VALUE)
}

/// Handle of a device's own context: one for the life of the process.
pub(crate) fn of_device(device: &'static Device) -> HipResult<usize> {
    static OWN: OnceLock<Vec<OnceLock<HipResult<usize>>>> = OnceLock::new();
    let handles = OWN.get_or_init(|| devices().iter().map(|_| OnceLock::new()).collect());
    let slot = handles.get(device.index).ok_or(HipError::INVALID_DEVICE)?;
    *slot.get_or_init(|| {
        let context = ExecutionContext { device, id: next_id(), resource: DevResource::whole(), streams: None };
        CONTEXTS.insert(|_| Arc::new(context))
    })
}

/// Makes a green context.
pub(crate) fn create(device: &'static Device, resource: DevResource) -> HipResult<usize> {
    let streams = Some(Mutex::default());
    CONTEXTS.insert(|_| Arc::new(ExecutionContext { device, id: next_id(), resource, streams }))
}

/// The context a handle stands for. Fails with `hipErrorInvalidContext`.
pub(crate) fn resolve(handle: usize) -> HipResult<Arc<ExecutionContext>> {
    CONTEXTS.get(handle).ok_or(HipError::INVALID_CONTEXT)
}

/// Ends a green context, once its work is done; its streams live on. Fails with `hipErrorInvalidContext` on a device's own.
pub(crate) fn destroy(handle: usize) -> HipResult {
    let context = resolve(handle)?;
    if context.streams.is_none() {
        return Err(HipError::INVALID_CONTEXT);
    }
    context.streams().iter().for_each(|stream| stream.synchronize());
    CONTEXTS.remove(handle).map(drop).ok_or(HipError::INVALID_CONTEXT)
}

/// The share of the device that a stream's work runs on.
pub(crate) fn share_of(stream: &Stream) -> DevResource {
    let shares = lock(&SHARES);
    shares.as_ref().and_then(|shares| shares.get(&stream.id).copied()).unwrap_or_else(DevResource::whole)
}

impl ExecutionContext {
    /// The context's streams as they are now.
    pub(crate) fn streams(&self) -> Vec<Arc<Stream>> {
        match &self.streams {
            Some(streams) => lock(streams).clone(),
            None => {
                let mut all = Vec::new();
                self.device.for_each_stream(|stream| all.push(Arc::clone(stream)));
                all
            }
        }
    }

    /// Makes a stream of the context. Fails with `hipErrorInvalidValue` unless it is a non-blocking one.
    pub(crate) fn create_stream(&self, flags: u32, priority: i32) -> HipResult<usize> {
        if flags != NON_BLOCKING {
            return Err(HipError::INVALID_VALUE);
        }
        let handle = stream::create(self.device, flags, priority)?;
        let made = stream::resolve(handle, DefaultStream::Legacy)?;
        if let Some(streams) = &self.streams {
            lock(&SHARES).get_or_insert_default().insert(made.id, self.resource);
            lock(streams).push(made);
        }
        Ok(handle)
    }

    /// Blocks until the work of all streams is done.
    pub(crate) fn synchronize(&self) {
        self.streams().iter().for_each(|stream| stream.synchronize());
    }

    /// Records `event` behind the work of all streams.
    pub(crate) fn record(&self, event: &Arc<Event>) -> HipResult {
        if event.device != self.device.index {
            return Err(HipError::INVALID_HANDLE);
        }
        // A stream that nobody else knows waits for each, and then records.
        let joint = Stream::create(device(self.device.index)?, stream::StreamKind::NonBlocking, NON_BLOCKING, 0);
        for stream in self.streams().iter().filter(|stream| stream.id != joint.id) {
            if let Some(target) = stream.pending() {
                let after = stream::Dependency { stream: Arc::clone(stream), target };
                joint.enqueue_after(Some(after), crate::op::Op::Nothing)?;
            }
        }
        let recorded = event.record(&joint, Scope::Default);
        joint.close();
        recorded
    }

    /// Makes later work of all streams wait for `event`.
    pub(crate) fn wait(&self, event: &Arc<Event>) -> HipResult {
        self.streams().iter().try_for_each(|stream| event.wait_in(stream, Scope::Default))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_whole_groups() {
        assert_eq!(size_of::<DevResource>(), 144);
        assert_eq!(std::mem::offset_of!(DevResource, units), 96);
        assert_eq!(split(10, &[3, 2]), Ok((vec![4, 2], 4)));
        assert_eq!(split(10, &[4, 0]), Ok((vec![4, 6], 0)));
        assert_eq!(split(10, &[8, 4]), Err(HipError::INVALID_VALUE));
        assert_eq!(split(4, &[4, 0]), Err(HipError::INVALID_VALUE), "nothing is left");
    }
}
