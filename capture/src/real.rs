//! The real functions behind the shims.
//!
//! An address is looked up when a shim first needs it and kept: in the objects after this library in the program's
//! search order, or else in a HIP runtime that the program loaded by itself. The one module that owns raw function
//! addresses.

use std::ffi::{CStr, CString, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use hrr_format::abi::{ChannelFormatDesc, Ptr};
use hrr_format::catalogue::APIS;

use crate::errno::KeepErrno;
use crate::plan::API_COUNT;
use crate::{dlsym, notice, shims};

static REAL: [AtomicPtr<c_void>; API_COUNT] = [const { AtomicPtr::new(std::ptr::null_mut()) }; API_COUNT];
static MISSING_SAID: [AtomicBool; API_COUNT] = [const { AtomicBool::new(false) }; API_COUNT];

/// Names the runtime is loaded by, newest first.
const RUNTIMES: [&CStr; 4] = [c"libamdhip64.so.7", c"libamdhip64.so.6", c"libamdhip64.so.5", c"libamdhip64.so"];

/// `hipErrorNotSupported`: what a shim returns where the runtime lacks the function.
const NOT_SUPPORTED: i32 = 801;

/// The address of a real function, or null.
#[inline(always)]
pub(crate) fn address(api: usize) -> *mut c_void {
    // Acquire: pairs with the release that stored the address after the object that holds it was found loaded.
    let known = REAL[api].load(Ordering::Acquire);
    if known.is_null() { look_up(api) } else { known }
}

/// Remembers an address that the program found by itself, in an object that an ordinary lookup does not reach.
pub(crate) fn offer(api: usize, found: *mut c_void) {
    if found != shims::address(api) {
        // Release: pairs with the acquire in `address`. A known address stays.
        let _ = REAL[api].compare_exchange(std::ptr::null_mut(), found, Ordering::Release, Ordering::Relaxed);
    }
}

/// The entry point whose real function lies at `found`, or whose shim does.
pub(crate) fn api_at(found: *mut c_void) -> Option<usize> {
    (0..API_COUNT).find(|&api| {
        // Relaxed: the addresses are compared, not called.
        REAL[api].load(Ordering::Relaxed) == found || shims::address(api) == found
    })
}

/// Whether the runtime has this function.
pub(crate) fn exists(api: usize) -> bool {
    !address(api).is_null()
}

/// The file that a function found so far lies in.
pub(crate) fn library_path() -> Option<String> {
    let found = REAL.iter().map(|slot| slot.load(Ordering::Acquire)).find(|found| !found.is_null())?;
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `info` is writable; `dladdr` takes any address.
    if unsafe { libc::dladdr(found, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: `dladdr` filled it, and was zero before.
    let name = unsafe { info.assume_init() }.dli_fname;
    if name.is_null() {
        return None;
    }
    // SAFETY: the loader's names are NUL-terminated.
    Some(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
}

#[cold]
fn look_up(api: usize) -> *mut c_void {
    let _errno = KeepErrno::new();
    let Ok(name) = CString::new(APIS[api].name) else {
        return std::ptr::null_mut();
    };
    let found = std::iter::once(libc::RTLD_NEXT)
        .chain(RUNTIMES.iter().map(|runtime| {
            // SAFETY: the name is NUL-terminated; RTLD_NOLOAD runs no initialiser, and the count it raises on a loaded
            // library keeps its addresses valid.
            unsafe { libc::dlopen(runtime.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) }
        }))
        .enumerate()
        .filter(|&(position, handle)| position == 0 || !handle.is_null())
        .map(|(_, handle)| dlsym::real(handle, &name))
        .find(|&found| !found.is_null() && found != shims::address(api));
    match found {
        Some(found) => {
            offer(api, found);
            REAL[api].load(Ordering::Acquire)
        }
        None => std::ptr::null_mut(),
    }
}

/// What a shim returns where there is no real function.
pub(crate) trait Missing {
    /// The value, after one line on standard error for each entry point.
    fn missing(api: usize) -> Self;
}

impl Missing for i32 {
    fn missing(api: usize) -> Self {
        say_missing(api);
        NOT_SUPPORTED
    }
}

impl Missing for () {
    fn missing(api: usize) -> Self {
        say_missing(api);
    }
}

impl Missing for Ptr {
    fn missing(api: usize) -> Self {
        say_missing(api);
        std::ptr::null_mut()
    }
}

impl Missing for ChannelFormatDesc {
    fn missing(api: usize) -> Self {
        say_missing(api);
        ChannelFormatDesc::default()
    }
}

#[cold]
fn say_missing(api: usize) {
    // Relaxed: only keeps the line from being repeated.
    if !MISSING_SAID[api].swap(true, Ordering::Relaxed) {
        notice::line(format_args!("the HIP runtime in this process has no {}; the call fails", APIS[api].name));
    }
}
