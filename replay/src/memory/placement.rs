//! Device memory at its recorded addresses, so that device pointers stored inside device memory stay true.
//!
//! Before anything is planned, the device allocations of the archive are put where they did lie: the virtual memory
//! interface reserves their addresses ([`crate::memory::addresses`] has kept them free) and maps memory there, once, for all allocations that ever lie in it;
//! allocations smaller than a page share theirs. The recorded calls that gave the memory out and took it back are then not
//! issued: giving out is a store, and `hipFree` is the wait for the device that it implies. What cannot be placed is allocated
//! by the recorded call and translated, and is named in the summary.
//!
//! Memory from pools is not placed: it belongs to its pool and is ordered by streams.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use hrr_format::catalogue::Api;

use crate::machine::device_map::DeviceMap;
use crate::machine::runtime::Runtime;
use crate::memory::addresses::RecordedAddresses;

/// Whether device memory is placed at its recorded addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlacementPolicy {
    /// Where the device can.
    #[default]
    WherePossible,
    /// Not: the recorded calls allocate, and pointers are translated.
    Off,
}

/// Calls whose memory is placed.
const PLACED: [&str; 5] = ["hipMalloc", "hipExtMallocWithFlags", "hipMallocPitch", "hipMemAllocPitch", "hipMalloc3D"];
/// Share of a device's free memory that placement may take, in percent: the rest is for what is not placed.
const MEMORY_PERCENT: u64 = 90;
/// Granularity assumed where the runtime does not say, in bytes: that of large pages.
const FALLBACK_GRANULARITY: u64 = 2 << 20;

/// Addresses are reserved in blocks of this size at multiples of it, with what they need mapped inside: NVIDIA's driver
/// (580) gives out the addresses that it is asked for only so, and has smaller ranges come from a pool of its own.
pub(crate) const BLOCK_BYTES: u64 = 32 << 20;

/// Memory mapped at recorded addresses.
#[derive(Debug)]
struct Range {
    len_bytes: u64,
    device: i32,
    handle: u64,
}

/// Addresses that allocations want.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    base: u64,
    end: u64,
    device: i32,
    allocations: u64,
}

/// The memory that is placed.
#[derive(Debug)]
pub(crate) struct Placement {
    runtime: Arc<Runtime>,
    ranges: BTreeMap<u64, Range>,
    /// Allocations that are not placed although others in their pages may be.
    exported: BTreeSet<u64>,
    /// Reserved addresses, start and end, in which the ranges lie.
    reserved: Vec<(u64, u64)>,
    /// Why memory was not placed: allocations, and one example.
    refused: BTreeMap<&'static str, (u64, u64)>,
    /// Whether the program itself reserved addresses, which are asked for again.
    on: bool,
}

/// Whether an allocating call's memory is placed where it can be.
pub(crate) fn is_placed_api(api: &Api) -> bool {
    PLACED.contains(&api.name)
}

impl Placement {
    /// Nothing is placed.
    pub(crate) fn off(runtime: Arc<Runtime>) -> Self {
        Placement {
            runtime,
            ranges: BTreeMap::new(),
            exported: BTreeSet::new(),
            reserved: Vec::new(),
            refused: BTreeMap::new(),
            on: false,
        }
    }

    /// Maps memory at the addresses of the archive's device allocations, as far as they are free.
    pub(crate) fn prepare(
        recorded: &RecordedAddresses,
        runtime: &Arc<Runtime>,
        devices: &DeviceMap,
        device_count: i32,
    ) -> Self {
        let mut placement = Self::off(Arc::clone(runtime));
        placement.on = true;
        let mut granularity = BTreeMap::new();
        let mut budget = BTreeMap::new();
        let mut wanted = Vec::new();
        if recorded.device_is_reset() {
            let base = recorded.allocations().first().map_or(0, |&(base, ..)| base);
            placement.refuse("the program resets its device", base, recorded.allocations().len() as u64);
            return placement;
        }
        for &(base, size_bytes, device) in recorded.allocations() {
            let device = devices.live(device);
            if !(0..device_count).contains(&device) {
                continue;
            }
            if recorded.is_exported(base, size_bytes) {
                placement.refuse("the program makes handles of it for other processes", base, 1);
                placement.exported.insert(base);
                continue;
            }
            let page_bytes =
                *granularity.entry(device).or_insert_with(|| runtime.mapping_granularity(device, FALLBACK_GRANULARITY));
            let Some(page_bytes) = page_bytes else {
                placement.refuse("the device has no virtual memory management", base, 1);
                continue;
            };
            let (start, end) =
                (base / page_bytes * page_bytes, (base + size_bytes.max(1)).next_multiple_of(page_bytes));
            wanted.push(Wanted { base: start, end, device, allocations: 1 });
        }
        let ranges = merged(wanted);
        for (block, ranges) in blocks(&ranges) {
            recorded.give_back(block.0, block.1);
            let as_block =
                !recorded.program_reserves(block.0, block.1) && runtime.reserve_at(block.0, block.1 - block.0).is_ok();
            if as_block {
                placement.reserved.push(block);
            }
            for &Wanted { base, end, device, allocations } in ranges {
                let left = budget.entry(device).or_insert_with(|| runtime.free_bytes(device) / 100 * MEMORY_PERCENT);
                let len_bytes = end - base;
                if len_bytes > *left {
                    placement.refuse(
                        "all that was ever allocated does not fit in the device's memory",
                        base,
                        allocations,
                    );
                    continue;
                }
                // Something of this process may lie elsewhere in the block.
                if !as_block && let Err(reason) = runtime.reserve_at(base, len_bytes) {
                    placement.refuse(reason, base, allocations);
                    continue;
                }
                if !as_block {
                    placement.reserved.push((base, end));
                }
                match runtime.map_at(device, device_count, base, len_bytes) {
                    Ok(handle) => {
                        *left -= len_bytes;
                        placement.ranges.insert(base, Range { len_bytes, device, handle });
                    }
                    Err(reason) => placement.refuse(reason, base, allocations),
                }
            }
        }
        placement
    }

    fn refuse(&mut self, reason: &'static str, base: u64, allocations: u64) {
        let entry = self.refused.entry(reason).or_insert((0, base));
        entry.0 += allocations;
    }

    /// Whether memory is to lie at its recorded addresses where it can.
    pub(crate) fn is_on(&self) -> bool {
        self.on
    }

    /// The base of the mapped range that holds an allocation of a device, if one does.
    pub(crate) fn range_of(&self, base: u64, size_bytes: u64, device: i32) -> Option<u64> {
        if self.exported.contains(&base) {
            return None;
        }
        let (start, range) = self.ranges.range(..=base).next_back()?;
        let end = base.checked_add(size_bytes)?;
        (range.device == device && end <= start + range.len_bytes).then_some(*start)
    }

    /// Why memory was not placed, in words; empty where all was.
    pub(crate) fn refusals(&self) -> String {
        let mut text = String::new();
        for (reason, (count, example)) in &self.refused {
            let separator = if text.is_empty() { "" } else { "; " };
            let _ = write!(text, "{separator}{count} because {reason} (one at {example:#x})");
        }
        text
    }
}

impl Drop for Placement {
    fn drop(&mut self) {
        for (&base, range) in &self.ranges {
            // SAFETY: the replay is over and the devices are idle, or the process leaks this instead.
            unsafe { self.runtime.unmap_at(base, range.len_bytes, range.handle) };
        }
        for &(start, end) in &self.reserved {
            self.runtime.free_addresses(start, end - start);
        }
    }
}

/// Addresses that overlap are one range; where two devices had the same page, at different times, the first keeps it.
fn merged(mut wanted: Vec<Wanted>) -> Vec<Wanted> {
    wanted.sort_by_key(|wanted| wanted.base);
    let mut ranges: Vec<Wanted> = Vec::new();
    for wanted in wanted {
        match ranges.last_mut() {
            Some(last) if wanted.base < last.end => {
                if wanted.device == last.device {
                    last.end = last.end.max(wanted.end);
                    last.allocations += wanted.allocations;
                }
            }
            _ => ranges.push(wanted),
        }
    }
    ranges
}

/// The blocks that ranges lie in, start and end, each with its ranges, which are in order of address.
fn blocks(ranges: &[Wanted]) -> Vec<((u64, u64), &[Wanted])> {
    let block_of = |range: &Wanted| {
        (range.base / BLOCK_BYTES * BLOCK_BYTES, range.end.checked_next_multiple_of(BLOCK_BYTES).unwrap_or(range.end))
    };
    let mut blocks: Vec<((u64, u64), &[Wanted])> = Vec::new();
    let mut first = 0;
    for (at, range) in ranges.iter().enumerate() {
        let (start, end) = block_of(range);
        match blocks.last_mut() {
            Some(((_, last_end), members)) if start < *last_end => {
                *last_end = end.max(*last_end);
                *members = &ranges[first..=at];
            }
            _ => {
                first = at;
                blocks.push(((start, end), &ranges[at..=at]));
            }
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(base: u64, end: u64, device: i32) -> Wanted {
        Wanted { base, end, device, allocations: 1 }
    }

    #[test]
    fn overlapping_addresses_are_one_range_and_neighbours_are_not() {
        let ranges = merged(vec![wanted(0x3000, 0x4000, 0), wanted(0x1000, 0x2000, 0), wanted(0x1000, 0x3000, 0)]);
        let expected = [Wanted { allocations: 2, ..wanted(0x1000, 0x3000, 0) }, wanted(0x3000, 0x4000, 0)];
        assert_eq!(ranges, expected);
    }

    #[test]
    fn ranges_that_share_a_block_are_reserved_together() {
        let mib = 1 << 20;
        let ranges = [
            wanted(2 * mib, 4 * mib, 0),
            wanted(30 * mib, 70 * mib, 0),
            wanted(94 * mib, 96 * mib, 1),
            wanted(96 * mib, 98 * mib, 0),
        ];
        let found: Vec<_> = blocks(&ranges).into_iter().map(|(block, members)| (block, members.len())).collect();
        assert_eq!(found, [((0, 96 * mib), 3), ((96 * mib, 128 * mib), 1)]);
    }

    #[test]
    fn a_page_of_two_devices_goes_to_one() {
        let ranges = merged(vec![wanted(0x1000, 0x3000, 1), wanted(0x2000, 0x4000, 0)]);
        assert_eq!(ranges, [wanted(0x1000, 0x3000, 1)]);
    }
}
