//! What an HRR archive is.
//!
//! * [`catalogue`]: every HIP entry point, what its parameters mean and what replay does with it
//! * [`abi`]: the C types HIP passes by value, as argument words
//! * [`record`]: one recorded call
//! * [`stream_file`]: the calls of one captured thread
//!
//! No HIP runtime is touched here, and no policy on what to record is made here.

#[doc(hidden)]
pub mod abi;
pub mod catalogue;
pub mod record;
pub mod stream_file;
