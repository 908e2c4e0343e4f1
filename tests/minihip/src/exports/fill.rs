//! Memsets.

use crate::abi::{Extent, PitchedPtr};
use crate::api::hip_api;
use crate::capture;
use crate::error::{HipError, HipResult};
use crate::fill::{self, Fill, WaitFor};
use crate::stream::{self, DefaultStream};

/// A spelling without a stream: the null stream, and no asynchrony where host memory is written.
fn on_default(null: DefaultStream, fill: Fill) -> HipResult {
    capture::forbid_sync_call()?;
    fill::submit(&stream::resolve(0, null)?, fill, WaitFor::HostMemory)
}

fn on_stream(handle: usize, null: DefaultStream, fill: Fill) -> HipResult {
    fill::submit(&stream::resolve(handle, null)?, fill, WaitFor::Nothing)
}

fn bytes(dst: usize, value: i32, len_bytes: usize) -> Fill {
    Fill::linear(dst, value as u32 & 0xFF, 1, len_bytes)
}

fn rows(dst: usize, pitch: usize, value: i32, width: usize, height: usize) -> Fill {
    Fill::pitched(dst, value as u32 & 0xFF, 1, width, height, pitch)
}

fn wide_rows(dst: usize, pitch: usize, value: u32, element_bytes: usize, width: usize, height: usize) -> Fill {
    Fill::pitched(dst, value, element_bytes, width, height, pitch)
}

fn volume(target: PitchedPtr, value: i32, extent: Extent) -> HipResult<Fill> {
    let slice_pitch = target.pitch.checked_mul(target.ysize).ok_or(HipError::INVALID_VALUE)?;
    Ok(Fill {
        dst: target.ptr,
        value: value as u32 & 0xFF,
        element_bytes: 1,
        width: extent.width,
        height: extent.height,
        depth: extent.depth,
        pitch: target.pitch,
        slice_pitch,
    })
}

use DefaultStream::{Legacy, PerThread};

hip_api! {
    fn hipMemset(dst: usize, value: i32, len_bytes: usize) { on_default(Legacy, bytes(dst, value, len_bytes)) }
    fn hipMemset_spt(dst: usize, value: i32, len_bytes: usize) { on_default(PerThread, bytes(dst, value, len_bytes)) }
    fn hipMemsetAsync(dst: usize, value: i32, len_bytes: usize, stream: usize) { on_stream(stream, Legacy, bytes(dst, value, len_bytes)) }
    fn hipMemsetAsync_spt(dst: usize, value: i32, len_bytes: usize, stream: usize) { on_stream(stream, PerThread, bytes(dst, value, len_bytes)) }
    fn hipMemsetD8(dst: usize, value: u8, count: usize) { on_default(Legacy, Fill::linear(dst, value.into(), 1, count)) }
    fn hipMemsetD8Async(dst: usize, value: u8, count: usize, stream: usize) { on_stream(stream, Legacy, Fill::linear(dst, value.into(), 1, count)) }
    fn hipMemsetD16(dst: usize, value: u16, count: usize) { on_default(Legacy, Fill::linear(dst, value.into(), 2, count)) }
    fn hipMemsetD16Async(dst: usize, value: u16, count: usize, stream: usize) { on_stream(stream, Legacy, Fill::linear(dst, value.into(), 2, count)) }
    fn hipMemsetD32(dst: usize, value: i32, count: usize) { on_default(Legacy, Fill::linear(dst, value as u32, 4, count)) }
    fn hipMemsetD32Async(dst: usize, value: i32, count: usize, stream: usize) { on_stream(stream, Legacy, Fill::linear(dst, value as u32, 4, count)) }
    fn hipMemset2D(dst: usize, pitch: usize, value: i32, width: usize, height: usize) { on_default(Legacy, rows(dst, pitch, value, width, height)) }
    fn hipMemset2D_spt(dst: usize, pitch: usize, value: i32, width: usize, height: usize) { on_default(PerThread, rows(dst, pitch, value, width, height)) }
    fn hipMemset2DAsync(dst: usize, pitch: usize, value: i32, width: usize, height: usize, stream: usize) {
        on_stream(stream, Legacy, rows(dst, pitch, value, width, height))
    }
    fn hipMemset2DAsync_spt(dst: usize, pitch: usize, value: i32, width: usize, height: usize, stream: usize) {
        on_stream(stream, PerThread, rows(dst, pitch, value, width, height))
    }
    fn hipMemset3D(target: PitchedPtr, value: i32, extent: Extent) { on_default(Legacy, volume(target, value, extent)?) }
    fn hipMemset3D_spt(target: PitchedPtr, value: i32, extent: Extent) { on_default(PerThread, volume(target, value, extent)?) }
    fn hipMemset3DAsync(target: PitchedPtr, value: i32, extent: Extent, stream: usize) { on_stream(stream, Legacy, volume(target, value, extent)?) }
    fn hipMemset3DAsync_spt(target: PitchedPtr, value: i32, extent: Extent, stream: usize) { on_stream(stream, PerThread, volume(target, value, extent)?) }
    fn hipMemsetD2D8(dst: usize, pitch: usize, value: u8, width: usize, height: usize) { on_default(Legacy, wide_rows(dst, pitch, value.into(), 1, width, height)) }
    fn hipMemsetD2D16(dst: usize, pitch: usize, value: u16, width: usize, height: usize) { on_default(Legacy, wide_rows(dst, pitch, value.into(), 2, width, height)) }
    fn hipMemsetD2D32(dst: usize, pitch: usize, value: u32, width: usize, height: usize) { on_default(Legacy, wide_rows(dst, pitch, value, 4, width, height)) }
    fn hipMemsetD2D8Async(dst: usize, pitch: usize, value: u8, width: usize, height: usize, stream: usize) {
        on_stream(stream, Legacy, wide_rows(dst, pitch, value.into(), 1, width, height))
    }
    fn hipMemsetD2D16Async(dst: usize, pitch: usize, value: u16, width: usize, height: usize, stream: usize) {
        on_stream(stream, Legacy, wide_rows(dst, pitch, value.into(), 2, width, height))
    }
    fn hipMemsetD2D32Async(dst: usize, pitch: usize, value: u32, width: usize, height: usize, stream: usize) {
        on_stream(stream, Legacy, wide_rows(dst, pitch, value, 4, width, height))
    }
}
