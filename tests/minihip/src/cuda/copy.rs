//! Copies.
//!
//! The driver finds out from the address where memory is; HIP's copy kind says no more than that and is ignored, except
//! where it contradicts a symbol. Sizes are checked against the allocation before a large copy starts: HIP fails, where
//! the driver might read a program's memory up to the first page that is not there.

use super::abi::{DEVICE, HOST, Memcpy3D, UNIFIED};
use super::context::{current_index, device};
use super::cuda_api;
use super::driver as cu;
use super::fat_binary::variable;
use super::handles::{on, spt};
use super::memory::{IS_MANAGED, MEMORY_TYPE, pointer_attribute};
use crate::abi::{DrvMemcpy3D, Memcpy2D, Memcpy3DParms, Memcpy3DPeerParms, PitchedPtr, Pos};
use crate::api::{In, Out};
use crate::copy::Shape;
use crate::error::{HipError, HipResult};
use crate::exports::{MemcpyAttributes, Plan};

/// Copies from this size on are checked against the sizes of both allocations.
const CHECKED_BYTES: usize = 1 << 20;

/// Whether an allocation the driver knows at `address` has `len_bytes` from there; memory it does not know is taken.
fn check_range(address: usize, len_bytes: usize) -> HipResult {
    let (mut base, mut size) = (0, 0);
    if cu::mem_get_address_range(&mut base, &mut size, address).is_err()
        || base.saturating_add(size) >= address.saturating_add(len_bytes)
    {
        return Ok(());
    }
    // Mapped ranges may run on in the next mapping.
    let next = base.saturating_add(size);
    check_range_from(next, address.saturating_add(len_bytes))
}

/// The same for what lies after a mapping's end: it must be known up to `end`.
fn check_range_from(mut next: usize, end: usize) -> HipResult {
    while next < end {
        let (mut base, mut size) = (0, 0);
        cu::mem_get_address_range(&mut base, &mut size, next).map_err(|_| HipError::INVALID_VALUE)?;
        let reached = base.saturating_add(size);
        if reached <= next {
            return Err(HipError::INVALID_VALUE);
        }
        next = reached;
    }
    Ok(())
}

#[inline]
fn check_linear(dst: usize, src: usize, len_bytes: usize) -> HipResult {
    if dst == 0 || src == 0 {
        return Err(HipError::INVALID_VALUE);
    }
    if len_bytes >= CHECKED_BYTES {
        check_range(dst, len_bytes)?;
        check_range(src, len_bytes)?;
    }
    Ok(())
}

/// `hipMemcpy` and the like: through the legacy default stream, done when the driver's own blocking copy is.
fn blocking(dst: usize, src: usize, len_bytes: usize) -> HipResult {
    if len_bytes == 0 {
        return Ok(());
    }
    check_linear(dst, src, len_bytes)?;
    cu::memcpy(dst, src, len_bytes)
}

/// A blocking copy through a stream.
fn blocking_on(dst: usize, src: usize, len_bytes: usize, stream: usize) -> HipResult {
    enqueue(dst, src, len_bytes, stream)?;
    on(stream, cu::stream_synchronize)
}

#[inline]
fn enqueue(dst: usize, src: usize, len_bytes: usize, stream: usize) -> HipResult {
    on(stream, |stream| {
        if len_bytes == 0 {
            return Ok(());
        }
        check_linear(dst, src, len_bytes)?;
        cu::memcpy_async(dst, src, len_bytes, stream)
    })
}

/// The driver's memory type of an address: what it knows, else pageable host memory.
fn memory_type(address: usize) -> u32 {
    match pointer_attribute::<u32>(MEMORY_TYPE, address) {
        Err(_) => HOST,
        Ok(_) if pointer_attribute::<u8>(IS_MANAGED, address).is_ok_and(|managed| managed != 0) => UNIFIED,
        Ok(HOST) => HOST,
        Ok(_) => DEVICE,
    }
}

/// A plan of any spelling as the driver's one struct for all copies.
pub(super) fn volume(plan: &Plan) -> HipResult<Memcpy3D> {
    let Shape { width, height, depth, src_pitch, src_slice, dst_pitch, dst_slice } = plan.shape;
    // Rows of a slice; slices that are no whole rows apart cannot be told to the driver.
    let rows = |slice: usize, pitch: usize| match (depth > 1, pitch) {
        (false, _) | (_, 0) => Ok(height),
        _ if slice.is_multiple_of(pitch) => Ok(slice / pitch),
        _ => Err(HipError::INVALID_VALUE),
    };
    let (src_memory_type, dst_memory_type) = (memory_type(plan.src), memory_type(plan.dst));
    Ok(Memcpy3D {
        src_memory_type,
        src_host: if src_memory_type == HOST { plan.src } else { 0 },
        src_device: if src_memory_type == HOST { 0 } else { plan.src },
        src_pitch: src_pitch.max(width),
        src_height: rows(src_slice, src_pitch)?,
        dst_memory_type,
        dst_host: if dst_memory_type == HOST { plan.dst } else { 0 },
        dst_device: if dst_memory_type == HOST { 0 } else { plan.dst },
        dst_pitch: dst_pitch.max(width),
        dst_height: rows(dst_slice, dst_pitch)?,
        width_bytes: width,
        height,
        depth,
        ..Memcpy3D::default()
    })
}

/// A copy of any shape in a stream.
fn submit(plan: &Plan, stream: usize) -> HipResult {
    if plan.shape.is_empty() {
        return on(stream, |_| Ok(()));
    }
    if plan.dst == 0 || plan.src == 0 {
        return Err(HipError::INVALID_VALUE);
    }
    let params = volume(plan)?;
    on(stream, |stream| cu::memcpy_3d_async(&params, stream))
}

/// The same in a default stream, blocking.
fn submit_blocking(plan: &Plan, stream: usize) -> HipResult {
    if stream == 0 {
        if plan.shape.is_empty() {
            return Ok(());
        }
        return cu::memcpy_3d(&volume(plan)?);
    }
    submit(plan, stream)?;
    on(stream, cu::stream_synchronize)
}

fn rows(dst: usize, dst_pitch: usize, src: usize, src_pitch: usize, width: usize, height: usize) -> HipResult<Plan> {
    Plan::rows(dst, dst_pitch, src, src_pitch, width, height, DEFAULT_KIND)
}

/// `hipMemcpyDeviceToDevice` and `hipMemcpyDefault`.
const DEVICE_TO_DEVICE: i32 = 3;
const DEFAULT_KIND: i32 = 4;

/// `hipMemcpyHostToDevice` and `hipMemcpyDeviceToHost`: the kinds that fit one end of a device variable only.
const HOST_TO_DEVICE: i32 = 1;
const DEVICE_TO_HOST: i32 = 2;

/// A range of the variable behind a host symbol on the current device. Fails with `hipErrorInvalidMemcpyDirection` on a
/// kind other than `host_kind` or one that involves no host memory.
fn symbol_range(symbol: usize, len_bytes: usize, offset_bytes: usize, kind: i32, host_kind: i32) -> HipResult<usize> {
    if kind != host_kind && !matches!(kind, DEVICE_TO_DEVICE | DEFAULT_KIND) {
        return Err(HipError::INVALID_DIRECTION);
    }
    let (address, size) = variable(symbol, current_index())?;
    match offset_bytes.checked_add(len_bytes) {
        Some(end) if end <= size => Ok(address + offset_bytes),
        _ => Err(HipError::INVALID_VALUE),
    }
}

/// Where a copy to a symbol writes.
pub(super) fn to_symbol(symbol: usize, len_bytes: usize, offset: usize, kind: i32) -> HipResult<usize> {
    symbol_range(symbol, len_bytes, offset, kind, HOST_TO_DEVICE)
}

/// Where a copy from a symbol reads.
pub(super) fn from_symbol(symbol: usize, len_bytes: usize, offset: usize, kind: i32) -> HipResult<usize> {
    symbol_range(symbol, len_bytes, offset, kind, DEVICE_TO_HOST)
}

/// `hipMemcpy3DPeer` as the driver's struct: contexts where the reserved words are.
fn peer_volume(params: &Memcpy3DPeerParms) -> HipResult<Memcpy3D> {
    let linear = Memcpy3DParms {
        src_array: params.src_array,
        src_pos: params.src_pos,
        src_ptr: params.src_ptr,
        dst_array: params.dst_array,
        dst_pos: params.dst_pos,
        dst_ptr: params.dst_ptr,
        extent: params.extent,
        kind: DEFAULT_KIND,
    };
    let mut converted = volume(&Plan::volume(&linear)?)?;
    converted.reserved0 = device(params.src_device)?.context()?;
    converted.reserved1 = device(params.dst_device)?.context()?;
    Ok(converted)
}

/// A node's copy as HIP's struct.
pub(super) fn hip_volume(copy: &Memcpy3D) -> Memcpy3DParms {
    let side = |memory_type, host, device, pitch: usize, rows: usize| {
        let ptr = if memory_type == HOST { host } else { device };
        PitchedPtr { ptr, pitch, xsize: copy.width_bytes, ysize: rows }
    };
    let kind = match (copy.src_memory_type, copy.dst_memory_type) {
        (HOST, HOST) => 0,
        (HOST, _) => 1,
        (_, HOST) => 2,
        _ => 3,
    };
    Memcpy3DParms {
        src_ptr: side(copy.src_memory_type, copy.src_host, copy.src_device, copy.src_pitch, copy.src_height),
        src_pos: Pos { x: copy.src_x_bytes, y: copy.src_y, z: copy.src_z },
        dst_ptr: side(copy.dst_memory_type, copy.dst_host, copy.dst_device, copy.dst_pitch, copy.dst_height),
        dst_pos: Pos { x: copy.dst_x_bytes, y: copy.dst_y, z: copy.dst_z },
        extent: crate::abi::Extent { width: copy.width_bytes, height: copy.height, depth: copy.depth },
        kind,
        ..Memcpy3DParms::default()
    }
}

const LEGACY: usize = 0;

cuda_api! {
    fn hipMemcpy(dst: usize, src: usize, len_bytes: usize, _kind: i32) { blocking(dst, src, len_bytes) }
    fn hipMemcpy_spt(dst: usize, src: usize, len_bytes: usize, _kind: i32) { blocking_on(dst, src, len_bytes, spt(LEGACY)) }
    fn hipMemcpyAsync(dst: usize, src: usize, len_bytes: usize, _kind: i32, stream: usize) { enqueue(dst, src, len_bytes, stream) }
    fn hipMemcpyAsync_spt(dst: usize, src: usize, len_bytes: usize, _kind: i32, stream: usize) { enqueue(dst, src, len_bytes, spt(stream)) }
    fn hipMemcpyWithStream(dst: usize, src: usize, len_bytes: usize, _kind: i32, stream: usize) { blocking_on(dst, src, len_bytes, stream) }
    fn hipMemcpyHtoD(dst: usize, src: usize, len_bytes: usize) { blocking(dst, src, len_bytes) }
    fn hipMemcpyDtoH(dst: usize, src: usize, len_bytes: usize) { blocking(dst, src, len_bytes) }
    fn hipMemcpyDtoD(dst: usize, src: usize, len_bytes: usize) { blocking(dst, src, len_bytes) }
    fn hipMemcpyHtoDAsync(dst: usize, src: usize, len_bytes: usize, stream: usize) { enqueue(dst, src, len_bytes, stream) }
    fn hipMemcpyDtoHAsync(dst: usize, src: usize, len_bytes: usize, stream: usize) { enqueue(dst, src, len_bytes, stream) }
    fn hipMemcpyDtoDAsync(dst: usize, src: usize, len_bytes: usize, stream: usize) { enqueue(dst, src, len_bytes, stream) }
    fn hipMemcpyPeer(dst: usize, dst_device: i32, src: usize, src_device: i32, len_bytes: usize) {
        let (dst_context, src_context) = (device(dst_device)?.context()?, device(src_device)?.context()?);
        if len_bytes == 0 {
            return Ok(());
        }
        check_linear(dst, src, len_bytes)?;
        cu::memcpy_peer(dst, dst_context, src, src_context, len_bytes)
    }
    fn hipMemcpyPeerAsync(dst: usize, dst_device: i32, src: usize, src_device: i32, len_bytes: usize, stream: usize) {
        let (dst_context, src_context) = (device(dst_device)?.context()?, device(src_device)?.context()?);
        if len_bytes == 0 {
            return Ok(());
        }
        check_linear(dst, src, len_bytes)?;
        on(stream, |stream| cu::memcpy_peer_async(dst, dst_context, src, src_context, len_bytes, stream))
    }
    fn hipMemcpy2D(dst: usize, dpitch: usize, src: usize, spitch: usize, width: usize, height: usize, _kind: i32) {
        submit_blocking(&rows(dst, dpitch, src, spitch, width, height)?, LEGACY)
    }
    fn hipMemcpy2D_spt(dst: usize, dpitch: usize, src: usize, spitch: usize, width: usize, height: usize, _kind: i32) {
        submit_blocking(&rows(dst, dpitch, src, spitch, width, height)?, spt(LEGACY))
    }
    fn hipMemcpy2DAsync(dst: usize, dpitch: usize, src: usize, spitch: usize, width: usize, height: usize, _kind: i32, stream: usize) {
        submit(&rows(dst, dpitch, src, spitch, width, height)?, stream)
    }
    fn hipMemcpy2DAsync_spt(dst: usize, dpitch: usize, src: usize, spitch: usize, width: usize, height: usize, _kind: i32, stream: usize) {
        submit(&rows(dst, dpitch, src, spitch, width, height)?, spt(stream))
    }
    fn hipMemcpyParam2D(params: In<Memcpy2D>) { submit_blocking(&Plan::driver_rows(&params.get()?)?, LEGACY) }
    fn hipDrvMemcpy2DUnaligned(params: In<Memcpy2D>) { submit_blocking(&Plan::driver_rows(&params.get()?)?, LEGACY) }
    fn hipMemcpyParam2DAsync(params: In<Memcpy2D>, stream: usize) { submit(&Plan::driver_rows(&params.get()?)?, stream) }
    fn hipMemcpy3D(params: In<Memcpy3DParms>) { submit_blocking(&Plan::volume(&params.get()?)?, LEGACY) }
    fn hipMemcpy3D_spt(params: In<Memcpy3DParms>) { submit_blocking(&Plan::volume(&params.get()?)?, spt(LEGACY)) }
    fn hipMemcpy3DAsync(params: In<Memcpy3DParms>, stream: usize) { submit(&Plan::volume(&params.get()?)?, stream) }
    fn hipMemcpy3DAsync_spt(params: In<Memcpy3DParms>, stream: usize) { submit(&Plan::volume(&params.get()?)?, spt(stream)) }
    fn hipMemcpy3DPeer(params: In<Memcpy3DPeerParms>) { cu::memcpy_3d_peer(&peer_volume(&params.get()?)?) }
    fn hipMemcpy3DPeerAsync(params: In<Memcpy3DPeerParms>, stream: usize) {
        let params = peer_volume(&params.get()?)?;
        on(stream, |stream| cu::memcpy_3d_peer_async(&params, stream))
    }
    fn hipDrvMemcpy3D(params: In<DrvMemcpy3D>) { submit_blocking(&Plan::driver_volume(&params.get()?)?, LEGACY) }
    fn hipDrvMemcpy3DAsync(params: In<DrvMemcpy3D>, stream: usize) { submit(&Plan::driver_volume(&params.get()?)?, stream) }
    fn hipMemcpyToSymbol(symbol: usize, src: usize, len_bytes: usize, offset: usize, kind: i32) {
        blocking(to_symbol(symbol, len_bytes, offset, kind)?, src, len_bytes)
    }
    fn hipMemcpyToSymbol_spt(symbol: usize, src: usize, len_bytes: usize, offset: usize, kind: i32) {
        blocking_on(to_symbol(symbol, len_bytes, offset, kind)?, src, len_bytes, spt(LEGACY))
    }
    fn hipMemcpyToSymbolAsync(symbol: usize, src: usize, len_bytes: usize, offset: usize, kind: i32, stream: usize) {
        enqueue(to_symbol(symbol, len_bytes, offset, kind)?, src, len_bytes, stream)
    }
    fn hipMemcpyToSymbolAsync_spt(symbol: usize, src: usize, len_bytes: usize, offset: usize, kind: i32, stream: usize) {
        enqueue(to_symbol(symbol, len_bytes, offset, kind)?, src, len_bytes, spt(stream))
    }
    fn hipMemcpyFromSymbol(dst: usize, symbol: usize, len_bytes: usize, offset: usize, kind: i32) {
        blocking(dst, from_symbol(symbol, len_bytes, offset, kind)?, len_bytes)
    }
    fn hipMemcpyFromSymbol_spt(dst: usize, symbol: usize, len_bytes: usize, offset: usize, kind: i32) {
        blocking_on(dst, from_symbol(symbol, len_bytes, offset, kind)?, len_bytes, spt(LEGACY))
    }
    fn hipMemcpyFromSymbolAsync(dst: usize, symbol: usize, len_bytes: usize, offset: usize, kind: i32, stream: usize) {
        enqueue(dst, from_symbol(symbol, len_bytes, offset, kind)?, len_bytes, stream)
    }
    fn hipMemcpyFromSymbolAsync_spt(dst: usize, symbol: usize, len_bytes: usize, offset: usize, kind: i32, stream: usize) {
        enqueue(dst, from_symbol(symbol, len_bytes, offset, kind)?, len_bytes, spt(stream))
    }
    fn hipGetSymbolAddress(out: Out<usize>, symbol: usize) {
        out.check()?;
        out.set(variable(symbol, current_index())?.0)
    }
    fn hipGetSymbolSize(out: Out<usize>, symbol: usize) {
        out.check()?;
        out.set(variable(symbol, current_index())?.1)
    }
    fn hipMemcpyBatchAsync(dsts: In<usize>, srcs: In<usize>, sizes: In<usize>, count: usize, _attributes: In<MemcpyAttributes>,
                           _attribute_indices: In<usize>, _attribute_count: usize, fail_index: Out<usize>, stream: usize) {
        if count == 0 || stream == 0 {
            return Err(HipError::INVALID_VALUE);
        }
        (0..count).try_for_each(|i| {
            enqueue(dsts.at(i)?, srcs.at(i)?, sizes.at(i)?, stream).inspect_err(|_| fail_index.set_if_given(i))
        })
    }
}
