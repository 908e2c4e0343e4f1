//! Streams, callbacks and stream memory operations.

use crate::abi::{BatchMemOpParams, HostFn};
use crate::api::{In, Out, hip_api};
use crate::capture;
use crate::error::{HipError, HipResult};
use crate::memory;
use crate::op::{Op, StreamCallback, ValueWidth, WaitCondition, WaitValue, WriteValue};
use crate::registry::lock;
use crate::stream::{self, DefaultStream, LEGACY_HANDLE, PER_THREAD_HANDLE};
use crate::thread_state::current_device;
use std::sync::atomic::Ordering;

/// Highest priority HIP gives a stream; the lowest is 1.
const GREATEST_PRIORITY: i32 = -1;
const LEAST_PRIORITY: i32 = 1;
/// Access policy window, synchronisation policy, priority, memory synchronisation domain map and domain.
const STREAM_ATTRIBUTES: [i32; 5] = [1, 3, 8, 9, 10];

fn create(out: Out<usize>, flags: u32, priority: i32) -> HipResult {
    out.check()?;
    let priority = priority.clamp(GREATEST_PRIORITY, LEAST_PRIORITY);
    out.set(stream::create(current_device()?, flags, priority)?)
}

fn query(handle: usize, null: DefaultStream) -> HipResult {
    let stream = stream::resolve(handle, null)?;
    if stream.capturing.load(Ordering::Acquire) {
        return capture::reject(&stream, HipError::CAPTURE_UNSUPPORTED);
    }
    capture::check_implicit(&stream)?;
    if stream.is_idle() { Ok(()) } else { Err(HipError::NOT_READY) }
}

fn synchronize(handle: usize, null: DefaultStream) -> HipResult {
    let stream = stream::resolve(handle, null)?;
    if stream.capturing.load(Ordering::Acquire) {
        return capture::reject(&stream, HipError::CAPTURE_UNSUPPORTED);
    }
    capture::check_implicit(&stream)?;
    stream.synchronize();
    crate::slow::stream_sync();
    crate::pool::on_synchronize(stream.device);
    Ok(())
}

fn launch_host_function(handle: usize, null: DefaultStream, function: Option<HostFn>, user_data: usize) -> HipResult {
    let function = function.ok_or(HipError::INVALID_VALUE)?;
    stream::resolve(handle, null)?.submit(Op::HostFunction { function, user_data }).map(drop)
}

fn add_callback(
    handle: usize,
    null: DefaultStream,
    function: Option<StreamCallback>,
    user_data: usize,
    flags: u32,
) -> HipResult {
    let function = function.ok_or(HipError::INVALID_VALUE)?;
    if flags != 0 {
        return Err(HipError::INVALID_VALUE);
    }
    let stream = stream::resolve(handle, null)?;
    if stream.capturing.load(Ordering::Acquire) {
        return capture::reject(&stream, HipError::CAPTURE_UNSUPPORTED);
    }
    stream.submit(Op::Callback { function, stream: handle, user_data }).map(drop)
}

fn flags_of(handle: usize, null: DefaultStream, out: Out<u32>) -> HipResult {
    out.set(stream::resolve(handle, null)?.flags)
}

fn priority_of(handle: usize, null: DefaultStream, out: Out<i32>) -> HipResult {
    out.set(stream::resolve(handle, null)?.priority)
}

fn value_address(address: usize, width: ValueWidth) -> HipResult {
    let known = memory::find_range(address, width.len_bytes()).is_some();
    if known && address.is_multiple_of(width.len_bytes()) { Ok(()) } else { Err(HipError::INVALID_VALUE) }
}

fn wait_value(address: usize, width: ValueWidth, value: u64, mask: u64, flags: u32) -> HipResult<Op> {
    value_address(address, width)?;
    let condition = WaitCondition::from_flags(flags).ok_or(HipError::INVALID_VALUE)?;
    Ok(Op::WaitValue(WaitValue { address, width, value, mask, condition }))
}

fn write_value(address: usize, width: ValueWidth, value: u64) -> HipResult<Op> {
    value_address(address, width)?;
    Ok(Op::WriteValue(WriteValue { address, width, value }))
}

fn submit(handle: usize, op: Op) -> HipResult {
    stream::resolve(handle, DefaultStream::Legacy)?.submit(op).map(drop)
}

/// One operation of a batch, by its `hipStreamBatchMemOpType`; barriers and flushes need nothing here, as a queue
/// runs in order and its memory is coherent.
pub(crate) fn batch_op(params: &BatchMemOpParams) -> HipResult<Option<Op>> {
    match params.operation {
        1 => {
            wait_value(params.address, ValueWidth::Bits32, params.value & 0xFFFF_FFFF, u64::MAX, params.flags).map(Some)
        }
        2 => write_value(params.address, ValueWidth::Bits32, params.value).map(Some),
        4 => wait_value(params.address, ValueWidth::Bits64, params.value, u64::MAX, params.flags).map(Some),
        5 => write_value(params.address, ValueWidth::Bits64, params.value).map(Some),
        3 | 6 => Ok(None),
        _ => Err(HipError::INVALID_VALUE),
    }
}

hip_api! {
    fn hipStreamCreate(out: Out<usize>) { create(out, 0, 0) }
    fn hipStreamCreateWithFlags(out: Out<usize>, flags: u32) { create(out, flags, 0) }
    fn hipStreamCreateWithPriority(out: Out<usize>, flags: u32, priority: i32) { create(out, flags, priority) }
    fn hipExtStreamCreateWithCUMask(out: Out<usize>, mask_words: u32, mask: In<u32>) {
        if mask_words == 0 || mask.is_null() {
            return Err(HipError::INVALID_VALUE);
        }
        create(out, 0, 0)
    }
    fn hipExtStreamGetCUMask(handle: usize, mask_words: u32, mask: Out<u32>) {
        stream::resolve(handle, DefaultStream::Legacy)?;
        if mask_words == 0 {
            return Err(HipError::INVALID_VALUE);
        }
        mask.set_array(&vec![u32::MAX; mask_words as usize])
    }
    fn hipStreamDestroy(handle: usize) { stream::destroy(handle) }
    fn hipStreamQuery(handle: usize) { query(handle, DefaultStream::Legacy) }
    fn hipStreamQuery_spt(handle: usize) { query(handle, DefaultStream::PerThread) }
    fn hipStreamSynchronize(handle: usize) { synchronize(handle, DefaultStream::Legacy) }
    fn hipStreamSynchronize_spt(handle: usize) { synchronize(handle, DefaultStream::PerThread) }
    fn hipStreamGetFlags(handle: usize, out: Out<u32>) { flags_of(handle, DefaultStream::Legacy, out) }
    fn hipStreamGetFlags_spt(handle: usize, out: Out<u32>) { flags_of(handle, DefaultStream::PerThread, out) }
    fn hipStreamGetPriority(handle: usize, out: Out<i32>) { priority_of(handle, DefaultStream::Legacy, out) }
    fn hipStreamGetPriority_spt(handle: usize, out: Out<i32>) { priority_of(handle, DefaultStream::PerThread, out) }
    fn hipStreamGetDevice(handle: usize, out: Out<i32>) { out.set(stream::resolve(handle, DefaultStream::Legacy)?.device as i32) }
    fn hipStreamGetId(handle: usize, out: Out<u64>) { out.set(stream::resolve(handle, DefaultStream::Legacy)?.id) }
    fn hipDeviceGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) {
        least.set_if_given(LEAST_PRIORITY);
        greatest.set_if_given(GREATEST_PRIORITY);
        Ok(())
    }
    fn hipStreamAttachMemAsync(handle: usize, address: usize, _len_bytes: usize, flags: u32) {
        let stream = stream::resolve(handle, DefaultStream::Legacy)?;
        if !matches!(flags, 1 | 2 | 4) || memory::find(address).is_none() {
            return Err(HipError::INVALID_VALUE);
        }
        stream.submit(Op::Nothing).map(drop)
    }
    fn hipStreamCopyAttributes(to: usize, from: usize) {
        let to = stream::resolve(to, DefaultStream::Legacy)?;
        let from = lock(&stream::resolve(from, DefaultStream::Legacy)?.attributes).clone();
        *lock(&to.attributes) = from;
        Ok(())
    }
    fn hipStreamSetAttribute(handle: usize, attribute: i32, value: In<[u8; 64]>) {
        let stream = stream::resolve(handle, DefaultStream::Legacy)?;
        if !STREAM_ATTRIBUTES.contains(&attribute) {
            return Err(HipError::INVALID_VALUE);
        }
        lock(&stream.attributes).insert(attribute, value.get()?);
        Ok(())
    }
    fn hipStreamGetAttribute(handle: usize, attribute: i32, value: Out<[u8; 64]>) {
        value.check()?;
        let stream = stream::resolve(handle, DefaultStream::Legacy)?;
        if !STREAM_ATTRIBUTES.contains(&attribute) {
            return Err(HipError::INVALID_VALUE);
        }
        let unset = match attribute {
            // hipSyncPolicyAuto.
            3 => 1,
            8 => stream.priority,
            _ => 0,
        };
        let mut default = [0; 64];
        default[..4].copy_from_slice(&unset.to_le_bytes());
        let set = lock(&stream.attributes).get(&attribute).copied();
        value.set(set.unwrap_or(default))
    }
    fn hipLaunchHostFunc(handle: usize, function: Option<HostFn>, user_data: usize) {
        launch_host_function(handle, DefaultStream::Legacy, function, user_data)
    }
    fn hipLaunchHostFunc_spt(handle: usize, function: Option<HostFn>, user_data: usize) {
        launch_host_function(handle, DefaultStream::PerThread, function, user_data)
    }
    fn hipStreamAddCallback(handle: usize, function: Option<StreamCallback>, user_data: usize, flags: u32) {
        add_callback(handle, DefaultStream::Legacy, function, user_data, flags)
    }
    fn hipStreamAddCallback_spt(handle: usize, function: Option<StreamCallback>, user_data: usize, flags: u32) {
        add_callback(handle, DefaultStream::PerThread, function, user_data, flags)
    }
    fn hipStreamWaitValue32(handle: usize, address: usize, value: u32, flags: u32, mask: u32) {
        submit(handle, wait_value(address, ValueWidth::Bits32, value.into(), mask.into(), flags)?)
    }
    fn hipStreamWaitValue64(handle: usize, address: usize, value: u64, flags: u32, mask: u64) {
        submit(handle, wait_value(address, ValueWidth::Bits64, value, mask, flags)?)
    }
    fn hipStreamWriteValue32(handle: usize, address: usize, value: u32, _flags: u32) {
        submit(handle, write_value(address, ValueWidth::Bits32, value.into())?)
    }
    fn hipStreamWriteValue64(handle: usize, address: usize, value: u64, _flags: u32) {
        submit(handle, write_value(address, ValueWidth::Bits64, value)?)
    }
    fn hipStreamBatchMemOp(handle: usize, count: u32, operations: In<BatchMemOpParams>, flags: u32) {
        let stream = stream::resolve(handle, DefaultStream::Legacy)?;
        if flags != 0 || count == 0 || count > 256 {
            return Err(HipError::INVALID_VALUE);
        }
        let operations = operations.array(count as usize)?.iter().map(batch_op).collect::<HipResult<Vec<_>>>()?;
        operations.into_iter().flatten().try_for_each(|operation| stream.submit(operation).map(drop))
    }
}

/// `hipGetStreamDeviceId`: the device's index instead of an error code; -1 for a stream that is none.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hipGetStreamDeviceId(handle: usize) -> i32 {
    if crate::cuda::is_active() {
        return crate::cuda::stream_device(handle);
    }
    let device = match handle {
        0 | LEGACY_HANDLE | PER_THREAD_HANDLE => current_device().map(|device| device.index),
        _ => stream::resolve(handle, DefaultStream::Legacy).map(|stream| stream.device),
    };
    device.map_or(-1, |device| device as i32)
}
