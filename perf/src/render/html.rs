//! One HTML page with plots, which needs nothing else.

use std::fmt::Write as _;

use super::svg;
use super::{listed, percent};
use crate::change::Verdict;
use crate::comparison::{Comparison, Duration};

const STYLE: &str = "\
:root{color-scheme:light dark;--a:#2b6cb0;--b:#c05621;--bad:#c53030;--good:#2f855a;--dim:#8a8a8a}
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.3rem}h2{font-size:1.05rem;margin-top:2rem}
.verdict{font-size:1.15rem;padding:.8rem 1rem;border-left:6px solid var(--dim)}
.verdict.slower{border-color:var(--bad)}.verdict.faster{border-color:var(--good)}
table{border-collapse:collapse;width:100%}td,th{padding:.25rem .6rem;text-align:right;border-bottom:1px solid #8884;font-variant-numeric:tabular-nums}
td.text,th.text{text-align:left;overflow-wrap:anywhere}tr.noise{color:var(--dim)}
svg{width:100%;height:auto}svg text{fill:currentColor;font-size:12px}.tick{text-anchor:middle;opacity:.7}.label{font-weight:bold}.row{text-anchor:end}
.grid{stroke:#8884}.axis{stroke:#888}circle.a{fill:var(--a);fill-opacity:.7}circle.b{fill:var(--b);fill-opacity:.7}
.median{stroke-width:3}.median.a{stroke:var(--a)}.median.b{stroke:var(--b)}
rect.slower{fill:var(--bad)}rect.faster{fill:var(--good)}rect.noise{fill:var(--dim)}
.warning{color:var(--bad)}";

/// The comparison as a page.
pub fn html(comparison: &Comparison) -> String {
    let mut out = String::from(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<title>hrr-perf: A against B</title>\n",
    );
    let class = match comparison.verdict {
        Verdict::Slower => "slower",
        Verdict::Faster => "faster",
        Verdict::NoDifference | Verdict::TooFewRepetitions => "same",
    };
    let _ = write!(
        out,
        "<style>{STYLE}</style></head><body>\n<h1>Replay of {}</h1>\n<p class=\"verdict {class}\">{}</p>\n",
        escaped(&comparison.candidate.archive),
        escaped(&comparison.sentence)
    );
    for warning in &comparison.warnings {
        let _ = writeln!(out, "<p class=\"warning\">{}</p>", escaped(warning));
    }
    out.push_str(
        "<table><tr><th></th><th class=\"text\">runtime</th><th>median</th><th>MAD</th><th>repetitions</th><th>outliers</th></tr>\n",
    );
    for side in [&comparison.baseline, &comparison.candidate] {
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td class=\"text\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escaped(&side.label),
            escaped(&side.runtime),
            Duration(side.median_ns),
            Duration(side.mad_ns),
            side.repetitions,
            side.outliers
        );
    }
    out.push_str("</table>\n");
    if let Some(test) = comparison.mann_whitney {
        let welch = comparison.welch.map(|welch| format!(", Welch p = {:.4}", welch.p)).unwrap_or_default();
        let _ = writeln!(out, "<p>Mann-Whitney p = {:.4}{welch}.</p>", test.p);
    }
    let _ = write!(out, "<h2>Wall time of each repetition</h2>\n{}", svg::repetitions(comparison));
    let _ = write!(
        out,
        "<h2>Time added by part</h2>\n<p>Per repetition, B less A; grey may be chance.</p>\n{}",
        svg::added(comparison)
    );
    out.push_str(
        "<h2>Parts</h2>\n<table><tr><th class=\"text\"></th><th class=\"text\"></th><th>calls</th><th>A</th><th>B</th><th>change</th><th>95 % CI</th><th>p</th></tr>\n",
    );
    for line in listed(comparison) {
        let interval = line.change.interval.map_or_else(String::new, |interval| {
            format!("{:+.1} to {:+.1} %", interval.low * 100.0, interval.high * 100.0)
        });
        let _ = writeln!(
            out,
            "<tr class=\"{}\"><td class=\"text\">{}</td><td class=\"text\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{interval}</td><td>{}</td></tr>",
            if line.change.is_real() { "real" } else { "noise" },
            line.kind.as_str(),
            escaped(&line.name),
            line.count[1],
            Duration(line.change.baseline.median),
            Duration(line.change.candidate.median),
            percent(line),
            line.change.mann_whitney.map_or_else(String::new, |test| format!("{:.4}", test.p)),
        );
    }
    out.push_str("</table>\n</body></html>\n");
    out
}

/// Text that is no markup.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{ApiReport, RunReport};
    use std::path::Path;

    #[test]
    fn names_from_outside_are_no_markup_and_the_page_stands_alone() {
        let report = |scale: u64| RunReport {
            schema_version: 1,
            archive: "<script>alert(1)</script>".into(),
            repetitions: (0..6).map(|i| (1000 + i) * scale).collect(),
            apis: vec![ApiReport {
                name: "a<b".into(),
                count: 6,
                samples_ns: (0..6).map(|i| (500 + i) * scale).collect(),
                ..Default::default()
            }],
            ..Default::default()
        };
        let (first, second) = (report(10), report(12));
        let comparison = Comparison::of_reports((Path::new("a"), &first), (Path::new("b"), &second)).unwrap();
        let page = html(&comparison);
        assert!(!page.contains("<script") && page.contains("&lt;script&gt;") && page.contains("a&lt;b"), "{page}");
        assert!(!page.contains("http") && !page.contains("NaN") && !page.contains("inf"), "{page}");
        assert!(page.matches("<circle").count() == 12 && page.contains("B is 20.0 % slower"), "{page}");
    }
}
