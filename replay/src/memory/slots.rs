//! Slots: one 64-bit cell for every handle or address that a call of the archive creates.
//!
//! The planner resolves each use of a recorded handle or address to a slot, so a handle value that the program's
//! runtime reused is no problem: every creation has a slot of its own. The timed loop only loads and stores cells.

use std::sync::atomic::{AtomicU64, Ordering};

/// Cells per block.
const BLOCK_SLOTS: usize = 4096;

/// A cell's address, stable for the life of its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Slot(*const AtomicU64);

// SAFETY: a slot is a shared reference to an atomic; its table outlives every worker (see `SlotTable`).
unsafe impl Send for Slot {}
// SAFETY: as above.
unsafe impl Sync for Slot {}

impl Slot {
    /// The live handle or address.
    ///
    /// # Safety
    /// The slot's table is alive.
    #[inline(always)]
    pub(crate) unsafe fn load(self) -> u64 {
        // SAFETY: cells are never moved or freed before their table, which the caller vouches for.
        // Relaxed: the store happened before by program order, or by the edge from the creating call that the planner
        // puts in front of every use on another worker (progress is published with Release and awaited with Acquire).
        unsafe { &*self.0 }.load(Ordering::Relaxed)
    }

    /// Stores the live handle or address.
    ///
    /// # Safety
    /// The slot's table is alive.
    #[inline(always)]
    pub(crate) unsafe fn store(self, value: u64) {
        // SAFETY: as in `load`. Relaxed: published by the progress store that follows the call.
        unsafe { &*self.0 }.store(value, Ordering::Relaxed);
    }
}

/// Hands out slots; their memory lives as long as the table.
#[derive(Debug, Default)]
pub(crate) struct SlotTable {
    blocks: Vec<Box<[AtomicU64]>>,
    used_in_last: usize,
}

impl SlotTable {
    /// A new slot holding `initial`.
    pub(crate) fn allocate(&mut self, initial: u64) -> Slot {
        if self.blocks.is_empty() || self.used_in_last == BLOCK_SLOTS {
            self.blocks.push((0..BLOCK_SLOTS).map(|_| AtomicU64::new(0)).collect());
            self.used_in_last = 0;
        }
        let block = self.blocks.last().expect("a block was pushed when there was none");
        let cell = &block[self.used_in_last];
        self.used_in_last += 1;
        // Relaxed: the chunk that carries this slot to a worker is handed over through a channel.
        cell.store(initial, Ordering::Relaxed);
        Slot(cell)
    }

    /// What all slots hold. No runner is active.
    pub(crate) fn values(&self) -> Vec<u64> {
        // Relaxed: the runners' ends were received through channels.
        self.blocks.iter().flat_map(|block| block.iter().map(|cell| cell.load(Ordering::Relaxed))).collect()
    }

    /// Has all slots hold what [`Self::values`] told. No runner is active.
    pub(crate) fn restore(&self, values: &[u64]) {
        for (cell, &value) in self.blocks.iter().flat_map(|block| block.iter()).zip(values) {
            // Relaxed: the runners' sequences are handed over through channels afterwards.
            cell.store(value, Ordering::Relaxed);
        }
    }

    /// Number of slots handed out.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.blocks.len().saturating_sub(1) * BLOCK_SLOTS + self.used_in_last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_distinct_and_keep_their_values_across_blocks() {
        let mut table = SlotTable::default();
        let slots: Vec<Slot> = (0..3 * BLOCK_SLOTS as u64).map(|value| table.allocate(value)).collect();
        assert_eq!(table.len(), slots.len());
        for (value, slot) in slots.iter().enumerate() {
            // SAFETY: the table is alive.
            assert_eq!(unsafe { slot.load() }, value as u64);
        }
    }
}
