//! What recording costs.

use std::path::Path;

use hrr_format::archive::Archive;

use super::Bench;
use crate::program::{Hip, Recorded};
use crate::table::{Judged, Pairs, Row, Target, alone};

const CALLS: u64 = 400_000;

/// A call recorded, against the same call alone, on a runtime whose calls do nothing.
pub fn calls(bench: &Bench) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    let kinds = [("get_device", 50.0), ("event_record", 50.0), ("launch", 120.0)];
    let count = (CALLS / bench.shrink).to_string();
    for (kind, limit) in kinds {
        for threads in ["1", "2"] {
            for (mode, recorded) in [("metadata", Recorded::Metadata), ("contents", Recorded::Contents)] {
                let arguments = [kind, count.as_str(), threads];
                let archive = bench.built.archive("calls");
                let pairs = Pairs::measure(
                    bench.repetitions,
                    || {
                        let _ = std::fs::remove_dir_all(&archive);
                        let ran = bench.built.recorded(Hip::Null, recorded, &archive, "call_cost", &arguments, &[])?;
                        ran.number("ns_per_call")
                    },
                    || bench.built.plain(Hip::Null, "call_cost", &arguments, &[])?.number("ns_per_call"),
                )?;
                let target = if recorded == Recorded::Metadata { Target::AtMost(limit) } else { Target::None };
                let added = pairs.map(|with, without| with - without);
                let id = format!("record {kind}, T={threads}, {mode}: added");
                rows.push(added.row(&id, "ns", Judged::Value, target, "baseline: the same call, not recorded"));
            }
        }
    }
    Ok(rows)
}

/// Whole workloads recorded, against the same alone.
pub fn workloads(bench: &Bench) -> Result<Vec<Row>, String> {
    let transformer: &[&str] = &["4", "6", "300", "2", "1024"];
    let rate: &[&str] = &["20000", "2"];
    let serving: &[&str] = &["2", "100", "24", "4", "1"];
    // Bound by the device, by the rate of calls, by both.
    let listed = [
        ("transformer", transformer, 1.02, 1.10),
        ("launch_rate", rate, 2.0, f64::INFINITY),
        ("serving", serving, 2.0, f64::INFINITY),
    ];
    let mut rows = Vec::new();
    for (name, arguments, metadata_limit, contents_limit) in listed {
        for (mode, recorded, limit) in
            [("metadata", Recorded::Metadata, metadata_limit), ("contents", Recorded::Contents, contents_limit)]
        {
            let archive = bench.built.archive("workload");
            let pairs = Pairs::measure(
                bench.repetitions,
                || {
                    let _ = std::fs::remove_dir_all(&archive);
                    let ran = bench.built.recorded(Hip::Mini, recorded, &archive, name, arguments, &[])?;
                    ran.number("wall_ms")
                },
                || bench.built.plain(Hip::Mini, name, arguments, &[])?.number("wall_ms"),
            )?;
            let target = if limit.is_finite() { Target::AtMost(limit) } else { Target::None };
            let id = format!("recorded {name}, {mode}");
            rows.push(pairs.row(&id, "ms", Judged::Ratio, target, "baseline: the plain run's own wall time"));
        }
    }
    Ok(rows)
}

/// Uploads recorded with contents: processor time for what is copied, hashed and written, and memory.
pub fn contents(bench: &Bench) -> Result<Vec<Row>, String> {
    const KIB: u64 = 1 << 10;
    let total = (1 << 30) / bench.shrink;
    let mut rows = Vec::new();
    for size in [64 * KIB, 1024 * KIB, 16 << 20, 256 << 20] {
        let copies = (total / size).max(2);
        let (size_text, copies_text) = (size.to_string(), copies.to_string());
        for kind in ["upload_fresh", "upload_same"] {
            let arguments = [kind, size_text.as_str(), copies_text.as_str()];
            let archive = bench.built.archive("contents");
            let (mut memory, mut floor) = (Vec::new(), Vec::new());
            let gigabytes = (size * copies) as f64 / 1e9;
            let pairs = Pairs::measure(
                bench.repetitions,
                || {
                    let _ = std::fs::remove_dir_all(&archive);
                    let plain = bench.built.plain(Hip::Null, "call_cost", &arguments, &[])?;
                    let ran =
                        bench.built.recorded(Hip::Null, Recorded::Contents, &archive, "call_cost", &arguments, &[])?;
                    memory.push(ran.peak_mib - plain.peak_mib);
                    let _ = std::fs::remove_dir_all(&archive);
                    floor.push(gigabytes / write_cpu_s(&bench.built.archive("written"), size * copies)?);
                    Ok(gigabytes / ((ran.cpu_ms - plain.cpu_ms).max(0.001) / 1e3))
                },
                || bench.built.plain(Hip::Null, "call_cost", &arguments, &[])?.number("memcpy_gb_per_s"),
            )?;
            let label = if kind == "upload_fresh" { "new" } else { "unchanged" };
            let id = format!("contents, {} KiB, {label}", size / KIB);
            let note = "per core: bytes over the processor time that recording adds; baseline: memcpy";
            rows.push(pairs.row(&id, "GB/s", Judged::Value, Target::AtLeast(2.0), note));
            if kind == "upload_fresh" {
                let id = format!("contents, {} KiB, extra memory", size / KIB);
                rows.push(alone(&id, "MiB", &memory, Target::AtMost(256.0), "peak resident, above the plain run's"));
                let id = format!("contents, {} KiB, page cache alone", size / KIB);
                let note = "as many bytes written to a new file, over the processor time of that";
                rows.push(alone(&id, "GB/s", &floor, Target::None, note));
            }
        }
    }
    Ok(rows)
}

/// Processor time in seconds of writing a new file of this many bytes: what storing new contents costs at least.
fn write_cpu_s(path: &Path, len_bytes: u64) -> Result<f64, String> {
    use std::io::Write;
    let piece = vec![7u8; 256 << 10];
    let io = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut file = std::fs::File::create(path).map_err(io)?;
    let begin = thread_cpu_s();
    for _ in 0..len_bytes.div_ceil(piece.len() as u64) {
        file.write_all(&piece).map_err(io)?;
    }
    let took = thread_cpu_s() - begin;
    std::fs::remove_file(path).map_err(io)?;
    Ok(took.max(1e-6))
}

fn thread_cpu_s() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the address is that of a whole timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// What a record takes in its stream file.
pub fn size(bench: &Bench) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for (kind, api, limit) in [
        ("get_device", "hipGetDevice", 64.0),
        ("event_record", "hipEventRecord", 64.0),
        ("launch", "hipLaunchKernel", 160.0),
    ] {
        let archive = bench.built.archive("size");
        bench.built.recorded(Hip::Null, Recorded::Metadata, &archive, "call_cost", &[kind, "1000"], &[])?;
        let opened = Archive::open(&archive).map_err(|error| error.to_string())?;
        let mut sizes = Vec::new();
        for stream in opened.streams() {
            for record in stream.records() {
                if opened.row_of(&record).is_some_and(|row| row.name == api) {
                    sizes.push(record.len_bytes() as f64);
                }
            }
        }
        let id = format!("bytes of a recorded {api}");
        rows.push(alone(&id, "B", &sizes, Target::AtMost(limit), "in its stream file, before packing"));
    }
    Ok(rows)
}
