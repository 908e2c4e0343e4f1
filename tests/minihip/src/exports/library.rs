//! Libraries and their kernels: modules that are loaded for every device on demand.

use crate::api::{InStr, Out, hip_api};
use crate::device::devices;
use crate::error::{HipError, HipResult};
use crate::kernel::Kernel;
use crate::module::{self, CodeObject};
use crate::properties;
use crate::registry::{Registry, lock};
use crate::thread_state::current_device;
use std::collections::HashMap;
use std::ffi::{CStr, CString, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

#[derive(Debug)]
struct Library {
    image: Vec<u8>,
    code: Box<[OnceLock<HipResult<Arc<CodeObject>>>]>,
    /// Kernel handles given out, by name.
    kernels: Mutex<HashMap<CString, usize>>,
}

/// A kernel of a library, on whichever device is current.
#[derive(Debug)]
struct LibraryKernel {
    library: usize,
    name: CString,
    owner: Arc<Library>,
    functions: Box<[OnceLock<HipResult<usize>>]>,
}

static LIBRARIES: Registry<Library> = Registry::new();
static KERNELS: Registry<LibraryKernel> = Registry::new();

fn load(out: Out<usize>, image: &[u8]) -> HipResult {
    // Fails now if there is nothing for this machine in it, not at the first kernel.
    let device = current_device()?;
    let library = Library {
        image: image.to_vec(),
        code: devices().iter().map(|_| OnceLock::new()).collect(),
        kernels: Mutex::default(),
    };
    library.code(device.index)?;
    out.set(LIBRARIES.insert(|_| Arc::new(library))?)
}

impl Library {
    fn code(&self, device: usize) -> HipResult<Arc<CodeObject>> {
        let slot = self.code.get(device).ok_or(HipError::INVALID_DEVICE)?;
        slot.get_or_init(|| CodeObject::load(&self.image, device)).clone()
    }
}

fn resolve(handle: usize) -> HipResult<Arc<Library>> {
    LIBRARIES.get(handle).ok_or(HipError::INVALID_HANDLE)
}

fn kernel_handle(library: usize, name: &CStr) -> HipResult<usize> {
    let owner = resolve(library)?;
    owner.code(current_device()?.index)?.kernel(name)?;
    let mut kernels = lock(&owner.kernels);
    if let Some(handle) = kernels.get(name) {
        return Ok(*handle);
    }
    let functions = devices().iter().map(|_| OnceLock::new()).collect();
    let kernel = LibraryKernel { library, name: name.to_owned(), owner: Arc::clone(&owner), functions };
    let handle = KERNELS.insert(|_| Arc::new(kernel))?;
    kernels.insert(name.to_owned(), handle);
    Ok(handle)
}

fn kernel(handle: usize) -> HipResult<Arc<LibraryKernel>> {
    KERNELS.get(handle).ok_or(HipError::INVALID_HANDLE)
}

/// The function handle of a library's kernel on the current device.
fn function(handle: usize) -> HipResult<usize> {
    let kernel = kernel(handle)?;
    let device = current_device()?.index;
    let slot = kernel.functions.get(device).ok_or(HipError::INVALID_DEVICE)?;
    *slot.get_or_init(|| module::function_for(&Arc::new(kernel.owner.code(device)?.kernel(&kernel.name)?)))
}

fn device_kernel(handle: usize) -> HipResult<Arc<Kernel>> {
    module::resolve_function(function(handle)?)
}

hip_api! {
    fn hipLibraryLoadData(out: Out<usize>, image: usize, _jit: usize, _jit_values: usize, _jit_count: u32, _options: usize, _values: usize, _count: u32) {
        out.check()?;
        load(out, module::image_at(image)?)
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
        Ok(())
    }
    fn hipLibraryGetKernel(out: Out<usize>, library: usize, name: InStr) {
        out.check()?;
        out.set(kernel_handle(library, name.get()?)?)
    }
    fn hipLibraryGetKernelCount(out: Out<u32>, library: usize) {
        out.check()?;
        out.set(resolve(library)?.code(current_device()?.index)?.kernel_names().len() as u32)
    }
    fn hipLibraryEnumerateKernels(out: Out<usize>, count: u32, library: usize) {
        let names = resolve(library)?.code(current_device()?.index)?.kernel_names();
        let handles = names
            .iter()
            .take(count as usize)
            .map(|name| kernel_handle(library, &CString::new(name.as_str()).map_err(|_| HipError::UNKNOWN)?))
            .collect::<HipResult<Vec<_>>>()?;
        out.set_array(&handles)
    }
    fn hipLibraryGetGlobal(address: Out<usize>, len_bytes: Out<usize>, library: usize, name: InStr) {
        let (base, size) = resolve(library)?.code(current_device()?.index)?.variable(name.get()?)?;
        address.set_if_given(base);
        len_bytes.set_if_given(size);
        Ok(())
    }
    fn hipLibraryGetManaged(address: Out<usize>, len_bytes: Out<usize>, library: usize, name: InStr) {
        let found = resolve(library)?.code(current_device()?.index)?.managed(name.get()?)?;
        address.set_if_given(found.storage);
        len_bytes.set_if_given(found.len_bytes);
        Ok(())
    }
    fn hipKernelGetLibrary(out: Out<usize>, handle: usize) { out.set(kernel(handle)?.library) }
    fn hipKernelGetName(out: Out<*const c_char>, handle: usize) {
        // Lives as long as the library.
        out.set(kernel(handle)?.name.as_ptr())
    }
    fn hipKernelGetFunction(out: Out<usize>, handle: usize) {
        out.check()?;
        out.set(function(handle)?)
    }
    fn hipKernelGetParamInfo(handle: usize, index: usize, offset: Out<usize>, len_bytes: Out<usize>) {
        let kernel = device_kernel(handle)?;
        let argument = kernel.arguments.get(index).ok_or(HipError::INVALID_VALUE)?;
        offset.set(argument.offset)?;
        len_bytes.set_if_given(argument.len_bytes);
        Ok(())
    }
    fn hipKernelGetAttribute(out: Out<i32>, attribute: i32, handle: usize, ordinal: i32) {
        crate::device::device_by_ordinal(ordinal)?;
        out.set(crate::exports::module::function_attribute(&*device_kernel(handle)?, attribute)?)
    }
    fn hipKernelSetAttribute(attribute: i32, value: i32, handle: usize, ordinal: i32) {
        crate::device::device_by_ordinal(ordinal)?;
        kernel(handle)?;
        let fits = usize::try_from(value).is_ok_and(|value| value <= properties::SHARED_BYTES_PER_BLOCK);
        if matches!(attribute, 8 | 9) && fits { Ok(()) } else { Err(HipError::INVALID_VALUE) }
    }
}
