//! The counters with nothing but relaxed loads and stores: a planted fault.

pub(crate) mod atomics {
    pub(crate) use loom::sync::atomic::{AtomicBool, Ordering, fence};
    pub(crate) use loom::sync::{Condvar, Mutex};

    #[derive(Debug)]
    pub(crate) struct AtomicU64(loom::sync::atomic::AtomicU64);

    impl AtomicU64 {
        pub(crate) fn new(value: u64) -> Self {
            AtomicU64(loom::sync::atomic::AtomicU64::new(value))
        }

        pub(crate) fn load(&self, _: Ordering) -> u64 {
            self.0.load(Ordering::Relaxed)
        }

        pub(crate) fn store(&self, value: u64, _: Ordering) {
            self.0.store(value, Ordering::Relaxed);
        }
    }
}
pub(crate) use super::spinning;
#[path = "../../../replay/src/run/progress.rs"]
pub(crate) mod progress;
