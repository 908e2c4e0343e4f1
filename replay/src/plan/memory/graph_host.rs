//! Host memory that graphs copy from and to: what stands for it, how its rows lie, and what is put there before a launch and
//! kept after it.
//!
//! A node of a graph has the address for as long as the graph lives, and touches it at every launch. The recorder keeps the
//! packed contents at each launch, and how their rows lie.

use std::collections::BTreeMap;

use hrr_format::record::{HostRows, Section, SectionTag};

use super::address::Space;
use crate::instruction::{Chunk, Wait, flag};
use crate::memory::stage::Shape;
use crate::plan::Planner;
use crate::plan::error::Refusal;
use crate::plan::lower::Call;
use crate::plan::lower::draft::{Draft, Issue};
use crate::plan::shape::WithImages;
use crate::thunk::Outcome;

/// Addresses are taken in blocks of so many bytes.
const BLOCK_BYTES: u64 = 1 << 36;

/// A stretch of addresses as long as one of the program's, whose pages come when they are touched.
#[derive(Debug)]
struct Block(usize);

impl Block {
    /// `None` where there are not so many addresses.
    fn reserve() -> Option<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no other memory.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), BLOCK_BYTES as usize, access, flags, -1, 0) };
        (base != libc::MAP_FAILED).then_some(Block(base as usize))
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's own, and the planner outlives the run that uses it.
        unsafe { libc::munmap(self.0 as *mut libc::c_void, BLOCK_BYTES as usize) };
    }
}

/// Host memory of graphs. What stands for pageable memory lies as that did, so that pieces which overlap, or lie in one another,
/// still do.
#[derive(Debug, Default)]
pub(crate) struct GraphHost {
    /// By number of the program's block of addresses; `None` where there was no room for one.
    blocks: BTreeMap<u64, Option<Block>>,
    /// What stands for pieces that lie in no block, by recorded address and length in bytes: the same piece always has the same
    /// place.
    places: BTreeMap<(u64, u64), usize>,
}

impl GraphHost {
    /// The place of a piece in the block that it lies in.
    fn in_block(&mut self, address: u64, len_bytes: u64) -> Option<*mut u8> {
        let number = address / BLOCK_BYTES;
        let last = address.checked_add(len_bytes.max(1) - 1)?;
        if last / BLOCK_BYTES != number {
            return None;
        }
        let block = self.blocks.entry(number).or_insert_with(Block::reserve).as_ref()?;
        Some((block.0 + (address % BLOCK_BYTES) as usize) as *mut u8)
    }
}

/// The host memory of a graph's copies that a launch names: each with its section, and the one that tells how its rows lie.
pub(crate) fn graph_host_sections<'r>(
    call: &Call<'r>,
    tag: SectionTag,
) -> impl Iterator<Item = (Section<'r>, Option<HostRows>)> + use<'r> {
    let has_any = call.tags.has(tag);
    let mut sections = call.record.sections().map_while(Result::ok).peekable();
    let rows = |next: &Section<'_>| (next.tag == SectionTag::GraphHostRows).then(|| HostRows::read(next.payload))?;
    std::iter::from_fn(move || {
        if !has_any {
            return None;
        }
        let section = sections.find(|section| section.tag == tag)?;
        Some((section, sections.peek().and_then(rows)))
    })
}

/// The shape of so many bytes of contents; `None` where they cannot lie so.
pub(crate) fn shape_of(packed_bytes: u64, rows: Option<HostRows>) -> Option<Shape> {
    let Some(rows) = rows else { return Some(Shape::linear(packed_bytes)) };
    let count = u64::from(rows.rows).checked_mul(u64::from(rows.slices)).filter(|&count| count != 0)?;
    let shape = Shape {
        slices: u64::from(rows.slices),
        slice_bytes: rows.slice_bytes,
        ..Shape::rows(packed_bytes / count, u64::from(rows.rows), rows.pitch_bytes)
    };
    (shape.packed_bytes() == Some(packed_bytes) && shape.span_bytes().is_some()).then_some(shape)
}

/// What is emitted for a copy of a graph's host memory.
pub(crate) enum HostSide {
    /// Fill the graph's memory before it is launched.
    FillFrom(WithImages),
    /// Keep a result of the graph before the next launch overwrites it.
    SaveTo(*mut u8),
}

/// Words of [`copy_thunk`].
const COPY_WORDS: u16 = 9;

/// A host memory copy of replay's own, as an instruction. Words: target, source, bytes in a row, rows in a slice, slices, then
/// the distances between rows and between slices at the target, and those at the source.
///
/// # Safety
/// The first two words are addresses of memory in which the rows lie, and no row of one lies in the other.
unsafe fn copy_thunk(_: *const std::ffi::c_void, words: *const u64) -> Outcome {
    // SAFETY: the planner lays out so many words.
    let [target, source, row_bytes, rows, slices, target_row, target_slice, source_row, source_slice] =
        std::array::from_fn(|index| unsafe { words.add(index).read() });
    for slice in 0..slices {
        for row in 0..rows {
            let from = source + slice * source_slice + row * source_row;
            let to = target + slice * target_slice + row * target_row;
            // SAFETY: the row lies in memory that the planner made, or found, for the whole shape on either side.
            unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, row_bytes as usize) };
        }
    }
    Outcome { code: 0, raw: 0 }
}

impl Planner<'_> {
    /// Host memory that stands for the program's at this address for as long as graphs may use it.
    pub(crate) fn shadow(&mut self, address: u64, len_bytes: u64) -> Result<*mut u8, Refusal> {
        if let Some(place) = self.graph_host.in_block(address, len_bytes) {
            return Ok(place);
        }
        let place = match self.graph_host.places.get(&(address, len_bytes)) {
            Some(&place) => place,
            None => self.host.lasting_place(len_bytes)? as usize,
        };
        self.graph_host.places.insert((address, len_bytes), place);
        Ok(place as *mut u8)
    }

    /// Emits a copy between a graph's host memory at a recorded address and a packed place of replay's own.
    #[expect(
        clippy::too_many_arguments,
        reason = "where the copy stands, and one argument each for what it is made of"
    )]
    pub(crate) fn emit_host_copy(
        &mut self,
        call: &Call<'_>,
        chunk: &mut Chunk,
        waits: &mut Vec<Wait>,
        address: u64,
        shape: Shape,
        side: HostSide,
        progress: u64,
    ) -> Result<(), Refusal> {
        let span_bytes = shape.span_bytes().ok_or(Refusal::Address { address, param: "graph host memory" })?;
        let graphs = [shape.pitch_bytes, shape.slice_bytes];
        let own_distances = [shape.row_bytes, shape.row_bytes.saturating_mul(shape.rows)];
        let (graph_word, own_word, own, [to, from]) = match side {
            HostSide::FillFrom(ref source) => (0, 1, source.place as u64, [graphs, own_distances]),
            HostSide::SaveTo(target) => (1, 0, target as u64, [own_distances, graphs]),
        };
        let Shape { row_bytes, rows, slices, .. } = shape;
        let words = [0, 0, row_bytes, rows, slices, to[0], to[1], from[0], from[1]];
        let mut draft = Draft::new(chunk, usize::from(COPY_WORDS), words);
        draft.set(own_word, own);
        if let HostSide::FillFrom(source) = side {
            for (place, handle) in source.images {
                draft.patch_at(place as *mut u64, handle.slot, 0);
            }
        }
        match self.objects.memory.inside(address) {
            Some(place) if place.allocation.space != Space::Device => {
                if place.offset_bytes.checked_add(span_bytes).is_none_or(|end| end > place.allocation.size_bytes) {
                    return Err(Refusal::Address { address, param: "graph host memory" });
                }
                draft.patch(graph_word, place.allocation.slot, place.offset_bytes);
            }
            _ => {
                let place = self.shadow(address, span_bytes)? as u64;
                draft.set(graph_word, place);
            }
        }
        draft.flags |= flag::AUXILIARY;
        let issue = Issue {
            thunk: copy_thunk,
            function: std::ptr::null(),
            api: call.api,
            progress,
            event: call.event,
            lane: call.lane,
            expected: 0,
            device: -1,
            flags: 0,
        };
        draft.finish(chunk, issue, waits);
        waits.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_are_not_what_the_contents_are_are_refused() {
        let rows = HostRows { rows: 4, slices: 1, pitch_bytes: 64, slice_bytes: 256 };
        assert_eq!(shape_of(64, None), Some(Shape::linear(64)));
        assert_eq!(shape_of(64, Some(rows)).map(|shape| (shape.row_bytes, shape.span_bytes())), Some((16, Some(208))));
        for wrong in
            [HostRows { rows: 0, ..rows }, HostRows { rows: 7, ..rows }, HostRows { pitch_bytes: u64::MAX, ..rows }]
        {
            assert_eq!(shape_of(64, Some(wrong)), None, "{wrong:?}");
        }
    }

    #[test]
    fn pieces_of_memory_lie_to_each_other_as_they_did() {
        let mut host = GraphHost::default();
        let base = 7 * BLOCK_BYTES + 1000;
        let first = host.in_block(base, 100).unwrap();
        assert_eq!(host.in_block(base, 200), Some(first));
        assert_eq!(host.in_block(base + 50, 1000), Some(first.wrapping_add(50)));
        assert_eq!(host.in_block(base - 999, 1), Some(first.wrapping_sub(999)));
        // SAFETY: a place of a block, which is mapped.
        unsafe { first.write(7) };
        assert_eq!(host.in_block(8 * BLOCK_BYTES - 8, 16), None, "over the end of a block");
        assert_eq!(host.in_block(u64::MAX, 2), None);
        assert!(host.in_block(8 * BLOCK_BYTES - 8, 8).is_some());
    }
}
