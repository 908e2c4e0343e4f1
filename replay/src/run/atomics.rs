//! What [`super::progress`] is made of. `tests/loom` puts models of the same names in the place of this file.

pub(super) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
pub(super) use std::sync::{Condvar, Mutex};
