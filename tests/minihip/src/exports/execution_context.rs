//! Device resources and execution contexts.

use crate::api::{In, Out, hip_api};
use crate::capture;
use crate::device::device_by_ordinal;
use crate::error::{HipError, HipResult};
use crate::event;
use crate::execution_context::{self as contexts, DevResource, RESOURCE_SM};
use crate::stream::{self, DefaultStream};

/// `hipDevSmResourceGroupParams`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupParams {
    pub(crate) units: u32,
    coscheduled: u32,
    preferred_coscheduled: u32,
    flags: u32,
    reserved: [u32; 12],
}

/// Only compute units are shared out.
fn of_type(kind: i32, resource: DevResource) -> HipResult<DevResource> {
    if kind == RESOURCE_SM { Ok(resource) } else { Err(HipError::INVALID_VALUE) }
}

fn rest(units: u32) -> DevResource {
    if units == 0 { DevResource::none() } else { DevResource::units(units) }
}

hip_api! {
    fn hipDeviceGetDevResource(ordinal: i32, out: Out<DevResource>, kind: i32) {
        device_by_ordinal(ordinal)?;
        out.set(of_type(kind, DevResource::whole())?)
    }
    fn hipDevSmResourceSplitByCount(result: Out<DevResource>, groups: Out<u32>, input: In<DevResource>, remainder: Out<DevResource>, flags: u32, min_units: u32) {
        if flags > 3 {
            return Err(HipError::INVALID_VALUE);
        }
        let units = input.get()?.own_unit_count()?;
        let share = contexts::whole_groups(min_units);
        let most = units / share;
        // Without room for results the question is how many groups there can be.
        if !result.is_given() {
            return groups.set(most);
        }
        let count = groups.read()?.min(most);
        let (shares, left) = contexts::split(units, &vec![share; count as usize])?;
        result.set_array(&shares.into_iter().map(DevResource::units).collect::<Vec<_>>())?;
        remainder.set_if_given(rest(left));
        groups.set(count)
    }
    fn hipDevSmResourceSplit(result: Out<DevResource>, groups: u32, input: In<DevResource>, remainder: Out<DevResource>, flags: u32, params: Out<GroupParams>) {
        if flags != 0 || groups == 0 {
            return Err(HipError::INVALID_VALUE);
        }
        let mut wanted = In::<GroupParams>::from_address(params.address()).array(groups as usize)?;
        let wishes: Vec<u32> = wanted.iter().map(|group| group.units).collect();
        let (shares, left) = contexts::split(input.get()?.own_unit_count()?, &wishes)?;
        for (group, share) in wanted.iter_mut().zip(&shares) {
            group.units = *share;
        }
        params.set_array(&wanted)?;
        if result.is_given() {
            result.set_array(&shares.into_iter().map(DevResource::units).collect::<Vec<_>>())?;
        }
        remainder.set_if_given(rest(left));
        Ok(())
    }
    fn hipDevResourceGenerateDesc(out: Out<usize>, resources: In<DevResource>, count: u32) {
        out.check()?;
        let mut units = 0_u32;
        for resource in resources.array(count as usize)? {
            units = units.checked_add(resource.own_unit_count()?).ok_or(HipError::INVALID_VALUE)?;
        }
        if units == 0 || units > DevResource::whole().units {
            return Err(HipError::INVALID_VALUE);
        }
        out.set(contexts::describe(DevResource::units(units))?)
    }
    fn hipDeviceGetExecutionCtx(out: Out<usize>, ordinal: i32) {
        out.check()?;
        out.set(contexts::of_device(device_by_ordinal(ordinal)?)?)
    }
    fn hipGreenCtxCreate(out: Out<usize>, description: usize, ordinal: i32, flags: u32) {
        out.check()?;
        if flags != 0 {
            return Err(HipError::INVALID_VALUE);
        }
        out.set(contexts::create(device_by_ordinal(ordinal)?, contexts::described(description)?)?)
    }
    fn hipExecutionCtxDestroy(handle: usize) {
        capture::forbid_unsafe_call()?;
        contexts::destroy(handle)
    }
    fn hipExecutionCtxStreamCreate(out: Out<usize>, handle: usize, flags: u32, priority: i32) {
        out.check()?;
        out.set(contexts::resolve(handle)?.create_stream(flags, priority)?)
    }
    fn hipExecutionCtxGetDevResource(handle: usize, out: Out<DevResource>, kind: i32) {
        out.set(of_type(kind, contexts::resolve(handle)?.resource)?)
    }
    fn hipExecutionCtxGetDevice(out: Out<i32>, handle: usize) { out.set(contexts::resolve(handle)?.device.index as i32) }
    fn hipExecutionCtxGetId(handle: usize, out: Out<u64>) { out.set(contexts::resolve(handle)?.id) }
    fn hipExecutionCtxSynchronize(handle: usize) {
        let context = contexts::resolve(handle)?;
        capture::forbid_unsafe_call()?;
        context.synchronize();
        Ok(())
    }
    fn hipExecutionCtxRecordEvent(handle: usize, event: usize) { contexts::resolve(handle)?.record(&event::resolve(event)?) }
    fn hipExecutionCtxWaitEvent(handle: usize, event: usize) { contexts::resolve(handle)?.wait(&event::resolve(event)?) }
    fn hipStreamGetDevResource(handle: usize, out: Out<DevResource>, kind: i32) {
        out.set(of_type(kind, contexts::share_of(&*stream::resolve(handle, DefaultStream::Legacy)?))?)
    }
}
