//! Events.

use super::context::current_index;
use super::cuda_api;
use super::driver::{self as cu, got};
use super::handles::{EVENTS, event, on, spt};
use crate::api::Out;
use crate::error::{HipError, HipResult};

/// Blocking, no timing, interprocess: the driver's bits are the same.
const DRIVER_FLAGS: u32 = 0x7;
/// No system fence, release to device, release to system: hints about caches the driver has no part in.
const FENCE_FLAGS: u32 = 0xE000_0000;

fn create(out: Out<usize>, flags: u32) -> HipResult {
    out.check()?;
    if flags & !(DRIVER_FLAGS | FENCE_FLAGS) != 0 {
        return Err(HipError::INVALID_VALUE);
    }
    let handle = got(|event| cu::event_create(event, flags & DRIVER_FLAGS))?;
    EVENTS.add(handle, current_index());
    out.set(handle)
}

fn record(handle: usize, stream: usize) -> HipResult {
    let event = event(handle)?;
    on(stream, |stream| cu::event_record(event, stream))
}

fn wait(stream: usize, handle: usize, flags: u32) -> HipResult {
    let event = event(handle)?;
    on(stream, |stream| cu::stream_wait_event(stream, event, flags))
}

cuda_api! {
    fn hipEventCreate(out: Out<usize>) { create(out, 0) }
    fn hipEventCreateWithFlags(out: Out<usize>, flags: u32) { create(out, flags) }
    fn hipEventDestroy(handle: usize) {
        EVENTS.remove(handle)?;
        cu::event_destroy(handle)
    }
    fn hipEventRecord(event: usize, stream: usize) { record(event, stream) }
    fn hipEventRecord_spt(event: usize, stream: usize) { record(event, spt(stream)) }
    fn hipEventRecordWithFlags(handle: usize, stream: usize, flags: u32) {
        let event = event(handle)?;
        on(stream, |stream| cu::event_record_with_flags(event, stream, flags))
    }
    fn hipStreamWaitEvent(stream: usize, event: usize, flags: u32) { wait(stream, event, flags) }
    fn hipStreamWaitEvent_spt(stream: usize, event: usize, flags: u32) { wait(spt(stream), event, flags) }
    fn hipEventQuery(handle: usize) { cu::event_query(event(handle)?) }
    fn hipEventSynchronize(handle: usize) { cu::event_synchronize(event(handle)?) }
    fn hipEventElapsedTime(ms: Out<f32>, start: usize, stop: usize) {
        ms.check()?;
        let (start, stop) = (event(start)?, event(stop)?);
        if EVENTS.device(start)? != EVENTS.device(stop)? {
            return Err(HipError::INVALID_HANDLE);
        }
        ms.set(got(|ms| cu::event_elapsed_time(ms, start, stop))?)
    }
}
