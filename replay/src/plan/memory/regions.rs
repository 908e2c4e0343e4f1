//! Regions of device memory that another tool wrote down beside the archive: memory that no recorded call gave out is made real
//! when it is first used, and accesses outside what an allocator had given out are found.
//!
//! A segment is made real when planning meets a pointer into it that lies in nothing recorded, at its recorded address
//! where the device allows that. With guards, segments or blocks lie between addresses that nothing is mapped at, each at
//! the end of its mapping, so that a kernel which steps over an end faults instead of changing its neighbour.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use hrr_format::archive::Archive;
use hrr_format::manifest::Clock;
use hrr_format::regions::{Operation, PointerClass, Region, RegionCursor, RegionKind};

use super::address::{AddressMap, Allocation, Place, Space};
use crate::choices::{Choices, Guarded, Guards, RegionPolicy};
use crate::machine::device_map::DeviceMap;
use crate::machine::runtime::{GuardedRange, Runtime};
use crate::memory::slots::Slot;
use crate::plan::Planner;
use crate::plan::lower::{Call, Lowering};

/// Findings that are kept as lines.
const LINES_KEPT: usize = 20;

/// What came of the regions.
#[derive(Clone, Debug, Default)]
pub struct RegionCounts {
    /// Entries of sidecars.
    pub entries: u64,
    /// Segments that were made real.
    pub segments: u64,
    /// Bytes of them.
    pub segment_bytes: u64,
    /// Segments that could not be, and why the last one could not.
    pub failed: u64,
    /// The reason.
    pub failure: Option<String>,
    /// Accesses outside live blocks.
    pub findings: u64,
    /// The first of them.
    pub lines: Vec<String>,
    /// Segments or blocks between guards.
    pub guarded: u64,
    /// Bytes of them.
    pub guarded_bytes: u64,
    /// Those left without, because of their size, the budget, or the device.
    pub unguarded: u64,
    /// Whether findings fail the replay.
    pub strict: bool,
}

impl RegionCounts {
    /// Whether there are findings that fail the replay.
    pub(crate) fn fail(&self) -> bool {
        self.strict && self.findings > 0
    }
}

/// Memory that was made real for a region.
#[derive(Debug)]
enum Made {
    /// Mapped at its recorded address.
    Placed { base: u64, len_bytes: u64, handle: u64 },
    /// Allocated.
    Allocated { address: u64 },
    /// Mapped between guards.
    Guarded(GuardedRange),
}

/// All memory that was made real, given back at the end.
#[derive(Debug)]
struct Memory {
    runtime: Arc<Runtime>,
    made: Vec<Made>,
}

impl Drop for Memory {
    fn drop(&mut self) {
        for made in self.made.drain(..) {
            // SAFETY: the replay is over and the devices are idle, or the process leaks this instead.
            unsafe {
                match made {
                    Made::Placed { base, len_bytes, handle } => {
                        self.runtime.unmap_at(base, len_bytes, handle);
                        self.runtime.free_addresses(base, len_bytes);
                    }
                    Made::Allocated { address } => self.runtime.device_free(address),
                    Made::Guarded(range) => self.runtime.unmap_guarded(&range),
                }
            }
        }
    }
}

/// What is known of regions while an archive is planned.
#[derive(Debug)]
pub(in crate::plan) struct PlanRegions<'a> {
    cursor: RegionCursor<'a>,
    clock: Clock,
    guards: Guards,
    place: bool,
    fill: u8,
    device_count: i32,
    devices: DeviceMap,
    memory: Memory,
    /// Segments that were made real, by recorded address and length: one that comes again is the same.
    segments: FxHashMap<(u64, u64), Slot>,
    /// Live blocks between guards.
    blocks: AddressMap,
    /// Live blocks that are not, by address.
    unguarded: FxHashSet<u64>,
    /// Memory between guards that is free again, by length, with the object that stands for its addresses.
    spare: FxHashMap<u64, Vec<(u64, u32)>>,
    /// Which memory between guards an allocation has.
    given_out: FxHashMap<u32, (u64, u64, u32)>,
}

impl<'a> PlanRegions<'a> {
    /// Regions of an archive that has any.
    pub(in crate::plan) fn of(
        archive: &'a Archive,
        runtime: &Arc<Runtime>,
        choices: &Choices,
        place: bool,
        device_count: i32,
    ) -> Option<Self> {
        if choices.regions == RegionPolicy::Ignored || archive.regions().entries().is_empty() {
            return None;
        }
        Some(PlanRegions {
            cursor: archive.regions().cursor(),
            clock: archive.manifest().clock,
            guards: choices.guards,
            place: place && choices.guards.around.is_none(),
            fill: choices.new_memory.region_fill,
            device_count,
            devices: choices.devices.clone(),
            memory: Memory { runtime: Arc::clone(runtime), made: Vec::new() },
            segments: FxHashMap::default(),
            blocks: AddressMap::default(),
            unguarded: FxHashSet::default(),
            spare: FxHashMap::default(),
            given_out: FxHashMap::default(),
        })
    }

    /// Maps memory between guards. `None` where there is none, by size, budget or device.
    fn guarded(&mut self, device: i32, len_bytes: u64, counts: &mut RegionCounts) -> Option<u64> {
        let Guards { min_bytes, max_bytes, budget_bytes, alignment, .. } = self.guards;
        let fits = (min_bytes..=max_bytes).contains(&len_bytes)
            && counts.guarded_bytes.saturating_add(len_bytes) <= budget_bytes;
        let range = if fits {
            self.memory.runtime.map_guarded(device, self.device_count, len_bytes, alignment.bytes()).ok()
        } else {
            None
        };
        let Some(range) = range else {
            counts.unguarded += 1;
            return None;
        };
        let address = range.address;
        self.memory.runtime.device_fill(device, address, self.fill, len_bytes);
        self.memory.made.push(Made::Guarded(range));
        counts.guarded += 1;
        counts.guarded_bytes += len_bytes;
        Some(address)
    }

    /// Makes a region real, and returns where it lies.
    fn materialise(&mut self, region: &Region, counts: &mut RegionCounts) -> Option<u64> {
        /// Granularity assumed where the runtime does not say, in bytes.
        const FALLBACK_GRANULARITY: u64 = 2 << 20;
        let device = self.devices.live(i32::from(region.device));
        if !(0..self.device_count).contains(&device) {
            counts.failed += 1;
            counts.failure = Some(format!("device {device} is not there"));
            return None;
        }
        if self.guards.around == Some(Guarded::Segments)
            && let Some(address) = self.guarded(device, region.len_bytes, counts)
        {
            return Some(address);
        }
        let runtime = Arc::clone(&self.memory.runtime);
        if self.place
            && let Some(page_bytes) = runtime.mapping_granularity(device, FALLBACK_GRANULARITY)
        {
            let base = region.base / page_bytes * page_bytes;
            let len_bytes = region.end().next_multiple_of(page_bytes) - base;
            if runtime.reserve_at(base, len_bytes).is_ok() {
                if let Ok(handle) = runtime.map_at(device, self.device_count, base, len_bytes) {
                    self.memory.made.push(Made::Placed { base, len_bytes, handle });
                    runtime.device_fill(device, region.base, self.fill, region.len_bytes);
                    return Some(region.base);
                }
                runtime.free_addresses(base, len_bytes);
            }
        }
        match runtime.device_malloc(device, region.len_bytes) {
            Ok(address) => {
                self.memory.made.push(Made::Allocated { address });
                runtime.device_fill(device, address, self.fill, region.len_bytes);
                Some(address)
            }
            Err(error) => {
                counts.failed += 1;
                counts.failure = Some(error.to_string());
                None
            }
        }
    }
}

impl<'a> Planner<'a> {
    /// Moves the regions on to the moment a call was entered.
    pub(in crate::plan) fn advance_regions(&mut self, tick: u64) {
        let Some(regions) = &mut self.regions else { return };
        // Without a relation between the clocks only what was there before counts.
        let now_ns = regions.clock.monotonic_ns(tick).unwrap_or(0);
        for region in regions.cursor.advance(now_ns) {
            match (region.operation, region.kind) {
                (_, RegionKind::Block) => {
                    regions.blocks.remove(region.base);
                    regions.unguarded.remove(&region.base);
                }
                (Operation::Delete, RegionKind::Segment) => {
                    let ours = self.objects.memory.exact(region.base).is_some_and(|known| {
                        regions.segments.contains_key(&(known.base, known.size_bytes)) && known.release.is_none()
                    });
                    if ours {
                        self.objects.memory.remove(region.base);
                    }
                }
                (Operation::Add, RegionKind::Segment) => {}
            }
        }
    }

    /// The memory that a recorded address lies in, made real from a region where no recorded call gave it out.
    pub(in crate::plan) fn memory_at(&mut self, address: u64) -> Option<Place> {
        if self.regions.is_none() {
            return self.objects.memory.find(address);
        }
        if let Some(place) = self.guarded_block(address) {
            return Some(place);
        }
        if let Some(place) = self.objects.memory.find(address) {
            return Some(place);
        }
        let regions = self.regions.as_mut()?;
        let live = regions.cursor.live();
        let segment = live.holding(RegionKind::Segment, address).or_else(|| live.holding(RegionKind::Block, address));
        let segment = *segment?;
        let key = (segment.base, segment.len_bytes);
        let slot = match regions.segments.get(&key) {
            Some(&slot) => slot,
            None => {
                let counts = &mut self.planned.regions;
                let address = regions.materialise(&segment, counts)?;
                counts.segments += 1;
                counts.segment_bytes += segment.len_bytes;
                let slot = self.objects.slots.allocate(address);
                regions.segments.insert(key, slot);
                slot
            }
        };
        let allocation = self.region_allocation(&segment, slot);
        self.objects.memory.insert(allocation);
        self.objects.memory.find(address)
    }

    fn region_allocation(&mut self, region: &Region, slot: Slot) -> Allocation {
        Allocation {
            base: region.base,
            size_bytes: region.len_bytes,
            slot,
            object: self.objects.new_object(),
            space: Space::Device,
            bounded: true,
            release: None,
            device: i32::from(region.device),
        }
    }

    /// The block that an address lies in, between guards, where that is asked for.
    fn guarded_block(&mut self, address: u64) -> Option<Place> {
        let regions = self.regions.as_mut()?;
        if regions.guards.around != Some(Guarded::Blocks) {
            return None;
        }
        if let Some(place) = regions.blocks.inside(address) {
            return Some(place);
        }
        let block = *regions.cursor.live().holding(RegionKind::Block, address)?;
        if regions.unguarded.contains(&block.base) {
            return None;
        }
        let device = regions.devices.live(i32::from(block.device));
        let Some(made) = regions.guarded(device, block.len_bytes, &mut self.planned.regions) else {
            regions.unguarded.insert(block.base);
            return None;
        };
        let slot = self.objects.slots.allocate(made);
        let allocation = self.region_allocation(&block, slot);
        let regions = self.regions.as_mut()?;
        regions.blocks.insert(allocation);
        regions.blocks.inside(address)
    }

    /// New device memory between guards, where that is asked for: its live address, and the object that stands for it.
    pub(in crate::plan) fn guarded_allocation(
        &mut self,
        device: i32,
        object: u32,
        size_bytes: u64,
    ) -> Option<(u64, u32)> {
        let regions = self.regions.as_mut()?;
        if regions.guards.around != Some(Guarded::Segments) || size_bytes == 0 {
            return None;
        }
        let (address, site) = match regions.spare.get_mut(&size_bytes).and_then(Vec::pop) {
            Some(spare) => spare,
            None => {
                let address = regions.guarded(device, size_bytes, &mut self.planned.regions)?;
                (address, self.objects.new_object())
            }
        };
        regions.given_out.insert(object, (size_bytes, address, site));
        Some((address, site))
    }

    /// Memory between guards is given back.
    pub(in crate::plan) fn guarded_is_free(&mut self, object: u32) {
        if let Some(regions) = &mut self.regions
            && let Some((size_bytes, address, site)) = regions.given_out.remove(&object)
        {
            regions.spare.entry(size_bytes).or_default().push((address, site));
        }
    }

    /// Looks whether an access lies in a live block, as far as blocks are known there.
    pub(in crate::plan) fn check_region(&mut self, call: &Call<'_>, what: &str, address: u64, len_bytes: Option<u64>) {
        let Some(regions) = &self.regions else { return };
        if !call.succeeded() || len_bytes == Some(0) {
            return;
        }
        let live = regions.cursor.live();
        let finding = match live.class(address) {
            PointerClass::None => return,
            PointerClass::Segment(segment) => {
                // The end of a block is an address that programs pass.
                let is_end = address > 0 && live.holding(RegionKind::Block, address - 1).is_some();
                if len_bytes.is_none() && is_end {
                    return;
                }
                format!("{what} {address:#x} lies in the segment at {:#x} and in no live block", segment.base)
            }
            PointerClass::Block(block) => match len_bytes {
                Some(len) if address.saturating_add(len) > block.end() => format!(
                    "{what} {address:#x} with {len} bytes reaches {} past the end of the block of {} bytes at {:#x}",
                    address.saturating_add(len) - block.end(),
                    block.len_bytes,
                    block.base
                ),
                _ => return,
            },
        };
        let counts = &mut self.planned.regions;
        counts.findings += 1;
        if counts.lines.len() < LINES_KEPT {
            counts.lines.push(format!("event {}, {}: {finding}", call.event, call.api.name));
        }
    }

    /// Has an allocating call give out memory between guards.
    pub(in crate::plan) fn guard_new_memory(
        &mut self,
        lowering: &mut Lowering,
        cell: *const u64,
        device: i32,
        size_bytes: Option<u64>,
    ) -> bool {
        let object = lowering.facts.creates.last().copied().unwrap_or(0);
        let Some((address, site)) = size_bytes.and_then(|size| self.guarded_allocation(device, object, size)) else {
            return false;
        };
        self.give_out(lowering, cell, address, object, site);
        true
    }
}
