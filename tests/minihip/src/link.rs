//! The linker: images added one by one, and the image that holds the code objects of all of them.

use crate::bundle;
use crate::cuda;
use crate::error::{HipError, HipResult};
use crate::module::CodeObject;
use crate::registry::{Registry, lock};
use crate::thread_state::current_device;
use std::sync::{Arc, Mutex};

/// `hipJitInputType` of what can be linked here: a code object, a bundle, an object.
const INPUT_TYPES: [i32; 3] = [0, 2, 3];

/// A link under way.
#[derive(Debug, Default)]
pub(crate) struct Link {
    images: Mutex<Vec<Vec<u8>>>,
    /// What was made, kept as long as the link: the program is given its address.
    linked: Mutex<Option<Arc<[u8]>>>,
}

static LINKS: Registry<Link> = Registry::new();

/// Begins a link.
pub(crate) fn create() -> HipResult<usize> {
    LINKS.insert(|_| Arc::default())
}

/// The link a handle stands for. Fails with `hipErrorInvalidHandle`.
pub(crate) fn resolve(handle: usize) -> HipResult<Arc<Link>> {
    LINKS.get(handle).ok_or(HipError::INVALID_HANDLE)
}

/// Ends a link, and with it the image that it made.
pub(crate) fn destroy(handle: usize) -> HipResult {
    LINKS.remove(handle).map(drop).ok_or(HipError::INVALID_HANDLE)
}

impl Link {
    /// Adds an image. Fails with `hipErrorInvalidImage` on bytes that are none, with `hipErrorInvalidConfiguration`, HIP's
    /// answer, on a type that is not linked here, and once the link is complete.
    pub(crate) fn add(&self, input_type: i32, image: Vec<u8>) -> HipResult {
        if !INPUT_TYPES.contains(&input_type) {
            return Err(HipError::INVALID_CONFIGURATION);
        }
        if lock(&self.linked).is_some() {
            return Err(HipError::INVALID_VALUE);
        }
        if cuda::is_active() {
            cuda::link::check_input(&image)?;
        } else {
            bundle::find_all_code(&image)?;
        }
        lock(&self.images).push(image);
        Ok(())
    }

    /// Makes the image, and gives its address and size in bytes. Fails with `hipErrorInvalidImage` where two images have
    /// the same symbol, or there is none.
    pub(crate) fn complete(&self) -> HipResult<(usize, usize)> {
        let mut linked = lock(&self.linked);
        if linked.is_none() {
            let images = lock(&self.images);
            if images.is_empty() {
                return Err(HipError::INVALID_IMAGE);
            }
            let image = bundle::merge(&images)?;
            // Whether its parts go together shows when it is loaded.
            if cuda::is_active() {
                cuda::link::check(&image)?;
            } else {
                CodeObject::load(&image, current_device()?.index)?;
            }
            *linked = Some(image.into());
        }
        linked.as_ref().map(|image| (image.as_ptr() as usize, image.len())).ok_or(HipError::UNKNOWN)
    }
}
