//! Mipmapped arrays, texture objects of both interfaces, and surface objects.

use crate::abi::{
    Array3DDescriptor, ChannelFormatDesc, DrvResourceDesc, DrvResourceViewDesc, DrvTextureDesc, Extent, ResourceDesc,
    ResourceViewDesc, TextureDesc,
};
use crate::api::{In, Out, hip_alias, hip_api};
use crate::array::Layout;
use crate::capture;
use crate::device::device_by_ordinal;
use crate::error::{HipError, HipResult};
use crate::mipmap;
use crate::texture::{self, READ_NORMALIZED_FLOAT, Resource, TextureObject, Use};
use crate::thread_state::current_device;

/// `hipResourceType` and its driver spelling: array, mipmapped array, linear, pitched.
const ARRAY: i32 = 0;
const MIPMAP: i32 = 1;
const LINEAR: i32 = 2;
const PITCHED: i32 = 3;
/// `HIP_TRSF_READ_AS_INTEGER`, `HIP_TRSF_NORMALIZED_COORDINATES`, `HIP_TRSF_SRGB`.
const READ_AS_INTEGER: u32 = 0x01;
const NORMALIZED_COORDINATES: u32 = 0x02;
const SRGB: u32 = 0x10;
/// Widest linear texture in elements.
const MAX_LINEAR_ELEMENTS: usize = 1 << 27;

fn words(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn low_high(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

/// A resource by its runtime description.
fn resource(desc: &ResourceDesc) -> HipResult<Resource> {
    let words = desc.words;
    let channels = || {
        let ((x, y), (z, w)) = (low_high(words[1]), low_high(words[2]));
        ChannelFormatDesc { x: x as i32, y: y as i32, z: z as i32, w: w as i32, kind: words[3] as i32 }
    };
    Ok(match desc.kind {
        ARRAY => Resource::Array(words[0] as usize),
        MIPMAP => Resource::Mipmap(words[0] as usize),
        LINEAR => Resource::Linear {
            address: words[0] as usize,
            layout: Layout::from_channels(&channels(), 0, 0, 0, 0)?,
            len_bytes: words[4] as usize,
        },
        PITCHED => Resource::Pitched {
            address: words[0] as usize,
            layout: Layout::from_channels(&channels(), words[4] as usize, words[5] as usize, 0, 0)?,
            pitch: words[6] as usize,
        },
        _ => return Err(HipError::INVALID_VALUE),
    })
}

/// A resource by its driver description.
fn driver_resource(desc: &DrvResourceDesc) -> HipResult<Resource> {
    let words = desc.words;
    let (format, channels) = low_high(words[1]);
    let layout = |width: u64, height: u64| {
        let (width, height) = (width as usize, height as usize);
        Layout { width, height, depth: 0, format: format as i32, channels, flags: 0 }
    };
    Ok(match desc.kind {
        ARRAY => Resource::Array(words[0] as usize),
        MIPMAP => Resource::Mipmap(words[0] as usize),
        LINEAR => Resource::Linear { address: words[0] as usize, layout: layout(0, 0), len_bytes: words[2] as usize },
        PITCHED => {
            let pitch = words[4] as usize;
            Resource::Pitched { address: words[0] as usize, layout: layout(words[2], words[3]), pitch }
        }
        _ => return Err(HipError::INVALID_VALUE),
    })
}

fn describe(resource: &Resource) -> HipResult<ResourceDesc> {
    let with_channels = |kind, address: usize, layout: &Layout, rest: [u64; 3]| {
        let desc = layout.channels()?;
        let xy = words(desc.x as u32, desc.y as u32);
        let zw = words(desc.z as u32, desc.w as u32);
        let all = [address as u64, xy, zw, words(desc.kind as u32, 0), rest[0], rest[1], rest[2]];
        Ok(ResourceDesc { kind, words: all })
    };
    match *resource {
        Resource::Array(handle) => Ok(ResourceDesc { kind: ARRAY, words: [handle as u64, 0, 0, 0, 0, 0, 0] }),
        Resource::Mipmap(handle) => Ok(ResourceDesc { kind: MIPMAP, words: [handle as u64, 0, 0, 0, 0, 0, 0] }),
        Resource::Linear { address, ref layout, len_bytes } => {
            with_channels(LINEAR, address, layout, [len_bytes as u64, 0, 0])
        }
        Resource::Pitched { address, ref layout, pitch } => {
            with_channels(PITCHED, address, layout, [layout.width as u64, layout.height as u64, pitch as u64])
        }
    }
}

/// A resource as the driver interface describes it.
pub(crate) fn describe_to_driver(resource: &Resource) -> DrvResourceDesc {
    let mut desc = DrvResourceDesc::default();
    let (kind, first) = match *resource {
        Resource::Array(handle) => (ARRAY, handle),
        Resource::Mipmap(handle) => (MIPMAP, handle),
        Resource::Linear { address, layout, len_bytes } => {
            desc.words[1] = words(layout.format as u32, layout.channels);
            desc.words[2] = len_bytes as u64;
            (LINEAR, address)
        }
        Resource::Pitched { address, layout, pitch } => {
            desc.words[1] = words(layout.format as u32, layout.channels);
            desc.words[2] = layout.width as u64;
            desc.words[3] = layout.height as u64;
            desc.words[4] = pitch as u64;
            (PITCHED, address)
        }
    };
    desc.kind = kind;
    desc.words[0] = first as u64;
    desc
}

/// A texture by its driver description, which names the read mode by a flag.
pub(crate) fn driver_texture(desc: &DrvTextureDesc) -> TextureDesc {
    TextureDesc {
        address_mode: desc.address_mode,
        filter_mode: desc.filter_mode,
        read_mode: if desc.flags & READ_AS_INTEGER != 0 { 0 } else { READ_NORMALIZED_FLOAT },
        srgb: i32::from(desc.flags & SRGB != 0),
        border: desc.border,
        normalized_coords: i32::from(desc.flags & NORMALIZED_COORDINATES != 0),
        max_anisotropy: desc.max_anisotropy,
        mipmap_filter_mode: desc.mipmap_filter_mode,
        level_bias: desc.level_bias,
        level_min: desc.level_min,
        level_max: desc.level_max,
    }
}

/// A texture as the driver interface describes it.
pub(crate) fn texture_to_driver(texture: &TextureDesc) -> DrvTextureDesc {
    let flag = |set: bool, flag: u32| if set { flag } else { 0 };
    DrvTextureDesc {
        address_mode: texture.address_mode,
        filter_mode: texture.filter_mode,
        flags: flag(texture.read_mode != READ_NORMALIZED_FLOAT, READ_AS_INTEGER)
            | flag(texture.normalized_coords != 0, NORMALIZED_COORDINATES)
            | flag(texture.srgb != 0, SRGB),
        max_anisotropy: texture.max_anisotropy,
        mipmap_filter_mode: texture.mipmap_filter_mode,
        level_bias: texture.level_bias,
        level_min: texture.level_min,
        level_max: texture.level_max,
        border: texture.border,
        reserved: [0; 12],
    }
}

fn create_mipmap(out: Out<usize>, layout: HipResult<Layout>, levels: u32) -> HipResult {
    out.check()?;
    capture::forbid_unsafe_call()?;
    out.set(mipmap::create(current_device()?.index, layout?, levels)?)
}

fn view_of(object: &TextureObject) -> HipResult<ResourceViewDesc> {
    // A texture made without a view has none to tell.
    object.view.ok_or(HipError::INVALID_VALUE)
}

fn optional<T: Copy>(pointer: In<T>) -> HipResult<Option<T>> {
    if pointer.is_null() { Ok(None) } else { pointer.get().map(Some) }
}

hip_api! {
    fn hipMallocMipmappedArray(out: Out<usize>, desc: In<ChannelFormatDesc>, extent: Extent, levels: u32, flags: u32) {
        create_mipmap(out, Layout::from_channels(&desc.get()?, extent.width, extent.height, extent.depth, flags), levels)
    }
    fn hipMipmappedArrayCreate(out: Out<usize>, desc: In<Array3DDescriptor>, levels: u32) {
        let desc = desc.get()?;
        create_mipmap(out, Ok(Layout { width: desc.width, height: desc.height, depth: desc.depth, format: desc.format, channels: desc.channels, flags: desc.flags }), levels)
    }
    fn hipFreeMipmappedArray(handle: usize) {
        capture::forbid_unsafe_call()?;
        mipmap::destroy(handle)
    }
    fn hipGetMipmappedArrayLevel(out: Out<usize>, handle: usize, level: u32) { out.set(mipmap::resolve(handle)?.level(level)?) }
    fn hipMipmappedArrayGetMemoryRequirements(out: Out<[usize; 2]>, handle: usize, ordinal: i32) {
        device_by_ordinal(ordinal)?;
        let (size, alignment) = mipmap::resolve(handle)?.requirements()?;
        out.set([size, alignment])
    }
    fn hipDeviceGetTexture1DLinearMaxWidth(out: Out<usize>, desc: In<ChannelFormatDesc>, ordinal: i32) {
        device_by_ordinal(ordinal)?;
        Layout::from_channels(&desc.get()?, 0, 0, 0, 0)?;
        out.set(MAX_LINEAR_ELEMENTS)
    }
    fn hipCreateTextureObject(out: Out<usize>, desc: In<ResourceDesc>, texture: In<TextureDesc>, view: In<ResourceViewDesc>) {
        out.check()?;
        out.set(texture::create(Use::Texture, resource(&desc.get()?)?, texture.get()?, optional(view)?)?)
    }
    fn hipDestroyTextureObject(handle: usize) { if handle == 0 { Ok(()) } else { texture::destroy(Use::Texture, handle) } }
    fn hipGetTextureObjectResourceDesc(out: Out<ResourceDesc>, handle: usize) { out.set(describe(&texture::resolve(handle)?.resource)?) }
    fn hipGetTextureObjectTextureDesc(out: Out<TextureDesc>, handle: usize) { out.set(texture::resolve(handle)?.texture) }
    fn hipGetTextureObjectResourceViewDesc(out: Out<ResourceViewDesc>, handle: usize) { out.set(view_of(&*texture::resolve(handle)?)?) }
    fn hipTexObjectCreate(out: Out<usize>, desc: In<DrvResourceDesc>, texture: In<DrvTextureDesc>, view: In<DrvResourceViewDesc>) {
        out.check()?;
        let view = optional(view)?.map(|view| view.view);
        out.set(texture::create(Use::Texture, driver_resource(&desc.get()?)?, driver_texture(&texture.get()?), view)?)
    }
    fn hipTexObjectGetResourceDesc(out: Out<DrvResourceDesc>, handle: usize) { out.set(describe_to_driver(&texture::resolve(handle)?.resource)) }
    fn hipTexObjectGetTextureDesc(out: Out<DrvTextureDesc>, handle: usize) { out.set(texture_to_driver(&texture::resolve(handle)?.texture)) }
    fn hipTexObjectGetResourceViewDesc(out: Out<DrvResourceViewDesc>, handle: usize) {
        out.set(DrvResourceViewDesc { view: view_of(&*texture::resolve(handle)?)?, reserved: [0; 16] })
    }
    fn hipCreateSurfaceObject(out: Out<usize>, desc: In<ResourceDesc>) {
        out.check()?;
        let resource = resource(&desc.get()?)?;
        if !matches!(resource, Resource::Array(_)) {
            return Err(HipError::INVALID_VALUE);
        }
        out.set(texture::create(Use::Surface, resource, TextureDesc::default(), None)?)
    }
    fn hipDestroySurfaceObject(handle: usize) { texture::destroy(Use::Surface, handle) }
}

hip_alias! {
    fn hipMipmappedArrayDestroy(handle: usize) = hipFreeMipmappedArray;
    fn hipMipmappedArrayGetLevel(out: Out<usize>, handle: usize, level: u32) = hipGetMipmappedArrayLevel;
    fn hipTexObjectDestroy(handle: usize) = hipDestroyTextureObject;
}
