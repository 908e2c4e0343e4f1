//! Events.

use crate::api::{Out, hip_api};
use crate::error::{HipError, HipResult};
use crate::event::{self, Scope};
use crate::stream::{self, DefaultStream};
use crate::thread_state::current_device;

fn record(event: usize, stream: usize, null: DefaultStream, flags: u32) -> HipResult {
    let event = event::resolve(event)?;
    event.record(&stream::resolve(stream, null)?, Scope::from_flags(flags)?)
}

fn wait(stream: usize, event: usize, flags: u32, null: DefaultStream) -> HipResult {
    let event = event::resolve(event)?;
    event.wait_in(&stream::resolve(stream, null)?, Scope::from_flags(flags)?)
}

fn create(out: Out<usize>, flags: u32) -> HipResult {
    out.check()?;
    out.set(event::create(current_device()?.index, flags)?)
}

hip_api! {
    fn hipEventCreate(out: Out<usize>) { create(out, 0) }
    fn hipEventCreateWithFlags(out: Out<usize>, flags: u32) { create(out, flags) }
    fn hipEventDestroy(event: usize) { event::destroy(event) }
    fn hipEventRecord(event: usize, stream: usize) { record(event, stream, DefaultStream::Legacy, 0) }
    fn hipEventRecord_spt(event: usize, stream: usize) { record(event, stream, DefaultStream::PerThread, 0) }
    fn hipEventRecordWithFlags(event: usize, stream: usize, flags: u32) { record(event, stream, DefaultStream::Legacy, flags) }
    fn hipStreamWaitEvent(stream: usize, event: usize, flags: u32) { wait(stream, event, flags, DefaultStream::Legacy) }
    fn hipStreamWaitEvent_spt(stream: usize, event: usize, flags: u32) { wait(stream, event, flags, DefaultStream::PerThread) }
    fn hipEventQuery(event: usize) {
        match event::resolve(event)?.mark()? {
            Some(mark) if !mark.is_reached() => Err(HipError::NOT_READY),
            _ => Ok(()),
        }
    }
    fn hipEventSynchronize(event: usize) {
        let event = event::resolve(event)?;
        event.synchronize()?;
        crate::pool::on_synchronize(event.device);
        Ok(())
    }
    fn hipEventElapsedTime(ms: Out<f32>, start: usize, stop: usize) {
        ms.check()?;
        let (start, stop) = (event::resolve(start)?, event::resolve(stop)?);
        if start.device != stop.device {
            return Err(HipError::INVALID_HANDLE);
        }
        ms.set(event::elapsed_ms(&start, &stop)?)
    }
}
