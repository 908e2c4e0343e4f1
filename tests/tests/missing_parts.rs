//! Recordings that are not all there any more: what is missing is named, and no check passes.

#[path = "../c/program.rs"]
mod program;

use std::fs;
use std::path::Path;
use std::process::Command;

use hrr_tests::built;
use hrr_tests::process::{Finished, run, with_clean_environment};
use hrr_tests::recording::Scratch;
use program::{LIMIT, LINKED, command, compile, record};

fn check(path: &Path) -> Finished {
    let mut command = Command::new(built::output("bin/hrr-capture"));
    with_clean_environment(&mut command);
    run(command.arg("check").arg(path), LIMIT)
}

fn playback(path: &Path, option: &str) -> Finished {
    let mut command = Command::new(built::playback());
    with_clean_environment(&mut command);
    run(command.arg(path).arg(option).env("LD_LIBRARY_PATH", built::libraries()), LIMIT)
}

/// Records a program a few times, into one root; returns the processes' names.
fn processes(scratch: &Scratch, count: usize) -> (std::path::PathBuf, Vec<String>) {
    let program = compile(scratch, "hostile", "hostile", &[LINKED, &["-Wno-unused-parameter"]].concat());
    let mut root = std::path::PathBuf::new();
    for _ in 0..count {
        let recorded = record(scratch, command(&program, &["leaf"]));
        recorded.run.expect_code(11);
        root = recorded.root;
    }
    let mut names: Vec<String> = fs::read_dir(&root)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("pid-"))
        .collect();
    names.sort();
    assert_eq!(names.len(), count);
    check(&root).expect_code(0);
    (root, names)
}

/// Formerly the process was left out in silence by all of them.
#[test]
fn processes_that_the_root_lists() {
    let scratch = Scratch::new("processes");
    let (root, names) = processes(&scratch, 3);
    for (gone, left) in names[1..].iter().zip([2, 1]) {
        fs::remove_dir_all(root.join(gone)).unwrap();
        let says = format!("lists processes that are not there: {}", names[1]);
        let checked = check(&root);
        checked.expect_code(1);
        assert!(checked.stdout.contains(&says), "{checked}");
        let verified = playback(&root, "--verify");
        verified.expect_code(1);
        assert!(verified.stdout.contains(&says), "{verified}");
        let replayed = playback(&root, "--all-processes");
        replayed.expect_code(1);
        assert!(replayed.stderr.contains(&says), "{replayed}");
        assert_eq!(replayed.stdout.matches("[HRR] PASS").count(), left, "{replayed}");
        assert!(replayed.stderr.contains(gone.as_str()), "{replayed}");
    }
    // The one that is left is one by itself, once the list says so.
    playback(&root, "--repair").expect_code(0);
    check(&root).expect_code(0);
    playback(&root, "--all-processes").expect_code(0);
}

#[test]
fn packs_and_indices() {
    for (part, says) in [
        ("blobs/pack-0.bin", "blobs/pack-0.bin"),
        ("blobs/index", "blobs/index leads to 0 contents, and 2 were stored"),
        ("blobs", "blobs/index leads to 0 contents, and 2 were stored"),
        ("events/0.evs", "stream files"),
    ] {
        let scratch = Scratch::new("parts");
        let (root, names) = processes(&scratch, 1);
        let part = root.join(&names[0]).join(part);
        assert!(part.exists(), "{}", part.display());
        if part.is_dir() { fs::remove_dir_all(&part) } else { fs::remove_file(&part) }.unwrap();
        let checked = check(&root);
        checked.expect_code(1);
        assert!(checked.stdout.contains(says), "{says}\n{checked}");
        playback(&root, "--verify").expect_code(1);
    }
}

/// An index that repair has made anew without some of its contents is whole, and the recording is not.
#[test]
fn contents_that_were_lost_before_a_repair() {
    let scratch = Scratch::new("lost");
    let (root, names) = processes(&scratch, 1);
    let pack = root.join(&names[0]).join("blobs/pack-0.bin");
    let mut bytes = fs::read(&pack).unwrap();
    bytes[3] ^= 1;
    fs::write(&pack, bytes).unwrap();
    playback(&root, "--repair").expect_code(0);
    let checked = check(&root);
    checked.expect_code(1);
    assert!(checked.stdout.contains("lost: "), "{checked}");
}
