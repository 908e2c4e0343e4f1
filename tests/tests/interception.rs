//! Every way to reach HIP, every moment of a process, and every kind of surroundings: each call is recorded once, and the
//! program notices nothing.

#[path = "../c/program.rs"]
mod program;

use std::path::Path;
use std::process::Command;

use hrr_format::record::marker;
use hrr_format::stream_file::StreamFile;
use hrr_tests::built;
use hrr_tests::process::run;
use hrr_tests::recording::Scratch;
use hrr_tests::replaying::Replay;
use program::{LIMIT, LINKED, Recorded, SHARED, command, compile, record};

fn text(path: &Path) -> &str {
    path.to_str().expect("scratch paths are UTF-8")
}

fn expect_allocations(recorded: &Recorded, expected: &[(u64, usize)]) {
    recorded.run.expect_code(0);
    let found: Vec<_> = recorded.allocations().into_iter().collect();
    assert_eq!(found, expected, "{}", recorded.run);
    for archive in recorded.processes() {
        assert!(archive.manifest().complete, "{}", recorded.run);
        let of = |stream: &StreamFile| stream.records().filter(|record| record.api() < marker::FIRST).count();
        let calls: usize = archive.streams().iter().map(of).sum();
        assert_eq!(archive.manifest().event_count, calls as u64);
    }
}

fn expect_replay(recorded: &Recorded) {
    let replayed = Replay::of(&recorded.root).run();
    replayed.run.expect_code(0);
}

#[test]
fn every_way_to_a_function_is_recorded_once() {
    let scratch = Scratch::new("ways");
    let plugin = compile(&scratch, "plugin", "libplugin.so", &[SHARED, LINKED].concat());
    let linked = compile(&scratch, "ways", "ways_linked", LINKED);
    let bare = compile(&scratch, "ways", "ways", &[]);
    let ways = [
        (&linked, "plt", 1001),
        (&linked, "next", 1002),
        (&linked, "default", 1003),
        (&linked, "handle", 1004),
        (&bare, "handle", 1004),
        (&bare, "versioned", 1005),
        (&bare, "proc_address", 1006),
        (&bare, "entry_point", 1006),
        (&bare, "plugin_local", 1007),
        (&linked, "plugin_deep", 1008),
        (&bare, "plugin_deep", 1008),
        (&bare, "missing", 1009),
    ];
    for (program, way, size) in ways {
        let scratch = Scratch::new("way");
        let recorded = record(&scratch, command(program, &[text(&plugin), way]));
        eprintln!("{way}");
        expect_allocations(&recorded, &[(size, 1)]);
        expect_replay(&recorded);
    }
}

#[test]
fn without_dispatch_tables_all_but_deep_binding_is_recorded_once_too() {
    let scratch = Scratch::new("no-tables");
    let plugin = compile(&scratch, "plugin", "libplugin.so", &[SHARED, LINKED].concat());
    let bare = compile(&scratch, "ways", "ways", &[]);
    let linked = compile(&scratch, "ways", "ways_linked", LINKED);
    let ways = [
        (&linked, "plt", 1001),
        (&linked, "next", 1002),
        (&bare, "handle", 1004),
        (&bare, "versioned", 1005),
        (&bare, "proc_address", 1006),
        (&bare, "plugin_local", 1007),
    ];
    for (program, way, size) in ways {
        let scratch = Scratch::new("way");
        let mut command = command(program, &[text(&plugin), way]);
        command.env("ROCPROFILER_REGISTER_ENABLED", "0");
        expect_allocations(&record(&scratch, command), &[(size, 1)]);
    }
}

#[test]
fn tables_alone_are_enough() {
    let scratch = Scratch::new("tables");
    let plugin = compile(&scratch, "plugin", "libplugin.so", &[SHARED, LINKED].concat());
    let linked = compile(&scratch, "ways", "ways_linked", LINKED);
    for (way, size) in
        [("plt", 1001), ("handle", 1004), ("versioned", 1005), ("proc_address", 1006), ("plugin_deep", 1008)]
    {
        let root = scratch.path().join(format!("{way}.hrr"));
        let mut command = command(&linked, &[text(&plugin), way]);
        command.env("ROCPROFILER_REGISTER_LIBRARY", built::capture_library());
        command.env("HIP_HRR_CAPTURE_OUTPUT", &root).env("HIP_HRR_CAPTURE_CONTENT", "1");
        let recorded = Recorded { run: run(&mut command, LIMIT), root };
        eprintln!("{way}");
        expect_allocations(&recorded, &[(size, 1)]);
        let manifest = std::fs::read_to_string(recorded.root.join("manifest.json")).unwrap();
        assert!(manifest.contains("rocprofiler-register"), "{manifest}");
        expect_replay(&recorded);
    }
}

#[test]
fn rocprofiler_sdk_sees_the_calls_too() {
    let scratch = Scratch::new("sdk");
    let sdk = compile(&scratch, "sdk", "librocprofiler-sdk.so.1", &[SHARED, &["-DHIP_MALLOC=215"]].concat());
    let linked = compile(&scratch, "ways", "ways_linked", LINKED);
    // Preloaded, as rocprofv3 does, or loaded for the sake of its tools.
    let mut preloaded = command(&linked, &["-", "plt"]);
    preloaded.env("LD_PRELOAD", &sdk);
    let mut wanted = command(&linked, &["-", "handle"]);
    wanted.env("ROCP_TOOL_LIBRARIES", "tool.so");
    wanted.env("LD_LIBRARY_PATH", format!("{}:{}", text(&built::libraries()), text(scratch.path())));
    for (command, size) in [(preloaded, 1001), (wanted, 1004)] {
        let scratch = Scratch::new("sdk-run");
        let recorded = record(&scratch, command);
        expect_allocations(&recorded, &[(size, 1)]);
        assert_eq!(recorded.run.stdout, "sdk saw 1\n", "{}", recorded.run);
    }
}

#[test]
fn a_wrapper_that_the_user_preloads_is_called_as_ever() {
    let scratch = Scratch::new("wrapper");
    let wrapper = compile(&scratch, "wrapper", "libwrapper.so", SHARED);
    let linked = compile(&scratch, "ways", "ways_linked", LINKED);
    let mut command = command(&linked, &["-", "plt"]);
    command.env("LD_PRELOAD", &wrapper);
    let recorded = record(&scratch, command);
    expect_allocations(&recorded, &[(1001, 1)]);
    assert_eq!(recorded.run.stdout, "wrapper saw 1\n", "{}", recorded.run);
}

#[test]
fn every_moment_of_a_process_is_recorded() {
    let scratch = Scratch::new("moments");
    compile(&scratch, "plugin", "libplugin.so", &[SHARED, LINKED, &["-DENDS"]].concat());
    let rpath = format!("-Wl,-rpath,{}", text(scratch.path()));
    let search = format!("-L{}", text(scratch.path()));
    let moments =
        compile(&scratch, "moments", "moments", &[&[search.as_str(), rpath.as_str(), "-lplugin"], LINKED].concat());
    let plain = run(&mut command(&moments, &[]), LIMIT);
    plain.expect_code(0);
    let recorded = record(&scratch, command(&moments, &[]));
    let expected: Vec<_> = (2001..=2009).map(|size| (size, if size == 2005 { 300 } else { 1 })).collect();
    expect_allocations(&recorded, &expected);
    assert_eq!(recorded.calls("hipGetDevice"), 2, "a thread with 16 KiB of stack, and one in a handler");
    expect_replay(&recorded);
}

#[test]
fn two_runtimes_are_told_apart() {
    let scratch = Scratch::new("two");
    let second = scratch.path().join("libamdhip64.so.7");
    std::fs::copy(built::output("lib/libamdhip64.so.7"), &second).expect("the library can be copied");
    let program = compile(&scratch, "two_runtimes", "two_runtimes", LINKED);
    for tables in ["1", "0"] {
        let scratch = Scratch::new("two-run");
        let mut command = command(&program, &[text(&second)]);
        command.env("ROCPROFILER_REGISTER_ENABLED", tables);
        let recorded = record(&scratch, command);
        expect_allocations(&recorded, &[(4096, 2)]);
        assert_eq!(recorded.run.stdout, "both answered\n");
        expect_replay(&recorded);
    }
}

#[test]
fn surroundings_may_change() {
    let scratch = Scratch::new("surroundings");
    let program = compile(&scratch, "surroundings", "surroundings", LINKED);
    for what in ["nothing", "chdir", "stderr_closed", "stderr_closed_first", "every_descriptor_closed", "umask"] {
        let scratch = Scratch::new(what);
        let file = scratch.path().join("file");
        let recorded = record(&scratch, command(&program, &[what, text(&file)]));
        eprintln!("{what}");
        expect_allocations(&recorded, &[(3001, 1), (3002, 1), (3003, 1)]);
        assert_eq!(recorded.calls("hipGetDevice"), 5000);
        if what == "stderr_closed_first" {
            assert_eq!(std::fs::read_to_string(&file).unwrap(), "", "nothing of ours lands in the program's file");
        }
        expect_replay(&recorded);
    }
}

#[test]
fn rights_that_are_dropped_end_a_recording_and_not_the_program() {
    // SAFETY: the call has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped: only root has rights to drop");
        return;
    }
    let scratch = Scratch::new("rights");
    let program = compile(&scratch, "surroundings", "surroundings", LINKED);
    let recorded = record(&scratch, command(&program, &["rights_dropped"]));
    recorded.run.expect_code(0);
    assert_eq!(recorded.allocations().get(&3001), Some(&1), "{}", recorded.run);
    let told = recorded.run.stderr.contains("Capture stopped") || recorded.allocations().len() == 3;
    assert!(told, "{}", recorded.run);
}

/// Whether a program is installed; says that the test is skipped where it is not.
fn there_is(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output().expect("sh runs");
    if !found.status.success() {
        eprintln!("skipped: there is no {program}");
    }
    found.status.success()
}

#[test]
fn programs_linked_and_loaded_in_unusual_ways() {
    let scratch = Scratch::new("linked");
    let program = compile(&scratch, "ways", "now", &[LINKED, &["-Wl,-z,now", "-static-libgcc"]].concat());
    expect_allocations(&record(&scratch, command(&program, &["-", "plt"])), &[(1001, 1)]);
    let scratch = Scratch::new("bind-now");
    let mut now = command(&program, &["-", "plt"]);
    now.env("LD_BIND_NOW", "1");
    expect_allocations(&record(&scratch, now), &[(1001, 1)]);
}

#[test]
fn programs_under_other_tools() {
    let scratch = Scratch::new("tools");
    let program = compile(&scratch, "ways", "ways_linked", LINKED);
    let program = text(&program);
    let tools: [(&str, Vec<&str>); 2] = [
        ("setarch", vec!["-R", program, "-", "plt"]),
        (
            "gdb",
            vec![
                "-q",
                "-batch",
                "-nx",
                "-ex",
                "set startup-with-shell off",
                "-ex",
                "run",
                "--args",
                program,
                "-",
                "plt",
            ],
        ),
    ];
    for (tool, arguments) in tools {
        if !there_is(tool) {
            continue;
        }
        let scratch = Scratch::new(tool);
        let recorded = record(&scratch, command(Path::new(tool), &arguments));
        recorded.run.expect_code(0);
        if tool == "setarch" && recorded.run.stderr.contains("failed to set personality") {
            eprintln!("skipped: no right to set the personality");
            continue;
        }
        if tool == "gdb" && recorded.run.output().contains("Operation not permitted") {
            eprintln!("skipped: no right to trace");
            continue;
        }
        assert_eq!(recorded.allocations().into_iter().collect::<Vec<_>>(), [(1001, 1)], "{}", recorded.run);
        expect_replay(&recorded);
    }
}
