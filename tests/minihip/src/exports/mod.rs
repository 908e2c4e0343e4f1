//! The entry points, by HIP's own sections.

mod array;
mod batch;
mod capture;
mod context;
mod copy;
mod device;
mod event;
mod execution_context;
mod external;
mod fill;
mod graph;
mod graph_exec;
mod graphics;
mod ipc;
mod launch;
mod library;
mod link;
mod lookup;
mod memory;
mod module;
mod pool;
mod stream;
mod texture;
mod texture_reference;
mod vmm;

pub(crate) use copy::{MemcpyAttributes, Plan};

/// What the weak functions behind unimplemented names call (they are generated when the library is linked).
///
/// # Safety
/// `name` is the terminated name of the entry point.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn minihip_not_supported(name: *const std::ffi::c_char) -> i32 {
    // SAFETY: the generated callers pass string literals.
    let name = unsafe { std::ffi::CStr::from_ptr(name) }.to_str().unwrap_or("a HIP call");
    crate::api::enter(name, || Err(crate::error::HipError::NOT_SUPPORTED))
}
