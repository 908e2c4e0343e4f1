//! Contents: host buffers, code objects and results, as far as the contents mode has them recorded.
//!
//! * [`memory`]: reading the program's memory
//! * [`pool`]: bounded buffers between the program's threads and the writers
//! * [`blob_writer`]: from the program's threads to those that write, or done by the caller
//! * [`shared_copy`]: long contents copied by several threads
//! * [`store`]: hashing, storing once, indexing
//! * [`allocations`]: whose memory an address is
//! * [`copy_structs`]: copies described by a struct
//! * [`region`]: the host side of a copy
//! * [`pending_results`]: results that the program cannot have seen yet
//! * [`overwritten`]: what copies read of them where they are written over
//! * [`event_order`]: which copies an event stands behind
//! * [`graph_copies`]: host memory that launched graphs read and write
//! * [`host_memory`]: host memory that devices use directly

pub(crate) mod allocations;
pub(crate) mod blob_writer;
pub(crate) mod copy_structs;
pub(crate) mod event_order;
pub(crate) mod graph_copies;
pub(crate) mod host_memory;
pub(crate) mod memory;
mod overwritten;
pub(crate) mod pending_results;
pub(crate) mod pool;
pub(crate) mod region;
mod shared_copy;
pub(crate) mod store;
