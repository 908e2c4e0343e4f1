//! What the order of a replay costs: waits that are fulfilled, hand-overs between workers, captured threads that share a
//! worker, and planning, against the targets of the ordering engine.
//!
//! usage: `hrr-bench-ordering [EVENTS [edges|plan|replay [THREADS]]]`: of archives with so many threads; of all without
//!        hrr-bench-ordering --version
//!        hrr-bench-ordering chain ARCHIVE    how long the archive's order alone makes a replay, in calls
//! Plans and replays synthetic archives on a runtime whose calls do nothing (`libhrr_null_hip.so`, beside this program).

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hrr_benches::chain::chains;
use hrr_benches::synthetic::{Shape, write_archive};
use hrr_format::archive::Archive;
use hrr_replay::machine::runtime::Runtime;
use hrr_replay::measure::Hands;
use hrr_replay::{OrderMode, ReplayOptions, measure, replay};

/// As in `hrr-playback`.
#[global_allocator]
static MEMORY: hrr_replay::memory::large_pages::LargePages = hrr_replay::memory::large_pages::LargePages;

fn main() -> Result<(), Box<dyn Error>> {
    let events = match std::env::args().nth(1) {
        Some(text) if text == "chain" => return chain(std::env::args().nth(2).as_deref()),
        Some(text) if text == "--version" || text == "-V" => {
            println!("hrr-bench-ordering {}", env!("CARGO_PKG_VERSION"));
            return Ok(());
        }
        Some(text) => text.parse().map_err(|_| format!("{text}: give a number of events, or chain ARCHIVE"))?,
        None => 500_000,
    };
    let part = std::env::args().nth(2);
    let wanted = |name: &str| part.as_deref().is_none_or(|part| part == name);
    let runtime = Arc::new(Runtime::load(Some(&null_runtime()?))?);
    let mut table = Table::default();
    if wanted("edges") {
        edges(&mut table);
    }
    if !wanted("plan") && !wanted("replay") {
        print!("{}", table.text);
        return Ok(());
    }
    let threads: Option<u32> = std::env::args().nth(3).map(|text| text.parse()).transpose()?;
    let folder = tempfile::tempdir()?;
    let mut at_lanes = Vec::new();
    let shapes = [(1, Shape::Parallel), (8, Shape::Parallel), (8, Shape::Alternating), (64, Shape::Parallel)];
    for (lanes, shape) in shapes.into_iter().filter(|&(lanes, _)| threads.is_none_or(|wanted| wanted == lanes)) {
        let path = folder.path().join(format!("{lanes}-{shape:?}"));
        write_archive(&path, lanes, shape, events / u64::from(lanes))?;
        at_lanes.push((lanes, shape, Archive::open(&path)?));
    }
    if wanted("plan") {
        planning(&mut table, &at_lanes, &runtime);
    }
    if wanted("replay") {
        replays(&mut table, &at_lanes, &runtime, events);
    }
    print!("{}", table.text);
    Ok(())
}

/// Prints how many calls the longest chain in capture order has, against the thread that made most: of all calls, and of
/// launches alone.
fn chain(archive: Option<&str>) -> Result<(), Box<dyn Error>> {
    let archive = Archive::open(Path::new(archive.ok_or("which archive?")?))?;
    let launches = |name: &str| f64::from(u8::from(name.contains("Launch")));
    for (what, found) in [("calls", chains(&archive, |_| 1.0)), ("launches", chains(&archive, launches))] {
        println!(
            "{what}: the longest chain in capture order has {:.0}, the busiest thread made {:.0}: {:.3}",
            found.longest_ns,
            found.busiest_ns,
            found.ratio()
        );
    }
    Ok(())
}

fn edges(table: &mut Table) {
    let count = 50_000_000;
    table.ns("satisfied edge", best(|| measure::satisfied_edges(8, count)), count, Some(5.0));
    table.ns("publication, nobody waiting", best(|| measure::publications(count)), count, None);
    let count = 1_000_000;
    table.ns("hand-over between workers", best(|| measure::handovers(count)), count, Some(300.0));
}

fn planning(table: &mut Table, archives: &[(u32, Shape, Archive)], runtime: &Arc<Runtime>) {
    for (lanes, shape, archive) in archives {
        for order in [OrderMode::Capture, OrderMode::Deps] {
            for (threads, hands) in [(0, Hands::Several), (0, Hands::One), (2, Hands::Several)] {
                if threads != 0 && *lanes == 1 {
                    continue;
                }
                let mut waits = 0;
                let mut planned = 0;
                let mut processor_time = Duration::MAX;
                let took = best(|| match measure::plan(archive, runtime, threads, order, hands) {
                    Ok(planning) => {
                        (waits, planned) = (planning.waits, planning.events);
                        processor_time = processor_time.min(planning.processor_time);
                        planning.took
                    }
                    Err(error) => {
                        eprintln!("plan: {error}");
                        Duration::MAX
                    }
                });
                let name = format!(
                    "plan: {lanes} threads, {shape:?}, --order {}, --threads {threads}, hands: {hands:?} ({:.2} waits, {:.0} \
                     ns of processor time a call)",
                    order.as_str(),
                    waits as f64 / planned as f64,
                    processor_time.as_nanos() as f64 / planned as f64
                );
                table.rate(&name, took, planned, Some(3.0));
            }
        }
    }
}

fn replays(table: &mut Table, archives: &[(u32, Shape, Archive)], runtime: &Arc<Runtime>, events: u64) {
    let mut alone = None;
    for (lanes, shape, archive) in archives {
        let took = best(|| run(archive, runtime, 1));
        let per_call = took.as_nanos() as f64 / events as f64;
        let name = format!("replay of a call that does nothing: {lanes} threads on 1 worker, {shape:?}");
        table.row(&name, &format!("{per_call:.1} ns"), None);
        match alone {
            None => alone = Some(per_call),
            Some(alone) if *shape == Shape::Parallel => {
                let switch = (per_call - alone).max(0.0);
                let verdict = Some(switch <= 100.0);
                table.row("  of which for changing the captured thread", &format!("{switch:.1} ns"), verdict);
            }
            Some(_) => {}
        }
    }
    for (lanes, shape, archive) in archives.iter().filter(|(lanes, ..)| *lanes == 8) {
        let took = best(|| run(archive, runtime, 2));
        let name = format!("replay of a call that does nothing: {lanes} threads on 2 workers, {shape:?}");
        table.ns(&name, took, events, None);
    }
}

/// The best of three: what the code costs, without what else the machine did.
fn best(mut measured: impl FnMut() -> Duration) -> Duration {
    (0..3).map(|_| measured()).min().unwrap_or_default()
}

fn run(archive: &Archive, runtime: &Arc<Runtime>, threads: usize) -> Duration {
    let options = ReplayOptions { threads, budget_bytes: u64::MAX, ..ReplayOptions::default() };
    match replay(archive, runtime, &options, |_| {}) {
        Ok(outcome) => outcome.wall,
        Err(error) => {
            eprintln!("replay: {error}");
            Duration::MAX
        }
    }
}

fn null_runtime() -> Result<PathBuf, Box<dyn Error>> {
    let program = std::env::current_exe()?;
    let path = program.parent().unwrap_or(Path::new(".")).join("libhrr_null_hip.so");
    if !path.exists() {
        return Err(format!("{} is missing: cargo build --release -p hrr-null-hip", path.display()).into());
    }
    Ok(path)
}

#[derive(Default)]
struct Table {
    text: String,
}

impl Table {
    fn row(&mut self, name: &str, figure: &str, verdict: Option<bool>) {
        let verdict = match verdict {
            Some(true) => "  within target",
            Some(false) => "  TARGET MISSED",
            None => "",
        };
        self.text.push_str(&format!("{name:<124} {figure:>14}{verdict}\n"));
    }

    fn ns(&mut self, name: &str, took: Duration, count: u64, at_most: Option<f64>) {
        let each = took.as_nanos() as f64 / count as f64;
        self.row(name, &format!("{each:.1} ns"), at_most.map(|limit| each <= limit));
    }

    fn rate(&mut self, name: &str, took: Duration, count: u64, at_least: Option<f64>) {
        let millions = count as f64 / 1e6 / took.as_secs_f64();
        self.row(name, &format!("{millions:.2} M events/s"), at_least.map(|limit| millions >= limit));
    }
}
