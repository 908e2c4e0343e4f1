//! Code of several images as one: the driver's linker.

use super::context::{bind, capability};
use super::driver::{self as cu, got};
use super::{image, module};
use crate::error::HipResult;

/// `CU_JIT_INPUT_CUBIN` and `CU_JIT_INPUT_PTX`.
const CUBIN: i32 = 0;
const PTX: i32 = 1;

/// Links code for the current device, each part compiled or terminated text.
pub(super) fn join(parts: &[Vec<u8>]) -> HipResult<Vec<u8>> {
    let link = got(|link| cu::link_create(0, 0, 0, link))?;
    let linked = add_all(link, parts).and_then(|()| {
        let (mut address, mut len_bytes) = (0, 0);
        cu::link_complete(link, &mut address, &mut len_bytes)?;
        // SAFETY: the driver's own image of this size, which lives until the link is destroyed below.
        Ok(unsafe { std::slice::from_raw_parts(address as *const u8, len_bytes) }.to_vec())
    });
    cu::link_destroy(link)?;
    linked
}

fn add_all(link: usize, parts: &[Vec<u8>]) -> HipResult {
    parts.iter().try_for_each(|code| {
        let kind = if image::is_elf(code) { CUBIN } else { PTX };
        cu::link_add_data(link, kind, code.as_ptr(), code.len(), c"image".as_ptr(), 0, 0, 0)
    })
}

/// Whether an image has code for the current device. Fails as a load of it would.
pub(crate) fn check_input(image: &[u8]) -> HipResult {
    image::find_all_code(image, capability()?).map(drop)
}

/// Whether the parts of an image go together, which shows when it is loaded.
pub(crate) fn check(image: &[u8]) -> HipResult {
    bind()?;
    module::unload(module::load(image)?)
}
