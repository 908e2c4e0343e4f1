//! `hrr-capture`: the program's own exit status, one verdict at the end, and `check`.

#[path = "../c/program.rs"]
mod program;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hrr_tests::built;
use hrr_tests::process::{Finished, run, with_clean_environment};
use hrr_tests::recording::{Contents, Scratch, recorded};
use hrr_tests::workload::Workload;
use program::{LIMIT, LINKED, SHARED, compile};

fn launcher() -> PathBuf {
    built::output("bin/hrr-capture")
}

/// `hrr-capture` with arguments, in a folder of its own.
fn command(scratch: &Scratch, arguments: &[&str]) -> Command {
    let mut command = Command::new(launcher());
    with_clean_environment(&mut command);
    command.args(arguments).current_dir(scratch.path()).env("LD_LIBRARY_PATH", built::libraries());
    command
}

fn launch(scratch: &Scratch, arguments: &[&str]) -> Finished {
    run(&mut command(scratch, arguments), LIMIT)
}

/// The lines that the launcher adds at the end.
fn verdict(run: &Finished) -> String {
    let lines =
        run.stderr.lines().filter(|line| line.starts_with("[HRR capture]") && !line.contains("Recording HIP calls"));
    lines.collect::<Vec<_>>().join("\n")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("scratch paths are UTF-8")
}

fn workload(name: &str) -> PathBuf {
    Workload::listed(name).program()
}

#[test]
fn a_recorded_program_is_replayed_by_the_command_at_the_end() {
    let scratch = Scratch::new("launch");
    let program = workload("saxpy_reduce");
    let run_once = || {
        let run = launch(&scratch, &["--content", "-o", "a b.hrr", "--", text(&program)]);
        run.expect_code(0);
        let plain = run.stdout.clone();
        assert!(
            plain.starts_with("saxpy_reduce: ok") && plain.lines().count() == 1,
            "standard output is the program's\n{run}"
        );
        let verdict = verdict(&run);
        assert!(verdict.contains("1 process (with contents, "), "{run}");
        let command =
            verdict.lines().find_map(|line| line.split_once("Replay:  ")).expect("a replay command").1.to_owned();
        let path = format!("{}:{}", text(&built::output("bin")), std::env::var("PATH").unwrap());
        let mut shell = Command::new("sh");
        shell.args(["-c", &command]).env("PATH", path).env("LD_LIBRARY_PATH", built::libraries());
        let replay = hrr_tests::process::run(&mut shell, LIMIT);
        replay.expect_code(0);
        assert!(replay.stdout.contains("[HRR] PASS"), "{replay}");
        command
    };
    let first = run_once();
    // Into the same directory once more: the root alone does not say which of the two is meant.
    let second = run_once();
    assert!(first != second && second.contains("pid-"), "{first}, {second}");
}

#[test]
fn the_exit_status_is_the_programs() {
    let scratch = Scratch::new("status");
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -15 $$", 143), ("exit 255", 255)] {
        launch(&scratch, &["--", "sh", "-c", script]).expect_code(code);
    }
    let missing = launch(&scratch, &["--", "no-such-program"]);
    missing.expect_code(127);
    assert!(verdict(&missing).contains("no-such-program cannot be run"), "{missing}");
    std::fs::write(scratch.path().join("data"), "text").unwrap();
    launch(&scratch, &["--", "./data"]).expect_code(126);
    launch(&scratch, &["--no-such-option"]).expect_code(125);
    launch(&scratch, &["--library", "nowhere.so", "--", "true"]).expect_code(125);
    launch(&scratch, &["--help"]).expect_code(0);
    // The program's options are its own, with and without the two dashes.
    launch(&scratch, &["sh", "-c", "exit 4"]).expect_code(4);
}

#[test]
fn nothing_recorded_has_a_reason() {
    let scratch = Scratch::new("reasons");
    compile(&scratch, "no_calls", "no_calls", &[&["-Wl,--no-as-needed"], LINKED].concat());
    compile(&scratch, "nothing", "nothing", &[]);
    compile(&scratch, "nothing", "static", &["-static"]);
    compile(&scratch, "sdk", "libcuda.so.1", &[SHARED, &["-DHIP_MALLOC=0", "-Wl,-soname,libcuda.so.1"]].concat());
    let cuda = format!("-Wl,-rpath,{}", text(scratch.path()));
    let library = scratch.path().join("libcuda.so.1");
    compile(&scratch, "nothing", "cuda", &["-Wl,--no-as-needed", text(&library), &cuda]);
    std::fs::write(scratch.path().join("docker"), "#!/bin/sh\nexit 3\n").unwrap();
    std::fs::set_permissions(scratch.path().join("docker"), PermissionsExt::from_mode(0o755)).unwrap();
    for (program, code, expected) in [
        ("./no_calls", 0, "loaded the HIP runtime"),
        ("./nothing", 0, "loaded no HIP runtime and made no HIP call"),
        ("./static", 0, "linked statically"),
        ("./cuda", 0, "libcuda.so.1"),
        ("./docker", 3, "put hrr-capture behind the image's name"),
    ] {
        let run = launch(&scratch, &["--", program]);
        run.expect_code(code);
        assert!(verdict(&run).contains("Nothing was recorded") && verdict(&run).contains(expected), "{run}");
    }
    let refused = launch(&scratch, &["-o", "/proc/nowhere/x.hrr", "--", text(&workload("saxpy_reduce"))]);
    refused.expect_code(0);
    assert!(verdict(&refused).contains("could not be recorded: /proc/nowhere"), "{refused}");
}

/// Formerly a window that meant nothing was refused inside the program, which ran to its end unrecorded, and a size of the host's
/// memory that was no number stood for the default in silence.
#[test]
fn settings_that_mean_nothing_keep_the_program_from_starting() {
    let scratch = Scratch::new("settings");
    let ran = scratch.path().join("ran");
    let script = format!("touch {}", text(&ran));
    type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], &'a str);
    let cases: [Case<'_>; 8] = [
        (&["--window", "launches:9..3"], &[], "HIP_HRR_CAPTURE_WINDOW=launches:9..3 is none of launches:A..B"),
        (&["--window", "tomorrow"], &[], "HIP_HRR_CAPTURE_WINDOW=tomorrow is none of"),
        (&["--flight-recorder", "64"], &[], "HIP_HRR_FLIGHT_RECORDER=64 is no size of at least 128K"),
        (&[], &[("HIP_HRR_HOST_SNAPSHOT_MAX_MB", "abc")], "HIP_HRR_HOST_SNAPSHOT_MAX_MB=abc is no whole number of MiB"),
        (&["--content"], &[("HIP_HRR_HOST_SNAPSHOT_TOTAL_MB", "-1")], "HIP_HRR_HOST_SNAPSHOT_TOTAL_MB=-1 is no whole"),
        (
            &[],
            &[("HIP_HRR_HOST_SNAPSHOT_SCOPE", "none")],
            "HIP_HRR_HOST_SNAPSHOT_SCOPE=none is neither all nor arguments",
        ),
        (&[], &[("HIP_HRR_HOST_SNAPSHOTS", "off")], "HIP_HRR_HOST_SNAPSHOTS=off is neither 0 nor 1"),
        (&["--print-environment", "--window", "x"], &[], "HIP_HRR_CAPTURE_WINDOW=x is none of"),
    ];
    for (options, variables, expected) in cases {
        let arguments = [options, &["--", "sh", "-c", script.as_str()]].concat();
        let mut command = command(&scratch, &arguments);
        command.envs(variables.iter().copied());
        let run = run(&mut command, LIMIT);
        run.expect_code(125);
        assert!(run.stderr.starts_with(&format!("hrr-capture: {expected}")), "{run}");
        assert_eq!((run.stderr.lines().count(), run.stdout.as_str()), (1, ""), "{run}");
        assert!(!ran.exists(), "{run}");
    }
    // What the launcher takes out of the environment is not looked at.
    let mut command = command(&scratch, &["--", "sh", "-c", &script]);
    run(command.env("HIP_HRR_CAPTURE_WINDOW", "x"), LIMIT).expect_code(0);
    assert!(ran.exists());
}

#[test]
fn settings_that_mean_nothing_are_named_by_the_recorder() {
    let scratch = Scratch::new("settings-by-hand");
    let saxpy = Workload::listed("saxpy_reduce");
    for (name, value, expected) in [
        (
            "HIP_HRR_HOST_SNAPSHOT_MAX_MB",
            "abc",
            "HIP_HRR_HOST_SNAPSHOT_MAX_MB=abc is no whole number of MiB: 64 is used",
        ),
        (
            "HIP_HRR_HOST_SNAPSHOT_TOTAL_MB",
            "1.5",
            "HIP_HRR_HOST_SNAPSHOT_TOTAL_MB=1.5 is no whole number of MiB: 1024 is used",
        ),
        (
            "HIP_HRR_HOST_SNAPSHOT_SCOPE",
            "x",
            "HIP_HRR_HOST_SNAPSHOT_SCOPE=x is neither all nor arguments: arguments is used",
        ),
        ("HIP_HRR_HOST_SNAPSHOTS", "x", "HIP_HRR_HOST_SNAPSHOTS=x is neither 0 nor 1: they are recorded"),
        ("HIP_HRR_CAPTURE_CONTENT", "yes", "HIP_HRR_CAPTURE_CONTENT=yes is neither 0 nor 1: no contents are recorded"),
        ("SLURM_PROCID", "first", "the rank first is no number: the manifest names none"),
    ] {
        let mut command = saxpy.command();
        recorded(&mut command, &scratch.path().join(name), Contents::Recorded);
        let run = run(command.env(name, value), LIMIT);
        run.expect_code(0);
        let lines: Vec<_> = run.stderr.lines().collect();
        assert_eq!(lines.len(), 2, "{run}");
        assert_eq!(lines[1], format!("[HRR capture] {expected}"));
    }
}

#[test]
fn a_program_with_more_rights_is_named_as_such() {
    // SAFETY: the call has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped: only root can make such a program here");
        return;
    }
    let scratch = Scratch::new("rights");
    let program = compile(&scratch, "nothing", "set_user_id", &[]);
    std::os::unix::fs::chown(&program, Some(65534), Some(65534)).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o4755)).unwrap();
    let run = launch(&scratch, &["--", "./set_user_id"]);
    assert!(verdict(&run).contains("set-user-ID"), "{run}");
}

/// Formerly the program ran to its end, and nothing was recorded.
#[test]
fn a_directory_that_cannot_be_made_is_told_before_the_program_runs() {
    // Where everybody can get, with a launcher of its own: the user that root becomes below may not see the built one.
    let folder = tempfile::tempdir().unwrap();
    for (file, place) in [(launcher(), "bin"), (built::capture_library(), "lib")] {
        let place = folder.path().join(place);
        std::fs::create_dir(&place).unwrap();
        std::fs::copy(&file, place.join(file.file_name().unwrap())).unwrap();
    }
    let closed = folder.path().join("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::set_permissions(&closed, PermissionsExt::from_mode(0o555)).unwrap();
    let output = closed.join("a/b.hrr");
    let mut command = Command::new(folder.path().join("bin/hrr-capture"));
    with_clean_environment(&mut command);
    command.args(["-o", text(&output), "--", "sh", "-c", "echo ran"]).current_dir(folder.path());
    // SAFETY: the call has no preconditions.
    if unsafe { libc::geteuid() } == 0 {
        // Root may write anywhere.
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        std::os::unix::process::CommandExt::uid(&mut command, 65534);
    }
    let refused = run(&mut command, LIMIT);
    refused.expect_code(125);
    let wanted = format!("--output {}: nothing can be made in {}: Permission denied", text(&output), text(&closed));
    assert!(refused.stderr.contains(&wanted) && refused.stdout.is_empty(), "{refused}");
}

#[test]
fn patterns_and_the_users_own_preload_are_kept() {
    let scratch = Scratch::new("patterns");
    let wrapper = compile(&scratch, "wrapper", "libwrapper.so", SHARED);
    let program = compile(&scratch, "ways", "ways", LINKED);
    let mut command = command(&scratch, &["-q", "-o", "out/%rank%-%env{JOB}%", "--", text(&program), "-", "plt"]);
    command.env("LD_PRELOAD", &wrapper).env("OMPI_COMM_WORLD_RANK", "3").env("JOB", "j7");
    let run = run(&mut command, LIMIT);
    run.expect_code(0);
    assert_eq!(run.stdout, "wrapper saw 1\n", "{run}");
    assert_eq!(verdict(&run), "", "{run}");
    let archive = hrr_format::archive::Archive::open(&scratch.path().join("out/3-j7")).unwrap();
    assert_eq!(archive.manifest().rank, Some(3));
}

#[test]
fn the_variables_can_be_set_by_hand() {
    let scratch = Scratch::new("by-hand");
    let shown = launch(&scratch, &["--content", "-o", "x.hrr", "--print-environment", "--", "true"]);
    let mut command = Workload::listed("saxpy_reduce").command();
    command.envs(shown.stdout.lines().filter_map(|line| line.split_once('=')));
    run(&mut command, LIMIT).expect_code(0);
    launch(&scratch, &["check", "x.hrr"]).expect_code(0);
    // The variables alone need no program, but a directory.
    let named = launch(&scratch, &["--content", "-o", "x.hrr", "--print-environment"]);
    assert_eq!(named.expect_code(0).stdout, shown.stdout, "{named}");
    let unnamed = launch(&scratch, &["--print-environment"]);
    unnamed.expect_code(125);
    assert!(unnamed.stderr.contains("give -o DIR"), "{unnamed}");
}

#[test]
fn signals_reach_the_program() {
    let scratch = Scratch::new("signals");
    let script = "trap 'echo got it; exit 9' TERM; echo ready; for i in $(seq 200); do sleep 0.05; done";
    let mut child = command(&scratch, &["--", "sh", "-c", script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    assert_eq!(line, "ready\n");
    // SAFETY: the process was started here and has not been waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    assert_eq!(child.wait().unwrap().code(), Some(9));
    std::io::Read::read_to_string(&mut output, &mut line).unwrap();
    assert_eq!(line, "ready\ngot it\n");
}

#[test]
fn check_tells_what_became_of_a_recording() {
    let scratch = Scratch::new("check");
    let program = workload("saxpy_reduce");
    launch(&scratch, &["--content", "-o", "whole.hrr", "--", text(&program)]).expect_code(0);
    launch(&scratch, &["-o", "metadata.hrr", "--", text(&program)]).expect_code(0);
    let killed = compile(&scratch, "surroundings", "surroundings", LINKED);
    let script = format!("{} killed; :", text(&killed));
    launch(&scratch, &["--content", "-o", "killed.hrr", "--", "sh", "-c", &script]).expect_code(0);
    std::fs::create_dir(scratch.path().join("nothing.hrr")).unwrap();
    // Formerly such an archive was called recorded, with the command that replays it.
    launch(&scratch, &["--content", "-o", "damaged.hrr", "--", text(&program)]).expect_code(0);
    let process = std::fs::read_dir(scratch.path().join("damaged.hrr")).unwrap().map(|entry| entry.unwrap().path());
    std::fs::remove_dir_all(process.filter(|path| path.is_dir()).last().unwrap().join("blobs")).unwrap();
    for (archive, code, word) in [
        ("whole.hrr", 0, "recorded:"),
        ("damaged.hrr", 1, "damaged:"),
        ("metadata.hrr", 0, "metadata-only:"),
        ("killed.hrr", 1, "incomplete:"),
        ("nothing.hrr", 1, "empty:"),
        ("missing.hrr", 1, "no such archive"),
    ] {
        let check = launch(&scratch, &["check", archive]);
        check.expect_code(code);
        assert!(check.output().contains(word), "{check}");
    }
}

#[test]
fn what_was_asked_for_and_did_not_come_about_is_said() {
    let scratch = Scratch::new("unasked");
    let program = workload("saxpy_reduce");
    let never = launch(&scratch, &["--content", "--window", "launches:5000..", "-o", "w.hrr", "--", text(&program)]);
    never.expect_code(0);
    assert_eq!(
        verdict(&never),
        "[HRR capture] Nothing was recorded: the window launches:5000.. was never opened",
        "{never}"
    );
    let mut set = command(&scratch, &["-o", "set.hrr", "--", text(&program)]);
    let set = run(set.env("HIP_HRR_CAPTURE_CONTENT", "1"), LIMIT);
    assert!(verdict(&set).contains("goes by --content alone: no contents are recorded"), "{set}");
    // Formerly a recording that had no room for a call counted as one of 0 calls, to be replayed.
    let script = format!("ulimit -f 100; exec {} --content -o l.hrr -- {}", text(&launcher()), text(&program));
    let mut limited = Command::new("bash");
    with_clean_environment(&mut limited);
    limited.args(["-c", &script]).current_dir(scratch.path()).env("LD_LIBRARY_PATH", built::libraries());
    let limited = run(&mut limited, LIMIT);
    assert!(verdict(&limited).contains("Nothing was recorded to "), "{limited}");
    assert!(!verdict(&limited).contains("Replay:"), "{limited}");
    let mut nowhere = command(&scratch, &["--content", "-o", "n.hrr", "--", text(&program)]);
    let nowhere = run(nowhere.env("TMPDIR", "/nowhere"), LIMIT);
    assert!(verdict(&nowhere).contains("No file could be made in /nowhere"), "{nowhere}");
    launch(&scratch, &["check", "n.hrr"]).expect_code(0);
}

/// Formerly the program ignored no broken pipe, whatever the launcher was told to ignore, and had a standard input that was closed.
#[test]
fn a_program_is_started_as_the_launcher_was() {
    let scratch = Scratch::new("started-as");
    let launcher = format!("{} -q -o none.hrr --", text(&launcher()));
    for around in ["trap '' PIPE; exec", "exec 0<&-; exec", "trap '' HUP USR1; exec", "exec"] {
        for program in ["grep -E 'Sig(Ign|Blk|Cgt)' /proc/self/status", "ls /proc/self/fd"] {
            let run_by = |launcher: &str| {
                let mut command = Command::new("sh");
                with_clean_environment(&mut command);
                run(command.arg("-c").arg(format!("{around} {launcher} {program}")).current_dir(scratch.path()), LIMIT)
            };
            let plain = run_by("");
            plain.expect_code(0);
            let launched = run_by(&launcher);
            launched.expect_code(0);
            assert_eq!(launched.stdout, plain.stdout, "{around} {program}");
        }
    }
}

/// Formerly the program went on without anybody to end it: that signal cannot be passed on.
#[test]
fn who_kills_the_launcher_kills_the_program() {
    use std::io::Read as _;
    let scratch = Scratch::new("killed");
    let mut command = command(
        &scratch,
        &[
            "-o",
            "none.hrr",
            "--",
            "sh",
            "-c",
            "echo started; i=0; while [ $i -lt 5000000 ]; do i=$((i+1)); done; echo ended",
        ],
    );
    let mut launched = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut output = launched.stdout.take().unwrap();
    let mut started = [0; 8];
    output.read_exact(&mut started).unwrap();
    launched.kill().unwrap();
    launched.wait().unwrap();
    // Its end closes the pipe.
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "", "the program ran on");
}

/// Formerly such a name was used as it is, and found by nobody.
#[test]
fn a_pattern_that_is_none_keeps_the_program_from_starting() {
    let scratch = Scratch::new("pattern");
    for (output, wanted) in [
        ("run-%foo%.hrr", "--output: %foo% is no pattern; there are %pid%, "),
        ("run-%env{X", "--output: %env{X is not closed"),
    ] {
        let refused = launch(&scratch, &["-o", output, "--", "touch", "ran"]);
        refused.expect_code(125);
        assert!(refused.stderr.starts_with("hrr-capture: ") && refused.stderr.lines().count() == 1, "{refused}");
        assert!(refused.stderr.contains(wanted) && !scratch.path().join("ran").exists(), "{refused}");
    }
    // By hand there is nobody to ask: it stays in the name, and is told.
    let archive = scratch.path().join("by-hand-%foo%");
    let mut command = Workload::listed("saxpy_reduce").command();
    recorded(&mut command, &archive, Contents::Withheld);
    let by_hand = run(&mut command, LIMIT);
    by_hand.expect_code(0);
    assert!(by_hand.stderr.contains("HIP_HRR_CAPTURE_OUTPUT: %foo% is no pattern: it stays in the name"), "{by_hand}");
    assert!(archive.is_dir(), "{by_hand}");
}

/// Formerly the option went to the program in silence, and an archive in its place was only said not to run.
#[test]
fn what_stands_in_the_wrong_place_is_told() {
    let scratch = Scratch::new("place");
    let program = workload("saxpy_reduce");
    let misplaced = launch(&scratch, &[text(&program), "--content"]);
    let wanted = format!("[HRR capture] --content is given to {}; put it before the program", program.display());
    assert!(misplaced.stderr.contains(&wanted), "{misplaced}");
    let meant = launch(&scratch, &["--", text(&program), "--content"]);
    assert!(!meant.stderr.contains("put it before"), "{meant}");
    let archive = scratch.path().join("saxpy_reduce.hrr");
    assert!(archive.is_dir());
    let packed = scratch.path().join("p.hrrz");
    let mut pack = Command::new(built::playback());
    run(pack.arg("--pack").arg(&archive).arg(&packed), LIMIT).expect_code(0);
    for (taken, code, wanted) in [
        ("./saxpy_reduce.hrr", 126, "is an archive and no program; replay it with: hrr-playback ./saxpy_reduce.hrr"),
        ("./p.hrrz", 126, "is an archive and no program; replay it with: hrr-playback ./p.hrrz"),
        (".", 126, "cannot be run: Permission denied (os error 13); it is a directory: name the program in it"),
        ("p.hrrz", 127, "is an archive and no program"),
        ("./none", 127, "cannot be run: No such file or directory (os error 2); look at its path"),
    ] {
        let refused = launch(&scratch, &["-o", "x.hrr", "--", taken]);
        refused.expect_code(code);
        assert!(verdict(&refused).contains(wanted) && refused.stderr.lines().count() == 1, "{refused}");
    }
    // Formerly the program ran unrecorded with these.
    let file = scratch.path().join("a-file");
    std::fs::write(&file, "x").unwrap();
    for (arguments, wanted) in [
        (["--library", text(&file)], "a-file: it is no shared library; give the path of libhrr_capture.so"),
        (["--library", text(scratch.path())], "Is a directory (os error 21); give the path of libhrr_capture.so"),
        (["-o", text(&file)], "a-file: something else than a directory is there; give -o another name"),
    ] {
        let refused = launch(&scratch, &[&arguments[..], &["--", "touch", "ran"]].concat());
        refused.expect_code(125);
        assert!(refused.stderr.contains(wanted) && !scratch.path().join("ran").exists(), "{refused}");
    }
    let behind = file.join("x.hrr");
    let wanted =
        format!("--output {}: nothing can be made in {}: not a directory; give -o", text(&behind), text(&file));
    let refused = launch(&scratch, &["-o", text(&behind), "--", "touch", "ran"]);
    refused.expect_code(125);
    assert!(refused.stderr.contains(&wanted) && !scratch.path().join("ran").exists(), "{refused}");
    for arguments in [&["--no-such-option"][..], &[], &["check"]] {
        let refused = launch(&scratch, arguments);
        refused.expect_code(125);
        let line = &refused.stderr;
        assert!(line.starts_with("hrr-capture: ") && line.lines().count() == 1, "{refused}");
        assert!(line.contains("see hrr-capture --help"), "{refused}");
    }
}

/// Formerly each launcher that was killed left its file behind, for good.
#[test]
fn what_a_killed_launcher_leaves_goes_at_the_next_start() {
    let scratch = Scratch::new("leftover");
    let mut command = command(&scratch, &["-o", "x.hrr", "--", "sh", "-c", "echo started; sleep 60"]);
    command.env("TMPDIR", scratch.path()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut launched = command.spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(launched.stdout.take().unwrap()), &mut line).unwrap();
    let journals = || -> Vec<PathBuf> {
        let found = std::fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().path());
        found.filter(|path| text(path).contains("/hrr-capture-")).collect()
    };
    let its = scratch.path().join(format!("hrr-capture-{}-0", launched.id()));
    let start = || {
        let mut other = self::command(&scratch, &["-q", "-o", "y.hrr", "--", "true"]);
        run(other.env("TMPDIR", scratch.path()), LIMIT).expect_code(0);
    };
    // That of one that lives stays.
    start();
    assert_eq!(journals(), std::slice::from_ref(&its));
    launched.kill().unwrap();
    launched.wait().unwrap();
    assert_eq!(journals(), [its]);
    start();
    assert_eq!(journals(), [] as [PathBuf; 0]);
}

/// Formerly it was said that the process had not ended by itself, which it had.
#[test]
fn a_recording_that_stopped_early_says_what_stopped_it() {
    let scratch = Scratch::new("stopped");
    let program = workload("api_rate");
    let script = format!("ulimit -f 1000; exec {} -o s.hrr -- {}", text(&launcher()), text(&program));
    let mut limited = Command::new("bash");
    with_clean_environment(&mut limited);
    limited.args(["-c", &script]).current_dir(scratch.path()).env("LD_LIBRARY_PATH", built::libraries());
    let limited = run(&mut limited, LIMIT);
    limited.expect_code(0);
    assert!(verdict(&limited).contains("ended early: ") && !verdict(&limited).contains("was killed"), "{limited}");
    let check = launch(&scratch, &["check", "s.hrr"]);
    check.expect_code(1);
    let reason = "the recording stopped before the process ended: ";
    assert!(check.stdout.contains(reason) && check.stdout.contains("File too large"), "{check}");
    let mut info = Command::new(built::playback());
    let info = run(info.arg("--info").arg(scratch.path().join("s.hrr")), LIMIT);
    assert!(info.expect_code(0).stdout.contains(&format!("Complete     : no: {reason}")), "{info}");
}
