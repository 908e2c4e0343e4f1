//! Reading integers out of bytes whose length may or may not be known.
//!
//! The length of a code object that a program passes by address alone follows from its own headers. The code that
//! works it out is written once, over [`ReadAt`], and tested on slices.

/// Bytes that can be read at an offset.
pub(super) trait ReadAt {
    /// The `N` bytes at an offset, or `None` where there are none.
    fn read<const N: usize>(&self, at: usize) -> Option<[u8; N]>;

    /// A little-endian integer.
    fn u16_at(&self, at: usize) -> Option<u16> {
        self.read(at).map(u16::from_le_bytes)
    }

    /// A little-endian integer.
    fn u32_at(&self, at: usize) -> Option<u32> {
        self.read(at).map(u32::from_le_bytes)
    }

    /// A little-endian integer.
    fn u64_at(&self, at: usize) -> Option<u64> {
        self.read(at).map(u64::from_le_bytes)
    }

    /// A little-endian integer that must fit in a `usize`.
    fn size_at(&self, at: usize) -> Option<usize> {
        usize::try_from(self.u64_at(at)?).ok()
    }
}

impl ReadAt for [u8] {
    fn read<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.get(at..)?.first_chunk().copied()
    }
}

/// Bytes at an address, of unknown length.
#[derive(Debug)]
pub(super) struct Unbounded {
    start: *const u8,
}

impl Unbounded {
    /// Takes an address.
    ///
    /// # Safety
    /// * `start` is the address of a whole code object image: a header there describes bytes that are mapped, and
    ///   whatever offset a reader derives from those headers within the image can be read.
    /// * The image outlives the value and is not written meanwhile.
    pub(super) unsafe fn new(start: *const u8) -> Self {
        Unbounded { start }
    }
}

impl ReadAt for Unbounded {
    fn read<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        if at.checked_add(N)? > super::MAX_IMAGE_BYTES {
            return None;
        }
        // SAFETY: the constructor's caller promised that offsets derived from the image's own headers can be read;
        // callers in this module only pass such offsets. The read needs no alignment.
        Some(unsafe { self.start.add(at).cast::<[u8; N]>().read_unaligned() })
    }
}
