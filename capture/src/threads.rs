//! Starting threads of our own inside somebody else's program.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static OWN: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread is one of ours, which takes no signals.
pub(crate) fn is_own() -> bool {
    OWN.with(Cell::get)
}

/// Stack of a thread in bytes.
const STACK_BYTES: usize = 1 << 20;

/// Starts a detached thread that takes none of the program's signals; says whether it could be started.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> bool {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // A new thread inherits the signal mask. With every signal blocked, the program's handlers never run on it, and
    // growing a file past a limit gives it an error, and a SIGXFSZ that ends with it.
    // SAFETY: both sets are writable; `sigfillset` fills the first one before it is read.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let started = std::thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES).spawn(move || {
        OWN.with(|own| own.set(true));
        crate::recorder::never_record_this_thread();
        // A panic must not print the standard library's message into the program's output twice over; it ends this
        // thread, and those that need its work do it themselves.
        let _ = catch_unwind(AssertUnwindSafe(body));
    });
    // SAFETY: `before` was filled by the call above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    started.is_ok()
}
