//! When staged host memory may be used again.
//!
//! Memory staged for copies is handed out in windows of the plan. A window's memory is free once every copy that uses it
//! is complete on the device, and what says so is the program itself: a synchronising call that covers the copy's stream
//! and comes after it. Nothing is added to the replay for it. Where the program never synchronises, the memory stays.

use rustc_hash::FxHashMap;

use crate::instruction::Wait;
use crate::plan::order::dependency::{StreamKey, StreamRule, Sync};

/// Copies of one window on one stream that no synchronising call has covered yet.
#[derive(Clone, Copy, Debug)]
struct Uncovered {
    window: u64,
    stream: StreamKey,
    /// Latest return tick among them.
    end: u64,
}

/// Which copies are not known to be complete at this moment of the timeline.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    uncovered: Vec<Uncovered>,
    /// Per event object: the stream it was last recorded on and the entry tick of that call.
    recorded: FxHashMap<u32, (StreamKey, u64)>,
}

impl Coverage {
    /// A copy that uses memory of `window` was enqueued on `stream` by a call that returned at `end`.
    pub(crate) fn copy(&mut self, window: u64, stream: StreamKey, end: u64) {
        let known = self.uncovered.iter_mut().rev().find(|open| open.window == window && open.stream == stream);
        match known {
            Some(open) => open.end = open.end.max(end),
            None => self.uncovered.push(Uncovered { window, stream, end }),
        }
    }

    /// An event was recorded by a call entered at `begin`.
    pub(crate) fn record(&mut self, event: u32, stream: StreamKey, begin: u64) {
        self.recorded.insert(event, (stream, begin));
    }

    /// A call entered at `begin` waits as `sync` says, and has returned once `wait` holds. Tells each window that thereby
    /// has to wait for it, before it is free.
    pub(crate) fn synchronised(&mut self, sync: Sync, begin: u64, wait: Wait, mut tell: impl FnMut(u64, Wait)) {
        let (stream, until) = match sync {
            Sync::None => return,
            Sync::Stream(stream) => (Some(stream), begin),
            Sync::Device(_) => (None, begin),
            Sync::Event(event) => match self.recorded.get(&event) {
                Some(&(stream, recorded)) => (Some(stream), recorded),
                None => return,
            },
        };
        self.uncovered.retain(|open| {
            let in_scope = match (sync, stream) {
                (Sync::Device(device), _) => open.stream.device == device,
                (_, Some(stream)) => {
                    open.stream == stream
                        || (stream.rule == StreamRule::Legacy
                            && open.stream.device == stream.device
                            && open.stream.rule == StreamRule::Blocking)
                }
                _ => false,
            };
            let covered = in_scope && open.end < until;
            if covered {
                tell(open.window, wait);
            }
            !covered
        });
    }

    /// Whether copies of a window are not known to be complete.
    pub(crate) fn has_open(&self, window: u64) -> bool {
        self.uncovered.iter().any(|open| open.window == window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(object: u32, rule: StreamRule) -> StreamKey {
        StreamKey { object, device: 0, rule }
    }

    #[test]
    fn a_window_is_open_until_a_later_sync_covers_every_stream_it_used() {
        let mut coverage = Coverage::default();
        let (a, b) = (stream(1, StreamRule::Blocking), stream(2, StreamRule::NonBlocking));
        coverage.copy(7, a, 10);
        coverage.copy(7, b, 12);
        let wait = |count| Wait { lane: 0, count };
        let mut told = Vec::new();
        coverage.synchronised(Sync::Stream(a), 9, wait(1), |window, wait| told.push((window, wait.count)));
        assert!(told.is_empty(), "a sync entered before the copy returned covers nothing");
        coverage.synchronised(Sync::Stream(a), 11, wait(2), |window, wait| told.push((window, wait.count)));
        assert_eq!((told.as_slice(), coverage.has_open(7)), (&[(7, 2)][..], true));
        coverage.synchronised(Sync::Stream(stream(9, StreamRule::Legacy)), 20, wait(3), |_, _| panic!("non-blocking"));
        coverage.record(5, b, 11);
        coverage.synchronised(Sync::Event(5), 30, wait(4), |_, _| panic!("recorded before the copy returned"));
        coverage.record(5, b, 13);
        coverage.synchronised(Sync::Event(5), 31, wait(5), |window, wait| told.push((window, wait.count)));
        assert_eq!((told.last(), coverage.has_open(7)), (Some(&(7, 5)), false));
    }
}
