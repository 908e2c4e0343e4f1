//! What to record of each entry point beyond its argument words, derived once from the catalogue's roles.

use std::sync::atomic::{AtomicPtr, Ordering};

use hrr_format::catalogue::{APIS, Access, Api, Effect, HandleKind, Returns, Role, STRUCTS, Size, SizeInputs, Term};
use hrr_format::record::section_bytes;

use crate::hooks::Hook;
use crate::window::keep::{self, Keep};

/// How many entry points there are.
pub(crate) const API_COUNT: usize = APIS.len();
/// Out sections a [`Route::FixedOuts`] call has at most.
const MAX_FIXED_OUTS: usize = 6;
/// Longest out section in bytes that the fast route handles.
const MAX_FIXED_OUT_BYTES: u32 = 64;
/// Longest scalar of a call itself in bytes, which metadata-only recordings keep too.
const MAX_SCALAR_BYTES: u64 = 8;

/// Which way through the recorder a call takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// Argument words only.
    Words,
    /// Argument words and results of constant size.
    FixedOuts,
    /// A kernel launch whose arguments go through `kernelParams` or `extra`.
    Launch,
    /// Everything else.
    General,
}

/// A result of constant size.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FixedOut {
    /// Parameter index.
    pub(crate) param: u8,
    /// Argument word that holds the address.
    pub(crate) word: u8,
    /// Bytes to copy.
    pub(crate) len_bytes: u16,
    /// Offset of the section from the first one.
    pub(crate) at_bytes: u16,
}

/// Where a launch names its kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KernelWord {
    /// A host function symbol.
    Symbol(u8),
    /// A `hipFunction_t` or `hipKernel_t`.
    Function(u8),
}

/// How a launch passes its kernel and the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaunchShape {
    /// The kernel.
    pub(crate) kernel: KernelWord,
    /// Parameter and word of `kernelParams`.
    pub(crate) kernel_params: Option<(u8, u8)>,
    /// Parameter and word of `extra`.
    pub(crate) extra: Option<(u8, u8)>,
}

/// A section to record, in parameter order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    /// Bytes the call reads.
    In { param: u8, word: u8, size: Size },
    /// Bytes that are contents: kept in contents mode, zeros of their size otherwise; no more than `kept_bytes` are kept in both.
    ArgBytes { param: u8, word: u8, size: Size, kept_bytes: u64 },
    /// Bytes the call writes.
    Out { param: u8, word: u8, size: Size },
    /// Structs the call reads, and what they point to.
    Struct { param: u8, word: u8, layout: u16, size: Size },
    /// A C string.
    Text { param: u8, word: u8 },
    /// Memory that may be the host's.
    Host { param: u8, word: u8, access: Access, size: Size, sure: Sureness },
    /// An array of such addresses, with an array of their sizes.
    HostArray { param: u8, word: u8, access: Access, size: Size, sizes_word: u8 },
    /// A code object.
    Image { param: u8, word: u8 },
    /// Kernel arguments.
    Launch(LaunchShape),
    /// Handles in an array of the runtime's own.
    CaptureNodes,
    /// The pointer the call returns.
    Return,
}

/// Whether an address is surely the host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sureness {
    /// By the catalogue.
    Host,
    /// By the copy kind in this word, or by whose memory it is.
    KindWord(u8),
    /// By whose memory it is.
    Lookup,
}

/// What a call has to do with the order of work on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrderRole {
    /// Nothing.
    None,
    /// The program may learn by it that work is done.
    Observe,
    /// It records the event in this word on its stream.
    Record { event_word: u8 },
    /// It makes its stream wait for the event in this word.
    Wait { event_word: u8 },
}

/// What to record of one entry point.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The entry point.
    pub(crate) api: &'static Api,
    /// The way it takes.
    pub(crate) route: Route,
    /// What the call has to do with the order of work on the device.
    pub(crate) order: OrderRole,
    /// Argument words.
    pub(crate) words: u8,
    /// Number of [`Self::fixed_outs`].
    pub(crate) fixed_count: u8,
    /// Total length of the fixed out sections.
    pub(crate) fixed_bytes: u16,
    /// The fixed out sections.
    pub(crate) fixed_outs: [FixedOut; MAX_FIXED_OUTS],
    /// The launch, where the route is [`Route::Launch`].
    pub(crate) launch: Option<LaunchShape>,
    /// The sections, where the route is [`Route::General`].
    pub(crate) steps: Vec<Step>,
    /// What else is done at entry and return.
    pub(crate) hook: Hook,
    /// The word of the stream the call works on, if it has one.
    pub(crate) stream_word: Option<u8>,
    /// The word that points to a struct which names the stream an enqueue works on, and the stream's offset in it.
    pub(crate) stream_field: Option<(u8, u32)>,
    /// The word of the event the call works on, if it has one.
    pub(crate) event_word: Option<u8>,
    /// What becomes of the call outside a window.
    pub(crate) keep: Keep,
    /// Whether the thread's device may be another one after the call.
    pub(crate) moves_thread: bool,
}

static PLANS: AtomicPtr<Plan> = AtomicPtr::new(std::ptr::null_mut());

/// Builds the plans, unless they exist. They depend on the catalogue alone and live as long as the process.
pub(crate) fn build() {
    if !PLANS.load(Ordering::Acquire).is_null() {
        return;
    }
    let plans: Box<[Plan]> = APIS.iter().map(plan).collect();
    let plans = Box::leak(plans).as_mut_ptr();
    // Release: whoever sees the pointer sees the plans. Two racing builders make equal tables; one is kept, one leaks.
    let _ = PLANS.compare_exchange(std::ptr::null_mut(), plans, Ordering::Release, Ordering::Relaxed);
}

/// The plan of an entry point.
///
/// # Safety
/// [`build`] has returned on some thread whose effects this one sees, and `api` is below [`API_COUNT`].
#[inline(always)]
pub(crate) unsafe fn of(api: usize) -> &'static Plan {
    // SAFETY: by the caller the table exists and the index is inside. Acquire: pairs with the release in `build`.
    unsafe { &*PLANS.load(Ordering::Acquire).add(api) }
}

fn plan(api: &'static Api) -> Plan {
    let mut steps = Vec::new();
    let kind_word = api.params.iter().find(|param| param.ctype.contains("hipMemcpyKind")).map(|param| param.word);
    for (index, param) in api.params.iter().enumerate() {
        let (index, word) = (index as u8, param.word);
        let eight = Size::Fixed(8);
        let step = match param.role {
            Role::Create(_)
            | Role::Get(_)
            | Role::NewDevice(_)
            | Role::NewHost(_)
            | Role::NewManaged(_)
            | Role::NewRange(_)
            | Role::GetDevice(_) => Some(Step::Out { param: index, word, size: eight }),
            Role::NewPitched(_) => Some(Step::Out { param: index, word, size: Size::Fixed(32) }),
            Role::Out(size) => Some(Step::Out { param: index, word, size }),
            Role::GetArray(_, count) => scaled(count, 8).map(|size| Step::Out { param: index, word, size }),
            Role::OutStruct(layout, count) => scaled(count, STRUCTS[usize::from(layout)].size_bytes)
                .map(|size| Step::Out { param: index, word, size }),
            Role::In(size) => Some(Step::In { param: index, word, size }),
            Role::ArgBytes(size) => {
                // The value of an attribute is a scalar of the call; a kernel's argument is the program's data, however short.
                let kept_bytes = if api.name == "hipSetupArgument" { 0 } else { MAX_SCALAR_BYTES };
                Some(Step::ArgBytes { param: index, word, size, kept_bytes })
            }
            Role::UseArray(_, count) => scaled(count, 8).map(|size| Step::In { param: index, word, size }),
            Role::Struct(layout, size) => {
                steps.push(Step::Struct { param: index, word, layout, size });
                let layout = &STRUCTS[usize::from(layout)];
                if layout.is_written() {
                    scaled(size, layout.size_bytes).map(|size| Step::Out { param: index, word, size })
                } else {
                    None
                }
            }
            Role::InOut(size) => {
                steps.push(Step::In { param: index, word, size });
                Some(Step::Out { param: index, word, size })
            }
            Role::CString => Some(Step::Text { param: index, word }),
            Role::Host(access, size) if size != Size::Unknown => {
                Some(Step::Host { param: index, word, access, size, sure: Sureness::Host })
            }
            Role::Any(access, size) if size != Size::Unknown => {
                let sure = kind_word.map_or(Sureness::Lookup, Sureness::KindWord);
                Some(Step::Host { param: index, word, access, size, sure })
            }
            Role::AnyArray(access, size, Some(sizes)) => Some(Step::HostArray {
                param: index,
                word,
                access,
                size,
                sizes_word: api.params[usize::from(sizes)].word,
            }),
            Role::AnyArray(_, count, None) => scaled(count, 8).map(|size| Step::In { param: index, word, size }),
            Role::GetArrayAt(..) => Some(Step::CaptureNodes),
            Role::Image => Some(Step::Image { param: index, word }),
            _ => None,
        };
        steps.extend(step);
    }
    let launch = launch_shape(api);
    steps.extend(launch.map(Step::Launch));
    if api.ret == Returns::Pointer {
        steps.push(Step::Return);
    }
    let hook = Hook::of(api);
    let mut plan = Plan {
        api,
        route: Route::General,
        order: order_role(api),
        words: api.words,
        fixed_count: 0,
        fixed_bytes: 0,
        fixed_outs: Default::default(),
        launch,
        steps,
        hook,
        stream_word: api.stream_param().map(|param| api.params[param].word),
        stream_field: stream_field(api),
        event_word: event_word(api),
        keep: Keep::of(api),
        moves_thread: keep::moves_thread(api),
    };
    choose_route(&mut plan);
    plan
}

/// Of several structs the first one's: the launches on several devices name a stream of each.
fn stream_field(api: &'static Api) -> Option<(u8, u32)> {
    if api.effect != Effect::Enqueue || api.stream_param().is_some() {
        return None;
    }
    api.params.iter().find_map(|param| {
        let Role::Struct(layout, _) = param.role else { return None };
        let field =
            STRUCTS[usize::from(layout)].fields.iter().find(|field| field.role == Role::Use(HandleKind::Stream));
        field.map(|field| (param.word, field.offset_bytes))
    })
}

fn event_word(api: &'static Api) -> Option<u8> {
    api.param_with(|role| *role == Role::Use(HandleKind::Event)).map(|param| api.params[param].word)
}

fn order_role(api: &'static Api) -> OrderRole {
    match (api.name.trim_end_matches("_spt"), event_word(api)) {
        ("hipEventRecord" | "hipEventRecordWithFlags", Some(event_word)) => OrderRole::Record { event_word },
        ("hipStreamWaitEvent", Some(event_word)) => OrderRole::Wait { event_word },
        _ if api.blocks() || api.effect == Effect::Query => OrderRole::Observe,
        _ => OrderRole::None,
    }
}

/// A count of `unit`-byte elements as a size in bytes; `None` where the catalogue gives no count.
fn scaled(count: Size, unit: u32) -> Option<Size> {
    Some(match count {
        Size::Fixed(count) => Size::Fixed(count.checked_mul(unit)?),
        Size::Product { factor, params } => Size::Product { factor: factor.checked_mul(unit)?, params },
        Size::Pointee { factor, param, width } => Size::Pointee { factor: factor.checked_mul(unit)?, param, width },
        Size::Terms(terms) => {
            let terms: Vec<Term> = terms.iter().copied().chain([Term::Constant(unit)]).collect();
            // Plans live as long as the process.
            Size::Terms(Vec::leak(terms))
        }
        _ => return None,
    })
}

fn launch_shape(api: &'static Api) -> Option<LaunchShape> {
    let place =
        |wanted: Role| api.param_with(|role| *role == wanted).map(|index| (index as u8, api.params[index].word));
    let (kernel_params, extra) = (place(Role::KernelParams), place(Role::Extra));
    if kernel_params.is_none() && extra.is_none() {
        return None;
    }
    let kernel = if let Some((_, word)) = place(Role::KernelSymbol) {
        KernelWord::Symbol(word)
    } else {
        let (_, word) = place(Role::Use(HandleKind::Function)).or_else(|| place(Role::Use(HandleKind::Kernel)))?;
        KernelWord::Function(word)
    };
    Some(LaunchShape { kernel, kernel_params, extra })
}

fn choose_route(plan: &mut Plan) {
    if plan.hook != Hook::None {
        return;
    }
    if plan.launch.is_some() && plan.steps.len() == 1 {
        plan.route = Route::Launch;
        return;
    }
    let mut at_bytes = 0;
    let mut outs = [FixedOut::default(); MAX_FIXED_OUTS];
    if plan.steps.len() > outs.len() {
        return;
    }
    for (slot, step) in outs.iter_mut().zip(&plan.steps) {
        let Step::Out { param, word, size: Size::Fixed(len_bytes @ 0..=MAX_FIXED_OUT_BYTES) } = *step else {
            return;
        };
        *slot = FixedOut { param, word, len_bytes: len_bytes as u16, at_bytes };
        at_bytes += section_bytes(len_bytes as usize) as u16;
    }
    plan.route = if plan.steps.is_empty() { Route::Words } else { Route::FixedOuts };
    plan.fixed_count = plan.steps.len() as u8;
    plan.fixed_bytes = at_bytes;
    plan.fixed_outs = outs;
}

/// The numbers that a call's sizes are made of: its argument words and the memory its pointers name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inputs<'a> {
    /// The entry point.
    pub(crate) api: &'static Api,
    /// Its argument words.
    pub(crate) words: &'a [u64],
    /// The struct at hand, if a size inside one is asked for.
    pub(crate) structure: Option<&'a [u8]>,
}

impl SizeInputs for Inputs<'_> {
    fn word(&self, param: u8, word: u8) -> Option<u64> {
        let first = self.api.params.get(usize::from(param))?.word;
        let value = *self.words.get(usize::from(first) + usize::from(word))?;
        // Signed arguments travel sign-extended, and no honest size or count has the top bit set.
        (value <= i64::MAX as u64).then_some(value)
    }

    fn pointee(&self, param: u8, width: u8) -> Option<u64> {
        let address = self.word(param, 0)?;
        match (address, width) {
            (0, _) => None,
            // SAFETY: the catalogue says that the parameter points to an integer of this width, which the call itself
            // reads or writes.
            (_, 4) => Some(u64::from(unsafe { (address as *const u32).read_unaligned() })),
            // SAFETY: as above.
            (_, 8) => Some(unsafe { (address as *const u64).read_unaligned() }),
            _ => None,
        }
    }

    fn field(&self, offset_bytes: u16, width: u8) -> Option<u64> {
        let bytes = self.structure?.get(usize::from(offset_bytes)..)?;
        match width {
            4 => Some(u64::from(u32::from_le_bytes(*bytes.first_chunk()?))),
            8 => Some(u64::from_le_bytes(*bytes.first_chunk()?)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan_of(name: &str) -> Plan {
        plan(Api::by_name(name).unwrap())
    }

    #[test]
    fn calls_without_memory_take_the_fast_routes() {
        assert_eq!(plan_of("hipEventRecord").route, Route::Words);
        assert_eq!(plan_of("hipEventQuery").route, Route::Words);
        assert_eq!(plan_of("hipStreamSynchronize").route, Route::Words);
        assert_eq!(plan_of("hipLaunchKernel").route, Route::Launch);
        let create = plan_of("hipStreamCreate");
        assert_eq!((create.route, create.fixed_count, create.fixed_bytes), (Route::FixedOuts, 1, 16));
    }

    #[test]
    fn copies_know_where_their_kind_is() {
        let copy = plan_of("hipMemcpyAsync");
        assert_eq!(copy.route, Route::General);
        assert!(copy.steps.iter().all(|step| matches!(step, Step::Host { sure: Sureness::KindWord(3), .. })));
        assert_eq!(copy.steps.len(), 2);
        assert_eq!(copy.stream_word, Some(4));
    }

    #[test]
    fn a_negative_count_has_no_size() {
        let api = Api::by_name("hipMemcpyAsync").unwrap();
        let size = Size::Product { factor: 2, params: &[2] };
        let value = |count| size.value(&Inputs { api, words: &[0, 0, count, 0, 0], structure: None });
        assert_eq!(value(5), Some(10));
        assert_eq!(value(u64::MAX), None);
    }

    #[test]
    fn every_entry_point_has_a_plan_that_fits_a_record() {
        for api in &APIS {
            let plan = plan(api);
            assert!(plan.steps.len() <= 2 * api.params.len() + 2, "{}", api.name);
        }
    }
}
