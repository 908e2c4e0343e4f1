//! Writing without the signals that writing may raise in the program.
//!
//! A write past RLIMIT_FSIZE raises SIGXFSZ, one to a pipe that nobody reads SIGPIPE, one to a terminal from the background SIGTTOU:
//! each stops or ends a program that does not expect it, and a program that writes nothing itself has no reason to. All three go to
//! the thread that writes. So they are blocked there, and what the write raised is taken away before they are let through again: the
//! recorder has the error, and the program has nothing.

use std::io;

use crate::guest::threads;

/// What a write raises, and stays pending where it is blocked.
const RAISED: [libc::c_int; 2] = [libc::SIGXFSZ, libc::SIGPIPE];

/// Calls `write`, and keeps from the program what that raises.
///
/// # Errors
/// Those of `write`.
pub(crate) fn quietly<T>(write: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    if threads::is_own() {
        // All signals are blocked there, and what is pending ends with the thread.
        return write();
    }
    // SAFETY: zero is a valid set, and the sets are this function's own.
    let (mut blocked, mut before, mut pending): (libc::sigset_t, libc::sigset_t, libc::sigset_t) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed(), std::mem::zeroed()) };
    // SAFETY: as above.
    unsafe {
        libc::sigemptyset(&mut blocked);
        for signal in RAISED.into_iter().chain([libc::SIGTTOU]) {
            libc::sigaddset(&mut blocked, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &blocked, &mut before);
        libc::sigpending(&mut pending);
    }
    let done = write();
    if let Err(error) = &done
        && let Some(raised) = raised_with(error)
        // SAFETY: the set was filled above.
        && unsafe { libc::sigismember(&pending, raised) } == 0
    {
        take(raised);
    }
    // SAFETY: the set is the one that the thread had.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
    done
}

/// The signal that comes with an error.
fn raised_with(error: &io::Error) -> Option<libc::c_int> {
    match error.raw_os_error()? {
        libc::EFBIG => Some(libc::SIGXFSZ),
        libc::EPIPE => Some(libc::SIGPIPE),
        _ => None,
    }
}

/// Takes a pending signal away, if it is there.
fn take(signal: libc::c_int) {
    /// Length of the kernel's signal set in bytes.
    const SET_BYTES: usize = 8;
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the set is this function's own, and the time is readable. By its number, since the C library's function is a
    // cancellation point.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut set, signal);
        libc::syscall(libc::SYS_rt_sigtimedwait, &set, std::ptr::null_mut::<libc::siginfo_t>(), &now, SET_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_pending(signal: libc::c_int) -> bool {
        // SAFETY: the set is this function's own.
        unsafe {
            let mut pending: libc::sigset_t = std::mem::zeroed();
            libc::sigpending(&mut pending);
            libc::sigismember(&pending, signal) == 1
        }
    }

    fn write_to_closed_pipe() -> io::Result<()> {
        let mut ends = [0; 2];
        // SAFETY: there is room for two descriptors, which are this function's own.
        unsafe {
            assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
            libc::close(ends[0]);
            let written = libc::write(ends[1], b"x".as_ptr().cast(), 1);
            let error = io::Error::last_os_error();
            libc::close(ends[1]);
            if written < 0 { Err(error) } else { Ok(()) }
        }
    }

    #[test]
    fn what_a_write_raises_is_taken_away_and_what_was_there_stays() {
        // The harness of the tests ignores the signal; a program need not.
        // SAFETY: the default action is put back below, and the signal stays blocked until then.
        let ignored = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        assert_eq!(quietly(write_to_closed_pipe).unwrap_err().raw_os_error(), Some(libc::EPIPE));
        assert!(!is_pending(libc::SIGPIPE));
        // SAFETY: the sets are this function's own; the signal goes to this thread, which has it blocked.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigaddset(&mut set, libc::SIGPIPE);
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            libc::pthread_kill(libc::pthread_self(), libc::SIGPIPE);
            assert!(quietly(write_to_closed_pipe).is_err());
            assert!(is_pending(libc::SIGPIPE), "the program's own");
            take(libc::SIGPIPE);
            assert!(!is_pending(libc::SIGPIPE));
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
            libc::signal(libc::SIGPIPE, ignored);
        }
    }
}
