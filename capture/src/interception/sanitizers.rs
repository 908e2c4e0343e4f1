//! What the runtimes of sanitizers ask of the program, answered where the program itself does not: these are weak functions, of which
//! the first one in the order of loading is called, and only the program's own come before those of a preloaded library.

#[cfg(not(test))]
use std::ffi::c_char;

/// AddressSanitizer's runtime is to be the first library, for the sake of its `malloc`. The recorder has none of its own to take its
/// place, and the runtime would end the program over it.
#[cfg(not(test))]
#[unsafe(no_mangle)]
pub(crate) extern "C" fn __asan_default_options() -> *const c_char {
    c"verify_asan_link_order=0".as_ptr()
}

/// ThreadSanitizer sees what the recorder writes and reads by the C library's functions, and not the atomics that put it in order: it
/// would report races, and end the program with another status.
#[cfg(not(test))]
#[unsafe(no_mangle)]
pub(crate) extern "C" fn __tsan_default_suppressions() -> *const c_char {
    c"called_from_lib:libhrr_capture.so\n".as_ptr()
}
