//! The counters without their fences: a planted fault.

pub(crate) mod atomics {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    pub(crate) use loom::sync::{Condvar, Mutex};

    pub(crate) fn fence(_: Ordering) {}
}
pub(crate) use super::spinning;
#[path = "../../../replay/src/run/progress.rs"]
pub(crate) mod progress;
