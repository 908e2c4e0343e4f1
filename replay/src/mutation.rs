//! Mutation switches: planted faults that prove the checks can fail.
//!
//! `HRR_REPLAY_MUTATE=NAME` makes a replay wrong on purpose. The end-to-end tests replay with each of them and demand a
//! failure; a switch that goes unnoticed means that a check has gone blind. A replay under a mutation says so.

use hrr_format::catalogue::Api;

use crate::environment::{self, VariableError};

/// A planted fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// Leaves out every wait for another captured thread.
    DropEdges,
    /// Issues every call on device 0.
    IgnoreDevice,
    /// Resolves a kernel by its name in whichever module first had it.
    NameOnlyKernel,
    /// Resolves a reused handle value to the object that had it first.
    StaleHandle,
    /// Has one call wait for itself.
    SelfWait,
    /// Leaves out every call of the entry point with this catalogue id.
    Drop(u16),
    /// Leaves out what the host stored in memory that devices use directly.
    NoHostRestore,
}

impl Mutation {
    /// The fault that `HRR_REPLAY_MUTATE` names.
    ///
    /// # Errors
    /// The name, where there is no such fault.
    pub(crate) fn from_env() -> Result<Option<Self>, VariableError> {
        const VARIABLE: &str = "HRR_REPLAY_MUTATE";
        let Some(value) = environment::text(VARIABLE) else { return Ok(None) };
        Ok(Some(match value.as_str() {
            "drop-edges" => Mutation::DropEdges,
            "ignore-device" => Mutation::IgnoreDevice,
            "name-only-kernel" => Mutation::NameOnlyKernel,
            "stale-handle" => Mutation::StaleHandle,
            "self-wait" => Mutation::SelfWait,
            "no-host-restore" => Mutation::NoHostRestore,
            _ => match value.strip_prefix("drop:").and_then(Api::by_name) {
                Some(api) => Mutation::Drop(api.id),
                None => {
                    let allowed = "drop-edges, ignore-device, name-only-kernel, stale-handle, self-wait, no-host-restore or drop: \
                                   and the name of an entry point";
                    return Err(VariableError { variable: VARIABLE.to_owned(), value, allowed: allowed.to_owned() });
                }
            },
        }))
    }
}
