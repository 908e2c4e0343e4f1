//! The process's last sign of life: the tick of the last moment at which capture's background thread saw it running.
//!
//! A process that hangs makes no more calls, and its records do not tell for how long it has been in the last one. The file
//! is eight bytes, written in place; a process that ends well needs none and may have one all the same.

use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::Duration;

use hrr_format::archive::ALIVE_FILE;

use crate::{clock, process};

/// Time between two signs.
pub(crate) const INTERVAL: Duration = Duration::from_millis(100);

/// Gives a sign of life.
pub(crate) fn beat() {
    if !process::is_under_way() {
        return;
    }
    let path = process::current().dir().join(ALIVE_FILE);
    // Not truncated: a process that is killed now leaves the sign before this one. Where it cannot be written the archive
    // tells less, and nothing else.
    if let Ok(file) = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path) {
        let _ = file.write_all_at(&clock::tick().to_le_bytes(), 0);
    }
}
