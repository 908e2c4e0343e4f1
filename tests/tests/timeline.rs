//! Timelines of replays and of recorded runs.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use hrr_tests::recording::{Contents, Recording, Scratch, record, record_with};
use hrr_tests::replaying::Replay;
use hrr_tests::timeline::{Arrow, Slice, Timeline};
use hrr_tests::workload::Workload;
use serde_json::Value;

/// The groups of device 0's streams.
const REPLAYED: u64 = 10;
const RECORDED: u64 = 110;

fn recording(name: &str) -> Recording {
    record(&Workload::listed(name), Contents::Recorded)
}

/// Has a timeline drawn under this name.
fn drawn(recording: &Recording, options: &[&str], file: &str) -> (Timeline, hrr_tests::replaying::Replayed) {
    let scratch = Scratch::new("timeline");
    let path = scratch.path().join(file);
    let replay = Replay::of_recording(recording).args(options.iter().copied());
    let run = replay.args(["--trace", path.to_str().unwrap()]).run();
    run.run.expect_code(0);
    (Timeline::read(&path), run)
}

#[test]
fn a_replay_and_its_recording_show_the_same_work_on_the_same_streams() {
    for name in ["threads8", "graph_capture", "async_copies", "two_devices", "per_thread_stream", "sweep_copies"] {
        let recording = recording(name);
        let (replayed, run) = drawn(&recording, &[], "replayed.json.gz");
        let (recorded, _) = drawn(&recording, &["--info"], "recorded.json");
        assert_eq!(replayed.about["left_out"], 0, "{name}");
        assert_eq!(replayed.about["untimed"], 0, "{name}");
        let works = |timeline: &Timeline| timeline.about["works"].as_u64().unwrap();
        assert_eq!(replayed.works(REPLAYED), recorded.works(RECORDED), "{name}");
        // Each piece of work hangs on the call that enqueued it, and on no other.
        for timeline in [&replayed, &recorded] {
            let events: BTreeSet<_> = timeline
                .arrows_of("launch")
                .map(|(call, work)| (call.args["event"].as_u64(), work.args["event"].as_u64()))
                .collect();
            assert_eq!(events.len() as u64, works(timeline), "{name}");
            // The innermost slice of a call that waits is its wait, which tells no number.
            let astray: Vec<_> = events.iter().filter(|(call, work)| call.is_some() && call != work).collect();
            assert!(astray.is_empty(), "{name}: {astray:?} {}", timeline.about);
        }
        let checks = run.expect_pass();
        let compared = replayed.moments.iter().filter(|(_, moment)| moment == "D2H exact").count() as u64;
        assert_eq!(compared, checks.exact, "{name}");
    }
}

#[test]
fn edges_lead_from_a_call_that_returned_to_one_that_is_made_later() {
    let recording = recording("producer_consumer");
    let (replayed, _) = drawn(&recording, &[], "t.json");
    let (recorded, _) = drawn(&recording, &["--info"], "t.json");
    for timeline in [&replayed, &recorded] {
        let mut edges = 0;
        for (from, to) in timeline.arrows_of("edge") {
            assert!(from.lane != to.lane && from.end_ns <= to.begin_ns, "{from:?} {to:?}");
            edges += 1;
        }
        assert!(edges > 0 && timeline.about["edges"] == edges, "{edges} {}", timeline.about);
    }
}

#[test]
fn waits_are_told_by_their_cause() {
    let causes = |timeline: &Timeline| -> BTreeSet<String> {
        timeline.of_category("wait").map(|slice| slice.name.clone()).collect()
    };
    // Threads that hand buffers to each other, on workers that are delayed at random: some meets an edge that is not
    // fulfilled yet. Not each run has it.
    let recording = recording("producer_consumer");
    let scratch = Scratch::new("timeline");
    let path = scratch.path().join("t.json");
    let mut found = BTreeSet::new();
    for seed in 1..20 {
        let replay = Replay::of_recording(&recording).chaos(seed).args(["--trace", path.to_str().unwrap()]);
        replay.run().expect_pass();
        found.append(&mut causes(&Timeline::read(&path)));
        if found.contains("wait: edge") {
            break;
        }
    }
    assert!(found.contains("wait: edge") && found.contains("wait: runtime"), "{found:?}");
    let (paced, _) = drawn(&self::recording("poll_query"), &["--pace", "recorded"], "t.json");
    assert!(causes(&paced).contains("wait: the program's gap"), "{:?}", causes(&paced));
}

#[test]
fn calls_handed_off_have_lanes_beside_their_worker() {
    let (timeline, _) = drawn(&recording("threads8"), &["--threads", "2"], "t.json");
    let names: Vec<&String> = timeline.lanes.values().collect();
    assert!(names.iter().any(|name| name.starts_with("worker 1 (")), "{names:?}");
    assert!(names.iter().any(|name| name.contains("handed off 1")), "{names:?}");
}

#[test]
fn a_range_keeps_the_file_small_and_one_repetition_is_drawn() {
    let recording = recording("threads8");
    let (part, _) = drawn(&recording, &["--kernels", "100..150", "--repeat", "3", "--warmup", "2"], "t.json");
    let launches =
        |timeline: &Timeline| timeline.of_category("work").filter(|work| !work.name.starts_with("hip")).count();
    assert_eq!((launches(&part), &part.about["repetition"]), (50, &serde_json::json!(3)));
    let (recorded, _) = drawn(&recording, &["--info", "--kernels", "100..150"], "t.json");
    assert_eq!(launches(&recorded), 50);
    let (events, _) = drawn(&recording, &["--info", "--range", "1000..1300"], "t.json");
    assert_eq!(events.calls().count(), 300);
    let numbers: BTreeSet<u64> = events.calls().map(|call| call.args["event"].as_u64().unwrap()).collect();
    assert_eq!((numbers.first(), numbers.last()), (Some(&1000), Some(&1299)));
    let run = Replay::of_recording(&recording).args(["--info", "--events", "--kernels", "99999.."]).run().run;
    assert!(run.expect_code(1).stderr.contains("the archive has no kernel launch 99999"), "{run}");
}

#[test]
fn a_name_of_another_format_and_a_place_that_is_not_there_are_refused_before_the_replay() {
    let recording = recording("saxpy_reduce");
    for (file, why) in [
        ("t.svg", "timelines are written as Chrome's JSON"),
        ("/dev/null/t.pftrace", "cannot be written: not a directory"),
    ] {
        let run = Replay::of_recording(&recording).args(["--trace", file]).run().run;
        assert!(run.expect_code(1).stderr.contains(why) && !run.stdout.contains("summary"), "{run}");
        let run = Replay::of_recording(&recording).args(["--info", "--trace", file]).run().run;
        assert!(run.expect_code(1).stderr.contains(why), "{run}");
    }
    for option in [&["--report"][..], &["--log-order"], &["--sync-watchdog-ms", "60000", "--triage"]] {
        let options = option.iter().copied().chain(["/dev/null/file"]);
        let run = Replay::of_recording(&recording).args(options).run().run;
        assert!(
            run.expect_code(1).stderr.contains("[HRR] /dev/null/file cannot be written: not a directory; "),
            "{run}"
        );
        assert!(!run.stdout.contains("summary"), "{run}");
    }
}

/// Everything that can be told of a timeline but the kinds of its arrows, which Perfetto's format does not have, in one order.
fn told(timeline: &Timeline) -> [Vec<String>; 5] {
    let slice = |slice: &Slice| format!("{slice:?}");
    let mut slices: Vec<String> = timeline.slices.iter().map(slice).collect();
    // One of them has an arrow lead from innermost slice to innermost slice, the other one, where that would be back in time,
    // from a slice around it or the other way round.
    let around = |number: usize| {
        let inner = &timeline.slices[number];
        let holds = |outer: &&Slice| {
            outer.lane == inner.lane && outer.begin_ns <= inner.begin_ns && inner.end_ns <= outer.end_ns
        };
        timeline.slices.iter().filter(holds).min_by_key(|outer| (outer.begin_ns, Reverse(outer.end_ns))).map(slice)
    };
    let ends = |arrow: &Arrow| {
        let mut ends = [arrow.from, arrow.to].map(around);
        ends.sort();
        format!("{ends:?}")
    };
    let mut arrows: Vec<String> = timeline.arrows.iter().map(ends).collect();
    let mut moments: Vec<String> = timeline.moments.iter().map(|moment| format!("{moment:?}")).collect();
    let about = timeline.about.as_object().unwrap();
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let about = about.iter().map(|(key, value)| format!("{key}: {}", text(value))).collect();
    slices.sort();
    arrows.sort();
    moments.sort();
    [slices, arrows, moments, timeline.lanes.iter().map(|lane| format!("{lane:?}")).collect(), about]
}

#[test]
fn both_formats_tell_the_same() {
    for name in ["producer_consumer", "graph_capture", "async_copies"] {
        let recording = recording(name);
        // A recorded run is drawn the same way each time.
        let json = told(&drawn(&recording, &["--info"], "t.json").0);
        assert!(json.iter().all(|what| !what.is_empty()), "{name}");
        for file in ["t.pftrace", "t.pftrace.gz"] {
            let perfetto = told(&drawn(&recording, &["--info"], file).0);
            for (one, other) in json.iter().zip(&perfetto) {
                for (one, other) in one.iter().zip(other) {
                    assert_eq!(one, other, "{name} {file}");
                }
                assert_eq!(one.len(), other.len(), "{name} {file}");
            }
        }
        let (replayed, run) = drawn(&recording, &[], "replayed.pftrace");
        let compared = replayed.moments.iter().filter(|(_, moment)| moment == "D2H exact").count() as u64;
        assert_eq!(compared, run.expect_pass().exact, "{name}");
        assert!(replayed.of_category("work").count() > 0, "{name}");
    }
}

#[test]
fn a_recording_without_contents_is_drawn_too() {
    let recording = record_with(&Workload::listed("async_copies"), Contents::Withheld, &[]);
    let (timeline, _) = drawn(&recording, &["--info"], "t.json");
    assert!(timeline.of_category("work").count() > 0 && timeline.calls().count() > 0);
}
