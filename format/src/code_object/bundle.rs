//! Clang offload bundles: one file with an image for each target.
//!
//! | offset | type | field |
//! |---|---|---|
//! | 0 | u8\[24\] | magic `__CLANG_OFFLOAD_BUNDLE__` |
//! | 24 | u64 | number of entries |
//! | then per entry | u64, u64, u64, bytes | offset and size of its image, length of its id, id |
//!
//! Offsets count from the magic. The ids are those of clang's offload bundler: kind, target triple and target id,
//! joined by dashes, with differences between versions in how empty parts are written.

use super::error::CodeObjectError;
use super::read_at::ReadAt;

/// First bytes of a bundle.
pub const MAGIC: [u8; 24] = *b"__CLANG_OFFLOAD_BUNDLE__";
/// Most entries a bundle may have; real ones have a few dozen.
const MAX_ENTRIES: u64 = 4096;
/// Longest entry id in bytes; real ones have a few dozen.
const MAX_ID_BYTES: usize = 4096;
const ENTRY_HEADER_BYTES: usize = 24;

/// An entry of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Its id; bytes that are not UTF-8 read as empty.
    pub id: &'a str,
    /// Its image.
    pub image: &'a [u8],
}

/// Where an entry's image lies in its bundle.
#[derive(Clone, Copy, Debug)]
struct Place {
    id_start: usize,
    id_len: usize,
    start: usize,
    end: usize,
}

/// Reads the entry headers and gives each to `visit`; returns where the last of them ends.
fn walk<B: ReadAt + ?Sized>(bytes: &B, mut visit: impl FnMut(Place)) -> Result<usize, CodeObjectError> {
    let malformed = |offset_bytes, reason| CodeObjectError::Bundle { offset_bytes, reason };
    let count = bytes.u64_at(MAGIC.len()).ok_or(malformed(MAGIC.len(), "its entry count is cut off"))?;
    if count > MAX_ENTRIES {
        return Err(malformed(MAGIC.len(), "it counts more entries than any bundle has"));
    }
    let mut at = MAGIC.len() + 8;
    for _ in 0..count {
        let cut_off = malformed(at, "an entry header is cut off");
        let offset = bytes.size_at(at).ok_or(cut_off.clone())?;
        let size = bytes.size_at(at + 8).ok_or(cut_off.clone())?;
        let id_len = bytes.size_at(at + 16).ok_or(cut_off)?;
        if id_len > MAX_ID_BYTES {
            return Err(malformed(at, "an entry id is longer than any"));
        }
        let end = offset.checked_add(size).ok_or(malformed(at, "an entry's place overflows"))?;
        visit(Place { id_start: at + ENTRY_HEADER_BYTES, id_len, start: offset, end });
        at += ENTRY_HEADER_BYTES + id_len;
    }
    Ok(at)
}

/// Length in bytes of the bundle at the start of `bytes`, from its headers alone.
pub(super) fn len_bytes<B: ReadAt + ?Sized>(bytes: &B) -> Option<usize> {
    let mut furthest = 0;
    let headers = walk(bytes, |place| furthest = furthest.max(place.end)).ok()?;
    Some(furthest.max(headers))
}

/// Reads the bundle at the start of `bytes`: its entries and its length in bytes.
///
/// # Errors
/// [`CodeObjectError::Bundle`].
pub fn parse(bytes: &[u8]) -> Result<(Vec<Entry<'_>>, usize), CodeObjectError> {
    if !bytes.starts_with(&MAGIC) {
        return Err(CodeObjectError::Bundle { offset_bytes: 0, reason: "it does not begin with the magic" });
    }
    let mut places = Vec::new();
    let headers = walk(bytes, |place| places.push(place))?;
    refuse_overlaps(&places)?;
    let mut len_bytes = headers;
    let mut entries = Vec::with_capacity(places.len());
    for place in places {
        let at = place.id_start - ENTRY_HEADER_BYTES;
        let id = bytes
            .get(place.id_start..place.id_start + place.id_len)
            .ok_or(CodeObjectError::Bundle { offset_bytes: at, reason: "an entry id is cut off" })?;
        let image = bytes.get(place.start..place.end).ok_or(CodeObjectError::Bundle {
            offset_bytes: at,
            reason: "an entry's image lies outside the bundle's bytes",
        })?;
        len_bytes = len_bytes.max(place.end);
        entries.push(Entry { id: std::str::from_utf8(id).unwrap_or_default(), image });
    }
    Ok((entries, len_bytes))
}

/// Entries may share an image but not overlap in part: a crafted bundle could otherwise have a reader go over the same
/// bytes thousands of times.
fn refuse_overlaps(places: &[Place]) -> Result<(), CodeObjectError> {
    let mut ranges: Vec<(usize, usize, usize)> = places
        .iter()
        .filter(|place| place.start < place.end)
        .map(|place| (place.start, place.end, place.id_start - ENTRY_HEADER_BYTES))
        .collect();
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        let ((first_start, first_end, _), (start, end, at)) = (pair[0], pair[1]);
        if start < first_end && (start, end) != (first_start, first_end) {
            return Err(CodeObjectError::Bundle { offset_bytes: at, reason: "two entries' images overlap" });
        }
    }
    Ok(())
}

/// The processor an entry id is for (`gfx942`, `sm_90`), without its features; `None` for host entries.
///
/// ```
/// use hrr_format::code_object::processor;
/// assert_eq!(processor("hipv4-amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-"), Some("gfx90a"));
/// assert_eq!(processor("hip-amdgcn-amd-amdhsa-gfx906"), Some("gfx906"));
/// assert_eq!(processor("host-x86_64-unknown-linux-gnu-"), None);
/// ```
pub fn processor(id: &str) -> Option<&str> {
    // kind, architecture, vendor, system, environment, target id: an empty environment may be written or left out,
    // and a target id may itself hold dashes.
    let mut parts = id.splitn(6, '-').skip(4);
    let environment = parts.next()?;
    let target = match parts.next() {
        Some(target) if !target.trim_end_matches('-').is_empty() => target,
        _ => environment,
    };
    let name = target.split(':').next()?.trim_end_matches('-');
    (name.starts_with("gfx") || name.starts_with("sm_") || name.starts_with("amdgcnspirv")).then_some(name)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A bundle of these entries, images aligned to 64 bytes.
    pub(in super::super) fn build(entries: &[(&str, &[u8])]) -> Vec<u8> {
        let headers: usize = 32 + entries.iter().map(|(id, _)| ENTRY_HEADER_BYTES + id.len()).sum::<usize>();
        let mut bytes = MAGIC.to_vec();
        bytes.extend((entries.len() as u64).to_le_bytes());
        let mut at = headers.next_multiple_of(64);
        for (id, image) in entries {
            bytes.extend((at as u64).to_le_bytes());
            bytes.extend((image.len() as u64).to_le_bytes());
            bytes.extend((id.len() as u64).to_le_bytes());
            bytes.extend(id.as_bytes());
            at = (at + image.len()).next_multiple_of(64);
        }
        for (_, image) in entries {
            bytes.resize(bytes.len().next_multiple_of(64), 0);
            bytes.extend(*image);
        }
        bytes
    }

    #[test]
    #[rustfmt::skip]
    fn a_bundle_reads_as_its_bytes_say() {
        let mut bytes = b"__CLANG_OFFLOAD_BUNDLE__".to_vec();
        bytes.extend([1, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend([62, 0, 0, 0, 0, 0, 0, 0,  3, 0, 0, 0, 0, 0, 0, 0,  6, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend(b"host-x");
        bytes.extend(b"abcdef");
        let (entries, len_bytes) = parse(&bytes).unwrap();
        assert_eq!(entries, [Entry { id: "host-x", image: b"abc" }]);
        assert_eq!(len_bytes, 65);
        assert_eq!(super::len_bytes(&bytes[..]), Some(65));
    }

    #[test]
    fn every_cut_of_a_bundle_is_refused() {
        let bytes = build(&[("host-x86_64-unknown-linux-gnu-", b""), ("hipv4-amdgcn-amd-amdhsa--gfx942", b"image")]);
        assert_eq!(parse(&bytes).unwrap().1, bytes.len());
        for cut in 0..bytes.len() {
            assert!(parse(&bytes[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn absurd_counts_and_places_are_refused() {
        let good = build(&[("a", b"image")]);
        for (at, expected) in [(24, "more entries"), (32, "overflows"), (40, "overflows"), (48, "longer than any")] {
            let mut bytes = good.clone();
            bytes[at..at + 8].fill(0xff);
            let message = parse(&bytes).unwrap_err().to_string();
            assert!(message.contains(expected), "{at}: {message}");
        }
    }

    #[test]
    fn images_may_be_shared_whole_but_not_in_part() {
        let mut bytes = build(&[("a", b"imageimage"), ("b", b"IMAGEIMAGE")]);
        let (first, second) = (32, 32 + 25);
        bytes.copy_within(first..first + 16, second);
        assert_eq!(parse(&bytes).unwrap().0[1], Entry { id: "b", image: b"imageimage" });
        bytes[second] += 1;
        assert!(parse(&bytes).unwrap_err().to_string().contains("overlap"));
    }

    #[test]
    fn ids_of_all_spellings_give_their_processor() {
        for (id, expected) in [
            ("hipv4-amdgcn-amd-amdhsa--gfx942", Some("gfx942")),
            ("hip-amdgcn-amd-amdhsa--gfx906", Some("gfx906")),
            ("hip-amdgcn-amd-amdhsa-gfx900", Some("gfx900")),
            ("hipv4-amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-", Some("gfx90a")),
            ("hipv4-nvptx64-nvidia-cuda-unknown-sm_90", Some("sm_90")),
            ("hipv4-nvptx64-nvidia-cuda--sm_90", Some("sm_90")),
            ("hipv4-x86_64-unknown-linux-gnu-", None),
            ("host-x86_64-unknown-linux-gnu", None),
            ("host-x86_64-unknown-linux--", None),
            ("", None),
            ("-----", None),
        ] {
            assert_eq!(processor(id), expected, "{id}");
        }
    }
}
