//! A copy of what the archive says an allocation holds; memory that was never anything but zero takes none.

/// Bytes that are compared and recorded together.
pub(super) const CHUNK_BYTES: usize = 4096;

/// A private mapping that begins as zeros.
#[derive(Debug)]
pub(super) struct Shadow {
    base: *mut u8,
    len_bytes: usize,
}

// SAFETY: the mapping is owned, and reached only through the shadow's own borrows.
unsafe impl Send for Shadow {}

impl Shadow {
    /// Zeros of this length; `None` where there is no address space for them.
    pub(super) fn new(len_bytes: usize) -> Option<Self> {
        // SAFETY: an anonymous private mapping at an address of the kernel's choice touches no existing memory.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len_bytes.max(1),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        (base != libc::MAP_FAILED).then_some(Shadow { base: base.cast(), len_bytes })
    }

    /// Length in bytes.
    pub(super) fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// `len` bytes from `start` on, which lie inside.
    pub(super) fn at(&self, start: usize, len: usize) -> &[u8] {
        assert!(start <= self.len_bytes && len <= self.len_bytes - start, "inside the allocation");
        // SAFETY: checked above; the mapping is readable and changed only through `&mut self`.
        unsafe { std::slice::from_raw_parts(self.base.add(start), len) }
    }

    /// Replaces bytes from `start` on, which lie inside.
    pub(super) fn set(&mut self, start: usize, bytes: &[u8]) {
        assert!(start <= self.len_bytes && bytes.len() <= self.len_bytes - start, "inside the allocation");
        // SAFETY: checked above; `bytes` cannot lie in the mapping, which `&mut self` has alone.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.add(start), bytes.len()) };
    }
}

impl Drop for Shadow {
    fn drop(&mut self) {
        // SAFETY: the mapping is this shadow's own, and of this length.
        unsafe { libc::munmap(self.base.cast(), self.len_bytes.max(1)) };
    }
}
