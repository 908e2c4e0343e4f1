//! Which copies an event stands behind.
//!
//! A copy is named by its stream and a number that rises with every copy. A stream that waits for an event has everything
//! behind it that the event has; so a clock is kept for each such stream and event: for other streams, the number up to
//! which their copies are behind it.

use std::collections::HashMap;

/// For streams, the number up to which their copies are complete once the clock's owner is.
type Clock = HashMap<u64, u64>;

/// The clocks of streams and events, as far as results are pending.
#[derive(Debug, Default)]
pub(crate) struct EventOrder {
    streams: HashMap<u64, Clock>,
    events: HashMap<u64, Clock>,
}

impl EventOrder {
    /// An event was recorded on a stream, behind its copies up to `sequence`.
    pub(crate) fn record(&mut self, event: u64, stream: u64, sequence: u64) {
        let mut clock = self.streams.get(&stream).cloned().unwrap_or_default();
        clock.insert(stream, sequence);
        self.events.insert(event, clock);
    }

    /// A stream waits for an event.
    pub(crate) fn wait(&mut self, stream: u64, event: u64) {
        let Some(behind) = self.events.get(&event) else {
            return;
        };
        let clock = self.streams.entry(stream).or_default();
        for (&other, &sequence) in behind {
            let known = clock.entry(other).or_insert(0);
            *known = sequence.max(*known);
        }
    }

    /// Whether a copy on another stream is complete once the work on `waited` is.
    pub(crate) fn stream_implies(&self, waited: u64, stream: u64, sequence: u64) -> bool {
        self.streams.get(&waited).is_some_and(|clock| reaches(clock, stream, sequence))
    }

    /// Whether a copy is complete once an event is.
    pub(crate) fn event_implies(&self, event: u64, stream: u64, sequence: u64) -> bool {
        self.events.get(&event).is_some_and(|clock| reaches(clock, stream, sequence))
    }

    /// A stream's handle may come to mean another stream.
    pub(crate) fn forget_stream(&mut self, stream: u64) {
        self.streams.remove(&stream);
        for clock in self.streams.values_mut().chain(self.events.values_mut()) {
            clock.remove(&stream);
        }
    }

    /// Nothing is pending: everything recorded so far is behind.
    pub(crate) fn clear(&mut self) {
        self.streams.clear();
        self.events.clear();
    }
}

fn reaches(clock: &Clock, stream: u64, sequence: u64) -> bool {
    clock.get(&stream).is_some_and(|&reached| sequence <= reached)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: u64 = 0xa;
    const B: u64 = 0xb;
    const C: u64 = 0xc;

    #[test]
    fn a_stream_implies_the_copies_behind_events_it_waits_for() {
        let mut order = EventOrder::default();
        order.record(1, A, 5);
        order.wait(B, 1);
        order.record(2, B, 6);
        order.wait(C, 2);
        assert!(order.stream_implies(B, A, 5) && !order.stream_implies(B, A, 6));
        assert!(order.stream_implies(C, A, 5) && order.stream_implies(C, B, 6));
        assert!(!order.stream_implies(A, B, 1));
    }

    #[test]
    fn an_event_recorded_again_stands_for_its_new_place() {
        let mut order = EventOrder::default();
        order.record(1, A, 5);
        assert!(order.event_implies(1, A, 5));
        order.record(1, B, 7);
        assert!(!order.event_implies(1, A, 5) && order.event_implies(1, B, 7));
        assert!(!order.event_implies(3, A, 1));
    }

    #[test]
    fn a_destroyed_streams_handle_means_nothing() {
        let mut order = EventOrder::default();
        order.record(1, A, 5);
        order.wait(B, 1);
        order.forget_stream(A);
        assert!(!order.event_implies(1, A, 5) && !order.stream_implies(B, A, 5));
    }
}
