//! Which calls outside a window matter to one that is opened later, and how.

use std::hash::{DefaultHasher, Hasher};

use hrr_format::catalogue::{Api, Effect, HandleKind, Policy, Role, STRUCTS};
use hrr_format::record::{Record, SectionTag};

use super::objects::Key;

/// What becomes of a call outside a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Nothing: it leaves no trace but in memory. If its stream is being captured, it is kept all the same.
    Nothing,
    /// It is kept: it creates, changes or ends something.
    State,
}

/// Parts of the names of calls that change something without creating or ending it.
const CHANGES: &[&str] = &[
    "Set",
    "AddDependencies",
    "RemoveDependencies",
    "RetainUserObject",
    "ReleaseUserObject",
    "UserObjectRetain",
    "UserObjectRelease",
    "hipGraphExecUpdate",
    "EnablePeerAccess",
    "hipIpcGet",
    "GetDevResource",
    "SmResourceSplit",
    "hipMemExport",
    "hipMemPoolExport",
    "DisablePeerAccess",
    "PrimaryCtxRelease",
    "Advise",
    "hipMemMap",
    "hipMemUnmap",
    "CopyAttributes",
    "hipLinkAdd",
    "hipLinkComplete",
    "hipEventRecord",
    "hipInit",
    "hipStreamBeginCapture",
    "hipStreamUpdateCaptureDependencies",
];

/// State of a thread, not of the process: windows ask for the device of each thread instead.
const OF_A_THREAD: &[&str] =
    &["hipSetDevice", "hipCtxSetCurrent", "hipCtxPushCurrent", "hipCtxPopCurrent", "hipSetupArgument"];

/// Handle kinds that may stand in structs and arrays.
pub(super) const KINDS: &[HandleKind] = &[
    HandleKind::Stream,
    HandleKind::Event,
    HandleKind::Function,
    HandleKind::Kernel,
    HandleKind::Graph,
    HandleKind::Node,
    HandleKind::Exec,
    HandleKind::Array,
    HandleKind::Mipmap,
    HandleKind::Pool,
    HandleKind::Ctx,
    HandleKind::MemHandle,
    HandleKind::ExternalMemory,
];

impl Keep {
    /// What becomes of the calls of an entry point.
    pub(crate) fn of(api: &Api) -> Self {
        if matches!(api.policy, Policy::Skip(_)) || OF_A_THREAD.contains(&api.name) {
            return Keep::Nothing;
        }
        let changes = CHANGES.iter().any(|part| api.name.contains(part))
            && (api.effect == Effect::Host || is_exception(api.name));
        if makes(api) || ends(api) || resets(api) || changes { Keep::State } else { Keep::Nothing }
    }
}

/// Calls that change something though they enqueue work or wait for the device.
fn is_exception(name: &str) -> bool {
    name.starts_with("hipEventRecord") || name == "hipMemUnmap"
}

/// Whether the calling thread's device may be another one after a call.
pub(crate) fn moves_thread(api: &Api) -> bool {
    ["hipSetDevice", "hipSetValidDevices", "hipCtx", "hipDeviceReset", "hipDevicePrimaryCtx"]
        .iter()
        .any(|prefix| api.name.starts_with(prefix))
}

fn makes(api: &Api) -> bool {
    api.name.starts_with("__hipRegister")
        || api.params.iter().any(|param| match param.role {
            // Pinned memory is the program's own, but a device's address of it is made.
            Role::Pin(_) => true,
            Role::Struct(layout, _) => {
                STRUCTS[usize::from(layout)].fields.iter().any(|field| matches!(field.role, Role::NewDevice(_)))
            }
            role => role.makes(),
        })
}

/// Whether a call ends something.
pub(super) fn ends(api: &Api) -> bool {
    api.name == "hipMemUnmap"
        || api.params.iter().any(|param| {
            matches!(param.role, Role::Destroy(_) | Role::FreeDevice | Role::FreeHost | Role::Unpin | Role::FreeRange)
        })
}

/// Whether a call ends everything on its device.
pub(super) fn resets(api: &Api) -> bool {
    matches!(api.name, "hipDeviceReset" | "hipDevicePrimaryCtxReset")
}

/// The device that such a call resets, by its first argument word and the thread's device.
pub(crate) fn reset_device(api: &Api, first_word: u64, current: i32) -> i32 {
    if api.name == "hipDevicePrimaryCtxReset" { first_word as u32 as i32 } else { current }
}

/// Whether a device reset leaves what a call made: what was registered before `main`.
pub(super) fn outlives_reset(api: &Api) -> bool {
    api.name.starts_with("__hipRegister")
}

/// Whether what is made is a part of what the call works on, so that making it changes that.
pub(super) fn makes_part(api: &Api) -> bool {
    api.params.iter().any(|param| param.role == Role::Create(HandleKind::Node))
}

/// Whether something goes when the first object that its making used does.
pub(super) fn goes_with_first_use(key: Key) -> bool {
    match key {
        Key::Symbol(_) | Key::Variable(_) => true,
        Key::Handle(kind, _) => {
            matches!(kind, HandleKind::Function | HandleKind::Kernel | HandleKind::Node | HandleKind::TexRef)
        }
        Key::Capture(_) => false,
    }
}

/// Position, among what a call uses, of the object that what it makes is a part of.
pub(super) fn whole_of_parts(api: &Api) -> usize {
    // Of the node and the clone, the node that is found belongs to the clone.
    usize::from(api.name == "hipGraphNodeFindInClone")
}

/// What a call sets, so that setting it again takes the place of the call before.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Setting {
    api: u16,
    /// The thread's device, for what names no object that it would be a setting of.
    device: i32,
    words: Vec<u64>,
    /// Hash of everything else that the call was given, where two such calls are the same only if they are equal.
    payload: u64,
}

impl Setting {
    /// What a call sets; `None` for calls that count, each of which matters.
    pub(super) fn of(api: &Api, device: i32, record: &Record<'_>) -> Option<Self> {
        if ["Retain", "Release", "Link", "Dependencies", "DevResource", "SmResource"]
            .iter()
            .any(|part| api.name.contains(part))
        {
            return None;
        }
        if api.name.contains("PeerAccess") {
            return Some(Self::peer(api, device, record));
        }
        let replaces_all = ["Params", "SetEvent", "SetEnabled", "hipGraphExecUpdate", "hipEventRecord"];
        let by_number = ["Attribute", "Limit"];
        let names = |role: &Role| matches!(role, Role::Use(_) | Role::KernelSymbol | Role::Ordinal);
        let uses = api.params.iter().take_while(|param| names(&param.role)).count();
        let device = if api.params.iter().any(|param| matches!(param.role, Role::Use(_))) { -1 } else { device };
        let first = match api.name {
            name if name.contains("hipGraphExecUpdate") || name.contains("hipEventRecord") => 1,
            name if replaces_all.iter().any(|part| name.contains(part)) => uses,
            name if by_number.iter().any(|part| name.contains(part)) && (uses > 0 || name == "hipDeviceSetLimit") => {
                uses + 1
            }
            _ => {
                let mut hasher = DefaultHasher::new();
                for section in record.sections().map_while(Result::ok) {
                    if matches!(section.tag, SectionTag::In | SectionTag::Text) {
                        hasher.write(section.payload);
                    }
                }
                let values = api.params.iter().filter(|param| !is_address_of_payload(&param.role));
                let words = values.map(|param| record.word(usize::from(param.word))).collect();
                return Some(Setting { api: api.id, device, words, payload: hasher.finish() });
            }
        };
        let words = api.params.iter().take(first).map(|param| record.word(usize::from(param.word))).collect();
        Some(Setting { api: api.id, device, words, payload: 0 })
    }

    /// Access of the thread's device, or its context, to a peer.
    fn peer(api: &Api, device: i32, record: &Record<'_>) -> Self {
        Setting { api: api.id, device, words: vec![record.word(0)], payload: 0 }
    }

    /// The setting that a call takes back: neither it nor the call that made it matters any more.
    pub(super) fn taken_back(api: &Api, device: i32, record: &Record<'_>) -> Option<Self> {
        let made_by = match api.name {
            "hipDeviceDisablePeerAccess" => "hipDeviceEnablePeerAccess",
            "hipCtxDisablePeerAccess" => "hipCtxEnablePeerAccess",
            _ => return None,
        };
        Some(Self::peer(Api::by_name(made_by)?, device, record))
    }
}

/// Whether a reset of its device undoes what a call set.
pub(super) fn undone_by_reset(api: &Api) -> bool {
    ["hipDeviceEnablePeerAccess", "hipDeviceDisablePeerAccess", "hipDeviceSet", "hipSetDeviceFlags"]
        .iter()
        .any(|prefix| api.name.starts_with(prefix))
}

fn is_address_of_payload(role: &Role) -> bool {
    matches!(role, Role::In(_) | Role::InOut(_) | Role::Out(_) | Role::Struct(..) | Role::UseArray(..) | Role::CString)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hrr_format::catalogue::APIS;

    fn keep(name: &str) -> Keep {
        Keep::of(Api::by_name(name).unwrap_or_else(|| panic!("{name} is no entry point")))
    }

    #[test]
    fn state_is_kept_and_work_is_not() {
        for name in [
            "hipMalloc",
            "hipFree",
            "hipMallocAsync",
            "hipHostRegister",
            "hipStreamCreate",
            "hipEventRecord",
            "hipMemMap",
            "hipMemUnmap",
            "hipMemSetAccess",
            "hipModuleGetFunction",
            "__hipRegisterFunction",
            "hipGraphExecUpdate",
            "hipGraphKernelNodeSetParams",
            "hipStreamBeginCapture",
            "hipStreamEndCapture",
            "hipDeviceReset",
            "hipFuncSetAttribute",
            "hipMemPoolSetAttribute",
            "hipDeviceSetLimit",
            "hipMemAdvise",
            "hipGraphAddMemAllocNode",
            "hipDeviceEnablePeerAccess",
            "hipStreamSetAttribute",
            "hipCreateTextureObject",
            "hipMallocArray",
        ] {
            assert_eq!(keep(name), Keep::State, "{name}");
        }
        for name in [
            "hipLaunchKernel",
            "hipMemcpyAsync",
            "hipMemset",
            "hipMemsetAsync",
            "hipStreamSynchronize",
            "hipEventQuery",
            "hipGetDevice",
            "hipSetDevice",
            "hipGraphLaunch",
            "hipStreamWaitEvent",
            "hipGetLastError",
            "hipGetProcAddress",
        ] {
            assert_eq!(keep(name), Keep::Nothing, "{name}");
        }
    }

    #[test]
    fn nothing_that_enqueues_kernels_or_copies_is_state() {
        for api in APIS.iter().filter(|api| Keep::of(api) == Keep::State) {
            let launches = api.param_with(|role| matches!(role, Role::KernelParams | Role::Extra)).is_some();
            assert!(!launches, "{}", api.name);
        }
    }
}
