//! `--shape-only`: the calls of an archive without what it withholds.
//!
//! Memory is allocated, copied and freed, streams and events are made, recorded and waited for as at capture; copies move bytes
//! that mean nothing. What needs recorded code is left out, counted and named: loading it, finding what is in it, launching it.
//! So is what uses a handle or an address that such a call would have made. A kernel's node in a graph becomes an empty node,
//! so that the order of the others stays. Waits for values in memory are left out: a kernel might have written them.
//!
//! Archives with contents are treated alike, so that the shape of one is the shape of the other.

use std::collections::BTreeMap;

use hrr_format::catalogue::{Api, HandleKind, Role, STRUCTS};
use hrr_format::record::{BlobRef, SectionTag};

use rustc_hash::FxHashSet;

use super::Planner;
use super::error::Refusal;
use super::lower::special::Special;
use super::lower::{Call, integer, out_bytes, word_at};
use super::objects::{Definition, Handle};
use crate::choices::Synthetic;
use crate::memory::stage::{HostKind, Shape, StageError};

/// `hipGraphNodeTypeKernel`, the first field of `hipGraphNodeParams`.
const NODE_KIND_KERNEL: u64 = 0;
/// The parameter of `hipGraphAddNode` that says what the node is.
const NODE_PARAMS: u8 = 4;

/// Memory budgets that one made-up source may take: all of the machine's memory, by default.
const BUDGETS_A_SOURCE: u64 = 4;

/// What a replay by shape leaves out, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum LeftOut {
    /// It launches a kernel.
    Launch,
    /// It loads code, or is about what was loaded.
    Code,
    /// It uses what such a call would have made.
    Dependent,
    /// It waits for a value that a kernel might have written.
    Wait,
    /// It lists the nodes of a graph, where there may be others.
    Nodes,
    /// It needs an argument that was withheld.
    Withheld,
}

impl LeftOut {
    /// What to tell people.
    pub fn as_str(self) -> &'static str {
        match self {
            LeftOut::Launch => "launches a kernel",
            LeftOut::Code => "needs recorded code",
            LeftOut::Dependent => "is about what a call that is left out would have made",
            LeftOut::Wait => "waits for a value that a kernel might have written",
            LeftOut::Nodes => "lists the nodes of a graph, which has others without its kernels",
            LeftOut::Withheld => "needs an argument that the archive withholds",
        }
    }
}

/// What a replay by shape did otherwise.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShapeLosses {
    /// Calls left out, by reason and entry point.
    pub(crate) left_out: BTreeMap<(LeftOut, &'static str), u64>,
    /// Kernel nodes of graphs that became empty nodes.
    pub(crate) empty_nodes: u64,
    /// Device addresses that calls left out would have told, with the bytes behind each.
    addresses: BTreeMap<u64, u64>,
    /// Objects that are not as they were: empty nodes, and events that only a launch recorded.
    pub(crate) objects: FxHashSet<u32>,
}

impl ShapeLosses {
    /// Whether an address is of memory that a call left out would have told of.
    fn is_lost(&self, address: u64) -> bool {
        let before = self.addresses.range(..=address).next_back();
        before.is_some_and(|(base, len_bytes)| address - base < *len_bytes)
    }
}

/// Whether handles of a kind are recorded code, or found in it.
fn is_code(kind: HandleKind) -> bool {
    matches!(
        kind,
        HandleKind::Module
            | HandleKind::Function
            | HandleKind::Library
            | HandleKind::Kernel
            | HandleKind::Link
            | HandleKind::FatBinary
            | HandleKind::TexRef
    )
}

/// Whether a parameter, or a field of the struct that it points to, is about recorded code.
fn needs_code(role: &Role) -> bool {
    match *role {
        Role::KernelSymbol | Role::VarSymbol | Role::Image | Role::KernelParams | Role::Extra => true,
        Role::Use(kind) | Role::Create(kind) | Role::Get(kind) | Role::Destroy(kind) => is_code(kind),
        Role::UseArray(kind, _) | Role::GetArray(kind, _) => is_code(kind),
        Role::Struct(layout, _) => {
            STRUCTS[usize::from(layout)].fields.iter().any(|field| field.when.is_none() && needs_code(&field.role))
        }
        _ => false,
    }
}

/// Why a replay by shape leaves out a call, before anything is known of what it uses.
pub(crate) fn left_out(api: &Api, special: Special) -> Option<LeftOut> {
    let is_launch = |param: &hrr_format::catalogue::Param| matches!(param.role, Role::KernelParams | Role::Extra);
    if api.params.iter().any(is_launch)
        || matches!(special, Special::ConfigureCall | Special::SetupArgument | Special::LaunchByPtr)
        || api.name.contains("LaunchKernel")
        || api.name.contains("LaunchCooperativeKernel")
    {
        return Some(LeftOut::Launch);
    }
    if api.params.iter().any(|param| needs_code(&param.role)) || api.name.contains("KernelNode") {
        return Some(LeftOut::Code);
    }
    let lists =
        |role: &Role| matches!(role, Role::GetArray(HandleKind::Node, _) | Role::GetArrayAt(HandleKind::Node, ..));
    if api.params.iter().any(|param| lists(&param.role)) {
        return Some(LeftOut::Nodes);
    }
    (api.name.starts_with("hipStreamWaitValue") || api.name.contains("BatchMemOp")).then_some(LeftOut::Wait)
}

/// Contents in host memory, and where handles of texture and surface objects lie in them.
pub(crate) struct WithImages {
    pub(crate) place: *mut u8,
    pub(crate) images: Vec<(usize, Handle)>,
}

impl Planner<'_> {
    /// Whether the replay is one by shape.
    pub(crate) fn is_shape_only(&self) -> bool {
        self.choices.synthetic.is_some()
    }

    /// The entry point that makes an empty node where a call makes a kernel's that is not to run: in a replay by shape, and
    /// where `--kernel-filter` leaves the kernel out.
    pub(crate) fn empty_node_for(&mut self, call: &Call<'_>) -> Result<Option<&'static Api>, Refusal> {
        let Call { api, record, .. } = call;
        let is_kernel_node = match api.name {
            "hipGraphAddKernelNode" => true,
            "hipGraphAddNode" => record
                .section(SectionTag::In, NODE_PARAMS)
                .and_then(|section| integer(section.payload, 0, 4))
                .is_some_and(|kind| kind == NODE_KIND_KERNEL),
            _ => false,
        };
        if is_kernel_node && self.is_shape_only() {
            self.planned.shape.empty_nodes += 1;
        } else if is_kernel_node && self.is_filtered_node(call)? {
            self.planned.filtered += 1;
        } else {
            return Ok(None);
        }
        // The first parameters of all of them are the same: the new node, the graph, and what comes before.
        Ok(Api::by_name("hipGraphAddEmptyNode"))
    }

    /// Whether a replay by shape leaves a call out. If so, it is counted.
    pub(crate) fn leave_out_of_shape(&mut self, call: &Call<'_>) -> bool {
        if !self.is_shape_only() {
            return false;
        }
        let special = self.specials[usize::from(call.api.id)];
        let reason = left_out(call.api, special).or_else(|| self.is_about_lost(call).then_some(LeftOut::Dependent));
        match reason {
            Some(reason) => self.count_left_out(call, reason),
            // From here on it is as recorded.
            None if special == Special::EventRecord => {
                let event = self.used(call, HandleKind::Event).next();
                if let Some(object) = event {
                    self.planned.shape.objects.remove(&object);
                }
            }
            None => {}
        }
        reason.is_some()
    }

    /// Objects of a kind that a call uses.
    pub(crate) fn used(&self, call: &Call<'_>, kind: HandleKind) -> impl Iterator<Item = u32> {
        call.api.params.iter().filter_map(move |param| match param.role {
            Role::Use(used) if used == kind => {
                self.objects.handle(kind, call.record.word(usize::from(param.word))).map(|handle| handle.object)
            }
            _ => None,
        })
    }

    /// Whether a call asks of an empty node what only the kernel's can do, or of an event when a launch took place.
    pub(crate) fn is_about_lost(&self, call: &Call<'_>) -> bool {
        let kind = match call.api.name {
            "hipGraphNodeSetEnabled" | "hipGraphNodeGetEnabled" => HandleKind::Node,
            "hipEventElapsedTime" => HandleKind::Event,
            _ => return false,
        };
        self.used(call, kind).any(|object| self.planned.shape.objects.contains(&object))
    }

    /// Takes in that a kernel's node was made as an empty one.
    pub(crate) fn note_empty_node(&mut self, definitions: &[Definition]) {
        let objects = definitions.iter().filter_map(|definition| match definition {
            Definition::Handle { handle, .. } => Some(handle.object),
            _ => None,
        });
        self.planned.shape.objects.extend(objects);
    }

    /// Whether what keeps a call from being issued is only that something was left out before it. If so, it is counted.
    pub(crate) fn depends_on_left_out(&mut self, call: &Call<'_>, refusal: &Refusal) -> bool {
        let reason = match refusal {
            _ if !self.is_shape_only() => None,
            // A replay by shape that has left out nothing has nothing to excuse.
            Refusal::Handle { .. } | Refusal::Address { .. } | Refusal::Symbol { .. } => {
                (!self.planned.shape.left_out.is_empty()).then_some(LeftOut::Dependent)
            }
            Refusal::Withheld { .. } => Some(LeftOut::Withheld),
            _ => None,
        };
        if let Some(reason) = reason {
            self.count_left_out(call, reason);
        }
        reason.is_some()
    }

    fn count_left_out(&mut self, call: &Call<'_>, reason: LeftOut) {
        *self.planned.shape.left_out.entry((reason, call.api.name)).or_default() += 1;
        if !call.succeeded() {
            return;
        }
        if reason == LeftOut::Launch {
            // A launch records the events it is given.
            let events: Vec<u32> = self.used(call, HandleKind::Event).collect();
            self.planned.shape.objects.extend(events);
        }
        for (number, param) in call.api.params.iter().enumerate() {
            if let Role::Create(kind) = param.role {
                // What had the handle before is not what later calls mean.
                let value = out_bytes(&call.record, number as u8).map_or(0, |bytes| word_at(bytes, 0));
                self.objects.retire(kind, value);
            }
            let Role::GetDevice(size) = param.role else { continue };
            let address = out_bytes(&call.record, number as u8).map_or(0, |bytes| word_at(bytes, 0));
            if address != 0 {
                let len_bytes = self.size_of(call, size).unwrap_or(1).max(1);
                self.planned.shape.addresses.insert(address, len_bytes);
            }
        }
    }

    /// Refuses an address that a call left out would have told of; others may be the host's.
    pub(crate) fn check_not_lost(&self, address: u64, param: &'static str) -> Result<(), Refusal> {
        if self.planned.shape.is_lost(address) { Err(Refusal::Address { address, param }) } else { Ok(()) }
    }

    fn made_up(&mut self, kind: HostKind, synthetic: Synthetic, shape: Shape) -> Result<*mut u8, Refusal> {
        // Recorded contents are as long as the archive's files are; a length alone could be anything.
        let bytes = shape.span_bytes().unwrap_or(u64::MAX);
        if bytes > self.budget_bytes.saturating_mul(BUDGETS_A_SOURCE) {
            return Err(StageError::TooLarge { bytes }.into());
        }
        Ok(self.host.synthetic_source(kind, synthetic, shape)?)
    }

    /// A place that holds what a graph reads from the host: its recorded contents, or bytes that stand for them.
    pub(crate) fn graph_source(&mut self, call: &Call<'_>, blob: BlobRef) -> Result<WithImages, Refusal> {
        if let Some(synthetic) = self.choices.synthetic {
            let place = self.made_up(HostKind::Pageable, synthetic, Shape::linear(blob.size_bytes))?;
            return Ok(WithImages { place, images: Vec::new() });
        }
        let images = self.scan_upload(call.event, call.api.name, blob.number);
        self.source_with_images(blob, images)
    }

    /// A place that holds packed contents in which these handles of images lie: of its own if there are any, since they are
    /// translated there.
    pub(super) fn source_with_images(
        &mut self,
        blob: BlobRef,
        images: Vec<(u64, Handle)>,
    ) -> Result<WithImages, Refusal> {
        let (kind, shape) = (HostKind::Pageable, Shape::linear(blob.size_bytes));
        let place = match images.is_empty() {
            true => self.host.source(self.archive, kind, blob.number, shape)?,
            false => self.host.own_source(kind, blob.number, shape)?,
        };
        let images = images.into_iter().map(|(at, handle)| (place as usize + at as usize, handle)).collect();
        Ok(WithImages { place, images })
    }

    /// A place that holds what a copy reads: its recorded contents, or bytes that stand for them.
    pub(crate) fn copy_source(
        &mut self,
        call: &Call<'_>,
        kind: HostKind,
        blob: u64,
        shape: Shape,
    ) -> Result<*mut u8, Refusal> {
        if let Some(synthetic) = self.choices.synthetic {
            // Without contents nothing says that the memory was there; a copy that failed may name any number of bytes.
            if !call.succeeded() {
                return Err(Refusal::NotReissued);
            }
            return self.made_up(kind, synthetic, shape);
        }
        let images = self.scan_upload(call.event, call.api.name, blob);
        if images.is_empty() {
            return Ok(self.host.source(self.archive, kind, blob, shape)?);
        }
        // A place of its own: the handles in it are this call's.
        let source = self.host.own_source(kind, blob, shape)?;
        for (at, handle) in images {
            if let Some(offset) = shape.offset_of(at) {
                self.uploaded_images.push((source as usize + offset as usize, handle));
            }
        }
        Ok(source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(name: &str) -> Option<LeftOut> {
        let api = Api::by_name(name).unwrap();
        left_out(api, Special::of(api))
    }

    #[test]
    fn what_needs_code_is_left_out_and_nothing_else() {
        for name in [
            "hipLaunchKernel",
            "hipLaunchKernelExC",
            "hipModuleLaunchKernel",
            "hipModuleLaunchCooperativeKernelMultiDevice",
            "hipExtLaunchKernel",
            "hipLaunchByPtr",
            "hipSetupArgument",
        ] {
            assert_eq!(reason(name), Some(LeftOut::Launch), "{name}");
        }
        for name in [
            "hipModuleLoadData",
            "__hipRegisterFatBinary",
            "__hipRegisterFunction",
            "__hipRegisterVar",
            "hipModuleGetGlobal",
            "hipGetSymbolAddress",
            "hipMemcpyToSymbol",
            "hipFuncGetAttributes",
            "hipGraphKernelNodeSetParams",
            "hipLibraryUnload",
            "hipLinkAddData",
        ] {
            assert_eq!(reason(name), Some(LeftOut::Code), "{name}");
        }
        assert_eq!(reason("hipStreamWaitValue32"), Some(LeftOut::Wait));
        assert_eq!(reason("hipGraphGetNodes"), Some(LeftOut::Nodes));
        // They are the nodes of launches that were captured, too.
        assert_eq!(reason("hipStreamGetCaptureInfo_v2"), Some(LeftOut::Nodes));
        for name in [
            "hipMalloc",
            "hipMemcpy",
            "hipMemcpy3DAsync",
            "hipMemsetAsync",
            "hipStreamCreate",
            "hipEventRecord",
            "hipGraphLaunch",
            "hipGraphAddMemcpyNode",
            "hipStreamSynchronize",
            "hipLaunchHostFunc",
            "hipStreamWriteValue32",
        ] {
            assert_eq!(reason(name), None, "{name}");
        }
    }
}
