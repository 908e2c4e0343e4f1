//! What a user gets wrong, and archives that are not whole: one clear line that names the file and the remedy, exit 1.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use hrr_format::archive::process_dir;
use hrr_format::archive_writer::ArchiveWriter;
use hrr_format::stream_file::ContentsMode;
use hrr_tests::process::{Finished, run};
use hrr_tests::recording::{Contents, Recording, Scratch, record, recorded};
use hrr_tests::replaying::Replay;
use hrr_tests::workload::Workload;
use hrr_tests::{built, files};

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
    expect_refusal(&run, &["[HRR] ", "<ARCHIVE>", "usage: hrr-playback ", "see hrr-playback --help"]);
}

#[test]
fn an_unknown_option() {
    let recording = small_recording();
    let run = Replay::of(&recording.archive).args(["--no-such-option"]).run().run;
    expect_refusal(&run, &["[HRR] unexpected argument '--no-such-option' found", "see hrr-playback --help"]);
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
    expect_refusal(&Replay::of(&recording.archive).run().run, &[manifest.to_str().unwrap(), "--repair"]);
    // Formerly one that is not there was told without what to do.
    fs::remove_file(&manifest).unwrap();
    let wanted =
        [manifest.to_str().unwrap(), "cannot be read: ", "copy the archive again, whole, or have --repair make one"];
    expect_refusal(&Replay::of(&recording.archive).run().run, &wanted);
}

/// Formerly they had to be there for some options, and were made for others.
#[test]
fn missing_folders_are_made_for_whatever_is_written() {
    let recording = small_recording();
    let scratch = Scratch::new("folders");
    for (number, arguments) in [
        &["--report", "TO/a.json"][..],
        &["--trace", "TO/a.json"],
        &["--log-order", "TO/a"],
        &["--sync-watchdog-ms", "60000", "--triage", "TO/a.json"],
        &["--info", "--csv", "TO/tables"],
        &["--info", "--report", "TO/a.json"],
        &["--info", "--trace", "TO/a.json"],
    ]
    .iter()
    .enumerate()
    {
        let folder = scratch.path().join(format!("{number}/new"));
        let arguments = arguments.iter().map(|text| text.replace("TO", folder.to_str().unwrap())).collect::<Vec<_>>();
        let run = Replay::of(&recording.archive).args(arguments.iter().map(String::as_str)).run().run;
        run.expect_code(0);
        let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&folder).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o700, "{run}");
    }
}

#[test]
fn a_missing_stream_file() {
    let recording = record(&Workload::listed("threads8"), Contents::Recorded);
    let file = stream_file(&recording.archive);
    fs::remove_file(&file).unwrap();
    expect_refusal(&Replay::of(&recording.archive).run().run, &[file.parent().unwrap().to_str().unwrap()]);
}

/// Formerly each of these passed with what was left, or was told as something else.
#[test]
fn what_is_missing_from_a_whole_archive_is_told_by_name() {
    let cut =
        |path: &Path, len_bytes: u64| fs::File::options().write(true).open(path).unwrap().set_len(len_bytes).unwrap();
    let hole = |path: &Path| {
        let mut bytes = fs::read(path).unwrap();
        bytes[4096..4096 + 64].fill(0);
        fs::write(path, bytes).unwrap();
    };
    let zeros = |path: &Path| fs::write(path, vec![0; fs::metadata(path).unwrap().len() as usize]).unwrap();
    type Change<'a> = &'a dyn Fn(&Path);
    let cases: [(&str, Change<'_>, &[&str]); 6] = [
        (
            "events/1.evs",
            &|path| cut(path, 0),
            &["holds no record", "calls that the manifest counts", "copy the archive again"],
        ),
        ("events/1.evs", &zeros, &["holds no record", "calls that the manifest counts"]),
        ("events/1.evs", &hole, &["is damaged at byte 4096: no record is there", "copy it again"]),
        (
            "kernels.jsonl",
            &|path| fs::remove_file(path).unwrap(),
            &["missing or not whole: 0 of the 3 kernels", "copy the archive"],
        ),
        ("kernels.jsonl", &|path| cut(path, 0), &["missing or not whole: 0 of the 3 kernels"]),
        ("blobs/index", &|path| fs::remove_file(path).unwrap(), &["the archive is damaged"]),
    ];
    let recording = record(&Workload::listed("threads8"), Contents::Recorded);
    let process = stream_file(&recording.archive).parent().unwrap().parent().unwrap().to_owned();
    for (name, change, words) in cases {
        let path = process.join(name);
        let good = fs::read(&path).unwrap();
        change(&path);
        let replayed = Replay::of(&recording.archive).run().run;
        expect_refusal(&replayed, words);
        let command = |program: &str, arguments: &[&str]| {
            let mut command = Command::new(built::output(&format!("bin/{program}")));
            run(command.args(arguments).arg(&recording.archive), Duration::from_secs(60))
        };
        command("hrr-playback", &["--verify"]).expect_code(1);
        // What can be read of it is listed.
        command("hrr-playback", &["--info"]).expect_code(0);
        let check = command("hrr-capture", &["check"]);
        // It looks at whether files are there, not at each record.
        let is_seen = name == "kernels.jsonl" || words[0] == "holds no record";
        assert!(!is_seen || check.expect_code(1).stdout.contains("warning: "), "{check}");
        if name == "kernels.jsonl" {
            // What is lost of a whole recording stays lost, and is said.
            let repaired = command("hrr-playback", &["--repair"]);
            assert!(
                repaired.expect_code(0).stdout.contains("3 kernels of the 3 that were counted are lost"),
                "{repaired}"
            );
            let replayed = Replay::of(&recording.archive).run().run;
            expect_refusal(&replayed, &["lacks its kernel's line in kernels.jsonl"]);
            let manifest = process.join("manifest.json");
            let text = fs::read_to_string(&manifest).unwrap().replace("\"kernel_count\": 0", "\"kernel_count\": 3");
            fs::write(&manifest, text).unwrap();
            for note in files::below(&process).iter().filter(|path| path.to_str().unwrap().contains("repair")) {
                fs::remove_file(note).unwrap();
            }
        }
        fs::write(&path, good).unwrap();
    }
    Replay::of(&recording.archive).run().expect_pass();
    // More calls than there are, wherever the others were.
    let manifest = process.join("manifest.json");
    let text = fs::read_to_string(&manifest).unwrap().replace("\"event_count\": 2026", "\"event_count\": 2027");
    fs::write(&manifest, text).unwrap();
    expect_refusal(&Replay::of(&recording.archive).run().run, &["holds 2026 calls and its manifest counts 2027"]);
}

/// Formerly such an archive passed, and `PASS` stood for nothing.
#[test]
fn an_archive_without_a_call_is_nothing_to_replay() {
    let empty = |root: &Path| {
        ArchiveWriter::create(&process_dir(root, 9), 9, ContentsMode::Contents).unwrap().finish().unwrap()
    };
    let scratch = Scratch::new("nothing");
    empty(scratch.path());
    for arguments in [&[][..], &["--shape-only"], &["--repeat", "3"]] {
        let run = Replay::of(scratch.path()).args(arguments.iter().copied()).run().run;
        expect_refusal(&run, &["pid-9: nothing was recorded: the program made no HIP call"]);
    }
    let all = |path: &Path| Replay::of(path).args(["--all-processes"]).run().run;
    expect_refusal(&all(scratch.path()), &["nothing was recorded: no process made a HIP call"]);
    // Beside a process that made calls it is left out, and said.
    let recording = small_recording();
    empty(&recording.archive);
    let both = all(&recording.archive);
    both.expect_code(0);
    assert!(both.stdout.contains("pid-9 is left out: it made no HIP call"), "{both}");
    assert!(both.stdout.contains("All processes: 1 of 1 passed"), "{both}");
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
    let recorder = built::capture_library();
    let run = Replay::of(&recording.archive).args(["--hip-lib", recorder.to_str().unwrap()]).run().run;
    expect_refusal(
        &run,
        &["libhrr_capture.so is HRR's recorder and not a HIP runtime; give the path of a libamdhip64.so"],
    );
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
        ("hrr-playback", &[archive, "--report", "/dev/null/report.json"], 1),
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

/// Formerly a limit on the size of files ended the player by a signal, and half an archive stayed where one was to be made.
#[test]
fn what_cannot_be_written_is_told_and_no_half_archive_stays() {
    let recording = record(&Workload::listed("threads8"), Contents::Recorded);
    let scratch = Scratch::new("full");
    let (archive, packed) = (recording.archive.to_str().unwrap(), scratch.path().join("packed"));
    let packed_text = packed.to_str().unwrap();
    let playback = |limit: &str, arguments: &[&str]| {
        let mut command = Command::new("bash");
        command.args(["-c", &format!("{limit} exec \"$@\""), "bash"]).arg(built::playback()).args(arguments);
        command.env("LD_LIBRARY_PATH", built::libraries());
        run(&mut command, Duration::from_secs(60))
    };
    playback("", &["--pack", archive, packed_text]).expect_code(0);
    let target = scratch.path().join("target.json");
    let to = target.to_str().unwrap();
    for arguments in [
        &["--pack", archive, to][..],
        &["--unpack", packed_text, to],
        &["--convert", archive, to],
        &[archive, "--trace", to],
        &[archive, "--log-order", to],
        &[archive, "--info", "--csv", to],
    ] {
        let is_log = arguments[1] == "--log-order";
        // This one is written after a whole replay, in which minihip makes files too.
        let run = playback(if is_log { "ulimit -f 20;" } else { "ulimit -f 4;" }, arguments);
        run.expect_code(1);
        assert!(run.stderr.contains(to) && run.stderr.contains("File too large"), "{run}");
        let half = (arguments[0].starts_with("--") || is_log) && target.exists();
        assert!(!half, "{run}");
        let _ = fs::remove_file(&target).or_else(|_| fs::remove_dir_all(&target));
    }
    for arguments in [&[archive][..], &[archive, "--info"], &["--version"]] {
        let run = playback("exec > /dev/full;", arguments);
        run.expect_code(1);
        // Once, where there was more than one thing to print.
        assert_eq!(run.stderr.matches("the output cannot be written: No space left on device").count(), 1, "{run}");
    }
    // What is what already is not made so again, and is not called something else.
    let again = playback("", &["--pack", packed_text, to]);
    expect_refusal(&again, &[packed_text, "is a packed archive already"]);
    expect_refusal(&playback("", &["--unpack", archive, to]), &[archive, "is not a packed archive"]);
}

#[test]
fn what_would_choose_nothing_is_refused() {
    let recording = small_recording();
    let refused = |arguments: &[&str]| Replay::of_recording(&recording).args(arguments.iter().copied()).run().run;
    expect_refusal(&refused(&["--replace-kernel", "axpy=/nonexistent"]), &["axpy", "launched: block_sum"]);
    // Formerly a runtime was given whatever the file held, and one that trusts it ended the process by a signal.
    let scratch = Scratch::new("no-code");
    for contents in ["", "\x7fEL", "no code object"] {
        let file = scratch.path().join("file");
        fs::write(&file, contents).unwrap();
        let run = refused(&["--replace-kernel", &format!("block_sum={}", file.display())]);
        expect_refusal(&run, &["--replace-kernel: ", "which is neither a bundle nor an ELF image"]);
    }
    for option in ["--range", "--kernels"] {
        let run = refused(&[option, "5..2"]);
        run.expect_code(1);
        assert!(run.stderr.contains("A less than B"), "{run}");
    }
}

/// The first line of the complaint is `wanted` to its end, or up to what the machine decides.
#[test]
fn values_that_mean_nothing_are_refused_by_option_or_variable() {
    let recording = small_recording();
    for (option, value, wanted) in [
        (
            "--kernel-filter",
            "nosuch",
            "[HRR] --kernel-filter: no kernel whose name contains \"nosuch\" is launched; launched: block_sum, iota, saxpy",
        ),
        ("--device-map", "5:0", "[HRR] --device-map: the archive has no device 5; it has 0"),
        ("--device-map", "5:5", "[HRR] --device-map: the archive has no device 5; it has 0"),
        ("--device-map", "0:9", "[HRR] --device-map: the runtime has no device 9; it has 0"),
        (
            "--device-map",
            "-1:0",
            "[HRR] invalid value '-1:0' for '--device-map <MAP>': '-1:0' is no pair of device numbers",
        ),
        ("--pin", "8191", "[HRR] --pin: this process cannot run on CPU 8191; it can on "),
        ("--pin", "0,8190-8191", "[HRR] --pin: this process cannot run on CPU 8190-8191; it can on "),
        ("--repeat", "-1", "[HRR] --repeat -1: give a whole number of 1 or more"),
        ("--repeat", "0", "[HRR] --repeat 0: give a whole number of 1 or more"),
        ("--threads", "-1", "[HRR] --threads -1: give a whole number of 0 or more"),
        ("--warmup", "many", "[HRR] --warmup many: give a whole number of 0 or more"),
        ("--sync-watchdog-ms", "1.5", "[HRR] --sync-watchdog-ms 1.5: give a whole number of 0 or more"),
        ("--rank", "-1", "[HRR] invalid value '-1' for '--rank <N>': \"-1\" is neither a number nor `own`"),
    ] {
        let run = Replay::of_recording(&recording).args([option, value]).run().run;
        run.expect_code(1);
        assert!(run.stderr.starts_with(wanted), "{option} {value}\n{run}");
        assert!(!run.stdout.contains("PASS"), "{run}");
    }
    for (variable, value, allowed) in [
        ("HIP_HRR_REPLAY_ALLOC_PAD_FACTOR", "0", "a whole number from 1 to 4096"),
        ("HIP_HRR_REPLAY_ALLOC_PAD_FACTOR", "4097", "a whole number from 1 to 4096"),
        ("HIP_HRR_REPLAY_ALLOC_PAD_MAX", "1G", "a whole number of bytes"),
        ("HIP_HRR_REPLAY_ZERO_INIT", "yes", "0 or 1"),
        ("HIP_HRR_REPLAY_FILL_BYTE", "256", "a byte, 0 to 255"),
        ("HIP_HRR_REPLAY_DIVERGENCE_ABORT", "7", "a fraction from 0 to 1 (0: never stop)"),
        ("HIP_HRR_REPLAY_DIVERGENCE_ABORT", "nan", "a fraction from 0 to 1 (0: never stop)"),
        ("HIP_HRR_REPLAY_DIVERGENCE_MIN_SAMPLES", "-1", "a whole number of results"),
        ("HIP_HRR_D2H_ATOL", "inf", "a number of 0 or more, such as 1e-3"),
        ("HIP_HRR_D2H_RTOL", "-1", "a number of 0 or more, such as 1e-3"),
        ("HIP_HRR_REPLAY_SYNC_WATCHDOG_MS", "soon", "a whole number of 0 or more"),
        ("HIP_HRR_REPLAY_PROGRESS_KERNELS", "-1", "a whole number of 0 or more"),
        ("HIP_HRR_REPLAY_PROGRESS_SECONDS", "0.5", "a whole number of 0 or more"),
        ("RUST_LOG", "hrr=loud", "error, warn, info or debug"),
        ("HRR_REPLAY_CHAOS", "abc", "a whole number (0: off)"),
        ("HRR_REPLAY_MUTATE", "drop:hipNothing", "drop-edges, ignore-device, "),
    ] {
        let run = Replay::of_recording(&recording).env(variable, value).run().run;
        run.expect_code(1);
        let wanted = format!("{variable}={value:?} cannot be used; set it to {allowed}");
        assert!(run.stderr.lines().next().is_some_and(|line| line.contains(&wanted)), "{wanted}\n{run}");
        assert!(!run.stdout.contains("PASS"), "{run}");
        // Set to nothing it counts as unset.
        Replay::of_recording(&recording).env(variable, "").run().expect_pass();
    }
    // An option goes before its variable.
    let replay = Replay::of_recording(&recording).env("HIP_HRR_REPLAY_SYNC_WATCHDOG_MS", "soon");
    replay.args(["--sync-watchdog-ms", "60000"]).run().expect_pass();
    let rank = Replay::of_recording(&recording).env("SLURM_PROCID", "first").args(["--rank", "own"]).run().run;
    expect_refusal(&rank, &["SLURM_PROCID=\"first\" cannot be used; set it to the rank that the launcher gives"]);
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
