//! How packed contents lie in host memory: rows, slices, and the gaps between them.

/// How packed contents lie in host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    /// Bytes from the address that the call is given to the first row.
    pub(crate) lead_bytes: u64,
    /// Bytes in a row.
    pub(crate) row_bytes: u64,
    /// Number of rows in a slice.
    pub(crate) rows: u64,
    /// Distance between row starts in bytes.
    pub(crate) pitch_bytes: u64,
    /// Number of slices.
    pub(crate) slices: u64,
    /// Distance between slice starts in bytes.
    pub(crate) slice_bytes: u64,
    /// Bytes behind the last row that the call might touch as well.
    pub(crate) tail_bytes: u64,
}

impl Shape {
    /// Contents without gaps.
    pub(crate) fn linear(len_bytes: u64) -> Self {
        Self::rows(len_bytes, 1, len_bytes)
    }

    /// Rows of `row_bytes`, `pitch_bytes` apart.
    pub(crate) fn rows(row_bytes: u64, rows: u64, pitch_bytes: u64) -> Self {
        Shape { lead_bytes: 0, row_bytes, rows, pitch_bytes, slices: 1, slice_bytes: 0, tail_bytes: 0 }
    }

    /// Bytes from the address that the call is given to the end of what it may touch, or `None` where that overflows.
    pub(crate) fn span_bytes(&self) -> Option<u64> {
        let around = self.lead_bytes.checked_add(self.tail_bytes)?;
        if self.rows == 0 || self.slices == 0 {
            return Some(around);
        }
        let rows = (self.rows - 1).checked_mul(self.pitch_bytes)?.checked_add(self.row_bytes)?;
        (self.slices - 1).checked_mul(self.slice_bytes)?.checked_add(rows)?.checked_add(around)
    }

    /// Bytes of contents, or `None` where that overflows.
    pub(crate) fn packed_bytes(&self) -> Option<u64> {
        self.row_bytes.checked_mul(self.rows)?.checked_mul(self.slices)
    }

    /// Offset from the address that the call is given of the 8 bytes at `packed_at` of the contents; `None` where they do not lie in
    /// one row.
    pub(crate) fn offset_of(&self, packed_at: u64) -> Option<u64> {
        let (row, column) = (packed_at.checked_div(self.row_bytes)?, packed_at % self.row_bytes);
        let (slice, row) = (row.checked_div(self.rows)?, row % self.rows);
        let fits = slice < self.slices && column + 8 <= self.row_bytes;
        fits.then(|| self.lead_bytes + slice * self.slice_bytes + row * self.pitch_bytes + column)
    }

    /// Offsets of the rows from the address that the call is given, in the order of the contents.
    fn row_offsets(self) -> impl Iterator<Item = usize> {
        // Rows of nothing may be very many.
        let slices = if self.row_bytes == 0 || self.rows == 0 { 0 } else { self.slices };
        (0..slices).flat_map(move |slice| {
            (0..self.rows).map(move |row| {
                // Within the span, which did not overflow when memory was made for it.
                (self.lead_bytes + slice * self.slice_bytes + row * self.pitch_bytes) as usize
            })
        })
    }

    /// The packed contents of memory of this shape.
    ///
    /// # Safety
    /// `base` is readable for [`Self::span_bytes`], and nothing writes there meanwhile.
    pub(crate) unsafe fn gather<'a>(&self, base: *const u8, buffer: &'a mut Vec<u8>) -> &'a [u8] {
        buffer.clear();
        for offset in self.row_offsets() {
            // SAFETY: the row ends within the span, which the caller vouches for.
            let row = unsafe { std::slice::from_raw_parts(base.add(offset), self.row_bytes as usize) };
            buffer.extend_from_slice(row);
        }
        buffer
    }

    /// Spreads packed contents over memory of this shape.
    ///
    /// # Safety
    /// `base` is writable for [`Self::span_bytes`], and nothing else uses the memory meanwhile.
    pub(crate) unsafe fn scatter(&self, packed: &[u8], base: *mut u8) {
        if self.row_bytes == 0 {
            return;
        }
        for (row, offset) in packed.chunks(self.row_bytes as usize).zip(self.row_offsets()) {
            // SAFETY: the row ends within the span, which the caller vouches for; `packed` is the archive's mapping or a
            // heap buffer, never the target.
            unsafe { std::ptr::copy_nonoverlapping(row.as_ptr(), base.add(offset), row.len()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rectangle_is_spread_and_gathered_around_its_gaps() {
        let shape = Shape::rows(3, 2, 5);
        assert_eq!((shape.span_bytes(), shape.packed_bytes()), (Some(8), Some(6)));
        let mut memory = [9u8; 8];
        // SAFETY: the array is as long as the span.
        unsafe { shape.scatter(b"abcdef", memory.as_mut_ptr()) };
        assert_eq!(&memory, b"abc\x09\x09def");
        let mut buffer = Vec::new();
        // SAFETY: as above.
        assert_eq!(unsafe { shape.gather(memory.as_ptr(), &mut buffer) }, b"abcdef");
    }

    #[test]
    fn slices_lie_behind_their_lead_and_before_their_tail() {
        let shape = Shape { lead_bytes: 2, slices: 2, slice_bytes: 7, tail_bytes: 1, ..Shape::rows(1, 2, 3) };
        assert_eq!((shape.span_bytes(), shape.packed_bytes()), (Some(14), Some(4)));
        let mut memory = [9u8; 14];
        // SAFETY: the array is as long as the span.
        unsafe { shape.scatter(b"abcd", memory.as_mut_ptr()) };
        assert_eq!(&memory, b"\x09\x09a\x09\x09b\x09\x09\x09c\x09\x09d\x09");
        let mut buffer = Vec::new();
        // SAFETY: as above.
        assert_eq!(unsafe { shape.gather(memory.as_ptr(), &mut buffer) }, b"abcd");
    }

    #[test]
    fn shapes_that_overflow_are_refused() {
        let shape = Shape::rows(2, u64::MAX, u64::MAX);
        assert_eq!((shape.span_bytes(), shape.packed_bytes()), (None, None));
        assert_eq!(Shape::rows(7, 0, 9).span_bytes(), Some(0));
    }
}
