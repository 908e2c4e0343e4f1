//! What compiled programs register before `main`, loaded on a device when that device first needs it.

use super::context::{bind_again, device_at, with_device};
use super::driver as cu;
use super::handles::{FIRST_FREE_TAG, advance_generation, cached};
use super::managed;
use super::module::{self, relaxed};
use crate::error::{HipError, HipResult};
use crate::module::image_at;
use crate::registry::lock;
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Magic of `.hipFatBinSegment` ("HIPF"), in either spelling.
const WRAPPER_MAGICS: [u32; 2] = [0x4850_4946, 0x4849_5046];

/// A registered fat binary and the modules made of it, by device.
#[derive(Debug)]
struct Binary {
    bundle: usize,
    modules: Mutex<HashMap<usize, Loaded>>,
    /// Names of registered managed variables and their memory.
    managed: Mutex<Vec<(CString, usize)>>,
}

/// What a device has of a fat binary.
#[derive(Clone, Copy, Debug)]
struct Loaded {
    module: HipResult<usize>,
    /// Kernels that were known when they were last loaded.
    kernels: usize,
    /// Managed variables that its pointers lead to.
    managed: usize,
}

/// A kernel or a variable known by a host address.
#[derive(Debug)]
struct Symbol {
    name: CString,
    binary: Arc<Binary>,
    len_bytes: usize,
    /// Memory of a managed variable.
    managed: Option<usize>,
}

#[derive(Debug, Default)]
struct Registered {
    binaries: HashMap<usize, Arc<Binary>>,
    functions: HashMap<usize, Arc<Symbol>>,
    variables: HashMap<usize, Arc<Symbol>>,
}

static REGISTERED: RwLock<Option<Registered>> = RwLock::new(None);

fn change<R>(body: impl FnOnce(&mut Registered) -> R) -> R {
    body(REGISTERED.write().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

fn look<R>(body: impl FnOnce(&Registered) -> Option<R>) -> Option<R> {
    body(REGISTERED.read().unwrap_or_else(PoisonError::into_inner).as_ref()?)
}

/// `__hipRegisterFatBinary`: 24 bytes, {u32 magic, u32 version, bundle, unused}. Returns the handle.
pub(crate) fn register(wrapper: usize) -> HipResult<usize> {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    if wrapper == 0 {
        return Err(HipError::INVALID_VALUE);
    }
    // SAFETY: the compiler-generated caller passes its own wrapper, 24 readable bytes.
    let (magic, bundle) =
        unsafe { ((wrapper as *const u32).read_unaligned(), ((wrapper + 8) as *const usize).read_unaligned()) };
    if !WRAPPER_MAGICS.contains(&magic) {
        return Err(HipError::INVALID_IMAGE);
    }
    // Relaxed: only uniqueness matters. Times 64: programs may take it for an address.
    let handle = NEXT.fetch_add(1, Ordering::Relaxed) * 64;
    change(|known| {
        known.binaries.insert(handle, Arc::new(Binary { bundle, modules: Mutex::default(), managed: Mutex::default() }))
    });
    Ok(handle)
}

/// `__hipUnregisterFatBinary`. Its modules stay loaded: the driver may already be shutting down when programs call this.
pub(crate) fn unregister(handle: usize) {
    change(|known| {
        if let Some(binary) = known.binaries.remove(&handle) {
            known.functions.retain(|_, symbol| !Arc::ptr_eq(&symbol.binary, &binary));
            known.variables.retain(|_, symbol| !Arc::ptr_eq(&symbol.binary, &binary));
        }
    });
    advance_generation();
}

/// `__hipRegisterFunction`.
pub(crate) fn register_function(binary: usize, host: usize, name: &CStr) {
    change(|known| {
        if let Some(binary) = known.binaries.get(&binary).map(Arc::clone) {
            known
                .functions
                .insert(host, Arc::new(Symbol { name: name.to_owned(), binary, len_bytes: 0, managed: None }));
        }
    });
    advance_generation();
    bind_again();
}

/// `__hipRegisterVar`.
pub(crate) fn register_variable(binary: usize, host: usize, name: &CStr, len_bytes: usize) {
    change(|known| {
        if let Some(binary) = known.binaries.get(&binary).map(Arc::clone) {
            known.variables.insert(host, Arc::new(Symbol { name: name.to_owned(), binary, len_bytes, managed: None }));
        }
    });
}

/// `__hipRegisterManagedVar`: returns the memory that host and devices share.
pub(crate) fn register_managed(binary: usize, host: usize, name: &CStr, initial: &[u8]) -> HipResult<usize> {
    super::context::bind()?;
    let binary = look(|known| known.binaries.get(&binary).map(Arc::clone)).ok_or(HipError::INVALID_HANDLE)?;
    let storage = managed::allocate(initial.len())?;
    cu::memcpy(storage, initial.as_ptr() as usize, initial.len())?;
    lock(&binary.managed).push((name.to_owned(), storage));
    let symbol = Symbol { name: name.to_owned(), binary, len_bytes: initial.len(), managed: Some(storage) };
    change(|known| known.variables.insert(host, Arc::new(symbol)));
    bind_again();
    Ok(storage)
}

impl Binary {
    /// The module on `device`, which is current, with all of its kernels: the driver loads each when it is first asked for.
    fn module(self: &Arc<Self>, device: usize) -> HipResult<usize> {
        let mut modules = lock(&self.modules);
        let loaded = modules.entry(device).or_insert_with(|| Loaded {
            module: relaxed(|| module::load(image_at(self.bundle)?)),
            kernels: 0,
            managed: 0,
        });
        let module = loaded.module?;
        for (name, storage) in &lock(&self.managed)[loaded.managed..] {
            relaxed(|| managed::point(module, name, *storage))?;
            loaded.managed += 1;
        }
        let all: Vec<(usize, Arc<Symbol>)> = look(|known| {
            let own = known.functions.iter().filter(|(_, symbol)| Arc::ptr_eq(&symbol.binary, self));
            Some(own.map(|(host, symbol)| (*host, Arc::clone(symbol))).collect())
        })
        .unwrap_or_default();
        if all.len() != loaded.kernels {
            loaded.kernels = all.len();
            for (host, symbol) in all {
                // A stub whose kernel the bundle lacks is an error of the launch that asks for it.
                let _ = module::function(module, &symbol.name, host);
            }
        }
        Ok(module)
    }
}

/// Loads everything that is registered so far on `device`, which is current. What has no code for it is an error of the call
/// that asks for it.
pub(super) fn load(device: usize) {
    for binary in binaries() {
        let _ = binary.module(device);
    }
}

/// What is registered.
fn binaries() -> Vec<Arc<Binary>> {
    look(|known| Some(known.binaries.values().map(Arc::clone).collect())).unwrap_or_default()
}

/// The function a launch names on device `device`: that of a registered host stub, or a module's function itself. Fails
/// with `hipErrorInvalidDeviceFunction` on anything else.
#[inline]
pub(super) fn function(named: usize, device: usize) -> HipResult<usize> {
    cached(named, FIRST_FREE_TAG + device, || find_function(named, device))
}

#[cold]
fn find_function(named: usize, device: usize) -> HipResult<usize> {
    match look(|known| known.functions.get(&named).map(Arc::clone)) {
        Some(symbol) => with_device(device, || {
            let module = symbol.binary.module(device)?;
            module::function(module, &symbol.name, named)
        })
        .map_err(|error| if error == HipError::NOT_FOUND { HipError::INVALID_DEVICE_FUNCTION } else { error }),
        None if module::is_function(named) => Ok(named),
        None => Err(HipError::INVALID_DEVICE_FUNCTION),
    }
}

/// The function of a registered host stub only.
pub(super) fn function_of_host(host: usize, device: usize) -> HipResult<usize> {
    look(|known| known.functions.get(&host).map(drop)).ok_or(HipError::INVALID_DEVICE_FUNCTION)?;
    function(host, device)
}

/// Name of the kernel behind a host stub; lives as long as the fat binary is registered.
pub(super) fn name_of_host(host: usize) -> Option<*const std::ffi::c_char> {
    look(|known| known.functions.get(&host).map(|symbol| symbol.name.as_ptr()))
}

/// Address and size of the variable behind a host shadow, on `device`. Fails with `hipErrorInvalidSymbol`.
pub(super) fn variable(host: usize, device: usize) -> HipResult<(usize, usize)> {
    let symbol = look(|known| known.variables.get(&host).map(Arc::clone)).ok_or(HipError::INVALID_SYMBOL)?;
    if let Some(storage) = symbol.managed {
        return Ok((storage, symbol.len_bytes));
    }
    with_device(device, || {
        let (mut address, mut len_bytes) = (0, 0);
        let module = symbol.binary.module(device)?;
        cu::module_get_global(&mut address, &mut len_bytes, module, symbol.name.as_ptr())
            .map_err(|error| if error == HipError::NOT_FOUND { HipError::INVALID_SYMBOL } else { error })?;
        Ok((address, if symbol.len_bytes == 0 { len_bytes } else { symbol.len_bytes.min(len_bytes) }))
    })
}

/// Forgets what was loaded on a device that was reset.
pub(super) fn forget_device(device: usize) -> HipResult {
    device_at(device)?;
    for binary in binaries() {
        lock(&binary.modules).remove(&device);
    }
    advance_generation();
    Ok(())
}
