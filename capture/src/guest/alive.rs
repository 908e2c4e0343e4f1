//! The process's last sign of life: the tick of the last moment at which capture's background thread saw it running.
//!
//! A process that hangs makes no more calls, and its records do not tell for how long it has been in the last one. The file
//! is eight bytes, written in place; a process that ends well needs none and may have one all the same.

use std::sync::OnceLock;
use std::time::Duration;

use hrr_format::archive::ALIVE_FILE;

use crate::files::GuardedFile;
use crate::{clock, process};

/// Time between two signs.
pub(crate) const INTERVAL: Duration = Duration::from_millis(100);

/// The file, once there is a sign; `None` where it could not be made.
#[derive(Debug, Default)]
pub(crate) struct Alive(OnceLock<Option<GuardedFile>>);

/// Gives a sign of life.
pub(crate) fn beat() {
    if !process::is_under_way() {
        return;
    }
    let process = process::current();
    let create = || GuardedFile::create(process.dir().join(ALIVE_FILE)).ok();
    // Written over in place: a process that is killed now leaves the sign before this one. Where it cannot be written the archive
    // tells less, and nothing else.
    if let Some(file) = process.alive().0.get_or_init(create) {
        let _ = file.write_all_at(&clock::tick().to_le_bytes(), 0);
    }
}
