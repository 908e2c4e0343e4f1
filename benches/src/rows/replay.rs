//! What replay adds to the runtime's own time.

use std::path::{Path, PathBuf};

use hrr_format::archive::Archive;

use super::Bench;
use crate::chain::chains;
use crate::program::{Hip, Recorded};
use crate::table::{Judged, Pairs, Row, Target};

const CALLS: u64 = 400_000;

/// The variable that makes launches of the null runtime take 2 us.
const TWO_MICROSECONDS: [(&str, &str); 1] = [("HRR_NULL_HIP_LAUNCH_NS", "2000")];

fn record(bench: &Bench, hip: Hip, name: &str, arguments: &[&str]) -> Result<PathBuf, String> {
    record_with(bench, hip, name, arguments, &[])
}

/// With launches of 2 us for those that are replayed so: calls that were shorter when they were recorded overlapped less, and
/// their order would have a replay wait that no recording of such launches makes wait.
fn record_with(
    bench: &Bench,
    hip: Hip,
    name: &str,
    arguments: &[&str],
    variables: &[(&str, &str)],
) -> Result<PathBuf, String> {
    let archive = bench.built.archive(&format!("replay-{name}"));
    bench.built.recorded(hip, Recorded::Contents, &archive, name, arguments, variables)?;
    Ok(archive)
}

/// What an archive's order alone makes a replay take, over its busiest thread, if launches take as long as each other.
fn order_alone(archive: &Path) -> Result<f64, String> {
    let archive = Archive::open(archive).map_err(|error| error.to_string())?;
    let launch = |name: &str| if name.contains("LaunchKernel") { 1.0 } else { 0.0 };
    Ok(chains(&archive, launch).ratio())
}

/// The timed loop, against the recorded program's own loop over the same calls.
pub fn call_loop(bench: &Bench) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    let calls = CALLS / bench.shrink;
    let count = calls.to_string();
    for kind in ["get_device", "event_record", "launch"] {
        let arguments = [kind, count.as_str()];
        let archive = record(bench, Hip::Null, "call_cost", &arguments)?;
        // The loop that warms up is a tenth of the other.
        let replayed = (calls + calls / 10 + 1) as f64;
        let pairs = Pairs::measure(
            bench.repetitions,
            || Ok(bench.built.replay(Hip::Null, &archive, &[], &[])?.summary_ms("Wall time")? * 1e6 / replayed),
            || bench.built.plain(Hip::Null, "call_cost", &arguments, &[])?.number("ns_per_call"),
        )?;
        let added = pairs.map(|with, without| with - without);
        let id = format!("replay loop, {kind}: added per call");
        rows.push(added.row(&id, "ns", Judged::Value, Target::AtMost(40.0), "baseline: the program's own loop"));
    }
    let few = (calls / 10).to_string();
    for threads in ["1", "2"] {
        let arguments = ["launch", few.as_str(), threads];
        let archive = record_with(bench, Hip::Null, "call_cost", &arguments, &TWO_MICROSECONDS)?;
        let share = 1.1;
        let order = order_alone(&archive)?;
        let pairs = Pairs::measure(
            bench.repetitions,
            || Ok(bench.built.replay(Hip::Null, &archive, &[], &TWO_MICROSECONDS)?.summary_ms("Wall time")? / share),
            || bench.built.plain(Hip::Null, "call_cost", &arguments, &TWO_MICROSECONDS)?.number("wall_ms"),
        )?;
        let id = format!("replay of 2 us launches, T={threads}");
        let note = format!("baseline: the program's own threads; the order alone takes {order:.3} of the busiest one");
        rows.push(pairs.row(&id, "ms", Judged::Ratio, Target::AtMost(1.02), &note));
    }
    Ok(rows)
}

/// Replay with as many workers as the program has threads, against the program.
pub fn threads(bench: &Bench) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for (threads, name, arguments) in [
        ("1", "launch_rate", ["20000", "1", "1", "", ""]),
        ("2", "launch_rate", ["20000", "2", "1", "", ""]),
        ("2", "transformer", ["4", "6", "300", "2", "1024"]),
    ] {
        let arguments: Vec<&str> = arguments.into_iter().filter(|argument| !argument.is_empty()).collect();
        let archive = record(bench, Hip::Mini, name, &arguments)?;
        let alone = order_alone(&archive)?;
        for order in ["capture", "deps"] {
            let pairs = Pairs::measure(
                bench.repetitions,
                || {
                    let options = ["--threads", "0", "--order", order];
                    bench.built.replay(Hip::Mini, &archive, &options, &[])?.summary_ms("Wall time")
                },
                || bench.built.plain(Hip::Mini, name, &arguments, &[])?.number("wall_ms"),
            )?;
            let id = format!("replay of {name}, T={threads}, {order}");
            let note = format!(
                "baseline: the plain run's own wall; capture order alone takes {alone:.3} of the busiest thread's launches"
            );
            rows.push(pairs.row(&id, "ms", Judged::Ratio, Target::AtMost(1.03), &note));
        }
    }
    Ok(rows)
}

/// The watchdog on, against off.
pub fn watchdog(bench: &Bench) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    let count = (CALLS / bench.shrink / 10).to_string();
    let two_us = record_with(bench, Hip::Null, "call_cost", &["launch", count.as_str()], &TWO_MICROSECONDS)?;
    let rate = record(bench, Hip::Mini, "launch_rate", &["20000", "2"])?;
    for (id, hip, archive, variables) in [
        ("watchdog on, 2 us launches", Hip::Null, two_us, &TWO_MICROSECONDS[..]),
        ("watchdog on, launch_rate", Hip::Mini, rate, &[]),
    ] {
        let wall = |options: &[&str]| bench.built.replay(hip, &archive, options, variables)?.summary_ms("Wall time");
        let pairs = Pairs::measure(bench.repetitions, || wall(&["--sync-watchdog-ms", "20000"]), || wall(&[]))?;
        rows.push(pairs.row(id, "ms", Judged::Ratio, Target::AtMost(1.01), "baseline: the watchdog off"));
    }
    Ok(rows)
}

/// Copies replayed from memory staged ahead and from memory staged meanwhile, against the program's own; results checked,
/// against the same not looked at.
pub fn copies(bench: &Bench) -> Result<Vec<Row>, String> {
    // What is staged meanwhile is new in every copy: what is uploaded again is staged once.
    let ways: [(&str, &str, &str, &[&str], f64); 3] = [
        ("H2D replayed, all staged ahead", "0", "0", &[], 0.90),
        ("H2D replayed, new contents staged meanwhile", "0", "1", &["--memory-budget", "256"], 0.80),
        ("D2H replayed, all staged ahead", "1", "0", &[], 0.90),
    ];
    // Few and many: their difference leaves set-up out.
    let (few, many) = ("8", "72");
    let bytes = 64.0 * 16.0 * f64::from(1 << 20);
    let mut rows = Vec::new();
    for (id, direction, new_contents, options, limit) in ways {
        // Direction, MiB a copy, copies, buffers, pinned, devices.
        let arguments = |count, new_contents| [direction, "16", count, "8", "0", "1", new_contents];
        let mut archives = Vec::new();
        for count in [few, many] {
            let archive = bench.built.archive(&format!("copies-{direction}-{new_contents}-{count}"));
            let arguments = arguments(count, new_contents);
            bench.built.recorded(Hip::Mini, Recorded::Contents, &archive, "transfer_rate", &arguments, &[])?;
            archives.push(archive);
        }
        // The program that writes its buffers anew takes most of its time for that.
        let native = || {
            let wall =
                |count| bench.built.plain(Hip::Mini, "transfer_rate", &arguments(count, "0"), &[])?.number("wall_ms");
            Ok(bytes / ((wall(many)? - wall(few)?).max(0.001) * 1e6))
        };
        let replayed = || {
            let wall = |archive| bench.built.replay(Hip::Mini, archive, options, &[])?.summary_ms("Wall time");
            Ok(bytes / ((wall(&archives[1])? - wall(&archives[0])?).max(0.001) * 1e6))
        };
        let pairs = Pairs::measure(bench.repetitions, replayed, native)?;
        let note = "baseline: the program's own copies; results are checked";
        rows.push(pairs.row(id, "GB/s", Judged::Ratio, Target::AtLeast(limit), note));
    }
    Ok(rows)
}

/// More workers than cores: processor time, against as many workers as cores.
pub fn crowd(bench: &Bench) -> Result<Vec<Row>, String> {
    let archive = record_with(bench, Hip::Null, "call_cost", &["launch", "4000", "16"], &TWO_MICROSECONDS)?;
    let cores = std::thread::available_parallelism().map_or(2, usize::from).to_string();
    let cpu = |threads: &str| {
        let options = ["--threads", threads, "--repeat", "5"];
        Ok(bench.built.replay(Hip::Null, &archive, &options, &TWO_MICROSECONDS)?.cpu_ms)
    };
    let pairs = Pairs::measure(bench.repetitions, || cpu("0"), || cpu(&cores))?;
    let note = "processor time of 16 workers; baseline: as many workers as cores";
    Ok(vec![pairs.row("16 workers on few cores, CPU", "ms", Judged::Ratio, Target::AtMost(1.2), note)])
}
