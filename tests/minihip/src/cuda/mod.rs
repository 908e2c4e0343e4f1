//! The `cuda` backend (`MINIHIP_BACKEND=cuda`): HIP's C ABI over the CUDA driver API, for machines with NVIDIA GPUs.
//!
//! Each entry point of this library asks its [`Hook`] first: with this backend it goes to the function of the same name
//! in one of the tables here, to the common implementation where no device is involved or which asks this backend itself
//! ([`SHARED`]), or it answers `hipErrorNotSupported`. Handles are the driver's own unless said otherwise; memory and streams
//! are real.
//!
//! Where HIP and CUDA differ, HIP's behaviour is what a program gets:
//!
//! | | CUDA's driver | here, as in HIP | where |
//! |---|---|---|---|
//! | current device | a context per thread, none at first | device 0 at first, set per thread; primary contexts | [`context`] |
//! | legacy default stream | blocks and is blocked by blocking streams | the same rule; handles 0 and 1 | [`handles`] |
//! | per-thread default stream | handle 2 | the same; the `_spt` spellings turn 0 into 2 | [`handles`] |
//! | destroyed handles | undefined | `hipErrorInvalidHandle` for streams and events | [`handles`] |
//! | a stream of another device than the current | some calls refuse | taken with the stream's device current | [`handles`] |
//! | zero-sized allocations | an error | success, null | [`memory`] |
//! | dynamic shared memory | 48 KiB unless asked for | 64 KiB, as a block of an AMD GPU has | [`module`] |
//! | bad launch sizes | invalid value | `hipErrorInvalidConfiguration` | [`launch`] |
//! | `extra` launches | ends with 0, exact parameter size | ends with 3, a buffer at least that long | [`launch`] |
//! | grids of the `hipExt` launches | blocks | threads | [`launch`] |
//! | priorities | 0 lowest, negative higher | 1 to -1; 1 and 0 are CUDA's 0 | [`stream`] |
//! | waits on memory with a mask | none | a kernel that looks until the masked value is as wanted | [`masked_wait`] |
//! | code of the program | loaded at its first launch, which waits for all work of the device | loaded when the device is first used | [`fat_binary`] |
//! | copy kinds | none | refused where it is none | [`copy`] |
//! | descriptors of memory | one and the same file | a file each | [`descriptor`] |
//! | addresses asked for | given out only if they were free when the driver started, in blocks of 32 MiB | what is kept free for later counts as free | [`address_space`] |
//! | `SYNC_MEMOPS` of mapped memory | not supported | taken | [`memory`] |
//! | format of a resource view | must be given | 0: the resource's | [`texture`] |
//! | pointers of pageable memory | an error | success with type "unregistered" | [`memory`] |
//! | device memory shown by a copy's kind | the struct must name the right kind | any kind, found by the address | [`copy`] |
//! | graph node parameters of kernels | a `CUfunction` | a host stub or a function, returned as given | [`graph`] |
//! | copies of bytes in a row and arrays | arrays of one dimension only | any array, row after row | [`mod@array`] |
//! | arrays | handles nobody checks | handles of ours, checked | [`mod@array`] |
//! | texture references | gone with their kernels | a texture object behind the module's variable | [`texture`] |
//! | executable graphs whose copies of several rows change | an error | made anew from a clone | [`graph_rows`] |
//! | shares of shares of compute units | an error | split by way of a green context | [`execution_context`] |
//! | managed variables | an attribute of PTX | a pointer, and `NAME$managed` with what it starts as | [`managed`] |
//! | a process that opens a handle of its own | an error, which one depends | `hipErrorInvalidContext` | [`ipc`] |
//! | a reset device | its context is gone from every thread | made anew by the next call | [`context`] |
//! | error numbers | | a table of the differences | [`error`] |

mod abi;
mod address_space;
pub(crate) mod array;
mod attributes;
mod capture;
mod context;
mod copy;
mod descriptor;
mod device;
mod driver;
mod error;
mod event;
mod execution_context;
mod fat_binary;
mod fill;
mod graph;
mod graph_exec;
mod graph_rows;
mod handles;
mod image;
mod ipc;
mod launch;
mod library;
pub(crate) mod link;
mod managed;
mod masked_wait;
mod memory;
mod module;
mod pool;
mod properties;
mod stream;
pub(crate) mod texture;
mod vmm;

pub(crate) use fat_binary::{register, register_function, register_managed, register_variable, unregister};
pub(crate) use module::{kernel_name, kernel_name_of_host};
pub(crate) use stream::device_of as stream_device;

use crate::api;
use crate::error::{HipError, HipResult};
use std::any::TypeId;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// An entry point of this backend.
pub(crate) struct Entry {
    name: &'static str,
    /// Type of the function, checked before its address is used.
    signature: fn() -> TypeId,
    address: fn() -> usize,
}

/// Defines entry points of this backend and lists them in the module's `TABLE`.
macro_rules! cuda_api {
    ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block)*) => {
        $(
            #[allow(non_snake_case, reason = "HIP's names")]
            #[allow(clippy::too_many_arguments, reason = "HIP's own signatures")]
            extern "C" fn $name($($arg: $ty),*) -> i32 {
                $crate::cuda::enter(stringify!($name), || $body)
            }
        )*
        /// This module's entry points.
        pub(super) static TABLE: &[$crate::cuda::Entry] = &[$($crate::cuda::Entry {
            name: stringify!($name),
            signature: || std::any::TypeId::of::<extern "C" fn($($ty),*) -> i32>(),
            address: || $name as *const () as usize,
        }),*];
    };
}
use cuda_api;

/// Names and types of this backend's entry points.
#[cfg(test)]
pub(crate) fn signatures() -> impl Iterator<Item = (&'static str, TypeId)> {
    TABLES.iter().flat_map(|table| table.iter()).map(|entry| (entry.name, (entry.signature)()))
}

static TABLES: &[&[Entry]] = &[
    array::TABLE,
    capture::TABLE,
    context::TABLE,
    copy::TABLE,
    device::TABLE,
    event::TABLE,
    execution_context::TABLE,
    fill::TABLE,
    graph::TABLE,
    graph_exec::TABLE,
    ipc::TABLE,
    launch::TABLE,
    library::TABLE,
    memory::TABLE,
    module::TABLE,
    pool::TABLE,
    stream::TABLE,
    vmm::TABLE,
];

/// Entry points whose common implementation involves no device, or asks this backend for what does.
const SHARED: &[&str] = &[
    "__hipPopCallConfiguration",
    "__hipPushCallConfiguration",
    "hipArray3DGetDescriptor",
    "hipArrayGetDescriptor",
    "hipArrayGetInfo",
    "hipConfigureCall",
    "hipCreateSurfaceObject",
    "hipCreateTextureObject",
    "hipCtxGetCacheConfig",
    "hipCtxGetSharedMemConfig",
    "hipCtxSetCacheConfig",
    "hipCtxSetSharedMemConfig",
    "hipDestroySurfaceObject",
    "hipDestroyTextureObject",
    "hipDeviceGetCacheConfig",
    "hipDeviceGetSharedMemConfig",
    "hipDeviceSetCacheConfig",
    "hipDeviceSetSharedMemConfig",
    "hipDriverGetVersion",
    "hipDrvGetErrorName",
    "hipDrvGetErrorString",
    "hipExtDisableLogging",
    "hipExtEnableLogging",
    "hipExtSetLoggingParams",
    "hipFreeArray",
    "hipFreeMipmappedArray",
    "hipGetChannelDesc",
    "hipGetDriverEntryPoint",
    "hipGetDriverEntryPoint_spt",
    "hipGetMipmappedArrayLevel",
    "hipGetProcAddress",
    "hipGetProcAddress_spt",
    "hipGetTextureObjectResourceDesc",
    "hipGetTextureObjectResourceViewDesc",
    "hipGetTextureObjectTextureDesc",
    "hipLinkAddData",
    "hipLinkAddFile",
    "hipLinkComplete",
    "hipLinkCreate",
    "hipLinkDestroy",
    "hipModuleGetTexRef",
    "hipProfilerStart",
    "hipProfilerStop",
    "hipRuntimeGetVersion",
    "hipSetupArgument",
    "hipTexObjectCreate",
    "hipTexObjectGetResourceDesc",
    "hipTexObjectGetResourceViewDesc",
    "hipTexObjectGetTextureDesc",
    "hipTexRefGetAddress",
    "hipTexRefGetAddressMode",
    "hipTexRefGetArray",
    "hipTexRefGetBorderColor",
    "hipTexRefGetFilterMode",
    "hipTexRefGetFlags",
    "hipTexRefGetFormat",
    "hipTexRefGetMaxAnisotropy",
    "hipTexRefGetMipMappedArray",
    "hipTexRefGetMipmapFilterMode",
    "hipTexRefGetMipmapLevelBias",
    "hipTexRefGetMipmapLevelClamp",
    "hipTexRefSetAddress",
    "hipTexRefSetAddress2D",
    "hipTexRefSetAddressMode",
    "hipTexRefSetArray",
    "hipTexRefSetBorderColor",
    "hipTexRefSetFilterMode",
    "hipTexRefSetFlags",
    "hipTexRefSetFormat",
    "hipTexRefSetMaxAnisotropy",
    "hipTexRefSetMipmapFilterMode",
    "hipTexRefSetMipmapLevelBias",
    "hipTexRefSetMipmapLevelClamp",
    "hipTexRefSetMipmappedArray",
];

/// Whether this backend was asked for.
#[inline]
pub(crate) fn is_active() -> bool {
    static ACTIVE: OnceLock<bool> = OnceLock::new();
    *ACTIVE.get_or_init(|| std::env::var("MINIHIP_BACKEND").is_ok_and(|backend| backend == "cuda"))
}

/// Where a call goes with this backend.
pub(crate) enum Target<F> {
    /// The function of this backend.
    Own(F),
    /// The common implementation.
    Shared,
    /// Nowhere: `hipErrorNotSupported`.
    Missing,
}

/// An entry point's way into this backend, looked up at its first call.
pub(crate) struct Hook {
    name: &'static str,
    /// [`UNKNOWN`], [`COMMON`], [`NONE`] or the address of this backend's function.
    found: AtomicUsize,
}

const UNKNOWN: usize = 0;
const COMMON: usize = 1;
const NONE: usize = 2;

impl Hook {
    pub(crate) const fn new(name: &'static str) -> Self {
        Self { name, found: AtomicUsize::new(UNKNOWN) }
    }

    /// Where calls of this entry point, a function of type `F`, go.
    #[inline]
    pub(crate) fn target<F: Copy + 'static>(&self) -> Target<F> {
        // Relaxed: the value is a constant of the program, whoever stores it first.
        let mut found = self.found.load(Ordering::Relaxed);
        if found == UNKNOWN {
            found = self.look_up(TypeId::of::<F>());
            // Relaxed: as above.
            self.found.store(found, Ordering::Relaxed);
        }
        match found {
            COMMON => Target::Shared,
            NONE => Target::Missing,
            address => {
                const { assert!(size_of::<F>() == size_of::<usize>()) };
                // SAFETY: `look_up` gave the address of a function whose type has the `TypeId` of `F`, so it is an `F`.
                Target::Own(unsafe { std::mem::transmute_copy::<usize, F>(&address) })
            }
        }
    }

    #[cold]
    fn look_up(&self, signature: TypeId) -> usize {
        let entry = TABLES.iter().flat_map(|table| table.iter()).find(|entry| entry.name == self.name);
        match entry {
            Some(entry) if (entry.signature)() == signature => (entry.address)(),
            Some(_) => {
                eprintln!("minihip: the cuda backend's {} differs in its parameters; it is not used", self.name);
                NONE
            }
            None if SHARED.contains(&self.name) => COMMON,
            None => NONE,
        }
    }
}

/// Answers a call this backend does not offer.
#[cold]
pub(crate) fn not_supported(name: &'static str) -> i32 {
    api::enter(name, || Err(HipError::NOT_SUPPORTED))
}

/// Loads on device `index`, which is current, what launches may need. The driver waits for all work of a device before it
/// loads code there, so a kernel that is first launched while a stream waits for a value would wait for that stream, also
/// where the value is the kernel's own; HIP's runtime loads without waiting.
fn load_code(index: usize) {
    fat_binary::load(index);
    masked_wait::load(index);
}

/// Forgets everything that was made on a device that is about to be reset.
fn forget_device(index: usize) -> HipResult {
    handles::STREAMS.forget_device(index);
    handles::EVENTS.forget_device(index);
    library::forget_device(index);
    module::forget_device(index);
    managed::forget_device(index);
    masked_wait::forget_device(index);
    memory::forget_device(index);
    fat_binary::forget_device(index)
}

/// Runs an entry point's body with the thread's device current.
#[inline]
pub(crate) fn enter(name: &'static str, body: impl FnOnce() -> HipResult) -> i32 {
    api::enter(name, || {
        context::bind()?;
        body()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_listed_once() {
        let mut names: Vec<&str> = TABLES.iter().flat_map(|table| table.iter().map(|entry| entry.name)).collect();
        names.extend(SHARED);
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "an entry point is in two tables");
    }

    #[test]
    fn a_hook_finds_only_a_function_of_its_type() {
        type GetDevice = extern "C" fn(crate::api::Out<i32>) -> i32;
        assert!(matches!(Hook::new("hipGetDevice").target::<GetDevice>(), Target::Own(_)));
        assert!(matches!(Hook::new("hipGetDevice").target::<extern "C" fn(i32) -> i32>(), Target::Missing));
        assert!(matches!(Hook::new("hipRuntimeGetVersion").target::<GetDevice>(), Target::Shared));
        assert!(matches!(Hook::new("hipImportExternalMemory").target::<GetDevice>(), Target::Missing));
    }
}
