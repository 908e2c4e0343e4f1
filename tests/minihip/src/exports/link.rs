//! Linking.

use crate::api::{In, InStr, Out, hip_api};
use crate::error::HipError;
use crate::link;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

hip_api! {
    fn hipLinkCreate(_count: u32, _options: usize, _values: usize, out: Out<usize>) {
        out.check()?;
        out.set(link::create()?)
    }
    fn hipLinkAddData(handle: usize, kind: i32, data: In<u8>, len_bytes: usize, _name: usize, _count: u32, _options: usize, _values: usize) {
        link::resolve(handle)?.add(kind, data.array(len_bytes)?)
    }
    fn hipLinkAddFile(handle: usize, kind: i32, path: InStr, _count: u32, _options: usize, _values: usize) {
        let link = link::resolve(handle)?;
        let path = Path::new(OsStr::from_bytes(path.get()?.to_bytes()));
        link.add(kind, std::fs::read(path).map_err(|_| HipError::FILE_NOT_FOUND)?)
    }
    fn hipLinkComplete(handle: usize, out: Out<usize>, len_bytes: Out<usize>) {
        out.check()?;
        let (address, size) = link::resolve(handle)?.complete()?;
        out.set(address)?;
        len_bytes.set_if_given(size);
        Ok(())
    }
    fn hipLinkDestroy(handle: usize) { link::destroy(handle) }
}
