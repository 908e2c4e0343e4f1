//! The waits that [`Order`] emits, against the rules written down a second time and taken literally.
//!
//! A random archive is planned and the happens-before relation of its replay built event by event: what the waits say,
//! what a worker's sequence says, nothing else. Every pair that the rules demand must be in its closure, and no wait may be
//! implied by the rest.

mod random;
mod rules;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use proptest::prelude::*;

use super::*;
use crate::plan::order::dependency::{Fence, Reach, StreamKey, StreamRule, Sync, Use};
use random::{Ticks, cases};
use rules::Rules;

/// What a call does, in the terms of the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    /// Nothing that matters.
    Host,
    /// Not issued at replay.
    Skipped,
    /// Work on a stream that uses an allocation.
    Work {
        stream: usize,
        memory: usize,
        writes: bool,
    },
    /// The same, complete when it returns.
    BlockingCopy {
        stream: usize,
        memory: usize,
        writes: bool,
    },
    /// Work on a stream that may use any memory.
    Graph {
        stream: usize,
    },
    Record {
        stream: usize,
        event: usize,
    },
    WaitEvent {
        stream: usize,
        event: usize,
    },
    SyncStream {
        stream: usize,
    },
    SyncEvent {
        event: usize,
    },
    SyncDevice {
        device: i32,
    },
    EndStream {
        stream: usize,
    },
    /// Use of an object that is neither stream nor event.
    Uses {
        object: usize,
    },
    Changes {
        object: usize,
    },
    Fence,
}

/// The streams of the tests: some of each kind on one device, two on another.
const STREAMS: [(i32, StreamRule); 6] = [
    (0, StreamRule::Legacy),
    (0, StreamRule::Blocking),
    (0, StreamRule::Blocking),
    (0, StreamRule::NonBlocking),
    (1, StreamRule::NonBlocking),
    (1, StreamRule::NonBlocking),
];
const EVENTS: usize = 2;
const MEMORIES: usize = 2;
const OBJECTS: usize = 2;

fn key(stream: usize) -> StreamKey {
    let (device, rule) = STREAMS[stream];
    StreamKey { object: 100 + stream as u32, device, rule }
}

fn event_object(event: usize) -> u32 {
    200 + event as u32
}

/// One call of the random archive.
#[derive(Clone, Copy, Debug)]
struct Planned {
    lane: usize,
    begin: u64,
    end: u64,
    act: Act,
    hand_off: bool,
}

/// The calls of an archive: per lane, in order.
#[derive(Clone)]
struct Case {
    lanes: Vec<Vec<Planned>>,
    worker_of: Vec<u32>,
}

/// In the order of the plan, as failures number the calls.
impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "workers {:?}", self.worker_of)?;
        let begins = self.timeline().into_iter().filter(|(is_end, call)| !is_end && call.act != Act::Skipped);
        for (number, (_, call)) in begins.enumerate() {
            let hand_off = if call.hand_off { " handed off" } else { "" };
            writeln!(f, "{number}: lane {} [{}, {}] {:?}{hand_off}", call.lane, call.begin, call.end, call.act)?;
        }
        Ok(())
    }
}

impl Case {
    /// All calls in the order they are planned, as the timeline has it, with the moments at which they return.
    fn timeline(&self) -> Vec<(bool, Planned)> {
        let mut heap: BinaryHeap<Reverse<(u64, bool, usize)>> = BinaryHeap::new();
        let mut next = vec![0; self.lanes.len()];
        for (lane, calls) in self.lanes.iter().enumerate() {
            if let Some(first) = calls.first() {
                heap.push(Reverse((first.begin, false, lane)));
            }
        }
        let mut points = Vec::new();
        while let Some(Reverse((_, is_end, lane))) = heap.pop() {
            let call = self.lanes[lane][next[lane]];
            points.push((is_end, call));
            if is_end {
                next[lane] += 1;
                if let Some(call) = self.lanes[lane].get(next[lane]) {
                    heap.push(Reverse((call.begin, false, lane)));
                }
            } else {
                heap.push(Reverse((call.end, true, lane)));
            }
        }
        points
    }
}

/// What a call's facts are, as the planner would find them.
fn facts_of(act: Act) -> CallFacts {
    let mut facts = CallFacts::default();
    match act {
        Act::Host | Act::Skipped => {}
        Act::Work { stream, memory, writes } => {
            facts.enqueues_on = Some(key(stream));
            facts.uses.push((key(stream).object, Use::Reads));
            facts.memory.push((memory as u32, writes));
        }
        Act::BlockingCopy { stream, memory, writes } => {
            facts.enqueues_on = Some(key(stream));
            facts.sync = Sync::Stream(key(stream));
            facts.memory.push((memory as u32, writes));
        }
        Act::Graph { stream } => {
            facts.enqueues_on = Some(key(stream));
            facts.reach = Reach::Any;
        }
        Act::Record { stream, event } => {
            facts.uses.push((event_object(event), Use::Changes));
            facts.enqueues_on = Some(key(stream));
            facts.records = Some(event_object(event));
        }
        Act::WaitEvent { stream, event } => {
            facts.uses.push((event_object(event), Use::Reads));
            facts.enqueues_on = Some(key(stream));
            facts.device_waits = Some(event_object(event));
        }
        Act::SyncStream { stream } => {
            facts.uses.push((key(stream).object, Use::Reads));
            facts.sync = Sync::Stream(key(stream));
        }
        Act::SyncEvent { event } => {
            facts.uses.push((event_object(event), Use::Reads));
            facts.sync = Sync::Event(event_object(event));
        }
        Act::SyncDevice { device } => facts.sync = Sync::Device(device),
        Act::EndStream { stream } => facts.uses.push((key(stream).object, Use::Ends)),
        Act::Uses { object } => facts.uses.push((300 + object as u32, Use::Reads)),
        Act::Changes { object } => facts.uses.push((300 + object as u32, Use::Changes)),
        Act::Fence => facts.fence = Fence::All,
    }
    facts
}

fn is_enqueue(act: Act) -> bool {
    matches!(act, Act::Work { .. } | Act::Graph { .. } | Act::Record { .. } | Act::WaitEvent { .. })
}

/// An archive as it will be replayed: the calls that are issued, in the order they are planned, with their waits.
struct Replayed {
    calls: Vec<Planned>,
    /// Place of each call among its lane's.
    counts: Vec<u64>,
    waits: Vec<Vec<Wait>>,
    worker_of: Vec<u32>,
}

fn plan(case: &Case, mode: OrderMode) -> Replayed {
    let mut order = Order::new(mode, case.worker_of.clone());
    let lanes = case.lanes.len();
    let mut planned = vec![0u64; lanes];
    let mut open: Vec<Option<(Node, CallFacts)>> = (0..lanes).map(|_| None).collect();
    let mut last_enqueue: Vec<Option<Node>> = vec![None; STREAMS.len()];
    let mut replayed =
        Replayed { calls: Vec::new(), counts: Vec::new(), waits: Vec::new(), worker_of: case.worker_of.clone() };
    for (is_end, call) in case.timeline() {
        if is_end {
            if let Some((node, facts)) = open[call.lane].take() {
                order.end(node, Some(Box::new(facts)));
            }
            continue;
        }
        if call.act == Act::Skipped {
            continue;
        }
        let mut facts = facts_of(call.act);
        let stream = stream_of(call.act).filter(|_| is_enqueue(call.act));
        let overlapping = stream
            .and_then(|stream| last_enqueue[stream].as_ref())
            .filter(|last| last.lane() != call.lane as u32 && last.end >= call.begin);
        let mut waits = Vec::new();
        let overlaps = overlapping.is_some();
        order.begin(call.lane as u32, call.begin, &mut facts, overlapping, &mut waits);
        planned[call.lane] += 1;
        let point = order.issued(call.lane as u32, planned[call.lane], call.hand_off);
        let in_order_on = stream.map_or(0, |stream| key(stream).object);
        let node = Node { point, begin: call.begin, end: call.end, in_order_on, overlaps };
        if let Some(stream) = stream {
            last_enqueue[stream] = Some(node.clone());
        }
        open[call.lane] = Some((node, facts));
        replayed.calls.push(call);
        replayed.counts.push(planned[call.lane]);
        replayed.waits.push(waits);
    }
    replayed
}

/// Happens-before between the moments of a replay: each call is issued (2i) and returns (2i + 1).
struct Closure {
    after: Vec<Vec<bool>>,
}

impl Closure {
    fn of(replayed: &Replayed, without: Option<(usize, usize)>) -> Self {
        let count = replayed.calls.len();
        let mut before: Vec<Vec<usize>> = vec![Vec::new(); 2 * count];
        let workers = replayed.worker_of.len();
        let mut last_of_worker: Vec<Option<usize>> = vec![None; workers];
        for call in 0..count {
            before[2 * call + 1].push(2 * call);
            let worker = replayed.worker_of[replayed.calls[call].lane] as usize;
            if let Some(last) = last_of_worker[worker].replace(call) {
                // A call that is handed off has been issued, and may not have returned.
                before[2 * call].push(2 * last + usize::from(!replayed.calls[last].hand_off));
            }
            for (number, wait) in replayed.waits[call].iter().enumerate() {
                if without == Some((call, number)) {
                    continue;
                }
                let awaited = (0..count)
                    .find(|&other| {
                        replayed.calls[other].lane == wait.lane as usize && replayed.counts[other] == wait.count
                    })
                    .expect("a wait is for a call that is issued");
                assert!(awaited < call, "a wait is for a call planned earlier, so that waits form no cycle");
                before[2 * call].push(2 * awaited + 1);
            }
        }
        // Moments are numbered so that whatever comes before has a smaller number, or is a return awaited by a later issue.
        let mut after = vec![vec![false; 2 * count]; 2 * count];
        for (moment, direct) in before.iter().enumerate() {
            for &earlier in direct {
                let (low, high) = after.split_at_mut(moment);
                high[0][earlier] = true;
                for (mine, theirs) in high[0].iter_mut().zip(&low[earlier]) {
                    *mine |= *theirs;
                }
            }
        }
        Closure { after }
    }

    /// Whether call `earlier` has always returned when `later` is issued.
    fn returned_before(&self, earlier: usize, later: usize) -> bool {
        self.after[2 * later][2 * earlier + 1]
    }
}

fn check_minimal(replayed: &Replayed) -> Result<(), TestCaseError> {
    for (call, waits) in replayed.waits.iter().enumerate() {
        for (number, wait) in waits.iter().enumerate() {
            let rest = Closure::of(replayed, Some((call, number)));
            let awaited = (0..replayed.calls.len())
                .find(|&other| replayed.calls[other].lane == wait.lane as usize && replayed.counts[other] == wait.count)
                .expect("a wait is for a call that is issued");
            prop_assert!(
                !rest.returned_before(awaited, call),
                "call {call} waits for {awaited}, which the rest implies"
            );
        }
    }
    Ok(())
}

fn check_capture(replayed: &Replayed) -> Result<(), TestCaseError> {
    let closure = Closure::of(replayed, None);
    let calls = &replayed.calls;
    for later in 0..calls.len() {
        for earlier in (0..calls.len()).filter(|&earlier| calls[earlier].end < calls[later].begin) {
            prop_assert!(closure.returned_before(earlier, later), "{earlier} before {later}");
        }
    }
    check_lanes(replayed, &closure)?;
    check_overlapping(replayed, &closure)?;
    check_no_invention(replayed)
}

fn check_lanes(replayed: &Replayed, closure: &Closure) -> Result<(), TestCaseError> {
    for later in 0..replayed.calls.len() {
        for earlier in (0..later).filter(|&earlier| replayed.calls[earlier].lane == replayed.calls[later].lane) {
            prop_assert!(closure.returned_before(earlier, later), "{earlier} and {later} of one thread");
        }
    }
    Ok(())
}

/// Two enqueues on one stream that overlapped are issued in the order they were entered.
fn check_overlapping(replayed: &Replayed, closure: &Closure) -> Result<(), TestCaseError> {
    let calls = &replayed.calls;
    for later in 0..calls.len() {
        for earlier in 0..later {
            let both = is_enqueue(calls[earlier].act) && is_enqueue(calls[later].act);
            if both && stream_of(calls[earlier].act) == stream_of(calls[later].act) {
                prop_assert!(closure.returned_before(earlier, later), "{earlier} and {later} on one stream");
            }
        }
    }
    Ok(())
}

fn stream_of(act: Act) -> Option<usize> {
    match act {
        Act::Work { stream, .. }
        | Act::BlockingCopy { stream, .. }
        | Act::Graph { stream }
        | Act::Record { stream, .. }
        | Act::WaitEvent { stream, .. } => Some(stream),
        _ => None,
    }
}

fn check_deps(replayed: &Replayed, closure: &Closure) -> Result<(), TestCaseError> {
    let rules = Rules::of(&replayed.calls);
    let calls = &replayed.calls;
    for later in 0..calls.len() {
        for earlier in (0..later).filter(|&earlier| calls[earlier].end < calls[later].begin) {
            if rules.ordered(earlier, later) {
                prop_assert!(closure.returned_before(earlier, later), "{earlier} before {later}");
            }
            if let Some(syncs) = rules.made_visible_by(earlier, later) {
                let seen =
                    |&sync: &usize| closure.returned_before(sync, later) && closure.returned_before(earlier, sync);
                prop_assert!(syncs.iter().any(seen), "{earlier} complete before {later}: one of {syncs:?}");
            }
        }
    }
    Ok(())
}

/// Whether every wait is for a call that had returned, or for an overlapping enqueue on the same stream, or a wait of the
/// thread for itself: what a replay waits for, the program had.
fn check_no_invention(replayed: &Replayed) -> Result<(), TestCaseError> {
    for (call, waits) in replayed.waits.iter().enumerate() {
        for wait in waits {
            let awaited = (0..call)
                .find(|&other| replayed.calls[other].lane == wait.lane as usize && replayed.counts[other] == wait.count)
                .expect("a wait is for a call planned earlier");
            let (first, second) = (&replayed.calls[awaited], &replayed.calls[call]);
            let overlapping =
                is_enqueue(first.act) && is_enqueue(second.act) && stream_of(first.act) == stream_of(second.act);
            prop_assert!(
                first.end < second.begin || first.lane == second.lane || overlapping,
                "call {call} waits for {awaited}, which had not returned"
            );
        }
    }
    Ok(())
}

/// Cases per property: more with `PROPTEST_CASES`.
fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(400);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn capture_order_is_sufficient_and_minimal(case in cases(Ticks::Apart, 6, 7)) {
        let replayed = plan(&case, OrderMode::Capture);
        check_capture(&replayed)?;
        check_minimal(&replayed)?;
    }

    #[test]
    fn capture_order_is_sufficient_where_ticks_touch(case in cases(Ticks::Touching, 6, 7)) {
        check_capture(&plan(&case, OrderMode::Capture))?;
    }

    #[test]
    fn dependency_order_is_sufficient_and_minimal(case in cases(Ticks::Apart, 4, 9)) {
        let replayed = plan(&case, OrderMode::Deps);
        let closure = Closure::of(&replayed, None);
        check_lanes(&replayed, &closure)?;
        check_overlapping(&replayed, &closure)?;
        check_deps(&replayed, &closure)?;
        check_no_invention(&replayed)?;
        check_minimal(&replayed)?;
    }

    #[test]
    fn program_order_keeps_threads_and_lifetimes_alone(case in cases(Ticks::Apart, 4, 9)) {
        let replayed = plan(&case, OrderMode::Program);
        let closure = Closure::of(&replayed, None);
        check_lanes(&replayed, &closure)?;
        check_minimal(&replayed)?;
        // Nothing in these cases is created or destroyed: a worker waits for calls it handed off, and for nothing else but
        // calls that none may cross.
        if replayed.calls.iter().any(|call| call.act == Act::Fence) {
            return check_fences(&replayed, &closure);
        }
        for (call, waits) in replayed.waits.iter().enumerate() {
            for wait in waits {
                prop_assert_eq!(wait.lane as usize, replayed.calls[call].lane);
            }
        }
    }
}

/// A call that none may cross comes after all that had returned when it was entered, and before all entered later.
fn check_fences(replayed: &Replayed, closure: &Closure) -> Result<(), TestCaseError> {
    for (later, call) in replayed.calls.iter().enumerate() {
        for (earlier, other) in replayed.calls[..later].iter().enumerate() {
            if (call.act == Act::Fence || other.act == Act::Fence) && other.end < call.begin {
                prop_assert!(closure.returned_before(earlier, later), "{earlier} before {later}: {:?}", replayed.waits);
            }
        }
    }
    Ok(())
}

/// An archive of one call per line, each in a lane of its own worker.
fn exact(calls: &[(usize, u64, u64, Act)]) -> Case {
    let lanes = calls.iter().map(|&(lane, ..)| lane).max().map_or(0, |last| last + 1);
    let mut case = Case { lanes: vec![Vec::new(); lanes], worker_of: (0..lanes as u32).collect() };
    for &(lane, begin, end, act) in calls {
        case.lanes[lane].push(Planned { lane, begin, end, act, hand_off: false });
    }
    case
}

#[track_caller]
fn assert_deps(calls: &[(usize, u64, u64, Act)], earlier: usize, later: usize) {
    let replayed = plan(&exact(calls), OrderMode::Deps);
    let closure = Closure::of(&replayed, None);
    assert!(closure.returned_before(earlier, later), "{earlier} before {later}: {:?}", replayed.waits);
    check_deps(&replayed, &closure).unwrap();
}

const WRITE: Act = Act::Work { stream: 3, memory: 0, writes: true };
const READ_ELSEWHERE: Act = Act::Work { stream: 4, memory: 0, writes: false };

#[test]
fn work_stays_visible_by_its_synchronisation_when_another_thread_uses_the_same_allocation_meanwhile() {
    // A suballocator: thread 2 works in another part of the allocation, and has not synchronised.
    let other = Act::Work { stream: 2, memory: 0, writes: true };
    let calls =
        [(0, 1, 2, WRITE), (2, 3, 4, other), (0, 5, 9, Act::SyncStream { stream: 3 }), (1, 10, 11, READ_ELSEWHERE)];
    assert_deps(&calls, 2, 3);
}

#[test]
fn waiting_for_a_stream_makes_visible_what_it_waited_for_on_the_device() {
    let calls = [
        (0, 1, 2, WRITE),
        (0, 3, 4, Act::Record { stream: 3, event: 0 }),
        (0, 5, 6, Act::WaitEvent { stream: 2, event: 0 }),
        (0, 7, 9, Act::SyncStream { stream: 2 }),
        (1, 10, 11, READ_ELSEWHERE),
    ];
    assert_deps(&calls, 3, 4);
}

#[test]
fn waiting_for_a_device_makes_visible_what_its_streams_waited_for_on_another() {
    let far = Act::Work { stream: 4, memory: 0, writes: true };
    let calls = [
        (0, 1, 2, far),
        (0, 3, 4, Act::Record { stream: 4, event: 0 }),
        (0, 5, 6, Act::WaitEvent { stream: 3, event: 0 }),
        (0, 7, 9, Act::SyncDevice { device: 0 }),
        (1, 10, 11, Act::Work { stream: 5, memory: 0, writes: false }),
    ];
    assert_deps(&calls, 3, 4);
}

#[test]
fn waiting_for_a_blocking_stream_makes_visible_what_the_legacy_stream_waited_for() {
    let calls = [
        (0, 1, 2, WRITE),
        (0, 3, 4, Act::Record { stream: 3, event: 0 }),
        (0, 5, 6, Act::WaitEvent { stream: 0, event: 0 }),
        (0, 7, 8, Act::Work { stream: 1, memory: 1, writes: true }),
        (0, 9, 10, Act::SyncStream { stream: 1 }),
        (1, 11, 12, READ_ELSEWHERE),
    ];
    assert_deps(&calls, 4, 5);
}

#[test]
fn a_graph_comes_after_all_that_was_made_visible_before_it() {
    let calls = [
        (0, 1, 2, WRITE),
        (0, 3, 4, Act::SyncStream { stream: 3 }),
        (0, 5, 6, WRITE),
        (1, 7, 8, Act::Graph { stream: 2 }),
    ];
    assert_deps(&calls, 1, 3);
}

#[test]
fn a_graph_comes_after_what_was_made_visible_on_a_stream_that_has_ended() {
    let end = Act::EndStream { stream: 3 };
    // The wait comes before the end of the stream, or behind it by way of an event.
    for (wait, begin) in [(Act::SyncStream { stream: 3 }, 5), (Act::SyncEvent { event: 0 }, 9)] {
        let record = Act::Record { stream: 3, event: 0 };
        let graph = Act::Graph { stream: 2 };
        let calls =
            [(0, 1, 2, WRITE), (0, 3, 4, record), (1, begin, begin + 1, wait), (2, 7, 8, end), (3, 20, 21, graph)];
        let replayed = plan(&exact(&calls), OrderMode::Deps);
        let closure = Closure::of(&replayed, None);
        let of = |act: Act| replayed.calls.iter().position(|call| call.act == act).unwrap();
        let (wait, graph) = (of(wait), of(Act::Graph { stream: 2 }));
        assert!(closure.returned_before(wait, graph), "{:?}", replayed.waits);
    }
}

/// Facts of calls that make, use and end the object 7, in three threads.
fn lifetime(mode: OrderMode, middle: CallFacts) -> Vec<Vec<Wait>> {
    let stream = StreamKey { object: 7, device: 0, rule: StreamRule::NonBlocking };
    let create = CallFacts { creates: vec![7], ..CallFacts::default() };
    let sync = CallFacts { uses: vec![(7, Use::Reads)], sync: Sync::Stream(stream), ..CallFacts::default() };
    let destroy = CallFacts { uses: vec![(7, Use::Ends)], ..CallFacts::default() };
    one_in_each_thread(mode, [create, sync, middle, destroy])
}

/// What calls wait for that are made one after the other, each in a thread of its own.
fn one_in_each_thread(mode: OrderMode, calls: [CallFacts; 4]) -> Vec<Vec<Wait>> {
    let mut order = Order::new(mode, (0..4).collect());
    let mut all = Vec::new();
    for (lane, mut facts) in calls.into_iter().enumerate() {
        let (lane, begin) = (lane as u32, 10 * lane as u64 + 1);
        let mut waits = Vec::new();
        order.begin(lane, begin, &mut facts, None, &mut waits);
        let point = order.issued(lane, 1, false);
        order.end(Node { point, begin, end: begin + 5, in_order_on: 0, overlaps: false }, Some(Box::new(facts)));
        all.push(waits);
    }
    all
}

/// A launch on several devices was on the first one's stream alone.
#[test]
fn a_launch_on_several_streams_is_in_the_order_of_each() {
    let stream = |object, device| StreamKey { object, device, rule: StreamRule::NonBlocking };
    let (first, second, other) = (stream(7, 0), stream(8, 1), stream(9, 1));
    let launch =
        CallFacts { enqueues_on: Some(first), also_on: vec![second], memory: vec![(20, true)], ..CallFacts::default() };
    let sync = CallFacts { sync: Sync::Stream(second), ..CallFacts::default() };
    let work = CallFacts { enqueues_on: Some(second), ..CallFacts::default() };
    let read = CallFacts { enqueues_on: Some(other), memory: vec![(20, false)], ..CallFacts::default() };
    let waits = one_in_each_thread(OrderMode::Deps, [launch, sync, work, read]);
    let lanes: Vec<Vec<u32>> = waits.iter().map(|waits| waits.iter().map(|wait| wait.lane).collect()).collect();
    // The last one reads what the second device's kernel may have written, once that was waited for.
    assert_eq!(lanes, [vec![], vec![0], vec![1], vec![1]]);
}

#[test]
fn a_stream_is_destroyed_after_the_threads_that_waited_for_it_though_work_was_enqueued_since() {
    let stream = StreamKey { object: 7, device: 0, rule: StreamRule::NonBlocking };
    let enqueue = || CallFacts { uses: vec![(7, Use::Reads)], enqueues_on: Some(stream), ..CallFacts::default() };
    for mode in [OrderMode::Deps, OrderMode::Program] {
        let waits = lifetime(mode, enqueue());
        let lanes: Vec<Vec<u32>> = waits.iter().map(|waits| waits.iter().map(|wait| wait.lane).collect()).collect();
        assert_eq!(lanes[1], [0], "{mode:?}");
        match mode {
            // The enqueue came after the synchronisation, and stands for it.
            OrderMode::Deps => assert_eq!((&lanes[2][..], &lanes[3][..]), (&[1][..], &[2][..])),
            _ => assert_eq!((&lanes[2][..], &lanes[3][..]), (&[0][..], &[2, 1][..])),
        }
    }
}
