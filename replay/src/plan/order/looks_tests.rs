use proptest::prelude::*;

use super::*;

const A: What = What::Enqueues(StreamName { handle: 10, device: 0 });
const LOOK_A: What = What::Looks(StreamName { handle: 10, device: 0 });
const LOOK_B: What = What::Looks(StreamName { handle: 20, device: 0 });

/// By captured thread: what its calls do, and when they were entered and had returned.
type Lanes = Vec<Vec<(What, u64, u64)>>;

fn calls(lanes: &Lanes) -> Vec<(u32, Call)> {
    let mut key = 0;
    let mut calls = Vec::new();
    for (lane, of_lane) in lanes.iter().enumerate() {
        for &(what, begin, end) in of_lane {
            key += 1;
            calls.push((lane as u32, Call { key, span: Span { begin, end }, what }));
        }
    }
    calls
}

/// Has the search go over the calls as the timeline tells them.
fn delayed(calls: &[(u32, Call)], lanes: usize) -> Delayed {
    let entries = calls.iter().map(|&(lane, call)| (call.span.begin, 0, lane, call));
    let returns = calls.iter().map(|&(lane, call)| (call.span.end, 1, lane, call));
    let mut points: Vec<_> = entries.chain(returns).collect();
    points.sort_by_key(|&(tick, kind, lane, _)| (tick, kind, lane));
    let mut search = Search::new(lanes);
    for (_, kind, lane, call) in points {
        match kind {
            0 => search.entered(lane, call),
            _ => search.returned(lane),
        }
    }
    search.over()
}

/// New entry ticks of the calls that got one, by their place among all, which counts from 1.
fn moved(lanes: Lanes) -> Vec<(usize, u64)> {
    let mut moved: Vec<(usize, u64)> = delayed(&calls(&lanes), lanes.len()).begins.into_iter().collect();
    moved.sort_unstable();
    moved
}

#[test]
fn an_enqueue_comes_behind_a_look_that_it_overlapped() {
    // Entered before the look, and after it.
    assert_eq!(moved(vec![vec![(A, 5, 12)], vec![(LOOK_A, 10, 20)]]), [(1, 21)]);
    assert_eq!(moved(vec![vec![(A, 12, 15)], vec![(LOOK_A, 10, 20)]]), [(1, 21)]);
    // Behind the later of two.
    let two = vec![vec![(A, 12, 30)], vec![(LOOK_A, 10, 20)], vec![(LOOK_A, 25, 28)]];
    assert_eq!(moved(two), [(1, 29)]);
}

#[test]
fn what_did_not_overlap_on_one_stream_stays() {
    assert_eq!(moved(vec![vec![(A, 5, 9)], vec![(LOOK_A, 10, 20)]]), []);
    assert_eq!(moved(vec![vec![(A, 21, 25)], vec![(LOOK_A, 10, 20)]]), []);
    assert_eq!(moved(vec![vec![(A, 12, 15)], vec![(LOOK_B, 10, 20)]]), []);
}

#[test]
fn an_enqueue_stays_where_another_call_came_after_it() {
    // Of another thread, and of its own.
    let other = vec![vec![(A, 12, 15)], vec![(LOOK_A, 10, 20)], vec![(What::Other, 17, 18)]];
    assert_eq!(moved(other), []);
    assert_eq!(moved(vec![vec![(A, 12, 15), (What::Other, 16, 30)], vec![(LOOK_A, 10, 20)]]), []);
    // What came behind the look, too, comes behind both.
    assert_eq!(moved(vec![vec![(A, 12, 15), (What::Other, 22, 30)], vec![(LOOK_A, 10, 20)]]), [(1, 21)]);
}

#[test]
fn an_enqueue_stays_where_something_ended_meanwhile() {
    let before = vec![vec![(A, 5, 12)], vec![(LOOK_A, 10, 20)], vec![(What::Ends, 4, 8)]];
    assert_eq!(moved(before), []);
    let meanwhile = vec![vec![(A, 5, 12)], vec![(LOOK_A, 10, 20)], vec![(What::Ends, 4, 18)]];
    assert_eq!(moved(meanwhile), []);
    let after = vec![vec![(A, 5, 12)], vec![(LOOK_A, 10, 20)], vec![(What::Ends, 4, 25)]];
    assert_eq!(moved(after), [(1, 21)]);
}

fn random_lanes() -> impl Strategy<Value = Lanes> {
    let what =
        prop_oneof![3 => Just(A), 2 => Just(LOOK_A), 1 => Just(LOOK_B), 1 => Just(What::Other), 1 => Just(What::Ends)];
    let call = (what, 0u64..6, 0u64..9);
    prop::collection::vec(prop::collection::vec(call, 0..8), 1..5).prop_map(|lanes| {
        let place = |calls: Vec<(What, u64, u64)>| {
            let mut now = 0;
            let place = |(what, gap, len)| {
                let begin = now + gap + 1;
                now = begin + len;
                (what, begin, now)
            };
            calls.into_iter().map(place).collect()
        };
        lanes.into_iter().map(place).collect()
    })
}

proptest! {
    /// Whatever came after a call still does, and a call that was moved comes after a look at its stream.
    #[test]
    fn what_was_ordered_stays_ordered(lanes in random_lanes()) {
        let calls = calls(&lanes);
        let delayed = delayed(&calls, lanes.len());
        let now = |call: &Call| match delayed.begins.get(&call.key) {
            Some(&begin) => Span { begin, end: call.span.end.max(begin) },
            None => call.span,
        };
        for (_, first) in &calls {
            for (_, second) in &calls {
                if first.span.end < second.span.begin {
                    prop_assert!(now(first).end < now(second).begin, "{first:?}\n{second:?}");
                }
            }
        }
        for (_, call) in calls.iter().filter(|(_, call)| delayed.begins.contains_key(&call.key)) {
            let seen = |look: &Call| {
                matches!((call.what, look.what), (What::Enqueues(on), What::Looks(at)) if on == at)
                    && look.span.end + 1 == now(call).begin
            };
            prop_assert!(calls.iter().any(|(_, look)| seen(look)));
        }
    }
}
