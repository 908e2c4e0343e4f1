//! What compiled programs register before `main`: fat binaries, and the host addresses of kernels and variables.

use crate::device::devices;
use crate::error::{HipError, HipResult};
use crate::kernel::Kernel;
use crate::memory::{self, MemoryKind};
use crate::module::{self, CodeObject};
use crate::registry::{Registry, lock};
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

/// Magic of `.hipFatBinSegment` ("HIPF").
const WRAPPER_MAGIC: u32 = 0x4850_4946;
/// The same as some linkers spell it.
const WRAPPER_MAGIC_SWAPPED: u32 = 0x4849_5046;

/// One value per device, made at first use.
type PerDevice<T> = Box<[OnceLock<HipResult<T>>]>;

fn per_device<T>() -> PerDevice<T> {
    devices().iter().map(|_| OnceLock::new()).collect()
}

/// A registered fat binary; its code is loaded on a device when that device first needs it.
#[derive(Debug)]
pub(crate) struct FatBinary {
    bundle: usize,
    code: PerDevice<Arc<CodeObject>>,
    managed: Mutex<Vec<(CString, usize)>>,
}

/// A kernel known by the address of its host stub.
#[derive(Debug)]
struct HostFunction {
    name: CString,
    binary: Arc<FatBinary>,
    kernels: PerDevice<Arc<Kernel>>,
    /// Handle made by `hipGetFuncBySymbol`, per device.
    functions: PerDevice<usize>,
}

/// A device variable known by the address of its host shadow.
#[derive(Debug)]
struct HostVariable {
    name: CString,
    binary: Arc<FatBinary>,
    len_bytes: usize,
    /// Storage of a managed variable.
    managed: Option<usize>,
}

static BINARIES: Registry<FatBinary> = Registry::new();
static FUNCTIONS: RwLock<Option<HashMap<usize, Arc<HostFunction>>>> = RwLock::new(None);
static VARIABLES: RwLock<Option<HashMap<usize, Arc<HostVariable>>>> = RwLock::new(None);

fn look_up<T>(map: &RwLock<Option<HashMap<usize, Arc<T>>>>, key: usize) -> Option<Arc<T>> {
    map.read().unwrap_or_else(PoisonError::into_inner).as_ref()?.get(&key).cloned()
}

fn add<T>(map: &RwLock<Option<HashMap<usize, Arc<T>>>>, key: usize, value: T) {
    map.write().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().insert(key, Arc::new(value));
}

fn drop_where<T>(map: &RwLock<Option<HashMap<usize, Arc<T>>>>, gone: impl Fn(&T) -> bool) {
    if let Some(map) = map.write().unwrap_or_else(PoisonError::into_inner).as_mut() {
        map.retain(|_, value| !gone(value));
    }
}

/// `__hipRegisterFatBinary`: 24 bytes, {u32 magic, u32 version, bundle, unused}.
pub(crate) fn register(wrapper: usize) -> HipResult<usize> {
    if wrapper == 0 {
        return Err(HipError::INVALID_VALUE);
    }
    // SAFETY: the compiler-generated caller passes its own wrapper, 24 readable bytes.
    let (magic, bundle) =
        unsafe { ((wrapper as *const u32).read_unaligned(), ((wrapper + 8) as *const usize).read_unaligned()) };
    if magic != WRAPPER_MAGIC && magic != WRAPPER_MAGIC_SWAPPED {
        eprintln!("minihip: a fat binary with an unknown wrapper ({magic:#x}) is ignored");
        return Err(HipError::INVALID_IMAGE);
    }
    BINARIES.insert(|_| Arc::new(FatBinary { bundle, code: per_device(), managed: Mutex::default() }))
}

/// `__hipUnregisterFatBinary`: its kernels and variables are unknown from now on. The code stays loaded while a
/// queue runs it, and the process is about to end, so nothing is waited for.
pub(crate) fn unregister(handle: usize) {
    if let Some(binary) = BINARIES.remove(handle) {
        drop_where(&FUNCTIONS, |function: &HostFunction| Arc::ptr_eq(&function.binary, &binary));
        drop_where(&VARIABLES, |variable: &HostVariable| Arc::ptr_eq(&variable.binary, &binary));
    }
}

/// `__hipRegisterFunction`.
pub(crate) fn register_function(binary: usize, host: usize, name: &CStr) {
    if let Some(binary) = BINARIES.get(binary) {
        add(
            &FUNCTIONS,
            host,
            HostFunction { name: name.to_owned(), binary, kernels: per_device(), functions: per_device() },
        );
    }
}

/// `__hipRegisterVar`.
pub(crate) fn register_variable(binary: usize, host: usize, name: &CStr, len_bytes: usize) {
    if let Some(binary) = BINARIES.get(binary) {
        add(&VARIABLES, host, HostVariable { name: name.to_owned(), binary, len_bytes, managed: None });
    }
}

/// `__hipRegisterManagedVar`: returns the storage both host and device use.
pub(crate) fn register_managed(binary: usize, host: usize, name: &CStr, initial: &[u8]) -> HipResult<usize> {
    let binary = BINARIES.get(binary).ok_or(HipError::INVALID_HANDLE)?;
    let storage = memory::allocate_host(MemoryKind::Managed, 0, initial.len(), 0)?;
    // SAFETY: a fresh allocation of this length, known to nobody else.
    unsafe { std::ptr::copy_nonoverlapping(initial.as_ptr(), storage as *mut u8, initial.len()) };
    lock(&binary.managed).push((name.to_owned(), storage));
    add(
        &VARIABLES,
        host,
        HostVariable { name: name.to_owned(), binary, len_bytes: initial.len(), managed: Some(storage) },
    );
    Ok(storage)
}

impl FatBinary {
    fn code(&self, device: usize) -> HipResult<Arc<CodeObject>> {
        let slot = self.code.get(device).ok_or(HipError::INVALID_DEVICE)?;
        slot.get_or_init(|| {
            let code = CodeObject::load(module::image_at(self.bundle)?, device)?;
            for (name, storage) in lock(&self.managed).iter() {
                code.bind_managed(name, *storage);
            }
            Ok(code)
        })
        .clone()
    }
}

impl HostFunction {
    fn kernel(&self, device: usize) -> HipResult<Arc<Kernel>> {
        let slot = self.kernels.get(device).ok_or(HipError::INVALID_DEVICE)?;
        slot.get_or_init(|| self.binary.code(device)?.kernel(&self.name).map(Arc::new)).clone()
    }
}

/// The kernel behind a host stub, on `device`. Fails with `hipErrorInvalidDeviceFunction` on an address that is none.
pub(crate) fn kernel(host: usize, device: usize) -> HipResult<Arc<Kernel>> {
    look_up(&FUNCTIONS, host).ok_or(HipError::INVALID_DEVICE_FUNCTION)?.kernel(device)
}

/// The function handle of a host stub's kernel on `device`, the same one for every request.
pub(crate) fn function_handle(host: usize, device: usize) -> HipResult<usize> {
    let function = look_up(&FUNCTIONS, host).ok_or(HipError::INVALID_DEVICE_FUNCTION)?;
    let kernel = function.kernel(device)?;
    let slot = function.functions.get(device).ok_or(HipError::INVALID_DEVICE)?;
    *slot.get_or_init(|| module::function_for(&kernel))
}

/// Address and size of the variable behind a host shadow, on `device`. Fails with `hipErrorInvalidSymbol`.
pub(crate) fn variable(host: usize, device: usize) -> HipResult<(usize, usize)> {
    let variable = look_up(&VARIABLES, host).ok_or(HipError::INVALID_SYMBOL)?;
    if let Some(storage) = variable.managed {
        return Ok((storage, variable.len_bytes));
    }
    let (address, len_bytes) = variable.binary.code(device)?.variable(&variable.name).map_err(|error| match error {
        HipError::NOT_FOUND => HipError::INVALID_SYMBOL,
        other => other,
    })?;
    Ok((address, if variable.len_bytes == 0 { len_bytes } else { variable.len_bytes.min(len_bytes) }))
}
