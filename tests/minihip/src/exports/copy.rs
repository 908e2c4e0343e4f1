//! Copies.

use crate::abi::{ChannelFormatDesc, DrvMemcpy3D, Memcpy2D, Memcpy3DParms, Memcpy3DPeerParms, PitchedPtr, Pos};
use crate::api::{In, Out, hip_api};
use crate::array::{self, Array};
use crate::capture;
use crate::copy::{self, Blocking, Shape};
use crate::device::device_by_ordinal;
use crate::error::{HipError, HipResult};
use crate::fat_binary;
use crate::stream::{self, DefaultStream};
use crate::thread_state::current_device;
use DefaultStream::{Legacy, PerThread};

pub(crate) const HOST_TO_DEVICE: i32 = 1;
pub(crate) const DEVICE_TO_HOST: i32 = 2;
pub(crate) const DEVICE_TO_DEVICE: i32 = 3;
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
    pub(crate) fn linear(dst: usize, src: usize, len_bytes: usize, kind: i32) -> Self {
        Self { dst, src, shape: Shape::linear(len_bytes), kind }
    }

    pub(crate) fn rows(
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

    /// `hipMemcpy3D`: where an array is involved, widths count its elements.
    pub(crate) fn volume(params: &Memcpy3DParms) -> HipResult<Self> {
        let array_of = |handle: usize| if handle == 0 { Ok(None) } else { array::resolve(handle).map(Some) };
        let (src_array, dst_array) = (array_of(params.src_array)?, array_of(params.dst_array)?);
        let element_bytes = match src_array.as_ref().or(dst_array.as_ref()) {
            Some(array) => array.element_bytes()?,
            None => 1,
        };
        let width = params.extent.width.checked_mul(element_bytes).ok_or(HipError::INVALID_VALUE)?;
        let extent = [width, params.extent.height, params.extent.depth];
        let src = Side::of_volume(src_array.as_deref(), &params.src_ptr, &params.src_pos, extent)?;
        let dst = Side::of_volume(dst_array.as_deref(), &params.dst_ptr, &params.dst_pos, extent)?;
        Ok(Self::between(&dst, &src, extent, params.kind))
    }

    fn between(dst: &Side, src: &Side, [width, height, depth]: [usize; 3], kind: i32) -> Self {
        let shape = Shape {
            width,
            height,
            depth,
            src_pitch: src.pitch,
            src_slice: src.slice,
            dst_pitch: dst.pitch,
            dst_slice: dst.slice,
        };
        Self { dst: dst.address, src: src.address, shape, kind }
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
    pub(crate) fn driver_rows(params: &Memcpy2D) -> HipResult<Self> {
        let extent = [params.width_bytes, params.height, 1];
        let src = DriverSide {
            memory_type: params.src_memory_type,
            host: params.src_host,
            device: params.src_device,
            array: params.src_array,
            pitch: params.src_pitch,
            height: 0,
            origin: [params.src_x_bytes, params.src_y, 0],
        };
        let dst = DriverSide {
            memory_type: params.dst_memory_type,
            host: params.dst_host,
            device: params.dst_device,
            array: params.dst_array,
            pitch: params.dst_pitch,
            height: 0,
            origin: [params.dst_x_bytes, params.dst_y, 0],
        };
        Ok(Self::between(&dst.resolve(extent)?, &src.resolve(extent)?, extent, DEFAULT))
    }

    /// `HIP_MEMCPY3D`.
    pub(crate) fn driver_volume(params: &DrvMemcpy3D) -> HipResult<Self> {
        let extent = [params.width_bytes, params.height, params.depth];
        let src = DriverSide {
            memory_type: params.src_memory_type,
            host: params.src_host,
            device: params.src_device,
            array: params.src_array,
            pitch: params.src_pitch,
            height: params.src_height,
            origin: [params.src_x_bytes, params.src_y, params.src_z],
        };
        let dst = DriverSide {
            memory_type: params.dst_memory_type,
            host: params.dst_host,
            device: params.dst_device,
            array: params.dst_array,
            pitch: params.dst_pitch,
            height: params.dst_height,
            origin: [params.dst_x_bytes, params.dst_y, params.dst_z],
        };
        Ok(Self::between(&dst.resolve(extent)?, &src.resolve(extent)?, extent, DEFAULT))
    }

    pub(crate) fn on_default(self, null: DefaultStream) -> HipResult {
        capture::forbid_sync_call()?;
        self.submit(0, null, Blocking::Host)
    }

    fn submit(self, handle: usize, null: DefaultStream, blocking: Blocking) -> HipResult {
        let stream = stream::resolve(handle, null)?;
        copy::submit(&stream, self.dst, self.src, self.shape, self.kind, blocking)
    }

    pub(crate) fn on_stream(self, handle: usize, null: DefaultStream) -> HipResult {
        self.submit(handle, null, Blocking::Never)
    }
}

/// One side of a copy of rows and slices.
#[derive(Clone, Copy, Debug)]
struct Side {
    address: usize,
    pitch: usize,
    slice: usize,
}

impl Side {
    /// A side of `hipMemcpy3D`: an array, or linear memory whose position counts bytes.
    fn of_volume(array: Option<&Array>, linear: &PitchedPtr, position: &Pos, extent: [usize; 3]) -> HipResult<Self> {
        if let Some(array) = array {
            let x = position.x.checked_mul(array.element_bytes()?).ok_or(HipError::INVALID_VALUE)?;
            let address = array.place(x, position.y, position.z, extent)?;
            return Ok(Self { address, pitch: array.pitch()?, slice: array.slice()? });
        }
        let slice = linear.pitch.checked_mul(linear.ysize.max(extent[1])).ok_or(HipError::INVALID_VALUE)?;
        let address = offset(linear.ptr, [position.x, position.y, position.z], linear.pitch, slice)?;
        Ok(Self { address, pitch: linear.pitch, slice })
    }
}

/// One side of a driver copy, as its struct describes it.
#[derive(Clone, Copy, Debug)]
struct DriverSide {
    memory_type: i32,
    host: usize,
    device: usize,
    array: usize,
    pitch: usize,
    height: usize,
    origin: [usize; 3],
}

impl DriverSide {
    /// Both numberings of `hipMemoryType` (before and since HIP 6) are told apart by which field is filled.
    fn resolve(&self, extent: [usize; 3]) -> HipResult<Side> {
        let [x, y, z] = self.origin;
        if self.array != 0 && self.host == 0 && self.device == 0 {
            let array = array::resolve(self.array)?;
            return Ok(Side { address: array.place(x, y, z, extent)?, pitch: array.pitch()?, slice: array.slice()? });
        }
        let base = match self.memory_type {
            0..=3 | 11 if self.host != 0 && (self.device == 0 || self.memory_type <= 1) => self.host,
            0..=3 | 11 => self.device,
            _ => return Err(HipError::INVALID_VALUE),
        };
        let pitch = if self.pitch == 0 { extent[0] } else { self.pitch };
        let rows = if self.height == 0 { extent[1] } else { self.height };
        let slice = pitch.checked_mul(rows).ok_or(HipError::INVALID_VALUE)?;
        Ok(Side { address: offset(base, self.origin, pitch, slice)?, pitch, slice })
    }
}

fn offset(address: usize, [x, y, z]: [usize; 3], pitch: usize, slice: usize) -> HipResult<usize> {
    let rows = y.checked_mul(pitch);
    let slices = z.checked_mul(slice);
    rows.zip(slices)
        .and_then(|(rows, slices)| address.checked_add(x)?.checked_add(rows)?.checked_add(slices))
        .ok_or(HipError::INVALID_VALUE)
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
