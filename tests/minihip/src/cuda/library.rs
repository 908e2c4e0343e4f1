//! Libraries and their kernels: modules that are loaded for every device on demand.

use super::context::{current_index, device, with_device};
use super::cuda_api;
use super::driver::{self as cu, got};
use super::module::{self, attribute};
use crate::api::{InStr, Out};
use crate::error::{HipError, HipResult};
use crate::module::image_at;
use crate::registry::{Registry, lock};
use std::collections::HashMap;
use std::ffi::{CStr, CString, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

#[derive(Debug)]
struct Library {
    image: Vec<u8>,
    modules: Mutex<HashMap<usize, usize>>,
    /// Kernel handles given out, by name.
    kernels: Mutex<HashMap<CString, usize>>,
}

/// A kernel of a library, on whichever device is current.
#[derive(Debug)]
struct Kernel {
    library: usize,
    name: CString,
    owner: Arc<Library>,
}

static LIBRARIES: Registry<Library> = Registry::new();
static KERNELS: Registry<Kernel> = Registry::new();

impl Library {
    /// The module on device `index`.
    fn module(&self, index: usize) -> HipResult<usize> {
        let mut modules = lock(&self.modules);
        if let Some(module) = modules.get(&index) {
            return Ok(*module);
        }
        let module = with_device(index, || module::relaxed(|| module::load(&self.image)))?;
        modules.insert(index, module);
        Ok(module)
    }
}

fn load(out: Out<usize>, image: &[u8]) -> HipResult {
    let library = Library { image: image.to_vec(), modules: Mutex::default(), kernels: Mutex::default() };
    // Fails now if there is nothing for this machine in it, not at the first kernel.
    library.module(current_index())?;
    out.set(LIBRARIES.insert(|_| Arc::new(library))?)
}

fn resolve(handle: usize) -> HipResult<Arc<Library>> {
    LIBRARIES.get(handle).ok_or(HipError::INVALID_HANDLE)
}

fn kernel_handle(library: usize, name: &CStr) -> HipResult<usize> {
    let owner = resolve(library)?;
    module::function(owner.module(current_index())?, name, 0)?;
    let mut kernels = lock(&owner.kernels);
    if let Some(handle) = kernels.get(name) {
        return Ok(*handle);
    }
    let kernel = Kernel { library, name: name.to_owned(), owner: Arc::clone(&owner) };
    let handle = KERNELS.insert(|_| Arc::new(kernel))?;
    kernels.insert(name.to_owned(), handle);
    Ok(handle)
}

fn kernel(handle: usize) -> HipResult<Arc<Kernel>> {
    KERNELS.get(handle).ok_or(HipError::INVALID_HANDLE)
}

/// The function of a library's kernel on device `index`.
fn function(handle: usize, index: usize) -> HipResult<usize> {
    let kernel = kernel(handle)?;
    let module = kernel.owner.module(index)?;
    with_device(index, || module::function(module, &kernel.name, 0))
}

/// Forgets what was loaded on a device that is reset: it is loaded again when the device needs it.
pub(super) fn forget_device(index: usize) {
    for library in LIBRARIES.all() {
        lock(&library.modules).remove(&index);
    }
}

cuda_api! {
    fn hipLibraryLoadData(out: Out<usize>, image: usize, _jit: usize, _jit_values: usize, _jit_count: u32, _options: usize, _values: usize, _count: u32) {
        out.check()?;
        load(out, image_at(image)?)
    }
    fn hipLibraryLoadFromFile(out: Out<usize>, name: InStr, _jit: usize, _jit_values: usize, _jit_count: u32, _options: usize, _values: usize, _count: u32) {
        out.check()?;
        let path = Path::new(OsStr::from_bytes(name.get()?.to_bytes()));
        load(out, &std::fs::read(path).map_err(|_| HipError::FILE_NOT_FOUND)?)
    }
    fn hipLibraryUnload(handle: usize) {
        let library = LIBRARIES.remove(handle).ok_or(HipError::INVALID_HANDLE)?;
        for (_, kernel) in lock(&library.kernels).drain() {
            KERNELS.remove(kernel);
        }
        lock(&library.modules).drain().try_for_each(|(_, module)| module::unload(module))
    }
    fn hipLibraryGetKernel(out: Out<usize>, library: usize, name: InStr) {
        out.check()?;
        out.set(kernel_handle(library, name.get()?)?)
    }
    fn hipLibraryGetKernelCount(out: Out<u32>, library: usize) {
        out.check()?;
        let module = resolve(library)?.module(current_index())?;
        out.set(got(|count| cu::module_get_function_count(count, module))?)
    }
    fn hipLibraryEnumerateKernels(out: Out<usize>, count: u32, library: usize) {
        out.check()?;
        let module = resolve(library)?.module(current_index())?;
        let kernels = module::functions(module, count)?.into_iter().map(|function| kernel_handle(library, module::name_of(function)?));
        out.set_array(&kernels.collect::<HipResult<Vec<_>>>()?)
    }
    fn hipLibraryGetManaged(address: Out<usize>, len_bytes: Out<usize>, library: usize, name: InStr) {
        let (storage, size) = super::managed::find(resolve(library)?.module(current_index())?, name.get()?)?;
        address.set_if_given(storage);
        len_bytes.set_if_given(size);
        Ok(())
    }
    fn hipLibraryGetGlobal(address: Out<usize>, len_bytes: Out<usize>, library: usize, name: InStr) {
        let (mut base, mut size) = (0, 0);
        cu::module_get_global(&mut base, &mut size, resolve(library)?.module(current_index())?, name.get()?.as_ptr())?;
        address.set_if_given(base);
        len_bytes.set_if_given(size);
        Ok(())
    }
    fn hipKernelGetLibrary(out: Out<usize>, handle: usize) { out.set(kernel(handle)?.library) }
    fn hipKernelGetName(out: Out<*const c_char>, handle: usize) {
        // Lives as long as the library.
        out.set(kernel(handle)?.name.as_ptr())
    }
    fn hipKernelGetFunction(out: Out<usize>, handle: usize) {
        out.check()?;
        out.set(function(handle, current_index())?)
    }
    fn hipKernelGetParamInfo(handle: usize, index: usize, offset: Out<usize>, len_bytes: Out<usize>) {
        let known = module::known(function(handle, current_index())?).ok_or(HipError::INVALID_HANDLE)?;
        let (found, size) = *known.parameters.get(index).ok_or(HipError::INVALID_VALUE)?;
        offset.set(found)?;
        len_bytes.set_if_given(size);
        Ok(())
    }
    fn hipKernelGetAttribute(out: Out<i32>, number: i32, handle: usize, ordinal: i32) {
        out.check()?;
        out.set(attribute(function(handle, device(ordinal)?.index)?, number)?)
    }
    fn hipKernelSetAttribute(number: i32, value: i32, handle: usize, ordinal: i32) {
        let index = device(ordinal)?.index;
        cu::func_set_attribute(function(handle, index)?, number, value)
    }
}
