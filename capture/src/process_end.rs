//! When a recording ends: after everything in the process that could still make a call.
//!
//! Destructors of shared libraries run in `_dl_fini`, an exit handler that the C library's start-up code registers before
//! `main`. A preloaded library is among the first whose destructors run, and other libraries' may call HIP after it. But
//! its constructors run before that start-up code, so that an exit handler it registers is older, and runs later.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{config, process};

/// The recording is ended by an exit handler.
static BY_HANDLER: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    fn __cxa_atexit(handler: unsafe extern "C" fn(*mut c_void), argument: *mut c_void, object: *mut c_void) -> c_int;
    fn __cxa_at_quick_exit(handler: unsafe extern "C" fn(*mut c_void), object: *mut c_void) -> c_int;
}

/// Sees to it that the recording ends with the process. Called when the library is loaded.
pub(crate) fn arrange() {
    // Loaded later, an exit handler of ours would be younger than those of the program, and run before them.
    if config::is_preloaded() {
        // SAFETY: the handler may be called at any time, and stays in memory: the library is never unloaded. Without an
        // object it belongs to no library whose end would call it early.
        let registered = unsafe { __cxa_atexit(on_exit, std::ptr::null_mut(), std::ptr::null_mut()) } == 0;
        // Relaxed: read by the thread that ends the process, after its start.
        BY_HANDLER.store(registered, Ordering::Relaxed);
        // `quick_exit` runs no destructors and none of the handlers above, but handlers of its own: again the oldest last.
        // SAFETY: as above. Where there is no room for it, the archive stays as a killed process would leave it.
        let _ = unsafe { __cxa_at_quick_exit(on_exit, std::ptr::null_mut()) };
    }
}

/// The library's own destructors run.
pub(crate) fn destructors_run() {
    if !BY_HANDLER.load(Ordering::Relaxed) {
        process::finish();
    }
}

unsafe extern "C" fn on_exit(_: *mut c_void) {
    // The archive stays as a killed process would leave it.
    let _ = std::panic::catch_unwind(process::finish);
}
