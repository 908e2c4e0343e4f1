//! What the order of a replay costs: waits that are fulfilled, hand-overs between workers, captured threads that share a
//! worker, and planning, against the targets of the ordering engine.
//!
//! usage: hrr-bench-ordering [EVENTS [edges|plan|replay]]
//! Plans and replays synthetic archives on a runtime whose calls do nothing (`libhrr_null_hip.so`, beside this program).

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hrr_format::archive::Archive;
use hrr_format::archive_writer::ArchiveWriter;
use hrr_format::catalogue::Api;
use hrr_format::code_object::{ArgKind, KernelArg};
use hrr_format::kernel_table::Kernel;
use hrr_format::record::{Presence, SectionTag};
use hrr_format::record_builder::RecordBuilder;
use hrr_format::stream_file::ContentsMode;
use hrr_replay::runtime::Runtime;
use hrr_replay::{OrderMode, ReplayOptions, measure, replay};

/// Ticks between the entries of two calls, and how long a call takes.
const STEP: u64 = 100;
const CALL: u64 = 30;

/// How the calls of an archive lie to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// Every thread for itself, all at once, at a pace of its own.
    Parallel,
    /// A round of calls, one thread after the other.
    Alternating,
}

fn main() -> Result<(), Box<dyn Error>> {
    let events = match std::env::args().nth(1) {
        Some(text) => text.parse()?,
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
    let folder = tempfile::tempdir()?;
    let mut at_lanes = Vec::new();
    for (lanes, shape) in [(1, Shape::Parallel), (8, Shape::Parallel), (8, Shape::Alternating), (64, Shape::Parallel)] {
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
            for threads in [0, 2] {
                if threads != 0 && *lanes == 1 {
                    continue;
                }
                let mut waits = 0;
                let mut planned = 0;
                let took = best(|| match measure::plan(archive, runtime, threads, order) {
                    Ok(planning) => {
                        (waits, planned) = (planning.waits, planning.events);
                        planning.took
                    }
                    Err(error) => {
                        eprintln!("plan: {error}");
                        Duration::MAX
                    }
                });
                let name = format!(
                    "plan: {lanes} threads, {shape:?}, --order {}, --threads {threads} ({:.2} waits a call)",
                    order.as_str(),
                    waits as f64 / planned as f64
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
        self.text.push_str(&format!("{name:<88} {figure:>14}{verdict}\n"));
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

/// An archive of threads that launch kernels on streams of their own, record events and synchronise now and then.
fn write_archive(path: &Path, lanes: u32, shape: Shape, calls: u64) -> Result<(), Box<dyn Error>> {
    let mut writer = ArchiveWriter::create(path, 1, ContentsMode::Contents)?;
    writer.code_object(0, b"no code object")?;
    let pointer = |offset| KernelArg { offset, size: 8, kind: ArgKind::GlobalBuffer };
    let args = vec![pointer(0), pointer(8), KernelArg { offset: 16, size: 4, kind: ArgKind::ByValue }];
    writer.kernel(&Kernel {
        kernel: 0,
        name: "saxpy".to_owned(),
        code_object: Some(0),
        kernarg_bytes: 24,
        args: Some(args),
        withheld: false,
    });
    let id = |name: &str| Api::by_name(name).map(|api| api.id).ok_or_else(|| format!("no {name} in the catalogue"));
    let (create, malloc) = (id("hipStreamCreateWithFlags")?, id("hipMalloc")?);
    let (event_create, launch) = (id("hipEventCreateWithFlags")?, id("hipModuleLaunchKernel")?);
    let (load, get) = (id("hipModuleLoadData")?, id("hipModuleGetFunction")?);
    let (record, sync, query) = (id("hipEventRecord")?, id("hipStreamSynchronize")?, id("hipGetDevice")?);
    let (module, function) = (0x10_0000_u64, 0x20_0000_u64);
    for lane in 0..lanes {
        let number = u64::from(lane);
        let (stream, event) = (0x30_0000 + number * 64, 0x40_0000 + number * 64);
        let (x, y) = (0x7f00_0000_0000 + number * 0x10_0000, 0x7f00_0008_0000 + number * 0x10_0000);
        let out = |value: u64| value.to_le_bytes();
        let mut records = Vec::with_capacity(calls as usize + 8);
        // Thread 0 loads the module before any other begins.
        let mut now = 1000;
        let mut push = |builder: RecordBuilder, begin: u64| records.push(builder.ticks(begin, begin + CALL).build());
        if lane == 0 {
            let image = hrr_format::record::BlobRef { number: 0, size_bytes: 14 };
            let loaded = RecordBuilder::new(load, &[0x7ff0, 0x7ff8])
                .section(SectionTag::Out, 0, Presence::Present, &out(module))
                .blob(SectionTag::Code, 1, image);
            push(loaded, now);
            let got = RecordBuilder::new(get, &[0x7ff0, module, 0x7ff8])
                .section(SectionTag::Out, 0, Presence::Present, &out(function))
                .section(SectionTag::Text, 2, Presence::Present, b"saxpy");
            push(got, now + STEP);
        }
        now += 10 * STEP;
        let created = [(create, vec![0x7ff0, 1], stream), (event_create, vec![0x7ff0, 2], event)];
        let allocated = [(malloc, vec![0x7ff0, 0x8_0000], x), (malloc, vec![0x7ff0, 0x8_0000], y)];
        for (api, words, value) in created.into_iter().chain(allocated) {
            let builder = RecordBuilder::new(api, &words).section(SectionTag::Out, 0, Presence::Present, &out(value));
            push(builder, now);
            now += STEP;
        }
        for call in 0..calls {
            let begin = match shape {
                Shape::Parallel => now + call * STEP + scattered(call, number) % (STEP - CALL),
                Shape::Alternating => now + (call * u64::from(lanes) + number) * STEP,
            };
            let builder = match call % 64 {
                63 => RecordBuilder::new(sync, &[stream]),
                15 | 31 => RecordBuilder::new(record, &[event, stream]),
                47 => RecordBuilder::new(query, &[0x7ff0]).section(SectionTag::Out, 0, Presence::Present, &[0; 4]),
                _ => {
                    let mut bytes = [0; 20];
                    bytes[..8].copy_from_slice(&x.to_le_bytes());
                    bytes[8..16].copy_from_slice(&y.to_le_bytes());
                    let words = [function, 1, 1, 1, 64, 1, 1, 0, stream, 0x7ff0, 0];
                    RecordBuilder::new(launch, &words).aux(1).section(
                        SectionTag::KernelArgs,
                        9,
                        Presence::Present,
                        &bytes,
                    )
                }
            };
            push(builder, begin);
        }
        writer.stream(lane, 100 + number, "bench", &records)?;
    }
    writer.finish()?;
    Ok(())
}

/// A number that looks random, the same for the same call of the same thread.
fn scattered(call: u64, thread: u64) -> u64 {
    let mixed = (call << 8 | thread).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33
}
