//! A comparison as people read it: text, Markdown, and a self-contained HTML page.

mod html;
mod svg;
mod text;

pub use html::html;
pub use text::{markdown, text};

use crate::comparison::Comparison;
use crate::line::{Line, LineKind};

/// Lines listed, those whose time changed most.
const LISTED: usize = 15;

/// The lines worth listing: those that changed for sure, then those that changed most.
fn listed(comparison: &Comparison) -> Vec<&Line> {
    let parts = comparison.lines.iter().filter(|line| line.kind != LineKind::Section);
    let mut lines: Vec<&Line> = parts.collect();
    // Stable: within each half the order by change stays.
    lines.sort_by_key(|line| !line.change.is_real());
    lines.truncate(LISTED);
    lines
}

/// A change as a signed percentage, with what it is worth.
fn percent(line: &Line) -> String {
    match line.change.change {
        Some(change) => format!("{:+.1} %", change * 100.0),
        None => "new".to_owned(),
    }
}
