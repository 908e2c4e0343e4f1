//! Programs in which threads meet inside HIP in unusual ways (`tests/workloads/corner_cases.cpp`): each is recorded, and
//! replayed by as many workers as it had threads and by fewer, with and without random delays.

use std::time::Duration;

use hrr_format::archive::Archive;
use hrr_tests::recording::{Contents, Recording, record, record_with};
use hrr_tests::replaying::{Replay, Replayed};
use hrr_tests::soak;
use hrr_tests::workload::Workload;

/// Values of `--threads`.
const THREADS: [&str; 3] = ["1", "2", "0"];
/// Orders that promise the same results.
const ORDERS: [&str; 2] = ["capture", "deps"];
/// A replay that takes longer has deadlocked; the watchdog then says in what.
const WATCHDOG_MS: &str = "20000";
/// Many times the watchdog's, which ends what hangs: on a machine with much else to do each of thousands of hand-overs may take a time
/// slice.
const LIMIT: Duration = Duration::from_secs(240);

fn recorded(case: &str) -> Recording {
    let mut workload = Workload::new("corner_cases", &[case]);
    workload.environment.push(("MINIHIP_DEVICES".to_owned(), "2".to_owned()));
    record(&workload, Contents::Recorded)
}

/// A case of `tests/workloads/api_corners.cpp`, where devices have addresses of their own for pinned memory.
fn recorded_corner(case: &str) -> Recording {
    let mut workload = Workload::new("api_corners", &[case]);
    workload.environment.push(("MINIHIP_ALIAS".to_owned(), "1".to_owned()));
    record(&workload, Contents::Recorded)
}

/// Replays in every way; each passes, with the same number of results compared.
fn every_way(recording: &Recording) -> Replayed {
    let name = &recording.workload.arguments[0];
    let mut compared = None;
    let mut last = None;
    for threads in THREADS {
        for order in ORDERS {
            for repetition in 0..soak::replays() {
                let mut replay = Replay::of_recording(recording)
                    .args(["--threads", threads, "--order", order, "--sync-watchdog-ms", WATCHDOG_MS])
                    .limit(LIMIT);
                if repetition > 0 {
                    replay = replay.chaos(soak::seed(&format!("{name} {threads} {order}"), repetition));
                }
                let replayed = replay.run();
                let checks = replayed.expect_pass();
                assert!(checks.pass > 0, "every case reads results back\n{}", replayed.run);
                let counts = (checks.pass, checks.skipped);
                assert_eq!(*compared.get_or_insert(counts), counts, "results compared\n{}", replayed.run);
                last = Some(replayed);
            }
        }
    }
    last.expect("there are several ways")
}

macro_rules! cases {
    ($recorded:ident: $($name:ident)*) => {
        $(#[test]
        fn $name() {
            every_way(&$recorded(stringify!($name)));
        })*
    };
}

cases! {
    recorded:
    reused_handle
    rerecorded_event
    never_recorded
    cross_device
    per_thread_spellings
    busy_device_sync
    two_captures
    fork_join_capture
    racing_frees
    configured_launches
    per_thread_results
    null_stream_results
    relaunched_graph
    freed_in_order
    seen_by_value
    // What the copies to the device had read was in no archive.
    bounced
    // What the copies to the device had read counted as what the memory held once the program waited.
    written_over
}

/// Every way through each case of `tests/workloads/api_corners.cpp`.
mod api {
    use super::{every_way, recorded_corner};

    cases! {
        recorded_corner:
        struct_copies
        configured
        array_graphs
        overlapping_pieces
        struct_streams
        memory_nodes
        changed_clones
        partial_mappings
        trimmed_pools
        refused_copies
        batched_values
        masked_values
        managed_halves
        uploaded_graphs
        inner_addresses
        refused_twice
    }
}

/// A case of `tests/workloads/graph_changes.cpp`, with two devices.
fn recorded_change(case: &str) -> Recording {
    let mut workload = Workload::new("graph_changes", &[case]);
    workload.environment.push(("MINIHIP_DEVICES".to_owned(), "2".to_owned()));
    record(&workload, Contents::Recorded)
}

/// Every way through cases of `tests/workloads/graph_changes.cpp`.
mod change {
    use super::{every_way, recorded_change};

    cases! {
        recorded_change:
        external_events
        launches_on_devices
        capture_on_devices
        whole_updates
        exchanged_children
        switched_copies
        found_nodes
        captured_by_hand
        forbidden_calls
        launch_events
    }
}

/// What a graph copied before an event in its middle cannot be told from what the host stored after it had waited for the event:
/// such results are left out of the comparison, and once failed it.
#[test]
fn memory_that_the_host_changes_while_its_graph_goes_on_is_not_compared() {
    let recording = recorded_change("middle_events");
    for threads in THREADS {
        let replayed = Replay::of_recording(&recording).args(["--threads", threads]).limit(LIMIT).run();
        replayed.run.expect_code(0);
        assert_eq!(replayed.checks.map(|checks| (checks.pass, checks.fail)), Some((0, 0)), "{}", replayed.run);
    }
}

/// How often a call is in a recording.
fn calls_of(recording: &Recording, name: &str) -> usize {
    let archive = Archive::open(&recording.archive).expect("it was just recorded");
    let records = archive.streams().iter().flat_map(|stream| stream.records());
    records.filter(|record| archive.api(record.api()).name == name).count()
}

#[test]
fn a_sync_that_another_threads_later_call_ends_does_not_hold_up_its_worker() {
    every_way(&recorded_with_writes_inside("released_by_another", "hipStreamSynchronize"));
}

#[test]
fn an_asynchronous_copy_that_waits_for_another_threads_later_call_does_not_hold_up_its_worker() {
    every_way(&recorded_with_writes_inside("released_from_async_copy", "hipMemcpyAsync"));
}

/// A replay issued the enqueue first, and asked for ever.
#[test]
fn a_stream_that_was_seen_idle_does_not_wait_for_what_another_thread_enqueued_meanwhile() {
    let workload = Workload::new("corner_cases", &["overlooked_enqueue"]);
    let slow = [("MINIHIP_SLOW", "api:hipStreamQuery:20000us")];
    let recording = meeting(
        || record_with(&workload, Contents::Recorded, &slow),
        |recording| {
            let (looks, enqueues) = (spans(recording, "hipStreamQuery"), spans(recording, "hipStreamWaitEvent"));
            let inside = |&&(begin, end): &&(u64, u64)| looks.iter().any(|look| look.0 < begin && end < look.1);
            enqueues.iter().filter(inside).count() * 2 > enqueues.len()
        },
    );
    every_way(&recording);
}

/// What the host had stored there was recorded of memory that kernels use only: a repetition began with the last one's values.
#[test]
fn values_in_host_memory_begin_as_the_host_left_them() {
    let recording = recorded("host_values");
    every_way(&recording);
    Replay::of_recording(&recording).args(["--repeat", "4"]).limit(LIMIT).run().expect_pass();
}

/// Calls of a name, as ticks of entry and return.
fn spans(recording: &Recording, name: &str) -> Vec<(u64, u64)> {
    let archive = Archive::open(&recording.archive).expect("it was just recorded");
    let records = archive.streams().iter().flat_map(|stream| stream.records());
    records.filter(|r| archive.api(r.api()).name == name).map(|r| (r.begin(), r.end())).collect()
}

/// A recording in which threads met as the test wants them to, or it shows nothing. The program brings that about by waiting for a
/// while, which on a machine with much else to do is at times too short.
fn meeting(record: impl Fn() -> Recording, met: impl Fn(&Recording) -> bool) -> Recording {
    const TRIES: usize = 10;
    (0..TRIES).map(|_| record()).find(met).unwrap_or_else(|| panic!("no meeting in {TRIES} recordings"))
}

/// The write that lets a call go comes while that is under way.
fn recorded_with_writes_inside(case: &str, held: &str) -> Recording {
    meeting(
        || recorded(case),
        |recording| {
            let (held_spans, writes) = (spans(recording, held), spans(recording, "hipStreamWriteValue32"));
            let inside = |&(begin, _): &(u64, u64)| held_spans.iter().any(|span| span.0 < begin && begin < span.1);
            writes.iter().any(inside)
        },
    )
}

/// `hipStreamSynchronize(NULL)` waits for blocking streams: what it lets the program see was once never compared.
#[test]
fn a_wait_for_the_null_stream_shows_results_of_blocking_streams() {
    let recording = recorded("null_stream_waits");
    let checks = every_way(&recording).expect_pass();
    let copies = calls_of(&recording, "hipMemcpyAsync") as u64;
    assert_eq!((checks.pass, checks.skipped), (copies, 0));
}

#[test]
fn callbacks_are_replaced_by_stubs_and_the_summary_says_so() {
    let recording = recorded("callbacks");
    let replayed = every_way(&recording);
    let callbacks = calls_of(&recording, "hipLaunchHostFunc") + calls_of(&recording, "hipStreamAddCallback");
    assert!(callbacks >= 6, "{callbacks} callbacks recorded");
    let line = format!("{callbacks} host callbacks replaced by stubs");
    assert!(replayed.run.stdout.contains(&line), "{}", replayed.run);
}

#[test]
fn answers_of_not_ready_in_a_row_are_one_record_with_a_count() {
    let recording = recorded("polled_release");
    every_way(&recording);
    let archive = Archive::open(&recording.archive).expect("it was just recorded");
    let records = archive.streams().iter().flat_map(|stream| stream.records());
    let queries: Vec<(i32, u32)> = records
        .filter(|record| archive.api(record.api()).name == "hipEventQuery")
        .map(|record| (record.ret(), record.polls()))
        .collect();
    // The program itself demands more than twenty answers of "not ready" before the one that ends the loop.
    let [(not_ready, count), (0, _)] = queries[..] else { panic!("one record for each kind of answer: {queries:?}") };
    assert_eq!(not_ready, 600, "{queries:?}");
    assert!(count > 20, "{queries:?}");
}

#[test]
fn threads_by_the_thousand() {
    let workload = Workload::new("thread_churn", &["2000", "8", "32"]);
    every_way(&record(&workload, Contents::Recorded));
}
