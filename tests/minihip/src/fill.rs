//! Memsets: 1-, 2- and 4-byte patterns over up to three dimensions.

use crate::device::device;
use crate::error::{HipError, HipResult};
use crate::memory;
use crate::op::Op;
use crate::stream::{Stream, Submitted};
use std::sync::Arc;

/// A memset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fill {
    pub(crate) dst: usize,
    pub(crate) value: u32,
    /// 1, 2 or 4 bytes.
    pub(crate) element_bytes: usize,
    /// Elements in a row.
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
    /// Bytes from row to row.
    pub(crate) pitch: usize,
    /// Bytes from slice to slice.
    pub(crate) slice_pitch: usize,
}

impl Fill {
    /// A memset of `count` elements in a row.
    pub(crate) fn linear(dst: usize, value: u32, element_bytes: usize, count: usize) -> Self {
        let row = count.saturating_mul(element_bytes);
        Self { dst, value, element_bytes, width: count, height: 1, depth: 1, pitch: row, slice_pitch: row }
    }

    /// A memset of `height` rows of `width` elements, `pitch` bytes apart.
    pub(crate) fn pitched(
        dst: usize,
        value: u32,
        element_bytes: usize,
        width: usize,
        height: usize,
        pitch: usize,
    ) -> Self {
        Self { dst, value, element_bytes, width, height, depth: 1, pitch, slice_pitch: pitch.saturating_mul(height) }
    }

    fn is_empty(&self) -> bool {
        self.width == 0 || self.height == 0 || self.depth == 0
    }

    /// Bytes from the first written one to past the last.
    fn span_bytes(&self) -> Option<usize> {
        let row = self.width.checked_mul(self.element_bytes)?;
        if (self.height > 1 && row > self.pitch)
            || (self.depth > 1 && self.pitch.checked_mul(self.height)? > self.slice_pitch)
        {
            return None;
        }
        let rows = (self.height - 1).checked_mul(self.pitch)?;
        (self.depth - 1).checked_mul(self.slice_pitch)?.checked_add(rows)?.checked_add(row)
    }

    /// Checks the target. Fails with `hipErrorInvalidValue` on memory the runtime does not know or that is too small.
    pub(crate) fn check(&self) -> HipResult {
        if !matches!(self.element_bytes, 1 | 2 | 4) || !self.dst.is_multiple_of(self.element_bytes) {
            return Err(HipError::INVALID_VALUE);
        }
        if self.is_empty() {
            return Ok(());
        }
        let span = self.span_bytes().ok_or(HipError::INVALID_VALUE)?;
        memory::find_range(self.dst, span).map(drop).ok_or(HipError::INVALID_VALUE)
    }

    /// Writes the pattern.
    pub(crate) fn execute(&self) {
        if self.is_empty() {
            return;
        }
        for z in 0..self.depth {
            for y in 0..self.height {
                let row = self.dst + z * self.slice_pitch + y * self.pitch;
                let row_bytes = self.width * self.element_bytes;
                // SAFETY: `check` found the whole span inside one live allocation, and freeing an allocation waits for
                // the work enqueued before; no Rust reference to device memory exists. A program that races its own
                // copies sees torn data, as on a device.
                unsafe {
                    match self.element_bytes {
                        1 => std::ptr::write_bytes(row as *mut u8, self.value as u8, row_bytes),
                        2 => (0..self.width).for_each(|x| (row as *mut u16).add(x).write(self.value as u16)),
                        _ => (0..self.width).for_each(|x| (row as *mut u32).add(x).write(self.value)),
                    }
                }
            }
        }
    }
}

/// Submits a memset to `stream`; `blocking` spellings wait only where the target is host memory, as HIP does.
pub(crate) fn submit(stream: &Arc<Stream>, fill: Fill, wait: WaitFor) -> HipResult {
    fill.check()?;
    device(stream.device)?;
    if fill.is_empty() {
        return Ok(());
    }
    let submitted = stream.submit(Op::Fill(fill))?;
    let on_host = memory::find(fill.dst).is_some_and(|allocation| allocation.kind.is_host());
    if wait == WaitFor::HostMemory && on_host && matches!(submitted, Submitted::Enqueued(_)) {
        stream.wait(submitted);
    }
    Ok(())
}

/// What a memset's spelling waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitFor {
    /// The `Async` spellings.
    Nothing,
    /// The others: done on return if the target is host memory, asynchronous on a device's.
    HostMemory,
}
