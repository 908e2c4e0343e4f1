//! Timelines, as Chrome's trace event JSON or in Perfetto's format: what a replay did, and what the recorded program did, drawn the same way so
//! that both can be laid side by side in Perfetto or `chrome://tracing`.
//!
//! * [`target`]: the file that was asked for
//! * [`timeline`]: what is drawn, whatever the format
//! * [`chrome`]: written as JSON
//! * [`perfetto`]: written as protobuf
//! * [`taken`]: what runners write down for a timeline
//! * [`replayed`]: a repetition of a replay, drawn
//! * [`recorded`]: the recorded run, drawn from the ticks in its archive
//! * [`streams`]: when the recorded run's work on each stream can have run at all
//!
//! Nanoseconds count from the begin of the timed section, or from the entry of the first call drawn.

pub(crate) mod chrome;
pub(crate) mod perfetto;
pub mod recorded;
pub(crate) mod replayed;
pub(crate) mod streams;
pub(crate) mod taken;
pub mod target;
pub(crate) mod timeline;

/// Version of what is written about a timeline beside its events. It rises when a key changes its meaning or goes.
pub const SCHEMA_VERSION: u32 = 1;

/// Most calls, and most pieces of work, that one thread writes down for a timeline. More than viewers show at a bearable
/// speed; what is beyond is counted.
pub(crate) const MOST_TAKEN: usize = 1 << 20;

/// What is not obvious from a slice's name alone, and the same in both kinds of timeline.
pub(crate) mod category {
    /// A call that does not wait for the device.
    pub(crate) const CALL: &str = "call";
    /// A call that waits for the device.
    pub(crate) const BLOCKING: &str = "call,wait";
    /// Time in which a worker or thread could not go on.
    pub(crate) const WAIT: &str = "wait";
    /// Work of the device.
    pub(crate) const WORK: &str = "work";
    /// Results copied to the host.
    pub(crate) const RESULT: &str = "d2h";
    /// An arrow: this call came after that one.
    pub(crate) const EDGE: &str = "edge";
    /// An arrow: from a call to the work that it enqueued.
    pub(crate) const LAUNCH: &str = "launch";
}

/// Names of waits, by cause; viewers that choose colours by name give each cause its own.
pub(crate) mod wait {
    /// For a call of another captured thread.
    pub(crate) const EDGE: &str = "wait: edge";
    /// For planning and staging.
    pub(crate) const STAGING: &str = "wait: staging";
    /// The program's own gap between two calls, replayed.
    pub(crate) const GAP: &str = "wait: the program's gap";
    /// In a call that waits for the device.
    pub(crate) const RUNTIME: &str = "wait: runtime";
}
