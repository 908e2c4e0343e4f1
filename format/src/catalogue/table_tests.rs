//! Checks of the hand-written table: what a row says must fit the C prototype it is about.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use super::*;

/// The type a pointer parameter points to, without qualifiers; `None` where the type is no pointer.
fn pointee(ctype: &str) -> Option<&str> {
    Some(bare(bare(ctype).strip_suffix('*')?))
}

/// A C type without its leading qualifiers and elaborations.
fn bare(ctype: &str) -> &str {
    let mut rest = ctype.trim();
    while let Some(shorter) = ["const ", "struct ", "enum "].iter().find_map(|word| rest.strip_prefix(word)) {
        rest = shorter.trim();
    }
    rest
}

/// Which C types name a handle of each kind, when a call takes it by value.
fn handle_types(kind: HandleKind) -> &'static [&'static str] {
    match kind {
        HandleKind::Stream => &["hipStream_t"],
        HandleKind::Event => &["hipEvent_t"],
        HandleKind::Module => &["hipModule_t"],
        HandleKind::Function => &["hipFunction_t"],
        HandleKind::Graph => &["hipGraph_t"],
        HandleKind::Node => &["hipGraphNode_t"],
        HandleKind::Exec => &["hipGraphExec_t"],
        HandleKind::Array => &["hipArray_t", "hipArray_const_t"],
        HandleKind::Mipmap => &["hipMipmappedArray_t", "hipMipmappedArray_const_t", "hipMipmappedArray*"],
        HandleKind::Pool => &["hipMemPool_t"],
        HandleKind::Ctx => &["hipCtx_t"],
        HandleKind::Library => &["hipLibrary_t"],
        HandleKind::Kernel => &["hipKernel_t"],
        HandleKind::Link => &["hipLinkState_t"],
        HandleKind::Texture => &["hipTextureObject_t"],
        HandleKind::Surface => &["hipSurfaceObject_t"],
        HandleKind::TexRef => &["textureReference*"],
        HandleKind::MemHandle => &["hipMemGenericAllocationHandle_t"],
        HandleKind::UserObject => &["hipUserObject_t"],
        HandleKind::FatBinary => &["void**", "void*"],
        HandleKind::ExternalMemory => &["hipExternalMemory_t"],
        HandleKind::ExternalSemaphore => &["hipExternalSemaphore_t"],
        HandleKind::GraphicsResource => &["hipGraphicsResource_t", "hipGraphicsResource*"],
        HandleKind::ExecutionCtx => &["hipExecutionCtx_t"],
        HandleKind::ResourceDesc => &["hipDevResourceDesc_t"],
    }
}

/// Sizes of the C types that `in`, `out` and `inout` parameters point to, in bytes, on x86-64.
fn c_size(ctype: &str) -> Option<u32> {
    Some(match ctype {
        "int" | "unsigned int" | "uint32_t" | "float" | "hipDevice_t" => 4,
        "size_t" | "unsigned long long" | "hipDeviceptr_t" => 8,
        pointer if pointer.ends_with('*') => 8,
        "hipSharedMemConfig" | "hipFuncCache_t" | "hipStreamCaptureStatus" | "hipStreamCaptureMode" => 4,
        "hipGraphNodeType" | "hipGraphExecUpdateResult" | "hipPointer_attribute" | "hipMemRangeAttribute" => 4,
        "hipTextureAddressMode" | "hipTextureFilterMode" | "hipArray_Format" | "hipMemAccessFlags" => 4,
        "hipDriverProcAddressQueryResult" | "hipDriverEntryPointQueryResult" | "hipJitOption" | "hipLibraryOption" => 4,
        "hipGraphEdgeData" => 8,
        "dim3" => 12,
        "hipUUID" | "hipArrayMemoryRequirements" => 16,
        "hipChannelFormatDesc" => 20,
        "hipExtent" | "HIP_ARRAY_DESCRIPTOR" => 24,
        "hipExternalSemaphoreSignalNodeParams" | "hipExternalSemaphoreWaitNodeParams" => 24,
        "HIP_ARRAY3D_DESCRIPTOR" => 40,
        "hipHostNodeParams" => 16,
        "hipMemAllocationProp" | "hipBatchMemOpNodeParams" => 32,
        "hipResourceViewDesc" | "hipMemsetParams" => 48,
        "hipFuncAttributes" => 56,
        "hipTextureDesc" | "hipResourceDesc" | "hipKernelNodeParams" | "hipDevSmResourceGroupParams" => 64,
        "hipIpcMemHandle_t" | "hipIpcEventHandle_t" | "hipMemPoolPtrExportData" => 64,
        "hipExternalMemoryMipmappedArrayDesc" => 64,
        "hipExternalMemoryBufferDesc" => 88,
        "hipExternalSemaphoreHandleDesc" => 96,
        "HIP_TEXTURE_DESC" | "hipExternalMemoryHandleDesc" => 104,
        "HIP_RESOURCE_VIEW_DESC" => 112,
        "hipMemAllocNodeParams" => 120,
        "HIP_RESOURCE_DESC" | "hipDevResource" => 144,
        "hipExternalSemaphoreSignalParams" | "hipExternalSemaphoreWaitParams" => 144,
        "hipMemcpy3DParms" => 160,
        "HIP_MEMCPY3D" => 184,
        "hipDeviceProp_tR0000" => 792,
        "hipDeviceProp_tR0600" => 1472,
        _ => return None,
    })
}

/// Parameters that point to an array of four.
const ARRAYS_OF_FOUR: [&str; 2] = ["hipTexRefSetBorderColor(pBorderColor)", "hipTexRefGetBorderColor(pBorderColor)"];

/// Every parameter with the name to report it by.
fn params() -> impl Iterator<Item = (&'static Api, &'static Param, String)> {
    APIS.iter()
        .flat_map(|api| api.params.iter().map(move |param| (api, param, format!("{}({})", api.name, param.name))))
}

#[test]
fn every_entry_point_has_exactly_one_row() {
    let table = include_str!("../../catalogue/roles.tsv");
    let mut seen = BTreeSet::new();
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split('\t').next().unwrap();
        assert!(Api::by_name(name).is_some(), "{name} is no entry point");
        assert!(seen.insert(name), "{name} has two rows");
    }
    assert_eq!(seen.len(), APIS.len());
}

#[test]
fn every_policy_but_replay_is_argued_and_few_are_needed() {
    let mut counts = BTreeMap::new();
    for api in &APIS {
        let (policy, reason) = match api.policy {
            Policy::Replay => ("replay", None),
            Policy::ReplayAs(reason) => ("replay-as", Some(reason)),
            Policy::Skip(reason) => ("skip", Some(reason)),
            Policy::Refuse(reason) => ("refuse", Some(reason)),
        };
        *counts.entry(policy).or_insert(0) += 1;
        if let Some(reason) = reason {
            assert!(reason.split_whitespace().count() >= 4, "{}: {reason:?} argues nothing", api.name);
            assert!(!reason.contains("no role row"), "{}", api.name);
        }
    }
    println!("policies: {counts:?}");
    assert!(counts["skip"] < 60, "{counts:?}");
    assert!(counts["refuse"] < 25, "{counts:?}");
}

#[test]
fn roles_that_follow_an_address_are_on_pointers() {
    for (_, param, place) in params() {
        let is_pointer = param.ctype.contains('*');
        let is_address = is_pointer || bare(param.ctype) == "hipDeviceptr_t";
        let fits = match param.role {
            // A pitched pointer passed by value carries its address in its first word.
            Role::Device(..) => is_address || param.ctype == "hipPitchedPtr",
            Role::Host(..) | Role::FreeDevice | Role::FreeRange => is_address,
            Role::Any(..) => is_address,
            Role::Use(_) | Role::Destroy(_) | Role::Scalar => true,
            Role::Ordinal => matches!(param.ctype, "int" | "hipDevice_t"),
            Role::Location => param.ctype == "hipMemLocation",
            Role::Callback => matches!(param.ctype, "hipHostFn_t" | "hipStreamCallback_t"),
            Role::CString => param.ctype.ends_with("char*"),
            Role::KernelParams | Role::Extra => param.ctype == "void**",
            Role::NewPitched(_) => pointee(param.ctype) == Some("hipPitchedPtr"),
            Role::Struct(layout, _) | Role::OutStruct(layout, _) => {
                pointee(param.ctype) == Some(STRUCTS[usize::from(layout)].name)
            }
            Role::AnyArray(..) => matches!(param.ctype, "void**" | "hipDeviceptr_t*"),
            Role::NewDevice(_) | Role::GetDevice(_) => {
                // hipGraphMemFreeNodeGetParams declares its `void**` as `void*`.
                matches!(param.ctype, "void**" | "hipDeviceptr_t*") || place == "hipGraphMemFreeNodeGetParams(dev_ptr)"
            }
            Role::NewHost(_) | Role::NewManaged(_) | Role::NewRange(_) => param.ctype == "void**",
            _ => is_pointer,
        };
        assert!(fits, "{place}: {:?} on {}", param.role, param.ctype);
    }
}

#[test]
fn pointers_are_never_plain_values() {
    // An address hint, which is passed on and not followed, and descriptors of the operating system in the place of an address.
    let allowed = [
        "hipMemAddressReserve(addr)",
        "hipMemImportFromShareableHandle(osHandle)",
        "hipMemPoolImportFromShareableHandle(shared_handle)",
    ];
    for (_, param, place) in params() {
        let is_address = param.ctype.contains('*') || bare(param.ctype) == "hipDeviceptr_t";
        if param.role == Role::Scalar && is_address {
            assert!(allowed.contains(&place.as_str()), "{place}: {} has no role", param.ctype);
        }
    }
}

#[test]
fn handle_kinds_fit_the_c_types() {
    for (_, param, place) in params() {
        let (kind, ctype) = match param.role {
            Role::Use(kind) | Role::Destroy(kind) => (kind, bare(param.ctype)),
            Role::Create(kind) | Role::Get(kind) | Role::UseArray(kind, _) | Role::GetArray(kind, _) => {
                (kind, pointee(param.ctype).unwrap_or_else(|| panic!("{place} is no pointer")))
            }
            Role::GetArrayAt(kind, _) => (kind, pointee(param.ctype).and_then(pointee).unwrap()),
            _ => continue,
        };
        assert!(handle_types(kind).contains(&ctype), "{place}: a {ctype} is no {kind:?}");
    }
}

#[test]
fn by_value_handles_all_have_a_role() {
    let kinds = params().filter_map(|(_, param, _)| match param.role {
        Role::Use(kind) => Some(kind),
        _ => None,
    });
    let types: BTreeSet<_> = kinds.flat_map(handle_types).filter(|name| name.ends_with("_t")).collect();
    for (_, param, place) in params() {
        if types.contains(&bare(param.ctype)) {
            assert!(matches!(param.role, Role::Use(_) | Role::Destroy(_)), "{place}: {} has no role", param.ctype);
        }
    }
}

#[test]
fn every_kind_that_is_used_can_be_had() {
    let mut made = BTreeSet::from([HandleKind::FatBinary]); // What __hipRegisterFatBinary returns.
    let mut used = BTreeSet::new();
    for (_, param, _) in params() {
        match param.role {
            Role::Create(kind) | Role::Get(kind) | Role::GetArray(kind, _) => drop(made.insert(kind)),
            Role::Use(kind) | Role::Destroy(kind) => drop(used.insert(kind)),
            _ => {}
        }
    }
    assert_eq!(made, used);
}

/// Every size a role carries.
fn size_of_role(role: &Role) -> Option<Size> {
    match *role {
        Role::UseArray(_, size) | Role::GetArray(_, size) | Role::GetArrayAt(_, size) => Some(size),
        Role::Device(_, size) | Role::Host(_, size) | Role::Any(_, size) | Role::AnyArray(_, size, _) => Some(size),
        Role::NewDevice(size) | Role::NewPitched(size) | Role::NewHost(size) | Role::NewManaged(size) => Some(size),
        Role::Pin(size) | Role::GetDevice(size) | Role::NewRange(size) => Some(size),
        Role::In(size) | Role::ArgBytes(size) | Role::Out(size) | Role::InOut(size) => Some(size),
        Role::Struct(_, size) | Role::OutStruct(_, size) => Some(size),
        _ => None,
    }
}

#[test]
fn sizes_are_made_of_integers() {
    const INTEGERS: [&str; 5] = ["size_t", "int", "unsigned int", "uint32_t", "unsigned long long"];
    for (api, param, place) in params() {
        let integer = |index: u8| {
            let named = &api.params[usize::from(index)];
            assert!(INTEGERS.contains(&named.ctype), "{place}: its size names {}, a {}", named.name, named.ctype);
            assert_eq!(named.role, Role::Scalar, "{place}: its size names {}", named.name);
        };
        let behind = |index: u8, width: u8| {
            let named = &api.params[usize::from(index)];
            let expected = c_size(pointee(named.ctype).unwrap()).unwrap();
            assert_eq!(u32::from(width), expected, "{place}: width of *{}", named.name);
            assert!(matches!(named.role, Role::Out(_) | Role::InOut(_)), "{place}: *{} is not written", named.name);
        };
        match size_of_role(&param.role) {
            None | Some(Size::Unknown | Size::Fixed(_)) => {}
            Some(Size::Product { factor, params }) => {
                assert!(factor > 0 && !params.is_empty(), "{place}");
                params.iter().copied().for_each(integer);
            }
            Some(Size::Pointee { param, width, .. }) => behind(param, width),
            Some(Size::Rect { width, height, pitch }) => [width, height, pitch].into_iter().for_each(integer),
            Some(Size::By { param, cases, .. }) => {
                let decides = &api.params[usize::from(param)];
                assert!(decides.ctype.starts_with("hip") && !decides.ctype.contains('*'), "{place}");
                assert!(!cases.is_empty(), "{place}");
            }
            Some(Size::Terms(terms)) => {
                for term in terms {
                    match *term {
                        Term::Constant(value) => assert!(value > 1, "{place}"),
                        Term::Param(index) => integer(index),
                        Term::Word(index, word) => {
                            let named = &api.params[usize::from(index)];
                            assert!(named.words > 1 && word < named.words, "{place}: word {word} of {}", named.name);
                        }
                        Term::Pointee { param, width } | Term::PointeeIs { param, width, .. } => behind(param, width),
                        Term::Field { offset_bytes, width } => {
                            assert!(matches!(param.role, Role::NewPitched(_)), "{place} is no struct");
                            assert!(offset_bytes + u16::from(width) <= 32, "{place}");
                        }
                    }
                }
            }
        }
        if let Role::AnyArray(_, _, Some(sizes)) = param.role {
            assert_eq!(api.params[usize::from(sizes)].ctype, "size_t*", "{place}");
        }
    }
}

#[test]
fn inline_sizes_are_those_of_the_c_types() {
    let mut checked = 0;
    for (_, param, place) in params() {
        let (Role::In(size) | Role::Out(size) | Role::InOut(size)) = param.role else {
            continue;
        };
        let element = match size {
            Size::Fixed(bytes) => bytes,
            Size::Product { factor, .. } | Size::Pointee { factor, .. } => factor,
            _ => continue,
        };
        let pointed_to = pointee(param.ctype).unwrap_or_else(|| panic!("{place} is no pointer"));
        if matches!(pointed_to, "void" | "char") {
            continue;
        }
        let elements = if ARRAYS_OF_FOUR.contains(&place.as_str()) { 4 } else { 1 };
        assert_eq!(c_size(pointed_to).map(|bytes| bytes * elements), Some(element), "{place}: a {pointed_to}");
        checked += 1;
    }
    assert!(checked > 150, "only {checked} sizes were compared");
}

#[test]
fn nothing_is_read_through_an_untyped_pointer_without_a_reason() {
    // `void*` results and values whose size the C type does not tell.
    let expected = BTreeSet::from([
        "hipDeviceGetGraphMemAttribute(value)",
        "hipDeviceSetGraphMemAttribute(value)",
        "hipMemExportToShareableHandle(shareableHandle)",
        "hipMemGetHandleForAddressRange(handle)",
        "hipMemPoolExportToShareableHandle(shared_handle)",
        "hipMemPoolGetAttribute(value)",
        "hipMemPoolSetAttribute(value)",
        "hipMemRangeGetAttribute(data)",
        "hipPointerGetAttribute(data)",
        "hipPointerSetAttribute(value)",
    ]);
    let found: BTreeSet<_> = params()
        .filter(|(_, param, _)| matches!(param.role, Role::In(_) | Role::Out(_) | Role::InOut(_)))
        .filter(|(_, param, _)| pointee(param.ctype) == Some("void"))
        .map(|(_, _, place)| place)
        .collect();
    assert_eq!(found.iter().map(String::as_str).collect::<BTreeSet<_>>(), expected);
}

/// Calls that take a stream by value and neither enqueue nor wait: they ask about it, set it up or end it.
fn only_concerns_the_stream(name: &str) -> bool {
    let base = name.strip_suffix("_spt").unwrap_or(name);
    base.starts_with("hipStreamGet")
        || base.contains("Capture")
        || matches!(
            base,
            "hipStreamDestroy"
                | "hipStreamIsCapturing"
                | "hipStreamSetAttribute"
                | "hipStreamCopyAttributes"
                | "hipExtStreamGetCUMask"
                | "hipGetStreamDeviceId"
                | "hipKernelNameRefByPtr"
                | "hipConfigureCall"
                | "__hipPushCallConfiguration"
        )
}

#[test]
fn calls_on_a_stream_enqueue_or_wait() {
    for api in &APIS {
        let has_stream = api.params.iter().any(|param| bare(param.ctype) == "hipStream_t");
        let acts = api.blocks() || matches!(api.effect, Effect::Enqueue | Effect::Query);
        if has_stream {
            assert_ne!(acts, only_concerns_the_stream(api.name), "{}: {:?}", api.name, api.effect);
            assert!(!acts || api.stream_param().is_some(), "{}", api.name);
        }
        if api.name.trim_end_matches("_spt").trim_end_matches("_v2").ends_with("Async") {
            assert_eq!(api.effect, Effect::Enqueue, "{}", api.name);
        }
        let struct_stream = api.params.iter().any(|param| match param.role {
            Role::Struct(layout, _) => {
                STRUCTS[usize::from(layout)].fields.iter().any(|field| field.role == Role::Use(HandleKind::Stream))
            }
            _ => false,
        });
        let elsewhere = ["hipLaunchByPtr", "hipExecutionCtxRecordEvent", "hipExecutionCtxWaitEvent"];
        if api.effect == Effect::Enqueue {
            assert!(has_stream || struct_stream || elsewhere.contains(&api.name), "{} enqueues nowhere", api.name);
        }
    }
}

#[test]
fn blocking_effects_name_what_they_wait_for() {
    for api in &APIS {
        match api.effect {
            Effect::BlockStream => assert!(api.stream_param().is_some(), "{}", api.name),
            Effect::BlockEvent => {
                assert!(api.param_with(|role| *role == Role::Use(HandleKind::Event)).is_some(), "{}", api.name);
            }
            Effect::BlockCopy => {
                let touches = |role: &Role| {
                    matches!(role, Role::Device(..) | Role::Host(..) | Role::Any(..) | Role::Struct(..))
                        || *role == Role::Use(HandleKind::Array)
                };
                assert!(api.param_with(touches).is_some(), "{} copies nothing", api.name);
            }
            _ => {}
        }
        let frees = |role: &Role| matches!(role, Role::FreeDevice | Role::FreeHost);
        if api.param_with(frees).is_some() && !api.name.contains("Async") {
            assert_eq!(api.effect, Effect::BlockDevice, "{}", api.name);
        }
    }
}

#[test]
fn per_thread_default_stream_spellings_mean_what_their_base_means() {
    let mut pairs = 0;
    for api in &APIS {
        let Some(base) = api.name.strip_suffix("_spt").and_then(Api::by_name) else {
            continue;
        };
        assert_eq!((api.effect, api.policy), (base.effect, base.policy), "{}", api.name);
        let roles = |api: &'static Api| api.params.iter().map(|param| param.role).collect::<Vec<_>>();
        assert_eq!(roles(api), roles(base), "{}", api.name);
        pairs += 1;
    }
    assert!(pairs >= 38, "{pairs}");
}

#[test]
fn struct_fields_lie_inside_their_struct() {
    for layout in &STRUCTS {
        let mut last = 0;
        for field in layout.fields {
            let place = format!("{}.{}", layout.name, field.name);
            let width = if matches!(field.role, Role::Ordinal | Role::Out(Size::Fixed(4))) { 4 } else { 8 };
            assert!(field.offset_bytes + width <= layout.size_bytes, "{place}");
            assert!(field.offset_bytes % width == 0, "{place} is not aligned");
            assert!(field.offset_bytes >= last, "{place} is out of order");
            last = field.offset_bytes;
            if let Some(when) = field.when {
                assert!(when.offset_bytes + 4 <= layout.size_bytes && !when.values.is_empty(), "{place}");
            }
            if let Some(Size::Terms(terms)) = size_of_role(&field.role) {
                for term in terms {
                    let fits = match *term {
                        Term::Constant(_) => true,
                        Term::Field { offset_bytes, width } => {
                            u32::from(offset_bytes) + u32::from(width) <= layout.size_bytes
                        }
                        _ => false,
                    };
                    assert!(fits, "{place}: {term:?}");
                }
            }
            let unlike = layout.fields.iter().filter(|other| other.offset_bytes == field.offset_bytes).count();
            assert!(unlike == 1 || field.when.is_some(), "{place} shares its place with no discriminant");
        }
    }
}

#[test]
fn the_generated_file_is_current() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/gen-catalogue");
    match Command::new("python3").arg(&script).arg("--check").output() {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => println!("skipped: cannot run python3: {error}"),
    }
}

/// Inputs for [`Size::value`]: words and pointed-to values by parameter.
struct Inputs<'a> {
    words: &'a [&'a [u64]],
    behind: &'a [Option<u64>],
}

impl SizeInputs for Inputs<'_> {
    fn word(&self, param: u8, word: u8) -> Option<u64> {
        self.words.get(usize::from(param))?.get(usize::from(word)).copied()
    }
    fn pointee(&self, param: u8, _width: u8) -> Option<u64> {
        *self.behind.get(usize::from(param))?
    }
    fn field(&self, _offset_bytes: u16, _width: u8) -> Option<u64> {
        None
    }
}

fn size_of(api: &str, param: usize, words: &[&[u64]], behind: &[Option<u64>]) -> Option<u64> {
    let role = &Api::by_name(api).unwrap().params[param].role;
    size_of_role(role).unwrap().value(&Inputs { words, behind })
}

#[test]
fn sizes_come_out_right() {
    assert_eq!(size_of("hipMalloc", 0, &[&[0], &[4096]], &[]), Some(4096));
    assert_eq!(size_of("hipMemsetD32", 0, &[&[0], &[7], &[10]], &[]), Some(40));
    // Four rows of 100 bytes, 256 apart.
    let copy: &[&[u64]] = &[&[1], &[256], &[2], &[512], &[100], &[4], &[0]];
    assert_eq!(size_of("hipMemcpy2D", 0, copy, &[]), Some(3 * 256 + 100));
    assert_eq!(size_of("hipMemcpy2D", 2, copy, &[]), Some(3 * 512 + 100));
    assert_eq!(size_of("hipMemcpy2D", 0, &[&[1], &[256], &[2], &[512], &[100], &[0], &[0]], &[]), Some(0));
    assert_eq!(size_of("hipMallocPitch", 0, &[&[1], &[2], &[100], &[4]], &[None, Some(256)]), Some(1024));
    assert_eq!(size_of("hipMallocPitch", 0, &[&[1], &[0], &[100], &[4]], &[None, None]), None);
    assert_eq!(size_of("hipMemset3D", 0, &[&[1, 256, 100, 4], &[0], &[100, 4, 3]], &[]), Some(256 * 4 * 3));
    assert_eq!(size_of("hipMemPoolSetAttribute", 2, &[&[1], &[1], &[2]], &[]), Some(4));
    assert_eq!(size_of("hipMemPoolSetAttribute", 2, &[&[1], &[4], &[2]], &[]), Some(8));
    assert_eq!(size_of("hipMemset", 0, &[&[1], &[0], &[u64::MAX]], &[]), Some(u64::MAX));
    assert_eq!(size_of("hipMemsetD16", 0, &[&[1], &[0], &[u64::MAX]], &[]), None, "overflow");
}

#[test]
fn an_idle_stream_has_no_capture_dependencies() {
    // A stream that is not capturing leaves every result but the status unwritten: whatever the program's variables
    // held before must not be followed.
    let garbage = [None, Some(0), Some(9), Some(0xdead), None, Some(u64::MAX)];
    let words: &[&[u64]] = &[&[1][..]; 6];
    assert_eq!(size_of("hipStreamGetCaptureInfo_v2", 4, words, &garbage), Some(0));
    let active = [None, Some(1), Some(9), Some(0xdead), None, Some(3)];
    assert_eq!(size_of("hipStreamGetCaptureInfo_v2", 4, words, &active), Some(3));
}

#[test]
fn discriminants_choose_between_union_members() {
    let layout = STRUCTS.iter().find(|layout| layout.name == "hipResourceDesc").unwrap();
    let meant = |kind: u32| {
        let mut bytes = [0u8; 64];
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        let fields: Vec<_> =
            layout.fields.iter().filter(|field| field.when.is_none_or(|when| when.holds(&bytes))).collect();
        fields.iter().map(|field| field.name).collect::<Vec<_>>()
    };
    assert_eq!(meant(0), ["res.array.array"]);
    assert_eq!(meant(1), ["res.mipmap.mipmap"]);
    assert_eq!(meant(2), ["res.linear.devPtr"]);
    assert_eq!(meant(3), ["res.linear.devPtr"]);
    assert!(meant(4).is_empty());
    assert!(!layout.fields[0].when.unwrap().holds(&[0; 3]), "a struct that is cut off chooses nothing");
}
