//! Code objects: which kernels an image holds and where their arguments lie.
//!
//! HIP is given code as a bare AMD GPU ELF image, as an offload [`bundle`] with an image for each target, or as a
//! compressed bundle; fat binary sections hold several bundles in a row. [`signatures`] reads all of these, and
//! [`image_len_bytes`] tells how long an image is of which only the address is known.
//!
//! Everything here is input from outside: sizes are checked before they are used, and decompression is bounded.

mod amdgpu_metadata;
pub mod bundle;
mod ccob;
mod elf;
mod error;
mod read_at;
mod signature;

use std::collections::{BTreeMap, HashSet};

pub use bundle::processor;
pub use error::CodeObjectError;
pub use signature::{ArgKind, KernelArg, KernelSignature, explicit_bytes};

use read_at::{ReadAt, Unbounded};

/// Largest kernel argument segment in bytes that is believed; runtimes allow a few KiB.
pub const MAX_KERNARG_BYTES: u32 = 1 << 19;
/// Largest image in bytes that is believed.
pub const MAX_IMAGE_BYTES: usize = 1 << 36;
/// Most bytes that the compressed bundles of one image may unpack to, all together.
pub const MAX_UNCOMPRESSED_BYTES: u64 = 4 << 30;
/// First word of the wrapper that compiled host code passes to `__hipRegisterFatBinary` (`HIPF`).
pub const FAT_BINARY_MAGIC: u32 = 0x4849_5046;

/// An image in a code object, with what its target is called.
#[derive(Clone, Copy, Debug)]
pub struct TargetImage<'a> {
    /// Entry id of the bundle it came from; empty for a bare image.
    pub id: &'a str,
    /// The image.
    pub image: &'a [u8],
}

/// Gives each target's image in a code object to `visit`, bundles unpacked, in order.
///
/// # Errors
/// Why the code object cannot be read, or what `visit` returned.
pub fn visit_targets(
    image: &[u8],
    mut visit: impl FnMut(TargetImage<'_>) -> Result<(), CodeObjectError>,
) -> Result<(), CodeObjectError> {
    if elf::machine(image).is_some() {
        return visit(TargetImage { id: "", image });
    }
    let mut rest = image;
    let mut budget_bytes = MAX_UNCOMPRESSED_BYTES;
    let mut first = true;
    loop {
        let len_bytes = if rest.starts_with(&bundle::MAGIC) {
            visit_bundle(rest, &mut visit)?
        } else if rest.starts_with(&ccob::MAGIC) {
            let (contents, len_bytes) = ccob::decompress(rest, budget_bytes)?;
            budget_bytes -= contents.len() as u64;
            visit_bundle(&contents, &mut visit)?;
            len_bytes
        } else if first {
            return Err(CodeObjectError::Unknown { found: rest[..rest.len().min(8)].to_vec() });
        } else {
            // What follows the last bundle of a section is another section's.
            return Ok(());
        };
        first = false;
        // Bundles in one section are padded to its alignment.
        rest = rest.get(len_bytes..).unwrap_or_default();
        let padding = rest.iter().position(|&byte| byte != 0).unwrap_or(rest.len());
        rest = &rest[padding..];
        if rest.is_empty() {
            return Ok(());
        }
    }
}

fn visit_bundle(
    bytes: &[u8],
    visit: &mut impl FnMut(TargetImage<'_>) -> Result<(), CodeObjectError>,
) -> Result<usize, CodeObjectError> {
    let (entries, len_bytes) = bundle::parse(bytes)?;
    for entry in entries {
        visit(TargetImage { id: entry.id, image: entry.image })?;
    }
    Ok(len_bytes)
}

/// The kernels of all AMD GPU images in a code object, each name once.
///
/// A code object without such images (host code, PTX) has none. Where a kernel stands in several images, as it does in
/// a bundle for several GPUs, its arguments are the same in each and the first is taken.
///
/// # Errors
/// Why the code object cannot be read. An image whose metadata is malformed is passed over as long as another image
/// of the code object has kernels.
pub fn signatures(image: &[u8]) -> Result<Vec<KernelSignature>, CodeObjectError> {
    let mut found = Vec::new();
    let mut names = HashSet::new();
    let mut malformed = None;
    let mut places = HashSet::new();
    visit_targets(image, |target| {
        // Entries may share an image, and a crafted bundle could have thousands that do.
        let is_new = places.insert((target.image.as_ptr() as usize, target.image.len()));
        if !is_new || elf::machine(target.image) != Some(elf::MACHINE_AMDGPU) {
            return Ok(());
        }
        let note = elf::note(target.image, amdgpu_metadata::NOTE_NAME, amdgpu_metadata::NOTE_KIND);
        match note.and_then(|note| note.map_or(Ok(Vec::new()), amdgpu_metadata::parse)) {
            Ok(kernels) => {
                found.extend(kernels.into_iter().filter(|kernel| names.insert(kernel.name.clone())));
            }
            Err(error) => malformed = malformed.take().or(Some(error)),
        }
        Ok(())
    })?;
    match malformed {
        Some(error) if found.is_empty() => Err(error),
        _ => Ok(found),
    }
}

/// Names of the variables of all ELF images in a code object, each once, in order. An image that cannot be read has none.
///
/// Left out are kernel descriptors, what compilers add of their own, what cannot be written to, and variables whose value is
/// for a loader to know, since it is true at one place in memory only: addresses that it stores, and the pointers of managed
/// variables.
pub fn variables(image: &[u8]) -> Vec<String> {
    /// Suffix of what a managed variable's pointer, which has the plain name, points to at first.
    const MANAGED: &str = ".managed";
    let mut found = BTreeMap::new();
    // What is malformed ends the search; what was found until then counts.
    let _ = visit_targets(image, |target| {
        for object in elf::objects(target.image) {
            *found.entry(object.name).or_insert(true) &= object.is_plain;
        }
        Ok(())
    });
    let own = |name: &str| name.ends_with(".kd") || name.ends_with(MANAGED) || name.starts_with("__");
    let is_managed = |name: &str| found.contains_key(&format!("{name}{MANAGED}"));
    let wanted = found.iter().filter(|&(name, &is_plain)| is_plain && !own(name) && !is_managed(name));
    wanted.map(|(name, _)| name.clone()).collect()
}

/// The kernels that a metadata note of an AMD GPU image describes.
///
/// # Errors
/// Why the note cannot be read.
pub fn metadata_signatures(note: &[u8]) -> Result<Vec<KernelSignature>, CodeObjectError> {
    amdgpu_metadata::parse(note)
}

/// Length in bytes of the image at the start of `bytes`, from its headers: to the furthest byte that a bundle's entries
/// or an ELF file's tables name. `None` where it is no image, or of a form that does not say.
pub fn image_len(bytes: &[u8]) -> Option<usize> {
    len_of(bytes)
}

/// As [`image_len`], for an image of which only the address is known, as HIP's module and fat binary calls take it.
///
/// # Safety
/// * `image` is null, or the address of a whole code object image as those calls want it: at least its first 8 bytes
///   can be read and, where they are those of a bundle or ELF file, so can everything its headers describe.
/// * The image is not written while the call lasts.
pub unsafe fn image_len_bytes(image: *const u8) -> Option<usize> {
    if image.is_null() {
        return None;
    }
    // SAFETY: what this function's caller promised is what `Unbounded::new` asks for.
    len_of(&unsafe { Unbounded::new(image) })
}

fn len_of<B: ReadAt + ?Sized>(bytes: &B) -> Option<usize> {
    // Eight bytes tell the forms apart, and are the most that may be read before the form is known.
    let start: [u8; 8] = bytes.read(0)?;
    let len_bytes = if start.starts_with(&elf::MAGIC) {
        elf::len_bytes(bytes)?
    } else if start.starts_with(&ccob::MAGIC) {
        ccob::len_bytes(bytes)?
    } else if bundle::MAGIC.starts_with(&start) && bytes.read(0)? == bundle::MAGIC {
        bundle::len_bytes(bytes)?
    } else {
        return None;
    };
    (len_bytes <= MAX_IMAGE_BYTES).then_some(len_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code_object(kernels: &[amdgpu_metadata::tests::Described<'_>]) -> Vec<u8> {
        elf::tests::build(elf::MACHINE_AMDGPU, &[(b"AMDGPU", 32, &amdgpu_metadata::tests::build(kernels))])
    }

    fn names(image: &[u8]) -> Vec<String> {
        signatures(image).unwrap().into_iter().map(|kernel| kernel.name).collect()
    }

    fn two_targets() -> Vec<u8> {
        bundle::tests::build(&[
            ("host-x86_64-unknown-linux-gnu-", b""),
            ("hipv4-amdgcn-amd-amdhsa--gfx942", &code_object(&[("saxpy", &[(0, 4, "by_value")])])),
            ("hipv4-amdgcn-amd-amdhsa--gfx90a", &code_object(&[("saxpy", &[]), ("only_90a", &[])])),
            ("hipv4-nvptx64-nvidia-cuda-unknown-sm_90", b".version 8.0"),
        ])
    }

    /// Images of every form, for the tests of damaged ones.
    fn images() -> Vec<Vec<u8>> {
        let bundle = two_targets();
        let mut section = bundle.clone();
        section.extend(ccob::tests::build(3, 1, &bundle));
        let mut images =
            vec![code_object(&[("saxpy", &[(0, 4, "by_value"), (8, 8, "global_buffer")])]), bundle, section];
        for version in 1..=3 {
            images.extend([0, 1].map(|method| ccob::tests::build(version, method, &two_targets())));
        }
        images
    }

    proptest::proptest! {
        #[test]
        fn damaged_images_are_read_or_refused(
            form in 0usize..9,
            changes in proptest::collection::vec((proptest::prelude::any::<proptest::sample::Index>(), 0u8..), 0..6),
            cut in proptest::prelude::any::<proptest::sample::Index>(),
        ) {
            let mut image = images().swap_remove(form);
            for (at, value) in changes {
                let at = at.index(image.len());
                image[at] = value;
            }
            let cut = cut.index(image.len() * 2).min(image.len());
            let _ = signatures(&image[..cut]);
            let _ = image_len(&image[..cut]);
        }

        #[test]
        fn random_bytes_after_any_magic_are_read_or_refused(
            magic in 0usize..4,
            bytes in proptest::collection::vec(0u8.., 0..400),
        ) {
            let magic: &[u8] = [&b""[..], &bundle::MAGIC, &ccob::MAGIC, &elf::MAGIC][magic];
            let image = [magic, &bytes].concat();
            let _ = signatures(&image);
            let _ = image_len(&image);
            let _ = amdgpu_metadata::parse(&bytes);
        }
    }

    #[test]
    fn variables_are_those_that_a_program_could_have_written_to() {
        /// Section headers: null, `.dynsym`, its names, writable data, constants, relocations.
        const SECTIONS: [(u32, u64, &[u8]); 6] = [
            (0, 0, b""),
            (11, 0, b""),
            (3, 0, b"\0plain\0constant\0pointer\0k.kd\0m\0m.managed\0local\0elsewhere\0"),
            (1, 1, b""),
            (1, 0, b""),
            (4, 0, &[8, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        ];
        // Name, kind and binding, section, address; 16 bytes each.
        let symbols: [(&str, u8, u16, u64); 8] = [
            ("plain", 0x11, 3, 0x1000),
            ("constant", 0x11, 4, 0x1100),
            ("pointer", 0x11, 3, 0x1200),
            ("k.kd", 0x11, 3, 0x1300),
            ("m", 0x11, 3, 0x1400),
            ("m.managed", 0x11, 3, 0x1500),
            ("local", 0x01, 3, 0x1600),
            ("elsewhere", 0x11, 0, 0),
        ];
        let names = SECTIONS[2].2;
        let mut table = Vec::new();
        for (name, info, section, address) in symbols {
            let wanted = [b"\0", name.as_bytes(), b"\0"].concat();
            let at = names.windows(wanted.len()).position(|found| found == wanted).unwrap() as u32 + 1;
            table.extend(at.to_le_bytes());
            table.extend([info, 0]);
            table.extend(section.to_le_bytes());
            table.extend(address.to_le_bytes());
            table.extend(16u64.to_le_bytes());
        }
        let mut file = vec![0u8; 64];
        file[..6].copy_from_slice(&elf::MAGIC);
        file[18..20].copy_from_slice(&elf::MACHINE_AMDGPU.to_le_bytes());
        file[58..60].copy_from_slice(&64u16.to_le_bytes());
        file[60..62].copy_from_slice(&6u16.to_le_bytes());
        let mut headers = Vec::new();
        for (index, (kind, flags, contents)) in SECTIONS.into_iter().enumerate() {
            let contents = if index == 1 { &table } else { contents };
            let mut header = [0u8; 64];
            header[4..8].copy_from_slice(&kind.to_le_bytes());
            header[8..16].copy_from_slice(&flags.to_le_bytes());
            header[24..32].copy_from_slice(&(file.len() as u64).to_le_bytes());
            header[32..40].copy_from_slice(&(contents.len() as u64).to_le_bytes());
            header[40..44].copy_from_slice(&2u32.to_le_bytes());
            headers.extend(header);
            file.extend(contents);
        }
        let at = file.len() as u64;
        file[40..48].copy_from_slice(&at.to_le_bytes());
        file.extend(headers);
        assert_eq!(variables(&file), ["plain"]);
        for cut in 0..file.len() {
            let _ = variables(&file[..cut]);
        }
    }

    #[test]
    fn a_bare_image_gives_its_kernels() {
        let kernels = signatures(&code_object(&[("saxpy", &[(0, 4, "by_value"), (8, 8, "global_buffer")])])).unwrap();
        assert_eq!(kernels.len(), 1);
        assert_eq!((kernels[0].name.as_str(), kernels[0].explicit_bytes()), ("saxpy", 16));
    }

    #[test]
    fn kernels_of_all_targets_are_merged_by_name() {
        let kernels = signatures(&two_targets()).unwrap();
        assert_eq!(kernels.iter().map(|kernel| kernel.name.as_str()).collect::<Vec<_>>(), ["saxpy", "only_90a"]);
        assert_eq!(kernels[0].args.len(), 1);
    }

    #[test]
    fn bundles_in_a_row_compressed_or_not_are_all_read() {
        let mut section = two_targets();
        section.resize(section.len().next_multiple_of(4096), 0);
        let second = bundle::tests::build(&[("hip-amdgcn-amd-amdhsa--gfx906", &code_object(&[("second", &[])]))]);
        section.extend(ccob::tests::build(2, 1, &second));
        section.extend([0; 7]);
        let third = bundle::tests::build(&[("hip-amdgcn-amd-amdhsa-gfx900-", &code_object(&[("third", &[])]))]);
        section.extend(ccob::tests::build(3, 0, &third));
        section.extend(b"\0\0not a bundle");
        assert_eq!(names(&section), ["saxpy", "only_90a", "second", "third"]);
        assert_eq!(image_len(&section), Some(two_targets().len()));
    }

    #[test]
    fn images_without_amd_gpu_code_have_no_kernels() {
        let host = elf::tests::build(62, &[(b"AMDGPU", 32, b"\x80")]);
        assert_eq!(signatures(&host), Ok(vec![]));
        let ptx = bundle::tests::build(&[("hipv4-nvptx64-nvidia-cuda--sm_90", b".version"), ("hipv4-x86_64--", &host)]);
        assert_eq!(signatures(&ptx), Ok(vec![]));
        assert!(matches!(signatures(b"nothing of the kind"), Err(CodeObjectError::Unknown { .. })));
        assert!(matches!(signatures(b""), Err(CodeObjectError::Unknown { .. })));
    }

    #[test]
    fn malformed_metadata_is_an_error_only_where_nothing_else_has_kernels() {
        let bad = elf::tests::build(elf::MACHINE_AMDGPU, &[(b"AMDGPU", 32, b"\x81")]);
        assert!(matches!(signatures(&bad), Err(CodeObjectError::Metadata { .. })));
        let mixed = bundle::tests::build(&[("a", &bad), ("b", &code_object(&[("good", &[])]))]);
        assert_eq!(names(&mixed), ["good"]);
    }

    #[test]
    fn lengths_follow_from_headers_by_slice_and_by_address() {
        let bundle = two_targets();
        for image in [
            ccob::tests::build(1, 0, &bundle),
            ccob::tests::build(1, 1, &bundle),
            code_object(&[("saxpy", &[])]),
            bundle.clone(),
            ccob::tests::build(2, 1, &bundle),
            ccob::tests::build(3, 0, &bundle),
        ] {
            assert_eq!(image_len(&image), Some(image.len()));
            // SAFETY: the vector holds a whole image and lives through the call.
            assert_eq!(unsafe { image_len_bytes(image.as_ptr()) }, Some(image.len()));
        }
        // SAFETY: null is allowed, and eight readable bytes of no known form are too.
        unsafe {
            assert_eq!(image_len_bytes(std::ptr::null()), None);
            assert_eq!(image_len_bytes(b"#version".as_ptr()), None);
        }
    }
}
