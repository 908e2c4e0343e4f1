//! Every entry point that replays, left out of a replay of a workload that calls it: the replay has to fail, by what the
//! missing call leaves undone wherever it leaves anything.
//!
//! A share of the entry points is tried each time; `HRR_DROP=all` tries all of them and prints how each was noticed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hrr_format::archive::Archive;
use hrr_format::catalogue::{APIS, Access, Api, Effect, Policy, Role};
use hrr_tests::built;
use hrr_tests::process::End;
use hrr_tests::recording::{Contents, Recording, record};
use hrr_tests::replaying::Replay;
use hrr_tests::soak;
use hrr_tests::workload::Workload;

/// One in this many entry points is tried where not all are.
const SHARE: u64 = 5;
/// Programs that only repeat what others call.
const REPETITIVE: [&str; 6] = ["api_rate", "forever", "transformer", "launch_rate", "transfer_rate", "thread_churn"];

/// How a replay without a call went.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Noticed {
    /// It passed.
    Not,
    /// It failed, and only because its calls do not add up.
    Counted,
    /// What the call does was missing.
    Missed(String),
}

/// Which of the recordings have a successful call of each entry point, or a failed one of what never succeeds, those with the
/// fewest calls first.
fn callers(recordings: &[Recording]) -> BTreeMap<&'static str, Vec<usize>> {
    let refused: BTreeSet<String> = listed("not_exercised.tsv").into_keys().collect();
    let mut callers: BTreeMap<&'static str, Vec<usize>> = BTreeMap::new();
    let mut sizes = Vec::new();
    for (index, recording) in recordings.iter().enumerate() {
        let archive = Archive::open(&recording.archive).unwrap_or_else(|error| panic!("{error}"));
        sizes.push(archive.manifest().event_count);
        for record in archive.streams().iter().flat_map(|stream| stream.records()) {
            let Some(api) = archive.row_of(&record) else { continue };
            let found = callers.entry(api.name).or_default();
            if (succeeded(api, record.ret()) || refused.contains(api.name)) && found.last() != Some(&index) {
                found.push(index);
            }
        }
    }
    callers.retain(|_, found| !found.is_empty());
    callers.values_mut().for_each(|found| found.sort_by_key(|&index| sizes[index]));
    callers
}

/// The calls that ask for the last error answer with it.
fn succeeded(api: &Api, ret: i32) -> bool {
    ret == 0 || api.name.ends_with("LastError")
}

/// Whether an entry point only answers a question.
fn is_question(api: &Api) -> bool {
    let asks = ["Get", "Query", "Occupancy", "IsCapturing", "CanAccess", "ElapsedTime", "PeekAt"];
    let changes = |role: &Role| {
        matches!(
            role,
            Role::Create(_)
                | Role::Destroy(_)
                | Role::NewDevice(_)
                | Role::NewHost(_)
                | Role::NewManaged(_)
                | Role::Device(Access::Write | Access::ReadWrite, _)
                | Role::Any(Access::Write | Access::ReadWrite, _)
                | Role::FreeDevice
                | Role::FreeHost
        )
    };
    asks.iter().any(|word| api.name.contains(word))
        && matches!(api.effect, Effect::Host | Effect::Query)
        && !api.params.iter().any(|param| changes(&param.role))
}

/// Entry points that a file of `tests/workloads` lists, with the reason.
fn listed(file: &str) -> BTreeMap<String, String> {
    let path = built::repository().join("tests/workloads").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, reason) = line.split_once('\t').unwrap_or_else(|| panic!("{line:?}: no reason"));
            assert!(Api::by_name(name).is_some(), "{name}: no entry point");
            assert!(reason.len() > 5, "{line:?}: no reason");
            (name.to_owned(), reason.to_owned())
        })
        .collect()
}

fn replay_without(recording: &Recording, api: &str) -> Noticed {
    let replay = Replay::of_recording(recording).env("HRR_REPLAY_MUTATE", format!("drop:{api}"));
    // To the byte: wrong integers may be close when taken for floats. Whoever waits for what never comes is ended.
    let replay = replay.env("HIP_HRR_D2H_EXACT", 1).args(["--sync-watchdog-ms", "4000"]);
    let replayed = replay.limit(Duration::from_secs(30)).run();
    let run = &replayed.run;
    assert!(!run.output().contains("no such mutation") && run.end != End::Code(101), "{api}: {run}");
    let line = |text: &str| run.stdout.lines().chain(run.stderr.lines()).find(|line| line.contains(text));
    let checks = replayed.checks;
    match run.end {
        End::Code(0) => Noticed::Not,
        End::Code(124) => Noticed::Missed("waits for ever".to_owned()),
        End::TimedOut => Noticed::Missed("ends not".to_owned()),
        End::Signal(signal) => Noticed::Missed(format!("signal {signal}")),
        End::Code(_) if checks.is_some_and(|checks| checks.fail > 0) => Noticed::Missed("a result differs".to_owned()),
        End::Code(_) if line("Events failed").is_some() => Noticed::Missed("a call fails".to_owned()),
        End::Code(_) if line("Lost results").is_some() => Noticed::Missed("a result is missing".to_owned()),
        End::Code(_) if checks.is_none() => Noticed::Missed("a later call is refused".to_owned()),
        End::Code(_) => {
            assert!(line(&format!("calls of {api} were neither")).is_some(), "{api}: {run}");
            Noticed::Counted
        }
    }
}

#[test]
fn a_call_that_is_left_out_is_missed() {
    let everything = std::env::var("HRR_DROP").is_ok_and(|value| value == "all");
    let workloads = Workload::all().into_iter().filter(|workload| !REPETITIVE.contains(&workload.name.as_str()));
    let recordings: Vec<Recording> = workloads.map(|workload| record(&workload, Contents::Recorded)).collect();
    for recording in &recordings {
        Replay::of_recording(recording).run().expect_pass();
    }
    let callers = callers(&recordings);
    // Those whose loss can only be counted.
    let only_counted = listed("only_counted.tsv");
    let rows: Vec<&Api> = APIS
        .iter()
        .filter(|api| matches!(api.policy, Policy::Replay | Policy::ReplayAs(_)) && callers.contains_key(api.name))
        .filter(|api| everything || soak::seed(api.name, 0).is_multiple_of(SHARE))
        .collect();
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(BTreeMap::new());
    let work = || {
        // Relaxed: only which of them is next.
        while let Some(api) = rows.get(next.fetch_add(1, Ordering::Relaxed)) {
            let quiet = is_question(api) || only_counted.contains_key(api.name);
            let mut best = Noticed::Not;
            for &caller in &callers[api.name] {
                best = best.max(replay_without(&recordings[caller], api.name));
                if quiet && best >= Noticed::Counted || best > Noticed::Counted {
                    break;
                }
            }
            outcomes.lock().unwrap().insert(api.name, (quiet, best));
        }
    };
    std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(work))));

    let outcomes = outcomes.into_inner().unwrap();
    assert_eq!(outcomes.len(), rows.len(), "one outcome each");
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for (name, (quiet, noticed)) in &outcomes {
        let how = match noticed {
            Noticed::Missed(how) => how.clone(),
            Noticed::Counted if only_counted.contains_key(*name) => "only counted, as listed".to_owned(),
            Noticed::Counted if *quiet => "only counted, a question".to_owned(),
            other => format!("{other:?}"),
        };
        println!("{name:<60} {how}");
        *counts.entry(how).or_default() += 1;
    }
    println!("{} entry points left out, one at a time: {counts:?}", outcomes.len());
    let unnoticed: Vec<_> = outcomes
        .iter()
        .filter(|(_, (quiet, noticed))| *noticed == Noticed::Not || !quiet && *noticed == Noticed::Counted)
        .collect();
    assert!(unnoticed.is_empty(), "left out, and nothing was missed: {unnoticed:#?}");
}
