//! Host memory that takes part in a copy: one range, or rows of one.

use hrr_format::catalogue::{Size, SizeInputs};

use super::memory::{self, Trust};

/// Host memory; its contents are recorded packed, row after row without what lies between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    /// First byte.
    pub(crate) address: u64,
    /// Bytes in a row.
    pub(crate) width_bytes: u64,
    /// Rows in a slice.
    pub(crate) height: u64,
    /// Slices.
    pub(crate) depth: u64,
    /// Bytes from row to row.
    pub(crate) pitch_bytes: u64,
    /// Bytes from slice to slice.
    pub(crate) slice_bytes: u64,
}

impl Region {
    /// One range.
    pub(crate) fn range(address: u64, len_bytes: u64) -> Self {
        Region { address, width_bytes: len_bytes, height: 1, depth: 1, pitch_bytes: len_bytes, slice_bytes: len_bytes }
    }

    /// The region of a parameter at `address` whose size is `size`; `None` where it has none.
    pub(crate) fn of_size(address: u64, size: &Size, inputs: &impl SizeInputs) -> Option<Self> {
        match *size {
            Size::Rect { width, height, pitch } => {
                let (width, height) = (inputs.word(width, 0)?, inputs.word(height, 0)?);
                let pitch = inputs.word(pitch, 0)?;
                Region::rows(address, width, height, pitch)
            }
            _ => Some(Region::range(address, size.value(inputs)?)),
        }
    }

    /// Rows `pitch_bytes` apart; `None` where they overlap or run out of the address space.
    pub(crate) fn rows(address: u64, width_bytes: u64, height: u64, pitch_bytes: u64) -> Option<Self> {
        Region::slices(address, width_bytes, height, 1, pitch_bytes, pitch_bytes.checked_mul(height)?)
    }

    /// Slices of rows; `None` where rows overlap or run out of the address space.
    pub(crate) fn slices(
        address: u64,
        width_bytes: u64,
        height: u64,
        depth: u64,
        pitch_bytes: u64,
        slice_bytes: u64,
    ) -> Option<Self> {
        let region = Region { address, width_bytes, height, depth, pitch_bytes, slice_bytes };
        if (pitch_bytes < width_bytes && height > 1) || (depth > 1 && slice_bytes < pitch_bytes.checked_mul(height)?) {
            return None;
        }
        address.checked_add(region.span_bytes()?)?;
        Some(region)
    }

    /// Length of the packed contents in bytes.
    pub(crate) fn len_bytes(&self) -> Option<u64> {
        self.width_bytes.checked_mul(self.height)?.checked_mul(self.depth)
    }

    /// Bytes from the first to the last, gaps included.
    pub(crate) fn span_bytes(&self) -> Option<u64> {
        if self.width_bytes == 0 || self.height == 0 || self.depth == 0 {
            return Some(0);
        }
        let rows = self.pitch_bytes.checked_mul(self.height - 1)?;
        let slices = self.slice_bytes.checked_mul(self.depth - 1)?;
        rows.checked_add(slices)?.checked_add(self.width_bytes)
    }

    /// Whether the two have an address in common, gaps counted in.
    pub(crate) fn overlaps(&self, other: &Region) -> bool {
        let span = |region: &Region| region.span_bytes().unwrap_or(u64::MAX);
        self.address < other.address.saturating_add(span(other))
            && other.address < self.address.saturating_add(span(self))
    }

    /// The single range it is, if rows follow each other without gaps.
    pub(crate) fn as_range(&self) -> Option<(u64, u64)> {
        let rows_touch = self.height == 1 || self.pitch_bytes == self.width_bytes;
        let slices_touch = self.depth == 1 || self.slice_bytes == self.width_bytes.checked_mul(self.height)?;
        if rows_touch && slices_touch { Some((self.address, self.len_bytes()?)) } else { None }
    }

    /// Copies packed contents from `skip` bytes on into `to`; says whether all of it could be read.
    ///
    /// # Safety
    /// With [`Trust::Readable`] every row is readable. `skip` plus the length of `to` is at most [`Self::len_bytes`].
    pub(crate) unsafe fn read(&self, mut skip: u64, mut to: &mut [u8], trust: Trust) -> bool {
        let (width, rows) = match self.as_range() {
            Some((_, len_bytes)) => (len_bytes, 1),
            None => (self.width_bytes, self.height),
        };
        if width == 0 || rows == 0 {
            return to.is_empty();
        }
        while !to.is_empty() {
            let (row, column) = (skip / width, skip % width);
            let (slice, row) = (row / rows, row % rows);
            let address = self.address + slice * self.slice_bytes + row * self.pitch_bytes + column;
            let len = usize::try_from(width - column).unwrap_or(usize::MAX).min(to.len());
            let (now, later) = to.split_at_mut(len);
            // SAFETY: the bytes lie in one row, which the caller vouches for.
            if !unsafe { memory::copy(address as *const u8, now.as_mut_ptr(), len, trust) } {
                return false;
            }
            to = later;
            skip += len as u64;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pitched_contents_are_read_packed_from_any_place() {
        let memory: Vec<u8> = (0..200u8).collect();
        let region = Region::slices(memory.as_ptr() as u64, 3, 2, 2, 10, 50).unwrap();
        assert_eq!((region.len_bytes(), region.span_bytes()), (Some(12), Some(63)));
        let expected = [0u8, 1, 2, 10, 11, 12, 50, 51, 52, 60, 61, 62];
        for start in 0..12 {
            let mut read = vec![0; 12 - start];
            // SAFETY: the region lies in the vector.
            assert!(unsafe { region.read(start as u64, &mut read, Trust::Readable) });
            assert_eq!(read, expected[start..]);
        }
    }

    #[test]
    fn rows_without_gaps_are_one_range() {
        let region = Region::rows(64, 8, 4, 8).unwrap();
        assert_eq!(region.as_range(), Some((64, 32)));
        assert_eq!(Region::rows(64, 8, 4, 16).unwrap().as_range(), None);
        assert!(Region::rows(64, 8, 4, 4).is_none());
        assert!(Region::rows(u64::MAX - 8, 8, 4, 16).is_none());
    }

    #[test]
    fn overlap_is_by_first_and_last_byte() {
        let a = Region::range(100, 10);
        assert!(a.overlaps(&Region::range(109, 1)) && !a.overlaps(&Region::range(110, 1)));
        assert!(!a.overlaps(&Region::range(90, 10)));
    }
}
