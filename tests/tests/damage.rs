//! Recordings of a program with bytes changed and files cut, at random places that are the same in every run: whatever is
//! wrong, a replay ends, without a crash, and passes only for results that are right.
//!
//! `HRR_FLIPS=10000 HRR_CUTS=200` makes as many changes; by default there are few, for each costs a replay.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use hrr_format::archive::Archive;
use hrr_tests::process::{End, Finished, run, with_clean_environment};
use hrr_tests::random::Random;
use hrr_tests::recording::{Contents, Scratch, record};
use hrr_tests::replaying::Replay;
use hrr_tests::workload::Workload;
use hrr_tests::{built, files};

/// Copies of every kind and no kernel: a kernel that is given other arguments may do anything.
const PROGRAM: &str = "sweep_copies";

fn count(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|count| count.parse().ok()).unwrap_or(otherwise)
}

/// What a replay of damaged files may come to.
#[track_caller]
fn expect_calm(run: &Finished, what: &str) {
    assert!(matches!(run.end, End::Code(0..=2)), "{what}\n{run}");
    assert!(!run.stderr.contains("panicked"), "{what}\n{run}");
}

fn playback(arguments: &[&str]) -> Finished {
    let mut command = Command::new(built::playback());
    with_clean_environment(&mut command);
    command.args(arguments).env("LD_LIBRARY_PATH", built::libraries());
    run(&mut command, Duration::from_secs(120))
}

/// The right results of a replay that passed.
fn passed(path: &Path, what: &str) -> Option<u64> {
    let replayed = Replay::of(path).env("HIP_HRR_D2H_EXACT", "1").args(["--sync-watchdog-ms", "30000"]).run();
    expect_calm(&replayed.run, what);
    replayed.run.succeeded().then(|| replayed.checks.expect("a replay that passes says what").exact)
}

/// Makes one change to a file; says which.
fn change(random: &mut Random, path: &Path, good: &[u8], cut: bool) -> (u64, String) {
    // Of a stream file, mostly records: the rest of its first page is zeros.
    let is_stream = path.extension().is_some_and(|extension| extension == "evs") && good.len() > 4096;
    let start = if is_stream && random.below(8) > 0 { 4096 } else { 0 };
    let at = start + random.below(good.len() as u64 - start);
    let mut bytes = good.to_vec();
    if cut {
        bytes.truncate(at as usize);
    } else {
        bytes[at as usize] ^= 1 << random.below(8);
    }
    fs::write(path, &bytes).unwrap();
    (at, format!("{} {} byte {at}", path.display(), if cut { "cut at" } else { "changed in" }))
}

#[test]
fn a_recording_with_wrong_bytes_or_files_cut_never_passes_for_what_it_is_not() {
    let recording = record(&Workload::listed(PROGRAM), Contents::Recorded);
    let right = Replay::of_recording(&recording).run().expect_pass().exact;
    let archive = Archive::open(&recording.archive).unwrap();
    let used: Vec<(u64, u64)> = archive
        .blobs()
        .index()
        .entries()
        .iter()
        .map(|entry| (entry.offset_bytes, entry.offset_bytes + entry.len_bytes))
        .collect();
    drop(archive);
    let files = files::below(&recording.archive);
    let mut random = Random::new(0x0123_4567_89ab_cdef);
    let (flips, cuts) = (count("HRR_FLIPS", 40), count("HRR_CUTS", 12));
    let (mut passes, mut repaired_passes) = (0, 0);
    for number in 0..flips + cuts {
        let path = &files[random.below(files.len() as u64) as usize];
        let good = fs::read(path).unwrap();
        if good.is_empty() {
            continue;
        }
        let (at, what) = change(&mut random, path, &good, number >= flips);
        if let Some(exact) = passed(&recording.archive, &what) {
            passes += 1;
            assert!(exact <= right, "{what}");
            let is_pack = path.ends_with("blobs/pack-0.bin") && number < flips;
            let in_contents = used.iter().any(|&(start, end)| (start..end).contains(&at));
            assert!(!is_pack || !in_contents || exact < right, "{what}: wrong contents passed");
        }
        // Now and then what repair makes of it, in a copy.
        if number % 10 == 0 {
            let scratch = Scratch::new("repaired");
            let copied = scratch.path().join("copy.hrr");
            let status = Command::new("cp").arg("-r").arg(&recording.archive).arg(&copied).status();
            assert!(status.expect("cp runs").success());
            let copied_path = copied.to_str().unwrap();
            expect_calm(&playback(&["--repair", copied_path]), &what);
            expect_calm(&playback(&["--info", "--events", copied_path]), &what);
            if let Some(exact) = passed(&copied, &format!("repaired: {what}")) {
                repaired_passes += 1;
                assert!(exact <= right, "{what}");
            }
        }
        fs::write(path, &good).unwrap();
    }
    println!("{flips} bytes changed, {cuts} cuts: {passes} replays passed, {repaired_passes} of repaired ones");
    assert_eq!(passed(&recording.archive, "as it was"), Some(right));
}

#[test]
fn a_packed_recording_with_wrong_bytes_never_passes_for_what_it_is_not() {
    let recording = record(&Workload::listed(PROGRAM), Contents::Recorded);
    let scratch = Scratch::new("packed");
    let path = scratch.path().join("a.hrrz");
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    playback(&["--pack", &text(&recording.archive), &text(&path)]).expect_code(0);
    let good = fs::read(&path).unwrap();
    let right = passed(&path, "as it is").expect("it passes");
    let mut random = Random::new(0x0fed_cba9_8765_4321);
    let (flips, cuts) = (count("HRR_FLIPS", 40) / 2, count("HRR_CUTS", 12));
    let mut passes = 0;
    for number in 0..flips + cuts {
        let (_, what) = change(&mut random, &path, &good, number >= flips);
        if let Some(exact) = passed(&path, &what) {
            passes += 1;
            assert_eq!(exact, right, "{what}");
        }
    }
    println!("{flips} bytes changed, {cuts} cuts: {passes} replays passed");
}
