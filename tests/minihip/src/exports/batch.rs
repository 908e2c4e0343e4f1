//! Batches: several ranges prefetched or discarded, several volumes copied, by one call.

use crate::abi::{Extent, LOCATION_DEVICE, MemLocation, Pos};
use crate::api::{In, Out, hip_alias, hip_api};
use crate::array;
use crate::copy::{self, Blocking, Shape};
use crate::device::device_by_ordinal;
use crate::error::{HipError, HipResult};
use crate::exports::memory::managed;
use crate::fill::Fill;
use crate::op::Op;
use crate::stream::{self, DefaultStream, Stream};
use std::sync::Arc;

/// What discarded memory holds here: its contents are undefined, and nothing should read them.
const DISCARDED: u8 = 0xDD;
/// `hipMemcpyDefault`.
const DEFAULT: i32 = 4;

/// One operand of a volume copy, by `hipMemcpy3DOperandType`: pointer 1, array 2.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operand {
    pub(crate) kind: i32,
    pub(crate) target: usize,
    /// A pointer's row length and layer height in elements, or an array's offset and half of a location.
    pub(crate) numbers: [usize; 3],
}

/// `hipMemcpy3DBatchOp`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct VolumeOp {
    pub(crate) src: Operand,
    pub(crate) dst: Operand,
    pub(crate) extent: Extent,
    access_order: i32,
    flags: u32,
}

/// Address, pitch, slice: of an operand, for a box of elements of this size.
fn side(operand: &Operand, extent: &Extent, element_bytes: usize) -> HipResult<[usize; 3]> {
    let [width, height, depth] = [extent.width * element_bytes, extent.height, extent.depth];
    match operand.kind {
        1 => {
            let row = if operand.numbers[0] == 0 { extent.width } else { operand.numbers[0] };
            let layer = if operand.numbers[1] == 0 { extent.height } else { operand.numbers[1] };
            let pitch = row.checked_mul(element_bytes).ok_or(HipError::INVALID_VALUE)?;
            Ok([operand.target, pitch, pitch.checked_mul(layer).ok_or(HipError::INVALID_VALUE)?])
        }
        2 => {
            let array = array::resolve(operand.target)?;
            let at = Pos { x: operand.numbers[0], y: operand.numbers[1], z: operand.numbers[2] };
            let x = at.x.checked_mul(element_bytes).ok_or(HipError::INVALID_VALUE)?;
            Ok([array.place(x, at.y, at.z, [width, height, depth])?, array.pitch()?, array.slice()?])
        }
        _ => Err(HipError::INVALID_VALUE),
    }
}

fn copy_volume(stream: &Arc<Stream>, op: &VolumeOp) -> HipResult {
    let array = [&op.src, &op.dst].into_iter().find(|operand| operand.kind == 2);
    let element_bytes = match array {
        Some(operand) => array::resolve(operand.target)?.element_bytes()?,
        None => 1,
    };
    let extent = op.extent;
    let width = extent.width.checked_mul(element_bytes).ok_or(HipError::INVALID_VALUE)?;
    let [src, src_pitch, src_slice] = side(&op.src, &extent, element_bytes)?;
    let [dst, dst_pitch, dst_slice] = side(&op.dst, &extent, element_bytes)?;
    let (height, depth) = (extent.height, extent.depth);
    let shape = Shape { width, height, depth, src_pitch, src_slice, dst_pitch, dst_slice };
    copy::submit(stream, dst, src, shape, DEFAULT, Blocking::Never)
}

fn ranges(addresses: In<usize>, sizes: In<usize>, count: usize) -> HipResult<Vec<(usize, usize)>> {
    if count == 0 {
        return Err(HipError::INVALID_VALUE);
    }
    let all: Vec<_> = addresses.array(count)?.into_iter().zip(sizes.array(count)?).collect();
    all.iter().try_for_each(|&(address, len_bytes)| managed(address, len_bytes))?;
    Ok(all)
}

/// Location `i` holds for the ranges from its index on: the first index is 0, and they grow.
fn check_locations(locations: In<MemLocation>, indices: In<usize>, count: usize, ranges: usize) -> HipResult {
    let (locations, indices) = (locations.array(count)?, indices.array(count)?);
    let grow = indices.first() == Some(&0) && indices.windows(2).all(|pair| pair[0] < pair[1]);
    if !grow || indices.last().is_some_and(|last| *last >= ranges) {
        return Err(HipError::INVALID_VALUE);
    }
    let known = |location: &MemLocation| match location.kind {
        LOCATION_DEVICE => device_by_ordinal(location.id).map(drop),
        _ => Ok(()),
    };
    locations.iter().try_for_each(known)
}

fn discard(stream: &Arc<Stream>, ranges: &[(usize, usize)]) -> HipResult {
    ranges.iter().try_for_each(|&(address, len_bytes)| {
        let fill = Fill::pitched(address, DISCARDED.into(), 1, len_bytes, 1, len_bytes);
        stream.submit(Op::Fill(fill)).map(drop)
    })
}

hip_api! {
    fn hipMemPrefetchBatchAsync(addresses: In<usize>, sizes: In<usize>, count: usize, locations: In<MemLocation>, indices: In<usize>, location_count: usize, flags: u64, stream: usize) {
        let stream = stream::resolve(stream, DefaultStream::Legacy)?;
        let ranges = ranges(addresses, sizes, count)?;
        check_locations(locations, indices, location_count, ranges.len())?;
        if flags != 0 {
            return Err(HipError::INVALID_VALUE);
        }
        // Memory that host and device share is where it is; the call still has its place in the stream.
        stream.submit(Op::Nothing).map(drop)
    }
    fn hipMemDiscardBatchAsync(addresses: In<usize>, sizes: In<usize>, count: usize, flags: u64, stream: usize) {
        let stream = stream::resolve(stream, DefaultStream::Legacy)?;
        let ranges = ranges(addresses, sizes, count)?;
        if flags != 0 {
            return Err(HipError::INVALID_VALUE);
        }
        discard(&stream, &ranges)
    }
    fn hipMemDiscardAndPrefetchBatchAsync(addresses: In<usize>, sizes: In<usize>, count: usize, locations: In<MemLocation>, indices: In<usize>, location_count: usize, flags: u64, stream: usize) {
        let stream = stream::resolve(stream, DefaultStream::Legacy)?;
        let ranges = ranges(addresses, sizes, count)?;
        check_locations(locations, indices, location_count, ranges.len())?;
        if flags != 0 {
            return Err(HipError::INVALID_VALUE);
        }
        discard(&stream, &ranges)
    }
    fn hipMemcpy3DBatchAsync(count: usize, operations: In<VolumeOp>, fail_index: Out<usize>, flags: u64, stream: usize) {
        let stream = stream::resolve(stream, DefaultStream::Legacy)?;
        if flags != 0 || count == 0 {
            return Err(HipError::INVALID_VALUE);
        }
        for (index, op) in operations.array(count)?.iter().enumerate() {
            if let Err(error) = copy_volume(&stream, op) {
                fail_index.set_if_given(index);
                return Err(error);
            }
        }
        fail_index.set_if_given(usize::MAX);
        Ok(())
    }
}

hip_alias! {
    fn hipDrvMemDiscardBatchAsync(addresses: In<usize>, sizes: In<usize>, count: usize, flags: u64, stream: usize) = hipMemDiscardBatchAsync;
    fn hipDrvMemDiscardAndPrefetchBatchAsync(addresses: In<usize>, sizes: In<usize>, count: usize, locations: In<MemLocation>, indices: In<usize>, location_count: usize, flags: u64, stream: usize) = hipMemDiscardAndPrefetchBatchAsync;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_the_headers() {
        assert_eq!((size_of::<Operand>(), size_of::<VolumeOp>()), (40, 112));
    }
}
