//! Every workload, recorded once and replayed in every way: each number of workers, each order, under random delays.

use hrr_tests::process::End;
use hrr_tests::recording::{Contents, record, record_with};
use hrr_tests::replaying::{Replay, Replayed};
use hrr_tests::soak;
use hrr_tests::workload::Workload;

/// Values of `--threads`: multiplexed on few workers, and one worker per captured thread.
const THREADS: [&str; 4] = ["1", "2", "4", "0"];

/// A limit that no wait of a replay reaches that goes on at all.
const WATCHDOG_MS: &str = "60000";

/// What an order promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Promise {
    /// Every result is as recorded, whatever the program.
    Faithful,
    /// As recorded where no thread uses what another computed; a diagnostic otherwise.
    WithinThreads,
}

const ORDERS: [(&str, Promise); 3] =
    [("capture", Promise::Faithful), ("deps", Promise::Faithful), ("program", Promise::WithinThreads)];

/// Whether threads of the program use each other's results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Threads {
    /// They do not, or there is one thread.
    Independent,
    /// They do.
    Cooperating,
    /// They do, and captures of one make calls of another fail: whether they do is the order between threads.
    Forbidding,
}

fn every_way(name: &str, threads: Threads) {
    let recording = record(&Workload::listed(name), Contents::Recorded);
    let mut first = None;
    // All ways are tried before any failure counts: which of them fail says more than the first one alone.
    let (mut ways, mut failed, mut example) = (0, Vec::new(), String::new());
    for threads_option in THREADS {
        for (order, promise) in ORDERS {
            if (promise, threads) == (Promise::WithinThreads, Threads::Forbidding) {
                continue;
            }
            for repetition in 0..soak::replays() {
                let mut replay = Replay::of_recording(&recording).args(["--threads", threads_option, "--order", order]);
                // The first time without delays, as a user would; then watched, which must change nothing.
                if repetition > 0 {
                    replay = replay
                        .args(["--sync-watchdog-ms", WATCHDOG_MS, "--watchdog-marks", "all"])
                        .chaos(soak::seed(&format!("{name} {threads_option} {order}"), repetition));
                }
                let replayed = replay.run();
                let outcome = match (promise, threads) {
                    (Promise::WithinThreads, Threads::Cooperating) => calls_succeeded(&replayed),
                    _ => as_recorded(&replayed, &mut first),
                };
                ways += 1;
                if let Err(failure) = outcome {
                    failed.push(format!("--threads {threads_option} --order {order} (repetition {repetition})"));
                    example = if example.is_empty() { failure } else { example };
                }
            }
        }
    }
    assert!(
        failed.is_empty(),
        "{} of {ways} replays of {name} failed:\n  {}\nthe first of them: {example}",
        failed.len(),
        failed.join("\n  ")
    );
}

/// Every result is as recorded, and as many results were checked as in the replay before.
fn as_recorded(replayed: &Replayed, first: &mut Option<(u64, u64)>) -> Result<(), String> {
    let checks = replayed.passed()?;
    let counts = (checks.pass, checks.skipped);
    if checks.pass == 0 {
        return Err(format!("every workload reads results back, and none was checked\n{}", replayed.run));
    }
    match *first.get_or_insert(counts) {
        expected if expected == counts => Ok(()),
        expected => Err(format!("{counts:?} passed and skipped, {expected:?} in another way\n{}", replayed.run)),
    }
}

/// The replay came to an end, no call failed for want of what it uses, and differences were not held against anyone.
fn calls_succeeded(replayed: &Replayed) -> Result<(), String> {
    let run = &replayed.run;
    let checks = replayed.checks.ok_or_else(|| format!("no summary\n{run}"))?;
    match run.end {
        End::Code(0 | 1) if checks.fail == 0 && !run.stdout.contains("Events failed") => Ok(()),
        _ => Err(format!("an order that keeps nothing between threads may make no call and no check fail\n{run}")),
    }
}

/// A test per workload, so that they run side by side and fail by name.
macro_rules! every_way {
    ($($name:ident: $threads:ident;)*) => {
        $(#[test]
        fn $name() {
            every_way(stringify!($name), Threads::$threads);
        })*

        #[test]
        fn every_listed_workload_is_here() {
            let listed: Vec<String> = Workload::all().into_iter().map(|workload| workload.name).collect();
            let mut here = vec![$(stringify!($name).to_owned()),*];
            let mut sorted = listed.clone();
            here.sort();
            sorted.sort();
            assert_eq!(here, sorted, "tests/workloads/list.tsv and tests/tests/workloads.rs name the same workloads");
        }
    };
}

every_way! {
    saxpy_reduce: Independent;
    all_kernels: Independent;
    threads8: Cooperating;
    producer_consumer: Cooperating;
    two_devices: Cooperating;
    graph_capture: Independent;
    async_copies: Independent;
    suballoc: Independent;
    memory_pool: Independent;
    virtual_memory: Independent;
    poll_query: Independent;
    module_launch: Independent;
    same_name_units: Independent;
    errors: Independent;
    per_thread_stream: Cooperating;
    thread_churn: Cooperating;
    pointer_table: Independent;
    host_memory: Cooperating;
    ipc: Independent;
    api_rate: Independent;
    forever: Independent;
    sweep_copies: Independent;
    sweep_devices: Independent;
    sweep_memory: Independent;
    sweep_launches: Independent;
    sweep_graphs: Independent;
    sweep_modules: Independent;
    sweep_streams: Independent;
    transformer: Cooperating;
    launch_rate: Independent;
    transfer_rate: Independent;
    peer_devices: Cooperating;
    contexts: Cooperating;
    serving: Independent;
    images: Independent;
    execution_contexts: Independent;
    peers: Independent;
    resets: Independent;
    linking: Independent;
    launch_shapes: Independent;
    secrets: Independent;
    graph_rows: Independent;
    graph_changes: Forbidding;
    enumerated: Independent;
    image_tables: Independent;
    // Memory that one thread has freed is given out to another.
    shared_memory_mix: Cooperating;
    shared_handles: Independent;
    no_graphics: Independent;
    api_corners: Cooperating;
}

#[test]
fn recordings_made_under_delays_replay_as_well() {
    for index in 0..soak::replays() {
        for name in ["threads8", "producer_consumer"] {
            let seed = soak::seed(&format!("record {name}"), index).to_string();
            let recording =
                record_with(&Workload::listed(name), Contents::Recorded, &[("MINIHIP_CHAOS", seed.as_str())]);
            for threads in ["0", "2"] {
                let replay = Replay::of_recording(&recording).args(["--threads", threads]);
                replay.chaos(soak::seed("replay", index)).run().expect_pass();
            }
        }
    }
}

/// One thread's synchronisation may find another's result complete first, which is not yet seen then. It was lost.
#[test]
fn results_that_several_threads_wait_for_by_events_are_all_seen() {
    let (threads, steps, pieces) = (6, 10, 2);
    let counts = [threads, steps, 2, pieces, 1].map(|count: u64| count.to_string());
    let recording = record(&Workload::new("serving", &counts.each_ref().map(String::as_str)), Contents::Recorded);
    let checks = Replay::of_recording(&recording).run().expect_pass();
    assert_eq!((checks.exact, checks.skipped), (threads * steps * 2 + pieces, 0));
}

#[test]
fn recording_changes_nothing_that_the_program_prints() {
    // These print how long they took.
    let measuring = ["api_rate", "launch_rate", "serving", "transfer_rate", "transformer"];
    for workload in Workload::all().into_iter().filter(|workload| !measuring.contains(&workload.name.as_str())) {
        let limit = std::time::Duration::from_secs(60);
        let plain = hrr_tests::process::run(&mut workload.command(), limit);
        plain.expect_code(0);
        let recorded = record(&workload, Contents::Recorded).run;
        let mut lines = [plain.stdout.lines().collect::<Vec<_>>(), recorded.stdout.lines().collect()];
        // Threads print as they come.
        lines.iter_mut().for_each(|lines| lines.sort_unstable());
        assert_eq!(lines[0], lines[1], "{}", workload.name);
        let notices = recorded.stderr.lines().filter(|line| !plain.stderr.contains(line)).count();
        assert_eq!(notices, 1, "one notice and nothing else\n{recorded}");
        assert!(recorded.stderr.contains("[HRR capture] Recording"), "{recorded}");
    }
}

#[test]
fn without_a_place_to_record_to_nothing_is_recorded() {
    let workload = Workload::listed("saxpy_reduce");
    let scratch = hrr_tests::recording::Scratch::new("off");
    for blank in ["", "  "] {
        let mut command = workload.command();
        command.env("LD_PRELOAD", hrr_tests::built::capture_library()).env("HIP_HRR_CAPTURE_OUTPUT", blank);
        command.current_dir(scratch.path());
        let run = hrr_tests::process::run(&mut command, std::time::Duration::from_secs(60));
        run.expect_code(0);
        assert_eq!(run.stderr, "", "no notice\n{run}");
    }
    let left: Vec<_> = std::fs::read_dir(scratch.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}
