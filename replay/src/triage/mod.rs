//! Hang triage: what a replay that does not come to an end is stuck in, and why.
//!
//! * [`own_calls`]: what replay itself is waiting for: calls it makes for its own sake, planning and staging
//! * [`marks`]: how far each stream has come, by events recorded behind each enqueue
//! * [`event_index`]: from an event number back to its record, without a pass over the whole archive
//! * [`examine`]: puts all of it together when the watchdog fires
//! * [`diagnosis`]: what came out, as text and JSON
//! * [`tell`]: where it goes
//! * [`trace`]: lines printed while calls are issued
//!
//! Nothing here costs anything unless it was asked for: marks and trace lines are instructions of their own, planned in
//! only when they are wanted.

pub mod diagnosis;
pub(crate) mod event_index;
pub(crate) mod examine;
pub(crate) mod marks;
pub(crate) mod own_calls;
pub mod tell;
pub(crate) mod trace;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use diagnosis::Diagnosis;
pub use marks::MarkPolicy;

/// After which calls replay waits for the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncAfter {
    /// Only where the program did.
    #[default]
    Nothing,
    /// After each kernel and graph launch.
    Launches,
    /// After every call.
    Events,
}

/// What is done with the program's own waits for the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceSyncs {
    /// They are replayed.
    #[default]
    Replayed,
    /// `hipDeviceSynchronize` and `hipStreamSynchronize` are left out; results are compared at the end.
    Skipped,
}

/// Whether calls of a kind are printed as they are issued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tracing {
    /// They are not.
    #[default]
    Off,
    /// One line before each.
    On,
}

/// Aids for finding out where a replay goes wrong.
#[derive(Clone, Copy, Debug, Default)]
pub struct TriageOptions {
    /// Waits for the device that the program did not have.
    pub sync_after: SyncAfter,
    /// Waits for the device that the program had.
    pub device_syncs: DeviceSyncs,
    /// Prints kernel and graph launches.
    pub trace_kernels: Tracing,
    /// Prints calls that wait.
    pub trace_sync: Tracing,
    /// Prints a progress line each time this many more kernels were launched; 0 = never.
    pub progress_kernels: u64,
    /// Prints a progress line each time this much more time has passed.
    pub progress_every: Option<Duration>,
    /// Which operations the watchdog marks.
    pub marks: MarkPolicy,
}

/// What is told when the watchdog fires, before the process ends with exit code 124.
#[derive(Clone)]
pub struct HangHandler(Arc<dyn Fn(&Diagnosis) + Send + Sync>);

impl HangHandler {
    /// Has `tell` called with the diagnosis, on the watchdog's thread. It must not wait for the replay.
    pub fn new(tell: impl Fn(&Diagnosis) + Send + Sync + 'static) -> Self {
        HangHandler(Arc::new(tell))
    }

    /// Tells the diagnosis.
    pub(crate) fn tell(&self, diagnosis: &Diagnosis) {
        (self.0)(diagnosis);
    }
}

impl Default for HangHandler {
    /// Prints the diagnosis to standard error.
    fn default() -> Self {
        HangHandler::new(|diagnosis| eprint!("{diagnosis}"))
    }
}

impl fmt::Debug for HangHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HangHandler")
    }
}
