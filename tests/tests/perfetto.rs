//! Timelines as Perfetto's own engine reads them, where one is at hand: `scripts/trace-processor` fetches it.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hrr_tests::built;
use hrr_tests::recording::{Contents, Scratch, record};
use hrr_tests::replaying::Replay;
use hrr_tests::timeline::Timeline;
use hrr_tests::workload::Workload;
use serde_json::Value;

/// The folder with Perfetto's engine for browsers.
const ENGINE: &str = "HRR_TRACE_PROCESSOR";

/// What the engine met that it could not use.
const FAULTS: &str = "select name, value from stats where value > 0 and severity in ('error', 'data_loss')";
/// Slices and moments; `ended` tells the ones that Perfetto would draw as never ended.
const SLICES: &str =
    "select s.ts, s.dur, s.name, s.category, coalesce(thread.name, track.name) as lane, s.dur >= 0 as ended,
      coalesce(extract_arg(s.arg_set_id, 'args.event'), extract_arg(s.arg_set_id, 'debug.event')) as event
    from slice s join track on track.id = s.track_id
    left join thread_track on thread_track.id = s.track_id left join thread on thread.utid = thread_track.utid
    where s.category is null or s.category != 'about'";
const ARROWS: &str = "select a.ts as from_ns, a.name as from_name, b.ts as to_ns, b.name as to_name
    from flow join slice a on a.id = flow.slice_out join slice b on b.id = flow.slice_in";

/// Asks the engine; rows by query.
fn ask(engine: &Path, trace: &Path, queries: &[&str]) -> Vec<Vec<Value>> {
    let mut node = Command::new("node");
    node.arg(built::repository().join("tests/perfetto/query.mjs")).arg(engine).arg(trace);
    let spawned = node.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut asked = spawned.expect("node runs");
    let text = serde_json::to_vec(queries).unwrap();
    asked.stdin.take().unwrap().write_all(&text).unwrap();
    let answer = asked.wait_with_output().unwrap();
    assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
    serde_json::from_slice(&answer.stdout).expect("rows are JSON")
}

/// How often each occurs.
fn counted<T: Ord>(all: impl IntoIterator<Item = T>) -> BTreeMap<T, usize> {
    let mut counts = BTreeMap::new();
    for one in all {
        *counts.entry(one).or_default() += 1;
    }
    counts
}

fn number(row: &Value, column: &str) -> u64 {
    row[column].as_u64().unwrap_or_else(|| panic!("{column} of {row}"))
}

fn text(row: &Value, column: &str) -> String {
    row[column].as_str().unwrap_or_else(|| panic!("{column} of {row}")).to_owned()
}

/// The engine finds in a file what the tests' own strict reader finds.
fn reads_alike(engine: &Path, trace: &Path) {
    let named = trace.file_name().unwrap().to_string_lossy().into_owned();
    let timeline = Timeline::read(trace);
    let answers = ask(engine, trace, &[FAULTS, SLICES, ARROWS]);
    let [faults, slices, arrows] = answers.as_slice() else { panic!("an answer to each question") };
    assert_eq!(faults, &Vec::<Value>::new(), "{named}");
    assert!(slices.iter().all(|row| number(row, "ended") == 1), "{named}");

    let mut found = counted(slices.iter().map(|row| {
        let event = row["event"].as_u64();
        (text(row, "lane"), text(row, "name"), text(row, "category"), number(row, "ts"), number(row, "dur"), event)
    }));
    for slice in &timeline.slices {
        let lane = timeline.lanes[&slice.lane].clone();
        let event = slice.args["event"].as_u64();
        let key =
            (lane, slice.name.clone(), slice.category.clone(), slice.begin_ns, slice.end_ns - slice.begin_ns, event);
        let count = found.get_mut(&key).filter(|count| **count > 0);
        *count.unwrap_or_else(|| panic!("{named}: the engine has no slice {key:?}")) -= 1;
    }
    let rest = found.into_iter().flat_map(|((lane, name, ..), count)| std::iter::repeat_n((lane, name), count));
    let moments = timeline.moments.iter().map(|(lane, name)| (timeline.lanes[lane].clone(), name.clone()));
    assert_eq!(counted(rest), counted(moments), "{named}");

    // By time: where the device's clock and the host's have work begin before its call, the engine turns the arrow round.
    let sorted = |mut ends: [(u64, String); 2]| {
        ends.sort();
        ends
    };
    let mut drawn = counted(timeline.arrows.iter().map(|arrow| {
        let end = |slice: usize| (timeline.slices[slice].begin_ns, timeline.slices[slice].name.clone());
        sorted([end(arrow.from), end(arrow.to)])
    }));
    assert_eq!(arrows.len(), timeline.arrows.len(), "{named}");
    for row in arrows {
        let ends = [("from_ns", "from_name"), ("to_ns", "to_name")];
        let ends = sorted(ends.map(|(at, name)| (number(row, at), text(row, name))));
        // A moment is a slice of no length to the engine, and an arrow at its time is its arrow.
        if ends.iter().all(|(_, name)| timeline.moments.iter().all(|(_, moment)| moment != name)) {
            let count = drawn.get_mut(&ends).filter(|count| **count > 0);
            *count.unwrap_or_else(|| panic!("{named}: the engine has an arrow {ends:?}")) -= 1;
        }
    }
    assert!(!timeline.slices.is_empty() && !timeline.arrows.is_empty(), "{named}");
}

#[test]
fn perfetto_s_own_engine_reads_every_kind_of_timeline() {
    let engine = std::env::var_os(ENGINE).map(PathBuf::from);
    let Some(engine) = engine.filter(|folder| folder.join("trace_processor.wasm").is_file()) else {
        println!("skipped: {ENGINE} names no folder with Perfetto's engine; scripts/trace-processor fetches one");
        return;
    };
    for name in ["producer_consumer", "graph_capture"] {
        let recording = record(&Workload::listed(name), Contents::Recorded);
        let scratch = Scratch::new("perfetto");
        for (file, options) in [
            ("replayed.json", &[][..]),
            ("replayed.json.gz", &[]),
            ("replayed.pftrace", &[]),
            ("replayed.pftrace.gz", &["--repeat", "2"]),
            ("recorded.json.gz", &["--info"]),
            ("recorded.pftrace", &["--info"]),
        ] {
            let path = scratch.path().join(format!("{name}-{file}"));
            let replay = Replay::of_recording(&recording).args(options.iter().copied());
            replay.args(["--trace", path.to_str().unwrap()]).run().run.expect_code(0);
            reads_alike(&engine, &path);
        }
    }
}
