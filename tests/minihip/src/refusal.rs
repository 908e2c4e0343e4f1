//! Planted failures, for tests of what has to tell them: `MINIHIP_FAIL`.
//!
//! Rules, separated by commas: `NAME:CODE` (every call of an entry point returns this `hipError_t` and does nothing) or
//! `NAME:CODE:N` (only the Nth call of the process, counted from 1).

use std::str::FromStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{HipError, HipResult};

/// One entry point that fails.
#[derive(Debug)]
struct Rule {
    name: String,
    code: i32,
    /// Which of its calls; `None` = each.
    only: Option<u64>,
    /// Calls so far.
    calls: AtomicU64,
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("minihip: MINIHIP_FAIL: {text:?} is no rule");
        let parts: Vec<&str> = text.split(':').collect();
        let (name, code, only) = match parts[..] {
            [name, code] => (name, code, None),
            [name, code, only] => (name, code, Some(only)),
            _ => return Err(bad()),
        };
        let code = code.parse().ok().filter(|&code| code > 0).ok_or_else(bad)?;
        let only = only.map(|only| only.parse().ok().filter(|&only| only > 0).ok_or_else(bad)).transpose()?;
        Ok(Rule { name: name.to_owned(), code, only, calls: AtomicU64::new(0) })
    }
}

fn parse(text: &str) -> Result<Vec<Rule>, String> {
    text.split(',').map(str::trim).filter(|rule| !rule.is_empty()).map(str::parse).collect()
}

/// The rules; none in a process that asks for none.
fn rules() -> &'static [Rule] {
    static RULES: OnceLock<Vec<Rule>> = OnceLock::new();
    RULES.get_or_init(|| {
        parse(&std::env::var("MINIHIP_FAIL").unwrap_or_default()).unwrap_or_else(|error| {
            eprintln!("{error}");
            Vec::new()
        })
    })
}

/// Fails where a rule says that this call of `name` does.
#[inline]
pub(crate) fn check(name: &str) -> HipResult {
    check_against(rules(), name)
}

fn check_against(rules: &[Rule], name: &str) -> HipResult {
    for rule in rules.iter().filter(|rule| rule.name == name) {
        // Relaxed: only a number, and each call gets one of its own.
        let call = rule.calls.fetch_add(1, Ordering::Relaxed) + 1;
        if rule.only.is_none_or(|only| only == call) {
            return Err(HipError(rule.code));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_choose_calls_by_name_and_number_and_mistakes_are_named() {
        let rules = parse("hipMalloc:2:2, hipFree:1").unwrap();
        let codes = |name: &str| (0..3).map(|_| check_against(&rules, name).err().map_or(0, |error| error.0)).collect();
        let (malloc, free, other): (Vec<i32>, Vec<i32>, Vec<i32>) =
            (codes("hipMalloc"), codes("hipFree"), codes("hip"));
        assert_eq!((malloc, free, other), (vec![0, 2, 0], vec![1, 1, 1], vec![0, 0, 0]));
        assert!(parse("").unwrap().is_empty());
        for bad in ["hipMalloc", "hipMalloc:x", "hipMalloc:0", "hipMalloc:2:0", "hipMalloc:2:1:1"] {
            assert!(parse(bad).unwrap_err().contains(bad), "{bad}");
        }
    }
}
