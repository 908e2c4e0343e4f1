//! As much of ELF64 (little-endian) as a code object needs: its machine, its notes and its length.

use super::error::CodeObjectError;
use super::read_at::ReadAt;

/// First bytes of a 64-bit little-endian ELF file.
pub(super) const MAGIC: [u8; 6] = [0x7f, b'E', b'L', b'F', 2, 1];
/// `e_machine` of AMD GPUs (`EM_AMDGPU` in the ELF registry).
pub(super) const MACHINE_AMDGPU: u16 = 224;

const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
const SECTION_HEADER_BYTES: usize = 64;
const PT_NOTE: u32 = 4;
const SHT_NOTE: u32 = 7;
const SHT_NOBITS: u32 = 8;
const SHT_DYNSYM: u32 = 11;
/// `Elf64_Sym`: name (4 bytes), info (1), other (1), section (2), value (8), size (8).
const SYMBOL_BYTES: usize = 24;
const STT_OBJECT: u8 = 1;
const STB_LOCAL: u8 = 0;
const SHN_UNDEF: u16 = 0;
const SHF_WRITE: u64 = 1;
const SHT_RELA: u32 = 4;
/// `Elf64_Rela`: offset (8 bytes), info (8), addend (8).
const RELOCATION_BYTES: usize = 24;
const NOTE_HEADER_BYTES: usize = 12;

/// A range of the file that a header names.
#[derive(Clone, Copy, Debug)]
struct Range {
    kind: u32,
    offset: usize,
    size: usize,
    align: usize,
}

/// A table of headers: where it lies and how many it has.
#[derive(Clone, Copy, Debug)]
struct Table {
    offset: usize,
    entry_bytes: usize,
    count: usize,
}

impl Table {
    fn end(&self) -> Option<usize> {
        self.offset.checked_add(self.entry_bytes.checked_mul(self.count)?)
    }
}

/// `e_machine`, where the bytes begin like an ELF file.
pub(super) fn machine<B: ReadAt + ?Sized>(bytes: &B) -> Option<u16> {
    (bytes.read::<6>(0)? == MAGIC).then(|| bytes.u16_at(18)).flatten()
}

fn program_headers<B: ReadAt + ?Sized>(bytes: &B) -> Option<Table> {
    let count = usize::from(bytes.u16_at(56)?);
    let entry_bytes = usize::from(bytes.u16_at(54)?);
    if count > 0 && entry_bytes < PROGRAM_HEADER_BYTES {
        return None;
    }
    Some(Table { offset: bytes.size_at(32)?, entry_bytes, count })
}

fn section_headers<B: ReadAt + ?Sized>(bytes: &B) -> Option<Table> {
    let offset = bytes.size_at(40)?;
    if offset == 0 {
        return Some(Table { offset, entry_bytes: 0, count: 0 });
    }
    let entry_bytes = usize::from(bytes.u16_at(58)?);
    let mut count = usize::from(bytes.u16_at(60)?);
    if count == 0 {
        // More sections than the field can count: the size of the first says how many.
        count = bytes.size_at(offset.checked_add(32)?)?;
    }
    if entry_bytes < SECTION_HEADER_BYTES || count > 1 << 24 {
        return None;
    }
    Some(Table { offset, entry_bytes, count })
}

fn segment<B: ReadAt + ?Sized>(bytes: &B, table: &Table, index: usize) -> Option<Range> {
    let at = table.offset.checked_add(index.checked_mul(table.entry_bytes)?)?;
    at.checked_add(PROGRAM_HEADER_BYTES)?;
    Some(Range {
        kind: bytes.u32_at(at)?,
        offset: bytes.size_at(at + 8)?,
        size: bytes.size_at(at + 32)?,
        align: bytes.size_at(at + 48)?,
    })
}

fn section<B: ReadAt + ?Sized>(bytes: &B, table: &Table, index: usize) -> Option<Range> {
    let at = table.offset.checked_add(index.checked_mul(table.entry_bytes)?)?;
    at.checked_add(SECTION_HEADER_BYTES)?;
    Some(Range {
        kind: bytes.u32_at(at + 4)?,
        offset: bytes.size_at(at + 24)?,
        size: bytes.size_at(at + 32)?,
        align: bytes.size_at(at + 48)?,
    })
}

/// Length in bytes of the file at the start of `bytes`, from its headers alone.
pub(super) fn len_bytes<B: ReadAt + ?Sized>(bytes: &B) -> Option<usize> {
    machine(bytes)?;
    let (segments, sections) = (program_headers(bytes)?, section_headers(bytes)?);
    let mut furthest = HEADER_BYTES.max(segments.end()?).max(sections.end()?);
    for index in 0..segments.count {
        let range = segment(bytes, &segments, index)?;
        furthest = furthest.max(range.offset.checked_add(range.size)?);
    }
    for index in 0..sections.count {
        let range = section(bytes, &sections, index)?;
        if range.kind != SHT_NOBITS {
            furthest = furthest.max(range.offset.checked_add(range.size)?);
        }
    }
    Some(furthest)
}

/// A data object that a file exports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Object {
    pub(super) name: String,
    /// It can be written to, and the loader stores no address in it.
    pub(super) is_plain: bool,
}

/// The data objects that the file exports, by its dynamic symbol table; none where it is malformed.
pub(super) fn objects(bytes: &[u8]) -> Vec<Object> {
    let mut found = Vec::new();
    let Some(table) = machine(bytes).and_then(|_| section_headers(bytes)) else { return found };
    let sections: Vec<Range> = (0..table.count).map_while(|index| section(bytes, &table, index)).collect();
    let contents = |range: &Range| bytes.get(range.offset..range.offset.checked_add(range.size)?);
    let mut relocated: Vec<u64> = Vec::new();
    for range in sections.iter().filter(|range| range.kind == SHT_RELA) {
        let entries = contents(range).unwrap_or_default().chunks_exact(RELOCATION_BYTES);
        relocated.extend(entries.filter_map(|entry| entry.u64_at(0)));
    }
    relocated.sort_unstable();
    // A section whose header was read has the fields of one.
    let header = |index: usize| table.offset + index * table.entry_bytes;
    let is_writable = |index: u16| {
        usize::from(index) < sections.len()
            && bytes.u64_at(header(index.into()) + 8).is_some_and(|flags| flags & SHF_WRITE != 0)
    };
    for (index, range) in sections.iter().enumerate().filter(|(_, range)| range.kind == SHT_DYNSYM) {
        let link = bytes.u32_at(header(index) + 40).unwrap_or(0);
        let Some(names) = sections.get(link as usize).and_then(contents) else { return found };
        for symbol in contents(range).unwrap_or_default().chunks_exact(SYMBOL_BYTES) {
            let (kind, binding) = (symbol[4] & 0xf, symbol[4] >> 4);
            let place = symbol.u16_at(6).filter(|&section| section != SHN_UNDEF);
            let (Some(place), Some(start), Some(size)) = (place, symbol.u64_at(8), symbol.u64_at(16)) else { continue };
            if kind != STT_OBJECT || binding == STB_LOCAL {
                continue;
            }
            let next = relocated.partition_point(|&at| at < start);
            let name = symbol.u32_at(0).and_then(|at| names.get(at as usize..)).unwrap_or_default();
            let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
            if let Ok(name) = std::str::from_utf8(name)
                && !name.is_empty()
            {
                let relocated = relocated.get(next).is_some_and(|&at| at < start.saturating_add(size));
                found.push(Object { name: name.to_owned(), is_plain: is_writable(place) && !relocated });
            }
        }
    }
    found
}

/// The contents of the first note with a name and type, out of the note segments or, without any, the note sections.
///
/// # Errors
/// [`CodeObjectError::Elf`] where the tables or a note run past the file.
pub(super) fn note<'a>(bytes: &'a [u8], name: &[u8], kind: u32) -> Result<Option<&'a [u8]>, CodeObjectError> {
    let malformed = |reason| CodeObjectError::Elf { reason };
    let segments = program_headers(bytes).ok_or(malformed("its program header table is malformed"))?;
    let sections = section_headers(bytes).ok_or(malformed("its section header table is malformed"))?;
    let mut has_segments = false;
    for index in 0..segments.count {
        let range = segment(bytes, &segments, index).ok_or(malformed("a program header is cut off"))?;
        if range.kind == PT_NOTE {
            has_segments = true;
            if let Some(found) = note_in(bytes, range, name, kind)? {
                return Ok(Some(found));
            }
        }
    }
    if has_segments {
        return Ok(None);
    }
    for index in 0..sections.count {
        let range = section(bytes, &sections, index).ok_or(malformed("a section header is cut off"))?;
        if range.kind == SHT_NOTE
            && let Some(found) = note_in(bytes, range, name, kind)?
        {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn note_in<'a>(bytes: &'a [u8], range: Range, name: &[u8], kind: u32) -> Result<Option<&'a [u8]>, CodeObjectError> {
    let malformed = |reason| CodeObjectError::Elf { reason };
    let mut rest = range
        .offset
        .checked_add(range.size)
        .and_then(|end| bytes.get(range.offset..end))
        .ok_or(malformed("its notes lie outside the file"))?;
    // Notes are padded to 4 bytes unless their segment asks for 8.
    let align = if range.align == 8 { 8 } else { 4 };
    while rest.len() >= NOTE_HEADER_BYTES {
        let parsed = (|| {
            let name_len = usize::try_from(rest.u32_at(0)?).ok()?;
            let contents_len = usize::try_from(rest.u32_at(4)?).ok()?;
            let name = rest.get(NOTE_HEADER_BYTES..NOTE_HEADER_BYTES.checked_add(name_len)?)?;
            let start = (NOTE_HEADER_BYTES + name_len).checked_next_multiple_of(align)?;
            let end = start.checked_add(contents_len)?;
            let next = end.checked_next_multiple_of(align)?;
            Some((name, rest.u32_at(8)?, rest.get(start..end)?, rest.get(next..).unwrap_or_default()))
        })();
        let (found_name, found_kind, contents, next) = parsed.ok_or(malformed("a note is cut off"))?;
        // Names end with a NUL that counts.
        if found_kind == kind && found_name.strip_suffix(b"\0").unwrap_or(found_name) == name {
            return Ok(Some(contents));
        }
        rest = next;
    }
    Ok(None)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An ELF file of a machine with one note segment that holds these notes.
    pub(in super::super) fn build(machine: u16, notes: &[(&[u8], u32, &[u8])]) -> Vec<u8> {
        let mut contents = Vec::new();
        for (name, kind, note) in notes {
            contents.extend((name.len() as u32 + 1).to_le_bytes());
            contents.extend((note.len() as u32).to_le_bytes());
            contents.extend(kind.to_le_bytes());
            contents.extend(*name);
            contents.push(0);
            contents.resize(contents.len().next_multiple_of(4), 0);
            contents.extend(*note);
            contents.resize(contents.len().next_multiple_of(4), 0);
        }
        let mut bytes = vec![0; HEADER_BYTES + PROGRAM_HEADER_BYTES];
        bytes[..6].copy_from_slice(&MAGIC);
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes[32] = HEADER_BYTES as u8;
        bytes[54] = PROGRAM_HEADER_BYTES as u8;
        bytes[56] = 1;
        bytes[64] = PT_NOTE as u8;
        bytes[72] = (HEADER_BYTES + PROGRAM_HEADER_BYTES) as u8;
        bytes[96..104].copy_from_slice(&(contents.len() as u64).to_le_bytes());
        bytes[112] = 4;
        bytes.extend(contents);
        bytes
    }

    #[test]
    fn the_note_with_the_right_name_and_type_is_found() {
        let bytes = build(224, &[(b"GNU", 32, b"no"), (b"AMDGPU", 31, b"no"), (b"AMDGPU", 32, b"yes!!")]);
        assert_eq!(machine(&bytes[..]), Some(MACHINE_AMDGPU));
        assert_eq!(note(&bytes, b"AMDGPU", 32), Ok(Some(&b"yes!!"[..])));
        assert_eq!(note(&bytes, b"AMDGPU", 33), Ok(None));
        assert_eq!(len_bytes(&bytes[..]), Some(bytes.len()));
    }

    #[test]
    fn note_sections_serve_where_there_are_no_segments() {
        let mut bytes = build(224, &[(b"AMDGPU", 32, b"yes!")]);
        let (notes_at, notes_len) = (120, bytes.len() - 120);
        bytes[56] = 0;
        let table = bytes.len();
        bytes[40..48].copy_from_slice(&(table as u64).to_le_bytes());
        bytes[58] = 64;
        bytes[60] = 1;
        let mut header = [0; 64];
        header[4] = SHT_NOTE as u8;
        header[24] = notes_at;
        header[32] = notes_len as u8;
        bytes.extend(header);
        assert_eq!(note(&bytes, b"AMDGPU", 32), Ok(Some(&b"yes!"[..])));
        assert_eq!(len_bytes(&bytes[..]), Some(bytes.len()));
    }

    #[test]
    fn notes_that_run_past_the_file_are_errors() {
        let bytes = build(224, &[(b"AMDGPU", 32, b"contents")]);
        for cut in 64..bytes.len() {
            assert!(note(&bytes[..cut], b"AMDGPU", 32).is_err(), "cut at {cut}");
        }
        let mut long = bytes.clone();
        long[124..128].fill(0xff);
        assert_eq!(note(&long, b"AMDGPU", 32), Err(CodeObjectError::Elf { reason: "a note is cut off" }));
        let mut far = bytes;
        far[72..80].fill(0xff);
        assert!(note(&far, b"AMDGPU", 32).is_err());
        assert_eq!(len_bytes(&far[..]), None);
    }
}
