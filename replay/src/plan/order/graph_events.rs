//! Events beside those that calls record on streams. A call on a stream that is being captured does nothing by itself; what an event
//! of a graph stands for is known when the graph is launched; launches and execution contexts are given events too.
//!
//! A capture's records of events and waits for them say nothing about work on the streams, and are not taken for such. An event
//! that a node records is recorded by each launch, somewhere inside the graph: which work comes before it only the graph tells.
//! Likewise the events before and behind the kernel of a launch, and those over all streams of an execution context. Where the order of calls is found by what they touch, none crosses a call that waits for such an event.

use rustc_hash::FxHashSet;

use hrr_format::catalogue::HandleKind;
use hrr_format::record::SectionTag;

use super::OrderMode;
use super::dependency::{Fence, Sync};
use crate::plan::Planner;
use crate::plan::annotate::Captures;
use crate::plan::emit::CAPTURE_UNSUPPORTED;
use crate::plan::lower::special::Special;
use crate::plan::lower::{Call, Lowering, integer};

/// `hipEventRecordExternal` and `hipEventWaitExternal`: in a capture, the call adds a node.
const EXTERNAL: u64 = 1;
/// `hipGraphNodeTypeEventRecord`, at the front of a `hipGraphNodeParams`.
const EVENT_RECORD: u64 = 7;

/// What is known of captures and of the events of graphs.
#[derive(Debug, Default)]
pub(crate) struct GraphEvents {
    captures: Captures,
    /// Objects that nodes of graphs, launches and contexts record, and others that the same calls use.
    recorded: FxHashSet<u32>,
    /// The call at hand is captured.
    pub(in crate::plan) captured: bool,
}

/// Whether a call that adds a node or changes one has it record an event.
fn has_node_record(call: &Call<'_>, special: Special) -> bool {
    match special {
        Special::EventNode => true,
        Special::AnyNode => {
            let last = call.api.params.len().saturating_sub(1) as u8;
            let params = call.record.section(SectionTag::In, last);
            params.and_then(|params| integer(params.payload, 0, 4)) == Some(EVENT_RECORD)
        }
        _ => false,
    }
}

impl Planner<'_> {
    /// Completes what a call tells of events by what is captured and what graphs record.
    pub(in crate::plan) fn note_graph_events(&mut self, call: &Call<'_>, special: Special, lowering: &mut Lowering) {
        let given: Vec<u32> = match self.traits[usize::from(call.api.id)].gives_events {
            true => self.used(call, HandleKind::Event).collect(),
            false => Vec::new(),
        };
        let finds_order = self.order_mode == OrderMode::Deps;
        let (known, facts) = (&mut self.graph_events, &mut lowering.facts);
        known.captured = false;
        if finds_order && call.record.ret() == CAPTURE_UNSUPPORTED {
            // A capture of any thread forbade it, and was invalidated.
            facts.fence = Fence::All;
        }
        if !call.succeeded() {
            return;
        }
        known.recorded.extend(&given);
        if finds_order && !given.is_empty() && call.api.stream_param().is_none() {
            // Over all streams of a context, which others may work on.
            facts.fence = Fence::All;
        }
        if has_node_record(call, special) {
            known.recorded.extend(facts.uses.iter().map(|&(object, _)| object));
        }
        if let Some(stream) = facts.enqueues_on {
            let is_external = matches!(special, Special::EventRecord | Special::WaitEvent)
                && call.record.word_count() > 2
                && call.record.word(2) & EXTERNAL != 0;
            let (records, waits_for) = if is_external { (None, None) } else { (facts.records, facts.device_waits) };
            known.captured = known.captures.follow(special, stream.object, records, waits_for);
            if known.captured {
                known.recorded.extend(facts.records.filter(|_| is_external));
                (facts.records, facts.device_waits) = (None, None);
            }
        }
        let waited_for = match facts.sync {
            Sync::Event(event) => Some(event),
            _ => facts.device_waits,
        };
        if finds_order && waited_for.is_some_and(|event| known.recorded.contains(&event)) {
            facts.fence = Fence::All;
        }
    }
}
