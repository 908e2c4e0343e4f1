//! From a recorded call to an instruction in a worker's sequence, with what must go before and behind it.

use std::ffi::c_void;

use hrr_format::catalogue::{Api, Effect, HandleKind, Policy, Returns};
use hrr_format::record::{Presence, Record, SectionTag, SectionTags};

use super::error::{PlanError, Refusal};
use super::lower::draft::{Draft, Issue};
use super::lower::special::Special;
use super::lower::{Call, Lowering, copies_host_memory, word_at};
use super::memory::graph_host::{HostSide, graph_host_sections, shape_of};
use super::objects::Definition;
use super::order::dependency::{Sync, Use};
use super::order::edges::Entered;
use super::order::looks::Span;
use super::{Open, Planner, escort};
use crate::instruction::{Chunk, NOT_READY, Wait, flag};
use crate::mutation::Mutation;
use crate::thunk::{THUNKS, nothing};

/// `hipErrorOutOfMemory`.
const OUT_OF_MEMORY: i32 = 2;
/// `hipErrorStreamCaptureUnsupported`: the call may not be made while there is a capture.
pub(super) const CAPTURE_UNSUPPORTED: i32 = 900;
/// `hipErrorStreamCaptureInvalidated`: such a call was made.
const CAPTURE_INVALIDATED: i32 = 901;

impl<'a> Planner<'a> {
    pub(super) fn begin(
        &mut self,
        event: u64,
        lane: u32,
        record: Record<'a>,
        blocks_others: bool,
        tags: SectionTags,
    ) -> Result<(), PlanError> {
        let api = self.archive.api(record.api());
        let refuse = |reason: Refusal| PlanError {
            event,
            thread: self.archive.streams()[lane as usize].header().thread,
            api: api.name.to_owned(),
            reason,
        };
        let Some(known) = api.known else {
            return Err(refuse(Refusal::UnknownApi));
        };
        if usize::from(known.words) != record.word_count() {
            let expected = usize::from(known.words);
            return Err(refuse(Refusal::Words { found: record.word_count(), expected }));
        }
        self.account.recorded(known);
        let open = match self.lower_call(event, lane, known, record, blocks_others, tags) {
            Ok(open) => open,
            Err(reason) => {
                return Err(PlanError {
                    event,
                    thread: self.archive.streams()[lane as usize].header().thread,
                    api: known.name.to_owned(),
                    reason,
                });
            }
        };
        self.open[lane as usize] = Some(open);
        Ok(())
    }

    pub(super) fn lower_call(
        &mut self,
        event: u64,
        lane: u32,
        api: &'static Api,
        record: Record<'a>,
        blocks_others: bool,
        tags: SectionTags,
    ) -> Result<Open, Refusal> {
        let device = self.lanes[lane as usize].device;
        let stand_in = self.empty_node_for(&Call { api, record, event, lane, device, tags })?;
        if let Some(stand_in) = stand_in {
            self.account.left_out(api);
            self.account.recorded(stand_in);
        }
        let api = stand_in.unwrap_or(api);
        let call = Call { api, record, event, lane, device, tags };
        let marks = record.flags();
        // A thread enters a window with whatever last error it had.
        self.lanes[lane as usize].last_error_unknown |= marks & hrr_format::record::flag::PREAMBLE != 0;
        if marks & hrr_format::record::flag::REFUSED != 0 {
            return Err(Refusal::Converted(record.note().unwrap_or("no reason is given").to_owned()));
        }
        let left_out = match api.policy {
            _ if marks & hrr_format::record::flag::LEFT_OUT != 0 => {
                self.planned.skipped += 1;
                true
            }
            Policy::Skip(_) => {
                self.planned.skipped += 1;
                true
            }
            _ if self.leave_out_of_shape(&call) => true,
            Policy::Refuse(reason) if call.succeeded() => return Err(Refusal::Policy(reason)),
            // A refused call that had failed at capture changed nothing; an allocation that had failed may fit now.
            Policy::Refuse(_) => {
                self.planned.failures_not_reissued += 1;
                true
            }
            Policy::Replay | Policy::ReplayAs(_) if self.triage.skips_syncs() && escort::is_device_sync(api) => {
                self.planned.skipped += 1;
                true
            }
            Policy::Replay | Policy::ReplayAs(_) if self.is_between_merged_devices(&call) => {
                self.planned.between_merged_devices += 1;
                true
            }
            Policy::Replay | Policy::ReplayAs(_) => {
                let special = self.specials[usize::from(api.id)];
                // Captures are begun relaxed where captured threads share OS threads.
                let relaxed = self.multiplexed && special == Special::ExchangeCaptureMode;
                self.planned.skipped += u64::from(relaxed);
                // What only tells of the last error failed at nothing itself.
                let tells = matches!(special, Special::GetLastError | Special::PeekLastError);
                let may_fit = record.ret() == OUT_OF_MEMORY && !tells && !relaxed;
                // A capture forbade the call, which a relaxed one does not: it would be made.
                let forbidden = self.multiplexed
                    && record.ret() == CAPTURE_UNSUPPORTED
                    && !tells
                    && !relaxed
                    && api.stream_param().is_none();
                self.planned.failures_not_reissued += u64::from(may_fit || forbidden);
                relaxed || may_fit || forbidden
            }
        };
        let filtered = !left_out && self.is_filtered(&call)?;
        self.planned.filtered += u64::from(filtered);
        let left_out = left_out || (filtered && !self.leaves_node(&call));
        if left_out {
            self.account.left_out(api);
        }
        if filtered {
            self.forget_put_off(&call);
        }
        // A planted loss is one that nothing accounts for, in what the thread's last error is either.
        if left_out || self.mutation == Some(Mutation::Drop(api.id)) {
            self.lanes[lane as usize].last_error_unknown |= left_out && record.ret() != 0;
            return Ok(Open { issued: false, definitions: Vec::new() });
        }
        let live_device = self.choices.devices.live(device);
        // A program that met no device is replayed where there is none either, as it was: on none.
        if live_device >= self.device_count.max(1) {
            return Err(Refusal::Device { device, count: self.device_count });
        }
        self.host.work_near(live_device);
        if !self.planned.devices.contains(&live_device) {
            self.planned.devices.push(live_device);
        }
        let worker = self.assignment.worker_of[lane as usize] as usize;
        let mut chunk = self.chunks[worker].take().unwrap_or_default();
        let result = self.emit(&call, &mut chunk, blocks_others);
        self.chunks[worker] = Some(chunk);
        self.planned.issued += u64::from(result.is_ok());
        let dropped = match &result {
            Err(Refusal::NotReissued) => {
                self.planned.failures_not_reissued += 1;
                true
            }
            Err(refusal) => self.depends_on_left_out(&call, refusal),
            Ok(_) => false,
        };
        match (&result, stand_in) {
            (Ok(open), Some(_)) => self.note_empty_node(&open.definitions),
            (Ok(open), None) => self.note_listed_nodes(&call, &open.definitions),
            _ => {}
        }
        if dropped {
            self.account.left_out(api);
            self.lanes[lane as usize].last_error_unknown = true;
            return Ok(Open { issued: false, definitions: Vec::new() });
        }
        result
    }

    /// Lays the call out and appends it, and what must go with it, to the chunk.
    pub(super) fn emit(&mut self, call: &Call<'a>, chunk: &mut Chunk, blocks_others: bool) -> Result<Open, Refusal> {
        let mut lowering = Lowering::new(self.edges.facts());
        let mut entered = None;
        let result = self.emit_laid_out(call, chunk, blocks_others, &mut lowering, &mut entered);
        match entered {
            // One that comes to nothing from here on was entered all the same, and others may wait for it.
            Some(entered) => {
                if result.is_err() {
                    let draft = Draft::new(chunk, 0, []);
                    let issue = Issue {
                        thunk: nothing,
                        function: std::ptr::null(),
                        api: call.api,
                        progress: entered.count,
                        event: call.event,
                        lane: call.lane,
                        expected: 0,
                        device: -1,
                        flags: flag::AUXILIARY,
                    };
                    draft.finish(chunk, issue, &[entered.placeholder]);
                }
                self.objects.contents.name_once(&mut lowering.facts.memory);
                self.edges.entered(entered, lowering.facts);
            }
            None => self.edges.recycle(lowering.facts),
        }
        result.map(|()| Open { issued: true, definitions: lowering.definitions })
    }

    /// The same, into `lowering`. Tells by `entered` that the call has its place in the order.
    fn emit_laid_out(
        &mut self,
        call: &Call<'a>,
        chunk: &mut Chunk,
        blocks_others: bool,
        lowering: &mut Lowering,
        entered: &mut Option<Entered>,
    ) -> Result<(), Refusal> {
        let (api, record, lane) = (call.api, call.record, call.lane);
        let Span { begin, end } = self.delayed.span(&record);
        let mut waits = std::mem::take(&mut self.waits);
        waits.clear();
        let mut draft = Draft::new(chunk, record.word_count(), record.words());
        // A stream made on the spot waits for nothing.
        let mut before = Vec::new();
        self.uploaded_images.clear();
        self.lower_arguments(call, chunk, &mut draft, lowering, &mut before)?;
        self.patch_uploaded_images(&mut draft, lowering);
        let issued = self.apply_special(call, chunk, &mut draft)?.unwrap_or(api);
        let issued = self.replace_kernel(call, chunk, &mut draft)?.unwrap_or(issued);
        let stand_in = self.stand_in(call, chunk, &mut draft, lowering, &mut before)?;
        self.lower_return(call, &mut draft, lowering);
        let special = self.specials[usize::from(api.id)];
        match special {
            Special::ExportIpc => self.export_ipc(call, &mut draft, lowering),
            Special::ImportIpc => self.import_ipc(call, &mut draft, lowering)?,
            Special::ExportPointer => self.export_ipc(call, &mut draft, lowering),
            Special::ImportPointer => self.import_pointer(call, &mut draft, lowering)?,
            Special::ExportShared => self.export_shared(call, &mut draft, lowering),
            Special::ImportShared => self.import_shared(call, chunk, &mut draft, lowering)?,
            Special::MapExternal => self.map_external(call, lowering),
            Special::MapMemory => self.map_memory(call),
            _ => {}
        }
        if self.traits[usize::from(api.id)].device_resources {
            self.resolve_device_resources(call, &mut draft, lowering);
        }
        self.assemble(call, special, lowering);
        if lowering.facts.enqueues_on.is_none()
            && matches!(api.effect, Effect::Enqueue | Effect::BlockCopy)
            && api.stream_param().is_none()
        {
            lowering.facts.enqueues_on = Some(self.objects.legacy_stream(call.device));
        }
        lowering.classify(call, special);
        self.traits[usize::from(api.id)].values.note(call, &mut lowering.facts);
        self.note_graph_events(call, special, lowering);
        self.note_context(call, special, &mut lowering.definitions);
        if self.mutation == Some(Mutation::NameOnlyKernel) && api.name == "hipModuleGetFunction" {
            self.forget_module(call, &mut draft);
        }

        let count = self.lanes[lane as usize].planned + 1;
        let stream = match api.effect {
            Effect::Enqueue => lowering.facts.enqueues_on.map_or(0, |stream| stream.object),
            _ => 0,
        };
        let may_wait = stream != 0 && copies_host_memory(call.tags);
        // A copy that waits for the device may wait for what the calls that overlap it go on to do: none waits for it.
        let in_order_on = if may_wait { 0 } else { stream };
        let placeholder = self.edges.placeholder();
        waits.push(placeholder);
        /// The call that waits for itself under the mutation: far enough in for others to have begun.
        const SELF_WAIT_AT: u64 = 10;
        if self.mutation == Some(Mutation::SelfWait) && call.event == SELF_WAIT_AT {
            waits.push(Wait { lane, count });
        }
        *entered =
            Some(Entered { lane, begin, end, count, stream, in_order_on, handed_off: blocks_others, placeholder });
        self.lanes[lane as usize].planned = count;

        for (section, rows) in graph_host_sections(call, SectionTag::GraphHostIn) {
            let what = "graph host memory";
            let (address, blob) = section.host_address().zip(section.blob()).ok_or(Refusal::Lacks { what })?;
            if section.presence == Presence::Withheld && !self.is_shape_only() {
                return Err(Refusal::Withheld { what: "the host buffer" });
            }
            let shape = shape_of(blob.size_bytes, rows).ok_or(Refusal::Lacks { what })?;
            let source = self.graph_source(call, blob)?;
            lowering.facts.uses.extend(source.images.iter().map(|(_, handle)| (handle.object, Use::Reads)));
            self.host.keep_until(self.host.window(), Wait { lane, count });
            self.emit_host_copy(call, chunk, &mut waits, address, shape, HostSide::FillFrom(source), 0)?;
        }
        self.note_results(call, lowering)?;
        self.note_coverage(call, lowering, count);

        let mut flags = 0;
        if blocks_others {
            flags |= flag::HAND_OFF;
        }
        if begin != record.begin() {
            flags |= flag::DELAYED;
        }
        match api.effect {
            Effect::Query if record.ret() == 0 => flags |= flag::REPEAT_UNTIL_SUCCESS,
            Effect::Query if record.ret() == NOT_READY => flags |= flag::NOT_READY_FINE,
            _ => {}
        }
        let traits = self.traits[usize::from(api.id)];
        if api.effect == Effect::Enqueue && call.succeeded() {
            if special == Special::GraphLaunch {
                flags |= flag::GRAPH;
            } else if traits.launches_kernel {
                flags |= flag::KERNEL;
            }
            if traits.takes_callback {
                self.planned.callbacks += 1;
            }
        }
        flags |= self.last_error_flags(call, special);
        if self.multiplexed && record.ret() == CAPTURE_INVALIDATED {
            // What invalidated the capture may have been left out.
            flags |= flag::ANY_OUTCOME;
        }
        if api.ret == Returns::ChannelDesc || api.ret == Returns::Void {
            flags |= flag::ANY_OUTCOME;
        }
        let device = match self.mutation {
            Some(Mutation::IgnoreDevice) => 0,
            _ if special == Special::SetDevice => -1,
            _ => self.choices.devices.live(lowering.issued_on().unwrap_or(call.device)),
        };
        if self.mutation == Some(Mutation::IgnoreDevice) && special == Special::SetDevice {
            draft.set(0, 0);
        }
        let (thunk, function) = match self.placed_thunk(call, chunk, &mut draft, lowering)? {
            Some(placed) => placed,
            None => match self.empty_node_thunk(call, chunk, &mut draft)? {
                Some(thunk) => {
                    flags &= !flag::KERNEL;
                    thunk
                }
                None => match self.listed_node_thunk(call, issued, chunk, &mut draft)? {
                    Some(thunk) => thunk,
                    None => match self.told_thunk(call, chunk, &mut draft, lowering)? {
                        Some(thunk) => thunk,
                        None => (THUNKS[usize::from(issued.id)], self.entry_point(issued)?),
                    },
                },
            },
        };
        let launches = flags & (flag::KERNEL | flag::GRAPH) != 0;
        let escort = self.escort(call, special, lowering.facts.enqueues_on, blocks_others, launches);
        if !self.annotations.is_inside() {
            self.planned.prefix_launches.0 += u64::from(flags & flag::KERNEL != 0);
            self.planned.prefix_launches.1 += u64::from(flags & flag::GRAPH != 0);
        }
        waits.extend(self.annotations.gate(lane));
        self.emit_before(call, chunk, launches, &mut waits);
        self.emit_put_off(call, special, chunk, &mut waits)?;
        self.emit_twins(call, chunk, &draft, lowering, &mut waits)?;
        self.emit_by_name(call, chunk, &mut draft, &mut waits)?;
        let words = draft.words;
        let issue = Issue {
            thunk,
            function,
            api,
            progress: if escort.follows() { 0 } else { count },
            event: call.event,
            lane,
            expected: record.ret(),
            device,
            flags,
        };
        match stand_in {
            Some(stand_in) => self.emit_stand_in(stand_in, draft, chunk, issue, &waits)?,
            None if self.put_off(call, special) => draft.finish(chunk, Self::nothing(issue), &waits),
            None => match self.fill_of(call, lowering) {
                Some(fill) => {
                    // The progress is published by the last instruction of the call.
                    draft.finish(chunk, Issue { progress: 0, ..issue }, &waits);
                    self.emit_fill(call, chunk, fill, issue.progress)?;
                }
                None => draft.finish(chunk, issue, &waits),
            },
        }
        self.waits = waits;
        self.annotate(call, lowering, special, chunk);
        self.note_lasting_state(call);
        self.emit_after(call, &escort, words, chunk, count)
    }

    /// A last error that was left by a call replay does not reissue cannot be there now.
    pub(super) fn last_error_flags(&mut self, call: &Call<'_>, special: Special) -> u16 {
        let lane = &mut self.lanes[call.lane as usize];
        let flags = match special {
            Special::GetLastError | Special::PeekLastError | Special::LastCommandError if lane.last_error_unknown => {
                flag::ANY_OUTCOME
            }
            _ => 0,
        };
        let forgotten = match special {
            Special::GetLastError => true,
            Special::PeekLastError | Special::LastCommandError => false,
            // The next failure that is reissued takes its place.
            _ => !call.succeeded() && call.record.ret() != NOT_READY,
        };
        lane.last_error_unknown &= !forgotten;
        flags
    }

    /// Keeps track of which staged memory the device may still use.
    pub(super) fn note_coverage(&mut self, call: &Call<'_>, lowering: &Lowering, count: u64) {
        let (record, window) = (call.record, self.host.window());
        let wait = Wait { lane: call.lane, count };
        if lowering.stages {
            self.host.keep_until(window, wait);
            let stream = lowering.facts.enqueues_on.unwrap_or_else(|| self.objects.legacy_stream(call.device));
            self.coverage.copy(window, stream, record.end());
        }
        if let Some((event, stream)) = lowering.facts.records.zip(lowering.facts.enqueues_on) {
            self.coverage.record(event, stream, record.begin());
        }
        let sync = if lowering.facts.waits_in_part { Sync::None } else { lowering.facts.sync };
        let host = &mut self.host;
        self.coverage.synchronised(sync, record.begin(), wait, |window, wait| host.keep_until(window, wait));
        if call.api.effect == Effect::BlockCopy
            && let Some(stream) = lowering.facts.enqueues_on
        {
            // A blocking copy is complete when it returns.
            let host = &mut self.host;
            self.coverage.synchronised(Sync::Stream(stream), record.end() + 1, wait, |window, wait| {
                host.keep_until(window, wait)
            });
        }
    }

    /// A returned pointer is a handle: the fat binary's.
    pub(super) fn lower_return(&mut self, call: &Call<'_>, draft: &mut Draft, lowering: &mut Lowering) {
        if call.api.ret != Returns::Pointer {
            return;
        }
        let recorded = call.record.section_tagged(SectionTag::Return).map_or(0, |section| word_at(section.payload, 0));
        if recorded == 0 {
            return;
        }
        let handle = self.objects.new_handle(None);
        draft.output(std::ptr::null(), handle.slot);
        lowering.facts.creates.push(handle.object);
        lowering.definitions.push(Definition::Handle { kind: HandleKind::FatBinary, value: recorded, handle });
    }

    /// The mutation that proves that kernels are told apart by code object.
    pub(super) fn forget_module(&mut self, call: &Call<'_>, draft: &mut Draft) {
        let Some(name) = call.record.section_tagged(SectionTag::Text) else { return };
        let module = call.record.word(1);
        let first = *self.first_module.entry(name.payload.to_vec()).or_insert(module);
        if let Some(handle) = self.objects.handle(HandleKind::Module, first) {
            draft.fixups.retain(|fixup| fixup.target != draft.words.wrapping_add(1));
            draft.patch(1, handle.slot, 0);
        }
    }

    /// The runtime's entry point for a call.
    pub(crate) fn entry_point(&self, api: &Api) -> Result<*const c_void, Refusal> {
        self.runtime.entry_point(api).ok_or_else(|| Refusal::Missing(self.runtime.path().display().to_string()))
    }
}
