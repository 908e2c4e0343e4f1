//! The summary as text.

use std::io::{self, Write};

use hrr_cli::size_text;
use hrr_format::manifest::{ClockKind, Imported, Window};

use super::arguments::printable;
use super::memory::Memory;
use super::summary::{StoreTotals, Summary};
use super::table::{self, Align};

/// Most kernels that are listed.
const KERNELS_SHOWN: usize = 20;

fn counted(count: u64, singular: &str) -> String {
    counted_as(count, singular, &format!("{singular}s"))
}

fn counted_as(count: u64, singular: &str, plural: &str) -> String {
    format!("{count} {}", if count == 1 { singular } else { plural })
}

/// Seconds since 1970 as `YYYY-MM-DD hh:mm:ss UTC`.
fn utc_text(unix_seconds: u64) -> String {
    let (days, seconds) = (unix_seconds / 86_400, unix_seconds % 86_400);
    // Civil date from a day count, by 400-year eras that begin on a first of March.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// A word of a command line, in quotes where a shell would take it apart.
fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.to_owned() } else { format!("'{}'", printable(word)) }
}

fn store_text(store: &StoreTotals) -> String {
    if store.numbers == 0 {
        return "0".to_owned();
    }
    if store.distinct == store.numbers {
        return format!("{} ({} distinct, {})", store.numbers, store.distinct, size_text(store.distinct_bytes));
    }
    format!(
        "{} ({} distinct, {} instead of {}: {:.2} to 1)",
        store.numbers,
        store.distinct,
        size_text(store.distinct_bytes),
        size_text(store.bytes),
        store.dedup_ratio
    )
}

/// Peaks by kind; a kind that was not allocated is left out.
fn memory_text(memory: &Memory) -> String {
    let kinds = [("device", memory.device), ("pinned", memory.pinned), ("managed", memory.managed)];
    let used: Vec<String> = kinds
        .iter()
        .filter(|(_, held)| held.allocations > 0)
        .map(|(name, held)| {
            format!("{name} {} in {}", size_text(held.peak_bytes), counted(held.allocations, "allocation"))
        })
        .collect();
    if used.is_empty() {
        return "none allocated".to_owned();
    }
    format!("at most {} ({})", size_text(memory.peak_bytes), used.join(", "))
}

/// What was recorded, where that is only a window of the program.
pub(crate) fn window_text(window: &Window) -> String {
    let opened = match window.opened {
        0 => return format!("{}, never opened: nothing was recorded", printable(&window.trigger)),
        1 => "opened once".to_owned(),
        more => format!("opened {more} times"),
    };
    let unknown = match window.unrestored {
        0 => String::new(),
        more => format!("; the contents of {} are not known", counted(more, "allocation, array or variable")),
    };
    format!(
        "{}, {opened} behind {} and {} of device memory{unknown}",
        printable(&window.trigger),
        counted(window.preamble_calls, "earlier call"),
        size_text(window.restored_bytes)
    )
}

/// Writes the whole summary.
pub(super) fn write_summary(summary: &Summary, out: &mut dyn Write) -> io::Result<()> {
    write_head(summary, out)?;
    write_threads(summary, out)?;
    write_apis(summary, out)?;
    write_kernels(summary, out)?;
    write_unreplayable(summary, out)?;
    if let Some(imported) = &summary.imported {
        write_imported(imported, out)?;
    }
    if !summary.warnings.is_empty() {
        writeln!(out)?;
    }
    for warning in &summary.warnings {
        writeln!(out, "[HRR] Warning: {}", printable(warning))?;
    }
    Ok(())
}

fn write_head(summary: &Summary, out: &mut dyn Write) -> io::Result<()> {
    let mut line = |label: &str, value: &str| writeln!(out, "[HRR] {label:<13}: {value}");
    line("Archive", &printable(&summary.archive))?;
    let complete = match (summary.complete, summary.calls_in_flight) {
        (true, calls) if summary.repaired => {
            let calls = if calls == 0 { String::new() } else { format!(", inside {}", counted(calls, "call")) };
            format!("repaired: the process ended without closing its archive, or it was damaged{calls}")
        }
        (true, 0) => "yes".to_owned(),
        (true, calls) => format!("yes, with {} that had not returned", counted(calls, "call")),
        (false, calls) if summary.being_recorded => {
            let calls = if calls == 0 { String::new() } else { format!(", and is inside {}", counted(calls, "call")) };
            format!("no: process {} is still recording it{calls}; this is what it had recorded by now", summary.pid)
        }
        (false, _) if summary.stopped.is_some() => format!(
            "no: the recording stopped before the process ended: {}",
            printable(summary.stopped.as_deref().unwrap_or_default())
        ),
        (false, 0) => "no: the process ended without closing its archive, or still runs".to_owned(),
        (false, calls) => {
            let calls = counted(calls, "call");
            format!("no: the process ended without closing its archive, or still runs, inside {calls}")
        }
    };
    line("Complete", &complete)?;
    let contents = if summary.has_contents() {
        "host buffers, kernel arguments and code objects are recorded".to_owned()
    } else {
        format!(
            "withheld ({}): calls, handles and sizes only; HIP_HRR_CAPTURE_CONTENT=1 records contents",
            counted(summary.withheld, "place")
        )
    };
    line("Contents", &contents)?;
    if let Some(ring) = &summary.flight_recorder {
        let size = size_text(ring.size_bytes);
        let from = ring.complete_from_us / 1000.0;
        line(
            "Ring",
            &format!("a flight recorder: the last calls in at most {size}, of every thread from {from:.3} ms on"),
        )?;
    }
    if let Some(window) = &summary.window {
        line("Window", &window_text(window))?;
    }
    line("Events", &format!("{} ({} failed)", summary.events, summary.failed_calls))?;
    let unsized_launches = match summary.unsized_launches {
        0 => String::new(),
        launches => format!(" ({} of kernels without metadata)", counted_as(launches, "launch", "launches")),
    };
    line("Kernels", &format!("{}{unsized_launches}", summary.kernels))?;
    let unobserved = match summary.unobserved_results {
        0 => String::new(),
        results => format!("; {} that the program never waited for", counted(results, "result")),
    };
    line("Blobs", &format!("{}{unobserved}", store_text(&summary.blobs)))?;
    line("Code Objects", &store_text(&summary.code_objects))?;
    line("Threads", &summary.threads.len().to_string())?;
    line("Streams", &format!("{} created, {} used", summary.streams.created, summary.streams.used))?;
    line("Memory", &memory_text(&summary.memory))?;
    if let Some(regions) = summary.regions {
        let held = format!("{} blocks, {} segments", regions.blocks, regions.segments);
        line("Regions", &format!("{}, {} entries ({held})", counted(regions.files, "file"), regions.entries))?;
    }
    let unreplayable: u64 = summary.unreplayable.iter().map(|refused| refused.calls).sum();
    line(
        "Replayable",
        &match unreplayable {
            _ if summary.window.as_ref().is_some_and(|window| window.opened == 0) => {
                "no: nothing was recorded".to_owned()
            }
            _ if summary.flight_recorder.is_some() => "no: what the calls need was made before them".to_owned(),
            0 => "yes".to_owned(),
            calls => format!("no: {} below", counted(calls, "call")),
        },
    )?;
    line("Process", &format!("{} (parent {})", summary.pid, summary.parent_pid))?;
    if !summary.command.is_empty() {
        let words: Vec<String> = summary.command.iter().map(|word| shell_word(word)).collect();
        line("Command", &words.join(" "))?;
    }
    let start = match summary.clock.unix_ns_at_start {
        0 => String::new(),
        ns => format!(" from {}", utc_text(ns / 1_000_000_000)),
    };
    line("Recorded", &format!("{:.3} ms{start}", summary.duration_us / 1000.0))?;
    let kind = match summary.clock.kind {
        ClockKind::Tsc => "time stamp counter",
        ClockKind::Monotonic => "CLOCK_MONOTONIC",
    };
    line("Clock", &format!("{kind}, {:.3} ticks a us", summary.clock.ticks_per_second as f64 / 1e6))?;
    if summary.runtime.path.is_empty() {
        line("Runtime", "unknown")?;
    } else {
        line("Runtime", &format!("{} (version {})", printable(&summary.runtime.path), summary.runtime.version))?;
    }
    for device in &summary.devices {
        let text = format!(
            "{} ({}), {}, {}",
            printable(&device.name),
            printable(&device.arch),
            size_text(device.total_global_mem_bytes),
            printable(&device.pci_bus_id)
        );
        line(&format!("Device {}", device.ordinal), &text)?;
    }
    Ok(())
}

fn write_threads(summary: &Summary, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out)?;
    writeln!(out, "[HRR] Threads (times in ms since the start):")?;
    let columns = [
        ("Thread", Align::Right),
        ("TID", Align::Right),
        ("Calls", Align::Right),
        ("Failed", Align::Right),
        ("First", Align::Right),
        ("Last", Align::Right),
        ("Name", Align::Left),
    ];
    let ms = |us: Option<f64>| us.map_or_else(|| "-".to_owned(), |us| format!("{:.3}", us / 1000.0));
    let rows = summary.threads.iter().map(|thread| {
        vec![
            thread.thread.to_string(),
            thread.tid.to_string(),
            thread.calls.to_string(),
            thread.failed_calls.to_string(),
            ms(thread.first_us),
            ms(thread.last_us),
            printable(&thread.name).into_owned(),
        ]
    });
    table::write(&columns, rows, out)?;
    for thread in &summary.threads {
        if let Some(in_flight) = &thread.in_flight {
            writeln!(
                out,
                "  thread {} in flight: {}, entered at {:.3} ms, not returned {:.3} ms later",
                thread.thread,
                in_flight.call,
                in_flight.since_us / 1000.0,
                in_flight.at_least_us / 1000.0
            )?;
        }
    }
    for work in &summary.last_work {
        writeln!(out, "  last on stream {}:", work.stream)?;
        for operation in &work.operations {
            let at_ms = operation.at_us / 1000.0;
            writeln!(out, "    {at_ms:.3} ms, thread {}: {}", operation.thread, operation.call)?;
        }
    }
    Ok(())
}

fn write_apis(summary: &Summary, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out)?;
    writeln!(out, "[HRR] Event types (times between entry and return):")?;
    let columns = [
        ("Calls", Align::Right),
        ("Failed", Align::Right),
        ("Total ms", Align::Right),
        ("Mean us", Align::Right),
        ("Max us", Align::Right),
        ("API", Align::Left),
    ];
    let rows = summary.apis.iter().map(|api| {
        vec![
            api.calls.to_string(),
            api.failed_calls.to_string(),
            format!("{:.3}", api.total_us / 1000.0),
            format!("{:.3}", api.mean_us),
            format!("{:.3}", api.max_us),
            printable(&api.name).into_owned(),
        ]
    });
    table::write(&columns, rows, out)
}

/// What the archive was converted from, and what came of it.
fn write_imported(imported: &Imported, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out)?;
    writeln!(
        out,
        "[HRR] Converted from an archive of AMD's in-tree HRR, format {} (flags {:#06x}), {}",
        imported.version,
        imported.flags,
        counted(imported.events, "record")
    )?;
    writeln!(
        out,
        "[HRR]   compiler entry points begin at event {}, by {}",
        imported.runtime_entries,
        printable(&imported.id_evidence)
    )?;
    if imported.snapshots_restored + imported.snapshots_refused > 0 {
        writeln!(
            out,
            "[HRR]   {} of pinned host memory restored, {} of memory that nothing recorded pins",
            counted(imported.snapshots_restored, "snapshot"),
            imported.snapshots_refused
        )?;
    }
    let lists =
        [("added", &imported.added), ("left out", &imported.left_out), ("refused by replay", &imported.refused)];
    for (what, calls) in lists {
        for (call, count) in calls {
            writeln!(out, "[HRR]   {what}: {} of {}", counted(*count, "call"), printable(call))?;
        }
    }
    for (event, count) in &imported.unknown_events {
        writeln!(out, "[HRR]   refused by replay: {} of event {event}, which is unknown", counted(*count, "record"))?;
    }
    for warning in &imported.warnings {
        writeln!(out, "[HRR]   note: {}", printable(warning))?;
    }
    Ok(())
}

fn write_unreplayable(summary: &Summary, out: &mut dyn Write) -> io::Result<()> {
    if summary.unreplayable.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    writeln!(out, "[HRR] Calls that a replay refuses:")?;
    let columns = [("Calls", Align::Right), ("API", Align::Left), ("Reason", Align::Left)];
    let rows = summary.unreplayable.iter().map(|refused| {
        vec![refused.calls.to_string(), printable(&refused.api).into_owned(), printable(&refused.reason).into_owned()]
    });
    table::write(&columns, rows, out)
}

fn write_kernels(summary: &Summary, out: &mut dyn Write) -> io::Result<()> {
    if summary.kernel_launches.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    writeln!(out, "[HRR] Kernels by launches:")?;
    let columns = [
        ("Launches", Align::Right),
        ("Argument bytes", Align::Right),
        ("Code object", Align::Right),
        ("Kernel", Align::Left),
    ];
    let rows = summary.kernel_launches.iter().take(KERNELS_SHOWN).map(|kernel| {
        vec![
            kernel.launches.to_string(),
            kernel.argument_bytes.to_string(),
            kernel.code_object.map_or_else(|| "-".to_owned(), |number| number.to_string()),
            printable(&kernel.name).into_owned(),
        ]
    });
    table::write(&columns, rows, out)?;
    match summary.kernel_launches.len().checked_sub(KERNELS_SHOWN) {
        Some(more) if more > 0 => writeln!(out, "  and {more} more"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_read_well() {
        assert_eq!(utc_text(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc_text(951_782_400 + 3661), "2000-02-29 01:01:01 UTC");
        assert_eq!(utc_text(1_798_761_599), "2026-12-31 23:59:59 UTC");
    }

    #[test]
    fn words_that_a_shell_would_take_apart_are_quoted() {
        assert_eq!(shell_word("--size=4"), "--size=4");
        assert_eq!(shell_word("two words"), "'two words'");
        assert_eq!(shell_word(""), "''");
        assert_eq!(shell_word("a\x1b[31m"), "'a\\u{1b}[31m'");
    }
}
