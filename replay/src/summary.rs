//! What a replay prints: the lines before the clock starts and the summary after it.

use std::fmt::Write as _;

use hrr_format::archive::Archive;
use hrr_format::stream_file::ContentsMode;

use crate::driver::{Outcome, Prepared, ReplayOptions};

/// The lines that say what will be replayed, on what, and how.
pub fn heading(archive: &Archive, events: u64, prepared: &Prepared<'_>, options: &ReplayOptions) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "[HRR] Archive : {events} events, {} kernels, {} blobs, {} code objects",
        archive.kernels().kernels().len(),
        archive.blobs().len(),
        archive.code_objects().len()
    );
    let contents = match archive.contents() {
        ContentsMode::Contents => "recorded",
        ContentsMode::MetadataOnly => "withheld (recorded without HIP_HRR_CAPTURE_CONTENT=1)",
    };
    let synthetic = match options.choices.synthetic {
        Some(synthetic) => format!("; --shape-only: copies move {synthetic}, no kernel is launched"),
        None => String::new(),
    };
    let _ = writeln!(text, "[HRR] Contents: {contents}{synthetic}");
    if let Some(window) = &archive.manifest().window {
        let _ = writeln!(
            text,
            "[HRR] Window  : {}; its preamble is set-up, and not timed",
            crate::info::window_text(window)
        );
    }
    let _ = writeln!(text, "[HRR] Threads : {} captured", archive.streams().len());
    let devices: Vec<String> = prepared.devices.iter().map(|(ordinal, name)| format!("{ordinal}: {name}")).collect();
    let _ = writeln!(
        text,
        "[HRR] Device  : {}",
        if devices.is_empty() { "none used".to_owned() } else { devices.join(", ") }
    );
    let version = prepared.runtime.version();
    let _ = writeln!(
        text,
        "[HRR] Runtime : {} (HIP {}.{}.{})",
        prepared.runtime.path().display(),
        version / 10_000_000,
        version / 100_000 % 100,
        version % 100_000
    );
    let workers = prepared.workers;
    let _ = writeln!(
        text,
        "[HRR] Mode    : {workers} worker thread{}, order {}",
        if workers == 1 { "" } else { "s" },
        options.order.as_str()
    );
    let extent = if prepared.windowed {
        "planned and staged as far as --memory-budget allows; the rest follows while it runs"
    } else {
        "planned and staged whole"
    };
    let _ = writeln!(text, "[HRR] Set-up  : {:.1} ms ({extent})", prepared.setup.as_secs_f64() * 1e3);
    text
}

/// The summary.
pub fn summary(outcome: &Outcome) -> String {
    let mut text = String::new();
    let verdict = &outcome.verdict;
    let _ = writeln!(text, "[HRR] -- Replay summary ------------------------------");
    let _ = writeln!(text, "[HRR] Wall time : {:.1} ms", outcome.wall.as_secs_f64() * 1e3);
    if outcome.repetitions > 1 {
        let walls = &outcome.report.repetitions;
        let ms = |ns: Option<&u64>| ns.map_or(0.0, |&ns| ns as f64 / 1e6);
        let _ = writeln!(
            text,
            "[HRR] Repetitions : {} (median above; {:.1} to {:.1} ms){}",
            outcome.repetitions,
            ms(walls.iter().min()),
            ms(walls.iter().max()),
            if outcome.planned_each_repetition {
                ", each planned anew: the archive exceeds --memory-budget"
            } else {
                ""
            }
        );
    }
    if let Some(teardown) = outcome.teardown {
        let _ = writeln!(text, "[HRR] Teardown : {:.1} ms", teardown.as_secs_f64() * 1e3);
    }
    let _ = writeln!(text, "[HRR] Threads used : {}", outcome.workers);
    let _ = writeln!(
        text,
        "[HRR] Calls     : {} issued, {} skipped because they have no effect here",
        outcome.issued, outcome.skipped
    );
    let _ = writeln!(text, "[HRR] Kernels launched: {}", outcome.kernels);
    let _ = writeln!(text, "[HRR] Graphs launched : {}", outcome.graphs);
    if let Some(gpu) = outcome.gpu {
        let ms = |ns: u64| ns as f64 / 1e6;
        let _ = writeln!(text, "[HRR] GPU kernel time : {:.3} ms", ms(gpu.kernel_ns));
        let _ = writeln!(text, "[HRR] GPU graph time : {:.3} ms", ms(gpu.graph_ns));
        let _ = writeln!(text, "[HRR] GPU total time : {:.3} ms", ms(gpu.kernel_ns + gpu.graph_ns));
        if let Some(timing) = &outcome.report.timing {
            let repetitions = outcome.repetitions.max(1) as u64;
            let _ = writeln!(
                text,
                "[HRR] Timing cost : {:.3} ms of host time for {} pairs of events ({} without); {:.1} us contained in each",
                ms(timing.host_overhead_ns / repetitions),
                timing.timed / repetitions,
                timing.untimed / repetitions,
                timing.floor_ns as f64 / 1e3
            );
        }
    }
    let _ = writeln!(
        text,
        "[HRR] D2H checks : {} pass ({} exact, {} within tol), {} fail, {} skipped",
        verdict.passed(),
        verdict.exact,
        verdict.within,
        verdict.failed,
        verdict.skipped_total()
    );
    for (reason, count) in &verdict.skipped {
        let _ = writeln!(text, "[HRR]   skipped {count}: {}", reason.as_str());
    }
    let _ = writeln!(text, "[HRR] Workers   : {}", outcome.placement);
    let memory = &outcome.memory;
    let _ = write!(
        text,
        "[HRR] Placement : {} placed at their recorded addresses, {} elsewhere",
        memory.placed, memory.not_placed
    );
    let _ = match (memory.placement_on, memory.refusals.as_str()) {
        (false, _) => writeln!(text, " (off)"),
        (true, "") => writeln!(text),
        (true, refusals) => writeln!(text, " ({refusals})"),
    };
    let mut counted = |count: u64, line: &str| {
        if count > 0 {
            let _ = writeln!(text, "[HRR] {line}");
        }
    };
    counted(outcome.failed_calls, &format!("Events failed : {}", outcome.failed_calls));
    counted(
        outcome.failures_not_reissued,
        &format!(
            "Not reissued  : {} recorded failures that might not fail the same way now",
            outcome.failures_not_reissued
        ),
    );
    counted(
        outcome.in_flight,
        &format!("In flight     : {} calls had not returned when the archive ended", outcome.in_flight),
    );
    counted(
        outcome.unordered,
        &format!(
            "Unordered     : {} pairs of calls overlapped on one stream; issued in order of entry",
            outcome.unordered
        ),
    );
    counted(
        outcome.untranslated,
        &format!(
            "Untranslated  : {} kernel pointer arguments lie in no live allocation; passed as null",
            outcome.untranslated
        ),
    );
    counted(
        memory.stale,
        &format!(
            "Stale pointers: {} addresses of memory that lies elsewhere now were uploaded; first: {}",
            memory.stale,
            memory.first_stale.as_deref().unwrap_or("?")
        ),
    );
    counted(
        memory.images,
        &format!("Images        : {} handles of texture or surface objects in uploads translated", memory.images),
    );
    counted(
        memory.small_images,
        &format!(
            "Images        : {} numbers in uploads are small enough to be no handle of an image, though there is one; left alone",
            memory.small_images
        ),
    );
    let regions = &outcome.regions;
    counted(
        regions.segments,
        &format!(
            "Region segs   : {} made real ({} bytes), which no recorded call gave out",
            regions.segments, regions.segment_bytes
        ),
    );
    counted(
        regions.failed,
        &format!(
            "Region segs   : {} could not be made real: {}",
            regions.failed,
            regions.failure.as_deref().unwrap_or("?")
        ),
    );
    counted(
        regions.findings,
        &format!(
            "Region check  : {} accesses outside live blocks; first: {}",
            regions.findings,
            regions.lines.first().map_or("?", String::as_str)
        ),
    );
    counted(
        regions.guarded + regions.unguarded,
        &format!(
            "Guard         : {} between guards ({} bytes), {} left without",
            regions.guarded, regions.guarded_bytes, regions.unguarded
        ),
    );
    let host = &outcome.host_memory;
    counted(
        host.restored,
        &format!(
            "Host memory   : {} restored ({} bytes) where kernels use it directly, {} of them around work in flight",
            host.restored, host.restored_bytes, host.meanwhile
        ),
    );
    counted(
        outcome.host_left_alone,
        &format!(
            "Host memory   : {} chunks had changed before a launch while work in flight may have written them; not restored",
            outcome.host_left_alone
        ),
    );
    counted(
        host.not_recorded,
        &format!(
            "Host memory   : {} allocations NOT restored: larger than the recorder looked through \
             (HIP_HRR_HOST_SNAPSHOT_MAX_MB, _TOTAL_MB); first: {}",
            host.not_recorded,
            host.first_not_recorded.as_deref().unwrap_or("?")
        ),
    );
    counted(
        outcome.filtered,
        &format!("Filtered      : {} launches left out; no result is compared", outcome.filtered),
    );
    counted(outcome.replaced, &format!("Replaced      : {} launches of replaced kernels", outcome.replaced));
    for (api, code) in outcome.teardown_failures.iter().take(3) {
        counted(1, &format!("Teardown : {api} failed with {code}"));
    }
    let between = outcome.between_merged_devices;
    counted(between, &format!("Peer access   : {between} calls left out; one device stands for both"));
    counted(outcome.callbacks, &format!("Callbacks     : {} host callbacks replaced by stubs", outcome.callbacks));
    if outcome.lost_results > 0 {
        let _ = writeln!(
            text,
            "[HRR] Lost results  : {} that the program saw and that no call brings",
            outcome.lost_results
        );
    }
    for (api, lost) in &outcome.lost {
        let _ =
            writeln!(text, "[HRR] Lost          : {lost} calls of {api} were neither issued nor left out for a reason");
    }
    if let Some(shape) = &outcome.shape {
        let left_out: u64 = shape.left_out.iter().map(|(_, _, calls)| calls).sum();
        let _ = writeln!(
            text,
            "[HRR] Shape only: copies moved {}, no result was compared, {left_out} calls were left out",
            shape.synthetic
        );
        for (reason, api, calls) in &shape.left_out {
            let _ = writeln!(text, "[HRR]   left out {calls} of {api}: {}", reason.as_str());
        }
        if shape.empty_nodes > 0 {
            let _ = writeln!(text, "[HRR]   {} kernel nodes of graphs were empty nodes", shape.empty_nodes);
        }
    }
    if outcome.all_skipped() {
        let _ = writeln!(text, "[HRR] No D2H result could be compared");
    }
    let verdict = match (outcome.exit_code(), &outcome.shape) {
        (0, None) => "PASS",
        // Nothing was computed and nothing compared: that the calls went through is no pass.
        (0, Some(_)) => "SHAPE",
        _ => "FAIL",
    };
    let _ = writeln!(text, "[HRR] {verdict}");
    text
}
