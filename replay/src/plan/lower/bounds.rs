//! Bounds: whatever a record says, the call that is made of it touches only memory that was laid out for it.
//!
//! Archives come from other people. The sizes that a call passes to the runtime are the record's own words; so before it is
//! issued, every buffer it is given is made as large as those words say, and every range of an allocation that they name is
//! checked to lie in it. What does not fit is refused, or, where the call had failed at capture, left out.
//!
//! Not bounded is what the archive's kernels do: replaying an archive runs the code in it.

use hrr_format::catalogue::{Api, MIN_BUFFER_BYTES, Role, Size, SizeInputs, StructField, StructLayout, Term};
use hrr_format::record::{Presence, SectionTag};

use super::{Call, RecordInputs, in_bytes, word_at};
use crate::instruction::Chunk;
use crate::memory::stage::Shape;
use crate::plan::Planner;
use crate::plan::error::Refusal;
use crate::plan::memory::address::{Place, Space};

/// Most bytes laid out for one argument that is passed by pointer: any real one is far smaller.
pub(crate) const MAX_INLINE_BYTES: u64 = 64 << 20;
/// Largest allocation in bytes that is believed: more than any machine has, and little enough that an address and an offset
/// in it never meet the address of something else (see [`NOWHERE`]).
pub(crate) const MAX_ALLOCATION_BYTES: u64 = 1 << 46;
/// What the slot of an allocation holds until it is made. No x86-64 address has these upper bits, so that a call over memory
/// whose allocation failed reaches nothing, whatever the offset.
pub(crate) const NOWHERE: u64 = 0x5a5a_0000_0000_0000;

/// Sizes as the runtime will see them: an integer that a call reads and then writes counts by the larger of the two.
struct Room<'r, 'a>(RecordInputs<'r, 'a>);

impl SizeInputs for Room<'_, '_> {
    fn word(&self, param: u8, word: u8) -> Option<u64> {
        self.0.word(param, word)
    }

    fn pointee(&self, param: u8, width: u8) -> Option<u64> {
        let of = |tag| {
            let section = self.0.record.section(tag, param)?;
            (section.presence == Presence::Present).then_some(section.payload)
        };
        let value = |bytes: &[u8]| match width {
            4 => bytes.first_chunk().map(|raw| u64::from(u32::from_le_bytes(*raw))),
            _ => bytes.first_chunk().map(|raw| u64::from_le_bytes(*raw)),
        };
        let (before, after) = (of(SectionTag::In).and_then(value), of(SectionTag::Out).and_then(value));
        before.max(after)
    }

    fn field(&self, offset_bytes: u16, width: u8) -> Option<u64> {
        self.0.field(offset_bytes, width)
    }
}

/// Whether a size is made of argument words alone, so that it has a value unless it overflows.
fn is_of_words(size: Size) -> bool {
    match size {
        Size::Unknown | Size::Pointee { .. } => false,
        Size::Fixed(_) | Size::Product { .. } | Size::Rect { .. } | Size::By { .. } => true,
        Size::Terms(terms) => {
            terms.iter().all(|term| matches!(term, Term::Constant(_) | Term::Param(_) | Term::Word(..)))
        }
    }
}

impl<'a> Planner<'a> {
    fn room_value(&self, call: &Call<'_>, size: Size, fields: &[u8]) -> Option<u64> {
        size.value(&Room(RecordInputs { api: call.api, record: &call.record, fields }))
    }

    /// Bytes that a buffer of `size` elements of `unit_bytes` needs; zero where the size is unknown.
    pub(crate) fn room(&self, call: &Call<'_>, number: u8, size: Size, unit_bytes: u64) -> Result<usize, Refusal> {
        let value = match self.room_value(call, size, &[]) {
            None if is_of_words(size) => u64::MAX,
            value => value.unwrap_or(0),
        };
        let bytes = value.saturating_mul(unit_bytes);
        if bytes <= MAX_INLINE_BYTES {
            return Ok(bytes as usize);
        }
        Err(refuse(call, Refusal::TooLong { param: call.api.params[usize::from(number)].name, len_bytes: bytes }))
    }

    /// A copy of what a pointer parameter pointed to, zero-padded to all that the call may touch there. Returns the recorded
    /// bytes too.
    pub(crate) fn inline_copy(
        &self,
        call: &Call<'a>,
        chunk: &mut Chunk,
        number: u8,
        size: Size,
        unit_bytes: u64,
    ) -> Result<(*mut u64, &'a [u8]), Refusal> {
        let param = call.api.params[usize::from(number)].name;
        let bytes = in_bytes(call, number, param)?.unwrap_or_default();
        let needed = self.room(call, number, size, unit_bytes)?;
        if bytes.len() < needed && call.succeeded() {
            return Err(Refusal::Section { param, found_bytes: bytes.len(), expected_bytes: needed });
        }
        let room = needed.max(bytes.len()).max(MIN_BUFFER_BYTES);
        let place = chunk.memory.allocate(room.div_ceil(8));
        // SAFETY: the allocation is at least as long as `bytes`, fresh, and zeroed.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place.cast::<u8>(), bytes.len()) };
        Ok((place, bytes))
    }

    /// Bytes from an address that a call touches by the size its parameter has; `None` where the table does not tell.
    pub(crate) fn reach(&self, call: &Call<'_>, size: Size) -> Option<u64> {
        match self.room_value(call, size, &[]) {
            Some(bytes) => Some(bytes),
            None if is_of_words(size) => Some(u64::MAX),
            None => scalar_access_bytes(call.api),
        }
    }

    /// Checks that `reach` bytes from a place lie in its allocation.
    pub(crate) fn check_range(
        &self,
        call: &Call<'_>,
        place: &Place,
        reach: Option<u64>,
        param: &'static str,
    ) -> Result<(), Refusal> {
        let allocation = &place.allocation;
        let Some(len_bytes) = reach.filter(|_| allocation.bounded) else { return Ok(()) };
        let end = place.offset_bytes.checked_add(len_bytes);
        if end.is_some_and(|end| end <= allocation.size_bytes) {
            return Ok(());
        }
        // A runtime checks ranges of device memory itself, and that may be why the call failed at capture.
        if !call.succeeded() && allocation.space == Space::Device {
            return Ok(());
        }
        let (offset_bytes, size_bytes) = (place.offset_bytes, allocation.size_bytes);
        Err(refuse(call, Refusal::Range { param, len_bytes, offset_bytes, size_bytes }))
    }
}

/// The refusal of a call that had succeeded; one that had failed changed nothing and is left out.
fn refuse(call: &Call<'_>, refusal: Refusal) -> Refusal {
    if call.succeeded() { refusal } else { Refusal::NotReissued }
}

/// Bytes that a call reads or writes through an address whose size the table leaves open.
fn scalar_access_bytes(api: &Api) -> Option<u64> {
    match api.name.trim_end_matches("_spt") {
        "hipStreamWriteValue32" | "hipStreamWaitValue32" => Some(4),
        "hipStreamWriteValue64" | "hipStreamWaitValue64" => Some(8),
        _ => None,
    }
}

/// How far a copy or fill described by a struct reaches from one of its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// So many bytes.
    Bytes(u64),
    /// So many at least, and up to sixteen times as many: its width counts elements of an array.
    Elements(u64),
    /// Nothing is known of it.
    Unknown,
}

/// Offsets in a copy struct of what one side's reach is made of.
struct Side {
    address: u32,
    /// Position: bytes in the row, row, slice.
    position: [Option<u32>; 3],
    pitch: u32,
    /// Rows in a slice.
    rows: Option<u32>,
}

/// A copy struct: both sides, the extent, and the handles of arrays that make widths count elements.
struct Copy {
    layout: &'static str,
    sides: [Side; 2],
    extent: [Option<u32>; 3],
    arrays: &'static [u32],
}

const fn side(address: u32, position: [u32; 3], pitch: u32, rows: u32) -> Side {
    let [x, y, z] = position;
    Side { address, position: [Some(x), Some(y), Some(z)], pitch, rows: Some(rows) }
}

const fn plane(address: u32, x: u32, y: u32, pitch: u32) -> Side {
    Side { address, position: [Some(x), Some(y), None], pitch, rows: None }
}

/// Layouts of HIP 7's copy structs, from its public headers (LP64).
static COPIES: [Copy; 7] = [
    Copy {
        layout: "hipMemcpy3DParms",
        sides: [side(32, [8, 16, 24], 40, 56), side(96, [72, 80, 88], 104, 120)],
        extent: [Some(128), Some(136), Some(144)],
        arrays: &[0, 64],
    },
    Copy {
        layout: "hipMemcpy3DPeerParms",
        sides: [side(32, [8, 16, 24], 40, 56), side(104, [80, 88, 96], 112, 128)],
        extent: [Some(144), Some(152), Some(160)],
        arrays: &[0, 72],
    },
    Copy {
        layout: "hip_Memcpy2D",
        sides: [plane(24, 0, 8, 48), plane(80, 56, 64, 104)],
        extent: [Some(112), Some(120), None],
        arrays: &[],
    },
    Copy {
        layout: "hip_Memcpy2D",
        sides: [plane(32, 0, 8, 48), plane(88, 56, 64, 104)],
        extent: [Some(112), Some(120), None],
        arrays: &[],
    },
    Copy {
        layout: "HIP_MEMCPY3D",
        sides: [side(40, [0, 8, 16], 64, 72), side(120, [80, 88, 96], 144, 152)],
        extent: [Some(160), Some(168), Some(176)],
        arrays: &[],
    },
    Copy {
        layout: "HIP_MEMCPY3D",
        sides: [side(48, [0, 8, 16], 64, 72), side(128, [80, 88, 96], 144, 152)],
        extent: [Some(160), Some(168), Some(176)],
        arrays: &[],
    },
    Copy {
        layout: "hipMemcpy3DBatchOp",
        sides: [
            Side { address: 8, position: [None; 3], pitch: 16, rows: Some(24) },
            Side { address: 48, position: [None; 3], pitch: 56, rows: Some(64) },
        ],
        extent: [Some(80), Some(88), Some(96)],
        arrays: &[],
    },
];

/// How far the work that a struct describes reaches from the address in `field`.
pub(crate) fn struct_reach(layout: &StructLayout, field: &StructField, element: &[u8]) -> Reach {
    if layout.name != "hipGraphNodeParams" {
        return named_reach(layout.name, field.offset_bytes, element);
    }
    // The node's kind, then the structs that its own calls take.
    let (name, base) = match word_at(element, 0) as u32 {
        1 => ("hipMemcpy3DParms", 32),
        2 => ("hipMemsetParams", 16),
        _ => return Reach::Unknown,
    };
    match (element.get(base..), field.offset_bytes.checked_sub(base as u32)) {
        (Some(element), Some(offset_bytes)) => named_reach(name, offset_bytes, element),
        _ => Reach::Unknown,
    }
}

fn named_reach(layout: &str, offset_bytes: u32, element: &[u8]) -> Reach {
    match layout {
        "hipMemsetParams" => return memset_reach(element).map_or(Reach::Bytes(u64::MAX), Reach::Bytes),
        // The operation's number tells 32-bit from 64-bit ones: 1 and 2, 4 and 5.
        "hipStreamBatchMemOpParams" => return Reach::Bytes(if word_at(element, 0) as u32 >= 4 { 8 } else { 4 }),
        _ => {}
    }
    let found = COPIES
        .iter()
        .filter(|copy| copy.layout == layout)
        .find_map(|copy| Some((copy, copy.sides.iter().find(|side| side.address == offset_bytes)?)));
    let Some((copy, side)) = found else { return Reach::Unknown };
    let bytes = copy_reach(copy, side, element).unwrap_or(u64::MAX);
    // An operand of a batch says itself that it is an array.
    let is_batch = layout == "hipMemcpy3DBatchOp";
    let counts_elements = copy.arrays.iter().any(|&array| word_at(element, array as usize) != 0)
        || is_batch && [0, 40].iter().any(|&kind| word_at(element, kind) as u32 == 2);
    if counts_elements { Reach::Elements(bytes) } else { Reach::Bytes(bytes) }
}

/// Four channels of 32 bits: the largest element of an array.
const MAX_ELEMENT_BYTES: u64 = 16;

/// The shape of the host side of a copy that a struct describes, whose contents were recorded as `blob_bytes` packed bytes.
/// `None` where the struct's numbers do not give so many.
pub(crate) fn host_shape(layout: &StructLayout, field: &StructField, element: &[u8], blob_bytes: u64) -> Option<Shape> {
    let (name, base) = match layout.name {
        "hipGraphNodeParams" => ("hipMemcpy3DParms", 32),
        name => (name, 0),
    };
    let (element, offset_bytes) = (element.get(base..)?, field.offset_bytes.checked_sub(base as u32)?);
    let copies = COPIES.iter().filter(|copy| copy.layout == name);
    let (copy, side) =
        copies.filter_map(|copy| Some((copy, copy.sides.iter().find(|side| side.address == offset_bytes)?))).next()?;
    let at = |offset: Option<u32>, otherwise: u64| offset.map_or(otherwise, |offset| word_at(element, offset as usize));
    let [width, height, depth] = [at(copy.extent[0], 1), at(copy.extent[1], 1), at(copy.extent[2], 1)];
    let elements = width.checked_mul(height)?.checked_mul(depth)?;
    if elements == 0 {
        return (blob_bytes == 0).then(|| Shape::linear(0));
    }
    let counts_elements = matches!(named_reach(name, offset_bytes, element), Reach::Elements(_));
    // What a row has tells how large elements are; the runtime goes by the array, which may say otherwise.
    let unit = blob_bytes / elements;
    if unit.checked_mul(elements) != Some(blob_bytes) || unit == 0 || unit > MAX_ELEMENT_BYTES {
        return None;
    }
    let most = if counts_elements { MAX_ELEMENT_BYTES } else { unit };
    if !counts_elements && unit != 1 {
        return None;
    }
    let row_bytes = width.checked_mul(unit)?;
    let [x, y, z] = side.position.map(|offset| at(offset, 0));
    let given = word_at(element, side.pitch as usize);
    let pitch_bytes = if given == 0 { row_bytes } else { given };
    let rows = match at(side.rows, 0) {
        0 => height,
        rows => rows,
    };
    let slice_bytes = rows.checked_mul(pitch_bytes)?;
    let lead_bytes = z.checked_mul(slice_bytes)?.checked_add(y.checked_mul(pitch_bytes)?)?.checked_add(x)?;
    let shape = Shape { lead_bytes, row_bytes, rows: height, pitch_bytes, slices: depth, slice_bytes, tail_bytes: 0 };
    // Larger elements reach further in the last row, and in every row where rows follow each other without a pitch.
    let grown = if given == 0 { blob_bytes } else { row_bytes };
    let tail_bytes = (grown / unit).checked_mul(most - unit)?;
    let shape = Shape { tail_bytes, ..shape };
    shape.span_bytes().is_some().then_some(shape)
}

/// The shape of the host side of a copy that a struct describes. `None` where it is no copy. One that counts the elements of an
/// array, whose size the struct does not tell, is as large as it can be.
pub(crate) fn host_rows(layout: &StructLayout, field: &StructField, element: &[u8]) -> Option<Shape> {
    let unit_bytes = match struct_reach(layout, field, element) {
        Reach::Bytes(_) => 1,
        Reach::Elements(_) => MAX_ELEMENT_BYTES,
        Reach::Unknown => return None,
    };
    let (name, base) = match layout.name {
        "hipGraphNodeParams" => ("hipMemcpy3DParms", 32),
        name => (name, 0),
    };
    let copy = COPIES.iter().find(|copy| copy.layout == name)?;
    let inner = element.get(base..)?;
    let extent = |offset: Option<u32>| offset.map_or(1, |offset| word_at(inner, offset as usize));
    let [width, height, depth] = copy.extent.map(extent);
    let elements = width.checked_mul(height)?.checked_mul(depth)?;
    host_shape(layout, field, element, elements.checked_mul(unit_bytes)?)
}

fn copy_reach(copy: &Copy, side: &Side, element: &[u8]) -> Option<u64> {
    let at = |offset: Option<u32>, otherwise: u64| offset.map_or(otherwise, |offset| word_at(element, offset as usize));
    let [width, height, depth] = [at(copy.extent[0], 1), at(copy.extent[1], 1), at(copy.extent[2], 1)];
    if width == 0 || height == 0 || depth == 0 {
        return Some(0);
    }
    let [x, y, z] = side.position.map(|offset| at(offset, 0));
    // A pitch or a number of rows that is left out is that of the copy itself.
    let pitch = match word_at(element, side.pitch as usize) {
        0 => width,
        pitch => pitch,
    };
    let rows = match at(side.rows, 0) {
        0 => height,
        rows => rows,
    };
    let slices = z.checked_add(depth - 1)?.checked_mul(rows)?;
    let rows_before = slices.checked_add(y)?.checked_add(height - 1)?;
    rows_before.checked_mul(pitch)?.checked_add(x)?.checked_add(width)
}

/// `hipMemsetParams`: element size at 8, height at 16, pitch at 24, width in elements at 40.
fn memset_reach(element: &[u8]) -> Option<u64> {
    let element_bytes = u64::from(word_at(element, 8) as u32);
    let (height, pitch, width) = (word_at(element, 16), word_at(element, 24), word_at(element, 40));
    if height == 0 || width == 0 {
        return Some(0);
    }
    let row_bytes = width.checked_mul(element_bytes)?;
    // The pitch of a single row means nothing.
    (height - 1).checked_mul(pitch)?.checked_add(row_bytes)
}

/// The size of a role that names memory by address.
pub(crate) fn memory_size(role: &Role) -> Size {
    match role {
        Role::Device(_, size) | Role::Any(_, size) | Role::Host(_, size) => *size,
        _ => Size::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use hrr_format::catalogue::STRUCTS;

    use super::*;

    fn reach(layout: &str, field: &str, words: &[(usize, u64)]) -> Reach {
        let layout = STRUCTS.iter().find(|known| known.name == layout).unwrap();
        let field = layout.fields.iter().find(|known| known.name == field).unwrap();
        let mut element = vec![0; layout.size_bytes as usize];
        for &(at, value) in words {
            element[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        struct_reach(layout, field, &element)
    }

    #[test]
    fn a_copy_reaches_to_the_last_byte_of_its_last_row() {
        let linear = [(128, 100), (136, 1), (144, 1)];
        assert_eq!(reach("hipMemcpy3DParms", "srcPtr.ptr", &linear), Reach::Bytes(100));
        // Two slices of three rows: one slice of 4 rows of 64 bytes, then 2 rows, then a part of a row, from row 1, byte 8.
        let box_of = [(96, 0), (72, 8), (80, 1), (104, 64), (120, 4), (128, 10), (136, 3), (144, 2)];
        assert_eq!(reach("hipMemcpy3DParms", "dstPtr.ptr", &box_of), Reach::Bytes((4 + 1 + 2) * 64 + 8 + 10));
        assert_eq!(reach("hip_Memcpy2D", "srcHost", &[(112, 10), (120, 3), (48, 16)]), Reach::Bytes(42));
        assert_eq!(reach("hip_Memcpy2D", "dstDevice", &[(112, 10), (120, 3), (56, 5)]), Reach::Bytes(35));
        assert_eq!(reach("HIP_MEMCPY3D", "srcDevice", &[(160, 7), (168, 2), (176, 2)]), Reach::Bytes(28));
        assert_eq!(reach("hipMemsetParams", "dst", &[(8, 4), (16, 2), (24, 64), (40, 3)]), Reach::Bytes(76));
        let node = [(0, 2), (16 + 8, 4), (16 + 16, 2), (16 + 24, 64), (16 + 40, 3)];
        assert_eq!(reach("hipGraphNodeParams", "memset.dst", &node), Reach::Bytes(76));
        let node = [(0, 1), (32 + 128, 100), (32 + 136, 1), (32 + 144, 1)];
        assert_eq!(reach("hipGraphNodeParams", "memcpy.copyParams.dstPtr.ptr", &node), Reach::Bytes(100));
        let operation = [(0, 1), (40, 1), (80, 10), (88, 3), (96, 1), (16, 32)];
        assert_eq!(reach("hipMemcpy3DBatchOp", "src.op.ptr.ptr", &operation), Reach::Bytes(74));
    }

    #[test]
    fn copies_that_overflow_reach_everywhere_and_those_of_nothing_nowhere() {
        let huge = [(128, u64::MAX), (136, u64::MAX), (144, 1)];
        assert_eq!(reach("hipMemcpy3DParms", "srcPtr.ptr", &huge), Reach::Bytes(u64::MAX));
        assert_eq!(reach("hipMemcpy3DParms", "srcPtr.ptr", &[(8, u64::MAX)]), Reach::Bytes(0));
        assert_eq!(
            reach("hipMemcpy3DParms", "srcPtr.ptr", &[(64, 1), (128, 5), (136, 1), (144, 1)]),
            Reach::Elements(5)
        );
    }

    #[test]
    fn offsets_are_those_of_the_catalogue() {
        for copy in &COPIES {
            let layout = STRUCTS.iter().find(|known| known.name == copy.layout).unwrap();
            for side in &copy.sides {
                let is_side =
                    |field: &StructField| field.offset_bytes == side.address && matches!(field.role, Role::Any(..));
                assert!(layout.fields.iter().any(is_side), "{} at {}", copy.layout, side.address);
                assert!(side.pitch + 8 <= layout.size_bytes);
            }
            for &array in copy.arrays {
                assert!(
                    layout.fields.iter().any(|field| field.offset_bytes == array && matches!(field.role, Role::Use(_)))
                );
            }
        }
        // Every struct with addresses of memory is known here, or its addresses are only looked up.
        for layout in STRUCTS.iter() {
            for field in layout.fields.iter().filter(|field| matches!(field.role, Role::Any(..) | Role::Device(..))) {
                let mut element = vec![0; layout.size_bytes as usize];
                if let Some(when) = field.when {
                    element[when.offset_bytes as usize..][..4].copy_from_slice(&when.values[0].to_le_bytes());
                }
                let known = struct_reach(layout, field, &element) != Reach::Unknown;
                // Addresses that are asked about, freed, prefetched, or that textures and kernels read.
                let not_written = [
                    "hipPointerAttribute_t.hostPointer",
                    "hipGraphNodeParams.free.dptr",
                    "hipLaunchAttribute.val.accessPolicyWindow.base_ptr",
                    "hipExtDynDataPrefetchConfig.regions[0].address",
                    "hipExtDynDataPrefetchConfig.regions[1].address",
                    "hipResourceDesc.res.linear.devPtr",
                    "HIP_RESOURCE_DESC.res.linear.devPtr",
                ];
                let name = format!("{}.{}", layout.name, field.name);
                assert!(known || not_written.contains(&name.as_str()), "{name}");
            }
        }
    }

    #[test]
    fn pinned_memory_is_as_large_as_the_words_of_its_call_say() {
        for api in hrr_format::catalogue::APIS.iter() {
            for param in api.params {
                if let Role::NewHost(size) | Role::NewManaged(size) | Role::Pin(size) = param.role {
                    assert!(is_of_words(size), "{}({})", api.name, param.name);
                }
            }
        }
    }

    #[test]
    fn nowhere_is_no_address_whatever_the_offset() {
        for offset in [0, 1, MAX_ALLOCATION_BYTES, 2 * MAX_ALLOCATION_BYTES] {
            let upper = (NOWHERE + offset) >> 47;
            assert!(upper != 0 && upper != (1 << 17) - 1);
        }
    }
}
