//! Kernel signatures of a code object.

mod signature;

pub use signature::{ArgKind, KernelArg, KernelSignature, explicit_bytes};
