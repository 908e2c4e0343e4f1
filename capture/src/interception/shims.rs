//! The exported entry points: one shim for each row of the catalogue, all made by one macro.
//!
//! Where nothing is recorded a shim is one relaxed load and the call. Shims are `C-unwind` and keep no value with a
//! destructor over the call, so that a thread cancelled inside the runtime unwinds through them as through C.

use std::ffi::c_void;

use hrr_format::abi::{Return, Words};
use hrr_format::for_each_hip_api;

use crate::interception::real::{self, Missing, RUNTIMES};
use crate::plan::API_COUNT;
use crate::process;
use crate::recorder;

macro_rules! shims {
    ($($id:literal $name:ident($($param:ident: $ty:ty),*) -> $ret:ty;)*) => {
        $(
            /// The shim of the HIP entry point of this name, for the runtime that the program's own references reach.
            ///
            /// # Safety
            /// As HIP's documentation says of the entry point.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, clippy::too_many_arguments, reason = "names and parameters are HIP's")]
            pub(crate) unsafe extern "C-unwind" fn $name($($param: $ty),*) -> $ret {
                // SAFETY: the arguments are the caller's own.
                unsafe { numbered::$name::<0>($($param),*) }
            }
        )*

        /// The shims by the number of the runtime that they lead to.
        mod numbered {
            use super::*;
            $(
                /// # Safety
                /// As HIP's documentation says of the entry point.
                #[allow(non_snake_case, clippy::too_many_arguments, reason = "names and parameters are HIP's")]
                #[inline(always)]
                pub(super) unsafe extern "C-unwind" fn $name<const RUNTIME: usize>($($param: $ty),*) -> $ret {
                    let address = real::address(RUNTIME, $id);
                    let call = || -> $ret {
                        if address.is_null() {
                            return <$ret as Missing>::missing($id);
                        }
                        // SAFETY: the address is that of the function with this name in a HIP runtime, whose prototype the
                        // catalogue has; the arguments are the caller's own.
                        unsafe {
                            let real: unsafe extern "C-unwind" fn($($ty),*) -> $ret = std::mem::transmute(address);
                            real($($param),*)
                        }
                    };
                    if process::passes() {
                        return call();
                    }
                    const WORDS: usize = 0 $(+ <$ty as Words>::COUNT)*;
                    #[allow(unused_mut, reason = "some entry points take no parameters")]
                    let mut words = [0u64; WORDS];
                    #[allow(unused_mut, unused_variables, reason = "some entry points take no parameters")]
                    let mut rest = &mut words[..];
                    $(
                        let (place, left) = rest.split_at_mut(<$ty as Words>::COUNT);
                        $param.store(place);
                        #[allow(unused_assignments, reason = "the last parameter leaves an empty rest")]
                        { rest = left; }
                    )*
                    // SAFETY: the words are those of this call; `leave` follows on the same thread, after the call.
                    let recorded = unsafe { recorder::enter::<RUNTIME>($id, &words) };
                    let result = call();
                    if let Some(recorded) = recorded {
                        // SAFETY: as above.
                        unsafe { recorder::leave(recorded, result.code(), result.raw()) };
                    }
                    result
                }
            )*
        }

        /// The ids of the entry points by name.
        pub(crate) mod id {
            $(
                #[allow(non_upper_case_globals, dead_code, reason = "names are HIP's; few are needed by name")]
                pub(crate) const $name: usize = $id;
            )*
        }

        /// The address of a shim, as other objects see it.
        pub(crate) fn address(runtime: usize, api: usize) -> *mut c_void {
            struct Address(*const ());
            // SAFETY: the addresses are constants that are never dereferenced as data.
            unsafe impl Sync for Address {}
            static SHIMS: [[Address; API_COUNT]; RUNTIMES] =
                [[$(Address($name as *const ())),*], [$(Address(numbered::$name::<1> as *const ())),*]];
            SHIMS[runtime][api].0.cast_mut().cast()
        }

        /// Whether an address is that of a shim of this entry point.
        pub(crate) fn is_shim(api: usize, found: *mut c_void) -> bool {
            (0..RUNTIMES).any(|runtime| address(runtime, api) == found)
        }
    };
}
for_each_hip_api!(shims);
