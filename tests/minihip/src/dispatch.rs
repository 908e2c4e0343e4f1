//! Dispatch tables: HIP runtimes since 6.0 offer their entry points to tools as arrays of functions, and every exported
//! name jumps through them. The tables and jumps are generated when the library is linked; here they are offered.

use std::env;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, Ordering};

/// `rocprofiler_set_api_table`: table name, library version, instance, tables, their number; 0 on success.
type SetApiTable = unsafe extern "C" fn(*const c_char, u64, u64, *const *mut c_void, u64) -> c_int;

/// Version the tables are offered as: major * 10000 + minor * 100 + patch.
const VERSION: u64 = 70_100;

/// Offers a table and then lets the exported names go through it; the first call through any name of a table comes here.
///
/// # Safety
/// `name` is a terminated string, `table` the table's entries and `live` the pointer the exported names go through, as
/// the generated code passes them.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn minihip_register_table(
    name: *const c_char,
    table: *mut c_void,
    live: *const AtomicPtr<c_void>,
) {
    static RUNTIME: Once = Once::new();
    static COMPILER: Once = Once::new();
    // SAFETY: by the caller's promise.
    let (name, live) = unsafe { (CStr::from_ptr(name), &*live) };
    let once = if name == c"hip" { &RUNTIME } else { &COMPILER };
    // Like the function-local static it stands for, this blocks a tool that calls HIP from within its callback.
    once.call_once(|| {
        if let Some(set_api_table) = consumer() {
            let tables = [table];
            // SAFETY: the tool's function has this type by contract; the table lives as long as the library.
            unsafe { set_api_table(name.as_ptr(), VERSION, 0, tables.as_ptr(), 1) };
        }
        // Release: whoever goes through the table sees the tool's changes. The generated loads are plain, which on x86-64
        // are acquire loads.
        live.store(table, Ordering::Release);
    });
}

/// The tool's function: from the library `ROCPROFILER_REGISTER_LIBRARY` names, or from one in the process that also
/// exports `rocprofiler_configure` (or any, with `ROCPROFILER_REGISTER_FORCE_LOAD=1`).
fn consumer() -> Option<SetApiTable> {
    let is_on = |name: &str| env::var(name).is_ok_and(|value| matches!(value.as_str(), "1" | "on" | "true" | "yes"));
    if env::var("ROCPROFILER_REGISTER_ENABLED")
        .is_ok_and(|value| matches!(value.as_str(), "0" | "off" | "false" | "no"))
    {
        return None;
    }
    let library = match env::var("ROCPROFILER_REGISTER_LIBRARY") {
        Ok(path) if !path.is_empty() => {
            let path = CString::new(path).ok()?;
            // SAFETY: a terminated path; the named library's initialisers run, as its user asked.
            let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
            if library.is_null() {
                eprintln!("minihip: ROCPROFILER_REGISTER_LIBRARY={} cannot be loaded", path.to_string_lossy());
                return None;
            }
            library
        }
        _ if is_on("ROCPROFILER_REGISTER_FORCE_LOAD")
            || find(libc::RTLD_DEFAULT, c"rocprofiler_configure").is_some() =>
        {
            libc::RTLD_DEFAULT
        }
        _ => return None,
    };
    let address = find(library, c"rocprofiler_set_api_table")?;
    // SAFETY: the symbol is a function of this type by the contract of its name.
    Some(unsafe { std::mem::transmute::<usize, SetApiTable>(address) })
}

fn find(library: *mut c_void, name: &CStr) -> Option<usize> {
    // SAFETY: an open library or the default scope, and a terminated name.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) } as usize;
    (address != 0).then_some(address)
}
