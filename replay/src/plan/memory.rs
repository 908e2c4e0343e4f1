//! Memory as the archive has it: what is live, where it lies, and what of it the host touches.
//!
//! * [`address`]: which allocation an address lies in; [`contents`]: memory that has several names
//! * [`host_memory`]: host memory that devices use directly; [`graph_host`]: host memory that graphs copy
//! * [`placed`]: memory that lies where it did, and what is found in uploads where some does not
//! * [`regions`]: memory that another tool wrote down
//! * [`coverage`]: when staged host memory may be used again

pub(crate) mod address;
pub(crate) mod contents;
pub(crate) mod coverage;
pub(crate) mod graph_host;
pub(crate) mod host_memory;
pub(crate) mod placed;
pub(crate) mod regions;
