//! Entry points by name, and names by number.

use crate::api::{InStr, Out, hip_api};
use crate::error::{HipError, HipResult};
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::OnceLock;

/// `hipEnablePerThreadDefaultStream`.
const PER_THREAD: u64 = 2;
/// First version whose headers call the newer property layouts by the old names.
const RENAMED_SINCE: i32 = 600;

/// A handle on this library itself, so that a look-up finds our own entry points and nobody's interposed ones.
fn own_library() -> usize {
    static OWN: OnceLock<usize> = OnceLock::new();
    *OWN.get_or_init(|| {
        // SAFETY: the queried address is a function of this library; `info` is a local that dladdr fills when it
        // returns non-zero; the name it points at lives as long as the library.
        unsafe {
            let mut info: libc::Dl_info = std::mem::zeroed();
            if libc::dladdr(own_library as *const c_void, &raw mut info) == 0 || info.dli_fname.is_null() {
                return 0;
            }
            libc::dlopen(info.dli_fname, libc::RTLD_NOW | libc::RTLD_NOLOAD) as usize
        }
    })
}

fn address_of(name: &CStr) -> Option<usize> {
    let library = own_library();
    if library == 0 {
        return None;
    }
    // SAFETY: an open library handle and a terminated name.
    let address = unsafe { libc::dlsym(library as *mut c_void, name.as_ptr()) } as usize;
    (address != 0).then_some(address)
}

/// The entry point a program compiled for `hip_version` means by `name`.
fn look_up(name: InStr, hip_version: i32, flags: u64) -> HipResult<usize> {
    let name = name.get()?.to_str().map_err(|_| HipError::INVALID_VALUE)?;
    if flags > PER_THREAD {
        return Err(HipError::INVALID_VALUE);
    }
    let renamed = matches!(name, "hipGetDeviceProperties" | "hipChooseDevice") && hip_version >= RENAMED_SINCE;
    let suffixes: &[&str] = match (renamed, flags) {
        (true, _) => &["R0600"],
        (false, PER_THREAD) => &["_spt", ""],
        _ => &[""],
    };
    suffixes
        .iter()
        .filter_map(|suffix| address_of(&CString::new(format!("{name}{suffix}")).ok()?))
        .next()
        .filter(|_| name.starts_with("hip"))
        .ok_or(HipError::NOT_FOUND)
}

fn proc_address(name: InStr, out: Out<usize>, hip_version: i32, flags: u64, status: Out<i32>) -> HipResult {
    out.check()?;
    match look_up(name, hip_version, flags) {
        Ok(address) => {
            status.set_if_given(0);
            out.set(address)
        }
        Err(error) => {
            // HIP_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND.
            status.set_if_given(1);
            out.set(0)?;
            Err(if error == HipError::NOT_FOUND { HipError::INVALID_VALUE } else { error })
        }
    }
}

hip_api! {
    fn hipGetProcAddress(name: InStr, out: Out<usize>, hip_version: i32, flags: u64, status: Out<i32>) {
        proc_address(name, out, hip_version, flags, status)
    }
    fn hipGetProcAddress_spt(name: InStr, out: Out<usize>, hip_version: i32, flags: u64, status: Out<i32>) {
        proc_address(name, out, hip_version, if flags == 0 { PER_THREAD } else { flags }, status)
    }
    fn hipGetDriverEntryPoint(name: InStr, out: Out<usize>, flags: u64, status: Out<i32>) {
        proc_address(name, out, RENAMED_SINCE, flags, status)
    }
    fn hipGetDriverEntryPoint_spt(name: InStr, out: Out<usize>, flags: u64, status: Out<i32>) {
        proc_address(name, out, RENAMED_SINCE, if flags == 0 { PER_THREAD } else { flags }, status)
    }
}

/// `hipApiName`: the numbers are those of a tracing interface that this runtime does not have.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hipApiName(_id: u32) -> *const c_char {
    c"unknown".as_ptr()
}
