//! Files that may not grow any more.

/// Has a write beyond a limit on the size of files (`ulimit -f`) fail, as one to a full disk does: the system's own way is to end the
/// process by a signal, and nobody is told what could not be written. Programs that this one starts inherit it.
pub fn full_files_are_errors() {
    // SAFETY: the signal is ignored from here on, and no handler of ours was there before.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}
