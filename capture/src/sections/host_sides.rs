//! Host memory that a call, or a graph, copies from or to, or that its work uses directly.

use hrr_format::catalogue::{Access, Effect, Role};
use hrr_format::record::{BlobRef, HostRows, NO_PARAM, Presence, SectionTag};

use super::{Draft, Drafting, Source};
use crate::contents::allocations::Owner;
use crate::contents::copy_structs::SideKind;
use crate::contents::graph_copies::{GraphCopy, Way};
use crate::contents::host_memory;
use crate::contents::memory::{self, Trust};
use crate::contents::pending_results::HostResult;
use crate::contents::region::Region;
use crate::hooks;
use crate::launch;
use crate::recorder;

impl Drafting<'_> {
    /// One side of a copy: recorded if it is host memory.
    pub(super) unsafe fn host(&mut self, param: u8, region: Region, access: Access, kind: SideKind) {
        let process = self.call.process;
        let Some(len_bytes) = region.len_bytes() else {
            return;
        };
        if region.address == 0 || len_bytes == 0 {
            return;
        }
        let owner = process.allocations().find(region.address);
        let by_kind = match kind {
            SideKind::Host => Some(true),
            SideKind::Copy(kind) => hooks::host_by_kind(kind, access),
            SideKind::Lookup => None,
        };
        let is_host = match owner {
            // Unified addressing lets a program give the wrong kind; whose memory it is decides.
            Some((Owner::Device, _)) => false,
            Some((Owner::Pinned, _)) => by_kind != Some(false),
            None => by_kind.unwrap_or(true),
        };
        if !is_host {
            return self.direct(region.address);
        }
        let hook = self.call.plan.hook;
        if self.transfers.capture.is_some() || hooks::describes_nodes(hook) {
            self.transfers.graph_copies.push(GraphCopy { node: None, region, access, way: Way::Copied });
            return;
        }
        if !matches!(self.call.plan.api.effect, Effect::Enqueue | Effect::BlockCopy) {
            // What a linker is given is code.
            if access.reads() {
                // SAFETY: by the caller's contract.
                unsafe { self.code(param, region.address, len_bytes as usize, None) };
            }
            return;
        }
        if access.reads() && self.is_in_use(&region) {
            // The device may yet write what the copy will read: replay copies from the memory itself.
            return self.direct(region.address);
        }
        if access.reads() {
            let trust = if self.other_side_fits(&region) { Trust::Readable } else { self.trust(&region) };
            // SAFETY: by the caller's contract, as far as it is trusted.
            let (presence, reference) = unsafe { self.blob_in(&region, len_bytes, trust) };
            let len = if presence == Presence::Absent { 0 } else { BlobRef::BYTES };
            self.push(SectionTag::BlobIn, param, presence, len, inline(None, reference));
        }
        if access.writes() {
            let (presence, reference) = self.blob_out(region, len_bytes);
            self.push(SectionTag::BlobOut, param, presence, BlobRef::BYTES, inline(None, reference));
        }
    }

    /// Whether work in flight uses this memory directly, and no copy that is being waited for is about to write it.
    fn is_in_use(&self, region: &Region) -> bool {
        let process = self.call.process;
        host_memory::in_flight()
            && process.host_memory().is_some_and(|memory| memory.is_in_use(region.address))
            && !process.pending().overlaps(region)
    }

    /// An address that the call's work, or a graph's, is given: in host memory it uses that directly.
    pub(super) fn direct(&mut self, address: u64) {
        if !host_memory::may_hold(address) {
            return;
        }
        if self.transfers.capture.is_some() || hooks::describes_nodes(self.call.plan.hook) {
            self.transfers.graph_copies.push(GraphCopy::direct(address));
        } else if matches!(self.call.plan.api.effect, Effect::Enqueue | Effect::BlockCopy) {
            self.transfers.addresses.push(address);
        }
    }

    pub(super) fn direct_parameters(&mut self) {
        for param in self.call.plan.api.params {
            if matches!(param.role, Role::Device(..)) {
                self.direct(self.word(param.word));
            }
        }
    }

    /// The addresses among kernel arguments.
    ///
    /// # Safety
    /// The launch's arguments are readable.
    pub(super) unsafe fn direct_arguments(&mut self, draft: Option<&Draft>) {
        if host_memory::any()
            && let Some(draft) = draft
        {
            // SAFETY: by the caller's contract.
            unsafe { launch::addresses(draft, &mut |address| self.direct(address)) };
        }
    }

    /// Whether the device side of a copy lies in one allocation. The runtime then has no reason to refuse the copy, and
    /// reads all of the host side itself.
    fn other_side_fits(&self, region: &Region) -> bool {
        let allocations = self.call.process.allocations();
        let inputs = self.inputs();
        self.call.plan.api.params.iter().any(|param| {
            let (Role::Any(Access::Write, size) | Role::Device(Access::Write, size)) = param.role else {
                return false;
            };
            let address = self.word(param.word);
            let span = Region::of_size(address, &size, &inputs).and_then(|region| region.span_bytes());
            let fits = |span: u64| matches!(allocations.find(address), Some((Owner::Device, left)) if left >= span);
            address != region.address && span.is_some_and(fits)
        })
    }

    unsafe fn blob_in(&self, region: &Region, len_bytes: u64, trust: Trust) -> (Presence, BlobRef) {
        let Some(writer) = self.call.process.blobs() else {
            return (Presence::Withheld, BlobRef { number: BlobRef::WITHHELD, size_bytes: len_bytes });
        };
        if !memory::is_plausible(len_bytes, trust) {
            return (Presence::Absent, BlobRef { number: BlobRef::WITHHELD, size_bytes: len_bytes });
        }
        let number = writer.blobs.next_number();
        // What is read later may be gone by then, unless it is pinned.
        if self.call.process.pending().read_later(number, region, self.trust(region)) {
            return (Presence::Present, BlobRef { number, size_bytes: len_bytes });
        }
        // SAFETY: by the caller's contract, as far as it is trusted.
        let read = unsafe { writer.add(writer.blobs, number, region, trust) };
        // Memory that cannot be read is a mistake of the program's, for the runtime to refuse: there is nothing to refer to.
        let presence = if read { Presence::Present } else { Presence::Absent };
        (presence, BlobRef { number, size_bytes: len_bytes })
    }

    fn blob_out(&mut self, region: Region, len_bytes: u64) -> (Presence, BlobRef) {
        let Some(writer) = self.call.process.blobs() else {
            return (Presence::Withheld, BlobRef { number: BlobRef::WITHHELD, size_bytes: len_bytes });
        };
        if recorder::runtime() == 0 {
            let stream = self.transfers.stream.unwrap_or_else(|| self.call.stream());
            self.call.process.pending().before_overwrite(&region, stream, writer);
        }
        let number = writer.blobs.next_number();
        let trust = self.trust(&region);
        self.transfers.results.push(HostResult { number, region, trust });
        (Presence::Present, BlobRef { number, size_bytes: len_bytes })
    }

    /// Pinned memory is there until HIP is told otherwise.
    fn trust(&self, region: &Region) -> Trust {
        match (self.call.process.allocations().find(region.address), region.span_bytes()) {
            (Some((Owner::Pinned, left)), Some(span)) if span <= left => Trust::Readable,
            _ => Trust::Doubtful,
        }
    }

    /// The host memory that the copies of a launched graph read and write.
    pub(super) unsafe fn graph_launch(&mut self) {
        let copies = self.call.process.graphs().of_exec(self.call.words[0]);
        if self.transfers.capture.is_some() {
            // The launched graph becomes a child of the one being captured.
            self.transfers.graph_copies.extend(copies.iter().map(|copy| GraphCopy { node: None, ..*copy }));
            return;
        }
        for GraphCopy { region, access, way, .. } in copies {
            if way == Way::Direct {
                self.direct(region.address);
                continue;
            }
            let Some(len_bytes) = region.len_bytes() else { continue };
            let address = Some(region.address);
            const BYTES: usize = 8 + BlobRef::BYTES;
            if access.reads() {
                // SAFETY: pinned memory is readable; doubtful memory need not be.
                let (presence, reference) = unsafe { self.blob_in(&region, len_bytes, self.trust(&region)) };
                let len = if presence == Presence::Absent { 0 } else { BYTES };
                self.push(SectionTag::GraphHostIn, NO_PARAM, presence, len, inline(address, reference));
                self.rows_of(&region);
            }
            if access.writes() {
                let (presence, reference) = self.blob_out(region, len_bytes);
                self.push(SectionTag::GraphHostOut, NO_PARAM, presence, BYTES, inline(address, reference));
                self.rows_of(&region);
            }
        }
    }

    /// How the rows lie of the region whose section was just pushed, where they have gaps. So many rows that they cannot be
    /// counted in 32 bits would not fit in any memory with gaps.
    fn rows_of(&mut self, region: &Region) {
        let counts = u32::try_from(region.height).ok().zip(u32::try_from(region.depth).ok());
        if let (None, Some((rows, slices))) = (region.as_range(), counts) {
            let rows = HostRows { rows, slices, pitch_bytes: region.pitch_bytes, slice_bytes: region.slice_bytes };
            let source = Source::Inline(rows.to_bytes());
            self.push(SectionTag::GraphHostRows, NO_PARAM, Presence::Present, HostRows::BYTES, source);
        }
    }
}

pub(super) fn inline(address: Option<u64>, reference: BlobRef) -> Source {
    let mut bytes = [0; 24];
    let start = match address {
        Some(address) => {
            bytes[..8].copy_from_slice(&address.to_le_bytes());
            8
        }
        None => 0,
    };
    bytes[start..start + BlobRef::BYTES].copy_from_slice(&reference.to_bytes());
    Source::Inline(bytes)
}
