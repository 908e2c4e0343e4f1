//! Texture references: settings kept by a module's variable, and the texture object that they make.
//!
//! The variable, of 8 bytes, holds the handle that kernels sample by; it is null until something is bound.

use crate::abi::TextureDesc;
use crate::array::Layout;
use crate::cuda;
use crate::device::{Device, devices};
use crate::error::{HipError, HipResult};
use crate::module;
use crate::registry::{Registry, lock};
use crate::texture::{self, Resource, Use};
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::{Arc, Mutex};

/// What is bound to a reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bound {
    Nothing,
    Array(usize),
    Mipmap(usize),
    Linear { address: usize, len_bytes: usize },
    Pitched { address: usize, width: usize, height: usize, pitch: usize },
}

/// The settings of a reference.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) texture: TextureDesc,
    /// `HIP_TRSF_*`, as given; `texture` says what they mean.
    pub(crate) flags: u32,
    /// `hipArray_Format` and number of channels of what is bound by its address.
    pub(crate) format: (i32, u32),
    pub(crate) bound: Bound,
}

/// A texture reference.
#[derive(Debug)]
pub(crate) struct TextureReference {
    /// Address of the module's variable.
    variable: usize,
    state: Mutex<(Settings, Option<usize>)>,
    /// Keeps the variable mapped, where it is not the driver that does.
    _module: Option<Arc<module::Module>>,
}

static REFERENCES: Registry<TextureReference> = Registry::new();
/// Handles given out, by module and name.
static BY_NAME: Mutex<Option<HashMap<(usize, CString), usize>>> = Mutex::new(None);

/// The handle of a module's texture reference; the same one for every request. Fails with `hipErrorNotFound`.
pub(crate) fn of_module(handle: usize, name: &CStr) -> HipResult<usize> {
    let module = if cuda::is_active() { None } else { Some(module::resolve(handle)?) };
    let (variable, len_bytes) = match &module {
        Some(module) => module.code.variable(name)?,
        None => cuda::texture::variable(handle, name)?,
    };
    if len_bytes != size_of::<usize>() {
        return Err(HipError::NOT_FOUND);
    }
    let mut by_name = lock(&BY_NAME);
    let known = by_name.get_or_insert_default();
    if let Some(reference) = known.get(&(handle, name.to_owned())) {
        return Ok(*reference);
    }
    // Texture references start as float, one channel, clamped, sampled at points.
    let texture = TextureDesc { address_mode: [1; 3], ..TextureDesc::default() };
    let settings = Settings { texture, flags: 0, format: (0x20, 1), bound: Bound::Nothing };
    let reference = REFERENCES
        .insert(|_| Arc::new(TextureReference { variable, state: Mutex::new((settings, None)), _module: module }))?;
    known.insert((handle, name.to_owned()), reference);
    Ok(reference)
}

/// Ends the references of a module.
pub(crate) fn forget_module(handle: usize) {
    if let Some(known) = lock(&BY_NAME).as_mut() {
        known.retain(|(module, _), reference| {
            if *module == handle
                && let Some(gone) = REFERENCES.remove(*reference)
            {
                gone.unbind();
            }
            *module != handle
        });
    }
}

/// The reference a handle stands for. Fails with `hipErrorInvalidValue`.
pub(crate) fn resolve(handle: usize) -> HipResult<Arc<TextureReference>> {
    REFERENCES.get(handle).ok_or(HipError::INVALID_VALUE)
}

impl Settings {
    fn resource(&self) -> Option<Resource> {
        let (format, channels) = self.format;
        let layout = |width, height| Layout { width, height, depth: 0, format, channels, flags: 0 };
        Some(match self.bound {
            Bound::Nothing => return None,
            Bound::Array(handle) => Resource::Array(handle),
            Bound::Mipmap(handle) => Resource::Mipmap(handle),
            Bound::Linear { address, len_bytes } => Resource::Linear { address, layout: layout(0, 0), len_bytes },
            Bound::Pitched { address, width, height, pitch } => {
                Resource::Pitched { address, layout: layout(width, height), pitch }
            }
        })
    }
}

impl TextureReference {
    /// The settings as they are.
    pub(crate) fn settings(&self) -> Settings {
        lock(&self.state).0
    }

    /// Changes the settings, and with them what kernels see from now on. Fails as `change` does, and where what is bound
    /// cannot be sampled so; then nothing has changed.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Settings) -> HipResult) -> HipResult {
        let mut state = lock(&self.state);
        let mut settings = state.0;
        change(&mut settings)?;
        let object = match settings.resource() {
            Some(resource) => Some(texture::create(Use::Texture, resource, settings.texture, None)?),
            None => None,
        };
        self.store(object.unwrap_or(0))?;
        let old = std::mem::replace(&mut *state, (settings, object)).1;
        old.map_or(Ok(()), |old| texture::destroy(Use::Texture, old))
    }

    fn unbind(&self) {
        if let Some(object) = lock(&self.state).1.take() {
            // A driver that no longer has the variable has nothing to store in. The object was made by `change` and ends once.
            let _ = self.store(0);
            let _ = texture::destroy(Use::Texture, object);
        }
    }

    /// Kernels under way sample what was bound when they were launched.
    fn store(&self, handle: usize) -> HipResult {
        if cuda::is_active() {
            return cuda::texture::store(self.variable, handle);
        }
        devices().iter().for_each(Device::synchronize);
        // SAFETY: a variable of 8 bytes of the module, which is kept mapped; no kernel runs that could read it.
        unsafe { (self.variable as *mut usize).write_unaligned(handle) }
        Ok(())
    }
}
