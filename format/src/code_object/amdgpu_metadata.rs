//! The `NT_AMDGPU_METADATA` note: MessagePack that describes each kernel of a code object.
//!
//! ```text
//! amdhsa.kernels: [ { .name, .symbol, .kernarg_segment_size, .args: [ { .offset, .size, .value_kind } ] } ]
//! ```
//!
//! These keys are the same in code objects of version 3 to 6. Version 2 carries YAML under another note type and has no
//! signatures here.

use rmpv::ValueRef;
use rmpv::decode::read_value_ref_with_max_depth;

use super::error::CodeObjectError;
use super::signature::{ArgKind, KernelArg, KernelSignature};

/// Name of the note.
pub(super) const NOTE_NAME: &[u8] = b"AMDGPU";
/// Type of the note (`NT_AMDGPU_METADATA`).
pub(super) const NOTE_KIND: u32 = 32;
/// Deepest nesting that is read; the metadata nests six levels, and the reader counts two for each.
const MAX_DEPTH: usize = 32;

fn failed(reason: impl Into<String>) -> CodeObjectError {
    CodeObjectError::Metadata { reason: reason.into() }
}

/// Reads the note's contents.
///
/// # Errors
/// [`CodeObjectError::Metadata`].
pub(super) fn parse(mut note: &[u8]) -> Result<Vec<KernelSignature>, CodeObjectError> {
    let root = read_value_ref_with_max_depth(&mut note, MAX_DEPTH).map_err(|error| failed(error.to_string()))?;
    let Some(kernels) = get(&root, "amdhsa.kernels") else {
        return Ok(Vec::new());
    };
    array(kernels, "amdhsa.kernels")?.iter().map(kernel).collect()
}

fn kernel(value: &ValueRef<'_>) -> Result<KernelSignature, CodeObjectError> {
    let text = |key: &str| get(value, key).and_then(ValueRef::as_str);
    let name = text(".name").ok_or_else(|| failed("a kernel has no name"))?.to_owned();
    let symbol = text(".symbol").map_or_else(|| format!("{name}.kd"), str::to_owned);
    let kernarg_bytes = number(value, ".kernarg_segment_size", &name)?;
    let mut args = Vec::new();
    if let Some(list) = get(value, ".args") {
        for arg in array(list, ".args")? {
            let value_kind = get(arg, ".value_kind").and_then(ValueRef::as_str).unwrap_or_default();
            let Some(kind) = ArgKind::explicit(value_kind) else { continue };
            args.push(KernelArg { offset: number(arg, ".offset", &name)?, size: number(arg, ".size", &name)?, kind });
        }
    }
    Ok(KernelSignature { name, symbol, kernarg_bytes, args })
}

/// A number of bytes that no kernel exceeds.
fn number(value: &ValueRef<'_>, key: &str, kernel: &str) -> Result<u32, CodeObjectError> {
    get(value, key)
        .and_then(|found| if let ValueRef::Integer(number) = found { number.as_u64() } else { None })
        .and_then(|number| u32::try_from(number).ok())
        .filter(|&number| number <= super::MAX_KERNARG_BYTES)
        .ok_or_else(|| failed(format!("{key} of kernel {kernel} is missing or absurd")))
}

fn array<'a, 'b>(value: &'b ValueRef<'a>, key: &str) -> Result<&'b [ValueRef<'a>], CodeObjectError> {
    match value {
        ValueRef::Array(items) => Ok(items),
        _ => Err(failed(format!("{key} is not a list"))),
    }
}

fn get<'a, 'b>(value: &'b ValueRef<'a>, key: &str) -> Option<&'b ValueRef<'a>> {
    let ValueRef::Map(pairs) = value else { return None };
    pairs.iter().find(|(name, _)| name.as_str() == Some(key)).map(|(_, found)| found)
}

/// `ValueRef` has no accessor by key of its own for text that may not be UTF-8.
trait AsStr<'a> {
    fn as_str(&self) -> Option<&'a str>;
}

impl<'a> AsStr<'a> for ValueRef<'a> {
    fn as_str(&self) -> Option<&'a str> {
        match self {
            ValueRef::String(text) => text.into_str(),
            _ => None,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use rmpv::Value;

    use super::*;

    /// A kernel for [`build`]: its name and arguments.
    pub(in super::super) type Described<'a> = (&'a str, &'a [(u32, u32, &'a str)]);

    /// The metadata of kernels, each with its arguments (`offset`, `size`, `value_kind`).
    pub(in super::super) fn build(kernels: &[Described<'_>]) -> Vec<u8> {
        let map = |pairs: Vec<(&str, Value)>| {
            Value::Map(pairs.into_iter().map(|(key, value)| (Value::from(key), value)).collect())
        };
        let kernels = kernels.iter().map(|(name, args)| {
            let args = args.iter().map(|&(offset, size, kind)| {
                map(vec![
                    (".offset", offset.into()),
                    (".size", size.into()),
                    (".value_kind", kind.into()),
                    (".actual_access", "read_only".into()),
                ])
            });
            map(vec![
                (".args", Value::Array(args.collect())),
                (".kernarg_segment_size", 280.into()),
                (".name", (*name).into()),
                (".symbol", format!("{name}.kd").into()),
            ])
        });
        let root = map(vec![
            ("amdhsa.kernels", Value::Array(kernels.collect())),
            ("amdhsa.version", Value::Array(vec![1.into(), 2.into()])),
        ]);
        let mut bytes = Vec::new();
        rmpv::encode::write_value(&mut bytes, &root).unwrap();
        bytes
    }

    /// `{"amdhsa.kernels": [{".name": "k", ".kernarg_segment_size": 8, ".args": [{".offset": 0, ".size": 8,
    /// ".value_kind": "global_buffer"}]}]}` byte by byte.
    const BY_HAND: &[u8] =
        b"\x81\xaeamdhsa.kernels\x91\x83\xa5.name\xa1k\xb5.kernarg_segment_size\x08\xa5.args\x91\x83\
        \xa7.offset\x00\xa5.size\x08\xab.value_kind\xadglobal_buffer";

    #[test]
    fn metadata_reads_as_its_bytes_say() {
        let expected = KernelSignature {
            name: "k".into(),
            symbol: "k.kd".into(),
            kernarg_bytes: 8,
            args: vec![KernelArg { offset: 0, size: 8, kind: ArgKind::GlobalBuffer }],
        };
        assert_eq!(parse(BY_HAND), Ok(vec![expected]));
        for cut in 0..BY_HAND.len() {
            assert!(parse(&BY_HAND[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn hidden_arguments_are_left_out() {
        let bytes = build(&[("a", &[(0, 4, "by_value"), (8, 8, "hidden_global_offset_x")]), ("b", &[])]);
        let kernels = parse(&bytes).unwrap();
        assert_eq!(kernels[0].args, [KernelArg { offset: 0, size: 4, kind: ArgKind::ByValue }]);
        assert_eq!((kernels[1].name.as_str(), kernels[1].args.len(), kernels[1].kernarg_bytes), ("b", 0, 280));
    }

    #[test]
    fn what_no_compiler_writes_is_refused() {
        assert!(parse(b"\x81\xaeamdhsa.kernels\x05").unwrap_err().to_string().contains("not a list"));
        assert!(parse(b"\x81\xaeamdhsa.kernels\x91\x80").unwrap_err().to_string().contains("no name"));
        let absurd = build(&[("a", &[(u32::MAX, 4, "by_value")])]);
        assert!(parse(&absurd).unwrap_err().to_string().contains(".offset of kernel a"));
        // Nested deeper than any metadata, and an array that counts 2^32 - 1 items and has none.
        assert!(parse(&[0x91; 4096]).is_err());
        assert!(parse(b"\xdd\xff\xff\xff\xff").is_err());
        assert_eq!(parse(b"\x80"), Ok(vec![]));
    }
}
