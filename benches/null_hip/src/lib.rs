//! A HIP runtime whose calls succeed and do nothing, to measure what replay itself costs. There is one device; host memory
//! is memory.

use std::ffi::c_void;

/// What a call does besides succeeding.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Deed {
    Nothing,
    CountDevices,
    AllocateHost,
    FreeHost,
}

const fn deed(name: &str) -> Deed {
    if equal(name, "hipGetDeviceCount") {
        Deed::CountDevices
    } else if equal(name, "hipHostMalloc") {
        Deed::AllocateHost
    } else if equal(name, "hipHostFree") {
        Deed::FreeHost
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
