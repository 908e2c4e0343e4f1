//! Stream files: how records get from a thread into the page cache.
//!
//! * [`segment`]: a piece of a file, allocated and mapped
//! * [`thread_stream`]: one thread's file, and its place in it
//! * [`background`]: the thread that prepares segments ahead of need

pub(crate) mod background;
pub(crate) mod segment;
pub(crate) mod thread_stream;

pub(crate) use background::Background;
pub(crate) use thread_stream::{StreamIdentity, ThreadStream};
