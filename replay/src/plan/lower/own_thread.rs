//! What HIP keeps for each OS thread, where captured threads share them: the default stream of calls that cannot name it, and
//! launches that are put together call by call.

use hrr_format::catalogue::{Api, Effect};

use super::draft::{Draft, Issue};
use super::special::Special;
use super::{Call, Lowering};
use crate::instruction::{Chunk, Wait, flag};
use crate::plan::Planner;
use crate::plan::error::Refusal;
use crate::plan::objects::{Assembled, Handle};
use crate::thunk::{THUNKS, nothing};

/// Calls on the thread's own default stream that wait, and the calls that enqueue the same on a stream that is named by one
/// more argument.
const NAMED: [(&str, &str); 8] = [
    ("hipMemcpy_spt", "hipMemcpyAsync"),
    ("hipMemcpy2D_spt", "hipMemcpy2DAsync"),
    ("hipMemcpy3D_spt", "hipMemcpy3DAsync"),
    ("hipMemcpyToSymbol_spt", "hipMemcpyToSymbolAsync"),
    ("hipMemcpyFromSymbol_spt", "hipMemcpyFromSymbolAsync"),
    ("hipMemset_spt", "hipMemsetAsync"),
    ("hipMemset2D_spt", "hipMemset2DAsync"),
    ("hipMemset3D_spt", "hipMemset3DAsync"),
];

/// What a call on a hidden stream becomes: an enqueue on the stream that stands for it, and a wait for that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StandIn {
    /// Enqueues.
    pub(crate) enqueue: &'static Api,
    stream: Handle,
}

/// Whether a call works on the calling OS thread's own default stream and has no argument that says so.
fn is_hidden(api: &Api) -> bool {
    api.name.ends_with("_spt")
        && api.stream_param().is_none()
        && matches!(api.effect, Effect::BlockCopy | Effect::Enqueue)
}

impl<'a> Planner<'a> {
    /// Where captured threads share OS threads: the stream that stands for the hidden one becomes one more argument.
    pub(crate) fn stand_in(
        &mut self,
        call: &Call<'a>,
        chunk: &mut Chunk,
        draft: &mut Draft,
        lowering: &mut Lowering,
        before: &mut Vec<Wait>,
    ) -> Result<Option<StandIn>, Refusal> {
        if !is_hidden(call.api) {
            return Ok(None);
        }
        if !self.multiplexed {
            let handle = self.per_thread_stream(call, chunk, before)?;
            lowering.note_stream(call, handle.stream);
            return Ok(None);
        }
        if !call.succeeded() {
            return Err(Refusal::NotReissued);
        }
        let named =
            NAMED.iter().find(|(hidden, _)| *hidden == call.api.name).and_then(|(_, named)| Api::by_name(named));
        let Some(enqueue) = named.filter(|named| named.words == call.api.words + 1) else {
            return Err(Refusal::Policy(
                "it works on its OS thread's own default stream, which captured threads that share workers do not have; \
                 replay with --threads 0",
            ));
        };
        let stream = self.per_thread_stream(call, chunk, before)?;
        lowering.note_stream(call, stream.stream);
        let word = call.api.words;
        draft.append_word(chunk, usize::from(word));
        draft.patch(word, stream.slot, 0);
        Ok(Some(StandIn { enqueue, stream }))
    }

    /// Emits the two parts of a call on a hidden stream; what follows the call belongs to the second.
    pub(crate) fn emit_stand_in(
        &mut self,
        stand_in: StandIn,
        draft: Draft,
        chunk: &mut Chunk,
        issue: Issue,
        waits: &[Wait],
    ) -> Result<(), Refusal> {
        let wait = Api::by_name("hipStreamSynchronize").ok_or(Refusal::UnknownApi)?;
        let enqueue = Issue {
            thunk: THUNKS[usize::from(stand_in.enqueue.id)],
            function: self.entry_point(stand_in.enqueue)?,
            progress: 0,
            flags: issue.flags & !flag::HAND_OFF,
            ..issue
        };
        draft.finish(chunk, enqueue, waits);
        let mut draft = Draft::new(chunk, 1, [0]);
        draft.patch(0, stand_in.stream.slot, 0);
        let issue = Issue { thunk: THUNKS[usize::from(wait.id)], function: self.entry_point(wait)?, ..issue };
        draft.finish(chunk, issue, &[]);
        Ok(())
    }

    /// Where captured threads share OS threads, a launch's configuration and arguments are given to the runtime only right
    /// before the launch, when no other captured thread can come between; where launches may be left out, as well. Returns
    /// whether this call is one of those.
    pub(crate) fn put_off(&mut self, call: &Call<'a>, special: Special) -> bool {
        let puts_off = self.multiplexed || self.choices.kernel_filter.is_some();
        let is_part =
            puts_off && call.succeeded() && matches!(special, Special::ConfigureCall | Special::SetupArgument);
        if is_part {
            self.put_off[call.lane as usize].push(*call);
        }
        is_part
    }

    /// A launch that is put together call by call works where it was configured to, with what its arguments name.
    pub(crate) fn assemble(&mut self, call: &Call<'_>, special: Special, lowering: &mut Lowering) {
        let assembled = &mut self.lanes[call.lane as usize].assembled;
        match special {
            Special::ConfigureCall if call.succeeded() => {
                assembled.push(Assembled { stream: lowering.names_stream, ..Assembled::default() });
            }
            Special::SetupArgument => {
                let Some(launch) = assembled.last_mut() else { return };
                launch.memory.append(&mut lowering.facts.memory);
                launch.uses.extend_from_slice(&lowering.facts.uses);
            }
            Special::LaunchByPtr => {
                let Some(launch) = assembled.pop() else { return };
                lowering.facts.enqueues_on = launch.stream;
                lowering.facts.memory.extend(launch.memory);
                lowering.facts.uses.extend(launch.uses);
            }
            _ => {}
        }
    }

    /// What stands in the place of a call that was put off.
    pub(crate) fn nothing(issue: Issue) -> Issue {
        Issue { thunk: nothing, function: std::ptr::null(), ..issue }
    }

    /// The launch that the last configuration was for is left out, and its arguments with it.
    pub(crate) fn forget_put_off(&mut self, call: &Call<'_>) {
        if self.specials[usize::from(call.api.id)] == Special::LaunchByPtr {
            let first = self.last_configuration(call.lane);
            self.put_off[call.lane as usize].truncate(first.unwrap_or(0));
            self.lanes[call.lane as usize].assembled.pop();
        }
    }

    /// Configurations are a stack: a launch takes the last one, with the arguments that came after it.
    fn last_configuration(&self, lane: u32) -> Option<usize> {
        let parts = &self.put_off[lane as usize];
        parts.iter().rposition(|part| self.specials[usize::from(part.api.id)] == Special::ConfigureCall)
    }

    /// Emits what was put off for this launch. Takes over its waits if there is something.
    pub(crate) fn emit_put_off(
        &mut self,
        call: &Call<'a>,
        special: Special,
        chunk: &mut Chunk,
        waits: &mut Vec<Wait>,
    ) -> Result<(), Refusal> {
        if special != Special::LaunchByPtr {
            return Ok(());
        }
        let Some(first) = self.last_configuration(call.lane) else { return Ok(()) };
        for part in self.put_off[call.lane as usize].split_off(first) {
            let mut draft = Draft::new(chunk, part.record.word_count(), part.record.words());
            let (mut lowering, mut before) = (Lowering::new(Box::default()), Vec::new());
            self.lower_arguments(&part, chunk, &mut draft, &mut lowering, &mut before)?;
            draft.flags |= flag::AUXILIARY;
            let issue = Issue {
                thunk: THUNKS[usize::from(part.api.id)],
                function: self.entry_point(part.api)?,
                api: part.api,
                progress: 0,
                event: call.event,
                lane: call.lane,
                expected: 0,
                device: call.device,
                flags: 0,
            };
            draft.finish(chunk, issue, waits);
            waits.clear();
        }
        Ok(())
    }
}
