//! Arrays and copies that involve them.

use crate::abi::{Array3DDescriptor, ArrayDescriptor, ChannelFormatDesc, Extent};
use crate::api::{In, Out, hip_alias, hip_api};
use crate::array::{self, Layout};
use crate::capture;
use crate::copy::Shape;
use crate::error::HipResult;
use crate::exports::copy::{DEVICE_TO_DEVICE, DEVICE_TO_HOST, HOST_TO_DEVICE, Plan};
use crate::stream::DefaultStream::{Legacy, PerThread};
use crate::thread_state::current_device;

fn create(out: Out<usize>, layout: HipResult<Layout>) -> HipResult {
    out.check()?;
    capture::forbid_unsafe_call()?;
    out.set(array::create(current_device()?.index, layout?)?)
}

/// Rows to an array, from byte `x` of row `y` on.
#[expect(clippy::too_many_arguments, reason = "HIP's own signature")]
fn rows_to(
    dst: usize,
    x: usize,
    y: usize,
    src: usize,
    src_pitch: usize,
    width: usize,
    height: usize,
    kind: i32,
) -> HipResult<Plan> {
    let array = array::resolve(dst)?;
    let to = array.place(x, y, 0, [width, height, 1])?;
    Ok(Plan { dst: to, src, shape: Shape::pitched(width, height, src_pitch, array.pitch()?), kind })
}

/// Rows from an array.
#[expect(clippy::too_many_arguments, reason = "HIP's own signature")]
fn rows_from(
    dst: usize,
    dst_pitch: usize,
    src: usize,
    x: usize,
    y: usize,
    width: usize,
    height: usize,
    kind: i32,
) -> HipResult<Plan> {
    let array = array::resolve(src)?;
    let from = array.place(x, y, 0, [width, height, 1])?;
    Ok(Plan { dst, src: from, shape: Shape::pitched(width, height, array.pitch()?, dst_pitch), kind })
}

/// Bytes in a row to an array, from byte `x` of row `y` on, over its rows.
fn bytes_to(dst: usize, x: usize, y: usize, src: usize, len_bytes: usize, kind: i32) -> HipResult<Plan> {
    let array = array::resolve(dst)?;
    let offset = y.saturating_mul(array.pitch()?).saturating_add(x);
    Ok(Plan::linear(array.linear(offset, len_bytes)?, src, len_bytes, kind))
}

/// Bytes in a row from an array.
fn bytes_from(dst: usize, src: usize, x: usize, y: usize, len_bytes: usize, kind: i32) -> HipResult<Plan> {
    let array = array::resolve(src)?;
    let offset = y.saturating_mul(array.pitch()?).saturating_add(x);
    Ok(Plan::linear(dst, array.linear(offset, len_bytes)?, len_bytes, kind))
}

hip_api! {
    fn hipMallocArray(out: Out<usize>, desc: In<ChannelFormatDesc>, width: usize, height: usize, flags: u32) {
        create(out, Layout::from_channels(&desc.get()?, width, height, 0, flags))
    }
    fn hipMalloc3DArray(out: Out<usize>, desc: In<ChannelFormatDesc>, extent: Extent, flags: u32) {
        create(out, Layout::from_channels(&desc.get()?, extent.width, extent.height, extent.depth, flags))
    }
    fn hipArrayCreate(out: Out<usize>, desc: In<ArrayDescriptor>) {
        let desc = desc.get()?;
        create(out, Ok(Layout { width: desc.width, height: desc.height, depth: 0, format: desc.format, channels: desc.channels, flags: 0 }))
    }
    fn hipArray3DCreate(out: Out<usize>, desc: In<Array3DDescriptor>) {
        let desc = desc.get()?;
        create(out, Ok(Layout { width: desc.width, height: desc.height, depth: desc.depth, format: desc.format, channels: desc.channels, flags: desc.flags }))
    }
    fn hipFreeArray(handle: usize) {
        capture::forbid_unsafe_call()?;
        array::destroy(handle)
    }
    fn hipArrayGetInfo(desc: Out<ChannelFormatDesc>, extent: Out<Extent>, flags: Out<u32>, handle: usize) {
        let layout = array::resolve(handle)?.layout;
        desc.set_if_given(layout.channels()?);
        extent.set_if_given(Extent { width: layout.width, height: layout.height, depth: layout.depth });
        flags.set_if_given(layout.flags);
        Ok(())
    }
    fn hipGetChannelDesc(desc: Out<ChannelFormatDesc>, handle: usize) { desc.set(array::resolve(handle)?.layout.channels()?) }
    fn hipArrayGetDescriptor(desc: Out<ArrayDescriptor>, handle: usize) {
        let layout = array::resolve(handle)?.layout;
        desc.set(ArrayDescriptor { width: layout.width, height: layout.height, format: layout.format, channels: layout.channels })
    }
    fn hipArray3DGetDescriptor(desc: Out<Array3DDescriptor>, handle: usize) {
        let layout = array::resolve(handle)?.layout;
        desc.set(Array3DDescriptor { width: layout.width, height: layout.height, depth: layout.depth, format: layout.format, channels: layout.channels, flags: layout.flags })
    }
    fn hipMemcpy2DToArray(dst: usize, x: usize, y: usize, src: usize, spitch: usize, width: usize, height: usize, kind: i32) {
        rows_to(dst, x, y, src, spitch, width, height, kind)?.on_default(Legacy)
    }
    fn hipMemcpy2DToArray_spt(dst: usize, x: usize, y: usize, src: usize, spitch: usize, width: usize, height: usize, kind: i32) {
        rows_to(dst, x, y, src, spitch, width, height, kind)?.on_default(PerThread)
    }
    fn hipMemcpy2DToArrayAsync(dst: usize, x: usize, y: usize, src: usize, spitch: usize, width: usize, height: usize, kind: i32, stream: usize) {
        rows_to(dst, x, y, src, spitch, width, height, kind)?.on_stream(stream, Legacy)
    }
    fn hipMemcpy2DToArrayAsync_spt(dst: usize, x: usize, y: usize, src: usize, spitch: usize, width: usize, height: usize, kind: i32, stream: usize) {
        rows_to(dst, x, y, src, spitch, width, height, kind)?.on_stream(stream, PerThread)
    }
    fn hipMemcpy2DFromArray(dst: usize, dpitch: usize, src: usize, x: usize, y: usize, width: usize, height: usize, kind: i32) {
        rows_from(dst, dpitch, src, x, y, width, height, kind)?.on_default(Legacy)
    }
    fn hipMemcpy2DFromArray_spt(dst: usize, dpitch: usize, src: usize, x: usize, y: usize, width: usize, height: usize, kind: i32) {
        rows_from(dst, dpitch, src, x, y, width, height, kind)?.on_default(PerThread)
    }
    fn hipMemcpy2DFromArrayAsync(dst: usize, dpitch: usize, src: usize, x: usize, y: usize, width: usize, height: usize, kind: i32, stream: usize) {
        rows_from(dst, dpitch, src, x, y, width, height, kind)?.on_stream(stream, Legacy)
    }
    fn hipMemcpy2DFromArrayAsync_spt(dst: usize, dpitch: usize, src: usize, x: usize, y: usize, width: usize, height: usize, kind: i32, stream: usize) {
        rows_from(dst, dpitch, src, x, y, width, height, kind)?.on_stream(stream, PerThread)
    }
    fn hipMemcpyToArray(dst: usize, x: usize, y: usize, src: usize, len_bytes: usize, kind: i32) { bytes_to(dst, x, y, src, len_bytes, kind)?.on_default(Legacy) }
    fn hipMemcpyFromArray(dst: usize, src: usize, x: usize, y: usize, len_bytes: usize, kind: i32) { bytes_from(dst, src, x, y, len_bytes, kind)?.on_default(Legacy) }
    fn hipMemcpyFromArray_spt(dst: usize, src: usize, x: usize, y: usize, len_bytes: usize, kind: i32) { bytes_from(dst, src, x, y, len_bytes, kind)?.on_default(PerThread) }
    fn hipMemcpyAtoH(dst: usize, src: usize, offset: usize, len_bytes: usize) { bytes_from(dst, src, offset, 0, len_bytes, DEVICE_TO_HOST)?.on_default(Legacy) }
    fn hipMemcpyHtoA(dst: usize, offset: usize, src: usize, len_bytes: usize) { bytes_to(dst, offset, 0, src, len_bytes, HOST_TO_DEVICE)?.on_default(Legacy) }
    fn hipMemcpyAtoD(dst: usize, src: usize, offset: usize, len_bytes: usize) { bytes_from(dst, src, offset, 0, len_bytes, DEVICE_TO_DEVICE)?.on_default(Legacy) }
    fn hipMemcpyDtoA(dst: usize, offset: usize, src: usize, len_bytes: usize) { bytes_to(dst, offset, 0, src, len_bytes, DEVICE_TO_DEVICE)?.on_default(Legacy) }
    fn hipMemcpyAtoA(dst: usize, dst_offset: usize, src: usize, src_offset: usize, len_bytes: usize) {
        let from = array::resolve(src)?.linear(src_offset, len_bytes)?;
        bytes_to(dst, dst_offset, 0, from, len_bytes, DEVICE_TO_DEVICE)?.on_default(Legacy)
    }
    fn hipMemcpyAtoHAsync(dst: usize, src: usize, offset: usize, len_bytes: usize, stream: usize) {
        bytes_from(dst, src, offset, 0, len_bytes, DEVICE_TO_HOST)?.on_stream(stream, Legacy)
    }
    fn hipMemcpyHtoAAsync(dst: usize, offset: usize, src: usize, len_bytes: usize, stream: usize) {
        bytes_to(dst, offset, 0, src, len_bytes, HOST_TO_DEVICE)?.on_stream(stream, Legacy)
    }
    fn hipMemcpy2DArrayToArray(dst: usize, dx: usize, dy: usize, src: usize, sx: usize, sy: usize, width: usize, height: usize, kind: i32) {
        let from = array::resolve(src)?;
        let address = from.place(sx, sy, 0, [width, height, 1])?;
        rows_to(dst, dx, dy, address, from.pitch()?, width, height, kind)?.on_default(Legacy)
    }
}

hip_alias! {
    fn hipArrayDestroy(handle: usize) = hipFreeArray;
}
