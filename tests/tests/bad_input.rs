//! What a user gets wrong, and archives that are not whole: one clear line that names the file and the remedy, exit 1.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use hrr_tests::built;
use hrr_tests::process::{Finished, run};
use hrr_tests::recording::{Contents, Recording, Scratch, record, recorded};
use hrr_tests::replaying::Replay;
use hrr_tests::workload::Workload;

/// Exit 1, no panic, and one line of complaint that holds each of `words`.
#[track_caller]
fn expect_refusal(run: &Finished, words: &[&str]) {
    run.expect_code(1);
    let complaint: Vec<&str> = run.stderr.lines().filter(|line| !line.trim().is_empty()).collect();
    assert_eq!(complaint.len(), 1, "one line says what is wrong\n{run}");
    for word in words {
        assert!(complaint[0].contains(word), "the line names {word:?}\n{run}");
    }
    assert!(!run.stdout.contains("[HRR] PASS"), "{run}");
}

fn small_recording() -> Recording {
    record(&Workload::listed("saxpy_reduce"), Contents::Recorded)
}

/// The first stream file of a recording.
fn stream_file(archive: &Path) -> PathBuf {
    let process = fs::read_dir(archive).unwrap().map(|entry| entry.unwrap().path()).find(|path| path.is_dir());
    let events = process.expect("a process directory").join("events");
    let mut files: Vec<PathBuf> = fs::read_dir(events).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.remove(0)
}

#[test]
fn a_missing_archive() {
    let run = Replay::of(Path::new("/nonexistent/archive.hrr")).run().run;
    expect_refusal(&run, &["/nonexistent/archive.hrr", "HIP_HRR_CAPTURE_OUTPUT"]);
}

#[test]
fn an_empty_directory() {
    let scratch = Scratch::new("empty");
    let run = Replay::of(scratch.path()).run().run;
    expect_refusal(&run, &[scratch.path().to_str().unwrap(), "HIP_HRR_CAPTURE_OUTPUT"]);
}

#[test]
fn no_archive_at_all() {
    let run = run(&mut Command::new(built::playback()), Duration::from_secs(60));
    run.expect_code(1);
    assert!(run.output().to_lowercase().contains("usage"), "{run}");
}

#[test]
fn an_unknown_option() {
    let recording = small_recording();
    let run = Replay::of(&recording.archive).args(["--no-such-option"]).run().run;
    run.expect_code(1);
    assert!(run.stderr.contains("--no-such-option"), "{run}");
}

#[test]
fn a_truncated_stream_file() {
    let recording = small_recording();
    let file = stream_file(&recording.archive);
    // Past the header page and into the records.
    fs::File::options().write(true).open(&file).unwrap().set_len(4096 + 200).unwrap();
    expect_refusal(&Replay::of(&recording.archive).run().run, &[file.to_str().unwrap(), "copy it again"]);
}

#[test]
fn a_stream_file_cut_within_its_header() {
    let recording = small_recording();
    let file = stream_file(&recording.archive);
    fs::File::options().write(true).open(&file).unwrap().set_len(100).unwrap();
    expect_refusal(&Replay::of(&recording.archive).run().run, &[file.to_str().unwrap(), "copy it again"]);
}

#[test]
fn a_wrong_magic() {
    let recording = small_recording();
    let file = stream_file(&recording.archive);
    let mut bytes = fs::read(&file).unwrap();
    bytes[..8].copy_from_slice(b"NOT-EVS\n");
    fs::write(&file, bytes).unwrap();
    expect_refusal(
        &Replay::of(&recording.archive).run().run,
        &[file.to_str().unwrap(), "first bytes", "copy it again"],
    );
}

#[test]
fn a_manifest_that_is_not_json() {
    let recording = small_recording();
    let manifest = stream_file(&recording.archive).parent().unwrap().with_file_name("manifest.json");
    fs::write(&manifest, "{ \"format\": ").unwrap();
    expect_refusal(&Replay::of(&recording.archive).run().run, &[manifest.to_str().unwrap()]);
}

#[test]
fn a_missing_stream_file() {
    let recording = record(&Workload::listed("threads8"), Contents::Recorded);
    let file = stream_file(&recording.archive);
    fs::remove_file(&file).unwrap();
    expect_refusal(&Replay::of(&recording.archive).run().run, &[file.parent().unwrap().to_str().unwrap()]);
}

#[test]
fn a_blob_that_was_changed() {
    let recording = small_recording();
    let pack = stream_file(&recording.archive).parent().unwrap().with_file_name("blobs").join("pack-0.bin");
    let mut bytes = fs::read(&pack).unwrap();
    for byte in &mut bytes {
        *byte ^= 0x55;
    }
    fs::write(&pack, bytes).unwrap();
    let run = Replay::of(&recording.archive).run().run;
    run.expect_code(1);
    assert!(run.stderr.contains("blobs"), "the store is named\n{run}");
}

#[test]
fn every_byte_of_a_small_stream_file_may_be_wrong() {
    let recording = small_recording();
    let file = stream_file(&recording.archive);
    let good = fs::read(&file).unwrap();
    // Every 7th byte of the header's fields and of the first records.
    for offset in (0..64).chain(4096..6000).step_by(7) {
        let mut bytes = good.clone();
        bytes[offset] ^= 0xff;
        fs::write(&file, bytes).unwrap();
        let run = run(Command::new(built::playback()).arg("--info").arg(&recording.archive), Duration::from_secs(60));
        let calm = matches!(run.end, hrr_tests::process::End::Code(0 | 1)) && !run.stderr.contains("panicked");
        assert!(calm, "byte {offset} inverted\n{run}");
    }
}

#[test]
fn a_runtime_that_is_not_there() {
    let recording = small_recording();
    let run = Replay::of(&recording.archive).args(["--hip-lib", "/nonexistent/libamdhip64.so"]).run().run;
    expect_refusal(&run, &["/nonexistent/libamdhip64.so", "--hip-lib"]);
}

#[test]
fn a_runtime_that_is_no_library() {
    let recording = small_recording();
    let scratch = Scratch::new("text");
    let text = scratch.path().join("libamdhip64.so");
    fs::write(&text, "this is a text file\n").unwrap();
    let run = Replay::of(&recording.archive).args(["--hip-lib", text.to_str().unwrap()]).run().run;
    expect_refusal(&run, &[text.to_str().unwrap(), "--hip-lib"]);
}

#[test]
fn a_standard_error_that_nobody_reads_changes_no_exit_code() {
    let recording = small_recording();
    let archive = recording.archive.to_str().unwrap();
    let missing = "/nonexistent/app.hrr";
    for (program, arguments, code) in [
        ("hrr-playback", &[missing][..], 1),
        ("hrr-playback", &[archive, "--report", "/nonexistent/report.json"], 1),
        ("hrr-playback", &[archive, "--trace-kernels"], 0),
        ("hrr-perf", &["compare", missing, missing], 2),
        ("hrr-capture", &["check", missing], 1),
        ("hrr-capture", &["--", "/nonexistent/app"], 127),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(built::output(&format!("bin/{program}")));
        command.args(arguments).env("LD_LIBRARY_PATH", built::libraries()).stderr(writer);
        let status = command.stdout(std::process::Stdio::null()).status().unwrap();
        assert_eq!(status.code(), Some(code), "{program} {arguments:?}");
    }
}

#[test]
fn what_would_choose_nothing_is_refused() {
    let recording = small_recording();
    let refused = |arguments: &[&str]| Replay::of_recording(&recording).args(arguments.iter().copied()).run().run;
    expect_refusal(&refused(&["--replace-kernel", "axpy=/nonexistent"]), &["axpy", "launched: block_sum"]);
    for option in ["--range", "--kernels"] {
        let run = refused(&[option, "5..2"]);
        run.expect_code(1);
        assert!(run.stderr.contains("A less than B"), "{run}");
    }
}

#[test]
fn no_runtime_anywhere() {
    let recording = small_recording();
    let replay = Replay::of(&recording.archive).without_env("LD_LIBRARY_PATH").env("ROCM_PATH", "/nonexistent");
    let run = replay.run().run;
    // Where the machine has a HIP runtime installed the loader finds that one, and no device.
    run.expect_code(1);
    assert!(!run.stderr.contains("panicked"), "{run}");
}

#[test]
fn a_runtime_that_lacks_what_the_archive_calls() {
    let recording = small_recording();
    let scratch = Scratch::new("stub");
    let source = scratch.path().join("stub.c");
    let library = scratch.path().join("libamdhip64.so");
    // As little as a replayer may need before it looks for what the archive calls.
    fs::write(
        &source,
        "#include <string.h>\n\
         int hipInit(unsigned flags) { (void)flags; return 0; }\n\
         int hipGetDeviceCount(int *count) { *count = 1; return 0; }\n\
         int hipSetDevice(int device) { (void)device; return 0; }\n\
         int hipGetDevice(int *device) { *device = 0; return 0; }\n\
         int hipRuntimeGetVersion(int *version) { *version = 70000000; return 0; }\n\
         int hipDriverGetVersion(int *version) { *version = 70000000; return 0; }\n\
         int hipGetLastError(void) { return 0; }\n\
         int hipDeviceSynchronize(void) { return 0; }\n\
         const char *hipGetErrorName(int error) { (void)error; return \"hipSuccess\"; }\n\
         const char *hipGetErrorString(int error) { (void)error; return \"no error\"; }\n",
    )
    .unwrap();
    let compiled = Command::new("gcc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    assert!(compiled.expect("gcc is installed by scripts/setup").success());
    let run = Replay::of(&recording.archive).args(["--hip-lib", library.to_str().unwrap()]).run().run;
    expect_refusal(&run, &[library.to_str().unwrap(), "hip"]);
}

#[test]
fn a_root_with_several_processes_asks_which() {
    let scratch = Scratch::new("several");
    let archive = scratch.path().join("both.hrr");
    for _ in 0..2 {
        let mut command = Workload::listed("saxpy_reduce").command();
        recorded(&mut command, &archive, Contents::Recorded);
        run(&mut command, Duration::from_secs(60)).expect_code(0);
    }
    let mut processes: Vec<PathBuf> =
        fs::read_dir(&archive).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect();
    processes.sort();
    assert_eq!(processes.len(), 2);
    let refused = Replay::of(&archive).run().run;
    refused.expect_code(1);
    for process in &processes {
        assert!(refused.output().contains(process.file_name().unwrap().to_str().unwrap()), "{refused}");
        Replay::of(process).run().expect_pass();
    }
    let info = run(Command::new(built::playback()).arg("--info").arg(&archive), Duration::from_secs(60));
    info.expect_code(0);
}

#[test]
fn looking_at_an_archive_needs_no_runtime() {
    let recording = small_recording();
    let look = |arguments: &[&str]| {
        let mut command = Command::new(built::playback());
        command.args(arguments).env_remove("LD_LIBRARY_PATH").env("ROCM_PATH", "/nonexistent");
        let run = run(&mut command, Duration::from_secs(60));
        run.expect_code(0);
        run.stdout
    };
    let archive = recording.archive.to_str().unwrap();
    assert!(look(&["--info", archive]).contains("saxpy"));
    assert!(look(&["--info", "--events", archive]).contains("hipMalloc"));
    assert!(look(&["--version"]).contains(env!("CARGO_PKG_VERSION")));
    assert!(look(&["--help"]).contains("--threads"));
}
