//! Arrays and mipmapped arrays. What programs hold is a handle of ours, which can be checked; behind it is the driver's.

use super::context::{bind, current_index, device};
use super::copy::{End, between, check_kind, submit, submit_blocking};
use super::cuda_api;
use super::driver::{self as cu, got};
use super::handles::spt;
use crate::abi::{Array3DDescriptor, ArrayDescriptor, ChannelFormatDesc, Extent, Memcpy3DParms};
use crate::api::{In, Out};
use crate::array::{self, Array, Layout};
use crate::error::{HipError, HipResult};
use crate::mipmap;
use crate::registry::lock;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Our handle of each of the driver's arrays.
static HANDLES: Mutex<Option<HashMap<usize, usize>>> = Mutex::new(None);

fn descriptor(layout: &Layout) -> Array3DDescriptor {
    Array3DDescriptor {
        width: layout.width,
        height: layout.height,
        depth: layout.depth,
        format: layout.format,
        channels: layout.channels,
        flags: layout.flags,
    }
}

/// Makes one of the driver's arrays on the current device.
pub(crate) fn create(layout: &Layout) -> HipResult<usize> {
    bind()?;
    got(|array| cu::array_3d_create(array, &descriptor(layout)))
}

/// Ends one of the driver's arrays.
pub(crate) fn destroy(array: usize) -> HipResult {
    bind()?;
    forget(array);
    cu::array_destroy(array)
}

/// Makes one of the driver's mipmapped arrays on the current device; with it the array of each level, which lives as long.
pub(crate) fn create_mipmap(layout: &Layout, level_count: u32) -> HipResult<(usize, Vec<usize>)> {
    bind()?;
    let mipmap = got(|mipmap| cu::mipmapped_array_create(mipmap, &descriptor(layout), level_count))?;
    let level = |level| got(|array| cu::mipmapped_array_get_level(array, mipmap, level));
    match (0..level_count).map(level).collect() {
        Ok(levels) => Ok((mipmap, levels)),
        Err(error) => {
            let _ = cu::mipmapped_array_destroy(mipmap);
            Err(error)
        }
    }
}

/// Ends one of the driver's mipmapped arrays.
pub(crate) fn destroy_mipmap(mipmap: usize, levels: &[usize]) -> HipResult {
    bind()?;
    levels.iter().for_each(|array| forget(*array));
    cu::mipmapped_array_destroy(mipmap)
}

/// Notes which handle stands for one of the driver's arrays.
pub(crate) fn remember(array: usize, handle: usize) {
    lock(&HANDLES).get_or_insert_default().insert(array, handle);
}

fn forget(array: usize) {
    if let Some(handles) = lock(&HANDLES).as_mut() {
        handles.remove(&array);
    }
}

/// The handle that stands for one of the driver's arrays; 0 for none.
pub(super) fn handle_of(array: usize) -> usize {
    lock(&HANDLES).as_ref().and_then(|handles| handles.get(&array).copied()).unwrap_or(0)
}

fn make(out: Out<usize>, layout: HipResult<Layout>) -> HipResult {
    out.check()?;
    out.set(array::create(current_index(), layout?)?)
}

fn make_mipmap(out: Out<usize>, layout: HipResult<Layout>, level_count: u32) -> HipResult {
    out.check()?;
    out.set(mipmap::create(current_index(), layout?, level_count)?)
}

/// One end of a copy of bytes in a row.
#[derive(Clone, Debug)]
enum Line {
    Memory(usize),
    /// Bytes of an array from this one on, row after row.
    Array(Arc<Array>, usize),
}

impl Line {
    fn of_array(handle: usize, offset: usize, len_bytes: usize) -> HipResult<Self> {
        let array = array::resolve(handle)?;
        if !array.has_bytes(offset, len_bytes) {
            return Err(HipError::INVALID_VALUE);
        }
        Ok(Line::Array(array, offset))
    }

    /// From byte `x` of row `y` on.
    fn of_row(handle: usize, x: usize, y: usize, len_bytes: usize) -> HipResult<Self> {
        let offset = y.saturating_mul(array::resolve(handle)?.pitch()?).saturating_add(x);
        Self::of_array(handle, offset, len_bytes)
    }
}

/// A box of an array, as the driver counts: from byte `x` of row `y` of slice `z` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    done: usize,
    width: usize,
    rows: usize,
}

/// Cuts `len_bytes` into boxes that lie in rows of the given lengths (bytes of a row, rows of a slice, first byte), of any
/// number of arrays at once.
fn pieces(arrays: &[(usize, usize, usize)], len_bytes: usize) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut done = 0;
    while done < len_bytes {
        let left = len_bytes - done;
        let starts_rows = arrays.iter().all(|(pitch, _, first)| (first + done).is_multiple_of(*pitch));
        let pitch = arrays.first().map_or(left, |array| array.0);
        let alike = arrays.iter().all(|array| array.0 == pitch);
        let piece = if starts_rows && alike && left >= pitch {
            let room = arrays.iter().map(|(pitch, height, first)| height - (first + done) / pitch % height);
            Piece { done, width: pitch, rows: (left / pitch).min(room.min().unwrap_or(1)) }
        } else {
            let room = arrays.iter().map(|(pitch, _, first)| pitch - (first + done) % pitch);
            Piece { done, width: left.min(room.min().unwrap_or(left)), rows: 1 }
        };
        done += piece.width * piece.rows;
        pieces.push(piece);
    }
    pieces
}

/// The driver copies bytes in a row only to and from arrays of one dimension; here each box of theirs is a copy.
fn copy_bytes(dst: &Line, src: &Line, len_bytes: usize, run: impl Fn(&super::abi::Memcpy3D) -> HipResult) -> HipResult {
    let mut arrays = Vec::new();
    for line in [dst, src] {
        match line {
            Line::Memory(0) if len_bytes > 0 => return Err(HipError::INVALID_VALUE),
            Line::Memory(_) => {}
            Line::Array(array, first) => arrays.push((array.pitch()?, array.layout.height.max(1), *first)),
        }
    }
    let end = |line: &Line, piece: &Piece| match line {
        Line::Memory(address) => {
            Ok(End::Linear { address: address + piece.done, pitch: piece.width, rows: piece.rows })
        }
        Line::Array(array, first) => {
            let (pitch, height) = (array.pitch()?, array.layout.height.max(1));
            let (row, x_bytes) = ((first + piece.done) / pitch, (first + piece.done) % pitch);
            Ok(End::Array { array: array.driver_handle(), x_bytes, y: row % height, z: row / height })
        }
    };
    pieces(&arrays, len_bytes)
        .iter()
        .try_for_each(|piece| run(&between(end(dst, piece)?, end(src, piece)?, [piece.width, piece.rows, 1])?))
}

fn bytes(dst: HipResult<Line>, src: HipResult<Line>, len_bytes: usize) -> HipResult {
    copy_bytes(&dst?, &src?, len_bytes, |copy| submit_blocking(Some(*copy), LEGACY))
}

fn bytes_async(dst: HipResult<Line>, src: HipResult<Line>, len_bytes: usize, stream: usize) -> HipResult {
    super::handles::stream(stream)?;
    copy_bytes(&dst?, &src?, len_bytes, |copy| submit(Some(*copy), stream))
}

fn place(handle: usize, x_bytes: usize, y: usize, width: usize, height: usize) -> HipResult<End> {
    let array = array::resolve(handle)?;
    if !array.has_box([x_bytes, y, 0], [width, height, 1])? {
        return Err(HipError::INVALID_VALUE);
    }
    Ok(End::Array { array: array.driver_handle(), x_bytes, y, z: 0 })
}

fn memory(address: usize, pitch: usize, width: usize, height: usize) -> HipResult<End> {
    match (address, pitch < width) {
        (0, _) => Err(HipError::INVALID_VALUE),
        (_, true) => Err(HipError::INVALID_PITCH),
        _ => Ok(End::Linear { address, pitch, rows: height }),
    }
}

/// Rows; nothing where there are none.
fn rows(
    dst: HipResult<End>,
    src: HipResult<End>,
    width: usize,
    height: usize,
) -> HipResult<Option<super::abi::Memcpy3D>> {
    if width == 0 || height == 0 { Ok(None) } else { between(dst?, src?, [width, height, 1]).map(Some) }
}

/// An array by its handle, for a struct that names one or none.
pub(super) fn named(params: &Memcpy3DParms) -> HipResult<[Option<Arc<Array>>; 2]> {
    let of = |handle: usize| if handle == 0 { Ok(None) } else { array::resolve(handle).map(Some) };
    Ok([of(params.src_array)?, of(params.dst_array)?])
}

const LEGACY: usize = 0;

cuda_api! {
    fn hipMallocArray(out: Out<usize>, desc: In<ChannelFormatDesc>, width: usize, height: usize, flags: u32) {
        make(out, Layout::from_channels(&desc.get()?, width, height, 0, flags))
    }
    fn hipMalloc3DArray(out: Out<usize>, desc: In<ChannelFormatDesc>, extent: Extent, flags: u32) {
        make(out, Layout::from_channels(&desc.get()?, extent.width, extent.height, extent.depth, flags))
    }
    fn hipArrayCreate(out: Out<usize>, desc: In<ArrayDescriptor>) {
        let desc = desc.get()?;
        make(out, Ok(Layout { width: desc.width, height: desc.height, depth: 0, format: desc.format, channels: desc.channels, flags: 0 }))
    }
    fn hipArray3DCreate(out: Out<usize>, desc: In<Array3DDescriptor>) {
        let desc = desc.get()?;
        make(out, Ok(Layout { width: desc.width, height: desc.height, depth: desc.depth, format: desc.format, channels: desc.channels, flags: desc.flags }))
    }
    fn hipMallocMipmappedArray(out: Out<usize>, desc: In<ChannelFormatDesc>, extent: Extent, levels: u32, flags: u32) {
        make_mipmap(out, Layout::from_channels(&desc.get()?, extent.width, extent.height, extent.depth, flags), levels)
    }
    fn hipMipmappedArrayCreate(out: Out<usize>, desc: In<Array3DDescriptor>, levels: u32) {
        let desc = desc.get()?;
        make_mipmap(out, Ok(Layout { width: desc.width, height: desc.height, depth: desc.depth, format: desc.format, channels: desc.channels, flags: desc.flags }), levels)
    }
    fn hipMipmappedArrayGetMemoryRequirements(out: Out<[usize; 2]>, handle: usize, ordinal: i32) {
        device(ordinal)?;
        let (size, alignment) = mipmap::resolve(handle)?.requirements()?;
        out.set([size, alignment])
    }
    fn hipDeviceGetTexture1DLinearMaxWidth(out: Out<usize>, desc: In<ChannelFormatDesc>, ordinal: i32) {
        out.check()?;
        let layout = Layout::from_channels(&desc.get()?, 0, 0, 0, 0)?;
        let device = device(ordinal)?.id;
        out.set(got(|elements| cu::device_get_texture_1d_linear_max_width(elements, layout.format, layout.channels, device))?)
    }
    fn hipMemcpy2DToArray(dst: usize, x: usize, y: usize, src: usize, spitch: usize, width: usize, height: usize, kind: i32) {
        check_kind(kind)?;
        submit_blocking(rows(place(dst, x, y, width, height), memory(src, spitch, width, height), width, height)?, LEGACY)
    }
    fn hipMemcpy2DToArray_spt(dst: usize, x: usize, y: usize, src: usize, spitch: usize, width: usize, height: usize, kind: i32) {
        check_kind(kind)?;
        submit_blocking(rows(place(dst, x, y, width, height), memory(src, spitch, width, height), width, height)?, spt(LEGACY))
    }
    fn hipMemcpy2DToArrayAsync(dst: usize, x: usize, y: usize, src: usize, spitch: usize, width: usize, height: usize, kind: i32, stream: usize) {
        check_kind(kind)?;
        submit(rows(place(dst, x, y, width, height), memory(src, spitch, width, height), width, height)?, stream)
    }
    fn hipMemcpy2DToArrayAsync_spt(dst: usize, x: usize, y: usize, src: usize, spitch: usize, width: usize, height: usize, kind: i32, stream: usize) {
        check_kind(kind)?;
        submit(rows(place(dst, x, y, width, height), memory(src, spitch, width, height), width, height)?, spt(stream))
    }
    fn hipMemcpy2DFromArray(dst: usize, dpitch: usize, src: usize, x: usize, y: usize, width: usize, height: usize, kind: i32) {
        check_kind(kind)?;
        submit_blocking(rows(memory(dst, dpitch, width, height), place(src, x, y, width, height), width, height)?, LEGACY)
    }
    fn hipMemcpy2DFromArray_spt(dst: usize, dpitch: usize, src: usize, x: usize, y: usize, width: usize, height: usize, kind: i32) {
        check_kind(kind)?;
        submit_blocking(rows(memory(dst, dpitch, width, height), place(src, x, y, width, height), width, height)?, spt(LEGACY))
    }
    fn hipMemcpy2DFromArrayAsync(dst: usize, dpitch: usize, src: usize, x: usize, y: usize, width: usize, height: usize, kind: i32, stream: usize) {
        check_kind(kind)?;
        submit(rows(memory(dst, dpitch, width, height), place(src, x, y, width, height), width, height)?, stream)
    }
    fn hipMemcpy2DFromArrayAsync_spt(dst: usize, dpitch: usize, src: usize, x: usize, y: usize, width: usize, height: usize, kind: i32, stream: usize) {
        check_kind(kind)?;
        submit(rows(memory(dst, dpitch, width, height), place(src, x, y, width, height), width, height)?, spt(stream))
    }
    fn hipMemcpy2DArrayToArray(dst: usize, dx: usize, dy: usize, src: usize, sx: usize, sy: usize, width: usize, height: usize, kind: i32) {
        check_kind(kind)?;
        submit_blocking(rows(place(dst, dx, dy, width, height), place(src, sx, sy, width, height), width, height)?, LEGACY)
    }
    fn hipMemcpyToArray(dst: usize, x: usize, y: usize, src: usize, len_bytes: usize, kind: i32) {
        check_kind(kind)?;
        bytes(Line::of_row(dst, x, y, len_bytes), Ok(Line::Memory(src)), len_bytes)
    }
    fn hipMemcpyFromArray(dst: usize, src: usize, x: usize, y: usize, len_bytes: usize, kind: i32) {
        check_kind(kind)?;
        bytes(Ok(Line::Memory(dst)), Line::of_row(src, x, y, len_bytes), len_bytes)
    }
    fn hipMemcpyFromArray_spt(dst: usize, src: usize, x: usize, y: usize, len_bytes: usize, kind: i32) {
        check_kind(kind)?;
        copy_bytes(&Line::Memory(dst), &Line::of_row(src, x, y, len_bytes)?, len_bytes, |copy| submit_blocking(Some(*copy), spt(LEGACY)))
    }
    fn hipMemcpyAtoH(dst: usize, src: usize, offset: usize, len_bytes: usize) {
        bytes(Ok(Line::Memory(dst)), Line::of_array(src, offset, len_bytes), len_bytes)
    }
    fn hipMemcpyHtoA(dst: usize, offset: usize, src: usize, len_bytes: usize) {
        bytes(Line::of_array(dst, offset, len_bytes), Ok(Line::Memory(src)), len_bytes)
    }
    fn hipMemcpyAtoD(dst: usize, src: usize, offset: usize, len_bytes: usize) {
        bytes(Ok(Line::Memory(dst)), Line::of_array(src, offset, len_bytes), len_bytes)
    }
    fn hipMemcpyDtoA(dst: usize, offset: usize, src: usize, len_bytes: usize) {
        bytes(Line::of_array(dst, offset, len_bytes), Ok(Line::Memory(src)), len_bytes)
    }
    fn hipMemcpyAtoA(dst: usize, dst_offset: usize, src: usize, src_offset: usize, len_bytes: usize) {
        bytes(Line::of_array(dst, dst_offset, len_bytes), Line::of_array(src, src_offset, len_bytes), len_bytes)
    }
    fn hipMemcpyAtoHAsync(dst: usize, src: usize, offset: usize, len_bytes: usize, stream: usize) {
        bytes_async(Ok(Line::Memory(dst)), Line::of_array(src, offset, len_bytes), len_bytes, stream)
    }
    fn hipMemcpyHtoAAsync(dst: usize, offset: usize, src: usize, len_bytes: usize, stream: usize) {
        bytes_async(Line::of_array(dst, offset, len_bytes), Ok(Line::Memory(src)), len_bytes, stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of an array of rows of 10 bytes, 4 rows to a slice, cut into boxes.
    #[test]
    fn bytes_in_a_row_are_cut_at_rows_and_slices() {
        let cut =
            |first, len| pieces(&[(10, 4, first)], len).iter().map(|p| (p.done, p.width, p.rows)).collect::<Vec<_>>();
        assert_eq!(cut(0, 40), [(0, 10, 4)]);
        assert_eq!(cut(0, 7), [(0, 7, 1)]);
        assert_eq!(cut(3, 30), [(0, 7, 1), (7, 10, 2), (27, 3, 1)]);
        assert_eq!(cut(20, 45), [(0, 10, 2), (20, 10, 2), (40, 5, 1)], "two slices");
        // Two arrays whose rows differ: no box holds more than a row of either.
        let both: Vec<_> = pieces(&[(10, 4, 0), (8, 5, 4)], 20).iter().map(|p| (p.done, p.width, p.rows)).collect();
        assert_eq!(both, [(0, 4, 1), (4, 6, 1), (10, 2, 1), (12, 8, 1)]);
        assert_eq!(pieces(&[(10, 4, 0), (10, 4, 10)], 30), [Piece { done: 0, width: 10, rows: 3 }]);
        assert_eq!(pieces(&[(10, 4, 0)], 0), []);
    }
}
