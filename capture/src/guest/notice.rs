//! The lines capture writes to standard error.
//!
//! A line is one `write(2)`, so that lines of several processes do not mix, and takes no lock of the standard library,
//! which a `fork` in another thread could have left held. It raises no signal, and where nobody takes it, it is lost: a program that
//! writes nothing must not be ended, or held up for long, by what the recorder says.

use std::fmt;

use std::sync::atomic::{AtomicU64, Ordering};

use crate::guest::quiet_write::quietly;
use crate::guest::unnoticed::Unnoticed;

/// What every line begins with.
const PREFIX: &str = "[HRR capture] ";

/// Device and inode of standard error as the library was loaded; [`UNKNOWN`] before, [`CLOSED`] where there was none.
static DEVICE: AtomicU64 = AtomicU64::new(UNKNOWN);
static INODE: AtomicU64 = AtomicU64::new(0);
const UNKNOWN: u64 = u64::MAX;
const CLOSED: u64 = u64::MAX - 1;

/// Remembers what standard error is. A program that closes it and opens a file of its own gets the same number.
pub(crate) fn remember_standard_error() {
    let (device, inode) = standard_error().unwrap_or((CLOSED, 0));
    // Relaxed: both are stored before the program's own code runs.
    INODE.store(inode, Ordering::Relaxed);
    DEVICE.store(device, Ordering::Relaxed);
}

fn standard_error() -> Option<(u64, u64)> {
    let mut status = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `status` is writable memory of the right type, and read only where `fstat` has filled it.
    unsafe {
        if libc::fstat(libc::STDERR_FILENO, status.as_mut_ptr()) != 0 {
            return None;
        }
        let status = status.assume_init();
        Some((status.st_dev, status.st_ino))
    }
}

/// Writes one line to standard error; a closed or full standard error, or one that is another file by now, loses it in
/// silence.
pub(crate) fn line(message: fmt::Arguments<'_>) {
    let _unnoticed = Unnoticed::new();
    let known = (DEVICE.load(Ordering::Relaxed), INODE.load(Ordering::Relaxed));
    if known.0 != UNKNOWN && standard_error() != Some(known) {
        return;
    }
    let text = format!("{PREFIX}{message}\n");
    let mut rest = text.as_bytes();
    // A line that cannot be written is lost.
    let _ = quietly(|| {
        while !rest.is_empty() && takes_more() {
            // SAFETY: `rest` is a live slice, and `write` only reads its bytes.
            let written = unsafe { libc::write(libc::STDERR_FILENO, rest.as_ptr().cast(), rest.len()) };
            match usize::try_from(written) {
                Ok(written) if written > 0 => rest = rest.get(written..).unwrap_or_default(),
                _ => return Err(std::io::Error::last_os_error()),
            }
        }
        Ok(())
    });
}

/// Whether standard error takes something before long: a pipe that is full, and read by nobody, holds a writer up for ever.
fn takes_more() -> bool {
    const PATIENCE_MS: libc::c_int = 1000;
    let mut question = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
    // SAFETY: the question is this function's own. Where it cannot be asked, the write answers.
    unsafe { libc::poll(&mut question, 1, PATIENCE_MS) != 0 }
}
