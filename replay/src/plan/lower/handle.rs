//! Arguments that are handles: used, ended, and made.

use hrr_format::catalogue::{HandleKind, Role};

use super::draft::Draft;
use super::{Call, Lowering};
use crate::instruction::{Chunk, Wait};
use crate::memory::slots::Slot;
use crate::memory::stage::poison_address;
use crate::plan::Planner;
use crate::plan::error::Refusal;
use crate::plan::objects::{Definition, STREAM_LEGACY, STREAM_PER_THREAD, stream_rule};
use crate::plan::order::dependency::Use;

impl<'a> Planner<'a> {
    /// The slot of a live handle; `None` where the call failed at capture over a handle that was nothing.
    pub(crate) fn live_handle(
        &mut self,
        call: &Call<'_>,
        lowering: &mut Lowering,
        kind: HandleKind,
        value: u64,
        how: Use,
    ) -> Result<Option<Slot>, Refusal> {
        match self.objects.handle(kind, value) {
            Some(handle) => {
                lowering.facts.uses.push((handle.object, how));
                if handle.parent != 0 {
                    lowering.facts.uses.push((handle.parent, Use::Reads));
                }
                Ok(Some(handle.slot))
            }
            None if call.succeeded() => Err(Refusal::Handle { kind, value }),
            None => Ok(None),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one argument each for what a parameter is made of")]
    pub(in crate::plan) fn lower_handle(
        &mut self,
        call: &Call<'_>,
        draft: &mut Draft,
        lowering: &mut Lowering,
        word: u8,
        kind: HandleKind,
        value: u64,
        how: Use,
    ) -> Result<(), Refusal> {
        if value != 0 {
            match self.live_handle(call, lowering, kind, value, how)? {
                Some(slot) => draft.patch(word, slot, 0),
                None => draft.set(word, poison_address()),
            }
        }
        Ok(())
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "as above, with the chunk and the waits of a stream made on the spot"
    )]
    pub(in crate::plan) fn lower_stream(
        &mut self,
        call: &Call<'_>,
        chunk: &mut Chunk,
        draft: &mut Draft,
        lowering: &mut Lowering,
        word: u8,
        value: u64,
        waits: &mut Vec<Wait>,
    ) -> Result<(), Refusal> {
        let per_thread_api = call.api.name.ends_with("_spt");
        if value == STREAM_PER_THREAD || (per_thread_api && value == 0) {
            let handle = self.per_thread_stream(call, chunk, waits)?;
            lowering.facts.uses.push((handle.object, Use::Reads));
            if self.multiplexed {
                draft.patch(word, handle.slot, 0);
            }
            lowering.note_stream(call, handle.stream);
            return Ok(());
        }
        if value == 0 || value == STREAM_LEGACY {
            let key = self.objects.legacy_stream(call.device);
            lowering.note_stream(call, Some(key));
            return Ok(());
        }
        self.lower_handle(call, draft, lowering, word, HandleKind::Stream, value, Use::Reads)?;
        let key = self.objects.handle(HandleKind::Stream, value).and_then(|handle| handle.stream);
        lowering.note_stream(call, key);
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "one argument each for what a handle is made of")]
    pub(in crate::plan) fn lower_new_handle(
        &mut self,
        call: &Call<'_>,
        draft: &mut Draft,
        lowering: &mut Lowering,
        cell: *const u64,
        kind: HandleKind,
        recorded: u64,
        fresh: bool,
    ) {
        if !call.succeeded() || recorded == 0 {
            return;
        }
        let is_part = matches!(
            kind,
            HandleKind::Function | HandleKind::Kernel | HandleKind::Node | HandleKind::Array | HandleKind::TexRef
        );
        let parent = match if is_part { self.parent_of(call) } else { 0 } {
            0 if kind == HandleKind::Node => self.graph_told_of(call, lowering),
            parent => parent,
        };
        // A part of another whole ended with it, and its value was given out again.
        let is_same = |handle: &crate::plan::objects::Handle| parent == 0 || handle.parent == parent;
        if !fresh && let Some(handle) = self.objects.handle(kind, recorded).filter(is_same) {
            lowering.facts.uses.push((handle.object, Use::Reads));
            if call.api.name == "hipMemRetainAllocationHandle" {
                self.objects.retain(kind, recorded);
            }
            return;
        }
        let stream =
            (kind == HandleKind::Stream).then(|| (call.device, stream_rule(call.api, |index| call.record.word(index))));
        let mut handle = self.objects.new_handle(stream);
        handle.owned = fresh;
        handle.parent = parent;
        if matches!(kind, HandleKind::Function | HandleKind::Kernel) {
            self.name_function(call, handle.object);
        }
        draft.output(cell, handle.slot);
        lowering.facts.creates.push(handle.object);
        lowering.definitions.push(Definition::Handle { kind, value: recorded, handle });
    }

    /// The object that a function, node, level or texture reference had by this call is a part of: its module, library, graph
    /// or mipmapped array.
    pub(in crate::plan) fn parent_of(&self, call: &Call<'_>) -> u32 {
        let mut wholes = call.api.params.iter().filter_map(|param| match param.role {
            Role::Use(
                kind @ (HandleKind::Module
                | HandleKind::Library
                | HandleKind::Kernel
                | HandleKind::Graph
                | HandleKind::Mipmap),
            ) => self.objects.handle(kind, call.record.word(usize::from(param.word))),
            _ => None,
        });
        wholes.next().map_or(0, |whole| if whole.parent == 0 { whole.object } else { whole.parent })
    }

    /// The device that stands for a recorded one; one that a failed call named stays as it is where there is none.
    pub(crate) fn live_device(&self, call: &Call<'_>, device: i32) -> Result<i32, Refusal> {
        let live = self.choices.devices.live(device);
        if call.succeeded() && live >= self.device_count {
            return Err(Refusal::Device { device, count: self.device_count });
        }
        Ok(live)
    }
}
