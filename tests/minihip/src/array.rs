//! Arrays: up to three dimensions of elements, addressed by handle. They lie in device memory row after row, and so does
//! what samples them read them.

use crate::abi::ChannelFormatDesc;
use crate::cuda;
use crate::device::device;
use crate::error::{HipError, HipResult};
use crate::memory;
use crate::registry::Registry;
use std::sync::Arc;

/// `hipArray_Format` codes with their size in bytes and `hipChannelFormatKind`.
const FORMATS: [(i32, usize, i32); 8] =
    [(0x01, 1, 1), (0x02, 2, 1), (0x03, 4, 1), (0x08, 1, 0), (0x09, 2, 0), (0x0A, 4, 0), (0x10, 2, 2), (0x20, 4, 2)];
/// Every `hipArray` flag: layered, surface, cubemap, gather.
const ALL_FLAGS: u32 = 0xF;

/// What the bits of a channel are, by `hipChannelFormatKind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FloatKind {
    Signed = 0,
    Unsigned = 1,
    Float = 2,
}

/// What an array is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// In elements; height and depth are 0 where the array has no such dimension.
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
    /// `hipArray_Format`.
    pub(crate) format: i32,
    pub(crate) channels: u32,
    pub(crate) flags: u32,
}

/// An array.
#[derive(Debug)]
pub(crate) struct Array {
    pub(crate) layout: Layout,
    /// First byte; with the `cuda` backend the driver's array.
    base: usize,
    device: usize,
    id: u64,
    /// Whether it lives and ends with a mipmapped array.
    is_level: bool,
}

static ARRAYS: Registry<Array> = Registry::new();

/// The array a handle stands for. Fails with `hipErrorInvalidHandle`.
pub(crate) fn resolve(handle: usize) -> HipResult<Arc<Array>> {
    ARRAYS.get(handle).ok_or(HipError::INVALID_HANDLE)
}

impl Layout {
    /// The layout a channel description asks for. Fails with `hipErrorInvalidValue` on channels that differ.
    pub(crate) fn from_channels(
        desc: &ChannelFormatDesc,
        width: usize,
        height: usize,
        depth: usize,
        flags: u32,
    ) -> HipResult<Self> {
        let bits = [desc.x, desc.y, desc.z, desc.w];
        let channels = bits.iter().take_while(|bits| **bits > 0).count();
        let alike =
            bits[..channels].iter().all(|other| *other == desc.x) && bits[channels..].iter().all(|other| *other == 0);
        let format = FORMATS.iter().find(|format| format.1 * 8 == desc.x as usize && format.2 == desc.kind);
        match format {
            Some(format) if alike => {
                Ok(Self { width, height, depth, format: format.0, channels: channels as u32, flags })
            }
            _ => Err(HipError::INVALID_VALUE),
        }
    }

    /// The channel description of the layout.
    pub(crate) fn channels(&self) -> HipResult<ChannelFormatDesc> {
        let format = FORMATS.iter().find(|format| format.0 == self.format).ok_or(HipError::INVALID_VALUE)?;
        let bits = |channel: u32| if channel < self.channels { format.1 as i32 * 8 } else { 0 };
        Ok(ChannelFormatDesc { x: bits(0), y: bits(1), z: bits(2), w: bits(3), kind: format.2 })
    }

    /// What the channels' bits are.
    pub(crate) fn kind(&self) -> HipResult<FloatKind> {
        let format = FORMATS.iter().find(|format| format.0 == self.format).ok_or(HipError::INVALID_VALUE)?;
        Ok(match format.2 {
            0 => FloatKind::Signed,
            1 => FloatKind::Unsigned,
            _ => FloatKind::Float,
        })
    }

    /// Bytes of an element.
    pub(crate) fn element_bytes(&self) -> HipResult<usize> {
        let format = FORMATS.iter().find(|format| format.0 == self.format).ok_or(HipError::INVALID_VALUE)?;
        if matches!(self.channels, 1 | 2 | 4) {
            Ok(format.1 * self.channels as usize)
        } else {
            Err(HipError::INVALID_VALUE)
        }
    }

    /// Bytes of all elements.
    pub(crate) fn len_bytes(&self) -> HipResult<usize> {
        let rows = self.height.max(1).checked_mul(self.depth.max(1));
        rows.and_then(|rows| rows.checked_mul(self.width)?.checked_mul(self.element_bytes().ok()?))
            .ok_or(HipError::INVALID_VALUE)
    }
}

impl Layout {
    /// Bytes of all elements, of a layout that an array can have.
    fn checked_bytes(&self) -> HipResult<usize> {
        self.element_bytes()?;
        let len_bytes = self.len_bytes()?;
        if len_bytes == 0 || self.flags & !ALL_FLAGS != 0 || (self.depth > 0 && self.height == 0) {
            return Err(HipError::INVALID_VALUE);
        }
        Ok(len_bytes)
    }
}

/// Makes an array on `device`.
pub(crate) fn create(device_index: usize, layout: Layout) -> HipResult<usize> {
    let len_bytes = layout.checked_bytes()?;
    if cuda::is_active() {
        return register(device_index, layout, cuda::array::create(&layout)?, false);
    }
    let base = memory::allocate_device(device(device_index)?, len_bytes, 0, 0)?;
    let id = memory::find(base).map_or(0, |allocation| allocation.id);
    ARRAYS.insert(|_| Arc::new(Array { layout, base, device: device_index, id, is_level: false }))
}

/// Gives one of the driver's arrays a handle.
pub(crate) fn register(device: usize, layout: Layout, base: usize, is_level: bool) -> HipResult<usize> {
    let handle = ARRAYS.insert(|_| Arc::new(Array { layout, base, device, id: 0, is_level }))?;
    cuda::array::remember(base, handle);
    Ok(handle)
}

/// Ends the handle of a level, which ends with its mipmapped array.
pub(crate) fn forget_level(handle: usize) {
    ARRAYS.remove(handle);
}

/// Makes an array on `device` of memory that somebody else owns, who outlives it.
pub(crate) fn create_at(device_index: usize, layout: Layout, base: usize) -> HipResult<usize> {
    layout.checked_bytes()?;
    // No allocation has this number, so that none ends with the array.
    ARRAYS.insert(|_| Arc::new(Array { layout, base, device: device_index, id: u64::MAX, is_level: false }))
}

/// Ends an array, once nothing enqueued can touch it.
pub(crate) fn destroy(handle: usize) -> HipResult {
    if resolve(handle)?.is_level {
        return Err(HipError::INVALID_VALUE);
    }
    let array = ARRAYS.remove(handle).ok_or(HipError::INVALID_HANDLE)?;
    if cuda::is_active() {
        return cuda::array::destroy(array.base);
    }
    device(array.device)?.synchronize();
    if let Some(gone) = memory::forget_device(array.base, |allocation| allocation.id == array.id) {
        memory::release_device(gone.device, gone.base, gone.len_bytes);
    }
    Ok(())
}

impl Array {
    /// Bytes of an element.
    pub(crate) fn element_bytes(&self) -> HipResult<usize> {
        self.layout.element_bytes()
    }

    /// Bytes from row to row.
    pub(crate) fn pitch(&self) -> HipResult<usize> {
        Ok(self.layout.width * self.element_bytes()?)
    }

    /// Bytes from slice to slice.
    pub(crate) fn slice(&self) -> HipResult<usize> {
        Ok(self.pitch()? * self.layout.height.max(1))
    }

    /// Address of byte `x` of row `y` of slice `z`, for a box of `width` bytes, `height` rows and `depth` slices.
    /// Fails with `hipErrorInvalidValue` if the box does not lie in the array.
    pub(crate) fn place(&self, x: usize, y: usize, z: usize, box_bytes: [usize; 3]) -> HipResult<usize> {
        if self.has_box([x, y, z], box_bytes)? {
            Ok(self.base + z * self.slice()? + y * self.pitch()? + x)
        } else {
            Err(HipError::INVALID_VALUE)
        }
    }

    /// Whether a box of `box_bytes`, in bytes, rows and slices, lies in the array from byte `x` of row `y` of slice `z` on.
    pub(crate) fn has_box(&self, [x, y, z]: [usize; 3], box_bytes: [usize; 3]) -> HipResult<bool> {
        let [width, height, depth] = box_bytes;
        let inside = |start: usize, len: usize, limit: usize| start.checked_add(len).is_some_and(|end| end <= limit);
        Ok(inside(x, width, self.pitch()?)
            && inside(y, height, self.layout.height.max(1))
            && inside(z, depth, self.layout.depth.max(1)))
    }

    /// The driver's array, with the `cuda` backend.
    pub(crate) fn driver_handle(&self) -> usize {
        self.base
    }

    /// Address of byte `offset`, for `len_bytes` from there.
    pub(crate) fn linear(&self, offset: usize, len_bytes: usize) -> HipResult<usize> {
        if self.has_bytes(offset, len_bytes) { Ok(self.base + offset) } else { Err(HipError::INVALID_VALUE) }
    }

    /// Whether there are `len_bytes` from byte `offset` on.
    pub(crate) fn has_bytes(&self, offset: usize, len_bytes: usize) -> bool {
        offset.checked_add(len_bytes).is_some_and(|end| self.layout.len_bytes().is_ok_and(|len| end <= len))
    }
}
