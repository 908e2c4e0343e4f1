//! The catalogue walked: which entry points the workloads call, by their archives, and that none goes missing at replay.
//!
//! `cargo test -p hrr-tests --test matrix -- --nocapture` prints the matrix.

use std::collections::{BTreeMap, BTreeSet};

use hrr_format::archive::Archive;
use hrr_format::catalogue::{APIS, Policy};
use hrr_tests::built;
use hrr_tests::recording::{Contents, Recording, record};
use hrr_tests::replaying::Replay;
use hrr_tests::workload::Workload;

/// Most rows that may be left out at replay, and most that may be refused.
const MOST_SKIPPED: usize = 26;
const MOST_REFUSED: usize = 13;

fn recordings() -> Vec<Recording> {
    Workload::all().iter().map(|workload| record(workload, Contents::Recorded)).collect()
}

fn opened(recording: &Recording) -> Archive {
    Archive::open(&recording.archive).unwrap_or_else(|error| panic!("{}: {error}", recording.workload.name))
}

/// Calls of an entry point.
#[derive(Clone, Copy, Debug, Default)]
struct Made {
    succeeded: u64,
    failed: u64,
}

/// Counts calls by entry point.
fn calls(archive: &Archive, counts: &mut BTreeMap<&'static str, Made>) {
    for stream in archive.streams() {
        for record in stream.records() {
            let Some(api) = archive.row_of(&record) else { continue };
            let made = counts.entry(api.name).or_default();
            made.succeeded += u64::from(record.ret() == 0);
            made.failed += u64::from(record.ret() != 0);
        }
    }
}

fn policy_name(policy: &Policy) -> &'static str {
    match policy {
        Policy::Replay => "replay",
        Policy::ReplayAs(_) => "replay-as",
        Policy::Skip(_) => "skip",
        Policy::Refuse(_) => "refuse",
    }
}

/// Entry points that no workload can make succeed, with the reason, as `tests/workloads/not_exercised.tsv` lists them.
fn excused() -> BTreeMap<String, String> {
    let path = built::repository().join("tests/workloads/not_exercised.tsv");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let (name, reason) = line.split_once('\t').unwrap_or_else(|| panic!("{line:?}: no reason"));
            assert!(reason.len() > 5, "{line:?}: no reason");
            (name.to_owned(), reason.to_owned())
        })
        .collect()
}

#[test]
fn every_call_that_replays_is_made_by_a_workload_or_excused() {
    let mut counts = BTreeMap::new();
    for recording in recordings() {
        calls(&opened(&recording), &mut counts);
    }
    let mut rows: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let mut missing = BTreeSet::new();
    for api in &APIS {
        let entry = rows.entry(policy_name(&api.policy)).or_default();
        entry.0 += 1;
        let Made { succeeded, failed } = counts.get(api.name).copied().unwrap_or_default();
        entry.1 += usize::from(succeeded > 0);
        println!("{:<60} {:<10} {succeeded} {failed}", api.name, policy_name(&api.policy));
        if succeeded == 0 && matches!(api.policy, Policy::Replay | Policy::ReplayAs(_)) {
            missing.insert(api.name.to_owned());
        }
    }
    for (policy, (all, exercised)) in &rows {
        println!("{policy}: {all} entry points, {exercised} exercised");
    }
    let of = |policy| rows.get(policy).map_or(0, |row| row.0);
    assert!(of("skip") < MOST_SKIPPED && of("refuse") < MOST_REFUSED, "{rows:?}");

    let excused: BTreeSet<String> = excused().into_keys().collect();
    let forgotten: Vec<_> = missing.difference(&excused).collect();
    let made_now: Vec<_> = excused.difference(&missing).collect();
    assert!(
        forgotten.is_empty(),
        "no workload makes {forgotten:?} succeed, and tests/workloads/not_exercised.tsv has no reason"
    );
    for name in &excused {
        let failed = counts.get(name.as_str()).map_or(0, |made| made.failed);
        assert!(failed > 0, "{name}: no workload calls it so that it is refused, at capture and at replay alike");
    }
    assert!(made_now.is_empty(), "tests/workloads/not_exercised.tsv lists what is exercised: {made_now:?}");
}

#[test]
fn nothing_is_left_out_but_what_the_catalogue_says() {
    for recording in recordings() {
        let archive = opened(&recording);
        let mut expected = 0u64;
        let mut events = 0u64;
        for stream in archive.streams() {
            for record in stream.records() {
                let Some(api) = archive.row_of(&record) else { continue };
                events += 1;
                expected += u64::from(matches!(api.policy, Policy::Skip(_)));
            }
        }
        let replayed = Replay::of_recording(&recording).run();
        replayed.expect_pass();
        let line = replayed.run.stdout.lines().find(|line| line.contains("Calls     :")).unwrap_or_default();
        let number = |word: &str| {
            let before = line.split_once(word).map_or("", |(before, _)| before);
            before.trim_end().rsplit(' ').next().and_then(|text| text.parse::<u64>().ok())
        };
        let not_reissued = replayed
            .run
            .stdout
            .lines()
            .find(|line| line.contains("Not reissued"))
            .and_then(|line| line.split_whitespace().find_map(|word| word.parse::<u64>().ok()))
            .unwrap_or(0);
        let name = &recording.workload.name;
        assert_eq!(number(" skipped"), Some(expected), "{name}: {line}");
        assert_eq!(number(" issued"), Some(events - expected - not_reissued), "{name}: {line}");
    }
}

#[test]
fn the_support_table_is_current() {
    let script = built::repository().join("scripts/gen-support-table");
    let checked = std::process::Command::new(script).arg("--check").output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}
