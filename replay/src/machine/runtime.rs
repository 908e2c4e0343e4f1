//! The HIP runtime a replay runs on: the library, its entry points, and the few calls replay makes for itself.

use std::ffi::{CStr, OsStr, c_void};
use std::path::{Path, PathBuf};

use hrr_format::catalogue::{APIS, Api};
use hrr_format::hip_error;

use crate::thunk::THUNKS;

/// `hipHostMallocDefault`.
const HOST_MALLOC_DEFAULT: u64 = 0;
/// Room for a device's name or bus id.
const NAME_BYTES: usize = 256;

/// A loaded HIP runtime.
#[derive(Debug)]
pub struct Runtime {
    path: PathBuf,
    entry_points: Vec<*const c_void>,
    // Keeps the entry points alive; never unloaded, because HIP runtimes do not survive it.
    _library: std::mem::ManuallyDrop<libloading::os::unix::Library>,
}

// SAFETY: the entry points are addresses of code in a library that stays loaded; HIP calls may be made on any thread.
unsafe impl Send for Runtime {}
// SAFETY: as above; nothing in here is written after construction.
unsafe impl Sync for Runtime {}

/// Why no runtime could be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// The library named on the command line cannot be loaded.
    #[error("cannot load the HIP runtime {path}: {reason}; give the path of a libamdhip64.so with --hip-lib")]
    Load {
        /// The library.
        path: PathBuf,
        /// The loader's reason.
        reason: String,
    },
    /// None of the default places has one.
    #[error("no HIP runtime found (tried {tried}); install ROCm, or give the path of a libamdhip64.so with --hip-lib")]
    NotFound {
        /// What was tried.
        tried: String,
    },
    /// The library is not a HIP runtime.
    #[error("{path} is not a HIP runtime: it lacks {symbol}; give the path of a libamdhip64.so with --hip-lib")]
    NotHip {
        /// The library.
        path: PathBuf,
        /// A symbol every HIP runtime has.
        symbol: &'static str,
    },
    /// The library is the recorder, which has every entry point and passes it on to a runtime.
    #[error("{path} is HRR's recorder and not a HIP runtime; give the path of a libamdhip64.so with --hip-lib")]
    Recorder {
        /// The library.
        path: PathBuf,
    },
    /// A call replay makes for itself failed.
    #[error("{api} failed with {code} ({name}) on {path}: {remedy}")]
    Call {
        /// The entry point.
        api: &'static str,
        /// The error code.
        code: i32,
        /// Its name.
        name: &'static str,
        /// The runtime.
        path: PathBuf,
        /// What to do next.
        remedy: &'static str,
    },
}

/// What the runtime says of a device.
#[derive(Clone, Debug, Default)]
pub struct DeviceInfo {
    /// Marketing name.
    pub name: String,
    /// PCI bus id, `domain:bus:device.function`, empty where the runtime does not say.
    pub pci_bus_id: String,
}

/// Memory between addresses at which nothing is mapped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GuardedRange {
    /// Where it begins.
    pub(crate) address: u64,
    middle: u64,
    mapped_bytes: u64,
    granularity: u64,
    handle: u64,
}

impl Runtime {
    /// Loads the runtime at `path`, or the default one: the loader's `libamdhip64.so`, then
    /// `${ROCM_PATH:-/opt/rocm}/lib/libamdhip64.so`.
    ///
    /// # Errors
    /// What was tried and why it did not work.
    pub fn load(path: Option<&Path>) -> Result<Self, RuntimeError> {
        let library = match path {
            Some(path) => {
                // The loader looks for a name without a slash in its own folders alone.
                let here = Path::new(".").join(path);
                let is_bare = path.components().count() == 1 && here.exists();
                let file = if is_bare { here.as_os_str() } else { path.as_os_str() };
                open(file).map_err(|reason| RuntimeError::Load { path: path.to_owned(), reason })?
            }
            None => {
                let rocm = std::env::var_os("ROCM_PATH").unwrap_or_else(|| "/opt/rocm".into());
                let in_rocm = Path::new(&rocm).join("lib").join("libamdhip64.so");
                let candidates = [
                    OsStr::new("libamdhip64.so"),
                    OsStr::new("libamdhip64.so.7"),
                    OsStr::new("libamdhip64.so.6"),
                    in_rocm.as_os_str(),
                ];
                let tried = || candidates.map(|name| name.to_string_lossy()).join(", ");
                candidates
                    .iter()
                    .find_map(|name| open(name).ok())
                    .ok_or_else(|| RuntimeError::NotFound { tried: tried() })?
            }
        };
        // SAFETY: only whether the symbol is there is looked at.
        let is_recorder = unsafe { library.get::<*const c_void>(b"hrr_capture_start\0") }.is_ok();
        let mut entry_points = Vec::with_capacity(APIS.len());
        for api in &APIS {
            let symbol = std::ffi::CString::new(api.name).unwrap_or_default();
            // SAFETY: the symbol is only used as an address; its type is applied by the thunk of the same entry point.
            let address = unsafe { library.get::<*const c_void>(symbol.as_bytes_with_nul()) };
            entry_points.push(address.map_or(std::ptr::null(), |symbol| *symbol));
        }
        let mut runtime = Runtime {
            path: path.map_or_else(PathBuf::new, Path::to_owned),
            entry_points,
            _library: std::mem::ManuallyDrop::new(library),
        };
        runtime.path = runtime.loaded_path().unwrap_or_else(|| runtime.path.clone());
        if is_recorder {
            return Err(RuntimeError::Recorder { path: runtime.path });
        }
        for symbol in ["hipGetDeviceCount", "hipMalloc"] {
            if runtime.entry_point_named(symbol).is_none() {
                return Err(RuntimeError::NotHip { path: runtime.path, symbol });
            }
        }
        Ok(runtime)
    }

    /// The file the runtime was loaded from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The address of an entry point, or `None` where this runtime lacks it.
    pub(crate) fn entry_point(&self, api: &Api) -> Option<*const c_void> {
        let address = self.entry_points[usize::from(api.id)];
        (!address.is_null()).then_some(address)
    }

    fn entry_point_named(&self, name: &str) -> Option<*const c_void> {
        self.entry_point(Api::by_name(name)?)
    }

    /// Calls an entry point by name with argument words.
    ///
    /// # Safety
    /// Pointers among the words must satisfy what the entry point demands of them.
    ///
    /// # Errors
    /// The error code it returned, or `None` where the runtime lacks it.
    unsafe fn call(&self, name: &'static str, words: &[u64]) -> Result<(), Option<i32>> {
        let api = Api::by_name(name).ok_or(None)?;
        debug_assert_eq!(words.len(), usize::from(api.words), "{name}");
        let function = self.entry_point(api).ok_or(None)?;
        let _watched = crate::triage::own_calls::enter(name);
        // SAFETY: the thunk is that of the entry point, the word count is the catalogue's, and the caller vouches for
        // the pointers.
        let outcome = unsafe { THUNKS[usize::from(api.id)](function, words.as_ptr()) };
        if outcome.code == 0 { Ok(()) } else { Err(Some(outcome.code)) }
    }

    fn failed(&self, api: &'static str, code: Option<i32>, remedy: &'static str) -> RuntimeError {
        match code {
            Some(code) => RuntimeError::Call {
                api,
                code,
                name: hip_error::name(code).unwrap_or("unknown error"),
                path: self.path.clone(),
                remedy,
            },
            None => RuntimeError::NotHip { path: self.path.clone(), symbol: api },
        }
    }

    /// Number of devices.
    ///
    /// # Errors
    /// The runtime's error, with what to check.
    pub fn device_count(&self) -> Result<i32, RuntimeError> {
        let mut count = 0i32;
        // SAFETY: the argument points to an int that outlives the call.
        unsafe { self.call("hipGetDeviceCount", &[&raw mut count as u64]) }.map_err(|code| {
            self.failed(
                "hipGetDeviceCount",
                code,
                "check that a GPU is present and accessible, or give another runtime with --hip-lib",
            )
        })?;
        Ok(count)
    }

    /// Runtime version as HIP encodes it, zero where it does not say.
    pub fn version(&self) -> i32 {
        let mut version = 0i32;
        // SAFETY: the argument points to an int that outlives the call.
        let result = unsafe { self.call("hipRuntimeGetVersion", &[&raw mut version as u64]) };
        if result.is_ok() { version } else { 0 }
    }

    /// Name and place of a device; empty where the runtime does not say.
    pub fn device_info(&self, ordinal: i32) -> DeviceInfo {
        let text = |api: &'static str| {
            let mut buffer = [0u8; NAME_BYTES];
            let words = [buffer.as_mut_ptr() as u64, NAME_BYTES as u64, ordinal as i64 as u64];
            // SAFETY: the buffer outlives the call and its length is passed with it.
            let result = unsafe { self.call(api, &words) };
            let text = CStr::from_bytes_until_nul(&buffer).ok().map(|text| text.to_string_lossy().into_owned());
            if result.is_ok() { text.unwrap_or_default() } else { String::new() }
        };
        DeviceInfo { name: text("hipDeviceGetName"), pci_bus_id: text("hipDeviceGetPCIBusId") }
    }

    /// Architecture of a device with its features, such as `gfx942:sramecc+:xnack-`; empty where the runtime does not say.
    pub fn device_arch(&self, ordinal: i32) -> String {
        /// `sizeof(hipDeviceProp_tR0600)` and the place of `gcnArchName` in it (hip_runtime_api.h of ROCm 6 and 7).
        const PROPERTIES_BYTES: usize = 1472;
        const ARCH_NAME: std::ops::Range<usize> = 1160..1416;
        let mut properties = [0u64; PROPERTIES_BYTES / 8];
        // SAFETY: the struct outlives the call and is as long as the entry point's.
        let result = unsafe {
            self.call("hipGetDevicePropertiesR0600", &[properties.as_mut_ptr() as u64, ordinal as i64 as u64])
        };
        let bytes: Vec<u8> = properties.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let name = CStr::from_bytes_until_nul(&bytes[ARCH_NAME]).ok().map(|name| name.to_string_lossy().into_owned());
        if result.is_ok() { name.unwrap_or_default() } else { String::new() }
    }

    /// Makes `ordinal` the calling thread's device.
    ///
    /// # Errors
    /// The runtime's error.
    pub fn set_device(&self, ordinal: i32) -> Result<(), RuntimeError> {
        // SAFETY: no pointers.
        unsafe { self.call("hipSetDevice", &[ordinal as i64 as u64]) }
            .map_err(|code| self.failed("hipSetDevice", code, "check that the device is visible"))
    }

    /// Waits for everything on the calling thread's device.
    ///
    /// # Errors
    /// The runtime's error.
    pub fn synchronize(&self) -> Result<(), RuntimeError> {
        // SAFETY: no arguments.
        unsafe { self.call("hipDeviceSynchronize", &[]) }
            .map_err(|code| self.failed("hipDeviceSynchronize", code, "work on the device failed"))
    }

    /// Allocates pinned host memory.
    ///
    /// # Errors
    /// The runtime's error.
    pub(crate) fn host_malloc(&self, len_bytes: usize) -> Result<*mut u8, RuntimeError> {
        let mut address = 0u64;
        // SAFETY: the first argument points to a pointer that outlives the call.
        unsafe { self.call("hipHostMalloc", &[&raw mut address as u64, len_bytes as u64, HOST_MALLOC_DEFAULT]) }
            .map_err(|code| self.failed("hipHostMalloc", code, "not enough memory can be pinned for staging"))?;
        Ok(address as *mut u8)
    }

    /// Gives back memory of [`Self::host_malloc`].
    ///
    /// # Safety
    /// `address` came from [`Self::host_malloc`], and nothing uses the memory any more.
    pub(crate) unsafe fn host_free(&self, address: *mut u8) {
        // SAFETY: by this function's contract.
        let _ = unsafe { self.call("hipHostFree", &[address as u64]) };
    }

    /// A kernel of a code object, loaded on a device for as long as the process lives.
    ///
    /// # Errors
    /// The runtime's error.
    pub(crate) fn load_function(&self, device: i32, image: &[u8], name: &str) -> Result<u64, RuntimeError> {
        self.set_device(device)?;
        let (mut module, mut function) = (0u64, 0u64);
        // SAFETY: the pointers are to a handle and to a whole code object that outlive the call.
        unsafe { self.call("hipModuleLoadData", &[&raw mut module as u64, image.as_ptr() as u64]) }
            .map_err(|code| self.failed("hipModuleLoadData", code, "the file holds no code object for this device"))?;
        let name = std::ffi::CString::new(name).unwrap_or_default();
        // SAFETY: the pointers are to a handle and to a C string that outlive the call; the module was just loaded.
        unsafe { self.call("hipModuleGetFunction", &[&raw mut function as u64, module, name.as_ptr() as u64]) }
            .map_err(|code| self.failed("hipModuleGetFunction", code, "the code object has no kernel of this name"))?;
        Ok(function)
    }

    /// Smallest unit in bytes that the virtual memory interface maps on a device; `None` where the device has none.
    pub(crate) fn mapping_granularity(&self, device: i32, otherwise: u64) -> Option<u64> {
        /// `hipDeviceAttributeVirtualMemoryManagementSupported`.
        const VIRTUAL_MEMORY: u64 = 89;
        let mut supported = 0i32;
        let words = [&raw mut supported as u64, VIRTUAL_MEMORY, device as u32 as u64];
        // SAFETY: the first argument points to an int that outlives the call.
        let asked = unsafe { self.call("hipDeviceGetAttribute", &words) };
        if asked.is_err() || supported == 0 {
            return None;
        }
        let mut bytes = 0u64;
        let properties = mapping_properties(device);
        // SAFETY: the pointers are to a size and to properties that outlive the call.
        let asked = unsafe {
            self.call("hipMemGetAllocationGranularity", &[&raw mut bytes as u64, properties.as_ptr() as u64, 0])
        };
        Some(if asked.is_ok() && bytes.is_power_of_two() { bytes } else { otherwise })
    }

    /// Free memory of a device in bytes; the calling thread's device afterwards is that one.
    pub(crate) fn free_bytes(&self, device: i32) -> u64 {
        let (mut free, mut total) = (0u64, 0u64);
        if self.set_device(device).is_err() {
            return 0;
        }
        // SAFETY: both arguments point to sizes that outlive the call.
        let asked = unsafe { self.call("hipMemGetInfo", &[&raw mut free as u64, &raw mut total as u64]) };
        if asked.is_ok() { free } else { 0 }
    }

    /// Reserves addresses of device memory, these and no others.
    pub(crate) fn reserve_at(&self, base: u64, len_bytes: u64) -> Result<(), &'static str> {
        let mut reserved = 0u64;
        // SAFETY: the first argument points to an address that outlives the call; the wanted one is only a number.
        unsafe { self.call("hipMemAddressReserve", &[&raw mut reserved as u64, len_bytes, 0, base, 0]) }
            .map_err(|_| "the runtime does not reserve the addresses")?;
        if reserved != base {
            // SAFETY: the range was just reserved, with this length.
            let _ = unsafe { self.call("hipMemAddressFree", &[reserved, len_bytes]) };
            return Err("the runtime does not give those addresses out, or they are taken in this process");
        }
        Ok(())
    }

    /// Gives addresses back that [`Self::reserve_at`] reserved.
    pub(crate) fn free_addresses(&self, base: u64, len_bytes: u64) {
        // SAFETY: a number and a length; the runtime refuses a range that is not reserved or has memory mapped.
        let _ = unsafe { self.call("hipMemAddressFree", &[base, len_bytes]) };
    }

    /// Maps memory of a device at reserved addresses, accessible from all devices that can reach it. Returns the memory's
    /// handle.
    pub(crate) fn map_at(
        &self,
        device: i32,
        device_count: i32,
        base: u64,
        len_bytes: u64,
    ) -> Result<u64, &'static str> {
        self.set_device(device).map_err(|_| "the device cannot be made current")?;
        let mut handle = 0u64;
        let properties = mapping_properties(device);
        // SAFETY: the pointers are to a handle and to properties that outlive the call.
        unsafe { self.call("hipMemCreate", &[&raw mut handle as u64, len_bytes, properties.as_ptr() as u64, 0]) }
            .map_err(|_| "the device has no memory left for it")?;
        // SAFETY: the range is reserved and the memory was made with the same length.
        let mapped = unsafe { self.call("hipMemMap", &[base, len_bytes, 0, handle, 0]) };
        let access = |devices: &[i32]| {
            // `hipMemAccessDesc`: location kind device (1), ordinal, read and write (3).
            let descriptors: Vec<[i32; 3]> = devices.iter().map(|&device| [1, device, 3]).collect();
            let words = [base, len_bytes, descriptors.as_ptr() as u64, descriptors.len() as u64];
            // SAFETY: the range is mapped, and the descriptors outlive the call.
            unsafe { self.call("hipMemSetAccess", &words) }
        };
        let all: Vec<i32> = (0..device_count).collect();
        if mapped.is_ok() && (access(&all).is_ok() || access(&[device]).is_ok()) {
            return Ok(handle);
        }
        if mapped.is_ok() {
            // SAFETY: the range was mapped above, and nothing uses it.
            let _ = unsafe { self.call("hipMemUnmap", &[base, len_bytes]) };
        }
        // SAFETY: the handle was made above and is not used any more.
        let _ = unsafe { self.call("hipMemRelease", &[handle]) };
        Err("the runtime does not map memory there")
    }

    /// Undoes [`Self::map_at`].
    ///
    /// # Safety
    /// Nothing uses the memory any more.
    pub(crate) unsafe fn unmap_at(&self, base: u64, len_bytes: u64, handle: u64) {
        // SAFETY: by this function's contract; what fails here has no consequence for a replay that is over.
        unsafe {
            let _ = self.call("hipMemUnmap", &[base, len_bytes]);
            let _ = self.call("hipMemRelease", &[handle]);
        }
    }

    /// Maps memory of a device between addresses at which nothing is mapped: as close to the end of its mapping as the
    /// alignment of its beginning allows.
    ///
    /// # Errors
    /// Why it cannot be.
    pub(crate) fn map_guarded(
        &self,
        device: i32,
        device_count: i32,
        len_bytes: u64,
        align_bytes: u64,
    ) -> Result<GuardedRange, &'static str> {
        /// Granularity assumed where the runtime does not say, in bytes.
        const FALLBACK_GRANULARITY: u64 = 2 << 20;
        let granularity = self
            .mapping_granularity(device, FALLBACK_GRANULARITY)
            .ok_or("the device has no virtual memory management")?;
        let mapped_bytes = len_bytes.checked_next_multiple_of(granularity).ok_or("it is too large")?;
        let whole_bytes = mapped_bytes.checked_add(2 * granularity).ok_or("it is too large")?;
        let mut whole = 0u64;
        // SAFETY: the first argument points to an address that outlives the call.
        unsafe { self.call("hipMemAddressReserve", &[&raw mut whole as u64, whole_bytes, 0, 0, 0]) }
            .map_err(|_| "the runtime does not reserve addresses")?;
        let middle = whole + granularity;
        let handle = match self.map_at(device, device_count, middle, mapped_bytes) {
            Ok(handle) => handle,
            Err(reason) => {
                self.free_addresses(whole, whole_bytes);
                return Err(reason);
            }
        };
        let slack = mapped_bytes - len_bytes;
        let address = middle + slack / align_bytes * align_bytes;
        Ok(GuardedRange { address, middle, mapped_bytes, granularity, handle })
    }

    /// Undoes [`Self::map_guarded`].
    ///
    /// # Safety
    /// Nothing uses the memory any more.
    pub(crate) unsafe fn unmap_guarded(&self, range: &GuardedRange) {
        // SAFETY: by this function's contract.
        unsafe { self.unmap_at(range.middle, range.mapped_bytes, range.handle) };
        self.free_addresses(range.middle - range.granularity, range.mapped_bytes + 2 * range.granularity);
    }

    /// Allocates memory of a device.
    ///
    /// # Errors
    /// The runtime has none.
    pub(crate) fn device_malloc(&self, device: i32, len_bytes: u64) -> Result<u64, RuntimeError> {
        self.set_device(device)?;
        let mut address = 0u64;
        // SAFETY: the first argument points to an address that outlives the call.
        unsafe { self.call("hipMalloc", &[&raw mut address as u64, len_bytes]) }
            .map_err(|code| self.failed("hipMalloc", code, "memory of a region cannot be had"))?;
        Ok(address)
    }

    /// Gives memory of a device back.
    ///
    /// # Safety
    /// It came from [`Self::device_malloc`], and nothing uses it any more.
    pub(crate) unsafe fn device_free(&self, address: u64) {
        // SAFETY: by this function's contract; what fails here has no consequence for a replay that is over.
        let _ = unsafe { self.call("hipFree", &[address]) };
    }

    /// Fills memory of a device, and waits for it. Where that fails the memory holds what it holds.
    pub(crate) fn device_fill(&self, device: i32, address: u64, byte: u8, len_bytes: u64) {
        if self.set_device(device).is_ok() {
            // SAFETY: the runtime checks the range.
            let filled = unsafe { self.call("hipMemset", &[address, u64::from(byte), len_bytes]) };
            if filled.is_ok() {
                let _ = self.synchronize();
            }
        }
    }

    /// The file that holds the code of `hipGetDeviceCount`.
    fn loaded_path(&self) -> Option<PathBuf> {
        let address = self.entry_point_named("hipGetDeviceCount")?;
        let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: dladdr only looks the address up and fills the struct, which outlives the call.
        if unsafe { libc::dladdr(address, info.as_mut_ptr()) } == 0 {
            return None;
        }
        // SAFETY: zeroed Dl_info is valid (null pointers), and dladdr filled it.
        let name = unsafe { info.assume_init() }.dli_fname;
        if name.is_null() {
            return None;
        }
        // SAFETY: dladdr gives a NUL-terminated string owned by the loader for as long as the library is loaded.
        let name = unsafe { CStr::from_ptr(name) };
        Some(PathBuf::from(name.to_string_lossy().into_owned()))
    }
}

/// `hipMemAllocationProp` of pinned memory (type 1) on a device (location kind 1), as 32 bytes.
fn mapping_properties(device: i32) -> [u64; 4] {
    [1, 1 | u64::from(device as u32) << 32, 0, 0]
}

fn open(name: &OsStr) -> Result<libloading::os::unix::Library, String> {
    let flags = libloading::os::unix::RTLD_NOW | libloading::os::unix::RTLD_LOCAL;
    // SAFETY: loading a library runs its constructors; the user names the HIP runtime to be run.
    unsafe { libloading::os::unix::Library::open(Some(name), flags) }.map_err(|error| {
        let mut text = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(inner) = source {
            text = inner.to_string();
            source = inner.source();
        }
        text
    })
}
