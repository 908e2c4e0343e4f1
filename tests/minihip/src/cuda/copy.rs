//! Copies.
//!
//! The driver finds out from the address where memory is; HIP's copy kind says no more than that. It has to be one, and must
//! not contradict a symbol; beyond that it is ignored. Sizes are checked against the allocation before a large copy starts: HIP fails, where
//! the driver might read a program's memory up to the first page that is not there.

use super::abi::{ARRAY, DEVICE, HOST, Memcpy3D, UNIFIED};
use super::array::{handle_of, named};
use super::context::{current_index, device};
use super::cuda_api;
use super::driver as cu;
use super::fat_binary::variable;
use super::handles::{on, spt};
use super::memory::{IS_MANAGED, MEMORY_TYPE, pointer_attribute};
use crate::abi::{DrvMemcpy3D, Memcpy2D, Memcpy3DParms, Memcpy3DPeerParms, PitchedPtr, Pos};
use crate::api::{In, Out};
use crate::array::{self, Array};
use crate::copy::Shape;
use crate::error::{HipError, HipResult};
use crate::exports::{MemcpyAttributes, Plan, VolumeOp};

/// Copies from this size on are checked against the sizes of both allocations.
const CHECKED_BYTES: usize = 1 << 20;

/// Fails with `hipErrorInvalidMemcpyDirection` on a kind that is none; the driver has no kinds.
pub(super) fn check_kind(kind: i32) -> HipResult {
    /// `hipMemcpyDeviceToDeviceNoCU`.
    const WITHOUT_COMPUTE_UNITS: i32 = 1024;
    if matches!(kind, 0..=4 | WITHOUT_COMPUTE_UNITS) { Ok(()) } else { Err(HipError::INVALID_DIRECTION) }
}

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
    let dst = End::Linear { address: plan.dst, pitch: dst_pitch.max(width), rows: rows(dst_slice, dst_pitch)? };
    let src = End::Linear { address: plan.src, pitch: src_pitch.max(width), rows: rows(src_slice, src_pitch)? };
    between(dst, src, [width, height, depth])
}

/// One end of a copy of rows and slices.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    /// Memory, with the bytes from row to row and the rows from slice to slice.
    Linear { address: usize, pitch: usize, rows: usize },
    /// One of the driver's arrays, from a place on.
    Array { array: usize, x_bytes: usize, y: usize, z: usize },
}

/// A copy between two ends, of a width in bytes, rows and slices.
pub(super) fn between(dst: End, src: End, [width_bytes, height, depth]: [usize; 3]) -> HipResult<Memcpy3D> {
    let mut copy = Memcpy3D { width_bytes, height, depth, ..Memcpy3D::default() };
    match src {
        End::Linear { address: 0, .. } => return Err(HipError::INVALID_VALUE),
        End::Linear { address, pitch, rows } => {
            copy.src_memory_type = memory_type(address);
            *(if copy.src_memory_type == HOST { &mut copy.src_host } else { &mut copy.src_device }) = address;
            (copy.src_pitch, copy.src_height) = (pitch, rows);
        }
        End::Array { array, x_bytes, y, z } => {
            (copy.src_memory_type, copy.src_array) = (ARRAY, array);
            (copy.src_x_bytes, copy.src_y, copy.src_z) = (x_bytes, y, z);
        }
    }
    match dst {
        End::Linear { address: 0, .. } => return Err(HipError::INVALID_VALUE),
        End::Linear { address, pitch, rows } => {
            copy.dst_memory_type = memory_type(address);
            *(if copy.dst_memory_type == HOST { &mut copy.dst_host } else { &mut copy.dst_device }) = address;
            (copy.dst_pitch, copy.dst_height) = (pitch, rows);
        }
        End::Array { array, x_bytes, y, z } => {
            (copy.dst_memory_type, copy.dst_array) = (ARRAY, array);
            (copy.dst_x_bytes, copy.dst_y, copy.dst_z) = (x_bytes, y, z);
        }
    }
    Ok(copy)
}

/// A copy between places in memory; nothing where it is empty.
fn linear_copy(plan: &Plan) -> HipResult<Option<Memcpy3D>> {
    if plan.shape.is_empty() { Ok(None) } else { volume(plan).map(Some) }
}

/// `address` moved by a position in bytes, rows and slices.
fn moved(address: usize, [x, y, z]: [usize; 3], pitch: usize, rows: usize) -> HipResult<usize> {
    let slice = pitch.checked_mul(rows).and_then(|slice| slice.checked_mul(z));
    y.checked_mul(pitch)
        .zip(slice)
        .and_then(|(rows, slices)| address.checked_add(x)?.checked_add(rows)?.checked_add(slices))
        .ok_or(HipError::INVALID_VALUE)
}

/// An end that is an array. Fails with `hipErrorInvalidValue` on a box that does not lie in it.
fn array_end(array: &Array, at: [usize; 3], extent: [usize; 3]) -> HipResult<End> {
    if !array.has_box(at, extent)? {
        return Err(HipError::INVALID_VALUE);
    }
    let [x_bytes, y, z] = at;
    Ok(End::Array { array: array.driver_handle(), x_bytes, y, z })
}

/// `hipMemcpy3D`: where an array is involved, widths count its elements.
pub(super) fn of_volume(params: &Memcpy3DParms) -> HipResult<Option<Memcpy3D>> {
    check_kind(params.kind)?;
    let [src_array, dst_array] = named(params)?;
    let Some(element_bytes) = src_array.as_ref().or(dst_array.as_ref()).map(|array| array.element_bytes()) else {
        return linear_copy(&Plan::volume(params)?);
    };
    let width = params.extent.width.checked_mul(element_bytes?).ok_or(HipError::INVALID_VALUE)?;
    let extent = [width, params.extent.height, params.extent.depth];
    if extent.contains(&0) {
        return Ok(None);
    }
    let end = |array: Option<&Array>, memory: &PitchedPtr, at: &Pos| match array {
        Some(array) => {
            let x_bytes = at.x.checked_mul(array.element_bytes()?).ok_or(HipError::INVALID_VALUE)?;
            array_end(array, [x_bytes, at.y, at.z], extent)
        }
        None if memory.ptr == 0 => Err(HipError::INVALID_VALUE),
        None => {
            let (pitch, rows) = (memory.pitch, memory.ysize.max(extent[1]));
            Ok(End::Linear { address: moved(memory.ptr, [at.x, at.y, at.z], pitch, rows)?, pitch, rows })
        }
    };
    let src = end(src_array.as_deref(), &params.src_ptr, &params.src_pos)?;
    between(end(dst_array.as_deref(), &params.dst_ptr, &params.dst_pos)?, src, extent).map(Some)
}

/// `HIP_MEMCPY3D`: a side is an array where it names one and no address.
pub(super) fn of_driver_volume(params: &DrvMemcpy3D) -> HipResult<Option<Memcpy3D>> {
    let is_array = |array: usize, host: usize, device: usize| array != 0 && host == 0 && device == 0;
    let src_is_array = is_array(params.src_array, params.src_host, params.src_device);
    let dst_is_array = is_array(params.dst_array, params.dst_host, params.dst_device);
    if !src_is_array && !dst_is_array {
        return linear_copy(&Plan::driver_volume(params)?);
    }
    let extent = [params.width_bytes, params.height, params.depth];
    if extent.contains(&0) {
        return Ok(None);
    }
    let memory = |host: usize, device: usize, at: [usize; 3], pitch: usize, rows: usize| {
        let pitch = if pitch == 0 { extent[0] } else { pitch };
        let rows = if rows == 0 { extent[1] } else { rows };
        let address = if host == 0 { device } else { host };
        if address == 0 {
            return Err(HipError::INVALID_VALUE);
        }
        Ok(End::Linear { address: moved(address, at, pitch, rows)?, pitch, rows })
    };
    let (src_at, dst_at) =
        ([params.src_x_bytes, params.src_y, params.src_z], [params.dst_x_bytes, params.dst_y, params.dst_z]);
    let src = if src_is_array {
        array_end(&*array::resolve(params.src_array)?, src_at, extent)?
    } else {
        memory(params.src_host, params.src_device, src_at, params.src_pitch, params.src_height)?
    };
    let dst = if dst_is_array {
        array_end(&*array::resolve(params.dst_array)?, dst_at, extent)?
    } else {
        memory(params.dst_host, params.dst_device, dst_at, params.dst_pitch, params.dst_height)?
    };
    between(dst, src, extent).map(Some)
}

/// `hip_Memcpy2D`: `HIP_MEMCPY3D` of one slice.
fn of_driver_rows(params: &Memcpy2D) -> HipResult<Option<Memcpy3D>> {
    of_driver_volume(&DrvMemcpy3D {
        src_x_bytes: params.src_x_bytes,
        src_y: params.src_y,
        src_memory_type: params.src_memory_type,
        src_host: params.src_host,
        src_device: params.src_device,
        src_array: params.src_array,
        src_pitch: params.src_pitch,
        dst_x_bytes: params.dst_x_bytes,
        dst_y: params.dst_y,
        dst_memory_type: params.dst_memory_type,
        dst_host: params.dst_host,
        dst_device: params.dst_device,
        dst_array: params.dst_array,
        dst_pitch: params.dst_pitch,
        width_bytes: params.width_bytes,
        height: params.height,
        depth: 1,
        ..DrvMemcpy3D::default()
    })
}

/// One volume of a batch. Rows and layers of memory are counted in elements of the array, or in bytes.
fn of_batch(op: &VolumeOp) -> HipResult<Option<Memcpy3D>> {
    /// `hipMemcpy3DOperandTypePointer` and `..._Array`.
    const POINTER: i32 = 1;
    const ARRAY_OPERAND: i32 = 2;
    let element_bytes = match [&op.src, &op.dst].into_iter().find(|operand| operand.kind == ARRAY_OPERAND) {
        Some(operand) => array::resolve(operand.target)?.element_bytes()?,
        None => 1,
    };
    let width = op.extent.width.checked_mul(element_bytes).ok_or(HipError::INVALID_VALUE)?;
    let extent = [width, op.extent.height, op.extent.depth];
    if extent.contains(&0) {
        return Ok(None);
    }
    let end = |operand: &crate::exports::Operand| {
        let [first, second, third] = operand.numbers;
        let in_bytes = first.checked_mul(element_bytes).ok_or(HipError::INVALID_VALUE)?;
        match operand.kind {
            POINTER => Ok(End::Linear {
                address: operand.target,
                pitch: if in_bytes == 0 { width } else { in_bytes },
                rows: if second == 0 { extent[1] } else { second },
            }),
            ARRAY_OPERAND => array_end(&*array::resolve(operand.target)?, [in_bytes, second, third], extent),
            _ => Err(HipError::INVALID_VALUE),
        }
    };
    between(end(&op.dst)?, end(&op.src)?, extent).map(Some)
}

/// A copy of any shape in a stream.
pub(super) fn submit(copy: Option<Memcpy3D>, stream: usize) -> HipResult {
    on(stream, |stream| copy.map_or(Ok(()), |copy| cu::memcpy_3d_async(&copy, stream)))
}

/// The same in a default stream, blocking.
pub(super) fn submit_blocking(copy: Option<Memcpy3D>, stream: usize) -> HipResult {
    if stream == 0 {
        return copy.map_or(Ok(()), |copy| cu::memcpy_3d(&copy));
    }
    submit(copy, stream)?;
    on(stream, cu::stream_synchronize)
}

fn rows(
    dst: usize,
    dst_pitch: usize,
    src: usize,
    src_pitch: usize,
    width: usize,
    height: usize,
) -> HipResult<Option<Memcpy3D>> {
    linear_copy(&Plan::rows(dst, dst_pitch, src, src_pitch, width, height, DEFAULT_KIND)?)
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
    let mut converted = of_volume(&linear)?.ok_or(HipError::INVALID_VALUE)?;
    converted.reserved0 = device(params.src_device)?.context()?;
    converted.reserved1 = device(params.dst_device)?.context()?;
    Ok(converted)
}

/// `hipMemoryType` of a driver's one.
fn hip_memory_type(driver_type: u32) -> i32 {
    match driver_type {
        ARRAY => 10,
        UNIFIED => 11,
        other => other as i32,
    }
}

/// A node's copy as HIP's struct: with an array, in elements.
pub(super) fn hip_volume(copy: &Memcpy3D) -> Memcpy3DParms {
    let side = |memory_type, host, device, pitch: usize, rows: usize| match memory_type {
        ARRAY => PitchedPtr::default(),
        HOST => PitchedPtr { ptr: host, pitch, xsize: copy.width_bytes, ysize: rows },
        _ => PitchedPtr { ptr: device, pitch, xsize: copy.width_bytes, ysize: rows },
    };
    let kind = match (copy.src_memory_type, copy.dst_memory_type) {
        (HOST, HOST) => 0,
        (HOST, _) => 1,
        (_, HOST) => 2,
        _ => 3,
    };
    let (src_array, dst_array) = (handle_of(copy.src_array), handle_of(copy.dst_array));
    let element_bytes = |handle: usize| array::resolve(handle).and_then(|array| array.element_bytes()).ok();
    let (src_element, dst_element) = (element_bytes(src_array), element_bytes(dst_array));
    let counted = src_element.or(dst_element).unwrap_or(1);
    Memcpy3DParms {
        src_array,
        dst_array,
        src_ptr: side(copy.src_memory_type, copy.src_host, copy.src_device, copy.src_pitch, copy.src_height),
        src_pos: Pos { x: copy.src_x_bytes / src_element.unwrap_or(1), y: copy.src_y, z: copy.src_z },
        dst_ptr: side(copy.dst_memory_type, copy.dst_host, copy.dst_device, copy.dst_pitch, copy.dst_height),
        dst_pos: Pos { x: copy.dst_x_bytes / dst_element.unwrap_or(1), y: copy.dst_y, z: copy.dst_z },
        extent: crate::abi::Extent { width: copy.width_bytes / counted, height: copy.height, depth: copy.depth },
        kind,
    }
}

/// The same as the driver interface's struct.
pub(super) fn hip_driver_volume(copy: &Memcpy3D) -> DrvMemcpy3D {
    DrvMemcpy3D {
        src_x_bytes: copy.src_x_bytes,
        src_y: copy.src_y,
        src_z: copy.src_z,
        src_lod: copy.src_lod,
        src_memory_type: hip_memory_type(copy.src_memory_type),
        src_host: copy.src_host,
        src_device: copy.src_device,
        src_array: handle_of(copy.src_array),
        src_pitch: copy.src_pitch,
        src_height: copy.src_height,
        dst_x_bytes: copy.dst_x_bytes,
        dst_y: copy.dst_y,
        dst_z: copy.dst_z,
        dst_lod: copy.dst_lod,
        dst_memory_type: hip_memory_type(copy.dst_memory_type),
        dst_host: copy.dst_host,
        dst_device: copy.dst_device,
        dst_array: handle_of(copy.dst_array),
        dst_pitch: copy.dst_pitch,
        dst_height: copy.dst_height,
        width_bytes: copy.width_bytes,
        height: copy.height,
        depth: copy.depth,
    }
}

const LEGACY: usize = 0;

cuda_api! {
    fn hipMemcpy(dst: usize, src: usize, len_bytes: usize, kind: i32) {
        check_kind(kind)?;
        blocking(dst, src, len_bytes)
    }
    fn hipMemcpy_spt(dst: usize, src: usize, len_bytes: usize, kind: i32) {
        check_kind(kind)?;
        blocking_on(dst, src, len_bytes, spt(LEGACY))
    }
    fn hipMemcpyAsync(dst: usize, src: usize, len_bytes: usize, kind: i32, stream: usize) {
        check_kind(kind)?;
        enqueue(dst, src, len_bytes, stream)
    }
    fn hipMemcpyAsync_spt(dst: usize, src: usize, len_bytes: usize, kind: i32, stream: usize) {
        check_kind(kind)?;
        enqueue(dst, src, len_bytes, spt(stream))
    }
    fn hipMemcpyWithStream(dst: usize, src: usize, len_bytes: usize, kind: i32, stream: usize) {
        check_kind(kind)?;
        blocking_on(dst, src, len_bytes, stream)
    }
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
    fn hipMemcpy2D(dst: usize, dpitch: usize, src: usize, spitch: usize, width: usize, height: usize, kind: i32) {
        check_kind(kind)?;
        submit_blocking(rows(dst, dpitch, src, spitch, width, height)?, LEGACY)
    }
    fn hipMemcpy2D_spt(dst: usize, dpitch: usize, src: usize, spitch: usize, width: usize, height: usize, kind: i32) {
        check_kind(kind)?;
        submit_blocking(rows(dst, dpitch, src, spitch, width, height)?, spt(LEGACY))
    }
    fn hipMemcpy2DAsync(dst: usize, dpitch: usize, src: usize, spitch: usize, width: usize, height: usize, kind: i32, stream: usize) {
        check_kind(kind)?;
        submit(rows(dst, dpitch, src, spitch, width, height)?, stream)
    }
    fn hipMemcpy2DAsync_spt(dst: usize, dpitch: usize, src: usize, spitch: usize, width: usize, height: usize, kind: i32, stream: usize) {
        check_kind(kind)?;
        submit(rows(dst, dpitch, src, spitch, width, height)?, spt(stream))
    }
    fn hipMemcpyParam2D(params: In<Memcpy2D>) { submit_blocking(of_driver_rows(&params.get()?)?, LEGACY) }
    fn hipDrvMemcpy2DUnaligned(params: In<Memcpy2D>) { submit_blocking(of_driver_rows(&params.get()?)?, LEGACY) }
    fn hipMemcpyParam2DAsync(params: In<Memcpy2D>, stream: usize) { submit(of_driver_rows(&params.get()?)?, stream) }
    fn hipMemcpy3D(params: In<Memcpy3DParms>) { submit_blocking(of_volume(&params.get()?)?, LEGACY) }
    fn hipMemcpy3D_spt(params: In<Memcpy3DParms>) { submit_blocking(of_volume(&params.get()?)?, spt(LEGACY)) }
    fn hipMemcpy3DAsync(params: In<Memcpy3DParms>, stream: usize) { submit(of_volume(&params.get()?)?, stream) }
    fn hipMemcpy3DAsync_spt(params: In<Memcpy3DParms>, stream: usize) { submit(of_volume(&params.get()?)?, spt(stream)) }
    fn hipMemcpy3DPeer(params: In<Memcpy3DPeerParms>) { cu::memcpy_3d_peer(&peer_volume(&params.get()?)?) }
    fn hipMemcpy3DPeerAsync(params: In<Memcpy3DPeerParms>, stream: usize) {
        let params = peer_volume(&params.get()?)?;
        on(stream, |stream| cu::memcpy_3d_peer_async(&params, stream))
    }
    fn hipDrvMemcpy3D(params: In<DrvMemcpy3D>) { submit_blocking(of_driver_volume(&params.get()?)?, LEGACY) }
    fn hipDrvMemcpy3DAsync(params: In<DrvMemcpy3D>, stream: usize) { submit(of_driver_volume(&params.get()?)?, stream) }
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
    fn hipMemcpy3DBatchAsync(count: usize, operations: In<VolumeOp>, fail_index: Out<usize>, flags: u64, stream: usize) {
        if count == 0 || flags != 0 {
            return Err(HipError::INVALID_VALUE);
        }
        for (index, op) in operations.array(count)?.iter().enumerate() {
            of_batch(op).and_then(|copy| submit(copy, stream)).inspect_err(|_| fail_index.set_if_given(index))?;
        }
        fail_index.set_if_given(usize::MAX);
        Ok(())
    }
}
