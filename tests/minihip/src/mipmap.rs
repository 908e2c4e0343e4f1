//! Mipmapped arrays: an array for each level, each half the size of the one before.

use crate::array::{self, Array, Layout};
use crate::cuda;
use crate::error::{HipError, HipResult};
use crate::external::Mapped;
use crate::registry::Registry;
use std::sync::Arc;

/// Most levels of a mipmapped array: enough for 32768 elements a side.
pub(crate) const MAX_LEVELS: usize = 16;
/// Alignment of a mipmapped array in bytes, as its memory requirements tell.
const ALIGNMENT_BYTES: usize = 256;

/// A mipmapped array.
#[derive(Debug)]
pub(crate) struct Mipmap {
    /// Handle of each level's array, the largest first.
    levels: Vec<usize>,
    /// The driver's mipmapped array, with the `cuda` backend.
    pub(crate) driver_handle: usize,
    /// The external memory that they lie in, where they do.
    _memory: Option<Mapped>,
}

static MIPMAPS: Registry<Mipmap> = Registry::new();

/// Makes a mipmapped array on `device`. Fails with `hipErrorInvalidValue` on more levels than the size has.
pub(crate) fn create(device: usize, layout: Layout, level_count: u32) -> HipResult<usize> {
    level_count_of(layout, level_count)?;
    if cuda::is_active() {
        layout.element_bytes()?;
        let (driver_handle, arrays) = cuda::array::create_mipmap(&layout, level_count)?;
        let handles = arrays.iter().enumerate();
        let levels = handles.map(|(level, array)| array::register(device, smaller(layout, level), *array, true));
        let levels = levels.collect::<HipResult<Vec<_>>>()?;
        return MIPMAPS.insert(|_| Arc::new(Mipmap { levels, driver_handle, _memory: None }));
    }
    let levels = make_levels(layout, level_count, |level| array::create(device, level))?;
    MIPMAPS.insert(|_| Arc::new(Mipmap { levels, driver_handle: 0, _memory: None }))
}

/// The same in external memory, of which there are `room_bytes`.
pub(crate) fn create_in(
    device: usize,
    layout: Layout,
    level_count: u32,
    memory: Mapped,
    room_bytes: usize,
) -> HipResult<usize> {
    let end = memory.address + room_bytes;
    let mut next = memory.address;
    let levels = make_levels(layout, level_count, |level| {
        let base = next;
        next = base.saturating_add(level.len_bytes()?).next_multiple_of(ALIGNMENT_BYTES);
        if base + level.len_bytes()? > end {
            Err(HipError::INVALID_VALUE)
        } else {
            array::create_at(device, level, base)
        }
    })?;
    MIPMAPS.insert(|_| Arc::new(Mipmap { levels, driver_handle: 0, _memory: Some(memory) }))
}

/// The number of levels, if the sizes have so many.
fn level_count_of(layout: Layout, level_count: u32) -> HipResult<usize> {
    let longest = layout.width.max(layout.height).max(layout.depth);
    let most = (longest.checked_ilog2().ok_or(HipError::INVALID_VALUE)? as usize + 1).min(MAX_LEVELS);
    let count = level_count as usize;
    if count == 0 || count > most { Err(HipError::INVALID_VALUE) } else { Ok(count) }
}

fn make_levels(
    layout: Layout,
    level_count: u32,
    mut make: impl FnMut(Layout) -> HipResult<usize>,
) -> HipResult<Vec<usize>> {
    let count = level_count_of(layout, level_count)?;
    let mut levels = Vec::with_capacity(count);
    for level in 0..count {
        match make(smaller(layout, level)) {
            Ok(array) => levels.push(array),
            Err(error) => {
                destroy_levels(&levels);
                return Err(error);
            }
        }
    }
    Ok(levels)
}

/// The layout of a level: half of each size for each level before it, and at least 1.
fn smaller(layout: Layout, level: usize) -> Layout {
    let half = |size: usize| if size == 0 { 0 } else { (size >> level).max(1) };
    Layout { width: half(layout.width), height: half(layout.height), depth: half(layout.depth), ..layout }
}

fn destroy_levels(levels: &[usize]) {
    for &level in levels {
        // A level that the program destroyed itself is gone already.
        let _ = array::destroy(level);
    }
}

/// The mipmapped array a handle stands for. Fails with `hipErrorInvalidHandle`.
pub(crate) fn resolve(handle: usize) -> HipResult<Arc<Mipmap>> {
    MIPMAPS.get(handle).ok_or(HipError::INVALID_HANDLE)
}

/// Ends a mipmapped array and its levels, once nothing enqueued can touch them.
pub(crate) fn destroy(handle: usize) -> HipResult {
    let mipmap = MIPMAPS.remove(handle).ok_or(HipError::INVALID_HANDLE)?;
    if cuda::is_active() {
        let arrays: Vec<usize> = mipmap.arrays()?.iter().map(|array| array.driver_handle()).collect();
        mipmap.levels.iter().for_each(|level| array::forget_level(*level));
        return cuda::array::destroy_mipmap(mipmap.driver_handle, &arrays);
    }
    destroy_levels(&mipmap.levels);
    Ok(())
}

impl Mipmap {
    /// Handle of a level's array. Fails with `hipErrorInvalidValue` on a level there is not.
    pub(crate) fn level(&self, level: u32) -> HipResult<usize> {
        self.levels.get(level as usize).copied().ok_or(HipError::INVALID_VALUE)
    }

    /// The levels' arrays, the largest first.
    pub(crate) fn arrays(&self) -> HipResult<Vec<Arc<Array>>> {
        self.levels.iter().map(|&level| array::resolve(level)).collect()
    }

    /// Size and alignment in bytes.
    pub(crate) fn requirements(&self) -> HipResult<(usize, usize)> {
        let sizes = self.arrays()?;
        let bytes = sizes.iter().map(|array| Ok(array.slice()? * array.layout.depth.max(1)));
        Ok((bytes.sum::<HipResult<usize>>()?, ALIGNMENT_BYTES))
    }
}
