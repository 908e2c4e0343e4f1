//! Text for a terminal, and Markdown for a bug report.

use std::fmt::Write as _;

use super::{listed, percent};
use crate::comparison::{Comparison, Duration, Measure, Side, Split};
use crate::line::Line;

/// The comparison for a terminal.
pub fn text(comparison: &Comparison) -> String {
    let mut out = String::new();
    for side in [&comparison.baseline, &comparison.candidate] {
        let _ = writeln!(
            out,
            "{}  {:>12}  MAD {:>10}  {} repetition{}{}  {}",
            side.label,
            Duration(side.median_ns),
            Duration(side.mad_ns),
            side.repetitions,
            if side.repetitions == 1 { "" } else { "s" },
            if side.outliers > 0 { format!(" ({} outlying)", side.outliers) } else { String::new() },
            side.path.display(),
        );
        let _ = writeln!(out, "   {}", side.runtime);
    }
    let _ = write!(out, "change     {:>+11.2} %", comparison.change * 100.0);
    if comparison.measure == Measure::TimeInCalls {
        out.push_str("  of the time inside calls");
    }
    if let Some(interval) = comparison.change_interval {
        let _ = write!(out, "  95 % interval {:+.2} % to {:+.2} %", interval.low * 100.0, interval.high * 100.0);
    }
    out.push('\n');
    if let Some(test) = comparison.mann_whitney {
        let how = if test.exact { "exact" } else { "normal approximation" };
        let _ = write!(out, "tests      Mann-Whitney p = {:.4} ({how})", test.p);
        if let Some(welch) = comparison.welch {
            let _ = write!(out, ", Welch p = {:.4}", welch.p);
        }
        out.push('\n');
    }
    for side in [&comparison.baseline, &comparison.candidate] {
        if let Some(split) = side.split {
            let _ = writeln!(out, "workers {}  {}", side.label, split_words(split));
        }
    }
    let listed = listed(comparison);
    if !listed.is_empty() {
        let width = listed.iter().map(|line| line.name.len()).max().unwrap_or(0);
        let _ = writeln!(
            out,
            "\n{:<7} {:<width$}  {:>9}  {:>12}  {:>12}  {:>12}  {:>9}  {:>9}",
            "", "", "calls", "A", "B", "added", "change", "p"
        );
        for line in listed {
            let _ = writeln!(
                out,
                "{:<7} {:<width$}  {:>9}  {:>12}  {:>12}  {:>12}  {:>9}  {:>9}",
                line.kind.as_str(),
                line.name,
                line.count[1],
                Duration(line.change.baseline.median).to_string(),
                Duration(line.change.candidate.median).to_string(),
                added(line),
                percent(line),
                p(line),
            );
        }
        out.push('\n');
    }
    for warning in &comparison.warnings {
        let _ = writeln!(out, "warning    {warning}");
    }
    let _ = writeln!(out, "verdict    {}", comparison.sentence);
    if let Some(hint) = comparison.finding.hint {
        let _ = writeln!(out, "hint       {hint}");
    }
    out
}

fn split_words(split: Split) -> String {
    let parts = [
        (split.runtime, "in the runtime"),
        (split.edges, "waiting for other threads"),
        (split.staging, "waiting for plan and contents"),
        (split.pacing, "in the program's own gaps"),
        (split.own, "in the replayer"),
    ];
    let words: Vec<String> = parts
        .iter()
        .filter(|(part, _)| *part >= 0.0005)
        .map(|(part, what)| format!("{:.1} % {what}", part * 100.0))
        .collect();
    words.join(", ")
}

fn added(line: &Line) -> String {
    let sign = if line.added_ns() < 0.0 { '-' } else { '+' };
    format!("{sign}{}", Duration(line.added_ns().abs()))
}

fn p(line: &Line) -> String {
    let mark = if line.change.is_real() { " *" } else { "" };
    line.change.mann_whitney.map_or_else(String::new, |test| format!("{:.4}{mark}", test.p))
}

/// The comparison as Markdown.
pub fn markdown(comparison: &Comparison) -> String {
    let mut out = format!("**{}**\n\n", comparison.sentence);
    out.push_str("| | runtime | median | MAD | repetitions | outliers |\n|---|---|---:|---:|---:|---:|\n");
    for side in [&comparison.baseline, &comparison.candidate] {
        let Side { label, runtime, median_ns, mad_ns, repetitions, outliers, .. } = side;
        let _ = writeln!(
            out,
            "| {label} | {} | {} | {} | {repetitions} | {outliers} |",
            cell(runtime),
            Duration(*median_ns),
            Duration(*mad_ns)
        );
    }
    out.push('\n');
    if let Some(test) = comparison.mann_whitney {
        let _ = write!(out, "Mann-Whitney p = {:.4}", test.p);
        if let Some(welch) = comparison.welch {
            let _ = write!(out, ", Welch p = {:.4}", welch.p);
        }
        out.push_str(".\n\n");
    }
    let listed = listed(comparison);
    if !listed.is_empty() {
        out.push_str("| | | calls | A | B | added | change | p |\n|---|---|---:|---:|---:|---:|---:|---:|\n");
        for line in listed {
            let _ = writeln!(
                out,
                "| {} | `{}` | {} | {} | {} | {} | {} | {} |",
                line.kind.as_str(),
                cell(&line.name),
                line.count[1],
                Duration(line.change.baseline.median),
                Duration(line.change.candidate.median),
                added(line),
                percent(line),
                p(line).replace('*', "\\*")
            );
        }
        out.push_str("\nTimes are medians per repetition; \\* = unlikely to be chance.\n");
    }
    for warning in &comparison.warnings {
        let _ = writeln!(out, "\n> {warning}");
    }
    out
}

/// Text that does not end a table's cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
