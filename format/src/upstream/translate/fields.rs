//! From the fields of a record to the words and sections of a call.

use super::output::{Call, Inputs, SOME_POINTER, unsigned};
use crate::catalogue::{HandleKind, Policy, Returns, Role, STRUCTS, Size};
use crate::record::{NO_PARAM, Presence, SectionTag};
use crate::upstream::events::Event;
use crate::upstream::hash::ContentHash;
use crate::upstream::layout::{Extra, Field, Layout, Meaning, Subject, Type};

/// Reads a field as a 64-bit value; zero where the record is too short, which the caller has checked.
fn value(event: &Event<'_>, field: &Field) -> u64 {
    let raw = event.unsigned(field.offset_bytes as usize, field.size_bytes as usize).unwrap_or(0);
    match field.ty {
        Type::Signed => raw as u32 as i32 as i64 as u64,
        Type::Unsigned | Type::Float | Type::Bytes => raw,
    }
}

fn bytes<'a>(event: &Event<'a>, field: &Field) -> &'a [u8] {
    event.slice(field.offset_bytes as usize, field.size_bytes as usize).unwrap_or_default()
}

/// A field that belongs to no parameter.
pub(super) fn extra(event: &Event<'_>, layout: &Layout, extra: Extra) -> Option<u64> {
    layout.field(Subject::Extra(extra)).map(|field| value(event, field))
}

/// A hash; `None` where the entry point records none.
pub(super) fn hash(event: &Event<'_>, layout: &Layout, lo: Extra, hi: Extra) -> Option<ContentHash> {
    Some(ContentHash { lo: extra(event, layout, lo)?, hi: extra(event, layout, hi)? })
}

/// The call that a fixed record tells of. The record is at least as long as its layout.
pub(super) fn call(event: &Event<'_>, layout: &'static Layout) -> Call {
    let api = layout.api;
    let mut call = Call::new(api);
    if let Some(field) = layout.field(Subject::Extra(Extra::Ret)) {
        match api.ret {
            Returns::Error | Returns::Int => call.ret = value(event, field) as u32 as i32,
            Returns::Pointer => {
                let payload = value(event, field).to_le_bytes().to_vec();
                call.section(SectionTag::Return, NO_PARAM, Presence::Present, payload);
            }
            Returns::Void | Returns::ChannelDesc => {}
        }
    }
    for (number, param) in api.params.iter().enumerate() {
        let number = number as u8;
        let first = usize::from(param.word);
        if let Some(field) = layout.of_param(number, Meaning::Value) {
            if field.ty == Type::Bytes {
                for (position, chunk) in bytes(event, field).chunks(8).take(usize::from(param.words)).enumerate() {
                    call.words[first + position] = unsigned(chunk, 0, chunk.len()).unwrap_or(0);
                }
            } else {
                call.words[first] = value(event, field);
            }
        } else if let Some(field) = layout.of_param(number, Meaning::Pointee) {
            pointee(&mut call, number, value(event, field));
        } else if let Some(x) = layout.of_param(number, Meaning::Member(0)) {
            let member = |index| layout.of_param(number, Meaning::Member(index)).map_or(0, |field| value(event, field));
            call.words[first] = value(event, x) | member(1) << 32;
            call.words[first + 1] = member(2);
        }
    }
    for number in 0..api.params.len() as u8 {
        inline(event, layout, &mut call, number);
    }
    complete_names(&mut call);
    call
}

/// What an output parameter pointed to after the call.
fn pointee(call: &mut Call, number: u8, value: u64) {
    let role = call.api.params[usize::from(number)].role;
    // Memory of no bytes has no address; had there been no place for one, the call would have failed.
    let is_of_no_bytes = call.ret == 0 && matches!(role, Role::NewDevice(_) | Role::NewHost(_) | Role::NewManaged(_));
    if value == 0 && !is_of_no_bytes {
        return;
    }
    call.set(number, SOME_POINTER);
    let is_told = matches!(
        role,
        Role::Create(_)
            | Role::Get(_)
            | Role::NewDevice(_)
            | Role::NewHost(_)
            | Role::NewManaged(_)
            | Role::NewRange(_)
            | Role::GetDevice(_)
    );
    if is_told && call.ret == 0 {
        call.section(SectionTag::Out, number, Presence::Present, value.to_le_bytes().to_vec());
    } else if let Role::Out(Size::Fixed(4)) = role {
        call.section(SectionTag::Out, number, Presence::Present, (value as u32).to_le_bytes().to_vec());
    }
}

/// The copy of what a parameter points to.
fn inline(event: &Event<'_>, layout: &Layout, call: &mut Call, number: u8) {
    let whole = layout.of_param(number, Meaning::Inline);
    let guarded = layout.of_param(number, Meaning::Bytes);
    let Some(field) = whole.or(guarded) else { return };
    if whole.is_some() {
        if call.word(number) == 0 {
            return;
        }
    } else {
        let present = layout.of_param(number, Meaning::Present).map_or(0, |field| value(event, field));
        if present == 0 {
            return;
        }
        if call.word(number) == 0 {
            call.set(number, SOME_POINTER);
        }
    }
    let mut copy = bytes(event, field).to_vec();
    if field.ty != Type::Bytes {
        copy = value(event, field).to_le_bytes().to_vec();
    }
    let param = &call.api.params[usize::from(number)];
    let elements = layout.of_param(number, Meaning::Count).map(|field| value(event, field));
    let wanted = wanted_bytes(call, number);
    if let Some(elements) = elements {
        let recorded = elements.saturating_mul(element_bytes(&param.role));
        let recorded = usize::try_from(recorded).unwrap_or(usize::MAX).min(copy.len());
        copy.truncate(recorded);
        if wanted.is_some_and(|wanted| wanted > recorded as u64) {
            let name = param.name;
            call.refuse(&format!("only the first {elements} elements of {name} were recorded"));
            return;
        }
    }
    match param.role {
        Role::CString => match copy.iter().position(|&byte| byte == 0) {
            Some(end) => {
                copy.truncate(end);
                call.section(SectionTag::Text, number, Presence::Present, copy);
            }
            None => {
                let name = param.name;
                call.refuse(&format!("only the first {} characters of {name} were recorded", copy.len()));
            }
        },
        Role::Out(_) | Role::OutStruct(..) => {
            fit(&mut copy, wanted);
            call.section(SectionTag::Out, number, Presence::Present, copy);
        }
        Role::Struct(..) | Role::In(_) | Role::InOut(_) | Role::ArgBytes(_) => {
            if elements.is_none() && wanted.is_some_and(|wanted| wanted > copy.len() as u64 && is_array(&param.role)) {
                let (name, len) = (param.name, copy.len());
                call.refuse(&format!("only the first {len} bytes of {name} were recorded"));
                return;
            }
            fit(&mut copy, wanted);
            call.section(SectionTag::In, number, Presence::Present, copy);
        }
        Role::UseArray(..) | Role::AnyArray(..) => {
            fit(&mut copy, wanted);
            call.section(SectionTag::In, number, Presence::Present, copy);
        }
        _ => {}
    }
}

/// Cuts or pads a copy to the size that the catalogue gives what it is a copy of.
fn fit(copy: &mut Vec<u8>, wanted: Option<u64>) {
    /// No parameter that is recorded inline is longer.
    const MOST_BYTES: u64 = 1 << 16;
    if let Some(wanted) = wanted.filter(|&wanted| wanted <= MOST_BYTES) {
        copy.resize(wanted as usize, 0);
    }
}

fn is_array(role: &Role) -> bool {
    !matches!(role, Role::Struct(_, Size::Fixed(1)) | Role::In(Size::Fixed(_)))
}

/// Bytes that a pointer parameter covers, by the catalogue.
fn wanted_bytes(call: &Call, number: u8) -> Option<u64> {
    let inputs = Inputs(call);
    match call.api.params[usize::from(number)].role {
        Role::Struct(layout, count) | Role::OutStruct(layout, count) => {
            count.value(&inputs)?.checked_mul(u64::from(STRUCTS[usize::from(layout)].size_bytes))
        }
        Role::In(size) | Role::InOut(size) | Role::Out(size) | Role::ArgBytes(size) => size.value(&inputs),
        Role::UseArray(_, count) | Role::AnyArray(_, count, ..) => count.value(&inputs)?.checked_mul(8),
        _ => None,
    }
}

/// Bytes of an element of an array parameter.
pub(in crate::upstream) fn element_bytes(role: &Role) -> u64 {
    match *role {
        Role::UseArray(..) | Role::AnyArray(..) => 8,
        Role::Struct(layout, _) => u64::from(STRUCTS[usize::from(layout)].size_bytes),
        Role::In(Size::Product { factor, .. }) => u64::from(factor),
        _ => 1,
    }
}

/// A variable's name is recorded once and passed twice.
fn complete_names(call: &mut Call) {
    if call.api.name != "__hipRegisterVar" {
        return;
    }
    if let (Some(host), Some(device)) = (call.param("hostVar"), call.param("deviceVar"))
        && let Some(name) = call.payload(SectionTag::Text, device).map(<[u8]>::to_vec)
        && call.word(host) != 0
    {
        call.section(SectionTag::Text, host, Presence::Present, name);
    }
}

/// Decides what becomes of a call of which upstream does not record everything that it reads.
pub(super) fn judge(call: &mut Call) {
    if !call.is_issued() || matches!(call.api.policy, Policy::Skip(_)) {
        return;
    }
    let api = call.api;
    match api.name {
        // Loaded as plain data: the options are not recorded and not replayed.
        "hipModuleLoadDataEx" => {
            for name in ["numOptions", "options", "optionValues"] {
                call.set_named(name, 0);
            }
        }
        "hipModuleGetFunction" => {
            call.leave_out("upstream does not record the kernel's name; launches name theirs");
            return;
        }
        "hipThreadExchangeStreamCaptureMode" => call.leave_out("upstream does not record the capture mode"),
        "hipExtLaunchKernel" | "hipHccModuleLaunchKernel" => {
            call.refuse("upstream records no kernel and no arguments for this entry point");
        }
        _ => {}
    }
    let lacking = api.params.iter().enumerate().find(|&(number, param)| {
        let number = number as u8;
        let is_input = matches!(
            param.role,
            Role::In(_)
                | Role::ArgBytes(_)
                | Role::Struct(..)
                | Role::CString
                | Role::UseArray(..)
                | Role::AnyArray(..)
        );
        is_input
            && call.word(number) != 0
            && !call.has(SectionTag::In, number)
            && !call.has(SectionTag::Text, number)
            && !call.has(SectionTag::Code, number)
            && wanted_bytes(call, number) != Some(0)
    });
    if let Some((_, param)) = lacking {
        let why = format!("upstream records only the address of {}", param.name);
        if is_dispensable(api.name) {
            call.leave_out(&why)
        } else {
            call.refuse(&why)
        }
        return;
    }
    // Kernels are named by launches alone; what names them otherwise is a host symbol or handle of unknown name.
    let names_kernel = api.params.iter().any(|param| {
        matches!(param.role, Role::KernelSymbol | Role::Use(HandleKind::Function))
            && call.words[usize::from(param.word)] != 0
    });
    if names_kernel && api.effect == crate::catalogue::Effect::Host && api.name != "__hipRegisterFunction" {
        call.leave_out("upstream does not record which kernel this is about");
    }
}

/// Calls that name things which launches name again.
fn is_dispensable(name: &str) -> bool {
    matches!(
        name,
        "hipModuleGetFunction"
            | "hipModuleGetGlobal"
            | "hipLibraryGetGlobal"
            | "hipLibraryGetManaged"
            | "hipLibraryGetKernel"
            | "hipGetFuncBySymbol"
            | "__hipRegisterFunction"
            | "__hipRegisterSurface"
            | "__hipRegisterTexture"
            | "hipDeviceGetByPCIBusId"
    )
}
