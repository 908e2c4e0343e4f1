//! The counters as they are.

pub(crate) mod atomics {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
    pub(crate) use loom::sync::{Condvar, Mutex};
}
pub(crate) use super::spinning;
#[path = "../../../replay/src/run/progress.rs"]
pub(crate) mod progress;
