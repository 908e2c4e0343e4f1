//! Programs that are built, or loaded, in other ways than the rest of the tests are: each behaves as it does alone, and what was recorded
//! replays. A compiler, library or loader that is not there is said, and its test proves nothing then.

#[path = "../c/program.rs"]
mod program;

use std::path::{Path, PathBuf};
use std::process::Command;

use hrr_tests::built;
use hrr_tests::process::{End, Finished, run, with_clean_environment};
use hrr_tests::recording::Scratch;
use hrr_tests::replaying::Replay;
use program::{LIMIT, LINKED, SHARED, command, compile, record};

fn source(name: &str) -> PathBuf {
    built::repository().join("tests/c").join(name)
}

/// Compiles a source; `None` where the compiler cannot, which is said.
fn try_compile(scratch: &Scratch, compiler: &str, source_name: &str, name: &str, options: &[&str]) -> Option<PathBuf> {
    let output = scratch.path().join(name);
    let mut command = Command::new(compiler);
    command.args(["-O1", "-g", "-pthread", "-I"]).arg(built::repository().join("tests/c")).arg("-o").arg(&output);
    command.arg(source(source_name)).arg("-L").arg(built::libraries()).args(options);
    // A compiler that is there may lack the library that an option asks for.
    match command.output() {
        Ok(made) if made.status.success() => Some(output),
        Ok(made) => skipped(&format!("{compiler} {}: {}", options.join(" "), String::from_utf8_lossy(&made.stderr))),
        Err(error) => skipped(&format!("{compiler}: {error}")),
    }
}

fn skipped<T>(why: &str) -> Option<T> {
    eprintln!("skipped: {why}");
    println!("skipped: {why}");
    None
}

/// A library that programs are run with.
fn library(name: &str) -> Option<PathBuf> {
    let folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"];
    let found = folders.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.exists());
    found.or_else(|| skipped(&format!("there is no {name}")))
}

/// Runs a program alone and recorded, and expects the same of both; each process that was recorded to its end replays.
fn as_alone(scratch: &Scratch, program: &Path, arguments: &[&str], variables: &[(&str, &Path)]) -> Finished {
    let with_variables = || {
        let mut command = command(program, arguments);
        command.envs(variables.iter().copied());
        command
    };
    let plain = run(&mut with_variables(), LIMIT);
    let recorded = record(scratch, with_variables());
    assert_eq!(recorded.run.end, plain.end, "{plain}\n{}", recorded.run);
    assert_eq!(recorded.run.stdout, plain.stdout, "{}", recorded.run);
    assert!(recorded.run.stderr.contains("[HRR capture] Recording HIP calls"), "{}", recorded.run);
    for process in recorded.processes() {
        assert_eq!(process.manifest().complete, matches!(plain.end, End::Code(_)), "{}", recorded.run);
        Replay::of(process.path()).run().run.expect_code(0);
    }
    recorded.run
}

/// Formerly AddressSanitizer ended the program, since the recorder comes before it.
#[test]
fn address_sanitizer() {
    let scratch = Scratch::new("asan");
    let options = [&["-fsanitize=address"], LINKED].concat();
    if let Some(program) = try_compile(&scratch, "gcc", "hostile.c", "hostile", &options) {
        let run = as_alone(&scratch, &program, &["leaf"], &[]);
        assert!(!run.stderr.contains("Sanitizer"), "{run}");
    }
}

/// Formerly its set-up called a function of its own that was not set up yet; and it took the recorder's writes for races.
#[test]
fn thread_sanitizer() {
    let scratch = Scratch::new("tsan");
    let options = [&["-fsanitize=thread"], LINKED].concat();
    if let Some(program) = try_compile(&scratch, "gcc", "hostile.c", "hostile", &options) {
        let run = as_alone(&scratch, &program, &["leaf"], &[]);
        assert!(!run.stderr.contains("libhrr_capture"), "{run}");
    }
}

#[test]
fn exceptions_around_calls_and_out_of_a_callback() {
    for options in [&["-lamdhip64"][..], &["-lamdhip64", "-static-libstdc++", "-static-libgcc"]] {
        for what in ["around", "out_of_a_callback"] {
            let scratch = Scratch::new("thrown");
            if let Some(program) = try_compile(&scratch, "g++", "thrown.cpp", "thrown", options) {
                as_alone(&scratch, &program, &[what], &[]);
            }
        }
    }
}

#[test]
fn an_auditor_of_the_loader() {
    let scratch = Scratch::new("audit");
    let auditor = compile(&scratch, "audit", "audit.so", SHARED);
    let program = compile(&scratch, "hostile", "hostile", &[LINKED, &["-Wno-unused-parameter"]].concat());
    as_alone(&scratch, &program, &["crowd"], &[("LD_AUDIT", &auditor)]);
}

#[test]
fn other_allocators() {
    for name in ["libjemalloc.so.2", "libtcmalloc_minimal.so.4"] {
        let Some(allocator) = library(name) else { continue };
        for what in ["crowd", "cancelling", "fibers"] {
            let scratch = Scratch::new("allocator");
            let program = compile(&scratch, "hostile", "hostile", &[LINKED, &["-Wno-unused-parameter"]].concat());
            as_alone(&scratch, &program, &[what], &[("LD_PRELOAD", &allocator)]);
        }
    }
}

/// Runs a program under the launcher, without a recording to expect.
fn launched(scratch: &Scratch, program: &Path) -> Finished {
    let mut command = Command::new(built::output("bin/hrr-capture"));
    with_clean_environment(&mut command);
    command.arg("-o").arg(scratch.path().join("none.hrr")).arg("--").arg(program);
    run(&mut command, LIMIT)
}

/// Formerly its loader failed on the recorder, and the program did not run at all.
#[test]
fn another_c_library() {
    let scratch = Scratch::new("musl");
    let Some(program) = try_compile(&scratch, "musl-gcc", "nothing.c", "nothing", &[]) else { return };
    let plain = run(&mut command(&program, &[]), LIMIT);
    if plain.end == End::Code(127) {
        return skipped::<()>("no loader of musl").unwrap_or_default();
    }
    let recorded = launched(&scratch, &program);
    assert_eq!((&recorded.end, &recorded.stdout), (&plain.end, &plain.stdout), "{recorded}");
    assert!(recorded.stderr.contains("is not linked with the GNU C library but started by /lib/ld-musl"), "{recorded}");
}

#[test]
fn no_loader_at_all() {
    for option in ["-static", "-static-pie"] {
        let scratch = Scratch::new("static");
        let Some(program) = try_compile(&scratch, "gcc", "nothing.c", "nothing", &[option]) else { continue };
        let plain = run(&mut command(&program, &[]), LIMIT);
        let recorded = launched(&scratch, &program);
        assert_eq!((&recorded.end, &recorded.stdout), (&plain.end, &plain.stdout), "{recorded}");
        assert!(recorded.stderr.contains("is linked statically"), "{recorded}");
    }
}
