//! Streams, callbacks and stream memory operations.

use super::context::{current_index, device_at};
use super::cuda_api;
use super::driver::{self as cu, got};
use super::handles::{self, STREAMS, on, spt};
use super::masked_wait::{self, Width};
use crate::abi::HostFn;
use crate::api::{In, Out};
use crate::error::{HipError, HipResult};
use crate::op::StreamCallback;
use crate::registry::lock;
use std::collections::HashMap;
use std::sync::Mutex;

/// HIP's range: 1 low, 0 normal, -1 high. CUDA's ends at 0, so low and normal are the same to the driver.
const GREATEST_PRIORITY: i32 = -1;
const LEAST_PRIORITY: i32 = 1;

/// Priorities streams were made with, where they are not normal.
static PRIORITIES: Mutex<Option<HashMap<usize, i32>>> = Mutex::new(None);

/// CUDA's priority for one of HIP's, given the driver's greatest.
fn driver_priority(priority: i32, greatest: i32) -> i32 {
    if priority < 0 { greatest } else { 0 }
}

fn create(out: Out<usize>, flags: u32, priority: i32) -> HipResult {
    out.check()?;
    if flags > 1 {
        return Err(HipError::INVALID_VALUE);
    }
    let priority = priority.clamp(GREATEST_PRIORITY, LEAST_PRIORITY);
    let (mut least, mut greatest) = (0, 0);
    if priority < 0 {
        cu::ctx_get_stream_priority_range(&mut least, &mut greatest)?;
    }
    let handle = got(|stream| cu::stream_create(stream, flags, driver_priority(priority, greatest)))?;
    if priority != 0 {
        lock(&PRIORITIES).get_or_insert_default().insert(handle, priority);
    }
    STREAMS.add(handle, current_index());
    out.set(handle)
}

/// Device index of a stream, -1 for a handle that is none.
pub(crate) fn device_of(handle: usize) -> i32 {
    handles::stream(handle).map_or(-1, |stream| stream.device as i32)
}

fn flags_of(handle: usize, out: Out<u32>) -> HipResult {
    out.check()?;
    out.set(on(handle, |stream| got(|flags| cu::stream_get_flags(stream, flags)))?)
}

fn priority_of(handle: usize, out: Out<i32>) -> HipResult {
    out.check()?;
    handles::stream(handle)?;
    out.set(lock(&PRIORITIES).as_ref().and_then(|known| known.get(&handle).copied()).unwrap_or(0))
}

fn launch_host_function(handle: usize, function: Option<HostFn>, user_data: usize) -> HipResult {
    let function = function.ok_or(HipError::INVALID_VALUE)?;
    on(handle, |stream| cu::launch_host_func(stream, function, user_data))
}

/// What a callback of the program needs when the driver calls it.
struct Callback {
    function: StreamCallback,
    stream: usize,
    user_data: usize,
}

/// Passes a callback on with the stream as the program named it and the status as HIP numbers it.
extern "C" fn call_back(_stream: usize, status: i32, boxed: usize) {
    // SAFETY: `add_callback` made this address from a box and gave it to the driver, which calls back once.
    let callback = unsafe { Box::from_raw(boxed as *mut Callback) };
    let status = if status == 0 { 0 } else { super::error::from_cuda(status).0 };
    (callback.function)(callback.stream, status, callback.user_data);
}

fn add_callback(handle: usize, function: Option<StreamCallback>, user_data: usize, flags: u32) -> HipResult {
    let function = function.ok_or(HipError::INVALID_VALUE)?;
    if flags != 0 {
        return Err(HipError::INVALID_VALUE);
    }
    let boxed = Box::into_raw(Box::new(Callback { function, stream: handle, user_data }));
    on(handle, |stream| cu::stream_add_callback(stream, call_back, boxed as usize, 0)).inspect_err(|_| {
        // SAFETY: made above from a box; the driver refused it and will not call back.
        drop(unsafe { Box::from_raw(boxed) });
    })
}

cuda_api! {
    fn hipStreamCreate(out: Out<usize>) { create(out, 0, 0) }
    fn hipStreamCreateWithFlags(out: Out<usize>, flags: u32) { create(out, flags, 0) }
    fn hipStreamCreateWithPriority(out: Out<usize>, flags: u32, priority: i32) { create(out, flags, priority) }
    fn hipExtStreamCreateWithCUMask(out: Out<usize>, mask_words: u32, mask: In<u32>) {
        // Any mask is honoured by a stream that may use all multiprocessors; the mask is a hint for performance.
        if mask_words == 0 || mask.is_null() {
            return Err(HipError::INVALID_VALUE);
        }
        create(out, 0, 0)
    }
    fn hipExtStreamGetCUMask(handle: usize, mask_words: u32, mask: Out<u32>) {
        handles::stream(handle)?;
        if mask_words == 0 {
            return Err(HipError::INVALID_VALUE);
        }
        mask.set_array(&vec![u32::MAX; mask_words as usize])
    }
    fn hipStreamDestroy(handle: usize) {
        STREAMS.remove(handle)?;
        if let Some(known) = lock(&PRIORITIES).as_mut() {
            known.remove(&handle);
        }
        super::execution_context::forget_stream(handle);
        cu::stream_destroy(handle)
    }
    fn hipStreamQuery(handle: usize) { on(handle, cu::stream_query) }
    fn hipStreamQuery_spt(handle: usize) { on(spt(handle), cu::stream_query) }
    fn hipStreamSynchronize(handle: usize) { on(handle, cu::stream_synchronize) }
    fn hipStreamSynchronize_spt(handle: usize) { on(spt(handle), cu::stream_synchronize) }
    fn hipStreamGetFlags(handle: usize, out: Out<u32>) { flags_of(handle, out) }
    fn hipStreamGetFlags_spt(handle: usize, out: Out<u32>) { flags_of(spt(handle), out) }
    fn hipStreamGetPriority(handle: usize, out: Out<i32>) { priority_of(handle, out) }
    fn hipStreamGetPriority_spt(handle: usize, out: Out<i32>) { priority_of(spt(handle), out) }
    fn hipStreamGetDevice(handle: usize, out: Out<i32>) {
        out.check()?;
        let index = handles::stream(handle)?.device;
        out.set(device_at(index)?.index as i32)
    }
    fn hipStreamGetId(handle: usize, out: Out<u64>) {
        out.check()?;
        out.set(on(handle, |stream| got(|id| cu::stream_get_id(stream, id)))?)
    }
    fn hipDeviceGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) {
        least.set_if_given(LEAST_PRIORITY);
        greatest.set_if_given(GREATEST_PRIORITY);
        Ok(())
    }
    fn hipStreamAttachMemAsync(handle: usize, address: usize, len_bytes: usize, flags: u32) {
        on(handle, |stream| cu::stream_attach_mem_async(stream, address, len_bytes, flags))
    }
    fn hipStreamCopyAttributes(to: usize, from: usize) {
        handles::stream(to)?;
        handles::stream(from).map(drop)
    }
    // Attributes and their numbers are the driver's.
    fn hipStreamSetAttribute(handle: usize, attribute: i32, value: In<[u8; 64]>) {
        value.get()?;
        on(handle, |stream| cu::stream_set_attribute(stream, attribute, value.address()))
    }
    fn hipStreamGetAttribute(handle: usize, attribute: i32, value: Out<[u8; 64]>) {
        value.check()?;
        on(handle, |stream| cu::stream_get_attribute(stream, attribute, value.address()))
    }
    fn hipLaunchHostFunc(handle: usize, function: Option<HostFn>, user_data: usize) {
        launch_host_function(handle, function, user_data)
    }
    fn hipLaunchHostFunc_spt(handle: usize, function: Option<HostFn>, user_data: usize) {
        launch_host_function(spt(handle), function, user_data)
    }
    fn hipStreamAddCallback(handle: usize, function: Option<StreamCallback>, user_data: usize, flags: u32) {
        add_callback(handle, function, user_data, flags)
    }
    fn hipStreamAddCallback_spt(handle: usize, function: Option<StreamCallback>, user_data: usize, flags: u32) {
        add_callback(spt(handle), function, user_data, flags)
    }
    fn hipStreamWaitValue32(handle: usize, address: usize, value: u32, flags: u32, mask: u32) {
        masked_wait::wait(handle, address, Width::Bits32, value.into(), mask.into(), flags)
    }
    fn hipStreamWaitValue64(handle: usize, address: usize, value: u64, flags: u32, mask: u64) {
        masked_wait::wait(handle, address, Width::Bits64, value, mask, flags)
    }
    // HIP has no flags for writes; the driver's default has the memory barrier HIP's has.
    fn hipStreamWriteValue32(handle: usize, address: usize, value: u32, _flags: u32) {
        on(handle, |stream| cu::stream_write_value32(stream, address, value, 0))
    }
    fn hipStreamWriteValue64(handle: usize, address: usize, value: u64, _flags: u32) {
        on(handle, |stream| cu::stream_write_value64(stream, address, value, 0))
    }
    fn hipStreamBatchMemOp(handle: usize, count: u32, operations: In<crate::abi::BatchMemOpParams>, flags: u32) {
        on(handle, |stream| cu::stream_batch_mem_op(stream, count, operations.address(), flags))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_high_priority_differs_for_the_driver() {
        assert_eq!([-1, 0, 1].map(|priority| driver_priority(priority, -5)), [-5, 0, 0]);
    }
}
