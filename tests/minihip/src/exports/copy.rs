//! Copies.

use crate::abi::{ChannelFormatDesc, DrvMemcpy3D, Memcpy2D, Memcpy3DParms, Memcpy3DPeerParms, PitchedPtr, Pos};
use crate::api::{In, Out, hip_api};
use crate::capture;
use crate::copy::{self, Blocking, Shape};
use crate::device::device_by_ordinal;
use crate::error::{HipError, HipResult};
use crate::fat_binary;
use crate::stream::{self, DefaultStream};
use crate::thread_state::current_device;
use DefaultStream::{Legacy, PerThread};

const HOST_TO_DEVICE: i32 = 1;
const DEVICE_TO_HOST: i32 = 2;
const DEVICE_TO_DEVICE: i32 = 3;
const DEFAULT: i32 = 4;

/// Resolved addresses, shape and kind of any copy spelling.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) dst: usize,
    pub(crate) src: usize,
    pub(crate) shape: Shape,
    pub(crate) kind: i32,
}

impl Plan {
    fn linear(dst: usize, src: usize, len_bytes: usize, kind: i32) -> Self {
        Self { dst, src, shape: Shape::linear(len_bytes), kind }
    }

    fn rows(
        dst: usize,
        dst_pitch: usize,
        src: usize,
        src_pitch: usize,
        width: usize,
        height: usize,
        kind: i32,
    ) -> HipResult<Self> {
        if width > dst_pitch || width > src_pitch {
            return Err(HipError::INVALID_PITCH);
        }
        Ok(Self { dst, src, shape: Shape::pitched(width, height, src_pitch, dst_pitch), kind })
    }

    /// `hipMemcpy3D`, between linear memory only: arrays are not offered by this runtime.
    pub(crate) fn volume(params: &Memcpy3DParms) -> HipResult<Self> {
        if params.src_array != 0 || params.dst_array != 0 {
            return Err(HipError::NOT_SUPPORTED);
        }
        let (width, height) = (params.extent.width, params.extent.height);
        let src_slice = slice_bytes(&params.src_ptr, height)?;
        let dst_slice = slice_bytes(&params.dst_ptr, height)?;
        Ok(Self {
            dst: place(&params.dst_ptr, &params.dst_pos, dst_slice)?,
            src: place(&params.src_ptr, &params.src_pos, src_slice)?,
            shape: Shape {
                width,
                height,
                depth: params.extent.depth,
                src_pitch: params.src_ptr.pitch,
                src_slice,
                dst_pitch: params.dst_ptr.pitch,
                dst_slice,
            },
            kind: params.kind,
        })
    }

    fn peer_volume(params: &Memcpy3DPeerParms) -> HipResult<Self> {
        device_by_ordinal(params.src_device)?;
        device_by_ordinal(params.dst_device)?;
        Self::volume(&Memcpy3DParms {
            src_array: params.src_array,
            src_pos: params.src_pos,
            src_ptr: params.src_ptr,
            dst_array: params.dst_array,
            dst_pos: params.dst_pos,
            dst_ptr: params.dst_ptr,
            extent: params.extent,
            kind: DEFAULT,
        })
    }

    /// `hip_Memcpy2D`: each side names a memory type and fills the field for it.
    fn driver_rows(params: &Memcpy2D) -> HipResult<Self> {
        let src = side(params.src_memory_type, params.src_host, params.src_device)?;
        let dst = side(params.dst_memory_type, params.dst_host, params.dst_device)?;
        let src_pitch = if params.src_pitch == 0 { params.width_bytes } else { params.src_pitch };
        let dst_pitch = if params.dst_pitch == 0 { params.width_bytes } else { params.dst_pitch };
        let src = offset(src, params.src_x_bytes, params.src_y, src_pitch)?;
        let dst = offset(dst, params.dst_x_bytes, params.dst_y, dst_pitch)?;
        Self::rows(dst, dst_pitch, src, src_pitch, params.width_bytes, params.height, DEFAULT)
    }

    /// `HIP_MEMCPY3D`.
    pub(crate) fn driver_volume(params: &DrvMemcpy3D) -> HipResult<Self> {
        let (width, height) = (params.width_bytes, params.height);
        let or_width = |pitch: usize| if pitch == 0 { width } else { pitch };
        let (src_pitch, dst_pitch) = (or_width(params.src_pitch), or_width(params.dst_pitch));
        let slice = |pitch: usize, rows: usize| {
            pitch.checked_mul(if rows == 0 { height } else { rows }).ok_or(HipError::INVALID_VALUE)
        };
        let (src_slice, dst_slice) = (slice(src_pitch, params.src_height)?, slice(dst_pitch, params.dst_height)?);
        let src = side(params.src_memory_type, params.src_host, params.src_device)?;
        let dst = side(params.dst_memory_type, params.dst_host, params.dst_device)?;
        let src = offset(offset(src, params.src_x_bytes, params.src_y, src_pitch)?, 0, params.src_z, src_slice)?;
        let dst = offset(offset(dst, params.dst_x_bytes, params.dst_y, dst_pitch)?, 0, params.dst_z, dst_slice)?;
        Ok(Self {
            dst,
            src,
            shape: Shape { width, height, depth: params.depth, src_pitch, src_slice, dst_pitch, dst_slice },
            kind: DEFAULT,
        })
    }

    fn on_default(self, null: DefaultStream) -> HipResult {
        capture::forbid_sync_call()?;
        self.submit(0, null, Blocking::Host)
    }

    fn submit(self, handle: usize, null: DefaultStream, blocking: Blocking) -> HipResult {
        let stream = stream::resolve(handle, null)?;
        copy::submit(&stream, self.dst, self.src, self.shape, self.kind, blocking)
    }

    fn on_stream(self, handle: usize, null: DefaultStream) -> HipResult {
        self.submit(handle, null, Blocking::Never)
    }
}

fn slice_bytes(target: &PitchedPtr, height: usize) -> HipResult<usize> {
    target.pitch.checked_mul(target.ysize.max(height)).ok_or(HipError::INVALID_VALUE)
}

fn place(target: &PitchedPtr, position: &Pos, slice_bytes: usize) -> HipResult<usize> {
    offset(offset(target.ptr, position.x, position.y, target.pitch)?, 0, position.z, slice_bytes)
}

fn offset(address: usize, bytes: usize, steps: usize, step_bytes: usize) -> HipResult<usize> {
    steps
        .checked_mul(step_bytes)
        .and_then(|skipped| address.checked_add(bytes)?.checked_add(skipped))
        .ok_or(HipError::INVALID_VALUE)
}

/// The address a memory type selects; both numberings of `hipMemoryType` (before and since HIP 6) are told apart by
/// which field is filled.
fn side(memory_type: i32, host: usize, device: usize) -> HipResult<usize> {
    match memory_type {
        10 => Err(HipError::NOT_SUPPORTED),
        0..=3 | 11 => Ok(if host != 0 && (device == 0 || memory_type <= 1) { host } else { device }),
        _ => Err(HipError::INVALID_VALUE),
    }
}

/// A range of the variable behind a host symbol on the current device.
fn symbol_range(symbol: usize, len_bytes: usize, offset_bytes: usize) -> HipResult<usize> {
    let (address, size) = fat_binary::variable(symbol, current_device()?.index)?;
    match offset_bytes.checked_add(len_bytes) {
        Some(end) if end <= size => Ok(address + offset_bytes),
        _ => Err(HipError::INVALID_VALUE),
    }
}

/// A copy to a symbol. Fails with `hipErrorInvalidMemcpyDirection` on a kind that cannot end at a device.
pub(crate) fn to_symbol(
    symbol: usize,
    src: usize,
    len_bytes: usize,
    offset_bytes: usize,
    kind: i32,
) -> HipResult<Plan> {
    match kind {
        HOST_TO_DEVICE | DEVICE_TO_DEVICE | DEFAULT => {
            Ok(Plan::linear(symbol_range(symbol, len_bytes, offset_bytes)?, src, len_bytes, kind))
        }
        _ => Err(HipError::INVALID_DIRECTION),
    }
}

/// A copy from a symbol. Fails with `hipErrorInvalidMemcpyDirection` on a kind that cannot start at a device.
pub(crate) fn from_symbol(
    dst: usize,
    symbol: usize,
    len_bytes: usize,
    offset_bytes: usize,
    kind: i32,
) -> HipResult<Plan> {
    match kind {
        DEVICE_TO_HOST | DEVICE_TO_DEVICE | DEFAULT => {
            Ok(Plan::linear(dst, symbol_range(symbol, len_bytes, offset_bytes)?, len_bytes, kind))
        }
        _ => Err(HipError::INVALID_DIRECTION),
    }
}

fn peer(dst: usize, dst_device: i32, src: usize, src_device: i32, len_bytes: usize) -> HipResult<Plan> {
    device_by_ordinal(dst_device)?;
    device_by_ordinal(src_device)?;
    Ok(Plan::linear(dst, src, len_bytes, DEVICE_TO_DEVICE))
}

/// `hipMemcpyAttributes` as far as a batch needs them: nothing (order and hints are free to ignore).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemcpyAttributes {
    words: [u32; 6],
}

hip_api! {
    fn hipMemcpy(dst: usize, src: usize, len_bytes: usize, kind: i32) { Plan::linear(dst, src, len_bytes, kind).on_default(Legacy) }
    fn hipMemcpy_spt(dst: usize, src: usize, len_bytes: usize, kind: i32) { Plan::linear(dst, src, len_bytes, kind).on_default(PerThread) }
    fn hipMemcpyAsync(dst: usize, src: usize, len_bytes: usize, kind: i32, stream: usize) { Plan::linear(dst, src, len_bytes, kind).on_stream(stream, Legacy) }
    fn hipMemcpyAsync_spt(dst: usize, src: usize, len_bytes: usize, kind: i32, stream: usize) { Plan::linear(dst, src, len_bytes, kind).on_stream(stream, PerThread) }
    fn hipMemcpyWithStream(dst: usize, src: usize, len_bytes: usize, kind: i32, stream: usize) {
        capture::forbid_sync_call()?;
        Plan::linear(dst, src, len_bytes, kind).submit(stream, Legacy, Blocking::Always)
    }
    fn hipMemcpyHtoD(dst: usize, src: usize, len_bytes: usize) { Plan::linear(dst, src, len_bytes, HOST_TO_DEVICE).on_default(Legacy) }
    fn hipMemcpyDtoH(dst: usize, src: usize, len_bytes: usize) { Plan::linear(dst, src, len_bytes, DEVICE_TO_HOST).on_default(Legacy) }
    fn hipMemcpyDtoD(dst: usize, src: usize, len_bytes: usize) { Plan::linear(dst, src, len_bytes, DEVICE_TO_DEVICE).on_default(Legacy) }
    fn hipMemcpyHtoDAsync(dst: usize, src: usize, len_bytes: usize, stream: usize) { Plan::linear(dst, src, len_bytes, HOST_TO_DEVICE).on_stream(stream, Legacy) }
    fn hipMemcpyDtoHAsync(dst: usize, src: usize, len_bytes: usize, stream: usize) { Plan::linear(dst, src, len_bytes, DEVICE_TO_HOST).on_stream(stream, Legacy) }
    fn hipMemcpyDtoDAsync(dst: usize, src: usize, len_bytes: usize, stream: usize) { Plan::linear(dst, src, len_bytes, DEVICE_TO_DEVICE).on_stream(stream, Legacy) }
    fn hipMemcpyPeer(dst: usize, dst_device: i32, src: usize, src_device: i32, len_bytes: usize) {
        peer(dst, dst_device, src, src_device, len_bytes)?.on_default(Legacy)
    }
    fn hipMemcpyPeerAsync(dst: usize, dst_device: i32, src: usize, src_device: i32, len_bytes: usize, stream: usize) {
        peer(dst, dst_device, src, src_device, len_bytes)?.on_stream(stream, Legacy)
    }
    fn hipMemcpy2D(dst: usize, dpitch: usize, src: usize, spitch: usize, width: usize, height: usize, kind: i32) {
        Plan::rows(dst, dpitch, src, spitch, width, height, kind)?.on_default(Legacy)
    }
    fn hipMemcpy2D_spt(dst: usize, dpitch: usize, src: usize, spitch: usize, width: usize, height: usize, kind: i32) {
        Plan::rows(dst, dpitch, src, spitch, width, height, kind)?.on_default(PerThread)
    }
    fn hipMemcpy2DAsync(dst: usize, dpitch: usize, src: usize, spitch: usize, width: usize, height: usize, kind: i32, stream: usize) {
        Plan::rows(dst, dpitch, src, spitch, width, height, kind)?.on_stream(stream, Legacy)
    }
    fn hipMemcpy2DAsync_spt(dst: usize, dpitch: usize, src: usize, spitch: usize, width: usize, height: usize, kind: i32, stream: usize) {
        Plan::rows(dst, dpitch, src, spitch, width, height, kind)?.on_stream(stream, PerThread)
    }
    fn hipMemcpyParam2D(params: In<Memcpy2D>) { Plan::driver_rows(&params.get()?)?.on_default(Legacy) }
    fn hipDrvMemcpy2DUnaligned(params: In<Memcpy2D>) { Plan::driver_rows(&params.get()?)?.on_default(Legacy) }
    fn hipMemcpyParam2DAsync(params: In<Memcpy2D>, stream: usize) { Plan::driver_rows(&params.get()?)?.on_stream(stream, Legacy) }
    fn hipMemcpy3D(params: In<Memcpy3DParms>) { Plan::volume(&params.get()?)?.on_default(Legacy) }
    fn hipMemcpy3D_spt(params: In<Memcpy3DParms>) { Plan::volume(&params.get()?)?.on_default(PerThread) }
    fn hipMemcpy3DAsync(params: In<Memcpy3DParms>, stream: usize) { Plan::volume(&params.get()?)?.on_stream(stream, Legacy) }
    fn hipMemcpy3DAsync_spt(params: In<Memcpy3DParms>, stream: usize) { Plan::volume(&params.get()?)?.on_stream(stream, PerThread) }
    fn hipMemcpy3DPeer(params: In<Memcpy3DPeerParms>) { Plan::peer_volume(&params.get()?)?.on_default(Legacy) }
    fn hipMemcpy3DPeerAsync(params: In<Memcpy3DPeerParms>, stream: usize) { Plan::peer_volume(&params.get()?)?.on_stream(stream, Legacy) }
    fn hipDrvMemcpy3D(params: In<DrvMemcpy3D>) { Plan::driver_volume(&params.get()?)?.on_default(Legacy) }
    fn hipDrvMemcpy3DAsync(params: In<DrvMemcpy3D>, stream: usize) { Plan::driver_volume(&params.get()?)?.on_stream(stream, Legacy) }
    fn hipMemcpyToSymbol(symbol: usize, src: usize, len_bytes: usize, offset: usize, kind: i32) {
        to_symbol(symbol, src, len_bytes, offset, kind)?.on_default(Legacy)
    }
    fn hipMemcpyToSymbol_spt(symbol: usize, src: usize, len_bytes: usize, offset: usize, kind: i32) {
        to_symbol(symbol, src, len_bytes, offset, kind)?.on_default(PerThread)
    }
    fn hipMemcpyToSymbolAsync(symbol: usize, src: usize, len_bytes: usize, offset: usize, kind: i32, stream: usize) {
        to_symbol(symbol, src, len_bytes, offset, kind)?.on_stream(stream, Legacy)
    }
    fn hipMemcpyToSymbolAsync_spt(symbol: usize, src: usize, len_bytes: usize, offset: usize, kind: i32, stream: usize) {
        to_symbol(symbol, src, len_bytes, offset, kind)?.on_stream(stream, PerThread)
    }
    fn hipMemcpyFromSymbol(dst: usize, symbol: usize, len_bytes: usize, offset: usize, kind: i32) {
        from_symbol(dst, symbol, len_bytes, offset, kind)?.on_default(Legacy)
    }
    fn hipMemcpyFromSymbol_spt(dst: usize, symbol: usize, len_bytes: usize, offset: usize, kind: i32) {
        from_symbol(dst, symbol, len_bytes, offset, kind)?.on_default(PerThread)
    }
    fn hipMemcpyFromSymbolAsync(dst: usize, symbol: usize, len_bytes: usize, offset: usize, kind: i32, stream: usize) {
        from_symbol(dst, symbol, len_bytes, offset, kind)?.on_stream(stream, Legacy)
    }
    fn hipMemcpyFromSymbolAsync_spt(dst: usize, symbol: usize, len_bytes: usize, offset: usize, kind: i32, stream: usize) {
        from_symbol(dst, symbol, len_bytes, offset, kind)?.on_stream(stream, PerThread)
    }
    fn hipGetSymbolAddress(out: Out<usize>, symbol: usize) {
        out.check()?;
        out.set(fat_binary::variable(symbol, current_device()?.index)?.0)
    }
    fn hipGetSymbolSize(out: Out<usize>, symbol: usize) {
        out.check()?;
        out.set(fat_binary::variable(symbol, current_device()?.index)?.1)
    }
    fn hipMemcpyBatchAsync(dsts: In<usize>, srcs: In<usize>, sizes: In<usize>, count: usize, _attributes: In<MemcpyAttributes>,
                           _attribute_indices: In<usize>, _attribute_count: usize, fail_index: Out<usize>, stream: usize) {
        if count == 0 || stream == 0 {
            return Err(HipError::INVALID_VALUE);
        }
        for i in 0..count {
            let plan = Plan::linear(dsts.at(i)?, srcs.at(i)?, sizes.at(i)?, DEFAULT);
            if let Err(error) = plan.on_stream(stream, Legacy) {
                fail_index.set_if_given(i);
                return Err(error);
            }
        }
        Ok(())
    }
}

/// `hipCreateChannelDesc`: a struct by value instead of an error code.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hipCreateChannelDesc(x: i32, y: i32, z: i32, w: i32, kind: i32) -> ChannelFormatDesc {
    ChannelFormatDesc { x, y, z, w, kind }
}
