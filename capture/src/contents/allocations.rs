//! Whose memory an address is: the ranges that HIP gave out or pinned.

use std::collections::BTreeMap;
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
}

impl Allocations {
    /// Remembers a range; one of unknown length counts as its first byte.
    pub(crate) fn insert(&self, address: u64, len_bytes: Option<u64>, owner: Owner) {
        if address != 0 {
            let len_bytes = len_bytes.unwrap_or(1).max(1);
            self.ranges.write().unwrap_or_else(PoisonError::into_inner).insert(address, (len_bytes, owner));
        }
    }

    /// Forgets the range that starts at an address, and returns its length.
    pub(crate) fn remove(&self, address: u64) -> Option<u64> {
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
