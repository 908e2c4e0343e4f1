//! What was found, in words.

use super::{Extent, Finding, Tier, Typical};
use crate::change::{Change, Verdict};
use crate::comparison::Duration;

impl Finding {
    /// The outcome in one sentence.
    pub fn sentence(&self, wall: &Change) -> String {
        let percent = wall.change.unwrap_or(0.0) * 100.0;
        let interval = wall.interval.map(|interval| {
            let (low, high) = match wall.verdict {
                Verdict::Faster => (-interval.high, -interval.low),
                _ => (interval.low, interval.high),
            };
            format!(" (95 % CI {:.1} to {:.1})", low * 100.0, high * 100.0)
        });
        let interval = interval.unwrap_or_default();
        let what = match wall.verdict {
            Verdict::Slower => format!("B is {percent:.1} % slower{interval}"),
            Verdict::Faster => format!("B is {:.1} % faster{interval}", -percent),
            Verdict::NoDifference => {
                let typical = self.typical_words();
                return format!("no difference that could not be chance: B is {percent:+.1} %{interval}{typical}");
            }
            Verdict::TooFewRepetitions => {
                return format!("too few repetitions to tell ({percent:+.1} %); repeat each side at least 4 times");
            }
        };
        format!("{what}{}", self.place())
    }

    fn typical_words(&self) -> String {
        let typical = self.typical.iter().map(Typical::words).collect::<Vec<_>>().join(" and ");
        if typical.is_empty() { typical } else { format!("; but {typical}") }
    }

    /// Where the difference is, to follow the words that tell how large it is.
    pub fn place(&self) -> String {
        let extent = match self.extent {
            Extent::All => "all of it",
            Extent::Most => "most of it",
            Extent::Some => "some of it",
            Extent::None => {
                return format!(", and no single call, kernel or copy accounts for it{}", self.typical_words());
            }
        };
        let [first, others @ ..] = self.causes.as_slice() else { return String::new() };
        let mut others: String = others.iter().map(|cause| format!(" and {cause}")).collect();
        if self.more > 0 {
            others.push_str(&format!(" and {} more", self.more));
        }
        let kernel = if self.kind == Some(Tier::Kernels.as_str()) && !first.starts_with('(') { "kernel " } else { "" };
        format!(", {extent} in {kernel}{first}{others}")
    }
}

impl Typical {
    /// As a part of a sentence.
    fn words(&self) -> String {
        /// Change from which both times are told instead: of next to nothing, everything is many times as much.
        const MANY_TIMES: f64 = 9.0;
        if self.change >= MANY_TIMES {
            let [before, after] = self.medians_ns.map(Duration);
            return format!("a typical {} takes {after} where it took {before}", self.name);
        }
        let interval = self.interval.map_or_else(String::new, |interval| {
            format!(" (95 % CI {:+.1} to {:+.1})", interval.low * 100.0, interval.high * 100.0)
        });
        format!("a typical {} takes {:+.1} %{interval}", self.name, self.change * 100.0)
    }
}
