//! Why an archive cannot be replayed.

use crate::memory::stage::StageError;

/// A call that cannot be replayed, with its place in the archive.
#[derive(Debug, thiserror::Error)]
#[error("event {event} (thread {thread}), {api}: {reason}")]
pub struct PlanError {
    /// Number of the event in the order of entry.
    pub event: u64,
    /// Number of the captured thread.
    pub thread: u32,
    /// The call.
    pub api: String,
    /// Why it cannot be replayed.
    #[source]
    pub reason: Refusal,
}

/// Why a call cannot be replayed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The catalogue says so.
    #[error("is not replayed: {0}")]
    Policy(&'static str),
    /// A conversion from another format says so.
    #[error("cannot be replayed from this recording: {0}")]
    Converted(String),
    /// This build has no such entry point.
    #[error("is not known to this build; use an hrr-playback at least as new as the recorder")]
    UnknownApi,
    /// The record does not fit the catalogue.
    #[error(
        "was recorded with {found} argument words where this build expects {expected}; use the hrr-playback of the recorder's version"
    )]
    Words {
        /// Words in the record.
        found: usize,
        /// Words by the catalogue.
        expected: usize,
    },
    /// The runtime lacks the entry point.
    #[error("is missing from the HIP runtime {0}; use a runtime at least as new as the recorded one (--hip-lib)")]
    Missing(String),
    /// A handle that no call of the archive created.
    #[error("uses a {kind:?} handle {value:#x} that no recorded call created")]
    Handle {
        /// Its kind.
        kind: hrr_format::catalogue::HandleKind,
        /// Its value at capture.
        value: u64,
    },
    /// A device address in no allocation.
    #[error("uses the device address {address:#x} (parameter {param}), which lies in no recorded allocation")]
    Address {
        /// The address.
        address: u64,
        /// The parameter's name.
        param: &'static str,
    },
    /// A handle of another process.
    #[error("opens a handle that no call of this process exported: {0}")]
    Foreign(String),
    /// A host function symbol that was never registered.
    #[error("uses the host symbol {address:#x}, which no recorded __hipRegister* call registered")]
    Symbol {
        /// Its address.
        address: u64,
    },
    /// Contents were withheld at capture.
    #[error(
        "needs {what}, which the archive withholds: it was recorded without contents; record again with HIP_HRR_CAPTURE_CONTENT=1 (hrr-capture --content), or time it with --shape-only"
    )]
    Withheld {
        /// What is needed.
        what: &'static str,
    },
    /// Contents should be there and are not.
    #[error("lacks {what}; the archive is damaged, or its process ended before that was written")]
    Lacks {
        /// What is missing.
        what: &'static str,
    },
    /// A kernel's arguments cannot be laid out.
    #[error(
        "launches kernel {kernel:?}, whose argument layout was unknown at capture (no AMDGPU metadata in its code object)"
    )]
    Signature {
        /// The kernel's name, if known.
        kernel: String,
    },
    /// A record's section does not have the size its parameter has.
    #[error(
        "has {found_bytes} bytes recorded for parameter {param} where {expected_bytes} are needed; the archive is damaged"
    )]
    Section {
        /// The parameter's name.
        param: &'static str,
        /// Bytes in the record.
        found_bytes: usize,
        /// Bytes expected.
        expected_bytes: usize,
    },
    /// A range that does not lie in its allocation.
    #[error(
        "touches {len_bytes} bytes at offset {offset_bytes} of an allocation of {size_bytes} bytes (parameter {param}); the archive is damaged"
    )]
    Range {
        /// The parameter's or field's name.
        param: &'static str,
        /// Bytes touched.
        len_bytes: u64,
        /// Offset of the first in the allocation.
        offset_bytes: u64,
        /// Size of the allocation.
        size_bytes: u64,
    },
    /// An argument passed by pointer that is longer than any.
    #[error("takes {len_bytes} bytes for parameter {param}, more than any call does; the archive is damaged")]
    TooLong {
        /// The parameter's name.
        param: &'static str,
        /// Its length.
        len_bytes: u64,
    },
    /// A shape of host memory replay does not lay out.
    #[error("copies host memory in a shape that replay does not lay out ({0})")]
    Shape(&'static str),
    /// The archive uses more devices than there are.
    #[error("uses device {device}, and the runtime has {count}")]
    Device {
        /// The device.
        device: i32,
        /// Devices there are.
        count: i32,
    },
    /// The call failed at capture over host memory that was not recorded: reissuing it would let the runtime read
    /// something else. Planning leaves it out and counts it.
    #[error("failed at capture over host memory that was not recorded")]
    NotReissued,
    /// A kernel's replacement cannot be loaded.
    #[error("launches kernel {kernel:?}, whose replacement cannot be used: {reason}")]
    Replacement {
        /// The kernel's name.
        kernel: String,
        /// The runtime's error.
        reason: String,
    },
    /// Staging failed.
    #[error(transparent)]
    Stage(#[from] StageError),
}
