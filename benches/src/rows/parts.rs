//! Parts of replay by themselves: planning, edges, comparing results, opening and packing archives.

use std::hint::black_box;
use std::time::{Duration, Instant};

use hrr_format::archive::Archive;
use hrr_replay::measure::Hands;
use hrr_replay::results::compare::{Comparison, Tolerance, compare};
use hrr_replay::{OrderMode, measure};

use super::{Bench, bytes_under};
use crate::program::{Hip, Recorded};
use crate::synthetic::{Shape, write_archive};
use crate::table::{Judged, Pairs, Row, Target, alone};

const EVENTS: u64 = 500_000;

/// Calls planned per second, on as many cores as planning makes use of.
pub fn plan(bench: &Bench) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    let events = EVENTS / bench.shrink;
    for (lanes, shape) in [(1, Shape::Parallel), (8, Shape::Parallel), (8, Shape::Alternating), (64, Shape::Parallel)] {
        let path = bench.built.archive("plan");
        write_archive(&path, lanes, shape, events / u64::from(lanes)).map_err(|error| error.to_string())?;
        let archive = Archive::open(&path).map_err(|error| error.to_string())?;
        for order in [OrderMode::Capture, OrderMode::Deps] {
            let (mut rates, mut costs) = (Vec::new(), Vec::new());
            for _ in 0..bench.repetitions {
                let planned = measure::plan(&archive, &bench.runtime, 0, order, Hands::Several)
                    .map_err(|error| error.to_string())?;
                rates.push(planned.events as f64 / 1e6 / planned.took.as_secs_f64());
                costs.push(planned.processor_time.as_secs_f64() * 1e9 / planned.events as f64);
            }
            let id = format!("plan, {lanes} threads, {shape:?}, {}", order.as_str());
            costs.sort_unstable_by(f64::total_cmp);
            let note = format!("on the clock; {:.0} ns of processor time a call", costs[costs.len() / 2]);
            rows.push(alone(&id, "M events/s", &rates, Target::AtLeast(3.0), &note));
        }
    }
    Ok(rows)
}

/// Waits between workers.
pub fn edges(bench: &Bench) -> Result<Vec<Row>, String> {
    let many = 20_000_000 / bench.shrink;
    let few = 200_000 / bench.shrink;
    let each = |took: Duration, count: u64| took.as_nanos() as f64 / count as f64;
    let times = |measured: &dyn Fn() -> f64| (0..bench.repetitions).map(|_| measured()).collect::<Vec<f64>>();
    Ok(vec![
        alone(
            "edge that is satisfied",
            "ns",
            &times(&|| each(measure::satisfied_edges(8, many), many)),
            Target::AtMost(5.0),
            "",
        ),
        alone(
            "hand-over between workers",
            "ns",
            &times(&|| each(measure::handovers(few), few)),
            Target::AtMost(300.0),
            "from one thread to another and on, both running",
        ),
    ])
}

/// Comparing results, against `memcmp`.
pub fn checks(bench: &Bench) -> Result<Vec<Row>, String> {
    const BYTES: usize = 64 << 20;
    let gigabytes = BYTES as f64 / 1e9;
    let tolerance = Tolerance::default();
    let rate = |took: Duration| gigabytes / took.as_secs_f64();
    let mut rows = Vec::new();
    let mut noise = 0x9e37_79b9_7f4a_7c15_u64;
    let expected: Vec<u8> = (0..BYTES / 8)
        .flat_map(|_| {
            noise ^= noise << 13;
            noise ^= noise >> 7;
            noise ^= noise << 17;
            noise.to_le_bytes()
        })
        .collect();
    let same = expected.clone();
    let memcmp = |live: &[u8], expected: &[u8]| {
        let begun = Instant::now();
        // SAFETY: both slices have the length.
        let order = unsafe { libc::memcmp(live.as_ptr().cast(), expected.as_ptr().cast(), BYTES) };
        black_box(order);
        Ok(rate(begun.elapsed()))
    };
    let pairs = Pairs::measure(
        bench.repetitions,
        || {
            let begun = Instant::now();
            let exact = matches!(compare(black_box(&same), black_box(&expected), &tolerance), Comparison::Exact);
            exact.then(|| rate(begun.elapsed())).ok_or_else(|| "equal bytes are not found equal".to_owned())
        },
        || memcmp(black_box(&same), black_box(&expected)),
    )?;
    rows.push(pairs.row("compare, exact", "GB/s", Judged::Ratio, Target::AtLeast(0.8), "baseline: memcmp"));

    // Every element differs within the tolerance, so that each is looked at as a number.
    type Encode = fn(f32) -> Vec<u8>;
    let encodings: [(&str, Encode); 4] = [
        ("fp32", |value| value.to_le_bytes().to_vec()),
        ("bf16", |value| (value.to_bits() >> 16).to_le_bytes()[..2].to_vec()),
        ("fp16", |value| half(value).to_le_bytes().to_vec()),
        ("fp64", |value| f64::from(value).to_le_bytes().to_vec()),
    ];
    for (name, encode) in encodings {
        let filled = |added: f32| -> Vec<u8> {
            let pattern: Vec<u8> =
                (0..1 << 16).flat_map(|index| encode(1.0 + added + (index % 96) as f32 / 128.0)).collect();
            pattern.iter().copied().cycle().take(BYTES).collect()
        };
        let (expected, live) = (filled(0.0), filled(1.0 / 128.0));
        let wide = Tolerance { atol: 1e-2, rtol: 1e-2, ..tolerance };
        let pairs = Pairs::measure(
            bench.repetitions,
            || {
                let begun = Instant::now();
                match compare(black_box(&live), black_box(&expected), &wide) {
                    Comparison::Within { .. } => Ok(rate(begun.elapsed())),
                    other => Err(format!("{name}: {other:?} instead of a result within the tolerance")),
                }
            },
            || memcmp(black_box(&expected), black_box(&expected.clone())),
        )?;
        let id = format!("compare, within tolerance, {name}");
        rows.push(pairs.row(&id, "GB/s", Judged::Value, Target::AtLeast(2.0), "per core; baseline: memcmp"));
    }
    Ok(rows)
}

/// IEEE binary16 of a number that it has exactly or nearly.
fn half(value: f32) -> u16 {
    let bits = value.to_bits();
    let exponent = ((bits >> 23) & 0xff) as i32 - 127 + 15;
    ((bits >> 16) & 0x8000) as u16 | ((exponent.clamp(0, 31) as u16) << 10) | ((bits >> 13) & 0x3ff) as u16
}

/// An archive as one file.
pub fn pack(bench: &Bench) -> Result<Vec<Row>, String> {
    let archive = bench.built.archive("pack");
    let arguments = ["4", "6", "300", "2", "1024"];
    bench.built.recorded(Hip::Mini, Recorded::Contents, &archive, "transformer", &arguments, &[])?;
    let loose = bytes_under(&archive) as f64;
    let target = bench.built.archive("packed.hrrz");
    let (mut rates, mut sizes) = (Vec::new(), Vec::new());
    for _ in 0..bench.repetitions {
        let _ = std::fs::remove_file(&target);
        let begun = Instant::now();
        hrr_format::packed::pack(&archive, &target).map_err(|error| error.to_string())?;
        rates.push(loose / 1e6 / begun.elapsed().as_secs_f64());
        sizes.push(std::fs::metadata(&target).map_err(|error| error.to_string())?.len() as f64 / loose);
    }
    Ok(vec![
        alone("packing", "MB/s", &rates, Target::None, "transformer's archive; bytes of the archive a second"),
        alone("packed over loose", "x", &sizes, Target::None, "bytes of the packed file over those of the archive"),
    ])
}

/// A gigabyte of five million calls, until its first call is issued.
pub fn open(bench: &Bench) -> Result<Vec<Row>, String> {
    let calls = 5_000_000 / bench.shrink;
    let count = calls.to_string();
    let archive = bench.built.archive("open");
    bench.built.recorded(Hip::Null, Recorded::Contents, &archive, "call_cost", &["launch", count.as_str()], &[])?;
    let gib = bytes_under(&archive) as f64 / f64::from(1 << 30);
    let mut seconds = Vec::new();
    for _ in 0..bench.repetitions.min(3) {
        let ran = bench.built.replay(Hip::Null, &archive, &[], &[])?;
        seconds.push((ran.wall_ms - ran.summary_ms("Wall time")?) / 1e3);
    }
    let id = format!("open to first call, {:.1} M events", calls as f64 * 1.1 / 1e6);
    let note = format!("{gib:.2} GiB; the process's life but for the timed section, so its end is in it too");
    Ok(vec![alone(&id, "s", &seconds, Target::AtMost(2.0), &note)])
}

/// Fifty million calls, planned and replayed in bounded memory.
pub fn huge(bench: &Bench) -> Result<Vec<Row>, String> {
    let calls = 46_000_000 / bench.shrink;
    let count = calls.to_string();
    let archive = bench.built.archive("huge");
    let arguments = ["get_device", count.as_str()];
    bench.built.recorded(Hip::Null, Recorded::Contents, &archive, "call_cost", &arguments, &[])?;
    let events = calls as f64 * 1.1;
    let ran = bench.built.replay(Hip::Null, &archive, &["--memory-budget", "256"], &[])?;
    let name = format!("{:.0} M events", events / 1e6);
    Ok(vec![
        alone(
            &format!("{name}: planned and replayed"),
            "M events/s",
            &[events / ran.wall_ms / 1e3],
            Target::AtLeast(3.0),
            "whole process, one captured thread",
        ),
        alone(
            &format!("{name}: peak resident"),
            "MiB",
            &[ran.peak_mib],
            Target::AtMost(1024.0),
            "with mapped pages of the archive; --memory-budget 256",
        ),
    ])
}
