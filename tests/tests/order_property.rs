//! Random programs, recorded and replayed under random delays: every order that a mode promises is kept, by a log of what was
//! issued when, and every result is as recorded.
//!
//! `HRR_SOAK_PROGRAMS` programs (120 unless set), in batches of one recording each. A batch that fails is made smaller step by
//! step as far as it still fails, and its text is kept.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use hrr_tests::built;
use hrr_tests::process::{Finished, run};
use hrr_tests::random_program::{Step, program};
use hrr_tests::recording::{Contents, Scratch, record, record_with};
use hrr_tests::replaying::Replay;
use hrr_tests::soak;
use hrr_tests::workload::Workload;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

/// Programs in one recording.
const BATCH: usize = 20;
/// Most threads of a program.
const MOST_THREADS: usize = 6;
/// Replays of a recording.
const REPLAYS: u64 = 3;
/// As in `corner_cases.rs`.
const WATCHDOG_MS: &str = "30000";
const LIMIT: Duration = Duration::from_secs(240);

/// Whether a replay kept its order, by its log.
fn checked(archive: &Path, log: &Path) -> Finished {
    let mut command = Command::new(built::playback());
    run(command.arg(archive).arg("--check-order").arg(log), LIMIT)
}

/// One program: its threads and steps.
type Made = (usize, Vec<Step>);

fn programs() -> impl Strategy<Value = Vec<Made>> {
    let step =
        any::<[u8; 5]>().prop_map(|[thread, kind, first, second, way]| Step { thread, kind, first, second, way });
    vec((1..=MOST_THREADS, vec(step, 10..70)), BATCH)
}

fn text_of(programs: &[Made]) -> String {
    programs.iter().map(|(threads, steps)| program(*threads, steps)).collect()
}

/// Records the programs, replays them in several ways, and looks at each.
fn keeps_order(text: &str, seed: u64, scratch: &Scratch) -> Result<(), String> {
    let file = scratch.path().join("programs.txt");
    std::fs::write(&file, text).map_err(|error| error.to_string())?;
    let workload = Workload::new("random_program", &[file.to_str().expect("scratch paths are UTF-8")]);
    let chaos = (!seed.is_multiple_of(4)).then(|| seed.to_string());
    let variables: Vec<(&str, &str)> = chaos.iter().map(|seed| ("MINIHIP_CHAOS", seed.as_str())).collect();
    let recording = record_with(&workload, Contents::Recorded, &variables);
    let mut compared = None;
    for index in 0..REPLAYS {
        let draw = soak::seed("ways", seed.wrapping_mul(REPLAYS).wrapping_add(index));
        let order = ["capture", "deps"][(draw % 2) as usize];
        let threads = (draw / 2 % 9).to_string();
        let log = scratch.path().join("order.log");
        let log_text = log.to_str().expect("scratch paths are UTF-8");
        let arguments = ["--threads", &threads, "--order", order, "--sync-watchdog-ms", WATCHDOG_MS];
        let replayed = Replay::of_recording(&recording)
            .args(arguments)
            .args(["--log-order", log_text])
            .chaos(draw)
            .limit(LIMIT)
            .run();
        let way = format!("--threads {threads} --order {order}, chaos {draw}");
        let checks = replayed.passed().map_err(|failure| format!("{way}: {failure}"))?;
        let counts = (checks.pass, checks.skipped);
        if *compared.get_or_insert(counts) != counts {
            return Err(format!("{way}: {counts:?} results compared and skipped instead of {compared:?}"));
        }
        let verdict = checked(&recording.archive, &log);
        if !verdict.succeeded() || !verdict.stdout.contains("ORDER KEPT") {
            return Err(format!("{way}: {verdict}"));
        }
    }
    Ok(())
}

#[test]
fn random_programs_keep_their_order_and_results() {
    let cases = u32::try_from(soak::programs().div_ceil(BATCH as u64)).expect("so many take years");
    let config = Config { cases, max_shrink_iters: 300, failure_persistence: None, ..Config::default() };
    let seed = soak::seed("random programs", 0);
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let scratch = Scratch::new("random_program");
    let number = std::cell::Cell::new(0);
    let result = runner.run(&programs(), |programs| {
        // While a failure is made smaller its delays stay what they were.
        let seed = soak::seed("random program", number.get());
        let kept = keeps_order(&text_of(&programs), seed, &scratch);
        number.set(number.get() + u64::from(kept.is_ok()));
        kept.map_err(TestCaseError::fail)
    });
    match result {
        Ok(()) => {}
        Err(TestError::Fail(reason, programs)) => panic!("{}\n{reason}", text_of(&programs)),
        Err(other) => panic!("{other}"),
    }
}

/// What the checks would be worth if they could not fail: without its edges a replay does not keep the order.
#[test]
fn a_replay_without_edges_is_found_out() {
    let recording = record(&Workload::listed("threads8"), Contents::Recorded);
    let scratch = Scratch::new("order");
    let log = scratch.path().join("order.log");
    for order in ["capture", "deps", "program"] {
        for (mutation, kept) in [("", true), ("drop-edges", false)] {
            let replayed = Replay::of_recording(&recording)
                .args(["--order", order, "--continue-on-error", "--sync-watchdog-ms", WATCHDOG_MS])
                .args(["--log-order", log.to_str().expect("scratch paths are UTF-8")])
                .chaos(soak::seed(order, 0))
                .env("HRR_REPLAY_MUTATE", mutation)
                .run();
            let verdict = checked(&recording.archive, &log);
            assert_eq!(verdict.succeeded(), kept, "{order} {mutation:?}\n{verdict}\n{}", replayed.run);
            assert_eq!(verdict.stdout.contains("ORDER NOT KEPT"), !kept, "{verdict}");
        }
    }
}

/// Launches that are put together call by call were taken for work of the legacy stream, and their order for lost.
#[test]
fn launches_put_together_call_by_call_are_checked_where_they_were_configured() {
    let scratch = Scratch::new("order");
    let log = scratch.path().join("order.log");
    for seed in ["1", "2", "3"] {
        let workload = Workload::listed("shared_memory_mix");
        let recording = record_with(&workload, Contents::Recorded, &[("MINIHIP_CHAOS", seed)]);
        for order in ["capture", "deps"] {
            let arguments = ["--order", order, "--log-order", log.to_str().expect("scratch paths are UTF-8")];
            Replay::of_recording(&recording).args(arguments).run().expect_pass();
            checked(&recording.archive, &log).expect_code(0);
        }
    }
}
