//! How calls of the program come to the recorder, and how the recorder reaches the real functions.

pub(crate) mod dlsym;
pub(crate) mod elf;
pub(crate) mod real;
pub(crate) mod sanitizers;
pub(crate) mod shims;
pub(crate) mod tables;
