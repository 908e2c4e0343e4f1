//! Whose memory an address is: the ranges that HIP gave out or pinned.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{PoisonError, RwLock};

/// What kind of memory a range is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The device's: not read by the host.
    Device,
    /// The host's, pinned until HIP is told otherwise.
    Pinned,
}

/// The ranges alive now.
#[derive(Debug, Default)]
pub(crate) struct Allocations {
    ranges: RwLock<BTreeMap<u64, (u64, Owner)>>,
    /// Reserved address ranges, which hold memory only where it is mapped into them.
    reserved: RwLock<BTreeSet<u64>>,
    /// Memory that is mapped into reserved ranges.
    mapped: RwLock<BTreeMap<u64, u64>>,
    /// First addresses of memory that was made, or mapped, while a window was open, with the thread's device then.
    in_window: RwLock<BTreeMap<u64, i32>>,
}

impl Allocations {
    /// Remembers a range; one of unknown length counts as its first byte.
    pub(crate) fn insert(&self, address: u64, len_bytes: Option<u64>, owner: Owner) {
        if address != 0 {
            let len_bytes = len_bytes.unwrap_or(1).max(1);
            self.ranges.write().unwrap_or_else(PoisonError::into_inner).insert(address, (len_bytes, owner));
        }
    }

    /// Remembers a reserved address range.
    pub(crate) fn reserve(&self, address: u64, len_bytes: Option<u64>) {
        self.insert(address, len_bytes, Owner::Device);
        self.reserved.write().unwrap_or_else(PoisonError::into_inner).insert(address);
    }

    /// Remembers memory that was mapped into a reserved range.
    pub(crate) fn map(&self, address: u64, len_bytes: u64) {
        self.mapped.write().unwrap_or_else(PoisonError::into_inner).insert(address, len_bytes);
    }

    /// Remembers that memory was made or mapped while a window was open: the archive has the call.
    pub(crate) fn made_in_window(&self, address: u64, device: i32) {
        self.in_window.write().unwrap_or_else(PoisonError::into_inner).insert(address, device);
    }

    /// A device was reset: what windows made there is gone.
    pub(crate) fn forget_window(&self, device: i32) {
        self.in_window.write().unwrap_or_else(PoisonError::into_inner).retain(|_, of| *of != device);
    }

    /// Whether memory that begins at an address was made or mapped while a window was open.
    pub(crate) fn is_of_window(&self, address: u64) -> bool {
        self.in_window.read().unwrap_or_else(PoisonError::into_inner).contains_key(&address)
    }

    /// Memory in a reserved range is there no more.
    pub(crate) fn unmap(&self, address: u64, len_bytes: u64) {
        let gone = address..address.saturating_add(len_bytes);
        self.in_window.write().unwrap_or_else(PoisonError::into_inner).retain(|start, _| !gone.contains(start));
        self.mapped.write().unwrap_or_else(PoisonError::into_inner).retain(|start, _| !gone.contains(start));
    }

    /// Device memory that holds something: first addresses and lengths.
    pub(crate) fn on_device(&self) -> Vec<(u64, u64)> {
        let reserved = self.reserved.read().unwrap_or_else(PoisonError::into_inner);
        let ranges = self.ranges.read().unwrap_or_else(PoisonError::into_inner);
        let device = |(&start, &(len_bytes, owner)): (&u64, &(u64, Owner))| {
            (owner == Owner::Device && !reserved.contains(&start)).then_some((start, len_bytes))
        };
        let mut found: Vec<_> = ranges.iter().filter_map(device).collect();
        let mapped = self.mapped.read().unwrap_or_else(PoisonError::into_inner);
        found.extend(mapped.iter().map(|(&start, &len_bytes)| (start, len_bytes)));
        found
    }

    /// Forgets the range that starts at an address, and returns its length.
    pub(crate) fn remove(&self, address: u64) -> Option<u64> {
        self.reserved.write().unwrap_or_else(PoisonError::into_inner).remove(&address);
        self.in_window.write().unwrap_or_else(PoisonError::into_inner).remove(&address);
        self.ranges.write().unwrap_or_else(PoisonError::into_inner).remove(&address).map(|(len_bytes, _)| len_bytes)
    }

    /// Whose memory an address is, and how many bytes of the range are left from there on.
    pub(crate) fn find(&self, address: u64) -> Option<(Owner, u64)> {
        let ranges = self.ranges.read().unwrap_or_else(PoisonError::into_inner);
        let (&start, &(len_bytes, owner)) = ranges.range(..=address).next_back()?;
        let inside = address - start;
        (inside < len_bytes).then(|| (owner, len_bytes - inside))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interior_addresses_belong_to_their_range() {
        let allocations = Allocations::default();
        allocations.insert(100, Some(50), Owner::Device);
        allocations.insert(150, Some(10), Owner::Pinned);
        assert_eq!(allocations.find(149), Some((Owner::Device, 1)));
        assert_eq!(allocations.find(150), Some((Owner::Pinned, 10)));
        assert_eq!((allocations.find(99), allocations.find(160)), (None, None));
        assert_eq!(allocations.remove(100), Some(50));
        assert_eq!(allocations.find(120), None);
    }
}
