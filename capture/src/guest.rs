//! Being a guest in somebody else's program: nothing of what the recorder needs for itself may show there.

pub(crate) mod alive;
pub(crate) mod notice;
pub(crate) mod quiet_write;
pub(crate) mod reserve;
pub(crate) mod small_stack;
pub(crate) mod threads;
pub(crate) mod unnoticed;
