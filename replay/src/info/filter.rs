//! Which calls are listed: by thread, by API name, by number.

use std::ops::Range;
use std::str::FromStr;

use hrr_format::archive::Archive;
use hrr_format::ordered::{Ordered, merged};
use hrr_format::record::marker;

use crate::plan::annotate::launches_kernel;

/// Calls to list. What is not given does not restrict.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Captured thread.
    pub thread: Option<u32>,
    /// Pattern of API names.
    pub api: Option<Glob>,
    /// Event numbers.
    pub range: Option<EventRange>,
}

impl Filter {
    /// Whether a call is listed.
    pub(crate) fn takes(&self, event: u64, thread: u32, api: &str) -> bool {
        self.thread.is_none_or(|wanted| wanted == thread)
            && self.range.as_ref().is_none_or(|range| range.0.contains(&event))
            && self.api.as_ref().is_none_or(|glob| glob.matches(api))
    }

    /// Whether no call from this event number on is listed.
    pub(crate) fn ends_before(&self, event: u64) -> bool {
        self.range.as_ref().is_some_and(|range| range.0.end <= event)
    }
}

/// A pattern for API names: `*` stands for any characters, `?` for one; several are separated by commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob(String);

impl FromStr for Glob {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Glob(text.to_owned()))
    }
}

impl Glob {
    /// Whether a name is meant, upper and lower case told apart.
    pub fn matches(&self, name: &str) -> bool {
        self.0.split(',').any(|pattern| matches(pattern.trim().as_bytes(), name.as_bytes()))
    }
}

/// Matches with one point to fall back to, the last star, so that the time is at most the product of the lengths.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut read, mut star) = (0, 0, None);
    while read < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, read));
                at += 1;
            }
            Some(&wanted) if wanted == b'?' || wanted == name[read] => {
                at += 1;
                read += 1;
            }
            _ => match star {
                Some((star_at, from)) => {
                    star = Some((star_at, from + 1));
                    at = star_at + 1;
                    read = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|&rest| rest == b'*')
}

/// Event numbers from one up to another, written `A..B` (without B), `A..=B`, `A..`, `..B` or `A`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRange(pub Range<u64>);

impl EventRange {
    /// The events from one kernel launch up to, not including, another; `None` where the archive has fewer launches.
    pub fn of_kernels(archive: &Archive, launches: &EventRange) -> Option<EventRange> {
        let mut launch = 0u64;
        let (mut event, mut first) = (0u64, None);
        for Ordered { record, .. } in merged(archive.streams()) {
            if record.api() >= marker::FIRST {
                continue;
            }
            if archive.api(record.api()).known.is_some_and(launches_kernel) {
                if launch == launches.0.start {
                    first = Some(event);
                }
                if launch == launches.0.end {
                    return first.map(|first| EventRange(first..event));
                }
                launch += 1;
            }
            event += 1;
        }
        first.map(|first| EventRange(first..u64::MAX))
    }
}

impl FromStr for EventRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| {
            text.trim().parse::<u64>().map_err(|_| format!("{text:?} is no event number; give A..B, counted from 0"))
        };
        let Some((from, to)) = text.split_once("..") else {
            let event = number(text)?;
            return Ok(EventRange(event..event.saturating_add(1)));
        };
        let start = if from.trim().is_empty() { 0 } else { number(from)? };
        let end = match to.trim() {
            "" => u64::MAX,
            to => match to.strip_prefix('=') {
                Some(last) => number(last)?.saturating_add(1),
                None => number(to)?,
            },
        };
        if start >= end {
            return Err("there is no event in it; give A..B with A less than B".to_owned());
        }
        Ok(EventRange(start..end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_names() {
        let matches = |pattern: &str, name: &str| pattern.parse::<Glob>().unwrap().matches(name);
        assert!(matches("hipMemcpy*", "hipMemcpyAsync") && matches("hipMemcpy*", "hipMemcpy"));
        assert!(matches("*Async", "hipMemcpyAsync") && !matches("*Async", "hipMemcpyAsyncX"));
        assert!(matches("hip*D?oH*", "hipMemcpyDtoHAsync") && !matches("hipMalloc", "hipMallocAsync"));
        assert!(matches("hipFree, hipMalloc", "hipMalloc") && !matches("", "hipFree"));
        assert!(!matches(&"*a".repeat(200), &"a".repeat(199)) && matches(&"*a".repeat(200), &"a".repeat(200)));
    }

    #[test]
    fn ranges_are_written_as_in_rust() {
        let range = |text: &str| text.parse::<EventRange>().map(|range| range.0);
        assert_eq!(range("3..7"), Ok(3..7));
        assert_eq!(range("3..=7"), Ok(3..8));
        assert_eq!(range("..7"), Ok(0..7));
        assert_eq!(range("3.."), Ok(3..u64::MAX));
        assert_eq!(range("5"), Ok(5..6));
        assert!(range("5..2").is_err() && range("..0").is_err());
        assert!(range("a..b").unwrap_err().contains("\"a\" is no event number"));
    }
}
