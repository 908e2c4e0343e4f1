//! Random archives.

use super::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ticks {
    /// Calls of one thread may touch.
    Touching,
    /// They may not, as on any real clock; those of different threads may.
    Apart,
}

pub(super) fn acts() -> impl Strategy<Value = Act> {
    let stream = || 0..STREAMS.len();
    prop_oneof![
        1 => Just(Act::Host),
        1 => Just(Act::Skipped),
        6 => (stream(), 0..MEMORIES, any::<bool>())
            .prop_map(|(stream, memory, writes)| Act::Work { stream, memory, writes }),
        1 => (stream(), 0..MEMORIES, any::<bool>())
            .prop_map(|(stream, memory, writes)| Act::BlockingCopy { stream, memory, writes }),
        1 => stream().prop_map(|stream| Act::Graph { stream }),
        3 => (stream(), 0..EVENTS).prop_map(|(stream, event)| Act::Record { stream, event }),
        3 => (stream(), 0..EVENTS).prop_map(|(stream, event)| Act::WaitEvent { stream, event }),
        3 => stream().prop_map(|stream| Act::SyncStream { stream }),
        2 => (0..EVENTS).prop_map(|event| Act::SyncEvent { event }),
        1 => (0..2).prop_map(|device| Act::SyncDevice { device }),
        1 => (0..OBJECTS).prop_map(|object| Act::Uses { object }),
        1 => (0..OBJECTS).prop_map(|object| Act::Changes { object }),
        1 => Just(Act::Fence),
    ]
}

pub(super) fn cases(ticks: Ticks, max_lanes: usize, max_calls: usize) -> impl Strategy<Value = Case> {
    let call = (0u64..6, 0u64..8, acts(), any::<bool>());
    let lanes = prop::collection::vec(prop::collection::vec(call, 0..max_calls), 1..=max_lanes);
    (lanes, prop::collection::vec(any::<prop::sample::Index>(), max_lanes), any::<prop::sample::Index>()).prop_map(
        move |(lanes, workers, used)| {
            let count = lanes.len();
            let used = used.index(count) + 1;
            let mut worker_of: Vec<u32> = (0..count)
                .map(|lane| if lane < used { lane as u32 } else { workers[lane].index(used) as u32 })
                .collect();
            worker_of.rotate_left(used / 2);
            let exact = used == count;
            let lanes = lanes.into_iter().enumerate().map(|(lane, calls)| {
                let mut now = 1;
                let place = |(gap, len, act, hand_off)| {
                    let begin = now + gap + u64::from(ticks == Ticks::Apart);
                    let end = begin + len;
                    now = end;
                    Planned { lane, begin, end, act, hand_off: hand_off && !exact }
                };
                calls.into_iter().map(place).collect()
            });
            Case { lanes: lanes.collect(), worker_of }
        },
    )
}
