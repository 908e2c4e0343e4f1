//! What else happens at the entry and return of some calls, beside recording them.

use hrr_format::catalogue::Api;

/// A hook of an entry point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    /// None.
    None,
    /// The call hands out addresses of entry points: the program gets those of the shims.
    EntryPoint,
}

impl Hook {
    /// The hook of an entry point.
    pub(crate) fn of(api: &Api) -> Self {
        match api.name {
            "hipGetProcAddress" | "hipGetProcAddress_spt" | "hipGetDriverEntryPoint" | "hipGetDriverEntryPoint_spt" => {
                Hook::EntryPoint
            }
            _ => Hook::None,
        }
    }
}
