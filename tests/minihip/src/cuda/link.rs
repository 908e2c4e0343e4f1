//! Linking: the driver's linker, given the code for the current device of each image.

use super::context::capability;
use super::cuda_api;
use super::driver::{self as cu, got};
use super::image;
use crate::api::{In, InStr, Out};
use crate::error::{HipError, HipResult};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;

use crate::registry::lock;

/// `hipJitInputType` of what can be linked here: a code object, a bundle, an object.
const INPUT_TYPES: [i32; 3] = [0, 2, 3];
/// `CU_JIT_INPUT_CUBIN` and `CU_JIT_INPUT_PTX`.
const CUBIN: i32 = 0;
const PTX: i32 = 1;

/// Links under way, which the driver does not check.
static LINKS: Mutex<Option<HashSet<usize>>> = Mutex::new(None);

fn check(link: usize) -> HipResult {
    if lock(&LINKS).as_ref().is_some_and(|links| links.contains(&link)) {
        Ok(())
    } else {
        Err(HipError::INVALID_HANDLE)
    }
}

fn add(link: usize, kind: i32, data: &[u8]) -> HipResult {
    check(link)?;
    if !INPUT_TYPES.contains(&kind) {
        return Err(HipError::INVALID_CONFIGURATION);
    }
    let code = image::find_code(data, capability()?)?;
    let driver_kind = if image::is_elf(&code) { CUBIN } else { PTX };
    cu::link_add_data(link, driver_kind, code.as_ptr(), code.len(), c"image".as_ptr(), 0, 0, 0)
}

cuda_api! {
    fn hipLinkCreate(_count: u32, _options: usize, _values: usize, out: Out<usize>) {
        out.check()?;
        let link = got(|link| cu::link_create(0, 0, 0, link))?;
        lock(&LINKS).get_or_insert_default().insert(link);
        out.set(link)
    }
    fn hipLinkAddData(link: usize, kind: i32, data: In<u8>, len_bytes: usize, _name: usize, _count: u32, _options: usize, _values: usize) {
        add(link, kind, &data.array(len_bytes)?)
    }
    fn hipLinkAddFile(link: usize, kind: i32, path: InStr, _count: u32, _options: usize, _values: usize) {
        check(link)?;
        let path = Path::new(OsStr::from_bytes(path.get()?.to_bytes()));
        add(link, kind, &std::fs::read(path).map_err(|_| HipError::FILE_NOT_FOUND)?)
    }
    fn hipLinkComplete(link: usize, out: Out<usize>, len_bytes: Out<usize>) {
        out.check()?;
        check(link)?;
        let (mut address, mut size) = (0, 0);
        cu::link_complete(link, &mut address, &mut size)?;
        out.set(address)?;
        len_bytes.set_if_given(size);
        Ok(())
    }
    fn hipLinkDestroy(link: usize) {
        if !lock(&LINKS).as_mut().is_some_and(|links| links.remove(&link)) {
            return Err(HipError::INVALID_HANDLE);
        }
        cu::link_destroy(link)
    }
}
