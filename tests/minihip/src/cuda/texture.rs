//! Texture and surface objects, and what texture references need: the objects are the driver's, made from HIP's
//! descriptions, whose layout the driver shares.

use super::context::bind;
use super::driver::{self as cu, got};
use crate::abi::{DrvResourceDesc, DrvResourceViewDesc, ResourceViewDesc, TextureDesc};
use crate::array::{self, FloatKind, Layout};
use crate::error::{HipError, HipResult};
use crate::exports::{describe_to_driver, texture_to_driver};
use crate::mipmap;
use crate::texture::{Resource, Use};
use std::ffi::CStr;

/// `CU_TRSF_READ_AS_INTEGER`, which is for integers only.
const READ_AS_INTEGER: u32 = 0x01;
/// `CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION`: levels are weighed as HIP weighs them.
const EXACT_LEVELS: u32 = 0x20;

/// The resource with the driver's handles, and what its elements are.
fn resource(resource: &Resource) -> HipResult<(DrvResourceDesc, Layout)> {
    let mut desc = describe_to_driver(resource);
    let layout = match resource {
        Resource::Array(handle) => {
            let array = array::resolve(*handle)?;
            desc.words[0] = array.driver_handle() as u64;
            array.layout
        }
        Resource::Mipmap(handle) => {
            let mipmap = mipmap::resolve(*handle)?;
            desc.words[0] = mipmap.driver_handle as u64;
            mipmap.arrays()?.first().ok_or(HipError::INVALID_VALUE)?.layout
        }
        Resource::Linear { layout, .. } | Resource::Pitched { layout, .. } => *layout,
    };
    Ok((desc, layout))
}

/// `CUresourceViewFormat` of elements: for each kind of number in turn, those of 1, 2 and 4 channels.
fn view_format(layout: &Layout) -> Option<i32> {
    // By `CUarray_format`: unsigned of 8, 16 and 32 bits, signed, half and single floats.
    let first = match layout.format {
        0x01 => 1,
        0x08 => 4,
        0x02 => 7,
        0x09 => 10,
        0x03 => 13,
        0x0a => 16,
        0x10 => 19,
        0x20 => 22,
        _ => return None,
    };
    let channels = match layout.channels {
        1 => 0,
        2 => 1,
        4 => 2,
        _ => return None,
    };
    Some(first + channels)
}

/// Makes an object on the current device.
pub(crate) fn create(
    of: Use,
    described: &Resource,
    texture: &TextureDesc,
    view: Option<&ResourceViewDesc>,
) -> HipResult<usize> {
    bind()?;
    let (desc, layout) = resource(described)?;
    let handle = match of {
        Use::Surface => got(|object| cu::surf_object_create(object, &desc))?,
        Use::Texture => {
            let mut texture = texture_to_driver(texture);
            if matches!(described, Resource::Mipmap(_)) {
                texture.flags |= EXACT_LEVELS;
            }
            if layout.kind()? == FloatKind::Float {
                texture.flags &= !READ_AS_INTEGER;
            }
            // The driver wants to be told what HIP takes from the resource.
            let format =
                |view: &ResourceViewDesc| if view.format == 0 { view_format(&layout) } else { Some(view.format) };
            let whole = |view: &ResourceViewDesc| -> HipResult<DrvResourceViewDesc> {
                let view = ResourceViewDesc { format: format(view).ok_or(HipError::INVALID_VALUE)?, ..*view };
                Ok(DrvResourceViewDesc { view, reserved: [0; 16] })
            };
            let view = view.map(whole).transpose()?;
            let view = view.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
            got(|object| cu::tex_object_create(object, &desc, &texture, view))?
        }
    };
    Ok(handle as usize)
}

/// Ends an object, once nothing enqueued can look at it.
pub(crate) fn destroy(of: Use, handle: usize) -> HipResult {
    bind()?;
    cu::ctx_synchronize()?;
    match of {
        Use::Texture => cu::tex_object_destroy(handle as u64),
        Use::Surface => cu::surf_object_destroy(handle as u64),
    }
}

/// Address and size in bytes of a module's variable.
pub(crate) fn variable(module: usize, name: &CStr) -> HipResult<(usize, usize)> {
    bind()?;
    let (mut address, mut len_bytes) = (0, 0);
    cu::module_get_global(&mut address, &mut len_bytes, module, name.as_ptr())?;
    Ok((address, len_bytes))
}

/// Stores what kernels sample by in a module's variable, once the kernels under way are done.
pub(crate) fn store(variable: usize, handle: usize) -> HipResult {
    bind()?;
    cu::ctx_synchronize()?;
    cu::memcpy(variable, std::ptr::from_ref(&handle) as usize, size_of::<usize>())
}
