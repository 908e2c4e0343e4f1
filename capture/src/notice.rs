//! The lines capture writes to standard error.
//!
//! A line is one `write(2)`, so that lines of several processes do not mix, and takes no lock of the standard library,
//! which a `fork` in another thread could have left held.

use std::fmt;

use crate::errno::KeepErrno;

/// What every line begins with.
const PREFIX: &str = "[HRR capture] ";

/// Writes one line to standard error; a closed or full standard error loses it in silence.
pub(crate) fn line(message: fmt::Arguments<'_>) {
    let _errno = KeepErrno::new();
    let text = format!("{PREFIX}{message}\n");
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        // SAFETY: `rest` is a live slice, and `write` only reads its bytes.
        let written = unsafe { libc::write(libc::STDERR_FILENO, rest.as_ptr().cast(), rest.len()) };
        match usize::try_from(written) {
            Ok(written) if written > 0 => rest = rest.get(written..).unwrap_or_default(),
            _ => return,
        }
    }
}
