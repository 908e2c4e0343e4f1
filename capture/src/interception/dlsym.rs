//! Lookups by name: `dlsym` and `dlvsym` hand the program shims for HIP's names, and reach everything else unchanged.
//!
//! The exported functions keep the caller's return address where the C library looks for it (it decides by that address
//! what `RTLD_NEXT` means and which namespace is searched): they ask whether the name is HIP's, and otherwise *jump* to
//! the C library's function. That one is found by reading the C library's symbol table, since every lookup by name would
//! find ours.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use hrr_format::catalogue::Api;

use crate::interception::{elf, real, tables};
use crate::process;

static REAL_DLSYM: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static REAL_DLVSYM: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

/// Looks a name up with the C library's own `dlsym`, as called from this library; null where it is not found.
pub(crate) fn real(handle: *mut c_void, name: &CStr) -> *mut c_void {
    find_real();
    // SAFETY: `find_real` stored the address of a function with `dlsym`'s prototype; the name is NUL-terminated.
    unsafe {
        let dlsym: Dlsym = std::mem::transmute(REAL_DLSYM.load(Ordering::Relaxed));
        dlsym(handle, name.as_ptr())
    }
}

/// Finds the C library's functions, once; without them, stand-ins that find nothing.
fn find_real() {
    if !REAL_DLSYM.load(Ordering::Acquire).is_null() {
        return;
    }
    let or = |found: *mut c_void, stand_in: *mut c_void| if found.is_null() { stand_in } else { found };
    let dlvsym = or(elf::find_in_libc(c"dlvsym"), finds_no_version as Dlvsym as *mut c_void);
    let dlsym = or(elf::find_in_libc(c"dlsym"), finds_nothing as Dlsym as *mut c_void);
    // Release, and in this order: whoever sees the first address does not look at the second before it is there. Racing
    // threads store equal values.
    REAL_DLVSYM.store(dlvsym, Ordering::Release);
    REAL_DLSYM.store(dlsym, Ordering::Release);
}

unsafe extern "C" fn finds_nothing(_: *mut c_void, _: *const c_char) -> *mut c_void {
    std::ptr::null_mut()
}

unsafe extern "C" fn finds_no_version(_: *mut c_void, _: *const c_char, _: *const c_char) -> *mut c_void {
    std::ptr::null_mut()
}

/// The shim that the program gets for a name, or null where the C library answers.
#[cfg_attr(test, expect(dead_code, reason = "called from the exported functions, which a test binary does not have"))]
unsafe extern "C" fn shim_for(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: a null version is never passed on.
    unsafe { shim_for_version(handle, name, std::ptr::null()) }
}

unsafe extern "C" fn shim_for_version(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void {
    find_real();
    let nothing = std::ptr::null_mut();
    if name.is_null() || handle == libc::RTLD_NEXT || process::passes() {
        return nothing;
    }
    // SAFETY: the program passes a C string, as the C library demands.
    let name = unsafe { CStr::from_ptr(name) };
    if !name.to_bytes().starts_with(b"hip") && !name.to_bytes().starts_with(b"__hip") {
        return nothing;
    }
    let Some(api) = name.to_str().ok().and_then(Api::by_name) else {
        return nothing;
    };
    let api = usize::from(api.id);
    // SAFETY: `find_real` stored functions with these prototypes; the strings are the program's own.
    let found = unsafe {
        if version.is_null() {
            real(handle, name)
        } else {
            let dlvsym: Dlvsym = std::mem::transmute(REAL_DLVSYM.load(Ordering::Relaxed));
            dlvsym(handle, name.as_ptr(), version)
        }
    };
    if found.is_null() {
        // The C library is asked again, so that `dlerror` says what the program expects.
        return nothing;
    }
    real::shim_of(api, found)
}

/// The C library's `dlsym`, except that HIP's names give shims.
///
/// # Safety
/// As the C library's `dlsym`.
#[cfg(all(not(test), target_arch = "x86_64"))]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    core::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {shim_for}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jne 2f",
        "jmp qword ptr [rip + {real}]",
        "2:",
        "ret",
        shim_for = sym shim_for,
        real = sym REAL_DLSYM,
    )
}

/// The C library's `dlvsym`, except that HIP's names give shims.
///
/// # Safety
/// As the C library's `dlvsym`.
#[cfg(all(not(test), target_arch = "x86_64"))]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
) -> *mut c_void {
    core::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "call {shim_for}",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jne 2f",
        "jmp qword ptr [rip + {real}]",
        "2:",
        "ret",
        shim_for = sym shim_for_version,
        real = sym REAL_DLVSYM,
    )
}

/// Replaces an address that HIP handed out by the shim of the same entry point.
///
/// # Safety
/// `place` is null, or points to an address that the program was given.
pub(crate) unsafe fn replace_entry_point(symbol: *const c_char, place: *mut *mut c_void) {
    if place.is_null() {
        return;
    }
    // SAFETY: by the caller's contract.
    let found = unsafe { place.read_unaligned() };
    if found.is_null() {
        return;
    }
    // A name alone does not tell: a runtime answers for `hipGetDeviceProperties` with the variant that the asked-for version
    // has. It is looked at where the address is unknown and no dispatch table sees to it that the call is recorded.
    let shim = real::shim_at(found).or_else(|| {
        if symbol.is_null() || tables::taken() {
            return None;
        }
        // SAFETY: the call that succeeded took the symbol as a C string.
        let name = unsafe { CStr::from_ptr(symbol) };
        name.to_str().ok().and_then(Api::by_name).map(|api| real::shim_of(usize::from(api.id), found))
    });
    if let Some(shim) = shim {
        // SAFETY: by the caller's contract.
        unsafe { place.write_unaligned(shim) };
    }
}
