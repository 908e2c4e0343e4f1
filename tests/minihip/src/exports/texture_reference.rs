//! Texture references of modules.

use crate::abi::ArrayDescriptor;
use crate::api::{In, InStr, Out, hip_api};
use crate::array;
use crate::error::{HipError, HipResult};
use crate::mipmap;
use crate::texture::READ_NORMALIZED_FLOAT;
use crate::texture_reference::{self, Bound, Settings, TextureReference};
use std::sync::Arc;

/// `HIP_TRSF_READ_AS_INTEGER`, `HIP_TRSF_NORMALIZED_COORDINATES`, `HIP_TRSF_SRGB`.
const FLAGS: [u32; 3] = [0x01, 0x02, 0x10];
/// `HIP_TRSA_OVERRIDE_FORMAT`: the only flag of a binding.
const OVERRIDE_FORMAT: u32 = 1;

fn reference(handle: usize) -> HipResult<Arc<TextureReference>> {
    texture_reference::resolve(handle)
}

fn settings(handle: usize) -> HipResult<Settings> {
    Ok(reference(handle)?.settings())
}

fn set(handle: usize, change: impl FnOnce(&mut Settings)) -> HipResult {
    reference(handle)?.change(|settings| {
        change(settings);
        Ok(())
    })
}

fn dimension(dim: i32) -> HipResult<usize> {
    usize::try_from(dim).ok().filter(|dim| *dim < 3).ok_or(HipError::INVALID_VALUE)
}

hip_api! {
    fn hipModuleGetTexRef(out: Out<usize>, module: usize, name: InStr) {
        out.check()?;
        out.set(texture_reference::of_module(module, name.get()?)?)
    }
    fn hipTexRefSetAddress(offset: Out<usize>, handle: usize, address: usize, len_bytes: usize) {
        set(handle, |settings| settings.bound = if address == 0 { Bound::Nothing } else { Bound::Linear { address, len_bytes } })?;
        offset.set_if_given(0);
        Ok(())
    }
    fn hipTexRefSetAddress2D(handle: usize, desc: In<ArrayDescriptor>, address: usize, pitch: usize) {
        let desc = desc.get()?;
        set(handle, |settings| {
            settings.format = (desc.format, desc.channels);
            settings.bound = Bound::Pitched { address, width: desc.width, height: desc.height, pitch };
        })
    }
    fn hipTexRefSetArray(handle: usize, array: usize, flags: u32) {
        if flags != OVERRIDE_FORMAT {
            return Err(HipError::INVALID_VALUE);
        }
        let layout = array::resolve(array)?.layout;
        set(handle, |settings| {
            settings.format = (layout.format, layout.channels);
            settings.bound = Bound::Array(array);
        })
    }
    fn hipTexRefSetMipmappedArray(handle: usize, mipmap: usize, flags: u32) {
        if flags != OVERRIDE_FORMAT {
            return Err(HipError::INVALID_VALUE);
        }
        mipmap::resolve(mipmap)?;
        set(handle, |settings| settings.bound = Bound::Mipmap(mipmap))
    }
    fn hipTexRefSetFormat(handle: usize, format: i32, channels: i32) {
        let channels = u32::try_from(channels).map_err(|_| HipError::INVALID_VALUE)?;
        set(handle, |settings| settings.format = (format, channels))
    }
    fn hipTexRefSetFlags(handle: usize, flags: u32) {
        if flags & !FLAGS.iter().fold(0, |all, flag| all | flag) != 0 {
            return Err(HipError::INVALID_VALUE);
        }
        set(handle, |settings| {
            settings.flags = flags;
            settings.texture.read_mode = if flags & FLAGS[0] != 0 { 0 } else { READ_NORMALIZED_FLOAT };
            settings.texture.normalized_coords = i32::from(flags & FLAGS[1] != 0);
            settings.texture.srgb = i32::from(flags & FLAGS[2] != 0);
        })
    }
    fn hipTexRefSetAddressMode(handle: usize, dim: i32, mode: i32) {
        let dim = dimension(dim)?;
        set(handle, |settings| settings.texture.address_mode[dim] = mode)
    }
    fn hipTexRefSetFilterMode(handle: usize, mode: i32) { set(handle, |settings| settings.texture.filter_mode = mode) }
    fn hipTexRefSetBorderColor(handle: usize, colour: In<[f32; 4]>) {
        let colour = colour.get()?;
        set(handle, |settings| settings.texture.border = colour)
    }
    fn hipTexRefSetMaxAnisotropy(handle: usize, most: u32) { set(handle, |settings| settings.texture.max_anisotropy = most) }
    fn hipTexRefSetMipmapFilterMode(handle: usize, mode: i32) { set(handle, |settings| settings.texture.mipmap_filter_mode = mode) }
    fn hipTexRefSetMipmapLevelBias(handle: usize, bias: f32) { set(handle, |settings| settings.texture.level_bias = bias) }
    fn hipTexRefSetMipmapLevelClamp(handle: usize, least: f32, most: f32) {
        set(handle, |settings| (settings.texture.level_min, settings.texture.level_max) = (least, most))
    }
    fn hipTexRefGetAddress(out: Out<usize>, handle: usize) {
        match settings(handle)?.bound {
            Bound::Linear { address, .. } | Bound::Pitched { address, .. } => out.set(address),
            _ => Err(HipError::INVALID_VALUE),
        }
    }
    fn hipTexRefGetArray(out: Out<usize>, handle: usize) {
        let Bound::Array(array) = settings(handle)?.bound else { return Err(HipError::INVALID_VALUE) };
        out.set(array)
    }
    fn hipTexRefGetMipMappedArray(out: Out<usize>, handle: usize) {
        let Bound::Mipmap(mipmap) = settings(handle)?.bound else { return Err(HipError::INVALID_VALUE) };
        out.set(mipmap)
    }
    fn hipTexRefGetAddressMode(out: Out<i32>, handle: usize, dim: i32) { out.set(settings(handle)?.texture.address_mode[dimension(dim)?]) }
    fn hipTexRefGetFilterMode(out: Out<i32>, handle: usize) { out.set(settings(handle)?.texture.filter_mode) }
    fn hipTexRefGetFlags(out: Out<u32>, handle: usize) { out.set(settings(handle)?.flags) }
    fn hipTexRefGetFormat(format: Out<i32>, channels: Out<i32>, handle: usize) {
        let settings = settings(handle)?;
        format.set(settings.format.0)?;
        channels.set(settings.format.1 as i32)
    }
    fn hipTexRefGetBorderColor(out: Out<[f32; 4]>, handle: usize) { out.set(settings(handle)?.texture.border) }
    fn hipTexRefGetMaxAnisotropy(out: Out<i32>, handle: usize) { out.set(settings(handle)?.texture.max_anisotropy as i32) }
    fn hipTexRefGetMipmapFilterMode(out: Out<i32>, handle: usize) { out.set(settings(handle)?.texture.mipmap_filter_mode) }
    fn hipTexRefGetMipmapLevelBias(out: Out<f32>, handle: usize) { out.set(settings(handle)?.texture.level_bias) }
    fn hipTexRefGetMipmapLevelClamp(least: Out<f32>, most: Out<f32>, handle: usize) {
        let texture = settings(handle)?.texture;
        least.set(texture.level_min)?;
        most.set(texture.level_max)
    }
}
