//! What the devices say of themselves.

/// Threads a block may have.
pub(crate) const MAX_THREADS_PER_BLOCK: u64 = 1024;
/// Shared memory a block may have in bytes (LDS of an MI300).
pub(crate) const SHARED_BYTES_PER_BLOCK: usize = 64 << 10;
/// Compute units of a device.
pub(crate) const MULTIPROCESSORS: i32 = 304;
/// Threads resident on one compute unit at most.
pub(crate) const MAX_THREADS_PER_MULTIPROCESSOR: i32 = 2048;
