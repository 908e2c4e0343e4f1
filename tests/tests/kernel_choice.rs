//! `--kernel-filter` and `--replace-kernel`, on every way to launch a kernel and on the nodes of graphs.

use hrr_tests::built;
use hrr_tests::process::End;
use hrr_tests::recording::{Contents, Recording, record};
use hrr_tests::replaying::{Replay, Replayed};
use hrr_tests::workload::Workload;

fn recorded(name: &str, arguments: &[&str]) -> Recording {
    let listed = Workload::all().into_iter().find(|workload| workload.name == name && arguments.is_empty());
    let mut workload = listed.unwrap_or_else(|| Workload::new(name, arguments));
    workload.environment = vec![("MINIHIP_DEVICES".to_owned(), "2".to_owned())];
    record(&workload, Contents::Recorded)
}

/// Workloads whose kernels nothing waits for, with every way to launch between them.
const WAYS: [(&str, &[&str]); 9] = [
    ("saxpy_reduce", &[]),
    ("sweep_launches", &[]),
    ("sweep_graphs", &[]),
    ("graph_capture", &[]),
    ("launch_shapes", &[]),
    ("serving", &[]),
    ("corner_cases", &["configured_launches"]),
    ("api_corners", &["struct_streams"]),
    ("api_corners", &["changed_clones"]),
];

/// Whether an entry point launches a kernel, or makes a node that does.
fn launches(name: &str) -> bool {
    ["LaunchKernel", "LaunchCooperativeKernel", "LaunchMultiKernel", "LaunchByPtr", "AddKernelNode"]
        .iter()
        .any(|part| name.contains(part))
}

#[test]
fn a_filter_that_nothing_passes_leaves_every_kernel_out_also_those_of_graphs() {
    for (name, arguments) in WAYS {
        let recording = recorded(name, arguments);
        for threads in ["0", "1"] {
            let replay = Replay::of_recording(&recording).args(["--kernel-filter", "-", "--threads", threads]);
            let run = replay.env("MINIHIP_TRACE", 1).run().run;
            let traced = run.stderr.lines().filter_map(|line| line.split_once("] ")?.1.split_once(" = "));
            let issued: Vec<&str> = traced.map(|(name, _)| name).filter(|name| launches(name)).collect();
            assert!(run.succeeded() && issued.is_empty(), "{name} --threads {threads}: {issued:?}\n{run}");
            assert!(run.stdout.contains("Kernels launched: 0") && run.stdout.contains("Filtered "), "{name}\n{run}");
        }
    }
}

#[test]
fn a_filter_lets_the_nodes_of_its_kernels_through() {
    let recording = recorded("sweep_graphs", &[]);
    let run = Replay::of_recording(&recording).args(["--kernel-filter", "mix"]).env("MINIHIP_TRACE", 1).run().run;
    assert!(run.succeeded(), "{run}");
    assert!(
        run.stderr.contains("hipGraphAddKernelNode = 0") && run.stderr.contains("hipGraphAddEmptyNode = 0"),
        "{run}"
    );
}

/// Captured launches that name their stream in a struct; the one on a stream that is not captured leaves none.
#[test]
fn a_launch_that_is_left_out_of_a_capture_leaves_an_empty_node_also_where_a_struct_names_its_stream() {
    let recording = recorded("api_corners", &["struct_streams"]);
    for threads in ["0", "1"] {
        let replay = Replay::of_recording(&recording).args(["--kernel-filter", "-", "--threads", threads]);
        let run = replay.env("MINIHIP_TRACE", 1).run().run;
        let nodes = run.stderr.lines().filter(|line| line.contains("hipGraphAddEmptyNode = 0")).count();
        assert!(run.succeeded() && nodes == 2, "{nodes} nodes\n{run}");
    }
}

fn replace(recording: &Recording, bundle: &str, threads: &str) -> Replayed {
    let replacement = format!("mix={}", built::output(&format!("kernels/{bundle}.hipfb")).display());
    Replay::of_recording(recording).args(["--replace-kernel", &replacement, "--threads", threads]).run()
}

fn replaced(run: &Replayed) -> Option<u64> {
    let line = run.run.stdout.lines().find_map(|line| line.split_once("Replaced      : "))?.1;
    line.split(' ').next()?.parse().ok()
}

/// The same kernel from another file gives the same results; another kernel of its name does not, so it was the one that ran.
#[test]
fn a_kernel_is_replaced_in_every_launch_and_every_node_that_can_take_a_function() {
    for (name, arguments, least) in
        [("sweep_launches", &["0"][..], 15), ("sweep_graphs", &[], 20), ("graph_capture", &[], 2)]
    {
        let recording = recorded(name, arguments);
        let plain = Replay::of_recording(&recording).run().expect_pass();
        for threads in ["0", "1"] {
            let same = replace(&recording, "standard", threads);
            assert_eq!(same.expect_pass(), plain, "{name}\n{}", same.run);
            assert!(replaced(&same).is_some_and(|count| count >= least), "{name}\n{}", same.run);
        }
        let other = Replay::of_recording(&recording)
            .args(["--replace-kernel", &format!("mix={}", built::output("kernels/other_mix.hipfb").display())])
            .env("HIP_HRR_REPLAY_DIVERGENCE_ABORT", 0)
            .env("HIP_HRR_D2H_EXACT", 1)
            .run();
        assert_eq!(other.run.end, End::Code(1), "{name}\n{}", other.run);
        assert_eq!(replaced(&other), replaced(&replace(&recording, "standard", "0")), "{name}\n{}", other.run);
        assert!(other.checks.is_some_and(|checks| checks.fail > plain.pass / 3), "{name}\n{}", other.run);
    }
}

#[test]
fn a_launch_that_takes_only_a_host_symbol_is_refused_by_name() {
    let recording = recorded("sweep_launches", &[]);
    let run = replace(&recording, "standard", "0").run;
    run.expect_code(1);
    assert!(
        run.stderr.contains("hipLaunchCooperativeKernelMultiDevice: is not replayed: its kernel cannot be replaced"),
        "{run}"
    );
    let run = replace(&recorded("corner_cases", &["configured_launches"]), "standard", "0").run;
    run.expect_code(1);
    assert!(run.stderr.contains("hipLaunchByPtr: is not replayed: its kernel cannot be replaced"), "{run}");
}
