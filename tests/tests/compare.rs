//! Planted slowdowns: `hrr-perf run` says which runtime is slower and where, and calls equal ones equal.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use hrr_tests::built;
use hrr_tests::process::{Finished, run, with_clean_environment};
use hrr_tests::recording::{Contents, Recording, Scratch, record};
use hrr_tests::replaying::Replay;
use hrr_tests::workload::Workload;

/// A build of minihip of its own, slower by these rules.
fn build(scratch: &Scratch, name: &str, rules: &str) -> PathBuf {
    let folder = scratch.path().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let lib = folder.join("libamdhip64.so.7");
    std::fs::copy(built::output("lib/libamdhip64.so.7"), &lib).unwrap();
    std::fs::write(folder.join("minihip-slow"), rules).unwrap();
    lib
}

fn recorded_as(workload: &str) -> Recording {
    record(&Workload::listed(workload), Contents::Recorded)
}

fn compared(archive: &Path, first: &Path, second: &Path) -> Finished {
    let mut command = Command::new(built::output("bin/hrr-perf"));
    with_clean_environment(&mut command);
    command.arg("run").arg("--hip-lib").arg(first).arg("--hip-lib").arg(second);
    // As few as have enough asked of them that chance does not look like a difference.
    command.args(["--repeat", "8", "--inner", "1", "--warmup", "0"]).arg(archive).args(["--", "--threads", "1"]);
    run(&mut command, Duration::from_secs(240))
}

/// Whether one of three verdicts on a build with `rules` against one without names one of these: on a machine with much else to do
/// any single one may be about that.
fn is_named(workload: &str, rules: &str, what: &[&str]) -> Result<(), String> {
    let mut said = String::new();
    for _ in 0..3 {
        let verdict = verdict(workload, rules);
        if what.iter().any(|what| is_found(&verdict, what)) {
            return Ok(());
        }
        said = said + &verdict + "\n";
    }
    Err(said)
}

/// The verdict on a build with `rules` against one without.
fn verdict(workload: &str, rules: &str) -> String {
    let recording = record(&Workload::listed(workload), Contents::Recorded);
    let scratch = Scratch::new("compare");
    let (first, second) = (build(&scratch, "before", ""), build(&scratch, "after", rules));
    let finished = compared(&recording.archive, &first, &second);
    finished.expect_code(0);
    let line = finished.stdout.lines().find(|line| line.starts_with("verdict")).map(str::to_owned);
    line.unwrap_or_else(|| panic!("no verdict\n{finished}"))
}

/// Whether a verdict says that this is slower: of the wall time, or of a typical one where a busy machine hides that.
fn is_found(verdict: &str, what: &str) -> bool {
    let of_wall = verdict.contains("% slower") && verdict.ends_with(&format!(" in {what}"));
    of_wall || verdict.contains(&format!("a typical {what} takes "))
}

#[test]
fn a_slow_launch_is_found() {
    is_named("api_rate", "api:hipLaunchKernel:20us", &["hipLaunchKernel"]).unwrap();
}

#[test]
fn a_slow_kernel_is_found() {
    is_named("saxpy_reduce", "kernel:saxpy:2000us", &["kernel saxpy"]).unwrap();
}

#[test]
fn a_slow_lock_in_stream_synchronisation_is_found() {
    // The lock is held without sleeping, and minihip's kernels run on the same cores: where these are taken, the kernels wait for them.
    is_named("threads8", "lock:streamsync:1000us", &["hipStreamSynchronize", "kernel mix"]).unwrap();
}

#[test]
fn builds_that_differ_in_noise_alone_are_equal() {
    let recording = record(&Workload::listed("threads8"), Contents::Recorded);
    let scratch = Scratch::new("compare");
    let (first, second) = (build(&scratch, "before", "noise:50us"), build(&scratch, "after", "noise:50us"));
    // One comparison in some hundred finds a difference by chance; two in a row do not.
    let said: Vec<Finished> = (0..2)
        .map(|_| compared(&recording.archive, &first, &second))
        .take_while(|finished| !finished.expect_code(0).stdout.contains("verdict    no difference"))
        .collect();
    assert!(said.len() < 2, "{}{}", said[0], said[1]);
}

#[test]
fn a_slower_copy_of_one_kind_is_found() {
    let either = ["hipMemcpyAsync H2D <= 1 MiB", "hipMemcpyAsync H2D <= 16 MiB"];
    is_named("transfer_rate", "copy:h2d:4000us", &either).unwrap();
}

#[test]
fn a_folder_of_archives_gives_a_table() {
    let (first, second) = (recorded_as("saxpy_reduce"), recorded_as("async_copies"));
    let scratch = Scratch::new("compare");
    let folder = scratch.path().join("archives");
    std::fs::create_dir_all(&folder).unwrap();
    for recording in [&first, &second] {
        std::os::unix::fs::symlink(&recording.archive, folder.join(recording.archive.file_name().unwrap())).unwrap();
    }
    let (before, after) = (build(&scratch, "before", ""), build(&scratch, "after", ""));
    let table = |more: &[&str]| {
        let mut command = Command::new(built::output("bin/hrr-perf"));
        with_clean_environment(&mut command);
        command.arg("run").arg("--hip-lib").arg(&before).arg("--hip-lib").arg(&after);
        command.args(["--repeat", "2", "--inner", "1", "--warmup", "0"]).args(more).arg(&folder);
        run(&mut command, Duration::from_secs(240))
    };
    let text = table(&[]);
    let lines: Vec<&str> = text.expect_code(0).stdout.lines().collect();
    assert!(lines.len() == 3 && lines[0].starts_with("archive") && lines[0].ends_with("verdict"), "{text}");
    assert!(lines[1].starts_with("async_copies.hrr ") && lines[2].starts_with("saxpy_reduce.hrr "), "{text}");
    let json = table(&["--json"]);
    let value = serde_json::from_str(&json.expect_code(0).stdout).unwrap();
    hrr_tests::schema::expect("perf/schema/comparisons.json", &value);
}

/// A replayer that does something else than asked before or behind the real one.
fn replayer(scratch: &Scratch, script: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = scratch.path().join("replayer");
    let real = built::playback();
    std::fs::write(&path, script.replace("REAL", &real.display().to_string())).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn compared_by(replayer: &Path, archive: &Path, first: &Path, second: &Path) -> Finished {
    let mut command = Command::new(built::output("bin/hrr-perf"));
    with_clean_environment(&mut command);
    command.arg("run").arg("--hip-lib").arg(first).arg("--hip-lib").arg(second).arg("--playback").arg(replayer);
    command.args(["--repeat", "2", "--inner", "1", "--warmup", "0"]).arg(archive);
    run(&mut command, Duration::from_secs(120))
}

#[test]
fn another_library_than_asked_for_is_noticed_by_its_path_and_its_version() {
    let recording = recorded_as("saxpy_reduce");
    let scratch = Scratch::new("compare");
    let (first, second) = (build(&scratch, "before", ""), build(&scratch, "after", ""));
    // Always the first library, whatever is asked for.
    let script =
        format!("#!/bin/sh\narchive=$1; shift 3\nexec REAL \"$archive\" --hip-lib {} \"$@\"\n", first.display());
    let finished = compared_by(&replayer(&scratch, &script), &recording.archive, &first, &second);
    let told = &finished.expect_code(2).stderr;
    assert!(told.contains("asked for") && told.contains("after/") && told.contains("was loaded"), "{finished}");
    // The library of a side says another version from some run on.
    let script = "#!/bin/sh\nREAL \"$@\" || exit\nreport=$5\n\
                  [ -e \"$0.ran\" ] && sed -i 's/\"version\": [0-9]*/\"version\": 1/' \"$report\"\ntouch \"$0.ran\"\nexit 0\n";
    let finished = compared_by(&replayer(&scratch, script), &recording.archive, &first, &second);
    assert!(finished.expect_code(2).stderr.contains("it was replaced meanwhile"), "{finished}");
    // A run that does not pass has no times.
    let script = "#!/bin/sh\necho no; exit 1\n";
    let finished = compared_by(&replayer(&scratch, script), &recording.archive, &first, &second);
    assert!(finished.expect_code(2).stderr.contains("did not pass"), "{finished}");
}

#[test]
fn what_was_recorded_is_one_run_among_the_replays() {
    let recording = recorded_as("threads8");
    let scratch = Scratch::new("compare");
    let report = scratch.path().join("report.json");
    let written = ["--repeat", "6", "--report", report.to_str().unwrap()];
    Replay::of_recording(&recording).args(written).run().expect_pass();
    let mut command = Command::new(built::output("bin/hrr-perf"));
    let finished = run(command.arg("compare").arg(&recording.archive).arg(&report), Duration::from_secs(60));
    let text = &finished.expect_code(0).stdout;
    let verdict = text.lines().find(|line| line.starts_with("verdict")).unwrap_or_default();
    assert!(verdict.contains("A ran once, B 6 times: the time inside HIP calls is "), "{finished}");
    assert!(verdict.contains("of theirs between calls") && text.contains("recorded program's times"), "{finished}");
}

#[test]
fn a_runtime_is_not_compared_with_itself() {
    let scratch = Scratch::new("compare");
    let lib = build(&scratch, "one", "");
    let finished = compared(&lib, &lib, &lib);
    assert!(finished.expect_code(2).stderr.contains("are the same file"), "{finished}");
    // An archive that is not there is told by one line, before a replay is started.
    let finished = compared(Path::new("nothing"), &lib, &lib);
    assert_eq!(
        finished.expect_code(2).stderr,
        "hrr-perf: nothing: No such file or directory (os error 2); give an archive, or a folder of archives\n"
    );
}

/// Formerly an archive was told by its name alone.
#[test]
fn a_packed_archive_may_have_any_name() {
    let recording = recorded_as("saxpy_reduce");
    let scratch = Scratch::new("compare");
    let (packed, report) = (scratch.path().join("sent"), scratch.path().join("report.json"));
    let program = |name: &str| {
        let mut command = Command::new(built::output(&format!("bin/{name}")));
        with_clean_environment(&mut command);
        command
    };
    let limit = Duration::from_secs(60);
    run(program("hrr-playback").arg("--pack").arg(&recording.archive).arg(&packed), limit).expect_code(0);
    run(program("hrr-playback").arg(&packed).arg("--info").arg("--report").arg(&report), limit).expect_code(0);
    let compared = run(program("hrr-perf").arg("compare").arg(&packed).arg(&report), limit);
    compared.expect_code(0);
    let wrong = scratch.path().join("wrong.hrrz");
    std::fs::write(&wrong, "no archive").unwrap();
    let refused = run(program("hrr-perf").arg("compare").arg(&wrong).arg(&report), limit);
    refused.expect_code(2);
    assert!(refused.stderr.contains("wrong.hrrz") && refused.stderr.contains("packed archive"), "{refused}");
}

/// Formerly the first archive that could not be replayed took the comparison of all others with it.
#[test]
fn an_archive_that_cannot_be_replayed_takes_nothing_from_the_others_of_its_folder() {
    let folder = Scratch::new("folder");
    for (name, contents) in [("a", Contents::Withheld), ("b", Contents::Recorded), ("c", Contents::Withheld)] {
        let recording = record(&Workload::listed("saxpy_reduce"), contents);
        std::fs::rename(&recording.archive, folder.path().join(format!("{name}.hrr"))).unwrap();
    }
    let libs = Scratch::new("compare");
    let (first, second) = (build(&libs, "one", ""), build(&libs, "two", ""));
    let run_all = |limit: &[&str]| {
        let mut command = Command::new(built::output("bin/hrr-perf"));
        with_clean_environment(&mut command);
        command.arg("run").arg("--hip-lib").arg(&first).arg("--hip-lib").arg(&second).args(limit);
        command.args(["--repeat", "1", "--inner", "1", "--warmup", "0"]).arg(folder.path());
        run(&mut command, Duration::from_secs(240))
    };
    let finished = run_all(&[]);
    finished.expect_code(2);
    assert!(finished.stdout.lines().any(|line| line.starts_with("b.hrr ")), "{finished}");
    let told: Vec<&str> = finished.stderr.lines().collect();
    assert_eq!(told.len(), 2, "{finished}");
    for (line, name) in told.iter().zip(["a.hrr", "c.hrr"]) {
        let is_told = line.contains(&format!("{name}: left out: the replay on ")) && line.contains("--content");
        assert!(line.starts_with("hrr-perf: ") && is_told, "{finished}");
    }
}
