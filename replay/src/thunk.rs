//! One call thunk per HIP entry point: argument words in, a call through a function pointer, the outcome out.
//!
//! A thunk turns the words of a record back into typed C arguments, so that the compiler applies the
//! platform's calling convention and replay needs no assembly. Thunks are instantiated from the catalogue.

use std::ffi::c_void;

use hrr_format::abi::{Return, Words};

/// What a call returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Error code, zero for calls that return none.
    pub(crate) code: i32,
    /// Raw bytes of a returned pointer.
    pub(crate) raw: u64,
}

/// Calls `function` with the arguments that `words` hold.
///
/// # Safety
/// * `function` is the entry point the thunk was made for (or ignored by the thunk).
/// * `words` is readable for as many words as the entry point takes, and every pointer among them satisfies what the
///   entry point demands of it.
pub(crate) type Thunk = unsafe fn(function: *const c_void, words: *const u64) -> Outcome;

/// Does nothing, in the place of a call that is not made there.
///
/// # Safety
/// None.
pub(crate) unsafe fn nothing(_: *const c_void, _: *const u64) -> Outcome {
    Outcome { code: 0, raw: 0 }
}

macro_rules! define_thunks {
    ($($id:literal $name:ident($($param:ident: $ty:ty),*) -> $ret:ty;)*) => {
        /// The thunk of every entry point, by catalogue id.
        pub(crate) static THUNKS: [Thunk; hrr_format::catalogue::APIS.len()] = [$({
            #[allow(unused_mut, unused_assignments, unused_variables, non_snake_case)]
            unsafe fn $name(function: *const c_void, words: *const u64) -> Outcome {
                // SAFETY: the caller passes the entry point of this name, whose C type the catalogue gives.
                let call = unsafe {
                    std::mem::transmute::<*const c_void, unsafe extern "C" fn($($ty),*) -> $ret>(function)
                };
                let mut at = 0;
                $(
                    // SAFETY: the caller passes as many words as the parameters of this entry point take, and `at`
                    // counts those already taken.
                    let $param = <$ty as Words>::load(unsafe {
                        std::slice::from_raw_parts(words.add(at), <$ty as Words>::COUNT)
                    });
                    at += <$ty as Words>::COUNT;
                )*
                // SAFETY: the caller vouches for what the arguments point to.
                let result = unsafe { call($($param),*) };
                Outcome { code: result.code(), raw: result.raw() }
            }
            $name as Thunk
        }),*];
    };
}
hrr_format::for_each_hip_api!(define_thunks);

#[cfg(test)]
mod tests {
    use super::*;
    use hrr_format::abi::{Dim3, Ptr};
    use hrr_format::catalogue::Api;

    extern "C" fn launch(function: Ptr, grid: Dim3, block: Dim3, args: Ptr, shared: u64, stream: Ptr) -> i32 {
        assert_eq!((function as u64, args as u64, shared, stream as u64), (1, 4, 5, 6));
        assert_eq!(grid, Dim3 { x: 7, y: 8, z: 9 });
        assert_eq!(block, Dim3 { x: 10, y: 11, z: 12 });
        77
    }

    #[test]
    fn words_reach_the_callee_as_the_arguments_they_stand_for() {
        let id = usize::from(Api::by_name("hipLaunchKernel").unwrap().id);
        let words = [1, 7 | 8 << 32, 9, 10 | 11 << 32, 12, 4, 5, 6];
        // SAFETY: `launch` has the C type of hipLaunchKernel, and it only compares its arguments.
        let outcome = unsafe { THUNKS[id](launch as *const c_void, words.as_ptr()) };
        assert_eq!(outcome.code, 77);
    }
}
