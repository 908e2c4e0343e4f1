//! Keeping the program's `errno`.

/// Puts `errno` back to what it was when this value was made.
///
/// HIP calls do not document `errno`, but programs read it after calls that happen to leave it alone, and what a
/// recorder does on the side must not show.
#[derive(Debug)]
pub(crate) struct KeepErrno {
    value: i32,
}

impl KeepErrno {
    pub(crate) fn new() -> Self {
        // SAFETY: `__errno_location` always returns the address of the calling thread's `errno`.
        KeepErrno { value: unsafe { *libc::__errno_location() } }
    }
}

impl Drop for KeepErrno {
    fn drop(&mut self) {
        // SAFETY: as in `new`; the value is dropped on the thread that made it, since it never leaves a stack frame.
        unsafe { *libc::__errno_location() = self.value };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errno_is_put_back() {
        // SAFETY: `__errno_location` always returns the address of the calling thread's `errno`.
        let errno = unsafe { &mut *libc::__errno_location() };
        *errno = 42;
        {
            let _keep = KeepErrno::new();
            *errno = 7;
        }
        assert_eq!(*errno, 42);
    }
}
