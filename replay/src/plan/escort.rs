//! Instructions that go with a call for triage: a line before it, a mark, a count or a wait for the device behind it.
//!
//! They are planned in only where they were asked for. What follows a call belongs to it: the captured thread's progress
//! is published by the last of them, so that no other thread comes between.

use std::ffi::c_void;
use std::sync::Arc;

use hrr_format::catalogue::{Api, Effect};

use super::Planner;
use super::error::Refusal;
use super::lower::draft::{Draft, Issue};
use super::lower::special::Special;
use super::lower::{Call, padded_copy};
use super::order::OrderMode;
use super::order::dependency::StreamKey;
use crate::info;
use crate::instruction::{Chunk, Wait, flag};
use crate::thunk::{THUNKS, Thunk};
use crate::triage::event_index::EventIndex;
use crate::triage::marks::{MARK_WORDS, Marks, StreamMarks, mark_thunk};
use crate::triage::trace::{Live, count_thunk, print_thunk};
use crate::triage::{DeviceSyncs, SyncAfter, Tracing, TriageOptions};

/// What the planner is told about triage.
#[derive(Debug, Default)]
pub(crate) struct TriagePlan<'a> {
    pub(crate) options: TriageOptions,
    /// Marks to record, where the watchdog is on.
    pub(crate) marks: Option<Arc<Marks>>,
    /// Told how far planning has come, where the watchdog is on.
    pub(crate) index: Option<Arc<EventIndex<'a>>>,
    /// Counts launches, where progress is printed.
    pub(crate) live: Option<Arc<Live>>,
    /// Stream captures that have begun and not ended.
    pub(crate) capturing: u64,
    /// The stream last marked, which is most often the next one too.
    pub(crate) last: Option<Arc<StreamMarks>>,
}

/// What goes with one call.
#[derive(Debug, Default)]
pub(crate) struct Escort {
    mark: Option<StreamKey>,
    count: bool,
    sync: bool,
    trace_return: bool,
}

impl Escort {
    /// Whether something follows the call.
    pub(crate) fn follows(&self) -> bool {
        self.mark.is_some() || self.count || self.sync || self.trace_return
    }
}

/// Whether the program's waits of this kind are left out when asked to.
pub(crate) fn is_device_sync(api: &Api) -> bool {
    matches!(api.name, "hipDeviceSynchronize" | "hipStreamSynchronize" | "hipStreamSynchronize_spt")
}

impl<'a> TriagePlan<'a> {
    /// Whether nothing at all goes with calls.
    fn is_off(&self) -> bool {
        let options = &self.options;
        self.marks.is_none()
            && self.live.is_none()
            && options.sync_after == SyncAfter::Nothing
            && options.trace_kernels == Tracing::Off
            && options.trace_sync == Tracing::Off
    }

    /// Whether the program's waits for the device are left out.
    pub(crate) fn skips_syncs(&self) -> bool {
        self.options.device_syncs == DeviceSyncs::Skipped
    }
}

impl<'a> Planner<'a> {
    /// What goes with a call. `handed_off`: it blocks beside its worker, so nothing can follow it. `launches`: it launches a
    /// kernel or graph.
    pub(crate) fn escort(
        &mut self,
        call: &Call<'a>,
        special: Special,
        stream: Option<StreamKey>,
        handed_off: bool,
        launches: bool,
    ) -> Escort {
        match special {
            Special::BeginCapture if call.succeeded() => self.triage.capturing += 1,
            Special::EndCapture => self.triage.capturing = self.triage.capturing.saturating_sub(1),
            _ => {}
        }
        if self.triage.is_off() || handed_off {
            return Escort::default();
        }
        let options = &self.triage.options;
        // Anything else on a stream that is being captured would become part of the graph.
        let may_touch_device = self.triage.capturing == 0;
        let enqueues = call.api.effect == Effect::Enqueue && call.succeeded();
        // The stream of hipLaunchByPtr is another call's argument; an event belongs to the device it is made on.
        let markable = enqueues && may_touch_device && !call.api.name.starts_with("hipLaunchByPtr");
        let mark = stream.filter(|stream| {
            markable
                && self.triage.marks.is_some()
                && self.order_mode != OrderMode::Program
                && stream.device == call.device
        });
        Escort {
            mark,
            count: launches && self.triage.live.is_some(),
            sync: may_touch_device
                && match options.sync_after {
                    SyncAfter::Nothing => false,
                    SyncAfter::Launches => launches,
                    SyncAfter::Events => special != Special::EndCapture,
                },
            trace_return: options.trace_sync == Tracing::On && waits(call.api),
        }
    }

    /// Emits what comes before a call. Takes over its waits if there is something.
    pub(crate) fn emit_before(&mut self, call: &Call<'a>, chunk: &mut Chunk, launches: bool, waits: &mut Vec<Wait>) {
        let options = &self.triage.options;
        let wanted = (options.trace_kernels == Tracing::On && launches)
            || (options.trace_sync == Tracing::On && self::waits(call.api));
        if wanted {
            let line = self.trace_line(call, "");
            self.emit_line(call, chunk, &line, 0, waits);
            waits.clear();
        }
    }

    /// Emits what follows a call whose words these are. The last instruction publishes `progress`.
    pub(crate) fn emit_after(
        &mut self,
        call: &Call<'a>,
        escort: &Escort,
        words: *const u64,
        chunk: &mut Chunk,
        progress: u64,
    ) -> Result<(), Refusal> {
        let mut left = [escort.mark.is_some(), escort.count, escort.sync, escort.trace_return];
        // The progress of the last one, zero for those before it.
        let mut publish = |at: usize| {
            left[at] = false;
            if left.contains(&true) { 0 } else { progress }
        };
        if let (Some(key), Some(all)) = (escort.mark, self.triage.marks.clone()) {
            let param = call.api.stream_param().and_then(|param| call.api.params.get(param));
            let recorded = param.map_or(0, |param| call.record.word(usize::from(param.word)));
            let marks = match &self.triage.last {
                Some(last) if last.key == key => Arc::clone(last),
                _ => all.stream(key, recorded),
            };
            // The live handle is patched into the call's own word, which this instruction reads behind it.
            let cell = param.map_or(std::ptr::null(), |param| words.wrapping_add(usize::from(param.word)));
            let words: [u64; MARK_WORDS] = [Arc::as_ptr(&marks) as u64, cell as u64, 0, call.event];
            self.triage.last = Some(marks);
            self.emit_own(call, chunk, mark_thunk, std::ptr::null(), &words, publish(0), call.api);
        }
        if let (true, Some(live)) = (escort.count, &self.triage.live) {
            let words = [Arc::as_ptr(live) as u64, call.event, u64::from(call.record.aux())];
            self.emit_own(call, chunk, count_thunk, std::ptr::null(), &words, publish(1), call.api);
        }
        if escort.sync {
            let api = Api::by_name("hipDeviceSynchronize").ok_or(Refusal::UnknownApi)?;
            let function = self.entry_point(api)?;
            self.emit_own(call, chunk, THUNKS[usize::from(api.id)], function, &[], publish(2), api);
        }
        if escort.trace_return {
            let line = self.trace_line(call, " returned");
            let progress = publish(3);
            self.emit_line(call, chunk, &line, progress, &[]);
        }
        Ok(())
    }

    fn trace_line(&self, call: &Call<'a>, suffix: &str) -> String {
        let thread = self.archive.streams()[call.lane as usize].header().thread;
        let text = info::call_text(self.archive, &call.record);
        format!("[HRR][TRACE] event {} thread {thread}: {text}{suffix}\n", call.event)
    }

    fn emit_line(&self, call: &Call<'a>, chunk: &mut Chunk, line: &str, progress: u64, waits: &[Wait]) {
        let text = padded_copy(chunk, line.as_bytes());
        let draft = Draft::new(chunk, 2, [text as u64, line.len() as u64]);
        finish_own(draft, call, chunk, print_thunk, std::ptr::null(), progress, call.api, waits);
    }

    #[expect(clippy::too_many_arguments, reason = "one argument each for what an instruction is made of")]
    fn emit_own(
        &self,
        call: &Call<'a>,
        chunk: &mut Chunk,
        thunk: Thunk,
        function: *const c_void,
        words: &[u64],
        progress: u64,
        api: &'static Api,
    ) {
        let draft = Draft::new(chunk, words.len(), words.iter().copied());
        finish_own(draft, call, chunk, thunk, function, progress, api, &[]);
    }
}

#[expect(clippy::too_many_arguments, reason = "as above")]
fn finish_own(
    mut draft: Draft,
    call: &Call<'_>,
    chunk: &mut Chunk,
    thunk: Thunk,
    function: *const c_void,
    progress: u64,
    api: &'static Api,
    waits: &[Wait],
) {
    draft.flags |= flag::AUXILIARY;
    let issue = Issue {
        thunk,
        function,
        api,
        progress,
        event: call.event,
        lane: call.lane,
        expected: 0,
        device: call.device,
        flags: 0,
    };
    draft.finish(chunk, issue, waits);
}

/// Whether a call waits for the device, or asks how far it is.
fn waits(api: &Api) -> bool {
    api.blocks() || api.effect == Effect::Query
}
