//! What is put into places: recorded contents, what stands for them, or only the pages.

use rayon::prelude::*;

use hrr_format::archive::Archive;

use super::blocks::Address;
use super::{PAGE_BYTES, Shape, StageError};

/// Contents are copied in parts of this size, so that several cores share a large one.
const COPY_BYTES: usize = 1 << 20;

/// Contents still to be put in their place.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) contents: Contents,
    pub(super) target: Address,
    pub(super) shape: Shape,
}

/// Where a job's contents come from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Contents {
    /// A blob of the archive.
    Blob(u64),
    /// Zeros, or noise that begins in this state.
    Synthetic(Option<u64>),
    /// None, but its pages are made ready: the program had written to its own.
    Result,
}

impl Job {
    /// Puts the contents in their place.
    ///
    /// # Errors
    /// A blob that is missing or damaged.
    ///
    /// # Safety
    /// The place was allocated for the shape's span, belongs to this job alone, and no call that reads it or writes to it is issued
    /// before this has returned.
    pub(super) unsafe fn run(&self, archive: &Archive) -> Result<(), StageError> {
        let blob = match self.contents {
            Contents::Blob(blob) => blob,
            Contents::Result => {
                // SAFETY: by this function's contract.
                unsafe { make_ready(&self.target, self.shape.span_bytes().unwrap_or(0) as usize) };
                return Ok(());
            }
            Contents::Synthetic(state) => {
                // SAFETY: by this function's contract; what is made up is linear, and its span this one row.
                let place = unsafe { std::slice::from_raw_parts_mut(self.target.0, self.shape.row_bytes as usize) };
                make_up(place, state);
                return Ok(());
            }
        };
        let wanted_bytes = self.shape.packed_bytes().unwrap_or(u64::MAX);
        let found_bytes = archive.blobs().len_bytes(blob).ok_or(StageError::Missing { blob })?;
        if found_bytes != wanted_bytes {
            return Err(StageError::Length { blob, found_bytes, wanted_bytes });
        }
        if self.shape.rows == 1 && self.shape.slices == 1 {
            // SAFETY: by this function's contract; of the span its row is a part, as long as the contents.
            let row = unsafe {
                let begin = self.target.add(self.shape.lead_bytes as usize);
                std::slice::from_raw_parts_mut(begin, wanted_bytes as usize)
            };
            archive.blobs().copy_to(blob, row)?.ok_or(StageError::Missing { blob })?;
            return Ok(());
        }
        let contents = archive.blobs().get(blob)?.ok_or(StageError::Missing { blob })?;
        // SAFETY: by this function's contract; the contents fill the span.
        unsafe { self.shape.scatter(&contents, self.target.0) };
        Ok(())
    }
}

/// Has the system provide the pages of a place, on all cores. What neighbours have in the same pages stays.
///
/// # Safety
/// The place is writable for `len_bytes`, and nothing else uses it meanwhile.
unsafe fn make_ready(place: &Address, len_bytes: usize) {
    let parts = len_bytes.div_ceil(COPY_BYTES);
    (0..parts).into_par_iter().for_each(|part| {
        let (begin, end) = (part * COPY_BYTES, ((part + 1) * COPY_BYTES).min(len_bytes));
        // SAFETY: within the place.
        let begin_address = unsafe { place.add(begin) } as usize;
        let first_page = begin_address / PAGE_BYTES * PAGE_BYTES;
        let pages_bytes = (begin_address + end - begin).next_multiple_of(PAGE_BYTES) - first_page;
        // SAFETY: faults pages of a mapping of ours in for writing and changes no byte.
        let ready = unsafe { libc::madvise(first_page as *mut libc::c_void, pages_bytes, libc::MADV_POPULATE_WRITE) };
        if ready == 0 {
            return;
        }
        // Kernels before 5.14.
        for at in (begin..end).step_by(PAGE_BYTES) {
            // SAFETY: within the place, which is this job's alone.
            unsafe { place.add(at).write_volatile(0) };
        }
    });
}

/// The next number of a sequence that does not compress (SplitMix64).
pub(super) fn noise(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// Fills memory with zeros, or with noise that begins in a state.
fn make_up(memory: &mut [u8], state: Option<u64>) {
    let Some(mut state) = state else {
        memory.fill(0);
        return;
    };
    for part in memory.chunks_mut(8) {
        part.copy_from_slice(&noise(&mut state).to_le_bytes()[..part.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::blocks::map_anonymous;
    use super::*;

    #[test]
    fn what_is_made_up_is_zeros_or_repeatable_noise() {
        let mut memory = [7; 21];
        make_up(&mut memory, None);
        assert_eq!(memory, [0; 21]);
        make_up(&mut memory, Some(3));
        let first = memory;
        make_up(&mut memory, Some(4));
        assert_ne!(memory, first);
        make_up(&mut memory, Some(3));
        assert_eq!(memory, first);
        assert!(first.iter().filter(|&&byte| byte == 0).count() < 4);
    }

    #[test]
    fn a_place_made_ready_has_its_pages_and_its_neighbours_keep_their_bytes() {
        let len_bytes = 3 * COPY_BYTES;
        let block = map_anonymous(len_bytes).expect("there is room");
        let is_resident = |at: usize| {
            let mut resident = 0u8;
            // SAFETY: asks about one page of the mapping.
            let asked = unsafe { libc::mincore(block.add(at / PAGE_BYTES * PAGE_BYTES).cast(), 1, &raw mut resident) };
            asked == 0 && resident & 1 == 1
        };
        let (begin, end) = (PAGE_BYTES + 256, len_bytes - 2 * PAGE_BYTES - 256);
        // SAFETY: within the mapping.
        unsafe { block.add(begin - 1).write(7) };
        assert!(!is_resident(len_bytes / 2) && !is_resident(end - 1));
        // SAFETY: the place lies within the mapping, and nobody else uses it.
        unsafe { make_ready(&Address(block.add(begin)), end - begin) };
        assert!((begin..end).step_by(PAGE_BYTES).all(is_resident) && is_resident(end - 1));
        assert!(!is_resident(0) && !is_resident(len_bytes - 1));
        // SAFETY: within the mapping, which is given back.
        unsafe {
            assert_eq!(block.add(begin - 1).read(), 7);
            libc::munmap(block.cast(), len_bytes);
        }
    }
}
