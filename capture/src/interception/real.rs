//! The real functions behind the shims.
//!
//! A process may hold more than one HIP runtime (a framework that brings its own beside the system's). Each has a number,
//! and a set of shims of its own that lead to it: number 0 is the one that the program's own references reach, or else the
//! first one that is met.
//!
//! An address is looked up when a shim first needs it and kept: in the objects after this library in the program's
//! search order, or else in the runtime that has the number. Where a runtime offers its dispatch table, the functions in
//! the table take the place of the exported ones, which lead to them. The one module that owns raw function addresses.

use std::ffi::{CStr, CString, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use hrr_format::abi::{ChannelFormatDesc, Ptr};
use hrr_format::catalogue::APIS;

use crate::guest::notice;
use crate::guest::unnoticed::Unnoticed;
use crate::interception::{dlsym, shims};
use crate::plan::API_COUNT;

/// How many runtimes of one process are told apart; the calls of others pass unrecorded.
pub(crate) const RUNTIMES: usize = 2;

type Addresses = [[AtomicPtr<c_void>; API_COUNT]; RUNTIMES];

/// What the shims call.
static REAL: Addresses = [const { [const { AtomicPtr::new(std::ptr::null_mut()) }; API_COUNT] }; RUNTIMES];
/// What the runtimes export, as far as it was looked up.
static EXPORTED: Addresses = [const { [const { AtomicPtr::new(std::ptr::null_mut()) }; API_COUNT] }; RUNTIMES];
/// Where the runtimes are loaded; zero where none has the number.
static BASES: [AtomicUsize; RUNTIMES] = [const { AtomicUsize::new(0) }; RUNTIMES];
static MISSING_SAID: [AtomicBool; API_COUNT] = [const { AtomicBool::new(false) }; API_COUNT];
static UNNUMBERED_SAID: AtomicBool = AtomicBool::new(false);

/// Names the runtime is loaded by, newest first.
const NAMES: [&CStr; 4] = [c"libamdhip64.so.7", c"libamdhip64.so.6", c"libamdhip64.so.5", c"libamdhip64.so"];
/// A function by which a library is known to be a HIP runtime and no wrapper around some of its functions.
const WITNESS: &CStr = c"hipGetDevice";

/// `hipErrorNotSupported`: what a shim returns where the runtime lacks the function.
const NOT_SUPPORTED: i32 = 801;

/// The address of a real function of a runtime, or null.
#[inline(always)]
pub(crate) fn address(runtime: usize, api: usize) -> *mut c_void {
    // Acquire: pairs with the release that stored the address after the object that holds it was found loaded.
    let known = REAL[runtime][api].load(Ordering::Acquire);
    if known.is_null() { look_up(runtime, api) } else { known }
}

/// The shim that stands for an address that the program found by itself; the address as it is where none does.
pub(crate) fn shim_of(api: usize, found: *mut c_void) -> *mut c_void {
    if shims::is_shim(api, found) {
        return found;
    }
    let Some(runtime) = runtime_of(found) else {
        return found;
    };
    if address(runtime, api).is_null() {
        keep(runtime, api, found);
    }
    // Relaxed: compared, not called. Where another library stands before the runtime (a wrapper that the user preloads),
    // the program has found its way around it on purpose.
    let exported = EXPORTED[runtime][api].load(Ordering::Relaxed);
    if exported == found { shims::address(runtime, api) } else { found }
}

/// The shim of whichever entry point lies at `found`, as a runtime answered a question for an address.
pub(crate) fn shim_at(found: *mut c_void) -> Option<*mut c_void> {
    for runtime in 0..RUNTIMES {
        // Relaxed: the addresses are compared, not called.
        if BASES[runtime].load(Ordering::Relaxed) == 0 {
            continue;
        }
        for api in 0..API_COUNT {
            address(runtime, api);
            if [&EXPORTED, &REAL].iter().any(|known| known[runtime][api].load(Ordering::Relaxed) == found)
                || shims::address(runtime, api) == found
            {
                return Some(shims::address(runtime, api));
            }
        }
    }
    None
}

/// Takes over an entry of a dispatch table: returns the shim that is to stand in it, or `None` where the entry must stay.
pub(crate) fn take_over(runtime: usize, api: usize, entry: *mut c_void) -> Option<*mut c_void> {
    let shim = shims::address(runtime, api);
    if entry.is_null() || entry == shim {
        return None;
    }
    // A library between the program and the runtime goes on being called first; its own calls end in the table.
    let exported = look_up(runtime, api);
    if !exported.is_null() && exported != shim && base_of(exported) != BASES[runtime].load(Ordering::Relaxed) {
        return None;
    }
    // Release: pairs with the acquire in `address`.
    REAL[runtime][api].store(entry, Ordering::Release);
    Some(shim)
}

/// The number of the runtime that a function lies in; a runtime met for the first time is given one. `None` where the
/// function lies in no runtime, or in one too many.
pub(crate) fn runtime_of(function: *mut c_void) -> Option<usize> {
    let (base, path) = object_of(function)?;
    let number = || BASES.iter().position(|known| known.load(Ordering::Acquire) == base);
    if let Some(known) = number() {
        return Some(known);
    }
    let handle = loaded(&path)?;
    if base_of(dlsym::real(handle, WITNESS)) != base {
        return None;
    }
    for (runtime, place) in BASES.iter().enumerate() {
        // The first number is kept for the runtime that the program's own references reach, if there is one.
        let wanted = if runtime == 0 { reached_base().unwrap_or(base) } else { base };
        // Release: whoever sees the number sees the object loaded, as this thread has.
        let _ = place.compare_exchange(0, wanted, Ordering::Release, Ordering::Relaxed);
        if place.load(Ordering::Acquire) == base {
            return Some(runtime);
        }
    }
    // Relaxed: only keeps the line from being repeated.
    if !UNNUMBERED_SAID.swap(true, Ordering::Relaxed) {
        notice::line(format_args!(
            "{} is the process's HIP runtime number {}; its calls are not recorded",
            path.to_string_lossy(),
            RUNTIMES + 1
        ));
    }
    None
}

/// Where the runtime is loaded that the program's own references reach.
fn reached_base() -> Option<usize> {
    let found = dlsym::real(libc::RTLD_NEXT, WITNESS);
    Some(base_of(found)).filter(|&base| base != 0 && base != base_of(shims::address(0, 0)))
}

/// Load address and file name of the object that an address lies in.
fn object_of(address: *mut c_void) -> Option<(usize, CString)> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `info` is writable; `dladdr` takes any address.
    if address.is_null() || unsafe { libc::dladdr(address, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: `dladdr` filled it, and was zero before.
    let info = unsafe { info.assume_init() };
    if info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's names are NUL-terminated.
    Some((info.dli_fbase as usize, unsafe { CStr::from_ptr(info.dli_fname) }.to_owned()))
}

fn base_of(address: *mut c_void) -> usize {
    object_of(address).map_or(0, |(base, _)| base)
}

/// A handle of an object that is loaded.
fn loaded(path: &CStr) -> Option<*mut c_void> {
    // SAFETY: the path is NUL-terminated; RTLD_NOLOAD runs no initialiser, and the count it raises on a loaded library keeps
    // its addresses valid.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
    (!handle.is_null()).then_some(handle)
}

/// The file of the first runtime.
pub(crate) fn library_path() -> Option<String> {
    // The exported addresses first: functions of a table may be another tool's.
    let known = EXPORTED[0].iter().chain(&REAL[0]).map(|slot| slot.load(Ordering::Acquire));
    let (_, path) = object_of(known.into_iter().find(|found| !found.is_null())?)?;
    Some(path.to_string_lossy().into_owned())
}

fn keep(runtime: usize, api: usize, found: *mut c_void) {
    for known in [&EXPORTED, &REAL] {
        // Release: pairs with the acquire in `address`. A known address stays.
        let _ = known[runtime][api].compare_exchange(std::ptr::null_mut(), found, Ordering::Release, Ordering::Relaxed);
    }
}

/// Finds what a runtime exports; null where it has no such function.
#[cold]
fn look_up(runtime: usize, api: usize) -> *mut c_void {
    let known = EXPORTED[runtime][api].load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    let _unnoticed = Unnoticed::new();
    let Ok(name) = CString::new(APIS[api].name) else {
        return std::ptr::null_mut();
    };
    let base = BASES[runtime].load(Ordering::Acquire);
    let reached = (runtime == 0).then_some(libc::RTLD_NEXT);
    let numbered = (base != 0).then(|| object_of(base as *mut c_void)).flatten().and_then(|(_, path)| loaded(&path));
    let by_name = NAMES.iter().filter(|_| runtime == 0 && base == 0).filter_map(|name| loaded(name));
    let found = reached
        .into_iter()
        .chain(numbered)
        .chain(by_name)
        .map(|handle| dlsym::real(handle, &name))
        .find(|&found| !found.is_null() && !shims::is_shim(api, found));
    let Some(found) = found else { return std::ptr::null_mut() };
    if runtime == 0 && base == 0 {
        // Gives the runtime its number.
        runtime_of(found);
    }
    keep(runtime, api, found);
    found
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
