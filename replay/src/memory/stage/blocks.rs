//! Blocks of host memory: taken from the runtime or the system, filled from the front, kept for others when they are free.

use std::collections::BTreeMap;

use super::StageError;

/// Arena block size in bytes; larger places get blocks of their own.
const BLOCK_BYTES: usize = 16 << 20;

/// A host address that may travel between threads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Address(pub(super) *mut u8);

impl Address {
    /// The address so many bytes further.
    ///
    /// # Safety
    /// It lies within the block, or one past its end.
    pub(super) unsafe fn add(&self, bytes: usize) -> *mut u8 {
        // SAFETY: by this function's contract.
        unsafe { self.0.add(bytes) }
    }
}

// SAFETY: the address is that of arena memory that outlives all users; who writes there is settled by the plan.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

/// Bump-allocated host memory.
#[derive(Debug, Default)]
pub(super) struct Arena {
    pub(super) blocks: Vec<(Address, usize)>,
    pub(super) used_in_last: usize,
}

impl Arena {
    /// Room for `len` bytes in the last block, or in one that `block` makes.
    pub(super) fn take(
        &mut self,
        len: usize,
        block: impl FnOnce(usize) -> Result<(*mut u8, usize), StageError>,
    ) -> Result<(*mut u8, usize), StageError> {
        let room = self.blocks.last().map_or(0, |(_, size)| size - self.used_in_last);
        let mut grown = 0;
        if room < len || self.blocks.is_empty() {
            let (block, size) = block(len.max(BLOCK_BYTES))?;
            self.blocks.push((Address(block), size));
            self.used_in_last = 0;
            grown = size;
        }
        let (block, _) = *self.blocks.last().ok_or(StageError::TooLarge { bytes: len as u64 })?;
        // SAFETY: `used_in_last + len` is within the block, by the check above.
        let place = unsafe { block.0.add(self.used_in_last) };
        self.used_in_last += len;
        Ok((place, grown))
    }
}

/// Blocks that are free, by size.
#[derive(Clone, Debug, Default)]
pub(super) struct Spares(BTreeMap<usize, Vec<Address>>);

impl Spares {
    pub(super) fn put(&mut self, block: Address, size: usize) {
        self.0.entry(size).or_default().push(block);
    }

    /// A block of at least `len` bytes, not much larger.
    pub(super) fn take(&mut self, len: usize) -> Option<(Address, usize)> {
        let size = *self.0.range(len..=len.saturating_mul(2)).next()?.0;
        self.take_of(size)
    }

    pub(super) fn take_largest(&mut self) -> Option<(Address, usize)> {
        let size = *self.0.last_key_value()?.0;
        self.take_of(size)
    }

    fn take_of(&mut self, size: usize) -> Option<(Address, usize)> {
        let blocks = self.0.get_mut(&size)?;
        let block = blocks.pop()?;
        if blocks.is_empty() {
            self.0.remove(&size);
        }
        Some((block, size))
    }
}

pub(super) fn map_anonymous(len_bytes: usize) -> Option<*mut u8> {
    // SAFETY: an anonymous private mapping at an address of the kernel's choice touches no existing memory.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len_bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    (address != libc::MAP_FAILED).then_some(address.cast())
}
