//! Device-to-host results: kept from the copy until the program has seen them, then given to validation.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hrr_format::catalogue::APIS;
use hrr_format::record::{Presence, Record, SectionTag, marker};
use hrr_format::stream_file::ContentsMode;

use super::Planner;
use super::error::{PlanError, Refusal};
use super::lower::{Call, Lowering};
use super::memory::graph_host::{HostSide, graph_host_sections, shape_of};
use crate::instruction::Wait;
use crate::memory::stage::{HostKind, Shape, StageError};

/// A device-to-host result to be compared with what was recorded.
#[derive(Clone, Debug)]
pub(crate) struct Check {
    /// Where the live result lies.
    pub(crate) live: usize,
    /// How it lies there.
    pub(crate) shape: Shape,
    /// Blob of the recorded result.
    pub(crate) blob: u64,
    /// The result is there once this holds; `None` = the program never saw it.
    pub(crate) ready: Option<Wait>,
    /// The copy's event number.
    pub(crate) event: u64,
    /// The copy's captured thread.
    pub(crate) lane: u32,
    /// The copy's catalogue id.
    pub(crate) api: u16,
    /// The memory, where it is host memory that the device wrote directly, without a copy.
    pub(crate) seen: Option<Seen>,
    /// Results of its window that are still to be compared.
    pub(crate) unchecked: Arc<AtomicUsize>,
}

/// Host memory that the program looked at after it had waited for the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// Where its first byte lay at capture.
    pub(crate) address: u64,
    /// Blob of what it had held before, where the host may have stored part of it itself.
    pub(crate) before: Option<u64>,
}

#[derive(Clone, Debug)]
pub(super) enum Pending {
    /// The copy writes to its own place.
    Copy(Check),
    /// A graph, or a copy to memory that kernels use directly, writes to host memory of this shape at this recorded address.
    InPlace { address: u64, shape: Shape, check: Check },
}

impl<'a> Planner<'a> {
    /// Remembers the D2H results of a call until something makes them visible.
    pub(super) fn note_results(&mut self, call: &Call<'_>, lowering: &Lowering) -> Result<(), Refusal> {
        let of_graph = call.tags.has(SectionTag::GraphHostOut);
        if lowering.results.is_empty() && lowering.direct_results.is_empty() && !of_graph {
            return Ok(());
        }
        let unchecked = self.host.unchecked();
        let check = |blob: u64, live: usize, shape: Shape| Check {
            live,
            shape,
            blob,
            ready: None,
            event: call.event,
            lane: call.lane,
            api: call.api.id,
            seen: None,
            unchecked: Arc::clone(&unchecked),
        };
        if self.choices.kernel_filter.is_some() || self.is_shape_only() {
            // Without its kernels, what the archive computes means nothing.
            return Ok(());
        }
        for &(blob, live, shape) in &lowering.results {
            let check = check(blob, live, shape);
            if self.archive.blobs().index().get(blob).is_none() {
                // Never observed: nothing to compare, and nothing will say so later.
                let _ = self.checks.send(check);
                continue;
            }
            // Relaxed: the planner alone decides on the memory, and reads the counter with Acquire when it does.
            unchecked.fetch_add(1, Ordering::Relaxed);
            self.pending.insert(blob, Pending::Copy(check));
        }
        for &(blob, address, shape) in &lowering.direct_results {
            let Some(packed_bytes) = shape.packed_bytes() else { continue };
            let check = check(blob, 0, Shape::linear(packed_bytes));
            if self.archive.blobs().index().get(blob).is_none() {
                let _ = self.checks.send(check);
                continue;
            }
            let shape = Shape { lead_bytes: 0, tail_bytes: 0, ..shape };
            self.pending.insert(blob, Pending::InPlace { address, shape, check });
        }
        for (section, rows) in graph_host_sections(call, SectionTag::GraphHostOut) {
            let what = "the device-to-host result to validate against";
            if section.presence == Presence::Withheld {
                return Err(Refusal::Withheld { what });
            }
            let (address, blob) = section.host_address().zip(section.blob()).ok_or(Refusal::Lacks { what })?;
            let shape = shape_of(blob.size_bytes, rows).ok_or(Refusal::Lacks { what })?;
            let check = check(blob.number, 0, Shape::linear(blob.size_bytes));
            if self.archive.blobs().index().get(blob.number).is_none() {
                let _ = self.checks.send(check);
                continue;
            }
            self.pending.insert(blob.number, Pending::InPlace { address, shape, check });
        }
        Ok(())
    }

    /// A marker: a D2H result became visible to the program.
    pub(super) fn marker(&mut self, event: u64, lane: u32, record: Record<'a>) -> Result<(), PlanError> {
        if record.api() != marker::OBSERVED || self.is_shape_only() {
            return Ok(());
        }
        // A recorder that saw the end of its process has written whatever it says that the program saw.
        let manifest = self.archive.manifest();
        let whole = manifest.complete && self.archive.repaired().is_none();
        if whole
            && self.archive.contents() == ContentsMode::Contents
            && self.archive.blobs().index().get(record.word(0)).is_none()
        {
            return Err(PlanError {
                event,
                thread: self.archive.streams()[lane as usize].header().thread,
                api: "device-to-host result".to_owned(),
                reason: StageError::Missing { blob: record.word(0) }.into(),
            });
        }
        let Some(pending) = self.pending.remove(&record.word(0)) else {
            // Without its kernels no result is compared, whatever the program saw.
            self.planned.lost_results += u64::from(self.choices.kernel_filter.is_none());
            return Ok(());
        };
        let refuse = |reason: Refusal| PlanError {
            event,
            thread: self.archive.streams()[lane as usize].header().thread,
            api: "device-to-host result".to_owned(),
            reason,
        };
        let check = match pending {
            Pending::Copy(check) => {
                // Where the program's waits are left out, a result is there for certain only at the end.
                let count = if self.triage.skips_syncs() { Wait::AT_END } else { self.lanes[lane as usize].planned };
                Check { ready: Some(Wait { lane, count }), ..check }
            }
            // What the graph wrote would have to be kept where nothing waits for it any more.
            Pending::InPlace { check, .. } if self.triage.skips_syncs() => check,
            Pending::InPlace { address, shape, check } => {
                let len_bytes = check.shape.packed_bytes().unwrap_or(u64::MAX);
                let place = self.host.place(HostKind::Pageable, len_bytes).map_err(Refusal::from).map_err(refuse)?;
                let worker = self.assignment.worker_of[lane as usize] as usize;
                let mut chunk = self.chunks[worker].take().unwrap_or_default();
                let count = self.lanes[lane as usize].planned + 1;
                let call = Call {
                    api: &APIS[usize::from(check.api)],
                    record,
                    event,
                    lane,
                    device: -1,
                    tags: record.section_tags(),
                };
                // Behind the synchronising call, which another runner may still be in. The graph may be launched again, by
                // any thread, once the program has seen the result.
                let placeholder = self.edges.placeholder();
                let mut waits = vec![placeholder];
                let side = HostSide::SaveTo(place);
                let result = self.emit_host_copy(&call, &mut chunk, &mut waits, address, shape, side, count);
                self.chunks[worker] = Some(chunk);
                self.lanes[lane as usize].planned = count;
                self.edges.behind(lane, count, placeholder);
                result.map_err(refuse)?;
                // The result is kept in the current window, which may be a later one than the launch's.
                self.host.keep_until(self.host.window(), Wait { lane, count });
                let unchecked = self.host.unchecked();
                // Relaxed: as in `note_results`.
                unchecked.fetch_add(1, Ordering::Relaxed);
                Check { live: place as usize, ready: Some(Wait { lane, count }), unchecked, ..check }
            }
        };
        // The receiver outlives the planner.
        let _ = self.checks.send(check);
        Ok(())
    }
}
