//! Device resources and execution contexts: the driver's green contexts, and each device's own.

use super::context::{device, device_at, with_device};
use super::cuda_api;
use super::driver::{self as cu, got};
use super::handles::{STREAMS, event, stream};
use crate::api::{In, Out};
use crate::error::{HipError, HipResult};
use crate::execution_context::{DevResource, RESOURCE_SM};
use crate::exports::GroupParams;
use crate::registry::{Registry, lock};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// An execution context.
#[derive(Debug)]
struct Context {
    /// Index of its device.
    device: usize,
    /// The driver's green context; 0 is the device's own.
    green: usize,
    id: u64,
}

static CONTEXTS: Registry<Context> = Registry::new();
/// Handle of each device's own context, made when it is first asked for.
static OWN: Mutex<Option<HashMap<usize, usize>>> = Mutex::new(None);
/// The green context of each stream that was made in one.
static GREEN_STREAMS: Mutex<Option<HashMap<usize, usize>>> = Mutex::new(None);

/// `CU_GREEN_CTX_DEFAULT_STREAM`, without which older drivers make no green context.
const DEFAULT_STREAM: u32 = 1;
/// `CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING`: shares as small as the device has them.
const SMALL_SHARES: u32 = 1;
/// `CU_STREAM_NON_BLOCKING`, the only kind of stream that a green context has.
const NON_BLOCKING: u32 = 1;

fn new_context(device: usize, green: usize) -> HipResult<usize> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // Relaxed: only uniqueness matters.
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    CONTEXTS.insert(|_| Arc::new(Context { device, green, id }))
}

fn resolve(handle: usize) -> HipResult<Arc<Context>> {
    CONTEXTS.get(handle).ok_or(HipError::INVALID_HANDLE)
}

/// Only compute units are shared out.
fn check_kind(kind: i32) -> HipResult {
    if kind == RESOURCE_SM { Ok(()) } else { Err(HipError::INVALID_VALUE) }
}

fn whole(index: usize) -> HipResult<DevResource> {
    let device = device_at(index)?.id;
    let mut resource = DevResource::none();
    cu::device_get_dev_resource(device, &mut resource, RESOURCE_SM)?;
    Ok(resource)
}

fn of_green(green: usize) -> HipResult<DevResource> {
    let mut resource = DevResource::none();
    cu::green_ctx_get_dev_resource(green, &mut resource, RESOURCE_SM)?;
    Ok(resource)
}

/// Runs `body` with a resource that can be split. The driver splits no share of another split, but a green context's.
fn with_splittable<R>(input: &DevResource, body: impl Fn(&DevResource) -> HipResult<R>) -> HipResult<R> {
    input.unit_count()?;
    match body(input) {
        Ok(done) => Ok(done),
        Err(error) => {
            let description =
                got(|description| cu::dev_resource_generate_desc(description, input, 1)).map_err(|_| error)?;
            let device = device_at(super::context::current_index())?.id;
            let green =
                got(|green| cu::green_ctx_create(green, description, device, DEFAULT_STREAM)).map_err(|_| error)?;
            // It stays, as shares of its resource are shares of it; it runs nothing and takes nothing from others.
            of_green(green).and_then(|resource| body(&resource))
        }
    }
}

/// Splits off one share after the other; 0 is the rest.
fn split(input: &DevResource, wishes: &[u32]) -> HipResult<(Vec<DevResource>, DevResource)> {
    let mut left = *input;
    let mut shares = Vec::with_capacity(wishes.len());
    for &wish in wishes {
        if wish == 0 {
            shares.push(std::mem::replace(&mut left, DevResource::none()));
            continue;
        }
        let (share, rest) = with_splittable(&left, |input| {
            let (mut share, mut rest, mut groups) = (DevResource::none(), DevResource::none(), 1);
            let [share_at, rest_at] = [&raw mut share as usize, &raw mut rest as usize];
            cu::dev_sm_resource_split_by_count(share_at, &mut groups, input, rest_at, SMALL_SHARES, wish)?;
            if groups == 1 { Ok((share, rest)) } else { Err(HipError::INVALID_VALUE) }
        })?;
        shares.push(share);
        left = rest;
    }
    Ok((shares, left))
}

cuda_api! {
    fn hipDeviceGetDevResource(ordinal: i32, out: Out<DevResource>, kind: i32) {
        check_kind(kind)?;
        out.set(whole(device(ordinal)?.index)?)
    }
    fn hipDevSmResourceSplitByCount(result: Out<DevResource>, groups: Out<u32>, input: In<DevResource>, remainder: Out<DevResource>, flags: u32, min_units: u32) {
        let input = input.get()?;
        let mut count = if result.is_given() { groups.read()? } else { groups.check().map(|()| 0)? };
        let asked = count;
        with_splittable(&input, |input| {
            let mut found = asked;
            cu::dev_sm_resource_split_by_count(result.address(), &mut found, input, remainder.address(), flags, min_units)?;
            Ok(found)
        })
        .map(|found| count = found)?;
        groups.set(count)
    }
    fn hipDevSmResourceSplit(result: Out<DevResource>, groups: u32, input: In<DevResource>, remainder: Out<DevResource>, flags: u32, params: Out<GroupParams>) {
        if flags != 0 || groups == 0 {
            return Err(HipError::INVALID_VALUE);
        }
        let mut wanted = In::<GroupParams>::from_address(params.address()).array(groups as usize)?;
        let wishes: Vec<u32> = wanted.iter().map(|group| group.units).collect();
        let (shares, left) = split(&input.get()?, &wishes)?;
        for (group, share) in wanted.iter_mut().zip(&shares) {
            group.units = share.units;
        }
        params.set_array(&wanted)?;
        if result.is_given() {
            result.set_array(&shares)?;
        }
        remainder.set_if_given(left);
        Ok(())
    }
    fn hipDevResourceGenerateDesc(out: Out<usize>, resources: In<DevResource>, count: u32) {
        out.check()?;
        let resources = resources.array(count as usize)?;
        resources.iter().try_for_each(|resource| resource.unit_count().map(drop))?;
        out.set(got(|description| cu::dev_resource_generate_desc(description, resources.as_ptr(), count))?)
    }
    fn hipDeviceGetExecutionCtx(out: Out<usize>, ordinal: i32) {
        out.check()?;
        let index = device(ordinal)?.index;
        let mut own = lock(&OWN);
        let known = own.get_or_insert_default();
        if let Some(handle) = known.get(&index) {
            return out.set(*handle);
        }
        let handle = new_context(index, 0)?;
        known.insert(index, handle);
        out.set(handle)
    }
    fn hipGreenCtxCreate(out: Out<usize>, description: usize, ordinal: i32, flags: u32) {
        out.check()?;
        if flags != 0 {
            return Err(HipError::INVALID_VALUE);
        }
        let device = device(ordinal)?;
        let green = got(|green| cu::green_ctx_create(green, description, device.id, DEFAULT_STREAM))?;
        out.set(new_context(device.index, green)?)
    }
    fn hipExecutionCtxDestroy(handle: usize) {
        let context = resolve(handle)?;
        if context.green == 0 {
            return Err(HipError::INVALID_VALUE);
        }
        CONTEXTS.remove(handle);
        cu::green_ctx_destroy(context.green)
    }
    fn hipExecutionCtxStreamCreate(out: Out<usize>, handle: usize, flags: u32, priority: i32) {
        out.check()?;
        let context = resolve(handle)?;
        if flags > NON_BLOCKING {
            return Err(HipError::INVALID_VALUE);
        }
        let made = if context.green == 0 {
            with_device(context.device, || got(|stream| cu::stream_create(stream, flags, 0)))?
        } else {
            let made = got(|stream| cu::green_ctx_stream_create(stream, context.green, NON_BLOCKING, priority.min(0)))?;
            lock(&GREEN_STREAMS).get_or_insert_default().insert(made, context.green);
            made
        };
        STREAMS.add(made, context.device);
        out.set(made)
    }
    fn hipExecutionCtxGetDevResource(handle: usize, out: Out<DevResource>, kind: i32) {
        check_kind(kind)?;
        let context = resolve(handle)?;
        out.set(if context.green == 0 { whole(context.device)? } else { of_green(context.green)? })
    }
    fn hipStreamGetDevResource(handle: usize, out: Out<DevResource>, kind: i32) {
        check_kind(kind)?;
        let stream = stream(handle)?;
        let green = lock(&GREEN_STREAMS).as_ref().and_then(|known| known.get(&stream.handle).copied());
        out.set(green.map_or_else(|| whole(stream.device), of_green)?)
    }
    fn hipExecutionCtxGetDevice(out: Out<i32>, handle: usize) { out.set(resolve(handle)?.device as i32) }
    fn hipExecutionCtxGetId(handle: usize, out: Out<u64>) { out.set(resolve(handle)?.id) }
    fn hipExecutionCtxSynchronize(handle: usize) {
        let context = resolve(handle)?;
        with_device(context.device, || {
            if context.green == 0 {
                // Its green contexts' streams too.
                return cu::ctx_synchronize();
            }
            /// `CU_EVENT_DISABLE_TIMING`.
            const NO_TIMING: u32 = 2;
            let event = got(|event| cu::event_create(event, NO_TIMING))?;
            let result = cu::green_ctx_record_event(context.green, event).and_then(|()| cu::event_synchronize(event));
            cu::event_destroy(event).and(result)
        })
    }
    fn hipExecutionCtxRecordEvent(handle: usize, event_handle: usize) {
        let (context, event) = (resolve(handle)?, event(event_handle)?);
        if context.green == 0 { cu::ctx_record_event(device_at(context.device)?.context()?, event) } else { cu::green_ctx_record_event(context.green, event) }
    }
    fn hipExecutionCtxWaitEvent(handle: usize, event_handle: usize) {
        let (context, event) = (resolve(handle)?, event(event_handle)?);
        if context.green == 0 { cu::ctx_wait_event(device_at(context.device)?.context()?, event) } else { cu::green_ctx_wait_event(context.green, event) }
    }
}

/// A stream that ended: its handle may come again, in another context.
pub(super) fn forget_stream(handle: usize) {
    if let Some(known) = lock(&GREEN_STREAMS).as_mut() {
        known.remove(&handle);
    }
}
