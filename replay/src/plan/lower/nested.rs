//! What structs point to: further structs, arrays of handles, plain bytes.
//!
//! The recorder keeps each in a section of its own, with the parameter's number, in the order of a walk over the structs: the
//! structs of the parameter themselves first, then for each of them, field by field, what it points to.

use hrr_format::catalogue::{MIN_BUFFER_BYTES, Role, STRUCTS, StructField, StructLayout};
use hrr_format::record::{Presence, Section, SectionTag};

use super::bounds::MAX_INLINE_BYTES;
use super::draft::Draft;
use super::{Call, Lowering, RecordInputs, word_at};
use crate::instruction::Chunk;
use crate::memory::stage::poison_address;
use crate::plan::Planner;
use crate::plan::error::Refusal;
use crate::plan::order::dependency::Use;

impl Lowering {
    /// The next section with this tag of a parameter, in the order of the walk.
    pub(crate) fn next_section<'r>(&mut self, call: &Call<'r>, tag: SectionTag, number: u8) -> Option<Section<'r>> {
        let of_param = |section: &Section<'_>| section.tag == tag && section.param == number;
        let used = self.used.iter().filter(|used| **used == (tag, number)).count();
        self.used.push((tag, number));
        call.record.sections().map_while(Result::ok).filter(of_param).nth(used)
    }
}

impl<'a> Planner<'a> {
    /// Lays out what a field points to, and returns its address; zero where the field is null. `None` for fields that point
    /// to nothing of the kind.
    #[expect(clippy::too_many_arguments, reason = "one argument each for what a field is made of")]
    pub(crate) fn lower_nested(
        &mut self,
        call: &Call<'a>,
        chunk: &mut Chunk,
        draft: &mut Draft,
        lowering: &mut Lowering,
        number: u8,
        field: &'static StructField,
        element: &[u8],
    ) -> Result<Option<u64>, Refusal> {
        let (count, unit_bytes) = match field.role {
            Role::In(size) => (size, 1),
            Role::UseArray(_, count) => (count, 8),
            Role::Struct(layout, count) => (count, u64::from(STRUCTS[usize::from(layout)].size_bytes)),
            _ => return Ok(None),
        };
        let inputs = RecordInputs { api: call.api, record: &call.record, fields: element };
        let len_bytes = count.value(&inputs).and_then(|count| count.checked_mul(unit_bytes)).unwrap_or(u64::MAX);
        let section = lowering.next_section(call, SectionTag::In, number);
        if word_at(element, field.offset_bytes as usize) == 0 {
            return Ok(Some(0));
        }
        if len_bytes > MAX_INLINE_BYTES {
            let refusal = Refusal::TooLong { param: field.name, len_bytes };
            return Err(if call.succeeded() { refusal } else { Refusal::NotReissued });
        }
        let bytes = match section {
            Some(section) if section.presence == Presence::Withheld => {
                return Err(Refusal::Withheld { what: "an argument passed by pointer" });
            }
            Some(section) if section.presence == Presence::Present => section.payload,
            _ => &[],
        };
        if (bytes.len() as u64) < len_bytes && call.succeeded() {
            let (found_bytes, expected_bytes) = (bytes.len(), len_bytes as usize);
            return Err(Refusal::Section { param: field.name, found_bytes, expected_bytes });
        }
        let room = bytes.len().max(len_bytes as usize).max(MIN_BUFFER_BYTES);
        let place = chunk.memory.allocate(room.div_ceil(8));
        // SAFETY: the allocation is at least as long as `bytes`, fresh, and zeroed.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place.cast::<u8>(), bytes.len()) };
        match field.role {
            Role::UseArray(kind, _) => {
                for position in 0..bytes.len() / 8 {
                    // SAFETY: `position` is below the number of words copied.
                    let target = unsafe { place.add(position) };
                    let handle = word_at(bytes, position * 8);
                    if handle != 0 {
                        match self.live_handle(call, lowering, kind, handle, Use::Reads)? {
                            Some(slot) => draft.patch_at(target, slot, 0),
                            // SAFETY: as above.
                            None => unsafe { target.write(poison_address()) },
                        }
                    }
                }
            }
            Role::Struct(layout, _) => {
                let layout = &STRUCTS[usize::from(layout)];
                self.lower_elements(call, chunk, draft, lowering, number, layout, bytes, place.cast())?;
            }
            _ => {}
        }
        Ok(Some(place as u64))
    }

    /// Rewrites the fields of all structs in `bytes`, whose copies lie at `place`.
    #[expect(clippy::too_many_arguments, reason = "one argument each for what a struct parameter is made of")]
    pub(crate) fn lower_elements(
        &mut self,
        call: &Call<'a>,
        chunk: &mut Chunk,
        draft: &mut Draft,
        lowering: &mut Lowering,
        number: u8,
        layout: &'static StructLayout,
        bytes: &[u8],
        place: *mut u8,
    ) -> Result<(), Refusal> {
        let stride = layout.size_bytes as usize;
        for (position, element) in bytes.chunks_exact(stride).enumerate() {
            // SAFETY: `position * stride` is below the length copied.
            let base = unsafe { place.add(position * stride) };
            for field in layout.fields.iter().filter(|field| field.when.is_none_or(|when| when.holds(element))) {
                self.lower_field(call, chunk, draft, lowering, number, (layout, field), element, base)?;
            }
        }
        Ok(())
    }
}
