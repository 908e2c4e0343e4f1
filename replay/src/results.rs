//! What a replay brought, against what the recording says.

pub mod compare;
pub(crate) mod failure;
pub(crate) mod plausible;
pub mod validate;
