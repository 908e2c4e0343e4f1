//! What every entry point shares: the wrapper around its body, and safe types for the pointers C passes.

use crate::config::config;
use crate::error::{HipError, HipResult};
use crate::thread_state;
use std::ffi::{CStr, c_char};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

/// Defines entry points: each gets HIP's symbol name, the C ABI, [`enter`] around its body, and a way into the `cuda`
/// backend.
macro_rules! hip_api {
    ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block)*) => {
        $(
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name($($arg: $ty),*) -> i32 {
            if $crate::cuda::is_active() {
                static HOOK: $crate::cuda::Hook = $crate::cuda::Hook::new(stringify!($name));
                match HOOK.target::<extern "C" fn($($ty),*) -> i32>() {
                    $crate::cuda::Target::Own(function) => return function($($arg),*),
                    $crate::cuda::Target::Missing => return $crate::cuda::not_supported(stringify!($name)),
                    $crate::cuda::Target::Shared => {}
                }
            }
            $crate::api::enter(stringify!($name), || $body)
        }
        )*
        /// This module's entry points and their types.
        #[cfg(test)]
        pub(crate) static EXPORTS: &[(&str, fn() -> std::any::TypeId)] = &[
            $((stringify!($name), || std::any::TypeId::of::<extern "C" fn($($ty),*) -> i32>())),*
        ];
    };
}
pub(crate) use hip_api;

/// Defines entry points whose body is another one's, under a second name.
macro_rules! hip_alias {
    ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) = $target:path;)*) => { $(
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name($($arg: $ty),*) -> i32 {
            $target($($arg),*)
        }
    )* };
}
pub(crate) use hip_alias;

/// Runs an entry point's body: no panic leaves it, the thread's last error is kept, the call is traced if asked.
pub(crate) fn enter(name: &'static str, body: impl FnOnce() -> HipResult) -> i32 {
    let body = || crate::refusal::check(name).and_then(|()| crate::slow::api(name, body));
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(HipError::UNKNOWN));
    let code = match result {
        Ok(()) => 0,
        Err(error) => error.0,
    };
    thread_state::note_result(code);
    // Relaxed: a switch, nothing is published by it.
    if config().trace && !TRACE_PAUSED.load(Ordering::Relaxed) {
        trace(name, code);
    }
    code
}

/// Whether `hipProfilerStop` has stopped the lines of `MINIHIP_TRACE`.
static TRACE_PAUSED: AtomicBool = AtomicBool::new(false);

/// Stops the trace, or lets it go on.
pub(crate) fn pause_trace(paused: bool) -> HipResult {
    // Relaxed: as in `enter`.
    TRACE_PAUSED.store(paused, Ordering::Relaxed);
    Ok(())
}

#[cold]
fn trace(name: &str, code: i32) {
    // SAFETY: gettid has no preconditions.
    let thread = unsafe { libc::gettid() };
    eprintln!("minihip: [{thread}] {name} = {code}");
}

/// A pointer through which an entry point returns a value; may be null.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// Writes `value`. Fails with `hipErrorInvalidValue` on a null pointer.
    pub(crate) fn set(self, value: T) -> HipResult {
        self.check()?;
        self.set_if_given(value);
        Ok(())
    }

    /// Writes `value` unless the pointer is null (an optional result).
    pub(crate) fn set_if_given(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: an `Out` is only ever made by a C caller, as an argument; HIP's API obliges that caller to pass
            // null or a pointer to writable memory of this type. Unaligned, as nothing more is known of it.
            unsafe { self.0.write_unaligned(value) }
        }
    }

    /// Fails with `hipErrorInvalidValue` if the pointer is null, before anything is done for the call.
    pub(crate) fn check(self) -> HipResult {
        if self.0.is_null() { Err(HipError::INVALID_VALUE) } else { Ok(()) }
    }

    /// Whether the caller wants the result.
    pub(crate) fn is_given(self) -> bool {
        !self.0.is_null()
    }

    /// The value now there, of an in-out parameter.
    pub(crate) fn read(self) -> HipResult<T>
    where
        T: Copy,
    {
        self.check()?;
        // SAFETY: as in `set_if_given`; in-out parameters point to a valid value.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// Writes `values` to an array of at least that many elements.
    pub(crate) fn set_array(self, values: &[T]) -> HipResult
    where
        T: Copy,
    {
        self.check()?;
        for (i, value) in values.iter().enumerate() {
            // SAFETY: as in `set_if_given`; the caller passed the array's length, and callers of this method do not exceed it.
            unsafe { self.0.add(i).write_unaligned(*value) }
        }
        Ok(())
    }

    /// The raw address.
    pub(crate) fn address(self) -> usize {
        self.0 as usize
    }

    /// The same pointer, taken as one to another type (parameters whose type depends on another argument).
    pub(crate) fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }
}

/// A pointer to a value or an array the caller provides; may be null.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct In<T>(*const T, PhantomData<T>);

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for In<T> {}

impl<T: Copy> In<T> {
    /// The value. Fails with `hipErrorInvalidValue` on a null pointer.
    pub(crate) fn get(self) -> HipResult<T> {
        if self.0.is_null() {
            return Err(HipError::INVALID_VALUE);
        }
        // SAFETY: an `In` is only ever made by a C caller, as an argument or a field of one; HIP's API obliges
        // that caller to pass null or a pointer to a valid value.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// The first `count` elements. Fails with `hipErrorInvalidValue` on null with a count that is not 0.
    pub(crate) fn array(self, count: usize) -> HipResult<Vec<T>> {
        if count > 0 && self.0.is_null() {
            return Err(HipError::INVALID_VALUE);
        }
        // SAFETY: as in `get`; the caller passed this count as the array's length.
        Ok((0..count).map(|i| unsafe { self.0.add(i).read_unaligned() }).collect())
    }

    /// Element `index` of an array the caller provides.
    pub(crate) fn at(self, index: usize) -> HipResult<T> {
        if self.0.is_null() {
            return Err(HipError::INVALID_VALUE);
        }
        // SAFETY: as in `get`; `index` is within the length HIP's API gives this array.
        Ok(unsafe { self.0.add(index).read_unaligned() })
    }

    /// Whether the pointer is null.
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The raw address.
    pub(crate) fn address(self) -> usize {
        self.0 as usize
    }

    /// A pointer made from an address that itself came from a C caller.
    pub(crate) fn from_address(address: usize) -> Self {
        Self(address as *const T, PhantomData)
    }
}

/// A C string the caller provides; may be null.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct InStr(*const c_char);

impl InStr {
    /// The string. Fails with `hipErrorInvalidValue` on a null pointer.
    pub(crate) fn get<'a>(self) -> HipResult<&'a CStr> {
        if self.0.is_null() {
            return Err(HipError::INVALID_VALUE);
        }
        // SAFETY: an `InStr` is only ever made by a C caller; HIP's API obliges it to pass a terminated string that
        // lives for the call, and no caller of `get` keeps the reference beyond the call.
        Ok(unsafe { CStr::from_ptr(self.0) })
    }
}

/// Writes `text` with its terminator into the caller's buffer of `len` bytes, cut to fit.
pub(crate) fn write_c_string(buffer: Out<u8>, len: i32, text: &str) -> HipResult {
    let Ok(len) = usize::try_from(len) else { return Err(HipError::INVALID_VALUE) };
    if len == 0 {
        return Err(HipError::INVALID_VALUE);
    }
    let mut bytes: Vec<u8> = text.bytes().take(len - 1).collect();
    bytes.push(0);
    buffer.set_array(&bytes)
}

/// An `Out` at an address that a C caller passed inside an array or a struct.
pub(crate) fn out_at<T>(address: usize) -> Out<T> {
    Out(address as *mut T)
}
