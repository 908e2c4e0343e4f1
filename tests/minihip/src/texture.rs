//! Texture and surface objects: what kernels sample and write to, behind a handle that is an address.
//!
//! A handle is the address of a [`Header`], which kernels read; `tests/kernels/hip_texture.h` has the same struct and the
//! sampling.

use crate::abi::{ResourceViewDesc, TextureDesc};
use crate::array::{Array, FloatKind, Layout};
use crate::cuda;
use crate::device::{Device, devices};
use crate::error::{HipError, HipResult};
use crate::memory;
use crate::mipmap::{self, MAX_LEVELS};
use crate::registry::lock;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

/// `hipReadModeNormalizedFloat`.
pub(crate) const READ_NORMALIZED_FLOAT: i32 = 1;

/// One level of a texture: where it is and how large. Sizes count elements, pitch and slice bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    base: usize,
    pitch: usize,
    slice: usize,
    width: usize,
    height: usize,
    depth: usize,
}

/// `struct hip_cpu_texture`: what is behind a handle. Layout shared with the kernels' C header.
///
/// | offset | field |
/// |---|---|
/// | 0, 4, 8, 12 | levels; channels of an element; bytes of a channel; 0 signed, 1 unsigned, 2 floating point |
/// | 16, 28 | address mode of each dimension: wrap 0, clamp 1, mirror 2, border 3; filter: point 0, linear 1 |
/// | 32, 36, 40, 44 | normalized coordinates; integers as fractions of their range; filter between levels; sRGB |
/// | 48 | border colour |
/// | 64, 68, 72, 76 | level bias, smallest and largest level; reserved |
/// | 80 | 16 levels of 48 bytes: base, pitch, slice, width, height, depth |
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Header {
    level_count: u32,
    channels: u32,
    channel_bytes: u32,
    channel_kind: u32,
    address_mode: [i32; 3],
    filter_mode: i32,
    normalized_coordinates: i32,
    normalized_float: i32,
    mipmap_filter: i32,
    srgb: i32,
    border: [f32; 4],
    level_bias: f32,
    level_min: f32,
    level_max: f32,
    reserved: f32,
    levels: [Level; MAX_LEVELS],
}

/// What a texture or surface is made over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Resource {
    Array(usize),
    Mipmap(usize),
    Linear { address: usize, layout: Layout, len_bytes: usize },
    Pitched { address: usize, layout: Layout, pitch: usize },
}

/// What the object is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Use {
    Texture,
    Surface,
}

/// A texture or surface object.
#[derive(Debug)]
pub(crate) struct TextureObject {
    pub(crate) resource: Resource,
    pub(crate) texture: TextureDesc,
    pub(crate) view: Option<ResourceViewDesc>,
    /// Behind the handle; boxed so that it stays where it is. None with the `cuda` backend, whose handles are the driver's.
    _header: Option<Box<Header>>,
}

/// Objects by what they are for and their handle: a driver may number textures and surfaces alike.
type Objects = Mutex<HashMap<(Use, usize), Arc<TextureObject>>>;

fn objects() -> &'static Objects {
    static OBJECTS: OnceLock<Objects> = OnceLock::new();
    OBJECTS.get_or_init(Mutex::default)
}

impl Level {
    fn of_array(array: &Array) -> HipResult<Self> {
        let layout = &array.layout;
        let base = array.linear(0, 0)?;
        let (width, height, depth) = (layout.width, layout.height.max(1), layout.depth.max(1));
        Ok(Level { base, pitch: array.pitch()?, slice: array.slice()?, width, height, depth })
    }
}

impl Resource {
    fn levels(&self) -> HipResult<(Layout, Vec<Level>)> {
        match *self {
            Resource::Array(handle) => {
                let array = crate::array::resolve(handle)?;
                Ok((array.layout, vec![Level::of_array(&array)?]))
            }
            Resource::Mipmap(handle) => {
                let arrays = mipmap::resolve(handle)?.arrays()?;
                let layout = arrays.first().ok_or(HipError::INVALID_VALUE)?.layout;
                Ok((layout, arrays.iter().map(|array| Level::of_array(array)).collect::<HipResult<_>>()?))
            }
            Resource::Linear { address, layout, len_bytes } => {
                let width = len_bytes / layout.element_bytes()?;
                if width == 0 || memory::find_range(address, len_bytes).is_none() {
                    return Err(HipError::INVALID_VALUE);
                }
                let level = Level { base: address, pitch: len_bytes, slice: len_bytes, width, height: 1, depth: 1 };
                Ok((Layout { width, ..layout }, vec![level]))
            }
            Resource::Pitched { address, layout, pitch } => {
                let row_bytes = layout.width.checked_mul(layout.element_bytes()?).ok_or(HipError::INVALID_VALUE)?;
                let gaps = layout.height.checked_sub(1).and_then(|rows| rows.checked_mul(pitch));
                let len_bytes = gaps.and_then(|gaps| gaps.checked_add(row_bytes)).ok_or(HipError::INVALID_VALUE)?;
                if row_bytes == 0 || row_bytes > pitch || memory::find_range(address, len_bytes).is_none() {
                    return Err(HipError::INVALID_VALUE);
                }
                let (width, height) = (layout.width, layout.height);
                Ok((layout, vec![Level { base: address, pitch, slice: pitch * height, width, height, depth: 1 }]))
            }
        }
    }
}

/// Makes an object and returns its handle. Fails with `hipErrorInvalidValue` on a resource that is none.
pub(crate) fn create(
    of: Use,
    resource: Resource,
    texture: TextureDesc,
    view: Option<ResourceViewDesc>,
) -> HipResult<usize> {
    let modes = [texture.address_mode[0], texture.address_mode[1], texture.address_mode[2]];
    let filters = [texture.filter_mode, texture.mipmap_filter_mode, texture.read_mode];
    if modes.iter().any(|mode| !(0..4).contains(mode)) || filters.iter().any(|mode| !(0..2).contains(mode)) {
        return Err(HipError::INVALID_VALUE);
    }
    if cuda::is_active() {
        let handle = cuda::texture::create(of, &resource, &texture, view.as_ref())?;
        lock(objects()).insert((of, handle), Arc::new(TextureObject { resource, texture, view, _header: None }));
        return Ok(handle);
    }
    let (layout, all) = resource.levels()?;
    let float = layout.kind()? == FloatKind::Float;
    // Integers are filtered as fractions of their range only.
    if texture.filter_mode == 1 && !float && texture.read_mode != READ_NORMALIZED_FLOAT {
        return Err(HipError::INVALID_VALUE);
    }
    let shown = match view {
        Some(view) if view.first_level <= view.last_level => {
            all.get(view.first_level as usize..=view.last_level as usize).ok_or(HipError::INVALID_VALUE)?
        }
        Some(_) => return Err(HipError::INVALID_VALUE),
        None => &all,
    };
    let mut header = Box::new(Header {
        level_count: shown.len() as u32,
        channels: layout.channels,
        channel_bytes: (layout.element_bytes()? / layout.channels.max(1) as usize) as u32,
        channel_kind: layout.kind()? as u32,
        address_mode: modes,
        filter_mode: texture.filter_mode,
        normalized_coordinates: texture.normalized_coords,
        normalized_float: texture.read_mode,
        mipmap_filter: texture.mipmap_filter_mode,
        srgb: texture.srgb,
        border: texture.border,
        level_bias: texture.level_bias,
        level_min: texture.level_min,
        level_max: texture.level_max,
        ..Header::default()
    });
    for (place, level) in header.levels.iter_mut().zip(shown) {
        *place = *level;
    }
    let handle = std::ptr::from_ref(&*header) as usize;
    lock(objects()).insert((of, handle), Arc::new(TextureObject { resource, texture, view, _header: Some(header) }));
    Ok(handle)
}

/// Ends an object, once nothing enqueued can look at it. Fails with `hipErrorInvalidValue` on a handle that is none.
pub(crate) fn destroy(of: Use, handle: usize) -> HipResult {
    if !lock(objects()).contains_key(&(of, handle)) {
        return Err(HipError::INVALID_VALUE);
    }
    if cuda::is_active() {
        lock(objects()).remove(&(of, handle));
        return cuda::texture::destroy(of, handle);
    }
    devices().iter().for_each(Device::synchronize);
    lock(objects()).remove(&(of, handle)).map(drop).ok_or(HipError::INVALID_VALUE)
}

/// The texture a handle stands for. Fails with `hipErrorInvalidValue`.
pub(crate) fn resolve(handle: usize) -> HipResult<Arc<TextureObject>> {
    lock(objects()).get(&(Use::Texture, handle)).cloned().ok_or(HipError::INVALID_VALUE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Offsets as `tests/kernels/hip_texture.h` has them.
    #[test]
    fn the_header_is_what_kernels_read() {
        use std::mem::offset_of;
        let found = [
            offset_of!(Header, address_mode),
            offset_of!(Header, normalized_coordinates),
            offset_of!(Header, border),
            offset_of!(Header, level_bias),
            offset_of!(Header, levels),
            size_of::<Level>(),
            size_of::<Header>(),
        ];
        assert_eq!(found, [16, 32, 48, 64, 80, 48, 848]);
    }
}
