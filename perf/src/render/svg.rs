//! Plots as inline SVG: the repetitions of both sides, and what each part added.

use std::fmt::Write as _;

use super::html::escaped;
use super::{listed, percent};
use crate::comparison::{Comparison, Duration, Side};

const WIDTH: f64 = 860.0;
/// Room for labels on the left.
const LEFT: f64 = 320.0;

/// Wall times of all repetitions: a dot each in the order they ran, a bar at the median.
pub(super) fn repetitions(comparison: &Comparison) -> String {
    const HEIGHT: f64 = 170.0;
    const MARGIN: f64 = 60.0;
    let sides = [(&comparison.baseline, "a"), (&comparison.candidate, "b")];
    let values = || sides.iter().flat_map(|(side, _)| side.walls_ns.iter().copied());
    let (low, high) = values().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), ns| (low.min(ns), high.max(ns)));
    let pad = ((high - low) * 0.08).max(high * 0.002);
    let (low, high) = (low - pad, high + pad);
    let x = |ns: f64| MARGIN + (ns - low) / (high - low) * (WIDTH - 2.0 * MARGIN);
    let mut out =
        format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"wall time of each repetition\">\n");
    for step in 0..=4 {
        let ns = low + (high - low) * f64::from(step) / 4.0;
        let _ = writeln!(
            out,
            "<line class=\"grid\" x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"10\" y2=\"140\"/><text class=\"tick\" x=\"{0:.1}\" y=\"158\">{1}</text>",
            x(ns),
            Duration(ns)
        );
    }
    for (row, (side, class)) in sides.iter().enumerate() {
        let top = 20.0 + row as f64 * 62.0;
        let _ = writeln!(out, "<text x=\"10\" y=\"{:.1}\" class=\"label\">{}</text>", top + 28.0, escaped(&side.label));
        dots(&mut out, side, class, top, x);
        let _ = writeln!(
            out,
            "<line class=\"median {class}\" x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{1:.1}\" y2=\"{2:.1}\"/>",
            x(side.median_ns),
            top,
            top + 46.0
        );
    }
    out.push_str("</svg>\n");
    out
}

fn dots(out: &mut String, side: &Side, class: &str, top: f64, x: impl Fn(f64) -> f64) {
    let last = side.walls_ns.len().saturating_sub(1).max(1) as f64;
    for (number, &ns) in side.walls_ns.iter().enumerate() {
        let y = top + 4.0 + number as f64 / last * 38.0;
        let _ = writeln!(
            out,
            "<circle class=\"{class}\" cx=\"{:.1}\" cy=\"{y:.1}\" r=\"4\"><title>repetition {}: {}</title></circle>",
            x(ns),
            number + 1,
            Duration(ns)
        );
    }
}

/// What each listed part added per repetition.
pub(super) fn added(comparison: &Comparison) -> String {
    const ROW: f64 = 22.0;
    let lines = listed(comparison);
    let most = lines.iter().map(|line| line.added_ns().abs()).fold(1.0, f64::max);
    let height = lines.len() as f64 * ROW + 10.0;
    let middle = LEFT + (WIDTH - LEFT) / 2.0;
    let scale = (WIDTH - LEFT) / 2.0 - 90.0;
    let mut out = format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"time added by part\">\n");
    let _ = writeln!(out, "<line class=\"axis\" x1=\"{middle}\" x2=\"{middle}\" y1=\"0\" y2=\"{height}\"/>");
    for (row, line) in lines.iter().enumerate() {
        let y = row as f64 * ROW + 4.0;
        let length = line.added_ns().abs() / most * scale;
        let (start, class) = if line.added_ns() < 0.0 { (middle - length, "faster") } else { (middle, "slower") };
        let class = if line.change.is_real() { class } else { "noise" };
        let label = format!("{} {}", line.kind.as_str(), line.name);
        let at = if line.added_ns() < 0.0 { start - 6.0 } else { start + length + 6.0 };
        let anchor = if line.added_ns() < 0.0 { "end" } else { "start" };
        let _ = writeln!(
            out,
            "<text class=\"row\" x=\"{0}\" y=\"{1:.1}\">{2}</text><rect class=\"{class}\" x=\"{start:.1}\" y=\"{y:.1}\" width=\"{length:.1}\" height=\"14\"/>\
             <text class=\"value\" text-anchor=\"{anchor}\" x=\"{at:.1}\" y=\"{1:.1}\">{3} ({4})</text>",
            LEFT - 10.0,
            y + 11.0,
            escaped(&shortened(&label)),
            Duration(line.added_ns().abs()),
            percent(line)
        );
    }
    out.push_str("</svg>\n");
    out
}

fn shortened(label: &str) -> String {
    const LONGEST: usize = 46;
    match label.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}…", &label[..at]),
        None => label.to_owned(),
    }
}
