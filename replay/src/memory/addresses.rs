//! The addresses of the recorded device allocations, kept free until device memory is mapped there.
//!
//! A HIP runtime takes large parts of the address space when it starts, wherever the system happens to have room, and a
//! recorded address may be among them. So before the runtime is loaded the addresses are reserved with nothing behind them, and
//! each range is given back just before device memory is mapped there ([`crate::memory::placement`]).

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::machine::mappings::{self, Mapping};
use crate::survey::{Allocations, Survey};

/// Granularity of what is reserved, in bytes.
const GRANULE_BYTES: u64 = crate::memory::placement::BLOCK_BYTES;
/// Where a granule is not free as a whole: the largest granularity at which devices map memory.
pub(crate) const PAGE_BYTES: u64 = 2 << 20;

/// What an archive allocates on devices, and the address ranges that are kept free for it.
#[derive(Debug)]
pub struct RecordedAddresses {
    allocations: Allocations,
    held: Mutex<Held>,
}

impl RecordedAddresses {
    /// Reserves the addresses of an archive's device allocations, as far as this process has nothing there.
    pub fn reserve(survey: &Survey) -> Self {
        let allocations = survey.allocations.clone();
        let mut held = Held::default();
        for (start, end) in joined(&allocations.found, GRANULE_BYTES) {
            if !held.take(start, end) {
                let inside =
                    joined(&allocations.found, PAGE_BYTES).into_iter().filter(|page| start <= page.0 && page.1 <= end);
                for (start, end) in inside {
                    held.take(start, end);
                }
            }
        }
        RecordedAddresses { allocations, held: Mutex::new(held) }
    }

    /// What can be placed: base, size in bytes and recorded device, oldest first in each thread.
    pub(crate) fn allocations(&self) -> &[(u64, u64, i32)] {
        &self.allocations.found
    }

    /// Whether the program makes a handle of an allocation for other processes, which mapped memory has none of.
    pub(crate) fn is_exported(&self, base: u64, size_bytes: u64) -> bool {
        let behind = base.saturating_add(size_bytes.max(1));
        self.allocations.exported.iter().any(|address| (base..behind).contains(address))
    }

    /// Whether the program resets a device, which takes everything on it away.
    pub(crate) fn device_is_reset(&self) -> bool {
        self.allocations.reset
    }

    /// Whether the program reserved addresses between these itself, and will ask for them again.
    pub(crate) fn program_reserves(&self, start: u64, end: u64) -> bool {
        self.allocations.reserved.iter().any(|&(base, reserved_end)| base < end && start < reserved_end)
    }

    /// Gives the addresses from `start` to `end` back to whoever asks for them next. What the runtime has mapped over them
    /// meanwhile is its own.
    pub(crate) fn give_back(&self, start: u64, end: u64) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).give_back(start, end);
    }
}

/// Address ranges mapped without access and without memory behind them: end by start.
#[derive(Debug, Default)]
struct Held(BTreeMap<u64, u64>);

impl Held {
    /// Whether the range was free and is held now.
    fn take(&mut self, start: u64, end: u64) -> bool {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
        let (wanted, len_bytes) = (start as *mut libc::c_void, (end - start) as usize);
        // SAFETY: with MAP_FIXED_NOREPLACE nothing that is mapped already is touched.
        let got = unsafe { libc::mmap(wanted, len_bytes, libc::PROT_NONE, flags, -1, 0) };
        if got == libc::MAP_FAILED {
            return false;
        }
        if got != wanted {
            // Kernels before 4.17 take the address for a hint only.
            // SAFETY: the range was mapped just now and nobody has its address.
            unsafe { libc::munmap(got, len_bytes) };
            return false;
        }
        self.0.insert(start, end);
        true
    }

    fn give_back(&mut self, start: u64, end: u64) {
        let touched: Vec<(u64, u64)> =
            self.0.range(..end).rev().take_while(|&(_, &held_end)| held_end > start).map(|(&s, &e)| (s, e)).collect();
        if touched.is_empty() {
            return;
        }
        // Whatever was mapped over a range meanwhile stays.
        let reserved: Vec<Mapping> = mappings::own().into_iter().filter(|mapping| mapping.is_reserved).collect();
        for (held_start, held_end) in touched {
            self.0.remove(&held_start);
            let (from, to) = (held_start.max(start), held_end.min(end));
            for mapping in &reserved {
                let (from, to) = (from.max(mapping.start), to.min(mapping.end));
                if from < to {
                    // SAFETY: the range lies in one that `take` mapped, and is still a mapping that nobody may access.
                    unsafe { libc::munmap(from as *mut libc::c_void, (to - from) as usize) };
                }
            }
            if held_start < from {
                self.0.insert(held_start, from);
            }
            if to < held_end {
                self.0.insert(to, held_end);
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.give_back(0, u64::MAX);
    }
}

/// The allocations' addresses in whole granules of this size, those that touch as one.
pub(crate) fn joined(found: &[(u64, u64, i32)], granule_bytes: u64) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = found
        .iter()
        .map(|&(base, size_bytes, _)| {
            let end = base + size_bytes.max(1);
            (base / granule_bytes * granule_bytes, end.next_multiple_of(granule_bytes))
        })
        .collect();
    ranges.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (start, end) in ranges {
        match joined.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => joined.push((start, end)),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touching_allocations_are_one_range_of_whole_granules() {
        let mib = 1 << 20;
        let found = [(5 * mib, mib, 0), (2 * mib, mib, 0), (64 * mib, 3 * mib, 1)];
        assert_eq!(joined(&found, PAGE_BYTES), [(2 * mib, 6 * mib), (64 * mib, 68 * mib)]);
    }

    /// A range of addresses that this process does not use.
    fn free_range(len_bytes: u64) -> u64 {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let (none, len) = (std::ptr::null_mut(), len_bytes as usize);
        // SAFETY: a fresh mapping, which is given back at once.
        unsafe {
            let got = libc::mmap(none, len, libc::PROT_NONE, flags, -1, 0);
            assert_ne!(got, libc::MAP_FAILED);
            libc::munmap(got, len);
            got as u64
        }
    }

    fn is_mapped(address: u64) -> bool {
        let mut resident = 0u8;
        // SAFETY: mincore only looks, and reports one page.
        unsafe { libc::mincore(address as *mut libc::c_void, 4096, &mut resident) == 0 }
    }

    #[test]
    fn a_part_given_back_is_free_and_the_rest_stays_taken() {
        let page = 4096;
        let start = free_range(64 * page);
        let mut held = Held::default();
        assert!(held.take(start, start + 64 * page));
        assert!(is_mapped(start) && is_mapped(start + 63 * page));
        held.give_back(start + 8 * page, start + 16 * page);
        assert!(is_mapped(start + 7 * page) && !is_mapped(start + 8 * page) && !is_mapped(start + 15 * page));
        assert!(is_mapped(start + 16 * page));
        held.give_back(start, start + 64 * page);
        assert!(!is_mapped(start) && !is_mapped(start + 63 * page) && held.0.is_empty());
    }

    #[test]
    fn what_was_mapped_over_a_held_range_stays() {
        let page = 4096;
        let start = free_range(64 * page);
        let mut held = Held::default();
        assert!(held.take(start, start + 64 * page));
        let (flags, access) =
            (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED, libc::PROT_READ | libc::PROT_WRITE);
        let over = (start + 8 * page) as *mut libc::c_void;
        // SAFETY: over a part of the range that this test holds, and nobody uses.
        assert_eq!(unsafe { libc::mmap(over, page as usize, access, flags, -1, 0) }, over);
        held.give_back(start, start + 64 * page);
        assert!(!is_mapped(start) && !is_mapped(start + 9 * page));
        assert!(is_mapped(start + 8 * page));
        // SAFETY: mapped above.
        unsafe { libc::munmap(over, page as usize) };
    }

    #[test]
    fn what_the_process_uses_is_not_touched() {
        let value = Box::new(7u64);
        let page = (&raw const *value as u64) / 4096 * 4096;
        let mut held = Held::default();
        assert!(!held.take(page, page + 4096));
        assert!(held.0.is_empty());
        assert_eq!(*value, 7);
    }
}
