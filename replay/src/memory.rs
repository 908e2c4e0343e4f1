//! Memory that a replay has: of the host in the program's place, of the device at its recorded addresses, and its own.

pub mod addresses;
#[doc(hidden)]
pub mod large_pages;
pub(crate) mod layout;
pub mod placement;
pub(crate) mod prefetch;
pub(crate) mod slots;
pub mod stage;
