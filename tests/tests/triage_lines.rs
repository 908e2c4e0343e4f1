//! The aids of triage do what they say: lines before launches and waits, progress lines, and waits after launches or calls.

use hrr_tests::recording::{Contents, Recording, record};
use hrr_tests::replaying::{Replay, Replayed};
use hrr_tests::workload::Workload;

fn recording(name: &str) -> Recording {
    record(&Workload::listed(name), Contents::Recorded)
}

fn replayed(recording: &Recording, arguments: &[&str]) -> Replayed {
    let replayed = Replay::of_recording(recording).args(arguments.iter().copied()).run();
    replayed.expect_pass();
    replayed
}

/// The number in the summary behind these words.
fn summary(replayed: &Replayed, words: &str) -> usize {
    let line = replayed.run.stdout.lines().find_map(|line| line.split_once(words));
    let number = line.and_then(|(_, rest)| rest.trim_start_matches([' ', ':']).split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no {words:?}\n{}", replayed.run))
}

/// Lines on standard error that begin so.
fn lines<'a>(replayed: &'a Replayed, beginning: &str) -> Vec<&'a str> {
    replayed.run.stderr.lines().filter(|line| line.starts_with(beginning)).collect()
}

#[test]
fn every_launch_is_printed_before_it_is_made() {
    for name in ["threads8", "graph_capture"] {
        let recording = recording(name);
        for threads in ["0", "1"] {
            let replayed = replayed(&recording, &["--trace-kernels", "--threads", threads]);
            let graphs = if name == "graph_capture" { summary(&replayed, "Graphs launched") } else { 0 };
            let lines = lines(&replayed, "[HRR][TRACE] event ");
            let of_graphs = lines.iter().filter(|line| line.contains(": hipGraphLaunch(")).count();
            assert_eq!(of_graphs, graphs, "{name}\n{}", replayed.run);
            assert_eq!(lines.len(), summary(&replayed, "Kernels launched") + graphs, "{name}\n{}", replayed.run);
            let kernels = lines.iter().filter(|line| !line.contains("hipGraphLaunch"));
            assert!(kernels.clone().all(|line| line.contains("[") && line.contains("numBlocks=(")), "{:?}", kernels);
        }
    }
    // The upstream variable means the same.
    let recording = recording("saxpy_reduce");
    let by_variable = Replay::of_recording(&recording).env("HIP_HRR_REPLAY_TRACE_KERNELS", 1).run();
    let by_option = replayed(&recording, &["--trace-kernels"]);
    let traced = lines(&by_variable, "[HRR][TRACE]").len();
    assert!(traced > 0 && traced == lines(&by_option, "[HRR][TRACE]").len(), "{}", by_variable.run);
}

#[test]
fn every_wait_is_printed_before_it_is_made_and_when_it_has_returned() {
    let replayed = replayed(&recording("threads8"), &["--trace-sync"]);
    let lines = lines(&replayed, "[HRR][TRACE] event ");
    let (returned, entered): (Vec<&str>, Vec<&str>) = lines.iter().partition(|line| line.ends_with(" returned"));
    assert!(entered.len() > 100 && entered.len() == returned.len(), "{}", replayed.run);
    for entry in entered {
        let waits = ["Synchronize(", "hipMemcpy(", "Query(", "hipFree(", "hipMemset(", "__hipUnregisterFatBinary("];
        assert!(waits.iter().any(|name| entry.contains(name)), "{entry}");
        let at = |wanted: &str| lines.iter().position(|line| *line == wanted);
        assert!(at(entry) < at(&format!("{entry} returned")), "{entry}");
    }
}

/// The value of a field of a progress line.
fn field(line: &str, name: &str) -> f64 {
    let value = line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {line:?}"))
}

#[test]
fn progress_is_printed_by_kernels_and_by_time() {
    let recording = recording("threads8");
    let by_kernels = replayed(&recording, &["--progress-kernels", "20"]);
    let printed = lines(&by_kernels, "[HRR progress]");
    assert_eq!(printed.len(), summary(&by_kernels, "Kernels launched") / 20, "{}", by_kernels.run);
    for (number, line) in printed.iter().enumerate() {
        assert_eq!(field(line, "kernels") as usize, (number + 1) * 20, "{line}");
        assert!(line.contains("elapsed_s=") && line.contains("last=\""), "{line}");
    }
    // Ten launches of one thread take more than two seconds.
    let recording = self::recording("saxpy_reduce");
    let slow = "api:hipLaunchKernel:260000us";
    let by_time = Replay::of_recording(&recording).args(["--progress-seconds", "1"]).env("MINIHIP_SLOW", slow).run();
    by_time.expect_pass();
    let seen: Vec<f64> = lines(&by_time, "[HRR progress]").iter().map(|line| field(line, "kernels")).collect();
    assert!(
        seen.len() >= 2 && seen.is_sorted() && seen[0] < summary(&by_time, "Kernels launched") as f64,
        "{seen:?}\n{}",
        by_time.run
    );
}

/// Calls of an API that the runtime saw.
fn calls(replayed: &Replayed, api: &str) -> usize {
    let call = format!("] {api} =");
    replayed.run.stderr.lines().filter(|line| line.starts_with("minihip:") && line.contains(&call)).count()
}

#[test]
fn the_device_is_waited_for_after_launches_or_after_all_calls() {
    let recording = recording("saxpy_reduce");
    let traced = |arguments: &[&str]| {
        let replayed = Replay::of_recording(&recording).args(arguments.iter().copied()).env("MINIHIP_TRACE", 1).run();
        replayed.expect_pass();
        replayed
    };
    let plain = traced(&[]);
    let (launches, waits) = (calls(&plain, "hipLaunchKernel"), calls(&plain, "hipDeviceSynchronize"));
    assert!(launches >= 8, "{}", plain.run);
    let after_launches = traced(&["--sync-after-launch"]);
    assert_eq!(calls(&after_launches, "hipDeviceSynchronize"), waits + launches);
    // One thread: each launch's wait is its next call.
    let mut seen = after_launches
        .run
        .stderr
        .lines()
        .filter(|line| line.contains("] hipLaunchKernel =") || line.contains("] hipDevice"));
    while let Some(line) = seen.next() {
        if line.contains("hipLaunchKernel") {
            assert!(seen.next().is_some_and(|next| next.contains("hipDeviceSynchronize")), "{}", after_launches.run);
        }
    }
    let after_all = traced(&["--sync-after-event"]);
    assert_eq!(calls(&after_all, "hipDeviceSynchronize"), waits + summary(&after_all, "Calls"));
}
