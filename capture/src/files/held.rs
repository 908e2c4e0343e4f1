//! The archive root, held open: paths below it are followed from there, wherever the program's own root or working directory go.
//!
//! A program that changes its root (`chroot`, `pivot_root`) leaves no path by which the archive can be reached. One that
//! closes every descriptor takes the directory from us, which is then found by its path again, as files are.

use std::ffi::CString;
use std::io;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::{GuardedFile, c_path};

static HELD: AtomicPtr<GuardedFile> = AtomicPtr::new(std::ptr::null_mut());

/// Holds the root of the archive from now on. Where it cannot be opened, paths are followed as usual.
pub(crate) fn hold(root: &Path) {
    // SAFETY: the pointer is null, or to a value that is never freed.
    let before = unsafe { HELD.load(Ordering::Acquire).as_ref() };
    if before.is_some_and(|held| held.path() == root && held.fd().is_ok()) {
        // A forked child has its parent's.
        return;
    }
    if let Ok(dir) = GuardedFile::open_dir(root) {
        // Release: whoever sees the pointer sees what it points to. It is never freed, since others may be using it.
        HELD.store(Box::into_raw(Box::new(dir)), Ordering::Release);
    }
}

/// The directory that a path is followed from, and the rest of the path.
pub(super) fn follow(path: &Path) -> io::Result<(RawFd, CString)> {
    // SAFETY: the pointer is null, or to a value that is never freed.
    let held = unsafe { HELD.load(Ordering::Acquire).as_ref() };
    if let Some(held) = held
        && let Ok(below) = path.strip_prefix(held.path())
        && let Ok(fd) = held.fd()
    {
        let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
        return Ok((fd, c_path(below)?));
    }
    Ok((libc::AT_FDCWD, c_path(path)?))
}

/// Whether a path is followed from the root that is held.
pub(super) fn is_below(path: &Path) -> bool {
    follow(path).is_ok_and(|(from, _)| from != libc::AT_FDCWD)
}
