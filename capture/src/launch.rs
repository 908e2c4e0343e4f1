//! Kernel arguments: gathering those of a launch, by value or withheld.

use hrr_format::record::{MAX_RECORD_BYTES, NO_PARAM, Presence, SectionTag};

use crate::contents::host_memory;
use crate::kernels::{Kernel, is_pointer};
use crate::plan::LaunchShape;
use crate::process::Process;
use crate::sections::{Draft, Source};

/// Where kernel arguments are, and which of them are kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arguments {
    kernel: Option<&'static Kernel>,
    from: ArgumentSource,
    keep: Keep,
}

#[derive(Clone, Copy, Debug)]
enum ArgumentSource {
    /// `kernelParams`: an address for each argument.
    Params(*const *const u8),
    /// The packed buffer of `extra`, and its length.
    Buffer(*const u8, usize),
}

/// Which kernel arguments are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keep {
    All,
    Pointers,
}

/// The kernel and the arguments section of a launch: the record's auxiliary number, and the section if the arguments can
/// be sized.
///
/// # Safety
/// The words are those of a launch, whose argument arrays are as valid as it demands.
#[inline]
pub(crate) unsafe fn launch(process: &'static Process, shape: &LaunchShape, words: &[u64]) -> (u32, Option<Draft>) {
    let kernel = process.kernels().launched_by(shape.kernel, words);
    let place =
        |place: Option<(u8, u8)>| place.map_or((NO_PARAM, 0), |(param, word)| (param, words[usize::from(word)]));
    // SAFETY: by the caller's contract.
    unsafe { arguments(process, kernel, place(shape.kernel_params), place(shape.extra)) }
}

/// As [`launch`], given parameter and address of `kernelParams` and `extra`.
///
/// # Safety
/// As [`launch`].
#[inline]
pub(crate) unsafe fn arguments(
    process: &'static Process,
    kernel: Option<&'static Kernel>,
    kernel_params: (u8, u64),
    extra: (u8, u64),
) -> (u32, Option<Draft>) {
    let aux = kernel.map_or(0, |kernel| kernel.number + 1);
    let keep = if process.blobs().is_some() { Keep::All } else { Keep::Pointers };
    let signature = kernel.and_then(|kernel| kernel.signature.as_ref());
    let draft = |param, presence, len_bytes, source| {
        Some(Draft { tag: SectionTag::KernelArgs, param, presence, len_bytes, at_bytes: 0, source })
    };
    let whole = keep == Keep::All || signature.is_some_and(|signature| signature.only_pointers);
    let presence = if whole { Presence::Present } else { Presence::Withheld };
    // SAFETY: by the caller's contract.
    let packed = if kernel_params.1 == 0 { unsafe { extra_buffer(extra.1) } } else { None };
    if let Some((buffer, len_bytes)) = packed {
        let from = ArgumentSource::Buffer(buffer, len_bytes);
        return (aux, draft(extra.0, presence, len_bytes as u32, Source::Arguments(Arguments { kernel, from, keep })));
    }
    let Some(signature) = signature else {
        if kernel_params.1 != 0 {
            // Relaxed: a count.
            process.unsized_launches().fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        return (aux, None);
    };
    let param = kernel_params.0;
    if kernel_params.1 == 0 {
        let presence = if signature.args.is_empty() { presence } else { Presence::Absent };
        return (aux, draft(param, presence, 0, Source::Zeros));
    }
    let from = ArgumentSource::Params(kernel_params.1 as *const *const u8);
    let source = Source::Arguments(Arguments { kernel, from, keep });
    (aux, draft(param, presence, signature.explicit_bytes, source))
}

/// Address and length of the packed arguments in an `extra` array: `{1, buffer, 2, &length, 3}`.
unsafe fn extra_buffer(extra: u64) -> Option<(*const u8, usize)> {
    /// `HIP_LAUNCH_PARAM_*`.
    const BUFFER_POINTER: u64 = 1;
    const BUFFER_SIZE: u64 = 2;
    const END: u64 = 3;
    /// No more pairs than this are looked at.
    const MAX_PAIRS: usize = 8;
    if extra == 0 {
        return None;
    }
    let extra = extra as *const u64;
    let (mut buffer, mut size) = (0, 0);
    for pair in 0..MAX_PAIRS {
        // SAFETY: the caller vouches for an array that the end marker closes.
        let key = unsafe { extra.add(pair * 2).read_unaligned() };
        if key == END || key == 0 {
            break;
        }
        // SAFETY: as above.
        let value = unsafe { extra.add(pair * 2 + 1).read_unaligned() };
        match key {
            BUFFER_POINTER => buffer = value,
            BUFFER_SIZE => size = value,
            _ => break,
        }
    }
    if buffer == 0 || size == 0 {
        return None;
    }
    // SAFETY: the caller vouches for the address of a length.
    let len_bytes = unsafe { (size as *const usize).read_unaligned() };
    (len_bytes <= MAX_RECORD_BYTES).then_some((buffer as *const u8, len_bytes))
}

/// Tells of every word among the arguments of a launch that may be an address in host memory which devices use.
///
/// # Safety
/// The launch's arguments are readable.
pub(crate) unsafe fn addresses(draft: &Draft, visit: &mut dyn FnMut(u64)) {
    /// Longest arguments that are looked through on the stack.
    const SHORT_BYTES: usize = 1024;
    let Source::Arguments(arguments) = draft.source else { return };
    // All of them, also where only some are recorded.
    let arguments = Arguments { keep: Keep::All, ..arguments };
    let len_bytes = (draft.len_bytes as usize).next_multiple_of(8);
    let (mut short, mut long) = ([0u64; SHORT_BYTES / 8], Vec::new());
    let words = if len_bytes <= SHORT_BYTES {
        &mut short[..len_bytes / 8]
    } else {
        long.resize(len_bytes / 8, 0u64);
        &mut long[..]
    };
    // SAFETY: the room is as long as the section; the arguments are readable by the caller's contract.
    unsafe { arguments.store(words.as_mut_ptr().cast()) };
    // Packed structs hold addresses at any place.
    let pairs = words.iter().zip(words.iter().skip(1).chain([&0]));
    for (&low, &high) in pairs {
        let both = u128::from(low) | u128::from(high) << 64;
        for shift in 0..8 {
            let word = (both >> (shift * 8)) as u64;
            if host_memory::may_hold(word) {
                visit(word);
            }
        }
    }
}

impl Arguments {
    /// Stores the arguments at `payload`, which is zero.
    ///
    /// # Safety
    /// `payload` is writable for the section's length; the launch's arguments are readable.
    #[inline]
    pub(crate) unsafe fn store(&self, payload: *mut u8) {
        let args =
            self.kernel.and_then(|kernel| kernel.signature.as_ref()).map_or(&[][..], |signature| &signature.args);
        // SAFETY: by the caller's contract; every argument ends inside the section, which is as long as the furthest of
        // them, or is checked to.
        unsafe {
            match self.from {
                ArgumentSource::Buffer(buffer, len_bytes) if self.keep == Keep::All => {
                    payload.copy_from_nonoverlapping(buffer, len_bytes);
                }
                ArgumentSource::Buffer(buffer, len_bytes) => {
                    for arg in args.iter().filter(|arg| is_pointer(arg.kind)) {
                        let (offset, size) = (arg.offset as usize, arg.size as usize);
                        if offset + size <= len_bytes {
                            payload.add(offset).copy_from_nonoverlapping(buffer.add(offset), size);
                        }
                    }
                }
                ArgumentSource::Params(params) => {
                    for (index, arg) in args.iter().enumerate() {
                        if self.keep == Keep::Pointers && !is_pointer(arg.kind) {
                            continue;
                        }
                        let from = params.add(index).read_unaligned();
                        if from.is_null() {
                            continue;
                        }
                        let to = payload.add(arg.offset as usize);
                        match arg.size {
                            8 => to.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned()),
                            4 => to.cast::<u32>().write_unaligned(from.cast::<u32>().read_unaligned()),
                            size => to.copy_from_nonoverlapping(from, size as usize),
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::Signature;
    use hrr_format::code_object::{ArgKind, KernelArg};

    fn kernel() -> &'static Kernel {
        let arg = |offset, size, kind| KernelArg { offset, size, kind };
        let args: Box<[KernelArg]> = [
            arg(0, 8, ArgKind::GlobalBuffer),
            arg(8, 4, ArgKind::ByValue),
            arg(16, 24, ArgKind::ByValue),
            arg(40, 1, ArgKind::ByValue),
        ]
        .into();
        let signature = Some(Signature { args, explicit_bytes: 41, only_pointers: false });
        Box::leak(Box::new(Kernel { number: 0, signature }))
    }

    fn stored(from: ArgumentSource, keep: Keep, len_bytes: usize) -> Vec<u8> {
        let mut payload = vec![0; len_bytes.next_multiple_of(8)];
        // SAFETY: the payload is as long as the section; the sources are the test's own.
        unsafe { Arguments { kernel: Some(kernel()), from, keep }.store(payload.as_mut_ptr()) };
        payload.truncate(len_bytes);
        payload
    }

    #[test]
    fn kernel_parameters_are_gathered_to_their_offsets_and_values_withheld() {
        let (pointer, scalar, object, byte) = (0x1122_3344_5566_7788u64, 0xaabb_ccddu32, [7u64, 8, 9], 0x5au8);
        let params = [
            (&raw const pointer).cast::<u8>(),
            (&raw const scalar).cast(),
            (&raw const object).cast(),
            &raw const byte,
        ];
        let from = ArgumentSource::Params(params.as_ptr());
        let mut expected = vec![0u8; 41];
        expected[..8].copy_from_slice(&pointer.to_le_bytes());
        assert_eq!(stored(from, Keep::Pointers, 41), expected);
        expected[8..12].copy_from_slice(&scalar.to_le_bytes());
        for (index, word) in object.iter().enumerate() {
            expected[16 + index * 8..][..8].copy_from_slice(&word.to_le_bytes());
        }
        expected[40] = byte;
        assert_eq!(stored(from, Keep::All, 41), expected);
    }

    #[test]
    fn a_packed_buffer_is_kept_whole_or_its_pointers_only() {
        let buffer: Vec<u8> = (1..=48).collect();
        let len_bytes = buffer.len();
        let extra = [1u64, buffer.as_ptr() as u64, 2, (&raw const len_bytes) as u64, 3];
        // SAFETY: the array is what a launch passes.
        let (address, len) = unsafe { extra_buffer(extra.as_ptr() as u64) }.unwrap();
        let from = ArgumentSource::Buffer(address, len);
        assert_eq!(stored(from, Keep::All, len), buffer);
        let pointers = stored(from, Keep::Pointers, len);
        assert_eq!(pointers[..8], buffer[..8]);
        assert!(pointers[8..].iter().all(|&byte| byte == 0));
        // A buffer shorter than the signature says loses the argument that does not fit.
        assert_eq!(stored(ArgumentSource::Buffer(address, 4), Keep::Pointers, 4), [0; 4]);
        // SAFETY: null is no array.
        assert!(unsafe { extra_buffer(0) }.is_none());
    }
}
