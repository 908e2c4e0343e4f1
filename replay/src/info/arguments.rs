//! A recorded call as text: its arguments by the catalogue's roles, with what the record holds of the memory they point
//! to.
//!
//! Names and strings come out of an archive, so whatever could steer a terminal is escaped.

use std::borrow::Cow;
use std::fmt::Write;

use hrr_format::abi::{Dim3, Extent, PitchedPtr, Words};
use hrr_format::archive::Archive;
use hrr_format::catalogue::{Param, Returns, Role, STRUCTS};
use hrr_format::code_object::{ArgKind, KernelArg};
use hrr_format::hip_error::HipError;
use hrr_format::kernel_table::Kernel;
use hrr_format::record::{BlobRef, Presence, Record, Section, SectionTag};

/// Longest string in characters that is printed whole.
const TEXT_CHARS: usize = 120;
/// Most elements of an array that are printed.
const ELEMENTS: usize = 8;

/// `hipMemcpyKind` by value.
const COPY_KINDS: [&str; 5] = ["HostToHost", "HostToDevice", "DeviceToHost", "DeviceToDevice", "Default"];
/// `hipStream_t` values that name a stream by themselves.
const NAMED_STREAMS: [&str; 3] = ["default", "legacy", "per-thread"];

/// One argument of a call.
#[derive(Debug)]
pub(super) struct Argument {
    /// Parameter name, or what the value is where it belongs to no parameter.
    pub(super) name: &'static str,
    /// Its argument words.
    pub(super) words: Vec<u64>,
    /// Value and what it points to.
    pub(super) text: String,
}

/// Text from an archive with control characters escaped.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if text.chars().any(char::is_control) { text.escape_debug().to_string().into() } else { text.into() }
}

/// The kernel a launch record names.
pub(crate) fn kernel<'a>(archive: &'a Archive, record: &Record<'_>) -> Option<&'a Kernel> {
    archive.kernels().get(record.kernel()?)
}

/// `name(argument=value, ...)`, with the kernel's name behind that of a launch.
pub(crate) fn call_text(archive: &Archive, record: &Record<'_>) -> String {
    let mut text = printable(archive.api(record.api()).name).into_owned();
    if let Some(kernel) = kernel(archive, record) {
        let _ = write!(text, "[{}]", printable(&kernel.name));
    }
    text.push('(');
    for (position, argument) in arguments(archive, record).iter().enumerate() {
        let separator = if position == 0 { "" } else { ", " };
        let _ = match argument.name {
            "" => write!(text, "{separator}{}", argument.text),
            name => write!(text, "{separator}{name}={}", argument.text),
        };
    }
    text.push(')');
    if record.polls() > 1 {
        let _ = write!(text, " asked {} times", record.polls());
    }
    text
}

/// What the call returned; empty for calls that return nothing.
pub(super) fn return_text(archive: &Archive, record: &Record<'_>) -> String {
    match archive.api(record.api()).known.map(|api| api.ret) {
        Some(Returns::Void) => String::new(),
        Some(Returns::Int) => record.ret().to_string(),
        Some(Returns::Pointer | Returns::ChannelDesc) => record
            .section_tagged(SectionTag::Return)
            .and_then(|section| number(section.payload))
            .map_or_else(|| "?".to_owned(), pointer),
        Some(Returns::Error) | None => HipError(record.ret()).to_string(),
    }
}

/// The arguments of a call. Those of an API that this build does not know are its bare words.
pub(super) fn arguments(archive: &Archive, record: &Record<'_>) -> Vec<Argument> {
    let Some(api) = archive.row_of(record) else {
        return record.words().map(|word| Argument { name: "", words: vec![word], text: hex(word) }).collect();
    };
    let mut arguments: Vec<Argument> = api
        .params
        .iter()
        .map(|param| {
            let first = usize::from(param.word);
            let words: Vec<u64> = (first..first + usize::from(param.words)).map(|word| record.word(word)).collect();
            Argument { name: param.name, text: value(param, &words), words }
        })
        .collect();
    for section in record.sections().map_while(Result::ok) {
        match (api.params.get(usize::from(section.param)), arguments.get_mut(usize::from(section.param))) {
            (Some(param), Some(argument)) => append(archive, record, param, &section, &mut argument.text),
            _ => arguments.extend(without_parameter(archive, &section)),
        }
    }
    arguments
}

/// The value of an argument by itself.
fn value(param: &Param, words: &[u64]) -> String {
    let &[word] = words else {
        return by_value_struct(param, words);
    };
    match param.ctype {
        "float" => f32::load(words).to_string(),
        "hipError_t" => HipError(word as i32).to_string(),
        "hipMemcpyKind" => named(&COPY_KINDS, word).unwrap_or_else(|| (word as i32).to_string()),
        "hipStream_t" => named(&NAMED_STREAMS, word).unwrap_or_else(|| hex(word)),
        _ if is_address(param) => pointer(word),
        // Enumerations are `int` to the ABI, and so is everything that can be negative.
        "int" => (word as i32).to_string(),
        kind if kind.starts_with("hip") || kind.starts_with("enum") => (word as i32).to_string(),
        _ if param.name.to_ascii_lowercase().contains("flags") => hex(word),
        _ => word.to_string(),
    }
}

fn is_address(param: &Param) -> bool {
    param.ctype.ends_with('*') || param.ctype == "hipDeviceptr_t" || !matches!(param.role, Role::Scalar | Role::Ordinal)
}

fn by_value_struct(param: &Param, words: &[u64]) -> String {
    let ctype = param.ctype.trim_start_matches("struct ");
    match (ctype, words.len()) {
        ("dim3", Dim3::COUNT) => {
            let Dim3 { x, y, z } = Dim3::load(words);
            format!("({x},{y},{z})")
        }
        ("hipExtent", Extent::COUNT) => {
            let Extent { width, height, depth } = Extent::load(words);
            format!("({width},{height},{depth})")
        }
        ("hipPitchedPtr", PitchedPtr::COUNT) => {
            let PitchedPtr { ptr, pitch, xsize, ysize } = PitchedPtr::load(words);
            format!("{{ptr={}, pitch={pitch}, xsize={xsize}, ysize={ysize}}}", pointer(ptr))
        }
        _ => list(words.iter().copied(), words.len(), hex),
    }
}

/// Appends what a section tells of the memory that an argument points to.
fn append(archive: &Archive, record: &Record<'_>, param: &Param, section: &Section<'_>, text: &mut String) {
    if section.presence == Presence::Absent {
        return;
    }
    match section.tag {
        SectionTag::Text => *text = quoted(section.payload),
        SectionTag::BlobIn | SectionTag::BlobOut | SectionTag::Code => {
            text.push_str(&contents(archive, section));
        }
        SectionTag::KernelArgs => {
            let args = kernel(archive, record).and_then(|kernel| kernel.args.as_deref());
            text.push_str(&kernel_arguments(args, section));
        }
        SectionTag::In | SectionTag::Out if section.presence == Presence::Withheld => {
            let _ = write!(text, "<withheld, {} bytes>", section.payload.len());
        }
        SectionTag::In => text.push_str(&pointee(param, section.payload)),
        SectionTag::Out => {
            text.push_str("->");
            text.push_str(&pointee(param, section.payload));
        }
        SectionTag::Names => {
            let names: Vec<&[u8]> = section.names().collect();
            let _ = write!(text, " named {}", list(names.iter(), names.len(), |name| quoted(name)));
        }
        SectionTag::Return
        | SectionTag::GraphHostIn
        | SectionTag::GraphHostOut
        | SectionTag::GraphHostRows
        | SectionTag::File
        | SectionTag::Note
        | SectionTag::HostRanges
        | SectionTag::HostBefore => {}
    }
}

/// Sections that belong to the call as a whole.
fn without_parameter(archive: &Archive, section: &Section<'_>) -> Option<Argument> {
    let name = match section.tag {
        SectionTag::GraphHostIn => "reads",
        SectionTag::GraphHostOut => "writes",
        _ => return None,
    };
    let address = section.host_address()?;
    Some(Argument { name, words: vec![address], text: pointer(address) + &contents(archive, section) })
}

/// Bytes that a pointer pointed to.
fn pointee(param: &Param, payload: &[u8]) -> String {
    let ctype = param.ctype;
    match &param.role {
        Role::Struct(layout, _) | Role::OutStruct(layout, _) => match structure(*layout, payload) {
            Some(text) => text,
            None => format!("<{} bytes>", payload.len()),
        },
        Role::UseArray(..) | Role::GetArray(..) | Role::GetArrayAt(..) | Role::AnyArray(..) => {
            let words = payload.chunks_exact(8).filter_map(number);
            list(words, payload.len() / 8, pointer)
        }
        Role::Out(_) if ctype.starts_with("dim3") && payload.len() == 12 => {
            let [x, y, z] = [0, 4, 8].map(|at| number(&payload[at..at + 4]).unwrap_or_default());
            format!("({x},{y},{z})")
        }
        Role::In(_) | Role::Out(_) | Role::InOut(_) => match (payload.len(), number(payload)) {
            (1..=4, Some(value)) => value.to_string(),
            // Eight bytes may be a size or an address: small numbers are rarely addresses.
            (8, Some(value)) if value < 1 << 32 => value.to_string(),
            (8, Some(value)) => hex(value),
            _ => format!("<{} bytes>", payload.len()),
        },
        _ => match (payload.len(), number(payload)) {
            (1..=8, Some(value)) => pointer(value),
            _ => format!("<{} bytes>", payload.len()),
        },
    }
}

/// The addresses, handles and ordinals in the first struct of a known layout.
fn structure(layout: u16, payload: &[u8]) -> Option<String> {
    let layout = STRUCTS.get(usize::from(layout))?;
    let mut text = String::from("{");
    for field in layout.fields {
        let at = field.offset_bytes as usize;
        if field.when.is_some_and(|when| !when.holds(payload)) {
            continue;
        }
        let (len_bytes, is_ordinal) = if field.role == Role::Ordinal { (4, true) } else { (8, false) };
        let Some(value) = payload.get(at..at + len_bytes).and_then(number) else { continue };
        let separator = if text.len() == 1 { "" } else { ", " };
        let shown = if is_ordinal { (value as i32).to_string() } else { pointer(value) };
        let _ = write!(text, "{separator}{}={shown}", field.name);
    }
    text.push('}');
    Some(text)
}

/// Kernel arguments by their declaration: addresses and small values as numbers.
fn kernel_arguments(args: Option<&[KernelArg]>, section: &Section<'_>) -> String {
    let Some(args) = args else {
        return format!("<{} bytes>", section.payload.len());
    };
    list(args.iter(), args.len(), |arg| {
        let end = arg.offset.saturating_add(arg.size) as usize;
        match section.payload.get(arg.offset as usize..end) {
            None => "cut off".to_owned(),
            // Without contents, addresses are all that is kept.
            Some(_) if section.presence == Presence::Withheld && arg.kind != ArgKind::GlobalBuffer => {
                "withheld".to_owned()
            }
            Some(bytes) => number(bytes).map_or_else(|| format!("<{} bytes>", bytes.len()), hex),
        }
    })
}

/// A reference to contents: which, how long, and whether they are there.
fn contents(archive: &Archive, section: &Section<'_>) -> String {
    let Some(BlobRef { number, size_bytes }) = section.blob() else {
        return String::new();
    };
    let (store, what) = match section.tag {
        SectionTag::Code => (archive.code_objects(), "code object"),
        _ => (archive.blobs(), "blob"),
    };
    let is_result = matches!(section.tag, SectionTag::BlobOut | SectionTag::GraphHostOut);
    if section.presence == Presence::Withheld || number == BlobRef::WITHHELD {
        format!("<withheld, {size_bytes} bytes>")
    } else if store.index().get(number).is_some() {
        format!("<{what} {number}, {size_bytes} bytes>")
    } else if is_result {
        format!("<{what} {number}, {size_bytes} bytes, never observed>")
    } else {
        format!("<{what} {number}, {size_bytes} bytes, missing>")
    }
}

fn quoted(payload: &[u8]) -> String {
    let text = String::from_utf8_lossy(payload);
    match text.char_indices().nth(TEXT_CHARS) {
        Some((cut, _)) => format!("{:?}...", &text[..cut]),
        None => format!("{text:?}"),
    }
}

fn list<T>(items: impl Iterator<Item = T>, count: usize, show: impl Fn(T) -> String) -> String {
    let mut shown: Vec<String> = items.take(ELEMENTS).map(show).collect();
    if count > ELEMENTS {
        shown.push(format!("{} more", count - ELEMENTS));
    }
    format!("[{}]", shown.join(", "))
}

fn named(names: &[&str], word: u64) -> Option<String> {
    names.get(usize::try_from(word).ok()?).map(|&name| name.to_owned())
}

fn hex(word: u64) -> String {
    format!("{word:#x}")
}

fn pointer(word: u64) -> String {
    if word == 0 { "null".to_owned() } else { hex(word) }
}

/// A little-endian number of at most eight bytes.
fn number(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() || bytes.len() > 8 {
        return None;
    }
    let mut raw = [0; 8];
    raw[..bytes.len()].copy_from_slice(bytes);
    Some(u64::from_le_bytes(raw))
}
