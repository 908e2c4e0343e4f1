//! What a call is known to use, make, end and wait for, brought together while it is laid out.

use hrr_format::catalogue::{Access, Effect, Role};

use super::dependency::{CallFacts, Fence, Reach, StreamKey, Sync, Use};
use crate::plan::lower::special::{self, Special};
use crate::plan::lower::{Call, Lowering};
use crate::plan::memory::address::Allocation;

/// Calls that change whether work of the current device may use another device's memory.
const CHANGES_PEER_ACCESS: [&str; 4] =
    ["hipCtxDisablePeerAccess", "hipCtxEnablePeerAccess", "hipDeviceDisablePeerAccess", "hipDeviceEnablePeerAccess"];

impl Lowering {
    /// Nothing yet, with these empty facts to fill in.
    pub(crate) fn new(facts: Box<CallFacts>) -> Self {
        Lowering {
            facts,
            definitions: Vec::new(),
            results: Vec::new(),
            direct_results: Vec::new(),
            stages: false,
            used: Vec::new(),
            placed: None,
            names_stream: None,
            told: None,
            new_memory: None,
            freed_on: None,
        }
    }

    pub(in crate::plan) fn note_memory(&mut self, allocation: &Allocation, access: Access) {
        self.facts.memory.push((allocation.object, access.writes()));
        self.facts.uses.push((allocation.object, Use::Reads));
    }

    /// Notes which stream the call works on.
    pub(crate) fn note_stream(&mut self, call: &Call<'_>, stream: Option<StreamKey>) {
        self.names_stream = stream;
        match call.api.effect {
            Effect::BlockStream => self.facts.sync = stream.map_or(Sync::None, Sync::Stream),
            Effect::Query if call.succeeded() => self.facts.sync = stream.map_or(Sync::None, Sync::Stream),
            // What is enqueued while a stream is captured depends on when the capture began and ends.
            Effect::Host if special::changes_capture(call.api) => self.facts.enqueues_on = stream,
            Effect::Query | Effect::Host => {}
            _ => self.facts.enqueues_on = stream,
        }
    }

    /// Notes that a kernel can read and write an allocation.
    pub(crate) fn note_use(&mut self, allocation: &Allocation) {
        self.facts.memory.push((allocation.object, true));
        self.facts.uses.push((allocation.object, Use::Reads));
    }

    /// Completes the facts by what the call as a whole does.
    pub(in crate::plan) fn classify(&mut self, call: &Call<'_>, special: Special) {
        let event = self.facts.uses.iter().map(|&(object, _)| object).next();
        match call.api.effect {
            Effect::BlockDevice => {
                // An execution context has all streams of its device, or its own.
                self.facts.waits_in_part = call.api.name.starts_with("hipExecutionCtx");
                self.facts.sync = Sync::Device(self.freed_on.unwrap_or(call.device));
            }
            Effect::BlockEvent => self.facts.sync = event.map_or(Sync::None, Sync::Event),
            Effect::Query if call.api.stream_param().is_none() && call.succeeded() => {
                self.facts.sync = event.map_or(Sync::None, Sync::Event);
            }
            Effect::BlockCopy => {
                if let Some(stream) = self.facts.enqueues_on {
                    self.facts.sync = Sync::Stream(stream);
                }
            }
            _ => {}
        }
        match special {
            Special::EventRecord => self.facts.records = event,
            Special::WaitEvent => self.facts.device_waits = self.facts.uses.last().map(|&(object, _)| object),
            Special::GraphLaunch => self.facts.reach = Reach::Any,
            Special::BeginCapture | Special::EndCapture => self.facts.fence = Fence::All,
            // Work that uses the addresses before, or afterwards, ends the process.
            Special::MapMemory | Special::ChangeMapping if call.succeeded() => self.facts.fence = Fence::All,
            // Other threads' work may use the other device's memory from then on, or no more.
            _ if CHANGES_PEER_ACCESS.contains(&call.api.name) && call.succeeded() => self.facts.fence = Fence::All,
            _ => {}
        }
        if matches!(call.api.effect, Effect::Enqueue | Effect::BlockCopy)
            && call.api.param_with(|role| matches!(role, Role::VarSymbol)).is_some()
        {
            self.facts.reach = Reach::Any;
        }
        self.facts.failed = !call.succeeded();
    }
}
