//! A HIP runtime whose calls succeed and do nothing, to measure what capture and replay themselves cost. There is one
//! device; host memory is memory. `HRR_NULL_HIP_LAUNCH_NS=N` has every kernel launch take N nanoseconds.

use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What a call does besides succeeding.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Deed {
    Nothing,
    CountDevices,
    AllocateHost,
    FreeHost,
    Launch,
    Create,
}

const fn deed(name: &str) -> Deed {
    if equal(name, "hipGetDeviceCount") {
        Deed::CountDevices
    } else if equal(name, "hipHostMalloc") {
        Deed::AllocateHost
    } else if equal(name, "hipHostFree") {
        Deed::FreeHost
    } else if equal(name, "hipLaunchKernel") || equal(name, "hipModuleLaunchKernel") {
        Deed::Launch
    } else if equal(name, "hipStreamCreateWithFlags") || equal(name, "hipEventCreateWithFlags") {
        Deed::Create
    } else {
        Deed::Nothing
    }
}

const fn equal(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// A handle that no other object has.
fn new_handle() -> usize {
    static HANDLES: AtomicUsize = AtomicUsize::new(0x1000);
    // Relaxed: only that they differ.
    HANDLES.fetch_add(64, Ordering::Relaxed)
}

/// Takes as long as a launch is to take.
fn launch() {
    static LAUNCH: OnceLock<Duration> = OnceLock::new();
    let took = *LAUNCH.get_or_init(|| {
        let ns = std::env::var("HRR_NULL_HIP_LAUNCH_NS").ok().and_then(|text| text.parse().ok());
        Duration::from_nanos(ns.unwrap_or(0))
    });
    if !took.is_zero() {
        let begin = Instant::now();
        while begin.elapsed() < took {
            std::hint::spin_loop();
        }
    }
}

macro_rules! define {
    ($($id:literal $name:ident($($param:ident: $ty:ty),*) -> $ret:ty;)*) => {$(
        /// Succeeds. All entry points are called with their first two arguments, if any, where the C calling convention
        /// has pointers and integers; what else they take is not looked at.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::missing_safety_doc)]
        unsafe extern "C" fn $name(first: *mut c_void, second: usize) -> u64 {
            const DEED: Deed = deed(stringify!($name));
            match DEED {
                Deed::Nothing => {}
                Deed::Launch => launch(),
                // Each its own: calls on one stream are ordered, those on two are not.
                // SAFETY: the caller passes the address of a handle.
                Deed::Create => unsafe { first.cast::<usize>().write(new_handle()) },
                // SAFETY: the caller of hipGetDeviceCount passes the address of an int.
                Deed::CountDevices => unsafe { first.cast::<i32>().write(1) },
                // SAFETY: the caller of hipHostMalloc passes the address of a pointer, and a size.
                Deed::AllocateHost => unsafe { first.cast::<*mut c_void>().write(libc::malloc(second)) },
                // SAFETY: the caller of hipHostFree passes what hipHostMalloc gave.
                Deed::FreeHost => unsafe { libc::free(first) },
            }
            0
        }
    )*};
}
hrr_format::for_each_hip_api!(define);
