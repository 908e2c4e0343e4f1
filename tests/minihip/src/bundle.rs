//! Finding the x86-64 code object in what a program gives a HIP runtime: an offload bundle, a compressed one, or an ELF.

use crate::error::{HipError, HipResult};
use std::borrow::Cow;
use std::io::Read;

const BUNDLE_MAGIC: &[u8] = b"__CLANG_OFFLOAD_BUNDLE__";
const COMPRESSED_MAGIC: &[u8] = b"CCOB";
const ELF_MAGIC: &[u8] = b"\x7fELF";
/// `e_machine` of x86-64.
const MACHINE_X86_64: u16 = 62;
/// Bundle entries are few; more is a corrupt header.
const MAX_ENTRIES: u64 = 4096;
/// Larger than any code object, small enough to allocate.
const MAX_CODE_BYTES: u64 = 1 << 30;

fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(offset..offset.checked_add(2)?)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(offset..offset.checked_add(4)?)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(offset..offset.checked_add(8)?)?.try_into().ok()?))
}

/// One entry of a bundle: where its code lies and what it is for.
pub(crate) struct Entry<'a> {
    offset: usize,
    pub(crate) len_bytes: usize,
    pub(crate) id: &'a [u8],
}

impl Entry<'_> {
    /// The entry's code in the bundle it is of. Fails with `hipErrorInvalidImage` on one that runs over the end.
    pub(crate) fn code<'b>(&self, bundle: &'b [u8]) -> HipResult<&'b [u8]> {
        let end = self.offset.checked_add(self.len_bytes).ok_or(HipError::INVALID_IMAGE)?;
        bundle.get(self.offset..end).ok_or(HipError::INVALID_IMAGE)
    }
}

/// Whether `image` is an offload bundle.
pub(crate) fn is_bundle(image: &[u8]) -> bool {
    image.starts_with(BUNDLE_MAGIC)
}

/// Whether `image` is a compressed bundle.
pub(crate) fn is_compressed(image: &[u8]) -> bool {
    image.starts_with(COMPRESSED_MAGIC)
}

/// Entry `index` at `position`, and the position of the next.
fn entry_at(bytes: &[u8], position: usize) -> Option<(Entry<'_>, usize)> {
    let offset = usize::try_from(u64_at(bytes, position)?).ok()?;
    let len_bytes = usize::try_from(u64_at(bytes, position + 8)?).ok()?;
    let id_bytes = usize::try_from(u64_at(bytes, position + 16)?).ok()?;
    let end = (position + 24).checked_add(id_bytes)?;
    Some((Entry { offset, len_bytes, id: bytes.get(position + 24..end)? }, end))
}

/// The entries of a bundle.
pub(crate) fn entries(bytes: &[u8]) -> HipResult<Vec<Entry<'_>>> {
    let count =
        u64_at(bytes, BUNDLE_MAGIC.len()).filter(|count| *count <= MAX_ENTRIES).ok_or(HipError::INVALID_IMAGE)?;
    let mut position = BUNDLE_MAGIC.len() + 8;
    let mut entries = Vec::new();
    for _ in 0..count {
        let (entry, next) = entry_at(bytes, position).ok_or(HipError::INVALID_IMAGE)?;
        entries.push(entry);
        position = next;
    }
    Ok(entries)
}

/// Whether a bundle entry's id (`hipv4-x86_64-unknown-linux-gnu--`, with or without features) is ours.
fn is_ours(id: &[u8]) -> bool {
    [b"hipv4-x86_64".as_slice(), b"hip-x86_64"].iter().any(|prefix| id.starts_with(prefix))
}

/// The id of an entry made for this machine.
const OUR_ID: &[u8] = b"hipv4-x86_64-unknown-linux-gnu--";
/// Alignment of the entries of a bundle that is made here, in bytes.
const ENTRY_ALIGNMENT: usize = 4096;

/// All code objects for this machine in `image`: several where it was linked. Fails as [`find_code`].
pub(crate) fn find_all_code(image: &[u8]) -> HipResult<Vec<Vec<u8>>> {
    if is_compressed(image) {
        let bundle = decompress(image)?;
        return if is_compressed(&bundle) { Err(HipError::INVALID_IMAGE) } else { find_all_code(&bundle) };
    }
    if !is_bundle(image) {
        return find_code(image).map(|code| vec![code.into_owned()]);
    }
    let ours = entries(image)?.into_iter().filter(|entry| is_ours(entry.id) && entry.len_bytes > 0);
    let found: Vec<Vec<u8>> =
        ours.map(|entry| find_code(entry.code(image)?).map(Cow::into_owned)).collect::<HipResult<_>>()?;
    if found.is_empty() { Err(HipError::NO_BINARY_FOR_GPU) } else { Ok(found) }
}

/// One bundle with all that is in these images: bundles, compressed ones, and code objects for this machine.
pub(crate) fn merge(images: &[Vec<u8>]) -> HipResult<Vec<u8>> {
    let mut parts: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for image in images {
        let bundle =
            if is_compressed(image) { Cow::Owned(decompress(image)?) } else { Cow::Borrowed(image.as_slice()) };
        if is_bundle(&bundle) {
            for entry in entries(&bundle)? {
                parts.push((entry.id.to_vec(), entry.code(&bundle)?.to_vec()));
            }
        } else {
            parts.push((OUR_ID.to_vec(), find_code(&bundle)?.into_owned()));
        }
    }
    let mut bundle = [BUNDLE_MAGIC, &(parts.len() as u64).to_le_bytes()].concat();
    let header_bytes = bundle.len() + parts.iter().map(|(id, _)| 24 + id.len()).sum::<usize>();
    let mut offset = header_bytes.next_multiple_of(ENTRY_ALIGNMENT);
    for (id, code) in &parts {
        for word in [offset, code.len(), id.len()] {
            bundle.extend_from_slice(&(word as u64).to_le_bytes());
        }
        bundle.extend_from_slice(id);
        offset = (offset + code.len()).next_multiple_of(ENTRY_ALIGNMENT);
    }
    for (_, code) in &parts {
        bundle.resize(bundle.len().next_multiple_of(ENTRY_ALIGNMENT), 0);
        bundle.extend_from_slice(code);
    }
    Ok(bundle)
}

/// The code object for this machine in `image`. Fails with `hipErrorInvalidImage` on bytes that are no image at
/// all, with `hipErrorNoBinaryForGpu` on one that holds nothing for x86-64.
pub(crate) fn find_code(image: &[u8]) -> HipResult<Cow<'_, [u8]>> {
    if is_compressed(image) {
        let bundle = decompress(image)?;
        // A compressed bundle inside a compressed bundle is no thing a compiler makes.
        if bundle.starts_with(COMPRESSED_MAGIC) {
            return Err(HipError::INVALID_IMAGE);
        }
        return find_code(&bundle).map(|code| Cow::Owned(code.into_owned()));
    }
    if is_bundle(image) {
        for entry in entries(image)? {
            if is_ours(entry.id) && entry.len_bytes > 0 {
                return find_code(entry.code(image)?);
            }
        }
        return Err(HipError::NO_BINARY_FOR_GPU);
    }
    if image.starts_with(ELF_MAGIC) {
        return match u16_at(image, 18) {
            Some(MACHINE_X86_64) => Ok(Cow::Borrowed(image)),
            Some(_) => Err(HipError::NO_BINARY_FOR_GPU),
            None => Err(HipError::INVALID_IMAGE),
        };
    }
    Err(HipError::INVALID_IMAGE)
}

/// A compressed bundle's header.
struct Compressed {
    total_bytes: u64,
    uncompressed_bytes: u64,
    /// Start of the compressed data.
    data: usize,
    /// 0 zlib, 1 zstd.
    method: u16,
}

/// Versions 2 (32-bit sizes) and 3 (64-bit sizes): total size, uncompressed size, hash, data.
fn compressed_header(image: &[u8]) -> Option<Compressed> {
    let method = u16_at(image, 6)?;
    match u16_at(image, 4)? {
        2 => Some(Compressed {
            total_bytes: u32_at(image, 8)?.into(),
            uncompressed_bytes: u32_at(image, 12)?.into(),
            data: 24,
            method,
        }),
        3 => Some(Compressed {
            total_bytes: u64_at(image, 8)?,
            uncompressed_bytes: u64_at(image, 16)?,
            data: 32,
            method,
        }),
        _ => None,
    }
}

/// The bundle in a compressed one.
pub(crate) fn decompress(image: &[u8]) -> HipResult<Vec<u8>> {
    let header = compressed_header(image).ok_or(HipError::INVALID_IMAGE)?;
    let end = usize::try_from(header.total_bytes).map_err(|_| HipError::INVALID_IMAGE)?;
    let data = image.get(header.data..end.min(image.len())).ok_or(HipError::INVALID_IMAGE)?;
    if header.uncompressed_bytes > MAX_CODE_BYTES {
        return Err(HipError::INVALID_IMAGE);
    }
    let mut bundle = Vec::new();
    let read = match header.method {
        0 => flate2::read::ZlibDecoder::new(data).take(MAX_CODE_BYTES).read_to_end(&mut bundle),
        1 => zstd::stream::read::Decoder::new(data)
            .and_then(|decoder| decoder.take(MAX_CODE_BYTES).read_to_end(&mut bundle)),
        _ => return Err(HipError::INVALID_IMAGE),
    };
    match read {
        Ok(len_bytes) if len_bytes as u64 == header.uncompressed_bytes => Ok(bundle),
        _ => Err(HipError::INVALID_IMAGE),
    }
}

/// How many bytes of an image in memory must be read to know more: the length of its header so far, or of all of it.
///
/// Images come as bare pointers; their length has to be read off them. `prefix` is what is readable so far; the
/// answer is `Ok(n)` with `n <= prefix.len()` once `n` is the image's whole length, else the length to look at next.
pub(crate) fn image_bytes(prefix: &[u8]) -> HipResult<usize> {
    /// The longest fixed header.
    const FIRST_LOOK: usize = 64;
    if prefix.len() < 4 {
        return Ok(4);
    }
    if prefix.starts_with(COMPRESSED_MAGIC) {
        if prefix.len() < 32 {
            return Ok(32);
        }
        let header = compressed_header(prefix)
            .filter(|header| header.total_bytes <= MAX_CODE_BYTES)
            .ok_or(HipError::INVALID_IMAGE)?;
        return usize::try_from(header.total_bytes).map(|total| total.max(32)).map_err(|_| HipError::INVALID_IMAGE);
    }
    if prefix.starts_with(ELF_MAGIC) {
        if prefix.len() < FIRST_LOOK {
            return Ok(FIRST_LOOK);
        }
        let tables = elf_tables_end(prefix).ok_or(HipError::INVALID_IMAGE)?;
        if prefix.len() < tables {
            return Ok(tables);
        }
        return elf_bytes(prefix, tables).ok_or(HipError::INVALID_IMAGE);
    }
    let known = prefix.len().min(BUNDLE_MAGIC.len());
    if prefix[..known] != BUNDLE_MAGIC[..known] {
        return Err(HipError::INVALID_IMAGE);
    }
    let mut position = BUNDLE_MAGIC.len() + 8;
    if prefix.len() < position {
        return Ok(position);
    }
    let count =
        u64_at(prefix, BUNDLE_MAGIC.len()).filter(|count| *count <= MAX_ENTRIES).ok_or(HipError::INVALID_IMAGE)?;
    let mut end = position;
    for _ in 0..count {
        if prefix.len() < position + 24 {
            return Ok(position + 24);
        }
        let id_bytes = u64_at(prefix, position + 16).filter(|len| *len < 4096).ok_or(HipError::INVALID_IMAGE)?;
        let next = position + 24 + id_bytes as usize;
        if prefix.len() < next {
            return Ok(next);
        }
        let (entry, next) = entry_at(prefix, position).ok_or(HipError::INVALID_IMAGE)?;
        position = next;
        end = end.max(position).max(entry.offset.checked_add(entry.len_bytes).ok_or(HipError::INVALID_IMAGE)?);
    }
    if end as u64 > MAX_CODE_BYTES { Err(HipError::INVALID_IMAGE) } else { Ok(end) }
}

/// End of an ELF file's section header table or program header table, whichever comes later.
fn elf_tables_end(header: &[u8]) -> Option<usize> {
    let table_end = |offset: usize, size: usize, count: usize| {
        u64_at(header, offset)?.checked_add(u64::from(u16_at(header, size)?) * u64::from(u16_at(header, count)?))
    };
    let end = table_end(40, 58, 60)?.max(table_end(32, 54, 56)?);
    usize::try_from(end).ok().filter(|end| *end as u64 <= MAX_CODE_BYTES)
}

/// Length of an ELF file: the end of its tables or of its last segment (files without sections end with one).
fn elf_bytes(file: &[u8], tables_end: usize) -> Option<usize> {
    let (start, size, count) = (usize::try_from(u64_at(file, 32)?).ok()?, u16_at(file, 54)?, u16_at(file, 56)?);
    let mut end = tables_end as u64;
    for i in 0..usize::from(count) {
        let segment = start + i * usize::from(size);
        end = end.max(u64_at(file, segment + 8)?.checked_add(u64_at(file, segment + 32)?)?);
    }
    usize::try_from(end).ok().filter(|end| *end as u64 <= MAX_CODE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn elf(machine: u16) -> Vec<u8> {
        let mut elf = vec![0_u8; 64];
        elf[..4].copy_from_slice(ELF_MAGIC);
        elf[18..20].copy_from_slice(&machine.to_le_bytes());
        elf[40..48].copy_from_slice(&64_u64.to_le_bytes());
        elf
    }

    fn bundle(parts: &[(&str, &[u8])]) -> Vec<u8> {
        let header: usize = 32 + parts.iter().map(|(id, _)| 24 + id.len()).sum::<usize>();
        let mut bytes = BUNDLE_MAGIC.to_vec();
        bytes.extend((parts.len() as u64).to_le_bytes());
        let mut offset = header;
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

    fn sample() -> Vec<u8> {
        bundle(&[
            ("host-x86_64-unknown-linux-gnu-", b""),
            ("hipv4-amdgcn-amd-amdhsa--gfx942", &elf(224)),
            ("hipv4-x86_64-unknown-linux-gnu--", &elf(62)),
        ])
    }

    fn compressed_v3(method: u16) -> Vec<u8> {
        let plain = sample();
        let data = match method {
            0 => {
                let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
                encoder.write_all(&plain).expect("write to memory");
                encoder.finish().expect("write to memory")
            }
            _ => zstd::stream::encode_all(plain.as_slice(), 3).expect("write to memory"),
        };
        let mut bytes = COMPRESSED_MAGIC.to_vec();
        bytes.extend(3_u16.to_le_bytes());
        bytes.extend(method.to_le_bytes());
        bytes.extend((32 + data.len() as u64).to_le_bytes());
        bytes.extend((plain.len() as u64).to_le_bytes());
        bytes.extend([0; 8]);
        bytes.extend(data);
        bytes
    }

    #[test]
    fn the_x86_64_entry_is_found() {
        assert_eq!(*find_code(&sample()).expect("valid"), elf(62));
        assert_eq!(*find_code(&elf(62)).expect("valid"), elf(62));
        for method in [0, 1] {
            assert_eq!(*find_code(&compressed_v3(method)).expect("valid"), elf(62));
        }
    }

    #[test]
    fn what_is_missing_or_broken_is_told_apart() {
        let foreign = bundle(&[("hipv4-amdgcn-amd-amdhsa--gfx942", &elf(224))]);
        assert_eq!(find_code(&foreign), Err(HipError::NO_BINARY_FOR_GPU));
        assert_eq!(find_code(&elf(224)), Err(HipError::NO_BINARY_FOR_GPU));
        assert_eq!(find_code(b"hello"), Err(HipError::INVALID_IMAGE));
        let whole = sample();
        for cut in 0..whole.len() {
            assert!(find_code(&whole[..cut]).is_err());
        }
        let squeezed = compressed_v3(1);
        for cut in 0..squeezed.len() {
            assert!(find_code(&squeezed[..cut]).is_err());
        }
    }

    #[test]
    fn an_image_tells_its_length_step_by_step() {
        for image in [sample(), compressed_v3(1), elf(62)] {
            let mut readable = 0;
            loop {
                let wanted = image_bytes(&image[..readable]).expect("valid");
                assert!(wanted <= image.len(), "never asks for bytes beyond the image");
                if wanted <= readable {
                    assert_eq!(wanted, image.len());
                    break;
                }
                readable = wanted;
            }
        }
        assert_eq!(image_bytes(b"nonsense"), Err(HipError::INVALID_IMAGE));

        // No sections, one segment: bytes 64 to 120 are its header, the file ends with it at 200.
        let mut bare = elf(62);
        bare.resize(200, 0);
        for (offset, value) in [(32, 64_u64), (40, 0), (72, 128), (96, 72)] {
            bare[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
        }
        bare[54..56].copy_from_slice(&56_u16.to_le_bytes());
        bare[56..58].copy_from_slice(&1_u16.to_le_bytes());
        assert_eq!(image_bytes(&bare[..64]), Ok(120));
        assert_eq!(image_bytes(&bare[..120]), Ok(200));
    }
}
