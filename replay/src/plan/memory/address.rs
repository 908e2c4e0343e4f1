//! Which allocation a recorded address lies in, at this moment of the recording.

use std::cell::Cell;
use std::collections::BTreeMap;

use crate::memory::slots::Slot;

/// What kind of memory an allocation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    /// Device memory.
    Device,
    /// Pinned host memory, allocated by the runtime or registered.
    Pinned,
    /// Managed memory.
    Managed,
    /// A reserved address range with nothing of its own behind it.
    Reserved,
}

/// A live allocation of the recording.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocation {
    /// Address at capture.
    pub(crate) base: u64,
    /// Size in bytes.
    pub(crate) size_bytes: u64,
    /// Holds the live address of the base.
    pub(crate) slot: Slot,
    /// Number of the object, for the order of its uses.
    pub(crate) object: u32,
    /// What kind of memory it is.
    pub(crate) space: Space,
    /// Whether the size is that of the memory; otherwise nothing told it.
    pub(crate) bounded: bool,
    /// The call that gives it back; `None` where it is a part or another name of something else.
    pub(crate) release: Option<&'static str>,
    /// The device it is on, or was made with.
    pub(crate) device: i32,
}

/// A recorded address as allocation and offset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The allocation it lies in, or one past the end of.
    pub(crate) allocation: Allocation,
    /// Offset from the base in bytes.
    pub(crate) offset_bytes: u64,
}

/// The live allocations by base address.
#[derive(Debug, Default)]
pub(crate) struct AddressMap {
    by_base: BTreeMap<u64, Allocation>,
    /// Bounds of every address ever live, for a quick no.
    lowest: u64,
    highest: u64,
    recent: Recent,
}

/// Addresses asked for of late, with what was found: programs pass the same ones over and over.
#[derive(Debug)]
struct Recent {
    /// By hash of the address.
    found: Box<[Cell<Asked>]>,
    /// Whether anything may be in there.
    used: Cell<bool>,
}

/// An address, and what was found there.
type Asked = (u64, Option<Place>);

/// Recent addresses kept.
const RECENT: usize = 256;

impl Default for Recent {
    fn default() -> Self {
        Recent { found: (0..RECENT).map(|_| Cell::new((0, None))).collect(), used: Cell::new(false) }
    }
}

impl Recent {
    fn cell(&self, address: u64) -> &Cell<Asked> {
        // Allocations lie apart by multiples of large powers of two: all bits take part.
        let mixed = address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &self.found[mixed as usize % RECENT]
    }

    /// What is live has changed.
    fn forget(&self) {
        if self.used.replace(false) {
            self.found.iter().for_each(|cell| cell.set((0, None)));
        }
    }
}

impl AddressMap {
    /// Adds a live allocation. Whatever the runtime had at the same address before is gone.
    pub(crate) fn insert(&mut self, allocation: Allocation) {
        self.recent.forget();
        if self.highest == 0 {
            self.lowest = allocation.base;
        }
        self.lowest = self.lowest.min(allocation.base);
        let end = allocation.base.saturating_add(allocation.size_bytes);
        self.highest = self.highest.max(end);
        // Nothing says when a variable's memory goes, with its module: what is allocated over it says that it has gone.
        let gone = |(&base, known): (&u64, &Allocation)| known.release.is_none().then_some(base);
        while allocation.release.is_some()
            && let Some(base) = self.by_base.range(allocation.base..end).find_map(gone)
        {
            self.by_base.remove(&base);
        }
        self.by_base.insert(allocation.base, allocation);
    }

    /// Removes the allocation with this base.
    pub(crate) fn remove(&mut self, base: u64) -> Option<Allocation> {
        self.recent.forget();
        self.by_base.remove(&base)
    }

    /// All live allocations.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Allocation> {
        self.by_base.values()
    }

    /// All live allocations, to be changed in everything but their place.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Allocation> {
        self.recent.forget();
        self.by_base.values_mut()
    }

    /// The allocation with exactly this base.
    pub(crate) fn exact(&self, base: u64) -> Option<&Allocation> {
        self.by_base.get(&base)
    }

    /// The allocation that `address` lies inside of.
    pub(crate) fn inside(&self, address: u64) -> Option<Place> {
        if address < self.lowest || address > self.highest {
            return None;
        }
        // A reserved range may hold smaller mapped allocations, and one of them may begin right at its end, so the
        // nearest base below need not be the one that contains the address.
        for (_, allocation) in self.by_base.range(..=address).rev().take(8) {
            if address - allocation.base < allocation.size_bytes {
                return Some(Place { allocation: *allocation, offset_bytes: address - allocation.base });
            }
        }
        None
    }

    /// The allocation that `address` is one past the end of.
    pub(crate) fn one_past(&self, address: u64) -> Option<Place> {
        if address < self.lowest || address > self.highest {
            return None;
        }
        let (_, allocation) = self.by_base.range(..address).next_back()?;
        let offset_bytes = address - allocation.base;
        (offset_bytes == allocation.size_bytes).then_some(Place { allocation: *allocation, offset_bytes })
    }

    /// The allocation of an address inside it or one past its end, the former preferred.
    pub(crate) fn find(&self, address: u64) -> Option<Place> {
        if address < self.lowest || address > self.highest {
            return None;
        }
        let cell = self.recent.cell(address);
        let (known, place) = cell.get();
        // Nothing lies at address zero, which stands for an empty cell.
        if known == address && address != 0 {
            return place;
        }
        let place = self.inside(address).or_else(|| self.one_past(address));
        cell.set((address, place));
        self.recent.used.set(true);
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::slots::SlotTable;

    fn allocation(base: u64, size_bytes: u64, table: &mut SlotTable) -> Allocation {
        Allocation {
            base,
            size_bytes,
            slot: table.allocate(0),
            object: 0,
            space: Space::Device,
            bounded: true,
            release: None,
            device: 0,
        }
    }

    #[test]
    fn inside_wins_over_one_past_and_gaps_belong_to_nobody() {
        let mut table = SlotTable::default();
        let mut map = AddressMap::default();
        map.insert(allocation(0x1000, 0x100, &mut table));
        map.insert(allocation(0x1100, 0x100, &mut table));
        map.insert(allocation(0x3000, 0x10, &mut table));
        assert_eq!(map.find(0x10ff).map(|place| place.allocation.base), Some(0x1000));
        assert_eq!(map.find(0x1100).map(|place| place.allocation.base), Some(0x1100));
        assert_eq!(map.one_past(0x1100).map(|place| place.allocation.base), Some(0x1000));
        assert_eq!(map.find(0x1200).map(|place| place.offset_bytes), Some(0x100));
        assert!(map.find(0x1201).is_none());
        assert!(map.find(0x2fff).is_none());
        map.remove(0x1100);
        assert_eq!(map.find(0x1100).map(|place| place.allocation.base), Some(0x1000));
        assert!(map.find(0x1180).is_none());
        map.insert(allocation(0x1180, 0x10, &mut table));
        assert_eq!(map.find(0x1180).map(|place| place.allocation.base), Some(0x1180));
    }

    #[test]
    fn what_is_allocated_over_a_variable_says_that_its_module_has_gone() {
        let mut table = SlotTable::default();
        let mut map = AddressMap::default();
        map.insert(allocation(0x1010, 4, &mut table));
        map.insert(allocation(0x3000, 4, &mut table));
        map.insert(Allocation { release: Some("hipFree"), ..allocation(0x1000, 0x1000, &mut table) });
        assert_eq!(map.find(0x1010).map(|place| place.offset_bytes), Some(0x10));
        assert_eq!(map.find(0x3000).map(|place| place.offset_bytes), Some(0));
    }

    #[test]
    fn a_mapped_piece_hides_its_reserved_range_and_not_more() {
        let mut table = SlotTable::default();
        let mut map = AddressMap::default();
        map.insert(allocation(0x1000, 0x1000, &mut table));
        map.insert(allocation(0x1200, 0x100, &mut table));
        assert_eq!(map.find(0x1250).map(|place| place.allocation.base), Some(0x1200));
        assert_eq!(map.find(0x1400).map(|place| place.allocation.base), Some(0x1000));
    }
}
