//! The rules of `--order deps`, taken literally.

use super::*;

/// The rules of `--order deps`, taken literally: every question is answered by looking at all calls.
pub(super) struct Rules<'a> {
    calls: &'a [Planned],
    /// By pair: the first's work is complete on the device before the second's is.
    device_before: Vec<Vec<bool>>,
}

impl<'a> Rules<'a> {
    pub(super) fn of(calls: &'a [Planned]) -> Self {
        let count = calls.len();
        let mut rules = Rules { calls, device_before: vec![vec![false; count]; count] };
        for later in 0..count {
            for earlier in 0..later {
                rules.device_before[later][earlier] = rules.device_edge(earlier, later);
            }
            for middle in 0..later {
                if rules.device_before[later][middle] {
                    for earlier in 0..middle {
                        rules.device_before[later][earlier] |= rules.device_before[middle][earlier];
                    }
                }
            }
        }
        rules
    }

    pub(super) fn before(&self, earlier: usize, later: usize) -> bool {
        let (earlier, later) = (self.calls[earlier], self.calls[later]);
        if earlier.lane == later.lane { earlier.begin < later.begin } else { earlier.end < later.begin }
    }

    /// The record that a call which looks at an event sees: the last that had returned.
    pub(super) fn record_seen(&self, event: usize, by: usize) -> Option<usize> {
        let records = |&call: &usize| matches!(self.calls[call].act, Act::Record { event: of, .. } if of == event);
        (0..by).filter(records).filter(|&record| self.before(record, by)).max_by_key(|&record| self.calls[record].end)
    }

    pub(super) fn device_edge(&self, earlier: usize, later: usize) -> bool {
        let (Some(first), Some(second)) = (stream_of(self.calls[earlier].act), stream_of(self.calls[later].act)) else {
            return false;
        };
        if !self.before(earlier, later) {
            return false;
        }
        let waited = match self.calls[later].act {
            Act::WaitEvent { event, .. } => self.record_seen(event, later) == Some(earlier),
            _ => false,
        };
        first == second || waited || Self::legacy_pair(first, second)
    }

    pub(super) fn legacy_pair(first: usize, second: usize) -> bool {
        let ((device, first), (other, second)) = (STREAMS[first], STREAMS[second]);
        device == other
            && matches!(
                (first, second),
                (StreamRule::Legacy, StreamRule::Blocking) | (StreamRule::Blocking, StreamRule::Legacy)
            )
    }

    /// Whether a synchronising call makes the work of an earlier one visible.
    pub(super) fn covers(&self, sync: usize, work: usize) -> bool {
        let until = |call: usize| call == work || self.device_before[call][work];
        let last_on = |wanted: &dyn Fn(usize) -> bool| {
            (0..sync).any(|call| {
                stream_of(self.calls[call].act).is_some_and(wanted) && self.before(call, sync) && until(call)
            })
        };
        match self.calls[sync].act {
            Act::SyncStream { stream } | Act::BlockingCopy { stream, .. } => {
                let (device, rule) = STREAMS[stream];
                last_on(&|other| {
                    let same_group = rule == StreamRule::Legacy && STREAMS[other] == (device, StreamRule::Blocking);
                    other == stream || same_group
                }) || (matches!(self.calls[sync].act, Act::BlockingCopy { .. }) && until(sync))
            }
            Act::SyncEvent { event } => self.record_seen(event, sync).is_some_and(until),
            Act::SyncDevice { device } => last_on(&|other| STREAMS[other].0 == device),
            _ => false,
        }
    }

    /// Whether the earlier call must have returned when the later one is issued.
    pub(super) fn ordered(&self, earlier: usize, later: usize) -> bool {
        let (first, second) = (self.calls[earlier].act, self.calls[later].act);
        if first == Act::Fence || second == Act::Fence {
            return true;
        }
        let (works, other) = (stream_of(first), stream_of(second));
        if let (Some(works), Some(other)) = (works, other)
            && (works == other || Self::legacy_pair(works, other))
        {
            return true;
        }
        let waits_for = |sync: Act, stream: usize| match sync {
            Act::SyncStream { stream: waited } => {
                waited == stream
                    || (STREAMS[waited].1 == StreamRule::Legacy
                        && STREAMS[stream] == (STREAMS[waited].0, StreamRule::Blocking))
            }
            Act::SyncDevice { device } => STREAMS[stream].0 == device,
            _ => false,
        };
        if works.is_some_and(|stream| waits_for(second, stream)) || other.is_some_and(|stream| waits_for(first, stream))
        {
            return true;
        }
        let event = |act: Act| match act {
            Act::Record { event, .. } => Some((event, true)),
            Act::WaitEvent { event, .. } | Act::SyncEvent { event } => Some((event, false)),
            _ => None,
        };
        let object = |act: Act| match act {
            Act::Changes { object } => Some((object, true)),
            Act::Uses { object } => Some((object, false)),
            _ => None,
        };
        let conflict = |first: Option<(usize, bool)>, second: Option<(usize, bool)>| match (first, second) {
            (Some((first, changes)), Some((second, changes_too))) => first == second && (changes || changes_too),
            _ => false,
        };
        conflict(event(first), event(second))
            || conflict(object(first), object(second))
            || self.memory_conflict(earlier, later)
    }

    pub(super) fn memory_conflict(&self, earlier: usize, later: usize) -> bool {
        let memory = |act: Act| match act {
            Act::Work { memory, writes, .. } | Act::BlockingCopy { memory, writes, .. } => Some((memory, writes)),
            _ => None,
        };
        let (first, second) = (self.calls[earlier].act, self.calls[later].act);
        match (memory(first), memory(second)) {
            (Some((memory, writes)), Some((other, writes_too))) => memory == other && (writes || writes_too),
            (Some(_), None) => matches!(second, Act::Graph { .. }),
            (None, Some(_)) => matches!(first, Act::Graph { .. }),
            (None, None) => matches!((first, second), (Act::Graph { .. }, Act::Graph { .. })),
        }
    }

    /// Conflicting work on different streams whose completion the program saw: by which calls.
    pub(super) fn made_visible_by(&self, earlier: usize, later: usize) -> Option<Vec<usize>> {
        let (first, second) = (self.calls[earlier].act, self.calls[later].act);
        let asynchronous = is_enqueue(first) && stream_of(first) != stream_of(second);
        if !self.memory_conflict(earlier, later) || !asynchronous {
            return None;
        }
        let by: Vec<usize> =
            (0..later).filter(|&sync| self.before(sync, later) && self.covers(sync, earlier)).collect();
        (!by.is_empty()).then_some(by)
    }
}
