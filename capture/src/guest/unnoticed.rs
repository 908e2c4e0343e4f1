//! What a recorder does on the side must not show in the thread it does it on.

/// `PTHREAD_CANCEL_DISABLE` (pthread.h).
const CANCEL_DISABLE: libc::c_int = 1;

unsafe extern "C-unwind" {
    fn pthread_setcancelstate(state: libc::c_int, before: *mut libc::c_int) -> libc::c_int;
}

/// While this value lives the thread is not cancelled, and when it goes `errno` is what it was.
///
/// HIP calls do not document `errno`, but programs read it after calls that happen to leave it alone. A thread that is to be
/// cancelled ends at its next cancellation point, and `open` and `write` are such points: it would unwind through a recorder that is
/// in the middle of something, which Rust makes an abort.
#[derive(Debug)]
pub(crate) struct Unnoticed {
    errno: i32,
    cancel_state: libc::c_int,
}

impl Unnoticed {
    pub(crate) fn new() -> Self {
        let mut cancel_state = 0;
        // SAFETY: `__errno_location` always returns the address of the calling thread's `errno`; the old state goes to a variable.
        unsafe {
            let errno = *libc::__errno_location();
            pthread_setcancelstate(CANCEL_DISABLE, &mut cancel_state);
            Unnoticed { errno, cancel_state }
        }
    }
}

impl Drop for Unnoticed {
    fn drop(&mut self) {
        // SAFETY: as in `new`; the value is dropped on the thread that made it, since it never leaves a stack frame.
        unsafe {
            *libc::__errno_location() = self.errno;
            pthread_setcancelstate(self.cancel_state, std::ptr::null_mut());
        }
    }
}

/// Signals that may be blocked are, while this value lives: a handler that never returns (`siglongjmp`) would leave undone what
/// every other thread waits for.
#[derive(Debug)]
pub(crate) struct SignalsBlocked {
    before: libc::sigset_t,
}

impl SignalsBlocked {
    pub(crate) fn new() -> Self {
        // SAFETY: zero is a valid set, and the sets are this function's own.
        unsafe {
            let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
            SignalsBlocked { before }
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: the set is the one that the thread had.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errno_and_cancellation_are_put_back() {
        // SAFETY: `__errno_location` always returns the address of the calling thread's `errno`.
        let errno = unsafe { &mut *libc::__errno_location() };
        let state = || {
            let mut state = -1;
            // SAFETY: the state goes to a variable, and is put back at once.
            unsafe {
                pthread_setcancelstate(CANCEL_DISABLE, &mut state);
                pthread_setcancelstate(state, std::ptr::null_mut());
            }
            state
        };
        *errno = 42;
        {
            let _unnoticed = Unnoticed::new();
            *errno = 7;
            assert_eq!(state(), CANCEL_DISABLE);
        }
        assert_eq!((*errno, state()), (42, 0));
    }

    #[test]
    fn signals_wait_and_come_afterwards() {
        let is_blocked = || {
            // SAFETY: the set is this function's own; a null new set changes nothing.
            unsafe {
                let mut now: libc::sigset_t = std::mem::zeroed();
                libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &mut now);
                libc::sigismember(&now, libc::SIGALRM) == 1
            }
        };
        {
            let _blocked = SignalsBlocked::new();
            assert!(is_blocked());
        }
        assert!(!is_blocked());
    }
}
