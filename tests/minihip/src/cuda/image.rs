//! Finding what an NVIDIA GPU can run in a bundle: PTX, or a cubin, of an architecture the device has.

use crate::bundle;
use crate::error::{HipError, HipResult};
use std::borrow::Cow;

/// `e_machine` of cubins.
const MACHINE_CUDA: u16 = 190;
const ELF_MAGIC: &[u8] = b"\x7fELF";

/// The `NN` of `sm_NN` in the id of a bundle entry for NVIDIA GPUs.
fn architecture(id: &[u8]) -> Option<u32> {
    let id = std::str::from_utf8(id).ok()?;
    if !id.starts_with("hip") || !id.contains("nvptx64") {
        return None;
    }
    let digits: String = id.rsplit_once("sm_")?.1.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// Whether code is compiled, and not text.
pub(super) fn is_elf(code: &[u8]) -> bool {
    code.starts_with(ELF_MAGIC)
}

/// All code for a device of compute capability `capability` (90 for 9.0) in `image`, several parts where it was linked, each
/// terminated as the driver wants text to be. Fails with `hipErrorNoBinaryForGpu` where there is none.
pub(super) fn find_all_code(image: &[u8], capability: u32) -> HipResult<Vec<Vec<u8>>> {
    let image =
        if bundle::is_compressed(image) { Cow::Owned(bundle::decompress(image)?) } else { Cow::Borrowed(image) };
    if bundle::is_bundle(&image) {
        let fitting: Vec<_> = bundle::entries(&image)?
            .into_iter()
            .filter(|entry| entry.len_bytes > 0)
            .filter_map(|entry| Some((architecture(entry.id).filter(|found| *found <= capability)?, entry)))
            .collect();
        let best = fitting.iter().map(|(found, _)| *found).max().ok_or(HipError::NO_BINARY_FOR_GPU)?;
        let parts = fitting.iter().filter(|(found, _)| *found == best);
        return parts.map(|(_, entry)| Ok(terminated(entry.code(&image)?))).collect();
    }
    match image.get(18..20) {
        Some(machine) if image.starts_with(ELF_MAGIC) && machine == MACHINE_CUDA.to_le_bytes() => {
            Ok(vec![image.into_owned()])
        }
        Some(_) if image.starts_with(ELF_MAGIC) => Err(HipError::NO_BINARY_FOR_GPU),
        _ => Err(HipError::INVALID_IMAGE),
    }
}

fn terminated(code: &[u8]) -> Vec<u8> {
    let mut code = code.to_vec();
    if !code.starts_with(ELF_MAGIC) {
        code.push(0);
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundle_of(parts: &[(&str, &[u8])]) -> Vec<u8> {
        let mut offset = 32 + parts.iter().map(|(id, _)| 24 + id.len()).sum::<usize>();
        let mut bytes = b"__CLANG_OFFLOAD_BUNDLE__".to_vec();
        bytes.extend((parts.len() as u64).to_le_bytes());
        for (id, code) in parts {
            for word in [offset, code.len(), id.len()] {
                bytes.extend((word as u64).to_le_bytes());
            }
            bytes.extend(id.as_bytes());
            offset += code.len();
        }
        parts.iter().for_each(|(_, code)| bytes.extend(*code));
        bytes
    }

    /// The code of an image with one part.
    fn find_code(image: &[u8], capability: u32) -> HipResult<Vec<u8>> {
        let parts = find_all_code(image, capability)?;
        assert_eq!(parts.len(), 1);
        Ok(parts.concat())
    }

    #[test]
    fn a_linked_image_has_all_parts_of_the_best_architecture() {
        let image = bundle_of(&[
            ("hipv4-nvptx64-nvidia-cuda--sm_80", b".version 7"),
            ("hipv4-nvptx64-nvidia-cuda--sm_90", b".version 8"),
            ("hipv4-nvptx64-nvidia-cuda--sm_90", b".version 9"),
        ]);
        assert_eq!(find_all_code(&image, 90), Ok(vec![b".version 8\0".to_vec(), b".version 9\0".to_vec()]));
    }

    #[test]
    fn the_best_architecture_the_device_has_is_chosen() {
        let image = bundle_of(&[
            ("host-x86_64-unknown-linux-gnu-", b""),
            ("hipv4-amdgcn-amd-amdhsa--gfx942", b"\x7fELF amd"),
            ("hipv4-nvptx64-nvidia-cuda-unknown-sm_80", b".version 7"),
            ("hipv4-nvptx64-nvidia-cuda--sm_90", b".version 8"),
            ("hipv4-nvptx64-nvidia-cuda--sm_100", b".version 9"),
        ]);
        assert_eq!(find_code(&image, 90).as_deref(), Ok(b".version 8\0".as_slice()));
        assert_eq!(find_code(&image, 89).as_deref(), Ok(b".version 7\0".as_slice()));
        assert_eq!(find_code(&image, 120).as_deref(), Ok(b".version 9\0".as_slice()));
        assert_eq!(find_code(&image, 75), Err(HipError::NO_BINARY_FOR_GPU));
    }

    #[test]
    fn what_is_missing_or_broken_is_told_apart() {
        let mut amd = vec![0_u8; 64];
        amd[..4].copy_from_slice(ELF_MAGIC);
        amd[18] = 224;
        assert_eq!(find_code(&amd, 90), Err(HipError::NO_BINARY_FOR_GPU));
        amd[18] = 190;
        assert_eq!(find_code(&amd, 90), Ok(amd.clone()));
        assert_eq!(find_code(b"nonsense", 90), Err(HipError::INVALID_IMAGE));
        let image = bundle_of(&[("hipv4-nvptx64-nvidia-cuda--sm_90", b".version 8")]);
        for cut in 0..image.len() {
            assert!(find_code(&image[..cut], 90).is_err());
        }
    }
}
