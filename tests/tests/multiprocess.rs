//! Programs of several processes: one root for all of them, replayed by rank or all at once.

#[path = "../c/program.rs"]
mod program;

use std::path::Path;
use std::process::{Child, Command, Stdio};

use hrr_format::archive::ArchiveRoot;
use hrr_format::manifest::RootManifest;
use hrr_tests::built;
use hrr_tests::process::{run, with_clean_environment};
use hrr_tests::recording::Scratch;
use hrr_tests::replaying::Replay;
use hrr_tests::workload::Workload;
use program::LIMIT;

const RANKS: usize = 4;

/// The root's index names every process, each with its calls, and each one ended well.
fn expect_index(root: &Path) {
    let index = RootManifest::read(&root.join("manifest.json")).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(index.processes.len(), RANKS, "{index:?}");
    for process in &index.processes {
        assert!(process.complete && process.event_count > 0, "{index:?}");
    }
}

/// Records a program as `RANKS` ranks that start and end at the same time.
fn record_ranks(scratch: &Scratch, name: &str) -> std::path::PathBuf {
    let root = scratch.path().join("ranks.hrr");
    let workload = Workload::listed(name);
    let mut children: Vec<Child> = (0..RANKS)
        .map(|rank| {
            let mut command = Command::new(built::output("bin/hrr-capture"));
            with_clean_environment(&mut command);
            command
                .args(["-q", "--content", "-o"])
                .arg(&root)
                .arg("--")
                .arg(workload.program())
                .args(&workload.arguments);
            command.env("SLURM_PROCID", rank.to_string()).env("LD_LIBRARY_PATH", built::libraries());
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("hrr-capture starts")
        })
        .collect();
    for child in &mut children {
        assert!(child.wait().expect("it was started here").success());
    }
    root
}

#[test]
fn ranks_that_end_together_share_one_index_and_are_replayed_together_or_one_by_one() {
    let scratch = Scratch::new("ranks");
    let root = record_ranks(&scratch, "saxpy_reduce");
    expect_index(&root);

    let report = scratch.path().join("report.json");
    let all = Replay::of(&root).args(["--all-processes", "--report", report.to_str().unwrap()]).run();
    all.run.expect_code(0);
    assert!(all.run.stdout.contains("All processes: 4 of 4 passed; 4 began together"), "{}", all.run);
    assert_eq!(all.run.stdout.matches("[HRR] PASS").count(), RANKS, "{}", all.run);
    let reports = std::fs::read_dir(scratch.path()).unwrap().filter_map(Result::ok);
    assert_eq!(reports.filter(|entry| entry.file_name().to_string_lossy().starts_with("report.pid-")).count(), RANKS);

    for rank in 0..RANKS as u64 {
        let own = Replay::of(&root).args(["--rank", "own"]).env("OMPI_COMM_WORLD_RANK", rank).run();
        own.expect_pass();
        let number = rank.to_string();
        Replay::of(&root).args(["--rank", &number]).run().expect_pass();
        let info = Replay::of(&root).args(["--rank", &number, "--info"]).run().run;
        let found = ArchiveRoot::open(&root).unwrap().processes;
        let process = found.iter().find(|process| process.manifest.as_ref().unwrap().rank == Some(rank)).unwrap();
        assert!(info.stdout.contains(&process.pid.to_string()), "{info}");
    }
    let none = Replay::of(&root).args(["--rank", "9"]).run();
    none.run.expect_code(1);
    assert!(
        none.run.stderr.contains("no recorded process has rank 9; recorded: 0, 1, 2, 3; give one of those"),
        "{}",
        none.run
    );
    Replay::of(&root).args(["--rank", "own"]).run().run.expect_code(1);
}

#[test]
fn one_process_that_fails_fails_the_whole_and_the_others_go_on() {
    let scratch = Scratch::new("one-fails");
    let root = record_ranks(&scratch, "saxpy_reduce");
    let broken = ArchiveRoot::open(&root).unwrap().processes[1].path.join("events/0.evs");
    let bytes = std::fs::read(&broken).unwrap();
    std::fs::write(&broken, &bytes[..bytes.len() / 2]).unwrap();
    let all = Replay::of(&root).args(["--all-processes"]).run();
    all.run.expect_code(1);
    assert!(all.run.stdout.contains("All processes: 3 of 4 passed; 3 began together"), "{}", all.run);
}

#[test]
fn a_program_under_mpirun_leaves_one_root() {
    let installed = |program: &str| {
        let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output().expect("sh runs");
        found.status.success()
    };
    if !installed("mpirun") || !installed("mpicc") {
        eprintln!("skipped: there is no mpirun, or no mpicc (openmpi-bin, libopenmpi-dev)");
        return;
    }
    let scratch = Scratch::new("mpi");
    let (program, root) = (scratch.path().join("ranks"), scratch.path().join("mpi.hrr"));
    let sources = built::repository().join("tests/c");
    let mut compiler = Command::new("mpicc");
    compiler.arg("-I").arg(&sources).arg("-o").arg(&program).arg(sources.join("ranks.c"));
    run(compiler.arg("-L").arg(built::libraries()).arg("-lamdhip64"), LIMIT).expect_code(0);
    let mut command = Command::new("mpirun");
    with_clean_environment(&mut command);
    command.args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "4"]);
    command.arg(built::output("bin/hrr-capture")).args(["--content", "-o"]).arg(&root).arg("--").arg(&program);
    let ran = run(command.env("LD_LIBRARY_PATH", built::libraries()), LIMIT);
    ran.expect_code(0);
    assert!(ran.stdout.contains("sum 10"), "{ran}");
    expect_index(&root);
    let mut ranks: Vec<_> = ArchiveRoot::open(&root)
        .unwrap()
        .processes
        .iter()
        .map(|process| process.manifest.as_ref().unwrap().rank)
        .collect();
    ranks.sort_unstable();
    assert_eq!(ranks, [Some(0), Some(1), Some(2), Some(3)]);
    let all = Replay::of(&root).args(["--all-processes"]).run();
    all.run.expect_code(0);
    assert!(all.run.stdout.contains("4 of 4 passed"), "{}", all.run);
}

/// The parent exports memory by a descriptor of the same number as the child's, which it then imports.
#[test]
fn memory_that_another_process_exported_is_refused_by_that_processs_name() {
    let scratch = Scratch::new("foreign");
    let root = scratch.path().join("foreign.hrr");
    let mut command = Command::new(built::output("bin/hrr-capture"));
    with_clean_environment(&mut command);
    command.args(["-q", "--content", "-o"]).arg(&root).arg("--");
    command.arg(Workload::listed("shared_handles").program()).arg("foreign");
    command.env("LD_LIBRARY_PATH", built::libraries());
    run(&mut command, LIMIT).expect_code(0);
    let processes = ArchiveRoot::open(&root).unwrap().processes;
    assert_eq!(processes.len(), 2);
    let runs: Vec<_> = processes.iter().map(|process| (process.pid, Replay::of(&process.path).run().run)).collect();
    let imports = "hipMemImportFromShareableHandle: opens a handle that no call of this process exported: process";
    let refused: Vec<_> = runs.iter().filter(|(_, run)| run.stderr.contains(imports)).collect();
    let [(parent, run)] = refused[..] else { panic!("one of the two imports\n{runs:#?}") };
    let child = processes.iter().map(|process| process.pid).find(|pid| pid != parent).unwrap();
    assert!(run.stderr.contains(&format!("{imports} {child} of this archive exported it")), "{child}\n{run}");
}

/// Children that are forked before the program uses HIP: their archives begin with the code that it registered, which they have no
/// calls for.
#[test]
fn forked_children_are_replayed_with_the_code_that_they_inherited() {
    let scratch = Scratch::new("forked");
    let root = scratch.path().join("forked.hrr");
    let mut command = Command::new(built::output("bin/hrr-capture"));
    with_clean_environment(&mut command);
    command.args(["-q", "--content", "-o"]).arg(&root).arg("--").arg(built::output("workloads/forked"));
    command.env("LD_LIBRARY_PATH", built::libraries());
    run(&mut command, LIMIT).expect_code(0);
    let found = ArchiveRoot::open(&root).unwrap().processes;
    assert_eq!(found.len(), 3, "{found:?}");
    for process in &found {
        let info = Replay::of(&process.path).args(["--info"]).run().run;
        assert!(info.stdout.contains("Replayable   : yes"), "{info}");
        for threads in ["1", "0"] {
            let checks = Replay::of(&process.path).args(["--threads", threads]).run().expect_pass();
            assert!(checks.pass >= 2, "{checks:?}");
        }
    }
}
