//! Dispatch tables: HIP runtimes from ROCm 6 on offer their entry points to tools as arrays of functions.
//!
//! Every exported function of such a runtime jumps through its table, so entries that are taken over here see calls that
//! symbol lookup cannot: those of libraries loaded with `RTLD_DEEPBIND`, of addresses that the program found before this
//! library was there, and of addresses out of `hipGetProcAddress`. A call that comes through a shim and meets a shim again
//! in the table is recorded once: inside a recorded call everything passes through.
//!
//! A runtime finds its one consumer by `ROCPROFILER_REGISTER_LIBRARY`, or by the presence of `rocprofiler_configure` in
//! the process. To live beside rocprofiler-sdk the tables are passed on to it first; its own functions are then what lies
//! behind the shims.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use hrr_format::catalogue::{APIS, Table};

use crate::guest::notice;
use crate::guest::unnoticed::Unnoticed;
use crate::interception::{dlsym, real};
use crate::{config, process};

/// `rocprofiler_set_api_table(name, version, instance, tables, count)`.
type SetApiTable = unsafe extern "C" fn(*const c_char, u64, u64, *mut *mut c_void, u64) -> c_int;

/// Entries of a table of one runtime were taken over.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Names rocprofiler-sdk is loaded by.
const SDK: [&CStr; 3] = [c"librocprofiler-sdk.so.1", c"librocprofiler-sdk.so.0", c"librocprofiler-sdk.so"];
/// Libraries that rocprofiler-sdk is asked to load as tools: set, it is wanted in the process.
const SDK_TOOLS: &CStr = c"ROCP_TOOL_LIBRARIES";

/// Whether calls are seen through a dispatch table.
pub(crate) fn taken() -> bool {
    // Relaxed: a fact about the runtime; who was told of it by a call sees it.
    TAKEN.load(Ordering::Relaxed)
}

/// How capture got into the process, as the root manifest says it.
pub(crate) fn capture_mode() -> &'static str {
    if taken() && !config::is_preloaded() { "rocprofiler-register" } else { "preload" }
}

/// Called by a HIP runtime with a table of its functions: a size in bytes, then the functions in the catalogue's order.
///
/// # Safety
/// As rocprofiler-register has it: `name` is a C string and `tables` an array of `count` tables.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn rocprofiler_set_api_table(
    name: *const c_char,
    version: u64,
    instance: u64,
    tables: *mut *mut c_void,
    count: u64,
) -> c_int {
    let _unnoticed = Unnoticed::new();
    // SAFETY: by the caller's contract. A panic must not cross into the runtime: its table then stays as it is.
    catch_unwind(AssertUnwindSafe(|| unsafe {
        if name.is_null() || tables.is_null() || count == 0 {
            return;
        }
        let ours = match CStr::from_ptr(name).to_bytes() {
            b"hip" => Some(Table::Runtime),
            b"hip_compiler" => Some(Table::Compiler),
            _ => None,
        };
        let table = (*tables).cast::<u64>();
        // The runtime's number is told by its own functions, before another tool puts others in their place.
        let runtime = ours.filter(|_| !process::passes() && !table.is_null()).and_then(|_| own_runtime(table));
        forward(name, version, instance, tables, count);
        if let (Some(kind), Some(runtime)) = (ours, runtime) {
            take_over(kind, runtime, table);
        }
    }))
    .unwrap_or_else(|_| notice::line(format_args!("an internal error occurred while a dispatch table was taken over")));
    0
}

/// Its presence makes a runtime look for [`rocprofiler_set_api_table`]. As a tool of rocprofiler-sdk, which looks for it
/// too, this library wants nothing.
///
/// # Safety
/// None of the arguments is used.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, expect(dead_code, reason = "only runtimes call it, by name"))]
pub(crate) extern "C" fn rocprofiler_configure(
    _version: u32,
    _runtime_version: *const c_char,
    _priority: u32,
    _client: *mut c_void,
) -> *mut c_void {
    std::ptr::null_mut()
}

/// The number of the runtime that a table's functions lie in.
///
/// # Safety
/// `table` is a size in bytes and as many functions.
unsafe fn own_runtime(table: *mut u64) -> Option<usize> {
    // SAFETY: by the caller's contract.
    let entries = unsafe { entry_count(table) };
    // SAFETY: the entry lies in the table.
    (0..entries).find_map(|entry| real::runtime_of(unsafe { *table.add(1 + entry) } as *mut c_void))
}

/// Functions in a table whose first word is its size in bytes.
unsafe fn entry_count(table: *const u64) -> usize {
    // SAFETY: by the caller's contract.
    let size_bytes = unsafe { *table } as usize;
    (size_bytes / size_of::<u64>()).saturating_sub(1)
}

unsafe fn take_over(kind: Table, runtime: usize, table: *mut u64) {
    // SAFETY: by the caller's contract. Tables only grow at their end; what this build does not know stays as it is.
    let entries = unsafe { entry_count(table) };
    let rows = APIS.iter().enumerate().filter(|(_, row)| row.table == kind);
    for ((api, _), position) in rows.zip(0..entries) {
        // SAFETY: the entry lies in the table, which the runtime has not published yet.
        unsafe {
            let entry = table.add(1 + position);
            if let Some(shim) = real::take_over(runtime, api, *entry as *mut c_void) {
                *entry = shim as u64;
            }
        }
    }
    TAKEN.store(true, Ordering::Relaxed);
}

/// Passes a table on to rocprofiler-sdk, if that is in the process or wanted there.
unsafe fn forward(name: *const c_char, version: u64, instance: u64, tables: *mut *mut c_void, count: u64) {
    let own = rocprofiler_set_api_table as SetApiTable as *mut c_void;
    let wanted = config::variable(SDK_TOOLS).is_some_and(|tools| !tools.is_empty());
    let loading = if wanted { libc::RTLD_NOW | libc::RTLD_GLOBAL } else { libc::RTLD_NOW | libc::RTLD_NOLOAD };
    // SAFETY: the names are NUL-terminated; rocprofiler-sdk's initialisers run only where its user asked for it.
    let libraries = SDK.iter().map(|library| unsafe { libc::dlopen(library.as_ptr(), loading) });
    let found = [libc::RTLD_NEXT, libc::RTLD_DEFAULT]
        .into_iter()
        .chain(libraries.filter(|handle| !handle.is_null()))
        .map(|handle| dlsym::real(handle, c"rocprofiler_set_api_table"))
        .find(|&found| !found.is_null() && found != own);
    if let Some(found) = found {
        // SAFETY: a function of this name has this type; the arguments are the runtime's own.
        unsafe {
            let set_api_table: SetApiTable = std::mem::transmute(found);
            set_api_table(name, version, instance, tables, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_hold_the_catalogue_in_its_order() {
        let runtime: Vec<_> = APIS.iter().filter(|row| row.table == Table::Runtime).map(|row| row.id).collect();
        assert_eq!(runtime, (0..546).collect::<Vec<_>>());
        let compiler: Vec<_> = APIS.iter().filter(|row| row.table == Table::Compiler).map(|row| row.name).collect();
        assert_eq!(
            (compiler.len(), compiler[0], compiler[8]),
            (9, "__hipPopCallConfiguration", "__hipUnregisterFatBinary")
        );
    }

    #[test]
    fn a_table_of_another_kind_is_left_alone() {
        let mut table = [16u64, 42];
        let mut tables = [table.as_mut_ptr().cast()];
        // SAFETY: the arguments are as rocprofiler-register passes them.
        unsafe { rocprofiler_set_api_table(c"roctx".as_ptr(), 1, 0, tables.as_mut_ptr(), 1) };
        assert_eq!(table, [16, 42]);
    }
}
