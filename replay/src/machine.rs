//! The machine and the runtime that a replay runs on.

pub mod device_map;
pub(crate) mod mappings;
pub(crate) mod memory_node;
pub mod runtime;
pub mod topology;
