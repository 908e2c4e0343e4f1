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

pub(crate) use batch::{Operand, VolumeOp};
pub(crate) use copy::{MemcpyAttributes, Plan};
pub(crate) use execution_context::GroupParams;
pub(crate) use graph::{BatchMemOpNodeParams, attribute_bytes};
pub(crate) use ipc::IpcHandle;
pub(crate) use texture::{describe_to_driver, texture_to_driver};

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

#[cfg(test)]
mod tests {
    use crate::cuda;

    /// An entry point whose two versions differ in a parameter is answered with `hipErrorNotSupported`.
    #[test]
    fn both_backends_have_entry_points_of_the_same_types() {
        let modules = [
            super::array::EXPORTS,
            super::batch::EXPORTS,
            super::capture::EXPORTS,
            super::context::EXPORTS,
            super::copy::EXPORTS,
            super::device::EXPORTS,
            super::event::EXPORTS,
            super::execution_context::EXPORTS,
            super::external::EXPORTS,
            super::fill::EXPORTS,
            super::graph::EXPORTS,
            super::graph_exec::EXPORTS,
            super::graphics::EXPORTS,
            super::ipc::EXPORTS,
            super::launch::EXPORTS,
            super::library::EXPORTS,
            super::link::EXPORTS,
            super::lookup::EXPORTS,
            super::memory::EXPORTS,
            super::module::EXPORTS,
            super::pool::EXPORTS,
            super::stream::EXPORTS,
            super::texture::EXPORTS,
            super::texture_reference::EXPORTS,
            super::vmm::EXPORTS,
        ];
        let exports = || modules.iter().flat_map(|module| module.iter());
        for (name, signature) in cuda::signatures() {
            let Some((_, exported)) = exports().find(|(exported, _)| *exported == name) else { continue };
            assert_eq!(exported(), signature, "{name}");
        }
    }
}
