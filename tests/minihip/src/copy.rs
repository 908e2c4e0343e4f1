//! Copies: kinds, bounds, and what pageable and pinned memory mean for when a copy is done.

use crate::error::{HipError, HipResult};
use crate::memory::{self, Allocation};
use crate::op::Op;
use crate::stream::{Stream, Submitted};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes, rows and slices of a copy, and how each side lays them out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
    pub(crate) src_pitch: usize,
    pub(crate) src_slice: usize,
    pub(crate) dst_pitch: usize,
    pub(crate) dst_slice: usize,
}

impl Shape {
    /// One row of `len_bytes`.
    pub(crate) fn linear(len_bytes: usize) -> Self {
        Self::pitched(len_bytes, 1, len_bytes, len_bytes)
    }

    /// `height` rows of `width` bytes.
    pub(crate) fn pitched(width: usize, height: usize, src_pitch: usize, dst_pitch: usize) -> Self {
        Self {
            width,
            height,
            depth: 1,
            src_pitch,
            src_slice: src_pitch.saturating_mul(height),
            dst_pitch,
            dst_slice: dst_pitch.saturating_mul(height),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.width == 0 || self.height == 0 || self.depth == 0
    }

    fn span(&self, pitch: usize, slice: usize) -> HipResult<usize> {
        if self.height > 1 && self.width > pitch {
            return Err(HipError::INVALID_PITCH);
        }
        let rows = (self.height - 1).checked_mul(pitch);
        let slices = (self.depth - 1).checked_mul(slice);
        rows.zip(slices)
            .and_then(|(rows, slices)| rows.checked_add(slices)?.checked_add(self.width))
            .ok_or(HipError::INVALID_VALUE)
    }

    /// The same rows, read without gaps (a snapshot's layout).
    fn dense_source(self) -> Self {
        Self { src_pitch: self.width, src_slice: self.width * self.height, ..self }
    }
}

/// Where a copy reads.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Memory(usize),
    /// A snapshot of pageable memory, taken when the call was made.
    Snapshot(Arc<[u8]>),
}

/// A copy, ready to run.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    pub(crate) dst: usize,
    pub(crate) src: Source,
    pub(crate) shape: Shape,
    /// `hipMemcpyKind` as given.
    pub(crate) kind: i32,
}

impl Copy {
    /// Moves the bytes.
    pub(crate) fn execute(&self) {
        let src = match &self.src {
            Source::Memory(address) => *address,
            Source::Snapshot(bytes) => bytes.as_ptr() as usize,
        };
        let shape = &self.shape;
        for z in 0..shape.depth {
            for y in 0..shape.height {
                let from = (src + z * shape.src_slice + y * shape.src_pitch) as *const u8;
                let to = (self.dst + z * shape.dst_slice + y * shape.dst_pitch) as *mut u8;
                // SAFETY: `check` found each known side inside one live allocation, and freeing one waits for the work
                // enqueued before; for pageable sides HIP obliges the program to keep the memory valid until the copy
                // is done. `copy` allows overlap. A program that races its own copies sees torn data, as on a device.
                unsafe { std::ptr::copy(from, to, shape.width) }
            }
        }
    }

    /// Whether it brings host memory to the device.
    pub(crate) fn reaches_device(&self) -> bool {
        let from_host = match self.src {
            Source::Memory(address) => Sides::is_host(memory::find(address)),
            Source::Snapshot(_) => true,
        };
        from_host && !Sides::is_host(memory::find(self.dst))
    }

    /// Whether it brings device memory to the host.
    pub(crate) fn reaches_host(&self) -> bool {
        let from_device = match self.src {
            Source::Memory(address) => !Sides::is_host(memory::find(address)),
            Source::Snapshot(_) => false,
        };
        from_device && Sides::is_host(memory::find(self.dst))
    }

    /// The source rows as one block of bytes.
    fn snapshot(&self) -> Arc<[u8]> {
        let dense = self.shape.width * self.shape.height * self.shape.depth;
        let mut bytes: Vec<u8> = vec![0; dense];
        let gather = Copy {
            dst: bytes.as_mut_ptr() as usize,
            src: self.src.clone(),
            shape: Shape { dst_pitch: self.shape.width, dst_slice: self.shape.width * self.shape.height, ..self.shape },
            kind: self.kind,
        };
        gather.execute();
        bytes.into()
    }
}

/// The two sides of a copy, as the runtime knows them; `None` is pageable host memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sides {
    pub(crate) dst: Option<Allocation>,
    pub(crate) src: Option<Allocation>,
}

impl Sides {
    fn are_on_two_devices(self) -> bool {
        self.dst.zip(self.src).is_some_and(|(dst, src)| dst.device != src.device)
    }

    fn is_host(side: Option<Allocation>) -> bool {
        side.is_none_or(|allocation| allocation.kind.is_host())
    }
}

/// Checks kind and bounds. Fails with `hipErrorInvalidMemcpyDirection` on a kind that is none, else `hipErrorInvalidValue`.
pub(crate) fn check(dst: usize, src: usize, shape: &Shape, kind: i32) -> HipResult<Sides> {
    let sides = Sides { dst: memory::find(dst), src: memory::find(src) };
    let (dst_must_be_known, src_must_be_known) = match kind {
        0 | 4 => (false, false),
        1 => (true, false),
        2 => (false, true),
        3 | 1024 => (true, true),
        _ => return Err(HipError::INVALID_DIRECTION),
    };
    if dst == 0 || src == 0 || (dst_must_be_known && sides.dst.is_none()) || (src_must_be_known && sides.src.is_none())
    {
        return Err(HipError::INVALID_VALUE);
    }
    let dst_span = shape.span(shape.dst_pitch, shape.dst_slice)?;
    let src_span = shape.span(shape.src_pitch, shape.src_slice)?;
    let inside =
        |side: Option<Allocation>, address, span| side.is_none() || memory::find_range(address, span).is_some();
    if inside(sides.dst, dst, dst_span) && inside(sides.src, src, src_span) {
        Ok(sides)
    } else {
        Err(HipError::INVALID_VALUE)
    }
}

/// Whether a spelling returns before the copy is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocking {
    /// Done on return where a host side or a second device is involved; within a device it stays asynchronous to the host.
    Host,
    /// Done on return in any case (`hipMemcpyWithStream`).
    Always,
    /// The `Async` spellings: as asynchronous as the memory allows.
    Never,
}

/// Submits a copy to `stream`.
pub(crate) fn submit(
    stream: &Arc<Stream>,
    dst: usize,
    src: usize,
    shape: Shape,
    kind: i32,
    blocking: Blocking,
) -> HipResult {
    if shape.is_empty() {
        return if matches!(kind, 0..=4 | 1024) { Ok(()) } else { Err(HipError::INVALID_DIRECTION) };
    }
    let sides = check(dst, src, &shape, kind)?;
    let mut copy = Copy { dst, src: Source::Memory(src), shape, kind };
    // Acquire: pairs with the Release of the call that began the capture. A captured copy reads its source when the
    // graph is launched.
    if stream.capturing.load(Ordering::Acquire) {
        return stream.submit(Op::Copy(copy)).map(drop);
    }
    let host_involved = Sides::is_host(sides.dst) || Sides::is_host(sides.src);
    let must_wait = match blocking {
        Blocking::Always => true,
        Blocking::Host => host_involved || sides.are_on_two_devices(),
        // A device cannot write pageable memory on its own: the call lasts until the data is there.
        Blocking::Never => sides.dst.is_none(),
    };
    if !must_wait && sides.src.is_none() {
        copy.src = Source::Snapshot(copy.snapshot());
        copy.shape = shape.dense_source();
    }
    let submitted: Submitted = stream.submit(Op::Copy(copy))?;
    if must_wait {
        stream.wait(submitted);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strided_copy_moves_its_rows_and_nothing_else() {
        let src: Vec<u8> = (0..=255).collect();
        let mut dst = vec![0xEE_u8; 256];
        // 2 slices of 3 rows of 4 bytes.
        let shape =
            Shape { width: 4, height: 3, depth: 2, src_pitch: 10, src_slice: 64, dst_pitch: 16, dst_slice: 100 };
        let copy = Copy { dst: dst.as_mut_ptr() as usize, src: Source::Memory(src.as_ptr() as usize), shape, kind: 0 };
        copy.execute();
        let mut expected = vec![0xEE_u8; 256];
        for z in 0..2 {
            for y in 0..3 {
                for x in 0..4 {
                    expected[z * 100 + y * 16 + x] = (z * 64 + y * 10 + x) as u8;
                }
            }
        }
        assert_eq!(dst, expected);

        let mut through_snapshot = vec![0xEE_u8; 256];
        let staged = Copy {
            dst: through_snapshot.as_mut_ptr() as usize,
            src: Source::Snapshot(copy.snapshot()),
            shape: shape.dense_source(),
            kind: 0,
        };
        staged.execute();
        assert_eq!(through_snapshot, expected);
    }

    #[test]
    fn overflowing_shapes_are_refused() {
        let host = [0_u8; 8];
        let address = host.as_ptr() as usize;
        let huge = Shape::pitched(8, usize::MAX, usize::MAX / 2, 16);
        assert!(check(address, address, &huge, 4).is_err());
        assert!(matches!(check(address, address, &Shape::pitched(8, 2, 4, 8), 4), Err(HipError::INVALID_PITCH)));
        assert!(matches!(check(address, address, &Shape::linear(8), 9), Err(HipError::INVALID_DIRECTION)));
        assert!(matches!(check(address, address, &Shape::linear(8), 1), Err(HipError::INVALID_VALUE)));
    }
}
