//! Which entry points have hooks.

use hrr_format::catalogue::{Api, Role, STRUCTS};

use crate::enumeration::Enumerated;
use crate::window::holders::HolderHook;

/// A hook of an entry point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    /// None.
    None,
    /// The call hands out addresses of entry points: the program gets those of the shims.
    EntryPoint,
    /// Memory is given out, pinned or given back, as the roles say.
    Memory,
    /// `__hipRegisterFatBinary`.
    FatBinary,
    /// A module or library is loaded from memory or from a file.
    Module,
    /// A file's code is added to a link.
    LinkedFile,
    /// Handles of all functions of a module, or kernels of a library, are had: `(handles*, count, module)`.
    Enumeration(Enumerated),
    /// `__hipRegisterFunction`.
    Symbol,
    /// A variable, texture or surface is registered.
    Variable,
    /// A function or kernel handle is had by module or library, and name.
    Function,
    /// A function handle is had from a symbol or another handle.
    Alias,
    /// A fat binary, module or library goes.
    Unload,
    /// A stream capture begins.
    BeginCapture,
    /// A stream capture ends.
    EndCapture,
    /// A stream is destroyed.
    DestroyStream,
    /// A device is reset: everything on it is gone.
    Reset,
    /// A context is made, becomes current or is taken away: the record says which device is current then.
    Context,
    /// Memory is mapped into a reserved address range.
    Map,
    /// Memory is taken out of a reserved address range.
    Unmap,
    /// The call hands out, or is given, a file descriptor or another operating-system handle of memory.
    Shared(SharedHook),
    /// A launch is put together call by call.
    Assembled(AssembledHook),
    /// Something happens to a graph.
    Graph(GraphHook),
    /// Something that holds contents comes or goes.
    Holder(HolderHook),
}

/// The three calls of which a launch is put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AssembledHook {
    /// `hipConfigureCall(grid, block, sharedMem, stream)`.
    Configure,
    /// `hipSetupArgument(arg, size, offset)`.
    Argument,
    /// `hipLaunchByPtr(func)`.
    Launch,
}

/// Where a call has the operating-system handle that it hands out or is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SharedHook {
    /// It stores one of the type in argument word 2 where argument word 0 points to.
    Export,
    /// Argument word 1 is one of the type in argument word 2, or points to it.
    Import,
    /// Argument word 1 points to a `hipExternalMemoryHandleDesc`.
    ImportExternal,
}

/// What happens to a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GraphHook {
    /// `hipGraphCreate(graph*, ...)`.
    Create,
    /// A node is added: `(node*, graph, ...)`.
    AddNode,
    /// `hipGraphAddChildGraphNode(node*, graph, dependencies, count, child)`.
    AddChild,
    /// `hipGraphClone(clone*, original)`.
    Clone,
    /// `hipGraphChildGraphNodeGetGraph(node, graph*)`.
    FindChild,
    /// `hipGraphNodeFindInClone(node*, original, clone)`.
    FindInClone,
    /// Nodes of a graph are listed: `(graph, nodes*, count*)`.
    ListNodes,
    /// Nodes of a node's graph are listed: `(node, nodes*, count*)`.
    ListNodesOf,
    /// `hipGraphGetEdges(graph, from*, to*, count*)`.
    ListEdges,
    /// `hipGraphExecChildGraphNodeSetParams(exec, node, child)`.
    SetExecChild,
    /// `hipGraphNodeSetEnabled(exec, node, enabled)`.
    Switch,
    /// A node records the event in this argument word.
    RecordsEvent(u8),
    /// `hipEventRecordWithFlags(event, stream, flags)`: in a capture it may add such a node.
    RecordEvent,
    /// An executable graph is made: `(exec*, graph, ...)`.
    Instantiate,
    /// `hipGraphExecUpdate(exec, graph, ...)`.
    Update,
    /// A node's parameters are set: `(node, ...)`.
    SetNode,
    /// An executable graph's node's parameters are set: `(exec, node, ...)`.
    SetExecNode,
    /// `hipGraphDestroyNode(node)`.
    DestroyNode,
    /// `hipGraphDestroy(graph)`.
    Destroy,
    /// `hipGraphExecDestroy(exec)`.
    DestroyExec,
    /// An executable graph is launched: `(exec, stream)`.
    Launch,
}

/// Hooks by name. Those on memory follow from the roles.
const BY_NAME: &[(&str, Hook)] = &[
    ("hipGetProcAddress", Hook::EntryPoint),
    ("hipGetProcAddress_spt", Hook::EntryPoint),
    ("hipGetDriverEntryPoint", Hook::EntryPoint),
    ("hipGetDriverEntryPoint_spt", Hook::EntryPoint),
    ("__hipRegisterFatBinary", Hook::FatBinary),
    ("__hipRegisterFunction", Hook::Symbol),
    ("__hipRegisterTexture", Hook::Variable),
    ("__hipRegisterSurface", Hook::Variable),
    ("__hipUnregisterFatBinary", Hook::Unload),
    ("hipModuleLoad", Hook::Module),
    ("hipModuleLoadData", Hook::Module),
    ("hipModuleLoadDataEx", Hook::Module),
    ("hipModuleLoadFatBinary", Hook::Module),
    ("hipLibraryLoadData", Hook::Module),
    ("hipLibraryLoadFromFile", Hook::Module),
    ("hipLinkAddFile", Hook::LinkedFile),
    ("hipModuleEnumerateFunctions", Hook::Enumeration(Enumerated::Functions)),
    ("hipLibraryEnumerateKernels", Hook::Enumeration(Enumerated::Kernels)),
    ("hipModuleUnload", Hook::Unload),
    ("hipLibraryUnload", Hook::Unload),
    ("hipModuleGetFunction", Hook::Function),
    ("hipLibraryGetKernel", Hook::Function),
    ("hipKernelGetFunction", Hook::Alias),
    ("hipGetFuncBySymbol", Hook::Alias),
    ("hipStreamBeginCapture", Hook::BeginCapture),
    ("hipStreamBeginCapture_spt", Hook::BeginCapture),
    ("hipStreamBeginCaptureToGraph", Hook::BeginCapture),
    ("hipStreamEndCapture", Hook::EndCapture),
    ("hipStreamEndCapture_spt", Hook::EndCapture),
    ("hipStreamDestroy", Hook::DestroyStream),
    ("hipMemMap", Hook::Map),
    ("hipMemUnmap", Hook::Unmap),
    ("hipDeviceReset", Hook::Reset),
    ("hipDevicePrimaryCtxReset", Hook::Reset),
    ("hipCtxCreate", Hook::Context),
    ("hipCtxDestroy", Hook::Context),
    ("hipCtxSetCurrent", Hook::Context),
    ("hipCtxPushCurrent", Hook::Context),
    ("hipCtxPopCurrent", Hook::Context),
    ("hipMemExportToShareableHandle", Hook::Shared(SharedHook::Export)),
    ("hipMemPoolExportToShareableHandle", Hook::Shared(SharedHook::Export)),
    ("hipMemImportFromShareableHandle", Hook::Shared(SharedHook::Import)),
    ("hipMemPoolImportFromShareableHandle", Hook::Shared(SharedHook::Import)),
    ("hipImportExternalMemory", Hook::Shared(SharedHook::ImportExternal)),
    ("hipConfigureCall", Hook::Assembled(AssembledHook::Configure)),
    ("hipSetupArgument", Hook::Assembled(AssembledHook::Argument)),
    ("hipLaunchByPtr", Hook::Assembled(AssembledHook::Launch)),
    ("hipGraphCreate", Hook::Graph(GraphHook::Create)),
    ("hipGraphAddMemcpyNode", Hook::Graph(GraphHook::AddNode)),
    ("hipGraphAddMemcpyNode1D", Hook::Graph(GraphHook::AddNode)),
    ("hipGraphAddMemcpyNodeFromSymbol", Hook::Graph(GraphHook::AddNode)),
    ("hipGraphAddMemcpyNodeToSymbol", Hook::Graph(GraphHook::AddNode)),
    ("hipGraphAddKernelNode", Hook::Graph(GraphHook::AddNode)),
    ("hipGraphAddMemsetNode", Hook::Graph(GraphHook::AddNode)),
    ("hipDrvGraphAddMemsetNode", Hook::Graph(GraphHook::AddNode)),
    ("hipGraphAddNode", Hook::Graph(GraphHook::AddNode)),
    ("hipDrvGraphAddMemcpyNode", Hook::Graph(GraphHook::AddNode)),
    ("hipGraphAddChildGraphNode", Hook::Graph(GraphHook::AddChild)),
    ("hipGraphClone", Hook::Graph(GraphHook::Clone)),
    ("hipGraphChildGraphNodeGetGraph", Hook::Graph(GraphHook::FindChild)),
    ("hipGraphNodeFindInClone", Hook::Graph(GraphHook::FindInClone)),
    ("hipGraphGetNodes", Hook::Graph(GraphHook::ListNodes)),
    ("hipGraphGetRootNodes", Hook::Graph(GraphHook::ListNodes)),
    ("hipGraphNodeGetDependencies", Hook::Graph(GraphHook::ListNodesOf)),
    ("hipGraphNodeGetDependentNodes", Hook::Graph(GraphHook::ListNodesOf)),
    ("hipGraphGetEdges", Hook::Graph(GraphHook::ListEdges)),
    ("hipGraphExecChildGraphNodeSetParams", Hook::Graph(GraphHook::SetExecChild)),
    ("hipGraphNodeSetEnabled", Hook::Graph(GraphHook::Switch)),
    ("hipGraphAddEventRecordNode", Hook::Graph(GraphHook::RecordsEvent(4))),
    ("hipGraphEventRecordNodeSetEvent", Hook::Graph(GraphHook::RecordsEvent(1))),
    ("hipGraphExecEventRecordNodeSetEvent", Hook::Graph(GraphHook::RecordsEvent(2))),
    ("hipEventRecordWithFlags", Hook::Graph(GraphHook::RecordEvent)),
    ("hipGraphAddBatchMemOpNode", Hook::Graph(GraphHook::AddNode)),
    ("hipGraphBatchMemOpNodeSetParams", Hook::Graph(GraphHook::SetNode)),
    ("hipGraphExecBatchMemOpNodeSetParams", Hook::Graph(GraphHook::SetExecNode)),
    ("hipGraphInstantiate", Hook::Graph(GraphHook::Instantiate)),
    ("hipGraphInstantiateWithFlags", Hook::Graph(GraphHook::Instantiate)),
    ("hipGraphInstantiateWithParams", Hook::Graph(GraphHook::Instantiate)),
    ("hipGraphExecUpdate", Hook::Graph(GraphHook::Update)),
    ("hipGraphMemcpyNodeSetParams", Hook::Graph(GraphHook::SetNode)),
    ("hipGraphMemcpyNodeSetParams1D", Hook::Graph(GraphHook::SetNode)),
    ("hipGraphMemcpyNodeSetParamsFromSymbol", Hook::Graph(GraphHook::SetNode)),
    ("hipGraphMemcpyNodeSetParamsToSymbol", Hook::Graph(GraphHook::SetNode)),
    ("hipGraphKernelNodeSetParams", Hook::Graph(GraphHook::SetNode)),
    ("hipGraphMemsetNodeSetParams", Hook::Graph(GraphHook::SetNode)),
    ("hipGraphNodeSetParams", Hook::Graph(GraphHook::SetNode)),
    ("hipDrvGraphMemcpyNodeSetParams", Hook::Graph(GraphHook::SetNode)),
    ("hipGraphExecMemcpyNodeSetParams", Hook::Graph(GraphHook::SetExecNode)),
    ("hipGraphExecMemcpyNodeSetParams1D", Hook::Graph(GraphHook::SetExecNode)),
    ("hipGraphExecMemcpyNodeSetParamsFromSymbol", Hook::Graph(GraphHook::SetExecNode)),
    ("hipGraphExecMemcpyNodeSetParamsToSymbol", Hook::Graph(GraphHook::SetExecNode)),
    ("hipGraphExecKernelNodeSetParams", Hook::Graph(GraphHook::SetExecNode)),
    ("hipGraphExecMemsetNodeSetParams", Hook::Graph(GraphHook::SetExecNode)),
    ("hipDrvGraphExecMemsetNodeSetParams", Hook::Graph(GraphHook::SetExecNode)),
    ("hipGraphExecNodeSetParams", Hook::Graph(GraphHook::SetExecNode)),
    ("hipDrvGraphExecMemcpyNodeSetParams", Hook::Graph(GraphHook::SetExecNode)),
    ("hipGraphDestroyNode", Hook::Graph(GraphHook::DestroyNode)),
    ("hipGraphDestroy", Hook::Graph(GraphHook::Destroy)),
    ("hipGraphExecDestroy", Hook::Graph(GraphHook::DestroyExec)),
    ("hipGraphLaunch", Hook::Graph(GraphHook::Launch)),
    ("hipGraphLaunch_spt", Hook::Graph(GraphHook::Launch)),
];

impl Hook {
    /// The hook of an entry point.
    pub(crate) fn of(api: &Api) -> Self {
        if let Some((_, hook)) = BY_NAME.iter().find(|(name, _)| *name == api.name) {
            return *hook;
        }
        let changes_memory = |role: &Role| match role {
            Role::NewDevice(_)
            | Role::NewPitched(_)
            | Role::NewHost(_)
            | Role::NewManaged(_)
            | Role::NewRange(_)
            | Role::GetDevice(_)
            | Role::Pin(_)
            | Role::Unpin
            | Role::FreeDevice
            | Role::FreeHost
            | Role::FreeRange => true,
            Role::Struct(layout, _) => {
                STRUCTS[usize::from(*layout)].fields.iter().any(|field| matches!(field.role, Role::NewDevice(_)))
            }
            _ => false,
        };
        if api.param_with(changes_memory).is_some() {
            return Hook::Memory;
        }
        HolderHook::of(api).map_or(Hook::None, Hook::Holder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hook_by_name_is_of_an_entry_point() {
        for (name, hook) in BY_NAME {
            let api = Api::by_name(name).unwrap_or_else(|| panic!("{name} is no entry point"));
            assert_eq!(Hook::of(api), *hook);
        }
    }

    #[test]
    fn memory_hooks_follow_from_the_roles() {
        let hook = |name| Hook::of(Api::by_name(name).unwrap());
        for name in ["hipMalloc", "hipFree", "hipHostRegister", "hipHostFree", "hipGraphAddMemAllocNode", "hipMalloc3D"]
        {
            assert_eq!(hook(name), Hook::Memory, "{name}");
        }
        assert_eq!(hook("hipMemcpy"), Hook::None);
    }
}
