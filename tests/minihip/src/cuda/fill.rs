//! Memsets.

use super::cuda_api;
use super::driver as cu;
use super::handles::{on, spt};
use crate::abi::{Extent, PitchedPtr};
use crate::error::{HipError, HipResult};

const LEGACY: usize = 0;

/// A value of 1, 2 or 4 bytes, repeated.
#[derive(Clone, Copy, Debug)]
enum Value {
    Bits8(u8),
    Bits16(u16),
    Bits32(u32),
}

impl Value {
    /// `hipMemset`'s int, of which one byte counts.
    fn byte(value: i32) -> Self {
        Value::Bits8(value as u8)
    }
}

fn enqueue(dst: usize, value: Value, count: usize, stream: usize) -> HipResult {
    on(stream, |stream| {
        if count == 0 {
            return Ok(());
        }
        match value {
            Value::Bits8(value) => cu::memset_d8_async(dst, value, count, stream),
            Value::Bits16(value) => cu::memset_d16_async(dst, value, count, stream),
            Value::Bits32(value) => cu::memset_d32_async(dst, value, count, stream),
        }
    })
}

/// A spelling without a stream: the legacy default stream, done for host memory when it returns.
fn blocking(dst: usize, value: Value, count: usize) -> HipResult {
    if count == 0 {
        return Ok(());
    }
    match value {
        Value::Bits8(value) => cu::memset_d8(dst, value, count),
        Value::Bits16(value) => cu::memset_d16(dst, value, count),
        Value::Bits32(value) => cu::memset_d32(dst, value, count),
    }
}

fn enqueue_rows(dst: usize, pitch: usize, value: Value, width: usize, height: usize, stream: usize) -> HipResult {
    on(stream, |stream| {
        if width == 0 || height == 0 {
            return Ok(());
        }
        match value {
            Value::Bits8(value) => cu::memset_2d_d8_async(dst, pitch, value, width, height, stream),
            Value::Bits16(value) => cu::memset_2d_d16_async(dst, pitch, value, width, height, stream),
            Value::Bits32(value) => cu::memset_2d_d32_async(dst, pitch, value, width, height, stream),
        }
    })
}

/// Slices that follow each other without a gap are so many more rows; others are filled one by one.
fn enqueue_volume(target: PitchedPtr, value: i32, extent: Extent, stream: usize) -> HipResult {
    let value = Value::byte(value);
    let rows = extent.height.checked_mul(extent.depth).ok_or(HipError::INVALID_VALUE)?;
    if target.ysize == extent.height {
        return enqueue_rows(target.ptr, target.pitch, value, extent.width, rows, stream);
    }
    let slice = target.pitch.checked_mul(target.ysize).ok_or(HipError::INVALID_VALUE)?;
    (0..extent.depth).try_for_each(|z| {
        let offset = z.checked_mul(slice).and_then(|offset| offset.checked_add(target.ptr));
        enqueue_rows(offset.ok_or(HipError::INVALID_VALUE)?, target.pitch, value, extent.width, extent.height, stream)
    })
}

use Value::{Bits8, Bits16, Bits32};

cuda_api! {
    fn hipMemset(dst: usize, value: i32, len_bytes: usize) { blocking(dst, Value::byte(value), len_bytes) }
    fn hipMemset_spt(dst: usize, value: i32, len_bytes: usize) { enqueue(dst, Value::byte(value), len_bytes, spt(LEGACY)) }
    fn hipMemsetAsync(dst: usize, value: i32, len_bytes: usize, stream: usize) { enqueue(dst, Value::byte(value), len_bytes, stream) }
    fn hipMemsetAsync_spt(dst: usize, value: i32, len_bytes: usize, stream: usize) { enqueue(dst, Value::byte(value), len_bytes, spt(stream)) }
    fn hipMemsetD8(dst: usize, value: u8, count: usize) { blocking(dst, Bits8(value), count) }
    fn hipMemsetD8Async(dst: usize, value: u8, count: usize, stream: usize) { enqueue(dst, Bits8(value), count, stream) }
    fn hipMemsetD16(dst: usize, value: u16, count: usize) { blocking(dst, Bits16(value), count) }
    fn hipMemsetD16Async(dst: usize, value: u16, count: usize, stream: usize) { enqueue(dst, Bits16(value), count, stream) }
    fn hipMemsetD32(dst: usize, value: i32, count: usize) { blocking(dst, Bits32(value as u32), count) }
    fn hipMemsetD32Async(dst: usize, value: i32, count: usize, stream: usize) { enqueue(dst, Bits32(value as u32), count, stream) }
    fn hipMemset2D(dst: usize, pitch: usize, value: i32, width: usize, height: usize) { enqueue_rows(dst, pitch, Value::byte(value), width, height, LEGACY) }
    fn hipMemset2D_spt(dst: usize, pitch: usize, value: i32, width: usize, height: usize) { enqueue_rows(dst, pitch, Value::byte(value), width, height, spt(LEGACY)) }
    fn hipMemset2DAsync(dst: usize, pitch: usize, value: i32, width: usize, height: usize, stream: usize) {
        enqueue_rows(dst, pitch, Value::byte(value), width, height, stream)
    }
    fn hipMemset2DAsync_spt(dst: usize, pitch: usize, value: i32, width: usize, height: usize, stream: usize) {
        enqueue_rows(dst, pitch, Value::byte(value), width, height, spt(stream))
    }
    fn hipMemset3D(target: PitchedPtr, value: i32, extent: Extent) { enqueue_volume(target, value, extent, LEGACY) }
    fn hipMemset3D_spt(target: PitchedPtr, value: i32, extent: Extent) { enqueue_volume(target, value, extent, spt(LEGACY)) }
    fn hipMemset3DAsync(target: PitchedPtr, value: i32, extent: Extent, stream: usize) { enqueue_volume(target, value, extent, stream) }
    fn hipMemset3DAsync_spt(target: PitchedPtr, value: i32, extent: Extent, stream: usize) { enqueue_volume(target, value, extent, spt(stream)) }
    fn hipMemsetD2D8(dst: usize, pitch: usize, value: u8, width: usize, height: usize) { enqueue_rows(dst, pitch, Bits8(value), width, height, LEGACY) }
    fn hipMemsetD2D16(dst: usize, pitch: usize, value: u16, width: usize, height: usize) { enqueue_rows(dst, pitch, Bits16(value), width, height, LEGACY) }
    fn hipMemsetD2D32(dst: usize, pitch: usize, value: u32, width: usize, height: usize) { enqueue_rows(dst, pitch, Bits32(value), width, height, LEGACY) }
    fn hipMemsetD2D8Async(dst: usize, pitch: usize, value: u8, width: usize, height: usize, stream: usize) {
        enqueue_rows(dst, pitch, Bits8(value), width, height, stream)
    }
    fn hipMemsetD2D16Async(dst: usize, pitch: usize, value: u16, width: usize, height: usize, stream: usize) {
        enqueue_rows(dst, pitch, Bits16(value), width, height, stream)
    }
    fn hipMemsetD2D32Async(dst: usize, pitch: usize, value: u32, width: usize, height: usize, stream: usize) {
        enqueue_rows(dst, pitch, Bits32(value), width, height, stream)
    }
}
