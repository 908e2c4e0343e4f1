//! Programs that do rude things around HIP calls: recorded, each behaves as it does alone, and leaves what can be checked and replayed,
//! or is told why not.

#[path = "../c/program.rs"]
mod program;

use std::path::Path;
use std::process::Command;

use hrr_tests::built;
use hrr_tests::process::{Finished, run, with_clean_environment};
use hrr_tests::recording::Scratch;
use hrr_tests::replaying::Replay;
use program::{LIMIT, LINKED, Recorded, command, compile, record};

/// Runs `hostile WHAT` alone and recorded, and expects the same of both.
fn recorded_as_alone(scratch: &Scratch, what: &str) -> Recorded {
    let program = compile(scratch, "hostile", "hostile", &[LINKED, &["-Wno-unused-parameter"]].concat());
    let nothing = scratch.path().join("nothing");
    let plain = run(&mut command(&program, &[what, nothing.to_str().unwrap()]), LIMIT);
    plain.expect_code(0);
    let root = scratch.path().join("recorded.hrr");
    let recorded = record(scratch, command(&program, &[what, root.to_str().unwrap()]));
    recorded.run.expect_code(0);
    assert_eq!(recorded.run.stdout, plain.stdout, "{}", recorded.run);
    let ours = |line: &str| line.starts_with("[HRR capture] ");
    assert!(recorded.run.stderr.lines().all(ours), "{}", recorded.run);
    recorded
}

fn check(archive: &Path) -> Finished {
    let mut command = Command::new(built::output("bin/hrr-capture"));
    with_clean_environment(&mut command);
    run(command.arg("check").arg(archive), LIMIT)
}

/// What is recorded to its end: it is whole, and each of its processes replays.
fn expect_whole(what: &str) {
    let scratch = Scratch::new(what);
    let recorded = recorded_as_alone(&scratch, what);
    check(&recorded.root).expect_code(0);
    for process in recorded.processes() {
        Replay::of(process.path()).run().expect_pass();
    }
}

/// What ends a recording early: the program is told why in a line, and what was recorded by then can be read.
fn expect_told(what: &str, why: &str) -> (Scratch, Recorded) {
    let scratch = Scratch::new(what);
    let recorded = recorded_as_alone(&scratch, what);
    assert!(recorded.run.stderr.contains(why), "{}", recorded.run);
    (scratch, recorded)
}

macro_rules! whole {
    ($($name:ident: $what:literal;)*) => {
        $(
            #[test]
            fn $name() {
                expect_whole($what);
            }
        )*
    };
}

whole! {
    // Formerly the file that a first call makes was a cancellation point, and the thread's end an abort.
    threads_are_cancelled_before_their_first_call_and_in_later_ones: "cancelling";
    calls_are_made_by_a_handler_a_thousand_times_a_second: "ticking";
    fibers_take_turns_in_calls: "fibers";
    threads_with_little_stack_by_the_hundred: "crowd";
    the_environment_is_cleared: "environment";
    every_descriptor_is_closed_and_its_number_taken: "descriptors";
    faults_are_the_programs_own: "own_faults";
    the_runtime_is_loaded_again_and_again: "loaded_again";
    // Formerly it was found by its path alone, which led nowhere then.
    the_root_directory_is_another: "other_root";
    the_root_file_system_is_another: "pivoted";
    rights_are_given_up: "rights";
    the_process_may_not_be_looked_into: "undumpable";
    // Formerly the recorder's descriptors took the numbers that the program had got without it.
    descriptors_have_the_numbers_they_had: "numbers";
    every_descriptor_is_closed_at_once: "all_closed";
    calls_are_made_on_a_small_stack_for_signals: "other_stack";
    stacks_are_limited: "little_stack";
    main_returns_while_threads_are_in_calls: "leaves_busy";
    main_leaves_before_its_threads: "main_leaves";
    // Formerly that was taken for a kill: contents that were on their way to the disk were lost.
    the_program_leaves_by_quick_exit: "leaves_quickly";
}

/// A child that leaves by `_exit` ends no recording of its own; the others do.
#[test]
fn children_are_made_in_every_way_while_threads_are_in_calls() {
    let scratch = Scratch::new("children");
    let recorded = recorded_as_alone(&scratch, "children");
    let processes = recorded.processes();
    assert!(processes.len() > 4 * 5, "{} processes", processes.len());
    let whole = processes.iter().filter(|process| process.manifest().complete).count();
    assert!(whole > 4 * 3, "{whole} of {} processes are whole", processes.len());
    for process in processes.iter().filter(|process| process.manifest().complete) {
        Replay::of(process.path()).run().expect_pass();
    }
}

/// Formerly such a child waited for ever for a thread that it did not have.
#[test]
fn children_are_made_during_the_first_call() {
    let scratch = Scratch::new("forking-first");
    let recorded = recorded_as_alone(&scratch, "forking_first");
    assert!(recorded.processes().len() > 30, "{}", recorded.run);
}

/// Formerly a jump out of the very first call left all later ones waiting for its end.
#[test]
fn calls_are_left_by_jumps() {
    let scratch = Scratch::new("jumping");
    let recorded = recorded_as_alone(&scratch, "jumping");
    assert!(recorded.calls("hipGetDevice") > 0, "{}", recorded.run);
    Replay::of(&recorded.root).run().run.expect_code(0);
}

#[test]
fn files_may_be_few() {
    let (_scratch, recorded) = expect_told("few_files", "Too many open files");
    assert!(recorded.calls("hipMalloc") >= 2);
}

#[test]
fn files_may_be_small() {
    let (_scratch, recorded) = expect_told("small_files", "Capture stopped: ");
    assert!(recorded.run.stderr.contains("File too large"), "{}", recorded.run);
    assert!(recorded.calls("hipMalloc") >= 2);
}

/// Formerly the manifest was written past the limit, and the signal that this raises ended the program.
#[test]
fn files_may_be_too_small_for_any_recording() {
    let (_scratch, recorded) = expect_told("tiny_files", "Capture disabled: ");
    assert!(recorded.run.stderr.contains("File too large"), "{}", recorded.run);
}

#[test]
fn files_may_be_small_from_some_time_on() {
    let (_scratch, recorded) = expect_told("files_shrink", "Capture stopped: ");
    assert!(recorded.run.stderr.contains("File too large"), "{}", recorded.run);
    assert!(recorded.calls("hipMalloc") >= 2);
}

/// Threads that have a file go on being recorded until one of them needs another.
#[test]
fn rights_are_given_up_before_threads_are_made() {
    let scratch = Scratch::new("rights_and_threads");
    let recorded = recorded_as_alone(&scratch, "rights_and_threads");
    if !recorded.run.stdout.contains("not allowed") {
        assert!(recorded.run.stderr.contains("Permission denied"), "{}", recorded.run);
        assert!(recorded.calls("hipGetDevice") >= 50_000);
    }
}

#[test]
fn a_filter_of_system_calls_forbids_files() {
    let (_scratch, recorded) = expect_told("filtered", "Capture stopped: ");
    assert!(recorded.run.stderr.contains("Operation not permitted"), "{}", recorded.run);
    assert!(recorded.calls("hipMalloc") >= 2);
    let (_scratch, recorded) = expect_told("filtered_first", "Capture disabled: ");
    assert!(recorded.run.stderr.contains("Operation not permitted"), "{}", recorded.run);
}

/// What is said on standard error ends no program: not where nobody reads it any more, nor where it is full.
#[test]
fn nobody_reads_standard_error() {
    use std::os::fd::AsRawFd;
    let scratch = Scratch::new("unread");
    let program = compile(&scratch, "hostile", "hostile", &[LINKED, &["-Wno-unused-parameter"]].concat());
    let record_into = |standard_error: std::io::PipeWriter, root: &str| {
        let mut child = command(&program, &["leaf"]);
        hrr_tests::recording::recorded(
            &mut child,
            &scratch.path().join(root),
            hrr_tests::recording::Contents::Recorded,
        );
        let status = child.stderr(standard_error).stdout(std::process::Stdio::null()).status().unwrap();
        assert_eq!(status.code(), Some(11), "{status}");
        check(&scratch.path().join(root)).expect_code(0);
    };
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    record_into(writer, "closed.hrr");
    let (_reader, mut writer) = std::io::pipe().unwrap();
    let number = writer.as_raw_fd();
    // SAFETY: changes the flags of a descriptor that is open.
    let set = |flags: libc::c_int| unsafe { libc::fcntl(number, libc::F_SETFL, flags) };
    assert_eq!(set(libc::O_NONBLOCK), 0);
    while std::io::Write::write(&mut writer, &[b'x'; 4096]).is_ok() {}
    assert_eq!(set(0), 0);
    record_into(writer, "full.hrr");
}

#[test]
fn memory_may_be_used_up() {
    let (_scratch, recorded) = expect_told("little_memory", "Capture stopped: ");
    assert!(recorded.calls("hipMalloc") >= 2);
}

#[test]
fn the_archive_may_be_removed() {
    let (_scratch, recorded) = expect_told("removed", "Capture stopped: ");
    assert!(!recorded.root.exists());
}
